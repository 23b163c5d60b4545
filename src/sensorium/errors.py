"""The exception tree. Each message gives the config, the field, the value, the accepted values and the fix.

SensoriumError
|- ConfigError          (ValueError)            one or several faults in a config; `.faults` lists all of them
|  `- SelectionError    (ValueError)            a name selector matched nothing, or several names instead of one
|     `- PathError      (RuntimeError)          the same for a selector that is a path
|- ArgumentError        (ValueError)            invalid argument of a call
|- DuplicateNameError   (ValueError)            two sensors, or two kinds, share one name
|- UnknownNameError     (KeyError)              no sensor, preset, kind or field has that name
|- RegistrationError    (TypeError)             a sensor class breaks the author's contract
|- ModelError           (ValueError)            a model file is missing or broken
|- DeviceError          (ValueError)            unknown or unusable device; the message lists the devices found
|- UnsupportedError     (NotImplementedError)   the engine does not provide a quantity that a sensor requires
|- ScheduleError        (RuntimeError)          time moved in a way that the sensors do not support
|- StaleError           (RuntimeError)          a view, a reading or a sensor was used after it became invalid
|- NotTrackedError      (RuntimeError)          a quantity was requested that the sensor does not keep
|- StreamError          (ConnectionError)       a server or client is unreachable or refused a request
|  `- WireError         (ValueError)            bytes that are not a valid message
|- GenerateError        (RuntimeError)          shards of a data set failed, or its workers cannot be used
|- UsageError                                    invalid command-line argument, named as it is typed
`- MissingDependencyError (ImportError)         a required package is not installed

SensoriumWarning (UserWarning)                  the call works, but probably not as intended
`- NonFiniteStateWarning                        the engine's state holds NaN or infinity: which env, body and tick
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class SensoriumError(Exception):
    """Base of every error this package raises."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One invalid value in a config.

    Args:
        field: dotted path of the field, e.g. ``"stages.0.tau"``.
        got: the value as given.
        expected: accepted values.
        fix: required change, one imperative sentence; may be empty.
    """

    field: str
    got: str
    expected: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: got {self.got}, expected {self.expected}."
        return f"{text} {self.fix}" if self.fix else text


class ConfigError(SensoriumError, ValueError):
    """One or several faults in a config; all of them are listed at once.

    Args:
        config: the config's class name, with the sensor's name where known.
        faults: every fault found.
    """

    def __init__(self, config: str, faults: Sequence[Fault]) -> None:
        self.config = config
        self.faults = tuple(faults)
        super().__init__("\n".join(f"{config}.{fault}" for fault in faults))

    @classmethod
    def single(cls, config: str, field: str, got: object, expected: str, fix: str = "") -> ConfigError:
        """Build the error for one fault."""
        return cls(config, [Fault(field, shown(got), expected, fix)])


class SelectionError(ConfigError):
    """A name selector that matched nothing, or several names where exactly one was needed."""


class PathError(SelectionError, RuntimeError):
    """A path that denotes no element, or several elements or environments where exactly one was needed."""


class ArgumentError(SensoriumError, ValueError):
    """Invalid argument of a call; the message gives the argument, the value and the accepted values."""


class DuplicateNameError(SensoriumError, ValueError):
    """Two objects that share a name which must be unique."""


class UnknownNameError(SensoriumError, KeyError):
    """Unknown name; the message lists the existing names and the nearest ones."""

    def __init__(self, what: str, name: str, known: Iterable[str], fix: str = "") -> None:
        known = sorted(known)
        text = f"unknown {what} {name!r}.{nearest(name, known)} Known: {listed(known)}."
        super().__init__(f"{text} {fix}" if fix else text)

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr


class RegistrationError(SensoriumError, TypeError):
    """A sensor, config or stage class that breaks the author's contract."""


class ModelError(SensoriumError, ValueError):
    """A model, rig or preset file that is missing or cannot be read."""


class DeviceError(SensoriumError, ValueError):
    """A device that does not exist or that sensors cannot compute on; the message lists the devices found."""


class UnsupportedError(SensoriumError, NotImplementedError):
    """An engine does not provide a quantity that a sensor requires.

    Args:
        sensor: name of the sensor.
        requirement: the required quantity.
        engine: name of the engine.
        why: the reason and, where there is one, the fix.
    """

    def __init__(self, sensor: str, requirement: object, engine: str, why: str) -> None:
        super().__init__(f"sensor {sensor!r} requires {requirement}, which engine {engine!r} does not provide: {why}")


class ScheduleError(SensoriumError, RuntimeError):
    """Time moved in a way that the sensors do not support."""


class StaleError(SensoriumError, RuntimeError):
    """A view, reading or sensor was used after it became invalid."""


class NotTrackedError(SensoriumError, RuntimeError):
    """A quantity was requested that the sensor does not keep; the message says how to enable it."""


class StreamError(SensoriumError, ConnectionError):
    """A server or client is unreachable or refused a request; the message says which and why."""


class WireError(StreamError, ValueError):
    """Bytes that are not a valid message, or a message of another version."""


class GenerateError(SensoriumError, RuntimeError):
    """Shards of a data set failed, or its workers cannot be used.

    Attributes:
        run: what was done.
    """

    def __init__(self, text: str, run: object = None) -> None:
        super().__init__(text)
        self.run = run


class UsageError(SensoriumError):
    """Invalid argument of the command line, or a file named there that cannot be used."""

    @classmethod
    def of(cls, option: str, got: object, expected: str, fix: str = "") -> UsageError:
        """Build the error for one option, e.g. ``"--envs"``."""
        return cls(str(Fault(option, shown(got), expected, fix)))

    @classmethod
    @contextlib.contextmanager
    def naming(cls, **options: str) -> Iterator[None]:
        """Make config errors name the command-line options in which their fields were given.

        Args:
            options: field -> option, e.g. ``envs="--env"``; a field without an entry keeps its name.
        """
        try:
            yield
        except ConfigError as error:
            faults = [replace(fault, field=options.get(fault.field, fault.field)) for fault in error.faults]
            raise cls("\n".join(map(str, faults))) from None

    @classmethod
    @contextlib.contextmanager
    def writing(cls, option: str, path: object, kind: str = "folder") -> Iterator[None]:
        """Make errors of the file system name the command-line option with the file or folder that is written."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise cls.of(option, str(path), f"a {kind} that can be written", f"{reason}.") from error


class MissingDependencyError(SensoriumError, ImportError):
    """A required package is not installed; the message names the package to install."""

    @classmethod
    def of_core(cls, use: str, error: ModuleNotFoundError) -> MissingDependencyError | None:
        """Return the error for a missing dependency of the full installation; None for any other missing module.

        Args:
            use: name of the object that needs the package, e.g. ``"sensorium.Scene"``.
            error: the exception that the import raised.
        """
        package = CORE_PACKAGES.get(error.name or "")
        if package is None:
            return None
        return cls(
            f"{use} needs {package}, which is not installed: pip install sensorium. To listen to a simulation in "
            "another process, numpy, pyzmq and msgspec are enough: sensorium.connect(ADDRESS) in Python, or "
            "python -m sensorium.client ADDRESS."
        )


CORE_PACKAGES = {
    "numpy": "numpy", "torch": "torch", "warp": "warp-lang", "mujoco": "mujoco", "pydantic": "pydantic", "tyro": "tyro",
    "rich": "rich", "tomli_w": "tomli-w",
}  # fmt: skip
"""Module -> package, for the dependencies of a full installation."""


class SensoriumWarning(UserWarning):
    """The call works, but probably not as intended."""


class NonFiniteStateWarning(SensoriumWarning):
    """The engine's state holds NaN or infinity; the affected samples are marked invalid."""


_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))
"""Control characters of ASCII and of Latin-1, except the tabulator and the end of a line."""


def printable(text: str) -> str:
    """Return a text for a terminal: without control characters, with which a name could send it commands."""
    return text.translate(_CONTROLS)


@contextlib.contextmanager
def plain_messages() -> Iterator[None]:
    """Show this package's warnings and log messages as plain lines on stderr; for programs of the command line.

    Warnings appear without the source line that caused them. Control characters are removed.
    """
    standard, log, handler = warnings.formatwarning, logging.getLogger("sensorium"), _Stderr(logging.WARNING)

    def plain(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        text = printable(str(message))
        ours = issubclass(category, SensoriumWarning)
        return f"warning: {text}\n" if ours else standard(text, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("default", SensoriumWarning)
        warnings.formatwarning = plain
        log.addHandler(handler)
        try:
            yield
        finally:
            warnings.formatwarning = standard
            log.removeHandler(handler)


class _Stderr(logging.Handler):
    """Log handler that writes to the current `sys.stderr`, which a live display of the terminal replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"warning: {printable(self.format(record))}", file=sys.stderr)


def shown(value: object, limit: int = 120) -> str:
    """Return `repr(value)`, shortened to `limit` characters."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} with too many levels"
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Iterable[str], limit: int = 20) -> str:
    """Return names as one comma-separated line, at most `limit` of them."""
    names = list(names)
    if not names:
        return "none"
    more = f", ... ({len(names) - limit} more)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"``, or an empty string where no known name is similar."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(match) for match in close)}?"


# Files ----------------------------------------------------------------------------------------------------------------

_VIDEO = "a video, which has no readings. Give the recording or the bag that it was made from"
_MARKS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"#ROSBAG V", "a ROS 1 bag. Convert it: pip install rosbags, rosbags-convert --src {0} --dst {1}"),
    (0, b"\x89MCAP0\r\n", "an MCAP file. For its poses: sensorium export {0} --to {1} --format tum"),
    (0, b"SQLite format 3\0", "a SQLite file. If it is a ROS 2 bag, rename it to {1}.db3; for its poses: sensorium "
     "export {1}.db3 --to {1} --format tum"),
    (0, b"PK\3\4", "an npz or ZIP file. Open an npz file with sensorium.record.load or sensorium.open, or unpack it"),
    (0, b"ULog", "a ULog file of PX4. Convert it: pip install pyulog, ulog2csv {0}"),
    (4, b"ftyp", _VIDEO), (8, b"AVI ", _VIDEO), (0, b"\x1a\x45\xdf\xa3", _VIDEO),
    (0, b"\x1f\x8b", "a compressed file. Decompress it: gzip -d {0}"),
    (0, b"\x28\xb5\x2f\xfd", "a compressed file. Decompress it: zstd -d {0}"),
    (0, b"{", "a JSON file, such as a layout of Foxglove, which has no readings. Give the bag or the MCAP file"),
)  # fmt: skip
"""Place and first bytes of files -> what they are and what to do, with the file and its name without ending."""


def file_kind(path: Path) -> str:
    """Return what a file is that is often given in place of a recording or a trajectory, and what to do with it.

    The text completes "FILE is ...". It is empty for text and unknown files.

    Raises:
        OSError: the file is missing, or is a folder.
    """
    with path.open("rb") as file:
        head = file.read(16)
    for place, mark, text in _MARKS:
        if head.startswith(mark, place):
            return f"{text.format(path, path.stem)}."
    return ""


def text_in(path: Path, label: str, endings: Sequence[str]) -> str:
    """Return the text of a file.

    Args:
        path: the file.
        label: the file, for messages.
        endings: usual endings of such files, to name others in its folder.

    Raises:
        ModelError: it is missing, or not text.
    """

    def others(folder: Path) -> list[str]:
        return sorted(each.name for each in folder.glob("*") if each.suffix in endings)

    try:
        if kind := file_kind(path):
            raise ModelError(f"{label} is {kind}")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ModelError(
            f"{label} does not exist.{nearest(path.name, others(path.absolute().parent))} Check the path."
        ) from None
    except IsADirectoryError:
        raise ModelError(f"{label} is a folder, expected a file. In it: {listed(others(path), 8)}.") from None
    except UnicodeDecodeError:
        raise ModelError(f"{label} is not text.") from None
    except OSError as error:
        raise ModelError(f"{label} cannot be read: {error.strerror or error}.") from None
