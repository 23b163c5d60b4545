"""Kernels of the event camera: the changes of each pixel's brightness, as events in the order of time.

Images are `[env, pixel]`, row by row from the top left. A thread computes a row of pixels. Each pixel keeps the
brightness of the last sample, the reference brightness of its last event, and the time of that event.
"""

from __future__ import annotations

import warp as wp

from sensorium.cameras.stages.image_pixels import luminance
from sensorium.compute import Rows, is_first, kernel, masked_tid, note_tick, tick_captured, ticks_since
from sensorium.compute.rows import captured_words, episode_words
from sensorium.measurement.draws import Stream
from sensorium.random import word_to_normal, word_to_uniform

STEPS: int = wp.constant((1 << 24) - 1)
"""Number of steps in which the time between two samples is divided."""
LONG_AGO: float = wp.constant(1e9)
"""Time since the last event of a pixel without one, s."""
LEAST: float = wp.constant(0.01)
"""Minimum threshold of a pixel."""
DIM_NOISE: float = wp.constant(0.25)
"""Rate of the shot noise in white, relative to that in black."""
DARKEST: float = wp.constant(20.0 / 275.0)
"""Bandwidth in black, relative to that in white."""
TWO_PI: float = wp.constant(6.2831853)
RADIX: int = wp.constant(256)


@wp.struct
class EventPixels:
    """Parameters and state of the pixels.

    Attributes:
        height: pixels in a column.
        width: pixels in a row.
        is_log: whether brightness is the logarithm of the luminance.
        eps: luminance that is added before the logarithm.
        rise: threshold of a brighter pixel.
        fall: threshold of a darker pixel.
        rise_sd: its standard deviation over the pixels, and that of `fall`.
        refractory: minimum time between two events of a pixel, s.
        cutoff: bandwidth in white, Hz; 0 for no limit.
        leak: rate of the leak events, Hz.
        noise: rate of the shot noise in black, Hz.
        dt: duration of a tick, s.
        spread: random numbers of the thresholds.
        shots: random numbers of the shot noise.
        ticks: tick of the last sample, high and low half.
        level: brightness at the last sample.
        fresh: brightness now.
        reference: brightness of the last event.
        since: time from the last event to the last sample, s.
    """

    height: wp.int32
    width: wp.int32
    is_log: wp.int32
    eps: wp.float32
    rise: wp.float32
    fall: wp.float32
    rise_sd: wp.float32
    fall_sd: wp.float32
    refractory: wp.float32
    cutoff: wp.float32
    leak: wp.float32
    noise: wp.float32
    dt: wp.float32
    spread: Stream
    shots: Stream
    ticks: wp.array2d[wp.float32]
    level: wp.array2d[wp.float32]
    fresh: wp.array2d[wp.float32]
    reference: wp.array2d[wp.float32]
    since: wp.array2d[wp.float32]


@wp.struct
class EventQueue:
    """Events of a sample in the order of the pixels, and the memory of the sort.

    Attributes:
        rows: number of events of each row of pixels, then the number before it.
        total: number of events.
        time: time between the samples, in steps, with the polarity above.
        pixel: pixel.
        time_too: memory of the same size.
        pixel_too: memory of the same size.
        bins: number of events with each byte.
        x_out: columns of the events.
        y_out: their rows.
        polarity_out: their polarities.
        time_out: their times relative to the capture, s.
        image: sum of the polarities of each pixel.
        count_out: number of events that are listed.
        lost_out: number of events that are not.
    """

    rows: wp.array2d[wp.int32]
    total: wp.array[wp.int32]
    time: wp.array2d[wp.int32]
    pixel: wp.array2d[wp.int32]
    time_too: wp.array2d[wp.int32]
    pixel_too: wp.array2d[wp.int32]
    bins: wp.array2d[wp.int32]
    x_out: wp.array2d[wp.int16]
    y_out: wp.array2d[wp.int16]
    polarity_out: wp.array2d[wp.int16]
    time_out: wp.array2d[wp.float32]
    image: wp.array2d[wp.int16]
    count_out: wp.array[wp.int32]
    lost_out: wp.array[wp.int32]


@wp.func
def elapsed(rows: Rows, env: int, pixels: EventPixels) -> float:
    """Return the time since the last sample, s."""
    return float(float(ticks_since(tick_captured(rows), pixels.ticks, env)) * pixels.dt)


@wp.func
def place_in_queue(index: int, total: int, capacity: int) -> int:
    """Return the place of an event; of more than `capacity`, those in front of a new place are kept, evenly spread."""
    if total <= capacity:
        return index
    return int(wp.int64(index) * wp.int64(capacity) / wp.int64(total))


@wp.func
def pixel_thresholds(
    rows: Rows, env: int, pixel: int, pixels: EventPixels, table: wp.array[wp.vec3]
) -> tuple[float, float]:
    """Return the thresholds of a pixel for brighter and darker."""
    rise = pixels.rise
    fall = pixels.fall
    if pixels.rise_sd > 0.0 or pixels.fall_sd > 0.0:
        lasting = episode_words(rows, env, wp.uint32(pixel), pixels.spread.key0, pixels.spread.key1)
        rise = wp.max(rise + pixels.rise_sd * word_to_normal(lasting[0], table), LEAST)
        fall = wp.max(fall + pixels.fall_sd * word_to_normal(lasting[1], table), LEAST)
    return rise, fall


@wp.func
def pixel_events(
    rows: Rows, env: int, pixel: int, interval: float, pixels: EventPixels, table: wp.array[wp.vec3], queue: EventQueue,
    first: int,
) -> int:  # fmt: skip
    """Return the number of events of a pixel since the last sample.

    With `first` >= 0, the number of earlier events in the queue, write them and advance the pixel.
    """
    rise, fall = pixel_thresholds(rows, env, pixel, pixels, table)
    level = pixels.level[env, pixel]
    now = pixels.fresh[env, pixel]
    reference = pixels.reference[env, pixel]
    leak = pixels.leak * rise * interval
    start = level - reference
    end = now - reference + leak
    slack = 2.0e-6 * (1.0 + wp.abs(now))  # rounding of the brightness
    crossings = wp.int32(0)
    step = rise
    polarity = wp.int32(1)
    if end > 0.0:
        crossings = int(wp.floor((end + slack) / rise))
    else:
        step = -fall
        polarity = -1
        crossings = int(wp.floor((slack - end) / fall))
    shots = wp.int32(0)
    shot = wp.vec2(2.0, 2.0)
    sign = wp.int32(1)
    if pixels.noise > 0.0:
        words = captured_words(rows, env, wp.uint32(pixel), pixels.shots.key0, pixels.shots.key1)
        light = now
        if pixels.is_log != 0:
            light = wp.exp(now) - pixels.eps
        rate = pixels.noise * (1.0 + (DIM_NOISE - 1.0) * wp.clamp(light, 0.0, 1.0))
        if word_to_uniform(words[0]) < 0.5 * rate * interval:
            shots = 2
            a = word_to_uniform(words[1])
            b = word_to_uniform(words[2])
            shot = wp.vec2(wp.min(a, b), wp.max(a, b))
            if word_to_uniform(words[3]) < 0.5:
                sign = -1
    last = -pixels.since[env, pixel]
    count = wp.int32(0)
    crossed = wp.int32(0)
    shown = wp.int32(0)
    while crossed < crossings or shown < shots:
        at = wp.float32(2.0)
        if crossed < crossings:
            at = wp.clamp((float(crossed + 1) * step - start) / (end - start), 0.0, 1.0)
        way = polarity
        if shown < shots and shot[shown] < at:
            at = shot[shown]
            way = sign * (1 - 2 * shown)
            shown += 1
        else:
            crossed += 1
        if at * interval - last >= pixels.refractory:
            last = at * interval
            if first >= 0:
                total = queue.total[env]
                capacity = queue.time.shape[1]
                place = place_in_queue(first + count, total, capacity)
                if place_in_queue(first + count + 1, total, capacity) > place:
                    queue.time[env, place] = int(at * float(STEPS)) + (way + 1) * (STEPS + 1)
                    queue.pixel[env, place] = pixel
                    queue.image[env, pixel] = queue.image[env, pixel] + wp.int16(way)
            count += 1
    if first >= 0:
        pixels.reference[env, pixel] = reference + float(crossings) * step - leak
        pixels.level[env, pixel] = now
        pixels.since[env, pixel] = wp.min(interval - last, LONG_AGO)
    return int(count)


@kernel(group="events")
def count_events(
    rows: Rows,
    pixels: EventPixels,
    table: wp.array[wp.vec3],
    colours: wp.array2d[wp.float32],
    queue: EventQueue,
) -> None:
    """Compute the brightness of a row of pixels, and count its events; the first sample only sets the pixels.

    Each thread also clears a part of the list of events.
    """
    env, piece = masked_tid(rows)
    row = rows.first + piece
    share = queue.time.shape[1] / pixels.height + 1
    for k in range(row * share, wp.min((row + 1) * share, queue.time.shape[1])):
        queue.x_out[env, k] = wp.int16(0)
        queue.y_out[env, k] = wp.int16(0)
        queue.polarity_out[env, k] = wp.int16(0)
        queue.time_out[env, k] = 0.0
    interval = elapsed(rows, env, pixels)
    count = wp.int32(0)
    for pixel in range(row * pixels.width, (row + 1) * pixels.width):
        light = wp.max(
            luminance(wp.vec3(colours[env, 3 * pixel], colours[env, 3 * pixel + 1], colours[env, 3 * pixel + 2])), 0.0
        )
        now = light
        if pixels.is_log != 0:
            now = wp.log(light + pixels.eps)
        queue.image[env, pixel] = wp.int16(0)
        if is_first(rows, env):
            pixels.level[env, pixel] = now
            pixels.reference[env, pixel] = now
            if pixels.leak > 0.0:  # the pixels have leaked for long, so their leak events do not coincide
                lasting = episode_words(rows, env, wp.uint32(pixel), pixels.spread.key0, pixels.spread.key1)
                rise, _fall = pixel_thresholds(rows, env, pixel, pixels, table)
                pixels.reference[env, pixel] = now - word_to_uniform(lasting[2]) * rise
            pixels.since[env, pixel] = LONG_AGO
            continue
        if pixels.cutoff > 0.0:
            speed = TWO_PI * pixels.cutoff * (DARKEST + (1.0 - DARKEST) * wp.min(light, 1.0))
            now = now + (pixels.level[env, pixel] - now) * wp.exp(-speed * interval)
        pixels.fresh[env, pixel] = now
        count += pixel_events(rows, env, pixel, interval, pixels, table, queue, -1)
    queue.rows[env, row] = count


@kernel(group="events")
def place_events(rows: Rows, pixels: EventPixels, queue: EventQueue) -> None:
    """Turn the numbers of events of the rows into those before them."""
    env = masked_tid(rows)
    total = wp.int32(0)
    for row in range(pixels.height):
        count = queue.rows[env, row]
        queue.rows[env, row] = total
        total += count
    queue.total[env] = total
    queue.lost_out[env] = wp.max(total - queue.time.shape[1], 0)


@kernel(group="events")
def write_events(rows: Rows, pixels: EventPixels, table: wp.array[wp.vec3], queue: EventQueue) -> None:
    """Queue the events of a row of pixels, and advance the pixels."""
    env, piece = masked_tid(rows)
    row = rows.first + piece
    if is_first(rows, env):
        return
    interval = elapsed(rows, env, pixels)
    before = int(queue.rows[env, row])
    for pixel in range(row * pixels.width, (row + 1) * pixels.width):
        before += pixel_events(rows, env, pixel, interval, pixels, table, queue, before)


@wp.func
def sort_by_byte(
    env: int, count: int, shift: int, bins: wp.array2d[wp.int32], time: wp.array2d[wp.int32],
    pixel: wp.array2d[wp.int32], time_out: wp.array2d[wp.int32], pixel_out: wp.array2d[wp.int32],
) -> None:  # fmt: skip
    """Sort events by one byte of their time; equal ones keep their order."""
    for k in range(RADIX):
        bins[env, k] = 0
    for i in range(count):
        k = (time[env, i] >> shift) & 255
        bins[env, k] = bins[env, k] + 1
    total = wp.int32(0)
    for k in range(RADIX):
        number = bins[env, k]
        bins[env, k] = total
        total += number
    for i in range(count):
        k = (time[env, i] >> shift) & 255
        place = bins[env, k]
        bins[env, k] = place + 1
        time_out[env, place] = time[env, i]
        pixel_out[env, place] = pixel[env, i]


@kernel(group="events")
def sort_events(rows: Rows, pixels: EventPixels, queue: EventQueue) -> None:
    """Sort the events by time, and write them."""
    env = masked_tid(rows)
    interval = elapsed(rows, env, pixels)
    count = wp.min(queue.total[env], queue.time.shape[1])
    sort_by_byte(env, count, 0, queue.bins, queue.time, queue.pixel, queue.time_too, queue.pixel_too)
    sort_by_byte(env, count, 8, queue.bins, queue.time_too, queue.pixel_too, queue.time, queue.pixel)
    sort_by_byte(env, count, 16, queue.bins, queue.time, queue.pixel, queue.time_too, queue.pixel_too)
    for k in range(count):
        word = queue.time_too[env, k]
        pixel = queue.pixel_too[env, k]
        queue.x_out[env, k] = wp.int16(pixel % pixels.width)
        queue.y_out[env, k] = wp.int16(pixel / pixels.width)
        queue.polarity_out[env, k] = wp.int16((word >> 24) - 1)
        queue.time_out[env, k] = (float(word & STEPS) / float(STEPS) - 1.0) * interval
    queue.count_out[env] = count
    note_tick(tick_captured(rows), pixels.ticks, env)
