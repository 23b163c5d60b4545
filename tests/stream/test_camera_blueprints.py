"""Blueprints of cameras with one data type: attributes, errors, and the images that a listener gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sensorium as sn
import sensorium.sensors.all
from sensorium.errors import ConfigError
from sensorium.stream.blueprints import build_cfg, definitions
from sensorium.stream.variants import VARIANTS

ROOM = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <geom name="crate" type="box" size=".3 .3 .3" pos="2 0 .3"/>
  <body name="robot/base" pos="0 0 .5"><freejoint/><geom size=".1" pos="-.3 0 0"/>
    <camera name="head" pos=".1 0 0" xyaxes="0 -1 0 0 0 1" fovy="60"/></body></worldbody></mujoco>
"""
FIELDS = {"depth": "distance_to_image_plane", "semantic_segmentation": "semantic_segmentation",
          "instance_segmentation": "instance_segmentation", "optical_flow": "optical_flow",
          "normals": "normals"}  # fmt: skip
SMALL = {"image_size_x": "32", "image_size_y": 24}


@pytest.fixture(scope="module")
def room() -> Iterator[Any]:
    scene = sn.Scene(sn.MujocoEngine(ROOM, num_envs=3), semantics={"crate": "crate", "robot": "robot/.*"}, seed=0)
    with scene.local_client() as client:
        yield scene, client


def test_ids_and_attributes_are_those_of_the_data_types() -> None:
    known = definitions()
    assert {*VARIANTS} == {f"sensor.camera.{name}" for name in FIELDS} < {*known}
    for name in FIELDS:
        definition = known[f"sensor.camera.{name}"]
        assert definition.kind == name and definition.doc and "camera" in definition.tags
        assert [(each.id, each.default, each.unit) for each in definition][:3] == [
            ("image_size_x", "800", "px"), ("image_size_y", "600", "px"), ("fov", "90.0", "deg"),
        ]  # fmt: skip
        ids = {each.id for each in definition}
        assert not ids & {"width", "height", "data_types"} and {"sensor_tick", "lens", "noise", "camera"} <= ids
        assert [each for each in ids if each.startswith("colorize")] == (
            [f"colorize_{name}"] if "segmentation" in name else []
        )


@pytest.mark.parametrize("name", FIELDS)
def test_a_spawned_camera_sends_the_images_of_the_scenes_camera(name: str, room: Any) -> None:
    """Bit for bit, at the pose and with the angle of the blueprint; segmentations are ids, whose labels are known."""
    scene, client = room
    blueprint = client.blueprints.find(f"sensor.camera.{name}").set_attributes(**SMALL, fov="70")
    pose = sn.Pose((0.1, 0.0, 0.0))
    spawned = client.spawn(blueprint, transform=pose, attach_to="robot/base")
    lens = sn.PinholeLensCfg(focal_length=1.0, horizontal_aperture=2.0 * math.tan(math.radians(35.0)))
    offset = sn.CameraCfg.OffsetCfg(pos=(0.1, 0.0, 0.0), convention="world")
    own = sn.CameraCfg(name=f"own_{name}", body="robot/base", offset=offset, width=32, height=24, lens=lens,
                       data_types=(name,), colorize_semantic_segmentation=False,
                       colorize_instance_segmentation=False)  # fmt: skip
    scene.add(own)
    client.step()
    data = spawned.read()
    expected = getattr(scene[own].data, FIELDS[name]).numpy()
    assert data.sensor == name and expected.shape[:3] == (3, 24, 32)
    np.testing.assert_array_equal(data[FIELDS[name]], expected)
    assert data.intrinsic_matrices[0, 0, 0] == pytest.approx(16.0 / math.tan(math.radians(35.0)))
    if "segmentation" in name:
        labels = data.info.constants["labels"][name]["idToLabels"]
        texts = [labels[str(id)] for id in np.unique(data[name]).tolist()]
        assert texts[:2] == ([{"class": "BACKGROUND"}, {"class": "UNLABELLED"}] if "semantic" in name else
                             ["BACKGROUND", "UNLABELLED"]) and len(texts) == 3  # fmt: skip
    spawned.destroy()
    scene.remove(own.name)


def test_lens_camera_and_colors_can_be_chosen() -> None:
    fisheye = {"kind": "kannala_brandt", "fovy": 90.0, "k1": 0.01}
    chosen = build_cfg("depth", {**SMALL, "lens": fisheye, "sensor_tick": "0.1"}, attach_to="robot/base")
    assert chosen == sn.CameraCfg(
        body="robot/base", offset=sn.CameraCfg.OffsetCfg(convention="world"), width=32, height=24, update_period=0.1,
        lens=sn.KannalaBrandtLensCfg(fovy=90.0, k1=0.01), data_types=("depth",),
    )  # fmt: skip
    head = build_cfg(
        "sensor.camera.semantic_segmentation", {"camera": "head", "colorize_semantic_segmentation": "true"}
    )
    assert (head.width, head.height, head.lens) == (800, 600, None) and head.colorize_semantic_segmentation
    assert build_cfg("normals").body == "world"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"fov": "180"}, "fov: got '180', expected a number > 0 and <= 179.9 (deg)"),
        ({"image_size_x": 0}, "image_size_x: got 0, expected a whole number >= 1 (px)"),
        (
            {"image_size_x": 10**6, "image_size_y": 10**6},
            "image_size_x, image_size_y: got 1000000, 1000000, expected at",
        ),
        ({"fov": 60, "lens": {"kind": "pinhole", "fovy": 40}}, "fov: got 60.0, expected no value, since lens is set"),
        ({"lens": {"kind": "pinhol"}}, "lens.kind: got 'pinhol', expected one of pinhole"),
        ({"widht": 3}, "widht: got unknown attribute with value 3"),
        ({"clipping_range": [2.0, 1.0]}, "clipping_range: got (2.0, 1.0)"),
    ],
)
def test_errors_name_the_blueprint_and_its_attribute(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_cfg("sensor.camera.depth", values)
    assert str(error.value).startswith(f"Blueprint('sensor.camera.depth').{says}")
