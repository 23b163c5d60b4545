"""The standard chain and the freeze, fused: white noise -> random walk -> bias -> quantisation -> ring.

One launch processes all columns of all sensors that are due at a tick. A thread processes four adjacent columns of one
field in one env (a `Quad`), because one block of the counter-based generator yields four words. The draws use only +
and * (no fused multiply-add), so they are bit-identical on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import (
    FIRST,
    SAMPLE,
    Compute,
    Rows,
    keeps_current,
    kernel,
    masked_tid,
    mode_now,
    sample_words,
    tick_now,
    ticks_after,
)
from sensorium.compute.rows import floats_at, words_at
from sensorium.measurement.knobs import KnobTable
from sensorium.random import NATIVE_8, normal_table, word_to_normal

NOISE = 1
WALK_AND_BIAS = 2
QUANTISE = 4
STORE = 8
"""Parts of the chain, as flags; a launch runs the sum of some of them."""
EVERYTHING = NOISE | WALK_AND_BIAS | QUANTISE | STORE

NEVER = 2**31 - 1
"""Ticks from the capture of a lost sample to its arrival."""


@wp.struct
class Quad:
    """Up to four adjacent columns of one field: their addresses and their parameters."""

    source: wp.uint64
    target: wp.uint64
    walk: wp.uint64
    ring: wp.uint64
    stamps: wp.uint64
    head: wp.uint64
    noise: wp.uint64
    random_walk: wp.uint64
    bias: wp.uint64
    resolution: wp.uint64
    noise_stride: wp.int32
    random_walk_stride: wp.int32
    bias_stride: wp.int32
    resolution_stride: wp.int32
    columns: wp.int32
    column: wp.int32
    count: wp.int32
    slots: wp.int32
    rotation: wp.int32
    element: wp.uint32
    noise_key0: wp.uint32
    noise_key1: wp.uint32
    walk_key0: wp.uint32
    walk_key1: wp.uint32


_QUAD = np.dtype(Quad.numpy_dtype())  # type: ignore[attr-defined]


@wp.func
def has_arrived(rows: Rows, captured: int, wait: int) -> bool:
    """Return whether a sample has arrived: the low word of its capture tick, and the ticks until its arrival."""
    return bool(wait <= ticks_after(tick_now(rows), captured))


@wp.func
def _load(address: wp.uint64, at: int, count: int) -> wp.vec4:
    """Read up to four neighbours; the others are 0."""
    values = floats_at(address, at, count)
    v = wp.vec4()
    for k in range(4):
        if k < count:
            v[k] = values[k]
    return v


@wp.func
def _store(address: wp.uint64, at: int, count: int, v: wp.vec4) -> None:
    """Write up to four neighbours."""
    values = floats_at(address, at, count)
    for k in range(4):
        if k < count:
            values[k] = v[k]


@wp.func
def _noise(sigma: wp.vec4, count: int, words: wp.vec4ui, table: wp.array[wp.vec3]) -> wp.vec4:
    """Turn words into up to four normals of the given deviations."""
    fourth = wp.float32(0.0)
    if count > 3:
        fourth = word_to_normal(words[3], table)
    return wp.vec4(
        sigma[0] * word_to_normal(words[0], table),
        sigma[1] * word_to_normal(words[1], table),
        sigma[2] * word_to_normal(words[2], table),
        sigma[3] * fourth,
    )


@wp.func
def _quantised(x: wp.float32, step: wp.float32) -> wp.float32:
    if step > 0.0:
        return wp.rint(x / step) * step
    return x


@wp.func
def _turned(q: wp.vec4, error: wp.vec4) -> wp.vec4:
    """Right-multiply by the small rotation (1, e/2), normalised: exact to third order in e."""
    if error[0] == 0.0 and error[1] == 0.0 and error[2] == 0.0:
        return q
    b = wp.vec3(0.5 * error[0], 0.5 * error[1], 0.5 * error[2])
    v = wp.vec3(q[1], q[2], q[3])
    scalar = q[0] - wp.dot(v, b)
    vector = q[0] * b + v + wp.cross(v, b)
    inverse = 1.0 / wp.sqrt(scalar * scalar + wp.dot(vector, vector))
    return wp.vec4(scalar * inverse, vector[0] * inverse, vector[1] * inverse, vector[2] * inverse)


@wp.func
def _freeze_quad(rows: Rows, env: int, quad: Quad, x: wp.vec4, num_envs: int) -> None:
    """Store a sample in the ring, or in all its slots at a reset; with loss, the last slot keeps the newest arrival."""
    row = env * quad.columns + quad.column
    plane = num_envs * quad.columns
    if mode_now(rows) == FIRST:
        for slot in range(quad.slots):
            _store(quad.ring, slot * plane + row, quad.count, x)
        return
    head = words_at(quad.head, env, 1)[0]
    if quad.stamps != wp.uint64(0):
        stamp = words_at(quad.stamps, 3 * (head * num_envs + env), 3)
        if has_arrived(rows, stamp[0], stamp[1]):
            _store(
                quad.ring, (quad.slots - 1) * plane + row, quad.count, _load(quad.ring, head * plane + row, quad.count)
            )
    _store(quad.ring, head * plane + row, quad.count, x)


@wp.func
def _do_quad(rows: Rows, env: int, quad: Quad, parts: int, num_envs: int, table: wp.array[wp.vec3]) -> None:
    n = quad.count
    row = env * quad.columns + quad.column
    has_noise = (parts & wp.static(NOISE)) != 0 and quad.noise != wp.uint64(0)
    walks = (parts & wp.static(WALK_AND_BIAS)) != 0 and quad.walk != wp.uint64(0) and mode_now(rows) == SAMPLE
    words = wp.vec4ui()
    steps = wp.vec4ui()  # both blocks at once, so that the processor can overlap them
    if has_noise:
        words = sample_words(rows, env, quad.element, quad.noise_key0, quad.noise_key1)
    if walks:
        steps = sample_words(rows, env, quad.element, quad.walk_key0, quad.walk_key1)
    x = _load(quad.source, row, n)
    error = wp.vec4()  # a rotation collects its rotation vector here and is turned once
    if has_noise:
        error = _noise(_load(quad.noise, env * quad.noise_stride + quad.column, n), n, words, table)
        if quad.rotation == 0:
            x = x + error
    if (parts & wp.static(WALK_AND_BIAS)) != 0:
        if quad.walk != wp.uint64(0):
            walk = wp.vec4()
            if walks:
                sigma = _load(quad.random_walk, env * quad.random_walk_stride + quad.column, n)
                walk = _load(quad.walk, row, n) + _noise(sigma, n, steps, table)
            _store(quad.walk, row, n, walk)
            if quad.rotation == 0:
                x = x + walk
            else:
                error = error + walk
        if quad.bias != wp.uint64(0):
            bias = _load(quad.bias, env * quad.bias_stride + quad.column, n)
            if quad.rotation == 0:
                x = x + bias
            else:
                error = error + bias
    if quad.rotation != 0:
        x = _turned(x, error)
    if (parts & wp.static(QUANTISE)) != 0 and quad.resolution != wp.uint64(0):
        step = _load(quad.resolution, env * quad.resolution_stride + quad.column, n)
        x = wp.vec4(
            _quantised(x[0], step[0]), _quantised(x[1], step[1]), _quantised(x[2], step[2]), _quantised(x[3], step[3])
        )
    _store(quad.target, row, n, x)
    if (parts & wp.static(STORE)) != 0 and quad.ring != wp.uint64(0):
        _freeze_quad(rows, env, quad, x, num_envs)


@kernel
def chain_kernel(
    rows: Rows, parts: int, num_envs: int, per_thread: int, quads: wp.array[Quad], table: wp.array[wp.vec3]
) -> None:
    """Apply the `parts` of the chain to some quads of one env, in the order given in the module docstring."""
    env, block = masked_tid(rows)
    first = block * per_thread
    for q in range(first, wp.min(first + per_thread, quads.shape[0])):
        _do_quad(rows, env, quads[q], parts, num_envs, table)


@wp.func_native(
    "#ifndef __CUDA_ARCH__"
    + NATIVE_8
    + """
const int n = quad.count;
const size_t row = (size_t)env * quad.columns + quad.column;
u8 words[4] = {}, counter[4] = {
    u8{} + (unsigned)rows.time.data[0], u8{0, 1, 2, 3, 4, 5, 6, 7} + (unsigned)(rows.first_env + env),
    u8{}, u8{} + quad.element};
for (int i = 0; i < 8; ++i) counter[2][i] = rows.episode.data[env + i];
const auto draw = [&](unsigned key0, unsigned key1) {
    for (int j = 0; j < 4; ++j) words[j] = counter[j];
    philox8(words, key0, key1);
};
const auto load = [&](unsigned long long address, size_t first, int stride) {
    f8 v = {};
    for (int i = 0; i < 8; ++i) v[i] = ((const float*)address)[first + (size_t)i * stride];
    return v;
};
const auto knob = [&](unsigned long long address, int stride, int j) {
    return load(address, (size_t)env * stride + quad.column + j, stride);
};
const auto store = [&](unsigned long long address, size_t first, f8 v) {
    for (int i = 0; i < 8; ++i) ((float*)address)[first + (size_t)i * quad.columns] = v[i];
};
f8 x[4];
for (int j = 0; j < n; ++j) x[j] = load(quad.source, row + j, quad.columns);
if ((parts & 1) && quad.noise) {
    draw(quad.noise_key0, quad.noise_key1);
    for (int j = 0; j < n; ++j) x[j] = x[j] + knob(quad.noise, quad.noise_stride, j) * normal8(words[j]);
}
if ((parts & 2) && quad.walk) {
    draw(quad.walk_key0, quad.walk_key1);
    for (int j = 0; j < n; ++j) {
        f8 step = knob(quad.random_walk, quad.random_walk_stride, j) * normal8(words[j]);
        f8 walk = load(quad.walk, row + j, quad.columns) + step;
        store(quad.walk, row + j, walk);
        x[j] = x[j] + walk;
    }
}
const bool stores = (parts & 8) && quad.ring;
const size_t head = stores ? ((const int*)quad.head)[env] : 0;  // the same slot for all envs
const size_t at = head * num_envs * quad.columns + row;
for (int j = 0; j < n; ++j) {
    if ((parts & 2) && quad.bias) x[j] = x[j] + knob(quad.bias, quad.bias_stride, j);
    if ((parts & 4) && quad.resolution) {
        f8 step = knob(quad.resolution, quad.resolution_stride, j);
        f8 rounded = __builtin_elementwise_rint(x[j] / step) * step;
        x[j] = step > 0.0f ? rounded : x[j];
    }
    store(quad.target, row + j, x[j]);
    if (stores) store(quad.ring, at + j, x[j]);
}
#endif
"""
)
def _do_quad_of_8(rows: Rows, env: int, quad: Quad, parts: int, num_envs: int, table: wp.array[wp.vec3]) -> None:
    """Do the same as `_do_quad` for a sample of eight envs, without rotations and losses; on the CPU only."""


@kernel
def chain_of_8_kernel(
    rows: Rows, parts: int, num_envs: int, per_thread: int, quads: wp.array[Quad], table: wp.array[wp.vec3]
) -> None:
    """Apply the `parts` of the chain to some quads of up to eight envs."""
    i, block = wp.tid()
    env = rows.start + 8 * i
    end = wp.min(env + 8, rows.first)
    inside = wp.int32(0)
    for each in range(env, end):
        inside += wp.int32(rows.mask[each])
    first = block * per_thread
    for q in range(first, wp.min(first + per_thread, quads.shape[0])):
        quad = quads[q]
        if inside == 8 and mode_now(rows) == SAMPLE and quad.rotation == 0 and quad.stamps == wp.uint64(0):
            _do_quad_of_8(rows, env, quad, parts, num_envs, table)
        else:
            for each in range(env, end):
                if rows.mask[each] != wp.uint8(0):
                    _do_quad(rows, each, quad, parts, num_envs, table)


@dataclass(slots=True)
class ChainField:
    """One field in the chain.

    Args:
        places: `source` and `target`, and optionally `walk`, `ring`, `head` and `stamps`.
        knobs: knobs of the field, by name.
        columns: number of columns.
        index: index of the field in the data class.
        is_rotation: whether it contains quaternions.
        keys: keys of the noise and of the random walk.
    """

    places: dict[str, torch.Tensor]
    knobs: dict[str, KnobTable]
    columns: int
    index: int
    is_rotation: bool
    keys: tuple[tuple[int, int], tuple[int, int]]


class ChainTable:
    """Quads of several fields, processed by one launch of the chain.

    Knob tables may move in memory when they are set per env. `refresh` then rewrites the quads in place, so that
    recorded and captured launches remain valid.
    """

    @keeps_current
    def __init__(self, compute: Compute, fields: Sequence[ChainField]) -> None:
        self._compute, self._fields = compute, fields
        self.count = sum(-(-field.columns // 4) for field in fields)
        self._host: Any = np.zeros(self.count, dtype=_QUAD)
        self._memory = torch.zeros(max(self._host.nbytes, 1), dtype=torch.uint8, device=compute.device)
        self._quads = wp.array(ptr=self._memory.data_ptr(), shape=(self.count,), dtype=Quad, device=compute.wp_device)
        self.refresh()

    def refresh(self) -> None:
        """Rewrite addresses and strides."""
        start = 0
        for field in self._fields:
            column = np.arange(0, field.columns, 4)
            quads = self._host[start : start + len(column)]
            start += len(column)
            for name, tensor in field.places.items():
                quads[name] = tensor.data_ptr()
            for knob, table in field.knobs.items():
                quads[knob], quads[f"{knob}_stride"] = table.values.data_ptr(), table.stride
            quads["columns"], quads["column"] = field.columns, column
            quads["count"] = np.minimum(4, field.columns - column)
            quads["slots"] = len(field.places["ring"]) if "ring" in field.places else 0
            quads["rotation"], quads["element"] = field.is_rotation, field.index << 24 | column // 4
            for name, key in zip(("noise", "walk"), field.keys, strict=True):
                quads[f"{name}_key0"], quads[f"{name}_key1"] = key
        if self.count:
            self._memory.copy_(torch.from_numpy(self._host.view(np.uint8)))  # in stream order

    def launch(self, parts: int) -> None:
        """Run (or record) the given parts of the chain over all quads."""
        if self.count:
            compute = self._compute
            run, per_thread, envs = chain_kernel, 1, 1
            if compute.is_cpu:  # threads cost time there
                run, per_thread, envs = chain_of_8_kernel, 8, 8
            inputs = [parts, compute.num_envs, per_thread, self._quads, normal_table(compute.wp_device)]
            compute.launch(run, (-(-self.count // per_thread),), inputs, envs=envs)
