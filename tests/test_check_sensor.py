"""`check_sensor`: every registered sensor keeps the contract, and a sensor that breaks it is found out."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch
import warp as wp
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.cfg import MountedSensorCfg
from sensorium.compute import Rows
from sensorium.spec import BODY_POSE, Field
from sensorium.testing import ContractError, check_sensor

OURS = [pair for pair in registry.registered().items() if pair[1].__module__.startswith("sensorium.")]


@pytest.mark.parametrize(("cfg_class", "sensor_class"), OURS, ids=[sensor.__name__ for _, sensor in OURS])
def test_every_registered_sensor_keeps_the_contract(cfg_class: type, sensor_class: type) -> None:
    """Each of our sensors passes every law of `check_sensor` with its defaults."""
    assert len(check_sensor(sensor_class)) == 15


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
                sn.ScaleError(fields=("ang_vel_b",), scale=sn.Normal(0, 0.01), cross_axis=0.01),
                sn.GaussMarkov(fields=("lin_acc_b",), density=1e-3, tau=10.0, turn_on=0.1),
                sn.Saturation(fields=("lin_acc_b",), high=9.0),
            ),
        ),
    ],
    ids=["difference", "history", "stages"],
)
def test_configs_with_memory_keep_the_contract(cfg: sn.ImuCfg) -> None:
    """Differences, histories, stages: the same laws hold."""
    check_sensor(cfg)


@dataclass(frozen=True, slots=True)
class HeightData:
    """Height of a mount."""

    height: Annotated[Tensor, Field("m")]


class _Height(sn.SimpleSensor[Any, Any]):
    """The part that all variants share; type parameters are no classes, so nothing is paired."""

    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2])


class GoodCfg(MountedSensorCfg[HeightData]):
    """A correct sensor in plain torch."""


class Good(_Height, sn.SimpleSensor[GoodCfg, HeightData]):
    pass


class FilteredCfg(MountedSensorCfg[HeightData]):
    """A low-pass on the measured branch through the timeline."""


class Filtered(_Height, sn.SimpleSensor[FilteredCfg, HeightData]):
    lookback = 1

    def apply_transform(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> None:
        if is_measured:
            data.height.lerp_(timeline.at(1).height, 0.8)


class HoarderCfg(MountedSensorCfg[HeightData]):
    """Keeps state in a place of its own, where no reset reaches it."""


class Hoarder(_Height, sn.SimpleSensor[HoarderCfg, HeightData]):
    lookback = 1

    def update_raw_data(self, raw: sn.Record) -> None:
        super().update_raw_data(raw)
        self.total = getattr(self, "total", 0.0) + raw.height.clone()
        raw.height.copy_(self.total)


class GlobalNoiseCfg(MountedSensorCfg[HeightData]):
    """Draws from torch's own generator."""


class GlobalNoise(_Height, sn.SimpleSensor[GlobalNoiseCfg, HeightData]):
    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        slot.height.add_(torch.randn_like(slot.height))


class MaskBlindCfg(MountedSensorCfg[HeightData]):
    """A recorded kernel that writes all envs at a reset."""


@wp.kernel
def _blind(rows: Rows, clock: wp.array[wp.int32], out: wp.array2d[float]):
    i, mount = wp.tid()
    value = float(clock[0])
    if clock[1] == 1:  # a capture at a reset
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
        self.line.truth.height.copy_(slot.height)


@pytest.mark.parametrize("cfg_class", [GoodCfg, FilteredCfg])
def test_correct_plugins_pass(cfg_class: type[MountedSensorCfg[HeightData]]) -> None:
    """A plain torch sensor and one with a recurrence pass as they are."""
    check_sensor(cfg_class)


@pytest.mark.parametrize(
    ("cfg_class", "law"),
    [
        (HoarderCfg, "an update without time|reset|past|before"),
        (GlobalNoiseCfg, "bits|number"),
        (MaskBlindCfg, "a reset leaves the other envs"),
        (LeakyTruthCfg, "truth is never altered"),
    ],
)
def test_broken_plugins_are_found_out(cfg_class: type[MountedSensorCfg[HeightData]], law: str) -> None:
    """Hidden state, global noise, a kernel blind to the mask, a leak into truth: each is named."""
    with pytest.raises(ContractError, match=law):
        check_sensor(cfg_class)
