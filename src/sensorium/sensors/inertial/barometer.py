"""Barometer: static air pressure in the International Standard Atmosphere, and the altitude derived from it.

Axes: ``[env, mount]`` (no mount axis for a singular selector).

Up to 11 km the temperature falls by L per metre and the pressure is P0 (1 - L h / T0)^(g M / (R L)). Above 11 km the
temperature is constant and the pressure falls exponentially (ISO 2533; US Standard Atmosphere 1976, equations 33a and
33b). h is the geopotential altitude. The z of a simulation is a geopotential altitude, since its gravity is uniform.

Precision: pressure is float32. Near sea level its steps are 7.8 mPa, or 0.65 mm of height; between 101 kPa and 65 kPa
(3.6 km) rounding changes the altitude by at most 0.5 mm. All powers and logarithms are float64, so there is no other
rounding. The true altitude is not computed from the pressure: it has the rounding of the height alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import warp as wp
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, Finite, Float, Vec3, in_unit, is_finite, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, recorded, tick_captured, ticks_after
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.random import F64
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.spec import BODY_POSE, BODY_VELOCITY, Field, Requirement
from sensorium.world.mount import Mounts, flag_state, is_finite3, mount_motion, mount_pose
from sensorium.world.select import Named

P0 = 101325.0
"""Pressure at sea level, Pa (US Standard Atmosphere 1976, table 1)."""
T0 = 288.15
"""Temperature at sea level, K."""
LAPSE = 0.0065
"""Temperature lapse rate in the troposphere L, K/m."""
GRAVITY_0 = 9.80665
"""Standard gravity g, m/s^2."""
MOLAR_MASS = 0.0289644
"""Mean molar mass of air M, kg/mol."""
GAS = 8.31432
"""Gas constant R of the standard, J/(mol K); the SI value of 2019 is larger by a factor of 1 + 1.7e-5."""
TROPOPAUSE = 11000.0
"""Height of the tropopause, m."""
EXPONENT = GRAVITY_0 * MOLAR_MASS / (GAS * LAPSE)
"""g M / (R L) = 5.25588."""
T11 = T0 - LAPSE * TROPOPAUSE
"""Temperature at and above the tropopause, 216.65 K (to 20 km in the standard)."""
P11 = P0 * (T11 / T0) ** EXPONENT
"""Pressure at the tropopause, 22632.06 Pa."""
DECAY = GRAVITY_0 * MOLAR_MASS / (GAS * T11)
"""Decay of pressure above the tropopause, 1/m."""
REFERENCE_TEMPERATURE = 25.0
"""Temperature at which data sheets specify the offset of a pressure sensor, degrees Celsius."""

_P0: F64 = wp.constant(wp.float64(P0))
_P11: F64 = wp.constant(wp.float64(P11))
_T11: F64 = wp.constant(wp.float64(T11))
_T0: F64 = wp.constant(wp.float64(T0))
_LAPSE: F64 = wp.constant(wp.float64(LAPSE))
_TROPOPAUSE: F64 = wp.constant(wp.float64(TROPOPAUSE))
_EXPONENT: F64 = wp.constant(wp.float64(EXPONENT))
_DECAY: F64 = wp.constant(wp.float64(DECAY))
_MASS_OVER_GAS: F64 = wp.constant(wp.float64(MOLAR_MASS / GAS))
_ZERO: F64 = wp.constant(wp.float64(0.0))
_ONE: F64 = wp.constant(wp.float64(1.0))


@wp.func
def isa_pressure(height: F64) -> F64:
    """Return the pressure of the standard atmosphere, Pa, at a geopotential altitude, m."""
    if height < _TROPOPAUSE:
        return _P0 * wp.pow(_ONE - height * _LAPSE / _T0, _EXPONENT)
    return _P11 * wp.exp(-_DECAY * (height - _TROPOPAUSE))


@wp.func
def isa_altitude(pressure: F64) -> F64:
    """Return the geopotential altitude, m, of a pressure of the standard atmosphere, Pa; infinite for pressure 0."""
    if pressure < _P11:
        return _TROPOPAUSE - wp.log(wp.max(pressure, _ZERO) / _P11) / _DECAY
    return (_ONE - wp.pow(pressure / _P0, _ONE / _EXPONENT)) * _T0 / _LAPSE  # NaN passes through; max() would hide it


@wp.func
def isa_density(height: F64) -> F64:
    """Return the density of the standard atmosphere, kg/m^3, at a geopotential altitude, m."""
    return isa_pressure(height) * _MASS_OVER_GAS / wp.max(_T0 - _LAPSE * height, _T11)


@dataclass(frozen=True, slots=True)
class BarometerData:
    """One barometer sample."""

    pressure: Annotated[Tensor, Field("Pa")]
    """Static air pressure, Pa."""
    altitude: Annotated[Tensor, Field("m", kind="derived")]
    """Measured: altitude above sea level at which the standard atmosphere has the measured pressure, m. True, and
    measured without any error of the pressure: the height of the mount, z + `altitude_offset`."""


class BarometerCfg(MountedSensorCfg[BarometerData]):
    """Configuration of a barometer. The knobs act on the pressure; the measured altitude is derived from it."""

    altitude_offset: Annotated[
        Float,
        must(
            lambda altitude: -1000.0 <= altitude <= 20000.0,
            "an altitude from -1000 to 20000 m, where the standard atmosphere is valid",
        ),
        in_unit("m"),
    ] = 0.0
    """Altitude of the world's origin above sea level, m."""
    wind: Annotated[Vec3, must(is_finite, "three finite numbers, m/s"), in_unit("m/s")] = (0.0, 0.0, 0.0)
    """Velocity of the air, world axes, m/s; only the sensor's velocity relative to it has an effect."""
    position_error: Annotated[Float | Vec3, must(is_finite, "a finite number, or three")] = 0.0
    """Pressure coefficient Cp of the port: in air that passes at speed v the reading is too high by Cp rho v^2 / 2.
    Most ports cause suction: Cp < 0, and the altitude reads too high. Three numbers weight the squares of the
    components of v along the sensor's axes."""
    temperature: Annotated[
        Float,
        must(lambda t: -100.0 <= t <= 200.0, "degrees Celsius, -100 to 200", "298.15 K are 25 degrees Celsius."),
        in_unit("degC"),
    ] = REFERENCE_TEMPERATURE
    """Temperature of the sensor, degrees Celsius. The stage `TemperatureDrift` models a device that warms up."""
    temperature_coefficient: Annotated[Finite, in_unit("Pa/K")] = 0.0
    """Pressure offset per kelvin above 25 degrees Celsius, Pa/K."""
    lag: Annotated[
        Float, must(lambda lag: 0.0 <= lag < math.inf, "a finite time constant >= 0 in seconds"), in_unit("s")
    ] = 0.0
    """Time constant of the response, s: tube, filter and membrane as one first-order low-pass. Exact for any sample
    period if the pressure changes linearly between samples. At the first sample it is settled."""

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """`position_error` along each axis of the sensor."""
        cp = self.position_error
        return (cp, cp, cp) if isinstance(cp, float) else cp

    @property
    def responds(self) -> bool:
        """Whether position error, temperature or lag change the measured pressure."""
        return bool(self.lag or any(self.coefficients) or self.temperature_coefficient)

    @property
    def has_errors(self) -> bool:
        """Whether the measured pressure can differ from the true one."""
        return bool(self.responds or self.stages or any(getattr(self, knob) is not None for knob in COLUMN_KNOBS))


@wp.struct
class BarometerTask:
    """Data of one barometer for the kernels. Unused velocities and memory have length 0."""

    dt: F64
    lag: F64
    altitude_offset: F64
    warm: F64
    coefficients: wp.vec3
    wind: wp.vec3
    mounts: wp.array[Mounts]
    # Memory of the lag: z and excess pressure at the last sample, difference to the settled response, and the tick
    last_z: wp.array2d[wp.float32]
    last_excess: wp.array2d[wp.float32]
    behind: wp.array2d[wp.float32]
    last_tick: wp.array2d[wp.int32]
    # Output
    pressure: wp.array2d[wp.float32]
    altitude: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _air(rows: Rows, tasks: wp.array[BarometerTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p, _turn = mount_pose(t.mounts, env, mount)
    flag_state(t.bad, t.any_bad, env, mount, is_finite3(p))
    height = F64(p[2]) + t.altitude_offset
    t.altitude[env, mount] = wp.float32(height)
    t.pressure[env, mount] = wp.float32(isa_pressure(height))


@kernel
def _response(rows: Rows, tasks: wp.array[BarometerTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p, q, v, _w, _arm = mount_motion(t.mounts, env, mount)
    height = F64(p[2]) + t.altitude_offset
    pressure = isa_pressure(height)
    v = quat_rotate_inverse(q, v - t.wind)
    cp = t.coefficients
    squares = cp[0] * v[0] * v[0] + cp[1] * v[1] * v[1] + cp[2] * v[2] * v[2]
    excess = 0.5 * wp.float32(isa_density(height)) * squares
    if not (wp.isfinite(excess) and wp.isfinite(p[2])):
        t.bad[env, mount] = wp.uint8(1)
        t.any_bad[0] = 1
        t.pressure[env, mount] = wp.nan
        return  # flagged; the response keeps its value
    late = _ZERO
    if t.last_tick.shape[0] > 0:
        captured = tick_captured(rows)
        elapsed = ticks_after(captured, t.last_tick[env, mount])
        if not is_first(rows, env) and elapsed > 0:
            # a linear change over the time T leaves the response (1 - exp(-T / lag)) lag / T of the change behind
            part = F64(elapsed) * t.dt / t.lag
            kept = wp.exp(-part)
            before = isa_pressure(F64(t.last_z[env, mount]) + t.altitude_offset)
            change = pressure - before + F64(excess - t.last_excess[env, mount])
            late = kept * F64(t.behind[env, mount]) + (_ONE - kept) / part * change
        t.last_z[env, mount] = p[2]
        t.last_excess[env, mount] = excess
        t.behind[env, mount] = wp.float32(late)
        t.last_tick[env, mount] = wp.int32(captured)
    t.pressure[env, mount] = wp.float32(pressure + F64(excess) + t.warm - late)


@kernel
def _altitude(rows: Rows, tasks: wp.array[BarometerTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount < t.bad.shape[1]:
        t.altitude[env, mount] = wp.float32(isa_altitude(F64(t.pressure[env, mount])))


class Barometer(SimpleSensor[BarometerCfg, BarometerData]):
    """Barometer at one or several mounts."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: BarometerCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the pose requirement, and the velocity requirement if the port has a position error."""
        yield BODY_POSE
        if any(cfg.coefficients):
            yield BODY_VELOCITY

    def setup(self) -> None:
        """Allocate the memory of the lag."""
        shape = (self.mount.count,)
        if self.cfg.lag:
            self._lagging = [self.new_state(name, shape) for name in ("z", "excess", "behind")]
            self._lag_tick = self.new_state("tick", shape).view(torch.int32)

    def _task(self, record: Record) -> Any:
        """Return the task struct of this barometer; kernels read and write `record`."""
        cfg, t = self.cfg, BarometerTask()
        t.dt, t.lag, t.altitude_offset = self.clock.dt, cfg.lag, cfg.altitude_offset
        t.warm = cfg.temperature_coefficient * (cfg.temperature - REFERENCE_TEMPERATURE)
        t.coefficients, t.wind = wp.vec3(*cfg.coefficients), wp.vec3(*cfg.wind)
        t.mounts = self.mount.warp_state(velocities=any(cfg.coefficients))
        if cfg.lag:
            t.last_z, t.last_excess, t.behind = map(wp.from_torch, self._lagging)
            t.last_tick = wp.from_torch(self._lag_tick)
        t.pressure, t.altitude = record.warp.pressure, record.warp.altitude
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        return t

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute height and pressure of each mount in one launch, shared by all barometers of one rate."""
        self.compute_on.launch_task(_air, (self.mount.count,), self._task(raw))

    @recorded
    @used_if(lambda self: self.cfg.responds)
    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Add position error, temperature offset and lag to the measured pressure (one launch)."""
        self.compute_on.launch_task(_response, (self.mount.count,), self._task(slot))

    @recorded
    @used_if(lambda self: self.cfg.has_errors)
    def derive_measured(self, slot: Record) -> None:
        """Compute the altitude of the measured pressure in the standard atmosphere."""
        self.compute_on.launch_task(_altitude, (self.mount.count,), self._task(slot))
