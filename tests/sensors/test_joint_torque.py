"""Torque cells, checked against statics and the equation of motion on MuJoCo, and the ripple of a strain wave gear."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(envs: int, dt: float = 0.002, **kwargs: Any) -> sn.TensorEngine:
    words: Any = ("joint_state", "joint_torque")
    return sn.TensorEngine(envs, dt, joints=("a", "b", "c"), provides=words, **kwargs)


def loaded(envs: int) -> sn.TensorEngine:
    """Return three joints whose torques and positions vary differently in each env."""
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + torch.arange(3, dtype=torch.float64)

    def motion(t: float) -> dict[str, Any]:
        return {"joint_pos": (3.0 * t + phase).sin(), "joint_torque": 4.0 * (5.0 * t + phase).cos()}

    return engine_of(envs, motion=motion)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"joints": ".*"}, marks=pytest.mark.full),
        {"joints": ".*", "ripple": (0.1, 0.0, 0.3), "gear": 100.0},
        {"joint": "b"},
    ],
)
def test_contract_holds(fields: dict[str, Any]) -> None:
    """`check_sensor` passes with and without ripple, with and without a joint axis."""
    check_sensor(sn.JointTorqueCfg(**fields), loaded)


def test_data_equals_the_engines_torques() -> None:
    """`.data` is the `[env, joint]` array itself, bit for bit the engine's; a singular selector gives `[env]`."""
    engine = loaded(4)
    one, some = sn.JointTorqueCfg(name="one", joint="b"), sn.JointTorqueCfg(name="some", joints=("c", "a"))
    scene = sn.Scene(engine, [one, some])
    assert torch.equal(scene["one"].data, engine.joint_torque[:, 1])
    assert torch.equal(scene["some"].data, engine.joint_torque[:, [2, 0]])
    assert scene["some"].joint_names == ("c", "a")
    assert (scene["some"].specs[0].unit, scene["some"].specs[0].axes) == ("N m", ("joint",))


ARM = """
<mujoco>
  <option timestep="0.001" integrator="implicitfast"/>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0" armature="0.05" damping="0.4" frictionloss="0.3"/>
      <inertial mass="1.5" pos="0.2 0 0" diaginertia="0.01 0.02 0.02"/>
      <body name="lower" pos="0.4 0 0"><joint name="elbow" axis="0 1 0" armature="0.02" damping="0.1"/>
        <inertial mass="1.0" pos="0.15 0 0" diaginertia="0.01 0.01 0.01"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="4000" kv="80"/>
    <position name="elbow" joint="elbow" kp="4000" kv="80"/>
  </actuator>
</mujoco>
"""


def test_a_joint_that_holds_a_load_reads_the_load() -> None:
    """At rest the cells read the weight's moments about their joints; gravity itself is not counted twice."""
    engine = sn.MujocoEngine(ARM)
    scene = sn.Scene(engine, [cfg := sn.JointTorqueCfg(joints=".*")])
    scene.step(torch.tensor([[0.3, -0.7]]), substeps=6000)
    q = numpy(engine.qpos[0])
    elbow_x = 0.4 * math.cos(q[0])
    lower_x = elbow_x + 0.15 * math.cos(q[0] + q[1])
    weights = 9.81 * np.array([1.5 * 0.2 * math.cos(q[0]) + 1.0 * lower_x, 1.0 * (lower_x - elbow_x)])
    # about +y, a weight at +x rotates forwards; the drive counteracts it
    np.testing.assert_allclose(numpy(scene[cfg].data[0]), -weights, rtol=1e-4)


def test_torque_balances_gravity_and_inertia() -> None:
    """In motion the torque is M_link qdd + bias: the equation of motion of the links alone, without the rotor's
    inertia.
    """
    engine = sn.MujocoEngine(ARM, num_envs=2)
    scene = sn.Scene(engine, [cfg := sn.JointTorqueCfg(joints=".*")])
    model = mujoco.MjModel.from_xml_string(ARM)
    links = mujoco.MjModel.from_xml_string(ARM)
    links.dof_armature[:] = 0.0
    rng = np.random.default_rng(1)
    largest = 0.0
    for _ in range(20):
        scene.step(torch.as_tensor(rng.uniform(-1.0, 1.0, (2, 2))), substeps=7)
        for env in range(2):
            data = mujoco.MjData(model)
            for name in ("qpos", "qvel", "ctrl"):
                getattr(data, name)[:] = numpy(getattr(engine, name)[env])
            mujoco.mj_forward(model, data)
            inverse = mujoco.MjData(links)
            inverse.qpos[:], inverse.qvel[:], inverse.qacc[:] = data.qpos, data.qvel, data.qacc
            moved = np.zeros(2)
            mujoco.mj_forwardSkip(links, inverse, mujoco.mjtStage.mjSTAGE_NONE, 1)
            inverse.qacc[:] = data.qacc
            mujoco.mj_rne(links, inverse, 1, moved)
            largest = max(largest, np.abs(moved).max())
            np.testing.assert_allclose(numpy(scene[cfg].data[env]), moved, atol=1e-4 * max(1.0, np.abs(moved).max()))
    assert largest > 20.0


def test_ripple_has_two_cycles_per_turn_of_the_wave_generator() -> None:
    """The error is A sin(2 N q + p), on the measured torque alone."""
    engine = engine_of(200)
    engine.joint_pos = torch.linspace(-1.0, 1.0, 200)[:, None]
    engine.joint_torque = 3.0
    cfg = sn.JointTorqueCfg(joints=".*", ripple=(0.2, 0.1, 0.0), gear=50.0, ripple_phase=0.4)
    scene = sn.Scene(engine, [cfg])
    q = numpy(engine.joint_pos)
    expected = 3.0 + np.array([0.2, 0.1, 0.0]) * np.sin(100.0 * q + 0.4)
    np.testing.assert_allclose(numpy(scene[cfg].data), expected, atol=0.2 * 4.0 * EPS * 100.0 + 3.0 * EPS)
    assert (scene[cfg].ground_truth == 3.0).all()
    assert np.ptp(expected[:, 0]) > 0.39


def test_the_phase_of_ripple_is_drawn_per_env_joint_and_episode() -> None:
    """At rest the ripple is A sin(p) with p uniform (arcsine distribution), constant within an episode."""
    scene = sn.Scene(engine_of(3000), [cfg := sn.JointTorqueCfg(joints=".*", ripple=0.5)], seed=3)
    first = numpy(scene[cfg].read())
    assert stats.kstest(first.ravel() / 0.5, stats.arcsine(loc=-1.0, scale=2.0).cdf).pvalue > 1e-6
    scene.update()
    assert np.array_equal(numpy(scene[cfg].read()), first)
    scene.reset([7])
    changed = (numpy(scene[cfg].read()) != first).any(axis=1)
    assert changed.nonzero()[0].tolist() == [7]


def test_requirements_and_errors() -> None:
    """Without ripple no joint state is required; an engine without torques is rejected; amounts are validated."""
    only: Any = ("joint_torque",)
    sn.Scene(sn.TensorEngine(1, joints=("a",), provides=only), [sn.JointTorqueCfg(joint="a")])
    with pytest.raises(sn.UnsupportedError, match="JOINT_STATE"):
        sn.Scene(sn.TensorEngine(1, joints=("a",), provides=only), [sn.JointTorqueCfg(joint="a", ripple=0.1)])
    with pytest.raises(sn.UnsupportedError, match="JOINT_TORQUE"):
        sn.Scene(sn.TensorEngine(1, joints=("a",)), [sn.JointTorqueCfg(joint="a")])
    for fields, match in (
        ({"ripple": -0.1}, "an amplitude >= 0"),
        ({"ripple": math.inf}, "ripple: got inf, expected a finite number, or one per joint"),
        ({"ripple": ()}, r"ripple: got \(\), expected a finite number, or one per joint"),
        ({"gear": 0.0}, "a number above 0"),
        ({"ripple_cycles": math.nan}, "ripple_cycles: got nan, expected a finite number above 0"),
        ({"ripple_phase": math.nan}, "ripple_phase: got nan, expected a finite angle"),
    ):
        with pytest.raises(sn.ConfigError, match=match):
            sn.JointTorqueCfg(joint="a", **fields)
    with pytest.raises(sn.ConfigError, match="one number, or 3 of them"):
        sn.Scene(engine_of(1), [sn.JointTorqueCfg(joints=".*", ripple=(0.1, 0.2))])


def test_non_finite_torque_names_the_joint() -> None:
    """The env is marked invalid, and the warning names the joint."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.JointTorqueCfg(joints=".*", evaluate="always")])
    engine.joint_torque[0, 1] = math.inf
    with pytest.warns(sn.NonFiniteStateWarning, match="env 0, body 'of joint b'"):
        scene.update()
    assert scene["joint_torque"].valid.tolist() == [False, True]
