"""Cases of `benchmarks.gpu`: each sensor against mujoco_warp's own counterpart, on the same state in one run.

On sensorium's side, a call is a whole update of a scene, from the poses of bodies to the readings. Scenes of a single
sensor use a `TensorEngine` with the state of mujoco_warp's worlds, so their steps contain no physics. Both sides are
captured as graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import mujoco
import numpy as np
import torch
import warp as wp
from torch import Tensor

from benchmarks import generate, rays, skin
from benchmarks.gpu_timing import Call, Device, Times, launches_and_waits
from benchmarks.solids import bumpy_ball, fingertips
from sensorium import (
    CameraCfg,
    ContactMatch,
    ContactSensorCfg,
    DepthCameraCfg,
    EventCameraCfg,
    Field,
    ImuCfg,
    Job,
    JointSensorCfg,
    KinematicTactileSensorCfg,
    LidarCfg,
    MujocoWarpEngine,
    ProximityTaxelCfg,
    RadarCfg,
    RayCasterCfg,
    Scene,
    SensorCfg,
    SimpleSensor,
    SimpleSensorCfg,
    TensorEngine,
    Uniform,
    recorded,
)
from sensorium.compute import Rows
from sensorium.demo import model_path
from sensorium.jobs.control import steps
from sensorium.jobs.shard import Simulation, write_shard
from sensorium.jobs.store import Store
from sensorium.lenses import PinholeLensCfg
from sensorium.patterns import GridPatternCfg, LidarPatternCfg, SpinningPatternCfg
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, SHAPES, contact_array

BOXES = 12
SCAN = GridPatternCfg(size=(1.6, 1.0))
LIDAR = LidarPatternCfg(
    channels=16, vertical_fov_range=(-45.0, 15.0), horizontal_fov_range=(-180.0, 180.0), horizontal_res=360.0 / 1024
)
COMPARED_ENVS = 64
ALL_GROUPS = wp.types.vector(length=6, dtype=wp.float32)(-1.0)
"""mujoco_warp's filter of geom groups that accepts all of them."""
IMAGE = 64
FOV = 60.0
COLUMNS = (1, 9, 180)
BYTES_PER_COLUMN = 32
"""Truth written and read (8), walk read and written (8), measured value written (4) and copied to the ring (4),
delayed value read from the ring and written (8). Time stamps per environment are not counted."""
DECIMATION = 4
GOAL_ENVS = 4096
SHARD_ENVS = 256
"""Largest shard that is measured."""
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
IMU = ImuCfg(
    name="imu",
    site="imu",
    gyro_noise=0.01,
    gyro_bias=Uniform(-0.02, 0.02),
    gyro_random_walk=1e-5,
    acc_noise=0.1,
    acc_bias=Uniform(-0.1, 0.1),
    acc_random_walk=1e-4,
    delay=0.004,
)
ENCODERS = JointSensorCfg(
    name="encoders", joints=".*", position_noise=1e-4, position_resolution=3.8e-4, velocity_noise=1e-2, delay=0.002
)
CONTACT = ContactSensorCfg(
    name="feet",
    primary=ContactMatch(mode="geom", pattern=FEET),
    fields=("found", "force"),
    history_length=4,
    track_air_time=True,
    latch=False,
)


@dataclass(frozen=True)
class Row:
    """One row of the table, with the seconds, kernel launches and host waits of one call."""

    case: str
    envs: int
    what: str
    seconds: float | None = None
    spread: float | None = None
    host_seconds: float | None = None
    launches: int | None = None
    waits: int | None = None
    rays_per_second: float | None = None
    nbytes: int | None = None
    against: str = ""
    ratio: float | None = None
    note: str = ""


@dataclass
class Bench:
    """Device and settings of a measurement.

    Attributes:
        device: the device.
        seconds: approximate duration of the measurement of each call.
        bandwidth: bytes per second of a large copy, measured in the same run.
        peer: also measure mujoco_warp's own counterpart.
    """

    device: Device
    seconds: float
    bandwidth: float
    peer: bool = True

    @property
    def name(self) -> str:
        return self.device.name


@dataclass
class _Side:
    call: Call | None
    nbytes: int
    rays: int
    note: str
    launches: int = 0
    waits: int = 0


class Sides:
    """Calls to compare in one case at one number of environments.

    A call that does not fit into memory becomes a row that says so. The others are measured without it.
    """

    def __init__(self, bench: Bench, case: str, envs: int) -> None:
        self.bench, self.case, self.envs = bench, case, envs
        self._sides: dict[str, _Side] = {}

    def add(self, what: str, build: Callable[[], Call], rays: int = 0, note: str = "") -> None:
        """Build a call, warm it up and measure the memory that it takes.

        Args:
            what: its name in the table.
            build: returns the call.
            rays: rays that a call casts.
            note: note in the table.
        """
        device = self.bench.device
        before = device.used()
        call: Call | None = None
        counts = (0, 0)
        try:
            call = build()
            device.warm_up(call, self.bench.seconds / 4)
            nbytes = device.used() - before
            counts = launches_and_waits(call)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            call, nbytes, note = None, 0, f"out of memory: {first_line(error)}"
        if call is None:
            device.tidy()  # outside the handler, because its traceback keeps the memory alive
        self._sides[what] = _Side(call, nbytes, rays, note, *counts)

    def has(self, what: str) -> bool:
        """Whether this side could be built."""
        return what in self._sides and self._sides[what].call is not None

    def note(self, what: str, note: str) -> None:
        """Set the note of a side."""
        if self.has(what):
            self._sides[what].note = note

    def measure(self) -> dict[str, Times]:
        """Return the times of all sides that could be built, measured in turns."""
        calls = {what: side.call for what, side in self._sides.items() if side.call is not None}
        return self.bench.device.interleaved(calls, self.bench.seconds)

    def rows(self, baseline: str = "", times: dict[str, Times] | None = None) -> list[Row]:
        """Return a row for each side.

        Args:
            baseline: the side that the others are compared with, if it could be built.
            times: measured times; None measures them now.
        """
        times = self.measure() if times is None else times
        rows = []
        for what, side in self._sides.items():
            row = Row(self.case, self.envs, what, note=side.note)
            if (taken := times.get(what)) is not None:
                row = replace(
                    row,
                    seconds=taken.median,
                    spread=taken.spread,
                    host_seconds=None if self.bench.device.is_cpu else taken.host,
                    launches=side.launches or None,
                    waits=side.waits if side.launches else None,
                    rays_per_second=side.rays / taken.median if side.rays else None,
                    nbytes=side.nbytes if side.nbytes >= self.bench.device.least_bytes else None,
                )
                if what == baseline:
                    row = replace(row, against="baseline")
                elif baseline in times:
                    ratio = taken.over(times[baseline])
                    row = replace(row, ratio=ratio, against=f"{ratio:.3g} x its time")
            rows.append(row)
        return rows


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of torch, Warp, NumPy or Python reports insufficient memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text for words in ("out of memory", "failed to allocate", "can't allocate memory")
    )


def first_line(error: BaseException) -> str:
    """Return the start of an error message."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:160]


# Rays -----------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """The terrain with its scanner and moving boxes: mujoco_warp's worlds, and the same state as tensors."""

    engine: Any
    tensors: TensorEngine
    model: Any
    starts: Tensor

    @classmethod
    def make(cls, bench: Bench, kind: str, envs: int, boxes: int = BOXES) -> World:
        spec = rays.spec_of(kind, boxes)
        spec.worldbody.add_light(pos=(0.0, 0.0, 9.0), dir=(0.3, 0.2, -1.0), castshadow=True)
        spec.body("scanner").add_camera(name="camera", fovy=FOV, quat=camera_quat(), resolution=[IMAGE, IMAGE])
        engine = MujocoWarpEngine(spec, envs, device=bench.name)
        rays.place(engine)
        engine.prepare({BODY_POSE: "benchmark", SHAPES: "benchmark"})
        engine.forward()
        tensors = TensorEngine(
            envs, engine.dt, bodies=engine.names("body"), provides=("pose", "velocity"), shapes=engine.shapes(),
            lighting=engine.lighting(), device=bench.name,
        )  # fmt: skip
        for name in ("body_pos_w", "body_quat_w"):
            setattr(tensors, name, engine.array(name))
        scanner = engine.names("body").index("scanner")
        return cls(engine, tensors, engine.model, engine.array("body_pos_w")[:, scanner].clone())


def camera_quat(pitch_deg: float = 35.0) -> list[float]:
    """Return the orientation wxyz of a MuJoCo camera that looks forward and down."""
    pitch = np.deg2rad(pitch_deg)
    back, up = [-np.cos(pitch), 0.0, np.sin(pitch)], [np.sin(pitch), 0.0, np.cos(pitch)]
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.column_stack([[0.0, -1.0, 0.0], up, back]).ravel())
    return [float(value) for value in quat]


class OwnRays:
    """mujoco_warp's rays with its tree over all shapes, from memory that the caller fills once.

    Args:
        world: whose scanners cast.
        starts: start of each ray from the scanner `[ray, 3]`, m.
        directions: unit directions `[ray, 3]`.
    """

    def __init__(self, bench: Bench, world: World, starts: Tensor, directions: Tensor) -> None:
        import mujoco_warp

        self._module, self._m, self._d = mujoco_warp, world.engine.m, world.engine.d
        envs, count, name = world.engine.num_envs, len(directions), bench.name
        origins = (world.starts[:, None] + starts.to(name)[None]).contiguous()
        along = directions.to(name)[None].expand(envs, -1, -1).contiguous()
        self._origin, self._along = (wp.from_torch(values, dtype=wp.vec3) for values in (origins, along))
        self.distance = torch.zeros((envs, count), device=name)
        body = mujoco.mj_name2id(world.model, mujoco.mjtObj.mjOBJ_BODY, "scanner")
        with wp.ScopedDevice(bench.device.wp):
            self._distance = wp.from_torch(self.distance)
            self._geom = wp.zeros((envs, count), dtype=wp.int32)
            self._normal = wp.zeros((envs, count), dtype=wp.vec3)
            self._exclude = wp.full(count, body, dtype=wp.int32)
            self._context = mujoco_warp.create_render_context(world.model, nworld=envs, cam_active=[])

    def cast(self) -> None:
        """Update the tree and cast."""
        module, m, d = self._module, self._m, self._d
        module.refit_bvh(m, d, self._context)
        module.rays(m, d, self._origin, self._along, ALL_GROUPS, True, self._exclude, self._distance, self._geom,
                    self._normal, self._context)  # fmt: skip


def agreement(mine: Tensor, theirs: Tensor, miss: float) -> str:
    """Return the share of distances that agree, in the first environments.

    Args:
        mine: our distances, +inf for a miss.
        theirs: theirs.
        miss: up to which value theirs are misses.
    """
    mine, theirs = mine[:COMPARED_ENVS], theirs[:COMPARED_ENVS]
    expected = torch.where(theirs <= miss, torch.inf, theirs).reshape(mine.shape)
    same = (mine == expected) | ((mine - expected).abs() <= 1e-3)
    return f"{same.float().mean().item():.3%} agree within 1 mm"


def cast(bench: Bench, envs: int, title: str, kind: str, cfg: SensorCfg[Any], pattern: Any) -> list[Row]:
    """Return the rows of one ray sensor against mujoco_warp's rays."""
    pattern_rays = pattern.rays("cpu")
    count = len(pattern_rays.directions)
    sides, world = Sides(bench, f"{title}, {count} rays, {kind}", envs), World.make(bench, kind, envs)
    agrees: list[str] = []

    def ours() -> Call:
        return captured(Scene(world.tensors, [cfg])).update

    def own() -> Call:
        directions, distances = first_sample(world, cfg, pattern_rays.directions)
        theirs = OwnRays(bench, world, pattern_rays.starts, directions)
        call = bench.device.graph(theirs.cast)
        call()
        agrees.append(agreement(distances, theirs.distance, miss=-0.5))
        return call

    name, peer = f"sensorium {type(cfg).__name__.removesuffix('Cfg')}", "mujoco_warp refit_bvh + rays"
    sides.add(name, ours, rays=envs * count)
    if bench.peer:
        sides.add(peer, own, rays=envs * count)
        sides.note(name, "".join(agrees))
    return sides.rows(peer)


def first_sample(world: World, cfg: SensorCfg[Any], directions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the world directions of the rays of the first sample, and its distances in some environments.

    The rays of a device that turns begin where it is at that time.
    """
    if isinstance(cfg, LidarCfg):
        cfg = cfg.replace(fields=("distances", "azimuth", "elevation"))
    data = Scene(world.tensors, [cfg])[cfg].data
    if isinstance(cfg, LidarCfg):
        azimuth, elevation = data.azimuth[0], data.elevation[0]
        level = elevation.cos()
        directions = torch.stack([level * azimuth.cos(), level * azimuth.sin(), elevation.sin()], dim=-1)
    return directions, data.distances[:COMPARED_ENVS].clone()


def scan(bench: Bench, envs: int, kind: str) -> list[Row]:
    """A height scan of 17 x 11 vertical rays that turns with the heading."""
    fields = ("distances", "ray_hits_w")
    cfg = RayCasterCfg(body="scanner", pattern=SCAN, ray_alignment="yaw", evaluate="always", fields=fields)
    return cast(bench, envs, "height scan", kind, cfg, SCAN)


def lidar(bench: Bench, envs: int, kind: str) -> list[Row]:
    """Cast 16 x 1024 slanted rays; sensorium returns only distances."""
    cfg = RayCasterCfg(body="scanner", pattern=LIDAR, evaluate="always", fields=("distances",))
    return cast(bench, envs, "lidar 16 x 1024", kind, cfg, LIDAR)


def vlp16(bench: Bench, envs: int, kind: str) -> list[Row]:
    """Cast a whole turn of a VLP-16; sensorium returns distances, points and intensities."""
    pattern = SpinningPatternCfg.vlp16()
    cfg = LidarCfg(body="scanner", pattern=pattern, scan_duration=0.1, motion_distortion=False, evaluate="always")
    return cast(bench, envs, "lidar VLP-16", kind, cfg, pattern)


OFFSET = CameraCfg.OffsetCfg(rot=tuple(camera_quat()), convention="opengl")


def camera(bench: Bench, envs: int, kind: str) -> list[Row]:
    """A depth camera of 64 x 64 pixels against mujoco_warp's renderer of depth alone."""
    cfg = DepthCameraCfg(
        body="scanner", res=(IMAGE, IMAGE), fov_vertical=FOV, max_distance=1e3, evaluate="always", offset=OFFSET
    )
    return image(bench, envs, f"depth camera {IMAGE} x {IMAGE}, {kind}", kind, cfg, render_depth=True, render_rgb=False)


def colors(bench: Bench, envs: int, shadows: bool) -> list[Row]:
    """A colour camera of 64 x 64 pixels over the terrain of triangles, one light, against mujoco_warp's renderer."""
    cfg = camera_of(CameraCfg, data_types=("rgb",), shadows=shadows)
    title = f"colour camera {IMAGE} x {IMAGE}, {'with' if shadows else 'without'} shadows"
    return image(bench, envs, title, "mesh", cfg, render_depth=False, render_rgb=True, use_shadows=shadows)


def camera_of(kind: type[CameraCfg], **options: Any) -> Any:
    """Return the config of a camera on the scanner."""
    return kind(
        body="scanner", width=IMAGE, height=IMAGE, lens=PinholeLensCfg(fovy=FOV), offset=OFFSET,
        clipping_range=(0.01, 1e3), evaluate="always", **options,
    )  # fmt: skip


def image(bench: Bench, envs: int, title: str, kind: str, cfg: Any, **outputs: bool) -> list[Row]:
    """Return the rows of a camera against mujoco_warp's renderer with these outputs."""
    import mujoco_warp

    pixels = envs * IMAGE * IMAGE
    sides, world = Sides(bench, title, envs), World.make(bench, kind, envs)
    m, d = world.engine.m, world.engine.d
    mine: list[Scene] = []
    contexts: list[Any] = []

    def ours() -> Call:
        mine.append(captured(Scene(world.tensors, [cfg])))
        return mine[0].update

    def own() -> Call:
        with wp.ScopedDevice(bench.device.wp):
            mujoco_warp.kinematics(m, d)
            mujoco_warp.camlight(m, d)
            contexts.append(
                mujoco_warp.create_render_context(
                    world.model, nworld=envs, cam_res=(IMAGE, IMAGE), render_seg=False, use_textures=False, **outputs
                )
            )

        def work() -> None:
            mujoco_warp.refit_bvh(m, d, contexts[0])
            mujoco_warp.render(m, d, contexts[0])

        return bench.device.graph(work)

    name = f"sensorium {type(cfg).__name__.removesuffix('Cfg')}"
    peer = f"mujoco_warp refit_bvh + render, {'depth' if outputs['render_depth'] else 'colour'}"
    sides.add(name, ours, rays=pixels)
    if bench.peer:
        sides.add(peer, own, rays=pixels)
        if outputs["render_depth"] and sides.has(name) and sides.has(peer):
            depth = wp.to_torch(contexts[0].depth_data)
            sides.note(name, agreement(mine[0][cfg].data.distance_to_image_plane, depth, miss=0.0))
    return sides.rows(peer)


# Sensors that mujoco_warp lacks ---------------------------------------------------------------------------------------


def radar(bench: Bench, envs: int) -> list[Row]:
    """A radar of 1500 rays per sample, with noise by its signal-to-noise ratio."""
    cfg = RadarCfg(body="scanner", points=1500, bandwidth=1e9, reference_snr=100.0, evaluate="always")
    sides, world = Sides(bench, "radar, 1500 rays, mesh", envs), World.make(bench, "mesh", envs)
    sides.add("sensorium Radar", lambda: captured(Scene(world.tensors, [cfg])).update, rays=1500 * envs)
    return sides.rows()


def events(bench: Bench, envs: int) -> list[Row]:
    """An event camera of 64 x 64 pixels that sways, and its images alone."""
    title, pixels = f"event camera {IMAGE} x {IMAGE}, mesh", envs * IMAGE * IMAGE
    sides, world = Sides(bench, title, envs), World.make(bench, "mesh", envs)

    def swaying(cfg: Any) -> Call:
        scene = captured(Scene(world.tensors, [cfg]))

        def call() -> None:
            world.tensors.body_pos_w += 0.002 * (-1) ** (scene.tick % 2)
            scene.update()

        return call

    images = "sensorium Camera, linear colours"
    sides.add(images, partial(swaying, camera_of(CameraCfg, data_types=("linear_rgb",), shadows=False)), rays=pixels)
    sides.add("sensorium EventCamera", partial(swaying, camera_of(EventCameraCfg, shadows=False)), rays=pixels)
    return sides.rows(images)


def taxels(bench: Bench, envs: int) -> list[Row]:
    """Skins of 64 taxels that touch a sphere and a mesh."""
    sides = Sides(bench, "64 taxels", envs)
    probes = {"sphere": skin.grid(8, 8), "mesh": fingertips(bumpy_ball(), 1)}

    def ours(kind: Callable[..., SensorCfg[Any]], shape: str) -> Call:
        return captured(skin.finger(shape, envs, probes[shape], kind, bench.name)).update

    for kind in (KinematicTactileSensorCfg, ProximityTaxelCfg):
        for shape in probes:
            sides.add(f"sensorium {kind.__name__.removesuffix('Cfg')}, {shape}", partial(ours, kind, shape))
    return sides.rows()


def generated(bench: Bench, envs: int) -> list[Row]:
    """A shard of a data set of the quadruped, an IMU and RGB-D images, against its simulation alone."""
    if envs > SHARD_ENVS:
        return []
    sides = Sides(bench, "generate, a shard of 0.1 s", envs)
    job = Job(model="demo", rig=generate.SENSORS[::2], envs=envs, envs_per_shard=envs, episode_seconds=0.1,
              device=bench.name)  # fmt: skip
    simulation, shard = Simulation(job), job.shard(0)

    def simulate() -> None:
        scene, control, every = simulation.scene(shard)
        scene.publish(poses=True)
        simulation.begin(scene, 0)
        for _ in steps(scene, control, every, simulation.ticks(scene), list(scene.sensors.values())):
            pass

    def write() -> None:
        with TemporaryDirectory() as folder:
            write_shard(simulation, shard, Store(folder))

    base = "simulation and readings"
    sides.add(base, lambda: simulate)
    sides.add("with files", lambda: write)
    return sides.rows(base)


# Contacts and inertial sensors ----------------------------------------------------------------------------------------


def captured(scene: Scene) -> Scene:
    """Return a scene whose graphs are made at once."""
    scene.capture(True)
    return scene


def quadruped(bench: Bench, envs: int, add: Callable[[Any], None] | None = None) -> Any:
    """Return the walking robot, standing in its home pose, with sensors of MuJoCo's that `add` puts into its model."""
    spec = mujoco.MjSpec.from_file(str(model_path()))
    if add is not None:
        add(spec)
    return MujocoWarpEngine(spec, envs, device=bench.name, keyframe="home", fresh=False)


def settled(engine: Any) -> None:
    """Let the feet touch the ground, and compute all that follows from the state."""
    engine.step(None, 25)
    engine.forward()


def add_contact_sensors(spec: Any) -> None:
    """Add a contact sensor for each foot: number of contacts, and the strongest force."""
    for foot in FEET:
        spec.add_sensor(
            name=f"{foot}_contact", type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_GEOM,
            objname=foot, intprm=[1 | 2, 2, 1],
        )  # fmt: skip


def add_inertial_sensors(spec: Any) -> None:
    """Add an accelerometer and a gyro."""
    for kind in ("ACCELEROMETER", "GYRO"):
        spec.add_sensor(
            name=f"own_{kind.lower()}", type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
            objtype=mujoco.mjtObj.mjOBJ_SITE, objname="imu",
        )  # fmt: skip


def own_sensors(bench: Bench, engine: Any, velocity: bool) -> Call:
    """Return mujoco_warp's stage of acceleration sensors, and of velocity sensors, as one graph."""
    import mujoco_warp

    m, d = engine.m, engine.d

    def work() -> None:
        d.sensordata.zero_()  # as in its forward: touch sensors add to existing values
        if velocity:
            mujoco_warp.sensor_vel(m, d)
        mujoco_warp.sensor_acc(m, d)

    return bench.device.graph(work)


def against_own(
    bench: Bench, envs: int, case: str, stage: str, add: Callable[[Any], None], ours: Callable[[], Call], mine: str
) -> list[Row]:
    """Return rows of mujoco_warp's sensor stage without and with native sensors, and of sensorium's sensors."""
    sides = Sides(bench, case, envs)
    velocity = "sensor_vel" in stage

    def own(added: Callable[[Any], None] | None) -> Call:
        engine = quadruped(bench, envs, added)
        settled(engine)
        return own_sensors(bench, engine, velocity)

    without, with_them = f"mujoco_warp {stage}, model without them", f"mujoco_warp {stage}, with its own"
    if bench.peer:
        sides.add(without, partial(own, None), note="memory includes only the physics")
        sides.add(with_them, partial(own, add), note="memory includes only the physics")
    sides.add(mine, ours)
    return sides.rows(with_them)


def contact(bench: Bench, envs: int) -> list[Row]:
    """The contacts of four feet: found and force, with a history of 4 and air time."""

    def ours() -> Call:
        engine = quadruped(bench, envs)
        Scene(engine, [CONTACT])
        settled(engine)
        bodies = engine.names("body")
        shanks = {foot: f"{foot.removesuffix('foot')}shank" for foot in FEET}
        tensors = TensorEngine(
            envs, engine.dt, bodies=bodies, geoms=shanks, provides=("pose", "contact"), device=bench.name
        )
        scene = captured(Scene(tensors, [CONTACT]))
        for report in tensors.contacts:
            tensors.contacts[report] = engine.array(contact_array(report))
        scene.update()
        assert bool((scene[CONTACT].data.found > 0).any()), "no foot touches the ground"
        return partial(step, scene)

    what = "sensorium ContactSensor, from the report: history 4, air time"
    return against_own(bench, envs, "contacts of 4 feet", "sensor_acc", add_contact_sensors, ours, what)


def imu(bench: Bench, envs: int) -> list[Row]:
    """One IMU with noise, bias, random walk and delay, from poses, velocities and accelerations of bodies."""
    needs = (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY)

    def ours() -> Call:
        engine = MujocoWarpEngine(model_path(), envs, device=bench.name, keyframe="home")
        engine.prepare(dict.fromkeys(needs, "benchmark"))
        engine.forward()
        tensors = TensorEngine(
            envs, engine.dt, bodies=engine.names("body"), sites={"imu": ("trunk", (0.02, 0.0, 0.03))},
            provides=("pose", "velocity", "acceleration", "gravity"), device=bench.name,
        )  # fmt: skip
        arrays = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w",
                  "gravity_w")  # fmt: skip
        for name in arrays:
            setattr(tensors, name, engine.array(name))
        return partial(step, captured(Scene(tensors, [IMU])))

    what = "sensorium Imu: noise, bias, random walk, delay"
    return against_own(bench, envs, "IMU", "sensor_vel + sensor_acc", add_inertial_sensors, ours, what)


def step(scene: Scene) -> None:
    """Take one tick and read every sensor with a config."""
    scene.update()
    for sensor in scene.sensors.values():
        _ = sensor.data


# Measurement ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnsData:
    """Some columns."""

    value: Annotated[Tensor, Field("1")]


class ColumnsCfg(SimpleSensorCfg[ColumnsData]):
    """A sensor with any number of columns."""

    columns: int = 1


@wp.kernel
def _fill(rows: Rows, clock: wp.array[wp.int64], value: wp.array2d[wp.float32]) -> None:
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        value[env, column] = float(clock[0])


class Columns(SimpleSensor[ColumnsCfg, ColumnsData]):
    """Writes the tick into every column; the rest is the standard chain's."""

    def fields(self) -> dict[str, Field]:
        """Return one field of the configured width."""
        return {"value": Field("1", (self.cfg.columns,))}

    @recorded
    def update_raw_data(self, raw: Any) -> None:
        """Fill."""
        self.compute_on.launch(_fill, (self.cfg.columns,), [self.clock.words_wp], [raw.warp.value])


def stages(bench: Bench, envs: int, columns: int) -> list[Row]:
    """The standard chain with noise, bias, random walk, resolution and delay, against a copy of as many bytes."""
    sides = Sides(bench, f"standard chain, {columns} column(s)", envs)
    moved = envs * columns * BYTES_PER_COLUMN
    engine = TensorEngine(envs, 0.002, provides=(), device=bench.name)
    knobs: dict[str, Any] = {"noise": 0.1, "bias": 0.1, "random_walk": 0.01, "resolution": 0.001, "delay": 0.004}

    def ours() -> Call:
        return partial(step, captured(Scene(engine, [ColumnsCfg(columns=columns, **knobs)])))

    def copy() -> Call:
        source, target = torch.zeros((2, moved // 8), dtype=torch.int32, device=bench.name).unbind()
        inputs = wp.from_torch(target), wp.from_torch(source)
        return bench.device.graph(lambda: wp.copy(*inputs))

    name, plain = "sensorium, a step and the delayed reading", "a copy that moves as many bytes"
    sides.add(plain, copy)
    sides.add(name, ours)
    times = sides.measure()
    for what, taken in times.items():
        speed = moved / taken.median
        sides.note(
            what, f"{moved / 1e6:.3g} MB, {speed / 1e9:.3g} GB/s, {speed / bench.bandwidth:.1%} of a large copy's"
        )
    return sides.rows(plain, times)


# All sensors of a robot -----------------------------------------------------------------------------------------------


def height_scan(control_period: float) -> RayCasterCfg:
    """Return the height scan of the robot, once per control step (s)."""
    return RayCasterCfg(
        name="scan", body="trunk", pattern=SCAN, ray_alignment="yaw", update_period=control_period, max_distance=5.0,
        fields=("distances",), noise=0.01,
    )  # fmt: skip


def share(bench: Bench, envs: int) -> list[Row]:
    """A control step of 4 ticks of the quadruped without sensors, with each of them, and with all of them."""
    sides = Sides(bench, f"quadruped, {DECIMATION} ticks", envs)
    dt = float(mujoco.MjModel.from_xml_path(str(model_path())).opt.timestep)
    everything: dict[str, SensorCfg[Any]] = {
        "IMU": IMU,
        "12 encoders": ENCODERS,
        "contacts of 4 feet": CONTACT,
        "height scan 17 x 11": height_scan(DECIMATION * dt),
    }

    def engine(fresh: bool = False) -> Any:
        return MujocoWarpEngine(model_path(), envs, device=bench.name, keyframe="home", fresh=fresh)

    def bare() -> Call:
        return partial(engine().step, None, DECIMATION)

    def sensed(cfgs: list[SensorCfg[Any]], fresh: bool = False) -> Call:
        scene = captured(Scene(engine(fresh), cfgs))
        if len(cfgs) == 1:

            def one() -> None:
                scene.step(None, DECIMATION)
                _ = scene[cfgs[0]].data

            return one
        look = scene.observer("imu", "encoders", "feet.found", "feet.force", "scan.distances", replace_inf=5.0)

        def every() -> Tensor:
            scene.step(None, DECIMATION)
            return look()

        return every

    base = "physics alone"
    sides.add(base, bare)
    for what, cfg in everything.items():
        sides.add(f"with {what}", partial(sensed, [cfg]))
    whole = "with all of them, and one observation"
    sides.add(whole, partial(sensed, list(everything.values())))
    sides.add("the same, fresh=True", partial(sensed, list(everything.values()), fresh=True))
    rows = []
    for row in sides.rows(base):
        if row.ratio is not None:
            goal = f" (goal: 10 % at {GOAL_ENVS} envs)" if row.what == whole else ""
            row = replace(row, against=f"{row.ratio - 1.0:+.1%} of the physics{goal}")
        rows.append(row)
    return rows


Case = Callable[[Bench, int], list[Row]]
CASES: dict[str, dict[str, Case]] = {
    "scan": {f"height scan, {kind}": partial(scan, kind=kind) for kind in ("mesh", "hfield")},
    "lidar": {
        **{f"lidar 16 x 1024, {kind}": partial(lidar, kind=kind) for kind in ("mesh", "hfield")},
        "lidar VLP-16, mesh": partial(vlp16, kind="mesh"),
    },
    "camera": {
        **{f"depth camera, {kind}": partial(camera, kind=kind) for kind in ("mesh", "hfield")},
        **{f"colours, {word} shadows": partial(colors, shadows=word == "with") for word in ("without", "with")},
    },
    "event": {"events": events},
    "radar": {"radar": radar},
    "taxel": {"taxels": taxels},
    "contact": {"contacts": contact},
    "imu": {"IMU": imu},
    "stages": {f"standard chain, {columns} column(s)": partial(stages, columns=columns) for columns in COLUMNS},
    "share": {"all sensors of a quadruped": share},
    "generate": {"data set": generated},
}
"""Word of `--only` to cases by title."""


@contextmanager
def out_of_memory_is_a_row(case: str, envs: int, rows: list[Row]) -> Iterator[None]:
    """Add a row that says so where what all sides share does not fit into memory."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        rows.append(Row(case, envs, "all", note=f"out of memory: {first_line(error)}"))
