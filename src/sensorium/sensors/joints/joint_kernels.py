"""Kernels of the joint sensor: reading the engine, the encoder's shaft angle, and the velocity from its counts."""

from __future__ import annotations

import math

import warp as wp

from sensorium.compute import Rows, episode_words, is_first, kernel, masked_tid, tick_captured, ticks_after
from sensorium.measurement.stages.hysteresis import play
from sensorium.random import word_to_uniform
from sensorium.sensors.inertial.imu import NO_SAMPLE_BEFORE
from sensorium.world.mount import flag_state

_TURN = wp.constant(2.0 * math.pi)


@wp.func
def draw_phases(rows: Rows, env: int, joint: int, key0: wp.uint32, key1: wp.uint32) -> wp.vec2:
    """Return two phases in [0, 2 pi), constant for one joint of one env in one episode."""
    words = episode_words(rows, env, wp.uint32(joint), key0, key1)
    return wp.vec2(word_to_uniform(words[0]) * _TURN, word_to_uniform(words[1]) * _TURN)


@wp.struct
class JointTask:
    """Data of one sensor for the kernel that reads the engine."""

    columns: wp.array[wp.int32]
    # Engine [env, joint of the model]; length 0 where a field is not selected
    joint_pos: wp.array2d[wp.float32]
    joint_vel: wp.array2d[wp.float32]
    joint_effort: wp.array2d[wp.float32]
    # Truth [env, joint], then the measured fields that the encoder does not affect (length 0 without mechanics)
    position: wp.array2d[wp.float32]
    velocity: wp.array2d[wp.float32]
    effort: wp.array2d[wp.float32]
    velocity_slot: wp.array2d[wp.float32]
    effort_slot: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def read_joints(rows: Rows, tasks: wp.array[JointTask]) -> None:
    """Read the engine."""
    k, env = masked_tid(rows)
    t = tasks[k]
    is_good = wp.bool(True)
    for joint in range(t.columns.shape[0]):
        column = t.columns[joint]
        total = wp.float32(0.0)
        if t.joint_pos.shape[0] > 0:
            t.position[env, joint] = t.joint_pos[env, column]
            total = total + t.joint_pos[env, column]
        if t.joint_vel.shape[0] > 0:
            t.velocity[env, joint] = t.joint_vel[env, column]
            total = total + t.joint_vel[env, column]
            if t.velocity_slot.shape[0] > 0:
                t.velocity_slot[env, joint] = t.joint_vel[env, column]
        if t.joint_effort.shape[0] > 0:
            t.effort[env, joint] = t.joint_effort[env, column]
            total = total + t.joint_effort[env, column]
            if t.effort_slot.shape[0] > 0:
                t.effort_slot[env, joint] = t.joint_effort[env, column]
        if not wp.isfinite(total):
            is_good = wp.bool(False)
    flag_state(t.bad, t.any_bad, env, 0, is_good)


@wp.struct
class EncoderTask:
    """Data of one sensor for the kernel of encoders whose shafts deviate from the joints."""

    key0: wp.uint32
    key1: wp.uint32
    given_phase: wp.int32
    phase: wp.vec2
    first_order: wp.float32
    second_order: wp.float32
    # Per joint
    half_play: wp.array[wp.float32]
    gear: wp.array[wp.float32]
    # [env, joint]: truth, output of the play operator (length 0 without backlash), measured branch
    position: wp.array2d[wp.float32]
    shaft: wp.array2d[wp.float32]
    position_slot: wp.array2d[wp.float32]


@kernel
def turn_encoder(rows: Rows, tasks: wp.array[EncoderTask]) -> None:
    """Compute the angles of the encoders' shafts."""
    k, env, joint = masked_tid(rows)
    t = tasks[k]
    if joint >= t.gear.shape[0]:
        return
    m = t.position[env, joint]
    if not wp.isfinite(m):
        t.position_slot[env, joint] = m  # flagged; the shaft keeps its angle
        return
    o = m
    if t.shaft.shape[0] > 0:
        if not is_first(rows, env):
            o = play(t.shaft[env, joint], m, t.half_play[joint])
        t.shaft[env, joint] = o
    if t.first_order > 0.0 or t.second_order > 0.0:
        p = t.phase
        if t.given_phase == 0:
            p = draw_phases(rows, env, joint, t.key0, t.key1)
        angle = t.gear[joint] * o
        error = t.first_order * wp.sin(angle + p[0])
        if t.second_order > 0.0:
            error = error + t.second_order * wp.sin(2.0 * angle + p[1])
        o = o + error / t.gear[joint]
    t.position_slot[env, joint] = o


READING, TICK, SPEED, INPUT, EDGE, AGE = 0, 1, 2, 3, 4, 5
"""Columns of the counter's state: last reading, the low word of its tick (bits of an int32), last velocity. The period
method adds the unquantised value of the reading, the position of the last edge, and the time since that edge (s, -1
before the first)."""


@wp.func
def _share(edge: float, start: float, stop: float) -> float:
    """Return the fraction of a linear motion from start to stop at which the edge is crossed, in [0, 1]."""
    way = stop - start
    if way == 0.0:
        return 1.0
    return float(wp.clamp((edge - start) / way, 0.0, 1.0))


@wp.func
def _period_speed(
    start: float, stop: float, before: float, now: float, step: float, interval: float, memory: wp.array[wp.float32]
) -> float:
    """Return counts over the time between edges; `before` and `now` are counts of the values `start` and `stop`."""
    moved = now - before
    age = memory[wp.static(AGE)]
    if moved == 0.0:
        if age < 0.0:
            return 0.0
        memory[wp.static(AGE)] = age + interval
        most = step / (age + interval)
        return float(wp.clamp(memory[wp.static(SPEED)], -most, most))
    way = wp.sign(moved)
    edge = (now - 0.5 * way) * step
    share = _share(edge, start, stop)
    speed = wp.float32(0.0)
    if age >= 0.0:
        # at constant speed the last edges are at least half a sample apart; a shorter interval is a glitch
        gap = wp.max(age + share * interval, 0.5 * interval)
        speed = (edge - memory[wp.static(EDGE)]) / gap
    elif wp.abs(moved) > 1.5:
        first = (before + 0.5 * way) * step
        gap = wp.max((share - _share(first, start, stop)) * interval, 0.25 * interval)
        speed = (edge - first) / gap
    memory[wp.static(EDGE)] = edge
    memory[wp.static(AGE)] = (1.0 - share) * interval
    return float(speed)


@wp.struct
class VelocityTask:
    """Data of one sensor whose velocity is derived from its counts. Tables `[env, joint]`; length 0 if absent."""

    dt: wp.float32
    by_period: wp.int32
    resolution: wp.array2d[wp.float32]
    bias: wp.array2d[wp.float32]
    walk: wp.array2d[wp.float32]
    counted: wp.array2d[wp.float32]
    """Unquantised value of the reading, without bias and walk."""
    reading: wp.array2d[wp.float32]
    state: wp.array3d[wp.float32]
    velocity: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]


@kernel
def derive_velocity(rows: Rows, tasks: wp.array[VelocityTask]) -> None:
    """Derive velocities from readings of positions."""
    k, env, joint = masked_tid(rows)
    t = tasks[k]
    if joint >= t.state.shape[1]:
        return
    memory = t.state[env, joint]
    reading = t.reading[env, joint]
    if not wp.isfinite(reading):
        t.velocity[env, joint] = reading  # flagged; the counter keeps its state
        return
    counted = t.counted[env, joint]
    if t.bias.shape[0] > 0:
        counted = counted + t.bias[env, joint]
    if t.walk.shape[0] > 0:
        counted = counted + t.walk[env, joint]
    tick = tick_captured(rows)
    elapsed = ticks_after(tick, wp.cast(memory[wp.static(TICK)], wp.int32))
    velocity = memory[wp.static(SPEED)]
    if is_first(rows, env):
        velocity = wp.float32(0.0)
        if t.by_period != 0:
            memory[wp.static(AGE)] = wp.float32(-1.0)
        elif joint == 0 and t.bad[env, 0] == wp.uint8(0):
            t.bad[env, 0] = wp.static(wp.uint8(NO_SAMPLE_BEFORE))
    elif elapsed > 0:
        interval = float(elapsed) * t.dt
        before = memory[wp.static(READING)]
        step = wp.float32(0.0)
        if t.resolution.shape[0] > 0:
            step = t.resolution[env, joint]
        if step <= 0.0:
            velocity = (reading - before) / interval
        else:
            k0 = wp.rint(before / step)
            k1 = wp.rint(reading / step)
            if t.by_period == 0:
                velocity = (k1 - k0) * step / interval
            else:
                velocity = _period_speed(memory[wp.static(INPUT)], counted, k0, k1, step, interval, memory)
    memory[wp.static(READING)] = reading
    if t.by_period != 0:
        memory[wp.static(INPUT)] = counted
    memory[wp.static(TICK)] = wp.cast(wp.int32(tick), wp.float32)
    memory[wp.static(SPEED)] = velocity
    t.velocity[env, joint] = velocity
