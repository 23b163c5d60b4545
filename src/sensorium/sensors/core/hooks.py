"""The hooks of sensor classes: which there are, what marks them, and which other names a class must not define."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sensorium.errors import RegistrationError
from sensorium.measurement.plan import Hooks
from sensorium.spec import Requirement

if TYPE_CHECKING:
    from sensorium.sensors.core.base import Sensor

CORE = "sensorium.sensors.core."
"""Where the classes are whose hooks do nothing."""
Function = TypeVar("Function", bound=Callable[..., Any])
Supports = Callable[[Requirement], str | None]
"""A function telling why a requirement cannot be given; None where it can."""

SIMPLE_HOOKS = {
    "raw": "update_raw_data",
    "fused": "update_current_timestep_data",
    "physics": "apply_physics_imperfections",
    "transform": "apply_transform",
    "hardware": "apply_hardware_imperfections",
    "derive": "derive_measured",
}
"""The hooks that only `SimpleSensor` calls, by their names in `Hooks`."""
HOOKS = {"post": "post_process", "reset": "reset_state", "observe": "observe"}
"""The hooks that every sensor has, by their names in `Hooks`."""

HOOKS_OF_OTHERS = {
    "_get_return_format": "Field(shape=...), or fields(self) where it depends on the config",
    "_get_cache_dtype": "Field(dtype=...)",
    "_get_intermediate_format": "intermediate_fields(self)",
    "_get_intermediate_dtype": "intermediate_fields(self)",
    "_update_raw_data": "update_raw_data(self, raw)",
    "_update_current_timestep_data": "update_current_timestep_data(self, raw, slot, timeline)",
    "_apply_physics_imperfections": "apply_physics_imperfections(self, slot, timeline)",
    "_apply_transform": "apply_transform(self, data, timeline, *, is_measured)",
    "_apply_hardware_imperfections": "apply_hardware_imperfections(self, slot)",
    "_post_process": "post_process(self, data, timeline, *, is_measured)",
    "_apply_delay": "delay, jitter and loss of the config",
    "_update_shared_cache": "compute(self, truth, measured) on sn.Sensor",
    "_update_shared_ground_truth_cache": "compute(self, truth, measured) on sn.Sensor",
    "_apply_camera_transform": "compute(self, truth, measured) on sn.Sensor, with self.mount.pos_w and quat_w",
    "_render_current_state": "compute(self, truth, measured) on sn.Sensor, and self.set_outputs(...) in setup",
    "build": "setup(self)",
    "edit_spec": "requires = (sn.MODEL_ELEMENTS(function), ...)",
    "initialize": "setup(self)",
    "update": "update_raw_data(self, raw) for samples, observe(self) for work at every tick",
    "_compute_data": "update_raw_data(self, raw)",
    "postprocess_rays": "update_raw_data(self, raw), with a cast of self.ray_cast(...)",
    "debug_vis": "debug_draw(self)",
    "requires_sensor_context": "requires = (...)",
}
"""Hooks of other libraries that nothing here calls, and what takes their place."""

FORMER_HOOKS = {
    "requirements": "needs(cls, cfg, names, supports), a classmethod",
    "requirements_of_names": "needs(cls, cfg, names, supports), a classmethod",
    "reset": "reset_state(self, env_mask); readers call reset with env_ids",
    "constants": "attributes with the names of these fields: properties, or made in setup",
    "notes": "self.notes[...] = ... in setup",
    "hooks_in_use": "@used_if(...) at the hook",
    "knob_prefixes": "prefixed_knobs in its config",
    "outputs": "self.set_outputs(truth, measured) in setup, with memory that compute fills",
    "body_at_fault": "self.buffers.body_at_fault = function in setup",
}
"""Hooks of earlier versions, and what takes their place."""


def used_if(test: Callable[[Any], object], otherwise: str = "") -> Callable[[Function], Function]:
    """Mark a hook that not every config uses: one that is left out costs neither memory nor time.

    It also holds for the hook of a subclass that overrides it.

    Args:
        test: what is asked with the sensor, once, before its `setup`.
        otherwise: name of the method that is called instead; by default none.
    """

    def mark(hook: Function) -> Function:
        hook.__used_if__ = test, otherwise  # type: ignore[attr-defined]
        return hook

    return mark


def between_samples(hook: Function) -> Function:
    """Mark an `observe` that is called at the ticks between samples only: its sensor's sample includes its own tick."""
    hook.__between_samples__ = True  # type: ignore[attr-defined]
    return hook


def hook_of(sensor: Sensor[Any, Any], name: str) -> Callable[..., Any] | None:
    """Return the hook of a name where the sensor's class has one and its config uses it."""
    bases = [base for base in type(sensor).__mro__ if name in base.__dict__]
    if bases[0].__module__.startswith(CORE):
        return None
    marks = (getattr(base.__dict__[name], "__used_if__", None) for base in bases)
    test, otherwise = next(filter(None, marks), (lambda _: True, ""))
    found = name if test(sensor) else otherwise
    return cast("Callable[..., Any]", getattr(sensor, found)) if found else None


def hooks_of(sensor: Sensor[Any, Any]) -> Hooks:
    """Return the hooks that a sensor uses."""
    names = {**HOOKS, **(SIMPLE_HOOKS if sensor.is_simple else {})}
    hooks = Hooks(**{key: hook_of(sensor, name) for key, name in names.items()})
    if not sensor.is_simple:
        hooks.compute = sensor.compute
    elif hooks.raw is None and hooks.fused is None:
        raise RegistrationError(f"{type(sensor).__name__} must define update_raw_data(self, raw)")
    if getattr(hooks.observe, "__between_samples__", False):
        hooks.observe, hooks.between = None, hooks.observe
    return hooks


def check_hooks(cls: type[Sensor[Any, Any]]) -> None:
    """Raise `RegistrationError` where a class defines a hook that nothing calls, or lacks one that another needs."""
    own = {name for base in cls.__mro__ if not base.__module__.startswith(CORE) for name in base.__dict__}
    for table, whose in ((HOOKS_OF_OTHERS, "another library"), (FORMER_HOOKS, "an earlier version")):
        if found := [f"{name} is never called: write {table[name]}." for name in table if name in own]:
            raise RegistrationError(f"{cls.__qualname__} defines a hook of {whose}. {' '.join(found)}")
    unused = [name for name in (("compute",) if cls.is_simple else SIMPLE_HOOKS.values()) if name in own]
    if unused:
        base = "sn.Sensor" if cls.is_simple else "sn.SimpleSensor"
        raise RegistrationError(f"{cls.__qualname__} defines {unused[0]}, which only {base} calls: derive from it.")
    if "post_process" in own and "intermediate_fields" not in own:
        raise RegistrationError(
            f"{cls.__qualname__} defines post_process without intermediate_fields. The intermediate buffer is "
            "distinct from what readers see: define intermediate_fields(self) as well (return self.fields() where "
            "they coincide)."
        )
