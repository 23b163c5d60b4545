"""Collision events: when two elements start to touch, stay in contact and separate, with the transmitted impulse.

Axes: ``[env, event, ...]``; `count` is the number of filled rows of an env, which come first. Published, recorded and
streamed data hold the filled rows only, see `Reading.offsets`. ``_w`` world axes; all forces act on the primary.

The rows cover one control step. Every tick of it is evaluated, so no event between two control steps is lost. A contact
is the touch of one pair of elements, whatever its number of points. With F the net force on the primary at a tick and
dt the time step, its impulse is the sum of F dt over the ticks at which the pair touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cfg import bad, in_unit, must
from sensorium.compute import (
    Rows,
    is_first,
    kernel,
    masked_tid,
    note_tick,
    recorded,
    tick_captured,
    tick_of_control,
    ticks_since,
)
from sensorium.compute.rows import floats_at
from sensorium.errors import listed
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg, SensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports
from sensorium.spec import CONTACT_REPORT, Field, Requirement, contact_array
from sensorium.world.contacts import ContactMatch, check_apart, resolve_match
from sensorium.world.select import Named

BEGIN, PERSIST, END = 1, 2, 3
"""Values of `phase`."""


@dataclass(frozen=True, slots=True)
class CollisionEventsData:
    """Events of the current control step; rows beyond `count` are empty (pair -1, all other fields 0)."""

    count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of filled rows."""
    lost: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of events of this control step that were dropped because all rows were filled; increase `max_events`."""
    pair: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """Index into `pairs`; -1 for an empty row."""
    phase: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """1 begin, 2 persist (the pair touched before this control step), 3 end."""
    tick: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int64", kind="id")]
    """Physics tick of the event; for persist, the first tick of the control step."""
    duration: Annotated[Tensor, Field("s", (1,), ("event",), kind="derived")]
    """Duration of the contact so far; at the end its total duration, s."""
    impulse_w: Annotated[Tensor, Field("N s", (1, 3), ("event", "xyz"), frame="world", kind="derived", parity="polar")]
    """Impulse on the primary: for begin and persist within this control step so far, for end over the whole contact."""
    peak_force: Annotated[Tensor, Field("N", (1,), ("event",), kind="derived")]
    """Maximum net force of the contact so far."""
    pos_w: Annotated[
        Tensor, Field("m", (1, 3), ("event", "xyz"), frame="world", kind="derived", role="point", parity="polar")
    ]
    """Centre of the contact when the row was written, weighted by force; for end the last known centre."""
    pairs: list[list[str]]
    """[primary, secondary] of each pair; ``"*"`` matches anything."""


def no_rate(value: float | None) -> float | None:
    """Reject a rate; the validator of `update_period` and `rate_hz`."""
    if value:
        raise bad("no rate", "Omit the rate, since the sensor evaluates every tick; it can be read at any rate.")
    return value


class CollisionEventsCfg(SensorCfg[CollisionEventsData]):
    """Configuration of collision events. The sensor evaluates every physics tick; read it once per control step."""

    primary: ContactMatch
    """Elements whose collisions are reported: geoms, bodies or subtrees."""
    secondary: ContactMatch | None = None
    """Elements they collide with; each match forms a pair with each primary. None: anything, one pair per primary."""
    max_events: Annotated[int, must(lambda n: 1 <= n <= 100_000, "a whole number >= 1, at most 100000")] = 16
    """Number of rows per environment and control step, 1 to 100,000."""
    force_threshold: Annotated[
        float, must(lambda n: 0.0 <= n < math.inf, "a finite force >= 0 in newton"), in_unit("N")
    ] = 0.0
    """Net force above which a pair counts as touching, N; 0 counts every contact, even one without force."""
    persist: bool = True
    """Whether a contact that started before the control step has a row in it."""

    _every_tick = field_validator("update_period", "rate_hz")(no_rate)


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair of elements.

    Args:
        report: report of their contacts.
        place: index of an element of the pair among the report's primaries.
        names: the two elements; ``"*"`` matches anything.
        sign: -1 if the report's primary is the second element.
        ids: ids of the two bodies; -1 is the world.
    """

    report: Requirement
    place: int
    names: tuple[str, str]
    sign: float = 1.0
    ids: tuple[int, int] = (-1, -1)


@wp.struct
class Pairs:
    """Reports and state of each pair, state of each env, and the options.

    `report` has the address of an array `[env, primary, (found, force, pos)]` for each pair. `last` has the start of
    the control step in which a row of each pair and phase was last shown, plus one; 0 for never. A tick takes two
    words, since float32 holds integers of at most 24 bits.
    """

    report: wp.array[wp.uint64]
    place: wp.array[wp.int32]
    primaries: wp.array[wp.int32]
    sign: wp.array[wp.float32]
    ids: wp.array2d[wp.int32]
    touching: wp.array2d[wp.float32]
    ticks: wp.array2d[wp.float32]
    peak: wp.array2d[wp.float32]
    row: wp.array2d[wp.float32]
    impulse: wp.array2d[wp.vec3]
    step_impulse: wp.array2d[wp.vec3]
    pos: wp.array2d[wp.vec3]
    last: wp.array2d[wp.float32]
    step: wp.array2d[wp.float32]
    count: wp.array[wp.float32]
    lost: wp.array[wp.float32]
    shown: wp.array[wp.float32]
    rows: wp.array3d[wp.float32]
    threshold: wp.float32
    dt: wp.float32
    phases: wp.int32
    min_impulse: wp.float32
    min_ticks: wp.int32


@wp.struct
class Events:
    """Output record, by the names of its fields; `body_ids` has length 0 where it is not needed."""

    count: wp.array[wp.int32]
    lost: wp.array[wp.int32]
    pair: wp.array2d[wp.int32]
    phase: wp.array2d[wp.int32]
    tick: wp.array2d[wp.int64]
    duration: wp.array2d[wp.float32]
    impulse_w: wp.array2d[wp.vec3]
    peak_force: wp.array2d[wp.float32]
    pos_w: wp.array2d[wp.vec3]
    body_ids: wp.array3d[wp.int32]


NO_ROW, LOST = -1, -2
"""Values instead of a row number: the pair has no row in this control step; the pair found no free row."""


PAIR, PHASE, TICK, DURATION, IMPULSE, PEAK, POS, SHOWN, ROW_SIZE = 0, 1, 2, 4, 5, 8, 9, 12, 13
"""Columns of a stored row; the tick takes two words, and `SHOWN` is 1 if the row is in the record."""


@wp.func
def _keep(pairs: Pairs, env: int, row: int, at: int, v: wp.vec3) -> None:
    for i in range(3):
        pairs.rows[env, row, at + i] = v[i]


@wp.func
def _kept(pairs: Pairs, env: int, row: int, at: int) -> wp.vec3:
    return wp.vec3(pairs.rows[env, row, at], pairs.rows[env, row, at + 1], pairs.rows[env, row, at + 2])


@wp.func
def _show(pairs: Pairs, events: Events, env: int, row: int, shown: int) -> None:
    """Copy a stored row into the record."""
    kept = pairs.rows[env, row]
    pair = int(kept[wp.static(PAIR)])
    events.pair[env, shown] = pair
    events.phase[env, shown] = int(kept[wp.static(PHASE)])
    events.tick[env, shown] = wp.int64(kept[wp.static(TICK)]) * wp.int64(65536) + wp.int64(kept[wp.static(TICK) + 1])
    events.duration[env, shown] = kept[wp.static(DURATION)]
    events.impulse_w[env, shown] = _kept(pairs, env, row, wp.static(IMPULSE))
    events.peak_force[env, shown] = kept[wp.static(PEAK)]
    events.pos_w[env, shown] = _kept(pairs, env, row, wp.static(POS))
    if events.body_ids.shape[0] > 0:
        for side in range(2):
            events.body_ids[env, shown, side] = pairs.ids[pair, side]


@wp.func
def _empty(events: Events, env: int, row: int) -> None:
    """Clear a row of the record."""
    events.pair[env, row] = -1
    events.phase[env, row] = 0
    events.tick[env, row] = wp.int64(0)
    events.duration[env, row] = 0.0
    events.impulse_w[env, row] = wp.vec3()
    events.peak_force[env, row] = 0.0
    events.pos_w[env, row] = wp.vec3()
    if events.body_ids.shape[0] > 0:
        for side in range(2):
            events.body_ids[env, row, side] = -1


@wp.func
def _measure(pairs: Pairs, env: int, row: int, duration: float, impulse: wp.vec3, peak: float) -> None:
    pairs.rows[env, row, wp.static(DURATION)] = duration
    _keep(pairs, env, row, wp.static(IMPULSE), impulse)
    pairs.rows[env, row, wp.static(PEAK)] = peak


@wp.func
def _place_of(pairs: Pairs, env: int, row: int) -> int:
    """Return the place in `last` for the pair and the phase of a stored row."""
    kept = pairs.rows[env, row]
    return 6 * int(kept[wp.static(PAIR)]) + 2 * (int(kept[wp.static(PHASE)]) - 1)


@wp.func
def _begin_tick(rows: Rows, pairs: Pairs, env: int) -> None:
    """Clear the rows of an env at the start of a control step or an episode."""
    step = tick_of_control(rows)
    since = ticks_since(step, pairs.step, env)
    if since == wp.int64(0) and not is_first(rows, env):
        return
    if pairs.min_ticks > 0 and not is_first(rows, env):
        for row in range(int(pairs.count[env])):
            if pairs.rows[env, row, wp.static(SHOWN)] > 0.0:
                at = _place_of(pairs, env, row)
                after = step - since + wp.int64(1)
                pairs.last[env, at] = float(after / wp.int64(65536))
                pairs.last[env, at + 1] = float(after % wp.int64(65536))
    note_tick(step, pairs.step, env)
    pairs.count[env] = 0.0
    pairs.lost[env] = 0.0
    for pair in range(pairs.row.shape[1]):
        pairs.row[env, pair] = float(wp.static(NO_ROW))
        pairs.step_impulse[env, pair] = wp.vec3()


@wp.func
def _is_shown(pairs: Pairs, env: int, row: int, step: wp.int64) -> bool:
    """Return whether a stored row is strong enough, and long enough after the last one of its pair and phase."""
    passes = bool(wp.length(_kept(pairs, env, row, wp.static(IMPULSE))) >= pairs.min_impulse)
    if passes and pairs.min_ticks > 0:
        at = _place_of(pairs, env, row)
        for earlier in range(row):
            if pairs.rows[env, earlier, wp.static(SHOWN)] > 0.0 and _place_of(pairs, env, earlier) == at:
                passes = False
        last = wp.int64(pairs.last[env, at]) * wp.int64(65536) + wp.int64(pairs.last[env, at + 1])
        if last > wp.int64(0) and step + wp.int64(1) - last < wp.int64(pairs.min_ticks):
            passes = False
    return passes


@wp.struct
class CollisionTask:
    """Data of one sensor for the kernel."""

    pairs: Pairs
    events: Events


@kernel(blocks=2)
def _look(rows: Rows, tasks: wp.array[CollisionTask]) -> None:
    """Process the pairs of all reports."""
    k, env = masked_tid(rows)
    t = tasks[k]
    pairs = t.pairs
    events = t.events
    _begin_tick(rows, pairs, env)
    tick = tick_captured(rows)
    for pair in range(pairs.report.shape[0]):
        report = floats_at(pairs.report[pair], 7 * (env * pairs.primaries[pair] + pairs.place[pair]), 7)
        force = pairs.sign[pair] * wp.vec3(report[1], report[2], report[3])
        now = report[0] > 0.0
        if pairs.threshold > 0.0:
            now = now and wp.length(force) > pairs.threshold
        before = pairs.touching[env, pair] > 0.0
        if is_first(rows, env):
            before = now  # a contact at the start of an episode has no begin event
        phase = 0
        if now and not before:
            phase = wp.static(BEGIN)
            pairs.ticks[env, pair] = 0.0
            pairs.peak[env, pair] = 0.0
            pairs.impulse[env, pair] = wp.vec3()
            pairs.step_impulse[env, pair] = wp.vec3()
        elif now and pairs.row[env, pair] == float(wp.static(NO_ROW)):
            phase = wp.static(PERSIST)
        elif before and not now:
            phase = wp.static(END)
        pairs.touching[env, pair] = wp.where(now, 1.0, 0.0)
        if now:
            pairs.peak[env, pair] = wp.max(pairs.peak[env, pair], wp.length(force))
            if not is_first(rows, env):  # no time has passed at a reset
                pairs.ticks[env, pair] = pairs.ticks[env, pair] + 1.0
                pairs.impulse[env, pair] = pairs.impulse[env, pair] + pairs.dt * force
                pairs.step_impulse[env, pair] = pairs.step_impulse[env, pair] + pairs.dt * force
            pairs.pos[env, pair] = wp.vec3(report[4], report[5], report[6])
        duration = pairs.ticks[env, pair] * pairs.dt
        row = int(pairs.row[env, pair])
        if row >= 0:
            _measure(pairs, env, row, duration, pairs.step_impulse[env, pair], pairs.peak[env, pair])
        if phase != 0:
            row = wp.static(NO_ROW)
            if ((pairs.phases >> phase) & 1) == 1:
                row = int(pairs.count[env])
                if row < pairs.rows.shape[1]:
                    impulse = pairs.step_impulse[env, pair]
                    if phase == wp.static(END):
                        impulse = pairs.impulse[env, pair]
                    pairs.rows[env, row, wp.static(PAIR)] = float(pair)
                    pairs.rows[env, row, wp.static(PHASE)] = float(phase)
                    pairs.rows[env, row, wp.static(TICK)] = float(tick / wp.int64(65536))
                    pairs.rows[env, row, wp.static(TICK) + 1] = float(tick % wp.int64(65536))
                    _keep(pairs, env, row, wp.static(POS), pairs.pos[env, pair])
                    _measure(pairs, env, row, duration, impulse, pairs.peak[env, pair])
                    pairs.count[env] = float(row + 1)
                else:
                    row = wp.static(LOST)
                    pairs.lost[env] = pairs.lost[env] + 1.0
            if phase == wp.static(END):
                row = wp.static(NO_ROW)
            pairs.row[env, pair] = float(row)
    shown = wp.int32(0)
    for row in range(int(pairs.count[env])):
        pairs.rows[env, row, wp.static(SHOWN)] = 0.0
        if _is_shown(pairs, env, row, tick_of_control(rows)):
            pairs.rows[env, row, wp.static(SHOWN)] = 1.0
            _show(pairs, events, env, row, shown)
            shown += 1
    filled = int(pairs.shown[env])
    if events.count[env] != filled or is_first(rows, env):  # the record does not hold the rows of the previous tick
        filled = events.pair.shape[1]
    for row in range(shown, filled):
        _empty(events, env, row)
    pairs.shown[env] = float(shown)
    events.count[env] = shown
    events.lost[env] = int(pairs.lost[env])


RowsCfgT = TypeVar("RowsCfgT", bound=SensorCfg[Any])
RowsDataT = TypeVar("RowsDataT", bound=CollisionEventsData)
FIELDS = ("found", "force", "pos")
"""Fields of the reports that the kernel reads."""


class CollisionRows(SimpleSensor[RowsCfgT, RowsDataT], Generic[RowsCfgT, RowsDataT]):
    """Base of sensors whose rows are the events of pairs. A subclass defines `sides` and `max_rows`."""

    phases: tuple[int, ...] = (BEGIN, PERSIST, END)
    """Phases with rows."""
    threshold: float = 0.0
    """Net force above which a pair counts as touching, N."""
    min_impulse: float = 0.0
    """Minimum impulse of a row, N s."""
    min_interval: float = 0.0
    """Minimum time between two rows of one pair and phase, s."""

    @property
    def sides(self) -> Sequence[Pair]:
        """The pairs."""
        raise NotImplementedError

    @property
    def max_rows(self) -> int:
        """Number of rows per environment and control step."""
        raise NotImplementedError

    @property
    def pairs(self) -> list[list[str]]:
        """[primary, secondary] of each pair, in the order of `pair`; ``"*"`` matches anything."""
        return [list(pair.names) for pair in self.sides]

    def fields(self) -> Mapping[str, Field]:
        """Return the fields with `max_rows` rows."""
        return {name: replace(field, shape=(self.max_rows, *field.shape[1:])) if field.shape else field
                for name, field in super().fields().items()}  # fmt: skip

    def setup(self) -> None:
        """Allocate the memory of pairs and envs."""
        contacts = f"of the contacts of {listed(dict.fromkeys(names[0] for names in self.pairs))}"
        self.buffers.body_at_fault = lambda env, mount: contacts  # a report does not identify the body
        sides, num, device = self.sides, len(self.sides), self.compute_on.wp_device
        self._pairs = pairs = Pairs()
        constants = {
            "place": [pair.place for pair in sides],
            "primaries": [len(pair.report.args[0][1]) for pair in sides],
            "ids": [pair.ids for pair in sides],
        }
        for name, values in constants.items():
            setattr(pairs, name, wp.array(np.array(values, np.int32), dtype=wp.int32, device=device))
        pairs.sign = wp.array([pair.sign for pair in sides], dtype=wp.float32, device=device)
        for name in ("touching", "ticks", "peak", "row"):
            setattr(pairs, name, wp.from_torch(self.new_state(name, (num,))))
        for name in ("impulse", "step_impulse", "pos"):
            setattr(pairs, name, wp.from_torch(self.new_state(name, (num, 3)), dtype=wp.vec3))
        for name in ("count", "lost", "shown"):
            setattr(pairs, name, wp.from_torch(self.new_state(name)))
        pairs.min_ticks = math.ceil(self.min_interval / self.clock.dt * (1.0 - 1e-9))
        if pairs.min_ticks:
            pairs.last = wp.from_torch(self.new_state("last", (6 * num,)))
        pairs.step = wp.from_torch(self.new_state("step", (2,)))
        pairs.rows = wp.from_torch(self.new_state("rows", (self.max_rows, ROW_SIZE)))
        pairs.threshold, pairs.min_impulse, pairs.dt = self.threshold, self.min_impulse, self.clock.dt
        pairs.phases = sum(1 << phase for phase in self.phases)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Record the contacts that begin, persist and end at this tick (one launch, shared by all such sensors)."""
        events, t, is_mounted = Events(), CollisionTask(), isinstance(self.cfg, MountedSensorCfg)
        for spec in self.mount_specs:
            field = raw[spec.name][:, 0] if is_mounted else raw[spec.name]
            dtype = wp.vec3 if spec.is_vector else None
            setattr(events, spec.name, wp.from_torch(field, dtype=dtype))
        addresses = [self.engine.array(contact_array(pair.report)).data_ptr() for pair in self.sides]
        self._pairs.report = wp.array(addresses, dtype=wp.uint64, device=self.compute_on.wp_device)
        t.pairs, t.events = self._pairs, events
        self.compute_on.launch_task(_look, (), t)


class CollisionEvents(CollisionRows[CollisionEventsCfg, CollisionEventsData]):
    """Collisions between elements, as events of the control step."""

    @classmethod
    def needs(cls, cfg: CollisionEventsCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return one report of net forces for each secondary."""
        primary = resolve_match(cfg.primary, names, config=cfg.title, field="primary")
        others: list[tuple[str, str] | None] = [None]
        if cfg.secondary is not None:
            kind, found = resolve_match(cfg.secondary, names, config=cfg.title, field="secondary")
            others = [(kind, name) for name in found]
        return [CONTACT_REPORT(primary, other, FIELDS, "netforce") for other in others]

    @cached_property
    def sides(self) -> Sequence[Pair]:
        """The pairs."""
        return [
            Pair(report, place, (name, "*" if report.args[1] is None else report.args[1][1]))
            for report in self.needs(self.cfg, self.engine, self.engine.supports)
            for place, name in enumerate(report.args[0][1])
        ]

    @property
    def max_rows(self) -> int:
        """Number of rows per environment and control step."""
        return self.cfg.max_events

    def setup(self) -> None:
        """Allocate the memory of pairs and envs."""
        self.threshold = threshold = self.cfg.force_threshold
        self.notes["touching"] = f"net force > {threshold:g} N" if threshold else "found > 0"
        check_apart(self.sides[0].report.args[0], self.engine, config=self.cfg.title, field="primary")
        self.phases = (BEGIN, PERSIST, END) if self.cfg.persist else (BEGIN, END)
        super().setup()
