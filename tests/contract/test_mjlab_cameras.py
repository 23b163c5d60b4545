"""mjlab's camera by the names and defaults of its page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.compat import mjlab

MODEL = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <geom name="hidden" type="box" size=".1 9 9" pos="1 0 0" group="3"/>
  <geom name="crate" type="box" size=".3 .3 .3" pos="2 0 .3"/>
  <body name="base" pos="0 0 .5"><freejoint/><geom name="trunk" size=".1" pos="-.3 0 0"/>
    <camera name="head" pos=".1 0 0" xyaxes="0 -1 0 0 0 1" fovy="60"/></body>
</worldbody></mujoco>
"""
TYPES = ("depth", "segmentation")


def data_of(**options: Any) -> Any:
    cfg = mjlab.CameraSensorCfg(name="eye", **{"data_types": TYPES, **options})
    assert sn.CameraCfg.from_toml(cfg.to_toml()).to_dict() == cfg.to_dict()
    return sn.Scene(sn.MujocoEngine(MODEL, num_envs=2), [cfg])["eye"]


def test_depth_and_segmentation_of_a_camera_of_the_model() -> None:
    """Depth along the axis with 0 for a miss, and (object, type), (-1, -1) for a miss; hidden groups are not seen."""
    sensor = data_of(camera_name="head")
    data = sensor.data
    assert data.depth.shape == (2, 120, 160, 1) and data.segmentation.shape == (2, 120, 160, 2)
    assert data.output["depth"] is data.depth and data.segmentation.dtype == torch.int32
    np.testing.assert_allclose(data.depth[:, 60, 80, 0], 1.6, rtol=1e-6)
    assert data.segmentation[0, 60, 80].tolist() == [sensor.geom_names.index("crate"), 5]
    assert float(data.depth[0, 0, 0]) == 0.0 and data.segmentation[0, 0, 0].tolist() == [-1, -1]
    assert float(sensor.intrinsic_matrices[0, 0, 0]) == pytest.approx(60.0 * 3**0.5, rel=1e-6)
    near = data_of(camera_name="head", enabled_geom_groups=(0, 3), fovy=90.0)
    np.testing.assert_allclose(near.data.depth[:, 60, 80, 0], 0.8, rtol=1e-6)
    assert float(near.intrinsic_matrices[0, 0, 0]) == pytest.approx(60.0)


def test_a_camera_is_created_in_the_world_or_on_a_body() -> None:
    """By default 1 m above the origin, looking down with 45 degrees; `use_shadows` has no effect on depth."""
    world = data_of(use_shadows=True, enabled_geom_groups=(0,))
    assert world.data.pos_w.tolist() == [[0.0, 0.0, 1.0]] * 2
    assert float(world.intrinsic_matrices[0, 1, 1]) == pytest.approx(60.0 / np.tan(np.pi / 8), rel=1e-6)
    np.testing.assert_allclose(world.data.depth[:, 0, 0, 0], 1.0, rtol=1e-6)
    body = data_of(parent_body="base", pos=(0.2, 0.0, 0.1), quat=(1.0, 0.0, 0.0, 0.0))
    torch.testing.assert_close(body.data.pos_w, torch.tensor([[0.2, 0.0, 0.6]] * 2))
    np.testing.assert_allclose(body.data.depth[:, 119, 0, 0], 0.6, rtol=1e-6)


def test_color_images_have_shadows_and_textures_only_where_asked() -> None:
    """By default textures without shadows; an image is uint8 `[env, height, width, 3]`."""
    config = mjlab.CameraSensorCfg(name="eye")
    assert (config.data_types, config.textures, config.shadows) == (("rgb",), True, False)
    image = data_of(
        data_types=("rgb", "depth"), use_shadows=True, use_textures=False, enabled_geom_groups=(0,)
    ).data.rgb
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (2, 120, 160, 3))
    assert int(image.max()) > 0


def test_an_orthographic_camera_has_a_height_of_fovy_metres() -> None:
    sensor = data_of(data_types=("depth",), orthographic=True, fovy=3.0, width=8, height=6)
    assert sensor.data.intrinsic_matrices[0].diagonal().tolist() == [2.0, 2.0, 1.0]


def test_cloned_data_keep_their_values() -> None:
    """With `clone_data` each read returns new tensors; otherwise reads return the same views."""
    for clone in (False, True):
        sensor = data_of(camera_name="head", width=8, height=6, clone_data=clone)
        first = sensor.data.depth
        assert (first.data_ptr() != sensor.data.depth.data_ptr()) is clone
        assert torch.equal(first, sensor.read().depth)


def test_the_four_sensor_types_share_one_base() -> None:
    for kind in (mjlab.BuiltinSensor, mjlab.ContactSensor, mjlab.RayCastSensor, mjlab.CameraSensor):
        assert issubclass(kind, mjlab.Sensor)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data_types": ("rgbd",)}, "data types among"),
        ({"data_types": ()}, "at least one"),
        ({"orthographic": True}, "orthographic: got True.*Give fovy"),
        ({"camera_name": "head", "parent_body": "base"}, "parent_body.*no value beside camera_name"),
    ],
)
def test_options_that_are_not_available_are_named(options: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=f"(?s)CameraSensorCfg.*{says}"):
        mjlab.CameraSensorCfg(**{"data_types": TYPES, **options})


def test_patterns_have_mjlabs_fields_order_and_rays() -> None:
    """Rays of an image plane pass through its corners, from the lower left; a grid is rounded to the nearest step."""
    cube = mjlab.PinholeCameraPatternCfg(3, 3, 90.0)
    directions = cube.rays().directions.numpy() * np.sqrt(
        [[3.0], [2.0], [3.0], [2.0], [1.0], [2.0], [3.0], [2.0], [3.0]]
    )
    expected = [(x, y, -1.0) for y in (-1.0, 0.0, 1.0) for x in (-1.0, 0.0, 1.0)]
    np.testing.assert_allclose(directions, expected, atol=1e-6)
    again = sn.patterns.PatternBaseCfg.from_dict(cube.to_dict())
    assert type(again) is sn.patterns.ImagePlanePatternCfg and again.rays().directions.equal(cube.rays().directions)
    default = mjlab.PinholeCameraPatternCfg()
    assert (default.width, default.height, default.fovy) == (16, 12, 45.0)
    assert mjlab.PinholeCameraPatternCfg.from_intrinsic_matrix([1, 0, 2, 0, 1, 1, 0, 0, 1], 4, 2).fovy == pytest.approx(
        90
    )
    assert len(mjlab.GridPatternCfg((0.38, 0.3), 0.1).rays()) == 5 * 4 and len(mjlab.GridPatternCfg().rays()) == 121
    ring = mjlab.RingPatternCfg((mjlab.RingPatternCfg.Ring(0.1, 4),), False)
    assert len(ring.rays()) == 4 and len(mjlab.RingPatternCfg.single_ring().rays()) == 9
    with pytest.raises(sn.ConfigError, match="at most 3 values: width, height, fovy"):
        mjlab.PinholeCameraPatternCfg(1, 1, 45.0, None)


def test_rays_of_a_camera_of_the_model() -> None:
    """The image and both angles are those of the camera, and a camera without an image is refused by name."""
    sensors = 'resolution="3 2" sensorsize=".02 .01" focal=".01 .01"'
    engine = sn.MujocoEngine(MODEL.replace('fovy="60"', sensors))
    pattern = mjlab.PinholeCameraPatternCfg.from_mujoco_camera("head")
    rays = sn.Scene(engine, [mjlab.RayCastSensorCfg(name="x", body="base", pattern=pattern)])["x"].pattern
    assert rays.return_shape == (2, 3)
    np.testing.assert_allclose(rays.directions[0].numpy(), np.array([-1.0, -0.5, -1.0]) / 1.5, atol=1e-6)
    with pytest.raises(sn.ConfigError, match="camera: got 'head', expected a camera of the model with a resolution"):
        sn.Scene(sn.MujocoEngine(MODEL), [mjlab.RayCastSensorCfg(body="base", pattern=pattern)])
    with pytest.raises(sn.ConfigError, match="no camera without its model"):
        pattern.rays()
