"""Maps of fields with many numbers for one item: scans, images and clouds of points, true against measured.

A scan is drawn over time: ray by ray what was measured, and beside it how far that is from the truth of the same
capture. Of images and points the last capture is drawn. Misses are grey; where only the measured value misses, it is
dark. Long recordings and wide scans are thinned out before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.style import FAINT, INK, TRUTH, heading, unit_text

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

MOST_NUMBERS = 9
"""Numbers of one item that are lines still; more are a map."""
MAX_MAPS = 3
"""Fields of one sensor at most."""
MAX_COLUMNS, MAX_LINES = 96, 80
"""Captures and rays of a scan that are drawn at most, three by two pixels each: finer noise makes large files."""
MAX_POINTS = 4000
"""Points of a cloud that are drawn at most."""
MISS, LOST = "#d3d8dd", "#2b3640"
"""Colours of what meets nothing, and of what only the measured value misses."""
HEADING, FOOT = 0.6, 0.05
"""Room above and below the maps, inches."""
ABOVE, BELOW = 0.26, 0.46
"""Room for titles and labels of each, inches."""
HEIGHTS = {"range": 2.5, "image": 2.4, "point": 3.8}
"""Height of a map with these, inches."""

Spec = Mapping[str, Any]


def map_fields(sensor: SensorRecording) -> list[Spec]:
    """Return the fields that are maps, in the order in which they are drawn: scans, images, and one of points.

    These are fields of role ``range`` and ``point`` with more than nine items besides env and mount, and images with
    one channel.
    """
    found: dict[str, list[Spec]] = {role: [] for role in HEIGHTS}
    for spec in sensor.info.get("fields", ()):
        role, shape = spec.get("role"), _own_shape(spec)
        if role not in found or spec["name"] not in sensor.measured or spec["axes"][1:2] == ["event"] or 0 in shape:
            continue
        is_float = np.dtype(spec["dtype"]).kind == "f"
        items = shape[:-1] if role == "point" else shape
        if role == "point":
            fits = is_float and len(shape) > 1 and shape[-1] == 3
        elif role == "image":
            fits = len(shape) == 3 and shape[2] == 1 and np.dtype(spec["dtype"]).kind in "fiu"
        else:
            fits = is_float
        if fits and int(np.prod(items)) > MOST_NUMBERS:
            found[role].append(spec)
    return found["range"] + found["image"] + found["point"][:1]


def maps_inches(specs: Sequence[Spec]) -> float:
    """Return the height that maps of these fields take, inches."""
    return HEADING + FOOT + sum(HEIGHTS[spec["role"]] for spec in specs[:MAX_MAPS])


def draw_maps(figure: Any, sensor: SensorRecording, specs: Sequence[Spec], env: int) -> None:
    """Draw one sensor's maps below each other.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor.
        specs: what `map_fields` returned.
        env: column of the env.
    """
    inches = _inches(figure)
    name, facts = heading(sensor, env)
    if len(specs) > MAX_MAPS:
        facts += f" · {len(specs) - MAX_MAPS} more fields not drawn"
    figure.text(0.09, 1.0 - 0.1 / inches, name, fontsize=12, fontweight="bold", color=INK, va="top")
    figure.text(0.09, 1.0 - 0.35 / inches, facts, fontsize=8.5, color=INK, va="top")
    arrivals, captures = sensor.pairs(env)
    draw = {"range": _draw_scan, "image": _draw_image, "point": _draw_points}
    top = inches - HEADING
    for spec in specs[:MAX_MAPS]:
        bottom = top - HEIGHTS[spec["role"]]
        if len(arrivals):
            draw[spec["role"]](figure, sensor, spec, env, (arrivals, captures), (bottom / inches, top / inches))
        else:
            text = f"{spec['name']}: no sample arrived"
            figure.text(0.5, 0.5 * (bottom + top) / inches, text, ha="center", fontsize=9, color=FAINT)
        top = bottom


# The three kinds ------------------------------------------------------------------------------------------------------


def _draw_scan(
    figure: Any,
    sensor: SensorRecording,
    spec: Spec,
    env: int,
    pairs: tuple[Array, Array],
    room: tuple[float, float],
) -> None:
    """Draw time against ray: measured on the left, its error on the right."""
    arrivals, captures = pairs
    time = sensor.capture_time[arrivals, env]
    columns = min(len(time), MAX_COLUMNS)
    shown = np.linspace(time[0], time[-1], columns)
    step = (shown[-1] - shown[0]) / max(columns - 1, 1) or 1e-3
    chosen = np.searchsorted(time, shown + 0.5 * step, side="right") - 1  # what was the newest at that time
    rays = _own_shape(spec)[0]
    lines = np.unique(np.linspace(0, rays - 1, min(rays, MAX_LINES)).round().astype(int))
    measured = _rays(sensor.measured[spec["name"]], arrivals[chosen], env, spec, lines)
    truth = _rays(sensor.truth[spec["name"]], captures[chosen], env, spec, lines)
    error, text = _difference(sensor, spec, measured, truth)

    word = spec["axes"][-len(_own_shape(spec))]
    thinned = f", {len(lines)} of {rays} {word}s" if len(lines) < rays else ""
    left, right = _row(figure, room, (1.0, 1.0))
    extent = (shown[0] - 0.5 * step, shown[-1] + 0.5 * step, 0.0, float(rays))
    options = {"aspect": "auto", "origin": "lower", "extent": extent, "interpolation": "nearest"}
    _panel(figure, left, _shown(sensor, measured).T, f"{_name(spec)}, measured{thinned}", spec, truth, options)
    _error_panel(figure, right, error.T, text, spec, options)
    for axes in (left, right):
        axes.set_xlabel("capture time [s]", fontsize=8, color=INK)
    left.set_ylabel(word, fontsize=8, color=INK)
    right.tick_params(labelleft=False)


def _draw_image(
    figure: Any,
    sensor: SensorRecording,
    spec: Spec,
    env: int,
    pairs: tuple[Array, Array],
    room: tuple[float, float],
) -> None:
    """Draw the last capture: true, measured, error; ids have colours of their own, and no error but a difference."""
    arrivals, captures = pairs
    pick = (slice(None), slice(None), 0)
    measured = _one(sensor.measured[spec["name"]], arrivals[-1], env, spec)[pick]
    truth = _one(sensor.truth[spec["name"]], captures[-1], env, spec)[pick]
    time = float(sensor.capture_time[arrivals[-1], env])
    options = {"interpolation": "nearest"}
    panels = _row(figure, room, (1.0, 1.0, 1.0))
    is_id = np.dtype(spec["dtype"]).kind != "f"
    for axes, values, which in zip(panels, (truth, measured), ("true", "measured"), strict=False):
        title = f"{_name(spec)}, {which}" if which == "true" else f"{which}, t = {time:.4g} s"
        shown = values.astype(np.float64) if is_id else _shown(sensor, values)
        _panel(figure, axes, shown, title, spec, truth, options, colors="tab20" if is_id else "viridis")
    if is_id:
        differs = measured != truth
        text = f"{int(differs.sum())} of {differs.size} differ"
        _error_panel(figure, panels[2], differs.astype(np.float64), text, spec, options)
    else:
        error, text = _difference(sensor, spec, measured, truth)
        _error_panel(figure, panels[2], error, text, spec, options)
    for axes in panels:
        axes.tick_params(labelbottom=False, labelleft=False, length=0.0)


def _draw_points(
    figure: Any,
    sensor: SensorRecording,
    spec: Spec,
    env: int,
    pairs: tuple[Array, Array],
    room: tuple[float, float],
) -> None:
    """Draw the last capture from above, coloured by height, and from the side."""
    arrivals, captures = pairs
    measured = _one(sensor.measured[spec["name"]], arrivals[-1], env, spec).reshape(-1, 3)
    truth = _one(sensor.truth[spec["name"]], captures[-1], env, spec).reshape(-1, 3)
    count = len(measured)
    every = -(-count // MAX_POINTS)
    measured, truth = (values[::every].astype(np.float64) for values in (measured, truth))
    measured, truth = (values[np.isfinite(values).all(axis=1)] for values in (measured, truth))
    time = float(sensor.capture_time[arrivals[-1], env])
    top, side = _row(figure, room, (1.25, 1.0))
    both = np.concatenate((measured, truth))
    where = f"{spec['frame']} frame" if spec.get("frame") else "frame not said"
    if not len(both):
        top.set_title(f"{spec['name']}: all {count} miss, t = {time:.4g} s", fontsize=8.5, color=INK, loc="left")
        return
    low, high = _span(both[:, 2])
    size = float(np.clip(9000.0 / max(len(measured), 1), 2.0, 26.0))
    for axes, (first, second) in ((top, (0, 1)), (side, (0, 2))):
        drawn = axes.scatter(
            measured[:, first], measured[:, second], c=measured[:, 2], s=size, lw=0.0, cmap="viridis", vmin=low,
            vmax=high, label="measured",
        )  # fmt: skip
        axes.scatter(truth[:, first], truth[:, second], color="#7d8790", s=0.16 * size, lw=0.0, label="true")
        axes.set_xlabel(f"x [{unit_text(spec['unit'])}]", fontsize=8, color=INK)
        axes.set_ylabel(f"{'xyz'[second]} [{unit_text(spec['unit'])}]", fontsize=8, color=INK, labelpad=1.0)
        axes.grid(True, color="#e6e9ec", lw=0.6)
        axes.set_axisbelow(True)
    _bar(figure, drawn, side)
    _limit(top, both[:, 0], both[:, 1], equal=True)
    _limit(side, both[:, 0], both[:, 2], equal=False)
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


# Panels ---------------------------------------------------------------------------------------------------------------


def _row(figure: Any, room: tuple[float, float], widths: Sequence[float]) -> list[Any]:
    """Return panels beside each other in a strip of the figure (bottom, top), room for their labels left."""
    bottom, top, inches = *room, _inches(figure)
    grid = figure.add_gridspec(
        1, len(widths), width_ratios=widths, left=0.09, right=0.955, bottom=bottom + BELOW / inches,
        top=top - ABOVE / inches, wspace=0.22,
    )  # fmt: skip
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(widths))]
    for axes in panels:
        axes.tick_params(labelsize=7.5, colors=INK, length=2.5, width=0.6)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
            spine.set_linewidth(0.6)
    return panels


def _panel(
    figure: Any,
    axes: Any,
    values: Array,
    title: str,
    spec: Spec,
    reference: Array,
    options: Mapping[str, Any],
    colors: str = "viridis",
) -> None:
    """Draw values as colours; the scale fits them and the truth, so that both show the same."""
    both = np.concatenate((values.ravel(), np.asarray(reference, dtype=np.float64).ravel()))
    low, high = _span(both)
    drawn = axes.imshow(values, cmap=_colors(colors), vmin=low, vmax=high, **options)
    axes.set_title(title, fontsize=8.5, color=INK, loc="left", pad=4.0)
    _bar(figure, drawn, axes)


def _error_panel(figure: Any, axes: Any, error: Array, text: str, spec: Spec, options: Mapping[str, Any]) -> None:
    """Draw an error around zero, in which +inf is what only the measured value misses and NaN what both miss."""
    known = np.abs(error[np.isfinite(error)])
    is_there = bool(known.any())
    most = float(np.percentile(known, 99.0)) if len(known) else 0.0
    most = most or float(known.max(initial=0.0)) or 1.0
    colors = _colors("RdBu_r")
    drawn = axes.imshow(np.where(np.isfinite(error), error, np.nan), cmap=colors, vmin=-most, vmax=most, **options)
    if np.isinf(error).any():
        from matplotlib.colors import ListedColormap

        lost = np.where(np.isinf(error), 1.0, np.nan)
        axes.imshow(lost, cmap=ListedColormap([LOST]).with_extremes(bad=(0.0, 0.0, 0.0, 0.0)), **options)
    axes.set_title(text, fontsize=8.5, color=INK, loc="left", pad=4.0)
    _bar(figure, drawn, axes).set_visible(is_there)


def _colors(name: str) -> Any:
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=MISS)


def _limit(axes: Any, x: Array, y: Array, *, equal: bool) -> None:
    """Frame almost all points; with `equal` a metre is as long in both directions."""
    spans = [_span(values, 1.0) for values in (x, y)]
    middles, sizes = [0.5 * sum(span) for span in spans], [1.12 * (span[1] - span[0]) for span in spans]
    if equal:
        box = axes.get_window_extent()
        scale = max(sizes[0] / box.width, sizes[1] / box.height)
        sizes = [scale * box.width, scale * box.height]
    axes.set_xlim(middles[0] - 0.5 * sizes[0], middles[0] + 0.5 * sizes[0])
    axes.set_ylim(middles[1] - 0.5 * sizes[1], middles[1] + 0.5 * sizes[1])


def _inches(figure: Any) -> float:
    """Return the height of a figure or subfigure, which fills its figure from top to bottom."""
    return float(getattr(figure, "figure", figure).get_figheight())


def _bar(figure: Any, drawn: Any, axes: Any) -> Any:
    """Add a scale of colours and return its axes."""
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, fraction=0.055, aspect=24)
    bar.ax.tick_params(labelsize=7, colors=INK, length=2.0, width=0.5)
    bar.outline.set_visible(False)
    return bar.ax


def _name(spec: Spec) -> str:
    return f"{spec['name']} [{unit_text(spec['unit'])}]"


# Numbers --------------------------------------------------------------------------------------------------------------


def _own_shape(spec: Spec) -> list[int]:
    """Return the shape of one mount of one env."""
    return list(spec["shape"][1:] if spec["axes"][1:2] == ["mount"] else spec["shape"])


def _rays(values: Array, rows: Array, env: int, spec: Spec, lines: Array) -> Array:
    """Return `[row, ray]` of the first mount; where a ray has several returns, the first of them."""
    mount = (0,) if spec["axes"][1:2] == ["mount"] else ()
    rest = (0,) * (len(_own_shape(spec)) - 1)
    return np.stack([values[(row, env, *mount, lines, *rest)] for row in rows])


def _one(values: Array, row: int, env: int, spec: Spec) -> Array:
    """Return one row of one env, of the first mount."""
    mount = (0,) if spec["axes"][1:2] == ["mount"] else ()
    one: Array = values[(row, env, *mount)]
    return one


def _is_miss(sensor: SensorRecording, values: Array) -> Array:
    """Return where values say that nothing was met."""
    shown_as = sensor.info.get("cfg", {}).get("no_hit_value")
    missing: Array = ~np.isfinite(values)
    return missing if shown_as is None else missing | (values == np.float32(shown_as))


def _shown(sensor: SensorRecording, values: Array) -> Array:
    """Return values in float64, NaN where nothing was met."""
    return np.where(_is_miss(sensor, values), np.nan, values.astype(np.float64))


def _difference(sensor: SensorRecording, spec: Spec, measured: Array, truth: Array) -> tuple[Array, str]:
    """Return measured minus true, NaN where the truth misses, +inf where only the measured value does; and a text."""
    seen, there = _shown(sensor, measured), _shown(sensor, truth)
    difference = seen - there
    lost = np.isnan(seen) & ~np.isnan(there)
    known = difference[np.isfinite(difference)]
    unit = unit_text(spec["unit"])
    text = "error: nothing was met"
    if len(known):
        text = f"error {known.mean():+.2g} ± {known.std():.2g} {unit}" if known.any() else "no error"
    if lost.any():
        text += f", {100.0 * lost.sum() / max(int((~np.isnan(there)).sum()), 1):.2g} % lost"
    return np.where(lost, np.inf, difference), text


def _span(values: Array, beyond: float = 2.0) -> tuple[float, float]:
    """Return limits between which almost all finite values are, `beyond` percent at each end left out."""
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = (float(number) for number in np.percentile(values, (beyond, 100.0 - beyond)))
    least = 1e-3 * max(abs(low), abs(high), 1e-6)
    if high - low < least:
        low, high = low - 0.5 * least, high + 0.5 * least
    return low, high
