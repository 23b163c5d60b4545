"""Image sensor: the errors of a colour camera between the light that reaches it and the picture that it delivers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
import warp as wp
from pydantic import model_validator

from sensorium.cameras.stages import image_jpeg, image_pixels
from sensorium.cameras.stages.depth_image import image_shape
from sensorium.cameras.stages.image_pixels import COS4, NO_FALLOFF, POLYNOMIAL, Amounts, Chip, Metering
from sensorium.cfg import Amount, Cfg, Finite, Float, NonNegative, Positive, Share, amount_bounds, bad, in_unit, must
from sensorium.measurement.draws import is_drawn
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import ONE_NUMBER, DrawnStage, check_fit, column_values, within
from sensorium.random import normal_table
from sensorium.spec import FieldSpec

LINEAR = "linear_rgb"
"""Field with linear colours."""
MAX_BLUR = 32.0
"""Maximum blur radius, px."""
MAX_BLOCKS = 1 << 24
"""Number of random counters of a field per env, see `sensorium.random`."""
FILTERS = {
    "none": (-1, 0, 0, 0),
    "rggb": (0, 1, 1, 2),
    "bggr": (2, 1, 1, 0),
    "grbg": (1, 0, 2, 1),
    "gbrg": (1, 2, 0, 1),
}
"""Name of a colour filter -> colours of the pixels of a block of 2 x 2, row by row."""

_AT_LEAST_0 = within(0.0, math.inf, "finite numbers >= 0")
_ABOVE_0 = within(1e-9, math.inf, "finite numbers > 0")
Span = Annotated[
    tuple[Float, Float], must(lambda ends: 0.0 < ends[0] <= ends[1] < math.inf, "two numbers, 0 < least <= greatest")
]


class AutoExposure(Cfg):
    """Automatic exposure: each frame corrects the next one towards a mean luminance, first by time, then by gain."""

    target: Annotated[Share, must(lambda mean: mean > 0.0, "a share above 0")] = 0.18
    """Mean linear luminance of the metered pixels to reach, relative to full scale."""
    rate: Positive = 8.0
    """Maximum change of the exposure, stops (factors of 2) per second."""
    exposure_time: Annotated[Span, in_unit("s")] = (1e-4, 1.0 / 30.0)
    """Shortest and longest exposure time, s."""
    gain: Span = (1.0, 16.0)
    """Minimum and maximum gain."""
    region: Annotated[Share, must(lambda side: side > 0.0, "a share above 0")] = 1.0
    """Width and height of the metered, central region, as a share of those of the image."""


class ImageSensor(DrawnStage):
    """The path of light through a camera: lens, pixels, converter, colour processing and compression.

    It works on linear colours, `linear_rgb`, in which 1 is the white of a display. Its steps are, in this order: the
    motion during the exposure, `blur_radius`, `vignetting`, electrons with shot noise and dark current, `prnu` and
    `dsnu`, `read_noise`, clipping at the full well, `gain`, the converter, white balance, `color_filter`, and
    `jpeg_quality`. The colours of a camera of type ``rgb`` are encoded from the result. The defaults only quantise.

    At gain 1 the full well is full scale. With L the radiance, t the exposure time and t_w `white_exposure`, a pixel
    collects Poisson(L `full_well` t / t_w + dark_current t) electrons. For a digital number y with m electrons, var(y)
    = K^2 read_noise^2 + K (y - y_dark) + 1/12, with K = gain (2^bit_depth - 1 - black_level) / full_well per electron
    (EMVA standard 1288).

    The rows are exposed one after the other, `line_time` apart; the exposure of the last row ends at the capture. The
    scene is rendered at `subposes` instants within the time in which any row is exposed, in the middle of equal parts
    of it. A row shows the mean over its own exposure. Bodies and cameras move linearly between physics ticks.

    Amounts may be distributions, drawn per env at reset. The pattern of the pixels is drawn per env at reset as well.
    """

    place: ClassVar[Place] = "saturation"
    is_non_negative: ClassVar[bool] = True

    fields: tuple[str, ...] = (LINEAR,)
    """Fields that the stage alters: images of linear red, green and blue."""

    # Time
    exposure_time: Annotated[Amount, ONE_NUMBER, _ABOVE_0, in_unit("s")] = 0.01
    """Time in which a row collects light, s; with `auto_exposure`, that of the first frame."""
    gain: Annotated[Amount, ONE_NUMBER, _ABOVE_0] = 1.0
    """Gain between pixel and converter; with `auto_exposure`, that of the first frame."""
    white_exposure: Annotated[Positive | None, in_unit("s")] = None
    """Exposure time in which a radiance of 1 fills the well, s. None: the one at which it is full scale with the given
    `exposure_time` and `gain`, which must be numbers."""
    auto_exposure: AutoExposure | None = None
    """Automatic exposure; None keeps exposure time and gain."""
    line_time: Annotated[NonNegative, in_unit("s")] = 0.0
    """Time from the exposure of a row to that of the next one, s; 0 for a global shutter."""
    subposes: Annotated[int, must(lambda count: 1 <= count <= 256, "a number from 1 to 256")] = 1
    """Number of rendered instants during the exposure of a frame. 1 without `line_time` renders the capture only.
    Motion looks smooth with one instant per pixel of motion."""

    # Lens
    vignetting: Literal["none", "cos4"] | tuple[Finite, ...] = "none"
    """Falloff of the light towards the corners. ``"cos4"``: the fourth power of the cosine of the angle to the axis,
    from the intrinsic matrix of a pinhole camera. Up to three numbers a, b, c: the factor 1 + a r^2 + b r^4 + c r^6,
    with r the distance from the centre relative to half the diagonal."""
    blur_radius: Annotated[Amount, ONE_NUMBER, within(0.0, MAX_BLUR, "numbers from 0 to 32, px"), in_unit("px")] = 0.0
    """Radius of the point spread, px: of the disk of a defocused lens, or the standard deviation of ``"gaussian"``."""
    point_spread: Literal["disk", "gaussian"] = "disk"
    """Image of a point."""

    # Pixels
    full_well: Annotated[Positive | None, in_unit("electrons")] = None
    """Electrons of a full pixel; None for light that is continuous, without shot noise."""
    dark_current: Annotated[Amount, ONE_NUMBER, _AT_LEAST_0, in_unit("electrons/s")] = 0.0
    """Electrons per second that a pixel collects in the dark."""
    prnu: Share = 0.0
    """Standard deviation of the gains of the pixels (photo response non-uniformity)."""
    dsnu: Annotated[NonNegative, in_unit("electrons")] = 0.0
    """Standard deviation of the offsets of the pixels (dark signal non-uniformity), electrons."""
    read_noise: Annotated[Amount, ONE_NUMBER, _AT_LEAST_0, in_unit("electrons")] = 0.0
    """Standard deviation of the noise of each reading, electrons."""
    bit_depth: Annotated[int | None, must(lambda bits: bits is None or 1 <= bits <= 16, "1 to 16 bits")] = 12
    """Bits of the converter; None for a continuous output."""
    black_level: NonNegative = 0.0
    """Digital number without light, which is subtracted again. It lets noise below black through: a `linear_rgb` may be
    negative."""

    # Colours
    color_response: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)
    """Response of red, green and blue pixels to white, relative to that at which `white_exposure` holds. The white
    balance multiplies by the reciprocals."""
    white_balance: Annotated[Amount, _AT_LEAST_0] = 1.0
    """Errors of the white balance: factors of red, green and blue, or one for all."""
    color_filter: Literal["none", "rggb", "bggr", "grbg", "gbrg"] = "none"
    """Colour filter: the colours of the upper left 2 x 2 pixels, row by row. Each pixel then measures one colour, and
    the other two are interpolated linearly. ``"none"``: each pixel measures all three."""
    jpeg_quality: Annotated[int | None, must(lambda q: q is None or 1 <= q <= 100, "a quality from 1 to 100")] = None
    """Quality of the JPEG compression, from 1 to 100, with chroma at half the resolution (4:2:0); None for none."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        electrons = {"dark_current": self.dark_current, "dsnu": self.dsnu, "read_noise": self.read_noise}
        if self.full_well is None and (given := [name for name, value in electrons.items() if value != 0.0]):
            raise bad(f"full_well: a number, since {given[0]} is given", "It relates electrons to the signal.")
        if self.white_exposure is None and (is_drawn(self.exposure_time) or is_drawn(self.gain)):
            raise bad("white_exposure: a time, since exposure_time or gain is a distribution")
        if self.bit_depth is not None and self.black_level >= 2**self.bit_depth - 1:
            raise bad(f"black_level: less than {2**self.bit_depth - 1}, the greatest digital number")
        if len(self.vignetting) > 3 and isinstance(self.vignetting, tuple):
            raise bad("vignetting: at most three coefficients")
        return self

    @property
    def moves(self) -> bool:
        """Whether the scene is rendered at several instants."""
        return self.subposes > 1 or self.line_time > 0.0

    @property
    def longest_exposure(self) -> float:
        """Maximum exposure time, s."""
        longest = amount_bounds(self.exposure_time)[1]
        return max(longest, self.auto_exposure.exposure_time[1]) if self.auto_exposure is not None else longest

    # Contract ---------------------------------------------------------------------------------------------------------

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if a field is no image of linear colours, or the exposure does not fit the period."""
        check_fit({"": 3}, white_balance=self.white_balance)
        for field, count in columns.items():
            axes = tuple(axis for axis in specs[field].axes if axis != "mount")
            sizes = dict(zip(specs[field].axes, specs[field].shape, strict=True))
            if axes != ("height", "width", "rgb") or sizes["rgb"] != 3:
                raise ValueError(f"an image of linear colours with the axes height, width, rgb, such as {LINEAR}")
            if count >= MAX_BLOCKS:
                raise ValueError(f"an image of fewer than {MAX_BLOCKS // 3} pixels over all mounts")
            if self.color_filter != "none" and min(sizes["height"], sizes["width"]) < 2:
                raise ValueError("an image of at least 2 x 2 pixels, since color_filter is given")
            readout = self.line_time * (sizes["height"] - 1)
            for what, time in (
                ("exposure", self.longest_exposure if self.moves else 0.0),
                ("readout of rows", readout),
            ):
                if time > period * (1.0 + 1e-6):
                    raise ValueError(f"at most the period, {period:g} s, as time for the {what}, not {time:g} s")
        for needed, why in (("intrinsic_matrices", self.vignetting == "cos4"), ("pos_w", self.moves)):
            if why and needed not in specs:
                field = "vignetting" if needed == "intrinsic_matrices" else "subposes, line_time"
                raise ValueError(f"a camera that images a scene, since {field} of the stage needs it")

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return the amounts that may be drawn."""
        names = ("exposure_time", "gain", "read_noise", "dark_current", "blur_radius")
        return {**{name: (getattr(self, name), 1) for name in names}, "white_balance": (self.white_balance, 3)}

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn amounts, and with automatic exposure the exposure of the next frame."""
        out = dict(self.state_specs(key.columns))
        for field, spec in key.specs.items():
            if self.auto_exposure is not None:
                out |= {f"{name}_now_{field}": (image_shape(spec)[0],) for name in ("exposure_time", "gain")}
        return out

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the amounts, and start the exposure from them."""
        super().reset(state, key)
        for field in key.columns if self.auto_exposure is not None else ():
            for name in ("exposure_time", "gain"):
                now, given = state[f"{name}_now_{field}"], state.get(f"{name}_{field}", getattr(self, name))
                torch.where(
                    key.mask[:, None] > 0, torch.as_tensor(given, dtype=now.dtype, device=now.device), now, out=now
                )

    def exposure_of(self, state: Mapping[str, torch.Tensor], key: StageKey, field: str) -> list[Any]:
        """Return exposure time (s) and gain of the next frame as Warp arrays `[env, 1 or mount]`."""
        if self.auto_exposure is not None:
            return [wp.from_torch(state[f"{name}_now_{field}"]) for name in ("exposure_time", "gain")]
        return self.tables(state, key, field)[:2]

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Expose, convert, colour and compress the image (up to seven launches per field)."""
        compute, table = key.compute, normal_table(key.compute.wp_device)
        for field, spec in key.specs.items():
            mounts, height, width = image_shape(spec)
            chip, amounts = self._chip(height, width), Amounts()
            tables = dict(zip(self.amounts(0), self.tables(state, key, field), strict=True))
            amounts.exposure, amounts.gain = self.exposure_of(state, key, field)
            amounts.read_noise, amounts.dark_current = tables["read_noise"], tables["dark_current"]
            amounts.balance = tables["white_balance"]
            values, scratch = column_values(slot[field]), wp.from_torch(key.scratch("image", field))

            def launch(kernel: Any, rows: int, *arguments: Any, mounts: int = mounts) -> None:
                compute.launch(kernel, (mounts, rows), arguments, split=True)

            light, raw = values, values
            if amount_bounds(self.blur_radius)[1] > 0.0:
                is_disk = int(self.point_spread == "disk")
                launch(image_pixels.blur, height, height, width, is_disk, tables["blur_radius"], values, scratch)
                light = scratch
            if self.color_filter != "none":
                raw = scratch
            k = torch.zeros((1, 1, 1, 1), device=compute.device)
            if self.vignetting == "cos4":
                k = truth["intrinsic_matrices"].view(compute.num_envs, -1, 3, 3)
            noise, fixed = key.stream("noise", field), key.stream("pattern", field)
            launch(image_pixels.expose, height, chip, amounts, noise, fixed, table, k, light, raw)
            if self.color_filter != "none":
                launch(image_pixels.demosaic, height, chip, raw, values)
            if self.auto_exposure is not None:
                metering = [self._metering(key.period), values, amounts.exposure, amounts.gain]
                compute.launch(image_pixels.meter, (mounts,), [chip, *metering])
            if self.jpeg_quality is not None:
                divisors = wp.array(image_jpeg.tables(self.jpeg_quality), dtype=wp.float32, device=compute.wp_device)
                lines = (height + 7) // 8 + 2 * ((height + 15) // 16)
                launch(image_jpeg.to_planes, (height + 1) // 2, height, width, values, scratch)
                launch(image_jpeg.compress, lines, height, width, divisors, scratch)
                launch(image_jpeg.from_planes, height, height, width, scratch, values)

    def _chip(self, height: int, width: int) -> Any:
        """Return the parameters for kernels."""
        chip = Chip()
        chip.height, chip.width = height, width
        chip.falloff, chip.shape = {"none": NO_FALLOFF, "cos4": COS4}.get(str(self.vignetting), POLYNOMIAL), wp.vec3()
        if chip.falloff == POLYNOMIAL:
            chip.shape = wp.vec3(*(*self.vignetting, 0.0, 0.0, 0.0)[:3])
        given: Any = (self.exposure_time, self.gain)  # numbers if there is no white_exposure
        white = given[0] * given[1] if self.white_exposure is None else self.white_exposure
        chip.per_second, chip.full_well = 1.0 / white, self.full_well or 0.0
        chip.levels = 0.0 if self.bit_depth is None else 2.0**self.bit_depth - 1.0
        chip.black, chip.dsnu, chip.prnu = self.black_level, self.dsnu, self.prnu
        chip.response, chip.filter = wp.vec3(*self.color_response), wp.vec4i(*FILTERS[self.color_filter])
        return chip

    def _metering(self, period: float) -> Any:
        """Return the exposure control for kernels."""
        assert self.auto_exposure is not None
        auto, metering = self.auto_exposure, Metering()
        metering.target, metering.step, metering.region = auto.target, auto.rate * period, auto.region
        metering.shortest, metering.longest = auto.exposure_time
        metering.least_gain, metering.most_gain = auto.gain
        return metering
