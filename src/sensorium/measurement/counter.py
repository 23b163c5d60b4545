"""When a sensor captured: on the grid of its rate for all envs at once, and off it when an env is reset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from sensorium.compute.clock import Clock, Rate


@dataclass(slots=True)
class Count:
    """Captures on the grid: of one sensor, or of a group that is sampled together."""

    samples: int
    """Captures on the grid."""
    last_tick: int
    """Tick of the newest of these."""
    last_lag: int
    """Ticks by which the state it is of is older."""
    last_skipped: int
    """`Clock.skipped` at that tick."""
    version: int = -1
    """`Clock.version` of the last evaluation on read; -1 where that must be repeated."""

    def note_sample(self, tick: int, lag: int) -> None:
        """Note a capture."""
        self.samples += 1
        self.last_tick, self.last_lag = tick, lag

    def go_back(self, saved: Count) -> None:
        """Undo what was noted since a copy was made."""
        self.samples, self.last_tick = saved.samples, saved.last_tick
        self.last_lag, self.last_skipped = saved.last_lag, saved.last_skipped

    def note_look(self, tick: int, lag: int, skipped: int) -> None:
        """Note a look at sensors without memory that have a sample at every tick but the skipped ones."""
        if tick > self.last_tick:
            self.samples += tick - self.last_tick - (skipped - self.last_skipped)
            self.last_tick, self.last_lag, self.last_skipped = tick, lag, skipped


class SampleCounter:
    """The captures of one sensor: how many there were, and at which ticks.

    The grid is the same for all envs, so it is counted on the host; what resets make differ is `[env]`.

    Args:
        clock: the scene's clock.
        rate: the sensor's rate.
        in_flight: ticks that a sample may be under way; off-grid captures are remembered as long.
    """

    def __init__(self, clock: Clock, rate: Rate, *, in_flight: int) -> None:
        self._clock, self._rate, self._in_flight = clock, rate, in_flight
        self.count = Count(0, clock.tick, 0, clock.skipped)
        self._base = 0
        device = clock.compute.device
        self._frame_base = torch.full((clock.compute.num_envs,), -1, dtype=torch.int64, device=device)
        self.first_tick = torch.full_like(self._frame_base, clock.tick)
        """int64 [env], tick of the sensor's own last reset: its first capture, off the grid."""
        self.first_at = clock.tick
        """The greatest of these, on the host."""
        self.off_grid = 0
        """Captures off the grid so far: at resets of any env, and evaluations of a capture anew."""
        self._resets = (clock.tick, clock.tick)  # first and last of those whose captures may be under way

    def __repr__(self) -> str:
        return f"SampleCounter(samples={self.samples}, last_tick={self.last_tick})"

    def join(self, count: Count) -> None:
        """Count by a group's count from now on, which is at the same tick or about to be."""
        self._base = self.samples - count.samples
        self.count = count

    def leave(self) -> Count:
        """Count by itself from now on, and return that count."""
        self.count, self._base = replace(self.count, samples=self.samples), 0
        return self.count

    # What a reader sees -----------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Captures on the grid so far."""
        return self.count.samples + self._base

    @property
    def last_tick(self) -> int:
        """Tick of the newest of these."""
        return self.count.last_tick

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], captures since the env's reset; the one at the reset is number 1."""
        return self.samples - self._frame_base

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state that the newest capture is of."""
        return torch.where(self.first_tick >= self.last_tick, self.first_tick, self.last_tick - self.count.last_lag)

    @property
    def arrival_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the newest capture was made: without a delay it arrives then."""
        return self.first_tick.clamp(min=self.last_tick)

    @property
    def is_of_now(self) -> bool:
        """Whether there is a capture of the clock's tick, for one env at least."""
        return self._clock.tick in (self.last_tick, self.first_at)

    def may_arrive(self, after: int, soonest: int, latest: int) -> bool:
        """Whether a capture may arrive at a tick after `after` and up to now, as far as the host knows.

        Args:
            after: a tick.
            soonest: ticks from a capture to its arrival, at least.
            latest: ticks from a capture to its arrival, at most.
        """
        first, last = after + 1 - latest, self._clock.tick - soonest
        newest = self._rate.at_or_before(min(last, self.last_tick))
        return newest >= first or (self._resets[0] <= last and self._resets[1] >= first)

    # What is noted ----------------------------------------------------------------------------------------------------

    def note_reset(self, mask: torch.Tensor) -> None:
        """Note the capture at a reset for the envs of a uint8 mask."""
        tick, inside = self._clock.tick, mask > 0
        self._frame_base.masked_fill_(inside, self.samples - 1)
        self.first_tick.masked_fill_(inside, tick)
        self.first_at = tick
        self.off_grid += 1
        oldest = self._resets[0] if tick - self._resets[1] <= self._in_flight else tick
        self._resets = (oldest, tick)
        self.count.version = -1

    def restart(self) -> None:
        """Count by itself from the clock's tick on, which may be an earlier one; a reset of all envs follows."""
        tick, count = self._clock.tick, self.leave()
        count.last_tick, count.version = min(count.last_tick, tick), -1
        self._resets = (tick, tick)

    def count_from_start(self, lag: int, skipped_at_reset: torch.Tensor) -> None:
        """Set everything as if the sensor had been there all the time, sampled at every tick.

        Args:
            lag: ticks by which the engine's state is older.
            skipped_at_reset: int64 [env], `clock.skipped` at the env's last reset.
        """
        clock = self._clock
        self.count, self._base = Count(clock.tick - clock.skipped, clock.tick, lag, clock.skipped), 0
        self.first_tick.copy_(clock.reset_tick)
        self.first_at = int(self.first_tick.max())
        self._frame_base.copy_(self.first_tick - skipped_at_reset - 1)
        self.off_grid += 1

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
            "last_skipped": self.count.last_skipped,
            "last_lag": self.count.last_lag,
        }

    def load(self, counters: Mapping[str, int]) -> None:
        """Restore what `counters` returned; the tensors are written in place."""
        last = (counters["last_tick"], counters["last_lag"], counters["last_skipped"])
        self.count, self._base = Count(counters["samples"], *last), 0
        self.first_at = counters["first_at"]
        self._resets = (min(self.first_at, self.last_tick) - self._in_flight, self.first_at)
        self.off_grid += 1


__all__ = ["Count", "SampleCounter"]
