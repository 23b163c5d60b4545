"""The demo robot stands and trots over its uneven ground without falling, and its leg kinematics invert exactly."""

from __future__ import annotations

import subprocess
import sys

import mujoco
import mujoco.batch
import numpy as np
import numpy.typing as npt
import pytest
import torch

import sensorium.demo
from sensorium.demo import model_path
from sensorium.demo.gait import HOME_HEIGHT, LEGS, Geometry, Trot

Array = npt.NDArray[np.float64]

ENVS = 16
SECONDS = 4.0
RAMP = 0.5


def _up(qpos: Array) -> Array:
    return 1.0 - 2.0 * (qpos[..., 4] ** 2 + qpos[..., 5] ** 2)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    """Load the demo model, with a touch sensor under every foot as its first sensors."""
    model = mujoco.MjModel.from_xml_path(str(model_path()))
    assert [model.sensor(k).name for k in range(4)] == [f"{leg}_touch" for leg in LEGS]
    return model


@pytest.fixture(scope="module")
def walk(model: mujoco.MjModel) -> dict[str, Array]:
    """Record states and touch forces [env, step, ...] of a trot from slightly different places and headings."""
    batch = mujoco.batch.Batch(model, ENVS)
    batch.reset(keyframe=0, stage=mujoco.mjtStage.mjSTAGE_NONE)
    rng = np.random.default_rng(3)
    yaw = rng.uniform(-0.2, 0.2, ENVS)
    qpos = batch.qpos
    qpos[:, :2] += rng.uniform(-0.2, 0.2, (ENVS, 2))
    for env in range(ENVS):
        turn = np.array([np.cos(yaw[env] / 2), 0.0, 0.0, np.sin(yaw[env] / 2)])
        mujoco.mju_mulQuat(qpos[env, 3:7], turn, qpos[env, 3:7].copy())
    start = qpos[:, :2].copy()
    steps = round(SECONDS / model.opt.timestep)
    time = torch.arange(steps, dtype=torch.float64) * model.opt.timestep
    control = np.broadcast_to(Trot().targets(time).numpy(), (ENVS, steps, model.nu))
    out = batch.rollout(
        steps, control=np.ascontiguousarray(control), record=("qpos", "qvel", "sensordata", "actuator_force")
    )
    assert all(status == 0 for status in np.asarray(batch.status).ravel())
    walked = {name: np.asarray(values) for name, values in out.items() if isinstance(name, str)}
    return walked | {"yaw": yaw, "start": start, "time": time.numpy()}


def test_no_robot_falls(walk: dict[str, Array]) -> None:
    """The trunk stays upright, close to its standing height, and rolls and pitches little."""
    qpos = walk["qpos"]
    assert _up(qpos).min() > 0.98
    assert qpos[..., 2].min() > 0.26
    assert qpos[..., 2].max() < 0.36


def test_every_env_walks_forward(walk: dict[str, Array]) -> None:
    """Every robot walks well ahead along its initial heading and drifts little to the side."""
    moved = walk["qpos"][:, -1, :2] - walk["start"]
    cos, sin = np.cos(walk["yaw"]), np.sin(walk["yaw"])
    assert (moved[:, 0] * cos + moved[:, 1] * sin).min() > 1.0
    assert np.abs(moved[:, 1] * cos - moved[:, 0] * sin).max() < 0.5


def test_all_numbers_finite(walk: dict[str, Array]) -> None:
    """States, touch forces and actuator forces are finite, and the actuators stay within their limits."""
    for values in walk.values():
        assert np.isfinite(values).all()
    assert np.abs(walk["actuator_force"]).max() <= 30.0


def test_diagonal_feet_touch_in_phase(walk: dict[str, Array]) -> None:
    """Diagonal feet are down together most of the time, feet of one side mostly are not, and every foot steps."""
    touch = walk["sensordata"][..., :4][:, walk["time"] > 2.0 * RAMP] > 1.0
    front_left, front_right, rear_left, rear_right = np.moveaxis(touch, -1, 0)
    assert (front_left == rear_right).mean() > 0.85
    assert (front_right == rear_left).mean() > 0.85
    assert (front_left == rear_left).mean() < 0.5
    assert (front_right == rear_right).mean() < 0.5
    assert ((touch.mean(axis=1) > 0.4) & (touch.mean(axis=1) < 0.75)).all()


def test_home_pose_stands_still(model: mujoco.MjModel) -> None:
    """From the home keyframe the robot neither drops nor walks away, and its controls are the trot's first targets."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    np.testing.assert_allclose(data.ctrl, Trot().targets(torch.tensor(0.0, dtype=torch.float64)).numpy(), atol=1e-4)
    before = data.qpos.copy()
    mujoco.mj_step(model, data, 1000)
    assert np.abs(data.qpos - before).max() < 5e-3
    assert np.abs(data.qvel).max() < 5e-3


def test_inverse_kinematics_round_trip() -> None:
    """Forward kinematics of the targets reproduces the commanded feet, in both precisions."""
    trot = Trot(turn_rate=0.5, body_height=0.28)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        time = torch.linspace(0.0, 3.0, 1001, dtype=dtype)
        feet = trot.feet(time)
        assert (trot.geometry.forward(trot.targets(time)) - feet).abs().max().item() < tolerance


def test_inverse_kinematics_matches_model(model: mujoco.MjModel) -> None:
    """MuJoCo's foot positions agree with the leg formulas, for joint angles over most of their range."""
    data = mujoco.MjData(model)
    rng = np.random.default_rng(5)
    g = Geometry()
    hips = np.array([[sx * g.hip_x, sy * g.hip_y, 0.0] for sx in (1, -1) for sy in (1, -1)])
    for _ in range(20):
        joints = np.stack([rng.uniform(-0.6, 0.6, 4), rng.uniform(0.0, 1.3, 4), rng.uniform(-2.2, -0.6, 4)], -1).ravel()
        data.qpos[:7] = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0)
        data.qpos[7:] = joints
        mujoco.mj_kinematics(model, data)
        feet = np.array([data.geom(f"{leg}_foot").xpos for leg in LEGS]) - (0.0, 0.0, 1.0) - hips
        np.testing.assert_allclose(g.forward(torch.from_numpy(joints)).numpy(), feet, atol=1e-9)
        np.testing.assert_allclose(g.inverse(torch.from_numpy(feet)).numpy(), joints, atol=1e-6)


def test_unreachable_feet_give_finite_joint_targets() -> None:
    """Feet commanded too far away or onto the hip still give finite joint targets."""
    far = torch.tensor([0.5, 0.0, -1.0]).expand(4, 3)
    near = torch.zeros(4, 3)
    for feet in (far, near):
        assert torch.isfinite(Geometry().inverse(feet)).all()


def test_gait_accepts_any_shape_of_time() -> None:
    """A scalar, a time per environment and any other shape of times give the same targets at the same time."""
    trot = Trot()
    assert trot.targets(1.3).shape == (12,)
    assert trot.targets(torch.linspace(0.0, 1.0, 5)).shape == (5, 12)
    assert trot.targets(torch.zeros(2, 3)).shape == (2, 3, 12)
    assert trot.targets(torch.tensor(2)).dtype == torch.get_default_dtype()
    torch.testing.assert_close(trot.targets(torch.tensor([0.2, 1.3]))[1], trot.targets(1.3))


def test_foot_path_is_smooth() -> None:
    """Past the soft start, feet never jump, and they leave and reach the ground at the speed of the stance feet."""
    trot = Trot()
    time = torch.arange(0.6, 3.0, 1e-4, dtype=torch.float64)
    velocity = torch.diff(trot.feet(time), dim=0) / 1e-4
    assert velocity.abs().max().item() < 2.5
    assert torch.diff(velocity, dim=0).abs().max().item() < 0.02
    down = trot.stance(time)
    assert (velocity[..., 0][down[1:] & down[:-1]] + trot.speed).abs().max().item() < 1e-6


def test_start_and_height() -> None:
    """The feet start at the home stance and reach the commanded body height after the ramp."""
    trot = Trot(body_height=0.27)
    feet = trot.feet(torch.tensor([-1.0, 0.0, 1.0, 1.2], dtype=torch.float64))
    torch.testing.assert_close(feet[:2, :, 2], torch.full((2, 4), -HOME_HEIGHT, dtype=torch.float64))
    torch.testing.assert_close(feet[2:, :, 2].amin(dim=-1), torch.full((2,), -0.27, dtype=torch.float64))


@pytest.mark.parametrize("bad", [{"frequency": 0.0}, {"duty": 1.0}, {"duty": 0.0}, {"ramp": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    """Invalid parameters raise at construction."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        Trot(**bad)  # type: ignore[arg-type]


def test_ground_height_follows_its_formula(model: mujoco.MjModel) -> None:
    """The height field has the documented shape, is level at the origin, and does not protrude at the rim."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    group = np.ones(mujoco.mjNGROUP, dtype=np.uint8)
    geom = np.zeros(1, dtype=np.int32)

    def height(x: float, y: float) -> float:
        down = mujoco.mj_ray(
            model, data, np.array([x, y, 2.0]), np.array([0.0, 0.0, -1.0]), group, 1, model.body("trunk").id, geom
        )
        return 2.0 - float(down)

    for x, y in ((4.0, 1.0), (4.0, -1.0), (2.5, 0.3), (7.3, -1.7), (6.1, 0.9)):
        expected = (
            0.011 * np.sin(3.7 * x + 0.9 * y) * np.cos(3.1 * y - 0.6)
            + 0.009 * np.sin(5.3 * x - 2.2 * y + 1.0)
            + 0.007 * np.cos(2.1 * x + 4.6 * y + 0.4)
            + 0.005 * np.sin(7.1 * y + 1.3 * x)
        )
        assert height(x, y) == pytest.approx(expected, abs=1e-4)
    for x, y in ((1.0, 2.99), (9.99, 0.0), (10.01, 0.0), (-1.99, 0.0), (-2.01, 0.0), (4.0, -2.99), (4.0, -3.01)):
        assert height(x, y) == pytest.approx(0.0, abs=2e-4)


def test_import_is_light() -> None:
    """Importing the package loads neither torch nor MuJoCo; access to `Trot` works."""
    code = (
        "import sys, sensorium.demo as demo; assert demo.model_path().is_file();"
        "assert not {'torch', 'mujoco'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sensorium.demo.Trot is Trot
