"""A small job with everything that could depend on the worker, its functions, and drivers in separate processes."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from nursery import until

import sensorium as sn
from sensorium.jobs.store import Store

if TYPE_CHECKING:
    from nursery import Nursery, Program

MODEL = """
<mujoco><option timestep="0.005"/>
<worldbody><light pos="0 0 3"/><geom name="floor" type="plane" size="5 5 .1"/>
  <body name="base" pos="0 0 .12"><freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="1"/>
    <site name="imu"/><camera name="eye" pos="0 -.3 .3" xyaxes="1 0 0 0 .7 .7"/>
    <body name="arm" pos="0 0 .1"><joint name="swing" type="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03" mass=".3"/></body></body>
</worldbody><actuator><motor name="push" joint="swing" gear="3" ctrlrange="-1 1"/></actuator></mujoco>"""
SHARDS, ENVS = 7, 2
"""Number of shards of the job, and of environments of each."""
KILLS, CALLS = 20, 10
"""Number of workers that `fatal_policy` kills, and of its calls per shard."""


def sensors() -> list[Any]:
    """Sensors whose rows depend on physics, contacts, images, delays and random numbers."""
    return [
        sn.ImuCfg(name="imu", site="imu", rate_hz=100.0, delay=0.01, jitter=0.004, loss=0.1, gyro_noise=0.01),
        sn.JointSensorCfg(name="joints", joints="swing", fields=("position", "velocity")),
        sn.ContactSensorCfg(
            name="touch", primary=sn.ContactMatch(mode="body", pattern="base"), fields=("found", "force")
        ),
        sn.CameraCfg(name="eye", camera="eye", width=12, height=8, data_types=("rgb", "depth"), rate_hz=50.0),
    ]  # fmt: skip


def job(folder: Path, **fields: Any) -> sn.Job:
    """Return the job; its model is in a folder."""
    model = folder / "hopper.xml"
    if not model.exists():
        model.write_text(MODEL)
    given = {
        "model": model, "rig": sensors(), "control": "data_sets:policy", "begin_episode": "data_sets:start",
        "randomise": {"model.body_mass": sn.Uniform(0.5, 2.0), "imu.gyro_noise": sn.Uniform(0, 1)},
        "keep": "data_sets:swung", "envs": SHARDS * ENVS, "envs_per_shard": ENVS,
        "episodes": 2, "episode_seconds": 0.1, "seed": 5,
    }  # fmt: skip
    return sn.Job(**{**given, **fields})


# Entry points ---------------------------------------------------------------------------------------------------------


@cache
def _network() -> Any:
    import torch

    weights = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=weights) for shape in ((8, 64), (64, 1))]


def policy(scene: sn.Scene, time: float) -> Any:
    """Two layers of a network, from noisy, delayed measurements."""
    import torch

    imu, joints = scene["imu"].data, scene["joints"].data
    seen = torch.cat((imu.ang_vel_b, imu.lin_acc_b, joints.position, joints.velocity), dim=1)
    first, second = _network()
    return torch.tanh(torch.tanh(seen @ first) @ second)


def start(scene: sn.Scene, env_ids: Any) -> Mapping[str, Any]:
    height = scene.draw("height", sn.Uniform(0.1, 0.2), 1, env_ids)
    qpos = scene.engine.qpos.clone()[: len(env_ids)]
    qpos[:] = qpos.new_tensor([0, 0, 0, 1, 0, 0, 0, 0])
    qpos[:, 2:3] = height
    return {"qpos": qpos}


def swung(scene: sn.Scene) -> Any:
    """Whether the arm has turned upwards."""
    return scene.engine.qpos[:, 7] > 0.0


_calls = itertools.count(1)


def fatal_policy(scene: sn.Scene, time: float) -> Any:
    """As `policy`, in a worker that is killed after a random number of calls, until `KILLS` have been."""
    calls, graves = next(_calls), Path("graves")
    for number in range(len(list(graves.iterdir())), KILLS):
        life = random.Random(number).randint(1, CALLS * 2)
        if len(list(Path("out").glob("*/receipt.json"))) >= SHARDS // 2:
            life = min(life, CALLS)  # so that all are killed before the last shard is done
        if calls < life:
            break
        try:
            (graves / f"{number}").touch(exist_ok=False)
        except FileExistsError:  # another worker was faster
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    return policy(scene, time)


def faulty(scene: sn.Scene, time: float) -> None:
    """A control that fails in some shards: always, once, by the end of the process, or by its exit."""
    shard = scene.first_env // ENVS if time else 0
    if shard == 1:
        raise OSError("a fault")
    if shard == 2 and not Path("once").exists():
        Path("once").touch()
        raise RuntimeError("a fault, once")
    if shard == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if shard == 4:
        os._exit(3)


def missing(scene: sn.Scene, *args: Any) -> Any:
    """As a function of any kind, which needs a file that shard 1 does not find."""
    if scene.first_env:
        open("no_such_file")
    return scene.engine.qpos[:, 0] > -1.0 if not args else None


def overtaken(scene: sn.Scene, time: float) -> None:
    """A control during which another driver completes shard 0."""
    receipt = Path("receipt.json")
    if receipt.exists() and Path("out/shard-000000").exists():
        Store("out").finish(0, json.loads(receipt.read_text()))


_spawned = list[Any]()


def spawning_policy(scene: sn.Scene, time: float) -> Any:
    """As `policy`, in a worker that has started a program; the last shards wait until the run was interrupted."""
    if not _spawned:
        _spawned.append(subprocess.Popen(["sleep", "1000"]))
        Path(f"spawned-{_spawned[0].pid}").touch()
    if scene.first_env >= (SHARDS - 2) * ENVS:
        until(Path("interrupted").exists, "the interruption")
    return policy(scene, time)


def robot(num_envs: int, first_env: int) -> Any:
    return sn.MujocoEngine(MODEL, num_envs=num_envs)


def lonely(num_envs: int, first_env: int) -> Any:
    return sn.MujocoEngine(MODEL, num_envs=1)


def broken(num_envs: int, first_env: int) -> Any:
    raise OSError("no licence")


def flying(num_envs: int, first_env: int) -> Any:
    times = [0.0, 1.0, 2.0, 3.0]
    path = (times, [[0.0, first_env * time**2, 0.0] for time in times], [[1.0, 0.0, 0.0, 0.0]] * 4)
    return sn.TrajectoryEngine(path, 0.005, num_envs=num_envs)


def threads(scene: sn.Scene, time: float) -> list[float]:
    """A control that depends on the number of threads."""
    import torch

    return [torch.get_num_threads() / 10.0]


def push(scene: sn.Scene, time: float) -> list[float]:
    return [1.0]


def rig() -> list[Any]:
    return sensors()[:2]


def uneven(scene: sn.Scene) -> list[list[int]]:
    return [[1], [1, 2]]


def ended(scene: sn.Scene, time: float) -> None:
    Path(f"start-{os.getpid()}").touch()
    os._exit(3)


def nothing(*args: Any) -> list[Any]:
    return []


# Drivers --------------------------------------------------------------------------------------------------------------


class Forked:
    """As `subprocess.Popen` for a worker, but forked from a driver that has imported everything."""

    def __init__(self, command: Any, env: Mapping[str, str], **options: Any) -> None:
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _be_worker(read_in, write_out, env)
        os.close(read_in)
        os.close(write_out)
        self.stdin, self.stdout = os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb")

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _be_worker(stdin: int, stdout: int, env: Mapping[str, str]) -> None:
    code = 1
    try:
        from sensorium.jobs import local_worker

        os.setsid()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.closerange(3, 1000)
        sys.stdin = open(0)
        os.environ.update(env)
        local_worker.main()
        code = 0
    finally:
        os._exit(code)


def drive() -> None:
    """Generate the job in ``argv`` in this process, with forked workers; print the result."""
    import sensorium.engines.mujoco.engine
    import sensorium.jobs.shard
    import sensorium.sensors.all  # noqa: F401
    from sensorium.jobs import workers

    workers.subprocess = SimpleNamespace(Popen=Forked, PIPE=-1)  # type: ignore[assignment]
    given, out, options = json.loads(sys.argv[1])
    run = sn.generate(sn.Job.from_dict(given), out, **options)
    print(json.dumps([run.done, run.skipped]), flush=True)


def driver(nursery: Nursery, job: sn.Job, folder: Path, **options: Any) -> Program:
    """Start a driver that writes into the folder ``out`` of its working folder."""
    arguments = json.dumps([job.to_dict(), "out", options])
    return nursery.program("import data_sets; data_sets.drive()", arguments, folder=folder)


# Rows -----------------------------------------------------------------------------------------------------------------


def rows(out: Path) -> dict[str, str]:
    """Return the hash of the rows of each file of a data set, as pyarrow reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    hashes = {}
    for file in sorted(out.glob("shard-*/**/*.parquet")):
        sink = pa.BufferOutputStream()
        table = pq.read_table(file).combine_chunks()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        hashes[file.relative_to(out).as_posix()] = hashlib.sha256(sink.getvalue()).hexdigest()
    return hashes
