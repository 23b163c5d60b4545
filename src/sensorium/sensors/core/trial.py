"""Trial of a sensor's hooks: each runs once while the scene is built, so that faults show early."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from sensorium import registry
from sensorium.engines.base import ARRAYS, Engine
from sensorium.errors import RegistrationError, SensoriumError
from sensorium.measurement.record import Record
from sensorium.measurement.work import SensorWork
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.hooks import BASES
from sensorium.spec import Requirement

ODD = {torch.float32: -1.2345e-33, torch.float64: -1.2345e-33, torch.int32: -1518500250, torch.int64: -1518500250}
"""A number of each type that no sensor measures: an element that still has it was not written."""


class HookError(RegistrationError):
    """A hook of a sensor class failed, or violated its contract, in its trial.

    Args:
        message: sensor, class and plugin, the failure, its place and the fix.
        rule: violated rule of `sensorium.testing.check_sensor`.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class _KernelsOnly(TorchFunctionMode):
    """Refuses torch operations of a plugin while its hooks are recorded, since those are not replayed.

    Views of tensors and new constants are permitted.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        versions = [_version(each) for each in given]
        result = func(*args, **kwargs)
        memory = {each.untyped_storage().data_ptr() for each in given}
        made = (each for each in tree_leaves(result) if isinstance(each, torch.Tensor))
        computes = any(each.untyped_storage().data_ptr() not in memory for each in made)
        if (given and computes) or versions != [*map(_version, given)] or func.__name__ in _TO_HOST:
            frame = sys._getframe(1)
            module = frame.f_globals.get("__name__", "")
            if not module.startswith("sensorium.") or module in _FOR_HOOKS:
                raise HookError(
                    f"{self._owner}: a hook marked @recorded calls the torch operation {func.__name__} "
                    f"({frame.f_code.co_filename}:{frame.f_lineno}), which would run only once. Remove @recorded, or "
                    "write a kernel; compute constants in setup.",
                    "recorded_hooks_follow_rows",
                )
        return result


def _version(tensor: torch.Tensor) -> int:
    """Return the number of writes to a tensor; 0 in inference mode, which does not count them."""
    return 0 if tensor.is_inference() else tensor._version


_TO_HOST = frozenset("item tolist __bool__ __int__ __float__ __index__ __complex__".split())
"""Torch operations that read values on the host."""
_FOR_HOOKS = "sensorium.measurement.record", "sensorium.measurement.stage_key"
"""Modules that call torch on behalf of a hook."""


@contextmanager
def declared_only(engine: Engine, declared: Sequence[Requirement], owner: str) -> Iterator[None]:
    """Limit an engine, within the block, to arrays that a sensor requires, so that missing requirements are detected.

    Args:
        engine: engine of the sensor.
        declared: its requirements.
        owner: name of the sensor in messages.

    Raises:
        HookError: `Engine.array` was called for an array whose requirement the sensor does not declare.
    """
    array, own = engine.array, vars(engine).get("array")

    def guarded(name: str) -> torch.Tensor:
        needed = next((requirement for requirement, names in ARRAYS.items() if name in names), None)
        if needed is not None and needed not in declared:
            required = ", ".join(f"sn.engines.{each}" for each in (*declared, needed))
            raise HookError(
                f"{owner}: it reads {name!r} without requiring {needed}, so an engine may lack it. "
                f"Add it: requires = ({required},).",
                "declares_what_it_reads",
            )
        return array(name)

    engine.array = guarded  # type: ignore[method-assign]
    try:
        yield
    finally:
        del engine.array
        if own is not None:
            engine.array = own  # type: ignore[method-assign]


def try_hooks(sensor: Sensor[Any, Any]) -> None:
    """Run every sample hook once as a trial, so that faults show when the scene is built.

    The scene does this for sensors that are not built in; otherwise a lazy one would fail only on its first read. Hooks
    get only the arrays that the sensor requires.

    Args:
        sensor: a sensor that is not in use yet.

    Raises:
        HookError: a hook raises, reads an array that is not required, or does not write a field of the raw record.
    """
    plugin = registry.plugin_of(type(sensor))
    owner = f"sensor {sensor.name!r} ({type(sensor).__qualname__}{f', {plugin}' if plugin else ''})"
    buffers, hooks = sensor.buffers, sensor.buffers.plan.hooks
    try:
        declared = tuple(type(sensor).needs(sensor.cfg, sensor.engine, sensor.engine.supports))
        with declared_only(sensor.engine, declared, owner):
            if hooks.raw:
                _try_raw(hooks.raw, {"raw": buffers.truth}, owner)
            if hooks.fused:
                _try_raw(hooks.fused, {"raw": buffers.truth, "slot": buffers.slot}, owner, buffers.slot_timeline)
            if hooks.compute:
                _try_raw(hooks.compute, {"truth": buffers.truth, "measured": buffers.slot}, owner)
            with _KernelsOnly(owner):
                segments = SensorWork(buffers, sensor.compute_on.all_envs).before_chain()
            for segment in segments:
                segment.run()
    except HookError:
        raise
    except RegistrationError as error:
        raise HookError(f"{owner}: {error_location(error, type(sensor))} {error}", "shapes_and_dtypes") from error
    except SensoriumError:
        raise
    except Exception as error:
        raise HookError(
            f"{owner}: {error_location(error, type(sensor))} {type(error).__name__}: {error}. "
            f"The record is {buffers.truth!r}, [env, mount, ...]; values written must have these shapes.",
            "shapes_and_dtypes",
        ) from error


def _try_raw(hook: Callable[..., object], records: Mapping[str, Record], owner: str, *more: object) -> None:
    """Call the hook that writes the truth on records filled with a marker value, and check that it was overwritten."""
    views = [(what, name, view) for what, record in records.items() for name, view in record.items()]
    for _, _, view in views:
        view.fill_(ODD.get(view.dtype, 0))
    result = hook(*records.values(), *more)
    for what, name, view in views:
        if view.numel() and view.dtype in ODD and bool((view == ODD[view.dtype]).all()):
            raise HookError(f"{owner}: {unwritten(hook, what, name, result)}", "raw_is_written_in_place")


def unwritten(hook: Callable[..., object], record: str, field: str, result: object, where: str = "any element") -> str:
    """Return the message for a hook that did not write its record, with the likely cause and the fix."""
    name = getattr(hook, "__name__", "the hook")
    cause = "" if result is None else f" It returns a {type(result).__name__}, which is ignored."
    return (
        f"{name} does not write {record}.{field} in place ({where}).{cause} Write {record}.{field}.copy_(...), "
        f"{record}.{field}[...] = ..., or pass {record}.warp.{field} to a kernel; `{record} = ...` only rebinds a "
        "local name."
    )


def error_location(error: BaseException, sensor_class: type) -> str:
    """Return a sentence with the sensor's method that an error came from, with file and line."""
    codes = {
        function.__code__: name
        for base in sensor_class.__mro__
        for name, function in vars(base).items()
        if hasattr(function, "__code__") and base not in BASES
    }
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code in codes:
            return f"{codes[frame.f_code]} failed ({frame.f_code.co_filename}:{line})."
    return "a hook failed."
