"""Satellite navigation receiver: position, velocity and fix quality.

Axes: ``[env, mount, ...]`` (no mount axis for a singular selector). ENU: east, north, up in the plane at `origin`.

The world is flat: its z axis is the vertical of the world's origin everywhere. Positions are converted to latitude,
longitude and height by exact WGS84 (see `sensorium.geometry.geodesy`) in float64, because a float32 of degrees has
steps of up to 1.7 m. The position error is correlated in time, since satellites, ionosphere and reflections change
slowly. It is a first-order Gauss-Markov process per axis, e[k+1] = phi e[k] + sd sqrt(1 - phi^2) w, phi = exp(-T/tau),
exact for any period T (Rankin, "GPS and differential GPS: an error model for sensor simulation", IEEE PLANS 1994),
scaled by the dilution of precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Cfg, Float, NonNegative, Positive, Vec3, bad, in_unit, must
from sensorium.compute import (
    MAX_TICKS,
    Rows,
    is_first,
    kernel,
    masked_tid,
    recorded,
    sample_normals,
    tick_captured,
    ticks_after,
)
from sensorium.geometry.geodesy import enu_axes, enu_to_geodetic_wp, geodetic_to_ecef
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.random import F64, normal_table
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.prefixed import GnssKnobs
from sensorium.spec import BODY_POSE, BODY_VELOCITY, Field, exact_fraction
from sensorium.world.mount import Mounts, is_finite3, mount_motion

FIXES: Mapping[str, int] = {"none": 0, "2d": 2, "3d": 3, "float": 4, "fixed": 5}
"""Kinds of fix and their numbers in the field `fix`."""
Fix = Literal["none", "2d", "3d", "float", "fixed"]
FIX_2D: int = wp.constant(2)
NO_FIX = 3
"""Validity flag of a sample without a fix."""
_DEGREES: Any = wp.constant(wp.float64(180.0 / math.pi))


@dataclass(frozen=True, slots=True)
class GnssData:
    """One GNSS sample."""

    lla: Annotated[Tensor, Field("deg, deg, m", (3,), axes=("lla",), dtype="float64", frame="WGS84", kind="derived")]
    """Latitude and longitude, degrees, and height above the ellipsoid, m; float64. Derived from `pos_enu`."""
    pos_enu: Annotated[Tensor, Field("m", (3,), axes=("enu",), frame="enu", role="point", parity="polar")]
    """Position of the antenna relative to the world's origin: east, north, up, m."""
    vel_enu: Annotated[Tensor, Field("m/s", (3,), axes=("enu",), frame="enu", parity="polar")]
    """Velocity of the antenna relative to the ground: east, north, up at the world's origin, m/s."""
    fix: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Kind of fix: 0 none, 2 two-dimensional, 3 three-dimensional, 4 RTK float, 5 RTK fixed. Also part of the truth."""
    hdop: Annotated[Tensor, Field("1", kind="derived")]
    """Horizontal dilution of precision; infinite without a fix. Also part of the truth."""
    vdop: Annotated[Tensor, Field("1", kind="derived")]
    """Vertical dilution of precision; infinite without a fix. Also part of the truth."""


class SkyZone(Cfg):
    """Axis-aligned box in the world with an obstructed sky: a tunnel, a street between buildings, a forest."""

    low: Vec3
    """Minimum corner, m."""
    high: Vec3
    """Maximum corner, m."""
    fix: Fix = "none"
    """Best fix available inside; ``"none"`` is an outage."""
    dop: Annotated[
        Float,
        must(
            lambda dop: 1.0 <= dop < math.inf,
            "a finite factor >= 1",
            "Set hdop and vdop of the receiver for the dilution under an open sky.",
        ),
    ] = 1.0
    """Factor on both dilutions of precision, >= 1. Where zones overlap, the worst fix and the largest factor apply."""

    @field_validator("high")
    @classmethod
    def _high(cls, value: Vec3, info: ValidationInfo) -> Vec3:
        low = info.data.get("low")
        if low is not None and not all(a <= b for a, b in zip(low, value, strict=True)):
            raise bad("a corner at or above `low` in each axis")
        return value


class GnssCfg(MountedSensorCfg[GnssData], GnssKnobs):
    """Configuration of a GNSS receiver; its antenna is at the mount with `offset`. Knobs: ``pos_noise``, ``vel_noise``.

    Real receivers have 1 to 20 Hz and 50 to 200 ms of latency: set `rate_hz` and `delay`. `loss` drops whole samples.
    """

    origin: Annotated[
        Vec3,
        must(
            lambda lla: abs(lla[0]) <= 90.0 and abs(lla[1]) <= 360.0 and -1e4 <= lla[2] <= 1e6,
            "latitude in [-90, 90] degrees, longitude in [-360, 360] degrees, height from -10 to 1000 km",
            "Give latitude, longitude and height in this order.",
        ),
        in_unit("deg"),
    ] = (0.0, 0.0, 0.0)
    """Location of the world's origin: latitude and longitude, degrees, and height above the ellipsoid, m. Height above
    sea level differs from it by the geoid, -107 to 86 m."""
    heading_deg: Annotated[
        Float, must(lambda deg: abs(deg) <= 360.0, "an angle in [-360, 360] degrees"), in_unit("deg")
    ] = 0.0
    """Angle from east to the world's x axis, counter-clockwise seen from above, degrees; 90 if x points north."""
    horizontal_sd: Annotated[NonNegative, in_unit("m")] = 0.0
    """Standard deviation of the correlated position error to the east and to the north, each, at `hdop` 1, m. For a
    circular error probable CEP, give CEP / 1.1774."""
    vertical_sd: Annotated[NonNegative, in_unit("m")] = 0.0
    """Standard deviation of the correlated error upwards, at `vdop` 1, m."""
    tau: Annotated[Positive, in_unit("s")] = 60.0
    """Correlation time of the position error, s."""
    hdop: Positive = 1.0
    """Horizontal dilution of precision under an open sky."""
    vdop: Positive = 1.0
    """Vertical dilution of precision under an open sky."""
    fix: Annotated[
        Fix,
        must(
            lambda fix: fix != "none",
            "a kind of fix other than none",
            "Give zones for outages.",
        ),
    ] = "3d"
    """Best fix that the receiver reaches; set the deviations to match."""
    time_to_first_fix: NonNegative = 0.0
    """Seconds after a reset without a fix; later captures have a fix."""
    reacquisition_time: NonNegative = 0.0
    """Seconds without a fix after the last capture in an outage."""
    zones: tuple[SkyZone, ...] = ()
    """Regions with an obstructed sky."""

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {"pos": ("pos_enu", "m"), "vel": ("vel_enu", "m/s")}


@wp.struct
class GnssTask:
    """Data of one receiver for the kernels."""

    mounts: wp.array[Mounts]
    # World
    east: wp.vec3
    north: wp.vec3
    origin: wp.vec3d
    axes: wp.mat33d
    # Sky
    best: wp.int32
    best_hdop: wp.float32
    best_vdop: wp.float32
    first_fix_ticks: wp.int32
    again_ticks: wp.int32
    zone_low: wp.array[wp.vec3]
    zone_high: wp.array[wp.vec3]
    zone_fix: wp.array[wp.int32]
    zone_dop: wp.array[wp.float32]
    # Memory of the last capture in an outage: 0, or 1 + the ticks since the reset
    outage: wp.array2d[wp.int32]
    # Correlated error: its decay rate, the process with deviation 1, and the tick of the last capture
    decay: F64
    sd: wp.vec3
    key0: wp.uint32
    key1: wp.uint32
    normals: wp.array[wp.vec3]
    error: wp.array2d[wp.vec3]
    error_tick: wp.array2d[wp.int32]
    # Last report
    held_pos: wp.array2d[wp.vec3]
    held_vel: wp.array2d[wp.vec3]
    # Output
    lla: wp.array3d[wp.float64]
    pos: wp.array2d[wp.vec3]
    vel: wp.array2d[wp.vec3]
    fix: wp.array2d[wp.int32]
    hdop: wp.array2d[wp.float32]
    vdop: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@wp.func
def _write_lla(t: GnssTask, env: int, mount: int, enu: wp.vec3) -> None:
    place = enu_to_geodetic_wp(wp.vec3d(wp.float64(enu[0]), wp.float64(enu[1]), wp.float64(enu[2])), t.origin, t.axes)
    t.lla[env, mount, 0] = place[0] * _DEGREES
    t.lla[env, mount, 1] = place[1] * _DEGREES
    t.lla[env, mount, 2] = place[2]


@kernel(blocks=2)
def _truth(rows: Rows, tasks: wp.array[GnssTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p, _q, v, _w, _arm = mount_motion(t.mounts, env, mount)
    enu = wp.vec3(wp.dot(t.east, p), wp.dot(t.north, p), p[2])
    t.pos[env, mount] = enu
    t.vel[env, mount] = wp.vec3(wp.dot(t.east, v), wp.dot(t.north, v), v[2])
    _write_lla(t, env, mount, enu)
    # The fix
    fix = t.best
    dop = wp.float32(1.0)
    for zone in range(t.zone_fix.shape[0]):
        low = t.zone_low[zone]
        high = t.zone_high[zone]
        if (
            p[0] >= low[0] and p[1] >= low[1] and p[2] >= low[2]
            and p[0] <= high[0] and p[1] <= high[1] and p[2] <= high[2]
        ):  # fmt: skip
            fix = wp.min(fix, t.zone_fix[zone])
            dop = wp.max(dop, t.zone_dop[zone])
    since_reset = wp.int32(wp.min(tick_captured(rows) - rows.reset_tick[env], wp.int64(wp.static(MAX_TICKS))))
    if t.again_ticks > 0:
        if fix == 0:
            t.outage[env, mount] = since_reset + 1
        elif t.outage[env, mount] > 0 and since_reset + 1 - t.outage[env, mount] < t.again_ticks:
            fix = 0
    if since_reset < t.first_fix_ticks:
        fix = 0
    t.fix[env, mount] = fix
    t.hdop[env, mount] = dop * t.best_hdop
    t.vdop[env, mount] = dop * t.best_vdop
    flag = wp.uint8(0)
    if fix == 0:
        t.hdop[env, mount] = wp.inf
        t.vdop[env, mount] = wp.inf
        flag = wp.static(wp.uint8(NO_FIX))
    if not (is_finite3(p) and is_finite3(v)):
        flag = wp.uint8(1)
        t.any_bad[0] = 1
    t.bad[env, mount] = flag


@kernel
def _wander(rows: Rows, tasks: wp.array[GnssTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    captured = tick_captured(rows)
    w4 = sample_normals(rows, env, wp.uint32(mount), t.key0, t.key1, t.normals)
    w = wp.vec3(w4[0], w4[1], w4[2])
    e = w  # the first sample is drawn from the stationary distribution
    if not is_first(rows, env):
        # in float64: for short intervals 1 - kept^2 would be lost to the rounding of float32
        kept = wp.exp(-F64(ticks_after(captured, t.error_tick[env, mount])) * t.decay)
        fresh = wp.sqrt(F64(1.0) - kept * kept)
        e = wp.vec3(kept * wp.vec3d(t.error[env, mount]) + fresh * wp.vec3d(w))
    t.error[env, mount] = e
    t.error_tick[env, mount] = wp.int32(captured)
    if t.fix[env, mount] != 0:
        h = t.hdop[env, mount]
        error = wp.vec3(h * t.sd[0] * e[0], h * t.sd[1] * e[1], t.vdop[env, mount] * t.sd[2] * e[2])
        t.pos[env, mount] = t.pos[env, mount] + error


@kernel
def _report(rows: Rows, tasks: wp.array[GnssTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p = t.pos[env, mount]
    v = t.vel[env, mount]
    fix = t.fix[env, mount]
    if fix == 0:
        p = t.held_pos[env, mount]
        v = t.held_vel[env, mount]
    elif fix == FIX_2D:
        p[2] = t.held_pos[env, mount][2]
        v[2] = 0.0
    if is_finite3(p) and is_finite3(v):
        t.held_pos[env, mount] = p
        t.held_vel[env, mount] = v
    t.pos[env, mount] = p
    t.vel[env, mount] = v
    _write_lla(t, env, mount, p)


class Gnss(SimpleSensor[GnssCfg, GnssData]):
    """GNSS receivers at one or several mounts.

    Without a fix (before the first one, or in an outage) a sample is not `valid`, and the measured position and
    velocity are those of the last fix; before the first fix, they are the world's origin and 0. With a 2D fix the
    height is that of the last better fix (before any, that of the origin), and the vertical velocity is 0. The truth is
    never held.
    """

    requires = (BODY_POSE, BODY_VELOCITY)
    checks_state: ClassVar[bool] = True

    def setup(self) -> None:
        """Allocate the memory of fix, error and last report."""
        count = self.mount.count
        origin = self.cfg.origin
        self._origin_ecef = wp.vec3d(*geodetic_to_ecef(origin).tolist())
        self._enu_axes = wp.mat33d(*enu_axes(origin).reshape(-1).tolist())
        self._outage = self.new_state("outage", (count,)).view(torch.int32)
        self._held = [self.new_state(name, (count, 3)) for name in ("held_pos", "held_vel")]
        self._error = self.new_state("error", (count, 3))
        self._error_tick = self.new_state("error_tick", (count,)).view(torch.int32)

    def _ticks(self, seconds: float) -> int:
        """Return a time in ticks, rounded up."""
        return math.ceil(exact_fraction(seconds) / self.clock.dt_exact)

    def _task(self, record: Record) -> Any:
        """Return the task struct of this receiver; kernels read and write `record`."""
        cfg, device, t = self.cfg, self.compute_on.wp_device, GnssTask()
        turn = math.radians(cfg.heading_deg)

        def corners(values: Iterable[Vec3]) -> Any:
            return wp.array(np.asarray(list(values), np.float32).reshape(-1, 3), dtype=wp.vec3, device=device)

        t.mounts = self.mount.warp_state(velocities=True)
        t.east = wp.vec3(math.cos(turn), -math.sin(turn), 0.0)
        t.north = wp.vec3(math.sin(turn), math.cos(turn), 0.0)
        t.origin, t.axes = self._origin_ecef, self._enu_axes
        t.best, t.best_hdop, t.best_vdop = FIXES[cfg.fix], cfg.hdop, cfg.vdop
        t.first_fix_ticks, t.again_ticks = self._ticks(cfg.time_to_first_fix), self._ticks(cfg.reacquisition_time)
        t.zone_low = corners(zone.low for zone in cfg.zones)
        t.zone_high = corners(zone.high for zone in cfg.zones)
        t.zone_fix = wp.array([FIXES[zone.fix] for zone in cfg.zones], dtype=wp.int32, device=device)
        t.zone_dop = wp.array([zone.dop for zone in cfg.zones], dtype=wp.float32, device=device)
        t.outage = wp.from_torch(self._outage)
        t.decay, t.sd = self.clock.dt / cfg.tau, wp.vec3(cfg.horizontal_sd, cfg.horizontal_sd, cfg.vertical_sd)
        t.key0, t.key1 = self.stream("wander")
        t.normals = normal_table(device)
        t.error, t.error_tick = wp.from_torch(self._error, dtype=wp.vec3), wp.from_torch(self._error_tick)
        t.held_pos, t.held_vel = (wp.from_torch(state, dtype=wp.vec3) for state in self._held)
        t.lla, t.pos, t.vel = record.warp.lla, record.warp.pos_enu, record.warp.vel_enu
        t.fix, t.hdop, t.vdop = record.warp.fix, record.warp.hdop, record.warp.vdop
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        return t

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute position, velocity and fix in one launch, shared by all receivers of one rate."""
        self.compute_on.launch_task(_truth, (self.mount.count,), self._task(raw))

    @recorded
    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Add the correlated error to the measured position (one launch, or none without an error)."""
        if self.cfg.horizontal_sd or self.cfg.vertical_sd:
            self.compute_on.launch_task(_wander, (self.mount.count,), self._task(slot))

    @recorded
    def derive_measured(self, slot: Record) -> None:
        """Hold the last report while there is no fix, and compute the geodetic coordinates (one launch)."""
        self.compute_on.launch_task(_report, (self.mount.count,), self._task(slot))
