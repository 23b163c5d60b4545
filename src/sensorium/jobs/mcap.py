"""MCAP files of data sets: recordings with marks at the starts of episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sensorium.jobs.rows import Block, SensorRows
from sensorium.readings import Reading, SceneDescription
from sensorium.record.batches import Batch
from sensorium.record.recorder import (
    add_batch,
    add_description,
    add_marks,
    mark_message,
    nanoseconds,
    open_sensor,
    open_writer,
)

if TYPE_CHECKING:
    from sensorium.record.replay import Replay

EPISODE, LOG = "episode", "log"
"""Name of the marks, and kind of the readings of controls."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode of all environments of a shard, as in the value of its mark.

    Args:
        number: its number.
        first_env: global index of environment 0.
        start: tick at which it starts in the recording.
    """

    number: int
    first_env: int
    start: int


@dataclass(frozen=True, slots=True)
class About:
    """Constant data of a recording.

    Args:
        scene: description of the scene.
        bodies: list of all bodies, see `Bodies.to_dict`.
        truth: whether it has the ground truth.
        actuators: names of the controls.
        start_ns: time at tick 0, ns.
    """

    scene: SceneDescription
    bodies: Any
    truth: bool
    actuators: Sequence[str] = ()
    start_ns: int = 0


class McapRecording:
    """Open recording in an MCAP file. The times of all messages are those of the simulation.

    Args:
        file: the file, which stays open.
        about: the constant data.
    """

    def __init__(self, file: IO[bytes], about: About) -> None:
        self._about, self._envs = about, np.arange(about.scene.num_envs)
        self._writer = open_writer(file)
        self._tracks: dict[str, tuple[tuple[Batch, ...], tuple[int, ...]]] = {}
        self._frame, self._tick = 0, -1
        add_description(self._writer, about.scene.to_dict(), self._envs.tolist(), about.bodies, about.start_ns)
        self._marks = add_marks(self._writer)

    def open(self, reading: Reading) -> None:
        """Add the channels for the readings of a sensor or log."""
        about, dt = self._about, self._about.scene.dt
        if reading.kind == LOG:
            batch = Batch(reading.name, LOG, reading.specs, self._envs, "measured", 0, dt)
            channel = add_batch(self._writer, batch, LOG, names=json.dumps([*about.actuators]))
            self._tracks[reading.name] = (batch,), (channel,)
        else:
            described = about.scene.sensors[reading.name]
            self._tracks[reading.name] = open_sensor(self._writer, reading, self._envs, dt, described, about.truth)

    def mark(self, episode: Episode) -> None:
        """Mark the start of an episode."""
        time = episode.start * self._about.scene.dt
        self._frame, self._tick = self._frame + 1, episode.start
        value = json.dumps({"number": episode.number, "first_env": episode.first_env})
        data, at = mark_message(episode.start, time, self._envs, EPISODE, value), nanoseconds(time)
        self._writer.add((self._marks, at, at, self._frame, [data]))

    def add(self, readings: Sequence[Reading]) -> None:
        """Add readings, in order of time; those of one tick form a frame.

        Raises:
            OSError: the file cannot be written.
        """
        messages = []
        for reading in readings:
            if reading.tick != self._tick:
                self._frame, self._tick = self._frame + 1, reading.tick
            if reading.name not in self._tracks:
                self.open(reading)
            at = nanoseconds(reading.time)
            messages += [
                (channel, at, at, self._frame, batch.encode(reading))
                for batch, channel in zip(*self._tracks[reading.name], strict=True)
            ]
        if messages:
            self._writer.add(*messages)
        self._check()

    def _check(self) -> None:
        if self._writer.error is not None:
            raise self._writer.error

    def close(self) -> None:
        """Complete the file. Raises as `add` does."""
        self._writer.close()
        self._check()

    def abort(self) -> None:
        """End the threads of the writer, if the file was not closed."""
        self._writer.close()


class McapRows(McapRecording):
    """Open MCAP file for the rows of one sensor or log of a shard.

    Args:
        file: the file, which stays open.
        about: the constant data.
        reading: a reading.
    """

    def __init__(self, file: IO[bytes], about: About, reading: Reading) -> None:
        super().__init__(file, about)
        self._first_env, self._episode = about.scene.first_env, -1
        self.open(reading)

    def write(self, block: Block) -> None:
        """Add the readings of rows."""
        if block.readings and block.episode != self._episode:
            self._episode = block.episode
            self.mark(Episode(block.episode, self._first_env, block.start))
        self.add(block.readings)


def about_of(replay: Replay) -> About:
    """Return the constant data of a recording with one sensor or log."""
    actuators = [
        name
        for each in replay.log_descriptions.values()
        for name in each.get("constants", {}).get("actuator_names", ())
    ]
    names = (*replay.description.sensors, *replay.log_descriptions)
    truth = any(batch.branch == "truth" for name in names for batch in replay.layouts(name))
    return About(replay.description, replay.bodies.to_dict()["bodies"], truth, actuators, replay.start_ns)


def episodes_of(replay: Replay, name: str) -> Iterator[tuple[Episode, Reading]]:
    """Yield the readings of a sensor or log, each with its episode."""
    for mark, reading in replay.marked(name, EPISODE):
        if mark is not None:
            yield Episode(**json.loads(mark.value), start=mark.tick), reading


def rows_of(replay: Replay) -> tuple[SensorRows, Iterator[Block]]:
    """Return the fields and the rows in a file that `McapRows` wrote."""
    (name,) = (*replay.description.sensors, *replay.log_descriptions)
    layouts, scene = {batch.branch: batch for batch in replay.layouts(name)}, replay.description
    first = layouts["measured"]
    rows = SensorRows(first.specs, first.mounts, "truth" in layouts, scene.first_env, scene.num_envs)

    def blocks() -> Iterator[Block]:
        current = None
        for episode, reading in episodes_of(replay, name):
            if episode != current:
                if (block := rows.take()) is not None:
                    yield block
                current = episode
                rows.begin(episode.number, episode.start)
            if (block := rows.add(reading)) is not None:
                yield block
        if (block := rows.take()) is not None:
            yield block

    return rows, blocks()
