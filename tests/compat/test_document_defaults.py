"""Every default that a contract document states equals that of the class of the same name in `sensorium.compat`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from sensorium.cameras.camera_base_cfg import CameraOffsetCfg
from sensorium.cfg import OffsetCfg
from sensorium.errors import ConfigError
from sensorium.sensors.frames.safe_distance import SafeDistanceCfg

REQUIRED = "required"
IDENTITY = OffsetCfg()
SENSOR = {"prim_path": REQUIRED, "update_period": 0.0, "history_length": 0, "debug_vis": False}
OFFSET = {"pos": (0.0, 0.0, 0.0), "rot": (1.0, 0.0, 0.0, 0.0)}
RAYS = {"mesh_prim_paths": REQUIRED, "pattern_cfg": REQUIRED, "max_distance": 1.0e6, "drift_range": (0.0, 0.0)}
CAMERA = SENSOR | {
    "offset": CameraOffsetCfg(), "spawn": REQUIRED, "data_types": ("rgb",), "width": REQUIRED, "height": REQUIRED,
    "semantic_filter": "*:*", "colorize_semantic_segmentation": True, "colorize_instance_id_segmentation": True,
    "colorize_instance_segmentation": True,
}  # fmt: skip

DEFAULTS: dict[str, dict[str, Any]] = {
    # omni.isaac.lab.sensors
    "isaaclab.SensorBaseCfg": {name: value for name, value in SENSOR.items() if name != "prim_path"},
    "isaaclab.ContactSensorCfg": SENSOR | {
        "track_pose": False, "track_air_time": False, "filter_prim_paths_expr": (), "force_threshold": None,
    },
    "isaaclab.FrameTransformerCfg": SENSOR | {"source_frame_offset": IDENTITY, "target_frames": REQUIRED},
    "isaaclab.FrameTransformerCfg.FrameCfg": {"prim_path": REQUIRED, "name": None, "offset": IDENTITY},
    "isaaclab.OffsetCfg": OFFSET,
    "isaaclab.RayCasterCfg": SENSOR | RAYS | {"offset": IDENTITY},
    "isaaclab.RayCasterCfg.OffsetCfg": OFFSET,
    "isaaclab.RayCasterCameraCfg": SENSOR | RAYS | {"data_types": ("distance_to_image_plane",)},
    "isaaclab.RayCasterCameraCfg.OffsetCfg": OFFSET | {"convention": "ros"},
    "isaaclab.CameraCfg": CAMERA,
    "isaaclab.CameraCfg.OffsetCfg": OFFSET | {"convention": "ros"},
    "isaaclab.TiledCameraCfg": CAMERA,
    "isaaclab.ImuCfg": SENSOR | {"offset": IDENTITY, "gravity_bias": (0.0, 0.0, 9.81)},
    "isaaclab.ImuCfg.OffsetCfg": OFFSET,
    # mjlab's Sensors page
    "mjlab.BuiltinSensorCfg": {"sensor_type": REQUIRED},
    "mjlab.ContactSensorCfg": {
        "primary": REQUIRED, "secondary": None, "num_slots": 1, "track_air_time": False, "history_length": 0,
    },
    "mjlab.ContactMatch": {"mode": REQUIRED, "pattern": REQUIRED, "entity": None},
    "mjlab.ObjRef": {"type": REQUIRED, "name": REQUIRED, "entity": None},
    # Genesis' Implementing Custom Sensors states none of a specific sensor; the numbers are those of its options
    "genesis.IMU": dict.fromkeys(("noise", "bias", "random_walk", "resolution", "delay", "jitter"))
    | {"magnetic_field": (0.0, 0.0, 0.5)},
    "genesis.Contact": {"threshold": 0.0},
    "genesis.ContactForce": {"min_force": 0.0, "max_force": None},
    "genesis.Raycaster": {"min_range": 0.0, "max_range": 20.0},
    "genesis.DepthCamera": {"min_range": 0.0, "max_range": 20.0},
    "genesis.SurfaceDistanceProbe": {"probe_local_pos": ((0.0, 0.0, 0.0),), "probe_radius": 0.5},
    "genesis.Proximity": {"max_range": 10.0},
    "genesis.ElastomerTaxel": {
        "lambda_d": 700.0, "lambda_s": 300.0, "dilate_scale": 1.0, "shear_scale": 1.0, "normal_exponent": 2.0,
        "compressibility": 1.0, "elastomer_thickness": 0.0, "contact_threshold": 1e-5, "n_sample_points": 500,
    },
    "genesis.KinematicTaxel": {
        "probe_radius": 0.01, "normal_stiffness": 1000.0, "normal_damping": 1.0, "normal_exponent": 1.0,
        "shear_scalar": 1.0, "twist_scalar": 1.0,
    },
    "genesis.TemperatureGrid": {"grid_size": (1, 1, 1), "convection_coefficient": 1.0, "ambient_temperature": 21.0},
    # GeneLab's KinematicTactileSensor
    "genelab.SensorCfg": {"name": ""},
    "genelab.KinematicTactileSensorCfg": {
        "name": "", "entity_name": "robot", "probe_local_pos": ((0.0, 0.0, 0.0),),
        "probe_local_normal": (0.0, 0.0, 1.0), "probe_radius": 0.01, "probe_radius_noise": 0.0,
        "normal_stiffness": 1000.0, "normal_damping": 1.0, "normal_exponent": 1.0, "shear_scalar": 1.0,
        "twist_scalar": 1.0, "history_length": 0,
    },
}  # fmt: skip
"""Class -> field by the document's name -> default of the document; a list is a tuple here."""


def found(path: str) -> Any:
    """Return the object at a path in `sensorium.compat`."""
    module, *names = path.split(".")
    value: Any = import_module(f"sensorium.compat.{module}")
    for name in names:
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, fields in DEFAULTS.items() for name in fields], ids="{}".format
)
def test_default_equals_that_of_the_document(path: str, name: str) -> None:
    fields = found(path).model_fields
    info = {info.alias or ours: info for ours, info in fields.items()}[name]
    default = REQUIRED if info.is_required() else info.get_default(call_default_factory=True)
    expected = DEFAULTS[path][name]
    assert default == expected and isinstance(default, bool) == isinstance(expected, bool)


def test_genelab_sensor_requires_a_link() -> None:
    """Its document has ``link_name=""``, but the link is required."""
    with pytest.raises(ConfigError, match="no selector"):
        found("genelab.KinematicTactileSensorCfg")()


def test_carla_safe_distances_equal_those_of_the_tutorial() -> None:
    stated = {"safe_distance_front": 1.0, "safe_distance_back": 0.5, "safe_distance_lateral": 0.5}
    cfg = SafeDistanceCfg(body="car")
    assert {name: getattr(cfg, name) for name in stated} == stated


def test_a_name_of_a_document_is_found_in_its_module() -> None:
    import sensorium as sn

    for system, name in (("mjlab", "TerrainHeightSensor"), ("genesis", "IMUSensor"), ("isaaclab", "RaycastTargetCfg")):
        with pytest.raises(AttributeError, match=rf"Did you mean: sensorium\.compat\.{system}\.{name}\?"):
            getattr(sn, name)
        assert hasattr(import_module(f"sensorium.compat.{system}"), name)
