"""Signed distances to meshes against Warp's own signed query, in the same run, each on one thread."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import warp as wp

from benchmarks.timing import interleaved
from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.primitives import MESH
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.shapes import Mesh
from sensorium.geometry.solid_grid import build_solids, prepare_mesh
from sensorium.geometry.solid_walk import Solids
from sensorium.geometry.solids import signed_distance

Row = tuple[str, str, str]
REACH = 0.004
"""Radius of a probe, m."""
PROBES = 64


def bumpy_ball(around: int = 72, rings: int = 36, radius: float = 0.04) -> Mesh:
    """Return a closed body of about 8 cm and 5,040 triangles, with dents."""
    polar, turn = np.pi * np.arange(1, rings) / rings, 2.0 * np.pi * np.arange(around) / around
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    points = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    points = np.concatenate([points, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    points *= radius * (1.0 + 0.1 * np.sin(7.0 * points[:, :1]) * np.cos(5.0 * points[:, 1:2] + points[:, 2:]))
    index = np.arange((rings - 1) * around).reshape(rings - 1, around)
    after = np.roll(index, -1, axis=1)
    north, south = np.full(around, len(points) - 2), np.full(around, len(points) - 1)
    faces = [
        np.stack([index[:-1], index[1:], after[1:]], -1),
        np.stack([index[:-1], after[1:], after[:-1]], -1),
        np.stack([north, index[0], after[0]], -1),
        np.stack([south, after[-1], index[-1]], -1),
    ]
    return Mesh(points, np.concatenate([part.reshape(-1, 3) for part in faces]), "ball")


def fingertips(mesh: Mesh, envs: int) -> np.ndarray:
    """Return the probes of one fingertip per env, a dome of 8 mm that touches somewhere, `[env * probe, 3]`, m."""
    rng = np.random.default_rng(0)
    i = np.arange(PROBES)
    z, turn = 1.0 - (i + 0.5) / PROBES, np.pi * (1.0 + np.sqrt(5.0)) * i
    dome = 0.008 * np.stack([np.sqrt(1.0 - z * z) * np.cos(turn), np.sqrt(1.0 - z * z) * np.sin(turn), z], axis=1)
    corners = mesh.vertices[mesh.faces[rng.integers(0, len(mesh.faces), envs)]]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    across = np.cross(normal, rng.normal(size=(envs, 3)))
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    axes = np.stack([across, -np.cross(normal, across), -normal], axis=1)
    centre = corners.mean(axis=1) + normal * rng.uniform(0.007, 0.0105, (envs, 1))
    return (centre[:, None] + dome @ axes).reshape(-1, 3).astype(np.float32)


@wp.kernel
def _ours(
    instances: Instances,
    solids: Solids,
    fields: HFields,
    p: wp.array[wp.vec3],
    distance: wp.array[float],
    foot: wp.array[wp.vec3],
    gradient: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    far, spot, out = signed_distance(instances, solids, fields, 0, p[i], REACH)
    distance[i] = far
    foot[i] = spot
    gradient[i] = out


@wp.kernel
def _bare(
    mesh: wp.uint64,
    limit: float,
    p: wp.array[wp.vec3],
    distance: wp.array[float],
    foot: wp.array[wp.vec3],
    gradient: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    query = wp.mesh_query_point_sign_normal(mesh, p[i], limit)
    far = wp.inf
    spot = wp.vec3()
    out = wp.vec3()
    if query.result:
        spot = wp.mesh_eval_position(mesh, query.face, query.u, query.v)
        far = query.sign * wp.length(p[i] - spot)
        out = (p[i] - spot) / far
    distance[i] = far
    foot[i] = spot
    gradient[i] = out


def mesh(envs: int = 1024) -> list[Row]:
    """64 probes of a fingertip per env and a mesh: distance, nearest point and gradient.

    Warp's query must find the depth of the deepest point, so its limit is half the shortest side of the mesh. With the
    reach as its limit it is faster, and wrong: a point that is deeper than that is not found.
    """
    solid = bumpy_ball()
    points = fingertips(solid, envs)
    places, count = wp.array(points, dtype=wp.vec3, device="cpu"), len(points)
    out = [wp.zeros(count, dtype=kind, device="cpu") for kind in (float, wp.vec3, wp.vec3)]
    instances = Instances()
    instances.kind = wp.array([int(MESH)], dtype=wp.int32, device="cpu")
    prepare_mesh(solid, (1.0, 1.0, 1.0), "cpu")  # kernels load
    start = time.perf_counter()
    solids = build_solids([(solid, (1.0, 1.0, 1.0))], "cpu")
    built = time.perf_counter() - start
    tree = wp.Mesh(
        wp.array(solid.vertices.astype(np.float32), dtype=wp.vec3, device="cpu"),
        wp.array(solid.faces.ravel(), dtype=wp.int32, device="cpu"),
    )
    deepest = 0.5 * float(np.ptp(solid.vertices, axis=0).min())
    commands = {
        "ours": wp.launch(_ours, count, [instances, solids, build_hfields([]), places, *out], record_cmd=True),
        **{
            name: wp.launch(_bare, count, [tree.id, limit, places, *out], record_cmd=True)
            for name, limit in (("bare", deepest), ("short", REACH))
        },
    }
    found = {}
    for name, command in commands.items():
        command.launch()
        found[name] = out[0].numpy().copy()
    near = found["ours"] <= REACH
    apart = np.abs(found["ours"] - found["bare"])[near].max()
    seconds = interleaved({name: partial(command.launch) for name, command in commands.items()}, 1, warm_up=2)
    what = f"{PROBES} probes, a mesh of {len(solid.faces)} triangles, {envs} envs, 1 thread"
    share = f"{(np.abs(found['bare']) <= REACH).mean():.0%} of the points within one radius"
    times = {name: f"{value * 1e3:.2f} ms" for name, value in seconds.items()}
    return [
        (f"{what}: mesh_query_point_sign_normal", times["bare"], f"baseline; {share}"),
        (f"{what}: the same up to one radius, wrong for deeper points", times["short"], "no baseline"),
        (
            f"{what}: signed_distance",
            times["ours"],
            f"{seconds['bare'] / seconds['ours']:.1f} x (at least 1.8), {seconds['short'] / seconds['ours']:.1f} x the "
            f"incorrect one; {apart:.0e} m apart",
        ),
        (f"{what}: built once", f"{built:.2f} s", f"{sum(a.capacity for a in _arrays(solids)) / 2**20:.1f} MiB"),
    ]


def _arrays(solids: Solids) -> list[wp.array]:
    return [getattr(solids, name) for name in Solids.vars]
