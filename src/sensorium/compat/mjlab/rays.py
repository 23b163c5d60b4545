"""The ray casters of mjlab's document, with its names and defaults.

In `data`, the rays of several frames are on one axis, frame by frame: `[env, frame * ray, ...]`. Files, streams and
observers have the axes of sensorium, `[env, mount, ray, ...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from sensorium.cfg import Float, ObjRef, name_in
from sensorium.compat.mjlab.entries import SceneEntryCfg
from sensorium.errors import ConfigError, Fault
from sensorium.measurement.sensor_cfg import SELECTORS
from sensorium.patterns import GridPatternCfg, PatternField
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.sensors.rays import terrain_height as _terrain
from sensorium.sensors.rays.ray_cfg import MissValue
from sensorium.shapes.ray_cast import Alignment

RayCastSensor = _rays.RayCaster
TerrainHeightSensor = _terrain.TerrainHeight
_VECTORS = ("ray_hits_w", "points_b", "normals_w")


class RayCastData(_rays.RayCasterData):
    """One scan; the hit point of a miss is +inf."""

    _frames: list[Tensor]

    def __init__(
        self,
        *,
        hit_pos_w: Tensor | None = None,
        frame_pos_w: Tensor | None = None,
        frame_quat_w: Tensor | None = None,
        **values: Any,
    ) -> None:
        given = {"ray_hits_w": hit_pos_w} if hit_pos_w is not None else {}
        super().__init__(**{**dict.fromkeys(self.__dataclass_fields__), **values, **given})
        pairs = ((frame_pos_w, self.pos_w), (frame_quat_w, self.quat_w))
        frames = [own if own is not None or first is None else first.unsqueeze(-2) for own, first in pairs]
        object.__setattr__(self, "_frames", frames)

    @property
    def hit_pos_w(self) -> Tensor:
        """`ray_hits_w`."""
        return self.ray_hits_w

    @property
    def frame_pos_w(self) -> Tensor:
        """Positions of all frames, `[env, frame, 3]`, m; `pos_w` is that of the first one."""
        return self._frames[0]

    @property
    def frame_quat_w(self) -> Tensor:
        """Orientations of all frames, `[env, frame, 4]`; `quat_w` is that of the first one."""
        return self._frames[1]


class TerrainHeightData(RayCastData, _terrain.TerrainHeightData):
    """Heights of the frames above the terrain, and the underlying scan."""


class _Frames:
    """Data of several frames: their rays on one axis, and the pose of the first one."""

    def __init__(self, **values: Any) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        for name in given.keys() & {*_rays.PER_RAY}:
            last = -2 if name in _VECTORS else -1
            values[name] = given[name].flatten(last - 1, last)
        for name in given.keys() & {"pos_w", "quat_w"}:
            values |= {name: given[name][..., 0, :], f"frame_{name}": given[name]}
        super().__init__(**values)


class _RayCastFrames(_Frames, RayCastData): ...


class _TerrainFrames(_Frames, TerrainHeightData): ...


class _RaysCfg(SceneEntryCfg):
    """Defaults of both ray casters. The mount is `frame`: an `ObjRef` to a body, site or geom, or several of them."""

    pattern: PatternField = GridPatternCfg()
    """Rays in the sensor's frame."""
    fields: tuple[str, ...] | Literal["all"] = "all"
    """Computed fields."""
    ray_alignment: Alignment = "base"
    """Rotation of the rays with their mount: ``base``, ``yaw`` or ``world``."""
    max_distance: Float = 10.0
    """Largest measured distance, m; farther hits are misses."""
    no_hit_value: MissValue = -1.0
    """Distance reported for a miss, m."""
    include_geom_groups: tuple[int, ...] | None = (0, 1, 2)
    """Geom groups that can be hit, 0 to 5; None derives them from `geometry`."""
    exclude_own_links: bool = False
    """Whether rays ignore the other links of the sensor's robot."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_mounted(type(self).__name__, data))

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some fields changed, validated as a whole."""
        return super().replace(**_mounted(type(self).__name__, changes))


class RayCastSensorCfg(_RaysCfg, _rays.RayCasterCfg):
    """Configuration of a ray caster: all fields, 10 m, geom groups 0 to 2; own links can be hit, and a miss is -1."""

    @property
    def data_class(self) -> type[Any]:  # type: ignore[override]
        """Class of the data."""
        return _RayCastFrames if self.is_plural else RayCastData


class TerrainHeightSensorCfg(_RaysCfg, _terrain.TerrainHeightCfg):
    """Configuration of a terrain height sensor. If all rays miss, it reads the height in the world."""

    mount_height_on_miss: bool = True
    """Whether the height without a hit is the mount's height in the world, at most `max_distance`."""

    @property
    def data_class(self) -> type[Any]:  # type: ignore[override]
        """Class of the data."""
        return _TerrainFrames if self.is_plural else TerrainHeightData


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


__all__ = [
    "RayCastData", "RayCastSensor", "RayCastSensorCfg", "TerrainHeightData", "TerrainHeightSensor",
    "TerrainHeightSensorCfg",
]  # fmt: skip
