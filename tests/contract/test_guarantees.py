"""Single statements of the contract documents that hold for every sensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import synthetic as syn
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.measurement.sensor_cfg import SensorCfg


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are forgotten after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())


OURS = [(cfg, sensor) for cfg, sensor in registry.registered().items() if cfg.__module__.startswith("sensorium.")]


@pytest.mark.parametrize("cfg_class", [cfg for cfg, _ in OURS], ids=lambda cfg: cfg.__name__)
def test_fields_of_every_config_are_keyword_only(cfg_class: type[SensorCfg[Any]]) -> None:
    with pytest.raises(sn.ConfigError, match="positional"):
        cfg_class("name")


PLAIN = [sensor for _, sensor in OURS if sensor is not sn.Contact]
"""A contact switch undoes the chain where nothing presses: tests/sensors/test_contact.py tests it."""


@pytest.mark.parametrize("sensor_class", PLAIN, ids=lambda sensor: sensor.__name__)
def test_built_in_sensors_use_the_unmodified_standard_chain(sensor_class: type[Any]) -> None:
    """None of them has an imperfection model besides the chain and the stages."""
    assert sensor_class.apply_hardware_imperfections is sn.SimpleSensor.apply_hardware_imperfections


def test_single_env_keeps_its_axis() -> None:
    scene = syn.world([syn.ProbeCfg(name="p"), syn.ScalarCfg(name="s")], num_envs=1)
    assert scene["p"].read().vec.shape == (1, 3) and scene["s"].read().shape == (1,)


def test_incomplete_sensor_is_refused_at_definition_or_build() -> None:
    """A missing raw value, data class or declared field is a `RegistrationError`, which is a TypeError."""

    @dataclass(frozen=True, slots=True)
    class LoneData:
        value: Annotated[Tensor, sn.Field("1")]

    class LoneCfg(sn.SimpleSensorCfg[LoneData]):
        pass

    with pytest.raises(TypeError, match="no sensor class is paired"):
        syn.world([LoneCfg()])

    class Lone(sn.SimpleSensor[LoneCfg, LoneData]):
        pass

    with pytest.raises(sn.RegistrationError, match="Lone must define update_raw_data"):
        syn.world([LoneCfg()])

    class OtherCfg(sn.SimpleSensorCfg[LoneData]):
        pass

    with pytest.raises(sn.RegistrationError, match="dict is not a dataclass"):

        class NoData(sn.SimpleSensor[OtherCfg, dict]):  # type: ignore[type-arg]
            pass

    class BareCfg(sn.SensorCfg[LoneData]):
        pass

    class Bare(sn.Sensor[BareCfg, LoneData]):
        pass

    with pytest.raises(sn.RegistrationError, match="Bare defines neither compute nor update_raw_data"):
        syn.world([BareCfg()])
