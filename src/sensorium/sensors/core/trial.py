"""The trial of a sensor's hooks: each runs once, for nothing, so that a fault shows when the scene is built."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch

from sensorium import registry
from sensorium.engines.base import Engine
from sensorium.errors import RegistrationError, SensoriumError
from sensorium.measurement.record import TORCH_DTYPES
from sensorium.measurement.work import SensorWork
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.reader import Readable
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


ODD: dict[torch.dtype, float] = {
    torch.float32: -1.2345e-33,
    torch.float64: -1.2345e-33,
    torch.int32: -1518500250,
    torch.int64: -1518500250,
}
"""A number of each type that no sensor measures: what is still there was not written."""


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


def try_hooks(sensor: Sensor[Any, Any]) -> None:
    """Run every hook of a sample once, for nothing, so that a fault shows when the scene is built.

    The scene does this with sensors that are not ours; else a lazy one would fail at its first read only. Hooks
    get the arrays that the sensor requires and no others.

    Args:
        sensor: a sensor that is not in use yet.

    Raises:
        HookError: a hook raises, reads what is not required, or leaves a field of the raw record unwritten.
    """
    plugin = registry.plugin_of(type(sensor))
    owner = f"sensor {sensor.name!r} ({type(sensor).__qualname__}{f', {plugin}' if plugin else ''})"
    buffers, engine = sensor.buffers, sensor.engine
    guard = cast(Engine, DeclaredEngine(engine, type(sensor).needs(sensor.cfg, engine, engine.supports), owner))
    _lend(sensor, guard)
    try:
        for hook, records in (
            (buffers.plan.hooks.raw, 1),
            (buffers.plan.hooks.fused, 2),
            (buffers.plan.hooks.compute, 2),
        ):
            if hook is not None:
                _try_raw(sensor, hook, records, owner)
        for segment in SensorWork(buffers, sensor.compute_on.all_envs).before_chain():
            segment.run()
        for is_measured in (True, False) if not sensor.uses_ring_pipeline else ():
            _check_outputs(sensor, sensor.outputs(is_measured), owner)
    except SensoriumError:
        raise
    except Exception as error:
        raise HookError(
            f"{owner}: {blame(error, type(sensor))} {type(error).__name__}: {error}. The record is {buffers.truth!r}, "
            "[env, mount, ...]; what is written must have these shapes.",
            "shapes_and_dtypes",
        ) from error
    finally:
        _lend(sensor, engine)


def _lend(sensor: Sensor[Any, Any], engine: Engine) -> None:
    """Have the hooks read another engine."""
    sensor.engine = engine
    if sensor.mount is not None:
        sensor.mount._engine = engine


def _try_raw(sensor: Sensor[Any, Any], hook: Callable[..., object], records: int, owner: str) -> None:
    """Call the hook that makes the truth on records full of an odd number, and see whether it goes away."""
    buffers = sensor.buffers
    given = (buffers.truth, buffers.slot)[:records]
    for record in given:
        for view in record.tensors():
            if view.dtype in ODD:
                view.fill_(ODD[view.dtype])
    timeline = (buffers.slot_timeline,) if hook == buffers.plan.hooks.fused else ()
    result = hook(*given, *timeline)
    for record, what in zip(given, ("raw", "slot") if timeline else ("truth", "measured"), strict=False):
        left = [name for name, view in record.items() if view.numel() and _is_odd(view)]
        if left:
            what = "raw" if records == 1 else what
            raise HookError(f"{owner}: {unwritten(hook, what, left[0], result)}", "raw_is_written_in_place")


def _check_outputs(sensor: Sensor[Any, Any], outputs: Mapping[str, torch.Tensor], owner: str) -> None:
    for spec in sensor.mount_specs:
        shape, value = (sensor.num_envs, *spec.shape), outputs.get(spec.name)
        if value is None or tuple(value.shape) != shape or value.dtype != TORCH_DTYPES[spec.dtype]:
            got = "nothing" if value is None else f"{tuple(value.shape)} {value.dtype}"
            raise HookError(
                f"{owner}: outputs()[{spec.name!r}] is {got}, expected {shape} {spec.dtype}, [env, mount, ...].",
                "shapes_and_dtypes",
            )


def _is_odd(view: torch.Tensor) -> bool:
    return view.dtype in ODD and bool((view == ODD[view.dtype]).all())


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
        if hasattr(function, "__code__") and base.__module__ not in (Sensor.__module__, Readable.__module__)
    }
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code in codes:
            return f"{codes[frame.f_code]} failed ({frame.f_code.co_filename}:{line})."
    return "a hook failed."


__all__ = ["ARRAYS", "HookError", "try_hooks", "unwritten"]
