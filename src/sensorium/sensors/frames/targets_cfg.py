"""Config base of sensors that interact with shapes of the scene: the selection of these shapes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import field_validator

from sensorium.cfg import ObjRef, bad
from sensorium.measurement.sensor_cfg import MountedSensorCfg, Selectors
from sensorium.shapes.scene import Geometry, Targets

DataT = TypeVar("DataT")


class TargetsCfg(MountedSensorCfg[DataT], Generic[DataT]):
    """Sensor that interacts with shapes of the scene, by rays or by proximity.

    Only shapes of the same environment are considered.
    """

    geometry: Geometry = "visual"
    """Candidate shapes: ``"visual"`` (visible, in geom groups 0 to 2), ``"collision"`` (those with contacts), ``"all"``
    (every visible shape) or ``"any"`` (every shape, visible or not)."""
    include_geom_groups: tuple[int, ...] | None = None
    """Geom groups of candidate shapes, 0 to 5; None derives them from `geometry`."""
    targets: Selectors = None
    """Names or full-match patterns of geoms or bodies to include; None includes all. Paths such as
    ``{ENV_REGEX_NS}/Robot/base`` or ``/World/ground`` are accepted; ``/World`` means everything."""
    labels: str | tuple[str, ...] | None = None
    """Semantic labels (patterns) to include; None includes all. Labels come from ``Scene(semantics=...)`` or the
    shapes."""
    exclude: str | ObjRef | tuple[str | ObjRef, ...] = ()
    """Names, patterns or paths of geoms or bodies to exclude."""
    exclude_parent_body: bool = True
    """Whether to exclude the shapes of the body that carries the sensor. Shapes of the world are never excluded."""
    exclude_own_links: bool = True
    """Whether to exclude also the other links of the sensor's robot, the bodies of the same kinematic tree. They are
    included with False, with ``exclude_parent_body=False``, and if `targets` or `labels` select them."""

    @field_validator("include_geom_groups")
    @classmethod
    def _groups(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not (value and all(0 <= group <= 5 for group in value)):
            raise bad("geom groups from 0 to 5", "Give None to derive the groups from `geometry`.")
        return value

    @field_validator("targets", "labels")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if value in ((), ""):
            raise bad("at least one name", "Give None to include all.")
        return value

    @property
    def seen(self) -> Targets:
        """The selection of shapes."""
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
        """Whether no knob or stage can make measured values differ from true ones."""
        return self.first_imperfection is None

    @property
    def first_imperfection(self) -> str | None:
        """Name of the first knob or stage that can make measured values differ from true ones, or None."""
        knobs = ("noise", "noise_density", "bias", "random_walk", "random_walk_density", "resolution")
        return next((knob for knob in knobs if getattr(self, knob) is not None), "stages" if self.stages else None)

    def refuse_idle_knobs(self, where: str, *fields: str) -> None:
        """Raise as a validator does if none of the fields is computed on which a given knob or stage acts."""
        knob = self.first_imperfection
        if knob == "stages" and not any(stage.on_values for stage in self.stages):  # such as the error of a clock
            return
        if knob is not None and not {*fields} & {*self.selected}:
            raise bad(f"{knob}: no such option while {where}", f"Omit it; it acts on {fields[0]}.")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the names as a tuple; a single name gives a tuple of one."""
    return value if isinstance(value, tuple) else (value,)
