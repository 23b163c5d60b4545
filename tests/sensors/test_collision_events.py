"""Collision events: a row for each start, continuation and end of a contact, and no events lost between control
steps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from synthetic import same, snapshot

import sensorium as sn
from sensorium.record import NpzRecorder, load
from sensorium.sensors.contact.collision_events import BEGIN, END, PERSIST
from sensorium.spec import contact_array
from sensorium.testing import check_sensor

DT = 0.01
Script = Callable[[int], dict[tuple[int, int], float]]
"""From a tick to the upward force on each touching (env, pair), N."""


def world(script: Script, num_envs: int = 3, **cfg: Any) -> sn.Scene:
    """Return a scene of two feet whose contacts follow a script of ticks."""
    match = sn.ContactMatch(mode="body", pattern="left|right")
    events = sn.CollisionEventsCfg(name="hits", primary=match, **cfg)
    (report,) = sn.CollisionEvents.needs(events, sn.TensorEngine(bodies=("left", "right")), lambda need: None)
    name = contact_array(report)

    def motion(time: float) -> dict[str, torch.Tensor]:
        values = torch.zeros(num_envs, 2, 1, 7)
        for (env, pair), force in script(round(time / DT)).items():
            values[env, pair, 0] = torch.tensor([1.0, 0.0, 0.0, force, 0.1 * pair, 0.2, 0.3])
        return {name: values}

    engine = sn.TensorEngine(num_envs, DT, bodies=("left", "right"), provides=("contact",))
    engine.contacts[report]
    engine.motion = motion
    engine.forward()
    return sn.Scene(engine, [events])


def rows(scene: sn.Scene, env: int = 0) -> list[tuple[int, int, int]]:
    """Return pair, phase and tick of the filled rows."""
    data = scene["hits"].data
    n = int(data.count[env])
    return list(
        zip(data.pair[env, :n].tolist(), data.phase[env, :n].tolist(), data.tick[env, :n].tolist(), strict=True)
    )


def during(*spans: tuple[int, int, int, int, float]) -> Script:
    """Script a contact of (env, pair) from tick `start` up to before `stop`."""
    return lambda tick: {(env, pair): f for env, pair, start, stop, f in spans if start <= tick < stop}


@pytest.mark.parametrize("capture", [False, True])
def test_begin_persist_and_end_events(capture: bool) -> None:
    """A contact from tick 7 to 13, in control steps of 5, begins at 7, persists at 11, and ends at 14 with its
    impulse.
    """
    scene = world(during((0, 1, 7, 14, 20.0)))
    scene.step(substeps=5)
    assert rows(scene) == []
    scene.step(substeps=5)
    assert rows(scene) == [(1, BEGIN, 7)]
    data = scene["hits"].data
    assert data.impulse_w[0, 0].tolist() == pytest.approx([0.0, 0.0, 20.0 * 4 * DT])
    assert data.duration[0, 0].item() == pytest.approx(4 * DT)
    assert data.pos_w[0, 0].tolist() == pytest.approx([0.1, 0.2, 0.3])
    scene.step(substeps=5)
    assert rows(scene) == [(1, PERSIST, 11), (1, END, 14)]
    assert data.impulse_w[0, :2, 2].tolist() == pytest.approx([20.0 * 3 * DT, 20.0 * 7 * DT])
    assert data.duration[0, :2].tolist() == pytest.approx([7 * DT, 7 * DT])
    assert data.peak_force[0, :2].tolist() == pytest.approx([20.0, 20.0])
    scene.step(substeps=5)
    assert rows(scene) == [] and (data.pair[0] == -1).all() and not data.impulse_w[0].any()


def test_bounce_of_two_ticks_within_a_control_step_is_detected() -> None:
    """Two bounces of two ticks each in one control step of ten leave four rows in chronological order."""
    scene = world(during((1, 0, 2, 4, 8.0), (1, 0, 7, 9, 16.0)))
    scene.step(substeps=10)
    assert rows(scene, 1) == [(0, BEGIN, 2), (0, END, 4), (0, BEGIN, 7), (0, END, 9)]
    assert scene["hits"].data.impulse_w[1, :4, 2].tolist() == pytest.approx([0.16, 0.16, 0.32, 0.32])
    assert rows(scene, 0) == rows(scene, 2) == []


def test_impulses_of_a_contact_sum_up() -> None:
    """The begin and persist rows of all control steps sum to the impulse of the end row: the integral of force."""
    forces = np.random.default_rng(1).uniform(1.0, 50.0, 60)
    scene = world(lambda tick: {(0, 0): float(forces[tick])} if 3 <= tick < 47 else {})
    parts, whole = 0.0, 0.0
    for _ in range(12):
        scene.step(substeps=5)
        for row, (_, phase, _) in enumerate(rows(scene)):
            impulse = float(scene["hits"].data.impulse_w[0, row, 2])
            parts, whole = (parts, impulse) if phase == END else (parts + impulse, whole)
    assert whole == pytest.approx(forces[3:47].sum() * DT, rel=1e-5) and parts == pytest.approx(whole, rel=1e-5)


def test_without_persist_only_changes_have_rows() -> None:
    scene = world(during((0, 0, 3, 12, 1.0)), persist=False)
    seen = []
    for _ in range(3):
        scene.step(substeps=5)
        seen += rows(scene)
    assert seen == [(0, BEGIN, 3), (0, END, 12)]


def test_a_threshold_acts_on_the_force() -> None:
    """A contact counts from the tick at which its force exceeds the threshold."""
    scene = world(lambda tick: {(0, 0): float(tick)}, force_threshold=6.0)
    scene.step(substeps=10)
    assert rows(scene) == [(0, BEGIN, 7)]


def test_contact_at_a_reset_is_no_begin_event() -> None:
    """After a reset during a contact there is no begin event; other environments keep their rows."""
    scene = world(during((0, 0, 2, 99, 1.0), (1, 0, 2, 99, 1.0)))
    scene.step(substeps=5)
    assert rows(scene, 0) == rows(scene, 1) == [(0, BEGIN, 2)]
    scene.reset([0])
    assert rows(scene, 0) == [(0, PERSIST, 5)] and rows(scene, 1) == [(0, BEGIN, 2)]
    assert scene["hits"].data.duration[0, 0].item() == 0.0 and not scene["hits"].data.impulse_w[0].any()
    scene.step(substeps=5)
    assert scene["hits"].data.duration[0, 0].item() == pytest.approx(5 * DT)
    assert scene["hits"].data.impulse_w[0, 0, 2].item() == pytest.approx(1.0 * 5 * DT)
    assert rows(scene, 0) == [(0, PERSIST, 6)] and rows(scene, 1) == [(0, PERSIST, 6)]


def test_events_without_a_free_row_are_counted() -> None:
    """With one row, the second event of a control step is lost and reported as lost; the next step starts empty."""
    scene = world(during((0, 0, 2, 99, 1.0), (0, 1, 3, 7, 1.0)), max_events=1)
    scene.step(substeps=4)
    assert rows(scene) == [(0, BEGIN, 2)] and scene["hits"].data.lost.tolist() == [1, 0, 0]
    scene.step(substeps=4)
    assert rows(scene) == [(0, PERSIST, 5)] and scene["hits"].data.lost.tolist() == [2, 0, 0]  # persist, and its end


def test_an_edit_without_time_is_no_event() -> None:
    """update(ticks=0) after an edit, once or repeatedly, keeps the rows; the next tick reads the new state."""
    scene = world(during((0, 0, 2, 99, 10.0)))
    scene.step(substeps=4)
    engine, held = scene.engine, snapshot(scene["hits"])
    assert rows(scene) == [(0, BEGIN, 2)]
    assert scene["hits"].data.impulse_w[0, 0, 2].item() == pytest.approx(3 * 10.0 * DT)
    engine.motion = lambda time: {}
    for tensor in (engine.contacts[name] for name in list(engine.contacts)):
        tensor.zero_()
    for _ in range(3):
        scene.update(ticks=0)
        same(snapshot(scene["hits"]), held)
    scene.step(substeps=1)
    assert rows(scene) == [(0, END, 5)]
    assert scene["hits"].data.impulse_w[0, 0, 2].item() == pytest.approx(3 * 10.0 * DT)


def test_run_resumes_within_a_control_step() -> None:
    """A restored state continues bit for bit: rows, impulses and current contacts."""
    script = during((0, 0, 2, 9, 10.0), (2, 1, 4, 7, 3.0))
    first, second = world(script), world(script)
    for scene in (first, second):
        scene.begin_control_step()
    for _ in range(5):
        first.update()
    second.load_state(first.state())
    for _ in range(6):
        first.update()
        second.update()
    for field in ("count", "pair", "phase", "tick", "duration", "impulse_w", "peak_force", "pos_w"):
        assert torch.equal(getattr(first["hits"].data, field), getattr(second["hits"].data, field))
    assert rows(first) == [(0, BEGIN, 2), (0, END, 9)]


def test_readings_and_recordings_are_ragged(tmp_path: Path) -> None:
    """Published and recorded fields hold only the filled rows, env by env, and name the env of each."""
    scene = world(during((0, 0, 1, 3, 10.0), (2, 0, 2, 99, 5.0), (2, 1, 2, 4, 7.0)))
    recorder = NpzRecorder()
    counts = []
    for _ in range(3):
        scene.step(substeps=3)
        reading = scene.publish()["hits"]
        recorder.add(reading)
        counts.append(scene["hits"].data.count.tolist())
        assert reading.offsets.tolist() == [0, *np.cumsum(counts[-1]).tolist()]
        assert len(reading.measured["pair"]) == len(reading.truth["impulse_w"]) == sum(counts[-1])
        assert reading.measured["count"].tolist() == counts[-1]
        for env in range(3):
            n = counts[-1][env]
            assert np.array_equal(
                reading["impulse_w"][reading.rows(env)], scene["hits"].data.impulse_w[env, :n].numpy()
            )
    recorder.save(tmp_path / "run.npz", scene.description())
    sensor = load(tmp_path / "run.npz")["hits"]
    assert sensor.info["constants"]["pairs"] == [["left", "*"], ["right", "*"]]
    assert np.array_equal(np.diff(sensor.offsets, axis=1), counts)
    assert len(sensor.measured["pair"]) == sum(map(sum, counts))
    assert sensor.measured["phase"][sensor.events(0, 2)].tolist() == [BEGIN, BEGIN]
    assert sensor.measured["phase"][sensor.events(1, 2)].tolist() == [PERSIST, END]


def test_rows_per_env_require_a_ragged_field() -> None:
    """Requesting events from a plain reading or recording raises an error that names it."""
    scene = sn.Scene(sn.TensorEngine(2, DT), [sn.ImuCfg(name="imu", body="body")])
    reading = scene.publish()["imu"]
    recorder = NpzRecorder()
    recorder.add(reading)
    assert reading.offsets is None
    with pytest.raises(TypeError, match="'imu'"):
        reading.rows(0)
    with pytest.raises(TypeError, match="'imu'"):
        recorder.recording(scene.description())["imu"].events(0)


def test_one_pair_per_primary_and_secondary() -> None:
    """If several names match the secondaries, each combination has a pair, ordered by secondary."""
    cfg = sn.CollisionEventsCfg(
        primary=sn.ContactMatch(mode="body", pattern=("left", "right")),
        secondary=sn.ContactMatch(mode="body", pattern="box_.*"),
    )
    engine = sn.TensorEngine(2, DT, bodies=("left", "right", "box_0", "box_1"), provides=("contact",))
    scene = sn.Scene(engine, [cfg])
    pairs = [["left", "box_0"], ["right", "box_0"], ["left", "box_1"], ["right", "box_1"]]
    sensor = scene["collision_events"]
    assert sensor.data.pairs == pairs and sensor.constants["pairs"] == pairs
    assert sensor.info.notes["touching"] == "found > 0" and "pairs" not in sensor.info.notes  # each is reported once
    _, second = sn.CollisionEvents.needs(cfg, engine, lambda need: None)
    engine.contacts[second][1, 0, 0, :4] = torch.tensor([1.0, 0.0, 0.0, 4.0])
    scene.step()
    assert scene["collision_events"].data.pair[1, 0].item() == 2


def test_contract_holds() -> None:
    """Every rule of check_sensor holds for scripted contacts."""
    cfg = sn.CollisionEventsCfg(primary=sn.ContactMatch(mode="body", pattern="left|right"), max_events=6)
    (report,) = sn.CollisionEvents.needs(cfg, sn.TensorEngine(bodies=("left", "right")), lambda need: None)

    def engine(num_envs: int) -> sn.TensorEngine:
        made = sn.TensorEngine(num_envs, DT, bodies=("left", "right"), provides=("contact",))
        made.contacts[report]
        phase = torch.arange(num_envs)[:, None] + torch.tensor([0.0, 2.5])

        def motion(time: float) -> dict[str, torch.Tensor]:
            force = 10.0 * torch.sin(time / (3.0 * DT) + phase)
            touching = (force > 0.0).float()
            zero = torch.zeros_like(force)
            columns = [touching, zero, zero, force * touching, zero, zero, zero]
            return {contact_array(report): torch.stack(columns, dim=-1)[:, :, None]}

        made.motion = motion
        return made

    check_sensor(cfg, engine=engine)


def test_a_dropped_box_on_mujoco() -> None:
    """A falling ball has its begin event at the tick of MuJoCo's first contact; a standing box has m g dt of impulse
    per tick.
    """
    xml = """
    <mujoco><option timestep="0.002"/><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
      <body name="box" pos="0 0 .1"><freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="2"/></body>
      <body name="ball" pos="1 0 .3"><freejoint/><geom name="ball" size=".1" mass="1"/></body>
    </worldbody></mujoco>"""
    match = sn.ContactMatch(mode="geom", pattern="box|ball")
    floor = sn.ContactMatch(mode="geom", pattern="floor")
    scene = sn.Scene(sn.MujocoEngine(xml, 2), [sn.CollisionEventsCfg(name="hits", primary=match, secondary=floor)])
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    first = None
    for tick in range(1, 201):
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        if first is None and any(
            {model.geom(g).name for g in contact.geom} == {"ball", "floor"} for contact in data.contact
        ):
            first = tick
    begins = []
    for _ in range(40):
        scene.step(substeps=5)
        begins += [(pair, tick) for pair, phase, tick in rows(scene, 1) if phase == BEGIN]
    assert scene["hits"].data.pairs[1][0] == "ball" and (1, first) in begins
    box = [row for row, (pair, phase, _) in enumerate(rows(scene)) if pair == 0 and phase == PERSIST]
    assert scene["hits"].data.impulse_w[0, box[0], 2].item() == pytest.approx(2.0 * 9.81 * 5 * 0.002, rel=1e-2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_events": 0}, "max_events: got 0"),
        ({"force_threshold": -1.0}, "force_threshold: got -1.0"),
        ({"rate_hz": 100.0}, "evaluates every tick"),
        ({"update_period": 0.1}, "evaluates every tick"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        sn.CollisionEventsCfg(primary=sn.ContactMatch(mode="body", pattern="left"), **fields)


def test_unknown_names_and_overlapping_subtrees_are_refused() -> None:
    """A pattern without a match raises an error that lists the existing names."""
    engine = sn.TensorEngine(1, DT, bodies=("left", "right"), provides=("contact",))
    with pytest.raises(sn.SelectionError, match=r"primary\.pattern: got 'foot'.*left, right"):
        sn.Scene(engine, [sn.CollisionEventsCfg(primary=sn.ContactMatch(mode="body", pattern="foot"))])
