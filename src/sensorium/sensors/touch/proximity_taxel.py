"""Proximity taxel: force and torque at taxels on a link that grow as surfaces approach, before and after contact.

Axes: ``[env, mount, probe, 3]`` (no mount axis for a singular selector); a grid of probes has two axes instead of one.
Frame: that of the parent link (of the mount). Force in N, torque about the link's origin in N m.

The surfaces of other links are clouds of evenly distributed points o, each for an area A. A probe is a ball of radius R
at p, with the outward normal a:

    P = max(0, R - |p - o|)        D = density_scalar A / reference_area
    v = velocity of the probe - velocity of the surface, at o      w = the same of angular velocities
    v_t = v - (v . a) a
    F = stiffness (sum D P) a + shear_coupling sum D P v_t
    T = p x F + twist_scalar (sum P A w . a / sum P A) a

As for the kinematic tactile sensor, F is the force that the skin exerts: along a near a surface, along v_t while
sliding. Contact is not modelled: a surface counts wherever it is in the ball, in front of the skin or behind it.

Sums over points approximate integrals over the surface, so readings do not depend on the number of points, except for
an error that decreases with more points. The integral of P over an unbounded plane at the distance h is in closed form:
pi / 3 (R - h)^2 (R + 2 h).

Genesis counts points instead of areas, D = density_scalar / n_sample_points: the same as a `reference_area` of the
whole tracked area. Readings then depend on the total size of the tracked surfaces.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import warp as wp
from torch import Tensor

from sensorium.cfg import Positive, in_unit
from sensorium.compute import Memory, Rows, kernel, masked_tid
from sensorium.errors import ConfigError, SensoriumWarning
from sensorium.geometry.samples import SurfaceSamples, body_samples, covered, surface_area
from sensorium.geometry.shapes import Shape
from sensorium.geometry.solid_around import NearShapes
from sensorium.geometry.surface_cloud import Clouds, file_clouds, on_shapes, over_surface, way_to_reach
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.sensors.touch.taxel_cfg import NormalTaxelCfg, Resisting, SampleCount
from sensorium.sensors.touch.taxels import Skin, TaxelSensor, check_points, drawn_radius
from sensorium.shapes.scene import Geometry
from sensorium.spec import BODY_POSE, BODY_VELOCITY, SHAPES, Field, Requirement


@dataclass(frozen=True, slots=True)
class ProximityTaxelData:
    """One sample of proximity taxels."""

    force: Annotated[Tensor, Field("N", (3,), frame="link", parity="polar")]
    """Force of each probe, N; 0 without a surface within its radius."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="link", parity="axial")]
    """Torque of each probe about the link's origin, N m; 0 without a surface within its radius."""


COEFFICIENTS = {
    "stiffness": "stiffness",
    "shear": "shear_coupling",
    "twist": "twist_scalar",
    "density": "density_scalar",
}
"""Config numbers that can be set per env at run time, by their names in `ProximityForceLaw`."""
SPARSE = 2.0
"""Distance of points, in radii of a probe, above which a warning is issued: the probe may fit between them."""
BITS = wp.constant(wp.int32(64))
"""Number of shapes that a block of probes remembers."""
FINE = 3.0
"""Points per radius that such a warning proposes."""


class ProximityTaxelCfg(NormalTaxelCfg[ProximityTaxelData]):
    """Configuration of proximity taxels. Coefficients can be set per env: ``sensor.set("stiffness", 40.0)``.

    Meshes may be open, since only their surfaces count.
    """

    geometry: Geometry = "visual"
    """Sensed shapes: ``"visual"`` (visible, in geom groups 0 to 2), ``"collision"`` (those with contacts), ``"all"``
    (every visible shape) or ``"any"`` (every shape). With ``"any"``, an object with separate visual and collision
    shapes counts twice."""
    stiffness: Annotated[Resisting, in_unit("N/m")] = 100.0
    """Force along the normal per weighted sum of P, N/m."""
    shear_coupling: Annotated[Resisting, in_unit("N s/m^2")] = 0.0
    """Force per weighted sum of P times tangential velocity, N s/m^2."""
    twist_scalar: Annotated[Resisting, in_unit("N m s")] = 1.0
    """Torque about the normal per angular velocity about it, N m s. It does not decrease with the distance."""
    density_scalar: Resisting = 100.0
    """Weight of an area of `reference_area`, comparable to points per square metre."""
    reference_area: Positive | Literal["tracked"] = 1.0
    """Area that has the weight `density_scalar`, m^2. ``"tracked"`` uses the total tracked area, as Genesis does;
    unbounded planes are then not allowed."""
    n_sample_points: SampleCount = 500
    """Number of points on all tracked surfaces, split by area over links and their shapes. More points give smoother
    readings; they should be at most a third of `probe_radius` apart. Unbounded planes need none."""
    sample_spacing: Annotated[Positive | None, in_unit("m")] = None
    """Distance between the points, m; an alternative to their number."""


@wp.struct
class ProximityForceLaw:
    """Force law, with one number per env each; see `COEFFICIENTS`.

    Attributes:
        stiffness: N/m.
        shear: N s/m^2.
        twist: N m s.
        density: weight of the reference area.
        area: reference area, m2.
    """

    stiffness: wp.array2d[wp.float32]
    shear: wp.array2d[wp.float32]
    twist: wp.array2d[wp.float32]
    density: wp.array2d[wp.float32]
    area: wp.float32


@wp.struct
class Nearby:
    """Sums of a probe over all surfaces, with the area of each point as its weight.

    Attributes:
        near: sum of P, m3.
        slide: sum of P times the velocity of the probe relative to the surface, m4/s.
        spin: sum of P times the relative angular velocity about the normal, m3/s.
    """

    near: wp.float32
    slide: wp.vec3
    spin: wp.float32


@wp.func
def _added(
    before: Nearby, sums: wp.vec4, turn: wp.vec4, place: wp.vec3, lin: wp.vec3, ang: wp.vec3, a: wp.vec3
) -> Nearby:
    """Return sums with those over one surface added; see `over_surface`.

    The surface moves by lin + ang x o, so the sum over its points needs only their weighted centre.
    """
    out = Nearby()
    centre = sums[3] * place + quat_rotate(turn, wp.vec3(sums[0], sums[1], sums[2]))
    out.near = before.near + sums[3]
    out.slide = before.slide - sums[3] * lin - wp.cross(ang, centre)
    out.spin = before.spin - sums[3] * wp.dot(ang, a)
    return out


@wp.func
def _pressed(law: ProximityForceLaw, env: int, sums: Nearby, p: wp.vec3, a: wp.vec3) -> tuple[wp.vec3, wp.vec3]:
    """Return force and torque."""
    if sums.near <= 0.0:
        return wp.vec3(), wp.vec3()
    density = law.density[env, 0] / law.area
    along = law.stiffness[env, 0] * density * sums.near
    shear = law.shear[env, 0] * density * (sums.slide - wp.dot(sums.slide, a) * a)
    force = along * a + shear
    return force, wp.cross(p, force) + law.twist[env, 0] * (sums.spin / sums.near) * a


@kernel
def _compute_taxels(
    rows: Rows,
    block: int,
    skin: Skin,
    law: ProximityForceLaw,
    clouds: Clouds,
    around: NearShapes,
    force_out: wp.array3d[wp.vec3],
    torque_out: wp.array3d[wp.vec3],
    force_measured: wp.array3d[wp.vec3],
    torque_measured: wp.array3d[wp.vec3],
) -> None:
    env, mount, first = masked_tid(rows)
    is_noisy = force_measured.shape[0] > 0
    count = around.count[env, mount]
    last = wp.min((first + 1) * block, skin.points.shape[0])
    near = wp.uint64(0)  # bits of shapes near any probe; each probe checks further shapes itself
    for k in range(wp.min(count, BITS)):
        row = around.row[env, mount, k]
        local = quat_rotate_inverse(around.quat[env, mount, k], skin.centre - around.pos[env, mount, k])
        if way_to_reach(clouds, row, local, skin.reach) <= skin.span:
            near = near | (wp.uint64(1) << wp.uint64(k))
    if near == wp.uint64(0) and count <= BITS:
        zero = wp.vec3()
        for probe in range(first * block, last):
            force_out[env, mount, probe] = zero
            torque_out[env, mount, probe] = zero
            if is_noisy:
                force_measured[env, mount, probe] = zero
                torque_measured[env, mount, probe] = zero
        return
    for probe in range(first * block, last):
        p = skin.points[probe]
        a = skin.normals[probe]
        radius = skin.radius[probe]
        other = wp.float32(0.0)
        if is_noisy:
            element = mount * skin.points.shape[0] + probe
            other = drawn_radius(rows, env, element, radius, skin.noise, skin.key0, skin.key1)
        true = Nearby()
        drawn = Nearby()
        for k in range(count):
            if k < BITS and (near >> wp.uint64(k)) & wp.uint64(1) == wp.uint64(0):
                continue
            turn = around.quat[env, mount, k]
            local = quat_rotate_inverse(turn, p - around.pos[env, mount, k])
            one, two = over_surface(clouds, around.row[env, mount, k], local, radius, other)
            lin = around.lin[env, mount, k]
            ang = around.ang[env, mount, k]
            if one[3] > 0.0:
                true = _added(true, one, turn, p, lin, ang, a)
            if two[3] > 0.0:
                drawn = _added(drawn, two, turn, p, lin, ang, a)
        force, torque = _pressed(law, env, true, p, a)
        force_out[env, mount, probe] = force
        torque_out[env, mount, probe] = torque
        if is_noisy:
            force_2, torque_2 = _pressed(law, env, drawn, p, a)
            force_measured[env, mount, probe] = force_2
            torque_measured[env, mount, probe] = torque_2


class ProximityTaxel(TaxelSensor[ProximityTaxelCfg, ProximityTaxelData]):
    """Force and torque at taxels on a link, from the area and distance of nearby surfaces."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, BODY_VELOCITY, SHAPES)
    with_motion: ClassVar[bool] = True
    with_inside: ClassVar[bool] = False

    def setup(self) -> None:
        """Collect probes, and distribute points over the sensed shapes."""
        super().setup()
        cfg, device = self.cfg, self.device
        self._law = ProximityForceLaw()
        self._put(self._law, COEFFICIENTS)
        shapes = [self.rays.shapes[i] for i in self._taxels.query.view.shapes]
        samples = _tracked(cfg, shapes, cfg.title, self.compute_on.memory)
        self._samples = [
            SurfaceSamples(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0, np.int32))
            if each is None
            else each.placed(shape.pos, shape.quat)
            for shape, each in zip(shapes, samples, strict=True)
        ]
        area = sum(each.area for each in self._samples)
        self._law.area = area if cfg.reference_area == "tracked" else cfg.reference_area
        self._filed = file_clouds(samples, self._taxels.skin.reach, device)

    @property
    def sample_points(self) -> dict[str, SurfaceSamples]:
        """Points on each shape by its name, with areas, in its body's frame (for static shapes, the world's)."""
        return dict(zip(self._taxels.query.names, self._samples, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return super().nbytes + self._filed.nbytes

    def compute_readings(self, raw: Record, slot: Record | None) -> None:
        """Sum over nearby surfaces (one launch)."""
        taxels = self._taxels
        inputs = [taxels.block, taxels.skin, self._law, self._filed.clouds, taxels.query.around]
        self.compute_on.launch(_compute_taxels, taxels.items, inputs, self._wrenches(raw, slot))


# Clouds ---------------------------------------------------------------------------------------------------------------


def _tracked(cfg: ProximityTaxelCfg, shapes: list[Shape], config: str, memory: Memory) -> list[SurfaceSamples | None]:
    """Return points on each shape in its own frame; None for an unbounded plane."""
    if not shapes:
        fix = "Give exclude_parent_body=False to sense the sensor's own link as well."
        raise ConfigError.single(config, "targets", cfg.targets, "a shape of another link", fix)
    bodies: dict[tuple[int, bool], list[int]] = {}
    for i, shape in enumerate(shapes):
        if shape.kind == "plane" and 0.0 in shape.size:
            _check_plane(cfg, shape, config)
        else:
            bodies.setdefault((shape.row, bool(shape.is_static)), []).append(i)
    areas = {body: sum(surface_area(shapes[i]) for i in rows) for body, rows in bodies.items()}
    whole = sum(areas.values())
    check_points(memory, cfg.sample_spacing, cfg.n_sample_points, whole, config)
    out: list[SurfaceSamples | None] = [None] * len(shapes)
    sparsest, place = 0.0, ""
    for body, rows in bodies.items():
        own = [shapes[i] for i in rows]
        count = None if cfg.sample_spacing else max(1, round(cfg.n_sample_points * areas[body] / whole))
        found = body_samples(own, count=count, spacing=cfg.sample_spacing, keep_covered=True)
        apart = math.sqrt(areas[body] / len(found))
        if apart > sparsest:
            sparsest, place = apart, own[0].name
        for i, part in zip(rows, on_shapes(own, found[~covered(own, found)] if len(own) > 1 else found), strict=True):
            out[i] = part
    radius = float(cfg.radii[cfg.radii > 0.0].min())
    if sparsest > SPARSE * radius:
        warnings.warn(
            f"{config}: n_sample_points: points on {place!r} are {sparsest:.3g} m apart, more than {SPARSE:g} probe "
            f"radii of {radius:.3g} m: a probe may find none. Use sample_spacing={radius / FINE:.2g}, which needs "
            f"{math.ceil(whole / (radius / FINE) ** 2)} points, or track less: targets=...",
            SensoriumWarning,
            stacklevel=2,
        )
    return out


def _check_plane(cfg: ProximityTaxelCfg, plane: Shape, config: str) -> None:
    """Raise `ConfigError` if a plane has no closed-form integral."""
    if any(plane.size):
        expected = f"surfaces with an area; {plane.name!r} is a plane of size {plane.size}, bounded on one axis only"
        fix = f"Give it two half lengths, or none, or exclude it: exclude=({plane.name!r},)."
        raise ConfigError.single(config, "targets", cfg.targets, expected, fix)
    if cfg.reference_area == "tracked":
        expected = f"a number of square metres: {plane.name!r} is an unbounded plane, whose area is infinite"
        fix = f"Give a number or a size of the plane, or exclude it: exclude=({plane.name!r},)."
        raise ConfigError.single(config, "reference_area", "tracked", expected, fix)
