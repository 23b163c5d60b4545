"""Time as integers: ticks, rational rates and episodes, and the few words of it that kernels read.

A tick is one physics step. A rate is an exact rational number of ticks per sample, on a grid that starts at tick 0 and
is the same for all environments. Three samples in ten ticks therefore never drift. This module never subtracts float
times.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
import warp as wp

from sensorium.compute.devices import keeps_current
from sensorium.compute.loading import kernel
from sensorium.compute.program import Compute
from sensorium.errors import SensoriumWarning
from sensorium.spec import exact_fraction

SAMPLE: int = wp.constant(0)
"""Mode of an ordinary sample: states advance."""
FIRST: int = wp.constant(1)
"""Mode of the off-grid capture at a reset, for the envs just reset: states are reinitialised."""

MAX_TICKS = 2**30
"""Longest period or delay, in ticks: kernels store such differences as int32."""


@kernel
def _store(tick: wp.int64, mode: wp.int64, lag: wp.int64, control: wp.int64, words: wp.array[wp.int64]) -> None:
    words[0] = tick
    words[1] = mode
    words[2] = lag
    words[3] = control


@dataclass(frozen=True, slots=True)
class Rate:
    """Exact number of ticks per sample, `period = numerator / denominator` >= 1."""

    numerator: int
    denominator: int

    @classmethod
    def of(cls, dt: Fraction, update_period: float, rate_hz: float | None, label: str) -> Rate:
        """Return the rate that a config requests; a period below dt samples at every tick, with a warning."""
        period = 1 / exact_fraction(rate_hz) if rate_hz is not None else exact_fraction(update_period)
        ticks = period / dt
        if ticks < 1:
            if ticks > 0:
                warnings.warn(
                    f"sensor {label!r}: a sample every {float(period):g} s is faster than the physics step of "
                    f"{float(dt):g} s; it samples every tick. Lower the time step for a faster sensor.",
                    SensoriumWarning,
                    stacklevel=2,
                )
            ticks = Fraction(1)
        return cls(ticks.numerator, ticks.denominator)

    @property
    def every_tick(self) -> bool:
        """Whether every tick has a sample."""
        return self.numerator == self.denominator

    @property
    def period(self) -> float:
        """Mean number of ticks per sample."""
        return self.numerator / self.denominator

    def index(self, tick: int) -> int:
        """Return the index of the newest grid sample at or before a tick; sample 0 is at tick 0."""
        return tick * self.denominator // self.numerator

    def next_after(self, tick: int) -> int:
        """Return the first grid tick after a tick."""
        return -(-(self.index(tick) + 1) * self.numerator // self.denominator)


class Clock:
    """The tick, the control step, and per env the episode and the tick of its last reset.

    Args:
        compute: owner of the time arrays that every launch reads.
        dt: physics time step, s, exact.
    """

    def __init__(self, compute: Compute, dt: Fraction) -> None:
        self.compute = compute
        self.dt_exact = dt
        self.dt = float(dt)
        self.tick = 0
        self.version = 0
        """Number of calls of `set`: results computed under an earlier version are outdated."""
        self.episodes = 0
        """Number of calls of `begin_episode`."""
        self.control_tick = -1
        """Tick at which the current control step started; -1 before the first. Kernels see it after `write`."""
        self.skipped = 0
        """Ticks that jumps passed over: no sensor was sampled at them."""
        self.skipped_at_reset = torch.zeros(compute.num_envs, dtype=torch.int64, device=compute.device)
        """int64 [env], `skipped` at the env's last reset."""
        self._mode, self._lag = SAMPLE, 0
        self.words, self.reset_tick, self.episode = compute.time, compute.reset_tick, compute.episode
        self.words_wp, self.reset_tick_wp, self.episode_wp = map(
            wp.from_torch, (self.words, self.reset_tick, self.episode)
        )
        self.bad = torch.zeros(1, dtype=torch.int32, device=compute.device)
        """int32 [1], set to 1 by any kernel that finds NaN or infinity in the engine's state."""
        self.bad_wp = wp.from_torch(self.bad, dtype=wp.int32)
        self._host: Any = self.words.numpy().data if compute.is_cpu else None
        self.write()

    @cached_property
    def _command(self) -> Any:
        """Launch that writes the words where the host cannot; its kernel is never compiled for the CPU."""
        return self.compute.command(_store, (1,), [0, 0, 0, 0, self.words_wp])

    @property
    def time(self) -> float:
        """Seconds since tick 0."""
        return self.time_at(self.tick)

    def time_at(self, tick: int) -> float:
        """Return the seconds from tick 0 to another one."""
        return tick * self.dt_exact.numerator / self.dt_exact.denominator  # rounded once, as float(Fraction)

    def ticks(self, seconds: float) -> float:
        """Return seconds in ticks, exact for decimal numbers as written in configs."""
        return float(exact_fraction(seconds) / self.dt_exact)

    def begin_control_step(self) -> None:
        """Mark the start of a control step at this tick. Kernels see it after the next call of `set` or `write`."""
        self.control_tick = self.tick

    def set(self, tick: int, mode: int, lag: int) -> None:
        """Set the time and the mode of the next sample, and write them for kernels."""
        self.tick, self._mode, self._lag = tick, mode, lag
        self.version += 1
        self.write()

    def write(self) -> None:
        """Write the words of time that kernels read."""
        host, values = self._host, (self.tick, self._mode, self._lag, self.control_tick)
        if host is not None:
            host[0], host[1], host[2], host[3] = values
        else:
            self._send(values)

    @keeps_current
    def _send(self, values: tuple[int, ...]) -> None:
        command = self._command  # values are launch arguments, so no memory of theirs can be overwritten early
        for index, value in enumerate(values):
            command.set_param_at_index(index, value)
        command.launch(self.compute.stream)

    def begin_episode(self, mask: torch.Tensor) -> None:
        """Record a reset of the envs in a uint8 mask at the current tick."""
        self.episodes += 1
        self.episode.add_(mask)
        self.reset_tick.masked_fill_(mask > 0, self.tick)
        self.skipped_at_reset.masked_fill_(mask > 0, self.skipped)
