"""`check_engine`: engines keep the protocol, and an engine that breaks one rule is found by that rule alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import sensorium as sn
from sensorium.engines.envs import env_rows
from sensorium.errors import ArgumentError
from sensorium.testing import ContractError, check_engine, tumbling_engine
from sensorium.testing.engine_rules import RULES, EngineRules

PAGE = (Path(__file__).parents[2] / "docs/extending_engines.md").read_text(encoding="utf-8")
SPHERE = sn.engines.Shape("sphere", "ball", (0.1,), body=1)


def toys() -> Any:
    """Return the engine of the manual, with shapes."""
    block = next(text for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S) if "class Toys(" in text)
    names: dict[str, Any] = {}
    exec(block.partition("\ncheck_engine(")[0], names)
    toys = names["Toys"]

    class Shaped(toys):  # type: ignore[valid-type, misc]
        def shapes(self) -> tuple[sn.engines.Shape, ...]:
            return (SPHERE,)

        def supports(self, requirement: Any) -> str | None:
            return None if requirement == sn.engines.SHAPES else super().supports(requirement)

    return Shaped


Toys = toys()


def rules_broken_by(engine: Any) -> set[str]:
    """Return the names of all rules that an engine breaks."""
    rules, broken = EngineRules(engine, lambda each: each.step(), {"ball": 0.5}, 100), set()
    for rule in RULES:
        try:
            assert rules.holds(rule), f"{rule} does not apply"
        except ContractError as error:
            assert error.rule == rule
            broken.add(rule)
    return broken


def test_the_manuals_engine_keeps_every_rule() -> None:
    """Every rule applies to the engine of the manual, and none is broken."""
    assert rules_broken_by(Toys) == set()


def test_the_manual_lists_the_rules_in_their_order() -> None:
    """The manual has one row per rule."""
    table = PAGE[PAGE.index("| rule of an engine | ") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert tuple(rows) == RULES


class Anonymous(Toys):
    name = ""


class NamesakeBodies(Toys):
    def names(self, kind: str) -> Any:
        return {"site": ("tip", "tip")}.get(kind) or super().names(kind)

    def frame(self, kind: str, name: str) -> Any:
        return sn.engines.FrameOnBody(0) if (kind, name) == ("site", "tip") else super().frame(kind, name)


class LongFrames(Toys):
    def frame(self, kind: str, name: str) -> Any:
        frame = super().frame(kind, name)
        return sn.engines.FrameOnBody(frame.body, frame.pos, (1.0, 1.0, 0.0, 0.0)) if kind == "joint" else frame


class Ring(Toys):
    def parent_body(self, body: int) -> int:
        return 1 - body


class NamesakeShapes(Toys):
    def shapes(self) -> tuple[sn.engines.Shape, ...]:
        return (SPHERE, SPHERE)


class Generous(Toys):
    """Grants what it does not compute."""

    def supports(self, requirement: Any) -> str | None:
        return None if requirement.kind == "NATIVE_SENSOR" else super().supports(requirement)


class Double(Toys):
    def array(self, name: str) -> torch.Tensor:
        array = super().array(name)
        if name == "gravity_w":
            self.wide = getattr(self, "wide", array.double())
            return self.wide
        return array


class Replacing(Toys):
    def forward(self) -> None:
        super().forward()
        self._arrays["gravity_w"] = self._arrays["gravity_w"].clone()


class LongQuaternions(Toys):
    def refresh(self) -> None:
        super().refresh()
        self._arrays["body_quat_w"][:, 0] *= 1.001


class AtTheCentreOfMass(Toys):
    """Velocity and acceleration of a centre of mass 0.3 m from the frame origin of the bob."""

    def refresh(self) -> None:
        super().refresh()
        out = self._arrays
        arm = 0.3 * torch.nn.functional.normalize(out["body_pos_w"][:, 0] - torch.tensor([0.0, 0.0, 2.0]), dim=-1)
        w, alpha = out["body_ang_vel_w"][:, 0], out["body_ang_acc_w"][:, 0]
        cross = torch.linalg.cross
        out["body_lin_vel_w"][:, 0] += cross(w, arm)
        out["body_lin_acc_w"][:, 0] += cross(alpha, arm) + cross(w, cross(w, arm))


class ScalarLast(Toys):
    def refresh(self) -> None:
        super().refresh()
        bob = self._arrays["body_quat_w"][:, 0]
        bob.copy_(bob.roll(-1, dims=-1))


class ProperAcceleration(Toys):
    """Gravity is part of the acceleration of the bob."""

    def refresh(self) -> None:
        super().refresh()
        self._arrays["body_lin_acc_w"][:, 0, 2] += 9.81


class Reversed(Toys):
    def refresh(self) -> None:
        super().refresh()
        self._arrays["joint_vel"].neg_()


class Rising(Toys):
    """Gravity with the wrong sign."""

    def refresh(self) -> None:
        super().refresh()
        self._arrays["gravity_w"][:, 2] = 9.81


class Pulling(Toys):
    """The slots of a report have the force on the primary instead of the secondary."""

    def refresh(self) -> None:
        super().refresh()
        for name, array in self._reports.arrays.items():
            if "none" in name:
                array[..., 1:4].neg_()


class Miscounting(Toys):
    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        super().step(ctrl, substeps)
        self.tick -= substeps - 1


class Disturbed(Toys):
    """The ball falls differently if more is required than its pose."""

    def _accelerations(self) -> Any:
        turn, lift, push = super()._accelerations()
        return turn, lift + 1e-3 * (len(self.prepared) > 1), push


class Stale(Toys):
    """The angular acceleration is that of the tick before, except after `forward`."""

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        for _ in range(substeps):
            self.turn = self._accelerations()[0]
            super().step(ctrl, 1)

    def refresh(self) -> None:
        super().refresh()
        self._arrays["body_ang_acc_w"][:, 0, 0] = self.turn

    def forward(self) -> None:
        self.turn = self._accelerations()[0]
        self.refresh()

    def reset(self, env_ids: Any, state: Any) -> None:
        self.turn = getattr(self, "turn", self.angle.clone())
        super().reset(env_ids, state)
        rows = slice(None) if env_ids is None else env_ids
        self.turn[rows] = self._accelerations()[0][rows]
        self.refresh()

    def state(self) -> Any:
        return {**super().state(), "turn": self.turn.clone()}

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.turn.copy_(state["turn"])


class ResetsAll(Toys):
    def reset(self, env_ids: Any, state: Any) -> None:
        super().reset(None, state)


class ResetsRates(Toys):
    """A reset leaves the angle as it is."""

    def reset(self, env_ids: Any, state: Any) -> None:
        angle = self.angle.clone()
        super().reset(env_ids, state)
        if angle.any():
            self.angle.copy_(angle)
            self.refresh()


class Deaf(Toys):
    """A reset ignores the state that it is given."""

    def reset(self, env_ids: Any, state: Any) -> None:
        super().reset(env_ids, {})


class Forgetful(Toys):
    def state(self) -> Any:
        return {**super().state(), "speed": torch.zeros(self.num_envs)}


BROKEN = {
    "describes_itself": Anonymous,
    "names_are_unambiguous": NamesakeBodies,
    "frames_are_on_bodies": LongFrames,
    "bodies_form_a_tree": Ring,
    "shapes_are_described": NamesakeShapes,
    "refuses_by_name": Generous,
    "arrays_are_as_declared": Double,
    "arrays_stay_in_place": Replacing,
    "quaternions_are_unit": LongQuaternions,
    "velocities_move_the_bodies": AtTheCentreOfMass,
    "angular_velocities_turn_the_bodies": ScalarLast,
    "accelerations_change_the_velocities": ProperAcceleration,
    "joints_move_at_their_velocities": Reversed,
    "free_bodies_obey_newton": Rising,
    "contact_reports_agree": Pulling,
    "ticks_are_counted": Miscounting,
    "reading_changes_nothing": Disturbed,
    "state_is_of_one_instant": Stale,
    "reset_leaves_the_others": ResetsAll,
    "a_reset_starts_anew": ResetsRates,
    "reset_writes_the_state": Deaf,
    "resuming_is_exact": Forgetful,
}


def test_every_rule_has_an_engine_that_breaks_it() -> None:
    assert tuple(BROKEN) == RULES


@pytest.mark.parametrize("rule", BROKEN)
def test_only_this_rule_finds_the_fault(rule: str) -> None:
    """The engine breaks this rule and no other."""
    assert rules_broken_by(BROKEN[rule]) == {rule}


class EmptyIsAll(Toys):
    def reset(self, env_ids: Any, state: Any) -> None:
        rows = env_rows(env_ids, self.num_envs)
        super().reset(None if rows is not None and not len(rows) else env_ids, state)


class CountsForward(Toys):
    def forward(self) -> None:
        self.tick += 1
        super().forward()


class ForgetsTicks(Toys):
    def reset(self, env_ids: Any, state: Any) -> None:
        super().reset(env_ids, state)
        self.tick = 0


class Frozen(Toys):
    """The shape of the ball is static."""

    def shapes(self) -> Any:
        return (sn.engines.Shape("sphere", "ball", (0.1,), body=1, is_static=True),)


class Captured(Toys):
    """The ball falls differently in a captured graph."""

    is_captured = False

    def capture(self, on: bool) -> None:
        self.is_captured = on

    def _accelerations(self) -> Any:
        turn, lift, push = super()._accelerations()
        return turn, lift + 1e-3 * self.is_captured, push


class Late(Toys):
    """The arrays are current, not one tick old."""

    lag = 1


class Growing(Toys):
    """A late requirement moves all arrays."""

    def grants_late(self, requirement: Any) -> bool:
        return requirement == sn.engines.GRAVITY

    def _apply(self, requirements: Any) -> None:
        if self.prepared:
            self._arrays = {name: array.clone() for name, array in self._arrays.items()}
        super()._apply(requirements)


class Pushes(Toys):
    """The force of the list is on the first side."""

    def refresh(self) -> None:
        super().refresh()
        self._force.neg_()
        self._reports.run()


class Interleaved(Toys):
    """The numbers of a vector are not adjacent in memory."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self._arrays = {name: array[..., None].repeat_interleave(2, -1)[..., 0] for name, array in self._arrays.items()}


class Lists(Toys):
    def array(self, name: str) -> Any:
        return super().array(name).tolist() if name == "gravity_w" else super().array(name)


class PlainKeys(Toys):
    """The error for an unknown name is a plain KeyError."""

    def frame(self, kind: Any, name: str) -> Any:
        try:
            return super().frame(kind, name)
        except sn.UnknownNameError as error:
            raise KeyError(name) from error


class Missing(Toys):
    def array(self, name: str) -> Any:
        return {"body_pos_w": self._arrays["body_pos_w"]}[name] if name.startswith("body") else super().array(name)


class IndicesOnly(Toys):
    def reset(self, env_ids: Any, state: Any) -> None:
        if env_ids is not None and env_ids.dtype == torch.bool:
            raise TypeError("expected indices")
        super().reset(env_ids, state)


@pytest.mark.parametrize(
    ("engine", "rule", "fix"),
    [
        (PlainKeys, "names_are_unambiguous", r"PlainKeys: .* \(the engine raised KeyError: 'no such name'\)"),
        (Missing, "arrays_are_as_declared", "the engine raised KeyError: 'body_"),
        (IndicesOnly, "reset_leaves_the_others", "the engine raised TypeError: expected indices"),
        (Interleaved, "arrays_are_as_declared", "the last axis of .* is not contiguous"),
        (Lists, "arrays_are_as_declared", "gravity_w is of type list"),
        (EmptyIsAll, "reset_leaves_the_others", r"reset\(\[False, False, False\]\).*env_rows"),
        (CountsForward, "ticks_are_counted", r"the tick is 5 after 4 ticks and forward\(\).*Count in step\(\) alone"),
        (ForgetsTicks, "ticks_are_counted", "the tick is 0 after 4 ticks and a reset"),
        (Frozen, "shapes_are_described", "'ball' is static, and its body moves"),
        (Captured, "reading_changes_nothing", "body_pos_w differs with more requirements or without captured graphs"),
        (Late, "state_is_of_one_instant", "is off by .* Or declare lag = 0"),
        (Stale, "state_is_of_one_instant", r"body_ang_acc_w is off by .* Or declare lag = 1"),
        (Growing, "arrays_stay_in_place", "after a late requirement.*grants_late must return False"),
        (Pushes, "free_bodies_obey_newton", "the force of a ContactList on the second side"),
    ],
)
def test_the_error_names_rule_and_fix(engine: Any, rule: str, fix: str) -> None:
    with pytest.raises(ContractError, match=rf"{fix}.*\[rule {rule}\]"):
        check_engine(engine, free={"ball": 0.5}, ticks=150)


def test_errors_of_the_function_that_creates_the_engine_are_its_own() -> None:
    """They are not a broken rule."""
    with pytest.raises(sn.ModelError, match="no such robot"):
        check_engine(lambda num_envs: sn.MujocoEngine("no such robot.xml", num_envs))


def test_built_in_engines_keep_the_rules() -> None:
    """A tumbling `TensorEngine` and MuJoCo with a bouncing ball and a spinning arm keep every rule that applies."""
    moved = check_engine(tumbling_engine)
    assert {"velocities_move_the_bodies", "accelerations_change_the_velocities"} <= set(moved)
    model = """<mujoco><option timestep="0.002"/><worldbody>
      <geom name="ground" type="plane" size="5 5 .1"/>
      <body name="ball" pos="0 0 .13"><freejoint/><geom name="ball" size=".1" mass=".5"/></body>
      <body name="arm" pos="1 0 1"><joint name="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .5 0 .1"
        size=".05"/><body name="hand" pos=".5 0 .1"><joint name="wrist" axis="1 0 0" stiffness="1" springref="90"/>
        <geom type="box" size=".1 .05 .02" pos=".1 0 0"/></body></body>
    </worldbody></mujoco>"""
    done = check_engine(lambda num_envs: sn.MujocoEngine(model, num_envs), free={"ball": 0.5}, ticks=120)
    assert done == list(RULES)
    late = check_engine(lambda num_envs: sn.MujocoEngine(model, num_envs, fresh=False), free={"ball": 0.5}, ticks=120)
    assert late == list(RULES)


def test_an_engine_object_is_no_function() -> None:
    """The error says what is accepted."""
    with pytest.raises(ArgumentError, match="expected a function of the number of envs"):
        check_engine(tumbling_engine(1))  # type: ignore[arg-type]
