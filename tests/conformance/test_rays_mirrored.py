"""Rays at meshes of mirrored and uneven scale, against the float64 reference and MuJoCo's own rays.

The reference has the mesh as written, scaled and placed here, so it is independent of the changes of MuJoCo's compiler
to vertices, faces and poses. MuJoCo's rays leak: a ray at a shared edge or vertex may pass between the triangles. The
library's rays must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from ray_worlds import Array, World
from reference import ReferenceHits, reference_cast
from solid_meshes import bumpy, hull, icosphere, single

import sensorium as sn
from sensorium.geometry.shapes import Mesh
from sensorium.geometry.transforms import rotation
from sensorium.shapes.scene import Targets

SIGNS = tuple(product((1.0, -1.0), repeat=3))
KINDS = ("hull", "bumpy", "open", "fine", "sheet")
ON_EDGE = 3e-6
"""Rays within this share of a triangle's height from its edge may leak through MuJoCo's meshes."""


def triangles(rng: np.random.Generator, kind: str) -> tuple[Array, NDArray[np.int64]]:
    """Return vertices and faces of a random mesh; every vertex belongs to a face."""
    if kind == "hull":
        mesh = hull(rng, int(rng.integers(5, 40)))
        points, faces = mesh.vertices, mesh.faces
    elif kind == "ball":
        points, faces = icosphere(int(rng.integers(0, 4)))
        points = single(points)
    elif kind == "sheet":
        n = 12
        x, y = np.meshgrid(np.linspace(-1.0, 1.0, n), np.linspace(-1.0, 1.0, n))
        points = single(np.stack([x, y, 0.4 * rng.normal(size=x.shape)], -1).reshape(-1, 3))
        at = np.arange(n * n).reshape(n, n)
        a, b, c, d = (part.ravel() for part in (at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]))
        faces = np.concatenate([np.stack([a, b, d], 1), np.stack([a, d, c], 1)])
    else:
        mesh = bumpy(rng, {"bumpy": int(rng.integers(0, 3)), "open": 2, "fine": 3}[kind])
        points, faces = mesh.vertices, mesh.faces
        if kind == "open":
            faces = faces[rng.random(len(faces)) > 0.3]
    used, faces = np.unique(faces, return_inverse=True)
    return points[used], faces.reshape(-1, 3).astype(np.int64)


@dataclass(frozen=True)
class Case:
    """A mesh in MuJoCo, and the same mesh placed by hand.

    Attributes:
        label: description of the case.
        model: compiled by MuJoCo.
        world: the library's rays at the same model.
        shape: the mesh as it was written, placed by hand.
        corners: triangle corners in the world, `[face, 3, 3]`.
    """

    label: str
    model: mujoco.MjModel
    world: World
    shape: sn.engines.Shape
    corners: Array

    @property
    def centre(self) -> Array:
        return np.asarray(self.corners.reshape(-1, 3).mean(axis=0))

    @property
    def size(self) -> float:
        return float(np.ptp(self.corners.reshape(-1, 3), axis=0).max())

    def ours(self, starts: Array, directions: Array) -> tuple[dict[str, Array], Array, Array]:
        """Return a cast of rays, and starts and unit directions as the sensor uses them."""
        rays = self.world.rays(starts, directions, alignment="world", targets=Targets(geometry="all"))
        got = {name: values[0, 0] for name, values in self.world.cast(rays).items()}
        o, d = (got[name].astype(np.float64) for name in ("start", "direction"))
        return got, o, d / np.linalg.norm(d, axis=1, keepdims=True)

    def mujocos(self, starts: Array, directions: Array) -> tuple[Array, Array]:
        """Return distances, m, inf for a miss, and normals from mj_ray."""
        data, geom, normals = mujoco.MjData(self.model), np.zeros(1, np.int32), np.zeros((len(starts), 3))
        mujoco.mj_kinematics(self.model, data)
        found = [
            mujoco.mj_ray(self.model, data, o, d, None, 1, -1, geom, normal)
            for o, d, normal in zip(starts, directions, normals, strict=True)
        ]
        distance = np.array(found)
        return np.where(distance < 0.0, np.inf, distance), normals


def cases(seed: int, count: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """Yield random meshes under all combinations of signs and uneven scales, in random poses, static and moving."""
    rng = np.random.default_rng(seed)
    for turn in range(count):
        kind, signs = kinds[turn % len(kinds)], np.array(SIGNS[turn % 8])
        points, faces = triangles(rng, kind)
        if rng.random() < 0.3:
            points = single(points + rng.normal(size=3))  # off its origin: MuJoCo centres it again
        scale = single(signs * (rng.uniform(0.3, 1.5, 3) if turn % 3 else rng.uniform(0.3, 1.5)))
        (at, pos), (quat, turned) = single(rng.uniform(-1.0, 1.0, (2, 3))), rng.normal(size=(2, 4))
        quat, turned = quat / np.linalg.norm(quat), turned / np.linalg.norm(turned)
        spec = mujoco.MjSpec()
        spec.add_mesh(
            name="m", uservert=points.ravel().tolist(), userface=faces.ravel().tolist(), scale=scale.tolist(),
            inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
        )  # fmt: skip
        body = spec.worldbody.add_body(name="b", pos=at, quat=quat, mocap=bool(turn % 2))
        body.add_geom(name="g", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="m", pos=pos, quat=turned)
        place, way = np.zeros(3), np.zeros(4)
        mujoco.mju_mulPose(place, way, at, quat, pos, turned)
        mesh = Mesh(points, faces, "m", drop_degenerate=True)
        shape = sn.engines.Shape("mesh", "g", (), -1, tuple(place), tuple(way), mesh, tuple(scale))
        corners = ((points * scale) @ rotation(way).T + place)[faces]
        label = f"seed {seed}, mesh {turn}: {kind}, scale {scale.tolist()}, {'moving' if turn % 2 else 'static'}"
        yield Case(label, spec.compile(), World(sn.MujocoEngine(spec, 1)), shape, corners)


def at_edge(case: Case, reference: ReferenceHits, reach: float = ON_EDGE) -> NDArray[np.bool_]:
    """Return which rays pass the border of any triangle within a share of its height."""
    out = np.zeros(len(reference.starts), bool)
    a, b, c = case.corners.transpose(1, 0, 2)
    for k, (o, d) in enumerate(zip(reference.starts, reference.directions, strict=True)):
        p = np.cross(d, c - a)
        det = ((b - a) * p).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = ((o - a) * p).sum(axis=1) / det
            v = (np.cross(o - a, b - a) @ d) / det
        out[k] = (np.abs(np.minimum(np.minimum(u, v), 1.0 - u - v)) < reach).any()
    return out


def differences(a: Array, b: Array) -> Array:
    """Return |a - b|: 0 where both are inf, inf where only one is."""
    both = np.isfinite(a) & np.isfinite(b)
    return np.where(both, np.abs(np.where(both, a, 0.0) - np.where(both, b, 0.0)), np.where(a == b, 0.0, np.inf))


@pytest.mark.parametrize(("seed", "meshes", "rays"), [(0, 24, 200), pytest.param(1, 600, 1000, marks=pytest.mark.soak)])
def test_rays_at_mirrored_meshes_match_the_reference_and_mujoco(seed: int, meshes: int, rays: int) -> None:
    """Distances and normals agree, from outside and inside; MuJoCo's may differ only where a ray passes an edge."""
    rng = np.random.default_rng(100 + seed)
    hits = left_out = 0
    for case in cases(seed, meshes):
        weights = rng.dirichlet([1.0, 1.0, 1.0], rays)[:, :, None]
        aims = (weights * case.corners[rng.integers(len(case.corners), size=rays)]).sum(axis=1)
        spread = np.where(rng.random(rays) < 0.2, 0.1, 1.2)[:, None] * case.size
        starts = single(case.centre + spread * rng.normal(size=(rays, 3)))
        directions = aims - starts
        got, o, d = case.ours(starts, directions / np.linalg.norm(directions, axis=1, keepdims=True))
        reference = reference_cast([case.shape], o, d)
        here, expected = got["distance"].astype(np.float64), reference.distance
        native, normals = case.mujocos(o, d)
        clear = ~reference.is_edge & (reference.tangency > np.radians(0.1))
        # float32 limits the position along the ray to 1e-6 of its length, which a flat angle amplifies
        finite = np.where(np.isfinite(expected), expected, 0.0)
        tolerance = 1e-5 * case.size + 1e-6 * (case.size + finite) / np.sin(reference.tangency)
        wrong = clear & (differences(here, expected) > tolerance)
        assert not wrong.any(), (case.label, np.flatnonzero(wrong), here[wrong], expected[wrong], native[wrong])
        theirs = clear & (differences(native, expected) > tolerance)
        theirs[theirs] = ~at_edge(case, reference)[theirs]
        assert not theirs.any(), (case.label, np.flatnonzero(theirs), native[theirs], expected[theirs])
        same = clear & np.isfinite(expected) & ~at_edge(case, reference, 1e-4)
        np.testing.assert_allclose(got["normal"][same], reference.normal[same], atol=1e-4, err_msg=case.label)
        np.testing.assert_allclose(normals[same], reference.normal[same], atol=1e-4, err_msg=case.label)
        hits, left_out = hits + int(np.isfinite(expected).sum()), left_out + int((~clear).sum())
    assert hits > 0.8 * meshes * rays
    assert left_out < 0.02 * meshes * rays


@pytest.mark.parametrize(
    ("seed", "meshes", "rays"), [(2, 16, 2000), pytest.param(3, 100, 10000, marks=pytest.mark.soak)]
)
def test_no_ray_leaks_through_an_edge_or_a_vertex(seed: int, meshes: int, rays: int) -> None:
    """No ray from inside a stretched ball, aimed exactly at vertices and edges, escapes; MuJoCo's own rays do."""
    rng = np.random.default_rng(200 + seed)
    leaks = 0
    for case in cases(seed, meshes, ("ball",)):
        corners = case.corners[rng.integers(len(case.corners), size=rays)]
        share = np.where(rng.random(rays) < 0.5, 1.0, rng.random(rays))[:, None]
        aims = share * corners[:, 0] + (1.0 - share) * corners[:, 1]
        starts = single(case.centre + 0.01 * case.size * rng.uniform(-1.0, 1.0, (rays, 3)))
        directions = aims - starts
        away = np.linalg.norm(directions, axis=1)
        got, o, d = case.ours(starts, directions / away[:, None])
        np.testing.assert_allclose(got["distance"], away, rtol=2e-4, atol=1e-5, err_msg=case.label)
        leaks += int(np.isinf(case.mujocos(o[:50], d[:50])[0]).sum())
    assert leaks > 0  # 2 % of edges and 9 % of vertices of a ball


def test_rays_from_afar_do_not_leak_through_a_shared_edge() -> None:
    """No ray at the vertices of the near side of a ball of 1 m, from 5 m away, reaches the far side."""
    points, faces = icosphere(2)
    mesh = Mesh(single(points), faces, "ball")
    for is_static in (True, False):
        shape = sn.engines.Shape("mesh", "ball", mesh=mesh, body="b" if not is_static else -1)
        engine = sn.TensorEngine(1, bodies=("b",), shapes=[shape])
        world = World(engine)
        rng = np.random.default_rng(5)
        starts = rng.normal(size=(4000, 3))
        starts = single(5.0 * starts / np.linalg.norm(starts, axis=1, keepdims=True))
        vertices = mesh.vertices[rng.integers(len(mesh.vertices), size=4000)]
        facing = (starts * vertices).sum(axis=1) > 2.5  # not at the horizon, which is at 1
        starts, directions = starts[facing], (vertices - starts)[facing]
        away = np.linalg.norm(directions, axis=1)
        got = world.cast(world.rays(starts, directions / away[:, None], alignment="world"))
        np.testing.assert_allclose(got["distance"][0, 0], away, atol=1e-5)


@pytest.mark.parametrize("signs", SIGNS)
def test_the_inside_of_a_mirrored_mesh_is_inside(signs: tuple[float, float, float]) -> None:
    """MuJoCo reverses the faces of a mirrored mesh; signed distances and surface normals keep their side."""
    mesh = bumpy(np.random.default_rng(3), 1)
    points = " ".join(str(value) for value in mesh.vertices.ravel())
    faces = " ".join(str(value) for value in mesh.faces.ravel())
    scale = " ".join(str(0.5 * sign) for sign in signs)
    engine = sn.MujocoEngine(
        f"""<mujoco><asset><mesh name="m" scale="{scale}" vertex="{points}" face="{faces}"/></asset><worldbody>
        <body name="tip" pos="0.1 0.05 0" mocap="true"/><geom type="mesh" mesh="m"/></worldbody></mujoco>"""
    )
    skin = sn.KinematicTactileSensorCfg(name="skin", link_name="tip", probe_radius=1e-3, surface_normals=True)
    near = sn.SurfaceDistanceProbeCfg(name="near", body="tip", probe_local_pos=((0.0, 0.0, 0.0),), probe_radius=2.0)
    scene = sn.Scene(engine, [skin, near])
    depth = 1e-3 * scene["skin"].data.force.norm(dim=-1).item()
    distance = float(scene["near"].data.distance.reshape(-1)[0])
    assert depth == pytest.approx(distance + 1e-3, rel=1e-3)
