"""ROS 2 messages of readings: CDR as in rosbag2 files, schemas, type hashes and quality of service of ROS 2 Jazzy."""

from sensorium.record.ros2.cdr import MessageBlock, serialize
from sensorium.record.ros2.converter import Ros2Messages, StaticFrame, Topic
from sensorium.record.ros2.mapping import Channel, ImageFormat, MappedSensor, Samples, message_mapper
from sensorium.record.ros2.message_types import add_definitions, schema_text, type_hash

__all__ = [
    "Channel",
    "ImageFormat",
    "MappedSensor",
    "MessageBlock",
    "Ros2Messages",
    "Samples",
    "StaticFrame",
    "Topic",
    "add_definitions",
    "message_mapper",
    "schema_text",
    "serialize",
    "type_hash",
]
