"""Ids and depths of the camera against MuJoCo's OpenGL renderer, on robots and rooms.

The renderer draws the same elements as the camera: geoms, tendons, and sites where the camera shows them. Skins and the
other decorations are off. Curved shapes have 128 slices, so that their triangles are close to the exact surfaces. There
is no anti-aliasing.
"""

from __future__ import annotations

import ctypes.util
import os
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

import sensorium as sn

Array = NDArray[Any]

WIDTH, HEIGHT = 320, 240
GEOM, SITE, TENDON = (int(getattr(mujoco.mjtObj, f"mjOBJ_{name}")) for name in ("GEOM", "SITE", "TENDON"))
FLAGS_OFF = ("mjVIS_SKIN", "mjVIS_FLEXSKIN", "mjVIS_FLEXFACE", "mjVIS_RANGEFINDER")
"""What the renderer draws by default besides geoms, tendons and sites."""

IS_REQUIRED = "SENSORIUM_REQUIRE_PACKAGES" in os.environ
"""Whether a missing system package fails the tests that need it, as in CI, instead of skipping them."""
needs_gl = pytest.mark.skipif(
    ctypes.util.find_library("EGL") is None and not IS_REQUIRED, reason="needs the packages libegl1 and libgl1-mesa-dri"
)

ROOM = """
<mujoco>
  <visual><quality numslices="128" numstacks="64" offsamples="0"/><map znear="0.002" zfar="10"/></visual>
  <statistic extent="5" center="0 0 1"/>
  <asset>
    <texture name="checker" type="2d" builtin="checker" rgb1=".8 .8 .8" rgb2=".3 .3 .4" width="64" height="64"/>
    <material name="tiles" texture="checker" texrepeat="8 8"/>
    <mesh name="pyramid" vertex="-.3 -.3 0 .3 -.3 0 .3 .3 0 -.3 .3 0 0 0 .5"/>
    <hfield name="rubble" nrow="12" ncol="12" size=".8 .8 .3 .05"/>
  </asset>
  <worldbody>
    <geom name="floor" type="box" size="3 3 .05" pos="0 0 -.05" material="tiles"/>
    <geom name="north" type="box" size="3 .05 1.5" pos="0 3 1.5" material="tiles"/>
    <geom name="east" type="box" size=".05 3 1.5" pos="3 0 1.5"/>
    <geom name="ramp" type="box" size=".8 .5 .05" pos="1.5 1.5 .3" euler="0 -25 0"/>
    <geom name="rubble" type="hfield" hfield="rubble" pos="-1.5 1.5 .05"/>
    <geom name="column" type="cylinder" size=".2 1" pos="-.5 2.3 1"/>
    <geom name="lamp" type="ellipsoid" size=".3 .3 .15" pos=".5 1.2 2.2"/>
    <body name="ball" pos="0 .8 .3"><freejoint/><geom name="ball" size=".3"/></body>
    <body name="pill" pos="1 .2 .4"><freejoint/><geom name="pill" type="capsule" size=".12 .3" euler="30 20 0"/></body>
    <body name="pyramid" pos="-.9 .1 .1"><freejoint/><geom name="pyramid" type="mesh" mesh="pyramid"/></body>
    <camera name="cam" pos="-1.2 -2.6 1.9" xyaxes="0.92 -0.39 0 0.16 0.37 0.91" fovy="62"/>
  </worldbody>
</mujoco>
"""
TABLETOP = """
<mujoco>
  <visual><quality numslices="128" numstacks="64" offsamples="0"/><map znear="0.002" zfar="20"/></visual>
  <statistic extent="1.5" center="0 0 .5"/>
  <worldbody>
    <geom name="ground" type="plane" size="4 4 .1"/>
    <geom name="table" type="box" size=".5 .4 .02" pos="0 0 .4"/>
    <geom name="leg" type="cylinder" size=".03 .19" pos=".4 .3 .19"/>
    <body pos="-.4 0 .42"><geom name="base" type="cylinder" size=".08 .05" pos="0 0 .05"/>
      <body pos="0 0 .1"><joint name="shoulder" axis="0 1 0"/>
        <geom name="upper" type="capsule" fromto="0 0 0 .1 0 .35" size=".04"/>
        <body pos=".1 0 .35"><joint name="elbow" axis="0 1 0"/>
          <geom name="lower" type="capsule" fromto="0 0 0 .3 0 -.05" size=".03"/>
          <geom name="finger" type="box" size=".01 .02 .05" pos=".32 .03 -.1"/></body></body></body>
    <body pos=".1 .1 .47"><freejoint/><geom name="cube" type="box" size=".04 .05 .05" euler="0 0 30"/></body>
    <body pos=".2 -.15 .46"><freejoint/><geom name="ball" size=".04"/></body>
    <body pos="0 -.2 .44"><freejoint/><geom name="disc" type="ellipsoid" size=".08 .05 .02"/></body>
    <camera name="cam" pos=".9 -.8 1.1" xyaxes=".65 .76 0 -.42 .36 .83" fovy="45"/>
  </worldbody>
</mujoco>
"""
ROPES = """
<mujoco>
  <visual><quality numslices="128" numstacks="64" offsamples="0"/><map znear="0.002" zfar="20"/></visual>
  <statistic extent="1.5" center="0 0 .5"/>
  <default><site size=".04"/><tendon width=".02"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="4 4 .1"/>
    <geom name="drum" type="cylinder" size=".1 .2" pos="0 0 1" euler="90 0 0"/>
    <geom name="ball" size=".1" pos=".9 0 .9"/>
    <site name="above" pos="0 0 1.3" group="4"/>
    <site name="left" pos="-.5 0 .5"/><site name="right" type="box" size=".05 .03 .04" pos=".45 0 .4" euler="0 20 0"/>
    <site name="hook" type="capsule" size=".03 .06" pos=".7 0 .5"/><site name="end" type="ellipsoid" size=".05 .04 .03"
      pos="1.2 0 .6"/>
    <site name="clear" pos="-.7 0 .2" rgba="1 1 1 0"/>
    <body name="load" pos="-.9 0 .3"><freejoint/><geom name="load" type="box" size=".08 .08 .08"/>
      <site name="ring" type="cylinder" size=".04 .02" pos="0 0 .1"/></body>
    <camera name="cam" pos=".2 -2.4 1.1" xyaxes="1 0 0 0 .2 1" fovy="50"/>
  </worldbody>
  <tendon>
    <spatial name="over"><site site="left"/><geom geom="drum" sidesite="above"/><site site="right"/></spatial>
    <spatial name="pair"><site site="right"/><site site="hook"/><pulley divisor="2"/><site site="hook"/>
      <geom geom="ball"/><site site="end"/></spatial>
    <spatial name="slack" range="0 1.3" limited="true"><site site="left"/><site site="ring"/></spatial>
    <spatial name="hidden" group="3"><site site="above"/><site site="end"/></spatial>
  </tendon>
</mujoco>
"""


def spec_of(model: str) -> Any:
    """Return a model from its text, or a file of dm_control."""
    if model.startswith("\n"):
        return mujoco.MjSpec.from_string(model)
    dm_control = pytest.importorskip("dm_control")
    spec = mujoco.MjSpec.from_file(str(Path(dm_control.__file__).parent / model))
    spec.worldbody.add_camera(name="extra", pos=[0.9, -0.6, 0.9], xyaxes=[0.55, 0.83, 0.0, -0.36, 0.24, 0.9], fovy=20)
    return spec


def drawn(model: Any, data: Any, camera: str, *, sites: bool) -> tuple[Array, Array]:
    """Return numbers and types of objects `[height, width, 2]` and depths `[height, width]` of MuJoCo's renderer."""
    option = mujoco.MjvOption()
    if not sites:
        option.sitegroup[:] = 0
    for flag in FLAGS_OFF:
        option.flags[getattr(mujoco.mjtVisFlag, flag)] = 0
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
        renderer.enable_depth_rendering()
        renderer.update_scene(data, camera, scene_option=option)
        depth = renderer.render().copy()
        renderer.disable_depth_rendering()
        renderer.enable_segmentation_rendering()
        renderer.update_scene(data, camera, scene_option=option)
        objects = renderer.render().copy()
    return objects, depth


def smooth(ids: Array) -> Array:
    """Return whether no id changes within 2 px of a pixel."""
    return maximum_filter(ids, size=5) == minimum_filter(ids, size=5)


@needs_gl
@pytest.mark.parametrize(
    ("model", "camera", "sites", "kinds"),
    [
        pytest.param("suite/quadruped.xml", "x", True, {GEOM, SITE}, marks=pytest.mark.full),
        ("suite/humanoid.xml", "side", False, {GEOM}),
        ("suite/ball_in_cup.xml", "cam0", True, {GEOM, SITE, TENDON}),
        pytest.param("third_party/kinova/jaco_arm.xml", "extra", True, {GEOM}, marks=pytest.mark.full),
        (ROOM, "cam", False, {GEOM}),
        (TABLETOP, "cam", False, {GEOM}),
        (ROPES, "cam", True, {GEOM, SITE, TENDON}),
    ],
    ids=["quadruped", "humanoid", "ball_in_cup", "jaco", "room", "tabletop", "ropes"],
)
def test_objects_and_depths_equal_mujocos_renderer(model: str, camera: str, sites: bool, kinds: set[int]) -> None:
    """Farther than 2 px from a change, in either image: objects on 99.9 % of pixels, depths to 1e-3 relative.

    At least 85 % of all pixels are that far from a change. Every object, also a thin one, has about as many pixels.
    """
    spec = spec_of(model)
    spec.visual.quality.numslices, spec.visual.quality.numstacks, spec.visual.quality.offsamples = 128, 64, 0
    spec.visual.global_.offwidth, spec.visual.global_.offheight = WIDTH, HEIGHT
    spec.camera(camera).mode = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
    engine = sn.MujocoEngine(spec)
    types = ("depth", "segmentation")
    cfg = sn.CameraCfg(name="cam", camera=camera, width=WIDTH, height=HEIGHT, data_types=types, show_sites=sites)
    scene = sn.Scene(engine, [cfg], discover=False)
    compiled = engine.model
    data = mujoco.MjData(compiled)
    for turn in range(2):
        if turn:
            scene.step(substeps=80)
        data.qpos[:] = engine.qpos[0].numpy()
        mujoco.mj_forward(compiled, data)
        objects, depth = drawn(compiled, data, camera, sites=sites)
        ours: Any = scene["cam"].data
        theirs, ids = (each[..., 0] + 10_000 * each[..., 1] for each in (objects, ours.segmentation[0].numpy()))
        clear = smooth(ids) & smooth(theirs)
        assert clear.mean() > 0.85
        assert len(np.unique(theirs[clear])) > 3
        assert (ids == theirs)[clear].mean() > 0.999
        seen = clear & (ids == theirs) & (ids >= 0)
        own = ours.distance_to_image_plane[0, :, :, 0].numpy()
        assert np.abs(own[seen] / depth[seen] - 1.0).max() < 1e-3
        assert {*ours.segmentation.unique().tolist()} >= kinds
        for each in np.union1d(ids, theirs):
            counts = (ids == each).sum(), (theirs == each).sum()
            assert abs(counts[0] - counts[1]) < 20 + 0.03 * max(counts)
