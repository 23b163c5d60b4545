"""Safe distance: the box, and the bodies inside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from reference.boxes import boxes_overlap as slow_overlap
from reference.boxes import matrices
from scipy.optimize import linprog
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.geometry.boxes import ENDLESS, boxes_overlap, quat_matrix
from sensorium.geometry.shapes import Shape
from sensorium.record import NpzRecorder, load
from sensorium.stream.blueprints import definitions
from sensorium.testing import check_sensor

Size = tuple[float, float, float]
CAR: tuple[str, Size] = ("car/base", (2.0, 1.0, 0.5))
SMALL: Size = (0.1, 0.1, 0.1)


class Street(sn.TensorEngine):
    """Boxes at positions that a test sets; bodies with size 0 have no shape."""

    parents: tuple[int, ...] = ()

    def __init__(
        self, *boxes: tuple[str, Size], num_envs: int = 1, centers: dict[str, Size] | None = None, **options: Any
    ) -> None:
        centers = centers or {}
        shapes = [
            Shape("box", name, pos=centers.get(name, (0.0, 0.0, 0.0)), size=size, body=name, is_static=False)
            for name, size in boxes
            if any(size)
        ]
        names = tuple(name for name, _ in boxes)
        super().__init__(num_envs, bodies=names, shapes=shapes, provides=("pose",), **options)

    def parent_body(self, body: int) -> int | None:
        return self.parents[body] if self.parents else None


def guarded(engine: sn.engines.Engine, **cfg: Any) -> sn.Scene:
    """Return a scene with one sensor on the car."""
    return sn.Scene(engine, [sn.SafeDistanceCfg(name="guard", **({"body": "car/base"} | cfg))])


def inside(scene: sn.Scene, pos: Any, quat: Any = None, name: str = "guard") -> list[list[int]]:
    """Return the ids inside the box of each environment, with the bodies at these places."""
    engine: Any = scene.engine
    engine.body_pos_w = torch.as_tensor(np.asarray(pos, np.float32))
    if quat is not None:
        engine.body_quat_w[...] = torch.as_tensor(np.asarray(quat, np.float32))  # may be no quaternions
    scene.update()
    data = scene[name].data
    found = [row[:n].tolist() for n, row in zip(data.count.tolist(), data.body, strict=True)]
    assert all((row[n:] == -1).all() for n, row in zip(data.count.tolist(), data.body, strict=True))
    reading = scene.publish([name])[name]
    assert [reading["body"][reading.rows(env)].tolist() for env in range(scene.num_envs)] == found
    return found


def place(*positions: tuple[float, float, float]) -> np.ndarray:
    return np.array([positions], np.float32)


# The config -----------------------------------------------------------------------------------------------------------


def test_the_blueprint_has_the_attributes_of_the_contract() -> None:
    """sensor.other.safe_distance has three float attributes with recommended values; other values are accepted."""
    definition = definitions()["sensor.other.safe_distance"]
    for side, value in (("front", "1.0"), ("back", "0.5"), ("lateral", "0.5")):
        attribute = definition[f"safe_distance_{side}"]
        assert (attribute.type, attribute.recommended_values, attribute.default) == ("number", (value,), float(value))
        assert not attribute.restrict_to_recommended and attribute.unit == "m"
    assert definition["exclude_own_links"].default is True and definition["entity"].type == "string"


@pytest.mark.parametrize(
    "values", [{}, {"safe_distance_front": 2.5, "safe_distance_lateral": 0.7}, {"safe_distance_back": 3}]
)
def test_the_box_follows_the_formula(values: dict[str, Any]) -> None:
    """Centre: ((f - b)/2, 0, 0). Half-extents: ((f + b)/2, lateral, 0) plus those of the body's bounding box."""
    f, b, side = (
        float(values.get(f"safe_distance_{name}", usual))
        for name, usual in (("front", 1), ("back", 0.5), ("lateral", 0.5))
    )
    free = guarded(Street(CAR), body="world", **values)["guard"]
    attached = guarded(Street(CAR), **values)["guard"]
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
        ({"body": None, "bodies": ".*"}, "bodies.*one mount"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], names: str) -> None:
    with pytest.raises(sn.ConfigError, match=names):
        guarded(Street(CAR), **values)


def test_an_engine_without_shapes_is_refused() -> None:
    with pytest.raises(sn.UnsupportedError, match="shapes"):
        guarded(sn.TensorEngine(bodies=("car/base",)))


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


@wp.kernel
def _overlap(
    between: wp.array[wp.vec3d],
    turn_a: wp.array[wp.mat33d],
    half_a: wp.array[wp.vec3d],
    turn_b: wp.array[wp.mat33d],
    half_b: wp.array[wp.vec3d],
    meets: wp.array[wp.bool],
) -> None:
    k = wp.tid()
    meets[k] = boxes_overlap(between[k], turn_a[k], half_a[k], turn_b[k], half_b[k])


def overlap(between: Any, turn_a: Any, half_a: Any, turn_b: Any, half_b: Any) -> np.ndarray:
    """Return the result of the kernel function."""
    half_a, half_b = (np.minimum(np.broadcast_to(half, between.shape), ENDLESS) for half in (half_a, half_b))
    types = (wp.vec3d, wp.mat33d, wp.vec3d, wp.mat33d, wp.vec3d)
    given = (between, turn_a, half_a, turn_b, half_b)
    arrays = [wp.array(np.ascontiguousarray(a), dtype=t, device="cpu") for a, t in zip(given, types, strict=True)]
    meets = wp.zeros(len(between), dtype=wp.bool, device="cpu")
    wp.launch(_overlap, len(between), [*arrays, meets], device="cpu")
    return meets.numpy()


both = pytest.mark.parametrize("overlap", [overlap, slow_overlap], ids=["kernel", "numpy"])
Overlap = Callable[..., np.ndarray]


@functools.cache
def turned_boxes() -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return random boxes, thin and thick, about half of which overlap, as arguments of `overlap`, and their gaps."""
    rng = np.random.default_rng(4)
    n = 400
    turn_a, turn_b = (Rotation.random(n, rng=rng).as_matrix() for _ in range(2))
    half_a, half_b = (10.0 ** rng.uniform(-1.5, 0.5, (n, 3)) for _ in range(2))
    direction = rng.normal(size=(n, 3))
    between = direction / np.linalg.norm(direction, axis=1, keepdims=True) * rng.uniform(0.0, 4.0, (n, 1))
    boxes = (between, turn_a, half_a, turn_b, half_b)
    return boxes, np.array([gap(*row) for row in zip(*boxes, strict=True)])


@both
def test_the_overlap_of_turned_boxes_agrees_with_a_linear_programme(overlap: Overlap) -> None:
    """Random boxes are classified correctly unless 1e-7 from touching."""
    boxes, gaps = turned_boxes()
    assert 100 < np.count_nonzero(gaps < 0) < 300 and np.abs(gaps).min() > 1e-7
    np.testing.assert_array_equal(overlap(*boxes), gaps <= 0)


@both
def test_each_of_the_fifteen_axes_can_separate_boxes(overlap: Overlap) -> None:
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
    np.testing.assert_array_equal(overlap(*columns[:5]), columns[5])


def _edge_support(n: Any, pair: int, turn_a: Any, half_a: Any, turn_b: Any, half_b: Any) -> Any:
    """Return the position of b at which the midpoints of two edges touch, with n normal to both edges."""
    signs_a, signs_b = np.sign(n @ turn_a), np.sign(n @ turn_b)
    signs_a[pair // 3] = signs_b[pair % 3] = 0.0
    return turn_a @ (half_a * signs_a) + turn_b @ (half_b * signs_b)


@both
def test_touching_counts_and_parallel_boxes_have_no_phantom_axes(overlap: Overlap) -> None:
    """Equal boxes with equal rotations, face to face, overlap at the distance 2h but not 1e-9 beyond."""
    turn = Rotation.random(200, rng=np.random.default_rng(6)).as_matrix()
    half = np.array([0.5, 0.25, 1.0])
    for axis in range(3):
        at = turn[:, :, axis] * 2.0 * half[axis]
        assert overlap(at, turn, half, turn, half).all()
        assert not overlap(at * (1.0 + 1e-9), turn, half, turn, half).any()


@both
def test_infinite_wall_is_inside_only_at_its_position(overlap: Overlap) -> None:
    """A plane is a box of infinite length and width: outside at 1 m below a box, inside at its bottom."""
    turn, wall, car = np.eye(3)[None], np.array([np.inf, np.inf, 0.0]), np.array([2.75, 1.5, 0.5])
    assert not overlap(np.array([[7.0, 0.0, -1.5]]), turn, car, turn, wall).any()
    assert overlap(np.array([[7.0, 0.0, -0.4]]), turn, car, turn, wall).all()


@wp.kernel
def _matrix(quat: wp.array[wp.vec4], out: wp.array[wp.mat33d]) -> None:
    k = wp.tid()
    out[k] = quat_matrix(quat[k])


def test_quaternions_of_any_length_give_their_rotation() -> None:
    """Quaternions of a float32 state deviate slightly from length 1; the box does not grow with them."""
    turn = Rotation.random(50, rng=np.random.default_rng(7))
    quat = turn.as_quat(scalar_first=True).reshape(5, 10, 4) * np.linspace(0.5, 2.0, 50).reshape(5, 10, 1)
    np.testing.assert_allclose(matrices(quat), turn.as_matrix().reshape(5, 10, 3, 3), atol=1e-14)
    rounded = quat.reshape(50, 4).astype(np.float32)
    out = wp.zeros(50, dtype=wp.mat33d, device="cpu")
    wp.launch(_matrix, 50, [wp.array(rounded, dtype=wp.vec4, device="cpu"), out], device="cpu")
    np.testing.assert_allclose(out.numpy(), matrices(rounded.astype(np.float64)), atol=1e-14)


# Bodies inside --------------------------------------------------------------------------------------------------------

ROAD = (CAR, ("bike/frame", SMALL), ("bike/wheel", SMALL), ("dog/trunk", SMALL), ("dog/soul", (0.0, 0.0, 0.0)))
FAR = (50.0, 0.0, 0.0)
HERE = (0.0, 0.0, 0.0)


def test_ids_inside_are_reported_in_each_frame_with_any() -> None:
    """The box of the car spans -2.5 to 3 in x, 1.5 to each side and 0.5 up."""
    scene = guarded(Street(*ROAD))
    assert inside(scene, place(HERE, FAR, FAR, FAR, FAR)) == [[]]
    for _ in range(2):
        assert inside(scene, place(HERE, (3.05, 0, 0), (0, -1.55, 0), FAR, FAR)) == [[1, 2]]
    assert inside(scene, place(HERE, (3.11, 0, 0), (-2.59, 0, 0), (0, 0, 0.61), FAR)) == [[2]]
    assert inside(scene, place(HERE, (3.11, 0, 0), (0, 1.61, 0), (0, 0, 0.61), FAR)) == [[]]


def test_body_touching_the_box_is_inside() -> None:
    """All numbers are exact in float32: 1 + 2 in front, and a body of half a metre."""
    scene = guarded(Street(CAR, ("crate", (0.5, 0.5, 0.5))))
    assert inside(scene, place(HERE, (3.5, 0, 0))) == [[1]]
    assert inside(scene, place(HERE, (np.nextafter(np.float32(3.5), 4), 0, 0))) == [[]]


def test_owner_and_bodies_without_shapes_are_never_inside() -> None:
    scene = guarded(Street(*ROAD), exclude_own_links=False)
    assert inside(scene, place(*[HERE] * 5)) == [[1, 2, 3]]


def test_the_box_moves_and_turns_with_the_owner_and_sits_where_the_sensor_does() -> None:
    """The car drives to y = 10 and looks along +y; the second sensor is at its front bumper, looking back."""
    turned = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]
    rear = sn.OffsetCfg(pos=(2, 0, 0), rot=(0, 0, 0, 1))
    scene = guarded(Street(*ROAD))
    scene.add(sn.SafeDistanceCfg(name="rear", body="car/base", offset=rear))
    quat = np.array([[turned, *[[1, 0, 0, 0]] * 4]])
    assert inside(scene, place((0, 10, 0), (0, 13, 0), (3, 10, 0), FAR, FAR), quat) == [[1]]
    # in the world: centre (0, 12 - 0.25), the front reaches 2.75 + 0.25 back to y = 9 and on to y = 14.5
    at = place((0, 10, 0), (0, 14.55, 0), (0, 8.95, 0), (0, 14.65, 0), FAR)
    assert inside(scene, at, quat, "rear") == [[1, 2]]


def test_the_bounding_box_of_a_body_turns_with_it_and_has_its_own_centre() -> None:
    """A bar of 2 m has its box centred 1 m ahead of its frame: it is inside where it points at the owner."""
    scene = guarded(Street(("car/base", (0.0, 0.0, 0.0)), ("bar", (1.0, 0.01, 0.01)), centers={"bar": (1.0, 0.0, 0.0)}))
    pos = place(HERE, (2.5, 0, 0))
    assert inside(scene, pos, [[[1, 0, 0, 0], [1, 0, 0, 0]]]) == [[]]
    assert inside(scene, pos, [[[1, 0, 0, 0], [0, 0, 0, 1]]]) == [[1]]
    assert inside(scene, pos, [[[1, 0, 0, 0], [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]]]) == [[]]


@pytest.mark.parametrize(
    ("pattern", "expected"), [("dog", [3]), ("bike|dog", [1, 2, 3]), (".*", [1, 2, 3]), ("", [1, 2, 3]), ("car", [])]
)
def test_only_selected_entities_count(pattern: str, expected: list[int]) -> None:
    assert inside(guarded(Street(*ROAD), entity=pattern), place(*[HERE] * 5)) == [expected]


@pytest.mark.parametrize(("exclude", "expected"), [(True, [3, 4]), (False, [0, 2, 3, 4])])
def test_owners_links_count_only_if_configured(exclude: bool, expected: list[int]) -> None:
    """A robot of three links, a loose box, and a second robot."""
    engine = Street(*((name, SMALL) for name in ("base", "thigh", "foot", "box", "other")))
    engine.parents = (-1, 0, 1, -1, -1)
    scene = guarded(engine, body="thigh", exclude_own_links=exclude)
    assert inside(scene, place(*[HERE] * 5)) == [expected]


def test_the_environments_are_independent() -> None:
    """Two of four environments have a body inside."""
    scene = guarded(Street(CAR, ("crate", SMALL), ("barrel", SMALL), num_envs=4))
    pos = np.full((4, 3, 3), 50.0)
    pos[:, 0] = 0.0
    pos[1, 1] = pos[3, 1] = pos[3, 2] = 0.5
    assert inside(scene, pos) == [[], [1], [], [1, 2]]


@pytest.mark.filterwarnings("ignore::sensorium.SensoriumWarning")
def test_non_finite_state_has_no_bodies_inside() -> None:
    """Environments with diverged positions or orientations neither stop the others nor produce bodies."""
    pos = np.zeros((6, 2, 3))
    quat = np.tile([1.0, 0.0, 0.0, 0.0], (6, 2, 1))
    pos[0], quat[0] = np.nan, np.nan
    pos[1] = np.inf
    quat[2, 1], quat[3, 0], quat[4] = np.nan, np.nan, 0.0
    scene = guarded(Street(CAR, ("crate", SMALL), num_envs=6))
    assert inside(scene, pos, quat) == [[], [], [], [], [], [1]]
    assert scene["guard"].valid.tolist() == [False, False, True, False, True, True]


def test_random_worlds_agree_with_the_slow_test() -> None:
    """200 environments of turned boxes, about a third of them inside, with offsets of box and sensor."""
    rng = np.random.default_rng(11)
    n, sizes = 200, rng.uniform(0.05, 0.6, (6, 3)).astype(np.float32)
    names = ("car/base", *(f"box{k}" for k in range(1, 6)))
    centers = {name: tuple(rng.uniform(-0.2, 0.2, 3)) for name in names[1:]}
    engine = Street(*((name, tuple(size.tolist())) for name, size in zip(names, sizes, strict=True)), num_envs=n,
                    centers=centers)  # fmt: skip
    mount = Rotation.from_euler("xyz", (0.3, -0.2, 1.1))
    offset = sn.OffsetCfg(pos=(0.2, -0.1, 0.3), rot=tuple(mount.as_quat(scalar_first=True)))
    scene = guarded(engine, offset=offset)
    pos = rng.uniform(-1.5, 1.5, (n, 6, 3)).astype(np.float32)
    turns = Rotation.random(6 * n, rng=rng)
    found = inside(scene, pos, turns.as_quat(scalar_first=True).reshape(n, 6, 4))
    turn = turns.as_matrix().reshape(n, 6, 3, 3)
    own = turn[:, 0] @ mount.as_matrix()
    middle = pos[:, 0] + turn[:, 0] @ np.array(offset.pos) + own @ np.array([0.25, 0.0, 0.0])
    half = sizes[0] + np.array([0.75, 0.5, 0.0])
    expected: list[list[int]] = [[] for _ in range(n)]
    for k, name in enumerate(names[1:], 1):
        at = pos[:, k] + turn[:, k] @ np.array(centers[name]) - middle
        for env in np.flatnonzero(slow_overlap(at, own, half, turn[:, k], sizes[k])):
            expected[env].append(k)
    assert found == expected and 100 < sum(map(len, found)) < 900


# As a sensor ----------------------------------------------------------------------------------------------------------


def passing(num_envs: int) -> sn.TensorEngine:
    """Return a world in which bodies pass the car, at different times in each environment."""
    phase = torch.arange(num_envs, dtype=torch.float64)[:, None]

    def motion(time: float) -> dict[str, torch.Tensor]:
        x = 3.0 + 0.5 * torch.sin(40.0 * time + phase + torch.arange(3))
        return {"body_pos_w": torch.stack([x * (torch.arange(3) > 0), 0.0 * x, 0.0 * x], dim=-1)}

    return Street(CAR, ("crate", SMALL), ("barrel", SMALL), num_envs=num_envs, motion=motion)


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({"rate_hz": 40.0}, marks=pytest.mark.full),
        {"delay": 0.02, "history_length": 3},
    ],
)
def test_it_passes_the_checks_of_every_sensor(knobs: dict[str, Any]) -> None:
    check_sensor(sn.SafeDistanceCfg(body="car/base", **knobs), engine=passing)


DRIVE = """
<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
  <body name="robot/base"><freejoint/><geom type="box" size="0.4 0.25 0.2"/>
    <body name="robot/mast" pos="0 0 0.3"><geom type="box" size="0.02 0.02 0.2"/></body></body>
  <body name="cart/base" pos="3 1 0" euler="0 0 30"><geom type="box" size="0.3 0.3 0.3"/></body>
  <body name="post/base" pos="4 -0.6 0"><geom type="cylinder" size="0.05 0.5"/></body>
</worldbody></mujoco>"""


def test_it_passes_the_checks_on_mujoco() -> None:
    def engine(num_envs: int) -> sn.MujocoEngine:
        made = sn.MujocoEngine(DRIVE, num_envs=num_envs)
        made.qpos[:, 0] = 1.0 + 0.2 * torch.arange(num_envs)
        made.forward()
        return made

    check_sensor(sn.SafeDistanceCfg(body="robot/base"), engine=engine)


def test_a_driving_robot_is_recorded_and_replayed(tmp_path: Any) -> None:
    """The robot drives 3 m at 1 m/s past the cart, then the post; a recording has the same rows."""
    scene = sn.Scene(sn.MujocoEngine(DRIVE, 2), [sn.SafeDistanceCfg(name="guard", body="robot/base", rate_hz=50.0)])
    scene.reset(qvel=[[1.0, 0, 0, 0, 0, 0], [0.0] * 6])
    recorder, seen = NpzRecorder(), []
    for _ in range(150):
        scene.step(substeps=2)
        readings = scene.publish()
        recorder.add_all(readings)
        seen.append(readings["guard"]["body"].tolist())
    recorder.save(tmp_path / "run.npz", scene.description())
    assert seen[0] == [] and seen[-1] == [2, 3]
    x = 0.02 * np.arange(1, 151)
    between = np.array([3.0, 1.0, 0.0]) - np.stack([x + 0.25, 0.0 * x, 0.0 * x], axis=1)
    turn, cart = (np.broadcast_to(Rotation.from_euler("z", a).as_matrix(), (150, 3, 3)) for a in (0.0, np.pi / 6))
    is_near = slow_overlap(between, turn, np.array([1.15, 0.75, 0.2]), cart, np.full(3, 0.3))
    assert [2 in ids for ids in seen] == is_near.tolist()
    recorded = load(tmp_path / "run.npz")["guard"]
    assert recorded.offsets[-1, -1] == sum(map(len, seen))


def test_nothing_is_computed_without_readers() -> None:
    """A scene that is stepped without reading the sensor does not run its kernel."""
    scene = guarded(Street(*ROAD))
    sensor = scene["guard"]
    assert sensor.info.evaluation == "lazy"
    assert inside(scene, place(HERE, FAR, FAR, FAR, FAR)) == [[]]
    engine: Any = scene.engine
    engine.body_pos_w[:] = 0.0
    for _ in range(5):
        scene.update()
    assert sensor.buffers.truth_out["count"].tolist() == [[0]]
    assert sensor.data.count.tolist() == [3]
