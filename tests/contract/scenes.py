"""One small scene per data class, so that the shapes a document states are those of real readings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import sensorium as sn
from sensorium.testing import tumbling_engine

ENVS = 3
"""Number of environments."""


def _imu() -> Any:
    return _sensor(sn.ImuCfg(name="x", site="site", fields="all"))


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


def _sensor(cfg: Any, engine: Any = None) -> Any:
    scene = sn.Scene(engine if engine is not None else tumbling_engine(ENVS), [cfg])
    scene.step()
    return scene[cfg]


SENSORS: dict[str, Callable[[], Any]] = {
    "ImuData": _imu,
    "BuiltinSensorData": _builtin,
    "FrameTransformerData": _frames,
}
"""Name of a data class -> a sensor that has all its fields."""


@cache
def _built(name: str) -> Any:
    return SENSORS[name]()


def sensor_for(data_class: type) -> Any:
    """Return a sensor whose data are of this class.

    Raises:
        LookupError: none is given in `SENSORS`.
    """
    if data_class.__name__ not in SENSORS:
        raise LookupError(f"tests/contract/scenes.py has no sensor for {data_class.__name__}: add one to SENSORS")
    return _built(data_class.__name__)
