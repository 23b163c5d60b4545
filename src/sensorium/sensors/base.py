"""The author's contract: what a sensor class writes, and what every sensor offers to its readers.

One object is one config: all its mounts in all environments. Config and sensor pair by the type parameters when the
class is defined: ``class Imu(SimpleSensor[ImuCfg, ImuData])``. Inside a sensor the mount axis is always there; a
singular selector squeezes it in `.data`, `.ground_truth`, `.read` and `.history` only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin

import torch

from sensorium import registry
from sensorium.cfg import MountedSensorCfg, SensorCfg, SimpleSensorCfg
from sensorium.compute import Program, Rate
from sensorium.engines.base import Engine
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, RegistrationError, SensoriumError, StaleError
from sensorium.measurement.pipeline import Hooks, Line
from sensorium.measurement.record import TORCH_DTYPES, Record, Timeline
from sensorium.measurement.stages import ClockError, StageKey
from sensorium.readings import DebugShape
from sensorium.sensors.parts import (
    ODD,
    DeclaredEngine,
    HookError,
    Params,
    SensorContext,
    SensorInfo,
    StaleTensor,
    blame,
    declared_constants,
    declared_fields,
    unwritten,
)
from sensorium.spec import Field, FieldSpec, Requirement, resolve_field
from sensorium.world.mount import MountView
from sensorium.world.select import resolve_mounts

CfgT = TypeVar("CfgT", bound=SensorCfg[Any])
DataT = TypeVar("DataT")

Supports = Callable[[Requirement], str | None]
"""A function telling why a requirement cannot be given; None where it can."""


class Sensor(Generic[CfgT, DataT]):
    """Base of every sensor. Derive from `SimpleSensor`, or from here for full control with `compute`.

    Full control: `compute(truth, measured)` fills both records in one go; post-processing, delay and history still
    follow. With `uses_ring_pipeline = False` nothing is allocated: `compute` gets two empty records and `outputs`
    returns the data.
    """

    requires: ClassVar[tuple[Requirement, ...]] = ()
    """What the sensor needs of the engine; see `requirements` where that depends on the config."""
    lookback: ClassVar[int] = 0
    """Deepest k that a hook reads with `timeline.at(k)`; it sizes the timelines."""
    single: ClassVar[bool] = False
    """True where the data class has one field and `.data` is that tensor itself."""
    uses_ring_pipeline: ClassVar[bool] = True
    """False where `compute` keeps its own memory."""
    checks_state: ClassVar[bool] = False
    """True where the sensor's own kernel flags non-finite state in `line.bad`; else NaN in truth is looked for."""
    knob_prefixes: ClassVar[Mapping[str, str]] = {}
    """Short prefix -> field, e.g. ``{"gyro": "ang_vel_b"}``: knobs may be written `gyro_noise`."""

    cfg_class: ClassVar[type[SensorCfg[Any]]]
    data_class: ClassVar[type[Any]]
    _reset_hook: ClassVar[Callable[..., object] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in cls.__dict__:  # the author's hook; readers keep `reset(env_ids)`
            cls._reset_hook = cls.__dict__["reset"]
            del cls.reset
        simple = globals().get("SimpleSensor")
        has_post = simple is not None and getattr(cls, "post_process", None) not in (None, simple.post_process)
        if has_post and cls.intermediate_fields is Sensor.intermediate_fields:
            raise RegistrationError(
                f"{cls.__qualname__} defines post_process without intermediate_fields. The intermediate buffer is "
                "distinct from what readers see: define intermediate_fields(self) as well (return self.fields() where "
                "they coincide)."
            )
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin = get_origin(base)
            if not (isinstance(origin, type) and issubclass(origin, Sensor)):
                continue
            args = get_args(base)
            if len(args) == 2 and all(isinstance(arg, type) and arg is not Any for arg in args):
                cls._pair(*args)

    @classmethod
    def _pair(cls, cfg_class: type, data_class: type) -> None:
        if not issubclass(cfg_class, SensorCfg):
            raise RegistrationError(f"{cls.__qualname__}: {cfg_class.__name__} is no SensorCfg")
        if not dataclasses.is_dataclass(data_class):
            raise RegistrationError(f"{cls.__qualname__}: {data_class.__name__} is no dataclass")
        cls.cfg_class, cls.data_class = cfg_class, data_class
        fields = declared_fields(data_class)
        constants = declared_constants(data_class)
        if constants and cls.constants is Sensor.constants:
            raise RegistrationError(
                f"{data_class.__qualname__}.{constants[0]} has no Field: write Annotated[Tensor, Field(unit=..., ...)],"
                f" or let {cls.__qualname__}.constants return its value"
            )
        if cls.single and len(fields) != 1:
            raise RegistrationError(
                f"{cls.__qualname__} is `single`, but {data_class.__name__} has {len(fields)} fields"
            )
        registry.pair(cfg_class, cls)

    @classmethod
    def requirements(cls, cfg: CfgT, supports: Supports) -> Iterable[Requirement]:
        """Return what this config needs of an engine; by default `requires`."""
        return cls.requires

    def __init__(self, cfg: CfgT, context: SensorContext) -> None:
        self.cfg = cfg
        self.__dict__["uses_ring_pipeline"] = self.uses_ring_pipeline  # read once: memory is made by it
        self.name = cfg.label
        self.engine, self.compute_on, self.clock = context.engine, context.compute, context.clock
        self._context = context
        self._engine_array = context.engine.array
        self.rate = Rate.of(self.clock.dt_exact, cfg.update_period, cfg.rate_hz, self.name)
        self.mount: MountView | None = None
        self._mount_axis = False
        if isinstance(cfg, MountedSensorCfg):
            names, frames = resolve_mounts(cfg, self.engine)
            self._mount_axis = cfg.is_plural
            self.mount = MountView(
                self.engine, self.compute_on, self.clock, names, frames, cfg.offset, lambda: self.line.bad
            )
        self._key: StageKey | None = None
        self.params = Params(cfg)
        """The config's values, for hooks: those that were set per env are tensors."""
        self._stale: str | None = None
        self._allocate()
        before = set(vars(self))
        self.setup()
        made = set(vars(self)) - before
        self.samples = 0
        """Captures on the grid so far, the same for all envs."""
        self._frame_base = torch.full((self.num_envs,), -1, dtype=torch.int64, device=self.device)
        self._last_tick, self._last_lag, self._last_skipped = self.clock.tick, 0, self.clock.skipped
        self.first_tick = torch.full_like(self._frame_base, self.clock.tick)
        """int64 [env], tick of this sensor's own last reset: its first capture, off the grid."""
        self.first_at = self.clock.tick
        """The greatest of these, on the host."""
        self._evaluated = -1
        self._read_version = -1
        self._kind: str | None = None
        self.wanted = True
        """Whether somebody read this sensor since its last due tick (counts for ``evaluate="wanted"``)."""
        self.listeners = 0
        """Number of recorders and listeners that want every sample."""
        self._evaluate: Callable[[Sensor[Any, Any]], None] = lambda sensor: None
        self._reset_by_scene: Callable[[Sensor[Any, Any], Any], None] = lambda sensor, ids: None
        self._debug_vis = False
        self.at_reset: Program | None = None
        """The scene's program for capturing this sensor at a reset."""
        self.published = -1
        """`samples_now()` at the last publication."""
        self.base_attributes = frozenset(vars(self)) - made
        """Names of the attributes that are not the author's own."""

    # What an author writes --------------------------------------------------------------------------------------------

    def fields(self) -> Mapping[str, Field]:
        """Return the fields of this config; by default all that the data class declares.

        Override where shapes, or which fields are computed at all, depend on the config.
        """
        return declared_fields(self.data_class)

    def setup(self) -> None:
        """Prepare what this sensor keeps, once, when it is built: states (`new_state`), index arrays, constants."""

    def constants(self) -> Mapping[str, Any]:
        """Return the fields of the data class that are no tensors and the same at every sample, e.g. names (JSON-able).

        It is called when the sensor is built, before `setup`.
        """
        return {}

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the fields of the pipeline's own space, where `post_process` projects out of it."""
        return self.fields()

    def compute(self, truth: Record, measured: Record) -> None:
        """Fill the true and the measured record, once per due tick for all mounts and envs (full control)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither compute nor update_raw_data")

    def outputs(self, is_measured: bool) -> Mapping[str, torch.Tensor]:
        """Return the data of a sensor with `uses_ring_pipeline = False`, `[env, mount, ...]` per field."""
        raise NotImplementedError(f"{type(self).__name__} has uses_ring_pipeline = False and must define outputs")

    def reset(self, env_ids: Any = None) -> None:
        """Reset this sensor alone for some envs (all for None) and capture anew.

        A sensor class that defines `reset(self, env_mask)` thereby gets a hook: it is called with the uint8 [env] mask
        of envs whose episode begins, before they are captured, and must set the sensor's own states of these envs.
        """
        if self._stale:
            self._ready()
        self._reset_by_scene(self, env_ids)

    def debug_draw(self) -> Iterable[DebugShape]:
        """Return plain shapes for a viewer: points, lines, arrows, frames."""
        return ()

    def notes(self) -> Mapping[str, str]:
        """Return what the sensor decided by itself, for `info`."""
        return {}

    def body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the body whose state is not finite, where `line.bad[env, mount]` says so."""
        return self.mount.body_names[mount] if self.mount is not None else "?"

    def new_state(self, name: str, shape: tuple[int, ...] = ()) -> torch.Tensor:
        """Return a float32 state `[env, *shape]` of the sensor's own that resets to zero and is saved and restored.

        Use it for everything that must survive from one sample to the next.
        """
        return self.line.new_state(name, shape)

    @property
    def key(self) -> StageKey:
        """Random tensors and times of the sample, for hooks in torch: ``self.key.normal("dust", "distance")``."""
        if self._key is None:
            specs = self.line.mid_specs
            self._key = StageKey(
                self.compute_on,
                self.clock,
                seed=self._context.seed,
                label=self.name,
                stage="sensor",
                period=self.clock.dt * self.rate.period,
                columns={spec.name: spec.columns for spec in specs},
                field_index={spec.name: k for k, spec in enumerate(specs)},
            )
        return self._key

    def stream(self, purpose: str) -> tuple[int, int]:
        """Return the two key words of a random stream of this sensor, for a kernel that draws by itself."""
        from sensorium.random import stream_key

        return stream_key(self._context.seed, self.name, purpose)

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _hooks(self) -> Hooks:
        return Hooks(
            compute=self.compute,
            post=self._own("post_process"),
            reset=self._own_reset(),
            lookback=self.lookback,
            checks_state=self.checks_state,
        )

    def _own_reset(self) -> Callable[[torch.Tensor], object] | None:
        hook = type(self)._reset_hook
        return None if hook is None else cast(Callable[[torch.Tensor], object], hook.__get__(self))

    def _own(self, name: str) -> Callable[..., Any] | None:
        """Return a hook where the class overrides it."""
        for base in (Sensor, SimpleSensor):
            if name in base.__dict__ and getattr(type(self), name, None) in (None, base.__dict__[name]):
                return None
        return cast("Callable[..., Any] | None", getattr(self, name, None))

    def _specs(self, fields: Mapping[str, Field]) -> list[FieldSpec]:
        mounts = self.mount.count if self.mount is not None else None
        return [resolve_field(name, annotation, mounts) for name, annotation in fields.items()]

    def _allocate(self) -> None:
        order = list(declared_fields(self.data_class))
        fields = self.fields()
        self._full_specs = self._specs(fields)
        unknown = [name for name in fields if name not in order]
        if unknown:
            raise RegistrationError(
                f"{type(self).__name__}.fields() names {unknown[0]!r}, not in {self.data_class.__name__}"
            )
        self.specs = tuple(spec if self._mount_axis else spec.squeezed() for spec in self._full_specs)
        """The fields as a reader sees them."""
        hooks = self._hooks()
        mid = self._specs(self.intermediate_fields()) if hooks.post else self._full_specs
        index = {name: k for k, name in enumerate([*order, *(s.name for s in mid if s.name not in order)])}
        simple = self.cfg if isinstance(self.cfg, SimpleSensorCfg) else SimpleSensorCfg[Any](
            name=self.name, history_length=self.cfg.history_length
        )  # fmt: skip
        if not self.uses_ring_pipeline:
            knobs = (
                "history_length",
                "delay",
                "jitter",
                "loss",
                "noise",
                "bias",
                "random_walk",
                "resolution",
                "stages",
            )
            refused = [knob for knob in knobs if getattr(simple, knob)]
            if refused:
                raise ConfigError.single(
                    f"{type(self.cfg).__name__}({self.name!r})", refused[0], getattr(simple, refused[0]), "it absent",
                    f"{type(self).__name__} keeps its own memory and cannot honour it.",
                )  # fmt: skip
        specs = self._full_specs if self.uses_ring_pipeline else []
        self.line = Line(
            self.compute_on, self.clock, simple, self.rate, hooks, specs, mid if self.uses_ring_pipeline else [], index,
            self.mount.count if self.mount is not None else 1, self._context.seed, self.knob_prefixes,
        )  # fmt: skip
        if self.uses_ring_pipeline:
            ring = self.line.ring
            self._truth_view = self._view(self.line.truth_out)
            shown = ring.shown if ring is not None and ring.shown is not None else self.line.work_out
            self._measured_view = self._view(shown)

    def try_hooks(self) -> None:
        """Run every hook of a sample once, for nothing, so that a fault shows when the scene is built.

        The scene does this with sensors that are not ours; else a lazy one would fail at its first read only. Hooks
        get the arrays that the sensor requires and no others.

        Raises:
            HookError: a hook raises, reads what is not required, or leaves a field of the raw record unwritten.
        """
        owner = f"sensor {self.name!r} ({type(self).__qualname__}{self._origin()})"
        line, engine = self.line, self.engine
        guard = cast(Engine, DeclaredEngine(engine, type(self).requirements(self.cfg, engine.supports), owner))
        self._lend(guard)
        try:
            for hook, records in ((line.hooks.raw, 1), (line.hooks.fused, 2), (line.hooks.compute, 2)):
                if hook is not None:
                    self._try_raw(hook, records, owner)
            for segment in line.before_chain(self.compute_on.all_envs):
                segment.run()
            for is_measured in (True, False) if not self.uses_ring_pipeline else ():
                self._check_outputs(self.outputs(is_measured), owner)
        except SensoriumError:
            raise
        except Exception as error:
            raise HookError(
                f"{owner}: {blame(error, type(self))} {type(error).__name__}: {error}. The record is {line.truth!r}, "
                "[env, mount, ...]; what is written must have these shapes.",
                "shapes_and_dtypes",
            ) from error
        finally:
            self._lend(engine)

    def _origin(self) -> str:
        plugin = registry.plugin_of(type(self))
        return f", {plugin}" if plugin else ""

    def _lend(self, engine: Engine) -> None:
        self.engine = engine
        if self.mount is not None:
            self.mount._engine = engine

    def _try_raw(self, hook: Callable[..., object], records: int, owner: str) -> None:
        """Call the hook that makes the truth on records full of an odd number, and see whether it goes away."""
        line = self.line
        given = (line.truth, line.slot)[:records]
        for record in given:
            for view in record.tensors():
                if view.dtype in ODD:
                    view.fill_(ODD[view.dtype])
        timeline = (line.slot_timeline,) if hook == line.hooks.fused else ()
        result = hook(*given, *timeline)
        for record, what in zip(given, ("raw", "slot") if timeline else ("truth", "measured"), strict=False):
            left = [name for name, view in record.items() if view.numel() and _is_odd(view)]
            if left:
                what = "raw" if records == 1 else what
                raise HookError(f"{owner}: {unwritten(hook, what, left[0], result)}", "raw_is_written_in_place")

    def _check_outputs(self, outputs: Mapping[str, torch.Tensor], owner: str) -> None:
        for spec in self._full_specs:
            shape, value = (self.num_envs, *spec.shape), outputs.get(spec.name)
            if value is None or tuple(value.shape) != shape or value.dtype != TORCH_DTYPES[spec.dtype]:
                got = "nothing" if value is None else f"{tuple(value.shape)} {value.dtype}"
                raise HookError(
                    f"{owner}: outputs()[{spec.name!r}] is {got}, expected {shape} {spec.dtype}, [env, mount, ...].",
                    "shapes_and_dtypes",
                )

    def _squeeze(self, tensor: torch.Tensor, axis: int = 1) -> torch.Tensor:
        return tensor.squeeze(axis) if self.mount is not None and not self._mount_axis else tensor

    def _package(self, values: Mapping[str, torch.Tensor]) -> DataT:
        """Build the data object; fields that were not asked for are None."""
        if self.single:
            return cast(DataT, next(iter(values.values())))
        tensors = {name: values.get(name) for name in declared_fields(self.data_class)}
        return cast(DataT, self.data_class(**tensors, **self.constants()))

    def _view(self, record: Record) -> DataT:
        return self._package({name: self._squeeze(view) for name, view in record.items()})

    # What a reader sees -----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self._stale:
            return f"<{type(self).__name__} {self.name!r}: {self._stale}>"
        fields = ", ".join(f"{s.name}[{','.join(('env', *s.axes))}] {s.unit}" for s in self.specs)
        rate = 1.0 / (self.clock.dt * self.rate.period)
        where = f" on {', '.join(self.mount.names)}" if self.mount is not None else ""
        return f"<{type(self).__name__} {self.name!r}{where}, {self.num_envs} env(s), {rate:g} Hz: {fields}>"

    __str__ = __repr__

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.compute_on.num_envs

    @property
    def num_instances(self) -> int:
        """Sensors per env times environments."""
        return self.num_envs * (self.mount.count if self.mount is not None else 1)

    @property
    def device(self) -> str:
        """Torch device of all data."""
        return self.compute_on.device

    @property
    def is_initialized(self) -> bool:
        """Always true: a built sensor is ready."""
        return True

    def _ready(self) -> None:
        if self._stale:
            raise StaleError(f"sensor {self.name!r} {self._stale}; take it anew: scene[{self.name!r}]")
        self.wanted = True
        self._evaluate(self)

    @property
    def data(self) -> DataT:
        """The measured sample as it arrives at a reader now: live views, `[env, ...]`, valid until the next step."""
        self._ready()
        if not self.uses_ring_pipeline:
            return self._package({k: self._squeeze(v) for k, v in self.outputs(is_measured=True).items()})
        self._read_ring()
        return self._measured_view

    @property
    def ground_truth(self) -> DataT:
        """The true sample at the newest capture: live views, undelayed, never altered by an imperfection."""
        self._ready()
        if not self.uses_ring_pipeline:
            return self._package({k: self._squeeze(v) for k, v in self.outputs(is_measured=False).items()})
        return self._truth_view

    def _read_ring(self) -> None:
        ring = self.line.ring
        if ring is not None and ring.has_delay and self._read_version != self.clock.version:
            ring.read()
            self._read_version = self.clock.version

    def read(self, env_ids: Any = None) -> DataT:
        """Return a copy of `data` for some envs (all for None), shape `[n, ...]`."""
        return self._copy(self.data, env_ids)

    def read_ground_truth(self, env_ids: Any = None) -> DataT:
        """Return a copy of `ground_truth` for some envs (all for None), shape `[n, ...]`."""
        return self._copy(self.ground_truth, env_ids)

    def _copy(self, data: DataT, env_ids: Any) -> DataT:
        rows = env_rows(env_ids, self.num_envs, self.device)
        values: dict[str, Any] = {"": data} if self.single else {s.name: getattr(data, s.name) for s in self.specs}
        return self._package({k: v.clone() if rows is None else v[rows] for k, v in values.items()})

    @property
    def history(self) -> DataT:
        """The last `history_length` samples `[env, history, ...]`, 0 = newest, undelayed, one per capture (a copy).

        Before there were as many, the oldest entries repeat the first sample; see `history_valid`.
        """
        self._ready()
        length = self.cfg.history_length
        if length == 0 or self.line.ring is None:
            raise ConfigError.single(
                f"{type(self.cfg).__name__}({self.name!r})", "history_length", 0, "a length of at least 1",
                f"Give history_length=..., or scene.reconfigure({self.name!r}, history_length=...).",
            )  # fmt: skip
        ring = self.line.ring
        return self._package({s.name: self._squeeze(ring.history(s.name, length), 2) for s in self._full_specs})

    @property
    def history_valid(self) -> torch.Tensor:
        """Bool [env, history]: whether an entry is a sample of this episode and not a repetition of the first."""
        length = self.cfg.history_length
        return torch.arange(length, device=self.device)[None] < self.frame[:, None]

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], captures since the env's reset; the one at the reset is number 1."""
        self._ready()
        return self.samples - self._frame_base

    def _undelayed_tick(self) -> torch.Tensor:
        return torch.where(self.first_tick >= self._last_tick, self.first_tick, self._last_tick - self._last_lag)

    @property
    def capture_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the value in `data` was sensed."""
        self._ready()
        ring = self.line.ring
        if ring is not None and ring.has_delay:
            self._read_ring()
            return ring.shown_stamp.to(torch.int64)
        return self._undelayed_tick()

    @property
    def truth_tick(self) -> torch.Tensor:
        """int64 [env], tick of the newest capture, which `ground_truth` belongs to."""
        self._ready()
        return self._undelayed_tick()

    @property
    def capture_time(self) -> torch.Tensor:
        """float64 [env], time at which the value in `data` was sensed, s."""
        return self.capture_tick.to(torch.float64) * self.clock.dt

    @property
    def stamp(self) -> torch.Tensor:
        """float64 [env], time that the sensor's own clock gave the value in `data`, s.

        That is `capture_time`, unless the config's stages have a `ClockError`.
        """
        ticks = self.capture_tick
        for run in self.line.stages:
            if isinstance(run.cfg, ClockError):
                return run.cfg.stamps(ticks, run.states.views, run.key)
        return ticks.to(torch.float64) * self.clock.dt

    @property
    def age(self) -> torch.Tensor:
        """float64 [env], how old the value in `data` is, s."""
        return (self.clock.tick - self.capture_tick).to(torch.float64) * self.clock.dt

    @property
    def valid(self) -> torch.Tensor:
        """Bool [env]: the shown sample has arrived, and the engine's state was finite when it was captured."""
        self._ready()
        ring = self.line.ring
        if ring is not None and ring.has_delay:
            self._read_ring()
            return ring.shown_valid > 0
        return (self.line.bad == 0).all(dim=1)

    @property
    def is_new(self) -> torch.Tensor:
        """Bool [env]: the shown sample arrived during the current control step."""
        self._ready()
        ring = self.line.ring
        if ring is not None and ring.has_delay:
            self._read_ring()
            return ring.shown_arrival > self.clock.control_tick
        return self.first_tick.clamp(min=self._last_tick) > self.clock.control_tick

    @property
    def is_lazy(self) -> bool:
        """Whether samples are computed on first read: where that cannot be noticed, or where the config says so."""
        return self._evaluation()[0] == "lazy"

    def _evaluation(self) -> tuple[str, str]:
        mode = self.cfg.evaluate
        memory = self.line.has_memory
        if mode == "always":
            return "eager", 'evaluate="always"'
        if mode == "wanted":
            return "wanted", 'evaluate="wanted"'
        if mode == "on_read":
            return "lazy", 'evaluate="on_read"'
        if memory:
            return (
                "eager",
                "a sample depends on earlier ones (delay, history, walk, stage, state, lookback or post-process)",
            )
        if not self.rate.every_tick:
            return "eager", "it is not due at every tick"
        return "lazy", "due at every tick and without memory"

    @property
    def is_pure(self) -> bool:
        """Whether its sample is computed on read, from the present alone: nothing to keep, nothing to start."""
        return self._evaluation_kind() == "lazy" and self.rate.every_tick

    def _evaluation_kind(self) -> str:
        if self._kind is None:
            self._kind = self._evaluation()[0]
        return self._kind

    def samples_now(self) -> int:
        """Return a number that changes with every capture: the tick where the sensor is lazy, else its samples."""
        return self.clock.version if self._evaluation_kind() == "lazy" else self.samples

    def check_evaluation(self) -> None:
        """Raise `ConfigError` where ``evaluate="on_read"`` would change numbers, or a stage cannot see all ticks."""
        if self.cfg.evaluate == "on_read" and self.line.has_memory:
            raise ConfigError.single(
                f"{type(self.cfg).__name__}({self.name!r})", "evaluate", "on_read", "'auto' or 'always'",
                "Samples of this sensor depend on earlier ones, so none may be skipped.",
            )  # fmt: skip
        self.line.check_observers()

    @property
    def info(self) -> SensorInfo:
        """What the sensor resolved to, what it costs, whether it is lazy and why."""
        evaluation, why = self._evaluation()
        mount = self.mount
        return SensorInfo(
            specs=self.specs,
            mounts=mount.names if mount is not None else (),
            bodies=mount.body_names if mount is not None else (),
            nbytes=self.nbytes,
            rate_hz=1.0 / (self.clock.dt * self.rate.period),
            evaluation=evaluation,
            why=why,
            notes=self.notes(),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return self.line.nbytes + (self.mount.nbytes if self.mount is not None else 0)

    # Run-time knobs ---------------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a knob that the config gives, for some envs (all for None); others keep theirs.

        Args:
            knob: ``noise``, ``bias``, ``random_walk``, ``resolution``, a density, ``delay``, ``jitter``, ``loss`` or
                one with a prefix such as ``gyro_noise``.
            value: an amount as in the config, `[n, ...]` amounts for n envs, or a mapping from field to these.
            env_ids: int ids, bool mask or None.

        Raises:
            UnknownNameError: no such knob or field.
            ConfigError: the knob is absent from the config, or the value does not fit.
        """
        self._ready()
        rows = env_rows(env_ids, self.num_envs, self.device)
        if knob in ("delay", "jitter", "loss"):
            ring = self.line.ring
            if ring is None or getattr(self.line.cfg, knob) is None:
                raise ConfigError.single(
                    f"{type(self.cfg).__name__}({self.name!r})", knob, value, "a knob that the config gives",
                    f"Absent knobs take no memory: use scene.reconfigure({self.name!r}, {knob}=...).",
                )  # fmt: skip
            ring.set(knob, value, rows)
            return
        if self._is_param(knob):
            self._set_param(knob, value, rows)
            return
        self.line.knobs.set(knob, value, rows)

    def _is_param(self, name: str) -> bool:
        """Whether a name is a number of the config that hooks read through `params`."""
        field = type(self.cfg).model_fields.get(name)
        standard = name in SimpleSensorCfg.model_fields or name in MountedSensorCfg.model_fields
        return field is not None and not standard and field.annotation in (float, int)

    def _set_param(self, name: str, value: Any, rows: torch.Tensor | None) -> None:
        title = f"{type(self.cfg).__name__}({self.name!r})"
        hooks = self.line.hooks
        if any(
            getattr(hook, "__recorded__", False) for hook in (hooks.raw, hooks.fused, hooks.transform, hooks.physics)
        ):
            fix = f"Use scene.reconfigure({self.name!r}, {name}=...)."
            raise ConfigError.single(title, name, value, "a value that this sensor's kernels read anew", fix)
        values = torch.as_tensor(value, dtype=torch.float32, device=self.device).reshape(-1, 1)
        for end in {float(values.min()), float(values.max())}:
            self.cfg.replace(**{name: end})  # the config's own checks
        count = self.num_envs if rows is None else len(rows)
        if values.shape[0] not in (1, count):
            raise ConfigError.single(title, name, value, f"one number, or {count} of them")
        table = self.params.per_env.get(name)
        if table is None:
            table = torch.full((self.num_envs, 1), float(getattr(self.cfg, name)), device=self.device)
            self.params.per_env[name] = table
        if rows is None:
            table.copy_(values.expand_as(table))
        else:
            table[rows] = values

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

    @property
    def has_debug_vis_implementation(self) -> bool:
        """Whether the sensor draws itself."""
        return type(self).debug_draw is not Sensor.debug_draw

    def set_debug_vis(self, debug_vis: bool) -> bool:
        """Switch drawing on or off; returns False where the sensor does not draw."""
        self._debug_vis = debug_vis and self.has_debug_vis_implementation
        return self.has_debug_vis_implementation

    # What the scene calls ---------------------------------------------------------------------------------------------

    def note_capture(self, tick: int, lag: int) -> None:
        """Note a capture on the grid for all envs."""
        self.samples += 1
        self._last_tick, self._last_lag = tick, lag

    def note_lazy(self, tick: int, lag: int) -> bool:
        """Note that a lazy sensor is looked at; returns whether it has a sample to compute."""
        due = self.rate.index(tick) - self.rate.index(self._last_tick)
        if due > 0:
            skipped = self.clock.skipped - self._last_skipped
            self.samples += due - skipped if self.rate.every_tick else 1
            self._last_tick, self._last_lag, self._last_skipped = tick, lag, self.clock.skipped
        return due > 0 or tick == self._last_tick or (self._evaluated < 0 and self.rate.every_tick)

    def note_reset(self, mask: torch.Tensor) -> None:
        """Note the capture at a reset for the envs of a uint8 mask."""
        self._frame_base = torch.where(mask > 0, self.samples - 1, self._frame_base)
        self.first_tick = torch.where(mask > 0, self.clock.tick, self.first_tick)
        self.first_at = self.clock.tick

    def retire(self, why: str) -> None:
        """Make this object and every view it handed out raise on use."""
        self._stale = why
        if not self.uses_ring_pipeline:
            return
        for view in (self._truth_view, self._measured_view):
            for value in (view,) if self.single else (getattr(view, s.name) for s in self.specs):
                if type(value) is torch.Tensor:
                    value.__class__ = StaleTensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that must be saved to resume."""
        params = {f"param/{name}": table for name, table in self.params.per_env.items()}
        return {**self.line.tensors(), **params, "frame_base": self._frame_base, "first_tick": self.first_tick}

    def counters(self) -> dict[str, int]:
        """Return the host's counters that must be saved to resume."""
        ring = self.line.ring
        return {
            "samples": self.samples,
            "first_at": self.first_at,
            "wanted": int(self.wanted),
            "last_tick": self._last_tick,
            "last_skipped": self._last_skipped,
            "last_lag": self._last_lag,
            "position": ring.position if ring is not None else 0,
        }

    def load(self, tensors: Mapping[str, torch.Tensor], counters: Mapping[str, int]) -> None:
        """Restore what `tensors` and `counters` returned."""
        for (knob, name), table in self.line.knobs.tables.items():
            saved = tensors[f"knob/{knob}/{name}"]
            if saved.shape != table.values.shape:  # it was set per env after the start
                table.values = saved.clone().to(self.device)
        for name, saved in tensors.items():
            if name.startswith("param/"):
                self.params.per_env[name.removeprefix("param/")] = saved.clone().to(self.device)
        self.line._knobs_moved()
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.samples = counters["samples"]
        self.first_at, self.wanted = counters["first_at"], bool(counters["wanted"])
        self._last_tick, self._last_lag = counters["last_tick"], counters["last_lag"]
        self._last_skipped = counters["last_skipped"]
        if self.line.ring is not None:
            self.line.ring.seek(counters["position"])
        self._evaluated = self._read_version = -1


def _is_odd(view: torch.Tensor) -> bool:
    return view.dtype in ODD and bool((view == ODD[view.dtype]).all())


class SimpleSensor(Sensor[CfgT, DataT]):
    """A sensor on the standard pipeline. All hooks are optional but `update_raw_data`.

    raw -> `apply_physics_imperfections` -> `apply_transform` -> `apply_hardware_imperfections` -> `post_process` ->
    frozen
    -> delay -> read. Each hook is called once per due tick for all mounts and environments, and writes in place. A hook
    that only launches Warp kernels may be marked `@recorded`: it is then called once and its launches are replayed.
    """

    mount: MountView

    def update_raw_data(self, raw: Record) -> None:
        """Compute the true value of every field in place, `[env, mount, ...]`."""
        raise NotImplementedError(f"{type(self).__name__} must define update_raw_data(self, raw)")

    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Write truth into `raw` and the measured value, with noise that shapes it, into `slot` in one pass."""
        raise NotImplementedError

    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Alter the measured phenomenon itself, before the transform, so that it propagates through memory."""
        raise NotImplementedError

    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        """Change frames or apply a response model in place, on both branches; `timeline` is free of hardware noise."""
        raise NotImplementedError

    def apply_hardware_imperfections(self, slot: Record) -> None:
        """Alter the measured value at the sensor's output; by default the standard chain and the config's stages."""
        self.standard_chain(slot)

    def derive_measured(self, slot: Record) -> None:
        """Fill the measured fields of kind `derived` from the other measured ones, once those are final.

        All noise, quantisation and stages came before; delay and history follow.
        """
        raise NotImplementedError

    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Any:
        """Project intermediate to return space; `timeline.at(0)` is the previous output."""
        raise NotImplementedError

    def standard_chain(self, slot: Record) -> None:
        """Run white noise, random walk, bias and quantisation in place on the measured record."""
        self.line.standard_chain(slot)

    def _hooks(self) -> Hooks:
        fused = self._own("update_current_timestep_data")
        raw = self._own("update_raw_data")
        if raw is None and fused is None:
            raise RegistrationError(f"{type(self).__name__} must define update_raw_data(self, raw)")
        return Hooks(
            raw=raw,
            fused=fused,
            physics=self._own("apply_physics_imperfections"),
            transform=self._own("apply_transform"),
            hardware=self._own("apply_hardware_imperfections"),
            derive=self._own("derive_measured"),
            post=self._own("post_process"),
            reset=self._own_reset(),
            lookback=self.lookback,
            checks_state=self.checks_state,
        )


__all__ = ["HookError", "Sensor", "SensorContext", "SensorInfo", "SimpleSensor", "declared_fields"]
