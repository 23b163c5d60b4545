"""Measured colours of a rendered camera: motion blur, rolling shutter, and images that follow from linear colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.geometry.appearance import Light, Lighting, Material
from sensorium.testing import check_sensor

HEIGHT, WIDTH, FOCAL, DT, BAR = 40, 80, 60.0, 0.001, 0.16
DISTANCE, CENTRED = 2.0, 0.04
WIDE = FOCAL * BAR / (DISTANCE - 0.01)
"""Width of the bar, px."""
SHINING = Material(emission=0.6, specular=0.0)


def bars(envs: int = 1, speed: float = 0.0, yaw: float = 0.0, **fields: Any) -> sn.Scene:
    """Return a scene with an upright bar, 4.8 px wide, that moves to the right (m/s) before a camera that turns (rad/s)
    to the left. At the time `CENTRED` it is in the centre.
    """
    bar = sn.engines.Shape("box", "bar", (0.01, BAR / 2, 5.0), body="bar", rgba=(0.9, 0.9, 0.9, 1.0), material=SHINING)
    lamp = Light("directional", "lamp", direction=(1.0, 0.0, 0.0), diffuse=(0.3,) * 3, specular=(0.0,) * 3)
    engine = sn.TensorEngine(envs, DT, bodies=("bar", "camera"), shapes=[bar], lighting=Lighting((lamp,)))

    def motion(t: float) -> dict[str, Any]:
        t = t - CENTRED
        half = 0.5 * yaw * t
        return {
            "body_pos_w": [[DISTANCE, -speed * t, 0.0], [0.0, 0.0, 0.0]],
            "body_quat_w": [[1.0, 0.0, 0.0, 0.0], [np.cos(half), 0.0, 0.0, np.sin(half)]],
        }

    engine.motion = motion
    lens = sn.lenses.PinholeLensCfg(fovy=float(2 * np.degrees(np.arctan(0.5 * HEIGHT / FOCAL))))
    options = {"width": WIDTH, "height": HEIGHT, "lens": lens, "data_types": ("rgb", "linear_rgb"), **fields}
    cfg = sn.CameraCfg(name="camera", body="camera", offset={"convention": "world"}, **options)
    return sn.Scene(engine, [cfg], seed=2)


def run(scene: sn.Scene, ticks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the measured and the true linear image after some ticks."""
    for _ in range(ticks):
        scene.update()
    sensor: Any = scene["camera"]
    return tuple(each.linear_rgb[0, ..., 1].double().numpy() for each in (sensor.data, sensor.ground_truth))


def moments(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the columns of each row's light, px."""
    u = np.arange(image.shape[1]) + 0.5
    total = image.sum(axis=1)
    mean = (image * u).sum(axis=1) / total
    return mean, (image * (u - mean[:, None]) ** 2).sum(axis=1) / total


def column(ago: np.ndarray, speed: float, yaw: float) -> np.ndarray:
    """Return where the middle of the bar was some seconds before `CENTRED`, px."""
    return WIDTH / 2 - FOCAL * (speed / (DISTANCE - 0.01) * ago + np.tan(yaw * ago))


MOTIONS = pytest.mark.parametrize(("speed", "yaw"), [(16.0, 0.0), (0.0, 8.0)], ids=["bar", "camera"])
"""Both move the bar to the right by about 480 px/s."""
RATE = 480.0


@MOTIONS
def test_blur_is_as_long_as_the_motion_during_the_exposure(speed: float, yaw: float) -> None:
    """w f t_e: the bar's light is spread over 9.6 px more, up to the true bar, and keeps its sum."""
    exposure = 0.02
    stage = sn.stages.ImageSensor(exposure_time=exposure, subposes=48, bit_depth=None)
    image, truth = run(bars(speed=speed, yaw=yaw, stages=(stage,), rate_hz=50.0), 40)
    (mean, var), (true_mean, _) = moments(image), moments(truth)
    length = RATE * exposure
    np.testing.assert_allclose(true_mean, WIDTH / 2, atol=0.5)  # sharp images have whole pixels
    np.testing.assert_allclose(mean, column(np.linspace(0.0, exposure, 101), speed, yaw).mean(), atol=0.1)
    np.testing.assert_allclose(np.sqrt(12.0 * var - WIDE**2), length, rtol=0.02)
    np.testing.assert_allclose(image.sum(axis=1), truth.max() * WIDE, rtol=0.04)
    assert image[HEIGHT // 2].max() == pytest.approx(truth.max() * WIDE / length, rel=0.05)


@MOTIONS
def test_a_rolling_shutter_tilts_an_upright_bar(speed: float, yaw: float) -> None:
    """Row v shows t - t_e/2 - (h - 1 - v) t_line; the truth stays upright."""
    line = 4e-4
    stage = sn.stages.ImageSensor(exposure_time=1e-3, line_time=line, subposes=80, bit_depth=None)
    image, truth = run(bars(speed=speed, yaw=yaw, stages=(stage,), rate_hz=50.0), 40)
    mean, true_mean = moments(image)[0], moments(truth)[0]
    assert np.ptp(true_mean) < 0.1
    expected = column(0.5e-3 + line * (HEIGHT - 1 - np.arange(HEIGHT)), speed, yaw)
    np.testing.assert_allclose(mean, expected, atol=0.4)  # sharp images have whole pixels
    slope, wanted = (np.polyfit(np.arange(HEIGHT), each, 1)[0] for each in (mean, expected))
    assert slope == pytest.approx(wanted, rel=0.02) and wanted == pytest.approx(RATE * line, rel=0.02)


def test_motion_starts_at_the_reset() -> None:
    """The first frame of an episode is sharp, also after motion, and that of other envs stays as it was."""
    stage = sn.stages.ImageSensor(exposure_time=0.02, subposes=8, bit_depth=None)
    scene = bars(2, speed=16.0, stages=(stage,), rate_hz=50.0)
    run(scene, 40)
    sensor: Any = scene["camera"]
    moved = sensor.data.linear_rgb[1].clone()
    scene.reset([0])
    np.testing.assert_allclose(sensor.data.linear_rgb[0], sensor.ground_truth.linear_rgb[0], atol=1e-6)
    torch.testing.assert_close(sensor.data.linear_rgb[1], moved, rtol=0.0, atol=0.0)
    assert not torch.equal(sensor.data.linear_rgb[1], sensor.ground_truth.linear_rgb[1])


def test_longer_exposures_of_automatic_exposure_blur_more() -> None:
    """The blur follows the exposure time of each env."""
    auto = sn.stages.AutoExposure(target=1.0, rate=100.0, exposure_time=(1e-3, 0.02), gain=(1.0, 1.0))
    stage = sn.stages.ImageSensor(
        exposure_time=1e-3, white_exposure=0.02, subposes=24, auto_exposure=auto, bit_depth=None
    )
    scene = bars(speed=16.0, stages=(stage,), rate_hz=50.0)
    widths = []
    for ticks in (20, 20, 20):
        image, _ = run(scene, ticks)
        widths.append(np.sqrt(12.0 * moments(image)[1] - WIDE**2).mean())
    exposures = np.array([1e-3 * 4.0**k for k in (1, 2, 2.161)])
    np.testing.assert_allclose(widths, RATE * exposures, atol=0.3)


def test_colors_are_encoded_from_the_measured_light() -> None:
    """`rgb` is the sRGB code of `linear_rgb`, `rgba` keeps its opacity; an ideal sensor changes at most one step."""
    stage = sn.stages.ImageSensor(full_well=500.0, read_noise=5.0, black_level=64.0)
    scene = bars(stages=(stage,), data_types=("rgba", "rgb", "geom_ids"))
    scene.update()
    data: Any = scene["camera"].data
    light = data.linear_rgb[0].double().clamp(0.0, 1.0).numpy()
    codes = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(data.rgb[0].numpy(), 255.0 * codes, atol=0.51)
    np.testing.assert_array_equal(data.rgba[0, ..., :3], data.rgb[0])
    truth: Any = scene["camera"].ground_truth
    np.testing.assert_array_equal(data.rgba[..., 3], truth.rgba[..., 3])
    np.testing.assert_array_equal(data.geom_ids, truth.geom_ids)
    assert (data.rgb != truth.rgb).float().mean() > 0.2 and tuple(data.output) == ("rgba", "rgb", "geom_ids")
    assert "linear_rgb" not in {spec.name for spec in scene["camera"].specs} | {
        *scene.publish(["camera"])["camera"].measured
    }
    ideal = bars(stages=(sn.stages.ImageSensor(),), data_types=("rgb",))
    ideal.update()
    sensor: Any = ideal["camera"]
    assert (sensor.data.rgb.int() - sensor.ground_truth.rgb.int()).abs().max() <= 1


def test_motion_with_four_samples_per_pixel() -> None:
    """The blurred bar is where one sample per pixel sees it, and a bar at rest has the true, smooth edges."""
    stage = sn.stages.ImageSensor(exposure_time=0.02, subposes=8, bit_depth=None)
    one, four = (run(bars(speed=16.0, samples=n, stages=(stage,), rate_hz=50.0), 40)[0] for n in (1, 4))
    np.testing.assert_allclose(moments(one)[0], moments(four)[0], atol=0.25)
    assert np.diff(four[0]).min() > 1.3 * np.diff(one[0]).min()  # edges in smaller steps
    image, truth = run(bars(samples=4, stages=(stage,), rate_hz=50.0), 20)
    np.testing.assert_allclose(image, truth, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 4])
def test_events_of_a_moving_bar_add_up_to_its_brightness(samples: int) -> None:
    """Bright in front, dark behind; the sums are the change of a camera's linear colors within a threshold."""
    eye = sn.EventCameraCfg(
        name="dvs", body="camera", offset={"convention": "world"}, width=WIDTH, height=HEIGHT, samples=samples,
        lens=sn.lenses.PinholeLensCfg(fovy=float(2 * np.degrees(np.arctan(0.5 * HEIGHT / FOCAL)))), rate_hz=500.0,
    )  # fmt: skip
    scene = bars(speed=16.0, samples=samples)
    scene.add(eye)
    camera, dvs = scene["camera"], scene["dvs"]

    def brightness() -> np.ndarray:
        light: Any = camera.data.linear_rgb[0].double()
        return np.log((light @ torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64)).numpy() + 0.001)

    scene.update()  # the motion starts here
    scene.reset()
    start, total = brightness(), np.zeros((HEIGHT, WIDTH))
    for _ in range(11):
        scene.update()
        if bool(dvs.is_new[0]):
            total += dvs.data.polarity_image[0, ..., 0].double().numpy()
    assert int(dvs.data.lost) == 0 and total.max() >= 20 and total.min() <= -20
    assert np.abs(0.2 * total - (brightness() - start)).max() < 0.2
    assert np.flatnonzero((total < 0).any(axis=0)).max() < np.flatnonzero((total > 0).any(axis=0)).min()
    assert (dvs.data.pos_w == camera.data.pos_w).all()


def test_depth_and_colors_have_their_own_errors() -> None:
    """Noisy, clipped depth beside moving colours: misses show 0, and the pose is that of the capture."""
    stages = (
        sn.stages.ImageSensor(exposure_time=0.01, subposes=4),
        sn.stages.StereoDepth(focal_px=FOCAL, baseline=0.05, noise_px=0.1, shadow=False),
    )
    scene = bars(
        yaw=8.0, stages=stages, rate_hz=50.0, data_types=("rgb", "depth", "points_b"), depth_clipping_behavior="zero"
    )
    for _ in range(20):
        scene.update()
    sensor: Any = scene["camera"]
    depth, truth = (each.distance_to_image_plane[0, ..., 0] for each in (sensor.data, sensor.ground_truth))
    hit = truth > 0.0
    assert not depth[~hit].any() and 0.0 < (depth[hit] - truth[hit]).std() < 0.5
    assert (sensor.data.rgb != sensor.ground_truth.rgb).any()
    torch.testing.assert_close(sensor.data.quat_w_world, sensor.ground_truth.quat_w_world)
    torch.testing.assert_close(sensor.data.points_b[0][hit][:, 2], depth[hit])


def test_contract_holds() -> None:
    """With every step of the sensor, two cameras, and a moving mount."""

    def engine(envs: int) -> sn.TensorEngine:
        def motion(t: float) -> dict[str, torch.Tensor]:
            late = 0.3 * (t + 0.3 * torch.arange(envs)[:, None, None])
            return {"body_pos_w": torch.cat([late - 3.0, late.cos(), late.sin()], dim=-1)}

        box = sn.engines.Shape("box", "box", (0.5, 0.5, 0.5), rgba=(0.9, 0.5, 0.2, 1.0))
        return sn.TensorEngine(envs, 0.01, shapes=[box], provides=("pose",), motion=motion)

    eye = sn.stages.ImageSensor(
        exposure_time=0.01, white_exposure=0.01, line_time=1e-3, subposes=3, vignetting="cos4", full_well=1000.0,
        blur_radius=sn.Uniform(0.0, 1.0), dark_current=50.0, prnu=0.01, dsnu=1.0, read_noise=3.0, black_level=64.0,
        color_filter="grbg", jpeg_quality=80, auto_exposure=sn.stages.AutoExposure(exposure_time=(1e-3, 0.02)),
    )  # fmt: skip
    cfg = sn.CameraCfg(
        name="camera", bodies=("body",), offset={"convention": "world"}, height=5, width=7, rate_hz=50.0,
        data_types=("rgb", "depth"), stages=(eye,),
    )  # fmt: skip
    rules = check_sensor(cfg, engine=engine, steps=5)
    assert {"resuming_is_exact", "truth_is_never_altered", "reset_leaves_the_others"} <= {*rules}


def test_exposures_longer_than_the_period_are_rejected() -> None:
    with pytest.raises(sn.ConfigError, match=r"stages\.0.*at most the period, 0\.02 s, as time for the exposure"):
        bars(stages=(sn.stages.ImageSensor(exposure_time=0.03, subposes=2),), rate_hz=50.0)
    with pytest.raises(sn.ConfigError, match="time for the readout of rows"):
        bars(stages=(sn.stages.ImageSensor(line_time=0.001),), rate_hz=50.0)


def test_stages_of_colors_need_colors() -> None:
    with pytest.raises(sn.ConfigError, match="no distance and no linear_rgb is in data_types"):
        bars(stages=(sn.stages.ImageSensor(),), data_types=("normals",))
    with pytest.raises(sn.ConfigError, match="at most one ImageSensor"):
        bars(stages=(sn.stages.ImageSensor(), sn.stages.ImageSensor()))
    with pytest.raises(sn.ConfigError, match=r"noise: got 0\.1, expected no such knob"):
        bars(data_types=("rgb",))["camera"].set("noise", 0.1)
