"""Tools for checking rules: scenes of one sensor, snapshots of its output, and the error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
import warp as wp

from sensorium import registry
from sensorium.engines.base import Engine
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import SensoriumError
from sensorium.measurement.knobs import CHAIN_KNOBS
from sensorium.measurement.sensor_cfg import SensorCfg, SimpleSensorCfg
from sensorium.plugins import is_ours
from sensorium.readings import Reading
from sensorium.scene import Scene
from sensorium.sensors.core.base import Sensor
from sensorium.spec import FieldSpec
from sensorium.testing.engine import EngineFactory
from sensorium.wire.header import TRUTH, Header, begin_message, type_id
from sensorium.wire.serializers import FieldSerializer, read_message
from sensorium.wire.stream_info import StreamInfo


class ContractError(SensoriumError, AssertionError):
    """A sensor or an engine breaks a rule of its contract; the message gives the rule, the place and the fix.

    Attributes:
        rule: name of the rule, as returned by `check_sensor` and `check_engine`.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(f"{message} [rule {rule}]")
        self.rule = rule


LASTS = (
    "Keep state that persists between samples in self.new_state(name, shape), created in setup, or in the "
    "timeline; no other state is reset, saved and restored."
)
KEYED = (
    "Draw with self.key, self.stream(purpose) or, in a stage, with its key; never with torch's or NumPy's generator."
)
FIXES = {
    "leaves_the_engine_alone": "Treat arrays of the engine as read-only: clone() an array before modifying it.",
    "mounts_do_not_matter": "Write mount k to raw.x[:, k] from its own inputs; copy_ broadcasts one value to all.",
    "shapes_and_dtypes": "Declare shape and dtype in Field(...), or per config in fields(self).",
    "fields_follow_the_config": "Let fields(self) read only self.cfg and self.mount.",
    "nothing_lasts_in_plain_attributes": LASTS,
    "hooks_work_on_all_envs_at_once": "Write whole tensors [env, mount, ...], or a kernel with a thread per env.",
    "post_process_only_projects": "Return new values of the declared shape and dtype, and do not modify `data`.",
    "reading_changes_nothing": "Let reads, `outputs`, `debug_draw` and `notes` change nothing; do work in a hook.",
    "same_seed_same_numbers": KEYED,
    "env_count_does_not_matter": "Compute each env independently of the others and of their number. " + KEYED,
    "other_sensors_do_not_matter": "Do not share mutable state, such as class attributes, between sensors. " + KEYED,
    "lazy_equals_eager": "Compute samples only from the engine's state and declared states. " + LASTS,
    "truth_is_never_altered": (
        "Write only to `slot` (in a stage: its `slot`) after update_raw_data; keep a state of apply_transform "
        "separately for each branch."
    ),
    "no_time_no_change": LASTS,
    "reset_leaves_the_others": "Return from a kernel if rows.mask[env] is 0; let reset_state change only masked envs.",
    "recorded_hooks_follow_rows": (
        "Begin a kernel with env = rows.start + i, and return if rows.mask[env] is 0; write to that env only."
    ),
    "nothing_old_after_reset": f"{LASTS} Set the states of a stage in reset(state, key), or at its first sample.",
    "resuming_is_exact": LASTS,
    "streams_as_it_is": "Give constants as numbers, text, lists and tables of these: array.tolist(), not arrays.",
}
"""Fix for a broken rule, if the message has no better one."""


Snapshot = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class TrialRun:
    """A scene that was read after each tick.

    Attributes:
        scene: after the last tick; rules only read it.
        shots: snapshot of the subject after each tick.
        own: initial values of the author's attributes that changed in the first five ticks.
        works: measured values before `post_process`, after each tick; empty without knobs.
    """

    scene: Scene
    shots: list[dict[str, torch.Tensor]]
    own: dict[str, Any]
    works: list[dict[str, torch.Tensor]]


class Trial:
    """One config, unchanged and with every standard knob enabled, with methods to run and compare it."""

    def __init__(self, cfg: SensorCfg[Any], engine: EngineFactory, steps: int, own_engine: bool) -> None:
        self.cfg, self.engine, self.steps = cfg.replace(name="subject"), engine, steps
        self.own_engine = own_engine
        self.rule = "shapes_and_dtypes"
        self.sensor_class = registry.sensor_for(type(cfg))
        self.shows_history = self.sensor_class._visible is not Sensor._visible
        """Whether `.data` is `.history`, where there is one."""
        self.vectors: tuple[str, ...] = ()
        """Fields of the kind "vector" that the standard chain runs over."""
        self._clean: dict[int, Scene] = {}
        self.dirty = self._with_knobs(self.cfg)

    @cached_property
    def reference(self) -> TrialRun:
        """The run of the config with knobs that other runs are compared with."""
        scene = self.scene(self.dirty)
        start = own_values(scene["subject"])
        works: list[dict[str, torch.Tensor]] = []
        keep = works if self.dirty is not self.cfg else None
        shots = self.run(scene, 5, works=keep)
        later = own_values(scene["subject"])
        own = {path: value for path, value in start.items() if path in later and not same_value(value, later[path])}
        return TrialRun(scene, [*shots, *self.run(scene, max(self.steps, 14) - 5, works=keep)], own, works)

    @cached_property
    def last(self) -> dict[str, torch.Tensor]:
        """Values of the reference after `steps` ticks."""
        return self.reference.shots[self.steps - 1]

    def _with_knobs(self, cfg: SensorCfg[Any]) -> SensorCfg[Any]:
        """Return the config with every standard knob enabled, as far as the sensor accepts them."""
        if not isinstance(cfg, SimpleSensorCfg) or not self.sensor_class.uses_ring_pipeline:
            return cfg
        sensor = self.clean(4)["subject"]
        names = self.vectors = tuple(name for name, spec in chained_fields(sensor).items() if spec.kind == "vector")
        dt = sensor.clock.dt
        knobs: dict[str, Any] = {"loss": 0.2, "history_length": 3}
        if cfg.delay is None:
            knobs |= {"delay": 3 * dt, "jitter": 2 * dt}
        if names:
            given = sensor.buffers.knobs.tables
            for knob in CHAIN_KNOBS:
                if not any((knob, name) in given for name in names):
                    knobs[knob] = dict.fromkeys(names, 0.01)
        return cfg.replace(**{k: v for k, v in knobs.items() if not getattr(cfg, k)})

    def clean(self, num_envs: int) -> Scene:
        """Return a scene of the unchanged config, the same one in every call for this number of envs."""
        if num_envs not in self._clean:
            self._clean[num_envs] = self.scene(self.cfg, num_envs=num_envs)
        return self._clean[num_envs]

    def scene(self, *configs: SensorCfg[Any], num_envs: int = 4, seed: int = 3, engine: Engine | None = None) -> Scene:
        """Return a scene of these sensors on a new engine, or on the given one."""
        return Scene(engine or self.engine(num_envs), configs, seed=seed)

    def run(
        self,
        scene: Scene,
        steps: int | None = None,
        read_every: int = 1,
        works: list[dict[str, torch.Tensor]] | None = None,
    ) -> list[dict[str, torch.Tensor]]:
        """Run ticks and return the subject's output at those that were read; add the pipeline's values to `works`."""
        out = []
        for k in range(self.steps if steps is None else steps):
            take_tick(scene)
            if (k + 1) % read_every == 0:
                out.append(snapshot(scene["subject"]))
            if works is not None:
                works.append({name: view.clone() for name, view in scene["subject"].buffers.work.items()})
        return out

    def ran(self, cfg: SensorCfg[Any], steps: int, num_envs: int = 4) -> Scene:
        """Return a scene of one sensor after some ticks."""
        scene = self.scene(cfg, num_envs=num_envs)
        self.run(scene, steps)
        return scene

    def need(self, holds: bool, rule: str, where: str, fix: str = "") -> None:
        """Raise `ContractError` if the rule does not hold."""
        if not holds:
            fix = fix or FIXES.get(self.rule, "")
            raise ContractError(f"{self.sensor_class.__name__}: {rule} ({where}). {fix}".rstrip(), self.rule)

    def same(self, a: Snapshot, b: Snapshot, rule: str, where: str, envs: Any = slice(None)) -> None:
        """Raise `ContractError` if two snapshots differ in any bit in some environments."""
        for name in a:
            self.need(equal(a[name][envs], b[name][envs]), rule, f"{where}, {name}")

    def same_runs(self, a: Sequence[Snapshot], b: Sequence[Snapshot], rule: str, envs: Any, rate: str = "") -> None:
        """Raise `ContractError` if runs that begin with a reset of env 2 differ in some environments."""
        for k, (mine, its) in enumerate(zip(a, b, strict=False)):
            self.same(mine, its, rule, f"{k} ticks after{rate}", envs)

    def lines_run(self, num_envs: int) -> tuple[int, int, str]:
        """Return the number of executed lines of the sensor's own code, the number of samples, and the busiest line."""
        scene = self.scene(self.cfg.replace(evaluate="always"), num_envs=num_envs)
        module = self.sensor_class.__module__
        package = module if is_ours(self.sensor_class) else module.partition(".")[0]
        lines: dict[str, int] = {}

        def local(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                lines[place] = lines.get(place, 0) + 1
            return local

        def enter(frame: FrameType, event: str, argument: object) -> Any:
            name = frame.f_globals.get("__name__", "")
            return local if name == package or name.startswith(f"{package}.") else None

        before, samples = sys.gettrace(), scene["subject"].buffers.counter.samples
        for _ in range(self.steps):
            if scene["subject"].buffers.counter.samples - samples >= _TRACED:
                break
            sys.settrace(enter)
            try:
                take_tick(scene)
            finally:
                sys.settrace(before)
        taken = max(scene["subject"].buffers.counter.samples - samples, 1)
        return sum(lines.values()), taken, max(lines, key=lambda place: lines[place], default="")


_TRACED = 3
"""Samples whose lines are counted."""


def read_all(sensor: Sensor[Any, Any]) -> None:
    """Read everything that a reader can access."""
    for _ in range(2):
        snapshot(sensor)
        sensor.read([0])
        sensor.drawings()
        repr((sensor, sensor.info, type(sensor.data), type(sensor.ground_truth)))


def ways_to_read(scene: Scene) -> list[Callable[[], object]]:
    """Return calls that read the subject, each in another way."""
    sensor = scene["subject"]
    fields = [f"subject.{spec.name}" for spec in sensor.specs if spec.columns and not spec.is_ragged]
    observers = [scene.observer(*fields, history=entries) for entries in (0, 2)] if fields else []
    shown = [partial(getattr, sensor, name) for name in ("data", "ground_truth", "is_new")]
    return [*shown, partial(read_all, sensor), partial(scene.publish, ["subject"]), *observers]


def own_values(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return copies of the numbers, tensors and arrays in the author's attributes, by path.

    Memory of the pipeline is excluded: it is reset, saved and restored.
    """
    saved = [tensor.untyped_storage() for tensor in sensor.tensors().values()]
    spans = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in saved]

    def is_saved(address: int) -> bool:
        return any(start <= address < stop for start, stop in spans)

    def walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, torch.Tensor):
            if value.numel() and not is_saved(value.data_ptr()):
                yield path, value.clone()
        elif isinstance(value, wp.array):
            if value.size and not is_saved(value.ptr):
                yield path, wp.clone(value)
        elif isinstance(value, np.ndarray):
            yield path, value.copy()
        elif isinstance(value, bool | int | float | str | complex | np.generic):
            yield path, value
        elif isinstance(value, dict):
            for key in value:
                if isinstance(key, str):
                    yield from walk(f"{path}.{key}", value[key])
        elif isinstance(value, list):
            for k, item in enumerate(value):
                yield from walk(f"{path}.{k}", item)

    own = {name: value for name, value in vars(sensor).items() if name not in sensor.base_attributes}
    return {path: value for name, each in own.items() for path, value in walk(name, each)}


def same_value(a: Any, b: Any) -> bool:
    """Return whether two values of an attribute are equal, for arrays bit by bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return equal(a, b)
    if isinstance(a, wp.array) and isinstance(b, wp.array):
        return same_value(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and str(a) == str(b)


def restore_value(sensor: Sensor[Any, Any], path: str, value: Any) -> None:
    """Restore an earlier value of an attribute, in place if it has memory."""
    name, *keys = path.split(".")
    owner: Any = sensor.__dict__
    for key in keys:
        owner = owner[name]
        name = int(key) if isinstance(owner, list) else key  # type: ignore[assignment]
    now = owner[name]
    if type(now) is type(value) and isinstance(now, torch.Tensor | np.ndarray) and now.shape == value.shape:
        now[...] = value
    elif isinstance(now, wp.array) and now.shape == value.shape:
        wp.copy(now, value)
    else:
        owner[name] = value


def chained_fields(sensor: Sensor[Any, Any]) -> dict[str, FieldSpec]:
    """Return the fields that the standard chain processes, by name."""
    return {name: spec for name, (_, spec) in sensor.buffers.plan.chained.items()}


def take_tick(scene: Scene) -> None:
    """Run one tick, by the engine or by the scene."""
    has_step = scene.engine.owns_time or isinstance(scene.engine, TensorEngine)
    scene.step(None, 1) if has_step else scene.update()


def unpacked(sensor: Sensor[Any, Any], data: Any, length: int = 0) -> dict[str, torch.Tensor]:
    """Return the fields of a reading, or of a history of a length, with the axes of their specs."""
    values = {spec.name: data if sensor.single else getattr(data, spec.name) for spec in sensor.specs}
    if getattr(sensor.cfg, "keeps_layout", False):
        before = [length] if length else []
        values = {spec.name: values[spec.name].reshape(-1, *before, *spec.shape) for spec in sensor.specs}
    return values


def fields_of(sensor: Sensor[Any, Any], truth: bool = False) -> dict[str, torch.Tensor]:
    """Return a copy of the measured fields, or of the true ones, by name."""
    return unpacked(sensor, sensor.read_ground_truth() if truth else sensor.read())


def snapshot(sensor: Sensor[Any, Any]) -> dict[str, torch.Tensor]:
    """Return copies of everything that a reader can access."""
    shot = {f"data.{name}": value for name, value in fields_of(sensor).items()}
    shot |= {f"ground_truth.{name}": value for name, value in fields_of(sensor, truth=True).items()}
    for name in ("valid", "age", "frame", "is_new"):
        shot[name] = getattr(sensor, name).clone()
    if sensor.cfg.history_length and not sensor.own_history:
        history = unpacked(sensor, sensor.history, sensor.cfg.history_length)
        shot |= {f"history.{name}": value for name, value in history.items()}
        shot["history_valid"] = sensor.history_valid
    return shot


def streamed(reading: Reading, described: Mapping[str, Any], first: int, count: int, truth: bool) -> Reading:
    """Return the data that a listener gets for some environments of a reading."""
    specs = tuple(FieldSpec.from_dict(spec) for spec in described["fields"])
    info = StreamInfo(
        0,
        reading.name,
        described["kind"],
        FieldSerializer.type_name,
        specs,
        cfg=described["cfg"],
        constants=described.get("constants", {}),
        num_envs=len(reading.env_ids),
    )
    body = FieldSerializer.serialize(reading, first, count, truth)
    header = Header(
        flags=TRUTH if truth else 0,
        type_id=type_id(FieldSerializer.type_name),
        rows=FieldSerializer.rows(reading, first, count),
        first_env=first,
        num_envs=count,
        body_bytes=len(body),
    )
    memory = np.zeros(header.body_offset + header.body_bytes, np.uint8)
    begin_message(memory, header)[:] = body.data
    return cast(Reading, read_message(memory, StreamInfo.from_dict(info.to_dict())))


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether tensors are bit-identical; NaN equals NaN."""
    return a.shape == b.shape and np.array_equal(a.cpu().numpy(), b.cpu().numpy(), equal_nan=a.is_floating_point())
