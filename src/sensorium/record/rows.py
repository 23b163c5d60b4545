"""Rows of small readings: samples are copied from the sensor's memory into finished messages, many at a time.

A step of a simulation takes a millisecond or less, and Python is slow per array and message. So each sample costs one
copy per field. Everything else is filled in for many samples at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.record.batches import Batch
from sensorium.record.mcap_writer import HEADS, OPCODE

if TYPE_CHECKING:
    from sensorium.scene.publish import LiveSample

MOST_BYTES, MOST_ROWS = 2**20, 256
"""Greatest size and number of the rows that are collected."""
MOST_PAGES = 16
"""Greatest number of unused pages that are kept."""


@dataclass(slots=True)
class _Page:
    """Memory of messages, one row after the other: measured and true ones as records, side by side."""

    rows: Array
    """uint8 `[row, byte]`."""
    flat: memoryview
    """The same memory, `[byte]`."""
    heads: list[Array]
    """Heads of the records, `[row]`, of the measured and of the true messages."""
    views: list[dict[str, Array]]
    """Arrays in the messages, `[row, ...]`."""


def _keep(pages: list[_Page], page: _Page) -> None:
    """Keep a page for further rows."""
    if len(pages) < MOST_PAGES:
        pages.append(page)


class SensorRows:
    """Collected messages of one sensor.

    Args:
        live: the sensor's memory.
        batches: layouts of the measured values and of the truth.
        channels: their channels.
        envs: recorded environments: a slice or indices; None for all.
    """

    def __init__(self, live: LiveSample, batches: tuple[Batch, ...], channels: tuple[int, ...], envs: Any) -> None:
        self.live, self._batches, self._channels, self._envs = live, batches, channels, envs
        ends = np.cumsum([HEADS.itemsize + batch.nbytes for batch in batches]).tolist()
        self.capacity = max(1, min(MOST_ROWS, MOST_BYTES // ends[-1]))
        self.count = 0
        self._version = -1
        self._base: Array = np.zeros(0, np.int64)
        self._about: list[tuple[int, int, int]] = []
        """Number of the frame, wall clock (ns) and tick of each row."""
        self._times: list[tuple[int, int, int, bool]] = []
        """Row, tick and number of the capture, and whether it is new, for samples that all environments share."""
        self._starts, self._width = [0, *ends[:-1]], int(ends[-1])
        self._copies: list[tuple[int, int, memoryview]] = []
        """Place in a row and bytes of the fields that are contiguous in the sensor's memory."""
        self._picks: list[tuple[int, str, Array]] = []
        """Branch, name and memory of the other fields, and of all fields if environments are picked."""
        self._bad = np.zeros((self.capacity, *live.bad.shape), np.uint8)
        self._pages: list[_Page] = []
        """Unused pages."""
        self._page = self._new_page()
        for branch, (batch, source, start) in enumerate(
            zip(batches, (live.measured, live.truth), self._starts, strict=True)
        ):
            for name, place in batch.places(start + HEADS.itemsize).items():
                if name in source:
                    self._add_copy(branch, name, place, source[name])
        self._has_pose = "pose" in self._page.views[0]

    def _new_page(self) -> _Page:
        """Return a page with the bytes that all rows share."""
        memory = np.zeros((self.capacity, self._width), np.uint8)
        page = _Page(memory, memory.reshape(-1).data, [], [])
        for batch, channel, start in zip(self._batches, self._channels, self._starts, strict=True):
            heads = np.ndarray(self.capacity, HEADS, memory, start, memory.strides[:1])
            heads["opcode"], heads["length"], heads["channel"] = OPCODE, batch.nbytes + 22, channel
            page.heads.append(heads)
            page.views.append(batch.views(memory, start + HEADS.itemsize))
        return page

    def _add_copy(self, branch: int, name: str, place: slice, source: Array) -> None:
        """Copy a field of the sensor's memory to the same place in each row."""
        if isinstance(self._envs, slice):
            source = source[self._envs]
        if isinstance(self._envs, np.ndarray) or not source.flags.c_contiguous:
            self._picks.append((branch, name, source))
        elif source.nbytes:
            self._copies.append((place.start, place.stop, source.reshape(-1).view(np.uint8).data))

    @property
    def must_flush(self) -> bool:
        """Whether the collected rows must be taken before the next one: they are full, or an env was reset."""
        return self.count == self.capacity or (self.count > 0 and self._version != self.live.resets)

    def add(self, about: tuple[int, int, int]) -> None:
        """Copy the sensor's newest sample.

        Args:
            about: number of the frame, wall clock (ns since 1970) and tick.
        """
        live, row, envs = self.live, self.count, self._envs
        shared = live.update()
        if self._version != live.resets:
            self._version = live.resets
            self._base = live.frame_base.copy() if envs is None else live.frame_base[envs].copy()
        self._bad[row] = live.bad
        page, at = self._page, row * self._width
        flat = page.flat
        for start, end, contents in self._copies:
            flat[at + start : at + end] = contents
        for branch, name, source in self._picks:
            page.views[branch][name][row] = source[envs] if isinstance(envs, np.ndarray) else source
        if self._has_pose:
            pose = live.pose
            page.views[0]["pose"][row] = pose if envs is None else pose[envs]
        if shared is not None:
            self._times.append((row, *shared))
        else:
            measured, truth = page.views
            for name, values in live.about().items():
                chosen = values if envs is None else values[envs]
                (truth if name == "truth_tick" else measured)[name][row] = chosen
        self._about.append(about)
        self.count = row + 1

    def take(self) -> tuple[Array, Array]:
        """Return all collected messages, one after the other, and their index; then start over.

        Their memory is used again once the returned array is no longer referenced.

        Returns:
            The messages as records, uint8 `[row, byte]`, and channel, log time (ns) and place of each, int64
            `[message, 3]`.
        """
        count, page = self.count, self._page
        self._fill()
        index = np.empty((count, len(page.heads), 3), np.int64)
        index[:, :, 0] = self._channels
        index[:, :, 1] = page.heads[0]["log_time"][:count, None]
        index[:, :, 2] = np.arange(0, count * self._width, self._width)[:, None] + self._starts
        self.count = 0
        data = page.rows[:count]
        pages = self._pages
        self._page = pages.pop() if pages else self._new_page()
        finalize(data, _keep, pages, page).atexit = False  # once the file has them
        return data, index.reshape(-1, 3)

    def _fill(self) -> None:
        """Fill in what does not depend on the sensor's memory."""
        about, self._about = self._about, []
        shared, self._times = self._times, []
        frames, walls, ticks = (np.array(values) for values in zip(*about, strict=True))
        times = np.array([self.live.time_at(tick) for _, _, tick in about])
        logs = np.maximum(np.rint(times * 1e9), 0).astype(np.int64)
        for heads, views in zip(self._page.heads, self._page.views, strict=True):
            part, count = heads[: len(about)], len(about)
            part["sequence"], part["log_time"], part["publish_time"] = frames & 0xFFFFFFFF, logs, walls
            views["tick"][:count], views["time"][:count] = ticks, times
        if shared:
            which, captures, samples, new = (np.array(values) for values in zip(*shared, strict=True))
            rows = slice(len(about)) if len(which) == len(about) else which  # the former is much faster
            bad = self._bad[rows]
            measured, truth = self._page.views
            measured["capture_tick"][rows] = truth["truth_tick"][rows] = captures[:, None]
            measured["frame"][rows] = samples[:, None] - self._base
            measured["stamp"][rows] = captures[:, None].astype(np.float64) * self._batches[0].dt
            measured["valid"][rows] = True
            if bad.any():
                measured["valid"][rows] = (bad if self._envs is None else bad[:, self._envs]).sum(axis=2) == 0
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
