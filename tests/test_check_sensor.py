"""`check_sensor`: every registered sensor keeps the contract, and violations are found."""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import torch
import warp as wp
from pydantic import field_validator
from selection import gate
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.compute import Rows
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.measurement.stage_cfg import Place
from sensorium.spec import BODY_POSE, Field
from sensorium.testing import ContractError, check_sensor, tumbling_engine
from sensorium.testing.rules import Rules

OURS = [sensor for sensor in registry.registered().values() if sensor.__module__.startswith("sensorium.")]
EVERY_LAW = {
    "declares_what_it_reads", "leaves_the_engine_alone", "shapes_and_dtypes", "fields_follow_the_config",
    "raw_is_written_in_place",
    "hooks_work_on_all_envs_at_once", "nothing_lasts_in_plain_attributes", "reading_changes_nothing",
    "same_seed_same_numbers", "env_count_does_not_matter", "mounts_do_not_matter", "other_sensors_do_not_matter",
    "lazy_equals_eager",
    "truth_is_never_altered", "no_time_no_change", "reset_leaves_the_others", "recorded_hooks_follow_rows",
    "nothing_old_after_reset",
    "resuming_is_exact", "setters_reach_only_their_envs", "delay_invents_nothing", "config_round_trip",
    "streams_as_it_is", "errors_name_the_field",
}  # fmt: skip
"""The rules for a sensor with knobs and without `post_process`, on an engine that `check_sensor` creates."""


@functools.cache
def rules_of_an_imu() -> list[str]:
    return check_sensor(sn.Imu)


def test_every_rule_is_applied() -> None:
    """All of these rules are applied to an IMU."""
    assert set(rules_of_an_imu()) == EVERY_LAW


def test_manual_lists_the_rules_in_order() -> None:
    """The manual has one row per rule, including `post_process_only_projects`."""
    text = (Path(__file__).parents[1] / "docs/extending.md").read_text(encoding="utf-8")
    table = text[text.index("| rule | ") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert set(rows) == EVERY_LAW | {"post_process_only_projects"}
    assert [row for row in rows if row in EVERY_LAW] == rules_of_an_imu()


@pytest.mark.parametrize("sensor_class", OURS, ids=[sensor.__name__ for sensor in OURS])
def test_every_registered_sensor_passes_the_contract(sensor_class: type[Any]) -> None:
    """Each built-in sensor passes with its defaults; sensors that need a special model have their own tests."""
    try:
        cfg = sensor_class.cfg_class(**{"body": "body"} if issubclass(sensor_class.cfg_class, MountedSensorCfg) else {})
        sn.Scene(tumbling_engine(1), [cfg])
    except (sn.ConfigError, sn.UnsupportedError):
        module = sensor_class.__module__.rpartition(".")[2]
        tests = [path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "sensors").glob("test_*.py")]
        assert any(f"{sensor_class.__name__}Cfg(" in text and "check_sensor(" in text for text in tests), module
    else:
        check_sensor(sensor_class)


@pytest.mark.parametrize(
    "cfg",
    [
        sn.ImuCfg(site="site", fields="all", acceleration="difference"),
        sn.ImuCfg(sites="site", rate_hz=333.0, history_length=2),
        sn.ImuCfg(
            body="body",
            gyro_noise_density=1e-3,
            delay=0.004,
            stages=(
                sn.stages.ScaleError(fields=("ang_vel_b",), scale=sn.Normal(0, 0.01), cross_axis=0.01),
                sn.stages.GaussMarkov(fields=("lin_acc_b",), density=1e-3, tau=10.0, turn_on=0.1),
                sn.stages.Saturation(fields=("lin_acc_b",), high=9.0),
            ),
        ),
    ],
    ids=["difference", "history", "stages"],
)
def test_configs_with_memory_pass_the_contract(cfg: sn.ImuCfg) -> None:
    """Differences, histories and stages obey the same rules."""
    check_sensor(cfg)


@dataclass(frozen=True, slots=True)
class HeightData:
    """Height of a mount."""

    height: Annotated[Tensor, Field("m")]


class _Height(sn.SimpleSensor[Any, Any]):
    """The common part of all variants; type parameters are not classes, so no pair is registered."""

    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2])


class GoodCfg(MountedSensorCfg[HeightData]):
    """A correct sensor in plain torch."""


class Good(_Height, sn.SimpleSensor[GoodCfg, HeightData]):
    pass


class FilteredCfg(MountedSensorCfg[HeightData]):
    """A low-pass filter on the measured branch through the timeline."""


class Filtered(_Height, sn.SimpleSensor[FilteredCfg, HeightData]):
    lookback = 1

    def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
        if is_measured:
            data.height.lerp_(timeline.at(1).height, 0.8)


class HoarderCfg(MountedSensorCfg[HeightData]):
    """Keeps state outside the reach of resets."""


class Hoarder(_Height, sn.SimpleSensor[HoarderCfg, HeightData]):
    lookback = 1

    def update_raw_data(self, raw: sn.Record) -> None:
        super().update_raw_data(raw)
        self.total = getattr(self, "total", 0.0) + raw.height.clone()
        raw.height.copy_(self.total)


class GlobalNoiseCfg(MountedSensorCfg[HeightData]):
    """Draws from torch's global generator."""


class GlobalNoise(_Height, sn.SimpleSensor[GlobalNoiseCfg, HeightData]):
    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        slot.height.add_(torch.randn_like(slot.height))


class MaskBlindCfg(MountedSensorCfg[HeightData]):
    """A recorded kernel that writes all envs during a reset."""


@wp.kernel
def _blind(rows: Rows, clock: wp.array[wp.int64], out: wp.array2d[float]):
    i, mount = wp.tid()
    value = float(clock[0])
    if clock[1] == wp.int64(1):  # a capture during a reset
        value += 100.0
    out[rows.start + i, mount] = value


class MaskBlind(sn.SimpleSensor[MaskBlindCfg, HeightData]):
    @sn.recorded
    def update_raw_data(self, raw: sn.Record) -> None:
        self.compute_on.launch(_blind, (self.mount.count,), [self.clock.words_wp], [raw.warp.height])


class LeakyTruthCfg(MountedSensorCfg[HeightData]):
    """A stage that writes into truth."""


class LeakyTruth(_Height, sn.SimpleSensor[LeakyTruthCfg, HeightData]):
    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        self.standard_chain(slot)
        self.buffers.truth.height.copy_(slot.height)


class PeakCfg(MountedSensorCfg[HeightData]):
    """Keeps its state in the right place, with a scratch tensor beside it."""


class Peak(_Height, sn.SimpleSensor[PeakCfg, HeightData]):
    def setup(self) -> None:
        self.peak = self.new_state("peak", (self.mount.count,))
        self.scratch = torch.zeros_like(self.peak)

    def update_raw_data(self, raw: sn.Record) -> None:
        torch.mul(self.mount.pos_w[..., 2], 2.0, out=self.scratch)
        torch.maximum(self.peak, self.scratch, out=self.peak)
        raw.height.copy_(self.peak)


class SwitchCfg(MountedSensorCfg[HeightData]):
    """A projection, as permitted in post_process."""


class Switch(_Height, sn.SimpleSensor[SwitchCfg, HeightData]):
    def intermediate_fields(self) -> Mapping[str, Field]:
        return self.fields()

    def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
        return data.height.clamp(max=0.05)


# Deliberately broken sensors ------------------------------------------------------------------------------------------


class RebindsCfg(MountedSensorCfg[HeightData]):
    """Rebinds the name `raw`."""


class Rebinds(sn.SimpleSensor[RebindsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw = self.mount.pos_w[..., 2]  # type: ignore[assignment]  # noqa: F841


class ReturnsCfg(MountedSensorCfg[HeightData]):
    """Returns its result and does not write it."""


class Returns(sn.SimpleSensor[ReturnsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> Tensor:  # type: ignore[override]
        return self.mount.pos_w[..., 2]


class PartialCfg(MountedSensorCfg[HeightData]):
    """Writes only part of its output."""


class Partial(sn.SimpleSensor[PartialCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        height = self.mount.pos_w[..., 2]
        raw.height[height < 0.08] = height[height < 0.08]


class AddsCfg(MountedSensorCfg[HeightData]):
    """Adds to the existing output."""


class Adds(sn.SimpleSensor[AddsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.mul_(0.5).add_(self.mount.pos_w[..., 2])


class CuriousCfg(MountedSensorCfg[HeightData]):
    """Changes its reading with each read."""


class Curious(_Height, sn.SimpleSensor[CuriousCfg, HeightData]):
    def read(self, env_ids: Any = None) -> Any:
        copy = super().read(env_ids)
        self.data.height.add_(1.0)
        return copy


class DrawsCfg(MountedSensorCfg[HeightData]):
    """Changes its later readings when it is drawn."""


class Draws(_Height, sn.SimpleSensor[DrawsCfg, HeightData]):
    lookback = 1

    def setup(self) -> None:
        self.drawn = self.new_state("drawn")

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] + self.drawn[:, None])

    def debug_draw(self) -> Iterable[sn.readings.DebugShape]:
        self.drawn.add_(1.0)
        return ()


class StartsOnReadCfg(MountedSensorCfg[HeightData]):
    """An episode after a reset starts with the first read."""


class StartsOnRead(_Height, sn.SimpleSensor[StartsOnReadCfg, HeightData]):
    def setup(self) -> None:
        self.started = self.new_state("started")

    def reset_state(self, env_mask: Tensor) -> None:
        self.started[env_mask > 0] = (self.clock.episode == 0).float()[env_mask > 0]

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] + self.started[:, None])

    def read(self, env_ids: Any = None) -> Any:
        self.started.fill_(1.0)
        return super().read(env_ids)


class IgnoresIdsCfg(MountedSensorCfg[HeightData]):
    """Returns all environments whatever is selected."""


class IgnoresIds(_Height, sn.SimpleSensor[IgnoresIdsCfg, HeightData]):
    def read(self, env_ids: Any = None) -> Any:
        return super().read()


class SharesCfg(MountedSensorCfg[HeightData]):
    """Divides by the number of environments."""


class Shares(sn.SimpleSensor[SharesCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] / self.num_envs)


class CrowdedCfg(MountedSensorCfg[HeightData]):
    """Depends on the number of such sensors on an engine."""


class Crowded(sn.SimpleSensor[CrowdedCfg, HeightData]):
    requires = (BODY_POSE,)

    def setup(self) -> None:
        shared = vars(self.engine)
        shared["crowd"] = shared.get("crowd", 0) + 1

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] * vars(self.engine)["crowd"])


class EagerCfg(MountedSensorCfg[HeightData]):
    """Computes something else at each due tick than on read."""


class Eager(sn.SimpleSensor[EagerCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] * (1.0 if self.cfg.evaluate == "auto" else 2.0))


class CountsCallsCfg(MountedSensorCfg[HeightData]):
    """Counts calls of the scene, not ticks."""


class CountsCalls(sn.SimpleSensor[CountsCallsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] + self.clock.version)


class HidesCfg(MountedSensorCfg[HeightData]):
    """Counts the ticks that it has seen, outside of its states."""


class Hides(sn.SimpleSensor[HidesCfg, HeightData]):
    requires = (BODY_POSE,)

    def setup(self) -> None:
        self.seen: set[int] = set()

    def update_raw_data(self, raw: sn.Record) -> None:
        self.seen.add(self.clock.tick)
        raw.height.copy_(self.mount.pos_w[..., 2] + len(self.seen))


class SetsAllCfg(MountedSensorCfg[HeightData]):
    """Sets a knob in all environments whatever is selected."""


class SetsAll(_Height, sn.SimpleSensor[SetsAllCfg, HeightData]):
    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        super().set(knob, value)


class SetsNothingCfg(MountedSensorCfg[HeightData]):
    """Accepts a knob without an effect."""


class SetsNothing(_Height, sn.SimpleSensor[SetsNothingCfg, HeightData]):
    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        pass


class AlwaysValidCfg(MountedSensorCfg[HeightData]):
    """Calls a sample valid before it has arrived."""


class AlwaysValid(_Height, sn.SimpleSensor[AlwaysValidCfg, HeightData]):
    @property
    def valid(self) -> Tensor:
        return torch.ones(self.num_envs, dtype=torch.bool, device=self.device)


class DoublesCfg(MountedSensorCfg[HeightData]):
    """Its validation changes a valid value."""

    gain: float = 1.0

    @field_validator("gain")
    @classmethod
    def _double(cls, value: float) -> float:
        return 2.0 * value


class Doubles(_Height, sn.SimpleSensor[DoublesCfg, HeightData]):
    pass


class TolerantCfg(MountedSensorCfg[HeightData]):
    """Ignores unknown fields."""

    def replace(self, **changes: Any) -> Any:
        return super().replace(**{name: value for name, value in changes.items() if name in type(self).model_fields})


class Tolerant(_Height, sn.SimpleSensor[TolerantCfg, HeightData]):
    pass


class LoopsCfg(MountedSensorCfg[HeightData]):
    """Loops over environments."""


class Loops(sn.SimpleSensor[LoopsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        for env in range(self.num_envs):
            raw.height[env] = self.mount.pos_w[env, :, 2]


class ListsCfg(MountedSensorCfg[HeightData]):
    """Loops over environments in a list comprehension."""


class Lists(sn.SimpleSensor[ListsCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(torch.stack([row[:, 2] for row in self.mount.pos_w]))


class FickleCfg(MountedSensorCfg[HeightData]):
    """Its dtype depends on which sensors were built before."""


class Fickle(_Height, sn.SimpleSensor[FickleCfg, HeightData]):
    built: ClassVar[int] = 0

    def setup(self) -> None:
        type(self).built += 1

    def fields(self) -> Mapping[str, Field]:
        return {"height": Field("m", dtype="float32" if type(self).built % 2 else "float64")}


class PerEnvCfg(MountedSensorCfg[HeightData]):
    """Its shape depends on the number of environments."""


class PerEnv(sn.SimpleSensor[PerEnvCfg, HeightData]):
    requires = (BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        return {"height": Field("m", shape=(self.num_envs,))}

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2:].expand_as(raw.height))


class MisshapenCfg(MountedSensorCfg[HeightData]):
    """Writes positions in place of heights."""


class Misshapen(sn.SimpleSensor[MisshapenCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w)


class ForgetfulCfg(MountedSensorCfg[HeightData]):
    """Reads a velocity that it does not require; evaluated lazily."""


class Forgetful(sn.SimpleSensor[ForgetfulCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.lin_vel_w[..., 2])


class ForgetsInSetupCfg(MountedSensorCfg[HeightData]):
    """Accesses an array at build time without requiring it."""


class ForgetsInSetup(sn.SimpleSensor[ForgetsInSetupCfg, HeightData]):
    requires = (BODY_POSE,)

    def setup(self) -> None:
        self.gravity = self.engine.array("gravity_w")

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2] * self.gravity[:, 2:])


class KernelHoarderCfg(MountedSensorCfg[HeightData]):
    """Counts in a private Warp array."""


@wp.kernel
def _count(rows: Rows, total: wp.array2d[float], out: wp.array2d[float]):
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    total[env, mount] = total[env, mount] + 1.0
    out[env, mount] = total[env, mount]


class KernelHoarder(sn.SimpleSensor[KernelHoarderCfg, HeightData]):
    lookback = 1

    def setup(self) -> None:
        self.total = wp.zeros((self.num_envs, self.mount.count), dtype=float, device=self.device)

    def update_current_timestep_data(self, raw: sn.Record, slot: sn.Record, timeline: sn.Timeline) -> None:
        self.compute_on.launch(_count, (self.mount.count,), [self.total], [raw.warp.height])
        slot.height.copy_(raw.height)


class ScribblesCfg(MountedSensorCfg[HeightData]):
    """Projects in place."""


class Scribbles(_Height, sn.SimpleSensor[ScribblesCfg, HeightData]):
    def intermediate_fields(self) -> Mapping[str, Field]:
        return self.fields()

    def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
        return data.height.clamp_(max=0.05)


class MistypedCfg(MountedSensorCfg[HeightData]):
    """Returns a bool for a declared height."""


class Mistyped(_Height, sn.SimpleSensor[MistypedCfg, HeightData]):
    def intermediate_fields(self) -> Mapping[str, Field]:
        return self.fields()

    def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
        return data.height > 0.05


class TidiesCfg(MountedSensorCfg[HeightData]):
    """Limits the engine's positions in place; repetition has no further effect."""


class Tidies(sn.SimpleSensor[TidiesCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        self.engine.array("body_pos_w").clamp_(max=0.05)
        raw.height.copy_(self.mount.pos_w[..., 2])


class FirstMountCfg(MountedSensorCfg[HeightData]):
    """Takes the first mount for all: copy_ broadcasts it to the others."""


class FirstMount(sn.SimpleSensor[FirstMountCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[:, :1, 2])


class OneFilterCfg(MountedSensorCfg[HeightData]):
    """Shares one memory between the true and the measured branch."""


class OneFilter(_Height, sn.SimpleSensor[OneFilterCfg, HeightData]):
    def setup(self) -> None:
        self.last = self.new_state("last", (self.mount.count,))

    def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
        self.last.lerp_(data.height, 0.5)
        data.height.copy_(self.last)


class NudgesTruthCfg(MountedSensorCfg[HeightData]):
    """Shifts the truth by the same amount, with and without noise."""


class NudgesTruth(_Height, sn.SimpleSensor[NudgesTruthCfg, HeightData]):
    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        self.standard_chain(slot)
        self.buffers.truth.height.add_(0.001)


class MasklessCfg(MountedSensorCfg[HeightData]):
    """A kernel that computes all envs during a reset, so the others also get a value between samples."""


@wp.kernel
def _maskless(rows: Rows, pos: wp.array2d[wp.vec3], out: wp.array2d[float]):
    i, mount = wp.tid()
    out[rows.start + i, mount] = pos[rows.start + i, 0][2]


class Maskless(sn.SimpleSensor[MasklessCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        body = self.engine.names("body").index("body")
        pos = wp.from_torch(self.engine.array("body_pos_w")[:, body : body + 1], dtype=wp.vec3)
        self.compute_on.launch(_maskless, (self.mount.count,), [pos], [raw.warp.height])

    update_raw_data = sn.recorded(update_raw_data)


class _Kernel(sn.SimpleSensor[Any, Any]):
    """A recorded hook with one launch of a kernel."""

    requires = (BODY_POSE,)
    kernel: ClassVar[Any]

    @sn.recorded
    def update_raw_data(self, raw: sn.Record) -> None:
        pos = wp.from_torch(self.mount.pos_w, dtype=wp.vec3)
        self.compute_on.launch(self.kernel, self.items(), [pos], [raw.warp.height])

    def items(self) -> tuple[int, ...]:
        return (self.mount.count,)


@wp.kernel
def _whole(rows: Rows, pos: wp.array2d[wp.vec3], out: wp.array2d[float]):
    env, mount = wp.tid()
    if rows.mask[env] == wp.uint8(0):
        return
    out[env, mount] = pos[env, mount][2]


class NoStartCfg(MountedSensorCfg[HeightData]):
    """A kernel that takes its first index for the environment."""


class NoStart(_Kernel, sn.SimpleSensor[NoStartCfg, HeightData]):
    kernel = _whole


class HarmlessCfg(MountedSensorCfg[HeightData]):
    """A kernel without a test of the mask, on poses that follow it."""


@wp.kernel
def _unmasked(rows: Rows, pos: wp.array2d[wp.vec3], out: wp.array2d[float]):
    i, mount = wp.tid()
    out[rows.start + i, mount] = pos[rows.start + i, mount][2]


class Harmless(_Kernel, sn.SimpleSensor[HarmlessCfg, HeightData]):
    kernel = _unmasked


class DoubledCfg(MountedSensorCfg[HeightData]):
    """A torch operation after the launch of a recorded hook."""


class Doubled(_Kernel, sn.SimpleSensor[DoubledCfg, HeightData]):
    kernel = _unmasked

    @sn.recorded
    def update_raw_data(self, raw: sn.Record) -> None:
        super().update_raw_data(raw)
        raw.height.mul_(2.0)


class AssignedCfg(MountedSensorCfg[HeightData]):
    """A recorded hook that assigns a view."""


class Assigned(_Kernel, sn.SimpleSensor[AssignedCfg, HeightData]):
    @sn.recorded
    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height = self.mount.pos_w[..., 2]


class OneAxisMoreCfg(MountedSensorCfg[HeightData]):
    """A launch that gives the axis env again: its threads would write outside the arrays."""


class OneAxisMore(_Kernel, sn.SimpleSensor[OneAxisMoreCfg, HeightData]):
    kernel = _unmasked

    def items(self) -> tuple[int, ...]:
        return (self.num_envs, self.mount.count)


class ZeroByZeroCfg(MountedSensorCfg[HeightData]):
    """Computes NaN from a finite state."""


class ZeroByZero(sn.SimpleSensor[ZeroByZeroCfg, HeightData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        height = self.mount.pos_w[..., 2]
        raw.height.copy_((height - height) / (height - height))


class OverwritesCfg(MountedSensorCfg[HeightData]):
    """Its attribute has a name of the base class."""


class Overwrites(_Height, sn.SimpleSensor[OverwritesCfg, HeightData]):
    def setup(self) -> None:
        self.rate = 40.0  # type: ignore[assignment]


class MisdrawnCfg(MountedSensorCfg[HeightData]):
    """Draws a word."""


class Misdrawn(_Height, sn.SimpleSensor[MisdrawnCfg, HeightData]):
    def debug_draw(self) -> Iterable[Any]:
        return ("circle",)


class FailsToDrawCfg(MountedSensorCfg[HeightData]):
    """Raises where it is drawn."""


class FailsToDraw(_Height, sn.SimpleSensor[FailsToDrawCfg, HeightData]):
    def debug_draw(self) -> Iterable[Any]:
        raise ValueError("no colour")


@dataclass(frozen=True)
class LabelledData:
    height: Annotated[Tensor, Field("m")]
    labels: Any


class LabelledCfg(MountedSensorCfg[LabelledData]):
    """Returns a label that cannot be sent to another process."""


class Labelled(_Height, sn.SimpleSensor[LabelledCfg, LabelledData]):
    labels = torch.arange(3)


class PokesTruth(sn.stages.StageCfg):
    """A stage that writes into the truth."""

    place: ClassVar[Place] = "noise"

    def apply(self, slot: sn.Record, truth: sn.Record, state: Mapping[str, Tensor], key: sn.stages.StageKey) -> None:
        truth.height.add_(0.5)


class NeverResets(sn.stages.StageCfg):
    """A stage that counts samples across resets."""

    place: ClassVar[Place] = "noise"

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        return {"count": ()}

    def apply(self, slot: sn.Record, truth: sn.Record, state: Mapping[str, Tensor], key: sn.stages.StageKey) -> None:
        state["count"].add_(1.0)
        slot.height.add_(state["count"][:, None])

    def reset(self, state: Mapping[str, Tensor], key: sn.stages.StageKey) -> None:
        pass


@pytest.mark.parametrize(
    "cfg_class", gate([GoodCfg, FilteredCfg, PeakCfg, SwitchCfg], {FilteredCfg, PeakCfg, SwitchCfg})
)
def test_correct_plugins_pass(cfg_class: type[MountedSensorCfg[HeightData]]) -> None:
    """A plain torch sensor, a recurrence, a stateful sensor and a projecting sensor all pass."""
    check_sensor(cfg_class)


@pytest.mark.parametrize(
    ("cfg_class", "rule", "parts"),
    [
        (RebindsCfg, "raw_is_written_in_place", ["Rebinds", "raw.height", "raw.height.copy_(...)"]),
        (ReturnsCfg, "raw_is_written_in_place", ["returns a Tensor, which is ignored", "raw.height.copy_(...)"]),
        (PartialCfg, "raw_is_written_in_place", ["of 4 elements are unchanged", "raw.height"]),
        (AddsCfg, "raw_is_written_in_place", ["does not read its record", "not with add_"]),
        (CuriousCfg, "reading_changes_nothing", ["two reads in a row", "do work in a hook"]),
        (DrawsCfg, "reading_changes_nothing", ["reading never changes", "debug_draw"]),
        (LoopsCfg, "hooks_work_on_all_envs_at_once", ["for 18, most often", "test_check_sensor.py:", "whole tensors"]),
        (ListsCfg, "hooks_work_on_all_envs_at_once", ["without a Python loop"]),
        (FickleCfg, "fields_follow_the_config", ["height", "float64", "self.cfg"]),
        (PerEnvCfg, "fields_follow_the_config", ["(1,", "(4,", "self.cfg"]),
        (MisshapenCfg, "shapes_and_dtypes", ["update_raw_data failed", "RuntimeError", "height=(4, 1) float32"]),
        (ForgetfulCfg, "declares_what_it_reads", ["BODY_VELOCITY", "requires"]),
        (
            ForgetsInSetupCfg,
            "declares_what_it_reads",
            ["'gravity_w'", "Add it: requires = (sn.engines.BODY_POSE, sn.engines.GRAVITY,)"],
        ),
        (HoarderCfg, "nothing_lasts_in_plain_attributes", ["self.total", "new_state"]),
        (KernelHoarderCfg, "nothing_lasts_in_plain_attributes", ["self.total", "new_state"]),
        (ScribblesCfg, "post_process_only_projects", ["data.height", "do not modify `data`"]),
        (MistypedCfg, "post_process_only_projects", ["torch.bool", "expected (4, 1) float32"]),
        (GlobalNoiseCfg, "same_seed_same_numbers", ["same bits", "self.key"]),
        (MaskBlindCfg, "reset_leaves_the_others", ["rows.mask[env]"]),
        (LeakyTruthCfg, "truth_is_never_altered", ["apply_hardware_imperfections", "Write only to `slot`"]),
        (NudgesTruthCfg, "truth_is_never_altered", ["apply_hardware_imperfections", "Write only to `slot`"]),
        (OneFilterCfg, "truth_is_never_altered", ["ground_truth", "separately for each branch"]),
        (TidiesCfg, "leaves_the_engine_alone", ["body_pos_w", "clone()"]),
        (FirstMountCfg, "mounts_do_not_matter", ["height", "raw.x[:, k]"]),
        (MasklessCfg, "reset_leaves_the_others", ["rows.mask[env]"]),
        (NoStartCfg, "recorded_hooks_follow_rows", ["a launch for env 2 alone", "rows.start + i"]),
        (HarmlessCfg, "recorded_hooks_follow_rows", ["of the other envs", "rows.mask[env] is 0"]),
        (DoubledCfg, "recorded_hooks_follow_rows", ["marked @recorded calls the torch operation mul_ (", "only once"]),
        (AssignedCfg, "recorded_hooks_follow_rows", ["copy_", "Remove @recorded"]),
        (OneAxisMoreCfg, "shapes_and_dtypes", ["update_raw_data failed", "into 2 indices", "has 3 axes, (4, 4, 1)"]),
        (ZeroByZeroCfg, "shapes_and_dtypes", ["true value is NaN", "or a hook of the sensor"]),
        (LabelledCfg, "streams_as_it_is", ["constants", "Tensor", "array.tolist()"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken_plugins_are_detected(
    cfg_class: type[MountedSensorCfg[HeightData]], rule: str, parts: list[str]
) -> None:
    """Each violation is reported with its class, the rule, the place and the fix."""
    with pytest.raises(ContractError) as caught:
        check_sensor(cfg_class)
    assert caught.value.rule == rule and f"[rule {rule}]" in str(caught.value), str(caught.value)
    for part in [cfg_class.__name__.removesuffix("Cfg"), *parts]:
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("cfg", "rule", "parts"),
    [
        (StartsOnReadCfg(body="body"), "reading_changes_nothing", ["random reads against none", "debug_draw"]),
        (IgnoresIdsCfg(body="body"), "shapes_and_dtypes", ["the shape is (1,), got (4,)", "read([0]).height"]),
        (SharesCfg(body="body"), "env_count_does_not_matter", ["2 and 6 envs", "independently of the others"]),
        (CrowdedCfg(body="body"), "other_sensors_do_not_matter", ["with and without a twin", "class attributes"]),
        (EagerCfg(body="body"), "lazy_equals_eager", ['evaluate="auto" against "always"', "declared states"]),
        (CountsCallsCfg(body="body"), "no_time_no_change", ["4 ticks later", "new_state"]),
        (HidesCfg(body="body"), "resuming_is_exact", ["load_state", "new_state"]),
        (SetsAllCfg(body="body"), "setters_reach_only_their_envs", ["reaches no other env"]),
        (SetsNothingCfg(body="body"), "setters_reach_only_their_envs", ["changes env 1"]),
        (AlwaysValidCfg(body="body"), "delay_invents_nothing", ["valid is False until the first arrival"]),
        (DoublesCfg(body="body", gain=1.0), "config_round_trip", ["a config survives JSON"]),
        (TolerantCfg(body="body"), "errors_name_the_field", ["an unknown field is refused"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, sn.SensorCfg) else None,
)  # fmt: skip
def test_each_other_rule_finds_a_sensor_that_breaks_it(cfg: sn.SensorCfg[Any], rule: str, parts: list[str]) -> None:
    """The rules that find no sensor above, each alone."""
    rules = Rules(cfg, tumbling_engine, 12, own_engine=False)
    rules.rule = rule
    with pytest.raises(ContractError) as caught:
        getattr(rules, rule)()
    for part in [type(cfg).__name__.removesuffix("Cfg"), *parts]:
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("stage", "rule", "part"),
    [
        (PokesTruth(), "truth_is_never_altered", "a stage: its `slot`"),
        (NeverResets(), "nothing_old_after_reset", "reset(state, key)"),
    ],
    ids=["truth", "reset"],
)
def test_broken_stages_are_detected(stage: sn.stages.StageCfg, rule: str, part: str) -> None:
    """A stage is tested on a correct sensor."""
    with pytest.raises(ContractError) as caught:
        check_sensor(GoodCfg(body="body", stages=(stage,)))
    assert caught.value.rule == rule and part in str(caught.value), str(caught.value)


def test_every_rule_has_a_sensor_that_breaks_it() -> None:
    tests: tuple[Any, ...] = (
        test_broken_plugins_are_detected,
        test_each_other_rule_finds_a_sensor_that_breaks_it,
        test_broken_stages_are_detected,
    )
    rules = {case[1] for test in tests for case in test.pytestmark[0].args[1]}
    assert rules == EVERY_LAW | {"post_process_only_projects"}


def test_post_process_without_intermediate_fields_is_refused_at_class_definition() -> None:
    """This also holds for a `post_process` from a mixin; with `intermediate_fields` both classes are accepted."""

    class Doubling:
        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
            return 2.0 * data.height

    class Declared(Doubling, _Height):  # type: ignore[misc]
        def intermediate_fields(self) -> Mapping[str, Field]:
            return self.fields()

    assert Declared.post_process is Doubling.post_process
    with pytest.raises(sn.RegistrationError, match=r"Undeclared defines post_process without intermediate_fields.*"
                                                   r"return self\.fields\(\)"):  # fmt: skip

        class Undeclared(Doubling, _Height):  # type: ignore[misc]
            pass


@pytest.mark.parametrize(
    ("cfg_class", "message"),
    [
        (ForgetfulCfg, r"sensor 'forgetful' \(Forgetful\): it reads '.*' without requiring BODY_VELOCITY.*requires = "
                       r"\(sn\.engines\.BODY_POSE, sn\.engines\.BODY_VELOCITY,\)"),
        (RebindsCfg, r"sensor 'rebinds' \(Rebinds\): update_raw_data does not write raw\.height in place"),
        (MisshapenCfg, r"sensor 'misshapen' \(Misshapen\): update_raw_data failed \(.*test_check_sensor\.py:\d+\)"),
    ],
)  # fmt: skip
def test_invalid_lazy_plugin_fails_at_scene_build(cfg_class: type[MountedSensorCfg[HeightData]], message: str) -> None:
    """The first read is not the first test: the build tries its hooks on exactly the arrays that it requires."""
    with pytest.raises(sn.RegistrationError, match=message):
        sn.Scene(tumbling_engine(3), [cfg_class(body="body")])


@pytest.mark.parametrize(
    ("cfg_class", "message"),
    [
        (
            OverwritesCfg,
            r"sensor 'overwrites' \(Overwrites\): setup assigns self\.rate, an attribute of the base class",
        ),
        (MisdrawnCfg, r"sensor 'misdrawn' \(Misdrawn\): debug_draw yields 'circle', expected a .*DebugShape"),
        (FailsToDrawCfg, r"sensor 'fails_to_draw' \(FailsToDraw\): debug_draw failed\. ValueError: no colour"),
    ],
)
def test_set_up_and_drawing_name_the_sensor(cfg_class: type[MountedSensorCfg[HeightData]], message: str) -> None:
    with pytest.raises(sn.RegistrationError, match=message):
        sn.Scene(tumbling_engine(1), [cfg := cfg_class(body="body")])[cfg].drawings()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"requires": BODY_POSE}, r"Wrong\.requires: got Requirement\(.*expected a tuple of requirements: requires = "),
        ({"requires": ("BODY_POSE",)}, r"Wrong\.requires: got \('BODY_POSE',\)"),
        (
            {"apply_transform": lambda self, data, timeline: None},
            r"Wrong\.apply_transform cannot be called \(.*'is_measured'\): write "
            r"apply_transform\(self, data, timeline, \*, is_measured\)",
        ),
        ({"setup": lambda self, raw: None}, r"Wrong\.setup cannot be called .*write setup\(self\)"),
        ({"needs": classmethod(lambda cls, cfg: ())}, r"write needs\(cls, cfg, names, supports\)"),
    ],
)
def test_members_of_the_wrong_form_are_refused_at_class_definition(members: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.RegistrationError, match=message):
        type("Wrong", (_Height,), members)


def test_a_field_cannot_replace_a_selector() -> None:
    """A default would change the mount; a selector that a class only makes mandatory is one."""
    with pytest.raises(sn.RegistrationError, match=r"WhiskerCfg\.geom replaces a selector .* such as geom_name"):

        class WhiskerCfg(MountedSensorCfg[HeightData]):
            geom: str = "whisker"

    class SiteCfg(MountedSensorCfg[HeightData]):
        site: str

    assert SiteCfg(site="site").selector == ("site", "site")


def test_several_mounts_are_tested_on_a_custom_engine_too() -> None:
    with pytest.raises(ContractError, match="alone and in bodies="):
        check_sensor(FirstMountCfg(body="body"), lambda num_envs: tumbling_engine(num_envs))


class CountedCfg(MountedSensorCfg[HeightData]):
    """Counts the calls of its hooks, and records their arguments."""


class Counted(_Height, sn.SimpleSensor[CountedCfg, HeightData]):
    calls: ClassVar[list[tuple[str, tuple[int, ...]]]] = []

    def update_raw_data(self, raw: sn.Record) -> None:
        super().update_raw_data(raw)
        self.calls.append(("raw", tuple(raw.height.shape)))

    def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
        self.calls.append(("physics", tuple(slot.height.shape)))

    def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
        self.calls.append((f"transform {is_measured}", tuple(data.height.shape)))

    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        self.calls.append(("hardware", tuple(slot.height.shape)))

    def intermediate_fields(self) -> Mapping[str, Field]:
        return self.fields()

    def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
        self.calls.append((f"post {is_measured}", tuple(data.height.shape)))
        return data.height


def test_hooks_are_called_once_per_sample_for_all_mounts_and_envs() -> None:
    """Hooks are called twice where there are two branches, in pipeline order, and never at a tick that is not due."""
    scene = sn.Scene(tumbling_engine(5), [CountedCfg(sites="site|site", update_period=0.004)])
    Counted.calls.clear()
    scene.update()
    assert Counted.calls == []
    scene.update()
    hooks = ["raw", "physics", "transform False", "transform True", "hardware", "post False", "post True"]
    assert Counted.calls == [(hook, (5, 1)) for hook in hooks]
    scene["counted"].data, scene["counted"].read(), scene["counted"].ground_truth
    assert len(Counted.calls) == len(hooks)
