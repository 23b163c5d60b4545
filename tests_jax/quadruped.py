"""A small quadruped in several environments of MJX, loops over it, and the same states in MuJoCo."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import torch
from mujoco import mjx

from sensorium.engines.mjx.live import LiveMjxEngine
from sensorium.jax import from_mjx

LEGS = ("FL", "FR", "RL", "RR")
_PLACES = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
_OFF = 'contype="0" conaffinity="0"'


def _leg(name: str) -> str:
    x, y = _PLACES[name]
    foot = f'name="{name}_foot"' if name != "RR" else ""  # one foot without a name
    return f"""
      <body name="{name}_thigh" pos="{x} {y} 0">
        <joint name="{name}_hip" axis="0 1 0" damping="0.2" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5" {_OFF}/>
        <body name="{name}_shank" pos="0 0 -0.2">
          <joint name="{name}_knee" axis="0 1 0" damping="0.2" armature="0.01" range="-2 2"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015" mass="0.3" {_OFF}/>
          <geom {foot} type="sphere" pos="0 0 -0.2" size="0.03" mass="0.1" condim="3" friction="0.9"/>
          <site name="{name}_toe" pos="0 0 -0.23"/>
        </body>
      </body>"""


XML = f"""
<mujoco model="quad">
  <option timestep="0.002" iterations="20" ls_iterations="20" {{option}}>{{flag}}</option>
  <asset><material name="grey"/></asset>  <!-- MJX's rays need a material -->
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" friction="0.9"/>
    <geom name="wall" type="box" size="0.1 2 1" pos="2 0 1" {_OFF}/>
    <body name="base" pos="0 0 0.42">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size="0.2 0.1 0.05" mass="4" pos="0.02 0 0.01" {_OFF}/>
      <site name="imu" pos="0.05 0.02 0.03" quat="0.9 0.1 0.2 0.3"/>
      <site name="ahead" pos="0.25 0 0" euler="0 90 0"/>
      {"".join(map(_leg, LEGS))}
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<position name="{n}_{j}" joint="{n}_{j}" kp="40" kv="1"/>' for n in LEGS for j in ("hip", "knee"))}
  </actuator>
  <sensor>
    <accelerometer name="acc" site="imu"/>
    <gyro name="gyro" site="imu"/>
    <framelinvel name="toe_vel" objtype="site" objname="FL_toe"/>
    <jointpos name="knee" joint="FR_knee"/>
    <rangefinder name="range" site="ahead"/>
    <velocimeter name="vel" site="imu"/>
  </sensor>
</mujoco>
"""


@functools.cache
def models(option: str = "", flag: str = "") -> tuple[mujoco.MjModel, Any]:
    """Return the MjModel and the `mjx.Model`."""
    model = mujoco.MjModel.from_xml_string(XML.format(option=option, flag=flag))
    return model, mjx.put_model(model)


@functools.cache
def stepper() -> Any:
    """Return the compiled step of all environments."""
    return jax.jit(jax.vmap(mjx.step, in_axes=(None, 0)))


def rows_of(data: Any, num_envs: int) -> Any:
    """Return equal data for each environment."""
    return jax.tree.map(lambda x: jnp.asarray(np.broadcast_to(x, (num_envs, *np.shape(x)))), data)


def start(num_envs: int = 3, seed: int = 0, option: str = "") -> Any:
    """Return data with different states and controls, in the air and on the ground."""
    rng = np.random.default_rng(seed)
    model, _ = models(option)
    qpos = np.tile(model.qpos0, (num_envs, 1))
    qpos[:, 2] += rng.uniform(-0.01, 0.05, num_envs)
    qpos[:, 3:7] += rng.normal(0.0, 0.05, (num_envs, 4))
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    qpos[:, 7:] += rng.normal(0.0, 0.2, (num_envs, model.nu))
    qvel = rng.normal(0.0, 0.5, (num_envs, model.nv))
    ctrl = rng.normal(0.0, 0.2, (num_envs, model.nu))
    state = {"qpos": jnp.float32(qpos), "qvel": jnp.float32(qvel), "ctrl": jnp.float32(ctrl)}
    return rows_of(mjx.make_data(model), num_envs).replace(**state)


def engine_of(num_envs: int = 3, *, fresh: bool = True) -> LiveMjxEngine:
    """Return an engine over the quadruped."""
    model, mx = models()
    return from_mjx(model, mx, start(num_envs), fresh=fresh)


def advance(engine: LiveMjxEngine) -> None:
    """Advance the data of an engine by one tick."""
    _, mx = models()
    engine.data = stepper()(mx, engine.data)
    engine.count_ticks(1)


def in_mujoco(data: Any, model: mujoco.MjModel) -> list[mujoco.MjData]:
    """Return the states of all environments in MuJoCo, after its forward computation."""
    found = []
    for env in range(data.qpos.shape[0]):
        own = mujoco.MjData(model)
        for name in ("qpos", "qvel", "ctrl", "qacc_warmstart", "time"):
            value = np.asarray(getattr(data, name)[env], dtype=np.float64)
            setattr(own, name, value) if name == "time" else getattr(own, name).__setitem__(..., value)
        mujoco.mj_forward(model, own)
        mujoco.mj_rnePostConstraint(model, own)
        found.append(own)
    return found


def close(mine: Any, theirs: Any, tolerance: float) -> None:
    """Check numbers relative to the greatest one."""
    mine, theirs = (np.asarray(each, dtype=np.float64) for each in (torch.as_tensor(mine), theirs))
    assert mine.shape == theirs.shape
    error, scale = float(np.abs(mine - theirs).max()), max(1.0, float(np.abs(theirs).max()))
    assert error <= tolerance * scale, f"{error} of {scale}"
