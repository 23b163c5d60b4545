"""Signed distances to closed meshes, checked against all triangles and winding numbers in float64; meshes without an
inside.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray
from reference import reference_distance
from selection import gate
from solid_meshes import blade, bumpy, closed_meshes, fins, hull, icosphere, joined, moved, places_around, single, torus
from solid_meshes import turned as wound_inwards

from sensorium.compute.loading import DECLARED
from sensorium.errors import ModelError
from sensorium.geometry import solid_grid
from sensorium.geometry.bounds import box_mesh
from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.shapes import KINDS, Mesh, Shape
from sensorium.geometry.solid_grid import PreparedMeshes, _without_grid, build_solids, prepare_mesh
from sensorium.geometry.solid_mesh import surface_of
from sensorium.geometry.solid_walk import Solids
from sensorium.geometry.solids import signed_distance

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]
Scale = tuple[float, float, float]

MESHES = sorted(closed_meshes())
ROUNDING = 1e-6
"""Required accuracy of distances, relative to the size of the mesh and the distance to it."""


@wp.kernel
def _signed(
    instances: Instances,
    solids: Solids,
    fields: HFields,
    row: int,
    reach: float,
    p: wp.array[wp.vec3],
    distance: wp.array[float],
    foot: wp.array[wp.vec3],
    gradient: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    far, spot, out = signed_distance(instances, solids, fields, row, p[i], reach)
    distance[i] = far
    foot[i] = spot
    gradient[i] = out


def ask(solids: Solids, row: int, p: Array, reach: float = np.inf) -> tuple[Array, Array, Array]:
    """Return distances, nearest points and gradients of one instance row, as kernels give them."""
    count, rows = len(p), solids.solid.shape[0]
    instances = Instances()
    instances.kind = wp.array([KINDS.index("mesh")] * rows, dtype=wp.int32, device="cpu")
    distance = wp.zeros(count, dtype=float, device="cpu")
    foot, gradient = (wp.zeros(count, dtype=wp.vec3, device="cpu") for _ in range(2))
    places = wp.array(p, dtype=wp.vec3, device="cpu")
    args = [instances, solids, build_hfields([]), row, reach, places, distance, foot, gradient]
    wp.launch(_signed, count, args, device="cpu")
    return tuple(out.numpy().astype(np.float64) for out in (distance, foot, gradient))  # type: ignore[return-value]


def signed(
    mesh: Mesh, p: Array, reach: float = np.inf, scale: Scale = (1.0, 1.0, 1.0), *, grid: bool = True
) -> tuple[Array, Array, Array]:
    """Return what `ask` does for one mesh; without its grid, every point uses the tree."""
    with pytest.MonkeyPatch.context() as patch:
        if not grid:
            patch.setattr(solid_grid, "prepare_mesh", lambda *given: _without_grid(surface_of(*given[:2]), given[2]))
        return ask(build_solids([(mesh, scale)], "cpu"), 0, p, reach)


def shape_of(mesh: Mesh, scale: Scale = (1.0, 1.0, 1.0)) -> Shape:
    return Shape("mesh", "m", mesh=mesh, scale=scale)


def compare(mesh: Mesh, p: Array, scale: Scale = (1.0, 1.0, 1.0), *, grid: bool = True) -> None:
    """Check that distances, signs, nearest points and gradients match the reference."""
    distance, foot, gradient = signed(mesh, p, scale=scale, grid=grid)
    reference = reference_distance(shape_of(mesh, scale), p)
    placed = mesh.vertices * scale
    size = np.linalg.norm(np.ptp(placed, axis=0))
    rounding = ROUNDING * (size + np.abs(reference.distance)) + 2e-7 * np.abs(foot).max(axis=1)
    assert (np.abs(np.abs(distance) - np.abs(reference.distance)) <= rounding).all()
    clear = np.abs(reference.distance) > rounding
    assert clear.mean() > 0.9
    wrong = np.sign(distance[clear]) != np.sign(reference.distance[clear])
    assert not wrong.any(), f"{wrong.sum()} wrong, {np.abs(reference.distance[clear][wrong]).max():.1e} m away at most"
    assert (np.abs(np.linalg.norm(p - foot, axis=1) - np.abs(distance)) <= rounding).all()
    assert (np.abs(reference_distance(shape_of(mesh, scale), foot).distance) <= rounding).all()
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=3e-7)
    same = (np.linalg.norm(foot - reference.point, axis=1) <= rounding) & clear
    assert same.mean() > 0.8
    turn = np.linalg.norm(gradient - reference.gradient, axis=1)
    assert (turn <= 1e-5 + 4.0 * rounding / np.abs(reference.distance))[same].all()


# Against the reference ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [True, False], ids=["grid", "tree"])
@pytest.mark.parametrize("name", MESHES)
def test_signed_distance_to_a_closed_mesh_matches_the_reference(name: str, grid: bool) -> None:
    """Points are near its faces, edges and corners at all scales, deep inside, and far away."""
    mesh = closed_meshes(3)[name]
    compare(mesh, places_around(mesh, 500, np.random.default_rng(1)), grid=grid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 2000), *(pytest.param(seed, 16_000, marks=pytest.mark.full) for seed in range(3))]
)
def test_sign_is_right_and_distance_within_0_1_mm_over_many_points(seed: int, count: int) -> None:
    wrong = total = 0
    for mesh in closed_meshes(10 + seed).values():
        p = places_around(mesh, count, np.random.default_rng(seed))
        distance = signed(mesh, p)[0]
        reference = reference_distance(shape_of(mesh), p).distance
        assert np.abs(np.abs(distance) - np.abs(reference)).max() < 1e-5
        off = np.abs(reference) > 1e-4
        wrong += int((np.sign(distance) != np.sign(reference))[off].sum())
        total += int(off.sum())
    assert total > 5.6 * count and wrong == 0


def test_blades_where_a_single_face_normal_gives_the_wrong_side() -> None:
    """So the meshes with sharp edges are hard: by the face that is found first, points beyond a tip seem inside."""
    for mesh in (fins(), blade()):
        p = places_around(mesh, 1200, np.random.default_rng(1))
        reference = reference_distance(shape_of(mesh), p)
        corners = mesh.vertices[mesh.faces]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        doubtful = np.zeros(len(p), bool)
        for triangle, normal in zip(corners, normals, strict=True):
            shared = np.abs(np.linalg.norm(reference.point[:, None] - triangle, axis=2)).min(axis=1) < 1e-9
            doubtful |= shared & (((p - reference.point) @ normal > 0.0) != (reference.distance > 0.0))
        assert doubtful.sum() > 20


@pytest.mark.parametrize(
    "scale",
    [(0.02, 0.02, 0.02), (-1.0, 1.0, 1.0), (-2.0, -2.0, -2.0), (0.5, 2.0, 1.0), (0.3, -1.0, 2.0), (-1.5, -0.2, 1.0)],
)
def test_scales_can_be_unequal_and_mirrored(scale: Scale) -> None:
    mesh = bumpy(np.random.default_rng(5), 1)
    p = single(places_around(Mesh(mesh.vertices * np.abs(scale), mesh.faces), 800, np.random.default_rng(2)))
    compare(mesh, p * np.sign(scale), scale)


@pytest.mark.parametrize("size", [1e-3, 100.0])
def test_meshes_can_be_tiny_or_huge(size: float) -> None:
    for mesh in (moved(bumpy(np.random.default_rng(1)), 0.0, size), moved(fins(), 0.0, size)):
        compare(mesh, places_around(mesh, 800, np.random.default_rng(0)))


def test_mesh_can_be_far_from_its_origin() -> None:
    """The rounding of its vertices and of the points to float32 is not multiplied."""
    mesh = moved(torus(), (300.0, -200.0, 50.0), 0.1)
    p = places_around(mesh, 800, np.random.default_rng(0))
    distance = signed(mesh, p)[0]
    reference = reference_distance(shape_of(mesh), p).distance
    assert np.abs(np.abs(distance) - np.abs(reference)).max() < 1e-6
    off = np.abs(reference) > 1e-5
    assert (np.sign(distance) == np.sign(reference))[off].all()


def test_a_mesh_of_five_thousand_triangles_has_short_lists_in_bounded_memory() -> None:
    """Its grid and its tree give equal results, near the surface and deep inside."""
    points, faces = icosphere(4)
    mesh = Mesh(single(points * (1.0 + 0.1 * np.sin(5 * points[:, :1]) * np.cos(4 * points[:, 1:2]))), faces)
    prepared = prepare_mesh(mesh, (1.0, 1.0, 1.0), "cpu")
    assert prepared.nbytes < 8e6 and len(prepared.entries) > len(prepared.cells)
    p = places_around(mesh, 4000, np.random.default_rng(0))
    by_grid, by_tree = signed(mesh, p), signed(mesh, p, grid=False)
    np.testing.assert_allclose(by_grid[0], by_tree[0], atol=1e-6, rtol=1e-6)
    assert (by_tree[0] < -0.5).any()


@pytest.mark.slow
@pytest.mark.parametrize("level", gate([5, 6], {5}), ids=["20480", "81920"])
def test_a_mesh_of_many_triangles_has_lists_for_some_cells_in_bounded_memory(level: int) -> None:
    """Cells without a list use the tree, so both give equal results."""
    points, faces = icosphere(level)
    waves = 1.0 + 0.2 * np.sin(5 * points[:, :1]) * np.cos(4 * points[:, 1:2])
    mesh = Mesh(single(points * waves * (1.0, 0.5, 0.3)), faces)
    known = PreparedMeshes("cpu")
    solids = build_solids([(mesh, (1.0, 1.0, 1.0))], "cpu", known)
    (prepared,) = known._prepared
    listed = (prepared.cells["count"] > 0).mean()
    assert prepared.nbytes < 4e7 and 0.02 < listed < 0.9
    p = places_around(mesh, 4000, np.random.default_rng(0))
    np.testing.assert_allclose(ask(solids, 0, p)[0], signed(mesh, p, grid=False)[0], atol=1e-6, rtol=1e-6)


# Reach, surface, determinism ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [True, False], ids=["grid", "tree"])
@pytest.mark.parametrize("name", MESHES)
def test_distances_within_reach_or_inside_are_exact(name: str, grid: bool) -> None:
    mesh = closed_meshes(4)[name]
    p = places_around(mesh, 1200, np.random.default_rng(2))
    everything = signed(mesh, p, grid=grid)
    for reach in (0.0, 0.003, 0.2):
        told = signed(mesh, p, reach, grid=grid)
        near = everything[0] <= reach
        for got, expected in zip(told, everything, strict=True):
            np.testing.assert_array_equal(got[near], expected[near])
        assert (told[0][~near] > reach).all()
        assert near.any() and (~near).any()


@pytest.mark.parametrize("name", MESHES)
def test_gradient_on_the_surface_is_a_face_normal_or_between_adjacent_ones(name: str) -> None:
    mesh = closed_meshes(5)[name]
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    distance, _, gradient = signed(mesh, single(corners.mean(axis=1)))
    assert np.abs(distance).max() < 1e-6
    np.testing.assert_allclose(gradient, normals, atol=1e-6)
    faces_of: dict[frozenset[int], list[int]] = {}
    for face, (a, b, c) in enumerate(mesh.faces.tolist()):
        for edge in ({a, b}, {b, c}, {c, a}):
            faces_of.setdefault(frozenset(edge), []).append(face)
    edges = np.array([sorted(edge) for edge in faces_of])
    sides = normals[np.array(list(faces_of.values()))]
    distance, _, gradient = signed(mesh, mesh.vertices[edges].mean(axis=1))  # on the edges but for rounding
    assert np.abs(distance).max() < 1e-6
    sums = sides.sum(axis=1)
    choices = np.concatenate([sides, sums[:, None] / np.linalg.norm(sums, axis=1)[:, None, None]], axis=1)
    assert np.linalg.norm(choices - gradient[:, None], axis=2).min(axis=1).max() < 1e-5
    distance, _, gradient = signed(mesh, mesh.vertices[np.unique(mesh.faces)])
    assert np.abs(distance).max() < 1e-6
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=3e-7)


def test_gradient_near_a_face_is_exactly_its_normal() -> None:
    mesh = box_mesh((0.5, 0.3, 0.2))
    p = np.array([[0.1, 0.05, z] for z in 0.2 + np.array([1e-7, -1e-7, 1e-5, -1e-5, 1e-3, -1e-3])])
    _, _, gradient = signed(mesh, p)
    np.testing.assert_allclose(gradient, np.broadcast_to([0.0, 0.0, 1.0], gradient.shape), atol=1e-7)


def test_second_preparation_of_a_mesh_reads_the_file_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = bumpy(np.random.default_rng(0))
    for kernel in DECLARED:
        if "solid_grid" in kernel.module.name:
            wp.load_module(kernel.module, device="cpu")  # not from the empty folder
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))

    def prepare(mesh: Mesh, scale: float = 1.0) -> dict[str, Any]:
        prepared = prepare_mesh(mesh, (scale, scale, scale), "cpu")
        values = {name: getattr(prepared, name) for name in ("low", "side", "counts", "cells", "step", "entries")}
        return values | asdict(prepared.surface)

    def files() -> list[Path]:
        return list(tmp_path.glob("sensorium_solids/*"))

    def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return all(np.array_equal(a[name], b[name]) and type(a[name]) is type(b[name]) for name in a)

    built = prepare(mesh)
    (path,) = files()
    assert same(built, prepare(mesh)) and files() == [path]
    whole = path.read_bytes()
    entries = built["entries"].tobytes()
    for damaged in (b"", whole[: len(whole) // 2], whole.replace(entries, bytes(len(entries)))):
        path.write_bytes(damaged)
        assert damaged != whole and same(built, prepare(mesh))
        assert len(path.read_bytes()) == len(whole)
    np.savez(path, **built | {"step": 7.0})
    assert prepare(mesh)["step"] == 7.0  # it was read
    other = mesh.vertices.copy()
    other[0] *= 1.0 + 1e-12
    assert not same(built, prepare(Mesh(other, mesh.faces))) and not same(built, prepare(mesh, 2.0))
    assert len(files()) == 3
    tmp_path.joinpath("file").touch()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / "file"))  # cannot be written
    assert same(built, prepare(mesh))


def test_nan_point_has_no_distance() -> None:
    p = np.array([[np.nan, 0.0, 0.0], [0.0, 0.0, np.nan], [np.inf, 0.0, 0.0]])
    for mesh in (box_mesh((1.0, 1.0, 1.0)), bumpy(np.random.default_rng(0))):
        for reach in (0.1, np.inf):
            distance = signed(mesh, p, reach)[0]
            assert np.isnan(distance[:2]).all() and distance[2] == np.inf


def test_rows_with_equal_triangles_share_data() -> None:
    rng = np.random.default_rng(0)
    a, b = hull(rng), bumpy(rng, 1)
    again = Mesh(a.vertices.copy(), a.faces.copy(), "another object")
    prepared = PreparedMeshes("cpu")
    rows = [(a, (1.0, 1.0, 1.0)), None, (b, (1.0, 1.0, 1.0)), (again, (-2.0, 2.0, 2.0)), (a, (1.0, 2.0, 1.0)),
            (again, (1.0, 2.0, -1.0))]  # fmt: skip
    solids = build_solids(rows, "cpu", prepared)
    assert solids.solid.numpy().tolist() == [0, -1, 1, 0, 2, 2] and len(prepared) == 3
    part = build_solids(rows[2:3], "cpu", prepared)
    assert len(prepared) == 3 and part.cells.ptr == solids.cells.ptr and part.vertices.ptr == solids.vertices.ptr
    more = build_solids([*rows[2:3], (bumpy(rng, 1), (1.0, 1.0, 1.0))], "cpu", prepared)
    assert len(prepared) == 4 and more.cells.ptr != solids.cells.ptr
    p = places_around(a, 300, rng)
    for made, chosen in ((solids, rows), (part, rows[2:3]), (more, rows[2:3])):
        for row, item in enumerate(chosen):
            if item is not None:
                reference = reference_distance(shape_of(*item), p).distance
                np.testing.assert_allclose(ask(made, row, p)[0], reference, atol=3e-6)


# Meshes without an inside ---------------------------------------------------------------------------------------------


def test_open_mesh_error_names_edges_and_fix() -> None:
    box = box_mesh((0.5, 0.25, 0.125))
    mesh = Mesh(box.vertices, box.faces[:-1], "tub")
    with pytest.raises(
        ModelError, match=r"mesh 'tub'.*3 of 18 edges are open.*\(-0.5, .*0.125\).*triangle.*convex hull"
    ):
        surface_of(mesh)
    with pytest.raises(ModelError, match="tub"):
        build_solids([None, (mesh, (1.0, 1.0, 1.0))], "cpu")


def test_inconsistent_winding_raises() -> None:
    box = box_mesh((0.5, 0.25, 0.125))
    faces = box.faces.copy()
    faces[4] = faces[4, ::-1]
    with pytest.raises(ModelError, match="3 of 18 edges are between triangles of opposite orientation"):
        surface_of(Mesh(box.vertices, faces))


def test_edge_with_three_triangles_raises() -> None:
    box = box_mesh((0.5, 0.25, 0.125))
    mesh = Mesh([*box.vertices, [0.9, 0.9, 0.9]], [*box.faces, [0, 1, 8]])
    with pytest.raises(ModelError, match=r"2 of 20 edges are open.*1 of 20 edges are shared by an odd number"):
        surface_of(mesh)


def test_a_closed_mesh_has_no_open_edges_and_a_message_names_the_first_of_many() -> None:
    for mesh in closed_meshes().values():
        surface_of(mesh)
    ring = torus()
    with pytest.raises(ModelError, match=r"and \d+ more"):
        surface_of(Mesh(ring.vertices, ring.faces[20:]))


@pytest.mark.parametrize("apart", [0.0, 1e-8])
def test_coincident_corners_are_one_vertex(apart: float) -> None:
    """As in files that repeat the corners of each triangle, also where rounding has set them apart a little."""
    mesh = bumpy(np.random.default_rng(2), 1)
    soup = mesh.vertices[mesh.faces].reshape(-1, 3)
    soup = soup + np.random.default_rng(0).uniform(-apart, apart, soup.shape)
    split = Mesh(soup, np.arange(len(soup)).reshape(-1, 3))
    surface_of(split)
    p = places_around(mesh, 600, np.random.default_rng(3))
    np.testing.assert_allclose(signed(split, p)[0], signed(mesh, p)[0], atol=1e-6)


def test_a_vertex_on_an_edge_splits_it_and_the_mesh_is_closed() -> None:
    """Where a triangle without area was omitted; several on one edge, and on each edge of a triangle."""
    box = box_mesh((0.5, 0.4, 0.3))
    faces, points = box.faces.tolist(), box.vertices.tolist()
    for a, b, shares in ((0, 4, (0.5,)), (4, 5, (0.2, 0.3, 0.9)), (5, 0, (0.1, 0.7))):
        points += [(1.0 - s) * box.vertices[a] + s * box.vertices[b] for s in shares]
    points.append(box.vertices[[0, 4, 5]].mean(axis=0))
    faces.remove([0, 4, 5])
    around, middle = [0, 8, 4, 9, 10, 11, 5, 12, 13], 14  # its neighbours have no vertices on these sides
    fan = [[a, b, middle] for a, b in zip(around, [*around[1:], 0], strict=True)]
    flat = [[0, 4, 8]]  # this is how some files close a side
    mesh = Mesh(points, [*faces, *fan, *flat], "box", drop_degenerate=True)
    assert len(mesh.faces) == 11 + 9
    surface_of(mesh)
    compare(mesh, places_around(mesh, 1200, np.random.default_rng(5)))
    with pytest.raises(ModelError, match=r"edges are open, with one triangle only"):
        surface_of(Mesh(points, [*faces, *fan[1:]], "box"))


def test_inward_winding_is_flipped_and_cavities_are_kept() -> None:
    for mesh in closed_meshes(6).values():
        p = places_around(mesh, 600, np.random.default_rng(1))
        np.testing.assert_array_equal(signed(wound_inwards(mesh), p)[0], signed(mesh, p)[0])


def test_inward_wound_part_beside_others_is_no_cavity() -> None:
    left, right = moved(box_mesh((0.2, 0.2, 0.2)), (-0.5, 0.0, 0.0)), moved(box_mesh((0.1, 0.1, 0.1)), (0.5, 0.0, 0.0))
    p = np.array([[-0.5, 0.0, 0.0], [0.5, 0.01, 0.0], [0.0, 0.0, 0.0]])
    distance = signed(joined(left, wound_inwards(right)), p)[0]
    np.testing.assert_allclose(distance, [-0.2, -0.09, 0.3], atol=1e-6)


def test_depth_in_a_mesh_box_equals_the_analytic_box() -> None:
    rng = np.random.default_rng(0)
    p = single(rng.uniform(-1.0, 1.0, (2000, 3)) * [0.7, 0.5, 0.4])
    expected = reference_distance(Shape("box", "b", (0.5, 0.3, 0.2)), p)
    mesh = Mesh(box_mesh((0.5, 0.3, 0.2)).vertices, box_mesh((0.5, 0.3, 0.2)).faces)
    np.testing.assert_allclose(signed(mesh, p)[0], expected.distance, atol=2e-7)
