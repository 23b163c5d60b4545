"""The list of sensors, and the controls of the chosen one: drawing, truth or measured, and its knobs."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sensorium.readings import Reading
from sensorium.view.style import name_and_unit
from sensorium.wire.stream_info import StreamInfo

KNOBS = ("noise", "bias", "random_walk", "resolution", "density", "delay", "jitter", "loss", "drop_rate")
"""Suffixes of the names of knobs."""
IN_SECONDS, FRACTIONS = ("delay", "jitter"), ("loss", "drop_rate")
TABLE_EVERY = 0.5
"""Seconds between two updates of the table."""
AMOUNT = 0.2
"""Maximum amount of a slider for a knob that is 0, relative to the greatest true value so far."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A slider: knob of a sensor or, with `field`, of one of its fields.

    Attributes:
        name: name of the knob.
        field: field that it acts on; empty for all.
        value: value in the config.
        low: minimum value.
        high: maximum value.
        unit: unit.
    """

    name: str
    field: str
    value: float
    low: float
    high: float
    unit: str = ""

    @property
    def label(self) -> str:
        """Text beside the slider."""
        return name_and_unit({"name": self.name + (f" of {self.field}" if self.field else ""), "unit": self.unit})


def knobs_of(info: StreamInfo, largest: Mapping[str, float]) -> Iterator[Knob]:
    """Yield the sliders of a sensor: its knobs that are numbers, and noise and bias of every vector field.

    Args:
        info: description of the sensor.
        largest: field -> greatest true value so far, for the ranges.
    """
    given, specs = info.cfg, {spec.name: spec for spec in info.specs}
    for name, value in given.items():
        if not name.endswith(KNOBS):
            continue
        for field, amount in value.items() if isinstance(value, Mapping) else (("", value),):
            number = _number(amount)
            if number is None or (field and field not in specs):
                continue
            unit = specs[field].unit if field else "s" if name in IN_SECONDS else ""
            yield _knob(name, field, number, largest.get(field, max(largest.values(), default=1.0)), unit)
    for spec in specs.values():
        if spec.kind != "vector" or not spec.dtype.startswith("float") or spec.role == "image":
            continue
        for name in ("noise", "bias"):
            is_given = any(key.endswith((name, f"{name}_density")) for key in given)
            if not is_given:
                field = spec.name if len(specs) > 1 else ""
                yield _knob(name, field, 0.0, largest.get(spec.name, 1.0), spec.unit)


def _number(amount: Any) -> float | None:
    """Return the largest number of an amount; None for a distribution."""
    if isinstance(amount, bool) or not isinstance(amount, int | float | list | tuple):
        return None
    numbers = np.ravel(np.asarray(amount, np.float64))
    return float(numbers[np.abs(numbers).argmax()]) if numbers.size else None


def _knob(name: str, field: str, value: float, largest: float, unit: str) -> Knob:
    high = 4.0 * abs(value) or (0.1 if name in IN_SECONDS else AMOUNT * largest or 1.0)
    high = min(high, 1.0) if name in FRACTIONS else high
    high = float(f"{high:.1g}")
    return Knob(name, field, value, -high if name.endswith("bias") else 0.0, max(high, abs(value)), unit)


class SensorPanel:
    """The table of sensors and the controls of the chosen one.

    Args:
        gui: `viser.GuiApi`.
        tab: tab that holds the panel.
        send: sends a command to the loop.
    """

    def __init__(self, gui: Any, tab: Any, send: Callable[..., object]) -> None:
        self._gui, self._tab, self._send = gui, tab, send
        self._changed: set[str] = set()
        """Sensors whose drawing changed since the last frame."""
        self.drawn: frozenset[str] = frozenset()
        """Sensors that the server selects for drawing."""
        self._draws: dict[str, bool] = {}
        """Choices of the page's user, which precede the configs."""
        self._truths: dict[str, bool] = {}
        self._largest: dict[str, dict[str, float]] = {}
        self._latencies: dict[str, float] = {}
        self._next = 0.0
        self._is_filling = False
        self._sensors: Mapping[str, StreamInfo] = {}
        self._can_set = False
        self.draw_all = gui.add_button_group("draw", ["all", "none", "as configured"])
        self.table = gui.add_html("")
        self.sensor = gui.add_dropdown("sensor", ["none"])
        self.draw = gui.add_checkbox("draw it", False)
        self.branch = gui.add_dropdown("show", ["measured", "true"])
        self.sliders: dict[str, Any] = {}
        """Label -> slider of the chosen sensor."""
        self._folder: Any = None
        self.draw_all.on_click(lambda _: self._draw_all(str(self.draw_all.value)))
        self.sensor.on_update(lambda _: self._choose())
        self.draw.on_update(lambda _: self._set(self._draws, self.draw.value))
        self.branch.on_update(lambda _: self._set(self._truths, self.branch.value == "true"))

    @property
    def chosen(self) -> str:
        """Name of the chosen sensor; empty for none."""
        return self.sensor.value if self.sensor.value in self._sensors else ""

    def draws(self, name: str) -> bool:
        """Return whether a sensor is drawn."""
        return self._draws.get(name, name in self.drawn)

    def shows_truth(self, name: str) -> bool:
        """Return whether the ground truth of a sensor is shown in its drawing and its images."""
        return self._truths.get(name, False)

    @property
    def true(self) -> list[str]:
        """Names of the sensors of which the ground truth is shown."""
        return [name for name, is_true in self._truths.items() if is_true]

    def take_changed(self) -> set[str]:
        """Return the sensors whose drawing changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _set(self, choices: dict[str, bool], value: bool) -> None:
        if not self._is_filling and self.chosen:
            choices[self.chosen] = bool(value)
            self._changed.add(self.chosen)

    def _draw_all(self, what: str) -> None:
        self._draws = {} if what == "as configured" else dict.fromkeys(self._sensors, what == "all")
        self._changed.update(self._sensors)
        self._fill()

    def _fill(self) -> None:
        """Set the controls to the choices for the chosen sensor."""
        self._is_filling = True
        self.draw.value = self.draws(self.chosen)
        self.branch.value = "true" if self.shows_truth(self.chosen) else "measured"
        self._is_filling = False

    def describe(self, streams: Mapping[str, StreamInfo], *, can_set: bool) -> None:
        """Apply new descriptions of the sensors; `can_set` states whether their knobs can be set."""
        before, chosen = self._sensors.get(self.chosen), self.chosen
        self._sensors, self._can_set = streams, can_set
        for table in (self._draws, self._truths, self._largest, self._latencies):
            for name in [name for name in table if name not in self._sensors]:
                del table[name]
        self.sensor.options = list(self._sensors) or ["none"]
        if chosen in self._sensors:
            self.sensor.value = chosen
        if before is None or _without_knobs(before) != _without_knobs(self._sensors.get(self.chosen)):
            self._choose()

    def _choose(self) -> None:
        """Show the controls of the chosen sensor."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
        self.sliders = {}
        if not self.chosen:
            return
        self._fill()
        if not self._can_set:
            return
        with self._tab, self._gui.add_folder(f"knobs of {self.chosen}") as self._folder:
            for knob in knobs_of(self._sensors[self.chosen], self._largest.get(self.chosen, {})):
                self._add_slider(self.chosen, knob)

    def _add_slider(self, sensor: str, knob: Knob) -> None:
        span = knob.high - knob.low
        step = 10.0 ** math.floor(math.log10(span / 200.0))
        value = float(np.clip(knob.value, knob.low, knob.high))
        slider = self._gui.add_slider(knob.label, knob.low, knob.high, step, value)
        self.sliders[knob.label] = slider

        def turned(_: Any) -> None:
            amount = float(np.clip(np.nan_to_num(slider.value), knob.low, knob.high))  # a browser may send any number
            self._send(sensor, knob.name, {knob.field: amount} if knob.field else amount)

        slider.on_update(turned)

    def show(self, now: float, readings: Mapping[str, Reading], arrived: Collection[str]) -> None:
        """Show the newest reading of each sensor, of which some just arrived, at a simulation time, s."""
        for name in arrived:
            if name in readings:
                self._note_largest(name, readings[name])
                self._latencies[name] = readings[name].latency()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TABLE_EVERY
            self.table.content = self._html(now, readings)

    def _note_largest(self, name: str, reading: Reading) -> None:
        if name in self._largest and name != self.chosen:
            return
        found = self._largest.setdefault(name, {})
        for spec in reading.specs:
            if spec.kind == "vector" and spec.role != "image" and not spec.is_ragged:
                values = np.abs((reading.truth or reading.measured)[spec.name])
                finite = values[np.isfinite(values)]
                found[spec.name] = max(found.get(spec.name, 0.0), float(finite.max()) if finite.size else 0.0)

    def _html(self, now: float, readings: Mapping[str, Reading]) -> str:
        """Return the table of all sensors."""
        heads = ("sensor", "kind", "rate", "age", "valid", "latency", "drawn")
        rows = ["".join(f"<th align='left'>{head}</th>" for head in heads)]
        for name, info in self._sensors.items():
            reading = readings.get(name)
            cells = [html.escape(name), html.escape(info.kind), f"{info.rate_hz:.4g} Hz"]
            if reading is None:
                cells += ["-", "-", "-"]
            else:
                age = (now - reading.time) + float(reading.age[0])
                valid = "yes" if reading.valid[0] else "<b>no</b>"
                cells += [f"{1e3 * age:.0f} ms", valid, f"{1e3 * self._latencies.get(name, 0.0):.0f} ms"]
            cells.append("✓" if self.draws(name) else "")
            rows.append("".join(f"<td>{cell}</td>" for cell in cells))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        table = f"<table style='font-size:0.75em;width:100%'>{body}</table>"
        return f"<div style='overflow-x:auto;padding:0 0.6em'>{table}</div>"


def _without_knobs(info: StreamInfo | None) -> StreamInfo | None:
    """Return a description without the values of knobs, which sliders change, and without its changing number."""
    if info is None:
        return None
    return replace(info, id=0, cfg={name: value for name, value in info.cfg.items() if not name.endswith(KNOBS)})
