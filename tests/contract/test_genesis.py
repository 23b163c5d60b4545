"""The guarantees for hooks in the guide on custom sensors, and its worked examples, in this library's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import synthetic as syn
import torch
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.sensors.core.parts import declared_fields
from sensorium.testing import check_sensor, tumbling_engine


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are forgotten after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())


@dataclass(frozen=True, slots=True)
class PosData:
    pos: Annotated[Tensor, sn.Field("m", (3,), frame="world")]


@dataclass(frozen=True, slots=True)
class RowData:
    row: Annotated[Tensor, sn.Field("m", (1,), axes=("column",))]


@dataclass(frozen=True, slots=True)
class HighData:
    high: Annotated[Tensor, sn.Field("1", dtype="bool", kind="flag")]


def mounted(*cfgs: Any, num_envs: int = 4) -> sn.Scene:
    return sn.Scene(tumbling_engine(num_envs), cfgs)


def test_positions_example_of_the_guide() -> None:
    """The example sensor returns the position of its links, `[env, mount, 3]`."""

    class PositionsCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Positions(sn.SimpleSensor[PositionsCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

    one, many = PositionsCfg(name="one", body="body"), PositionsCfg(name="many", bodies="body")
    scene = mounted(one, many)
    scene.step()
    assert scene["one"].data.pos.equal(scene.engine.body_pos_w[:, 0])
    assert scene["many"].data.pos.equal(scene.engine.body_pos_w[:, :1])


def test_a_hook_is_called_once_for_all_mounts_and_envs() -> None:
    """A tick calls the hook once per config, with the memory of all its mounts and environments."""
    calls: list[tuple[int, ...]] = []

    class CountedCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Counted(sn.SimpleSensor[CountedCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)

        def update_raw_data(self, raw: sn.Record) -> None:
            calls.append(tuple(raw.pos.shape))
            raw.pos.copy_(self.mount.pos_w)

    engine = sn.TensorEngine(5, bodies=("a", "b", "c"))
    cfgs = [CountedCfg(name="all", bodies=".*", evaluate="always"), CountedCfg(name="one", body="a", evaluate="always")]
    scene = sn.Scene(engine, cfgs)
    calls.clear()
    for _ in range(3):
        scene.update()
    assert calls == [(5, 3, 3), (5, 1, 3)] * 3


def test_setup_is_called_once_per_sensor() -> None:
    """`setup` is called when the scene is built, for each config, with its parameters available."""
    seen: list[str] = []

    class SetUpCfg(sn.MountedSensorCfg[PosData]):
        pass

    class SetUp(sn.SimpleSensor[SetUpCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)

        def setup(self) -> None:
            seen.append(self.cfg.name)

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

    scene = mounted(SetUpCfg(name="a", body="body"), SetUpCfg(name="b", body="body"))
    scene.step(substeps=3)
    scene.reset([1])
    assert seen == ["a", "b"]


def test_shapes_follow_the_config_and_dtypes_the_fields() -> None:
    """Two sensors of a class differ in shape; dtypes are declared in the data class and need no instance."""
    scene = syn.world([syn.WideCfg(name="few", columns=2), syn.WideCfg(name="many", columns=5), syn.CastCfg(name="c")])
    assert scene["few"].data.x.shape == (4, 2) and scene["many"].data.x.shape == (4, 5)
    assert scene["few"].data.x.dtype == scene["many"].data.x.dtype == torch.float32
    declared = {name: field.dtype for name, field in declared_fields(syn.CastData).items()}
    assert declared == {"level": "uint8", "on": "bool", "count": "float32"}
    for name, dtype in declared.items():
        assert str(getattr(scene["c"].data, name).dtype) == f"torch.{dtype}"


def test_fields_of_a_data_class_share_one_block_of_memory() -> None:
    """Hooks write into contiguous `[env, ...]` views, one per field in order, of a common float32 block."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=syn.ALL_FIELDS)])
    record = scene["p"].buffers.truth
    floats = [record[name] for name in ("vec", "speed", "quat")]
    assert list(record) == list(syn.ALL_FIELDS)
    assert all(view.is_contiguous() and view.shape[0] == 4 for _, view in record.items())
    assert torch.equal(record.flat, torch.cat([view.flatten() for view in floats]))
    assert {view.untyped_storage().data_ptr() for view in floats} == {record.flat.untyped_storage().data_ptr()}


def test_apply_transform_is_called_on_both_branches() -> None:
    """The truth is first, then the measured branch, each with a separate timeline in which `at(0)` is the data."""
    seen: list[tuple[bool, bool]] = []

    class BranchCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Branch(sn.SimpleSensor[BranchCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)
        lookback = 1

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            seen.append((is_measured, data is timeline.at(0)))
            data.pos.add_(100.0 if is_measured else 0.0)

    scene = mounted(BranchCfg(name="b", body="body"))
    seen.clear()
    scene.step(substeps=2)
    assert seen == [(False, True), (True, True)] * 2
    assert torch.equal(scene["b"].data.pos, scene["b"].ground_truth.pos + 100.0)
    lines = scene["b"].buffers
    assert torch.equal(lines.slot_timeline.at(1).pos > 50.0, torch.ones(4, 1, 3, dtype=torch.bool))
    assert not (lines.truth_timeline.at(1).pos > 50.0).any()


def test_rc_element_of_the_guide_does_not_affect_the_truth() -> None:
    """The velocity is rotated into the link's frame on both branches, then filtered on the measured branch."""
    alpha = 0.75

    class RcCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Rc(sn.SimpleSensor[RcCfg, PosData]):
        requires = (sn.engines.BODY_POSE, sn.engines.BODY_VELOCITY)
        lookback = 1

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.lin_vel_w)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            w, xyz = self.mount.quat_w[..., :1], -self.mount.quat_w[..., 1:]
            twice = 2.0 * torch.linalg.cross(xyz, data.pos)
            data.pos.add_(w * twice + torch.linalg.cross(xyz, twice))
            if is_measured:
                data.pos.lerp_(timeline.previous("pos", now=data.pos), alpha)

    scene = mounted(RcCfg(name="rc", body="body", noise=0.1), sn.ImuCfg(name="imu", body="body", fields=("lin_vel_b",)))
    slow = scene["imu"].read().lin_vel_b.double()
    for _ in range(30):
        scene.step()
        local = scene["imu"].read().lin_vel_b
        slow = (1.0 - alpha) * local + alpha * slow
        torch.testing.assert_close(scene["rc"].read_ground_truth().pos, local, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(scene["rc"].buffers.slot.pos[:, 0].double(), slow, rtol=0.0, atol=1e-5)
    assert not scene["rc"].data.pos.equal(scene["rc"].buffers.slot.pos[:, 0])  # noise is added outside the recurrence


def test_threshold_example_of_the_guide() -> None:
    """Values are float inside and bool outside; noise acts on the float, so it can flip the flag but keeps its type."""

    class HighCfg(sn.MountedSensorCfg[HighData]):
        threshold: float = 0.0
        """Height, m."""

    class High(sn.SimpleSensor[HighCfg, HighData]):
        requires = (sn.engines.BODY_POSE,)
        single = True

        def intermediate_fields(self) -> Mapping[str, sn.Field]:
            return {"height": sn.Field("m")}

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.height.copy_(self.mount.pos_w[..., 2])

        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
            return data.height > self.params.threshold

    scene = mounted(HighCfg(name="clean", body="body"), HighCfg(name="biased", body="body", bias={"height": 10.0}))
    seen = set()
    for _ in range(400):
        scene.step()
        expected = scene.engine.body_pos_w[:, 0, 2] > 0.0
        assert scene["clean"].data.equal(expected) and scene["biased"].ground_truth.equal(expected)
        assert scene["biased"].data.all() and scene["biased"].data.dtype == torch.bool
        seen |= set(expected.tolist())
    assert seen == {True, False}


class ClampCfg(sn.MountedSensorCfg[PosData]):
    """Clamps in return space; its memory stays unclamped."""


def clamp_class() -> type[Any]:
    class Clamp(sn.SimpleSensor[ClampCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)
        lookback = 1

        def intermediate_fields(self) -> Mapping[str, sn.Field]:
            return self.fields()

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            data.pos.add_(timeline.previous("pos", now=torch.zeros_like(data.pos)))

        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
            return data.pos.clamp(-0.3, 0.3)

    return Clamp


def test_intermediate_record_is_separate_even_if_spaces_coincide() -> None:
    """A running sum that is clamped for readers continues unclamped in its separate memory."""
    clamp_class()
    scene = mounted(ClampCfg(name="c", body="body"))
    total = scene.engine.body_pos_w[:, 0].clone()
    for _ in range(20):
        scene.step()
        total += scene.engine.body_pos_w[:, 0]
        torch.testing.assert_close(scene["c"].data.pos, total.clamp(-0.3, 0.3))
        torch.testing.assert_close(scene["c"].ground_truth.pos, total.clamp(-0.3, 0.3))
    line = scene["c"].buffers
    assert total.abs().max() > 1.0
    assert line.truth_out.pos.data_ptr() != line.truth.pos.data_ptr()
    assert line.work_out.pos.data_ptr() != line.work.pos.data_ptr()


def test_intermediate_fields_default_to_the_fields() -> None:
    """This holds also where the config determines the fields and their shapes."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "flag")), syn.WideCfg(name="w", columns=5)])
    assert list(scene["p"].intermediate_fields()) == ["vec", "flag"]
    assert scene["w"].intermediate_fields()["x"].shape == (5,)
    for name in ("p", "w"):
        assert scene[name].intermediate_fields() == scene[name].fields()
        assert scene[name].buffers.plan.mid_specs == scene[name].buffers.plan.specs


def test_post_process_sees_each_branch_and_its_own_previous_output() -> None:
    """A lag in return space on the measured branch uses the last two outputs, once per branch and sample."""
    calls: list[bool] = []

    class DspCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Dsp(sn.SimpleSensor[DspCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)
        lookback = 1

        def intermediate_fields(self) -> Mapping[str, sn.Field]:
            return self.fields()

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
            calls.append(is_measured)
            older = timeline.at(0).pos + timeline.at(1).pos
            return 0.5 * data.pos + 0.25 * older if is_measured else data.pos.clone()

    scene = mounted(DspCfg(name="d", body="body"))
    before, expected = torch.zeros(4, 3), 0.5 * scene.engine.body_pos_w[:, 0].clone()  # outputs before the first are 0
    calls.clear()
    for _ in range(10):
        scene.step()
        before, expected = expected, 0.5 * scene.engine.body_pos_w[:, 0] + 0.25 * (before + expected)
        torch.testing.assert_close(scene["d"].data.pos, expected)
        assert scene["d"].ground_truth.pos.equal(scene.engine.body_pos_w[:, 0])
    assert calls == [False, True] * 10


def test_noise_acts_before_post_process() -> None:
    """A bias of one step of the cast shows in the cast output, and in no truth."""
    scene = syn.world([syn.CastCfg(name="clean"), syn.CastCfg(name="biased", bias={"raw": 1.0})])
    syn.advance(scene, 4)
    clean, biased = scene["clean"].read(), scene["biased"].read()
    assert biased.level[:, 0].equal(clean.level[:, 0] + 1) and biased.on.equal(~clean.on)
    assert scene["biased"].ground_truth.level.equal(clean.level)


def test_signal_dependent_noise_example_of_the_guide() -> None:
    """`super()` runs the standard chain; noise in proportion to the signal is added, and is zero for a zero signal."""

    class FloorCfg(sn.SimpleSensorCfg[PosData]):
        pass

    class Floor(sn.SimpleSensor[FloorCfg, PosData]):
        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(torch.tensor([0.0, 1.0, 10.0]).expand(self.num_envs, 3))

        def apply_hardware_imperfections(self, slot: sn.Record) -> None:
            super().apply_hardware_imperfections(slot)
            slot.pos.add_(0.1 * self.key.normal("floor", "pos") * slot.pos.abs())

    num_envs = 40000
    scene = sn.Scene(sn.TensorEngine(num_envs), [FloorCfg(name="plain"), FloorCfg(name="biased", bias=5.0)])
    plain, biased = scene["plain"].data.pos, scene["biased"].data.pos
    assert plain[:, 0].abs().max() == 0.0
    for values, mean in ((plain[:, 1], 1.0), (plain[:, 2], 10.0), (biased[:, 0], 5.0), (biased[:, 2], 15.0)):
        sigma = 0.1 * mean
        assert abs(values.mean().item() - mean) < 5.0 * sigma / num_envs**0.5
        assert abs(values.std().item() / sigma - 1.0) < 5.0 / (2.0 * num_envs) ** 0.5
    assert scene["biased"].ground_truth.pos[0].tolist() == [0.0, 1.0, 10.0]


def test_the_fused_hook_replaces_raw_and_physics() -> None:
    """A single pass gives truth and a noisy phenomenon; the two replaced hooks are not called, all later stages are."""

    class FusedCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Fused(sn.SimpleSensor[FusedCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)

        def update_current_timestep_data(self, raw: sn.Record, slot: sn.Record, timeline: sn.Timeline) -> None:
            raw.pos.copy_(self.mount.pos_w)
            slot.pos.copy_(2.0 * self.mount.pos_w)

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.fill_(99.0)

        def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
            slot.pos.fill_(99.0)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            data.pos.mul_(-1.0)

    scene = mounted(FusedCfg(name="f", body="body", bias=1.0, delay=0.004, history_length=2))
    past = []
    for _ in range(6):
        scene.step()
        past.append(scene.engine.body_pos_w[:, 0].clone())
    assert scene["f"].ground_truth.pos.equal(-past[-1])
    assert scene["f"].data.pos.equal(-2.0 * past[-3] + 1.0)
    assert scene["f"].history.pos[:, 0].equal(-2.0 * past[-1] + 1.0)


def echo_class(*, is_fused: bool) -> type[Any]:
    """Return the config of a sensor with stateful physics noise and a fused hook that only calls the default."""

    class OwnCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Echo(sn.SimpleSensor[OwnCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)
        lookback = 1

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

        def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
            slot.pos.lerp_(timeline.at(1).pos, 0.5).add_(0.25)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            data.pos.mul_(2.0)

    if is_fused:

        class Fused(Echo):
            def update_current_timestep_data(self, raw: sn.Record, slot: sn.Record, timeline: sn.Timeline) -> None:
                super().update_current_timestep_data(raw, slot, timeline)

        registry._pairs[OwnCfg] = Fused
    return OwnCfg


def test_the_default_of_the_fused_hook_mirrors_raw_and_applies_physics_imperfections() -> None:
    """A hook that only calls the default gives the same bits as a sensor without the hook, also after a reset."""
    plain, fused = echo_class(is_fused=False), echo_class(is_fused=True)
    scene = mounted(
        plain(name="plain", body="body", bias=1.0, delay=0.004), fused(name="fused", body="body", bias=1.0, delay=0.004)
    )
    past = 2.0 * scene.engine.body_pos_w[:, 0]
    seen = [past.clone()]
    for k in range(12):
        scene.step()
        if k == 6:
            scene.reset([2])
        for branch in ("data", "ground_truth"):
            assert getattr(scene["fused"], branch).pos.equal(getattr(scene["plain"], branch).pos)
        truth = 2.0 * scene.engine.body_pos_w[:, 0]
        assert scene["fused"].ground_truth.pos.equal(truth)
        seen.append(scene["fused"].buffers.slot.pos[:, 0].clone())
    world = scene.engine.body_pos_w[1, 0]
    before = seen[-2][1]
    torch.testing.assert_close(seen[-1][1], 2.0 * (0.5 * world + 0.5 * before + 0.25))


def test_the_default_hooks_do_nothing() -> None:
    """Hooks that only call `super()` leave both branches as they are; `post_process` returns its input."""

    class QuietCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Quiet(sn.SimpleSensor[QuietCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)
        lookback = 1

        def intermediate_fields(self) -> Mapping[str, sn.Field]:
            return self.fields()

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.pos.copy_(self.mount.pos_w)

        def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
            super().apply_physics_imperfections(slot, timeline)

        def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
            super().apply_transform(data, timeline, is_measured=is_measured)

        def derive_measured(self, slot: sn.Record) -> None:
            super().derive_measured(slot)

        def observe(self) -> None:
            super().observe()

        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Any:
            return super().post_process(data, timeline, is_measured=is_measured)

    scene = mounted(QuietCfg(name="quiet", body="body"))
    for _ in range(3):
        scene.step()
        assert scene["quiet"].data.pos.equal(scene.engine.body_pos_w[:, 0])
        assert scene["quiet"].ground_truth.pos.equal(scene.engine.body_pos_w[:, 0])


@pytest.mark.parametrize("copy", [None, False])
def test_timeline_returns_the_record_itself(copy: bool | None) -> None:
    """`at(0, copy=False)` equals `at(0)`; a copy is refused with the replacement."""
    scene = syn.world([syn.ContractCfg(name="c", alpha=0.5)])
    timeline = scene["c"].buffers.slot_timeline
    assert (timeline.at(0) if copy is None else timeline.at(0, copy=copy)) is scene["c"].buffers.slot
    with pytest.raises(ValueError, match=r"copy: got True, expected False\. Use clone\(\)"):
        timeline.at(0, copy=True)


def test_read_returns_a_data_class_with_its_own_memory() -> None:
    """Every field of the data class equals `data`, for all or some environments, with either name of the ids."""
    scene = mounted(sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b", "lin_vel_b")))
    scene.step(substeps=3)
    sensor = scene["imu"]
    for read, live in ((sensor.read, sensor.data), (sensor.read_ground_truth, sensor.ground_truth)):
        whole, some, named = read(), read([2, 0]), read(envs_idx=[2, 0])
        for copy, rows in ((whole, [0, 1, 2, 3]), (some, [2, 0]), (named, [2, 0])):
            assert type(copy) is sn.ImuData
            assert copy.ang_vel_b.equal(live.ang_vel_b[rows]) and copy.lin_vel_b.equal(live.lin_vel_b[rows])
            assert copy.quat_w is None
        held = whole.ang_vel_b.clone()
        assert held.abs().min() > 0.0
        live.ang_vel_b.zero_()
        assert whole.ang_vel_b.equal(held) and not whole.ang_vel_b.equal(live.ang_vel_b)
        live.ang_vel_b.copy_(held)
    with pytest.raises(sn.ConfigError, match=r"envs_idx: got \[0\], expected no value beside env_ids"):
        sensor.read([1], envs_idx=[0])


@pytest.mark.parametrize("columns", [1, 5])
def test_one_tensor_of_n_scalars(columns: int) -> None:
    """A `single` sensor's data, truth, reads and history are the tensor itself, `[env, N]`."""

    class RowCfg(sn.SimpleSensorCfg[RowData]):
        pass

    class Row(sn.SimpleSensor[RowCfg, RowData]):
        single = True

        def fields(self) -> Mapping[str, sn.Field]:
            return {"row": sn.Field("m", (columns,), axes=("column",))}

        def update_raw_data(self, raw: sn.Record) -> None:
            raw.row.copy_(torch.arange(self.num_envs * columns).view(self.num_envs, columns))

    scene = mounted(RowCfg(name="row", bias=0.5, history_length=2))
    scene.step()
    expected = torch.arange(4.0 * columns).view(4, columns)
    sensor = scene["row"]
    for value, offset in ((sensor.data, 0.5), (sensor.read(), 0.5), (sensor.ground_truth, 0.0)):
        assert type(value) is Tensor and value.equal(expected + offset)
    assert sensor.read_ground_truth([3]).equal(expected[3:]) and sensor.history.shape == (4, 2, columns)


def test_state_persists_between_steps_and_is_reset_per_episode() -> None:
    """A counter and a filter in `new_state` follow the closed recurrence at every sample."""

    class KeptCfg(sn.MountedSensorCfg[PosData]):
        pass

    class Kept(sn.SimpleSensor[KeptCfg, PosData]):
        requires = (sn.engines.BODY_POSE,)

        def setup(self) -> None:
            self.count = self.new_state("count")
            self.mean = self.new_state("mean", (1, 3))

        def update_raw_data(self, raw: sn.Record) -> None:
            self.count.add_(1.0)
            self.mean.add_((self.mount.pos_w - self.mean) / self.count[:, None, None])
            raw.pos.copy_(self.mean)

    scene = mounted(KeptCfg(name="kept", body="body"))
    seen = [scene.engine.body_pos_w[:, 0].double().clone()]
    for k in range(1, 9):
        scene.step()
        seen.append(scene.engine.body_pos_w[:, 0].double().clone())
        mean = torch.stack(seen).mean(dim=0).float()
        torch.testing.assert_close(scene["kept"].data.pos, mean, rtol=0.0, atol=1e-6)
        assert scene["kept"].count.tolist() == [k + 1.0] * 4
    scene.reset([1])
    assert scene["kept"].count.tolist() == [9.0, 1.0, 9.0, 9.0]


FOREIGN = {
    "_update_raw_data": "update_raw_data(self, raw)",
    "_apply_transform": "apply_transform(self, data, timeline, *, is_measured)",
    "_get_return_format": "fields(self)",
    "_update_shared_cache": "compute(self, truth, measured)",
    "_update_shared_ground_truth_cache": "compute(self, truth, measured)",
    "_render_current_state": "render_current_state(self) on sn.RenderedSensor",
    "build": "setup(self)",
    "edit_spec": "MODEL_ELEMENTS",
    "initialize": "setup(self)",
    "update": "observe(self)",
    "_compute_data": "update_raw_data(self, raw)",
    "postprocess_rays": "ray_cast",
    "debug_vis": "debug_draw(self)",
}


@pytest.mark.parametrize("where", ["class", "mixin"])
@pytest.mark.parametrize("name", FOREIGN)
def test_hook_name_of_another_library_is_refused_with_the_native_name(name: str, where: str) -> None:
    """The class definition raises a `TypeError`, also with full control and for a hook from a mixin."""

    class PlainCfg(sn.MountedSensorCfg[PosData]):
        pass

    hook = {name: lambda self, *args, **kwargs: None}
    for base in (sn.SimpleSensor, sn.Sensor):
        bases = (type("Mixin", (), hook), base) if where == "mixin" else (base,)
        with pytest.raises(TypeError) as caught:
            type("Ported", bases, {} if where == "mixin" else hook)
        assert isinstance(caught.value, sn.RegistrationError)
        assert f"Ported defines a hook of another library. {name} is never called: write " in str(caught.value)
        assert FOREIGN[name] in str(caught.value)


def test_all_foreign_hooks_are_reported_together_and_other_helpers_allowed() -> None:
    with pytest.raises(TypeError, match=r"_post_process is never called.* initialize is never called"):
        type("Ported", (sn.SimpleSensor,), {"_post_process": None, "initialize": None})
    type("Free", (sn.SimpleSensor,), {"_helper": None, "update_filter": None, "_build": None, "_update": None})


def test_uses_ring_pipeline_is_true_unless_a_class_says_otherwise() -> None:
    assert sn.Sensor.uses_ring_pipeline and sn.SimpleSensor.uses_ring_pipeline and sn.Imu.uses_ring_pipeline
    assert "uses_ring_pipeline" not in vars(sn.SimpleSensor)


@pytest.mark.parametrize("name", ["with rings", "without"])
def test_uses_ring_pipeline_is_read_once(name: str) -> None:
    """Memory is allocated when the scene is built; later changes of the class attribute do not affect it."""

    class OwnCfg(sn.SimpleSensorCfg[PosData]):
        pass

    class Own(sn.Sensor[OwnCfg, PosData]):
        uses_ring_pipeline = name == "with rings"

        def compute(self, truth: sn.Record, measured: sn.Record) -> None:
            for record in (truth, measured):
                for _, view in record.items():
                    view.fill_(1.0)

        def setup(self) -> None:
            self.set_outputs({"pos": torch.full((self.num_envs, 3), 2.0)})

    scene = syn.world([OwnCfg(name="own")])
    Own.uses_ring_pipeline = not Own.uses_ring_pipeline
    syn.advance(scene, 2)
    assert scene["own"].data.pos.unique().tolist() == [1.0 if name == "with rings" else 2.0]


@pytest.mark.parametrize("knob", ["noise", "bias", "random_walk", "resolution", "delay", "jitter"])
def test_setters_of_the_guide_map_to_set(knob: str) -> None:
    """`set_bias(value, env_ids)` is equivalent to `set("bias", value, env_ids)`."""
    knobs = {"noise": 0.0, "bias": 0.0, "random_walk": 0.0, "resolution": 0.0, "delay": 0.05, "jitter": 0.05}
    scenes = [syn.world([syn.ScalarCfg(name="s", **knobs)]) for _ in range(3)]
    for scene in scenes[:2]:  # so that a jitter of the other settings cannot hide the change
        scene["s"].set("jitter", 0.0)
    scenes[2]["s"].set("jitter", 0.0)
    value = 0.02 if knob in ("delay", "jitter") else 0.7
    getattr(scenes[0]["s"], f"set_{knob}")(value, [1])
    scenes[1]["s"].set(knob, value, env_ids=[1])
    shown: list[list[Tensor]] = [[], [], []]
    for _ in range(12):
        for scene, values in zip(scenes, shown, strict=True):
            syn.advance(scene)
            values.append(scene["s"].read())
    named, plain, untouched = (torch.stack(values) for values in shown)
    assert named.equal(plain)
    assert named[:, [0, 2, 3]].equal(untouched[:, [0, 2, 3]]) and not named[:, 1].equal(untouched[:, 1])


@dataclass(frozen=True, slots=True)
class ProximityData:
    distance: Annotated[Tensor, sn.Field("m", (1,), axes=("one",), role="range")]


class ProximityCfg(sn.MountedSensorCfg[ProximityData]):
    max_range: float = 1.0
    """Largest distance that is reported, m."""


class Proximity(sn.SimpleSensor[ProximityCfg, ProximityData]):
    requires = (sn.engines.BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.distance.copy_(self.mount.pos_w.norm(dim=-1).clamp(max=self.params.max_range)[..., None])


def test_proximity_sensor_of_the_guide() -> None:
    """The distance from the origin is clamped at each sensor's range; imperfections are included."""
    registry.pair(ProximityCfg, Proximity)
    near, far = ProximityCfg(name="near", body="body", max_range=0.2), ProximityCfg(name="far", body="body")
    scene = mounted(near, far)
    for _ in range(50):
        scene.step()
        distance = scene.engine.body_pos_w[:, 0].norm(dim=-1)[:, None]
        torch.testing.assert_close(scene[far].data.distance, distance.clamp(max=1.0))
        torch.testing.assert_close(scene[near].data.distance, distance.clamp(max=0.2))
    away = sn.Scene(sn.TensorEngine(1), [near, far])
    away.engine.body_pos_w[:] = 2.0
    away.update()
    assert away[far].data.distance.tolist() == [[1.0]] and away[near].data.distance.item() == pytest.approx(0.2)
    knobs = {"noise": 0.01, "bias": 0.1, "random_walk": 0.001, "resolution": 0.001, "delay": 0.01, "jitter": 0.004}
    rules = check_sensor(far.replace(**knobs, history_length=3))
    assert {"truth_is_never_altered", "delay_invents_nothing", "reading_changes_nothing"} <= set(rules)
