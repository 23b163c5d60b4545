"""Captures of a sensor: on the grid of its rate for all envs at once, and off it at the reset of an env."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sensorium.compute.clock import Clock, Rate

NEVER = 2**62
"""A tick that is never reached."""


class SampleCounter:
    """Number and ticks of one sensor's captures.

    The grid is the same for all envs and is counted on the host; quantities that depend on resets are `[env]`.

    Args:
        clock: clock of the scene.
        rate: rate of the sensor.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        self._clock, self._rate = clock, rate
        self.is_pure = False
        """Whether every tick that was not skipped counts as a sample, computed or not; see `SensorPlan.is_pure`."""
        self.taken = 0
        """Number of captures on the grid, for a sensor that is not pure."""
        self.last_tick = clock.tick
        """Tick of the newest capture on the grid."""
        self.last_lag = 0
        """Ticks by which the state of that capture is older."""
        self.in_flight = 0
        """Maximum number of ticks from capture to arrival; off-grid captures are remembered as long."""
        self.repeats = False
        """Whether the next read repeats the captures of its tick, because the state or a setting was changed."""
        device = clock.compute.device
        self.frame_base = torch.full((clock.compute.num_envs,), -1, dtype=torch.int64, device=device)
        """int64 [env], number of captures on the grid before the env's reset: `frame` counts from there."""
        self.first_tick = torch.full_like(self.frame_base, clock.tick)
        """int64 [env], tick of the sensor's own last reset, with its first capture off the grid."""
        self.first_at = clock.tick
        """Maximum of these ticks, on the host."""
        self.off_grid = 0
        """Number of captures off the grid: at resets of any env, and at repeated evaluations of a capture."""
        self._resets = (clock.tick, clock.tick)  # first and last reset whose captures may not have arrived yet

    # Reading ----------------------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Number of captures on the grid."""
        return self._clock.tick - self._clock.skipped if self.is_pure else self.taken

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], number of captures since the env's reset; the capture at the reset is number 1."""
        return self.samples - self.frame_base

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state of the newest capture."""
        return torch.where(self.first_tick >= self.last_tick, self.first_tick, self.last_tick - self.last_lag)

    @property
    def arrival_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the newest capture was made; without a delay it arrives at that tick."""
        return self.first_tick.clamp(min=self.last_tick)

    @property
    def is_current(self) -> bool:
        """Whether at least one env has a capture at the clock's tick."""
        return self._clock.tick in (self.last_tick, self.first_at)

    def next_arrival(self, after: int, soonest: int, latest: int) -> int:
        """Return the first tick after another at which a capture may arrive, as far as the host can tell, or `NEVER`.

        Args:
            after: tick after which the capture arrives.
            soonest: minimum number of ticks from a capture to its arrival.
            latest: maximum number of ticks from a capture to its arrival.
        """
        in_flight = after - latest  # earlier captures have arrived by then
        captured = []
        if self.last_tick > in_flight:  # after a jump, a capture may be at any tick
            captured.append(in_flight + 1 if self._clock.skipped else self._rate.next_after(max(in_flight, 0)))
        captured += [max(self._resets[0], in_flight + 1)] if self._resets[1] > in_flight else []
        arrivals = (tick + soonest for tick in captured if tick <= self._clock.tick)
        return max(min(arrivals, default=NEVER), after + 1)

    # Counting ---------------------------------------------------------------------------------------------------------

    def note_reset(self, mask: torch.Tensor) -> None:
        """Count the capture at a reset of the envs of a uint8 mask."""
        tick, inside = self._clock.tick, mask > 0
        self.frame_base.masked_fill_(inside, self.samples - 1)
        self.first_tick.masked_fill_(inside, tick)
        self.first_at = tick
        self.off_grid += 1
        oldest = self._resets[0] if tick - self._resets[1] <= self.in_flight else tick
        self._resets = (oldest, tick)

    def restart(self) -> None:
        """Restart counting at the clock's tick, which may be an earlier one; a reset of all envs must follow."""
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
        self.frame_base.copy_(self.first_tick - clock.skipped_at_reset - 1)
        self.off_grid += 1

    # Saving -----------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that must be saved to resume."""
        return {"frame_base": self.frame_base, "first_tick": self.first_tick}

    def counters(self) -> dict[str, int]:
        """Return the host's counters, which must be saved to resume."""
        return {name: getattr(self, name) for name in ("taken", "first_at", "last_tick", "last_lag")}

    def load(self, counters: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the result of `counters`; the caller then writes the result of `tensors` in place."""
        for name in self.counters():
            setattr(self, name, counters[name])
        self._resets = (min(self.first_at, self.last_tick) - self.in_flight, self.first_at)
        self.off_grid += 1


OUTDATED = -NEVER
"""Tick of the last access of an env that was reset: its next access takes a sample."""


class AccessCounter(SampleCounter):
    """Captures of a sensor whose samples are taken by reads; see `SensorPlan.is_on_access`.

    A sample is due one period after the last one that a read took, and after a reset. It waits for a read. Envs differ
    after partial resets. All captures are off the grid. `frame` counts those of reads, so outputs do not change it.

    Args:
        clock: clock of the scene.
        rate: rate of the sensor.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        super().__init__(clock, rate)
        self._period = rate.next_after(0)
        self._accessed = torch.full_like(self.first_tick, OUTDATED)
        self._lags = torch.full_like(self.first_tick, -1)
        """Ticks by which the state of the newest capture is older; -1 before the first capture of an episode."""
        self._accesses = {OUTDATED}
        """Values that `_accessed` may contain, as far as the host can tell."""
        self._awaits_first = True
        """Whether an env may have no capture since its reset."""

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state of the newest capture."""
        return self.first_tick - self._lags

    def due(self, *, is_access: bool) -> torch.Tensor | None:
        """Return the mask of the envs to capture, `Compute.all_envs` where the host knows that it is all, or None.

        Args:
            is_access: whether a sample that is due is taken; otherwise only the first one of an episode.
        """
        tick, may_wait, repeats = self._clock.tick, self._awaits_first, self.repeats
        if is_access:
            due = [tick - each >= self._period for each in self._accesses]
            if all(due):
                return self._clock.compute.all_envs
            may_wait = any(due)
        if not (may_wait or repeats):
            return None
        waits = tick - self._accessed >= self._period if is_access else self._lags < 0
        return waits | (self.first_tick == tick) if repeats else waits

    def note_capture(self, mask: torch.Tensor, lag: int, *, is_access: bool) -> None:
        """Count a capture of the envs that `due` returned, bool `[env]`."""
        tick = self._clock.tick
        if is_access:
            self.frame_base.sub_((mask & (self._accessed < tick)).to(torch.int64))
            self._accessed.masked_fill_(mask, tick)
            self._accesses = {each for each in self._accesses if tick - each < self._period} | {tick}
        self.first_tick.masked_fill_(mask, tick)
        self._lags.masked_fill_(mask, lag)
        self.first_at, self._awaits_first, self.repeats = tick, False, False
        self.off_grid += 1

    def note_reset(self, mask: torch.Tensor) -> None:
        """Mark the envs of a uint8 mask as outdated, without a capture."""
        super().note_reset(mask)
        self.frame_base += mask
        self._accessed.masked_fill_(mask > 0, OUTDATED)
        self._lags.masked_fill_(mask > 0, -1)
        self._accesses.add(OUTDATED)
        self._awaits_first = True

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that must be saved to resume."""
        return {**super().tensors(), "accessed": self._accessed, "lags": self._lags}

    def load(self, counters: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the result of `counters`; the caller then writes the result of `tensors` in place."""
        super().load(counters, tensors)
        self._accesses, self._awaits_first = set(tensors["accessed"].tolist()), True
