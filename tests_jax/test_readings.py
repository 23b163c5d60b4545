"""Readings as JAX arrays are immutable, and sensors say that they cannot be part of a compiled function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadruped
import torch

import sensorium as sn
import sensorium.jax as sj
from sensorium.engines.mjx.arrays import to_jax, to_torch
from sensorium.errors import ArgumentError, ScheduleError

IMU = sn.ImuCfg(name="imu", site="imu", gyro_noise=0.01)
SCAN = sn.RayCasterCfg(name="scan", site="imu", pattern=sn.patterns.GridPatternCfg(size=(0.2, 0.2), resolution=0.1))


@pytest.fixture
def scene() -> sn.Scene:
    return sn.Scene(quadruped.engine_of(), [IMU, SCAN])


def test_names_are_not_sensors(scene: sn.Scene) -> None:
    for read in (sj.read, sj.read_ground_truth):
        with pytest.raises(ArgumentError, match=r"got 'imu', expected a sensor of the scene, e\.g\. scene\['imu'\]"):
            read("imu")  # type: ignore[arg-type]


def advance(scene: sn.Scene) -> None:
    _, mx = quadruped.models()
    scene.engine.data = quadruped.stepper()(mx, scene.engine.data)
    scene.update()


def test_readings_are_jax_arrays_that_never_change(scene: sn.Scene) -> None:
    look = scene.observer("imu.ang_vel_b", "scan.distances", replace_inf=5.0)
    advance(scene)
    imu, seen, truth = sj.read(scene["imu"]), sj.read(look), sj.read_ground_truth(scene["imu"])
    some = sj.read(scene["imu"], [2, 0])
    assert isinstance(imu["ang_vel_b"], jax.Array) and seen.shape == (3, look.shape[1])
    kept = jax.tree.map(np.array, (imu, seen, truth, some))  # copies
    np.testing.assert_array_equal(kept[0]["ang_vel_b"], scene["imu"].data.ang_vel_b.numpy())
    np.testing.assert_array_equal(kept[2]["ang_vel_b"], scene["imu"].ground_truth.ang_vel_b.numpy())
    np.testing.assert_array_equal(kept[3]["ang_vel_b"], kept[0]["ang_vel_b"][[2, 0]])
    assert not np.array_equal(kept[0]["ang_vel_b"], kept[2]["ang_vel_b"])
    for _ in range(3):
        advance(scene)
        sj.read(scene["imu"]), sj.read(look)
    jax.tree.map(np.testing.assert_array_equal, kept, (imu, seen, truth, some))
    assert not np.array_equal(kept[0]["ang_vel_b"], sj.read(scene["imu"])["ang_vel_b"])


def test_memory_lives_as_long_as_work_on_it() -> None:
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jnp.sin(y @ y.T @ y), x))
    expected = slow(jnp.full((200, 200), 0.01))
    results = []
    for _ in range(4):
        results.append(slow(to_jax(torch.full((200, 200), 0.01))))  # the array is released before the work is done
        torch.full((200, 200), 7.0)
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_arrays_share_memory() -> None:
    tensor = torch.arange(64.0).reshape(8, 8)
    array = to_jax(tensor)
    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    back = to_torch(jnp.arange(8.0), "x")
    assert back.tolist() == list(range(8)) and to_torch(jnp.zeros((0, 3)), "x").shape == (0, 3)
    assert to_jax(torch.tensor([True, False])).dtype == bool
    with pytest.raises(ArgumentError, match="x: torch cannot use"):
        to_torch(jax.random.key(0), "x")


def test_donated_data_is_named(scene: sn.Scene) -> None:
    advance(scene)
    scene.engine.data.qpos.delete()
    scene.engine.data.xpos.delete()
    with pytest.raises(ScheduleError, match="donated"):
        scene["imu"].data  # noqa: B018


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad], ids=["jit", "vmap", "grad"])
def test_a_traced_function_cannot_update_sensors(scene: sn.Scene, transform: Any) -> None:
    def loss(qpos: Any) -> Any:
        scene.engine.data = scene.engine.data.replace(qpos=qpos)
        return 0.0

    qpos = jnp.zeros((3, 3, 15)) if transform is jax.vmap else jnp.zeros((3, 15))
    with pytest.raises(ScheduleError, match=r"JAX is tracing a function.*outside JAX"):
        transform(loss)(qpos)
    advance(scene)  # the engine is unchanged
