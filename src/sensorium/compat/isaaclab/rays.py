"""The ray casters of Isaac Lab's document."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_serializer
from torch import Tensor

from sensorium.cfg import Cfg
from sensorium.compat.aliases import AliasedCfg
from sensorium.compat.isaaclab.base import OnOnePrim
from sensorium.patterns import PatternField
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.world.ray_cast import Alignment
from sensorium.world.ray_scene import Targets


class RayCaster(OnOnePrim, _rays.RayCaster):
    """Ray caster of this document."""


MultiMeshRayCaster = RayCaster

YAW_ONLY = BeforeValidator(lambda value: {True: "yaw", False: "base"}[value] if isinstance(value, bool) else value)
YawOnly = Annotated[Alignment, YAW_ONLY]
"""A flag: whether rays rotate about the vertical only."""
Paths = str | tuple[str, ...]


class RayCasterData(_rays.RayCasterData):
    """One scan."""

    __slots__ = ()

    @property
    def ray_mesh_ids(self) -> Tensor:
        """`geom_ids` with an axis of length 1 at the end."""
        return self.geom_ids if self.geom_ids is None else self.geom_ids.unsqueeze(-1)


MultiMeshRayCasterData = RayCasterData


class RayCasterCfg(AliasedCfg, _rays.RayCasterCfg):
    """Configuration of a ray caster."""

    data_class: ClassVar[type[Any] | None] = RayCasterData
    sensor_class: ClassVar[type[Any] | None] = RayCaster

    prim_path: str
    """Path of the prim that carries the sensor."""
    targets: Paths = Field(alias="mesh_prim_paths")
    """Paths of the shapes that rays can hit."""
    pattern: PatternField = Field(alias="pattern_cfg")
    """Pattern of the rays."""
    ray_alignment: YawOnly = Field(default="base", alias="attach_yaw_only")
    """Rotation of the rays with the prim. ``"yaw_starts"`` is what Isaac Lab itself computes for `attach_yaw_only`."""


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
