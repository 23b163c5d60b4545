from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from sensorium.engines.base import FrameOnBody
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ModelError, UnknownNameError, UnsupportedError
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_STATE, MAGNETIC


def test_a_new_engine_is_at_rest_at_the_origin_under_gravity():
    """Initial poses are the identity, velocities zero and gravity the Earth's, float32, `[env, body, ...]`."""
    engine = TensorEngine(3, bodies=("a", "b"))
    assert engine.body_pos_w.shape == (3, 2, 3) and engine.body_pos_w.dtype == torch.float32
    assert engine.body_quat_w[2, 1].tolist() == [1, 0, 0, 0]
    assert engine.array("gravity_w")[0].tolist() == pytest.approx([0, 0, -9.81])
    assert engine.dt_exact == Fraction(1, 100) and engine.lag == 0


def test_sensors_read_written_values():
    """The user's tensors are the derived arrays themselves, written in place or by assignment, at one address."""
    engine = TensorEngine(2)
    address = engine.array("body_pos_w").data_ptr()
    engine.body_pos_w[1, 0] = torch.tensor([1.0, 2.0, 3.0])
    engine.body_lin_vel_w = [4.0, 5.0, 6.0]
    engine.refresh()
    assert engine.array("body_pos_w")[1, 0].tolist() == [1, 2, 3]
    assert engine.array("body_lin_vel_w").tolist() == [[[4, 5, 6]], [[4, 5, 6]]]
    assert engine.array("body_pos_w").data_ptr() == address
    with pytest.raises(ValueError, match=r"body_pos_w: got values of shape \(2,\), expected \(2, 1, 3\)"):
        engine.body_pos_w = [1.0, 2.0]


def test_only_provided_quantities_are_granted_and_the_error_explains():
    """A requirement that is not provided is rejected, and never reads as zeros."""
    engine = TensorEngine(magnetic=None)
    engine.prepare({BODY_POSE: "imu", BODY_VELOCITY: "imu", GRAVITY: "imu"})
    with pytest.raises(
        UnsupportedError, match=r"'imu' requires BODY_ACCELERATION.*provides=.*'acceleration'.*body_lin_acc_w"
    ):
        engine.prepare({BODY_ACCELERATION: "imu"})
    assert engine.supports(MAGNETIC) is not None and engine.supports(JOINT_STATE) is not None
    with pytest.raises(AttributeError, match="has no body_lin_acc_w: add 'acceleration'"):
        _ = engine.body_lin_acc_w
    with pytest.raises(KeyError, match="This engine provides gravity, pose, velocity"):
        engine.array("body_ang_acc_w")
    full = TensorEngine(provides=("pose", "acceleration"), magnetic=(0.2, 0.0, -0.4))
    full.prepare({BODY_ACCELERATION: "imu", MAGNETIC: "compass"})
    assert full.magnetic_w[0].tolist() == pytest.approx([0.2, 0.0, -0.4])


def test_xyzw_quaternions_are_converted_to_wxyz():
    """With quat_order="xyzw" the user writes x, y, z, w and sensors read w, x, y, z."""
    engine = TensorEngine(quat_order="xyzw")
    assert engine.body_quat[0, 0].tolist() == [0, 0, 0, 1]
    assert engine.array("body_quat_w")[0, 0].tolist() == [1, 0, 0, 0]
    address = engine.array("body_quat_w").data_ptr()
    engine.body_quat[0, 0] = torch.tensor([0.1, 0.2, 0.3, 0.9])
    engine.count_ticks(1)
    engine.refresh()
    assert engine.array("body_quat_w")[0, 0].tolist() == pytest.approx([0.9, 0.1, 0.2, 0.3])
    assert engine.array("body_quat_w").data_ptr() == address
    with pytest.raises(AttributeError, match="write body_quat"):
        engine.body_quat_w = [1.0, 0.0, 0.0, 0.0]
    same = TensorEngine()
    assert same.body_quat is same.body_quat_w


def test_motion_is_evaluated_at_the_time_of_each_tick():
    """A function of time fills the arrays at once, after steps, after ticks of the user's loop, and on forward."""

    def circle(t):
        return {"body_pos_w": [math.cos(t), math.sin(t), 0.0], "body_lin_vel_w": [-math.sin(t), math.cos(t), 0.0]}

    engine = TensorEngine(2, 0.1, motion=circle)
    assert engine.body_pos_w[1, 0].tolist() == [1, 0, 0]
    engine.step(substeps=3)
    assert engine.tick == 3 and engine.body_pos_w[0, 0].tolist() == pytest.approx([math.cos(0.3), math.sin(0.3), 0])
    engine.count_ticks(1)
    assert engine.body_lin_vel_w[0, 0, 0] == pytest.approx(-math.sin(0.4))
    engine.body_pos_w[:] = 0.0
    engine.forward()
    assert engine.body_pos_w[0, 0, 0] == pytest.approx(math.cos(0.4)) and engine.tick == 4
    with pytest.raises(UnknownNameError, match=r"array returned by motion 'body_pos'.*Did you mean 'body_pos_w'"):
        TensorEngine(motion=lambda t: {"body_pos": 0.0})


def test_control_is_refused():
    """The engine has nothing to control."""
    with pytest.raises(ValueError, match=r"ctrl: got .* has no actuators"):
        TensorEngine().step([0.0])


def test_reset_writes_rows_of_the_given_envs_only():
    """A reset writes the given values into those envs; all else is unchanged."""
    engine = TensorEngine(3, quat_order="xyzw")
    engine.body_pos_w = [1.0, 1.0, 1.0]
    engine.reset([2, 0], {"body_pos_w": [[[2.0, 2.0, 2.0]], [[0.0, 0.0, 0.0]]], "body_quat": [1.0, 0.0, 0.0, 0.0]})
    assert engine.body_pos_w[:, 0, 0].tolist() == [0, 1, 2]
    assert engine.array("body_quat_w")[:, 0].tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    with pytest.raises(UnknownNameError, match="unknown state 'qpos'"):
        engine.reset(None, {"qpos": 0.0})


def test_names_and_sites():
    """Bodies and sites are as given; sites may be on the world and have an offset."""
    sites = {
        "imu": "a",
        "tip": ("b", (1, 2, 3)),
        "tilted": ("b", (0, 0, 0), (0, 1, 0, 0)),
        "fixed": "world",
        "own": FrameOnBody(1, (1.0, 0.0, 0.0)),
    }
    engine = TensorEngine(bodies=("a", "b"), sites=sites)
    assert engine.names("body") == ("a", "b") and engine.names("site") == tuple(sites) and engine.names("geom") == ()
    assert engine.frame("site", "imu") == FrameOnBody(0)
    assert engine.frame("site", "tip") == FrameOnBody(1, (1.0, 2.0, 3.0))
    assert engine.frame("site", "tilted").quat == (0.0, 1.0, 0.0, 0.0)
    assert engine.frame("site", "fixed").body == -1 and engine.frame("body", "b") == FrameOnBody(1)
    assert engine.frame("site", "own") == sites["own"]
    with pytest.raises(UnknownNameError, match="Did you mean 'imu'"):
        engine.frame("site", "inu")
    with pytest.raises(ModelError, match="site 'x': got 'c'"):
        TensorEngine(sites={"x": "c"})


def test_state_round_trips():
    """A restored engine has the same arrays and tick."""
    engine, other = (TensorEngine(2, quat_order="xyzw") for _ in range(2))
    engine.body_quat[1] = torch.tensor([0.0, 0.6, 0.0, 0.8])
    engine.count_ticks(5)
    engine.refresh()
    other.load_state(engine.state())
    assert other.tick == 5 and torch.equal(other.array("body_quat_w"), engine.array("body_quat_w"))
    assert torch.equal(other.body_quat, engine.body_quat)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt: got 0.0"),
        ({"dt": float("inf")}, "dt: got inf"),
        ({"bodies": ("a", "a")}, "without repetition"),
        ({"bodies": ("world", "a")}, "bodies: got 'world', which is the name of the world"),
        ({"quat_order": "zyxw"}, "quat_order: got 'zyxw'"),
        ({"provides": ("pose", "speed")}, "provides: got 'speed', expected any of pose"),
        ({"num_envs": 0}, "num_envs: got 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message):
    """Each invalid argument raises an error that names it."""
    with pytest.raises(ValueError, match=message):
        TensorEngine(**options)
