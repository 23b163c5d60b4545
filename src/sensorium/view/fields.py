"""Pictures of single fields: values over time with their error, events, scans, and images and clouds at a time.

Of values over time, the true and the measured ones are on the left, and measured minus true at equal captures on the
right, unless both are equal. Spans without a valid value are pink, gaps between captures grey, and marks at the bottom
are captures that never arrived.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.figures import labels_of, longest_interval
from sensorium.view.knobs import columns_of
from sensorium.view.maps import HEADING, draw_maps, map_fields, map_strips, maps_inches
from sensorium.view.panels import Spec, inches_of, shown_values
from sensorium.view.style import (
    ERROR,
    FAINT,
    INK,
    MEASURED,
    PAPER,
    TRUTH,
    blank_figure,
    column_of,
    heading,
    tidy,
    unit_text,
)

if TYPE_CHECKING:
    from sensorium.record import Recording, SensorRecording

MAX_LINES = 12
"""Maximum number of elements that are drawn as lines; more are drawn as a map over time."""
LINE, FOOT = 1.05, 0.5
"""Height of the lines of each element and of the margin below them, inches."""
BINS = 1200
"""Maximum number of bins of a line; of a bin with several values, the minimum and the maximum are drawn."""
MAX_EVENTS = 6000
"""Maximum number of drawn events."""
INVALID, GAP, LOST = "#fbe3e4", "#e3e6e9", "#b3261e"
"""Colours of spans without a valid value, of gaps, and of marks of lost captures."""


def plot_fields(
    recording: Recording,
    fields: Sequence[tuple[str, str]],
    path: str | os.PathLike[str],
    *,
    env: int = 0,
    at: float | None = None,
) -> Path:
    """Draw fields below each other, and return the path of the picture.

    Args:
        recording: result of `sensorium.record.load`, `Replay.recording` or `NpzRecorder.recording`.
        fields: names of sensors and of their fields.
        path: the file; its suffix selects the format, e.g. ``.png`` or ``.svg``.
        env: id of the environment.
        at: time of images and clouds, s; None for the last sample.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
        UnknownNameError: no such sensor or recorded environment.
    """
    parts = [(recording[name], spec_of(recording[name], field)) for name, field in fields]
    dt = float(recording.description["dt"])
    heights = [field_inches(sensor, spec, column_of(sensor, env)) for sensor, spec in parts]
    figure = blank_figure(10.0, sum(heights))
    strips = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for strip, (sensor, spec) in zip(strips, parts, strict=True):
        draw_field(strip, sensor, spec, column_of(sensor, env), dt, at)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor=PAPER)
    return path


def spec_of(sensor: SensorRecording, field: str) -> Spec:
    """Return the description of a recorded field."""
    found: Spec = next(spec for spec in sensor.info["fields"] if spec["name"] == field)
    return found


def field_names(sensor: SensorRecording) -> list[str]:
    """Return the names of the fields of a sensor that hold numbers; none without a sample."""
    fields = sensor.info.get("fields", ()) if len(sensor.time) else ()
    return [spec["name"] for spec in fields if spec["name"] in sensor.measured and 0 not in spec["shape"]]


def field_inches(sensor: SensorRecording, spec: Spec, env: int) -> float:
    """Return the height of the picture of a field in an environment (by column), inches."""
    if (part := _mapped(sensor, spec)) is not None:
        return maps_inches(_maps(part, env))
    columns = columns_of(_one_event(spec) if _is_event(spec) else spec)
    return HEADING + FOOT + LINE * min(columns, MAX_LINES)


def draw_field(figure: Any, sensor: SensorRecording, spec: Spec, env: int, dt: float, at: float | None = None) -> None:
    """Draw one field.

    Args:
        figure: a figure or subfigure of Matplotlib of the height `field_inches`.
        sensor: the recorded sensor.
        spec: description of the field.
        env: column of the environment.
        dt: physics time step, s.
        at: time of an image or a cloud, s; None for the last sample.
    """
    if (part := _mapped(sensor, spec)) is not None:
        draw_maps(figure, part if at is None else part.between(end=at), _maps(part, env), env)
        return
    has_truth = spec["name"] in sensor.truth
    sensor, inches = _with_truth(sensor, spec), inches_of(figure)
    name, facts = heading(sensor, env, several=True)
    title = f"{name} · {spec['name']}"
    figure.text(0.09, 1.0 - 0.1 / inches, title, fontsize=12, fontweight="bold", color=INK, va="top")
    figure.text(0.09, 1.0 - 0.35 / inches, facts, fontsize=8.5, color=INK, va="top")
    if _is_event(spec):
        _draw_events(figure, sensor, spec, env)
    else:
        _draw_lines(figure, sensor, spec, env, dt, has_truth)


# Kinds of fields ------------------------------------------------------------------------------------------------------


def _is_event(spec: Spec) -> bool:
    return bool(spec["axes"][1:2] == ["event"])


def _one_event(spec: Spec) -> dict[str, Any]:
    """Return the description of one event."""
    return {**spec, "axes": [spec["axes"][0], *spec["axes"][2:]], "shape": spec["shape"][1:]}


def _mapped(sensor: SensorRecording, spec: Spec) -> SensorRecording | None:
    """Return the recording of a field that is drawn as a map, with this field alone; None for other fields.

    Fields with many elements are drawn as scans, unless they have a map.
    """
    part = replace(_with_truth(sensor, spec), info={**sensor.info, "fields": [spec]})
    if map_fields(part):
        return part
    if _is_event(spec) or columns_of(spec) <= MAX_LINES:
        return None
    name = spec["name"]
    flat = {**spec, "axes": ["env", "element"], "shape": [columns_of(spec)], "role": "range", "dtype": "float64"}
    measured, truth = (
        {name: each[name].reshape(*each[name].shape[:2], -1).astype(np.float64)} for each in (part.measured, part.truth)
    )
    return replace(part, info={**sensor.info, "fields": [flat]}, measured=measured, truth=truth)


def _with_truth(sensor: SensorRecording, spec: Spec) -> SensorRecording:
    """Return the recording; a field without truth, as in bags of other programs, gets an unknown truth."""
    name = spec["name"]
    if name in sensor.truth:
        return sensor
    values = sensor.measured[name]
    unknown = np.full_like(values, np.nan) if values.dtype.kind == "f" else values
    return replace(sensor, truth={**sensor.truth, name: unknown})


def _maps(part: SensorRecording, env: int) -> list[Sequence[Spec]]:
    """Return the strips of maps to draw of the result of `_mapped`."""
    return map_strips(part, map_fields(part), env)


# Lines ----------------------------------------------------------------------------------------------------------------


def _grid(figure: Any, rows: int, columns: int) -> Any:
    inches = inches_of(figure)
    widths = (1.75, 1.0)[:columns]
    return figure.add_gridspec(
        rows, columns, width_ratios=widths, left=0.09, right=0.985, top=1.0 - (HEADING + 0.1) / inches,
        bottom=(FOOT - 0.08) / inches, hspace=0.28, wspace=0.16,
    )  # fmt: skip


def _draw_lines(figure: Any, sensor: SensorRecording, spec: Spec, env: int, dt: float, has_truth: bool) -> None:
    """Draw each element over time, and its error."""
    name, labels = spec["name"], labels_of(sensor, spec)
    word = "logged" if sensor.info.get("kind") == "log" else "measured"
    captures, arrivals = sensor.captures(env), sensor.arrivals(env)
    shown, paired = sensor.pairs(env)
    true_time, end = sensor.truth_time[captures, env], float(sensor.time[-1])
    truth = _columns(sensor, spec, sensor.truth[name][captures, env])
    seen = _columns(sensor, spec, sensor.measured[name][arrivals, env])
    error = _columns(sensor, spec, sensor.measured[name][shown, env]) - _columns(
        sensor, spec, sensor.truth[name][paired, env]
    )
    has_error = bool(np.nan_to_num(error).any())
    grid = _grid(figure, len(labels), 2 if has_error else 1)
    for k, label in enumerate(labels):
        axes, is_last = figure.add_subplot(grid[k, 0]), k == len(labels) - 1
        _mark_spans(axes, sensor, env, dt)
        if len(arrivals):
            time = np.append(sensor.time[arrivals], end)
            axes.step(*thin(time, np.append(seen[:, k], seen[-1, k])), where="post", color=MEASURED, lw=1.4,
                      label=word)  # fmt: skip
        style = "default" if np.dtype(spec["dtype"]).kind == "f" else "steps-post"  # ids and flags jump
        if has_truth:
            axes.plot(*thin(true_time, truth[:, k]), drawstyle=style, color=TRUTH, lw=0.75, label="true")
        _label(axes, spec, label, is_last)
        axes.set_xlim(sensor.time[0], end if end > sensor.time[0] else None)
        if k == 0:
            _legend(axes)
        if not has_error:
            continue
        panel = figure.add_subplot(grid[k, 1])
        known = error[np.isfinite(error[:, k]), k]
        panel.plot(*thin(sensor.capture_time[shown, env], error[:, k]), color=ERROR, lw=0.8)
        panel.axhline(0.0, color=TRUTH, lw=0.6)
        tidy(panel, is_last=is_last)
        panel.set_xlim(sensor.time[0], end if end > sensor.time[0] else None)
        text = f"error {known.mean():+.3g} ± {known.std():.3g} {unit_text(spec['unit'])}" if len(known) else ""
        panel.set_title(text, fontsize=7.5, color=INK, loc="right", pad=2.5)
        if is_last:
            panel.set_xlabel("capture time [s]", fontsize=8, color=INK)


def _columns(sensor: SensorRecording, spec: Spec, values: Array) -> Array:
    """Return values as `[row, element]`, float64, with NaN for misses."""
    found: Array = shown_values(sensor, spec, values.reshape(len(values), int(np.prod(values.shape[1:]))))
    return found


def _label(axes: Any, spec: Spec, label: str, is_last: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    tidy(axes, is_last=is_last)
    if np.dtype(spec["dtype"]).kind != "f":
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    text = "\n".join(filter(None, (label, f"[{unit_text(spec['unit'])}]" if spec["unit"] else "")))
    longest = max(len(line) for line in text.split("\n"))
    axes.set_ylabel(text, fontsize=8 if longest <= 15 else 120 / longest, color=INK)
    axes.yaxis.set_label_coords(-0.048 / axes.get_position().width, 0.5)
    if is_last:
        axes.set_xlabel("time [s]", fontsize=8, color=INK)


def _legend(axes: Any) -> None:
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(
        handles.values(), handles.keys(), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles),
        frameon=False, fontsize=8, borderaxespad=0.1, handlelength=1.6, labelcolor=INK,
    )  # fmt: skip


def _mark_spans(axes: Any, sensor: SensorRecording, env: int, dt: float) -> None:
    """Mark spans without a valid value, gaps between captures, and captures that never arrived."""
    time = sensor.time
    ends = np.append(time[1:], time[-1])
    for start, end in _joined(time, ends, ~sensor.valid[:, env]):
        axes.axvspan(start, end, color=INVALID, lw=0, label="not valid")
    if sensor.info.get("kind") == "log":  # of no rate
        return
    captured = sensor.truth_time[sensor.captures(env), env]
    is_gap = np.diff(captured) > longest_interval(sensor, np.diff(captured), dt)
    for start, end in zip(captured[:-1][is_gap], captured[1:][is_gap], strict=True):
        axes.axvspan(start, end, color=GAP, lw=0, label="gap")
    arrivals = sensor.arrivals(env)
    late = float(sensor.age[arrivals, env].max(initial=0.0))
    lost = captured[(captured <= time[-1] - late) & ~np.isin(captured, sensor.capture_time[arrivals, env])]
    if len(lost):
        axes.plot(
            lost, np.full(len(lost), 0.03), "|", color=LOST, ms=4.0, mew=0.8, transform=axes.get_xaxis_transform(),
            label="lost",
        )  # fmt: skip


def _joined(starts: Array, ends: Array, chosen: Array) -> list[tuple[float, float]]:
    """Return the spans of consecutive chosen intervals."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], chosen.astype(np.int8), [0]))))
    return [(float(starts[first]), float(ends[last - 1])) for first, last in edges.reshape(-1, 2).tolist()]


def thin(time: Array, values: Array) -> tuple[Array, Array]:
    """Return a line with at most two points per bin, the minimum and the maximum in their order."""
    if len(time) <= 2 * BINS:
        return time, values
    edges = np.linspace(0, len(time), BINS + 1).astype(int)
    chosen = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = values[first:last]
        if np.isfinite(part).any():
            chosen += sorted({first + int(np.nanargmin(part)), first + int(np.nanargmax(part))})
    return time[chosen], values[chosen]


# Events ---------------------------------------------------------------------------------------------------------------


def _draw_events(figure: Any, sensor: SensorRecording, spec: Spec, env: int) -> None:
    """Draw the elements of all events over the time at which they arrived."""
    one, name = _one_event(spec), spec["name"]
    labels = labels_of(sensor, one)[:MAX_LINES]
    rows = sensor.arrivals(env)
    spans = [sensor.events(int(row), env) for row in rows]
    places = np.concatenate([np.arange(0), *(np.arange(span.start, span.stop) for span in spans)]).astype(int)
    time = np.repeat(sensor.time[rows], [span.stop - span.start for span in spans])
    every = max(1, -(-len(places) // MAX_EVENTS))
    places, drawn = places[::every], time[::every]
    measured, truth = (
        branch[name][places].reshape(len(places), columns_of(one)).astype(np.float64)
        for branch in (sensor.measured, sensor.truth)
    )
    grid = _grid(figure, len(labels), 1)
    for k, label in enumerate(labels):
        axes = figure.add_subplot(grid[k, 0])
        axes.plot(drawn, measured[:, k], "o", color=MEASURED, ms=2.6, mew=0.0, label="measured")
        axes.plot(drawn, truth[:, k], ".", color=TRUTH, ms=1.6, mew=0.0, label="true")
        _label(axes, one, label, k == len(labels) - 1)
        if sensor.time[-1] > sensor.time[0]:
            axes.set_xlim(sensor.time[0], sensor.time[-1])
        if k == 0:
            _legend(axes)
            count = f"{len(time)} events" + (f", every {every}th drawn" if every > 1 else "")
            axes.set_title(count, fontsize=8.5, color=FAINT, loc="left", pad=4.0)


def every_field(recording: Mapping[str, SensorRecording]) -> list[tuple[str, str]]:
    """Return the names of all recorded fields, as for `plot_fields`."""
    return [(name, field) for name, sensor in recording.items() for field in field_names(sensor)]
