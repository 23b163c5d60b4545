"""Pictures of single fields: values over time with their error, events, scans, and images and clouds at a time.

Of values over time, the true and the measured ones are on the left, and measured minus true at equal captures on the
right, unless both are equal. Spans without a valid value are pink, gaps between captures grey, and marks at the bottom
are captures that never arrived.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import STATES, Array
from sensorium.spec import unit_of
from sensorium.view.figures import labels_of, longest_interval
from sensorium.view.knobs import columns_of
from sensorium.view.maps import HEADING, draw_maps, map_fields, map_strips, maps_inches
from sensorium.view.panels import Spec, shown_values
from sensorium.view.style import (
    ERROR,
    FAINT,
    MEASURED,
    TRUTH,
    column_of,
    error_text,
    heading,
    inches_of,
    left_of,
    legend,
    picture,
    tidy,
    unit_text,
    write_heading,
)

if TYPE_CHECKING:
    from sensorium.record import Recording, SensorRecording

MAX_LINES = 12
"""Maximum number of elements that are drawn as lines; more are drawn as a map over time."""
WIDTH = 10.0
"""Width of the picture of a field, inches."""
LINE, FOOT = 1.15, 0.5
"""Height of the lines of each element and of the margin below them, inches."""
MAX_EVENTS = 6000
"""Maximum number of drawn events."""
HIDDEN = 0.05
"""Errors up to this share of the signal's span are drawn in place of the close-up, where they would not be visible."""
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
        at: time of images, clouds and skins, s; None for the last sample, and for the largest load of a skin.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
        UnknownNameError: no such sensor or recorded environment.
    """
    parts = [(recording[name], spec_of(recording[name], field)) for name, field in fields]
    dt = float(recording.description["dt"])
    heights = [field_inches(sensor, spec, column_of(sensor, env)) for sensor, spec in parts]
    with picture(path, WIDTH, sum(heights)) as figure:
        strips = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for strip, (sensor, spec) in zip(strips, parts, strict=True):
            draw_field(strip, sensor, spec, column_of(sensor, env), dt, at)
    return Path(path)


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
    return lines_inches(min(columns, MAX_LINES))


def lines_inches(rows: int) -> float:
    """Return the height of the picture of these rows of lines, inches."""
    return HEADING + FOOT + LINE * rows


def draw_field(figure: Any, sensor: SensorRecording, spec: Spec, env: int, dt: float, at: float | None = None) -> None:
    """Draw one field.

    Args:
        figure: a figure or subfigure of Matplotlib of the height `field_inches`.
        sensor: the recorded sensor.
        spec: description of the field.
        env: column of the environment.
        dt: physics time step, s.
        at: time of an image, a cloud or a skin, s; None for the last sample, and for the largest load of a skin.
    """
    if (part := _mapped(sensor, spec)) is not None:
        draw_maps(figure, part, _maps(part, env), env, at)
        return
    name, facts = heading(sensor, env, several=True)
    write_heading(figure, f"{name} · {spec['name']}", facts)
    if _is_event(spec):
        _draw_events(figure, _with_truth(sensor, spec), spec, env)
    else:
        rows = [LineRow(spec, k, label) for k, label in enumerate(labels_of(sensor.info, spec))]
        draw_lines(figure, sensor, rows, env, dt)


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


@dataclass(frozen=True, slots=True)
class LineRow:
    """One element of a field that is drawn as a line.

    Attributes:
        spec: description of the field.
        element: place of the element in memory.
        label: its name.
    """

    spec: Spec
    element: int
    label: str

    @property
    def unit(self) -> str:
        """Unit of the element."""
        return unit_text(unit_of(self.spec["unit"], self.spec["shape"], self.element))

    def values(self, sensor: SensorRecording, branch: Mapping[str, Array], rows: Array, env: int) -> Array:
        """Return the element in some rows of the recording, float64, with NaN for misses."""
        found = branch[self.spec["name"]][rows, env].reshape(len(rows), columns_of(self.spec))[:, self.element]
        return shown_values(sensor, self.spec, found)


def _axes_of(figure: Any, rows: int, columns: int) -> Any:
    """Return axes `[row, column]` for lines over the same times."""
    inches = inches_of(figure)
    margins = {
        "left": left_of(figure), "right": 0.985, "top": 1.0 - (HEADING + 0.1) / inches,
        "bottom": (FOOT - 0.08) / inches, "hspace": 0.28, "wspace": 0.16,
    }  # fmt: skip
    widths = (1.75, 1.0)[:columns]
    grid = figure.subplots(rows, columns, squeeze=False, sharex="col", width_ratios=widths, gridspec_kw=margins)
    for axes in grid.flat:
        tidy(axes)
    return grid


def draw_lines(
    figure: Any, sensor: SensorRecording, rows: Sequence[LineRow], env: int, dt: float,
    window: tuple[float, float] | None = None,
) -> None:  # fmt: skip
    """Draw elements of fields over time, and their errors.

    Args:
        figure: a figure or subfigure of Matplotlib of the height `lines_inches`.
        sensor: the recorded sensor.
        rows: the elements.
        env: column of the environment.
        dt: physics time step, s.
        window: time of a close-up in place of errors that are visible in it, s; None for none.
    """
    captures, arrivals, (shown, paired) = sensor.captures(env), sensor.arrivals(env), sensor.pairs(env)
    true_time, end = sensor.truth_time[captures, env], float(sensor.time[-1])
    span = sensor.time[0], end if end > sensor.time[0] else None
    sensed, seen_time = sensor.capture_time[arrivals, env], sensor.time[arrivals]
    is_late = bool((seen_time > sensed).any())
    word = {"log": "logged", STATES: "true"}.get(str(sensor.info.get("kind")), "measured")
    errors = [
        row.values(sensor, sensor.measured, shown, env) - row.values(sensor, sensor.truth, paired, env)
        if row.spec["name"] in sensor.truth else np.full(len(shown), np.nan)
        for row in rows
    ]  # fmt: skip
    has_error = window is not None or any(np.nan_to_num(error).any() for error in errors)
    grid = _axes_of(figure, len(rows), 2 if has_error else 1)
    for row, error, (axes, *panels) in zip(rows, errors, grid, strict=True):
        truth = np.empty(0)
        if row.spec["name"] in sensor.truth:
            truth = row.values(sensor, sensor.truth, captures, env)
        seen = row.values(sensor, sensor.measured, arrivals, env)
        true, held = (true_time[: len(truth)], truth), (np.append(seen_time, end), np.append(seen, seen[-1:]))
        is_float = np.dtype(row.spec["dtype"]).kind == "f"
        style = "default" if is_float else "steps-post"  # ids and flags jump
        least = 1e-5 * np.abs(truth[np.isfinite(truth)]).max(initial=0.0) if is_float else 1.0  # rounding is no signal

        def draw(view: Any, true: tuple[Array, Array], held: tuple[Array, Array], style: str = style) -> None:
            if len(arrivals):
                view.step(*held, where="post", color=MEASURED, lw=1.4, label=word)
            if len(true[0]):
                view.plot(*true, drawstyle=style, color=TRUTH, lw=0.75, label="true")

        _mark_spans(axes, sensor, env, dt)
        draw(axes, true, held)
        _label(axes, row)
        _limit(axes, np.concatenate((truth, seen)), least)
        axes.set_xlim(*span)
        if window is not None:
            axes.axvspan(*window, color="#f0c94a", alpha=0.35, lw=0)
        for panel in panels:
            if window is None or (not is_late and _is_hidden(error, truth)):
                panel.plot(sensor.capture_time[shown, env], error, color=ERROR, lw=0.8)
                panel.axhline(0.0, color=TRUTH, lw=0.6)
            else:
                draw(panel, true, held)
                _add_captures(panel, window, true, (sensed, seen_time, seen), least)
            panel.set_xlim(*(window or span))
            text = error_text(error, row.unit) if np.isfinite(error).any() else ""
            panel.set_title(text, fontsize=7.5, loc="right", pad=2.5)
    legend(grid[0, 0])
    grid[-1, 0].set_xlabel("time [s]")
    for panel in grid[-1, 1:]:
        about = "capture time [s]" if window is None else f"time [s], {1e3 * (window[1] - window[0]):.0f} ms close-up"
        panel.set_xlabel(about)


def _is_hidden(errors: Array, truth: Array) -> bool:
    """Return whether errors are so small that a measured line would cover the true one."""
    known = truth[np.isfinite(truth)]
    return bool(np.nan_to_num(errors).any()) and np.nanmax(np.abs(errors)) < HIDDEN * np.ptp(known)


def _add_captures(
    axes: Any, window: tuple[float, float], true: tuple[Array, Array], measured: tuple[Array, Array, Array],
    least: float,
) -> None:  # fmt: skip
    """Add captures, arrivals and the lines between them, and set limits to their values in the window."""
    (true_time, truth), (sensed, seen_time, seen) = true, measured
    near = (seen_time >= window[0]) & (seen_time <= window[1])
    if (seen_time - sensed)[near].any():
        axes.hlines(seen[near], sensed[near], seen_time[near], color=MEASURED, lw=0.9, alpha=0.45)
    axes.plot(seen_time[near], seen[near], "o", color=MEASURED, ms=3.0, mew=0.0)
    inside = (true_time >= window[0]) & (true_time <= window[1])
    axes.plot(true_time[inside], truth[inside], ".", color=TRUTH, ms=2.6)
    _limit(axes, np.concatenate((truth[inside], seen[near])), least)


def _limit(axes: Any, values: Array, least: float) -> None:
    """Set the vertical limits to the values, with a minimum span."""
    values = values[np.isfinite(values)]
    if len(values):
        low, high = float(values.min()), float(values.max())
        half = 0.6 * max(high - low, least, 1e-12)
        axes.set_ylim(0.5 * (low + high) - half, 0.5 * (low + high) + half)


def _label(axes: Any, row: LineRow) -> None:
    """Write the name and the unit of an element beside its axes, in smaller type if they are long."""
    if np.dtype(row.spec["dtype"]).kind != "f":
        axes.yaxis.get_major_locator().set_params(integer=True)
    unit = f"[{row.unit}]" if row.unit else ""
    text = ("  " if "\n" in row.label else "\n").join(filter(None, (row.label, unit)))
    longest = max(len(line) for line in text.split("\n"))
    axes.set_ylabel(text, fontsize=8 if longest <= 15 else 120 / longest)
    axes.yaxis.set_label_coords(-0.48 * axes.figure.dpi / axes.get_window_extent().width, 0.5)


def _mark_spans(axes: Any, sensor: SensorRecording, env: int, dt: float) -> None:
    """Mark spans without a valid value, gaps between captures, and captures that never arrived."""
    time, is_valid = sensor.time, sensor.valid[:, env]
    captured = sensor.truth_time[sensor.captures(env), env]
    captured = captured[: 0 if sensor.info.get("kind") == "log" else None]  # logs have no rate
    is_gap = np.diff(captured) > longest_interval(sensor, np.diff(captured), dt)
    spans = {
        ("not valid", INVALID): (time[~is_valid], np.append(time[1:], time[-1:])[~is_valid]),
        ("gap", GAP): (captured[:-1][is_gap], captured[1:][is_gap]),
    }
    for (label, color), (start, end) in spans.items():
        if len(start):
            place = {"transform": axes.get_xaxis_transform(), "antialiased": False}
            axes.broken_barh(
                np.stack([start, end - start], axis=1), (0.0, 1.0), color=color, lw=0, label=label, **place
            )
    arrivals = sensor.arrivals(env)
    late = float(sensor.age[arrivals, env].max(initial=0.0))
    lost = captured[(captured <= time[-1] - late) & ~np.isin(captured, sensor.capture_time[arrivals, env])]
    if len(lost):
        axes.plot(
            lost, np.full(len(lost), 0.03), "|", color=LOST, ms=4.0, mew=0.8, transform=axes.get_xaxis_transform(),
            label="lost",
        )  # fmt: skip


# Events ---------------------------------------------------------------------------------------------------------------


def _draw_events(figure: Any, sensor: SensorRecording, spec: Spec, env: int) -> None:
    """Draw the elements of all events over the time at which they arrived."""
    one, name = _one_event(spec), spec["name"]
    labels = labels_of(sensor.info, one)[:MAX_LINES]
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
    grid = _axes_of(figure, len(labels), 1)[:, 0]
    for k, (axes, label) in enumerate(zip(grid, labels, strict=True)):
        axes.plot(drawn, measured[:, k], "o", color=MEASURED, ms=2.6, mew=0.0, label="measured")
        axes.plot(drawn, truth[:, k], ".", color=TRUTH, ms=1.6, mew=0.0, label="true")
        _label(axes, LineRow(one, k, label))
        if sensor.time[-1] > sensor.time[0]:
            axes.set_xlim(sensor.time[0], sensor.time[-1])
    legend(grid[0])
    grid[-1].set_xlabel("time [s]")
    count = f"{len(time)} events" + (f", every {every}th drawn" if every > 1 else "")
    grid[0].set_title(count, color=FAINT)


def every_field(recording: Mapping[str, SensorRecording]) -> list[tuple[str, str]]:
    """Return the names of all recorded fields, as for `plot_fields`."""
    return [(name, field) for name, sensor in recording.items() for field in field_names(sensor)]
