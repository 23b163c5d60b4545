"""Kernels of the contact sensor: from contact reports to slots, sums, timers, latches and histories in one launch.

A thread handles one primary of one env, or all of them where that is faster (on a CPU). Times are whole ticks. The
rows of a primary, one per history entry, form a ring that runs backwards; the newest contains this tick.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import FIRST, Rows, kernel, masked_tid, mode_now, tick_now, tick_of_control
from sensorium.compute.rows import floats_at
from sensorium.world.mount import Mounts, mount_pose

NETFORCE = 3
"""Number of the reduction ``netforce``; ``none``, ``mindist`` and ``maxforce`` are 0, 1 and 2."""


@wp.struct
class ContactTimer:
    """Phases of a switch, in ticks.

    Attributes:
        is_closed: whether the current phase is contact.
        is_first: whether the current phase started with the episode.
        since: tick before the current phase.
        last_air: length of the last phase in the air.
        last_contact: length of the last phase in contact.
    """

    is_closed: wp.int32
    is_first: wp.int32
    since: wp.int32
    last_air: wp.int32
    last_contact: wp.int32


@wp.struct
class ContactLatch:
    """Contacts of several ticks.

    Attributes:
        any: whether there was a contact.
        tick: tick of the first contact.
        peak: maximum force, N.
        impulse: N s.
    """

    any: wp.int32
    tick: wp.int32
    peak: wp.float32
    impulse: wp.vec3


@wp.struct
class ContactState:
    """State of a primary between ticks.

    Attributes:
        new_contact: ticks of the current contact at the last sample; 0 in the air, and in the first phase.
        new_air: as `new_contact`, of the current phase in the air.
        timer: phases.
        of_control: contacts since the start of the control step.
        of_sample: contacts since the last sample.
        control: start tick of the control step of `of_control`.
        sample: tick of the last sample.
        was_sample: whether the last tick was a sample.
        is_bad: whether a value since the last sample was not finite.
        entry: newest row of the ring.
    """

    new_contact: wp.int32
    new_air: wp.int32
    timer: ContactTimer
    of_control: ContactLatch
    of_sample: ContactLatch
    control: wp.int32
    sample: wp.int32
    was_sample: wp.int32
    is_bad: wp.int32
    entry: wp.int32


@wp.struct
class ContactMemory:
    """State that persists between ticks.

    Attributes:
        states: `[env, primary]`.
        rows: address of the rows `[env, primary, entry, slot, column]`.
        entries: number of rows of a primary.
        slots: number of slots.
        width: number of columns.
    """

    states: wp.array2d[ContactState]
    rows: wp.uint64
    entries: wp.int32
    slots: wp.int32
    width: wp.int32


@wp.struct
class ContactColumns:
    """Column of each field in a row, -1 for absent fields."""

    found: wp.int32
    force: wp.int32
    torque: wp.int32
    dist: wp.int32
    pos: wp.int32
    normal: wp.int32
    tangent: wp.int32


@wp.struct
class ContactReports:
    """Contact reports of one layout.

    Attributes:
        address: addresses of the reports `[env, primary, slot, column]`.
        slots: number of slots.
        width: number of columns.
        at: columns.
    """

    address: wp.array[wp.uint64]
    slots: wp.int32
    width: wp.int32
    at: ContactColumns


@wp.struct
class ContactRules:
    """Options of the config.

    Attributes:
        reduce: index of the reduction.
        global_frame: whether force and torque are in world axes.
        sign: factor of force and torque in world axes.
        by_force: whether contact is a net force above `threshold` instead of a count.
        by_sample: whether a history has one entry per sample.
        threshold: N.
        dt: s.
        exact_dt: s.
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
class ContactOutput:
    """Output of columns of the rows.

    Attributes:
        column: the first column.
        width: number of columns.
        data: address of the field `[env, primary, slot, column]`.
        history: address of its history, with entries before the columns or before the primaries; 0 for none.
    """

    column: wp.int32
    width: wp.int32
    data: wp.uint64
    history: wp.uint64


@wp.struct
class ContactTimes:
    """Times of phases `[env, primary]`, s."""

    current_air: wp.array2d[wp.float32]
    last_air: wp.array2d[wp.float32]
    current_contact: wp.array2d[wp.float32]
    last_contact: wp.array2d[wp.float32]


@wp.struct
class ContactOutputs:
    """Outputs of rows, and per primary `[env, primary]`; arrays that were not requested have length 0.

    `time_first`: histories have entries before the primaries, and there is one slot.
    """

    fields: wp.array[ContactOutput]
    time_first: wp.int32
    times: ContactTimes
    any: wp.array2d[wp.bool]
    peak: wp.array2d[wp.float32]
    impulse: wp.array2d[wp.vec3]
    first: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@wp.func
def _vec(values: wp.array[wp.float32], at: int) -> wp.vec3:
    """Return three columns, zero for an absent field."""
    if at < 0:
        return wp.vec3()
    return wp.vec3(values[at], values[at + 1], values[at + 2])


@wp.func
def _put(values: wp.array[wp.float32], start: int, at: int, value: wp.vec3) -> None:
    """Write three columns of a slot's row that starts at `start`, unless the field is absent."""
    if at >= 0:
        values[start + at] = value[0]
        values[start + at + 1] = value[1]
        values[start + at + 2] = value[2]


@wp.func
def _seconds(ticks: int, exact_dt: wp.float64) -> float:
    return float(wp.float64(ticks) * exact_dt)


@wp.func
def _advance(timer: ContactTimer, is_closed: wp.int32, tick: int, before: int, is_reset: wp.bool) -> ContactTimer:
    """Return a timer after a tick; a phase that ends at this tick includes it, the next one starts after `before`."""
    if is_reset:
        timer.is_first = 1
        timer.since = tick
    elif is_closed != timer.is_closed:
        if timer.is_closed != 0:
            timer.last_contact = tick - timer.since
        else:
            timer.last_air = tick - timer.since
        timer.is_first = 0
        timer.since = before
    timer.is_closed = is_closed
    return timer


@wp.func
def _show_times(times: ContactTimes, timer: ContactTimer, tick: int, exact_dt: wp.float64, env: int, k: int) -> None:
    phase = _seconds(tick - timer.since, exact_dt)
    times.current_air[env, k] = wp.where(timer.is_closed != 0, 0.0, phase)
    times.current_contact[env, k] = wp.where(timer.is_closed != 0, phase, 0.0)
    times.last_air[env, k] = _seconds(timer.last_air, exact_dt)
    times.last_contact[env, k] = _seconds(timer.last_contact, exact_dt)


@wp.func
def _latched(latch: ContactLatch, tick: int, found: float, force: float, impulse: wp.vec3) -> ContactLatch:
    if found > 0.0 and latch.any == 0:
        latch.any = 1
        latch.tick = tick
    latch.peak = wp.max(latch.peak, force)
    latch.impulse = latch.impulse + impulse
    return latch


@wp.func
def _show_latch(out: ContactOutputs, latch: ContactLatch, start: int, exact_dt: wp.float64, env: int, k: int) -> None:
    out.any[env, k] = latch.any != 0
    out.peak[env, k] = latch.peak
    out.impulse[env, k] = latch.impulse
    out.first[env, k] = wp.where(latch.any != 0, _seconds(latch.tick - start, exact_dt), wp.inf)


@wp.func
def _row_of(memory: ContactMemory, env: int, primary: int, entry: int):  # type: ignore[no-untyped-def]
    size = memory.slots * memory.width
    row = (env * memory.states.shape[1] + primary) * memory.entries + entry
    return floats_at(memory.rows, row * size, size)


@wp.func
def _report_of(reports: ContactReports, k: int, primaries: int, env: int, primary: int, slot: int):  # type: ignore[no-untyped-def]
    row = (env * primaries + primary) * reports.slots + slot
    return floats_at(reports.address[k], row * reports.width, reports.width)


@wp.func
def _open(rows: Rows, rules: ContactRules, memory: ContactMemory, env: int, primary: int) -> int:
    """Start a tick, and return the entry of its row; clear state from before a reset."""
    if mode_now(rows) == FIRST:
        memory.states[env, primary] = ContactState()
        for entry in range(memory.entries):
            row = _row_of(memory, env, primary, entry)
            for k in range(memory.slots * memory.width):
                row[k] = 0.0
    entry = memory.states[env, primary].entry
    if rules.by_sample == 0 or memory.states[env, primary].was_sample != 0:
        entry -= 1
        if entry < 0:
            entry = memory.entries - 1
        memory.states[env, primary].entry = entry
    return int(entry)


@wp.func
def _close(
    rows: Rows,
    sampled: int,
    rules: ContactRules,
    memory: ContactMemory,
    out: ContactOutputs,
    env: int,
    primary: int,
    found: float,
    force: wp.vec3,
) -> None:
    """Advance timers and latches by this tick's contacts and net force; at a sample write all outputs."""
    state = memory.states[env, primary]
    tick = wp.int32(tick_now(rows))  # of ticks, only differences are used
    control = wp.int32(tick_of_control(rows))
    is_reset = mode_now(rows) == FIRST
    if is_reset:
        state.sample = tick
    if is_reset or state.control != control:
        state.control = control
        state.of_control = ContactLatch()
    if state.was_sample != 0:
        state.of_sample = ContactLatch()
    state.was_sample = sampled
    size = wp.length(force)
    is_closed = state.timer.is_closed
    if wp.isfinite(size) and wp.isfinite(found):
        is_closed = wp.where(wp.where(rules.by_force != 0, size > rules.threshold, found > 0.0), 1, 0)
        impulse = wp.where(is_reset, wp.vec3(), rules.dt * force)  # no time has passed at a reset
        state.of_control = _latched(state.of_control, tick, found, size, impulse)
        state.of_sample = _latched(state.of_sample, tick, found, size, impulse)
    else:
        state.is_bad = 1
        out.any_bad[0] = 1
    state.timer = _advance(state.timer, is_closed, tick, tick - 1, is_reset)
    if sampled != 0:
        out.bad[env, primary] = wp.uint8(state.is_bad)
        fresh = wp.where(state.timer.is_first != 0, 0, tick - state.timer.since)
        state.new_contact = wp.where(is_closed != 0, fresh, 0)
        state.new_air = wp.where(is_closed != 0, 0, fresh)
        if out.times.current_air.shape[0] > 0:
            _show_times(out.times, state.timer, tick, rules.exact_dt, env, primary)
        if out.any.shape[0] > 0:
            if state.sample - control < 0:  # a control step passed between two samples
                _show_latch(out, state.of_sample, state.sample, rules.exact_dt, env, primary)
            else:
                _show_latch(out, state.of_control, control, rules.exact_dt, env, primary)
        _show_rows(memory, out, state.entry, env, primary)
        state.sample = tick
        state.is_bad = 0
    memory.states[env, primary] = state


@wp.func
def _copy(source: wp.array[wp.float32], at: int, target: wp.array[wp.float32], width: int) -> None:
    if width == 3:
        _put(target, 0, 0, _vec(source, at))
    else:
        for k in range(width):
            target[k] = source[at + k]


@wp.func
def _show_rows(memory: ContactMemory, out: ContactOutputs, newest: int, env: int, primary: int) -> None:
    """Write the newest row, and the history, to the outputs."""
    primaries = memory.states.shape[1]
    entries = memory.entries
    row = _row_of(memory, env, primary, newest)
    for k in range(out.fields.shape[0]):
        width = out.fields[k].width
        for slot in range(memory.slots):
            item = (env * primaries + primary) * memory.slots + slot
            column = slot * memory.width + out.fields[k].column
            _copy(row, column, floats_at(out.fields[k].data, item * width, width), width)
            if out.fields[k].history != wp.uint64(0):
                for age in range(entries):
                    entry = newest + age
                    if entry >= entries:
                        entry -= entries
                    place = item * entries + age
                    if out.time_first != 0:
                        place = (env * entries + age) * primaries + primary
                    past = floats_at(out.fields[k].history, place * width, width)
                    _copy(_row_of(memory, env, primary, entry), column, past, width)


@wp.func
def _chosen(reports: ContactReports, rules: ContactRules, primaries: int, env: int, primary: int, rank: int) -> int:
    """Return the slot for a rank, as report * slots + slot; -1 for none.

    Reports are merged by depth or by force; with ``none``, and among equals, in the order of the reports.
    """
    last = wp.int32(-1)
    last_key = float(-wp.inf)
    for _step in range(rank + 1):
        best = wp.int32(-1)
        best_key = float(wp.inf)
        for k in range(reports.address.shape[0]):
            for slot in range(reports.slots):
                values = _report_of(reports, k, primaries, env, primary, slot)
                if values[reports.at.found] > 0.0:
                    key = wp.float32(0.0)
                    if rules.reduce == 1:
                        key = values[reports.at.dist]
                    elif rules.reduce == 2:
                        key = -wp.length(_vec(values, reports.at.force))
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
    rules: ContactRules,
    reports: ContactReports,
    nets: ContactReports,
    memory: ContactMemory,
    at: ContactColumns,
    outputs: ContactOutputs,
    friction_out: wp.array2d[wp.vec3],
    contact_pos_out: wp.array2d[wp.vec3],
) -> None:
    """Report contacts in slots."""
    env, lane = masked_tid(rows)
    primaries = memory.states.shape[1]
    count = reports.address.shape[0]
    is_net = rules.reduce == wp.static(NETFORCE)
    for primary in range(lane, primaries, lanes):
        out = _row_of(memory, env, primary, _open(rows, rules, memory, env, primary))
        found = wp.float32(0.0)
        for k in range(count):
            found += _report_of(reports, k, primaries, env, primary, 0)[reports.at.found]
        force = wp.vec3()
        for k in range(nets.address.shape[0]):
            force += _vec(_report_of(nets, k, primaries, env, primary, 0), nets.at.force)

        seen = found
        for slot in range(memory.slots):
            chosen = wp.int32(slot)
            if count > 1 and not is_net:
                chosen = _chosen(reports, rules, primaries, env, primary, slot)
            k = wp.max(chosen, 0) / reports.slots
            values = _report_of(reports, k, primaries, env, primary, wp.max(chosen, 0) - k * reports.slots)
            filled = found > 0.0 and chosen >= 0 and (values[reports.at.found] > 0.0 or (is_net and count > 1))
            first = slot * memory.width
            friction = wp.vec3()
            point = wp.vec3(wp.nan, wp.nan, wp.nan)
            if not filled:
                for column in range(memory.width):
                    out[first + column] = 0.0
            else:
                f = _vec(values, reports.at.force)
                m = _vec(values, reports.at.torque)
                n = _vec(values, reports.at.normal)
                t = _vec(values, reports.at.tangent)
                point = _vec(values, reports.at.pos)
                if not wp.isfinite(wp.length(f)):
                    seen = wp.float32(wp.nan)
                if is_net:
                    for other in range(1, count):
                        f += _vec(_report_of(reports, other, primaries, env, primary, slot), reports.at.force)
                else:
                    friction = -(f[1] * t + f[2] * wp.cross(n, t))
                    if rules.global_frame != 0:
                        f = friction - f[0] * n
                        m = -(m[0] * n + m[1] * t + m[2] * wp.cross(n, t))
                if at.found >= 0:
                    out[first + at.found] = found
                if at.dist >= 0:
                    out[first + at.dist] = values[reports.at.dist]
                _put(out, first, at.force, rules.sign * f)
                _put(out, first, at.torque, rules.sign * m)
                _put(out, first, at.pos, point)
                _put(out, first, at.normal, n)
                _put(out, first, at.tangent, t)
            if sampled != 0:
                if friction_out.shape[0] > 0:
                    friction_out[env, primary * memory.slots + slot] = friction
                if contact_pos_out.shape[0] > 0:
                    contact_pos_out[env, primary * memory.slots + slot] = point
        _close(rows, sampled, rules, memory, outputs, env, primary, seen, force)


@wp.struct
class ContactPoses:
    """Poses of the bodies; arrays have length 0 if poses were not requested."""

    bodies: wp.array[Mounts]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]


@wp.func
def _normal_force(reports: ContactReports, k: int, primaries: int, env: int, primary: int) -> wp.vec3:
    """Return the sum of the normal forces on the primary in the slots of one report."""
    force = wp.vec3()
    for slot in range(reports.slots):
        values = _report_of(reports, k, primaries, env, primary, slot)
        force -= values[reports.at.force] * _vec(values, reports.at.normal)
    return force


@kernel
def bodies(
    rows: Rows,
    lanes: int,
    sampled: int,
    rules: ContactRules,
    total: ContactReports,
    filters: ContactReports,
    memory: ContactMemory,
    outputs: ContactOutputs,
    poses: ContactPoses,
    most_found: wp.array2d[wp.int32],
    friction_out: wp.array3d[wp.vec3],
    contact_pos_out: wp.array3d[wp.vec3],
) -> None:
    """Report normal forces on bodies, in total and by filter."""
    env, lane = masked_tid(rows)
    primaries = memory.states.shape[1]
    for primary in range(lane, primaries, lanes):
        out = _row_of(memory, env, primary, _open(rows, rules, memory, env, primary))
        found = _report_of(total, 0, primaries, env, primary, 0)[total.at.found]
        if found > float(total.slots):
            wp.atomic_max(most_found, 0, primary, int(found))
        force = _normal_force(total, 0, primaries, env, primary)
        out[0] = found
        _put(out, 0, 1, force)
        at = filters.at
        for k in range(filters.address.shape[0]):
            matched = _report_of(filters, k, primaries, env, primary, 0)[at.found]
            if matched > float(filters.slots):
                wp.atomic_max(most_found, 1 + k, primary, int(matched))
            _put(out, 4, 3 * k, _normal_force(filters, k, primaries, env, primary))
            if sampled != 0 and (friction_out.shape[0] > 0 or contact_pos_out.shape[0] > 0):
                friction = wp.vec3()
                point = wp.vec3()
                points = wp.float32(0.0)
                for slot in range(filters.slots):
                    values = _report_of(filters, k, primaries, env, primary, slot)
                    if values[at.found] > 0.0:
                        points += 1.0
                        f = _vec(values, at.force)
                        t = _vec(values, at.tangent)
                        friction -= f[1] * t + f[2] * wp.cross(_vec(values, at.normal), t)
                        point += _vec(values, at.pos)
                if friction_out.shape[0] > 0:
                    friction_out[env, primary, k] = friction
                if contact_pos_out.shape[0] > 0:
                    contact_pos_out[env, primary, k] = wp.where(points > 0.0, point / points, wp.vec3(wp.nan))
        if sampled != 0 and poses.pos.shape[0] > 0:
            pos, quat = mount_pose(poses.bodies, env, primary)
            poses.pos[env, primary] = pos
            poses.quat[env, primary] = quat
        _close(rows, sampled, rules, memory, outputs, env, primary, found, force)


@wp.struct
class ContactSwitch:
    """State of the switch of a measured force: its timer, and the tick of the last sample."""

    timer: ContactTimer
    sample: wp.int32


@kernel(group="measured")
def measured_times(
    rows: Rows,
    threshold: float,
    exact_dt: wp.float64,
    force_in: wp.array3d[wp.vec3],
    switches: wp.array2d[ContactSwitch],
    times: ContactTimes,
) -> None:
    """Advance the timers of the switch of the measured force: the greatest force of a primary above the threshold."""
    env, primary = masked_tid(rows)
    tick = wp.int32(tick_now(rows))
    size = wp.float32(0.0)
    for slot in range(force_in.shape[2]):
        size = wp.max(size, wp.length(force_in[env, primary, slot]))
    is_reset = mode_now(rows) == FIRST
    if is_reset:
        switches[env, primary] = ContactSwitch()
    switch = switches[env, primary]
    is_closed = wp.where(size > threshold, 1, 0)
    switch.timer = _advance(switch.timer, is_closed, tick, switch.sample, is_reset)
    switch.sample = tick
    _show_times(times, switch.timer, tick, exact_dt, env, primary)
    switches[env, primary] = switch


@kernel(group="measured")
def remember(
    rows: Rows, value_in: wp.array3d[wp.float32], past: wp.array4d[wp.float32], history_out: wp.array4d[wp.float32]
) -> None:
    """Put a measured value in front of its history."""
    env, item = masked_tid(rows)
    entries = past.shape[2]
    for column in range(past.shape[3]):
        for k in range(entries - 1):
            age = entries - 1 - k
            older = wp.float32(0.0)
            if mode_now(rows) != FIRST:
                older = past[env, item, age - 1, column]
            past[env, item, age, column] = older
        past[env, item, 0, column] = value_in[env, item, column]
        for age in range(entries):
            history_out[env, item, age, column] = past[env, item, age, column]
