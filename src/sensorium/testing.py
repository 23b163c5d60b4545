"""The author's contract as a callable: `check_sensor` tries a sensor class, a plugin's or ours, against every law.

    from sensorium.testing import check_sensor
    check_sensor(MySensorCfg(body="body"))

Everything runs on a `TensorEngine` with a body that tumbles along a smooth, known path, so no simulator is needed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium import registry
from sensorium.cfg import MountedSensorCfg, SensorCfg, SimpleSensorCfg, StageCfg
from sensorium.engines.base import Engine
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ConfigError, SensoriumError
from sensorium.measurement.knobs import CHAIN_KNOBS
from sensorium.measurement.pipeline import as_fields
from sensorium.measurement.record import TORCH_DTYPES, Record
from sensorium.measurement.stages import SpikeFault
from sensorium.scene import Scene
from sensorium.sensors.base import Sensor
from sensorium.sensors.trial import ARRAYS, HookError, unwritten
from sensorium.spec import FieldSpec
from sensorium.world.select import WORLD

EngineFactory = Callable[[int], Engine]
"""A function from a number of environments to a fresh engine."""


class ContractError(SensoriumError, AssertionError):
    """A sensor breaks a law of the contract; the message says which, where to look and what to do about it.

    Attributes:
        law: name of the law, as `check_sensor` returns it.
    """

    def __init__(self, message: str, law: str) -> None:
        super().__init__(f"{message} [law {law}]")
        self.law = law


_LASTS = (
    "What lasts from one sample to the next belongs into self.new_state(name, shape), made in setup, or into the "
    "timeline; nothing else is reset, saved and put back."
)
_KEYED = (
    "Draw with self.key, self.stream(purpose) or, in a stage, with its key; never with torch's or NumPy's generator."
)
FIXES = {
    "leaves_the_engine_alone": "Arrays of the engine are read only: take a clone() of what is altered in place.",
    "mounts_do_not_matter": "Mount k is written to raw.x[:, k] from what mount k sees; copy_ spreads one over all.",
    "shapes_and_dtypes": "Declare shape and dtype in Field(...), or per config in fields(self).",
    "fields_follow_the_config": "fields(self) may read self.cfg and self.mount, and nothing else.",
    "nothing_lasts_in_plain_attributes": _LASTS,
    "hooks_work_on_all_envs_at_once": "Write whole tensors [env, mount, ...], or a kernel with a thread per env.",
    "post_process_only_projects": "Return new values of the declared shape and dtype, and leave `data` as it is.",
    "reading_changes_nothing": "A read, `outputs`, `debug_draw` and `notes` change nothing; work belongs into a hook.",
    "same_seed_same_numbers": _KEYED,
    "env_count_does_not_matter": "An env may see neither the others nor their number. " + _KEYED,
    "other_sensors_do_not_matter": "Share nothing that changes between sensors, such as class attributes. " + _KEYED,
    "lazy_equals_eager": "A sample is a function of the engine's state and of declared states. " + _LASTS,
    "truth_is_never_altered": (
        "Only `slot` (a stage: its `slot`) may be written after update_raw_data; a state that apply_transform keeps "
        "needs a memory for each branch."
    ),
    "no_time_no_change": _LASTS,
    "reset_leaves_the_others": "A kernel returns where rows.mask[env] is 0; reset(env_mask) touches masked envs only.",
    "nothing_old_after_reset": f"{_LASTS} A stage sets its states in reset(state, key), or at its first sample.",
    "resuming_is_exact": _LASTS,
}
"""What to do about a broken law, where the message has nothing better."""


def tumbling_engine(num_envs: int, dt: float = 0.002, shift: float = 0.0, device: str = "cpu") -> TensorEngine:
    """Return a `TensorEngine` whose one body ``"body"``, with a site ``"site"``, tumbles differently in each env.

    Position is a sum of sines, orientation an uneven spin about one axis; velocities and accelerations
    are their exact derivatives.

    Args:
        num_envs: number of environments.
        dt: time step, s.
        shift: seconds added to the path's time: another past for the same laws of motion.
        device: torch device.
    """
    phase = torch.arange(num_envs, dtype=torch.float64, device=device)[:, None, None]
    axis = torch.tensor([0.36, 0.48, 0.8], dtype=torch.float64, device=device)
    amplitude = torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64, device=device)
    pace = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64, device=device)

    def motion(t: float) -> Mapping[str, torch.Tensor]:
        angle = pace * (t + shift) + 0.7 * phase
        late = t + shift + 0.3 * phase[..., 0]
        half = late + 0.2 * (3.0 * late).sin()  # half the angle about the axis
        rate, gain = 2.0 + 1.2 * (3.0 * late).cos(), -3.6 * (3.0 * late).sin()
        return {
            "body_pos_w": amplitude * angle.sin(),
            "body_lin_vel_w": amplitude * pace * angle.cos(),
            "body_lin_acc_w": -amplitude * pace**2 * angle.sin(),
            "body_quat_w": torch.cat([half.cos()[..., None], axis * half.sin()[..., None]], dim=-1),
            "body_ang_vel_w": rate[..., None] * axis,
            "body_ang_acc_w": gain[..., None] * axis,
        }

    return TensorEngine(
        num_envs,
        dt,
        bodies=("body",),
        sites={"site": ("body", (0.1, 0.0, 0.05))},
        provides=("pose", "velocity", "acceleration", "gravity"),
        magnetic=(0.2, 0.0, -0.4),
        motion=motion,
        device=device,
    )


def check_sensor(
    subject: type[Sensor[Any, Any]] | type[SensorCfg[Any]] | SensorCfg[Any],
    engine: EngineFactory | None = None,
    *,
    steps: int = 12,
) -> list[str]:
    """Check one sensor against the contract; returns the names of the laws that were checked.

    Args:
        subject: a config, or a sensor or config class that can be built with its defaults (a mounted one gets
            ``body="body"``; a class may offer ``example() -> cfg`` instead).
        engine: makes the engine for a number of envs; by default `tumbling_engine`.
        steps: ticks per run.

    Raises:
        ContractError: a law is broken.
    """
    cfg = _example(subject)
    try:
        check = _Check(cfg, engine or tumbling_engine, steps, own_engine=engine is not None)
        done = []
        for law in (
            check.declares_what_it_reads,
            check.leaves_the_engine_alone,
            check.shapes_and_dtypes,
            check.fields_follow_the_config,
            check.same_seed_same_numbers,
            check.nothing_lasts_in_plain_attributes,
            check.raw_is_written_in_place,
            check.hooks_work_on_all_envs_at_once,
            check.post_process_only_projects,
            check.reading_changes_nothing,
            check.env_count_does_not_matter,
            check.mounts_do_not_matter,
            check.other_sensors_do_not_matter,
            check.lazy_equals_eager,
            check.truth_is_never_altered,
            check.no_time_no_change,
            check.reset_leaves_the_others,
            check.nothing_old_after_reset,
            check.resuming_is_exact,
            check.setters_reach_only_their_envs,
            check.delay_invents_nothing,
            check.config_round_trip,
            check.errors_name_the_field,
        ):
            check.law = law.__name__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if law():
                    done.append(law.__name__)
    except HookError as error:
        raise ContractError(str(error), error.law) from error
    return done


def _example(subject: Any) -> SensorCfg[Any]:
    if isinstance(subject, SensorCfg):
        return subject
    cfg_class = subject
    if isinstance(subject, type) and issubclass(subject, Sensor):
        cfg_class = subject.cfg_class
    for owner in (subject, cfg_class):
        if hasattr(owner, "example"):
            made: SensorCfg[Any] = owner.example()
            return made
    built: SensorCfg[Any] = cfg_class(body="body") if issubclass(cfg_class, MountedSensorCfg) else cfg_class()
    return built


class _Check:
    """The laws, each a method: returns False where it does not apply, raises `ContractError` where it is broken."""

    def __init__(self, cfg: SensorCfg[Any], engine: EngineFactory, steps: int, own_engine: bool) -> None:
        self.cfg, self.engine, self.steps = cfg.replace(name="subject"), engine, steps
        self.own_engine = own_engine
        self.law = "shapes_and_dtypes"
        self.sensor_class = registry.sensor_for(type(cfg))
        self.dirty = self._with_knobs(self.cfg)

    def _with_knobs(self, cfg: SensorCfg[Any]) -> SensorCfg[Any]:
        """Return the config with every standard knob on, where the sensor takes them."""
        if not isinstance(cfg, SimpleSensorCfg) or not self.sensor_class.uses_ring_pipeline:
            return cfg
        sensor = self.scene(cfg)["subject"]
        names = [name for name, spec in _chained(sensor).items() if spec.kind == "vector"]
        dt = sensor.clock.dt
        knobs: dict[str, Any] = {"loss": 0.2, "history_length": 3}
        if cfg.delay is None:
            knobs |= {"delay": 3 * dt, "jitter": 2 * dt}
        if names:
            given = sensor.line.knobs.tables
            for knob in CHAIN_KNOBS:
                if not any((knob, name) in given for name in names):
                    knobs[knob] = dict.fromkeys(names, 0.01)
        return cfg.replace(**{k: v for k, v in knobs.items() if not getattr(cfg, k)})

    def scene(self, *configs: SensorCfg[Any], num_envs: int = 4, seed: int = 3, engine: Engine | None = None) -> Scene:
        return Scene(engine or self.engine(num_envs), configs, seed=seed)

    def run(self, scene: Scene, steps: int | None = None, read_every: int = 1) -> list[dict[str, torch.Tensor]]:
        """Take ticks and return what the subject showed at those that were read."""
        out = []
        for k in range(self.steps if steps is None else steps):
            _tick(scene)
            if (k + 1) % read_every == 0:
                out.append(_snapshot(scene["subject"]))
        return out

    def need(self, holds: bool, law: str, where: str, fix: str = "") -> None:
        if not holds:
            fix = fix or FIXES.get(self.law, "")
            raise ContractError(f"{self.sensor_class.__name__}: {law} ({where}). {fix}".rstrip(), self.law)

    def same(self, a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor], law: str, where: str) -> None:
        for name in a:
            self.need(_equal(a[name], b[name]), law, f"{where}, {name}")

    def shapes_and_dtypes(self) -> bool:
        """Every field has the shape, dtype and device of its spec, `[env, ...]`, and truth is finite or +inf."""
        for num_envs in (1, 4):
            scene = self.scene(self.cfg, num_envs=num_envs)
            self.run(scene, 2)
            sensor = scene["subject"]
            for data, what in ((sensor.data, "data"), (sensor.ground_truth, "ground_truth"), (sensor.read(), "read()")):
                for spec in sensor.specs:
                    value = data if sensor.single else getattr(data, spec.name)
                    where = f"{what}.{spec.name}"
                    shape = (num_envs, *spec.shape)
                    self.need(isinstance(value, torch.Tensor), "a field is a tensor", where)
                    self.need(tuple(value.shape) == shape, f"the shape is {shape}, got {tuple(value.shape)}", where)
                    self.need(value.dtype == TORCH_DTYPES[spec.dtype], f"the dtype is {spec.dtype}", where)
                    if value.is_floating_point():
                        self.need(not bool(value.isnan().any()), "nothing is NaN", where)
            self.need(sensor.valid.shape == (num_envs,), "valid is [env]", "valid")
            self.need(int(sensor.frame.min()) >= 1, "a built sensor has captured", "frame")
            self.need(tuple(sensor.read([0]).__class__.__mro__) != (), "read takes env ids", "read([0])")
        return True

    def declares_what_it_reads(self) -> bool:
        """The sensor reads no array of the engine but those that come with what it requires."""
        engine = self.engine(2)
        declared = set(self.sensor_class.needs(self.cfg, engine.supports, engine))
        array = engine.array

        def guarded(name: str) -> torch.Tensor:
            needed = next((requirement for requirement, names in ARRAYS.items() if name in names), None)
            where = f"engine.array({name!r}) comes with {needed}"
            fix = f"Add sn.{needed} to `requires`."
            self.need(needed is None or needed in declared, "a sensor requires what it reads", where, fix)
            return array(name)

        engine.array = guarded  # type: ignore[method-assign]
        self.run(self.scene(self.cfg, engine=engine), 2)
        return True

    def leaves_the_engine_alone(self) -> bool:
        """Neither a hook nor a reader writes into the arrays of the engine."""
        engine, twin = self.engine(2), self.engine(2)
        required = self.sensor_class.needs(self.dirty, engine.supports, engine)
        names = sorted({name for requirement in required for name in ARRAYS.get(requirement, ())})
        if not names:
            return False
        scene, empty = self.scene(self.dirty, engine=engine), Scene(twin, reserve=[self.dirty], seed=3)
        for tick in range(1, 4):
            _tick(scene)
            _tick(empty)
            _look_around(scene["subject"])
            if int(scene["subject"].truth_tick.max()) < scene.tick:
                continue  # nothing was computed, and what the engine shows may be of an earlier tick
            twin.refresh()
            for name in names:
                same = _equal(engine.array(name), twin.array(name))
                self.need(same, "a sensor leaves the engine as it is", f"{name} differs at tick {tick}")
        return True

    def fields_follow_the_config(self) -> bool:
        """One config gives one set of fields, whatever the number of envs, the name and the hour."""
        sensor = self.scene(self.cfg, num_envs=1)["subject"]
        other = self.scene(self.cfg.replace(name="other"), num_envs=4)["other"]
        law = "fields are a function of the config"
        for mine, its in zip(sensor.specs, other.specs, strict=False):
            self.need(mine == its, law, f"{mine.name} is {mine.shape} {mine.dtype}, elsewhere {its.shape} {its.dtype}")
        self.need(len(sensor.specs) == len(other.specs), law, "two sensors of one config")
        self.need(dict(sensor.fields()) == dict(other.fields()), law, "fields() asked again")
        return True

    def raw_is_written_in_place(self) -> bool:
        """The hook that makes the truth writes every element of its records, and reads none of them first."""
        if not self.sensor_class.uses_ring_pipeline:
            return False
        scene = self.scene(self.cfg)
        self.run(scene, 3)
        line = scene["subject"].line
        hook, names = next(
            (hook, names)
            for hook, names in (
                (line.hooks.compute, ("truth", "measured")), (line.hooks.fused, ("raw", "slot")),
                (line.hooks.raw, ("raw",)),
            )
            if hook is not None
        )  # fmt: skip
        call: Callable[..., object] = hook
        timeline = (line.slot_timeline,) if hook == line.hooks.fused else ()
        records = [Record(line.mid_specs, 4, scene.compute.device) for _ in names]
        memories = [states.memory for states in line.custom.values()]
        kept = [memory.clone() for memory in memories]

        def called(filling: int) -> tuple[list[torch.Tensor], object]:
            for memory, before in zip(memories, kept, strict=True):
                memory.copy_(before)
            for record in records:
                for view in record.tensors():
                    view.fill_(_FILLINGS[view.dtype][filling])
            result = call(*records, *timeline)
            return [view.clone() for record in records for _, view in record.items()], result

        first, result = called(0)
        second, third = called(1)[0], called(1)[0]
        fields = [(what, name) for what, record in zip(names, records, strict=True) for name in record]
        for (what, name), a, b, c in zip(fields, first, second, third, strict=True):
            left = (a == _FILLINGS[a.dtype][0]) & (b == _FILLINGS[b.dtype][1])
            where = f"{int(left.sum())} of {left.numel()} elements are as before"
            self.need(not left.any(), unwritten(hook, what, name, result, where), f"{what}.{name}", "See above.")
            where = f"{what}.{name} differs between two calls on one state"
            self.need(_equal(b, c), "a hook is a function of engine and states", where, f"{_LASTS} {_KEYED}")
            fix = "Write with copy_ or [...] = ..., not with add_; what should last is a state of its own."
            self.need(_equal(a, b), "a hook does not read its record before it writes it", f"{what}.{name}", fix)
        return True

    def hooks_work_on_all_envs_at_once(self) -> bool:
        """A hook runs the same lines of Python for few envs as for many: it is called once for all of them."""
        few, many, most = (self._lines(num_envs) for num_envs in (2, 10, 18))
        if many[0] - few[0] < 8 * many[1] or most[0] - many[0] < 8 * most[1]:
            return True
        where = f"{few[0]} lines of Python for 2 envs, {most[0]} for 18, most often {most[2]}"
        self.need(False, "a hook works on all envs at once, without a Python loop over them", where)
        return False

    def _lines(self, num_envs: int) -> tuple[int, int, str]:
        """Return how many lines of the sensor's own code ran in some ticks, for how many samples, and the busiest."""
        scene = self.scene(self.cfg.replace(evaluate="always"), num_envs=num_envs)
        module = self.sensor_class.__module__
        package = module if module.startswith(registry.OURS) else module.partition(".")[0]
        lines: dict[str, int] = {}

        def local(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                lines[place] = lines.get(place, 0) + 1
            return local

        def enter(frame: FrameType, event: str, argument: object) -> Any:
            name = frame.f_globals.get("__name__", "")
            return local if name == package or name.startswith(f"{package}.") else None

        before, samples = sys.gettrace(), scene["subject"].captures.samples
        for _ in range(self.steps):
            sys.settrace(enter)
            try:
                _tick(scene)
            finally:
                sys.settrace(before)
        taken = max(scene["subject"].captures.samples - samples, 1)
        return sum(lines.values()), taken, max(lines, key=lambda place: lines[place], default="")

    def nothing_lasts_in_plain_attributes(self) -> bool:
        """No attribute of the author's own carries anything from one sample to the next."""
        scene = self.scene(self.dirty)
        start = _own_values(scene["subject"])
        self.run(scene, 5)
        later = _own_values(scene["subject"])
        changed = [path for path, value in start.items() if path in later and not _alike(value, later[path])]
        if not changed:
            return True
        expected = self.run(scene, 3)[-1]
        for path in changed:
            twin = self.scene(self.dirty)
            start = _own_values(twin["subject"])
            self.run(twin, 5)
            _put_back(twin["subject"], path, start[path])
            found = self.run(twin, 3)[-1]
            for name in expected:
                self.need(_equal(expected[name], found[name]), "no plain attribute lasts between samples",
                          f"self.{path} changes {name}")  # fmt: skip
        return True

    def post_process_only_projects(self) -> bool:
        """`post_process` returns the declared shapes and dtypes and leaves its input as it is."""
        scene = self.scene(self.dirty)
        sensor = scene["subject"]
        post = sensor.line.hooks.post
        if post is None:
            return False

        def watched(data: Record, timeline: Any, *, is_measured: bool) -> Any:
            before = {name: view.clone() for name, view in data.items()}
            value = post(data, timeline, is_measured=is_measured)
            for name, view in data.items():
                self.need(_equal(before[name], view), "post_process does not write into data", f"data.{name}")
            fields = as_fields(value, sensor.line.specs)
            for spec in sensor.line.specs:
                where = f"{spec.name} is {tuple(fields[spec.name].shape)} {fields[spec.name].dtype}"
                right = tuple(fields[spec.name].shape) == (scene.num_envs, *spec.shape)
                right = right and fields[spec.name].dtype == TORCH_DTYPES[spec.dtype]
                expected = f"{(scene.num_envs, *spec.shape)} {spec.dtype}"
                self.need(right, "post_process returns what the fields declare", f"{where}, expected {expected}")
            return value

        sensor.line.hooks.post = watched
        sensor.at_reset = None
        scene._arrange()
        self.run(scene, 3)
        return True

    def reading_changes_nothing(self) -> bool:
        """Two reads in a row are equal, and no way of reading moves a later number."""
        scene = self.scene(self.dirty)
        self.run(scene, 3)
        shot = _snapshot(scene["subject"])
        _look_around(scene["subject"])
        self.same(shot, _snapshot(scene["subject"]), "two reads in a row are equal", "data")
        curious, absent = self.scene(self.dirty), self.scene(self.dirty)
        for _ in range(self.steps):
            _tick(curious)
            _tick(absent)
            _look_around(curious["subject"])
        law = "reading never moves a later number"
        self.same(_snapshot(curious["subject"]), _snapshot(absent["subject"]), law, "every tick against once")
        return True

    def same_seed_same_numbers(self) -> bool:
        """The same seed gives the same bits."""
        for a, b in zip(self.run(self.scene(self.dirty)), self.run(self.scene(self.dirty)), strict=True):
            self.same(a, b, "the same seed gives the same bits", "two runs")
        return True

    def env_count_does_not_matter(self) -> bool:
        """Env 1 of 2 equals env 1 of 6."""
        few, many = (self.run(self.scene(self.dirty, num_envs=n))[-1] for n in (2, 6))
        self.same(
            few, {k: v[:2] for k, v in many.items()}, "an env does not depend on how many there are", "2 and 6 envs"
        )
        return True

    def mounts_do_not_matter(self) -> bool:
        """The truth of a mount is the same alone and beside another one."""
        if self.own_engine or not isinstance(self.cfg, MountedSensorCfg):
            return False
        selector = self.cfg.selector[0]

        def truth(**mounts: Any) -> dict[str, torch.Tensor]:
            scene = self.scene(self.cfg.replace(**{selector: None, **mounts}))
            self.run(scene, 3)
            return _fields(scene["subject"], truth=True)

        pair = ("body", WORLD)
        try:
            both = truth(bodies=pair)
        except ConfigError:  # it takes no list of bodies
            return False
        for k, body in enumerate(pair):
            for name, alone in truth(body=body).items():
                beside = both[name][:, k]
                same = _equal(alone, beside)
                if not same and alone.is_floating_point():  # sums may be rounded in another order
                    same = torch.allclose(alone, beside, rtol=1e-5, atol=1e-5 * float(alone.abs().max()))
                where = f"{name} of {body!r}, alone and in bodies={pair}"
                self.need(same, "a mount does not depend on the others", where)
        return True

    def other_sensors_do_not_matter(self) -> bool:
        """A twin under another name changes nothing."""
        alone = self.run(self.scene(self.dirty))[-1]
        beside = self.run(self.scene(self.dirty.replace(name="other"), self.dirty))[-1]
        self.same(alone, beside, "other sensors change nothing", "with and without a twin")
        return True

    def lazy_equals_eager(self) -> bool:
        """Evaluated on read or at each due tick: the same bits."""
        auto = self.run(self.scene(self.cfg), read_every=4)
        always = self.run(self.scene(self.cfg.replace(evaluate="always")), read_every=4)
        for a, b in zip(auto, always, strict=True):
            self.same(a, b, "lazy and eager evaluation agree", 'evaluate="auto" against "always"')
        return True

    def truth_is_never_altered(self) -> bool:
        """Truth does not see noise, bias, walk, quantisation, delay or loss."""
        if self.dirty is self.cfg:
            return False
        scene = self.scene(self.dirty)
        sensor = scene["subject"]
        line = sensor.line
        line.hooks.physics = self._watched(line.hooks.physics, line.truth)
        line.hooks.hardware = self._watched(line.hooks.hardware, line.truth)
        line.hooks.derive = self._watched(line.hooks.derive, line.truth)
        sensor.at_reset = None
        scene._arrange()
        self.run(scene, 3)
        clean, dirty = self.scene(self.cfg.replace(stages=())), self.scene(self._disturbed())
        for _ in range(self.steps):
            _tick(clean)
            _tick(dirty)
            a, b = _fields(clean["subject"], truth=True), _fields(dirty["subject"], truth=True)
            self.same(a, b, "truth is never altered by an imperfection", "ground_truth")
        return True

    def _disturbed(self) -> SensorCfg[Any]:
        """Return the config with knobs, and with the measured branch of vectors moved before the transform."""
        names = [name for name, spec in _chained(self.scene(self.cfg)["subject"]).items() if spec.kind == "vector"]
        if not names:
            return self.dirty
        stages: tuple[StageCfg, ...] = getattr(self.dirty, "stages", ())
        step = SpikeFault(fields=tuple(names), start=0.0, duration=None, amount=1.0, place="physics")
        return self.dirty.replace(stages=(*stages, step))

    def _watched(self, hook: Callable[..., object] | None, truth: Record) -> Callable[..., object] | None:
        """Return a hook that fails where the truth changes while it runs."""
        if hook is None:
            return None

        def watched(*args: Any) -> None:
            before = {name: view.clone() for name, view in truth.items()}
            hook(*args)
            for name, view in truth.items():
                where = f"{getattr(hook, '__name__', 'a hook')} changes {name}"
                self.need(_equal(before[name], view), "truth is never altered by an imperfection", where)

        return watched

    def no_time_no_change(self) -> bool:
        """`update(ticks=0)` without an edit draws nothing and adds no history."""
        scene = self.scene(self.dirty)
        self.run(scene, 5)
        before = _snapshot(scene["subject"])
        scene.update(ticks=0)
        self.same(before, _snapshot(scene["subject"]), "an update without time changes nothing", "update(ticks=0)")
        twin = self.scene(self.dirty)
        self.run(twin, 5)
        self.same(
            self.run(scene, 4)[-1], self.run(twin, 4)[-1], "an update without time leaves no trace", "4 ticks later"
        )
        return True

    def reset_leaves_the_others(self) -> bool:
        """A reset of env 2 leaves the other envs bit-identical, at once and later."""
        others = [0, 1, 3]
        sensor = self.scene(self.dirty)["subject"]
        for cfg in (self.dirty, *self._slower(sensor)):  # a reset between samples must not give the others one
            touched, twin = self.scene(cfg), self.scene(cfg)
            self.run(touched, 5)
            self.run(twin, 5)
            touched.reset([2])
            for k in range(4):
                a, b = _snapshot(touched["subject"]), _snapshot(twin["subject"])
                rows = {name: value[others] for name, value in a.items()}
                expected = {name: value[others] for name, value in b.items()}
                where = f"{k} ticks after, a sample every {sensor.rate.period if cfg is self.dirty else 3} ticks"
                self.same(rows, expected, "a reset leaves the other envs as they are", where)
                _tick(touched)
                _tick(twin)
        return True

    def _slower(self, sensor: Sensor[Any, Any]) -> list[SensorCfg[Any]]:
        """Return the config with a sample every third tick; nothing where it has a rate already, or refuses one."""
        if not sensor.rate.every_tick:
            return []
        try:
            return [self.dirty.replace(update_period=3 * sensor.clock.dt, rate_hz=None)]
        except ConfigError:
            return []

    def nothing_old_after_reset(self) -> bool:
        """After a reset of env 2 its numbers do not depend on what came before, in any branch."""
        kept, spoilt = self._after_reset(spoil=False), self._after_reset(spoil=True)
        for k, (a, b) in enumerate(zip(kept, spoilt, strict=True)):
            rows = [{name: value[[2]] for name, value in shot.items()} for shot in (a, b)]
            self.same(rows[0], rows[1], "a reset sets every state anew", f"{k} ticks after")
        if self.own_engine:
            return True
        runs = []
        for shift in (0.0, 5.0):  # two pasts
            engine = tumbling_engine(4, shift=shift)
            scene = self.scene(self.dirty, engine=engine)
            self.run(scene, 5)
            _set_motion(engine, tumbling_engine(4))  # one future
            engine.forward()
            scene.reset([2])
            shots = [_snapshot(scene["subject"])]
            self.need(int(scene["subject"].frame[2]) == 1, "the capture at a reset is number 1", "frame")
            self.need(float(scene["subject"].age[2]) == 0.0, "a reading right after a reset is of the new state", "age")
            shots += self.run(scene, 6)
            runs.append(shots)
        for k, (a, b) in enumerate(zip(*runs, strict=True)):
            rows = [{name: value[[2]] for name, value in shot.items()} for shot in (a, b)]
            self.same(rows[0], rows[1], "nothing from before a reset shows after it", f"{k} ticks after")
        return True

    def _after_reset(self, spoil: bool) -> list[dict[str, torch.Tensor]]:
        """Return what is shown from a reset of env 2 on, where all its states may hold something odd before."""
        scene = self.scene(self.dirty)
        self.run(scene, 5)
        line = scene["subject"].line
        for states in (*line.custom.values(), *(run.states for run in line.stages)) if spoil else ():
            states.memory[2] = states.backup[2] = 7.25
        scene.reset([2])
        return [_snapshot(scene["subject"]), *self.run(scene, 4)]

    def resuming_is_exact(self) -> bool:
        """A fresh scene that loads a state goes on with the same bits."""
        scene = self.scene(self.dirty)
        self.run(scene, 5)
        saved = scene.state()
        expected = self.run(scene, 5)
        fresh = self.scene(self.dirty)
        fresh.load_state(saved)
        for a, b in zip(expected, self.run(fresh, 5), strict=True):
            self.same(a, b, "resuming from a state is exact", "load_state")
        return True

    def setters_reach_only_their_envs(self) -> bool:
        """Setting a knob for env 1 changes env 1 alone."""
        if self.dirty is self.cfg:
            return False
        tables = self.scene(self.dirty)["subject"].line.knobs.tables
        for knob, value in (("noise", 5.0), ("bias", 3.0), ("resolution", 0.5), ("delay", 0.0)):
            fields = [name for known, name in tables if known == knob]
            if knob != "delay" and not fields:
                continue
            amount = value if knob == "delay" else dict.fromkeys(fields, value)
            touched, twin = self.scene(self.dirty), self.scene(self.dirty)
            touched["subject"].set(knob, amount, env_ids=[1])
            a, b = self.run(touched)[-1], self.run(twin)[-1]
            for name in a:
                rows = [0, 2, 3]
                self.need(_equal(a[name][rows], b[name][rows]), f"set({knob!r}, env_ids=[1]) reaches env 1 alone", name)
            works = [scene["subject"].line.work for scene in (touched, twin)]  # post_process may hide what changed
            changed = knob == "delay" or any(not _equal(works[0][name][1], works[1][name][1]) for name in fields)
            self.need(changed, f"set({knob!r}, env_ids=[1]) changes env 1", ", ".join(fields))
        return True

    def delay_invents_nothing(self) -> bool:
        """A delayed sensor shows only values it has captured, and says so before the first one arrives."""
        if self.dirty is self.cfg:
            return False
        prompt_cfg = self.cfg.replace(delay=None, jitter=None, loss=None)
        prompt = self.scene(prompt_cfg)
        late = self.scene(prompt_cfg.replace(delay=3 * prompt.engine.dt))
        if not late["subject"].rate.every_tick:
            return False
        captured, valid = [_fields(prompt["subject"])], [prompt["subject"].valid]
        for tick in range(1, 8):
            _tick(prompt)
            _tick(late)
            captured.append(_fields(prompt["subject"]))
            valid.append(prompt["subject"].valid)
            shown = captured[max(tick - 3, 0)]
            self.same(_fields(late["subject"]), shown, "a delayed reading is one that was captured", f"tick {tick}")
            expected = valid[tick - 3] if tick >= 3 else torch.zeros_like(valid[0])
            arrived = _equal(late["subject"].valid, expected)
            self.need(arrived, "valid is False until the first arrival", f"tick {tick}")
        return True

    def config_round_trip(self) -> bool:
        """The config is the same after JSON and TOML."""
        for cfg in (self.cfg, self.dirty):
            self.need(type(cfg).from_json(cfg.to_json()) == cfg, "a config survives JSON", "to_json")
            self.need(type(cfg).from_toml(cfg.to_toml()) == cfg, "a config survives TOML", "to_toml")
        return True

    def errors_name_the_field(self) -> bool:
        """An unknown field is refused by name."""
        try:
            self.cfg.replace(no_such_field=1)
        except ConfigError as error:
            self.need("no_such_field" in str(error), "an error names the field", "unknown field")
            return True
        self.need(False, "an unknown field is refused", "replace(no_such_field=1)")
        return False


_FILLINGS: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (-1.2345e-33, 5.4321e33),
    torch.float64: (-1.2345e-33, 5.4321e33),
    torch.int32: (-1518500250, 1518500249),
    torch.int64: (-1518500250, 1518500249),
    torch.int16: (-23170, 23169),
    torch.uint8: (165, 90),
    torch.bool: (False, True),
}
"""What records hold before a hook is tried: what keeps both was not written."""


def _look_around(sensor: Sensor[Any, Any]) -> None:
    """Read everything that a reader can ask for."""
    for _ in range(2):
        _snapshot(sensor)
        sensor.read([0])
        list(sensor.debug_draw())
        repr((sensor, sensor.info, sensor.data, sensor.ground_truth))


def _own_values(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return copies of the numbers, tensors and arrays in attributes of the author's own, by path.

    What the pipeline keeps is left out: it is reset, saved and restored.
    """
    saved = [tensor.untyped_storage() for tensor in sensor.tensors().values()]
    spans = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in saved]
    saves_numbers = type(sensor).counters is not Sensor.counters

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
            if not saves_numbers:
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


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _equal(a, b)
    if isinstance(a, wp.array) and isinstance(b, wp.array):
        return _alike(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and str(a) == str(b)


def _put_back(sensor: Sensor[Any, Any], path: str, value: Any) -> None:
    """Give an attribute an earlier value, in place where it has memory of its own."""
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


def _chained(sensor: Sensor[Any, Any]) -> dict[str, FieldSpec]:
    return {name: spec for name, (_, spec) in sensor.line.knobs.specs.items()}


def _tick(scene: Scene) -> None:
    """Take one tick, whoever owns the time."""
    if scene.engine.owns_time:
        scene.step(None, 1)
    else:
        scene.step(None, 1) if isinstance(scene.engine, TensorEngine) else scene.update()


def _set_motion(engine: TensorEngine, other: TensorEngine) -> None:
    engine.motion = other.motion


def _fields(sensor: Sensor[Any, Any], truth: bool = False) -> dict[str, torch.Tensor]:
    data = sensor.read_ground_truth() if truth else sensor.read()
    return {spec.name: data if sensor.single else getattr(data, spec.name) for spec in sensor.specs}


def _snapshot(sensor: Sensor[Any, Any]) -> dict[str, torch.Tensor]:
    """Return copies of all a reader can see."""
    shot = {f"data.{name}": value for name, value in _fields(sensor).items()}
    shot |= {f"ground_truth.{name}": value for name, value in _fields(sensor, truth=True).items()}
    for name in ("valid", "age", "frame", "is_new"):
        shot[name] = getattr(sensor, name).clone()
    if sensor.cfg.history_length and not sensor.own_history:
        history = sensor.history
        shot |= {
            f"history.{spec.name}": history if sensor.single else getattr(history, spec.name) for spec in sensor.specs
        }
        shot["history_valid"] = sensor.history_valid
    return shot


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit equality that takes NaN for itself."""
    return a.shape == b.shape and np.array_equal(a.cpu().numpy(), b.cpu().numpy(), equal_nan=a.is_floating_point())


__all__ = ["ContractError", "EngineFactory", "check_sensor", "tumbling_engine"]
