"""Elements of maps: adjacent panels, their colours and scales, and the values of a recording in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.style import INK, error_text, left_of

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

MISS, LOST = "#d3d8dd", INK
"""Colours of misses, and of points that only the measured value misses."""

MAX_COLUMNS, MAX_LINES = 96, 80
"""Maximum numbers of drawn captures and rays of a scan, three by two pixels each; finer noise makes large files."""

Spec = Mapping[str, Any]

# Panels ---------------------------------------------------------------------------------------------------------------


def panels_of(figure: Any, widths: Sequence[float], top: float = 0.89) -> Any:
    """Return adjacent panels of these relative widths, with margins for their labels."""
    margins = {"left": left_of(figure), "right": 0.915, "bottom": 0.19, "top": top, "wspace": 0.36}
    return figure.subplots(1, len(widths), width_ratios=widths, gridspec_kw=margins)


def name_panel(axes: Any, text: str) -> None:
    """Write the title of a panel, in smaller type if it would be wider than the panel."""
    room = 72.0 * axes.get_window_extent().width / axes.figure.dpi
    longest = max(len(line) for line in text.split("\n"))
    axes.set_title(text, fontsize=min(8.5, room / (0.56 * max(longest, 1))))


def panel(axes: Any, values: Array, title: str, limits: tuple[float, float], colors: str, **options: Any) -> None:
    """Draw values as colours between limits, with a colour bar."""
    drawn = axes.imshow(values, cmap=color_map(colors), vmin=limits[0], vmax=limits[1], **options)
    name_panel(axes, title)
    color_bar(drawn, axes)


def error_panel(axes: Any, error: Array, text: str, **options: Any) -> None:
    """Draw an error around zero; +inf marks points that only the measured value misses, NaN those that both miss."""
    known = np.abs(error[np.isfinite(error)])
    most = float(np.percentile(known, 99.0)) if len(known) else 0.0
    most = most or float(known.max(initial=0.0)) or 1.0
    colors = color_map("RdBu_r").with_extremes(bad=MISS, over=LOST)
    clipped = np.where(np.isinf(error), np.inf, np.clip(error, -most, most))
    drawn = axes.imshow(clipped, cmap=colors, vmin=-most, vmax=most, **options)
    name_panel(axes, text)
    if known.any():
        color_bar(drawn, axes)


def color_map(name: str) -> Any:
    """Return a colour map of Matplotlib, with grey for missing values."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=MISS)


def color_bar(drawn: Any, axes: Any) -> None:
    """Add a colour bar as high as the drawn map."""
    bar = axes.figure.colorbar(drawn, cax=axes.inset_axes((1.025, 0.0, 0.035, 1.0)))
    bar.ax.tick_params(labelsize=7.0, length=2.0, width=0.5)
    bar.outline.set_visible(False)


def scan_of(time: Array, items: int) -> tuple[Array, Array, dict[str, Any]]:
    """Return the captures and the items to draw of values over time, and options of their panels.

    Args:
        time: times of the captures, s.
        items: number of items of each capture.
    """
    shown = np.linspace(time[0], time[-1], min(len(time), MAX_COLUMNS))
    step = (shown[-1] - shown[0]) / max(len(shown) - 1, 1) or 1e-3
    chosen = np.searchsorted(time, shown + 0.5 * step, side="right") - 1  # the newest capture at that time
    lines = np.unique(np.linspace(0, items - 1, min(items, MAX_LINES)).round().astype(int))
    extent = (shown[0] - 0.5 * step, shown[-1] + 0.5 * step, 0.0, float(items))
    return chosen, lines, {"aspect": "auto", "origin": "lower", "extent": extent}


def label_scan(panels: Sequence[Any], word: str) -> None:
    """Write the labels of adjacent panels of values over time; `word` names their items."""
    for axes in panels:
        axes.set_xlabel("capture time [s]")
    panels[0].set_ylabel(word)
    panels[1].tick_params(labelleft=False)


# Numbers --------------------------------------------------------------------------------------------------------------


def own_axes(spec: Spec) -> tuple[str, ...]:
    """Return the axes of one mount of one env."""
    axes = tuple(spec["axes"][1:])
    return axes[1:] if axes[:1] == ("mount",) else axes


def own_shape(spec: Spec) -> list[int]:
    """Return the shape of one mount of one env."""
    return list(spec["shape"])[-len(own_axes(spec)) or len(spec["shape"]) :]


def captures_of(values: Array, rows: Any, env: int, spec: Spec) -> Array:
    """Return rows of one env, of the first mount."""
    one: Array = values[rows, env]
    return one[(slice(None),) * np.ndim(rows) + (0,)] if spec["axes"][1:2] == ["mount"] else one


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


def difference_of(spec: Spec, seen: Array, there: Array) -> tuple[Array, str]:
    """Return measured minus true, +inf where only the measured value misses; and a text.

    Args:
        spec: description of the field.
        seen: the measured values, NaN for misses.
        there: the true values, NaN for misses.
    """
    difference = seen - there
    lost = np.isnan(seen) & ~np.isnan(there)
    text = error_text(difference, spec["unit"]) if np.isfinite(difference).any() else "error: no hits"
    if lost.any():
        text += f", {100.0 * lost.sum() / max(int((~np.isnan(there)).sum()), 1):.2g} % lost"
    return np.where(lost, np.inf, difference), text


def span_of(*values: Array, beyond: float = 2.0) -> tuple[float, float]:
    """Return limits that contain almost all finite values, without `beyond` percent at each end."""
    known = np.concatenate([each[np.isfinite(each)] for each in values])
    if not len(known):
        return 0.0, 1.0
    low, high = (float(number) for number in np.percentile(known, (beyond, 100.0 - beyond)))
    least = 1e-3 * max(abs(low), abs(high), 1e-6)
    if high - low < least:
        low, high = low - 0.5 * least, high + 0.5 * least
    return low, high
