"""New samples among consecutive readings."""

from __future__ import annotations

import numpy as np

from sensorium.readings import Array


class Arrivals:
    """Which samples of consecutive readings are new: valid, and of a capture other than the previous one.

    Args:
        envs: number of environments.
    """

    def __init__(self, envs: int) -> None:
        self._last_tick, self._last_frame = np.full(envs, -1), np.full(envs, -1)

    def new(self, ticks: Array, frames: Array, valid: Array) -> Array:
        """Return bool `[reading, env]` for consecutive readings.

        Args:
            ticks: capture ticks `[reading, env]`.
            frames: captures since the reset `[reading, env]`.
            valid: whether the values have arrived, bool `[reading, env]`.
        """
        ticks = np.where(valid, ticks, -1)
        before = np.concatenate((self._last_tick[None], ticks[:-1]))
        frames_before = np.concatenate((self._last_frame[None], frames[:-1]))
        self._last_tick, self._last_frame = ticks[-1], frames[-1]
        new: Array = valid & ((ticks != before) | (frames < frames_before))
        return new
