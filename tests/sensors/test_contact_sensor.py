"""The contact sensor on scripted contacts, tick by tick, against a float64 reference of each contact's meaning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.spec import contact_columns
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
DT = 0.0025
FEET = ("FL", "FR", "RL", "RR")
OTHERS = ("box", "ball")
ALL = ("found", "force", "torque", "dist", "pos", "normal", "tangent")
TIMES = ("current_air_time", "last_air_time", "current_contact_time", "last_contact_time")
EPS = 2.0**-24


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def on(pattern: Any, mode: Any = "body", **fields: Any) -> sn.ContactMatch:
    return sn.ContactMatch(mode=mode, pattern=pattern, **fields)


@dataclass
class Touch:
    """One contact of one env; force and torque in the contact's frame, all other values in the world."""

    env: int
    primary: str
    secondary: str
    force: Array
    torque: Array
    normal: Array
    tangent: Array
    pos: Array
    dist: float

    @property
    def frame(self) -> Array:
        return np.stack([self.normal, self.tangent, np.cross(self.normal, self.tangent)], axis=1)

    @property
    def force_w(self) -> Array:
        """Return the force on the primary in the world."""
        return -self.frame @ self.force


def pressing(env: int, primary: str, force: float, secondary: str = "box") -> Touch:
    """Return a contact from below that presses with a force."""
    down, x, zero = np.array([0.0, 0.0, -1.0]), np.array([1.0, 0.0, 0.0]), np.zeros(3)
    return Touch(env, primary, secondary, np.array([force, 0.0, 0.0]), zero, down, x, zero, -1e-3)


def scatter(rng: np.random.Generator, envs: int, most: int = 4) -> list[Touch]:
    """Return random contacts of every foot with both others, up to `most` of each pair."""
    touches = []
    for env in range(envs):
        for primary in FEET:
            for secondary in OTHERS:
                for _ in range(rng.integers(0, most + 1)):
                    normal, other = rng.normal(size=(2, 3))
                    normal /= np.linalg.norm(normal)
                    tangent = np.cross(normal, other)
                    force = np.array([rng.uniform(0.1, 50.0), *rng.normal(size=2)])
                    touches.append(
                        Touch(env, primary, secondary, force, rng.normal(size=3), normal,
                              tangent / np.linalg.norm(tangent), rng.normal(size=3), -rng.uniform(0.0, 0.01))
                    )  # fmt: skip
    return touches


def ordered(touches: list[Touch], reduce: str) -> list[Touch]:
    """Return contacts of one primary in the order of its slots."""
    keys = {"none": lambda _: 0.0, "mindist": lambda t: t.dist, "maxforce": lambda t: -np.linalg.norm(t.force)}
    return sorted(touches, key=keys[reduce])


def write(engine: sn.TensorEngine, touches: list[Touch]) -> None:
    """Fill every report of the engine according to its definition, from contacts."""
    for report, array in engine.contacts.items():
        (_, names), secondary, _, reduce, slots = report.args
        array.zero_()
        columns = contact_columns(report)
        for env in range(engine.num_envs):
            for p, name in enumerate(names):
                mine = [t for t in touches if t.env == env and t.primary == name
                        and secondary in (None, ("body", t.secondary))]  # fmt: skip
                if not mine:
                    continue
                if reduce == "netforce":
                    array[env, p, 0, columns["found"]] = float(len(mine))
                    total = sum((t.force_w for t in mine), np.zeros(3))
                    array[env, p, 0, columns["force"]] = torch.tensor(total, dtype=torch.float32)
                    continue
                for slot, touch in enumerate(ordered(mine, reduce)[:slots]):
                    for field, part in columns.items():
                        value = len(mine) if field == "found" else getattr(touch, field)
                        array[env, p, slot, part] = torch.as_tensor(value, dtype=torch.float32)


def engine_of(envs: int = 1, dt: float = DT, **fields: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, dt, bodies=(*FEET, *OTHERS), provides=("pose", "contact"), **fields)


def scene_of(envs: int = 1, dt: float = DT, allow_gaps: bool = False, **fields: Any) -> sn.Scene:
    form = {} if "prim_path" in fields else {"primary": on("FL|FR|RL|RR")}
    return sn.Scene(engine_of(envs, dt), [sn.ContactSensorCfg(**{**form, **fields})], allow_gaps=allow_gaps)


def tick(scene: sn.Scene, touches: list[Touch]) -> Any:
    """Advance one tick that ends with these contacts, and return the sensor."""
    write(scene.engine, touches)
    scene.update()
    return scene["contact_sensor"]


# Reports --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["none", "mindist", "maxforce"])
@pytest.mark.parametrize("secondary", [None, on("box"), on(OTHERS)], ids=["anything", "one", "several"])
def test_slots_are_sorted_by_the_reduction(reduce: Any, secondary: Any) -> None:
    """All fields of random contacts, primary-major, equal those of the reference, merged over the secondaries."""
    scene = scene_of(5, fields=(*ALL, "friction"), reduce=reduce, secondary=secondary, num_slots=3,
                     track_contact_points=True)  # fmt: skip
    touches = scatter(np.random.default_rng(1), 5)
    data = tick(scene, touches).data
    others = OTHERS if secondary is None or secondary.pattern == OTHERS else ("box",)
    for env in range(5):
        for p, name in enumerate(FEET):
            mine = [t for t in touches if (t.env, t.primary) == (env, name) and t.secondary in others]
            if reduce == "none":  # in the order of the secondaries
                mine = sorted(mine, key=lambda t: others.index(t.secondary) if secondary is not None else 0)
            for slot in range(3):
                column = 3 * p + slot
                kept = ordered(mine, reduce)[slot : slot + 1]
                assert float(data.found[env, column]) == (len(mine) if kept else 0)
                for field in ALL[1:]:
                    expected = getattr(kept[0], field) if kept else 0.0
                    got = numpy(getattr(data, field)[env, column])
                    np.testing.assert_allclose(got, expected, rtol=2 * EPS, err_msg=field)
                friction = -kept[0].frame[:, 1:] @ kept[0].force[1:] if kept else np.zeros(3)
                np.testing.assert_allclose(numpy(data.friction_forces_w[env, column]), friction, atol=1e-5)
                point = numpy(data.contact_pos_w[env, column])
                np.testing.assert_allclose(point, kept[0].pos if kept else np.full(3, np.nan), rtol=2 * EPS)


@pytest.mark.parametrize(("side", "sign"), [("primary", 1.0), ("secondary", -1.0)])
def test_global_frame_turns_force_and_torque_into_the_world(side: str, sign: float) -> None:
    """On the primary, forces are minus the columns (normal, tangent, normal x tangent) times the contact's values."""
    scene = scene_of(4, fields=("found", "force", "torque"), num_slots=3, global_frame=True, force_on=side)
    touches = scatter(np.random.default_rng(2), 4)
    data = tick(scene, touches).data
    assert data.normal is None and data.tangent is None
    for env in range(4):
        for p, name in enumerate(FEET):
            mine = ordered([t for t in touches if (t.env, t.primary) == (env, name)], "maxforce")[:3]
            for slot, touch in enumerate(mine):
                column = 3 * p + slot
                np.testing.assert_allclose(numpy(data.force[env, column]), sign * touch.force_w, atol=1e-4)
                torque = -sign * touch.frame @ touch.torque
                np.testing.assert_allclose(numpy(data.torque[env, column]), torque, atol=1e-5)
    assert {spec.name: spec.frame for spec in scene["contact_sensor"].specs}["force"] == "world"


@pytest.mark.parametrize(
    ("secondary", "side", "sign"),
    [(None, "secondary", -1.0), (on(OTHERS), "primary", 1.0)],
    ids=["anything", "several"],
)
def test_netforce_is_one_sum_for_any_num_slots(secondary: Any, side: str, sign: float) -> None:
    """Netforce has one slot per primary: the number of contacts and the sum of the forces on it, or on the others.

    The latched impulse is that on the primary.
    """
    scene = scene_of(3, reduce="netforce", num_slots=4, secondary=secondary, force_on=side)
    touches = scatter(np.random.default_rng(3), 3)
    data = tick(scene, touches).data
    assert data.found.shape == (3, 4) and data.force.shape == (3, 4, 3)
    for env in range(3):
        for p, name in enumerate(FEET):
            mine = [t for t in touches if (t.env, t.primary) == (env, name)]
            assert float(data.found[env, p]) == len(mine)
            expected = sum((t.force_w for t in mine), np.zeros(3))
            np.testing.assert_allclose(numpy(data.force[env, p]), sign * expected, atol=1e-4)
            np.testing.assert_allclose(numpy(data.latched_impulse_w[env, p]), DT * expected, atol=1e-6)


@pytest.mark.parametrize(("policy", "counted"), [("each", 2.0), ("first", 1.0), ("any", 2.0)])
def test_several_secondaries_count_according_to_the_policy(policy: str, counted: float) -> None:
    """The first is that of the list; `any` has no secondaries, as without the option."""
    scene = scene_of(secondary=on(OTHERS), secondary_policy=policy)
    touches = [pressing(0, "FL", 2.0, "box"), pressing(0, "FL", 3.0, "ball"), pressing(0, "FR", 1.0, "ball")]
    sensor = tick(scene, touches)
    assert sensor.data.found[0, :2].tolist() == [counted, 0.0 if policy == "first" else 1.0]
    assert sensor.filter_names == {"each": ["box", "ball"], "first": ["box"], "any": []}[policy]


def test_prim_path_forces_are_normal_forces_in_total_and_by_filter() -> None:
    """Net forces, the force matrix, friction and mean points of many bodies against many filters are sums over the
    contacts, and found counts the contacts.
    """
    scene = scene_of(6, prim_path="{ENV_REGEX_NS}/Robot/(FL|FR|RL|RR)", track_friction_forces=True, track_pose=True,
                     filter_prim_paths_expr=["/World/envs/env_.*/box", "{ENV_REGEX_NS}/ball"],
                     track_contact_points=True)  # fmt: skip
    rng = np.random.default_rng(4)
    scene.engine.body_pos_w = rng.normal(size=(6, 6, 3))
    touches = scatter(rng, 6)
    sensor = tick(scene, touches)
    data = sensor.data
    assert sensor.body_names == list(FEET) and sensor.num_bodies == 4 and sensor.filter_names == list(OTHERS)
    assert data.force_matrix_w.shape == (6, 4, 2, 3) and data.net_forces_w.shape == (6, 4, 3)
    for env in range(6):
        for p, name in enumerate(FEET):
            mine = [t for t in touches if (t.env, t.primary) == (env, name)]
            net = sum((-t.force[0] * t.normal for t in mine), np.zeros(3))
            np.testing.assert_allclose(numpy(data.net_forces_w[env, p]), net, atol=1e-4)
            assert float(data.found[env, p]) == len(mine)
            for k, other in enumerate(OTHERS):
                pair = [t for t in mine if t.secondary == other]
                normal = sum((-t.force[0] * t.normal for t in pair), np.zeros(3))
                friction = sum((-t.frame[:, 1:] @ t.force[1:] for t in pair), np.zeros(3))
                point = np.mean([t.pos for t in pair], axis=0) if pair else np.full(3, np.nan)
                np.testing.assert_allclose(numpy(data.force_matrix_w[env, p, k]), normal, atol=1e-4)
                np.testing.assert_allclose(numpy(data.friction_forces_w[env, p, k]), friction, atol=1e-5)
                np.testing.assert_allclose(numpy(data.contact_pos_w[env, p, k]), point, atol=1e-6)
    assert torch.equal(data.pos_w, scene.engine.body_pos_w[:, :4])
    assert torch.equal(data.quat_w[..., 0], torch.ones(6, 4))


def test_contacts_beyond_the_limit_are_counted_and_reported_once() -> None:
    """Beyond max_contact_data_count_per_prim only the strongest are summed, found counts all, and one warning names the
    body.
    """
    scene = scene_of(prim_path="FL", max_contact_data_count_per_prim=2)
    touches = [pressing(0, "FL", force) for force in (3.0, 5.0, 4.0)]
    write(scene.engine, touches)
    scene.update()
    with pytest.warns(sn.SensoriumWarning, match=r"'FL' has 3 contacts, so net_forces_w lacks .* to 3"):
        data = scene["contact_sensor"].data
    assert float(data.found[0, 0]) == 3.0 and float(data.net_forces_w[0, 0, 2]) == 9.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(tick(scene, touches).data.found[0, 0]) == 3.0


def test_unrequested_fields_are_none() -> None:
    """Only the fields required by the form and the options are allocated."""
    data = scene_of(fields=("found",), latch=False)["contact_sensor"].data
    for name in (*ALL[1:], *TIMES, "found_history", "net_forces_w", "latched_any", "contact_pos_w", "pos_w"):
        assert getattr(data, name) is None, name
    data = scene_of(prim_path="FL", latch=False)["contact_sensor"].data
    for name in ("force", "force_matrix_w", "force_matrix_w_history", "pos_w", "friction_forces_w", *TIMES):
        assert getattr(data, name) is None, name
    assert data.net_forces_w_history.shape == (1, 1, 1, 3)  # one entry without a history


# Times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["primary", "prim_path"])
def test_times_of_contact_and_air_are_whole_ticks(form: str) -> None:
    """After phases of 1, 2, 32 and 128 ticks, the current time is k dt, the other 0 and the last one (k + 1) dt,
    exactly.
    """
    form_of = {"prim_path": "FL"} if form == "prim_path" else {"primary": on("FL")}
    scene = scene_of(track_air_time=True, **form_of)
    before = {True: 0, False: 0}
    in_contact, began = False, 0
    for ticks in (5, 1, 2, 2, 1, 32, 128, 128, 32, 1):
        for k in range(1, ticks + 1):
            sensor = tick(scene, [pressing(0, "FL", 20.0)] if in_contact else [])
            current = {True: sensor.data.current_contact_time, False: sensor.data.current_air_time}
            last = {True: sensor.data.last_contact_time, False: sensor.data.last_air_time}
            assert float(current[in_contact]) == np.float32(k * DT) and float(current[not in_contact]) == 0.0
            assert float(last[not in_contact]) == np.float32(before[not in_contact] * DT)
            firsts = {True: sensor.compute_first_contact, False: sensor.compute_first_air}
            assert bool(firsts[in_contact](ticks * DT)) == (began > 0)
            assert bool(firsts[in_contact](2 * DT)) == (began > 0 and k <= 2)
            assert not bool(firsts[not in_contact](1.0))
        before[in_contact], in_contact, began = ticks + 1, not in_contact, began + 1


def test_events_are_exact_after_a_million_seconds() -> None:
    """Contact that alternates with the control step is reported at each change, and times stay exact at t = 1e6 s."""
    scene = scene_of(dt=0.005, allow_gaps=True, track_air_time=True, primary=on("FL"))
    scene.update(ticks=200_000_000)
    assert scene.time == 1e6
    for step in range(8):
        standing = step % 2 == 0
        for k in range(1, 5):
            sensor = tick(scene, [pressing(0, "FL", 9.0)] if standing else [])
            assert bool(sensor.compute_first_contact(0.02)) == standing
            assert bool(sensor.compute_first_air(0.02)) == (not standing)
            time = sensor.data.current_contact_time if standing else sensor.data.current_air_time
            assert float(time) == np.float32(k * 0.005)
    assert float(sensor.data.last_contact_time) == np.float32(5 * 0.005)


def test_a_reset_while_standing_is_no_landing() -> None:
    """After a reset all times are 0, the contact time restarts, and no first contact is reported. The first step off
    the ground is an event.
    """
    scene = scene_of(2, track_air_time=True, primary=on("FL"))
    standing = [pressing(env, "FL", 9.0) for env in range(2)]
    for _ in range(10):
        tick(scene, standing)
    scene.reset([1])
    sensor = scene["contact_sensor"]
    assert [float(getattr(sensor.data, name)[1]) for name in TIMES] == [0.0] * 4
    assert float(sensor.data.found[1]) == 1.0
    for k in range(1, 4):
        sensor = tick(scene, standing)
        assert not sensor.compute_first_contact(1.0)[1]
        assert float(sensor.data.current_contact_time[1]) == np.float32(k * DT)
        assert float(sensor.data.current_contact_time[0]) == np.float32((10 + k) * DT)
    sensor = tick(scene, standing[:1])
    assert sensor.compute_first_air(DT)[:, 0].tolist() == [False, True]
    assert float(sensor.data.last_contact_time[1]) == np.float32(4 * DT)
    sensor = tick(scene, standing)
    assert sensor.compute_first_contact(DT)[:, 0].tolist() == [False, True]


class Timers:
    """Reference of the times of a switch: whole ticks since the sample before each change."""

    def __init__(self, closed: bool) -> None:
        self.tick = self.since = 0
        self.closed, self.last = closed, {True: 0, False: 0}

    def sample(self, tick: int, closed: bool) -> list[float]:
        if closed != self.closed:
            self.last[self.closed] = tick - self.since
            self.closed, self.since = closed, self.tick
        self.tick = tick
        now = tick - self.since
        times = [0 if closed else now, self.last[False], now if closed else 0, self.last[True]]
        return [float(np.float32(each * DT)) for each in times]


@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("form", ["netforce", "slots", "prim_path"])
def test_measured_times_follow_the_measured_force(form: str, period: int) -> None:
    """With noise about the threshold, the measured times are those of the measured force at the samples; the true ones,
    the counts and the events are those of the truth.
    """
    field = "net_forces_w" if form == "prim_path" else "force"
    forms = {"prim_path": {"prim_path": "(FL|FR)"}, "netforce": {"primary": on("FL|FR"), "reduce": "netforce"},
             "slots": {"primary": on("FL|FR"), "num_slots": 2}}  # fmt: skip
    options = {**forms[form], "track_air_time": True, "force_threshold": 10.0}
    rate = {"update_period": period * DT} if period > 1 else {}
    scene = scene_of(2, **options, **rate, noise={field: 4.0})
    clean = scene_of(2, **options, **rate)
    timers: dict[tuple[int, int], Timers] = {}
    switched = 0
    for now in range(61):
        touches = [pressing(env, "FL", 10.0 if now % 20 < 12 else 0.0) for env in range(2)]
        if now:
            sensor, twin = tick(scene, touches), tick(clean, touches)
        else:
            sensor, twin = scene["contact_sensor"], clean["contact_sensor"]
        for name in (*TIMES, "found"):
            assert torch.equal(getattr(sensor.ground_truth, name), getattr(twin.ground_truth, name)), name
        assert torch.equal(sensor.compute_first_contact(DT), twin.compute_first_contact(DT))
        if now % period:
            continue
        data = sensor.data
        size = getattr(data, field).reshape(2, 2, -1, 3).norm(dim=-1).amax(dim=-1)
        for env, primary in np.ndindex(2, 2):
            closed = bool(size[env, primary] > 10.0)
            timer = timers.setdefault((env, primary), Timers(closed))
            got = [float(getattr(data, name)[env, primary]) for name in TIMES]
            assert got == timer.sample(now, closed), (now, env, primary)
        switched += int((data.current_contact_time != sensor.ground_truth.current_contact_time).sum())
    assert switched > 10
    scene.reset([1])
    assert [float(getattr(sensor.data, name)[1].sum()) for name in TIMES] == [0.0] * 4


@pytest.mark.parametrize("form", ["primary", "prim_path"])
def test_measured_history_holds_measured_forces(form: str) -> None:
    """Its entries are the forces as they were measured, 0 before the episode; the true history holds true forces."""
    if form == "primary":
        options: Any = {"primary": on("FL|FR"), "noise": {"force": 1.0}, "history_length": 3, "num_slots": 2}
        field, axis = "force", 2
    else:
        options = {"prim_path": "(FL|FR)", "filter_prim_paths_expr": ["box", "ball"], "history_length": 3}
        options["noise"] = {"force_matrix_w": 1.0, "net_forces_w": 0.5}
        field, axis = "force_matrix_w", 1
    scene = scene_of(2, **options)
    sensor, seen, true = scene["contact_sensor"], [], []
    for now in range(6):
        if now:
            tick(scene, [pressing(env, "FL", 3.0 + now) for env in range(2)])
        if now == 4:
            scene.reset([1])
        for kept, data in ((seen, sensor.data), (true, sensor.ground_truth)):
            kept.append(getattr(data, field).clone())
        for kept, data in ((seen, sensor.data), (true, sensor.ground_truth)):
            history = getattr(data, f"{field}_history")
            for age in range(3):
                for env in range(2):
                    first = 4 if env and now >= 4 else 0
                    expected = kept[now - age][env] if now - age >= first else torch.zeros_like(kept[0][env])
                    assert torch.equal(history.select(axis, age)[env], expected), (now, age, env)
    assert not torch.equal(seen[-1], true[-1])


def test_contacts_are_delayed_and_lost() -> None:
    """All fields of a delayed sample arrive together, and a lost one never."""
    scene = scene_of(track_air_time=True, primary=on("FL"), delay=2 * DT, fields=("found", "force"))
    late = scene_of(track_air_time=True, primary=on("FL"), loss=sn.GilbertElliott(p=1.0, r=1e-6))
    shown, true = [], []
    for now in range(1, 9):
        touches = [pressing(0, "FL", float(now))] if now != 5 else []
        sensor = tick(scene, touches)
        tick(late, touches)
        shown.append(
            [float(each) for each in (sensor.data.found, sensor.data.force[0, 0, 0], sensor.data.current_contact_time)]
        )
        truth = sensor.ground_truth
        true.append([float(each) for each in (truth.found, truth.force[0, 0, 0], truth.current_contact_time)])
    assert shown[2:] == true[:-2] and sensor.age.tolist() == [2 * DT]
    assert float(late["contact_sensor"].data.found) == 0.0 and not bool(late["contact_sensor"].valid)


def test_nothing_is_stale_one_tick_after_lift_off() -> None:
    """At the tick after the last contact all fields are 0, whether or not the sensor was read before."""
    for read in (True, False):
        for fields in ({"fields": ALL}, {"prim_path": "FL"}):
            scene = scene_of(**fields)
            sensor = tick(scene, [pressing(0, "FL", 9.0)])
            if read:
                assert bool((sensor.data.found[0, 0] == 1.0).all())
            data = tick(scene, []).data
            for spec in sensor.specs:
                if spec.name in (*ALL, "net_forces_w"):
                    assert not bool(getattr(data, spec.name).any()), spec.name


@pytest.mark.parametrize(
    ("fields", "at_half", "at_two"),
    [({}, True, True), ({"force_threshold": 1.0}, False, True), ({"prim_path": "FL"}, False, True),
     ({"prim_path": "FL", "force_threshold": 0.0}, True, True), ({"force_threshold": 5.0}, False, False)],
    ids=["any contact", "1 N", "default by prim path", "0 N", "5 N"],
)  # fmt: skip
def test_threshold_affects_contact_times_only(fields: Any, at_half: bool, at_two: bool) -> None:
    """Forces of 0.5 N and 2 N count as contact or not; found, force and latches do not depend on this."""
    form = {} if "prim_path" in fields else {"primary": on("FL")}
    for force, expected in ((0.5, at_half), (2.0, at_two)):
        sensor = tick(scene_of(track_air_time=True, **form, **fields), [pressing(0, "FL", force)])
        assert (float(sensor.data.current_contact_time) > 0.0) == expected
        assert float(sensor.data.found) == 1.0 and bool(sensor.data.latched_any)
        assert float(sensor.data.latched_peak_force) == force


def test_threshold_and_latches_use_all_contacts() -> None:
    """Four contacts of 0.4 N sum to 1.6 N, even if one slot shows 0.4 N."""
    scene = scene_of(primary=on("FL"), track_air_time=True, force_threshold=1.0)
    data = tick(scene, [pressing(0, "FL", 0.4)] * 4).data
    assert float(data.force[0, 0, 0]) == np.float32(0.4) and float(data.current_contact_time) > 0.0
    assert float(data.latched_peak_force) == pytest.approx(1.6, rel=1e-6)


# Within a control step ------------------------------------------------------------------------------------------------


def step(scene: sn.Scene, forces: list[float]) -> Any:
    """Take one control step with a tick for each force on FL; 0 means in the air."""
    scene.begin_control_step()
    for force in forces:
        sensor = tick(scene, [pressing(0, "FL", force)] if force else [])
    return sensor


def test_bounce_within_a_control_step_is_detected() -> None:
    """Two ticks of contact out of ten, over before the end, appear in the latch with peak, impulse and first time, and
    in the history. The next control step clears the latch.
    """
    scene = scene_of(primary=on("FL"), history_length=10)
    data = step(scene, [0.0] * 3 + [30.0, 50.0] + [0.0] * 5).data
    assert float(data.found) == 0.0
    assert bool(data.latched_any) and float(data.latched_peak_force) == 50.0
    assert float(data.latched_first_time) == np.float32(4 * DT)
    np.testing.assert_allclose(numpy(data.latched_impulse_w[0, 0]), [0.0, 0.0, 80.0 * DT], rtol=1e-6)
    assert data.force_history[0, 0, :, 0].tolist() == [0.0] * 5 + [50.0, 30.0] + [0.0] * 3
    assert data.found_history[0, 0].tolist() == [0.0] * 5 + [1.0, 1.0] + [0.0] * 3
    data = step(scene, [0.0] * 10).data
    assert not bool(data.latched_any) and float(data.latched_peak_force) == 0.0
    assert math.isinf(float(data.latched_first_time)) and not bool(data.latched_impulse_w.any())


@pytest.mark.parametrize("fields", [{"primary": on("FL")}, {"prim_path": "FL"}], ids=["primary", "prim_path"])
def test_the_latched_impulse_is_the_integral_of_the_net_force(fields: Any) -> None:
    """Over 200 ticks of up to four random contacts, impulse is the float64 sum of F dt to 1e-5, and peak is the
    maximum.
    """
    scene = scene_of(**fields)
    rng, total, peak = np.random.default_rng(5), np.zeros(3), 0.0
    scene.begin_control_step()
    for _ in range(200):
        touches = [t for t in scatter(rng, 1, most=2) if t.primary == "FL"]
        parts = [t.force_w if "primary" in fields else -t.force[0] * t.normal for t in touches]
        force = sum(parts, np.zeros(3))
        total, peak = total + force * DT, max(peak, float(np.linalg.norm(force)))
        data = tick(scene, touches).data
    np.testing.assert_allclose(numpy(data.latched_impulse_w[0, 0]), total, atol=1e-5 * np.linalg.norm(total))
    assert float(data.latched_peak_force) == pytest.approx(peak, rel=1e-5)


def test_without_control_steps_each_update_counts_as_one() -> None:
    """Without control steps, a latch covers the tick of the update."""
    scene = scene_of(primary=on("FL"))
    assert bool(tick(scene, [pressing(0, "FL", 3.0)]).data.latched_any)
    assert not bool(tick(scene, []).data.latched_any)


def test_a_reset_clears_latches_and_histories_of_its_envs() -> None:
    """In the reset env, latches hold the capture at the reset, without impulse; the other env continues."""
    scene = scene_of(2, primary=on("FL"), history_length=3)
    scene.begin_control_step()
    for _ in range(3):
        tick(scene, [pressing(env, "FL", 50.0) for env in range(2)])
    write(scene.engine, [pressing(0, "FL", 50.0), pressing(1, "FL", 7.0)])
    scene.reset([1])
    data = scene["contact_sensor"].data
    assert data.latched_peak_force[:, 0].tolist() == [50.0, 7.0]
    assert float(data.latched_impulse_w[1, 0, 2]) == 0.0
    assert float(data.latched_impulse_w[0, 0, 2]) == pytest.approx(150.0 * DT, rel=1e-6)
    assert data.force_history[:, 0, :, 0].tolist() == [[50.0, 50.0, 50.0], [7.0, 0.0, 0.0]]
    assert scene["contact_sensor"].history_valid.tolist() == [[True] * 3, [True, False, False]]


def test_an_update_without_time_holds_the_sample() -> None:
    """After an edit update(ticks=0) keeps latch, timers and history, and no later history contains the edit."""
    edited, twin = (scene_of(primary=on("FL"), track_air_time=True, history_length=3) for _ in range(2))
    for scene in (edited, twin):
        step(scene, [1.0, 2.0])
        tick(scene, [])
    sensor = edited["contact_sensor"]

    def shown() -> list[torch.Tensor]:
        times = [sensor.frame, sensor.capture_tick, sensor.valid, sensor.history_valid]
        return [*(getattr(sensor.data, spec.name).clone() for spec in sensor.specs), *(each.clone() for each in times)]

    held = shown()
    write(edited.engine, [pressing(0, "FL", 9.0)])
    for _ in range(2):
        edited.update(ticks=0)
        assert all(torch.equal(now, before) for now, before in zip(shown(), held, strict=True))
    for _ in range(3):
        for spec in edited["contact_sensor"].specs:
            values = [getattr(scene["contact_sensor"].data, spec.name) for scene in (edited, twin)]
            assert torch.equal(values[0], values[1]), spec.name
        for scene in (edited, twin):
            tick(scene, [pressing(0, "FL", 4.0)])


# Separate rate --------------------------------------------------------------------------------------------------------


def test_slow_sensor_observes_every_tick() -> None:
    """Sampled every fourth tick, the sensor matches a sensor sampled at every tick bit for bit: times, history and all
    fields. Between samples the reading is constant, and its latch covers the ticks since the previous sample.
    """
    rng = np.random.default_rng(6)
    forces = np.where(rng.random(60) < 0.5, 0.0, rng.uniform(1.0, 50.0, 60))
    common: dict[str, Any] = {"primary": on("FL"), "track_air_time": True, "history_length": 5}
    cfgs = [
        sn.ContactSensorCfg(name="fast", **common),
        sn.ContactSensorCfg(name="slow", update_period=4 * DT, **common),
    ]
    scene = sn.Scene(engine_of(), cfgs)
    shown: dict[str, torch.Tensor] = {}
    for k, force in enumerate(forces, start=1):
        write(scene.engine, [pressing(0, "FL", force)] if force else [])
        scene.update()
        fast, slow = scene["fast"].data, scene["slow"].data
        for spec in scene["slow"].specs:
            value = getattr(slow, spec.name)
            if k % 4 and k > 4:
                assert torch.equal(value, shown[spec.name]), spec.name
            elif k % 4 == 0 and not spec.name.startswith("latched"):
                assert torch.equal(value, getattr(fast, spec.name)), spec.name
            shown[spec.name] = value.clone()
        if k % 4 == 0:
            span = forces[k - 4 : k]
            assert bool(slow.latched_any) == bool(span.any())
            assert float(slow.latched_impulse_w[0, 0, 2]) == pytest.approx(span.sum() * DT, rel=1e-5)
            assert float(slow.latched_peak_force) == np.float32(span.max())
            first = (np.flatnonzero(span)[0] + 1) * DT if span.any() else np.inf
            assert float(slow.latched_first_time) == np.float32(first)


def test_latch_of_a_slow_sensor_covers_a_longer_control_step() -> None:
    """With samples every second tick of a control step of six, the latch starts at the beginning of the step."""
    scene = scene_of(primary=on("FL"), update_period=2 * DT)
    scene.begin_control_step()
    for force in (8.0, 0.0, 0.0, 0.0, 0.0, 0.0):
        sensor = tick(scene, [pressing(0, "FL", force)] if force else [])
    assert bool(sensor.data.latched_any) and float(sensor.data.latched_first_time) == np.float32(DT)
    sensor = step(scene, [0.0] * 6)
    assert not bool(sensor.data.latched_any)


def test_a_jump_over_ticks_is_refused() -> None:
    """Skipped ticks would be missing in times, latches and histories."""
    for fields in ({}, {"update_period": 10 * DT}):
        with pytest.raises(sn.ScheduleError, match="contact_sensor"):
            scene_of(**fields).update(ticks=3)


# Names, bad input -----------------------------------------------------------------------------------------------------


def test_histories_have_the_shapes_of_their_contracts() -> None:
    """The shape is `[env, contact, history, 3]` with a primary, or `[env, history, body, 3]` and `[env, history, body,
    filter, 3]` by prim path, newest first.
    """
    data = scene_of(2, num_slots=2, fields=ALL, history_length=4)["contact_sensor"].data
    assert data.force_history.shape == data.torque_history.shape == data.pos_history.shape == (2, 8, 4, 3)
    assert data.dist_history.shape == data.found_history.shape == (2, 8, 4)
    scene = scene_of(2, prim_path="(F|R)[LR]", filter_prim_paths_expr=["box", "ball"], history_length=4)
    for force in (1.0, 2.0, 3.0):
        tick(scene, [pressing(1, "RL", force, "ball")])
    data = scene["contact_sensor"].data
    assert data.net_forces_w_history.shape == (2, 4, 4, 3)
    assert data.net_forces_w_history[1, :, 2, 2].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert data.force_matrix_w_history[1, :, 2, 1, 2].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert not bool(data.force_matrix_w_history[1, :, 2, 0].any())


def test_primaries_are_named_and_found() -> None:
    """Names omit the entity if they are unique without it, in the order of the model or the list."""
    engine = sn.TensorEngine(bodies=("dog/FL", "dog/FR", "cat/FL", "cat/tail"), provides=("contact",))
    cfg = sn.ContactSensorCfg(primary=on(("^(FL|FR)$",), entity="dog"))
    sensor = sn.Scene(engine, [cfg])[cfg]
    assert sensor.primary_names == sensor.body_names == sensor.data.primary_names == ["FL", "FR"]
    assert sensor.num_bodies == 2 and sensor.num_instances == 2 and sensor.contact_names == ["FL", "FR"]
    sensor = sn.Scene(engine, [sn.ContactSensorCfg(primary=on(("FL",), entity="dog"), num_slots=2)])["contact_sensor"]
    assert sensor.contact_names == ["FL slot 0", "FL slot 1"]
    cfg = sn.ContactSensorCfg(primary=on(("cat/.*", "dog/FL")))
    sensor = sn.Scene(engine, [cfg])[cfg]
    assert sensor.primary_names == ["cat/FL", "tail", "dog/FL"]
    assert sensor.find_bodies(["dog/FL", "tail"]) == ([1, 2], ["tail", "dog/FL"])
    assert sensor.find_bodies(["dog/FL", "tail"], preserve_order=True) == ([2, 1], ["dog/FL", "tail"])
    for keys in ("head", [".*", "tail"]):
        with pytest.raises(ValueError, match="find_bodies"):
            sensor.find_bodies(keys)


@pytest.mark.parametrize(
    ("exclude", "left"),
    [(("FL", "RR"), ["FR", "RL"]), (("^F",), ["RL", "RR"]), (("L$", "FR"), ["RR"])],
    ids=["names", "pattern", "both"],
)
def test_names_and_patterns_can_be_excluded(exclude: Any, left: list[str]) -> None:
    """A plain entry is a name; an entry with a special character is a pattern."""
    scene = scene_of(primary=on("FL|FR|RL|RR", exclude=exclude))
    assert scene["contact_sensor"].primary_names == left


FOOT = {"primary": on("FL")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "primary: got nothing, expected primary or prim_path"),
        ({**FOOT, "prim_path": "FL"}, "expected one of primary and prim_path. Keep one"),
        ({"prim_path": "FL", "num_slots": 2}, "num_slots: got 2, expected no such option"),
        ({**FOOT, "track_pose": True}, "track_pose: got True, expected no such option"),
        ({**FOOT, "num_slots": 0}, "num_slots: got 0, expected a whole number >= 1"),
        ({**FOOT, "fields": ("force",), "track_air_time": True}, "expected 'found' in fields"),
        ({**FOOT, "fields": ("found", "dist"), "reduce": "netforce"}, "Omit dist"),
        ({**FOOT, "reduce": "netforce", "track_contact_points": True}, "Omit track_contact_points"),
        ({**FOOT, "fields": ("froce",)}, "Did you mean 'force'?"),
        ({**FOOT, "fields": ()}, "at least one field"),
        ({**FOOT, "fields": "found"}, "expected a list of fields. Write fields=('found',)"),
        ({**FOOT, "force_threshold": -1.0}, "force_threshold: got -1.0, expected a finite force >= 0"),
        ({**FOOT, "evaluate": "wanted"}, "need every tick"),
        ({**FOOT, "noise": 0.1}, "noise: got 0.1, expected one amount per field"),
        ({"prim_path": "FL", "track_contact_points": True}, "track_contact_points: got True, expected at least one"),
        ({"prim_path": "FL", "track_friction_forces": True}, "track_friction_forces: got True, expected at least one"),
        ({"prim_path": "FL", "max_contact_data_count_per_prim": 0}, "max_contact_data_count_per_prim: got 0"),
        ({"prim_path": "FL", "filter_prim_paths_expr": "box"}, "expected a list of paths"),
        ({"primary": on("FL", exclude=("FR",))}, "primary.exclude: got 'FR'"),
        ({"primary": on("FL", exclude=("FL",))}, "at least one body left"),
        ({"primary": on("foot")}, "primary.pattern: got 'foot', expected the name of a body"),
        ({"primary": on(("F.", ".L"))}, "another one also matches FL"),
        ({**FOOT, "secondary": on("wall")}, "secondary.pattern: got 'wall'"),
        ({**FOOT, "secondary": on(OTHERS), "fields": ("found", "pos"), "reduce": "netforce"}, "Omit pos"),
        ({**FOOT, "secondary": on(OTHERS), "secondary_policy": "error"}, "exactly one body. It matches box, ball"),
        ({"prim_path": "{ENV_REGEX_NS}/foot"}, "prim_path: got '{ENV_REGEX_NS}/foot', expected a body or geom"),
        ({"prim_path": "FL", "filter_prim_paths_expr": ["box", "b.*"]}, "another one also matches the body 'box'"),
    ],
)  # fmt: skip
def test_bad_input_error_names_config_field_and_fix(fields: Any, message: str) -> None:
    """Each fault of a config, alone or on a model, is a ConfigError that states the correct form."""
    with pytest.raises(sn.ConfigError) as error:
        sn.Scene(engine_of(), [sn.ContactSensorCfg(**fields)])
    assert message in str(error.value)
    assert str(error.value).startswith("ContactSensorCfg")


def test_reading_an_unrecorded_quantity_raises() -> None:
    """Events without times raise a RuntimeError that states the fix."""
    sensor = scene_of()["contact_sensor"]
    for ask in (lambda: sensor.compute_first_contact(0.02), lambda: sensor.compute_first_air(0.02)):
        with pytest.raises(RuntimeError, match="track_air_time=True"):
            ask()
    with pytest.raises(sn.ConfigError, match="force_history"):
        scene_of(history_length=2)["contact_sensor"].history  # noqa: B018


def test_an_engine_without_contacts_is_refused() -> None:
    """Contacts that are never written raise an error that states how to provide them, and are never zeros."""
    with pytest.raises(sn.UnsupportedError, match="provides="):
        sn.Scene(sn.TensorEngine(), [sn.ContactSensorCfg(primary=on("body"))])


def test_non_finite_force_invalidates_only_its_env() -> None:
    """The env's sample is invalid and its body is named. Timers and latches skip the tick; a reset makes the env valid
    again.
    """
    scene = scene_of(2, track_air_time=True)
    tick(scene, [pressing(0, "FL", 5.0), pressing(1, "FL", 5.0)])
    write(scene.engine, [pressing(0, "FL", 5.0), pressing(1, "FL", math.nan)])
    with pytest.warns(sn.NonFiniteStateWarning, match=r"env 1, body 'FL'"):
        scene.update()
    sensor = scene["contact_sensor"]
    assert sensor.valid.tolist() == [True, False]
    assert sensor.data.current_contact_time[:, 0].tolist() == [np.float32(2 * DT)] * 2
    assert float(sensor.data.latched_peak_force[1, 0]) == 0.0
    write(scene.engine, [pressing(0, "FL", 5.0)])
    scene.reset([1])
    assert sensor.valid.tolist() == [True, True]


# The author's contract ------------------------------------------------------------------------------------------------


def scripted(envs: int) -> sn.TensorEngine:
    """Return an engine whose contacts come and go, differently in each env."""

    def motion(time: float) -> Iterator[Any] | dict[Any, Any]:
        values = {}
        for report, array in engine.contacts.items() if made else ():
            place = torch.arange(array[0].numel()).reshape(array.shape[1:])
            env = torch.arange(envs).reshape(-1, 1, 1, 1)
            wave = torch.sin(700.0 * time + 1.7 * env + 0.6 * place[..., :1])
            there = (wave > -0.2).float()
            values[report] = there * (1.0 + torch.sin(3.0 * place + 90.0 * time + env) * (place % array.shape[-1] > 0))
        return values

    made: list[bool] = []
    engine = sn.TensorEngine(envs, 0.002, bodies=("body", *FEET, *OTHERS), provides=("pose", "contact"), motion=motion)
    made.append(True)
    return engine


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("fields", [{}, {"prim_path": "FL|FR", "filter_prim_paths_expr": ["box"]}])
def test_captured_graphs_give_equal_readings(fields: Any) -> None:
    """Replayed as a captured graph, every field has the same bits, control steps and resets included."""
    form = {} if fields else {"primary": on("FL|FR")}
    cfg = sn.ContactSensorCfg(track_air_time=True, history_length=3, **form, **fields)
    scenes = [sn.Scene(engine_of(3), [cfg], capture=capture) for capture in (False, True)]
    rng = np.random.default_rng(7)
    for k in range(20):
        touches = scatter(rng, 3, most=1)
        for scene in scenes:
            if k % 4 == 0:
                scene.begin_control_step()
            tick(scene, touches)
            if k == 9:
                scene.reset([1])
        for spec in scenes[0][cfg].specs:
            values = [getattr(scene[cfg].data, spec.name) for scene in scenes]
            assert torch.equal(*values), spec.name


@pytest.mark.parametrize(
    "cfg",
    [
        pytest.param(sn.ContactSensorCfg.example(), marks=pytest.mark.full),
        sn.ContactSensorCfg(primary=on(FEET), secondary=on(OTHERS), fields=(*ALL, "friction"), num_slots=2,
                            global_frame=True, history_length=2),
        sn.ContactSensorCfg(prim_path="F.|R.", filter_prim_paths_expr=["box", "ball"], track_air_time=True,
                            track_friction_forces=True, track_pose=True, history_length=3),
        sn.ContactSensorCfg(primary=on(FEET), track_air_time=True, history_length=3, update_period=0.006),
    ],
    ids=["example", "slots", "prim_path", "slow"],
)  # fmt: skip
def test_contract_holds(cfg: sn.ContactSensorCfg) -> None:
    """Every rule of check_sensor holds: reset, resume, re-evaluation, env count, other sensors and round trips."""
    rules = check_sensor(cfg, scripted)
    assert {"reset_leaves_the_others", "resuming_is_exact", "no_time_no_change", "config_round_trip"} <= set(rules)


@pytest.mark.parametrize(
    "cfg",
    [
        {"prim_path": "FL", "track_pose": True},
        {"prim_path": "FL"},
        {"fields": ("found", "force", "pos"), "reduce": "netforce"},
        {"fields": ("found", "force", "pos", "normal", "tangent")},
        {"fields": ("found", "force", "pos")},
        {"fields": ("found", "force"), "reduce": "netforce"},
    ],
)
def test_debug_draw_shows_forces_at_their_contacts_or_bodies(cfg: dict[str, Any]) -> None:
    """A pressed foot is an arrow of 0.01 m per newton; without the axes of the contact it is a point."""
    scene = scene_of(**cfg)
    sensor = tick(scene, [pressing(0, "FL", 3.0)])
    assert sensor.set_debug_vis(True) is True is sensor.has_debug_vis_implementation
    (shape,) = sensor.debug_draw()
    if cfg.get("fields") == ("found", "force", "pos") and "reduce" not in cfg:
        assert shape.kind == "points" and len(shape.items) == 1
        return
    (arrow,) = shape.items[:, 1] - shape.items[:, 0]
    assert np.linalg.norm(arrow) == pytest.approx(0.03, rel=1e-5)
