"""The sensors of mjlab's document, with its names and defaults, and sensorium's sensors inside mjlab's scenes.

`add_sensors`, `reading`, `scene_of`, `SensoriumCfg` and `SensoriumSensor` need mjlab, which is imported when one of
them is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor

from sensorium.cfg import SELECTORS, Float, ObjRef, SensorCfg, name_in
from sensorium.compat.aliases import AliasedCfg
from sensorium.compat.mjlab.cameras import CameraSensor, CameraSensorCfg, CameraSensorData
from sensorium.errors import ConfigError, Fault
from sensorium.sensors import builtin as _builtin
from sensorium.sensors.builtin import BuiltinSensor
from sensorium.sensors.contact import contact_sensor as _contact
from sensorium.sensors.contact.contact_sensor import ContactMatch, ContactSensor
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.sensors.rays import terrain_height as _terrain
from sensorium.sensors.rays.ray_cfg import MissValue

if TYPE_CHECKING:
    from sensorium.compat.mjlab.scenes import SensoriumCfg, SensoriumSensor, add_sensors, reading, scene_of

ContactData = _contact.ContactSensorData
RayCastSensor = _rays.RayCaster
TerrainHeightSensor = _terrain.TerrainHeight


class RayCastData(_rays.RayCasterData):
    """One scan."""

    __slots__ = ()

    @property
    def hit_pos_w(self) -> Tensor:
        """`ray_hits_w`."""
        return self.ray_hits_w

    @property
    def frame_pos_w(self) -> Tensor:
        """`pos_w` of `.data`, always with a mount axis, `[env, mount, 3]`."""
        return self.pos_w if self.pos_w is None or self.pos_w.dim() > 2 else self.pos_w.unsqueeze(1)

    @property
    def frame_quat_w(self) -> Tensor:
        """`quat_w` of `.data`, always with a mount axis, `[env, mount, 4]`."""
        return self.quat_w if self.quat_w is None or self.quat_w.dim() > 2 else self.quat_w.unsqueeze(1)


class BuiltinSensorCfg(AliasedCfg, _builtin.BuiltinSensorCfg):
    """Configuration of a native sensor of MuJoCo."""

    sensor_type: str
    """Type of the sensor, as in MuJoCo's XML."""


class ContactSensorCfg(AliasedCfg, _contact.ContactSensorCfg):
    """Configuration of a report of contacts."""

    primary: ContactMatch
    """Elements whose contacts are reported."""


class _Framed(AliasedCfg):
    """Config whose mount may be given as `frame`: an `ObjRef` to a body, a site or a geom, or several of them."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_mounted(type(self).__name__, data))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        return super().replace(**_mounted(type(self).__name__, changes))


class RayCastSensorCfg(_Framed, _rays.RayCasterCfg):
    """Configuration of a ray caster: all fields, 10 m, geom groups 0 to 2; own links can be hit, and a miss is -1."""

    data_class: ClassVar[type[Any] | None] = RayCastData

    fields: tuple[str, ...] | Literal["all"] = "all"
    """Computed fields."""
    max_distance: Float = 10.0
    """Largest measured distance, m; farther hits are misses."""
    no_hit_value: MissValue = -1.0
    """Distance reported for a miss, m."""
    include_geom_groups: tuple[int, ...] | None = (0, 1, 2)
    """Geom groups that can be hit, 0 to 5; None derives them from `geometry`."""
    exclude_own_links: bool = False
    """Whether rays ignore the other links of the sensor's robot."""


class TerrainHeightSensorCfg(_Framed, _terrain.TerrainHeightCfg):
    """Configuration of a terrain height sensor. If all rays miss, it reads the height in the world."""

    mount_height_on_miss: bool = True
    """Whether the height without a hit is the mount's height in the world, at most `max_distance`."""


def _mounted(config: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config, with `frame` replaced by the matching selector."""
    if data.get("frame") is None:
        return data
    kept, given = {name: value for name, value in data.items() if name != "frame"}, data["frame"]
    title = config + name_in(data)
    if others := [name for name in SELECTORS if data.get(name) is not None]:
        fault = Fault("mount", f"frame and {others[0]}", "exactly one selector", "Keep one of them.")
        raise ConfigError(title, [fault])
    is_one = isinstance(given, ObjRef | Mapping)
    parts = (given,) if is_one else given if isinstance(given, tuple | list) else ()
    frames = tuple(ObjRef(**each) if isinstance(each, Mapping) else each for each in parts)
    kinds = {each.type if isinstance(each, ObjRef) else None for each in frames}
    if len(kinds) != 1 or not kinds <= {"body", "xbody", "site", "geom"}:
        expected = "one or several ObjRef of one type: body, site or geom"
        raise ConfigError(title, [Fault("frame", repr(given), expected)])
    kind = "body" if kinds & {"body", "xbody"} else str(kinds.pop())
    if kind == "body":
        frames = tuple(ObjRef(type="body", name=each.name, entity=each.entity) for each in frames)
    return kept | ({kind: frames[0]} if is_one else {{"body": "bodies"}.get(kind, f"{kind}s"): frames})


def __getattr__(name: str) -> Any:
    if name in ("SensoriumCfg", "SensoriumSensor", "add_sensors", "reading", "scene_of"):
        return getattr(import_module("sensorium.compat.mjlab.scenes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BuiltinSensor", "BuiltinSensorCfg", "CameraSensor", "CameraSensorCfg", "CameraSensorData", "ContactData",
    "ContactMatch", "ContactSensor", "ContactSensorCfg", "ObjRef", "RayCastData", "RayCastSensor",
    "RayCastSensorCfg", "Sensor", "SensorCfg", "SensoriumCfg", "SensoriumSensor", "TerrainHeightSensor",
    "TerrainHeightSensorCfg", "add_sensors", "reading", "scene_of",
]  # fmt: skip
