"""The rules of the engine protocol, each a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sensorium.engines.base import ARRAYS, Engine, NameKind, array_sizes
from sensorium.engines.envs import LONGEST_STEP, SHORTEST_STEP
from sensorium.errors import SensoriumError, UnknownNameError, UnsupportedError
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    CONTACT_REPORT,
    GRAVITY,
    JOINT_STATE,
    NATIVE_SENSOR,
    SHAPES,
    Requirement,
    contact_array,
    contact_columns,
)
from sensorium.testing.engine import EngineFactory
from sensorium.testing.trial import ContractError, equal

Snapshot = dict[str, Tensor]
KINDS: tuple[NameKind, ...] = ("body", "site", "geom", "joint", "scalar_joint", "camera")
"""Kinds of names with a frame."""
ENVS = 3
SLOTS = 16
"""Slots of a report that shows every contact of a body."""


class EngineRules:
    """Each method returns False if it does not apply, and raises `ContractError` if the rule is broken.

    Args:
        make: function that creates the engine for a number of envs, with moving bodies.
        advance: function that advances an engine by one tick.
        free: mass of each body that moves freely and whose frame origin is its centre of mass, kg.
        ticks: ticks per run.
    """

    def __init__(
        self, make: EngineFactory, advance: Callable[[Engine], object], free: Mapping[str, float], ticks: int
    ) -> None:
        self._make, self._advance, self._free, self._ticks = make, advance, dict(free), ticks
        self.law = ""

    @property
    def all(self) -> tuple[Callable[[], bool], ...]:
        """All rules, in their order."""
        return (
            self.describes_itself,
            self.names_are_unambiguous,
            self.frames_are_on_bodies,
            self.bodies_form_a_tree,
            self.shapes_are_described,
            self.refuses_by_name,
            self.arrays_are_as_declared,
            self.arrays_stay_in_place,
            self.quaternions_are_unit,
            self.velocities_move_the_bodies,
            self.angular_velocities_turn_the_bodies,
            self.accelerations_change_the_velocities,
            self.joints_move_at_their_velocities,
            self.free_bodies_obey_newton,
            self.contact_reports_agree,
            self.ticks_are_counted,
            self.reading_changes_nothing,
            self.state_is_of_one_instant,
            self.reset_leaves_the_others,
            self.a_reset_starts_anew,
            self.resuming_is_exact,
        )

    def need(self, holds: bool, law: str, where: str, fix: str = "") -> None:
        """Raise `ContractError` if the rule does not hold."""
        if not holds:
            raise ContractError(f"{type(self.engine()).__name__}: {law} ({where}). {fix}".rstrip(), self.law)

    def engine(self, requirements: Mapping[Requirement, str] | None = None) -> Engine:
        """Return a new engine with these requirements, or with all that it supports."""
        engine = self._make(ENVS)
        engine.prepare(self.supported(engine) if requirements is None else requirements)
        engine.refresh()
        return engine

    def supported(self, engine: Engine) -> dict[Requirement, str]:
        """Return the requirements that an engine supports, reports of the contacts of each body included."""
        wanted = [*ARRAYS, *self._reports(engine)]
        return {each: "check_engine" for each in wanted if engine.supports(each) is None}

    def _reports(self, engine: Engine) -> list[Requirement]:
        return [report for name in engine.names("body") for report in _reports_of(name)]

    def arrays(self, engine: Engine) -> Snapshot:
        """Return copies of all arrays of the prepared requirements."""
        return {name: engine.array(name).clone() for name in sorted(_names(engine.prepared))}

    def shots(self, engine: Engine, ticks: int) -> list[Snapshot]:
        """Return the arrays after each tick."""
        found = []
        for _ in range(ticks):
            self._advance(engine)
            engine.refresh()
            found.append(self.arrays(engine))
        return found

    @cached_property
    def run(self) -> dict[str, Tensor]:
        """Arrays over time `[tick, env, ...]`, from the start."""
        engine = self.engine()
        shots = [self.arrays(engine), *self.shots(engine, self._ticks)]
        return {name: torch.stack([shot[name] for shot in shots]).double().cpu() for name in shots[0]}

    def same(self, a: Snapshot, b: Snapshot, law: str, where: str, fix: str = "", envs: Any = slice(None)) -> None:
        """Raise `ContractError` if arrays differ in any bit; on CUDA, if they differ by more than rounding."""
        for name in a:
            x, y = a[name][envs], b[name][envs]
            holds = equal(x, y) if x.device.type == "cpu" else torch.allclose(x, y, rtol=1e-4, atol=1e-4)
            self.need(holds, law, f"{where}, {name}", fix)

    # Description ------------------------------------------------------------------------------------------------------

    def describes_itself(self) -> bool:
        """The attributes have their types, and the number of environments is as requested."""
        for count in (1, ENVS):
            engine = self._make(count)
            law = "an engine describes itself"
            self.need(engine.num_envs == count, law, f"num_envs is {engine.num_envs} of {count}")
            self.need(isinstance(engine.name, str) and engine.name != "", law, f"name is {engine.name!r}")
            is_step = isinstance(engine.dt, float) and SHORTEST_STEP <= engine.dt <= LONGEST_STEP
            self.need(is_step, law, f"dt is {engine.dt!r}")
            self.need(engine.tick == 0 and engine.lag in (0, 1), law, f"tick {engine.tick!r}, lag {engine.lag!r}")
            self.need(isinstance(engine.owns_time, bool), law, f"owns_time is {engine.owns_time!r}")
            self.need(engine.prepared == frozenset(), law, "prepared is not empty")
        return True

    def names_are_unambiguous(self) -> bool:
        """Names of a kind are unique texts without reserved words, and an unknown name is rejected."""
        engine = self.engine()
        for kind in KINDS:
            names, law = engine.names(kind), f"names of each {kind} are unambiguous"
            self.need(isinstance(names, tuple) and names == engine.names(kind), law, f"names({kind!r})")
            self.need(len(set(names)) == len(names), law, f"{names} repeat")
            for name in names:
                is_plain = isinstance(name, str) and name.strip() == name != "" and name[0] not in "/{"
                fix = "Use short names, see sensorium.engines.worlds.short_names."
                self.need(is_plain and not name.startswith("sensorium/"), law, f"{name!r}", fix)
            self.need(kind != "body" or "world" not in names, law, "'world' is a body", "The world is row -1.")
            try:
                engine.frame(kind, "no such name")
            except UnknownNameError:
                continue
            self.need(False, "an unknown name raises UnknownNameError", f"frame({kind!r}, 'no such name')")
        joints, scalars, slides = engine.names("joint"), engine.names("scalar_joint"), engine.slide_joints()
        law = "scalar joints are joints, and slides are scalar joints"
        self.need(set(slides) <= set(scalars) <= set(joints), law, f"{joints}, {scalars}, {slides}")
        return True

    def frames_are_on_bodies(self) -> bool:
        """A frame names a row of a body, with a unit quaternion; that of a body is its own row, at its origin."""
        engine, law = self.engine(), "a frame is fixed to a body"
        count = len(engine.names("body"))
        for kind in KINDS:
            for row, name in enumerate(engine.names(kind)):
                try:
                    frame = engine.frame(kind, name)
                except SensoriumError:  # a joint may have no frame
                    self.need("joint" in kind, law, f"frame({kind!r}, {name!r}) raises")
                    continue
                where = f"frame({kind!r}, {name!r}) is {frame}"
                self.need(-1 <= frame.body < count, law, where, "Give the row of a body in names('body'), or -1.")
                self.need(abs(float(torch.tensor(frame.quat).norm()) - 1.0) < 1e-5, law, where, "Normalise quat.")
                at_origin = frame.pos == (0.0, 0.0, 0.0) and frame.quat == (1.0, 0.0, 0.0, 0.0)
                self.need(kind != "body" or (frame.body == row and at_origin), law, where)
        self.need(engine.frame("body", "world").body == -1, law, "frame('body', 'world')")
        return True

    def bodies_form_a_tree(self) -> bool:
        """Every body has a parent, and its ancestors end at the world; or no body has one."""
        engine = self.engine()
        count = len(engine.names("body"))
        parents = [engine.parent_body(row) for row in range(count)]
        if not count or parents == [None] * count:
            return False
        for row, name in enumerate(engine.names("body")):
            above: int | None = row
            for _ in range(count):
                above = parents[above] if above is not None and 0 <= above < count else above
            self.need(above == -1, "the ancestors of a body end at the world", f"{name!r}, parents {parents}")
        return True

    def shapes_are_described(self) -> bool:
        """Shapes have unique names and rows of bodies, and are the same on each call."""
        engine = self.engine()
        if engine.supports(SHAPES) is not None:
            return False
        shapes, law = engine.shapes(), "shapes are described once"
        names = [shape.name for shape in shapes]
        self.need(len(set(names)) == len(names), law, f"{names} repeat")
        self.need(names == [shape.name for shape in engine.shapes()], law, "shapes() differs between two calls")
        for shape in shapes:
            is_row = -1 <= shape.row < len(engine.names("body"))
            self.need(is_row and (shape.row >= 0 or bool(shape.is_static or shape.fault)), law, f"{shape}")
        return True

    # Requirements -----------------------------------------------------------------------------------------------------

    def refuses_by_name(self) -> bool:
        """An unsupported requirement is refused with its reason, together with all that are prepared with it."""
        engine = self._make(ENVS)
        names = engine.names("body") or ("body",)
        unknown = CONTACT_REPORT(("body", (*names[:1], "no such body")))
        law = "an unsupported requirement is refused"
        refused = [each for each in ARRAYS if engine.supports(each) is not None]
        for requirement in (*refused, NATIVE_SENSOR("no such sensor"), unknown):
            reason = engine.supports(requirement)
            fix = "Return the reason and the fix from supports(); never grant what reads zero."
            self.need(isinstance(reason, str) and reason.strip() != "", law, f"supports({requirement})", fix)
            before = engine.prepared
            try:
                engine.prepare({BODY_POSE: "first", requirement: "second"})
            except UnsupportedError as error:
                named = all(word in str(error) for word in ("second", requirement.kind, engine.name))
                self.need(named and engine.prepared == before, law, f"prepare({requirement}): {error}")
            else:
                self.need(False, law, f"prepare({requirement}) raises nothing", fix)
        return True

    def arrays_are_as_declared(self) -> bool:
        """Every array of a granted requirement is float32 of its shape on the engine's device, and finite."""
        engine, law = self.engine(), "an array has its shape and type"
        counts = {"body": len(engine.names("body")), "joint": len(engine.names("scalar_joint"))}
        for requirement in engine.prepared & ARRAYS.keys():
            for name, shape in array_sizes(requirement, ENVS, counts).items():
                array = engine.array(name)
                where = f"{name}: {array.dtype} of shape {tuple(array.shape)} on {array.device}"
                is_right = array.dtype == torch.float32 and tuple(array.shape) == shape
                is_here = array.device == torch.empty(0, device=engine.device).device
                self.need(is_right and is_here, law, where, f"Expected float32 of shape {shape} on {engine.device}.")
                self.need(bool(array.isfinite().all()), law, f"{name} is not finite")
        for report in filter(_is_contact, engine.prepared):
            (_, names), _, _, _, slots = report.args
            columns = sum(part.stop - part.start for part in contact_columns(report).values())
            array = engine.array(contact_array(report))
            is_right = tuple(array.shape) == (ENVS, len(names), slots, columns) and array.dtype == torch.float32
            self.need(is_right, law, f"{report}: {array.dtype} of shape {tuple(array.shape)}")
        return True

    def arrays_stay_in_place(self) -> bool:
        """Addresses of arrays never change."""
        engine = self.engine()
        saved = engine.state()
        places = {name: engine.array(name).data_ptr() for name in _names(engine.prepared)}

        def check(after: str) -> None:
            engine.refresh()
            for name, place in places.items():
                fix = "Write into the array: array.copy_(...) or array[...] = ...."
                self.need(engine.array(name).data_ptr() == place, "an array stays in place", f"{name} {after}", fix)

        check("after refresh()")
        self._advance(engine)
        check("after a tick")
        engine.forward()
        check("after forward()")
        engine.reset(torch.tensor([1], device=engine.device), {})
        check("after a reset")
        engine.load_state(saved)
        check("after load_state()")
        return True

    # Motion -----------------------------------------------------------------------------------------------------------

    def quaternions_are_unit(self) -> bool:
        """Orientations are unit quaternions."""
        if "body_quat_w" not in self.run:
            return False
        error = (self.run["body_quat_w"].norm(dim=-1) - 1.0).abs().max()
        self.need(float(error) < 1e-4, "an orientation is a unit quaternion", f"the norm is off by {float(error):.2g}")
        return True

    def _follows(self, rate: Tensor, slope: Tensor, rounding: float, law: str, what: str, fix: str) -> bool:
        """Check rates `[tick, env, item, ...]` against slopes of what they change, by their sums over time.

        Slopes are central differences. An integrator may be off by the change of the rate within a tick.
        """
        shape = (*rate.shape[:3], -1)
        rate, slope = rate.reshape(shape), slope.reshape(*slope.shape[:3], -1)
        largest = rate.norm(dim=-1).amax(dim=0)
        if float(largest.max()) < 1e-4 and float(slope.abs().max()) < 1e-4:
            return False
        change = (rate[1:] - rate[:-1]).norm(dim=-1)
        allowed = 1.5 * torch.maximum(change[1:], change[:-1]) + 0.02 * largest + rounding
        excess = (slope - rate[1:-1]).norm(dim=-1).sum(dim=0) - allowed.sum(dim=0)
        env, item = divmod(int(excess.argmax()), excess.shape[1])
        tick = int((slope - rate[1:-1]).norm(dim=-1)[:, env, item].argmax())
        got, wanted = rate[tick + 1, env, item].tolist(), slope[tick, env, item].tolist()
        where = f"{what} {item} of env {env} at tick {tick + 1}: {_text(got)}, but the difference is {_text(wanted)}"
        self.need(float(excess.max()) <= 0.0, law, where, fix)
        return True

    def _slope(self, name: str) -> tuple[Tensor, float]:
        """Return the central differences of an array, and the error that float32 leaves in them."""
        values, dt = self.run[name], self._dt
        return (values[2:] - values[:-2]) / (2.0 * dt), 3e-7 * float(values.abs().max()) / dt

    @cached_property
    def _dt(self) -> float:
        return self._make(1).dt

    def velocities_move_the_bodies(self) -> bool:
        """Linear velocity is the derivative of the position of the body frame origin, in world axes."""
        if not {"body_pos_w", "body_lin_vel_w"} <= self.run.keys():
            return False
        fix = "Give velocities in world axes, at the frame origin; BodyState converts those at the centre of mass."
        law = "linear velocity moves the frame origin"
        return self._follows(self.run["body_lin_vel_w"], *self._slope("body_pos_w"), law, "body", fix)

    def angular_velocities_turn_the_bodies(self) -> bool:
        """Angular velocity is the derivative of the orientation (w, x, y, z), in world axes."""
        if not {"body_quat_w", "body_ang_vel_w"} <= self.run.keys():
            return False
        quat = self.run["body_quat_w"]
        after, before = quat[2:], quat[:-2]
        w = (after * before).sum(dim=-1, keepdim=True)
        turn = before[..., :1] * after[..., 1:] - after[..., :1] * before[..., 1:]
        turn = (turn - torch.linalg.cross(after[..., 1:], before[..., 1:])) * torch.where(w < 0.0, -1.0, 1.0)
        angle = 2.0 * torch.atan2(turn.norm(dim=-1, keepdim=True), w.abs())
        slope = torch.nn.functional.normalize(turn, dim=-1, eps=1e-30) * angle / (2.0 * self._dt)
        fix = "Give quaternions in the order w, x, y, z, and angular velocities in world axes."
        law = "angular velocity turns the body"
        return self._follows(self.run["body_ang_vel_w"], slope, 1e-6 / self._dt, law, "body", fix)

    def accelerations_change_the_velocities(self) -> bool:
        """Linear and angular acceleration are the derivatives of the velocities; a body at rest has 0."""
        found = False
        for kind in ("lin", "ang"):
            name, rate = f"body_{kind}_vel_w", f"body_{kind}_acc_w"
            if {name, rate} <= self.run.keys():
                fix = "Give coordinate acceleration at the frame origin, without gravity for a body at rest."
                law = f"{rate} is the derivative of {name}"
                found = self._follows(self.run[rate], *self._slope(name), law, "body", fix) or found
        return found

    def joints_move_at_their_velocities(self) -> bool:
        """The velocity of a scalar joint is the derivative of its position."""
        if JOINT_STATE not in self.engine().prepared or not self.run["joint_pos"].shape[2]:
            return False
        fix = "Order the rows as names('scalar_joint')."
        law = "joint_vel is the derivative of joint_pos"
        return self._follows(self.run["joint_vel"], *self._slope("joint_pos"), law, "joint", fix)

    def free_bodies_obey_newton(self) -> bool:
        """The contact forces on a free body are its mass times its acceleration less gravity, in sign and size."""
        engine = self.engine()
        reports = {name: _reports_of(name)[0] for name in self._free}
        wanted = {BODY_ACCELERATION, GRAVITY, *reports.values()}
        if not self._free or not wanted <= engine.prepared:
            return False
        for name, mass in self._free.items():
            row = engine.frame("body", name).body
            felt = mass * (self.run["body_lin_acc_w"][:, :, row] - self.run["gravity_w"])
            force = self.run[contact_array(reports[name])][:, :, 0, 0, 1:]
            error = (felt - force).norm(dim=-1)
            scale = torch.maximum(force.norm(dim=-1), mass * self.run["gravity_w"].norm(dim=-1))
            tick, env = divmod(int((error - 0.02 * scale).argmax()), ENVS)
            pair = f"{_text(felt[tick, env])} N, reported {_text(force[tick, env])} N"
            where = f"{name!r} in env {env} at tick {tick}: {pair}"
            fix = "Give gravity_w as the acceleration of a falling body, and the force that acts on the primary."
            law = "mass times acceleration less gravity is the contact force"
            self.need(bool((error <= 0.02 * scale + 1e-6).all()), law, where, fix)
        return True

    # Contacts ---------------------------------------------------------------------------------------------------------

    def contact_reports_agree(self) -> bool:
        """The contacts of a body, turned by their frames, sum up to its net force; normals are unit; forces press."""
        engine, found = self.engine(), False
        for name in engine.names("body"):
            total, each = _reports_of(name)
            if not {total, each} <= engine.prepared:
                continue
            columns = contact_columns(each)
            slots, sums = self.run[contact_array(each)][:, :, 0], self.run[contact_array(total)][:, :, 0, 0]
            count, force, normal, tangent = (
                slots[..., columns[key]] for key in ("found", "force", "normal", "tangent")
            )
            taken = torch.arange(SLOTS) < count[:, :, :1, 0]
            law, where = "contact reports agree", f"contacts of {name!r}"
            self.need(
                bool((count[..., 0] == torch.where(taken, sums[..., None, 0], 0.0)).all()), law, f"found, {where}"
            )
            self.need(bool(((normal.norm(dim=-1) - taken.double()).abs() < 1e-4).all()), law, f"normal, {where}")
            scale = float(sums[..., 1:].norm(dim=-1).max())
            self.need(float(force[..., 0].min()) >= -1e-4 * scale, law, f"negative pressure, {where}")
            axes = torch.stack([normal, tangent, torch.linalg.cross(normal, tangent)], dim=-1)
            summed = -(axes @ force[..., None])[..., 0].sum(dim=2)
            error = float(((summed - sums[..., 1:]).norm(dim=-1) * (sums[..., 0] <= SLOTS)).max())
            fix = "The normal points from the primary to the secondary, and the primary feels the negative force."
            self.need(error <= 1e-3 * scale + 1e-9, law, f"force, {where}: off by {error:.3g} of {scale:.3g} N", fix)
            found = found or scale > 0.0
        return found

    # Time -------------------------------------------------------------------------------------------------------------

    def ticks_are_counted(self) -> bool:
        """A step of several ticks has the result of as many steps of one tick, and `tick` counts them."""
        one, many = self.engine(), self.engine()
        last = self.shots(one, 4)[-1]
        self.need(one.tick == 4, "tick counts the steps", f"{one.tick} after 4 ticks")
        if not one.owns_time:
            return True
        many.step(None, 4)
        many.refresh()
        self.need(many.tick == 4, "tick counts the steps", f"{many.tick} after step(substeps=4)")
        self.same(last, self.arrays(many), "a step of 4 ticks is 4 steps", "step(substeps=4)")
        return True

    def reading_changes_nothing(self) -> bool:
        """Neither a refresh nor more requirements change the physics; a second refresh changes no array."""
        engine = self.engine()
        if not engine.owns_time or BODY_POSE not in engine.prepared:
            return False
        law = "reading changes nothing"
        for _ in range(6):
            self._advance(engine)
            engine.refresh()
            before = self.arrays(engine)
            engine.refresh()
            self.same(before, self.arrays(engine), law, "a second refresh()")
        other = self.engine({BODY_POSE: "check_engine"})
        for _ in range(6):
            self._advance(other)
        other.refresh()
        poses = self.arrays(other)
        self.same(poses, {name: before[name] for name in poses}, law, "with and without further requirements")
        return True

    def state_is_of_one_instant(self) -> bool:
        """With `lag` 0, `forward()` after a refresh changes nothing: all arrays are of the current tick."""
        engine = self.engine()
        for _ in range(self._ticks):
            self._advance(engine)
            engine.refresh()
            if engine.lag:
                return False
            before = self.arrays(engine)
            engine.forward()
            engine.refresh()
            for name, array in self.arrays(engine).items():
                error = float((array - before[name]).abs().max()) if array.numel() else 0.0
                scale = float(before[name].abs().max()) if array.numel() else 0.0
                fix = "Compute all derived state from the state after the step, or declare lag = 1 for all of it."
                law = "all state is of one instant"
                self.need(error <= 3e-4 * scale, law, f"{name} changes by {error:.3g} in forward()", fix)
        return True

    def reset_leaves_the_others(self) -> bool:
        """A reset of env 1, by index or by mask, leaves the other envs as they are, at once and later."""
        law, others = "a reset leaves the other envs as they are", [0, 2]
        for form in ("indices", "mask"):
            engine, twin = self.engine(), self.engine()
            self.shots(engine, 3)
            self.shots(twin, 3)
            ids = torch.tensor([1]) if form == "indices" else torch.tensor([False, True, False])
            engine.reset(ids.to(engine.device), {})
            engine.refresh()
            self.same(self.arrays(twin), self.arrays(engine), law, f"at once, by {form}", envs=others)
            for a, b in zip(self.shots(twin, 3), self.shots(engine, 3), strict=True):
                self.same(a, b, law, f"later, by {form}", envs=others)
        return True

    def a_reset_starts_anew(self) -> bool:
        """A reset environment has the state of a new engine, and `None` resets all."""
        engine = self.engine()
        if not engine.owns_time:
            return False
        start = self.arrays(engine)
        for ids, envs in ((torch.tensor([1], device=engine.device), [1]), (None, slice(None))):
            self.shots(engine, 5)
            engine.reset(ids, {})
            engine.refresh()
            law = "a reset starts anew"
            self.same(start, self.arrays(engine), law, f"reset({'None' if ids is None else '[1]'})", envs=envs)
        return True

    def resuming_is_exact(self) -> bool:
        """A new engine that loads a state continues with the same bits, and `state()` is a copy."""
        engine = self.engine()
        if not engine.owns_time:
            return False
        self.shots(engine, 3)
        saved, now = engine.state(), self.arrays(engine)
        later = self.shots(engine, 4)
        fresh = self.engine()
        fresh.load_state(saved)
        fresh.refresh()
        law = "resuming from a state is exact"
        self.need(fresh.tick == 3, law, f"the tick is {fresh.tick} instead of 3")
        self.same(now, self.arrays(fresh), law, "at once", "Save everything that a step reads, as copies.")
        for a, b in zip(later, self.shots(fresh, 4), strict=True):
            self.same(a, b, law, "later", "Save everything that a step reads, as copies.")
        return True


def _reports_of(body: str) -> tuple[Requirement, Requirement]:
    """Return the reports of the net force on a body, and of each of its contacts."""
    primary, fields = ("body", (body,)), ("found", "force", "normal", "tangent")
    return CONTACT_REPORT(primary, None, fields[:2], "netforce"), CONTACT_REPORT(primary, None, fields, "none", SLOTS)


def _is_contact(requirement: Requirement) -> bool:
    return requirement.kind == "CONTACT_REPORT"


def _names(prepared: frozenset[Requirement]) -> set[str]:
    """Return the names of the arrays of requirements."""
    arrays = {name for requirement in prepared & ARRAYS.keys() for name in ARRAYS[requirement]}
    return arrays | {contact_array(report) for report in filter(_is_contact, prepared)}


def _text(vector: Any) -> str:
    return "(" + ", ".join(f"{float(value):.4g}" for value in vector) + ")"


__all__ = ["EngineRules"]
