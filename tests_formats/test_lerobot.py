"""LeRobot opens exported data sets, with the values, tasks and windows of time that the recording has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset

import sensorium as sn
from sensorium.cli import main
from sensorium.jobs.collect import collect
from sensorium.readings import Reading
from sensorium.record import Mark
from sensorium.record.export import write_lerobot
from sensorium.spec import FieldSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # of datasets and torchvision


def test_a_recording(tmp_path: Path) -> None:
    """Two environments, one of which is reset after 30 of 50 steps."""
    engine = sn.TensorEngine(num_envs=2, dt=0.005, bodies=["base"])
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="base", gyro_noise=0.1, fields=("ang_vel_b", "lin_acc_b"))])
    states, actions = [], []
    with scene.record(tmp_path / "run.mcap") as recorder:
        recorder.mark("task", "pick the cube")
        for step in range(50):
            if step == 30:
                scene.reset([0])
                recorder.mark("task", "place the cube", env_ids=[0])
            states.append(np.concatenate([scene["imu"].read().ang_vel_b, scene["imu"].read().lin_acc_b], axis=1))
            actions.append(np.array([[step, 0.0], [step, 1.0]], np.float32))
            recorder.log("action", actions[-1])
            for _ in range(4):
                scene.update()
            recorder.log("reward", np.array([step, -step], np.float32))
    root = tmp_path / "set"
    assert main(["export", str(tmp_path / "run.mcap"), "--to", str(root), "--format", "lerobot"]) == 0
    data = LeRobotDataset("sensorium/run", root=root, delta_timestamps={"action": [-0.02, 0.0, 0.02]})
    assert (data.num_episodes, data.num_frames, data.fps) == (3, 100, 50)
    lengths = [data.meta.episodes[k]["length"] for k in range(3)]
    assert lengths == [30, 20, 50]
    starts = ((0, 0, 30), (0, 30, 50), (1, 0, 50))
    for episode, (env, first, last) in enumerate(starts):
        at = data.meta.episodes[episode]["dataset_from_index"]
        for step in range(first, last):
            frame = data[at + step - first]
            np.testing.assert_allclose(frame["observation.state"], states[step][env], rtol=1e-6)
            window = [actions[min(max(each, first), last - 1)][env] for each in (step - 1, step, step + 1)]
            np.testing.assert_array_equal(frame["action"], window)
            assert frame["next.reward"] == (step, -step)[env] and frame["episode_index"] == episode
            assert frame["task"] == ("pick the cube", "place the cube")[episode == 1]
            assert bool(frame["next.done"]) is (step == last - 1)
            assert frame["timestamp"] == pytest.approx((step - first) / 50.0, abs=1e-6)
    rewards = np.concatenate([np.arange(50), -np.arange(50)])
    assert data.meta.stats["next.reward"]["mean"] == pytest.approx(rewards.mean())
    part = LeRobotDataset("sensorium/run", root=root, episodes=[2])
    assert len(part) == 50 and part[3]["next.reward"] == -3.0


def test_a_rate_that_does_not_divide_the_ticks(tmp_path: Path) -> None:
    """30 Hz on a grid of 2 ms: windows of neighbouring frames hold neighbouring samples."""
    engine = sn.TensorEngine(1, 0.002, bodies=["b"], motion=lambda t: {"body_pos_w": (t, 0.0, 0.0)})
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="s", body="b", rate_hz=30.0, fields=("pos_w",))])
    with scene.record(tmp_path / "run.mcap"):
        for _ in range(1000):
            scene.update()
    root = tmp_path / "set"
    assert main(["export", str(tmp_path / "run.mcap"), "--to", str(root), "--format", "lerobot"]) == 0
    data = LeRobotDataset("sensorium/run", root=root, delta_timestamps={"observation.state": [-1 / 30, 0.0, 1 / 30]})
    assert (data.fps, data.num_frames) == (30, 60)
    samples = 0.002 * np.ceil(np.arange(60) * 50.0 / 3.0 - 1e-9)
    for k in range(1, 59):
        np.testing.assert_allclose(data[k]["observation.state"][:, 0], samples[k - 1 : k + 2], atol=1e-6)


def test_images_and_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    specs = (
        FieldSpec("rgb", ("height", "width", "channel"), (6, 8, 3), "uint8", "1", "", "vector", "image"),
        FieldSpec("depth", ("height", "width", "channel"), (12, 13, 1), "float32", "m", "", "vector", "image"),
        FieldSpec("ranges", ("ray",), (200,), "float32", "m", "", "vector", "range"),
        FieldSpec("flag", (), (), "bool", "1", "", "flag", "scalar"),
    )
    rgb = rng.integers(0, 256, (11, 6, 8, 3), dtype=np.uint8)
    depth, ranges = (rng.uniform(0.5, 4.0, (11, *spec.shape)).astype(np.float32) for spec in specs[1:3])
    readings = [
        Reading("eye", "camera", specs, np.arange(1), 5 * k, 0.05 * k,
                {"rgb": rgb[k : k + 1], "depth": depth[k : k + 1], "ranges": ranges[k : k + 1],
                 "flag": np.array([k % 2 == 0])}, {},
                {"capture_tick": np.array([5 * k]), "frame": np.array([k]), "valid": np.ones(1, bool)}, _dt=0.01)
        for k in range(11)
    ]  # fmt: skip
    marks = [Mark(25, 0.25, np.arange(1), "episode", "")]
    assert write_lerobot(readings, tmp_path, dt=0.01, period=5, sensors=["eye"], marks=marks) == []
    data = LeRobotDataset("sensorium/run", root=tmp_path)
    assert (len(data), data.num_episodes, data.meta.camera_keys) == (10, 2, ["observation.images.eye"])
    for k in range(10):
        frame = data[k]
        np.testing.assert_array_equal(
            np.rint(frame["observation.images.eye"].numpy() * 255.0), rgb[k].transpose(2, 0, 1)
        )
        np.testing.assert_array_equal(frame["observation.eye.depth"], depth[k])
        np.testing.assert_array_equal(frame["observation.eye.ranges"], ranges[k])
        assert frame["observation.state"] == float(k % 2 == 0)
    assert data.meta.stats["observation.images.eye"]["mean"].shape == (3, 1, 1)


def test_collected_data_set_has_an_episode_per_environment(tmp_path: Path) -> None:
    """`LeRobotDataset` opens what `collect` writes: 4 episodes of 0.5 s at the 10 Hz of the camera."""
    rig = (
        sn.ImuCfg(name="imu", body="body", rate_hz=100.0),
        sn.CameraCfg(name="camera", body="body", width=64, height=48, data_types=("rgb",), rate_hz=10.0),
    )
    job = sn.Job(
        engine="trajectory", model="hall", control="drone", rig=rig, envs=4, envs_per_shard=2, episode_seconds=0.5
    )
    sn.generate(job, tmp_path / "out", workers=1)
    assert collect(tmp_path / "out", tmp_path / "set", "lerobot") == ["the action: the engine has no controls"]
    data = LeRobotDataset("sensorium/run", root=tmp_path / "set")
    assert (data.num_episodes, data.fps, len(data)) == (4, 10, 20)
    assert data[6]["episode_index"] == 1 and data[6]["observation.images.camera"].shape == (3, 48, 64)
