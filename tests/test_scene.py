"""The scene: access, adding and removing, control steps, time, publishing, and refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.testing import tumbling_engine


def two() -> list[Any]:
    return [syn.ScalarCfg(name="a", noise=1.0), syn.ScalarCfg(name="b", history_length=2)]


# Access ---------------------------------------------------------------------------------------------------------------


def test_sensors_are_accessed_by_name_and_config() -> None:
    """A sensor is found by name or config, in the given order; an unknown name lists the nearest names."""
    cfgs = two()
    scene = syn.world(cfgs)
    assert list(scene) == ["a", "b"] and len(scene) == 2 and "a" in scene and cfgs[1] in scene
    assert scene[cfgs[0]] is scene["a"] is scene.sensors["a"]
    assert scene.get("a", type(scene["a"])) is scene["a"]
    with pytest.raises(sn.ArgumentError, match=f"kind: got Imu, but 'a' is of class {type(scene['a']).__name__}"):
        scene.get("a", sn.Imu)
    with pytest.raises(KeyError, match="gyro"):
        syn.world([syn.ScalarCfg(name="gyro")])["gyra"]
    assert repr(scene).startswith("Scene(") and "'a'" in repr(scene["a"])


def test_names_are_unique() -> None:
    """Two sensors with one name are refused, at the start, when added, and where the name is the kind."""
    with pytest.raises(sn.DuplicateNameError, match="'scalar'"):
        syn.world([syn.ScalarCfg(), syn.ScalarCfg()])
    scene = syn.world(two())
    with pytest.raises(sn.DuplicateNameError, match="'a'"):
        scene.add(syn.ScalarCfg(name="a"))
    with pytest.raises(sn.ConfigError, match="sensor configs"):
        syn.world(["imu"])


def test_scene_is_ready_when_built() -> None:
    """A built scene has captured its first sample: read before any step it is the true state, not zeros."""
    scene = syn.world([syn.ScalarCfg(name="a"), syn.ScalarCfg(name="b", delay=0.1, history_length=2)], tick=42)
    for name in scene:
        assert torch.equal(scene[name].data, syn.signal(42, 4)[:, 0])
        assert scene[name].frame.tolist() == [1] * 4 and scene[name].capture_tick.tolist() == [0] * 4
    assert scene["a"].is_initialized and scene["a"].num_instances == 4 and scene["a"].device == "cpu"


def test_sensors_can_be_added_and_removed() -> None:
    """A sensor added between steps is captured at once and then follows the grid; a removed sensor is gone."""
    scene = syn.world(two())
    syn.advance(scene, 7)
    added = scene.add(syn.ScalarCfg(name="c", update_period=0.05, delay=0.01, history_length=2))
    assert added.frame.tolist() == [1] * 4 and added.capture_tick.tolist() == [7] * 4
    assert added.valid.tolist() == [False] * 4 and torch.equal(added.data, syn.signal(7, 4)[:, 0])
    syn.advance(scene, 4)
    assert added.frame.tolist() == [2] * 4 and added.capture_tick.tolist() == [10] * 4
    scene.remove(added.cfg)
    assert list(scene) == ["a", "b"]
    with pytest.raises(KeyError):
        scene.remove("c")


def test_adding_requires_prepared_requirements() -> None:
    """A sensor with a requirement that the engine was not prepared for is refused with the way to reserve it."""
    feet = sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="body", pattern="body"), fields=("found",))
    provides = ("pose", "velocity", "contact")
    with pytest.raises(sn.UnsupportedError, match="reserve"):
        sn.Scene(sn.TensorEngine(2, provides=provides), []).add(feet)
    sn.Scene(sn.TensorEngine(2, provides=provides), [], reserve=[feet]).add(feet)
    with pytest.raises(sn.UnsupportedError, match="'s' requires BODY_POSE"):
        sn.Scene(sn.TensorEngine(2, provides=("gravity",)), [syn.ScalarCfg(name="s")])


# Time -----------------------------------------------------------------------------------------------------------------


def test_step_equals_updates() -> None:
    """Stepping four ticks at once samples what four single updates sample."""

    def motion(t: float) -> dict[str, Any]:
        return {"body_pos_w": [[[round(100 * t), 2.0, 3.0]]]}

    scenes = [sn.Scene(sn.TensorEngine(3, motion=motion), syn.menagerie()) for _ in range(2)]
    for _ in range(5):
        scenes[0].step(substeps=4)
        scenes[1].begin_control_step()
        for _ in range(4):
            scenes[1].update()
        for name in scenes[0]:
            syn.same(*(syn.snapshot(scene[name]) for scene in scenes))
    assert scenes[0].tick == 20 and scenes[0].time == pytest.approx(0.2, abs=1e-15)
    with pytest.raises(sn.ScheduleError, match="substeps"):
        scenes[0].step(substeps=0)


def test_control_steps_span_substeps() -> None:
    """`is_new` covers the control step: all ticks from `begin_control_step` on."""
    scene = syn.world([syn.ScalarCfg(name="s", update_period=0.04), syn.ScalarCfg(name="d", delay=0.03),
                       syn.ScalarCfg(name="lazy")])  # fmt: skip
    seen = []
    for _ in range(4):
        scene.begin_control_step()
        assert not any(scene[name].is_new.any() for name in scene)
        syn.advance(scene, 3)
        seen.append([bool(scene[name].is_new[0]) for name in scene])
    assert seen == [[False, True, True], [True, True, True], [True, True, True], [True, True, True]]


def test_engine_stepped_outside_the_scene_requires_an_update() -> None:
    """Where the engine's tick advanced without the scene, stepping refuses and a plain update catches up."""
    scene = syn.world([syn.ScalarCfg(name="a")])
    scene.engine.step()
    with pytest.raises(sn.ScheduleError, match="update"):
        scene.step()
    with pytest.raises(sn.ScheduleError, match="took 1 ticks"):
        scene.update(ticks=2)
    scene.update()
    assert scene.tick == scene.engine.tick == 1


FALLING = """
<mujoco><option timestep="0.01"/><worldbody><body name="b"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>
"""


@pytest.mark.parametrize("evaluate", ["always", "on_read"])
def test_recomputed_sample_is_current_even_with_unfresh_state(evaluate: Any) -> None:
    """With ``fresh=False`` a sample is of the previous tick; after an edit its derived state is current."""
    pytest.importorskip("mujoco.batch")
    engine = sn.MujocoEngine(FALLING, fresh=False)
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="state", body="b", evaluate=evaluate)])
    for _ in range(3):
        scene.step()
    assert (scene["state"].capture_tick.tolist(), engine.lag) == ([2], 1)
    engine.qpos[0, 2] = 5.0
    scene.update(ticks=0)
    reading = scene.publish(["state"])["state"]
    assert reading["pos_w"].reshape(-1)[2] == 5.0
    assert (reading.capture_tick.tolist(), reading.stamp.tolist(), reading.age.tolist()) == ([3], [0.03], [0.0])
    scene.step()  # which leaves derived state a tick behind again: that of the edit
    assert scene["state"].capture_tick.tolist() == [3] and scene["state"].data.pos_w.reshape(-1)[2] == 5.0


def test_a_delayed_sensor_holds_its_sample_over_an_edit() -> None:
    """The arriving sample was captured before the edit, at the previous tick, and keeps its stamp."""
    pytest.importorskip("mujoco.batch")
    engine = sn.MujocoEngine(FALLING, fresh=False)
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="state", body="b", delay=0.02, update_period=0.03)])
    for _ in range(3):
        scene.step()
    captured = scene["state"].read_ground_truth().pos_w
    engine.qpos[0, 2] = 5.0
    scene.update(ticks=0)
    scene.step(substeps=2)
    reading = scene.publish(["state"])["state"]
    assert np.array_equal(reading["pos_w"], captured.numpy()) and reading.capture_tick.tolist() == [2]
    assert reading.stamp[0] == pytest.approx(0.02) and reading.age[0] == pytest.approx(0.03)


def test_time_is_exact() -> None:
    """Time is the tick times the decimal literal of dt: a third of a million ticks do not drift."""
    scene = syn.world([], 1, 0.003)
    scene.update(ticks=333_333)
    assert scene.time == 999.999


# Outputs --------------------------------------------------------------------------------------------------------------


def test_publish() -> None:
    """Published readings are copies of the sensors' values; `since` omits sensors without a new value."""
    scene = syn.world([syn.ScalarCfg(name="slow", update_period=0.03), syn.ScalarCfg(name="fast", delay=0.01)])
    cursor = scene.sample_cursor()
    first = scene.publish(since=cursor)
    assert set(first) == {"slow", "fast"} and set(scene.publish(["slow"])) == {"slow"}
    value = first["fast"].measured["value"].copy()
    syn.advance(scene)
    assert np.array_equal(first["fast"].measured["value"], value)
    assert set(scene.publish(since=cursor)) == {"fast"} and not scene.publish(since=cursor)
    syn.advance(scene, 2)
    readings = scene.publish(since=cursor)
    assert set(readings) == {"slow", "fast"} and readings["slow"].tick == 3
    assert readings["fast"].truth["value"].tolist() == syn.signal(3, 4)[:, 0].tolist()
    assert readings["fast"].measured["value"].tolist() == syn.signal(2, 4)[:, 0].tolist()


def test_local_client_is_a_public_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """`local_client` is the package's function, called with the scene and the options."""
    monkeypatch.setattr(sn, "local_client", lambda scene, **options: (scene, options), raising=False)
    scene = syn.world([])
    assert scene.local_client(token="x") == (scene, {"token": "x"})


def test_description() -> None:
    """The description suffices to rebuild the same scene: kind, rate, fields and config of every sensor."""
    described = syn.world(two(), seed=9).description()
    assert described.seed == 9 and described.num_envs == 4 and list(described.sensors) == ["a", "b"]
    assert syn.ScalarCfg.from_dict(described.sensors["b"]["cfg"]) == two()[1]
    assert described.sensors["a"]["fields"][0]["axes"] == ["env"]


def test_info() -> None:
    """`info` states which sensors are lazy and why, the specs, the bytes and the rate."""
    scene = syn.world([*two(), syn.ScalarCfg(name="slow", rate_hz=10.0), syn.ScalarCfg(name="on", evaluate="always")])
    assert [scene[name].info.evaluation for name in scene] == ["lazy", "eager", "eager", "eager"]
    assert "history" in scene["b"].info.why and "not due" in scene["slow"].info.why
    assert scene["slow"].info.rate_hz == pytest.approx(10.0) and scene["a"].info.specs[0].name == "value"


def test_reset_writes_state() -> None:
    """`reset` writes the given state into the selected rows before any capture."""
    scene = syn.world(two())
    syn.advance(scene, 3)
    scene.reset([2, 0], body_pos_w=torch.tensor([[[20.0, 0, 0]], [[5.0, 0, 0]]]))
    assert scene["a"].ground_truth.tolist() == [5.0, 67.0, 20.0, 195.0]
    with pytest.raises((KeyError, ValueError)):
        scene.reset([0], qpoz=1.0)


def test_adding_and_removing_leaves_nothing_behind() -> None:
    """A hundred added and removed sensors cost the others neither memory nor time."""
    scene = sn.Scene(tumbling_engine(2), [sn.ImuCfg(name="a", body="body", acc_noise=0.1, delay=0.004)])
    scene.step()
    line = scene["a"].buffers
    before = len(line.tables)
    for k in range(100):
        scene.add(sn.ImuCfg(name=f"b{k}", body="body", acc_noise=0.1))
        scene.step()
        scene.remove(f"b{k}")
        scene.step()
    assert len(line.tables) <= before


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copy_error_of_scene_and_engine_names_the_alternative(duplicate: Callable[[object], object]) -> None:
    """Two scenes must not share memory, so copying is refused; the error names the saved state as the alternative."""
    scene = sn.Scene(sn.TensorEngine(2, 0.01), [])
    with pytest.raises(TypeError, match=r"a Scene cannot be copied or pickled.*load_state\(scene\.state\(\)\)"):
        duplicate(scene)
    with pytest.raises(TypeError, match=r"a TensorEngine cannot be copied.*load_state\(engine\.state\(\)\)"):
        duplicate(scene.engine)
