"""Gathering of observations: one launch copies, scales, delays and stacks all terms of all groups.

A thread handles up to `SPAN` elements of one term in one environment. The order is that of the term's options: noise,
clip, scale, delay, history, normalisation. Terms with a delay, a history or statistics keep their last values in a ring
`[slot, env, element]`. The ring advances once per tick, so a second call at the same tick returns the same values. An
environment that was reset fills all its slots with the first value of the new episode.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import Rows, episode_words, kernel, masked_tid, sample_words
from sensorium.measurement.record import bytes_at, words_at
from sensorium.random import NORMAL, U32, Distribution, normal_table, stream_key, word_to_normal, word_to_uniform

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

DTYPES = {name: number for number, name in enumerate(("float32", "float64", "int32", "int64", "int16", "uint8"))}
DTYPES["bool"] = DTYPES["uint8"]
SPAN = 64
"""Maximum number of elements that one thread copies; a multiple of 4, the numbers of one random block."""
NORMAL_CLIP = wp.constant(10.0)
"""Maximum magnitude of a normalised value."""
DELAY: U32 = wp.constant(wp.uint32(0xFFFFFFFF))
"""Element of the random numbers of the delay, beyond those of the noise."""
LEAST_VARIANCE = 1e-8
"""Variance that is added where a value is normalised."""


@wp.struct
class Piece:
    """Up to `SPAN` elements of one term, from its source to its columns."""

    source: wp.uint64
    dtype: wp.int32
    size: wp.int32  # elements of the term
    start: wp.int32  # first element of this piece
    count: wp.int32
    far: wp.float32  # replaces infinity
    noise: wp.int32  # kind of distribution, -1 for none
    noise_a: wp.float32
    noise_b: wp.float32
    low: wp.float32
    high: wp.float32
    scale: wp.uint64
    key0: wp.uint32
    key1: wp.uint32
    ring: wp.uint64  # 0 where the term has no memory
    depth: wp.int32
    least_delay: wp.int32
    delays: wp.int32  # number of different delays
    entries: wp.int32
    statistics: wp.uint64  # mean, then factor, of each element; 0 where the term is not normalised
    column: wp.int32  # of the first element of the term in environment 0
    row: wp.int32  # columns from one environment to the next
    entry: wp.int32  # columns from one entry of the history to the next


@wp.func
def _floats(address: wp.uint64):  # type: ignore[no-untyped-def]  # Warp infers it
    return wp.array(ptr=address, shape=(2147483647,), dtype=wp.float32)


@wp.func
def _converted(piece: Piece, at: int) -> wp.float32:
    """Return an element of a source of another dtype as float32."""
    value = wp.float32(0.0)
    if piece.dtype == 1:
        value = wp.float32(wp.array(ptr=piece.source, shape=(1073741823,), dtype=wp.float64)[at])
    elif piece.dtype == 2:
        value = wp.float32(words_at(piece.source)[at])
    elif piece.dtype == 3:
        value = wp.float32(wp.array(ptr=piece.source, shape=(1073741823,), dtype=wp.int64)[at])
    elif piece.dtype == 4:
        value = wp.float32(wp.array(ptr=piece.source, shape=(2147483647,), dtype=wp.int16)[at])
    else:
        value = wp.float32(bytes_at(piece.source)[at])
    return value


@kernel
def _gather(
    rows: Rows,
    pieces: wp.array[Piece],
    table: wp.array[wp.vec3],
    seen: wp.array2d[wp.int32],
    head: int,
    out: wp.uint64,
) -> None:
    env, k = masked_tid(rows)
    p = pieces[k]
    target = _floats(out)
    source = _floats(p.source)
    scale = _floats(p.scale)
    ring = _floats(p.ring)
    statistics = _floats(p.statistics)
    plane = rows.mask.shape[0] * p.size
    is_first = seen[env, k] != rows.episode[env]
    seen[env, k] = rows.episode[env]
    late = p.least_delay
    if p.delays > 1:
        words = episode_words(rows, env, DELAY, p.key0, p.key1)
        late += wp.min(wp.int32(word_to_uniform(words[0]) * wp.float32(p.delays)), p.delays - 1)
    words = wp.vec4ui()
    newest = head % wp.max(p.depth, 1)
    column = env * p.row + p.column
    for j in range(p.count):
        element = p.start + j
        here = env * p.size + element
        value = wp.float32(0.0)
        if p.dtype == 0:
            value = source[here]
        else:
            value = _converted(p, here)
        if wp.isinf(value) and p.far < wp.inf:
            value = wp.where(value > 0.0, p.far, -p.far)
        if p.noise >= 0:
            if j % 4 == 0:
                words = sample_words(rows, env, wp.uint32(element / 4), p.key0, p.key1)
            if p.noise == NORMAL:
                value += p.noise_a + p.noise_b * word_to_normal(words[j % 4], table)
            else:
                value += p.noise_a + (p.noise_b - p.noise_a) * word_to_uniform(words[j % 4])
        if value < p.low:
            value = p.low
        elif value > p.high:
            value = p.high
        if p.scale != wp.uint64(0):
            value = value * scale[element]
        if p.ring == wp.uint64(0):
            target[column + element] = value
        elif is_first:
            for slot in range(p.depth):
                ring[slot * plane + here] = value
        else:
            ring[newest * plane + here] = value
    if p.ring == wp.uint64(0):
        return
    for age in range(p.entries):
        slot = (newest + p.depth - late - age) % p.depth
        shown = slot * plane + env * p.size
        for element in range(p.start, p.start + p.count):
            value = ring[shown + element]
            if p.statistics != wp.uint64(0):
                value = (value - statistics[element]) * statistics[p.size + element]
                value = wp.clamp(value, -NORMAL_CLIP, NORMAL_CLIP)
            target[column + age * p.entry + element] = value


@wp.struct
class Statistic:
    """Running statistics of one element of a term."""

    ring: wp.uint64
    depth: wp.int32
    size: wp.int32
    element: wp.int32
    sums: wp.uint64  # float64 [3, size]: number of values, mean, sum of squared deviations
    statistics: wp.uint64


@kernel
def _count(rows: Rows, parts: wp.array[Statistic], head: int) -> None:
    s = parts[wp.tid()]
    values = _floats(s.ring)
    sums = wp.array(ptr=s.sums, shape=(1073741823,), dtype=wp.float64)
    factors = _floats(s.statistics)
    envs = rows.mask.shape[0]
    start = (head % s.depth) * envs * s.size + s.element
    count, total = wp.float64(0.0), wp.float64(0.0)
    for env in range(envs):
        value = values[start + env * s.size]
        if wp.isfinite(value):
            count += wp.float64(1.0)
            total += wp.float64(value)
    if count == wp.float64(0.0):
        return
    mean = total / count
    squares = wp.float64(0.0)
    for env in range(envs):
        value = values[start + env * s.size]
        if wp.isfinite(value):
            squares += (wp.float64(value) - mean) * (wp.float64(value) - mean)
    before = sums[s.element]
    after = before + count
    away = mean - sums[s.size + s.element]
    sums[s.element] = after
    sums[s.size + s.element] += away * count / after
    sums[2 * s.size + s.element] += squares + away * away * before * count / after
    factors[s.element] = wp.float32(sums[s.size + s.element])
    variance = sums[2 * s.size + s.element] / after + wp.float64(wp.static(LEAST_VARIANCE))
    factors[s.size + s.element] = wp.float32(wp.float64(1.0) / wp.sqrt(variance))


@dataclass(slots=True)
class Column:
    """One term as the kernel sees it.

    Args:
        key: name that identifies the term in the scene: random numbers and saved memory depend on it.
        size: number of elements.
        noise: distribution of additive noise, or None.
        clip: minimum and greatest value after the noise.
        scale: factor of each element, or None.
        delay: minimum and greatest delay, in ticks with a call.
        entries: number of values in the result, the newest first.
        normalises: whether running statistics normalise the result.
        column: place of the first element.
        row: columns from one environment to the next.
        entry: columns from one entry of the history to the next.
    """

    key: str
    size: int
    noise: Distribution | None
    clip: tuple[float, float]
    scale: np.ndarray[Any, np.dtype[np.float32]] | None
    delay: tuple[int, int]
    entries: int
    normalises: bool
    column: int
    row: int
    entry: int

    @property
    def is_plain(self) -> bool:
        """Whether values are only converted to float32."""
        return not self.depth and self.noise is None and self.scale is None and self.clip == (-inf, inf)

    @property
    def depth(self) -> int:
        """Number of values that the term keeps; 0 for none."""
        needed = self.delay[1] + self.entries
        return needed if needed > 1 or self.normalises else 0


class Gather:
    """Memory and launch of all terms of an observer.

    Args:
        scene: scene of the sensors.
        columns: the terms.
        far: finite value that replaces infinity, or infinity.
        total: number of columns of all groups.

    Attributes:
        learns: whether the running statistics follow new values.
    """

    def __init__(self, scene: Scene, columns: list[Column], far: float, total: int) -> None:
        self._scene, self._columns, self._far, self._total = scene, columns, far, total
        compute = scene.compute
        self.key = " ".join(f"{c.key}*{c.size}*{c.depth}" for c in columns if c.depth)
        """Identification of the saved state of this memory; empty without memory."""
        self.learns = True
        self._head, self._tick, self._counts = 0, -1, False
        depths = {number: column.depth for number, column in enumerate(columns) if column.depth}
        nbytes = 4 * compute.num_envs * sum(columns[number].size * depth for number, depth in depths.items())
        compute.memory.check(nbytes, "history", max(depths.values(), default=0), "Observer")

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=compute.device)

        self._rings = {k: zeros(depth, compute.num_envs, columns[k].size) for k, depth in depths.items()}
        normalised = [k for k, column in enumerate(columns) if column.normalises]
        self._sums = {k: zeros(3, columns[k].size, dtype=torch.float64) for k in normalised}
        self._factors = {k: torch.stack([zeros(columns[k].size), 1.0 + zeros(columns[k].size)]) for k in normalised}
        self._spans = [
            (k, start, min(SPAN, column.size - start))
            for k, column in enumerate(columns)
            for start in range(0, column.size, SPAN)
        ]
        self._seen = zeros(compute.num_envs, max(len(self._spans), 1), dtype=torch.int32)
        self._scales = {
            k: torch.from_numpy(column.scale).to(compute.device)
            for k, column in enumerate(columns)
            if column.scale is not None
        }
        self._copies = compute.is_cpu and all(column.is_plain and column.row == total for column in columns)
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._rows = compute.rows(compute.all_envs)
        self._table = normal_table(compute.wp_device)
        self._count_command = self._statistics() if normalised else None
        self.forget()

    # One observation --------------------------------------------------------------------------------------------------

    def run(self) -> torch.Tensor:
        """Return the observation of the current tick in new memory, float32 `[env * column]`."""
        if self._copies:  # NumPy copies plain columns of one group several times faster
            joined = np.concatenate(self._arrays, 1, dtype=np.float32, casting="unsafe")
            if self._far < inf:
                np.copysign(self._far, joined, out=joined, where=np.isinf(joined))
            return torch.from_numpy(joined).view(-1)
        tick = self._scene.clock.tick
        if is_new := tick != self._tick:
            self._tick = tick
            self._head += 1
        out = torch.empty(self._scene.num_envs * self._total, dtype=torch.float32, device=self._scene.compute.device)
        self._launch(out)
        if self._count_command is not None and is_new and self.learns:
            self._count_command.set_param_at_index(2, self._head)
            self._count_command.launch(self._scene.compute.stream)
            if not self._counts:  # the first values are normalised with their own statistics
                self._counts = True
                self._launch(out)
        return out

    def _launch(self, out: torch.Tensor) -> None:
        self._command.set_param_at_index(4, self._head)
        self._command.set_param_at_index(5, out.data_ptr())
        self._command.launch(self._scene.compute.stream)

    # Set-up -----------------------------------------------------------------------------------------------------------

    def bind(self, sources: list[torch.Tensor]) -> None:
        """Use new memory of the terms: contiguous tensors `[env, ...]`, which the caller keeps alive."""
        compute = self._scene.compute
        if self._copies:
            self._arrays = [source[:, None].flatten(1).numpy() for source in sources]
            return
        table: Any = np.zeros(len(self._spans), dtype=Piece.numpy_dtype())  # type: ignore[attr-defined]
        for number, (k, start, count) in enumerate(self._spans):
            table[number] = self._piece(k, start, count, sources[k])
        pieces, self._pieces = self._structs(table, Piece)
        arguments = [self._rows, pieces, self._table, wp.from_torch(self._seen), 0, wp.uint64(0)]
        self._command = compute.command(_gather, (compute.num_envs, len(self._spans)), arguments)

    def _piece(self, k: int, start: int, count: int, source: torch.Tensor) -> tuple[Any, ...]:
        column = self._columns[k]
        noise = column.noise
        kind, a, b = (-1, 0.0, 0.0) if noise is None else (noise.kind, *map(float, astuple(noise)))
        address = {name: each[k].data_ptr() if k in each else 0 for name, each in self._addresses.items()}
        return (
            source.data_ptr(), DTYPES[str(source.dtype).removeprefix("torch.")], column.size, start, count, self._far,
            kind, a, b, *column.clip, address["scale"], *stream_key(self._scene.seed, column.key, "observation"),
            address["ring"], column.depth, column.delay[0], 1 + column.delay[1] - column.delay[0], column.entries,
            address["factors"], column.column, column.row, column.entry,
        )  # fmt: skip

    @property
    def _addresses(self) -> dict[str, dict[int, torch.Tensor]]:
        return {"scale": self._scales, "ring": self._rings, "factors": self._factors}

    def _statistics(self) -> Any:
        compute, parts = self._scene.compute, []
        for k, sums in self._sums.items():
            ring, size = self._rings[k], self._columns[k].size
            for element in range(size):
                parts.append((ring.data_ptr(), len(ring), size, element, sums.data_ptr(), self._factors[k].data_ptr()))
        table: Any = np.array(parts, dtype=Statistic.numpy_dtype())  # type: ignore[attr-defined,arg-type]
        statistics, self._parts = self._structs(table, Statistic)
        return compute.command(_count, (len(parts),), [self._rows, statistics, 0])

    def _structs(self, table: Any, struct: Any) -> tuple[Any, torch.Tensor]:
        """Return structs as an array for kernels, and its memory, which is written in the order of torch's stream."""
        compute = self._scene.compute
        memory = torch.frombuffer(bytearray(table.tobytes()), dtype=torch.uint8).to(compute.device, copy=True)
        return wp.array(ptr=memory.data_ptr(), shape=table.shape, dtype=struct, device=compute.wp_device), memory

    # State ------------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Start all histories again at the next call; the statistics are kept."""
        self._seen.fill_(-2)
        self._tick = -1

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors that must be saved to resume."""
        groups = {"ring": self._rings, "sums": self._sums, "factors": self._factors}
        return {f"{name}/{k}": each for name, group in groups.items() for k, each in group.items()} | {
            "seen": self._seen
        }

    def counters(self) -> dict[str, int]:
        """Return the host's counters, which must be saved to resume."""
        return {"head": self._head, "tick": self._tick, "counts": int(self._counts)}

    def load(self, tensors: dict[str, torch.Tensor], counters: dict[str, int]) -> None:
        """Restore the results of `tensors` and `counters`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self._head, self._tick, self._counts = counters["head"], counters["tick"], bool(counters["counts"])
