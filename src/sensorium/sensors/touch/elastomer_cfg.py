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
from sensorium.sensors.touch.elastomer_grid import GelLattice, lattice_of
from sensorium.sensors.touch.taxel_cfg import NormalTaxelCfg, SampleCount
from sensorium.spec import Field

LIVE = {"dilate": "dilate_scale", "exponent": "normal_exponent"}
"""Config numbers that can be set per env at run time, by their names in `elastomer_kernels.Law`."""
LIVE_SHEAR = LIVE | {
    "shear": "shear_scale",
    "threshold": "contact_threshold",
    "release": "release",
    "slip": "max_shear",
}
"""Those that apply to shear."""
FFT_FROM = 64
"""Number of probes from which ``method="auto"`` uses the FFT."""


@dataclass(frozen=True, slots=True)
class ElastomerTaxelData:
    """One sample of elastomer taxels; `.data` is the tensor itself."""

    displacement: Annotated[Tensor, Field("m", (3,), frame="link", parity="polar")]
    """Displacement of each marker from its rest position, m if the config's scales are in SI units; see the module."""


Length = Annotated[Float, must(lambda length: 0.0 < length < math.inf, "a finite length above 0, m")]


class ElastomerTaxelCfg(NormalTaxelCfg[ElastomerTaxelData]):
    """Configuration of elastomer taxels. Knobs such as `noise` act on the displacement.

    `dilate_scale`, `normal_exponent` and, with shear, `shear_scale`, `contact_threshold`, `release` and `max_shear` can
    be set per env: ``sensor.set("dilate_scale", 2.0)``. The radius of a probe only enables it: 0 marks an unused place
    of a grid. With shear, `targets` (or `labels`) must select the links that drag the skin.
    """

    lambda_d: Annotated[NonNegative, in_unit("1/m^2")] = 700.0
    """Decay of the dilation with distance, 1/m^2: a pressed place acts as exp(-lambda_d r^2) on others."""
    lambda_s: Annotated[NonNegative, in_unit("1/m^2")] = 300.0
    """Decay of the shear with distance, 1/m^2."""
    dilate_scale: NonNegative = 1.0
    """Factor of the dilation; see the module for its unit."""
    shear_scale: Annotated[NonNegative, in_unit("1/m")] = 1.0
    """Factor of the shear, 1/m (1/m^3 with `area_weighted`); 0 disables shear, and no points are tracked."""
    normal_exponent: Annotated[
        Float,
        must(
            lambda e: 1.0 <= e < math.inf,
            "a finite exponent >= 1",
            "Give at least 1; below 1 the displacement jumps at the first touch.",
        ),
    ] = 2.0
    """Exponent of the depth along the normal; at least 1."""
    compressibility: Annotated[
        Float, must(lambda share: 0.0 <= share <= 1.0, "a number from 0 (incompressible) to 1 (compressible)")
    ] = 1.0
    """Lateral response of the gel, from 1 (local: a Gaussian) to 0 (far-reaching: an inverse square). No effect for a
    layer, see `elastomer_thickness`."""
    elastomer_thickness: Annotated[NonNegative, in_unit("m")] = 0.0
    """Thickness of the gel, m. On a regular grid, a value above 0 makes the gel an incompressible layer of that
    thickness on a rigid backing. For other probes it is the softening length of the inverse square; 0 uses the spacing
    of the probes."""
    contact_threshold: Annotated[NonNegative, in_unit("m")] = 1e-5
    """Depth below the skin at which a point of a surface sticks to the skin, m."""
    release: Annotated[Float, in_unit("m")] = -1e-4
    """Depth at which a point detaches, m; negative above the skin. At most `contact_threshold`. A point also detaches
    if its shape is farther from the skin than the width of the probes."""
    max_shear: Annotated[Length | None, in_unit("m")] = None
    """Largest distance that a point drags the skin, m; beyond it the point slips. None for no limit."""
    n_sample_points: SampleCount = 500
    """Number of points on all tracked surfaces, split by area. Unbounded planes have none."""
    sample_spacing: Annotated[Length | None, in_unit("m")] = None
    """Distance between the points, m; an alternative to their number."""
    area_weighted: bool = False
    """Whether a point is weighted by the area it represents, m^2, which makes the shear independent of the number of
    points. False weights each point by 1, as Genesis does."""
    method: Literal["auto", "fft", "direct"] = "auto"
    """Summation of the dilation: ``"fft"`` on a regular grid, ``"direct"`` probe by probe, or ``"auto"`` for the faster
    one."""

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`."""
        return cls(body="body", probe_local_pos=((0.3, 0.0, 0.0), (0.0, 0.3, -0.1)), targets=".*")

    @field_validator("probe_radius_noise")
    @classmethod
    def _no_radius(cls, value: float) -> float:
        if value != 0.0:
            raise bad("0", "Give `noise`, m, on the displacement, since depths of a gel do not depend on a radius.")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Any:
        if not -float("inf") < self.release <= self.contact_threshold:
            raise bad(
                f"release: a depth up to contact_threshold, {self.contact_threshold:g} m, not {self.release:g}",
                "Give a smaller depth; otherwise a point would detach at once.",
            )
        if self.shear_scale > 0.0 and self.targets is None and self.labels is None:
            raise bad(
                "targets: the links that drag the skin, not None",
                'Select them, e.g. targets="cube", or disable shear with shear_scale=0.',
            )
        if 0.0 < self.compressibility < 1.0 and self.lambda_d == 0.0 and not self.is_layer:
            raise bad("lambda_d: above 0 if compressibility is between 0 and 1", "The Gaussian needs a finite width.")
        self._check_grid()
        return self

    def _check_grid(self) -> None:
        lattice = self.lattice
        if isinstance(lattice, str):
            if self.method == "fft":
                raise bad(f"method: 'direct' or 'auto', since the FFT needs a regular plane grid, and {lattice}")
            if self.elastomer_thickness > 0.0 and self.compressibility == 1.0:
                fix = "Give such a grid, or compressibility below 1, where the thickness softens the inverse square."
                raise bad(f"elastomer_thickness: 0, since a layer needs a regular plane grid, and {lattice}", fix)
        elif self.is_layer and 1 in (lattice.rows, lattice.columns):
            got = f"{lattice.rows} x {lattice.columns}"
            raise bad(f"elastomer_thickness: 0, since a layer needs at least 2 rows and 2 columns, not {got}")

    @cached_property
    def lattice(self) -> GelLattice | str:
        """The regular grid formed by the probes, or a text on why they form none."""
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
