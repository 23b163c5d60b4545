"""The scene: one engine, its sensors, their schedule. Thin: it decides what is due and calls what does the work."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, overload

import numpy as np
import torch

from sensorium import registry
from sensorium.cfg import SensorCfg
from sensorium.compute import Clock, Compute, Memory, keeps_current
from sensorium.compute.clock import FIRST, SAMPLE
from sensorium.compute.graph import launching
from sensorium.compute.use import Use, exclusive, mending
from sensorium.engines.base import Engine
from sensorium.engines.envs import env_selection, mark
from sensorium.errors import ConfigError, ScheduleError, SensoriumWarning, listed, shown
from sensorium.measurement.schedule import Schedule
from sensorium.plugins import is_ours
from sensorium.presets import Presets, presets
from sensorium.readings import Bodies, Reading, SceneDescription
from sensorium.scene.needs import requirements_of
from sensorium.scene.observer import Observer
from sensorium.scene.publish import News, Watch, call_watches, env_range, take_reading, without_poses
from sensorium.scene.saving import fitting_sensors, restore, saved_scene
from sensorium.scene.slices import first_env_of
from sensorium.scene.table import SensorMap, SensorTable
from sensorium.sensors.builtin import BuiltinSensorCfg
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.parts import SensorContext
from sensorium.sensors.core.trial import try_hooks
from sensorium.spec import Requirement
from sensorium.world.bodies import bodies_of

DataT = TypeVar("DataT")


class Scene:
    """An engine with sensors. Ready when built: names resolved, memory allocated, the first sample captured at tick 0.

    Args:
        engine: the simulator.
        sensors: their configs; names must be unique.
        seed: seed of every random number. Draws are a pure function of it, of the sensor's name, and of tick, env and
            episode: they do not depend on the other sensors, on the number of envs or on who reads when.
        first_env: global index of env 0, where this scene is a slice of a larger run: env k draws the random numbers of
            env ``first_env + k``. A run that is split over processes, ``first_env=rank * num_envs``, draws the same
            noise as one that is not. None is 0.
        reserve: configs or requirements to prepare the engine for, so that such sensors can be added later.
        allow_gaps: let `update(ticks=n)` jump over samples of sensors with memory.
        capture: replay the sensor step as captured graphs, once it has run often enough to pay; see `capture`.
        discover: have every sensor that the model declares in the scene by its full name, without a config. It costs
            nothing until it is read.
        debug: fill views that `.data` and `.ground_truth` handed out with NaN once they are out of date, after the
            next step, update or reset, so that code that keeps them by mistake is found; they are copies then. A
            warning names views that were written into.
        semantics: semantic label to patterns of names of geoms or bodies that have it, e.g. ``{"person": "human/.*"}``,
            for sensors that see shapes.

    One thread at a time uses a scene; others get readings by `publish`. An exception in a hook, or Ctrl-C, can end a
    call halfway. The scene continues where no sample was touched. Otherwise each later call raises a `ScheduleError`
    that names the cause, until `reset()` of all environments or `load_state`.

    A name without its entity's prefix finds a sensor while it is the only one: ``scene["acc"]`` is
    ``scene["robot/acc"]``.

    Raises:
        ConfigError, SelectionError, DuplicateNameError, UnsupportedError: see the messages.
    """

    @keeps_current
    @launching
    def __init__(
        self,
        engine: Engine,
        sensors: Iterable[SensorCfg[Any]] = (),
        *,
        seed: int = 0,
        first_env: int | None = None,
        reserve: Iterable[SensorCfg[Any] | Requirement] = (),
        allow_gaps: bool = False,
        capture: bool = True,
        discover: bool = True,
        debug: bool = False,
        semantics: Mapping[str, str | Sequence[str]] | None = None,
    ) -> None:
        if isinstance(sensors, SensorCfg):
            raise ConfigError.single("Scene", "sensors", sensors, "a list of configs", "Write sensors=[cfg].")
        self.engine = engine
        self._use = Use()
        self.seed = int(seed)
        self.first_env = first_env_of(first_env, engine.num_envs)
        """Global index of env 0, in random numbers."""
        self.allow_gaps = allow_gaps
        self._written: list[str] = []
        self._table = SensorTable(engine)
        configs = self._table.named(sensors)
        reserved = [item if isinstance(item, Requirement) else self._table.resolve(item) for item in reserve]
        memory = Memory(engine.device, engine.num_envs)
        with memory.building(*configs):
            engine.prepare(requirements_of([*configs, *reserved], engine.supports, engine))
        if discover:
            self._table.discover(configs)
        self.compute = Compute(engine.device, engine.num_envs, capture=capture, first_env=self.first_env, memory=memory)
        engine.capture(capture)
        self.clock = Clock(self.compute, engine.dt_exact)
        self._context = SensorContext(engine, self.compute, self.clock, self.seed, self._reset_one, debug, semantics)
        if semantics:
            self._context.ray_scene.check_labels()
        self._schedule = Schedule(engine, self.compute, self.clock, self._use)
        self._own_control_steps = False
        """Whether the owner of the loop says when a control step begins."""
        self.arrangement = 0
        """A number that changes with the sensors: they were added, removed or reconfigured."""
        self._watches: list[Watch] = []
        self._end_of_step = 0
        engine.refresh()
        self.clock.set(engine.tick, FIRST, 0)
        self.clock.episode.fill_(-1)
        with memory.building(*configs):  # together they must fit
            built = [self._build(cfg) for cfg in configs]
        self._table.built = {sensor.name: sensor for sensor in built}
        self.arrange()
        self._schedule.load_kernels()
        self._reset_sensors(None)

    def __repr__(self) -> str:
        names = listed(self) if len(self) else "no sensors"
        return f"Scene({self.engine!r}, tick={self.clock.tick}, sensors: {names})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: it holds memory of a device, graphs and an engine."""
        raise TypeError(
            "a Scene cannot be copied or pickled. Build a second one from the same configs, and take the state along: "
            "other.load_state(scene.state())."
        )

    def _build(self, cfg: SensorCfg[Any]) -> Sensor[Any, Any]:
        sensor_class = registry.sensor_for(type(cfg))
        with self.compute.memory.building(cfg):
            sensor: Sensor[Any, Any] = sensor_class(cfg, self._context)
        if not is_ours(sensor_class):
            try_hooks(sensor)
        return sensor

    # Access -----------------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: str) -> Sensor[Any, Any]: ...
    @overload
    def __getitem__(self, key: SensorCfg[DataT]) -> Sensor[Any, DataT]: ...
    def __getitem__(self, key: str | SensorCfg[Any]) -> Sensor[Any, Any]:
        """Return a sensor by name, or, typed, by its config; a prefix may be left out while that is unique."""
        name = key if isinstance(key, str) else key.label
        found = self._table.built.get(name)
        return found if found is not None else self._find(name)

    def __contains__(self, key: str | SensorCfg[Any]) -> bool:
        return (key if isinstance(key, str) else key.label) in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.names)

    def __len__(self) -> int:
        return len(self._table.names)

    @property
    def sensors(self) -> Mapping[str, Sensor[Any, Any]]:
        """Name -> sensor: the configured ones in the order they were given, then what the model declares."""
        return SensorMap(self._table.names, self.__getitem__)

    @launching
    def _find(self, name: str) -> Sensor[Any, Any]:
        """Return a sensor by its full or short name; a discovered one is built now."""
        name = self._table.full_name(name)
        if name not in self._table.built:
            sensor = self._build(BuiltinSensorCfg.from_existing(name))
            sensor.buffers.counter.count_from_start(self.engine.lag)
            sensor.buffers.before_first = partial(self._table.grant, [name])
            self._schedule.admit(sensor.buffers)
            self._table.built[name] = sensor
        return self._table.built[name]

    @property
    def sensors_in_use(self) -> dict[str, Sensor[Any, Any]]:
        """The sensors with a config, and the discovered ones that were read."""
        free = self._table.free
        return {name: each for name, each in self._table.built.items() if name not in free or each.buffers.was_read}

    @property
    def presets(self) -> Presets:
        """The devices that sensors can be made of, by name, for who lets others choose: a server offers them."""
        return presets()

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.engine.num_envs

    @property
    def tick(self) -> int:
        """Physics steps that the sensors have seen."""
        return self.clock.tick

    @property
    def time(self) -> float:
        """Seconds at `tick`."""
        return self.clock.time

    @property
    def is_within_step(self) -> bool:
        """Whether `step` has further ticks to take: what callbacks of `watch` see then is the midst of a step."""
        return self.clock.tick < self._end_of_step

    # Time -------------------------------------------------------------------------------------------------------------

    def capture(self, on: bool) -> None:
        """Turn captured graphs on or off, from the next step on. The readings do not depend on it, bit for bit.

        Work that consists of kernels is recorded once. Captured, the kernels between two torch hooks are replayed by
        one call; else each is launched by itself, which is easier to profile and to debug. A scene begins with recorded
        launches and captures what has run often enough to pay (32 times on the CPU); ``capture(True)`` does so for all
        that has run 4 times, so that no later step is delayed by it. Graphs that were made are kept.

        Args:
            on: whether graphs are made and replayed, also by the engine for its own kernels.

        Raises:
            SensoriumError: (by the step that makes a graph) a kernel could not be captured; it is named.
        """
        self.compute.capture = on
        if on:
            self.compute.capture_after = 0
        self.engine.capture(on)

    def begin_control_step(self) -> None:
        """Say that a control step begins now: what arrives from here on is new, latches start anew.

        `step` does this by itself; who owns the loop calls it before the ticks of one control. Without it each
        `update` is a control step of its own.
        """
        self._own_control_steps = True
        self.clock.begin_control_step()
        self.clock.write()

    @exclusive
    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Take one control step of `substeps` ticks; sensors are sampled whenever they are due in it.

        Args:
            ctrl: `[env, nu]` or `[nu]`; None keeps what `engine.ctrl` holds.
            substeps: ticks under this control, at least 1.

        Raises:
            ScheduleError: the engine is stepped by its owner, substeps is not positive, another thread uses the scene,
                or an earlier call was interrupted; the message names the cause and what to call.
            Exception: what a callback of `watch` raised; the scene is then at the tick that it had been told of.
        """
        substeps = _ticks(substeps, 1, "Scene.step: substeps", "a control step has at least one tick")
        if self.engine.tick != self.clock.tick:
            raise ScheduleError(
                f"the engine is at tick {self.engine.tick}, the sensors at {self.clock.tick}: call scene.update() "
                "after stepping the engine by yourself"
            )
        start = self.clock.tick
        self._end_of_step = end = start + substeps
        try:
            while self.clock.tick < end:
                ticks = min(self._schedule.next_due, end) - self.clock.tick
                if self._watches and any(watch.every_tick for watch in self._watches):
                    ticks = 1
                self._use.changing = "step()"
                try:
                    self.engine.step(ctrl, ticks)
                except (TypeError, ValueError, ScheduleError):
                    self._was_refused()
                    raise
                ctrl = None
                if self.clock.tick == start:
                    self.clock.begin_control_step()
                    self._own_control_steps = False
                self._advance_to(self.engine.tick)
                if self._watches:
                    call_watches(self._watches)
        finally:
            self._end_of_step = 0
        self._schedule.report()

    def _was_refused(self) -> None:
        """Note that the engine refused to take ticks: where it took none, nothing has changed."""
        if self.engine.tick == self.clock.tick:
            self._use.changing = ""

    @exclusive
    def update(self, ticks: int | None = None, *, force_recompute: bool = False, force_compute: bool = False) -> None:
        """Note that the owner of the loop took ticks, and sample what is due.

        Args:
            ticks: ticks since the last call. None means one for wrapped live objects and `TensorEngine`, and what the
                engine has counted for engines that step themselves. 0 evaluates the current sample of
                sensors without memory again, after a `forward()` or an edit: no new noise, no time. The others hold
                their sample until they are next due, as a device would; `Sensor.info` tells which sensors those are.
            force_recompute: evaluate lazy sensors now.
            force_compute: alias of `force_recompute`.

        Raises:
            ScheduleError: negative ticks, or a jump over samples of a sensor with memory without `allow_gaps`.
        """
        engine, clock = self.engine, self.clock
        counted = engine.tick - clock.tick
        if ticks is not None:
            ticks = _ticks(ticks, 0, "Scene.update: ticks", "time does not run backwards")
            if counted not in (0, ticks):
                raise ScheduleError(f"the engine took {counted} ticks, but update(ticks={ticks}) was called")
        else:
            ticks = counted or (0 if engine.owns_time else 1)
        if ticks > 1 and not self.allow_gaps and (names := self._schedule.missed_by(clock.tick + ticks)):
            raise ScheduleError(
                f"a jump of {ticks} ticks misses samples of {listed(names)}, whose readings depend on earlier "
                "ones. Call update() after each tick, or allow it with Scene(..., allow_gaps=True)."
            )
        self._use.changing = "update()"
        if not counted:  # the engine did not count: the owner's simulation did
            try:
                engine.count_ticks(ticks)
            except (TypeError, ValueError, ScheduleError):
                self._was_refused()
                raise
        if ticks:
            clock.skipped += ticks - 1
            if not self._own_control_steps:
                clock.begin_control_step()
            self._advance_to(engine.tick)
        else:
            self._spoil_views()
            engine.forward()  # first: what it computes is of now, also where derived state was a tick old
            clock.set(clock.tick, SAMPLE, engine.lag)
            self._schedule.sample_again()
            self._committed()
        if force_recompute or force_compute:
            for sensor in self.sensors_in_use.values():
                sensor.ensure_current()
        self._schedule.report()
        if self._watches:
            call_watches(self._watches)

    def _advance_to(self, tick: int) -> None:
        """Move to a tick and sample what became due."""
        self._spoil_views()
        self.clock.set(tick, SAMPLE, self.engine.lag)
        is_due = self._schedule.next_due <= tick
        if is_due:
            self.engine.refresh()
            self._schedule.sample()
        self._use.changing = ""
        if self._written:
            self._committed()
        if is_due and self.compute.is_cpu:
            self._schedule.report()  # the tick of the sample itself

    def _spoil_views(self) -> None:
        """Fill the views that were handed out, in a scene with `debug`."""
        if self._context.debug:
            for sensor in self._table.built.values():
                self._written += [f"{sensor.name!r}: {field}" for field in sensor.spoil()]

    def _committed(self) -> None:
        """Note that a call has changed all that it changes, and report what readers wrote into views until then."""
        self._use.mended()
        if self._written:
            written, self._written = self._written, []
            warnings.warn(
                f"views of these sensors were written into since the last step: {listed(written)}. Without debug=True "
                "they are the sensor's own memory, and data and ground_truth may share it. Write into a copy: "
                "sensor.read() or sensor.read_ground_truth().",
                SensoriumWarning,
                stacklevel=4,
            )

    # Reset ------------------------------------------------------------------------------------------------------------

    @mending
    def reset(self, env_ids: Any = None, **state: Any) -> None:
        """Reset environments: the engine's state, then every stateful part of every sensor, then capture anew.

        Args:
            env_ids: int ids, a bool mask, or None for all. A mask on the scene's device is not looked at by the host.
            state: what to write after the engine's own reset, e.g. ``qpos=[n, nq]``, ``qvel=[n, nv]``.

        Raises:
            ScheduleError: an earlier call was interrupted, and `env_ids` is not None.
        """
        rows = env_selection(env_ids, self.num_envs, self.compute.device)
        interrupted = self._use.changing
        if interrupted and rows is not None:
            self._use.refuse()
        self._schedule.note_looks()
        self._use.changing = interrupted or "reset()"
        try:
            self.engine.reset(rows, state)
        except (KeyError, TypeError, ValueError, ScheduleError):  # it refused, and has changed nothing
            self._use.changing = interrupted
            raise
        self.engine.refresh()
        if interrupted:
            self._restart()
        self._reset_sensors(rows)
        self._committed()
        self._schedule.report()
        call_watches(self._watches)

    def _restart(self) -> None:
        """Drop what an interrupted call left half done, before all episodes begin or a saved state is loaded."""
        self.clock.set(self.engine.tick, SAMPLE, self.engine.lag)
        for sensor in self._table.built.values():
            sensor.buffers.restart()
            sensor.begin_poses()
        self.arrange()
        self._schedule.note_looks()

    @exclusive
    @launching
    def _reset_one(self, sensor: Sensor[Any, Any], env_ids: Any) -> None:
        """Start one sensor anew for some envs, in the episode that is under way. The others do not notice."""
        mask = torch.zeros(self.num_envs, dtype=torch.bool, device=self.compute.device)
        mark(mask, env_selection(env_ids, self.num_envs, self.compute.device))
        self._written += [f"{sensor.name!r}: {field}" for field in sensor.spoil()]
        self._schedule.note_looks()
        self.engine.refresh()
        is_new = self._table.built.get(sensor.name) is not sensor
        self._use.changing = "add()" if is_new else f"reset() of sensor {sensor.name!r}"
        try:
            self._schedule.reset_one(sensor.buffers, mask)
        except Exception:
            if is_new:  # the scene is without it, and the clock is as it was
                self._use.mended()
            raise
        self._committed()

    @launching
    def _reset_sensors(self, rows: torch.Tensor | None) -> None:
        compute, clock = self.compute, self.clock
        self._spoil_views()
        mark(compute.reset_envs, rows)
        clock.set(self.engine.tick, FIRST, self.engine.lag)
        clock.begin_episode(compute.reset_envs)
        self._schedule.reset(rows)
        clock.set(clock.tick, SAMPLE, self.engine.lag)

    # Sensors at run time ----------------------------------------------------------------------------------------------

    @exclusive
    @keeps_current
    @launching
    def add(self, cfg: SensorCfg[DataT]) -> Sensor[Any, DataT]:
        """Add a sensor between steps; it is captured at once for all envs.

        Raises:
            UnsupportedError: it needs something of the model that was not prepared; the message says what to reserve.
        """
        (named,) = self._table.named([cfg])
        self._table.prepare_late(named, self.compute.memory)
        sensor = self._build(named)
        self._reset_one(sensor, None)
        with self._rearranging("add()"):
            self._table.put(sensor)
        return sensor

    @exclusive
    def compute_on_demand(self, name: str) -> bool:
        """Have a sensor computed only while somebody reads, records or listens, as ``evaluate="wanted"`` does.

        A sensor whose config says `evaluate` or takes no other, one that costs nothing unread, and one with a stage
        that looks at every tick stay as they are. One that looks at every tick by itself, such as a lidar, goes on
        looking, which costs little, so that its first scan is whole.

        Returns:
            Whether it is so from now on.
        """
        sensor = self[name]
        if sensor.cfg.evaluate != "auto" or sensor.is_lazy or sensor.buffers.observers:
            return sensor.buffers.plan.evaluate == "wanted"
        try:
            sensor.cfg.replace(evaluate="wanted")
        except ConfigError:  # it must see every sample
            return False
        with self._rearranging("compute_on_demand()"):
            sensor.buffers.seal(evaluate="wanted")
        return True

    @mending
    def remove(self, name: str | SensorCfg[Any]) -> None:
        """Remove a sensor; its object and views raise when used from then on. The others do not notice."""
        full_name = self._table.full_name(name if isinstance(name, str) else name.label)
        with self._rearranging("remove()"):
            self._table.release(full_name, "was removed from its scene")

    def arrange(self) -> None:
        """Sort the sensors by when they are evaluated; their programs are built anew when they are first run."""
        self.arrangement += 1
        self._schedule.arrange(sensor.buffers for sensor in self._table.built.values())

    @contextmanager
    def _rearranging(self, call: str) -> Iterator[None]:
        """In this block, a call changes which sensors are evaluated when."""
        interrupted = self._use.changing
        self._use.changing = interrupted or call
        yield
        self.arrange()
        self._use.changing = interrupted

    @exclusive
    @keeps_current
    @launching
    def reconfigure(self, name: str | SensorCfg[Any], /, **changes: Any) -> Sensor[Any, Any]:
        """Rebuild one sensor with a changed config, between steps; old views of it raise when used.

        Raises:
            ConfigError: every fault of the new config; the old sensor then stays as it was.
        """
        old = self[name]
        (cfg,) = self._table.named([old.cfg.replace(**changes)], without=old.name)
        self._table.prepare_late(cfg, self.compute.memory)
        new = self._build(cfg)
        self._reset_one(new, None)
        with self._rearranging("reconfigure()"):
            self._table.replace(old, new)
        return new

    # Saving -----------------------------------------------------------------------------------------------------------

    @exclusive
    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume bit-identically: ticks, episodes, rings, walks, latches, engine state.

        For wrapped engines the caller saves and restores the simulation, before `load_state`.
        """
        return saved_scene(self)

    @mending
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, into a scene with the same configs; discovered sensors need not be the same.

        Raises:
            ConfigError: this is no state of a scene, or seed, `first_env`, sensors or shapes differ.
        """
        interrupted = self._use.changing
        with launching:
            sensors = fitting_sensors(state, self)
            self._spoil_views()
            self._use.changing = interrupted or "load_state()"
            if interrupted:
                self._restart()
            restore(state, self, sensors)
            self.arrange()
        self._committed()
        call_watches(self._watches)

    # Outputs ----------------------------------------------------------------------------------------------------------

    def observer(
        self, *fields: str, truth: bool | str | Iterable[str] = (), replace_inf: float | None = None
    ) -> Observer:
        """Return what gathers fields of several sensors into one float32 tensor `[env, column]`, for a policy.

        ``look = scene.observer("imu.ang_vel_b", "scan.distances", truth=("imu.lin_vel_b",), replace_inf=5.0)`` once,
        ``look()`` whenever an observation is wanted: a new tensor, which may be kept. See `Observer`.

        Args:
            fields: ``"sensor.field"``, or ``"sensor"`` for all its fields; columns are in this order.
            truth: further fields, from the ground truth, whose columns follow; True takes all `fields` from there.
            replace_inf: what +inf becomes (and with a minus -inf), e.g. the greatest range of a scan.
        """
        return Observer(self, fields, truth=truth, replace_inf=replace_inf)

    def watch(self, callback: Callable[[], object], *, every_tick: bool = False) -> Watch:
        """Have a function called whenever what the sensors show may have changed; returns what closes the watch.

        It is called on the thread of the scene's owner: in `step` and `update` after each advance of the scene, once
        the sensors that are due are sampled, also where none is; after `update(ticks=0)`, `reset` and `load_state`.
        Adding and removing sensors is no reason. All watches are called in the order in which they were made. What a
        callback raises is raised by the step, once all were called: the scene is then at the tick of the call, and the
        rest of the control step is not taken. A callback must not step the scene.

        Args:
            callback: what to call, without arguments.
            every_tick: have `step` stop at every tick, and not only where a sensor is due; `Watch.every_tick` can be
                changed later.
        """
        return Watch(callback, every_tick, self._watches)

    def news(self) -> News:
        """Return the count of what an output has taken of the sensors; every output needs its own.

        ``news = scene.news()`` once. ``news.of(names)`` then tells which sensors have something new, for nothing, and
        ``scene.publish(names, since=news)`` takes it. See `News`.
        """
        return News(self)

    @exclusive
    def publish(
        self,
        names: Iterable[str] | None = None,
        *,
        since: News | None = None,
        envs: slice | None = None,
        truth: bool = True,
        poses: bool = False,
    ) -> dict[str, Reading]:
        """Copy what sensors show now to the host, for other threads, recorders and listeners.

        On CUDA the copies are asynchronous: a reading waits for its own copy when it is first looked at.

        Args:
            names: sensors wanted. None takes those with a config and the discovered ones that were read before (asking
                for one by name counts as reading it): ``publish(scene)`` takes all.
            since: leave out sensors that show nothing new to the output whose `news` it is, and note that it took the
                others.
            envs: the environments to copy, side by side; None for all.
            truth: copy the ground truth as well; else it is empty.
            poses: say where the mounts were at the capture of what is shown, see `Reading.pose`. From the first time on
                the poses are kept with each sample, until `forget_poses`. Of a sample that was captured before that
                they are unknown: NaN.

        Raises:
            ConfigError: `envs` has gaps, or environments that there are not.
        """
        rows = env_range(envs, self.num_envs)
        wanted = list(self.sensors_in_use) if names is None else list(names)
        self._table.grant(wanted)
        sensors = {name: self[name] for name in (wanted if since is None else since.of(wanted))}
        if poses and (new := without_poses(sensors.values(), self.engine)):
            self._keep_poses(new, True, "publish(poses=True)")
        out = {}
        for name, sensor in sensors.items():
            out[name] = take_reading(sensor, rows, truth=truth, poses=poses)
            if since is not None:
                since.note(sensor)
        return out

    def bodies(self) -> Bodies:
        """Return all bodies of the model: number, name, entity, and the box around its shapes in the body's frame.

        Boxes are 0 where the engine knows no shapes.
        """
        return bodies_of(self.engine, "Scene.bodies")

    @exclusive
    def forget_poses(self, names: Iterable[str] | None = None) -> None:
        """Keep the poses of mounts no more, for some sensors or all, until `publish` is asked for them again."""
        wanted = list(self._table.built) if names is None else names
        self._keep_poses([self[name] for name in wanted], False, "forget_poses()")

    @keeps_current
    @launching
    def _keep_poses(self, sensors: Iterable[Sensor[Any, Any]], on: bool, call: str) -> None:
        with self._rearranging(call):
            for sensor in sensors:
                sensor.keep_poses(on)

    def local_client(self, **options: Any) -> Any:
        """Return a client of this scene in this process: the API of `sensorium.connect`, data by reference.

        Args:
            options: see `sensorium.local_client`.
        """
        import sensorium  # the public name, loaded on use: the scene does not know what is built upon it

        return sensorium.local_client(self, **options)

    def description(self) -> SceneDescription:
        """Return what a recorder or listener needs to know once, of all sensors, discovered ones too."""
        sensors = self._table.describe(self.clock)
        return SceneDescription(self.engine.name, self.engine.dt, self.num_envs, self.seed, sensors, self.first_env)


def _ticks(value: Any, least: int, what: str, why: str) -> int:
    """Return a number of ticks, or raise ScheduleError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        expected = f"an integer of at least {least}, below 2**31"
        raise ScheduleError(f"{what}: got {shown(value)}, expected {expected}: {why}.")
    return int(value)
