"""Rows of small readings: samples are copied from the sensor's memory into messages, which a thread completes.

A step of a simulation takes a millisecond or less, and Python is slow per array and message. Each sample therefore
costs one copy per field. The thread that writes the file fills in everything else, for many samples at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from sensorium.readings import Array
from sensorium.record.batches import HEADS, LITTLE_ENDIAN, OPCODE, Batch, stacked
from sensorium.record.chunks import Chunk, Part

if TYPE_CHECKING:
    from sensorium.record.mcap_writer import McapWriter
    from sensorium.record.stacks import Stack
    from sensorium.scene.publish import LiveSample

MAX_BYTES, MAX_ROWS = 2**20, 256
"""Maximum size and number of the rows of a page."""
KEPT_BYTES = 2**24
"""Maximum size of the unused pages that are kept: new memory would cost the loop a tenth of its time for recording."""
AFTER_SENSORS = 2**31
"""Order of the parts with values of the loop."""
_NO_INDEX = np.empty((0, 3), np.int64)


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


@dataclass(slots=True, eq=False)
class _Segment(Part):
    """Consecutive rows of a page, which are a part of one chunk.

    Adding a sample adds its row to the file, so that an interrupt at any moment loses no earlier row.
    """

    rows: Any = None
    page: Any = None
    flat: Any = None
    """Memory of the page, which is reused when nothing refers to it."""
    first: int = 0
    chunk: Any = None
    version: int = 0
    """Number of resets at which it was opened; its rows have the same `base`."""
    base: Any = None
    """Number of the first capture of each environment since its reset."""
    samples: list[tuple[tuple[int, int, int], tuple[int, int, bool] | None]] = field(default_factory=list)
    """Number of the frame, wall clock (ns) and tick of each row; tick and number of its capture and whether it is new,
    if all environments share them."""

    def complete(self) -> None:
        """Fill in the values that do not depend on the sensor's memory, and the index."""
        if self.samples and not self.buffers:
            self.index = self.rows.complete(self)
            width = self.rows.width
            self.buffers = [self.flat[self.first * width : (self.first + len(self.samples)) * width]]


class Rows:
    """Messages of one sensor or log that are collected in the open chunk of a file.

    Args:
        writer: the file, whose lock is held while rows are added; or a chunk of no file.
        order: place of the messages among those of a frame, see `Part`.
        batches: layouts of the measured values and, for a sensor, of the truth.
        channels: their channels.
        time_at: returns the time of a tick, s.
        bad: shape of `LiveSample.bad`.
        envs: the recorded environments: a slice or indices; None for all.
        about: data of the owner, see `Part`.
    """

    def __init__(
        self,
        writer: McapWriter | Chunk,
        order: int,
        batches: tuple[Batch, ...],
        channels: tuple[int, ...],
        time_at: Callable[[int], float],
        bad: tuple[int, ...] = (0, 0),
        envs: Any = None,
        about: Any = None,
    ) -> None:
        self._writer, self._order, self._about = writer, order, about
        self._batches, self._channels, self._time_at, self._bad, self._envs = batches, channels, time_at, bad, envs
        ends = np.cumsum([HEADS.itemsize + batch.nbytes for batch in batches]).tolist()
        self._starts, self.width = [0, *ends[:-1]], int(ends[-1])
        self._capacity = max(1, min(MAX_ROWS, MAX_BYTES // self.width))
        self._base: Array = np.zeros(len(batches[0].env_ids), np.int64)
        self._pages: list[_Page] = []
        """Unused pages."""
        self._segment = self._open_page()

    def _place(self, version: int = 0) -> tuple[_Segment, int]:
        """Return the segment and the row of the next sample.

        Args:
            version: number of resets; environments share `_base` until the next one.
        """
        segment = self._segment
        row = segment.first + len(segment.samples)
        if row == self._capacity:
            segment, row = self._open_page(), 0
        elif segment.chunk is not None and segment.chunk.is_open and segment.version == version:
            return segment, row
        else:
            page = segment.page, segment.flat
            segment = _Segment(self._order, (), _NO_INDEX, self._about, self, *page, row)
        segment.version, segment.base = version, self._base
        segment.chunk = self._writer.add_part(segment)
        self._segment = segment
        return segment, row

    def _open_page(self) -> _Segment:
        """Return an empty segment on an empty page."""
        page = self._pages.pop() if self._pages else self._new_page()
        memory = page.rows.reshape(-1)
        finalize(memory, _keep, self._pages, page).atexit = False
        return _Segment(self._order, about=self._about, rows=self, page=page, flat=memory.data)

    def _new_page(self) -> _Page:
        """Return a page with the bytes that all rows share."""
        memory = np.zeros((self._capacity, self.width), np.uint8)
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

    def end(self) -> None:
        """Continue with another part."""
        self._segment.chunk = None

    def complete(self, segment: _Segment) -> Array:
        """Fill in the values that do not depend on the sensor's memory, and return the index; called by any thread."""
        page, count = segment.page, len(segment.samples)
        rows = slice(segment.first, segment.first + count)
        frames, walls, ticks = np.array([about for about, _ in segment.samples]).T
        times = np.array([self._time_at(tick) for tick in ticks.tolist()])
        logs = np.maximum(np.rint(times * 1e9), 0).astype(np.int64)
        for heads, values in zip(page.heads, page.about, strict=True):
            part = heads[rows]
            part["sequence"], part["log_time"], part["publish_time"] = frames & 0xFFFFFFFF, logs, walls
            values["tick"][rows], values["time"][rows] = ticks, times
        shared = [(row, *each) for row, (_, each) in enumerate(segment.samples, segment.first) if each is not None]
        if shared:
            which, captures, samples, new = (np.array(values) for values in zip(*shared, strict=True))
            chosen = rows if len(shared) == count else which  # a slice is much faster
            bad, measured = page.bad[chosen], page.about[0]
            for values, name in zip(page.about, ("capture_tick", "truth_tick"), strict=False):
                values[name][chosen] = captures[:, None]
            measured["frame"][chosen] = samples[:, None] - segment.base
            measured["stamp"][chosen] = captures[:, None].astype(np.float64) * self._batches[0].dt
            measured["valid"][chosen] = True
            if bad.any():
                measured["valid"][chosen] = ~(bad if self._envs is None else bad[:, self._envs]).any(axis=2)
            measured["is_new"][chosen] = new[:, None]
        index = np.empty((count, len(page.heads), 3), np.int64)
        index[:, :, 0], index[:, :, 1] = self._channels, logs[:, None]
        index[:, :, 2] = np.arange(0, count * self.width, self.width)[:, None] + self._starts
        return index.reshape(-1, 3)


class LogRows(Rows):
    """Collected messages of values of the loop, with one field, `value`.

    Args:
        writer: the file.
        batch: their layout.
        channel: their channel.
        time_at: returns the time of a tick, s.
    """

    def __init__(self, writer: McapWriter, batch: Batch, channel: int, time_at: Callable[[int], float]) -> None:
        super().__init__(writer, AFTER_SENSORS, (batch,), (channel,), time_at)
        (self.spec,) = batch.specs
        self.dtype = np.dtype(self.spec.dtype)
        self._samples = 0

    def add(self, about: tuple[int, int, int], values: Array) -> None:
        """Copy values.

        Args:
            about: number of the frame, wall clock (ns since 1970) and tick.
            values: `[env, ...]` of the recorded environments.
        """
        segment, row = self._place()
        if values.size:
            segment.page.fields[0]["value"][row] = values
        segment.samples.append((about, (about[2], self._samples, True)))
        self._samples += 1
        self._writer.grow(segment.chunk, self.width)


class SensorRows(Rows):
    """Collected messages of one sensor.

    Args:
        writer: the file, or a chunk.
        order: place of the messages among those of a frame.
        live: the sensor's memory.
        batches: layouts of the measured values and, if wanted, of the truth.
        channels: their channels.
        envs: recorded environments: a slice or indices; None for all.
        about: data of the owner, see `Part`.
    """

    def __init__(
        self,
        writer: McapWriter | Chunk,
        order: int,
        live: LiveSample,
        batches: tuple[Batch, ...],
        channels: tuple[int, ...],
        envs: Any,
        about: Any,
    ) -> None:
        super().__init__(writer, order, batches, channels, live.time_at, live.bad.shape, envs, about)
        self.live = live
        self._version = -1
        self._copies: list[tuple[int, int, memoryview]] = []
        """Place in a row and bytes of the arrays that are contiguous in the sensor's memory."""
        self._picks: list[tuple[bool, int, str, Array]] = []
        """Whether it is a field, branch, name and memory of the others, and of all if environments are picked."""
        for branch, (batch, start, source) in enumerate(
            zip(batches, self._starts, (live.measured, live.truth), strict=False)
        ):
            about, fields = batch.places(start + HEADS.itemsize)
            if "pose" in about and live.pose is not None:
                self._add_copy(False, branch, "pose", about["pose"], live.pose)
            for name, place in fields.items():
                self._add_copy(True, branch, name, place, source[name])
        self._varying_pose = live.pose is None and "pose" in self._segment.page.about[0]
        self._bad_bytes = live.bad.reshape(-1).data

    def _add_copy(self, is_field: bool, branch: int, name: str, place: int, source: Array) -> None:
        """Copy an array of the sensor's memory to the same place in each row."""
        if isinstance(self._envs, slice):
            source = source[self._envs]
        if isinstance(self._envs, np.ndarray) or not source.flags.c_contiguous:
            self._picks.append((is_field, branch, name, source))
        else:
            self._copies.append((place, place + source.nbytes, source.reshape(-1).view(np.uint8).data))

    def add(self, about: tuple[int, int, int]) -> None:
        """Copy the sensor's newest sample.

        Args:
            about: number of the frame, wall clock (ns since 1970) and tick.
        """
        live, envs = self.live, self._envs
        shared = live.update()
        if self._version != live.resets:
            self._base = live.frame_base.copy() if envs is None else live.frame_base[envs].copy()
            self._version = live.resets
        segment, row = self._place(self._version)
        page, at, flat, size = segment.page, row * self.width, segment.flat, self._bad_bytes.nbytes
        page.bad_bytes[row * size : (row + 1) * size] = self._bad_bytes
        for start, end, contents in self._copies:
            flat[at + start : at + end] = contents
        for is_field, branch, name, source in self._picks:
            target = page.fields[branch] if is_field else page.about[branch]
            target[name][row] = source[envs] if isinstance(envs, np.ndarray) else source
        if self._varying_pose:
            pose = live.shown_pose()
            page.about[0]["pose"][row] = pose if envs is None else pose[envs]
        if shared is None:
            for name, values in live.about().items():
                for arrays in page.about:
                    if name in arrays:
                        arrays[name][row] = values if envs is None else values[envs]
        segment.samples.append((about, shared))
        self._writer.grow(segment.chunk, self.width)

    def stack(self, data: memoryview) -> Stack:
        """Return the readings of completed messages, as views of them."""
        memory = np.frombuffer(data, np.uint8).reshape(-1, self.width)
        views = (
            batch.views(memory, start + HEADS.itemsize)
            for batch, start in zip(self._batches, self._starts, strict=True)
        )
        return stacked(self._batches[0], *views)
