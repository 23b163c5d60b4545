"""The result of a fit: parameters with intervals, and what the samples do not show."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tomli_w

from sensorium.view.report import Table, page_html, picture_html, table_html
from sensorium.view.style import picture

HEADINGS = ("parameter", "value", "95 % interval", "unit", "method", "source")


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
    """

    kind: str
    source: str
    parameters: Mapping[str, Parameter]
    refused: Mapping[str, str]
    fields: Mapping[str, Any]
    drawings: Mapping[str, Callable[[Any], None]] = field(default_factory=dict, repr=False)

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
        return Fit(self.kind, source, parameters, refused, fields, {**self.drawings, **other.drawings})

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
            "notes": [f"{name}: {reason}" for name, reason in self.refused.items()],
        }
        return tomli_w.dumps({**about, "fields": self.fields, "parameters": found})

    def table(self) -> Table:
        """Return the parameters as a table."""
        rows: list[tuple[str, ...]] = [
            (name, f"{each.value:.5g}", f"{each.low:.5g} to {each.high:.5g}", each.unit, each.method, each.source)
            for name, each in self.parameters.items()
        ]
        return Table("Parameters", HEADINGS, rows)

    def to_html(self) -> str:
        """Return an HTML page without other files: the parameters, and the fits drawn over the data.

        Raises:
            MissingDependencyError: Matplotlib is not installed.
        """
        parts = [table_html(self.table())]
        if self.refused:
            rows: list[tuple[str, ...]] = [*self.refused.items()]
            parts.append(table_html(Table("Not found", ("parameter", "reason"), rows)))
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

    The verdict is ``"same"`` if the 95 % intervals overlap, ``"different"`` if not, and ``"not comparable"`` where only
    one of the logs shows the parameter.
    """
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*real.parameters, *sim.parameters]):
        both = real.parameters.get(name), sim.parameters.get(name)
        texts = ["-" if each is None else f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})" for each in both]
        unit = next(each.unit for each in both if each is not None)
        first, second = both
        verdict = "not comparable"
        if first is not None and second is not None:
            verdict = "same" if first.overlaps(second) else "different"
        rows.append((name, *texts, unit, verdict))
    return Table("Comparison", ("parameter", "real", "simulated", "unit", "verdict"), rows)
