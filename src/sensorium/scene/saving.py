"""Saved state of a scene and its sensors, and the checks made before it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from sensorium.compute.clock import SAMPLE
from sensorium.engines.envs import copies
from sensorium.errors import ConfigError, listed
from sensorium.sensors.core.base import Sensor

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene


OF_ALL_ENVS = ("tick", "skipped", "control_tick")
PER_ENV = ("episode", "reset_tick", "skipped_at_reset")
"""Attributes of the clock that are saved."""
STATE = (*OF_ALL_ENVS, *PER_ENV, "own_control_steps", "lag", "seed", "first_env", "engine", "sensors")
"""Required keys of a saved state; states without ``"observers"`` are of earlier versions."""


def saved_scene(scene: Scene) -> dict[str, Any]:
    """Return a copy of everything that a scene needs to resume bit-identically."""
    clock = scene.clock
    sensors = {}
    for name, sensor in scene.sensors_in_use.items():
        sensors[name] = {"tensors": copies(sensor.tensors()), "counters": sensor.buffers.counters()}
    return {
        **{name: getattr(clock, name) for name in OF_ALL_ENVS},
        **{name: getattr(clock, name).clone() for name in PER_ENV},
        "own_control_steps": scene._own_control_steps,
        "lag": scene.engine.lag,
        "seed": scene.seed,
        "first_env": scene.first_env,
        "engine": scene.engine.state(),
        "sensors": sensors,
        "observers": {
            key: {"tensors": copies(memory.tensors()), "counters": memory.counters()}
            for key, memory in scene.memories().items()
        },
    }


def fitting_sensors(state: Mapping[str, Any], scene: Scene) -> dict[str, Sensor[Any, Any]]:
    """Return the sensors of a saved state in a scene, by name; sensors not read before count as read from now on.

    Raises:
        ConfigError: `state` is not the state of a scene, or its seed, `first_env`, sensors, observers or shapes differ.
    """
    check_state(state, scene)
    if missing := sorted(set(state.get("observers", ())) - set(scene.memories())):
        expected, fix = "the observers of the saved state", "Create them before scene.load_state(...)."
        raise ConfigError.single("Scene", "observers", f"none with {missing[0]!r}", expected, fix)
    table = scene._table
    if not set(state["sensors"]).symmetric_difference(table.configured) <= set(table.free):
        expected = f"the sensors of the saved state: {listed(state['sensors'])}"
        raise ConfigError.single("Scene", "sensors", table.configured, expected)
    sensors = {name: scene[name] for name in state["sensors"]}
    for name, sensor in sensors.items():
        check_saved(sensor, state["sensors"][name]["tensors"])
    for name in set(sensors) - set(scene.sensors_in_use):
        scene._schedule.start_reading(sensors[name].buffers)
    return sensors


def restore(state: Mapping[str, Any], scene: Scene, sensors: Mapping[str, Sensor[Any, Any]]) -> None:
    """Restore a state into a scene with fitting sensors; the caller arranges the scene afterwards."""
    clock = scene.clock
    scene.engine.load_state(state["engine"])
    for name in PER_ENV:
        getattr(clock, name).copy_(state[name])
    clock.skipped, clock.control_tick = state["skipped"], state["control_tick"]
    clock.set(state["tick"], SAMPLE, state["lag"])
    scene._own_control_steps = state["own_control_steps"]
    for key, memory in scene.memories().items():
        if saved := state.get("observers", {}).get(key):
            memory.load(**saved)
        else:
            memory.forget()
    for name, sensor in scene._table.built.items():
        if name in sensors:
            sensor.load(state["sensors"][name]["tensors"], state["sensors"][name]["counters"])
        else:
            sensor.buffers.counter.count_from_start(scene.engine.lag)


def check_state(state: Any, scene: Scene) -> None:
    """Raise `ConfigError` if `state` is not the state of a scene, or is the state of a different scene."""
    expected, fix = "the result of scene.state()", "Save it with torch.save(scene.state(), path)."
    if not isinstance(state, Mapping):
        raise ConfigError.single("Scene.load_state", "state", state, expected, fix)
    if missing := [name for name in STATE if name not in state]:
        raise ConfigError.single("Scene.load_state", "state", list(state), f"{expected}, with {listed(missing)}", fix)
    if not isinstance(state["engine"], Mapping) or not isinstance(state["sensors"], Mapping):
        raise ConfigError.single("Scene.load_state", "state", state, expected, fix)
    for name, mine, saved, what in (
        ("seed", scene.seed, state["seed"], "the seed of the saved state"),
        ("first_env", scene.first_env, state["first_env"], "as saved: the state belongs to another slice of the run"),
        ("engine.num_envs", scene.num_envs, len(state["episode"]), "as saved"),
    ):
        if mine != saved:
            raise ConfigError.single("Scene", name, mine, f"{saved}, {what}")


def check_saved(sensor: Sensor[Any, Any], saved: Mapping[str, torch.Tensor]) -> None:
    """Raise `ConfigError` if saved tensors do not fit a sensor's config.

    Knobs and parameters that were set per environment differ in shape from the config and are not compared.
    """
    mine, stored = ({key: tuple(each.shape) for key, each in tensors.items()} for tensors in (sensor.tensors(), saved))
    for key in {**mine, **stored}:
        kind = key.partition("/")[0]
        if kind == "param" or (key in mine and key in stored and (kind == "knob" or mine[key] == stored[key])):
            continue
        expected = f"shape {stored.get(key, 'none')}, as saved"
        raise ConfigError.single(sensor.cfg.title, key, mine.get(key), expected, "Use the same config.")
