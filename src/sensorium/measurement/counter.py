"""When a sensor captured: on the grid of its rate for all envs at once, and off it when an env is reset."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sensorium.compute.clock import Clock, Rate


class SampleCounter:
    """The captures of one sensor: how many there were, and at which ticks.

    The grid is the same for all envs, so it is counted on the host; what resets make differ is `[env]`.

    Args:
        clock: the scene's clock.
        rate: the sensor's rate.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        self._clock, self._rate = clock, rate
        self.is_pure = False
        """Whether every tick that was not skipped has a sample, computed or not; see `SensorPlan.is_pure`."""
        self.taken = 0
        """Captures on the grid so far, of a sensor that is not pure."""
        self.last_tick = clock.tick
        """Tick of the newest capture on the grid."""
        self.last_lag = 0
        """Ticks by which the state it is of is older."""
        self.in_flight = 0
        """Ticks that a sample may be under way; off-grid captures are remembered as long."""
        device = clock.compute.device
        self._frame_base = torch.full((clock.compute.num_envs,), -1, dtype=torch.int64, device=device)
        self.first_tick = torch.full_like(self._frame_base, clock.tick)
        """int64 [env], tick of the sensor's own last reset: its first capture, off the grid."""
        self.first_at = clock.tick
        """The greatest of these, on the host."""
        self.off_grid = 0
        """Captures off the grid so far: at resets of any env, and evaluations of a capture anew."""
        self._resets = (clock.tick, clock.tick)  # first and last of those whose captures may be under way

    # What a reader sees -----------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Captures on the grid so far."""
        return self._clock.tick - self._clock.skipped if self.is_pure else self.taken

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], captures since the env's reset; the one at the reset is number 1."""
        return self.samples - self._frame_base

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state that the newest capture is of."""
        return torch.where(self.first_tick >= self.last_tick, self.first_tick, self.last_tick - self.last_lag)

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
        oldest = self._resets[0] if tick - self._resets[1] <= self.in_flight else tick
        self._resets = (oldest, tick)

    def restart(self) -> None:
        """Count from the clock's tick on, which may be an earlier one; a reset of all envs follows."""
        tick = self._clock.tick
        self.last_tick = min(self.last_tick, tick)
        self._resets = (tick, tick)

    def count_from_start(self, lag: int) -> None:
        """Set everything as if the sensor, a pure one, had been there all the time.

        Args:
            lag: ticks by which the engine's state is older.
        """
        clock = self._clock
        self.last_tick, self.last_lag = clock.tick, lag
        self.first_tick.copy_(clock.reset_tick)
        self.first_at = int(self.first_tick.max())
        self._frame_base.copy_(self.first_tick - clock.skipped_at_reset - 1)
        self.off_grid += 1

    # Saving -----------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that must be saved to resume."""
        return {"frame_base": self._frame_base, "first_tick": self.first_tick}

    def counters(self) -> dict[str, int]:
        """Return the host's counters that must be saved to resume."""
        return {name: getattr(self, name) for name in ("taken", "first_at", "last_tick", "last_lag")}

    def load(self, counters: Mapping[str, int]) -> None:
        """Restore what `counters` returned; the tensors are written in place."""
        for name in self.counters():
            setattr(self, name, counters[name])
        self._resets = (min(self.first_at, self.last_tick) - self.in_flight, self.first_at)
        self.off_grid += 1
