"""Data and configuration of a temperature grid; see `temperature_grid`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ValidationInfo, field_validator
from pydantic import Field as PydanticField
from torch import Tensor

from sensorium.cfg import Cfg, Float, NonNegative, OffsetCfg, Positive, Share, as_plain, bad, in_unit, must, numbers_in
from sensorium.sensors.frames.targets_cfg import TargetsCfg
from sensorium.shapes.scene import Geometry
from sensorium.spec import Field

ABSOLUTE_ZERO = -273.15
"""0 K in degrees Celsius."""
Celsius = Annotated[
    Float,
    must(
        lambda value: ABSOLUTE_ZERO <= value < 1e4,
        "degrees Celsius, -273.15 to 10000",
        "Convert kelvin by subtracting 273.15.",
    ),
]
Line = tuple[Float, ...]
Cells = tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True)
class TemperatureGridData:
    """Temperatures of the cells of a link."""

    temperature: Annotated[Tensor, Field("degC", low=ABSOLUTE_ZERO)]
    """Temperature of each cell, `[env, mount, x, y, z]`, degC, along the axes of the link; a cell outside the link's
    shapes shows the temperature of the nearest cell inside."""


class LinkThermalCfg(Cfg):
    """Material and initial temperature of a link. The defaults are those of a moulded plastic such as ABS."""

    base_temperature: Celsius = 21.0
    """Temperature at the start of an episode, degC; constant for a link that is not simulated."""
    conductivity: Positive = 0.2
    """Thermal conductivity, W/(m K)."""
    density: Positive = 1050.0
    """Density, kg/m^3."""
    specific_heat: Positive = 1400.0
    """Specific heat capacity, J/(kg K)."""
    emissivity: Share = 0.9
    """Emissivity relative to a black body, 0 to 1; 0 for no radiation (polished metal is near 0.05)."""


class TemperatureGridCfg(TargetsCfg[TemperatureGridData]):
    """Configuration of a temperature grid. Select bodies: each mount is one whole link.

    `targets`, `exclude` and related fields select the shapes that the links exchange heat with on contact.
    """

    grid_size: Annotated[
        tuple[int, int, int],
        must(
            lambda counts: min(counts) >= 1 and math.prod(counts) <= 100_000,
            "three whole numbers from 1 up, at most 100000 cells in all",
        ),
    ] = (1, 1, 1)
    """Number of cells along the link's x, y and z axis."""
    properties: dict[str, LinkThermalCfg] = PydanticField(default_factory=dict)
    """Materials by name or full-match pattern of links (``"world"`` means the world); the first match applies."""
    default_properties: LinkThermalCfg = LinkThermalCfg()
    """Material of links that match no pattern."""
    ambient_temperature: Annotated[Celsius, in_unit("degC")] = 21.0
    """Temperature of the air, and of the walls for radiation, degC."""
    convection: NonNegative = 5.0
    """Heat transfer coefficient to the air, W/(m^2 K); 2 to 25 for free convection in air."""
    heat_generation: Annotated[Float | Cells | None, BeforeValidator(as_plain), in_unit("W")] = None
    """Heat released inside, W: one number for the whole link, spread evenly over its volume, or one per cell
    `[x][y][z]`. ``sensor.set("heat_generation", watts, env_ids)`` changes it, for instance to a motor's losses. None
    takes no memory and cannot be set."""
    contact_conductance: Positive | None = None
    """Conductance of touching surfaces, W/(m^2 K), in series with half a cell on either side; None means perfect
    contact."""
    contact_distance: Annotated[Positive, in_unit("m")] = 0.001
    """Distance within which a surface touches, m. Penetrating surfaces touch as well."""
    surface_samples: Annotated[int, must(lambda count: 8 <= count <= 100_000, "a whole number from 8 to 100000")] = 512
    """Approximate number of points that represent the surface of each link; contact areas are sums of their areas."""
    simulate_all_link_temperatures: bool = False
    """Whether links without a grid have one variable temperature for the whole link. Otherwise, and if static, they
    keep their base temperature."""
    sensor_time_constant: Annotated[Positive | None, in_unit("s")] = None
    """Time constant of the sensing elements, s, on the measured branch only; None for no lag."""
    geometry: Geometry = "collision"
    """Shapes that the links consist of and can touch: ``"collision"``, ``"visual"``, ``"all"`` or ``"any"``."""

    @field_validator("offset")
    @classmethod
    def _offset(cls, value: OffsetCfg) -> OffsetCfg:
        if value != OffsetCfg():
            raise bad("no offset", "Omit it, since the grid always covers the whole link, along the link's own axes.")
        return value

    @field_validator("heat_generation")
    @classmethod
    def _heat(cls, value: Any, info: ValidationInfo) -> Any:
        grid = info.data.get("grid_size")
        if value is None or grid is None:
            return value
        try:
            watts = numbers_in(value)
        except ValueError:
            watts = np.zeros((0, 0))
        if watts.shape not in ((), grid):
            raise bad(f"a number, W, or one per cell, {list(grid)}")
        if not np.isfinite(watts).all():
            raise bad("finite numbers, W")
        return value

    def properties_of(self, links: tuple[str, ...]) -> Mapping[str, LinkThermalCfg]:
        """Return the material of each link.

        Raises:
            SelectionError: a pattern matches no link.
        """
        from sensorium.world.select import match_names

        found: dict[str, LinkThermalCfg] = {}
        for pattern, each in self.properties.items():
            config = self.title
            for name in match_names(pattern, links, config=config, field="properties", what="link"):
                found.setdefault(name, each)
        return {name: found.get(name, self.default_properties) for name in links}
