"""Joint sensors, checked against the engine's values, MuJoCo's sensors, and slow float64 models of encoders."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from selection import gate

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24
"""Half a unit in the last place of float32, relative."""
TURN = 2.0 * math.pi


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(envs: int, joints: Any = ("a", "b", "c"), dt: float = 0.001, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, dt, joints=joints, provides=("joint_state", "joint_effort"), **kwargs)


def swinging(envs: int, dt: float = 0.002, shift: float = 0.0) -> sn.TensorEngine:
    """Return three joints that swing differently in each env; `shift` gives the same law of motion another past."""
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + torch.arange(3, dtype=torch.float64)

    def motion(t: float) -> dict[str, Any]:
        angle = 3.0 * (t + shift) + phase
        return {"joint_pos": angle.sin(), "joint_vel": 3.0 * angle.cos(), "joint_effort": 5.0 * angle.sin()}

    return engine_of(envs, dt=dt, motion=motion)


def along(path: Array, cfg: sn.JointSensorCfg, dt: float = 0.001) -> tuple[Array, Array]:
    """Move the joints of one env along a path `[tick, joint]` and return measured position and velocity."""
    names = tuple(f"j{k}" for k in range(path.shape[1]))
    engine = engine_of(1, names, dt)
    engine.joint_pos = path[0]
    scene = sn.Scene(engine, [cfg])
    out: tuple[list[Array], list[Array]] = ([], [])
    for tick in range(len(path)):
        if tick:
            engine.joint_pos = path[tick]
            scene.update()
        data = scene[cfg].data
        out[0].append(numpy(data.position[0]))
        out[1].append(numpy(data.velocity[0]) if data.velocity is not None else np.zeros(path.shape[1]))
    return np.array(out[0]), np.array(out[1])


# Contract -------------------------------------------------------------------------------------------------------------

MODES: dict[str, dict[str, Any]] = {
    "plain": {"fields": "all"},
    "encoder": {"bits": 10, "eccentricity": (1e-3, 5e-4), "backlash": 0.01},
    "difference": {"bits": 12, "velocity_mode": "difference"},
    "period": {"bits": 12, "velocity_mode": "period", "backlash": (0.01, 0.02, 0.0)},
    "slow": {"bits": 12, "velocity_mode": "period", "update_period": 0.005},
}


@pytest.mark.parametrize("mode", gate(MODES, {"difference", "slow"}))
def test_the_contract_holds_in_every_mode(mode: str) -> None:
    """`check_sensor` passes for the plain sensor, the encoder, and both ways to derive the velocity."""
    rules = check_sensor(sn.JointSensorCfg(joints=".*", **MODES[mode]), swinging)
    assert {"truth_is_never_altered", "resuming_is_exact", "no_time_no_change"} <= set(rules)


def test_the_contract_holds_for_one_joint_without_a_joint_axis() -> None:
    """`check_sensor` passes for a singular selector with everything on."""
    check_sensor(sn.JointSensorCfg(joint="b", bits=12, velocity_mode="period", backlash=0.01), swinging)


@pytest.mark.parametrize("mode", MODES)
def test_no_value_from_before_a_reset_appears(mode: str) -> None:
    """Two envs with different pasts and one future are bit-identical from their reset on, in all fields and flags."""
    shots: list[list[Any]] = []
    for shift in (0.0, 5.0):
        engine = swinging(3, shift=shift)
        knobs = {"noise": {"position": 1e-3}, "delay": 0.004, "history_length": 2}
        scene = sn.Scene(engine, [cfg := sn.JointSensorCfg(joints=".*", **knobs, **MODES[mode])], seed=4)
        for _ in range(7):
            scene.update()
        engine.motion = swinging(3).motion
        engine.forward()
        scene.reset([1])
        shots.append([])
        for _ in range(8):
            scene.update()
            data, history = scene[cfg].read([1]), scene[cfg].history
            shots[-1] += [data.position, data.velocity, history.velocity[1], scene[cfg].valid[1]]
    assert all(torch.equal(a, b) for a, b in zip(*shots, strict=True))


# Readings -------------------------------------------------------------------------------------------------------------


def test_fields_are_the_engines_values_of_the_selected_joints() -> None:
    """Position, velocity and effort equal the engine's arrays bit for bit, in the order of the selection."""
    engine = engine_of(3)
    for name in ("joint_pos", "joint_vel", "joint_effort"):
        setattr(engine, name, torch.randn(3, 3))
    everything = sn.JointSensorCfg(name="all", joints=".*", fields="all")
    listed = sn.JointSensorCfg(name="listed", joints=("c", "[ab]"))
    single = sn.JointSensorCfg(name="single", joint="b", fields=("effort",))
    scene = sn.Scene(engine, [everything, listed, single])
    data = scene[everything].data
    assert torch.equal(data.position, engine.joint_pos) and torch.equal(data.velocity, engine.joint_vel)
    assert torch.equal(data.effort, engine.joint_effort) and data.joint_names == ("a", "b", "c")
    order = [2, 0, 1]
    assert scene["listed"].joint_names == ("c", "a", "b")
    assert torch.equal(scene[listed].data.position, engine.joint_pos[:, order])
    assert scene[listed].data.effort is None
    assert torch.equal(scene[single].data.effort, engine.joint_effort[:, 1])
    assert scene[single].data.position is None and scene["single"].specs[0].shape == ()
    assert [spec.axes for spec in scene["all"].specs] == [("joint",)] * 3


def test_units_follow_the_joint_types() -> None:
    """Hinges are in rad, slides in m, and the units of a mixture list both."""
    engine = engine_of(1, ("hinge", "rail", "lift"), slides=("rail", "lift"))
    cases = {
        "hinge": ["rad", "rad/s", "N m"],
        "rail|lift": ["m", "m/s", "N"],
        ".*": ["rad|m", "rad/s|m/s", "N m|N"],
    }
    for pattern, units in cases.items():
        scene = sn.Scene(engine, [sn.JointSensorCfg(joints=pattern, fields="all")])
        assert [spec.unit for spec in scene["joint"].specs] == units
    with pytest.raises(ValueError, match=r"slides: got 'lift', expected names among the joints hinge"):
        engine_of(1, ("hinge",), slides=("lift",))


def test_an_entity_selects_its_own_joints() -> None:
    """A reference with an entity selects the joints with that prefix; without prefixes it is the bare name."""
    engine = engine_of(1, ("left/hip", "left/knee", "right/hip"))
    cfg = sn.JointSensorCfg(joints=sn.ObjRef(type="joint", name=".*", entity="left"))
    assert sn.Scene(engine, [cfg])["joint"].joint_names == ("left/hip", "left/knee")
    cfg = sn.JointSensorCfg(joint=sn.ObjRef(type="joint", name="b", entity="robot"))
    assert sn.Scene(engine_of(1), [cfg])["joint"].joint_names == ("b",)


BALLS = """
<mujoco><worldbody><body name="torso"><freejoint name="root"/><geom size=".1"/>
  <body name="arm" pos="0 0 1"><joint name="shoulder" type="ball"/><geom size=".1"/>
    <body name="hand" pos="0 0 1"><joint name="wrist"/><geom size=".1"/>
      <body name="finger" pos="0 0 1"><joint name="slip" type="slide"/><geom size=".1"/></body></body></body>
</body></worldbody></mujoco>
"""


def test_pattern_selects_scalar_joints_only_and_naming_another_raises() -> None:
    """`.*` skips free and ball joints; an explicit name raises an error that states the right sensor."""
    scene = sn.Scene(sn.MujocoEngine(BALLS), [sn.JointSensorCfg(joints=".*")])
    assert scene["joint"].joint_names == ("wrist", "slip")
    assert [spec.unit for spec in scene["joint"].specs] == ["rad|m", "rad/s|m/s"]
    for selector in ({"joint": "shoulder"}, {"joints": ("wrist", "root")}, {"joints": "(root|shoulder)"}):
        with pytest.raises(sn.SelectionError, match=r"a hinge or a slide.*BuiltinSensor.*ballquat.*Imu"):
            sn.Scene(sn.MujocoEngine(BALLS), [sn.JointSensorCfg(**selector)])
    with pytest.raises(sn.SelectionError, match=r"Did you mean 'wrist'.*Joints in this model: wrist, slip"):
        sn.Scene(sn.MujocoEngine(BALLS), [sn.JointSensorCfg(joint="wirst")])
    with pytest.raises(sn.SelectionError, match=r"exactly one joint.*use 'joints'"):
        sn.Scene(engine_of(1), [sn.JointSensorCfg(joint=".*")])


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "exactly one of joint and joints"),
        ({"joint": "a", "joints": "b"}, "exactly one of joint and joints"),
        ({"joint": "a", "fields": ("speed",)}, "fields among position, velocity, effort"),
        ({"joint": "a", "fields": ()}, "at least one field"),
        ({"joint": "a", "bits": 12, "counts_per_turn": 100.0}, "bits: got 12, expected either bits or counts_per_turn"),
        ({"joint": "a", "bits": 12, "position_resolution": 0.1}, "bits: got 12, expected either bits or a resolution"),
        (
            {"joint": "a", "counts_per_turn": 9.0, "resolution": {"position": 0.1}},
            "either .* or a resolution of the position",
        ),
        (
            {"joint": "a", "fields": ("position",), "bits": 9, "resolution": 0.1},
            "either .* or a resolution of the position",
        ),
        ({"joint": "a", "bits": 31}, "1 to 30 bits"),
        ({"joint": "a", "counts_per_turn": 0.0}, "a number of counts above 0"),
        ({"joint": "a", "gear": (1.0, 0.0)}, "a ratio above 0"),
        ({"joint": "a", "backlash": -0.1}, "a width >= 0"),
        ({"joints": "a|b", "bits": 9, "gear": (1.0,), "backlash": (0.1, 0.2)}, "as many numbers as gear, 1"),
        ({"joints": "a|b", "counts_per_turn": (9.0, 9.0), "gear": (1.0, 2.0, 3.0)}, "as counts_per_turn, 2"),
        ({"joint": "a", "gear": math.nan}, "gear: got nan, expected a finite number, or one per joint"),
        ({"joint": "a", "counts_per_turn": math.inf}, "counts_per_turn: got inf, expected a finite number"),
        ({"joint": "a", "backlash": ()}, r"backlash: got \(\), expected a finite number, or one per joint"),
        ({"joint": "a", "eccentricity": (math.nan, 0.0)}, "eccentricity: got .*expected two amplitudes"),
        ({"joint": "a", "eccentricity": (0.1, 0.0), "eccentricity_phase": (0.0, math.inf)}, "two finite angles"),
        ({"joint": "a", "eccentricity": (0.5, 0.3)}, "A1 . 2 A2 < 1 rad"),
        ({"joint": "a", "eccentricity_phase": (0.5, 0.3)}, "eccentricity_phase: .*eccentricity"),
        ({"joint": "a", "bits": 9, "fields": ("velocity",)}, "position in `fields`"),
        ({"joint": "a", "velocity_mode": "difference", "fields": ("velocity",)}, "position in `fields`"),
        ({"joint": "a", "velocity_mode": "difference", "velocity_noise": 0.1}, "position_noise"),
        ({"joint": "a", "velocity_mode": "period", "bias": {"velocity": 0.1}, "bits": 9}, "position_bias"),
        ({"joint": "a", "velocity_mode": "period"}, "counts_per_turn, bits or a resolution of the position"),
        ({"joint": "a", "velocity_mode": "tachometer"}, "velocity_mode"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    """Each fault names the field, the given value and the accepted values."""
    with pytest.raises(sn.ConfigError, match=match):
        sn.JointSensorCfg(**fields)


def test_mismatch_with_the_joints_is_refused_at_scene_build() -> None:
    """Numbers per joint must match the joints; a rotary encoder on a slide requires a gear; units are per field."""
    engine = engine_of(1, slides=("c",))
    cases = [
        ({"joints": ".*", "backlash": (0.1, 0.2)}, "one number, or 3 of them. The joints are a, b, c"),
        ({"joints": ".*", "bits": 12}, r"a gear \(rad per m\) as well, since c slide"),
        ({"joints": ".*", "noise": 0.1}, "one amount per field"),
        ({"joints": ".*", "effort_noise": 0.1}, "the field 'effort' among `fields`"),
    ]
    for fields, match in cases:
        with pytest.raises(sn.ConfigError, match=match):
            sn.Scene(engine, [sn.JointSensorCfg(**fields)])
    sn.Scene(engine, [sn.JointSensorCfg(joints=".*", bits=12, gear=(1.0, 1.0, 500.0))])


def test_non_finite_state_is_flagged_and_names_the_joint() -> None:
    """One bad joint invalidates only its env, with one warning that names it, until it is finite again."""
    engine = engine_of(2)
    cfg = sn.JointSensorCfg(joints=".*", bits=10, backlash=0.01, velocity_mode="period")
    scene = sn.Scene(engine, [cfg])
    engine.joint_pos[1, 2] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'of joint c'"):
        scene.update()
    assert scene["joint"].valid.tolist() == [True, False]
    engine.joint_pos[1, 2] = 0.0
    scene.update()
    assert scene["joint"].valid.all() and scene[cfg].data.velocity.isfinite().all()


# MuJoCo ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", gate(["quadruped", "humanoid", "manipulator", "dog"], {"quadruped", "humanoid", "manipulator"})
)
def test_every_joint_of_a_robot_reads_as_mujocos_sensors(model: str) -> None:
    """jointpos, jointvel and jointactuatorfrc of every hinge and slide agree to the last float32 digit or two."""
    suite = Path(pytest.importorskip("dm_control").__file__).parent / "suite"
    spec = mujoco.MjSpec.from_file(str(suite / f"{model}.xml"))
    kinds = {"position": "JOINTPOS", "velocity": "JOINTVEL", "effort": "JOINTACTFRC"}
    scalar = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    names = [joint.name for joint in spec.joints if joint.type in scalar and joint.name]
    for field, kind in kinds.items():
        for joint in names:
            spec.add_sensor(
                name=f"{field} {joint}", type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
                objtype=mujoco.mjtObj.mjOBJ_JOINT, objname=joint,
            )  # fmt: skip
    reference = spec.compile()
    engine = sn.MujocoEngine(spec, num_envs=2)
    scene = sn.Scene(engine, [cfg := sn.JointSensorCfg(joints=".*", fields="all")])
    assert list(scene["joint"].joint_names) == names and len(names) > 6
    rng = np.random.default_rng(7)
    moved = 0.0
    for _ in range(5):
        scene.step(torch.as_tensor(rng.uniform(-1.0, 1.0, (2, reference.nu))), substeps=4)
        for env in range(2):
            data = mujoco.MjData(reference)
            for name in ("qpos", "qvel", "act", "ctrl"):
                getattr(data, name)[:] = numpy(getattr(engine, name)[env])
            mujoco.mj_forward(reference, data)
            for field in kinds:
                native = np.array([data.sensor(f"{field} {joint}").data[0] for joint in names])
                ours = numpy(getattr(scene[cfg].data, field)[env])
                np.testing.assert_allclose(ours, native, rtol=2.0 * EPS, atol=1e-6 * max(1.0, np.abs(native).max()))
                moved += np.abs(native).max()
    assert moved > 1.0


# Encoder --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [{"bits": 14}, {"counts_per_turn": 4000.0}, {"position_resolution": 1e-3}])
@pytest.mark.parametrize("gear", [None, 9.0])
def test_readings_are_whole_counts_and_their_error_is_uniform(encoder: dict[str, Any], gear: float | None) -> None:
    """Each reading is a multiple of the LSB, and the error is uniform in +-LSB/2 (Kolmogorov-Smirnov, p > 1e-6)."""
    lsb = encoder.get("position_resolution") or TURN / (encoder.get("counts_per_turn") or 2.0 ** encoder["bits"])
    if "position_resolution" not in encoder:
        lsb /= gear or 1.0
    engine = engine_of(4000)
    engine.joint_pos = torch.as_tensor(np.random.default_rng(1).uniform(-3.0, 3.0, (4000, 3)))
    scene = sn.Scene(engine, [sn.JointSensorCfg(joints=".*", gear=gear, fields=("position",), **encoder)])
    true, read = numpy(engine.joint_pos), numpy(scene["joint"].data.position)
    counts = read / lsb
    # count * LSB is rounded to float32, and the LSB itself was
    np.testing.assert_allclose(counts, np.rint(counts), atol=3.0 * EPS * 3.0 / lsb)
    error = (read - true) / lsb
    assert np.abs(error).max() <= 0.5 + 6.0 * EPS * 3.0 / lsb
    assert stats.kstest(error.ravel(), "uniform", args=(-0.5, 1.0)).pvalue > 1e-6


def test_gear_and_counts_can_differ_per_joint() -> None:
    """LSB is 2 pi / (counts gear) for each joint separately."""
    cfg = sn.JointSensorCfg(joints=".*", counts_per_turn=(100.0, 200.0, 400.0), gear=(1.0, 5.0, 2.0))
    assert cfg.encoder_resolution == pytest.approx((TURN / 100.0, TURN / 1000.0, TURN / 800.0))
    path = np.tile(np.linspace(0.0, 1.0, 200)[:, None], (1, 3))
    read, _ = along(path, cfg)
    for joint, quantum in enumerate(cfg.encoder_resolution):
        steps = np.unique(np.rint(read[:, joint] / quantum))
        assert len(steps) == min(round(1.0 / quantum) + 1, 200)
        np.testing.assert_allclose(read[:, joint], np.rint(path[:, joint] / quantum) * quantum, atol=4.0 * EPS)


def play(path: Array, width: float) -> Array:
    """Return the play operator in float32, sample by sample."""
    m, b = path.astype(np.float32), np.float32(0.5 * width)
    out = np.empty_like(m)
    out[0] = m[0]
    for k in range(1, len(m)):
        out[k] = np.minimum(np.maximum(out[k - 1], m[k] - b), m[k] + b)
    return out.astype(np.float64)


def test_backlash_is_the_play_operator() -> None:
    """For any path the reading equals the reference loop bit for bit, with a width per joint."""
    steps = np.random.default_rng(2).normal(0.0, 0.02, (500, 3))
    path = np.cumsum(steps, axis=0)
    widths = (0.05, 0.2, 0.0)
    read, _ = along(path, sn.JointSensorCfg(joints=".*", backlash=widths, fields=("position",)))
    expected = np.stack([play(path[:, k], width) for k, width in enumerate(widths)], axis=1)
    assert np.array_equal(read, expected)
    assert np.array_equal(read[:, 2], path[:, 2].astype(np.float32))


def test_backlash_loop_has_the_theoretical_width_and_area() -> None:
    """A swing of amplitude A through a play of width 2 b forms a parallelogram of width 2 b and area 4 b (A - b)."""
    amplitude, b = 1.0, 0.125  # binary fractions: all values are exact
    up = np.arange(-64, 64) / 64.0
    path = np.concatenate([up, -up, up, -up, [-1.0]])[:, None] * amplitude
    read, _ = along(path, sn.JointSensorCfg(joints=".*", backlash=2.0 * b, fields=("position",)))
    x, y = path[256:, 0], read[256:, 0]  # the second loop is closed
    assert (x[0], y[0]) == (x[-1], y[-1])
    area = 0.5 * abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))
    assert area == 4.0 * b * (amplitude - b)
    level = y == 0.5
    assert x[level].max() - x[level].min() == 2.0 * b


def test_the_play_starts_where_each_episode_starts() -> None:
    """After a reset no previous lag remains, in that env alone."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [cfg := sn.JointSensorCfg(joints=".*", backlash=1.0)])
    engine.joint_pos = 2.0
    scene.update()
    assert scene[cfg].data.position.tolist() == [[1.5] * 3] * 2
    scene.reset([1], joint_pos=7.0)
    assert scene[cfg].data.position.tolist() == [[1.5] * 3, [7.0] * 3]


def test_eccentricity_is_two_sines_of_the_encoders_shaft() -> None:
    """With given phases the error is A1 sin(N q + p1) + A2 sin(2 N q + p2), divided by the gear N."""
    a, p, gear = (0.02, 0.01), (0.3, -1.0), 3.0
    path = np.linspace(-2.0, 2.0, 100)[:, None]
    cfg = sn.JointSensorCfg(joints=".*", eccentricity=a, eccentricity_phase=p, gear=gear, fields=("position",))
    read, _ = along(path, cfg)
    q = path.astype(np.float32).astype(np.float64)
    error = (a[0] * np.sin(gear * q + p[0]) + a[1] * np.sin(2.0 * gear * q + p[1])) / gear
    np.testing.assert_allclose(read, q + error, atol=4.0 * EPS * 2.0 + 30.0 * EPS * sum(a))


def test_phases_of_eccentricity_are_drawn_per_env_joint_and_episode() -> None:
    """The error at rest is A1 sin(p1) with p1 uniform in [0, 2 pi), different for each env, joint and episode."""
    amplitude = 0.5
    scene = sn.Scene(engine_of(3000), [cfg := sn.JointSensorCfg(joints=".*", eccentricity=(amplitude, 0.0))], seed=5)
    first = numpy(scene[cfg].read().position)
    # the arcsine law: sin of a uniform phase
    law = stats.arcsine(loc=-1.0, scale=2.0).cdf
    assert stats.kstest(first.ravel() / amplitude, law).pvalue > 1e-6
    assert abs(np.corrcoef(first[:, 0], first[:, 1])[0, 1]) < 5.0 / math.sqrt(3000)
    scene.update()
    assert np.array_equal(numpy(scene[cfg].read().position), first)
    scene.reset([0])
    again = numpy(scene[cfg].read().position)
    assert (again[0] != first[0]).all() and np.array_equal(again[1:], first[1:])


def test_an_encoder_never_counts_backwards_while_the_joint_moves_forwards() -> None:
    """Quantisation, eccentricity up to its bound, backlash and gear preserve the order of positions."""
    path = np.cumsum(np.random.default_rng(3).exponential(0.003, (800, 4)), axis=0)
    cfg = sn.JointSensorCfg(
        joints=".*", bits=11, eccentricity=(0.5, 0.2), backlash=0.02, gear=2.0, velocity_mode="difference"
    )
    read, velocity = along(path, cfg)
    assert (np.diff(read, axis=0) >= 0.0).all() and (velocity >= 0.0).all()
    assert (np.diff(read, axis=0) > 0.0).any()


# Velocity by difference -----------------------------------------------------------------------------------------------


def test_the_velocity_by_difference_comes_in_quanta_of_lsb_over_period() -> None:
    """Velocities are whole multiples of LSB/T and exactly the differences of the measured positions."""
    lsb, dt = TURN / 2**14, 0.001
    path = np.cumsum(np.random.default_rng(4).normal(0.0, 3.0 * lsb, (400, 5)), axis=0)
    read, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=14, velocity_mode="difference"), dt)
    quanta = velocity * dt / lsb
    np.testing.assert_allclose(quanta, np.rint(quanta), atol=6.0 * EPS * np.abs(quanta).max())
    np.testing.assert_array_equal(np.rint(quanta)[1:], np.rint(np.diff(np.rint(read / lsb), axis=0)))
    assert len(np.unique(np.rint(quanta))) > 10
    assert lsb / dt == pytest.approx(0.3835, rel=1e-3)  # 14 bits at 1 kHz: the known 0.38 rad/s


def test_the_first_sample_of_an_episode_has_no_difference() -> None:
    """The velocity reads 0 and is invalid; a teleport in a reset causes no spike; the truth is always the true
    velocity.
    """
    engine = engine_of(2, dt=0.01)
    engine.joint_vel = 3.0
    scene = sn.Scene(engine, [cfg := sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="difference")])
    sensor = scene[cfg]
    assert not sensor.valid.any() and not sensor.data.velocity.any()
    engine.joint_pos = 0.5
    scene.update()
    assert sensor.valid.all() and sensor.data.velocity.min() > 49.0
    scene.reset([1], joint_pos=-2.0)
    assert sensor.valid.tolist() == [True, False]
    assert sensor.data.velocity[0].min() > 49.0 and not sensor.data.velocity[1].any()
    scene.update()
    assert sensor.valid.all() and not sensor.data.velocity[1].any()
    assert (sensor.ground_truth.velocity == 3.0).all()


def test_difference_uses_the_elapsed_time() -> None:
    """At 300 Hz on 1 kHz ticks, samples are 3 or 4 ticks apart, and a constant speed reads constant."""
    engine = engine_of(1, dt=0.001)
    cfg = sn.JointSensorCfg(joints=".*", rate_hz=300.0, velocity_mode="difference")
    scene = sn.Scene(engine, [cfg])
    gaps, speeds, last = set(), [], 0
    for tick in range(1, 41):
        engine.joint_pos = 2.0 * tick * 0.001
        scene.update()
        captured = int(scene[cfg].capture_tick[0])
        if captured != last:
            gaps.add(captured - last)
            speeds.append(float(scene[cfg].data.velocity[0, 0]))
            last = captured
    assert gaps == {3, 4}
    np.testing.assert_allclose(speeds, 2.0, rtol=4.0 * EPS * 0.08 / 0.006)  # rounding of two positions up to 0.08


def test_delay_keeps_position_and_velocity_synchronous() -> None:
    """The shown velocity is the difference of the shown position and the previous one."""
    engine = swinging(3)
    cfg = sn.JointSensorCfg(
        joints=".*", bits=12, velocity_mode="difference", delay=0.006, history_length=6, position_noise=1e-3
    )
    scene = sn.Scene(engine, [cfg])
    for _ in range(10):
        scene.update()
    data, history, lsb = scene[cfg].data, scene[cfg].history, TURN / 2**12
    assert torch.equal(data.position, history.position[:, 3]) and torch.equal(data.velocity, history.velocity[:, 3])
    counts = np.rint(numpy(history.position) / lsb)
    np.testing.assert_allclose(
        numpy(history.velocity[:, :-1]), (counts[:, :-1] - counts[:, 1:]) * lsb / 0.002, rtol=6.0 * EPS, atol=1e-12
    )


def test_velocity_is_derived_from_the_fully_measured_position() -> None:
    """A clipped position is constant, and its velocity is zero, though the joint continues to move."""
    path = np.linspace(0.0, 1.0, 101)[:, None]
    clip = sn.stages.Saturation(fields=("position",), high=0.5)
    read, velocity = along(path, sn.JointSensorCfg(joints=".*", velocity_mode="difference", stages=(clip,)))
    assert read.max() == 0.5 and not velocity[52:].any()
    np.testing.assert_allclose(velocity[1:50], 10.0, rtol=1e-3)


def test_a_resolution_set_for_one_env_changes_its_quanta_alone() -> None:
    """A derived velocity follows a resolution set at run time, in that env from the next sample on."""
    engine = swinging(3)
    scene = sn.Scene(engine, [cfg := sn.JointSensorCfg(joints=".*", position_resolution=0.001,
                                                       velocity_mode="difference")])  # fmt: skip
    scene.update()
    scene[cfg].set("position_resolution", 0.004, env_ids=[1])
    scene.update()
    scene.update()
    quanta = numpy(scene[cfg].data.velocity) * 0.002 / 0.001
    np.testing.assert_allclose(quanta, np.rint(quanta), atol=1e-4)
    assert (np.rint(quanta[1]) % 4 == 0).all() and (np.rint(quanta[[0, 2]]) % 4 != 0).any()


def test_derived_velocity_has_no_separate_noise() -> None:
    """A run-time setting of a derived velocity is rejected, because it has none."""
    scene = sn.Scene(engine_of(1), [sn.JointSensorCfg(joints=".*", position_noise=0.1, velocity_mode="difference")])
    with pytest.raises(sn.UnknownNameError, match="velocity"):
        scene["joint"].set("noise", {"velocity": 0.1})
    with pytest.raises(sn.ConfigError, match="a field of this sensor"):
        clip = sn.stages.Saturation(fields=("velocity",), high=1.0)
        sn.Scene(engine_of(1), [sn.JointSensorCfg(joints=".*", velocity_mode="difference", stages=(clip,))])


# Velocity by period ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_sample", [0.031, 0.11, 0.43, 0.9, 1.7, 2.9, 17.3])
def test_the_period_method_resolves_a_constant_speed(per_sample: float) -> None:
    """After two edges the reading is the speed within the rounding of positions, from 0.03 to 17 counts per sample."""
    lsb, dt = TURN / 2**12, 0.001
    speed = per_sample * lsb / dt
    ticks = math.ceil(4.0 / per_sample) + 60
    path = speed * dt * np.arange(ticks)[:, None] * np.array([1.0, -1.0]) + 0.3 * lsb
    _, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="period"), dt)
    settled = slice(math.ceil(2.0 / per_sample) + 2, None)
    # an edge's time is off by the rounding of two positions over the speed, twice; a gap is at least half a sample
    rounding = 8.0 * EPS * np.abs(path).max() / (speed * dt * max(0.5, 1.0 / per_sample))
    np.testing.assert_allclose(velocity[settled, 0], speed, rtol=rounding + 1e-5)
    np.testing.assert_allclose(velocity[settled, 1], -speed, rtol=rounding + 1e-5)


def test_several_edges_in_the_first_sample_give_a_speed_immediately() -> None:
    """Two edges suffice, also within one sample; a single edge gives no measurement yet."""
    lsb, dt = TURN / 2**12, 0.001
    path = lsb * np.arange(3)[:, None] * np.array([17.3, -2.4, 0.8])
    _, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="period"), dt)
    np.testing.assert_allclose(velocity[1], np.array([17.3, -2.4, 0.0]) * lsb / dt, rtol=1e-4)
    np.testing.assert_allclose(velocity[2], np.array([17.3, -2.4, 0.8]) * lsb / dt, rtol=1e-4)


def test_at_slow_speed_the_period_method_beats_the_difference() -> None:
    """At a changing speed of some hundredths of a count per sample its rms error is below a tenth of the other's."""
    lsb, dt = TURN / 2**12, 0.001
    time = dt * np.arange(2000)
    speed = lsb / dt * (0.08 + 0.03 * np.sin(TURN * 0.5 * time))
    path = np.cumsum(speed * dt)[:, None]
    errors = {}
    for mode in ("difference", "period"):
        _, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=12, velocity_mode=mode), dt)
        errors[mode] = float(np.sqrt(np.mean((velocity[100:, 0] - speed[100:]) ** 2)))
    # by difference the reading is 0 or one quantum: a Bernoulli variable of mean p = 0.05 to 0.11
    assert errors["difference"] == pytest.approx(lsb / dt * math.sqrt(np.mean(0.08 * 0.92)), rel=0.1)
    assert errors["period"] < 0.1 * errors["difference"]


def test_without_an_edge_the_period_velocity_decays_as_one_over_time() -> None:
    """After a stop the reading is at most one count over the time since the last edge, and reaches that bound."""
    lsb, dt = TURN / 2**12, 0.001
    moving = 0.7 * lsb * np.arange(100)
    path = np.concatenate([moving, np.full(200, moving[-1])])[:, None]
    read, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="period"), dt)
    edge = (np.rint(read[-1, 0] / lsb) - 0.5) * lsb / (0.7 * lsb)  # tick of the last edge
    since = (np.arange(300) - edge) * dt
    after = slice(105, None)
    np.testing.assert_allclose(velocity[after, 0], lsb / since[after], rtol=1e-3)


def test_reversing_over_one_edge_reads_zero_speed() -> None:
    """Crossing the same edge back and forth is no motion: the reading is 0 and has no spike."""
    lsb = TURN / 2**10
    path = lsb * (0.5 + 0.2 * np.sin(0.7 * np.arange(60)))[:, None]
    read, velocity = along(path, sn.JointSensorCfg(joints=".*", bits=10, velocity_mode="period"))
    assert len(np.unique(read)) == 2 and not velocity.any()


def test_bias_moves_the_edges_and_not_the_period_velocity() -> None:
    """A zero offset shifts the edges; a constant speed reads the same."""
    lsb, dt = TURN / 2**12, 0.001
    path = 0.11 * lsb * np.arange(200)[:, None]
    cfg = sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="period", position_bias=0.37 * lsb)
    _, velocity = along(path, cfg, dt)
    np.testing.assert_allclose(velocity[40:, 0], 0.11 * lsb / dt, rtol=1e-3)


def test_noise_at_an_edge_causes_no_speed_spike() -> None:
    """A joint at rest on an edge, with noise, reads at most two counts per half sample."""
    lsb = TURN / 2**12
    path = np.full((400, 4), 0.5 * lsb)
    cfg = sn.JointSensorCfg(joints=".*", bits=12, velocity_mode="period", position_noise=0.2 * lsb)
    read, velocity = along(path, cfg)
    assert len(np.unique(read)) >= 2
    assert np.abs(velocity).max() <= 2.0 * lsb / (0.5 * 0.001)


# Knobs ----------------------------------------------------------------------------------------------------------------


def test_knobs_by_field_prefix_and_joint_are_the_standard_chain() -> None:
    """Noise per joint has a separate deviation, a bias by prefix is exact, and a distribution is drawn per env and
    joint.
    """
    sigma = (0.01, 0.1, 1.0)
    cfg = sn.JointSensorCfg(
        joints=".*", fields="all", noise={"position": sigma}, velocity_bias=0.25, effort_bias=sn.Uniform(-1.0, 1.0)
    )
    data = sn.Scene(engine_of(5000), [cfg])[cfg].data
    # the deviation of a sample deviation of n normals is sigma / sqrt(2 n)
    np.testing.assert_allclose(numpy(data.position.std(dim=0)), sigma, rtol=6.0 / math.sqrt(2.0 * 5000))
    assert (data.velocity == 0.25).all()
    assert stats.kstest(numpy(data.effort).ravel(), "uniform", args=(-1.0, 2.0)).pvalue > 1e-6


def test_clean_sensor_shares_one_buffer() -> None:
    """Without imperfections the measured data are the truth, without a second record."""
    scene = sn.Scene(engine_of(2), [cfg := sn.JointSensorCfg(joints=".*")])
    assert scene[cfg].data.position.data_ptr() == scene[cfg].ground_truth.position.data_ptr()
    assert scene[cfg].is_lazy
