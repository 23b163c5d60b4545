"""Data and configuration of elastomer taxels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cfg import Float, NonNegative, bad, in_unit, must
from sensorium.sensors.touch.elastomer_grid import Lattice, lattice_of
from sensorium.sensors.touch.taxel_cfg import NormalTaxelCfg, SampleCount
from sensorium.spec import Field

LIVE = {"dilate": "dilate_scale", "exponent": "normal_exponent"}
"""Numbers of the config that can be set per env while the scene runs, by their names in `elastomer_kernels.Law`."""
LIVE_SHEAR = LIVE | {
    "shear": "shear_scale",
    "threshold": "contact_threshold",
    "release": "release",
    "slip": "max_shear",
}
"""Those where there is shear."""
FFT_FROM = 64
"""Probes from which on ``method="auto"`` takes the FFT."""


@dataclass(frozen=True, slots=True)
class ElastomerTaxelData:
    """One sample of elastomer taxels: `.data` is the tensor itself."""

    displacement: Annotated[Tensor, Field("m", (3,), frame="link")]
    """How far each marker is from its place at rest, m, where the config's scales are in SI units; see the module."""


Length = Annotated[Float, must(lambda length: 0.0 < length < math.inf, "a finite length above 0, m")]


class ElastomerTaxelCfg(NormalTaxelCfg[ElastomerTaxelData]):
    """Configuration of elastomer taxels. Knobs such as `noise` act on the displacement.

    `dilate_scale`, `normal_exponent` and, where there is shear, `shear_scale`, `contact_threshold`, `release` and
    `max_shear` may be set per env: ``sensor.set("dilate_scale", 2.0)``. The radius of a probe only says whether it is
    one: 0 fills a place of a grid. Where there is shear, `targets` (or `labels`) must say what drags.
    """

    lambda_d: Annotated[NonNegative, in_unit("1/m^2")] = 700.0
    """How fast a pressed place stops to act on others, 1/m^2: it falls as exp(-lambda_d r^2)."""
    lambda_s: Annotated[NonNegative, in_unit("1/m^2")] = 300.0
    """How fast a dragged point does, 1/m^2."""
    dilate_scale: NonNegative = 1.0
    """Factor of the dilation; for its unit see the module."""
    shear_scale: Annotated[NonNegative, in_unit("1/m")] = 1.0
    """Factor of the shear, 1/m (1/m^3 with `area_weighted`); 0 leaves shear out, and no points are followed."""
    normal_exponent: Annotated[
        Float,
        must(lambda e: 1.0 <= e < math.inf, "a finite exponent >= 1", "Below 1 it jumps at the first touch."),
    ] = 2.0
    """Exponent of the depth along the normal; at least 1."""
    compressibility: Annotated[
        Float, must(lambda share: 0.0 <= share <= 1.0, "a number from 0 (incompressible) to 1 (compressible)")
    ] = 1.0
    """How the gel gives aside, from 1 (locally: a Gaussian) to 0 (far: an inverse square). It says nothing where there
    is a layer, see `elastomer_thickness`."""
    elastomer_thickness: Annotated[NonNegative, in_unit("m")] = 0.0
    """Thickness of the gel, m. On a regular grid, above 0 the gel is an incompressible layer of that thickness on a
    rigid backing. For other probes it is the length that softens the inverse square; 0 takes the spacing of the
    probes."""
    contact_threshold: Annotated[NonNegative, in_unit("m")] = 1e-5
    """Depth below the skin at which a point of a surface sticks to it, m."""
    release: Annotated[Float, in_unit("m")] = -1e-4
    """Depth at which it comes off, m; negative above the skin. At most `contact_threshold`. A point whose shape is away
    from the skin by more than the probes are wide comes off in any case."""
    max_shear: Annotated[Length | None, in_unit("m")] = None
    """Farthest that a point drags the skin along, m: beyond it slips. None for no bound."""
    n_sample_points: SampleCount = 500
    """Points on all surfaces that are tracked, split by area. Unbounded planes have none."""
    sample_spacing: Annotated[Length | None, in_unit("m")] = None
    """How far apart the points are, m, instead of how many they are."""
    area_weighted: bool = False
    """Whether a point weighs as the area that it stands for, m^2, so that the shear does not depend on how many points
    there are. False weighs each as 1, as Genesis does."""
    method: Literal["auto", "fft", "direct"] = "auto"
    """How the dilation is summed: ``"fft"`` on a regular grid, ``"direct"`` probe by probe, or the one that suits."""

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`."""
        return cls(body="body", probe_local_pos=((0.3, 0.0, 0.0), (0.0, 0.3, -0.1)), targets=".*")

    @field_validator("probe_radius_noise")
    @classmethod
    def _no_radius(cls, value: float) -> float:
        if value != 0.0:
            raise bad("0", "Depths of a gel do not depend on a radius. Give `noise`, m, on the displacement.")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Any:
        if not -float("inf") < self.release <= self.contact_threshold:
            raise bad(
                f"release: a depth up to contact_threshold, {self.contact_threshold:g} m, not {self.release:g}",
                "A point that has just stuck would come off at once.",
            )
        if self.shear_scale > 0.0 and self.targets is None and self.labels is None:
            raise bad(
                "targets: the links whose surfaces drag the skin, not None",
                'Name them, e.g. targets="cube"; shear_scale=0 leaves shear out.',
            )
        if 0.0 < self.compressibility < 1.0 and self.lambda_d == 0.0 and not self.is_layer:
            raise bad("lambda_d: above 0 where compressibility is between 0 and 1", "The Gaussian has no peak.")
        self._check_grid()
        return self

    def _check_grid(self) -> None:
        lattice = self.lattice
        if isinstance(lattice, str):
            if self.method == "fft":
                raise bad(f"method: 'direct' or 'auto', for the FFT needs a regular plane grid, and {lattice}")
            if self.elastomer_thickness > 0.0 and self.compressibility == 1.0:
                fix = "Give such a grid, or compressibility below 1, whose inverse square the thickness softens."
                raise bad(f"elastomer_thickness: 0, for a layer needs a regular plane grid, and {lattice}", fix)
        elif self.is_layer and 1 in (lattice.rows, lattice.columns):
            got = f"{lattice.rows} x {lattice.columns}"
            raise bad(f"elastomer_thickness: 0, for a layer needs at least 2 rows and 2 columns, not {got}")

    @cached_property
    def lattice(self) -> Lattice | str:
        """The regular grid that the probes are, or, in words, why they are none."""
        return lattice_of(np.array(self.probe_local_pos, dtype=np.float64))

    @property
    def is_layer(self) -> bool:
        """Whether the gel is a layer on a backing."""
        return self.elastomer_thickness > 0.0 and not isinstance(self.lattice, str)

    @property
    def uses_fft(self) -> bool:
        """Whether the dilation is summed by FFT."""
        if self.method == "auto":
            return self.num_probes >= FFT_FROM and not isinstance(self.lattice, str)
        return self.method == "fft"


__all__ = ["LIVE", "LIVE_SHEAR", "ElastomerTaxelCfg", "ElastomerTaxelData"]
