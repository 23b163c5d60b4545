"""The order of the pipeline: effects on truth, compounding, casts, delays, and rejected configs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import synthetic as syn
import torch
import warp as wp
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record, Sensor, SimpleSensor, SimpleSensorCfg
from sensorium.spec import resolve_field

# Truth ----------------------------------------------------------------------------------------------------------------


def clean(cfg: Any) -> Any:
    """Return a config of the same sensor without imperfections."""
    keep = ("name", "fields", "alpha", "update_period", "rate_hz")
    return type(cfg)(**{name: getattr(cfg, name) for name in keep if name in cfg.model_fields_set})


def test_truth_is_independent_of_every_feature() -> None:
    """Truth is bit for bit that of a clean twin, for any config, also across a reset."""
    scenes = [syn.world(cfgs) for cfgs in (syn.menagerie(), [clean(cfg) for cfg in syn.menagerie()])]
    for k in range(9):
        for scene in scenes:
            if k == 5:
                syn.reset(scene, [2])
            syn.advance(scene)
        for name in scenes[0]:
            measured, twin = (syn.snapshot(scene[name]) for scene in scenes)
            for field in (key for key in measured if key.startswith("truth.")):
                assert syn.bits(measured[field]) == syn.bits(twin[field]), f"{name}.{field} at tick {k + 1}"


def test_truth_is_independent_of_feature_combinations() -> None:
    """Truth is the raw value, to the bit, under every pair of settings and stages, and under all but one."""
    parts: dict[str, dict[str, Any]] = {
        "n": {"noise": 0.5}, "b": {"bias": 1.0}, "w": {"random_walk": 0.5}, "r": {"resolution": 0.3},
        "d": {"delay": 0.02}, "l": {"loss": 0.5}, "h": {"history_length": 2},
        "s": {"stages": (sn.stages.ScaleError(scale=0.1),)},
    }  # fmt: skip
    cfgs = []
    for size in (0, 1, 2, len(parts) - 1, len(parts)):
        for chosen in itertools.combinations(parts, size):
            given = {key: value for letter in chosen for key, value in parts[letter].items()}
            cfgs.append(syn.ProbeCfg(name="p" + "".join(chosen), **given))
    scene = syn.world(cfgs, num_envs=3)
    syn.advance(scene, 3)
    for name in scene:
        scene[name].read()
        assert torch.equal(scene[name].ground_truth.vec, syn.signal(3, 3)), name


# The contract of the hooks --------------------------------------------------------------------------------------------

STEPS = 8
DT = 0.01


def expected(alpha: float, num_envs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true and measured values [tick, env, 8] of `Contract`."""
    s = np.stack([syn.signal(k, num_envs)[:, :1].double().numpy() for k in range(STEPS + 1)])
    physics, element = syn.PHYSICS.double().numpy(), syn.ELEMENT.double().numpy()
    truth, measured = np.repeat(s, 8, axis=2), s + physics + element
    for k in range(1, STEPS + 1):
        truth[k] = (1 - alpha) * truth[k] + alpha * truth[k - 1]
        measured[k] = (1 - alpha) * measured[k] + alpha * measured[k - 1]
    return truth, measured + syn.HARDWARE.double().numpy()


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize(
    ("ring", "late"),
    [
        ({}, (0, 0)),
        ({"history_length": 3}, (0, 0)),
        ({"delay": 2 * DT}, (2, 2)),
        ({"delay": 2 * DT, "history_length": 3}, (2, 2)),
        ({"delay": 2 * DT, "jitter": DT}, (2, 3)),
        ({"delay": DT / 4}, (0, 0)),
    ],
    ids=["no_ring", "history", "delay", "both", "jitter", "quarter_step"],
)
def test_all_hooks_match_the_reference(alpha: float, ring: dict[str, Any], late: tuple[int, int]) -> None:
    """Physics imperfections compound through a recurrence, hardware imperfections do not; history is not delayed."""
    num_envs = 8
    truth, measured = expected(alpha, num_envs)
    scene = syn.world([syn.ContractCfg(name="c", alpha=alpha, **ring)], num_envs, DT)
    sensor = scene["c"]
    seen = set()
    for k in range(STEPS + 1):
        assert np.array_equal(sensor.ground_truth.x.numpy(), truth[k])
        shown = sensor.capture_tick.numpy()
        lags = k - shown
        assert np.all(lags <= late[1]) and np.all(lags >= min(late[0], k))
        seen |= set(lags[sensor.valid.numpy()].tolist())
        assert np.array_equal(sensor.data.x.numpy(), measured[shown, np.arange(num_envs)])
        if "history_length" in ring:
            for h in range(3):
                assert np.array_equal(sensor.history.x[:, h].numpy(), measured[max(k - h, 0)])
        if k < STEPS:
            syn.advance(scene)
    assert seen == set(range(late[0], late[1] + 1))


def test_hardware_imperfections_are_applied_in_order() -> None:
    """A bias from the standard chain is applied after the transform and before the custom hardware term."""
    scene = syn.world([syn.ContractCfg(name="c", alpha=0.5, bias=0.25)], 1)
    syn.advance(scene, STEPS)
    assert np.array_equal(scene["c"].data.x.numpy(), expected(0.5, 1)[1][STEPS] + 0.25)


@pytest.mark.parametrize("field", ["level", "on"])
def test_cast_outputs_are_delayed(field: str) -> None:
    """A delayed uint8 or bool output is the cast of the value two samples before, in its own dtype."""
    scene = syn.world([syn.CastCfg(name="now"), syn.CastCfg(name="late", delay=0.02, history_length=2)])
    past = [getattr(scene["now"].read(), field)]
    for k in range(1, 12):
        syn.advance(scene)
        past.append(getattr(scene["now"].read(), field))
        late = getattr(scene["late"].data, field)
        assert late.dtype == {"level": torch.uint8, "on": torch.bool}[field]
        assert torch.equal(late, past[max(k - 2, 0)])
        assert torch.equal(getattr(scene["late"].history, field)[:, 1], past[k - 1])
    level = (syn.signal(11, 4)[:, :2].to(torch.int64) % 256).to(torch.uint8)
    assert torch.equal(past[11], {"level": level, "on": level[:, 0] % 2 == 0}[field])


def test_post_process_keeps_memory_per_branch() -> None:
    """In post_process `timeline.at(0)` is the previous output of the same branch, and zero before the first."""
    scene = syn.world([syn.CastCfg(name="c", noise=1.0)])
    for k in range(5):
        assert scene["c"].data.count.tolist() == scene["c"].ground_truth.count.tolist() == [k + 1.0] * 4
        syn.advance(scene)


def test_kernel_and_torch_hooks_agree() -> None:
    """A recorded kernel and a torch hook of the same value give the same measured bits."""
    knobs: dict[str, Any] = {"noise": {"vec": 0.1, "quat": 0.01}, "random_walk": {"speed": 0.1}, "delay": 0.02}
    both = (syn.ProbeCfg(name="p", fields=syn.ALL_FIELDS, **knobs), syn.KernelProbeCfg(name="p", **knobs))
    scenes = [syn.world([cfg]) for cfg in both]
    for _ in range(6):
        for scene in scenes:
            syn.advance(scene)
        syn.same(*(syn.snapshot(scene["p"]) for scene in scenes))


def test_ids_and_flags_take_no_noise() -> None:
    """Integers, bools and bytes are never altered by a setting, and a setting for one of them is rejected by name."""
    scene = syn.world([syn.KernelProbeCfg(name="p", noise={"vec": 9.0, "speed": 9.0, "quat": 1.0})])
    syn.advance(scene)
    data, truth = scene["p"].data, scene["p"].ground_truth
    assert all(torch.equal(getattr(data, name), getattr(truth, name)) for name in ("label", "flag", "byte"))
    assert not torch.equal(data.vec, truth.vec)
    for name in ("label", "flag", "byte"):
        with pytest.raises(sn.ConfigError, match=name):
            syn.world([syn.KernelProbeCfg(noise={name: 1.0})])


def test_static_and_attached_mounts() -> None:
    """A sensor on the world beside a sensor on a body: each reads its own mount, in either order."""
    for order in (1, -1):
        engine = sn.TensorEngine(2)
        cfgs = [sn.ImuCfg(name="fixed", body="world", acceleration="difference", fields=("ang_vel_b",)),
                sn.ImuCfg(name="moving", body="body", acceleration="difference", fields=("ang_vel_b",))]  # fmt: skip
        scene = sn.Scene(engine, cfgs[::order])
        engine.body_ang_vel_w[:] = torch.tensor([1.0, 2.0, 3.0])
        scene.update()
        assert scene["fixed"].data.ang_vel_b.tolist() == [[0.0, 0.0, 0.0]] * 2
        assert scene["moving"].data.ang_vel_b.tolist() == [[1.0, 2.0, 3.0]] * 2


# Full control ---------------------------------------------------------------------------------------------------------


class FullCfg(SimpleSensorCfg[syn.EmaData]):
    """A sensor written by `compute`."""


class Full(Sensor[FullCfg, syn.EmaData]):
    requires = (sn.engines.BODY_POSE,)

    def compute(self, truth: Record, measured: Record) -> None:
        truth.x.copy_(self.engine.array("body_pos_w")[:, 0])
        measured.x.copy_(2.0 * truth.x)


class RecurrentCfg(SimpleSensorCfg[syn.EmaData]):
    """Full control with earlier records."""


class Recurrent(Sensor[RecurrentCfg, syn.EmaData]):
    lookback = 2

    def compute(self, truth: Record, measured: Record) -> None:
        lines = self.timelines
        assert lines[0].at(0) is truth and lines[1].at(0) is measured
        for record, line, step in ((truth, lines[0], 1.0), (measured, lines[1], 10.0)):
            record.x.copy_(line.at(1).x + line.at(2).x + step)


class OwnCfg(SimpleSensorCfg[syn.EmaData]):
    """A sensor with its own memory."""


class Own(Sensor[OwnCfg, syn.EmaData]):
    uses_ring_pipeline = False

    def setup(self) -> None:
        self.set_outputs(*({"x": torch.full((self.num_envs, 3), value)} for value in (1.0, 2.0)))

    def compute(self, truth: Record, measured: Record) -> None:
        pass


def test_compute_hook_has_full_control() -> None:
    """`compute` fills both branches; settings, delay and history still follow it."""
    scene = syn.world([FullCfg(name="f", bias=1.0, delay=0.01, history_length=2)])
    syn.advance(scene, 3)
    assert torch.equal(scene["f"].ground_truth.x, syn.signal(3, 4))
    assert torch.equal(scene["f"].data.x, 2.0 * syn.signal(2, 4) + 1.0)
    assert torch.equal(scene["f"].history.x[:, 0], 2.0 * syn.signal(3, 4) + 1.0)


def test_compute_hook_reads_earlier_records_of_its_episode() -> None:
    """x_k = x_(k-1) + x_(k-2) + step on both branches, without noise, and from zero in each episode."""
    scene = syn.world([RecurrentCfg(name="r", bias=0.5)])
    expected = [1.0, 3.0, 5.0, 9.0, 15.0]  # until two samples exist, the older ones are the first
    for k in range(5):
        assert scene["r"].ground_truth.x[[0, 1, 3]].unique().tolist() == [expected[k]]
        assert scene["r"].data.x[[0, 1, 3]].unique().tolist() == [10.0 * expected[k] + 0.5]
        if k >= 3:
            assert scene["r"].ground_truth.x[2].unique().tolist() == [expected[k - 3]]
        syn.advance(scene)
        if k == 2:
            syn.reset(scene, [2])


def test_post_process_of_a_sensor_with_its_own_memory_is_refused() -> None:
    with pytest.raises(sn.RegistrationError, match="post_process, which is not called"):

        class Never(Own):
            def intermediate_fields(self) -> dict[str, Field]:
                return {}

            def post_process(self, data: Record, timeline: Any, *, is_measured: bool) -> Record:
                return data


def test_sensor_can_use_its_own_memory() -> None:
    """Without the ring pipeline nothing is allocated, its own memory is read, and unsupported options are rejected."""
    scene = syn.world([OwnCfg(name="o")])
    assert scene["o"].data.x.tolist() == [[2.0] * 3] * 4 and scene["o"].ground_truth.x.tolist() == [[1.0] * 3] * 4
    assert scene["o"].nbytes <= 4 * 4
    for knob in ({"noise": 0.1}, {"delay": 0.1}, {"history_length": 2}):
        with pytest.raises(sn.ConfigError, match=next(iter(knob))):
            syn.world([OwnCfg(**knob)])


class FusedCfg(SimpleSensorCfg[syn.EmaData]):
    """Truth and physics noise in one pass."""


class Fused(SimpleSensor[FusedCfg, syn.EmaData]):
    requires = (sn.engines.BODY_POSE,)

    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Any) -> None:
        raw.x.copy_(self.engine.array("body_pos_w")[:, 0])
        slot.x.copy_(raw.x + 0.5)


def test_fused_hook_replaces_raw_and_physics_hooks() -> None:
    """`update_current_timestep_data` writes truth and the measured slot in one pass; the rest follows."""
    scene = syn.world([FusedCfg(name="f", bias=1.0)])
    syn.advance(scene)
    assert torch.equal(scene["f"].ground_truth.x, syn.signal(1, 4))
    assert torch.equal(scene["f"].data.x, syn.signal(1, 4) + 1.5)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_post_process_needs_intermediate_fields() -> None:
    """Defining `post_process` without `intermediate_fields` is a TypeError at class definition, through a mixin too."""

    class NoCfg(SimpleSensorCfg[syn.EmaData]):
        pass

    def post(self: Any, data: Any, timeline: Any, *, is_measured: bool) -> Any:
        return data

    with pytest.raises(TypeError, match="intermediate_fields"):

        class Direct(SimpleSensor[NoCfg, syn.EmaData]):
            post_process = post

    class Mixin:
        post_process = post

    with pytest.raises(TypeError, match="intermediate_fields"):

        class Mixed(Mixin, SimpleSensor[NoCfg, syn.EmaData]):
            pass

    class Child(syn.Cast):  # the parent declared the intermediate space
        post_process = post

    with pytest.raises(TypeError):  # and no pairing happened on the way
        syn.world([NoCfg()])


def test_config_and_sensor_are_paired_by_type() -> None:
    """A config is paired once; a subclass without its own config has no pairing; a second pairing is an error."""

    class Subclass(syn.Probe):
        pass

    assert type(syn.world([syn.ProbeCfg(name="p")])["p"]) is syn.Probe

    with pytest.raises(TypeError, match="already paired"):

        class Second(SimpleSensor[syn.ProbeCfg, syn.ProbeData]):
            pass

    class LoneCfg(SimpleSensorCfg[syn.EmaData]):
        pass

    with pytest.raises(sn.RegistrationError, match="LoneCfg"):
        syn.world([LoneCfg()])

    class HeirCfg(syn.ProbeCfg):
        pass

    assert type(syn.world([HeirCfg(name="heir")])["heir"]) is syn.Probe  # a config without its own sensor


def test_single_requires_one_field() -> None:
    """A `single` sensor has exactly one field; a field without `Field` is rejected by name."""

    class ManyCfg(SimpleSensorCfg[syn.ProbeData]):
        pass

    with pytest.raises(TypeError, match="single"):

        class Many(SimpleSensor[ManyCfg, syn.ProbeData]):
            single = True

    @dataclass(frozen=True, slots=True)
    class Bare:
        y: Annotated[Tensor, "no field"]

    class BareCfg(SimpleSensorCfg[Bare]):
        pass

    with pytest.raises(TypeError, match=r"Bare\.y"):

        class BareSensor(SimpleSensor[BareCfg, Bare]):
            pass


class WriteCfg(SimpleSensorCfg[syn.EmaData]):
    """The way in which the sensor writes its value."""

    how: str = "assign"
    """A way to write a value."""


class Write(SimpleSensor[WriteCfg, syn.EmaData]):
    def update_raw_data(self, raw: Record) -> None:
        if self.cfg.how == "assign":
            raw.x = torch.full((self.num_envs, 3), 5.0)
        elif self.cfg.how == "shape":
            raw.x = torch.zeros(self.num_envs, 2)
        elif self.cfg.how == "typo":
            raw.xx = torch.zeros(self.num_envs, 3)
        else:
            raw.flat[:] = 7.0


def test_assigning_never_loses_the_value() -> None:
    """`raw.x = value` copies into the memory; a wrong shape or an unknown field raises."""
    scene = syn.world([WriteCfg(name="w", bias=1.0), WriteCfg(name="flat", how="flat")])
    record = scene["w"].buffers.truth
    address = record.x.data_ptr()
    scene["w"].data  # noqa: B018
    assert record.x.data_ptr() == address and record.x.tolist() == [[5.0] * 3] * 4
    assert scene["w"].data.x.tolist() == [[6.0] * 3] * 4
    assert scene["flat"].data.x.tolist() == [[7.0] * 3] * 4
    for how, error in (("shape", "ValueError: field 'x' has shape"), ("typo", "AttributeError: unknown field 'xx'")):
        with pytest.raises(sn.RegistrationError, match=error):
            syn.world([WriteCfg(how=how, evaluate="always")])


def test_timeline_depth_is_limited() -> None:
    """`timeline.at(k)` beyond `lookback` raises and names the setting; `previous` starts from `now`."""
    scene = syn.world([syn.ContractCfg(name="c")])
    timeline = scene["c"].buffers.slot_timeline
    assert timeline.at(0) is scene["c"].buffers.slot
    assert torch.equal(timeline.previous("x", now=torch.full((4, 8), 9.0)), torch.full((4, 8), 9.0))
    with pytest.raises(IndexError, match="lookback = 2"):
        timeline.at(2)


def test_retired_sensors_raise_and_their_views_keep_their_values() -> None:
    """After reconfigure or remove, use of the old sensor raises `StaleError`; tensors taken before remain valid."""
    cfgs = [syn.ProbeCfg(name="a", noise=1.0), syn.ProbeCfg(name="b"), syn.ScalarCfg(name="s", delay=0.01)]
    scene = syn.world(cfgs)
    syn.advance(scene)
    old = {name: scene[name] for name in ("a", "b", "s")}
    views = [old["a"].data.vec, old["a"].ground_truth.vec, old["b"].data.vec, old["s"].data]
    before = [view.clone() for view in views]
    scene.reconfigure("a", bias=1.0)
    scene.remove("b")
    scene.reconfigure("s", history_length=2)
    for sensor in old.values():
        for name in ("data", "ground_truth", "history", "valid", "age", "frame", "capture_time", "is_new"):
            with pytest.raises(sn.StaleError):
                getattr(sensor, name)
        for act in (lambda s=sensor: s.set("noise", 1.0), lambda s=sensor: s.read(), lambda s=sensor: s.reset()):
            with pytest.raises(sn.StaleError):
                act()
    syn.advance(scene)
    assert torch.equal(scene["a"].ground_truth.vec, syn.signal(2, 4)) and "b" not in scene
    assert all(torch.equal(view, kept) for view, kept in zip(views, before, strict=True))


def test_a_sensor_removed_at_the_instant_of_a_read_raises() -> None:
    """Sensors that were evaluated together are checked again after one was removed at the same instant."""
    scene = syn.world([syn.ProbeCfg(name=name, bias=0.5) for name in "abc"])
    for _ in range(2):  # sensors that were read before are evaluated together
        syn.advance(scene)
        assert all(torch.equal(scene[name].data.vec, syn.signal(scene.tick, 4) + 0.5) for name in "abc")
    removed = scene["b"]
    scene.remove("b")
    with pytest.raises(sn.StaleError, match="removed"):
        _ = removed.data.vec
    assert torch.equal(scene["c"].data.vec, syn.signal(scene.tick, 4) + 0.5)


@pytest.mark.parametrize("mounts", [1, 3, 4])
def test_mounts_are_not_a_vector_axis(mounts: int) -> None:
    """The Warp twin of a scalar field has a number per mount, also with three or four mounts; vectors are vectors."""
    specs = [resolve_field("range", Field("m"), mounts), resolve_field("pos", Field("m", (3,)), mounts)]
    record = Record(specs, 2, "cpu")
    assert record.warp.range.dtype == wp.float32 and record.warp.range.shape == (2, mounts)
    assert record.warp.pos.dtype == wp.vec3 and record.warp.pos.shape == (2, mounts)
