"""What every taxel sensor has: probes on a link, each a ball, the solids they meet, and their layout.

Axes: ``[env, mount, probe]`` for a list of probes, ``[env, mount, row, column]`` for a grid.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from sensorium.cfg import Float, ObjRef, Vec3, as_plain, bad, numbers_in
from sensorium.compute import Memory, Rows, kernel, recorded, sample_uniforms
from sensorium.errors import ConfigError, SensoriumWarning
from sensorium.geometry.bounds import in_world, local_box
from sensorium.geometry.samples import MOST_SAMPLES
from sensorium.geometry.transforms import quat_apply, rotation
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import Sensor, SimpleSensor
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.frames.targets_cfg import TargetsCfg
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement
from sensorium.world.ray_scene import Geometry

BLOCK = 64
"""Probes of one CPU thread."""
DataT = TypeVar("DataT")
Line = tuple[Vec3, ...]
Places = Line | tuple[Line, ...]


class TaxelCfg(TargetsCfg[DataT], Generic[DataT]):
    """Probes on a link. They feel every shape that is not the link's own, whether it takes part in contacts or not.

    Meshes that are felt must be closed, for only then is there an inside. ``geometry="collision"`` leaves out those
    that are only looked at.
    """

    entity_name: str = "robot"
    """Entity that carries the link: the part of full names before ``/``. In a model without such an entity, and for a
    `link_name` that is a full name itself, it says nothing."""
    geometry: Geometry = "any"
    """Which shapes are felt: ``"any"`` (every shape), ``"collision"`` (those that take part in contacts), ``"visual"``
    (visible, of geom groups 0 to 2) or ``"all"`` (every visible shape)."""
    exclude_own_links: bool = False
    """Whether other links of the robot are not felt."""
    probe_local_pos: Places = ((0.0, 0.0, 0.0),)
    """Places of the probes in the link's frame, m: a list `[probe, 3]`, or a grid `[row, column, 3]`, whose layout
    readings keep."""
    probe_radius: Float | tuple[Float, ...] = 0.01
    """Radius of a probe, m: one number, or one per probe, row by row. A probe of radius 0 fills a place of the layout
    and reads 0."""
    probe_radius_noise: Float = 0.0
    """How far the radius of a measured reading is off, m: R + U(-1, 1) times this, but not below 0, drawn anew for each
    probe and sample. The truth knows the radius itself."""

    def __init__(self, /, **data: Any) -> None:
        for name in ("probe_local_pos", "probe_local_normal", "probe_radius"):
            if name in data:
                data[name] = as_plain(data[name])
        super().__init__(**data)

    @property
    def selector(self) -> tuple[str, Any]:
        """The selector that was given; a link's name is looked for in the entity."""
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

    @field_validator("probe_local_pos", mode="before")
    @classmethod
    def _placed(cls, value: Any) -> Any:
        return checked_places(value)

    @field_validator("probe_radius")
    @classmethod
    def _round(cls, value: Any) -> Any:
        radii = np.atleast_1d(np.array(value, dtype=np.float64))
        if not (np.isfinite(radii) & (radii >= 0.0)).all():
            raise bad("finite radii from 0 up, m", "A probe of radius 0 reads 0.")
        if not radii.any():
            raise bad("at least one radius above 0, m")
        return value

    @field_validator("probe_radius_noise")
    @classmethod
    def _not_negative(cls, value: float) -> float:
        if not 0.0 <= value < float("inf"):
            raise bad("a finite number from 0 up, m")
        return value

    @model_validator(mode="after")
    def _fitting(self) -> Any:
        radii = np.atleast_1d(np.array(self.probe_radius, dtype=np.float64))
        if isinstance(self.probe_radius, tuple) and len(radii) != self.num_probes:
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
        """Places of the probes `[probe, 3]`, m, in the link's frame."""
        return np.array(self.probe_local_pos, dtype=np.float64).reshape(-1, 3)

    @property
    def radii(self) -> NDArray[np.float64]:
        """Radius of each probe `[probe]`, m."""
        return np.broadcast_to(np.array(self.probe_radius, dtype=np.float64), self.num_probes).copy()


def checked_places(value: Any) -> Any:
    """Return what was given as places of probes: a list `[probe, 3]`, or a grid `[row, column, 3]`.

    Raises:
        ValueError: it has another shape, or is not finite.
    """
    try:
        places = numbers_in(value)
    except ValueError:
        places = np.zeros(0)
    if places.ndim not in (2, 3) or places.shape[-1] != 3 or not places.size:
        raise bad("[probe, 3] or [row, column, 3] with at least one probe", "Rows of a grid have one length.")
    if not np.isfinite(places).all():
        raise bad("finite places, m")
    return value


def checked_normals(value: Any) -> Any:
    """Return what was given as normals: one, or one per probe in a list or a grid.

    Raises:
        ValueError: one has no length, or is not finite.
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
        raise bad("directions that are not zero", f"Normal{which} has no length.")
    return value


def unit_normals(value: Any, cfg: TaxelCfg[Any]) -> NDArray[np.float64]:
    """Return the unit normal of each probe `[probe, 3]`.

    Raises:
        ValueError: there are neither one nor as many as probes.
    """
    normals = np.array(value, dtype=np.float64)
    if normals.ndim > 1 and normals.shape[:-1] != cfg.layout:
        got = " x ".join(map(str, normals.shape[:-1]))
        raise bad(f"probe_local_normal: one, or one for each of {cfg.num_probes} probes in their layout, not {got}")
    rows = np.broadcast_to(normals.reshape(-1, 3), (cfg.num_probes, 3))
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def laid_out(declared: Mapping[str, Field], layout: tuple[int, ...]) -> dict[str, Field]:
    """Return fields with the axes of the probes before their own."""
    axes = ("probe",) if len(layout) == 1 else ("row", "column")
    return {
        name: replace(field, shape=(*layout, *field.shape), axes=(*axes, *(("xyz",) if field.shape else ())))
        for name, field in declared.items()
    }


HOST_BYTES_PER_POINT = 1000
"""Host memory that a point on a surface takes for a moment while it is made, bytes (970 were measured)."""


def check_points(memory: Memory, spacing: float | None, count: int, area: float, config: str) -> None:
    """Raise `ConfigError` where points on surfaces are too many, or take more memory than is available.

    Args:
        memory: what may be allocated.
        spacing: `sample_spacing` of a config, m.
        count: `n_sample_points` of it, which counts without a spacing.
        area: of all surfaces, m^2.
        config: for messages.
    """
    points, where = (count, "n_sample_points") if spacing is None else (area / spacing**2, "sample_spacing")
    if points <= MOST_SAMPLES:
        memory.check(points * HOST_BYTES_PER_POINT, where, count if spacing is None else spacing, config)
    if spacing is not None and area / spacing**2 > MOST_SAMPLES:
        expected = f"at most {MOST_SAMPLES} points, not {area / spacing**2:.3g}, on surfaces of {area:.3g} m^2"
        raise ConfigError.single(config, "sample_spacing", spacing, expected, "It is in metres.")


@wp.func
def drawn_radius(
    rows: Rows, env: int, element: int, radius: float, noise: float, key0: wp.uint32, key1: wp.uint32
) -> wp.float32:
    """Return the radius of a measured reading, m: R + U(-1, 1) noise, not below 0; a probe without radius has none."""
    if radius == 0.0:
        return 0.0
    draws = sample_uniforms(rows, env, wp.uint32(element), key0, key1)
    return wp.max(radius + (2.0 * draws[0] - 1.0) * noise, 0.0)


@kernel
def _clear_fillers(rows: Rows, radius_in: wp.array[wp.float32], values: wp.array4d[wp.float32]) -> None:
    i, mount, probe = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0) and radius_in[probe] == 0.0:
        for k in range(values.shape[3]):
            values[env, mount, probe, k] = 0.0


class Taxels:
    """The probes of one sensor as its kernels need them, and the solids around them.

    Args:
        sensor: whose config has the probes; its mounts carry them.
        with_motion: whether velocities are needed; then the sensor requires BODY_VELOCITY.
        with_inside: whether signed distances are; else meshes may be open.
        reach: how far from a probe shapes matter, m, where that is more than its radius.

    Raises:
        SelectionError: nothing is selected.
        ConfigError: a shape that is selected has no surface that we know.
        ModelError: a mesh that is selected is not closed.

    Warns:
        UserWarning: a probe is farther outside its link than the link is large.
    """

    def __init__(
        self, sensor: Sensor[Any, Any], *, with_motion: bool = False, with_inside: bool = True, reach: float = 0.0
    ) -> None:
        cfg, mount = sensor.cfg, sensor.mount
        assert isinstance(cfg, TaxelCfg) and mount is not None
        self._sensor, self.cfg, self._mount = sensor, cfg, mount
        self.config = f"{type(cfg).__name__}({cfg.label!r})"
        """For messages."""
        self.query = sensor.solids(
            points=cfg.places,
            reach=np.maximum(cfg.radii + cfg.probe_radius_noise, reach),
            with_motion=with_motion,
            with_inside=with_inside,
            targets=cfg.seen,
        )
        device = sensor.device
        self.points = torch.tensor(cfg.places, dtype=torch.float32, device=device)
        self.radius = torch.tensor(cfg.radii, dtype=torch.float32, device=device)
        self._warn_of_distant()

    def _warn_of_distant(self) -> None:
        """Warn of probes that are farther outside their link than it is large."""
        shapes = self._sensor.rays.shapes
        for mount in range(self._mount.count):
            body = int(self._mount.body[mount])
            own = [shape for shape in shapes if shape.row == body and shape.kind != "plane"] if body >= 0 else []
            if not own:
                continue
            corners = []
            for shape in own:
                centre, half = local_box(shape)
                signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
                places = in_world(shape, centre + signs * half)
                if shape.is_static:  # its place is given in the world
                    at, turn = (self._sensor.engine.array(f"body_{name}_w")[0, body] for name in ("pos", "quat"))
                    places = (places - at.double().cpu().numpy()) @ rotation(turn.tolist())
                corners.append(places)
            low, high = np.concatenate(corners).min(axis=0), np.concatenate(corners).max(axis=0)
            pos, quat = (each[0, mount].tolist() for each in (self._mount.offset_pos, self._mount.offset_quat))
            places = self.cfg.places @ rotation(quat).T + np.array(pos)
            gap = np.linalg.norm(np.maximum(0.0, np.maximum(low - places, places - high)), axis=1)
            size = float(np.linalg.norm(high - low))
            far = np.flatnonzero(gap > size)
            if far.size:
                worst = int(far[np.argmax(gap[far])])
                warnings.warn(
                    f"{self.config}: probe_local_pos: {far.size} of {len(places)} probes are outside "
                    f"{self._mount.body_names[mount]!r} by more than its size of {size:.3g} m; probe {worst} is "
                    f"{gap[worst]:.3g} m away from it. Places are in metres, in the frame of the mount.",
                    SensoriumWarning,
                    stacklevel=2,
                )

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Sizes of env, mount and probe."""
        return self._sensor.num_envs, self._mount.count, self.cfg.num_probes

    @property
    def block(self) -> int:
        """Probes that one thread does after each other: on the CPU a thread costs more than what it does for one."""
        return BLOCK if self._sensor.device.startswith("cpu") else 1

    @property
    def items(self) -> tuple[int, int]:
        """Items of a launch over mounts and blocks of probes."""
        return self._mount.count, -(-self.shape[2] // self.block)

    @cached_property
    def key(self) -> tuple[int, int]:
        """Key of the random stream of radii."""
        return self._sensor.stream("probe_radius")

    @property
    def points_w(self) -> torch.Tensor:
        """Where the probes are now `[env, mount, probe, 3]`, m, world; the sensor requires BODY_POSE."""
        turned = quat_apply(self._mount.quat_w[:, :, None], self.points.expand(*self.shape, 3))
        return turned + self._mount.pos_w[:, :, None]

    def clear_fillers(self, tensor: torch.Tensor) -> None:
        """Set a field `[env, mount, ...]` to 0 where the probe has no radius, whatever noise was added there."""
        values = wp.from_torch(tensor.view(*self.shape, -1), dtype=wp.float32)
        inputs = [wp.from_torch(self.radius, dtype=wp.float32)]
        self._sensor.compute_on.launch(_clear_fillers, self.shape[1:], inputs, [values])

    def scalars(self, tensor: torch.Tensor | None) -> wp.array3d[wp.float32]:
        """Return a field `[env, mount, ...]` of one number per probe for a kernel; None is an empty array."""
        if tensor is None:
            return wp.zeros((0, 0, 0), dtype=wp.float32, device=self._sensor.device)
        return wp.from_torch(tensor.view(self.shape), dtype=wp.float32)

    def vectors(self, tensor: torch.Tensor | None) -> wp.array3d[wp.vec3]:
        """Return a field `[env, mount, ..., 3]` of one vector per probe for a kernel; None is an empty array."""
        if tensor is None:
            return wp.zeros((0, 0, 0), dtype=wp.vec3, device=self._sensor.device)
        return wp.from_torch(tensor.view(*self.shape, 3), dtype=wp.vec3)


TaxelCfgT = TypeVar("TaxelCfgT", bound=TaxelCfg[Any])
TaxelDataT = TypeVar("TaxelDataT")


class TaxelSensor(SimpleSensor[TaxelCfgT, TaxelDataT], Generic[TaxelCfgT, TaxelDataT]):
    """A sensor of probes on a link: what they feel is written by `feel`, for the true radii and for those drawn.

    A class derives from it with its config and data, as from `SimpleSensor`.
    """

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True
    with_motion: ClassVar[bool] = False
    """Whether it needs velocities; then it requires BODY_VELOCITY."""
    with_inside: ClassVar[bool] = True
    """Whether it needs signed distances, so that meshes must be closed."""

    def fields(self) -> Mapping[str, Field]:
        """Return the fields in the layout of the probes."""
        return laid_out(super().fields(), self.cfg.layout)

    def setup(self) -> None:
        """Gather probes and the shapes that they feel."""
        self._make_taxels()

    def _make_taxels(self, reach: float = 0.0) -> None:
        self._taxels = Taxels(self, with_motion=self.with_motion, with_inside=self.with_inside, reach=reach)
        self.buffers.body_at_fault = self._taxels.query.body_at_fault
        normals = unit_normals(getattr(self.cfg, "probe_local_normal", (0.0, 0.0, 1.0)), self.cfg)
        self._normals = torch.tensor(normals, dtype=torch.float32, device=self.device)

    @property
    def num_probes(self) -> int:
        """Probes of one mount."""
        return self.cfg.num_probes

    @property
    def probe_local_pos(self) -> torch.Tensor:
        """Places of the probes `[probe, 3]`, m, in the link's frame."""
        return self._taxels.points

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return super().nbytes + self._taxels.query.nbytes

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Find what is near, and feel it (a launch, and those of `feel`)."""
        self._taxels.query.place()
        self.feel(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.probe_radius_noise != 0.0)  # else the measured reading differs by what comes after
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Feel once, with the true radius and with the one drawn: what differs is how deep, not how far."""
        self._taxels.query.place()
        self.feel(raw, slot)

    def feel(self, raw: Record, slot: Record | None) -> None:
        """Write the truth into `raw` and, where there is one, the reading of the drawn radii into `slot` (launches)."""
        raise NotImplementedError(f"{type(self).__name__} must define feel(self, raw, slot)")

    @recorded
    @used_if(lambda self: not (self.cfg.is_clean or self.cfg.radii.all()))
    def derive_measured(self, slot: Record) -> None:
        """Let probes without a radius read 0, whatever noise was added there."""
        for name in slot:
            self._taxels.clear_fillers(slot[name])


__all__ = [
    "Line",
    "Places",
    "TaxelCfg",
    "TaxelSensor",
    "Taxels",
    "check_points",
    "checked_normals",
    "checked_places",
    "drawn_radius",
    "laid_out",
    "unit_normals",
]
