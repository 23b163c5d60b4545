"""`check_engine` checks an engine against the rules of the engine protocol, each a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sensorium.engines.base import ARRAYS, Engine, FrameOnBody, NameKind, array_sizes
from sensorium.engines.contacts import contact_shape
from sensorium.engines.envs import LONGEST_STEP, SHORTEST_STEP
from sensorium.errors import ArgumentError, SensoriumError, UnknownNameError, UnsupportedError, shown
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    CONTACT_REPORT,
    GRAVITY,
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
_IN_PLACE = "Write into the array: array.copy_(...) or array[...] = ...."


class EngineTrial:
    """Engines under test, and methods to run and compare them.

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
        self._name, self._dt = type(first := make(1)).__name__, first.dt
        self.rule = ""

    def holds(self, rule: str) -> bool:
        """Check a rule by its name and return whether it applies."""
        self.rule = rule
        try:
            applies: bool = getattr(self, rule)()
        except ContractError:
            raise
        except Exception as error:  # whatever a method of the engine raises
            raise self._broken(f"the engine raised {type(error).__name__}: {error}") from error
        return applies

    def need(self, holds: bool, where: str, fix: str = "") -> None:
        """Raise `ContractError` with the text of the current rule if it does not hold."""
        if not holds:
            raise self._broken(where, fix)

    def _broken(self, where: str, fix: str = "") -> ContractError:
        text = (getattr(self, self.rule).__doc__ or "").removesuffix(".")
        return ContractError(f"{self._name}: {text} ({where}). {fix}".rstrip(), self.rule)

    def engine(self, requirements: Mapping[Requirement, str] | None = None) -> Engine:
        """Return a new engine with these requirements, or with all that it supports."""
        engine = self._make(ENVS)
        engine.prepare(self.supported(engine) if requirements is None else requirements)
        engine.refresh()
        return engine

    def supported(self, engine: Engine) -> dict[Requirement, str]:
        """Return the requirements that an engine supports, reports of the contacts of each body included."""
        reports = [report for name in engine.names("body") for report in _reports_of(name)]
        return {each: "check_engine" for each in (*ARRAYS, *reports) if engine.supports(each) is None}

    def arrays(self, engine: Engine) -> Snapshot:
        """Return copies of all arrays of the prepared requirements."""
        names: set[str] = set()
        for requirement in engine.prepared:
            names |= ARRAYS[requirement].keys() if requirement in ARRAYS else {contact_array(requirement)}
        return {name: engine.array(name).clone() for name in sorted(names)}

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

    def same(self, a: Snapshot, b: Snapshot, where: str, fix: str = "", envs: Any = slice(None)) -> None:
        """Raise `ContractError` if arrays differ in any bit; on CUDA, if they differ by more than rounding."""
        for name in a:
            x, y = a[name][envs], b[name][envs]
            holds = equal(x, y) if x.device.type == "cpu" else torch.allclose(x, y, rtol=1e-4, atol=1e-4)
            self.need(holds, f"{name} differs {where}", fix)


class EngineRules(EngineTrial):
    """Each public method is a rule. It returns False if it does not apply, and raises if the rule is broken."""

    # Description ------------------------------------------------------------------------------------------------------

    def describes_itself(self) -> bool:
        """The attributes of a new engine have their types and first values."""
        for count in (1, ENVS):
            engine = self._make(count)
            values = {name: getattr(engine, name) for name in ("name", "num_envs", "dt", "tick", "lag", "owns_time")}
            self.need(values["num_envs"] == count, f"{values} for {count} envs")
            self.need(isinstance(engine.name, str) and engine.name != "", f"{values}")
            self.need(isinstance(engine.dt, float) and SHORTEST_STEP <= engine.dt <= LONGEST_STEP, f"{values}")
            self.need(engine.tick == 0 and engine.lag in (0, 1) and isinstance(engine.owns_time, bool), f"{values}")
            self.need(engine.prepared == frozenset(), f"prepared is {engine.prepared}")
        return True

    def names_are_unambiguous(self) -> bool:
        """Names of a kind are unique texts without reserved words, and an unknown name raises `UnknownNameError`."""
        engine = self.engine()
        for kind in KINDS:
            names = engine.names(kind)
            self.need(isinstance(names, tuple) and names == engine.names(kind), f"names({kind!r})")
            self.need(len(set(names)) == len(names), f"names({kind!r}) are {names}")
            for name in names:
                is_plain = isinstance(name, str) and name.strip() == name != "" and name[0] not in "/{"
                is_free = not name.startswith("sensorium/") and (kind, name) != ("body", "world")
                self.need(is_plain and is_free, f"{kind} {name!r}", "Paths become names by engines.worlds.short_names.")
            try:
                engine.frame(kind, "no such name")
            except UnknownNameError:
                continue
            self.need(False, f"frame({kind!r}, 'no such name') raises nothing")
        joints, scalars, slides = engine.names("joint"), engine.names("scalar_joint"), engine.slide_joints()
        self.need(set(slides) <= set(scalars) <= set(joints), f"joints {joints}, scalar {scalars}, sliding {slides}")
        return True

    def frames_are_on_bodies(self) -> bool:
        """A frame has the row of a body and a unit quaternion; that of a body is its own row, at its origin."""
        engine = self.engine()
        count = len(engine.names("body"))
        for kind in KINDS:
            for row, name in enumerate(engine.names(kind)):
                try:
                    frame = engine.frame(kind, name)
                except SensoriumError:  # a joint may have no frame
                    self.need("joint" in kind, f"frame({kind!r}, {name!r}) raises")
                    continue
                is_unit = abs(float(torch.tensor(frame.quat, device="cpu").norm()) - 1.0) < 1e-5
                is_right = -1 <= frame.body < count and (kind != "body" or frame == FrameOnBody(row))
                self.need(is_unit and is_right, f"frame({kind!r}, {name!r}) is {frame}")
        self.need(engine.frame("body", "world").body == -1, "frame('body', 'world')")
        return True

    def bodies_form_a_tree(self) -> bool:
        """The ancestors of each body end at the world."""
        engine = self.engine()
        names = engine.names("body")
        parents = [engine.parent_body(row) for row in range(len(names))]
        if set(parents) <= {None}:
            return False
        for row, name in enumerate(names):
            above: int | None = row
            for _ in names:
                above = parents[above] if above is not None and 0 <= above < len(names) else above
            self.need(above == -1, f"{name!r}, parents {parents}")
        return True

    def shapes_are_described(self) -> bool:
        """Shapes have unique names and rows of bodies, are the same on each call, and do not move where static."""
        engine = self.engine()
        if engine.supports(SHAPES) is not None:
            return False
        shapes = engine.shapes()
        names = [shape.name for shape in shapes]
        self.need(len(set(names)) == len(names) and names == [each.name for each in engine.shapes()], f"{names}")
        for shape in shapes:
            is_row = -1 <= shape.row < len(engine.names("body"))
            self.need(is_row and (shape.row >= 0 or bool(shape.is_static or shape.fault)), f"{shape}")
            if shape.is_static and shape.row >= 0 and "body_pos_w" in self.run:
                path = torch.cat([self.run[name][:, :, shape.row] for name in ARRAYS[BODY_POSE]], dim=-1)
                self.need(float((path - path[0]).abs().max()) < 1e-6, f"{shape.name!r} is static, and its body moves")
        return True

    # Requirements -----------------------------------------------------------------------------------------------------

    def refuses_by_name(self) -> bool:
        """For an unsupported requirement, `supports` gives a reason, and `prepare` raises and grants nothing."""
        engine = self._make(ENVS)
        unknown = CONTACT_REPORT(("body", (*engine.names("body")[:1], "no such body")))
        lacking = [each for each in ARRAYS if engine.supports(each) is not None]
        for requirement in (*lacking, NATIVE_SENSOR("no such sensor"), unknown):
            self.need(bool(engine.supports(requirement)), f"supports({requirement}) gives no reason")
            before = engine.prepared
            try:
                engine.prepare({BODY_POSE: "first", requirement: "second"})
            except UnsupportedError as error:
                named = all(word in str(error) for word in ("second", requirement.kind, engine.name))
                self.need(named and engine.prepared == before, f"prepare({requirement}): {error}")
            else:
                self.need(False, f"prepare({requirement}) raises nothing")
        return True

    def arrays_are_as_declared(self) -> bool:
        """Every array of a granted requirement is a finite float32 tensor of its shape on the engine's device."""
        engine = self.engine()
        segments = [shape for shape in engine.decorations() if shape.element == "tendon"]
        counts = {
            "body": len(engine.names("body")),
            "joint": len(engine.names("scalar_joint")),
            "segment": len(segments),
        }
        shapes: dict[str, tuple[int, ...]] = {}
        for requirement in engine.prepared:
            if requirement in ARRAYS:
                shapes |= array_sizes(requirement, ENVS, counts)
            else:
                shapes[contact_array(requirement)] = (ENVS, *contact_shape(requirement))
        for name, shape in shapes.items():
            array = engine.array(name)
            self.need(isinstance(array, Tensor), f"{name} is of type {type(array).__name__}")
            is_here = array.device == torch.empty(0, device=engine.device).device
            where = f"{name} is {array.dtype} of shape {tuple(array.shape)} on {array.device}"
            self.need(is_here and array.dtype == torch.float32 and array.shape == shape, where, f"Expected {shape}.")
            self.need(bool(array.isfinite().all()), f"{name} is not finite")
            is_compact = array.shape[-1] < 2 or array.stride(-1) == 1
            self.need(is_compact, f"the last axis of {name} is not contiguous", "Kernels read whole vectors.")
        return True

    def arrays_stay_in_place(self) -> bool:
        """Addresses of arrays never change."""
        engine = self.engine()
        saved = engine.state()
        places = {name: engine.array(name).data_ptr() for name in self.arrays(engine)}
        one = torch.tensor([1], device=engine.device)
        actions: dict[str, Callable[[], object]] = {
            "a tick": lambda: self._advance(engine),
            "forward()": engine.forward,
            "a reset": lambda: engine.reset(one, {}),
            "load_state()": lambda: engine.load_state(saved),
        }
        for what, act in actions.items():
            act()
            engine.refresh()
            for name, place in places.items():
                self.need(engine.array(name).data_ptr() == place, f"{name} after {what}", _IN_PLACE)
        if engine.supports(BODY_POSE) is None:
            engine = self.engine({BODY_POSE: "check_engine"})
            places = {name: engine.array(name).data_ptr() for name in ARRAYS[BODY_POSE]}
            engine.prepare(
                {each: sensor for each, sensor in self.supported(engine).items() if engine.grants_late(each)}
            )
            engine.refresh()
            for name, place in places.items():
                fix = f"{_IN_PLACE} Otherwise grants_late must return False."
                self.need(engine.array(name).data_ptr() == place, f"{name} after a late requirement", fix)
        return True

    # Motion -----------------------------------------------------------------------------------------------------------

    def quaternions_are_unit(self) -> bool:
        """Orientations are unit quaternions."""
        if "body_quat_w" not in self.run:
            return False
        error = float((self.run["body_quat_w"].norm(dim=-1) - 1.0).abs().max())
        self.need(error < 1e-4, f"the norm is off by {error:.2g}")
        return True

    def _follows(self, rate: str, slope: Tensor, rounding: float, fix: str) -> bool:
        """Check rates `[tick, env, item, ...]` against slopes of the changed quantities, by their sums over time.

        Slopes are central differences. An integrator may be off by the change of the rate within a tick.
        """
        rates = self.run[rate].reshape(*self.run[rate].shape[:3], -1)
        slope = slope.reshape(*slope.shape[:3], -1)
        largest = rates.norm(dim=-1).amax(dim=0)
        if max(largest.max(), slope.abs().max()) < 1e-4:
            return False
        change = (rates[1:] - rates[:-1]).norm(dim=-1)
        allowed = 1.5 * torch.maximum(change[1:], change[:-1]) + 0.02 * largest + rounding
        error = (slope - rates[1:-1]).norm(dim=-1)
        excess = error.sum(dim=0) - allowed.sum(dim=0)
        env, item = divmod(int(excess.argmax()), excess.shape[1])
        tick = int(error[:, env, item].argmax())
        got, wanted = _text(rates[tick + 1, env, item]), _text(slope[tick, env, item])
        where = f"{rate} of row {item} in env {env} at tick {tick + 1} is {got}, the difference quotient {wanted}"
        self.need(float(excess.max()) <= 0.0, where, fix)
        return True

    def _is_slope(self, rate: str, name: str, fix: str) -> bool:
        """Check that an array is the derivative of another one; float32 limits the precision."""
        if not {rate, name} <= self.run.keys() or not self.run[name].numel():
            return False
        values = self.run[name]
        slope, rounding = (values[2:] - values[:-2]) / (2.0 * self._dt), 3e-7 * float(values.abs().max()) / self._dt
        return self._follows(rate, slope, rounding, fix)

    def velocities_move_the_bodies(self) -> bool:
        """Linear velocity is the derivative of the position of the body frame origin, in world axes."""
        fix = "BodyState converts velocities at the centre of mass."
        return self._is_slope("body_lin_vel_w", "body_pos_w", fix)

    def angular_velocities_turn_the_bodies(self) -> bool:
        """Angular velocity is the derivative of the orientation (w, x, y, z), in world axes."""
        if not {"body_quat_w", "body_ang_vel_w"} <= self.run.keys():
            return False
        after, before = self.run["body_quat_w"][2:], self.run["body_quat_w"][:-2]
        w = (after * before).sum(dim=-1, keepdim=True)
        turn = before[..., :1] * after[..., 1:] - after[..., :1] * before[..., 1:]
        turn = (turn - torch.linalg.cross(after[..., 1:], before[..., 1:])) * torch.where(w < 0.0, -1.0, 1.0)
        angle = 2.0 * torch.atan2(turn.norm(dim=-1, keepdim=True), w.abs())
        slope = torch.nn.functional.normalize(turn, dim=-1, eps=1e-30) * angle / (2.0 * self._dt)
        fix = "Check the order of the quaternions, and the axes of the velocities."
        return self._follows("body_ang_vel_w", slope, 1e-6 / self._dt, fix)

    def accelerations_change_the_velocities(self) -> bool:
        """Accelerations are the derivatives of the velocities of the body frame origin; a body at rest has 0."""
        fix = "Omit gravity; BodyState converts accelerations at the centre of mass."
        found = [self._is_slope(f"body_{kind}_acc_w", f"body_{kind}_vel_w", fix) for kind in ("lin", "ang")]
        return any(found)

    def joints_move_at_their_velocities(self) -> bool:
        """The velocity of a scalar joint is the derivative of its position."""
        return self._is_slope("joint_vel", "joint_pos", "Order the rows as names('scalar_joint').")

    def free_bodies_obey_newton(self) -> bool:
        """The contact force on a free body is its mass times (its acceleration minus gravity)."""
        engine = self.engine()
        reports = {name: _reports_of(name)[0] for name in self._free}
        if not reports or not {BODY_ACCELERATION, GRAVITY, *reports.values()} <= engine.prepared:
            return False
        for name, mass in self._free.items():
            gravity = self.run["gravity_w"]
            felt = mass * (self.run["body_lin_acc_w"][:, :, engine.frame("body", name).body] - gravity)
            force = self.run[contact_array(reports[name])][:, :, 0, 0, 1:]
            error = (felt - force).norm(dim=-1)
            allowed = 0.02 * torch.maximum(force.norm(dim=-1), mass * gravity.norm(dim=-1)) + 1e-6
            tick, env = divmod(int((error - allowed).argmax()), ENVS)
            pair = f"{_text(felt[tick, env])} N, reported {_text(force[tick, env])} N"
            fix = "A net force acts on the primary, and the force of a ContactList on the second side."
            self.need(bool((error <= allowed).all()), f"{name!r} in env {env} at tick {tick}: {pair}", fix)
        return True

    # Contacts ---------------------------------------------------------------------------------------------------------

    def contact_reports_agree(self) -> bool:
        """The contacts of a body add up to its net force; normals are unit vectors to the secondary; forces press."""
        engine, found = self.engine(), False
        for name in engine.names("body"):
            total, each = _reports_of(name)
            if not {total, each} <= engine.prepared:
                continue
            slots, sums = self.run[contact_array(each)][:, :, 0], self.run[contact_array(total)][:, :, 0, 0]
            columns = contact_columns(each)
            count, force, normal, tangent = (slots[..., part] for part in columns.values())
            taken = torch.arange(SLOTS, device="cpu") < sums[..., :1]
            self.need(bool((count[..., 0] == taken * sums[..., :1]).all()), f"found of {name!r}")
            self.need(bool(((normal.norm(dim=-1) - taken.double()).abs() < 1e-4).all()), f"normals of {name!r}")
            scale = float(sums[..., 1:].norm(dim=-1).max())
            fix = (
                "Normals point from the primary to the secondary; in a ContactList, from the first to the second side."
            )
            self.need(float(force[..., 0].min()) >= -1e-4 * scale, f"{name!r} is pulled", fix)
            axes = torch.stack([normal, tangent, torch.linalg.cross(normal, tangent)], dim=-1)
            error = (axes @ force[..., None])[..., 0].sum(dim=2) + sums[..., 1:]
            most = float((error.norm(dim=-1) * (sums[..., 0] <= SLOTS)).max())
            fix = "The primary feels the negative of the force in a slot."
            self.need(most <= 1e-3 * scale + 1e-9, f"forces on {name!r} differ by {most:.3g} of {scale:.3g} N", fix)
            found = found or scale > 0.0
        return found

    # Time -------------------------------------------------------------------------------------------------------------

    def ticks_are_counted(self) -> bool:
        """`tick` counts steps only, and a step of 4 ticks has the result of 4 steps."""
        one = self.engine()
        last = self.shots(one, 4)[-1]
        self.need(one.tick == 4, f"the tick is {one.tick} after 4 ticks")
        for what, act in (("forward()", one.forward), ("a reset", lambda: one.reset(None, {}))):
            act()
            self.need(one.tick == 4, f"the tick is {one.tick} after 4 ticks and {what}", "Count in step() alone.")
        if one.owns_time:
            many = self.engine()
            many.step(None, 4)
            many.refresh()
            self.need(many.tick == 4, f"the tick is {many.tick} after step(substeps=4)")
            self.same(last, self.arrays(many), "after step(substeps=4)", "Repeat the whole tick `substeps` times.")
        return True

    def reading_changes_nothing(self) -> bool:
        """Neither a refresh nor more requirements nor captured graphs change values; nor does a second refresh."""
        engine, other = self.engine(), self.engine({BODY_POSE: "check_engine"})
        if not engine.owns_time:
            return False
        engine.capture(True)
        other.capture(False)
        for _ in range(6):
            self._advance(engine)
            self._advance(other)
            engine.refresh()
            before = self.arrays(engine)
            engine.refresh()
            self.same(before, self.arrays(engine), "after a second refresh()")
        other.refresh()
        self.same(self.arrays(other), before, "with more requirements or without captured graphs")
        return True

    def state_is_of_one_instant(self) -> bool:
        """With `lag` 0 all arrays are current, so that `forward()` changes none; with `lag` 1 they are a tick old."""
        engine = self.engine()
        engine.forward()
        engine.refresh()
        current = self.arrays(engine)
        for _ in range(self._ticks):
            before = current
            self._advance(engine)
            engine.refresh()
            shown, lag = self.arrays(engine), engine.lag
            self.need(lag in (0, 1), f"lag is {lag}")
            engine.forward()
            engine.refresh()
            current = self.arrays(engine)
            for name, right in (before if lag else current).items():
                if right.numel():
                    error, scale = float((shown[name] - right).abs().max()), float(shown[name].abs().max())
                    self.need(error <= 3e-4 * scale, f"{name} is off by {error:.3g}", f"Or declare lag = {1 - lag}.")
        return True

    def reset_leaves_the_others(self) -> bool:
        """A reset of one env, by index or by mask, or of none leaves the others unchanged, at once and later."""
        fix = "engines.envs.env_rows(env_ids, num_envs) returns the selected rows."
        masks = [torch.tensor([False, is_reset, False], device="cpu") for is_reset in (True, False)]
        for ids in (torch.tensor([1], device="cpu"), *masks):
            engine, twin = self.engine(), self.engine()
            self.shots(engine, 3)
            self.shots(twin, 3)
            engine.reset(ids.to(engine.device), {})
            engine.refresh()
            pairs = zip(
                [self.arrays(twin), *self.shots(twin, 3)], [self.arrays(engine), *self.shots(engine, 3)], strict=True
            )
            for ticks, (a, b) in enumerate(pairs):
                self.same(a, b, f"{ticks} ticks after reset({ids.tolist()})", fix, [0, 2])
        return True

    def a_reset_starts_anew(self) -> bool:
        """A reset environment has the state of a new engine, and None resets all."""
        engine = self.engine()
        if not engine.owns_time:
            return False
        start, fix = self.arrays(engine), "Reset the whole state, and let the next refresh() compute these rows again."
        for ids, envs in ((torch.tensor([1], device=engine.device), [1]), (None, slice(None))):
            self.shots(engine, 5)
            engine.reset(ids, {})
            engine.refresh()
            self.same(start, self.arrays(engine), f"after reset({'None' if ids is None else [1]})", fix, envs)
        return True

    def reset_writes_the_state(self) -> bool:
        """A reset with a field that the state does not have raises an error."""
        engine = self.engine()
        try:
            engine.reset(None, {"no such field": torch.zeros(ENVS, device=engine.device)})
        except Exception:  # whatever an engine raises for it
            return True
        self.need(
            False, "reset(None, {'no such field': ...}) raises nothing", "engines.envs.row_values checks the names."
        )
        return False

    def resuming_is_exact(self) -> bool:
        """A new engine that loads a saved state, which is a copy, continues with the same bits."""
        engine, fresh = self.engine(), self.engine()
        if not engine.owns_time:
            return False
        self.shots(engine, 3)
        saved, now = engine.state(), self.arrays(engine)
        later = self.shots(engine, 4)
        fresh.load_state(saved)
        fresh.refresh()
        self.need(fresh.tick == 3, f"the tick is {fresh.tick} instead of 3")
        for ticks, (a, b) in enumerate(zip([now, *later], [self.arrays(fresh), *self.shots(fresh, 4)], strict=True)):
            self.same(a, b, f"{ticks} ticks after load_state()")
        return True


def _reports_of(body: str) -> tuple[Requirement, Requirement]:
    """Return the reports of the net force on a body, and of each of its contacts."""
    primary, fields = ("body", (body,)), ("found", "force", "normal", "tangent")
    return CONTACT_REPORT(primary, None, fields[:2], "netforce"), CONTACT_REPORT(primary, None, fields, "none", SLOTS)


RULES = tuple(name for name in vars(EngineRules) if not name.startswith("_"))
"""Names of all rules, in their order."""


def _text(vector: Tensor) -> str:
    return "(" + ", ".join(f"{float(value):.4g}" for value in vector) + ")"


def check_engine(
    engine: EngineFactory,
    *,
    advance: Callable[[Engine], object] | None = None,
    free: Mapping[str, float] | None = None,
    ticks: int = 40,
) -> list[str]:
    """Check an engine against the protocol and return the names of the checked rules.

    Rules without a subject are not checked, such as those about velocities if nothing moves.

    Args:
        engine: function that creates the engine for a number of envs, or its class. Let bodies move and touch.
        advance: function that advances an engine by one tick; by default `engine.step()`. Engines around a loop of the
            user need it.
        free: bodies that only gravity and contacts act on, and whose frame origin is their centre of mass, each with
            its mass, kg; enables the rule about gravity and contact forces.
        ticks: ticks of the run in which motion is checked.

    Raises:
        ContractError: a rule is broken, or the engine raises an error while a rule is checked.
        ArgumentError: `engine` is not a function.
    """
    if not callable(engine):
        raise ArgumentError(f"engine: got {shown(engine)}, expected a function of the number of envs: lambda n: ....")
    rules = EngineRules(engine, advance or (lambda each: each.step()), free or {}, ticks)
    return [rule for rule in RULES if rules.holds(rule)]
