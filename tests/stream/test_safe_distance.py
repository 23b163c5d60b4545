"""Safe distance: the box, the bodies inside it, and the time of the messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.transform import Rotation
from streamed_host import Host, NoTree, bodies

import sensorium as sn
from sensorium.readings import Bodies
from sensorium.stream.geometry import boxes_overlap, matrices
from sensorium.stream.model import owner_of
from sensorium.stream.safe_distance import SafeDistance, SafeDistanceEvent
from sensorium.wire.pose import Pose

CAR = ("car/base", (2.0, 1.0, 0.5))
SMALL = (0.1, 0.1, 0.1)


def place(*positions: tuple[float, float, float]) -> np.ndarray:
    return np.array([positions], np.float32)


def ids(host: Host, guard: SafeDistance, pos: Any, quat: Any = None) -> list[int]:
    """Return the ids in the message of a frame with a single environment."""
    found = [list(host.received(message)) for message in host.frame(guard, pos, quat)]
    return found[0] if found else []


# The blueprint --------------------------------------------------------------------------------------------------------


def test_the_blueprint_has_the_attributes_of_the_contract() -> None:
    """sensor.other.safe_distance has three float attributes with recommended values; other values are accepted."""
    definition = SafeDistance.definition()
    assert definition.id == "sensor.other.safe_distance"
    for side, value in (("front", "1.0"), ("back", "0.5"), ("lateral", "0.5")):
        attribute = definition[f"safe_distance_{side}"]
        assert (attribute.type, attribute.recommended_values, attribute.default) == ("float", (value,), value)
        assert not attribute.restrict_to_recommended and attribute.unit == "m"


@pytest.mark.parametrize(
    "values", [{}, {"safe_distance_front": "2.5", "safe_distance_lateral": "0.7"}, {"safe_distance_back": 3}]
)
def test_the_box_follows_the_formula(values: dict[str, Any]) -> None:
    """Centre: ((f - b)/2, 0, 0). Half-extents: ((f + b)/2, lateral, 0) plus those of the owner's bounding box."""
    f, b, side = (
        float(values.get(f"safe_distance_{name}", usual))
        for name, usual in (("front", 1), ("back", 0.5), ("lateral", 0.5))
    )
    with Host(bodies(CAR)) as host:
        free = host.spawn(SafeDistance, values)
        attached = host.spawn(SafeDistance, values, attach_to="car/base")
    assert free.center.tolist() == attached.center.tolist() == [(f - b) / 2, 0.0, 0.0]
    assert free.half_extents.tolist() == [(f + b) / 2, side, 0.0]
    assert attached.half_extents.tolist() == pytest.approx([(f + b) / 2 + 2.0, side + 1.0, 0.5])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"safe_distance_front": -1.0}, "safe_distance_front"),
        ({"safe_distance_front": "inf"}, "safe_distance_front"),
        ({"safe_distance_lateral": -0.1}, "safe_distance_lateral"),
        ({"safe_distance_back": "near"}, "safe_distance_back"),
        ({"entity": "("}, "entity"),
        ({"entity": "bike"}, "entity.*There are: car"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], names: str) -> None:
    with Host(bodies(CAR)) as host, pytest.raises(sn.ConfigError, match=names):
        host.spawn(SafeDistance, values, attach_to="car/base")


# Overlap of boxes -----------------------------------------------------------------------------------------------------


def gap(between: Any, turn_a: Any, half_a: Any, turn_b: Any, half_b: Any) -> float:
    """Return the growth at which two boxes touch (< 0: shrinkage), as a share of their half-extents.

    The result is that of a linear programme: the least s such that a point is within both boxes scaled by 1 + s.
    """
    rows, bounds = [], []
    for turn, half, center in ((turn_a, half_a, np.zeros(3)), (turn_b, half_b, between)):
        for sign in (1.0, -1.0):
            rows.append(np.hstack((sign * turn.T, -half[:, None])))
            bounds.append(half + sign * turn.T @ center)
    found = linprog([0, 0, 0, 1], np.vstack(rows), np.hstack(bounds), bounds=[(None, None)] * 3 + [(-1, None)])
    assert found.status == 0
    return float(found.x[3])


def test_the_overlap_of_turned_boxes_agrees_with_a_linear_programme() -> None:
    """Random boxes, thin and thick, about half of which overlap, are classified correctly unless 1e-7 from touching."""
    rng = np.random.default_rng(4)
    n = 400
    turn_a, turn_b = (Rotation.random(n, rng=rng).as_matrix() for _ in range(2))
    half_a, half_b = (10.0 ** rng.uniform(-1.5, 0.5, (n, 3)) for _ in range(2))
    direction = rng.normal(size=(n, 3))
    between = direction / np.linalg.norm(direction, axis=1, keepdims=True) * rng.uniform(0.0, 4.0, (n, 1))
    gaps = np.array([gap(*row) for row in zip(between, turn_a, half_a, turn_b, half_b, strict=True)])
    assert 100 < np.count_nonzero(gaps < 0) < 300 and np.abs(gaps).min() > 1e-7
    found = boxes_overlap(between, turn_a, half_a, turn_b, half_b)
    np.testing.assert_array_equal(found, gaps <= 0)


def test_each_of_the_fifteen_axes_can_separate_boxes() -> None:
    """Pairs that just touch along a single axis are classified correctly, both 1e-6 apart and 1e-6 overlapping.

    Along the axis n a box reaches sum_i h_i |n . axis_i|, so the distance of touching is known.
    """
    rng = np.random.default_rng(5)
    cases = []
    for kind in range(15):
        turn_a, turn_b = Rotation.random(rng=rng).as_matrix(), Rotation.random(rng=rng).as_matrix()
        if kind < 3:
            n = turn_a[:, kind]
        elif kind < 6:
            n = turn_b[:, kind - 3]
        else:
            n = np.cross(turn_a[:, (kind - 6) // 3], turn_b[:, (kind - 6) % 3])
            n /= np.linalg.norm(n)
        half_a, half_b = rng.uniform(0.5, 1.0, 3), rng.uniform(0.5, 1.0, 3)
        support = turn_a @ (half_a * np.sign(n @ turn_a)) + turn_b @ (half_b * np.sign(n @ turn_b))
        support = support if kind < 6 else _edge_support(n, kind - 6, turn_a, half_a, turn_b, half_b)
        for d, expected in ((1e-6, False), (-1e-6, True)):
            cases.append((support + d * n, turn_a, half_a, turn_b, half_b, expected))
    columns = [np.array(column) for column in zip(*cases, strict=True)]
    np.testing.assert_array_equal(boxes_overlap(*columns[:5]), columns[5])


def _edge_support(n: Any, pair: int, turn_a: Any, half_a: Any, turn_b: Any, half_b: Any) -> Any:
    """Return the position of b at which the midpoints of two edges touch, with n normal to both edges."""
    signs_a, signs_b = np.sign(n @ turn_a), np.sign(n @ turn_b)
    signs_a[pair // 3] = signs_b[pair % 3] = 0.0
    return turn_a @ (half_a * signs_a) + turn_b @ (half_b * signs_b)


def test_touching_counts_and_parallel_boxes_have_no_phantom_axes() -> None:
    """Equal boxes with equal rotations, face to face, overlap at the distance 2h but not 1e-9 beyond."""
    turn = Rotation.random(200, rng=np.random.default_rng(6)).as_matrix()
    half = np.array([0.5, 0.25, 1.0])
    for axis in range(3):
        at = turn[:, :, axis] * 2.0 * half[axis]
        assert boxes_overlap(at, turn, half, turn, half).all()
        assert not boxes_overlap(at * (1.0 + 1e-9), turn, half, turn, half).any()


def test_quaternions_of_any_length_give_their_rotation() -> None:
    """Quaternions of a float32 state deviate slightly from length 1; the box does not grow with them."""
    turn = Rotation.random(50, rng=np.random.default_rng(7))
    quat = turn.as_quat(scalar_first=True).reshape(5, 10, 4) * np.linspace(0.5, 2.0, 50).reshape(5, 10, 1)
    np.testing.assert_allclose(matrices(quat), turn.as_matrix().reshape(5, 10, 3, 3), atol=1e-14)


# Messages -------------------------------------------------------------------------------------------------------------

STREET = bodies(CAR, ("bike/frame", SMALL), ("bike/wheel", SMALL), ("dog/trunk", SMALL), ("dog/soul", (0.0, 0.0, 0.0)))
FAR = (50.0, 0.0, 0.0)


def test_ids_inside_are_reported_in_each_frame_with_any() -> None:
    """The box of the car spans -2.5 to 3 in x, 1.5 to each side and 0.5 up; an empty box gives no message."""
    with Host(STREET) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        assert host.frame(guard, place((0, 0, 0), FAR, FAR, FAR, FAR)) == []
        for _ in range(2):
            (message,) = host.frame(guard, place((0, 0, 0), (3.05, 0, 0), (0, -1.55, 0), FAR, FAR))
            event = host.received(message)
            assert isinstance(event, SafeDistanceEvent) and event.array.dtype == np.dtype("<u4")
            assert list(event) == [1, 2] and len(event) == 2 and event[-1] == 2
            assert event.frame == host.snapshot.frame and (event.first_env, event.num_envs) == (0, 1)
        assert ids(host, guard, place((0, 0, 0), (3.11, 0, 0), (-2.59, 0, 0), (0, 0, 0.61), FAR)) == [2]
        assert host.frame(guard, place((0, 0, 0), (3.11, 0, 0), (0, 1.61, 0), (0, 0, 0.61), FAR)) == []
        assert host.failures.count == 0


def test_body_touching_the_box_is_inside() -> None:
    """All numbers are exact in float32: 1 + 2 in front, and a body of half a metre."""
    world = bodies(CAR, ("crate", (0.5, 0.5, 0.5)))
    with Host(world) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        assert ids(host, guard, place((0, 0, 0), (3.5, 0, 0))) == [1]
        assert ids(host, guard, place((0, 0, 0), (np.nextafter(np.float32(3.5), 4), 0, 0))) == []


def test_owner_and_bodies_without_shapes_are_never_inside() -> None:
    with Host(STREET) as host:
        guard = host.spawn(SafeDistance, {"exclude_own_links": "false"}, attach_to="car/base")
        assert ids(host, guard, place(*[(0, 0, 0)] * 5)) == [1, 2, 3]


def test_the_box_moves_and_turns_with_the_owner_and_sits_where_the_sensor_does() -> None:
    """The car drives to y = 10 and looks along +y; the sensor is at its front bumper, looking back."""
    turned = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]
    with Host(STREET) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        quat = np.array([[turned, *[[1, 0, 0, 0]] * 4]])
        assert ids(host, guard, place((0, 10, 0), (0, 13, 0), (3, 10, 0), FAR, FAR), quat) == [1]
        rear = host.spawn(SafeDistance, attach_to="car/base", transform=Pose((2, 0, 0), (0, 0, 0, 1)))
        # in the world: centre (0, 12 - 0.25), the front reaches 2.75 + 0.25 back to y = 9 and on to y = 14.5
        assert ids(host, rear, place((0, 10, 0), (0, 14.55, 0), (0, 8.95, 0), (0, 14.65, 0), FAR), quat) == [1, 2]


def test_the_bounding_box_of_a_body_turns_with_it_and_has_its_own_centre() -> None:
    """A bar of 2 m has its box centred 1 m ahead of its frame: it is inside where it points at the owner."""
    world = bodies(("car/base", (0.0, 0.0, 0.0)), ("bar", (1.0, 0.01, 0.01)), centers={"bar": (1.0, 0.0, 0.0)})
    with Host(world) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        pos = place((0, 0, 0), (2.5, 0, 0))
        assert ids(host, guard, pos, [[[1, 0, 0, 0], [1, 0, 0, 0]]]) == []
        assert ids(host, guard, pos, [[[1, 0, 0, 0], [0, 0, 0, 1]]]) == [1]
        assert ids(host, guard, pos, [[[1, 0, 0, 0], [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]]]) == []


def test_only_selected_entities_count() -> None:
    pos = place(*[(0, 0, 0)] * 5)
    with Host(STREET) as host:
        for pattern, expected in (
            ("dog", [3]),
            ("bike|dog", [1, 2, 3]),
            (".*", [1, 2, 3]),
            ("", [1, 2, 3]),
            ("car", []),
        ):
            assert ids(host, host.spawn(SafeDistance, {"entity": pattern}, attach_to="car/base"), pos) == expected


class Tree(NoTree):
    """A robot of three links, a loose box, and a second robot."""

    parents = (-1, 0, 1, -1, -1)

    def parent_body(self, body: int) -> int | None:
        return self.parents[body]


ROBOTS: Bodies = bodies(("base", SMALL), ("thigh", SMALL), ("foot", SMALL), ("box", SMALL), ("other", SMALL))


@pytest.mark.parametrize(("exclude", "expected"), [("true", [3, 4]), ("false", [0, 2, 3, 4])])
def test_owners_links_count_only_if_configured(exclude: str, expected: list[int]) -> None:
    with Host(ROBOTS) as host:
        owner = owner_of(ROBOTS["thigh"], ROBOTS, Tree())
        guard = host.spawn(SafeDistance, {"exclude_own_links": exclude}, owner=owner)
        assert ids(host, guard, place(*[(0, 0, 0)] * 5)) == expected


def test_each_environment_has_its_own_message() -> None:
    """Two of four environments have a body inside; a sensor for the last two reports only these."""
    world = bodies(CAR, ("crate", SMALL), ("barrel", SMALL))
    pos = np.full((4, 3, 3), 50.0)
    pos[:, 0] = 0.0
    pos[1, 1] = pos[3, 1] = pos[3, 2] = 0.5
    with Host(world, 4) as host:
        for envs, expected in ((None, {1: [1], 3: [1, 2]}), (range(2, 4), {3: [1, 2]}), (range(0, 1), {})):
            guard = host.spawn(SafeDistance, attach_to="car/base", envs=envs)
            events = [host.received(message) for message in host.frame(guard, pos)]
            assert {event.first_env: list(event) for event in events} == expected
            assert all(event.num_envs == 1 for event in events)


def test_non_finite_state_has_no_bodies_inside() -> None:
    """Environments with diverged positions or orientations neither stop the others nor produce bodies."""
    world = bodies(CAR, ("crate", SMALL))
    pos = np.zeros((6, 2, 3))
    quat = np.tile([1.0, 0.0, 0.0, 0.0], (6, 2, 1))
    pos[0], quat[0] = np.nan, np.nan
    pos[1] = np.inf
    quat[2, 1], quat[3, 0], quat[4] = np.nan, np.nan, 0.0
    with Host(world, 6) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        assert [message.first_env for message in host.frame(guard, pos, quat)] == [5]


def test_nothing_is_computed_without_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    with Host(STREET) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        host.listening = False
        monkeypatch.setattr(guard, "inside", None)
        assert host.frame(guard, place(*[(0, 0, 0)] * 5)) == [] and host.failures.count == 0


def test_infinite_wall_is_inside_only_at_its_position() -> None:
    """A plane is a box of infinite length and width: outside at 1 m below the car's box, inside at its bottom."""
    world = bodies(CAR, ("floor", (np.inf, np.inf, 0.0)))
    with Host(world) as host:
        guard = host.spawn(SafeDistance, attach_to="car/base")
        assert ids(host, guard, place((7, 0, 1.5), (0, 0, 0))) == []
        assert ids(host, guard, place((7, 0, 0.4), (0, 0, 0))) == [1]
