"""The exception tree. Each message says which config, which field, what was got, what is expected and how to fix it.

SensoriumError
|- ConfigError          (ValueError)            a config holds one or several faults; `.faults` lists them all
|  `- SelectionError    (ValueError)            a name selector matched nothing, or several where one was needed
|- ArgumentError        (ValueError)            an argument of a call does not fit
|- DuplicateNameError   (ValueError)            two sensors, or two kinds, share one name
|- UnknownNameError     (KeyError)              no sensor, preset, kind or field has that name
|- RegistrationError    (TypeError)             a sensor class does not keep the author's contract
|- ModelError           (ValueError)            a model file is missing or broken
|- DeviceError          (ValueError)            no such device, or it cannot be used: what was found instead
|- UnsupportedError     (NotImplementedError)   an engine cannot give what a sensor requires: never zeros instead
|- ScheduleError        (RuntimeError)          time went a way that the sensors cannot follow
|- StaleError           (RuntimeError)          a view, a reading or a sensor was used after its time
|- NotTrackedError      (RuntimeError)          something was asked of a sensor that it does not keep
|- StreamError          (ConnectionError)       a server or client cannot be talked to, or not in this way
|  `- WireError         (ValueError)            bytes that are no message of ours
|- UsageError                                    an argument of a command line, named as it is typed
`- MissingDependencyError (ImportError)         a package is needed that is not installed

SensoriumWarning (UserWarning)                  something works, but probably not as meant
`- NonFiniteStateWarning                        the engine's state holds NaN or infinity: which env, body and tick
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace


class SensoriumError(Exception):
    """Base of every error this package raises."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a config.

    Args:
        field: dotted path of the field, e.g. ``"stages.0.tau"``.
        got: the value as written.
        expected: what would have been accepted.
        fix: what to change, one imperative sentence; may be empty.
    """

    field: str
    got: str
    expected: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: got {self.got}, expected {self.expected}."
        return f"{text} {self.fix}" if self.fix else text


class ConfigError(SensoriumError, ValueError):
    """A config holds one or several faults; all of them are listed at once.

    Args:
        config: the config's class name, with the sensor's name where it is known.
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
    """A name selector matched nothing, or several where exactly one was needed."""


class ArgumentError(SensoriumError, ValueError):
    """An argument of a call does not fit; the message names it, the value and what is expected."""


class DuplicateNameError(SensoriumError, ValueError):
    """Two things share a name that must be unique."""


class UnknownNameError(SensoriumError, KeyError):
    """No such name; the message lists what exists and the nearest names."""

    def __init__(self, what: str, name: str, known: Iterable[str], fix: str = "") -> None:
        known = sorted(known)
        text = f"unknown {what} {name!r}.{nearest(name, known)} Known: {listed(known)}."
        super().__init__(f"{text} {fix}" if fix else text)

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr


class RegistrationError(SensoriumError, TypeError):
    """A sensor, config or stage class does not keep the author's contract."""


class ModelError(SensoriumError, ValueError):
    """A model or rig file is missing or cannot be read."""


class DeviceError(SensoriumError, ValueError):
    """A device is none that sensors can compute on, or it is not there; the message says what was found."""


class UnsupportedError(SensoriumError, NotImplementedError):
    """An engine cannot give what a sensor requires.

    Args:
        sensor: name of the sensor that asks.
        requirement: what it asks for.
        engine: name of the engine.
        why: the reason and, where there is one, the fix.
    """

    def __init__(self, sensor: str, requirement: object, engine: str, why: str) -> None:
        super().__init__(f"sensor {sensor!r} requires {requirement}, which engine {engine!r} cannot give: {why}")


class ScheduleError(SensoriumError, RuntimeError):
    """Time went a way that the sensors cannot follow."""


class StaleError(SensoriumError, RuntimeError):
    """A view, reading or sensor was used after its time."""


class NotTrackedError(SensoriumError, RuntimeError):
    """Something was asked of a sensor that it does not keep; the message says how to have it."""


class StreamError(SensoriumError, ConnectionError):
    """A server or client cannot be talked to, or refused something; the message says which and why."""


class WireError(StreamError, ValueError):
    """Bytes that are no message of ours, or of another version."""


class UsageError(SensoriumError):
    """An argument of the command line, or a file that it names, cannot be used."""

    @classmethod
    def of(cls, option: str, got: object, expected: str, fix: str = "") -> UsageError:
        """Build the error for one option, e.g. ``"--envs"``."""
        return cls(str(Fault(option, shown(got), expected, fix)))

    @classmethod
    @contextlib.contextmanager
    def naming(cls, **options: str) -> Iterator[None]:
        """Have config errors name the options in which their fields were given.

        Args:
            options: field -> option, e.g. ``envs="--env"``; a field that is not in it keeps its name.
        """
        try:
            yield
        except ConfigError as error:
            faults = [replace(fault, field=options.get(fault.field, fault.field)) for fault in error.faults]
            raise cls("\n".join(map(str, faults))) from None


class MissingDependencyError(SensoriumError, ImportError):
    """A package is needed that is not installed; the message says what to install."""

    @classmethod
    def of_core(cls, use: str, error: ModuleNotFoundError) -> MissingDependencyError | None:
        """Return the error for a package that every full installation has; None where another module is missing.

        Args:
            use: what needs it, e.g. ``"sensorium.Scene"``.
            error: what its import raised.
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
"""Module -> package, of the dependencies of a full installation."""


class SensoriumWarning(UserWarning):
    """Something works, but probably not as meant."""


class NonFiniteStateWarning(SensoriumWarning):
    """The engine's state holds NaN or infinity; the samples concerned are marked invalid."""


def shown(value: object, limit: int = 120) -> str:
    """Return `repr(value)`, shortened to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Iterable[str], limit: int = 20) -> str:
    """Return names as one comma-separated line, at most `limit` of them."""
    names = list(names)
    if not names:
        return "none"
    more = f", ... ({len(names) - limit} more)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"``, or an empty string where nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(match) for match in close)}?"
