"""LeRobot opens, merges and trains on exported data sets, with the values, tasks and windows of the recordings."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from lerobot.datasets.aggregate import aggregate_datasets
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.act.processor_act import make_act_pre_post_processors
from lerobot.utils.feature_utils import dataset_to_policy_features
from PIL import Image
from torchvision.transforms.v2 import Resize

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
    assert (len(data), data.num_episodes, data.meta.camera_keys) == (
        10,
        2,
        ["observation.images.eye", "observation.images.eye.depth"],
    )
    for k in range(10):
        frame = data[k]
        np.testing.assert_array_equal(
            np.rint(frame["observation.images.eye"].numpy() * 255.0), rgb[k].transpose(2, 0, 1)
        )
        np.testing.assert_allclose(frame["observation.images.eye.depth"][0], 1e3 * depth[k, ..., 0], atol=0.501)
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


ARM = """
<mujoco>
  <option timestep="0.005"/>
  <asset><texture name="grid" type="2d" builtin="checker" rgb1="0.2 0.3 0.4" rgb2="0.7 0.7 0.6" width="64" height="64"/>
    <material name="grid" texture="grid" texrepeat="6 6"/></asset>
  <worldbody>
    <light pos="1 -1 3"/>
    <geom type="plane" size="4 4 0.1" material="grid"/>
    <body name="upper" pos="0 0 1"><joint name="hip" axis="0 1 0" damping="1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.08" rgba="0.9 0.2 0.1 1"/>
      <body name="lower" pos="0 0 -0.4"><joint name="knee" axis="0 1 0" damping="1"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.06" rgba="0.1 0.3 0.9 1"/></body></body>
    <body name="tripod" pos="0 -2 1" euler="0 0 90"/>
  </worldbody>
  <actuator><motor name="hip_motor" joint="hip"/><motor name="knee_motor" joint="knee"/></actuator>
</mujoco>
"""
STEPS, HEIGHT, WIDTH = 30, 96, 128
EYE, DEPTH = "observation.images.eye", "observation.images.eye.distance_to_image_plane"


class Run(NamedTuple):
    """A recording of two environments, the first of which is reset after 12 of its 30 control steps of 50 ms."""

    path: Path
    rgb: np.ndarray
    depth: np.ndarray
    angles: np.ndarray
    rates: np.ndarray
    """uint8 `[step, env, height, width, 3]`, float32 `[step, env, height, width]`, float32 `[step, env, 2]`, and the
    angular velocities at the last 5 captures, float32 `[step, env, 5, 3]`."""
    spans: tuple[tuple[int, int, int], ...] = ((0, 0, 12), (0, 12, STEPS), (1, 0, STEPS))
    """Environment, first and last step of each episode."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("arm")
    (root / "arm.xml").write_text(ARM)
    imu = sn.ImuCfg(name="imu", body="lower", rate_hz=100.0, fields=("ang_vel_b",))
    eye = sn.CameraCfg(
        name="eye", body="tripod", width=WIDTH, height=HEIGHT, rate_hz=20.0,
        data_types=("rgb", "distance_to_image_plane"),
    )  # fmt: skip
    encoders = sn.JointSensorCfg(name="encoders", joints=".*", position_noise=0.01, fields=("position",))
    scene = sn.Scene(sn.MujocoEngine(root / "arm.xml", num_envs=2), [imu, eye, encoders])
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("rgb", "depth", "angles", "rates")}
    window = np.repeat(scene["imu"].read().ang_vel_b[:, None].numpy(), 5, axis=1)
    with scene.record(root / "run.mcap") as recorder:
        recorder.mark("task", "swing")
        for step in range(STEPS):
            if step == 12:
                scene.reset([0])
                window[0] = scene["imu"].read().ang_vel_b[0]
            image = scene["eye"].read()
            kept["rgb"].append(image.rgb.numpy())
            kept["depth"].append(image.distance_to_image_plane[..., 0].numpy())
            kept["angles"].append(scene["encoders"].read().position.numpy())
            kept["rates"].append(window.copy())
            scene.engine.ctrl[:] = torch.as_tensor(80.0 * np.sin(0.5 * step + np.array([[0.0, 1.0], [2.0, 3.0]])))
            for _ in range(5):
                scene.step(substeps=2)
                window = np.concatenate([window[:, 1:], scene["imu"].read().ang_vel_b[:, None].numpy()], axis=1)
    return Run(root / "run.mcap", *(np.stack(each) for each in kept.values()))


FEATURES = ("--feature", "state=encoders", "--feature", "gyro=imu:5")


def exported(run: Run, name: str, *options: str) -> Path:
    root = run.path.parent / name
    if not root.exists():
        assert main(["export", str(run.path), "--to", str(root), "--format", "lerobot", *options]) == 0
    return root


def opened(root: Path, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("sensorium/run", root=root, video_backend="pyav", tolerance_s=1e-4, **options)


def frames_of(run: Run) -> list[tuple[int, int, int, int]]:
    """Return environment, step, and first and last step of its episode, of each frame."""
    return [(env, step, first, last) for env, first, last in run.spans for step in range(first, last)]


def test_videos_and_depth(run: Run) -> None:
    """H.264 has less than a tenth of the bytes of PNG at 35 dB; depth is right to half its quantum of 1 mm."""
    root = exported(run, "video", "--video", *FEATURES)
    data = opened(root)
    assert (data.num_episodes, data.num_frames, data.fps, data.meta.depth_keys) == (3, 60, 20, [DEPTH])
    assert data.meta.video_keys == [EYE] and data.features["action"]["names"] == ["hip_motor", "knee_motor"]
    assert data.features["observation.state"]["names"] == ["encoders.position.hip", "encoders.position.knee"]
    losses, shifted, errors = [], [], []
    for number, (env, step, first, last) in enumerate(frames_of(run)):
        frame = data[number]
        assert frame["timestamp"] == pytest.approx((step - first) / 20.0, abs=1e-6) and frame["task"] == "swing"
        image = frame[EYE].numpy().transpose(1, 2, 0)
        losses.append(np.mean((image - run.rgb[step, env] / 255.0) ** 2))
        shifted.append(np.mean((image - run.rgb[min(step + 1, last - 1), env] / 255.0) ** 2))
        depth, found = run.depth[step, env].astype(np.float64), frame[DEPTH][0].numpy()
        np.testing.assert_array_equal(found == 0.0, ~np.isfinite(depth))
        errors.append(np.abs(found - 1e3 * depth)[np.isfinite(depth)].max())
        np.testing.assert_allclose(frame["observation.state"], run.angles[step, env], rtol=1e-6)
        np.testing.assert_allclose(frame["observation.gyro"], run.rates[step, env].reshape(15), rtol=1e-6)
    assert max(losses) < 10**-3.5 and np.mean(shifted) > 3.0 * np.mean(losses)  # that of 35 dB
    assert max(errors) <= 0.501 and np.isinf(run.depth).any()
    stats = data.meta.stats[EYE]
    np.testing.assert_allclose(
        stats["mean"].reshape(3), np.mean([run.rgb[s, e] for e, s, *_ in frames_of(run)], (0, 1, 2)) / 255, atol=1e-6
    )
    png = exported(run, "png")
    images = pq.read_table(png / "data/chunk-000/file-000.parquet", columns=[EYE])[EYE].to_pylist()
    video = sum(path.stat().st_size for path in (root / "videos").rglob("*.mp4"))
    assert video < 0.1 * sum(len(image["bytes"]) for image in images)
    for image, (env, step, *_) in zip(images, frames_of(run), strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(image["bytes"]))), run.rgb[step, env])


@pytest.mark.parametrize(("height", "width", "channels"), [(35, 41, 1), (24, 33, 4)])
def test_videos_of_odd_sizes(height: int, width: int, channels: int, tmp_path: Path) -> None:
    """Grey images become colours, a fourth channel is omitted, and no row or column is."""
    spec = FieldSpec(
        "rgb", ("height", "width", "channel"), (height, width, channels), "uint8", "1", "", "vector", "image"
    )
    rows, columns, colours = np.meshgrid(*map(np.arange, spec.shape), indexing="ij")
    images = [(3 * rows + 2 * columns + 20 * colours + 5 * k).astype(np.uint8)[None] for k in range(11)]
    readings = [
        Reading("eye", "camera", (spec,), np.arange(1), k, 0.01 * k, {"rgb": image}, {},
                {"capture_tick": np.array([k]), "frame": np.array([k]), "valid": np.ones(1, bool)}, _dt=0.01)
        for k, image in enumerate(images)
    ]  # fmt: skip
    assert write_lerobot(readings, tmp_path, dt=0.01, period=1, sensors=["eye"], video=True) == []
    data = opened(tmp_path)
    for k, image in enumerate(images[:10]):
        error = 255.0 * data[k][EYE].numpy().transpose(1, 2, 0) - image[0, ..., :3]
        assert error.shape == (height, width, 3) and np.sqrt(np.mean(error**2)) < 5.0


def test_windows_of_time(run: Run) -> None:
    """Windows end at the ends of the episodes, in videos too."""
    deltas = [-0.05, 0.0, 0.1]
    root = exported(run, "video", "--video", *FEATURES)
    data, single = opened(root, delta_timestamps={EYE: deltas, "observation.state": deltas}), opened(root)
    for number, (env, step, first, last) in enumerate(frames_of(run)):
        frame, wanted = data[number], [step - 1, step, step + 2]
        steps = [min(max(each, first), last - 1) for each in wanted]
        assert frame[f"{EYE}_is_pad"].tolist() == [each not in range(first, last) for each in wanted]
        np.testing.assert_allclose(frame["observation.state"], run.angles[steps, env], rtol=1e-6)
        for image, each in zip(frame[EYE], steps, strict=True):
            assert torch.equal(image, single[number + each - step][EYE])


def test_merged_data_sets(run: Run) -> None:
    """`aggregate_datasets` appends a second export to the first, with its videos."""
    roots = [exported(run, "video", "--video", *FEATURES), exported(run, "again", "--video", *FEATURES)]
    aggregate_datasets(["sensorium/a", "sensorium/b"], "sensorium/both", roots, run.path.parent / "both")
    part, both = opened(roots[0]), opened(run.path.parent / "both")
    assert (both.num_episodes, both.num_frames) == (6, 120)
    for number in (0, 11, 12, 59):
        for key in (EYE, DEPTH, "observation.state", "observation.gyro", "action"):
            assert torch.equal(both[number][key], part[number][key])
            assert torch.equal(both[60 + number][key], part[number][key])


def test_a_policy_trains(run: Run) -> None:
    """ACT without pretrained weights: after 100 steps its loss is a fraction of that of the first steps."""
    root = exported(run, "video", "--video", *FEATURES)
    known = dataset_to_policy_features(opened(root).features)
    inputs = {name: known[name] for name in (EYE, "observation.state")}
    config = ACTConfig(
        input_features=inputs, output_features={"action": known["action"]}, chunk_size=2, n_action_steps=2,
        pretrained_backbone_weights=None, dim_model=64, n_heads=4, dim_feedforward=128, n_encoder_layers=1,
        n_vae_encoder_layers=1, use_vae=False, dropout=0.0, pre_norm=True, device="cpu",
    )  # fmt: skip
    torch.manual_seed(0)
    data = opened(root, delta_timestamps={"action": [0.0, 0.05]}, image_transforms=Resize((32, 48)))
    policy, (prepare, _) = ACTPolicy(config), make_act_pre_post_processors(config, data.meta.stats)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    losses = []
    for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), 100):
        loss, _ = policy(prepare(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all() and np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
