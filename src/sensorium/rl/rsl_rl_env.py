"""Wrapper for rsl_rl: groups of observations as a TensorDict, resets within the step."""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.env import VecEnv

from sensorium.rl.env import RlEnv
from sensorium.scene.observer import as_tensordict


class RslRlEnv(VecEnv):  # type: ignore[misc]  # rsl_rl has no types
    """An `RlEnv` as the vector environment of rsl_rl.

    `step` resets finished environments at once. ``extras["time_outs"]`` marks the truncated ones, for which PPO adds
    the value of the next state, and ``extras["diverged"]`` those that diverged, see `RlEnv.diverged`. The runner's
    ``obs_groups`` map its inputs to groups of observations: ``{"actor": ["policy"], "critic": ["critic"]}``.

    Args:
        env: the task.
        cfg: description of the task that the runner writes to its log.
    """

    def __init__(self, env: RlEnv, cfg: dict[str, Any] | None = None) -> None:
        self.env, self.cfg = env, dict(cfg or {})
        self.num_envs, self.num_actions = env.num_envs, len(env.action_names)
        self.max_episode_length, self.device = env.max_episode_steps, env.device
        self.env.reset()

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Control steps since the reset, int64 `[env]`; the runner may set it to spread the first time-outs."""
        return self.env.episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: torch.Tensor) -> None:
        self.env.episode_length.copy_(lengths)

    def get_observations(self) -> Any:
        """Return the current observations as a TensorDict of groups."""
        return as_tensordict(self.env.observe())

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Take one control step; return observations (after resets), rewards, dones and extras."""
        reward, terminated, truncated = self.env.step(actions)
        done, diverged = terminated | truncated, self.env.diverged.clone()
        if bool(done.any()):
            self.env.reset(done)
        return self.get_observations(), reward, done, {"time_outs": truncated, "diverged": diverged}
