"""Config numbers of a sensor: read through `params`, set per env at run time, saved and restored."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import torch
from pydantic import field_validator
from torch import Tensor

import sensorium as sn
from sensorium import Field, MountedSensorCfg, SimpleSensor
from sensorium.cfg import Float, bad
from sensorium.engines import BODY_POSE
from sensorium.testing import check_sensor, tumbling_engine


@dataclass(frozen=True, slots=True)
class RangeData:
    """Distance from the world's origin."""

    distance: Annotated[Tensor, Field("m", role="range")]


class RangeCfg(MountedSensorCfg[RangeData]):
    """A range finder towards the origin."""

    max_range: Float = 0.2
    """Greatest distance, m."""

    @field_validator("max_range")
    @classmethod
    def _positive(cls, value: float) -> float:
        if value <= 0.0:
            raise bad("a distance > 0")
        return value


class Range(SimpleSensor[RangeCfg, RangeData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        limit = torch.as_tensor(self.params.max_range)
        raw.distance.copy_(torch.minimum(self.mount.pos_w.norm(dim=-1), limit))


def test_worked_example_passes_the_contract() -> None:
    """The proximity example of the design passes every rule."""
    check_sensor(RangeCfg(body="body"))


def test_config_number_can_be_set_per_env() -> None:
    """Env 1 gets another range; the others keep the config's, also after saving and restoring."""
    scene = sn.Scene(tumbling_engine(3, shift=0.1), [RangeCfg(name="r", body="body", max_range=1e-3)])
    assert scene["r"].data.distance.tolist() == pytest.approx([1e-3] * 3)
    scene["r"].set("max_range", 2e-3, env_ids=[1])
    scene.step()
    assert scene["r"].data.distance.tolist() == pytest.approx([1e-3, 2e-3, 1e-3])
    fresh = sn.Scene(tumbling_engine(3, shift=0.1), [RangeCfg(name="r", body="body", max_range=1e-3)])
    fresh.load_state(scene.state())
    fresh.step()
    assert fresh["r"].data.distance.tolist() == pytest.approx([1e-3, 2e-3, 1e-3])


def test_state_saved_before_set_restores_the_configs_value() -> None:
    """Values set per env in between are discarded."""
    scene = sn.Scene(tumbling_engine(3, shift=0.1), [RangeCfg(name="r", body="body", max_range=1e-3)])
    before = scene.state()
    scene["r"].set("max_range", 2e-3, env_ids=[1])
    scene.load_state(before)
    scene.step()
    assert scene["r"].data.distance.tolist() == pytest.approx([1e-3] * 3)


def test_config_validation_applies_at_run_time() -> None:
    """A value that the config rejects is also rejected by `set`, and nothing changes."""
    scene = sn.Scene(tumbling_engine(3, shift=0.1), [RangeCfg(name="r", body="body", max_range=1e-3)])
    with pytest.raises(sn.ConfigError, match=r"max_range: got -1\.0, expected a distance > 0"):
        scene["r"].set("max_range", -1.0, env_ids=[1])
    scene.step()
    assert scene["r"].data.distance.tolist() == pytest.approx([1e-3] * 3)


class BakedCfg(RangeCfg):
    """A range finder whose hooks do not read `params`."""


class Baked(SimpleSensor[BakedCfg, RangeData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.distance.copy_(self.mount.pos_w.norm(dim=-1).clamp(max=self.cfg.max_range))


def test_a_number_that_hooks_take_from_the_config_cannot_be_set() -> None:
    """It would have no effect."""
    scene = sn.Scene(tumbling_engine(3, shift=0.1), [BakedCfg(name="r", body="body")])
    with pytest.raises(sn.ConfigError, match=r"max_range: got 0\.1, .* self\.params\.max_range .* scene\.reconfigure"):
        scene["r"].set("max_range", 0.1)


def test_non_finite_state_of_plugins_is_named() -> None:
    """NaN in one env's position: that sample is invalid, the warning names env, body and tick."""
    engine = sn.TensorEngine(3, bodies=("arm",))
    scene = sn.Scene(engine, [RangeCfg(name="r", body="arm")])
    engine.body_pos_w[1, 0, 0] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'arm', at tick 1"):
        scene.update()
        _ = scene["r"].data
    assert scene["r"].valid.tolist() == [True, False, True]


class DustyCfg(MountedSensorCfg[RangeData]):
    """A range finder whose path is disturbed before the reading."""


class Dusty(SimpleSensor[DustyCfg, RangeData]):
    requires = (BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        raw.distance.copy_(self.mount.pos_w.norm(dim=-1))

    def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
        slot.distance.add_(self.key.normal("dust", "distance"), alpha=0.01)


def test_torch_hooks_draw_reproducible_tensors() -> None:
    """Numbers from `self.key` satisfy every rule and have the requested deviation."""
    check_sensor(DustyCfg(body="body"))
    scene = sn.Scene(tumbling_engine(4096), [DustyCfg(name="d", body="body")])
    error = scene["d"].data.distance - scene["d"].ground_truth.distance
    assert error.std().item() == pytest.approx(0.01, rel=0.05)
    assert error.mean().abs().item() < 4 * 0.01 / 64


def test_non_finite_state_within_a_control_step_is_named_with_its_tick() -> None:
    """NaN at tick 3 of 5 only: the warning names that tick, and the sample of tick 5 is valid again."""

    def motion(t: float) -> dict[str, Tensor]:
        pos = torch.ones(2, 1, 3)
        pos[1] = float("nan") if round(t / 0.01) == 3 else 1.0
        return {"body_pos_w": pos}

    scene = sn.Scene(sn.TensorEngine(2, 0.01, motion=motion), [sn.ImuCfg(body="body", history_length=5)])
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'body', at tick 3;") as caught:
        scene.step(substeps=5)
    assert len(caught) == 1
    assert scene["imu"].valid.tolist() == [True, True]


@pytest.mark.parametrize("value", [None, "far", [[1.0], [1.0, 2.0]], [None]])
def test_non_numeric_value_is_refused_by_name(value: object) -> None:
    scene = sn.Scene(tumbling_engine(3), [RangeCfg(name="r", body="body")])
    with pytest.raises(
        sn.ConfigError, match=r"RangeCfg\('r'\).max_range: got .*expected a number, or one for each env"
    ):
        scene["r"].set("max_range", value)
