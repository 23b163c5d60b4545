"""Base classes for authors of sensors; `reader` has the interface that every sensor offers to its readers.

One sensor object stands for one config: all its mounts in all environments. Config and sensor are paired by the type
parameters when the class is defined: ``class Imu(SimpleSensor[ImuCfg, ImuData])``. Inside a sensor the mount axis is
always present. A singular selector removes it only from `.data`, `.ground_truth`, `.read` and `.history`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin

import numpy as np
import torch

from sensorium import registry
from sensorium.cfg import COLUMN_KNOBS, OffsetCfg
from sensorium.errors import ConfigError, RegistrationError, SensoriumError, UnsupportedError, shown
from sensorium.measurement.buffers import SensorBuffers
from sensorium.measurement.plan import SensorPlan
from sensorium.measurement.record import TORCH_DTYPES, Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg, SensorCfg, SimpleSensorCfg
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.work import begin_measured
from sensorium.plugins import is_ours
from sensorium.random import stream_key
from sensorium.sensors.core.hooks import BASES, Supports, check_hooks, hook_of, hooks_of
from sensorium.sensors.core.parts import SensorContext, ServiceT, declared_fields
from sensorium.sensors.core.reader import CfgT, DataT, Readable
from sensorium.spec import BODY_POSE, Field, FieldSpec, Requirement, resolve_field
from sensorium.world.mount import MountView
from sensorium.world.select import Named, resolve_frames

if TYPE_CHECKING:
    from sensorium.patterns.base import PatternBaseCfg, Rays
    from sensorium.readings import Array, DebugShape
    from sensorium.shapes.query import QueryContext
    from sensorium.shapes.ray_cast import RayCast
    from sensorium.shapes.scene import ShapeScene
    from sensorium.shapes.solid_query import SolidQuery

PIPELINE_KNOBS = ("history_length", *COLUMN_KNOBS, "delay", "jitter", "loss", "stages")
"""Knobs that need the memory of the standard pipeline."""


class Sensor(Readable[CfgT, DataT]):
    """Base of every sensor. Derive from `SimpleSensor`, or from this class for full control with `compute`.

    With full control, `compute(truth, measured)` fills both records in one call; post-processing, delay and history
    still follow. With `uses_ring_pipeline = False` no memory is allocated: `setup` passes the sensor's memory to
    `set_outputs`, and `compute`, which gets two empty records, fills it.
    """

    requires: ClassVar[tuple[Requirement, ...]] = ()
    """Requirements on the engine; override `needs` where they depend on the config."""
    lookback: ClassVar[int] = 0
    """Maximum k for which a hook reads `timeline.at(k)`; determines the size of the timelines."""
    single: ClassVar[bool] = False
    """Whether the data class has one field and `.data` is that tensor itself."""
    uses_ring_pipeline: ClassVar[bool] = True
    """Whether the pipeline owns the memory; False where `compute` fills the sensor's own memory."""
    checks_state: ClassVar[bool] = False
    """Whether the sensor's own kernel flags non-finite state in `buffers.bad`; otherwise the truth is searched for
    NaN."""

    is_simple: ClassVar[bool] = False
    """Whether to call the hooks of `SimpleSensor`."""
    cfg_class: ClassVar[type[SensorCfg[Any]]]
    data_class: ClassVar[type[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_hooks(cls)
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
            raise RegistrationError(f"{cls.__qualname__}: {cfg_class.__name__} is not a SensorCfg")
        if not dataclasses.is_dataclass(data_class):
            raise RegistrationError(f"{cls.__qualname__}: {data_class.__name__} is not a dataclass")
        cls.cfg_class, cls.data_class = cfg_class, data_class
        fields = declared_fields(data_class)
        cls.own_history = any("history" in (field.axes or ()) for field in fields.values())
        if cls.single and len(fields) != 1:
            raise RegistrationError(
                f"{cls.__qualname__} is `single`, but {data_class.__name__} has {len(fields)} fields"
            )
        registry.pair(cfg_class, cls)

    @classmethod
    def needs(cls, cfg: CfgT, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirements of a config on an engine, before the model is compiled; by default `requires`.

        Args:
            cfg: config of the sensor.
            names: names of the model, which the config's patterns match.
            supports: returns the reason why a requirement is unsupported, or None if it is supported.
        """
        return cls.requires

    def __init__(self, cfg: CfgT, context: SensorContext) -> None:
        super().__init__(cfg, context)
        if isinstance(cfg, MountedSensorCfg):
            of, plural = cfg.selector, cfg.is_plural
            names, frames = resolve_frames(*of, self.engine, config=cfg.title, field=of[0], exactly_one=not plural)
            for requirement in type(self).needs(cfg, self.engine, self.engine.supports):
                for frame in frames:
                    if (reason := self.engine.supports_on(requirement, frame.body)) is not None:
                        raise UnsupportedError(self.name, requirement, self.engine.name, reason)
            self._mount_axis = plural
            self.mount = MountView(
                self.engine, self.compute_on, self.clock, names, frames,
                cfg.offset if cfg.mount_has_offset else OffsetCfg(), lambda: self.buffers.bad,
            )  # fmt: skip
        self.pose_offset: tuple[torch.Tensor, torch.Tensor] | None = None
        """Pose of the sensor in the frame of its mount, where `cfg.mount_has_offset` is False: position, m, float32
        `[env, mount, 3]`, and quaternion (w, x, y, z), float32 `[env, mount, 4]`, x forward."""
        self._allocate()
        before = dict(vars(self))
        self.setup()
        made = set(vars(self)) - set(before)
        for name, value in before.items() if not is_ours(type(self)) else ():
            if vars(self)[name] is not value and name not in ("notes", "pose_offset"):
                raise RegistrationError(
                    f"{self._owner}: setup assigns self.{name}, an attribute of the "
                    "base class. Give the sensor's own attribute another name."
                )
        self._complete()
        self._debug_vis = cfg.debug_vis and self.has_debug_vis_implementation
        self.base_attributes = frozenset(vars(self)) - made
        """Names of the attributes that the base class sets."""

    # Hooks for authors ------------------------------------------------------------------------------------------------

    def fields(self) -> Mapping[str, Field]:
        """Return the fields of this config; by default those that it selects, or all declared in the data class.

        Override where the shapes, or the choice of computed fields, depend on the config.
        """
        declared = declared_fields(self.data_class)
        return {name: declared[name] for name in self.cfg.selected or declared}

    def setup(self) -> None:
        """Allocate the sensor's own memory once, when it is built: states (`new_state`), index arrays and constants.

        Set an attribute for each field of the data class that is not a tensor, under the field's name. Add further
        entries of `info` to `notes`. Set `buffers.body_at_fault` where warnings should name a body other than the
        mount's.
        """

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the fields of the pipeline's intermediate space, from which `post_process` projects."""
        return self.fields()

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """Timelines of the records of `compute`, true and measured: `at(0)` is the record to fill."""
        return self.buffers.truth_timeline, self.buffers.slot_timeline

    def compute(self, truth: Record, measured: Record) -> None:
        """Fill the true and the measured record of all mounts and envs, once per due tick (full control).

        `timelines` has the earlier records, up to `lookback` samples ago, without hardware imperfections; at the first
        sample of an episode they are zero.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither compute nor update_raw_data")

    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Any:
        """Project intermediate fields to returned fields; by default return `data`.

        `timeline.at(0)` is the previous output.
        """
        return data

    def observe(self) -> None:
        """Do the work of every physics tick, also between samples; by default nothing.

        At the tick of a sample it is called before `update_raw_data` or `compute`. After n ticks it has run n times,
        and once more for the first sample. Store results in states of the sensor (`new_state`). A sensor that defines
        this hook is never evaluated on read.
        """

    def debug_draw(self) -> Iterable[DebugShape]:
        """Return simple shapes for a viewer: points, lines, arrows and frames of the ground truth in all environments.

        Here they follow from the fields and their roles, see `sensorium.drawing`: built-in sensors are drawn so, and
        plugins whose `debug_draw` returns ``super().debug_draw()``.
        """
        from sensorium.drawing import draw  # imported on use: few loops draw
        from sensorium.readings import Reading

        self.ensure_current()
        values = {name: value.cpu().numpy() for name, value in self.own_tensors(is_measured=False).items()}
        bodies = None
        can = self.engine.grants_late(BODY_POSE) and self.engine.supports(BODY_POSE) is None
        if BODY_POSE not in self.engine.prepared and can:
            self.engine.prepare({BODY_POSE: self.name})
        if BODY_POSE in self.engine.prepared:
            self.engine.refresh()
            bodies = self._joined(*(self.engine.array(name) for name in ("body_pos_w", "body_quat_w")))
        reading = Reading(
            self.name, self.cfg.kind(), self.specs, np.arange(self.num_envs), self.clock.tick, self.clock.time,
            dict(values), values, {}, _pose=self._mount_poses(),
            _count="count" if "count" in values else "",
        )  # fmt: skip
        constants = {"drawing": self.about_drawing()}
        about = {"cfg": self.cfg.to_dict(), "kind": self.cfg.kind(), "constants": constants}
        return draw(reading, about, bodies=bodies)

    def _joined(self, pos: torch.Tensor, quat: torch.Tensor) -> Array:
        return torch.cat([pos, quat], dim=-1).float().cpu().numpy()

    def _with_offset(self, poses: Array, envs: Any) -> Array:
        """Return poses of the mounts in some envs, followed by the sensor's offset."""
        if self.pose_offset is None:
            return poses
        from sensorium.drawing import composed

        return composed(poses, self._joined(*(each[envs] for each in self.pose_offset)))

    def _mount_poses(self) -> Array | None:
        """Return the current poses of the mounts in the world, `[env, mount, 7]`."""
        if self.mount is None:
            return None
        return self._with_offset(self._joined(self.mount.pos_w, self.mount.quat_w), slice(None))

    def mounts_on_bodies(self, env: int) -> Array | None:
        """Return the places of the mounts of an environment, float32 `[mount, 8]`: body, position, orientation on it.

        The sensor's `offset` is included; the body is -1 for the world. None for a sensor without mounts.
        """
        if self.mount is None:
            return None
        poses = self._joined(self.mount.offset_pos[env], self.mount.offset_quat[env])
        poses = self._with_offset(poses, env)
        body = self.mount.body.cpu().numpy()[:, None]
        return np.concatenate([body, poses], axis=1, dtype=np.float32, casting="same_kind")

    def about_drawing(self) -> dict[str, Any]:
        """Return further data for drawings besides fields and poses: constant ``"drawing"`` of its description.

        ``"frames"``: for the items that the fields count, a list of body (row, -1 for the world), position (m) and
        quaternion (wxyz) on this body. ``"rays"``: start and direction of each ray in the frame of the mount, float32
        `[ray, 6]`, the sensor's offset there, and how the rays turn with the mount. ``"box"``: centre and half extents
        of a box in the frame of the sensor, m; it is red if the field `count` is above 0.
        """
        return {}

    def drawings(self) -> list[DebugShape]:
        """Return the shapes of `debug_draw` in the style of the config's `visualizer_cfg`."""
        from sensorium.drawing import styled
        from sensorium.readings import DebugShape

        style = self.cfg.visualizer_cfg
        with self.held():
            try:
                shapes = list(self.debug_draw())
            except SensoriumError:
                raise
            except Exception as error:
                raise RegistrationError(f"{self._owner}: debug_draw failed. {type(error).__name__}: {error}") from error
        if wrong := [shape for shape in shapes if not isinstance(shape, DebugShape)]:
            expected = "sensorium.readings.DebugShape"
            raise RegistrationError(f"{self._owner}: debug_draw yields {shown(wrong[0])}, expected a {expected}.")
        return [shape if style is None else styled(shape, style.to_dict()) for shape in shapes]

    @property
    def _owner(self) -> str:
        return f"sensor {self.name!r} ({type(self).__qualname__})"

    @property
    def draws_own_shapes(self) -> bool:
        """Whether `debug_draw` is that of a plugin, which viewers cannot derive from readings."""
        return not is_ours(type(self)) and hook_of(self, "debug_draw") is not None

    @property
    def has_debug_vis_implementation(self) -> bool:
        """Whether the sensor draws itself: all built-in sensors do, and those that implement `debug_draw`."""
        return is_ours(type(self)) or hook_of(self, "debug_draw") is not None

    @property
    def debug_vis(self) -> bool:
        """Whether a viewer should draw the sensor, as set by its config or by `set_debug_vis`."""
        return self._debug_vis

    def set_debug_vis(self, debug_vis: bool) -> bool:
        """Turn drawing on or off; return False where the sensor has no `debug_draw`."""
        self._debug_vis = debug_vis and self.has_debug_vis_implementation
        return self.has_debug_vis_implementation

    def new_state(self, name: str, shape: tuple[int, ...] = ()) -> torch.Tensor:
        """Return a new float32 state `[env, *shape]` that is zeroed at a reset, and is saved and restored.

        Use it for all values that must be kept from one sample to the next.
        """
        return self.buffers.new_state(name, shape)

    def set_outputs(
        self, truth: Mapping[str, torch.Tensor], measured: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Set the memory that readers see, for a sensor with `uses_ring_pipeline = False`; call it last in `setup`.

        Args:
            truth: tensors that `compute` fills, contiguous `[env, mount, ...]` per field.
            measured: the same for the measured branch; None if both branches are the same.

        Raises:
            RegistrationError: a field is missing or has another shape, dtype or layout.
        """
        measured = truth if measured is None else measured
        for outputs, spec in product((truth, measured), self.mount_specs):
            shape, value = (self.num_envs, *spec.shape), outputs.get(spec.name)
            wanted = shape, TORCH_DTYPES[spec.dtype]
            if value is None or (tuple(value.shape), value.dtype) != wanted or not value.is_contiguous():
                got = "nothing" if value is None else f"{tuple(value.shape)} {value.dtype}"
                raise RegistrationError(
                    f"{type(self).__qualname__}.set_outputs: {spec.name!r} is {got}, expected contiguous {shape} "
                    f"{spec.dtype}, [env, mount, ...]."
                )
        self._truth_view, self._measured_view = self._view(truth), self._view(measured)

    @cached_property
    def key(self) -> StageKey:
        """Random tensors and times of the current sample for torch hooks: ``self.key.normal("dust", "distance")``."""
        plan = self.buffers.plan
        fields = {spec.name: (k, spec) for k, spec in enumerate(plan.mid_specs)}
        return StageKey(self.compute_on, self.clock, plan.seed, self.name, "sensor", self.rate.period, fields)

    def stage_state(self, stage: StageCfg) -> Mapping[str, torch.Tensor]:
        """Return the state of a stage of the config, name -> float32 `[env, ...]`: live memory, read-only.

        Raises:
            KeyError: the config does not contain the stage.
        """
        for run in self.buffers.stages:
            if run.cfg == stage:
                return run.states
        raise KeyError(f"{self.name!r} has no stage {stage!r}; it has {[run.cfg for run in self.buffers.stages]}")

    def stream(self, purpose: str) -> tuple[int, int]:
        """Return the two key words of one of the sensor's random streams, for a kernel that draws its own numbers."""
        return stream_key(self._context.seed, self.name, purpose)

    # Set-up -----------------------------------------------------------------------------------------------------------

    def reset_state(self, env_mask: torch.Tensor) -> None:
        """Initialise the sensor's own states in the envs of a uint8 [env] mask, before the first capture of an episode.

        States of `new_state` are zero at this point. By default nothing is done.
        """

    def service(self, kind: Callable[[SensorContext], ServiceT]) -> ServiceT:
        """Return the scene's one object of a class, which all sensors share; see `SensorContext.service`."""
        return self._context.service(kind)

    @property
    def rays(self) -> ShapeScene:
        """Shapes of the scene, for a `RayCast`. The sensor must require SHAPES and BODY_POSE."""
        from sensorium.shapes.scene import ShapeScene  # imported on use: slow to import, and rarely needed

        return self.service(ShapeScene)

    def rays_of(self, name: str) -> Rays:
        """Return the rays of one of the config's patterns, on the host.

        Args:
            name: field of the config with the pattern.

        Raises:
            ConfigError: the number of rays exceeds the limit or the available memory.
        """
        pattern: PatternBaseCfg = getattr(self.cfg, name).of_model(self.engine)
        if (count := pattern.count_rays()) is not None:
            mounts = self.mount.count if self.mount is not None else 1
            self.compute_on.memory.check_rays(count, name, pattern, mounts)
        return pattern.rays("cpu")

    @property
    def query_context(self) -> QueryContext:
        """Context for queries from this sensor's mounts at the shapes of the scene."""
        config = self.cfg.title
        assert self.mount is not None, f"{config} has no mount from which a query could start"
        from sensorium.shapes.query import QueryContext  # as above

        return QueryContext(self.rays, self.engine, self.compute_on, self.clock, self.mount, config)

    def ray_cast(self, **options: Any) -> RayCast:
        """Return a ray cast from this sensor's mounts at the shapes of the scene; create it in `setup`.

        Call its `cast` in a hook.

        Args:
            options: see `RaySpec`.
        """
        from sensorium.shapes.ray_cast import RayCast, RaySpec  # as above

        return RayCast(self.query_context, RaySpec(**options))

    def solids(self, **options: Any) -> SolidQuery:
        """Return a query for the solids around this sensor's mounts; create it in `setup`, `place` it in a hook.

        Kernels query the placed solids.

        Args:
            options: see `SolidQuery`, from `points` on.
        """
        from sensorium.shapes.solid_query import SolidQuery  # as above

        return SolidQuery(self.query_context, **options)

    def _specs(self, fields: Mapping[str, Field]) -> list[FieldSpec]:
        mounts = self.mount.count if self.mount is not None else None
        return [resolve_field(name, annotation, mounts) for name, annotation in fields.items()]

    def _allocate(self) -> None:
        order = list(declared_fields(self.data_class))
        fields = self.fields()
        self.mount_specs = self._specs(fields)
        unknown = [name for name in fields if name not in order]
        if unknown:
            raise RegistrationError(
                f"{type(self).__name__}.fields() names {unknown[0]!r}, not in {self.data_class.__name__}"
            )
        self.specs = tuple(spec if self._mount_axis else spec.squeezed() for spec in self.mount_specs)
        hooks = hooks_of(self)
        mid = self._specs(self.intermediate_fields()) if hooks.post else self.mount_specs
        index = {name: k for k, name in enumerate([*order, *(s.name for s in mid if s.name not in order)])}
        simple = self.cfg if isinstance(self.cfg, SimpleSensorCfg) else SimpleSensorCfg[Any](
            name=self.name, history_length=0 if self.own_history else self.cfg.history_length
        )  # fmt: skip
        if self.own_history and simple.history_length:
            simple = simple.replace(history_length=0)  # the fields hold it
        if not self.uses_ring_pipeline:
            self._refuse_knobs(simple)
            hooks.post = None  # such a sensor calls it itself
        looks_back = hooks.compute or hooks.fused or hooks.physics or hooks.transform or hooks.post
        plan = SensorPlan(
            cfg=simple, label=self.name, seed=self._context.seed, rate=self.rate, hooks=hooks,
            specs=self.mount_specs if self.uses_ring_pipeline else [], mid_specs=mid if self.uses_ring_pipeline else [],
            field_index=index, mounts=self.mount.count if self.mount is not None else 1,
            lookback=self.lookback if looks_back else 0, checks_state=self.checks_state,
            prefixes=simple.knob_prefixes(), evaluate=self.cfg.evaluate,
        )  # fmt: skip
        self.buffers = SensorBuffers(plan, self.compute_on, self.clock)
        if self.mount is not None:
            bodies = self.mount.body_names
            self.buffers.body_at_fault = lambda env, mount: bodies[mount]

    def _complete(self) -> None:
        """Complete the plan and create the views, after `setup` has run."""
        self.buffers.seal()
        self.buffers.plan.check()
        if missing := [name for name in self._constant_names if not hasattr(self, name)]:
            raise RegistrationError(
                f"{self.data_class.__qualname__}.{missing[0]} has no Field: write Annotated[Tensor, Field(unit=..., "
                f"...)], or set self.{missing[0]} in {type(self).__qualname__}.setup"
            )
        if self.uses_ring_pipeline:
            late = self.buffers.late
            self._truth_view = self._view(self.buffers.truth_out)
            self._measured_view = self._view(self.buffers.work_out if late is None else late.shown)
        elif not hasattr(self, "_truth_view"):
            raise RegistrationError(
                f"{type(self).__qualname__} has uses_ring_pipeline = False: call set_outputs in setup"
            )

    def _refuse_knobs(self, cfg: SimpleSensorCfg[Any]) -> None:
        """Raise `ConfigError` if the config sets a knob of the standard pipeline, which the sensor does not use."""
        for knob in PIPELINE_KNOBS:
            if value := getattr(cfg, knob):
                fix = f"{type(self).__name__} uses its own memory and does not support this knob."
                raise ConfigError.single(self.cfg.title, knob, value, "no value", fix)

    # Saving -----------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors that must be saved to resume."""
        params = {f"param/{name}": table for name, table in self.params.per_env.items()}
        return {**self.buffers.tensors(), **self.buffers.counter.tensors(), **params}

    def load(self, tensors: Mapping[str, torch.Tensor], counters: Mapping[str, int]) -> None:
        """Restore the results of `tensors` and `SensorBuffers.counters`."""
        self.params.keep(name.removeprefix("param/") for name in tensors if name.startswith("param/"))
        self.buffers.load(tensors, counters)
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.begin_poses()

    def expire(self) -> None:
        """Force evaluation on the next read of a sensor computed on read, after one of its settings changed."""
        self._seen_version = -1
        if self.buffers.group is not None:
            self.buffers.group.expire()

    def begin_poses(self) -> None:
        """Restart the record of poses, where an output publishes them: poses of earlier captures are unknown."""
        self._seen_version = -1
        if self.buffers.poses is not None:
            self.buffers.poses.begin()

    def keep_poses(self, on: bool) -> None:
        """Start or stop recording the poses of the mounts at each capture; the caller rebuilds the programs."""
        from sensorium.sensors.core.poses import CapturePoses  # imported on use, for outputs only

        self.buffers.poses = CapturePoses(self) if on else None
        self.begin_poses()


BASES += Readable, Sensor


class SimpleSensor(Sensor[CfgT, DataT]):
    """A sensor on the standard pipeline. Only `update_raw_data` is required; all other hooks are optional.

    raw -> `apply_physics_imperfections` -> `apply_transform` -> `apply_hardware_imperfections` -> `post_process` ->
    frozen -> delay -> read. Each hook is called once per due tick for all mounts and environments, and writes in place.
    A hook that only launches Warp kernels may be marked `@recorded`: it is then called once, and its launches are
    replayed.
    """

    is_simple: ClassVar[bool] = True
    mount: MountView

    def update_raw_data(self, raw: Record) -> None:
        """Compute the true value of every field in place, `[env, mount, ...]`."""
        raise NotImplementedError(f"{type(self).__name__} must define update_raw_data(self, raw)")

    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Write truth into `raw`, and the measured value with its physical imperfections into `slot`, in one pass.

        By default it calls `update_raw_data`, copies `raw` into `slot` and calls `apply_physics_imperfections`.
        """
        self.update_raw_data(raw)
        begin_measured(self.buffers, raw, slot)
        self.apply_physics_imperfections(slot, timeline)

    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        """Alter the measured phenomenon itself, before the transform; by default nothing.

        These changes propagate through the sensor's memory.
        """

    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        """Change frames or apply a response model in place, on both branches; by default nothing.

        `timeline` does not contain hardware noise.
        """

    def apply_hardware_imperfections(self, slot: Record) -> None:
        """Alter the measured value at the sensor's output; by default run the standard chain and the stages."""
        self.standard_chain(slot)

    def derive_measured(self, slot: Record) -> None:
        """Fill the measured fields of kind `derived` from the other measured fields, once those are final.

        Noise, quantisation and stages have been applied; delay and history follow. By default nothing.
        """

    def standard_chain(self, slot: Record) -> None:
        """Run white noise, random walk, bias and quantisation in place on the measured record."""
        self.buffers.standard_chain(slot)


BASES.append(SimpleSensor)
