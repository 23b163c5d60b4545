"""The ray casters of Isaac Lab's document."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_serializer
from torch import Tensor

from sensorium.cfg import Cfg, Evaluate
from sensorium.compat.aliases import sensors
from sensorium.compat.isaaclab.base import WithoutHandles
from sensorium.compat.isaaclab.markers import MarkedCfg
from sensorium.errors import Fault, PathError
from sensorium.patterns import PatternField
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.world.ray_cast import Alignment
from sensorium.world.ray_scene import Targets


class RayCaster(WithoutHandles, _rays.RayCaster):
    """Ray caster of this document, whose ranges of drifts can be assigned in its config."""

    def __init__(self, cfg: Any, context: Any) -> None:
        super().__init__(cfg, context)
        sensors[id(cfg)] = self

    def rebuild(self) -> None:
        """Build the sensor anew from its config; this object and its replacement in the scene share attributes."""
        new, shared = self._context.rebuild(self, self.cfg), vars(self)
        shared.clear()
        shared.update(vars(new))
        new.__dict__ = shared


MultiMeshRayCaster = RayCaster

ALIGNMENTS = {True: "yaw", False: "base", None: "base", "yaw_starts": "yaw"}
YAW_ONLY = BeforeValidator(
    lambda value: ALIGNMENTS.get(value, value) if isinstance(value, bool | str | None) else value
)
"""Accepts a flag: whether rays rotate about the vertical only."""
Paths = str | tuple[str, ...]


def check_leaf(config: str, selector: str, path: str) -> tuple[str, str]:
    """Return a selector and its path, or raise `PathError` if the last part of the path is a pattern."""
    if re.search(r"[][*+?(){}|^$\\]", path.rpartition("/")[2]):
        fix = "Write one name after the last slash. Patterns are allowed before it."
        raise PathError(config, [Fault(selector, repr(path), "the path of one prim", fix)])
    return selector, path


class RayCasterData(_rays.RayCasterData):
    """One scan."""

    __slots__ = ()

    @property
    def ray_mesh_ids(self) -> Tensor:
        """`geom_ids` with an axis of length 1 at the end."""
        return self.geom_ids if self.geom_ids is None else self.geom_ids.unsqueeze(-1)


MultiMeshRayCasterData = RayCasterData


class RayCasterCfg(MarkedCfg, _rays.RayCasterCfg):
    """Configuration of a ray caster."""

    data_class: ClassVar[type[Any] | None] = RayCasterData
    read_at_reset: ClassVar[tuple[str, ...]] = ("drift_range", "ray_cast_drift_range")
    sensor_class: ClassVar[type[Any] | None] = RayCaster

    prim_path: str
    """Path of the prim that carries the sensor."""
    evaluate: Evaluate = "on_access"
    """When samples are computed; by default a due sample waits for a read."""
    targets: Paths = Field(alias="mesh_prim_paths")
    """Paths of the shapes that rays can hit."""
    pattern: PatternField = Field(alias="pattern_cfg")
    """Pattern of the rays."""
    ray_alignment: Annotated[Literal["base", "yaw", "world"], YAW_ONLY] = Field(default="base", alias="attach_yaw_only")
    """Rotation of the rays with the prim: fully, about the vertical for the starts only, or not at all. Files contain
    sensorium's name of ``"yaw"``, ``"yaw_starts"``."""

    @property
    def attach_yaw_only(self) -> bool:
        """Whether `ray_alignment` is ``"yaw"``."""
        return self.ray_alignment == "yaw"

    @property
    def alignment(self) -> Alignment:
        """Rotation of the rays with their mount, as they are cast."""
        return "yaw_starts" if self.attach_yaw_only else self.ray_alignment

    @field_serializer("ray_alignment")
    def _as_cast(self, _: str) -> Alignment:
        return self.alignment

    @property
    def selector(self) -> tuple[str, Any]:
        """The selector, `prim_path`, and the path.

        Raises:
            PathError: the last part of the path is a pattern.
        """
        return check_leaf(self.title, *super().selector)


class RaycastTargetCfg(Cfg):
    """One entry of `mesh_prim_paths` of a ray caster for several meshes."""

    prim_expr: str
    """Path, or pattern of paths."""
    is_shared: bool = False
    """No effect: static shapes are stored once for all environments, and meshes are always shared."""
    merge_prim_meshes: bool = True
    """No effect: all shapes of a body can be hit."""
    track_mesh_transforms: bool = True
    """False declares the shapes static. Moving shapes are always tracked, so False is rejected for them."""


MeshPath = str | RaycastTargetCfg


def _with_ids(value: Any) -> Any:
    base: tuple[str, ...] = _rays.RayCasterCfg.model_fields["fields"].default
    return base + ("geom_ids",) * value if isinstance(value, bool) else value


class MultiMeshRayCasterCfg(RayCasterCfg):
    """Configuration of a ray caster for several meshes."""

    RaycastTargetCfg: ClassVar[type[RaycastTargetCfg]] = RaycastTargetCfg

    targets: MeshPath | tuple[MeshPath, ...] = Field(alias="mesh_prim_paths")  # type: ignore[assignment]
    """Paths of the shapes that rays can hit."""
    fields: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_with_ids)] = Field(
        default=_rays.RayCasterCfg.model_fields["fields"].default, alias="update_mesh_ids"
    )
    """Computed fields. A flag selects whether `geom_ids` (`ray_mesh_ids`) is among them."""

    @property
    def update_mesh_ids(self) -> bool:
        """Whether mesh ids are computed."""
        return "geom_ids" in self.selected

    @field_serializer("targets")
    def _paths(self, value: MeshPath | tuple[MeshPath, ...]) -> tuple[str, ...]:
        given = value if isinstance(value, tuple) else (value,)
        return tuple(each if isinstance(each, str) else each.prim_expr for each in given)

    @property
    def seen(self) -> Targets:
        """The shapes that rays can hit."""
        given = self.targets if isinstance(self.targets, tuple) else (self.targets,)
        still = [each for each in given if isinstance(each, RaycastTargetCfg) and not each.track_mesh_transforms]
        return replace(super().seen, include=self._paths(self.targets), still=tuple(each.prim_expr for each in still))


__all__ = [
    "YAW_ONLY", "MeshPath", "MultiMeshRayCaster", "MultiMeshRayCasterCfg", "MultiMeshRayCasterData", "Paths",
    "RayCaster", "RayCasterCfg", "RayCasterData", "RaycastTargetCfg",
]  # fmt: skip
