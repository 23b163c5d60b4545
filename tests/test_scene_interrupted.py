"""Interrupted calls of a scene: the scene continues from a consistent tick, or names the call that restores it.

An interrupted scene is compared with an uninterrupted twin: the same ticks, the same episodes, bit for bit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from selection import gate, pairs

import sensorium as sn
from sensorium import Field, Record, SimpleSensor, SimpleSensorCfg, Timeline
from sensorium.compute import program
from sensorium.measurement.stage_cfg import Place
from sensorium.stages import StageCfg

ERRORS = (RuntimeError("a fault"), KeyboardInterrupt())


def _name(value: object) -> str | None:
    """Return the id of an error; None for other values, which pytest names."""
    return type(value).__name__ if isinstance(value, BaseException) else None


EITHER = pytest.mark.parametrize("error", ERRORS, ids=_name)
WHAT_TO_CALL = r"was interrupted by (RuntimeError \(a fault\)|KeyboardInterrupt) at tick \d+.*scene\.reset\(\)"


class Trap:
    """Raises an error on the next call of the named hook."""

    where = ""
    error: BaseException = ERRORS[0]

    @classmethod
    def check(cls, where: str) -> None:
        if cls.where == where:
            cls.where = ""
            raise cls.error

    @classmethod
    def set(cls, where: str, error: BaseException) -> None:
        cls.where, cls.error = where, error


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    Trap.where = ""


class TrapStage(StageCfg):
    """Adds noise and half of its previous addition; its hooks call `Trap.check`."""

    place: Place = "noise"

    def state_specs(self, fields: Mapping[str, Any]) -> Mapping[str, tuple[int, ...]]:
        return {"kept": (3,)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: Any) -> None:
        Trap.check("stage apply")
        state["kept"].mul_(0.5).add_(key.normal("kept", "vec"))
        Trap.check("stage apply, done")
        slot.vec += state["kept"]

    def reset(self, state: Mapping[str, torch.Tensor], key: Any) -> None:
        Trap.check("stage reset")
        state["kept"].masked_fill_(key.mask[:, None] > 0, 0.0)


class TrapCfg(SimpleSensorCfg[syn.ProbeData]):
    """A sensor whose every hook calls `Trap.check`."""


class TrapSensor(SimpleSensor[TrapCfg, syn.ProbeData]):
    requires = (sn.engines.BODY_POSE,)
    lookback = 1

    def fields(self) -> Mapping[str, Field]:
        declared = super().fields()
        return {name: declared[name] for name in ("vec",)}

    def intermediate_fields(self) -> Mapping[str, Field]:
        return self.fields()

    def setup(self) -> None:
        self._sum = self.new_state("sum", (3,))

    def update_raw_data(self, raw: Record) -> None:
        Trap.check("update_raw_data")
        self._sum += self.engine.array("body_pos_w")[:, 0]
        raw.vec.copy_(self.engine.array("body_pos_w")[:, 0])
        Trap.check("update_raw_data, done")

    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        Trap.check("apply_physics_imperfections")
        slot.vec += 0.001 * self._sum

    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        Trap.check("apply_transform")
        data.vec.copy_(0.5 * data.vec + 0.5 * timeline.previous("vec", now=data.vec))

    def apply_hardware_imperfections(self, slot: Record) -> None:
        Trap.check("apply_hardware_imperfections")
        self.standard_chain(slot)

    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Mapping[str, torch.Tensor]:
        Trap.check("post_process")
        return {"vec": data.vec + 0.1 * timeline.at(0).vec}

    def reset_state(self, env_mask: torch.Tensor) -> None:
        Trap.check("reset")
        self._sum[env_mask > 0] = 1.0


class TrapFusedCfg(SimpleSensorCfg[syn.ProbeData]):
    """A sensor with truth and measured value from a single hook."""


class TrapFused(SimpleSensor[TrapFusedCfg, syn.ProbeData]):
    requires = (sn.engines.BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        return {"vec": super().fields()["vec"]}

    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        Trap.check("update_current_timestep_data")
        raw.vec.copy_(self.engine.array("body_pos_w")[:, 0])
        slot.vec.copy_(raw.vec + self.key.normal("shake", "vec"))


class TrapComputeCfg(SimpleSensorCfg[syn.ProbeData]):
    """A sensor with full control."""


class TrapCompute(sn.Sensor[TrapComputeCfg, syn.ProbeData]):
    requires = (sn.engines.BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        return {"vec": super().fields()["vec"]}

    def compute(self, truth: Record, measured: Record) -> None:
        Trap.check("compute")
        truth.vec.copy_(self.engine.array("body_pos_w")[:, 0])
        measured.vec.copy_(truth.vec + 1.0)


class TrapLazyCfg(SimpleSensorCfg[syn.ProbeData]):
    """A sensor with truth only, computed on read."""


class TrapLazy(SimpleSensor[TrapLazyCfg, syn.ProbeData]):
    requires = (sn.engines.BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        return {"vec": super().fields()["vec"]}

    def update_raw_data(self, raw: Record) -> None:
        Trap.check("lazy")
        raw.vec.copy_(self.engine.array("body_pos_w")[:, 0])


def sensors() -> list[Any]:
    """Return the sensors with traps among others, at several rates."""
    rest = syn.menagerie()
    return [
        *rest[:4],
        TrapCfg(name="trap", noise={"vec": 0.1}, stages=(TrapStage(fields=("vec",)),), history_length=2, delay=0.02),
        TrapFusedCfg(name="fused", history_length=2),
        TrapComputeCfg(name="compute", history_length=3),
        TrapLazyCfg(name="lazy"),
        TrapLazyCfg(name="slow_lazy", update_period=0.02, evaluate="on_read"),
        syn.ScalarCfg(name="on_demand", update_period=0.03, noise=0.1, evaluate="wanted"),
        syn.ScalarCfg(name="always", noise=0.1, evaluate="always"),
        *rest[4:],
    ]


FEW = ("noisy", "kernel", "trap", "lazy", "on_demand", "always", "bursts", "ramp", "cast")


SOME = (*FEW, "fused", "compute", "slow_lazy")
ALL = tuple(cfg.name for cfg in sensors())


def pair(*names: str) -> tuple[sn.Scene, sn.Scene]:
    """Return two scenes with the sensors of the given names, after three ticks."""
    cfgs = [cfg for cfg in sensors() if cfg.name in (names or SOME)]
    scenes = syn.world(cfgs), syn.world(cfgs)
    for scene in scenes:
        syn.advance(scene, 3)
        read(scene)
    return scenes


@pytest.fixture(scope="module")
def kept() -> list[tuple[sn.Scene, sn.Scene]]:
    """The pair of `twins` between tests."""
    return []


@pytest.fixture
def twins(kept: list[tuple[sn.Scene, sn.Scene]], request: pytest.FixtureRequest) -> Iterator[tuple[sn.Scene, sn.Scene]]:
    """Two scenes with the sensors of `SOME` in the same state, for tests that keep their sensors and hooks.

    A pair serves all these tests until one fails.
    """
    scene, twin = kept.pop() if kept else pair()
    failed = request.session.testsfailed
    start_again(scene, twin)
    for each in (scene, twin):
        syn.advance(each, 3)
    assert_same(scene, twin)
    yield scene, twin
    if request.session.testsfailed == failed:
        kept.append((scene, twin))


def read(scene: sn.Scene) -> dict[str, dict[str, np.ndarray]]:
    return {name: syn.snapshot(scene[name]) for name in scene}


def assert_same(scene: sn.Scene, twin: sn.Scene) -> None:
    for name, shot in read(scene).items():
        try:
            syn.same(shot, syn.snapshot(twin[name]))
        except AssertionError as error:
            raise AssertionError(f"sensor {name!r} at tick {scene.tick}: {error}") from None


def go_on(scene: sn.Scene, twin: sn.Scene, ticks: int = 7) -> None:
    """Assert that both scenes agree over some ticks, with a reset of some envs and an evaluation without time."""
    assert_same(scene, twin)
    for k in range(ticks):
        for each in (scene, twin):
            syn.advance(each)
            if k == 2:
                syn.reset(each, [1, 2])
            if k == 4:
                each.update(ticks=0)
        if k % 2:
            assert_same(scene, twin)


def start_again(scene: sn.Scene, twin: sn.Scene) -> None:
    """Start the same episode in both scenes."""
    twin.clock.episode.copy_(scene.clock.episode)  # an interrupted reset may or may not be counted
    for each in (scene, twin):
        each._own_control_steps = False
        syn.reset(each)
        each.clock.begin_control_step()


def refuses(scene: sn.Scene) -> None:
    """Assert that every call except the restoring calls raises with the cause and the call that restores the scene."""
    calls: list[Callable[[], object]] = [
        scene.step, scene.update, lambda: scene.update(ticks=0), scene.publish, scene.state, lambda: scene.reset([0]),
        lambda: scene.add(syn.ScalarCfg(name="late")), lambda: scene.reconfigure("noisy", noise=1.0),
        *(lambda name=name: scene[name].data for name in scene),
        *(lambda name=name: scene[name].valid for name in scene),
        lambda: scene["trap"].reset(), lambda: scene["noisy"].read([1]), lambda: scene["noisy"].set("noise", 1.0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(sn.ScheduleError, match=WHAT_TO_CALL):
            call()


OPERATIONS: dict[str, Callable[[sn.Scene], object]] = {
    "update": lambda scene: syn.advance(scene),
    "step": lambda scene: scene.step(),
    "again": lambda scene: scene.update(ticks=0),
    "reset": lambda scene: syn.reset(scene),
    "reset some": lambda scene: syn.reset(scene, [0, 3]),
    "load_state": lambda scene: scene.load_state(scene.state()),
}


@pytest.mark.parametrize("operation", gate(OPERATIONS, {"reset some", "load_state"}))
def test_interrupt_at_every_segment_boundary_is_recoverable(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt before or after each segment, the scene refuses; after a reset its bits equal its twin's."""
    scene, twin = pair(*FEW)
    work, run = program.Segment.run, OPERATIONS[operation]
    state = {"left": 10**9, "after": 0}

    def interrupted(self: program.Segment) -> None:
        state["left"] -= 1
        if state["left"] == 0 and not state["after"]:
            raise ERRORS[0]
        work(self)
        if state["left"] == 0:
            raise ERRORS[1]

    monkeypatch.setattr(program.Segment, "run", interrupted)
    boundaries = 0
    for after in (False, True):
        for k in range(1, 1000):
            syn.advance(scene, 2)
            syn.advance(twin, 2)
            state.update(left=k, after=after)
            try:
                run(scene)
            except (RuntimeError, KeyboardInterrupt):
                state["left"] = 10**9
            else:
                state["left"] = 10**9
                run(twin)
                assert_same(scene, twin)
                break
            run(twin)
            boundaries += 1
            if k % 10 == 1:
                refuses(scene)
            with pytest.raises(sn.ScheduleError, match=WHAT_TO_CALL):
                scene["noisy"].data  # noqa: B018
            start_again(scene, twin)
            assert_same(scene, twin)
    fewest = {"load_state": 0, "again": 2}.get(operation, 21)  # again: only sensors without memory
    assert boundaries >= fewest
    go_on(scene, twin)


HOOKS = (
    "update_raw_data", "update_raw_data, done", "apply_physics_imperfections", "apply_transform",
    "apply_hardware_imperfections", "post_process", "stage apply", "stage apply, done", "update_current_timestep_data",
    "compute",
)  # fmt: skip


@pytest.mark.parametrize(("hook", "error"), pairs(HOOKS, ERRORS), ids=_name)
def test_error_in_a_hook_is_recoverable(hook: str, error: BaseException, twins: tuple[sn.Scene, sn.Scene]) -> None:
    """The step raises the first cause, which later errors name; a reset or a saved state restores the scene."""
    scene, twin = twins
    saved = twin.state()
    for mend in ("reset", "load_state"):
        Trap.set(hook, error)
        with pytest.raises(type(error)) as caught:
            syn.advance(scene)
        assert caught.value is error
        refuses(scene)
        syn.advance(twin)
        if mend == "reset":
            start_again(scene, twin)
        else:
            scene.load_state(saved)
            twin.load_state(saved)
        go_on(scene, twin)


@pytest.mark.parametrize("hook", ["reset", "stage reset", "update_raw_data"])
@pytest.mark.parametrize(("envs", "error"), pairs([None, [1, 3]], ERRORS), ids=_name)
def test_error_in_a_reset_hook_is_recoverable(
    envs: Any, hook: str, error: BaseException, twins: tuple[sn.Scene, sn.Scene]
) -> None:
    scene, twin = twins
    Trap.set(hook, error)
    with pytest.raises(type(error)):
        syn.reset(scene, envs)
    syn.reset(twin, envs)
    refuses(scene)
    start_again(scene, twin)
    go_on(scene, twin)


@EITHER
def test_error_in_a_sensor_reset_hook_is_recoverable(error: BaseException, twins: tuple[sn.Scene, sn.Scene]) -> None:
    scene, twin = twins
    Trap.set("reset", error)
    with pytest.raises(type(error)):
        scene["trap"].reset([1])
    refuses(scene)
    start_again(scene, twin)
    go_on(scene, twin)


@EITHER
@pytest.mark.parametrize("name", ["lazy", "slow_lazy"])
def test_error_in_a_lazy_read_is_cleared_by_the_next_read(
    name: str, error: BaseException, twins: tuple[sn.Scene, sn.Scene]
) -> None:
    """No memory can be left inconsistent: the next read computes the sample, at this tick or a later tick."""
    scene, twin = twins
    for later in (0, 1, 2):
        for each in (scene, twin):
            syn.advance(each, 2)
        Trap.set("lazy", error)
        with pytest.raises(type(error)):
            scene[name].data  # noqa: B018
        for each in (scene, twin):
            syn.advance(each, later)
        assert_same(scene, twin)
    go_on(scene, twin)


@EITHER
@pytest.mark.parametrize("operation", ["add", "reconfigure"])
def test_failed_capture_leaves_the_scene_unchanged(operation: str, error: BaseException) -> None:
    """The scene stays without the new sensor, or with the old sensor; Ctrl-C leads to a refusal as elsewhere."""
    scene, twin = pair()
    sensor = scene["trap"]
    Trap.set("reset", error)
    with pytest.raises(type(error)):
        if operation == "add":
            scene.add(TrapCfg(name="late"))
        else:
            scene.reconfigure("trap", history_length=3)
    assert "late" not in scene and scene["trap"] is sensor
    if isinstance(error, Exception):
        go_on(scene, twin)
    refuses(scene) if isinstance(error, KeyboardInterrupt) else None
    start_again(scene, twin)
    go_on(scene, twin)


@pytest.mark.parametrize("call", ["step", "refresh", "reset", "count_ticks", "forward", "load_state"])
@pytest.mark.parametrize(("after", "error"), pairs([False, True], ERRORS), ids=_name)
def test_engine_error_is_recoverable(
    after: bool, call: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, twins: tuple[sn.Scene, sn.Scene]
) -> None:
    """The engine raises before or after its work."""
    scene, twin = twins
    work = getattr(scene.engine, call)

    def broken(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        if after:
            work(*args, **kwargs)
        raise error

    monkeypatch.setattr(scene.engine, call, broken)
    run = {
        "refresh": OPERATIONS["update"], "count_ticks": OPERATIONS["update"], "forward": OPERATIONS["again"],
    }.get(call) or OPERATIONS[call]  # fmt: skip
    with pytest.raises(type(error)):
        run(scene)
    refuses(scene)
    if scene.engine.tick > twin.tick:
        syn.advance(twin)
    start_again(scene, twin)
    go_on(scene, twin)


def test_refused_arguments_change_nothing(twins: tuple[sn.Scene, sn.Scene]) -> None:
    """After an invalid control, number of ticks, envs or state, the scene continues as if the call had not occurred."""
    scene, twin = twins
    calls: list[Callable[[], object]] = [
        lambda: scene.step(torch.zeros(4, 3)), lambda: scene.step(substeps=0), lambda: scene.update(ticks=-1),
        lambda: scene.reset([9]), lambda: scene.reset(body_pos_w=torch.zeros(3, 1, 2)),
        lambda: scene.reset(nothing=1.0),
        lambda: scene.load_state({**scene.state(), "seed": 5}), lambda: scene.add(syn.ScalarCfg(name="trap")),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises((sn.SensoriumError, ValueError, KeyError)):
            call()
    go_on(scene, twin)


@EITHER
def test_an_error_in_a_callback_of_watch_leaves_a_consistent_tick(
    error: BaseException, twins: tuple[sn.Scene, sn.Scene]
) -> None:
    scene, twin = twins

    def fail() -> None:
        raise error

    with scene.watch(fail, every_tick=True), pytest.raises(type(error)):
        scene.step(substeps=3)
    assert scene.tick == scene.engine.tick == twin.tick + 1
    twin.step(substeps=1)
    go_on(scene, twin)


def test_failing_sensor_can_be_removed_before_the_reset() -> None:
    """The remaining sensors, of all kinds, are unaffected."""
    scene, twin = pair(*ALL)
    Trap.set("update_raw_data", ERRORS[0])
    with pytest.raises(RuntimeError, match="a fault"):
        syn.advance(scene)
    scene.remove("trap")
    with pytest.raises(sn.ScheduleError, match=WHAT_TO_CALL):
        scene.step()
    syn.advance(twin)
    twin.remove("trap")
    start_again(scene, twin)
    go_on(scene, twin)


@pytest.mark.parametrize("state", gate([None, 3, {}, {"tick": 1}, "state"], [None, {"tick": 1}]))
def test_invalid_state_is_refused(state: Any, twins: tuple[sn.Scene, sn.Scene]) -> None:
    scene, twin = twins
    with pytest.raises(
        sn.ConfigError, match=r"Scene\.load_state\.state: got .*expected the result of scene\.state\(\)"
    ):
        scene.load_state(state)
    for part in ("engine", "sensors"):
        with pytest.raises(sn.ConfigError, match=r"Scene\.load_state\.state"):
            scene.load_state({**scene.state(), part: None})
    go_on(scene, twin)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python ignores some in finalisers
@pytest.mark.parametrize(
    "operation", gate([*OPERATIONS, "read", "add", "publish"], {"reset some", "read", "add", "publish"})
)
def test_ctrl_c_at_any_point_is_recoverable(operation: str) -> None:
    """A reset restores the scene where it refuses; otherwise the scene is at the tick before or after the call.

    Signals are handled at the start of a function and at the return of a C function, so they are raised at many such
    points.
    """
    scene, twin = pair(*FEW)
    added = iter(range(10**6))
    run: Callable[[sn.Scene], object] = {
        "read": lambda each: [each[name].data for name in each],
        "add": lambda each: each.add(syn.KernelProbeCfg(name=f"late{next(added)}", noise={"vec": 0.1}, delay=0.02)),
        "publish": lambda each: each.publish(),
        **OPERATIONS,
    }[operation]
    events = {"count": 0, "at": -1}

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_name != "__del__":  # Python ignores what is raised here
            events["count"] += 1
            if events["count"] == events["at"]:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def interrupted(at: int) -> bool:
        events.update(count=0, at=at)
        sys.setprofile(profile)
        try:
            run(scene)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    def remove_added() -> None:
        for each in (scene, twin):
            for name in [name for name in each if name.startswith("late")]:
                each.remove(name)

    syn.advance(scene)
    syn.advance(twin)
    assert not interrupted(-1)
    total = events["count"]
    run(twin)
    refused = 0
    generator = np.random.default_rng(3)
    for at in sorted({*generator.integers(1, total, 40).tolist(), *range(1, 12), *range(total - 15, total)}):
        for each in (scene, twin):
            syn.advance(each)
        before = scene.tick
        if not interrupted(at):
            run(twin)
            continue
        try:
            scene.publish()
        except sn.ScheduleError as error:
            refused += 1
            assert "KeyboardInterrupt" in str(error) and "scene.reset()" in str(error)
            remove_added()
            if scene.engine.tick > twin.tick:
                syn.advance(twin)
        else:
            if scene.tick > before and operation in ("update", "step"):
                run(twin)
            remove_added()
        start_again(scene, twin)
        assert_same(scene, twin)
    remove_added()
    go_on(scene, twin)
    assert refused or operation in ("read", "publish")


# Threads --------------------------------------------------------------------------------------------------------------


def test_reading_while_another_thread_steps_is_refused() -> None:
    """The message names both threads and `publish`; the step is not disturbed."""
    scene, twin = pair()
    inside, done = threading.Event(), threading.Event()
    raw = TrapCompute.compute

    def waits(self: Any, truth: Record, measured: Record) -> None:
        if not done.is_set():
            inside.set()
            assert done.wait(120.0)
        raw(self, truth, measured)

    scene["compute"].buffers.plan.hooks.compute = lambda truth, measured: waits(scene["compute"], truth, measured)
    scene.arrange()
    errors: list[BaseException] = []
    stepper = threading.Thread(target=lambda: syn.advance(scene), name="owner")
    stepper.start()
    assert inside.wait(120.0)
    try:
        for call in (
            lambda: scene["lazy"].data, lambda: scene["trap"].data, lambda: scene.publish(), lambda: scene.step(),
            lambda: scene.reset(), lambda: scene.state(), lambda: scene.add(syn.ScalarCfg(name="late")),
        ):  # fmt: skip
            with pytest.raises(sn.ScheduleError, match=r"'MainThread' uses.*'owner'.*scene\.publish\(\)"):
                call()
    finally:
        done.set()
        stepper.join()
    assert not errors
    syn.advance(twin)
    go_on(scene, twin)


def test_scene_can_be_used_by_threads_in_turn(twins: tuple[sn.Scene, sn.Scene]) -> None:
    scene, twin = twins
    for _ in range(3):
        threads = [threading.Thread(target=lambda: (syn.advance(scene), read(scene))) for _ in range(2)]
        for thread in threads:
            thread.start()
            thread.join()
        syn.advance(scene)
        for _ in range(2):
            syn.advance(twin)
            read(twin)
        syn.advance(twin)
        assert_same(scene, twin)


def test_concurrent_reads_return_values_or_raise() -> None:
    """Readers raise no other error, and the owner's step fails in no other way."""
    scene = syn.world(sensors())
    stop, foreign = threading.Event(), []

    def reads() -> None:
        while not stop.is_set():
            try:
                for name in ("lazy", "noisy", "trap", "kernel"):
                    scene[name].read()
            except sn.ScheduleError as error:
                assert "publish" in str(error)
            except BaseException as error:
                foreign.append(error)
                return

    threads = [threading.Thread(target=reads) for _ in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(60):
            try:
                syn.advance(scene)
            except sn.ScheduleError as error:
                assert "publish" in str(error)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    assert not foreign
