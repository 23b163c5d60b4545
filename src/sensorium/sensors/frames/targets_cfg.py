"""What every sensor that meets the shapes of a scene has in its config: which of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import field_validator

from sensorium.cfg import SELECTORS, Cfg, MountedSensorCfg, ObjRef, bad, name_in
from sensorium.errors import ConfigError, Fault
from sensorium.world.ray_scene import Geometry, Targets

DataT = TypeVar("DataT")


class RaycastTargetCfg(Cfg):
    """One entry of `mesh_prim_paths` in the words of Isaac Lab's ray caster for several meshes."""

    prim_expr: str
    """Path, or pattern of paths."""
    is_shared: bool = False
    """Without effect: what stands still is stored once for all environments, and meshes are always shared."""
    merge_prim_meshes: bool = True
    """Without effect: all shapes of a body are met."""
    track_mesh_transforms: bool = True
    """False says that the shapes stand still; what moves is always followed, and refused here."""


MeshPaths = str | RaycastTargetCfg | tuple[str | RaycastTargetCfg, ...]


class TargetsCfg(MountedSensorCfg[DataT], Generic[DataT]):
    """A sensor that meets shapes of the scene: by rays, or because it is close to them.

    It meets those of its own environment only.
    """

    frame: ObjRef | tuple[ObjRef, ...] | None = None
    """Where it sits, as `ObjRef` to a body, a site or a geom, instead of a selector, which it becomes; several give a
    mount axis."""
    frames: ObjRef | tuple[ObjRef, ...] | None = None
    """Alias of `frame`."""
    geometry: Geometry = "visual"
    """Which shapes are met: ``"visual"`` (visible, of geom groups 0 to 2), ``"collision"`` (those that take part in
    contacts), ``"all"`` (every visible shape) or ``"any"`` (every shape, visible or not)."""
    include_geom_groups: tuple[int, ...] | None = None
    """Geom groups that are met, 0 to 5; None leaves that to `geometry`."""
    targets: str | tuple[str, ...] | None = None
    """Names or full-match patterns of geoms or bodies that are met; None for all. Paths such as
    ``{ENV_REGEX_NS}/Robot/base`` or ``/World/ground`` count as well; ``/World`` is everything."""
    mesh_prim_paths: MeshPaths | None = None
    """Alias of `targets`."""
    track_link: str | tuple[str, ...] | None = None
    """Alias of `targets`, in the words of Genesis."""
    labels: str | tuple[str, ...] | None = None
    """Semantic labels (patterns) that are met; None for all. They come from ``Scene(semantics=...)`` or the shapes."""
    exclude: str | tuple[str, ...] = ()
    """Names, patterns or paths of geoms or bodies that are not met."""
    exclude_parent_body: bool = True
    """Whether the shapes of the body that the sensor sits on are left out. The world's never are."""
    exclude_own_links: bool = True
    """Whether those of the other links of its robot, the bodies of the same kinematic tree, are left out as well. They
    are met with False, with ``exclude_parent_body=False``, and where `targets` or `labels` ask for them."""

    RaycastTargetCfg: ClassVar[type[RaycastTargetCfg]] = RaycastTargetCfg

    def __init__(self, /, **data: Any) -> None:
        if data.get("track_link") is not None and data.get("targets") is None:
            data["targets"] = data["track_link"]
        super().__init__(**_mounted(type(self).__name__.split("[")[0], data))
        if self.track_link is not None and self.track_link != self.targets:
            fault = Fault(
                "track_link", repr(self.track_link), f"the same as targets, {self.targets!r}, or absent", "Keep one."
            )
            raise ConfigError(f"{type(self).__name__.split('[')[0]}({self.label!r})", [fault])
        if self.targets is not None and self.mesh_prim_paths is not None:
            got, fix = repr(self.mesh_prim_paths), "They mean the same: keep one."
            fault = Fault("mesh_prim_paths", got, "it absent beside targets", fix)
            raise ConfigError(f"{type(self).__name__.split('[')[0]}({self.label!r})", [fault])

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        if "track_link" in changes and "targets" not in changes:
            changes["targets"] = changes["track_link"]
        elif "targets" in changes and "track_link" not in changes:
            changes["track_link"] = None
        return super().replace(**changes)

    @field_validator("include_geom_groups")
    @classmethod
    def _groups(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not (value and all(0 <= group <= 5 for group in value)):
            raise bad("geom groups from 0 to 5", "None takes all that `geometry` says.")
        return value

    @field_validator("targets", "mesh_prim_paths", "labels")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if value in ((), ""):
            raise bad("at least one name", "None takes all.")
        return value

    @property
    def seen(self) -> Targets:
        """The shapes that it meets."""
        include = self.targets if self.targets is not None else self.mesh_prim_paths
        paths = [] if include is None else [include] if isinstance(include, str | RaycastTargetCfg) else include
        still = [each for each in paths if isinstance(each, RaycastTargetCfg) and not each.track_mesh_transforms]
        return Targets(
            geometry=self.geometry,
            groups=self.include_geom_groups,
            include=None
            if include is None
            else tuple(each if isinstance(each, str) else each.prim_expr for each in paths),
            labels=None if self.labels is None else as_tuple(self.labels),
            exclude=as_tuple(self.exclude),
            exclude_own=self.exclude_parent_body,
            exclude_robot=self.exclude_own_links,
            still=tuple(each.prim_expr for each in still),
        )

    @property
    def is_clean(self) -> bool:
        """Whether no knob or stage can make the measured values differ from the true ones."""
        return self.first_imperfection is None

    @property
    def first_imperfection(self) -> str | None:
        """Name of the first knob or stage that can make the measured values differ from the true ones, or None."""
        knobs = ("noise", "noise_density", "bias", "random_walk", "random_walk_density", "resolution")
        return next((knob for knob in knobs if getattr(self, knob) is not None), "stages" if self.stages else None)


def _mounted(config: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config with the selector that `frame` or `frames` stands for."""
    words = [word for word in ("frame", "frames") if data.get(word) is not None]
    if not words:
        return data
    title = config + name_in(data)
    given = data[words[0]]
    others = [*words[1:], *(name for name in SELECTORS if data.get(name) is not None)]
    if others:
        got = f"{words[0]} and {others[0]}"
        raise ConfigError(title, [Fault("mount", got, "exactly one selector", "Keep one of them.")])
    is_one = isinstance(given, ObjRef | Mapping)
    parts = (given,) if is_one else given if isinstance(given, tuple | list) else ()
    frames = tuple(ObjRef(**each) if isinstance(each, Mapping) else each for each in parts)
    kinds = {each.type if isinstance(each, ObjRef) else None for each in frames}
    if len(kinds) != 1 or not kinds <= {"body", "xbody", "site", "geom"}:
        expected = "one or several ObjRef of one type: body, site or geom"
        raise ConfigError(title, [Fault(words[0], repr(given), expected)])
    kind = "body" if kinds & {"body", "xbody"} else str(kinds.pop())
    if kind == "body":
        frames = tuple(ObjRef(type="body", name=each.name, entity=each.entity) for each in frames)
    plural = {"body": "bodies"}.get(kind, f"{kind}s")
    kept = {name: value for name, value in data.items() if name not in words}
    return kept | ({kind: frames[0]} if is_one else {plural: frames})


def as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return one name as a tuple of one."""
    return (value,) if isinstance(value, str) else value


__all__ = ["MeshPaths", "RaycastTargetCfg", "TargetsCfg", "as_tuple"]
