"""A small task for reinforcement learning: a cart is pushed to the middle of its rail, with noisy, delayed sensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import sensorium as sn
from sensorium.rl import ActionDelay, RlEnv

MODEL = """
<mujoco><option timestep="0.01"/><worldbody><geom name="floor" type="plane" size="5 5 .1" pos="0 0 -1"/>
  <body name="cart"><joint name="rail" type="slide" axis="1 0 0" damping="1"/><geom size=".1" mass="1"/></body>
</worldbody><actuator><motor name="push" joint="rail" gear="12"/></actuator></mujoco>"""


class Cart(RlEnv):
    """Reward is the nearness of the cart to the middle; an episode ends beyond 1.5 m."""

    def __init__(
        self, num_envs: int = 4, *, seed: int = 0, first_env: int = 0, delay: float = 0.01, **options: Any
    ) -> None:
        joints = sn.JointSensorCfg(
            name="joints", joints="rail", fields=("position", "velocity"), delay=delay,
            noise={"position": 0.02, "velocity": 0.05}, bias={"position": sn.Uniform(-0.02, 0.02)},
        )  # fmt: skip
        scene = sn.Scene(sn.MujocoEngine(MODEL, num_envs=num_envs), [joints], seed=seed, first_env=first_env)
        options = {"substeps": 2, "max_episode_steps": 40} | options
        groups = {
            "policy": [sn.ObsTerm("joints", clip=(-5.0, 5.0)), sn.ObsTerm(lambda: self.action, name="action")],
            "critic": [sn.ObsTerm("joints", truth=True), "joints.bias.position"],
        }
        super().__init__(scene, groups, **options)

    @property
    def place(self) -> torch.Tensor:
        """Position of each cart, float32 `[env]`, m."""
        joints: Any = self.scene["joints"].ground_truth
        return joints.position[:, 0]

    def reward(self) -> torch.Tensor:
        return torch.exp(-4.0 * self.place.square())

    def terminated(self) -> torch.Tensor:
        return self.place.abs() > 1.5

    def begin_episode(self, env_ids: torch.Tensor) -> Mapping[str, Any]:
        return {"qpos": self.draw("start", sn.Uniform(-1.0, 1.0), 1, env_ids)}


class Pushed(Cart):
    """A task with everything that is drawn: starts, delays, jitter and losses of actions, knobs, and the model."""

    def __init__(self, envs: int, first: int) -> None:
        super().__init__(
            envs,
            first_env=first,
            max_episode_steps=7,
            action_delay=ActionDelay(sn.Uniform(0.01, 0.03), jitter=0.01, loss=0.2),
            randomise={"joints.noise.velocity": sn.Uniform(0.0, 1.0), "model.body_mass": sn.Uniform(0.5, 2.0)},
        )
