"""Message mappers of inertial, magnetic, barometric and thermal sensors, satellite receivers, and states of bodies."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, radians, sin
from typing import Any

import numpy as np

from sensorium.pose import rotate
from sensorium.readings import Array
from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, message_mapper
from sensorium.record.ros2.names import WORLD
from sensorium.spec import FLUX_UNITS, FieldSpec

ABSENT = (-1.0, *(0.0,) * 8)
"""Covariance of a quantity that a message does not hold."""


def diagonal(variances: Array) -> Array:
    """Return covariance matrices, row by row `[..., 9]`, of variances `[..., 3]`."""
    return (variances[..., None] * np.eye(3)).reshape(*variances.shape[:-1], 9)


def _covariance(path: str, sensor: MappedSensor, spec: FieldSpec | None, scale: float = 1.0) -> dict[str, Array]:
    """Return the covariance matrix of a vector under its path in a message; nothing if an axis has no known noise."""
    variances = None if spec is None else sensor.variances(spec)
    return {} if variances is None or not variances.all() else {path: diagonal(variances * scale**2)}


def _turned(quat: Array, variances: Array) -> Array:
    """Return the covariance matrices `[row, 3, 3]`, in outer axes, of independent errors along inner axes.

    Args:
        quat: orientations of the inner axes, wxyz `[row, 4]`.
        variances: variances along them, `[3]`.
    """
    errors = rotate(quat[:, None].astype(np.float64), np.diag(np.sqrt(variances)))
    matrices: Array = np.einsum("rki,rkj->rij", errors, errors)
    return matrices


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

    constant: dict[str, Any] = {}
    for path in ("angular_velocity", "linear_acceleration"):
        constant |= _covariance(f"{path}_covariance", sensor, parts[path])
    turning = None if parts["orientation"] is None else sensor.variances(parts["orientation"])

    def errors(samples: Samples) -> Columns:
        if turning is None or not turning.all():
            return constant
        matrices = _turned(samples[names["orientation"]], turning)
        return {**constant, "orientation_covariance": matrices.reshape(-1, 9)}

    values: dict[str, Any] = {f"{path}_covariance": ABSENT for path, spec in parts.items() if spec is None}
    values["orientation"] = {"w": 1.0}
    topic = "data" if "orientation" in names else "data_raw"
    yield Channel("sensor_msgs/msg/Imu", topic, tuple(names.values()), values, columns, errors=errors)


@message_mapper("magnetic_field")
def magnetic_field(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/MagneticField in tesla; a field without a known unit has no message."""
    spec = sensor.field(role="magnetic", frame="sensor", shape=(3,))
    if spec is None or spec.unit not in FLUX_UNITS:
        return
    name, scale = spec.name, FLUX_UNITS[spec.unit]
    errors = _covariance("magnetic_field_covariance", sensor, spec, scale)
    yield Channel(
        "sensor_msgs/msg/MagneticField", "mag", (name,), {},
        lambda samples: {"magnetic_field": samples[name].astype(np.float64) * scale}, errors=lambda _: errors,
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
        name, variances = spec.name, sensor.variances(spec)
        errors = {} if variances is None else {"variance": variances[0]}  # 0 for an unknown one
        yield Channel(
            message, topic, (name,), {}, lambda samples: {path: samples[name].reshape(len(samples))},
            errors=lambda _: errors,
        )  # fmt: skip


_STATUS = np.array([-1, -1, 0, 0, 2, 2])
"""Kind of fix of a receiver (0 none, 2 and 3 dimensional, 4 and 5 with corrections) -> sensor_msgs/NavSatStatus."""


@message_mapper("nav_sat_fix")
def nav_sat_fix(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/NavSatFix, and the velocity in the axes of the world where the sensor has one.

    A measured sample without a fix has the status NO_FIX, and NaN as its position: the held one is no measurement.
    """
    position, fix = sensor.field(axes=("lla",)), sensor.field("fix")
    if position is None:
        return
    name = position.name

    def columns(samples: Samples) -> Columns:
        lla = samples[name]
        status = {"status.status": _STATUS[np.clip(samples["fix"], 0, 5)]} if fix is not None else {}
        return {"latitude": lla[:, 0], "longitude": lla[:, 1], "altitude": lla[:, 2], **status}

    place, dops = sensor.field(role="point", axes=("enu",)), [sensor.field(each) for each in ("hdop", "vdop")]
    white = np.zeros(3) if place is None else sensor.variances(place)
    slow = np.array([sensor.cfg.get(f"{each}_sd", 0.0) for each in ("horizontal", "horizontal", "vertical")])
    is_known = white is not None and bool((slow + white).all())

    def errors(samples: Samples) -> Columns:
        has_fix = np.ones(len(samples), bool) if fix is None else samples["fix"] != 0
        lla = np.where(has_fix[:, None], samples[name], np.nan)
        found = {"latitude": lla[:, 0], "longitude": lla[:, 1], "altitude": lla[:, 2]}
        if is_known:
            dop = [np.ones(len(samples)) if each is None else samples[each.name] for each in dops]
            spread = np.where(has_fix, np.stack([dop[0], dop[0], dop[1]]), 0.0).T.astype(np.float64) * slow
            variances = (spread**2 + white) * has_fix[:, None]
            found |= {"position_covariance": diagonal(variances), "position_covariance_type": 2 * has_fix}
        return found

    fields = (name,) if fix is None else (name, "fix")
    yield Channel(
        "sensor_msgs/msg/NavSatFix", "fix", fields, {"status": {"service": 1}}, columns, errors=errors,
        gaps="" if fix is None else "fix",
    )  # fmt: skip
    velocity = sensor.field(axes=("enu",), unit="m/s")
    if velocity is not None:
        moving, heading = velocity.name, radians(sensor.cfg.get("heading_deg", 0.0))
        to_world = np.array([[cos(heading), -sin(heading), 0.0], [sin(heading), cos(heading), 0.0], [0.0, 0.0, 1.0]])
        variances = sensor.variances(velocity)
        covariance = np.zeros((6, 6))
        covariance[3, 3] = -1.0  # as drivers do for a receiver, which measures no angular velocity
        values = {"twist": {"covariance": covariance.reshape(-1).copy()}}
        if variances is not None:
            covariance[:3, :3] = to_world.T * variances @ to_world
        yield Channel(
            "geometry_msgs/msg/TwistWithCovarianceStamped", "fix_velocity", (moving,), values,
            lambda samples: {"twist.twist.linear": samples[moving] @ to_world}, frame=WORLD,
            errors=lambda _: {"twist.covariance": covariance.reshape(-1)},
        )  # fmt: skip


@message_mapper("odometry")
def odometry(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield nav_msgs/Odometry of a sensor with pose and velocity; velocities are in the axes of the moving frame.

    Covariances of the pose are in the axes of the world, those of velocities in the moving frame.
    """
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
        inverse = q.astype(np.float64) * (1.0, -1.0, -1.0, -1.0)
        return {
            "pose.pose.position": samples[pos.name],
            "pose.pose.orientation": xyzw(q),
            **{
                path: rotate(inverse, samples[spec.name].astype(np.float64))
                if spec.frame == "world"
                else samples[spec.name]
                for path, spec in found.items()
            },
        }

    parts = {"pose": (pos, quat), "twist": (found["twist.twist.linear"], found.get("twist.twist.angular"))}
    known = {spec: sensor.variances(spec) for pair in parts.values() for spec in pair if spec is not None}

    def errors(samples: Samples) -> Columns:
        q, covariances = samples[quat.name] * 1.0, {}
        for path, pair in parts.items():
            matrix = covariances[f"{path}.covariance"] = np.zeros((len(samples), 6, 6))
            for half, spec in enumerate(pair):
                if spec is None or (variances := known[spec]) is None:
                    continue
                block = matrix[:, 3 * half : 3 * half + 3, 3 * half : 3 * half + 3]
                if spec is quat:
                    block[:] = _turned(q, variances)
                elif path == "twist" and spec.frame == "world":
                    block[:] = _turned(q * (1.0, -1.0, -1.0, -1.0), variances)
                else:
                    block[:] = np.diag(variances)
        return {path: matrix.reshape(-1, 36) for path, matrix in covariances.items()}

    fields = (pos.name, quat.name, *(spec.name for spec in found.values()))
    yield Channel("nav_msgs/msg/Odometry", "odometry", fields, {}, columns, frame=WORLD, errors=errors)


def _moving(sensor: MappedSensor, role: str, unit: str) -> FieldSpec | None:
    found = (sensor.field(role=role, unit=unit, frame=frame, shape=(3,)) for frame in ("sensor", "world"))
    return next((spec for spec in found if spec is not None), None)
