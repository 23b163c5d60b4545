"""Names and shapes of simulators that keep all worlds in one list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sensorium as sn
from sensorium.engines.worlds import common_shapes, rows_of_worlds, short_names
from sensorium.errors import ModelError


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["/World/dog/base", "/World/dog/left/foot", "/World/dog/right/foot"], ["base", "left/foot", "right/foot"]),
        (["a/x/foot", "b/x/foot", "b/y/foot"], ["a/x/foot", "b/x/foot", "y/foot"]),
        (["foot", "left/foot"], ["foot", "left/foot"]),
        (["ground", "/ball/"], ["ground", "ball"]),
        ([], []),
    ],
)  # fmt: skip
def test_a_short_name_is_the_leaf_with_as_many_parents_as_needed(labels: list[str], names: list[str]) -> None:
    assert list(short_names(labels)) == names


def test_equal_labels_are_rejected() -> None:
    with pytest.raises(ModelError, match="label 'a/foot': 2 elements have this label"):
        short_names(["a/foot", "base", "a/foot"])


def test_rows_of_worlds_are_those_of_equal_names() -> None:
    """Shared elements come first; the others follow in each world's order."""
    labels = ["ground", "/env_0/base", "/env_0/foot", "/env_1/base", "/env_1/foot"]
    names, rows = rows_of_worlds(labels, [-1, 0, 0, 1, 1], 2, "bodies")
    assert names == ("ground", "base", "foot") and rows.tolist() == [[0, 1, 2], [0, 3, 4]]


@pytest.mark.parametrize(
    ("labels", "worlds", "message"),
    [
        (["a/base", "a/foot", "b/base"], [0, 0, 1], r"0 and 1 have different bodies \(2 and 1, foot are only in one"),
        (["a/base", "a/foot", "b/foot", "b/base"], [0, 0, 1, 1], "2 and 2, in another order"),
        (["a/base", "b/base"], [0, 2], "'b/base' is in world 2, expected -1 to 1"),
    ],
)  # fmt: skip
def test_worlds_of_unequal_size_are_refused(labels: list[str], worlds: list[int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        rows_of_worlds(labels, worlds, 2, "bodies")


def test_shapes_that_all_worlds_have_are_described_once() -> None:
    """Equal meshes of two worlds are one; a difference is named with its world and field."""
    points, faces = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), [[0, 1, 2]]
    worlds = [
        [
            sn.engines.Shape("mesh", "rock", mesh=sn.engines.Mesh(points, faces)),
            sn.engines.Shape("hfield", "hill", hfield=hill()),
        ]
        for _ in range(3)
    ]
    assert common_shapes(worlds)[0].mesh is worlds[0][0].mesh
    worlds[2][0] = replace(worlds[2][0], pos=(1.0, 0.0, 0.0))
    with pytest.raises(ModelError, match="shape 'rock' has a different pos in world 2"):
        common_shapes(worlds)
    with pytest.raises(ModelError, match="worlds 0 and 1 have 2 and 1 shapes"):
        common_shapes([worlds[0], worlds[1][:1]])


def test_textures_of_worlds_are_compared_by_their_pixels() -> None:
    """Each world may have its own copy of a texture; other pixels or texture coordinates are a difference."""
    points, faces = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), [[0, 1, 2]]

    def world(shade: int = 0, uv: np.ndarray | None = None) -> list[sn.engines.Shape]:
        pixels = np.full((2, 2, 3), shade, np.uint8)
        look = sn.engines.Material(texture=sn.engines.Texture(pixels, "wood"))
        return [sn.engines.Shape("mesh", "crate", mesh=sn.engines.Mesh(points, faces, uv=uv), material=look)]

    uv = np.zeros((1, 3, 2))
    assert common_shapes([world(), world()])[0].name == "crate"
    assert common_shapes([world(uv=uv), world(uv=uv)])[0].name == "crate"
    with pytest.raises(ModelError, match="shape 'crate' has a different material in world 1"):
        common_shapes([world(), world(shade=9)])
    for first, second in ((uv, uv + 0.5), (None, uv), (uv, None)):
        with pytest.raises(ModelError, match="shape 'crate' has a different mesh in world 1"):
            common_shapes([world(uv=first), world(uv=second)])


def test_a_tensor_engine_takes_the_shapes_of_each_world() -> None:
    """Equal shapes are shared; different ones refuse SHAPES with the difference, and nothing else."""
    worlds = [
        [sn.engines.Shape("plane", "ground"), sn.engines.Shape("box", "crate", (1.0, 1.0, 1.0), body="body")]
        for _ in range(2)
    ]
    assert [shape.name for shape in sn.TensorEngine(2, shapes=worlds).shapes()] == ["ground", "crate"]
    worlds[1][1] = replace(worlds[1][1], size=(1.0, 1.0, 2.0))
    engine = sn.TensorEngine(2, shapes=worlds)
    sn.Scene(engine, [sn.ImuCfg(body="body")])
    with pytest.raises(sn.UnsupportedError, match=r"requires SHAPES.*shape 'crate' has a different size in world 1"):
        sn.Scene(engine, [sn.LidarCfg(body="body")])
    with pytest.raises(ModelError, match="got shapes of 2 worlds, expected one sequence or 3"):
        sn.TensorEngine(3, shapes=worlds)


def hill() -> sn.engines.HeightField:
    return sn.engines.HeightField(np.zeros((3, 3)), (1.0, 1.0))
