"""Depth by triangulation: stereo cameras, and the structured light of the first Kinect."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cameras.stages.depth_image import (
    DepthStage,
    DepthView,
    MaxRange,
    depth_kernel,
    incidence,
    inverse,
    inverse_at,
    is_seen,
    shifted_pixel,
)
from sensorium.cfg import Float, NonNegative, Positive, bad, must
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


REDWOOD_PARALLAX = 35.130
"""Disparity times depth in the Redwood model, px m."""
REDWOOD_NOISE = 0.027778
"""Standard deviation of the disparity in the Redwood model, px."""
REDWOOD_JITTER = 0.25
"""Standard deviation of the look-up offset along each image axis in the Redwood model, px."""
_RIGHT_ANGLE: float = wp.constant(0.5 * math.pi)
_STEEP: float = wp.constant(math.radians(60.0))
_STEEPEST: float = wp.constant(math.radians(89.0))


@wp.struct
class Kinect:
    """Parameters of `KinectDepth`: model, parallax of the disparities (px m), least depth (m)."""

    is_redwood: wp.int32
    matched: wp.float32
    noise: wp.float32
    lateral: wp.float32
    quantum: wp.float32
    min_range: wp.float32


@wp.func
def axial_sd(z: float, angle: float) -> float:
    """Return the standard deviation of the depth at an angle of incidence, m (Nguyen, Izadi and Lovell)."""
    sd = 0.0012 + 0.0019 * (z - 0.4) * (z - 0.4)
    if angle > _STEEP:
        ratio = angle / (_RIGHT_ANGLE - angle)
        sd = sd + 0.0001 / wp.sqrt(z) * ratio * ratio
    return sd


@wp.func
def lateral_sd(angle: float) -> float:
    """Return the standard deviation of the lateral position, px (Nguyen, Izadi and Lovell)."""
    return 0.8 + 0.035 * angle / (_RIGHT_ANGLE - angle)


@wp.func
def _kinect(
    view: DepthView, kinect: Kinect, env: int, mount: int, u: int, v: int, words: wp.vec4ui, noise: float,
    table: wp.array[wp.vec3],
) -> float:  # fmt: skip
    first = mount * view.image.height * view.image.width
    angle = wp.float32(0.0)
    sideways = kinect.lateral
    if kinect.is_redwood == 0:
        angle = wp.min(wp.acos(incidence(view, env, mount, u, v)), _STEEPEST)
        sideways = sideways * lateral_sd(angle)
    shift = wp.vec2(sideways * word_to_normal(words[0], table), sideways * word_to_normal(words[1], table))
    at = shifted_pixel(view, env, first, u, v, shift, 1 - kinect.is_redwood)
    if kinect.is_redwood != 0:  # half resolution: the first pixel of each 2 x 2 block
        half = wp.vec2i(at[0] - at[0] % 2, at[1] - at[1] % 2)
        if inverse_at(view, env, first, half[0], half[1]) > 0.0:
            at = half
    elif at[0] != u or at[1] != v:
        angle = wp.min(wp.acos(incidence(view, env, mount, at[0], at[1])), _STEEPEST)
    seen = is_seen(view, env, mount, at, word_to_uniform(words[2]))
    depth = view.sight.hole
    w = inverse(view.before[env, first + at[1] * view.image.width + at[0]])
    if seen and w > 0.0:
        d = kinect.matched * w
        if kinect.is_redwood != 0:
            d = d + kinect.noise * noise
        else:
            there = 1.0 / w
            step = kinect.quantum * there / d  # step of the depth
            sd = axial_sd(there, angle)
            variance = wp.max(sd * sd - step * step / 12.0, 0.0)
            there = there + kinect.noise * wp.sqrt(variance) * noise
            d = kinect.matched * inverse(there)
        if kinect.quantum > 0.0:
            d = kinect.quantum * wp.floor(d / kinect.quantum + 0.5)
        if d > 0.0:
            there = kinect.matched / d
            if there >= kinect.min_range and there <= view.sight.max_range:
                depth = there
    return float(depth)


class KinectDepth(DepthStage):
    """Errors of the first Kinect, which triangulates a projected pattern of dots.

    ``variant="axial"``: C. Nguyen, S. Izadi, D. Lovell, "Modeling Kinect sensor noise for improved 3D reconstruction
    and tracking", 3DIMPVT 2012. At the angle of incidence t the standard deviation of the depth is 0.0012 + 0.0019 (z -
    0.4)^2 m, plus 0.0001 / sqrt(z) t^2 / (pi/2 - t)^2 beyond 60 degrees. That of the lateral position is 0.8 + 0.035 t
    / (pi/2 - t) px; t is limited to 89 degrees. The lateral error acts only at steps: within a surface, its effect is
    already part of the first figure. The same holds for rounding to the quantum, step^2 / 12: the drawn noise is
    smaller by that variance, so that the reported values have the stated deviation.

    ``variant="redwood"``: the model of S. Choi, Q.-Y. Zhou, V. Koltun, "Robust reconstruction of indoor scenes", CVPR
    2015 (after A. Teichman, S. Miller, S. Thrun, RSS 2013), as used by Habitat: a lateral error of 0.25 px, at half the
    resolution; disparity 35.130/z with 0.027778 px of noise, rounded to 1/8 px. Its table of lens distortion is
    omitted.

    The projector is at `baseline` to the right of the camera. The background beside an object's left edge that it does
    not illuminate has no value, a band of f B (1/z_near - 1/z_far) px; nor has the unlit band along the left border.
    """

    place: ClassVar[Place] = "saturation"
    kernel = depth_kernel(Kinect, _kinect)

    variant: Literal["axial", "redwood"] = "axial"
    """Error model, see above."""
    baseline: Positive = 0.075
    """Distance from the camera to the projector, m (K. Khoshelham, S. Oude Elberink, Sensors 12, 2012: 7.5 cm)."""
    matched_focal_px: Positive | None = None
    """Focal length of the device's own image, px, if this image is a downscaled version of it: `quantum` and the
    lateral noise are in px of that image. None: this image has its resolution."""
    quantum: NonNegative = 0.125
    """Quantisation step of the disparity, px: of f B / z, or of 35.130/z; 0 leaves it continuous."""
    noise_scale: NonNegative = 1.0
    """Factor of the noise of the depth, or of the disparity."""
    lateral_scale: NonNegative = 1.0
    """Factor of the standard deviation of the lateral position."""
    shadow: bool = True
    """Whether regions that the projector does not illuminate have no value."""
    min_range: Float = PydanticField(default=0.4, validate_default=True)
    """Minimum measured depth, m; smaller depths are holes. The model was fitted from 0.4 m on."""
    max_range: MaxRange = 10.0
    """Maximum measured depth, m; larger depths are holes."""

    @field_validator("min_range")
    @classmethod
    def _below_max(cls, value: float, info: ValidationInfo) -> float:
        most = info.data.get("max_range", math.inf)
        if not 0.0 <= value < most:
            raise bad(f"a depth >= 0 below max_range, {most:g} m")
        return value

    def model(self, view: Any, truth: Record, key: StageKey) -> Any:
        """Return the parameters of the model for its kernel, and set `sight` of the view."""
        is_redwood = self.variant == "redwood"
        focal, ratio = self.matching(view.image, self.matched_focal_px)
        kinect = Kinect()
        kinect.is_redwood = int(is_redwood)
        kinect.matched = REDWOOD_PARALLAX if is_redwood else self.baseline * focal
        kinect.noise = self.noise_scale * (REDWOOD_NOISE if is_redwood else 1.0)
        kinect.lateral = self.lateral_scale * ratio * (REDWOOD_JITTER if is_redwood else 1.0)
        kinect.quantum, kinect.min_range = self.quantum, self.min_range
        view.sight = self.sight(self.baseline * view.image.focal, self.shadow)
        return kinect
