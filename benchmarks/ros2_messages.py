"""ROS 2 messages: time to encode readings in batches, and the part of the loop that this takes."""

import time
from collections.abc import Sequence

import sensorium as sn
from benchmarks.timing import repeats_of
from sensorium.demo import model_path
from sensorium.readings import Reading
from sensorium.record.ros2 import Ros2Messages

Row = tuple[str, str, str]

BATCH = 100
"""Readings per batch."""


def run() -> list[Row]:
    """Measure an IMU and joints at every tick, then a lidar and a depth image, in four environments."""
    fast = [sn.ImuCfg(name="imu", site="imu"), sn.JointSensorCfg(name="joints", joints=".*")]
    slow = [
        sn.LidarCfg(name="lidar", site="lidar", fields=("points_b", "intensity", "channel", "time_offset"), rate_hz=10),
        sn.DepthCameraCfg(name="camera", site="camera", res=(640, 480), rate_hz=10),
    ]
    scene = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home", num_envs=4), [*fast, *slow])
    messages = Ros2Messages(scene.description(), sensors=[cfg.name for cfg in (*fast, *slow)])
    kept: dict[str, list[Reading]] = {}
    loop = float("inf")
    for tick in range(BATCH):
        start = time.process_time()
        scene.step()
        for cfg in fast:
            scene[cfg].read()
        loop = min(loop, time.process_time() - start)
        now = [*fast, *slow] if tick in (0, BATCH - 1) else fast
        for name, reading in scene.publish([cfg.name for cfg in now], truth=False).items():
            kept.setdefault(name, []).append(reading)
    per_tick = sum(_encode(messages, kept[cfg.name])[0] for cfg in fast) / BATCH
    rows = [(
        "ROS 2 messages of an IMU and 12 joints, 4 envs: encode, per tick",
        f"{per_tick * 1e6:.1f} us", f"{per_tick / loop:.1%} of a step with both sensors read ({loop * 1e6:.0f} us)",
    )]  # fmt: skip
    for cfg in (*fast, *slow):
        readings = kept[cfg.name]
        seconds, count, size = _encode(messages, readings)
        rows.append((
            f"ROS 2 messages of {cfg.name}, batches of {len(readings)} readings of 4 envs",
            f"{count / seconds:,.0f} messages/s", f"{size / seconds / 1e6:,.0f} MB/s",
        ))  # fmt: skip
    return rows


def _encode(messages: Ros2Messages, readings: Sequence[Reading]) -> tuple[float, int, int]:
    """Return CPU seconds of one encoding, the least of several, and the number and size (bytes) of the messages."""
    best, count, size = float("inf"), 0, 0
    for _ in range(repeats_of(20)):
        start = time.process_time()
        blocks = list(messages.encode(readings))
        best = min(best, time.process_time() - start)
        count, size = sum(map(len, blocks)), sum(block.data.nbytes for block in blocks)
    return best, count, size
