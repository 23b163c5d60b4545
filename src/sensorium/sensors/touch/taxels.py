"""Common base of taxel sensors: probes on a link, each a ball, the solids around them, and their layout.

Axes: ``[env, mount, probe]`` for a list of probes, ``[env, mount, row, column]`` for a grid.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import warp as wp

from sensorium.cfg import ObjRef
from sensorium.compute import Memory, Rows, kernel, masked_tid, recorded, sample_uniforms
from sensorium.errors import ConfigError, Fault, SelectionError, SensoriumWarning, listed, nearest
from sensorium.geometry.bounds import in_world, local_box
from sensorium.geometry.samples import MAX_SAMPLES
from sensorium.geometry.transforms import rotation
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import Sensor, SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.touch.taxel_cfg import TaxelCfg, laid_out, unit_normals
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement
from sensorium.world.select import Named

BLOCK = 64
"""Probes of one CPU thread."""
HOST_BYTES_PER_POINT = 1000
"""Temporary host memory per surface point while it is created, bytes (970 were measured)."""


def check_points(memory: Memory, spacing: float | None, count: int, area: float, config: str) -> None:
    """Raise `ConfigError` if there are too many points on surfaces, or they take more memory than available.

    Args:
        memory: what may be allocated.
        spacing: `sample_spacing` of a config, m.
        count: `n_sample_points` of the config, used without a spacing.
        area: area of all surfaces, m^2.
        config: the config, for messages.
    """
    points, where = (count, "n_sample_points") if spacing is None else (area / spacing**2, "sample_spacing")
    if points <= MAX_SAMPLES:
        memory.check(points * HOST_BYTES_PER_POINT, where, count if spacing is None else spacing, config)
    if spacing is not None and area / spacing**2 > MAX_SAMPLES:
        expected = f"at most {MAX_SAMPLES} points, not {area / spacing**2:.3g}, on surfaces of {area:.3g} m^2"
        raise ConfigError.single(config, "sample_spacing", spacing, expected, "Give the spacing in metres.")


@wp.struct
class Skin:
    """The probes, for kernels.

    Attributes:
        points: positions, m, in the mount's frame.
        normals: unit normals.
        radius: m.
        centre: centre of a ball around the positions, m, in the mount's frame.
        span: radius of that ball, m.
        reach: largest sensing distance of a probe, m.
        noise: amplitude of the radius error of measured readings, m.
        key0: of the random stream.
        key1: of the random stream.
    """

    points: wp.array[wp.vec3]
    normals: wp.array[wp.vec3]
    radius: wp.array[wp.float32]
    centre: wp.vec3
    span: wp.float32
    reach: wp.float32
    noise: wp.float32
    key0: wp.uint32
    key1: wp.uint32


@wp.func
def drawn_radius(
    rows: Rows, env: int, element: int, radius: float, noise: float, key0: wp.uint32, key1: wp.uint32
) -> wp.float32:
    """Return the radius of a measured reading, m: R + U(-1, 1) noise, not below 0; 0 for a probe without radius."""
    if radius == 0.0:
        return 0.0
    draws = sample_uniforms(rows, env, wp.uint32(element), key0, key1)
    return wp.max(radius + (2.0 * draws[0] - 1.0) * noise, 0.0)


@kernel
def _clear_fillers(rows: Rows, radius_in: wp.array[wp.float32], values: wp.array4d[wp.float32]) -> None:
    env, mount, probe = masked_tid(rows)
    if radius_in[probe] == 0.0:
        for k in range(values.shape[3]):
            values[env, mount, probe, k] = 0.0


class Taxels:
    """The probes of one sensor in the form that its kernels need, and the solids around them.

    Args:
        sensor: the sensor whose config has the probes; its mounts carry them.
        with_motion: whether velocities are needed; the sensor then requires BODY_VELOCITY.
        with_inside: whether signed distances are needed; otherwise meshes may be open.
        reach: distance from a probe within which shapes matter, m, if more than its radius.

    Raises:
        SelectionError: no shape is selected.
        ConfigError: a selected shape has no known surface.
        ModelError: a selected mesh is not closed.

    Warns:
        UserWarning: a probe is farther outside its link than the size of the link.
    """

    def __init__(
        self, sensor: Sensor[Any, Any], *, with_motion: bool = False, with_inside: bool = True, reach: float = 0.0
    ) -> None:
        cfg, mount = sensor.cfg, sensor.mount
        assert isinstance(cfg, TaxelCfg) and mount is not None
        self._sensor, self.cfg, self._mount = sensor, cfg, mount
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
        normals = unit_normals(getattr(cfg, "probe_local_normal", (0.0, 0.0, 1.0)), cfg)
        self.normals = torch.tensor(normals, dtype=torch.float32, device=device)
        self._warn_of_distant()

    def _warn_of_distant(self) -> None:
        """Warn of probes that are farther outside their link than its size."""
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
                if shape.is_static:  # its pose is given in the world
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
                    f"{self.cfg.title}: probe_local_pos: {far.size} of {len(places)} probes are outside "
                    f"{self._mount.body_names[mount]!r} by more than its size of {size:.3g} m; probe {worst} is "
                    f"{gap[worst]:.3g} m away from it. Give positions in metres, in the frame of the mount.",
                    SensoriumWarning,
                    stacklevel=2,
                )

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Sizes of env, mount and probe."""
        return self._sensor.num_envs, self._mount.count, self.cfg.num_probes

    @property
    def block(self) -> int:
        """Probes that one thread processes in sequence: on the CPU a thread costs more than one probe."""
        return BLOCK if self._sensor.device.startswith("cpu") else 1

    @property
    def items(self) -> tuple[int, int]:
        """Items of a launch over mounts and blocks of probes."""
        return self._mount.count, -(-self.shape[2] // self.block)

    @cached_property
    def skin(self) -> Any:
        """The probes for kernels: a `Skin`."""
        cfg, skin, centre = self.cfg, Skin(), 0.5 * (self.cfg.places.min(axis=0) + self.cfg.places.max(axis=0))
        skin.points, skin.normals = (wp.from_torch(each, dtype=wp.vec3) for each in (self.points, self.normals))
        skin.radius = wp.from_torch(self.radius, dtype=wp.float32)
        skin.centre = wp.vec3(*centre)
        skin.span = float(np.linalg.norm(cfg.places - centre, axis=1).max()) * (1.0 + 1e-5) + 1e-6
        skin.reach = float(cfg.radii.max()) + cfg.probe_radius_noise
        skin.noise = cfg.probe_radius_noise
        skin.key0, skin.key1 = (wp.uint32(word) for word in self._sensor.stream("probe_radius"))
        return skin

    def clear_fillers(self, tensor: torch.Tensor) -> None:
        """Set a field `[env, mount, ...]` to 0 for probes without radius, which removes noise added there."""
        values = tensor.view(*self.shape, -1)
        self._sensor.compute_on.launch(_clear_fillers, self.shape[1:], [self.radius], [values])

    def scalars(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """Return a field `[env, mount, ...]` of one number per probe for a kernel; None is an empty array."""
        return None if tensor is None else tensor.view(self.shape)

    def vectors(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """Return a field `[env, mount, ..., 3]` of one vector per probe for a kernel; None is an empty array."""
        return None if tensor is None else tensor.view(*self.shape, 3)


TaxelCfgT = TypeVar("TaxelCfgT", bound=TaxelCfg[Any])
TaxelDataT = TypeVar("TaxelDataT")


class TaxelSensor(SimpleSensor[TaxelCfgT, TaxelDataT], Generic[TaxelCfgT, TaxelDataT]):
    """Sensor of probes on a link: `compute_readings` computes their readings, for the true and for the drawn radii.

    A subclass gives its config and data types, as for `SimpleSensor`.
    """

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True
    with_motion: ClassVar[bool] = False
    """Whether velocities are needed; the sensor then requires BODY_VELOCITY."""
    with_inside: ClassVar[bool] = True
    """Whether signed distances are needed, so that meshes must be closed."""

    @classmethod
    def needs(cls, cfg: TaxelCfgT, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return `requires`.

        Raises:
            SelectionError: the config gives an entity that the model lacks.
        """
        entity, (_, links) = cfg.entity_name, cfg.selector
        links = links if isinstance(links, tuple) else (links,)
        is_used = any(isinstance(link, ObjRef) and link.entity == entity for link in links)
        known = dict.fromkeys(name.partition("/")[0] for name in names.names("body") if "/" in name)
        if is_used and entity not in (*known, type(cfg).model_fields["entity_name"].default):
            fix = f"{nearest(entity, known)} Entities of this model: {listed(known)}.".strip()
            raise SelectionError(cfg.title, [Fault("entity_name", repr(entity), "an entity of the model", fix)])
        return super().needs(cfg, names, supports)

    def fields(self) -> Mapping[str, Field]:
        """Return the fields in the layout of the probes."""
        return laid_out(super().fields(), self.cfg.layout)

    def setup(self) -> None:
        """Collect probes and the shapes around them."""
        self._make_taxels()

    def _make_taxels(self, reach: float = 0.0) -> None:
        self._taxels = Taxels(self, with_motion=self.with_motion, with_inside=self.with_inside, reach=reach)
        self.buffers.body_at_fault = self._taxels.query.body_at_fault

    def _put(self, law: Any, fields: Mapping[str, str]) -> None:
        """Write config numbers that can be set per env into a struct, by member name -> field name."""
        for name, field in fields.items():
            setattr(law, name, wp.from_torch(self.params.table(field), dtype=wp.float32))

    def _wrenches(self, raw: Record, slot: Record | None) -> list[Any]:
        """Return the forces and torques of two records for a kernel; empty arrays for None."""
        given = [raw.force, raw.torque, *((slot.force, slot.torque) if slot else (None, None))]
        return [self._taxels.vectors(each) for each in given]

    @property
    def num_probes(self) -> int:
        """Probes of one mount."""
        return self.cfg.num_probes

    @property
    def probe_local_pos(self) -> torch.Tensor:
        """Positions of the probes `[probe, 3]`, m, in the link's frame."""
        return self._taxels.points

    @property
    def probe_local_normal(self) -> torch.Tensor:
        """Unit normals of the probes `[probe, 3]`, in the link's frame."""
        return self._taxels.normals

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return super().nbytes + self._taxels.query.nbytes

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Find nearby shapes, and compute the readings (one launch, and those of `compute_readings`)."""
        self._taxels.query.place()
        self.compute_readings(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.probe_radius_noise != 0.0)  # otherwise only later steps change the measured reading
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Compute the readings for the true radius and the drawn one; the surroundings are found only once."""
        self._taxels.query.place()
        self.compute_readings(raw, slot)

    def compute_readings(self, raw: Record, slot: Record | None) -> None:
        """Write the truth into `raw` and, if given, the reading of the drawn radii into `slot` (launches)."""
        raise NotImplementedError(f"{type(self).__name__} must define compute_readings(self, raw, slot)")

    @recorded
    @used_if(lambda self: not (self.cfg.is_clean or self.cfg.radii.all()))
    def derive_measured(self, slot: Record) -> None:
        """Set probes without a radius to 0, which removes noise added there."""
        for name in slot:
            self._taxels.clear_fillers(slot[name])
