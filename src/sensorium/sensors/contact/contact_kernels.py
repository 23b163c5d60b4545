"""Kernels of the contact sensor: from contact reports to slots, sums, timers, latches and histories in one launch.

A thread handles one primary of one env, or all of them where that is faster (on a CPU). The memory of each primary is
one row of 4-byte words,

    [head | new contact, new air | rows of this tick, by slot | history, by slot and field]

The head holds whole numbers, among them ticks, and the latches; times are never stored as floats. A history is a ring
that runs backwards and is stored twice in sequence, so that newest to oldest is always one contiguous run of words.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import FIRST, Rows, kernel, masked_tid, mode_now, tick_now, tick_of_control
from sensorium.measurement.record import floats_at, words_at
from sensorium.world.mount import Mounts, mount_pose

FLAGS, SINCE, LAST_AIR, LAST_CONTACT, CONTROL, SAMPLE_TICK, ENTRY, LATCH = range(8)
"""Words of the head: flags, the tick before the current phase, lengths of the last phases in ticks, start of the
latch's control step, tick of the last sample, newest entry of the history, and the first latch."""
ANY, FIRST_TICK, PEAK, IMPULSE, LATCH_WORDS = 0, 1, 2, 3, 6
"""Words of a latch: whether there was a contact, its first tick, maximum force, and impulse (3)."""
IN_CONTACT, SINCE_RESET, SAMPLED, ILL = 1, 2, 4, 8
"""Flags: the current phase is contact; it started with the episode; the last tick was a sample; it was not finite."""

NETFORCE = 3
"""Number of the reduction ``netforce``; ``none``, ``mindist`` and ``maxforce`` are 0, 1 and 2."""


@wp.struct
class Columns:
    """Column of each field in a row, -1 for absent fields."""

    width: wp.int32
    found: wp.int32
    force: wp.int32
    torque: wp.int32
    dist: wp.int32
    pos: wp.int32
    normal: wp.int32
    tangent: wp.int32


@wp.struct
class Reports:
    """Contact reports of one layout: addresses of arrays `[env, primary, slot, column]`."""

    address: wp.array[wp.uint64]
    count: wp.int32
    slots: wp.int32
    at: Columns


@wp.struct
class Memory:
    """State that persists between ticks, `[env, primary, word]`."""

    address: wp.uint64
    primaries: wp.int32
    width: wp.int32
    head: wp.int32
    lanes: wp.int32
    slots: wp.int32
    entries: wp.int32
    row: wp.int32


@wp.struct
class Rules:
    """Options of the config.

    `sign`: factor of force and torque in world axes; `by_force`: contact is a net force above `threshold`, not a count;
    `by_sample`: a history has one entry per sample.
    """

    reduce: wp.int32
    global_frame: wp.int32
    sign: wp.float32
    by_force: wp.int32
    by_sample: wp.int32
    threshold: wp.float32
    dt: wp.float32
    exact_dt: wp.float64


@wp.struct
class Fields:
    """Outputs of a row's columns: per field its first column and width, addresses of data and history (0: none)."""

    count: wp.int32
    column: wp.array[wp.int32]
    width: wp.array[wp.int32]
    data: wp.array[wp.uint64]
    history: wp.array[wp.uint64]
    time_first: wp.int32


@wp.struct
class Shown:
    """Output fields per primary; arrays that were not requested have length 0."""

    current_air: wp.array2d[wp.float32]
    last_air: wp.array2d[wp.float32]
    current_contact: wp.array2d[wp.float32]
    last_contact: wp.array2d[wp.float32]
    any: wp.array2d[wp.bool]
    peak: wp.array2d[wp.float32]
    impulse: wp.array2d[wp.vec3]
    first: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@wp.func
def _vec(values: wp.array[wp.float32], at: int) -> wp.vec3:
    return wp.vec3(values[at], values[at + 1], values[at + 2])


@wp.func
def _put(values: wp.array[wp.float32], at: int, value: wp.vec3) -> None:
    values[at] = value[0]
    values[at + 1] = value[1]
    values[at + 2] = value[2]


@wp.func
def _open(rows: Rows, memory: Memory, rules: Rules, env: int, primary: int) -> int:
    """Start a tick, and return the offset of its rows; clear state from before a reset."""
    base = (env * memory.primaries + primary) * memory.width
    ints = words_at(memory.address)
    if mode_now(rows) == FIRST:
        for k in range(memory.width):
            ints[base + k] = 0
    if rules.by_sample == 0 or (ints[base + wp.static(FLAGS)] & wp.static(SAMPLED)) != 0:
        entry = ints[base + wp.static(ENTRY)] - 1
        if entry < 0:
            entry = memory.entries - 1
        ints[base + wp.static(ENTRY)] = entry
    return int(base + memory.head + 2)


@wp.func
def _latch(floats: wp.array[wp.float32], ints: wp.array[wp.int32], at: int, tick: int, found: float, force: float,
           impulse: wp.vec3) -> None:  # fmt: skip
    if found > 0.0 and ints[at] == 0:
        ints[at] = 1
        ints[at + wp.static(FIRST_TICK)] = tick
    floats[at + wp.static(PEAK)] = wp.max(floats[at + wp.static(PEAK)], force)
    _put(floats, at + wp.static(IMPULSE), _vec(floats, at + wp.static(IMPULSE)) + impulse)


@wp.func
def _seconds(ticks: int, rules: Rules) -> float:
    return float(wp.float64(ticks) * rules.exact_dt)


@wp.func
def _close(
    rows: Rows,
    sampled: int,
    rules: Rules,
    memory: Memory,
    shown: Shown,
    env: int,
    primary: int,
    found: float,
    force: wp.vec3,
) -> None:
    """Advance timers and latches by this tick's contacts and net force; at a sample write them to the outputs."""
    base = (env * memory.primaries + primary) * memory.width
    ints = words_at(memory.address)
    floats = floats_at(memory.address)
    tick = wp.int32(tick_now(rows))  # of ticks, only differences are used
    mode = mode_now(rows)
    flags = ints[base]
    control = wp.int32(tick_of_control(rows))
    before = ints[base + wp.static(SAMPLE_TICK)]
    first_lane = base + wp.static(LATCH)
    second_lane = first_lane + wp.static(LATCH_WORDS)
    if mode == FIRST or ints[base + wp.static(CONTROL)] != control:
        ints[base + wp.static(CONTROL)] = control
        for k in range(wp.static(LATCH_WORDS)):
            ints[first_lane + k] = 0
    if memory.lanes == 2 and (flags & wp.static(SAMPLED)) != 0:
        for k in range(wp.static(LATCH_WORDS)):
            ints[second_lane + k] = 0
    flags = flags & wp.static(~SAMPLED)
    size = wp.length(force)
    ill = not (wp.isfinite(size) and wp.isfinite(found))
    if ill:
        flags = flags | wp.static(ILL)
        shown.any_bad[0] = 1
    if mode == FIRST:
        before = tick
        ints[base + wp.static(SINCE)] = tick
        flags = flags | wp.static(SINCE_RESET)
    if not ill:
        now = found > 0.0
        if rules.by_force != 0:
            now = size > rules.threshold
        was = (flags & wp.static(IN_CONTACT)) != 0
        if now != was:
            flags = flags ^ wp.static(IN_CONTACT)
            if mode != FIRST:
                flags = flags & wp.static(~SINCE_RESET)
                last = wp.static(LAST_AIR)
                if was:
                    last = wp.static(LAST_CONTACT)
                ints[base + last] = tick - ints[base + wp.static(SINCE)]
                ints[base + wp.static(SINCE)] = tick - 1
        impulse = wp.vec3()
        if mode != FIRST:  # no time has passed at a reset
            impulse = rules.dt * force
        if shown.any.shape[0] > 0:
            _latch(floats, ints, first_lane, tick, found, size, impulse)
            if memory.lanes == 2:
                _latch(floats, ints, second_lane, tick, found, size, impulse)
    if sampled == 0:
        ints[base] = flags
        ints[base + wp.static(SAMPLE_TICK)] = before
        return

    shown.bad[env, primary] = wp.uint8(wp.where((flags & wp.static(ILL)) != 0, 1, 0))
    flags = (flags | wp.static(SAMPLED)) & wp.static(~ILL)
    ints[base] = flags
    ints[base + wp.static(SAMPLE_TICK)] = tick
    air = wp.int32(0)
    contact = tick - ints[base + wp.static(SINCE)]
    if (flags & wp.static(IN_CONTACT)) == 0:
        air = contact
        contact = 0
    fresh = 1 - (flags & wp.static(SINCE_RESET)) // wp.static(SINCE_RESET)
    ints[base + memory.head] = fresh * contact
    ints[base + memory.head + 1] = fresh * air
    if shown.current_air.shape[0] > 0:
        shown.current_air[env, primary] = _seconds(air, rules)
        shown.current_contact[env, primary] = _seconds(contact, rules)
        shown.last_air[env, primary] = _seconds(ints[base + wp.static(LAST_AIR)], rules)
        shown.last_contact[env, primary] = _seconds(ints[base + wp.static(LAST_CONTACT)], rules)
    if shown.any.shape[0] > 0:
        lane = first_lane
        start = control
        if memory.lanes == 2 and before - control < 0:  # a control step passed between two samples
            lane = second_lane
            start = before
        shown.any[env, primary] = ints[lane] != 0
        shown.peak[env, primary] = floats[lane + wp.static(PEAK)]
        shown.impulse[env, primary] = _vec(floats, lane + wp.static(IMPULSE))
        first = wp.float32(wp.inf)
        if ints[lane] != 0:
            first = _seconds(ints[lane + wp.static(FIRST_TICK)] - start, rules)
        shown.first[env, primary] = first


@wp.func
def _copy(
    source: wp.array[wp.float32], source_at: int, target: wp.array[wp.float32], target_at: int, count: int
) -> None:
    """Copy some floats, four at a time."""
    for part in range(count // 4):
        k = 4 * part
        target[target_at + k] = source[source_at + k]
        target[target_at + k + 1] = source[source_at + k + 1]
        target[target_at + k + 2] = source[source_at + k + 2]
        target[target_at + k + 3] = source[source_at + k + 3]
    rest = count & 3
    k = count - rest
    if rest > 0:
        target[target_at + k] = source[source_at + k]
    if rest > 1:
        target[target_at + k + 1] = source[source_at + k + 1]
    if rest > 2:
        target[target_at + k + 2] = source[source_at + k + 2]


@wp.func
def _put_away(sampled: int, memory: Memory, fields: Fields, env: int, primary: int, rows: int) -> None:
    """Append this tick's rows to the history; at a sample write rows and history to the outputs."""
    base = (env * memory.primaries + primary) * memory.width
    floats = floats_at(memory.address)
    entry = words_at(memory.address)[base + wp.static(ENTRY)]
    blocks = rows + memory.slots * memory.row
    entries = memory.entries
    for field in range(fields.count):
        width = fields.width[field]
        column = fields.column[field]
        data = floats_at(fields.data[field])
        history = floats_at(fields.history[field])
        has_history = fields.history[field] != wp.uint64(0)
        for slot in range(memory.slots):
            newest = rows + slot * memory.row + column
            ring = blocks + 2 * entries * (slot * memory.row + column) + entry * width
            again = ring + entries * width
            target = ((env * memory.primaries + primary) * memory.slots + slot) * width
            first = target * entries
            if fields.time_first != 0:  # one slot
                first = (env * entries * memory.primaries + primary) * width
            if width == 3:
                value = _vec(floats, newest)
                if has_history:
                    _put(floats, ring, value)
                    _put(floats, again, value)
                    if sampled != 0:
                        _put(history, first, value)
                if sampled != 0:
                    _put(data, target, value)
            else:
                for k in range(width):
                    word = floats[newest + k]
                    if has_history:
                        floats[ring + k] = word
                        floats[again + k] = word
                        if sampled != 0:
                            history[first + k] = word
                    if sampled != 0:
                        data[target + k] = word
            if has_history and sampled != 0:
                if fields.time_first == 0:
                    older = (entries - 1) * width
                    _copy(floats, ring + width, history, first + width, older)
                else:
                    for age in range(1, entries):
                        place = first + age * memory.primaries * width
                        _copy(floats, ring + age * width, history, place, width)


@wp.func
def _at(reports: Reports, env: int, primaries: int, primary: int, slot: int) -> int:
    return int(((env * primaries + primary) * reports.slots + slot) * reports.at.width)


@wp.func
def _chosen(reports: Reports, rules: Rules, env: int, primaries: int, primary: int, rank: int) -> int:
    """Return the slot for a rank, as report * slots + slot; -1 for none.

    Reports are merged by depth or by force; with ``none``, and among equals, in the order of the reports.
    """
    last = wp.int32(-1)
    last_key = float(-wp.inf)
    for _step in range(rank + 1):
        best = wp.int32(-1)
        best_key = float(wp.inf)
        for k in range(reports.count):
            values = floats_at(reports.address[k])
            for slot in range(reports.slots):
                at = _at(reports, env, primaries, primary, slot)
                if values[at + reports.at.found] > 0.0:
                    key = wp.float32(0.0)
                    if rules.reduce == 1:
                        key = values[at + reports.at.dist]
                    elif rules.reduce == 2:
                        key = -wp.length(_vec(values, at + reports.at.force))
                    index = k * reports.slots + slot
                    later = key > last_key or (key == last_key and index > last)
                    if later and (best < 0 or key < best_key):
                        best = index
                        best_key = key
        if best < 0:
            return -1
        last = best
        last_key = best_key
    return int(last)


@kernel
def slots(
    rows: Rows,
    lanes: int,
    sampled: int,
    rules: Rules,
    reports: Reports,
    nets: Reports,
    memory: Memory,
    row: Columns,
    fields: Fields,
    shown: Shown,
    friction_out: wp.array2d[wp.vec3],
    contact_pos_out: wp.array2d[wp.vec3],
) -> None:
    """Report contacts in slots."""
    env, lane = masked_tid(rows)
    for primary in range(lane, memory.primaries, lanes):
        start = _open(rows, memory, rules, env, primary)
        out = floats_at(memory.address)
        primaries = memory.primaries
        found = wp.float32(0.0)
        for k in range(reports.count):
            found += floats_at(reports.address[k])[_at(reports, env, primaries, primary, 0) + reports.at.found]
        force = wp.vec3()
        for k in range(nets.count):
            force += _vec(floats_at(nets.address[k]), _at(nets, env, primaries, primary, 0) + nets.at.force)

        seen = found
        for slot in range(memory.slots):
            to = start + slot * memory.row
            filled = found > 0.0
            at = _at(reports, env, primaries, primary, slot)
            report = wp.int32(0)
            if reports.count > 1 and rules.reduce != wp.static(NETFORCE):
                chosen = _chosen(reports, rules, env, primaries, primary, slot)
                if chosen < 0:
                    filled = False
                else:
                    report = chosen // reports.slots
                    at = _at(reports, env, primaries, primary, chosen % reports.slots)
            values = floats_at(reports.address[report])
            if reports.count == 1 or rules.reduce != wp.static(NETFORCE):
                filled = filled and values[at + reports.at.found] > 0.0
            friction = wp.vec3()
            point = wp.vec3(wp.nan, wp.nan, wp.nan)
            if not filled:
                for k in range(memory.row):
                    out[to + k] = 0.0
            else:
                if row.found >= 0:
                    out[to + row.found] = found
                n = wp.vec3()
                t = wp.vec3()
                if reports.at.normal >= 0:
                    n = _vec(values, at + reports.at.normal)
                if reports.at.tangent >= 0:
                    t = _vec(values, at + reports.at.tangent)
                if reports.at.force >= 0:
                    f = _vec(values, at + reports.at.force)
                    if not wp.isfinite(wp.length(f)):
                        seen = wp.float32(wp.nan)
                    if rules.reduce == wp.static(NETFORCE):
                        for k in range(1, reports.count):
                            f += _vec(floats_at(reports.address[k]), at + reports.at.force)
                    else:
                        friction = -(f[1] * t + f[2] * wp.cross(n, t))
                        if rules.global_frame != 0:
                            f = friction - f[0] * n
                    if row.force >= 0:
                        _put(out, to + row.force, rules.sign * f)
                if row.torque >= 0:
                    m = _vec(values, at + reports.at.torque)
                    if rules.global_frame != 0 and rules.reduce != wp.static(NETFORCE):
                        m = -(m[0] * n + m[1] * t + m[2] * wp.cross(n, t))
                    _put(out, to + row.torque, rules.sign * m)
                if row.dist >= 0:
                    out[to + row.dist] = values[at + reports.at.dist]
                if reports.at.pos >= 0:
                    point = _vec(values, at + reports.at.pos)
                if row.pos >= 0:
                    _put(out, to + row.pos, point)
                if row.normal >= 0:
                    _put(out, to + row.normal, n)
                if row.tangent >= 0:
                    _put(out, to + row.tangent, t)
            if sampled != 0:
                if friction_out.shape[0] > 0:
                    friction_out[env, primary * memory.slots + slot] = friction
                if contact_pos_out.shape[0] > 0:
                    contact_pos_out[env, primary * memory.slots + slot] = point
        _put_away(sampled, memory, fields, env, primary, start)
        _close(rows, sampled, rules, memory, shown, env, primary, seen, force)


@wp.struct
class Poses:
    """Poses of the bodies; arrays have length 0 if poses were not requested."""

    bodies: wp.array[Mounts]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]


@wp.func
def _normal_force(reports: Reports, report: int, at: int) -> wp.vec3:
    """Return the sum of the normal forces on the primary in the slots of one report."""
    values = floats_at(reports.address[report])
    force = wp.vec3()
    for slot in range(reports.slots):
        place = at + slot * reports.at.width
        force -= values[place + reports.at.force] * _vec(values, place + reports.at.normal)
    return force


@kernel
def bodies(
    rows: Rows,
    lanes: int,
    sampled: int,
    rules: Rules,
    total: Reports,
    filters: Reports,
    memory: Memory,
    fields: Fields,
    shown: Shown,
    poses: Poses,
    most_found: wp.array2d[wp.int32],
    friction_out: wp.array3d[wp.vec3],
    contact_pos_out: wp.array3d[wp.vec3],
) -> None:
    """Report normal forces on bodies, in total and by filter."""
    env, lane = masked_tid(rows)
    for primary in range(lane, memory.primaries, lanes):
        start = _open(rows, memory, rules, env, primary)
        out = floats_at(memory.address)
        at = _at(total, env, memory.primaries, primary, 0)
        found = floats_at(total.address[0])[at + total.at.found]
        if found > float(total.slots):
            wp.atomic_max(most_found, 0, primary, int(found))
        force = _normal_force(total, 0, at)
        out[start] = found
        _put(out, start + 1, force)
        at = _at(filters, env, memory.primaries, primary, 0)
        for k in range(filters.count):
            values = floats_at(filters.address[k])
            if values[at + filters.at.found] > float(filters.slots):
                wp.atomic_max(most_found, 1 + k, primary, int(values[at + filters.at.found]))
            _put(out, start + 4 + 3 * k, _normal_force(filters, k, at))
            if sampled != 0 and (friction_out.shape[0] > 0 or contact_pos_out.shape[0] > 0):
                friction = wp.vec3()
                point = wp.vec3()
                points = wp.float32(0.0)
                for slot in range(filters.slots):
                    place = at + slot * filters.at.width
                    if values[place + filters.at.found] > 0.0:
                        points += 1.0
                        if filters.at.tangent >= 0:
                            n = _vec(values, place + filters.at.normal)
                            t = _vec(values, place + filters.at.tangent)
                            f = _vec(values, place + filters.at.force)
                            friction -= f[1] * t + f[2] * wp.cross(n, t)
                        if filters.at.pos >= 0:
                            point += _vec(values, place + filters.at.pos)
                if friction_out.shape[0] > 0:
                    friction_out[env, primary, k] = friction
                if contact_pos_out.shape[0] > 0:
                    if points > 0.0:
                        contact_pos_out[env, primary, k] = point / points
                    else:
                        contact_pos_out[env, primary, k] = wp.vec3(wp.nan, wp.nan, wp.nan)
        if sampled != 0 and poses.pos.shape[0] > 0:
            pos, quat = mount_pose(poses.bodies, env, primary)
            poses.pos[env, primary] = pos
            poses.quat[env, primary] = quat
        _put_away(sampled, memory, fields, env, primary, start)
        _close(rows, sampled, rules, memory, shown, env, primary, found, force)


M_WAS, M_SINCE, M_SAMPLE, M_LAST_AIR, M_LAST_CONTACT, MEASURED_WORDS = range(6)
"""Words of the memory of a measured switch: whether it was closed, the tick before the current phase, the tick of the
last sample, and lengths of the last phases in ticks."""


@kernel(group="measured")
def measured_times(
    rows: Rows,
    slots: int,
    threshold: float,
    exact_dt: wp.float64,
    force_in: wp.uint64,
    memory: wp.array3d[wp.int32],
    current_air: wp.array2d[wp.float32],
    last_air: wp.array2d[wp.float32],
    current_contact: wp.array2d[wp.float32],
    last_contact: wp.array2d[wp.float32],
) -> None:
    """Advance the timers of the switch of the measured force: the greatest force of a primary above the threshold."""
    env, primary = masked_tid(rows)
    values = floats_at(force_in)
    tick = wp.int32(tick_now(rows))
    size = wp.float32(0.0)
    for slot in range(slots):
        at = 3 * ((env * memory.shape[1] + primary) * slots + slot)
        size = wp.max(size, wp.length(_vec(values, at)))
    now = wp.where(size > threshold, 1, 0)
    if mode_now(rows) == FIRST:
        for k in range(wp.static(MEASURED_WORDS)):
            memory[env, primary, k] = 0
        memory[env, primary, wp.static(M_SINCE)] = tick
    elif now != memory[env, primary, wp.static(M_WAS)]:
        last = wp.static(M_LAST_AIR) + memory[env, primary, wp.static(M_WAS)]
        memory[env, primary, last] = tick - memory[env, primary, wp.static(M_SINCE)]
        memory[env, primary, wp.static(M_SINCE)] = memory[env, primary, wp.static(M_SAMPLE)]
    memory[env, primary, wp.static(M_WAS)] = now
    memory[env, primary, wp.static(M_SAMPLE)] = tick
    phase = float(wp.float64(tick - memory[env, primary, wp.static(M_SINCE)]) * exact_dt)
    current_air[env, primary] = wp.where(now == 0, phase, 0.0)
    current_contact[env, primary] = wp.where(now == 0, 0.0, phase)
    last_air[env, primary] = float(wp.float64(memory[env, primary, wp.static(M_LAST_AIR)]) * exact_dt)
    last_contact[env, primary] = float(wp.float64(memory[env, primary, wp.static(M_LAST_CONTACT)]) * exact_dt)


@kernel(group="measured")
def remember(
    rows: Rows, entries: int, width: int, time_first: int, value_in: wp.uint64, past: wp.array3d[wp.float32],
    history_out: wp.uint64,
) -> None:  # fmt: skip
    """Put a measured value in front of its history."""
    env, item = masked_tid(rows)
    values = floats_at(value_in)
    out = floats_at(history_out)
    items = past.shape[1]
    for column in range(width):
        for k in range(entries - 1):
            age = entries - 1 - k
            older = wp.float32(0.0)
            if mode_now(rows) != FIRST:
                older = past[env, item, (age - 1) * width + column]
            past[env, item, age * width + column] = older
        past[env, item, column] = values[(env * items + item) * width + column]
    for age in range(entries):
        for column in range(width):
            row = (env * items + item) * entries + age
            if time_first != 0:
                row = (env * entries + age) * items + item
            out[row * width + column] = past[env, item, age * width + column]
