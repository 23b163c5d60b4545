"""Names of sensors in a scene, and sensors that a model declares and that need no config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import sensorium as sn
from sensorium.engines.base import NativeSensor
from sensorium.record import NpzRecorder
from sensorium.spec import NATIVE_SENSOR

NATIVE = {
    "robot/acc": NativeSensor("robot/acc", "accelerometer", 3, "m/s^2", "real", "acc", "site", "robot/imu"),
    "robot/quat": NativeSensor("robot/quat", "framequat", 4, "1", "quat", "pos", "body", "robot/trunk"),
    "box/quat": NativeSensor("box/quat", "framequat", 4, "1", "quat", "pos", "body", "box"),
    "robot/left/touch": NativeSensor("robot/left/touch", "touch", 1, "N", "positive", "acc", "site", "robot/left/toe"),
}
IMU = sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b",))


class Engine(sn.TensorEngine):
    """A fake engine whose native values are functions of time, and that records the requirements it was asked to
    prepare.

    `robot/left/touch` is unavailable where `broken` says so.
    """

    def __init__(self, num_envs: int = 3, broken: bool = False, fresh: bool = True) -> None:
        self.asked: list[str] = []
        self.broken, self.fresh = broken, fresh
        super().__init__(num_envs, 0.01, native=NATIVE, motion=self._values)

    def _values(self, t: float) -> dict[str, torch.Tensor]:
        env = torch.arange(float(self.num_envs))[:, None]
        angle = t + env
        quat = torch.cat([angle.cos(), angle.sin(), 0.0 * angle, 0.0 * angle], dim=1)
        return {
            "native:robot/acc": t + env + torch.tensor([0.0, 10.0, 20.0]),
            "native:robot/quat": quat,
            "native:box/quat": quat,
            "native:robot/left/touch": 100.0 * t + env,
        }

    def supports(self, requirement: sn.engines.Requirement) -> str | None:
        if self.broken and requirement == NATIVE_SENSOR("robot/left/touch"):
            return "this fake cannot compute it."
        return super().supports(requirement)

    def _apply(self, requirements: frozenset[sn.engines.Requirement]) -> None:
        self.asked += sorted(need.args[0] for need in requirements if need.kind == "NATIVE_SENSOR")


def scene_of(configs: Sequence[Any] = (), engine: Engine | None = None, **options: Any) -> sn.Scene:
    return sn.Scene(engine or Engine(), configs, **options)


# Names ----------------------------------------------------------------------------------------------------------------


def gyro(name: str, entity: str | None) -> sn.BuiltinSensorCfg:
    return sn.BuiltinSensorCfg(
        name=name, sensor_type="gyro", obj=sn.ObjRef(type="site", name="imu_site", entity=entity)
    )


@pytest.mark.parametrize(
    ("cfg", "stored"),
    [
        (gyro("rate", "robot"), "robot/rate"),
        (gyro("robot/rate", "robot"), "robot/rate"),
        (gyro("rate", None), "rate"),
        (sn.BuiltinSensorCfg(name="time", sensor_type="clock"), "time"),
        (IMU, "imu"),
        (sn.ImuCfg(site=sn.ObjRef(type="site", name="imu", entity="robot")), "imu"),
    ],
)
def test_only_a_native_sensor_is_stored_under_its_entity(cfg: sn.SensorCfg[Any], stored: str) -> None:
    assert cfg.prefixed_name == cfg.label == stored


def test_a_sensor_is_found_by_its_full_name_by_its_short_one_and_by_its_config() -> None:
    engine = sn.TensorEngine(native={"robot/rate": 3})
    cfg = gyro("rate", "robot")
    scene = sn.Scene(engine, [cfg])
    assert scene["robot/rate"] is scene["rate"] is scene[cfg]
    assert "rate" in scene
    assert "robot/rate" in scene
    assert list(scene) == ["robot/rate"]
    assert scene["rate"].name == "robot/rate"


def test_a_short_name_of_several_sensors_is_an_error_that_lists_them() -> None:
    scene = scene_of()
    with pytest.raises(sn.SelectionError, match=r"'quat', expected exactly one sensor.*robot/quat, box/quat"):
        scene["quat"]
    assert "quat" not in scene
    assert scene["touch"].name == scene["left/touch"].name == "robot/left/touch"


def test_exact_name_takes_precedence_over_a_short_one() -> None:
    scene = scene_of([IMU.replace(name="touch")])
    assert type(scene["touch"]) is sn.Imu
    assert type(scene["left/touch"]) is sn.BuiltinSensor


def test_partial_name_is_refused() -> None:
    scene = scene_of()
    assert "cc" not in scene
    with pytest.raises(sn.UnknownNameError, match=r"'cc'.*robot/acc"):
        scene["cc"]
    for sensors in (scene, scene.sensors):
        with pytest.raises(sn.UnknownNameError, match=r"'0'.*robot/acc"):
            sensors[0]  # type: ignore[index]


def test_short_names_follow_added_and_removed_sensors() -> None:
    scene = scene_of()
    assert scene["acc"].name == "robot/acc"
    scene.remove("acc")
    with pytest.raises(sn.UnknownNameError, match="'acc'"):
        scene["acc"]
    scene.remove("robot/quat")
    assert scene["quat"].name == "box/quat"


def test_two_configs_of_one_name_are_an_error() -> None:
    engine = sn.TensorEngine(native={"robot/rate": 3})
    with pytest.raises(sn.DuplicateNameError, match=r"two sensors are called 'robot/rate'.*name='robot/rate_2'"):
        sn.Scene(engine, [gyro("rate", "robot"), gyro("robot/rate", None)])


# Discovery ------------------------------------------------------------------------------------------------------------


def test_every_declared_sensor_is_in_the_scene_after_the_configured_ones() -> None:
    scene = scene_of([IMU])
    assert list(scene) == list(scene.sensors) == ["imu", *NATIVE]
    assert len(scene) == len(scene.sensors) == 5
    assert all(name in scene and name in scene.sensors for name in NATIVE)
    assert [sensor.name for sensor in scene.sensors.values()] == list(scene)
    assert set(scene.description().sensors) == set(scene)


def test_the_values_of_a_discovered_sensor_are_those_of_the_engine_at_every_tick() -> None:
    engine = Engine()
    scene = scene_of(engine=engine)
    for _ in range(3):
        scene.step()
        for name in NATIVE:
            assert torch.equal(scene[name].data, engine.array(f"native:{name}"))
            assert torch.equal(scene[name].ground_truth, scene[name].data)


def test_discover_false_omits_declared_sensors() -> None:
    scene = scene_of([IMU], discover=False)
    assert list(scene) == ["imu"]
    assert "robot/acc" not in scene
    with pytest.raises(sn.UnknownNameError, match="'robot/acc'"):
        scene["robot/acc"]


def test_a_discovered_sensor_costs_nothing_until_it_is_read() -> None:
    engine = Engine()
    scene = scene_of([IMU], engine)
    scene.step()
    scene.reset([0])
    scene.update(ticks=0, force_recompute=True)
    scene.publish()
    scene.description()
    assert scene._table.built.keys() == {"imu"}
    for sensor in scene.sensors.values():  # the lookup is not a read
        _ = sensor.info, sensor.name
    scene.update(force_recompute=True)
    assert engine.asked == []
    _ = scene["robot/acc"].data
    assert engine.asked == ["robot/acc"]
    scene.step()
    _ = scene["robot/quat"].frame
    assert engine.asked == ["robot/acc", "robot/quat"]


def test_unfresh_engine_prepares_all_declared_sensors_initially() -> None:
    engine = Engine(fresh=False)
    scene_of(engine=engine)
    assert engine.asked == sorted(NATIVE)


def test_description_of_a_discovered_sensor_is_complete() -> None:
    scene = scene_of()
    described = scene.description().sensors
    for name, sensor in scene.sensors.items():
        assert described[name]["fields"] == [spec.to_dict() for spec in sensor.specs]
        assert described[name]["cfg"] == sensor.cfg.to_dict() == {"kind": "builtin", "name": name}
        assert described[name]["rate_hz"] == sensor.info.rate_hz == 100.0


def test_sensor_read_late_equals_one_read_from_the_start() -> None:
    """Counters agree as well: the sensor has existed all the time, also through resets and jumps."""
    early, late = scene_of(allow_gaps=True), scene_of(allow_gaps=True)
    for scene in (early, late):
        _ = early["acc"].data
        scene.step(substeps=3)
        _ = early["acc"].data
        scene.reset([1])
        scene.update(ticks=4)
        scene.step(substeps=2)
        scene.reset([2])
        scene.step(substeps=2)
    for what in ("data", "frame", "capture_tick", "truth_tick", "age", "is_new", "valid"):
        assert torch.equal(getattr(early["acc"], what), getattr(late["acc"], what)), what
    assert late["acc"].frame.tolist() == [9, 6, 3]


def test_publish_includes_configured_and_read_sensors() -> None:
    scene = scene_of([IMU])
    assert list(scene.publish()) == ["imu"]
    assert list(scene.publish(["robot/acc"])) == ["robot/acc"]
    assert list(scene.publish()) == ["imu", "robot/acc"]
    _ = scene["box/quat"].data
    assert list(scene.publish()) == ["imu", "robot/acc", "box/quat"]
    cursor = scene.sample_cursor()
    assert list(scene.publish(scene, since=cursor)) == list(scene)
    assert scene.publish(since=cursor) == {}
    scene.step()
    assert scene.publish(["acc"])["acc"].name == "robot/acc"


def test_recording_contains_the_published_sensors() -> None:
    scene, recorder = scene_of([IMU]), NpzRecorder()
    for _ in range(4):
        scene.step()
        recorder.add_all(scene.publish(["imu", "robot/acc"]))
    recording = recorder.recording(scene.description())
    assert set(recording) == {"imu", "robot/acc"}
    measured = recording["robot/acc"].measured["value"]
    expected = torch.arange(1.0, 5.0)[:, None, None] * 0.01 + torch.arange(3.0)[:, None] + torch.tensor([0.0, 10, 20])
    torch.testing.assert_close(torch.from_numpy(measured), expected, rtol=1e-6, atol=0.0)
    assert recording["robot/acc"].info["kind"] == "builtin"


def test_unsupported_declared_sensor_is_omitted_and_access_explains() -> None:
    scene = scene_of(engine=Engine(broken=True))
    assert list(scene) == ["robot/acc", "robot/quat", "box/quat"]
    assert "robot/left/touch" not in scene
    assert "robot/left/touch" not in scene.description().sensors
    for name in ("robot/left/touch", "touch"):
        with pytest.raises(sn.UnsupportedError, match=r"'robot/left/touch'.*this fake cannot compute it"):
            scene[name]


# Configs and declared sensors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cfg",
    [IMU.replace(name="robot/acc"), gyro("acc", "robot"), gyro("robot/acc", None)],
    ids=["another kind", "prefixed", "full"],
)
def test_a_config_with_the_name_of_a_declared_sensor_is_an_error(cfg: sn.SensorCfg[Any]) -> None:
    expected = (
        r"'robot/acc' is the name of this config and of a sensor in the model's XML \(accelerometer on site "
        r"'robot/imu'\).*from_existing\('robot/acc', \.\.\.\).*'robot/acc_2'"
    )
    with pytest.raises(sn.DuplicateNameError, match=expected):
        scene_of([cfg])
    scene = scene_of()
    with pytest.raises(sn.DuplicateNameError, match=expected):
        scene.add(cfg)
    assert list(scene) == list(NATIVE)


def test_without_discovery_another_sensor_can_use_the_name() -> None:
    scene = scene_of([IMU.replace(name="robot/acc")], discover=False)
    assert type(scene["acc"]) is sn.Imu


def test_configured_sensor_replaces_the_discovered_one() -> None:
    cfg = sn.BuiltinSensorCfg.from_existing("acc", bias=0.5)
    scene = scene_of([cfg])
    assert list(scene) == ["robot/acc", "robot/quat", "box/quat", "robot/left/touch"]
    assert scene[cfg] is scene["robot/acc"]
    assert scene[cfg].cfg.name == "robot/acc"
    assert torch.equal(scene[cfg].data, scene[cfg].ground_truth + 0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("quat", r"'quat', expected exactly one sensor. It matches robot/quat, box/quat"),
        ("box/quart", r"'box/quart', expected the name of a sensor declared in the model. Did you mean 'box/quat'"),
    ],
)
def test_declared_sensor_must_exist(name: str, expected: str) -> None:
    with pytest.raises(sn.SelectionError, match=expected):
        scene_of([sn.BuiltinSensorCfg.from_existing(name)])


def test_config_can_describe_an_untyped_array() -> None:
    engine = sn.TensorEngine(native={"robot/rate": 3})
    scene = sn.Scene(engine, [gyro("rate", "robot")])
    (spec,) = scene["rate"].specs
    assert (spec.unit, spec.frame, spec.axes) == ("rad/s", "sensor", ("xyz",))
    assert scene["rate"].info.notes["native"] == "gyro, added to the model for this config"


def test_a_discovered_sensor_can_be_reconfigured() -> None:
    scene = scene_of()
    view = scene["acc"].data
    new = scene.reconfigure("acc", bias=(1.0, 2.0, 3.0), delay=0.02)
    assert new is scene["robot/acc"]
    assert list(scene) == ["robot/acc", "robot/quat", "box/quat", "robot/left/touch"]
    before = view.clone()
    scene.step(substeps=5)
    assert torch.equal(view, before)
    assert torch.equal(new.capture_tick, torch.full((3,), 3))
    expected = 0.03 + torch.arange(3.0)[:, None] + torch.tensor([1.0, 12.0, 23.0])
    torch.testing.assert_close(new.data, expected, rtol=1e-6, atol=0.0)
    assert list(scene.publish()) == ["robot/acc"]


def test_a_declared_sensor_can_be_added_with_knobs_after_it_was_read() -> None:
    scene = scene_of([IMU])
    view = scene["acc"].data
    added = scene.add(sn.BuiltinSensorCfg.from_existing("acc", history_length=2))
    assert scene["acc"] is added
    assert added.history.shape == (3, 2, 3)
    before = view.clone()
    scene.step()
    assert torch.equal(view, before)
    with pytest.raises(sn.DuplicateNameError, match="two sensors are called 'robot/acc'"):
        scene.add(sn.BuiltinSensorCfg.from_existing("acc"))


def test_unfresh_engine_refuses_unprepared_declared_sensors() -> None:
    scene = scene_of([IMU], Engine(fresh=False), discover=False)
    with pytest.raises(sn.UnsupportedError, match="Reserve it"):
        scene.add(sn.BuiltinSensorCfg.from_existing("acc"))
    reserved = sn.BuiltinSensorCfg.from_existing("acc")
    scene = scene_of([IMU], Engine(fresh=False), discover=False, reserve=[reserved])
    assert scene.add(reserved).name == "robot/acc"


def test_a_discovered_sensor_can_be_removed() -> None:
    scene = scene_of()
    sensor = scene["acc"]
    scene.remove("acc")
    scene.remove("box/quat")  # never read
    assert list(scene) == ["robot/quat", "robot/left/touch"]
    with pytest.raises(sn.StaleError, match="removed"):
        _ = sensor.data
    assert scene.add(sn.BuiltinSensorCfg.from_existing("robot/acc")) is scene["acc"]


# Saving ---------------------------------------------------------------------------------------------------------------


def shot(scene: sn.Scene, name: str) -> dict[str, torch.Tensor]:
    sensor = scene[name]
    return {what: getattr(sensor, what).clone() for what in ("data", "frame", "capture_tick", "is_new", "valid")}


@pytest.mark.parametrize("read_before", [("acc",), ("acc", "touch"), ("touch",), ()])
@pytest.mark.parametrize("read_there", [(), ("acc",), ("box/quat", "touch")])
def test_scene_resumes_for_any_set_of_read_discovered_sensors(
    read_before: tuple[str, ...], read_there: tuple[str, ...]
) -> None:
    cfg = sn.BuiltinSensorCfg.from_existing("robot/quat", noise=0.1, delay=0.02)
    scene = scene_of([cfg])
    for name in read_before:
        _ = scene[name].data
    scene.step(substeps=3)
    scene.reset([1])
    scene.step(substeps=2)
    for name in read_before:
        _ = scene[name].data
    saved = scene.state()
    assert set(saved["sensors"]) == {"robot/quat", *(scene[name].name for name in read_before)}
    other = scene_of([cfg])
    other.step()
    for name in read_there:
        _ = other[name].data
    other.load_state(saved)
    for _ in range(3):
        for name in scene:
            a, b = shot(scene, name), shot(other, name)
            assert all(torch.equal(a[what], b[what]) for what in a), name
        scene.step(substeps=2)
        other.step(substeps=2)


def test_sensors_in_use_are_restored() -> None:
    scene = scene_of([IMU])
    _ = scene["acc"].data
    other = scene_of([IMU])
    other.load_state(scene.state())
    assert list(other.publish()) == ["imu", "robot/acc"]


def test_a_state_with_other_configs_is_refused() -> None:
    saved = scene_of([sn.BuiltinSensorCfg.from_existing("acc", delay=0.02)]).state()
    with pytest.raises(sn.ConfigError, match=r"got None, expected shape .*, as saved. Use the same config"):
        scene_of().load_state(saved)
    with pytest.raises(sn.ConfigError, match=r"Scene.sensors: got \['imu'\]"):
        scene_of([IMU]).load_state(saved)
    with pytest.raises(sn.ConfigError, match=r"Scene.sensors: got \[\]"):
        scene_of(discover=False).load_state(saved)
