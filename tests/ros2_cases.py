"""Sensors with random readings, and their messages as rosbags decodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sensorium.readings import Array, Reading, SceneDescription
from sensorium.record.ros2 import Ros2Messages, schema_text
from sensorium.spec import FieldSpec

DT = 0.002
NS = 10**9


def spec(name: str, axes: tuple[str, ...] = (), shape: tuple[int, ...] = (), unit: str = "1", **more: Any) -> FieldSpec:
    """Return the spec of a field."""
    about = {"dtype": "float32", "frame": "", "kind": "vector", "role": "scalar", **more}
    return FieldSpec(name, axes, shape, unit=unit, **about)


def vector(name: str, unit: str, role: str = "scalar", frame: str = "sensor") -> FieldSpec:
    """Return the spec of a vector."""
    return spec(name, ("xyz",), (3,), unit, frame=frame, role=role)


@dataclass
class Rig:
    """A scene with one sensor that has random values.

    `n` envs, of which `envs` are converted.
    """

    specs: Sequence[FieldSpec]
    kind: str = "thing"
    about: Mapping[str, Any] = field(default_factory=dict)
    n: int = 5
    envs: Sequence[int] | None = (3, 0, 4)
    mounts: tuple[str, ...] = ()
    first_env: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    name: str = "front"

    def description(self) -> SceneDescription:
        lead = [
            FieldSpec(
                s.name, ("mount", *s.axes), (len(self.mounts), *s.shape), s.dtype, s.unit, s.frame, s.kind, s.role
            )
            if self.mounts
            else s
            for s in self.specs
        ]
        about = {"kind": self.kind, "rate_hz": 10.0, "fields": [s.to_dict() for s in lead], **self.about}
        if self.mounts:
            about["mounts"] = list(self.mounts)
        return SceneDescription("test", DT, self.n, 0, {self.name: about}, self.first_env)

    def messages(self, **options: Any) -> Ros2Messages:
        return Ros2Messages(self.description(), self.envs, **options)

    def values(self, each: FieldSpec) -> Array:
        shape = (self.n, *([len(self.mounts)] if self.mounts else []), *each.shape)
        if each.dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if each.dtype.startswith("float"):
            values = self.rng.normal(size=shape)
            values[self.rng.random(shape) < 0.1] = np.nan
            values[self.rng.random(shape) < 0.1] = np.inf
            return np.asarray(values, each.dtype)
        return self.rng.integers(0, 100, shape).astype(each.dtype)

    def reading(self, tick: int, values: Mapping[str, Array] | None = None, **changed: Any) -> Reading:
        """Return a reading; `changed` replaces its metadata, `values` its fields."""
        ones = np.ones(self.n, np.int64)
        meta = {
            "capture_tick": tick * ones, "truth_tick": tick * ones, "valid": ones > 0, "is_new": ones > 0,
            "frame": tick * ones, **{key: changed[key] for key in changed.keys() & {
                "capture_tick", "truth_tick", "valid", "frame", "stamp"}},
        }  # fmt: skip
        measured = dict(values or {s.name: self.values(s) for s in self.specs})
        truth = changed.get("truth", {name: value.copy() for name, value in measured.items()})
        return Reading(
            self.name, self.kind, tuple(self.specs), np.arange(self.n), tick, tick * DT, measured, truth, meta,
            _pose=changed.get("pose"), _offsets=changed.get("offsets"), _dt=DT,
        )  # fmt: skip

    @property
    def converted(self) -> tuple[int, ...]:
        return tuple(range(self.n)) if self.envs is None else tuple(self.envs)


def stores() -> Any:
    """Return rosbags' types of Jazzy, and those that Jazzy does not have."""
    typesys = pytest.importorskip("rosbags.typesys")
    store = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    for name in ("livox_ros_driver2/msg/CustomMsg", "radar_msgs/msg/RadarScan", "event_camera_msgs/msg/EventPacket",
                 "tactile_msgs/msg/TactileState"):  # fmt: skip
        types = typesys.get_types_from_msg(schema_text(name), name)
        store.register({key: value for key, value in types.items() if key not in store.types})
    return store


def decoded(store: Any, messages: Ros2Messages, readings: Sequence[Reading]) -> dict[str, list[tuple[int, Any]]]:
    """Return topic -> (log time, message) of readings, in order."""
    out: dict[str, list[tuple[int, Any]]] = {}
    for block in messages.encode(readings):
        for topic, time, data in block:
            about = messages.topics[topic]
            out.setdefault(about.name, []).append((time, store.deserialize_cdr(data, about.type)))
    return out


def stamp(message: Any) -> int:
    """Return the time in a header, ns."""
    header = message.header.stamp
    return int(header.sec) * NS + int(header.nanosec)


def xyz(value: Any) -> list[float]:
    """Return the numbers of a vector."""
    return [value.x, value.y, value.z]


def wxyz(value: Any) -> list[float]:
    """Return the numbers of a quaternion."""
    return [value.w, value.x, value.y, value.z]


def cloud(message: Any) -> Array:
    """Return the points of a PointCloud2 as a record array, from its own description alone."""
    kinds = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 8: "<f8"}
    assert not message.is_bigendian
    assert message.row_step == message.width * message.point_step
    assert len(message.data) == message.row_step * message.height
    dtype = np.dtype(
        {
            "names": [each.name for each in message.fields],
            "formats": [kinds[each.datatype] for each in message.fields],
            "offsets": [each.offset for each in message.fields],
            "itemsize": message.point_step,
        }
    )
    points: Array = np.frombuffer(message.data.tobytes(), dtype).reshape(message.height, message.width)
    return points
