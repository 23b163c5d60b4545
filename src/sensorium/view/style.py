"""Common style of all pictures: colours, axes, headings, and the selection of an item's values in a recording."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sensorium.errors import MissingDependencyError, UnknownNameError
from sensorium.readings import Array

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

TRUTH, INK, FAINT = "#16202a", "#2b3640", "#8a949e"
"""Colours of the true line, of text, and of secondary text."""
COLORS = ("#e4572e", "#1780a1", "#6a994e")
"""Colours of several curves in one panel; the first is that of all measured values."""
MEASURED, ERROR = COLORS[:2]


LEFT = 0.8
"""Margin for the labels of the first axes, inches."""
STYLE = Path(__file__).with_name("pictures.mplstyle")
"""Settings of Matplotlib for all pictures."""


@contextmanager
def picture(file: str | os.PathLike[str] | BinaryIO, width: float, height: float, **options: Any) -> Iterator[Any]:
    """Yield an empty figure of Matplotlib in the common style, and save it at the end.

    Args:
        file: path, whose suffix selects the format and whose missing folders are created, or an open file.
        width: width of the figure, inches.
        height: height of the figure, inches.
        options: options of `Figure.savefig`.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "Pictures need Matplotlib, which is not installed: pip install 'sensorium[plot]'."
        ) from error
    with rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height))
        yield figure
        if isinstance(file, str | os.PathLike):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, **options)


def column_of(sensor: SensorRecording, env: int) -> int:
    """Return the column of an env in a recording.

    Raises:
        UnknownNameError: the env was not recorded.
    """
    found = np.flatnonzero(sensor.env_ids == env)
    if not len(found):
        raise UnknownNameError(f"recorded env of {sensor.name!r}", str(env), map(str, sensor.env_ids.tolist()))
    return int(found[0])


def tidy(axes: Any) -> None:
    """Apply the common style to axes of lines."""
    from matplotlib.ticker import MaxNLocator

    axes.grid(True)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.spines[["top", "right"]].set_visible(False)


def legend(axes: Any) -> None:
    """Add a legend above the right end of axes, with one entry for each label."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles))


def inches_of(figure: Any) -> float:
    """Return the height of a figure or subfigure."""
    return float(figure.bbox.height / figure.dpi)


def left_of(figure: Any) -> float:
    """Return where axes begin in a figure or subfigure, as a fraction of its width."""
    return float(LEFT * figure.dpi / figure.bbox.width)


def write_heading(figure: Any, title: str, facts: str) -> None:
    """Write a title and facts at the top of a figure or subfigure."""
    left, inches = left_of(figure), inches_of(figure)
    figure.text(left, 1.0 - 0.1 / inches, title, fontsize=12, fontweight="bold", va="top")
    figure.text(left, 1.0 - 0.35 / inches, facts, fontsize=8.5, va="top")


def error_text(errors: Array, unit: str) -> str:
    """Return mean and standard deviation of the finite errors as text."""
    known = errors[np.isfinite(errors)]
    return f"error {known.mean():+.2g} ± {known.std():.2g} {unit_text(unit)}" if known.any() else "no error"


def heading(sensor: SensorRecording, env: int, *, several: bool = False) -> tuple[str, str]:
    """Return a sensor's title and facts; `env` is its column, `several` whether other mounts exist."""
    info, cfg = sensor.info, sensor.info.get("cfg", {})
    kind = str(info.get("kind", ""))
    name = f"{sensor.name}" + (f" · {kind} · {info['preset']}" if info.get("preset") else f" · {kind}")
    facts = [f"env {int(sensor.env_ids[env])}"]
    if info.get("rate_hz"):
        facts.append(f"{info['rate_hz']:.4g} Hz")
    if cfg.get("delay") is not None:
        facts.append("delay " + delay_text(cfg, "jitter "))
    first = next((spec for spec in info.get("fields", ()) if spec["axes"][1:2] == ["mount"]), None)
    if first is not None and first["shape"][0] > 1 and not several:
        facts.append(f"mount 1 of {first['shape'][0]}")
    return name, " · ".join(facts)


def delay_text(cfg: Mapping[str, Any], word: str = "") -> str:
    """Return the delay of a config and its jitter, which follows a word, as text in ms; empty without a delay."""
    if cfg.get("delay") is None:
        return ""
    return _milliseconds(cfg["delay"]) + (f" + {word}{_milliseconds(cfg['jitter'])}" if cfg.get("jitter") else "")


def _milliseconds(value: Any) -> str:
    """Return a time or its distribution, s, as text in ms."""
    if isinstance(value, int | float):
        return f"{1e3 * value:.3g} ms"
    if isinstance(value, Mapping):
        (law, numbers), *_ = value.items()
        return f"{law} {', '.join(f'{1e3 * number:.3g}' for number in np.ravel(numbers))} ms"
    return f"{value} s"


def name_and_unit(spec: Mapping[str, Any]) -> str:
    """Return the label of a field, e.g. ``force [N]``; its name alone without a unit."""
    return str(spec["name"]) if spec["unit"] in ("", "1") else f"{spec['name']} [{unit_text(spec['unit'])}]"


def unit_text(unit: str) -> str:
    """Return ``m/s²`` for ``m/s^2``."""
    return unit.replace("^2", "²").replace("^3", "³")
