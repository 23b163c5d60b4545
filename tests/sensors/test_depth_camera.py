"""The depth camera: lens in data sheet terms, range, image, points and presets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.cameras.ray_caster_camera import RayCasterCamera
from sensorium.testing import check_sensor

Array = NDArray[np.float64]

FORWARD = {"convention": "world"}
WALL = sn.engines.Shape("box", "wall", (0.5, 30.0, 30.0), pos=(2.5, 0.0, 0.0))  # its face is at x = 2
DEVICES: Any = ("d435", "kinect_v1")


def camera(**options: Any) -> sn.DepthCameraCfg:
    return sn.DepthCameraCfg(**{"name": "camera", "body": "body", "res": (32, 24), "offset": FORWARD, **options})


def sensor_of(cfg: Any, shapes: Any = (WALL,), envs: int = 1, dt: float = 0.01) -> Any:
    return sn.Scene(sn.TensorEngine(envs, dt, shapes=shapes), [cfg], seed=1)[cfg]


def lengths(cfg: sn.DepthCameraCfg) -> Array:
    """Return the length of each pixel's ray per metre of depth."""
    (fx, _, cx), (_, fy, cy), _ = cfg.pinhole.intrinsic_matrix
    u, v = np.meshgrid(np.arange(cfg.pinhole.width) + 0.5, np.arange(cfg.pinhole.height) + 0.5)
    return np.asarray(np.sqrt(((u - cx) / fx) ** 2 + ((v - cy) / fy) ** 2 + 1.0))


# The image ------------------------------------------------------------------------------------------------------------


def test_a_wall_is_flat_in_the_image() -> None:
    """`read_image` returns z-depth `[env, height, width]`: a wall 2 m ahead reads 2 everywhere, also at the edges."""
    sensor = sensor_of(camera(), envs=3)
    image = sensor.read_image()
    assert isinstance(sensor, sn.DepthCamera) and isinstance(sensor, RayCasterCamera)
    assert image.shape == (3, 24, 32) and sensor.read_image([1]).shape == (1, 24, 32)
    np.testing.assert_allclose(image, 2.0, rtol=1e-6)
    assert [spec.name for spec in sensor.specs][3:] == ["distance_to_image_plane"]


def test_read_image_returns_a_measured_copy() -> None:
    sensor = sensor_of(camera(bias=0.5))
    image = sensor.read_image()
    np.testing.assert_allclose(image, 2.5, rtol=1e-6)
    image.zero_()
    np.testing.assert_allclose(sensor.read_image(), 2.5, rtol=1e-6)


def test_ray_length_is_an_option() -> None:
    """With `ray_length` the image matches Genesis: the length of each pixel's ray."""
    cfg = camera(ray_length=True)
    sensor = sensor_of(cfg)
    np.testing.assert_allclose(sensor.read_image()[0], 2.0 * lengths(cfg), rtol=1e-6)
    assert sensor.data.distance_to_image_plane is None


def test_mounts_have_their_own_axis() -> None:
    cfg = sn.DepthCameraCfg(name="camera", bodies=("body",), res=(32, 24), offset=FORWARD)
    assert sensor_of(cfg, envs=2).read_image().shape == (2, 1, 24, 32)


def test_points_are_in_the_camera_right_down_forward() -> None:
    """The corner pixels of a wall have the correct signs of right and down, and z = the depth."""
    cfg = camera(data_types=("distance_to_image_plane", "points_b"), fov_horizontal=90.0)
    points = sensor_of(cfg).data.points_b[0]
    assert points.shape == (24, 32, 3) and (points[..., 2] - 2.0).abs().max() < 1e-5
    assert (points[0, 0, :2] < 0.0).all() and (points[-1, -1, :2] > 0.0).all()
    np.testing.assert_allclose(points[0, -1, 0], 2.0 * 31 / 32, rtol=1e-6)


# The lens -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lens", "expected"),
    [
        ({}, (16.0, 16.0, 16.0, 12.0)),  # 90 degrees wide
        ({"fov_horizontal": 60.0}, (16.0 / math.tan(math.radians(30.0)),) * 2 + (16.0, 12.0)),
        ({"fov_vertical": 60.0}, (12.0 / math.tan(math.radians(30.0)),) * 2 + (16.0, 12.0)),
        ({"fov_horizontal": 90.0, "fov_vertical": 60.0}, (16.0, 12.0 / math.tan(math.radians(30.0)), 16.0, 12.0)),
        ({"fx": 20.0}, (20.0, 20.0, 16.0, 12.0)),
        ({"fx": 20.0, "fy": 22.0, "cx": 15.0, "cy": 13.5}, (20.0, 22.0, 15.0, 13.5)),
        ({"cx": 14.0}, (16.0, 16.0, 14.0, 12.0)),
    ],
)
def test_lens_is_the_configured_one(lens: Any, expected: Any) -> None:
    """The lens accepts angles or focal lengths, one of them with square pixels, and an off-centre principal point."""
    k = sensor_of(camera(**lens)).data.intrinsic_matrices[0]
    fx, fy, cx, cy = expected
    np.testing.assert_allclose(k, [[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]], rtol=1e-6)


def test_pattern_can_serve_as_lens() -> None:
    pattern = sn.patterns.PinholeCameraPatternCfg(width=20, height=10, horizontal_aperture=30.0)
    sensor = sensor_of(sn.DepthCameraCfg(body="body", pattern=pattern, offset=FORWARD))
    assert sensor.read_image().shape == (1, 10, 20) and sensor.data.intrinsic_matrices[0, 0, 0] == 16.0


# Range ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "shown"), [("none", math.inf), ("max", 1.5), ("zero", 0.0)])
def test_depth_out_of_range_is_a_miss(behaviour: Any, shown: float) -> None:
    """A wall at 2 m of z-depth is beyond a range of 1.5 m: it reads +inf or the clipping value, and keeps its
    points.
    """
    types = ("distance_to_image_plane", "points_b")
    data = sensor_of(camera(max_distance=1.5, depth_clipping_behavior=behaviour, data_types=types)).data
    assert (data.distance_to_image_plane == shown).all() and (data.points_b[..., 2] == shown).all()
    alone = sensor_of(camera(max_distance=1.5, depth_clipping_behavior=behaviour, data_types=types[:1])).data
    assert (alone.distance_to_image_plane == shown).all()


def test_range_applies_to_depth_and_not_to_ray_length() -> None:
    """At 2.1 m the whole wall is in range, though the rays to its edges are longer; the minimum applies to the nearest
    ray.
    """
    image = sensor_of(camera(max_distance=2.1)).read_image()
    np.testing.assert_allclose(image, 2.0, rtol=1e-6)
    cfg = camera(min_distance=2.5)
    near = sensor_of(cfg).read_image()[0]
    assert torch.equal(near == math.inf, torch.tensor(2.0 * lengths(cfg) < 2.5))


def test_a_miss_shows_no_hit_value_after_the_noise() -> None:
    sensor = sensor_of(camera(max_distance=1.5, no_hit_value=-1.0, noise=0.1))
    assert (sensor.read_image() == -1.0).all() and (sensor.ground_truth.distance_to_image_plane == -1.0).all()


# Presets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEVICES)
def test_preset_config_round_trips_through_a_file(name: str) -> None:
    """A preset has the device's image, lens, rate and errors, and survives JSON and TOML."""
    cfg = sn.preset(name, name="camera", body="body")
    assert isinstance(cfg, sn.DepthCameraCfg)
    width, height, focal = {"d435": (848, 480, 424.0), "kinect_v1": (640, 480, 580.0)}[name]
    assert cfg.res == (width, height) and cfg.rate_hz == 30.0
    np.testing.assert_allclose(cfg.pinhole.intrinsic_matrix[0], [focal, 0.0, width / 2], rtol=1e-12)
    assert sn.DepthCameraCfg.from_json(cfg.to_json()) == cfg
    assert sn.DepthCameraCfg.from_toml(cfg.to_toml()) == cfg


@pytest.mark.parametrize(
    ("name", "sd", "quantum", "parallax"),
    [
        ("d435", 0.08 * 4.0 / (424.0 * 0.05), 1 / 32, 424.0 * 0.05),
        ("kinect_v1", math.sqrt((0.0012 + 0.0019 * 1.6**2) ** 2 - (0.5 / 43.5) ** 2 / 12.0), 1 / 8, 580.0 * 0.075),
    ],
)
def test_preset_measures_a_wall_like_the_device(name: str, sd: float, quantum: float, parallax: float) -> None:
    """At 2 m mean and deviation match the noise law on the grid of disparities, for any `res`.

    The law is s z^2 / (f B) for stereo; for the Kinect it is the axial one, less the contribution of a disparity step.
    Every depth is a whole number of mm.
    """
    sensor = sensor_of(sn.preset(name, name="camera", body="body", res=(128, 72), offset=FORWARD), envs=6)
    image, truth = (
        sensor.read_image().double().numpy(),
        sensor.ground_truth.distance_to_image_plane[..., 0].double().numpy(),
    )
    np.testing.assert_allclose(truth, 2.0, rtol=1e-6)
    middle = image[:, 16:-16, 40:-16]  # off the border that only one of both views covers
    seen = middle[middle > 0.0]
    assert seen.size > 0.99 * middle.size
    disparity = quantum * np.arange(1, 4000)
    edges = (np.append(disparity - 0.5 * quantum, disparity[-1] + 0.5 * quantum) - parallax / 2.0) / (
        sd * parallax / 4.0
    )
    chance = np.diff([0.5 * math.erfc(-edge / math.sqrt(2.0)) for edge in edges])
    depth = parallax / disparity
    mean = (chance * depth).sum()
    expected = math.sqrt((chance * (depth - mean) ** 2).sum())
    independent = seen.size / 25  # noise is shared by 5 x 5 pixels
    assert seen.std() == pytest.approx(expected, rel=5.0 / math.sqrt(2.0 * independent))
    assert abs(seen.mean() - mean) < 5.0 * expected / math.sqrt(independent)
    np.testing.assert_allclose(seen / 0.001, np.rint(seen / 0.001), atol=1e-3)


def test_preset_reads_zero_without_depth() -> None:
    """Beyond 10 m and in the sky a device reads 0, and so does the truth."""
    sensor = sensor_of(sn.preset("d435", name="camera", body="body", res=(64, 48), offset=FORWARD), shapes=(
        sn.engines.Shape("box", "far", (0.5, 5.0, 30.0), pos=(12.0, 0.0, 0.0)),
    ))  # fmt: skip
    assert (sensor.read_image() == 0.0).all() and (sensor.ground_truth.distance_to_image_plane == 0.0).all()


def test_given_fields_override_a_preset() -> None:
    cfg = sn.preset("d435", body="body", stages=(), resolution=None, max_distance=4.0, rate_hz=90.0)
    assert cfg.stages == () and cfg.resolution is None and cfg.max_distance == 4.0 and cfg.rate_hz == 90.0  # type: ignore[attr-defined]


# The contract, and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"max_distance": 2.1, "noise": 0.1, "data_types": ("distance_to_image_plane", "points_b")},
    ],
)
def test_contract_holds(options: Any) -> None:
    def engine(envs: int) -> sn.TensorEngine:
        def motion(t: float) -> dict[str, torch.Tensor]:
            late = t + 0.3 * torch.arange(envs)[:, None, None]
            still = torch.zeros_like(late)
            quat = torch.cat([(0.1 * late).cos(), still, still, (0.1 * late).sin()], dim=-1)
            return {"body_pos_w": torch.cat([0.5 * late.sin(), late.cos(), still], dim=-1), "body_quat_w": quat}

        return sn.TensorEngine(envs, 0.05, shapes=(WALL,), provides=("pose",), motion=motion)

    rules = check_sensor(camera(res=(6, 4), **options), engine=engine, steps=6)
    assert {"resuming_is_exact", "lazy_equals_eager", "config_round_trip"} <= {*rules}


@pytest.mark.parametrize("shown", [{"depth_clipping_behavior": "max", "max_distance": 9.0}, {"no_hit_value": 20.0}])
@pytest.mark.parametrize(
    "stage",
    [
        sn.stages.StereoDepth(baseline=0.05, fov_deg=60.0, noise_px=0.02, edge_fattening=0.8),
        sn.stages.KinectDepth(fov_deg=60.0),
        sn.stages.TofDepth(modulation_hz=20e6, fov_deg=60.0, flying=1.0, noise_scale=0.0),
    ],
    ids=lambda stage: type(stage).__name__,
)
def test_miss_value_is_no_surface_for_depth_errors(stage: Any, shown: Any) -> None:
    """A box before the sky is measured the same, whether the sky reads +inf, the end of the range or a number."""

    def measured(**options: Any) -> Any:
        cfg = sn.DepthCameraCfg(
            name="camera", body="body", res=(48, 36), fov_horizontal=60.0, stages=(stage,), **options
        )
        box = sn.engines.Shape("box", "box", (0.3, 0.3, 0.3), pos=(2.0, 0.0, 0.0))
        return sn.Scene(sn.TensorEngine(shapes=(box,)), [cfg], seed=1)["camera"].data.distance_to_image_plane

    plain = measured()
    sky = plain.isinf()
    assert 100 < int((~sky).sum()) < 1000
    assert torch.equal(measured(**shown)[~sky], plain[~sky])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"res": (0, 24)}, r"res.*at least 1 pixel"),
        ({"fov_horizontal": 200.0}, r"fov_horizontal.*between 0 and 180"),
        ({"fov_horizontal": 60.0, "fx": 20.0}, r"fx.*either focal lengths or angles"),
        ({"fx": -3.0}, "fx: got -3.0, expected a finite focal length above 0"),
        ({"cy": math.nan}, "cy: got nan, expected a finite number"),
        (
            {"pattern": sn.patterns.PinholeCameraPatternCfg(width=4, height=4)},
            "pattern: got PinholeCamera.*either pattern or res",
        ),
        (
            {"max_distance": 0.5, "min_distance": 1.0},
            "expected a finite distance above min_distance = 1 m",
        ),
        (
            {"data_types": ("distance_to_camera",)},
            "data_types: got .*expected distance_to_image_plane, which read_image returns",
        ),
        ({"data_types": ("rgb",)}, "without rgb, which cast rays do not provide"),
        ({"stages": (sn.stages.StereoDepth(baseline=0.05, fov_deg=60.0),)}, r"stages\.0\.focal_px.*fx 16"),
    ],
)
def test_bad_config_error_names_the_field(options: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=f"(?s){says}"):
        sensor_of(camera(**options))
