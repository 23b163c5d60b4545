"""Surface distance probe: distance from points on a body to the nearest surface, in any direction.

Axes: ``[env, mount, probe]`` (no mount axis for a singular selector); a grid of probes has two axes instead of one.

A probe is at p + R b, with p and R the mount's pose and b its position in `probe_local_pos`. It reports the nearest
point of all selected surfaces, from outside or inside, at most `probe_radius` away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import warp as wp
from pydantic import AfterValidator, model_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded, sample_normals
from sensorium.measurement.record import Record, Timeline
from sensorium.random import normal_table
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.rays.ray_cfg import DistanceCfg
from sensorium.sensors.touch.taxel_cfg import Line, ProbesCfg, laid_out
from sensorium.shapes.surface_query import SurfaceQuery
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement


@dataclass(frozen=True, slots=True)
class SurfaceDistanceProbeData:
    """One sample of the probes; fields that the config does not select are None."""

    distance: Annotated[Tensor, Field("m", role="range")]
    """Distance from each probe to the nearest surface, m; +inf (or `no_hit_value`) if none is within reach."""
    nearest_points_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point", parity="polar")]
    """Nearest point of that surface, m; +inf if none is within reach. The measured point is derived from the measured
    distance, along the true direction."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Shape of that surface: row in the sensor's `geom_names`; -1 if none is within reach."""
    value: Annotated[Tensor, Field("1", kind="derived")]
    """Output of a device with the response `lookup`, in the unit of that table."""


FIELDS = ("distance", "nearest_points_w", "geom_ids", "value")


def _rising(value: Line) -> Line:
    table = np.array(value, dtype=np.float64)
    if len(table) < 2 or not np.isfinite(table).all():
        raise bad("at least two rows (distance, value, noise) of finite numbers")
    if (np.diff(table[:, 0]) <= 0.0).any():
        row = int(np.flatnonzero(np.diff(table[:, 0]) <= 0.0)[0])
        raise bad(f"rising distances; row {row + 1} has {table[row + 1, 0]:g} m after {table[row, 0]:g} m")
    if (table[:, 2] < 0.0).any():
        raise bad("noise >= 0, a standard deviation relative to the value")
    return value


Lookup = Annotated[Line, AfterValidator(_rising)]
Reach = Annotated[
    Float | tuple[Float, ...],
    must(lambda radii: all(0.0 < r < math.inf for r in np.atleast_1d(radii)), "finite radii above 0, m"),
]


class SurfaceDistanceProbeCfg(ProbesCfg[SurfaceDistanceProbeData], DistanceCfg[SurfaceDistanceProbeData]):
    """Configuration of surface distance probes. Knobs such as `noise` act on the distances, m; points are derived."""

    probe_radius: Annotated[Reach, in_unit("m")] = 0.5
    """Largest distance that a probe measures, m: one number, or one per probe, row by row."""
    fields: tuple[str, ...] | Literal["all"] = ("distance", "nearest_points_w")
    """Computed fields; ``"all"`` adds the shape and, with a `lookup`, the device's value."""
    misses_at_radius: bool = False
    """Whether a probe without a surface in reach shows its radius as distance and its own position as nearest point."""
    lookup: Annotated[Lookup | None, in_unit("m")] = None
    """Response of a device: rows (distance, value, noise) with rising distances, m. Values are interpolated, and
    constant beyond the ends. Noise is white, with a standard deviation relative to the value (0.1 is 10 %), as in
    Webots' DistanceSensor, whose tables can be used unchanged. It provides the field `value`."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            if data.get("lookup") is not None and "fields" not in data:
                data["fields"] = (*type(self).model_fields["fields"].default, "value")
            super().__init__(**data)

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`."""
        return cls(body="body", probe_local_pos=((0.1, 0.0, 0.0), (0.0, 0.2, -0.1)), probe_radius=3.0)

    selectable: ClassVar[tuple[str, ...]] = FIELDS

    @model_validator(mode="after")
    def _consistent(self) -> Any:
        if not (self.radii > self.min_distance).all():
            raise bad(f"probe_radius: above min_distance = {self.min_distance:g} m")
        if self.misses_at_radius and self.no_hit_value is not None:
            raise bad("misses_at_radius, no_hit_value: one of the two")
        if self.lookup is None and not isinstance(self.fields, str) and "value" in self.fields:
            raise bad("lookup: a table for the field value", "Give lookup=((distance, value, noise), ...).")
        self.refuse_idle_knobs("distance is not in fields", "distance")
        return self

    @property
    def replaces_misses(self) -> bool:
        """Whether a miss shows a value other than +inf."""
        return self.misses_at_radius or self.no_hit_value is not None

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of the data class; ``"all"`` includes value only with a `lookup`."""
        return tuple(name for name in super().selected if name != "value" or self.lookup is not None)


@kernel
def _respond(
    rows: Rows,
    key0: wp.uint32,
    key1: wp.uint32,
    normals: wp.array[wp.vec3],
    is_noisy: int,
    lookup: wp.array[wp.vec3],
    distance_in: wp.array3d[wp.float32],
    value_out: wp.array3d[wp.float32],
) -> None:
    env, mount, probe = masked_tid(rows)
    x = distance_in[env, mount, probe]
    last = lookup.shape[0] - 1
    row = lookup[0]
    if x >= lookup[last][0]:
        row = lookup[last]
    elif x > row[0]:
        k = wp.int32(0)
        while lookup[k + 1][0] < x:
            k += 1
        share = (x - lookup[k][0]) / (lookup[k + 1][0] - lookup[k][0])
        row = lookup[k] + share * (lookup[k + 1] - lookup[k])
    value = row[1]
    if is_noisy != 0 and row[2] > 0.0:
        element = wp.uint32(mount * distance_in.shape[2] + probe)
        z = sample_normals(rows, env, element, key0, key1, normals)
        value = value * (1.0 + row[2] * z[0])
    value_out[env, mount, probe] = value


class SurfaceDistanceProbe(SimpleSensor[SurfaceDistanceProbeCfg, SurfaceDistanceProbeData]):
    """Distances from points on a body to the nearest surfaces."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, in the layout of the probes."""
        return laid_out(super().fields(), self.cfg.layout)

    @property
    def _is_clean(self) -> bool:
        return self.cfg.is_clean and not any(noise for _, _, noise in self.cfg.lookup or ())

    def setup(self) -> None:
        """Select the shapes, and build their acceleration structures where needed."""
        cfg = self.cfg
        self._query = SurfaceQuery(
            self.query_context,
            points=cfg.probe_local_pos,
            reach=cfg.probe_radius,
            least=cfg.min_distance,
            targets=cfg.seen,
        )
        self.buffers.body_at_fault = self._query.body_at_fault
        self._shown = (None if cfg.misses_at_radius else cfg.miss, cfg.misses_at_radius)
        shape = (self.num_envs, self.mount.count, cfg.num_probes)
        self._distance = (
            None if "distance" in cfg.selected else torch.zeros(shape, dtype=torch.float32, device=self.device)
        )
        if cfg.lookup is not None:
            self._lookup = torch.tensor(cfg.lookup, dtype=torch.float32, device=self.device)

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene, indexed by `geom_ids`."""
        return tuple(shape.name for shape in self.rays.shapes)

    @property
    def num_probes(self) -> int:
        """Probes of one mount."""
        return self._query.count

    @property
    def nearest_points(self) -> Tensor:
        """True nearest points, `[env, mount, probe, 3]`, m, world, without noise; None if not selected."""
        points: Tensor = self.ground_truth.nearest_points_w
        return points

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return super().nbytes + self._query.nbytes

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Find the nearest surfaces (one launch, and one to place moving shapes)."""
        is_last, has_value = self.buffers.plan.hooks.fused is None, "value" in raw
        shown = self._shown if is_last and not has_value else (float("inf"), False)
        self._query.find(self._outputs(raw, with_own=True), *shown)
        if has_value:
            self._respond(raw, is_noisy=False)  # a miss counts as such, whatever number it shows
            if is_last and self.cfg.replaces_misses:
                self._query.show_misses(self._outputs(raw), self._outputs(raw), *self._shown)

    @recorded
    @used_if(lambda self: self.cfg.replaces_misses and not self._is_clean)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Find the nearest surfaces; true misses are final, measured ones stay infinite until noise is added."""
        self.update_raw_data(slot)
        if "value" in raw:
            self._respond(raw, is_noisy=False, of=slot)
        self._query.show_misses(self._outputs(slot), self._outputs(raw), *self._shown)

    def _outputs(self, record: Record, with_own: bool = False) -> dict[str, Tensor]:
        names = {"distance": "distance", "nearest_points_w": "point", "geom_ids": "shape"}
        outputs = {names[name]: record[name] for name in record if name in names}
        if with_own and self._distance is not None:
            outputs["distance"] = self._distance
        return outputs

    def _respond(self, record: Record, is_noisy: bool, of: Record | None = None) -> None:
        shape = (self.num_envs, self.mount.count, self.num_probes)
        source = record if of is None else of
        distance = source.distance if "distance" in source else self._distance
        assert distance is not None
        inputs = [
            *self.stream("lookup"),
            normal_table(self.device),
            int(is_noisy),
            self._lookup,
            distance.view(shape),
        ]
        self.compute_on.launch(_respond, shape[1:], inputs, [record.value.view(shape)])

    @recorded
    @used_if(lambda self: not self._is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Derive points and values from the clipped measured distances, and set misses to the configured value."""
        if "distance" in slot:
            self._query.follow(self._outputs(slot))
        if "value" in slot:
            self._respond(slot, is_noisy=True)
        if self.cfg.replaces_misses:
            self._query.show_misses(self._outputs(slot), self._outputs(slot), *self._shown)
