"""Rays against the slow float64 reference, ray by ray: every fast path, in scenes of all kinds of shapes.

Rays that pass a silhouette or touch a surface are omitted by the reference's rule. In each test they are at most 0.1 %
of all rays, plus a single ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ray_worlds import OUTPUTS, Array, World, same_bits, tensor_engine
from reference import CastComparison, random_poses, random_rays, random_shapes
from selection import gate

import sensorium as sn
from sensorium.compute import program
from sensorium.geometry.ray_structs import NEAR
from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape
from sensorium.geometry.transforms import rotation
from sensorium.patterns import PatternBaseCfg
from sensorium.shapes.ray_cast import RayCast
from sensorium.shapes.scene import Targets

FAR = 40.0
"""Planes are unbounded and tilted by a few degrees only: beyond this distance float32 cannot resolve 1e-4 m."""
LOOSE = 1.0
"""Limit for single comparisons: omitted rays are counted over the whole test."""


def few_left_out(reports: Iterable[CastComparison]) -> int:
    """Check that at most 0.1 % of all rays, plus a single ray, were omitted, and that a tenth hit; return the hits."""
    found = list(reports)
    rays, out = sum(report.rays for report in found), sum(report.left_out for report in found)
    assert out <= 1e-3 * rays + 1, f"{out} of {rays} rays are skipped"
    hits = sum(report.hits for report in found)
    assert hits > 0.1 * rays
    return hits


def kernels(world: World, cast: RayCast) -> str:
    """Return the names of the kernels that a cast launches."""
    outputs = world.outputs(cast)
    return repr(world.compute.record(lambda: cast.cast(outputs)))


def into(world: World, env: int, mount: int, starts: Array, directions: Array) -> tuple[Array, Array]:
    """Return world rays in the frame of a mount."""
    pos, turn = world.mount_pose(env, mount)
    return (starts - pos) @ turn, directions @ turn


def upright(fields: Sequence[tuple[HeightField, tuple[float, float, float], float]], **more: Any) -> list[Shape]:
    """Return height fields at given places, rotated about the vertical by angles, rad."""
    return [
        Shape("hfield", f"field {i}", pos=pos, quat=(np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)), hfield=field, **more)
        for i, (field, pos, yaw) in enumerate(fields)
    ]


def hills(rng: np.random.Generator, points: tuple[int, int], size: tuple[float, float], **more: Any) -> HeightField:
    """Return a height field of random heights."""
    row, column = np.mgrid[: points[0], : points[1]]
    waves = np.sin(0.3 * row + rng.uniform(0, 6)) + np.cos(0.4 * column + rng.uniform(0, 6))
    return HeightField((0.3 * waves + rng.uniform(0.6, 0.65, points)).astype(np.float32), size, **more)


# All directions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", gate(range(4), {0}))
def test_each_mount_hits_bodies_of_its_own_env(seed: int) -> None:
    """Shapes of all kinds, most of them moving, are hit in envs of different poses, from mounts on the world and on
    bodies.

    Mounts do not see their own body. The poses of another env would not explain the hits.
    """
    rng = np.random.default_rng([10, seed])
    bodies, envs = 5, 3
    shapes = random_shapes(rng, 24, bodies=bodies)
    poses = [random_poses(rng, bodies) for _ in range(envs)]
    mounts = [(-1, (0.5, 0.2, 0.1)), (0, (0.1, 0.3, -0.2), (0.5, 0.5, -0.5, 0.5)), (3, (0.0, 0.0, 0.4))]
    world = World(tensor_engine(shapes, bodies, envs, poses), mounts)
    reports, differ = [], 0
    for aimed in range(2):
        rays = random_rays(rng, shapes, 500, poses=poses[aimed])
        cast = world.rays(*into(world, aimed, aimed, *rays), limits=(0.0, FAR))
        got = world.cast(cast)
        for env in range(envs):
            for mount, (body, *_) in enumerate(mounts):
                seen = [body < 0 or shape.row != body for shape in world.scene.shapes]
                reports.append(world.compare(got, env, mount, max_distance=FAR, include=seen, most_left_out=LOOSE))
                own = {i for i, is_seen in enumerate(seen) if not is_seen}
                assert not own & set(got["shape"][env, mount].tolist())
        with pytest.raises(AssertionError, match="rays differ from the reference"):
            swapped = {name: values[[1, 0, 2]] for name, values in got.items()}
            world.compare(swapped, 0, 0, max_distance=FAR, most_left_out=LOOSE)
        differ += int((got["shape"][0] != got["shape"][1]).sum())
    assert few_left_out(reports) > 3000
    assert differ > 500


@pytest.mark.parametrize("alignment", ["base", "yaw", "world", "yaw_starts"])
def test_rays_start_according_to_the_alignment(alignment: Any) -> None:
    """Starts and directions agree with float64 rotations of the mount's pose, with an offset and both drifts."""
    rng = np.random.default_rng(11)
    poses = [random_poses(rng, 2) for _ in range(3)]
    world = World(
        tensor_engine([Shape("plane", "ground")], 2, 3, poses), [(0, (0.1, 0.2, 0.3), (0.1, 0.7, -0.5, 0.5)), (1,)]
    )
    starts, directions = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    drift, moved = (rng.normal(size=(3, 2, 3)).astype(np.float32) for _ in range(2))
    quat = rng.normal(size=4)
    cast = world.rays(starts, directions, alignment=alignment, offset=((1.0, 2.0, 3.0), quat))
    outputs = world.outputs(cast, ("start", "direction"))
    cast.cast(outputs, drift=torch.from_numpy(drift), cast_drift=torch.from_numpy(moved))
    turn = rotation(quat / np.linalg.norm(quat))
    for env in range(3):
        for mount in range(2):
            pos, own = world.mount_pose(env, mount)
            heading = np.arctan2(own[1, 0], own[0, 0])
            yaw = np.array([[np.cos(heading), -np.sin(heading), 0], [np.sin(heading), np.cos(heading), 0], [0, 0, 1]])
            of = {"base": own, "yaw": yaw, "world": np.eye(3), "yaw_starts": yaw}[alignment]
            shifted = starts @ turn.T + [1.0, 2.0, 3.0] + moved[env, mount] * [1.0, 1.0, 0.0]
            expected = pos + drift[env, mount] + shifted @ of.T
            along = directions @ turn.T @ (np.eye(3) if alignment == "yaw_starts" else of).T
            along /= np.linalg.norm(along, axis=1, keepdims=True)
            np.testing.assert_allclose(outputs["start"][env, mount].numpy(), expected, atol=5e-6)
            np.testing.assert_allclose(outputs["direction"][env, mount].numpy(), along, atol=2e-6)


@pytest.mark.parametrize(
    "kind", ["mesh", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[2:8] if kind != "mesh")]
)
def test_many_of_one_kind_in_random_poses(kind: Any) -> None:
    """Meshes are scaled, mirrored, open and closed; height fields are tilted, with and without base; both may move."""
    rng = np.random.default_rng([12, KINDS.index(kind)])
    shapes = random_shapes(rng, 10 if kind == "hfield" else 24, kinds=(kind,), bodies=4)
    poses = [random_poses(rng, 4) for _ in range(2)]
    world = World(tensor_engine(shapes, 4, 2, poses))
    got = world.cast(world.rays(*random_rays(rng, shapes, 500, poses=poses[0])))
    few_left_out(world.compare(got, env, 0, most_left_out=LOOSE) for env in range(2))
    if kind == "mesh":
        scales = [np.prod(shape.scale) for shape in shapes if not shape.is_static]
        assert min(scales) < 0.0 < max(scales)


def test_more_moving_shapes_than_a_block_holds() -> None:
    """All of 110 are ahead, so a block cannot store those in its cone; in another env they surround it."""
    rng = np.random.default_rng(13)
    shapes = crowd(rng)
    narrow = rng.uniform(-1.0, 1.0, (110, 3)) * [4.0, 0.4, 0.4] + [9.0, 0.0, 0.0]
    around = rng.normal(size=(110, 3))
    around *= (rng.uniform(3.0, 9.0, 110) / np.linalg.norm(around, axis=1))[:, None]
    poses = [(place, random_poses(rng, 110)[1]) for place in (narrow, around)]
    world = World(tensor_engine(shapes, 110, 2, poses), [(-1, (0.0, 0.0, 0.0)), (7, (0.0, 0.0, 0.0))])
    directions = rng.normal([1.0, 0.0, 0.0], 0.07, (640, 3))
    cast = world.rays(np.zeros((640, 3)), directions, limits=(0.0, 60.0))
    got = world.cast(cast)
    assert cast.view.moving == 110 > NEAR
    block = directions[320:352] / np.linalg.norm(directions[320:352], axis=1, keepdims=True)
    assert kept(cast, narrow, block) > NEAR > kept(cast, around, block)
    others = [shape.row != 7 for shape in shapes]
    few_left_out(
        [
            world.compare(got, 0, 0, max_distance=60.0, most_left_out=LOOSE),
            world.compare(got, 0, 1, max_distance=60.0, include=others, most_left_out=LOOSE),
            world.compare(got, 1, 0, max_distance=60.0, most_left_out=LOOSE),
        ]
    )
    assert not (got["shape"][:, 1] == 7).any()


def crowd(rng: np.random.Generator) -> list[Shape]:
    """Return 110 shapes, each at the centre of a separate body."""
    kinds = ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
    shapes = random_shapes(rng, 110, kinds, extent=2.0)
    return [replace(shape, pos=(0, 0, 0), body=i, is_static=None) for i, shape in enumerate(shapes)]


def kept(cast: RayCast, centres: Array, block: Array) -> int:
    """Return how many bounding spheres intersect a cone about the middle of a block of rays from the origin."""
    radius = cast.view.instances.radius.numpy()
    far = np.linalg.norm(centres, axis=1)
    wide = np.arccos((block @ block[len(block) // 2]).min())
    angle = np.arccos(np.clip(centres @ block[len(block) // 2] / far, -1.0, 1.0))
    return int((angle <= wide + np.arcsin(np.minimum(radius / far, 1.0))).sum())


def test_neighbouring_rays_with_unrelated_starts_and_directions() -> None:
    """A block wider than a half space, with starts up to 20 m apart, agrees."""
    rng = np.random.default_rng(14)
    shapes = random_shapes(rng, 24, bodies=10)
    poses = [random_poses(rng, 10) for _ in range(2)]
    world = World(tensor_engine(shapes, 10, 2, poses), [(-1, (0.0, 0.0, 0.0)), (4, (0.0, 0.0, 0.0))])
    apart = rng.uniform(-10.0, 10.0, (300, 3)), rng.normal(size=(300, 3))
    fan = np.zeros((300, 3)), rng.normal(size=(300, 3))
    reports = []
    for starts, directions in (apart, fan):
        cast = world.rays(starts, directions, limits=(0.0, FAR))
        assert float(cast.cones[1].min()) == -1.0
        got = world.cast(cast)
        for env in range(2):
            for mount, include in ((0, None), (1, [shape.row != 4 for shape in shapes])):
                reports.append(world.compare(got, env, mount, max_distance=FAR, include=include, most_left_out=LOOSE))
    few_left_out(reports)


@pytest.mark.parametrize("limit", gate([2.0, 5.0, 15.0], {5.0}))
def test_no_hits_beyond_the_maximum_distance(limit: float) -> None:
    rng = np.random.default_rng(15)
    shapes = random_shapes(rng, 32, bodies=4)
    poses = [random_poses(rng, 4)]
    world = World(tensor_engine(shapes, 4, 1, poses))
    got = world.cast(world.rays(*random_rays(rng, shapes, 1000, poses=poses[0]), limits=(0.0, limit)))
    few_left_out([world.compare(got, 0, 0, max_distance=limit, most_left_out=LOOSE)])
    assert got["distance"][np.isfinite(got["distance"])].max() <= limit
    assert not np.isfinite(got["distance"]).all()


@pytest.mark.parametrize("vertical", [False, True])
def test_hit_below_the_minimum_distance_is_a_miss_and_occludes(vertical: bool) -> None:
    rng = np.random.default_rng(16)
    shapes = random_shapes(rng, 24, bodies=4)
    poses = [random_poses(rng, 4)]
    world = World(tensor_engine(shapes, 4, 1, poses))
    starts, directions = random_rays(rng, shapes, 1000, poses=poses[0])
    if vertical:
        directions = np.broadcast_to([0.0, 0.0, -1.0], starts.shape)
    options: Any = {"alignment": "world"}
    every = world.cast(world.rays(starts, directions, limits=(0.0, FAR), **options))
    some = world.cast(world.rays(starts, directions, limits=(2.0, FAR), miss=-5.0, **options))
    near = every["distance"] < 2.0
    assert near.sum() > 50
    missed = ~np.isfinite(every["distance"]) | near
    np.testing.assert_array_equal(some["distance"], np.where(missed, np.float32(-5.0), every["distance"]))
    for name, value in (("shape", -1), ("face", -1), ("normal", 0.0), ("cosine", 0.0), ("point", np.inf)):
        assert (some[name][missed] == value).all(), name
        np.testing.assert_array_equal(some[name][~missed], every[name][~missed])


@pytest.mark.parametrize("directions", [[0.0, 0.0, 1.0], [0.1, 0.0, 1.0]], ids=["vertical", "slanted"])
def test_infinite_maximum_distance_still_has_misses(directions: list[float]) -> None:
    """Rays into empty space miss, also with an analytic shape that every ray is tested against."""
    world = World(
        tensor_engine([Shape("plane", "deck", (1.0, 1.0), pos=(0, 0, 1)), Shape("sphere", "s", (1.0,))], 0, 1)
    )
    got = world.cast(world.rays([[5.0, 0.0, 0.0]], [directions], alignment="world", limits=(0.0, np.inf)))
    assert got["distance"].item() == np.inf
    assert got["shape"].item() == -1


# Vertical rays --------------------------------------------------------------------------------------------------------


def flat_world(rng: np.random.Generator, envs: int = 2, **more: Any) -> tuple[World, list[Any]]:
    """Return a world without tilted fields, in which vertical rays hit triangles and height fields by look-ups."""
    still = [
        *random_shapes(rng, 6, ("mesh", "box")),
        *random_shapes(np.random.default_rng(7), 4, ("sphere", "capsule", "cylinder", "ellipsoid")),
        *upright(
            [
                (hills(rng, (5, 7), (3.0, 2.0)), (-4.0, 1.0, -2.0), 0.7),
                (hills(rng, (9, 4), (1.5, 2.5), base=0.4), (3.0, -3.0, 0.5), -2.0),
            ]
        ),
        Shape("plane", "ground", pos=(0.0, 0.0, -6.0), quat=(1.0, 0.05, -0.1, 0.0)),
        Shape("plane", "deck", (2.0, 1.0), pos=(1.0, 1.0, 4.0), quat=(1.0, 0.2, 0.3, 0.4)),
    ]
    moving = [shape for shape in random_shapes(rng, 60, bodies=4) if not shape.is_static][:24]
    shapes = [replace(shape, name=f"{i}") for i, shape in enumerate([*still, *moving])]
    poses = [random_poses(rng, 4) for _ in range(envs)]
    return World(tensor_engine(shapes, 4, envs, poses), **more), poses


def over(rng: np.random.Generator, n: int) -> Array:
    """Return starts above, inside and below the world, sorted so that neighbours are near each other."""
    starts = rng.uniform(-7.0, 7.0, (n, 3)).astype(np.float32).astype(np.float64)
    return starts[np.lexsort((starts[:, 1], np.floor(starts[:, 0])))]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("seed", gate(range(3), {0}))
def test_vertical_rays_by_lookup(seed: int, sign: float) -> None:
    """All static kinds, with fields that are turned about the vertical only, and all moving kinds agree."""
    rng = np.random.default_rng([20, seed])
    world, _ = flat_world(rng)
    cast = world.rays(over(rng, 800), np.broadcast_to([0, 0, sign], (800, 3)), alignment="world", limits=(0.0, FAR))
    assert cast.view.is_upright and "cast_vertical" in kernels(world, cast)
    got = world.cast(cast)
    few_left_out(world.compare(got, env, 0, max_distance=FAR, most_left_out=LOOSE) for env in range(2))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("seed", gate(range(3), {0}))
def test_vertical_rays_over_static_shapes(seed: int, sign: float) -> None:
    """Tilted fields are hit beside the index of triangle shapes."""
    rng = np.random.default_rng([21, seed])
    shapes = random_shapes(rng, 40, bodies=3)
    poses = [random_poses(rng, 3) for _ in range(2)]
    world = World(tensor_engine(shapes, 3, 2, poses))
    cast = world.rays(over(rng, 800), np.broadcast_to([0, 0, sign], (800, 3)), alignment="yaw", limits=(0.0, FAR))
    assert not cast.view.is_upright and "cast_rays" in kernels(world, cast)
    got = world.cast(cast)
    few_left_out(world.compare(got, env, 0, max_distance=FAR, most_left_out=LOOSE) for env in range(2))


@pytest.mark.slow
def test_vertical_rays_from_turned_mounts() -> None:
    """With yaw alignment on tumbling bodies, starts follow the heading, rays stay vertical, own bodies are hidden."""
    rng = np.random.default_rng(22)
    world, _ = flat_world(rng, mounts=[(0, (0.2, 0.1, 0.5), (0.7, 0.1, 0.5, -0.4)), (2, (0.0, 0.0, 0.0))])
    cast = world.rays(over(rng, 1000), np.broadcast_to([0, 0, -1.0], (1000, 3)), alignment="yaw", limits=(0.0, FAR))
    assert "cast_vertical" in kernels(world, cast)
    got = world.cast(cast)
    shapes = world.scene.shapes
    reports = [
        world.compare(
            got, env, mount, max_distance=FAR, include=[shape.row != body for shape in shapes], most_left_out=LOOSE
        )
        for env in range(2)
        for mount, body in enumerate((0, 2))
    ]
    few_left_out(reports)


@pytest.mark.parametrize("standing", [0, 50])
def test_column_with_more_shapes_than_a_block_holds(standing: int) -> None:
    """110 shapes, some of them static, are above each other."""
    rng = np.random.default_rng(24)
    shapes = crowd(rng)
    place = rng.uniform(-1.0, 1.0, (110, 3)) * [0.4, 0.4, 9.0]
    turns = random_poses(rng, 110)[1]
    shapes[:standing] = [
        replace(shape, pos=tuple(place[i]), quat=tuple(turns[i]), body=-1, is_static=True)
        for i, shape in enumerate(shapes[:standing])
    ]
    world = World(tensor_engine(shapes, 110, 1, [(place, turns)]))
    starts = rng.uniform(-1.0, 1.0, (250, 3)) * [0.9, 0.9, 11.0]
    reports = []
    for sign in (-1.0, 1.0):
        cast = world.rays(starts, np.broadcast_to([0, 0, sign], (250, 3)), alignment="world")
        assert "cast_vertical" in kernels(world, cast)
        reports.append(world.compare(world.cast(cast), 0, 0, most_left_out=LOOSE))
    few_left_out(reports)


def test_single_height_field_by_each_method() -> None:
    """The shortest path, for distances and points only, agrees, and so does the path with ids and normals."""
    rng = np.random.default_rng(24)
    field = upright([(hills(rng, (17, 23), (4.0, 3.0), base=0.2), (1.0, -2.0, 0.3), 2.4)])
    poses = [random_poses(rng, 1, 2.0) for _ in range(2)]
    world = World(tensor_engine(field, 1, 2, poses), [(0, (0.0, 0.0, 0.0))])
    starts = 0.5 * over(rng, 1000)
    for sign in (-1.0, 1.0):
        down = np.broadcast_to([0, 0, sign], (1000, 3))
        cast = world.rays(starts, down, alignment="yaw", limits=(0.0, FAR))
        short, whole = world.cast(cast, ("distance", "point")), world.cast(cast)
        few_left_out(world.compare(whole, env, 0, max_distance=FAR, most_left_out=LOOSE) for env in range(2))
        hit = np.isfinite(whole["distance"])
        # the look-up of the short path rounds the position differently: at a cliff 1 in 1000 may fall to the other side
        same = np.isclose(short["distance"], whole["distance"], atol=2e-5) | (~hit & ~np.isfinite(short["distance"]))
        assert (~same).mean() < 1e-3
        np.testing.assert_allclose(short["point"][hit & same], whole["point"][hit & same], atol=3e-5)


def test_changeable_offsets_disable_vertical_rays() -> None:
    """A ray along -z of a frame that a tensor rotates by 90 degrees about y points along -x."""
    box = Shape("box", "box", (1.0, 1.0, 1.0))
    world = World(tensor_engine([box, Shape("plane", "ground", pos=(0, 0, -3))], 0, 1))
    half = float(np.sqrt(0.5))
    offsets = torch.zeros(1, 1, 3), torch.tensor([[[half, 0.0, half, 0.0]]])
    cast = world.rays([[0.0, 0.0, 10.0]], [[0.0, 0.0, -1.0]], alignment="world", offsets=offsets)
    got = world.cast(cast)
    np.testing.assert_allclose(got["start"].ravel(), [10.0, 0.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(got["distance"].item(), 9.0, atol=1e-5)
    np.testing.assert_allclose(got["normal"].ravel(), [1.0, 0.0, 0.0], atol=1e-6)


# Height fields --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["upright", pytest.param("tilted", marks=pytest.mark.slow), "moving"])
def test_several_height_fields_by_rays_in_all_directions(how: str) -> None:
    """With many cells, rays cross blocks of both levels; rays come at all angles, from above, below and inside."""
    rng = np.random.default_rng([31, len(how)])
    grids = [hills(rng, (70, 45), (4.0, 3.0)), hills(rng, (12, 40), (1.5, 2.5), base=0.5), hills(rng, (2, 2), (1, 1))]
    places = [(0.0, 0.0, -1.0), (1.0, 2.0, 1.0), (-2.0, -1.0, 1.5)]
    fields = upright(list(zip(grids, places, (0.4, -1.3, 3.0), strict=True)))
    if how != "upright":
        turns = rng.normal(size=(3, 4)).astype(np.float32)
        fields = [replace(field, quat=tuple(turn)) for field, turn in zip(fields, turns, strict=True)]
    if how == "moving":
        fields = [replace(field, body=i % 2, is_static=None) for i, field in enumerate(fields)]
    poses = [random_poses(rng, 2, 3.0) for _ in range(2)]
    world = World(tensor_engine(fields, 2, 2, poses))
    n = 600
    starts = rng.uniform(-5.0, 5.0, (n, 3))
    aim = np.array(places)[rng.integers(3, size=n)] + rng.uniform(-1.5, 1.5, (n, 3))
    got = world.cast(world.rays(starts, aim - starts))
    few_left_out(world.compare(got, env, 0, most_left_out=LOOSE) for env in range(2))
    assert (got["face"] > 100).any()


# Invisible shapes -----------------------------------------------------------------------------------------------------


def test_welded_body_is_hidden_only_from_its_own_mount() -> None:
    """Two mounts, one of them on a static body of shapes of all kinds, cast rays in all directions and down."""
    rng = np.random.default_rng(40)
    shapes = random_shapes(rng, 24, bodies=2)
    welded = [
        replace(shape, name=f"welded {i}", body=2, is_static=True) for i, shape in enumerate(random_shapes(rng, 16))
    ]
    poses = [random_poses(rng, 3)]
    world = World(
        tensor_engine([*shapes, *welded], 3, 1, poses), [(2, (0.0, 0.0, 0.0)), (-1, (0.0, 0.0, 0.0)), (0, (0, 0, 0))]
    )
    starts, directions = random_rays(rng, [*shapes, *welded], 300, poses=poses[0])
    down = np.broadcast_to([0.0, 0.0, -1.0], directions.shape)
    for along, targets in ((directions, Targets()), (down, Targets()), (directions, Targets(exclude_own=False))):
        got = world.cast(world.rays(starts, along, alignment="world", limits=(0.0, FAR), targets=targets))
        reports = []
        for mount, body in enumerate((2, -1, 0)):
            seen = [body < 0 or not targets.exclude_own or shape.row != body for shape in world.scene.shapes]
            reports.append(world.compare(got, 0, mount, max_distance=FAR, include=seen, most_left_out=LOOSE))
        assert sum(report.left_out for report in reports) <= 1e-3 * 900 + 1
        met = {world.scene.shapes[i].row for i in got["shape"][0, 1] if i >= 0}
        assert met == {-1, 0, 1, 2}


# Scans that take time -------------------------------------------------------------------------------------------------


def swept(block: int, alignment: Any = "base") -> tuple[World, RayCast, list[dict[str, Array]], list[Any]]:
    """Scan for 12 ticks with a window that moves over a period, from a tumbling mount among moving shapes."""
    rng = np.random.default_rng(50)
    shapes = [shape for shape in random_shapes(rng, 60, bodies=5) if shape.kind != "plane"]
    shapes = [replace(shape, body=1 + shape.row % 5 if not shape.is_static else -1) for shape in shapes]
    engine = tensor_engine(shapes, 6, 1)
    world = World(engine, [(0, (0.4, 0.1, 0.3))])
    total = 997
    k = np.arange(total)
    rise, turn = np.radians(((k * 7) % 32) * 2.5 - 38.0), 2.0 * np.pi * k / total
    along = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], axis=1)
    starts = np.broadcast_to([0.3, -0.2, 0.1], along.shape)
    dt = world.clock.dt
    cast = world.rays(
        starts, along, times=k * (3.7 * dt / total), period=3.7 * dt, per_tick=total / 3.7, count=1170, slots=7,
        block=block, alignment=alignment, limits=(0.0, 40.0),
    )  # fmt: skip
    found, poses = [], []
    names = (*OUTPUTS, "time")
    for tick in range(12):
        poses.append([np.asarray(part, np.float32) for part in random_poses(rng, 6)])
        engine.body_pos_w, engine.body_quat_w = (part[None] for part in poses[-1])
        if tick:
            last, now = poses[-2][1][0], poses[-1][1][0]  # the mount rotates by steps that a sensor may see
            engine.body_quat_w[0, 0] = torch.from_numpy(last + 0.2 * now) / np.linalg.norm(last + 0.2 * now)
            engine.body_pos_w[0, 0] = torch.from_numpy(poses[-2][0][0] + 0.1 * poses[-1][0][0])
            poses[-1] = [engine.array(name)[0].numpy().copy() for name in ("body_pos_w", "body_quat_w")]
        world.clock.set(tick, 0, 0)
        outputs = world.outputs(cast, list(OUTPUTS)) | {"time": torch.zeros(1, 1, cast.count)}
        cast.cast({name: outputs[name] for name in names})
        found.append({name: tensor.numpy()[0, 0] for name, tensor in outputs.items()})
    return world, cast, found, poses


@pytest.mark.parametrize("alignment", ["base", *(pytest.param(a, marks=pytest.mark.slow) for a in ("yaw", "world"))])
def test_scan_rays_hit_moving_shapes_at_the_nearest_tick(alignment: Any) -> None:
    """In every block, rays agree with the reference at the poses of the tick nearest to the ray's firing time."""
    world, _, found, poses = swept(32, alignment)
    reports = []
    ticks = (7, 11) if alignment == "base" else (11,)
    for tick in ticks:
        got = found[tick]
        nearest = np.maximum(tick + np.round(got["time"] / world.clock.dt), 0).astype(int)
        assert len(set(nearest)) > 3
        for at in set(nearest):
            part = nearest == at
            world.engine.body_pos_w, world.engine.body_quat_w = (values[None] for values in poses[at])
            some = {name: values[part][None, None] for name, values in got.items()}
            reports.append(world.compare(some, 0, 0, max_distance=40.0, most_left_out=LOOSE))
    assert sum(report.left_out for report in reports) <= 3e-3 * sum(report.rays for report in reports)
    assert sum(report.hits for report in reports) > 150 * len(ticks)


@pytest.mark.parametrize("alignment", ["base", "yaw", "world"])
def test_scan_over_time_is_independent_of_blocks(alignment: Any) -> None:
    alone = swept(1, alignment)[2]
    for block in (7, 32):
        assert all(same_bits(a, b) for a, b in zip(alone, swept(block, alignment)[2], strict=True))


def test_last_block_of_a_window_has_full_width() -> None:
    """A window whose rays are not a whole number of blocks, over a pattern that jumps up and down, agrees."""
    rng = np.random.default_rng(51)
    shapes = [Shape("sphere", f"{i}", (0.5,), body=i) for i in range(40)]
    poses = rng.uniform(-8.0, 8.0, (40, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (40, 1))
    world = World(tensor_engine(shapes, 40, 1, [poses]))
    k = np.arange(2000)
    rise, turn = np.radians((-1.0) ** k * ((k * 7) % 32) * 1.4), 2.0 * np.pi * (k // 32) / 62.5
    along = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], axis=1)
    found: dict[int, list[dict[str, Array]]] = {}
    for block in (1, 7, 32):
        cast = world.rays(
            np.zeros((2000, 3)), along, times=k * 1e-5, period=0.02, count=150, per_tick=123.0, block=block
        )
        for tick in range(40):
            world.clock.set(tick, 0, 0)
            outputs = world.outputs(cast)
            cast.cast(outputs)
            found.setdefault(block, []).append({name: tensor.numpy() for name, tensor in outputs.items()})
    assert sum(int(np.isfinite(each["distance"]).sum()) for each in found[1]) > 200
    for block in (7, 32):
        assert all(same_bits(a, b) for a, b in zip(found[1], found[block], strict=True))


# Equal results of all code paths --------------------------------------------------------------------------------------


def both_kinds(rng: np.random.Generator, envs: int, **more: Any) -> tuple[World, list[tuple[Array, Array]]]:
    """Return a world with many moving shapes, and rays in all directions and down."""
    world, poses = flat_world(rng, envs, **more)
    anywhere = random_rays(rng, world.scene.shapes, 700, poses=poses[0])
    return world, [anywhere, (over(rng, 700), np.broadcast_to([0.0, 0.0, -1.0], (700, 3)))]


@pytest.mark.parametrize("which", [0, 1], ids=["anywhere", "down"])
def test_block_size_does_not_change_results(which: int) -> None:
    world, rays = both_kinds(np.random.default_rng(60), 3, mounts=[(0, (0.0, 0.0, 0.0)), (2, (0.1, 0.0, 0.0))])
    alone, *others = (world.cast(world.rays(*rays[which], alignment="yaw", block=block)) for block in (1, 7, 32, 701))
    for other in others:
        assert same_bits(alone, other)
    assert np.isfinite(alone["distance"]).mean() > 0.3


@pytest.mark.parametrize("envs", [1, 2, 5])
@pytest.mark.parametrize("which", [0, 1], ids=["anywhere", "down"])
def test_shards_do_not_change_results(which: int, envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads agree with a single thread; with a single env its rays are shared."""
    monkeypatch.setattr(program, "SHARD_ABOVE_S", 0.0)
    found = []
    for threads in (1, 2):
        world, rays = both_kinds(np.random.default_rng(61), envs, threads=threads)
        cast = world.rays(*rays[which], alignment="yaw")
        outputs = world.outputs(cast)
        segment = world.compute.record(lambda cast=cast, outputs=outputs: cast.cast(outputs))
        for _ in range(program.TIMED_RUNS + 2):
            for tensor in outputs.values():
                tensor.fill_(-77)
            segment.run()
        found.append((segment.shards, {name: tensor.numpy() for name, tensor in outputs.items()}))
    (one, alone), (two, shared) = found
    assert (one, two) == (1, 2)
    assert same_bits(alone, shared) and np.isfinite(alone["distance"]).any()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("which", [0, 1], ids=["anywhere", "down"])
def test_captured_graph_does_not_change_results(which: int) -> None:
    found = []
    for capture in (False, True):
        world, rays = both_kinds(np.random.default_rng(62), 2, capture=capture)
        cast = world.rays(*rays[which], alignment="yaw", limits=(0.0, FAR))
        outputs = world.outputs(cast)
        segment = world.compute.record(lambda cast=cast, outputs=outputs: cast.cast(outputs))
        for _ in range(3):
            segment.run()
        world.engine.body_pos_w += 0.25
        segment.run()
        found.append({name: tensor.numpy() for name, tensor in outputs.items()})
    assert same_bits(*found)
    world.compare(found[-1], 1, 0, max_distance=FAR, most_left_out=LOOSE)  # where moving shapes are now


@pytest.mark.parametrize("which", [0, 1], ids=["anywhere", "down"])
def test_reset_casts_only_rays_of_reset_envs(which: int) -> None:
    """A reset uses the mask: the other envs keep every bit, and remember earlier positions."""
    world, rays = both_kinds(np.random.default_rng(63), 3)
    cast = world.rays(*rays[which], alignment="yaw", limits=(0.0, FAR))
    outputs = world.outputs(cast)
    cast.cast(outputs)
    before = {name: tensor.numpy().copy() for name, tensor in outputs.items()}
    world.engine.body_pos_w += 0.4
    world.compute.reset_envs[:] = torch.tensor([0, 1, 0])
    world.clock.set(0, 1, 0)
    with world.compute.masked(world.compute.reset_envs):
        cast.cast(outputs)
    after = {name: tensor.numpy() for name, tensor in outputs.items()}
    for env in (0, 2):
        assert same_bits({k: v[env] for k, v in before.items()}, {k: v[env] for k, v in after.items()})
    world.compare(after, 1, 0, max_distance=FAR, most_left_out=LOOSE)
    assert (after["distance"][1] != before["distance"][1]).mean() > 0.1


class _Given(PatternBaseCfg):
    """Rays from a seed, in arbitrary directions."""

    seed: int = 0

    @staticmethod
    def func(cfg: Any, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(cfg.seed)
        return torch.randn((400, 3), generator=random), torch.randn((400, 3), generator=random)


@pytest.mark.usefixtures("at_once")
def test_captured_scene_equals_the_plain_one() -> None:
    """Ray casters in a scene with `capture=True` give the same bits, over steps and a reset of an env."""
    rng = np.random.default_rng(64)
    shapes = random_shapes(rng, 24, bodies=3)
    motion = [random_poses(rng, 3) for _ in range(3)]
    names = ("distances", "ray_hits_w", "normals_w", "geom_ids", "face_ids")
    found: list[list[Array]] = []
    for capture in (False, True):
        engine = tensor_engine(shapes, 3, 3, motion)
        common: Any = {"fields": names, "max_distance": FAR}
        scene = sn.Scene(
            engine,
            [
                sn.RayCasterCfg(name="any", body="b0", pattern=_Given(seed=1), **common),
                sn.RayCasterCfg(name="down", bodies=("b1", "b2"), ray_alignment="yaw", **common),
            ],
            capture=capture,
        )
        rows: list[Array] = []
        for step in range(6):
            engine.body_pos_w += 0.1 * (step + 1)
            if step == 3:
                scene.reset([1])
            else:
                scene.update()
            for name in ("any", "down"):
                rows += [getattr(scene[name].data, field).numpy().copy() for field in names]
        found.append(rows)
    for plain, captured in zip(*found, strict=True):
        np.testing.assert_array_equal(plain, captured)
    assert np.isfinite(found[0][0]).mean() > 0.2


def test_hit_follows_a_moving_mesh_in_the_same_step() -> None:
    """A mirrored wedge is hit at its body's current pose, in each env, with its faces and normals and no rebuild."""
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]]) - 0.3
    wedge = Mesh(points, [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], "wedge")
    engine = tensor_engine([Shape("mesh", "wedge", body=0, mesh=wedge, scale=(1.0, -0.5, 0.7))], 1, 2)
    world, rng = World(engine), np.random.default_rng(65)
    starts = rng.normal(size=(1000, 3)) * 2.0
    cast = world.rays(starts, rng.normal(scale=0.5, size=(1000, 3)) - starts)
    outputs = world.outputs(cast)
    segment = world.compute.record(lambda: cast.cast(outputs))
    built, reports = world.scene.nbytes, []
    for _ in range(4):
        poses = [random_poses(rng, 1, 1.0) for _ in range(2)]
        engine.body_pos_w, engine.body_quat_w = (np.stack(part).astype(np.float32) for part in zip(*poses, strict=True))
        segment.run()
        got = {name: tensor.numpy() for name, tensor in outputs.items()}
        reports += [world.compare(got, env, 0, most_left_out=LOOSE) for env in range(2)]
        assert (got["distance"][0] != got["distance"][1]).mean() > 0.3
        assert set(got["face"].ravel().tolist()) == {-1, 0, 1, 2, 3}
    few_left_out(reports)
    assert world.scene.nbytes == built
