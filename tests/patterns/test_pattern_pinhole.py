"""Pinhole cameras: their rays invert the projection K."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.patterns import pinhole_camera_pattern

K = [[229.31640625, 0.0, 164.810546875], [0.0, 229.826171875, 122.1650390625], [0.0, 0.0, 1.0]]
"""Intrinsics of a RealSense at 320 x 240."""


@pytest.mark.parametrize(("width", "height"), [(64, 48), (320, 240), (1, 1), (1920, 1080)])
def test_pinhole_has_one_unit_ray_per_pixel(width: int, height: int) -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg(width=width, height=height)
    starts, directions = pinhole_camera_pattern(cfg, torch.tensor(cfg.intrinsic_matrix)[None], "cpu")
    assert starts.shape == directions.shape == (1, width * height, 3)
    assert cfg.return_shape == (height, width)
    assert float((directions.norm(dim=-1) - 1.0).abs().max()) < 1e-5
    assert not starts.any()


def test_each_ray_passes_its_pixel_centre_and_row_0_is_the_top() -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(K, 320, 240)
    d = cfg.rays().directions.double().numpy()
    u = K[0][2] + K[0][0] * -d[:, 1] / d[:, 0]
    v = K[1][2] + K[1][1] * -d[:, 2] / d[:, 0]
    rows, columns = np.divmod(np.arange(320 * 240), 320)
    np.testing.assert_allclose(u, columns + 0.5, atol=1e-4)
    np.testing.assert_allclose(v, rows + 0.5, atol=1e-4)


def test_the_intrinsics_are_those_of_focal_length_and_aperture() -> None:
    assert sn.patterns.PinholeCameraPatternCfg(width=640, height=480).intrinsic_matrix[0, 0] == pytest.approx(
        732.999, abs=1e-3
    )
    assert sn.patterns.PinholeCameraPatternCfg(width=320, height=240).intrinsic_matrix[0, 0] == pytest.approx(
        366.500, abs=1e-3
    )
    cfg = sn.patterns.PinholeCameraPatternCfg(
        width=200,
        height=100,
        focal_length=2.0,
        horizontal_aperture=4.0,
        vertical_aperture=1.0,
        horizontal_aperture_offset=0.1,
        vertical_aperture_offset=-0.2,
    )
    np.testing.assert_allclose(cfg.intrinsic_matrix, [[100.0, 0, 110.0], [0, 200.0, 10.0], [0, 0, 1]], rtol=1e-15)


@pytest.mark.parametrize("flat", [False, True])
def test_intrinsic_matrix_round_trips_exactly(flat: bool) -> None:
    given = np.array(K).ravel().tolist() if flat else K
    cfg = sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(given, 320, 240)
    np.testing.assert_allclose(cfg.intrinsic_matrix, K, rtol=1e-15, atol=0)
    assert cfg.focal_length == 24.0 and cfg.horizontal_aperture > 0.0 and (cfg.vertical_aperture or 0.0) > 0.0
    again = sn.patterns.PinholeCameraPatternCfg.from_json(cfg.to_json())
    np.testing.assert_array_equal(again.intrinsic_matrix, cfg.intrinsic_matrix)


def test_each_env_can_have_its_own_intrinsics() -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg(width=64, height=48)
    matrices = torch.tensor([[[f, 0.0, 32.0], [0.0, f, 24.0], [0.0, 0.0, 1.0]] for f in (500.0, 600.0, 700.0)])
    directions = cfg.rays_from_intrinsics(matrices)
    assert directions.shape == (3, 64 * 48, 3)
    for env, f in enumerate((500.0, 600.0, 700.0)):
        alone = (
            sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(matrices[env].numpy(), 64, 48).rays().directions
        )
        torch.testing.assert_close(directions[env], alone)
        corner = np.array([1.0, 31.5 / f, 23.5 / f])
        np.testing.assert_allclose(directions[env, 0], corner / np.linalg.norm(corner), atol=1e-7)


def test_a_skewed_matrix_is_honoured_per_env() -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg(width=4, height=3)
    k = np.array([[5.0, 0.7, 2.0], [0.0, 6.0, 1.5], [0.0, 0.0, 1.0]])
    d = cfg.rays_from_intrinsics(torch.tensor(k)[None])[0].double().numpy()
    pixels = k @ np.stack([-d[:, 1], -d[:, 2], d[:, 0]])
    rows, columns = np.divmod(np.arange(12), 4)
    np.testing.assert_allclose(pixels[:2] / pixels[2], [columns + 0.5, rows + 0.5], atol=1e-5)


def test_fovy_of_mjlab_is_the_angle_between_the_upper_and_the_lower_edge() -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg(width=16, height=12, fovy=45.0)
    k = cfg.intrinsic_matrix
    assert k[0, 0] == pytest.approx(k[1, 1], rel=1e-15)
    assert 2.0 * math.degrees(math.atan(6.0 / k[1, 1])) == pytest.approx(45.0, rel=1e-14)
    assert cfg == sn.patterns.PinholeCameraPatternCfg.from_dict(cfg.to_dict())


def test_genesis_depth_camera_accepts_angles_or_focal_lengths() -> None:
    d = sn.patterns.PinholeCameraPatternCfg.from_lens().rays().directions.reshape(96, 128, 3)
    assert float(d[0, 0, 0]) > 0.0 and float(d[0, 0, 1]) > 0.0 and float(d[0, 0, 2]) > 0.0  # top left
    assert sn.patterns.PinholeCameraPatternCfg.from_lens().intrinsic_matrix[0, 0] == pytest.approx(
        64.0
    )  # 90 degrees across
    both = sn.patterns.PinholeCameraPatternCfg.from_lens(fov_horizontal=90.0, fov_vertical=60.0).intrinsic_matrix
    assert both[1, 1] == pytest.approx(48.0 / math.tan(math.radians(30.0)))
    upright = sn.patterns.PinholeCameraPatternCfg.from_lens(fov_vertical=60.0).intrinsic_matrix
    assert upright[0, 0] == pytest.approx(both[1, 1])
    one = sn.patterns.PinholeCameraPatternCfg.from_lens(res=(10, 8), fx=7.0, cx=4.0).intrinsic_matrix
    np.testing.assert_allclose(one, [[7.0, 0, 4.0], [0, 7.0, 4.0], [0, 0, 1]])


def test_conflicting_lens_parameters_are_refused() -> None:
    with pytest.raises(
        sn.ConfigError, match=r"PinholeCameraPatternCfg\.fx: got 7\.0, expected either focal lengths or angles"
    ):
        sn.patterns.PinholeCameraPatternCfg.from_lens(fx=7.0, fov_vertical=60.0)
    with pytest.raises(sn.ConfigError, match=r"fovy: got 45\.0, expected either fovy or horizontal_aperture"):
        sn.patterns.PinholeCameraPatternCfg(width=4, height=3, fovy=45.0, horizontal_aperture=20.0)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [(np.zeros((3, 3)), "non-singular"), ([[1, 0, 0], [0, 0, 0], [0, 0, 1]], "non-singular"), ([1.0, 2.0], "9 numbers"),
     ([[math.nan, 0, 0], [0, 1, 0], [0, 0, 1]], "finite"), ([[1, 0.5, 0], [0, 1, 0], [0, 0, 1]], "no skew")],
)  # fmt: skip
def test_invalid_camera_matrix_is_refused(matrix, expected: str) -> None:
    with pytest.raises(sn.ConfigError, match=rf"PinholeCameraPatternCfg\.intrinsic_matrix: got .*{expected}"):
        sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(matrix, 4, 3)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_the_first_bad_matrix_of_a_batch_is_named(value: float) -> None:
    cfg = sn.patterns.PinholeCameraPatternCfg(width=4, height=3)
    matrices = torch.eye(3).repeat(5, 1, 1)
    matrices[3, 1, 1] = value
    with pytest.raises(sn.ConfigError, match=r"finite non-singular matrix, in row 3 of 5\."):
        cfg.rays_from_intrinsics(matrices)
    with pytest.raises(sn.ConfigError, match=r"expected a tensor \[n, 3, 3\]"):
        cfg.rays_from_intrinsics(torch.eye(3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"width": 0}, "width: got 0, expected at least 1 pixel"),
     ({"focal_length": 0.0}, r"focal_length: got 0\.0, expected a length greater than 0"),
     ({"horizontal_aperture": -1.0}, r"horizontal_aperture: got -1\.0"),
     ({"vertical_aperture": math.nan}, "vertical_aperture: got nan"),
     ({"fovy": 180.0}, r"fovy: got 180\.0, expected an angle between 0 and 180, deg\. .*wider view"),
     ({"height": 10**9}, "height: got 1000000000, expected at most 100000000 rays")],
)  # fmt: skip
def test_bad_cameras_are_refused_by_field(fields, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        sn.patterns.PinholeCameraPatternCfg(**{"width": 4, "height": 3, **fields})
