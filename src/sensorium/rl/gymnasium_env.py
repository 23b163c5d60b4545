"""Wrappers for Gymnasium: a vector environment with all three modes of automatic resets, and a single environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sensorium.engines.envs import as_tensor
from sensorium.errors import ArgumentError, ConfigError, ScheduleError
from sensorium.random import checked_seed
from sensorium.rl.env import RlEnv
from sensorium.scene.observer import Observer

Array = np.ndarray[Any, Any]


def space_of(observer: Observer) -> spaces.Box:
    """Return the space of one environment's observation in a group."""
    low, high = observer.low, observer.high
    return spaces.Box(low, high, dtype=np.float32)


def spaces_of(env: RlEnv, group: str | None, action_limit: float | None) -> tuple[spaces.Space[Any], spaces.Box]:
    """Return the spaces of one environment's observations and actions."""
    space: spaces.Space[Any]
    if group is None:
        space = spaces.Dict({name: space_of(observer) for name, observer in env.observer.items()})
    else:
        space = space_of(env.observer[group])
    limit = np.inf if action_limit is None else float(action_limit)
    if not limit > 0.0:
        raise ConfigError.single("sensorium.rl", "action_limit", action_limit, "a number above 0, or None")
    return space, spaces.Box(-limit, limit, (len(env.action_names),), np.float32)


def to_numpy(obs: Mapping[str, torch.Tensor], group: str | None) -> Any:
    """Return observations on the host: the array of a group, or a dict of all groups."""
    if group is not None:
        return obs[group].cpu().numpy()
    return {name: values.cpu().numpy() for name, values in obs.items()}


class GymnasiumVectorEnv(VectorEnv[Any, Array, Array]):
    """An `RlEnv` as a vector environment of Gymnasium.

    With ``NEXT_STEP`` (the default of Gymnasium), a finished environment is reset by the next call of `step`, which
    ignores its action and returns a reward of 0. With ``SAME_STEP``, `step` resets it at once; ``info["final_obs"]``
    and ``info["_final_obs"]`` then hold the observations from before the reset and the mask of these environments. With
    ``DISABLED``, the caller resets it: ``reset(options={"reset_mask": mask})``. If environments diverged, see
    `RlEnv.diverged`, ``info["diverged"]`` of that step marks them, bool `[env]`.

    Args:
        env: the task.
        group: group of observations to return; None for a dict of all groups.
        autoreset_mode: a mode of Gymnasium, or its value such as ``"SameStep"``.
        action_limit: maximum magnitude of an action in the action space; None for none.

    Raises:
        UnknownNameError: there is no such group.
    """

    def __init__(
        self,
        env: RlEnv,
        group: str | None = "policy",
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        action_limit: float | None = 1.0,
    ) -> None:
        self.env, self._group = env, group
        self.num_envs = env.num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space, self.single_action_space = spaces_of(env, group, action_limit)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._done = torch.zeros(self.num_envs, dtype=torch.bool, device=env.device)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of the bool array ``options["reset_mask"]``.

        Args:
            seed: see `RlEnv.reset`.
            options: may contain ``"reset_mask"``.

        Raises:
            ArgumentError: the seed is not an integer of at least 0, or the mask is not a bool array `[env]`, is empty,
                or is given with a seed.
        """
        super().reset(seed=None if seed is None else checked_seed(seed, 0))
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            mask = np.asarray(mask)
            if mask.dtype != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
                raise ArgumentError(
                    f"options['reset_mask']: expected a bool array ({self.num_envs},) with a True value"
                )
        self.env.reset(None if mask is None else torch.from_numpy(mask), seed=seed)
        self._done[slice(None) if mask is None else torch.from_numpy(mask).to(self._done.device)] = False
        return self._observed(), {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take one control step; see the class for resets."""
        waiting = self._done
        is_waiting = bool(waiting.any())
        if is_waiting and self.autoreset_mode == AutoresetMode.DISABLED:
            ids = waiting.nonzero()[:, 0].tolist()
            raise ScheduleError(f"environments {ids} are done: call reset(options={{'reset_mask': mask}}) first.")
        reward, terminated, truncated = self.env.step(actions)
        if is_waiting:  # only with NEXT_STEP
            self.env.reset(waiting)
            reward, terminated, truncated = (each.masked_fill(waiting, 0) for each in (reward, terminated, truncated))
        done, diverged = terminated | truncated, self.env.diverged.cpu().numpy().copy()
        info: dict[str, Any] = {"diverged": diverged, "_diverged": diverged} if diverged.any() else {}
        obs = self._observed()
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self._done = done
        elif bool(done.any()):
            mask = done.cpu().numpy()
            info |= {"final_obs": _rows(obs, mask), "final_info": dict(info), "_final_obs": mask, "_final_info": mask}
            self.env.reset(done)
            obs = self._observed()
        rewards = reward.cpu().numpy().astype(np.float64)
        return obs, rewards, terminated.cpu().numpy(), truncated.cpu().numpy(), info

    def _observed(self) -> Any:
        return to_numpy(self.env.observe(), self._group)


def _rows(obs: Any, mask: Array) -> Array:
    """Return observations by environment as an object array, None outside the mask."""
    rows = np.full(len(mask), None, dtype=object)
    for env in np.flatnonzero(mask):  # few: environments whose episode ended
        rows[env] = {name: each[env].copy() for name, each in obs.items()} if isinstance(obs, dict) else obs[env].copy()
    return rows


class GymnasiumEnv(gymnasium.Env[Any, Array]):
    """An `RlEnv` with one environment as a single environment of Gymnasium.

    ``info["diverged"]`` of `step` is True if the episode ended because the environment diverged, see `RlEnv.diverged`.
    Otherwise it is absent.

    Args:
        env: the task.
        group: group of observations to return; None for a dict of all groups.
        action_limit: maximum magnitude of an action in the action space; None for none.

    Raises:
        ConfigError: the task has several environments.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(self, env: RlEnv, group: str | None = "policy", *, action_limit: float | None = 1.0) -> None:
        if env.num_envs != 1:
            raise ConfigError.single("GymnasiumEnv", "env", env.num_envs, "one environment", "Use GymnasiumVectorEnv.")
        self.env, self._group = env, group
        self.observation_space, self.action_space = spaces_of(env, group, action_limit)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; `seed` is that of `RlEnv.reset`, at least 0, and `options` are not used."""
        super().reset(seed=None if seed is None else checked_seed(seed, 0))
        self.env.reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one control step."""
        reward, terminated, truncated = self.env.step(as_tensor(action, "GymnasiumEnv.step: action")[None])
        info = {"diverged": True} if self.env.diverged else {}
        return self._observed(), float(reward), bool(terminated), bool(truncated), info

    def _observed(self) -> Any:
        obs = to_numpy(self.env.observe(), self._group)
        return {name: each[0] for name, each in obs.items()} if isinstance(obs, dict) else obs[0]
