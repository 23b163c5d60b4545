"""The command line: `sensorium COMMAND`, see `COMMANDS`.

Heavy modules are imported only when a command runs, so that `--help` is fast. Errors that the user can fix end with one
message on stderr and exit code 2. Ctrl-C keeps the recorded data and ends with exit code 130.
"""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Protocol, Union

__all__ = ["main"]

DESCRIPTION = """Sensors for simulated robots: the ground truth, and the measurements of a real device.

`sensorium COMMAND --help` shows the options of a command, with examples. `sensorium --version` shows the version."""
COMMANDS = {
    "demo": "sensorium.cli.commands:Demo",
    "run": "sensorium.cli.commands:Run",
    "generate": "sensorium.cli.generate:Generate",
    "generate status": "sensorium.cli.generate:GenerateStatus",
    "generate verify": "sensorium.cli.generate:GenerateVerify",
    "generate collect": "sensorium.cli.generate:GenerateCollect",
    "generate template": "sensorium.cli.generate:GenerateTemplate",
    "view": "sensorium.cli.view:View",
    "replay": "sensorium.cli.recordings:Replay",
    "export": "sensorium.cli.exports:Export",
    "plot": "sensorium.cli.reports:Plot",
    "report": "sensorium.cli.reports:Report",
    "fit": "sensorium.cli.fitting:Fit",
    "compare": "sensorium.cli.fitting:Compare",
    "calib": "sensorium.cli.exports:Calib",
    "repair": "sensorium.cli.recordings:Repair",
    "serve": "sensorium.cli.serve:Serve",
    "listen": "sensorium.cli.listen:Listen",
    "ros2": "sensorium.cli.ros2:Ros2",
    "explain": "sensorium.cli.explain:Explain",
    "list": "sensorium.cli.listing:List",
    "new-sensor": "sensorium.cli.new_sensor:NewSensor",
    "warmup": "sensorium.cli.warmup:Warmup",
}
"""Command name, of one or two words -> its class. Only the class of the given command is imported."""
HELP = ("-h", "--help")


class _Command(Protocol):
    def run(self) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    if argv is None:  # this is the program's own process: saves half a second in imports and at exit
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    return exit_code(lambda: _run(list(sys.argv[1:] if argv is None else argv)), is_process=argv is None)


def exit_code(run: Callable[[], int], *, is_process: bool) -> int:
    """Run a command and return the exit code of the process: that of the command, or of its interruption.

    Args:
        run: the command.
        is_process: whether the process ends with the command.
    """
    try:
        code = run()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        return 1
    except KeyboardInterrupt:  # nothing is imported here, since another Ctrl-C may follow
        if is_process:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return 130


def _run(args: list[str]) -> int:
    from sensorium.errors import MissingDependencyError, SensoriumError, plain_messages

    try:
        if args[:1] == ["--version"]:
            from sensorium import __version__

            print(f"sensorium {__version__}")
            return 0
        from sensorium.cli import messages

        with plain_messages():
            return _parsed(args or ["--help"]).run()
    except SensoriumError as error:
        messages.error(str(error))
        if isinstance(error, MissingDependencyError) and "sensorium[" in str(error):
            again = shlex.join(["sensorium", *args])
            print(f"All packages of the commands at once: pip install 'sensorium[all]' && {again}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = MissingDependencyError.of_core(f"`sensorium {args[0]}`" if args else "the command line", error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # help was shown, or the arguments were invalid and the reason was printed
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _parsed(args: list[str]) -> _Command:
    import tyro

    from sensorium.cli.arguments import REGISTRY
    from sensorium.engines.model_file import SUFFIXES
    from sensorium.errors import UnknownNameError

    name, *rest = args
    if " ".join(args[:2]) in COMMANDS:
        name, rest = " ".join(args[:2]), args[2:]
    with REGISTRY:
        if name in COMMANDS:
            parsed: _Command = tyro.cli(_command(name), prog=f"sensorium {name}", args=rest)
            return parsed
        if name not in HELP:
            fix = "See `sensorium --help` for a description of each."
            if name.endswith(SUFFIXES):
                fix = f"To simulate a model: sensorium run {name} --rig rig.toml"
            raise UnknownNameError("command", name, [*COMMANDS, "--help", "--version"], fix)
        listed: Any = Union[tuple(Annotated[_command(name), _line(name)] for name in COMMANDS)]  # noqa: UP007 - of many
        tyro.cli(listed, prog="sensorium", description=DESCRIPTION, args=["--help"])
    raise AssertionError("tyro ends with its help")


def _command(name: str) -> Any:
    module, _, cls = COMMANDS[name].partition(":")
    return getattr(import_module(module), cls)


def _line(name: str) -> Any:
    """Return a command with its summary for the list of commands: one line each."""
    import tyro

    return tyro.conf.subcommand(name, description=(_command(name).__doc__ or "").splitlines()[0])
