"""Base of tasks for reinforcement learning: a scene with observations, actions, rewards and episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from sensorium.errors import ArgumentError, ConfigError
from sensorium.random import Distribution, stream_key
from sensorium.rl.delay import ActionDelay, DelayLine
from sensorium.scene import ObserverGroups, ObsTerm, Scene
from sensorium.scene.terms import sensor_in

MODEL = "model."
"""Prefix of fields of the physics model in `randomise`."""
MOST_EPISODES = 0x3FFFFFFF
"""Mask of the episode that a seed starts with; later episodes count on from it."""


class Transition(NamedTuple):
    """Result of one control step, before any reset."""

    reward: torch.Tensor
    """float32 `[env]`."""
    terminated: torch.Tensor
    """Bool `[env]`: the episode ended in a terminal state."""
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
        actions: names of the actions; None takes those of the actuators.
        action_delay: delay, jitter and loss of the controls; None for none.
        randomise: distributions that are drawn per env at each reset. ``"sensor.knob"`` sets a knob of a sensor that
            its config gives. ``"model.FIELD"`` multiplies a field of the model by one drawn factor; it requires
            `MujocoEngine`.
        replace_inf: finite value that replaces infinite observations.
        history: as for `Scene.observer`.
        stacked: as for `Scene.observer`.

    Attributes:
        scene: the scene.
        observer: the observer of all groups.
        action: action of the current control step, float32 `[env, action]`; zero after a reset.
        last_action: action of the previous control step.
        episode_length: control steps since the reset, int64 `[env]`.
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
        self.num_envs, self.device = scene.num_envs, torch.device(scene.compute.device)
        self.step_dt = substeps * scene.clock.dt
        self.action_names = tuple(scene.engine.names("actuator") if actions is None else actions)
        self.action = torch.zeros((self.num_envs, len(self.action_names)), device=self.device)
        self.last_action = torch.zeros_like(self.action)
        self.episode_length = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._randomise = dict(randomise or {})
        self._fields = {name: self._field(name) for name in self._randomise if name.startswith(MODEL)}
        for name in self._randomise.keys() - self._fields.keys():
            sensor, knob = sensor_in(scene, name)
            sensor.get(knob)
            amount = getattr(sensor.cfg, knob.partition(".")[0], None)
            amounts = amount.values() if isinstance(amount, Mapping) else [amount]
            if any(isinstance(each, Distribution) for each in amounts):
                fix = "The sensor draws it at each reset: omit it in one of the two places."
                raise ConfigError.single(type(self).__name__, "randomise", name, "a knob that is a number", fix)
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

    def begin_episode(self, env_ids: torch.Tensor) -> Mapping[str, Any]:
        """Return the state that new episodes start with, as for `Scene.reset`; by default the engine's own.

        Draw commands and other parameters of the episode here, with `draw`.

        Args:
            env_ids: int64 `[n]`, environments that start an episode.

        Returns:
            E.g. ``{"qpos": [n, nq], "qvel": [n, nv]}``.
        """
        return {}

    # Use --------------------------------------------------------------------------------------------------------------

    def step(self, action: Any) -> Transition:
        """Take one control step with an action `[env, action]`; environments whose episodes end are not reset.

        Raises:
            ArgumentError: the action has another shape.
        """
        values = torch.as_tensor(action, dtype=torch.float32, device=self.device)
        if values.shape != self.action.shape:
            expected = f"[env, action], {list(self.action.shape)}"
            raise ArgumentError(f"{type(self).__name__}.step: got an action of shape {list(values.shape)}; {expected}")
        self.last_action.copy_(self.action)
        self.action.copy_(values)
        control = self.control(self.action)
        self.scene.step(control if self._delay is None else self._delay.push(control), self.substeps)
        self.episode_length += 1
        terminated = self.terminated()
        truncated = (self.episode_length >= self.max_episode_steps) & ~terminated
        return Transition(self.reward().to(torch.float32), terminated, truncated)

    def observe(self) -> dict[str, torch.Tensor]:
        """Return the current observations by group, as new tensors."""
        return self.observer()

    def reset(self, env_ids: Any = None, *, seed: int | None = None) -> None:
        """Start new episodes in some environments.

        Args:
            env_ids: int ids, a bool mask, or None for all.
            seed: restart the scene at tick 0 with the random numbers of this seed; equal seeds give equal episodes.
                All environments are reset. Running statistics of observations are kept.

        Raises:
            ArgumentError: `env_ids` and `seed` are both given.
        """
        if seed is not None:
            if env_ids is not None:
                raise ArgumentError(f"{type(self).__name__}.reset: seed restarts all environments; omit env_ids.")
            self.scene.load_state(self._initial)
            self.scene.clock.episode.fill_(stream_key(seed, "rl", "episode")[0] & MOST_EPISODES)
        everything = torch.arange(self.num_envs, device=self.device)
        ids = everything if env_ids is None else everything[torch.as_tensor(env_ids, device=self.device)]
        # The random numbers of an episode belong to its number, which counts up in the scene's reset below.
        self.scene.clock.episode[ids] += 1
        try:
            self._randomise_envs(ids)
            state = self.begin_episode(ids)
        finally:
            self.scene.clock.episode[ids] -= 1
        self.scene.reset(None if env_ids is None else ids, **state)
        self.episode_length[ids] = 0
        self.action[ids] = 0.0
        self.last_action[ids] = 0.0
        if self._delay is not None:
            self._delay.reset(ids, self.control(self.action))

    @property
    def action_delay(self) -> torch.Tensor:
        """Current delay of the actions of each environment, without jitter, float32 `[env]`, s."""
        return torch.zeros(self.num_envs, device=self.device) if self._delay is None else self._delay.delay

    def _field(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a field of the model, live for each environment `[env, ...]`, and its current values."""
        batch, field = getattr(self.scene.engine, "batch", None), name.removeprefix(MODEL)
        if batch is None:
            raise ArgumentError(
                f"randomise[{name!r}]: {self.scene.engine.name} has no fields of models per environment."
            )
        try:
            live = torch.from_numpy(batch.expand(field))
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ArgumentError(f"randomise[{name!r}]: MuJoCo cannot vary {field!r} per environment: {error}") from None
        return live, live.clone()

    def _randomise_envs(self, ids: torch.Tensor) -> None:
        """Draw everything in `randomise` for new episodes."""
        for name, distribution in self._randomise.items():
            values = self.draw(f"randomise/{name}", distribution, env_ids=ids)[:, 0]
            if name in self._fields:
                live, original = self._fields[name]
                rows = ids.cpu()
                live[rows] = original[rows] * values.cpu().reshape(-1, *(1,) * (live.dim() - 1)).to(live.dtype)
            else:
                sensor, knob = sensor_in(self.scene, name)
                sensor.set(knob, values, ids)

    def draw(
        self,
        purpose: str,
        distribution: Distribution,
        count: int = 1,
        env_ids: torch.Tensor | None = None,
        *,
        each_tick: bool = False,
    ) -> torch.Tensor:
        """Return random numbers `[n, count]`: a function of the scene's seed, the purpose, env and episode.

        Args:
            purpose: use of the numbers; the same purpose gives the same numbers within an episode.
            distribution: `Uniform`, `Normal` or `Choice`.
            count: numbers per environment.
            env_ids: int64 `[n]`; None for all.
            each_tick: whether they differ from tick to tick.
        """
        clock, ids = self.scene.clock, torch.arange(self.num_envs, device="cpu") if env_ids is None else env_ids.cpu()
        key, tick = stream_key(self.scene.seed, "rl", purpose), clock.tick if each_tick else 0
        envs, episodes = self.scene.first_env + ids.numpy(), clock.episode.cpu()[ids].numpy()
        return torch.from_numpy(distribution.sample(key, tick, envs, episodes, 0, count)).to(self.device)
