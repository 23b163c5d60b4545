"""Images as colors: order, distinctness and misses of each function, and image files against another decoder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib import colormaps

import sensorium as sn
from sensorium.errors import ArgumentError, MissingDependencyError, UnknownNameError
from sensorium.pictures import MISS, colors_of

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)


def lightness(colors: Array) -> Array:
    """Return CIE 1976 L* of sRGB colors."""
    share = colors / 255.0
    linear = np.where(share > 0.04045, ((share + 0.055) / 1.055) ** 2.4, share / 12.92)
    luminance = linear @ (0.2126, 0.7152, 0.0722)
    return np.where(luminance > 0.008856, 116.0 * np.cbrt(luminance) - 16.0, 903.3 * luminance)


def test_colors_of_distances_darken_evenly() -> None:
    """Equal steps of the distance are equal steps of the lightness, to 25 %; the colors are Matplotlib's viridis."""
    ramp = sn.pictures.colorize_depth(np.linspace(1.0, 3.0, 65)[None], 1.0, 3.0)[0]
    steps = -np.diff(lightness(ramp)[::8])
    assert steps.min() > 0.75 * steps.mean() and steps.max() < 1.25 * steps.mean()
    expected = colormaps["viridis_r"](np.linspace(0.0, 1.0, 65))[:, :3] * 255.0
    assert np.abs(ramp - expected)[::8].max() < 3.0


def test_limits_ignore_outliers_and_misses() -> None:
    """One far speck changes no other color; misses, of any kind, are grey; given limits hold."""
    depth = RNG.uniform(1.0, 2.0, (2, 40, 50, 1)).astype(np.float32)
    plain = sn.pictures.colorize_depth(depth)
    assert plain.shape == (2, 40, 50, 3) and plain.dtype == np.uint8
    depth[0, 0, :5, 0] = (1e6, np.inf, 0.0, np.nan, -np.inf)
    colors = sn.pictures.colorize_depth(torch.from_numpy(depth))
    assert (colors[0, 0, 1:5] == MISS).all() and (colors[0, 0, 0] == (68, 1, 84)).all()
    assert np.abs(colors[0, 1:].astype(int) - plain[0, 1:]).max() < 12
    assert (sn.pictures.colorize_depth(np.array([[5.0, 1.0]]), 2.0, 3.0) == [[(68, 1, 84), (253, 231, 37)]]).all()
    for flat in (np.full((3, 4), 2.0), np.full((3, 4), np.inf)):
        assert sn.pictures.colorize_depth(flat).shape == (3, 4, 3)
    with pytest.raises(ArgumentError, match="near, far: got 3 and 2 m, expected near < far"):
        sn.pictures.colorize_depth(np.ones((2, 2)), 3.0, 2.0)


def test_colors_of_ids_are_distinct_and_depend_on_the_id_alone() -> None:
    ids = np.arange(4096).reshape(64, 64)
    colors = sn.pictures.colorize_ids(ids, first=0)
    assert len(np.unique(colors.reshape(-1, 3), axis=0)) == 4096
    shuffled = RNG.permutation(ids.reshape(-1)).reshape(64, 64)
    np.testing.assert_array_equal(sn.pictures.colorize_ids(shuffled, first=0), colors[shuffled // 64, shuffled % 64])
    np.testing.assert_array_equal(sn.pictures.colorize_ids(ids + 2), colors)  # geom ids and those of segmentations
    few = sn.pictures.colorize_ids(np.arange(-1, 21)[None], first=0)[0].astype(int)
    apart = np.linalg.norm(few[:, None] - few[None], axis=-1) + 1e3 * np.eye(22)
    assert tuple(few[0]) == MISS and apart.min() > 40.0
    labels = sn.pictures.colorize_ids(np.array([[0, 1, 2]], np.int32))[0]
    assert tuple(labels[0]) == MISS and len({*labels[1].tolist()}) == 1 and labels[1, 0] < 150  # dark grey
    assert colors_of([-5, 0, 1]).tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 255]]


def test_normals_and_motion_have_the_documented_colors() -> None:
    axes = np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])[None]
    expected = [(255, 128, 128), (128, 255, 128), (128, 128, 255), (0, 128, 128), (128, 0, 128), (128, 128, 0), MISS]
    assert np.abs(sn.pictures.colorize_normals(axes)[0].astype(int) - expected).max() <= 1
    right, down = (1.0, 0.0), (0.0, 1.0)
    flow = np.array([[right, down, (-1.0, 0.0), (0.0, -1.0), (0.0, 0.0), (0.5, 0.0), (np.inf, 0.0)]])
    expected = [(255, 0, 0), (128, 255, 0), (0, 255, 255), (128, 0, 255), (255,) * 3, (255, 128, 128), MISS]
    assert np.abs(sn.pictures.colorize_flow(flow, 1.0)[0].astype(int) - expected).max() <= 1
    still = np.full((20, 20, 2), 1e-5)
    assert sn.pictures.colorize_flow(still).min() > 250  # rounding errors are no motion
    still[3, 3:5] = (3.0, 0.0)
    assert (sn.pictures.colorize_flow(still)[3, 3] == (255, 0, 0)).all()  # a small part that moves is seen
    with pytest.raises(ArgumentError, match="largest: got 0"):
        sn.pictures.colorize_flow(flow, 0.0)


def test_boxes_surround_their_pixels() -> None:
    """White lies on the inclusive bounds, black beside it; rows of -1 are omitted, and edges of the image clip."""
    grey = np.full((20, 30, 3), 90, np.uint8)
    rows = np.array([[2, 5, 4, 12, 9, 0.0], [-1] * 6, [3, 26, 15, 29, 19, 0.5]])
    drawn = sn.pictures.draw_boxes(grey, torch.from_numpy(rows))
    white, black = (drawn == 255).all(-1), (drawn == 0).all(-1)
    expected = np.zeros((20, 30), bool)
    expected[[4, 9], 5:13] = expected[4:10, [[5], [12]]] = True
    np.testing.assert_array_equal(white[:12], expected[:12])
    assert black[3, 4:14].all() and black[3:11, 4].all() and white[15, 26:].all() and white[15:, 29].all()
    assert (drawn[6, 8] == 90).all() and (grey == 90).all()


def test_edges_of_a_box_are_lines_between_its_corners() -> None:
    """A unit box, turned by 90 degrees about z and moved; and a line in an image, with a part that is not finite."""
    turn = np.array([[0.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [5.0, 6.0, 7.0, 1.0]])
    row = np.concatenate([[2.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0], turn.reshape(-1), [0.0]])
    edges = sn.pictures.box_edges(np.stack([row, np.full(24, -1.0)]), points=3)
    assert edges.shape == (1, 12, 3, 3)
    lengths = np.linalg.norm(edges[0, :, 2] - edges[0, :, 0], axis=-1)
    assert sorted(lengths) == pytest.approx([1.0] * 4 + [2.0] * 4 + [3.0] * 4)
    np.testing.assert_allclose(edges[0, :, 1], edges[0, :, ::2].mean(axis=1))
    corners = {tuple(corner) for corner in edges[0, :, ::2].reshape(-1, 3).round(9)}
    assert corners == {(5.0 - y, 6.0 + x, 7.0 + z) for x in (0.0, 1.0) for y in (0.0, 2.0) for z in (0.0, 3.0)}
    line = np.array([[(2.5, 4.5), (9.5, 4.5), (np.nan, np.nan), (40.0, 4.5)]])
    drawn = sn.pictures.draw_lines(np.full((10, 12, 3), 90, np.uint8), line)
    assert (drawn[4, 2:10] == 255).all() and (drawn[5, 2:10] == 0).all() and (drawn == 90).all(-1).sum() == 120 - 16


@pytest.mark.parametrize(
    ("image", "suffix"),
    [
        (RNG.integers(0, 256, (7, 9, 3), np.uint8), ".png"),
        (RNG.integers(0, 256, (7, 9, 4), np.uint8), ".PNG"),
        (RNG.integers(0, 256, (7, 9, 1), np.uint8), ".png"),
        (RNG.integers(0, 65536, (7, 9), np.uint16), ".png"),
        (np.full((16, 16, 3), 77, np.uint8), ".jpg"),
    ],
)
def test_files_hold_the_image(tmp_path: Path, image: Array, suffix: str) -> None:
    path = sn.pictures.save_image(tmp_path / "new" / f"image{suffix}", torch.from_numpy(image))
    found = matplotlib.image.imread(path, format=suffix[1:].lower())
    scale = 1.0 if suffix == ".jpg" else 255.0 if image.dtype == np.uint8 else 65535.0
    np.testing.assert_allclose(np.rint(found * scale), image.squeeze(), atol=2.0 if suffix == ".jpg" else 0.0)


def test_bad_images_are_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    byte = np.zeros((4, 4, 3), np.uint8)
    for image, says in (
        (np.zeros((4, 4, 1), np.float32), r"got float32 \[4, 4, 1\].*Use colorize_depth"),
        (np.zeros((2, 4, 4, 3), np.uint8), r"Choose one image, e\.g\. image\[0\]"),
        (np.zeros((4, 4, 3), np.uint16), "expected uint8"),
    ):
        with pytest.raises(ArgumentError, match=says):
            sn.pictures.save_image(tmp_path / "x.png", image)
    with pytest.raises(ArgumentError, match="for a PNG also 4"):
        sn.pictures.save_image(tmp_path / "x.jpg", np.zeros((4, 4, 4), np.uint8))
    with pytest.raises(UnknownNameError, match=r"suffix of an image '\.pngg'.*\.png"):
        sn.pictures.save_image(tmp_path / "x.pngg", byte)
    for call, says in (
        (
            lambda: sn.pictures.colorize_depth(byte),
            r"depth: got the shape \[4, 4, 3\], expected \[\.\.\., 1\] or \[height, width\]",
        ),
        (lambda: sn.pictures.colorize_ids(np.zeros((2, 2))), "ids: got float64, expected integers"),
        (lambda: sn.pictures.colorize_flow(byte), r"flow: got the shape .*\[\.\.\., 2\]"),
    ):
        with pytest.raises(ArgumentError, match=says):
            call()
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"need Pillow.*pip install 'sensorium\[record\]'"):
        sn.pictures.save_image(tmp_path / "x.png", byte)


def test_clients_color_images_without_heavy_imports() -> None:
    heavy = "{'torch', 'warp', 'pydantic'} & {*sys.modules}"
    code = f"import sys, sensorium as sn; sn.pictures.colorize_depth([[1.0, 2.0]]); print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
