"""Appearance of shapes, and the lights that shine on them: plain NumPy data with which an engine describes its world.

Colours are those of a display, 0 to 1 (sRGB), as in MuJoCo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sensorium.errors import ModelError, listed, shown

Vec3 = tuple[float, float, float]
LightKind = Literal["head", "directional", "spot", "point"]
LIGHT_KINDS: tuple[LightKind, ...] = ("head", "directional", "spot", "point")
"""Kinds of lights; the index of a kind is its number in kernels."""
TRACKING = ("fixed", "position", "target")
MAX_SHADOWS = 31
"""Maximum number of lights that cast shadows."""


@dataclass(frozen=True, eq=False, slots=True)
class Texture:
    """An image on surfaces, or the six sides of a cube around them.

    Args:
        pixels: uint8. An image is `[row, column, channel]` with 3 or 4 channels, and its texture coordinates (0, 0) are
            at the first row and column. A cube is `[6, row, column, 3]`, with the sides +x, -x, +y, -y, +z and -z in
            OpenGL's orientation.
        name: unique name.

    Raises:
        ModelError: the pixels have another type or shape.
    """

    pixels: NDArray[np.uint8]
    name: str

    def __init__(self, pixels: ArrayLike, name: str) -> None:
        array = np.array(pixels)
        is_cube = array.ndim == 4 and array.shape[0] == 6 and array.shape[1] == array.shape[2]
        if (
            array.dtype != np.uint8
            or 0 in array.shape
            or not (array.ndim == 3 or is_cube)
            or array.shape[-1] not in (3, 4)
        ):
            raise ModelError(
                f"texture {name!r}: pixels: got {array.dtype} of shape {array.shape}, expected uint8 [row, column, "
                "3 or 4] or, for a cube, [6, size, size, 3]."
            )
        array.flags.writeable = False
        object.__setattr__(self, "pixels", array)
        object.__setattr__(self, "name", name)

    def __repr__(self) -> str:
        return f"Texture({self.name!r}, {' x '.join(map(str, self.pixels.shape))})"

    @property
    def is_cube(self) -> bool:
        """Whether it is a cube."""
        return self.pixels.ndim == 4


@dataclass(frozen=True, slots=True)
class Material:
    """How a surface reflects light, besides its colour.

    Args:
        emission: light that it emits, as a factor of its colour.
        specular: brightness of highlights, 0 to 1.
        shininess: sharpness of highlights, 0 to 1.
        mirror: brightness of the mirrored scene, 0 to 1, for planes and the upper side of boxes (MuJoCo's reflectance).
        texture: image on the surface, which is multiplied by its colour.
        repeat: how often an image is repeated along its two axes.
        is_uniform: whether `repeat` counts per metre (per two metres for a plane without bounds) instead of per shape.
    """

    emission: float = 0.0
    specular: float = 0.5
    shininess: float = 0.5
    mirror: float = 0.0
    texture: Texture | None = None
    repeat: tuple[float, float] = (1.0, 1.0)
    is_uniform: bool = False


PLAIN = Material()
"""The material of a shape without a given one."""


@dataclass(frozen=True, slots=True)
class Light:
    """One light.

    Args:
        kind: ``"directional"``, ``"spot"``, ``"point"``, or ``"head"``: a directional light along the camera's axis.
        name: unique name.
        body: row of its body in `engine.names("body")`, -1 for the world.
        pos: position on the body, m.
        direction: direction of its rays on the body.
        tracking: ``"fixed"`` moves and turns with the body, ``"position"`` follows `points` without turning, and
            ``"target"`` moves with the body and looks at `points`.
        points: weighted points that it tracks: body, weight and position on the body (m); empty for the body's origin.
        ambient: light that reaches surfaces of any orientation.
        diffuse: light that matte surfaces scatter.
        specular: light of highlights.
        attenuation: constant, linear (1/m) and quadratic (1/m^2) factor of the distance.
        cutoff_deg: half angle of the cone of a spot, degrees.
        exponent: exponent of the cosine of the angle within the cone.
        casts_shadow: whether shapes block it.
        is_active: whether it shines.

    Raises:
        ModelError: an invalid field.
    """

    kind: LightKind
    name: str
    body: int = -1
    pos: Vec3 = (0.0, 0.0, 0.0)
    direction: Vec3 = (0.0, 0.0, -1.0)
    tracking: Literal["fixed", "position", "target"] = "fixed"
    points: tuple[tuple[int, float, Vec3], ...] = ()
    ambient: Vec3 = (0.0, 0.0, 0.0)
    diffuse: Vec3 = (0.7, 0.7, 0.7)
    specular: Vec3 = (0.3, 0.3, 0.3)
    attenuation: Vec3 = (1.0, 0.0, 0.0)
    cutoff_deg: float = 45.0
    exponent: float = 10.0
    casts_shadow: bool = True
    is_active: bool = True

    def __post_init__(self) -> None:
        for field, known in (("kind", LIGHT_KINDS), ("tracking", TRACKING)):
            if getattr(self, field) not in known:
                raise self._error(field, f"one of {listed(known)}")
        for field in ("pos", "direction", "ambient", "diffuse", "specular", "attenuation"):
            values = tuple(float(value) for value in getattr(self, field))
            if len(values) != 3 or not np.isfinite(values).all():
                raise self._error(field, "3 finite numbers")
            object.__setattr__(self, field, values)
        if not any(self.direction):
            raise self._error("direction", "a vector that is not zero")
        if not 0.0 < self.cutoff_deg <= 180.0:
            raise self._error("cutoff_deg", "an angle above 0 and up to 180 degrees")

    def _error(self, field: str, expected: str) -> ModelError:
        return ModelError(f"light {self.name!r}: {field}: got {shown(getattr(self, field))}, expected {expected}.")


HEADLIGHT = Light("head", "headlight", ambient=(0.1,) * 3, diffuse=(0.4,) * 3, specular=(0.5,) * 3, casts_shadow=False)
"""The headlight of a model that says nothing about lights."""


@dataclass(frozen=True, slots=True)
class Fog:
    """Fog, in which colours fade with the distance: to the image plane for pinholes, to the camera for other lenses.

    Args:
        start: distance at which it starts, m.
        end: distance at which only fog is visible, m.
        rgb: its colour.
    """

    start: float
    end: float
    rgb: Vec3


@dataclass(frozen=True, slots=True)
class Sky:
    """Background, visible where there is no shape.

    Args:
        texture: a cube around the camera, whose sides are those of a cube turned by 90 degrees about x: its +y side is
            up.
        distance: radius of the sky, m; surfaces farther away are not visible.
        haze_rgb: colour of the haze over the horizon of an unbounded plane.
        haze_height: share of the sky's radius over which the plane fades into the haze; 0 for none.
    """

    texture: Texture
    distance: float = 1e6
    haze_rgb: Vec3 = (1.0, 1.0, 1.0)
    haze_height: float = 0.0


@dataclass(frozen=True, slots=True)
class Lighting:
    """Lights, sky and fog of one environment, and the textures that its shapes can have.

    Args:
        lights: the lights.
        sky: the sky; None for black.
        fog: the fog; None for none.
        textures: further textures besides those of the shapes, to choose from.
        fault: why colours cannot be computed; empty if they can.

    Raises:
        ModelError: two lights have the same name, or too many lights cast shadows.
    """

    lights: tuple[Light, ...] = (HEADLIGHT,)
    sky: Sky | None = None
    fog: Fog | None = None
    textures: tuple[Texture, ...] = ()
    fault: str = ""

    def __post_init__(self) -> None:
        names = [light.name for light in self.lights]
        for name in names:
            if names.count(name) > 1:
                raise ModelError(f"light {name!r}: {names.count(name)} lights have this name, give each a unique name.")
        if (count := sum(light.casts_shadow for light in self.lights)) > MAX_SHADOWS:
            raise ModelError(f"lights: {count} of them cast shadows, expected at most {MAX_SHADOWS}.")


Varied = dict[str, Any]
"""Quantity -> values `[1 or env, shape, ...]` or `[1 or env, light, ...]`, NumPy or torch; see `VARIED`."""
VARIED = {
    "rgba": 4, "emission": 1, "specular": 1, "shininess": 1, "mirror": 1, "texture": 1, "light_pos": 3,
    "light_direction": 3, "light_ambient": 3, "light_diffuse": 3, "light_specular": 3, "light_is_active": 1,
}  # fmt: skip
"""Quantities of shapes and of lights that may differ between environments, and their numbers of values. A texture is a
row of `Lighting.textures`, -1 for none."""
