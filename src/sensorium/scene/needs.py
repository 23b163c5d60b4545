"""Requirements of sensor configs on an engine, and on a model before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sensorium import registry
from sensorium.engines.base import NameKind
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.sensors.builtin import BuiltinSensorCfg, with_full_names
from sensorium.spec import Requirement
from sensorium.world.select import Named, plural

if TYPE_CHECKING:
    import mujoco


def requirements_of(
    items: Iterable[SensorCfg[Any] | Requirement], supports: Callable[[Requirement], str | None], model: Named
) -> dict[Requirement, str]:
    """Return the requirements of configs, each with the name of the first sensor that has it.

    Args:
        items: configs, and requirements to reserve.
        supports: returns the reason why a requirement is unsupported, or None if it is supported.
        model: model whose names the patterns of configs match.
    """
    needed: dict[Requirement, str] = {}
    for item in items:
        if isinstance(item, Requirement):
            needed.setdefault(item, "(reserved)")
            continue
        for requirement in registry.sensor_for(type(item)).needs(item, model, supports):
            needed.setdefault(requirement, item.label)
    return needed


def prepare(spec: mujoco.MjSpec, sensors: Iterable[SensorCfg[Any] | Requirement]) -> mujoco.MjSpec:
    """Add the elements that sensors need to an mjSpec before it is compiled by the caller; return the same spec.

    Sensors cannot be mounted on the added elements: their names are hidden. Unnamed bodies, geoms and other elements of
    the model get names such as `geom_3`.
    """
    from sensorium.engines.mujoco.elements import hidden
    from sensorium.engines.mujoco.spec import name_elements, prepare_spec

    name_elements(spec)

    def names(kind: NameKind) -> list[str]:
        found = [element.name for element in getattr(spec, plural(kind)) if not hidden(element.name)]
        return found[1:] if kind == "body" else found  # without the world

    def parent_body(body: int) -> int:
        known = names("body")
        parent = spec.body(known[body]).parent.name
        return known.index(parent) if parent in known else -1

    named = [
        with_full_names(item, names) if isinstance(item, BuiltinSensorCfg) and not item.is_declared else item
        for item in sensors
    ]
    prepare_spec(
        spec, requirements_of(named, lambda requirement: None, SimpleNamespace(names=names, parent_body=parent_body))
    )
    return spec
