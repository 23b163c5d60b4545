"""Task of the walking example: the demo quadruped follows a forward speed, from measured or true observations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import sensorium as sn
from sensorium.demo import Trot, model_path
from sensorium.rl import ActionDelay, RlEnv

SPEED = 0.4
"""Target speed, m/s."""
GAIT = Trot(frequency=2.0, step_length=0.0, ramp=0.0)
"""A trot on the spot. The policy adds to its joint angles and must learn to move forward."""
START = (-6.0, 0.0)
"""Centre of the start positions of episodes, on level ground, m."""
HIPS = (".*_hip",)
"""Joints that turn about x, so that their angle changes sign in a mirror."""
SCALE = 0.2
"""Joint angle that an action of 1 adds, rad."""


def sensors() -> list[sn.SensorCfg[Any]]:
    """Return the sensors at 100 Hz: an inexpensive IMU, joint encoders with a bus delay, and foot switches."""
    imu = sn.ImuCfg(
        name="imu", site="imu", fields=("ang_vel_b", "projected_gravity_b", "lin_vel_b"), rate_hz=100.0, delay=0.006,
        noise={"ang_vel_b": 0.1, "projected_gravity_b": 0.03}, gyro_bias=sn.Uniform(-0.05, 0.05),
    )  # fmt: skip
    encoders = sn.JointSensorCfg(
        name="joints", joints=".*", fields=("position", "velocity"), rate_hz=100.0, delay=0.006,
        noise={"position": 0.01, "velocity": 0.5}, bias={"position": sn.Uniform(-0.02, 0.02)},
    )  # fmt: skip
    feet = sn.ContactCfg(
        name="feet", geoms=".*_foot", on_force=8.0, noise=3.0, rate_hz=100.0, delay=0.006, loss=0.02
    )  # fmt: skip
    return [imu, encoders, feet]


class Walk(RlEnv):
    """Walking at a fixed speed on level ground: the policy adds joint angles to a trot on the spot.

    Args:
        num_envs: number of environments.
        truth: whether the policy observes the ground truth instead of measured values.
        perturbed: whether actions are delayed, and models differ between episodes.
        seed: seed of the noise.
    """

    def __init__(self, num_envs: int, *, truth: bool = False, perturbed: bool = True, seed: int = 0) -> None:
        engine = sn.MujocoEngine(model_path(), num_envs=num_envs, keyframe="home")
        scene = sn.Scene(engine, sensors(), seed=seed)
        self.start_pose = engine.qpos.clone()
        self.clock = torch.zeros(num_envs)
        own = [
            sn.ObsTerm(lambda: self.action, name="action", items=engine.names("actuator"), scale=0.5),
            sn.ObsTerm(self.gait_clock, name="clock", items=("left", "right")),
        ]

        def robot(true: bool) -> list[str | sn.ObsTerm]:
            return [
                sn.ObsTerm("imu.ang_vel_b", truth=true, scale=0.25),
                sn.ObsTerm("imu.projected_gravity_b", truth=true),
                sn.ObsTerm("joints.position", truth=true),
                sn.ObsTerm("joints.velocity", truth=true, scale=0.05, clip=(-20.0, 20.0)),
                sn.ObsTerm("feet", truth=true),
                *own,
            ]

        super().__init__(
            scene,
            {"policy": robot(truth), "critic": [*robot(True), sn.ObsTerm("imu.lin_vel_b", truth=True)]},
            substeps=10,
            max_episode_steps=400,
            action_delay=ActionDelay(sn.Uniform(0.0, 0.02)) if perturbed else None,
            randomise={"model.geom_friction": sn.Uniform(0.6, 1.3)} if perturbed else None,
        )

    def gait_clock(self) -> Tensor:
        """Return the height of the clock for FL and RR, and for FR and RL, `[env, 2]`."""
        angle = 2.0 * math.pi * GAIT.phase(self.clock)[:, :2]
        return torch.sin(angle)

    def control(self, action: Tensor) -> Tensor:
        return GAIT.targets(self.clock) + SCALE * action.clamp(-3.0, 3.0)

    def begin_episode(self, env_ids: Tensor) -> Mapping[str, Any]:
        start = self.draw("start", sn.Uniform(0.0, 1.0), 2, env_ids)
        self.clock[env_ids] = start[:, 0] / GAIT.frequency
        qpos = self.start_pose[env_ids]
        qpos[:, 0] = START[0]
        qpos[:, 1] = START[1] + start[:, 1].to(qpos)
        return {"qpos": qpos}

    def step(self, action: Any) -> Any:
        self.clock += self.step_dt
        return super().step(action)

    def reward(self) -> Tensor:
        imu, is_down = self.scene["imu"].ground_truth, self.scene["feet"].ground_truth
        vel, rate = imu.lin_vel_b, imu.ang_vel_b
        follows = torch.exp(-((vel[:, 0] - SPEED).square() + vel[:, 1].square()) / 0.05)
        straight = torch.exp(-rate[:, 2].square() / 0.25)
        in_step = (is_down == GAIT.stance(self.clock)).float().mean(dim=1)
        upright = imu.projected_gravity_b[:, :2].square().sum(dim=1)
        shaking = vel[:, 2].square() + 0.05 * rate[:, :2].square().sum(dim=1)
        jerk = (self.action - self.last_action).square().sum(dim=1)
        fallen = self.terminated().float()
        return (
            2.0 * follows + 0.5 * straight + in_step - 2.0 * upright - 0.5 * shaking - 0.02 * jerk
            - 0.01 * self.action.square().sum(dim=1) - 10.0 * fallen
        )  # fmt: skip

    def terminated(self) -> Tensor:
        return self.scene["imu"].ground_truth.projected_gravity_b[:, 2] > -0.7
