"""Base of tasks for reinforcement learning: a scene with observations, actions, rewards and episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from sensorium.engines.envs import as_tensor
from sensorium.errors import ArgumentError, ConfigError, shown
from sensorium.random import Distribution, stream_key
from sensorium.rl.delay import ActionDelay, DelayLine
from sensorium.rl.randomise import Randomisation
from sensorium.scene import Scene
from sensorium.scene.draws import env_indices, start_episodes
from sensorium.scene.observer import ObserverGroups
from sensorium.scene.terms import ObsTerm

MAX_EPISODES = 0x3FFFFFFF
"""Mask of the episode that a seed starts with; later episodes count on from it."""


class Transition(NamedTuple):
    """Result of one control step, before any reset."""

    reward: torch.Tensor
    """float32 `[env]`."""
    terminated: torch.Tensor
    """Bool `[env]`: the episode ended in a terminal state, or the environment diverged (see `RlEnv.diverged`)."""
    truncated: torch.Tensor
    """Bool `[env]`: the episode was cut off by its time limit and did not terminate."""


class RlEnv:
    """N environments of one task. Subclass it and define `reward`; the other methods have defaults.

    `step` takes one control step without resets. The wrappers in `sensorium.rl` reset environments whose episodes
    have ended, each by the rules of its library. Before ``super().__init__(...)``, set the attributes that your methods
    and the functions of terms use.

    Args:
        scene: scene with the robot and its sensors.
        observations: group -> terms, as for ``Scene.observer(groups=...)``. Libraries expect the groups ``"policy"``
            and, for privileged training, ``"critic"``.
        substeps: physics ticks per control step.
        max_episode_steps: control steps until an episode is truncated.
        actions: names of the actions; None takes those of the controls, one for each.
        action_delay: delay, jitter and loss of the controls; None for none.
        randomise: distributions that are drawn per env at each reset. ``"sensor.knob"`` sets a knob of a sensor that
            its config gives. ``"model.FIELD"`` multiplies a field of the model by one drawn factor; it requires
            `MujocoEngine`. The factor of ``body_mass`` also applies to ``body_inertia``, and the constants that MuJoCo
            derives from a field follow it.
        replace_inf: finite value that replaces infinite observations.
        history: as for `Scene.observer`.
        stacked: as for `Scene.observer`.

    Attributes:
        scene: the scene.
        draw: `Scene.draw`, for `begin_episode` and other methods.
        observer: the observer of all groups.
        randomisation: the distributions of `randomise`; its `restore` puts the model back, for another scene.
        action: action of the current control step, float32 `[env, action]`; zero after a reset.
        last_action: action of the previous control step.
        episode_length: control steps since the reset, int64 `[env]`.
        diverged: environments whose simulation became NaN, infinite or huge in the current episode, or whose action
            or reward was not finite, bool `[env]`.
        step_dt: duration of a control step, s.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        scene: Scene,
        observations: Mapping[str, Sequence[str | ObsTerm]],
        *,
        substeps: int = 1,
        max_episode_steps: int = 1000,
        actions: Sequence[str] | None = None,
        action_delay: ActionDelay | None = None,
        randomise: Mapping[str, Distribution] | None = None,
        replace_inf: float | None = None,
        history: int = 0,
        stacked: bool | Sequence[str] = False,
    ) -> None:
        for name, value in (("substeps", substeps), ("max_episode_steps", max_episode_steps)):
            if not (isinstance(value, int) and value >= 1):
                raise ConfigError.single(type(self).__name__, name, value, "a whole number >= 1")
        self.scene, self.substeps, self.max_episode_steps = scene, substeps, max_episode_steps
        self.draw = scene.draw
        self.num_envs, self.device = scene.num_envs, torch.device(scene.compute.device)
        self.step_dt = substeps * scene.clock.dt
        self.action_names = tuple(scene.engine.control_names if actions is None else actions)
        self.action = torch.zeros((self.num_envs, len(self.action_names)), device=self.device)
        self.last_action = torch.zeros_like(self.action)
        self.episode_length = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self.diverged = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self.randomisation = Randomisation(scene, randomise or {}, title=type(self).__name__)
        self.observer: ObserverGroups = scene.observer(
            groups=observations, replace_inf=replace_inf, history=history, stacked=stacked
        )
        self._initial = {**scene.state(), "observers": {}}
        self._delay = None
        if action_delay is not None:
            control = self.control(self.action)
            self._delay = DelayLine(action_delay, self, control.shape[1])
            self._delay.reset(torch.arange(self.num_envs, device=self.device), control)

    # The task ---------------------------------------------------------------------------------------------------------

    def control(self, action: torch.Tensor) -> torch.Tensor:
        """Return the control `[env, nu]` of an action `[env, action]`; by default the action itself."""
        return action

    def reward(self) -> torch.Tensor:
        """Return the reward of the control step that was just taken, float32 `[env]`."""
        raise NotImplementedError(f"{type(self).__name__} must define reward(self)")

    def terminated(self) -> torch.Tensor:
        """Return whether episodes ended in a terminal state, bool `[env]`; by default never."""
        return torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    def begin_episode(self, env_ids: torch.Tensor) -> Mapping[str, Any] | None:
        """Return the state that new episodes start with, as for `Scene.reset`; by default the engine's own.

        Draw commands and other parameters of the episode here, with ``self.draw``.

        Args:
            env_ids: int64 `[n]`, environments that start an episode.

        Returns:
            E.g. ``{"qpos": [n, nq], "qvel": [n, nv]}``; None or an empty mapping for the engine's own state.
        """
        return None

    # Use --------------------------------------------------------------------------------------------------------------

    def step(self, action: Any) -> Transition:
        """Take one control step with an action `[env, action]`; environments whose episodes end are not reset.

        The episode of a diverged environment has terminated, and its reward is 0.

        Returns:
            New tensors, which later steps and resets do not change.

        Raises:
            ArgumentError: the action has another shape or is not of real numbers, or `reward` or `terminated` returned
                anything but a tensor `[env]`.
        """
        values = as_tensor(action, f"{type(self).__name__}.step: action").to(self.device, torch.float32)
        if values.shape != self.action.shape:
            expected = f"[env, action], {list(self.action.shape)}"
            raise ArgumentError(f"{type(self).__name__}.step: got an action of shape {list(values.shape)}; {expected}")
        self.last_action.copy_(self.action)
        self.action.copy_(values)
        control = self.control(self.action)
        self.scene.step(control if self._delay is None else self._delay.push(control), self.substeps)
        self.episode_length += 1
        self.diverged |= ~values.isfinite().all(dim=1)
        if (diverged := self.scene.engine.diverged) is not None:
            self.diverged |= diverged.to(self.device)
        terminated = self._own("terminated", self.terminated(), torch.bool)
        reward = self._own("reward", self.reward(), torch.float32)
        self.diverged |= ~reward.isfinite()  # engines that step user code do not report it
        terminated |= self.diverged
        truncated = (self.episode_length >= self.max_episode_steps) & ~terminated
        reward.masked_fill_(self.diverged, 0.0)
        return Transition(reward, terminated, truncated)

    def _own(self, name: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
        """Return a copy of the result of a method, which may be a view of a sensor that the next reset overwrites."""
        if not isinstance(value, torch.Tensor) or value.shape != (self.num_envs,):
            got = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else shown(value)
            raise ArgumentError(f"{type(self).__name__}.{name}: returned {got}, expected [env], [{self.num_envs}].")
        return value.to(self.device, dtype, copy=True)

    def observe(self) -> dict[str, torch.Tensor]:
        """Return the current observations by group, as new tensors.

        Values of diverged environments that are not finite are 0.
        """
        groups = self.observer()
        if self.device.type != "cpu" or bool(self.diverged.any()):  # without waiting for a GPU
            for values in groups.values():
                rows = self.diverged.reshape(-1, *[1] * (values.dim() - 1))
                values.masked_fill_(rows & ~values.isfinite(), 0.0)
        return groups

    def reset(self, env_ids: Any = None, *, seed: int | None = None) -> None:
        """Start new episodes in some environments.

        Args:
            env_ids: int ids, a bool mask, or None for all.
            seed: restart the scene at tick 0 with the random numbers of this seed; equal seeds give equal episodes.
                All environments are reset. Running statistics of observations are kept.

        Raises:
            ArgumentError: `env_ids` are not those of environments, `seed` is not an integer, or both are given.
        """
        if seed is not None:
            if env_ids is not None:
                raise ArgumentError(f"{type(self).__name__}.reset: seed restarts all environments; omit env_ids.")
            first = stream_key(seed, "rl", "episode")[0] & MAX_EPISODES
            self.scene.load_state(self._initial)
            self.scene.clock.episode.fill_(first)
        ids = env_indices(self.scene, env_ids).to(self.device)
        if not len(ids):
            return
        start_episodes(self.scene, self._begin, None if env_ids is None else ids)
        self.episode_length[ids] = 0
        self.diverged[ids] = False
        self.action[ids] = 0.0
        self.last_action[ids] = 0.0
        if self._delay is not None:
            self._delay.reset(ids, self.control(self.action))

    def _begin(self, env_ids: torch.Tensor) -> Mapping[str, Any] | None:
        self.randomisation.apply(env_ids)
        return self.begin_episode(env_ids)

    @property
    def action_delay(self) -> torch.Tensor:
        """Current delay of the actions of each environment, without jitter, float32 `[env]`, s."""
        return torch.zeros(self.num_envs, device=self.device) if self._delay is None else self._delay.delay.clone()
