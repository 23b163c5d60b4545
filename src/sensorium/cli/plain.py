"""Listener of ``python -m sensorium.client ADDRESS [SENSOR ...]``, which needs only numpy, pyzmq and msgspec."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sensorium.cli import exit_code

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EXAMPLES = """\
for example:
  python -m sensorium.client tcp://127.0.0.1:7447
  python -m sensorium.client tcp://127.0.0.1:7447 lidar --env 0
  python -m sensorium.client tcp://127.0.0.1:7447 imu --json --count 100
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plain-text listener and return its exit code.

    Args:
        argv: arguments without the program name; None uses the arguments of the process.
    """
    return exit_code(lambda: _run(argv), is_process=argv is None)


def _run(argv: Sequence[str] | None) -> int:
    from sensorium.errors import MissingDependencyError, SensoriumError, plain_messages

    args = vars(_parser().parse_args(argv))
    try:
        from sensorium.cli.monitor import Options, listen, newest_json, to_stderr

        with plain_messages():
            options = Options(**{**args, "sensors": tuple(args["sensors"])})
            listen(options, sys.stdout, to_stderr, "python -m sensorium.client", newest_json)
    except SensoriumError as error:
        to_stderr(f"error: {error}")
        return 2
    except ModuleNotFoundError as error:
        missing = MissingDependencyError.of_core("python -m sensorium.client", error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    import argparse
    from pathlib import Path

    parser = argparse.ArgumentParser(
        prog="python -m sensorium.client",
        description="Listen to sensors of a simulation in another process, in plain text.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("address", metavar="ADDRESS", help="address that the server prints, e.g. tcp://127.0.0.1:7447")
    add("sensors", metavar="SENSOR", nargs="*", help="names of sensors (default: list the available sensors)")
    add("--env", type=int, metavar="K", help="only this environment (default: all; the values shown are of the first)")
    add("--every", type=int, default=1, metavar="N", help="only every N-th sample")
    add("--max-rate", type=float, default=0.0, metavar="HZ", help="maximum number of samples per second of wall clock")
    add("--policy", choices=("latest", "lossless"), default="latest", help="drop old samples, or queue all")
    add("--truth", action="store_true", help="also show the ground truth")
    add("--count", type=int, default=0, metavar="N", help="end after N samples of each sensor")
    add("--seconds", type=float, default=0.0, metavar="S", help="end after S seconds of wall clock")
    add("--json", action="store_true", help="print all samples, not only the newest of each second")
    add("--token-file", type=Path, metavar="FILE", help="file with the server's token (default: SENSORIUM_TOKEN)")
    add("--server-key", default="", metavar="KEY", help="public key of a server with keys")
    add("--keys", dest="key_file", type=Path, metavar="FILE", help="file with this client's keys; created if missing")
    add("--timeout", type=float, default=5.0, metavar="S", help="longest wait for the first connection, s")
    return parser
