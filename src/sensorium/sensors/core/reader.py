"""Interface of every sensor for its readers, independent of the measured quantity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch

from sensorium.compute import MAX_TICKS, Rate
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, StaleError, UnknownNameError
from sensorium.measurement.buffers import SensorBuffers
from sensorium.measurement.counter import NEVER
from sensorium.measurement.plan import is_recorded
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg, SensorCfg, SimpleSensorCfg
from sensorium.measurement.transport import DelayRing
from sensorium.sensors.core.parts import Params, SensorContext, SensorInfo, declared
from sensorium.spec import FieldSpec, kind_of
from sensorium.world.mount import MountView

CfgT = TypeVar("CfgT", bound=SensorCfg[Any])
DataT = TypeVar("DataT")


OMITTED = {
    "cfg_class", "data_class", "derived_values", "ensure_current", "ensure_shown", "has_arrived", "held",
    "is_initialized", "is_lazy", "is_retired", "nbytes", "next_change", "own_history", "own_tensors", "packaged",
    "retire", "set_bias", "set_delay", "set_jitter", "set_noise", "set_random_walk", "set_resolution", "spoil",
}  # fmt: skip
"""Public members that `dir` omits: those for scenes and outputs, and aliases."""


class Readable(Generic[CfgT, DataT]):
    """A sensor as seen by readers. `Sensor` derives from it and allocates the memory."""

    single: ClassVar[bool]
    uses_ring_pipeline: ClassVar[bool]
    own_history: ClassVar[bool] = False
    """Whether `history_length` applies to fields with their own history axis; `.history` is then not available."""
    data_class: ClassVar[type[Any]]

    derived_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "age": {"unit": "s", "low": 0.0}, "valid": {"kind": "flag"}, "is_new": {"kind": "flag"},
    }  # fmt: skip
    """Properties, and methods without required arguments, that observers offer beside the fields, with what their
    `FieldSpec` says."""

    buffers: SensorBuffers
    specs: tuple[FieldSpec, ...]
    """Fields as returned to readers."""
    mount_specs: list[FieldSpec]
    """Fields as laid out in the sensor's memory, always with a mount axis."""
    _truth_view: tuple[DataT, dict[str, torch.Tensor]]
    _measured_view: tuple[DataT, dict[str, torch.Tensor]]

    def __init__(self, cfg: CfgT, context: SensorContext) -> None:
        self.cfg, self.name = cfg, cfg.label
        self.__dict__["data_class"] = cfg.data_class or self.data_class
        self._field_names, self._constant_names = declared(cast(type, self.data_class))
        self.__dict__["uses_ring_pipeline"] = self.uses_ring_pipeline  # fixed now: the memory layout depends on it
        self.engine, self.compute_on, self.clock = context.engine, context.compute, context.clock
        self._context = context
        self.rate = Rate.of(self.clock.dt_exact, cfg.update_period, cfg.rate_hz, self.name)
        if self.rate.period > MAX_TICKS:
            field = "update_period" if cfg.rate_hz is None else "rate_hz"
            expected = f"a period of at most {MAX_TICKS} ticks of {self.clock.dt:g} s"
            raise ConfigError.single(cfg.title, field, getattr(cfg, field), expected, "Sample more often.")
        self.mount: MountView | None = None
        self._mount_axis = False
        self.params = Params(cfg, self.num_envs, self.device)
        """Values of the config for hooks; values that were set per env are tensors."""
        self.notes: dict[str, str] = {}
        """Choices made by the sensor, for `info`; filled in `setup`."""
        self._stale: str | None = None
        self._seen_version = -1
        """`Clock.version` at the last read of `data`; -1 where it must be repeated."""
        self._lent: dict[bool, tuple[Any, dict[str, torch.Tensor]]] | None = {} if context.debug else None
        """In a scene with `debug`: copies returned since time last advanced, measured (True) and true, with their
        contents."""

    # Reading ----------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._stale:
            return f"<{type(self).__name__} {self.name!r}: {self._stale}>"
        fields = ", ".join(f"{s.name}[{','.join(('env', *s.axes))}] {s.unit}" for s in self.specs)
        rate = 1.0 / (self.clock.dt * self.rate.period)
        where = f" on {', '.join(self.mount.names)}" if self.mount is not None else ""
        return f"<{type(self).__name__} {self.name!r}{where}, {self.num_envs} env(s), {rate:g} Hz: {fields}>"

    def __dir__(self) -> list[str]:
        """Return what readers use: without the hooks of authors, aliases and the methods that scenes call."""
        kinds = [base for base in type(self).__mro__ if base is not object]
        core = {name for base in kinds if base.__module__.startswith("sensorium.sensors.core") for name in vars(base)}
        own = {name for base in kinds for name in vars(base)} - core
        names = {"name", "cfg", *self._constant_names, *own, *vars(Readable)} - OMITTED
        return sorted(name for name in names if not name.startswith("_") and not name.isupper())

    @property
    def constants(self) -> dict[str, Any]:
        """Fields of the data class that are not tensors, e.g. names; each is an attribute of this object."""
        return {name: copy(getattr(self, name)) for name in self._constant_names}

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.compute_on.num_envs

    @property
    def num_instances(self) -> int:
        """Number of sensors per env times number of environments."""
        return self.num_envs * (self.mount.count if self.mount is not None else 1)

    @property
    def device(self) -> str:
        """Torch device of all data."""
        return self.compute_on.device

    @property
    def is_retired(self) -> bool:
        """Whether the sensor was removed from its scene or replaced; any use of it raises."""
        return self._stale is not None

    @property
    def is_initialized(self) -> bool:
        """Always true: a built sensor is ready to use."""
        return True

    def ensure_current(self, *, is_measured: bool = False) -> None:
        """Bring the ground truth (or the measured data as well) up to date, as every read does.

        Raises:
            StaleError: the sensor is retired, or the engine was stepped without the scene.
        """
        if self._stale:
            raise StaleError(f"sensor {self.name!r} {self._stale}; get it again: scene[{self.name!r}]")
        buffers = self.buffers
        buffers.wanted = True
        if buffers.group is not None:
            buffers.group.ensure_current()
        if is_measured and self._seen_version != self.clock.version:
            if buffers.late is not None:
                buffers.late.read()
            self._seen_version = self.clock.version

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within this block, which is for outputs, reads take no sample that waits for a read of the user.

        They show the sample of the last read, and the first one of an episode; see `SensorPlan.is_on_access`.
        """
        group = self.buffers.group
        if self._stale or group is None or not self.buffers.plan.is_on_access:
            yield
            return
        group.show()
        before = group.version, self._seen_version, self._lent
        group.version, self._lent = self.clock.version, None
        try:
            yield
        finally:
            group.version, self._seen_version, self._lent = before

    def ensure_shown(self, *, is_measured: bool = False) -> None:
        """Bring the values up to date as `ensure_current` does, for an output; see `held`."""
        if self.buffers.plan.is_on_access:
            with self.held():
                self.ensure_current(is_measured=is_measured)
        else:
            self.ensure_current(is_measured=is_measured)

    @property
    def data(self) -> DataT:
        """Measured sample that has arrived at the reader: live views `[env, ...]`, valid until the next step.

        The views are the sensor's own memory. Do not write into them; `read()` returns a copy. A sensor without
        imperfections, delay or history keeps one sample, so its `data` and `ground_truth` share memory.
        """
        version, buffers = self.clock.version, self.buffers
        if self._seen_version != version:  # otherwise already read at this instant
            group = buffers.group
            if group is None or group.read_version != version or buffers.late is not None or self._stale:
                self.ensure_current(is_measured=True)
        return self._visible(is_measured=True)[0]

    @property
    def ground_truth(self) -> DataT:
        """True sample at the newest capture: live views without delay or imperfections.

        As with `data`, do not write into them; `read_ground_truth()` returns a copy.
        """
        self.ensure_current()
        return self._visible(is_measured=False)[0]

    def own_tensors(self, *, is_measured: bool) -> dict[str, torch.Tensor]:
        """Return field -> tensor of the sensor's memory behind `data` (or `ground_truth`), `[env, ...]`.

        Their addresses never change.
        """
        return (self._measured_view if is_measured else self._truth_view)[1]

    def _visible(self, *, is_measured: bool) -> tuple[DataT, dict[str, torch.Tensor]]:
        """Return the data for readers and its tensors: in a scene with `debug` copies, which `spoil` overwrites."""
        if self._lent is None:
            return self._measured_view if is_measured else self._truth_view
        if is_measured not in self._lent:
            own = self.own_tensors(is_measured=is_measured)
            shown, kept = ({name: value.clone() for name, value in own.items()} for _ in range(2))
            self._lent[is_measured] = (self.packaged(shown), shown), kept
        return cast("tuple[DataT, dict[str, torch.Tensor]]", self._lent[is_measured][0])

    def spoil(self) -> list[str]:
        """Overwrite outdated returned views in a scene with `debug`.

        Floats become NaN, integers the least value, bytes 255, and flags are inverted.

        Returns:
            Fields that a reader wrote into, such as ``"data.lin_acc_b"``.
        """
        written: list[str] = []
        lent = self._lent or {}
        for is_measured, ((_, shown), kept) in lent.items():
            for name, tensor in shown.items():
                if not torch.equal(*(each.contiguous().view(torch.uint8) for each in (tensor, kept[name]))):
                    branch = "data" if is_measured else "ground_truth"
                    written.append(branch if self.single else f"{branch}.{name}")
                if tensor.is_floating_point():
                    tensor.fill_(math.nan)
                elif tensor.dtype == torch.bool:
                    tensor.logical_not_()
                else:
                    ends = torch.iinfo(tensor.dtype)
                    tensor.fill_(ends.min or ends.max)
        lent.clear()
        return written

    def read(self, env_ids: Any = None, *, envs_idx: Any = None) -> DataT:
        """Return a copy of `data` for some envs (None: all), shape `[n, ...]`.

        Args:
            env_ids: int ids, bool mask or None.
            envs_idx: alias of `env_ids`.

        Raises:
            ConfigError: both `env_ids` and `envs_idx` are given.
        """
        self.ensure_current(is_measured=True)
        return self._copy(self._visible(is_measured=True)[1], env_ids, envs_idx)

    def read_ground_truth(self, env_ids: Any = None, *, envs_idx: Any = None) -> DataT:
        """Return a copy of `ground_truth` for some envs (None: all), shape `[n, ...]`; arguments as for `read`."""
        self.ensure_current()
        return self._copy(self._visible(is_measured=False)[1], env_ids, envs_idx)

    def _copy(self, tensors: Mapping[str, torch.Tensor], env_ids: Any, envs_idx: Any) -> DataT:
        if envs_idx is not None:
            if env_ids is not None:
                raise ConfigError.single("read", "envs_idx", envs_idx, "no value beside env_ids", "Keep one of them.")
            env_ids = envs_idx
        rows = env_rows(env_ids, self.num_envs, self.device)
        return self.packaged({k: v.clone() if rows is None else v[rows] for k, v in tensors.items()})

    def _late_ring(self) -> DelayRing | None:
        """Return the updated ring where `data` may be older than the newest sample, otherwise None."""
        self.ensure_current(is_measured=True)
        return self.buffers.late

    @property
    def history(self) -> DataT:
        """Last `history_length` samples `[env, history, ...]`, 0 = newest, undelayed, one per capture (a copy).

        Until the history is full, the oldest entries repeat the first sample; see `history_valid`.
        """
        self.ensure_current()
        length = self.cfg.history_length
        if self.own_history:
            fix = "Read its own fields: " + ", ".join(spec.name for spec in self.specs if "history" in spec.name) + "."
            expected = "a sensor that stores whole samples"
            raise ConfigError.single(self.cfg.title, "history_length", length, expected, fix)
        if length == 0 or self.buffers.ring is None:
            fix = f"Give history_length=..., or scene.reconfigure({self.name!r}, history_length=...)."
            raise ConfigError.single(self.cfg.title, "history_length", 0, "a length of at least 1", fix)
        ring = self.buffers.ring
        return self.packaged({s.name: self._squeeze(ring.history(s.name, length), 2) for s in self.mount_specs})

    @property
    def history_valid(self) -> torch.Tensor:
        """Bool [env, history]: whether an entry is a sample of this episode; False for repetitions of the first one."""
        length = self.cfg.history_length
        return torch.arange(length, device=self.device)[None] < self.frame[:, None]

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], number of captures since the env's reset; the capture at the reset is number 1."""
        self.ensure_current()
        return self.buffers.counter.frame

    @property
    def capture_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the value in `data` was captured."""
        ring = self._late_ring()
        return self.buffers.counter.newest_tick if ring is None else ring.shown_stamp.clone()

    @property
    def truth_tick(self) -> torch.Tensor:
        """int64 [env], tick of the newest capture, to which `ground_truth` belongs."""
        self.ensure_current()
        return self.buffers.counter.newest_tick

    @property
    def capture_time(self) -> torch.Tensor:
        """float64 [env], time at which the value in `data` was captured, s."""
        return self.capture_tick.to(torch.float64) * self.clock.dt

    @property
    def stamp(self) -> torch.Tensor:
        """float64 [env], time stamp of the value in `data` by the sensor's own clock, s.

        It equals `capture_time`, unless the config's stages contain a `ClockError`.
        """
        run = self.buffers.own_clock
        return self.capture_time if run is None else run.cfg.stamps(self.capture_tick, run.states, run.key)

    @property
    def age(self) -> torch.Tensor:
        """float64 [env], age of the value in `data`, s."""
        return (self.clock.tick - self.capture_tick).to(torch.float64) * self.clock.dt

    @property
    def valid(self) -> torch.Tensor:
        """Bool [env]: whether the shown sample has arrived and the engine's state was finite at its capture.

        Where the simulator replaced a non-finite state, samples are invalid until the env is reset.
        """
        ring = self._late_ring()
        return (self.buffers.bad == 0).all(dim=1) if ring is None else ring.shown_valid > 0

    @property
    def is_new(self) -> torch.Tensor:
        """Bool [env]: whether the shown sample arrived during the current control step."""
        ring = self._late_ring()
        arrival = self.buffers.counter.arrival_tick if ring is None else ring.shown_arrival
        return arrival > self.clock.control_tick

    @property
    def is_lazy(self) -> bool:
        """Whether samples are computed on first read, because no reader can notice it or because the config says so."""
        return self.buffers.plan.is_lazy or self.buffers.plan.is_on_access

    @property
    def next_change(self) -> int:
        """First tick after this one at which a sample is due or a delayed one may arrive, as far as the host can tell.

        Between these ticks, shown values stay the same.
        """
        tick = self.clock.tick
        return min(self.rate.next_after(tick), self._next_arrival(tick))

    def _next_arrival(self, after: int) -> int:
        ring = self.buffers.late
        if ring is None:
            return NEVER
        older = 0 if getattr(self.engine, "fresh", True) else 1  # the state of a sample is one tick old
        return self.buffers.counter.next_arrival(after, ring.soonest - older, ring.latest)

    def has_arrived(self, since: int) -> bool:
        """Whether a delayed sample of any env arrived after tick `since` and up to now.

        On CUDA, where the host does not read the device: whether one may have arrived.
        """
        ring = self.buffers.late
        if ring is None or self._next_arrival(since) > self.clock.tick:
            return False
        if not self.compute_on.is_cpu:
            return True
        self.ensure_current(is_measured=True)
        return bool((ring.shown_arrival.numpy() > since).any())

    @property
    def info(self) -> SensorInfo:
        """Facts about the built sensor: its fields, mounts and memory, when it is evaluated and why."""
        mounts, bodies = (self.mount.names, self.mount.body_names) if self.mount is not None else ((), ())
        rate_hz, (evaluation, why) = 1.0 / (self.clock.dt * self.rate.period), self.buffers.plan.evaluation
        return SensorInfo(self.specs, mounts, bodies, self.nbytes, rate_hz, evaluation, why, self.notes)

    @property
    def nbytes(self) -> int:
        """Memory of this sensor, bytes."""
        return self.buffers.nbytes + (self.mount.nbytes if self.mount is not None else 0)

    # Knobs at run time ------------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a knob of the config at run time, for some envs (None: all); other envs keep their values.

        Args:
            knob: ``noise``, ``bias``, ``random_walk``, ``resolution``, a density, ``delay``, ``jitter``, ``loss``, or a
                knob with a prefix such as ``gyro_noise``. ``"bias.ang_vel_b"`` is that of one field.
            value: an amount as in the config, an array of `[n]`, `[n, 1]` or `[n, ...]` amounts for n envs, or a
                mapping from field to amounts. An array `[n]` for n axes is ambiguous and refused.
            env_ids: int ids, bool mask or None.

        Raises:
            UnknownNameError: the knob or field does not exist.
            ConfigError: the knob is absent from the config, or the value does not fit.
        """
        self.ensure_shown()
        rows = env_rows(env_ids, self.num_envs, self.device)
        fix = f"use scene.reconfigure({self.name!r}, {knob}=...)."
        if knob in ("delay", "jitter", "loss"):
            ring = self.buffers.ring
            if ring is None or getattr(self.buffers.plan.cfg, knob) is None:
                fix = f"Absent knobs have no memory: {fix}"
                raise ConfigError.single(self.cfg.title, knob, value, "a knob that is set in the config", fix)
            ring.set(knob, value, rows)
        elif self._is_param(knob):
            self._set_param(knob, value, rows)
        elif knob in self.params.tables:
            fix = f"None disables its effect: {fix}"
            raise ConfigError.single(self.cfg.title, knob, value, "a number that the config gives", fix)
        else:
            self.buffers.knobs.set(knob, value, rows)

    def _is_param(self, name: str) -> bool:
        """Whether a name is a number of the config that hooks read through `params`."""
        if name in self.params.tables:
            return getattr(self.cfg, name) is not None
        field = type(self.cfg).model_fields.get(name)
        standard = name in SimpleSensorCfg.model_fields or name in MountedSensorCfg.model_fields
        return field is not None and not standard and field.annotation in (float, int)

    def _set_param(self, name: str, value: Any, rows: torch.Tensor | None) -> None:
        title, hooks = self.cfg.title, self.buffers.plan.hooks
        is_replayed = any(
            each and is_recorded(each) for each in (hooks.raw, hooks.fused, hooks.transform, hooks.physics)
        )
        if is_replayed and name not in self.params.tables:
            fix = f"Use scene.reconfigure({self.name!r}, {name}=...)."
            raise ConfigError.single(title, name, value, "a parameter that this sensor's kernels read at run time", fix)
        if name not in self.params.tables | self.params.used:  # they read the config, which stays as it is
            fix = f"Read self.params.{name} in hooks, or use scene.reconfigure({self.name!r}, {name}=...)."
            raise ConfigError.single(title, name, value, "a parameter that the sensor's hooks read through params", fix)
        try:
            values = torch.as_tensor(value, dtype=torch.float32, device=self.device).reshape(-1, 1)
        except (TypeError, ValueError, RuntimeError):
            fix = f"To turn it off, use scene.reconfigure({self.name!r}, {name}=None)." if value is None else ""
            raise ConfigError.single(title, name, value, "a number, or one for each environment", fix) from None
        for end in {float(values.min()), float(values.max())}:
            self.cfg.replace(**{name: end})  # runs the config's own checks
        count = self.num_envs if rows is None else len(rows)
        if values.shape[0] not in (1, count):
            raise ConfigError.single(title, name, value, f"one number, or {count} of them")
        self.params.rows(name)[slice(None) if rows is None else rows] = values

    def get(self, knob: str, env_ids: Any = None) -> torch.Tensor:
        """Return the current values of a knob, as drawn at the last reset or set: a copy, float32 `[n, ...]`.

        Args:
            knob: name as for `set`. A knob that several fields have needs the field: ``"bias.ang_vel_b"``. The state of
                a stage has the name of its kind and its own: ``"scale_error.scale_ang_vel_b"``.
            env_ids: int ids, bool mask or None for all.

        Returns:
            Amounts in the unit of the config: `[n]` for a delay, a jitter, a loss or a number of the config, and the
            shape of the field (a rotation vector for a rotation) for a knob with an amount per column.

        Raises:
            UnknownNameError: the knob or field does not exist.
            ConfigError: the knob is absent from the config, is drawn for each sample, or several fields have it.
        """
        self.ensure_shown()
        rows, ring = env_rows(env_ids, self.num_envs, self.device), self.buffers.ring
        head, _, tail = knob.partition(".")
        stages = {kind_of(type(run.cfg)): run.states for run in self.buffers.stages}
        if knob in ("delay", "jitter", "loss"):
            if ring is None or getattr(self.buffers.plan.cfg, knob) is None:
                raise ConfigError.single(self.cfg.title, knob, None, "a knob that is set in the config")
            values = ring.get(knob)
        elif head in stages and tail:
            if tail not in stages[head]:
                raise UnknownNameError(f"state of the stage {head!r}", tail, stages[head])
            values = stages[head][tail].clone()
        elif self._is_param(knob):
            number = self.params.per_env.get(knob)
            full = torch.full((self.num_envs,), float(getattr(self.cfg, knob)), device=self.device)
            values = full if number is None else number[:, 0].clone()
        else:
            values = self._squeeze(self.buffers.knobs.get(knob))
        return values if rows is None else values[rows]

    def set_noise(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("noise", ...)``."""
        self.set("noise", value, env_ids)

    def set_bias(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("bias", ...)``."""
        self.set("bias", value, env_ids)

    def set_random_walk(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("random_walk", ...)``."""
        self.set("random_walk", value, env_ids)

    def set_resolution(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("resolution", ...)``."""
        self.set("resolution", value, env_ids)

    def set_delay(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("delay", ...)``."""
        self.set("delay", value, env_ids)

    def set_jitter(self, value: Any, env_ids: Any = None) -> None:
        """Alias of ``set("jitter", ...)``."""
        self.set("jitter", value, env_ids)

    def reset(self, env_ids: Any = None) -> None:
        """Reset this sensor alone in some envs (None: all) and capture a new sample.

        Authors implement `reset_state` instead.
        """
        if self._stale:
            self.ensure_current()
        self._context.reset(self, env_ids)

    def update(self, dt: float, force_recompute: bool = False, *, force_compute: bool = False) -> None:
        """Register time that the owner of the loop has simulated, where it updates its sensors instead of the scene.

        The sensors of a scene share its clock. The first sensor updated after a tick advances the scene; the calls of
        the other sensors follow it and must give the same time.

        Args:
            dt: seconds since the last call, as for `Scene.update`.
            force_recompute: whether to evaluate the sensor now if it is evaluated on read.
            force_compute: alias of `force_recompute`.

        Raises:
            ScheduleError: as for `Scene.update`, or another sensor was updated by another time.
        """
        if self._stale:
            self.ensure_current()
        self._context.update(self, dt, force_recompute or force_compute)

    # Views ------------------------------------------------------------------------------------------------------------

    def _squeeze(self, tensor: torch.Tensor, axis: int = 1) -> torch.Tensor:
        return tensor.squeeze(axis) if self.mount is not None and not self._mount_axis else tensor

    def packaged(self, values: Mapping[str, torch.Tensor]) -> DataT:
        """Build the data object; fields that were not requested are None."""
        if self.single:
            return cast(DataT, next(iter(values.values())))
        tensors = {name: values.get(name) for name in self._field_names}
        return cast(DataT, self.data_class(**tensors, **self.constants))

    def _view(self, record: Record | Mapping[str, torch.Tensor]) -> tuple[DataT, dict[str, torch.Tensor]]:
        shown = {name: self._squeeze(view) for name, view in record.items()}
        return self.packaged(shown), {spec.name: shown[spec.name] for spec in self.specs}

    def retire(self, why: str) -> None:
        """Make this object raise on any use. Tensors that it returned keep their values."""
        self._stale, self._seen_version = why, -1
