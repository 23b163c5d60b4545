"""Segmentations of the camera: labels, filters, instances and colors, against the ids of the shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sensorium as sn
from sensorium.cameras.semantics import parse_filter, typed
from sensorium.pictures import colors_of

TYPES = ("geom_ids", "semantic_segmentation", "instance_segmentation", "instance_id_segmentation", "segmentation")
RAW: dict[str, Any] = {
    f"colorize_{name}": False for name in ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation")
}
SCENE = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <geom name="crate" type="box" size=".3 .3 .3" pos="2 0 .3"/>
  <geom name="crate_2" type="box" size=".2 .2 .2" pos="2 1 .2"/>
  <body name="robot" pos="0 0 1"><freejoint/><geom name="trunk" size=".15"/>
    <body name="hip" pos="0 .3 0"><body name="left" pos="0 .1 -.2"><joint axis="0 1 0"/><geom name="thigh" size=".1"/>
      <geom name="mark" size=".05" pos="-.15 0 0"/>
      <body name="left_foot" pos="0 0 -.3"><joint axis="0 1 0"/><geom name="foot_l" size=".08"/></body></body></body>
    <body name="right_foot" pos="0 -.4 -.5"><joint axis="0 1 0"/><geom name="foot_r" size=".08"/></body>
  </body>
  <body name="ball_a" pos="1 .5 .2"><freejoint/><geom name="a" size=".1"/></body>
  <body name="ball_b" pos="1 -.5 .2"><freejoint/><geom name="b" size=".1"/></body>
</worldbody></mujoco>
"""
SEMANTICS = {
    "box": "crate.*", "class:robot": ["robot", "left", "left_foot", "right_foot"],
    "part:foot": ".*_foot", "ball": "ball_.*", "color:red": ["ball_a", "crate"], "color:blue": "ball_b",
    "state:old": "ball_a",
}  # fmt: skip
VIEW = sn.CameraCfg.OffsetCfg.from_view((-3.0, 0.5, 2.0), (0.8, 0.1, 0.3))


def camera(**options: Any) -> sn.CameraCfg:
    return sn.CameraCfg(
        **{
            "name": "camera", "body": "world", "width": 160, "height": 120, "offset": VIEW, "data_types": TYPES, **RAW,
            "lens": sn.lenses.PinholeLensCfg(fovy=50.0), **options,
        }
    )  # fmt: skip


def seen(semantics: Any = SEMANTICS, **options: Any) -> tuple[Any, Any]:
    """Return the sensor, and its data after a step in two environments."""
    scene = sn.Scene(sn.MujocoEngine(SCENE, num_envs=2), [camera(**options)], semantics=semantics)
    sensor: Any = scene["camera"]
    return sensor, sensor.data


def values(sensor: Any, data: Any, name: str) -> dict[str, Any]:
    """Return the value of the segmentation on each visible shape by name, "" for the background: exactly one."""
    found = {}
    ids = data.geom_ids[..., 0]
    for shape in ids.unique().tolist():
        (value,) = data.output[name][ids == shape].unique(dim=0).tolist()
        found[sensor.geom_names[shape] if shape >= 0 else ""] = tuple(value) if len(value) > 1 else value[0]
    return found


def test_all_segmentations_agree_pixel_for_pixel() -> None:
    """Every value belongs to one set of shapes; types of objects are MuJoCo's, and all shapes are in view."""
    sensor, data = seen()
    assert {*values(sensor, data, "segmentation")} == {"", *sensor.geom_names}
    for name, value in values(sensor, data, "segmentation").items():
        assert value == ((sensor.geom_names.index(name), 5) if name else (-1, -1))
    for kind in TYPES[1:4]:
        assert values(sensor, data, kind)[""] == 0
    leaves = values(sensor, data, "instance_id_segmentation")
    names = data.info[0]["instance_id_segmentation"]["idToLabels"]
    assert {name: names[str(value)] for name, value in leaves.items()} == {
        name: name or "BACKGROUND" for name in leaves
    }


def test_semantic_ids_are_those_of_equal_labels() -> None:
    """0 is the background, 1 a surface without a label; each set of labels has an id and its labels by type."""
    sensor, data = seen()
    ids, texts = values(sensor, data, "semantic_segmentation"), data.info[1]["semantic_segmentation"]["idToLabels"]
    labels = {name: texts[str(id)] for name, id in ids.items()}
    assert labels == {
        "": {"class": "BACKGROUND"}, "floor": {"class": "UNLABELLED"}, "crate": {"class": "box", "color": "red"},
        "crate_2": {"class": "box"}, "trunk": {"class": "robot"}, "thigh": {"class": "robot"},
        "mark": {"class": "robot"}, "foot_l": {"class": "robot", "part": "foot"},
        "foot_r": {"class": "robot", "part": "foot"},
        "a": {"class": "ball", "color": "red", "state": "old"}, "b": {"class": "ball", "color": "blue"},
    }  # fmt: skip
    assert ids["floor"] == 1 and ids["foot_l"] == ids["foot_r"] != ids["trunk"] == ids["thigh"] == ids["mark"]


def test_an_instance_is_a_connected_part_with_equal_labels() -> None:
    """Linked bodies with equal labels are one object, also across a body without shapes; crates are one each."""
    sensor, data = seen()
    ids = values(sensor, data, "instance_segmentation")
    info = data.info[0]["instance_segmentation"]
    names = {name: info["idToLabels"][str(id)] for name, id in ids.items()}
    assert names == {
        "": "BACKGROUND", "floor": "UNLABELLED", "crate": "crate", "crate_2": "crate_2", "trunk": "robot",
        "thigh": "robot", "mark": "robot", "foot_l": "left_foot", "foot_r": "right_foot", "a": "ball_a", "b": "ball_b",
    }  # fmt: skip
    assert info["idToSemantics"][str(ids["foot_r"])] == {"class": "robot", "part": "foot"}
    assert info["idToSemantics"]["0"] == {"class": "BACKGROUND"}
    with_mark: Any = {**SEMANTICS, "part:mark": "mark"}
    sensor, data = seen(with_mark)
    ids = values(sensor, data, "instance_segmentation")
    assert ids["mark"] != ids["thigh"] == ids["trunk"]


def color_of(id: int) -> tuple[int, ...]:
    return tuple(colors_of(id).tolist())


def test_colors_replace_ids_one_to_one() -> None:
    """Each id has one color, also in `info`; the four bytes are red, green, blue and alpha."""
    colorize = dict.fromkeys(RAW, True)
    _, raw = seen()
    _, colored = seen(**colorize)
    for name in TYPES[1:4]:
        ids, colors = raw.output[name][..., 0], colored.output[name]
        assert colors.dtype == torch.uint8 and colors.shape == (2, 120, 160, 4)
        pairs = {int(id): tuple(colors[ids == id].unique(dim=0).squeeze(0).tolist()) for id in ids.unique()}
        assert pairs == {id: color_of(id) for id in pairs} and len({*pairs.values()}) == len(pairs)
        for key, texts in raw.info[0][name].items():
            assert colored.info[0][name][key] == {str(color_of(int(id))): text for id, text in texts.items()}
    assert color_of(0) == (0, 0, 0, 0) and color_of(1) == (0, 0, 0, 255)
    assert len({*map(tuple, colors_of(range(20000)).tolist())}) == 20000


def test_info_of_images_without_ids_is_none() -> None:
    data = seen(data_types=("depth", "normals", "instance_segmentation_fast"))[1]
    assert data.info[0]["depth"] is data.info[0]["normals"] is None and len(data.info) == 2
    assert data.info[1]["instance_segmentation_fast"]["idToLabels"]["0"] == "BACKGROUND"


@pytest.mark.parametrize(
    ("given", "labelled"),
    [
        ("*:*", {"crate", "crate_2", "trunk", "thigh", "mark", "foot_l", "foot_r", "a", "b"}),
        ("class: *", {"crate", "crate_2", "trunk", "thigh", "mark", "foot_l", "foot_r", "a", "b"}),
        ("class : ball & !box | robot , color: red ; part: foot",
         {"a", "b", "crate", "trunk", "thigh", "mark", "foot_l", "foot_r"}),
        ("part : * ; * : red", {"foot_l", "foot_r", "a", "crate"}),
        ("*: red & !old", {"crate"}),
        ("*: !red", {"crate_2", "trunk", "thigh", "mark", "foot_l", "foot_r", "b"}),
        ("class: !robot", {"crate", "crate_2", "a", "b"}),
        ("color: !*", set()),
        (["part"], {"foot_l", "foot_r"}),
        (["color", "state"], {"crate", "a", "b"}),
        ("color:blue|red", {"crate", "a", "b"}),
    ],
)  # fmt: skip
def test_a_filter_selects_labels(given: Any, labelled: set[str]) -> None:
    """Selected surfaces show their matching labels, others are unlabelled; the ids of leaves do not change."""
    sensor, data = seen(semantic_filter=given)
    for name in ("semantic_segmentation", "instance_segmentation"):
        ids = values(sensor, data, name)
        assert {each for each, id in ids.items() if id > 1} == labelled
    assert torch.equal(data.instance_id_segmentation, seen()[1].instance_id_segmentation)


def test_a_filter_shows_only_the_matching_labels() -> None:
    """`*` shows all labels of the type, a name shows itself, and several terms add up."""
    for given, expected in (
        ("color:*", {"a": {"color": "red"}, "b": {"color": "blue"}, "crate": {"color": "red"}}),
        ("*: red", {"a": {"color": "red"}, "crate": {"color": "red"}}),
        ("color: red & !blue; state: *", {"a": {"color": "red", "state": "old"}, "crate": {"color": "red"}}),
    ):
        sensor, data = seen(semantic_filter=given)
        texts = data.info[0]["semantic_segmentation"]["idToLabels"]
        ids = values(sensor, data, "semantic_segmentation")
        assert {name: texts[str(id)] for name, id in ids.items() if id > 1} == expected


def test_a_scene_without_labels_has_unlabelled_surfaces() -> None:
    sensor, data = seen(semantics=None)
    for name in ("semantic_segmentation", "instance_segmentation"):
        assert {*values(sensor, data, name).values()} == {0, 1}
    assert {*values(sensor, data, "instance_id_segmentation").values()} == {0, *range(2, 2 + len(sensor.geom_names))}


def test_several_labels_of_one_type_are_joined() -> None:
    sensor, data = seen(semantics={"box": "crate", "class:heavy": "crate", "kind:x": "floor"})
    ids = values(sensor, data, "semantic_segmentation")
    texts = data.info[0]["semantic_segmentation"]["idToLabels"]
    assert texts[str(ids["crate"])] == {"class": "box,heavy"} and texts[str(ids["floor"])] == {"kind": "x"}


def test_labels_have_a_type_and_a_name() -> None:
    assert typed("robot") == ("class", "robot") and typed("color: red") == ("color", "red")
    (term,) = parse_filter("a : b & !c | d")
    assert term.type == "a" and [[(atom.label, atom.is_negated) for atom in each] for each in term.alternatives] == [
        [("b", False), ("c", True)], [("d", False)]
    ]  # fmt: skip
