"""Common base of the depth error models: the pinhole image, its surfaces, spatially correlated noise, shadows.

The models work on z-depth, the distance along the camera's axis. A pixel (u, v), counted from the top left, looks along
(x, y, 1) with x = (u + 1/2 - cx) / f and y = (v + 1/2 - cy) / f, to the right, down and forward. On a plane the inverse
depth w = 1/z is linear in u and v, whatever its attitude. This distinguishes a surface from a step, and gives the angle
of incidence.
"""

# Without `from __future__ import annotations`: Warp must see the types that `depth_kernel` is called with.

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Float, Positive, Share, bad, must
from sensorium.compute import Rows, kernel, masked_tid, tick_now
from sensorium.geometry.transforms import quat_rotate
from sensorium.measurement.draws import Stream, normals_of, stream_words
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import column_values
from sensorium.random import normal_table
from sensorium.spec import FieldSpec

Z_DEPTH = "distance_to_image_plane"
RAY_LENGTH = "distance_to_camera"
EDGE: float = wp.constant(0.01)
"""Relative deviation of inverse depth from the pixel's own plane above which a neighbour is on another surface."""
_MAX_BLOCKS = 1 << 24
"""Number of random counters of a field per env, see `sensorium.random`."""


@wp.struct
class Pinhole:
    """Image size, and intrinsics in px."""

    height: wp.int32
    width: wp.int32
    focal: wp.float32
    cx: wp.float32
    cy: wp.float32


@wp.struct
class Sight:
    """Limits of valid pixels: parallax of the second view, px m, shadows, cosines and the maximum depth."""

    parallax: wp.float32
    shadow: wp.int32
    cos_none: wp.float32
    cos_all: wp.float32
    max_range: wp.float32
    hole: wp.float32


@wp.struct
class DepthView:
    """Inputs of a camera model: the image, true depths and normals `[env, column]`, quaternions `[env, mount]`.

    `axes` are the axes that the quaternion rotates: 1 for right, down, forward, 2 for forward, left, up; 0 if there are
    no normals except those computed from depths. `before` is the image before the stage, `nearest` the second view.
    """

    image: Pinhole
    sight: Sight
    z: wp.array2d[wp.float32]
    before: wp.array2d[wp.float32]
    nearest: wp.array2d[wp.float32]
    normals: wp.array2d[wp.vec3]
    quats: wp.array2d[wp.vec4]
    axes: wp.int32


@wp.struct
class DepthDraws:
    """Random streams of the noise, its slow part and the pixel; their shares; size of the window."""

    noise: Stream
    slow: Stream
    pixel: Stream
    radius: wp.int32
    slow_ticks: wp.int32
    fast_share: wp.float32
    slow_share: wp.float32


# Surfaces -------------------------------------------------------------------------------------------------------------


@wp.func
def inverse(z: float) -> float:
    """Return 1/z, or 0 for a miss (+inf) or no depth."""
    if wp.isfinite(z) and z > 0.0:
        return 1.0 / z
    return 0.0


@wp.func
def inverse_at(view: DepthView, env: int, first: int, u: int, v: int) -> float:
    """Return the inverse depth of a pixel, 0 for a miss and outside the image; `first` is the mount's first column."""
    if u < 0 or v < 0 or u >= view.image.width or v >= view.image.height:
        return 0.0
    return float(inverse(view.z[env, first + v * view.image.width + u]))


@wp.func
def slope_of(before: float, center: float, after: float) -> float:
    """Return the smaller one-sided difference, which at a step is that of the pixel's own surface."""
    back = center - before
    ahead = after - center
    if before > 0.0 and (after <= 0.0 or wp.abs(back) < wp.abs(ahead)):
        return back
    if after > 0.0:
        return ahead
    return 0.0


@wp.func
def slopes_at(view: DepthView, env: int, first: int, u: int, v: int) -> wp.vec2:
    """Return the change of the inverse depth per px, along u and v, on the surface of a pixel."""
    center = inverse_at(view, env, first, u, v)
    along = slope_of(inverse_at(view, env, first, u - 1, v), center, inverse_at(view, env, first, u + 1, v))
    down = slope_of(inverse_at(view, env, first, u, v - 1), center, inverse_at(view, env, first, u, v + 1))
    return wp.vec2(along, down)


@wp.func
def ray_of(u: int, v: int, image: Pinhole) -> wp.vec3:
    """Return the direction of a pixel per metre of depth: right, down, forward."""
    return wp.vec3((float(u) + 0.5 - image.cx) / image.focal, (float(v) + 0.5 - image.cy) / image.focal, 1.0)


@wp.func
def incidence(view: DepthView, env: int, mount: int, u: int, v: int) -> float:
    """Return the cosine of the angle between a pixel's ray and the normal at its hit.

    With `axes` 0, it is computed from the surrounding depths: the plane w = 1/z = m . (x, y, 1) has the normal m, so
    the cosine is w / (|m| |(x, y, 1)|). Otherwise it is computed from the true normals in the world.
    """
    image = view.image
    first = mount * image.height * image.width
    ray = ray_of(u, v, image)
    if view.axes != 0:
        if view.axes == 2:
            ray = wp.vec3(1.0, -ray[0], -ray[1])
        normal = view.normals[env, first + v * image.width + u]
        size = wp.length(normal) * wp.length(ray)
        if wp.isfinite(size) and size > 0.0:
            return float(wp.min(wp.abs(wp.dot(normal, quat_rotate(view.quats[env, mount], ray))) / size, 1.0))
        return 1.0
    w = inverse_at(view, env, first, u, v)
    if w <= 0.0:
        return 1.0
    slopes = slopes_at(view, env, first, u, v)
    m = wp.vec3(
        image.focal * slopes[0],
        image.focal * slopes[1],
        w - image.focal * (slopes[0] * ray[0] + slopes[1] * ray[1]),
    )
    return float(wp.min(w / (wp.length(m) * wp.length(ray)), 1.0))


@wp.func
def shifted_pixel(
    view: DepthView, env: int, first: int, u: int, v: int, shift: wp.vec2, keeps_surface: int
) -> wp.vec2i:
    """Return the pixel that replaces (u, v) if its centre is shifted by `shift` px.

    With `keeps_surface` a shift along the pixel's own surface has no effect, so that it blurs steps and adds no noise
    to slopes. A pixel with a miss is never returned.
    """
    to = wp.vec2i(
        wp.clamp(int(wp.floor(float(u) + 0.5 + shift[0])), 0, view.image.width - 1),
        wp.clamp(int(wp.floor(float(v) + 0.5 + shift[1])), 0, view.image.height - 1),
    )
    start = wp.vec2i(u, v)
    if to[0] == u and to[1] == v:
        return start
    w = inverse_at(view, env, first, u, v)
    there = inverse_at(view, env, first, to[0], to[1])
    if there <= 0.0:
        return start
    if keeps_surface != 0:
        slopes = slopes_at(view, env, first, u, v)
        if wp.abs(there - w - slopes[0] * float(to[0] - u) - slopes[1] * float(to[1] - v)) <= EDGE * w:
            return start
    return to


@wp.func
def returns(cosine: float, cos_none: float, cos_all: float, chance: float) -> bool:
    """Return whether a surface at grazing incidence is measured: never below `cos_none`, always from `cos_all` on."""
    if cosine < cos_none:
        return False
    return cosine >= cos_all or chance * (cos_all - cos_none) < cosine - cos_none


# Noise ----------------------------------------------------------------------------------------------------------------


@wp.func
def window_normals(
    rows: Rows,
    env: int,
    time: wp.int64,
    mount: int,
    v: int,
    quad: int,
    image: Pinhole,
    radius: int,
    stream: Stream,
    table: wp.array[wp.vec3],
) -> wp.vec4:
    """Return normals of variance 1 for the pixels 4 quad to 4 quad + 3 of a row: means over a window of white draws.

    The mean of n draws has the variance 1/n, which is compensated. The draws lie on a grid with a margin around the
    image, so that border pixels have the same statistics as others.
    """
    margin = (radius + 3) // 4
    blocks = (image.width + 3) // 4 + 2 * margin
    rows_of = image.height + 2 * radius
    total = wp.vec4()
    for i in range(2 * radius + 1):
        row = (mount * rows_of + v + i) * blocks
        for b in range(2 * margin + 1):
            draws = normals_of(rows, env, time, row + quad + b, stream, table)
            for j in range(4):
                at = 4 * (b - margin) + j  # offset of this draw from the first of the four pixels
                for k in range(4):
                    if at >= k - radius and at <= k + radius:
                        total[k] = total[k] + draws[j]
    return total / float(2 * radius + 1)


@wp.func
def noise_of(
    rows: Rows, env: int, mount: int, v: int, quad: int, image: Pinhole, draws: DepthDraws, table: wp.array[wp.vec3]
) -> wp.vec4:
    """Return the noise of four pixels, of variance 1: one part redrawn for each sample, and one that changes slowly.

    The slow part interpolates between draws `slow_ticks` apart, at constant variance: it is a function of the tick
    alone.
    """
    tick = tick_now(rows)
    total = window_normals(rows, env, tick, mount, v, quad, image, draws.radius, draws.noise, table)
    if draws.slow_ticks > 0:
        slow = wp.int64(draws.slow_ticks)
        knot = tick / slow
        x = float(tick % slow) / float(draws.slow_ticks)
        past = window_normals(rows, env, knot, mount, v, quad, image, draws.radius, draws.slow, table)
        coming = window_normals(rows, env, knot + wp.int64(1), mount, v, quad, image, draws.radius, draws.slow, table)
        blend = ((1.0 - x) * past + x * coming) / wp.sqrt((1.0 - x) * (1.0 - x) + x * x)
        total = draws.fast_share * total + draws.slow_share * blend
    return total


# Shadows --------------------------------------------------------------------------------------------------------------


@kernel
def keep_true_image(
    rows: Rows, values: wp.array2d[wp.float32], truth: wp.array2d[wp.float32], there: wp.array2d[wp.float32]
) -> None:
    """Store the true image with the slot's misses as +inf."""
    env, column = masked_tid(rows)
    there[env, column] = truth[env, column]
    if wp.isinf(values[env, column]):
        there[env, column] = wp.inf


@kernel
def keep_and_clear(
    rows: Rows, values: wp.array2d[wp.float32], before: wp.array2d[wp.float32], nearest: wp.array2d[wp.float32]
) -> None:
    """Store the slot before the stage, for look-ups, and clear the second view."""
    env, column = masked_tid(rows)
    before[env, column] = values[env, column]
    nearest[env, column] = 0.0


@kernel
def find_second_view(rows: Rows, view: DepthView, nearest: wp.array2d[wp.float32]) -> None:
    """Find the greatest disparity in each pixel of the second view: that of another camera, or of the projector."""
    env, mount, v, u = masked_tid(rows)
    image = view.image
    first = mount * image.height * image.width
    d = view.sight.parallax * inverse_at(view, env, first, u, v)
    if d <= 0.0:
        return
    to = int(wp.floor(float(u) + 0.5 - d))
    row = first + v * image.width
    if to >= 0 and to < image.width:
        wp.atomic_max(nearest, env, row + to, d)
    following = view.sight.parallax * inverse_at(view, env, first, u + 1, v)
    if following > 0.0 and wp.abs(following - d) <= 1.0:  # same surface: fill the gap
        if int(wp.floor(float(u) + 1.5 - following)) == to + 2 and to + 1 >= 0 and to + 1 < image.width:
            wp.atomic_max(nearest, env, row + to + 1, wp.min(d, following))


@wp.func
def is_seen(view: DepthView, env: int, mount: int, at: wp.vec2i, chance: float) -> bool:
    """Return whether a pixel has a value: not at grazing incidence, and visible in the second view.

    A point is hidden there outside the image, or behind others. Points nearer by less than a pixel, or by the slope of
    the point's own surface, do not occlude it.
    """
    sight = view.sight
    if sight.cos_all >= 0.0:
        if not returns(incidence(view, env, mount, at[0], at[1]), sight.cos_none, sight.cos_all, chance):
            return False
    if sight.shadow == 0:
        return True
    first = mount * view.image.height * view.image.width
    slope = sight.parallax * slopes_at(view, env, first, at[0], at[1])[0]
    d = sight.parallax * inverse_at(view, env, first, at[0], at[1])
    to = int(wp.floor(float(at[0]) + 0.5 - d))
    if to < 0 or to >= view.image.width:
        return False
    return bool(view.nearest[env, first + at[1] * view.image.width + to] <= d + 1.0 + 4.0 * wp.abs(slope))


# Models ---------------------------------------------------------------------------------------------------------------


def depth_kernel(model_type: Any, pixel: Any) -> Any:
    """Return the kernel of a model, which measures four pixels of a row per thread.

    Args:
        model_type: struct with the parameters of the model.
        pixel: function that returns the depth of a pixel, m, from the view, the parameters, environment, mount, column
            and row, four random words, a number of the noise, and the table of `normal_table`.
    """

    @kernel(group=model_type.cls.__name__)
    def measure(
        rows: Rows,
        view: DepthView,
        model: model_type,
        draws: DepthDraws,
        table: wp.array[wp.vec3],
        values: wp.array2d[wp.float32],
    ) -> None:
        env, mount, v, quad = masked_tid(rows)
        image = view.image
        noise = noise_of(rows, env, mount, v, quad, image, draws, table)
        for j in range(wp.min(4, image.width - 4 * quad)):  # not unrolled: one call is compiled inline
            u = 4 * quad + j
            column = (mount * image.height + v) * image.width + u
            if inverse(view.before[env, column]) > 0.0:
                words = stream_words(rows, env, tick_now(rows), column, draws.pixel)
                values[env, column] = pixel(view, model, env, mount, u, v, words, noise[j], table)

    return measure


# Config ---------------------------------------------------------------------------------------------------------------

MaxRange = Annotated[Float, must(lambda most: most > 0.0, "a finite number > 0")]
"""A depth, m; infinity for no limit."""


class DepthStage(StageCfg):
    """Common base of the depth error models: intrinsics, holes and the correlation of the noise.

    They work on a field of z-depth, m, with the axes height and width, and reject other fields. Quantities that a
    camera derives from it, such as the length of the ray, are computed from the measured z-depth.

    A miss (+inf) stays a miss. A pixel without a value, a hole, reports `hole_value`.
    """

    is_recorded: ClassVar[bool] = True
    kernel: ClassVar[Any]
    """Kernel of the model, see `depth_kernel`."""

    fields: tuple[str, ...] = (Z_DEPTH,)
    """Fields that the stage alters: z-depth, `distance_to_image_plane`."""
    focal_px: Positive | None = None
    """Focal length, px; pixels are square. Give it or `fov_deg`."""
    fov_deg: Float | None = PydanticField(default=None, validate_default=True)
    """Horizontal field of view, degrees: the focal length is width / 2 / tan(fov / 2)."""
    principal_point: (
        Annotated[tuple[Float, Float], must(lambda at: all(map(math.isfinite, at)), "two finite numbers, px")] | None
    ) = None
    """Intersection of the camera's axis with the image, px from its left and upper border; None uses the centre."""
    hole_value: Annotated[
        Float,
        must(
            lambda shown: not math.isnan(shown),
            "a number that is not NaN",
            "Give 0 as reported by depth cameras, or inf for a miss.",
        ),
    ] = 0.0
    """Value of a pixel without a measurement, m: 0 as reported by depth cameras, or ``inf`` like a miss; not NaN."""
    max_range: MaxRange = math.inf
    """Maximum measured depth, m; larger depths are holes."""
    grazing: (
        Annotated[
            tuple[Float, Float],
            must(
                lambda cosines: 0.0 <= cosines[0] <= cosines[1] <= 1.0,
                "two cosines, 0 <= c0 <= c1 <= 1",
                "Cosine 1 means normal incidence.",
            ),
        ]
        | None
    ) = None
    """Cosines (c0, c1) of the angle of incidence: below c0 there is never a value, from c1 on always; in between the
    probability of a value rises linearly. None: no holes at grazing incidence. The angle is computed from the true
    `normals` if the sensor has these and `quat_w_ros` or `quat_w_world`, otherwise from the plane through neighbouring
    pixels."""
    window: Annotated[int, must(lambda window: window in range(1, 32, 2), "an odd number from 1 to 31")] = 1
    """Width of the square window, px, whose mean is the noise, at constant variance; odd, 1 is white noise."""
    slow_share: Share = 0.0
    """Fraction of the noise's variance that changes slowly instead of from sample to sample, in [0, 1]."""
    slow_time: Positive = 1.0
    """Time in which the slow part is replaced completely, s."""

    @field_validator("fov_deg")
    @classmethod
    def _fov(cls, value: float | None, info: ValidationInfo) -> float | None:
        if "focal_px" in info.data and (value is None) == (info.data["focal_px"] is None):
            raise bad("exactly one of focal_px and fov_deg")
        if value is not None and not 0.0 < value < 180.0:
            raise bad("an angle in (0, 180) degrees")
        return value

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if a field is not an image of z-depth."""
        for field in columns:
            spec = specs[field]
            if field == RAY_LENGTH:
                raise ValueError(
                    f"a field of z-depth, {Z_DEPTH}, since {RAY_LENGTH} is the length of the ray, whose measured value "
                    f"is derived from the measured z-depth. Write fields=({Z_DEPTH!r},)"
                )
            sizes = {axis: size for axis, size in zip(spec.axes, spec.shape, strict=True) if axis != "mount"}
            axes = tuple(axis for axis, size in sizes.items() if axis in ("height", "width") or size != 1)
            if spec.unit != "m" or axes != ("height", "width") or sizes["width"] < 2:
                raise ValueError(
                    f"a field of z-depth in m with the axes height and width, at least 2 px wide, such as {Z_DEPTH}; "
                    f"{field} has the unit {spec.unit} and {dict(zip(spec.axes, spec.shape, strict=True))}"
                )
            radius, mounts = self.window // 2, columns[field] // (sizes["height"] * sizes["width"])
            rows, row = sizes["height"] + 2 * radius, (sizes["width"] + 3) // 4 + 2 * ((radius + 3) // 4)
            if max(columns[field], mounts * rows * row) >= _MAX_BLOCKS:
                raise ValueError(f"an image of fewer than {_MAX_BLOCKS} pixels over all mounts")

    def matching(self, image: Any, focal_px: float | None) -> tuple[float, float]:
        """Return the focal length of the matched images, px, and the number of px of this image per px of theirs.

        `focal_px` is the config's value for it; None means that this image has their resolution.
        """
        focal = float(image.focal) if focal_px is None else focal_px
        return focal, float(image.focal) / focal

    def pinhole(self, height: int, width: int) -> Any:
        """Return image size and intrinsics for kernels."""
        image = Pinhole()
        image.height, image.width = height, width
        image.focal = self.focal_px or 0.5 * width / math.tan(0.5 * math.radians(self.fov_deg or 0.0))  # one is given
        image.cx, image.cy = self.principal_point or (0.5 * width, 0.5 * height)
        return image

    def sight(self, parallax: float = 0.0, shadow: bool = False) -> Any:
        """Return the limits of valid pixels for kernels; without `grazing` the cosines are -1."""
        sight = Sight()
        sight.parallax, sight.shadow = parallax, int(shadow)
        sight.cos_none, sight.cos_all = self.grazing or (-1.0, -1.0)
        sight.max_range, sight.hole = self.max_range, self.hole_value
        return sight

    def draws(self, key: StageKey, field: str) -> Any:
        """Return the random streams for kernels."""
        draws = DepthDraws()
        draws.noise, draws.slow, draws.pixel = (key.stream(purpose, field) for purpose in ("noise", "slow", "pixel"))
        draws.radius = self.window // 2
        draws.slow_ticks = max(1, round(self.slow_time / key.clock.dt)) if self.slow_share > 0.0 else 0
        draws.fast_share, draws.slow_share = math.sqrt(1.0 - self.slow_share), math.sqrt(self.slow_share)
        return draws

    def model(self, view: Any, truth: Record, key: StageKey) -> Any:
        """Return the parameters of the model for its kernel, and set `sight` of the view."""
        raise NotImplementedError

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Measure the image (two launches per field, and up to two more for a second view)."""
        compute, table = key.compute, normal_table(key.compute.wp_device)
        for field, spec in key.specs.items():
            mounts, height, width = image_shape(spec)
            view = self.view_of(truth, key, field, height, width)
            model = self.model(view, truth, key)
            values, true = (column_values(record[field]) for record in (slot, truth))
            compute.launch(keep_true_image, (key.columns[field],), [values, true], [view.z])
            if view.sight.parallax > 0.0:
                compute.launch(keep_and_clear, (key.columns[field],), [values], [view.before, view.nearest])
            else:  # a model without a second view reads only the pixel that it replaces
                view.before = values
            if view.sight.shadow:
                compute.launch(find_second_view, (mounts, height, width), [view], [view.nearest])
            inputs = [view, model, self.draws(key, field), table]
            compute.launch(self.kernel, (mounts, height, (width + 3) // 4), inputs, [values])

    def view_of(self, truth: Record, key: StageKey, field: str, height: int, width: int) -> Any:
        """Return the inputs of the camera model, for kernels.

        A pixel that is a miss in the slot counts as a miss, even if the truth shows a number there.
        """
        view = DepthView()
        view.image, view.axes = self.pinhole(height, width), 0
        normals, quats = (torch.zeros((1, 1, n), dtype=torch.float32, device=key.compute.device) for n in (3, 4))
        for number, name in enumerate(("quat_w_ros", "quat_w_world"), start=1):
            if view.axes == 0 and "normals" in truth and name in truth:
                view.axes = number
                normals, quats = (truth[each].view(len(truth[each]), -1, n) for each, n in (("normals", 3), (name, 4)))
        view.z, view.before, view.nearest = (
            wp.from_torch(key.scratch(what, field)) for what in ("there", "before", "nearest")
        )
        view.normals = wp.from_torch(normals.to(key.compute.device), dtype=wp.vec3)
        view.quats = wp.from_torch(quats.to(key.compute.device), dtype=wp.vec4)
        return view


def image_shape(spec: FieldSpec) -> tuple[int, int, int]:
    """Return mounts, height and width of an image; the mount axis may be absent."""
    sizes = dict(zip(spec.axes, spec.shape, strict=True))
    return sizes.get("mount", 1), sizes["height"], sizes["width"]
