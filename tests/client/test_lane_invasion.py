"""Lane invasion: crossings of paths and markings, against exact arithmetic on integers, and the events of a drive."""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from client_world import BODIES, CAR, FakeHost, drain, listen, snapshot, spawn

import sensorium as sn
from sensorium.client.callbacks import Callbacks
from sensorium.client.lane_invasion import (
    CORNERS,
    TOLERANCE,
    LaneInvasion,
    LaneInvasionEvent,
    LaneMarking,
    Lines,
    corners_of,
)
from sensorium.errors import ConfigError
from sensorium.pose import Pose
from sensorium.wire.world import Snapshot, owner_of

LONG = 20.0
"""Time-out of an expected event, s."""
Point: TypeAlias = Sequence[int]


@pytest.fixture
def host() -> Iterator[FakeHost]:
    callbacks = Callbacks()
    host = FakeHost(callbacks)
    yield host
    host.close()
    assert callbacks.errors.take() == []


# A slow reference -----------------------------------------------------------------------------------------------------


def side(a: Point, b: Point, c: Point) -> int:
    """Return a positive number for a point left of the line from a to b, a negative one right of it, 0 on it; exact."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def is_on(point: Point, a: Point, b: Point) -> bool:
    """Return whether a point is on a segment, including its ends."""
    in_box = all(min(i, j) <= k <= max(i, j) for i, j, k in zip(a, b, point, strict=True))
    return in_box and side(a, b, point) == 0


def crosses(p: Point, q: Point, line: Sequence[Point]) -> bool:
    """Return whether a path with integer coordinates reaches a line on which it did not start."""
    segments = list(itertools.pairwise(line))
    if any(is_on(p, *segment) for segment in segments):
        return False
    return any(
        is_on(q, a, b)
        or is_on(a, p, q)
        or is_on(b, p, q)
        or (side(a, b, p) * side(a, b, q) < 0 and side(p, q, a) * side(p, q, b) < 0)
        for a, b in segments
    )


def crossed(before: npt.ArrayLike, now: npt.ArrayLike, lines: Sequence[LaneMarking]) -> npt.NDArray[np.bool_]:
    """Return which paths cross which lines, `[path, line]`."""
    paths = np.array([before, now], np.float64).view(np.complex128)  # [2, path, 1]
    return Lines(lines).crossed(*paths)[:, 0]


def agree(before: npt.ArrayLike, now: npt.ArrayLike, lines: Sequence[Any], unit: float = 1.0) -> npt.NDArray[np.bool_]:
    """Check paths against lines, both in whole units (m), and return the crossings."""
    before, now = np.array(before), np.array(now)
    found = crossed(before * unit, now * unit, [LaneMarking(np.multiply(line, unit)) for line in lines])
    paths = list(zip(before.tolist(), now.tolist(), strict=True))
    expected = [[crosses(*path, [point[:2] for point in line]) for line in lines] for path in paths]
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
        (BENT, (2, 0), (6, 4), False, "from one part of it onto another"),
        (BENT, (2, 0), (4, 0), False, "along it, to the bend"),
        (BENT, (2, 0), (6, 0), False, "along it, and on where it bends"),
        (BENT, (4, 1), (4, 3), False, "along the part between"),
        (BENT, (4, 0), (8, 4), False, "from a bend to its end, beside it"),
        (((0, 0), (2, 0), (4, 0)), (1, 0), (3, 0), False, "along it, over a point between"),
        (((0, 0), (4, 0), (2, 0)), (1, 0), (5, 0), False, "along one that turns back"),
        (((0, 0), (0, 0), (10, 0)), (5, -1), (5, 1), True, "a point given twice"),
        (((0, 0, 7), (10, 0, 9)), (5, -1), (5, 1), True, "with heights"),
    ],
)
def test_crossing_definition(line: Any, before: Any, now: Any, expected: bool, why: str) -> None:
    assert agree([before], [now], [line]).tolist() == [[expected]], why


def test_a_path_with_a_stop_exactly_on_the_line_crosses_once() -> None:
    stops = [(5, -2), (5, -1), (5, 0), (5, 0), (5.5, 0), (5, 1), (5, 2)]
    found = crossed(stops[:-1], stops[1:], [LaneMarking(STRAIGHT)])
    assert found[:, 0].tolist() == [False, True, False, False, False, False]


def test_degenerate_paths_on_a_small_grid_match_the_reference() -> None:
    """All paths with whole coordinates from 0 to 4: touching ends, coinciding segments, lines that cross themselves."""
    rng = np.random.default_rng(0)
    lines = [points for points in rng.integers(0, 5, (50, 4, 2)).tolist() if len({*map(tuple, points)}) > 1]
    before, now = rng.integers(0, 5, (2, 100, 2))
    assert 0.2 < agree(before, now, lines).mean() < 0.8


def test_random_paths_over_many_long_lines_match_the_reference() -> None:
    rng = np.random.default_rng(5)
    steps = rng.integers(-80, 81, (9, 20, 2))
    lines = (np.cumsum(steps, 1) + rng.integers(-600, 601, (9, 1, 2))).tolist()
    before = rng.integers(-600, 601, (100, 2))
    now = before + rng.integers(-500, 501, (100, 2))
    assert 0.05 < agree(before, now, lines, unit=1 / 64).mean() < 0.5


def test_a_corner_within_the_tolerance_lies_on_the_line() -> None:
    """Offsets from a slanted line, in tolerances; 100 m from the origin, where float64 resolves a hundred millionth."""
    start, along = np.array((90.0, -40.0)), np.array((0.6, 0.8))
    line = LaneMarking((start, start + 10.0 * along))
    offsets = (-1e6, -3.0, -1.01, -0.99, 0.0, 0.99, 1.01, 3.0, 1e6)
    one, other = np.array(list(itertools.product(offsets, repeat=2))).T
    at = [start + 5.0 * along + TOLERANCE * np.multiply.outer(offset, (-0.8, 0.6)) for offset in (one, other)]
    arrives = (np.abs(one) > 1.0) & ((np.abs(other) < 1.0) | (one * other < 0.0))
    np.testing.assert_array_equal(crossed(*at, [line])[:, 0], arrives)
    end, short = start + 10.0 * along, TOLERANCE * np.multiply.outer((0.99, 1.01), along)
    assert crossed([end + along] * 2, end + short, [line])[:, 0].tolist() == [True, False]


def test_creeping_over_a_line_crosses_it_once() -> None:
    """The frames move each corner by up to two tolerances, many of them along the line."""
    rng = np.random.default_rng(3)
    start, along = np.array((90.0, -40.0)), np.array((0.6, 0.8))
    offset = np.cumsum(rng.uniform(0.0, 2.0 * TOLERANCE, (100, 40)), 1) - 20.0 * TOLERANCE
    offset[:, 0], offset[:, -1] = -1.0, 1.0
    at = start + np.multiply.outer(offset, (-0.8, 0.6)) + np.multiply.outer(rng.uniform(2.0, 8.0, offset.shape), along)
    found = crossed(at[:, :-1].reshape(-1, 2), at[:, 1:].reshape(-1, 2), [LaneMarking((start, start + 10.0 * along))])
    assert (found.reshape(100, -1).sum(1) == 1).all()


def test_corners_follow_yaw_only() -> None:
    """Against an explicit rotation, a rolled and pitched body has the same corners as a level body."""
    box = np.array([(2.5, 1.0), (2.5, -1.0), (-1.5, 1.0), (-1.5, -1.0)])
    yaw = 0.7
    turned = np.array([(x * math.cos(yaw) - y * math.sin(yaw), x * math.sin(yaw) + y * math.cos(yaw)) for x, y in box])
    heading = Pose((0, 0, 0), (math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)))
    pitch = Pose((0, 0, 0), (math.cos(0.3), 0, math.sin(0.3), 0))
    roll = Pose((0, 0, 0), (math.cos(0.2), math.sin(0.2), 0, 0))
    poses = [heading, heading @ pitch @ roll]
    places = [(1.0, 2.0, 3.0), (-4.0, 5.0, 0.0)]
    found = corners_of(box.view(np.complex128)[:, 0], places, [pose.rot for pose in poses])[..., None].view(np.float64)
    np.testing.assert_allclose(found[0], turned + np.array((1.0, 2.0)), atol=1e-12)
    np.testing.assert_allclose(found[1], turned + np.array((-4.0, 5.0)), atol=1e-12)


# The sensor -----------------------------------------------------------------------------------------------------------


def lane(y: float = 3.0, **options: Any) -> LaneMarking:
    return LaneMarking(((-100.0, y), (100.0, y)), **options)


def made(host: FakeHost, *lanes: Any, envs: range = range(1), **values: Any) -> LaneInvasion:
    """Return a sensor as it is spawned, with values checked by its definition."""
    description = LaneInvasion.definition().describe({"lanes": list(lanes), **values})
    return spawn(LaneInvasion, host, "lanes", description, envs=envs, owner=owner_of(CAR, BODIES))


def drive(sensor: LaneInvasion, host: FakeHost, snapshots: Sequence[Snapshot]) -> list[LaneInvasionEvent]:
    received = list[LaneInvasionEvent]()
    listen(sensor, received.append)
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


def summary(events: Sequence[LaneInvasionEvent]) -> list[tuple[Any, ...]]:
    return sorted((event.frame, event.env, event.indices, event.corners) for event in events)


def through_threads(host: FakeHost, frames: Sequence[Snapshot], in_order: bool) -> tuple[list[tuple[Any, ...]], int]:
    """Deliver snapshots from six threads, and return the messages and the number of dropped frames."""
    sensor, received, lock, line = (
        made(host, *ROAD, envs=range(2)),
        list[LaneInvasionEvent](),
        threading.Lock(),
        iter(frames),
    )
    listen(sensor, received.append)

    def bring() -> None:
        while True:
            with lock:
                found = next(line, None)
                if found is not None and in_order:
                    host.send(found)
            if found is None:
                return
            if not in_order:
                host.send(found)

    threads = [threading.Thread(target=bring) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    drain(sensor)
    sensor.destroy()
    return summary(received), sensor.dropped


def test_ordered_snapshots_on_many_threads_give_the_events_of_one_thread(host: FakeHost) -> None:
    frames = known_drive(500)
    alone = summary(drive(made(host, *ROAD, envs=range(2)), host, frames))
    assert len(alone) > 100
    assert through_threads(host, frames, in_order=True) == (alone, 0)


def test_shuffled_snapshots_give_the_events_of_one_thread_with_the_kept_ones(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, frames, rng = list[int](), known_drive(600), random.Random(0)
    shuffled = [each for i in range(0, 600, 6) for each in rng.sample(frames[i : i + 6], 6)]
    on_tick = LaneInvasion.on_tick

    def noted(self: LaneInvasion, snapshot: Snapshot) -> None:
        seen.append(snapshot.frame)
        on_tick(self, snapshot)

    monkeypatch.setattr(LaneInvasion, "on_tick", noted)
    found, dropped = through_threads(host, shuffled, in_order=False)
    monkeypatch.undo()
    assert len(seen) + dropped == 600 and seen == sorted(set(seen))
    assert found == summary(drive(made(host, *ROAD, envs=range(2)), host, [frames[k] for k in seen]))
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
        listen(sensor, received.append)
    sensor.lanes = (lane(50.0),)
    listen(sensor, received.append)
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
    assert (sn.client.LaneInvasion, sn.client.LaneMarking) == (LaneInvasion, LaneMarking)
    assert sn.client.FrameSync.__module__ == "sensorium.client.frame_sync"
    assert sn.client.ClientSensor in LaneInvasion.__mro__ and len(CORNERS) == 4
