"""Kernels of an image sensor: light, electrons, digital numbers, colour filter and exposure control.

An image is `[env, column]` with three columns per pixel, row by row from the top left, mount by mount. A thread
computes a row of pixels.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, tick_now
from sensorium.measurement.draws import Stream, stream_words
from sensorium.random import word_to_normal, word_to_uniform

NO_FALLOFF, COS4, POLYNOMIAL = 0, 1, 2
"""Kinds of vignetting."""
FEW: float = wp.constant(20.0)
"""Mean number of electrons below which the Poisson distribution is inverted."""
MAX_FEW: int = wp.constant(80)
"""Maximum number of electrons that the inversion returns."""
METERED: int = wp.constant(64)
"""Maximum number of metered pixels along each side of the image."""


@wp.struct
class Chip:
    """Parameters of an image sensor.

    Attributes:
        height: pixels in a column.
        width: pixels in a row.
        falloff: kind of vignetting.
        shape: coefficients of its polynomial in the squared radius, relative to half the diagonal.
        per_second: signal of radiance 1 per second of exposure, as a fraction of the full well.
        full_well: electrons; 0 for no electrons.
        levels: maximum digital number; 0 for a continuous output.
        black: digital number without light.
        dsnu: standard deviation of the offsets of pixels, electrons.
        prnu: standard deviation of the gains of pixels.
        response: response of red, green and blue pixels to radiance 1, relative to `per_second`.
        filter: colours of the pixels of a 2 x 2 block, row by row; the first is -1 for all colours at each pixel.
    """

    height: wp.int32
    width: wp.int32
    falloff: wp.int32
    shape: wp.vec3
    per_second: wp.float32
    full_well: wp.float32
    levels: wp.float32
    black: wp.float32
    dsnu: wp.float32
    prnu: wp.float32
    response: wp.vec3
    filter: wp.vec4i


@wp.struct
class Amounts:
    """Amounts `[env, 1 or mount]`: exposure time (s), gain, read noise (electrons), dark current (electrons/s).

    The factors of the white balance are `[env, 3]`.
    """

    exposure: wp.array2d[wp.float32]
    gain: wp.array2d[wp.float32]
    read_noise: wp.array2d[wp.float32]
    dark_current: wp.array2d[wp.float32]
    balance: wp.array2d[wp.float32]


@wp.func
def of_mount(values: wp.array2d[wp.float32], env: int, mount: int) -> float:
    """Return an amount of a mount."""
    return float(values[env, mount % values.shape[1]])


# Lens -----------------------------------------------------------------------------------------------------------------


@kernel(group="image_sensor")
def blur(
    rows: Rows,
    height: int,
    width: int,
    is_disk: int,
    radii: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
    blurred: wp.array2d[wp.float32],
) -> None:
    """Spread each pixel's light over a disk, or by a normal distribution; light beyond the border is that at it."""
    env, mount, piece = masked_tid(rows)
    v = rows.first + piece
    first = mount * height * width
    radius = of_mount(radii, env, mount)
    reach = int(wp.ceil(radius + 0.5))
    if is_disk == 0:
        reach = int(wp.ceil(3.0 * radius))
    for u in range(width):
        total = wp.vec3()
        weight = wp.float32(0.0)
        for dv in range(-reach, reach + 1):
            row = (first + wp.clamp(v + dv, 0, height - 1) * width) * 3
            for du in range(-reach, reach + 1):
                square = float(du * du + dv * dv)
                w = wp.float32(1.0)
                if is_disk != 0:
                    w = wp.clamp(radius + 0.5 - wp.sqrt(square), 0.0, 1.0)
                elif square > 0.0:
                    w = wp.exp(-0.5 * square / (radius * radius))
                if w > 0.0:
                    at = row + wp.clamp(u + du, 0, width - 1) * 3
                    total += w * wp.vec3(values[env, at], values[env, at + 1], values[env, at + 2])
                    weight += w
        at = (first + v * width + u) * 3
        for c in range(3):
            blurred[env, at + c] = total[c] / weight


@wp.func
def falloff_at(chip: Chip, k: wp.array4d[wp.float32], env: int, mount: int, u: int, v: int) -> float:
    """Return the share of the light that the lens passes to a pixel."""
    x = float(u) + 0.5
    y = float(v) + 0.5
    if chip.falloff == wp.static(COS4):
        x = (x - k[env, mount, 0, 2]) / k[env, mount, 0, 0]
        y = (y - k[env, mount, 1, 2]) / k[env, mount, 1, 1]
        cos2 = 1.0 / (1.0 + x * x + y * y)
        return float(cos2 * cos2)
    if chip.falloff == wp.static(POLYNOMIAL):
        w = 0.5 * float(chip.width)
        h = 0.5 * float(chip.height)
        s = ((x - w) * (x - w) + (y - h) * (y - h)) / (w * w + h * h)
        return float(wp.max(1.0 + s * (chip.shape[0] + s * (chip.shape[1] + s * chip.shape[2])), 0.0))
    return 1.0


# Electrons ------------------------------------------------------------------------------------------------------------


@wp.func
def poisson(mean: float, word: wp.uint32, table: wp.array[wp.vec3]) -> float:
    """Return a Poisson number: by inversion if it is small, otherwise rounded, with mean, variance and skew of it."""
    if mean < FEW:
        u = word_to_uniform(word)
        p = wp.exp(-mean)
        total = p
        count = wp.int32(0)
        while u >= total and count < MAX_FEW:
            count += 1
            p *= mean / float(count)
            total += p
        return float(count)
    z = word_to_normal(word, table)
    x = mean + wp.sqrt(mean - 5.0 / 36.0) * z + (z * z - 1.0) / 6.0  # 1/18 of the square and 1/12 of rounding: 5/36
    return float(wp.max(wp.floor(x + 0.5), 0.0))


@wp.func
def digitise(
    chip: Chip, light: float, exposure: float, gain: float, dark: float, read: float, words: wp.vec3ui,
    pattern: wp.vec2, table: wp.array[wp.vec3],
) -> float:  # fmt: skip
    """Return the output of a pixel relative to full scale, without the black level, for a radiance on it.

    `words` are those of shot noise and read noise; `pattern` has the normal numbers of the pixel's gain and offset.
    """
    signal = wp.max(light, 0.0) * chip.per_second * exposure
    if chip.full_well > 0.0:
        electrons = poisson(signal * chip.full_well + dark * exposure, words[0], table)
        electrons = electrons * (1.0 + chip.prnu * pattern[0]) + chip.dsnu * pattern[1]
        electrons += read * word_to_normal(words[1], table)
        signal = electrons / chip.full_well
    else:
        signal = signal * (1.0 + chip.prnu * pattern[0])
    signal = wp.min(signal, 1.0) * gain
    if chip.levels > 0.0:
        span = chip.levels - chip.black
        code = wp.clamp(wp.floor(signal * span + chip.black + 0.5), 0.0, chip.levels)
        return float((code - chip.black) / span)
    return float(wp.min(signal, 1.0))


@wp.func
def colour_of(chip: Chip, u: int, v: int) -> int:
    """Return the colour of a pixel behind the filter."""
    return int(chip.filter[(v % 2) * 2 + u % 2])


@kernel(group="image_sensor")
def expose(
    rows: Rows,
    chip: Chip,
    amounts: Amounts,
    noise: Stream,
    fixed: Stream,
    table: wp.array[wp.vec3],
    k: wp.array4d[wp.float32],
    light: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    """Turn light into digital numbers relative to full scale, after white balance.

    Behind a colour filter, the first column of each pixel is written.
    """
    env, mount, piece = masked_tid(rows)
    v = rows.first + piece
    exposure = of_mount(amounts.exposure, env, mount)
    gain = of_mount(amounts.gain, env, mount)
    read = of_mount(amounts.read_noise, env, mount)
    dark = of_mount(amounts.dark_current, env, mount)
    for u in range(chip.width):
        pixel = (mount * chip.height + v) * chip.width + u
        falloff = falloff_at(chip, k, env, mount, u, v)
        start = wp.int32(0)
        end = wp.int32(3)
        if chip.filter[0] >= 0:
            start = colour_of(chip, u, v)
            end = start + 1
        for c in range(start, end):
            words = wp.vec4ui()
            if chip.full_well > 0.0:
                words = stream_words(rows, env, tick_now(rows), 3 * pixel + c, noise)
            pattern = wp.vec2()
            if chip.prnu > 0.0 or chip.dsnu > 0.0:
                lasting = stream_words(rows, env, wp.int64(0), 3 * pixel + c, fixed)
                pattern = wp.vec2(word_to_normal(lasting[0], table), word_to_normal(lasting[1], table))
            response = chip.response[c]
            arriving = light[env, 3 * pixel + c] * falloff * response
            out = digitise(
                chip, arriving, exposure, gain, dark, read, wp.vec3ui(words[0], words[1], words[2]), pattern, table
            )
            at = 3 * pixel
            if chip.filter[0] < 0:
                at += c
            values[env, at] = wp.min(out * amounts.balance[env, c] / response, 1.0)


# Colours --------------------------------------------------------------------------------------------------------------


@kernel(group="image_sensor")
def demosaic(rows: Rows, chip: Chip, mosaic: wp.array2d[wp.float32], values: wp.array2d[wp.float32]) -> None:
    """Give each pixel the colours that it lacks: their means over the adjacent pixels (bilinear interpolation)."""
    env, mount, piece = masked_tid(rows)
    v = rows.first + piece
    first = mount * chip.height * chip.width
    for u in range(chip.width):
        total = wp.vec3()
        count = wp.vec3()
        for dv in range(-1, 2):
            for du in range(-1, 2):
                x = u + du
                y = v + dv
                if x >= 0 and x < chip.width and y >= 0 and y < chip.height:
                    c = colour_of(chip, x, y)
                    total[c] += mosaic[env, 3 * (first + y * chip.width + x)]
                    count[c] += 1.0
        own = colour_of(chip, u, v)
        at = 3 * (first + v * chip.width + u)
        for c in range(3):
            if c == own:
                values[env, at + c] = mosaic[env, at]
            else:
                values[env, at + c] = total[c] / count[c]


# Exposure control -----------------------------------------------------------------------------------------------------


@wp.struct
class Metering:
    """Exposure control: target of the luminance, maximum change per sample (stops), bounds, metered share."""

    target: wp.float32
    step: wp.float32
    shortest: wp.float32
    longest: wp.float32
    least_gain: wp.float32
    most_gain: wp.float32
    region: wp.float32


@wp.func
def luminance(rgb: wp.vec3) -> float:
    """Return the relative luminance of a linear colour (ITU-R BT.709)."""
    return float(0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2])


@kernel
def meter(
    rows: Rows,
    chip: Chip,
    metering: Metering,
    values: wp.array2d[wp.float32],
    exposure: wp.array2d[wp.float32],
    gain: wp.array2d[wp.float32],
) -> None:
    """Set exposure time and gain of the next sample from the mean luminance of this one."""
    env, mount = masked_tid(rows)
    first = mount * chip.height * chip.width
    tall = wp.max(int(metering.region * float(chip.height)), 1)
    wide = wp.max(int(metering.region * float(chip.width)), 1)
    down = (tall + METERED - 1) / METERED
    across = (wide + METERED - 1) / METERED
    total = wp.float32(0.0)
    count = wp.float32(0.0)
    for j in range((tall + down - 1) / down):
        row = first + ((chip.height - tall) / 2 + j * down) * chip.width
        for i in range((wide + across - 1) / across):
            at = 3 * (row + (chip.width - wide) / 2 + i * across)
            total += luminance(wp.vec3(values[env, at], values[env, at + 1], values[env, at + 2]))
            count += 1.0
    mean = wp.max(total / count, 1.0e-4)
    stops = wp.clamp(wp.log2(metering.target / mean), -metering.step, metering.step)
    product = exposure[env, mount] * gain[env, mount] * wp.pow(2.0, stops)
    time = wp.clamp(product / metering.least_gain, metering.shortest, metering.longest)
    exposure[env, mount] = time
    gain[env, mount] = wp.clamp(product / time, metering.least_gain, metering.most_gain)
