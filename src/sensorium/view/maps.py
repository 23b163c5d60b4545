"""Maps of fields with many values per item: scans, images, point clouds and skins, true and measured.

A scan is drawn over time: the measured value ray by ray, and its difference from the truth of the same capture. Images
and points show the last capture; see `sensorium.view.taxels` for taxels, and `sensorium.view.images` for images that
equal the truth. Misses are grey, or dark if only the measured value is a miss. Long recordings and wide scans are
thinned before drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.images import IN_ROW, draw_row, picture_kind
from sensorium.view.panels import (
    Spec,
    captures_of,
    color_bar,
    difference_of,
    error_panel,
    label_scan,
    own_axes,
    own_shape,
    panel,
    panels_of,
    scan_of,
    shown_values,
    span_of,
)
from sensorium.view.style import FAINT, TRUTH, heading, name_and_unit, unit_text, write_heading
from sensorium.view.taxels import draw_skin, is_skin

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

MAX_NUMBERS = 9
"""Maximum number of values per item that are drawn as lines; more are drawn as a map."""
MAX_MAPS = 3
"""Maximum number of fields per sensor that are not images."""
MAX_POINTS = 4000
"""Maximum number of drawn points of a cloud."""
HEADING = 0.6
"""Height of the heading, inches."""
HEIGHTS = {"taxels": 2.9, "range": 2.5, "image": 2.4, "point": 3.8}
"""Height of a map with its margins, inches, by kind in drawing order."""


def map_fields(sensor: SensorRecording) -> list[Spec]:
    """Return the fields that are drawn as maps, in drawing order: skins, scans, images, and one of points.

    These are fields of taxels with more than nine values per env, of role ``range`` and ``point`` with more than nine
    items per mount, images, and boxes in images.
    """
    found = [spec for spec in sensor.info.get("fields", ()) if spec["name"] in sensor.measured and _kind(spec)]
    found.sort(key=lambda spec: [*HEIGHTS].index(_kind(spec)))
    points = [spec for spec in found if _kind(spec) == "point"]
    return [spec for spec in found if spec not in points[1:]]


def _kind(spec: Spec) -> str:
    """Return the kind of map for a field; empty if it is not drawn as a map."""
    shape, picture, role = own_shape(spec), picture_kind(spec), spec.get("role")
    if 0 in shape or spec["axes"][1:2] == ["event"]:
        return ""
    if is_skin(spec):
        return "taxels" if np.prod(spec["shape"]) > MAX_NUMBERS else ""
    if picture:
        return "point" if picture == "points" else "image"
    if np.dtype(spec["dtype"]).kind != "f":
        return ""
    if role == "point" and len(shape) > 1 and shape[-1] == 3:
        return "point" if np.prod(shape[:-1]) > MAX_NUMBERS else ""
    return "range" if role == "range" and np.prod(shape) > MAX_NUMBERS else ""


def map_strips(sensor: SensorRecording, specs: Sequence[Spec], env: int) -> list[Sequence[Spec]]:
    """Return the fields of each strip of maps: one field, or up to three images that equal the truth.

    Args:
        sensor: the recorded sensor.
        specs: the result of `map_fields`.
        env: column of the env.
    """
    others = [spec for spec in specs if _kind(spec) != "image"][:MAX_MAPS]
    images = [spec for spec in specs if _kind(spec) == "image"]
    alone = [spec for spec in images if _has_error(sensor, spec, env)]
    equal = [spec for spec in images if spec not in alone]
    in_rows = [equal[first : first + IN_ROW] for first in range(0, len(equal), IN_ROW)]
    maps, points = ([[spec] for spec in others if (_kind(spec) == "point") == is_last] for is_last in (False, True))
    return [*maps, *([spec] for spec in alone), *in_rows, *points]


def _has_error(sensor: SensorRecording, spec: Spec, env: int) -> bool:
    """Return whether the last image of distances or ids differs from the truth."""
    if picture_kind(spec) not in ("depth", "ids") or not len(sensor.pairs(env)[0]):
        return False
    return not np.array_equal(*_last(sensor, spec, env), equal_nan=np.dtype(spec["dtype"]).kind == "f")


def _last(sensor: SensorRecording, spec: Spec, env: int) -> tuple[Array, Array]:
    """Return the last capture that arrived, measured and true."""
    (*_, arrival), (*_, capture) = sensor.pairs(env)
    name = spec["name"]
    return captures_of(sensor.measured[name], arrival, env, spec), captures_of(sensor.truth[name], capture, env, spec)


def maps_inches(strips: Sequence[Sequence[Spec]]) -> float:
    """Return the height of these strips of maps, inches."""
    return HEADING + sum(HEIGHTS[_kind(specs[0])] for specs in strips)


def draw_maps(
    figure: Any, sensor: SensorRecording, strips: Sequence[Sequence[Spec]], env: int, at: float | None = None
) -> None:
    """Draw one sensor's maps below each other.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor.
        strips: the result of `map_strips`.
        env: column of the env.
        at: time of images, clouds and skins, s; None for the last sample, and for the largest load of a skin.
    """
    name, facts = heading(sensor, env)
    left_out = len(map_fields(sensor)) - sum(map(len, strips))
    whole, sensor = sensor, sensor if at is None else sensor.between(end=at)
    arrivals = sensor.pairs(env)[0]
    if any(_kind(specs[0]) == "image" for specs in strips) and len(arrivals):
        facts += f" · images at t = {float(sensor.capture_time[arrivals[-1], env]):.4g} s"
    if left_out:
        facts += f" · {left_out} more fields not drawn"
    write_heading(figure, name, facts)
    draw = {"image": _draw_image, "point": _draw_points}
    parts = figure.subfigures(len(strips) + 1, 1, height_ratios=[HEADING, *(HEIGHTS[_kind(s[0])] for s in strips)])
    for part, specs in zip(parts[1:], strips, strict=True):
        kind = _kind(specs[0])
        if not len(arrivals):
            text = f"{', '.join(spec['name'] for spec in specs)}: no sample arrived"
            part.text(0.5, 0.5, text, ha="center", fontsize=9, color=FAINT)
        elif kind == "taxels":
            draw_skin(part, whole, specs[0], env, None if at is None else len(arrivals) - 1)
        elif kind == "range":
            _draw_scan(part, whole, specs[0], env)
        elif kind == "image" and not _has_error(sensor, specs[0], env):
            draw_row(part, sensor, specs, env, arrivals[-1])
        else:
            draw[kind](part, sensor, specs[0], env)


# The three kinds ------------------------------------------------------------------------------------------------------


def _draw_scan(figure: Any, sensor: SensorRecording, spec: Spec, env: int) -> None:
    """Draw time against ray: measured on the left, its error on the right."""
    arrivals, captures = sensor.pairs(env)
    rays, word = own_shape(spec)[0], own_axes(spec)[0]
    chosen, lines, options = scan_of(sensor.capture_time[arrivals, env], rays)
    first: Any = (slice(None), lines, *(0,) * (len(own_shape(spec)) - 1))  # of several returns per ray
    seen, there = (
        shown_values(sensor, spec, captures_of(branch[spec["name"]], rows[chosen], env, spec)[first])
        for branch, rows in ((sensor.measured, arrivals), (sensor.truth, captures))
    )
    error, text = difference_of(spec, seen, there)
    thinned = f", {len(lines)} of {rays} {word}s" if len(lines) < rays else ""
    panels = panels_of(figure, (1.0, 1.0))
    panel(panels[0], seen.T, f"{name_and_unit(spec)}, measured{thinned}", span_of(seen, there), "viridis", **options)
    error_panel(panels[1], error.T, text, **options)
    label_scan(panels, word)


def _draw_image(figure: Any, sensor: SensorRecording, spec: Spec, env: int) -> None:
    """Draw the last capture: true, measured, error; ids have distinct colours, and a count of differences as error."""
    measured, truth = (values[..., 0] for values in _last(sensor, spec, env))
    time = float(sensor.capture_time[sensor.pairs(env)[0][-1], env])
    panels = panels_of(figure, (1.0, 1.0, 1.0))
    if np.dtype(spec["dtype"]).kind == "f":
        colors, seen, there = "viridis_r", *(shown_values(sensor, spec, each) for each in (measured, truth))
        error, text = difference_of(spec, seen, there)
    else:
        colors, seen, there = "tab20", *(each.astype(np.float64) for each in (measured, truth))
        error, text = (seen != there).astype(np.float64), f"{int((seen != there).sum())} of {seen.size} differ"
    limits = span_of(seen, there)
    panel(panels[0], there, f"{name_and_unit(spec)}, true", limits, colors)
    panel(panels[1], seen, f"measured, t = {time:.4g} s", limits, colors)
    error_panel(panels[2], error, text)
    for axes in panels:
        axes.tick_params(labelbottom=False, labelleft=False, length=0.0)


def _draw_points(figure: Any, sensor: SensorRecording, spec: Spec, env: int) -> None:
    """Draw the last capture from above, coloured by height, and from the side."""
    measured, truth = (values.reshape(-1, 3).astype(np.float64) for values in _last(sensor, spec, env))
    words, frame = ("x", "y", "z"), spec.get("frame")
    if spec.get("role") == "image" and frame == "sensor":  # axes right, down, forward
        measured, truth = (np.stack([at[:, 2], -at[:, 0], -at[:, 1]], axis=1) for at in (measured, truth))
        words = ("forward", "left", "up")
    count, every = len(measured), -(-len(measured) // MAX_POINTS)
    measured, truth = (each[::every][np.isfinite(each[::every]).all(axis=1)] for each in (measured, truth))
    time = float(sensor.capture_time[sensor.pairs(env)[0][-1], env])
    top, side = panels_of(figure, (1.25, 1.0), 0.93)
    both = np.concatenate((measured, truth))
    if not len(both):
        top.set_title(f"{spec['name']}: all {count} miss, t = {time:.4g} s")
        return
    low, high = span_of(both[:, 2])
    ends = np.array([-1.0, 1.0])
    size = float(np.clip(9000.0 / max(len(measured), 1), 2.0, 26.0))
    for axes, second in ((top, 1), (side, 2)):
        drawn = axes.scatter(
            measured[:, 0], measured[:, second], c=measured[:, 2], s=size, lw=0.0, cmap="viridis", vmin=low,
            vmax=high, label="measured",
        )  # fmt: skip
        axes.scatter(truth[:, 0], truth[:, second], color="#7d8790", s=0.16 * size, lw=0.0, label="true")
        axes.set_xlabel(f"{words[0]} [{unit_text(spec['unit'])}]")
        axes.set_ylabel(f"{words[second]} [{unit_text(spec['unit'])}]", labelpad=1.0)
        axes.grid(True)
        spans = np.array([span_of(both[:, column], beyond=1.0) for column in (0, second)])
        middle, half = spans.mean(axis=1), 0.56 * np.ptp(spans, axis=1)
        if axes is top:  # both axes have the same scale
            box = axes.get_window_extent().size
            half = box * (half / box).max()
        axes.set(xlim=middle[0] + half[0] * ends, ylim=middle[1] + half[1] * ends)
    color_bar(drawn, side)
    if frame not in ("world", ""):
        top.plot(0.0, 0.0, "+", color=TRUTH, ms=9.0, mew=1.4)  # the sensor
    missed = count - len(measured) * every if every == 1 else 0
    left_out = f", {missed} missed" if missed else ""
    where = f"{frame} frame" if frame else "unknown frame"
    top.set_title(f"{spec['name']} from above ({where}), t = {time:.4g} s")
    side.set_title(f"from the side: {count - missed} points{left_out}")
    side.legend(loc="upper right", ncols=2, fontsize=7.5, handletextpad=0.2, columnspacing=0.8)
