"""Delay of actions on their way to the motors, in physics ticks, including fractions of a control step."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import torch

from sensorium.cfg import amount_bounds
from sensorium.errors import ConfigError
from sensorium.random import Distribution, Uniform

if TYPE_CHECKING:
    from sensorium.rl.env import RlEnv

NEVER = 2**62
"""Tick at which a lost action arrives."""


@dataclass(frozen=True, slots=True)
class ActionDelay:
    """Delay, jitter and loss of the controls that follow from actions.

    A control arrives at round((delay + jitter) / dt) ticks after its control step has started. The newest control that
    has arrived is in effect; before the first one it is that of a zero action. An action may therefore arrive within a
    control step.

    Args:
        delay: s, or a distribution that is drawn per env and episode.
        jitter: further delay, s, drawn per action, uniform in [0, jitter).
        loss: probability that an action never arrives.

    Raises:
        ConfigError: an argument is negative, not finite, or no probability.
    """

    delay: float | Distribution
    _: KW_ONLY
    jitter: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("delay", math.inf), ("jitter", math.inf), ("loss", 1.0)):
            low, high = amount_bounds(getattr(self, name))
            if not (0.0 <= low and high < math.inf and high <= most):
                expected = "a probability in [0, 1]" if name == "loss" else "seconds >= 0, of a bounded distribution"
                raise ConfigError.single("ActionDelay", name, getattr(self, name), expected)


class DelayLine:
    """Controls of an environment on their way to the motors.

    Args:
        cfg: delay, jitter and loss.
        env: environment; its scene is stepped tick by tick where a control may arrive within a control step.
        size: number of controls.

    Attributes:
        delay: current delay of each environment, without jitter, float32 `[env]`, s.
    """

    def __init__(self, cfg: ActionDelay, env: RlEnv, size: int) -> None:
        self._cfg, self._env = cfg, env
        scene, most = env.scene, amount_bounds(cfg.delay)[1] + cfg.jitter
        steps = math.floor(scene.clock.ticks(most) + 0.5) // env.substeps + 2
        self._controls = torch.zeros((steps, env.num_envs, size), device=env.device)
        self._arrivals = torch.full((steps, env.num_envs), NEVER, dtype=torch.int64, device=env.device)
        self._order = torch.arange(steps, device=env.device)
        self._envs = torch.arange(env.num_envs, device=env.device)
        self._held = torch.zeros((env.num_envs, size), device=env.device)
        self._count = 0
        self.delay = torch.zeros(env.num_envs, device=env.device)
        step = env.substeps * scene.clock.dt
        is_whole = isinstance(cfg.delay, int | float) and not cfg.jitter and math.isclose(cfg.delay % step, 0.0)
        self._watch = None if is_whole else scene.watch(self._write, every_tick=True)

    def reset(self, env_ids: torch.Tensor, control: torch.Tensor) -> None:
        """Draw new delays in some environments, and put `control` `[env, size]` into effect there."""
        cfg, env = self._cfg, self._env
        fixed = Uniform(float(cfg.delay), float(cfg.delay)) if isinstance(cfg.delay, int | float) else cfg.delay
        self.delay[env_ids] = env.scene.draw("action_delay", fixed, env_ids=env_ids)[:, 0].clamp(min=0.0)
        self._held[env_ids] = control[env_ids]
        self._arrivals[:, env_ids] = NEVER

    def push(self, control: torch.Tensor) -> torch.Tensor:
        """Send a control `[env, size]` at the start of a control step, and return the one in effect."""
        cfg, env = self._cfg, self._env
        late = self.delay
        if cfg.jitter:
            late = late + env.scene.draw("action_jitter", Uniform(0.0, cfg.jitter), each_tick=True)[:, 0]
        slot, now = self._count % len(self._order), env.scene.clock.tick
        self._count += 1
        self._controls[slot] = control
        self._arrivals[slot] = now + torch.floor(late / env.scene.clock.dt + 0.5).to(torch.int64)
        if cfg.loss:
            lost = env.scene.draw("action_loss", Uniform(0.0, 1.0), each_tick=True)[:, 0] < cfg.loss
            self._arrivals[slot].masked_fill_(lost, NEVER)
        return self._in_effect()

    def _in_effect(self) -> torch.Tensor:
        """Return the newest control that has arrived, `[env, size]`."""
        slots = (self._count - 1 - self._order) % len(self._order)
        has_arrived = self._arrivals[slots] <= self._env.scene.clock.tick
        newest = self._controls[slots[has_arrived.to(torch.uint8).argmax(dim=0)], self._envs]
        self._held = torch.where(has_arrived.any(dim=0)[:, None], newest, self._held)
        return self._held

    def _write(self) -> None:
        """Put a control into effect that arrives within the control step."""
        if self._env.scene.is_within_step:
            ctrl = self._env.scene.engine.ctrl  # type: ignore[attr-defined]
            ctrl.copy_(self._in_effect())
