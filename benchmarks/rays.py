"""Ray casting against MuJoCo's own rays and plain Warp meshes, in the same run."""

from __future__ import annotations

from functools import partial
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from benchmarks.timing import interleaved
from sensorium import MujocoEngine, Scene, TensorEngine
from sensorium.engines import BODY_POSE, SHAPES
from sensorium.geometry.bounds import in_world, tree_of
from sensorium.patterns import GridPatternCfg, LidarPatternCfg
from sensorium.sensors.rays.ray_caster import RayCasterCfg

Row = tuple[str, str, str]
POINTS = 200
"""Points along each side of the terrain: 79,202 triangles as a mesh."""
SIDE = 20.0


def terrain(points: int = POINTS) -> np.ndarray:
    """Return heights `[row, column]` of rough ground, m."""
    x = np.linspace(-SIDE / 2, SIDE / 2, points)
    rough = np.random.default_rng(0).normal(scale=0.02, size=(points, points))
    return 0.3 * np.sin(x)[None] * np.cos(0.7 * x)[:, None] + rough


def spec_of(kind: str, boxes: int, points: int = POINTS) -> mujoco.MjSpec:
    """Return a model with a scanner, boxes that move, and the terrain as a mesh or as a height field."""
    spec = mujoco.MjSpec()
    heights = terrain(points)
    if kind == "mesh":
        x = np.linspace(-SIDE / 2, SIDE / 2, points)
        xx, yy = np.meshgrid(x, x)
        i = np.arange(points * points).reshape(points, points)
        a, b, c, d = i[:-1, :-1], i[:-1, 1:], i[1:, :-1], i[1:, 1:]
        faces = np.concatenate([np.stack([a, b, d], -1).reshape(-1, 3), np.stack([a, d, c], -1).reshape(-1, 3)])
        vertices = np.stack([xx, yy, heights], -1).reshape(-1, 3)
        spec.add_mesh(name="terrain", uservert=vertices.ravel(), userface=faces.ravel().astype(np.int32))
        spec.worldbody.add_geom(
            name="terrain", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="terrain", contype=0, conaffinity=0
        )
    else:
        low, high = heights.min(), heights.max()
        spec.add_hfield(name="terrain", nrow=points, ncol=points, size=[SIDE / 2, SIDE / 2, high - low, 0.1],
                        userdata=((heights - low) / (high - low)).ravel())  # fmt: skip
        spec.worldbody.add_geom(name="terrain", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="terrain",
                                pos=[0, 0, low], contype=0, conaffinity=0)  # fmt: skip
    scanner = spec.worldbody.add_body(name="scanner", pos=[0, 0, 3], mocap=True)
    scanner.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.05, 0, 0], contype=0, conaffinity=0)
    for k in range(boxes):
        body = spec.worldbody.add_body(name=f"box_{k}", pos=[k, 0, 1], mocap=True)
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.3, 0.2, 0.2], contype=0, conaffinity=0)
    return spec


def world(kind: str, boxes: int, envs: int, points: int = POINTS) -> MujocoEngine:
    """Return an engine with scanners and boxes at different places in each env."""
    engine = MujocoEngine(spec_of(kind, boxes, points).compile(), envs)
    place(engine)
    return engine


def place(engine: Any) -> None:
    """Place scanners and boxes of a MuJoCo engine at different places in each env."""
    envs, boxes = engine.num_envs, engine.mocap_pos.shape[1] - 1
    rng = np.random.default_rng(1)
    engine.mocap_pos[:, 0] = torch.from_numpy(np.c_[rng.uniform(-7, 7, (envs, 2)), np.full(envs, 1.5)])
    engine.mocap_pos[:, 1:, :2] = torch.from_numpy(rng.uniform(-8, 8, (envs, boxes, 2)))
    engine.mocap_pos[:, 1:, 2] = 0.5
    quat = rng.normal(size=(envs, boxes, 4))
    engine.mocap_quat[:, 1:] = torch.from_numpy(quat / np.linalg.norm(quat, axis=-1, keepdims=True))


def peers(engine: MujocoEngine, directions: np.ndarray, starts: np.ndarray | None = None) -> Any:
    """Return a call of `Batch.ray` that casts the same rays in all envs, without copying anything."""
    envs, rays = engine.num_envs, len(directions)
    at = engine.mocap_pos[:, 0].numpy()[:, None]
    origin = np.ascontiguousarray(np.broadcast_to(at + (0.0 if starts is None else starts[None]), (envs, rays, 3)))
    along = np.ascontiguousarray(np.broadcast_to(directions[None], (envs, rays, 3)))
    body = mujoco.mj_name2id(engine.model, mujoco.mjtObj.mjOBJ_BODY, "scanner")
    return partial(engine.batch.ray, origin, along, bodyexclude=body)


def on_tensors(engine: MujocoEngine) -> TensorEngine:
    """Return the same world as tensors, so that a step consists only of the sensor."""
    engine.prepare({BODY_POSE: "benchmark", SHAPES: "benchmark"})
    engine.refresh()
    bodies = engine.names("body")
    tensors = TensorEngine(
        engine.num_envs,
        engine.dt,
        bodies=bodies,
        provides=("pose",),
        shapes=engine.shapes(),
        lighting=engine.lighting(),
    )
    tensors.body_pos_w = engine.array("body_pos_w")
    tensors.body_quat_w = engine.array("body_quat_w")
    return tensors


def agreement(mine: torch.Tensor, theirs: np.ndarray) -> float:
    """Return the share of distances that agree within 1e-4 m; a miss of Batch.ray is -1."""
    expected = np.where(theirs < 0.0, np.inf, theirs)
    return float(np.isclose(mine.numpy().reshape(expected.shape), expected, rtol=0.0, atol=1e-4).mean())


def scan(kind: str, envs: int, boxes: int = 12) -> list[Row]:
    """A 17 x 11 downward scan, the whole update of the sensor, against Batch.ray (which also runs the kinematics)."""
    engine = world(kind, boxes, envs)
    grid = GridPatternCfg(size=(1.6, 1.0))
    scene = Scene(
        on_tensors(engine), [RayCasterCfg(body="scanner", pattern=grid, ray_alignment="yaw", evaluate="always")]
    )
    pattern = grid.rays("cpu")
    peer = peers(engine, pattern.directions.numpy().astype(float), pattern.starts.numpy().astype(float))
    scene.update()
    share = agreement(scene["ray_caster"].data.distances, peer()[0])
    seconds = interleaved({"ours": scene.update, "Batch.ray": peer}, repeats=5 if envs > 16 else 200)
    rays = envs * len(pattern.directions)
    ours, theirs = (rays / seconds[name] / 1e6 for name in ("ours", "Batch.ray"))
    wanted = {"mesh": "at least 10", "hfield": "at least 20"}[kind]
    against = f"{ours / theirs:.1f} x ({wanted})" if envs > 1 else "under 0.15 ms"
    what = f"{len(pattern.directions)} rays down on a {kind}, {boxes} boxes, {envs} envs"
    return [
        (f"{what}: Batch.ray", f"{seconds['Batch.ray'] * 1e3:.3f} ms, {theirs:.2f} Mrays/s", "baseline"),
        (f"{what}: RayCaster", f"{seconds['ours'] * 1e3:.3f} ms, {ours:.1f} Mrays/s", f"{against}; {share:.2%} agree"),
    ]


@wp.kernel
def _bare(
    mesh: wp.uint64, starts: wp.array[wp.vec3], directions: wp.array[wp.vec3], distance: wp.array2d[wp.float32]
) -> None:
    env, ray = wp.tid()
    query = wp.mesh_query_ray(mesh, starts[env], directions[ray], 1.0e6)
    distance[env, ray] = wp.where(query.result, query.t, wp.inf)


def lidar(kind: str = "mesh", envs: int = 16, boxes: int = 28) -> list[Row]:
    """16 x 1024 slanted rays per env against Batch.ray, and against a bare Warp mesh of the terrain on one thread."""
    engine = world(kind, boxes, envs)
    pattern_cfg = LidarPatternCfg(
        channels=16, vertical_fov_range=(-45.0, 15.0), horizontal_fov_range=(-180.0, 180.0), horizontal_res=360.0 / 1024
    )
    cfg = RayCasterCfg(body="scanner", pattern=pattern_cfg, evaluate="always", fields=("distances",))
    scene = Scene(on_tensors(engine), [cfg])
    directions = pattern_cfg.rays("cpu").directions
    peer = peers(engine, directions.numpy().astype(float))
    scene.update()
    share = agreement(scene["ray_caster"].data.distances, peer()[0])
    rays = envs * len(directions)
    calls: dict[str, Any] = {"ours": scene.update, "Batch.ray": peer}
    terrain_mesh = next((shape for shape in engine.shapes() if shape.mesh is not None), None)
    if terrain_mesh is not None and terrain_mesh.mesh is not None:
        points = in_world(terrain_mesh, terrain_mesh.mesh.vertices)
        tree = tree_of(points, terrain_mesh.mesh.faces, "cpu")
        starts = wp.array(engine.mocap_pos[:, 0].numpy().astype(np.float32), dtype=wp.vec3)
        out = wp.zeros((envs, len(directions)), dtype=wp.float32)
        inputs = [tree.id, starts, wp.from_torch(directions, dtype=wp.vec3), out]
        calls["bare"] = wp.launch(_bare, dim=(envs, len(directions)), inputs=inputs, record_cmd=True).launch
    seconds = interleaved(calls, repeats=2)
    speed = {name: rays / value / 1e6 for name, value in seconds.items()}
    what = f"{len(directions)} lidar rays on a {kind}, {boxes} boxes, {envs} envs"
    rows = [(f"{what}: Batch.ray", f"{speed['Batch.ray']:.2f} Mrays/s", "baseline")]
    against = f"{speed['ours'] / speed['Batch.ray']:.1f} x Batch.ray (at least 3)"
    if "bare" in speed:
        rows.append((f"{what}: bare wp.Mesh, terrain only, 1 thread", f"{speed['bare']:.2f} Mrays/s", "baseline"))
        against += f", {speed['ours'] / speed['bare']:.2f} x bare (at least 1.5)"
    return [*rows, (f"{what}: RayCaster", f"{speed['ours']:.2f} Mrays/s", f"{against}; {share:.2%} agree")]


def memory() -> list[Row]:
    """Measure the memory of a scan per env, independent of the terrain, and the memory of the terrain."""
    rows = []
    for points in (50, POINTS):
        for envs in (16, 1024):
            engine = world("mesh", 12, envs, points)
            scene = Scene(on_tensors(engine), [RayCasterCfg(body="scanner", ray_alignment="yaw")])
            sensor = scene["ray_caster"]
            triangles = 2 * (points - 1) ** 2
            shared, own = sensor.rays.nbytes, sensor.info.nbytes
            what = f"a scan of {sensor.num_rays} rays, terrain of {triangles:,} triangles, {envs} envs"
            rows.append(
                (what, f"{own / envs / 1024:.2f} KiB per env", f"{shared / triangles:.0f} B per triangle, once")
            )
    return rows
