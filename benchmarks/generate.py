"""Data sets: what writing adds to generating, what a worker adds, and two workers against two `sensorium run`."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sensorium as sn
from benchmarks.timing import repeats_of
from sensorium.jobs.control import steps
from sensorium.jobs.shard import Simulation, write_shard
from sensorium.jobs.store import Store
from sensorium.jobs.workers import LocalWorkers, Task

Row = tuple[str, str, str]

SENSORS: Any = (
    sn.ImuCfg(name="imu", site="imu", rate_hz=200.0, gyro_noise=0.01, acc_noise=0.05),
    sn.LidarCfg(
        name="lidar",
        site="lidar",
        rate_hz=10.0,
        max_distance=30.0,
        range_noise=0.02,
        pattern=sn.patterns.SpinningPatternCfg(
            elevations=(-30.0, -22.0, -16.0, -11.0, -7.0, -4.0), cycle_interval=0.1 / 180
        ),
    ),
    sn.CameraCfg(
        name="camera", camera="front", width=64, height=64, data_types=("rgb", "depth"), rate_hz=10.0, noise=0.01
    ),
)
"""An IMU, a lidar and a camera of the bundled quadruped."""
ON_A_PATH: Any = (
    sn.ImuCfg(name="imu", body="body", rate_hz=200.0, gyro_noise=0.01, acc_noise=0.05),
    sn.CameraCfg(name="camera", body="body", width=64, height=64, data_types=("rgb", "depth"), rate_hz=2.0),
)

WORLD = """<mujoco><asset><texture name="tiles" type="2d" builtin="checker" rgb1=".6 .6 .6" rgb2=".4 .4 .4" width="64"
height="64"/><material name="tiles" texture="tiles" texrepeat="40 40"/></asset><worldbody><light pos="0 0 9"/><geom
type="plane" size="40 40 .1" material="tiles"/><geom type="box" size="1 2 1" pos="4 3 1" rgba=".8 .3 .2 1"/><geom
type="cylinder" size=".5 3" pos="-3 5 3" rgba=".2 .4 .8 1"/><geom type="sphere" size="1.5" pos="8 -4 1.5"
rgba=".3 .7 .3 1"/></worldbody></mujoco>"""
"""A floor with a few shapes, whose images cost little."""


def run() -> list[Row]:
    """Measure writing, the start of a worker, its shards, and two workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = [*_writing(Path(folder)), *_worker(Path(folder))]
            return rows if repeats_of(2) == 1 else [*rows, *_two(Path(folder))]  # five processes take long to start
    finally:
        torch.set_num_threads(threads)


def _writing(folder: Path) -> list[Row]:
    """Compare shards with the same simulation, of which nothing is written, in CPU time."""
    seconds = 1.0 if repeats_of(2) > 1 else 0.1
    quadruped = sn.Job(model="demo", rig=SENSORS, envs=64, envs_per_shard=64, episode_seconds=seconds)
    drone = sn.Job(engine="trajectory", control="drone", rig=ON_A_PATH[:1], envs=64, envs_per_shard=64,
                   episode_seconds=20.0 * seconds)  # fmt: skip
    rows = []
    for name, job in (("IMU, lidar and 64 x 64 RGB-D", quadruped), ("IMU on a trajectory", drone)):
        simulation, store, shard = Simulation(job), Store(folder / name), job.shard(0)
        simulation.check()
        times = []
        for _ in range(repeats_of(5)):
            start = time.thread_time()
            scene, control, every = simulation.scene(shard)
            scene.publish(poses=True)
            simulation.begin(scene, 0)
            for _ in steps(scene, control, every, simulation.ticks(scene), list(scene.sensors.values())):
                pass
            middle = time.thread_time()
            receipt = write_shard(simulation, shard, store)
            times.append((middle - start, time.thread_time() - middle))
        plain, ratio = np.median([each[0] for each in times]), np.median([after / before for before, after in times])
        files = [each for each in receipt["files"].items() if each[1].get("sensor")]
        values = sum(_values(folder / name / "shard-000000" / file) for file, _ in files)
        size = sum(about["bytes"] for _, about in files)
        rows.append((
            f"writing of 64 envs, {name}", f"{(ratio - 1.0) * plain:.3f} s of CPU, {size / values:.2f} of the values",
            f"{ratio - 1.0:.1%} of generating, {job.episode_seconds * 64 / plain / ratio:.0f} x real time in all",
        ))  # fmt: skip
    return rows


def _values(file: Path) -> int:
    """Return the size of the values in a Parquet file, bytes."""
    import pyarrow.parquet as pq

    return int(pq.read_table(file).nbytes)


def _worker(folder: Path) -> list[Row]:
    """Measure the start of a worker of the bundled quadruped, and shards of one control step."""
    job = sn.Job(model="demo", envs=4 * 20, envs_per_shard=4, episode_seconds=0.002)
    store = Store(folder / "small")
    store.claim(job)
    workers = LocalWorkers(Task(job.to_dict(), job.key, store.url, os.getcwd(), 1), 1)
    try:
        start, cpu = time.perf_counter(), _cpu()
        workers.start(0)
        _wait(workers)
        ready, shards = time.perf_counter(), []
        for index in range(repeats_of(job.num_shards - 1) + 1):
            before = time.perf_counter()
            workers.submit(0, index)
            _wait(workers)
            shards.append(time.perf_counter() - before)
    finally:
        workers.stop()
    what = f"{_cpu() - cpu:.1f} s of CPU with its shards"
    return [
        ("start of a worker, 8 kinds of sensors", f"{ready - start:.1f} s", what),
        ("a shard of one step, 4 envs", f"{np.median(shards[1:]):.3f} s", f"the first one {shards[0]:.3f} s"),
    ]


def _wait(workers: LocalWorkers) -> Any:
    while not (events := workers.wait(1.0)):
        pass
    return events


def _cpu() -> float:
    """Return CPU seconds of processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _two(folder: Path) -> list[Row]:
    """Compare two workers with two processes of `sensorium run` that simulate as much, one thread each."""
    seconds, rates = 20.0, []
    cli = [sys.executable, "-m", "sensorium"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = folder / "job.toml"
    job.write_text(sn.Job(model="demo", envs=32, envs_per_shard=16, episode_seconds=seconds).to_toml())
    for number in range(repeats_of(2)):
        taken = []
        for commands in (
            [[*cli, "generate", str(job), "--out", str(folder / f"two{number}"), "--workers", "2"]],
            [[*cli, "run", "demo", "--envs", "16", "--first-env", str(16 * k), "--seconds", str(seconds), "--out",
              str(folder / f"run{k}")] for k in range(2)],
        ):  # fmt: skip
            start, cpu = time.perf_counter(), _cpu()
            running = [subprocess.Popen(each, env=environment, stdout=subprocess.DEVNULL) for each in commands]
            if any([process.wait() for process in running]):
                raise RuntimeError(f"{commands[0]} failed")
            taken.append((time.perf_counter() - start, _cpu() - cpu))
        rates.append((taken[1][0] / taken[0][0], taken[1][1] / taken[0][1], 32.0 * seconds / taken[0][0]))
    wall, cpu, rate = np.median(rates, axis=0)
    return [(
        f"two workers, quadruped, 2 x 16 envs, {seconds:g} s", f"{rate:.1f} s of simulation per s",
        f"{wall:.2f} of the rate of two `sensorium run`, by CPU time {cpu:.2f}",
    )]  # fmt: skip


def data_set(envs: int = 4, seconds: float = 1.0, workers: tuple[int, ...] = (1, 2)) -> list[Row]:
    """Generate the same data set with several numbers of workers.

    With ``envs=840``, ``seconds=60.0`` and ``workers=(1, 2, 7)`` it has 10 million rows of an IMU and 100,000 images.
    """
    if repeats_of(2) == 1:
        envs, seconds, workers = 14, 0.1, (1,)
    rows, hashes = [], set()
    for count in workers:
        with tempfile.TemporaryDirectory() as folder:
            world, out = Path(folder, "world.xml"), Path(folder, "out")
            world.write_text(WORLD)
            job = sn.Job(engine="trajectory", model=str(world), control=("drone", "car"), rig=ON_A_PATH, envs=envs,
                         envs_per_shard=max(1, envs // 14), episode_seconds=seconds)  # fmt: skip
            start = time.perf_counter()
            sn.generate(job, out, workers=count, progress=lambda _: None)
            taken = time.perf_counter() - start
            receipts = [receipt["files"] for _, receipt in Store(out).receipts(range(envs))]
        found = {name: sum(each[f"{name}.parquet"]["rows"] for each in receipts) for name in ("imu", "camera")}
        size = sum(about["bytes"] for each in receipts for about in each.values())
        hashes.add(tuple(about["checksum"] for each in receipts for about in each.values()))
        rows.append((
            f"{found['imu']:,} rows of an IMU and {found['camera']:,} RGB-D images, {count} workers",
            f"{taken:.1f} s, {size / 1e6:.0f} MB, {len(hashes)} set of checksums",
            f"10^9 images: {taken / found['camera'] * 1e9 / 86400:.0f} days of this machine, "
            f"{size / found['camera'] / 1e3:.0f} TB",
        ))  # fmt: skip
    return rows
