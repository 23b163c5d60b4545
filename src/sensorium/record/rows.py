"""Rows of small readings: samples are copied from the sensor's memory into finished messages, many at a time.

A step of a simulation takes a millisecond or less, and Python is slow per array and message. So each sample costs one
copy per field. Everything else is filled in for many samples at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.record.batches import Batch
from sensorium.record.mcap_writer import HEADS, OPCODE

if TYPE_CHECKING:
    from sensorium.scene.publish import LiveSample

MOST_BYTES, MOST_ROWS = 2**20, 256
"""Greatest size and number of the rows that are collected."""
_START = 5
"""Start of each message in its row, so that the numbers of its contents are aligned."""


class SensorRows:
    """Collected messages of one sensor.

    Args:
        live: the sensor's memory.
        batches: layouts of the measured values and of the truth.
        channels: their channels.
        envs: recorded environments: a slice or indices.
    """

    def __init__(self, live: LiveSample, batches: tuple[Batch, ...], channels: tuple[int, ...], envs: Any) -> None:
        self._live, self._batches, self._envs = live, batches, envs
        size = sum(batch.nbytes for batch in batches)
        self.capacity = max(1, min(MOST_ROWS, MOST_BYTES // max(size, 1)))
        self.count = 0
        self._version = -1
        self._base: Array = np.zeros(0, np.int64)
        self._about: list[tuple[int, int, int, int, float]] = []
        self._times: list[tuple[int, int, int, bool]] = []
        """Row, tick and number of the capture, and whether it is new, for samples that all environments share."""
        self._memory: list[Array] = []
        self._heads: list[Array] = []
        self._views: list[dict[str, Array]] = []
        self._copies: list[tuple[Array, Array]] = []
        self._ends: list[int] = []
        for batch, channel, source in zip(batches, channels, (live.measured, live.truth), strict=True):
            end = _START + HEADS.itemsize + batch.nbytes
            stride = -(-end // 8) * 8
            memory = np.zeros((self.capacity, stride), np.uint8)
            heads = np.ndarray(self.capacity, HEADS, memory, _START, (stride,))
            heads["opcode"], heads["length"], heads["channel"] = OPCODE, batch.nbytes + 22, channel
            views = batch.views(memory, _START + HEADS.itemsize)
            self._memory.append(memory)
            self._heads.append(heads)
            self._views.append(views)
            self._ends.append(end)
            self._copies += [(views[spec.name], source[spec.name]) for spec in batch.specs if spec.columns]
        self._pose = self._views[0].get("pose")

    @property
    def must_flush(self) -> bool:
        """Whether the collected rows must be taken before the next one: they are full, or an env was reset."""
        return self.count == self.capacity or (self.count > 0 and self._version != self._live.resets)

    def add(self, frame: int, log_time: int, wall: int, tick: int, time: float) -> None:
        """Copy the sensor's newest sample.

        Args:
            frame: number of the frame.
            log_time: time of the frame, ns.
            wall: wall clock, ns since 1970.
            tick: physics tick of the frame.
            time: time of the frame, s.
        """
        live, row, envs = self._live, self.count, self._envs
        shared = live.update()
        if self._version != live.resets:
            self._version = live.resets
            self._base = live.frame_base.copy() if envs is None else live.frame_base[envs].copy()
        for target, source in self._copies:
            target[row] = source if envs is None else source[envs]
        if self._pose is not None:
            pose = live.pose
            self._pose[row] = pose if envs is None else pose[envs]
        if shared is not None:
            self._times.append((row, *shared))
        else:
            measured, truth = self._views
            for name, values in live.about().items():
                chosen = values if envs is None else values[envs]
                (truth if name == "truth_tick" else measured)[name][row] = chosen
        self._about.append((frame, log_time, wall, tick, time))
        self.count = row + 1

    def take(self) -> tuple[Array, Array]:
        """Return all collected messages, one after the other, and their index; then start over.

        Returns:
            The messages as records, uint8 `[row, byte]`, and channel, log time (ns) and place of each, int64
            `[message, 3]`.
        """
        count = self.count
        self._fill()
        parts = [memory[:count, _START:end] for memory, end in zip(self._memory, self._ends, strict=True)]
        data = np.concatenate(parts, axis=1)
        index = np.empty((count, len(parts), 3), np.int64)
        place = 0
        for k, (heads, part) in enumerate(zip(self._heads, parts, strict=True)):
            index[:, k, 0] = heads["channel"][:count]
            index[:, k, 1] = heads["log_time"][:count]
            index[:, k, 2] = np.arange(count) * data.shape[1] + place
            place += part.shape[1]
        self.count = 0
        return data, index.reshape(-1, 3)

    def _fill(self) -> None:
        """Fill in what does not depend on the sensor's memory."""
        about, self._about = self._about, []
        shared, self._times = self._times, []
        frames, logs, walls, ticks, times = (np.array(values) for values in zip(*about, strict=True))
        for heads, views in zip(self._heads, self._views, strict=True):
            part, count = heads[: len(about)], len(about)
            part["sequence"], part["log_time"], part["publish_time"] = frames & 0xFFFFFFFF, logs, walls
            views["tick"][:count], views["time"][:count] = ticks, times
        if shared:
            rows, captures, samples, new = (np.array(values) for values in zip(*shared, strict=True))
            measured, truth = self._views
            measured["capture_tick"][rows] = truth["truth_tick"][rows] = captures[:, None]
            measured["frame"][rows] = samples[:, None] - self._base
            measured["stamp"][rows] = captures[:, None].astype(np.float64) * self._batches[0].dt
            measured["valid"][rows] = True
            measured["is_new"][rows] = new[:, None]

    def readings(self, data: Array) -> list[Reading]:
        """Return the readings of messages that `take` returned, as views of them."""
        measured, truth = self._batches
        head = HEADS.itemsize
        values, true = measured.views(data, head), truth.views(data, head + measured.nbytes + head)
        pose, specs = values.get("pose"), [spec for spec in measured.specs if spec.columns]
        meta = {name: values[name] for name in ("capture_tick", "frame", "stamp", "valid", "is_new")}
        meta["truth_tick"] = true["truth_tick"]
        empty = {
            spec.name: np.empty((len(measured.env_ids), *spec.shape), spec.dtype)
            for spec in measured.specs
            if not spec.columns
        }
        return [
            Reading(
                measured.sensor,
                measured.kind,
                measured.specs,
                measured.env_ids,
                tick,
                time,
                {**empty, **{spec.name: values[spec.name][row] for spec in specs}},
                {**empty, **{spec.name: true[spec.name][row] for spec in specs}},
                {name: each[row] for name, each in meta.items()},
                _pose=None if pose is None else pose[row],
                _dt=measured.dt,
            )
            for row, (tick, time) in enumerate(zip(values["tick"].tolist(), values["time"].tolist(), strict=True))
        ]
