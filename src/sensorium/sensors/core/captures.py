"""When a sensor captured: on the grid of its rate for all envs at once, and off it when an env is reset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from sensorium.compute import Clock, Rate


@dataclass(slots=True)
class Beat:
    """What sensors that are sampled together have in common, so that it is counted once for all of them."""

    samples: int
    """Captures on the grid."""
    last_tick: int
    """Tick of the newest of these."""
    last_lag: int
    last_skipped: int
    evaluated: int = -1
    """`clock.version` of the last evaluation on read; -1 before the first."""
    is_shared: bool = False
    """Whether it counts for several sensors."""
    is_whole: bool = True
    """Whether none of them has left."""

    @classmethod
    def of(cls, captures: Iterable[Captures]) -> Beat | None:
        """Let captures that are at one point be counted as one from now on; None where they are not."""
        captures = list(captures)
        beats = [each._beat for each in captures]
        points = {(beat.last_tick, beat.last_lag, beat.last_skipped, beat.evaluated) for beat in beats}
        if len(points) != 1:
            return None
        shared = replace(beats[0], samples=0, is_shared=True, is_whole=True)
        for each in captures:
            each._base, each._beat = each.samples, shared
        return shared

    def note_sample(self, tick: int, lag: int) -> None:
        """Note a capture on the grid for all envs."""
        self.samples += 1
        self.last_tick, self.last_lag = tick, lag

    def note_look(self, tick: int, lag: int, skipped: int) -> None:
        """Note a look at sensors without memory that have a sample at every tick but the skipped ones."""
        if tick > self.last_tick:
            self.samples += tick - self.last_tick - (skipped - self.last_skipped)
            self.last_tick, self.last_lag, self.last_skipped = tick, lag, skipped


class Captures:
    """The captures of one sensor: how many there were, and at which ticks.

    The grid is the same for all envs, so it is counted on the host; what resets make differ is `[env]`.

    Args:
        clock: the scene's clock.
        rate: the sensor's rate.
        in_flight: ticks from a capture to its arrival, at most.
    """

    def __init__(self, clock: Clock, rate: Rate, in_flight: int = 0) -> None:
        self._clock, self._rate, self._in_flight = clock, rate, in_flight
        compute = clock.compute
        self._beat = Beat(0, clock.tick, 0, clock.skipped)
        self._base = 0  # samples that the beat does not count
        self._frame_base = torch.full((compute.num_envs,), -1, dtype=torch.int64, device=compute.device)
        self.first_tick = torch.full_like(self._frame_base, clock.tick)
        """int64 [env], tick of the sensor's own last reset: its first capture, off the grid."""
        self.first_at = clock.tick
        """The greatest of these, on the host."""
        self.off_grid = 0
        """Captures off the grid so far: at resets of any env, and evaluations of a capture anew."""
        self._resets = (clock.tick, clock.tick)  # first and last of those whose captures may be under way
        self.shown = -1
        """`clock.version` at which a reader was last given what had arrived; -1 where that must be found anew."""

    def __repr__(self) -> str:
        return f"Captures(samples={self.samples}, last_tick={self.last_tick})"

    def _own(self) -> Beat:
        """Return a beat of its own, for what the others do not take part in."""
        beat = self._beat
        if beat.is_shared:
            beat.is_whole = False
            self._beat = beat = replace(beat, samples=self.samples, is_shared=False)
            self._base = 0
        return beat

    def is_on(self, beat: Beat | None) -> bool:
        """Whether these captures are counted by a beat that none has left."""
        return self._beat is beat and beat.is_whole

    # What a reader sees -----------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Captures on the grid so far."""
        return self._beat.samples + self._base

    @property
    def last_tick(self) -> int:
        """Tick of the newest of these."""
        return self._beat.last_tick

    @property
    def evaluated(self) -> int:
        """`clock.version` of the last evaluation on read; -1 before the first."""
        return self._beat.evaluated

    @evaluated.setter
    def evaluated(self, version: int) -> None:
        self.shown = -1
        if version != self._beat.evaluated:
            self._own().evaluated = version

    @property
    def frame(self) -> torch.Tensor:
        """int64 [env], captures since the env's reset; the one at the reset is number 1."""
        return self.samples - self._frame_base

    @property
    def newest_tick(self) -> torch.Tensor:
        """int64 [env], tick of the state that the newest capture is of."""
        return torch.where(self.first_tick >= self.last_tick, self.first_tick, self.last_tick - self._beat.last_lag)

    @property
    def arrival_tick(self) -> torch.Tensor:
        """int64 [env], tick at which the newest capture was made: without a delay it arrives then."""
        return self.first_tick.clamp(min=self.last_tick)

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

    # What the scene notes ---------------------------------------------------------------------------------------------

    def note_sample(self, tick: int, lag: int) -> None:
        """Note a capture on the grid for all envs.

        Args:
            tick: the tick.
            lag: ticks by which the engine's state is older.
        """
        self._own().note_sample(tick, lag)

    def note_look(self, tick: int, lag: int) -> bool:
        """Note that a sensor that is evaluated on read is looked at; returns whether it has a sample to compute."""
        beat, rate = self._beat, self._rate
        due = rate.index(tick) - rate.index(beat.last_tick)
        if due > 0:
            beat = self._own()
            if rate.every_tick:
                beat.note_look(tick, lag, self._clock.skipped)
            else:
                beat.note_sample(tick, lag)
                beat.last_skipped = self._clock.skipped
        return due > 0 or tick == beat.last_tick or (beat.evaluated < 0 and rate.every_tick)

    def note_reset(self, mask: torch.Tensor) -> None:
        """Note the capture at a reset for the envs of a uint8 mask."""
        tick, inside = self._clock.tick, mask > 0
        self._frame_base.masked_fill_(inside, self.samples - 1)
        self.first_tick.masked_fill_(inside, tick)
        self.first_at = tick
        self.note_anew()
        oldest = self._resets[0] if tick - self._resets[1] <= self._in_flight else tick
        self._resets = (oldest, tick)
        self.evaluated = -1

    def note_anew(self) -> None:
        """Note that the newest capture of some envs was made anew, off the grid."""
        self.off_grid += 1

    def note_lag(self, tick: int, lag: int) -> None:
        """Note that what was captured at a tick was made anew, of a state that is older by `lag` ticks."""
        if self._beat.last_tick == tick:
            self._beat.last_lag = lag  # also that of the others of this beat, which were made anew as well

    def point(self) -> Beat:
        """Return a copy of the host's counts, for `go_back`."""
        return replace(self._beat, samples=self.samples, is_shared=False)

    def go_back(self, point: Beat) -> None:
        """Undo looks since `point`, of which nothing was computed: the next read does it."""
        self._own()
        self._beat, self._base = replace(point, evaluated=-1), 0

    def restart(self) -> None:
        """Count by itself from the clock's tick on, which may be an earlier one; a reset of all envs follows."""
        tick, point = self._clock.tick, self.point()
        point.last_tick = min(point.last_tick, tick)
        self.go_back(point)
        self._resets = (tick, tick)

    def count_from_start(self, lag: int, skipped_at_reset: torch.Tensor) -> None:
        """Set everything as if the sensor had been there all the time, sampled at every tick.

        Args:
            lag: ticks by which the engine's state is older.
            skipped_at_reset: int64 [env], `clock.skipped` at the env's last reset.
        """
        clock = self._clock
        self._own().samples = clock.tick - clock.skipped
        self._beat.last_tick, self._beat.last_lag, self._beat.last_skipped = clock.tick, lag, clock.skipped
        self.first_tick.copy_(clock.reset_tick)
        self.first_at = int(self.first_tick.max())
        self._frame_base.copy_(self.first_tick - skipped_at_reset - 1)
        self.note_anew()
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
            "last_skipped": self._beat.last_skipped,
            "last_lag": self._beat.last_lag,
        }

    def load(self, counters: Mapping[str, int]) -> None:
        """Restore what `counters` returned; the tensors are written in place."""
        self._own()
        self._beat = Beat(counters["samples"], counters["last_tick"], counters["last_lag"], counters["last_skipped"])
        self.first_at = counters["first_at"]
        self._resets = (min(self.first_at, self.last_tick) - self._in_flight, self.first_at)
        self.note_anew()


__all__ = ["Beat", "Captures"]
