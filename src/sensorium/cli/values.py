"""Received data as text: rates, ages, losses and newest values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from sensorium.cli.monitor import Monitor
from sensorium.cli.show import unit_of
from sensorium.readings import Array, Reading, Sample
from sensorium.spec import FieldSpec
from sensorium.wire.data import ArrayData, SensorData

SHOWN_NUMBERS = 6
"""Maximum number of values shown per field."""
MAX_NUMBERS = 16
"""Fields with more values per environment than this are summarised."""

STATS_HEADINGS = ("sensor", "rate", "age", "latency", "received", "replaced", "lost", "MB/s", "envs")
"""Columns of `stats_row`."""
VALUE_HEADINGS = ("sensor", "field", "shape", "unit", "newest")
"""Columns of `values_rows`."""


def stats_row(monitor: Monitor, name: str) -> tuple[str, ...]:
    """Return the row of a sensor in a table of data flow."""
    stats, state, data = monitor.sensors[name].stats, monitor.state(name), monitor.newest.get(name)
    if data is None:
        return (name, state or "waiting", *[""] * (len(STATS_HEADINGS) - 2))
    megabytes = 0.0 if state else 1e-6 * stats.rate * stats.nbytes / max(stats.received, 1)
    times, counts = (stats.age, stats.latency), (stats.received, stats.replaced, stats.lost)
    rate = state or f"{stats.rate:.4g}/s"
    return (name, rate, *map(milliseconds, times), *map(str, counts), f"{megabytes:.3g}", _envs(data))


def _envs(data: Sample) -> str:
    last = data.first_env + data.num_envs - 1
    return str(last) if data.num_envs == 1 else f"{data.first_env}..{last}"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, or in seconds from 1 s on."""
    return f"{seconds * 1e3:.3g} ms" if abs(seconds) < 0.9995 else f"{seconds:.4g} s"


def line(monitor: Monitor, name: str) -> str:
    """Return the data flow of a sensor as one line of text."""
    data = monitor.newest.get(name)
    _, rate, age, latency, received, replaced, lost, megabytes, _ = stats_row(monitor, name)
    if data is None:
        return f"{name}: {rate}"
    shown = []
    for _, field, shape, unit, text in values_rows(name, data):
        numbers = " | ".join(" ".join(part.split()) for part in text.splitlines())
        shown.append(f"{field} {shape}{f' {unit}' if unit else ''}: {numbers}")
    return (
        f"{name}: {rate}, age {age}, latency {latency}, {received} received, {replaced} replaced, {lost} lost, "
        f"{megabytes} MB/s; {'; '.join(shown)}"
    )


def values_rows(name: str, data: Sample) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a sensor in a table of the newest values, one per field: from the first env or the last event.

    The shape is that of the whole array.
    """
    if isinstance(data, Reading):
        first = True
        branches = [("", data.measured), *([("true ", data.truth)] if data.truth else [])]
        no_hit = None if data.info is None else data.info.cfg.get("no_hit_value")
        for spec in data.specs:
            for word, branch in branches:
                values = branch[spec.name]
                text = _text(values[-1 if spec.is_ragged else 0], spec, no_hit) if len(values) else "none"
                yield (name if first else "", f"{word}{spec.name}", _shape(values), unit_of(spec), text)
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
    size = len(data.raw_data) if isinstance(data, SensorData) else 0
    yield (name, "data", f"{size} bytes", "", shown if len(shown) <= 200 else f"{shown[:197]}...")


def _shape(values: Array) -> str:
    return f"[{', '.join(map(str, values.shape))}]"


def _text(value: Any, spec: FieldSpec, no_hit_value: float | None) -> str:
    """Return a value as text: its numbers, or for many numbers the range and the number of missing values."""
    array = np.asarray(value)
    return _summed_up(array, spec, no_hit_value) if array.size > MAX_NUMBERS else _numbers(array)


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
