"""Satellite navigation receiver: position, velocity and the quality of its fix.

Axes: ``[env, mount, ...]`` (no mount axis for a singular selector). ENU: east, north, up in the plane at `origin`.

The world is flat: its z is the vertical of the world's origin everywhere. Positions become latitude, longitude and
height through exact WGS84 (see `sensorium.geometry.geodesy`), in float64: a float32 of degrees has steps of up to 1.7
m. The error of a position wanders, since satellites, ionosphere and reflections change slowly: a first-order
Gauss-Markov process per axis, e[k+1] = phi e[k] + sd sqrt(1 - phi^2) w, phi = exp(-T/tau), exact for any period T
(Rankin, "GPS and differential GPS: an error model for sensor simulation", IEEE PLANS 1994), scaled by the dilution of
precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Cfg, Float, Knob, MountedSensorCfg, Vec3, bad
from sensorium.compute import Rows, kernel, recorded
from sensorium.geometry.geodesy import enu_axes, enu_to_geodetic_wp, geodetic_to_ecef
from sensorium.geometry.transforms import quat_rotate
from sensorium.measurement.record import Record, Timeline
from sensorium.random import normal_table, normals4
from sensorium.readings import DebugShape
from sensorium.sensors.core.base import SimpleSensor
from sensorium.spec import BODY_POSE, BODY_VELOCITY, Field, exact_fraction
from sensorium.world.mount import is_finite3

if TYPE_CHECKING:  # Warp's scalars have no operators that a type checker could see
    F64: TypeAlias = Any
else:
    F64 = wp.float64

FIXES: Mapping[str, int] = {"none": 0, "2d": 2, "3d": 3, "float": 4, "fixed": 5}
"""What kinds of fix there are, and their numbers in the field `fix`."""
Fix = Literal["none", "2d", "3d", "float", "fixed"]
FIX_2D: int = wp.constant(2)
NO_FIX = 3
"""Validity flag of a sample without a fix."""
_DEGREES: Any = wp.constant(wp.float64(180.0 / math.pi))


@dataclass(frozen=True, slots=True)
class GnssData:
    """One GNSS sample."""

    lla: Annotated[Tensor, Field("deg, deg, m", (3,), axes=("lla",), dtype="float64", frame="WGS84", kind="derived")]
    """Latitude, longitude, degrees, and height above the ellipsoid, m; float64. It follows from `pos_enu`."""
    pos_enu: Annotated[Tensor, Field("m", (3,), axes=("enu",), frame="enu", role="point")]
    """Position of the antenna: east, north, up of the world's origin, m."""
    vel_enu: Annotated[Tensor, Field("m/s", (3,), axes=("enu",), frame="enu")]
    """Velocity of the antenna relative to the ground: east, north, up at the world's origin, m/s."""
    fix: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Kind of fix: 0 none, 2 two-dimensional, 3 three-dimensional, 4 RTK float, 5 RTK fixed. The truth has it, too."""
    hdop: Annotated[Tensor, Field("1", kind="derived")]
    """Horizontal dilution of precision; infinite without a fix. The truth has it, too."""
    vdop: Annotated[Tensor, Field("1", kind="derived")]
    """Vertical dilution of precision; infinite without a fix. The truth has it, too."""


class SkyZone(Cfg):
    """A box in the world, along its axes, in which the sky is not free: a tunnel, a street between houses, a wood."""

    low: Vec3
    """Least corner, m."""
    high: Vec3
    """Greatest corner, m."""
    fix: Fix = "none"
    """The best fix there is in it; ``"none"`` is an outage."""
    dop: Float = 1.0
    """Factor on both dilutions of precision, >= 1. Where zones overlap, the least fix and the greatest factor hold."""

    @field_validator("high")
    @classmethod
    def _high(cls, value: Vec3, info: ValidationInfo) -> Vec3:
        low = info.data.get("low")
        if low is not None and not all(a <= b for a, b in zip(low, value, strict=True)):
            raise bad("a corner at or above `low` in each axis")
        return value

    @field_validator("dop")
    @classmethod
    def _dop(cls, value: float) -> float:
        if not 1.0 <= value < math.inf:
            raise bad("a finite factor >= 1", "The dilution of the free sky is hdop and vdop of the receiver.")
        return value


class GnssCfg(MountedSensorCfg[GnssData]):
    """Configuration of a GNSS receiver; its antenna is at the mount with `offset`. Knobs: ``pos_noise``, ``vel_noise``.

    Receivers have 1 to 20 Hz and 50 to 200 ms of latency: give `rate_hz` and `delay`. `loss` drops whole samples.
    """

    origin: Vec3 = (0.0, 0.0, 0.0)
    """Place of the world's origin: latitude and longitude, degrees, and height above the ellipsoid, m. (Height above
    sea level is something else: the two differ by the geoid, -107 to 86 m.)"""
    heading_deg: Float = 0.0
    """Angle from east to the world's x axis, counter-clockwise seen from above, degrees: 90 for x to the north."""
    horizontal_sd: Float = 0.0
    """Standard deviation of the wandering position error to the east and to the north, each, at `hdop` 1, m. (Of a
    circular error probable CEP it is CEP / 1.1774.)"""
    vertical_sd: Float = 0.0
    """The same upwards, at `vdop` 1, m."""
    tau: Float = 60.0
    """Correlation time of the wandering error, s."""
    hdop: Float = 1.0
    """Horizontal dilution of precision under a free sky."""
    vdop: Float = 1.0
    """Vertical dilution of precision under a free sky."""
    fix: Fix = "3d"
    """The best fix the receiver reaches; give the deviations that go with it."""
    time_to_first_fix: Float = 0.0
    """Seconds after a reset without a fix; captures from then on have one."""
    reacquisition_time: Float = 0.0
    """Seconds without a fix after the last capture in an outage."""
    zones: tuple[SkyZone, ...] = ()
    """Where the sky is not free."""

    pos_noise: Knob = None
    """`noise` of pos_enu, m."""
    pos_noise_density: Knob = None
    """`noise_density` of pos_enu, m/sqrt(Hz)."""
    pos_bias: Knob = None
    """`bias` of pos_enu, m."""
    pos_random_walk: Knob = None
    """`random_walk` of pos_enu, m per sample."""
    pos_random_walk_density: Knob = None
    """`random_walk_density` of pos_enu, m*sqrt(Hz)."""
    pos_resolution: Knob = None
    """`resolution` of pos_enu, m."""
    vel_noise: Knob = None
    """`noise` of vel_enu, m/s."""
    vel_noise_density: Knob = None
    """`noise_density` of vel_enu, m/s/sqrt(Hz)."""
    vel_bias: Knob = None
    """`bias` of vel_enu, m/s."""
    vel_random_walk: Knob = None
    """`random_walk` of vel_enu, m/s per sample."""
    vel_random_walk_density: Knob = None
    """`random_walk_density` of vel_enu, m/s*sqrt(Hz)."""
    vel_resolution: Knob = None
    """`resolution` of vel_enu, m/s."""

    @field_validator("origin")
    @classmethod
    def _origin(cls, value: Vec3) -> Vec3:
        if not (abs(value[0]) <= 90.0 and abs(value[1]) <= 360.0 and -1e4 <= value[2] <= 1e6):
            fix = "The order is latitude, longitude, height."
            raise bad(
                "latitude in [-90, 90] degrees, longitude in [-360, 360] degrees, height from -10 to 1000 km", fix
            )
        return value

    @field_validator("heading_deg")
    @classmethod
    def _heading(cls, value: float) -> float:
        if not abs(value) <= 360.0:
            raise bad("an angle in [-360, 360] degrees")
        return value

    @field_validator("horizontal_sd", "vertical_sd", "time_to_first_fix", "reacquisition_time")
    @classmethod
    def _not_negative(cls, value: float) -> float:
        if not 0.0 <= value < math.inf:
            raise bad("a finite number >= 0")
        return value

    @field_validator("tau", "hdop", "vdop")
    @classmethod
    def _positive(cls, value: float) -> float:
        if not 0.0 < value < math.inf:
            raise bad("a finite number > 0")
        return value

    @field_validator("fix")
    @classmethod
    def _fix(cls, value: str) -> str:
        if value == "none":
            raise bad("a kind of fix", "A receiver without one has nothing to say; for outages give zones.")
        return value


@kernel
def _truth(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    mount_body_in: wp.array[wp.int32],
    mount_pos_in: wp.array2d[wp.vec3],
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    body_lin_vel_in: wp.array2d[wp.vec3],
    body_ang_vel_in: wp.array2d[wp.vec3],
    # World
    east: wp.vec3,
    north: wp.vec3,
    origin: wp.vec3d,
    axes: wp.mat33d,
    # Sky
    best: int,
    hdop: float,
    vdop: float,
    first_fix_ticks: int,
    again_ticks: int,
    zone_low_in: wp.array[wp.vec3],
    zone_high_in: wp.array[wp.vec3],
    zone_fix_in: wp.array[wp.int32],
    zone_dop_in: wp.array[wp.float32],
    # Memory of the last capture in an outage: 0, or the ticks since the reset plus one
    outage: wp.array2d[wp.int32],
    # Output
    lla_out: wp.array3d[wp.float64],
    pos_out: wp.array2d[wp.vec3],
    vel_out: wp.array2d[wp.vec3],
    fix_out: wp.array2d[wp.int32],
    hdop_out: wp.array2d[wp.float32],
    vdop_out: wp.array2d[wp.float32],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    p = mount_pos_in[env, mount]
    v = wp.vec3()
    body = mount_body_in[mount]
    if body >= 0:
        arm = quat_rotate(body_quat_in[env, body], p)
        p = body_pos_in[env, body] + arm
        v = body_lin_vel_in[env, body] + wp.cross(body_ang_vel_in[env, body], arm)
    enu = wp.vec3(wp.dot(east, p), wp.dot(north, p), p[2])
    pos_out[env, mount] = enu
    vel_out[env, mount] = wp.vec3(wp.dot(east, v), wp.dot(north, v), v[2])
    place = enu_to_geodetic_wp(wp.vec3d(wp.float64(enu[0]), wp.float64(enu[1]), wp.float64(enu[2])), origin, axes)
    lla_out[env, mount, 0] = place[0] * _DEGREES
    lla_out[env, mount, 1] = place[1] * _DEGREES
    lla_out[env, mount, 2] = place[2]
    # The fix
    fix = best
    dop = wp.float32(1.0)
    for k in range(zone_fix_in.shape[0]):
        low = zone_low_in[k]
        high = zone_high_in[k]
        if (
            p[0] >= low[0] and p[1] >= low[1] and p[2] >= low[2]
            and p[0] <= high[0] and p[1] <= high[1] and p[2] <= high[2]
        ):  # fmt: skip
            fix = wp.min(fix, zone_fix_in[k])
            dop = wp.max(dop, zone_dop_in[k])
    since_reset = clock[0] - clock[2] - reset_tick[env]
    if again_ticks > 0:
        if fix == 0:
            outage[env, mount] = since_reset + 1
        elif outage[env, mount] > 0 and since_reset + 1 - outage[env, mount] < again_ticks:
            fix = 0
    if since_reset < first_fix_ticks:
        fix = 0
    fix_out[env, mount] = fix
    hdop_out[env, mount] = dop * hdop
    vdop_out[env, mount] = dop * vdop
    flag = wp.uint8(0)
    if fix == 0:
        hdop_out[env, mount] = wp.inf
        vdop_out[env, mount] = wp.inf
        flag = wp.static(wp.uint8(NO_FIX))
    if not (is_finite3(p) and is_finite3(v)):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


@kernel
def _wander(
    rows: Rows,
    clock: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    decay: F64,
    sd: wp.vec3,
    key0: wp.uint32,
    key1: wp.uint32,
    table: wp.array[wp.vec3],
    fix_in: wp.array2d[wp.int32],
    hdop_in: wp.array2d[wp.float32],
    vdop_in: wp.array2d[wp.float32],
    # Memory: the process with deviation 1, and the tick of the last capture
    state: wp.array2d[wp.vec3],
    last_tick: wp.array2d[wp.int32],
    pos: wp.array2d[wp.vec3],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    w4 = normals4(
        wp.uint32(clock[0]),
        wp.uint32(rows.first_env + env),
        wp.uint32(episode[env]),
        wp.uint32(mount),
        key0,
        key1,
        table,
    )
    w = wp.vec3(w4[0], w4[1], w4[2])
    e = w  # the first sample is drawn from the long-run law
    if reset_tick[env] != clock[0]:
        # in float64: for samples that are close together 1 - kept^2 is lost in the rounding of float32
        kept = wp.exp(-F64(captured - last_tick[env, mount]) * decay)
        fresh = wp.sqrt(F64(1.0) - kept * kept)
        e = wp.vec3(kept * wp.vec3d(state[env, mount]) + fresh * wp.vec3d(w))
    state[env, mount] = e
    last_tick[env, mount] = captured
    if fix_in[env, mount] != 0:
        h = hdop_in[env, mount]
        error = wp.vec3(h * sd[0] * e[0], h * sd[1] * e[1], vdop_in[env, mount] * sd[2] * e[2])
        pos[env, mount] = pos[env, mount] + error


@kernel
def _report(
    rows: Rows,
    fix_in: wp.array2d[wp.int32],
    origin: wp.vec3d,
    axes: wp.mat33d,
    held_pos: wp.array2d[wp.vec3],
    held_vel: wp.array2d[wp.vec3],
    lla_out: wp.array3d[wp.float64],
    pos: wp.array2d[wp.vec3],
    vel: wp.array2d[wp.vec3],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    p = pos[env, mount]
    v = vel[env, mount]
    fix = fix_in[env, mount]
    if fix == 0:
        p = held_pos[env, mount]
        v = held_vel[env, mount]
    elif fix == FIX_2D:
        p[2] = held_pos[env, mount][2]
        v[2] = 0.0
    if is_finite3(p) and is_finite3(v):
        held_pos[env, mount] = p
        held_vel[env, mount] = v
    pos[env, mount] = p
    vel[env, mount] = v
    place = enu_to_geodetic_wp(wp.vec3d(wp.float64(p[0]), wp.float64(p[1]), wp.float64(p[2])), origin, axes)
    lla_out[env, mount, 0] = place[0] * _DEGREES
    lla_out[env, mount, 1] = place[1] * _DEGREES
    lla_out[env, mount, 2] = place[2]


class Gnss(SimpleSensor[GnssCfg, GnssData]):
    """GNSS receivers at one or several mounts.

    Without a fix (before the first one, in an outage) a sample is not `valid`, and the measured position and velocity
    are those of the last fix; before the first fix, the world's origin and 0. With a 2D fix the height is that of the
    last better fix (before any, that of the origin), and the vertical velocity 0. The truth is never held.
    """

    requires = (BODY_POSE, BODY_VELOCITY)
    checks_state: ClassVar[bool] = True
    knob_prefixes: ClassVar[Mapping[str, str]] = {"pos": "pos_enu", "vel": "vel_enu"}

    def setup(self) -> None:
        """Make the memories of fix, error and last report."""
        count = self.mount.count
        origin = self.cfg.origin
        self._origin_ecef = wp.vec3d(*geodetic_to_ecef(origin).tolist())
        self._enu_axes = wp.mat33d(*enu_axes(origin).reshape(-1).tolist())
        self._outage = self.new_state("outage", (count,)).view(torch.int32)
        self._held = [self.new_state(name, (count, 3)) for name in ("held_pos", "held_vel")]
        self._error = self.new_state("error", (count, 3))
        self._error_tick = self.new_state("error_tick", (count,)).view(torch.int32)

    def _ticks(self, seconds: float) -> int:
        """Return the ticks that a time needs, rounded up."""
        return math.ceil(exact_fraction(seconds) / self.clock.dt_exact)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute position, velocity and fix of each mount in one launch."""
        cfg, array = self.cfg, self.engine.array
        turn = math.radians(cfg.heading_deg)
        device = self.compute_on.wp_device

        def corners(values: Iterable[Vec3]) -> Any:
            rows = np.asarray(list(values), np.float32).reshape(-1, 3)
            return wp.array(rows, dtype=wp.vec3, device=device)

        body, offset, _ = self.mount.warp_inputs
        self.compute_on.launch(
            _truth,
            (self.mount.count,),
            [
                self.clock.words_wp,
                self.clock.reset_tick_wp,
                body,
                offset,
                wp.from_torch(array("body_pos_w"), dtype=wp.vec3),
                wp.from_torch(array("body_quat_w"), dtype=wp.vec4),
                wp.from_torch(array("body_lin_vel_w"), dtype=wp.vec3),
                wp.from_torch(array("body_ang_vel_w"), dtype=wp.vec3),
                wp.vec3(math.cos(turn), -math.sin(turn), 0.0),
                wp.vec3(math.sin(turn), math.cos(turn), 0.0),
                self._origin_ecef,
                self._enu_axes,
                FIXES[cfg.fix],
                cfg.hdop,
                cfg.vdop,
                self._ticks(cfg.time_to_first_fix),
                self._ticks(cfg.reacquisition_time),
                corners(zone.low for zone in cfg.zones),
                corners(zone.high for zone in cfg.zones),
                wp.array([FIXES[zone.fix] for zone in cfg.zones], dtype=wp.int32, device=device),
                wp.array([zone.dop for zone in cfg.zones], dtype=wp.float32, device=device),
            ],
            [
                wp.from_torch(self._outage, dtype=wp.int32),
                raw.warp.lla,
                raw.warp.pos_enu,
                raw.warp.vel_enu,
                raw.warp.fix,
                raw.warp.hdop,
                raw.warp.vdop,
                wp.from_torch(self.line.bad, dtype=wp.uint8),
                self.clock.bad_wp,
            ],
        )

    @recorded
    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Add the wandering error to the measured position (one launch, none without one)."""
        cfg = self.cfg
        if not (cfg.horizontal_sd or cfg.vertical_sd):
            return
        self.compute_on.launch(
            _wander,
            (self.mount.count,),
            [
                self.clock.words_wp,
                self.clock.episode_wp,
                self.clock.reset_tick_wp,
                wp.float64(self.clock.dt / cfg.tau),
                wp.vec3(cfg.horizontal_sd, cfg.horizontal_sd, cfg.vertical_sd),
                *(wp.uint32(word) for word in self.stream("wander")),
                normal_table(self.compute_on.wp_device),
                slot.warp.fix,
                slot.warp.hdop,
                slot.warp.vdop,
            ],
            [
                wp.from_torch(self._error, dtype=wp.vec3),
                wp.from_torch(self._error_tick, dtype=wp.int32),
                slot.warp.pos_enu,
            ],
        )

    @recorded
    def derive_measured(self, slot: Record) -> None:
        """Hold what a receiver without a fix holds, and compute the geodetic coordinates (one launch)."""
        self.compute_on.launch(
            _report,
            (self.mount.count,),
            [slot.warp.fix, self._origin_ecef, self._enu_axes],
            [
                *(wp.from_torch(state, dtype=wp.vec3) for state in self._held),
                slot.warp.lla,
                slot.warp.pos_enu,
                slot.warp.vel_enu,
            ],
        )

    def debug_draw(self) -> Iterable[DebugShape]:
        """Draw the measured positions as points in the world."""
        self._ready()
        enu = self.line.work["pos_enu"]
        turn = math.radians(self.cfg.heading_deg)
        x = math.cos(turn) * enu[..., 0] + math.sin(turn) * enu[..., 1]
        y = -math.sin(turn) * enu[..., 0] + math.cos(turn) * enu[..., 1]
        yield DebugShape("points", torch.stack([x, y, enu[..., 2]], dim=-1).reshape(-1, 3).cpu().numpy())
