"""Calibration boards: the published codes, Kalibr's layout, and images that are exact to a fraction of a pixel."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import sensorium as sn
from sensorium.targets.boards import tag_cells

WIDTH, HEIGHT, FOCAL = 96, 72, 100.0
LAMP = sn.engines.Light("directional", "lamp", direction=(0.0, 0.0, -1.0), ambient=(0.2,) * 3, diffuse=(0.6,) * 3)
LENS = sn.lenses.PinholeLensCfg.from_intrinsic_matrix([FOCAL, 0, 47.3, 0, FOCAL, 35.1, 0, 0, 1], WIDTH, HEIGHT)
TURN = np.array([[0.96, -0.28, 0.0], [-0.28, -0.96, 0.0], [0.0, 0.0, -1.0]])
"""Camera axes (right, down, forward) in the board's frame, turned about the view."""
POS = np.array([0.01, -0.01, 0.4])


def camera() -> sn.CameraCfg:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = TURN, POS
    offset = sn.CameraCfg.OffsetCfg.from_matrix(pose, "ros")
    return sn.CameraCfg(
        name="eye", body="world", width=WIDTH, height=HEIGHT, lens=LENS, offset=offset, data_types=("albedo", "rgb"),
        samples=4,
    )  # fmt: skip


def image(board: sn.targets.Board) -> sn.CameraData:
    lighting = sn.engines.Lighting((LAMP,))
    engine = sn.TensorEngine(bodies=(), provides=("pose",), shapes=[board.shape("board")], lighting=lighting)
    return sn.Scene(engine, [camera()])["eye"].data


def points_of(across: np.ndarray, down: np.ndarray, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y on the board at image coordinates, px; pixel centres are at + 0.5."""
    rays = np.stack(np.broadcast_arrays((across - 47.3) / FOCAL, (down - 35.1) / FOCAL, 1.0), axis=-1) @ TURN.T
    points = POS + rays * ((z - POS[2]) / rays[..., 2:])
    return points[..., 0], points[..., 1]


def test_codes_are_those_of_the_family_tag36h11() -> None:
    """Its 587 codes differ in at least 11 bits, however they are turned; the first is published as 0xd5d628584."""
    cells = np.array([tag_cells(k, 1)[1:-1, 1:-1] > 0 for k in range(587)])
    first = f"{0xD5D628584:036b}"
    assert [str(int(bit)) for bit in cells[0].reshape(-1)] == list(first)
    codes = cells.reshape(587, 36).astype(np.int64)
    for turns in range(4):
        other = np.rot90(cells, turns, axes=(1, 2)).reshape(587, 36).astype(np.int64)
        apart = codes.sum(1)[:, None] + other.sum(1) - 2 * codes @ other.T
        assert (apart + 99 * np.eye(587, dtype=np.int64) * (turns == 0)).min() == 11 or turns
        assert apart[~np.eye(587, dtype=bool)].min() >= 11 and (turns == 0 or np.diag(apart).min() >= 11)
    with pytest.raises(sn.ArgumentError, match="number 587, expected 0 to 586"):
        sn.targets.apriltag(587, 0.1)


def test_a_grid_has_the_layout_of_kalibr() -> None:
    """Tag 0 is at the lower left; the fields around each corner are black, white, black and white."""
    board = sn.targets.aprilgrid(3, 2, tag_size=0.088, tag_spacing=0.27)
    lines = [np.add.outer(np.arange(n) * 0.088 * 1.27, [0.0, 0.088]) for n in (3, 2)]
    x, y = (each - each.mean() for each in lines)
    for k, corners in enumerate(board.corners):
        column, row = k % 3, k // 3
        left, right, low, high = *x[column], *y[row]
        np.testing.assert_allclose(corners[:, :2], [[left, low], [right, low], [right, high], [left, high]], atol=1e-9)
    height, width = board.pixels.shape

    def gray(points: np.ndarray) -> np.ndarray:
        columns = ((points[..., 0] / board.size[0] + 0.5) * width).astype(int)
        rows = ((0.5 - points[..., 1] / board.size[1]) * height).astype(int)
        return board.pixels[rows, columns]

    for sign, value in (((1, 1), 0), ((-1, -1), 0), ((1, -1), 255), ((-1, 1), 255)):
        towards = 0.004 * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * np.array(sign)  # into each tag
        assert (gray(board.corners[..., :2] + towards) == value).all()
    middle = np.array([board.corners[k, :, :2].mean(axis=0) for k in range(6)])
    place = np.stack(np.meshgrid(np.arange(10) - 4.5, 4.5 - np.arange(10)), axis=-1) * 0.0088
    for k in range(6):
        np.testing.assert_array_equal(gray(middle[k] + place), tag_cells(k, 2))
    with pytest.raises(sn.ArgumentError, match="expected 0 to 586"):
        sn.targets.aprilgrid(30, 20)
    with pytest.raises(sn.ArgumentError, match="tag_size: got 0, expected a finite number above 0"):
        sn.targets.aprilgrid(tag_size=0)


def test_images_of_a_chessboard_are_exact() -> None:
    """Compared with the mean of 16 x 16 points in each pixel of the pattern, seen through a pinhole."""
    board = sn.targets.chessboard(5, 4, 0.06)
    seen = image(board).albedo[0, ..., 0].numpy() / 255.0
    fine = (np.arange(16) + 0.5) / 16.0
    across = (np.arange(WIDTH)[:, None] + fine).reshape(-1)
    down = (np.arange(HEIGHT)[:, None] + fine).reshape(-1)
    x, y = points_of(across[None, :], down[:, None], board.corners[0, 2])
    column, row = np.floor(x / 0.06 + 3.0), np.floor(2.5 - y / 0.06)
    inside = (column >= 0) & (column < 6) & (row >= 0) & (row < 5)
    exact = np.where(inside & ((column + row) % 2 == 0), 0.0, 1.0)
    exact = exact.reshape(HEIGHT, 16, WIDTH, 16).mean(axis=(1, 3))
    off = seen - exact
    assert 0.2 < exact.mean() < 0.8 and np.abs(off).mean() < 0.02
    slopes = np.gradient(exact)  # a shift by (dy, dx) px changes the image by their product
    shift = np.linalg.lstsq(np.stack([each.reshape(-1) for each in slopes], axis=1), off.reshape(-1), rcond=None)[0]
    assert np.abs(shift).max() < 0.005


def test_a_board_in_a_model_looks_the_same() -> None:
    """Also on a body, and from a spec that is compiled by MuJoCo."""
    board = sn.targets.aprilgrid(2, 2, 0.1, 0.3)
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(name="arm", pos=(0.1, 0.0, 0.0))
    spec.visual.headlight.active = 0
    spec.worldbody.add_light(
        name="lamp", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=(0, 0, 3), dir=(0, 0, -1), ambient=(0.2,) * 3,
        diffuse=(0.6,) * 3,
    )  # fmt: skip
    board.add_to(spec, "board", body="arm", pos=(-0.1, 0.0, 0.0))
    here, there = image(board), sn.Scene(sn.MujocoEngine(spec), [camera()])["eye"].data
    np.testing.assert_array_equal(here.albedo.numpy(), there.albedo.numpy())
    assert np.abs(here.rgb.numpy().astype(int) - there.rgb.numpy()).max() <= 1
    with pytest.raises(sn.UnknownNameError, match=r"unknown body 'armm'\. Did you mean 'arm'"):
        board.add_to(spec, "other", body="armm")
