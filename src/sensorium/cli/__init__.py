"""The command line: `sensorium demo`, `run`, `serve`, `listen`, `explain`, `list`, `new-sensor`, `warmup`.

Nothing heavy is imported before a command runs, so that `--help` is quick. Whatever the user can mend ends with one
message on stderr and exit code 2; Ctrl-C keeps what was recorded and ends with 130.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

__all__ = ["main"]

DESCRIPTION = "Sensors for simulated robots: the truth, and beside it what a real device would report."


class _Command(Protocol):
    def run(self) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    try:
        if argv is None:  # the process is ours: half a second less for what it imports, and to take that down
            gc.set_threshold(100_000)
            atexit.register(gc.freeze)
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # nothing is imported here: the next one may be on its way
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return 130


def _run(args: list[str]) -> int:
    from sensorium.cli import messages
    from sensorium.errors import SensoriumError

    try:
        if args == ["--version"]:
            from sensorium import __version__

            messages.stdout().print(f"sensorium {__version__}")
            return 0
        with messages.plain_warnings():
            return _parsed(args or ["--help"]).run()
    except SensoriumError as error:
        messages.error(str(error))
        return 2
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains of it when it ends
        return 1
    except SystemExit as stop:  # help was shown, or the arguments could not be parsed and it was said why
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _parsed(args: list[str]) -> _Command:
    import tyro

    from sensorium.cli.arguments import REGISTRY
    from sensorium.cli.commands import Demo, Run
    from sensorium.cli.explain import Explain
    from sensorium.cli.listen import Listen
    from sensorium.cli.listing import List
    from sensorium.cli.new_sensor import NewSensor
    from sensorium.cli.serve import Serve
    from sensorium.cli.warmup import Warmup

    def command(name: str, cls: type) -> Any:
        line = (cls.__doc__ or "").splitlines()[0]  # where all are listed, one line for each will do
        return tyro.conf.subcommand(name, description=line if args[0] in ("-h", "--help") else None)

    commands = (
        Annotated[Demo, command("demo", Demo)]
        | Annotated[Run, command("run", Run)]
        | Annotated[Serve, command("serve", Serve)]
        | Annotated[Listen, command("listen", Listen)]
        | Annotated[Explain, command("explain", Explain)]
        | Annotated[List, command("list", List)]
        | Annotated[NewSensor, command("new-sensor", NewSensor)]
        | Annotated[Warmup, command("warmup", Warmup)]
    )
    with REGISTRY:
        parsed: _Command = tyro.cli(commands, prog="sensorium", description=DESCRIPTION, args=args)
    return parsed
