"""Wrapper for Stable-Baselines3: NumPy arrays, resets within the step, one info dict per environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from sensorium.random import checked_seed
from sensorium.rl.env import RlEnv
from sensorium.rl.gymnasium_env import Array, spaces_of, to_numpy


class StableBaselinesEnv(VecEnv):  # type: ignore[misc]  # a class without complete types
    """An `RlEnv` as the vector environment of Stable-Baselines3.

    The info of a finished environment holds ``"terminal_observation"``, which is from before the reset,
    ``"TimeLimit.truncated"``, and ``"diverged"``: whether the environment diverged, see `RlEnv.diverged`.

    Args:
        env: the task.
        group: group of observations to return; None for a dict of all groups.
        action_limit: maximum magnitude of an action in the action space; None for none.
    """

    def __init__(self, env: RlEnv, group: str | None = "policy", *, action_limit: float | None = 1.0) -> None:
        self.env, self._group, self.render_mode = env, group, None
        self._actions: Array = np.zeros((env.num_envs, len(env.action_names)), np.float32)
        super().__init__(env.num_envs, *spaces_of(env, group, action_limit))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seed of the next `reset`, an integer of at least 0, and return those of the environments."""
        seeds: Sequence[int | None] = super().seed(None if seed is None else checked_seed(seed, 0))
        return seeds

    def reset(self) -> Any:
        """Reset all environments, with the seed of a preceding `seed` if there is one."""
        self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return to_numpy(self.env.observe(), self._group)

    def step_async(self, actions: Array) -> None:
        """Store the actions of the next `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Take one control step; return observations (after resets), rewards, dones and infos."""
        reward, terminated, truncated = self.env.step(self._actions)
        done = (terminated | truncated).cpu().numpy()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        obs = to_numpy(self.env.observe(), self._group)
        if done.any():
            late, diverged = truncated.cpu().numpy(), self.env.diverged.cpu().numpy()
            for k in np.flatnonzero(done):
                final = {name: each[k] for name, each in obs.items()} if isinstance(obs, dict) else obs[k]
                infos[k] = {"terminal_observation": final, "TimeLimit.truncated": bool(late[k])}
                infos[k]["diverged"] = bool(diverged[k])
            self.env.reset(terminated | truncated)
            obs = to_numpy(self.env.observe(), self._group)
        return obs, reward.cpu().numpy(), done, infos

    def close(self) -> None:
        """Do nothing, since the scene belongs to the task."""

    # Attributes: all environments share those of the task -------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute of this wrapper or of the task, once for each selected environment."""
        own = self if attr_name in ("render_mode", "spec") else self.env
        return [getattr(own, attr_name)] * len(self._selected(indices))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of the task, which all environments share."""
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the task once; return the result for each selected environment."""
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result] * len(self._selected(indices))

    def env_is_wrapped(self, wrapper_class: Any, indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return False for each selected environment: they have no wrappers of single environments."""
        return [False] * len(self._selected(indices))

    def _selected(self, indices: int | Iterable[int] | None) -> Sequence[int]:
        return list(self._get_indices(indices))
