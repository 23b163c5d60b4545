"""When a sensor captured: on the grid of its rate for all envs at once, and off it when an env is reset."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sensorium.compute import Clock, Rate


class Captures:
    """The captures of one sensor: how many there were, and at which ticks.

    The grid is the same for all envs, so it is counted on the host; what resets make differ is `[env]`.

    Args:
        clock: the scene's clock.
        rate: the sensor's rate.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        self._clock, self._rate = clock, rate
        compute = clock.compute
        self.samples = 0
        """Captures on the grid so far."""
        self.last_tick = clock.tick
        """Tick of the newest of these."""
        self._last_lag = 0
        self._last_skipped = clock.skipped
        self._frame_base = torch.full((compute.num_envs,), -1, dtype=torch.int64, device=compute.device)
        self.first_tick = torch.full_like(self._frame_base, clock.tick)
        """int64 [env], tick of the sensor's own last reset: its first capture, off the grid."""
        self.first_at = clock.tick
        """The greatest of these, on the host."""
        self.evaluated = -1
        """`clock.version` of the last evaluation on read; -1 before the first."""

    def __repr__(self) -> str:
        return f"Captures(samples={self.samples}, last_tick={self.last_tick})"

    # What a reader sees -----------------------------------------------------------------------------------------------

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], captures since the env's reset; the one at the reset is number 1."""
        return self.samples - self._frame_base

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state that the newest capture is of."""
        return torch.where(self.first_tick >= self.last_tick, self.first_tick, self.last_tick - self._last_lag)

    @property
    def arrival_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the newest capture was made: without a delay it arrives then."""
        return self.first_tick.clamp(min=self.last_tick)

    # What the scene notes ---------------------------------------------------------------------------------------------

    def note_sample(self, tick: int, lag: int) -> None:
        """Note a capture on the grid for all envs.

        Args:
            tick: the tick.
            lag: ticks by which the engine's state is older.
        """
        self.samples += 1
        self.last_tick, self._last_lag = tick, lag

    def note_look(self, tick: int, lag: int) -> bool:
        """Note that a sensor that is evaluated on read is looked at; returns whether it has a sample to compute."""
        due = self._rate.index(tick) - self._rate.index(self.last_tick)
        if due > 0:
            skipped = self._clock.skipped - self._last_skipped
            self.samples += due - skipped if self._rate.every_tick else 1
            self.last_tick, self._last_lag, self._last_skipped = tick, lag, self._clock.skipped
        return due > 0 or tick == self.last_tick or (self.evaluated < 0 and self._rate.every_tick)

    def note_reset(self, mask: torch.Tensor) -> None:
        """Note the capture at a reset for the envs of a uint8 mask."""
        tick, inside = self._clock.tick, mask > 0
        self._frame_base.masked_fill_(inside, self.samples - 1)
        self.first_tick.masked_fill_(inside, tick)
        self.first_at = tick
        self.evaluated = -1

    def count_from_start(self, lag: int, skipped_at_reset: torch.Tensor) -> None:
        """Set everything as if the sensor had been there all the time, sampled at every tick.

        Args:
            lag: ticks by which the engine's state is older.
            skipped_at_reset: int64 [env], `clock.skipped` at the env's last reset.
        """
        clock = self._clock
        self.samples = clock.tick - clock.skipped
        self.last_tick, self._last_lag, self._last_skipped = clock.tick, lag, clock.skipped
        self.first_tick.copy_(clock.reset_tick)
        self.first_at = int(self.first_tick.max())
        self._frame_base.copy_(self.first_tick - skipped_at_reset - 1)
        self.evaluated = -1

    # Saving -----------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that must be saved to resume."""
        return {"frame_base": self._frame_base, "first_tick": self.first_tick}

    def counters(self) -> dict[str, int]:
        """Return the host's counters that must be saved to resume."""
        return {
            "samples": self.samples,
            "first_at": self.first_at,
            "last_tick": self.last_tick,
            "last_skipped": self._last_skipped,
            "last_lag": self._last_lag,
        }

    def load(self, counters: Mapping[str, int]) -> None:
        """Restore what `counters` returned; the tensors are written in place."""
        self.samples, self.first_at = counters["samples"], counters["first_at"]
        self.last_tick, self._last_lag = counters["last_tick"], counters["last_lag"]
        self._last_skipped = counters["last_skipped"]
        self.evaluated = -1


__all__ = ["Captures"]
