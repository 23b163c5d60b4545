"""Report of a recording: figures of every sensor as tables, Allan deviations, and an HTML page with pictures."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.view.allan import Allan, allan_of, has_allan, series_of
from sensorium.view.fields import WIDTH, draw_field, field_inches, field_names, spec_of
from sensorium.view.figures import Timing, errors_of, labels_of, timing_of
from sensorium.view.stationarity import refusal_of
from sensorium.view.style import COLORS, FAINT, TRUTH, column_of, delay_text, picture, unit_text

if TYPE_CHECKING:
    from sensorium.record import Recording, SensorRecording

MAX_FIELDS = 8
"""Maximum number of fields of a sensor with a picture in a report."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a report: title, headings, and rows of texts."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of a recording in one environment.

    Attributes:
        recording: the recording.
        env: id of the environment.
        timing: sensor -> when its samples were captured and arrived.
        tables: sensors, errors, and noise.
        allan: Allan deviations, by sensor and field.
        notes: omitted parts, and the reasons.
    """

    recording: Recording
    env: int
    timing: dict[str, Timing]
    tables: list[Table]
    allan: dict[tuple[str, str], Allan]
    notes: list[str] = field(default_factory=list)


def report_of(
    recording: Recording, env: int = 0, resets: Sequence[float] = (), shown: Callable[[int], object] = int
) -> Report:
    """Return the figures of all sensors of a recording.

    Args:
        recording: result of `sensorium.record.load`, `Replay.recording` or `NpzRecorder.recording`.
        env: id of the environment.
        resets: times at which the environment was reset, s. Noise is analysed in the longest span without a reset,
            since biases change there.
        shown: called with the number of sensors that are analysed, as progress.

    Raises:
        UnknownNameError: the environment was not recorded.
    """
    dt = float(recording.description["dt"])
    sensors = Table("Sensors", SENSOR_HEADINGS, [])
    errors = Table("Error: measured minus true", ERROR_HEADINGS, [])
    noise = Table("Noise, from the Allan deviation", NOISE_HEADINGS, [])
    report = Report(recording, env, {}, [sensors, errors, noise], {})
    for number, (name, sensor) in enumerate(recording.items()):
        shown(number)
        column = column_of(sensor, env)
        timing = report.timing[name] = timing_of(sensor, column, dt)
        sensors.rows.append(_sensor_row(sensor, timing))
        steady = _longest_span(sensor, resets)
        for spec in (spec_of(sensor, each) for each in field_names(sensor)):
            if spec["axes"][1:2] != ["event"] and spec["name"] in sensor.truth:
                errors.rows.extend(_error_row(name, figures) for figures in errors_of(sensor, spec, column))
            if not has_allan(sensor, spec):
                continue
            series, place = series_of(steady, spec, column, timing.rate_hz), (name, str(spec["name"]))
            if series is None:
                report.notes.append(f"{'.'.join(place)}: too few samples for an Allan deviation")
                continue
            allan = allan_of(series, sensor.info, spec, labels_of(sensor.info, spec))
            if not allan.deviation.any():
                report.notes.append(f"{'.'.join(place)}: no noise")
            elif reason := refusal_of(allan, series):
                report.notes.append(f"{'.'.join(place)}: no noise is fitted, because {reason}")
            else:
                report.allan[place] = allan
                noise.rows.extend(_noise_rows(*place, allan))
    if resets:
        times = "once" if len(resets) == 1 else f"{len(resets)} times"
        report.notes.append(f"env {env} was reset {times}; noise is that of the longest span without a reset")
    return report


def _longest_span(sensor: SensorRecording, resets: Sequence[float]) -> SensorRecording:
    """Return the longest part of a recording between two resets."""
    if not resets or not len(sensor.time):
        return sensor
    edges = [float(sensor.time[0]), *sorted(resets), float(sensor.time[-1])]
    longest = max(range(len(edges) - 1), key=lambda k: edges[k + 1] - edges[k])
    is_last = longest == len(edges) - 2
    return sensor.between(edges[longest], math.inf if is_last else edges[longest + 1] - 1e-6)


# Tables ---------------------------------------------------------------------------------------------------------------

SENSOR_HEADINGS = (
    "sensor", "kind", "samples", "rate [Hz]", "rate set", "gaps", "longest [s]", "lost", "loss set", "delay [ms]",
    "delay set", "latency [ms]",
)  # fmt: skip
ERROR_HEADINGS = (
    "sensor", "field", "element", "mean", "sd", "largest", "unit", "missed", "step", "step set",
)  # fmt: skip
NOISE_HEADINGS = ("sensor", "field", "element", "term", "set", "fitted", "unit")


def number(value: float, digits: int = 4) -> str:
    """Return a number as text; a dash where it is unknown."""
    return "-" if not math.isfinite(value) else f"{value:.{digits}g}"


def _with_sd(value: float, sd: float) -> str:
    """Return a number with its standard deviation, to the digits that this determines."""
    if not math.isfinite(value) or not 0.0 < sd < math.inf:
        return number(value)
    places = 1 - math.floor(math.log10(sd))
    if 0 <= places <= 5:
        return f"{value:.{places}f} ± {sd:.{places}f}"
    return f"{number(value, max(math.floor(math.log10(max(abs(value), sd))) + places + 1, 2))} ± {number(sd, 2)}"


def _milliseconds(value: float, sd: float) -> str:
    """Return a time with its standard deviation, s, as text in ms."""
    if not math.isfinite(value):
        return number(value)
    text = f"{round(1e3 * value, 2) + 0.0:.2f}"
    return f"{text} ± {1e3 * sd:.2f}" if sd >= 5e-6 else text


def _share(value: float) -> str:
    return "-" if not math.isfinite(value) else "0" if value == 0.0 else f"{100.0 * value:.3g} %"


def _sensor_row(sensor: SensorRecording, timing: Timing) -> tuple[str, ...]:
    info, cfg = sensor.info, sensor.info.get("cfg", {})
    loss = cfg.get("loss")
    if isinstance(loss, Mapping):  # bursts of Gilbert and Elliott
        loss = float(loss["p"]) / (float(loss["p"]) + float(loss["r"]))
    return (
        sensor.name,
        str(info.get("kind", "")),
        str(timing.samples),
        number(timing.rate_hz),
        number(float(info.get("rate_hz") or math.nan)),
        str(timing.gaps),
        number(timing.longest_gap) if timing.gaps else "",
        _share(timing.lost),
        "" if loss is None else _share(float(loss)),
        _milliseconds(timing.delay, timing.delay_sd),
        delay_text(cfg),
        _milliseconds(timing.latency, timing.latency_sd),
    )


def _error_row(name: str, figures: Any) -> tuple[str, ...]:
    return (
        name, figures.field, figures.label, number(figures.mean, 3), number(figures.sd), number(figures.largest, 3),
        unit_text(figures.unit), _share(figures.missed), number(figures.step, 5) if figures.step else "",
        number(figures.configured_step, 5) if figures.configured_step else "",
    )  # fmt: skip


def _noise_rows(name: str, field_name: str, allan: Allan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for column, label in enumerate(allan.labels):
        for k, term in enumerate(allan.terms):
            configured, fitted, sd = allan.configured[k, column], allan.fitted[k, column], allan.fitted_sd[k, column]
            if configured or fitted:
                rows.append((
                    name, field_name, label, f"{term.symbol}, {term.name}", number(configured) if configured else "",
                    _with_sd(fitted, sd) if fitted else "-", term.unit.format(unit_text(allan.unit)),
                ))  # fmt: skip
    return rows


# Allan deviation ------------------------------------------------------------------------------------------------------


def allan_html(report: Report) -> str:
    """Return a picture of all Allan deviations: measured with one standard deviation, configured and fitted."""
    columns = min(2, len(report.allan))
    rows = -(-len(report.allan) // columns)
    width, height = 5.2 * columns, 3.6 * rows
    data = io.BytesIO()
    with picture(data, width, height) as figure:
        margins = {
            "left": 0.52 / width + 0.03, "right": 0.985, "top": 1.0 - 0.34 / height, "bottom": 0.5 / height,
            "hspace": 0.38, "wspace": 0.22,
        }  # fmt: skip
        panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=margins).ravel()
        for axes, ((name, field_name), allan) in zip(panels, report.allan.items(), strict=False):
            draw_allan(axes, f"{name} · {field_name}", allan)
        for axes in panels[len(report.allan) :]:
            axes.remove()
    return picture_html(data)


def draw_allan(axes: Any, title: str, allan: Allan) -> None:
    """Draw the Allan deviation of one field, at most three of its elements, with the configured densities as lines."""
    times = allan.times
    shown = range(min(len(allan.labels), len(COLORS)))
    drawable = allan.deviation[:, shown][allan.deviation[:, shown] > 0.0]
    bottom, top = 0.5 * float(drawable.min(initial=np.inf)), 2.0 * float(drawable.max(initial=0.0))
    for k in shown:
        deviation = allan.deviation[:, k]
        if not deviation.all():  # an element without noise
            continue
        spread = np.minimum(allan.relative_sd, 0.95)
        axes.fill_between(times, deviation * (1 - spread), deviation * (1 + spread), color=COLORS[k], alpha=0.18, lw=0)
        axes.loglog(times, deviation, "o", ms=2.6, mew=0, color=COLORS[k], label=f"measured {allan.labels[k]}".strip())
        axes.loglog(times, allan.model(allan.fitted, k), lw=0.8, color=COLORS[k])
    for k in {tuple(allan.configured[:, k]): k for k in shown if allan.configured[:, k].any()}.values():
        axes.loglog(times, allan.model(allan.configured, k), "--", color=TRUTH, lw=1.0, label="configured")
        for term, amount in zip(allan.terms, allan.configured[:, k], strict=True):
            if amount > 0.0:
                line = amount * np.sqrt(term.variance(times, allan.period))
                axes.loglog(times, line, ":", color=FAINT, lw=0.9)
                place = int(np.argmax(line > 1.2 * bottom))  # where it enters the picture, or its start
                if bottom < line[place] < top:
                    axes.annotate(
                        f" {term.symbol} = {amount:.3g} ", (times[place], line[place]), fontsize=7,
                        ha="right" if place else "left", va="bottom",
                    )  # fmt: skip
    if bottom < top:
        axes.set_ylim(bottom, top)
    axes.grid(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=9.5, fontweight="bold")
    axes.set(xlabel="averaging time [s]", ylabel=f"Allan deviation [{unit_text(allan.unit)}]")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), fontsize=7, loc="best")


# Pages ----------------------------------------------------------------------------------------------------------------

STYLE = """body { font: 14px/1.45 system-ui, sans-serif; color: #2b3640; max-width: 1180px; margin: 2em auto }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 1.8em 0 .5em } p.note { color: #68737d }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums }
th, td { padding: .22em .7em; text-align: right; white-space: nowrap; border-bottom: 1px solid #e6e9ec }
th { border-bottom: 1px solid #8a949e; background: #fff; position: sticky; top: 0 }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left }
div.wide { overflow-x: auto } img { max-width: 100%; display: block; margin: .6em 0 }
@page { size: A4; margin: 12mm }
@media print {
  body { max-width: none; margin: 0 } div.wide { overflow: visible } th { position: static }
  table { font-size: 7pt } th, td { padding: .15em .4em } tr, img { break-inside: avoid } img { max-height: 225mm }
  h1, h2, p.note { break-after: avoid } section { break-before: page }
}"""


def write_report(
    report: Report, path: str | os.PathLike[str], title: str, shown: Callable[[int], object] = int
) -> Path:
    """Write a report as one HTML page without other files, and return its path; printed, each sensor has its own pages.

    Args:
        report: the report.
        path: the file.
        title: title of the page.
        shown: called with the number of sensors that are drawn, as progress.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
    """
    parts = [f"<p>{escape(line)}</p>" for line in facts_of(report)]
    parts += [table_html(table) for table in report.tables if table.rows]
    parts += [f'<p class="note">{escape(note)}</p>' for note in report.notes]
    if report.allan:
        text = "Points with one standard deviation, fitted lines, and the configured noise (dashed)."
        parts += ["<section><h2>Allan deviation</h2>", f'<p class="note">{text}</p>', allan_html(report), "</section>"]
    for number, (name, sensor) in enumerate(report.recording.items()):
        shown(number)
        names = field_names(sensor)
        parts.append(f"<section><h2>{escape(name)}</h2>")
        parts += fields_html(report.recording, [(name, each) for each in names[:MAX_FIELDS]], report.env)
        if left_out := names[MAX_FIELDS:]:
            parts.append(f'<p class="note">Not drawn: {escape(", ".join(left_out))}</p>')
        parts.append("</section>")
    return write_page(path, title, parts)


def facts_of(report: Report) -> list[str]:
    """Return the facts at the start of a report, one text per line."""
    about, sensors = report.recording.description, report.recording.values()
    ends = [(each.time[0], each.time[-1]) for each in sensors if len(each.time)]
    span = f"{min(first for first, _ in ends):.4g} to {max(last for _, last in ends):.4g} s" if ends else "no samples"
    return [f"environment {report.env}, {span} at {1e3 * about['dt']:.4g} ms per tick, engine {about['engine']}, "
            f"seed {about['seed']}"]  # fmt: skip


def fields_html(
    recording: Recording, fields: Sequence[tuple[str, str]], env: int, at: float | None = None
) -> list[str]:
    """Return one picture per field, as parts of a page."""
    dt, parts = float(recording.description["dt"]), []
    for name, field_name in fields:
        sensor, data = recording[name], io.BytesIO()
        spec, column = spec_of(sensor, field_name), column_of(sensor, env)
        with picture(data, WIDTH, field_inches(sensor, spec, column)) as figure:
            draw_field(figure, sensor, spec, column, dt, at)
        parts.append(picture_html(data, f"{name}.{field_name}"))
    return parts


def write_page(path: str | os.PathLike[str], title: str, parts: Sequence[str]) -> Path:
    """Write an HTML page, and return its path; missing folders are created."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_html(title, parts), encoding="utf-8")
    return path


def page_html(title: str, parts: Sequence[str]) -> str:
    """Return the text of an HTML page."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f"<!doctype html><html><head>{head}</head>\n<body>{body}</body></html>\n"


def picture_html(data: io.BytesIO, text: str = "") -> str:
    """Return the file of a picture as an embedded one."""
    return f'<img alt="{escape(text)}" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'


def table_html(table: Table) -> str:
    """Return a table as part of a page; repeated names at the start of rows are omitted."""
    head = "".join(f"<th>{escape(each)}</th>" for each in table.headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in without_repeats(table.rows)
    )
    return f'<h2>{escape(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def without_repeats(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return rows without the first two texts where they are those of the row above."""
    shown = []
    above: tuple[str, ...] = ("", "")
    for row in rows:
        repeats = 2 if row[:2] == above else 1 if row[:1] == above[:1] else 0
        shown.append((*("",) * repeats, *row[repeats:]))
        above = row[:2]
    return shown
