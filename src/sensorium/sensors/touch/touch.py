"""Touch: the normal force in a volume, as measured by a pressure pad or a fingertip.

Axes: ``[env, mount]`` (no mount axis for a singular selector). A mount is a site, whose shape is the pad's volume.

The value is that of the engine's own touch sensor: the sum of the normal forces, N, of all contacts of the site's
*body* whose point lies in the site's volume, or whose normal through it intersects the volume (a soft contact may lie
behind the pad). It is never negative and has neither direction nor friction. Contacts of other bodies are ignored,
wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import warp as wp
from torch import Tensor

from sensorium.cfg import OffsetCfg
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.errors import ConfigError, Fault
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports
from sensorium.spec import NATIVE_SENSOR, Field, Requirement
from sensorium.world.select import Named, match_names


@dataclass(frozen=True, slots=True)
class TouchData:
    """One sample of touch sensors; `.data` is the tensor itself."""

    force: Annotated[Tensor, Field("N")]
    """Sum of normal forces in the site's volume `[env, mount]`, N."""


class TouchCfg(MountedSensorCfg[TouchData]):
    """Configuration of touch sensors. Select sites; their shape and size are the volume."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            super().__init__(**data)
            selector, value = self.selector
            faults = []
            if selector not in ("site", "sites"):
                fix = "Add a site with the volume to the model, or use ContactForceCfg(body=...) for a whole body."
                faults.append(Fault(selector, repr(value), "a site, by site or sites", fix))
            if self.offset != OffsetCfg():
                faults.append(Fault("offset", repr(self.offset), "no offset", "Move the site in the model instead."))
            if faults:
                raise ConfigError(self.title, faults)


def _sites(cfg: TouchCfg, model: Named) -> list[str]:
    """Return the full names of the sites, in the order of the mounts."""
    selector, value = cfg.selector
    found: list[str] = []
    for pattern in value if isinstance(value, tuple) else (value,):
        config = cfg.title
        names = match_names(pattern, model.names("site"), config=config, field=selector, what="site")
        found += [each for each in names if each not in found]
    return found


@kernel
def _take(rows: Rows, mount: int, native_in: wp.array2d[wp.float32], force_out: wp.array2d[wp.float32]) -> None:
    env, _one = masked_tid(rows)
    force_out[env, mount] = native_in[env, 0]


class Touch(SimpleSensor[TouchCfg, TouchData]):
    """Touch sensor at one or several sites."""

    single: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: TouchCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirement of one native touch sensor per site."""
        return [NATIVE_SENSOR(f"{cfg.label}/{site}", "touch", "site", site) for site in _sites(cfg, names)]

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Copy the engine's values (one launch per site)."""
        force = wp.from_torch(raw.force, dtype=wp.float32)
        for mount, site in enumerate(self.mount.names):
            native = wp.from_torch(self.engine.array(f"native:{self.name}/{site}"))
            self.compute_on.launch(_take, (1,), [mount, native], [force])
