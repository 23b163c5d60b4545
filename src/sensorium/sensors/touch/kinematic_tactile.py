"""Kinematic tactile sensor: force and torque at point taxels on a link, from their depth and relative velocity.

Axes: ``[env, mount, probe, 3]`` (no mount axis for a singular selector); a grid of probes has two axes instead of one.
Frame: that of the parent link (of the mount). Force in N, torque about the link's origin in N m.

A probe is a ball of radius R at p, sd the signed distance from p to the shapes of all other links (negative inside):

    d = max(0, R - sd)        s = d ** normal_exponent        both 0 without contact, and so is the reading
    v = velocity of the probe - velocity of the touched surface, at p          w = the same for angular velocities
    v_n = (v . n) n           v_t = v - v_n
    F = normal_stiffness s n + normal_damping s v_n + shear
    T = p x F + twist_scalar (w . n) n                         shear = shear_scalar v_t + shear_stiffness x_t

n is the outward normal of the probe. F is the force that the skin exerts: along n under pressure, along v_t while
sliding. GeneLab's page prints this formula with the opposite sign throughout, but its example reads +10 N along the
normal for 1000 N/m at 0.01 m. The default follows the example; `on_link=True` reads -F and -T, as printed: force and
torque that the contact exerts on the link.

`surface_normals=True` uses the normal of the touched surface (the gradient of the signed distance) instead, and reads
the opposite force, *on the link*: with m that outward normal and u = -v, F = k s m + b s (u . m) m + shear along u_t,
and the torque likewise. In Genesis the shear and twist of this variant have the opposite sign, as if friction drove a
slide. Here every component resists the motion in both variants, unless `shear_along_motion=True`.

`friction` mu limits the shear to mu F_n and the twist to 2/3 mu F_n a, with F_n >= 0. a is the radius of the circle in
which the surface cuts the ball, a^2 = d (2 R - d) up to a = R. This is the torque at which a flat disc under uniform
pressure slips (K. Johnson, "Contact Mechanics", Cambridge University Press, 1985).

`shear_stiffness` ties the probe to an anchor, the place on the touched body where contact started. x_t is the
tangential distance from it, and the anchor follows where the limit is reached (P. Cundall and O. Strack, "A discrete
numerical model for granular assemblies", Geotechnique 29, 1979). The anchor persists if another shape of the same body
becomes the deepest.

The force is a geometric estimate, not the solver's: it includes shapes that the solver does not let collide. With
`solver_force=True` it is only a pattern: the taxels share the solver's contact force on the link in proportion to their
normal forces, see `solver_share`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import warp as wp
from pydantic import model_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.primitives import MESH
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.solid_around import NearShapes, Shapes
from sensorium.geometry.solids import signed_analytic, signed_distance
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.sensors.core.hooks import Supports
from sensorium.sensors.core.touchable import TOUCHABLE
from sensorium.sensors.touch.solver_share import net_report, share_wrench
from sensorium.sensors.touch.taxel_cfg import NormalTaxelCfg, Resisting
from sensorium.sensors.touch.taxels import Skin, TaxelSensor, drawn_radius
from sensorium.spec import BODY_POSE, BODY_VELOCITY, SHAPES, Field, Requirement
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class KinematicTactileSensorData:
    """One sample of tactile sensors."""

    force: Annotated[Tensor, Field("N", (3,), frame="link", parity="polar")]
    """Force of each probe, N: (tangent x, tangent y, normal) if the link's +z is the probe's normal; 0 without contact.
    With `history_length` H it is `[env, H, ...]` in `data`, newest first."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="link", parity="axial")]
    """Torque of each probe about the link's origin, N m; 0 without contact."""


COEFFICIENTS = {
    "stiffness": "normal_stiffness",
    "damping": "normal_damping",
    "exponent": "normal_exponent",
    "shear": "shear_scalar",
    "twist": "twist_scalar",
    "hold": "shear_stiffness",
    "friction": "friction",
}
"""Config numbers that can be set per env at run time, by their names in `TactileForceLaw`."""


class KinematicTactileSensorCfg(NormalTaxelCfg[KinematicTactileSensorData]):
    """Configuration of a kinematic tactile sensor. Coefficients can be set per env: ``sensor.set("friction", 0.4)``."""

    normal_stiffness: Annotated[Resisting, in_unit("N/m")] = 1000.0
    """Force per depth raised to `normal_exponent`, N/m (N/m^1.5 for an exponent of 1.5)."""
    normal_damping: Resisting = 1.0
    """Force per depth (raised to the exponent) and velocity, N s/m^2 for an exponent of 1."""
    normal_exponent: Annotated[
        Float,
        must(
            lambda e: 1.0 <= e < math.inf,
            "a finite exponent >= 1",
            "Give at least 1; below 1 the initial stiffness is infinite.",
        ),
    ] = 1.0
    """Exponent of the depth: 1 for a linear spring, 1.5 for a Hertz contact; at least 1."""
    shear_scalar: Annotated[Resisting, in_unit("N s/m")] = 1.0
    """Shear force per tangential velocity, N s/m."""
    twist_scalar: Annotated[Resisting, in_unit("N m s")] = 1.0
    """Torque per angular velocity about the normal, N m s, of each probe. Unlimited without `friction`."""
    on_link: bool = False
    """Whether force and torque are those on the link, the opposite of those that the skin exerts. Those of
    `surface_normals` always are."""
    surface_normals: bool = False
    """Whether forces follow the touched surface's normal and act on the link; see the module."""
    shear_along_motion: bool = False
    """Whether shear and twist act along the motion of the link, as if friction drove it; needs `surface_normals`."""
    friction: Resisting | None = None
    """Coulomb friction coefficient mu: the shear is at most mu times the normal force, which then never pulls. The
    twist is at most the torque that a disc of the size of the contact transmits before it slips. None for no limit."""
    shear_stiffness: Annotated[Resisting | None, in_unit("N/m")] = None
    """Shear force per tangential distance from the place of first contact, N/m. None keeps no anchors."""

    solver_force: bool = False
    """Whether the taxels share the solver's net contact force and torque on the mount, a body or a geom, in proportion
    to the normal forces of the model. Their sum is the solver's, friction included, whatever the stiffness is. With
    `targets`, one body or geom, only the contacts with it count."""

    @model_validator(mode="after")
    def _one_kind_of_force(self) -> Any:
        if not self.solver_force:
            return self
        given = [name for name in ("surface_normals", "friction", "shear_stiffness") if getattr(self, name)]
        if given:
            raise bad(f"solver_force: False with {given[0]}", f"Omit {given[0]}, since the solver's force has its own.")
        if self.labels or self.exclude:
            raise bad("solver_force: False with labels or exclude", "Select one object with targets, or omit them.")
        if self.selector[0] not in TOUCHABLE[1]:
            raise bad(f"solver_force: {TOUCHABLE[0]} as mount, not {self.selector[0]}", "Name the body or the geom.")
        return self

    @model_validator(mode="after")
    def _one_kind_of_shear(self) -> Any:
        if self.shear_along_motion and not self.surface_normals:
            raise bad("shear_along_motion: False without surface_normals", "Omit it, or give surface_normals=True.")
        if self.shear_along_motion and (self.friction is not None or self.shear_stiffness is not None):
            raise bad(
                "shear_along_motion: False with friction or shear_stiffness",
                "Omit it, since its shear is viscous only.",
            )
        return self


@wp.struct
class TactileForceLaw:
    """Force law, with one number per env each; see `COEFFICIENTS`.

    Attributes:
        stiffness: N/m.
        damping: N s/m^2.
        exponent: of the depth.
        shear: N s/m.
        twist: N m s.
        hold: stiffness of the anchor, N/m; NaN for no anchor.
        friction: NaN for no limit.
        on_link: 1 for the force on the link, 2 for the same with the surface's normals, 3 for the shear along the
            motion in addition.
    """

    stiffness: wp.array2d[wp.float32]
    damping: wp.array2d[wp.float32]
    exponent: wp.array2d[wp.float32]
    shear: wp.array2d[wp.float32]
    twist: wp.array2d[wp.float32]
    hold: wp.array2d[wp.float32]
    friction: wp.array2d[wp.float32]
    on_link: wp.int32


@wp.func
def _normal_force(
    stiffness: float, damping: float, exponent: float, is_one_way: bool, depth: float, speed: float
) -> wp.float32:
    """Return the force along the normal, N, at a depth, m, and a velocity into the shape, m/s."""
    s = depth
    if exponent != 1.0:
        s = wp.pow(depth, exponent)
    force = s * (stiffness + damping * speed)
    if is_one_way:
        force = wp.max(force, 0.0)
    return force


@wp.func
def _bounded(shear: wp.vec3, bound: float) -> wp.vec3:
    """Return a shear force, or a twist, limited in magnitude; a NaN limit has no effect."""
    size = wp.length(shear)
    if size > bound:
        return shear * (bound / size)
    return shear


@wp.func
def _slip_torque(mu: float, normal: float, depth: float, radius: float) -> wp.float32:
    """Return the torque at which a disc of the size of the contact slips, N m; NaN for a NaN `mu`."""
    inside = wp.min(depth, radius)
    return mu * normal * wp.sqrt(inside * (2.0 * radius - inside)) * 2.0 / 3.0


@wp.func
def _pressed(
    p: wp.vec3, n: wp.vec3, shear: wp.vec3, turning: float, side: float, along: float, mu: float, normal: float,
    depth: float, radius: float,
) -> tuple[wp.vec3, wp.vec3]:  # fmt: skip
    """Return force and torque of a probe, with shear and twist limited."""
    force = side * normal * n + along * _bounded(shear, mu * normal)
    bound = _slip_torque(mu, normal, depth, radius)
    return force, wp.cross(p, force) + along * _bounded(turning * n, bound)


@wp.func
def _on_shape(instances: Instances, before: int, row: int, at: wp.vec3) -> wp.vec3:
    """Return a point, given in one shape's frame, in the frame of another shape of the same body."""
    if before == row:
        return at
    arm = instances.pos[before] - instances.pos[row] + quat_rotate(instances.quat[before], at)
    return quat_rotate_inverse(instances.quat[row], arm)


@kernel(blocks=2)
def _compute_taxels(
    rows: Rows,
    block: int,
    skin: Skin,
    law: TactileForceLaw,
    shapes: Shapes,
    around: NearShapes,
    anchor: wp.array3d[wp.vec4],
    force_out: wp.array3d[wp.vec3],
    torque_out: wp.array3d[wp.vec3],
    force_measured: wp.array3d[wp.vec3],
    torque_measured: wp.array3d[wp.vec3],
) -> None:
    env, mount, first = masked_tid(rows)
    is_noisy = force_measured.shape[0] > 0
    is_held = anchor.shape[0] > 0
    stiffness = law.stiffness[env, 0]
    damping = law.damping[env, 0]
    exponent = law.exponent[env, 0]
    slide = law.shear[env, 0]
    twist = law.twist[env, 0]
    hold = law.hold[env, 0]
    mu = law.friction[env, 0]
    is_one_way = mu >= 0.0  # not NaN
    count = around.count[env, mount]
    for probe in range(first * block, wp.min((first + 1) * block, skin.points.shape[0])):
        p = skin.points[probe]
        radius = skin.radius[probe]
        measured = radius
        if is_noisy:
            element = mount * skin.points.shape[0] + probe
            measured = drawn_radius(rows, env, element, radius, skin.noise, skin.key0, skin.key1)
        force = wp.vec3()
        torque = wp.vec3()
        force_2 = wp.vec3()
        torque_2 = wp.vec3()
        held = wp.vec4()
        least = wp.max(radius, measured)
        near = wp.int32(-1)
        out = wp.vec3()
        if least > 0.0:
            for k in range(count):
                row = around.row[env, mount, k]
                local = quat_rotate_inverse(around.quat[env, mount, k], p - around.pos[env, mount, k])
                distance, _foot, gradient = signed_analytic(
                    shapes.instances.kind[row], shapes.instances.size[row], local
                )
                if shapes.instances.kind[row] >= MESH:
                    distance, _foot, gradient = signed_distance(
                        shapes.instances, shapes.solids, shapes.fields, row, local, wp.max(least, 0.0)
                    )
                if distance < least:
                    least = distance
                    near = k
                    out = gradient
        if near >= 0:
            n = skin.normals[probe]
            side = wp.float32(1.0)
            if law.on_link > 0:
                side = -1.0
            if law.on_link > 1:
                n = -quat_rotate(around.quat[env, mount, near], out)
            along = wp.where(law.on_link == 3, -side, side)
            ang = around.ang[env, mount, near]
            v = -(around.lin[env, mount, near] + wp.cross(ang, p))
            speed = wp.dot(v, n)
            shear = slide * (v - speed * n)
            turning = -twist * wp.dot(ang, n)
            depth = radius - least
            normal = wp.float32(0.0)
            if depth > 0.0:
                normal = _normal_force(stiffness, damping, exponent, is_one_way, depth, speed)
            if is_held and depth > 0.0:
                turn = around.quat[env, mount, near]
                origin = around.pos[env, mount, near]
                row = around.row[env, mount, near]
                last = anchor[env, mount, probe]
                before = wp.int32(last[3]) - 1
                way = wp.vec3()
                if before >= 0 and shapes.instances.body[before] == shapes.instances.body[row]:
                    at = _on_shape(shapes.instances, before, row, wp.vec3(last[0], last[1], last[2]))
                    way = p - (origin + quat_rotate(turn, at))
                    way = way - wp.dot(way, n) * n
                if hold > 0.0:
                    way = _bounded(hold * way, mu * normal) / hold
                at = quat_rotate_inverse(turn, p - way - origin)
                held = wp.vec4(at[0], at[1], at[2], wp.float32(row + 1))
                shear = shear + hold * way
            if depth > 0.0:
                force, torque = _pressed(p, n, shear, turning, side, along, mu, normal, depth, radius)
            depth = measured - least
            if is_noisy and depth > 0.0:
                normal = _normal_force(stiffness, damping, exponent, is_one_way, depth, speed)
                force_2, torque_2 = _pressed(p, n, shear, turning, side, along, mu, normal, depth, measured)
        force_out[env, mount, probe] = force
        torque_out[env, mount, probe] = torque
        if is_noisy:
            force_measured[env, mount, probe] = force_2
            torque_measured[env, mount, probe] = torque_2
        if is_held:
            anchor[env, mount, probe] = held


class KinematicTactileSensor(TaxelSensor[KinematicTactileSensorCfg, KinematicTactileSensorData]):
    """Force and torque at point taxels on a link, from signed distances and relative motion."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, BODY_VELOCITY, SHAPES)
    with_motion: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: KinematicTactileSensorCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return `requires`, and the report of the solver's force if it is shared."""
        return [*super().needs(cfg, names, supports), *([net_report(cfg, names)] if cfg.solver_force else [])]

    def setup(self) -> None:
        """Collect probes, the shapes around them, and the force law."""
        super().setup()
        cfg = self.cfg
        self._law = TactileForceLaw()
        self._put(self._law, COEFFICIENTS)
        surface = 2 if cfg.surface_normals else int(cfg.on_link)
        self._law.on_link = surface + int(cfg.shear_along_motion)
        self._anchor = None
        if cfg.shear_stiffness is not None:
            self._anchor = self.new_state("anchor", (self.mount.count, cfg.num_probes, 4))

    def _visible(self, *, is_measured: bool) -> tuple[KinematicTactileSensorData, dict[str, Tensor]]:
        """Return the measured sample; with a `history_length`, `history` instead: the last samples."""
        if not is_measured or self.cfg.history_length == 0:
            return super()._visible(is_measured=is_measured)
        history = self.history
        return history, {"force": history.force, "torque": history.torque}

    def compute_readings(self, raw: Record, slot: Record | None) -> None:
        """Compute forces and torques (one launch)."""
        taxels = self._taxels
        inputs = [taxels.block, taxels.skin, self._law, taxels.query.shapes, taxels.query.around]
        wrenches = self._wrenches(raw, slot)
        self.compute_on.launch(_compute_taxels, taxels.items, inputs, [self._anchor, *wrenches])
        if self.cfg.solver_force:
            side = 1.0 if self.cfg.on_link else -1.0
            for force, torque in (wrenches[:2], wrenches[2:])[: 1 if slot is None else 2]:
                share_wrench(self, taxels.skin, side, force, torque)
