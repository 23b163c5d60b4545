"""Magnetometer: the world's magnetic flux in the sensor's frame, distorted by the iron and steel of the vehicle.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector); ``_b`` the magnetometer's own frame.

With R the orientation of the sensor and B the flux in the world at its position, the truth is R^T B. A device on a
vehicle measures A R^T B + b + noise. A is the soft iron: material that the field magnetises and that distorts the
field. b is the hard iron: magnets that move with the sensor (Gebre-Egziabher et al., "Calibration of strapdown
magnetometers in magnetic field domain", Journal of Aerospace Engineering 19, 2006). Magnets fixed in the world are a
true disturbance and part of B: see `MagneticDipole`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Amount, Cfg, Float, Vec3, amount_bounds, bad, is_finite, must
from sensorium.compute import Rows, episode_words, kernel, masked_tid, recorded
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.measurement.draws import FIXED, ColumnDistribution, column_distribution, draw_value, is_drawn, parts
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.measurement.stages.amounts import row
from sensorium.random import Normal, normal_table
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports
from sensorium.spec import BODY_POSE, FLUX_UNITS, MAGNETIC, Field, FluxUnit, Requirement
from sensorium.world.mount import Mounts, flag_state, is_finite3, is_finite4, mount_pose
from sensorium.world.select import Named

MU0_OVER_4PI = 1e-7
"""Magnetic constant over 4 pi, T m/A; the relative error against the SI of 2019 is below 1e-9."""


@dataclass(frozen=True, slots=True)
class MagnetometerData:
    """One magnetometer sample."""

    mag_b: Annotated[Tensor, Field("field", (3,), frame="sensor", role="magnetic", parity="axial")]
    """Magnetic flux in the sensor's frame, in the config's `unit` (by default the unit of the given field)."""


Finite3 = Annotated[Vec3, must(is_finite, "three finite numbers")]


class MagneticDipole(Cfg):
    """Magnet fixed in the world, such as the motor of a machine, a steel beam or a loudspeaker.

    It is a uniformly magnetised sphere. Outside it the flux is mu0/4pi (3 r (m.r)/r^5 - m/r^3), inside it mu0/4pi 2
    m/radius^3 (Jackson, Classical Electrodynamics, section 5.10). Both are in tesla; the sensor converts them to its
    `unit`.
    """

    pos: Finite3
    """Centre in the world, m."""
    moment: Finite3
    """Magnetic moment in world axes, A m^2: about 1 for a small neodymium magnet, 10 to 1000 for steel structures."""
    radius: Annotated[
        Float,
        must(
            lambda radius: 0.0 < radius < math.inf,
            "a finite radius > 0 in metres",
            "Give the radius, since the flux at the centre of a point dipole is infinite.",
        ),
    ] = 0.01
    """Radius of the sphere, m."""


class MagnetometerCfg(MountedSensorCfg[MagnetometerData]):
    """Configuration of a magnetometer. All fluxes are in the unit of the field; name that unit in `unit`."""

    magnetic_field: Finite3 | None = None
    """Flux in world axes; None uses the engine's field."""
    unit: FluxUnit | None = None
    """Unit of the field (the engine's or `magnetic_field`), of the reading, of `hard_iron` and of all knobs. Only the
    flux of `dipoles` is converted, from tesla. None leaves the unit unnamed."""
    dipoles: tuple[MagneticDipole, ...] = ()
    """Magnets fixed in the world; part of the truth. They require a `unit`."""
    hard_iron: Annotated[
        Amount | None,
        must(
            lambda amount: all(np.shape(part) in ((), (3,)) for part in parts(amount)),
            "a number, three numbers (x, y, z), or a distribution of these",
        ),
    ] = None
    """Flux of magnets that move with the sensor, in the field's unit, sensor axes: one number or three, or a
    distribution drawn per env and mount at reset."""
    soft_iron: Amount | None = None
    """Distortion of the field by the vehicle's iron, a matrix A that multiplies the field, 1. Give a 3 x 3 matrix; the
    six numbers (xx, yy, zz, xy, xz, yz) of a symmetric one; or a distribution of each of the six numbers of A - I,
    drawn per env and mount at reset (``Normal(0, 0.03)``)."""

    @field_validator("dipoles")
    @classmethod
    def _dipoles(cls, value: tuple[MagneticDipole, ...], info: ValidationInfo) -> tuple[MagneticDipole, ...]:
        if value and info.data.get("unit") is None:
            raise bad(
                "`unit` together with dipoles", "The flux of a dipole is in tesla; give the field's unit: unit='T'."
            )
        return value

    @field_validator("soft_iron")
    @classmethod
    def _soft_iron(cls, value: Any) -> Any:
        if value is None:
            return value
        if is_drawn(value):
            if not all(np.shape(part) in ((), (6,)) for part in parts(value)):
                raise bad("a distribution of numbers, or of six (xx, yy, zz, xy, xz, yz)")
            spread = 4.0 * np.abs(value.std).max() if isinstance(value, Normal) else 0.0
            centre = np.abs(value.mean).max() if isinstance(value, Normal) else max(map(abs, amount_bounds(value)))
            if not centre + spread < 1.0 / 3.0:
                fix = "Give the distribution of A - I, not of A; a Normal counts up to 4 standard deviations."
                raise bad("deviations below 1/3, so that A stays positive definite", fix)
            return value
        matrix = np.asarray(value, np.float64)
        if matrix.shape not in ((6,), (3, 3)):
            raise bad("six numbers (xx, yy, zz, xy, xz, yz), a 3 x 3 matrix or a distribution")
        full = _matrix(value)
        if not np.linalg.eigvalsh(full + full.T).min() > 0.0:
            raise bad(
                "a positive definite matrix, near the identity",
                "Give A, not A - I: (1, 1, 1, 0, 0, 0) is the identity.",
            )
        return value


def _matrix(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the soft iron as a matrix, float64 [3, 3], from six or nine numbers."""
    a = np.asarray(value, np.float64)
    if a.shape == (3, 3):
        return a
    return np.array([[a[0], a[3], a[4]], [a[3], a[1], a[5]], [a[4], a[5], a[2]]])


@wp.struct
class Iron:
    """Hard or soft iron: its values per column, or the distribution they are drawn from."""

    distribution: ColumnDistribution
    key0: wp.uint32
    key1: wp.uint32


@wp.struct
class FluxTask:
    """Data of one magnetometer for the kernel of the truth."""

    mounts: wp.array[Mounts]
    magnetic: wp.array[wp.vec3]
    # Dipoles; the moments include mu0/4pi and the conversion to the field's unit
    dipole_pos: wp.array[wp.vec3]
    dipole_moment: wp.array[wp.vec3]
    dipole_radius: wp.array[wp.float32]
    mag: wp.array2d[wp.vec3]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@wp.struct
class IronTask:
    """Data of one magnetometer with hard or soft iron for the kernel of the measured branch."""

    hard: Iron
    soft: Iron
    soft_is_full: wp.int32
    normals: wp.array[wp.vec3]
    mag: wp.array2d[wp.vec3]


@kernel
def _flux(rows: Rows, tasks: wp.array[FluxTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p, q = mount_pose(t.mounts, env, mount)
    flux = t.magnetic[env % t.magnetic.shape[0]]
    for dipole in range(t.dipole_pos.shape[0]):
        m = t.dipole_moment[dipole]
        r = p - t.dipole_pos[dipole]
        distance = wp.length(r)
        edge = t.dipole_radius[dipole]
        if distance > edge:
            n = r / distance
            flux = flux + (3.0 * wp.dot(m, n) * n - m) / (distance * distance * distance)
        else:
            flux = flux + 2.0 * m / (edge * edge * edge)
    flag_state(t.bad, t.any_bad, env, mount, is_finite3(p) and is_finite4(q) and is_finite3(flux))
    t.mag[env, mount] = quat_rotate_inverse(q, flux)


@wp.func
def _three(rows: Rows, env: int, mount: int, iron: Iron, block: int, table: wp.array[wp.vec3]) -> wp.vec3:
    """Return three values of an iron: constant during an episode, recomputed at every sample instead of stored."""
    first = 3 * block
    if iron.distribution.kind == FIXED:
        return wp.vec3(
            iron.distribution.first[first], iron.distribution.first[first + 1], iron.distribution.first[first + 2]
        )
    element = wp.uint32(mount) * wp.uint32(2)
    if iron.distribution.joint == 0:  # a choice among vectors picks one vector, not one value per column
        element = element + wp.uint32(block)
    words = episode_words(rows, env, element, iron.key0, iron.key1)
    values = wp.vec3()
    for j in range(3):
        word = words[j]
        if iron.distribution.joint != 0:
            word = words[0]
        values[j] = draw_value(iron.distribution, first + j, word, table)
    return values


@kernel
def _iron(rows: Rows, tasks: wp.array[IronTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.mag.shape[1]:
        return
    x = t.mag[env, mount]
    one = _three(rows, env, mount, t.soft, 0, t.normals)
    two = _three(rows, env, mount, t.soft, 1, t.normals)
    if t.soft_is_full != 0:
        three = _three(rows, env, mount, t.soft, 2, t.normals)
        x = wp.vec3(wp.dot(one, x), wp.dot(two, x), wp.dot(three, x))
    else:
        x = x + wp.vec3(
            one[0] * x[0] + two[0] * x[1] + two[1] * x[2],
            two[0] * x[0] + one[1] * x[1] + two[2] * x[2],
            two[1] * x[0] + two[2] * x[1] + one[2] * x[2],
        )
    t.mag[env, mount] = x + _three(rows, env, mount, t.hard, 0, t.normals)


class Magnetometer(SimpleSensor[MagnetometerCfg, MagnetometerData]):
    """Magnetometer at one or several mounts."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: MagnetometerCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the pose requirement, and the engine's field if the config gives none."""
        yield BODY_POSE
        if cfg.magnetic_field is None:
            yield MAGNETIC

    def fields(self) -> Mapping[str, Field]:
        """Return the flux, in the config's unit."""
        unit = self.cfg.unit or "field"
        return {"mag_b": Field(unit, (3,), frame="sensor", role="magnetic", parity="axial")}

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute the flux at each mount in one launch, shared by all magnetometers of one rate."""
        device, cfg = self.device, self.cfg

        def vectors(values: Iterable[Any]) -> Any:
            rows = np.asarray(list(values), np.float64).reshape(-1, 3)
            return wp.from_torch(torch.tensor(rows, dtype=torch.float32, device=device), dtype=wp.vec3)

        t = FluxTask()
        t.mounts = self.mount.warp_state()
        if cfg.magnetic_field is None:
            t.magnetic = wp.from_torch(self.engine.array("magnetic_w"), dtype=wp.vec3)
        else:
            t.magnetic = vectors([cfg.magnetic_field])
        tesla = MU0_OVER_4PI / FLUX_UNITS[cfg.unit or "T"]
        t.dipole_pos = vectors(dipole.pos for dipole in cfg.dipoles)
        t.dipole_moment = vectors(np.asarray(dipole.moment) * tesla for dipole in cfg.dipoles)
        radii = [dipole.radius for dipole in cfg.dipoles]
        t.dipole_radius = wp.array(radii, dtype=wp.float32, device=self.compute_on.wp_device)
        t.mag, t.bad, t.any_bad = raw.warp.mag_b, self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_flux, (self.mount.count,), t)

    @recorded
    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Distort the field by the soft iron and add the hard iron (one launch, or none without either)."""
        cfg = self.cfg
        if cfg.hard_iron is None and cfg.soft_iron is None:
            return
        full = cfg.soft_iron is not None and not is_drawn(cfg.soft_iron)
        soft = tuple(_matrix(cfg.soft_iron).reshape(-1)) if full else cfg.soft_iron
        t = IronTask()
        t.hard = self._law("hard_iron", cfg.hard_iron, 3)
        t.soft, t.soft_is_full = self._law("soft_iron", soft, 9 if full else 6), int(full)
        t.normals, t.mag = normal_table(self.compute_on.wp_device), slot.warp.mag_b
        self.compute_on.launch_task(_iron, (self.mount.count,), t)

    def _law(self, purpose: str, amount: Any, columns: int) -> Any:
        """Return an iron in the form that the kernel takes."""
        iron = Iron()
        iron.distribution = column_distribution(
            amount or 0.0, columns, lambda value: row(value, columns), self.compute_on.wp_device
        )
        iron.key0, iron.key1 = (wp.uint32(word) for word in self.stream(purpose))
        return iron
