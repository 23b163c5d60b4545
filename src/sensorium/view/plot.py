"""Pictures of a recording: true and measured, one column per sensor, one row per axis, each with a close-up.

The measured line is a step function: it shows a reader's value at each instant, so latency appears as a lag behind the
truth. In the close-up, dots are arrivals, and a faint line connects each to the instant of its capture. The numbers
above it are mean and standard deviation of measured minus true at equal captures, which excludes latency. Errors that
are too small to be seen there are drawn in its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import UnknownNameError
from sensorium.readings import Array
from sensorium.view.images import picture_kind
from sensorium.view.maps import MAX_NUMBERS, draw_maps, map_fields, map_strips, maps_inches
from sensorium.view.panels import Spec
from sensorium.view.style import FAINT, INK, MEASURED, PAPER, TRUTH, blank_figure, column_of, heading, tidy, unit_text
from sensorium.view.taxels import is_skin

if TYPE_CHECKING:
    from sensorium.record import Recording, SensorRecording

MAX_SENSORS = 3
"""Maximum number of sensors in one picture; more would be too narrow."""
MAX_ROWS = 6
"""Maximum number of axes per sensor."""
WIDTH, MAP_WIDTH, FRAME, LINE = 5.6, 7.0, 1.38, 1.27
"""Width of a sensor's lines and maps, height of the margins, and of each axis, inches."""
ZOOM = 0.2
"""Duration of the close-up, s."""
HIDDEN = 0.05
"""Errors up to this share of the signal's span are drawn in place of the close-up, where they would not be visible."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One axis of one field of one sensor."""

    field: str
    unit: str
    axis: str
    index: tuple[int, ...]


def plottable(sensor: SensorRecording) -> bool:
    """Return whether a recorded sensor has values that this module can draw: images, or numbers over time."""
    maps = map_fields(sensor)
    least = 1 if any(map(picture_kind, maps)) else 2
    return bool(_rows(sensor) or maps) and len(sensor.time) >= least


def imu_figure(recording: Recording, path: str | os.PathLike[str], env: int = 0) -> Path:
    """Draw the IMUs of a recording; see `plot_recording`."""
    return plot_recording(recording, path, kind="imu", env=env)


def plot_recording(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    kind: str | None = None,
    env: int = 0,
) -> Path:
    """Draw true against measured values over time, and return the picture's path.

    At most three sensors with six axes each are drawn, and omissions are noted in the picture; choose with `names`.
    Scans, images, point clouds and skins are drawn as maps instead, see `sensorium.view.maps`.

    Args:
        recording: result of `sensorium.record.load` or `NpzRecorder.recording`.
        path: the file; its suffix selects the format, e.g. ``.png`` or ``.svg``.
        names: sensors to draw; None for all that can be drawn.
        kind: draw only sensors of this kind.
        env: id of the environment.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
        UnknownNameError: no such sensor, kind or recorded environment.
    """
    sensors = [recording[name] for name in (names if names is not None else recording)]
    drawable = [each for each in sensors if plottable(each) and kind in (None, each.info.get("kind"))]
    if not drawable:
        what = "sensor to draw" if kind is None else "kind of sensor to draw"
        known = {str(each.info.get("kind")) for each in sensors if plottable(each)}
        raise UnknownNameError(what, kind or "any", known)
    shown = drawable[:MAX_SENSORS]
    maps = [map_strips(sensor, _maps(sensor), column_of(sensor, env)) for sensor in shown]
    rows = [[] if strips else _rows(sensor) for sensor, strips in zip(shown, maps, strict=True)]
    room = max((maps_inches(strips) for strips in maps if strips), default=0.0)
    height: float = max((min(len(each), MAX_ROWS) for each in rows if each), default=0)
    height = max(height, (room - FRAME) / LINE)

    widths = [MAP_WIDTH if specs else WIDTH for specs in maps]
    figure = blank_figure(max(MAP_WIDTH, sum(widths)), FRAME + LINE * height)
    columns = figure.subfigures(1, len(shown), squeeze=False, width_ratios=widths)[0]
    for subfigure, sensor, axes, strips in zip(columns, shown, rows, maps, strict=True):
        if strips:
            draw_maps(subfigure, sensor, strips, column_of(sensor, env))
        else:
            _draw_sensor(subfigure, sensor, axes[:MAX_ROWS], column_of(sensor, env), height, len(axes) - MAX_ROWS)
    left_out = [sensor.name for sensor in drawable[MAX_SENSORS:]]
    if left_out:
        text = f"not drawn: {', '.join(left_out)}"
        figure.text(0.995, 0.004, text, ha="right", va="bottom", fontsize=7, color=FAINT)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor=PAPER)
    return path


def _maps(sensor: SensorRecording) -> list[Spec]:
    """Return the fields to draw as maps; empty if a distance or height is drawn as lines, which is more informative."""
    roles = {spec["name"]: spec.get("role") for spec in sensor.info.get("fields", ())}
    return [] if any(roles[row.field] == "range" for row in _rows(sensor)) else map_fields(sensor)


def _rows(sensor: SensorRecording) -> list[_Row]:
    """Return the axes that can be drawn, of floating-point fields with at most nine values per item.

    For a field with an axis of items (mounts, joints, target frames), vectors are those of the first item, and scalars
    those of the first few, so that every field is represented. Ranges come first; for ranges of whole mounts, their
    rays are omitted.
    """
    fields = []
    for spec in sensor.info.get("fields", ()):
        axes, shape = list(spec["axes"][1:]), list(spec["shape"])
        if axes[:1] == ["event"] or (is_skin(spec) and int(np.prod(shape)) > MAX_NUMBERS):
            continue  # not a value at every time, or a map
        items = 0
        if axes and _is_item_axis(axes[0], shape[0], len(shape)):
            items, axes, shape = shape[0], axes[1:], shape[1:]
        kind, skin = np.dtype(spec["dtype"]).kind, is_skin(spec)
        fits = kind == "f" or (kind == "b" and skin)
        fits = fits and (len(shape) <= 1 or skin) and int(np.prod(shape)) <= MAX_NUMBERS
        fits = fits and not (spec["axes"][1:2] == ["ray"] and items > MAX_NUMBERS)
        if fits and spec["name"] in sensor.measured and (items or 0 not in spec["shape"]):
            fields.append((spec, axes, shape, items))
    if any(_is_range(spec) and "ray" not in spec["axes"] for spec, *_ in fields):
        fields = [each for each in fields if "ray" not in each[0]["axes"]]
    fields.sort(key=lambda each: not _is_range(each[0]))
    share = max(1, MAX_ROWS // max(len(fields), 1))
    rows: list[_Row] = []
    for k, (spec, axes, shape, items) in enumerate(fields):
        most = max(1, MAX_ROWS - len(fields) + 1) if k == 0 and _is_range(spec) else share
        shown = min(items, 1 if shape else most)
        for item in range(max(shown, 1)):
            lead = (item,) if items else ()
            name = _item_name(sensor, spec["axes"][1], item, items, named=not shape) if items else ""
            size = shape[0] if shape else 1
            labels = (list(axes[0]) if len(axes[0]) == size else [str(i) for i in range(size)]) if shape else [""]
            if axes == ["lla"]:
                labels = ["latitude", "longitude", "altitude"]
            if axes == ["ray"]:
                labels = [f"ray {i}" for i in range(size)]
            if len(shape) > 1:  # a small grid: labels are positions in it
                labels = [",".join(map(str, place)) for place in np.ndindex(*shape)]
            units = spec["unit"].split(", ")
            units = units if len(units) == len(labels) else [spec["unit"]] * len(labels)
            for place, label, unit in zip(np.ndindex(*shape), labels, units, strict=True):
                rows.append(_Row(spec["name"], unit, " ".join(filter(None, (name, label))), (*lead, *place)))
    return rows


def _is_range(spec: Spec) -> bool:
    return spec.get("role") == "range"


def _is_item_axis(word: str, size: int, axes: int) -> bool:
    """Return whether an axis counts items, each with its own values, instead of the components of one vector."""
    return word in ("mount", "joint", "target", "ray") or (axes == 2 and len(word) != size)


def _item_name(sensor: SensorRecording, word: str, item: int, items: int, *, named: bool) -> str:
    """Return the name of one item, if recorded; for mounts only if several can be drawn."""
    if word == "mount" and named and len(sensor.info.get("mounts", ())) == items:
        return str(sensor.info["mounts"][item])
    for value in sensor.info.get("constants", {}).values():
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == items:
            return str(value[item])
    return "" if word == "mount" else f"{word} {item}"


def _draw_sensor(
    figure: Any, sensor: SensorRecording, rows: Sequence[_Row], env: int, height: float, more: int
) -> None:
    """Draw one sensor: over the whole time on the left, the close-up on the right."""
    inches = figure.figure.get_figheight() if hasattr(figure, "figure") else FRAME + LINE * height
    top, bottom = 1.0 - 0.86 / inches, 0.52 / inches
    bottom += (top - bottom) * (1.0 - len(rows) / height)
    grid = figure.add_gridspec(
        len(rows), 2, width_ratios=(1.75, 1.0), left=0.145, right=0.985, top=top, bottom=bottom, hspace=0.24,
        wspace=0.24,
    )  # fmt: skip
    captures, arrivals = sensor.captures(env), sensor.arrivals(env)
    true_time, seen = sensor.truth_time[captures, env], sensor.time[arrivals]
    sensed = sensor.capture_time[arrivals, env]
    end = float(sensor.time[-1])
    window = _window(sensor, rows, captures, env)
    for i, row in enumerate(rows):
        truth = sensor.truth[row.field][(captures, env, *row.index)].astype(np.float64)
        measured = sensor.measured[row.field][(arrivals, env, *row.index)].astype(np.float64)
        wide, close = figure.add_subplot(grid[i, 0]), figure.add_subplot(grid[i, 1])
        held_time, held = np.append(seen, end), np.append(measured, measured[-1:])
        for axes, strength in ((wide, 1.0), (close, 1.5)):
            axes.step(held_time[: len(held)], held, where="post", color=MEASURED, lw=1.5, label="measured")
            axes.plot(true_time, truth, color=TRUTH, lw=0.65 * strength, label="true")
            tidy(axes, is_last=i == len(rows) - 1)
        wide.set_xlim(true_time[0], end)
        wide.axvspan(*window, color="#f0c94a", alpha=0.35, lw=0)
        label = f"{row.field}\n{row.axis + '  ' if row.axis else ''}[{unit_text(row.unit)}]"
        longest = max(len(line) for line in label.split("\n"))
        wide.set_ylabel(label, fontsize=8 if longest <= 15 else 120 / longest, color=INK)
        wide.yaxis.set_label_coords(-0.155, 0.5)
        values = sensor.truth[row.field][captures, env]
        scale = np.abs(values.astype(np.float64))
        least = 1.0 if values.dtype == bool else 1e-5 * float(scale[np.isfinite(scale)].max(initial=0.0))
        _frame(wide, np.concatenate((truth, measured)), least)
        pairs = _errors(sensor, row, env)
        if _is_hidden(pairs[1], truth, (sensed, seen)):
            close.clear()
            _draw_errors(close, pairs, window)
            tidy(close, is_last=i == len(rows) - 1)
        else:
            _close_up(close, window, (true_time, truth), (sensed, seen, measured), least)
        close.set_title(_summary(pairs[1]), fontsize=7, color=FAINT, loc="right", pad=2.5)
        if i == 0:
            handles = wide.get_legend_handles_labels()
            length = f"{1e3 * (window[1] - window[0]):.0f} ms close-up, or error"
            close.text(0.0, 1.0, length, transform=_above(close, 15), fontsize=8, color=INK, va="bottom")
            wide.legend(
                *handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8,
                borderaxespad=0.1, handlelength=1.6, labelcolor=INK,
            )  # fmt: skip
        if i == len(rows) - 1:
            wide.set_xlabel("time [s]", fontsize=8, color=INK)
            close.set_xlabel("time [s]", fontsize=8, color=INK)
    several = len({row.index[0] for row in rows if row.index}) > 1 and "mounts" in sensor.info
    name, facts = heading(sensor, env, several=several)
    figure.text(0.145, 1.0 - 0.1 / inches, name, fontsize=12, fontweight="bold", color=INK, va="top")
    if more > 0:
        facts += f" · {more} more axes not drawn"
    figure.text(0.145, 1.0 - 0.35 / inches, facts, fontsize=8.5, color=INK, va="top")


def _close_up(
    axes: Any,
    window: tuple[float, float],
    true: tuple[Array, Array],
    measured: tuple[Array, Array, Array],
    least: float,
) -> None:
    """Add captures, arrivals and the lines between them, and set limits to the window."""
    (true_time, truth), (sensed, seen, values) = true, measured
    near = (seen >= window[0]) & (seen <= window[1])
    if (seen - sensed)[near].max(initial=0.0) > 0.0:
        axes.hlines(values[near], sensed[near], seen[near], color=MEASURED, lw=0.9, alpha=0.45)
    axes.plot(seen[near], values[near], "o", color=MEASURED, ms=3.0, mew=0.0)
    inside = (true_time >= window[0]) & (true_time <= window[1])
    axes.plot(true_time[inside], truth[inside], ".", color=TRUTH, ms=2.6)
    axes.set_xlim(*window)
    _frame(axes, np.concatenate((truth[inside], values[near])), least)


def _frame(axes: Any, values: Array, least: float) -> None:
    """Set the vertical limits to the values, with a minimum span that flattens rounding errors."""
    values = values[np.isfinite(values)]
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    middle, span = 0.5 * (low + high), max(high - low, least, 1e-12)
    axes.set_ylim(middle - 0.6 * span, middle + 0.6 * span)


def _errors(sensor: SensorRecording, row: _Row, env: int) -> tuple[Array, Array]:
    """Return capture times, s, and measured minus true values of the same captures."""
    times, measured, truth = sensor.paired(row.field, env)
    column = (slice(None), *row.index)
    pairs: Array = np.stack((measured[column], truth[column])).astype(np.float64)  # type: ignore[index]
    is_known = np.isfinite(pairs).all(axis=0)
    return times[is_known], pairs[0, is_known] - pairs[1, is_known]


def _summary(errors: Array) -> str:
    """Return a text on errors; empty if there are none."""
    return f"error {errors.mean():+.2g} ± {errors.std():.2g}" if errors.any() else ""


def _is_hidden(errors: Array, truth: Array, times: tuple[Array, Array]) -> bool:
    """Return whether a measured line would cover the true one: errors are small, and values arrive at once."""
    sensed, seen = times
    span = float(np.ptp(truth[np.isfinite(truth)])) if np.isfinite(truth).any() else 0.0
    return bool(errors.any()) and float(np.abs(errors).max()) < HIDDEN * span and not (seen > sensed).any()


def _draw_errors(axes: Any, pairs: tuple[Array, Array], window: tuple[float, float]) -> None:
    """Draw the errors of a time span."""
    times, errors = pairs
    inside = (times >= window[0]) & (times <= window[1])
    axes.axhline(0.0, color=TRUTH, lw=0.8)
    axes.plot(times[inside], errors[inside], "o-", color=MEASURED, lw=0.9, ms=2.6, mew=0.0)
    axes.text(0.02, 0.03, "measured - true", transform=axes.transAxes, fontsize=7, color=FAINT)
    axes.set_xlim(*window)
    _frame(axes, np.append(errors[inside], 0.0), 0.0)


def _above(axes: Any, points: float) -> Any:
    """Return the transform of coordinates in `axes`, moved up."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transAxes + ScaledTranslation(0.0, points / 72.0, axes.figure.dpi_scale_trans)


def _window(sensor: SensorRecording, rows: Sequence[_Row], captures: Array, env: int) -> tuple[float, float]:
    """Return the close-up window: the part of the last two thirds with the most change, after the start has settled."""
    time = sensor.truth_time[captures, env]
    first, end = float(time[0]), float(sensor.time[-1])
    length = min(ZOOM, max(end - first, 1e-9))
    change = np.zeros(len(time))
    for row in rows:
        truth = sensor.truth[row.field][(captures, env, *row.index)].astype(np.float64)
        truth[~np.isfinite(truth)] = np.nan
        spread = float(np.nanstd(truth)) if np.isfinite(truth).any() else 0.0
        if spread > 0.0:
            change[1:] += np.nan_to_num(np.abs(np.diff(truth))) / spread
    total = np.cumsum(change)
    starts = time[(time >= first + (end - first) / 3.0) & (time <= end - length)]
    if not len(starts):
        return end - length, end
    gained = np.interp(starts + length, time, total) - np.interp(starts, time, total)
    best = float(starts[int(np.argmax(gained))])
    return best, best + length
