"""What every sensor that casts rays has in its config: which shapes it meets, how far, and what a miss shows."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import field_validator, model_validator

from sensorium.cfg import SELECTORS, Float, MountedSensorCfg, ObjRef, bad
from sensorium.errors import ConfigError, Fault
from sensorium.world.ray_scene import Geometry, Targets

DataT = TypeVar("DataT")


class RayCfg(MountedSensorCfg[DataT], Generic[DataT]):
    """A sensor that casts rays at the shapes of the scene.

    It sees what a viewer shows, of every environment its own shapes only, and not the body that it sits on.
    """

    frame: ObjRef | tuple[ObjRef, ...] | None = None
    """Where it sits, as `ObjRef` to a body, a site or a geom, instead of a selector; several give a mount axis."""
    geometry: Geometry = "visual"
    """Which shapes are met: ``"visual"`` (visible, of geom groups 0 to 2), ``"collision"`` (those that take part in
    contacts) or ``"all"`` (every visible shape)."""
    include_geom_groups: tuple[int, ...] | None = None
    """Geom groups that are met, 0 to 5; None leaves that to `geometry`."""
    targets: str | tuple[str, ...] | None = None
    """Names or full-match patterns of geoms or bodies that are met; None for all. Paths such as
    ``{ENV_REGEX_NS}/Robot/base`` count as well."""
    mesh_prim_paths: str | tuple[str, ...] | None = None
    """Alias of `targets`."""
    labels: str | tuple[str, ...] | None = None
    """Semantic labels (patterns) that are met; None for all. They come from ``Scene(semantics=...)`` or the shapes."""
    exclude: str | tuple[str, ...] = ()
    """Names or patterns of geoms or bodies that are not met."""
    exclude_parent_body: bool = True
    """Whether the body that the sensor sits on is invisible to it. The world never is."""
    min_distance: Float = 0.0
    """A nearer hit is a miss, m."""
    max_distance: Float = 1.0e6
    """A farther hit is a miss, m."""
    no_hit_value: Float | None = None
    """The distance that a miss shows, m; None for +inf."""

    def __init__(self, /, **data: Any) -> None:
        frame = data.get("frame")
        if frame is not None and not any(data.get(name) is not None for name in SELECTORS):
            frames = (frame,) if isinstance(frame, ObjRef) else tuple(frame)
            kinds = {each.type for each in frames if isinstance(each, ObjRef)}
            if not frames or len(kinds) != 1 or not kinds <= {"body", "site", "geom"}:
                label = f"({data['name']!r})" if data.get("name") else ""
                expected = "one or several ObjRef of one type: body, site or geom"
                raise ConfigError(f"{type(self).__name__.split('[')[0]}{label}", [Fault("frame", repr(frame), expected)])
            kind = kinds.pop()
            plural = {"body": "bodies"}.get(kind, f"{kind}s")
            data = {name: value for name, value in data.items() if name != "frame"}
            data |= {kind: frames[0]} if isinstance(frame, ObjRef) else {plural: frames}
        super().__init__(**data)

    @field_validator("include_geom_groups")
    @classmethod
    def _groups(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not (value and all(0 <= group <= 5 for group in value)):
            raise bad("geom groups from 0 to 5", "None takes all that `geometry` says.")
        return value

    @model_validator(mode="after")
    def _limits(self) -> Any:
        if not 0.0 <= self.min_distance < float("inf"):
            raise bad("min_distance: a finite distance >= 0, m")
        if not self.min_distance < self.max_distance < float("inf"):
            raise bad(f"max_distance: a finite distance above min_distance = {self.min_distance:g} m")
        if self.targets is not None and self.mesh_prim_paths is not None:
            raise bad("only one of targets and mesh_prim_paths", "They mean the same.")
        return self

    @property
    def seen(self) -> Targets:
        """The shapes that rays meet."""
        include = self.targets if self.targets is not None else self.mesh_prim_paths
        return Targets(
            geometry=self.geometry,
            groups=self.include_geom_groups,
            include=None if include is None else as_tuple(include),
            labels=None if self.labels is None else as_tuple(self.labels),
            exclude=as_tuple(self.exclude),
            exclude_own=self.exclude_parent_body,
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest distance, m."""
        return self.min_distance, self.max_distance

    @property
    def miss(self) -> float:
        """The distance that a miss shows, m."""
        return float("inf") if self.no_hit_value is None else self.no_hit_value

    @property
    def is_clean(self) -> bool:
        """Whether nothing can make the measured values differ from the true ones."""
        knobs = ("noise", "noise_density", "bias", "random_walk", "random_walk_density", "resolution")
        return not self.stages and all(getattr(self, knob) is None for knob in knobs)


def as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return one name as a tuple of one."""
    return (value,) if isinstance(value, str) else value


__all__ = ["RayCfg", "as_tuple"]
