"""The table of message mappers, which convert a sensor's readings to ROS 2 messages.

A mapper reads the description of a sensor, mainly the role, unit and axes of its fields, and yields the channels that
it can fill. Installed packages announce modules with further mappers through the entry-point group
`sensorium.ros2_messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sensorium.errors import ConfigError
from sensorium.plugins import Plugins, Registry, is_ours
from sensorium.readings import Array
from sensorium.record.calibration import white_variances
from sensorium.record.stacks import Stack
from sensorium.spec import FieldSpec

ENTRY_POINT_GROUP = "sensorium.ros2_messages"
OURS = tuple(f"sensorium.record.ros2.{name}" for name in ("inertial", "joints", "rays", "images", "touch"))
"""Built-in modules that define mappers."""


ImageFormat = Literal["raw", "png", "jpeg"]
"""How images of 8 bits are written: as they are, or compressed."""


@dataclass(frozen=True, slots=True)
class MappedSensor:
    """Description of a sensor, as mappers see it.

    Attributes:
        name: the sensor's name.
        kind: the sensor's kind, e.g. ``"imu"``.
        specs: its fields, without the mount axis.
        cfg: its config, JSON types.
        constants: its constants, e.g. ``"joint_names"``.
        mounts: name of each mount; empty if its fields have no mount axis.
        rate_hz: samples per second.
        prefixes: start of the names of knobs -> field, e.g. ``"gyro"``.
    """

    name: str
    kind: str
    specs: tuple[FieldSpec, ...]
    cfg: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    rate_hz: float = 0.0
    prefixes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_description(cls, name: str, about: Mapping[str, Any]) -> MappedSensor:
        """Return the sensor described by an entry of `SceneDescription.sensors`."""
        specs = tuple(FieldSpec.from_dict(each).squeezed() for each in about["fields"])
        return cls(
            name, about["kind"], specs, about.get("cfg", {}), about.get("constants", {}),
            tuple(about.get("mounts", ())), float(about.get("rate_hz", 0.0)),
            about.get("prefixes", {}),
        )  # fmt: skip

    def field(self, name: str = "", **wanted: Any) -> FieldSpec | None:
        """Return the first field with these values of its `FieldSpec`, e.g. ``role="range"``; None without one."""
        for spec in self.specs:
            if name in ("", spec.name) and all(getattr(spec, key) == value for key, value in wanted.items()):
                return spec
        return None

    def variances(self, spec: FieldSpec) -> Array | None:
        """Return the variances of the white noise of a field, see `calibration.white_variances`."""
        prefix = next((each for each, name in self.prefixes.items() if name == spec.name), "")
        return white_variances(self.cfg, spec, prefix, self.rate_hz)


def exact_ns(seconds: Array) -> Array:
    """Return times in s, float32, as int64 ns, by their shortest decimals: 0.1 s in float32 is 1.5 ns more."""
    return np.rint(seconds.astype(np.float32).astype(np.str_).astype(np.float64) * 1e9).astype(np.int64)


class Samples:
    """Samples of one mount of one sensor that become messages, one per row.

    Args:
        stamps: int64 `[row]`, capture time by the sensor's own clock, ns.
        frames: int64 `[row]`, captures since the reset.
        stack: the readings.
        values: its measured or true fields.
        at: number of the reading of each row.
        envs: number of the env of each row.
        is_all: whether these are all rows of the stack, in order.
        mount: the mount; None for fields without a mount axis.
    """

    def __init__(
        self,
        stamps: Array,
        frames: Array,
        stack: Stack,
        values: Mapping[str, Array],
        at: Array,
        envs: Array,
        is_all: bool,
        mount: int | None,
    ) -> None:
        self.stamps, self.frames = stamps, frames
        self._stack, self._values, self._at, self._envs = stack, values, at, envs
        self._is_all, self._mount = is_all, mount

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> Array:
        """Return a field, `[row, ...]`."""
        array = self._values[name]
        if self._mount is not None:
            array = array[:, :, self._mount]
        return array.reshape(-1, *array.shape[2:]) if self._is_all else array[self._at, self._envs]

    def ragged(self, name: str) -> tuple[Array, Array]:
        """Return a ragged field: its elements in all rows `[element, ...]`, and their number in each row `[row]`."""
        rows, counts = self._stack.rows(self._at, self._envs)
        return self._values[name][rows], counts


Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Channel:
    """One message per sample: on one topic for each env and mount.

    Attributes:
        message: the message type, e.g. ``"sensor_msgs/msg/Imu"``.
        topic: end of the topic's name, e.g. ``"data_raw"``.
        fields: names of the sensor's fields that it carries.
        values: values that are the same in all messages, except for the header; all strings and sequences have their
            final lengths.
        columns: returns the values that differ: path -> `[row]` or `[row, element]`. ``header.stamp`` is an int64
            array, ns; without it, it is the capture time. The sequence `varying` is a pair: its elements in all rows,
            one after the other, and their number in each row.
        varying: path of a sequence that differs in length from message to message.
        frame: end of the name of the frame in the header, see `names.OPTICAL`; ``"world"`` for the world's frame. A
            `child_frame_id` of the message is the sensor's frame.
        errors: further `columns` of measured samples, such as covariances; true ones have none.
        gaps: field that is 0 in samples without a value, which become messages as well; empty to omit such samples.
    """

    message: str
    topic: str
    fields: tuple[str, ...]
    values: Mapping[str, Any]
    columns: Callable[[Samples], Columns]
    varying: str = ""
    frame: str = ""
    errors: Callable[[Samples], Columns] | None = None
    gaps: str = ""


Mapper = Callable[[MappedSensor], Iterable[Channel]]

_plugins = Plugins(ENTRY_POINT_GROUP, "ROS 2 message mapper", OURS)
_mappers: Registry[str, Mapper] = Registry(
    "ROS 2 message mapper", _plugins, "{cls} has the name {key!r} of {other}. Use another name."
)
_on_request: set[str] = set()


def message_mapper(name: str, *, on_request: bool = False) -> Callable[[Mapper], Mapper]:
    """Register a function as a mapper.

    ::

        @message_mapper("gas")
        def gas(sensor):
            spec = sensor.field(unit="ppm")
            if spec is not None:
                yield Channel("my_msgs/msg/Gas", "gas", (spec.name,), {}, lambda samples: {"ppm": samples[spec.name]})

    Args:
        name: name of the mapper.
        on_request: whether it serves only sensors for which it is named (``messages={"lidar": ("livox",)}``).

    Raises:
        RegistrationError: another mapper has that name.
    """

    def register(function: Mapper) -> Mapper:
        _mappers.add(name, function)
        (_on_request.add if on_request else _on_request.discard)(name)
        return function

    return register


def channels_of(sensor: MappedSensor, names: Sequence[str] | None = None, images: ImageFormat = "raw") -> list[Channel]:
    """Return the channels of a sensor. Of two with the same topic, the one of a plugin replaces that of a built-in.

    Args:
        sensor: the sensor.
        names: mappers to use; None for all that need no request.
        images: format of the images that it can hold, unless mappers are named; other images are raw.

    Raises:
        UnknownNameError: there is no mapper of that name.
        ConfigError: a named mapper has no message for this sensor.
    """
    known = _mappers.registered()
    chosen = names
    if names is None:
        chosen = sorted((name for name in known if name not in _on_request), key=lambda name: is_ours(known[name]))
    found: dict[str, Channel] = {}
    for name in chosen or ():
        channels = list(_mappers.find(name)(sensor))
        if names is not None and not channels:
            fields = ", ".join(f"{spec.name} {[*spec.axes]} {spec.unit}" for spec in sensor.specs)
            raise ConfigError.single("messages", sensor.name, name, f"a mapper for its fields {fields}")
        for channel in channels:
            found.setdefault(channel.topic, channel)
    if names is None and images != "raw":
        compressed = {channel.fields: channel for channel in _mappers.find(f"compressed_{images}")(sensor)}
        return [
            compressed.get(each.fields, each) if each.message == "sensor_msgs/msg/Image" else each
            for each in found.values()
        ]
    return list(found.values())
