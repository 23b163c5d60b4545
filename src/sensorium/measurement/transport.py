"""Frozen samples on their way to the reader: the return-space ring, delay, jitter, loss, history.

A sample is frozen at capture and arrives at capture tick + round((delay + jitter) / dt), half up, or never. What is
shown is the newest sample that has arrived: a function of ring and tick, found on read, so a waiting sensor costs
nothing per tick. The ring is in lock step for all envs; capture and arrival ticks are per env and slot, since a reset
captures off the grid. A reset fills all slots of its envs with the first new sample, so nothing from before can be
shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.cfg import GilbertElliott, SimpleSensorCfg, amount_bounds, numbers_in
from sensorium.compute import (
    FIRST,
    SAMPLE,
    Compute,
    Rows,
    kernel,
    mode_now,
    sample_words,
    tick_captured,
    tick_now,
)
from sensorium.compute.clock import MOST_TICKS, Clock, Rate
from sensorium.errors import ConfigError
from sensorium.measurement.chain import NEVER, ChainField
from sensorium.measurement.knobs import KnobTable
from sensorium.measurement.record import TORCH_DTYPES, Record, copy_word, words_at, words_of
from sensorium.random import Choice, Normal, Uniform, draw, normal_table, stream_key, word_to_uniform
from sensorium.spec import FieldSpec, exact_fraction

NO_JITTER = -1
_ZERO: Any = 0.0
_LOSS_NONE, _LOSS_BERNOULLI, _LOSS_GILBERT = 0, 1, 2


@wp.struct
class Row:
    """Where one field's words are: its ring, its carry and what a reader sees (addresses), and words per env."""

    ring: wp.uint64
    carry: wp.uint64
    shown: wp.uint64
    words: wp.int32


@wp.struct
class Transport:
    """All that the kernels of one ring need; one argument instead of thirty, since each costs time at every launch."""

    time: wp.array[wp.int32]  # for `_advance` alone, which has no rows
    head: wp.array[wp.int32]
    bad: wp.array2d[wp.uint8]
    # Law of arrival
    delay: wp.array2d[wp.float32]
    jitter_kind: wp.int32
    jitter_a: wp.float32
    jitter_b: wp.float32
    jitter_values: wp.array[wp.float32]
    jitter_is_live: wp.int32
    jitter: wp.array2d[wp.float32]
    loss_kind: wp.int32
    loss: wp.array2d[wp.float32]
    burst_end: wp.float32
    key0: wp.uint32
    key1: wp.uint32
    table: wp.array[wp.vec3]
    # Per slot and env
    stamp: wp.array2d[wp.int32]
    arrival: wp.array2d[wp.int32]
    okay: wp.array2d[wp.uint8]
    # Per env
    burst: wp.array[wp.uint8]
    carry_stamp: wp.array[wp.int32]
    carry_arrival: wp.array[wp.int32]
    carry_okay: wp.array[wp.uint8]
    # What a reader sees
    shown_slot: wp.array[wp.int32]
    shown_stamp: wp.array[wp.int32]
    shown_arrival: wp.array[wp.int32]
    shown_valid: wp.array[wp.uint8]
    fields: wp.array[Row]


@kernel
def _advance(tasks: wp.array[Transport]) -> None:
    t = tasks[wp.tid()]
    if t.time[1] == SAMPLE:
        t.head[0] = (t.head[0] + 1) % t.stamp.shape[0]


@kernel(group="delay")
def _dispatch(rows: Rows, tasks: wp.array[Transport]) -> None:
    k, i = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    t = tasks[k]
    head = t.head[0]
    mode = mode_now(rows)
    good = wp.uint8(1)
    for mount in range(t.bad.shape[1]):
        if t.bad[env, mount] != wp.uint8(0):
            good = wp.uint8(0)
    captured = tick_captured(rows)
    words = wp.vec4ui()
    if t.jitter_kind >= 0 or t.loss_kind != 0:
        words = sample_words(rows, env, wp.uint32(0), t.key0, t.key1)
    late = t.delay[env, 0]
    if t.jitter_kind >= 0:
        most = t.jitter_b
        if t.jitter_is_live != 0:
            most = t.jitter[env, 0]
        extra = draw(t.jitter_kind, t.jitter_a, most, t.jitter_values, words[0], t.table)
        late = late + wp.clamp(extra, -late, late)
    arrives = captured + int(wp.floor(late + 0.5))
    if t.loss_kind == 1:
        if word_to_uniform(words[1]) < t.loss[env, 0]:
            arrives = wp.static(NEVER)
    if t.loss_kind == 2:
        state = t.burst[env]
        if mode == FIRST:
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
            arrives = wp.static(NEVER)
    if mode == FIRST:
        for slot in range(t.stamp.shape[0]):
            t.stamp[slot, env] = captured
            t.arrival[slot, env] = arrives
            t.okay[slot, env] = good
        if t.loss_kind != 0:
            t.carry_stamp[env] = captured
            t.carry_arrival[env] = wp.static(NEVER)
            t.carry_okay[env] = wp.uint8(0)
        return
    if t.loss_kind != 0:
        if t.arrival[head, env] <= tick_now(rows):
            t.carry_stamp[env] = t.stamp[head, env]
            t.carry_arrival[env] = t.arrival[head, env]
            t.carry_okay[env] = t.okay[head, env]
    t.stamp[head, env] = captured
    t.arrival[head, env] = arrives
    t.okay[head, env] = good


@kernel
def _freeze(
    rows: Rows,
    head_in: wp.array[wp.int32],
    num_envs: int,
    depth: int,
    has_carry: int,
    arrival: wp.array2d[wp.int32],
    count: int,
    wide: int,
    source: wp.uint64,
    ring: wp.uint64,
    carry: wp.uint64,
) -> None:
    i, w = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    head = head_in[0]
    here = env * count + w
    plane = num_envs * count
    if mode_now(rows) == FIRST:
        for slot in range(depth):
            copy_word(wide, source, here, ring, slot * plane + here)
        if has_carry != 0:
            copy_word(wide, source, here, carry, here)
        return
    if has_carry != 0:
        if arrival[head, env] <= tick_now(rows):
            copy_word(wide, ring, head * plane + here, carry, here)
    copy_word(wide, source, here, ring, head * plane + here)


@wp.func
def _fours(address: wp.uint64, first: int):  # type: ignore[no-untyped-def]  # Warp infers it
    return wp.array(ptr=address + wp.uint64(4) * wp.uint64(first), shape=(536870911,), dtype=wp.vec4i)


@wp.func
def _copy_row(source: wp.uint64, start: int, target: wp.uint64, first: int, count: int) -> None:
    """Copy some words, four at a time."""
    many_in, many_out = _fours(source, start), _fours(target, first)
    fours = count // 4
    for k in range(fours):
        many_out[k] = many_in[k]
    one_in, one_out = words_at(source), words_at(target)
    for w in range(4 * fours, count):
        one_out[first + w] = one_in[start + w]


@wp.func
def _copy_rows(env: int, slot: int, num_envs: int, fields: wp.array[Row]) -> None:
    for f in range(fields.shape[0]):
        field = fields[f]
        first = env * field.words
        if slot < 0:
            _copy_row(field.carry, first, field.shown, first, field.words)
        else:
            _copy_row(field.ring, slot * num_envs * field.words + first, field.shown, first, field.words)


@kernel(group="delay")
def _select(rows: Rows, t: Transport) -> None:
    i, _none = wp.tid()
    env = rows.start + i
    depth = t.stamp.shape[0]
    head = t.head[0]
    for k in range(depth):
        slot = head - k
        if slot < 0:
            slot += depth
        if t.arrival[slot, env] <= tick_now(rows):
            t.shown_slot[env] = slot
            t.shown_stamp[env] = t.stamp[slot, env]
            t.shown_arrival[env] = t.arrival[slot, env]
            t.shown_valid[env] = t.okay[slot, env]
            _copy_rows(env, slot, t.stamp.shape[1], t.fields)
            return
    oldest = (head + 1) % depth
    t.shown_slot[env] = oldest
    t.shown_stamp[env] = t.stamp[oldest, env]
    t.shown_arrival[env] = -1
    t.shown_valid[env] = wp.uint8(0)  # nothing has arrived yet: the first capture is shown, and said not to be valid
    if t.loss_kind != 0:
        t.shown_slot[env] = -1
        t.shown_stamp[env] = t.carry_stamp[env]
        if t.carry_arrival[env] != wp.static(NEVER):
            t.shown_arrival[env] = t.carry_arrival[env]
        t.shown_valid[env] = t.carry_okay[env]
    _copy_rows(env, t.shown_slot[env], t.stamp.shape[1], t.fields)


@kernel
def _gather(
    rows: Rows,
    num_envs: int,
    slot_in: wp.array[wp.int32],
    count: int,
    wide: int,
    ring: wp.uint64,
    carry: wp.uint64,
    shown: wp.uint64,
) -> None:
    i, w = wp.tid()
    env = rows.start + i
    here = env * count + w
    slot = slot_in[env]
    if slot < 0:
        copy_word(wide, carry, here, shown, here)
    else:
        copy_word(wide, ring, slot * num_envs * count + here, shown, here)


STAMP_BYTES = 9
"""Bytes that a sample takes besides its fields: when it was captured, when it arrives, and whether it is valid."""


class Ring:
    """The last samples of one sensor in return space, and when each was captured and arrives.

    Args:
        compute: device and masks.
        clock: time.
        cfg: delay, jitter, loss and history of the sensor.
        specs: its fields in return space.
        rate: its schedule.
        label: its name.
        seed: the scene's seed.
        bad: uint8 [env, mount], non-zero where the current sample is not valid.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Clock,
        cfg: SimpleSensorCfg[Any],
        specs: Sequence[FieldSpec],
        rate: Rate,
        *,
        label: str,
        seed: int,
        bad: torch.Tensor,
    ) -> None:
        self.compute, self.clock, self.cfg, self.label = compute, clock, cfg, label
        self.specs = list(specs)
        device, num_envs = compute.device, compute.num_envs
        self.has_delay = cfg.delay is not None or cfg.loss is not None
        self.longest, self.max_delay_ticks = self._max_delay_ticks()
        if self.max_delay_ticks > MOST_TICKS:
            raise ConfigError.single(
                f"{type(cfg).__name__}({label!r})", "delay", cfg.delay,
                f"at most {MOST_TICKS} ticks of {clock.dt:g} s, the jitter included", "Give it in seconds.",
            )  # fmt: skip
        self.soonest, self.latest = self._window()
        """Ticks from a capture to its arrival, at least and at most."""
        in_flight = math.floor((self.max_delay_ticks + 0.5) / rate.period) + 2 if self.has_delay else 1
        self.depth = max(in_flight, cfg.history_length, 1)
        size = sum(spec.nbytes for spec in self.specs) + STAMP_BYTES
        compute.memory.check(self.depth * num_envs * size, *self._driver(in_flight))
        self.rings = {
            spec.name: torch.zeros((self.depth, num_envs, *spec.shape), dtype=_dtype(spec), device=device)
            for spec in self.specs
        }
        self.has_carry = cfg.loss is not None
        carried = num_envs if self.has_carry else 0
        self.carries = {
            spec.name: torch.zeros((carried, *spec.shape), dtype=_dtype(spec), device=device) for spec in self.specs
        }
        self.head = torch.zeros(1, dtype=torch.int32, device=device)
        self._head_host = self.head.numpy().data if compute.is_cpu else None
        self._head_wp = wp.from_torch(self.head, dtype=wp.int32)
        self.position = 0
        self.stamp = torch.zeros((self.depth, num_envs), dtype=torch.int32, device=device)
        self.arrival = torch.zeros((self.depth, num_envs), dtype=torch.int32, device=device)
        self.okay = torch.ones((self.depth, num_envs), dtype=torch.uint8, device=device)
        self.burst = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        self.carry_stamp = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.carry_arrival = torch.full((num_envs,), NEVER, dtype=torch.int32, device=device)
        self.carry_okay = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        self.shown_slot = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.shown_stamp = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.shown_arrival = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.shown_valid = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        self.delay = self._delay_table(seed)
        self.jitter_is_live = cfg.jitter is not None and not isinstance(cfg.jitter, Uniform | Normal | Choice)
        self.jitter = self._column(self._ticks(cfg.jitter) if self.jitter_is_live else 0.0, "jitter", seed)
        self.loss = self._loss_table(seed)
        self.shown: Record | None = Record(self.specs, num_envs, device) if self.has_delay else None
        """What a reader sees, where that may differ from the newest sample."""
        self.bad = bad
        self._narrow = [name for name, ring in self.rings.items() if self.has_delay and _is_narrow(ring)]
        self._arguments = self._transport(seed)
        self._read_segment = compute.record(self._record_read) if self.has_delay else None

    def __repr__(self) -> str:
        return f"Ring(depth={self.depth}, delay<={self.max_delay_ticks:g} ticks, history={self.cfg.history_length})"

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _driver(self, in_flight: int) -> tuple[str, object]:
        """Return the field of the config that the depth follows from, and its value."""
        if self.cfg.history_length >= in_flight:
            return "history_length", self.cfg.history_length
        return "delay", self.cfg.delay

    def _ticks(self, amount: Any) -> Any:
        """Seconds to ticks, exact for the decimals that people write."""
        if isinstance(amount, Uniform):
            return Uniform(self._ticks(amount.low), self._ticks(amount.high))
        if isinstance(amount, Normal):
            return Normal(self._ticks(amount.mean), self._ticks(amount.std))
        if isinstance(amount, Choice):
            return Choice(tuple(self._ticks(value) for value in amount.values))
        return float(exact_fraction(amount) / self.clock.dt_exact)

    def _max_delay_ticks(self) -> tuple[float, float]:
        """Return the longest delay (s), and delay with jitter (ticks): a number may be set as high as the delay."""
        if self.cfg.delay is None:
            return 0.0, 0.0
        longest = max(amount_bounds(self.cfg.delay)[1], 0.0)
        extra = 0.0
        if isinstance(self.cfg.jitter, Uniform | Normal | Choice):
            extra = min(max(amount_bounds(self.cfg.jitter)[1], 0.0), longest)
        elif self.cfg.jitter is not None:
            extra = longest
        return longest, self._ticks(longest) + self._ticks(extra)

    def _window(self) -> tuple[int, int]:
        """Return ticks from a capture to its arrival, at least and at most, rounded as the kernel does it."""
        delay, jitter = self.cfg.delay, self.cfg.jitter
        if delay is None:
            return 0, 0
        least = np.float32(self._ticks(amount_bounds(delay)[0]))
        most, extra = np.float32(self._ticks(self.longest)), np.float32(0.0)
        if isinstance(jitter, Uniform | Normal | Choice):
            low, high = (np.float32(self._ticks(bound)) for bound in amount_bounds(jitter))
            least, extra = least + np.clip(low, -most, np.float32(0.0)), np.clip(high, np.float32(0.0), most)
        elif jitter is not None:
            extra = most
        return math.floor(least + np.float32(0.5)), math.floor(most + extra + np.float32(0.5))

    def _column(self, amount: Any, knob: str, seed: int) -> KnobTable:
        key = stream_key(seed, self.label, f"knob/{knob}")
        if isinstance(amount, Uniform | Normal | Choice):

            def spread(value: Any) -> Any:
                return np.full(1, value, np.float32)

            return KnobTable(self.compute, knob, 0, None, (amount, 1, spread), key, _nothing)
        table = KnobTable(self.compute, knob, 0, np.full(1, amount, np.float32), None, key, _nothing)
        table.values = table.values.expand(self.compute.num_envs, 1).contiguous()
        return table

    def _delay_table(self, seed: int) -> KnobTable:
        return self._column(self._ticks(self.cfg.delay) if self.cfg.delay is not None else 0.0, "delay", seed)

    def _loss_table(self, seed: int) -> KnobTable:
        loss = self.cfg.loss
        return self._column(loss.p if isinstance(loss, GilbertElliott) else (loss or 0.0), "loss", seed)

    def _transport(self, seed: int) -> Any:
        jitter = self.cfg.jitter
        kind, a, b, values = NO_JITTER, _ZERO, _ZERO, [0.0]
        if jitter is not None:
            law = (
                Uniform(0.0, self._ticks(jitter))
                if not isinstance(jitter, Uniform | Normal | Choice)
                else self._ticks(jitter)
            )
            kind = law.kind
            if isinstance(law, Uniform):
                a, b = law.low, law.high
            elif isinstance(law, Normal):
                a, b = law.mean, law.std
            else:
                values = [float(value) for value in law.values]
        loss = self.cfg.loss
        loss_kind = (
            _LOSS_NONE if loss is None else _LOSS_GILBERT if isinstance(loss, GilbertElliott) else _LOSS_BERNOULLI
        )
        key = stream_key(seed, self.label, "transport")
        t = Transport()
        for name, tensor in (
            ("time", self.clock.words), ("head", self.head), ("bad", self.bad),
            ("delay", self.delay.values), ("jitter", self.jitter.values), ("loss", self.loss.values),
            ("stamp", self.stamp), ("arrival", self.arrival), ("okay", self.okay), ("burst", self.burst),
            ("carry_stamp", self.carry_stamp), ("carry_arrival", self.carry_arrival), ("carry_okay", self.carry_okay),
            ("shown_slot", self.shown_slot), ("shown_stamp", self.shown_stamp),
            ("shown_arrival", self.shown_arrival), ("shown_valid", self.shown_valid),
        ):  # fmt: skip
            setattr(t, name, wp.from_torch(tensor))
        t.jitter_kind, t.jitter_a, t.jitter_b = kind, float(a), float(b)
        t.jitter_values = wp.array(values, dtype=wp.float32, device=self.compute.wp_device)
        t.jitter_is_live = int(self.jitter_is_live)
        t.loss_kind = loss_kind
        t.burst_end = loss.r if isinstance(loss, GilbertElliott) else 1.0
        t.key0, t.key1 = wp.uint32(key[0]), wp.uint32(key[1])
        t.table = normal_table(self.compute.wp_device)
        t.fields = self._rows_table()
        return t

    def _rows_table(self) -> Any:
        """Return where the rows of narrow fields are, which one thread per env copies."""
        rows: Any = np.zeros(len(self._narrow), dtype=Row.numpy_dtype())  # type: ignore[attr-defined]
        for k, name in enumerate(self._narrow):
            ring, shown = self.rings[name], self.shown
            assert shown is not None
            rows["ring"][k], rows["carry"][k] = ring.data_ptr(), self.carries[name].data_ptr()
            rows["shown"][k] = shown[name].data_ptr()
            rows["words"][k] = ring[0, 0].numel() * ring.element_size() // 4
        return wp.array(rows, dtype=Row, device=self.compute.wp_device)

    # One sample -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Move to the next slot; the owner of the loop calls this before an ordinary sample."""
        self.position = (self.position + 1) % self.depth
        if self._head_host is not None:
            self._head_host[0] = self.position

    def begin(self) -> None:
        """Move to the next slot on the device, in a sample's own work (a launch), where the host does not write there.

        It follows `advance` of the host: only an ordinary sample moves.
        """
        if self._head_host is None:
            self.compute.launch_task(_advance, (), self._arguments, whole=True)

    def seek(self, position: int) -> None:
        """Make a slot the newest one."""
        self.position = position
        self.head.fill_(position)

    def attach(self, field: ChainField, name: str) -> None:
        """Let the fused chain write one float field straight into the ring."""
        field.ring = self.rings[name]
        field.head = self.head
        if self.has_carry:
            field.carry, field.arrival = self.carries[name], self.arrival

    def freeze(self, source: Record, names: Sequence[str]) -> None:
        """Copy fields of a record into the newest slot (launches; recordable)."""
        for name in names:
            words = words_of(source[name])
            self.compute.launch(
                _freeze,
                (words.count,),
                [
                    self._head_wp, self.compute.num_envs, self.depth, int(self.has_carry),
                    wp.from_torch(self.arrival, dtype=wp.int32), words.count, words.wide, words.address,
                ],
                [words_of(self.rings[name], 2).address, words_of(self.carries[name]).address],
            )  # fmt: skip

    def dispatch(self) -> None:
        """Stamp the newest slot and draw when it arrives (a recordable task), after it was stored."""
        self.compute.launch_task(_dispatch, (), self._arguments)

    def invalidate(self, envs: torch.Tensor) -> None:
        """Mark the newest capture of some environments (bool `[env]`), and its repetitions, as not valid."""
        self.okay.masked_fill_((self.stamp == self.stamp[self.position]) & envs, 0)

    def redraw(self) -> None:
        """Draw delay and loss anew for the envs of the active mask, where they are distributions."""
        self.delay.redraw()
        self.loss.redraw()

    # Reading ----------------------------------------------------------------------------------------------------------

    def _record_read(self) -> None:
        assert self.shown is not None
        self.compute.launch(_select, (1,), [self._arguments])
        slots = wp.from_torch(self.shown_slot, dtype=wp.int32)
        for name, ring in self.rings.items():
            if name not in self._narrow:
                words, carry = words_of(ring, 2), words_of(self.carries[name])
                inputs = [self.compute.num_envs, slots, words.count, words.wide, words.address, carry.address]
                self.compute.launch(_gather, (words.count,), inputs, [words_of(self.shown[name]).address])

    def read(self) -> None:
        """Find what has arrived by now and put it into `shown`, `shown_stamp`, `shown_valid`."""
        if self._read_segment is not None:
            self._read_segment.run()

    def history(self, name: str, length: int) -> torch.Tensor:
        """Gather `[env, length, ...]` of one field, newest first, undelayed (a copy)."""
        ring, newest = self.rings[name], self.position + 1
        slots = torch.cat([ring[:newest].flip(0), ring[newest:].flip(0)])  # no index: it would be copied to the device
        return slots[:length].transpose(0, 1).contiguous()

    # Run time ---------------------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: torch.Tensor | None) -> None:
        """Set `delay` or `jitter` (seconds) or `loss` (probability) for all envs or some, from the next sample on.

        Raises:
            ConfigError: longer than the ring was made for, not a probability, or one number cannot say it.
        """
        table = {"delay": self.delay, "jitter": self.jitter, "loss": self.loss}[knob]
        title = f"{type(self.cfg).__name__}({self.label!r})"
        try:
            array = numbers_in(value)
        except ValueError:
            raise ConfigError.single(title, knob, value, "a number, or one for each environment") from None
        if knob == "jitter" and not self.jitter_is_live:
            fix = f"Use scene.reconfigure({self.label!r}, jitter=...)."
            raise ConfigError.single(title, "jitter", value, "a jitter that the config gives as a number", fix)
        if knob != "loss":
            limit = self.longest * (1.0 + 1e-6)  # a float32 of the same number may be a little larger
            if array.size and not (0.0 <= array.min() and array.max() <= limit):
                fix = f"scene.reconfigure({self.label!r}, {knob}=...) makes room."
                raise ConfigError.single(
                    title, knob, value, f"seconds in [0, {self.longest:g}], what the ring holds", fix
                )
            array = np.vectorize(self._ticks, otypes=[np.float64])(array.clip(max=self.longest))
        elif array.size and not (0.0 <= array.min() and array.max() <= 1.0):
            raise ConfigError.single(title, "loss", value, "a probability in [0, 1]")
        count = self.compute.num_envs if env_ids is None else len(env_ids)
        if array.size not in (1, count):
            raise ConfigError.single(title, knob, value, f"one number, or {count} of them")
        rows = np.broadcast_to(array.reshape(-1, 1) if array.ndim else array, (array.size if array.ndim else 1, 1))
        self.soonest = min(self.soonest, 0)  # what is set from now on may be less than the config says
        target = torch.from_numpy(np.ascontiguousarray(rows, np.float32)).to(table.values)
        if env_ids is None:
            table.values.copy_(target.expand_as(table.values))
        else:
            table.values[env_ids] = target

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that must be saved to resume."""
        named = {f"ring/{name}": tensor for name, tensor in self.rings.items()}
        named |= {f"carry/{name}": tensor for name, tensor in self.carries.items()}
        named |= {
            "stamp": self.stamp, "arrival": self.arrival, "okay": self.okay, "burst": self.burst,
            "carry_stamp": self.carry_stamp, "carry_okay": self.carry_okay,
            "carry_arrival": self.carry_arrival,
            "delay": self.delay.values, "jitter": self.jitter.values, "loss": self.loss.values,
        }  # fmt: skip
        return named

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        own = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())
        return own + (self.shown.nbytes if self.shown is not None else 0)


def _is_narrow(ring: torch.Tensor) -> bool:
    """Whether one thread per env copies a field's row faster than one thread per word."""
    return ring.element_size() % 4 == 0 and 0 < ring[0, 0].numel() <= 64


def _dtype(spec: FieldSpec) -> torch.dtype:
    return TORCH_DTYPES[spec.dtype]


def _nothing() -> None:
    """Delay and loss are read through fixed arrays: nothing moves."""


__all__ = ["NEVER", "Ring"]
