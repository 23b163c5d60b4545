"""Kernels of a radar: from the hits of its rays to the detections of its receiver; and their structs.

Random draws are a pure function of the keys and of (capture tick, env, episode, ray).
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, captured_words, kernel, masked_tid
from sensorium.geometry.ray_poses import in_range, ray_of
from sensorium.geometry.ray_structs import Bundle
from sensorium.geometry.transforms import quat_rotate
from sensorium.random import F32, word_to_normal, word_to_uniform
from sensorium.world.mount import is_finite3

NEAREST = wp.constant(1.0e-3)
"""Lower limit of the distance in the power formula, m, because 1/R^4 diverges."""
AREA, CENTRAL = 0, 1
"""Distributions of the rays in the cone; see `RadarCfg.distribution`."""


@wp.struct
class RadarModel:
    """Model of the receiver; see `RadarCfg`.

    Attributes:
        detects: 1 if `measured_scan` decides on detections, with a range of +inf for no detection.
        snr: signal-to-noise ratio of the reference target; 0 if not given.
        reach: distance of the reference target, m.
        exponent: exponent of |cos| of the angle of incidence.
        sections: cross-section of each shape, m^2.
        threshold: power relative to the noise above which a cell is a detection; 0 detects all.
        limit: maximum range of detections, m.
        range_cell: m, for the noise; 0 for none.
        velocity_cell: m/s, for the noise; 0 for none.
        clutter: probability of a false alarm on a ray.
        limits: smallest and largest measured range, m.
        clutter_speed: maximum speed of a false alarm, m/s.
        fold: maximum unambiguous velocity, m/s; 0 for no aliasing.
        grid: cells for rounding range, velocity, azimuth and altitude; 0 for no rounding.
    """

    detects: wp.int32
    snr: wp.float32
    reach: wp.float32
    exponent: wp.float32
    sections: wp.array[wp.float32]
    threshold: wp.float32
    limit: wp.float32
    range_cell: wp.float32
    velocity_cell: wp.float32
    clutter: wp.float32
    limits: wp.vec2
    clutter_speed: wp.float32
    fold: wp.float32
    grid: wp.vec4
    key0: wp.uint32
    key1: wp.uint32


@wp.struct
class RadarMotion:
    """Poses and velocities of mounts and bodies, world axes; `body` is that of each shape, -1 if static."""

    body: wp.array[wp.int32]
    body_pos: wp.array2d[wp.vec3]
    body_lin_vel: wp.array2d[wp.vec3]
    body_ang_vel: wp.array2d[wp.vec3]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]
    lin_vel: wp.array2d[wp.vec3]
    ang_vel: wp.array2d[wp.vec3]


@wp.struct
class RadarScan:
    """Fields of a record `[env, mount, ray]`; absent ones are empty."""

    range: wp.array3d[wp.float32]
    velocity: wp.array3d[wp.float32]
    azimuth: wp.array3d[wp.float32]
    altitude: wp.array3d[wp.float32]
    snr: wp.array3d[wp.float32]
    points_b: wp.array3d[wp.vec3]
    geom_ids: wp.array3d[wp.int32]


@kernel
def draw_rays(
    rows: Rows, key0: wp.uint32, key1: wp.uint32, law: int, size: wp.vec2, directions: wp.array2d[wp.vec3]
) -> None:
    """Draw directions in a cone; `size` is half its angles, rad, or their tangents for the central distribution."""
    env, ray = masked_tid(rows)
    words = captured_words(rows, env, wp.uint32(ray), key0, key1)
    radius = word_to_uniform(words[0])
    turn = 2.0 * wp.pi * word_to_uniform(words[1])
    if law == CENTRAL:
        d = wp.vec3(1.0, size[0] * radius * wp.cos(turn), size[1] * radius * wp.sin(turn))
        directions[env, ray] = wp.normalize(d)
    else:
        radius = wp.sqrt(radius)
        azimuth = size[0] * radius * wp.cos(turn)
        altitude = size[1] * radius * wp.sin(turn)
        flat = wp.cos(altitude)
        directions[env, ray] = wp.vec3(flat * wp.cos(azimuth), flat * wp.sin(azimuth), wp.sin(altitude))


@kernel
def true_scan(
    rows: Rows,
    bundle: Bundle,
    motion: RadarMotion,
    model: RadarModel,
    shape_in: wp.array3d[wp.int32],
    cosine_in: wp.array3d[wp.float32],
    out: RadarScan,
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Compute the fields of the hits, whose ranges are already in `out`, and flag velocities that are not finite."""
    env, mount, ray = masked_tid(rows)
    s0, d0 = ray_of(bundle, env, ray)
    out.azimuth[env, mount, ray] = wp.atan2(d0[1], d0[0])
    out.altitude[env, mount, ray] = wp.atan2(d0[2], wp.sqrt(d0[0] * d0[0] + d0[1] * d0[1]))
    quat = motion.quat[env, mount]
    arm = quat_rotate(quat, s0)
    own = motion.lin_vel[env, mount] + wp.cross(motion.ang_vel[env, mount], arm)
    is_bad = not is_finite3(own)
    velocity = wp.float32(0.0)
    snr = wp.float32(0.0)
    point = wp.vec3(wp.inf, wp.inf, wp.inf)
    shape = shape_in[env, mount, ray]
    if shape >= 0:
        t = out.range[env, mount, ray]
        d = quat_rotate(quat, d0)
        v = -own
        body = motion.body[shape]
        if body >= 0:
            hit = motion.pos[env, mount] + arm + t * d
            spin = motion.body_ang_vel[env, body]
            v = v + motion.body_lin_vel[env, body] + wp.cross(spin, hit - motion.body_pos[env, body])
            if not is_finite3(v):
                is_bad = True
        velocity = wp.dot(d, v)
        point = s0 + t * d0
        if model.snr > 0.0:
            ratio = model.reach / wp.max(t, NEAREST)
            section = model.sections[shape] * wp.pow(wp.abs(cosine_in[env, mount, ray]), model.exponent)
            snr = model.snr * section * (ratio * ratio) * (ratio * ratio)
    out.velocity[env, mount, ray] = velocity
    if out.snr.shape[0] > 0:
        out.snr[env, mount, ray] = snr
    if out.points_b.shape[0] > 0:
        out.points_b[env, mount, ray] = point
    if is_bad:
        bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1


@wp.func
def _open_uniform(word: wp.uint32) -> F32:
    """Return a uniform number above 0 and at most 1, on a grid of 2^-32 shifted by half a step."""
    return (wp.float32(word >> wp.uint32(1)) + 0.5) * wp.static(2.0**-31)


@wp.func
def _put_point(bundle: Bundle, out: RadarScan, env: int, mount: int, ray: int, t: float) -> None:
    """Write the end point of a ray of a given length in the directions of `out`."""
    if out.points_b.shape[0] == 0:
        return
    point = wp.vec3(wp.inf, wp.inf, wp.inf)
    if wp.isfinite(t):
        start, _d = ray_of(bundle, env, ray)
        azimuth = out.azimuth[env, mount, ray]
        altitude = out.altitude[env, mount, ray]
        flat = wp.cos(altitude)
        point = start + t * wp.vec3(flat * wp.cos(azimuth), flat * wp.sin(azimuth), wp.sin(altitude))
    out.points_b[env, mount, ray] = point


@kernel
def measured_scan(
    rows: Rows, normals: wp.array[wp.vec3], bundle: Bundle, model: RadarModel, ideal: RadarScan, out: RadarScan
) -> None:
    """Compute the receiver's detections of the true scan, and its false alarms."""
    env, mount, ray = masked_tid(rows)
    element = wp.uint32(2 * (mount * ideal.range.shape[2] + ray))
    words = captured_words(rows, env, element, model.key0, model.key1)
    t = ideal.range[env, mount, ray]
    velocity = ideal.velocity[env, mount, ray]
    seen = wp.float32(0.0)
    is_noticed = ideal.geom_ids[env, mount, ray] >= 0 and t <= model.limit
    if is_noticed and model.snr > 0.0:
        seen = ideal.snr[env, mount, ray]
        if model.threshold > 0.0:  # signal and noise are both Gaussian: their power is exponential, with mean 1 + SNR
            seen = -(1.0 + seen) * wp.log(_open_uniform(words[0]))
            is_noticed = seen > model.threshold
        share = 1.0 / wp.sqrt(wp.max(2.0 * seen, 1.0))
        t = in_range(t + model.range_cell * share * word_to_normal(words[1], normals), model.limits)
        is_noticed = is_noticed and wp.isfinite(t)
        velocity = velocity + model.velocity_cell * share * word_to_normal(words[2], normals)
    is_false = wp.bool(False)
    if not is_noticed:
        t = wp.inf
        velocity = 0.0
        seen = 0.0
        is_false = word_to_uniform(words[3]) < model.clutter
        if is_false:
            other = captured_words(rows, env, element + wp.uint32(1), model.key0, model.key1)
            t = model.limits[0] + (model.limits[1] - model.limits[0]) * word_to_uniform(other[0])
            velocity = model.clutter_speed * (2.0 * word_to_uniform(other[1]) - 1.0)
            if model.snr > 0.0:
                seen = model.threshold - wp.log(_open_uniform(other[2]))
    out.range[env, mount, ray] = t
    out.velocity[env, mount, ray] = velocity
    out.azimuth[env, mount, ray] = ideal.azimuth[env, mount, ray]
    out.altitude[env, mount, ray] = ideal.altitude[env, mount, ray]
    if out.snr.shape[0] > 0:
        out.snr[env, mount, ray] = seen
    if out.geom_ids.shape[0] > 0:
        out.geom_ids[env, mount, ray] = wp.where(is_noticed, ideal.geom_ids[env, mount, ray], -1)
    _put_point(bundle, out, env, mount, ray, t)


@wp.func
def _rounded(value: float, cell: float) -> F32:
    if cell > 0.0:
        return cell * wp.round(value / cell)
    return value


@wp.func
def _folded(velocity: float, limit: float) -> F32:
    if limit > 0.0:
        return velocity - 2.0 * limit * wp.floor((velocity + limit) / (2.0 * limit))
    return velocity


@kernel
def finish(rows: Rows, bundle: Bundle, model: RadarModel, miss: float, ideal: RadarScan, out: RadarScan) -> None:
    """Alias and round measured values, keep misses unchanged, and move points to the measured ranges."""
    env, mount, ray = masked_tid(rows)
    t = out.range[env, mount, ray]
    if model.detects == 0 and ideal.geom_ids[env, mount, ray] < 0:
        t = wp.inf
    t = in_range(_rounded(t, model.grid[0]), model.limits)
    if wp.isfinite(t):
        velocity = _folded(out.velocity[env, mount, ray], model.fold)
        out.velocity[env, mount, ray] = _folded(_rounded(velocity, model.grid[1]), model.fold)
        out.azimuth[env, mount, ray] = _rounded(out.azimuth[env, mount, ray], model.grid[2])
        out.altitude[env, mount, ray] = _rounded(out.altitude[env, mount, ray], model.grid[3])
        out.range[env, mount, ray] = t
        _put_point(bundle, out, env, mount, ray, t)
    else:
        out.velocity[env, mount, ray] = 0.0
        if out.snr.shape[0] > 0:
            out.snr[env, mount, ray] = 0.0
        if out.geom_ids.shape[0] > 0:
            out.geom_ids[env, mount, ray] = -1
        out.azimuth[env, mount, ray] = ideal.azimuth[env, mount, ray]
        out.altitude[env, mount, ray] = ideal.altitude[env, mount, ray]
        out.range[env, mount, ray] = miss
        _put_point(bundle, out, env, mount, ray, wp.inf)
