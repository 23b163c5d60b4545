"""Common style of all pictures: colours, axes, headings, and the selection of an item's values in a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import MissingDependencyError, UnknownNameError

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

TRUTH, INK, FAINT, PAPER = "#16202a", "#2b3640", "#8a949e", "#ffffff"
"""Colours of the true line, of text, of secondary text, and of the background."""
COLORS = ("#e4572e", "#1780a1", "#6a994e")
"""Colours of several curves in one panel; the first is that of all measured values."""
MEASURED, ERROR = COLORS[:2]


DPI = 110
"""Pixels per inch. At half size, pictures are still readable."""


def blank_figure(width: float, height: float) -> Any:
    """Return an empty figure of Matplotlib that is drawn without a display.

    Args:
        width: its width, inches of `DPI` pixels.
        height: its height, inches.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "Pictures need Matplotlib, which is not installed: pip install 'sensorium[plot]'."
        ) from error
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def column_of(sensor: SensorRecording, env: int) -> int:
    """Return the column of an env in a recording.

    Raises:
        UnknownNameError: the env was not recorded.
    """
    found = np.flatnonzero(sensor.env_ids == env)
    if not len(found):
        raise UnknownNameError(f"recorded env of {sensor.name!r}", str(env), map(str, sensor.env_ids.tolist()))
    return int(found[0])


def tidy(axes: Any, is_last: bool) -> None:
    """Apply the common style to axes of lines."""
    from matplotlib.ticker import MaxNLocator

    axes.grid(True, color="#e6e9ec", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7.5, colors=INK, length=2.5, width=0.6, labelbottom=is_last)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-4, 5))
    axes.yaxis.get_offset_text().set_fontsize(7)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)


def heading(sensor: SensorRecording, env: int, *, several: bool = False) -> tuple[str, str]:
    """Return a sensor's title and facts; `env` is its column, `several` whether other mounts exist."""
    info, cfg = sensor.info, sensor.info.get("cfg", {})
    kind = str(info.get("kind", ""))
    name = f"{sensor.name}" + (f" · {kind} · {info['preset']}" if info.get("preset") else f" · {kind}")
    facts = [f"env {int(sensor.env_ids[env])}"]
    if info.get("rate_hz"):
        facts.append(f"{info['rate_hz']:.4g} Hz")
    delay, jitter = cfg.get("delay"), cfg.get("jitter")
    if delay is not None:
        text = f"delay {milliseconds(delay)}"
        facts.append(text + (f" + jitter {milliseconds(jitter)}" if jitter else ""))
    first = next((spec for spec in info.get("fields", ()) if spec["axes"][1:2] == ["mount"]), None)
    if first is not None and first["shape"][0] > 1 and not several:
        facts.append(f"mount 1 of {first['shape'][0]}")
    return name, " · ".join(facts)


def milliseconds(value: Any) -> str:
    """Return a time or its distribution, s, as text in ms."""
    if isinstance(value, int | float):
        return f"{1e3 * value:.3g} ms"
    if isinstance(value, Mapping):
        (law, numbers), *_ = value.items()
        return f"{law} {', '.join(f'{1e3 * number:.3g}' for number in np.ravel(numbers))} ms"
    return f"{value} s"


def unit_text(unit: str) -> str:
    """Return ``m/s²`` for ``m/s^2``."""
    return unit.replace("^2", "²").replace("^3", "³")
