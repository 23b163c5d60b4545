"""A small quadruped in several worlds of a Newton model, and engines of it."""

from __future__ import annotations

import functools
from typing import Any

import newton
import numpy as np
import torch
import warp as wp

import sensorium as sn

DT = 0.002
LEGS = ("FL", "FR", "RL", "RR")
_PLACES = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
_NO_CONTACT = 'contype="0" conaffinity="0"'
_FRICTION = 'condim="6" friction="1 0.05 0.01"'


def _leg(name: str) -> str:
    x, y = _PLACES[name]
    return f"""
      <body name="{name}_thigh" pos="{x} {y} 0">
        <joint name="{name}_hip" axis="0 1 0" damping="0.2" armature="0.01"/>
        <geom name="{name}_upper" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5" {_NO_CONTACT}/>
        <body name="{name}_shank" pos="0 0 -0.2">
          <joint name="{name}_knee" axis="0 1 0" damping="0.2" armature="0.01"/>
          <geom name="{name}_lower" type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015" mass="0.3" {_NO_CONTACT}/>
          <geom name="{name}_foot" type="sphere" pos="0 0 -0.2" size="0.03" mass="0.1" {_FRICTION}/>
          <site name="{name}_toe" pos="0 0 -0.23"/>
        </body>
      </body>"""


ROBOT = f"""
<mujoco model="quad">
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="base" pos="0 0 0.42">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size="0.2 0.1 0.05" mass="4" pos="0.02 0 0.01"/>
      <site name="imu" pos="0.05 0.02 0.03" quat="0.9 0.1 0.2 0.3"/>
      {"".join(map(_leg, LEGS))}
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<position name="{n}_{j}" joint="{n}_{j}" kp="40" kv="1"/>' for n in LEGS for j in ("hip", "knee"))}
  </actuator>
</mujoco>
"""


def robot() -> newton.ModelBuilder:
    """Return a builder with one quadruped on a floor."""
    builder = newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
    builder.add_mjcf(ROBOT, force_show_colliders=True)  # by default it hides them where a file has visuals
    return builder


@functools.cache
def model_of(num_envs: int) -> newton.Model:
    """Return a model with a quadruped in each world."""
    builder = newton.ModelBuilder()
    builder.replicate(robot(), num_envs)
    return builder.finalize(device="cpu")


def engine_of(num_envs: int = 4, **options: Any) -> sn.NewtonEngine:
    """Return an engine of quadrupeds on SolverMuJoCo."""
    model = model_of(num_envs)
    return sn.NewtonEngine(model, newton.solvers.SolverMuJoCo(model), dt=DT, **options)


@functools.cache
def start(num_envs: int = 4) -> dict[str, torch.Tensor]:
    """Return a different state for each world: tilted, moving, close to the floor."""
    rng = np.random.default_rng(7)
    joint_q, joint_qd = rng.normal(0.0, 0.15, (num_envs, 15)), rng.normal(0.0, 0.5, (num_envs, 14))
    joint_q[:, 2] = 0.41
    joint_q[:, 3:6] *= 0.5
    joint_q[:, 6] = 1.0
    joint_q[:, 3:7] /= np.linalg.norm(joint_q[:, 3:7], axis=1, keepdims=True)
    return {"joint_q": torch.from_numpy(joint_q).float(), "joint_qd": torch.from_numpy(joint_qd).float()}


def run(engine: sn.NewtonEngine, ticks: int) -> None:
    """Move the joints for some ticks."""
    for k in range(ticks):
        engine.step(0.3 * torch.sin(torch.arange(8.0) + 0.05 * k).expand(engine.num_envs, 8))


def per_env(array: wp.array, num_envs: int) -> torch.Tensor:
    """Return Newton's flat readings as `[env, ...]`."""
    values = wp.to_torch(array)
    return values.reshape(num_envs, -1, values.shape[-1])
