"""What an editor and a console show of sensors: few names, and samples with shapes and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch

import sensorium as sn
from sensorium import registry
from sensorium.sensors.core.parts import declared

SENSORS = [sensor for sensor in registry.registered().values() if sensor.__module__.startswith("sensorium.")]
HOOKS = {"apply_transform", "ensure_current", "needs", "post_process", "setup", "spoil", "update_raw_data"}


@pytest.mark.parametrize("sensor_class", SENSORS, ids=lambda each: each.__name__)
def test_completion_of_a_sensor_lists_what_readers_use(sensor_class: Any) -> None:
    sensor = sensor_class.__new__(sensor_class)
    sensor._constant_names = declared(sensor_class.data_class)[1]
    names = dir(sensor)
    assert len(names) <= 50
    assert {"age", "cfg", "data", "ground_truth", "history", "info", "name", "read", "reset", "set", "valid"} <= {
        *names
    }
    assert not HOOKS & {*names} and not [name for name in names if name.startswith("_")]


def test_a_family_adds_its_own_names() -> None:
    scene = sn.Scene(sn.TensorEngine(bodies=("b",), shapes=[], dt=0.01), [sn.RayCasterCfg(name="rays", body="b")])
    assert {"geom_names", "num_rays", "pattern"} <= {*dir(scene["rays"])}


def test_a_sample_shows_the_selected_fields_with_shape_unit_and_few_values() -> None:
    engine = sn.TensorEngine(num_envs=2, bodies=("b",), dt=0.01)
    imu = sn.ImuCfg(name="imu", body="b", fields=("ang_vel_b", "quat_w"))
    scene = sn.Scene(engine, [imu])
    assert repr(scene[imu].data) == (
        "ImuData:\n  quat_w [2, 4] 1: [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]\n"
        "  ang_vel_b [2, 3] rad/s: [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]"
    )
    lidar = sn.RayCasterCfg(name="rays", body="b", pattern=sn.patterns.GridPatternCfg(size=(1.0, 1.0), resolution=0.1))
    data = sn.Scene(sn.TensorEngine(bodies=("b",), shapes=[], dt=0.01), [lidar])["rays"].data
    assert "distances [1, 121] m, torch.float32" in repr(data)


def test_a_joint_sample_shows_its_constants() -> None:
    xml = """<mujoco><worldbody><body><joint name="a" type="slide"/><geom size=".1"/></body></worldbody></mujoco>"""
    joint = sn.JointSensorCfg(name="j", joint="a", fields=("position",))
    text = repr(sn.Scene(sn.MujocoEngine(xml), [joint])[joint].data)
    assert text == "JointSensorData:\n  position [1] rad|m: [0.0]\n  joint_names: ('a',)"


def test_a_data_class_keeps_its_own_representation() -> None:
    @dataclass(frozen=True)
    class OwnData:
        x: Annotated[torch.Tensor, sn.Field("m")]

        def __repr__(self) -> str:
            return "own"

    declared.__wrapped__(OwnData)
    assert repr(OwnData(torch.zeros(1))) == "own"


def test_axes_without_a_shape_are_refused_with_the_shape() -> None:
    with pytest.raises(sn.RegistrationError, match=r"got axes=\('xyz',\) for shape=\(\), .*; give shape=\(3,\)\."):
        sn.Field("m/s", axes=("xyz",))
    with pytest.raises(sn.RegistrationError, match=r"give shape=\(n, 4\)\."):
        sn.Field("1", (3,), axes=("ray", "wxyz"))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"kind": "vectors"}, r"Field\('m'\): got kind='vectors', .* Did you mean 'vector'\?"),
        ({"role": "rnge"}, "Did you mean 'range'"),
        ({"parity": "axis"}, "Did you mean 'axial'"),
        ({"dtype": "flaot32"}, "Did you mean 'float32'"),
        ({"dtype": "float16"}, "expected one of 'float32', 'float64', "),
    ],
)
def test_mistyped_words_of_a_field_are_refused(given: dict[str, Any], match: str) -> None:
    """A field of an unknown kind would have no noise."""
    with pytest.raises(sn.RegistrationError, match=match):
        sn.Field("m", **given)
