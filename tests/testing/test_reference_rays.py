"""The slow reference for rays: analytic cases, MuJoCo's own rays, and the rule for comparing casts."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import compare_casts, random_poses, random_rays, random_shapes, reference_cast
from reference.ray_scenes import at_world
from selection import gate

from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape
from sensorium.geometry.transforms import rotation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
X, Y, Z = np.eye(3)
HALF = np.sqrt(0.5)
PYRAMID = Mesh([[0, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 3]], [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], "corner")
"""A cut-off corner of a cube; its faces are wound outwards."""
RIDGE = HeightField([[0, 0, 0], [0, 1, 0]], (2.0, 1.0), base=0.5, name="ridge")
SHEET = HeightField([[0, 0, 0], [0, 1, 0]], (2.0, 1.0), name="sheet")
UP_RIDGE = np.array([0.0, -1.0, 2.0]) / np.sqrt(5.0)
"""Normal of its first triangle, which rises by 1 m over 2 m along y."""
SLANT = np.array([-3.0, -6.0, -2.0]) / 7.0
"""Unit vector against the outward normal of the pyramid's slanted face through (2, 0, 0), (0, 1, 0) and (0, 0, 3)."""


CASES = {
    "plane from above": (Shape("plane", "s"), [0.3, 9.0, 2.0], -Z, 2.0, Z, -1),
    "plane from below": (Shape("plane", "s"), [0.3, 9.0, -2.0], Z, 2.0, Z, -1),
    "plane, start on it": (Shape("plane", "s"), [0.3, 9.0, 0.0], Z, 0.0, Z, -1),
    "plane behind": (Shape("plane", "s"), [0.0, 0.0, 2.0], Z, np.inf, 0 * Z, -1),
    "rectangle": (Shape("plane", "s", (1.0, 2.0)), [0.9, 1.9, 1.0], -Z, 1.0, Z, -1),
    "beside a rectangle": (Shape("plane", "s", (1.0, 2.0)), [1.1, 1.9, 1.0], -Z, np.inf, 0 * Z, -1),
    "strip, unbounded in y": (Shape("plane", "s", (1.0, 0.0)), [0.9, 99.0, 1.0], -Z, 1.0, Z, -1),
    "sphere": (Shape("sphere", "s", (2.0,), pos=(5.0, 0.0, 0.0)), [0.0, 0.0, 0.0], X, 3.0, -X, -1),
    "sphere from inside": (Shape("sphere", "s", (2.0,)), [0.5, 0.0, 0.0], X, 1.5, X, -1),
    "sphere behind": (Shape("sphere", "s", (2.0,)), [3.0, 0.0, 0.0], X, np.inf, 0 * X, -1),
    "beside a sphere": (Shape("sphere", "s", (2.0,)), [-9.0, 2.001, 0.0], X, np.inf, 0 * X, -1),
    "capsule's side": (Shape("capsule", "s", (1.0, 2.0)), [-4.0, 0.0, 1.9], X, 3.0, -X, -1),
    "capsule's end": (Shape("capsule", "s", (1.0, 2.0)), [0.0, 0.0, 9.0], -Z, 6.0, Z, -1),
    "capsule's end aslant": (
        Shape("capsule", "s", (1.0, 2.0)), [HALF, -5.0, 2.0 + HALF], Y, 5.0, [HALF, 0.0, HALF], None,
    ),
    "capsule from inside": (Shape("capsule", "s", (1.0, 2.0)), [0.0, 0.0, 1.0], Z, 2.0, Z, -1),
    "ellipsoid": (Shape("ellipsoid", "s", (1.0, 2.0, 3.0)), [0.0, -9.0, 0.0], Y, 7.0, -Y, -1),
    "ellipsoid from inside": (Shape("ellipsoid", "s", (1.0, 2.0, 3.0)), [0.0, 0.0, 0.5], -Z, 3.5, -Z, -1),
    "ellipsoid aslant": (
        Shape("ellipsoid", "s", (1.0, 2.0, 3.0)), [HALF, 9.0, 0.0], -Y, 9.0 - 2.0 * HALF,
        np.array([HALF, HALF / 2.0, 0.0]) / np.sqrt(0.625), -1,
    ),
    "cylinder's side": (Shape("cylinder", "s", (1.0, 2.0)), [0.0, 4.0, 1.9], -Y, 3.0, Y, -1),
    "cylinder's cap": (Shape("cylinder", "s", (1.0, 2.0)), [0.9, 0.0, 9.0], -Z, 7.0, Z, -1),
    "cylinder from inside": (Shape("cylinder", "s", (1.0, 2.0)), [0.9, 0.0, 1.0], -Z, 3.0, -Z, -1),
    "beside a cylinder": (Shape("cylinder", "s", (1.0, 2.0)), [1.1, 0.0, 9.0], -Z, np.inf, 0 * Z, -1),
    "box": (Shape("box", "s", (1.0, 2.0, 3.0)), [9.0, 1.9, 2.9], -X, 8.0, X, -1),
    "box from inside": (Shape("box", "s", (1.0, 2.0, 3.0)), [0.0, 1.5, 0.0], Y, 0.5, Y, -1),
    "turned box": (
        Shape("box", "s", (1.0, 2.0, 3.0), pos=(0.0, 0.0, 1.0), quat=(HALF, 0.0, 0.0, HALF)),
        [9.0, 0.0, 0.0], -X, 7.0, X, -1,
    ),
    "mesh": (Shape("mesh", "s", mesh=PYRAMID), [0.5, 0.2, -1.0], Z, 1.0, -Z, 0),
    "mesh's slanted face": (
        Shape("mesh", "s", mesh=PYRAMID), np.array([0.5, 0.25, 1.5]) - 4.0 * SLANT, SLANT, 4.0, -SLANT, 3,
    ),
    "mesh from inside": (Shape("mesh", "s", mesh=PYRAMID), [0.5, 0.2, 0.25], -Z, 0.25, -Z, 0),
    "scaled mesh": (
        Shape("mesh", "s", mesh=PYRAMID, scale=(1.0, 1.0, 2.0)), [0.5, 0.25, 9.0], -Z, 6.0,
        np.array([6.0, 12.0, 2.0]) / np.sqrt(184.0), 3,
    ),
    "mirrored mesh": (Shape("mesh", "s", mesh=PYRAMID, scale=(1.0, 1.0, -1.0)), [0.5, 0.2, 1.0], -Z, 1.0, Z, 0),
    "edge of two triangles": (Shape("hfield", "s", hfield=SHEET), [-1.0, 0.0, 2.0], -Z, 1.5, None, None),
    "height field": (Shape("hfield", "s", hfield=RIDGE), [1.5, 0.9, 3.0], -Z, 2.8, None, 3),
    "height field, right of the diagonal": (Shape("hfield", "s", hfield=SHEET), [1.8, -0.9, 3.0], -Z, 3.0, Z, 2),
    "height field from below": (Shape("hfield", "s", hfield=SHEET), [-1.8, -0.95, -1.0], Z, 1.025, UP_RIDGE, 0),
    "height field's wall": (Shape("hfield", "s", hfield=RIDGE), [0.1, 4.0, 0.5], -Y, 3.0, Y, -1),
    "height field's wall, below 0": (Shape("hfield", "s", hfield=RIDGE), [-5.0, 0.4, -0.4], X, 3.0, -X, -1),
    "no wall without a base": (Shape("hfield", "s", hfield=SHEET), [-5.0, 0.4, -0.4], X, np.inf, 0 * X, -1),
    "height field's bottom": (Shape("hfield", "s", hfield=RIDGE), [0.7, -0.3, -4.0], Z, 3.5, -Z, -1),
    "height field from inside": (Shape("hfield", "s", hfield=RIDGE), [0.7, 0.9, -0.25], -Z, 0.25, -Z, -1),
}  # fmt: skip
"""Shape, start, direction; distance, normal and face id, None where they are not checked."""


@pytest.mark.parametrize("case", CASES)
def test_ray_hits_known_geometry(case: str) -> None:
    """Each kind is hit or missed correctly from outside, from inside, aslant, beside and behind."""
    shape, start, direction, distance, normal, face = CASES[case]
    hits = reference_cast([shape], start, direction)
    np.testing.assert_allclose(hits.distance, [distance], atol=1e-12)
    hit = np.isfinite(distance)
    assert hits.shape.tolist() == [0 if hit else -1]
    if normal is not None:
        np.testing.assert_allclose(hits.normal, [normal], atol=1e-12)
    if face is not None:
        assert hits.face.tolist() == [face]
    np.testing.assert_allclose(hits.point[0], start + distance * np.asarray(direction) if hit else np.inf, atol=1e-12)


def test_a_height_fields_cells_are_numbered_row_by_row() -> None:
    """Above the centre of each triangle the face id is 2 * cell, plus 1 left of the diagonal."""
    field = HeightField(np.random.default_rng(0).uniform(0.0, 1.0, (4, 6)), (5.0, 3.0))
    cells = [(row, column, left) for row in range(3) for column in range(5) for left in (0, 1)]
    centre = np.array([[1 / 3, 2 / 3] if left else [2 / 3, 1 / 3] for _, _, left in cells])
    starts = [
        (-5.0 + 2.0 * (c + x), -3.0 + 2.0 * (r + y), 9.0) for (r, c, _), (x, y) in zip(cells, centre, strict=True)
    ]
    hits = reference_cast([Shape("hfield", "s", hfield=field)], starts, -Z)
    assert hits.face.tolist() == [2 * (row * 5 + column) + left for row, column, left in cells]


def test_face_ids_are_rows_of_the_given_faces() -> None:
    """An omitted degenerate face keeps its number."""
    mesh = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 0, 1], [0, 1, 2]], drop_degenerate=True)
    assert reference_cast([Shape("mesh", "s", mesh=mesh)], [0.2, 0.2, 1.0], -Z).face.tolist() == [1]


def test_nearest_shape_is_hit_and_the_second_recorded() -> None:
    """Distances are in metres at any length of the direction; shapes can be excluded, and far shapes are missed."""
    shapes = [Shape("sphere", name, (1.0,), pos=(x, 0.0, 0.0)) for name, x in (("far", 8.0), ("near", 5.0))]
    hits = reference_cast(shapes, [0.0, 0.0, 0.0], 7.0 * X)
    assert (hits.distance[0], hits.second[0], hits.shape[0]) == (4.0, 7.0, 1)
    assert hits.tangency[0] == pytest.approx(np.pi / 2)
    hits = reference_cast(shapes, [0.0, 0.0, 0.0], X, include=[True, False])
    assert (hits.distance[0], hits.second[0], hits.shape[0]) == (7.0, np.inf, 0)
    hits = reference_cast(shapes, [0.0, 0.0, 0.0], X, max_distance=3.9)
    assert (hits.distance[0], hits.shape[0], hits.tangency[0]) == (np.inf, -1, np.pi / 2)


def test_a_shape_moves_with_its_body() -> None:
    """The box sits 1 m ahead of a body that is turned to the left; a static box stays in place."""
    box = Shape("box", "s", (0.1, 0.2, 0.3), body=1, pos=(1.0, 0.0, 0.0))
    poses = (np.array([[9.0, 9.0, 9.0], [5.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 0.0, 0.0], [HALF, 0.0, 0.0, HALF]]))
    hits = reference_cast([box], [0.0, 1.0, 0.0], X, poses=poses)
    np.testing.assert_allclose(hits.distance, [4.8])
    np.testing.assert_allclose(hits.normal, [-X], atol=1e-15)
    welded = dataclasses.replace(box, is_static=True)
    np.testing.assert_allclose(reference_cast([welded], [0.0, 0.0, 0.0], X).distance, [0.9])
    with pytest.raises(ValueError, match="moves with body 1"):
        reference_cast([box], [0.0, 0.0, 0.0], X)


@pytest.mark.parametrize("direction", [[0.0, 0.0, 0.0], [np.nan, 0.0, 1.0]])
def test_ray_without_direction_is_refused(direction: list[float]) -> None:
    with pytest.raises(ValueError, match="no direction of length 0"):
        reference_cast([Shape("plane", "s")], [0.0, 0.0, 1.0], direction)


def test_no_ray_slips_between_triangles() -> None:
    """Rays exactly through edges and corners of a fine, bent, closed mesh all hit it, from inside and outside."""
    shape = random_shapes(np.random.default_rng(4), 40, kinds=("mesh",))
    boulder = next(s for s in shape if s.mesh is not None and len(s.mesh.vertices) == 62)
    assert boulder.mesh is not None
    start, _ = at_world(boulder, None)
    points = boulder.mesh.vertices * boulder.scale
    corners = points[boulder.mesh.faces]
    targets = np.concatenate([points, 0.5 * (corners + np.roll(corners, 1, axis=1)).reshape(-1, 3)])
    turned = Shape("mesh", "s", mesh=boulder.mesh, scale=boulder.scale, pos=tuple(start))
    inside = reference_cast([turned], start, targets)
    assert (inside.shape == 0).all()
    np.testing.assert_allclose(inside.distance, np.linalg.norm(targets, axis=1), rtol=1e-9)
    outside = reference_cast([turned], start + 3.0 * targets, -targets)
    assert (outside.shape == 0).all()


# MuJoCo ---------------------------------------------------------------------------------------------------------------


def _model(shapes: list[Shape], poses: tuple[Floats, Floats]) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return the same scene in MuJoCo, with shape i as geom i."""
    spec = mujoco.MjSpec()
    frames = [spec.worldbody]
    for pos, quat in zip(*poses, strict=True):
        frames.append(spec.worldbody.add_body(pos=pos, quat=quat, mocap=True))
    kinds = {kind: getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}") for kind in KINDS}
    for shape in shapes:
        options = {"size": [*shape.size, 0.0, 0.0, 0.0][:3]}
        if shape.kind == "plane":
            options = {"size": [*shape.size, 1.0]}
        elif shape.mesh is not None:
            mesh = spec.add_mesh(name=shape.name, scale=shape.scale, inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
            mesh.uservert, mesh.userface = shape.mesh.vertices.ravel(), shape.mesh.faces.ravel()
            options = {"meshname": shape.name}
        elif shape.hfield is not None:
            heights = shape.hfield.heights
            field = spec.add_hfield(name=shape.name, nrow=heights.shape[0], ncol=heights.shape[1])
            field.size = [*shape.hfield.size, heights.max(), shape.hfield.base]
            field.userdata = (heights / heights.max()).ravel()
            options = {"hfieldname": shape.name}
        frames[1 + shape.row].add_geom(
            type=kinds[shape.kind], name=shape.name, pos=shape.pos, quat=shape.quat, mass=0, **options
        )
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def _mj_cast(model: mujoco.MjModel, data: mujoco.MjData, starts: Floats, directions: Floats) -> tuple[Floats, ...]:
    geom, count = np.zeros(1, np.int32), len(starts)
    distance, shape, normal = np.full(count, np.inf), np.full(count, -1.0), np.zeros((count, 3))
    for k in range(count):
        t = mujoco.mj_ray(model, data, starts[k], directions[k], None, True, -1, geom, normal[k])
        if geom[0] >= 0:
            name = model.geom(geom[0]).name
            distance[k], shape[k] = t, float(name.rpartition(" ")[2])
    return distance, shape, normal


def _one_world(shapes: list[Shape], poses: tuple[Floats, Floats], starts: Floats, directions: Floats) -> Bools:
    """Return which rays are unaffected by two peculiarities of MuJoCo.

    Its planes have a single face. Its height fields have an inner face: the top of the base, at height 0, which stops
    rays that start inside.
    """
    seen = np.ones(len(starts), bool)
    for shape in shapes:
        hits = reference_cast([shape], starts, directions, poses=poses)
        leaves = (hits.normal * directions).sum(axis=1) > 0.0
        if shape.kind == "plane":
            seen &= ~leaves
        elif shape.kind == "hfield":
            pos, quat = at_world(shape, poses)
            height = [(np.where(leaves[:, None], p, pos) - pos) @ rotation(quat)[:, 2] for p in (starts, hits.point)]
            seen &= ~leaves | (height[0] * height[1] > 0.0)
    return seen


def _same_as_mujoco(shapes: list[Shape], poses: tuple[Floats, Floats], starts: Floats, directions: Floats) -> None:
    """Assert that distances agree to 1e-6 and normals to 1e-3.

    MuJoCo stores meshes and heights in float32, hence the sine.
    """
    model, data = _model(shapes, poses)
    seen = _one_world(shapes, poses, starts, directions)
    assert seen.mean() > 0.5
    starts, directions = starts[seen], directions[seen]
    distance, shape, normal = _mj_cast(model, data, starts, directions)
    hits = reference_cast(shapes, starts, directions, poses=poses)
    compare_casts(hits, distance, shape, normal=normal)
    rows = np.isfinite(hits.distance) & np.isfinite(distance) & ~hits.is_edge & (hits.shape == shape)
    assert rows.sum() > 0.5 * len(starts)
    steep = np.maximum(np.sin(hits.tangency[rows]), 1e-3)
    error = np.abs(distance[rows] - hits.distance[rows])
    assert (error <= 1e-6 * np.maximum(hits.distance[rows], 1.0) / steep).all(), error.max()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plane"])
def test_each_solid_agrees_with_mujoco(kind: str) -> None:
    """Each solid is tested alone, from outside and inside, in a random pose; height fields also at their edges."""
    rng = np.random.default_rng([1, KINDS.index(kind)])  # type: ignore[arg-type]
    shapes = random_shapes(rng, 1, kinds=(kind,), extent=5.0)  # type: ignore[arg-type]
    shapes = [_as_in_mujoco(dataclasses.replace(shape, name=f"{kind} 0")) for shape in shapes]
    centre = np.array(shapes[0].pos)
    starts = centre + rng.uniform(-1.0, 1.0, (3000, 3)) * np.where(np.arange(3000) % 2, 0.2, 2.5)[:, None]
    aims = centre + rng.normal(scale=0.3, size=(3000, 3))
    directions = aims - starts
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    _same_as_mujoco(shapes, random_poses(rng, 0), starts, directions)


def _as_in_mujoco(shape: Shape) -> Shape:
    """Return the shape as in MuJoCo: its height fields are solids, and their lowest point is at 0."""
    if shape.hfield is None:
        return shape
    heights = shape.hfield.heights - shape.hfield.heights.min()
    return dataclasses.replace(shape, hfield=HeightField(heights, shape.hfield.size, base=shape.hfield.base or 0.3))


@pytest.mark.parametrize("seed", gate(range(4), {0, 1}))
def test_random_scenes_agree_with_mujoco(seed: int) -> None:
    """Shapes of all kinds are in random poses on moving bodies."""
    rng = np.random.default_rng([2, seed])
    shapes = [_as_in_mujoco(shape) for shape in random_shapes(rng, 16, bodies=3)]
    poses = random_poses(rng, 3)
    starts, directions = random_rays(rng, shapes, 3000, poses=poses)
    _same_as_mujoco(shapes, poses, starts, directions)


# The rule -------------------------------------------------------------------------------------------------------------


def _scene() -> tuple[list[Shape], Floats, Floats]:
    shapes = [Shape("plane", "floor", pos=(0.0, 0.0, -2.0)), Shape("box", "box", (1.0, 1.0, 1.0), pos=(5.0, 0.0, 0.0))]
    rng = np.random.default_rng(3)
    starts = np.zeros((2000, 3))
    rise = rng.uniform(-1.0, 0.2, 2000)
    directions = np.c_[np.ones(2000), rng.uniform(-0.5, 0.5, 2000), rise + np.copysign(0.02, rise)]
    return shapes, starts, directions


def test_equal_casts_pass_and_are_counted() -> None:
    hits = reference_cast(*_scene())
    report = compare_casts(hits, hits.distance + 0.9e-4, hits.shape, normal=hits.normal, face=hits.face)
    assert (report.rays, report.hits) == (2000, int((hits.shape >= 0).sum()))
    assert 0 < report.hits < 2000
    assert report.worst == pytest.approx(0.9e-4)
    assert report.left_out == report.edges + report.tangents == report.differing == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("far", "1 of 2000 rays differ .* ray {k}, in its distance: "),
        ("miss", "1 of 2000 rays differ .* ray {k}, in its distance and shape: distance inf m"),
        ("shape", "1 of 2000 rays differ .* ray {k}, in its shape: .*; shape 0, expected 1"),
        ("hit", "1 of 2000 rays differ .* ray {m}, in its distance: distance 3 m, expected inf"),
        ("normal", "ray {k}, in its normal: "),
        ("face", "ray {k}, in its face id: "),
    ],
)
def test_one_wrong_ray_is_found(change: str, message: str) -> None:
    """A distance off by 2e-4 m, a miss, another shape, a spurious hit, another normal and another face are found."""
    hits = reference_cast(*_scene())
    distance, shape, normal, face = hits.distance.copy(), hits.shape.copy(), hits.normal.copy(), hits.face.copy()
    k, m = int(np.flatnonzero(hits.shape == 1)[7]), int(np.flatnonzero(hits.shape < 0)[7])
    if change == "far":
        distance[k] += 2e-4
    elif change == "miss":
        distance[k] = np.inf
    elif change == "shape":
        shape[k] = 0
    elif change == "hit":
        distance[m], shape[m] = 3.0, 1
    elif change == "normal":
        normal[k] = Y
    else:
        face[k] = 5
    with pytest.raises(AssertionError, match=message.format(k=k, m=m)):
        compare_casts(hits, distance, shape, normal=normal, face=face)


def test_coincident_shapes_are_interchangeable() -> None:
    """For two boxes whose faces are 0.5e-4 m apart either hit is valid; at 2e-4 m only the correct one is."""
    for gap, is_same in ((0.5e-4, True), (2e-4, False)):
        boxes = [Shape("box", str(x), (1.0, 1.0, 1.0), pos=(x, 0.0, 0.0)) for x in (5.0, 5.0 + gap)]
        hits = reference_cast(boxes, [[0.0, 0.1, 0.2]], X)
        if is_same:
            compare_casts(hits, hits.distance, [1])
        else:
            with pytest.raises(AssertionError, match="in its shape"):
                compare_casts(hits, hits.distance, [1])


@pytest.mark.parametrize("beside", [0.5e-5, -0.5e-5, 2e-5, -2e-5])
@pytest.mark.parametrize("kind", ["box", "sphere", "cylinder", "capsule", "ellipsoid", "rectangle", "mesh", "sheet"])
def test_ray_at_a_silhouette_is_skipped(kind: str, beside: float) -> None:
    """A ray is omitted within 1e-5 of the scene's size, on either side, and no farther, whatever it reports."""
    one = (1.0, 1.0, 1.0)
    triangle = Mesh([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    shape = {
        "rectangle": Shape("plane", "s", one[:2]), "mesh": Shape("mesh", "s", mesh=triangle),
        "sheet": Shape("hfield", "s", hfield=HeightField(np.zeros((3, 3)), one[:2])),
    }.get(kind) or Shape(kind, "s", one)  # type: ignore[arg-type]  # fmt: skip
    wall = Shape("plane", "wall", pos=(0.0, 0.0, -4.0))
    size = 6.0 + 1e-9
    start = [1.0 - beside * size, 0.1 if kind in ("box", "rectangle", "mesh", "sheet") else 0.0, 5.0]
    hits = reference_cast([shape, wall], [start, [-1.0, 0.0, 5.0]], -Z)
    hits = dataclasses.replace(hits, size=size)
    assert hits.shape[0] == (0 if beside > 0.0 else 1)
    near = abs(beside) < 1e-5
    assert hits.is_edge[0] == near
    distance, hit = hits.distance.copy(), hits.shape.copy()
    distance[0], hit[0] = (9.0, 1) if beside > 0.0 else (5.0, 0)
    if near:
        report = compare_casts(hits, distance, hit, most_left_out=2.0)
        assert report.differing == 1
    else:
        with pytest.raises(AssertionError, match=r"ray 0, in its distance"):
            compare_casts(hits, distance, hit, most_left_out=2.0)


def test_crease_is_not_a_silhouette() -> None:
    """The edge between visible faces of a box, the line where a ball enters a floor, and a field's ridges are kept."""
    box = Shape("box", "s", (1.0, 1.0, 1.0), quat=(np.cos(np.pi / 8), 0.0, np.sin(np.pi / 8), 0.0))
    hits = reference_cast([box], [0.0, 0.3, 5.0], -Z)
    assert hits.distance[0] == pytest.approx(5.0 - np.sqrt(2.0))
    assert not hits.is_edge[0]
    ball = [Shape("sphere", "s", (1.0,)), Shape("plane", "floor")]
    assert not reference_cast(ball, [-3.0, 0.0, 2.0], [2.0, 0.0, -2.0]).is_edge[0]
    field = [Shape("hfield", "s", hfield=RIDGE)]
    assert not reference_cast(field, [0.0, 0.5, 4.0], -Z).is_edge[0]


def test_tangent_ray_is_skipped() -> None:
    """A ray at 0.05 degrees to a plane is omitted, a ray at 0.2 degrees is not."""
    for angle, is_out in ((0.05, True), (0.2, False)):
        tilt = np.radians(angle)
        hits = reference_cast([Shape("plane", "s")], [0.0, 0.0, 0.01], [[np.cos(tilt), 0.0, -np.sin(tilt)]])
        assert hits.tangency[0] == pytest.approx(tilt)
        if is_out:
            report = compare_casts(hits, [99.0], [0], most_left_out=2.0)
            assert (report.tangents, report.left_out, report.differing) == (1, 1, 1)
        else:
            with pytest.raises(AssertionError, match=r"surface at 0\.2 degrees"):
                compare_casts(hits, [99.0], [0], most_left_out=2.0)


def test_too_many_skipped_rays_raise() -> None:
    """Below 0.1 % means that none of 1000 rays may be omitted, and a single one of 1001."""
    hits = [
        reference_cast([Shape("sphere", "s", (1.0,))], [[0.0, 1.0, 5.0]] + [[0.0, 0.5, 5.0]] * n, -Z)
        for n in (999, 1000)
    ]
    with pytest.raises(AssertionError, match=r"1 of 1000 rays are skipped \(1 at silhouettes"):
        compare_casts(hits[0], hits[0].distance, hits[0].shape)
    assert compare_casts(hits[1], hits[1].distance, hits[1].shape).left_out == 1


def test_hit_at_the_limit_can_be_a_miss() -> None:
    """A wall 0.5e-4 m before or behind the maximal distance may be a hit or a miss."""
    wall = Shape("plane", "s")
    for z in (1.0 - 0.5e-4, 1.0 + 0.5e-4):
        hits = reference_cast([wall], [[0.0, 0.0, z]], -Z, max_distance=1.0)
        compare_casts(hits, [np.inf], [-1])
        compare_casts(hits, [z], [0])
    hits = reference_cast([wall], [[0.0, 0.0, 0.9]], -Z, max_distance=1.0)
    with pytest.raises(AssertionError, match="distance inf m"):
        compare_casts(hits, [np.inf], [-1])


def test_arrays_that_do_not_fit_are_refused() -> None:
    hits = reference_cast(*_scene())
    with pytest.raises(ValueError, match=r"shape: got an array of shape \(1,\), expected \(2000,\)"):
        compare_casts(hits, hits.distance, [0])
    with pytest.raises(ValueError, match="a miss is inf"):
        compare_casts(hits, np.full(2000, -1.0), hits.shape)


# Random scenes --------------------------------------------------------------------------------------------------------


def test_random_scenes_have_all_shapes_and_few_skipped_rays() -> None:
    """Shapes of all kinds are hit, from inside too; less than 0.1 % of the rays are omitted."""
    rng = np.random.default_rng(5)
    shapes, poses = random_shapes(rng, 32, bodies=4), random_poses(rng, 4)
    starts, directions = random_rays(rng, shapes, 6000, poses=poses)
    for array in (starts, directions):
        np.testing.assert_array_equal(array, array.astype(np.float32))
    hits = reference_cast(shapes, starts, directions, poses=poses)
    assert {shapes[i].kind for i in hits.shape if i >= 0} == set(KINDS)
    assert {shape.is_static for shape in shapes} == {True, False}
    assert {shape.hfield.base is None for shape in shapes if shape.hfield is not None} == {True, False}
    assert {0.0 in shape.size for shape in shapes if shape.kind == "plane"} == {True, False}
    assert {float(np.sign(np.prod(shape.scale))) for shape in shapes if shape.mesh is not None} == {-1.0, 1.0}
    inside = (hits.normal * directions).sum(axis=1) > 0.0
    solids = {"sphere", "capsule", "ellipsoid", "cylinder", "box"}
    assert solids <= {shapes[i].kind for i in hits.shape[inside]}
    assert (hits.shape < 0).sum() > 10
    report = compare_casts(hits, hits.distance, hits.shape)
    assert report.left_out < 6
