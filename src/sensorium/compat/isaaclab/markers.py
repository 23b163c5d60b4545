"""The markers of Isaac Lab: a sensor takes the colour and the size of its first visible marker.

Viewers draw their own shapes, not the meshes of the markers.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from sensorium.cfg import bad
from sensorium.compat.aliases import AliasedCfg
from sensorium.compat.isaaclab.scenes import configclass
from sensorium.measurement.sensor_cfg import VisualizerCfg


@configclass
class PreviewSurfaceCfg:
    """Material of a marker."""

    diffuse_color: tuple[float, float, float] = (0.18, 0.18, 0.18)
    """Colour: red, green and blue from 0 to 1."""
    roughness: float = 0.5
    """No effect."""


@configclass
class MarkerCfg:
    """Drawn shape of any kind, under the names of its kinds: a sphere has a radius, a mesh a scale."""

    radius: float | None = None
    """Half of the size, m."""
    scale: tuple[float, float, float] | None = None
    """Scale of a mesh; if all three are equal, the size, e.g. the length of the axes of a frame, m."""
    size: tuple[float, float, float] | None = None
    """Edges of a box; the first one is the size, m."""
    visual_material: PreviewSurfaceCfg | None = None
    """Material; None for the viewer's colour."""
    visible: bool = True
    """Whether the marker is drawn."""
    usd_path: str = ""
    """No effect: the mesh is not loaded."""
    height: float | None = None
    """No effect."""


SphereCfg = CuboidCfg = CylinderCfg = UsdFileCfg = MarkerCfg


@configclass
class VisualizationMarkersCfg:
    """Markers of a sensor, for its `visualizer_cfg`."""

    markers: dict[str, MarkerCfg]
    """Markers by name."""
    prim_path: str | None = None
    """No effect."""


def style_of(given: Any) -> Any:
    """Return the style that markers describe; any other value unchanged. Raises as a validator does."""
    if not isinstance(given, VisualizationMarkersCfg):
        return given
    if not isinstance(given.markers, dict) or not given.markers:
        raise bad("at least one marker by name", 'Write markers={"hit": SphereCfg(radius=0.02)}.')
    marker = next((each for each in given.markers.values() if each.visible), MarkerCfg())
    size = marker.size[0] if marker.size else None if marker.radius is None else 2.0 * marker.radius
    if marker.scale and len({*marker.scale}) == 1:
        size = marker.scale[0]
    return VisualizerCfg(color=getattr(marker.visual_material, "diffuse_color", None), size=size)


Style = Annotated[VisualizerCfg | None, BeforeValidator(style_of)]


class MarkedCfg(AliasedCfg):
    """Config of a sensor that can be drawn with markers."""

    visualizer_cfg: Style = None
    """Markers, or a style. Only the colour and the size of the first visible marker count."""


def _markers(**shapes: Any) -> VisualizationMarkersCfg:
    """Return markers by name, from the colour and the other fields of each."""
    return VisualizationMarkersCfg(
        markers={
            name: MarkerCfg(visual_material=color and PreviewSurfaceCfg(diffuse_color=color), **fields)
            for name, (color, fields) in shapes.items()
        }
    )


_RED, _GREEN, _BLUE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
_BALL, _SMALL, _ARROW = {"radius": 0.02}, {"radius": 0.01}, {"scale": (1.0, 0.1, 0.1)}
_HIDDEN, _LINE = {"visible": False}, {"radius": 0.002, "height": 1.0}
RAY_CASTER_MARKER_CFG = _markers(hit=(_RED, _BALL))
CONTACT_SENSOR_MARKER_CFG = _markers(contact=(_RED, _BALL), no_contact=(_GREEN, _BALL | _HIDDEN))
DEFORMABLE_TARGET_MARKER_CFG = _markers(target=((1.0, 0.75, 0.8), _BALL))
VISUO_TACTILE_SENSOR_MARKER_CFG = _markers(tacsl_pts=(_BLUE, {"radius": 0.0002}))
FRAME_MARKER_CFG = _markers(frame=(None, {"scale": (0.5, 0.5, 0.5)}), connecting_line=((1.0, 1.0, 0.0), _LINE))
RED_ARROW_X_MARKER_CFG = _markers(arrow=(_RED, _ARROW))
BLUE_ARROW_X_MARKER_CFG = _markers(arrow=(_BLUE, _ARROW))
GREEN_ARROW_X_MARKER_CFG = _markers(arrow=(_GREEN, _ARROW))
CUBOID_MARKER_CFG = _markers(cuboid=(_RED, {"size": (0.1, 0.1, 0.1)}))
SPHERE_MARKER_CFG = _markers(sphere=(_RED, {"radius": 0.05}))
POSITION_GOAL_MARKER_CFG = _markers(
    target_far=(_RED, _SMALL), target_near=(_GREEN, _SMALL), target_invisible=(_BLUE, _SMALL | _HIDDEN)
)
