"""A common world for all sensors on both MuJoCo engines, and a copy of the state between them at each tick.

Environment 0 is in the air throughout, environment 1 starts there and lands, environment 2 stands with a ball on it.
Gravity and magnetic flux differ between the environments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import sensorium as sn
from sensorium.compat.mjlab import RayCastSensorCfg
from sensorium.engines.base import ARRAYS
from sensorium.engines.mujoco.derived import NEEDS
from sensorium.lenses import PinholeLensCfg
from sensorium.spec import Requirement, contact_columns

MODEL = Path(__file__).parent / "models/two_engines.xml"
ENVS = 3
STATE = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat")
OPTIONS = ("gravity", "magnetic")

FEET = sn.ContactMatch(mode="geom", pattern=".*_foot")
WALKER = sn.ContactMatch(mode="subtree", pattern="trunk")
BALL = sn.ContactMatch(mode="body", pattern="ball")
GROUND = sn.ContactMatch(mode="geom", pattern="ground")
EVERYTHING = ("found", "force", "torque", "dist", "pos", "normal", "tangent")
SCAN = sn.patterns.GridPatternCfg(resolution=0.2, size=(0.6, 0.4))
PINHOLE = sn.patterns.PinholeCameraPatternCfg(width=6, height=4, focal_length=20.0, horizontal_aperture=20.0)
IMAGES = (
    "distance_to_camera", "distance_to_image_plane", "normals", "points_b", "geom_ids", "face_ids",
    "semantic_segmentation", "instance_segmentation", "instance_id_segmentation", "segmentation",
)  # fmt: skip
GEL = tuple(tuple((0.01 * row, 0.01 * column - 0.02, 0.064) for column in range(8)) for row in range(8))
TARGET = sn.FrameTransformerCfg.FrameCfg
NATIVE = (
    "gyro", "accelerometer", "velocimeter", "flange_force", "flange_torque", "compass", "cable_length", "cable_speed",
    "knee_force", "shoulder_effort", "knee_stop", "tail_turn", "tail_rate", "foot_in_trunk", "hand_turn", "foot_speed",
    "foot_acceleration", "hand_angular_acceleration", "walker_centre", "walker_speed", "walker_spin", "clock",
)  # fmt: skip
"""Native sensors that the model declares."""


def sensors() -> list[sn.SensorCfg[Any]]:
    """Return clean configs, at least one of each kind, with all fields."""
    return [
        sn.ImuCfg(name="imu", site="imu"),
        sn.ImuCfg(name="imus", bodies=".*"),
        sn.BodyStateCfg(name="state"),
        sn.BodyStateCfg(name="marker", body="trunk", offset=sn.OffsetCfg(pos=(0.1, 0.0, 0.2))),
        sn.JointSensorCfg(name="joints", joints=(".*hip", ".*knee", "stilt", "elbow", "dangle"), fields="all"),
        sn.JointTorqueCfg(name="torques", joints=(".*hip", ".*knee", "stilt", "shoulder", "elbow")),
        sn.MotorCurrentCfg(name="current", joints=("shoulder", ".*knee"), torque_constant=0.1, gear=9.0, viscous=0.1),
        sn.JointWrenchCfg(name="wrenches", joints=".*", frame="parent"),
        sn.ForceTorqueCfg(name="flange", site="flange"),
        sn.ForceTorqueCfg(name="ankles", bodies=".*_foot", on="parent"),
        sn.FrameTransformerCfg(
            name="frames", body="trunk", target_frames=(TARGET(body=".*"), TARGET(site=".*")),
        ),
        sn.ContactSensorCfg(
            name="net", primary=FEET, fields=("found", "force", "torque", "pos"), reduce="netforce",
            track_air_time=True, history_length=3,
        ),
        sn.ContactSensorCfg(
            name="strongest", primary=WALKER, secondary=GROUND, fields=EVERYTHING, reduce="maxforce", num_slots=3
        ),
        sn.ContactSensorCfg(name="deepest", primary=FEET, secondary=GROUND, fields=EVERYTHING, reduce="mindist"),
        sn.ContactSensorCfg(name="first", primary=FEET, fields=EVERYTHING, reduce="none", global_frame=True),
        sn.ContactSensorCfg(
            name="ball", primary=BALL, secondary=WALKER, fields=("found", "force"), reduce="netforce",
            force_threshold=1.0, track_air_time=True,
        ),
        sn.ContactSensorCfg(
            name="paths", prim_path="{ENV_REGEX_NS}/.*_foot", filter_prim_paths_expr=("{ENV_REGEX_NS}/ball",),
            track_pose=True, track_air_time=True, track_contact_points=True, track_friction_forces=True,
        ),
        sn.CollisionEventsCfg(name="events", primary=WALKER, secondary=GROUND),
        sn.CollisionEventsCfg(name="knocks", primary=BALL),
        sn.CollisionCfg(name="bumps", body="ball", phases="all", min_impulse=0.01, min_interval=0.012),
        sn.SafeDistanceCfg(
            name="guard", body="ball", safe_distance_front=0.2, safe_distance_back=0.1, safe_distance_lateral=0.1,
        ),
        sn.ContactCfg(name="switches", geoms=".*_foot", on_force=5.0, off_force=2.0),
        sn.ContactForceCfg(name="pads", geoms=".*_foot"),
        sn.TouchCfg(name="touch", sites=("left_sole", "right_sole", "back")),
        sn.MagnetometerCfg(name="compasses", bodies="trunk|hand"),
        sn.BarometerCfg(name="barometer", site="antenna"),
        sn.GnssCfg(name="gnss", site="antenna", origin=(47.0, 8.5, 400.0)),
        *(sn.BuiltinSensorCfg(name=name) for name in NATIVE),
        sn.RayCasterCfg(name="scan", body="trunk", pattern=SCAN, fields="all", max_distance=4.0),
        RayCastSensorCfg(name="height", site="imu", pattern=SCAN, max_distance=4.0, no_hit_value=None),
        sn.TerrainHeightCfg(name="terrain", sites="left_sole|antenna", fields="all"),
        sn.RayCasterCameraCfg(
            name="camera", camera="front", pattern=PINHOLE, max_distance=4.0,
            data_types=("distance_to_camera", "distance_to_image_plane", "normals", "points_b", "geom_ids", "face_ids"),
        ),
        sn.CameraCfg(
            name="images", camera="front", width=6, height=4, lens=PinholeLensCfg(fovy=60.0),
            clipping_range=(0.05, 4.0), data_types=IMAGES,
        ),
        sn.EventCameraCfg(
            name="dvs", camera="front", width=6, height=4, lens=PinholeLensCfg(fovy=60.0), positive_threshold=0.1,
        ),
        sn.DepthCameraCfg(
            name="depth", body="carriage", res=(6, 4), fov_horizontal=80.0, max_distance=4.0,
            offset=sn.DepthCameraCfg.OffsetCfg(rot=(0.97, 0.0, 0.24, 0.0), convention="world"),
        ),
        sn.SurfaceDistanceProbeCfg(
            name="probe", body="trunk", probe_local_pos=((0.2, 0.0, -0.05), (-0.2, 0.0, -0.05)), probe_radius=2.0,
            fields="all", lookup=((0.0, 100.0, 0.0), (2.0, 5.0, 0.1)),
        ),
        sn.LidarCfg(
            name="lidar", site="antenna", pattern=sn.patterns.SphericalPatternCfg(n_points=(8, 6)), fields="all",
            max_distance=4.0,
        ),
        sn.ObstacleCfg(
            name="obstacle", site="mast", hit_radius=0.1, offset={"rot": (0.8660254, 0.0, 0.5, 0.0)},  # 60 deg down
        ),
        sn.RadarCfg(
            name="radar", site="mast", points=24, horizontal_fov_deg=120.0, vertical_fov_deg=80.0, max_distance=5.0,
            fields="all",
        ),
        sn.ContactDepthProbeCfg(
            name="depths", body="trunk", probe_local_pos=((0.15, 0.1, -0.05), (0.03, 0.02, 0.0), (-0.2, 0.0, 0.05)),
            probe_radius=0.1,
        ),
        sn.ContactProbeCfg(
            name="contacts", bodies=".*_foot", probe_local_pos=((0.0, 0.0, -0.03), (0.0, 0.0, 0.0)),
            probe_radius=(0.01, 0.05), release_threshold=5e-5,
        ),
        sn.KinematicTactileSensorCfg(
            name="skin", body="trunk", probe_local_pos=(((0.0, 0.0, 0.06), (0.02, 0.01, 0.06)),), probe_radius=0.03,
            probe_local_normal=(0.1, 0.0, 1.0), friction=0.8, shear_stiffness=200.0,
        ),
        sn.ElastomerTaxelCfg(
            name="gel", body="trunk", probe_local_pos=GEL, targets="ball", compressibility=0.5, n_sample_points=2000,
        ),
        sn.ProximityTaxelCfg(
            name="proximity", body="trunk", probe_local_pos=((0.03, 0.02, 0.05), (0.1, 0.1, -0.05), (-0.2, 0.0, 0.05)),
            probe_local_normal=((0.0, 0.0, 1.0), (0.0, 1.0, -1.0), (-1.0, 0.0, 0.0)), probe_radius=0.15,
            targets=("ball", "left_thigh", "tail"), shear_coupling=20.0,
        ),
        sn.TemperatureGridCfg(
            name="heat", bodies=("trunk", "left_foot", "ball"), grid_size=(3, 2, 2), contact_distance=0.003,
            default_properties=sn.LinkThermalCfg(conductivity=200.0, specific_heat=100.0),
            properties={"ball": sn.LinkThermalCfg(base_temperature=300.0, conductivity=200.0, specific_heat=100.0)},
        ),
    ]  # fmt: skip


def reports() -> list[Requirement]:
    """Return a contact report for each kind of element and each reduction, with all fields."""
    report, ground = sn.engines.CONTACT_REPORT, ("geom", "ground")
    feet = ("left_foot", "right_foot", "stilt_foot")
    return [
        report(("geom", feet), None, EVERYTHING, "netforce"),
        report(("subtree", ("trunk",)), ("body", "world"), EVERYTHING, "netforce"),
        report(("body", ("ball", "trunk")), None, EVERYTHING, "netforce"),
        report(("body", feet), ground, EVERYTHING, "maxforce"),
        report(("subtree", ("trunk", "ball")), None, EVERYTHING, "maxforce", 5),
        report(("subtree", ("trunk",)), None, EVERYTHING, "mindist", 5),
        report(("geom", feet), ground, EVERYTHING, "none"),
        report(("geom", ("ground",)), ("subtree", "trunk"), EVERYTHING, "maxforce", 3),
        report(("geom", ("saddle",)), ("geom", "ball"), ("found", "dist", "normal"), "none"),
    ]


def start(engine: Any, *, own_options: bool = True) -> None:
    """Write the initial state: in the air, about to land, and standing with a ball on the back.

    Args:
        engine: the engine to write to.
        own_options: whether each environment gets its own gravity and magnetic flux.
    """
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> torch.Tensor:
        return 2.0 * torch.rand(*shape, generator=generator) - 1.0

    qpos, qvel = engine.qpos, engine.qvel
    ball = engine.model.jnt_qposadr[engine.names("joint").index("ball")]
    qpos[:, 2] = torch.tensor([1.8, 0.43, 0.395])
    qpos[:, ball + 2] = torch.tensor([2.6, 0.9, 0.513])
    qvel[:] = random(*qvel.shape) * torch.tensor([[2.0], [0.5], [0.1]])
    qvel[1, 2] = -0.8
    if not own_options:
        return
    engine.gravity[:] = torch.tensor([[0.0, 0.0, -9.81], [0.5, -0.3, -9.0], [0.0, 0.0, -9.81]])
    engine.magnetic[:] = torch.tensor([2e-5, 1e-6, -4.4e-5]) * torch.tensor([[1.0], [1.1], [0.9]])


def copy_state(source: Any, into: Any) -> None:
    """Copy the state of an engine into another; the solver's warm start stays that of each engine."""
    for name in (*STATE, *OPTIONS):
        getattr(into, name).copy_(getattr(source, name))


def carry(warp: Any, cpu: Any) -> None:
    """Move the mocap body of a mujoco_warp engine, and copy its state into MuJoCo."""
    warp.mocap_pos[:, 0] += 0.01
    warp.mocap_quat[:, 0] = turned(0.03 * warp.tick)
    copy_state(warp, cpu)


@dataclass
class Pair:
    """MuJoCo and another engine, and a scene with the same sensors on each.

    Attributes:
        carry: copies the state of the other engine into MuJoCo, after a tick of both.
        touching: bool `[env]` for each tick so far: whether MuJoCo has contacts there.
    """

    cpu: sn.MujocoEngine
    other: Any
    scenes: tuple[sn.Scene, sn.Scene]
    carry: Callable[[Any, Any], None] = carry
    touching: list[torch.Tensor] = field(default_factory=list)

    def advance(self, *, fed: bool = False) -> None:
        """Take a tick: both step, the state of the other is copied into MuJoCo, both run forward and are sampled.

        Args:
            fed: whether to call `feed` before the sampling.
        """
        generator = torch.Generator().manual_seed(self.other.tick)
        self.other.step(2.0 * torch.rand(ENVS, self.other.ctrl.shape[1], generator=generator) - 1.0)
        self.cpu.step()
        self.carry(self.other, self.cpu)
        for engine in (self.cpu, self.other):
            engine.forward()
        if fed:
            feed(self.cpu, self.other)
        for scene in self.scenes:
            scene.update()
        self.touching.append(torch.from_numpy(self.cpu.batch.bind("ncon") > 0))


def feed(cpu: Any, other: Any) -> None:
    """Copy all derived arrays of MuJoCo into those of the other engine, so that the truth of sensors is identical."""
    for name, values in other._derived.arrays.items():
        values.copy_(cpu.array(name))


def turned(angle: float) -> torch.Tensor:
    """Return a rotation about a slanted axis, wxyz."""
    half = torch.tensor(0.5 * angle, dtype=torch.float64)
    return torch.stack([half.cos(), 0.6 * half.sin(), 0.0 * half, 0.8 * half.sin()]).float()


def values_of(sensor: Any, *, is_measured: bool) -> dict[str, torch.Tensor]:
    """Return a copy of each tensor that a reader sees."""
    sensor.ensure_current(is_measured=is_measured)
    return {name: values.clone() for name, values in sensor.own_tensors(is_measured=is_measured).items()}


# The comparison -------------------------------------------------------------------------------------------------------

FORCE_UNITS = ("m/s^2", "rad/s^2", "N", "N m", "N m or N", "N s", "A")
"""Units of solver results: accelerations, forces, and quantities derived from them."""
LEVER = 0.03
"""Radius of a foot, m. A torque is a sum of forces times levers and may cancel to 0, as for a single contact about its
own point. Its error is therefore relative to that of the forces beside it, on this lever. A distance at a contact is
the remainder of a height after subtraction of the radius, so its error is relative to this radius.
"""
LEVER_OF = {"dist": 1.0, "dist_history": 1.0}
"""`lever` of fields other than torques."""
SMALL = 0.01
"""Lower bound of an item's magnitude, as a share of the greatest magnitude in the field. Smaller values (a link that
hardly moves, a static body) remain from the cancellation of larger numbers and have their rounding errors.
"""


def assert_report_agrees(report: Requirement, cpu: torch.Tensor, warp: torch.Tensor, touching: torch.Tensor) -> None:
    """Assert `assert_agrees` for each field of a contact report, and that contacts were found."""
    columns = contact_columns(report)
    found = cpu[..., columns["found"]]
    assert (found > 0).any() and torch.equal(found, warp[..., columns["found"]])
    for name, part in columns.items():
        lever = cpu[..., columns["force"]] if name == "torque" else LEVER_OF.get(name)
        assert_agrees(
            f"{report} {name}",
            cpu[..., part],
            warp[..., part],
            touching,
            is_vector=True,
            lever=lever,
            is_force=name in ("force", "torque"),
        )


def assert_need_agrees(
    requirement: Requirement, cpu: dict[str, torch.Tensor], warp: dict[str, torch.Tensor], touching: torch.Tensor
) -> None:
    """Assert `assert_agrees` for each array that a requirement provides."""
    for name, shape in ARRAYS[requirement].items():
        assert cpu[name].shape == warp[name].shape
        assert_agrees(
            name,
            cpu[name],
            warp[name],
            touching,
            is_vector=shape[-1] in (3, 4),
            lever=cpu["body_parent_force_w"] if name == "body_parent_torque_w" else None,
            is_force=NEEDS[requirement].wrenches or name in ("joint_effort", "joint_torque"),
        )


def errors(
    cpu: torch.Tensor, warp: torch.Tensor, rows: torch.Tensor, *, is_vector: bool, floor: float = 0.0
) -> torch.Tensor:
    """Return the errors `[row, item]` of one engine against the other, relative to the magnitude of the quantity.

    The magnitude of an item (a mount, a joint, a ray, ...) is the greatest length of its vector over the chosen rows.

    Args:
        cpu: values of MuJoCo `[tick, env, ..., item, (vector)]`.
        warp: those of mujoco_warp.
        rows: bool `[tick, env]`, the rows to compare.
        is_vector: whether the last axis is a vector.
        floor: lower bound of the magnitudes.
    """
    first, second = cpu[rows].double(), warp[rows].double()
    known = first.isfinite()
    assert torch.equal(known, second.isfinite()), "one engine has a value where the other has none"
    assert torch.equal(first[~known].nan_to_num(), second[~known].nan_to_num()), "infinite of another sign"
    first, second = (torch.where(known, values, 0.0) for values in (first, second))
    if is_vector:
        length, error = first.norm(dim=-1), (first - second).norm(dim=-1)
    else:
        length, error = first.abs(), (first - second).abs()
    if not error.numel():
        return torch.zeros(1)
    magnitude = length.amax(dim=0)
    magnitude = magnitude.clamp(min=max(SMALL * float(magnitude.max()), floor))
    return torch.where(error > 0.0, error / magnitude.clamp(min=1e-30), 0.0)


def assert_agrees(
    what: str,
    cpu: torch.Tensor,
    warp: torch.Tensor,
    touching: torch.Tensor,
    *,
    is_vector: bool,
    lever: Any = None,
    is_force: bool = False,
) -> None:
    """Assert the bounds: 1e-4, but 1e-2 for accelerations and forces during contact.

    Args:
        what: name for messages.
        cpu: see `errors`.
        warp: see `errors`.
        touching: bool `[tick, env]`.
        is_vector: see `errors`.
        lever: for a torque, the forces beside it, `[tick, env, ...]`; for a distance at a contact, 1; see `LEVER`.
        is_force: whether the quantity is an acceleration or force, or derived from them.
    """
    classes = [(~touching, 1e-4), (touching, 1e-2)] if is_force else [(torch.ones_like(touching), 1e-4)]
    for rows, bound in classes:
        if not rows.any():
            continue
        force = float(lever[rows].abs().max()) if isinstance(lever, torch.Tensor) else lever or 0.0
        error = float(errors(cpu, warp, rows, is_vector=is_vector, floor=LEVER * force).max())
        assert error <= bound, f"{what}: a relative error of {error:.2g}, expected at most {bound:g}"


def stacked(history: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return values `[tick, env, ...]` by name."""
    return {name: torch.stack([each[name] for each in history]) for name in history[0]}
