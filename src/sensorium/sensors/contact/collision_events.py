"""Collision events: when two things begin to touch, go on, and part, with the impulse that passed between them.

Axes: ``[env, event, ...]``; `count` says how many of the first rows of an env are filled. What is published, recorded
or streamed holds the filled rows only, see `Reading.offsets`. ``_w`` world axes; all forces act on the primary.

The rows are those of one control step: every tick of it is looked at, so nothing between two control steps is lost.
A contact is the touch of one pair of elements, however many points it has. With F the net force on the primary at a
tick and dt the time step, its impulse is the sum of F dt over the ticks at which the pair touched.
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
from sensorium.compute import Rows, is_first, kernel, recorded, tick_captured, tick_of_control
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
    """The events of the current control step; rows beyond `count` are empty (pair -1, all else 0)."""

    count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Filled rows."""
    lost: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Events of this control step that found no row: raise `max_events`."""
    pair: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """Index into `pairs`."""
    phase: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """1 begin, 2 persist (it touched before this control step), 3 end."""
    tick: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """Physics tick of the event; of persist the first tick of the control step."""
    duration: Annotated[Tensor, Field("s", (1,), ("event",), kind="derived")]
    """How long the pair has touched so far, or, at the end, did in all, s."""
    impulse_w: Annotated[Tensor, Field("N s", (1, 3), ("event", "xyz"), frame="world", kind="derived")]
    """Impulse on the primary: of begin and persist within this control step so far, of end over the whole contact."""
    peak_force: Annotated[Tensor, Field("N", (1,), ("event",), kind="derived")]
    """Greatest net force of the whole contact so far."""
    pos_w: Annotated[Tensor, Field("m", (1, 3), ("event", "xyz"), frame="world", kind="derived", role="point")]
    """Centre of the contact when the row was made, weighted by force; of end the last one."""
    pairs: list[list[str]]
    """[primary, secondary] of each pair; ``"*"`` is anything."""


class CollisionEventsCfg(SensorCfg[CollisionEventsData]):
    """Configuration of collision events. It looks at every physics tick; read or publish it once a control step."""

    primary: ContactMatch
    """What collides: geoms, bodies or subtrees."""
    secondary: ContactMatch | None = None
    """What they collide with; each match makes a pair with each primary. None: anything, one pair per primary."""
    max_events: Annotated[int, must(lambda n: 1 <= n <= 100_000, "a whole number >= 1, at most 100000")] = 16
    """Rows per environment and control step, at most 100,000."""
    force_threshold: Annotated[
        float, must(lambda n: 0.0 <= n < math.inf, "a finite force >= 0 in newton"), in_unit("N")
    ] = 0.0
    """Net force above which a pair counts as touching, N; 0 counts every contact, also one without force."""
    persist: bool = True
    """Whether a contact that goes on from before the control step has a row in it."""

    @field_validator("update_period", "rate_hz")
    @classmethod
    def _every_tick(cls, value: float | None) -> float | None:
        if value:
            raise bad("no rate", "It looks at every tick, so that nothing is missed; read it as often as you like.")
        return value


@wp.struct
class Pairs:
    """What is kept of each pair `[env, pair]` and of each env, and the rules."""

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
    """The record that readers see."""

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
"""Instead of the number of a pair's row: it has none in this control step; it found no place for one."""


PAIR, PHASE, TICK, DURATION, IMPULSE, PEAK, POS, ROW_SIZE = 0, 1, 2, 4, 5, 8, 9, 12
"""Where a row that is kept has its parts; the tick takes two words, since float32 holds no more than 24 bits."""


@wp.func
def _keep(pairs: Pairs, env: int, row: int, at: int, v: wp.vec3) -> None:
    for i in range(3):
        pairs.rows[env, row, at + i] = v[i]


@wp.func
def _kept(pairs: Pairs, env: int, row: int, at: int) -> wp.vec3:
    return wp.vec3(pairs.rows[env, row, at], pairs.rows[env, row, at + 1], pairs.rows[env, row, at + 2])


@wp.func
def _show(pairs: Pairs, events: Events, env: int, row: int) -> None:
    """Write a row that is kept into the record."""
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
    """Empty the rows of an env where a control step or an episode begins, or where the record is another one."""
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
        return  # the record holds the rows of the tick before
    events.count[env] = count
    for row in range(events.pair.shape[1]):
        if row >= count:
            pairs.rows[env, row, wp.static(PAIR)] = -1.0
            for i in range(1, wp.static(ROW_SIZE)):
                pairs.rows[env, row, i] = 0.0
        _show(pairs, events, env, row)


@wp.struct
class CollisionTask:
    """One sensor, for the kernel; `reports` has addresses of arrays `[env, primary, (found, force, pos)]`."""

    reports: wp.array[wp.uint64]
    primaries: wp.int32
    pairs: Pairs
    events: Events


@kernel
def _look(rows: Rows, tasks: wp.array[CollisionTask]) -> None:
    """Go through the pairs of all reports."""
    k, i = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
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
            before = now  # what touches when the episode begins did not begin then
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
            if not is_first(rows, env):  # at a reset no time has passed yet
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
    """Collisions of elements with others, as events of the control step."""

    @classmethod
    def needs(cls, cfg: CollisionEventsCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return one report of net forces for each secondary."""
        config = f"{type(cfg).__name__}({cfg.label!r})"
        primary = resolve_match(cfg.primary, names, config=config, field="primary")
        others: list[tuple[str, str] | None] = [None]
        if cfg.secondary is not None:
            kind, found = resolve_match(cfg.secondary, names, config=config, field="secondary")
            others = [(kind, name) for name in found]
        return [CONTACT_REPORT(primary, other, ("found", "force", "pos"), "netforce") for other in others]

    def fields(self) -> Mapping[str, Field]:
        """Return the fields with `max_events` rows."""
        rows = self.cfg.max_events
        return {name: replace(field, shape=(rows, *field.shape[1:])) if field.shape else field
                for name, field in super().fields().items()}  # fmt: skip

    def setup(self) -> None:
        """Make the memory of pairs and envs."""
        config = f"{type(self.cfg).__name__}({self.name!r})"
        threshold = self.cfg.force_threshold
        self.notes["touching"] = f"net force > {threshold:g} N" if threshold else "found > 0"
        contacts = f"of the contacts of {listed(self._reports[0].args[0][1])}"
        self.buffers.body_at_fault = lambda env, mount: contacts  # a report does not say which of the two it is
        check_apart(self._reports[0].args[0], self.engine, config=config, field="primary")
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
        """Note what begins, goes on and ends at this tick (one launch, which all such sensors share)."""
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
        """[primary, secondary] of each pair, in the order of `pair`; ``"*"`` is anything."""
        return [
            [name, "*" if report.args[1] is None else report.args[1][1]]
            for report in self._reports
            for name in report.args[0][1]
        ]
