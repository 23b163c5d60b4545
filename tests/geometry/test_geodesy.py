"""WGS84: published constants and positions, a round trip over the globe, and an independent search."""

from __future__ import annotations

import math

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry import geodesy

Array = NDArray[np.float64]

A, B = 6378137.0, 6356752.314245
"""Published radii in m; the second to a micrometre."""
NANOMETRES = 1e-8
"""Ten float64 steps at the size of coordinates near the Earth's radius, 0.9 nm each."""


def globe() -> Array:
    """Latitudes to within 1e-13 degrees of the poles, all longitudes, and heights from -500 m to 20 km."""
    near_pole = 90.0 - 10.0 ** -np.arange(1.0, 14.0)
    latitudes = np.concatenate([np.linspace(-90.0, 90.0, 121), near_pole, -near_pole, [1e-9, -1e-9]])
    longitudes = np.linspace(-180.0, 180.0, 25)
    heights = [-500.0, -1.0, 0.0, 0.001, 12.5, 1000.0, 8848.0, 20000.0]
    return np.stack(np.meshgrid(latitudes, longitudes, heights, indexing="ij"), axis=-1).reshape(-1, 3)


def latitude_by_bisection(ecef: Array) -> tuple[Array, Array]:
    """Find where the ellipsoid's normal points at a position: r sin - z cos = e^2 N sin cos, in extended precision.

    Returns:
        latitude in degrees and height, found by bisection alone.
    """
    p = ecef.astype(np.longdouble)
    r, z = np.hypot(p[:, 0], p[:, 1]), p[:, 2]
    f = np.longdouble(1) / np.longdouble("298.257223563")
    e2 = f * (2 - f)
    quarter = 2 * np.arctan(np.longdouble(1))
    low, high = np.full_like(r, -quarter), np.full_like(r, quarter)
    for _ in range(80):
        middle = (low + high) / 2
        s, c = np.sin(middle), np.cos(middle)
        n = A / np.sqrt(1 - e2 * s * s)
        beyond = r * s - z * c - e2 * n * s * c > 0
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    s, c = np.sin(low), np.cos(low)
    n = A / np.sqrt(1 - e2 * s * s)
    height = (r - n * c) * c + (z - n * (1 - e2) * s) * s
    return (low / quarter * 90).astype(np.float64), height.astype(np.float64)


def test_the_constants_are_the_published_ones() -> None:
    """Polar radius and first and second eccentricity squared have the values printed in the standard."""
    assert geodesy.SEMI_MINOR == pytest.approx(B, abs=1e-6)
    assert geodesy.ECCENTRICITY2 == pytest.approx(6.69437999014e-3, abs=5e-15)
    assert geodesy.SECOND_ECCENTRICITY2 == pytest.approx(6.73949674228e-3, abs=5e-15)


@pytest.mark.parametrize(
    ("lla", "ecef"),
    [
        ((0.0, 0.0, 0.0), (A, 0.0, 0.0)),
        ((0.0, 90.0, 100.0), (0.0, A + 100.0, 0.0)),
        ((0.0, 180.0, -50.0), (-(A - 50.0), 0.0, 0.0)),
        ((0.0, -90.0, 0.0), (0.0, -A, 0.0)),
        ((90.0, 0.0, 0.0), (0.0, 0.0, B)),
        ((-90.0, 0.0, 2835.0), (0.0, 0.0, -(B + 2835.0))),
        # at 45 degrees N = a / sqrt(1 - e^2 / 2) and z = N (1 - e^2) / sqrt 2
        ((45.0, 0.0, 0.0), (4517590.878849, 0.0, 4487348.408866)),
    ],
)
def test_known_places_have_known_coordinates(lla: tuple[float, ...], ecef: tuple[float, ...]) -> None:
    """Equator, poles and 45 degrees have the coordinates derived from the radii by hand, both ways."""
    np.testing.assert_allclose(geodesy.geodetic_to_ecef(lla), ecef, atol=1e-6)
    back = geodesy.ecef_to_geodetic(ecef)
    assert back[0] == pytest.approx(lla[0], abs=1e-11)
    assert back[2] == pytest.approx(lla[2], abs=1e-6)
    if abs(lla[0]) < 90.0:
        assert back[1] == pytest.approx(lla[1], abs=1e-11)


def test_the_round_trip_is_exact_to_nanometres_over_the_globe() -> None:
    """From geodetic to ECEF and back, poles and seas included, position and height return within 10 nm."""
    places = globe()
    ecef = geodesy.geodetic_to_ecef(places)
    back = geodesy.ecef_to_geodetic(ecef)
    assert np.abs(geodesy.geodetic_to_ecef(back) - ecef).max() < NANOMETRES
    assert np.abs(back[:, 2] - places[:, 2]).max() < NANOMETRES
    assert np.deg2rad(np.abs(back[:, 0] - places[:, 0])).max() * A < NANOMETRES


def test_the_inverse_agrees_with_a_search_by_halving() -> None:
    """Latitude and height match those found by bisection of the defining condition, up to the height of satellites."""
    rng = np.random.default_rng(1)
    count = 2000
    places = np.stack(
        [rng.uniform(-90, 90, count), rng.uniform(-180, 180, count), 10.0 ** rng.uniform(0, 7.3, count)], axis=-1
    )
    places[:200, 2] = rng.uniform(-10000, 0, 200)
    ecef = geodesy.geodetic_to_ecef(places)
    latitude, height = latitude_by_bisection(ecef)
    found = geodesy.ecef_to_geodetic(ecef)
    assert np.deg2rad(np.abs(found[:, 0] - latitude)).max() * A < NANOMETRES
    assert np.abs(found[:, 2] - height).max() < 5 * NANOMETRES  # at 26000 km the steps are four times as large


@wp.kernel
def _both_ways(
    ecef_in: wp.array[wp.vec3d],
    enu_in: wp.array[wp.vec3d],
    origin: wp.vec3d,
    axes: wp.mat33d,
    geodetic_out: wp.array[wp.vec3d],
    enu_out: wp.array[wp.vec3d],
) -> None:
    i = wp.tid()
    geodetic_out[i] = geodesy.ecef_to_geodetic_wp(ecef_in[i])
    enu_out[i] = geodesy.enu_to_geodetic_wp(enu_in[i], origin, axes)


def test_the_warp_functions_agree_with_numpy() -> None:
    """In a kernel the same formulas give the same positions to within 10 nm."""
    places, origin = globe(), (47.3977, 8.5456, 488.0)
    ecef = geodesy.geodetic_to_ecef(places)
    enu = np.random.default_rng(2).normal(scale=1e4, size=places.shape)
    inputs = [wp.array(values, dtype=wp.vec3d, device="cpu") for values in (ecef, enu)]
    frame = [wp.vec3d(*geodesy.geodetic_to_ecef(origin)), wp.mat33d(*geodesy.enu_axes(origin).ravel())]
    outputs = [wp.empty(len(places), dtype=wp.vec3d, device="cpu") for _ in range(2)]
    wp.launch(_both_ways, len(places), [*inputs, *frame], outputs, device="cpu")
    geodetic, local = (values.numpy() for values in outputs)
    for found, expected in ((geodetic, geodesy.ecef_to_geodetic(ecef)), (local, geodesy.enu_to_geodetic(enu, origin))):
        degrees = np.rad2deg(found[:, :2]) - expected[:, :2]
        cosine = np.cos(np.deg2rad(expected[:, 0]))
        assert np.deg2rad(np.abs(degrees[:, 0])).max() * A < NANOMETRES
        assert (np.deg2rad(np.abs(degrees[:, 1])) * cosine).max() * A < NANOMETRES
        assert np.abs(found[:, 2] - expected[:, 2]).max() < NANOMETRES


# Local frames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", [(47.3977, 8.5456, 488.0), (-33.9, 151.2, 10.0), (90.0, 30.0, 0.0), (0.0, 180.0, 0.0)]
)
def test_local_axes_are_right_handed_and_point_east_north_and_up(origin: tuple[float, float, float]) -> None:
    """The axes are orthonormal; up, north and east are the directions in which height, latitude and longitude
    increase.
    """
    axes = geodesy.enu_axes(origin)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(np.cross(axes[0], axes[1]), axes[2], atol=1e-15)
    if abs(origin[0]) < 90.0:
        there = geodesy.enu_to_geodetic([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], origin)
        growth = there - np.array(origin)
        growth[:, 1] = (growth[:, 1] + 180.0) % 360.0 - 180.0
        assert growth[0, 1] > 0 and growth[1, 0] > 0
        np.testing.assert_allclose(growth[:, 2], [0.0, 0.0, 1.0], atol=1e-7)


def test_tangent_plane_height_follows_pythagoras() -> None:
    """Along the equator, d metres to the east of the origin lie sqrt(a^2 + d^2) - a high, at longitude atan(d / a)."""
    d = np.array([1.0, 1e3, 1e4, 1e5])
    there = geodesy.enu_to_geodetic(np.stack([d, 0 * d, 0 * d], axis=-1), (0.0, 0.0, 0.0))
    np.testing.assert_allclose(there[:, 2], d * d / (np.hypot(A, d) + A), atol=NANOMETRES)
    np.testing.assert_allclose(there[:, 1], np.rad2deg(np.arctan2(d, A)), rtol=0, atol=1e-13)
    assert there[2, 2] == pytest.approx(7.84, abs=0.005)


def test_local_coordinates_round_trip_within_nanometres() -> None:
    """The conversion from ENU to geodetic and back is exact, 100 km around origins all over the globe."""
    rng = np.random.default_rng(3)
    for origin in ((47.3977, 8.5456, 488.0), (-90.0, 0.0, 2835.0), (0.0, -180.0, 0.0), (89.999, 12.0, -30.0)):
        enu = rng.uniform(-1e5, 1e5, size=(500, 3)) * [1.0, 1.0, 0.1]
        back = geodesy.geodetic_to_enu(geodesy.enu_to_geodetic(enu, origin), origin)
        assert np.abs(back - enu).max() < 2 * NANOMETRES


def test_degree_of_latitude_has_the_local_meridian_length() -> None:
    """The radius of curvature of the meridian is a (1 - e^2) at the equator and a^2 / b at the pole."""
    for latitude, near, radius in ((0.0, 0.001, B * B / A), (90.0, 89.999, A * A / B)):
        (north,) = geodesy.geodetic_to_enu([(near, 0.0, 0.0)], (latitude, 0.0, 0.0))[:, 1]
        assert abs(north) == pytest.approx(radius * math.radians(0.001), rel=1e-9)
