"""The visibility pass against the slow reference, for every kind of shape and lens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from image_worlds import ImageWorld, inverse_pinhole
from ray_worlds import tensor_engine
from reference import random_poses, random_shapes
from selection import gate

from sensorium.cameras.render import image_cast
from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape, ShapeKind
from sensorium.shapes.scene import Targets

IMAGE = (40, 48)


def looking(pos: Sequence[float], target: Sequence[float] = (0.0, 0.0, 0.0)) -> tuple[Any, ...]:
    """Return a mount on the world from which a camera looks at a point."""
    forward = np.array(target, float) - pos
    forward /= np.linalg.norm(forward)
    left = np.cross([0.0, 0.0, 1.0], forward)
    left /= np.linalg.norm(left)
    m = np.stack([forward, left, np.cross(forward, left)], axis=1)
    w = 0.5 * np.sqrt(1.0 + np.trace(m))
    quat = (w, *((m[[2, 0, 1], [1, 2, 0]] - m[[1, 2, 0], [2, 0, 1]]) / (4.0 * w)))
    return (-1, tuple(pos), quat)


def world_of(shapes: Sequence[Shape], mounts: Sequence[Any], envs: int = 1, **more: Any) -> ImageWorld:
    return ImageWorld(tensor_engine(shapes, 2, envs), mounts, **more)


def fisheye(image: tuple[int, int], degrees: float) -> torch.Tensor:
    """Return directions of an equidistant fisheye, `[1, pixel, 3]`."""
    height, width = image
    v, u = np.divmod(np.arange(height * width), width)
    x, y = u + 0.5 - width / 2, v + 0.5 - height / 2
    angle = np.hypot(x, y) / (0.5 * width) * np.radians(degrees) / 2
    turn = np.arctan2(y, x)
    rows = [np.cos(angle), -np.sin(angle) * np.cos(turn), -np.sin(angle) * np.sin(turn)]
    return torch.tensor(np.stack(rows, axis=1)[None], dtype=torch.float32).contiguous()


def parallel(image: tuple[int, int], size: float) -> dict[str, torch.Tensor]:
    """Return the lines of sight of an orthographic camera."""
    height, width = image
    v, u = np.divmod(np.arange(height * width), width)
    starts = np.stack([0 * u, (width / 2 - u - 0.5), (height / 2 - v - 0.5)], axis=1) * size / width
    along = np.broadcast_to([1.0, 0.0, 0.0], starts.shape)
    return {name: torch.tensor(np.array(part)[None], dtype=torch.float32).contiguous()
            for name, part in (("starts", starts), ("directions", along))}  # fmt: skip


def lens_of(name: str, image: tuple[int, int] = IMAGE) -> dict[str, Any]:
    return {
        "pinhole": lambda: {"inverse_k": inverse_pinhole(image, 30.0)},
        "off centre": lambda: {"inverse_k": inverse_pinhole(image, 41.0, (12.3, 31.7))},
        "fisheye": lambda: {"directions": fisheye(image, 220.0)},
        "orthographic": lambda: parallel(image, 14.0),
    }[name]()


@pytest.mark.parametrize("lens", ["pinhole", "off centre", "fisheye", "orthographic"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_shape_against_the_reference(kind: ShapeKind, lens: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    shapes = random_shapes(rng, 8, (kind,), bodies=2)
    world = world_of(shapes, [looking((11.0, 3.0, 5.0)), looking((-7.0, -8.0, 4.0))])
    world.engine.body_pos_w[:], world.engine.body_quat_w[:] = (
        torch.tensor(part, dtype=torch.float32) for part in random_poses(rng, 2)
    )
    cast = world.images(IMAGE, limits=(0.05, 1e6), **lens_of(lens))
    got = world.render(cast)
    for mount in range(2):
        assert world.check(cast, got, 0, mount).hits > (50 if "pinhole" in lens else 10)


@pytest.mark.parametrize(
    ("seed", "tile"),
    [(0, 64), (4, 8), *(pytest.param(*each, marks=pytest.mark.full) for each in ((1, 64), (2, 64), (3, 64), (5, 8)))],
)
def test_scenes_of_all_kinds_in_tiles(seed: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of several tiles, none of full size at the borders, from among the shapes."""
    monkeypatch.setattr(image_cast, "TILE", tile)
    rng = np.random.default_rng(seed)
    image = (70, 100)
    world = world_of(random_shapes(rng, 24, bodies=2), [looking(rng.uniform(-4, 4, 3), rng.uniform(-2, 2, 3))])
    cast = world.images(image, limits=(0.1, 1e6), inverse_k=inverse_pinhole(image, 55.0))
    assert world.check(cast, world.render(cast), 0).hits > 2000


# Surfaces around the camera -------------------------------------------------------------------------------------------

SQUARE = Mesh([[-50, -50, 0], [50, -50, 0], [50, 50, 0], [-50, 50, 0]], [[0, 1, 2], [0, 2, 3]], "square")


@pytest.mark.parametrize("floor", ["two triangles", "grid"])
@pytest.mark.parametrize("pitch", [-1.0, -0.2, 0.0, 0.3])
def test_triangles_that_cross_the_plane_of_the_camera(pitch: float, floor: str) -> None:
    """A floor of large or small triangles that extends from behind the camera to far in front of it."""
    grid = HeightField(np.zeros((17, 17)), (8.0, 8.0))
    shape = Shape("mesh", "floor", mesh=SQUARE) if floor != "grid" else Shape("hfield", "floor", hfield=grid)
    world = world_of([shape], [looking((0.3, 0.2, 0.3), (3.0, 1.0, 0.3 + pitch))])
    cast = world.images(IMAGE, limits=(0.01, 1e6), inverse_k=inverse_pinhole(IMAGE, 25.0))
    got = world.render(cast)
    world.check(cast, got, 0)
    assert (got["shape"] >= 0).any()


@pytest.mark.parametrize("kind", ["box", "sphere", "capsule", "cylinder", "ellipsoid", "mesh", "hfield"])
def test_camera_inside_a_shape_sees_its_inner_side(kind: ShapeKind) -> None:
    rng = np.random.default_rng(3)
    shape = random_shapes(rng, 2, (kind,))[1]
    if kind == "mesh":
        shape = Shape("mesh", "ball", pos=(1.0, 2.0, 3.0), mesh=ball(8, 12), scale=(1.0, -2.0, 1.5))
    inside = np.array(shape.pos)
    if kind == "hfield":
        from sensorium.geometry.transforms import rotation

        inside = inside - 0.5 * (shape.hfield.base or 0.0) * rotation(shape.quat)[:, 2]  # type: ignore[union-attr]
    world = world_of([shape], [looking(inside, inside + np.array([1.0, 0.3, -0.2]))])
    cast = world.images(IMAGE, limits=(0.001, 1e6), inverse_k=inverse_pinhole(IMAGE, 20.0))
    got = world.render(cast)
    assert world.check(cast, got, 0).hits > 0.9 * cast.count


@pytest.mark.parametrize("kind", ["box", "sphere", "capsule", "cylinder", "ellipsoid", "mesh", "hfield", "plane"])
@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_near_limit_cuts_shapes_open(kind: ShapeKind, lens: str) -> None:
    """What lies before the near limit is cut away, and the inner side behind it is visible."""
    rng = np.random.default_rng(5)
    shape = random_shapes(rng, 2, (kind,))[1]
    eye = np.add(shape.pos, [2.0, 0.5, 0.4])
    world = world_of([shape], [looking(eye, shape.pos)])
    whole = world.render(world.images(IMAGE, limits=(0.01, 1e6), **lens_of(lens)))
    seen = whole["inverse"][whole["inverse"] > 0.0]
    near = float(1.0 / np.quantile(seen, 0.6))
    cast = world.images(IMAGE, limits=(near, 1e6), **lens_of(lens))
    got = world.render(cast)
    world.check(cast, got, 0)
    hit = got["shape"] >= 0
    assert (got["inverse"][hit] * near <= 1.0 + 1e-6).all() and not np.array_equal(got["inverse"], whole["inverse"])
    far = float(1.0 / np.quantile(seen, 0.4)) * 1.0003
    for farthest in (far, 1e6):
        limited = world.render(world.images(IMAGE, limits=(0.01, farthest), **lens_of(lens)))
        kept = whole["inverse"] * farthest >= 1.0
        np.testing.assert_array_equal(limited["inverse"], np.where(kept, whole["inverse"], 0.0))
        np.testing.assert_array_equal(limited["shape"], np.where(kept, whole["shape"], -1))


# Triangles per pixel --------------------------------------------------------------------------------------------------


def ball(rings: int, around: int) -> Mesh:
    """Return a closed ball of radius 1."""
    polar, turn = np.pi * np.arange(1, rings) / rings, 2.0 * np.pi * np.arange(around) / around
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    points = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    points = np.concatenate([points, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    k, index = np.arange(around), np.arange(around * (rings - 1)).reshape(rings - 1, around)
    after, last = (k + 1) % around, len(points) - 1
    up, down = index[:-1], index[1:]
    faces = [np.stack([up, down, down[:, after]], -1), np.stack([up, down[:, after], up[:, after]], -1)]
    ends = [np.stack([0 * k + last - 1, index[0], index[0, after]], -1)]
    ends.append(np.stack([0 * k + last, index[-1, after], index[-1]], -1))
    return Mesh(points, np.concatenate([part.reshape(-1, 3) for part in (*faces, *ends)]), "ball")


@pytest.mark.parametrize("distance", [2.5, 6.0, 40.0])
def test_fine_meshes_from_near_and_from_far(distance: float) -> None:
    """A mesh of 9,800 triangles before a wall, stretched and mirrored, that covers the image or a few pixels only."""
    mesh = ball(50, 100)
    shapes = [
        Shape("mesh", "ball", mesh=mesh, scale=(1.0, -0.7, 1.2)),
        Shape("box", "wall", (0.1, 90.0, 90.0), pos=(-3.0, 0.0, 0.0)),
        Shape("mesh", "other", mesh=mesh, pos=(-1.0, 1.0, 0.3), quat=(0.9, 0.1, 0.3, 0.2), scale=(0.5, 0.8, 0.4)),
    ]
    world = world_of(shapes, [looking((distance, 0.1, 0.2))])
    cast = world.images(IMAGE, limits=(0.01, 1e6), inverse_k=inverse_pinhole(IMAGE, 40.0))
    got = world.render(cast)
    assert world.check(cast, got, 0, most_left_out=0.2).hits == cast.count
    assert (got["shape"] == 0).sum() > 3


def test_stretched_mesh_over_several_tiles() -> None:
    """Clusters of triangles that are much longer in one direction than in the others."""
    shape = Shape("mesh", "needle", mesh=ball(24, 40), scale=(3.0, 0.1, 0.6))
    world = world_of([shape], [looking((0.5, 4.0, 1.0))])
    image = (130, 150)
    cast = world.images(image, limits=(0.01, 1e6), inverse_k=inverse_pinhole(image, 110.0))
    assert world.check(cast, world.render(cast), 0).hits > 2000


def test_fine_terrain_has_no_holes() -> None:
    """Every line of sight below the horizon meets the terrain, whatever the size of its triangles in the image."""
    n = 90
    x = np.linspace(-1.0, 1.0, n)
    heights = 0.05 * np.random.default_rng(0).normal(size=(n, n)) + np.sin(4 * x)[None] * np.cos(3 * x)[:, None]
    field = HeightField(heights, (20.0, 20.0))
    world = world_of([Shape("hfield", "ground", hfield=field)], [looking((0.0, 0.1, 4.0), (4.0, 0.0, 0.0))])
    image = (48, 60)
    cast = world.images(image, limits=(0.01, 1e6), inverse_k=inverse_pinhole(image, 120.0))
    got = world.render(cast)
    assert (got["shape"] == 0).all()
    assert world.check(cast, got, 0, most_left_out=0.2).hits == cast.count


# Rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_of_equal_surfaces_the_lowest_shape_number_is_visible(swapped: bool) -> None:
    """Two instances of one mesh in the same place, in either order."""
    quad = Mesh([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], [[0, 1, 2], [0, 2, 3]], "quad")
    names = ("still", "moving")
    shapes = [Shape("mesh", name, mesh=quad, body=0 if name == "moving" else -1)
              for name in (names[::-1] if swapped else names)]  # fmt: skip
    world = world_of(shapes, [(-1, (0.0, 0.0, 2.0), (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0))])
    cast = world.images(IMAGE, limits=(0.01, 1e6), inverse_k=inverse_pinhole(IMAGE, 30.0))
    got = world.render(cast)
    hit = got["inverse"][0, 0] > 0.0
    assert 800 < hit.sum() < 1000 and (got["shape"][0, 0][hit] == 0).all()


def test_selection_own_body_and_invisible_shapes() -> None:
    """A camera sees its own body by default; what is not selected, or has alpha 0, does not hide anything."""
    shapes = [
        Shape("sphere", "own", (0.5,), body=0, pos=(1.0, 0.0, 0.0)),
        Shape("box", "glass", (0.1, 50.0, 50.0), pos=(2.0, 0.0, 0.0), is_visible=False, is_visual=False),
        Shape("box", "wall", (0.1, 50.0, 50.0), pos=(4.0, 0.0, 0.0)),
        Shape("box", "collision", (0.1, 50.0, 50.0), pos=(3.0, 0.0, 0.0), is_visual=False),
    ]
    world = world_of(shapes, [(0, (0.0, 0.0, 0.0)), (1, (0.0, 0.0, 0.0))])
    lens = {"inverse_k": inverse_pinhole(IMAGE, 20.0)}
    got = world.render(world.images(IMAGE, **lens))
    assert set(np.unique(got["shape"])) == {0, 2}
    got = world.render(world.images(IMAGE, targets=Targets(), **lens))
    assert set(np.unique(got["shape"][:, 0])) == {2} and set(np.unique(got["shape"][:, 1])) == {0, 2}
    got = world.render(world.images(IMAGE, targets=Targets(geometry="all", exclude=("wall",)), **lens))
    assert set(np.unique(got["shape"][:, 1])) == {0, 3}


# Environments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
@pytest.mark.parametrize("envs", gate([1, 7, 11, 53], {1, 7, 11}))
def test_each_environment_renders_its_own_shapes(envs: int, lens: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record holds a few environments at a time; each image has the same bits as in a world of its own."""
    image = (12, 16)
    monkeypatch.setattr(image_cast, "PIXELS_IN_FLIGHT", 2 * 3 * 12 * 16)
    rng = np.random.default_rng(2)
    shapes = random_shapes(rng, 16, bodies=2, extent=6.0)
    poses = [random_poses(rng, 2, extent=6.0) for _ in range(envs)]
    mounts = [looking((6.0, 1.0, 2.0)), (1, (0.0, 0.0, 0.0))]
    world = ImageWorld(tensor_engine(shapes, 2, envs, poses), mounts, threads=2, capture=True)
    world.compute.shards = 2
    cast = world.images(image, limits=(0.01, 1e6), **lens_of(lens, image))
    assert cast.record.inverse.shape[0] <= 2 * 3
    images = world.outputs_of(cast)
    segment = world.compute.record(lambda: world.render_into(cast, images))
    for _ in range(6):
        for tensor in images.values():
            tensor.fill_(-77)
        segment.run()
        got = {name: tensor.numpy().copy() for name, tensor in images.items()}
        for env in range(envs) if _ in (0, 5) else ():
            alone = ImageWorld(tensor_engine(shapes, 2, 1, [poses[env]]), mounts)
            own = alone.render(alone.images(image, limits=(0.01, 1e6), **lens_of(lens, image)))
            for name, expected in own.items():
                assert got[name][env].tobytes() == expected[0].tobytes(), (env, name)
    assert segment.shards == 2  # environments, or pixels of the only one


def test_tiles_of_one_image_are_shared_among_cores() -> None:
    image, rng = (70, 100), np.random.default_rng(7)
    engine = tensor_engine(random_shapes(rng, 16), 2, 1)
    world = ImageWorld(engine, [looking((6.0, 1.0, 2.0))], threads=3)
    world.compute.shards = 3
    cast = world.images(image, inverse_k=inverse_pinhole(image, 60.0))
    expected, images = world.render(cast), world.outputs_of(cast)
    segment = world.compute.record(lambda: world.render_into(cast, images))
    for _ in range(6):
        segment.run()
        for name, tensor in images.items():
            assert tensor.numpy().tobytes() == expected[name].tobytes()
    assert segment.shards == 3


def test_moved_shapes_and_cameras_appear_in_the_next_frame() -> None:
    shapes = [Shape("sphere", "ball", (0.5,), body=0), Shape("box", "wall", (0.1, 90.0, 90.0), pos=(9.0, 0.0, 0.0))]
    world = world_of(shapes, [(1, (0.0, 0.0, 0.0))], envs=2)
    cast = world.images(IMAGE, inverse_k=inverse_pinhole(IMAGE, 20.0))
    engine: Any = world.engine
    engine.body_pos_w[:, 0] = torch.tensor([[4.0, 0.0, 0.0], [-4.0, 0.0, 0.0]])
    got = world.render(cast)
    assert [set(np.unique(image)) for image in got["shape"]] == [{0, 1}, {1}]
    engine.body_pos_w[:, 1, 0] = torch.tensor([5.0, -7.0])
    got = world.render(cast)
    assert [set(np.unique(image)) for image in got["shape"]] == [{1}, {0, 1}]
    np.testing.assert_array_equal(cast.pos_w[:, 0, 0].numpy(), [5.0, -7.0])
    np.testing.assert_array_equal(cast.moving_pos_w[:, 0, 0].numpy(), [4.0, -4.0])
