"""Transport of frozen samples to the reader: the return-space ring, delay, jitter, loss and history.

A sample is frozen at capture and arrives at capture tick + round((delay + jitter) / dt), half up, or never. The shown
sample is the newest one that has arrived. It is a function of ring and tick that is evaluated on read, so a waiting
sensor costs nothing per tick. The ring advances for all envs together. Capture and arrival ticks are per env and slot,
since a reset captures off the grid. A reset fills all slots of its envs with the first new sample, so that no earlier
sample can be shown.

Where samples may be lost, an additional last slot keeps the newest sample that had arrived when it was overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.cfg import GilbertElliott, amount_bounds, numbers_in
from sensorium.compute import (
    FIRST,
    Compute,
    Rows,
    kernel,
    masked_tid,
    mode_now,
    sample_words,
    tick_captured,
    tick_now,
    ticks_after,
)
from sensorium.compute.clock import MAX_TICKS, Clock
from sensorium.compute.rows import quads_at, words_at
from sensorium.errors import ConfigError
from sensorium.measurement.chain import NEVER, has_arrived
from sensorium.measurement.counter import SampleCounter
from sensorium.measurement.draws import ColumnDistribution, column_distribution, converted, draw_value, is_drawn
from sensorium.measurement.knobs import KnobTable
from sensorium.measurement.plan import SensorPlan
from sensorium.measurement.record import TORCH_DTYPES, Record, copy_word, words_of
from sensorium.random import Uniform, normal_table, stream_key, word_to_uniform


@wp.struct
class Row:
    """Memory of one field: addresses of its ring and of the shown sample, and number of words per env."""

    ring: wp.uint64
    shown: wp.uint64
    words: wp.int32


_ROW = np.dtype(Row.numpy_dtype())  # type: ignore[attr-defined]


@wp.struct
class Transport:
    """All arguments of the kernels of one ring, in one struct, since each argument costs time at every launch."""

    head: wp.array[wp.int32]  # over envs: the slot of the next sample, the same for all between samples
    bad: wp.array2d[wp.uint8]
    # Parameters of arrival
    delay: wp.array2d[wp.float32]
    has_jitter: wp.int32
    jitter: ColumnDistribution  # over envs
    has_loss: wp.int32
    in_bursts: wp.int32
    loss: wp.array2d[wp.float32]
    burst_end: wp.float32
    key0: wp.uint32
    key1: wp.uint32
    table: wp.array[wp.vec3]
    stamps: wp.array2d[wp.vec3i]  # of each slot and env: see `DelayRing.stamps`
    burst: wp.array[wp.uint8]  # over envs
    least: wp.array[wp.int32]  # over envs: the least ticks until arrival of a sample since the reset
    period: wp.float32  # mean number of ticks per sample
    shown: wp.array[wp.vec4l]  # over envs: the shown slot, and its stamp; arrival is -1 before it arrives
    fields: wp.array[Row]


@kernel(group="delay")
def _dispatch(rows: Rows, tasks: wp.array[Transport]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    head = t.head[env]
    slots = t.stamps.shape[0]
    mode = mode_now(rows)
    good = wp.int32(1)
    for mount in range(t.bad.shape[1]):
        if t.bad[env, mount] != wp.uint8(0):
            good = wp.int32(0)
    captured = wp.int32(tick_captured(rows))
    words = wp.vec4ui()
    if t.has_jitter != 0 or t.has_loss != 0:
        words = sample_words(rows, env, wp.uint32(0), t.key0, t.key1)
    late = t.delay[env, 0]
    if t.has_jitter != 0:
        late = late + wp.clamp(draw_value(t.jitter, env, words[0], t.table), -late, late)
    wait = wp.int32(wp.floor(late + 0.5))
    if t.has_loss != 0:
        state = t.burst[env]
        if mode == FIRST or t.in_bursts == 0:
            state = wp.uint8(0)
        turn = word_to_uniform(words[1])
        if state == wp.uint8(0):
            if turn < t.loss[env, 0]:
                state = wp.uint8(1)
        else:
            if turn < t.burst_end:
                state = wp.uint8(0)
        t.burst[env] = state
        if state == wp.uint8(1):
            wait = wp.static(NEVER)
    if mode == FIRST:
        t.least[env] = wait
        for slot in range(slots):
            t.stamps[slot, env] = wp.vec3i(captured, wait, good)
        if t.has_loss != 0:
            t.stamps[slots - 1, env] = wp.vec3i(captured, wp.static(NEVER), 0)
        return
    if t.has_loss != 0:
        stamp = t.stamps[head, env]
        if has_arrived(rows, stamp[0], stamp[1]):
            t.stamps[slots - 1, env] = stamp
    t.least[env] = wp.min(t.least[env], wait)
    t.stamps[head, env] = wp.vec3i(captured, wait, good)
    t.head[env] = (head + 1) % (slots - t.has_loss)


@kernel
def _freeze(rows: Rows, t: Transport, count: int, wide: int, source: wp.uint64, ring: wp.uint64) -> None:
    env, w = masked_tid(rows)
    head = t.head[env]
    slots = t.stamps.shape[0]
    index = env * count + w
    plane = t.stamps.shape[1] * count
    if mode_now(rows) == FIRST:
        for slot in range(slots):
            copy_word(wide, source, index, ring, slot * plane + index)
        return
    if t.has_loss != 0:
        stamp = t.stamps[head, env]
        if has_arrived(rows, stamp[0], stamp[1]):
            copy_word(wide, ring, head * plane + index, ring, (slots - 1) * plane + index)
    copy_word(wide, source, index, ring, head * plane + index)


@wp.func
def _copy_row(source: wp.uint64, start: int, target: wp.uint64, first: int, count: int) -> None:
    """Copy some words, four at a time."""
    fours = count // 4
    many_in = quads_at(source + wp.uint64(4) * wp.uint64(start), 0, fours)
    many_out = quads_at(target + wp.uint64(4) * wp.uint64(first), 0, fours)
    for k in range(fours):
        many_out[k] = many_in[k]
    one_in, one_out = words_at(source, start, count), words_at(target, first, count)
    for w in range(4 * fours, count):
        one_out[w] = one_in[w]


@wp.func
def _slot(head: int, k: int, depth: int) -> int:
    """Return the slot of the k-th newest sample."""
    return int(wp.where(k < head, head, head + depth) - 1 - k)


@wp.func
def _first_candidate(t: Transport, env: int, now: wp.int64, head: int, depth: int) -> int:
    """Return how many of the newest samples are younger than the least delay, so that none of them has arrived."""
    least = t.least[env]
    young = wp.float32(least - ticks_after(now, t.stamps[_slot(head, 0, depth), env][0])) / t.period
    k = wp.int32(wp.clamp(wp.ceil(young), 0.0, wp.float32(depth - 1)))
    while k > 0:  # only where the grid is uneven, or ticks were skipped
        if ticks_after(now, t.stamps[_slot(head, k - 1, depth), env][0]) < least:
            break
        k -= 1
    return int(k)


@kernel(group="delay")
def _select(rows: Rows, t: Transport) -> None:
    i, _none = wp.tid()
    env = rows.start + i
    now = tick_now(rows)
    depth = t.stamps.shape[0] - t.has_loss
    head = t.head[env]
    shown = head  # the oldest: where nothing has arrived yet, the first capture is shown, and said not to be valid
    if t.has_loss != 0:
        shown = depth
    for k in range(_first_candidate(t, env, now, head, depth), depth):
        slot = _slot(head, k, depth)
        stamp = t.stamps[slot, env]
        if has_arrived(rows, stamp[0], stamp[1]):
            shown = slot
            break
    stamp = t.stamps[shown, env]
    captured = now - wp.int64(ticks_after(now, stamp[0]))
    arrived = wp.int64(-1)
    valid = wp.int32(0)
    if has_arrived(rows, stamp[0], stamp[1]):
        arrived = captured + wp.int64(stamp[1])
        valid = stamp[2]
    t.shown[env] = wp.vec4l(wp.int64(shown), captured, arrived, wp.int64(valid))
    for f in range(t.fields.shape[0]):
        field = t.fields[f]
        first = env * field.words
        _copy_row(field.ring, shown * t.stamps.shape[1] * field.words + first, field.shown, first, field.words)


@kernel
def _gather(rows: Rows, t: Transport, count: int, wide: int, ring: wp.uint64, shown: wp.uint64) -> None:
    i, w = wp.tid()
    env = rows.start + i
    index = env * count + w
    copy_word(wide, ring, wp.int32(t.shown[env][0]) * t.stamps.shape[1] * count + index, shown, index)


STAMP_BYTES = 12
"""Bytes per sample besides its fields; see `DelayRing.stamps`."""


class DelayRing:
    """Last samples of one sensor in return space, with the ticks of their capture and arrival.

    Args:
        plan: plan with delay, jitter, loss and history of the sensor, and its fields in return space.
        compute: device and masks.
        clock: clock of the scene.
        bad: uint8 [env, mount], non-zero where the current sample is invalid.
        counter: counter of the sensor's captures.
    """

    def __init__(
        self, plan: SensorPlan, compute: Compute, clock: Clock, bad: torch.Tensor, counter: SampleCounter
    ) -> None:
        self._plan, self._compute, self._clock, self._counter = plan, compute, clock, counter
        cfg, num_envs = plan.cfg, compute.num_envs
        self.has_delay = cfg.delay is not None or cfg.loss is not None
        self.has_loss = cfg.loss is not None
        self._longest, low, high = self._range()
        latest = clock.ticks(self._longest) + clock.ticks(high)
        if latest > MAX_TICKS:
            expected = f"at most {MAX_TICKS} ticks of {clock.dt:g} s, the jitter included"
            raise ConfigError.single(cfg.title, "delay", cfg.delay, expected, "Give it in seconds.")
        self.soonest, self.latest = self._in_ticks(low), self._in_ticks((self._longest, high))
        """Minimum and maximum number of ticks from a capture to its arrival."""
        in_flight = math.floor((latest + 0.5) / plan.rate.period) + 2 if self.has_delay else 1
        self.depth = max(in_flight, cfg.history_length, 1)
        self.slots = self.depth + int(self.has_loss)
        size = sum(spec.nbytes for spec in plan.specs) + STAMP_BYTES
        driver = "history_length" if cfg.history_length >= in_flight else "delay"
        compute.memory.check(self.slots * num_envs * size, driver, getattr(cfg, driver))

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=compute.device)

        self._rings = {
            spec.name: zeros(self.slots, num_envs, *spec.shape, dtype=TORCH_DTYPES[spec.dtype]) for spec in plan.specs
        }
        self.head = zeros(num_envs)
        """int32 [env], slot of the next sample; advanced on the device when a sample is stamped."""
        self.stamps = zeros(self.slots, num_envs, 3)
        """int32 [slot, env, 3], low word of the capture tick, ticks until arrival, and whether it is valid."""
        self._burst = zeros(num_envs, dtype=torch.uint8)
        self._least = zeros(num_envs)
        self._shown = zeros(num_envs, 4, dtype=torch.int64)
        self.shown_slot, self.shown_stamp, self.shown_arrival, self.shown_valid = self._shown.unbind(1)
        self.jitter_is_live = cfg.jitter is not None and not is_drawn(cfg.jitter)
        loss = cfg.loss.p if isinstance(cfg.loss, GilbertElliott) else cfg.loss
        self._knobs = {
            "delay": self._knob("delay", 0.0 if cfg.delay is None else converted(cfg.delay, clock.ticks)),
            "jitter": self._knob("jitter", converted(cfg.jitter, clock.ticks) if self.jitter_is_live else 0.0),
            "loss": self._knob("loss", loss or 0.0),
        }
        """Delay and jitter in ticks, and the probability of a loss, `[env, 1]` each."""
        self.shown = Record(plan.specs if self.has_delay else (), num_envs, compute.device)
        """Values that a reader sees, if they can differ from the newest sample."""
        self._narrow = [name for name, ring in self._rings.items() if self.has_delay and _is_narrow(ring)]
        self._transport = self._transport_of(bad)
        self._reading = compute.record(self._record_read) if self.has_delay else None

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _range(self) -> tuple[float, tuple[float, float], float]:
        """Return the longest delay, the least delay and jitter as a pair, and the greatest jitter, s."""
        cfg = self._plan.cfg
        least, most = (0.0, 0.0) if cfg.delay is None else amount_bounds(cfg.delay)
        most = max(most, 0.0)
        low, high = (0.0, 0.0) if cfg.jitter is None else amount_bounds(cfg.jitter)
        if cfg.jitter is not None and not is_drawn(cfg.jitter):
            low, high = 0.0, most  # at run time, a number may be set up to the delay
        return most, (least, min(max(low, -most), 0.0)), min(max(high, 0.0), most)

    def _in_ticks(self, seconds: tuple[float, float]) -> int:
        """Return a delay plus a jitter in whole ticks, rounded as in the kernel."""
        delay, jitter = (np.float32(self._clock.ticks(part)) for part in seconds)
        return math.floor(delay + jitter + np.float32(0.5))

    def _knob(self, knob: str, amount: Any) -> KnobTable:
        plan, compute = self._plan, self._compute
        table = KnobTable(plan, compute, knob, 0, amount, 1, lambda value: np.full(1, value, np.float32), lambda: None)
        table.give_rows()  # before kernels store the address
        return table

    def _transport_of(self, bad: torch.Tensor) -> Any:
        cfg, compute = self._plan.cfg, self._compute
        num_envs, device = compute.num_envs, compute.wp_device
        t = Transport()
        t.head, t.bad, t.burst, t.least = map(wp.from_torch, (self.head, bad, self._burst, self._least))
        t.period = self._plan.rate.period
        t.delay, t.loss = (wp.from_torch(self._knobs[name].values) for name in ("delay", "loss"))
        t.stamps, t.shown = wp.from_torch(self.stamps, dtype=wp.vec3i), wp.from_torch(self._shown, dtype=wp.vec4l)
        if cfg.jitter is not None:
            jitter = Uniform(0.0, 0.0) if self.jitter_is_live else converted(cfg.jitter, self._clock.ticks)
            distribution = column_distribution(jitter, num_envs, lambda value: np.full(num_envs, value), device)
            if self.jitter_is_live:
                distribution.second = wp.from_torch(self._knobs["jitter"].values[:, 0])
            t.jitter, t.has_jitter = distribution, 1
        t.has_loss = int(self.has_loss)
        if isinstance(cfg.loss, GilbertElliott):
            t.in_bursts, t.burst_end = 1, cfg.loss.r
        t.key0, t.key1 = stream_key(self._plan.seed, self._plan.label, "transport")
        t.table = normal_table(device)
        rows: Any = np.zeros(len(self._narrow), dtype=_ROW)
        for k, name in enumerate(self._narrow):
            ring = self._rings[name]
            rows[k] = ring.data_ptr(), self.shown[name].data_ptr(), words_of(ring, 2).per_row
        t.fields = wp.array(rows, dtype=Row, device=device)
        return t

    # One sample -------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Slot of the newest sample."""
        return (self._counter.samples - 1) % self.depth

    def restart(self) -> None:
        """Use the slot after the newest one for the next sample, after an interrupted sample left that undecided."""
        self.head.fill_((self.position + 1) % self.depth)

    def places(self, name: str) -> dict[str, torch.Tensor]:
        """Return where the fused chain writes a float field directly into the ring, as `ChainField.places`."""
        places = {"ring": self._rings[name], "head": self.head}
        return places | {"stamps": self.stamps} if self.has_loss else places

    def freeze(self, source: Record, names: Sequence[str]) -> None:
        """Copy fields of a record into the newest slot (recordable launches)."""
        for name in names:
            words = words_of(source[name])
            inputs = [self._transport, *words, words_of(self._rings[name], 2).address]
            self._compute.launch(_freeze, (words.per_row,), inputs)

    def dispatch(self) -> None:
        """Stamp the newest slot and draw its arrival (a recordable task), after the sample was stored."""
        self._compute.launch_task(_dispatch, (), self._transport)

    def invalidate(self, envs: torch.Tensor) -> None:
        """Mark the newest capture of some environments (bool `[env]`), and its repetitions, as invalid."""
        captured, valid = self.stamps[..., 0], self.stamps[..., 2]
        valid.masked_fill_((captured == captured[self.position]) & envs, 0)

    def redraw(self) -> None:
        """Redraw delay and loss for the envs of the active mask, where they are distributions."""
        for knob in self._knobs.values():
            knob.redraw()

    # Reading ----------------------------------------------------------------------------------------------------------

    def _record_read(self) -> None:
        self._compute.launch(_select, (1,), [self._transport])
        for name, ring in self._rings.items():
            if name not in self._narrow:
                words = words_of(ring, 2)
                inputs = [self._transport, *words, words_of(self.shown[name]).address]
                self._compute.launch(_gather, (words.per_row,), inputs)

    def read(self) -> None:
        """Find the newest arrived sample and write it into `shown`, `shown_stamp` and `shown_valid`."""
        if self._reading is not None:
            self._reading.run()

    def history(self, name: str, length: int) -> torch.Tensor:
        """Return a copy of one field's history `[env, length, ...]`, newest first, undelayed."""
        ring, newest = self._rings[name][: self.depth], self.position + 1
        slots = torch.cat([ring[:newest].flip(0), ring[newest:].flip(0)])  # an index would be copied to the device
        return slots[:length].transpose(0, 1).contiguous()

    # Settings at run time ---------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: torch.Tensor | None) -> None:
        """Set `delay` or `jitter` (seconds) or `loss` (probability) for all envs or some, from the next sample on.

        Raises:
            ConfigError: the value exceeds the ring, is not a probability, or has no form that fits the knob.
        """
        plan, longest = self._plan, self._longest
        title = plan.cfg.title
        try:
            array = numbers_in(value)
        except ValueError:
            raise ConfigError.single(title, knob, value, "a number, or one for each environment") from None
        if knob == "jitter" and not self.jitter_is_live:
            fix = f"Use scene.reconfigure({plan.label!r}, jitter=...)."
            raise ConfigError.single(title, "jitter", value, "a jitter that is a number in the config", fix)
        most = 1.0 if knob == "loss" else longest * (1.0 + 1e-6)  # a float32 of the same number may be a little larger
        if array.size and not (0.0 <= array.min() and array.max() <= most):
            if knob == "loss":
                raise ConfigError.single(title, "loss", value, "a probability in [0, 1]")
            fix = f"Use scene.reconfigure({plan.label!r}, {knob}=...) for a larger ring."
            raise ConfigError.single(title, knob, value, f"seconds in [0, {longest:g}], the capacity of the ring", fix)
        if knob != "loss":
            array = np.vectorize(self._clock.ticks, otypes=[np.float64])(array.clip(max=longest))
        count = self._compute.num_envs if env_ids is None else len(env_ids)
        if array.size not in (1, count):
            raise ConfigError.single(title, knob, value, f"one number, or {count} of them")
        self.soonest = min(self.soonest, 0)  # later values may be less than the config's
        self._knobs[knob].set(array.reshape(-1, 1).astype(np.float32), env_ids)

    def get(self, knob: str) -> torch.Tensor:
        """Return a copy of the current delay or jitter, s, or of the probability of a loss, float32 `[env]`.

        Raises:
            ConfigError: the jitter is a distribution, which is drawn for each sample.
        """
        if knob == "jitter" and not self.jitter_is_live:
            expected = "a jitter that is a number in the config"
            raise ConfigError.single(self._plan.cfg.title, knob, self._plan.cfg.jitter, expected)
        return self._knobs[knob].values[:, 0] * (1.0 if knob == "loss" else self._clock.dt)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors that must be saved to resume."""
        fields = {f"ring/{name}": tensor for name, tensor in self._rings.items()}
        knobs = {name: knob.values for name, knob in self._knobs.items()}
        return {**fields, **knobs, "head": self.head, "stamps": self.stamps, "burst": self._burst, "least": self._least}


def _is_narrow(ring: torch.Tensor) -> bool:
    """Whether one thread per env copies a field's row faster than one thread per word."""
    return ring.element_size() % 4 == 0 and 0 < ring[0, 0].numel() <= 64
