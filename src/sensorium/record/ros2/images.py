"""Message mappers of images: raw and compressed, with the calibration of the camera, and organised point clouds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sensorium.pictures import encode_image
from sensorium.readings import Array
from sensorium.record.calibration import centred, distortion_of
from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, message_mapper
from sensorium.record.ros2.names import OPTICAL
from sensorium.record.ros2.rays import Layout, cloud_values
from sensorium.spec import FieldSpec

_COLOURS = {("uint8", 1): "mono8", ("uint8", 3): "rgb8", ("uint8", 4): "rgba8", ("uint16", 1): "mono16",
            ("uint16", 3): "rgb16", ("uint16", 4): "rgba16"}  # fmt: skip
_PIXELS = {"bool": ("8UC", "u1"), "int8": ("8SC", "i1"), "int16": ("16SC", "<i2"), "int32": ("32SC", "<i4"),
           "float16": ("32FC", "<f4"), "float32": ("32FC", "<f4"), "float64": ("64FC", "<f8")}  # fmt: skip
"""Element type of a field -> start of the encoding's name, and element type in the message."""
_WORDS = {"distance_to_image_plane": "depth", "rgb": "color"}
"""Field -> its word in topics, where it is not the field's name."""
_XYZ: Layout = ((("x", "f4", 0), ("y", "f4", 4), ("z", "f4", 8)), 12)
_XYZRGB: Layout = ((*_XYZ[0], ("rgb", "f4", 12)), 16)
_DEPTH_HEADER = bytes(12)
"""Header before the PNG of a compressed depth image: its parameters apply to quantised floats only."""


def _images(sensor: MappedSensor) -> Iterator[tuple[FieldSpec, int, int, int, bool]]:
    """Yield spec, height, width, channels of each image, and whether it is one of distances."""
    for spec in sensor.specs:
        if spec.role == "image" and len(spec.shape) in (2, 3) and not spec.is_ragged:
            height, width, channels = (*spec.shape, 1)[:3]
            is_depth = spec.unit == "m" and spec.dtype.startswith("float") and channels == 1
            yield spec, height, width, channels, is_depth


def _is_cloud(spec: FieldSpec) -> bool:
    return spec.axes[-1] == "xyz" and spec.unit == "m"


def _start(spec: FieldSpec) -> str:
    return _WORDS.get(spec.name, spec.name)


def _metres(sensor: MappedSensor, values: Array) -> Array:
    """Return distances with NaN for misses."""
    miss = 0.0 if sensor.cfg.get("depth_clipping_behavior") == "zero" else sensor.cfg.get("no_hit_value")
    is_miss = ~np.isfinite(values) if miss is None else ~np.isfinite(values) | (values == np.float32(miss))
    distances: Array = np.where(is_miss, np.float32(np.nan), values)
    return distances


def _flat(values: Array, dtype: str) -> tuple[Array, Array]:
    """Return the bytes of images `[row, ...]`, and their number in each row."""
    pixels = np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8)
    return pixels, np.full(len(values), len(pixels) // len(values))


@message_mapper("image")
def image(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/Image of each image; distances are 32FC1 in m, with NaN for misses."""
    for spec, height, width, channels, is_depth in _images(sensor):
        colour = _COLOURS.get((spec.dtype, channels))
        if _is_cloud(spec) or (colour is None and spec.dtype not in _PIXELS):
            continue
        start, dtype = _PIXELS.get(spec.dtype, ("", spec.dtype))
        step = width * channels * np.dtype(dtype).itemsize

        def columns(samples: Samples, spec: FieldSpec = spec, dtype: str = dtype, is_depth: bool = is_depth) -> Columns:
            values = samples[spec.name]
            return {"data": _flat(_metres(sensor, values) if is_depth else values, dtype)}

        values = {
            "height": height, "width": width, "encoding": colour or f"{start}{channels}", "step": step,
        }  # fmt: skip
        yield Channel(
            "sensor_msgs/msg/Image", f"{_start(spec)}/image_raw", (spec.name,), values, columns, "data", OPTICAL
        )


@message_mapper("camera_info")
def camera_info(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/CameraInfo beside each image, with its time stamp.

    Nothing for lenses that ROS cannot express, such as parallel ones and panoramas, so that `intrinsic_matrices` is
    reported as a field that no message holds. P is that of a rectified image with the same intrinsic matrix. As in
    OpenCV, the centre of the first pixel is at (0, 0).
    """
    matrices = sensor.field(unit="px", shape=(3, 3))
    distortion = distortion_of(sensor.constants)
    if matrices is None or distortion is None:
        return
    name = matrices.name

    def columns(samples: Samples) -> Columns:
        k = centred(samples[name])
        p = np.concatenate([k, np.zeros((len(k), 3, 1))], axis=2)
        return {"k": k.reshape(-1, 9), "p": p.reshape(-1, 12)}

    for spec, height, width, _, _ in _images(sensor):
        if not _is_cloud(spec):
            values = {"height": height, "width": width, "distortion_model": distortion.model,
                      "d": distortion.coefficients, "r": np.eye(3).reshape(9)}  # fmt: skip
            yield Channel(
                "sensor_msgs/msg/CameraInfo", f"{_start(spec)}/camera_info", (name,), values, columns, frame=OPTICAL
            )


@message_mapper("organised_points")
def organised_points(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/PointCloud2 of an image of points, with its rows and columns and NaN for misses.

    With an image `rgb` of the same size, each point has its colour, packed in a float as in the PCL and RViz.
    """
    colour = sensor.field("rgb", dtype="uint8")
    for spec, height, width, _, _ in _images(sensor):
        if not _is_cloud(spec) or spec.frame != "sensor":
            continue
        has_colour = colour is not None and colour.shape[:-1] == spec.shape[:-1]
        layout = _XYZRGB if has_colour else _XYZ

        def columns(samples: Samples, spec: FieldSpec = spec, has_colour: bool = has_colour) -> Columns:
            points = samples[spec.name]
            hit = np.isfinite(points).all(axis=-1, keepdims=True)
            values = np.where(hit, points, np.float32(np.nan))
            if has_colour:
                red, green, blue = np.moveaxis(samples["rgb"].astype("<u4"), -1, 0)
                packed = (red << 16 | green << 8 | blue).view("<f4")[..., None]
                values = np.concatenate([values, packed], axis=-1)
            return {"data": _flat(values, "<f4")}

        values = {
            **cloud_values(layout), "height": height, "width": width, "row_step": width * layout[1], "is_dense": False,
        }  # fmt: skip
        fields = (spec.name, "rgb") if has_colour else (spec.name,)
        yield Channel("sensor_msgs/msg/PointCloud2", "points", fields, values, columns, "data", OPTICAL)


# Compressed -----------------------------------------------------------------------------------------------------------


def _compressed(
    sensor: MappedSensor, spec: FieldSpec, format: str, codec: str, topic: str, prefix: bytes = b""
) -> Channel:
    def columns(samples: Samples) -> Columns:
        values = samples[spec.name]
        if spec.dtype.startswith("float"):
            values = np.clip(np.nan_to_num(np.rint(_metres(sensor, values) * 1e3)), 0, 65535).astype(np.uint16)
        options = {"compress_level": 1} if codec == "PNG" else {"quality": 95}
        pictures = [prefix + encode_image(each, codec, **options) for each in values]
        counts = np.array([len(each) for each in pictures])
        return {"data": (np.frombuffer(b"".join(pictures), np.uint8), counts)}

    return Channel(
        "sensor_msgs/msg/CompressedImage", f"{_start(spec)}/image_raw/{topic}", (spec.name,), {"format": format},
        columns, "data", OPTICAL,
    )  # fmt: skip


@message_mapper("compressed_png", on_request=True)
def compressed_png(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/CompressedImage as PNG of each image of 8 bits, or of 16 bits with one channel."""
    for spec, _, _, channels, _ in _images(sensor):
        colour = _COLOURS.get((spec.dtype, channels), "")
        if colour in ("mono8", "rgb8", "rgba8", "mono16"):
            inside = {"rgb8": "bgr8", "rgba8": "bgra8"}.get(colour, "")
            yield _compressed(sensor, spec, f"{colour}; png compressed {inside}", "PNG", "compressed")


@message_mapper("compressed_jpeg", on_request=True)
def compressed_jpeg(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/CompressedImage as JPEG of each image of 8 bits with one or three channels."""
    for spec, _, _, channels, _ in _images(sensor):
        colour = _COLOURS.get((spec.dtype, channels), "")
        if colour in ("mono8", "rgb8"):
            inside = "bgr8" if channels == 3 else ""
            yield _compressed(sensor, spec, f"{colour}; jpeg compressed {inside}", "JPEG", "compressed")


@message_mapper("compressed_depth", on_request=True)
def compressed_depth(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/CompressedImage as PNG of 16 bits of each image of distances, in mm, with 0 for misses."""
    for spec, _, _, _, is_depth in _images(sensor):
        if is_depth:
            format = "16UC1; compressedDepth png"
            yield _compressed(sensor, spec, format, "PNG", "compressedDepth", _DEPTH_HEADER)
