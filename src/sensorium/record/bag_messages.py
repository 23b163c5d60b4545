"""Fields in messages of ROS 2 bags: with their units and roles for standard types, otherwise all numbers of a message.

A message is an object with an attribute per field, as `rosbags` returns it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import numpy as np

from sensorium.readings import Array, read_only
from sensorium.record.calibration import centred
from sensorium.record.ros2.rays import POINT_TYPES
from sensorium.spec import DEFAULT_AXES, FieldSpec, Kind, Role

JOINT_STATE = "sensor_msgs/msg/JointState"
VECTORS = ("geometry_msgs/msg/Vector3", "geometry_msgs/msg/Point", "geometry_msgs/msg/Point32")
SKIPPED = ("std_msgs/msg/Header", "builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration")
JOINT_UNITS = {"position": "rad", "velocity": "rad/s", "effort": "N m"}
CHANNELS = {"mono": 1, "rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4}
"""Start of the name of an encoding of 8 or 16 bits -> number of channels."""
BAYER = {"bayer_rggb": "rggb", "bayer_bggr": "bggr", "bayer_gbrg": "gbrg", "bayer_grbg": "grbg"}
"""Start of the name of an encoding -> colours of the first two pixels of the first row, then of the second row. OpenCV
names the same pattern after the second and third pixel of the second row: ``bayer_rggb8`` is its ``BayerBG``."""
YUV = {"yuv422": (1, 0, 2), "uyvy": (1, 0, 2), "yuv422_yuy2": (0, 1, 3), "yuyv": (0, 1, 3)}
"""Encoding -> places of the first Y, of U and of V among the four bytes of two pixels."""
YUV_TO_RGB = np.array([[255 / 219, 0.0, 1.402 * 255 / 224],
                       [255 / 219, -0.344136 * 255 / 224, -0.714136 * 255 / 224],
                       [255 / 219, 1.772 * 255 / 224, 0.0]], np.float32)  # fmt: skip
"""Colours of Y - 16, U - 128 and V - 128. Source: ITU-R BT.601, with 8 bits of limited range."""
_ELEMENT = re.compile(r"(8|16|32|64)([USF])C(\d+)|([a-z_]+?)(8|16)")
MAX_POINTS = 2**20
"""Stated capacity of clouds; their number of points is not limited."""
IMAGE, POINTS = ("height", "width", "channel"), ("height", "width", "xyz")


@dataclass(frozen=True, slots=True)
class Value:
    """One field of a message.

    Attributes:
        spec: its description.
        array: its value, of the spec's shape; of ragged fields one row per event.
    """

    spec: FieldSpec
    array: Array


class Unreadable(ValueError):
    """A message has no numbers that a reading holds."""


def values_of(message: Any) -> list[Value]:
    """Return the fields of a message.

    Raises:
        Unreadable: it has none, or its contents are inconsistent.
    """
    try:
        found = list(_TYPES.get(message.__msgtype__, _generic)(message))
    except Unreadable:
        raise
    except Exception as error:  # NumPy and Pillow raise many kinds for contents that do not fit together
        raise Unreadable(f"its contents are invalid ({type(error).__name__}: {error})") from None
    if not found:
        raise Unreadable("it has no numbers")
    return found


def constants_of(message: Any) -> dict[str, Any]:
    """Return the constant values in the messages of a topic: names of joints, distortion of a lens."""
    if message.__msgtype__ == JOINT_STATE:
        return {"joint_names": list(message.name)}
    if message.__msgtype__ == "sensor_msgs/msg/CameraInfo":
        d = np.asarray(message.d).tolist()
        return {"distortion_model": message.distortion_model, "distortion_coefficients": d}
    return {}


def flaw_of(message: Any, values: Sequence[Value]) -> str:
    """Return the reason why the contents of a message are not valid; empty for valid contents."""
    if message.__msgtype__ == "sensor_msgs/msg/NavSatFix" and not (
        message.status.status >= 0 and np.isfinite([message.latitude, message.longitude]).all()
    ):
        return "there is no position fix"
    if message.__msgtype__ == "sensor_msgs/msg/CameraInfo" and not message.k[0]:
        return "the camera is not calibrated"
    for value in values:
        if value.spec.frame == "world" and not np.isfinite(value.array).all():
            return f"{value.spec.name} is not finite"
        if value.spec.kind == "rotation" and not value.array.any():
            return f"{value.spec.name} is zero, which is not a rotation"
    return ""


def stamp_of(message: Any) -> int | None:
    """Return the time in the header of a message, ns; None without a header that has one."""
    stamp: Any = getattr(getattr(message, "header", None), "stamp", None)
    known = getattr(stamp, "__msgtype__", "") == "builtin_interfaces/msg/Time"
    return int(stamp.sec) * 10**9 + int(stamp.nanosec) if known else None


def _value(
    name: str, array: Any, unit: str = "", role: Role = "scalar", frame: str = "",
    axes: tuple[str, ...] | None = None, kind: Kind = "vector",
) -> Value:  # fmt: skip
    values = np.asarray(array)
    values = values.astype(values.dtype.newbyteorder("="), order="C", copy=values.base is not None)
    if axes is None:
        axes = DEFAULT_AXES.get(values.shape, ("row",)) if values.ndim < 2 else ()
    shape = (MAX_POINTS, *values.shape[1:]) if axes[:1] == ("event",) else values.shape
    return Value(_spec(name, axes, shape, values.dtype, unit, frame, kind, role), read_only(values))


@lru_cache(maxsize=1024)
def _spec(
    name: str, axes: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype[Any], unit: str, frame: str, kind: Kind,
    role: Role,
) -> FieldSpec:  # fmt: skip
    """Return the description of a field, which most messages of a topic share."""
    return FieldSpec(name, axes, shape, dtype.name, unit, frame, kind, role)


def _xyz(vector: Any) -> Array:
    return np.array([vector.x, vector.y, vector.z])


def _quat(quat: Any) -> Value:
    wxyz = np.array([quat.w, quat.x, quat.y, quat.z])
    return _value("quat_w", wxyz, "1", "pose", "world", ("wxyz",), "rotation")


# Standard types -------------------------------------------------------------------------------------------------------


def _imu(message: Any) -> Iterator[Value]:
    if message.angular_velocity_covariance[0] != -1.0:
        yield _value("ang_vel_b", _xyz(message.angular_velocity), "rad/s", "angular_velocity", "sensor")
    if message.linear_acceleration_covariance[0] != -1.0:
        yield _value("lin_acc_b", _xyz(message.linear_acceleration), "m/s^2", "specific_force", "sensor")
    if message.orientation_covariance[0] != -1.0 and any(_quat(message.orientation).array):
        yield _quat(message.orientation)


def _scalar(name: str, path: str, unit: str, role: Role = "scalar") -> Callable[[Any], Iterator[Value]]:
    def read(message: Any) -> Iterator[Value]:
        yield _value(name, getattr(message, path), unit, role)

    return read


def _magnetic(message: Any) -> Iterator[Value]:
    yield _value("mag_b", _xyz(message.magnetic_field), "T", "magnetic", "sensor")


def _joints(message: Any) -> Iterator[Value]:
    if len({*message.name}) < len(message.name):
        raise Unreadable("a joint occurs twice in it")
    for name, unit in JOINT_UNITS.items():
        if size := len(getattr(message, name)):
            if message.name and size != len(message.name):
                raise Unreadable(f"it has {len(message.name)} joints, and {name} has {size} values")
            yield _value(name, getattr(message, name), unit, axes=("joint",))


def _wrench(message: Any) -> Iterator[Value]:
    wrench = getattr(message, "wrench", message)
    yield _value("force", _xyz(wrench.force), "N", "vector_at", "sensor")
    yield _value("torque", _xyz(wrench.torque), "N m", "scalar", "sensor")


def _twist(message: Any) -> Iterator[Value]:
    while hasattr(message, "twist"):
        message = message.twist
    yield _value("lin_vel_b", _xyz(message.linear), "m/s", "vector_at", "sensor")
    yield _value("ang_vel_b", _xyz(message.angular), "rad/s", "angular_velocity", "sensor")


def _pose(message: Any) -> Iterator[Value]:
    while hasattr(message, "pose"):
        message = message.pose
    yield _value("pos_w", _xyz(message.position), "m", "point", "world")
    yield _quat(message.orientation)


def _odometry(message: Any) -> Iterator[Value]:
    yield from _pose(message)
    yield from _twist(message)


def _transform(message: Any) -> Iterator[Value]:
    yield _value("pos_w", _xyz(message.transform.translation), "m", "point", "world")
    yield _quat(message.transform.rotation)


def _fix(message: Any) -> Iterator[Value]:
    lla = np.array([message.latitude, message.longitude, message.altitude])
    yield _value("lla", lla, "deg, deg, m", frame="WGS84", axes=("lla",))
    yield _value("status", np.int8(message.status.status), "1", kind="id")


def _range(message: Any) -> Iterator[Value]:
    yield _value("range", np.float32(message.range), "m", "range")


def _scan(message: Any) -> Iterator[Value]:
    rays = len(message.ranges)
    yield _value("distances", message.ranges, "m", "range", axes=("ray",))
    azimuth = message.angle_min + message.angle_increment * np.arange(rays)
    yield _value("azimuth", azimuth.astype(np.float32), "rad", axes=("ray",))
    if count := len(message.intensities):
        if count != rays:
            raise Unreadable(f"it has {rays} ranges and {count} intensities")
        yield _value("intensity", message.intensities, "1", axes=("ray",))


def _cloud(message: Any) -> Iterator[Value]:
    kinds = {number: dtype for dtype, number in POINT_TYPES.items()}
    order = ">" if message.is_bigendian else "<"
    columns: dict[str, Any] = {}
    for each in message.fields:  # drivers give padding the same name several times
        columns.setdefault(each.name, each)
    point = np.dtype({
        "names": [*columns],
        "formats": [
            (order + kinds[each.datatype], each.count) if each.count > 1 else order + kinds[each.datatype]
            for each in columns.values()
        ],
        "offsets": [each.offset for each in columns.values()],
        "itemsize": message.point_step,
    })  # fmt: skip
    data, size, width = np.ascontiguousarray(message.data), message.point_step, message.width * message.point_step
    step = message.row_step or width  # old drivers leave it at 0
    if message.height > 1 and (step < width or len(data) < (message.height - 1) * step + width):
        raise Unreadable(
            f"it has {len(data)} bytes, row_step {step} and {message.height} x {message.width} points of {size} bytes"
        )
    rows = np.ndarray((message.height, message.width), point, data.data, 0, (step, size))
    is_image = message.height > 1
    points = rows if is_image else rows.reshape(-1)
    names = list(point.names or ())
    if {"x", "y", "z"} <= {*names}:
        xyz = np.stack([points[name] for name in "xyz"], axis=-1)
        role: Role = "image" if is_image else "point"
        yield _value("points_b", xyz, "m", role, "sensor", POINTS if is_image else ("event", "xyz"))
        names = [name for name in names if name not in "xyz"]
    for name in names:
        if points[name].ndim == 2 if is_image else points[name].ndim == 1:
            yield _value(name, points[name], axes=IMAGE[:2] if is_image else ("event",))


def _element(encoding: str) -> tuple[str, int]:
    """Return element type and number of channels of an encoding.

    Raises:
        Unreadable: it is unknown.
    """
    if encoding in YUV:
        return "u1", 2
    if match := _ELEMENT.fullmatch(encoding):
        bits, kind, count, name, depth = match.groups()
        channels = int(count or 0) if bits else 1 if name in BAYER else CHANNELS.get(name, 0)
        dtype = f"{ {'U': 'u', 'S': 'i', 'F': 'f'}[kind or 'U'] }{int(bits or depth) // 8}"
        if channels and dtype != "f1":
            return dtype, channels
    raise Unreadable(f"its encoding is {encoding!r}")


def _livox(message: Any) -> Iterator[Value]:
    dtype = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("reflectivity", "u1"), ("tag", "u1"), ("line", "u1"),
             ("offset_time", "u4")]  # fmt: skip
    points = np.fromiter(map(attrgetter(*(name for name, _ in dtype)), message.points), dtype, len(message.points))
    xyz = np.stack([points[name] for name in "xyz"], axis=-1)
    yield _value("points_b", xyz, "m", "point", "sensor", ("event", "xyz"))
    for name, _ in dtype[3:]:
        yield _value(name, points[name], "ns" if name == "offset_time" else "", axes=("event",))
    yield _value("timebase", np.uint64(message.timebase), "ns")


def _image(message: Any) -> Iterator[Value]:
    dtype, channels = _element(message.encoding)
    dtype = (">" if message.is_bigendian else "<") + dtype
    size = np.dtype(dtype).itemsize
    data = np.ascontiguousarray(message.data)
    shape = (message.height, message.width, channels)
    width = message.width * channels * size
    step = message.step or width
    if len(data) < message.height * step or step < width:
        raise Unreadable(f"it has {len(data)} bytes for {message.height} rows of {step} bytes, {width} of them pixels")
    pixels = np.ndarray(shape, dtype, data.data, 0, (step, channels * size, size))
    yield _pixels(pixels, message.encoding)


def _pixels(pixels: Array, encoding: str) -> Value:
    """Return an image; distances are in m, with +inf where there is none."""
    if not pixels.size:
        raise Unreadable("it has no pixels")
    if encoding in YUV:
        pixels = _from_yuv(pixels, *YUV[encoding])
    elif encoding[:10] in BAYER:
        pixels = _demosaiced(pixels[..., 0], BAYER[encoding[:10]])
    elif encoding.startswith("bgr"):
        pixels = pixels[..., [2, 1, 0, *range(3, pixels.shape[-1])]]
    if encoding == "16UC1":
        depth = np.where(pixels == 0, np.float32(np.inf), pixels.astype(np.float32) * np.float32(1e-3))
        return _value("distance_to_image_plane", depth, "m", "image", axes=IMAGE)
    if encoding == "32FC1":
        depth = np.where(np.isnan(pixels), np.float32(np.inf), pixels)
        return _value("distance_to_image_plane", depth, "m", "image", axes=IMAGE)
    return _value("image", pixels, "1", "image", axes=IMAGE)


def _from_yuv(pixels: Array, y: int, u: int, v: int) -> Array:
    """Return the colours of an image that has U and V once for two pixels, uint8 `[row, column, 3]`."""
    height, width, _ = pixels.shape
    if width % 2:
        raise Unreadable(f"it has {width} columns, and two of them share their colour")
    pairs = pixels.reshape(height, width // 2, 4)
    yuv = np.stack([pairs[..., [y, y + 2]], *(pairs[..., [place, place]] for place in (u, v))], axis=-1)
    shifted = yuv.reshape(height, width, 3).astype(np.float32) - np.array([16, 128, 128], np.float32)
    shifted[..., 0] = np.maximum(shifted[..., 0], 0.0)  # values below 16 are black
    colours = shifted @ YUV_TO_RGB.T
    out: Array = np.clip(np.rint(colours), 0, 255).astype(np.uint8)
    return out


def _demosaiced(mosaic: Array, pattern: str) -> Array:
    """Return the colours of an image `[row, column]` that has one per pixel, `[row, column, 3]`.

    Missing colours are means of the nearest two or four pixels that have them, rounded half up.
    """
    height, width = mosaic.shape
    if min(height, width) < 2:
        raise Unreadable(f"it has {height} x {width} pixels, and a pattern of colours has 2 x 2")
    out = np.empty((height, width, 3), mosaic.dtype)
    for channel, letter in enumerate("rgb"):
        known = np.zeros((2, height, width))
        for place in (place for place, each in enumerate(pattern) if each == letter):
            known[:, place // 2 :: 2, place % 2 :: 2] = 1.0
        known[0] *= mosaic
        padded = np.pad(known, ((0, 0), (1, 1), (1, 1)))
        corner = 0.0 if letter == "g" else 1.0  # green pixels have others at their corners
        weights = np.array([[corner, 2.0, corner], [2.0, 4.0, 2.0], [corner, 2.0, corner]])
        total = sum(weights[i, j] * padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3))
        out[..., channel] = np.floor(total[0] / total[1] + 0.5)
    return out


def _compressed(message: Any) -> Iterator[Value]:
    """Yield the image in a file.

    Depth images of compressed_depth_image_transport have a header of 12 bytes before a PNG file: the number of the
    format, and A and B as float32. Those of 32FC1 hold p = A / depth + B, rounded, and 0 for no depth.
    """
    data, encoding = bytes(message.data), message.format.partition(";")[0].strip()
    is_depth, a, b = "compressedDepth" in message.format, 0.0, 0.0
    if is_depth:
        if encoding not in ("16UC1", "32FC1"):
            raise Unreadable(f"its format is {message.format!r}")
        a, b = np.frombuffer(data, "<f4", 2, 4)
        data = data[12:]
    pillow: Any = import_module("PIL.Image")
    try:
        image = pillow.open(io.BytesIO(data))
        pixels = np.asarray(image.convert("RGB") if image.mode in ("P", "CMYK", "YCbCr") else image)
    except OSError:  # such as a frame of a video
        raise Unreadable(f"its format is {message.format!r}") from None
    if pixels.dtype.itemsize == 1 and (
        is_depth or encoding == "16UC1" or encoding.endswith("16")
    ):  # JPEG, or colours of 16 bits
        raise Unreadable(f"its format is {message.format!r}, and its pixels have 8 bits")
    wide = pixels[..., None] if pixels.ndim == 2 else pixels
    wide = wide.astype(np.uint16) if wide.dtype.itemsize > 1 else wide
    if is_depth and encoding == "32FC1":
        with np.errstate(divide="ignore"):
            wide = np.where(wide == 0, np.float32(np.nan), a / (wide.astype(np.float32) - b))
    is_mosaic = (
        encoding[:10] in BAYER and wide.shape[-1] == 1
    )  # otherwise colours are red first, as Pillow returns them
    yield _pixels(wide, encoding if encoding == "16UC1" or is_depth or is_mosaic else "")


def _camera_info(message: Any) -> Iterator[Value]:
    yield _value("intrinsic_matrices", centred(np.reshape(message.k, (3, 3)), 1.0), "px", axes=("row", "column"))


_TYPES: dict[str, Callable[[Any], Iterator[Value]]] = {
    **{f"sensor_msgs/msg/{name}": read for name, read in {
        "Imu": _imu, "MagneticField": _magnetic, "JointState": _joints, "NavSatFix": _fix, "Range": _range,
        "LaserScan": _scan, "PointCloud2": _cloud, "Image": _image, "CompressedImage": _compressed,
        "CameraInfo": _camera_info, "FluidPressure": _scalar("pressure", "fluid_pressure", "Pa"),
        "Temperature": _scalar("temperature", "temperature", "degC"),
        "Illuminance": _scalar("illuminance", "illuminance", "lx"),
        "RelativeHumidity": _scalar("humidity", "relative_humidity", "1"),
    }.items()},
    **{f"geometry_msgs/msg/{name}": read for name, read in {
        "Wrench": _wrench, "WrenchStamped": _wrench, "Twist": _twist, "TwistStamped": _twist,
        "TwistWithCovarianceStamped": _twist, "Pose": _pose, "PoseStamped": _pose,
        "PoseWithCovarianceStamped": _pose, "TransformStamped": _transform,
    }.items()},
    **{f"{package}/msg/CustomMsg": _livox for package in (
        "livox_ros_driver", "livox_ros_driver2", "livox_interfaces", "livox_interfaces2",
    )},
    "nav_msgs/msg/Odometry": _odometry,
}  # fmt: skip
"""Message type -> fields of its messages; other types have all their numbers."""


# Other types ----------------------------------------------------------------------------------------------------------


def _fields(message: Any) -> Iterator[str]:
    """Yield the names of the fields of a message, without its constants."""
    return (each.name for each in fields(message) if not str(each.type).startswith("ClassVar"))


def _generic(message: Any, start: str = "") -> Iterator[Value]:
    """Yield all numbers of a message, and of the messages within, under their paths."""
    if not is_dataclass(message):
        return
    for each in _fields(message):
        value, name = getattr(message, each), start + each
        kind = getattr(value, "__msgtype__", "")
        if kind in SKIPPED:
            continue
        if kind in VECTORS:
            yield _value(name, _xyz(value))
        elif kind == "geometry_msgs/msg/Quaternion":
            yield _value(name, np.array([value.w, value.x, value.y, value.z]), axes=("wxyz",))
        elif kind:
            yield from _generic(value, f"{name}.")
        elif isinstance(value, bool | int | float | np.ndarray) and np.size(value):
            yield _value(name, value, axes=("element",) if isinstance(value, np.ndarray) else ())


def left_out(message: Any, values: Sequence[Value]) -> list[str]:
    """Return the names of texts and lists of a message of another type, which readings do not hold."""
    if message.__msgtype__ in _TYPES:
        return []
    names = {value.spec.name.partition(".")[0] for value in values}
    return [
        each
        for each in _fields(message)
        if each not in names and getattr(getattr(message, each), "__msgtype__", "") not in SKIPPED
    ]  # fmt: skip
