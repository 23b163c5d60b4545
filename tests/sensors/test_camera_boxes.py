"""Bounding boxes, against id images of the scene and of each object alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.errors import ConfigError

TYPES = ("bounding_box_2d_tight", "bounding_box_2d_loose", "bounding_box_3d", "geom_ids", "semantic_segmentation")
SHAPES = (
    sn.engines.Shape("plane", "ground", (50.0, 50.0)),
    sn.engines.Shape("box", "crate", (0.3, 0.2, 0.4), body="crate"),
    sn.engines.Shape("sphere", "ball", (0.35,), pos=(0.9, 0.9, 0.35)),
    sn.engines.Shape("capsule", "handle", (0.05, 0.3), body="crate", pos=(0.0, 0.0, 0.6), quat=(0.7, 0.7, 0.0, 0.0)),
    sn.engines.Shape("box", "wall", (0.05, 0.15, 0.5), pos=(-0.8, 0.2, 0.5)),
    sn.engines.Shape("sphere", "away", (0.2,), pos=(-9.0, 0.0, 0.0)),
)
SEMANTICS = {"class:crate": ("crate", "handle"), "class:ball": ("ball", "away")}
CRATE, BALL = (1, 3), (2,)


def scene_of(shapes: Any = SHAPES, envs: int = 1, types: Any = TYPES, semantics: Any = SEMANTICS, **cfg: Any) -> Any:
    engine = sn.TensorEngine(envs, 0.01, bodies=("crate", "camera"), shapes=shapes)
    for env in range(envs):
        turn = Rotation.from_euler("xyz", [0.3, -0.2, 0.4 + env]).as_quat(scalar_first=True)
        engine.body_pos_w[env] = torch.tensor([[0.2, -0.3 + 0.1 * env, 0.7], [-2.5, 0.2, 1.0]])
        engine.body_quat_w[env] = torch.tensor(np.array([turn, [0.995, 0.0, 0.0998, 0.0]]), dtype=torch.float32)
    cfg = {"width": 80, "height": 60, "lens": sn.lenses.PinholeLensCfg(fovy=60.0), "data_types": types,
           "colorize_semantic_segmentation": False, "offset": {"convention": "world"}} | cfg  # fmt: skip
    return sn.Scene(engine, [sn.CameraCfg(name="camera", body="camera", **cfg)], semantics=semantics)


def extent(mask: Any) -> list[int]:
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max(), rows.max()]


def rows_of(data: Any, name: str, env: int = 0) -> list[list[float]]:
    boxes, count = getattr(data, name)[env], int(getattr(data, f"{name}_count")[env])
    assert (boxes[count:] == -1.0).all()
    found: list[list[float]] = boxes[:count].tolist()
    return found


def alone(numbers: tuple[int, ...], envs: int = 1) -> Any:
    """Return the pixels that objects cover when the other shapes are absent, `[env, height, width]`."""
    shapes = tuple(SHAPES[i] for i in numbers)
    return scene_of(shapes, envs, ("geom_ids",), None)["camera"].data.geom_ids[..., 0].numpy() >= 0


@pytest.mark.parametrize("envs", [1, 7])
def test_boxes_are_those_of_id_images(envs: int) -> None:
    """Tight: visible pixels. Loose: pixels of the object alone. Occlusion ratio: hidden share of the latter."""
    data = scene_of(envs=envs)["camera"].data
    ids, classes = data.geom_ids[..., 0].numpy(), data.semantic_segmentation[..., 0].numpy()
    labels = {}
    for name, numbers in (("crate", CRATE), ("ball", BALL)):
        free = alone(numbers, envs)
        for env in range(envs):
            seen = np.isin(ids[env], numbers)
            label = int(classes[env][seen][0])
            labels[name] = label
            hidden = 1.0 - seen.sum() / free[env].sum()
            assert [label, *extent(seen), pytest.approx(hidden)] in rows_of(data, "bounding_box_2d_tight", env)
            assert [label, *extent(free[env]), pytest.approx(hidden)] in rows_of(data, "bounding_box_2d_loose", env)
    for env in range(envs):
        assert len(rows_of(data, "bounding_box_2d_tight", env)) == 2
        assert len(rows_of(data, "bounding_box_2d_loose", env)) == 2  # the one behind the camera is not in view
    assert data.info[0]["semantic_segmentation"]["idToLabels"][str(labels["ball"])] == {"class": "ball"}
    hidden = [row[5] for row in rows_of(data, "bounding_box_2d_tight")]
    assert any(0.05 < share < 0.95 for share in hidden), hidden


def test_hidden_objects_have_a_loose_and_a_3d_box_but_no_tight_one() -> None:
    """A wall in front of the camera hides everything: the occlusion ratio is 1."""
    shapes = (*SHAPES, sn.engines.Shape("box", "screen", (0.05, 3.0, 3.0), pos=(-2.0, 0.0, 0.0)))
    data = scene_of(shapes)["camera"].data
    assert rows_of(data, "bounding_box_2d_tight") == []
    assert [row[5] for row in rows_of(data, "bounding_box_2d_loose")] == [1.0, 1.0]
    assert [row[23] for row in rows_of(data, "bounding_box_3d")] == [1.0, 1.0]


def test_solid_boxes_are_those_of_the_shapes() -> None:
    """One shape: its own frame and size. Two shapes of a body: the body's frame, and the box around both."""
    scene = scene_of()
    data = scene["camera"].data
    crate, ball = rows_of(data, "bounding_box_3d")
    assert ball[1:7] == pytest.approx([-0.35, -0.35, -0.35, 0.35, 0.35, 0.35])
    assert np.reshape(ball[7:23], (4, 4)) == pytest.approx(np.c_[np.eye(4)[:, :3], [0, 0, 0, 1]] + np.array(
        [[0] * 4, [0] * 4, [0] * 4, [0.9, 0.9, 0.35, 0.0]]))  # fmt: skip
    # the capsule lies along -y of the body, since its z axis is turned about x by 90 degrees
    assert crate[1:7] == pytest.approx([-0.3, -0.35, -0.4, 0.3, 0.35, 0.65], abs=1e-6)
    matrix = np.reshape(crate[7:23], (4, 4))
    quat = scene.engine.body_quat_w[0, 0].numpy()
    assert matrix[:3, :3] == pytest.approx(Rotation.from_quat(quat, scalar_first=True).as_matrix().T, abs=1e-6)
    assert matrix[3].tolist() == pytest.approx([0.2, -0.3, 0.7, 1.0])
    corner = np.array([0.3, 0.2, 0.4, 1.0]) @ matrix  # a corner of the crate, row vector times matrix
    turned = Rotation.from_quat(quat, scalar_first=True).apply([0.3, 0.2, 0.4]) + np.array([0.2, -0.3, 0.7])
    assert corner[:3] == pytest.approx(turned, abs=1e-6)


def test_boxes_do_not_include_pixels_beyond_the_field_of_view() -> None:
    """A wall on the axis of a fisheye, wider than its circle: all boxes are the circle, and nothing is hidden."""
    shapes = (sn.engines.Shape("box", "wall", (0.1, 90.0, 90.0), pos=(2.0, 0.0, 0.0)),)
    lens = sn.lenses.KannalaBrandtLensCfg(fovy=90.0, max_fov_deg=60.0)
    data = scene_of(shapes, semantics={"wall": "wall"}, lens=lens)["camera"].data
    label, *bounds, hidden = rows_of(data, "bounding_box_2d_tight")[0]
    assert bounds == extent(data.geom_ids[0, ..., 0].numpy() == 0) and 0 < bounds[0] and bounds[2] < 79
    assert rows_of(data, "bounding_box_2d_loose") == [[label, *bounds, 0.0]] and hidden == 0.0
    assert rows_of(data, "bounding_box_3d")[0][23] == 0.0


def test_a_filter_selects_the_objects_with_boxes() -> None:
    data = scene_of(semantic_filter="class:ball")["camera"].data
    assert len(rows_of(data, "bounding_box_2d_loose")) == 1
    assert rows_of(data, "bounding_box_3d")[0][4] == pytest.approx(0.35)


def test_boxes_without_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"bounding_box_2d_tight.*labelled.*semantics"):
        scene_of(semantics=None)


def test_boxes_have_the_names_of_the_document() -> None:
    """`_fast` names give the same boxes under the requested keys, in order."""
    names = ("bounding_box_3d_fast", "bounding_box_2d_loose_fast", "bounding_box_2d_tight_fast")
    data = scene_of(types=names)["camera"].data
    assert tuple(data.output) == names
    assert data.output["bounding_box_2d_tight_fast"] is data.bounding_box_2d_tight
    assert data.bounding_box_2d_tight.shape == (1, 3, 6) and data.bounding_box_3d.shape == (1, 3, 24)
