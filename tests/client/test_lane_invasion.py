"""Lane invasion: crossings of paths and markings, against exact arithmetic, and the messages of a drive."""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from client_world import BODIES, CAR, FakeHost, drain, snapshot, spawn

import sensorium as sn
from sensorium.client.callbacks import Callbacks
from sensorium.client.lane_invasion import CORNERS, LaneInvasion, LaneInvasionEvent, LaneMarking, Lines, corners_of
from sensorium.errors import ConfigError
from sensorium.pose import Pose
from sensorium.wire.owner import owner_of
from sensorium.wire.world import Snapshot

LONG = 20.0
"""Time-out of an expected event, s."""
Point = tuple[Fraction, Fraction]


@pytest.fixture
def host() -> Iterator[FakeHost]:
    callbacks = Callbacks()
    host = FakeHost(callbacks)
    yield host
    host.close()
    assert callbacks.errors.take() == []


# A slow reference -----------------------------------------------------------------------------------------------------


def is_on(point: Point, a: Point, b: Point) -> bool:
    """Return whether a point is on a segment, including its ends."""
    (x, y), (ax, ay), (bx, by) = point, a, b
    if (bx - ax) * (y - ay) != (by - ay) * (x - ax):
        return False
    return min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by)


def crosses(before: Sequence[float], now: Sequence[float], line: Sequence[Sequence[float]]) -> bool:
    """Return whether a path reaches a line from outside of it.

    The path is cut where it can reach or leave the line. These are its intersections with the straight line through
    each segment, and the places where an end of a segment is abreast. Between two cuts it is either on the line
    throughout or not at all. The function therefore checks the cuts and the midpoints between them in order.
    """
    points = [(Fraction(x), Fraction(y)) for x, y in (each[:2] for each in line)]
    segments = list(itertools.pairwise(points))
    (px, py), (qx, qy) = [(Fraction(x), Fraction(y)) for x, y in (before, now)]
    dx, dy = qx - px, qy - py
    if dx == dy == 0:
        return False
    cuts = {Fraction(0), Fraction(1)}
    for (ax, ay), (bx, by) in segments:
        nx, ny = by - ay, ax - bx
        if nx * dx + ny * dy:
            cuts.add((nx * (ax - px) + ny * (ay - py)) / (nx * dx + ny * dy))
        cuts |= {((x - px) * dx + (y - py) * dy) / (dx * dx + dy * dy) for x, y in ((ax, ay), (bx, by))}
    at = sorted(cut for cut in cuts if 0 <= cut <= 1)
    looks = [at[0]] + [each for one, other in itertools.pairwise(at) for each in ((one + other) / 2, other)]
    on = [any(is_on((px + t * dx, py + t * dy), *segment) for segment in segments) for t in looks]
    return any(later and not earlier for earlier, later in itertools.pairwise(on))


def agree(before: npt.ArrayLike, now: npt.ArrayLike, lines: Sequence[LaneMarking]) -> npt.NDArray[np.bool_]:
    """Check all paths against all lines, and return the crossings."""
    before, now = np.asarray(before, np.float64), np.asarray(now, np.float64)
    found = Lines(lines).crossed(before, now)
    expected = [
        [crosses(p, q, line.points) for line in lines] for p, q in zip(before.tolist(), now.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, bool).reshape(found.shape))
    return found


# The crossing test ----------------------------------------------------------------------------------------------------


STRAIGHT = ((0, 0), (10, 0))
BENT = ((0, 0), (4, 0), (4, 4), (8, 4))


@pytest.mark.parametrize(
    ("line", "before", "now", "expected", "why"),
    [
        (STRAIGHT, (5, -1), (5, 1), True, "through the middle"),
        (STRAIGHT, (5, 1), (5, -1), True, "the other way"),
        (STRAIGHT, (5, -1), (5, 0), True, "comes to lie on it"),
        (STRAIGHT, (5, 0), (5, 1), False, "leaves it"),
        (STRAIGHT, (5, 0), (5, -1), False, "leaves it to where it came from"),
        (STRAIGHT, (3, 0), (7, 0), False, "goes along it"),
        (STRAIGHT, (3, 0), (12, 0), False, "goes along it beyond its end"),
        (STRAIGHT, (-2, 0), (3, 0), True, "comes onto it over its end"),
        (STRAIGHT, (-2, 0), (0, 0), True, "comes to lie on its end"),
        (STRAIGHT, (-2, 0), (12, 0), True, "goes over all of it, along it"),
        (STRAIGHT, (-2, 0), (-1, 0), False, "in its direction, but not there yet"),
        (STRAIGHT, (0, -1), (0, 1), True, "through its end"),
        (STRAIGHT, (-1, -1), (1, 1), True, "through its end, aslant"),
        (STRAIGHT, (11, -1), (11, 1), False, "past its end"),
        (STRAIGHT, (5, 2), (5, 1), False, "not there yet"),
        (STRAIGHT, (5, 1), (5, 1), False, "stands"),
        (STRAIGHT, (5, 0), (5, 0), False, "stands on it"),
        (BENT, (3, -1), (5, 1), True, "through the point of a bend"),
        (BENT, (4, -1), (4, 5), True, "along one of its parts"),
        (BENT, (2, 0), (6, 4), True, "from one part of it onto another"),
        (BENT, (2, 0), (4, 0), False, "along it, to the bend"),
        (BENT, (2, 0), (6, 0), False, "along it, and on where it bends"),
        (BENT, (4, 1), (4, 3), False, "along the part between"),
        (BENT, (4, 0), (8, 4), True, "from a bend to its end, beside it"),
        (((0, 0), (2, 0), (4, 0)), (1, 0), (3, 0), False, "along it, over a point between"),
        (((0, 0), (4, 0), (2, 0)), (1, 0), (5, 0), False, "along one that turns back"),
        (((0, 0), (0, 0), (10, 0)), (5, -1), (5, 1), True, "a point given twice"),
        (((0, 0, 7), (10, 0, 9)), (5, -1), (5, 1), True, "with heights"),
    ],
)
def test_crossing_definition(line: Any, before: Any, now: Any, expected: bool, why: str) -> None:
    assert agree([before], [now], [LaneMarking(line)]).tolist() == [[expected]], why


def test_a_path_with_a_stop_exactly_on_the_line_crosses_once() -> None:
    line = Lines([LaneMarking(STRAIGHT)])
    stops = np.array([(5, -2), (5, -1), (5, 0), (5, 0), (5.5, 0), (5, 1), (5, 2)], float)
    assert line.crossed(stops[:-1], stops[1:])[:, 0].tolist() == [False, True, False, False, False, False]


@pytest.mark.parametrize("seed", range(3))
def test_degenerate_paths_on_a_small_grid_match_the_reference(seed: int) -> None:
    """All paths with whole coordinates from 0 to 4: touching ends, coinciding segments, lines that cross themselves."""
    rng = np.random.default_rng(seed)
    lines = [
        LaneMarking(points) for points in rng.integers(0, 5, (20, 4, 2)).tolist() if len({*map(tuple, points)}) > 1
    ]
    before, now = rng.integers(0, 5, (2, 40, 2))
    found = agree(before, now, lines)
    assert 0.2 < found.mean() < 0.8


def test_paths_ending_within_rounding_of_a_line_match_the_reference() -> None:
    """Points on a slanted line, rounded to float64, deviate by less than an orientation test in float64 resolves."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-100, 100, (2, 2))
    line = LaneMarking((a, b))
    near = a + rng.uniform(0, 1, (200, 1)) * (b - a)
    before = near + rng.integers(-2, 3, near.shape) * np.spacing(near)
    now = near + rng.integers(-2, 3, near.shape) * np.spacing(near)
    far = near + rng.normal(size=near.shape)
    for start, end in ((before, now), (before, far), (far, now)):
        found = agree(start, end, [line])
        assert 0.1 < found.mean() < 0.9


def test_random_paths_over_many_long_lines_match_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also where they are processed in several batches."""
    rng = np.random.default_rng(5)
    lines = [LaneMarking(np.cumsum(rng.normal(size=(20, 2)), 0) + rng.uniform(-9, 9, 2)) for _ in range(9)]
    before = rng.uniform(-9, 9, (30, 2))
    now = before + 3.0 * rng.normal(size=(30, 2))
    found = agree(before, now, lines)
    assert 0.05 < found.mean() < 0.5
    monkeypatch.setattr("sensorium.client.lane_invasion._PAIRS", 1000)
    np.testing.assert_array_equal(Lines(lines).crossed(before, now), found)


def test_corners_follow_yaw_only() -> None:
    """Against an explicit rotation, a rolled and pitched body has the same corners as a level body."""
    box = np.array([(2.5, 1.0), (2.5, -1.0), (-1.5, 1.0), (-1.5, -1.0)])
    yaw = 0.7
    turned = np.array([(x * math.cos(yaw) - y * math.sin(yaw), x * math.sin(yaw) + y * math.cos(yaw)) for x, y in box])
    heading = Pose((0, 0, 0), (math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)))
    pitch = Pose((0, 0, 0), (math.cos(0.3), 0, math.sin(0.3), 0))
    roll = Pose((0, 0, 0), (math.cos(0.2), math.sin(0.2), 0, 0))
    poses = [heading, heading @ pitch @ roll, Pose((0, 0, 0), (math.sqrt(0.5), 0, -math.sqrt(0.5), 0))]
    places = [(1.0, 2.0, 3.0), (-4.0, 5.0, 0.0), (0.0, 0.0, 0.0)]
    found = corners_of(box, places, [pose.rot for pose in poses])
    np.testing.assert_allclose(found[0], turned + np.array((1.0, 2.0)), atol=1e-12)
    np.testing.assert_allclose(found[1], turned + np.array((-4.0, 5.0)), atol=1e-12)
    assert np.isnan(corners_of(box, [(0, 0, 0)], [(0, 0, 0, 0)])).all()


# The sensor -----------------------------------------------------------------------------------------------------------


def lane(y: float = 3.0, **options: Any) -> LaneMarking:
    return LaneMarking(((-100.0, y), (100.0, y)), **options)


def made(host: FakeHost, *lanes: Any, envs: range = range(1), **values: Any) -> LaneInvasion:
    """Return a sensor as it is spawned, with values checked by its definition."""
    description = LaneInvasion.definition().describe({"lanes": list(lanes), **values})
    return spawn(LaneInvasion, host, "lanes", description, envs=envs, owner=owner_of(CAR, BODIES))


def drive(sensor: LaneInvasion, host: FakeHost, snapshots: Sequence[Snapshot]) -> list[LaneInvasionEvent]:
    received = list[LaneInvasionEvent]()
    sensor.listen(received.append)
    for each in snapshots:
        host.send(each)
    drain(sensor)
    sensor.stop()
    return received


def test_drifting_over_a_line_reports_each_corner_once(host: FakeHost) -> None:
    """The box reaches 1 m to each side: its left corners cross y = 3 when the car passes y = 2, the right ones at 4."""
    mark = lane(type="broken", color="yellow", width=0.15)
    ys = [0.0, 1.5, 2.5, 3.5, 4.5, 5.5]
    events = drive(made(host, mark, lane(50.0)), host, [snapshot(k, (0.3 * k, y)) for k, y in enumerate(ys)])
    assert [(event.frame, event.corners) for event in events] == [
        (2, (("front_left", "back_left"),)),
        (4, (("front_right", "back_right"),)),
    ]
    event = events[0]
    assert event.crossed_lane_markings == (mark,) and event.indices == (0,) and event.actor is CAR
    assert (event.sensor, event.env, event.tick, event.timestamp) == ("lanes", 0, 20, 0.02)
    assert event.transform is not None and event.transform.pos == pytest.approx((0.6, 2.5, 0.0))
    assert event.crossed_lane_markings[0].type == "broken" and event.crossed_lane_markings[0].width == 0.15


def test_corner_on_the_line_counts_on_arrival_only(host: FakeHost) -> None:
    ys = [1.0, 2.0, 2.0, 2.0, 3.0, 2.0, 1.0]
    events = drive(made(host, lane()), host, [snapshot(k, (float(k), y)) for k, y in enumerate(ys)])
    left = ("front_left", "back_left")
    assert [(event.frame, event.corners) for event in events] == [(1, (left,)), (5, (left,))]


def test_rotation_about_one_corner_is_detected(host: FakeHost) -> None:
    """Its rear right corner, at (-1.5, -1) of the body, is stationary while the front left corner crosses the line."""

    def turned(frame: int, yaw: float) -> Snapshot:
        c, s = math.cos(yaw), math.sin(yaw)
        return snapshot(frame, (1.5 * c - s, 1.5 * s + c), yaw)  # the corner is at the origin of the world

    events = drive(made(host, lane()), host, [turned(k, 0.1 * k) for k in range(6)])
    # front left at (4, 2) of that corner: y = 4 sin + 2 cos = 3 between 0.2 and 0.3 rad
    assert [(event.frame, event.corners) for event in events] == [(3, (("front_left",),))]


def test_environments_are_independent_and_markings_ordered(host: FakeHost) -> None:
    marks = [lane(9.0), lane(3.0), lane(1.5, type="curb")]
    at = [[(0, 0), (0, 0), (0, 8.5)], [(0, 0), (0, 2.5), (0, 9.5)], [(0, 0), (0, 2.5), (0, 10.5)]]
    frames = [snapshot(k, places, first_env=5) for k, places in enumerate(at)]
    events = drive(made(host, *marks, envs=range(5, 8)), host, frames)
    left, right = ("front_left", "back_left"), ("front_right", "back_right")
    assert [(event.frame, event.env, event.indices, event.corners) for event in events] == [
        (1, 6, (1, 2), (left, CORNERS)),
        (2, 7, (0,), (right,)),
    ]


def test_first_frame_after_listening_reports_no_crossing(host: FakeHost) -> None:
    sensor = made(host, lane())
    assert drive(sensor, host, [snapshot(1, (0, 0))]) == []
    assert drive(sensor, host, [snapshot(2, (0, 3.0)), snapshot(3, (0, 3.1))]) == []
    assert [event.frame for event in drive(sensor, host, [snapshot(4, (0, 3.0)), snapshot(5, (0, 1.0))])] == [5]


def test_a_jump_is_no_crossing(host: FakeHost) -> None:
    ys = [0.0, 4.9, 0.0, 5.1, 4.5, 3.5]
    events = drive(made(host, lane()), host, [snapshot(k, (0.0, y)) for k, y in enumerate(ys)])
    assert [event.frame for event in events] == [1, 2, 5]  # not 3, which is 5.1 m away
    events = drive(made(host, lane(), max_step=1.0), host, [snapshot(k, (0.0, y)) for k, y in enumerate(ys)])
    assert [event.frame for event in events] == [5]


def test_near_reset_is_no_crossing(host: FakeHost) -> None:
    """Env 0 is reset to beyond the line; env 1 drives there."""
    at = [[(0, 3), (0, 3)], [(0, 3), (0, 3)], [(0, 1), (0, 1)], [(0, 3), (0, 3)]]
    captures = [(11, 11), (21, 21), (1, 31), (11, 41)]
    frames = [snapshot(k, places, captures=c) for k, (places, c) in enumerate(zip(at, captures, strict=True))]
    events = drive(made(host, lane(), envs=range(2)), host, frames)
    assert [(event.frame, event.env) for event in events] == [(2, 1), (3, 0), (3, 1)]


def test_reset_in_a_missed_frame_is_no_crossing(host: FakeHost) -> None:
    """Frames of ten captured ticks; only frames 1 and 4 are seen: env 0 was reset at tick 15, env 1 continues."""
    frames = [
        snapshot(1, [(0, 3), (0, 3)], captures=(11, 11)),
        snapshot(4, [(0, 1), (0, 1)], captures=(26, 41)),
    ]
    events = drive(made(host, lane(), envs=range(2)), host, frames)
    assert [(event.frame, event.env) for event in events] == [(4, 1)]


def test_non_finite_state_is_no_crossing(host: FakeHost) -> None:
    upright = (math.sqrt(0.5), 0.0, -math.sqrt(0.5), 0.0)
    for gap in ({"xy": (0.0, math.nan)}, {"xy": (0.0, 3.0), "quat": (math.nan, 0, 0, 0)}, {"xy": (math.inf, 0.0)}):
        frames = [snapshot(0, (0, 1)), snapshot(1, **gap), snapshot(2, (0, 3)), snapshot(3, (0, 1))]
        assert [event.frame for event in drive(made(host, lane()), host, frames)] == [3]
    frames = [snapshot(0, (0, 1)), snapshot(1, (0, 1), quat=upright), snapshot(2, (0, 1))]
    assert drive(made(host, lane(90.0)), host, frames) == []


# A drive over many threads --------------------------------------------------------------------------------------------


def known_drive(count: int) -> list[Snapshot]:
    """Two cars that wind through lanes at 0.4 m per frame."""
    k = np.arange(count)
    x = 0.35 * k - 90.0 * (count > 500)
    ys = np.stack((6.0 * np.sin(k / 23.0), 4.0 * np.cos(k / 17.0)), -1)
    yaws = np.stack((0.5 * np.cos(k / 23.0), -0.5 * np.sin(k / 17.0)), -1)
    return [snapshot(i, [(x[i], ys[i, 0]), (x[i] - 1.0, ys[i, 1])], yaws[i]) for i in range(count)]


ROAD = [LaneMarking([(x, y + 0.3 * math.sin(x / 9)) for x in range(-150, 400, 5)]) for y in (-6, -3, 0, 3, 6)]


def told(events: Sequence[LaneInvasionEvent]) -> list[tuple[Any, ...]]:
    return sorted((event.frame, event.env, event.indices, event.corners) for event in events)


def through_threads(host: FakeHost, frames: Sequence[Snapshot], in_order: bool) -> tuple[list[tuple[Any, ...]], int]:
    """Deliver snapshots from six threads, and return the messages and the number of dropped frames."""
    sensor, received, lock, line = (
        made(host, *ROAD, envs=range(2)),
        list[LaneInvasionEvent](),
        threading.Lock(),
        iter(frames),
    )
    sensor.listen(received.append)

    def bring() -> None:
        while True:
            with lock:
                found = next(line, None)
                if found is not None and in_order:
                    sensor._tick(found)
            if found is None:
                return
            if not in_order:
                sensor._tick(found)

    threads = [threading.Thread(target=bring) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    drain(sensor)
    sensor.destroy()
    return told(received), sensor.dropped


def test_ordered_snapshots_on_many_threads_give_the_events_of_one_thread(host: FakeHost) -> None:
    frames = known_drive(500)
    alone = told(drive(made(host, *ROAD, envs=range(2)), host, frames))
    assert len(alone) > 100
    assert through_threads(host, frames, in_order=True) == (alone, 0)


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_snapshots_give_the_events_of_one_thread_with_the_kept_ones(
    host: FakeHost, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, frames, rng = list[int](), known_drive(600), random.Random(seed)
    shuffled = [each for i in range(0, 600, 6) for each in rng.sample(frames[i : i + 6], 6)]
    on_tick = LaneInvasion.on_tick

    def noted(self: LaneInvasion, snapshot: Snapshot) -> None:
        seen.append(snapshot.frame)
        on_tick(self, snapshot)

    monkeypatch.setattr(LaneInvasion, "on_tick", noted)
    found, dropped = through_threads(host, shuffled, in_order=False)
    monkeypatch.undo()
    assert len(seen) + dropped == 600 and seen == sorted(set(seen))
    assert found == told(drive(made(host, *ROAD, envs=range(2)), host, [frames[k] for k in seen]))
    assert len(found) > 50


# Lanes and attributes -------------------------------------------------------------------------------------------------


def test_lanes_accept_json_text_plain_data_arrays_and_markings(host: FakeHost) -> None:
    marks = (lane(type="solid_broken", color="yellow", width=0.2), lane(4.0))
    plain = [each.to_dict() for each in marks]
    definition = LaneInvasion.definition()
    for value in (json.dumps(plain), plain, list(marks), [marks[0], np.array(marks[1].points)]):
        description = definition.describe({"lanes": value})
        sensor = spawn(LaneInvasion, host, "lanes", description, owner=owner_of(CAR, BODIES))
        assert sensor.lanes == marks and sensor.max_step == 5.0
    empty = definition.describe()
    assert spawn(LaneInvasion, host, "lanes", empty, owner=owner_of(CAR, BODIES), lanes=marks).lanes == marks
    assert definition.id == "sensor.other.lane_invasion" and definition.where == "client"


def test_lanes_can_be_set_later_and_replaced_at_run_time(host: FakeHost) -> None:
    sensor, received = made(host), list[LaneInvasionEvent]()
    with pytest.raises(ConfigError, match=r"lanes: got \(\), expected at least one lane marking.*sensor\.lanes = "):
        sensor.listen(received.append)
    sensor.lanes = (lane(50.0),)
    sensor.listen(received.append)
    host.send(snapshot(1, (0, 1.0)))
    host.send(snapshot(2, (0, 3.0)))
    sensor.lanes = (lane(3.0),)
    host.send(snapshot(3, (0, 1.0)))
    drain(sensor)
    sensor.destroy()
    assert [event.frame for event in received] == [3]


def test_lane_invasion_requires_a_body_with_a_box(host: FakeHost) -> None:
    description = LaneInvasion.definition().describe({"lanes": [lane()]})
    with pytest.raises(ConfigError, match="attach_to: got None, expected a body"):
        spawn(LaneInvasion, host, "lanes", description)
    with pytest.raises(ConfigError, match="attach_to: got 'car/wheel', expected a body with shapes"):
        spawn(LaneInvasion, host, "lanes", description, owner=owner_of(BODIES["car/wheel"], BODIES))


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ("{}", "lanes: got {}, expected a list of lane markings"),
        ([[(0, 0)]], "lanes[0]: LaneMarking.points: got ((0, 0),), expected at least two points"),
        ([[(1, 2), (1, 2, 3)]], "lanes[0]: LaneMarking.points"),
        ([[(0, 0), (1, 1)], [(0, 0, 1), (0, 0, 2)]], "lanes[1]: LaneMarking.points"),
        ([[(0, 0), (math.nan, 1)]], "expected finite numbers [k, 2] or [k, 3]"),
        ([{"type": "solid"}], "got 'no points', expected points, and any of type, color, width"),
        ([{"points": [(0, 0), (1, 1)], "typ": "solid"}], "got \"'typ'\", expected points"),
        ([{"points": [(0, 0), (1, 1)], "type": ""}], "LaneMarking.type: got '', expected a word"),
        ([{"points": [(0, 0), (1, 1)], "width": 0}], "LaneMarking.width: got 0, expected a width > 0 (m), or None"),
    ],
)
def test_bad_lanes_are_refused(host: FakeHost, lanes: Any, message: str) -> None:
    sensor = made(host)
    with pytest.raises(ConfigError) as caught:
        sensor.lanes = json.loads(lanes) if isinstance(lanes, str) else lanes
    assert message.partition("got")[0] in str(caught.value)
    assert sensor.lanes == ()


def test_longest_step_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"max_step: got 0, expected a number > 0 \(m\)"):
        LaneInvasion.definition().describe({"max_step": 0})


def test_public_names() -> None:
    assert (sn.LaneInvasion, sn.LaneMarking) == (LaneInvasion, LaneMarking)
    assert sn.FrameSync.__module__ == "sensorium.client.frame_sync"
    assert sn.ClientSensor in LaneInvasion.__mro__ and len(CORNERS) == 4
