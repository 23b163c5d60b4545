"""Boards for the calibration of cameras: chessboards, Kalibr's AprilGrids and single AprilTags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.engines.envs import positive_int
from sensorium.errors import ArgumentError, shown
from sensorium.geometry.appearance import Material, Texture
from sensorium.geometry.shapes import Shape

HALF_THICKNESS = 0.005
"""Half the thickness of a board, m."""
TEXELS = 16
"""Texels along the sides of a cell of a tag, and along a quarter of a square of a chessboard."""
BITS = 6
"""Bits along each side of a tag of the family tag36h11."""
BORDER = 2
"""Black cells around the bits of a tag in Kalibr's grids."""
CODES: NDArray[np.uint64] = np.load(Path(__file__).with_name("tag36h11.npy"))
"""Codes of the family tag36h11, which `tests_formats/opencv_tags.py` writes; the upper left bit is the highest."""


@dataclass(frozen=True, eq=False, slots=True)
class Board:
    """A flat board with a pattern on its front.

    Its frame is in its middle: x to the right, y up, and z out of the front, which is at z = 5 mm.

    Args:
        pixels: the pattern in grey, uint8 `[row, column]`, from the upper left.
        size: width and height, m.
        corners: positions of the pattern's corners, m; see the function that makes the board.
    """

    pixels: NDArray[np.uint8]
    size: tuple[float, float]
    corners: NDArray[np.float64]

    def shape(
        self,
        name: str = "board",
        *,
        pos: tuple[float, float, float] = (0.0, 0.0, 0.0),
        quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0),
        body: int | str = "world",
    ) -> Shape:
        """Return the board as a box for the world of a `TensorEngine` or `TrajectoryEngine`.

        It has no highlights, so that its colours depend on the light only.

        Args:
            name: name of the shape and of its texture.
            pos: position of its frame on the body, m.
            quat: orientation on the body, (w, x, y, z).
            body: the body, or the world.
        """
        material = Material(specular=0.0, texture=Texture(np.repeat(self.pixels[..., None], 3, axis=2), name))
        size, white = (0.5 * self.size[0], 0.5 * self.size[1], HALF_THICKNESS), (1.0, 1.0, 1.0, 1.0)
        return Shape("box", name, size, body, pos, quat, rgba=white, material=material, labels=("board",))

    def add_to(self, spec: Any, name: str = "board", **place: Any) -> None:
        """Add the board to an MjSpec as a geom, with a material and a texture, all with the same name.

        Args:
            spec: the MjSpec.
            name: the name.
            place: `pos`, `quat` and `body`, as in `shape`.

        Raises:
            UnknownNameError: the model has no such body.
        """
        from sensorium.engines.mujoco.spec import add_box

        add_box(spec, self.shape(name, **place))


def chessboard(columns: int, rows: int, square: float) -> Board:
    """Return a chessboard with a white margin; the square at its upper left is black.

    Its `corners` are the inner ones, `[row * column, 3]`, row by row from the upper left. OpenCV's
    `findChessboardCorners` returns them in this order if the camera is upright and one of the counts is odd, the other
    even.

    Args:
        columns: number of inner corners in a row, as in OpenCV and Kalibr.
        rows: number of inner corners in a column.
        square: side of a square, m.

    Raises:
        ArgumentError: an argument is invalid.
    """
    _check_lengths("chessboard", square=square)
    across, down = (positive_int(n, f"chessboard: {name}") for n, name in ((columns, "columns"), (rows, "rows")))
    is_black = np.add.outer(np.arange(down + 1), np.arange(across + 1)) % 2 == 0
    cells = np.pad(np.where(is_black, 0, 255).astype(np.uint8), 1, constant_values=255)
    size = (across + 3) * square, (down + 3) * square
    points = _grid(square * np.arange(float(across)), square * np.arange(float(down))[::-1])
    return Board(np.kron(cells, np.ones((4 * TEXELS,) * 2, np.uint8)), size, points.reshape(-1, 3))


def apriltag(number: int, size: float, *, border: int = 1) -> Board:
    """Return one AprilTag of the family tag36h11 with a white margin of one cell.

    Its `corners` are those of the black border, `[4, 3]`: lower left, lower right, upper right and upper left, as
    AprilTag's detector returns them. OpenCV draws and reads these tags upside down, so its order is upper right, ...

    Args:
        number: number of the tag, 0 to 586.
        size: side of the black border, m.
        border: black cells around the bits.

    Raises:
        ArgumentError: an argument is invalid.
    """
    _check_lengths("apriltag", size=size)
    cells = np.pad(tag_cells(number, border), 1, constant_values=255)
    side = size * len(cells) / (len(cells) - 2)
    corners = _grid(np.array([0.0, size]), np.array([0.0, size])).reshape(4, 3)[[0, 1, 3, 2]]
    return Board(np.kron(cells, np.ones((TEXELS, TEXELS), np.uint8)), (side, side), corners)


def aprilgrid(columns: int = 6, rows: int = 6, tag_size: float = 0.088, tag_spacing: float = 0.3) -> Board:
    """Return Kalibr's AprilGrid of the family tag36h11; the arguments are those of its target files.

    The tags are numbered from the lower left, row by row. Their border has two cells. Black squares fill the gaps at
    their corners. Source of the layout: kalibr_create_target_pdf (ethz-asl/kalibr).

    Its `corners` are `[tag, 4, 3]`: lower left, lower right, upper right and upper left of each tag, as in Kalibr.

    Args:
        columns: number of tags in a row (tagCols).
        rows: number of tags in a column (tagRows).
        tag_size: side of the black border of a tag, m (tagSize).
        tag_spacing: gap between two tags divided by `tag_size` (tagSpacing).

    Raises:
        ArgumentError: an argument is invalid, or the grid has more tags than the family.
    """
    _check_lengths("aprilgrid", tag_size=tag_size, tag_spacing=tag_spacing)
    across, down = (positive_int(n, f"aprilgrid: {name}") for n, name in ((columns, "columns"), (rows, "rows")))
    tags = [tag_cells(number, BORDER) for number in range(across * down)]
    cells = BITS + 2 * BORDER
    gap, pitch = tag_spacing * cells, (1.0 + tag_spacing) * cells  # in cells
    width, height = (n * pitch + 3.0 * gap for n in (across, down))  # with a margin of one gap
    shape = (round(height * TEXELS), round(width * TEXELS))
    light, scale = np.ones(shape), np.array(shape) / (height, width)  # texels per cell
    for row in range(down + 1):
        for column in range(across + 1):
            _darken(light, scale * (gap + row * pitch, gap + column * pitch), scale * gap)
    for number, tag in enumerate(tags):
        row, column = down - 1 - number // across, number % across
        corner = np.array([2.0 * gap + row * pitch, 2.0 * gap + column * pitch])
        for place in np.argwhere(tag == 0):
            _darken(light, scale * (corner + place), scale)
    unit = tag_size / cells
    lines = [np.add.outer(np.arange(n) * pitch, [0.0, cells]).reshape(-1) * unit for n in (across, down)]
    points = _grid(*lines).reshape(down, 2, across, 2, 3).swapaxes(1, 2).reshape(-1, 4, 3)[:, [0, 1, 3, 2]]
    return Board(np.rint(255.0 * light).astype(np.uint8), (width * unit, height * unit), points)


def tag_cells(number: int, border: int) -> NDArray[np.uint8]:
    """Return the cells of a tag from the upper left, 0 or 255, with a border of black cells.

    Raises:
        ArgumentError: the family has no such tag, or the border is not positive.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < len(CODES):
        raise ArgumentError(f"AprilTag: got number {shown(number)}, expected 0 to {len(CODES) - 1} (tag36h11).")
    shifts = np.arange(BITS * BITS, dtype=np.uint64)[::-1].reshape(BITS, BITS)
    bits = (CODES[number] >> shifts) & np.uint64(1)
    return np.pad((255 * bits).astype(np.uint8), positive_int(border, "AprilTag: border"))


def _check_lengths(what: str, **given: float) -> None:
    for name, value in given.items():
        if not isinstance(value, int | float | np.number) or not 0.0 < value < np.inf:
            raise ArgumentError(f"{what}: {name}: got {shown(value)}, expected a finite number above 0.")


def _darken(light: NDArray[np.float64], start: Any, size: Any) -> None:
    """Darken a rectangle of an image by the share of each pixel that it covers; rows first, px."""
    end = start + size
    first, last = np.floor(start).astype(int), np.ceil(end).astype(int)
    down, across = (
        np.clip(np.minimum(np.arange(a, b) + 1.0, high) - np.maximum(np.arange(a, b), low), 0.0, 1.0)
        for a, b, low, high in zip(first, last, start, end, strict=True)
    )
    light[first[0] : last[0], first[1] : last[1]] -= np.outer(down, across)


def _grid(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the points at all pairs of coordinates, on the front and around its middle, `[y, x, 3]`."""
    across, up = np.meshgrid(x - 0.5 * (x.min() + x.max()), y - 0.5 * (y.min() + y.max()))
    return np.stack([across, up, np.full_like(across, HALF_THICKNESS)], axis=-1)
