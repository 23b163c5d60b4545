"""What sensors are made of besides the pipeline: their context, what `info` says, live parameters, stale views."""

from __future__ import annotations

import dataclasses
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sensorium.cfg import SensorCfg
from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.errors import RegistrationError, StaleError
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    Field,
    FieldSpec,
    Requirement,
)

ARRAYS: dict[Requirement, tuple[str, ...]] = {
    BODY_POSE: ("body_pos_w", "body_quat_w"),
    BODY_VELOCITY: ("body_lin_vel_w", "body_ang_vel_w"),
    BODY_ACCELERATION: ("body_lin_acc_w", "body_ang_acc_w"),
    GRAVITY: ("gravity_w",),
    MAGNETIC: ("magnetic_w",),
    JOINT_STATE: ("joint_pos", "joint_vel"),
    JOINT_EFFORT: ("joint_effort",),
    JOINT_TORQUE: ("joint_torque",),
    JOINT_WRENCH: ("body_parent_force_w", "body_parent_torque_w"),
}
"""The arrays of an engine that come with each requirement."""


class StaleTensor(torch.Tensor):
    """A view whose sensor was reconfigured or removed: any use raises."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise StaleError(
            "this view belongs to a sensor that was reconfigured or removed; take it anew: scene[name].data.<field>"
        )


class HookError(RegistrationError):
    """A hook of a sensor class failed, or did not do what it is for, when it was tried for the first time.

    Args:
        message: sensor, class and plugin, what went wrong and where, and the fix.
        law: the law of `sensorium.testing.check_sensor` that it breaks.
    """

    def __init__(self, message: str, law: str) -> None:
        super().__init__(message)
        self.law = law


class DeclaredEngine:
    """An engine that gives a sensor only the arrays which the sensor requires, so that a forgotten one is noticed.

    Args:
        engine: the engine behind it, which does everything else.
        requirements: what the sensor requires.
        owner: the sensor, for the message.
    """

    def __init__(self, engine: Engine, requirements: Iterable[Requirement], owner: str) -> None:
        self._engine, self._requirements, self._owner = engine, tuple(requirements), owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def array(self, name: str) -> torch.Tensor:
        """Return an array of the engine.

        Raises:
            HookError: it comes with a requirement that the sensor does not have.
        """
        needed = next((requirement for requirement, names in ARRAYS.items() if name in names), None)
        if needed is not None and needed not in self._requirements:
            has = ", ".join(f"sn.{each}" for each in self._requirements)
            raise HookError(
                f"{self._owner}: it reads {name!r} without requiring {needed}, so an engine need not have it. "
                f"Add it: requires = ({f'{has}, ' if has else ''}sn.{needed},).",
                "declares_what_it_reads",
            )
        return self._engine.array(name)


@dataclass(slots=True)
class SensorContext:
    """What a sensor is built in: the scene's engine, device, clock and seed."""

    engine: Engine
    compute: Compute
    clock: Clock
    seed: int


@dataclass(frozen=True, slots=True)
class SensorInfo:
    """What a sensor resolved to.

    Attributes:
        specs: its fields as a reader sees them.
        mounts: what the selector matched, in mount order.
        bodies: the body each mount is fixed to.
        nbytes: bytes of memory the sensor holds.
        rate_hz: mean samples per second.
        evaluation: ``"lazy"``, ``"eager"`` or ``"wanted"``.
        why: the reason for that.
        notes: what else the sensor decided, e.g. where accelerations come from.
    """

    specs: tuple[FieldSpec, ...]
    mounts: tuple[str, ...]
    bodies: tuple[str, ...]
    nbytes: int
    rate_hz: float
    evaluation: str
    why: str
    notes: Mapping[str, str]


class Params:
    """The config's own values as hooks read them: numbers, or, once set per env, float32 `[env, 1]`.

    The second axis lets a value meet `[env, mount]` fields: ``raw.distance.clamp_(max=self.params.max_range)``.
    """

    def __init__(self, cfg: SensorCfg[Any]) -> None:
        self._cfg = cfg
        self.per_env: dict[str, torch.Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return self.per_env[name] if name in self.per_env else getattr(self._cfg, name)

    def __repr__(self) -> str:
        return f"Params({self._cfg!r}, per env: {list(self.per_env)})"


def declared_fields(data_class: type) -> dict[str, Field]:
    """Return the `Field` annotations of a data class, in order, without its constants."""
    hints = typing.get_type_hints(data_class, include_extras=True)
    found: dict[str, Field] = {}
    for item in dataclasses.fields(data_class):
        hint = hints[item.name]
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Field)]
        if marks:
            found[item.name] = marks[0]
        elif getattr(hint, "__origin__", hint) is torch.Tensor:
            raise RegistrationError(
                f"{data_class.__qualname__}.{item.name} has no Field: write Annotated[Tensor, Field(unit=..., ...)]"
            )
    return found


def declared_constants(data_class: type) -> tuple[str, ...]:
    """Return the fields of a data class that are no tensors: what a sensor gives with `constants`."""
    tensors = declared_fields(data_class)
    return tuple(item.name for item in dataclasses.fields(data_class) if item.name not in tensors)


ODD: dict[torch.dtype, float] = {
    torch.float32: -1.2345e-33,
    torch.float64: -1.2345e-33,
    torch.int32: -1518500250,
    torch.int64: -1518500250,
}
"""A number of each type that no sensor measures: what is still there was not written."""


def unwritten(hook: Callable[..., object], record: str, field: str, result: object, where: str = "any element") -> str:
    """Return the message for a hook that leaves its record as it was, with the likely cause and the fix."""
    name = getattr(hook, "__name__", "the hook")
    cause = "" if result is None else f" It returns a {type(result).__name__}, which nobody reads."
    return (
        f"{name} does not write {record}.{field} in place ({where}).{cause} Write {record}.{field}.copy_(...), "
        f"{record}.{field}[...] = ..., or give {record}.warp.{field} to a kernel; `{record} = ...` only names another "
        "object."
    )


def blame(error: BaseException, sensor_class: type) -> str:
    """Return which of a sensor's own methods an error came from, with file and line."""
    codes = {
        function.__code__: name
        for base in sensor_class.__mro__
        for name, function in vars(base).items()
        if hasattr(function, "__code__") and not base.__module__.startswith("sensorium.sensors.base")
    }
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code in codes:
            return f"{codes[frame.f_code]} failed ({frame.f_code.co_filename}:{line})."
    return "a hook failed."
