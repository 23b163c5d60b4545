"""Sensors for MJX and MuJoCo Playground: an engine over `mjx.Data`, readings as JAX arrays, and a wrapper.

    engine = sensorium.jax.from_mjx(model, mx, data)  # data has a leading env axis
    scene = sensorium.Scene(engine, [imu])
    data = step(mx, data)  # jax.jit(jax.vmap(mjx.step, in_axes=(None, 0)))
    engine.data = data
    scene.update()
    readings = sensorium.jax.read(scene["imu"])

Functions raise a `MissingDependencyError` where jax or mujoco-mjx is not installed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from sensorium.engines.mjx.arrays import to_jax
from sensorium.engines.mjx.live import LiveMjxEngine
from sensorium.errors import ArgumentError, shown
from sensorium.jax.wrapper import SensorWrapper
from sensorium.scene.observer import Observer
from sensorium.sensors.core.base import Sensor

__all__ = ["LiveMjxEngine", "SensorWrapper", "from_mjx", "read", "read_ground_truth"]


def from_mjx(model: Any, mx: Any, data: Any, *, fresh: bool = True) -> LiveMjxEngine:
    """Wrap a loop that steps MJX itself, assigns each new `mjx.Data` to `engine.data` and calls `scene.update()`.

    Args:
        model: the MjModel.
        mx: the `mjx.Model` created from it; fields of a domain randomisation may have a leading env axis.
        data: `mjx.Data` with a leading env axis in all arrays.
        fresh: whether MJX's forward computation brings derived state up to date with the current state. False reads the
            state that the step left, which is one tick old, at no cost.

    Raises:
        ModelError: an argument has a wrong type or size, or the model is not supported; see `LiveMjxEngine`.
        ScheduleError: an argument is a tracer.
        MissingDependencyError: jax or mujoco-mjx is not installed.
    """
    return LiveMjxEngine(model, mx, data, fresh=fresh)


def read(source: Sensor[Any, Any] | Observer, env_ids: Any = None) -> Any:
    """Return the measured data of a sensor, or an observation, as JAX arrays that never change.

    Args:
        source: a sensor, or an observer of `Scene.observer`.
        env_ids: int ids, bool mask or None for all environments; for sensors only.

    Returns:
        Field -> array `[env, ...]` on the sensor's device; one array where the sensor's data is one tensor, and for an
        observer.

    Raises:
        ArgumentError: `source` is neither.
    """
    return to_jax(source()) if isinstance(source, Observer) else _arrays(_sensor(source, "source").read(env_ids))


def read_ground_truth(sensor: Sensor[Any, Any], env_ids: Any = None) -> Any:
    """Return the true data of a sensor as JAX arrays that never change; arguments and result as for `read`."""
    return _arrays(_sensor(sensor, "sensor").read_ground_truth(env_ids))


def _sensor(given: Any, what: str) -> Sensor[Any, Any]:
    if not isinstance(given, Sensor):
        raise ArgumentError(f"{what}: got {shown(given)}, expected a sensor of the scene, e.g. scene['imu'].")
    return given


def _arrays(data: Any) -> Any:
    """Convert tensors that are never written again to JAX arrays that share their memory."""
    if isinstance(data, Tensor):
        return to_jax(data)
    values = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    return {name: to_jax(value) for name, value in values.items() if isinstance(value, Tensor)}
