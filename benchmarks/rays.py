"""Ray casting against MuJoCo's own rays and bare Warp meshes, in the same run."""

from __future__ import annotations

from functools import partial
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from mujoco import batch

from benchmarks.timing import interleaved
from sensorium import GridPatternCfg, LidarPatternCfg, MujocoEngine, Scene
from sensorium.sensors.ray_caster import RayCasterCfg

Row = tuple[str, str, str]
POINTS = 200
"""Points along each side of the terrain: 79,202 triangles as a mesh."""
SIDE = 20.0


def terrain(points: int = POINTS) -> np.ndarray:
    """Return heights `[row, column]` of rough ground, m."""
    x = np.linspace(-SIDE / 2, SIDE / 2, points)
    rough = np.random.default_rng(0).normal(scale=0.02, size=(points, points))
    return 0.3 * np.sin(x)[None] * np.cos(0.7 * x)[:, None] + rough


def model(kind: str, boxes: int) -> mujoco.MjModel:
    """Return a model with a scanner, boxes that move, and the terrain as a mesh or as a height field."""
    spec = mujoco.MjSpec()
    heights = terrain()
    if kind == "mesh":
        x = np.linspace(-SIDE / 2, SIDE / 2, POINTS)
        xx, yy = np.meshgrid(x, x)
        i = np.arange(POINTS * POINTS).reshape(POINTS, POINTS)
        a, b, c, d = i[:-1, :-1], i[:-1, 1:], i[1:, :-1], i[1:, 1:]
        faces = np.concatenate([np.stack([a, b, d], -1).reshape(-1, 3), np.stack([a, d, c], -1).reshape(-1, 3)])
        points = np.stack([xx, yy, heights], -1).reshape(-1, 3)
        spec.add_mesh(name="terrain", uservert=points.ravel(), userface=faces.ravel().astype(np.int32))
        spec.worldbody.add_geom(name="terrain", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="terrain", contype=0, conaffinity=0)
    else:
        low, high = heights.min(), heights.max()
        spec.add_hfield(name="terrain", nrow=POINTS, ncol=POINTS, size=[SIDE / 2, SIDE / 2, high - low, 0.1],
                        userdata=((heights - low) / (high - low)).ravel())  # fmt: skip
        spec.worldbody.add_geom(name="terrain", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="terrain", pos=[0, 0, low],
                                contype=0, conaffinity=0)  # fmt: skip
    scanner = spec.worldbody.add_body(name="scanner", pos=[0, 0, 3], mocap=True)
    scanner.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.05, 0, 0], contype=0, conaffinity=0)
    for k in range(boxes):
        body = spec.worldbody.add_body(name=f"box_{k}", pos=[k, 0, 1], mocap=True)
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.3, 0.2, 0.2], contype=0, conaffinity=0)
    return spec.compile()


def world(kind: str, boxes: int, envs: int) -> tuple[MujocoEngine, torch.Tensor]:
    """Return an engine whose scanners and boxes are elsewhere in each env."""
    engine = MujocoEngine(model(kind, boxes), envs)
    rng = np.random.default_rng(1)
    engine.mocap_pos[:, 0] = torch.from_numpy(np.c_[rng.uniform(-7, 7, (envs, 2)), np.full(envs, 1.5)])
    engine.mocap_pos[:, 1:, :2] = torch.from_numpy(rng.uniform(-8, 8, (envs, boxes, 2)))
    engine.mocap_pos[:, 1:, 2] = 0.5
    quat = rng.normal(size=(envs, boxes, 4))
    engine.mocap_quat[:, 1:] = torch.from_numpy(quat / np.linalg.norm(quat, axis=-1, keepdims=True))
    return engine, engine.mocap_pos[:, 0]


def peers(engine: MujocoEngine, directions: np.ndarray, starts: np.ndarray | None = None) -> Any:
    """Return a call of `Batch.ray` that casts the same rays in all envs, without copying anything."""
    envs, rays = engine.num_envs, len(directions)
    at = engine.mocap_pos[:, 0].numpy()[:, None]
    origin = np.ascontiguousarray(np.broadcast_to(at + (0.0 if starts is None else starts[None]), (envs, rays, 3)))
    along = np.ascontiguousarray(np.broadcast_to(directions[None], (envs, rays, 3)))
    body = mujoco.mj_name2id(engine.model, mujoco.mjtObj.mjOBJ_BODY, "scanner")
    return partial(engine.batch.ray, origin, along, bodyexclude=body)


def scan(kind: str, envs: int, boxes: int = 0, repeats: int = 5) -> list[Row]:
    """A 17 x 11 downward scan, the whole update of the sensor, against Batch.ray (which casts nothing else)."""
    engine, _ = world(kind, boxes, envs)
    cfg = RayCasterCfg(body="scanner", pattern=GridPatternCfg(size=(1.6, 1.0)), ray_alignment="yaw", evaluate="always")
    scene = Scene(engine, [cfg])
    sensor = scene["ray_caster"]
    rays = 187
    pattern = cfg.pattern.rays("cpu")
    peer = peers(engine, pattern.directions.numpy().astype(float), pattern.starts.numpy().astype(float))

    def ours() -> None:
        scene.update(force_recompute=True)

    def only_state() -> None:
        bare.update(force_recompute=True)

    bare = Scene(world(kind, boxes, envs)[0], [])
    ours()
    expected, _ids = peer()
    mine = sensor.data.distances.numpy()
    agree = np.isclose(mine, np.where(expected < 0, np.inf, expected), atol=1e-4).mean()
    seconds = interleaved({"ours": ours, "Batch.ray": peer}, repeats=repeats)
    a, b = (envs * rays / seconds[name] / 1e6 for name in ("ours", "Batch.ray"))
    what = f"scan of {rays} rays on a {kind}, {boxes} boxes, {envs} envs"
    return [
        (f"{what}: Batch.ray", f"{b:.2f} Mrays/s", "baseline"),
        (f"{what}: RayCaster", f"{a:.1f} Mrays/s, {seconds['ours'] * 1e3:.3f} ms",
         f"{a / b:.1f} x Batch.ray; {agree:.2%} of distances agree"),
    ]  # fmt: skip
