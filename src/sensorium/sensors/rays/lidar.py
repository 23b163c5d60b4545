"""Lidar: a scan of rays that fire one after the other, with a model of the receiver.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector); with two returns per ray ``[env, mount, ray,
return]``. Rays are in the order in which they fire; the last one fires at the capture. A scan is a window of the
pattern's time table that ends at the capture and always has the same number of rays.

Both scans are distorted by motion: each ray starts at the pose of the mount when it fires and is cast at the shapes as
they are then. Its point is expressed in the sensor's frame as if the sensor had not moved. The truth is the same scan
of thin rays without noise and losses, so that measured minus true is the error of the receiver alone.

The power returned by an extended target of reflectance rho at distance R under the angle of incidence theta is P = rho
|cos theta| exp(-2 alpha R) / R^2 up to a factor. The factor is such that `reference_reflectance` at `reference_range`,
head-on, gives the signal-to-noise ratio `reference_snr`. Source: the lidar equation for a target that fills the beam
(e.g. W. Wagner et al., ISPRS J. 60, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import Rays
from sensorium.random import normal_table
from sensorium.sensors.core.hooks import between_samples, used_if
from sensorium.sensors.rays.lidar_cfg import FIELDS, PER_RAY, LidarCfg, LidarData
from sensorium.sensors.rays.lidar_kernels import (
    RETURNS,
    LidarModel,
    LidarScan,
    RayHits,
    Tables,
    finish,
    keep_flags,
    measured_scan,
    take_flags,
    true_scan,
)
from sensorium.sensors.rays.lidar_scan import Window, bias_distribution, sub_rays, window_of
from sensorium.sensors.rays.ray_cfg import LIGHT_SPEED
from sensorium.sensors.rays.ray_sensor import RaySensor, ray_field
from sensorium.shapes.ray_cast import RayCast
from sensorium.spec import Field

VECTORS_AND_IDS = {
    **dict.fromkeys(("points_b", "points_w", "normals_w"), wp.vec3),
    **dict.fromkeys(("geom_ids", "semantic_ids", "channel"), wp.int32),
}
"""Types of the fields that are not floating-point numbers."""


class Lidar(RaySensor[LidarCfg, LidarData]):
    """Lidar at one or several mounts."""

    @cached_property
    def pattern(self) -> Rays:
        """The rays of one period of the pattern."""
        return self.rays_of("pattern")

    @cached_property
    def window(self) -> Window:
        """The rays of the pattern that are part of a scan."""
        every = Fraction(self.rate.numerator, self.rate.denominator) * self.clock.dt_exact
        return window_of(self.cfg, self.pattern, every, self.clock.dt_exact)

    @cached_property
    def distorts(self) -> bool:
        """Whether each ray is cast at the time when it fires."""
        return self.cfg.motion_distortion and self.window.duration > 0.0

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        count, found = self.window.count, {}
        for name, field in super().fields().items():
            if name == "channel" and self.pattern.channels is None:
                if self.cfg.fields == "all":
                    continue
                expected, fix = "fields that the pattern provides; it has no channels", f"Remove {name} from fields."
                raise ConfigError.single(self.cfg.title, "fields", name, expected, fix)
            sizes = (count, self.returns) if self.returns > 1 and name not in PER_RAY else (count,)
            found[name] = ray_field(field, *sizes)
        return found

    @property
    def _differs(self) -> bool:
        """Whether the measured scan differs from the true one before the standard chain."""
        cfg = self.cfg  # `no_hit_value`: in the truth set when cast, in the measured scan set at the end
        return cfg.alters_returns or (cfg.no_hit_value is not None and not cfg.is_clean)

    # Set-up -----------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Select the shapes, and allocate the memory of a scan."""
        cfg, rays, window = self.cfg, self.pattern, self.window
        starts, directions = rays.starts.numpy(), rays.directions.numpy()
        slots = math.ceil(window.oldest / self.clock.dt - 1e-6) + 1 if self.distorts else 1
        common: dict[str, Any] = {
            "targets": cfg.seen,
            "limits": cfg.limits,
            "period": rays.period or 0.0,
            "per_tick": len(rays) / (rays.period or 1.0) * self.clock.dt if window.moves else 0.0,
        }
        times = None if rays.times is None else rays.times.numpy()
        self._cast = self.ray_cast(
            starts=starts, directions=directions, times=times, count=window.count, slots=slots,
            new_state=self.new_state if slots > 1 else None, **common,
        )  # fmt: skip
        self.notes["scan"] = f"{window.count} rays" + (f" in {window.duration:g} s" if window.duration else "")
        self.notes["motion distortion"] = "yes" if self.distorts else "no"
        self._beams, self._weights = self._cast, np.ones(1)
        if self.distorts:
            self._flags = [self.new_state(name, (self.mount.count,)) for name in ("seen", "shown")]
        if cfg.has_footprint:
            sub_starts, sub_directions, self._weights = sub_rays(cfg, starts, directions)
            subs = len(self._weights)
            self._beams = self.ray_cast(
                starts=sub_starts, directions=sub_directions, group=subs, motion=self._cast,
                times=None if times is None else np.repeat(times, subs), count=window.count * subs, **common,
            )  # fmt: skip
        self._tables = self._make_tables()
        self._model = self._make_model()
        self._scratch: dict[tuple[str, int], Tensor] = {}

    def _make_tables(self) -> Any:
        rays, tables = self.pattern, Tables()
        tables.reflectance = self._array(self._of_shapes("reflectance"))
        tables.semantic = self._array(self.rays.semantic_ids, wp.int32)
        channels = np.zeros(0) if rays.channels is None else rays.channels.numpy()
        tables.channel = self._array(channels, wp.int32)
        self._azimuth, self._elevation = angles_of(rays.directions.numpy())
        tables.azimuth, tables.elevation = self._array(self._azimuth), self._array(self._elevation)
        return tables

    def _make_model(self) -> Any:
        cfg, model = self.cfg, LidarModel()
        model.dropoff = int(cfg.model == "dropoff")
        model.is_raw = int(cfg.intensity_mode == "raw")
        model.returns = RETURNS[cfg.returns]
        model.scale = cfg.intensity_scale
        model.most = math.inf if cfg.intensity_max is None else cfg.intensity_max
        model.intensity_noise = cfg.intensity_noise
        model.attenuation = cfg.atmosphere_attenuation_rate if model.dropoff else cfg.attenuation
        far = cfg.reference_range
        model.power = cfg.reference_reflectance * math.exp(-2.0 * cfg.attenuation * far) / far**2
        model.snr = cfg.reference_snr or 0.0
        model.threshold = -math.inf if cfg.detection_threshold is None else cfg.detection_threshold
        model.threshold_sd = cfg.detection_sd
        model.drop = cfg.dropoff_general_rate if model.dropoff else cfg.drop_rate
        model.limit, model.zero, model.sd = cfg.dropoff_intensity_limit, cfg.dropoff_zero_intensity, cfg.noise_stddev
        model.depth, model.limits = 0.5 * LIGHT_SPEED * cfg.pulse_duration, wp.vec2(*cfg.limits)
        x = np.log(np.atleast_1d([] if cfg.range_noise_snr is None else cfg.range_noise_snr).astype(np.float64))
        y = np.log(np.atleast_1d([] if cfg.range_noise is None else cfg.range_noise).astype(np.float64))
        if len(x):
            order = np.argsort(x)
            x, y = x[order], y[order]
        model.range_x, model.range_y = self._array(x), self._array(y)
        model.weights = self._array(self._weights)
        model.key0, model.key1 = (wp.uint32(word) for word in self.stream("return"))
        model.bias_key0, model.bias_key1 = (wp.uint32(word) for word in self.stream("channel_bias"))
        model.bias = bias_distribution(cfg, self.channels, self.compute_on.wp_device)
        return model

    # Work -------------------------------------------------------------------------------------------------------------

    @recorded
    @between_samples
    @used_if(lambda self: self.distorts)
    def observe(self) -> None:
        """Store the poses at a tick between two samples."""
        self._cast.look()
        self._pass_flags(keep_flags)

    def _pass_flags(self, kernel: Any) -> None:
        self.compute_on.launch(kernel, (self.mount.count,), [self.buffers.bad_wp, *self._flags])

    @recorded
    @used_if(lambda self: not self._differs)
    def update_raw_data(self, raw: Record) -> None:
        """Cast the true scan and compute its fields (two launches)."""
        self._describe_truth(raw, self._find_true(raw))

    @recorded
    @used_if(lambda self: self._differs)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Cast the true scan, and the measured one if it differs; compute the fields of both."""
        true = self._find_true(raw)
        if self._beams is self._cast:
            self._describe_measured(slot, true)  # before misses get `no_hit_value`
            self._describe_truth(raw, true)
        else:
            self._describe_truth(raw, true)
            self._describe_measured(slot, self._find(self._beams, slot, look=False))

    def _find_true(self, raw: Record) -> Any:
        """Cast the true scan and return its hits; the sample is flagged if a tick in its scan was."""
        found = self._find(self._cast, raw, look=True)
        if self.distorts:
            self._pass_flags(take_flags)
        return found

    def _find(self, cast: RayCast, record: Record, *, look: bool) -> Any:
        """Cast rays and return their hits, stored in the record itself where it has the fields."""
        direct = cast is self._cast and self.returns == 1
        names = {"distance": "distances", "cosine": "cos_incidence", "shape": "geom_ids", "normal": "normals_w"}
        if "normals_w" not in record:
            del names["normal"]
        outputs = {
            what: record[field] if direct and field in record else self._spare(what, cast.count)
            for what, field in names.items()
        }
        cast.cast(outputs, look=look)
        found = RayHits()
        for what in ("distance", "cosine", "shape", "normal"):
            dtype = {"shape": wp.int32, "normal": wp.vec3}.get(what, wp.float32)
            setattr(found, what, self._twin(outputs.get(what), cast.count, dtype))
        return found

    def _spare(self, what: str, count: int) -> Tensor:
        """Return scratch memory for the computation of a sample."""
        if (what, count) not in self._scratch:
            shape = (self.num_envs, self.mount.count, count, *((3,) if what == "normal" else ()))
            dtype = torch.int32 if what == "shape" else torch.float32
            self._scratch[what, count] = torch.zeros(shape, dtype=dtype, device=self.device)
        return self._scratch[what, count]

    def _out(self, record: Record, *, miss: float) -> Any:
        """Return the struct through which kernels write a record."""
        out = LidarScan()
        for name in FIELDS:
            dtype = VECTORS_AND_IDS.get(name, wp.float32)
            count = self.num_rays * (1 if name in PER_RAY else self.returns)
            setattr(out, name, self._twin(record[name] if name in record else None, count, dtype))
        out.returns, out.miss, out.moves = self.returns, miss, int(self.distorts)
        return out

    def _describe_truth(self, raw: Record, found: Any) -> None:
        out = self._out(raw, miss=self.cfg.miss)
        inputs = [self._model, self._tables, self._cast.bundle, self._cast.pose, found]
        self.compute_on.launch(true_scan, (self.mount.count, self.num_rays), inputs, [out])

    def _describe_measured(self, slot: Record, found: Any) -> None:
        miss = self.cfg.miss if self.cfg.is_clean else math.inf
        out = self._out(slot, miss=miss)
        table = normal_table(self.compute_on.wp_device)
        inputs = [table, self._model, self._tables, self._cast.bundle, self._cast.pose, found]
        self.compute_on.launch(measured_scan, (self.mount.count, self.num_rays), inputs, [out])

    @recorded
    @used_if(lambda self: not self.cfg.is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Move the measured points to the measured distances, and set misses to `no_hit_value`."""
        columns = self.num_rays * self.returns
        out = self._out(slot, miss=self.cfg.miss)
        inputs = [self._model.limits, self._tables, self._cast.bundle, self._cast.pose]
        distances = self._twin(slot["distances"], columns, wp.float32)
        self.compute_on.launch(finish, (self.mount.count, columns), [*inputs, distances], [out])

    # Reading on the host ----------------------------------------------------------------------------------------------

    @property
    def num_rays(self) -> int:
        """Rays of one scan of one mount."""
        return self.window.count

    @cached_property
    def returns(self) -> int:
        """Returns per ray."""
        return 2 if self.cfg.returns == "dual" else 1

    @property
    def channels(self) -> int:
        """Number of channels; 1 if the pattern defines none."""
        return 1 if self.pattern.channels is None else int(self.pattern.channels.max()) + 1

    @property
    def semantic_names(self) -> tuple[str, ...]:
        """Names of the semantic labels, indexed by `semantic_ids`; the first, empty name means no label."""
        return ("", *self.rays.label_names)

    def ray_ids(self, env: int = 0) -> NDArray[np.int64]:
        """Return the row in `pattern` of each ray of the shown sample, `[ray]`."""
        begin, total = 0, len(self.pattern)
        if self.window.moves:
            per_tick = total / (self.pattern.period or 1.0) * self.clock.dt
            begin = math.floor(int(self.capture_tick[env]) * per_tick + 0.5) - self.num_rays
        return (begin + np.arange(self.num_rays)) % total

    @property
    def horizontal_angle(self) -> float:
        """Azimuth of the newest ray of the scan of env 0, rad, left positive: the angle of a spinning lidar's head."""
        return float(self._azimuth[self.ray_ids()[-1]])

    def point_cloud(self, env: int = 0, mount: int = 0, *, measured: bool = True) -> dict[str, NDArray[Any]]:
        """Return the points of one env without misses, on the host: each selected field as an array `[point, ...]`.

        Args:
            env: index of the environment.
            mount: index of the mount, for a plural selector.
            measured: False for the true scan.
        """
        rows = self._rows_of(env, mount, measured=measured)
        if self.returns > 1:
            rows |= {name: np.repeat(rows[name][:, None], self.returns, axis=1) for name in PER_RAY if name in rows}
        is_hit = np.isfinite(rows["points_b"]).all(axis=-1) if "points_b" in rows else self.is_hit(rows["distances"])
        return {name: row[is_hit] for name, row in rows.items()}

    def get_point_count(self, channel: int, env: int = 0, mount: int = 0) -> int:
        """Return the number of points of a channel in the measured scan.

        Raises:
            IndexError: no such channel.
        """
        if not 0 <= channel < self.channels:
            raise IndexError(f"channel: got {channel}, expected 0 to {self.channels - 1}")
        data = self.data
        is_hit = self.is_hit(data.distances) if data.points_b is None else data.points_b.isfinite().all(dim=-1)
        row = is_hit[env][mount] if self._mount_axis else is_hit[env]
        found = row.reshape(self.num_rays, -1).cpu().numpy()
        ids = self.ray_ids(env)
        own = np.zeros(len(ids), np.int32) if self.pattern.channels is None else self.pattern.channels.numpy()[ids]
        return int(found[own == channel].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        spare = sum(tensor.numel() * tensor.element_size() for tensor in self._scratch.values())
        beams = 0 if self._beams is self._cast else self._beams.nbytes
        return super().nbytes + spare + beams + self._cast.nbytes


def angles_of(directions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return azimuth and elevation of directions, rad."""
    d = np.asarray(directions, np.float64)
    return np.arctan2(d[:, 1], d[:, 0]), np.arctan2(d[:, 2], np.hypot(d[:, 0], d[:, 1]))


__all__ = ["Lidar", "LidarCfg", "LidarData"]
