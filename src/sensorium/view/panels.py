"""Elements of maps: adjacent panels, their colours and scales, and the values of a recording in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.style import FAINT, INK, unit_text

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

ABOVE, BELOW = 0.26, 0.46
"""Margins for titles and labels of each panel, inches."""
MISS, LOST = "#d3d8dd", "#2b3640"
"""Colours of misses, and of points that only the measured value misses."""

Spec = Mapping[str, Any]

# Panels ---------------------------------------------------------------------------------------------------------------


def row_of_panels(
    figure: Any, room: tuple[float, float], widths: Sequence[float], *, above: float = ABOVE
) -> list[Any]:
    """Return adjacent panels in a strip of the figure (bottom, top), with margins for their labels.

    Args:
        figure: a figure or subfigure of Matplotlib.
        room: bottom and top of the strip, as fractions of the figure's height.
        widths: relative widths of the panels.
        above: margin for titles, inches.
    """
    bottom, top, inches = *room, inches_of(figure)
    grid = figure.add_gridspec(
        1, len(widths), width_ratios=widths, left=0.09, right=0.955, bottom=bottom + BELOW / inches,
        top=top - above / inches, wspace=0.22,
    )  # fmt: skip
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(widths))]
    for axes in panels:
        frame(axes)
    return panels


def frame(axes: Any) -> None:
    """Apply the common style to the axes of a map."""
    axes.tick_params(labelsize=7.5, colors=INK, length=2.5, width=0.6)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)


def panel(
    figure: Any,
    axes: Any,
    values: Array,
    title: str,
    reference: Array,
    options: Mapping[str, Any],
    colors: str = "viridis",
) -> None:
    """Draw values as colours; the scale fits both them and the truth, so that panels are comparable."""
    both = np.concatenate((values.ravel(), np.asarray(reference, dtype=np.float64).ravel()))
    low, high = span_of(both)
    drawn = axes.imshow(values, cmap=color_map(colors), vmin=low, vmax=high, **options)
    axes.set_title(title, fontsize=8.5, color=INK, loc="left", pad=4.0)
    color_bar(figure, drawn, axes)


def error_panel(figure: Any, axes: Any, error: Array, text: str, options: Mapping[str, Any]) -> None:
    """Draw an error around zero; +inf marks points that only the measured value misses, NaN those that both miss."""
    known = np.abs(error[np.isfinite(error)])
    is_there = bool(known.any())
    most = float(np.percentile(known, 99.0)) if len(known) else 0.0
    most = most or float(known.max(initial=0.0)) or 1.0
    colors = color_map("RdBu_r")
    drawn = axes.imshow(np.where(np.isfinite(error), error, np.nan), cmap=colors, vmin=-most, vmax=most, **options)
    if np.isinf(error).any():
        from matplotlib.colors import ListedColormap

        lost = np.where(np.isinf(error), 1.0, np.nan)
        axes.imshow(lost, cmap=ListedColormap([LOST]).with_extremes(bad=(0.0, 0.0, 0.0, 0.0)), **options)
    axes.set_title(text, fontsize=8.5, color=INK, loc="left", pad=4.0)
    color_bar(figure, drawn, axes).set_visible(is_there)


def color_map(name: str) -> Any:
    """Return a colour map of Matplotlib, with grey for missing values."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=MISS)


def limit(axes: Any, x: Array, y: Array, *, equal: bool) -> None:
    """Set limits that contain almost all points; with `equal`, both axes have the same scale."""
    spans = [span_of(values, 1.0) for values in (x, y)]
    middles, sizes = [0.5 * sum(span) for span in spans], [1.12 * (span[1] - span[0]) for span in spans]
    if equal:
        box = axes.get_window_extent()
        scale = max(sizes[0] / box.width, sizes[1] / box.height)
        sizes = [scale * box.width, scale * box.height]
    axes.set_xlim(middles[0] - 0.5 * sizes[0], middles[0] + 0.5 * sizes[0])
    axes.set_ylim(middles[1] - 0.5 * sizes[1], middles[1] + 0.5 * sizes[1])


def inches_of(figure: Any) -> float:
    """Return the height of a figure or subfigure that fills its figure from top to bottom."""
    return float(getattr(figure, "figure", figure).get_figheight())


def color_bar(figure: Any, drawn: Any, axes: Any) -> Any:
    """Add a colour bar and return its axes."""
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, fraction=0.055, aspect=24)
    bar.ax.tick_params(labelsize=7, colors=INK, length=2.0, width=0.5)
    bar.outline.set_visible(False)
    return bar.ax


def name_and_unit(spec: Spec) -> str:
    """Return the label of a field, e.g. ``force [N]``."""
    return f"{spec['name']} [{unit_text(spec['unit'])}]"


# Numbers --------------------------------------------------------------------------------------------------------------


def own_shape(spec: Spec) -> list[int]:
    """Return the shape of one mount of one env."""
    return list(spec["shape"][1:] if spec["axes"][1:2] == ["mount"] else spec["shape"])


def rays_of(values: Array, rows: Array, env: int, spec: Spec, lines: Array) -> Array:
    """Return `[row, ray]` of the first mount; of several returns per ray, the first."""
    mount = (0,) if spec["axes"][1:2] == ["mount"] else ()
    rest = (0,) * (len(own_shape(spec)) - 1)
    return np.stack([values[(row, env, *mount, lines, *rest)] for row in rows])


def one_capture(values: Array, row: int, env: int, spec: Spec) -> Array:
    """Return one row of one env, of the first mount."""
    mount = (0,) if spec["axes"][1:2] == ["mount"] else ()
    one: Array = values[(row, env, *mount)]
    return one


def is_miss(sensor: SensorRecording, spec: Spec, values: Array) -> Array:
    """Return which values are misses; in images of distances also 0, which no surface has."""
    shown_as = sensor.info.get("cfg", {}).get("no_hit_value")
    missing: Array = ~np.isfinite(values)
    if spec.get("role") == "image" and spec["unit"] == "m":
        missing = missing | (values == 0.0)
    return missing if shown_as is None else missing | (values == np.float32(shown_as))


def shown_values(sensor: SensorRecording, spec: Spec, values: Array) -> Array:
    """Return values in float64, with NaN for misses."""
    return np.where(is_miss(sensor, spec, values), np.nan, values.astype(np.float64))


def difference_of(sensor: SensorRecording, spec: Spec, measured: Array, truth: Array) -> tuple[Array, str]:
    """Return measured minus true, NaN where the truth misses, +inf where only the measured value misses; and a text."""
    seen, there = shown_values(sensor, spec, measured), shown_values(sensor, spec, truth)
    difference = seen - there
    lost = np.isnan(seen) & ~np.isnan(there)
    known = difference[np.isfinite(difference)]
    unit = unit_text(spec["unit"])
    text = "error: no hits"
    if len(known):
        text = f"error {known.mean():+.2g} ± {known.std():.2g} {unit}" if known.any() else "no error"
    if lost.any():
        text += f", {100.0 * lost.sum() / max(int((~np.isnan(there)).sum()), 1):.2g} % lost"
    return np.where(lost, np.inf, difference), text


def span_of(values: Array, beyond: float = 2.0) -> tuple[float, float]:
    """Return limits that contain almost all finite values, without `beyond` percent at each end."""
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = (float(number) for number in np.percentile(values, (beyond, 100.0 - beyond)))
    least = 1e-3 * max(abs(low), abs(high), 1e-6)
    if high - low < least:
        low, high = low - 0.5 * least, high + 0.5 * least
    return low, high
