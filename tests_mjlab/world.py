"""A robot in an mjlab environment with the library's sensors, and the library's own scene on the same simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import torch
from mjlab.actuator.xml_actuator import XmlActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from mjlab.envs.mdp import dr
from mjlab.envs.mdp.actions import JointEffortActionCfg
from mjlab.managers.command_manager import CommandTerm, CommandTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.metrics_manager import MetricsTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import Sensor as MjlabSensor
from mjlab.sensor import SensorCfg as MjlabSensorCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from mjlab.terrains import TerrainEntityCfg

import sensorium as sn
from sensorium.compat.mjlab import SensoriumSensor, add_sensors, reading

ENVS, DECIMATION, DT = 3, 4, 0.005

ROBOT = """
<mujoco>
  <worldbody>
    <body name="base">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".2 .1 .05" mass="3"/>
      <site name="imu" pos=".05 .02 .03" euler="10 20 30"/>
      <body name="left" pos=".12 .08 -.05">
        <joint name="left_hip" axis="0 1 0" damping=".1"/>
        <geom name="left_shank" type="capsule" fromto="0 0 0 0 0 -.18" size=".015" mass=".2"/>
        <geom name="left_foot" pos="0 0 -.2" size=".02" mass=".05"/>
      </body>
      <body name="right" pos=".12 -.08 -.05">
        <joint name="right_hip" axis="0 1 0" damping=".1"/>
        <geom name="right_shank" type="capsule" fromto="0 0 0 0 0 -.18" size=".015" mass=".2"/>
        <geom name="right_foot" pos="0 0 -.2" size=".02" mass=".05"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="left_hip" joint="left_hip"/>
    <motor name="right_hip" joint="right_hip"/>
  </actuator>
  <sensor>
    <gyro name="gyro" site="imu"/>
    <accelerometer name="accelerometer" site="imu"/>
    <framepos name="imu_pos" objtype="site" objname="imu"/>
    <jointpos name="left_hip_pos" joint="left_hip"/>
  </sensor>
</mujoco>
"""

SENSORS: tuple[sn.SensorCfg[Any], ...] = (
    sn.ImuCfg(name="imu", site="robot/imu", fields="all", noise={"ang_vel_b": 0.01, "lin_acc_b": 0.1}),
    sn.ImuCfg(
        name="late", site=sn.ObjRef(type="site", name="imu", entity="robot"), rate_hz=100, delay=0.01, history_length=4,
        random_walk={"ang_vel_b": 0.001, "lin_acc_b": 0.0},
        noise={"ang_vel_b": sn.Uniform(0.0, 0.02), "lin_acc_b": 0.0},
    ),
    sn.JointSensorCfg(name="joints", joints="robot/.*_hip", bits=14),
    sn.ContactSensorCfg(
        name="feet", primary=sn.ContactMatch(mode="geom", pattern=".*_foot", entity="robot"),
        secondary=sn.ContactMatch(mode="body", pattern="terrain"),
        fields=("found", "force", "normal", "pos"), global_frame=True, track_air_time=True,
    ),
    sn.FrameTransformerCfg(
        name="frames", body="robot/base",
        target_frames=[sn.FrameTransformerCfg.FrameCfg(body="robot/left"),
                       sn.FrameTransformerCfg.FrameCfg(body="robot/right")],
    ),
    sn.RayCasterCfg(
        name="scan", body="robot/base", ray_alignment="yaw", noise=0.01, fields=("distances", "pos_w"),
        pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.2), resolution=0.1),
    ),
)  # fmt: skip
FIELDS = {
    "imu": ("ang_vel_b", "lin_acc_b", "pos_w", "quat_w", "lin_vel_b", "projected_gravity_b"),
    "late": ("ang_vel_b", "lin_acc_b"),
    "joints": ("position", "velocity"),
    "feet": ("found", "force", "normal", "pos", "current_air_time", "current_contact_time"),
    "frames": ("target_pos_source", "target_quat_source"),
    "scan": ("distances", "pos_w"),
}
TAIL = sn.ImuCfg(name="tail", site="robot/imu", noise={"ang_vel_b": 0.01, "lin_acc_b": 0.0})
SEED = 7


class BesideCfg(MjlabSensorCfg):
    def build(self) -> Beside:
        return Beside()


class Beside(MjlabSensor):
    """The library's scene as the owner of the loop uses it: `update` after each step, `reset` on request."""

    scene: sn.Scene | None = None
    ticks = 0

    def edit_spec(self, scene_spec: Any, entities: Any) -> None: ...

    def initialize(self, mj_model: Any, model: Any, data: Any, device: str) -> None:
        engine = sn.MujocoWarpEngine.from_mjw(mj_model, model.struct, data.struct, fresh=False)
        self.scene = sn.Scene(engine, SENSORS, seed=SEED, discover=False)

    def update(self, dt: float) -> None:
        if self.ticks % DECIMATION == 0:
            self.scene.begin_control_step()
        self.ticks += 1
        self.scene.update()

    def _compute_data(self) -> sn.Scene:
        return self.scene


def terminate(env: Any) -> torch.Tensor:
    """End the episodes that a test selects."""
    wanted = getattr(env, "ending", None)
    return torch.zeros(env.num_envs, dtype=torch.bool) if wanted is None else wanted


def robot_env_cfg() -> ManagerBasedRlEnvCfg:
    """Return the environment without the library's sensors."""
    robot = EntityCfg(
        spec_fn=lambda: mujoco.MjSpec.from_string(ROBOT),
        articulation=EntityArticulationInfoCfg(actuators=(XmlActuatorCfg(target_names_expr=(".*_hip",)),)),
        init_state=EntityCfg.InitialStateCfg(pos=(0.0, 0.0, 0.32), joint_pos={".*": 0.1}, joint_vel={".*": 0.0}),
    )
    scene = SceneCfg(num_envs=ENVS, terrain=TerrainEntityCfg(terrain_type="plane"), entities={"robot": robot})
    return ManagerBasedRlEnvCfg(
        scene=scene,
        decimation=DECIMATION,
        observations={"actor": ObservationGroupCfg({}, concatenate_terms=False)},
        actions={"hips": JointEffortActionCfg(entity_name="robot", actuator_names=(".*_hip",), scale=0.3)},
        events={
            "default": EventTermCfg(func=mdp.reset_scene_to_default, mode="reset"),
            "throw": EventTermCfg(
                func=mdp.reset_root_state_uniform, mode="reset",
                params={
                    "pose_range": {"z": (0.0, 0.05), "yaw": (-1.0, 1.0), "roll": (-0.2, 0.2)},
                    "velocity_range": {"x": (-0.5, 0.5), "roll": (-2.0, 2.0), "yaw": (-2.0, 2.0)},
                },
            ),
            "imu": EventTermCfg(
                func=dr.site_pos, mode="startup",
                params={"asset_cfg": SceneEntityCfg("robot", site_names=("imu",)), "operation": "add",
                        "ranges": {0: (-0.02, 0.02), 2: (-0.01, 0.01)}},
            ),
        },
        terminations={"asked": TerminationTermCfg(func=terminate)},
        sim=SimulationCfg(mujoco=MujocoCfg(timestep=DT)),
        seed=3,
    )  # fmt: skip


def config(fresh: bool = False) -> ManagerBasedRlEnvCfg:
    """Return the environment with the library's sensors and terms that read them."""
    cfg = robot_env_cfg()
    add_sensors(cfg.scene, SENSORS, seed=SEED, decimation=DECIMATION, fresh=fresh)
    add_sensors(cfg.scene, [TAIL], name="more", seed=SEED + 1, fresh=fresh)
    if not fresh:
        cfg.scene.sensors = (*cfg.scene.sensors, BesideCfg(name="beside"))
    cfg.observations["actor"].terms |= {
        "gyro": ObservationTermCfg(func=reading, params={"sensor_name": "imu", "field": "ang_vel_b"}),
        "feet": ObservationTermCfg(func=reading, params={"sensor_name": "feet", "field": "found", "truth": True}),
        "scan": ObservationTermCfg(func=reading, params={"sensor_name": "scan", "field": "distances"}, scale=0.5),
        "history": ObservationTermCfg(
            func=reading, params={"sensor_name": "tail", "field": "lin_acc_b", "group": "more"}, history_length=2
        ),
    }
    return cfg


def make(fresh: bool = False) -> ManagerBasedRlEnv:
    """Return the environment at the start of its first episodes, with the library's scene beside it."""
    env = ManagerBasedRlEnv(config(fresh), device="cpu")
    env.reset()
    if not fresh:
        env.scene["beside"].scene.reset()
    return env


class Glance:
    """A term for any manager: it reads some fields at random, and returns 0 for each environment."""

    def __init__(self, place: str) -> None:
        self.place, self.draw = place, torch.Generator().manual_seed(len(place))
        self.__name__ = place

    def __call__(self, env: ManagerBasedRlEnv, env_ids: Any = None, **_: Any) -> torch.Tensor:
        seen = getattr(env, "seen", None)  # of the environment, because mjlab copies terms
        if seen is not None:
            for name, fields in FIELDS.items():
                for field in fields:
                    if torch.rand(1, generator=self.draw) < 0.2:
                        reading(env, name, field, truth=bool(torch.rand(1, generator=self.draw) < 0.5))
                        seen.add(self.place)
        return torch.zeros(env.num_envs, dtype=torch.bool if self.place == "termination" else torch.float32)


@dataclass(kw_only=True)
class GlancingCommandCfg(CommandTermCfg):
    glance: Glance

    def build(self, env: ManagerBasedRlEnv) -> GlancingCommand:
        return GlancingCommand(self, env)


class GlancingCommand(CommandTerm):
    """A command that reads when it is drawn, which mjlab does within a reset, and after each step."""

    @property
    def command(self) -> torch.Tensor:
        return torch.zeros(self.num_envs, 1)

    def _update_metrics(self) -> None:
        self.cfg.glance(self._env)

    def _resample_command(self, env_ids: torch.Tensor) -> None:
        self.cfg.glance(self._env)

    def _update_command(self, env_ids: torch.Tensor | None) -> None:
        self.cfg.glance(self._env)


def push(env: ManagerBasedRlEnv, env_ids: None) -> None:
    env.sim.data.qvel[:] *= 0.95


def run_with_terms(fresh: bool, seen: set[str] | None) -> list[dict[str, torch.Tensor]]:
    """Run episodes with a push after each step, and return everything that the sensors show after 12, 13 and 30 steps.

    Args:
        fresh: as for `add_sensors`.
        seen: places where terms read, which this call adds; None for terms that do not read.
    """
    cfg = robot_env_cfg()
    add_sensors(cfg.scene, SENSORS, seed=SEED, decimation=DECIMATION, fresh=fresh)
    cfg.events = {
        "before": EventTermCfg(func=Glance("reset"), mode="reset"), **cfg.events,
        "after": EventTermCfg(func=Glance("reset"), mode="reset"),
        "push": EventTermCfg(func=push, mode="step"),
        "pushed": EventTermCfg(func=Glance("push"), mode="step"),
    }  # fmt: skip
    cfg.metrics = {"glance": MetricsTermCfg(func=Glance("substep"), per_substep=True)}
    cfg.commands = {"glance": GlancingCommandCfg(resampling_time_range=(1.0, 1.0), glance=Glance("command"))}
    cfg.terminations["glance"] = TerminationTermCfg(func=Glance("termination"))
    cfg.rewards = {"glance": RewardTermCfg(func=Glance("reward"), weight=1.0)}
    cfg.observations["actor"].terms["glance"] = ObservationTermCfg(func=Glance("observation"))
    env = ManagerBasedRlEnv(cfg, device="cpu")
    env.seen = seen
    env.reset(seed=4)
    draw, shots = torch.Generator().manual_seed(5), []
    for step in range(1, 31):
        env.ending = torch.rand(ENVS, generator=draw) < 0.15
        env.step(torch.rand(ENVS, 2, generator=draw) - 0.5)
        if step in (12, 13, 30):
            scene = ours(env).scene
            shot = {
                f"{name}.{part}.{field}": getattr(getattr(scene[name], part), field).clone()
                for name, fields in FIELDS.items() for part in ("data", "ground_truth") for field in fields
            }  # fmt: skip
            for what in ("capture_tick", "age", "valid", "is_new", "frame"):
                shot |= {f"{name}.{what}": getattr(scene[name], what).clone() for name in FIELDS}
            shots.append(shot | {"history": scene["late"].history.ang_vel_b, "qvel": env.sim.data.qvel.clone()})
    return shots


def ours(env: ManagerBasedRlEnv, name: str = "sensorium") -> SensoriumSensor:
    sensor: SensoriumSensor = env.scene[name]
    return sensor


def tick(env: ManagerBasedRlEnv, count: int = 1) -> None:
    """Step the simulation as mjlab does within a control step, with efforts that differ between environments."""
    for _ in range(count):
        env.sim.data.ctrl[:] = 0.2 * torch.sin(
            0.05 * env.common_step_counter + torch.arange(ENVS)[:, None] + torch.arange(2)
        )
        env.sim.step()
        env.scene.update(DT)
