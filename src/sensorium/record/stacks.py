"""Stacks of readings: consecutive readings of one sensor with one array per field, for conversions of many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec

ABOUT = ("capture_tick", "truth_tick", "stamp", "valid", "is_new", "frame")
"""Values per environment of a stack."""
EACH = ("ticks", "times", "pose", "offsets")
"""Other values per reading."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Consecutive readings of one sensor and the same environments.

    Attributes:
        name: the sensor's name.
        specs: specs of its fields.
        env_ids: int64 [env].
        ticks: int64 [reading], physics ticks.
        times: float64 [reading], their times, s.
        measured: field -> array `[reading, env, ...]`; of ragged fields `[row, ...]`, those of all readings.
        truth: the same of the ground truth; empty if a reading has none.
        about: name as in `ABOUT` -> array `[reading, env]`.
        pose: float32 [reading, env, mount, 7]; None if a reading has none.
        offsets: int64 [reading, env + 1], first row of each env in ragged fields; None without such fields.
    """

    name: str
    specs: tuple[FieldSpec, ...]
    env_ids: Array
    ticks: Array
    times: Array
    measured: Mapping[str, Array]
    truth: Mapping[str, Array]
    about: Mapping[str, Array]
    pose: Array | None = None
    offsets: Array | None = None

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Stack:
        """Return readings as a stack.

        Args:
            readings: one or more readings, in order of time.

        Raises:
            ArgumentError: the readings differ in sensor or envs.
        """
        first = readings[0]
        ids = first.env_ids.tobytes()
        if any(reading.name != first.name or reading.env_ids.tobytes() != ids for reading in readings):
            raise ArgumentError(f"readings: got several sensors or envs, expected readings of {first.name!r}")
        ragged = {spec.name for spec in first.specs if spec.is_ragged}

        def joined(values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
            if not all(values):
                return {}
            return {
                name: np.concatenate([each[name] for each in values])
                if name in ragged
                else np.stack([each[name] for each in values])
                for name in values[0]
            }

        poses = [pose for reading in readings if (pose := reading.pose) is not None]
        offsets = [each for reading in readings if (each := reading.offsets) is not None]
        metas = [reading.meta for reading in readings]
        return cls(
            first.name,
            first.specs,
            first.env_ids,
            np.array([reading.tick for reading in readings]),
            np.array([reading.time for reading in readings]),
            joined([reading.measured for reading in readings]),
            joined([reading.truth for reading in readings]),
            {name: np.stack([meta[name] for meta in metas]) for name in ABOUT},
            np.stack(poses) if len(poses) == len(readings) else None,
            one_after_the_other(np.stack(offsets)) if offsets else None,
        )

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def time(self) -> float:
        """Time of the first reading, s."""
        return float(self.times[0])

    @property
    def nbytes(self) -> int:
        """Size of its fields, bytes."""
        return sum(array.nbytes for array in (*self.measured.values(), *self.truth.values()))

    def rows(self, at: Array, envs: Array) -> tuple[Array, Array]:
        """Return the rows of ragged fields of some readings and environments.

        Args:
            at: numbers of readings, `[sample]`.
            envs: number of the environment of each, `[sample]`.

        Returns:
            The rows of all samples, one sample after the other, and their number in each sample.
        """
        if self.offsets is None:
            raise TypeError(f"readings of {self.name!r}: the sensor has no ragged fields")
        starts = self.offsets[at, envs]
        counts = self.offsets[at, envs + 1] - starts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(starts, counts) + within, counts

    def part(self, chosen: slice) -> Stack:
        """Return consecutive readings of the stack."""
        if len(range(*chosen.indices(len(self)))) == len(self):
            return self
        ragged = {spec.name for spec in self.specs if spec.is_ragged}

        def part(values: Mapping[str, Array]) -> dict[str, Array]:
            return {name: array if name in ragged else array[chosen] for name, array in values.items()}

        several: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[chosen] for name in EACH
        }
        about = {name: array[chosen] for name, array in self.about.items()}
        return replace(self, **several, measured=part(self.measured), truth=part(self.truth), about=about)


def one_after_the_other(offsets: Array) -> Array:
    """Return offsets `[reading, env + 1]`, each from 0, as offsets in the rows of all readings."""
    first = np.concatenate(([0], np.cumsum(offsets[:-1, -1])))
    moved: Array = offsets + first[:, None]
    return moved
