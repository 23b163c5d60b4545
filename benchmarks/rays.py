"""Ray casting against MuJoCo's own rays, plain Warp meshes and Embree, in the same run.

Scanners and boxes have other poses at each step, as after a batch of random resets. All times are CPU time of all
threads, as medians, because the load of a machine hardly affects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from benchmarks.timing import wall_and_cpu
from sensorium import MujocoEngine, Scene, TensorEngine
from sensorium.engines import BODY_POSE, SHAPES
from sensorium.geometry.bounds import box_mesh, in_world, tree_of
from sensorium.geometry.shapes import Mesh, Shape
from sensorium.patterns import GridPatternCfg, LidarPatternCfg
from sensorium.sensors.rays.ray_caster import RayCasterCfg

Row = tuple[str, str, str]
POINTS = 200
"""Points along each side of the terrain: 79,202 triangles as a mesh."""
SIDE = 20.0
SETS = 8
"""Number of sets of poses that take turns."""
LIDAR = LidarPatternCfg(
    channels=16, vertical_fov_range=(-15.0, 15.0), horizontal_fov_range=(-180.0, 180.0), horizontal_res=360.0 / 1024
)


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


def place(engine: Any, turn: int = 0) -> None:
    """Place scanners and boxes of a MuJoCo engine at different places in each env and at each turn."""
    envs, boxes = engine.num_envs, engine.mocap_pos.shape[1] - 1
    rng = np.random.default_rng(1 + turn)
    engine.mocap_pos[:, 0] = torch.from_numpy(np.c_[rng.uniform(-7, 7, (envs, 2)), np.full(envs, 1.5)])
    engine.mocap_pos[:, 1:, :2] = torch.from_numpy(rng.uniform(-8, 8, (envs, boxes, 2)))
    engine.mocap_pos[:, 1:, 2] = 0.5
    quat = rng.normal(size=(envs, boxes, 4))
    engine.mocap_quat[:, 1:] = torch.from_numpy(quat / np.linalg.norm(quat, axis=-1, keepdims=True))


class Turns:
    """A world whose poses jump before each call, for all sides alike.

    Args:
        engine: the world.
    """

    def __init__(self, engine: MujocoEngine) -> None:
        self.engine, self.tensors = engine, on_tensors(engine)
        self.mocap, self.bodies = [], []
        for turn in range(SETS):
            place(engine, turn)
            engine.forward()
            self.mocap.append((engine.mocap_pos.clone(), engine.mocap_quat.clone()))
            self.bodies.append((engine.array("body_pos_w").clone(), engine.array("body_quat_w").clone()))
        self.tensors.body_pos_w = self.bodies[0][0].clone()
        self.tensors.body_quat_w = self.bodies[0][1].clone()

    def ours(self, scene: Scene) -> Callable[[], None]:
        """Return a call that moves all bodies and updates a scene on the tensors."""
        turns = count()

        def call() -> None:
            pos, quat = self.bodies[next(turns) % SETS]
            self.tensors.body_pos_w.copy_(pos)
            self.tensors.body_quat_w.copy_(quat)
            scene.update()

        return call

    def starts(self) -> Iterator[torch.Tensor]:
        """Yield the positions of the scanners `[env, 3]`, turn by turn, without end."""
        for turn in count():
            yield self.bodies[turn % SETS][0][:, self.engine.names("body").index("scanner")]

    def peer(self, directions: np.ndarray, starts: np.ndarray | None = None) -> Callable[[], Any]:
        """Return a call of `Batch.ray` that casts the same rays in all envs, and runs the kinematics."""
        envs, rays, engine = self.engine.num_envs, len(directions), self.engine
        shift = np.zeros(3) if starts is None else starts[None]
        origins = [
            np.ascontiguousarray(np.broadcast_to(pos[:, 0].numpy()[:, None] + shift, (envs, rays, 3)))
            for pos, _ in self.mocap
        ]
        along = np.ascontiguousarray(np.broadcast_to(directions[None], (envs, rays, 3)))
        body = mujoco.mj_name2id(engine.model, mujoco.mjtObj.mjOBJ_BODY, "scanner")
        turns = count()

        def call() -> Any:
            turn = next(turns) % SETS
            engine.mocap_pos.copy_(self.mocap[turn][0])
            engine.mocap_quat.copy_(self.mocap[turn][1])
            return engine.batch.ray(origins[turn], along, bodyexclude=body)

        return call


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


def cpu(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return CPU seconds per call, the medians of rounds in which all calls take turns."""
    return {name: float(np.median(taken[:, 1])) for name, taken in wall_and_cpu(calls, rounds).items()}


def scan(kind: str, envs: int, boxes: int = 12) -> list[Row]:
    """A 17 x 11 downward scan, the whole update of the sensor, against Batch.ray (which also runs the kinematics)."""
    turns = Turns(world(kind, boxes, envs))
    grid = GridPatternCfg(size=(1.6, 1.0))
    fields = ("distances", "ray_hits_w")
    cfg = RayCasterCfg(body="scanner", pattern=grid, ray_alignment="yaw", evaluate="always", fields=fields)
    scene = Scene(turns.tensors, [cfg])
    normals = Scene(turns.tensors, [cfg.replace(fields=(*fields, "normals_w"))])
    pattern = grid.rays("cpu")
    peer = turns.peer(pattern.directions.numpy().astype(float), pattern.starts.numpy().astype(float))
    ours = turns.ours(scene)
    ours()
    share = agreement(scene["ray_caster"].data.distances, peer()[0])
    calls = {"ours": ours, "normals": turns.ours(normals), "Batch.ray": peer}
    seconds = cpu(calls, 15 if envs > 16 else 2000)
    rays = envs * len(pattern.directions)
    speed = {name: rays / value / 1e6 for name, value in seconds.items()}
    wanted = {"mesh": "at least 9", "hfield": "at least 20"}[kind]
    against = f"{speed['ours'] / speed['Batch.ray']:.1f} x ({wanted})" if envs > 1 else "under 0.15 ms"
    more = f"{seconds['normals'] / seconds['ours']:.2f} x the time without normals"
    what = f"{len(pattern.directions)} rays down on a {kind}, {boxes} boxes, {envs} envs"
    text = {name: f"{seconds[name] * 1e3:.3f} ms, {speed[name]:.2f} Mrays/s" for name in calls}
    return [
        (f"{what}: Batch.ray", text["Batch.ray"], "baseline"),
        (f"{what}: RayCaster", text["ours"], f"{against}; {share:.2%} agree"),
        (f"{what}: RayCaster with normals", text["normals"], more + (" (at most 1.25)" if kind == "hfield" else "")),
    ]


@wp.kernel
def _bare(
    mesh: wp.uint64, starts: wp.array[wp.vec3], directions: wp.array[wp.vec3], distance: wp.array2d[wp.float32]
) -> None:
    env, ray = wp.tid()
    query = wp.mesh_query_ray(mesh, starts[env], directions[ray], 1.0e6)
    distance[env, ray] = wp.where(query.result, query.t, wp.inf)


class Bare:
    """Casts of one pattern at triangles without a sensor, by a plain `wp.Mesh` and by Embree.

    Args:
        points: `[n, 3]`, m, world.
        faces: `[m, 3]`.
        directions: of the rays `[ray, 3]`, the same in all envs.
        envs: number of envs.
    """

    def __init__(self, points: np.ndarray, faces: np.ndarray, directions: torch.Tensor, envs: int) -> None:
        self.points, self.faces, self.directions, self.envs = points.astype(np.float32), faces, directions, envs
        self.out = wp.zeros((envs, len(directions)), dtype=wp.float32, device="cpu")

    def mesh(self, starts: Iterator[torch.Tensor]) -> Callable[[], None]:
        """Return a cast by Warp on one thread."""
        tree = tree_of(self.points, self.faces, "cpu")
        at = wp.zeros(self.envs, dtype=wp.vec3, device="cpu")
        inputs = [tree.id, at, wp.from_torch(self.directions.contiguous(), dtype=wp.vec3), self.out]
        launch = wp.launch(_bare, dim=self.out.shape, inputs=inputs, record_cmd=True, device="cpu")

        def call() -> None:
            wp.to_torch(at).copy_(next(starts))
            launch.launch()
            assert tree.id

        return call

    def embree(self, starts: Iterator[torch.Tensor]) -> Callable[[], object]:
        """Return a cast by Embree on one thread.

        Raises:
            ImportError: the package embreex is not installed.
        """
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        scene = EmbreeScene()
        TriangleMesh(scene, np.ascontiguousarray(self.points[self.faces]))
        along = np.ascontiguousarray(np.tile(self.directions.numpy(), (self.envs, 1)), np.float32)
        origins = [np.repeat(next(starts).numpy(), len(self.directions), axis=0) for _ in range(SETS)]
        turns = count()
        return lambda: scene.run(origins[next(turns) % SETS], along, query="DISTANCE")


def lidar(kind: str = "mesh", envs: int = 16, boxes: int = 28) -> list[Row]:
    """16 x 1024 slanted rays per env against Batch.ray, and against Warp and Embree with the terrain alone."""
    turns = Turns(world(kind, boxes, envs))
    cfg = RayCasterCfg(body="scanner", pattern=LIDAR, evaluate="always", fields=("distances",))
    scene = Scene(turns.tensors, [cfg])
    directions = LIDAR.rays("cpu").directions
    peer, ours = turns.peer(directions.numpy().astype(float)), turns.ours(scene)
    ours()
    share = agreement(scene["ray_caster"].data.distances, peer()[0])
    calls: dict[str, Callable[[], object]] = {"ours": ours, "Batch.ray": peer}
    terrain_mesh = next((shape for shape in turns.engine.shapes() if shape.mesh is not None), None)
    missing = ""
    if terrain_mesh is not None and terrain_mesh.mesh is not None:
        points = in_world(terrain_mesh, terrain_mesh.mesh.vertices)
        missing = add_bare(calls, Bare(points, terrain_mesh.mesh.faces, directions, envs), turns.starts)
    what = f"{len(directions)} lidar rays on a {kind}, {boxes} boxes, {envs} envs"
    return rows_of(what, calls, envs * len(directions), f"{share:.2%} agree", missing)


def add_bare(calls: dict[str, Callable[[], object]], bare: Bare, starts: Callable[[], Iterator[torch.Tensor]]) -> str:
    """Add the casts of Warp and, if it is installed, of Embree; return the name of what is missing."""
    calls["wp.Mesh"] = bare.mesh(starts())
    try:
        calls["Embree"] = bare.embree(starts())
    except ImportError:
        return "embreex"
    return ""


def rows_of(
    what: str, calls: dict[str, Callable[[], object]], rays: int, note: str, missing: str, rounds: int = 15
) -> list[Row]:
    """Measure calls and return their rows; those other than ``"ours"`` are baselines."""
    speed = {name: rays / value / 1e6 for name, value in cpu(calls, rounds).items()}
    rows = [(f"{what}: {name}", f"{value:.2f} Mrays/s", "baseline") for name, value in speed.items() if name != "ours"]
    if missing:
        rows.append((f"{what}: Embree", "", f"skipped: {missing} is not installed"))
    wanted = {"Batch.ray": "", "wp.Mesh": " (at least 1.8)", "Embree": " (at least 0.6)"}
    against = [f"{speed['ours'] / speed[name]:.2f} x {name}{wanted[name]}" for name in speed if name != "ours"]
    return [*rows, (f"{what}: RayCaster", f"{speed['ours']:.2f} Mrays/s", ", ".join([*against, note]))]


def room(envs: int = 16, things: int = 40) -> list[Row]:
    """16 x 1024 rays per env in a room of meshes, against Warp and Embree with the same triangles."""
    rng = np.random.default_rng(3)
    u, v = np.meshgrid(np.linspace(0.0, np.pi, 33), np.linspace(0.0, 2.0 * np.pi, 33))
    i = (33 * np.arange(32)[:, None] + np.arange(32)).ravel()
    faces = np.concatenate([np.stack([i, i + 1, i + 34], 1), np.stack([i, i + 34, i + 33], 1)])
    ball = Mesh(
        np.stack([np.sin(u) * np.cos(v), np.sin(u) * np.sin(v), np.cos(u)], -1).reshape(-1, 3),
        faces,
        "ball",
        drop_degenerate=True,
    )
    shapes = [Shape("mesh", "walls", mesh=box_mesh((5.0, 4.0, 1.5)), pos=(0.0, 0.0, 1.5))]
    for k in range(things):
        pos, size = rng.uniform([-4.5, -3.5, 0.1], [4.5, 3.5, 2.0]), rng.uniform(0.1, 0.5, 3)
        mesh = ball if k % 2 else box_mesh((1.0, 1.0, 1.0))
        shapes.append(Shape("mesh", f"thing {k}", mesh=mesh, pos=tuple(pos), scale=tuple(size)))
    tensors = TensorEngine(envs, 0.01, bodies=("scanner",), provides=("pose",), shapes=tuple(shapes))
    places = [torch.from_numpy(rng.uniform([-4, -3, 0.5], [4, 3, 2], (envs, 3))).float() for _ in range(SETS)]
    scene = Scene(tensors, [RayCasterCfg(body="scanner", pattern=LIDAR, evaluate="always", fields=("distances",))])

    def starts() -> Iterator[torch.Tensor]:
        for turn in count():
            yield places[turn % SETS]

    own = starts()

    def ours() -> None:
        tensors.body_pos_w[:, 0] = next(own)
        scene.update()

    meshes = [(in_world(s, s.mesh.vertices * np.array(s.scale)), s.mesh.faces) for s in shapes if s.mesh is not None]
    first = np.cumsum([0, *(len(points) for points, _ in meshes)])
    points = np.concatenate([points for points, _ in meshes])
    faces = np.concatenate([faces + at for (_, faces), at in zip(meshes, first, strict=False)])
    directions = LIDAR.rays("cpu").directions
    bare = Bare(points, faces, directions, envs)
    calls: dict[str, Callable[[], object]] = {"ours": ours}
    missing = add_bare(calls, bare, starts)
    calls["ours"]()
    calls["wp.Mesh"]()
    share = np.isclose(scene["ray_caster"].data.distances.numpy(), bare.out.numpy(), rtol=0.0, atol=1e-4).mean()
    what = f"{len(directions)} rays in a room of {len(faces):,} triangles, {envs} envs"
    return rows_of(what, calls, envs * len(directions), f"{share:.2%} agree", missing)


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
