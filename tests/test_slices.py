"""A run of six environments equals its slices of 3 + 3 and 1 + 5, bit for bit: readings, controls and states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cart import Pushed
from slices import ENVS, Values, check_slices, seen

import sensorium as sn
from sensorium.cameras.geometry import pixel_rays
from sensorium.cli import main
from sensorium.cli.commands import Run
from sensorium.cli.serve import Serve
from sensorium.demo.gait import Trot, steer
from sensorium.geometry.transforms import angle_of, quat_level
from sensorium.record import load
from sensorium.rl import GymnasiumVectorEnv

MODEL = """
<mujoco><option timestep="0.005"/><worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body name="trunk" pos="0 0 .12"><freejoint/><geom type="box" size=".1 .1 .05" mass="1"/><site name="imu"/>
    <body name="leg" pos=".1 0 0"><joint name="hip" axis="0 1 0"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0"/></body></body></worldbody>
<actuator><motor name="hip" joint="hip" ctrlrange="-2 2"/></actuator></mujoco>"""
RIG = """
[[sensor]]
kind = "imu"
name = "imu"
body = "BODY"
rate_hz = 100.0
gyro_noise = 0.01
delay = { uniform = [0.0, 0.02] }

[[sensor]]
kind = "ray_caster"
name = "scan"
body = "BODY"
noise = 0.01
pattern = { kind = "grid", size = [0.2, 0.1] }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "rig.toml").write_text(RIG.replace("BODY", "trunk"))
    np.savez(tmp_path / "ctrl.npz", ctrl=np.random.default_rng(0).uniform(-2.0, 2.0, (8, ENVS + 2, 1)))
    (tmp_path / "robot.xml").write_text(MODEL)
    return tmp_path / "robot.xml"


@pytest.fixture
def thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo's engine chooses between its ways to step, all with the same bits, by the number of environments."""
    monkeypatch.setattr("sensorium.engines.mujoco.engine.PERSISTENT_UP_TO", 1)
    monkeypatch.setattr("sensorium.engines.mujoco.batch.LOOKAHEAD_FROM", 5)


def stepped(command: Run, ticks: int, time: float = 0.0) -> Values:
    """Return what `sensorium run` gives in each of its control steps, with the motion from a time on."""
    scene, _, control, every = command.built(command.drive(), lambda: None)
    every, start, found = min(every, ticks // 3), scene.tick, seen(scene)
    while scene.tick < start + ticks:
        ctrl = control(scene, time + (scene.tick - start) * scene.engine.dt)
        scene.step(ctrl, every)
        found |= seen(scene, ctrl)
    return found


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize(
    ("robot", "differ"), [("demo", ("engine", "trunk", "lidar")), ("arm", ("control", "encoders"))]
)
def test_slices_of_a_bundled_robot(robot: str, differ: tuple[str, ...]) -> None:
    check_slices(lambda envs, first: stepped(Run(Path(robot), envs=envs, first_env=first, seed=2), 20, 2.0), differ)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize(
    ("engine", "control"),
    [("mujoco", "random"), ("mujoco", "hold"), ("mujoco", "ctrl.npz"), ("mujoco_warp", "random")],
)
def test_slices_of_a_model(model: Path, engine: Any, control: str) -> None:
    name = str(model.with_name(control)) if "." in control else control
    command = partial(Run, model, model.with_name("rig.toml"), engine=engine, control=name)
    differ = ("imu", "scan") if control == "hold" else ("imu", "scan", "control", "engine")
    check_slices(lambda envs, first: stepped(command(envs=envs, first_env=first), 36), differ)


def test_slices_of_a_trajectory(tmp_path: Path) -> None:
    (tmp_path / "rig.toml").write_text(RIG.replace("BODY", "body"))
    command = partial(Run, None, tmp_path / "rig.toml", trajectory="drone", world="hall")
    check_slices(lambda envs, first: stepped(command(envs=envs, first_env=first), 30), ("imu", "scan"))


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("name", ["demo", "arm", "model"])
def test_slices_of_a_served_robot(model: Path, name: str) -> None:
    def run(envs: int, first: int) -> Values:
        command = Serve(str(model) if name == "model" else name, envs=envs, first_env=first, control="random")
        scene, _ = command._scene(command._run, None, [sn.ImuCfg(name="imu", bodies=".*")], [])
        controls, substeps = command._control(scene)
        found = seen(scene)
        assert controls is not None
        for _ in range(3):
            ctrl = controls()
            scene.step(ctrl, substeps)
            found |= seen(scene, ctrl)
        return found

    check_slices(run, ("control", "engine"))


@pytest.mark.usefixtures("thresholds")
def test_slices_of_a_task_in_gymnasium() -> None:
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (16, ENVS, 1)).astype(np.float32)

    def run(envs: int, first: int) -> Values:
        task = Pushed(envs, first)
        vector = GymnasiumVectorEnv(task)
        found = {"obs:0": torch.from_numpy(vector.reset(seed=3)[0])}
        task.episode_length.copy_(task.scene.global_env_ids)  # episodes end at different steps
        for step, action in enumerate(actions[:, first : first + envs]):
            obs, reward, terminated, truncated, _ = vector.step(action)
            told = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated}
            found |= {f"{name}:{step + 1}": torch.from_numpy(values.copy()) for name, values in told.items()}
            found |= seen(task.scene)
        return found

    check_slices(run, ("obs", "reward", "engine"))


def test_slices_of_tensors() -> None:
    """The user's own simulator draws its state, and a knob changes in some environments."""

    def run(envs: int, first: int) -> Values:
        engine = sn.TensorEngine(envs, bodies=("body",))
        cfg = sn.ImuCfg(name="imu", body="body", gyro_noise=sn.Uniform(0.0, 1.0), gyro_random_walk=0.1, delay=0.002)
        scene = sn.Scene(engine, [cfg], first_env=first)
        found: Values = {}
        for episode in range(2):
            for _ in range(3):
                engine.body_ang_vel_w[:, 0] = scene.draw("turn", sn.Normal(0.0, 1.0), 3, each_tick=True)
                scene.step()
                found |= seen(scene)
            some = scene.global_env_ids % 2 == episode
            scene.reset(some)
            engine.body_lin_vel_w[some, 0] = scene.draw("push", sn.Uniform(-1.0, 1.0), 3, some)
        return found

    check_slices(run, ("imu",))


def test_slices_of_the_commands_files(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo` has no slices: fewer environments are the first ones of a larger run. Sensors without delays are compared,
    since those with delays have a row for each tick at which a sample arrives in any environment.
    """
    monkeypatch.setattr("sensorium.cli.simulation.pictures", lambda *_: [])

    def run(envs: int, sensors: tuple[str, ...], *command: object) -> Values:
        out = str(model.with_name("out"))
        assert main([*map(str, command), "--envs", str(envs), "--out", out, "--seconds", "0.04"]) == 0
        recording = load(model.with_name("out") / "readings.npz")
        return {
            f"{name}:{part}.{field}": torch.from_numpy(values).movedim(0, 1)
            for name in sensors
            for part in ("truth", "measured")
            for field, values in getattr(recording[name], part).items()
        }

    whole, one = (run(envs, ("encoders", "clearance", "lidar", "head"), "demo") for envs in (3, 1))
    for name, values in one.items():
        assert values.numpy().tobytes() == whole[name][:1].numpy().tobytes(), name
    command = ("run", model, "--rig", model.with_name("rig.toml"), "--control", "random", "--first-env")
    check_slices(lambda envs, first: run(envs, ("scan",), *command, first), ("scan",))


# Parts ----------------------------------------------------------------------------------------------------------------


def test_values_do_not_depend_on_the_number_of_environments() -> None:
    """torch computes the last elements of some functions, and products of few rows, by other code than the rest."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        numbers = torch.rand((19, 7), generator=generator, dtype=dtype) * 12.0 - 4.0
        quats = torch.nn.functional.normalize(numbers[:, 3:], dim=1)
        intrinsics = torch.eye(3, dtype=dtype).repeat(19, 1, 1)
        intrinsics[:, :2, 2] = numbers[:, :2]
        intrinsics[:, 0, 0], intrinsics[:, 0, 1] = numbers[:, 0].abs(), numbers[:, 1]
        functions: tuple[tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]], ...] = (
            (angle_of, (numbers[:, 0], numbers[:, 1])),
            (steer, (torch.cat([numbers[:, :3], quats], dim=1),)),
            (Trot().targets, (numbers[:, 0].abs(), numbers[:, 1] / 8.0)),
            (quat_level, (quats,)),
            (partial(pixel_rays, height=5, width=7), (intrinsics,)),
        )
        for number, (function, given) in enumerate(functions):
            whole = function(*given)
            for count in range(1, 19):
                assert torch.equal(function(*(each[:count] for each in given)), whole[:count]), (number, count)


def test_angle_is_that_of_atan2() -> None:
    given = torch.tensor([[y, x] for y in (0.0, -0.0, 1.0, -2.0, 1e-30, -3e20) for x in (0.0, 1.0, -1.0, -1e-30, 2e20)])
    given = torch.cat([given, torch.randn((1000, 2), generator=torch.Generator().manual_seed(0))]).double()
    torch.testing.assert_close(angle_of(*given.T), torch.atan2(*given.T), rtol=0.0, atol=1e-15)
