"""Colors of a camera: beside MuJoCo's OpenGL renderer, without light, and with looks that are drawn at reset."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

MODEL = """
<mujoco>
  <visual><headlight ambient=".2 .2 .2" diffuse=".3 .3 .3"/><map znear=".002" zfar="10"/>
    <quality numslices="128" numstacks="64" offsamples="0"/></visual>
  <statistic extent="5" center="0 0 .5"/>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2=".9 .9 1" width="64" height="384"/>
    <texture name="checker" type="2d" builtin="checker" rgb1=".8 .7 .6" rgb2=".3 .4 .5" width="64" height="64"/>
    <texture name="sides" type="cube" builtin="gradient" rgb1=".9 .3 .2" rgb2=".2 .3 .9" width="64" height="64"/>
    <material name="floor" texture="checker" texrepeat="1 1" texuniform="true" reflectance=".25"/>
    <material name="tiles" texture="checker" texrepeat="3 2"/>
    <material name="sides" texture="sides"/>
    <material name="shiny" specular="1" shininess=".9" rgba=".2 .6 .3 1"/>
  </asset>
  <worldbody>
    <light name="sun" type="directional" pos="-1 -1 3" dir=".4 .3 -1" diffuse=".5 .5 .45"/>
    <light name="spot" pos="1.5 -1.5 2.5" dir="-.5 .5 -1" cutoff="40" exponent="4" diffuse=".6 .5 .4"/>
    <geom name="floor" type="plane" size="0 0 .1" material="floor"/>
    <geom name="box" type="box" size=".3 .25 .2" pos="-.9 .3 .2" material="tiles"/>
    <geom name="cylinder" type="cylinder" size=".2 .3" pos="-.2 .8 .3" material="tiles"/>
    <geom name="ball" size=".25" pos=".5 .6 .25" material="tiles"/>
    <geom name="ellipsoid" type="ellipsoid" size=".3 .2 .15" pos="-.6 -.6 .15" material="sides"/>
    <geom name="dice" type="box" size=".15 .15 .15" pos=".1 -.5 .15" euler="0 0 30" material="sides"/>
    <geom name="shiny" size=".2" pos=".8 -.3 .2" material="shiny"/>
    <geom name="glass" type="box" size=".02 .4 .3" pos=".35 .1 .3" rgba=".3 .5 .9 .4"/>
    <camera name="cam" pos="-.2 -2.4 1.3" xyaxes="1 0 0 0 0.42 .9" fovy="50"/>
  </worldbody>
</mujoco>
"""
WIDTH, HEIGHT = 300, 200
os.environ.setdefault("MUJOCO_GL", "egl")


def simulate() -> tuple[Any, Any]:
    """Return the data of one image, and images of three environments with looks that are drawn at reset."""
    options: dict[str, Any] = {"camera": "cam", "width": WIDTH, "height": HEIGHT, "data_types": ("rgb", "albedo")}
    plain = sn.Scene(sn.MujocoEngine(MODEL), [sn.CameraCfg(name="cam", **options)])["cam"].data
    looks = [
        sn.ShapeLookCfg(shapes="ball|box|cylinder|shiny", rgba=sn.Uniform((0.2, 0.2, 0.2), (1.0, 1.0, 1.0))),
        sn.ShapeLookCfg(shapes="floor", texture=("checker", "")),
        sn.LightLookCfg(
            lights="sun", direction=sn.Uniform((-1.0, -1.0, -1.0), (1.0, 1.0, -0.7)), diffuse=sn.Uniform(0.2, 0.8)
        ),
    ]
    engine = sn.MujocoEngine(MODEL, num_envs=3)
    varied = sn.Scene(engine, [sn.CameraCfg(name="cam", **options)], seed=5, appearance=looks)["cam"].data
    return plain, varied.rgb.numpy()


def drawn_by_mujoco() -> Any:
    """Return the image of MuJoCo's renderer, or None where OpenGL is not available."""
    import mujoco

    try:
        model = mujoco.MjModel.from_xml_string(MODEL)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
            renderer.update_scene(data, "cam")
            return renderer.render().copy()
    except (RuntimeError, AttributeError, mujoco.FatalError):
        return None


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    data, varied = simulate()
    ours, theirs = data.rgb[0].numpy(), drawn_by_mujoco()
    fig, axes = plt.subplots(2, 3, figsize=(10, 6.6), dpi=100, layout="constrained")
    axes[0, 0].imshow(ours)
    axes[0, 0].set_title("rgb", fontsize=9)
    if theirs is not None:
        difference = np.abs(ours.astype(int) - theirs).max(axis=-1)
        axes[0, 1].imshow(theirs)
        axes[0, 2].imshow(difference, cmap="gray_r", vmin=0, vmax=64)
        beyond = (difference > 16).mean()
        axes[0, 2].set_title(
            f"difference: mean {difference.mean():.1f} of 255, {beyond:.1%} of pixels above 16", fontsize=8
        )  # fmt: skip
    axes[0, 1].set_title("MuJoCo's OpenGL renderer", fontsize=9)
    for k in range(3):
        axes[1, k].imshow(varied[k])
        axes[1, k].set_title(f"environment {k} with looks drawn at reset", fontsize=9)
    for each in axes.flat:
        each.set_xticks([])
        each.set_yticks([])
    written = BytesIO()
    fig.savefig(written, format="png")
    plt.close(fig)
    Image.open(written).convert("RGB").quantize(256).save(path, format="png", optimize=True)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/colors.png")
