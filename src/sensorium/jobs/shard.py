"""One shard of a job: its episodes are simulated, and the rows of each sensor are written to one file."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.compute import start_warp
from sensorium.errors import ArgumentError, ConfigError, listed, shown
from sensorium.jobs.control import Control, control_for, steps
from sensorium.jobs.entry_points import called, message
from sensorium.jobs.job import Job, Shard, is_entry
from sensorium.jobs.mcap import LOG, About, McapRows
from sensorium.jobs.parquet import ParquetRows
from sensorium.jobs.rows import Block, Checksum, SensorRows
from sensorium.jobs.store import JOB, Store
from sensorium.readings import Reading
from sensorium.record.archive import stem_of
from sensorium.record.batches import batches_of
from sensorium.record.chunks import Chunk
from sensorium.record.recorder import CONTROL, LARGEST
from sensorium.record.rows import SensorRows as LiveRows
from sensorium.rl.randomise import Randomisation
from sensorium.scene import Scene
from sensorium.scene.draws import start_episodes
from sensorium.spec import FieldSpec

if TYPE_CHECKING:
    from sensorium.engines.trajectory.trajectory import Trajectory
    from sensorium.measurement.sensor_cfg import SensorCfg
    from sensorium.readings import Array
    from sensorium.scene.publish import LiveSample


class Simulation:
    """Scenes of the shards of one job; the engine of a model is kept between them.

    Args:
        job: the job.

    Raises:
        SensoriumError: a part of the job is missing or invalid.
    """

    def __init__(self, job: Job) -> None:
        from sensorium.demo.robots import ROBOTS

        start_warp()
        self.job = job
        self._robot = ROBOTS.get(job.model or "") if job.engine == "mujoco" else None
        self._engine: Any = None
        self._initial: Mapping[str, Any] = {}
        self._factory, self._begin, self._keep = (
            None if entry is None else called(field, entry)
            for field, entry in (("factory", job.factory), ("begin_episode", job.begin_episode), ("keep", job.keep))
        )
        if self._robot is not None and job.begin_episode is None:
            self._begin = self._robot.begin_episode
        self._randomisation: Randomisation | None = None
        self._sensors, self._semantics = self._rig()
        self._paths = self._trajectories() if job.engine == "trajectory" else []

    def _trajectories(self) -> list[Trajectory]:
        """Return the paths of the environments, of at least the duration of an episode.

        Raises:
            ConfigError: a path is shorter.
        """
        from sensorium.jobs.drives import TIME_STEP, drive_of

        paths = {name: drive_of(name).trajectory for name in dict.fromkeys(self.job.paths)}
        for name, path in paths.items():
            if path.duration < self.job.episode_seconds - TIME_STEP / 2.0:
                expected = f"at most {path.duration:g}, the duration of the path {name!r} in s"
                raise ConfigError.single("Job", "episode_seconds", self.job.episode_seconds, expected)
        return [paths[name] for name in self.job.paths]

    def check(self) -> None:
        """Call every part of the job once, without a step.

        Raises:
            SensoriumError: a part is invalid.
        """
        scene, control, _ = self.scene(self.job.shard(0))
        for name in self.job.sensors or ():
            scene[name]
        self.begin(scene, 0)
        control(scene, 0.0)
        self.kept(scene)

    def _rig(self) -> tuple[list[SensorCfg[Any]], dict[str, Any]]:
        """Return the configs of the sensors, and the labels of shapes."""
        import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed
        from sensorium.jobs.rig import load_rig, load_semantics, sensor_cfg

        rig, semantics = self.job.rig, {} if self._robot is None else dict(self._robot.semantics)
        if rig is None:
            assert self._robot is not None
            return load_rig(self._robot.rig)[0], semantics
        if not isinstance(rig, str):
            return [sensor_cfg(table) for table in rig], semantics
        if is_entry(rig):
            sensors = called("rig", rig)()
            if not isinstance(sensors, list | tuple) or not sensors:
                raise ConfigError.single("Job", "rig", sensors, "a function that returns a list of configs of sensors")
            return list(sensors), semantics
        return load_rig(Path(rig))[0], semantics | load_semantics(Path(rig))

    def scene(self, shard: Shard) -> tuple[Scene, Control, int]:
        """Return the scene of a shard at tick 0, its control, and the ticks between calls of the control."""
        job, count = self.job, shard.num_envs
        is_new = self._engine is None or self._factory is not None or job.engine == "trajectory"
        if is_new:
            self._engine = self._built(shard)
        else:
            assert self._randomisation is not None
            self._randomisation.restore()
            self._engine.load_state(self._initial)
        if not getattr(self._engine, "owns_time", False):
            expected = "an engine that the scene steps, such as sn.MujocoEngine(...)"
            raise ConfigError.single("Job", "factory", self._engine, expected)
        if self._engine.num_envs != count:
            expected = f"an engine with {count} environments, the num_envs it is called with"
            raise ConfigError.single("Job", "factory", f"an engine with {self._engine.num_envs}", expected)
        scene = Scene(
            self._engine, self._sensors, seed=job.seed, first_env=shard.first_env, discover=False,
            semantics=self._semantics,
        )  # fmt: skip
        if is_new:  # the first scene completes the model
            self._initial = self._engine.state()
        self._randomisation = Randomisation(scene, job.randomise, title="Job")
        if job.engine == "trajectory":
            return scene, lambda scene, time: None, self.ticks(scene)
        assert isinstance(job.control, str)
        control, every = control_for(job.control, scene, job.substeps or 1, self._robot)
        return scene, control, job.substeps or every

    def _built(self, shard: Shard) -> Any:
        job = self.job
        if self._factory is not None:
            return self._factory(shard.num_envs, shard.first_env)
        if job.engine == "trajectory":
            from sensorium.jobs.drives import engine_of

            paths = [
                self._paths[env % len(self._paths)] for env in range(shard.first_env, shard.first_env + shard.num_envs)
            ]
            return engine_of(paths, job.model, shard.num_envs, job.device)
        if self._robot is not None:
            return self._robot.engine(shard.num_envs, job.device)
        from sensorium.jobs.models import load_model

        return load_model(Path(str(job.model)), shard.num_envs, job.device, job.engine)

    def ticks(self, scene: Scene) -> int:
        """Return the number of ticks of an episode."""
        return max(1, round(self.job.episode_seconds / scene.engine.dt))

    def begin(self, scene: Scene, episode: int) -> None:
        """Start an episode in all environments."""

        def start(env_ids: torch.Tensor) -> Mapping[str, Any] | None:
            assert self._randomisation is not None
            self._randomisation.apply(env_ids)
            return None if self._begin is None else self._begin(scene, env_ids)

        start_episodes(scene, start, number=episode)

    def kept(self, scene: Scene) -> Array:
        """Return which environments have a successful episode, bool `[env]`.

        Raises:
            ConfigError: `keep` returned anything else.
        """
        if self._keep is None:
            return np.ones(scene.num_envs, bool)
        found = self._keep(scene)
        try:
            values: Array = np.asarray(found.cpu() if isinstance(found, torch.Tensor) else found)
        except ValueError:  # rows of different lengths
            values = np.asarray(None)
        if values.shape != (scene.num_envs,) or values.dtype != bool:
            got = f"{values.dtype} {list(values.shape)}" if values.dtype != object else shown(found)
            raise ConfigError.single("Job", "keep", got, f"bool [env], [{scene.num_envs}]")
        return values


def controls_of(scene: Scene, tick: int) -> Reading | None:
    """Return the controls of a scene as a reading at the tick from which they hold; None without controls."""
    ctrl = getattr(scene.engine, "ctrl", None)
    if ctrl is None or ctrl.ndim != 2 or not ctrl.shape[1]:
        return None
    values = ctrl.detach().cpu().numpy().copy()
    spec = FieldSpec("value", ("actuator",), values.shape[1:], values.dtype.name, "", "", "vector", "scalar")
    envs = np.arange(len(values))
    yes, ticks = np.ones(len(values), bool), np.full(len(values), tick)
    about = {"capture_tick": ticks, "frame": ticks, "valid": yes, "is_new": yes}
    time = scene.clock.time_at(tick)
    return Reading(CONTROL, LOG, (spec,), envs, tick, time, {"value": values}, {}, about, _dt=scene.engine.dt)


class ShardFile:
    """File of one sensor of a shard, or of the controls.

    Args:
        reading: a reading.
        about: the constant data.
        job: the job.
        shard: the shard.
        store: the output.
        stack: closes the file.
        live: memory of the sensor, if there is; small samples are copied from it, which is faster than a reading each.
    """

    def __init__(
        self, reading: Reading, about: About, job: Job, shard: Shard, store: Store, stack: ExitStack,
        live: LiveSample | None = None,
    ) -> None:  # fmt: skip
        is_log, is_mcap = reading.kind == LOG, job.format == "mcap"
        self.name = f"{LOG}/{reading.name}.{job.format}" if is_log else f"{stem_of(reading.name)}.{job.format}"
        self._about = {LOG if is_log else "sensor": reading.name}
        truth = job.truth and not is_log
        mounts = 0 if reading.pose is None or not truth else reading.pose.shape[1]
        self.rows = SensorRows(reading.specs, mounts, truth, shard.first_env, shard.num_envs, readings=is_mcap)
        self.checksum = Checksum(self.rows.fields)
        self._file = stack.enter_context(store.create(store.shard_path(shard.index, self.name)))
        self._writer: McapRows | ParquetRows
        self._writer = McapRows(self._file, about, reading) if is_mcap else ParquetRows(self._file, self.rows)
        stack.callback(self._writer.abort)
        self._held: list[Block] = []
        self._holds = job.keep is not None
        self._dt, self._live, self._samples = about.scene.dt, None, Chunk()
        if live is not None and not is_mcap:
            batches = batches_of(reading, reading.env_ids, self._dt)
            if sum(batch.nbytes for batch in batches) <= LARGEST:
                self._live = LiveRows(self._samples, 0, live, batches, (0, 0), None, None)
        self.takes_samples = self._live is not None
        """Whether `take_sample` takes the samples, instead of `add`."""

    def begin(self, episode: int, tick: int) -> None:
        """Start an episode at a tick."""
        self.rows.begin(episode, tick)

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        self._put(self.rows.add(reading))

    def take_sample(self, tick: int) -> None:
        """Take the newest sample from the sensor's memory, if it is new."""
        live = self._live
        assert live is not None
        if live.live.take():
            live.add((0, 0, tick))
            self._put_samples(1)

    def _put_samples(self, rest: int = 0) -> None:
        """Put the parts with samples but the last ones, to which samples are added."""
        while self._live is not None and len(self._samples.parts) > rest:
            part = self._samples.parts.pop(0)
            part.complete()
            self._put(self.rows.block(self._live.stack(part.buffers[0]), self._dt))

    def end(self, kept: Array) -> None:
        """End an episode: its rows are written, or dropped in some environments."""
        self._put_samples()
        if self._live is not None:
            self._live.end()
        self._put(self.rows.take())
        held, self._held = self._held, []
        for block in held:
            self._write(block.of_envs(kept))

    def _put(self, block: Block | None) -> None:
        if block is not None:
            self._held.append(block) if self._holds else self._write(block)

    def _write(self, block: Block) -> None:
        self.checksum.add(block.columns)
        self._writer.write(block)

    def close(self) -> dict[str, Any]:
        """Complete the file, and return what the receipt says about it."""
        self._writer.close()
        return {
            **self._about,
            "rows": self.checksum.rows,
            "checksum": self.checksum.hexdigest(),
            "bytes": self._file.tell(),
        }


def write_shard(simulation: Simulation, shard: Shard, store: Store) -> dict[str, Any]:
    """Simulate and write a shard, and return its receipt, which is not written."""
    job, began = simulation.job, time.perf_counter()
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    scene, control, every = simulation.scene(shard)
    names = list(scene.sensors) if job.sensors is None else [scene[name].name for name in job.sensors]
    kept, ticks, cursor = 0, simulation.ticks(scene), scene.sample_cursor()
    about = About(
        scene.description(), scene.bodies().to_dict()["bodies"], job.truth, getattr(scene.engine, "control_names", ()),
        getattr(scene.engine, "start_ns", 0),
    )  # fmt: skip
    with ExitStack() as stack:
        found = scene.publish(names, truth=job.truth, poses=job.truth)
        controls = controls_of(scene, scene.tick)
        files = {
            name: ShardFile(reading, about, job, shard, store, stack, scene.live_sample(name))
            for name, reading in found.items()
        }
        others = [name for name, each in files.items() if not each.takes_samples]
        followed = [each for each in files.values() if each.takes_samples]
        log = None if controls is None else ShardFile(controls, about, job, shard, store, stack)
        every_file = [*files.values(), *(() if log is None else (log,))]
        for episode in range(job.episodes):
            simulation.begin(scene, episode)
            for each in every_file:
                each.begin(episode, scene.tick)
            for tick in steps(scene, control, every, ticks, [scene[name] for name in names]):
                if log is not None and tick >= 0 and (controls := controls_of(scene, tick)) is not None:
                    log.add(controls)
                for name, reading in scene.publish(others, since=cursor, truth=job.truth, poses=job.truth).items():
                    files[name].add(reading)
                for each in followed:
                    each.take_sample(scene.tick)
            mask = simulation.kept(scene)
            kept += int(mask.sum())
            for each in every_file:
                each.end(mask)
        written = {each.name: each.close() for each in every_file}
    episodes = job.episodes * shard.num_envs
    return {
        "key": shard.key, "shard": shard.index, "first_env": shard.first_env, "num_envs": shard.num_envs,
        "episodes": kept, "dropped": episodes - kept, "files": written, "versions": job.origin["versions"],
        "simulated_s": ticks * scene.engine.dt * episodes, "started": started,
        "wall_s": round(time.perf_counter() - began, 4), "host": platform.node(),
    }  # fmt: skip


_kept: list[Simulation] = []
"""The simulation of the last job, which the next shard of the same job uses."""


def run_shard(job: Job, index: int, out: str | Path) -> dict[str, Any]:
    """Generate one shard of a job, and return its receipt.

    The rows are a pure function of the job and the number of the shard.

    Args:
        job: the job.
        index: number of the shard.
        out: folder or URL of the output.

    Raises:
        ConfigError: the job has no such shard, or a part of the job is invalid.
        ArgumentError: the output cannot be written, or holds the data of another job.
    """
    store = Store(out)
    store.claim(job)
    return _run(job, index, store)


def _run(job: Job, index: int, store: Store) -> dict[str, Any]:
    with _threads(job):
        simulation = _kept.pop() if _kept and _kept[0].job.key == job.key else Simulation(job)
        _kept.clear()
        receipt = write_shard(simulation, job.shard(index), store)
        store.finish(index, receipt)
    _kept.append(simulation)  # not after an error, which may have left it in any state
    return receipt


@contextmanager
def _threads(job: Job) -> Iterator[None]:
    """Use the number of threads of a job."""
    threads = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class ShardWorker:
    """The part of a worker that generates shards, for any executor.

    Args:
        job: the result of `Job.to_dict`.
        key: key of the job where it was started.
        out: folder or URL of the output.
        folder: working directory, which relative paths and modules of the user start from.

    Raises:
        ConfigError: the folder does not exist here, or this worker would generate other bytes.
        SensoriumError: a part of the job is missing or invalid.
    """

    def __init__(self, job: Mapping[str, Any], key: str, out: str, folder: str) -> None:
        try:
            os.chdir(folder)
        except OSError as error:
            fix = "Share the folder between all machines."
            raise ConfigError.single("Job", "working directory", folder, "a folder of this machine", fix) from error
        self._job, self._store = Job.from_dict(job), Store(out)
        if self._store.read_json(self._store.path(JOB)) is None:
            fix = "Give a folder that all machines share, or a URL."
            raise ConfigError.single("generate", "out", out, f"the output of the driver, with {JOB}", fix)
        if self._job.key != key:
            differ = listed(self._store.changes(self._job)) or "files"
            fix = "Install the same versions and sources, and share the same files, on all machines."
            raise ConfigError.single("Job", "worker", f"{platform.node()}: another {differ}", "equal workers", fix)
        with _threads(self._job):
            simulation = Simulation(self._job)
            simulation.check()
        _kept[:] = [simulation]

    def about(self) -> dict[str, Any]:
        """Return host and process."""
        return {"host": platform.node(), "pid": os.getpid()}

    def run(self, index: int) -> dict[str, Any]:
        """Generate a shard; return its receipt, or ``{"error": text, "fatal": bool}``.

        An error is fatal if it concerns all shards, such as a full disk.
        """
        try:
            return _run(self._job, index, self._store)
        except Exception as error:
            done = self._store.receipt(index)  # another driver may have written the same shard
            if done is not None and done["key"] == self._job.shard(index).key:
                return done
            return {
                "error": message(error),
                "fatal": isinstance(error, ArgumentError) and isinstance(error.__cause__, OSError),
            }
