"""Message mappers of joints, forces and torques."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, message_mapper

_OF_JOINTS = {"position": ("position",), "velocity": ("velocity",), "effort": ("effort", "torque")}
"""Sequence of sensor_msgs/JointState -> names of the fields that fill it."""


@message_mapper("joint_state")
def joint_state(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/JointState; sequences of quantities that the sensor does not have are empty."""
    names = sensor.constants.get("joint_names")
    if not names:
        return
    found = {path: spec.name for path, known in _OF_JOINTS.items() for spec in sensor.specs if spec.name in known}
    if not found:
        return

    def columns(samples: Samples) -> Columns:
        return {path: samples[name].reshape(len(samples), -1) for path, name in found.items()}

    values = {"name": list(names)} | {path: np.zeros(len(names)) for path in found}
    yield Channel("sensor_msgs/msg/JointState", "joint_states", tuple(found.values()), values, columns)


@message_mapper("wrench")
def wrench(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield geometry_msgs/WrenchStamped of a force and torque in the sensor's frame; without a torque it is 0."""
    specs = {"force": sensor.field("force", unit="N", frame="sensor", shape=(3,))}
    if specs["force"] is None:
        return
    specs["torque"] = sensor.field("torque", unit="N m", frame="sensor", shape=(3,))
    names = {f"wrench.{path}": spec.name for path, spec in specs.items() if spec is not None}
    yield Channel(
        "geometry_msgs/msg/WrenchStamped", "wrench", tuple(names.values()), {},
        lambda samples: {path: samples[name] for path, name in names.items()},
    )  # fmt: skip
