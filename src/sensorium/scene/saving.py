"""What a scene saves of its sensors, and whether it fits when it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from sensorium.errors import ConfigError, listed, shown
from sensorium.sensors.core.base import Sensor

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene


def saved_state(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return a copy of all that a sensor needs to resume bit-identically."""
    tensors = {name: tensor.clone() for name, tensor in sensor.tensors().items()}
    return {"tensors": tensors, "counters": sensor.buffers.counters()}


STATE = (
    "tick", "skipped", "control_tick", "own_control_steps", "lag", "episode", "reset_tick", "skipped_at_reset", "seed",
    "first_env", "engine", "sensors",
)  # fmt: skip
"""What `Scene.state` returns."""


def check_state(state: Any, scene: Scene) -> None:
    """Raise `ConfigError` where something is no state of a scene, or is of another one."""
    expected, fix = "what scene.state() returned", "Save it with torch.save(scene.state(), path)."
    if not isinstance(state, Mapping):
        raise ConfigError.single("Scene.load_state", "state", state, expected, fix)
    if missing := [name for name in STATE if name not in state]:
        raise ConfigError.single("Scene.load_state", "state", list(state), f"{expected}, with {listed(missing)}", fix)
    if not isinstance(state["engine"], Mapping) or not isinstance(state["sensors"], Mapping):
        raise ConfigError.single("Scene.load_state", "state", state, expected, fix)
    for name, mine, saved, what in (
        ("seed", scene.seed, state["seed"], "the seed of the saved state"),
        ("first_env", scene.first_env, state["first_env"], "as saved: the state is of another slice of the run"),
        ("engine.num_envs", scene.num_envs, len(state["episode"]), "as saved"),
    ):
        if mine != saved:
            raise ConfigError.single("Scene", name, mine, f"{saved}, {what}")


def check_saved(sensor: Sensor[Any, Any], saved: Mapping[str, torch.Tensor]) -> None:
    """Raise `ConfigError` where saved tensors are of another config.

    Knobs and parameters that were set per env have other shapes than in the config, so theirs are not compared.
    """
    title, fix = f"{type(sensor.cfg).__name__}({sensor.name!r})", "Use the same config."
    mine = sensor.tensors()
    for key, tensor in mine.items():
        if key.startswith("param/"):
            continue
        if key not in saved or (not key.startswith("knob/") and saved[key].shape != tensor.shape):
            expected = f"shape {tuple(saved[key].shape) if key in saved else 'none'}, as saved"
            raise ConfigError.single(title, key, shown(tuple(tensor.shape)), expected, fix)
    for key, tensor in saved.items():
        if key not in mine and not key.startswith("param/"):
            raise ConfigError.single(title, key, None, f"shape {tuple(tensor.shape)}, as saved", fix)


__all__ = ["check_saved", "check_state", "saved_state"]
