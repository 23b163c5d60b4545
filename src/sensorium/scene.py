"""The scene: one engine, its sensors, their schedule. Thin: it decides what is due and calls what does the work."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from sensorium import registry
from sensorium.cfg import SensorCfg
from sensorium.compute import Clock, Compute, Program, Rate, Segment
from sensorium.compute.clock import AGAIN, FIRST, SAMPLE
from sensorium.engines.base import Engine
from sensorium.engines.envs import env_rows
from sensorium.errors import (
    ConfigError,
    DuplicateNameError,
    NonFiniteStateWarning,
    ScheduleError,
    StaleError,
    UnknownNameError,
    UnsupportedError,
    listed,
    shown,
)
from sensorium.measurement.chain import EVERYTHING, ChainTable
from sensorium.readings import Reading, SceneDescription
from sensorium.sensors.base import Sensor, SensorContext
from sensorium.sensors.publish import describe, take_reading
from sensorium.spec import Requirement

if TYPE_CHECKING:
    import mujoco

DataT = TypeVar("DataT")


@dataclass(slots=True)
class _Group:
    """Sensors that are evaluated together."""

    rate: Rate
    sensors: list[Sensor[Any, Any]]
    next_due: int = 0
    program: Program | None = field(default=None, repr=False)
    """Their own program, where they are evaluated on read."""
    table: ChainTable | None = field(default=None, repr=False)
    """What their chain launch works on."""

    def forget(self) -> None:
        """Drop the program; its table need not follow the knobs any more."""
        for sensor in self.sensors:
            sensor.line.tables = [table for table in sensor.line.tables if table is not self.table]
        self.program = self.table = None


class Scene:
    """An engine with sensors. Ready when built: names resolved, memory allocated, the first sample captured at tick 0.

    Args:
        engine: the simulator.
        sensors: their configs; names must be unique.
        seed: seed of every random number. Draws are a pure function of it, of the sensor's name, and of tick, env and
            episode: they do not depend on the other sensors, on the number of envs or on who reads when.
        reserve: configs or requirements to prepare the engine for, so that such sensors can be added later.
        allow_gaps: let `update(ticks=n)` jump over samples of sensors with memory.
        capture: replay the sensor step as captured graphs.

    Raises:
        ConfigError, SelectionError, DuplicateNameError, UnsupportedError: see the messages.
    """

    def __init__(
        self,
        engine: Engine,
        sensors: Iterable[SensorCfg[Any]] = (),
        *,
        seed: int = 0,
        reserve: Iterable[SensorCfg[Any] | Requirement] = (),
        allow_gaps: bool = False,
        capture: bool = False,
    ) -> None:
        if isinstance(sensors, SensorCfg):
            raise ConfigError.single("Scene", "sensors", sensors, "a list of configs", "Write sensors=[cfg].")
        configs = list(sensors)
        self.engine = engine
        self.seed = int(seed)
        self.allow_gaps = allow_gaps
        self._check_names(configs)
        engine.prepare(self._requirements([*configs, *reserve]))
        self.compute = Compute(engine.device, engine.num_envs, capture=capture)
        self.clock = Clock(self.compute, engine.dt_exact)
        self._sensors: dict[str, Sensor[Any, Any]] = {}
        self._groups: list[_Group] = []
        self._program: Program | None = None
        self._lazy = _Group(Rate(1, 1), [])
        self._slow: dict[str, _Group] = {}
        self._own_control_steps = False
        self._checked: int | None = None
        self._reported: set[tuple[str, int]] = set()
        engine.refresh()
        self.clock.set(engine.tick, FIRST, 0)
        self.clock.episode.fill_(-1)
        built = [self._build(cfg) for cfg in configs]
        self._sensors = {sensor.name: sensor for sensor in built}
        self._schedule()
        self._reset_sensors(None)

    def __repr__(self) -> str:
        names = ", ".join(self._sensors) or "no sensors"
        return f"Scene({self.engine!r}, tick={self.clock.tick}, sensors: {names})"

    # Configs and requirements -----------------------------------------------------------------------------------------

    def _check_names(self, configs: Sequence[SensorCfg[Any]], taken: Iterable[str] = ()) -> None:
        seen = set(taken)
        for cfg in configs:
            if not isinstance(cfg, SensorCfg):
                raise ConfigError.single("Scene", "sensors", cfg, "sensor configs such as ImuCfg(...)")
            if cfg.label in seen:
                raise DuplicateNameError(
                    f"{type(cfg).__name__}.name: two sensors are called {cfg.label!r}. Give each a name of its own: "
                    f"{type(cfg).__name__}(name={cfg.label + '_2'!r}, ...)."
                )
            seen.add(cfg.label)

    def _requirements(self, items: Iterable[SensorCfg[Any] | Requirement]) -> dict[Requirement, str]:
        return requirements_of(items, self.engine.supports)

    def _build(self, cfg: SensorCfg[Any]) -> Sensor[Any, Any]:
        sensor_class = registry.sensor_for(type(cfg))
        sensor: Sensor[Any, Any] = sensor_class(cfg, SensorContext(self.engine, self.compute, self.clock, self.seed))
        sensor.check_evaluation()
        sensor._evaluate = self._evaluate_lazy
        sensor._reset_by_scene = self._reset_one
        sensor.set_debug_vis(cfg.debug_vis)
        return sensor

    # Access -----------------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: str) -> Sensor[Any, Any]: ...
    @overload
    def __getitem__(self, key: SensorCfg[DataT]) -> Sensor[Any, DataT]: ...
    def __getitem__(self, key: str | SensorCfg[Any]) -> Sensor[Any, Any]:
        """Return a sensor by name, or, typed, by its config."""
        name = key if isinstance(key, str) else key.label
        if name not in self._sensors:
            raise UnknownNameError("sensor", name, self._sensors)
        return self._sensors[name]

    def __contains__(self, key: str | SensorCfg[Any]) -> bool:
        return (key if isinstance(key, str) else key.label) in self._sensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensors)

    def __len__(self) -> int:
        return len(self._sensors)

    @property
    def sensors(self) -> Mapping[str, Sensor[Any, Any]]:
        """Name -> sensor, in the order they were given."""
        return dict(self._sensors)

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

    # Schedule ---------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Sort the sensors into rate groups; their program is built anew when it is first run."""
        for group in (*self._groups, self._lazy, *self._slow.values()):
            group.forget()
        self._program = None
        groups: dict[Any, _Group] = {}
        self._lazy = _Group(Rate(1, 1), [sensor for sensor in self._lazy.sensors if self._is_in(sensor)])
        self._slow = {name: group for name, group in self._slow.items() if self._is_in(group.sensors[0])}
        for sensor in self._sensors.values():
            evaluation = sensor._evaluation()[0]
            if evaluation == "lazy":
                continue
            key = (sensor.rate, sensor.name if evaluation == "wanted" else None)
            groups.setdefault(key, _Group(sensor.rate, [])).sensors.append(sensor)
        self._groups = list(groups.values())
        for group in self._groups:
            group.next_due = group.rate.next_after(self.clock.tick)
        self._next_due = min((group.next_due for group in self._groups), default=2**62)

    def _is_in(self, sensor: Sensor[Any, Any]) -> bool:
        return self._sensors.get(sensor.name) is sensor and sensor._evaluation()[0] == "lazy"

    def _scheduled(self) -> Program:
        """Return the program of all scheduled sensors, by rate group."""
        if self._program is None:
            groups = enumerate(self._groups)
            self._program = Program([(k, segment) for k, group in groups for segment in self._segments(group)])
        return self._program

    def _segments(self, group: _Group) -> list[Segment]:
        segments, group.table = self._work(group.sensors, self.compute.all_envs)
        return segments

    def _work(self, sensors: Sequence[Sensor[Any, Any]], mask: torch.Tensor) -> tuple[list[Segment], ChainTable]:
        """Return the work of one sample of some sensors in order, with one launch of the chain for all of them."""
        compute = self.compute
        segments = [segment for sensor in sensors for segment in sensor.line.before_chain(mask)]
        fused = [sensor for sensor in sensors if sensor.line.is_fused]
        table = ChainTable(compute, self.clock, [chain for sensor in fused for chain in sensor.line.chain_fields()])
        if table.count:
            segments.append(compute.record(lambda: table.launch(EVERYTHING), mask))
            for sensor in fused:
                sensor.line.tables.append(table)
        segments += [segment for sensor in sensors for segment in sensor.line.after_chain(mask)]
        return segments, table

    # Time -------------------------------------------------------------------------------------------------------------

    def begin_control_step(self) -> None:
        """Say that a control step begins now: what arrives from here on is new, latches start anew.

        `step` does this by itself; who owns the loop calls it before the ticks of one control. Without it each
        `update` is a control step of its own.
        """
        self._own_control_steps = True
        self.clock.control_tick = self.clock.tick

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Take one control step of `substeps` ticks; sensors are sampled whenever they are due in it.

        Args:
            ctrl: `[env, nu]` or `[nu]`; None keeps what `engine.ctrl` holds.
            substeps: ticks under this control, at least 1.

        Raises:
            ScheduleError: the engine is stepped by its owner, or substeps is not positive.
        """
        if substeps < 1:
            raise ScheduleError(f"Scene.step: substeps is {substeps}; a control step has at least one tick")
        if self.engine.tick != self.clock.tick:
            raise ScheduleError(
                f"the engine is at tick {self.engine.tick}, the sensors at {self.clock.tick}: call scene.update() "
                "after stepping the engine by yourself"
            )
        self.clock.control_tick = self.clock.tick
        self._own_control_steps = False
        end = self.clock.tick + substeps
        while self.clock.tick < end:
            ticks = min(self._next_due, end) - self.clock.tick
            self.engine.step(ctrl, ticks)
            ctrl = None
            self._advance_to(self.engine.tick)
        self._report_bad_state()

    def update(self, ticks: int | None = None, *, force_recompute: bool = False, force_compute: bool = False) -> None:
        """Note that the owner of the loop took ticks, and sample what is due.

        Args:
            ticks: ticks since the last call. None means one for wrapped live objects and `TensorEngine`, and what the
                engine has counted for engines that step themselves. 0 evaluates the current sample again after a
                `forward()` or an edit: no new noise, no new history entry, no time.
            force_recompute: evaluate lazy sensors now.
            force_compute: alias of `force_recompute`.

        Raises:
            ScheduleError: negative ticks, or a jump over samples of a sensor with memory without `allow_gaps`.
        """
        engine, clock = self.engine, self.clock
        if ticks is not None and ticks < 0:
            raise ScheduleError(f"Scene.update: ticks is {ticks}; time does not run backwards")
        if engine.tick == clock.tick:  # the engine did not count: the owner's simulation did
            if ticks is None:
                ticks = 0 if engine.owns_time else 1
            self._check_gap(clock.tick + ticks)
            engine.count_ticks(ticks)
        elif ticks is not None and engine.tick - clock.tick != ticks:
            raise ScheduleError(
                f"the engine took {engine.tick - clock.tick} ticks, but update(ticks={ticks}) was called"
            )
        else:
            self._check_gap(engine.tick)
        new_tick = engine.tick
        if new_tick == clock.tick:
            self._again()
        else:
            clock.skipped += new_tick - clock.tick - 1
            if not self._own_control_steps:
                clock.control_tick = clock.tick
            self._advance_to(new_tick)
        if force_recompute or force_compute:
            for sensor in self._sensors.values():
                sensor._ready()
        self._report_bad_state()

    def _check_gap(self, new_tick: int) -> None:
        jump = new_tick - self.clock.tick
        if jump <= 1 or self.allow_gaps:
            return
        for group in self._groups:
            missed = group.rate.next_after(group.next_due) <= new_tick or group.next_due < new_tick
            if group.next_due <= new_tick and missed:
                names = [sensor.name for sensor in group.sensors if sensor.line.has_memory]
                if names:
                    raise ScheduleError(
                        f"a jump of {jump} ticks misses samples of {listed(names)}, whose readings depend on earlier "
                        "ones. Call update() after each tick, or allow it with Scene(..., allow_gaps=True)."
                    )

    def _advance_to(self, tick: int) -> None:
        """Move to a tick and sample what became due."""
        clock, lag = self.clock, self.engine.lag
        clock.set(tick, SAMPLE, lag)
        if self._next_due > tick:
            return
        self.engine.refresh()
        due = [False] * len(self._groups)
        for k, group in enumerate(self._groups):
            if group.next_due > tick:
                continue
            group.next_due = group.rate.next_after(tick)
            first = group.sensors[0]
            if first.cfg.evaluate == "wanted":
                if not (first.wanted or first.listeners):
                    continue
                first.wanted = False
            due[k] = True
            for sensor in group.sensors:
                if sensor.line.ring is not None:
                    sensor.line.ring.advance()
                sensor.note_capture(tick, lag)
        self._scheduled().run(due)
        if self.compute.is_cpu:
            self._report_bad_state()  # the tick of the sample itself
        self._next_due = min(group.next_due for group in self._groups)

    def _again(self) -> None:
        """Evaluate the current sample anew: no noise, no history entry, no time."""
        clock = self.clock
        clock.set(clock.tick, AGAIN, self.engine.lag)
        self.engine.forward()
        self._scheduled().run(
            [any(each.samples and each._last_tick == clock.tick for each in group.sensors) for group in self._groups]
        )
        for sensor in self._sensors.values():  # where it is the first sample, that fills histories and delay lines
            if sensor.first_at == clock.tick and not sensor.is_pure:
                with self._starting(sensor.first_tick == clock.tick):
                    sensor.line.restore(self.compute.reset_envs)
                    self._capture_reset(sensor)

    @contextmanager
    def _starting(self, mask: torch.Tensor) -> Iterator[None]:
        """In this block, the envs of a bool mask start at this tick; outside, their episode goes on."""
        clock = self.clock
        resets = clock.reset_tick.clone()
        self.compute.reset_envs.copy_(mask)
        clock.reset_tick.copy_(torch.where(mask, clock.tick, resets))
        clock.set(clock.tick, FIRST, self.engine.lag)
        try:
            yield
        finally:
            clock.reset_tick.copy_(resets)
            clock.set(clock.tick, SAMPLE, self.engine.lag)

    def _evaluate_lazy(self, sensor: Sensor[Any, Any]) -> None:
        """Bring a lazy sensor up to date before it is read; all lazy sensors that were ever read go together."""
        if sensor._evaluation_kind() != "lazy" or sensor._evaluated == self.clock.version:
            return
        engine, clock = self.engine, self.clock
        if engine.owns_time and engine.tick != clock.tick:
            raise StaleError(
                f"the engine is at tick {engine.tick}, the sensors at {clock.tick}: call scene.update() after stepping "
                f"the engine by yourself, before reading {sensor.name!r}"
            )
        group = self._lazy if sensor.is_pure else self._slow.setdefault(sensor.name, _Group(sensor.rate, [sensor]))
        if sensor not in group.sensors:
            self._lazy.forget()
            group = self._lazy = _Group(Rate(1, 1), [*self._lazy.sensors, sensor])
        wanted = [each.note_lazy(clock.tick, engine.lag) for each in group.sensors]
        for each in group.sensors:
            each._evaluated = clock.version
        if any(wanted):
            engine.refresh()
            if group.program is None:
                group.program = Program([(0, segment) for segment in self._segments(group)])
            group.program.run()
        self._report_bad_state()

    # Reset ------------------------------------------------------------------------------------------------------------

    def reset(self, env_ids: Any = None, **state: Any) -> None:
        """Reset environments: the engine's state, then every stateful part of every sensor, then capture anew.

        Args:
            env_ids: int ids, a bool mask, or None for all.
            state: what to write after the engine's own reset, e.g. ``qpos=[n, nq]``, ``qvel=[n, nv]``.
        """
        rows = env_rows(env_ids, self.num_envs, self.compute.device)
        for sensor in self._sensors.values():
            if sensor.is_pure:
                sensor.note_lazy(self.clock.tick, self.engine.lag)
        self.engine.reset(rows, state)
        self.engine.refresh()
        self._reset_sensors(rows)
        self._report_bad_state()

    def _reset_one(self, sensor: Sensor[Any, Any], env_ids: Any) -> None:
        """Start one sensor anew for some envs, in the episode that is under way. The others do not notice."""
        rows = env_rows(env_ids, self.num_envs, self.compute.device)
        mask = torch.zeros(self.num_envs, dtype=torch.bool, device=self.compute.device)
        mask[slice(None) if rows is None else rows] = True
        if sensor.is_pure:
            sensor.note_lazy(self.clock.tick, self.engine.lag)
        self.engine.refresh()
        with self._starting(mask):
            self._begin(sensor)

    def _reset_sensors(self, rows: torch.Tensor | None) -> None:
        compute, clock = self.compute, self.clock
        if rows is None:
            compute.reset_envs.fill_(1)
        else:
            compute.reset_envs.zero_()
            compute.reset_envs[rows] = 1
        clock.set(self.engine.tick, FIRST, self.engine.lag)
        clock.begin_episode(compute.reset_envs)
        for key in [key for key in self._reported if rows is None or key[1] in rows.tolist()]:
            self._reported.discard(key)
        for sensor in self._sensors.values():
            self._begin(sensor)
        clock.set(clock.tick, SAMPLE, self.engine.lag)

    def _begin(self, sensor: Sensor[Any, Any]) -> None:
        """Start a sensor anew for the envs of the reset mask, and capture it for them."""
        mask = self.compute.reset_envs
        with self.compute.masked(mask):
            sensor.line.begin_episode()
            if sensor.line.hooks.reset is not None:
                sensor.line.hooks.reset(mask)
        sensor.note_reset(mask)
        sensor._evaluated = -1
        if not sensor.is_pure:
            self._capture_reset(sensor)

    def _capture_reset(self, sensor: Sensor[Any, Any]) -> None:
        """Capture a sensor for the envs of the reset mask; hooks in Python see all envs, so the others are kept."""
        program = sensor.at_reset
        if program is None:
            program = sensor.at_reset = Program(
                [(0, each) for each in self._work([sensor], self.compute.reset_envs)[0]]
            )
        if not sensor.line.needs_protection():
            program.run()
            return
        tensors = sensor.line.protected()
        kept = [tensor.clone() for tensor in tensors]
        program.run()
        inside = self.compute.reset_envs > 0
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.copy_(torch.where(inside.reshape(-1, *(1,) * (tensor.dim() - 1)), tensor, before))

    # Sensors at run time ----------------------------------------------------------------------------------------------

    def add(self, cfg: SensorCfg[DataT]) -> Sensor[Any, DataT]:
        """Add a sensor between steps; it is captured at once for all envs.

        Raises:
            UnsupportedError: it needs something of the model that was not prepared; the message says what to reserve.
        """
        self._check_names([cfg], self._sensors)
        needed = self._requirements([cfg])
        for requirement, name in needed.items():
            if requirement not in self.engine.prepared:
                raise UnsupportedError(
                    name,
                    requirement,
                    self.engine.name,
                    f"the model was prepared without it. Reserve it: Scene(..., reserve=[{type(cfg).__name__}(...)]).",
                )
        sensor = self._build(cfg)
        self._sensors[sensor.name] = sensor
        self._schedule()
        self._reset_one(sensor, None)
        return sensor

    def remove(self, name: str | SensorCfg[Any]) -> None:
        """Remove a sensor; its object and views raise when used from then on. The others do not notice."""
        sensor = self[name]
        del self._sensors[sensor.name]
        sensor.retire("was removed from its scene")
        self._schedule()

    def reconfigure(self, name: str | SensorCfg[Any], /, **changes: Any) -> Sensor[Any, Any]:
        """Rebuild one sensor with a changed config, between steps; old views of it raise when used.

        Raises:
            ConfigError: every fault of the new config; the old sensor then stays as it was.
        """
        old = self[name]
        cfg = old.cfg.replace(**changes)
        if cfg.label != old.name:
            self._check_names([cfg], (other for other in self._sensors if other != old.name))
        for requirement, label in self._requirements([cfg]).items():
            if requirement not in self.engine.prepared:
                raise UnsupportedError(
                    label, requirement, self.engine.name, "the model was prepared without it. Reserve it at the start: "
                    f"Scene(..., reserve=[{type(cfg).__name__}(...)]).",
                )  # fmt: skip
        new = self._build(cfg)
        self._sensors = {
            (new.name if each is old else label): (new if each is old else each)
            for label, each in self._sensors.items()
        }
        old.retire("was reconfigured")
        self._schedule()
        self._reset_one(new, None)
        return new

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume bit-identically: ticks, episodes, rings, walks, latches, engine state.

        For wrapped engines the caller saves and restores the simulation, before `load_state`.
        """
        clock = self.clock
        return {
            "tick": clock.tick,
            "skipped": clock.skipped,
            "control_tick": clock.control_tick,
            "own_control_steps": self._own_control_steps,
            "lag": self.engine.lag,
            "episode": clock.episode.clone(),
            "reset_tick": clock.reset_tick.clone(),
            "seed": self.seed,
            "engine": self.engine.state(),
            "sensors": {
                name: {"tensors": {k: v.clone() for k, v in sensor.tensors().items()}, "counters": sensor.counters()}
                for name, sensor in self._sensors.items()
            },
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, into a scene with the same sensors.

        Raises:
            ConfigError: seed, sensors or shapes differ.
        """
        if state["seed"] != self.seed:
            raise ConfigError.single("Scene", "seed", self.seed, f"{state['seed']}, the seed of the saved state")
        if set(state["sensors"]) != set(self._sensors):
            raise ConfigError.single(
                "Scene", "sensors", list(self._sensors), f"the sensors of the saved state: {listed(state['sensors'])}"
            )
        if state["episode"].shape != self.clock.episode.shape:
            raise ConfigError.single("Scene", "engine.num_envs", self.num_envs, f"{len(state['episode'])}, as saved")
        for name, sensor in self._sensors.items():
            saved = state["sensors"][name]["tensors"]
            for key, tensor in sensor.tensors().items():
                if not key.startswith("knob/") and (key not in saved or saved[key].shape != tensor.shape):
                    raise ConfigError.single(
                        f"{type(sensor.cfg).__name__}({name!r})", key, shown(tuple(tensor.shape)),
                        f"shape {tuple(saved[key].shape) if key in saved else 'none'}, as saved",
                        "Use the same config.",
                    )  # fmt: skip
        clock = self.clock
        self.engine.load_state(state["engine"])
        clock.episode.copy_(state["episode"])
        clock.reset_tick.copy_(state["reset_tick"])
        clock.set(state["tick"], SAMPLE, state["lag"])
        clock.skipped, clock.control_tick = state["skipped"], state["control_tick"]
        self._own_control_steps = state["own_control_steps"]
        for name, sensor in self._sensors.items():
            sensor.load(state["sensors"][name]["tensors"], state["sensors"][name]["counters"])
        self._schedule()

    # Outputs ----------------------------------------------------------------------------------------------------------

    def publish(self, names: Iterable[str] | None = None, *, only_new: bool = False) -> dict[str, Reading]:
        """Copy what sensors show now to the host, for other threads, recorders and listeners.

        On CUDA the copies are asynchronous: a reading waits for its own copy when it is first looked at.

        Args:
            names: sensors wanted; None takes all.
            only_new: leave out sensors that have captured nothing since their last publication.
        """
        wanted = list(self._sensors) if names is None else list(names)
        out = {}
        for name in wanted:
            sensor = self[name]
            if only_new and sensor.published == sensor.samples_now():
                continue
            sensor.published = sensor.samples_now()
            out[name] = take_reading(sensor)
        return out

    def description(self) -> SceneDescription:
        """Return what a recorder or listener needs to know once."""
        sensors = {name: describe(sensor) for name, sensor in self._sensors.items()}
        return SceneDescription(self.engine.name, self.engine.dt, self.num_envs, self.seed, sensors)

    # Health -----------------------------------------------------------------------------------------------------------

    def _report_bad_state(self) -> None:
        """Name env, body and tick of non-finite engine state, once per sensor and env until its next reset."""
        if not self.compute.is_cpu:  # reading the flag makes the host wait: at most once a control step
            if self._checked == self.clock.control_tick:
                return
            self._checked = self.clock.control_tick
        if not self.clock.take_bad():
            return
        passed = True
        for sensor in self._sensors.values():
            flags = (sensor.line.bad == 1).nonzero().tolist()
            passed = passed and not flags
            for env, mount in flags:
                if (sensor.name, env) in self._reported:
                    continue
                self._reported.add((sensor.name, env))
                body = sensor.mount.body_names[mount] if sensor.mount is not None else "?"
                warnings.warn(
                    f"sensor {sensor.name!r}: the engine's state is not finite in env {env}, body {body!r}, at tick "
                    f"{self.clock.tick}; its samples are marked invalid until the state is finite again "
                    f"(reset env {env})",
                    NonFiniteStateWarning,
                    stacklevel=3,
                )
        if passed:
            warnings.warn(
                f"the engine's state was not finite for a moment between the control steps at ticks "
                f"{self.clock.control_tick} and {self.clock.tick}; the samples of that moment are marked invalid",
                NonFiniteStateWarning,
                stacklevel=3,
            )


def requirements_of(
    items: Iterable[SensorCfg[Any] | Requirement], supports: Callable[[Requirement], str | None]
) -> dict[Requirement, str]:
    """Return what configs need of an engine, each with the name of the first sensor that asks."""
    needed: dict[Requirement, str] = {}
    for item in items:
        if isinstance(item, Requirement):
            needed.setdefault(item, "(reserved)")
            continue
        for requirement in registry.sensor_for(type(item)).requirements(item, supports):
            needed.setdefault(requirement, item.label)
    return needed


def prepare(spec: mujoco.MjSpec, sensors: Iterable[SensorCfg[Any] | Requirement]) -> mujoco.MjSpec:
    """Add to an mjSpec what sensors need of the model, before you compile it yourself; returns the same spec.

    What is added is hidden from the names that sensors can be mounted on.
    """
    from sensorium.engines.mujoco_spec import prepare_spec

    prepare_spec(spec, requirements_of(sensors, lambda requirement: None))
    return spec
