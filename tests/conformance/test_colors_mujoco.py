"""Colors of the camera against MuJoCo's OpenGL renderer, on robots, rooms and textured primitives.

The renderer draws the same shapes as the camera, with one sample per pixel. Shadows and reflections are on or off in
both. Compared are the pixels farther than 2 px from a change of id, in either image.

Pixels that differ by design are counted by their reason: MuJoCo lights vertices of its triangles instead of pixels,
looks shadows up in a map of limited resolution, and quantises each pass to 8 bits.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import sensorium as sn
from tests.conformance.test_images_mujoco import FLAGS_OFF, HEIGHT, ROOM, TABLETOP, WIDTH, needs_gl, smooth, spec_of

Array = NDArray[Any]

PRIMITIVES = """
<mujoco>
  <visual><headlight ambient=".2 .2 .2" diffuse=".3 .3 .3" specular=".2 .2 .2"/><map znear="0.002" zfar="10"/></visual>
  <statistic extent="5" center="0 0 .5"/>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2=".9 .9 1" width="64" height="384"/>
    <texture name="checker" type="2d" builtin="checker" rgb1=".8 .7 .6" rgb2=".3 .4 .5" width="64" height="64"
      mark="edge" markrgb="1 1 1"/>
    <texture name="cube" type="cube" builtin="gradient" rgb1=".9 .3 .2" rgb2=".2 .3 .9" width="64" height="64"
      mark="cross" markrgb="1 1 0"/>
    <material name="floor" texture="checker" texrepeat="2 2" texuniform="true" reflectance=".3"/>
    <material name="tiles" texture="checker" texrepeat="3 2"/>
    <material name="metre" texture="checker" texrepeat="3 2" texuniform="true"/>
    <material name="cube" texture="cube" texuniform="true"/>
    <material name="sides" texture="cube"/>
    <material name="shiny" specular="1" shininess=".9" rgba=".2 .6 .3 1"/>
    <material name="glow" emission=".6" rgba=".8 .3 .2 1"/>
    <mesh name="pyramid" vertex="-.3 -.3 0 .3 -.3 0 .3 .3 0 -.3 .3 0 0 0 .5"/>
    <mesh name="quad" vertex="-.5 -.5 0 .5 -.5 0 .5 .5 0 -.5 .5 0 0 0 -.5" texcoord="0 0 1 0 1 1 0 1 .5 .5"
      face="0 1 2 0 2 3 0 4 1 1 4 2 2 4 3 3 4 0"/>
    <hfield name="dune" nrow="3" ncol="4" size=".5 .3 .25 .1" elevation="0 .4 .1 0 .3 1 .6 .2 .1 .5 .7 0"/>
  </asset>
  <worldbody>
    <light name="sun" type="directional" pos="-1 -1 3" dir=".4 .3 -1" diffuse=".5 .5 .45" specular=".2 .2 .2"/>
    <light name="spot" pos="1.5 -1.5 2.5" dir="-.5 .5 -1" cutoff="40" exponent="4" diffuse=".6 .5 .4"
      attenuation="1 .1 .05"/>
    <geom name="floor" type="plane" size="0 0 .1" material="floor"/>
    <geom name="box" type="box" size=".3 .25 .2" pos="-.9 .3 .2" material="tiles"/>
    <geom name="crate" type="box" size=".15 .2 .25" pos="-1.4 1.2 .25" material="metre"/>
    <geom name="cylinder" type="cylinder" size=".2 .3" pos="-.2 .8 .3" material="tiles"/>
    <geom name="sphere" size=".25" pos=".5 .6 .25" material="tiles"/>
    <geom name="capsule" type="capsule" size=".12 .2" pos="1.1 .3 .32" material="tiles"/>
    <geom name="ellipsoid" type="ellipsoid" size=".3 .2 .15" pos="-.6 -.6 .15" material="cube"/>
    <geom name="dice" type="box" size=".15 .15 .15" pos=".1 -.5 .15" euler="0 0 30" material="sides"/>
    <geom name="shiny" size=".2" pos=".7 -.3 .2" material="shiny"/>
    <geom name="glow" type="cylinder" size=".1 .1" pos="1.2 -.4 .1" material="glow"/>
    <geom name="glass" type="box" size=".02 .4 .3" pos=".35 .1 .3" rgba=".3 .5 .9 .4"/>
    <geom name="bubble" size=".12" pos="-.2 -.1 .12" rgba=".9 .2 .2 .5"/>
    <geom name="pyramid" type="mesh" mesh="pyramid" pos="-1.3 -.3 .12" material="tiles"/>
    <geom name="quad" type="mesh" mesh="quad" pos="0 1.6 .6" euler="90 0 0" material="metre"/>
    <geom name="dune" type="hfield" hfield="dune" pos="1.5 1.2 .1" material="cube"/>
    <camera name="cam" pos="-.3 -2.6 1.5" xyaxes="1 0.05 0 -.02 0.42 .9" fovy="55"/>
  </worldbody>
</mujoco>
"""


def ssim(a: Array, b: Array) -> Array:
    """Return the structural similarity of the grey values of two images (Wang et al. 2004)."""
    a, b = (np.asarray(image, np.float64).mean(axis=-1) for image in (a, b))

    def mean(x: Array) -> Array:
        return gaussian_filter(x, 1.5, truncate=3.5)

    ma, mb = mean(a), mean(b)
    variances = mean(a * a) - ma * ma + mean(b * b) - mb * mb
    covariance = mean(a * b) - ma * mb
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return (2 * ma * mb + c1) * (2 * covariance + c2) / ((ma * ma + mb * mb + c1) * (variances + c2))


def drawn(
    model: Any, data: Any, camera: str, flags: list[tuple[bool, bool]], *, fog: bool = False
) -> tuple[Array, list[Array]]:
    """Return geom ids (-1 for none), and the colors for each pair of flags: shadows and reflections."""
    option = mujoco.MjvOption()
    option.sitegroup[:] = 0
    for flag in FLAGS_OFF:
        option.flags[getattr(mujoco.mjtVisFlag, flag)] = 0
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
        renderer.enable_segmentation_rendering()
        renderer.update_scene(data, camera, scene_option=option)
        ids = renderer.render()[..., 0].copy()
        renderer.disable_segmentation_rendering()
        renderer.update_scene(data, camera, scene_option=option)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_FOG] = fog
        colors = []
        for shadows, reflections in flags:
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = reflections
            colors.append(renderer.render().copy())
    return ids, colors


FLAGS = [(False, False), (False, True), (True, False), (True, True)]


@needs_gl
@pytest.mark.parametrize(
    ("model", "camera"),
    [
        pytest.param("suite/quadruped.xml", "x", marks=pytest.mark.full),
        ("suite/humanoid.xml", "side"),
        pytest.param("third_party/kinova/jaco_arm.xml", "extra", marks=pytest.mark.full),
        (ROOM, "cam"),
        (TABLETOP, "cam"),
        (PRIMITIVES, "cam"),
    ],
    ids=["quadruped", "humanoid", "jaco", "room", "tabletop", "primitives"],
)
def test_colors_equal_mujocos_renderer(model: str, camera: str) -> None:
    """Mean difference below 1 of 255 without shadows and 2.5 with them, SSIM above 0.97, under 3 % of pixels beyond 16.

    The flags are shadows and reflections, each on and off. Without shadows, each shape alone is below 1 as well.
    """
    spec = spec_of(model)
    quality = spec.visual.quality
    quality.numslices, quality.numstacks, quality.numquads, quality.offsamples = 128, 64, 20, 0
    spec.visual.global_.offwidth, spec.visual.global_.offheight = WIDTH, HEIGHT
    spec.camera(camera).mode = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
    engine = sn.MujocoEngine(spec)
    cfgs = [
        sn.CameraCfg(
            name=f"cam_{k}", camera=camera, width=WIDTH, height=HEIGHT, data_types=("rgb", "geom_ids"),
            shadows=shadows, reflections=reflections,
        )
        for k, (shadows, reflections) in enumerate(FLAGS)
    ]  # fmt: skip
    scene = sn.Scene(engine, cfgs, discover=False)
    data = mujoco.MjData(engine.model)
    data.qpos[:] = engine.qpos[0].numpy()
    mujoco.mj_forward(engine.model, data)
    ids, expected = drawn(engine.model, data, camera, FLAGS)
    own = scene["cam_0"].data.geom_ids[0, :, :, 0].numpy()
    clear = smooth(ids) & smooth(own)
    assert clear.mean() > 0.85
    for k, (shadows, reflections) in enumerate(FLAGS):
        image = scene[f"cam_{k}"].data.rgb[0].numpy()
        difference = np.abs(image.astype(int) - expected[k]).mean(axis=-1)
        where = f"shadows {shadows}, reflections {reflections}"
        assert difference[clear].mean() < (2.5 if shadows else 1.0), where
        assert ssim(image, expected[k])[clear].mean() > 0.97, where
        assert (difference[clear] > 16).mean() < 0.03, where
        if not shadows:
            for shape in np.unique(own[clear]):
                assert difference[clear & (own == shape)].mean() < 1.0, f"shape {shape}, {where}"


MIST = """
<mujoco>
  <visual><headlight ambient=".1 .1 .1" diffuse=".2 .2 .2" specular="0 0 0"/><rgba fog=".2 .8 .4 1" haze=".9 .4 .2 1"/>
    <map znear="0.01" zfar="5" fogstart="2" fogend="6"/>
    <quality offsamples="0" numslices="128" numstacks="64"/></visual>
  <statistic extent="1" center="0 0 .5"/>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2=".9 .2 .1" width="64" height="384"/>
  </asset>
  <worldbody>
    <light type="spot" pos="-.6 .2 1.5" dir=".2 0 -1" cutoff="35" exponent="6" diffuse=".7 .3 .2" castshadow="false"/>
    <light type="spot" pos=".7 .4 1.8" dir="-.1 .1 -1" cutoff="45" exponent="10" diffuse=".2 .5 .6" castshadow="false"
      attenuation="1 .1 .1"/>
    <geom name="floor" type="plane" size="0 0 .1" rgba=".7 .7 .7 1"/>
    <geom name="ball" size=".4" pos=".4 .5 .4" rgba=".9 .4 .2 1"/>
    <camera name="cam" pos="0 -2.2 1" xyaxes="1 0 0 0 .3 .95" fovy="60"/>
  </worldbody>
</mujoco>
"""


@needs_gl
def test_fog_and_spots() -> None:
    """Fog covers all that is visible, and spots agree where MuJoCo divides the ground into small squares.

    The squares of an unbounded plane grow with the far clipping distance, which changes nothing here.
    """
    images, expected = {}, {}
    for far in (5.0, 50.0):
        spec = mujoco.MjSpec.from_string(MIST)
        spec.visual.map.zfar = far
        spec.visual.global_.offwidth, spec.visual.global_.offheight = WIDTH, HEIGHT
        engine = sn.MujocoEngine(spec)
        cfgs = [sn.CameraCfg(name=f"cam_{k}", camera="cam", width=WIDTH, height=HEIGHT, data_types=("rgb", "geom_ids"),
                             fog=fog, clipping_range=(0.01, far)) for k, fog in enumerate((False, True))]  # fmt: skip
        scene = sn.Scene(engine, cfgs, discover=False)
        data = mujoco.MjData(engine.model)
        mujoco.mj_forward(engine.model, data)
        for k, fog in enumerate((False, True)):
            ids, (expected[far, fog],) = drawn(engine.model, data, "cam", [(False, False)], fog=fog)
            images[far, fog] = scene[f"cam_{k}"].data.rgb[0].numpy().astype(int)
        own = scene["cam_0"].data.geom_ids[0, :, :, 0].numpy()
        clear = smooth(ids) & smooth(own)

    def difference(a: Array, b: Array, where: Array) -> float:
        return float(np.abs(a.astype(int) - b)[where].mean())

    for fog in (False, True):
        assert difference(images[5.0, fog], expected[5.0, fog], clear) < 1.0
    near = clear & (np.arange(HEIGHT)[:, None] > 0.7 * HEIGHT)  # in front of the haze
    assert difference(images[5.0, False], images[50.0, False], near) < 0.1
    assert difference(expected[5.0, False], expected[50.0, False], near) > 2.0


UNLIT = """
<mujoco>
  <visual><headlight active="0"/></visual>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 1" rgba=".7 .5 .3 1"/>
    <geom name="glass" type="box" size=".5 .5 .1" pos="0 0 .5" rgba=".2 .6 .9 .5"/>
    <camera name="cam" pos="0 0 3" fovy="60"/>
  </worldbody>
</mujoco>
"""


@needs_gl
def test_ambient_light_without_lights() -> None:
    """An opaque and a transparent surface in a model without lights are as bright as in MuJoCo."""
    spec = mujoco.MjSpec.from_string(UNLIT)
    spec.visual.global_.offwidth, spec.visual.global_.offheight = WIDTH, HEIGHT
    engine = sn.MujocoEngine(spec)
    cfg = sn.CameraCfg(name="cam", camera="cam", width=WIDTH, height=HEIGHT, data_types=("rgb", "geom_ids"))
    image = sn.Scene(engine, [cfg], discover=False)["cam"].data
    data = mujoco.MjData(engine.model)
    mujoco.mj_forward(engine.model, data)
    ids, (expected,) = drawn(engine.model, data, "cam", [(False, False)])
    own = image.geom_ids[0, :, :, 0].numpy()
    for shape in (0, 1):
        where = smooth(ids) & smooth(own) & (own == shape)
        assert where.sum() > 500 and expected[where].min() > 10
        assert np.abs(image.rgb[0].numpy().astype(int) - expected)[where].max() <= 2


@needs_gl
def test_four_samples_smooth_edges_as_multisampling_does() -> None:
    """At changes of id, four samples per pixel are nearer to MuJoCo's four than one sample is."""
    spec = mujoco.MjSpec.from_string(TABLETOP)
    quality = spec.visual.quality
    quality.numslices, quality.numstacks, quality.offsamples = 128, 64, 4
    spec.visual.global_.offwidth, spec.visual.global_.offheight = WIDTH, HEIGHT
    engine = sn.MujocoEngine(spec)
    cfgs = [sn.CameraCfg(name=f"cam_{n}", camera="cam", width=WIDTH, height=HEIGHT, data_types=("rgb", "geom_ids"),
                         samples=n) for n in (1, 4)]  # fmt: skip
    scene = sn.Scene(engine, cfgs, discover=False)
    data = mujoco.MjData(engine.model)
    mujoco.mj_forward(engine.model, data)
    _ids, (expected,) = drawn(engine.model, data, "cam", [(True, True)])
    edges = ~smooth(scene["cam_1"].data.geom_ids[0, :, :, 0].numpy())
    one, four = (np.abs(scene[f"cam_{n}"].data.rgb[0].numpy().astype(int) - expected)[edges].mean() for n in (1, 4))
    assert four < 0.6 * one
