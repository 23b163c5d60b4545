"""Sensors in the live view: what is drawn there, with the nodes of a recording stand-in for the page's 3-D scene."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synthetic as syn

import sensorium as sn
from sensorium.compat import isaaclab
from sensorium.readings import DebugShape
from sensorium.view.live.overlays import Overlay, Overlays

from .test_isaaclab import SENSORS, built

MOTION = ("velocity", "acceleration", "gravity", "magnetic")
BLUE = isaaclab.markers.PreviewSurfaceCfg(diffuse_color=(0.0, 0.2, 1.0))
MARKERS = isaaclab.markers.CONTACT_SENSOR_MARKER_CFG.replace(prim_path="/Visuals/Contact")
MARKERS.markers["contact"].visible = False
MARKERS.markers["no_contact"] = isaaclab.markers.SphereCfg(radius=0.125, visual_material=BLUE)
STYLED = ("ContactSensor", "FrameTransformer", "RayCaster", "RayCasterCamera", "Imu")


class Nodes:
    """A stand-in for `viser.SceneApi` that lists the nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("add_"):
            raise AttributeError(name)

        def add(path: str, *values: Any, **options: Any) -> Any:
            node = SimpleNamespace(kind=name.removeprefix("add_"), values=values, options=options, colors=None,
                                   batched_colors=None)  # fmt: skip
            node.remove = lambda: self.nodes.pop(path)
            self.nodes[path] = node
            return node

        return add


class View:
    """What a page draws of environment 0 of a scene."""

    def __init__(self, scene: sn.Scene) -> None:
        self._scene, self.scene = scene, Nodes()
        self._overlays = Overlays(self.scene)

    def nodes(self) -> list[Any]:
        """Return the nodes of the present state."""
        readings = self._scene.publish(["x"], envs=slice(0, 1), truth=True, poses=True)
        with self._scene.local_client(timeout=120.0) as client:
            self._overlays.describe(client.streams)
            drawings = client.drawings()
        drawn = sorted(drawings.drawn)
        self._overlays.show(readings, None, drawings, lambda name: True, drawn, drawn)
        return list(self.scene.nodes.values())


def shown(name: str, **fields: Any) -> tuple[sn.Scene, View]:
    """Return a scene with a sensor that has something to show, and what a page draws of it."""
    scene = built(name, **fields)
    for report in scene.engine.contacts:
        scene.engine.contacts[report] = 5.0
    scene.update()
    return scene, View(scene)


@pytest.mark.parametrize("name", SENSORS)
def test_a_sensor_is_drawn_while_debug_vis_is_on(name: str) -> None:
    """Something appears by the config, vanishes by `set_debug_vis` and comes back; a class without drawing has none."""
    draws = name != "SensorBase"
    scene, view = shown(name, debug_vis=True)
    assert scene["x"].has_debug_vis_implementation is draws is scene["x"].debug_vis
    assert bool(view.nodes()) is draws
    assert scene["x"].set_debug_vis(False) is draws
    assert not view.nodes()
    assert scene["x"].set_debug_vis(True) is draws
    assert bool(view.nodes()) is draws
    scene, view = shown(name)
    assert not view.nodes()


@pytest.mark.parametrize("name", STYLED)
def test_visualizer_cfg_sets_the_style_and_acts_only_with_debug_vis(name: str) -> None:
    """Isaac Lab's markers set it: the first visible one has the colour, and the size as its diameter."""
    needed = {
        "RayCaster": {"mesh_prim_paths": ["/World"], "pattern_cfg": sn.patterns.GridPatternCfg()},
        "RayCasterCamera": {
            "mesh_prim_paths": ["/World"], "pattern_cfg": sn.patterns.PinholeCameraPatternCfg(width=4, height=3)
        },
        "FrameTransformer": {"target_frames": [isaaclab.FrameTransformerCfg.FrameCfg(prim_path="/World/body")]},
    }  # fmt: skip
    given = {"prim_path": "/World/body", **needed.get(name, {})}
    style = getattr(isaaclab, f"{name}Cfg")(**given, visualizer_cfg=MARKERS).visualizer_cfg
    scene, view = shown(name, debug_vis=True, visualizer_cfg=style)
    nodes = view.nodes()
    assert nodes
    for node in nodes:
        if node.kind == "batched_axes":
            assert node.options["axes_length"] == 0.25
            continue
        if node.kind == "batched_meshes_simple":  # balls, whose colours are linear
            assert (node.options["batched_colors"] == (0, 7, 255)).all()
            assert 2.0 * np.abs(node.values[0]).max() == pytest.approx(0.25, rel=0.01)
            continue
        if node.kind == "point_cloud":  # the pixels of an image
            continue
        assert (np.reshape(node.values[1], (-1, 3)) == (0, 51, 255)).all()
        if name == "RayCasterCamera":  # the edges of its frustum
            edges = node.values[0]
            assert np.linalg.norm(edges[:4, 1].mean(axis=0) - edges[0, 0]) == pytest.approx(0.25, rel=1e-3)
        else:
            assert 0.25 in (*node.options.values(), 2.0 * node.options.get("shaft_radius", 0.0))
    assert all(shape.size == 0.25 and shape.colors is None for shape in scene["x"].drawings())
    scene, view = shown(name, visualizer_cfg=style)
    assert not view.nodes()


def test_a_node_is_kept_while_the_number_of_its_items_varies() -> None:
    """It shows each item in its colour, repeats the last one, and omits those that are not finite."""
    scene, random = Nodes(), np.random.default_rng(0)
    overlay, before = Overlay(scene, "x"), None
    for count in (6, 7, 8):
        points, colors = random.normal(size=(count, 3)), random.integers(0, 2, (count, 3))
        points[2] = np.nan
        overlay.show([DebugShape("points", points, colors=colors.astype(np.float32))])
        (node,) = scene.nodes.values()
        shown = (node.values[3], node.options["batched_colors"])
        if count > 6:
            shown = (node.batched_positions, node.batched_colors)
        found = np.unique(np.concatenate(shown, axis=1), axis=0)
        expected = np.delete(np.concatenate([points, 255 * colors], axis=1), 2, axis=0)
        np.testing.assert_allclose(found, expected[np.argsort(expected[:, 0])], atol=1e-6)
        assert before in (None, node)
        before = node
    overlay.show([])
    assert not scene.nodes


def test_markers_have_the_colours_and_sizes_of_isaac_lab() -> None:
    """A copy is independent; an invisible marker, a missing colour and the scale of an arrow leave the viewer's own."""
    markers = isaaclab.markers
    assert markers.CONTACT_SENSOR_MARKER_CFG.markers["contact"].visible
    frame = markers.FRAME_MARKER_CFG.copy()
    frame.markers["frame"].scale = (0.1, 0.1, 0.1)
    red, cuboid = (1.0, 0.0, 0.0), {"box": markers.CuboidCfg(size=(0.3, 0.1, 0.1))}
    hidden = {"hit": markers.SphereCfg(radius=0.1, visible=False)}
    for given, color, size in (
        (markers.RAY_CASTER_MARKER_CFG, red, 0.04),
        (markers.CONTACT_SENSOR_MARKER_CFG, red, 0.04),
        (markers.FRAME_MARKER_CFG, None, 0.5),
        (frame, None, 0.1),
        (markers.BLUE_ARROW_X_MARKER_CFG, (0.0, 0.0, 1.0), None),
        (markers.VisualizationMarkersCfg(prim_path="/V", markers=cuboid), None, 0.3),
        (markers.VisualizationMarkersCfg(markers=hidden), None, None),
    ):
        cfg = isaaclab.ImuCfg(prim_path="/World/body", visualizer_cfg=given)
        assert cfg.visualizer_cfg == sn.VisualizerCfg(color=color, size=size)
        assert sn.ImuCfg.from_dict(cfg.to_dict()).visualizer_cfg == cfg.visualizer_cfg
    with pytest.raises(sn.ConfigError, match="at least one marker by name"):
        isaaclab.ImuCfg(prim_path="/World/body", visualizer_cfg=markers.VisualizationMarkersCfg(markers={}))


def test_visualizer_cfg_selects_the_field() -> None:
    """The angular velocity is drawn instead of the specific force."""
    style = sn.VisualizerCfg(field="ang_vel_b")
    scene = syn.world([sn.ImuCfg(name="x", body="body", visualizer_cfg=style)], provides=("pose", *MOTION))
    (arrow,) = scene["x"].drawings()
    lengths = np.linalg.norm(arrow.items[:, 1] - arrow.items[:, 0], axis=-1)
    np.testing.assert_allclose(lengths, 0.1 * scene["x"].ground_truth.ang_vel_b.norm(dim=-1), atol=1e-5)
