"""Maps of skins: the taxels at the moment of the largest load, true and measured, and the sum over time.

Colours are the components along the normals of the taxels, or scalar values; arrows are the tangential components.
Grids, and taxels with known positions (`probe_local_pos`, `probe_local_normal` in the recording's config), are seen
from outside the skin, in the axes of the link: a bent grid is unrolled, and a list is projected along its mean normal.
Taxels without positions are drawn over time. For cells in three dimensions, the layer of the largest value is drawn.

A taxel is active if it shows more than 5 % of the largest true value of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.drawing import TAXEL_AXES
from sensorium.readings import Array
from sensorium.view.panels import (
    Spec,
    captures_of,
    color_bar,
    color_map,
    difference_of,
    error_panel,
    label_scan,
    own_axes,
    own_shape,
    panel,
    panels_of,
    scan_of,
)
from sensorium.view.style import FAINT, MEASURED, TRUTH, error_text, legend, name_and_unit, tidy, unit_text

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

ACTIVE = 0.05
"""Fraction of the largest true value above which a taxel is active."""
MAX_ARROWS = 24
"""Maximum number of arrows along a row or column of a grid."""
TINY = 1e-12


def is_skin(spec: Spec) -> bool:
    """Return whether a field holds a number, a flag or a vector per taxel of a skin."""
    axes, role = own_axes(spec), spec.get("role", "scalar")
    taxels = _taxel_axes(axes)
    if not taxels or axes[len(taxels) :] not in ((), ("xyz",)) or np.dtype(spec["dtype"]).kind not in "fb":
        return False
    return role in ("scalar", "vector_at") or (role == "range" and len(taxels) > 1)


def _taxel_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes that count taxels."""
    return next((words for words in TAXEL_AXES if tuple(axes[: len(words)]) == words), ())


# Places ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Skin:
    """Positions of taxels, and the normal and tangential directions there.

    Attributes:
        shape: sizes of the axes that count taxels.
        normals: unit vectors `[taxel, 3]`.
        right: unit tangential vectors that point right in the picture.
        up: unit tangential vectors that point up in the picture.
        at: `[taxel, 2]`, positions in the picture; None if unknown, as for a list without positions and for cells.
        labels: labels of the axes of the picture.
        fillers: bool `[taxel]`, places of the layout without a taxel.
    """

    shape: tuple[int, ...]
    normals: Array
    right: Array
    up: Array
    at: Array | None
    labels: tuple[str, str]
    fillers: Array


def _skin(sensor: SensorRecording, spec: Spec) -> _Skin:
    """Return the layout of a field's taxels, as far as the sensor's config defines it."""
    shape = tuple(own_shape(spec)[: len(_taxel_axes(own_axes(spec)))])
    count, cfg = int(np.prod(shape)), sensor.info.get("cfg", {})
    places = np.asarray(cfg.get("probe_local_pos", ()), np.float64).reshape(-1, 3)
    normals = np.asarray(cfg.get("probe_local_normal", (0.0, 0.0, 1.0)), np.float64).reshape(-1, 3)
    radii = np.ravel(np.asarray(cfg.get("probe_radius", 1.0), np.float64))
    if len(normals) not in (1, count):
        normals = np.array([[0.0, 0.0, 1.0]])
    normals = np.broadcast_to(normals / np.linalg.norm(normals, axis=1, keepdims=True), (count, 3))
    fillers = radii == 0.0 if len(radii) == count else np.zeros(count, dtype=bool)
    mean = normals.sum(axis=0)
    mean = normals[0] if np.linalg.norm(mean) < 0.1 * count else mean / np.linalg.norm(mean)
    right, up = _in_plane(mean)
    at, labels = None, ("column", "row")
    if len(shape) == 2:
        at = np.argwhere(np.ones(shape))[:, ::-1].astype(np.float64)
    if len(places) == count > 1:
        if len(shape) == 2 and not _is_flat(places, mean, shape):
            grid = places.reshape(*shape, 3)
            right = np.asarray(np.gradient(grid, axis=1)).reshape(-1, 3) if shape[1] > 1 else right
            up = np.asarray(np.gradient(grid, axis=0)).reshape(-1, 3) if shape[0] > 1 else np.cross(normals, right)
        else:
            at = np.stack([places @ right, places @ up], axis=1)
            factor, unit = (1e3, "mm") if np.ptp(at, axis=0).max() < 1.0 else (1.0, "m")
            at, labels = factor * at, (f"{_named(right)} [{unit}]", f"{_named(up)} [{unit}]")
    return _Skin(shape, normals, _along(right, normals), _along(up, normals), at, labels, fillers)


def _in_plane(normal: Array) -> tuple[Array, Array]:
    """Return the right and up directions for a view of a surface from outside."""
    upright = np.eye(3)[0 if abs(normal[2]) > 0.8 else 2]
    first = _along(upright, normal)
    return (first, np.cross(normal, first)) if upright[0] else (np.cross(first, normal), first)


def _named(direction: Array) -> str:
    """Return the name of the link axis along a direction."""
    axis = int(np.abs(direction).argmax())
    sign = "-" if direction[axis] < 0.0 else ""
    about = "" if abs(direction[axis]) > 0.999 else "about "
    return f"{about}{sign}{'xyz'[axis]}"


def _is_flat(places: Array, normal: Array, shape: Sequence[int]) -> bool:
    """Return whether a grid is planar with rows and columns."""
    height = float(np.ptp(places @ normal))
    return min(shape) > 1 and height < 0.05 * float(np.linalg.norm(np.ptp(places, axis=0)))


def _along(directions: Array, normals: Array) -> Array:
    """Return unit tangential vectors `[taxel, 3]`."""
    flat = directions - (directions * normals).sum(axis=-1, keepdims=True) * normals
    unit: Array = flat / np.maximum(np.linalg.norm(flat, axis=-1, keepdims=True), TINY)
    return unit


# Numbers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TaxelValues:
    """Values of taxels in each capture; NaN where unknown.

    Attributes:
        normal: `[capture, taxel]`, the normal component, or the scalar value.
        along: `[capture, taxel, 3]`, the tangential component; None for scalars.
    """

    normal: Array
    along: Array | None = None

    @property
    def shear(self) -> Array:
        """Magnitude of the tangential component `[capture, taxel]`; 0 for scalars."""
        return np.zeros_like(self.normal) if self.along is None else np.linalg.norm(self.along, axis=-1)

    @property
    def net_shear(self) -> Array:
        """Magnitude of the sum of the tangential components `[capture]`."""
        return np.zeros(len(self.normal)) if self.along is None else np.linalg.norm(self.along.sum(axis=1), axis=-1)


def _taxel_values(values: Array, rows: Array, env: int, spec: Spec, skin: _Skin) -> _TaxelValues:
    """Return the values of the taxels of the first mount in these rows."""
    numbers = captures_of(values, rows, env, spec).astype(np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    if len(own_shape(spec)) == len(skin.shape):
        return _TaxelValues(numbers.reshape(len(rows), -1))
    vectors = numbers.reshape(len(rows), -1, 3)
    normal = np.einsum("tic,ic->ti", vectors, skin.normals)
    return _TaxelValues(normal, vectors - normal[..., None] * skin.normals)


def _curves(spec: Spec, felt: _TaxelValues, true: _TaxelValues) -> dict[str, Array]:
    """Return the curves of the whole skin over time, by their labels; the true values decide which."""
    unit, is_vector = unit_text(spec["unit"]), felt.along is not None
    if np.dtype(spec["dtype"]).kind == "b":
        return {"active\ntaxels": (felt.normal > 0.0).sum(axis=1)}
    if spec.get("role") == "range":
        return {f"least\n[{unit}]": np.fmin.reduce(felt.normal, axis=1)}
    adds = spec["unit"] in ("N", "N m")
    if adds and is_vector:
        curves = {f"normal,\nsum [{unit}]": felt.normal.sum(axis=1), f"{_shear(spec)},\nsum [{unit}]": felt.net_shear}
    elif is_vector:
        greatest = {"normal": np.abs(felt.normal), "shear": felt.shear}
        curves = {f"greatest\n{name} [{unit}]": np.fmax.reduce(each, axis=1) for name, each in greatest.items()}
    elif adds:
        curves = {f"sum\n[{unit}]": felt.normal.sum(axis=1)}
    else:
        curves = {f"greatest\n[{unit}]": np.fmax.reduce(felt.normal, axis=1)}
    most = float(np.nanmax(np.abs(true.normal), initial=0.0))
    if (true.normal == 0.0).any() and most > 0.0:
        curves[f"active taxels\n(> {ACTIVE * most:.2g} {unit})"] = (np.abs(felt.normal) > ACTIVE * most).sum(axis=1)
    elif not adds and not is_vector:
        curves[f"mean\n[{unit}]"] = np.ma.masked_invalid(felt.normal).mean(axis=1).filled(np.nan)
    return curves


def _moment(spec: Spec, true: _TaxelValues, load: Array) -> int:
    """Return the capture to draw: that of the largest load; without a load, the last one.

    For distances, it is that of the minimum. For values that are never 0, such as temperatures, it is that of the
    largest change.
    """
    strength = -load if spec.get("role") == "range" else np.hypot(load, true.net_shear)
    if spec.get("role") != "range" and true.along is None and not (true.normal == 0.0).any():
        strength = np.fmax.reduce(np.abs(true.normal - true.normal[0]), axis=1)
    known = np.where(np.isfinite(strength), strength, -np.inf)
    return int(known.argmax()) if known.max() > known.min() else len(known) - 1


# Drawing --------------------------------------------------------------------------------------------------------------


def draw_skin(figure: Any, sensor: SensorRecording, spec: Spec, env: int, moment: int | None = None) -> None:
    """Draw a field of taxels: true and measured at one moment, and curves of the whole skin over time.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor, with at least one arrival.
        spec: the field, see `is_skin`.
        env: column of the env.
        moment: index of the arrival to draw; None for the largest load.
    """
    skin, (arrivals, captures) = _skin(sensor, spec), sensor.pairs(env)
    measured, true = (
        _taxel_values(branch[spec["name"]], rows, env, spec, skin)
        for branch, rows in ((sensor.measured, arrivals), (sensor.truth, captures))
    )
    time = sensor.capture_time[arrivals, env]
    curves = _curves(spec, true, true)
    left, middle, space, right = panels_of(figure, (1.0, 1.0, 0.32, 0.85), 0.84)
    space.remove()
    right.remove()
    if skin.at is None and len(skin.shape) == 1:
        moment = None
        _draw_over_time((left, middle), true, measured, time, spec)
    else:
        moment = _moment(spec, true, next(iter(curves.values()))) if moment is None else moment
        _draw_moment((left, middle), (true, measured), moment, skin, spec, float(time[moment]))
    grid = right.get_subplotspec().subgridspec(len(curves), 1, hspace=0.14)
    for place, (label, curve), seen in zip(grid, curves.items(), _curves(spec, measured, true).values(), strict=True):
        axes = figure.add_subplot(place)
        axes.plot(time, seen, color=MEASURED, lw=1.4, label="measured")
        axes.plot(time, curve, color=TRUTH, lw=0.8, label="true")
        if moment is not None:
            axes.axvline(time[moment], color="#f0c94a", lw=2.5, alpha=0.6, zorder=0)
        axes.set_ylabel(label, fontsize=7.5)
        tidy(axes)
        axes.label_outer()
    axes.set_xlabel("capture time [s]")
    legend(figure.axes[-len(curves)])


def _draw_moment(
    panels: tuple[Any, Any], branches: tuple[_TaxelValues, _TaxelValues], moment: int, skin: _Skin, spec: Spec,
    time: float,
) -> None:  # fmt: skip
    """Draw the taxels in one capture, true and measured, with the same colours and arrow scale."""
    both = np.stack([felt.normal[moment] for felt in branches])
    both[:, skin.fillers] = np.nan
    low, high, colors = _scale(both[0], both[1], spec, _least(branches[0]))
    options = {"cmap": color_map(colors), "vmin": low, "vmax": high}
    layer, labels, which = _layer(both[0], skin)
    shear = np.stack([felt.shear[moment] for felt in branches])
    shear[:, skin.fillers] = 0.0
    longest = float(np.nan_to_num(shear).max(initial=0.0))
    scale = max(longest, 0.3 * float(np.nan_to_num(np.abs(both)).max(initial=0.0)))
    for axes, felt, values in zip(panels, branches, both, strict=True):
        if skin.at is None:
            drawn = axes.imshow(values.reshape(skin.shape)[layer].T, origin="lower", **options)
        elif len(skin.shape) == 1:
            drawn = axes.scatter(*skin.at.T, c=values, lw=0.0, plotnonfinite=True, **options)
            _size_dots(axes, drawn, skin.at)
        else:
            x, y, cells = (each.reshape(skin.shape) for each in (*skin.at.T, values))
            drawn = axes.pcolormesh(x, y, np.ma.masked_invalid(cells), shading="nearest", **options)
        axes.set_aspect("equal", anchor="NW")
        if felt.along is not None and skin.at is not None and longest > 0.0:
            _draw_arrows(axes, skin, skin.at, felt.along[moment], scale)
        axes.set_xlabel(labels[0])
    if np.dtype(spec["dtype"]).kind != "b" and np.ptp(np.nan_to_num(both)) > 0.0:
        color_bar(drawn, panels[1])
    panels[0].set_title(f"{name_and_unit(spec)}, true\nt = {time:.4g} s{which}")
    panels[1].set_title(f"measured\n{_error(both, spec)}")
    panels[0].set_ylabel(labels[1], labelpad=1.0)
    panels[1].tick_params(labelleft=False)
    if branches[0].along is not None:
        arrows = f" · arrows: {_shear(spec)}, up to {longest:.2g} {unit_text(spec['unit'])}" if longest > 0.0 else ""
        panels[0].annotate(
            f"colour: normal part{arrows}", (0.0, 0.0), xycoords="axes fraction", xytext=(0.0, -29.0),
            textcoords="offset points", fontsize=7, color=FAINT, va="top",
        )  # fmt: skip


def _shear(spec: Spec) -> str:
    """Return the name of the tangential component."""
    return "along the skin" if spec["unit"] == "N m" else "shear"


def _least(true: _TaxelValues) -> float:
    """Return a negligible span of values, so that rounding errors do not count as a load."""
    most = max(float(np.nan_to_num(np.abs(part)).max(initial=0.0)) for part in (true.normal, true.shear))
    return (0.02 if (true.normal == 0.0).any() else 1e-5) * most


def _scale(true: Array, measured: Array, spec: Spec, least: float) -> tuple[float, float, str]:
    """Return limits of the colours, and their name: from 0 if the truth has one sign, otherwise symmetric.

    Args:
        true: the true values to be drawn.
        measured: the measured values to be drawn.
        spec: the field.
        least: minimum span of the colours.
    """
    known = np.concatenate([each[np.isfinite(each)] for each in (true, measured)])
    if not len(known) or np.dtype(spec["dtype"]).kind == "b":
        return 0.0, 1.0, "viridis"
    low, high = float(known.min()), float(known.max())
    signs = true[np.isfinite(true)] if np.isfinite(true).any() else known
    below, above = -float(signs.min()), float(signs.max())
    if spec.get("role") != "range" and (signs == 0.0).any():
        least = max(least, TINY)
        if below > 0.02 * max(above, least) and above > 0.02 * max(below, least):
            size = max(-low, high, least)
            return -size, size, "RdBu_r"
        return (0.0, max(high, least), "viridis") if above >= below else (min(low, -least), 0.0, "viridis_r")
    return low, max(high, low + max(least, TINY)), "viridis"


def _layer(true: Array, skin: _Skin) -> tuple[tuple[Any, ...], tuple[str, str], str]:
    """Return the drawn layer of cells, the names of its axes, and a text that identifies it."""
    if len(skin.shape) < 3:
        return (), skin.labels, ""
    axis = int(np.argmin(skin.shape))
    cell = int(np.unravel_index(int(np.nan_to_num(np.abs(true), nan=-1.0).argmax()), skin.shape)[axis])
    first, second = (word for k, word in enumerate("xyz") if k != axis)
    count = skin.shape[axis]
    which = f", layer {cell + 1} of {count} in {'xyz'[axis]}" if count > 1 else ""
    return tuple(cell if k == axis else slice(None) for k in range(3)), (f"cell, {first}", f"cell, {second}"), which


def _spacing(at: Array) -> float:
    """Return the median distance of taxels to their nearest neighbours in the picture."""
    some = at[:: max(1, len(at) // 500)]
    distance = np.linalg.norm(some[:, None] - at[None], axis=-1)
    distance[distance < TINY] = np.inf
    nearest = distance.min(axis=1)
    return float(np.median(nearest[np.isfinite(nearest)])) if np.isfinite(nearest).any() else 1.0


def _size_dots(axes: Any, drawn: Any, at: Array) -> None:
    """Set limits around the taxels, and make dots as large as fits between them."""
    spacing = _spacing(at)
    low, high = at.min(axis=0) - 0.8 * spacing, at.max(axis=0) + 0.8 * spacing
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    box = axes.get_window_extent()
    points = 72.0 / axes.figure.dpi * float(np.min((box.width, box.height) / (high - low))) * spacing
    drawn.set_sizes([float(np.clip(points, 2.0, 20.0)) ** 2])


def _draw_arrows(axes: Any, skin: _Skin, at: Array, along: Array, scale: float) -> None:
    """Draw the tangential components; an arrow of size `scale` is 1.8 times as long as the taxel spacing."""
    across = np.stack([(along * skin.right).sum(axis=-1), (along * skin.up).sum(axis=-1)], axis=1)
    shown = np.isfinite(across).all(axis=1) & ~skin.fillers
    if len(skin.shape) == 2:
        shown &= np.outer(*(np.arange(size) % -(-size // MAX_ARROWS) == 0 for size in skin.shape)).ravel()
    shown &= np.hypot(*np.nan_to_num(across).T) > 0.08 * scale
    axes.quiver(
        *at[shown].T, *across[shown].T, angles="xy", scale_units="xy", scale=scale / (1.8 * _spacing(at)),
        color="#ffffff", edgecolor=TRUTH, linewidth=0.4, width=0.012, headwidth=3.6, headlength=3.6,
        headaxislength=3.2, minlength=0.0,
    )  # fmt: skip


def _draw_over_time(
    panels: tuple[Any, Any], true: _TaxelValues, measured: _TaxelValues, time: Array, spec: Spec
) -> None:
    """Draw taxels without positions by their number, over time, and their error."""
    captures, taxels, options = scan_of(time, true.normal.shape[1])
    seen, there = (felt.normal[captures][:, taxels] for felt in (measured, true))
    low, high, colors = _scale(there.ravel(), seen.ravel(), spec, _least(true))
    part = ", along z" if true.along is not None else ""
    panel(panels[0], seen.T, f"{name_and_unit(spec)}{part}\nmeasured", (low, high), colors, **options)
    text = _error(np.stack([true.normal, measured.normal]), spec)
    error_panel(panels[1], difference_of(spec, seen, there)[0].T, text, **options)
    label_scan(panels, "taxel")


def _error(both: Array, spec: Spec) -> str:
    """Return a text on the difference between the second and the first of two values."""
    if np.dtype(spec["dtype"]).kind == "b":
        return f"{int((both[0] != both[1]).sum())} of {both[0].size} differ"
    return error_text(both[1] - both[0], spec["unit"])
