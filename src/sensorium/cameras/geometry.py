"""Cameras on the host and in torch: conventions of axes, intrinsics, points of pixels and pixels of points.

Conventions define the directions of a camera's axes: ``"ros"`` z forward, y down; ``"opengl"`` -z forward, y up;
``"world"`` x forward, z up. Quaternions are (w, x, y, z) and rotate camera axes to world axes. The centre of the pixel
in row v and column u, counted from the top left, is at (u + 1/2, v + 1/2), and pixels are in row order.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_apply, quat_conjugate, quat_from_matrix, quat_mul

Convention = Literal["ros", "opengl", "world"]
"""Directions of a camera's axes."""
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
_H = 0.5
_FROM_WORLD: dict[str, tuple[float, float, float, float]] = {
    "world": (1.0, 0.0, 0.0, 0.0),
    "ros": (-_H, _H, -_H, _H),
    "opengl": (_H, _H, -_H, -_H),
}
"""Rotation from each convention's axes to those of ``"world"``: forward x, left y, up z."""
_NEAR_SINGULAR = 1e-12
"""Minimum ratio of an intrinsic matrix's singular values; that of a 10,000-pixel camera is above 1e-9."""
_PARALLEL = 1e-6
"""Maximum cosine of a direction with the axis for which a depth defines no point."""


def convert_orientation_convention(
    orientation: Tensor, origin: Convention = "opengl", target: Convention = "ros"
) -> Tensor:
    """Return the orientations of the same cameras in another convention.

    Args:
        orientation: `[..., 4]`, unit quaternions (w, x, y, z), camera axes to world axes.
        origin: convention of the given orientations.
        target: convention of the result.

    Returns:
        `[..., 4]`, a new tensor.

    Raises:
        ConfigError: unknown convention.
    """
    for name, word in (("origin", origin), ("target", target)):
        if word not in CONVENTIONS:
            raise ConfigError.single("convert_orientation_convention", name, word, f"one of {', '.join(CONVENTIONS)}")
    if origin == target:
        return orientation.clone()
    to_world = quat_conjugate(orientation.new_tensor(_FROM_WORLD[origin]))
    turn = quat_mul(to_world, orientation.new_tensor(_FROM_WORLD[target]))
    return quat_mul(orientation, turn)


convert_camera_frame_orientation_convention = convert_orientation_convention
"""Isaac Lab's name of this function."""


def look_at(
    eyes: Tensor, targets: Tensor, convention: Convention = "ros", config: str = "look_at", up: Tensor | None = None
) -> Tensor:
    """Return the orientations of cameras that look from one point to another, with the world's z axis up in the image.

    A camera that looks straight up or down is oriented as if it had looked along the world's x axis and was then
    tilted: looking down, x is up in the image.

    Args:
        eyes: `[..., 3]`, positions of the cameras, m.
        targets: `[..., 3]`, points they look at, m.
        convention: axes of the result.
        config: name of the caller, for messages.
        up: `[3]`, another direction that is up in the image; None for z. Where it is along the view, the camera's left
            is the world's y axis, or its z axis for a view along y.

    Returns:
        `[..., 4]`, unit quaternions (w, x, y, z).

    Raises:
        ConfigError: an eye is at its target, or a number is not finite.
    """
    forward = (targets - eyes).double()
    distance = forward.norm(dim=-1, keepdim=True)
    if not bool((torch.isfinite(distance) & (distance > 0.0)).all()):
        row = int((~(torch.isfinite(distance) & (distance > 0.0))).reshape(-1).nonzero()[0, 0])
        got = (eyes.reshape(-1, 3)[row].tolist(), targets.reshape(-1, 3)[row].tolist())
        raise ConfigError.single(config, f"eyes, targets [{row}]", got, "two different finite points, m")
    x = forward / distance
    upwards = x.new_tensor([0.0, 0.0, 1.0]) if up is None else torch.nn.functional.normalize(up.to(x), dim=-1)
    left = torch.linalg.cross(upwards.expand_as(x), x)
    size = left.norm(dim=-1, keepdim=True)
    other = torch.where(x[..., 1:2].abs() < 0.9, x.new_tensor([0.0, 1.0, 0.0]), x.new_tensor([0.0, 0.0, 1.0]))
    other = other - (other * x).sum(dim=-1, keepdim=True) * x
    y = torch.where(size > 1e-6, left / size.clamp(min=1e-6), other)
    z = torch.linalg.cross(x, y)
    quat = quat_from_matrix(
        torch.stack([x, y / y.norm(dim=-1, keepdim=True), z / z.norm(dim=-1, keepdim=True)], dim=-1)
    )
    return convert_orientation_convention(quat, "world", convention).to(eyes.dtype)


# Intrinsics -----------------------------------------------------------------------------------------------------------


def inverse_intrinsics(matrices: Tensor, config: str = "inverse_intrinsics") -> Tensor:
    """Return the inverses of intrinsic matrices, float64 `[..., 3, 3]`.

    Args:
        matrices: `[..., 3, 3]`, pixels: ((fx, skew, cx), (0, fy, cy), (0, 0, 1)).
        config: name of the caller, for messages.

    Raises:
        ConfigError: another shape, or a matrix that is singular, not finite or has another last row; the message gives
            the first one.
    """
    fix = "Give ((fx, 0, cx), (0, fy, cy), (0, 0, 1)), pixels."
    if matrices.dim() < 2 or tuple(matrices.shape[-2:]) != (3, 3):
        raise ConfigError.single(config, "matrices", tuple(matrices.shape), "a tensor [n, 3, 3]", fix)
    k = matrices.double().reshape(-1, 3, 3)
    finite = torch.isfinite(k).all(dim=-1).all(dim=-1)
    sizes = torch.linalg.svdvals(torch.where(finite[:, None, None], k, torch.zeros_like(k)))
    good = finite & (sizes[:, 2] > _NEAR_SINGULAR * sizes[:, 0])
    good &= (k[:, 2] == k.new_tensor([0.0, 0.0, 1.0])).all(dim=-1) & (k[:, 1, 0] == 0.0)
    if not bool(good.all()):
        row = int((~good).nonzero()[0, 0])
        expected = "a finite non-singular matrix with the last row (0, 0, 1) and 0 below its diagonal"
        raise ConfigError.single(config, f"matrices[{row}]", k[row].tolist(), expected, fix)
    inverse: Tensor = torch.linalg.inv(k).reshape(matrices.shape)
    return inverse


def apertures_from_intrinsics(
    matrix: Tensor, width: int, height: int, focal_length: float = 1.0
) -> tuple[float, float, float, float]:
    """Return horizontal and vertical aperture, and both offsets, of an intrinsic matrix `[3, 3]`.

    The apertures are in the unit of `focal_length`. The offsets are the shifts of the principal point to the right and
    down, as tangents: cx = width / 2 + offset fx.
    """
    inverse_intrinsics(matrix, "apertures_from_intrinsics")
    fx, fy, cx, cy = (float(matrix[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2)))
    horizontal, vertical = width * focal_length / fx, height * focal_length / fy
    return horizontal, vertical, (cx - 0.5 * width) / fx, (cy - 0.5 * height) / fy


# Points ---------------------------------------------------------------------------------------------------------------


class Projecting(Protocol):
    """Interface of a lens for the functions below, see `sensorium.cameras.lenses.LensCfg`."""

    @property
    def is_parallel(self) -> bool:
        """Whether all rays are parallel."""

    def project(self, points: Tensor, /) -> Tensor:
        """Return where points appear on the plane of the lens, float64 `[..., 2]`."""

    def unproject(self, plane: Tensor, /) -> Tensor:
        """Return the unit directions of points of the plane, float64 `[..., 3]`."""


def pixel_rays(intrinsics: Tensor, height: int, width: int, config: str = "pixel_rays") -> Tensor:
    """Return the direction of each pixel per metre of depth, `[..., height, width, 3]`: right, down, forward (1).

    Args:
        intrinsics: `[..., 3, 3]`, pixels.
        height: number of rows.
        width: number of columns.
        config: name of the caller, for messages.
    """
    inverse = inverse_intrinsics(intrinsics, config).to(intrinsics.dtype)
    u = torch.arange(width, dtype=inverse.dtype, device=inverse.device) + 0.5
    v = torch.arange(height, dtype=inverse.dtype, device=inverse.device) + 0.5
    rows, columns = torch.meshgrid(v, u, indexing="ij")
    pixels = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1)
    # one product per matrix and row: the bits of an einsum depend on the number of matrices
    return pixels @ inverse.mT.unsqueeze(-3)


def unproject_depth(depth: Tensor, intrinsics: Tensor, is_ortho: bool = True, lens: Projecting | None = None) -> Tensor:
    """Return the points of an image, in the camera's frame with the ``"ros"`` axes.

    Args:
        depth: `[..., height, width]` or `[..., height, width, 1]`, m.
        intrinsics: `[..., 3, 3]`, pixels.
        is_ortho: whether `depth` is the distance to the image plane; otherwise it is the length of the ray.
        lens: the lens, such as ``scene["cam"].optics``; None for a pinhole.

    Returns:
        `[..., height * width, 3]`, m, row by row from the top left; +inf where `depth` is not finite, where the lens
        sees nothing, and where a distance to the image plane defines no point because the ray is parallel to the plane.
    """
    image = depth[..., 0] if depth.dim() > 2 and depth.shape[-1] == 1 else depth
    rays = pixel_rays(intrinsics, *image.shape[-2:])
    if lens is not None and lens.is_parallel:
        points = torch.cat([rays[..., :2].to(image.dtype).expand(*image.shape, 2), image[..., None]], dim=-1)
    else:
        if lens is not None:
            rays = lens.unproject(rays[..., :2].double())
        unit = rays[..., 2:] if is_ortho else rays.norm(dim=-1, keepdim=True)
        points = (rays / torch.where(unit.abs() > _PARALLEL, unit, 0.0)).to(image.dtype) * image[..., None]
    points = torch.where(torch.isfinite(points).all(dim=-1, keepdim=True), points, float("inf"))
    return points.reshape(*points.shape[:-3], -1, 3)


def project_points(points: Tensor, intrinsics: Tensor, lens: Projecting | None = None) -> Tensor:
    """Return the positions of points in the image: column and row in pixels, and depth.

    A point on the ray of the pixel in row v and column u is at (u + 1/2, v + 1/2).

    Args:
        points: `[..., point, 3]`, m, in the camera's frame with the ``"ros"`` axes.
        intrinsics: `[..., 3, 3]`, pixels.
        lens: the lens, such as ``scene["cam"].optics``; None for a pinhole.

    Returns:
        `[..., point, 3]`: column, row, distance to the image plane (m). Not finite for a depth of 0, and NaN for points
        that a given lens does not see.
    """
    depth = points[..., 2:]
    plane = points[..., :2] / depth if lens is None else lens.project(points.double()).to(points.dtype)
    at = torch.cat([plane, torch.ones_like(depth)], dim=-1)
    pixels = torch.einsum("...ij,...pj->...pi", intrinsics.to(points.dtype), at)
    return torch.cat([pixels[..., :2], depth], dim=-1)


def transform_points(points: Tensor, pos: Tensor | None = None, quat: Tensor | None = None) -> Tensor:
    """Return points of a frame in the parent frame of its pose.

    Args:
        points: `[..., point, 3]`, m.
        pos: `[..., 3]`, origin of the frame, m; None for 0.
        quat: `[..., 4]`, orientation of the frame, (w, x, y, z); None for identity.

    Returns:
        `[..., point, 3]`, m; a point that is not finite (a miss) is +inf.
    """
    turned = points if quat is None else quat_apply(quat[..., None, :], points)
    moved = turned if pos is None else turned + pos[..., None, :]
    return torch.where(torch.isfinite(moved).all(dim=-1, keepdim=True), moved, float("inf"))


def tile_images(images: Tensor) -> Tensor:
    """Return images as tiles of one image, row by row, with the fewest columns that are at least the rows.

    Args:
        images: `[image, height, width, channel]`.

    Returns:
        `[rows * height, columns * width, channel]` with columns = ceil(sqrt(n)); tiles without an image are 0.
    """
    count, height, width, channels = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    tiles = images.new_zeros((rows * columns, height, width, channels))
    tiles[:count] = images
    tiled = tiles.view(rows, columns, height, width, channels).transpose(1, 2)
    return tiled.reshape(rows * height, columns * width, channels)
