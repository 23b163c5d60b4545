"""Live plots: one column of a field over time, true and measured, and the error below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec, unit_of
from sensorium.view.figures import labels_of
from sensorium.view.style import ERROR, MEASURED, TRUTH, name_and_unit

WINDOW, LEAST = 10.0, 240
"""Shown time, s, and number of readings of a slow sensor that a plot shows at least."""
GAP = 2.5
"""Time between two readings, in periods of the sensor, from which there is a gap between them."""
NO_ROWS = np.empty((3, 0))
"""Times, true and measured values of no readings."""
PADDING = (12, 12, 0, 0)
"""Space at the top, right, bottom and left of a plot, px; without it, labels of its axes are cut off."""
EMPTY = (np.array([-1.0, 0.0]), *(np.full(2, np.nan) for _ in range(2)))


class Plot:
    """A plot with its choice of field and column.

    Args:
        gui: `viser.GuiApi`, inside the folder of the plot.
        fields: choices: ``"sensor.field"`` -> spec.
        chosen: initial choice.
    """

    def __init__(self, gui: Any, fields: Mapping[str, FieldSpec], chosen: str) -> None:
        from viser import uplot

        self._uplot, self._fields = uplot, dict(fields)
        self.field = gui.add_dropdown("field", list(fields) or ["none"], initial_value=chosen)
        self.column = gui.add_number("element", 0, min=0, max=max(self._columns - 1, 0), step=1)
        values, error = self._lines(has_dots=False)
        plain = self._scale(WINDOW)
        axes = (uplot.Axis(), uplot.Axis(size=56))
        self.values = gui.add_uplot(EMPTY, values, scales=plain, axes=axes, padding=PADDING, height=170)
        self.error = gui.add_uplot(EMPTY[:2], error, scales=plain, axes=axes, padding=PADDING, height=125)
        self._rows, self._seq, self._window, self._has_all = NO_ROWS, -1, WINDOW, True
        """Times, true and measured values that are shown, `[3, n]`; viser sends them later, so it is never changed."""
        self._is_stale = True
        """Whether it starts again with the next readings; callbacks of viser run on other threads."""
        self.field.on_update(lambda _: self.restart())
        self.column.on_update(lambda _: self.restart())

    def _scale(self, window: float) -> Any:
        """Return the scale of the times, which ends now: other scales of viser fail where a browser is slow."""
        return {"x": self._uplot.Scale(time=False, range=(-window, 0.0))}

    def _lines(self, *, has_dots: bool) -> tuple[Any, Any]:
        """Return the lines of the values and of the error; `has_dots` shows samples that no line joins."""
        time, points = self._uplot.Series(label="time from now, s"), self._uplot.Series_Points(show=has_dots, size=4)
        true, measured, error = (
            self._uplot.Series(label=label, stroke=color, width=2, points=points)
            for label, color in (("true", TRUTH), ("measured", MEASURED), ("error", ERROR))
        )
        return (time, true, measured), (time, error)

    @property
    def spec(self) -> FieldSpec | None:
        """The chosen field."""
        return self._fields.get(self.field.value)

    @property
    def _columns(self) -> int:
        return self.spec.columns if self.spec is not None else 0

    @property
    def sensor(self) -> str:
        """Name of the sensor of the chosen field."""
        return str(self.field.value).rpartition(".")[0]

    def set_fields(self, fields: Mapping[str, FieldSpec]) -> None:
        """Offer other fields; the choice is kept if it is among them."""
        self._fields = dict(fields)
        chosen = self.field.value
        self.field.options = list(fields) or ["none"]
        if chosen in fields:
            self.field.value = chosen

    def restart(self) -> None:
        """Forget the shown readings before the next ones."""
        self._is_stale = True

    def _restart(self, spec: FieldSpec, rate_hz: float) -> None:
        self._rows, self._seq, self._is_stale = NO_ROWS, -1, False
        self._window = max(WINDOW, LEAST / rate_hz) if rate_hz else WINDOW
        self.values.scales = self.error.scales = self._scale(self._window)
        self.column.max, self.column.visible = max(spec.columns - 1, 0), spec.columns > 1
        column = self._column_of(spec)
        name, unit = labels_of({}, spec.to_dict())[column], unit_of(spec.unit, spec.shape, column)
        self.values.title = name_and_unit({"name": f"{self.field.value} {name}".rstrip(), "unit": unit})
        self.error.title = name_and_unit({"name": "measured - true", "unit": unit})

    def _column_of(self, spec: FieldSpec) -> int:
        """Return the chosen column; a browser may send any number."""
        return int(np.clip(self.column.value, 0, spec.columns - 1))

    def add(self, readings: Iterable[Reading], rate_hz: float, *, has_all: bool = True) -> None:
        """Add readings of its sensor in their order, and draw.

        Args:
            readings: the readings since the last call.
            rate_hz: their rate per second of simulation; 0 if there is none.
            has_all: whether no reading was omitted, so that lines join most of them.
        """
        spec = self.spec
        if spec is None:
            return
        if has_all != self._has_all:
            self._has_all = has_all
            self.values.series, self.error.series = self._lines(has_dots=not has_all)
        if self._is_stale:
            self._restart(spec, rate_hz)
        column, new = self._column_of(spec), []
        last = self._rows[0, -1] if self._rows.size else np.inf
        for reading in readings:
            if spec not in reading.specs:  # the sensor was replaced
                continue
            if reading.seq > self._seq + 1 >= 1 or (rate_hz and reading.time - last > GAP / rate_hz):
                new.append((0.5 * (last + reading.time), np.nan, np.nan))
            branches = (reading.truth or reading.measured, reading.measured)
            new.append((reading.time, *(np.reshape(branch[spec.name], (1, -1))[0, column] for branch in branches)))
            self._seq, last = reading.seq, reading.time
        if not new:
            return
        rows = np.array(new, np.float64).T
        rows[1:][~np.isfinite(rows[1:])] = np.nan
        rows = np.concatenate([self._rows, rows], axis=1)
        self._rows = rows[:, rows[0] >= last - self._window]
        times, trues, values = self._rows
        self.values.data = _with_gaps(times - last, trues, values)
        self.error.data = _with_gaps(times - last, values - trues)


def _with_gaps(*columns: Array) -> Any:
    """Return columns for a plot, which joins the neighbours of NaN by a line, but not those of None.

    Viser makes arrays of the items of a tuple, but sends a list as it is.
    """
    if all(np.isfinite(column).all() for column in columns):
        return columns
    return [[value if isfinite(value) else None for value in column.tolist()] for column in columns]
