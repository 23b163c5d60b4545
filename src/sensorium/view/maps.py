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
    color_bar,
    difference_of,
    error_panel,
    inches_of,
    limit,
    name_and_unit,
    one_capture,
    own_shape,
    panel,
    rays_of,
    row_of_panels,
    shown_values,
    span_of,
)
from sensorium.view.style import FAINT, INK, TRUTH, heading, unit_text
from sensorium.view.taxels import draw_skin, is_skin

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

MAX_NUMBERS = 9
"""Maximum number of values per item that are drawn as lines; more are drawn as a map."""
MAX_MAPS = 3
"""Maximum number of fields per sensor that are not images."""
MAX_COLUMNS, MAX_LINES = 96, 80
"""Maximum numbers of drawn captures and rays of a scan, three by two pixels each; finer noise makes large files."""
MAX_POINTS = 4000
"""Maximum number of drawn points of a cloud."""
HEADING, FOOT = 0.6, 0.05
"""Margins above and below the maps, inches."""
HEIGHTS = {"taxels": 2.9, "range": 2.5, "image": 2.4, "point": 3.8}
"""Height of a map with its margins, inches."""


def map_fields(sensor: SensorRecording) -> list[Spec]:
    """Return the fields that are drawn as maps, in drawing order: skins, scans, images, and one of points.

    These are fields of taxels with more than nine values per env, of role ``range`` and ``point`` with more than nine
    items per mount, images, and boxes in images.
    """
    found: dict[str, list[Spec]] = {kind: [] for kind in HEIGHTS}
    for spec in sensor.info.get("fields", ()):
        kind, shape = _kind(spec), own_shape(spec)
        if kind not in found or spec["name"] not in sensor.measured or spec["axes"][1:2] == ["event"] or 0 in shape:
            continue
        is_float = np.dtype(spec["dtype"]).kind == "f"
        items = {"point": shape[:-1], "taxels": spec["shape"]}.get(kind, shape)
        if kind == "point":
            fits = is_float and len(shape) > 1 and shape[-1] == 3
        elif kind == "image":
            fits = True
        else:
            fits = is_float or kind == "taxels"
        if fits and (kind == "image" or int(np.prod(items)) > MAX_NUMBERS):
            found[kind].append(spec)
    return found["taxels"] + found["range"] + found["image"] + found["point"][:1]


def _kind(spec: Spec) -> str:
    """Return the kind of map for a field."""
    picture = picture_kind(spec)
    if is_skin(spec):
        return "taxels"
    return "point" if picture == "points" else "image" if picture else str(spec.get("role")).replace("image", "")


def map_strips(sensor: SensorRecording, specs: Sequence[Spec], env: int) -> list[Sequence[Spec]]:
    """Return the fields of each strip of maps: one field, or up to three images that equal the truth.

    Args:
        sensor: the recorded sensor.
        specs: the result of `map_fields`.
        env: column of the env.
    """
    pairs = sensor.pairs(env)
    others = [spec for spec in specs if _kind(spec) != "image"][:MAX_MAPS]
    images = [spec for spec in specs if _kind(spec) == "image"]
    alone = [spec for spec in images if _has_error(sensor, spec, env, pairs)]
    equal = [spec for spec in images if spec not in alone]
    in_rows = [equal[first : first + IN_ROW] for first in range(0, len(equal), IN_ROW)]
    maps, points = ([[spec] for spec in others if (_kind(spec) == "point") == is_last] for is_last in (False, True))
    return [*maps, *([spec] for spec in alone), *in_rows, *points]


def _has_error(sensor: SensorRecording, spec: Spec, env: int, pairs: tuple[Array, Array]) -> bool:
    """Return whether the last image of distances or ids differs from the truth."""
    if picture_kind(spec) not in ("depth", "ids") or not len(pairs[0]):
        return False
    measured, truth = (
        one_capture(branch[spec["name"]], rows[-1], env, spec)
        for branch, rows in zip((sensor.measured, sensor.truth), pairs, strict=True)
    )
    return not np.array_equal(measured, truth, equal_nan=np.dtype(spec["dtype"]).kind == "f")


def maps_inches(strips: Sequence[Sequence[Spec]]) -> float:
    """Return the height of these strips of maps, inches."""
    return HEADING + FOOT + sum(HEIGHTS[_kind(specs[0])] for specs in strips)


def draw_maps(figure: Any, sensor: SensorRecording, strips: Sequence[Sequence[Spec]], env: int) -> None:
    """Draw one sensor's maps below each other.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor.
        strips: the result of `map_strips`.
        env: column of the env.
    """
    inches = inches_of(figure)
    name, facts = heading(sensor, env)
    left_out = len(map_fields(sensor)) - sum(map(len, strips))
    arrivals, captures = sensor.pairs(env)
    if any(_kind(specs[0]) == "image" for specs in strips) and len(arrivals):
        facts += f" · images at t = {float(sensor.capture_time[arrivals[-1], env]):.4g} s"
    if left_out:
        facts += f" · {left_out} more fields not drawn"
    figure.text(0.09, 1.0 - 0.1 / inches, name, fontsize=12, fontweight="bold", color=INK, va="top")
    figure.text(0.09, 1.0 - 0.35 / inches, facts, fontsize=8.5, color=INK, va="top")
    draw = {"taxels": draw_skin, "range": _draw_scan, "image": _draw_image, "point": _draw_points}
    top = inches - HEADING
    for specs in strips:
        kind = _kind(specs[0])
        bottom = top - HEIGHTS[kind]
        room = bottom / inches, top / inches
        if not len(arrivals):
            text = f"{', '.join(spec['name'] for spec in specs)}: no sample arrived"
            figure.text(0.5, 0.5 * (bottom + top) / inches, text, ha="center", fontsize=9, color=FAINT)
        elif kind == "image" and not _has_error(sensor, specs[0], env, (arrivals, captures)):
            draw_row(figure, sensor, specs, env, arrivals[-1], room)
        else:
            draw[kind](figure, sensor, specs[0], env, (arrivals, captures), room)
        top = bottom


# The three kinds ------------------------------------------------------------------------------------------------------


def _draw_scan(
    figure: Any, sensor: SensorRecording, spec: Spec, env: int, pairs: tuple[Array, Array], room: tuple[float, float]
) -> None:
    """Draw time against ray: measured on the left, its error on the right."""
    arrivals, captures = pairs
    time = sensor.capture_time[arrivals, env]
    columns = min(len(time), MAX_COLUMNS)
    shown = np.linspace(time[0], time[-1], columns)
    step = (shown[-1] - shown[0]) / max(columns - 1, 1) or 1e-3
    chosen = np.searchsorted(time, shown + 0.5 * step, side="right") - 1  # the newest capture at that time
    rays = own_shape(spec)[0]
    lines = np.unique(np.linspace(0, rays - 1, min(rays, MAX_LINES)).round().astype(int))
    measured = rays_of(sensor.measured[spec["name"]], arrivals[chosen], env, spec, lines)
    truth = rays_of(sensor.truth[spec["name"]], captures[chosen], env, spec, lines)
    error, text = difference_of(sensor, spec, measured, truth)

    word = spec["axes"][-len(own_shape(spec))]
    thinned = f", {len(lines)} of {rays} {word}s" if len(lines) < rays else ""
    left, right = row_of_panels(figure, room, (1.0, 1.0))
    extent = (shown[0] - 0.5 * step, shown[-1] + 0.5 * step, 0.0, float(rays))
    options = {"aspect": "auto", "origin": "lower", "extent": extent, "interpolation": "nearest"}
    title = f"{name_and_unit(spec)}, measured{thinned}"
    panel(figure, left, shown_values(sensor, spec, measured).T, title, truth, options)
    error_panel(figure, right, error.T, text, options)
    for axes in (left, right):
        axes.set_xlabel("capture time [s]", fontsize=8, color=INK)
    left.set_ylabel(word, fontsize=8, color=INK)
    right.tick_params(labelleft=False)


def _draw_image(
    figure: Any, sensor: SensorRecording, spec: Spec, env: int, pairs: tuple[Array, Array], room: tuple[float, float]
) -> None:
    """Draw the last capture: true, measured, error; ids have distinct colours, and a count of differences as error."""
    arrivals, captures = pairs
    pick = (..., 0)
    measured = one_capture(sensor.measured[spec["name"]], arrivals[-1], env, spec)[pick]
    truth = one_capture(sensor.truth[spec["name"]], captures[-1], env, spec)[pick]
    time = float(sensor.capture_time[arrivals[-1], env])
    options = {"interpolation": "nearest"}
    panels = row_of_panels(figure, room, (1.0, 1.0, 1.0))
    is_id = np.dtype(spec["dtype"]).kind != "f"
    for axes, values, which in zip(panels, (truth, measured), ("true", "measured"), strict=False):
        title = f"{name_and_unit(spec)}, {which}" if which == "true" else f"{which}, t = {time:.4g} s"
        shown, reference = (
            each.astype(np.float64) if is_id else shown_values(sensor, spec, each) for each in (values, truth)
        )
        panel(figure, axes, shown, title, reference, options, colors="tab20" if is_id else "viridis_r")
    if is_id:
        differs = measured != truth
        text = f"{int(differs.sum())} of {differs.size} differ"
        error_panel(figure, panels[2], differs.astype(np.float64), text, options)
    else:
        error, text = difference_of(sensor, spec, measured, truth)
        error_panel(figure, panels[2], error, text, options)
    for axes in panels:
        axes.tick_params(labelbottom=False, labelleft=False, length=0.0)


def _draw_points(
    figure: Any, sensor: SensorRecording, spec: Spec, env: int, pairs: tuple[Array, Array], room: tuple[float, float]
) -> None:
    """Draw the last capture from above, coloured by height, and from the side."""
    arrivals, captures = pairs
    measured = one_capture(sensor.measured[spec["name"]], arrivals[-1], env, spec).reshape(-1, 3)
    truth = one_capture(sensor.truth[spec["name"]], captures[-1], env, spec).reshape(-1, 3)
    words = ("x", "y", "z")
    if spec.get("role") == "image" and spec.get("frame") == "sensor":  # axes right, down, forward
        measured, truth = (np.stack([at[:, 2], -at[:, 0], -at[:, 1]], axis=1) for at in (measured, truth))
        words = ("forward", "left", "up")
    count = len(measured)
    every = -(-count // MAX_POINTS)
    measured, truth = (values[::every].astype(np.float64) for values in (measured, truth))
    measured, truth = (values[np.isfinite(values).all(axis=1)] for values in (measured, truth))
    time = float(sensor.capture_time[arrivals[-1], env])
    top, side = row_of_panels(figure, room, (1.25, 1.0))
    both = np.concatenate((measured, truth))
    where = f"{spec['frame']} frame" if spec.get("frame") else "unknown frame"
    if not len(both):
        top.set_title(f"{spec['name']}: all {count} miss, t = {time:.4g} s", fontsize=8.5, color=INK, loc="left")
        return
    low, high = span_of(both[:, 2])
    size = float(np.clip(9000.0 / max(len(measured), 1), 2.0, 26.0))
    for axes, (first, second) in ((top, (0, 1)), (side, (0, 2))):
        drawn = axes.scatter(
            measured[:, first], measured[:, second], c=measured[:, 2], s=size, lw=0.0, cmap="viridis", vmin=low,
            vmax=high, label="measured",
        )  # fmt: skip
        axes.scatter(truth[:, first], truth[:, second], color="#7d8790", s=0.16 * size, lw=0.0, label="true")
        axes.set_xlabel(f"{words[0]} [{unit_text(spec['unit'])}]", fontsize=8, color=INK)
        axes.set_ylabel(f"{words[second]} [{unit_text(spec['unit'])}]", fontsize=8, color=INK, labelpad=1.0)
        axes.grid(True, color="#e6e9ec", lw=0.6)
        axes.set_axisbelow(True)
    color_bar(figure, drawn, side)
    limit(top, both[:, 0], both[:, 1], equal=True)
    limit(side, both[:, 0], both[:, 2], equal=False)
    if spec.get("frame") not in ("world", ""):
        top.plot(0.0, 0.0, "+", color=TRUTH, ms=9.0, mew=1.4)  # the sensor
    missed = count - len(measured) * every if every == 1 else 0
    text = f"{spec['name']} from above ({where}), t = {time:.4g} s"
    top.set_title(text, fontsize=8.5, color=INK, loc="left", pad=4.0)
    left_out = f", {missed} missed" if missed else ""
    side.set_title(f"from the side: {count - missed} points{left_out}", fontsize=8.5, color=INK, loc="left", pad=4.0)
    side.legend(
        loc="upper right", ncols=2, fontsize=7.5, labelcolor=INK, handletextpad=0.2, columnspacing=0.8, framealpha=0.8,
        edgecolor="none", borderaxespad=0.2,
    )  # fmt: skip
