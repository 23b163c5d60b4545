"""Draws what an image sensor makes of a scene, step by step, and its photon transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sensorium as sn
from sensorium.geometry.appearance import Light, Lighting, Material

Array = NDArray[np.float64]
WORLD = """
<mujoco><option timestep="0.002"/>
  <asset>
    <texture name="tiles" type="2d" builtin="checker" rgb1=".15 .2 .3" rgb2=".7 .65 .6" width="128" height="128"/>
    <material name="tiles" texture="tiles" texrepeat="9 9"/>
  </asset>
  <worldbody>
    <light pos="0 1 3" dir="0 -.3 -1"/>
    <geom type="plane" size="4 4 1" material="tiles"/>
    <body pos="0 0 .25"><joint type="slide" axis="0 1 0"/>
      <geom type="box" size=".04 .04 .25" rgba=".9 .8 .2 1"/><geom size=".12" pos="0 0 .3" rgba=".85 .1 .1 1"/></body>
    <geom type="box" size=".15 .15 .2" pos="-.4 -.6 .2" rgba=".15 .5 .2 1"/>
    <geom type="cylinder" size=".12 .2" pos="-.3 .6 .2" rgba=".2 .3 .8 1"/>
  </worldbody>
</mujoco>
"""
DARK = Light("directional", "none", diffuse=(0.0,) * 3, specular=(0.0,) * 3)
WELL, READ = 2000.0, 5.0
STEPS: dict[str, sn.stages.ImageSensor] = {
    "motion blur, 20 ms": sn.stages.ImageSensor(exposure_time=0.02, subposes=24),
    "rolling shutter, 0.16 ms per row": sn.stages.ImageSensor(exposure_time=1e-3, line_time=1.6e-4, subposes=60),
    "defocus and vignetting": sn.stages.ImageSensor(blur_radius=2.5, vignetting=(-0.4, -0.3)),
    "500 electrons at white": sn.stages.ImageSensor(
        full_well=WELL, gain=4.0, read_noise=READ, prnu=0.02, black_level=64.0, color_filter="rggb"
    ),
    "JPEG, quality 15": sn.stages.ImageSensor(jpeg_quality=15),
}


def images() -> dict[str, Any]:
    """Return the measured image of each sensor, and the true one."""
    offset = sn.CameraCfg.OffsetCfg.from_view(pos=(1.5, 0.0, 0.8), lookat=(0.0, 0.0, 0.25))
    cameras = [
        sn.CameraCfg(
            name=f"camera {k}", body="world", offset=offset, width=160, height=120, rate_hz=50.0, data_types=("rgb",),
            lens=sn.lenses.PinholeLensCfg(fovy=45.0), stages=(step,),
        )
        for k, step in enumerate(STEPS.values())
    ]  # fmt: skip
    scene = sn.Scene(sn.MujocoEngine(WORLD), cameras, seed=0)
    scene.reset(qpos=[[-0.32]], qvel=[[4.0]])
    for _ in range(4):
        scene.step(substeps=10)
    truth = {"truth": scene["camera 0"].ground_truth.rgb[0].numpy()}
    return truth | {name: scene[f"camera {k}"].data.rgb[0].numpy() for k, name in enumerate(STEPS)}


def photon_transfer() -> tuple[Array, Array, Array]:
    """Return means and variances of patches of the sensor with few electrons, and the expected variances."""
    step = STEPS["500 electrons at white"].replace(color_filter="none", prnu=0.0)
    shapes = [
        sn.engines.Shape(
            "box", f"patch {k}", (0.01, 0.05, 0.5), pos=(1.0, 0.5 - 0.1 * (k + 0.5), 0.0), rgba=(v, v, v, 1.0),
            material=Material(emission=1.0, specular=0.0),
        )
        for k, v in enumerate(np.linspace(0.05, 0.9, 10) ** 0.5)
    ]  # fmt: skip
    lens = sn.lenses.PinholeLensCfg(fovy=50.0)
    camera = sn.CameraCfg(
        name="camera", body="world", offset={"convention": "world"}, lens=lens, width=300, height=300,
        data_types=("linear_rgb",), stages=(step,),
    )  # fmt: skip
    engine = sn.TensorEngine(1, shapes=shapes, lighting=Lighting((DARK,)))
    sensor: Any = sn.Scene(engine, [camera], seed=0)["camera"]
    found, true = (each.linear_rgb[0, 30:270, :, 1].double().numpy() for each in (sensor.data, sensor.ground_truth))
    scale = 4095.0 - 64.0
    columns = [column for column in range(0, 300, 3) if 0.02 < true[:, column].min() == true[:, column].max() < 0.95]
    means, variances = scale * found[:, columns].mean(axis=0), scale**2 * found[:, columns].var(axis=0)
    per_electron = 4.0 * scale / WELL
    order = np.argsort(means)
    mean, var = means[order], variances[order]
    return mean, var, per_electron**2 * READ**2 + per_electron * mean + 1.0 / 12.0


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = images()
    fig, axes = plt.subplot_mosaic("abcd;efgg", figsize=(8.8, 3.6), dpi=90, layout="constrained")
    for letter, (name, image) in zip("abcdef", shown.items(), strict=True):
        axes[letter].imshow(image)
        axes[letter].set_title(name, fontsize=9)
        axes[letter].axis("off")
    axis = axes["g"]
    mean, var, expected = photon_transfer()
    axis.plot(mean, var, ".", ms=4, label="columns of grey patches")
    axis.plot(mean, expected, "k-", lw=1, label=r"$K^2\,$read$^2 + K\,y + 1/12$")
    axis.set_xlabel("mean, digital numbers", fontsize=8)
    axis.set_ylabel("variance", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=8)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).resolve().parents[1] / "images" / "image_sensor.png")
