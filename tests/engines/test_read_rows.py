"""Rows of bodies that no sensor reads are converted when they are requested, and whenever the state is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import pytest
import torch

import sensorium as sn
from sensorium.engines.base import ARRAYS, Engine
from sensorium.engines.mujoco.engine import MujocoEngine
from sensorium.engines.tensor import TensorEngine
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, MODEL_ELEMENTS

BODIES = ("base", "arm", "hand")
MODEL = """<mujoco><worldbody>
  <body name="base" pos="0 0 1"><freejoint/><geom size=".1"/>
    <body name="arm" pos=".2 0 0"><joint axis="0 1 0"/><geom size=".1" pos=".1 0 0"/>
      <body name="hand" pos=".2 0 0"><joint axis="0 0 1"/><geom size=".1" pos=".1 .1 0"/></body></body></body>
</worldbody></mujoco>"""
IMU = sn.ImuCfg(name="imu", body="arm")
STATE = {name for requirement in (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION) for name in ARRAYS[requirement]}


def bound() -> TensorEngine:
    """Return an engine with random bound arrays in another convention."""
    draws = torch.Generator().manual_seed(3)
    given = {
        name: torch.randn(2, 3, size, generator=draws)
        for name, size in {"body_com_pos_w": 3, "body_quat": 4, "body_com_lin_vel_w": 3, "body_ang_vel_w": 3,
                           "body_com_lin_acc_w": 3, "body_ang_acc_w": 3}.items()
    }  # fmt: skip
    given["body_quat"] /= given["body_quat"].norm(dim=-1, keepdim=True)
    return TensorEngine(
        2, bodies=BODIES, provides=("pose", "velocity", "acceleration", "gravity"), quat_order="xyzw", bound=given,
        com=[[0.1, 0.2, 0.3]] * 3, at_com=("pose", "velocity", "acceleration"),
    )  # fmt: skip


def moving() -> MujocoEngine:
    engine = MujocoEngine(MODEL, 2)
    engine.qvel[:] = torch.linspace(0.5, 2.0, engine.qvel.shape[1])
    return engine


def advance(engine: Engine, scene: sn.Scene) -> None:
    if isinstance(engine, TensorEngine):
        for name in ("body_com_pos_w", "body_com_lin_vel_w", "body_com_lin_acc_w"):
            getattr(engine, name).mul_(1.5)
        scene.update()
    else:
        scene.step()
    scene[IMU].ensure_current()


def values(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: engine.array(name).clone() for name in sorted(STATE)}


def unread(engine: Any) -> torch.Tensor:
    """Return the flags of the rows that are not converted."""
    state = engine._state if isinstance(engine, TensorEngine) else engine._derived
    return state._rows.unread()


def check_equal(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, array in expected.items():
        torch.testing.assert_close(got[name], array, rtol=0.0, atol=0.0, msg=name)


@pytest.fixture(params=[bound, moving])
def new(request: pytest.FixtureRequest) -> Callable[[], Engine]:
    made: Callable[[], Engine] = request.param
    return made


def test_a_first_read_returns_current_rows_and_they_stay_current(new: Callable[[], Engine]) -> None:
    """Arrays that were requested from the start and late are the same, at each tick after the request."""
    early, late = new(), new()
    scenes = [sn.Scene(each, [IMU]) for each in (early, late)]
    values(early)
    for _ in range(3):
        for engine, scene in zip((early, late), scenes, strict=True):
            advance(engine, scene)
    assert not unread(early).any()
    assert bool(unread(late)[0]) and bool(unread(late)[2]) and not bool(unread(late)[1])
    check_equal(values(late), values(early))
    kept = {name: late.array(name) for name in STATE}
    for engine, scene in zip((early, late), scenes, strict=True):
        advance(engine, scene)
    check_equal(kept, values(early))


def test_a_request_converts_no_rows_but_the_new_ones(new: Callable[[], Engine]) -> None:
    engine = new()
    scene = sn.Scene(engine, [IMU])
    advance(engine, scene)
    pos = engine.array_of("body_pos_w", torch.tensor([2, -1], dtype=torch.int32))
    pos.fill_(7.0)
    engine.array("body_pos_w")
    assert not (pos[:, 0] == 7.0).any()
    assert (pos[:, 1:] == 7.0).all()  # read before, hence not converted again
    engine.forward()
    assert not (pos == 7.0).any()


def test_a_saved_state_has_all_rows(new: Callable[[], Engine]) -> None:
    engine, other = new(), new()
    scene = sn.Scene(engine, [IMU])
    sn.Scene(other, [IMU])
    advance(engine, scene)
    saved = engine.state()
    assert bool(unread(engine)[0])
    check_equal(saved["arrays"], values(engine))
    other.load_state(saved)
    check_equal(values(other), values(engine))


def test_readings_do_not_depend_on_the_rows_that_others_read(new: Callable[[], Engine]) -> None:
    alone, together = new(), new()
    states = sn.BodyStateCfg(name="states", bodies=".*")
    scenes = sn.Scene(alone, [IMU]), sn.Scene(together, [IMU, states])
    for _ in range(3):
        for engine, scene in zip((alone, together), scenes, strict=True):
            advance(engine, scene)
        _ = scenes[1][states].data
        for name in ("lin_acc_b", "ang_vel_b", "quat_w"):
            first, second = (getattr(scene[IMU].data, name) for scene in scenes)
            torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)


def test_rows_that_were_requested_before_a_model_grew_are_current() -> None:
    """A sensor may add bodies to the model, also ahead of those that are already read."""

    def add(spec: mujoco.MjSpec) -> None:
        spec.worldbody.add_body(name="new", pos=[0.0, 0.0, 5.0])

    engine = moving()
    engine.prepare({BODY_POSE: "test"})
    pos = engine.array("body_pos_w")
    engine.prepare({MODEL_ELEMENTS(add): "beacon"})
    engine.refresh()
    assert engine.names("body")[-1] == "new"
    assert pos[0, -1].tolist() == [0.0, 0.0, 5.0]
