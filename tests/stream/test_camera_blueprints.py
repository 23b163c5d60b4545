"""Blueprints of cameras with one data type: attributes, errors, and the images that a listener gets."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE

import sensorium as sn
import sensorium.sensors.all
from sensorium.compat import variants
from sensorium.errors import ConfigError
from sensorium.stream.blueprints import build_cfg, definitions

ROOM = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <geom name="crate" type="box" size=".3 .3 .3" pos="2 0 .3"/>
  <body name="robot/base" pos="0 0 .5"><freejoint/><geom size=".1" pos="-.3 0 0"/>
    <camera name="head" pos=".1 0 0" xyaxes="0 -1 0 0 0 1" fovy="60"/></body></worldbody></mujoco>
"""
FIELDS = {"depth": "distance_to_image_plane", "semantic_segmentation": "semantic_segmentation",
          "instance_segmentation": "instance_segmentation", "optical_flow": "optical_flow",
          "normals": "normals", "rgb": "rgb"}  # fmt: skip
SMALL = {"image_size_x": "32", "image_size_y": 24}


@pytest.fixture(scope="module")
def room() -> Iterator[Any]:
    scene = sn.Scene(sn.MujocoEngine(ROOM, num_envs=3), semantics={"crate": "crate", "robot": "robot/.*"}, seed=0)
    with scene.local_client(timeout=PATIENCE) as client:
        yield scene, client


def test_ids_and_attributes_are_those_of_the_data_types() -> None:
    known = definitions()
    cameras = {each for each in variants() if each.startswith("sensor.camera.")}
    assert cameras == {f"sensor.camera.{name}" for name in (*FIELDS, "dvs")} and {*variants()} < {*known}
    for name in FIELDS:
        definition = known[f"sensor.camera.{name}"]
        assert definition.kind == name and definition.doc and "camera" in definition.tags
        assert [(each.id, each.default, each.unit) for each in definition][:3] == [
            ("image_size_x", 800, "px"), ("image_size_y", 600, "px"), ("fov", 90.0, "deg"),
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
    lens = sn.lenses.PinholeLensCfg(focal_length=1.0, horizontal_aperture=2.0 * math.tan(math.radians(35.0)))
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
        lens=sn.lenses.KannalaBrandtLensCfg(fovy=90.0, k1=0.01), data_types=("depth",),
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
        ({"frames": 3}, "frames: got unknown attribute with value 3"),
        ({"clipping_range": [2.0, 1.0]}, "clipping_range: got (2.0, 1.0)"),
    ],
)
def test_errors_name_the_blueprint_and_its_attribute(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_cfg("sensor.camera.depth", values)
    assert str(error.value).startswith(f"Blueprint('sensor.camera.depth').{says}")


# Colors and events ----------------------------------------------------------------------------------------------------


def test_shutter_and_sensitivity_of_colors() -> None:
    """Twice the ISO is one stop brighter; the defaults change nothing."""
    assert build_cfg("sensor.camera.rgb", SMALL).stages == ()
    (stage,) = build_cfg("rgb", {**SMALL, "iso": "200", "shutter_speed": "50"}).stages
    assert stage == sn.stages.ImageSensor(exposure_time=0.02, gain=2.0, white_exposure=0.005)


def test_events_by_the_names_of_the_blueprint() -> None:
    """Thresholds of 0.3 by default, ns, and events that a listener gets one after the other."""
    chosen = build_cfg("dvs", {**SMALL, "refractory_period_ns": "2000", "sigma_positive_threshold": "0.01"})
    assert isinstance(chosen, sn.EventCameraCfg) and (chosen.width, chosen.height) == (32, 24)
    assert (chosen.positive_threshold, chosen.negative_threshold) == (0.3, 0.3)
    assert chosen.refractory_period == pytest.approx(2e-6) and chosen.sigma_positive_threshold == 0.01
    scene = sn.Scene(sn.MujocoEngine(ROOM, num_envs=2), seed=0)
    with scene.local_client(timeout=PATIENCE) as client:
        blueprint = client.blueprints.find("sensor.camera.dvs").set_attributes(**SMALL, sensor_tick="0.01")
        spawned = client.spawn(blueprint, attach_to="robot/base", name="dvs")
        samples: Any = queue.SimpleQueue()
        scene.engine.qvel[:, 5] = 6.0  # rad/s
        spawned.listen(samples.put)
        for _ in range(3):
            client.step(substeps=5)
        last, own = scene.tick, scene["dvs"].data
        while (data := samples.get(timeout=PATIENCE)).tick < last:
            pass
        assert int(data.count.sum()) == len(data.x) > 0
        for env in range(2):
            rows = slice(int(data.offsets[env]), int(data.offsets[env + 1]))
            for name in ("x", "y", "polarity", "time_offset"):
                np.testing.assert_array_equal(data[name][rows], getattr(own, name)[env, : int(own.count[env])])
