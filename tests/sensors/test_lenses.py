"""Lenses against the published formulas, written out point by point."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import methodcaller

import numpy as np
import pytest
import torch
from torch import Tensor

from sensorium.cameras.geometry import project_points, unproject_depth
from sensorium.cameras.lenses import (
    LENSES,
    BrownConradyLensCfg,
    EquirectangularLensCfg,
    FThetaLensCfg,
    KannalaBrandtLensCfg,
    LensCfg,
    OrthographicLensCfg,
    PinholeLensCfg,
    lens_rays,
    parse_lens,
)
from sensorium.errors import ConfigError

WIDTH, HEIGHT = 64, 48
K = torch.tensor([[[40.0, 0.0, 31.0], [0.0, 42.0, 26.0], [0.0, 0.0, 1.0]]], dtype=torch.float64, device="cpu")
K1, K2, K3, P1, P2 = -0.28, 0.07, -0.002, 1e-3, -5e-4
ALL: list[LensCfg] = [
    PinholeLensCfg(),
    BrownConradyLensCfg(k1=K1, k2=K2, p1=P1, p2=P2, k3=K3, k4=0.01, k5=0.002, k6=1e-4),
    KannalaBrandtLensCfg(k1=-0.01, k2=0.003, k3=-1e-3, k4=1e-4),
    FThetaLensCfg(coefficients=(0.025, 1e-5, -1e-7), nominal_size=(100.0, 60.0), centre=(52.0, 30.0)),
    EquirectangularLensCfg(horizontal_fov_deg=180.0, vertical_fov_deg=90.0),
    OrthographicLensCfg(view_height=2.0),
]


def matrices(lens: LensCfg) -> Tensor:
    return lens.intrinsic_matrix(WIDTH, HEIGHT)[None] if lens.defines_intrinsics else K


def brown_conrady(x: float, y: float, z: float) -> tuple[float, float]:
    x, y = x / z, y / z
    r2 = x**2 + y**2
    radial = (1 + K1 * r2 + K2 * r2**2 + K3 * r2**3) / (1 + 0.01 * r2 + 0.002 * r2**2 + 1e-4 * r2**3)
    return (
        x * radial + 2 * P1 * x * y + P2 * (r2 + 2 * x**2),
        y * radial + P1 * (r2 + 2 * y**2) + 2 * P2 * x * y,
    )


def kannala_brandt(x: float, y: float, z: float) -> tuple[float, float]:
    angle, azimuth = math.acos(z / math.sqrt(x * x + y * y + z * z)), math.atan2(y, x)
    radius = angle - 0.01 * angle**3 + 0.003 * angle**5 - 1e-3 * angle**7 + 1e-4 * angle**9
    return radius * math.cos(azimuth), radius * math.sin(azimuth)


def equirectangular(x: float, y: float, z: float) -> tuple[float, float]:
    return math.atan2(x, z), math.asin(y / math.sqrt(x * x + y * y + z * z))


FORMULAS: dict[int, Callable[[float, float, float], tuple[float, float]]] = {
    0: lambda x, y, z: (x / z, y / z),
    1: brown_conrady,
    2: kannala_brandt,
    4: equirectangular,
    5: lambda x, y, z: (x, y),
}


@pytest.mark.parametrize("number", FORMULAS)
def test_projection_follows_the_published_formula(number: int) -> None:
    """100 random points in front of the camera, float64."""
    points = np.random.default_rng(number).uniform((-0.5, -0.5, 0.8), (0.5, 0.5, 3.0), (100, 3))
    found = ALL[number].project(torch.tensor(points, device="cpu")).numpy()
    assert np.abs(found - [FORMULAS[number](*point) for point in points]).max() < 1e-12


def test_f_theta_angle_is_the_polynomial_of_the_radius() -> None:
    """The angle between a pixel's ray and the axis, at two image sizes with the same field of view."""
    lens = ALL[3]
    for scale in (1, 2):
        width, height = 100 * scale, 60 * scale
        k = lens.intrinsic_matrix(width, height)[None]
        assert k[0].tolist() == [[40.0 * scale, 0, 52.0 * scale], [0, 40.0 * scale, 30.0 * scale], [0, 0, 1]]
        directions = lens_rays(lens, k, height, width)[1][0].reshape(height, width, 3).numpy()
        for row, column in ((0, 0), (17, 80), (41, 3), (59, 99)):
            x, y = (column + 0.5) / scale - 52.0, (row + 0.5) / scale - 30.0
            r = math.hypot(x, y)
            angle = 0.025 * r + 1e-5 * r**2 - 1e-7 * r**3
            expected = (math.sin(angle) * x / r, math.sin(angle) * y / r, math.cos(angle))
            assert directions[row, column] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("lens", ALL, ids=methodcaller("kind"))
def test_a_point_on_the_ray_of_a_pixel_appears_at_its_centre(lens: LensCfg) -> None:
    """All pixels, to 1e-9 px; every pixel of these lenses sees something."""
    k = matrices(lens)
    starts, directions = lens_rays(lens, k, HEIGHT, WIDTH)
    assert (directions.norm(dim=-1) - 1.0).abs().max() < 1e-12
    plane = lens.project(starts + 3.0 * directions)
    pixels = torch.cat([plane, torch.ones_like(plane[..., :1])], dim=-1) @ k.transpose(1, 2)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    assert np.abs(pixels[0, :, 0].numpy() - columns.reshape(-1)).max() < 1e-9
    assert np.abs(pixels[0, :, 1].numpy() - rows.reshape(-1)).max() < 1e-9


@pytest.mark.parametrize("number", FORMULAS)
def test_points_project_to_the_pixels_of_the_formula(number: int) -> None:
    lens, k = ALL[number], matrices(ALL[number])[0]
    points = np.random.default_rng(number).uniform((-0.5, -0.5, 0.8), (0.5, 0.5, 3.0), (2, 50, 3))
    pixels = project_points(torch.tensor(points, device="cpu"), k, lens).numpy()
    for point, pixel in zip(points.reshape(-1, 3), pixels.reshape(-1, 3), strict=True):
        expected = k.numpy() @ (*FORMULAS[number](*point), 1.0)
        assert pixel == pytest.approx((*expected[:2], point[2]), abs=1e-10)


@pytest.mark.parametrize("lens", ALL, ids=methodcaller("kind"))
def test_an_image_of_distances_gives_points_at_its_pixels(lens: LensCfg) -> None:
    """Lengths of rays of two images give points at the pixels; their depths give the same points."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    image = torch.tensor(np.random.default_rng(1).uniform(1.0, 5.0, (2, HEIGHT, WIDTH, 1)), device="cpu")
    points = unproject_depth(image, matrices(lens), is_ortho=False, lens=lens)
    length = points[..., 2] if lens.is_parallel else points.norm(dim=-1)
    assert (length - image.reshape(2, -1)).abs().max() < 1e-9
    pixels = project_points(points, matrices(lens), lens).numpy()
    assert np.abs(pixels[..., 0] - columns.reshape(-1)).max() < 1e-9
    assert np.abs(pixels[..., 1] - rows.reshape(-1)).max() < 1e-9
    depth = points[..., 2].reshape(2, HEIGHT, WIDTH)
    assert (unproject_depth(depth, matrices(lens), lens=lens) - points).abs().max() < 1e-9


def test_pixels_without_a_surface_or_a_ray_have_no_point() -> None:
    """Misses, pixels beyond the field of view, and depths at a right angle to the axis."""
    fisheye = KannalaBrandtLensCfg(max_fov_deg=90.0)
    k = torch.tensor([[10.0, 0.0, 12.0], [0.0, 10.0, 0.5], [0.0, 0.0, 1.0]], dtype=torch.float64, device="cpu")
    image = torch.ones(1, 24, dtype=torch.float64, device="cpu")
    image[0, 10] = torch.inf
    seen = torch.isfinite(unproject_depth(image, k, lens=fisheye)).all(dim=-1)
    beyond = (torch.arange(24, device="cpu") + 0.5 - 12.0).abs() > 10.0 * math.pi / 4  # radius of 45 degrees
    assert seen.tolist() == [not out and column != 10 for column, out in enumerate(beyond.tolist())]
    panorama = EquirectangularLensCfg()
    k = panorama.intrinsic_matrix(4, 1)
    k[0, 2] = 1.5  # the centre of the second pixel is on the axis, that of the third at a right angle
    found = unproject_depth(image[:, :4], k, lens=panorama)
    assert torch.isfinite(found).all(dim=-1).tolist() == [False, True, False, True]
    assert torch.isfinite(unproject_depth(image[:, :4], k, is_ortho=False, lens=panorama)).all()


def test_points_that_a_lens_does_not_see_have_no_position() -> None:
    """Points behind a camera, beyond the field of view, and beyond a fold are NaN; a pixel beyond it has no ray."""
    behind = torch.tensor([[0.1, 0.2, -1.0]], dtype=torch.float64, device="cpu")
    for lens in (PinholeLensCfg(), OrthographicLensCfg(view_height=1.0), BrownConradyLensCfg()):
        assert torch.isnan(lens.project(behind)).all()
    assert torch.isfinite(KannalaBrandtLensCfg().project(behind)).all()
    narrow = KannalaBrandtLensCfg(max_fov_deg=90.0)
    assert torch.isnan(narrow.project(torch.tensor([[1.01, 0.0, 1.0]], dtype=torch.float64, device="cpu"))).all()
    assert torch.isfinite(narrow.project(torch.tensor([[0.99, 0.0, 1.0]], dtype=torch.float64, device="cpu"))).all()
    plane = torch.tensor([[0.78, 0.0], [0.79, 0.0]], dtype=torch.float64, device="cpu")
    assert narrow.unproject(plane).norm(dim=-1).tolist() == [pytest.approx(1.0), 0.0]
    # x (1 - x^2 / 2) rises up to x = sqrt(2/3), where it is 0.544
    folded = BrownConradyLensCfg(k1=-0.5)
    points = torch.tensor([[0.81, 0.0, 1.0], [0.83, 0.0, 1.0]], dtype=torch.float64, device="cpu")
    assert torch.isnan(folded.project(points)).any(dim=-1).tolist() == [False, True]
    plane = torch.tensor([[0.54, 0.0], [0.55, 0.0]], dtype=torch.float64, device="cpu")
    assert folded.folds(plane).tolist() == [False, True]
    # t (1 - t^2 / 3) rises up to t = 1, where it is 2/3
    fisheye = KannalaBrandtLensCfg(k1=-1 / 3)
    plane = torch.tensor([[0.66, 0.0], [0.67, 0.0]], dtype=torch.float64, device="cpu")
    assert fisheye.folds(plane).tolist() == [False, True]
    assert not fisheye.replace(max_fov_deg=100.0).folds(plane).any()


@pytest.mark.parametrize(
    "lens",
    [
        BrownConradyLensCfg(k1=-0.6),
        KannalaBrandtLensCfg(k1=-0.5),
        FThetaLensCfg(coefficients=(0.02, -3e-4), nominal_size=(64, 48)),
    ],
    ids=methodcaller("kind"),
)
def test_a_lens_that_folds_over_within_the_image_is_refused(lens: LensCfg) -> None:
    """The error states how many pixels and where."""
    with pytest.raises(ConfigError, match=r"does not fold over: \d+ of 3072 pixels .* Correct its coefficients"):
        lens_rays(lens, matrices(lens), HEIGHT, WIDTH)


@pytest.mark.parametrize(
    "coefficients", [{"k1": 0.1, "k2": -0.2, "k3": -0.1}, {"k1": 0.3, "k2": 0.1, "k4": 0.2, "k5": 0.4, "k6": 0.3}]
)
def test_a_radial_lens_sees_points_up_to_its_fold(coefficients: dict[str, float]) -> None:
    """The radius r (1 + k1 r^2 + ...) / (1 + k4 r^2 + ...) of an image point grows with r until its derivative is 0."""
    lens = BrownConradyLensCfg(**coefficients)
    k = [coefficients.get(f"k{i}", 0.0) for i in range(1, 7)]
    above, below = (np.polynomial.Polynomial([1.0, 0.0, a, 0.0, b, 0.0, c]) for a, b, c in (k[:3], k[3:]))
    image = np.polynomial.Polynomial([0.0, 1.0]) * above
    roots = (image.deriv() * below - image * below.deriv()).roots()
    fold = min(root.real for root in roots if abs(root.imag) < 1e-9 and root.real > 0.0)
    radii = torch.tensor([0.5, 0.98, 1.02, 1.5], dtype=torch.float64, device="cpu") * fold
    points = torch.stack([0.6 * radii, -0.8 * radii, torch.ones_like(radii)], dim=-1)
    assert torch.isfinite(lens.project(points)).all(dim=-1).tolist() == [True, True, False, False]


def test_an_orthographic_ray_starts_at_its_pixel() -> None:
    starts, directions = lens_rays(OrthographicLensCfg(view_height=4.8), matrices(ALL[0])[:0], HEIGHT, WIDTH)
    assert starts.shape == directions.shape == (0, HEIGHT * WIDTH, 3)
    lens = OrthographicLensCfg(view_height=4.8)
    starts, directions = lens_rays(lens, lens.intrinsic_matrix(WIDTH, HEIGHT)[None], HEIGHT, WIDTH)
    assert starts[0, 0].tolist() == pytest.approx([-3.15, -2.35, 0.0])
    assert starts[0, -1].tolist() == pytest.approx([3.15, 2.35, 0.0])
    assert (directions == torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64, device="cpu")).all()


@pytest.mark.parametrize("lens", ALL, ids=methodcaller("kind"))
def test_lenses_survive_files(lens: LensCfg) -> None:
    """`to_dict` names the kind, by which `parse_lens` finds the class."""
    assert LENSES[lens.to_dict()["kind"]] is type(lens)
    assert parse_lens(lens.to_dict()) == lens


def test_bad_lenses_are_refused() -> None:
    """Errors name the field and what was expected."""
    for build, pattern in (
        (lambda: parse_lens({"kind": "pinhol"}), "pinhole"),
        (lambda: parse_lens({"kind": "brown_conrady", "k7": 1.0}), "k7"),
        (lambda: OrthographicLensCfg(view_height=0.0), "view_height"),
        (lambda: FThetaLensCfg(coefficients=(0.0, 1.0), nominal_size=(10, 10)), "coefficients"),
        (lambda: KannalaBrandtLensCfg(k1=math.nan), "k1"),
        (lambda: KannalaBrandtLensCfg(max_fov_deg=361.0), "max_fov_deg"),
        (lambda: EquirectangularLensCfg(vertical_fov_deg=181.0), "vertical_fov_deg"),
        (lambda: PinholeLensCfg().intrinsic_matrix(4, 3), "pinhole"),
        (lambda: lens_rays(PinholeLensCfg(), torch.zeros(1, 3, 3, device="cpu"), 3, 4), "matrices"),
    ):
        with pytest.raises(ConfigError, match=pattern):
            build()
