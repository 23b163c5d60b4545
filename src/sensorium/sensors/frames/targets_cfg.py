"""What every sensor that meets the shapes of a scene has in its config: which of them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import field_validator

from sensorium.cfg import MountedSensorCfg, bad
from sensorium.world.ray_scene import Geometry, Targets

DataT = TypeVar("DataT")


class TargetsCfg(MountedSensorCfg[DataT], Generic[DataT]):
    """A sensor that meets shapes of the scene: by rays, or because it is close to them.

    It meets those of its own environment only.
    """

    geometry: Geometry = "visual"
    """Which shapes are met: ``"visual"`` (visible, of geom groups 0 to 2), ``"collision"`` (those that take part in
    contacts), ``"all"`` (every visible shape) or ``"any"`` (every shape, visible or not)."""
    include_geom_groups: tuple[int, ...] | None = None
    """Geom groups that are met, 0 to 5; None leaves that to `geometry`."""
    targets: str | tuple[str, ...] | None = None
    """Names or full-match patterns of geoms or bodies that are met; None for all. Paths such as
    ``{ENV_REGEX_NS}/Robot/base`` or ``/World/ground`` count as well; ``/World`` is everything."""
    labels: str | tuple[str, ...] | None = None
    """Semantic labels (patterns) that are met; None for all. They come from ``Scene(semantics=...)`` or the shapes."""
    exclude: str | tuple[str, ...] = ()
    """Names, patterns or paths of geoms or bodies that are not met."""
    exclude_parent_body: bool = True
    """Whether the shapes of the body that the sensor sits on are left out. The world's never are."""
    exclude_own_links: bool = True
    """Whether those of the other links of its robot, the bodies of the same kinematic tree, are left out as well. They
    are met with False, with ``exclude_parent_body=False``, and where `targets` or `labels` ask for them."""

    @field_validator("include_geom_groups")
    @classmethod
    def _groups(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not (value and all(0 <= group <= 5 for group in value)):
            raise bad("geom groups from 0 to 5", "None takes all that `geometry` says.")
        return value

    @field_validator("targets", "labels")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if value in ((), ""):
            raise bad("at least one name", "None takes all.")
        return value

    @property
    def seen(self) -> Targets:
        """The shapes that it meets."""
        return Targets(
            geometry=self.geometry,
            groups=self.include_geom_groups,
            include=None if self.targets is None else as_tuple(self.targets),
            labels=None if self.labels is None else as_tuple(self.labels),
            exclude=as_tuple(self.exclude),
            exclude_own=self.exclude_parent_body,
            exclude_robot=self.exclude_own_links,
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


def as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return one name as a tuple of one."""
    return (value,) if isinstance(value, str) else value


__all__ = ["TargetsCfg", "as_tuple"]
