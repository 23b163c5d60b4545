"""Time-of-flight depth cameras that measure the phase of modulated light."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import warp as wp

from sensorium.cameras.stages.depth_image import (
    EDGE,
    DepthStage,
    DepthView,
    depth_kernel,
    incidence,
    inverse_at,
    ray_of,
    returns,
    slopes_at,
)
from sensorium.cfg import Float, NonNegative, Positive, must
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import column_values
from sensorium.random import word_to_uniform
from sensorium.spec import FieldSpec

LIGHT = 299_792_458.0
"""Speed of light, m/s."""


@wp.struct
class Tof:
    """Parameters of `TofDepth` for kernels: phase per metre of range (rad/m), noise (m), amplitudes (electrons)."""

    phase: wp.float32
    noise: wp.float32
    signal: wp.float32
    ambient: wp.float32
    least: wp.float32
    reflectance: wp.float32
    wiggle: wp.float32
    harmonic: wp.float32
    path: wp.float32
    excess: wp.float32
    flying: wp.float32
    span: wp.float32
    wraps: wp.int32
    reflectances: wp.array2d[wp.float32]


@wp.func
def strength(tof: Tof, env: int, column: int, cosine: float, r: float) -> float:
    """Return the signal of a Lambertian surface under the camera's own light, electrons."""
    rho = tof.reflectance
    if tof.reflectances.shape[1] > 1:
        rho = tof.reflectances[env, column]
    return float(tof.signal * rho * cosine / (r * r))


@wp.func
def _tof(
    view: DepthView, tof: Tof, env: int, mount: int, u: int, v: int, words: wp.vec4ui, noise: float,
    table: wp.array[wp.vec3],
) -> float:  # fmt: skip
    first = mount * view.image.height * view.image.width
    column = first + v * view.image.width + u
    length = wp.length(ray_of(u, v, view.image))
    cosine = incidence(view, env, mount, u, v)
    r = view.before[env, column] * length
    amplitude = strength(tof, env, column, cosine, r)
    measured = wp.float32(view.sight.hole)
    if returns(cosine, view.sight.cos_none, view.sight.cos_all, word_to_uniform(words[2])) and amplitude >= tof.least:
        total = r
        w = inverse_at(view, env, first, u, v)
        if word_to_uniform(words[0]) < tof.flying and w > 0.0:
            slopes = slopes_at(view, env, first, u, v)
            furthest = EDGE * w
            other = wp.float32(0.0)
            other_column = wp.int32(0)
            for k in range(4):
                du = (k % 2) * (k - 2)  # 0, -1, 0, 1
                dv = ((k + 1) % 2) * (k - 1)  # -1, 0, 1, 0
                there = inverse_at(view, env, first, u + du, v + dv)
                off = wp.abs(there - w - slopes[0] * float(du) - slopes[1] * float(dv))
                if there > 0.0 and off > furthest:
                    furthest = off
                    other = 1.0 / there * wp.length(ray_of(u + du, v + dv, view.image))
                    other_column = column + du + dv * view.image.width
            if other > 0.0:
                share = word_to_uniform(words[1])
                mine = share * amplitude
                foreign = (1.0 - share) * strength(tof, env, other_column, cosine, other)
                turn = tof.phase * (other - r)
                x = mine + foreign * wp.cos(turn)
                y = foreign * wp.sin(turn)
                total = r + wp.atan2(y, x) / tof.phase
                amplitude = wp.sqrt(x * x + y * y)
        if tof.path > 0.0:
            turn = tof.phase * tof.excess * wp.min(total, tof.span)
            total = total + wp.atan2(tof.path * wp.sin(turn), 1.0 + tof.path * wp.cos(turn)) / tof.phase
        if tof.wiggle > 0.0:
            total = total + tof.wiggle * wp.sin(tof.harmonic * tof.phase * total)
        if tof.noise > 0.0:
            total = total + tof.noise * wp.sqrt(amplitude + tof.ambient) / amplitude * noise
        if tof.wraps != 0:
            total = total - tof.span * wp.floor(total / tof.span)
        if total > 0.0 and amplitude >= tof.least and total / length <= view.sight.max_range:
            measured = total / length
    return float(measured)


LATE = "A larger value would shift the second path by half a turn and shorten the range."


class TofDepth(DepthStage):
    """Errors of a camera that measures the phase of modulated light, along each pixel's ray.

    The intrinsics convert z-depth z into the ray's length r = z |(x, y, 1)|, on which the model works, and back.

    - Noise: sd = c / (4 sqrt(2) pi f_mod) sqrt(A + B) / (c_d A), with the signal A and the ambient light B in electrons
      and the demodulation contrast c_d (L. Li, "Time-of-flight camera - an introduction", Texas Instruments SLOA190B,
      2014; after R. Lange, thesis, Siegen 2000). A = signal reflectance cos(incidence) / r^2: a Lambertian surface
      under the camera's own light.
    - No value if A is below `min_signal`: dark, far or slanted surfaces.
    - Wrapping: r modulo c / (2 f_mod).
    - Multipath: a second path, longer by `multipath_excess` r, of the relative amplitude `multipath`, is added to the
      phasor. It makes r longer, never shorter (S. Fuchs, ICPR 2010, has the full problem).
    - Flying pixels: at a step a pixel sees both surfaces. Their phasors are mixed with a random weight, so the value
      lies
      between the two (or, if they are more than c / (4 f_mod) apart, around the other way).
    - Wiggling: `wiggle` sin(harmonic phase), since the modulation is not a pure sine (M. Lindner, A. Kolb, ISVC 2006).
    """

    place: ClassVar[Place] = "saturation"
    kernel = depth_kernel(Tof, _tof)

    modulation_hz: Positive
    """Modulation frequency f_mod, Hz."""
    signal: Positive = 1e5
    """Signal of a white surface (reflectance 1) at 1 m and normal incidence, electrons."""
    ambient: NonNegative = 0.0
    """Ambient light and dark current, electrons."""
    contrast: Annotated[Float, must(lambda contrast: 0.0 < contrast <= 1.0, "a contrast in (0, 1]")] = 1.0
    """Demodulation contrast c_d, in (0, 1]."""
    noise_scale: NonNegative = 1.0
    """Factor of the noise; 0 disables it."""
    reflectance: NonNegative = 0.5
    """Reflectance of all surfaces, unless `reflectance_field` is given."""
    reflectance_field: str = ""
    """True field of the sensor with each pixel's reflectance, of the size of the depth image; empty for none."""
    min_signal: NonNegative = 0.0
    """Minimum signal with a value, electrons."""
    wrap: bool = True
    """Whether distances repeat after `unambiguous_range`."""
    unambiguous_range: Positive | None = None
    """Length of ray after which distances repeat, m; None uses c / (2 f_mod). Devices with several frequencies reach
    further."""
    multipath: Annotated[
        Float,
        must(
            lambda ratio: 0.0 <= ratio < 1.0,
            "a ratio in [0, 1)",
            "Give a smaller ratio, since the direct path is the strongest.",
        ),
    ] = 0.0
    """Amplitude of the second path relative to the first, in [0, 1)."""
    multipath_excess: Annotated[Float, must(lambda ratio: 0.0 <= ratio <= 0.5, "a ratio in [0, 0.5]", LATE)] = 0.2
    """Extra range of the second path relative to the ray's length, in [0, 0.5]."""
    flying: Annotated[Float, must(lambda chance: 0.0 <= chance <= 1.0, "a probability in [0, 1]")] = 0.0
    """Probability that a pixel at a step mixes both sides."""
    wiggle: NonNegative = 0.0
    """Amplitude of the periodic error, m."""
    wiggle_harmonic: Annotated[int, must(lambda harmonic: harmonic >= 1, "a whole number >= 1")] = 4
    """Periods of that error per 2 pi of phase: 4 for four samples of the correlation."""

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if a field is not an image of z-depth, or the reflectance does not have its size."""
        super().check(columns, specs, period)
        name = self.reflectance_field
        for field, count in columns.items() if name else ():
            if name not in specs or specs[name].columns != count or specs[name].dtype != "float32":
                raise ValueError(
                    f"a float32 reflectance_field of the size of {field} among the sensor's fields: {name}"
                )

    @property
    def turn_length(self) -> float:
        """Range of one turn of the phase, c / (2 f_mod), m."""
        return 0.5 * LIGHT / self.modulation_hz

    @property
    def _noise(self) -> float:
        """Standard deviation of the ray's length for a signal of 1 electron, m."""
        return self.noise_scale * LIGHT / (4 * math.sqrt(2) * math.pi * self.modulation_hz * self.contrast)

    def standard_deviation(self, signal: float) -> float:
        """Return the standard deviation of the ray's length, m, for a signal in electrons."""
        return self._noise * math.sqrt(signal + self.ambient) / signal

    def model(self, view: Any, truth: Record, key: StageKey) -> Any:
        """Return the parameters of the model for its kernel, and set `sight` of the view."""
        tof = Tof()
        tof.phase, tof.noise = 2.0 * math.pi / self.turn_length, self._noise
        tof.signal, tof.ambient, tof.least = self.signal, self.ambient, self.min_signal
        tof.reflectance, tof.wiggle, tof.harmonic = self.reflectance, self.wiggle, float(self.wiggle_harmonic)
        tof.path, tof.excess, tof.flying = self.multipath, self.multipath_excess, self.flying
        tof.span, tof.wraps = self.unambiguous_range or self.turn_length, int(self.wrap)
        tof.reflectances = wp.zeros((1, 1), dtype=wp.float32, device=key.compute.wp_device)
        if self.reflectance_field:
            tof.reflectances = column_values(truth[self.reflectance_field])
        view.sight = self.sight()
        return tof
