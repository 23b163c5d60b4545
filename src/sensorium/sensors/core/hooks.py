"""Hooks of sensor classes: their list, the decorators that mark them, and names that a class must not define."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sensorium.errors import RegistrationError
from sensorium.measurement.plan import Hooks
from sensorium.plugins import is_ours
from sensorium.spec import Requirement

if TYPE_CHECKING:
    from sensorium.sensors.core.base import Sensor

BASES: list[type] = []
"""Classes whose hooks are empty, which `base` adds."""
METHODS = FunctionType, classmethod, staticmethod
Function = TypeVar("Function", bound=Callable[..., Any])
Supports = Callable[[Requirement], str | None]
"""Function that returns the reason why a requirement is unsupported, or None if it is supported."""

SIMPLE_HOOKS = {
    "raw": "update_raw_data",
    "fused": "update_current_timestep_data",
    "physics": "apply_physics_imperfections",
    "transform": "apply_transform",
    "hardware": "apply_hardware_imperfections",
    "derive": "derive_measured",
}
"""Hooks that only `SimpleSensor` calls, by their names in `Hooks`."""
HOOKS = {"post": "post_process", "reset": "reset_state", "observe": "observe"}
"""Hooks of every sensor, by their names in `Hooks`."""
OTHER_HOOKS = (
    "compute setup fields intermediate_fields needs debug_draw apply_camera_transform render_current_state".split()
)
"""Hooks that the sensor itself calls."""
SPELLINGS = {name.replace("_", ""): name for name in (*SIMPLE_HOOKS.values(), *HOOKS.values(), *OTHER_HOOKS)}
"""All hooks by their names without underscores."""
ALIKE = 0.91
"""Similarity from which a name is a misspelled hook; below that of ``field`` and ``fields``."""

_REPLACEMENTS = {
    "Field(shape=...), or fields(self) where it depends on the config": "_get_return_format",
    "Field(dtype=...)": "_get_cache_dtype",
    "intermediate_fields(self)": "_get_intermediate_format _get_intermediate_dtype",
    "update_raw_data(self, raw)": "_update_raw_data _compute_data",
    "update_current_timestep_data(self, raw, slot, timeline)": "_update_current_timestep_data",
    "apply_physics_imperfections(self, slot, timeline)": "_apply_physics_imperfections",
    "apply_transform(self, data, timeline, *, is_measured)": "_apply_transform",
    "apply_hardware_imperfections(self, slot)": "_apply_hardware_imperfections",
    "post_process(self, data, timeline, *, is_measured)": "_post_process",
    "delay, jitter and loss of the config": "_apply_delay",
    "compute(self, truth, measured) on sn.Sensor, with self.timelines": "_update_shared_cache",
    "compute(self, truth, measured) on sn.Sensor": "_update_shared_ground_truth_cache",
    "apply_camera_transform(self, transform) on sn.RenderedSensor": "_apply_camera_transform",
    "render_current_state(self) on sn.RenderedSensor": "_render_current_state",
    "debug_draw(self)": "_draw_debug debug_vis _set_debug_vis_impl _debug_vis_callback",
    "setup(self)":
        "build initialize _initialize_impl _initialize_callback _initialize_buffers_impl _initialize_rays_impl",
    "requires = (sn.engines.MODEL_ELEMENTS(function), ...)": "edit_spec",
    "update_raw_data(self, raw) for samples, observe(self) for work at every tick": "update",
    "update_raw_data(self, raw), with a cast of self.ray_cast(...)": "postprocess_rays",
    "update_raw_data(self, raw), or compute(self, truth, measured) on sn.Sensor":
        "_update_buffers_impl _update_outdated_buffers",
    "requires = (...)": "requires_sensor_context",
    "reset_state(self, env_mask); readers call reset with env_ids": "reset",
    "nothing, since a sensor's memory is freed with its scene": "_invalidate_initialize_callback _on_prim_deletion",
}  # fmt: skip
HOOKS_OF_OTHERS = {name: fix for fix, names in _REPLACEMENTS.items() for name in names.split()}
"""Hooks of other libraries, which sensorium never calls, and their replacements."""


def used_if(test: Callable[[Any], object], otherwise: str = "") -> Callable[[Function], Function]:
    """Mark a hook that only some configs use; where it is not used it costs no memory and no time.

    The mark also applies to the hook of a subclass that overrides it.

    Args:
        test: called once with the sensor, before its `setup`; returns whether the hook is used.
        otherwise: name of the method to call instead; by default none.
    """

    def mark(hook: Function) -> Function:
        hook.__used_if__ = test, otherwise  # type: ignore[attr-defined]
        return hook

    return mark


def between_samples(hook: Function) -> Function:
    """Mark an `observe` hook to be called only at ticks between samples: the sample itself covers its own tick."""
    hook.__between_samples__ = True  # type: ignore[attr-defined]
    return hook


def _is_default(name: str, value: object) -> bool:
    return any(name in base.__dict__ and base.__dict__[name] is value for base in BASES)


def hook_of(sensor: Sensor[Any, Any], name: str) -> Callable[..., Any] | None:
    """Return a hook by name, or None if the sensor's class does not define it or its config does not use it."""
    bases = [base for base in type(sensor).__mro__ if name in base.__dict__]
    if _is_default(name, bases[0].__dict__[name]):
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


def misspelled(cls: type[Sensor[Any, Any]]) -> Mapping[str, str]:
    """Return the methods of a plugin's class that are named almost like a hook -> that hook.

    A hook's name with an ending, or without its last words, is almost that hook too. Names with a leading underscore,
    and those of one word with an ending, such as ``observed``, are those of helpers.
    """
    known = {*SPELLINGS.values(), *(name for base in cls.__mro__ if is_ours(base) for name in base.__dict__)}
    found = {}
    for name, value in (item for base in cls.__mro__ for item in base.__dict__.items()):
        if name in known or name.startswith("_") or not isinstance(value, METHODS):
            continue
        plain = name.removesuffix("_impl").replace("_", "").lower()
        for spelling, hook in SPELLINGS.items():
            is_longer = plain.startswith(spelling) and plain != spelling
            is_near = "_" in hook if is_longer else get_close_matches(plain, (spelling,), 1, ALIKE)
            is_shorter = "_" in name and hook.startswith(f"{name}_")
            if is_near or is_shorter or sorted(plain) == sorted(spelling):
                found[name] = hook
    return found


def _check_signatures(cls: type[Sensor[Any, Any]]) -> None:
    """Raise `RegistrationError` if a hook cannot be called with the arguments that it gets."""
    for name in SPELLINGS.values():
        hook = cls.__dict__.get(name)
        declared = next((base.__dict__[name] for base in BASES if name in base.__dict__), None)
        if not isinstance(hook, FunctionType | classmethod) or declared is None:
            continue
        functions: list[Any] = [hook, declared]
        own, wanted = (signature(getattr(each, "__func__", each)) for each in functions)
        named = {each.name: None for each in wanted.parameters.values() if each.kind is Parameter.KEYWORD_ONLY}
        try:
            own.bind(*[None] * (len(wanted.parameters) - len(named)), **named)
        except TypeError as error:
            plain = [each.replace(annotation=each.empty) for each in wanted.parameters.values()]
            fix = f"write {name}{wanted.replace(parameters=plain, return_annotation=wanted.empty)}"
            raise RegistrationError(f"{cls.__qualname__}.{name} cannot be called ({error}): {fix}.") from None


def check_hooks(cls: type[Sensor[Any, Any]]) -> None:
    """Raise `RegistrationError` if a class defines a hook that is never called, or lacks one that another needs."""
    values = [item for base in cls.__mro__ for item in base.__dict__.items()]
    own = {name for name, value in values if not _is_default(name, value)}
    if found := [f"{name} is never called: write {HOOKS_OF_OTHERS[name]}." for name in HOOKS_OF_OTHERS if name in own]:
        raise RegistrationError(f"{cls.__qualname__} defines a hook of another library. {' '.join(found)}")
    if found := [f"{name} is never called: write {hook}." for name, hook in misspelled(cls).items()]:
        raise RegistrationError(f"{cls.__qualname__} defines a misspelled hook. {' '.join(found)}")
    if not is_ours(cls):
        _check_signatures(cls)
        given = cls.requires
        if not (isinstance(given, tuple | list) and all(isinstance(each, Requirement) for each in given)):
            expected = "a tuple of requirements: requires = (sn.engines.BODY_POSE,)"
            raise RegistrationError(f"{cls.__qualname__}.requires: got {given!r}, expected {expected}.")
    unused = [name for name in (("compute",) if cls.is_simple else SIMPLE_HOOKS.values()) if name in own]
    if unused:
        base = "sn.Sensor" if cls.is_simple else "sn.SimpleSensor"
        raise RegistrationError(f"{cls.__qualname__} defines {unused[0]}, which only {base} calls: derive from {base}.")
    if "post_process" in own and not (cls.uses_ring_pipeline or hasattr(cls, "render_current_state")):
        raise RegistrationError(
            f"{cls.__qualname__} defines post_process, which is not called if uses_ring_pipeline is False: use compute."
        )
    if "post_process" in own and "intermediate_fields" not in own:
        raise RegistrationError(
            f"{cls.__qualname__} defines post_process without intermediate_fields. The intermediate buffer is "
            "separate from the returned fields: define intermediate_fields(self) as well (return self.fields() where "
            "both are the same)."
        )
