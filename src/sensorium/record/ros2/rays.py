"""Message mappers of rays: point clouds in the layouts of drivers, laser scans, ranges, radar scans."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import Any

import numpy as np

from sensorium.readings import Array
from sensorium.record.ros2.cdr import element_dtype
from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, exact_ns, message_mapper
from sensorium.record.ros2.names import WORLD
from sensorium.spec import FieldSpec

POINT_TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
"""NumPy element type -> number in sensor_msgs/PointField."""
_NS = 1e9

Layout = tuple[tuple[tuple[str, str, int], ...], int]
"""Name, element type and offset of each field of a point, and the size of a point, bytes."""

_XYZ = (("x", "f4", 0), ("y", "f4", 4), ("z", "f4", 8))
PLAIN: Layout = ((*_XYZ, ("intensity", "f4", 12), ("ring", "u2", 16), ("time", "f4", 18)), 22)
"""Layout of Velodyne's drivers, as LIO-SAM and FAST-LIO read it; `time` is in s since the start of the scan, and `ring`
counts lasers from the lowest elevation up."""
OUSTER: Layout = (
    (
        *_XYZ, ("intensity", "f4", 16), ("t", "u4", 20), ("reflectivity", "u2", 24), ("ring", "u1", 26),
        ("ambient", "u2", 28), ("noise", "u2", 30), ("range", "u4", 32),
    ),
    48,
)  # fmt: skip
"""Layout of Ouster's drivers; `t` is in ns since the start of the scan, `range` in mm. `ambient` was named `noise` in
older drivers, for which LIO-SAM is written; both are 0."""
LIVOX: Layout = ((*_XYZ, ("intensity", "f4", 12), ("tag", "u1", 16), ("line", "u1", 17), ("timestamp", "f8", 18)), 26)
"""Layout of Livox's drivers; `timestamp` is the time of the point in ns."""


def cloud_values(layout: Layout) -> dict[str, Any]:
    """Return the constant values of a PointCloud2 with this layout."""
    fields = [
        {"name": name, "offset": offset, "datatype": POINT_TYPES[dtype], "count": 1}
        for name, dtype, offset in layout[0]
    ]
    return {"height": 1, "fields": fields, "point_step": layout[1], "is_dense": True}


def point_dtype(layout: Layout) -> np.dtype[Any]:
    """Return a layout as a NumPy element type."""
    names, formats, offsets = zip(*layout[0], strict=True)
    return np.dtype(
        {"names": names, "formats": [f"<{each}" for each in formats], "offsets": offsets, "itemsize": layout[1]}
    )


class _Scan:
    """Where the hits of a lidar or another ray sensor are in its fields."""

    def __init__(self, sensor: MappedSensor) -> None:
        self.points = _points_of(sensor)
        self.distances = sensor.field(role="range", unit="m")
        known = {name: sensor.field(name) for name in ("intensity", "channel", "time_offset", "azimuth", "elevation")}
        self.known = {name: spec.name for name, spec in known.items() if spec is not None}
        self.miss = sensor.cfg.get("no_hit_value")
        self.is_scan = self.distances is not None and self.distances.axes[:1] == ("ray",)
        self.has_points = self.points is not None or (self.is_scan and {"azimuth", "elevation"} <= self.known.keys())
        self.is_complete = self.has_points and {"intensity", "channel", "time_offset"} <= self.known.keys()
        """Whether the layouts of manufacturers can be filled."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that point clouds use."""
        position = [self.points.name] if self.points is not None else []
        if self.points is None and self.distances is not None:
            position = [self.distances.name, self.known["azimuth"], self.known["elevation"]]
        return (*position, *(name for name in ("intensity", "channel", "time_offset") if name in self.known))

    def ranges(self, samples: Samples) -> Array:
        """Return the distances `[row, ray, ...]`, m; +inf for a miss."""
        assert self.distances is not None
        values = samples[self.distances.name]
        return values if self.miss is None else np.where(values == np.float32(self.miss), np.float32(inf), values)

    def positions(self, samples: Samples) -> Array:
        """Return the points `[row, ray, ..., 3]`, m; +inf for a miss."""
        if self.points is not None:
            return samples[self.points.name]
        azimuth, elevation = samples[self.known["azimuth"]], samples[self.known["elevation"]]
        level = np.cos(elevation)
        along = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)
        ranges = self.ranges(samples)[..., None]
        along = along.reshape(*along.shape[:2], *(1,) * (ranges.ndim - 3), 3)
        with np.errstate(invalid="ignore"):
            points: Array = np.where(np.isfinite(ranges), ranges * along, inf).astype(np.float32)
        return points

    def offsets(self, samples: Samples) -> tuple[Array, Array]:
        """Return the start of each scan, ns `[row]`, and the time of each ray since then, s `[row, ray]` or one 0.

        ROS accepts no negative times, so a scan that started before time 0 is stamped 0.
        """
        if "time_offset" not in self.known:
            return samples.stamps, np.zeros((len(samples), 1))
        offsets = samples[self.known["time_offset"]].astype(np.float64)
        start = offsets.min(axis=1, keepdims=True)
        return np.maximum(samples.stamps + exact_ns(start[:, 0]), 0), offsets - start

    def hits(self, samples: Samples) -> tuple[Array, Array, dict[str, Array], Array]:
        """Return all hits, one scan after the other.

        Returns:
            The points `[hit, 3]`, the number in each row `[row]`, further values `[hit]` (``time``, s since the start
            of the scan, and ``intensity`` and ``channel`` where known), and the start of each scan, ns `[row]`.
        """
        points = self.positions(samples)
        hit = np.isfinite(points[..., 0])
        for axis in (1, 2):
            hit &= np.isfinite(points[..., axis])
        index = np.flatnonzero(hit)
        start, time = self.offsets(samples)

        def chosen(values: Array) -> Array:
            wide = values.reshape(*values.shape, *(1,) * (hit.ndim - values.ndim))
            return np.broadcast_to(wide, hit.shape).reshape(-1).take(index)

        found = {"time": chosen(time)}
        found |= {str(name): chosen(samples[name]) for name in ("intensity", "channel") if name in self.known}
        counts = hit.reshape(len(hit), -1).sum(axis=1)
        return points.reshape(-1, 3).take(index, axis=0), counts, found, start


def _points_of(sensor: MappedSensor) -> FieldSpec | None:
    """Return the field with points along rays, in the sensor's frame if possible."""
    found = [spec for spec in sensor.specs if spec.role == "point" and spec.axes[:1] == ("ray",)]
    return next((spec for frame in ("sensor", "world") for spec in found if spec.frame == frame), None)


def _rings(sensor: MappedSensor) -> Array | None:
    """Return the number of each laser from the lowest elevation up, as Velodyne's driver counts; None if unknown."""
    elevations = (sensor.cfg.get("pattern") or {}).get("elevations", ())
    return np.argsort(np.argsort(elevations)) if len(elevations) > 1 else None


def _cloud(sensor: MappedSensor, layout: Layout, wanted: Collection[str]) -> Iterator[Channel]:
    """Yield a PointCloud2 of the hits, with the wanted fields of the layout; the others are 0."""
    scan = _Scan(sensor)
    if not scan.has_points:
        return
    dtype = point_dtype(layout)
    step, rings = dtype.itemsize, None if layout is OUSTER else _rings(sensor)

    def columns(samples: Samples) -> Columns:
        points, counts, found, start = scan.hits(samples)
        elements = np.zeros(len(points), dtype)
        for axis, name in enumerate("xyz"):
            elements[name] = points[:, axis]
        if "timestamp" in wanted:
            found["start"] = np.repeat(start, counts)
        if "range" in wanted:
            found["range"] = np.linalg.norm(points.astype(np.float64), axis=1)
        if "ring" in wanted and rings is not None:
            found["channel"] = rings[found["channel"]]
        for name in wanted:
            elements[name] = _converted(name, found, dtype[name])
        return {
            "header.stamp": start, "width": counts, "row_step": counts * step,
            "data": (elements.view(np.uint8), counts * step),
        }  # fmt: skip

    frame = WORLD if scan.points is not None and scan.points.frame == "world" else ""
    yield Channel("sensor_msgs/msg/PointCloud2", "points", scan.fields, cloud_values(layout), columns, "data", frame)


def _converted(name: str, sources: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    """Return the values of a field of a point, in the unit and range of its type."""
    if name == "t":
        values = np.rint(sources["time"] * _NS)
    elif name == "timestamp":
        return np.asarray(sources["start"] + np.rint(sources["time"] * _NS), np.float64)
    elif name == "range":
        values = np.rint(sources["range"] * 1e3)
    else:
        values = sources[{"ring": "channel", "line": "channel", "reflectivity": "intensity"}.get(name, name)]
    if dtype.kind != "u":
        return values
    limited: Array = np.clip(np.nan_to_num(np.rint(values)), 0, np.iinfo(dtype).max)
    return limited


@message_mapper("points")
def points(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/PointCloud2 of the hits in the layout of the config, for Livox also its CustomMsg.

    Without all fields of the layout, points have those of intensity, ring and time that are known.
    """
    layout = {"ouster": [ouster], "livox": [livox, livox_custom]}.get(sensor.cfg.get("cloud_layout", ""), [])
    found = [channel for mapper in layout for channel in mapper(sensor)]
    if found:
        yield from found
        return
    scan = _Scan(sensor)
    sources = {"intensity": "intensity", "ring": "channel", "time": "time_offset"}
    has = {name for name, source in sources.items() if source in scan.known}
    fields, end = [], 0
    for name, dtype, _ in PLAIN[0]:
        if name in has or name in "xyz":
            fields.append((name, dtype, end))
            end += np.dtype(dtype).itemsize
    yield from _cloud(sensor, (tuple(fields), end), has)


@message_mapper("ouster", on_request=True)
def ouster(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/PointCloud2 of the hits, in the layout of Ouster's drivers."""
    if _Scan(sensor).is_complete:
        yield from _cloud(sensor, OUSTER, ("intensity", "t", "reflectivity", "ring", "range"))


@message_mapper("livox", on_request=True)
def livox(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/PointCloud2 of the hits, in the layout of Livox's drivers."""
    if _Scan(sensor).is_complete:
        yield from _cloud(sensor, LIVOX, ("intensity", "line", "timestamp"))


@message_mapper("livox_custom", on_request=True)
def livox_custom(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield livox_ros_driver2/CustomMsg of the hits."""
    scan = _Scan(sensor)
    if not scan.is_complete:
        return

    def columns(samples: Samples) -> Columns:
        points, counts, found, start = scan.hits(samples)
        dtype = element_dtype("livox_ros_driver2/msg/CustomPoint")
        elements = np.zeros(len(points), dtype)
        for axis, name in enumerate("xyz"):
            elements[name] = points[:, axis]
        elements["offset_time"] = np.rint(found["time"] * _NS)
        for name in ("reflectivity", "line"):
            elements[name] = _converted(name, found, dtype[name])
        return {"header.stamp": start, "timebase": start, "point_num": counts, "points": (elements, counts)}

    yield Channel("livox_ros_driver2/msg/CustomMsg", "livox", scan.fields, {}, columns, "points")


@message_mapper("laser_scan")
def laser_scan(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/LaserScan of a scan with one channel whose sensor has the field `azimuth`."""
    scan = _Scan(sensor)
    pattern = sensor.cfg.get("pattern") or {}
    channels = pattern.get("channels", len(pattern.get("elevations", ())))
    distances = scan.distances
    if channels != 1 or "azimuth" not in scan.known or distances is None or distances.axes != ("ray",):
        return
    rays = distances.shape[0]
    names = [name for name in ("intensity", "azimuth", "time_offset") if name in scan.known]

    def columns(samples: Samples) -> Columns:
        start, time = scan.offsets(samples)
        angles = np.unwrap(samples[scan.known["azimuth"]].astype(np.float64), axis=1)
        between = max(rays - 1, 1)
        optional = {"intensities": samples["intensity"]} if "intensity" in scan.known else {}
        return {
            "header.stamp": start, "angle_min": angles[:, 0], "angle_max": angles[:, -1],
            "angle_increment": (angles[:, -1] - angles[:, 0]) / between,
            "time_increment": (time[:, -1] - time[:, 0]) / between, "ranges": scan.ranges(samples), **optional,
        }  # fmt: skip

    values = {
        "scan_time": 1.0 / sensor.rate_hz if sensor.rate_hz else 0.0,
        "range_min": sensor.cfg.get("min_distance", 0.0),
        "range_max": sensor.cfg.get("max_distance", inf),
        "ranges": np.zeros(rays),
        "intensities": np.zeros(rays if "intensity" in scan.known else 0),
    }
    yield Channel("sensor_msgs/msg/LaserScan", "scan", (distances.name, *names), values, columns)


@message_mapper("range")
def distance(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield sensor_msgs/Range of a sensor with one distance."""
    spec = sensor.field(role="range", unit="m")
    if spec is None or spec.columns != 1 or "ray" in spec.axes or spec.is_ragged:
        return
    scan = _Scan(sensor)
    values = {
        "radiation_type": 1,
        "min_range": sensor.cfg.get("min_distance", 0.0),
        "max_range": sensor.cfg.get("max_distance", inf),
    }
    name, is_native = spec.name, sensor.kind == "builtin"

    def columns(samples: Samples) -> Columns:
        ranges = scan.ranges(samples).reshape(len(samples))
        if is_native:  # a rangefinder of MuJoCo gives -1 for a miss, to which noise is added
            ranges = np.where(ranges < -0.5, np.float32(inf), ranges)
        return {"range": ranges}

    yield Channel("sensor_msgs/msg/Range", name, (name,), values, columns)


@message_mapper("radar_scan")
def radar_scan(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield radar_msgs/RadarScan of the detections of a radar; the amplitude is the signal-to-noise ratio, dB."""
    specs = {
        "range": sensor.field(role="range", unit="m"),
        "azimuth": sensor.field("azimuth", unit="rad"),
        "elevation": sensor.field("altitude", unit="rad"),
        "doppler_velocity": sensor.field(unit="m/s"),
        "amplitude": sensor.field("snr"),
    }
    names = {path: spec.name for path, spec in specs.items() if spec is not None}
    if not {"range", "azimuth", "doppler_velocity"} <= names.keys():
        return
    scan = _Scan(sensor)

    def columns(samples: Samples) -> Columns:
        ranges = scan.ranges(samples)
        hit = np.isfinite(ranges)
        elements = np.zeros(int(hit.sum()), element_dtype("radar_msgs/msg/RadarReturn"))
        for path, name in names.items():
            values = (ranges if path == "range" else samples[name])[hit]
            if path == "amplitude":
                with np.errstate(divide="ignore"):
                    values = 10.0 * np.log10(values)
            elements[path] = values
        return {"returns": (elements, hit.sum(axis=1))}

    yield Channel("radar_msgs/msg/RadarScan", "scan", tuple(names.values()), {}, columns, "returns")
