"""Formatting of available streams and received data as text and as JSON: plain functions without terminal control."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sensorium.client.subscription import Stats
from sensorium.spec import FieldSpec
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.data import ArrayData, SensorData
from sensorium.wire.field_data import FieldBranch, FieldData
from sensorium.wire.stream_info import StreamInfo

SHOWN_NUMBERS = 6
"""Maximum number of values shown per field."""
MOST_NUMBERS = 16
"""Fields with more values per environment than this are summarised."""
MOST_JSON = 64
"""Fields with more values than this are summarised in JSON."""
MANY_NAMES = 2
"""If there are more mounts than this, only the first and the last are named."""

Array = np.ndarray[Any, np.dtype[Any]]

CATALOGUE_HEADINGS = ("sensor", "kind", "rate", "envs", "field", "shape", "unit", "mounts")
"""Columns of `catalogue`."""
STATS_HEADINGS = ("sensor", "rate", "age", "latency", "received", "dropped", "lost", "MB/s", "envs")
"""Columns of `stats_row`."""
VALUE_HEADINGS = ("sensor", "field", "shape", "unit", "newest")
"""Columns of `values_rows`."""


class Flow(NamedTuple):
    """Data flow of a sensor."""

    stats: Stats
    state: str = ""
    """Reason why no data arrive; empty if they do."""


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
            yield (*first, spec.name, _axes(spec), _unit(spec), mounts if i == 0 else "")


def _rate(info: StreamInfo) -> str:
    return "events" if info.events else f"{info.rate_hz:.4g} Hz" if info.rate_hz else "irregular"


def _unit(spec: FieldSpec) -> str:
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


# Received data --------------------------------------------------------------------------------------------------------


def stats_row(name: str, flow: Flow, data: SensorData | None) -> tuple[str, ...]:
    """Return the row of a sensor in a table of data flow."""
    stats = flow.stats
    if data is None:
        return (name, flow.state or "waiting", *[""] * (len(STATS_HEADINGS) - 2))
    megabytes = 0.0 if flow.state else 1e-6 * stats.rate * stats.nbytes / max(stats.received, 1)
    times, counts = (stats.age, stats.latency), (stats.received, stats.dropped, stats.lost)
    rate = flow.state or f"{stats.rate:.4g}/s"
    return (name, rate, *map(milliseconds, times), *map(str, counts), f"{megabytes:.3g}", _envs(data))


def _envs(data: SensorData) -> str:
    last = data.first_env + data.num_envs - 1
    return str(last) if data.num_envs == 1 else f"{data.first_env}..{last}"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, or in seconds from 1 s on."""
    return f"{seconds * 1e3:.3g} ms" if abs(seconds) < 0.9995 else f"{seconds:.4g} s"


def line(name: str, flow: Flow, data: SensorData | None) -> str:
    """Return the data flow of a sensor as one line of text."""
    if data is None:
        return f"{name}: {flow.state or 'waiting'}"
    _, rate, age, latency, received, dropped, lost, megabytes, _ = stats_row(name, flow, data)
    shown = []
    for _, field, shape, unit, text in values_rows(name, data):
        numbers = " | ".join(" ".join(part.split()) for part in text.splitlines())
        shown.append(f"{field} {shape}{f' {unit}' if unit else ''}: {numbers}")
    return (
        f"{name}: {rate}, age {age}, latency {latency}, {received} received, {dropped} dropped, {lost} lost, "
        f"{megabytes} MB/s; {'; '.join(shown)}"
    )


def values_rows(name: str, data: SensorData) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a sensor in a table of the newest values, one per field: from the first env or the last event.

    The shape is that of the whole array.
    """
    if isinstance(data, FieldData):
        first = True
        branches: list[tuple[str, FieldBranch]] = [("", data)]
        if data.truth is not None:
            branches.append(("true ", data.truth))
        no_hit = data.info.cfg.get("no_hit_value")
        for spec in data.specs:
            for word, branch in branches:
                values = branch[spec.name]
                text = _text(values[-1 if spec.is_ragged else 0], spec, no_hit) if len(values) else "none"
                yield (name if first else "", f"{word}{spec.name}", _shape(values), _unit(spec), text)
                first = False
        return
    if isinstance(data, ArrayData):
        array = data.array
        if array.dtype.names is None:
            yield (name, "items", _shape(array), "", _numbers(array))
            return
        for i, field in enumerate(array.dtype.names):
            values = array[field]
            text = _numbers(values[-1]) if len(values) else "none"
            yield (name if i == 0 else "", field, _shape(values), "", text)
        return
    shown = repr(data)
    yield (name, "data", f"{len(data.raw_data)} bytes", "", shown if len(shown) <= 200 else f"{shown[:197]}...")


def _shape(values: Array) -> str:
    return f"[{', '.join(map(str, values.shape))}]"


def _text(value: Any, spec: FieldSpec, no_hit_value: float | None) -> str:
    """Return a value as text: its numbers, or for many numbers the range and the number of missing values."""
    array = np.asarray(value)
    return _summed_up(array, spec, no_hit_value) if array.size > MOST_NUMBERS else _numbers(array)


def _numbers(values: Any) -> str:
    flat = np.asarray(values).reshape(-1)
    texts = [number(item) for item in flat[:SHOWN_NUMBERS].tolist()]
    return " ".join(texts) + (f" ... ({len(flat)})" if len(flat) > SHOWN_NUMBERS else "")


def number(value: Any) -> str:
    """Return a number as short text of constant width; return booleans, integers and text unchanged."""
    if not isinstance(value, float):
        return str(value)
    is_plain = value == 0.0 or 5e-4 <= abs(value) < 1e3 or not math.isfinite(value)
    return f"{value:+7.3f}" if is_plain else f"{value:+.2e}"


def _summed_up(value: Array, spec: FieldSpec, no_hit_value: float | None) -> str:
    """Return a summary of many numbers: range per vector axis, range and mean of integers, or count of true bools."""
    if value.dtype.kind != "f":
        low, high = (value.min(), value.max()) if value.dtype.kind in "iu" else (None, None)
        if low is None:
            return f"{int(np.count_nonzero(value))} of {value.size} are true"
        return f"{low} to {high}, mean {value.mean():.4g}"
    items = value.reshape(-1, value.shape[-1]) if spec.is_vector else value.reshape(-1, 1)
    known = _known(items, spec, no_hit_value)
    missing = len(items) - int(known.sum())
    word = "missed" if spec.role in ("range", "image", "point") else "not finite"
    if missing == len(items):
        return f"all {missing} {word}"
    low, high = items[known].min(axis=0).tolist(), items[known].max(axis=0).tolist()
    axes = spec.axes[-1] if spec.is_vector else ""
    names = [f"{axis} " for axis in axes] if axes else [""]
    spans = [f"{axis}{number(a)} to {number(b)}" for axis, a, b in zip(names, low, high, strict=True)]
    if missing:
        spans.append(f"{missing} of {len(items)} {word}")
    return "\n".join(spans)


def _known(items: Array, spec: FieldSpec, no_hit_value: float | None) -> Array:
    known = np.isfinite(items)
    if no_hit_value is not None and spec.role in ("range", "image"):
        known &= items != np.float32(no_hit_value)
    return np.asarray(known.all(axis=1))


# JSON -----------------------------------------------------------------------------------------------------------------


def as_json(data: SensorData, received: int, stats: Stats) -> str:
    """Return a sample as one line of JSON.

    Arrays of up to 64 numbers appear as ``"values"``. Larger arrays are summarised by shape, minimum, mean, maximum,
    and the number of finite values. Non-finite values are null.

    Args:
        data: the sample.
        received: number of samples received so far, including this sample.
        stats: statistics of its subscription.
    """
    about = {name: getattr(data, name) for name in ("sensor", "frame", "seq", "tick", "first_env", "num_envs")}
    about |= {name: round(getattr(data, name), 9) for name in ("time", "timestamp", "age")}
    about["latency"] = round(data.latency(), 6)
    about |= {"received": received, "dropped": stats.dropped, "lost": stats.lost}
    if (transforms := data.transforms) is not None:
        about["transforms"] = _plain(transforms)
    if isinstance(data, FieldData):
        if (offsets := data.offsets) is not None:
            about["offsets"] = _plain(offsets)
        about["fields"] = _fields(data)
        if data.truth is not None:
            about["truth"] = _fields(data.truth)
    elif isinstance(data, ArrayData):
        names = data.array.dtype.names
        about["items"] = {name: _plain(data.array[name]) for name in names} if names else _plain(data.array)
    else:
        about["bytes"] = len(data.raw_data)
    return json.dumps(about, allow_nan=False)


def _fields(branch: FieldBranch) -> dict[str, Any]:
    return {spec.name: {"unit": spec.unit, **_plain(branch[spec.name])} for spec in branch.specs}


def _plain(array: Array) -> dict[str, Any]:
    """Return an array as data that can be encoded as JSON."""
    about: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    if array.size <= MOST_JSON:
        return {**about, "values": _finite(array.tolist())}
    if array.dtype.kind == "b":
        return {**about, "true": int(np.count_nonzero(array))}
    known = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not known.size:
        return {**about, "finite": 0}
    spread = {"min": known.min().item(), "mean": float(known.mean(dtype=np.float64)), "max": known.max().item()}
    return {**about, **spread, "finite": int(known.size)}


def _finite(value: Any) -> Any:
    """Return plain data with None instead of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def description_json(described: StreamInfo | SensorDefinition) -> str:
    """Return the description of a stream or a blueprint as one line of JSON."""
    return json.dumps(_finite(described.to_dict()), allow_nan=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as plain text, for terminals without a richer table."""
    lines = [tuple(headings), *rows]
    widths = [max(len(each[i]) for each in lines) for i in range(len(headings))]
    shown = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in lines]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])
