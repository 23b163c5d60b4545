"""Publishing: new samples for several outputs, some environments only, and poses at the capture of the shown sample."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn


def moving(cfgs: Any, num_envs: int = 3, **kwargs: Any) -> sn.Scene:
    """Return a scene whose body is at x = tick + 1000 env, and turns by 0.01 rad per tick."""

    def motion(t: float) -> dict[str, Any]:
        tick = round(100 * t)
        x = tick + 1000.0 * torch.arange(num_envs)
        half = 0.005 * tick
        return {
            "body_pos_w": torch.stack([x, 0 * x, 0 * x], dim=-1)[:, None],
            "body_quat_w": (float(np.cos(half)), 0.0, 0.0, float(np.sin(half))),
        }

    return sn.Scene(sn.TensorEngine(num_envs, 0.01, motion=motion), cfgs, **kwargs)


# Cursors --------------------------------------------------------------------------------------------------------------


def test_outputs_have_independent_cursors() -> None:
    """Each of three outputs gets every capture once, independent of their order."""
    scene = moving([syn.ScalarCfg(name="slow", update_period=0.03), syn.ScalarCfg(name="fast")])
    one, two, three = (scene.sample_cursor() for _ in range(3))
    assert set(scene.publish(since=one)) == set(scene.publish(since=two)) == {"slow", "fast"}
    assert not scene.publish(since=one) and set(scene.publish("fast")) == {"fast"}
    assert set(scene.publish(since=three)) == {"slow", "fast"} and not scene.publish(since=three)
    taken: list[list[str]] = [[], [], []]
    for tick in range(1, 10):
        scene.step()
        taken[0] += scene.publish(since=one)
        if tick % 2:
            taken[1] += scene.publish(since=two)
        taken[2] += scene.publish(since=three)
    assert taken[0] == taken[2] and taken[0].count("slow") == 3 and taken[0].count("fast") == 9
    assert taken[1].count("fast") == 5 and taken[1].count("slow") == 3
    scene.publish()
    assert one.pending() == [] and two.pending() == [] and not scene.publish(since=three)


def test_only_a_reading_without_a_copy_is_the_sensors_memory() -> None:
    scene = moving([syn.ScalarCfg(name="fast")])
    scene.step()
    kept, lent = scene.publish()["fast"], scene.publish(copy=False)["fast"]
    ((field, tensor),) = scene["fast"].own_tensors(is_measured=True).items()
    assert np.shares_memory(lent[field], tensor.numpy()) and not lent[field].flags.writeable
    before = lent[field].copy()
    scene.step()
    scene.publish()  # a lazy sensor is computed on read
    assert np.array_equal(kept[field], before) and not np.array_equal(lent[field], before)


def test_pending_takes_and_evaluates_nothing() -> None:
    """Two calls of `pending` give the same answer; a lazy sensor is not computed and a wanted sensor not activated."""
    scene = moving([syn.ProbeCfg(name="lazy"), syn.ProbeCfg(name="wanted", evaluate="wanted")])
    cursor = scene.sample_cursor()
    scene.publish(since=cursor)
    scene.step()  # wanted for the last publication
    scene.step()
    before = syn.Probe.calls
    assert cursor.pending() == cursor.pending() == ["lazy", "wanted"]
    scene.publish(["wanted"], since=cursor)
    calls = syn.Probe.calls
    for _ in range(3):
        scene.step()
        cursor.pending()
    assert before <= calls and syn.Probe.calls == calls + 1  # wanted for the publication, and then no longer
    assert cursor.pending(["lazy"]) == ["lazy"]
    with pytest.raises(KeyError, match="unknown"):
        cursor.pending(["unknown"])


def test_delayed_sample_is_new_when_it_arrives() -> None:
    """Measured samples are new at their arrival, per env; with the truth, captures count as well."""
    scene = moving([syn.ScalarCfg(name="late", update_period=0.05, delay=0.03)])
    cursor, both = scene.sample_cursor(), scene.sample_cursor()
    for each in (cursor, both):
        scene.publish(since=each)
    arrived, captured = [], []
    for tick in range(1, 21):
        scene.step()
        if cursor.pending(truth=False):
            arrived.append(tick)
            reading = scene.publish(since=cursor)["late"]
            assert reading.capture_tick.tolist() == [tick - 3] * 3
        if both.pending():
            captured.append(tick)
            scene.publish(since=both)
    assert arrived == [3, 8, 13, 18] and captured == [3, 5, 8, 10, 13, 15, 18, 20]


@pytest.mark.parametrize(
    "knobs",
    [
        {"delay": 0.04, "jitter": 0.03},
        {"delay": sn.Uniform(0.0, 0.05)},
        {"delay": 0.02, "loss": 0.5},
        {"delay": 0.05, "jitter": sn.Uniform(0.0, 0.01), "rate_hz": 30.0},
        {"loss": sn.GilbertElliott(0.4, 0.5)},
    ],
)
def test_new_samples_are_changed_samples(knobs: dict[str, Any]) -> None:
    """With jitter, loss and resets, an env has a new sample exactly where its shown sample changed."""
    scene = moving([syn.ScalarCfg(name="s", **knobs)], 2, seed=3)
    cursor, sensor = scene.sample_cursor(), scene["s"]

    def shown() -> tuple[Any, ...]:
        return tuple(map(tuple, (sensor.capture_tick.tolist(), sensor.valid.tolist(), sensor.data.tolist())))

    last = shown()
    scene.publish(since=cursor)
    changes = 0
    for tick in range(80):
        if tick % 11 == 7:
            scene.reset([tick % 2])
            assert cursor.pending(truth=False) == ["s"]
        elif tick == 40 and "delay" in knobs:
            sensor.set("delay", 0.01)  # sooner than the configured period
        else:
            scene.step()
            assert (cursor.pending(truth=False) == ["s"]) == (shown() != last), tick
        changes += shown() != last
        last = shown()
        scene.publish(since=cursor)
    assert changes > 20


def test_resets_edits_and_loading_give_new_samples() -> None:
    """A repeated capture at the same tick is new: after a reset, after an edit, and for a loaded state."""
    scene = syn.world(
        [
            syn.ScalarCfg(name="lazy"),
            syn.ScalarCfg(name="eager", history_length=1),
            syn.ScalarCfg(name="slow", rate_hz=5.0),
        ]
    )
    cursor = scene.sample_cursor()
    scene.publish(since=cursor)
    syn.advance(scene)
    scene.publish(since=cursor)
    assert cursor.pending() == []
    syn.reset(scene, [1])
    assert set(scene.publish(since=cursor)) == {"lazy", "eager", "slow"}
    scene["eager"].reset([0])
    assert set(scene.publish(since=cursor)) == {"eager"}
    syn.advance(scene)
    assert set(scene.publish(since=cursor)) == {"lazy", "eager"}
    scene.engine.body_pos_w[:, 0, 0] = 7.0
    scene.update(ticks=0)
    readings = scene.publish(since=cursor)
    assert set(readings) == {"lazy"}  # the eager one has memory and holds its sample, the slow one's is of another tick
    assert readings["lazy"].measured["value"].tolist() == [7.0] * 4
    state = scene.state()
    scene.load_state(state)
    assert set(scene.publish(since=cursor)) == {"lazy", "eager", "slow"}
    scene.add(syn.ScalarCfg(name="more"))
    assert cursor.pending() == ["more"]
    scene.reconfigure("slow", noise=0.1)
    assert sorted(cursor.pending()) == ["more", "slow"]


def test_cursor_keeps_no_removed_sensor() -> None:
    """A continuing output keeps nothing of removed sensors."""
    scene = moving([])
    cursor = scene.sample_cursor()
    for _ in range(3):
        scene.add(syn.ScalarCfg(name="guest"))
        scene.publish(since=cursor)
        scene.remove("guest")
    gc.collect()
    assert len(cursor._taken) == 0 and "0 sensor" in repr(cursor)


# Environments and branches --------------------------------------------------------------------------------------------


def test_publish_can_select_environments() -> None:
    """A slice of environments contains their rows, ids and poses, and nothing of the others."""
    cfgs = [syn.ProbeCfg(name="p", fields=syn.ALL_FIELDS, delay=0.01), sn.ImuCfg(name="imu", body="body")]
    scene = moving([cfgs[0], cfgs[1].replace(magnetic_field=(0, 0, 1), acceleration="difference")], 5)
    scene.step(substeps=4)
    whole = scene.publish(poses=True)
    for envs, rows in ((slice(1, 3), [1, 2]), (slice(4, None), [4]), (slice(-2, None), [3, 4]), (slice(2, 2), [])):
        part = scene.publish(envs=envs, poses=True)
        for name, reading in part.items():
            full = whole[name]
            assert reading.env_ids.tolist() == rows and reading.env_ids.dtype == np.int64
            for mine, theirs in ((reading.measured, full.measured), (reading.truth, full.truth)):
                assert mine.keys() == theirs.keys()
                assert all(np.array_equal(mine[key], theirs[key][rows]) for key in mine)
            for what in ("capture_tick", "truth_tick", "stamp", "age", "valid", "is_new", "captures"):
                assert np.array_equal(getattr(reading, what), getattr(full, what)[rows])
        imu = part["imu"].pose
        assert imu is not None and np.array_equal(imu, whole["imu"].pose[rows]) and part["p"].pose is None
    for bad in (slice(0, 5, 2), slice(0, 6), slice(None, None, -1), slice(-6, None)):
        with pytest.raises(sn.ConfigError, match="step 1 within the 5 environments"):
            scene.publish(envs=bad)


def test_ragged_fields_of_selected_environments() -> None:
    """Events of a slice are the rows of its environments, with offsets from 0."""
    report = sn.CollisionEventsCfg(name="hits", primary=sn.ContactMatch(mode="body", pattern="ball"))
    engine = sn.MujocoEngine(
        "<mujoco><worldbody><geom name='floor' type='plane' size='1 1 .1'/><body name='ball' pos='0 0 .3'><freejoint/>"
        "<geom name='skin' size='.1'/></body></worldbody></mujoco>",
        num_envs=4,
    )
    scene = sn.Scene(engine, [report])
    for env in (1, 3):
        engine.qpos[env, 2] = 0.101
    scene.update(ticks=0)
    scene.step(substeps=10)
    whole, part = scene.publish()["hits"], scene.publish(envs=slice(1, 4))["hits"]
    assert whole.offsets is not None and part.offsets is not None and part.offsets[-1] == whole.offsets[-1] > 0
    assert part.offsets.tolist() == (whole.offsets[1:] - whole.offsets[1]).tolist()
    for spec in part.specs:
        if spec.is_ragged:
            for k, env in enumerate((1, 2, 3)):
                assert np.array_equal(part[spec.name][part.rows(k)], whole[spec.name][whole.rows(env)])
    assert not scene.publish(truth=False)["hits"].truth and scene.publish(truth=False)["hits"].offsets is not None


def test_without_truth_no_ground_truth_is_copied() -> None:
    """`truth=False` omits the ground truth and changes nothing else."""
    scene = moving([syn.ScalarCfg(name="s", noise=1.0)])
    full, lean = scene.publish()["s"], scene.publish(truth=False)["s"]
    assert not lean.truth and np.array_equal(lean.measured["value"], full.measured["value"])
    assert not np.array_equal(full.measured["value"], full.truth["value"])


def test_age_and_stamp_follow_from_the_ticks() -> None:
    """Age and capture time of a delayed sample agree with the sensor, and so does the time of a faulty sensor clock."""
    clock = sn.ClockError(skew_ppm=sn.Normal(0.0, 100.0), offset=0.5)
    scene = moving([syn.ProbeCfg(name="p", delay=0.02, jitter=0.02), syn.ProbeCfg(name="c", stages=(clock,))])
    scene.step(substeps=9)
    for name, reading in scene.publish().items():
        assert np.array_equal(reading.age, scene[name].age.numpy())
        assert np.array_equal(reading.stamp, scene[name].stamp.numpy())
        assert np.array_equal(reading.truth_tick, scene[name].truth_tick.numpy())
    assert scene.publish()["c"].stamp.min() > 0.4


# Poses ----------------------------------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "lazy": {},
    "slow": {"rate_hz": 30.0},
    "delay": {"delay": 0.03},
    "jitter": {"delay": 0.05, "jitter": 0.04},
    "slow and late": {"rate_hz": 30.0, "delay": 0.05, "jitter": 0.05},
    "different": {"delay": sn.Uniform(0.0, 0.06)},
    "lossy": {"delay": 0.02, "loss": 0.5},
    "bursts": {"loss": sn.GilbertElliott(0.5, 0.3), "delay": 0.01},
    "history": {"history_length": 3},
    "wanted": {"evaluate": "wanted", "rate_hz": 50.0},
}


def imu(name: str = "imu", **knobs: Any) -> sn.ImuCfg:
    """Return an IMU one metre from the body's origin."""
    offset = sn.OffsetCfg(pos=(0.0, 1.0, 0.0))
    return sn.ImuCfg(name=name, body="body", offset=offset, fields=("pos_w", "quat_w", "ang_vel_b"), **knobs)


def pose_at(ticks: np.ndarray) -> np.ndarray:
    """Return the pose of that IMU at the tick of each env, float64 [env, 7]."""
    angle = 0.01 * ticks
    x = ticks + 1000.0 * np.arange(len(ticks))
    zero = np.zeros(len(ticks))
    return np.stack([x - np.sin(angle), np.cos(angle), zero, np.cos(angle / 2), zero, zero, np.sin(angle / 2)], axis=-1)


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "uncaptured"])
@pytest.mark.parametrize("case", CASES)
def test_pose_belongs_to_the_shown_sample(case: str, capture: bool) -> None:
    """In each env it is the moving body's pose at the capture tick of the shown sample, resets included."""
    scene = moving([imu(**CASES[case])], 4, seed=1)
    scene.capture(capture)
    scene.publish(poses=True)
    seen = set()
    for tick in range(60):
        if tick % 17 == 9:
            scene.reset([tick % 4])
        elif tick % 17 == 12:
            scene.reset(torch.tensor([False, True, False, True]))
        elif tick % 23 == 8:
            scene["imu"].reset([0])
        else:
            scene.step(substeps=1 + tick % 3)
        reading = scene.publish(poses=True)["imu"]
        assert reading.pose is not None and reading.pose.shape == (4, 1, 7) and reading.pose.dtype == np.float32
        np.testing.assert_allclose(reading.pose[:, 0], pose_at(reading.capture_tick), atol=3e-4)
        assert np.array_equal(reading.pose[:, 0, :3], reading.measured["pos_w"])  # bit for bit the measured value
        assert np.array_equal(reading.pose[:, 0, 3:], reading.measured["quat_w"])
        seen.update(reading.age.tolist())
    assert (len(seen) > 1) == (case not in ("lazy", "history"))


def test_poses_of_earlier_samples_are_unknown() -> None:
    """A new publisher of poses gets NaN until a sample captured since then is shown."""
    scene = moving([imu("late", delay=0.03), imu("slow", rate_hz=20.0), imu("lazy")], 2)
    scene.step(substeps=7)
    known = []
    for tick in range(7, 13):
        readings = scene.publish(poses=True)
        for name, reading in readings.items():
            pose, right = reading.pose[:, 0], pose_at(reading.capture_tick)
            assert np.isnan(pose).all() or np.allclose(pose, right, atol=1e-4), (tick, name)
        known.append({name for name, reading in readings.items() if not np.isnan(reading.pose).any()})
        scene.step()
    assert known == [{"lazy"}] * 3 + [{"lazy", "late", "slow"}] * 3


def test_publishing_poses_changes_no_reading() -> None:
    """Sensors with all imperfections give the same readings with and without poses, also after their release."""
    cfgs = [
        imu(f"imu{k}", noise={"ang_vel_b": 0.1}, gyro_random_walk=0.1, **knobs)
        for k, knobs in enumerate(CASES.values())
    ]
    plain, posed = moving([*cfgs, *syn.menagerie()], seed=6), moving([*cfgs, *syn.menagerie()], seed=6)
    for tick in range(20):
        for scene in (plain, posed):
            scene.step(substeps=2)
            if tick == 7:
                scene.reset([1])
        if 3 <= tick < 12:
            posed.publish(poses=True)
        if tick == 12:
            posed.forget_poses()
        for name in plain:
            syn.same(*(syn.snapshot(scene[name]) for scene in (plain, posed)))
    assert all(sensor.buffers.poses is None for sensor in posed.sensors.values())
    assert posed.publish(["imu0"])["imu0"].pose is None


def test_sensors_with_pose() -> None:
    """Mounted sensors have a pose, on several mounts or on the world, but not where body poses are unavailable."""
    place = sn.OffsetCfg(pos=(1.0, 2.0, 3.0))
    cfgs = [
        sn.BodyStateCfg(name="both"),
        sn.BodyStateCfg(name="fixed", body="world", offset=place),
        syn.ScalarCfg(name="nowhere"),
    ]
    scene = sn.Scene(sn.TensorEngine(2, bodies=("a", "b")), cfgs)
    readings = scene.publish(poses=True)
    assert readings["both"].pose is not None and readings["both"].pose.shape == (2, 2, 7)
    assert readings["fixed"].pose.tolist() == [[[1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]]] * 2
    assert readings["nowhere"].pose is None and scene.publish()["both"].pose is None
    engine = sn.TensorEngine(2, geoms={"foot": "body"}, provides=("contact",))
    feet = sn.Scene(engine, [sn.ContactCfg(name="feet", geoms="foot")])
    assert feet["feet"].mount is not None and feet.publish(poses=True)["feet"].pose is None


def test_known_poses_are_saved_and_restored() -> None:
    """Current samples of a loaded state have their poses; those of samples in transit are unknown, not wrong."""
    scene = moving([imu("now", evaluate="always"), imu("late", delay=0.02)], 2)
    scene.publish(poses=True)
    scene.step(substeps=5)
    state = scene.state()
    scene.step(substeps=5)
    scene.load_state(state)
    readings = scene.publish(poses=True)
    np.testing.assert_allclose(readings["now"].pose[:, 0], pose_at(readings["now"].capture_tick), atol=1e-4)
    assert np.isnan(readings["late"].pose).all()
    scene.step(substeps=2)
    late = scene.publish(poses=True)["late"]
    np.testing.assert_allclose(late.pose[:, 0], pose_at(late.capture_tick), atol=1e-4)
