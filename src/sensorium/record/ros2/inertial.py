"""Message mappers of inertial, magnetic, barometric and thermal sensors, satellite receivers, and states of bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sensorium.readings import Array
from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, message_mapper
from sensorium.record.ros2.names import WORLD
from sensorium.spec import FieldSpec

ABSENT = (-1.0, *(0.0,) * 8)
"""Covariance of a quantity that a message does not hold."""


def xyzw(quat: Array) -> Array:
    """Return quaternions wxyz in the order of ROS messages."""
    return quat[..., [1, 2, 3, 0]]


@message_mapper("imu")
def imu(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/Imu: angular velocity and specific force, and the orientation where the sensor has one."""
    parts = {
        "angular_velocity": sensor.field(role="angular_velocity", frame="sensor", shape=(3,)),
        "linear_acceleration": sensor.field(role="specific_force", frame="sensor", shape=(3,)),
    }
    if not any(parts.values()):
        return
    parts["orientation"] = sensor.field(role="pose", frame="world", shape=(4,))
    names = {path: spec.name for path, spec in parts.items() if spec is not None}

    def columns(samples: Samples) -> Columns:
        return {path: xyzw(samples[name]) if path == "orientation" else samples[name] for path, name in names.items()}

    values: dict[str, Any] = {f"{path}_covariance": ABSENT for path, spec in parts.items() if spec is None}
    values["orientation"] = {"w": 1.0}
    topic = "data" if "orientation" in names else "data_raw"
    yield Channel("sensor_msgs/msg/Imu", topic, tuple(names.values()), values, columns)


_TESLA = {"T": 1.0, "mT": 1e-3, "uT": 1e-6, "nT": 1e-9, "G": 1e-4, "mG": 1e-7}


@message_mapper("magnetic_field")
def magnetic_field(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/MagneticField in tesla; a field in the engine's unit is taken as tesla."""
    spec = sensor.field(role="magnetic", frame="sensor", shape=(3,))
    if spec is None:
        return
    name, scale = spec.name, _TESLA.get(spec.unit, 1.0)
    yield Channel(
        "sensor_msgs/msg/MagneticField", "mag", (name,), {},
        lambda samples: {"magnetic_field": samples[name].astype(np.float64) * scale},
    )  # fmt: skip


@message_mapper("fluid_pressure")
def fluid_pressure(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/FluidPressure of a sensor with one pressure."""
    yield from _scalar(sensor, "Pa", "sensor_msgs/msg/FluidPressure", "fluid_pressure", "pressure")


@message_mapper("temperature")
def temperature(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/Temperature of a sensor with one temperature."""
    yield from _scalar(sensor, "degC", "sensor_msgs/msg/Temperature", "temperature", "temperature")


def _scalar(sensor: MappedSensor, unit: str, message: str, path: str, topic: str) -> Iterator[Channel]:
    spec = sensor.field(unit=unit)
    if spec is not None and spec.columns == 1 and not spec.is_ragged:
        name = spec.name
        yield Channel(message, topic, (name,), {}, lambda samples: {path: samples[name].reshape(len(samples))})


_STATUS = np.array([-1, -1, 0, 0, 2, 2])
"""Kind of fix of a receiver (0 none, 2 and 3 dimensional, 4 and 5 with corrections) -> sensor_msgs/NavSatStatus."""


@message_mapper("nav_sat_fix")
def nav_sat_fix(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/NavSatFix, and the velocity east, north, up where the sensor has one."""
    position, fix = sensor.field(axes=("lla",)), sensor.field("fix")
    if position is None:
        return
    name = position.name

    def columns(samples: Samples) -> Columns:
        lla = samples[name]
        status = {"status.status": _STATUS[np.clip(samples["fix"], 0, 5)]} if fix is not None else {}
        return {"latitude": lla[:, 0], "longitude": lla[:, 1], "altitude": lla[:, 2], **status}

    fields = (name,) if fix is None else (name, "fix")
    yield Channel("sensor_msgs/msg/NavSatFix", "fix", fields, {"status": {"service": 1}}, columns)
    velocity = sensor.field(axes=("enu",), unit="m/s")
    if velocity is not None:
        moving = velocity.name
        yield Channel(
            "geometry_msgs/msg/TwistStamped", "fix_velocity", (moving,), {},
            lambda samples: {"twist.linear": samples[moving]}, frame=WORLD,
        )  # fmt: skip


@message_mapper("odometry")
def odometry(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield nav_msgs/Odometry of a sensor with pose and velocity; velocities are in the axes of the moving frame."""
    pos = sensor.field(role="point", frame="world", shape=(3,))
    quat = sensor.field(role="pose", frame="world", shape=(4,))
    if pos is None or quat is None:
        return
    speeds = {
        "twist.twist.linear": _moving(sensor, "vector_at", "m/s"),
        "twist.twist.angular": _moving(sensor, "angular_velocity", "rad/s"),
    }
    found = {path: spec for path, spec in speeds.items() if spec is not None}
    if "twist.twist.linear" not in found:
        return

    def columns(samples: Samples) -> Columns:
        q = samples[quat.name]
        return {
            "pose.pose.position": samples[pos.name],
            "pose.pose.orientation": xyzw(q),
            **{
                path: rotate_inverse(q, samples[spec.name]) if spec.frame == "world" else samples[spec.name]
                for path, spec in found.items()
            },
        }

    fields = (pos.name, quat.name, *(spec.name for spec in found.values()))
    yield Channel("nav_msgs/msg/Odometry", "odometry", fields, {}, columns, frame=WORLD)


def _moving(sensor: MappedSensor, role: str, unit: str) -> FieldSpec | None:
    found = (sensor.field(role=role, unit=unit, frame=frame, shape=(3,)) for frame in ("sensor", "world"))
    return next((spec for spec in found if spec is not None), None)


def rotate_inverse(quat: Array, vector: Array) -> Array:
    """Return vectors `[..., 3]` in the axes of a frame with orientation `quat` `[..., 4]` wxyz, as float64."""
    q, v = quat.astype(np.float64), vector.astype(np.float64)
    axis = -q[..., 1:]
    turned = 2.0 * np.cross(axis, v)
    rotated: Array = v + q[..., :1] * turned + np.cross(axis, turned)
    return rotated
