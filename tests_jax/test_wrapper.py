"""Environments in the style of MuJoCo Playground have measured observations, with resets that reach the sensors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadruped
import torch
from quadruped import close
from walker import Batch, Walker

import sensorium as sn
import sensorium.jax as sj
from sensorium.errors import ConfigError, ModelError, ScheduleError

IMU = sn.ImuCfg(name="imu", site="imu", gyro_noise=0.01)
SEEN = {"measured": ("imu.ang_vel_b", "imu.lin_acc_b"), "privileged": ("truth:imu.ang_vel_b",)}


BATCH = Batch(Walker())
COMPILED = jax.jit(BATCH.reset), jax.jit(BATCH.step)


def wrapped(sensors: Any = (IMU,), **options: Any) -> sj.SensorWrapper:
    """Return a wrapper of the same environments, whose functions are compiled once."""
    env = sj.SensorWrapper(BATCH, sensors, SEEN, **options)
    env._reset, env._step = COMPILED
    return env


def keys(count: int = 3, seed: int = 0) -> Any:
    return jax.random.split(jax.random.PRNGKey(seed), count)


@pytest.mark.parametrize("keyed", [False, True])
def test_observations_are_measured(keyed: bool) -> None:
    env = sj.SensorWrapper(Batch(Walker(keyed=True)), (IMU,), SEEN) if keyed else wrapped()
    state = env.reset(keys())
    reset, step = COMPILED
    own = reset(keys())
    for k in range(4):
        reference = quadruped.in_mujoco(own.data, env.mj_model)
        gyro = [each.sensor("gyro").data for each in reference]
        assert {*state.obs} == {"state", "measured", "privileged"}
        assert state.obs["measured"].shape == (3, 6) and isinstance(state.obs["measured"], jax.Array)
        np.testing.assert_array_equal(state.obs["state"], own.obs)
        np.testing.assert_array_equal(state.data.qpos, own.data.qpos)
        close(np.array(state.obs["privileged"]), gyro, 5e-5)
        close(np.array(state.obs["measured"])[:, 3:], [each.sensor("acc").data for each in reference], 1e-3)
        assert 0.0 < float(np.abs(np.array(state.obs["measured"])[:, :3] - gyro).max()) < 0.1
        action = jnp.full((3, 8), 0.02 * k)
        state, own = env.step(state, action), step(own, action)
        assert env.scene.engine.tick == 4 * (k + 1)
    assert env.observation_size == {"state": (15,) if keyed else 15, "measured": (6,), "privileged": (3,)}


def test_attributes_are_those_of_the_environment() -> None:
    env = wrapped()
    assert env.action_size == 8 and env.dt == 0.008 and env.xml_path == "walker.xml"
    assert env.unwrapped is env.env.env
    assert env.mj_model is env.unwrapped.mj_model
    with pytest.raises(AttributeError, match="no_such_name"):
        env.no_such_name  # noqa: B018
    with pytest.raises(ScheduleError, match="reset"):
        env.observation_size  # noqa: B018


def test_finished_environments_reset_their_sensors() -> None:
    slow = sn.ImuCfg(name="slow", site="imu", delay=0.016, update_period=0.008)
    env = wrapped((IMU, slow))
    state = env.reset(keys())
    start = np.array(state.data.qpos)
    for k in range(6):
        done = np.array([k == 3, False, k == 4])
        action = np.where(done[:, None], 2.0, 0.1) * np.ones(8)
        state = env.step(state, jnp.float32(action))
        now = env.scene["slow"]
        assert (np.abs(np.array(state.data.qpos) - start).max(axis=1) == 0.0).tolist() == done.tolist()
        assert (now.frame.numpy()[done] == 1).all() and (env.scene["imu"].frame.numpy()[done] == 1).all()
        assert not now.valid.numpy()[done].any()
        reference = quadruped.in_mujoco(state.data, env.mj_model)
        close(env.scene["imu"].ground_truth.lin_acc_b, [each.sensor("acc").data for each in reference], 1e-3)


def test_a_changed_state_resumes() -> None:
    env = wrapped()
    state = env.reset(keys())
    first = state
    state = env.step(state, jnp.zeros((3, 8)))
    with pytest.raises(ScheduleError, match=r"not the last one.*resume"):
        env.step(first, jnp.zeros((3, 8)))
    state = env.step(jax.tree.map(jnp.array, state), jnp.zeros((3, 8)))  # a copy of the last state
    qpos = state.data.qpos.at[1].set(first.data.qpos[1])
    state = env.resume(state.replace(data=state.data.replace(qpos=qpos)), [1])
    assert env.scene["imu"].frame.tolist() == [3, 1, 3]
    state = env.step(state, jnp.zeros((3, 8)))
    assert env.scene["imu"].frame.tolist() == [4, 2, 4]


def test_a_second_reset_starts_all_episodes_anew() -> None:
    env = wrapped(seed=4)
    first = env.reset(keys())
    env.step(first, jnp.zeros((3, 8)))
    second = env.reset(keys())
    np.testing.assert_array_equal(first.obs["privileged"], second.obs["privileged"])
    assert not np.array_equal(first.obs["measured"], second.obs["measured"])  # another episode has other noise
    again = wrapped(seed=4).reset(keys())
    np.testing.assert_array_equal(first.obs["measured"], again.obs["measured"])
    later = wrapped(seed=4, first_env=1).reset(keys()[jnp.array([1, 2, 0])])
    np.testing.assert_array_equal(first.obs["measured"][1:], later.obs["measured"][:2])  # a slice of a larger run
    with pytest.raises(ModelError, match="qpos has shape"):
        env.reset(keys(5))


def test_randomised_models() -> None:
    walker = BATCH.env
    gravity = np.tile(walker.mj_model.opt.gravity, (3, 1)) * np.array([[0.5], [1.0], [1.5]])
    batched = walker.mjx_model.tree_replace({"opt.gravity": jnp.float32(gravity)})
    env = wrapped((sn.ImuCfg(name="imu", site="imu"),), mx=batched)
    env.reset(keys())
    assert torch.equal(env.scene.engine.array("gravity_w"), torch.tensor(gravity, dtype=torch.float32))


@pytest.mark.parametrize("call", ["reset", "step"])
def test_compiled_functions_are_refused(call: str) -> None:
    env = wrapped()
    state = env.reset(keys())
    with pytest.raises(ScheduleError, match=r"jax\.jit to the physics"):
        if call == "reset":
            jax.jit(env.reset)(keys())
        else:
            jax.jit(env.step)(state, jnp.zeros((3, 8)))
    env.step(state, jnp.zeros((3, 8)))


def test_mistakes_are_named() -> None:
    delayed = sn.ImuCfg(name="imu", site="imu", delay=0.004)
    env = wrapped((delayed,))
    state = env.reset(keys())
    with pytest.raises(ScheduleError, match="a jump of 4 ticks misses samples") as error:
        env.step(state, jnp.zeros((3, 8)))
    assert "update_period=0.008" in error.value.__notes__[0]
    with pytest.raises(ModelError, match="leading env axis"):
        sj.SensorWrapper(BATCH.env, (IMU,), SEEN).reset(jax.random.PRNGKey(0))
    taken = sj.SensorWrapper(BATCH, (IMU,), {"state": ("imu",)})
    taken._reset = COMPILED[0]
    with pytest.raises(ConfigError, match="keys that the environment does not use"):
        taken.reset(keys())
