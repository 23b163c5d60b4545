"""Patterns whose rays all fire at once: counts, order and directions match the libraries they are named after."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.compat.genesis import GridPattern
from sensorium.patterns import bpearl_pattern, grid_pattern, lidar_pattern

# Grid -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "resolution", "ordering", "count"),
    [((2.0, 2.0), 1.0, "xy", 9), ((2.0, 2.0), 0.5, "xy", 25), ((4.0, 2.0), 1.0, "xy", 15),
     ((2.0, 4.0), 1.0, "yx", 15), ((1.0, 1.0), 0.25, "yx", 25), ((0.0, 0.0), 1.0, "xy", 1),
     ((1.6, 1.0), 0.1, "xy", 187), ((0.9, 0.9), 0.1, "xy", 100)],
)  # fmt: skip
def test_a_grid_has_one_ray_per_point_and_both_its_edges(size, resolution, ordering, count) -> None:
    starts, directions = grid_pattern(
        sn.patterns.GridPatternCfg(size=size, resolution=resolution, ordering=ordering), "cpu"
    )
    assert starts.shape == directions.shape == (count, 3)
    assert starts.dtype == directions.dtype == torch.float32


def test_ordering_xy_walks_along_x_first_and_yx_along_y() -> None:
    xy = sn.patterns.GridPatternCfg(size=(2.0, 2.0), resolution=1.0, ordering="xy").rays()
    yx = sn.patterns.GridPatternCfg(size=(2.0, 2.0), resolution=1.0, ordering="yx").rays()
    assert xy.starts[:4, :2].tolist() == [[-1.0, -1.0], [0.0, -1.0], [1.0, -1.0], [-1.0, 0.0]]
    assert yx.starts[:4, :2].tolist() == [[-1.0, -1.0], [-1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]


def test_the_shape_of_a_grid_gives_the_rays_their_rows_and_columns() -> None:
    rays = sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1).rays()
    assert rays.return_shape == (11, 17)
    starts = rays.starts.reshape(11, 17, 3)
    assert torch.equal(starts[:, 3, 0], starts[:1, 3, 0].expand(11))  # a column has one x
    turned = sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1, ordering="yx").rays()
    assert turned.return_shape == (17, 11)
    torch.testing.assert_close(turned.starts.reshape(17, 11, 3).transpose(0, 1), starts, rtol=0, atol=0)


@pytest.mark.parametrize("direction", [(0.0, 0.0, -1.0), (1.0, 0.0, 0.0), (0.0, 2.0, -2.0)])
def test_grid_directions_are_raw_in_func_and_unit_in_rays(direction) -> None:
    cfg = sn.patterns.GridPatternCfg(size=(2.0, 2.0), resolution=0.5, direction=direction)
    raw = cfg.func(cfg, "cpu")[1]
    torch.testing.assert_close(raw, torch.tensor(direction).expand(25, 3))
    unit = np.array(direction) / np.linalg.norm(direction)
    np.testing.assert_allclose(cfg.rays().directions.numpy(), np.tile(unit, (25, 1)), atol=1e-7)


def test_a_grid_is_centred_and_flat() -> None:
    starts = sn.patterns.GridPatternCfg(size=(2.0, 4.0), resolution=0.5).rays().starts
    assert (starts.amin(dim=0).tolist(), starts.amax(dim=0).tolist()) == ([-1.0, -2.0, 0.0], [1.0, 2.0, 0.0])


def test_size_not_a_multiple_of_the_resolution_starts_at_the_low_edge() -> None:
    x = sn.patterns.GridPatternCfg(size=(1.0, 0.0), resolution=0.3).rays().starts[:, 0]
    np.testing.assert_allclose(x.numpy(), [-0.5, -0.2, 0.1, 0.4], atol=1e-7)


def test_the_grid_of_genesis_has_its_defaults() -> None:
    fields = {"size": (2.0, 2.0), "resolution": 0.1, "direction": (0.0, 0.0, -1.0), "ordering": "yx"}
    assert GridPattern() == sn.patterns.GridPatternCfg(**fields)
    assert GridPattern(size=(0.9, 0.9)).return_shape == (10, 10)


# Ring -----------------------------------------------------------------------------------------------------------------


def test_rings_follow_the_centre_in_order_from_plus_x_to_the_left() -> None:
    rays = sn.patterns.RingPatternCfg(rings=(sn.patterns.Ring(0.1, 4), sn.patterns.Ring(0.2, 2))).rays()
    expected = [[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [-0.1, 0, 0], [0, -0.1, 0], [0.2, 0, 0], [-0.2, 0, 0]]
    np.testing.assert_allclose(rays.starts.numpy(), expected, atol=1e-7)
    assert rays.directions.tolist() == [[0.0, 0.0, -1.0]] * 7
    assert rays.return_shape == (7,)


def test_a_single_ring_is_a_circle_of_eight_and_the_centre() -> None:
    assert len(sn.patterns.RingPatternCfg.single_ring().rays()) == 9
    assert len(sn.patterns.RingPatternCfg.single_ring(num_samples=5, include_center=False).rays()) == 5


# Spherical ------------------------------------------------------------------------------------------------------------


def test_genesis_sphere_is_azimuths_by_elevations_without_the_end_of_a_full_turn() -> None:
    rays = sn.patterns.SphericalPatternCfg().rays()
    assert rays.return_shape == (128, 64)
    d = rays.directions.double().reshape(128, 64, 3).numpy()
    azimuth = np.degrees(np.unwrap(np.arctan2(d[:, 30, 1], d[:, 30, 0])))
    np.testing.assert_allclose(np.diff(azimuth), 360.0 / 128, atol=1e-4)
    elevation = np.degrees(np.arcsin(d[5, :, 2]))
    np.testing.assert_allclose(elevation, np.linspace(-30.0, 30.0, 64), atol=1e-4)


def test_partial_sphere_includes_both_ends() -> None:
    for fov in ((90.0, 20.0), ((-45.0, 45.0), (-10.0, 10.0))):
        azimuth, elevation = sn.patterns.SphericalPatternCfg(fov=fov, n_points=(4, 3)).grid_angles()
        np.testing.assert_allclose(azimuth, [-45.0, -15.0, 15.0, 45.0])
        np.testing.assert_allclose(elevation, [-10.0, 0.0, 10.0])


def test_sphere_angles_can_be_steps_or_explicit() -> None:
    azimuth, elevation = sn.patterns.SphericalPatternCfg(
        fov=(360.0, 50.0), angular_resolution=(90.0, 20.0)
    ).grid_angles()
    np.testing.assert_allclose(azimuth, [-180.0, -90.0, 0.0, 90.0])
    np.testing.assert_allclose(elevation, [-25.0, -5.0, 15.0])
    rays = sn.patterns.SphericalPatternCfg(angles=((0.0, 90.0), (0.0, 90.0))).rays()
    np.testing.assert_allclose(rays.directions.numpy(), [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]], atol=1e-7)


# Lidar ----------------------------------------------------------------------------------------------------------------

LIDARS = [(16, (-15, 15), (-180, 180), 0.2), (16, (-15, 15), (-180, 180), 90.0), (32, (-30, 10), (-180, 180), 1.0),
          (1, (0, 0), (-180, 180), 10.0), (4, (-10, 10), (-90, 90), 30.0), (8, (-16.8, 16.8), (0, 360), 45.0),
          (2, (-15, 15), (0, 100), 30.0), (2, (-15, 15), (-180, 180), 100.0), (4, (0, 20), (-90, 90), 60.0),
          (16, (-15, 15), (-60, 60), 7.0)]  # fmt: skip


def lidar(channels, vertical, horizontal, res, **more) -> sn.patterns.LidarPatternCfg:
    return sn.patterns.LidarPatternCfg(
        channels=channels, vertical_fov_range=vertical, horizontal_fov_range=horizontal, horizontal_res=res, **more
    )


@pytest.mark.parametrize("given", LIDARS)
def test_spacing_up_to_both_ends_has_the_counts_of_isaac_lab(given) -> None:
    channels, _, (low, high), res = given
    columns = math.ceil((high - low) / res) + (0 if high - low == 360 else 1)
    starts, directions = lidar_pattern(lidar(*given, spacing="both_ends"), "cpu")
    assert starts.shape == directions.shape == (channels * columns, 3)
    np.testing.assert_allclose(directions.norm(dim=-1), 1.0, rtol=1e-5, atol=1e-5)
    assert not starts.any()


@pytest.mark.parametrize("given", LIDARS)
def test_exact_spacing_keeps_the_step_and_never_leaves_the_range(given) -> None:
    _, _, (low, high), res = given
    azimuths = lidar(*given).azimuths()
    np.testing.assert_allclose(azimuths, low + res * np.arange(len(azimuths)), rtol=0, atol=1e-9)
    beyond = azimuths[-1] + res  # the next one: out of the range, or once around
    assert azimuths[-1] <= high + 1e-9
    assert beyond > high - 1e-9 if high - low == 360 else beyond > high + 1e-9


@pytest.mark.parametrize(
    ("span", "res", "count"),
    [((-180, 180), 90, 4), ((-180, 180), 45, 8), ((-180, 180), 120, 3), ((-90, 90), 60, 4), ((-90, 90), 90, 3)],
)
@pytest.mark.parametrize("spacing", ["exact", "both_ends"])
def test_a_step_that_divides_the_range_gives_its_exact_angles(span, res, count, spacing) -> None:
    d = lidar(1, (0, 0), span, res, spacing=spacing).rays().directions.double().numpy()
    gaps = np.diff(np.degrees(np.unwrap(np.arctan2(d[:, 1], d[:, 0]))))
    assert len(d) == count
    np.testing.assert_allclose(gaps, res, atol=1e-4)
    around = 360.0 - gaps.sum()  # from the last ray to the first
    assert around == pytest.approx(res if span == (-180, 180) else 180.0, abs=1e-3)


def test_spacing_option_decides_on_a_non_dividing_step() -> None:
    part = (1, (0, 0), (0, 100), 30.0)
    np.testing.assert_allclose(lidar(*part).azimuths(), [0, 30, 60, 90])
    np.testing.assert_allclose(lidar(*part, spacing="both_ends").azimuths(), [0, 25, 50, 75, 100])
    turn = (1, (0, 0), (-180, 180), 90.0)
    np.testing.assert_allclose(lidar(*turn, spacing="one_less").azimuths(), [-180, -60, 60])


@pytest.mark.parametrize(("vertical", "channels"), [((-15, 15), 4), ((-30, 10), 5), ((0, 0), 1)])
def test_channels_reach_from_the_first_to_the_last_elevation(vertical, channels) -> None:
    rays = lidar(channels, vertical, (-180, 180), 90.0).rays()
    z = rays.directions[:, 2]
    np.testing.assert_allclose([z.min(), z.max()], np.sin(np.radians(vertical)), atol=1e-5)
    assert rays.return_shape == (channels, 4)
    assert rays.channels is not None and rays.channels.tolist() == [c for c in range(channels) for _ in range(4)]
    assert torch.unique(z.reshape(channels, 4), dim=1).shape == (channels, 1)  # a channel is a cone


def test_directions_of_a_lidar_point_forward_left_and_up() -> None:
    rays = lidar(2, (0, 30), (0, 90), 90.0).rays()
    half = math.sqrt(3.0) / 2.0
    expected = [[1, 0, 0], [0, 1, 0], [half, 0, 0.5], [0, half, 0.5]]
    np.testing.assert_allclose(rays.directions.numpy(), expected, atol=1e-7)


# Bpearl ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fov", "res"), [(360.0, 10.0), (360.0, 5.0), (180.0, 10.0), (90.0, 5.0)])
def test_bpearl_has_32_rays_per_column_without_the_end(fov, res) -> None:
    rays = sn.patterns.BpearlPatternCfg(horizontal_fov=fov, horizontal_res=res).rays()
    assert len(rays) == 32 * int(fov / res)
    assert rays.return_shape == (int(fov / res), 32)


def test_bpearl_points_up_and_starts_ahead_near_the_zenith() -> None:
    starts, directions = bpearl_pattern(sn.patterns.BpearlPatternCfg(), "cpu")
    np.testing.assert_allclose(directions[0], [0.00873, 0.0, 0.99996], atol=1e-5)
    np.testing.assert_allclose(directions.norm(dim=-1), 1.0, rtol=1e-5)
    assert not starts.any() and bool((directions[:, 2] > 0.0).all())
    h, p = np.radians(-180.0 + 10.0 * 7), np.radians(89.5 - 2.8125 * 20)  # ray 7 * 32 + 20
    expected = [-np.cos(p) * np.cos(h), -np.cos(p) * np.sin(h), np.sin(p)]
    np.testing.assert_allclose(directions[7 * 32 + 20], expected, atol=1e-6)


def test_bpearl_accepts_other_angles() -> None:
    cfg = sn.patterns.BpearlPatternCfg(horizontal_res=90.0, vertical_ray_angles=(80.0, 60.0, 40.0, 20.0, 0.0))
    assert len(cfg.rays()) == 20
