"""Motor currents, checked against the formulas in float64, a motor on MuJoCo, and the shape of friction loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(envs: int, dt: float = 0.002, **kwargs: Any) -> sn.TensorEngine:
    words: Any = ("joint_state", "joint_effort", "joint_torque")
    return sn.TensorEngine(envs, dt, joints=("a", "b", "c"), provides=words, **kwargs)


def driven(envs: int) -> sn.TensorEngine:
    """Return three joints that swing under load, differently in each env."""
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + torch.arange(3, dtype=torch.float64)

    def motion(t: float) -> dict[str, Any]:
        angle = 3.0 * t + phase
        torque = 4.0 * (5.0 * t + phase).cos()
        return {
            "joint_pos": angle.sin(),
            "joint_vel": 3.0 * angle.cos(),
            "joint_effort": 1.1 * torque,
            "joint_torque": torque,
        }

    return engine_of(envs, motion=motion)


EVERYTHING: dict[str, Any] = {
    "joints": ".*",
    "torque_constant": (0.1, 0.2, 0.3),
    "gear": 9.0,
    "efficiency": 0.8,
    "kt_temperature_coefficient": -0.001,
    "winding_temperature": 90.0,
    "coulomb": 0.2,
    "static": (0.3, 0.25, 0.2),
    "stribeck_velocity": 0.5,
    "viscous": 0.1,
    "cogging": (0.01, 0.005),
    "cogging_cycles": 12.0,
}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"joints": ".*", "torque_constant": 0.1}, marks=pytest.mark.full),
        {**EVERYTHING, "stages": (sn.stages.Saturation(high=2.0),)},
        {"joint": "b", "torque_constant": 0.1, "fields": ("current",), "cogging": (0.1,)},
    ],
)
def test_contract_holds(fields: dict[str, Any]) -> None:
    """`check_sensor` passes for the plain motor, for a motor with all options, and for the current alone."""
    check_sensor(sn.MotorCurrentCfg(**fields), driven)


def test_every_part_follows_the_formulas() -> None:
    """True and measured current and torque agree with a float64 evaluation for a random state."""
    rng = np.random.default_rng(1)
    engine = engine_of(500)
    state = {
        name: rng.normal(0.0, 1.0, (500, 3)) for name in ("joint_pos", "joint_vel", "joint_effort", "joint_torque")
    }
    for name, values in state.items():
        setattr(engine, name, values)
    q, w, effort, torque = (values.astype(np.float32).astype(np.float64) for values in state.values())
    scene = sn.Scene(engine, [cfg := sn.MotorCurrentCfg(**EVERYTHING)])
    nominal, ratio = np.array([0.1, 0.2, 0.3]), 9.0 * 0.8
    hot = nominal * (1.0 - 0.001 * 65.0)
    current = effort / (ratio * hot)
    cogging = 0.01 * np.sin(108.0 * q) + 0.005 * np.sin(216.0 * q)
    measured = current + cogging / hot
    static = np.array([0.3, 0.25, 0.2])
    friction = (0.2 + (static - 0.2) * np.exp(-((w / 0.5) ** 2))) * np.sign(w) + 0.1 * w
    truth, data = scene[cfg].ground_truth, scene[cfg].data
    np.testing.assert_allclose(numpy(truth.current), current, rtol=4.0 * EPS)
    assert np.array_equal(numpy(truth.torque), torque)
    slope = (0.01 * 108.0 + 0.005 * 216.0) * 4.0 * 4.0 * EPS / hot.min()  # rounding of angles up to 4 rad
    np.testing.assert_allclose(numpy(data.current), measured, atol=slope + 8.0 * EPS * 10.0)
    np.testing.assert_allclose(
        numpy(data.torque), ratio * nominal * measured - friction, atol=ratio * 0.3 * (slope + 8.0 * EPS * 10.0)
    )
    assert data.joint_names == ("a", "b", "c")


def test_estimate_equals_the_load_with_exact_motor_parameters() -> None:
    """For a MuJoCo arm at rest, the current supports the load through gear and constant, and the estimate is the
    load.
    """
    xml = """
    <mujoco><option timestep="0.001"/><worldbody>
      <body><joint name="hip" axis="0 1 0" damping="2"/>
        <inertial mass="2" pos="0.25 0 0" diaginertia=".01 .01 .01"/></body>
    </worldbody><actuator><motor joint="hip" gear="9"/></actuator></mujoco>
    """
    engine = sn.MujocoEngine(xml)
    scene = sn.Scene(engine, [cfg := sn.MotorCurrentCfg(joint="hip", torque_constant=0.09, gear=9.0)])
    weight = 2.0 * 9.81 * 0.25
    scene.step(torch.tensor([[-weight / 9.0]]), substeps=5)  # the motor holds the arm level from the start
    data, truth = scene[cfg].data, scene[cfg].ground_truth
    assert data.current.shape == (1,)
    assert float(data.current) == pytest.approx(-weight / 9.0 / 0.09, rel=1e-6)
    assert float(data.torque) == pytest.approx(-weight, rel=1e-5)
    assert float(truth.torque) == pytest.approx(-weight, rel=1e-5)


def test_only_unknown_friction_causes_an_estimation_error() -> None:
    """For a joint dragged at constant speed against damping and dry friction, effort overcomes them and no torque
    remains.
    """
    xml = """
    <mujoco><option timestep="0.001" gravity="0 0 0"/><worldbody>
      <body><joint name="hip" damping="0.5"/><inertial mass="1" pos="0 0 0" diaginertia=".1 .1 .1"/></body>
    </worldbody><actuator><velocity joint="hip" kv="100"/></actuator></mujoco>
    """
    naive = sn.MotorCurrentCfg(name="naive", joint="hip", torque_constant=0.1)
    wise = sn.MotorCurrentCfg(name="wise", joint="hip", torque_constant=0.1, viscous=0.5)
    scene = sn.Scene(sn.MujocoEngine(xml), [naive, wise])
    scene.step(torch.tensor([[2.0]]), substeps=2000)
    speed = float(scene.engine.qvel[0, 0])
    assert float(scene[naive].data.torque) == pytest.approx(0.5 * speed, rel=1e-4)
    assert float(scene[wise].data.torque) == pytest.approx(0.0, abs=1e-4)
    assert float(scene[wise].ground_truth.torque) == pytest.approx(0.0, abs=1e-4)


def test_friction_changes_sign_with_velocity() -> None:
    """Through zero speed the estimate jumps by 2 S, falls to C by Stribeck, then rises with B; at rest it is 0."""
    engine = engine_of(401)
    engine.joint_vel = torch.linspace(-1.0, 1.0, 401)[:, None]
    engine.joint_vel[200] = 0.0
    cfg = sn.MotorCurrentCfg(
        joint="a", torque_constant=1.0, coulomb=1.0, static=1.5, stribeck_velocity=0.05, viscous=0.2
    )
    torque = -numpy(sn.Scene(engine, [cfg])[cfg].data.torque)
    assert torque[200] == 0.0
    np.testing.assert_array_equal(torque[:200], -torque[:200:-1])  # odd in the velocity
    jump = torque[201] - torque[199]
    assert jump == pytest.approx(2.0 * (1.0 + 0.5 * math.exp(-0.01) + 0.2 * 0.005), rel=1e-5)
    assert torque[201] > torque[240] and torque[400] > torque[260]
    assert torque[400] == pytest.approx(1.2, rel=1e-5)
    # a cycle of +-1 rad/s loses energy: force times velocity is never negative
    assert (torque * numpy(engine.joint_vel[:, 0]) >= 0.0).all()


def test_torque_loop_area_equals_the_friction_work() -> None:
    """Without load, a swing of amplitude A loses 4 A C per cycle to Coulomb and pi A^2 Omega B to viscous friction."""
    steps, amplitude, rate, coulomb, viscous = 20000, 0.5, 3.0, 0.7, 0.2
    phase = torch.arange(steps, dtype=torch.float64) * (2.0 * math.pi / steps)
    engine = engine_of(steps)
    engine.joint_vel = (amplitude * rate * phase.cos())[:, None]
    cfg = sn.MotorCurrentCfg(joint="a", torque_constant=1.0, coulomb=coulomb, viscous=viscous)
    lost = -numpy(sn.Scene(engine, [cfg])[cfg].data.torque)
    way = np.cos(phase.numpy()) * amplitude * (2.0 * math.pi / steps)
    expected = 4.0 * amplitude * coulomb + math.pi * amplitude**2 * rate * viscous
    assert float(np.sum(lost * way)) == pytest.approx(expected, rel=1e-5)


def test_a_warm_motor_draws_more_current_and_the_drive_overrates_it() -> None:
    """With -0.1 %/K at 125 C the constant is 10 % lower: current and estimate are 1/0.9 of those at 25 C."""
    engine = driven(5)
    cold = sn.MotorCurrentCfg(name="cold", joints=".*", torque_constant=0.1)
    warm = cold.replace(name="warm", kt_temperature_coefficient=-0.001, winding_temperature=125.0)
    scene = sn.Scene(engine, [cold, warm])
    for field in ("current", "torque"):
        ratio = numpy(getattr(scene[warm].data, field)) / numpy(getattr(scene[cold].data, field))
        np.testing.assert_allclose(ratio, 1.0 / 0.9, rtol=8.0 * EPS)
    assert torch.equal(scene[warm].ground_truth.torque, scene[cold].ground_truth.torque)


def test_the_estimate_follows_the_measured_current() -> None:
    """Noise, converter counts and full scale of the current all affect the torque, and no other quantity does."""
    engine = driven(400)
    cfg = sn.MotorCurrentCfg(
        joints=".*", torque_constant=0.5, gear=4.0, noise=0.1, current_bias=0.3, resolution=0.05,
        stages=(sn.stages.Saturation(high=2.0),), history_length=2, delay=0.004,
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg])
    for _ in range(5):
        scene.update()
    data = scene[cfg].data
    current = numpy(data.current)
    np.testing.assert_allclose(numpy(data.torque), 2.0 * current, rtol=2.0 * EPS)
    np.testing.assert_allclose(current / 0.05, np.rint(current / 0.05), atol=1e-4)
    assert current.max() == pytest.approx(2.0, abs=1e-6) and (current == current.max()).mean() > 0.01
    history = scene[cfg].history
    assert torch.equal(history.torque, 2.0 * history.current)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "torque_constant: got nothing"),
        ({"torque_constant": 0.0}, "a number above 0"),
        (
            {"torque_constant": 0.1, "gear": (2.0, 0.0, 1.0)},
            r"gear: got .*, expected a number above 0, or one per joint",
        ),
        ({"torque_constant": 0.1, "efficiency": 1.2}, "an efficiency in"),
        ({"torque_constant": 0.1, "efficiency": (0.9, 1.2)}, "an efficiency in"),
        ({"torque_constant": 0.1, "coulomb": (-0.1, 0.2, 0.3)}, "coulomb.*a number >= 0"),
        ({"torque_constant": 0.1, "coulomb": ()}, r"coulomb: got \(\), expected a finite number, or one per joint"),
        ({"torque_constant": (0.1, math.inf)}, "torque_constant: got .*, expected a finite number, or one per joint"),
        ({"torque_constant": 0.1, "cogging": (math.nan,)}, "cogging: got .*, expected finite amplitudes >= 0"),
        ({"torque_constant": 0.1, "cogging_cycles": math.inf}, "cogging_cycles: got inf, expected a finite number"),
        (
            {"torque_constant": 0.1, "winding_temperature": math.inf},
            "winding_temperature: got inf, expected values that",
        ),
        ({"torque_constant": 0.1, "fields": ("torque",)}, "current in `fields`"),
        ({"torque_constant": 0.1, "fields": ("voltage",)}, "fields"),
        ({"torque_constant": 0.1, "kt_temperature_coefficient": -0.01, "winding_temperature": 130.0}, "above 0"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    """Each fault names the field and the accepted values."""
    with pytest.raises(sn.ConfigError, match=match):
        sn.MotorCurrentCfg(joints=".*", **fields)


def test_only_used_quantities_are_required_and_the_estimate_has_no_own_noise() -> None:
    """The current alone requires only the effort; a setting for the torque is rejected; numbers must fit the joints."""
    words: Any = ("joint_effort",)
    engine = sn.TensorEngine(1, joints=("a", "b"), provides=words)
    sn.Scene(engine, [sn.MotorCurrentCfg(joints=".*", torque_constant=0.1, fields=("current",), coulomb=0.1)])
    for fields in ({}, {"fields": ("current",), "cogging": (0.1,)}):
        with pytest.raises(sn.UnsupportedError, match=r"JOINT_TORQUE|JOINT_STATE"):
            sn.Scene(engine, [sn.MotorCurrentCfg(joints=".*", torque_constant=0.1, **fields)])
    with pytest.raises(sn.ConfigError, match="a field of this sensor"):
        sn.Scene(engine_of(1), [sn.MotorCurrentCfg(joints=".*", torque_constant=0.1, noise={"torque": 0.1})])
    with pytest.raises(sn.ConfigError, match="one number, or 3 of them"):
        sn.Scene(engine_of(1), [sn.MotorCurrentCfg(joints=".*", torque_constant=(0.1, 0.2))])


def test_units_are_ampere_and_those_of_the_joints() -> None:
    """The current is in A at any joint; the estimate of a slide is a force."""
    words: Any = ("joint_effort", "joint_torque")
    engine = sn.TensorEngine(1, joints=("rail",), slides=("rail",), provides=words)
    scene = sn.Scene(engine, [sn.MotorCurrentCfg(joints=".*", torque_constant=0.1, gear=300.0)])
    assert [spec.unit for spec in scene["motor_current"].specs] == ["A", "N"]


def test_non_finite_effort_names_the_joint() -> None:
    """The env is marked invalid, and the warning names the joint."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.MotorCurrentCfg(joints=".*", torque_constant=0.1, evaluate="always")])
    engine.joint_effort[1, 2] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'of joint c'"):
        scene.update()
    assert scene["motor_current"].valid.tolist() == [True, False]


def test_non_finite_velocity_invalidates_the_estimate() -> None:
    """If the drive subtracts friction, the joint velocity counts as state; otherwise it does not."""
    engine = engine_of(2)
    cfgs = [
        sn.MotorCurrentCfg(name=name, joints=".*", torque_constant=0.1, coulomb=friction)
        for name, friction in (("knows", 0.5), ("ignores", 0.0))
    ]
    scene = sn.Scene(engine, cfgs)
    engine.joint_vel[1, 2] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="sensor 'knows'.* env 1, body 'of joint c'"):
        scene.update()
        assert scene["knows"].valid.tolist() == [True, False]
    assert scene["ignores"].valid.all() and scene["ignores"].data.torque.isfinite().all()
