"""Configs of appearance: colours, materials and lights that are set in each environment at reset."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from sensorium.cfg.base import Cfg, bad, must
from sensorium.cfg.knobs import Amount, is_within

_SHARE = must(lambda amount: amount is None or is_within(amount, 0.0, 1.0), "numbers from 0 to 1")
_AT_LEAST_0 = must(lambda amount: amount is None or is_within(amount, 0.0, math.inf), "numbers >= 0")


class AppearanceCfg(Cfg):
    """Base of the appearance of shapes and of lights.

    A quantity is a number, a vector or a distribution, which is drawn for each environment and each shape or light at
    every reset. The numbers are a pure function of the scene's seed, the environment and its episode. Normal
    distributions are clipped to the range of the quantity.
    """

    quantities: ClassVar[tuple[str, ...]] = ()
    """Fields with a quantity."""
    prefix: ClassVar[str] = ""
    """Prefix of the quantities in `geometry.appearance.VARIED`."""

    @model_validator(mode="after")
    def _sets_something(self) -> Self:
        if not self.given:
            raise bad(f"at least one of {', '.join(self.quantities)}")
        return self

    @property
    def given(self) -> tuple[str, ...]:
        """The quantities that it sets."""
        return tuple(name for name in self.quantities if getattr(self, name) is not None)


class ShapeLookCfg(AppearanceCfg):
    """Appearance of some shapes, for colour images."""

    quantities: ClassVar[tuple[str, ...]] = ("rgba", "emission", "specular", "shininess", "mirror", "texture")

    shapes: str | tuple[str, ...] = ".*"
    """Patterns of the names of geoms or bodies."""
    rgba: Annotated[Amount | None, _SHARE, "0 to 1"] = None
    """Red, green and blue, 0 to 1, and the opacity if there are four numbers."""
    emission: Annotated[Amount | None, _SHARE, "0 to 1"] = None
    """Light that it emits, as a factor of its colour."""
    specular: Annotated[Amount | None, _SHARE, "0 to 1"] = None
    """Brightness of highlights, 0 to 1."""
    shininess: Annotated[Amount | None, _SHARE, "0 to 1"] = None
    """Sharpness of highlights, 0 to 1."""
    mirror: Annotated[Amount | None, _SHARE, "0 to 1"] = None
    """Brightness of the mirrored scene, 0 to 1, for the first plane or box that mirrors."""
    texture: tuple[str, ...] | None = None
    """Names of textures of the model, one of which is chosen; ``""`` is no texture."""


class LightLookCfg(AppearanceCfg):
    """Appearance of some lights, for colour images."""

    prefix: ClassVar[str] = "light_"
    quantities: ClassVar[tuple[str, ...]] = ("ambient", "diffuse", "specular", "pos", "direction", "is_active")

    lights: str | tuple[str, ...] = ".*"
    """Patterns of the names of lights; the light at the camera is ``"headlight"``."""
    ambient: Annotated[Amount | None, _AT_LEAST_0] = None
    """Color of the light that reaches surfaces of any orientation."""
    diffuse: Annotated[Amount | None, _AT_LEAST_0] = None
    """Color of the light that matte surfaces scatter."""
    specular: Annotated[Amount | None, _AT_LEAST_0] = None
    """Color of highlights."""
    pos: Amount | None = None
    """Position on the light's body, m."""
    direction: Amount | None = None
    """Direction of its rays on the body."""
    is_active: Amount | None = None
    """Whether it shines: 1 or 0, e.g. ``Choice((0, 1))``."""
