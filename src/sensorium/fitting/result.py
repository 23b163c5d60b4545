"""The result of a fit: parameters with intervals, and what the samples do not show."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import tomli_w

from sensorium.view.report import Table, page_html, picture_html, table_html
from sensorium.view.style import picture

HEADINGS = ("parameter", "value", "95 % interval", "unit", "method", "source")
EXACT, DIGITS = 1e-3, 1e-5
"""Maximum relative difference of equal values without intervals, and of equal values with small ones: presets state
rates with 6 digits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that was found in samples.

    Attributes:
        value: the estimate.
        unit: its unit.
        low: lower end of the 95 % interval.
        high: upper end of the interval.
        method: how the estimate was found.
        source: the samples: file and time span.
    """

    value: float
    unit: str
    low: float
    high: float
    method: str
    source: str

    def overlaps(self, other: Parameter) -> bool:
        """Return whether the intervals of two estimates overlap."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of one sensor, found in its samples.

    Attributes:
        kind: kind of the sensor config, e.g. ``"imu"``.
        source: the samples.
        parameters: name -> estimate, e.g. ``"ang_vel_b.N.x"``.
        refused: name -> reason why the samples do not show it.
        fields: fields of the config as plain data, SI, as in a preset.
        drawings: title -> function that draws the fit over the data on Matplotlib axes.
        limits: name -> estimate 0 of a parameter that the samples do not show, with its interval from 0.
    """

    kind: str
    source: str
    parameters: Mapping[str, Parameter]
    refused: Mapping[str, str]
    fields: Mapping[str, Any]
    drawings: Mapping[str, Callable[[Any], None]] = field(default_factory=dict, repr=False)
    limits: Mapping[str, Parameter] = field(default_factory=dict)

    def merged_with(self, other: Fit) -> Fit:
        """Return both fits of one sensor as one; `other` gives the parameters and fields that both have."""
        fields, parameters = dict(self.fields), {**self.parameters, **other.parameters}
        for name, value in other.fields.items():
            if name == "stages":
                found = [(each["kind"], each["fields"]) for each in value]
                value = [each for each in fields.get(name, ()) if (each["kind"], each["fields"]) not in found] + value
            elif name == "fields":
                value = [*dict.fromkeys([*fields.get(name, ()), *value])]
            elif isinstance(value, Mapping):
                value = {**fields.get(name, {}), **value}
            fields[name] = value
        reasons = {**self.refused, **other.refused}
        refused = {name: reason for name, reason in reasons.items() if name not in parameters}
        source = "; ".join(dict.fromkeys((self.source, other.source)))
        limits = {name: each for name, each in {**self.limits, **other.limits}.items() if name not in parameters}
        return Fit(self.kind, source, parameters, refused, fields, {**self.drawings, **other.drawings}, limits)

    def to_toml(self) -> str:
        """Return the preset as the text of a TOML file, which ``preset = "FILE.toml"`` of a rig loads."""
        found = {
            name: {
                "value": each.value, "unit": each.unit, "low": each.low, "high": each.high, "method": each.method,
                "source": each.source,
            }
            for name, each in self.parameters.items()
        }  # fmt: skip
        about = {
            "kind": self.kind,
            "title": f"{self.kind} fitted to {self.source}",
            "source": self.source,
            "convention": "noise_density is Allan's two-sided N",
            "notes": [f"{name}: {reason}" for name, reason in self.missing()],
        }
        return tomli_w.dumps({**about, "fields": self.fields, "parameters": found})

    def table(self) -> Table:
        """Return the parameters as a table."""
        rows: list[tuple[str, ...]] = [
            (name, *_texts(each), each.unit, each.method, each.source) for name, each in self.parameters.items()
        ]
        return Table("Parameters", HEADINGS, rows)

    def missing(self) -> list[tuple[str, str]]:
        """Return rows of what the samples do not show, and the reason. The axes of a parameter share a row."""
        rows: dict[tuple[str, str], list[str]] = {}
        for name, reason in self.refused.items():
            head, axis = (name[:-2], name[-1]) if name[-2:] in (".x", ".y", ".z") else (name, "")
            limit = self.limits.get(name)
            text = axis if limit is None else f"{axis} below {limit.high:.3g} {limit.unit}".lstrip()
            rows.setdefault((head, reason), []).append(text)
        return [(f"{head} {', '.join(texts)}".rstrip(), reason) for (head, reason), texts in rows.items()]

    def to_html(self) -> str:
        """Return an HTML page without other files: the parameters, and the fits drawn over the data.

        Raises:
            MissingDependencyError: Matplotlib is not installed.
        """
        parts = [table_html(self.table())]
        if self.refused:
            parts.append(table_html(Table("Not found", ("parameter", "reason"), [*self.missing()])))
        for title, draw in self.drawings.items():
            data = io.BytesIO()
            with picture(data, 8.0, 4.5) as figure:
                axes = figure.subplots()
                draw(axes)
                axes.set_title(title)
            parts.append(picture_html(data, title))
        return page_html(f"{self.kind} fitted to {self.source}", parts)


def compare(real: Fit, sim: Fit) -> Table:
    """Return the parameters of two fits side by side, each with a verdict.

    The 95 % interval of a difference combines those of both values (G. Y. Zou and A. Donner, Statist. Med. 27, 2008).
    The verdict is ``"same"`` if it contains 0, as for 95 % of the parameters of a twin. ``"different"`` is a difference
    that chance gives to any of the compared parameters of a twin in at most 5 % of all comparisons (Bonferroni), and
    ``"unclear"`` lies between. A parameter that one log does not show is compared with its limit there; without limit,
    the verdict is ``"only real"`` or ``"only simulated"``.
    """
    names = dict.fromkeys([*real.parameters, *sim.parameters])
    sides = [
        (real.parameters.get(name) or real.limits.get(name), sim.parameters.get(name) or sim.limits.get(name))
        for name in names
    ]
    count = sum(None not in pair for pair in sides)
    most = NormalDist().inv_cdf(1.0 - 0.025 / max(count, 1)) / NormalDist().inv_cdf(0.975)
    rows: list[tuple[str, ...]] = []
    for name, (first, second) in zip(names, sides, strict=True):
        unit = (real.parameters.get(name) or sim.parameters[name]).unit
        if first is None or second is None:
            verdict = "only simulated" if first is None else "only real"
        else:
            ratio = _difference(first, second)
            verdict = "same" if ratio <= 1.0 else "unclear" if ratio <= most else "different"
        rows.append((name, _shown(first), _shown(second), unit, verdict))
    return Table("Comparison", ("parameter", "real", "simulated", "unit", "verdict"), rows)


def _difference(first: Parameter, second: Parameter) -> float:
    """Return the absolute difference of two values, as a multiple of the half width of its 95 % interval."""
    less, more = sorted((first, second), key=lambda each: each.value)
    difference, size = more.value - less.value, max(abs(less.value), abs(more.value))
    half = math.hypot(less.high - less.value, more.value - more.low)
    half = max(half, DIGITS * size) if half else EXACT * size
    return difference / half if half else 0.0


def _shown(found: Parameter | None) -> str:
    if found is None:
        return "not found"
    value, interval = _texts(found)
    return f"{value} ({interval})" if found.value else interval


def _texts(found: Parameter) -> tuple[str, str]:
    """Return value and interval, with so many digits that they differ."""
    size, width = max(abs(found.low), abs(found.high)), found.high - found.low
    digits = 4 + max(0, round(-math.log10(width / size))) if 0.0 < width else 5
    value, low, high = (f"{number:.{min(digits, 12)}g}" for number in (found.value, found.low, found.high))
    return value, f"{low} to {high}"
