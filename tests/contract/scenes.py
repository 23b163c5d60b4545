"""A small scene per data class, so that the documented shapes are compared with real readings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import sensorium as sn
from sensorium.compat import genelab, genesis, isaaclab
from sensorium.testing import tumbling_engine

ENVS = 3
"""Number of environments."""
FEET = ("FL", "FR", "RL", "RR")


def _imu() -> Any:
    return _sensor(sn.ImuCfg(name="x", site="site", fields="all"))


def _genesis_imu() -> Any:
    return _sensor(genesis.IMU(name="x", link_name="body"))


def _builtin() -> Any:
    model = (
        "<mujoco><worldbody><body name='b'><freejoint/><geom size='.1'/><site name='s'/></body></worldbody></mujoco>"
    )
    obj = sn.ObjRef(type="site", name="s")
    return _sensor(
        sn.BuiltinSensorCfg(name="x", sensor_type="accelerometer", obj=obj), sn.MujocoEngine(model, num_envs=ENVS)
    )


def _frames() -> Any:
    return _sensor(sn.FrameTransformerCfg.example())


def _contacts() -> Any:
    fields = ("found", "force", "torque", "dist", "pos", "normal", "tangent", "friction")
    feet = sn.ContactMatch(mode="body", pattern=FEET)
    return _sensor(
        sn.ContactSensorCfg(
            name="x", primary=feet, fields=fields, num_slots=2, track_air_time=True, track_contact_points=True,
            history_length=5,
        ),
        _engine_with_contacts(),
    )  # fmt: skip


def _contact_forces() -> Any:
    return _sensor(
        sn.ContactSensorCfg(
            name="x", prim_path="F.|R.", filter_prim_paths_expr=["box", "ball"], track_pose=True, track_air_time=True,
            track_contact_points=True, track_friction_forces=True, history_length=5,
        ),
        _engine_with_contacts(),
    )  # fmt: skip


def _engine_with_contacts() -> sn.TensorEngine:
    return sn.TensorEngine(ENVS, bodies=(*FEET, "box", "ball"), provides=("pose", "contact"))


def _rays() -> Any:
    return _sensor(sn.RayCasterCfg(name="x", site="site", fields="all"), _engine_with_ground())


def _camera() -> Any:
    types = ("rgb", "distance_to_image_plane")  # the data are those of the document, and sensorium's as well
    cfg = isaaclab.CameraCfg(
        name="x", prim_path="/World/site/eye", width=8, height=6, data_types=types, spawn=isaaclab.PinholeCameraCfg()
    )
    return _sensor(cfg, _engine_with_ground())


def _engine_with_ground() -> sn.TensorEngine:
    return sn.TensorEngine(ENVS, sites={"site": "body"}, shapes=[sn.engines.Shape("plane", "ground")])


def _sensor(cfg: Any, engine: Any = None) -> Any:
    scene = sn.Scene(engine if engine is not None else tumbling_engine(ENVS), [cfg])
    scene.step()
    return scene[cfg]


def _skin() -> Any:
    engine = sn.TensorEngine(2, bodies=("tip",), shapes=[sn.engines.Shape("plane", "ground")])
    return sn.Scene(engine, [genelab.KinematicTactileSensorCfg(name="skin", link_name="tip")])["skin"]


SENSORS: dict[str, Callable[[], Any]] = {
    "ImuData": _imu,
    "IMUData": _genesis_imu,
    "BuiltinSensorData": _builtin,
    "FrameTransformerData": _frames,
    "ContactData": _contacts,
    "ContactSensorData": _contact_forces,
    "RayCasterData": _rays,
    "CameraData": _camera,
    "KinematicTactileSensorData": _skin,
}
"""Name of a data class -> a sensor with all its fields. A class with two names has two shapes, one under each name."""


@cache
def _built(name: str) -> Any:
    return SENSORS[name]()


def sensor_for(data_class: type, name: str = "") -> Any:
    """Return a sensor with data of this class.

    Args:
        data_class: the class.
        name: the name to use, where the class has several.

    Raises:
        LookupError: `SENSORS` has no such sensor.
    """
    name = name if name in SENSORS else data_class.__name__
    if name not in SENSORS:
        raise LookupError(f"tests/contract/scenes.py has no sensor for {data_class.__name__}: add one to SENSORS")
    sensor = _built(name)
    assert isinstance(sensor.data, data_class) or sensor.single
    return sensor
