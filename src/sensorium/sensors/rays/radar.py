"""Radar: a cone of rays with distance and radial velocity of each hit, and the detections of the receiver.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector). The rays are redrawn for each sample; all mounts of
an environment have the same rays, each in its own frame. Azimuth is positive to the left, altitude upwards.

Velocity is the rate of change of the distance, d . (v_target - v_radar) with d the direction of the ray in the world.
Negative means approaching, as in CARLA's code (its documentation states the opposite). v_target is the velocity of the
hit point, v + w x r; v_radar is that of the radar's origin, including the lever arm on the body.

The measured branch models a radar with linear chirps of bandwidth B and length T_c, a frame of T_f and N channels half
a wavelength lambda apart (e.g. M. Richards, "Fundamentals of Radar Signal Processing", 2014):

    range cell c / (2 B)     velocity cell lambda / (2 T_f)     angle cell 2 / N rad
    maximum range f_s c T_c / (2 B)     velocities from -lambda / (4 T_c) to lambda / (4 T_c), others are aliased
    SNR = SNR_0 sigma |cos theta|^n (R_0 / R)^4     probability of detection p_fa^(1 / (1 + SNR)) (Swerling 1)
    standard deviation of range and velocity: cell / sqrt(2 SNR)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import Rays
from sensorium.random import normal_table
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.rays.radar_cfg import FIELDS, RadarCfg, RadarData
from sensorium.sensors.rays.radar_kernels import (
    AREA,
    CENTRAL,
    RadarModel,
    RadarMotion,
    RadarScan,
    draw_rays,
    finish,
    measured_scan,
    true_scan,
)
from sensorium.sensors.rays.ray_sensor import RaySensor, ray_field
from sensorium.spec import BODY_POSE, BODY_VELOCITY, SHAPES, Field, Requirement, exact_fraction

MAX_POINTS = 1 << 24
"""Maximum of rays times mounts of one radar: the number of elements of its random stream."""


class Radar(RaySensor[RadarCfg, RadarData]):
    """Radar at one or several mounts."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, BODY_VELOCITY, SHAPES)

    @cached_property
    def pattern(self) -> Rays | None:
        """Rays of a fixed pattern; None if the rays are drawn."""
        return None if self.cfg.pattern is None else self.rays_of("pattern")

    @cached_property
    def num_rays(self) -> int:
        """Rays of one sample of one mount."""
        cfg, title = self.cfg, self.cfg.title
        if self.pattern is not None:
            count = len(self.pattern)
        elif cfg.points is not None:
            count = cfg.points
        else:
            every = Fraction(self.rate.numerator, self.rate.denominator) * self.clock.dt_exact
            count = math.floor(exact_fraction(cfg.points_per_second) * every)
            if count < 1:
                fix = f"Give points, or more rays for the {float(every):g} s between samples."
                raise ConfigError.single(
                    title, "points_per_second", cfg.points_per_second, "at least one ray per sample", fix
                )
        if count * self.mount.count > MAX_POINTS:
            expected = f"at most {MAX_POINTS} rays per sample, all mounts together"
            raise ConfigError.single(title, "points", count * self.mount.count, expected)
        self.compute_on.memory.check_cast((count,), self.mount.count)
        return count

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        return {name: ray_field(field, self.num_rays) for name, field in super().fields().items()}

    def _notes(self) -> dict[str, str]:
        """Return the number of rays, and the known cells and limits."""
        cfg = self.cfg
        found = {"rays": str(self.num_rays)}
        if cfg.range_cell is not None:
            found["range cell"] = f"{cfg.range_cell:.4g} m"
        if cfg.velocity_cell is not None:
            found["velocity cell"] = f"{cfg.velocity_cell:.4g} m/s"
        if cfg.chirp_time is not None:
            found["velocity limit"] = f"{cfg.velocity_limit:.4g} m/s"
        if cfg.sampling_rate is not None:
            found["range limit"] = f"{cfg.range_limit:.4g} m"
        return found

    # Set-up -----------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Select the shapes, and allocate the memory of the rays."""
        cfg, count = self.cfg, self.num_rays
        common: dict[str, Any] = {"targets": cfg.seen, "limits": cfg.limits, "miss": cfg.miss}
        self.notes = self._notes()
        self.buffers.body_at_fault = self._body_at_fault
        self._directions: Tensor | None = None
        if self.pattern is not None:
            rays = self.pattern
            self._cast = self.ray_cast(starts=rays.starts.numpy(), directions=rays.directions.numpy(), **common)
        else:
            self._directions = torch.zeros((self.num_envs, count, 3), dtype=torch.float32, device=self.device)
            self._directions[..., 0] = 1.0
            spread = math.radians(0.5 * max(cfg.horizontal_fov_deg, cfg.vertical_fov_deg))
            self._cast = self.ray_cast(drawn=self._directions, spread=spread, **common)
        shape = (self.compute_on.num_envs, self.mount.count, count)
        self._spare = {
            name: torch.zeros(shape, dtype=torch.int32 if name == "geom_ids" else torch.float32, device=self.device)
            for name, is_needed in (
                ("geom_ids", "geom_ids" not in cfg.selected),
                ("cosine", cfg.reference_snr is not None),
                ("snr", cfg.reference_snr is not None and "snr" not in cfg.selected),
            )
            if is_needed
        }
        rows = [-1 if each.is_static else each.row for each in self.rays.shapes]
        self._body = self._array(rows, wp.int32)
        self._model = self._make_model()

    def _make_model(self) -> Any:
        cfg, model = self.cfg, RadarModel()
        model.detects = int(cfg.detects)
        model.snr, model.reach, model.exponent = cfg.reference_snr or 0.0, cfg.reference_range, cfg.incidence_exponent
        model.sections = self._array(self._of_shapes("rcs"))
        model.threshold = 0.0 if cfg.false_alarm_probability is None else -math.log(cfg.false_alarm_probability)
        model.limit = cfg.range_limit
        if cfg.estimation_noise:
            model.range_cell, model.velocity_cell = cfg.range_cell or 0.0, cfg.velocity_cell or 0.0
        model.clutter = -math.expm1(-cfg.clutter_rate / self.num_rays)
        model.limits = wp.vec2(cfg.min_distance, min(cfg.max_distance, cfg.range_limit))
        model.clutter_speed = cfg.clutter_speed or (cfg.velocity_limit if cfg.chirp_time is not None else 0.0)
        model.fold = 0.0 if cfg.chirp_time is None else cfg.velocity_limit
        model.grid = wp.vec4(*(cell or 0.0 if cfg.grid else 0.0
                               for cell in (cfg.range_cell, cfg.velocity_cell, *cfg.angle_cells)))  # fmt: skip
        model.key0, model.key1 = (wp.uint32(word) for word in self.stream("detection"))
        return model

    # Work -------------------------------------------------------------------------------------------------------------

    @recorded
    @used_if(lambda self: not self.cfg.detects)
    def update_raw_data(self, raw: Record) -> None:
        """Draw the rays, cast them, and compute the fields of their hits (three launches)."""
        self._scan(raw)

    @recorded
    @used_if(lambda self: self.cfg.detects)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Compute the true scan, and the detections of the receiver."""
        self._scan(raw)
        table = normal_table(self.compute_on.wp_device)
        inputs = [table, self._cast.bundle, self._model, self._out(raw, spare=True)]
        self.compute_on.launch(measured_scan, (self.mount.count, self.num_rays), inputs, [self._out(slot)])

    def _scan(self, raw: Record) -> None:
        compute, clock, cfg = self.compute_on, self.clock, self.cfg
        if self._directions is not None:
            half = [math.radians(0.5 * angle) for angle in (cfg.horizontal_fov_deg, cfg.vertical_fov_deg)]
            is_central = cfg.distribution == "central"
            size = wp.vec2(*(math.tan(angle) if is_central else angle for angle in half))
            inputs = [*map(wp.uint32, self.stream("rays")), CENTRAL if is_central else AREA, size]
            compute.launch(draw_rays, (self.num_rays,), inputs, [self._directions])
        shape = raw.geom_ids if "geom_ids" in raw else self._spare["geom_ids"]
        found = {"distance": raw.range, "shape": shape}
        if "cosine" in self._spare:
            found["cosine"] = self._spare["cosine"]
        self._cast.cast(found)
        cosine = self._twin(found.get("cosine"), self.num_rays, wp.float32)
        inputs = [self._cast.bundle, self._motion(), self._model, self._twin(shape, self.num_rays, wp.int32), cosine]
        flags = [self.buffers.bad_wp, clock.bad_wp]
        compute.launch(true_scan, (self.mount.count, self.num_rays), inputs, [self._out(raw, spare=True), *flags])

    def _motion(self) -> Any:
        """Return the motion of mounts and bodies, for kernels."""
        motion, array, mount = RadarMotion(), self.engine.array, self.mount
        motion.body = self._body
        for name, tensor in (("body_pos", array("body_pos_w")), ("body_lin_vel", array("body_lin_vel_w")),
                             ("body_ang_vel", array("body_ang_vel_w")), ("pos", mount.pos_w),
                             ("lin_vel", mount.lin_vel_w), ("ang_vel", mount.ang_vel_w)):  # fmt: skip
            setattr(motion, name, wp.from_torch(tensor, dtype=wp.vec3))
        motion.quat = wp.from_torch(mount.quat_w, dtype=wp.vec4)
        return motion

    def _out(self, record: Record, *, spare: bool = False) -> Any:
        """Return the struct through which kernels write a record, with scratch memory for absent fields on request."""
        out = RadarScan()
        for name in FIELDS:
            dtype = {"points_b": wp.vec3, "geom_ids": wp.int32}.get(name, wp.float32)
            tensor = record[name] if name in record else self._spare.get(name) if spare else None
            setattr(out, name, self._twin(tensor, self.num_rays, dtype))
        return out

    @recorded
    @used_if(lambda self: self.cfg.detects or self.cfg.folds or not self.cfg.is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Alias and round the measured values, move points to match, and set misses to `no_hit_value`."""
        inputs = [self._cast.bundle, self._model, self.cfg.miss, self._out(self.buffers.truth, spare=True)]
        self.compute_on.launch(finish, (self.mount.count, self.num_rays), inputs, [self._out(slot)])

    # Reading on the host ----------------------------------------------------------------------------------------------

    def detections(self, env: int = 0, mount: int = 0, *, measured: bool = True) -> dict[str, NDArray[Any]]:
        """Return the detections of one env, on the host: each selected field as an array `[detection, ...]`.

        Args:
            env: index of the environment.
            mount: index of the mount, for a plural selector.
            measured: False for the true scan.
        """
        rows = self._rows_of(env, mount, measured=measured)
        is_hit = self.is_hit(rows["range"])
        return {name: row[is_hit] for name, row in rows.items()}

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the body whose state is not finite: the mount's, or that of a shape."""
        bodies = [shape.row for shape in self.rays.shapes if not shape.is_static]
        states = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
        return self.query_context.body_at_fault(env, mount, bodies, states)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        own = sum(tensor.numel() * tensor.element_size() for tensor in self._spare.values())
        return super().nbytes + own + self._cast.nbytes


__all__ = ["Radar", "RadarCfg", "RadarData"]
