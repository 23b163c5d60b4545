"""Formatting of available streams and received data as text and as JSON: plain functions without terminal control."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sensorium.client.subscription import Stats
from sensorium.readings import Array, Reading, Sample
from sensorium.spec import FieldSpec
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.data import ArrayData, SensorData
from sensorium.wire.stream_info import StreamInfo

MAX_JSON = 64
"""Fields with more values than this are summarised in JSON."""
MANY_NAMES = 2
"""If there are more mounts than this, only the first and the last are named."""

CATALOGUE_HEADINGS = ("sensor", "kind", "rate", "envs", "field", "shape", "unit", "mounts")
"""Columns of `catalogue`."""


# Available streams ----------------------------------------------------------------------------------------------------


def catalogue(streams: Iterable[StreamInfo]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of available streams: one per field, with the sensor columns only in its first row."""
    for info in streams:
        own = (info.name, info.kind, _rate(info), str(info.num_envs))
        mounts = _named(info.mounts)
        if not info.specs:
            what = "runs in a client" if info.where == "client" else info.type_name or "no data"
            yield (*own, what, "", "", mounts)
        for i, spec in enumerate(info.specs):
            first = own if i == 0 else ("", "", "", "")
            yield (*first, spec.name, _axes(spec), unit_of(spec), mounts if i == 0 else "")


def _rate(info: StreamInfo) -> str:
    return "events" if info.events else f"{info.rate_hz:.4g} Hz" if info.rate_hz else "irregular"


def unit_of(spec: FieldSpec) -> str:
    """Return the unit of a field; empty for a dimensionless field."""
    return "" if spec.unit == "1" else spec.unit


def _axes(spec: FieldSpec) -> str:
    """Return the shape of a field: vector components by number, other axes by name and size."""
    sizes = [
        "event" if axis == "event" else str(size) if len(axis) == size else f"{axis} {size}"
        for axis, size in zip(spec.axes, spec.shape, strict=True)
    ]
    return f"[{', '.join(['env', *sizes] if not spec.is_ragged else sizes)}]"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= MANY_NAMES else f"{names[0]} .. {names[-1]} ({len(names)})"


# JSON -----------------------------------------------------------------------------------------------------------------


def as_json(data: Sample, stats: Stats) -> str:
    """Return a sample as one line of JSON.

    Arrays of up to 64 numbers appear as ``"values"``. Larger arrays are summarised by shape, minimum, mean, maximum,
    and the number of finite values. Non-finite values are null.

    Args:
        data: the sample.
        stats: statistics of its subscription, including this sample.
    """
    about = {name: getattr(data, name) for name in ("sensor", "frame", "seq", "tick", "first_env", "num_envs")}
    about |= {"time": round(data.time, 9), "timestamp": round(data.timestamp, 9)}
    about["age"] = round(data.time - data.timestamp, 9)
    about["latency"] = round(data.latency(), 6)
    about |= {"received": stats.received, "replaced": stats.replaced, "lost": stats.lost}
    if (pose := data.pose) is not None:
        about["transforms"] = _plain(pose)
    if isinstance(data, Reading):
        if (offsets := data.offsets) is not None:
            about["offsets"] = _plain(offsets)
        about["fields"] = _fields(data.specs, data.measured)
        if data.truth:
            about["truth"] = _fields(data.specs, data.truth)
    elif isinstance(data, ArrayData):
        names = data.array.dtype.names
        about["items"] = {name: _plain(data.array[name]) for name in names} if names else _plain(data.array)
    elif isinstance(data, SensorData):
        about["bytes"] = len(data.raw_data)
    return _json(about)


def _fields(specs: Iterable[FieldSpec], branch: Mapping[str, Array]) -> dict[str, Any]:
    return {spec.name: {"unit": spec.unit, **_plain(branch[spec.name])} for spec in specs}


def _plain(array: Array) -> dict[str, Any]:
    """Return an array as data that can be encoded as JSON."""
    about: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    if array.size <= MAX_JSON:
        return {**about, "values": array.tolist()}
    if array.dtype.kind == "b":
        return {**about, "true": int(np.count_nonzero(array))}
    known = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not known.size:
        return {**about, "finite": 0}
    spread = {"min": known.min().item(), "mean": float(known.mean(dtype=np.float64)), "max": known.max().item()}
    return {**about, **spread, "finite": int(known.size)}


def description_json(described: StreamInfo | SensorDefinition) -> str:
    """Return the description of a stream or a blueprint as one line of JSON."""
    return _json(described.to_dict())


def _json(value: object) -> str:
    """Return plain data as JSON, with null instead of numbers that are not finite."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as plain text, for terminals without a richer table."""
    lines = [tuple(headings), *rows]
    widths = [max(len(each[i]) for each in lines) for i in range(len(headings))]
    shown = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in lines]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])
