"""The scene: an engine, its sensors and their schedule. It determines the due sensors and delegates the work."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
import torch

from sensorium import registry
from sensorium.compute import Clock, Compute, Memory, keeps_current
from sensorium.compute.clock import FIRST, SAMPLE
from sensorium.compute.exclusive import SceneGuard, exclusive, restoring
from sensorium.compute.graph import launching
from sensorium.engines.base import Engine
from sensorium.engines.envs import env_range, env_selection, mark
from sensorium.errors import ArgumentError, ConfigError, ScheduleError, SensoriumWarning, listed, shown
from sensorium.measurement.schedule import Schedule
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.plugins import is_ours
from sensorium.random import Distribution, checked_seed
from sensorium.scene.draws import draw, first_env_of
from sensorium.scene.table import SensorMap, SensorTable, requirements_of
from sensorium.sensors.builtin import BuiltinSensorCfg
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.parts import SensorContext
from sensorium.spec import BODY_POSE, Requirement

if TYPE_CHECKING:
    from sensorium.cameras.appearance_cfg import AppearanceCfg
    from sensorium.presets import Presets
    from sensorium.readings import Array, Bodies, Reading, SceneDescription
    from sensorium.record import Recorder
    from sensorium.scene.columns import TermColumns
    from sensorium.scene.observer import Observer, ObserverGroups
    from sensorium.scene.profile import Profile
    from sensorium.scene.publish import LiveSample, Places, SampleCursor, Watch
    from sensorium.scene.states import SensorStates
    from sensorium.scene.terms import ObsTerm
    from sensorium.view.live.handle import LiveView

DataT = TypeVar("DataT")
SensorT = TypeVar("SensorT", bound="Sensor[Any, Any]")


class Scene:
    """An engine with sensors, ready once built: names resolved, memory allocated, first sample captured at tick 0.

    Args:
        engine: simulator.
        sensors: configs of the sensors; names must be unique. A class is called without arguments for an iterable of
            configs. If the iterable has `num_envs`, it must be that of the engine.
        seed: seed of all random numbers. Draws are a pure function of the seed, the sensor's name, tick, env and
            episode. They are independent of other sensors, of the number of envs and of the order of reads.
        first_env: global index of env 0, where this scene is a slice of a larger run: env k draws the random numbers of
            env ``first_env + k``. A run split over processes with ``first_env=rank * num_envs`` draws the same noise as
            an undivided one. None means 0.
        reserve: configs or requirements to prepare the engine for, so that such sensors can be added later.
        allow_gaps: whether `update(ticks=n)` may skip samples of sensors with memory.
        capture: whether to replay the sensor step as captured graphs once it has run often enough to pay; see
            `capture`.
        discover: whether to add every sensor that the model declares, under its full name, without a config. Such
            sensors cost nothing until they are read.
        debug: whether to fill outdated views of `.data` and `.ground_truth` with NaN after the next step, update or
            reset, to find code that keeps views by mistake. Views are copies then. A warning names views that were
            written into.
        semantics: semantic label -> patterns of the names of geoms or bodies with that label, e.g. ``{"person":
            "human/.*"}``, for sensors that see shapes.
        appearance: colours, materials, textures and lights that are set in each environment at reset, for colour
            images: `ShapeLookCfg` and `LightLookCfg`, whose values may be distributions. Later ones overwrite
            earlier ones.

    A scene is used by one thread at a time; other threads get readings through `publish`. An exception in a hook, or
    Ctrl-C, can end a call halfway. The scene continues if no sample was touched. Otherwise each later call raises a
    `ScheduleError` that names the cause, until `reset()` of all environments or `load_state`.

    The prefix of a name may be omitted while the rest is unique: ``scene["acc"]`` is ``scene["robot/acc"]``.

    Raises:
        ConfigError, SelectionError, DuplicateNameError, UnsupportedError: see the messages.
        ArgumentError: the seed is not an integer.
    """

    @keeps_current
    @launching
    def __init__(
        self,
        engine: Engine,
        sensors: Iterable[SensorCfg[Any]] | type[Iterable[SensorCfg[Any]]] = (),
        *,
        seed: int = 0,
        first_env: int | None = None,
        reserve: Iterable[SensorCfg[Any] | Requirement] = (),
        allow_gaps: bool = False,
        capture: bool = True,
        discover: bool = True,
        debug: bool = False,
        semantics: Mapping[str, str | Sequence[str]] | None = None,
        appearance: Sequence[AppearanceCfg] = (),
    ) -> None:
        if isinstance(sensors, type):
            sensors = sensors()
        if isinstance(sensors, SensorCfg) or not isinstance(sensors, Iterable):
            raise ConfigError.single("Scene", "sensors", sensors, "a list of configs", "Write sensors=[cfg].")
        if (count := getattr(sensors, "num_envs", None)) not in (None, engine.num_envs):
            expected = f"{engine.num_envs}, as the engine has"
            raise ConfigError.single(type(sensors).__name__, "num_envs", count, expected, "Build the engine with it.")
        self.engine = engine
        self._guard = SceneGuard()
        self.seed = checked_seed(seed)
        self.first_env = first_env_of(first_env, engine.num_envs)
        """Global index of env 0; random numbers depend on it."""
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
        self.global_env_ids = torch.arange(self.num_envs, device=self.compute.device) + self.first_env
        """Global index of each environment, int64 `[env]`: ``first_env + env``."""
        self.clock = Clock(self.compute, engine.dt_exact)
        self._context = SensorContext(
            engine,
            self.compute,
            self.clock,
            self.seed,
            self._reset_one,
            self._retake,
            self._update_one,
            self.arrange,
            self._rebuild,
            debug,
            semantics,
            tuple(appearance),
        )
        if semantics:
            from sensorium.shapes.scene import ShapeScene  # imported on use: few scenes need shapes

            self._context.service(ShapeScene).check_labels()
        self._schedule = Schedule(engine, self.compute, self.clock, self._guard)
        self._own_control_steps = False
        """Whether the owner of the loop marks the start of control steps."""
        self.arrangement = 0
        """A number that changes with the sensors: they were added, removed or reconfigured."""
        self._watches: list[Watch] = []
        self._memories: list[weakref.ref[TermColumns]] = []
        self._end_of_step = 0
        self._updated: tuple[int, int, set[str]] = (-1, 0, set())
        """Tick that a call of `Sensor.update` advanced to, the number of ticks, and the sensors updated since then."""
        engine.refresh()
        self.clock.set(engine.tick, FIRST, 0)
        self.clock.episode.fill_(-1)
        with memory.building(*configs):  # all of them together must fit
            built = [self._build(cfg) for cfg in configs]
        self._table.built = {sensor.name: sensor for sensor in built}
        self.arrange()
        self._schedule.load_kernels()
        self._reset_sensors(None)

    def __repr__(self) -> str:
        names = listed(self) if len(self) else "no sensors"
        return f"Scene({self.engine!r}, tick={self.clock.tick}, sensors: {names})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise `TypeError`: a scene holds device memory, graphs and an engine, and cannot be copied or pickled."""
        raise TypeError(
            "a Scene cannot be copied or pickled. Build a second one from the same configs and transfer the state: "
            "other.load_state(scene.state())."
        )

    def _build(self, cfg: SensorCfg[Any]) -> Sensor[Any, Any]:
        sensor_class = registry.sensor_for(type(cfg))
        with self.compute.memory.building(cfg):
            sensor: Sensor[Any, Any] = sensor_class(cfg, self._context)
        if not is_ours(sensor_class):
            from sensorium.sensors.core.trial import try_hooks  # imported on use, as in the other methods

            try_hooks(sensor)
        if any("noise" in name or "random_walk" in name or name.endswith("_sd") for name in cfg.model_fields_set):
            from sensorium.presets.ranges import warn_of_unusual_noise  # reads files, so only for noisy sensors

            warn_of_unusual_noise(cfg, self.engine.dt)
        return sensor

    # Access -----------------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: str) -> Sensor[Any, Any]: ...
    @overload
    def __getitem__(self, key: SensorCfg[DataT]) -> Sensor[Any, DataT]: ...
    def __getitem__(self, key: str | SensorCfg[Any]) -> Sensor[Any, Any]:
        """Return a sensor by name or, typed, by its config; the prefix may be omitted while the rest is unique."""
        name = key.label if isinstance(key, SensorCfg) else str(key)
        found = self._table.built.get(name)
        return found if found is not None else self._find(name)

    def get(self, name: str, kind: type[SensorT]) -> SensorT:
        """Return a sensor by name, typed by its class: ``scene.get("imu", sn.Imu).data.lin_acc_b``.

        Raises:
            UnknownNameError: no sensor has that name.
            ArgumentError: the sensor has another class.
        """
        sensor = self[name]
        if not isinstance(sensor, kind):
            raise ArgumentError(f"kind: got {kind.__name__}, but {name!r} is of class {type(sensor).__name__}.")
        return sensor

    def __contains__(self, key: str | SensorCfg[Any]) -> bool:
        return (key if isinstance(key, str) else key.label) in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.names)

    def __len__(self) -> int:
        return len(self._table.names)

    @property
    def sensors(self) -> Mapping[str, Sensor[Any, Any]]:
        """Name -> sensor: configured sensors in the order given, then sensors that the model declares."""
        return SensorMap(self._table.names, self.__getitem__)

    @launching
    def _find(self, name: str) -> Sensor[Any, Any]:
        """Return a sensor by its full or short name; a discovered one is built on first lookup."""
        name = self._table.full_name(name)
        if name not in self._table.built:
            sensor = self._build(BuiltinSensorCfg.from_existing(name))
            sensor.buffers.counter.count_from_start(self.engine.lag)
            sensor.buffers.before_first = partial(self._use, name)
            self._schedule.admit(sensor.buffers)
            self._table.built[name] = sensor
        return self._table.built[name]

    def _use(self, name: str) -> None:
        """Prepare a discovered sensor for its first evaluation."""
        self._table.grant([name])
        self.arrangement += 1

    @property
    def sensors_in_use(self) -> dict[str, Sensor[Any, Any]]:
        """Name -> sensor: sensors with a config, and discovered ones that were read."""
        free = self._table.free
        return {
            name: each for name, each in self._table.built.items() if name not in free or not each.buffers.before_first
        }

    @property
    def presets(self) -> Presets:
        """Device presets that sensors can be created from, by name, e.g. for a server that offers them."""
        from sensorium.presets import presets

        return presets()

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.engine.num_envs

    @property
    def env_origins(self) -> torch.Tensor:
        """Origin of each environment in the world of its readings, float32 `[env, 3]`, m.

        All values are zero, because each environment is a world with its own origin.
        """
        return torch.zeros((self.num_envs, 3), dtype=torch.float32, device=self.compute.device)

    @property
    def tick(self) -> int:
        """Number of physics steps that the sensors have seen."""
        return self.clock.tick

    @property
    def time(self) -> float:
        """Simulation time at `tick`, seconds."""
        return self.clock.time

    @property
    def is_within_step(self) -> bool:
        """Whether `step` has further ticks to take: callbacks of `watch` then run in the middle of a control step."""
        return self.clock.tick < self._end_of_step

    # Time -------------------------------------------------------------------------------------------------------------

    def capture(self, on: bool) -> None:
        """Turn captured graphs on or off, from the next step on; readings are bit-identical either way.

        Kernel launches are recorded once. With capture on, the kernels between two torch hooks are replayed by a single
        call. Otherwise each is launched separately, which is easier to profile and to debug. A scene starts with
        recorded launches, and captures those that have run often enough to pay (32 times on the CPU). ``capture(True)``
        captures all that have run 4 times, so that it delays no later step. Existing graphs are kept.

        Args:
            on: whether to make and replay graphs; also applies to the engine's kernels.

        Raises:
            SensoriumError: (in the step that makes a graph) a kernel could not be captured; the message names it.
        """
        self.compute.capture = on
        if on:
            self.compute.capture_after = 0
        self.engine.capture(on)

    def begin_control_step(self) -> None:
        """Mark the start of a control step: samples that arrive from now on are new, and latches are cleared.

        `step` calls this itself. The owner of a loop calls it before the ticks of each control step. Without it, each
        `update` is one control step.
        """
        self._own_control_steps = True
        self.clock.begin_control_step()
        self.clock.write()

    @exclusive
    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Take one control step of `substeps` ticks; sensors are sampled whenever they are due.

        Args:
            ctrl: `[env, nu]` or `[nu]`; None keeps `engine.ctrl`.
            substeps: number of ticks with this control, at least 1.

        Raises:
            ScheduleError: the engine is stepped by its owner, `substeps` is not positive, another thread uses the
                scene, or an earlier call was interrupted. The message names the cause and the call to make.
            Exception: the exception raised by a callback of `watch`; the scene is then at the tick of that callback.
        """
        substeps = _ticks(substeps, 1, "Scene.step: substeps", "a control step has at least one tick")
        if self.engine.tick != self.clock.tick:
            raise ScheduleError(
                f"the engine is at tick {self.engine.tick}, the sensors at {self.clock.tick}: call scene.update() "
                "after stepping the engine yourself"
            )
        start = self.clock.tick
        self._end_of_step = end = start + substeps
        try:
            while self.clock.tick < end:
                tick = self.clock.tick
                stops = (watch.next_stop(tick) for watch in self._watches)
                ticks = min(self._schedule.next_due, end, *stops) - tick
                self._guard.changing = "step()"
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
                    self._watches[0].call_all()
        finally:
            self._end_of_step = 0
        self._schedule.report()

    def profile(self, steps: int = 100, ctrl: Any = None, substeps: int = 1) -> Profile:
        """Measure where the time of a step goes: physics, state of the engine, host, and each sensor's kernels.

        The scene advances by these steps and a few more, with a reading of every sensor after each. Every launch runs
        alone on one core and is timed, so that the sum is more than the time of a plain step. Print the result with
        ``rich.print`` for a table with bars.

        Args:
            steps: number of control steps, at least 1.
            ctrl: see `step`.
            substeps: see `step`.

        Raises:
            ScheduleError: see `step`, or `steps` is not positive.
        """
        from sensorium.scene.profile import profile

        return profile(self, _ticks(steps, 1, "Scene.profile: steps", "at least one step is measured"), ctrl, substeps)

    def _was_refused(self) -> None:
        """Clear the mark of a change in progress if the engine refused to step and took no tick."""
        if self.engine.tick == self.clock.tick:
            self._guard.changing = ""

    @exclusive
    def update(
        self,
        dt: float | None = None,
        *,
        ticks: int | None = None,
        force_recompute: bool = False,
        force_compute: bool = False,
    ) -> None:
        """Register ticks taken by the owner of the loop, and sample the due sensors.

        Without `dt` and `ticks`, one tick has passed for wrapped live objects and `TensorEngine`, and the engine's own
        count for engines that step themselves.

        Args:
            dt: seconds since the last call, a float that is a multiple of the engine's time step, such as
                ``update(0.005)``. The integers 0 and 1 are ticks.
            ticks: number of ticks since the last call. 0 evaluates the current sample of sensors without memory again,
                after a `forward()` or an edit, with no new noise and no advance of time. Other sensors hold their
                sample until they are next due, as a device would; `Sensor.info` reports which sensors those are.
            force_recompute: whether to evaluate lazy sensors now.
            force_compute: alias of `force_recompute`.

        Raises:
            ScheduleError: the time is negative, not a multiple of the time step or given twice, an engine that steps
                itself took no ticks, or samples of a sensor with memory are skipped without `allow_gaps`.
        """
        engine, clock = self.engine, self.clock
        counted = engine.tick - clock.tick
        if dt is not None:
            if ticks is not None:
                raise ScheduleError(f"Scene.update: got dt={dt!r} and ticks={ticks!r}: give one of the two.")
            ticks = _passed_ticks(dt, clock, "Scene.update")
            if isinstance(dt, float | np.floating) and ticks and engine.owns_time and not counted:
                raise ScheduleError(
                    f"Scene.update: got {dt:g} s, but the engine took no ticks since the last call. scene.step() "
                    "updates the sensors itself; call update() after engine.step()."
                )
        if ticks is not None:
            ticks = _ticks(ticks, 0, "Scene.update: ticks", "time cannot run backwards")
            if counted not in (0, ticks):
                raise ScheduleError(f"the engine took {counted} ticks, but update(ticks={ticks}) was called")
        else:
            ticks = counted or (0 if engine.owns_time else 1)
        if ticks > 1 and not self.allow_gaps and (names := self._schedule.missed_by(clock.tick + ticks)):
            raise ScheduleError(
                f"a jump of {ticks} ticks misses samples of {listed(names)}, whose readings depend on earlier "
                "ones. Call update() after each tick, or allow it with Scene(..., allow_gaps=True)."
            )
        self._guard.changing = "update()"
        if not counted:  # the owner's simulation took the ticks, not the engine
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
            engine.forward()  # first, so that derived state which lagged by a tick becomes current
            clock.set(clock.tick, SAMPLE, engine.lag)
            self._schedule.sample_again()
            self._committed()
        if force_recompute or force_compute:
            for sensor in self.sensors_in_use.values():
                sensor.ensure_current()
        self._schedule.report()
        if self._watches:
            self._watches[0].call_all()

    def _update_one(self, sensor: Sensor[Any, Any], dt: float, force_recompute: bool) -> None:
        """Register time at one of the sensors: the first such call of a tick advances the scene, the others follow."""
        ticks, (reached, taken, names) = _passed_ticks(dt, self.clock, f"{sensor.name!r}.update"), self._updated
        if sensor.name in names or not reached == self.clock.tick == self.engine.tick:
            self.update(dt)
            if ticks:
                self._updated = (self.clock.tick, ticks, {sensor.name})
        elif ticks == taken:
            names.add(sensor.name)
        elif ticks:
            raise ScheduleError(
                f"{sensor.name!r}.update: got {dt!r}, but {listed(names)} advanced the scene by "
                f"{taken * self.clock.dt:g} s. The sensors of a scene share its clock: update each with the same time, "
                "or call scene.update() once instead."
            )
        if force_recompute:
            sensor.ensure_current()

    def _advance_to(self, tick: int) -> None:
        """Advance to a tick and sample what became due."""
        self._spoil_views()
        self.clock.set(tick, SAMPLE, self.engine.lag)
        is_due = self._schedule.next_due <= tick
        if is_due:
            self._schedule.sample()
        self._guard.changing = ""
        if self._written:
            self._committed()
        if is_due and self.compute.is_cpu:
            self._schedule.report()  # the tick of the sample itself

    def _spoil_views(self) -> None:
        """Fill all returned views with NaN, in a scene with `debug`."""
        if self._context.debug:
            for sensor in self._table.built.values():
                self._written += [f"{sensor.name!r}: {field}" for field in sensor.spoil()]

    def _committed(self) -> None:
        """Record that a call made all its changes, and warn of views that were written into since the last time."""
        self._guard.mark_consistent()
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

    @restoring
    def reset(self, env_ids: Any = None, **state: Any) -> None:
        """Reset environments: first the engine's state, then all state of every sensor; then capture a new sample.

        Args:
            env_ids: int ids, a bool mask, or None for all. A mask on the scene's device is not copied to the host.
            state: values to write after the engine's own reset, e.g. ``qpos=[n, nq]``, ``qvel=[n, nv]``.

        Raises:
            ScheduleError: an earlier call was interrupted, and `env_ids` is not None.
        """
        rows = env_selection(env_ids, self.num_envs, self.compute.device)
        interrupted = self._guard.changing
        if interrupted and rows is not None:
            self._guard.raise_interrupted()
        self._schedule.count_lazy_captures()
        self._guard.changing = interrupted or "reset()"
        try:
            self.engine.reset(rows, state)
        except (KeyError, TypeError, ValueError, ScheduleError):  # the engine refused and changed nothing
            self._guard.changing = interrupted
            raise
        self.engine.refresh()
        if interrupted:
            self._restart()
        self._reset_sensors(rows)
        self._committed()
        self._schedule.report()
        if self._watches:
            self._watches[0].call_all()

    def _restart(self) -> None:
        """Discard the remains of an interrupted call, before all episodes restart or a saved state is loaded."""
        self.clock.set(self.engine.tick, SAMPLE, self.engine.lag)
        for sensor in self._table.built.values():
            sensor.buffers.restart()
            sensor.begin_poses()
        self.arrange()
        self._schedule.count_lazy_captures()

    @exclusive
    @launching
    def _reset_one(self, sensor: Sensor[Any, Any], env_ids: Any) -> None:
        """Restart one sensor in some envs within the current episode; other sensors and envs are not affected."""
        mask = torch.zeros(self.num_envs, dtype=torch.bool, device=self.compute.device)
        mark(mask, env_selection(env_ids, self.num_envs, self.compute.device))
        self._written += [f"{sensor.name!r}: {field}" for field in sensor.spoil()]
        self._schedule.count_lazy_captures()
        self.engine.refresh()
        is_new = self._table.built.get(sensor.name) is not sensor
        self._guard.changing = "add()" if is_new else f"reset() of sensor {sensor.name!r}"
        try:
            self._schedule.reset_one(sensor.buffers, mask)
        except Exception:
            if is_new:  # the scene does not hold it yet, and the clock is unchanged
                self._guard.mark_consistent()
            raise
        self._committed()

    @exclusive
    @launching
    def _retake(self, sensor: Sensor[Any, Any]) -> None:
        """Evaluate the current sample of one sensor again, after a change to it; with memory the sample is held."""
        sensor.expire()
        self._written += [f"{sensor.name!r}: {field}" for field in sensor.spoil()]
        if self.engine.tick == self.clock.tick:
            self._schedule.refresh()
            self._guard.changing = f"a change of sensor {sensor.name!r}"
            self._schedule.sample_again([sensor.buffers])
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
        """Add a sensor between steps; its first sample is captured at once in all envs.

        Raises:
            UnsupportedError: the sensor needs a part of the model that was not prepared; the message names the config
                to reserve.
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
        """Compute a sensor only while it is read, recorded or listened to, as with ``evaluate="wanted"``.

        A sensor is left unchanged if its config sets `evaluate` or allows no other value, if it costs nothing unread,
        or if one of its stages runs at every tick. A sensor that samples its surroundings at every tick, such as a
        lidar, continues to do so at little cost, so that its first scan is complete.

        Returns:
            Whether the sensor is computed on demand from now on.
        """
        sensor = self[name]
        if sensor.cfg.evaluate != "auto" or sensor.is_lazy or sensor.buffers.observers:
            return sensor.buffers.plan.evaluate == "wanted"
        try:
            sensor.cfg.replace(evaluate="wanted")
        except ConfigError:  # this sensor must see every sample
            return False
        with self._rearranging("compute_on_demand()"):
            sensor.buffers.seal(evaluate="wanted")
        return True

    @restoring
    def remove(self, name: str | SensorCfg[Any]) -> None:
        """Remove a sensor; its object and views raise on further use. Other sensors are not affected."""
        full_name = self._table.full_name(name if isinstance(name, str) else name.label)
        with self._rearranging("remove()"):
            self._table.release(full_name, "was removed from its scene")

    def arrange(self) -> None:
        """Sort the sensors by time of evaluation; their programs are rebuilt on the next run."""
        self.arrangement += 1
        self._schedule.arrange(sensor.buffers for sensor in self._table.built.values())

    @contextmanager
    def _rearranging(self, call: str) -> Iterator[None]:
        """Mark the block as a call that changes when sensors are evaluated, and arrange them at its end."""
        interrupted = self._guard.changing
        self._guard.changing = interrupted or call
        yield
        self.arrange()
        self._guard.changing = interrupted

    @exclusive
    def reconfigure(self, name: str | SensorCfg[Any], /, **changes: Any) -> Sensor[Any, Any]:
        """Rebuild one sensor with a changed config between steps; its old views raise on further use.

        Raises:
            ConfigError: the new config has faults, all of which are listed; the old sensor is then unchanged.
        """
        old = self[name]
        (cfg,) = self._table.named([old.cfg.replace(**changes)], without=old.name)
        return self._rebuild(old, cfg)

    @exclusive
    @keeps_current
    @launching
    def _rebuild(self, old: Sensor[Any, Any], cfg: SensorCfg[Any]) -> Sensor[Any, Any]:
        """Build a sensor with another config, and replace the old one by it."""
        self._table.prepare_late(cfg, self.compute.memory)
        new = self._build(cfg)
        self._reset_one(new, None)
        with self._rearranging("reconfigure()"):
            self._table.replace(old, new)
        return new

    # Saving -----------------------------------------------------------------------------------------------------------

    @exclusive
    def state(self) -> dict[str, Any]:
        """Return everything needed to resume bit-identically: ticks, episodes, rings, walks, latches and engine state.

        With a wrapped engine the caller saves the simulation as well, and restores it before calling `load_state`.
        """
        from sensorium.scene.saving import saved_scene

        return saved_scene(self)

    @restoring
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state` into a scene with the same configs; discovered sensors may differ.

        Raises:
            ConfigError: `state` is not the state of a scene, or its seed, `first_env`, sensors or shapes differ.
        """
        from sensorium.scene.saving import fitting_sensors, restore

        interrupted = self._guard.changing
        with launching:
            sensors = fitting_sensors(state, self)
            self._spoil_views()
            self._guard.changing = interrupted or "load_state()"
            if interrupted:
                self._restart()
            restore(state, self, sensors)
            self.arrange()
        self._committed()
        if self._watches:
            self._watches[0].call_all()

    # Outputs ----------------------------------------------------------------------------------------------------------

    def draw(
        self, purpose: str, distribution: Distribution, count: int = 1, env_ids: Any = None, *, each_tick: bool = False
    ) -> torch.Tensor:
        """Return random numbers for starts, controls and the like, float32 `[n, count]`.

        They are a function of the scene's seed, the purpose, the global index and the episode of each environment. They
        are independent of the number of environments, of their place in this scene and of the order of calls.

        Args:
            purpose: use of the numbers, any text; the same purpose gives the same numbers within an episode.
            distribution: `Uniform`, `Normal` or `Choice`.
            count: numbers per environment.
            env_ids: int ids, a bool mask, or None for all.
            each_tick: whether they differ from tick to tick.

        Raises:
            ArgumentError: an argument is invalid, e.g. `env_ids` are not those of environments.
        """
        return draw(self, purpose, distribution, count, env_ids, each_tick)

    @overload
    def observer(
        self,
        *fields: str | ObsTerm,
        truth: bool | str | Iterable[str] = ...,
        replace_inf: float | None = ...,
        history: int = ...,
        stacked: bool = ...,
    ) -> Observer: ...
    @overload
    def observer(
        self,
        *,
        groups: Mapping[str, Sequence[str | ObsTerm]],
        replace_inf: float | None = ...,
        history: int = ...,
        stacked: bool | Collection[str] = ...,
    ) -> ObserverGroups: ...
    def observer(
        self,
        *fields: str | ObsTerm,
        truth: bool | str | Iterable[str] = (),
        groups: Mapping[str, Sequence[str | ObsTerm]] | None = None,
        replace_inf: float | None = None,
        history: int = 0,
        stacked: bool | Collection[str] = False,
    ) -> Observer | ObserverGroups:
        """Return an observer that gathers fields of sensors into one float32 tensor `[env, column]` for a policy.

        Call ``look = scene.observer("imu.ang_vel_b", "scan.distances", truth=("imu.lin_vel_b",), replace_inf=5.0)``
        once, then ``look()`` for each observation. Every call returns a new tensor, which the caller may keep. See
        `Observer` and `ObserverGroups`.

        Args:
            fields: ``"sensor.field"``, ``"sensor"`` for all its fields, or an `ObsTerm`; columns are in this order.
            truth: further fields, taken from the ground truth; their columns follow. True takes all `fields`.
            groups: group -> fields, instead of `fields`; the result of a call is then a dict by group.
            replace_inf: finite value that replaces +inf (and, negated, -inf), e.g. the greatest range of a scan.
            history: number of values of each field, the newest first, where its `ObsTerm` gives none; 0 for the newest
                without a history axis.
            stacked: whether the history is an axis before the columns, `[env, history, column]`; with `groups` also the
                names of the groups to stack. By default the values of each field follow one another in its columns.
        """
        from sensorium.scene.observer import ALONE, Observer, ObserverGroups, Sources, measured_and_true

        plan = {ALONE: measured_and_true(fields, truth)} if groups is None else dict(groups)
        if groups is not None and (fields or truth or not groups):
            fix = (
                "Name the fields in the groups: groups={'policy': [...], 'critic': [..., sn.ObsTerm(..., truth=True)]}."
            )
            raise ConfigError.single(
                "Scene.observer", "groups", list(groups), "groups instead of fields and truth", fix
            )
        axes = (list(plan) if stacked else []) if isinstance(stacked, bool) else stacked
        sources = Sources(self, plan, replace_inf=replace_inf, history=history, stacked=axes)
        return Observer(sources) if groups is None else ObserverGroups(sources)

    def keep_memory(self, memory: TermColumns) -> None:
        """Include the memory of an observer in `state` for as long as the observer exists."""
        self._memories.append(weakref.ref(memory))

    def memories(self) -> dict[str, TermColumns]:
        """Return the memory of all observers that have any, by key; those of equal observers are numbered."""
        self._memories = [each for each in self._memories if each() is not None]
        found: dict[str, TermColumns] = {}
        for memory in filter(None, (each() for each in self._memories)):
            found[f"{memory.key} #{sum(other.key == memory.key for other in found.values())}"] = memory
        return found

    def watch(self, callback: Callable[[], object], *, every_tick: bool = False) -> Watch:
        """Call a function whenever the values shown by sensors may have changed; return the `Watch` to close.

        The callback runs on the thread of the scene's owner. `step` and `update` call it after each advance of the
        scene, once due sensors are sampled, even if none was due. `update(ticks=0)`, `reset` and `load_state` call it
        as well. Adding or removing a sensor does not. All watches are called in the order of their creation. The step
        raises a callback's exception after all were called. The scene is then at the tick of the call, and the rest of
        the control step is not taken. A callback must not step the scene.

        Args:
            callback: function without arguments.
            every_tick: whether `step` stops at every tick instead of only where a sensor is due; `Watch.every_tick`
                changes it later.
        """
        from sensorium.scene.publish import Watch

        return Watch(callback, every_tick, self._watches)

    def sample_cursor(self) -> SampleCursor:
        """Return a record of the samples that one output has taken; every output needs its own.

        Create it once with ``cursor = scene.sample_cursor()``. Then ``cursor.pending(names)`` returns the sensors with
        new samples, at no cost, and ``scene.publish(names, since=cursor)`` takes them. See `SampleCursor`.
        """
        from sensorium.scene.publish import SampleCursor

        return SampleCursor(self)

    def places(self) -> Places:
        """Return a record of the places of sensors on their bodies; every output needs its own."""
        from sensorium.scene.publish import Places

        return Places()

    @exclusive
    def publish(
        self,
        names: Iterable[str] | None = None,
        *,
        since: SampleCursor | None = None,
        envs: slice | None = None,
        truth: bool = True,
        poses: bool = False,
        copy: bool = True,
    ) -> dict[str, Reading]:
        """Copy the current readings of sensors to the host, for other threads, recorders and listeners.

        On CUDA the copies are asynchronous: a reading waits for its own copy on first access.

        Args:
            names: names of the sensors, or one name. None takes those with a config and discovered ones that were read
                before; selecting one by name counts as reading it. ``publish(scene)`` takes all.
            since: cursor of the output: sensors without new samples are omitted, and the others are recorded as taken.
            envs: contiguous environments to copy; None for all.
            truth: whether to copy the ground truth; without it `ground_truth` is empty.
            poses: whether to include the poses of the mounts at the time of capture, see `Reading.pose`. The first such
                call makes the sensors keep poses with each sample, until `forget_poses`. Poses of earlier samples are
                unknown: NaN.
            copy: whether to copy memory on the CPU; without, readings are the sensors' own memory, which the next step
                overwrites.

        Raises:
            ConfigError: `envs` has gaps, or contains environments that do not exist.
        """
        from sensorium.scene.publish import take_reading, without_poses  # imported on use: not all loops have outputs

        rows = env_range(envs, self.num_envs)
        wanted = list(self.sensors_in_use) if names is None else [names] if isinstance(names, str) else list(names)
        if self._table.free:
            self._table.grant(wanted)
        sensors = {name: self[name] for name in (wanted if since is None else since.pending(wanted))}
        if poses and (new := without_poses(sensors.values(), self.engine)):
            self._keep_poses(new, True, "publish(poses=True)")
        out = {}
        for name, sensor in sensors.items():
            with sensor.held():
                out[name] = take_reading(sensor, rows, truth=truth, poses=poses, copy=copy)
            if since is not None:
                since.mark_taken(sensor)
        return out

    def live_sample(self, name: str) -> LiveSample | None:
        """Return a view of the newest samples of a sensor; None if they are not in host memory, or are ragged."""
        sensor = self[name]
        if not sensor.compute_on.is_cpu or any(spec.is_ragged for spec in sensor.specs):
            return None
        from sensorium.scene.publish import LiveSample

        return LiveSample(sensor)

    def sensor_states(self, name: str) -> SensorStates:
        """Return access to the true states of a sensor, such as its bias."""
        from sensorium.scene.states import SensorStates

        return SensorStates(self[name])

    def bodies(self) -> Bodies:
        """Return all bodies of the model: number, name, entity, and the box around its shapes in the body's frame.

        Boxes are in m, and 0 where the engine knows no shapes.
        """
        from sensorium.world.bodies import bodies_of

        return bodies_of(self.engine, "Scene.bodies")

    @exclusive
    def body_poses(self, envs: slice | None = None) -> Array | None:
        """Return the poses of all bodies in the world, a host copy; None if the engine does not provide them.

        Args:
            envs: contiguous environments; None for all.

        Returns:
            float32 `[env, body, 7]`: position (m) and quaternion (w, x, y, z), rows as in `bodies`.

        Raises:
            ConfigError: `envs` has gaps, or contains environments that do not exist.
        """
        rows = env_range(envs, self.num_envs)
        if BODY_POSE not in self.engine.prepared:
            return None
        self.engine.refresh()
        found = [self.engine.array(name) for name in ("body_pos_w", "body_quat_w")]
        if len(rows) < self.num_envs:
            found = [array[rows.start : rows.stop] for array in found]
        return np.concatenate([array.cpu().numpy() for array in found], axis=-1)  # a tenth of torch's time

    def world_file(self) -> bytes:
        """Return the shapes of all bodies with their meshes and height fields, as the contents of an `.npz` file.

        Recordings and viewers show the world by it; see `sensorium.world.bodies`.
        """
        from sensorium.world.bodies import world_file

        return world_file(self.engine)

    @exclusive
    def forget_poses(self, names: Iterable[str] | None = None) -> None:
        """Stop keeping the poses of mounts, for some sensors or all, until `publish` requests them again.

        Sensors that are recorded or have listeners keep theirs.
        """
        wanted = [self[name] for name in (list(self._table.built) if names is None else names)]
        posed = [each for each in wanted if each.buffers.poses is not None and each.buffers.listeners <= 0]
        if posed:
            self._keep_poses(posed, False, "forget_poses()")

    @keeps_current
    @launching
    def _keep_poses(self, sensors: Iterable[Sensor[Any, Any]], on: bool, call: str) -> None:
        with self._rearranging(call):
            for sensor in sensors:
                sensor.keep_poses(on)

    def local_client(self, **options: Any) -> Any:
        """Return a client of this scene in this process: the API of `sensorium.connect`, with data by reference.

        Args:
            options: see `sensorium.local_client`.
        """
        import sensorium  # public name, imported on use: the scene does not depend on packages built upon it

        return sensorium.local_client(self, **options)

    def record(
        self,
        path: str | os.PathLike[str],
        *,
        sensors: Iterable[str | SensorCfg[Any]] | None = None,
        envs: Iterable[int] | None = None,
        ros2: bool | Literal["only"] = False,
        truth: bool = True,
        states: bool = False,
        images: Literal["raw", "png", "jpeg"] = "raw",
        start_ns: int = 0,
    ) -> Recorder:
        """Record every sample from now on in an MCAP file, until the result is closed.

        ``with scene.record("run.mcap"):`` around the steps, and `sensorium.replay` to read the file.

        Args:
            path: the file; an existing one is replaced.
            sensors: names or configs of the sensors; None records those with a config, and discovered ones once they
                are read.
            envs: environments to record; None records all.
            ros2: whether to write standard ROS 2 messages too; ``"only"`` writes nothing else.
            truth: whether to write true values and poses.
            states: whether to write the true states of sensors, such as biases, as readings of ``NAME.states``.
            images: images of 8 bits in ROS 2 messages: raw, or compressed as PNG or JPEG.
            start_ns: date of tick 0, ns since 1970, for exports, and for the messages of ``ros2="only"``; by default
                that of a trajectory, for exports only.

        Raises:
            ConfigError: the file cannot be created, is not a regular file, or is still written by another recording; an
                environment does not exist; the options contradict each other; or the bias of a stage is unknown.
            MissingDependencyError: the extra `record` is not installed.
        """
        import sensorium  # public name, imported on use: the scene does not depend on packages built upon it

        return sensorium.Recorder(
            self, path, sensors=sensors, envs=envs, ros2=ros2, truth=truth, states=states, images=images,
            start_ns=start_ns,
        )  # fmt: skip

    def view(self, *, host: str = "127.0.0.1", port: int = 8080, token: str = "", speed: float = 0.0) -> LiveView:
        """Show the scene in the browser: the robot, the readings of its sensors, plots and controls.

        The result has the page's `url`. The page follows `step`, `update` and `reset`; call its `wait` to serve the
        page while the script has nothing to step. Sensors with ``debug_vis=True`` are drawn, others on request.

        Args:
            host: address to bind to; by default only this machine can open the page.
            port: first port to try; 0 selects any free port.
            token: token that the page's address must have; empty selects a random one if other machines can open the
                page.
            speed: simulated seconds per second of wall-clock time; 0 runs as fast as the loop.

        Raises:
            ConfigError: `speed` is negative or not finite, `host` is not an address of this machine, or the token has
                characters that are not allowed.
            MissingDependencyError: the extra `view` is not installed.
        """
        import sensorium  # public name, imported on use: the scene does not depend on packages built upon it

        return sensorium.LiveView(self, host=host, port=port, token=token, speed=speed)

    def description(self) -> SceneDescription:
        """Return the static description of all sensors, including discovered ones, for recorders and listeners."""
        from sensorium.readings import SceneDescription

        sensors = self._table.describe(self.clock)
        return SceneDescription(self.engine.name, self.engine.dt, self.num_envs, self.seed, sensors, self.first_env)


def _passed_ticks(dt: Any, clock: Clock, what: str) -> int:
    """Return the ticks in a time given as a float, s; the integers 0 and 1 are ticks."""
    if not isinstance(dt, float | np.floating):
        ticks = _ticks(dt, 0, what, "time cannot run backwards")
        if ticks > 1:
            raise ScheduleError(
                f"{what}: got the integer {ticks}, which may mean ticks or seconds. Write update(ticks={ticks}) of the "
                f"scene, or the seconds as a float: update({ticks * clock.dt:g})."
            )
        return ticks
    ticks = round(dt / clock.dt) if 0.0 <= dt < 2**31 * clock.dt else -1
    if ticks < 0 or not math.isclose(dt, ticks * clock.dt, rel_tol=1e-6):  # time steps may be float32 numbers
        raise ScheduleError(
            f"{what}: got {dt} s, expected a multiple >= 0 of the engine's time step of {clock.dt:g} s. Pass "
            "scene.engine.dt after each tick."
        )
    return ticks


def _ticks(value: Any, least: int, what: str, why: str) -> int:
    """Return a validated number of ticks, or raise ScheduleError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        expected = f"an integer of at least {least}, below 2**31"
        raise ScheduleError(f"{what}: got {shown(value)}, expected {expected}: {why}.")
    return int(value)
