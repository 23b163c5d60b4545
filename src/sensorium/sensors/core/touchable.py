"""Elements whose contacts the engine reports: bodies and geoms, selected by the configs of sensors."""

from __future__ import annotations

from typing import Any, cast

from sensorium.engines.base import NameKind
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.world.select import WORLD, Named, match_names, scoped, without_positions

TOUCHABLE = (
    "a body or a geom", ("body", "bodies", "geom", "geoms", "link_name", "link_names")
)  # fmt: skip
"""Elements that contact reports support, as text and as selectors."""


def selected(cfg: MountedSensorCfg[Any], model: Named) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the full names of the selected elements, in the order of the mounts."""
    selector, value = cfg.selector
    kind = "geom" if selector.startswith("geom") else "body"
    return kind, matched(cfg, kind, value, selector, model)


def matched(cfg: MountedSensorCfg[Any], kind: str, value: Any, field: str, model: Named) -> tuple[str, ...]:
    """Return the full names that a pattern, a reference or a list of these matches, in order."""
    known, found = model.names(cast(NameKind, kind)), []
    for given in value if isinstance(value, tuple) else (value,):
        pattern = without_positions(given, model)
        is_world = scoped(pattern, known) == ("", WORLD)
        names = [WORLD] if is_world else match_names(pattern, known, config=cfg.title, field=field, what=kind)
        found += [each for each in names if each not in found]
    return tuple(found)
