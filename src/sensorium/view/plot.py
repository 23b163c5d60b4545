"""Pictures of a recording: true and measured, one column per sensor, one row per axis, each with a close-up.

The measured line is a step function: it shows a reader's value at each instant, so latency appears as a lag behind the
truth. In the close-up, dots are arrivals, and a faint line connects each to the instant of its capture. The numbers
above it are mean and standard deviation of measured minus true at equal captures, which excludes latency. Errors that
are too small to be seen there are drawn in its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sensorium.errors import UnknownNameError
from sensorium.spec import VECTOR_AXES
from sensorium.view.fields import LineRow, draw_lines, lines_inches
from sensorium.view.figures import labels_of
from sensorium.view.images import picture_kind
from sensorium.view.maps import MAX_NUMBERS, draw_maps, map_fields, map_strips, maps_inches
from sensorium.view.panels import Spec, own_shape
from sensorium.view.style import FAINT, column_of, heading, picture, write_heading
from sensorium.view.taxels import is_skin

if TYPE_CHECKING:
    from sensorium.record import Recording, SensorRecording

MAX_SENSORS = 3
"""Maximum number of sensors in one picture; more would be too narrow."""
MAX_ROWS = 6
"""Maximum number of axes per sensor."""
WIDTH, MAP_WIDTH = 5.6, 7.0
"""Width of a sensor's lines and maps, inches."""
ITEMS = ("mount", "joint", "target")
"""Axes that count items, each with its own values, instead of the components of one vector."""
ZOOM = 0.2
"""Duration of the close-up, s."""


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
    shown, dt = drawable[:MAX_SENSORS], float(recording.description["dt"])
    rows = [_rows(sensor) for sensor in shown]
    maps = [map_strips(sensor, _maps(sensor), column_of(sensor, env)) for sensor in shown]
    heights = [
        maps_inches(strips) if strips else lines_inches(min(len(own), MAX_ROWS))
        for strips, own in zip(maps, rows, strict=True)
    ]
    widths = [MAP_WIDTH if strips else WIDTH for strips in maps]
    with picture(path, max(MAP_WIDTH, sum(widths)), max(heights)) as figure:
        columns = figure.subfigures(1, len(shown), squeeze=False, width_ratios=widths)[0]
        for column, sensor, own, strips, height in zip(columns, shown, rows, maps, heights, strict=True):
            part = column.subfigures(2, 1, height_ratios=(height, max(heights) - height + 1e-6))[0]
            place = column_of(sensor, env)
            if strips:
                draw_maps(part, sensor, strips, place)
                continue
            several = any(row.element >= np.prod(own_shape(row.spec)) for row in own)
            (name, facts), more = heading(sensor, place, several=several), len(own) - MAX_ROWS
            write_heading(part, name, facts + (f" · {more} more axes not drawn" if more > 0 else ""))
            draw_lines(part, sensor, own[:MAX_ROWS], place, dt, _window(sensor, own[:MAX_ROWS], place))
        if left_out := [sensor.name for sensor in drawable[MAX_SENSORS:]]:
            text = f"not drawn: {', '.join(left_out)}"
            figure.text(0.995, 0.99, text, ha="right", va="top", fontsize=7, color=FAINT)
    return Path(path)


def _maps(sensor: SensorRecording) -> list[Spec]:
    """Return the fields to draw as maps; empty if a distance or height is drawn as lines, which is more informative."""
    return [] if any(row.spec.get("role") == "range" for row in _rows(sensor)) else map_fields(sensor)


def _rows(sensor: SensorRecording) -> list[LineRow]:
    """Return the elements that can be drawn, of floating-point fields with at most nine values per item.

    The first elements of each field are drawn, at least one vector, so that every field is represented. Ranges come
    first; for ranges of whole mounts, their rays are omitted.
    """
    fields = []
    for spec in sensor.info.get("fields", ()):
        axes, shape, kind = spec["axes"][1:], spec["shape"], np.dtype(spec["dtype"]).kind
        sizes = [size for axis, size in zip(axes, shape, strict=True) if axis not in ITEMS]
        skin = is_skin(spec)
        numbers = int(np.prod(shape if skin else sizes if "ray" in axes else sizes[-1:]))
        fits = (kind == "f" and len(sizes) < 3) or skin
        is_drawn = fits and 0 < numbers <= MAX_NUMBERS and spec["axes"][1:2] != ["event"]
        if is_drawn and spec["name"] in sensor.measured and 0 not in spec["shape"]:
            fields.append(spec)
    if any(spec.get("role") == "range" and "ray" not in spec["axes"] for spec in fields):
        fields = [spec for spec in fields if "ray" not in spec["axes"]]
    fields.sort(key=lambda spec: spec.get("role") != "range")
    share = max(1, MAX_ROWS // max(len(fields), 1))
    rows = []
    for k, spec in enumerate(fields):
        is_first = k == 0 and spec.get("role") == "range"
        count = max(MAX_ROWS - len(fields) + 1, 1) if is_first else share
        size = spec["shape"][-1] if spec["axes"][-1] in VECTOR_AXES else 1
        count = max(count // size, 1) * size
        labels = labels_of(sensor.info, spec)[:count]
        rows += [LineRow(spec, element, f"{spec['name']}\n{label}") for element, label in enumerate(labels)]
    return rows


def _window(sensor: SensorRecording, rows: Sequence[LineRow], env: int) -> tuple[float, float]:
    """Return the close-up window: the part of the last two thirds with the most change, after the start has settled."""
    captures = sensor.captures(env)
    time = sensor.truth_time[captures, env]
    first, end = float(time[0]), float(sensor.time[-1])
    length = min(ZOOM, max(end - first, 1e-9))
    change = np.zeros(len(time))
    for row in rows:
        truth = row.values(sensor, sensor.truth, captures, env)
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
