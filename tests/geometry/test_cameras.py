"""Conventions, views, intrinsics and points of pinhole cameras, against SciPy's rotations and NumPy in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.cameras.geometry import (
    CONVENTIONS,
    apertures_from_intrinsics,
    convert_camera_frame_orientation_convention,
    convert_orientation_convention,
    inverse_intrinsics,
    look_at,
    project_points,
    transform_points,
    unproject_depth,
)
from sensorium.geometry.transforms import matrix_from_quat, quat_apply, quat_from_matrix, quat_mul

Array = NDArray[np.float64]

POSITION = (2.5, 2.5, 2.5)
SAME_CAMERA = {
    "ros": (-0.17591989, 0.33985114, 0.82047325, -0.42470819),
    "opengl": (0.33985113, 0.17591988, 0.42470818, 0.82047324),
    "world": (-0.3647052, -0.27984815, -0.1159169, 0.88047623),
}
"""A camera at POSITION that looks at the origin, in three conventions."""
FORWARD_LEFT_UP = {
    "ros": ((0, 0, 1), (-1, 0, 0), (0, -1, 0)),
    "opengl": ((0, 0, -1), (-1, 0, 0), (0, 1, 0)),
    "world": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
"""The camera axes that point forward, left and up."""
PAIRS = list(itertools.product(CONVENTIONS, CONVENTIONS))
K = [[380.08, 0.0, 467.79], [0.0, 351.5, 262.05], [0.0, 0.0, 1.0]]


def rotation(quat: Any) -> Rotation:
    return Rotation.from_quat(np.asarray(quat, np.float64), scalar_first=True)


def random_quats(count: int) -> torch.Tensor:
    return torch.tensor(Rotation.random(count, rng=np.random.default_rng(0)).as_quat(scalar_first=True))


# Conventions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_three_conventions_describe_one_camera(origin: Any, target: Any) -> None:
    """Known orientations of one camera in the three conventions convert into each other, signs included."""
    got = convert_orientation_convention(torch.tensor(SAME_CAMERA[origin]), origin, target)
    torch.testing.assert_close(got, torch.tensor(SAME_CAMERA[target]), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_conversion_keeps_forward_left_and_up(origin: Any, target: Any) -> None:
    """In every convention, the camera's forward, left and up are the same vectors in the world."""
    quats = random_quats(50)
    other = convert_orientation_convention(quats, origin, target)
    for mine, its in zip(FORWARD_LEFT_UP[origin], FORWARD_LEFT_UP[target], strict=True):
        np.testing.assert_allclose(rotation(quats).apply(mine), rotation(other).apply(its), atol=1e-12)


def test_conversion_has_its_alias_and_defaults() -> None:
    quats = random_quats(3)
    got = convert_camera_frame_orientation_convention(quats)
    assert torch.equal(got, convert_orientation_convention(quats, "opengl", "ros"))


def test_a_conversion_into_the_same_convention_is_a_copy() -> None:
    quats = random_quats(2)
    same = convert_orientation_convention(quats, "ros", "ros")
    assert torch.equal(same, quats) and same.data_ptr() != quats.data_ptr()


@pytest.mark.parametrize("words", [("usd", "ros"), ("ros", "usd")])
def test_an_unknown_convention_is_an_error(words: Any) -> None:
    with pytest.raises(sn.ConfigError, match="'usd', expected one of ros, opengl, world"):
        convert_orientation_convention(random_quats(1), *words)


# Quaternions ----------------------------------------------------------------------------------------------------------


def test_quaternions_follow_scipy() -> None:
    """Products, rotated vectors and matrices match SciPy's; a matrix gives its quaternion back up to the sign."""
    a, b = random_quats(100), random_quats(100).flip(0)
    v = torch.tensor(np.random.default_rng(1).normal(size=(100, 3)))
    np.testing.assert_allclose(
        rotation(quat_mul(a, b)).as_matrix(), (rotation(a) * rotation(b)).as_matrix(), atol=1e-12
    )
    np.testing.assert_allclose(quat_apply(a, v), rotation(a).apply(v), atol=1e-12)
    np.testing.assert_allclose(matrix_from_quat(a), rotation(a).as_matrix(), atol=1e-12)
    back = quat_from_matrix(matrix_from_quat(a))
    np.testing.assert_allclose((back * a).sum(dim=-1).abs(), 1.0, atol=1e-12)


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, 0.8, 0.0)])
def test_half_turns_have_a_quaternion(axis: Any) -> None:
    """If w is 0 and the trace of the matrix is uninformative, the quaternion is still that of the rotation."""
    matrix = Rotation.from_rotvec(math.pi * np.array(axis)).as_matrix()
    np.testing.assert_allclose(rotation(quat_from_matrix(torch.tensor(matrix))).as_matrix(), matrix, atol=1e-12)


# Views ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_looking_at_the_origin_gives_the_known_camera(convention: Any) -> None:
    got = look_at(torch.tensor(POSITION), torch.zeros(3), convention)
    torch.testing.assert_close(got, torch.tensor(SAME_CAMERA[convention]), rtol=1e-5, atol=1e-7)


def test_a_view_looks_at_its_target_with_the_world_upright() -> None:
    """Forward is along target - eye, left is level, and up has no downward component."""
    rng = np.random.default_rng(2)
    eyes, targets = rng.normal(size=(2, 200, 3))
    turn = rotation(look_at(torch.tensor(eyes), torch.tensor(targets), "world"))
    forward = (targets - eyes) / np.linalg.norm(targets - eyes, axis=1, keepdims=True)
    np.testing.assert_allclose(turn.apply([1, 0, 0]), forward, atol=1e-9)
    np.testing.assert_allclose(turn.apply([0, 1, 0])[:, 2], 0.0, atol=1e-9)
    assert (turn.apply([0, 0, 1])[:, 2] >= 0.0).all()


@pytest.mark.parametrize(("down", "up"), [(-1.0, (1, 0, 0)), (1.0, (-1, 0, 0))])
def test_views_straight_down_and_up_are_tilted_views_along_x(down: float, up: Any) -> None:
    """Looking down, the world's x is up in the image; looking up, minus x is. A view slightly off the vertical, along
    x, agrees.
    """
    eye = torch.zeros(2, 3, dtype=torch.float64)
    target = torch.tensor([[0.0, 0.0, down], [1e-4, 0.0, down]], dtype=torch.float64)
    turn = rotation(look_at(eye, target, "world"))
    np.testing.assert_allclose(turn.apply([1, 0, 0])[0], [0, 0, down], atol=1e-12)
    np.testing.assert_allclose(turn.apply([0, 0, 1]), [up, up], atol=2e-4)


def test_an_eye_at_its_target_is_an_error() -> None:
    with pytest.raises(sn.ConfigError, match=r"eyes, targets \[1\].*two different finite points"):
        look_at(torch.zeros(2, 3), torch.tensor([[1.0, 0, 0], [0, 0, 0]]))


# Intrinsics -----------------------------------------------------------------------------------------------------------


def test_apertures_and_intrinsics_are_equivalent() -> None:
    """An off-centre lens with unequal focal lengths: the image plane from edge to edge, and its centre as tangents."""
    matrix = torch.tensor(K, dtype=torch.float64)
    wide, high, right, down = apertures_from_intrinsics(matrix, 960, 540, focal_length=24.0)
    (fx, _, cx), (_, fy, cy), _ = K
    np.testing.assert_allclose((960 * 24.0 / wide, 540 * 24.0 / high), (fx, fy), rtol=1e-14)
    np.testing.assert_allclose((480.0 + right * fx, 270.0 + down * fy), (cx, cy), rtol=1e-14)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.zeros((3, 3)), "non-singular"),
        ([[500.0, 0, 320], [0, 0.0, 240], [0, 0, 1]], "non-singular"),
        ([[500.0, 0, math.nan], [0, 500.0, 240], [0, 0, 1]], "finite"),
        ([[500.0, 0, 320], [0, 500.0, 240], [0, 0, 2]], r"last row \(0, 0, 1\)"),
    ],
)
def test_invalid_lens_matrix_raises(matrix: Any, says: str) -> None:
    """The message names the first bad matrix."""
    both = torch.stack([torch.tensor(K), torch.tensor(np.asarray(matrix), dtype=torch.float32)])
    with pytest.raises(sn.ConfigError, match=rf"matrices\[1\].*{says}"):
        inverse_intrinsics(both)


def test_non_matrix_raises() -> None:
    with pytest.raises(sn.ConfigError, match=r"\[n, 3, 3\]"):
        inverse_intrinsics(torch.zeros(3, 4))


# Points ---------------------------------------------------------------------------------------------------------------


def images(height: int = 5, width: int = 7) -> tuple[torch.Tensor, torch.Tensor, Array]:
    """Return depths, intrinsics and the points of the pixels, worked out pixel by pixel."""
    rng = np.random.default_rng(3)
    depth = rng.uniform(0.5, 5.0, size=(2, height, width))
    k = np.array([[[6.0, 0.5, 3.0], [0.0, 5.0, 2.0], [0.0, 0.0, 1.0]], [[9.0, 0.0, 3.5], [0.0, 9.0, 2.5], [0, 0, 1]]])
    points = np.zeros((2, height * width, 3))
    for n in range(2):
        for v in range(height):
            for u in range(width):
                ray = np.linalg.solve(k[n], [u + 0.5, v + 0.5, 1.0])
                points[n, v * width + u] = ray * depth[n, v, u]
    return torch.tensor(depth), torch.tensor(k), points


def test_unprojecting_and_projecting_are_inverse() -> None:
    """Depths become points row by row, which project onto pixel centres with their depths."""
    depth, k, expected = images()
    for shaped in (depth, depth[..., None]):
        points = unproject_depth(shaped, k)
        np.testing.assert_allclose(points, expected, atol=1e-12)
    pixels = project_points(points, k)
    v, u = np.divmod(np.arange(35), 7)
    np.testing.assert_allclose(
        pixels[:, :, :2], np.broadcast_to(np.stack([u + 0.5, v + 0.5], -1), (2, 35, 2)), atol=1e-9
    )
    np.testing.assert_allclose(pixels[:, :, 2].reshape(depth.shape), depth, atol=1e-12)


def test_lengths_of_rays_become_points() -> None:
    """The norm of a point is the length of its ray."""
    depth, k, points = images()
    lengths = torch.tensor(np.linalg.norm(points, axis=-1)).reshape(depth.shape)
    np.testing.assert_allclose(unproject_depth(lengths, k, is_ortho=False), points, atol=1e-12)


def test_a_miss_has_no_point() -> None:
    """+inf stays +inf in all three coordinates, also after a transform; it never becomes NaN."""
    depth, k, _ = images()
    depth[0, 1, 2] = math.inf
    points = unproject_depth(depth, k)
    assert (points[0, 1 * 7 + 2] == math.inf).all() and torch.isfinite(points).sum() == points.numel() - 3
    moved = transform_points(points, torch.ones(2, 3, dtype=torch.float64), random_quats(2))
    assert (moved[0, 1 * 7 + 2] == math.inf).all() and not moved.isnan().any()


def test_points_are_transformed_by_poses() -> None:
    points = torch.tensor(np.random.default_rng(4).normal(size=(3, 10, 3)))
    quats, pos = random_quats(3), torch.tensor([[1.0, 2.0, 3.0]] * 3, dtype=torch.float64)
    expected = np.stack([rotation(quats[n]).apply(points[n]) + np.array([1.0, 2.0, 3.0]) for n in range(3)])
    np.testing.assert_allclose(transform_points(points, pos, quats), expected, atol=1e-12)
    assert torch.equal(transform_points(points), points)
