"""`check_sensor` checks a sensor against the rules of the author's contract, each a method."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from typing import Any

import torch

from sensorium.compute.program import Segment
from sensorium.engines.base import ARRAYS
from sensorium.errors import ConfigError, NonFiniteStateWarning, UnsupportedError
from sensorium.measurement.plan import is_recorded
from sensorium.measurement.record import TORCH_DTYPES, Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg, SensorCfg
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.measurement.stages.faults import SpikeFault
from sensorium.measurement.work import SensorWork, as_fields
from sensorium.scene import Scene
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.trial import HookError, declared_only, unwritten
from sensorium.testing.engine import EngineFactory, tumbling_engine
from sensorium.testing.trial import (
    KEYED,
    LASTS,
    ContractError,
    Trial,
    equal,
    fields_of,
    own_values,
    read_all,
    restore_value,
    snapshot,
    streamed,
    take_tick,
    unpacked,
    ways_to_read,
)
from sensorium.world.select import WORLD


class Rules(Trial):
    """Each method returns False if it does not apply, and raises `ContractError` if the rule is broken."""

    def declares_what_it_reads(self) -> bool:
        """The sensor reads only those arrays of the engine that its requirements provide."""
        engine = self.engine(2)
        declared = tuple(self.sensor_class.needs(self.cfg, engine, engine.supports))
        with declared_only(engine, declared, self.sensor_class.__name__):
            self.run(self.scene(self.cfg, engine=engine), 2)
        return True

    def leaves_the_engine_alone(self) -> bool:
        """Neither a hook nor a reader writes to the arrays of the engine."""
        engine, twin = self.engine(2), self.engine(2)
        required = self.sensor_class.needs(self.dirty, engine, engine.supports)
        names = sorted({name for requirement in required for name in ARRAYS.get(requirement, ())})
        if not names:
            return False
        scene, empty = self.scene(self.dirty, engine=engine), Scene(twin, reserve=[self.dirty], seed=3)
        for tick in range(1, 4):
            take_tick(scene)
            take_tick(empty)
            read_all(scene["subject"])
            if int(scene["subject"].truth_tick.max()) < scene.tick:
                continue  # nothing was computed, and the engine's arrays may be of an earlier tick
            twin.refresh()
            for name in names:
                same = equal(engine.array(name), twin.array(name))
                self.need(same, "a sensor does not change the engine", f"{name} differs at tick {tick}")
        return True

    def shapes_and_dtypes(self) -> bool:
        """Every field has the shape, dtype and device of its spec, `[env, ...]`, and truth is finite or +inf."""
        for num_envs in (1, 4):
            sensor = self.clean(num_envs)["subject"]
            for _ in range(2):
                take_tick(self.clean(num_envs))
                snapshot(sensor)
            last = torch.arange(num_envs, device=sensor.device) == num_envs - 1
            for data, what, rows in (
                (sensor.data, "data", num_envs), (sensor.ground_truth, "ground_truth", num_envs),
                (sensor.read(), "read()", num_envs), (sensor.read([0]), "read([0])", 1),
                (sensor.read(last), "read(mask of one env)", 1),
            ):  # fmt: skip
                length = self.cfg.history_length if self.shows_history and what != "ground_truth" else 0
                values = unpacked(sensor, data, length)
                for spec in sensor.specs:
                    value = values[spec.name]
                    where = f"{what}.{spec.name}"
                    shape = (rows, *((length,) if length else ()), *spec.shape)
                    self.need(isinstance(value, torch.Tensor), "a field is a tensor", where)
                    self.need(tuple(value.shape) == shape, f"the shape is {shape}, got {tuple(value.shape)}", where)
                    self.need(value.dtype == TORCH_DTYPES[spec.dtype], f"the dtype is {spec.dtype}", where)
                    if value.is_floating_point():
                        self.need(not bool(value.isnan().any()), "nothing is NaN", where)
            self.need(sensor.valid.shape == (num_envs,), "valid is [env]", "valid")
            self.need(int(sensor.frame.min()) >= 1, "a built sensor has captured", "frame")
        return True

    def fields_follow_the_config(self) -> bool:
        """The fields depend only on the config, not on the number of envs, the name or the time."""
        sensor = self.clean(1)["subject"]
        other = self.scene(self.cfg.replace(name="other"), num_envs=4)["other"]
        rule = "fields are a function of the config"
        for mine, its in zip(sensor.specs, other.specs, strict=False):
            self.need(mine == its, rule, f"{mine.name} is {mine.shape} {mine.dtype}, elsewhere {its.shape} {its.dtype}")
        self.need(len(sensor.specs) == len(other.specs), rule, "two sensors of one config")
        self.need(dict(sensor.fields()) == dict(other.fields()), rule, "fields() asked again")
        return True

    def same_seed_same_numbers(self) -> bool:
        """The same seed gives the same bits."""
        for a, b in zip(self.reference.shots, self.run(self.scene(self.dirty)), strict=False):
            self.same(a, b, "the same seed gives the same bits", "two runs")
        return True

    def nothing_lasts_in_plain_attributes(self) -> bool:
        """No plain attribute of the author's class carries state from one sample to the next."""
        changed = self.reference.own
        if not changed:
            return True
        expected = self.reference.shots[7]
        for path in changed:
            twin = self.scene(self.dirty)
            start = own_values(twin["subject"])[path]
            self.run(twin, 5)
            restore_value(twin["subject"], path, start)
            found = self.run(twin, 3)[-1]
            for name in expected:
                self.need(equal(expected[name], found[name]), "no plain attribute lasts between samples",
                          f"self.{path} changes {name}")  # fmt: skip
        return True

    def raw_is_written_in_place(self) -> bool:
        """The hook that computes the truth writes every element of its records, and does not read them first."""
        if not self.sensor_class.uses_ring_pipeline:
            return False
        scene = self.clean(4)
        buffers = scene["subject"].buffers
        hooks = buffers.plan.hooks
        hook, names = next(
            (hook, names)
            for hook, names in (
                (hooks.compute, ("truth", "measured")), (hooks.fused, ("raw", "slot")), (hooks.raw, ("raw",)),
            )
            if hook is not None
        )  # fmt: skip
        call: Callable[..., object] = hook
        timeline = (buffers.slot_timeline,) if hook == hooks.fused else ()
        records = [Record(buffers.plan.mid_specs, 4, scene.compute.device) for _ in names]
        memories = list(buffers.custom.values())
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
            where = f"{int(left.sum())} of {left.numel()} elements are unchanged"
            self.need(not left.any(), unwritten(hook, what, name, result, where), f"{what}.{name}", "See above.")
            where = f"{what}.{name} differs between two calls on one state"
            self.need(equal(b, c), "a hook is a function of engine and states", where, f"{LASTS} {KEYED}")
            fix = "Write with copy_ or [...] = ..., not with add_; keep persistent values in a state."
            self.need(equal(a, b), "a hook does not read its record before it writes it", f"{what}.{name}", fix)
        return True

    def hooks_work_on_all_envs_at_once(self) -> bool:
        """A hook runs the same lines of Python for few envs as for many, since it is called once for all of them."""
        few, many = self.lines_run(2), self.lines_run(10)
        if many[0] - few[0] >= 8 * many[1]:
            most = self.lines_run(18)
            where = f"{few[0]} lines of Python for 2 envs, {most[0]} for 18, most often {most[2]}"
            rule = "a hook works on all envs at once, without a Python loop over them"
            self.need(most[0] - many[0] < 8 * most[1], rule, where)
        return True

    def post_process_only_projects(self) -> bool:
        """`post_process` returns the declared shapes and dtypes and does not modify its input."""
        if self.clean(4)["subject"].buffers.plan.hooks.post is None:
            return False
        scene = self.scene(self.dirty)
        sensor = scene["subject"]
        post = sensor.buffers.plan.hooks.post
        assert post is not None

        def watched(data: Record, timeline: Any, *, is_measured: bool) -> Any:
            before = {name: view.clone() for name, view in data.items()}
            value = post(data, timeline, is_measured=is_measured)
            for name, view in data.items():
                self.need(equal(before[name], view), "post_process does not write into data", f"data.{name}")
            fields = as_fields(value, sensor.buffers.plan.specs)
            for spec in sensor.buffers.plan.specs:
                where = f"{spec.name} is {tuple(fields[spec.name].shape)} {fields[spec.name].dtype}"
                right = tuple(fields[spec.name].shape) == (scene.num_envs, *spec.shape)
                right = right and fields[spec.name].dtype == TORCH_DTYPES[spec.dtype]
                expected = f"{(scene.num_envs, *spec.shape)} {spec.dtype}"
                self.need(right, "post_process returns the declared fields", f"{where}, expected {expected}")
            return value

        sensor.buffers.plan.hooks.post = watched
        scene.arrange()
        self.run(scene, 3)
        return True

    def reading_changes_nothing(self) -> bool:
        """Two reads in a row are equal, and no pattern of reads changes a later value, over resets of some envs."""
        curious, absent = self.scene(self.dirty), self.scene(self.dirty)
        ways, draw = ways_to_read(curious), random.Random(0)
        for tick in range(1, self.steps + 1):
            for scene in (curious, absent):
                take_tick(scene)
                if tick % 5 == 4:  # a later episode starts unread, too
                    scene.reset([tick % 4])
            for read in draw.sample(ways, draw.randint(0, len(ways))):
                read()
            if tick == 3:
                shot = snapshot(curious["subject"])
                read_all(curious["subject"])
                self.same(shot, snapshot(curious["subject"]), "two reads in a row are equal", "data")
        rule = "reading never changes a later value"
        self.same(snapshot(curious["subject"]), snapshot(absent["subject"]), rule, "random reads against none")
        return True

    def env_count_does_not_matter(self) -> bool:
        """Env 1 of 2 equals env 1 of 6, and both equal that of the reference, of 4."""
        few, many = (self.run(self.scene(self.dirty, num_envs=n))[-1] for n in (2, 6))
        rule = "an env does not depend on the number of envs"
        self.same(few, many, rule, "2 and 6 envs", slice(2))
        self.same(few, self.last, rule, "2 and 4 envs", slice(2))
        return True

    def mounts_do_not_matter(self) -> bool:
        """The truth of a mount is the same with and without other mounts."""
        moving = [name for name in self.engine(1).names("body") if name != WORLD]
        if not isinstance(self.cfg, MountedSensorCfg) or not moving:
            return False
        selector = self.cfg.selector[0]

        def truth(**mounts: Any) -> dict[str, torch.Tensor]:
            scene = self.scene(self.cfg.replace(**{selector: None, **mounts}))
            self.run(scene, 3)
            return fields_of(scene["subject"], truth=True)

        pair = (moving[0], WORLD)
        try:
            both = truth(bodies=pair)
        except (ConfigError, UnsupportedError):  # the config accepts no list of bodies, or not these
            return False
        for k, body in enumerate(pair):
            for name, alone in truth(body=body).items():
                beside = both[name][:, k]
                same = equal(alone, beside)
                if not same and alone.is_floating_point():  # sums may be rounded in another order
                    same = torch.allclose(alone, beside, rtol=1e-5, atol=1e-5 * float(alone.abs().max()))
                where = f"{name} of {body!r}, alone and in bodies={pair}"
                self.need(same, "a mount does not depend on the others", where)
        return True

    def other_sensors_do_not_matter(self) -> bool:
        """A second sensor with another name has no effect."""
        beside = self.run(self.scene(self.dirty.replace(name="other"), self.dirty))[-1]
        self.same(self.last, beside, "other sensors change nothing", "with and without a twin")
        return True

    def lazy_equals_eager(self) -> bool:
        """Evaluation on read and at each due tick gives the same bits."""
        scene = self.scene(self.cfg)
        if not scene["subject"].buffers.plan.is_lazy:
            return False
        auto = self.run(scene, read_every=4)
        always = self.run(self.scene(self.cfg.replace(evaluate="always")), read_every=4)
        for a, b in zip(auto, always, strict=True):
            self.same(a, b, "lazy and eager evaluation agree", 'evaluate="auto" against "always"')
        return True

    def truth_is_never_altered(self) -> bool:
        """Noise, bias, walk, quantisation, delay and loss do not affect the truth."""
        if self.dirty is self.cfg:
            return False
        clean, dirty = self.scene(self.cfg.replace(stages=())), self.scene(self._disturbed())
        buffers = dirty["subject"].buffers
        for name in ("physics", "hardware", "derive"):
            setattr(buffers.plan.hooks, name, self._watched(getattr(buffers.plan.hooks, name), buffers.truth))
        dirty.arrange()
        for _ in range(self.steps):
            take_tick(clean)
            take_tick(dirty)
            a, b = fields_of(clean["subject"], truth=True), fields_of(dirty["subject"], truth=True)
            self.same(a, b, "truth is never altered by an imperfection", "ground_truth")
        return True

    def _disturbed(self) -> SensorCfg[Any]:
        """Return the config with knobs, and with an offset on the measured branch of vectors before the transform."""
        if not self.vectors:
            return self.dirty
        stages: tuple[StageCfg, ...] = getattr(self.dirty, "stages", ())
        step = SpikeFault(fields=self.vectors, start=0.0, duration=None, amount=1.0, place="physics")
        return self.dirty.replace(stages=(*stages, step))

    def _watched(self, hook: Callable[..., object] | None, truth: Record) -> Callable[..., object] | None:
        """Return a hook that fails if the truth changes while it runs."""
        if hook is None:
            return None

        def watched(*args: Any) -> None:
            before = {name: view.clone() for name, view in truth.items()}
            hook(*args)
            for name, view in truth.items():
                where = f"{getattr(hook, '__name__', 'a hook')} changes {name}"
                self.need(equal(before[name], view), "truth is never altered by an imperfection", where)

        return watched

    def no_time_no_change(self) -> bool:
        """`update(ticks=0)` without an edit draws no noise and adds no history; with memory the sample is held."""
        self.same(snapshot(self._paused["subject"]), self.reference.shots[8],
                  "an update without time has no later effect", "4 ticks later")  # fmt: skip
        return True

    @cached_property
    def _paused(self) -> Scene:
        """Scene at tick 9, after an update without time at tick 5."""
        scene = self.ran(self.dirty, 5)
        before = snapshot(scene["subject"])
        scene.update(ticks=0)
        self.same(before, snapshot(scene["subject"]), "an update without time changes nothing", "update(ticks=0)")
        self.run(scene, 4)
        return scene

    def reset_leaves_the_others(self) -> bool:
        """A reset of env 2 leaves the other envs bit-identical, immediately and later."""
        sensor, shots = self.reference.scene["subject"], self.reference.shots[4:8]
        rule, others = "a reset leaves the other envs unchanged", [0, 1, 3]
        rate = f", a sample every {sensor.rate.period} ticks"
        self.same_runs(self._cleanly_reset, shots, rule, others, rate)
        for cfg in self._slower(sensor):  # a reset between samples must not give the others one
            twin = self.ran(cfg, 5)
            shots = [snapshot(twin["subject"]), *self.run(twin, 3)]
            self.same_runs(self._after_reset(cfg), shots, rule, others, ", a sample every 3 ticks")
        return True

    def _slower(self, sensor: Sensor[Any, Any]) -> list[SensorCfg[Any]]:
        """Return the config with a sample every third tick; empty if it has a rate already, or rejects one."""
        if not sensor.rate.every_tick:
            return []
        try:
            return [self.dirty.replace(update_period=3 * sensor.clock.dt, rate_hz=None)]
        except ConfigError:
            return []

    def recorded_hooks_follow_rows(self) -> bool:
        """A kernel of a recorded hook writes the envs of its `rows`: a launch may be for some envs, and masked."""
        hooks = self.clean(4)["subject"].buffers.plan.hooks
        if not any(is_recorded(hook) for hook in (getattr(hooks, each.name) for each in fields(hooks)) if hook):
            return False
        scene = self.ran(self.cfg, 1)
        sensor, compute = scene["subject"], scene.compute
        memory = {name: view for name, view in sensor.tensors().items() if view.shape[:1] == (4,)}
        earlier = {name: view.clone() for name, view in memory.items()}
        take_tick(scene)
        scene.engine.refresh()

        def written(mask: torch.Tensor, pieces: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
            """Return the memory before and after a sample of the envs of a mask, in pieces, by recorded hooks only."""
            for name, view in memory.items():
                view.copy_(earlier[name])
                if name.startswith(("truth/0/", "slot/0/", "work/0/")):
                    view[[0, 1, 3]] = _FILLINGS[view.dtype][0]
            before = {name: view.clone() for name, view in memory.items()}
            for segment in SensorWork(sensor.buffers, mask).before_chain():
                if isinstance(segment, Segment):
                    segment.run_in_pieces(pieces)
            return before, {name: view.clone() for name, view in memory.items()}

        _, whole = written(compute.all_envs, 1)
        compute.reset_envs.copy_(torch.tensor([0, 0, 1, 0], device=compute.reset_envs.device))
        before, after = written(compute.reset_envs, 4)
        compute.reset_envs.zero_()
        rule = "a kernel writes the envs of its rows, and no others"
        for name in memory:
            self.need(equal(after[name][2], whole[name][2]), rule, f"a launch for env 2 alone, {name}")
            self.need(equal(after[name][[0, 1, 3]], before[name][[0, 1, 3]]), rule, f"{name} of the other envs")
        return True

    def nothing_old_after_reset(self) -> bool:
        """After a reset of env 2 its values do not depend on earlier ones, in any branch."""
        spoiled = self._after_reset(self.dirty, spoil=True)
        self.same_runs(self._cleanly_reset, spoiled, "a reset sets every state", [2])
        if self.own_engine:
            return True
        runs = []
        for shift in (0.0, 5.0):  # two pasts
            engine = tumbling_engine(4, shift=shift)
            scene = self.scene(self.dirty, engine=engine)
            self.run(scene, 5)
            engine.motion = tumbling_engine(4).motion  # one future
            engine.forward()
            scene.reset([2])
            shots = [snapshot(scene["subject"])]
            self.need(int(scene["subject"].frame[2]) == 1, "the capture at a reset is number 1", "frame")
            self.need(float(scene["subject"].age[2]) == 0.0, "a reading right after a reset shows the new state", "age")
            shots += self.run(scene, 6)
            runs.append(shots)
        self.same_runs(runs[0], runs[1], "nothing from before a reset shows after it", [2])
        return True

    @cached_property
    def _cleanly_reset(self) -> list[dict[str, torch.Tensor]]:
        """Values of the config with knobs after five ticks and a reset of env 2."""
        return self._after_reset(self.dirty)

    def _after_reset(self, cfg: SensorCfg[Any], spoil: bool = False) -> list[dict[str, torch.Tensor]]:
        """Return the values after a reset of env 2, optionally with spoiled states before it."""
        scene = self.ran(cfg, 5)
        buffers = scene["subject"].buffers
        stages = [state for run in buffers.stages for state in run.states.values()]
        for state in (*buffers.custom.values(), *stages) if spoil else ():
            state[2] = 7.25
        scene.reset([2])
        return [snapshot(scene["subject"]), *self.run(scene, 4)]

    def resuming_is_exact(self) -> bool:
        """A new scene that loads a state continues with the same bits."""
        scene, fresh = self._paused, self.scene(self.dirty)
        fresh.load_state(scene.state())
        rule = "resuming from a state is exact"
        for expected, a, b in zip(self.reference.shots[9:14], self.run(scene, 5), self.run(fresh, 5), strict=True):
            self.same(expected, a, rule, "state")
            self.same(expected, b, rule, "load_state")
        return True

    def setters_reach_only_their_envs(self) -> bool:
        """Setting a knob for one env changes only this env, for each knob."""
        if self.dirty is self.cfg:
            return False
        twin, shots = self.reference.scene["subject"], self.reference.shots
        amounts = {"noise": 5.0, "bias": 3.0, "resolution": 0.5, "delay": 0.0}
        fields = {knob: [name for known, name in twin.buffers.knobs.tables if known == knob] for knob in amounts}
        given = [{knob: 1} for knob in amounts if fields[knob]] or [{}]
        given[0]["delay"] = 3
        for rows in given:
            touched = self.scene(self.dirty)
            for knob, env in rows.items():
                value = amounts[knob]
                amount = value if knob == "delay" else dict.fromkeys(fields[knob], value)
                touched["subject"].set(knob, amount, env_ids=[env])
            works: list[dict[str, torch.Tensor]] = []
            a, b = self.run(touched, len(shots), works=works)[-1], shots[-1]
            others = [env for env in range(4) if env not in rows.values()]
            where = ", ".join(f"set({knob!r}, env_ids=[{env}])" for knob, env in rows.items())
            for name in a:
                self.need(equal(a[name][others], b[name][others]), f"{where} reaches no other env", name)
            for knob, env in rows.items():
                changed = any(  # compared before post_process, which may hide the change
                    not equal(mine[name][env], its[name][env])
                    for mine, its in zip(works, self.reference.works, strict=True)
                    for name in fields[knob]
                )
                done = f"set({knob!r}, env_ids=[{env}]) changes env {env}"
                self.need(knob == "delay" or changed, done, ", ".join(fields[knob]))
        return True

    def delay_invents_nothing(self) -> bool:
        """A delayed sensor shows only captured values, and is not valid before the first one arrives."""
        if self.dirty is self.cfg:
            return False
        if not self.clean(4)["subject"].rate.every_tick:
            return False
        prompt_cfg = self.cfg.replace(delay=None, jitter=None, loss=None)
        if self.shows_history:  # history is never delayed
            prompt_cfg = prompt_cfg.replace(history_length=0)
        prompt = self.scene(prompt_cfg)
        late = self.scene(prompt_cfg.replace(delay=3 * prompt.engine.dt))
        captured, valid = [fields_of(prompt["subject"])], [prompt["subject"].valid]
        for tick in range(1, 8):
            take_tick(prompt)
            take_tick(late)
            captured.append(fields_of(prompt["subject"]))
            valid.append(prompt["subject"].valid)
            shown = captured[max(tick - 3, 0)]
            self.same(fields_of(late["subject"]), shown, "a delayed reading is one that was captured", f"tick {tick}")
            expected = valid[tick - 3] if tick >= 3 else torch.zeros_like(valid[0])
            arrived = equal(late["subject"].valid, expected)
            self.need(arrived, "valid is False until the first arrival", f"tick {tick}")
        return True

    def config_round_trip(self) -> bool:
        """The config is unchanged by a round trip through JSON and TOML."""
        for cfg in (self.cfg, self.dirty):
            self.need(type(cfg).from_json(cfg.to_json()) == cfg, "a config survives JSON", "to_json")
            self.need(type(cfg).from_toml(cfg.to_toml()) == cfg, "a config survives TOML", "to_toml")
        return True

    def streams_as_it_is(self) -> bool:
        """A listener in another process gets every bit, of all environments and of some, and a plain description."""
        scene = self._paused
        described = scene.description().sensors["subject"]
        try:
            described = json.loads(json.dumps(described))
        except (TypeError, ValueError) as error:
            self.need(False, "constants are plain data", f"constants: {error}")
        reading = scene.publish(["subject"], truth=True)["subject"]
        offsets = reading.offsets
        for first, end, truth in ((0, 4, True), (1, 3, False)):
            data = streamed(reading, described, first, end - first, truth)
            rows = slice(first, end)
            events = rows if offsets is None else slice(int(offsets[first]), int(offsets[end]))
            branches = [("measured", data.measured, reading.measured)]
            self.need(bool(data.truth) is truth, "a listener gets the truth if it asks for it", "truth")
            if data.truth:
                branches.append(("true", data.truth, reading.truth))
            for branch, seen, values in branches:
                for spec in reading.specs:
                    own, its = values[spec.name][events if spec.is_ragged else rows], seen[spec.name]
                    same = own.dtype == its.dtype and own.tobytes() == its.tobytes()
                    self.need(same, "a listener gets the same bits", f"{branch} {spec.name} of envs {first}..{end - 1}")
        return True

    def errors_name_the_field(self) -> bool:
        """An unknown field is rejected by name."""
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
"""Fill values of records before a hook is called: an element that keeps both was not written."""

RULES = tuple(name for name in vars(Rules) if not name.startswith("_"))
"""Names of all rules, in their order."""


def check_sensor(
    subject: type[Sensor[Any, Any]] | type[SensorCfg[Any]] | SensorCfg[Any],
    engine: EngineFactory | None = None,
    *,
    steps: int = 12,
) -> list[str]:
    """Check one sensor against the contract and return the names of the checked rules.

    Args:
        subject: a config, or a sensor or config class that can be built with its defaults (one with a mount gets
            ``body="body"``; a class may define ``example() -> cfg`` instead).
        engine: function that creates the engine for a number of envs; by default `tumbling_engine`.
        steps: ticks per run.

    Raises:
        ContractError: a rule is broken.
    """
    cfg = _example(subject)
    try:
        check = Rules(cfg, engine or tumbling_engine, steps, own_engine=engine is not None)
        done = []
        for rule in RULES:
            check.rule = rule
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", ".* every preset of kind")  # rules give arbitrary noise
                if getattr(check, rule)():
                    done.append(rule)
    except HookError as error:
        raise ContractError(str(error), error.rule) from error
    except NonFiniteStateWarning as warning:
        raise ContractError(f"{type(cfg).__name__}: {warning}", "shapes_and_dtypes") from warning
    return done


def _example(subject: Any) -> SensorCfg[Any]:
    if isinstance(subject, SensorCfg):
        return subject
    cfg_class: Any = subject.cfg_class if isinstance(subject, type) and issubclass(subject, Sensor) else subject
    for owner in (subject, cfg_class):
        if hasattr(owner, "example"):
            made: SensorCfg[Any] = owner.example()
            return made
    built: SensorCfg[Any] = cfg_class(body="body") if issubclass(cfg_class, MountedSensorCfg) else cfg_class()
    return built
