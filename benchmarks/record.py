"""Recordings: what they cost the loop, how fast images are written against a plain file, and how fast exports are."""

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np

import sensorium as sn
from benchmarks.timing import once, repeats_of, wall_and_cpu
from sensorium.cli import main
from sensorium.demo import model_path
from sensorium.readings import Reading
from sensorium.record.batches import Batch
from sensorium.record.mcap_writer import McapWriter
from sensorium.spec import FieldSpec

Row = tuple[str, str, str]

TICKS, ROUNDS = 50, 120
"""Ticks per round, and rounds."""
HEIGHT, WIDTH = 720, 1280
LIMITS = {
    "rosbag2": "checksum and LZ4 of the messages, up to seven times the values",
    "parquet": "encoding of the columns",
    "npz": "reading, and the file system",
    "csv": "the text of each number",
    "tum": "reading; it writes one env",
    "euroc": "reading; it writes one env",
    "kitti": "reading; it writes one env",
    "lerobot": "rows of Python per frame and env, and statistics",
}
"""Format -> what limits its speed."""


def run() -> list[Row]:
    """Measure batches, ROS 2 messages, images and exports."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_loop(Path(folder)), *_images(Path(folder)), *_exports(Path(folder))]


def _scene(envs: int) -> sn.Scene:
    """Return a scene with an IMU and 12 joints that are sampled at every tick of 1 ms."""
    spec = mujoco.MjSpec.from_file(str(model_path()))
    spec.option.timestep = 0.001
    engine = sn.MujocoEngine(spec, envs, keyframe="home", device="cpu")
    imu = sn.ImuCfg(
        name="imu",
        site="imu",
        gyro_noise=0.01,
        acc_noise=0.05,
        gyro_random_walk=1e-4,
        fields=("ang_vel_b", "lin_acc_b"),
    )
    joints = sn.JointSensorCfg(name="joints", joints=".*", bits=14, backlash=0.002, velocity_mode="difference")
    return sn.Scene(engine, [imu, joints], discover=False)


def _loop(folder: Path) -> list[Row]:
    """Compare steps of equal scenes, one of which is recorded; both evaluate their sensors at every tick.

    A batch is a loop that trains, and takes as long as its step. A few environments with ROS 2 messages are a loop that
    other programs follow in real time: a tick of 1 ms lasts 1 ms. Costs are medians of the differences in each round.
    """
    rows = []
    for envs, ros2, what in ((64, False, "batches"), (4, True, "batches and ROS 2 messages")):
        plain, recorded = _scene(envs), _scene(envs)
        path = folder / f"{envs}.mcap"
        with recorded.record(path, ros2=ros2):
            own = {"plain": 0.0, "recorded": 0.0}

            def steps(name: str, scene: sn.Scene, own: dict[str, float] = own) -> Callable[[], None]:
                def step() -> None:
                    start = time.thread_time()
                    for _ in range(TICKS):
                        scene.step()
                    own[name] += time.thread_time() - start

                return step

            calls = {"plain": steps("plain", plain), "recorded": steps("recorded", recorded)}
            times = wall_and_cpu(calls, rounds=ROUNDS)
            count = (repeats_of(ROUNDS) + 1) * TICKS
        (plain_s, _), (wall, cpu) = np.median((times["plain"], times["recorded"] - times["plain"]), axis=1) / TICKS
        size, ratio = os.path.getsize(path) / recorded.tick, np.median((times["recorded"] / times["plain"])[:, 0])
        rows.append((
            f"recording of an IMU and 12 joints at every tick, {envs} envs, {what}",
            f"{wall * 1e6:.0f} us per tick, {cpu * 1e6:.0f} us of CPU of all threads, "
            f"{(own['recorded'] - own['plain']) / count * 1e6:.0f} us of the loop, {size / 1e3:.1f} kB",
            f"{ratio - 1.0:.1%} of a step of {plain_s * 1e6:.0f} us, "
            f"{wall / recorded.engine.dt:.1%} of a tick in real time",
        ))  # fmt: skip
    return rows


def _images(folder: Path) -> list[Row]:
    """Compare images in a recording with the same bytes in a plain file.

    Each file is new, and everything before is on the disk: otherwise a write waits for that of the file before.
    """
    spec = FieldSpec("rgb", ("height", "width", "channel"), (HEIGHT, WIDTH, 3), "uint8", "1", "", "vector", "image")
    batch = Batch("camera", "camera", (spec,), [0], "measured", 0, 0.01)
    generator = np.random.default_rng(0)
    smooth = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH))[..., None] * np.array([1, 2, 3])
    rows, count = [], 4 * repeats_of(10)
    for what, amount in (("a smooth image", 1), ("noise in all bits", 256)):
        images = [(smooth // 8 + generator.integers(0, amount, smooth.shape)).astype(np.uint8) for _ in range(4)]
        one, yes = np.ones(1, np.int64), np.ones(1, bool)
        meta = {"capture_tick": one, "frame": one, "stamp": one.astype(float), "valid": yes, "is_new": yes}
        readings = [
            Reading("camera", "camera", (spec,), np.arange(1), 1, 0.1, {"rgb": image[None]}, {}, meta)
            for image in images
        ]

        def plain(images: list[np.ndarray] = images) -> None:
            with open(folder / "plain", "wb", buffering=0) as file:
                for number in range(count):
                    file.write(images[number % 4].data)

        def mcap(readings: list[Reading] = readings) -> None:
            writer = McapWriter(folder / "images.mcap", "ros2", "benchmark")
            channel = writer.add_channel("/camera", batch.type_name, batch.definition, batch.to_dict())
            for number in range(count):
                writer.add((channel, number, time.time_ns(), number, batch.encode(readings[number % 4])))
            writer.close()

        times = dict.fromkeys(("plain", "mcap"), float("inf"))
        for _ in range(repeats_of(8)):
            for name, call in (("plain", plain), ("mcap", mcap)):
                for path in folder.iterdir():
                    path.unlink()
                os.sync()
                times[name] = min(times[name], once(call))
        rate = {name: count * images[0].nbytes / 1e6 / taken for name, taken in times.items()}
        rows.append((
            f"images in a recording with LZ4, {what}",
            f"{rate['mcap']:.0f} MB/s",
            f"{rate['mcap'] / rate['plain']:.2f} of a plain file ({rate['plain']:.0f} MB/s)",
        ))  # fmt: skip
    return rows


def _exports(folder: Path) -> list[Row]:
    """Measure the CPU time of `sensorium export` of small readings of many environments, and of clouds and images."""
    small = _scene(64)
    fields = ("points_b", "intensity", "channel", "time_offset")
    sensors = [
        sn.LidarCfg(name="lidar", site="lidar", fields=fields, rate_hz=10.0),
        sn.DepthCameraCfg(name="camera", site="camera", res=(320, 240), rate_hz=30.0),
    ]
    engine = sn.MujocoEngine(model_path(), 4, keyframe="home", device="cpu")
    large = sn.Scene(engine, sensors, discover=False)
    rows = []
    for scene, what, formats in (
        (small, "an IMU and 12 joints, 64 envs", [name for name in LIMITS if name != "kitti"]),
        (large, "a lidar and depth images, 4 envs", ["rosbag2", "npz", "kitti", "lerobot"]),
    ):
        path = folder / "exported.mcap"
        with scene.record(path):
            scene.step(substeps=100 * repeats_of(20))
        with sn.replay(path) as replay:
            size = sum(
                array.nbytes for each in replay for part in (each.measured, each.truth) for array in part.values()
            )
        for name in formats:
            arguments = ["export", str(path), "--to", str(folder / name), "--format", name]
            best = float("inf")
            for _ in range(1 if name == "csv" else repeats_of(3)):
                start = time.process_time()
                with contextlib.redirect_stdout(io.StringIO()):
                    main(arguments)
                best = min(best, time.process_time() - start)
            rows.append((
                f"export to {name} of {what}, {size / 1e6:.0f} MB of values",
                f"{size / 1e6 / best:.0f} MB/s of CPU time", f"limited by {LIMITS[name]}",
            ))  # fmt: skip
    return rows
