"""Collision events: when two elements start to touch, stay in contact and separate, with the transmitted impulse.

Axes: ``[env, event, ...]``; `count` is the number of filled rows of an env, which come first. Published, recorded and
streamed data hold the filled rows only, see `Reading.offsets`. ``_w`` world axes; all forces act on the primary.

The rows cover one control step. Every tick of it is evaluated, so no event between two control steps is lost. A contact
is the touch of one pair of elements, whatever its number of points. With F the net force on the primary at a tick and
dt the time step, its impulse is the sum of F dt over the ticks at which the pair touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cfg import SensorCfg, bad, in_unit, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, recorded, tick_captured, tick_of_control
from sensorium.errors import listed
from sensorium.measurement.record import Record
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
    tick: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """Physics tick of the event; for persist, the first tick of the control step."""
    duration: Annotated[Tensor, Field("s", (1,), ("event",), kind="derived")]
    """Duration of the contact so far; at the end its total duration, s."""
    impulse_w: Annotated[Tensor, Field("N s", (1, 3), ("event", "xyz"), frame="world", kind="derived")]
    """Impulse on the primary: for begin and persist within this control step so far, for end over the whole contact."""
    peak_force: Annotated[Tensor, Field("N", (1,), ("event",), kind="derived")]
    """Greatest net force of the contact so far."""
    pos_w: Annotated[Tensor, Field("m", (1, 3), ("event", "xyz"), frame="world", kind="derived", role="point")]
    """Centre of the contact when the row was written, weighted by force; for end the last known centre."""
    pairs: list[list[str]]
    """[primary, secondary] of each pair; ``"*"`` matches anything."""


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

    @field_validator("update_period", "rate_hz")
    @classmethod
    def _every_tick(cls, value: float | None) -> float | None:
        if value:
            raise bad("no rate", "Omit the rate, since the sensor evaluates every tick; it can be read at any rate.")
        return value


@wp.struct
class Pairs:
    """State of each pair `[env, pair]` and of each env, and the options."""

    touching: wp.array2d[wp.float32]
    ticks: wp.array2d[wp.float32]
    peak: wp.array2d[wp.float32]
    row: wp.array2d[wp.float32]
    impulse: wp.array2d[wp.vec3]
    step_impulse: wp.array2d[wp.vec3]
    pos: wp.array2d[wp.vec3]
    marker: wp.array[wp.float32]
    count: wp.array[wp.float32]
    lost: wp.array[wp.float32]
    rows: wp.array3d[wp.float32]
    threshold: wp.float32
    dt: wp.float32
    persist: wp.int32


@wp.struct
class Events:
    """Output record."""

    count: wp.array[wp.int32]
    lost: wp.array[wp.int32]
    pair: wp.array2d[wp.int32]
    phase: wp.array2d[wp.int32]
    tick: wp.array2d[wp.int32]
    duration: wp.array2d[wp.float32]
    impulse: wp.array2d[wp.vec3]
    peak: wp.array2d[wp.float32]
    pos: wp.array2d[wp.vec3]


NO_ROW, LOST = -1, -2
"""Values instead of a row number: the pair has no row in this control step; the pair found no free row."""


PAIR, PHASE, TICK, DURATION, IMPULSE, PEAK, POS, ROW_SIZE = 0, 1, 2, 4, 5, 8, 9, 12
"""Columns of a stored row; the tick takes two words, since float32 holds integers of at most 24 bits."""


@wp.func
def _keep(pairs: Pairs, env: int, row: int, at: int, v: wp.vec3) -> None:
    for i in range(3):
        pairs.rows[env, row, at + i] = v[i]


@wp.func
def _kept(pairs: Pairs, env: int, row: int, at: int) -> wp.vec3:
    return wp.vec3(pairs.rows[env, row, at], pairs.rows[env, row, at + 1], pairs.rows[env, row, at + 2])


@wp.func
def _show(pairs: Pairs, events: Events, env: int, row: int) -> None:
    """Copy a stored row into the record."""
    kept = pairs.rows[env, row]
    events.pair[env, row] = int(kept[wp.static(PAIR)])
    events.phase[env, row] = int(kept[wp.static(PHASE)])
    events.tick[env, row] = int(kept[wp.static(TICK)]) * 65536 + int(kept[wp.static(TICK) + 1])
    events.duration[env, row] = kept[wp.static(DURATION)]
    events.impulse[env, row] = _kept(pairs, env, row, wp.static(IMPULSE))
    events.peak[env, row] = kept[wp.static(PEAK)]
    events.pos[env, row] = _kept(pairs, env, row, wp.static(POS))


@wp.func
def _measure(pairs: Pairs, env: int, row: int, duration: float, impulse: wp.vec3, peak: float) -> None:
    pairs.rows[env, row, wp.static(DURATION)] = duration
    _keep(pairs, env, row, wp.static(IMPULSE), impulse)
    pairs.rows[env, row, wp.static(PEAK)] = peak


@wp.func
def _begin_tick(rows: Rows, pairs: Pairs, events: Events, env: int) -> None:
    """Clear the rows of an env at the start of a control step or an episode, or if the record has changed."""
    marker = float(tick_of_control(rows) & 16777215)  # float32 holds it exactly
    if pairs.marker[env] != marker or is_first(rows, env):
        pairs.marker[env] = marker
        pairs.count[env] = 0.0
        pairs.lost[env] = 0.0
        for pair in range(pairs.row.shape[1]):
            pairs.row[env, pair] = float(wp.static(NO_ROW))
            pairs.step_impulse[env, pair] = wp.vec3()
    count = int(pairs.count[env])
    if events.count[env] == count and not is_first(rows, env):
        return  # the record holds the rows of the previous tick
    events.count[env] = count
    for row in range(events.pair.shape[1]):
        if row >= count:
            pairs.rows[env, row, wp.static(PAIR)] = -1.0
            for i in range(1, wp.static(ROW_SIZE)):
                pairs.rows[env, row, i] = 0.0
        _show(pairs, events, env, row)


@wp.struct
class CollisionTask:
    """Data of one sensor for the kernel; `reports` has addresses of arrays `[env, primary, (found, force, pos)]`."""

    reports: wp.array[wp.uint64]
    primaries: wp.int32
    pairs: Pairs
    events: Events


@kernel
def _look(rows: Rows, tasks: wp.array[CollisionTask]) -> None:
    """Process the pairs of all reports."""
    k, env = masked_tid(rows)
    t = tasks[k]
    pairs = t.pairs
    events = t.events
    _begin_tick(rows, pairs, events, env)
    tick = tick_captured(rows)
    for pair in range(t.reports.shape[0] * t.primaries):
        report = wp.array(ptr=t.reports[pair // t.primaries], shape=(2147483647,), dtype=wp.float32)
        at = 7 * (env * t.primaries + pair % t.primaries)
        force = wp.vec3(report[at + 1], report[at + 2], report[at + 3])
        now = report[at] > 0.0
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
        elif now and pairs.row[env, pair] == float(wp.static(NO_ROW)) and pairs.persist != 0:
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
            pairs.pos[env, pair] = wp.vec3(report[at + 4], report[at + 5], report[at + 6])
        duration = pairs.ticks[env, pair] * pairs.dt
        row = int(pairs.row[env, pair])
        if row >= 0:
            _measure(pairs, env, row, duration, pairs.step_impulse[env, pair], pairs.peak[env, pair])
            _show(pairs, events, env, row)
        if phase != 0:
            row = int(pairs.count[env])
            if row < events.pair.shape[1]:
                impulse = pairs.step_impulse[env, pair]
                if phase == wp.static(END):
                    impulse = pairs.impulse[env, pair]
                pairs.rows[env, row, wp.static(PAIR)] = float(pair)
                pairs.rows[env, row, wp.static(PHASE)] = float(phase)
                pairs.rows[env, row, wp.static(TICK)] = float(tick / 65536)
                pairs.rows[env, row, wp.static(TICK) + 1] = float(tick % 65536)
                _keep(pairs, env, row, wp.static(POS), pairs.pos[env, pair])
                _measure(pairs, env, row, duration, impulse, pairs.peak[env, pair])
                _show(pairs, events, env, row)
                pairs.count[env] = float(row + 1)
                events.count[env] = row + 1
            else:
                row = wp.static(LOST)
                pairs.lost[env] = pairs.lost[env] + 1.0
            if phase == wp.static(END):
                row = wp.static(NO_ROW)
            pairs.row[env, pair] = float(row)
    events.lost[env] = int(pairs.lost[env])


class CollisionEvents(SimpleSensor[CollisionEventsCfg, CollisionEventsData]):
    """Collisions between elements, as events of the control step."""

    @classmethod
    def needs(cls, cfg: CollisionEventsCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return one report of net forces for each secondary."""
        primary = resolve_match(cfg.primary, names, config=cfg.title, field="primary")
        others: list[tuple[str, str] | None] = [None]
        if cfg.secondary is not None:
            kind, found = resolve_match(cfg.secondary, names, config=cfg.title, field="secondary")
            others = [(kind, name) for name in found]
        return [CONTACT_REPORT(primary, other, ("found", "force", "pos"), "netforce") for other in others]

    def fields(self) -> Mapping[str, Field]:
        """Return the fields with `max_events` rows."""
        rows = self.cfg.max_events
        return {name: replace(field, shape=(rows, *field.shape[1:])) if field.shape else field
                for name, field in super().fields().items()}  # fmt: skip

    def setup(self) -> None:
        """Allocate the memory of pairs and envs."""
        threshold = self.cfg.force_threshold
        self.notes["touching"] = f"net force > {threshold:g} N" if threshold else "found > 0"
        contacts = f"of the contacts of {listed(self._reports[0].args[0][1])}"
        self.buffers.body_at_fault = lambda env, mount: contacts  # a report does not identify the body
        check_apart(self._reports[0].args[0], self.engine, config=self.cfg.title, field="primary")
        pairs, num = Pairs(), len(self.pairs)
        for name in ("touching", "ticks", "peak", "row"):
            setattr(pairs, name, wp.from_torch(self.new_state(name, (num,))))
        for name in ("impulse", "step_impulse", "pos"):
            setattr(pairs, name, wp.from_torch(self.new_state(name, (num, 3)), dtype=wp.vec3))
        for name in ("marker", "count", "lost"):
            setattr(pairs, name, wp.from_torch(self.new_state(name)))
        pairs.rows = wp.from_torch(self.new_state("rows", (self.cfg.max_events, ROW_SIZE)))
        pairs.threshold, pairs.dt = self.cfg.force_threshold, self.clock.dt
        pairs.persist = int(self.cfg.persist)
        self._pairs = pairs

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Record the contacts that begin, persist and end at this tick (one launch, shared by all such sensors)."""
        events, t = Events(), CollisionTask()
        for name in ("count", "lost", "pair", "phase", "tick"):
            setattr(events, name, wp.from_torch(raw[name], dtype=wp.int32))
        events.duration, events.peak = wp.from_torch(raw["duration"]), wp.from_torch(raw["peak_force"])
        events.impulse, events.pos = raw.warp.impulse_w, raw.warp.pos_w
        addresses = [self.engine.array(contact_array(requirement)).data_ptr() for requirement in self._reports]
        t.reports = wp.array(addresses, dtype=wp.uint64, device=self.compute_on.wp_device)
        t.primaries, t.pairs, t.events = len(self.pairs) // len(addresses), self._pairs, events
        self.compute_on.launch_task(_look, (), t)

    @cached_property
    def _reports(self) -> list[Requirement]:
        return list(self.needs(self.cfg, self.engine, self.engine.supports))

    @cached_property
    def pairs(self) -> list[list[str]]:
        """[primary, secondary] of each pair, in the order of `pair`; ``"*"`` matches anything."""
        return [
            [name, "*" if report.args[1] is None else report.args[1][1]]
            for report in self._reports
            for name in report.args[0][1]
        ]
