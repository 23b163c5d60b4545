"""Kernels of a lidar: from the hits of its rays to the returns of its receiver; and their structs.

Random draws are a pure function of the key in `LidarModel` and of (capture tick, env, episode, ray and return).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import warp as wp

from sensorium.compute import Rows, captured_words, episode_words, kernel, masked_tid, tick_captured
from sensorium.geometry.ray_poses import first_tick, in_range, place_ray, pose_at, ray_of, ray_time, scan_begin, slot_of
from sensorium.geometry.ray_structs import Bundle, Pose
from sensorium.measurement.draws import FIXED, ColumnDistribution, draw_value
from sensorium.random import F32, word_to_normal, word_to_uniform

MAX_SUB_RAYS = 19
NEAREST = wp.constant(1.0e-3)
"""Lower limit of the distance in the power formula, m, because 1/R^2 diverges."""
STRONGEST, LAST, DUAL = 0, 1, 2
RETURNS = {"strongest": STRONGEST, "last": LAST, "dual": DUAL}
if TYPE_CHECKING:
    Depths: TypeAlias = Any
    Order: TypeAlias = Any
else:
    Depths = wp.types.vector(length=MAX_SUB_RAYS, dtype=wp.float32)
    Order = wp.types.vector(length=MAX_SUB_RAYS, dtype=wp.int32)


@wp.struct
class LidarModel:
    """Model of the returns; see `LidarCfg`.

    Attributes:
        dropoff: 1 for the model of that name.
        range_x: logarithms of signal-to-noise ratios, rising; empty if one deviation applies to all.
        range_y: logarithms of deviations; empty for no range noise.
        power: power of the reference target.
        snr: signal-to-noise ratio of the reference target; 0 if not given.
        threshold: dB; -inf detects all returns.
        depth: c t_p / 2, m.
        limits: smallest and largest measured distance, m.
        weights: weights of the sub-rays, with sum 1.
        bias: distribution of channel biases, with a length of 0 for no bias.
    """

    dropoff: wp.int32
    is_raw: wp.int32
    returns: wp.int32
    scale: wp.float32
    most: wp.float32
    intensity_noise: wp.float32
    attenuation: wp.float32
    power: wp.float32
    snr: wp.float32
    threshold: wp.float32
    threshold_sd: wp.float32
    drop: wp.float32
    limit: wp.float32
    zero: wp.float32
    sd: wp.float32
    depth: wp.float32
    limits: wp.vec2
    range_x: wp.array[wp.float32]
    range_y: wp.array[wp.float32]
    weights: wp.array[wp.float32]
    bias: ColumnDistribution
    key0: wp.uint32
    key1: wp.uint32
    bias_key0: wp.uint32
    bias_key1: wp.uint32


@wp.struct
class Tables:
    """Properties of shapes and rays that do not depend on a cast.

    Attributes:
        reflectance: of each shape.
        semantic: semantic id of each shape.
        channel: of each ray of a period; empty for none.
        azimuth: of each ray of a period, rad.
        elevation: of each ray of a period, rad.
    """

    reflectance: wp.array[wp.float32]
    semantic: wp.array[wp.int32]
    channel: wp.array[wp.int32]
    azimuth: wp.array[wp.float32]
    elevation: wp.array[wp.float32]


@wp.struct
class RayHits:
    """Hits `[env, mount, ray]`; the sub-rays of a ray are adjacent."""

    distance: wp.array3d[wp.float32]
    cosine: wp.array3d[wp.float32]
    shape: wp.array3d[wp.int32]
    normal: wp.array3d[wp.vec3]


@wp.struct
class LidarScan:
    """Fields of a record, `[env, mount, ray * returns]` or `[env, mount, ray]`; absent ones are empty."""

    distances: wp.array3d[wp.float32]
    points_b: wp.array3d[wp.vec3]
    points_w: wp.array3d[wp.vec3]
    intensity: wp.array3d[wp.float32]
    cos_incidence: wp.array3d[wp.float32]
    normals_w: wp.array3d[wp.vec3]
    geom_ids: wp.array3d[wp.int32]
    semantic_ids: wp.array3d[wp.int32]
    time_offset: wp.array3d[wp.float32]
    channel: wp.array3d[wp.int32]
    azimuth: wp.array3d[wp.float32]
    elevation: wp.array3d[wp.float32]
    returns: wp.int32
    miss: wp.float32
    moves: wp.int32


@kernel
def keep_flags(
    rows: Rows, bad: wp.array2d[wp.uint8], seen: wp.array2d[wp.float32], shown: wp.array2d[wp.float32]
) -> None:
    """Store the flag of a tick between samples for the next sample, and restore the flag of the shown sample."""
    env, mount = masked_tid(rows)
    seen[env, mount] = wp.max(seen[env, mount], float(bad[env, mount]))
    bad[env, mount] = wp.uint8(shown[env, mount])


@kernel
def take_flags(
    rows: Rows, bad: wp.array2d[wp.uint8], seen: wp.array2d[wp.float32], shown: wp.array2d[wp.float32]
) -> None:
    """Flag a sample if any of the ticks in its scan was flagged."""
    env, mount = masked_tid(rows)
    flag = wp.max(seen[env, mount], float(bad[env, mount]))
    bad[env, mount] = wp.uint8(flag)
    shown[env, mount] = flag
    seen[env, mount] = 0.0


@wp.func
def _write_ray(out: LidarScan, tables: Tables, bundle: Bundle, dt: wp.float64, captured: wp.int64, env: int, mount: int,
               ray: int, place: int, index: int) -> None:  # fmt: skip
    """Write the fields of a ray that do not depend on its returns."""
    if out.time_offset.shape[0] > 0:
        time = wp.float32(0.0)
        if bundle.times.shape[0] > 0:
            time = ray_time(bundle, place, captured, dt)
        out.time_offset[env, mount, ray] = time
    if out.channel.shape[0] > 0:
        out.channel[env, mount, ray] = tables.channel[index]
    if out.azimuth.shape[0] > 0:
        out.azimuth[env, mount, ray] = tables.azimuth[index]
    if out.elevation.shape[0] > 0:
        out.elevation[env, mount, ray] = tables.elevation[index]


@wp.func
def _write_points(out: LidarScan, bundle: Bundle, pose: Pose, captured: wp.int64, earliest: int, env: int, mount: int,
                  column: int, place: int, index: int, t: float) -> None:  # fmt: skip
    """Write the end point of a ray of a given length, in the sensor's frame and in the world."""
    if out.points_b.shape[0] == 0 and out.points_w.shape[0] == 0:
        return
    inside = wp.vec3(wp.inf, wp.inf, wp.inf)
    outside = inside
    if wp.isfinite(t):
        s0, d0 = ray_of(bundle, env, index)
        inside = s0 + t * d0
        if out.points_w.shape[0] > 0:
            now = slot_of(captured, pose.slots)
            p = pose.pos[env, now, mount]
            q = pose.quat[env, now, mount]
            if out.moves != 0:
                p, q = pose_at(pose, env, mount, now, earliest, ray_time(bundle, place, captured, pose.dt))
            s, d = place_ray(pose, env, mount, p, q, s0, d0)
            outside = s + t * d
    if out.points_b.shape[0] > 0:
        out.points_b[env, mount, column] = inside
    if out.points_w.shape[0] > 0:
        out.points_w[env, mount, column] = outside


@wp.func
def _write_return(out: LidarScan, tables: Tables, env: int, mount: int, column: int, t: float, intensity: float,
                  cosine: float, shape: int, normal: wp.vec3) -> None:  # fmt: skip
    """Write a return, or no return if its distance is not finite."""
    is_hit = wp.isfinite(t)
    if out.distances.shape[0] > 0:
        out.distances[env, mount, column] = wp.where(is_hit, t, out.miss)
    if out.intensity.shape[0] > 0:
        out.intensity[env, mount, column] = wp.where(is_hit, intensity, 0.0)
    if out.cos_incidence.shape[0] > 0:
        out.cos_incidence[env, mount, column] = wp.where(is_hit, cosine, 0.0)
    if out.normals_w.shape[0] > 0:
        out.normals_w[env, mount, column] = wp.where(is_hit, normal, wp.vec3())
    if out.geom_ids.shape[0] > 0:
        out.geom_ids[env, mount, column] = wp.where(is_hit, shape, -1)
    if out.semantic_ids.shape[0] > 0:
        label = wp.int32(0)
        if is_hit:
            label = tables.semantic[shape]
        out.semantic_ids[env, mount, column] = label


@wp.func
def _power(model: LidarModel, reflectance: float, cosine: float, t: float) -> F32:
    """Return the received power, up to a factor."""
    r = wp.max(t, NEAREST)
    return reflectance * wp.abs(cosine) * wp.exp(-2.0 * model.attenuation * t) / (r * r)


@wp.func
def _strength(model: LidarModel, power: float, t: float) -> F32:
    """Return the intensity of a return, before noise and saturation."""
    if model.is_raw != 0:
        return model.scale * power / model.power
    r = wp.max(t, NEAREST)
    return model.scale * power * r * r


@wp.func
def _range_sd(model: LidarModel, snr: float) -> F32:
    """Return the standard deviation of a distance, m."""
    count = model.range_y.shape[0]
    if count == 0:
        return 0.0
    if model.range_x.shape[0] == 0:
        return wp.exp(model.range_y[0])
    x = wp.log(snr)
    if count == 1:
        return wp.exp(model.range_y[0] - 0.5 * (x - model.range_x[0]))
    if x <= model.range_x[0]:
        return wp.exp(model.range_y[0])
    for k in range(1, count):
        if x < model.range_x[k]:
            share = (x - model.range_x[k - 1]) / (model.range_x[k] - model.range_x[k - 1])
            return wp.exp(model.range_y[k - 1] + share * (model.range_y[k] - model.range_y[k - 1]))
    return wp.exp(model.range_y[count - 1])


@wp.func
def _channel_bias(rows: Rows, env: int, model: LidarModel, channel: int, mount: int, table: wp.array[wp.vec3]) -> F32:
    """Return the error of a channel, m: constant during an episode, recomputed at every sample instead of stored."""
    channels = model.bias.first.shape[0]
    if model.bias.kind == FIXED:
        return model.bias.first[channel]
    element = channel
    if model.bias.joint != 0:  # a choice among vectors picks one vector, not one value per channel
        element = 0
    block = wp.uint32(mount * ((channels + 3) / 4) + element / 4)
    words = episode_words(rows, env, block, model.bias_key0, model.bias_key1)
    return draw_value(model.bias, channel, words[element % 4], table)


@wp.func
def _is_noticed(model: LidarModel, power: float, need: float) -> bool:
    """Return whether the power of a return exceeds a threshold in dB; always true without a reference."""
    if model.snr == 0.0:
        return True
    if power <= 0.0:
        return False
    return bool(10.0 * wp.log10(model.snr * power / model.power) > need)


@wp.func
def _chosen(model: LidarModel, powers: Depths, echoes: int, strongest: int, number: int, need: float) -> int:
    """Return the echo reported as a return, -1 for none; `number` is 1 for the second of two returns."""
    chosen = wp.int32(strongest)
    if model.returns == LAST or number == 1:
        chosen = wp.int32(-1)
        for j in range(echoes):
            if _is_noticed(model, powers[j], need):
                chosen = j
        if number == 1 and chosen == strongest:  # then the second strongest
            chosen = wp.int32(-1)
            for j in range(echoes):
                if j != strongest:
                    if powers[j] > powers[wp.max(chosen, 0)] or chosen < 0:
                        chosen = j
    return int(chosen)


@kernel
def true_scan(
    rows: Rows, model: LidarModel, tables: Tables, bundle: Bundle, pose: Pose, found: RayHits, out: LidarScan
) -> None:
    """Compute the fields of the true scan from its hits; `found` and `out` may share memory."""
    env, mount, ray = masked_tid(rows)
    captured = tick_captured(rows)
    place = scan_begin(bundle, captured) + ray
    index = (place % bundle.total + bundle.total) % bundle.total
    _write_ray(out, tables, bundle, pose.dt, captured, env, mount, ray, place, index)
    t = found.distance[env, mount, ray]
    cosine = found.cosine[env, mount, ray]
    shape = found.shape[env, mount, ray]
    normal = wp.vec3()
    if found.normal.shape[0] > 0:
        normal = found.normal[env, mount, ray]
    intensity = wp.float32(0.0)
    if wp.isfinite(t):
        if model.dropoff != 0:
            intensity = model.scale * wp.exp(-model.attenuation * t)
        else:
            intensity = _strength(model, _power(model, tables.reflectance[shape], cosine, t), t)
    earliest = first_tick(rows.reset_tick[env], captured, pose.slots)
    for e in range(out.returns):
        if e > 0:
            t = wp.inf
        column = ray * out.returns + e
        _write_return(out, tables, env, mount, column, t, intensity, cosine, shape, normal)
        _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)


@kernel
def measured_scan(
    rows: Rows,
    normals: wp.array[wp.vec3],
    model: LidarModel,
    tables: Tables,
    bundle: Bundle,
    pose: Pose,
    found: RayHits,
    out: LidarScan,
) -> None:
    """Compute the returns that the receiver detects, from the hits of rays or bundles of rays."""
    env, mount, ray = masked_tid(rows)
    captured = tick_captured(rows)
    earliest = first_tick(rows.reset_tick[env], captured, pose.slots)
    place = scan_begin(bundle, captured) + ray
    index = (place % bundle.total + bundle.total) % bundle.total
    _write_ray(out, tables, bundle, pose.dt, captured, env, mount, ray, place, index)
    # Echoes: hits sorted by distance; hits at nearly the same distance form one echo
    subs = model.weights.shape[0]
    first = ray * subs
    depths = Depths()
    order = Order()
    hits = wp.int32(0)
    for k in range(subs):
        t = found.distance[env, mount, first + k]
        if wp.isfinite(t):
            at = hits
            while at > 0:
                if depths[at - 1] <= t:
                    break
                depths[at] = depths[at - 1]
                order[at] = order[at - 1]
                at -= 1
            depths[at] = t
            order[at] = k
            hits += 1
    powers = Depths()  # of each echo; its distance goes to `depths`, its strongest sub-ray to `order`
    echoes = wp.int32(0)
    total = wp.float32(0.0)
    moment = wp.float32(0.0)
    peak = wp.float32(-1.0)
    best = wp.int32(0)
    for j in range(hits):
        k = order[j]
        t = depths[j]
        share = model.weights[k]
        if model.dropoff == 0:
            reflectance = tables.reflectance[found.shape[env, mount, first + k]]
            share = share * _power(model, reflectance, found.cosine[env, mount, first + k], t)
        total += share
        moment += share * t
        if share > peak:
            peak = share
            best = k
        ends = j + 1 == hits
        if not ends:
            ends = depths[j + 1] - t > model.depth
        if ends:
            mean = t
            if subs > 1 and total > 0.0:
                mean = moment / total
            depths[echoes] = mean
            order[echoes] = best
            powers[echoes] = total
            echoes += 1
            total = 0.0
            moment = 0.0
            peak = -1.0
    strongest = wp.int32(-1)
    for j in range(echoes):
        if powers[j] > powers[wp.max(strongest, 0)] or strongest < 0:
            strongest = j
    for e in range(out.returns):
        column = ray * out.returns + e
        element = wp.uint32((mount * bundle.count + ray) * out.returns + e)
        words = captured_words(rows, env, element, model.key0, model.key1)
        lost = word_to_uniform(words[2]) < model.drop
        t = wp.float32(wp.inf)
        intensity = wp.float32(0.0)
        k = wp.int32(0)
        if model.dropoff != 0:
            if echoes > 0 and not lost:
                t = depths[0]
                strength = wp.exp(-model.attenuation * t)
                intensity = model.scale * strength
                if strength <= model.limit:
                    share = 1.0 - model.zero
                    if model.limit > 0.0:
                        share = share + model.zero / model.limit * strength
                    lost = word_to_uniform(words[1]) >= share
                if lost:
                    t = wp.inf
                else:
                    t = in_range(t + model.sd * word_to_normal(words[0], normals), model.limits)
        else:
            need = model.threshold - model.threshold_sd * word_to_normal(words[1], normals)
            chosen = _chosen(model, powers, echoes, strongest, e, need)
            if chosen >= 0 and not lost:
                power = powers[chosen]
                if _is_noticed(model, power, need):
                    t = depths[chosen]
                    k = order[chosen]
                    intensity = _strength(model, power, t)
                    intensity = intensity * (1.0 + model.intensity_noise * word_to_normal(words[3], normals))
                    intensity = wp.clamp(intensity, 0.0, model.most)
                    shift = _range_sd(model, model.snr * power / model.power) * word_to_normal(words[0], normals)
                    if model.bias.first.shape[0] > 0:
                        channel = wp.int32(0)
                        if tables.channel.shape[0] > 0:
                            channel = tables.channel[index]
                        shift += _channel_bias(rows, env, model, channel, mount, normals)
                    t = in_range(t + shift, model.limits)
        at = first + k
        normal = wp.vec3()
        if found.normal.shape[0] > 0:
            normal = found.normal[env, mount, at]
        _write_return(
            out, tables, env, mount, column, t, intensity, found.cosine[env, mount, at], found.shape[env, mount, at],
            normal,
        )  # fmt: skip
        _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)


@kernel
def finish(
    rows: Rows,
    limits: wp.vec2,
    tables: Tables,
    bundle: Bundle,
    pose: Pose,
    distance_in: wp.array3d[wp.float32],
    out: LidarScan,
) -> None:
    """Move points to the measured distances, and remove returns whose distances are lost or out of range."""
    env, mount, column = masked_tid(rows)
    captured = tick_captured(rows)
    place = scan_begin(bundle, captured) + column / out.returns
    index = (place % bundle.total + bundle.total) % bundle.total
    t = in_range(distance_in[env, mount, column], limits)
    earliest = first_tick(rows.reset_tick[env], captured, pose.slots)
    _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)
    if not wp.isfinite(t):
        _write_return(out, tables, env, mount, column, t, 0.0, 0.0, -1, wp.vec3())
