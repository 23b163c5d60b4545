"""Config base of taxel sensors: probes on a link, each a ball, and their layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, model_validator

from sensorium.cfg import Float, NonNegative, ObjRef, Vec3, as_plain, bad, in_unit, must, numbers_in
from sensorium.geometry.samples import MAX_SAMPLES
from sensorium.sensors.frames.targets_cfg import TargetsCfg
from sensorium.shapes.scene import Geometry
from sensorium.spec import Field

DataT = TypeVar("DataT")
Line = tuple[Vec3, ...]
Places = Line | tuple[Line, ...]
FILLER = "Use 0 for a probe that always reads 0."


def checked_places(value: Any) -> Any:
    """Return the positions of probes in an accepted form: a list `[probe, 3]`, or a grid `[row, column, 3]`.

    Raises:
        ValueError: another shape, or a number that is not finite.
    """
    try:
        places = numbers_in(value)
    except ValueError:
        places = np.zeros(0)
    if places.ndim not in (2, 3) or places.shape[-1] != 3 or not places.size:
        raise bad("[probe, 3] or [row, column, 3] with at least one probe", "Give all rows of a grid the same length.")
    if not np.isfinite(places).all():
        raise bad("finite positions, m")
    return value


def checked_normals(value: Any) -> Any:
    """Return normals in an accepted form: one, or one per probe in a list or a grid.

    Raises:
        ValueError: a normal of length 0, or a number that is not finite.
    """
    try:
        normals = numbers_in(value)
    except ValueError:
        normals = np.zeros(0)
    if normals.ndim not in (1, 2, 3) or normals.shape[-1:] != (3,) or not np.isfinite(normals).all():
        raise bad("three finite numbers, or three for each probe")
    short = np.flatnonzero(np.linalg.norm(normals.reshape(-1, 3), axis=1) < 1e-12)
    if short.size:
        which = "" if normals.ndim == 1 else f" {int(short[0])}"
        raise bad("directions that are not zero", f"Normal{which} has length 0.")
    return value


Placed = Annotated[Places, BeforeValidator(checked_places)]
Directed = Annotated[Vec3 | Places, AfterValidator(checked_normals)]
Radii = Annotated[
    Float | tuple[Float, ...],
    must(lambda radii: all(0.0 <= r < math.inf for r in np.atleast_1d(radii)), "finite radii >= 0, m", FILLER),
    must(np.any, "at least one radius above 0, m"),
]
Resisting = Annotated[
    Float,
    must(
        lambda number: 0.0 <= number < math.inf,
        "a finite number >= 0",
        "Give 0 or more; a negative number would drive the motion.",
    ),
]
SampleCount = Annotated[
    int, must(lambda count: 1 <= count <= MAX_SAMPLES, f"a number of points from 1 to {MAX_SAMPLES}")
]


class ProbesCfg(TargetsCfg[DataT], Generic[DataT]):
    """Probes on a body, in a list or a grid; derived classes define their radii, `probe_radius`."""

    probe_radius: Any

    probe_local_pos: Annotated[Placed, in_unit("m")] = ((0.0, 0.0, 0.0),)
    """Positions of the probes in the frame of the sensor or link, m: a list `[probe, 3]`, or a grid `[row, column, 3]`.
    The readings keep this layout."""

    def __init__(self, /, **data: Any) -> None:
        for name in ("probe_local_pos", "probe_local_normal", "probe_radius", "lookup"):
            if name in data:
                data[name] = as_plain(data[name])
        super().__init__(**data)

    @model_validator(mode="after")
    def _fitting(self) -> Any:
        radii = self.probe_radius
        if isinstance(radii, tuple) and len(radii) != self.num_probes:
            raise bad(f"probe_radius: one number, or {self.num_probes}, one for each probe; not {len(radii)}")
        return self

    @property
    def layout(self) -> tuple[int, ...]:
        """Sizes of the axes of probes."""
        return np.array(self.probe_local_pos).shape[:-1]

    @property
    def num_probes(self) -> int:
        """Number of probes of one mount."""
        return int(np.prod(self.layout))

    @property
    def places(self) -> NDArray[np.float64]:
        """Positions of the probes `[probe, 3]`, m."""
        return np.array(self.probe_local_pos, dtype=np.float64).reshape(-1, 3)

    @property
    def radii(self) -> NDArray[np.float64]:
        """Radius of each probe `[probe]`, m."""
        return np.broadcast_to(np.array(self.probe_radius, dtype=np.float64), self.num_probes).copy()


class TaxelCfg(ProbesCfg[DataT], Generic[DataT]):
    """Probes on a link. They sense every shape that is not part of the link, whether it has contacts or not.

    Sensed meshes must be closed, since an open mesh has no inside. ``geometry="collision"`` omits visual-only meshes.
    """

    entity_name: str = "robot"
    """Entity that carries the link: the part of full names before ``/``, which the model must have. The default has no
    effect in a model without an entity of that name, and none has one for a `link_name` that is a full name."""
    geometry: Geometry = "any"
    """Sensed shapes: ``"any"`` (every shape), ``"collision"`` (those with contacts), ``"visual"`` (visible, in geom
    groups 0 to 2) or ``"all"`` (every visible shape)."""
    exclude_own_links: bool = False
    """Whether other links of the robot are excluded."""
    probe_radius: Annotated[Radii, in_unit("m")] = 0.01
    """Radius of a probe, m: one number, or one per probe, row by row. A probe of radius 0 fills a place of the layout
    and reads 0."""
    probe_radius_noise: Annotated[NonNegative, in_unit("m")] = 0.0
    """Amplitude of the error of a measured radius, m: R + U(-1, 1) times this, but not below 0, redrawn for each probe
    and sample. The truth uses the exact radius."""

    @property
    def selector(self) -> tuple[str, Any]:
        """The given selector; a link name is looked up within the entity."""
        kind, value = super().selector
        if kind not in ("link_name", "link_names"):
            return kind, value
        names = value if isinstance(value, tuple) else (value,)
        inside = tuple(
            ObjRef(type="body", name=name, entity=self.entity_name)
            if isinstance(name, str) and self.entity_name and "/" not in name and name != "world"
            else name
            for name in names
        )
        return kind, inside if isinstance(value, tuple) else inside[0]

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`."""
        return cls(body="body", probe_local_pos=((0.3, 0.0, 0.0), (0.0, 0.3, -0.1)), probe_radius=2.0)


class NormalTaxelCfg(TaxelCfg[DataT], Generic[DataT]):
    """Probes that have a normal."""

    probe_local_normal: Directed = (0.0, 0.0, 1.0)
    """Outward normal of the skin, in the link's frame: one for all probes, or one per probe in their layout; of any
    length but 0."""

    @model_validator(mode="after")
    def _one_normal_each(self) -> Any:
        unit_normals(self.probe_local_normal, self)
        return self


def unit_normals(value: Any, cfg: TaxelCfg[Any]) -> NDArray[np.float64]:
    """Return the unit normal of each probe `[probe, 3]`.

    Raises:
        ValueError: the number of normals is neither one nor that of the probes.
    """
    normals = np.array(value, dtype=np.float64)
    if normals.ndim > 1 and normals.shape[:-1] != cfg.layout:
        got = " x ".join(map(str, normals.shape[:-1]))
        raise bad(f"probe_local_normal: one, or one for each of {cfg.num_probes} probes in their layout, not {got}")
    rows = np.broadcast_to(normals.reshape(-1, 3), (cfg.num_probes, 3))
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def laid_out(declared: Mapping[str, Field], layout: tuple[int, ...]) -> dict[str, Field]:
    """Return fields with the axes of the probes in front."""
    axes = ("probe",) if len(layout) == 1 else ("row", "column")
    return {
        name: replace(field, shape=(*layout, *field.shape), axes=(*axes, *(("xyz",) if field.shape else ())))
        for name, field in declared.items()
    }
