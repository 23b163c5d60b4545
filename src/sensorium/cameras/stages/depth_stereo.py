"""Stereo depth cameras, passive or with a projected texture."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import warp as wp

from sensorium.cameras.stages.depth_image import (
    DepthStage,
    DepthView,
    depth_kernel,
    inverse,
    is_seen,
    shifted_pixel,
)
from sensorium.cfg import Float, NonNegative, Positive, must
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place
from sensorium.measurement.stage_key import StageKey
from sensorium.random import word_to_normal, word_to_uniform


@wp.struct
class Stereo:
    """Parameters of `StereoDepth`, with the parallax f B of the matcher, px m."""

    matched: wp.float32
    noise: wp.float32
    quantum: wp.float32
    locking: wp.float32
    most: wp.float32
    fattening: wp.float32


@wp.func
def _stereo(
    view: DepthView, stereo: Stereo, env: int, mount: int, u: int, v: int, words: wp.vec4ui, noise: float,
    table: wp.array[wp.vec3],
) -> float:  # fmt: skip
    first = mount * view.image.height * view.image.width
    at = wp.vec2i(u, v)
    if stereo.fattening > 0.0:
        shift = wp.vec2(
            stereo.fattening * word_to_normal(words[0], table), stereo.fattening * word_to_normal(words[1], table)
        )
        at = shifted_pixel(view, env, first, u, v, shift, 1)
    seen = is_seen(view, env, mount, at, word_to_uniform(words[2]))
    d = stereo.matched * inverse(view.before[env, first + at[1] * view.image.width + at[0]])
    d = d + stereo.noise * noise
    if stereo.locking > 0.0:
        d = d + stereo.locking * wp.sin(2.0 * wp.pi * (d - wp.floor(d)))
    if stereo.quantum > 0.0:
        d = stereo.quantum * wp.floor(d / stereo.quantum + 0.5)
    depth = view.sight.hole
    if seen and d > 0.0 and d <= stereo.most:
        depth = stereo.matched / d
        if depth > view.sight.max_range:
            depth = view.sight.hole
    return float(depth)


Above0 = Annotated[Float, must(lambda number: number > 0.0, "a number > 0")]


class StereoDepth(DepthStage):
    """Errors of a stereo camera: z = f B / q(d + n), d = f B / z the disparity in px, q rounding to the quantum.

    So the standard deviation of the depth is z^2 noise_px / (f B), and its steps are z^2 quantum / (f B), to first
    order (e.g. Gallup, Frahm, Mordohai, Pollefeys, "Variable baseline/resolution stereo", CVPR 2008).

    The image is that of the left camera; the other camera is at `baseline` to its right. There is no value for

    - points nearer than f B / max_disparity, outside the matcher's search range;
    - the background beside an object's left edge that the right camera does not see: a band of
      f B (1/z_near - 1/z_far) px; and a band of f B / z px along the left border of the image (`shadow`);
    - a surface at grazing incidence (`grazing`).

    Disparities of windows that straddle a step belong to one of its sides: each pixel is looked up at a random offset
    (`edge_fattening`). This has no effect within a surface.
    """

    place: ClassVar[Place] = "saturation"
    kernel = depth_kernel(Stereo, _stereo)

    baseline: Above0
    """Distance between the two cameras, m."""
    matched_focal_px: Positive | None = None
    """Focal length of the matched images, px, if this image is a downscaled version of the device's: all disparities
    and `edge_fattening` are in px of those images. None: this image has their resolution."""
    noise_px: NonNegative = 0.0
    """Standard deviation of the disparity n, px."""
    quantum: NonNegative = 0.0
    """Subpixel step of the disparity, px, e.g. 1/32; 0 leaves it continuous."""
    locking: NonNegative = 0.0
    """Pixel locking: amplitude of a sine error over the fractional disparity, px (Shimizu and Okutomi, ICCV 2001:
    subpixel interpolation biases disparities towards whole or half pixels)."""
    max_disparity: Above0 = math.inf
    """Maximum disparity that the matcher searches, px."""
    edge_fattening: NonNegative = 0.0
    """Standard deviation of the look-up offset along each image axis, px."""
    shadow: bool = True
    """Whether regions that only the left camera sees have no value."""

    def model(self, view: Any, truth: Record, key: StageKey) -> Any:
        """Return the parameters of the model for its kernel, and set `sight` of the view."""
        focal, ratio = self.matching(view.image, self.matched_focal_px)
        stereo = Stereo()
        stereo.matched, stereo.most = self.baseline * focal, self.max_disparity
        stereo.noise, stereo.quantum, stereo.locking = self.noise_px, self.quantum, self.locking
        stereo.fattening = self.edge_fattening * ratio
        view.sight = self.sight(self.baseline * view.image.focal, self.shadow)
        return stereo
