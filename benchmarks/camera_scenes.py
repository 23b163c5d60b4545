"""Scenes for cameras: rough terrain with a detailed robot, a room, and a tabletop, as MuJoCo models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np

from benchmarks.rays import spec_of

Array = np.ndarray[Any, Any]
KINDS = mujoco.mjtGeom


def bumpy_ball(rings: int, around: int, seed: int) -> tuple[Array, Array]:
    """Return vertices and faces of a closed ball of radius about 1 with bumps: 2 * (rings - 1) * around triangles."""
    polar, turn = np.pi * np.arange(1, rings) / rings, 2.0 * np.pi * np.arange(around) / around
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    ball = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    waves = np.random.default_rng(seed).normal(size=(6, 3)) * 3.0
    points = np.concatenate([ball, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    points *= 1.0 + 0.05 * np.sin(points @ waves.T).sum(axis=1, keepdims=True) / 3.0
    index, k = np.arange(len(ball)).reshape(rings - 1, around), np.arange(around)
    after, up, down = (k + 1) % around, index[:-1], index[1:]
    sides = [np.stack([up, down, down[:, after]], -1), np.stack([up, down[:, after], up[:, after]], -1)]
    top, bottom = np.full(around, len(ball)), np.full(around, len(ball) + 1)
    caps = [np.stack([top, index[0], index[0, after]], -1), np.stack([bottom, index[-1, after], index[-1]], -1)]
    return points, np.concatenate([part.reshape(-1, 3) for part in (*sides, *caps)]).astype(np.int32)


def _add_ball(spec: mujoco.MjSpec, name: str, size: Sequence[float], rings: int, around: int, seed: int) -> None:
    points, faces = bumpy_ball(rings, around, seed)
    spec.add_mesh(name=name, uservert=(points * np.array(size)).ravel(), userface=faces.ravel())


def _add_geom(body: Any, kind: Any, **more: Any) -> None:
    body.add_geom(type=kind, contype=0, conaffinity=0, **more)


def _add_eye(spec: mujoco.MjSpec, fovy: float) -> None:
    eye = spec.worldbody.add_body(name="eye", mocap=True)
    eye.add_camera(name="eye", fovy=fovy)


def _add_light(spec: mujoco.MjSpec, kind: str, pos: Sequence[float], direction: Sequence[float]) -> None:
    kinds = {"sun": mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, "lamp": mujoco.mjtLightType.mjLIGHT_SPOT}
    spec.worldbody.add_light(name=kind, type=kinds[kind], pos=pos, dir=direction, cutoff=80, exponent=1)


def terrain() -> mujoco.MjSpec:
    """Return terrain of 79,202 triangles, and a robot of 500,000 triangles in 25 instances of 5 meshes."""
    spec = spec_of("mesh", 0)
    robot = spec.worldbody.add_body(name="robot", mocap=True)
    parts = {"trunk": (0.4, 0.15, 0.1), "thigh": (0.06, 0.05, 0.16), "calf": (0.04, 0.04, 0.16),
             "motor": (0.05, 0.05, 0.05), "foot": (0.03, 0.03, 0.03)}  # fmt: skip
    for seed, (name, size) in enumerate(parts.items()):
        _add_ball(spec, name, size, 101, 100, seed)

    def add(name: str, x: float, y: float, z: float) -> None:
        _add_geom(robot, KINDS.mjGEOM_MESH, meshname=name, pos=[x, y, z])

    add("trunk", 0.0, 0.0, 0.55)
    for x in (-0.3, 0.3):
        for y in (-0.2, 0.2):
            for name, z in (("motor", 0.55), ("motor", 0.5), ("thigh", 0.42), ("motor", 0.28), ("calf", 0.16),
                            ("foot", 0.03)):  # fmt: skip
                add(name, x, y, z)
    _add_eye(spec, 60.0)
    _add_light(spec, "sun", (0, 0, 5), (0.4, 0.3, -1))
    return spec


def room() -> mujoco.MjSpec:
    """Return a room with 200 textured boxes and 20 meshes."""
    spec, rng = mujoco.MjSpec(), np.random.default_rng(3)
    spec.add_texture(
        name="checker", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER, width=64,
        height=64, rgb1=[0.8, 0.7, 0.6], rgb2=[0.3, 0.4, 0.5],
    )  # fmt: skip
    material = spec.add_material(name="checker")
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "checker"
    world = spec.worldbody
    _add_geom(world, KINDS.mjGEOM_PLANE, size=[4, 4, 0.1])
    for axis in (0, 1):
        for side in (-1.0, 1.0):
            pos, size = np.array([0.0, 0.0, 1.25]), np.array([4.0, 4.0, 1.25])
            pos[axis], size[axis] = side * 4.05, 0.05
            _add_geom(world, KINDS.mjGEOM_BOX, pos=pos, size=size)
    _add_geom(world, KINDS.mjGEOM_BOX, pos=[0, 0, 2.55], size=[4, 4, 0.05])
    for _ in range(200):
        pos = np.array([*rng.uniform(-3.7, 3.7, 2), rng.uniform(0.1, 1.6)])
        _add_geom(world, KINDS.mjGEOM_BOX, pos=pos, size=rng.uniform(0.04, 0.2, 3), material="checker",
                  quat=_unit(rng.normal(size=4)))  # fmt: skip
    for k in range(20):
        if k < 4:
            _add_ball(spec, f"thing_{k}", rng.uniform(0.1, 0.3, 3), 51, 50, k)
        body = world.add_body(name=f"thing_{k}", mocap=True)
        _add_geom(body, KINDS.mjGEOM_MESH, meshname=f"thing_{k % 4}")
    _add_eye(spec, 75.0)
    _add_light(spec, "lamp", (0, 0, 2.4), (0, 0, -1))
    return spec


def tabletop() -> mujoco.MjSpec:
    """Return an arm of 8 meshes and 12 objects on a table."""
    spec, rng = mujoco.MjSpec(), np.random.default_rng(4)
    world = spec.worldbody
    _add_geom(world, KINDS.mjGEOM_PLANE, size=[0, 0, 0.1])
    _add_geom(world, KINDS.mjGEOM_BOX, pos=[0, 0, 0.73], size=[0.8, 0.5, 0.02])
    for x in (-0.75, 0.75):
        for y in (-0.45, 0.45):
            _add_geom(world, KINDS.mjGEOM_CYLINDER, pos=[x, y, 0.355], size=[0.03, 0.355, 0])
    for k in range(8):
        _add_ball(spec, f"link_{k}", (0.06, 0.06, 0.09), 51, 50, k)
        body = world.add_body(name=f"link_{k}", mocap=True)
        _add_geom(body, KINDS.mjGEOM_MESH, meshname=f"link_{k}")
    kinds = (KINDS.mjGEOM_SPHERE, KINDS.mjGEOM_CAPSULE, KINDS.mjGEOM_CYLINDER, KINDS.mjGEOM_ELLIPSOID,
             KINDS.mjGEOM_BOX, KINDS.mjGEOM_BOX)  # fmt: skip
    for k in range(12):
        body = world.add_body(name=f"thing_{k}", mocap=True)
        _add_geom(body, kinds[k % 6], size=rng.uniform(0.02, 0.05, 3))
    _add_eye(spec, 55.0)
    _add_light(spec, "lamp", (0.5, 0.5, 3), (-0.2, -0.2, -1))
    return spec


SCENES: dict[str, Callable[[], mujoco.MjSpec]] = {"terrain": terrain, "room": room, "tabletop": tabletop}


def poses_of(scene: str, model: mujoco.MjModel, envs: int) -> tuple[Array, Array]:
    """Return poses of all mocap bodies, different in each environment: `[env, mocap, 3]` and `[env, mocap, 4]`."""
    rng = np.random.default_rng(1)
    pos, quat = np.zeros((envs, model.nmocap, 3)), np.zeros((envs, model.nmocap, 4))
    quat[..., 0] = 1.0
    names = [model.body(int(i)).name for i in np.flatnonzero(model.body_mocapid >= 0)]
    ids = {name: int(model.body(name).mocapid[0]) for name in names}
    for env in range(envs):
        eye, target = np.zeros(3), np.zeros(3)
        if scene == "terrain":
            target = np.array([*rng.uniform(-6, 6, 2), 0.3])
            pos[env, ids["robot"]], quat[env, ids["robot"]] = target, _yaw(rng.uniform(-np.pi, np.pi))
            eye = target + np.array([*_turned(rng.uniform(-np.pi, np.pi), 2.0), 1.0])
            target = target + np.array([0.0, 0.0, 0.3])
        elif scene == "room":
            eye = np.array([*_turned(rng.uniform(-np.pi, np.pi), 3.2), rng.uniform(1.2, 2.0)])
            target = np.array([0.0, 0.0, 0.8])
        else:
            eye = np.array([*_turned(rng.uniform(-1.0, 1.0), 1.3), rng.uniform(1.2, 1.6)])
            target = np.array([0.0, 0.0, 0.8])
            bend = rng.uniform(-0.3, 0.3)
        for name, k in ids.items():
            number = int(name.rpartition("_")[2]) if "_" in name else 0
            if name.startswith("thing"):
                quat[env, k] = _unit(rng.normal(size=4))
                spread = (3.0, 3.0, 0.5) if scene == "room" else (0.6, 0.35, 0.02)
                pos[env, k] = rng.uniform(-1, 1, 3) * spread + (0.0, 0.0, 0.7 if scene == "room" else 0.8)
            elif name.startswith("link"):
                pos[env, k] = (-0.3 + 0.07 * number, bend * number / 8, 0.8 + 0.35 * np.sin(0.35 * number))
        pos[env, ids["eye"]], quat[env, ids["eye"]] = eye, look_at(eye, target)
    return pos, quat


def look_at(eye: Array, target: Array) -> Array:
    """Return the quaternion of a camera of MuJoCo, which looks along -z with y up."""
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.stack([right, np.cross(back, right), back], axis=1).ravel())
    return quat


def _unit(values: Array) -> Array:
    return values / np.linalg.norm(values)


def _yaw(angle: float) -> Array:
    return np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def _turned(angle: float, radius: float) -> Array:
    return radius * np.array([np.cos(angle), np.sin(angle)])
