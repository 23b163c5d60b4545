"""The slice of a larger run that a scene holds, random numbers by its global environments, and episodes with them."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.engines.envs import env_rows, positive_int
from sensorium.errors import ArgumentError, ConfigError, SensoriumWarning, shown
from sensorium.random import Distribution, stream_key

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

MAX_ENVS = 2**31
"""Maximum number of environments of one run: the index is an int32 in kernels."""
NAME = ""
"""Name in the keys of these numbers: no sensor has it."""


def draw(
    scene: Scene, purpose: str, distribution: Distribution, count: int, env_ids: Any, each_tick: bool
) -> torch.Tensor:
    """Return the result of `Scene.draw`."""
    if not isinstance(purpose, str):
        raise ArgumentError(f"draw: purpose: got {shown(purpose)}, expected text, such as 'start'.")
    if not isinstance(distribution, Distribution):
        expected = "a distribution, such as sn.Uniform(0.0, 1.0)"
        raise ArgumentError(f"draw: distribution: got {shown(distribution)}, expected {expected}.")
    ids, columns = env_indices(scene, env_ids), positive_int(count, "draw: count")
    key, tick = stream_key(scene.seed, NAME, purpose), scene.clock.tick if each_tick else 0
    envs, episodes = scene.first_env + ids.numpy(), scene.clock.episode.cpu()[ids].numpy()
    return torch.from_numpy(distribution.sample(key, tick, envs, episodes, 0, columns)).to(scene.compute.device)


def start_episodes(
    scene: Scene,
    begin: Callable[[torch.Tensor], Mapping[str, Any] | None],
    env_ids: Any = None,
    number: int | None = None,
) -> None:
    """Reset environments into the state that a function draws for their new episodes.

    Args:
        scene: the scene.
        begin: called with the environments, int64 `[n]`; returns values for `Scene.reset`, or None. Its draws belong
            to the new episodes.
        env_ids: int ids, a bool mask, or None for all.
        number: number of the new episodes; None counts on from each environment's last one. It requires `env_ids` to be
            None.
    """
    ids, episode = env_indices(scene, env_ids).to(scene.compute.device), scene.clock.episode
    if number is not None:
        episode.fill_(number - 1)
    episode[ids] += 1  # the reset counts it
    try:
        state = begin(ids) or {}
    finally:
        episode[ids] -= 1
    scene.reset(None if env_ids is None else ids, **state)


def env_indices(scene: Scene, env_ids: Any) -> torch.Tensor:
    """Return the selected environments, int64 `[n]` in host memory."""
    ids = env_rows(env_ids, scene.num_envs)
    return torch.arange(scene.num_envs, device="cpu") if ids is None else ids


def first_env_of(value: Any, num_envs: int) -> int:
    """Return the global index of a scene's first environment.

    Args:
        value: the argument as given; None means 0, with one warning in a process of a distributed launcher.
        num_envs: number of environments of the scene.

    Raises:
        ConfigError: the value is not an integer, is negative or is too large.
    """
    if value is None:
        _warn_where_distributed()
        return 0
    most = MAX_ENVS - num_envs
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= most:
        expected = f"an integer from 0 to {most}"
        raise ConfigError.single("Scene", "first_env", value, expected, "Pass first_env=rank * num_envs.")
    return int(value)


@functools.cache
def _warn_where_distributed() -> None:
    """Warn, once per process, where a launcher started several ranks: all would draw the same random numbers."""
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "several")
    if rank.isdigit() and size != "1":
        warnings.warn(
            f"rank {rank} of {size} builds a Scene without first_env: all ranks draw the same random numbers. Pass "
            "first_env=rank * num_envs, or first_env=0 if the ranks should draw the same numbers.",
            SensoriumWarning,
            stacklevel=6,
        )
