"""Rows of small readings: samples are copied from the sensor's memory into messages, which a thread completes.

A step of a simulation takes a millisecond or less, and Python is slow per array and message. Each sample therefore
costs one copy per field. The thread that writes the file fills in everything else, for many samples at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from sensorium.readings import Array
from sensorium.record.batches import HEADS, LITTLE_ENDIAN, OPCODE, Batch, stacked

if TYPE_CHECKING:
    from sensorium.record.stacks import Stack
    from sensorium.scene.publish import LiveSample

MAX_BYTES, MAX_ROWS = 2**20, 256
"""Maximum size and number of the rows that are collected."""
KEPT_BYTES = 2**24
"""Maximum size of the unused pages that are kept."""

Taken = tuple[memoryview, Callable[[], Array]]
"""Collected messages, one after the other, and a function that completes them and returns their index."""


def completed(taken: Sequence[Taken]) -> Array:
    """Complete collected messages, and return the index of all, as if they were in one buffer.

    Returns:
        Channel, log time (ns) and place of each message, int64 `[message, 3]`.
    """
    found, start = [], 0
    for data, complete in taken:
        index = complete()
        index[:, 2] += start
        start += data.nbytes
        found.append(index)
    return np.concatenate(found)


@dataclass(slots=True)
class _Page:
    """Memory of messages, one row after the other: measured and true ones as records, side by side."""

    rows: Array
    """uint8 `[row, byte]`."""
    heads: list[Array]
    """Heads of the records, `[row]`, of the measured and of the true messages."""
    about: list[dict[str, Array]]
    """Tick, time and values per environment of the messages, `[row, ...]`."""
    fields: list[dict[str, Array]]
    """Fields of the messages, `[row, env, ...]`."""
    bad: Array
    """uint8 `[row, env, mount]`, see `LiveSample.bad`."""
    bad_bytes: memoryview
    """The same memory, `[byte]`."""


def _keep(pages: list[_Page], page: _Page) -> None:
    """Keep a page for further rows."""
    if (len(pages) + 1) * page.rows.nbytes <= KEPT_BYTES:
        pages.append(page)


class Rows:
    """Collected messages of one sensor or log.

    Args:
        batches: layouts of the measured values and, for a sensor, of the truth.
        channels: their channels.
        time_at: returns the time of a tick, s.
        bad: shape of `LiveSample.bad`.
        envs: the recorded environments: a slice or indices; None for all.
    """

    def __init__(
        self,
        batches: tuple[Batch, ...],
        channels: tuple[int, ...],
        time_at: Callable[[int], float],
        bad: tuple[int, ...] = (0, 0),
        envs: Any = None,
    ) -> None:
        self._batches, self._channels, self._time_at, self._bad, self._envs = batches, channels, time_at, bad, envs
        ends = np.cumsum([HEADS.itemsize + batch.nbytes for batch in batches]).tolist()
        self._starts, self._width = [0, *ends[:-1]], int(ends[-1])
        self._capacity = max(1, min(MAX_ROWS, MAX_BYTES // self._width))
        self._base: Array = np.zeros(len(batches[0].env_ids), np.int64)
        """Number of the first capture of each environment since its reset."""
        self._about: list[tuple[int, int, int]] = []
        """Number of the frame, wall clock (ns) and tick of each row."""
        self._shared: list[tuple[int, int, int, bool]] = []
        """Row, tick and number of the capture, and whether it is new, for samples that all environments share."""
        self._pages: list[_Page] = []
        """Unused pages."""
        self._open_page()

    def _open_page(self) -> None:
        """Continue with an empty page; the previous page is reused when nothing refers to its messages."""
        page = self._page = self._pages.pop() if self._pages else self._new_page()
        memory = page.rows.reshape(-1)
        finalize(memory, _keep, self._pages, page).atexit = False
        self._flat, self._first, self._row = memory.data, 0, 0

    def _new_page(self) -> _Page:
        """Return a page with the bytes that all rows share."""
        memory = np.zeros((self._capacity, self._width), np.uint8)
        bad = np.zeros((self._capacity, *self._bad), np.uint8)
        page = _Page(memory, [], [], [], bad, bad.reshape(-1).data)
        for batch, channel, start in zip(self._batches, self._channels, self._starts, strict=True):
            heads = np.ndarray(self._capacity, HEADS, memory, start, memory.strides[:1])
            heads["opcode"], heads["length"], heads["channel"] = OPCODE, batch.nbytes + 22, channel
            page.heads.append(heads)
            body = start + HEADS.itemsize
            memory[:, body : body + len(LITTLE_ENDIAN)] = np.frombuffer(LITTLE_ENDIAN, np.uint8)
            about, fields = batch.views(memory, body)
            page.about.append(about)
            page.fields.append(fields)
        return page

    @property
    def count(self) -> int:
        """Number of collected rows."""
        return self._row - self._first

    @property
    def must_flush(self) -> bool:
        """Whether the collected rows must be taken before the next one."""
        return self._row == self._capacity

    def take(self) -> Taken:
        """Return all collected messages as records, and start over."""
        width, rows = self._width, slice(self._first, self._row)
        data = self._flat[rows.start * width : rows.stop * width]
        complete = partial(self._complete, self._page, rows, self._about, self._shared, self._base)
        self._about, self._shared, self._first = [], [], self._row
        if self._row == self._capacity:
            self._open_page()
        return data, complete

    def _complete(
        self,
        page: _Page,
        rows: slice,
        about: list[tuple[int, int, int]],
        shared: list[tuple[int, int, int, bool]],
        base: Array,
    ) -> Array:
        """Fill in the values that do not depend on the sensor's memory, and return the index; called by any thread."""
        frames, walls, ticks = (np.array(values) for values in zip(*about, strict=True))
        times = np.array([self._time_at(tick) for _, _, tick in about])
        logs = np.maximum(np.rint(times * 1e9), 0).astype(np.int64)
        for heads, values in zip(page.heads, page.about, strict=True):
            part = heads[rows]
            part["sequence"], part["log_time"], part["publish_time"] = frames & 0xFFFFFFFF, logs, walls
            values["tick"][rows], values["time"][rows] = ticks, times
        if shared:
            which, captures, samples, new = (np.array(values) for values in zip(*shared, strict=True))
            chosen = rows if len(shared) == len(about) else which  # a slice is much faster
            bad, measured = page.bad[chosen], page.about[0]
            for values, name in zip(page.about, ("capture_tick", "truth_tick"), strict=False):
                values[name][chosen] = captures[:, None]
            measured["frame"][chosen] = samples[:, None] - base
            measured["stamp"][chosen] = captures[:, None].astype(np.float64) * self._batches[0].dt
            measured["valid"][chosen] = True
            if bad.any():
                measured["valid"][chosen] = ~(bad if self._envs is None else bad[:, self._envs]).any(axis=2)
            measured["is_new"][chosen] = new[:, None]
        index = np.empty((len(about), len(page.heads), 3), np.int64)
        index[:, :, 0], index[:, :, 1] = self._channels, logs[:, None]
        index[:, :, 2] = np.arange(0, len(about) * self._width, self._width)[:, None] + self._starts
        return index.reshape(-1, 3)


class LogRows(Rows):
    """Collected messages of values of the loop, with one field, `value`.

    Args:
        batch: their layout.
        channel: their channel.
        time_at: returns the time of a tick, s.
    """

    def __init__(self, batch: Batch, channel: int, time_at: Callable[[int], float]) -> None:
        super().__init__((batch,), (channel,), time_at)
        (self.spec,) = batch.specs
        self.dtype = np.dtype(self.spec.dtype)
        self._samples = 0

    def add(self, about: tuple[int, int, int], values: Array) -> None:
        """Copy values.

        Args:
            about: number of the frame, wall clock (ns since 1970) and tick.
            values: `[env, ...]` of the recorded environments.
        """
        if values.size:
            self._page.fields[0]["value"][self._row] = values
        self._about.append(about)
        self._shared.append((self._row, about[2], self._samples, True))
        self._samples += 1
        self._row += 1


class SensorRows(Rows):
    """Collected messages of one sensor.

    Args:
        live: the sensor's memory.
        batches: layouts of the measured values and of the truth.
        channels: their channels.
        envs: recorded environments: a slice or indices; None for all.
    """

    def __init__(self, live: LiveSample, batches: tuple[Batch, ...], channels: tuple[int, ...], envs: Any) -> None:
        super().__init__(batches, channels, live.time_at, live.bad.shape, envs)
        self.live = live
        self._version = -1
        self._copies: list[tuple[int, int, memoryview]] = []
        """Place in a row and bytes of the arrays that are contiguous in the sensor's memory."""
        self._picks: list[tuple[bool, int, str, Array]] = []
        """Whether it is a field, branch, name and memory of the others, and of all if environments are picked."""
        for branch, (batch, start, source) in enumerate(
            zip(batches, self._starts, (live.measured, live.truth), strict=True)
        ):
            about, fields = batch.places(start + HEADS.itemsize)
            if "pose" in about and live.pose is not None:
                self._add_copy(False, branch, "pose", about["pose"], live.pose)
            for name, place in fields.items():
                self._add_copy(True, branch, name, place, source[name])
        self._varying_pose = live.pose is None and "pose" in self._page.about[0]
        self._bad_bytes = live.bad.reshape(-1).data

    def _add_copy(self, is_field: bool, branch: int, name: str, place: int, source: Array) -> None:
        """Copy an array of the sensor's memory to the same place in each row."""
        if isinstance(self._envs, slice):
            source = source[self._envs]
        if isinstance(self._envs, np.ndarray) or not source.flags.c_contiguous:
            self._picks.append((is_field, branch, name, source))
        else:
            self._copies.append((place, place + source.nbytes, source.reshape(-1).view(np.uint8).data))

    @property
    def must_flush(self) -> bool:
        """Whether the collected rows must be taken before the next one: they are full, or an env was reset."""
        return self._row == self._capacity or (self._row > self._first and self._version != self.live.resets)

    def add(self, about: tuple[int, int, int]) -> None:
        """Copy the sensor's newest sample.

        Args:
            about: number of the frame, wall clock (ns since 1970) and tick.
        """
        live, row, envs = self.live, self._row, self._envs
        shared = live.update()
        if self._version != live.resets:
            self._version = live.resets
            self._base = live.frame_base.copy() if envs is None else live.frame_base[envs].copy()
        page, at, flat, size = self._page, row * self._width, self._flat, self._bad_bytes.nbytes
        page.bad_bytes[row * size : (row + 1) * size] = self._bad_bytes
        for start, end, contents in self._copies:
            flat[at + start : at + end] = contents
        for is_field, branch, name, source in self._picks:
            target = page.fields[branch] if is_field else page.about[branch]
            target[name][row] = source[envs] if isinstance(envs, np.ndarray) else source
        if self._varying_pose:
            pose = live.shown_pose()
            page.about[0]["pose"][row] = pose if envs is None else pose[envs]
        if shared is not None:
            self._shared.append((row, *shared))
        else:
            measured, truth = page.about
            for name, values in live.about().items():
                chosen = values if envs is None else values[envs]
                (truth if name == "truth_tick" else measured)[name][row] = chosen
        self._about.append(about)
        self._row = row + 1

    def stack(self, data: memoryview) -> Stack:
        """Return the readings of completed messages that `take` returned, as views of them."""
        memory = np.frombuffer(data, np.uint8).reshape(-1, self._width)
        measured, truth = (
            batch.views(memory, start + HEADS.itemsize)
            for batch, start in zip(self._batches, self._starts, strict=True)
        )
        return stacked(self._batches[0], measured, truth)
