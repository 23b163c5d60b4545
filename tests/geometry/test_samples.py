"""Samples of surfaces: areas in closed form, positions by slow search, evenness by theory, inside tests by solid
angles.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import surfaces
from numpy.typing import NDArray
from reference import random_shapes
from scipy.spatial.distance import pdist
from scipy.special import ellipeinc, ellipkinc

from sensorium.errors import ConfigError, ModelError
from sensorium.geometry.samples import (
    body_samples,
    covered,
    inside,
    scattered,
    surface_area,
    surface_samples,
    surface_triangles,
)
from sensorium.geometry.shapes import HeightField, Mesh, Shape

Array = NDArray[np.float64]


def ellipsoid_area(radii: tuple[float, float, float]) -> float:
    """Evaluate Legendre's closed form by incomplete elliptic integrals (DLMF 19.33.1)."""
    a, b, c = sorted(radii, reverse=True)
    phi = math.acos(c / a)
    m = a * a * (b * b - c * c) / (b * b * (a * a - c * c))
    parts = ellipeinc(phi, m) * math.sin(phi) ** 2 + ellipkinc(phi, m) * math.cos(phi) ** 2
    return 2.0 * math.pi * (c * c + a * b / math.sin(phi) * float(parts))


CLOSED = [
    (Shape("sphere", "s", (0.03,)), 4 * math.pi * 0.03**2, 4 / 3 * math.pi * 0.03**3),
    (
        Shape("capsule", "c", (0.1, 0.4)),
        4 * math.pi * 0.1 * 0.5,
        math.pi * 0.1**2 * 0.8 + 4 / 3 * math.pi * 0.1**3,
    ),
    (
        Shape("cylinder", "y", (0.3, 0.05)),
        2 * math.pi * 0.3 * (0.3 + 0.1),
        math.pi * 0.3**2 * 0.1,
    ),
    (Shape("box", "b", (0.1, 0.2, 0.3)), 8 * (0.02 + 0.06 + 0.03), 8 * 0.006),
    (Shape("ellipsoid", "e", (0.5, 1.0, 0.2)), ellipsoid_area((0.5, 1.0, 0.2)), 4 / 3 * math.pi * 0.1),
    (Shape("ellipsoid", "f", (0.02, 0.3, 0.1)), ellipsoid_area((0.02, 0.3, 0.1)), 4 / 3 * math.pi * 6e-4),
]
IDS = [f"{shape.kind}-{shape.name}" for shape, _, _ in CLOSED]


def bumpy(count: int = 24, scale: tuple[float, float, float] = (1.0, 1.0, 1.0), turned: bool = False) -> Shape:
    """Return a closed ball with bumps and hollows, of about 4 * count**2 triangles."""
    polar, turn = np.pi * np.arange(1, count) / count, np.pi * np.arange(2 * count) / count
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    ball = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    points = np.concatenate([ball, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    points *= (1.0 + 0.2 * np.sin(5.0 * points[:, 0]) * np.cos(4.0 * points[:, 1] + 1.0))[:, None]
    row, after = np.arange(len(ball)).reshape(count - 1, 2 * count), (np.arange(2 * count) + 1) % (2 * count)
    up, down, north = row[:-1], row[1:], np.full(2 * count, len(ball))
    faces = np.concatenate([part.reshape(-1, 3) for part in (
        np.stack([up, down, down[:, after]], -1), np.stack([up, down[:, after], up[:, after]], -1),
        np.stack([north, row[0], row[0, after]], -1), np.stack([north + 1, row[-1, after], row[-1]], -1),
    )])  # fmt: skip
    return Shape("mesh", "bumpy", mesh=Mesh(points, faces[:, ::-1] if turned else faces), scale=scale)


def winding(corners: Array, p: Array) -> Array:
    """Return the winding number of triangles around points: solid angles (van Oosterom and Strackee, 1983) over 4
    pi.
    """
    a, b, c = (corners[None, :, i] - p[:, None] for i in range(3))
    la, lb, lc = (np.linalg.norm(side, axis=-1) for side in (a, b, c))
    over = np.einsum("pti,pti->pt", a, np.cross(b, c))
    under = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    return np.asarray(np.arctan2(over, under).sum(axis=1) / (2.0 * np.pi))


@pytest.mark.parametrize(("shape", "area", "volume"), CLOSED, ids=IDS)
def test_areas_match_closed_forms_and_sum_to_the_surface(shape: Shape, area: float, volume: float) -> None:
    bound = 1e-4 if shape.kind == "ellipsoid" else 1e-12
    assert surface_area(shape) == pytest.approx(area, rel=bound)
    for count in (1, 2, 5, 7, 100, 3001):
        samples = surface_samples(shape, count=count)
        assert len(samples) == count and samples.areas.min() > 0.0
        assert samples.areas.sum() == pytest.approx(surface_area(shape), rel=1e-12)


@pytest.mark.parametrize("shape", [bumpy(), bumpy(scale=(0.3, -0.1, 2.0))], ids=["plain", "mirrored"])
def test_the_area_of_a_mesh_is_that_of_its_triangles_by_their_sides(shape: Shape) -> None:
    assert shape.mesh is not None
    corners = (shape.mesh.vertices * shape.scale)[shape.mesh.faces]
    a, b, c = (np.linalg.norm(corners[:, i] - corners[:, i - 1], axis=1) for i in range(3))
    half = 0.5 * (a + b + c)
    area = np.sqrt(half * (half - a) * (half - b) * (half - c)).sum()  # Heron's
    assert surface_area(shape) == pytest.approx(area, rel=1e-9)
    assert surface_samples(shape, count=777).areas.sum() == pytest.approx(area, rel=1e-9)


@pytest.mark.parametrize("base", [None, 0.3])
def test_height_field_area_includes_walls_and_floor_if_solid(
    base: float | None,
) -> None:
    field = HeightField(np.random.default_rng(0).uniform(0.0, 0.5, (7, 5)), (1.0, 2.0), base)
    samples = surface_samples(Shape("hfield", "h", hfield=field), count=500)
    t = surfaces.triangles_of(field)
    area = 0.5 * np.linalg.norm(np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0]), axis=1).sum()
    assert samples.area == pytest.approx(area, rel=1e-12)
    assert (samples.normals[:, 2] < -0.99).any() == (base is not None)


def test_samples_lie_on_the_surface_with_correct_normals() -> None:
    """For all kinds, sizes and scales, the slow independent search finds the same distance."""
    step = 1e-4
    for shape in random_shapes(np.random.default_rng(3), 24):
        if shape.kind == "plane" and 0.0 in shape.size:
            continue
        samples = surface_samples(shape, count=40).placed(shape.pos, shape.quat)
        assert surfaces.to_shape(shape, samples.points).max() < 1e-6
        # A part within a step of a concave edge is nearer to its other side.
        far = surfaces.to_shape(shape, samples.points + step * samples.normals)
        assert np.median(np.abs(far - step)) < 1e-3 * step and (far < step + 1e-6).all()


@pytest.mark.parametrize(("shape", "area", "volume"), CLOSED, ids=IDS)
def test_flux_of_outward_normals_equals_the_volume(shape: Shape, area: float, volume: float) -> None:
    """Gauss: the sum of area times x . n is three times the volume, and that of area times n is zero."""
    samples = surface_samples(shape, count=4000)
    np.testing.assert_allclose(np.linalg.norm(samples.normals, axis=1), 1.0, atol=1e-12)
    flux = (samples.areas * (samples.points * samples.normals).sum(axis=1)).sum() / 3.0
    assert flux == pytest.approx(volume, rel=2e-3)
    assert np.abs(samples.areas @ samples.normals).max() < 2e-3 * area


@pytest.mark.parametrize("scale", [(1.0, 1.0, 1.0), (0.2, 1.0, -0.5)])
@pytest.mark.parametrize("turned", [False, True])
def test_normals_of_a_mesh_point_outward_mirrored_or_inside_out(
    scale: tuple[float, float, float], turned: bool
) -> None:
    shape = bumpy(scale=scale, turned=turned)
    samples = surface_samples(shape, count=300)
    assert shape.mesh is not None
    corners, off = (shape.mesh.vertices * scale)[shape.mesh.faces], 1e-5 * samples.normals
    assert (np.abs(winding(corners, samples.points + off)) < 1e-3).all()
    assert (np.abs(np.abs(winding(corners, samples.points - off)) - 1.0) < 1e-3).all()


@pytest.mark.parametrize("size", [(1.0, 1.0), (1.0, 3.0), (20.0, 0.1), (0.001, 5.0)])
@pytest.mark.parametrize("count", [2, 13, 100, 987, 2500])
def test_samples_of_a_rectangle_keep_their_distance_for_any_sides(size: tuple[float, float], count: int) -> None:
    """The distance of k g from a whole number is at least 0.3819 / k (g the golden ratio), so products of the
    differences along the sides are at least 0.3819 A / n, and squares of distances twice that."""
    samples = surface_samples(Shape("plane", "p", size), count=count)
    golden = 0.5 * (3.0 - math.sqrt(5.0))
    assert pdist(samples.points).min() ** 2 >= 2.0 * golden * samples.area / count * (1.0 - 1e-9)


def test_sphere_and_capsule_slices_have_samples_proportional_to_area() -> None:
    """Archimedes: a slice has the area 2 pi r dz; u is stratified, so every count is within 1."""
    rng = np.random.default_rng(5)
    for shape, reach in ((Shape("sphere", "s", (0.3,)), 0.3), (Shape("capsule", "c", (0.1, 0.5)), 0.6)):
        for count in (10, 333):
            z = surface_samples(shape, count=count).points[:, 2]
            low, high = np.sort(rng.uniform(-reach, reach, (2, 50)), axis=0)
            found = ((z[:, None] >= low) & (z[:, None] < high)).sum(axis=0)
            assert np.abs(found - count * (high - low) / (2.0 * reach)).max() <= 1.0 + 1e-9


def test_mesh_samples_are_more_even_than_random_ones() -> None:
    """Counts of random positions in half spaces have variance n p (1 - p); here it must be below a quarter of that."""
    shape, rng, n = bumpy(), np.random.default_rng(7), 1000
    corners = surface_triangles(shape)
    area = 0.5 * np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    face = rng.choice(len(area), 200_000, p=area / area.sum())
    shares = rng.dirichlet((1.0, 1.0, 1.0), len(face))
    chance = (shares[..., None] * corners[face]).sum(axis=1)
    points = surface_samples(shape, count=n).points
    way = rng.normal(size=(3, 100))
    way /= np.linalg.norm(way, axis=0)
    limit = rng.uniform(-0.7, 0.7, 100)
    p = (chance @ way < limit).mean(axis=0)
    off = ((points @ way < limit).sum(axis=0) - n * p) / np.sqrt(n * p * (1.0 - p))
    assert (off**2).mean() < 0.25
    of_chance = ((chance[:n] @ way < limit).sum(axis=0) - n * p) / np.sqrt(n * p * (1.0 - p))
    assert (of_chance**2).mean() > 0.5  # the measure detects randomness


def test_both_sides_of_a_thin_mesh_have_their_own_samples() -> None:
    corners = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1e-4, 1e-4)])
    faces = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6],
             [0, 6, 4], [1, 5, 7], [1, 7, 3]]  # fmt: skip
    samples = surface_samples(Shape("mesh", "sheet", mesh=Mesh(corners, faces)), count=200)
    upper = samples.points[samples.normals[:, 2] > 0.5]
    assert len(upper) == 100
    assert samples.areas[samples.normals[:, 2] > 0.5].sum() == pytest.approx(4.0, rel=1e-3)
    assert pdist(upper).min() > 0.4 * math.sqrt(4.0 / 100)


@pytest.mark.parametrize("shape", [CLOSED[0][0], CLOSED[3][0], CLOSED[4][0], bumpy(8)], ids=lambda shape: shape.kind)
def test_samples_are_deterministic_per_seed(shape: Shape) -> None:
    one, same, other = (surface_samples(shape, count=60, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.points, same.points)
    assert not np.array_equal(one.points, other.points)
    assert other.area == pytest.approx(one.area)


def test_spacing_gives_one_sample_per_square_of_that_side() -> None:
    samples = surface_samples(Shape("box", "b", (0.5, 0.5, 0.5)), spacing=0.1)
    assert len(samples) == 600
    assert repr(samples) == "SurfaceSamples(600 points, 6 m2)"
    assert len(surface_samples(Shape("sphere", "s", (0.01,)), spacing=1.0)) == 1


def test_samples_of_some_rows_are_samples() -> None:
    samples = surface_samples(Shape("sphere", "s", (0.5,)), count=50)
    upper = samples[samples.points[:, 2] > 0.0]
    assert len(upper) == 25 and (upper.normals[:, 2] > 0.0).all()
    assert upper.area == pytest.approx(0.5 * samples.area)


# Several shapes -------------------------------------------------------------------------------------------------------


def test_mutually_hidden_box_surfaces_have_no_samples() -> None:
    """On stacked shapes both touching faces are removed, exactly, because each face has its own samples."""
    stack = [Shape("box", "low", (0.1, 0.1, 0.1)), Shape("box", "high", (0.1, 0.1, 0.1), pos=(0.0, 0.0, 0.2))]
    whole = body_samples(stack, count=1200, keep_covered=True)
    assert len(whole) == 1200 and whole.area == pytest.approx(12 * 0.04)
    shown = body_samples(stack, count=1200)
    assert len(shown) == 1000 and shown.area == pytest.approx(10 * 0.04)
    assert not (np.abs(shown.points[:, 2] - 0.1) < 1e-9).any()
    assert set(shown.shape) == {0, 1}


@pytest.mark.parametrize("offset", [0.0, 0.1])
def test_flush_surfaces_count_once(offset: float) -> None:
    """A box and a copy of it, then two that overlap along x, have the surface of the bar that they form."""
    pair = [Shape("box", "one", (0.1, 0.05, 0.05)), Shape("box", "two", (0.1, 0.05, 0.05), pos=(offset, 0.0, 0.0))]
    samples = body_samples(pair, count=20000)
    assert samples.area == pytest.approx(4 * 0.1 * (0.2 + offset) + 2 * 0.01, rel=0.01)


def test_a_mesh_and_its_copy_have_one_surface() -> None:
    """Visual and collision geoms often share one mesh: the first one has all samples."""
    shapes = [bumpy(), bumpy()]
    samples = body_samples(shapes, count=2000)
    assert samples.area == pytest.approx(surface_area(shapes[0])) and (samples.shape == 0).all()


def test_mutually_hidden_parts_of_a_mesh_have_no_samples() -> None:
    """Two cubes of 12 triangles in one mesh each have a corner of one eighth inside the other."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64)
    faces = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
                      [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]])  # fmt: skip
    mesh = Mesh(np.concatenate([corners, corners + 0.5]), np.concatenate([faces, faces + 8]))
    shape = Shape("mesh", "two", mesh=mesh)
    assert surface_area(shape) == pytest.approx(12.0)
    assert body_samples([shape], count=20000).area == pytest.approx(12.0 - 6 * 0.25, rel=0.01)
    assert body_samples([shape], count=200, keep_covered=True).area == pytest.approx(12.0)


def test_half_sunk_ball_keeps_its_upper_half_and_hides_a_disc() -> None:
    """The uncertainty of the count that a curve of length s cuts off is the number of samples along it: s over their
    spacing.
    """
    r, n = 0.05, 6000
    shapes = [Shape("box", "b", (0.1, 0.1, 0.1)), Shape("sphere", "s", (r,), pos=(0.0, 0.0, 0.1))]
    samples = body_samples(shapes, count=n)
    area = 24 * 0.01 + 2 * math.pi * r**2 - math.pi * r**2
    each = (24 * 0.01 + 4 * math.pi * r**2) / n
    assert samples.area == pytest.approx(area, abs=2.0 * math.pi * r * math.sqrt(each))
    assert (samples.points[samples.shape == 1][:, 2] > 0.1).all()
    top = samples.points[(samples.shape == 0) & (samples.normals[:, 2] > 0.5)]
    assert (np.hypot(top[:, 0], top[:, 1]) > r).all()


def test_shapes_are_sampled_in_place_proportionally_to_area() -> None:
    turned = (math.cos(math.pi / 4), 0.0, math.sin(math.pi / 4), 0.0)  # z onto x
    shapes = [
        Shape("cylinder", "c", (0.1, 1.0), pos=(3.0, 0.0, 0.0), quat=turned),
        Shape("sphere", "s", (0.05,), pos=(-1.0, 0.0, 0.0)),
    ]
    samples = body_samples(shapes, count=1000)
    tube = samples.points[samples.shape == 0]
    assert np.hypot(tube[:, 1], tube[:, 2]).max() == pytest.approx(0.1)
    assert tube[:, 0].min() == pytest.approx(2.0, abs=0.02) and tube[:, 0].max() == pytest.approx(4.0, abs=0.02)
    areas = [surface_area(shape) for shape in shapes]
    assert abs(len(tube) - 1000 * areas[0] / sum(areas)) <= 1.0


def test_inside_agrees_with_solid_angles_for_meshes_of_any_form() -> None:
    rng = np.random.default_rng(11)
    for shape in [*random_shapes(rng, 6, kinds=("mesh",)), bumpy(10)]:
        corners = surface_triangles(shape)
        points = rng.uniform(*1.1 * np.stack([corners.min(axis=(0, 1)), corners.max(axis=(0, 1))]), (400, 3))
        turns = winding(corners, points)
        is_closed = np.abs(turns - np.round(turns)).max() < 1e-6
        expected = turns > 0.5 if is_closed else np.zeros(len(points), bool)
        np.testing.assert_array_equal(inside(shape, points), expected)


@pytest.mark.parametrize("shape", [shape for shape, _, _ in CLOSED], ids=IDS)
def test_the_inside_of_an_analytic_shape_has_its_volume(shape: Shape) -> None:
    """A share of n random positions is accurate to 5 standard deviations."""
    volume = next(volume for each, _, volume in CLOSED if each is shape)
    n, half = 100_000, 1.1
    points = np.random.default_rng(1).uniform(-half, half, (n, 3))
    extent = max(shape.size) + (shape.size[0] if shape.kind == "capsule" else 0.0)
    p = volume / (2.0 * half * extent) ** 3
    assert inside(shape, points * extent).mean() == pytest.approx(p, abs=5.0 * math.sqrt(p * (1.0 - p) / n))


def test_the_inside_of_a_height_field_is_below_its_triangles() -> None:
    field = HeightField(np.array([[0.0, 1.0], [0.0, 0.0]]), (1.0, 1.0), 0.5)
    shape = Shape("hfield", "h", hfield=field)
    points = [[0.5, -0.5, 0.49], [0.5, -0.5, 0.51], [-0.5, 0.5, 0.01], [-0.5, 0.5, -0.4], [-0.5, 0.5, -0.6], [2, 0, 0]]
    np.testing.assert_array_equal(inside(shape, np.array(points)), [True, False, False, True, False, False])


def test_scattered_samples_lie_on_the_surface() -> None:
    samples = scattered([bumpy(8)], 2000)
    assert len(samples) == 2000 and samples.area == pytest.approx(surface_area(bumpy(8)))
    assert surfaces.to_shape(bumpy(8), samples.points[::40]).max() < 1e-9
    assert not covered([bumpy(8)], samples).any()


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of the two"),
        ({"count": 3, "spacing": 0.1}, "one of the two"),
        ({"count": 0}, "whole number from 1"),
        ({"count": 2.5}, "whole number from 1"),
        ({"count": True}, "whole number from 1"),
        ({"spacing": 0.0}, "positive length"),
        ({"spacing": float("nan")}, "positive length"),
        ({"spacing": 1e-9}, "in metres"),
    ],
)
def test_bad_numbers_raise(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        surface_samples(Shape("sphere", "s", (1.0,)), **arguments)  # type: ignore[arg-type]


def test_shape_without_surface_raises() -> None:
    with pytest.raises(ModelError, match="unbounded plane"):
        surface_samples(Shape("plane", "ground"), count=3)
    with pytest.raises(ModelError, match="it is a cloth"):
        surface_samples(Shape("mesh", "flex", fault="it is a cloth"), count=3)
    with pytest.raises(ConfigError, match="at least one shape"):
        body_samples([], count=3)
    with pytest.raises(ConfigError, match="shapes of one body"):
        body_samples([Shape("sphere", "a", (1.0,), body=0), Shape("sphere", "b", (1.0,), body=1)], count=3)
