"""Maps of skins: the taxels at the moment of the largest load, true and measured, and the sum over time.

Colours are the components along the normals of the taxels, or scalar values; arrows are the tangential components.
Grids, and taxels with known positions (`probe_local_pos`, `probe_local_normal` in the recording's config), are seen
from outside the skin, in the axes of the link: a bent grid is unrolled, and a list is projected along its mean normal.
Taxels without positions are drawn over time. For cells in three dimensions, the layer of the largest value is drawn.

A taxel is active if it shows more than 5 % of the largest true value of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.panels import Spec, color_map, inches_of, name_and_unit, own_shape, row_of_panels
from sensorium.view.style import FAINT, INK, MEASURED, TRUTH, tidy, unit_text

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

AXES = (("probe",), ("row", "column"), ("x", "y", "z"))
"""Names of the axes that count taxels."""
ACTIVE = 0.05
"""Fraction of the largest true value above which a taxel is active."""
MAX_ARROWS = 24
"""Maximum number of arrows along a row or column of a grid."""
MAX_COLUMNS = 96
"""Maximum number of drawn captures for taxels without positions."""
ABOVE = 0.42
"""Margin for titles of two lines, inches."""
TINY = 1e-12


def is_skin(spec: Spec) -> bool:
    """Return whether a field holds a number, a flag or a vector per taxel of a skin."""
    axes, role = _own_axes(spec), spec.get("role", "scalar")
    taxels = _taxel_axes(axes)
    if not taxels or axes[len(taxels) :] not in ((), ("xyz",)) or np.dtype(spec["dtype"]).kind not in "fb":
        return False
    return role in ("scalar", "vector_at") or (role == "range" and len(taxels) > 1)


def _own_axes(spec: Spec) -> tuple[str, ...]:
    axes = tuple(spec["axes"][1:])
    return axes[1:] if axes[:1] == ("mount",) else axes


def _taxel_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """Return the axes that count taxels."""
    return next((words for words in AXES if tuple(axes[: len(words)]) == words), ())


# Places ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Skin:
    """Positions of taxels, and the normal and tangential directions there.

    Attributes:
        shape: sizes of the axes that count taxels.
        normals: unit vectors `[taxel, 3]`.
        right: unit tangential vectors that point right in the picture.
        up: unit tangential vectors that point up in the picture.
        at: `[taxel, 2]`, positions in the picture; None if unknown.
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
    shape = tuple(own_shape(spec)[: len(_taxel_axes(_own_axes(spec)))])
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
    right, up, labels = _in_plane(mean)
    is_known = len(places) == count and count > 1
    at = None
    if is_known:
        if len(shape) == 2 and not _is_flat(places, mean, shape):
            grid = places.reshape(*shape, 3)
            right = np.asarray(np.gradient(grid, axis=1)).reshape(-1, 3) if shape[1] > 1 else right
            up = np.asarray(np.gradient(grid, axis=0)).reshape(-1, 3) if shape[0] > 1 else np.cross(normals, right)
            labels = ("column", "row")
        else:
            at = np.stack([places @ right, places @ up], axis=1)
            size = float(np.ptp(at, axis=0).max())
            factor, unit = (1e3, "mm") if size < 1.0 else (1.0, "m")
            at, labels = factor * at, (f"{labels[0]} [{unit}]", f"{labels[1]} [{unit}]")
    elif len(shape) == 2:
        labels = ("column", "row")
    return _Skin(shape, normals, _along(right, normals), _along(up, normals), at, labels, fillers)


def _in_plane(normal: Array) -> tuple[Array, Array, tuple[str, str]]:
    """Return the right and up directions for a view of a surface from outside, and the names of both."""
    if abs(normal[2]) > 0.8:
        right = np.array([1.0, 0.0, 0.0]) - normal[0] * normal
        right /= np.linalg.norm(right)
        up = np.cross(normal, right)
    else:
        up = np.array([0.0, 0.0, 1.0]) - normal[2] * normal
        up /= np.linalg.norm(up)
        right = np.cross(up, normal)
    return right, up, (_named(right), _named(up))


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
    mount = (0,) if spec["axes"][1:2] == ["mount"] else ()
    numbers = values[(rows, env, *mount)].astype(np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    if len(own_shape(spec)) == len(skin.shape):
        return _TaxelValues(numbers.reshape(len(rows), -1))
    vectors = numbers.reshape(len(rows), -1, 3)
    normal = np.einsum("tic,ic->ti", vectors, skin.normals)
    return _TaxelValues(normal, vectors - normal[..., None] * skin.normals)


Curve = Callable[[_TaxelValues], Array]


def _curves(spec: Spec, true: _TaxelValues) -> list[tuple[str, Curve]]:
    """Return the curves of the whole skin over time: their names and functions of the values."""
    unit, is_vector = unit_text(spec["unit"]), true.along is not None
    if np.dtype(spec["dtype"]).kind == "b":
        return [("active\ntaxels", lambda felt: (felt.normal > 0.0).sum(axis=1))]
    if spec.get("role") == "range":
        return [(f"least\n[{unit}]", lambda felt: _known(felt.normal, np.min))]
    adds = spec["unit"] in ("N", "N m")
    curves: list[tuple[str, Curve]]
    if adds:
        curves = [(f"normal,\nsum [{unit}]" if is_vector else f"sum\n[{unit}]", lambda felt: felt.normal.sum(axis=1))]
        if is_vector:
            curves.append((f"{_shear(spec)},\nsum [{unit}]", lambda felt: felt.net_shear))
    elif is_vector:
        curves = [
            (f"greatest\nnormal [{unit}]", lambda felt: _known(np.abs(felt.normal), np.max)),
            (f"greatest\nshear [{unit}]", lambda felt: _known(felt.shear, np.max)),
        ]
    else:
        curves = [(f"greatest\n[{unit}]", lambda felt: _known(felt.normal, np.max))]
    most = float(np.nanmax(np.abs(true.normal), initial=0.0))
    if (true.normal == 0.0).any() and most > 0.0:
        title = f"active taxels\n(> {ACTIVE * most:.2g} {unit})"
        curves.append((title, lambda felt: (np.abs(felt.normal) > ACTIVE * most).sum(axis=1)))
    elif not adds and not is_vector:
        curves.append((f"mean\n[{unit}]", lambda felt: _known(felt.normal, np.mean)))
    return curves


def _known(values: Array, reduce: Callable[..., Any]) -> Array:
    """Return one number per capture, from taxels with a known value; NaN if there are none."""
    return np.array([reduce(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])


def _moment(spec: Spec, true: _TaxelValues, curve: Curve) -> int:
    """Return the capture to draw: that of the largest load; without a load, the last one.

    For distances, it is that of the minimum. For values that are never 0, such as temperatures, it is that of the
    largest change.
    """
    if spec.get("role") == "range":
        strength = -curve(true)
    elif true.along is None and not (true.normal == 0.0).any():
        strength = _known(np.abs(true.normal - true.normal[0]), np.max)
    else:
        strength = np.hypot(curve(true), true.net_shear)
    known = np.where(np.isfinite(strength), strength, -np.inf)
    return int(known.argmax()) if known.max() > known.min() else len(known) - 1


# Drawing --------------------------------------------------------------------------------------------------------------


def draw_skin(
    figure: Any, sensor: SensorRecording, spec: Spec, env: int, pairs: tuple[Array, Array], room: tuple[float, float]
) -> None:
    """Draw a field of taxels: true and measured at one moment, and curves of the whole skin over time.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor.
        spec: the field, see `is_skin`.
        env: column of the env.
        pairs: rows of measured and of true values of the same captures; at least one.
        room: bottom and top of the strip to draw in, as fractions of the figure's height.
    """
    skin = _skin(sensor, spec)
    measured, true = (
        _taxel_values(branch[spec["name"]], rows, env, spec, skin)
        for branch, rows in zip((sensor.measured, sensor.truth), pairs, strict=True)
    )
    time = sensor.capture_time[pairs[0], env]
    curves = _curves(spec, true)
    moment = _moment(spec, true, curves[0][1])
    left, middle, right = row_of_panels(figure, room, (1.0, 1.0, 1.2), above=ABOVE)
    if skin.at is None and len(skin.shape) == 1:
        _draw_over_time(figure, (left, middle), (true, measured), time, spec)
    else:
        _draw_moment(figure, (left, middle), (true, measured), moment, skin, spec, float(time[moment]))
    right.set_axis_off()
    inches = inches_of(figure)
    gap = 0.14 / inches
    box = right.get_position()
    height = (box.height + gap) / len(curves) - gap
    for i, (label, curve) in enumerate(curves):
        low = box.y1 - (i + 1) * height - i * gap
        axes = figure.add_axes((box.x0 + 0.34 * box.width, low, 0.7 * box.width, height))
        axes.plot(time, curve(measured), color=MEASURED, lw=1.4, label="measured")
        axes.plot(time, curve(true), color=TRUTH, lw=0.8, label="true")
        if skin.at is not None or len(skin.shape) > 1:
            axes.axvline(time[moment], color="#f0c94a", lw=2.5, alpha=0.6, zorder=0)
        axes.set_ylabel(label, fontsize=7.5, color=INK)
        tidy(axes, is_last=i == len(curves) - 1)
        if i == 0:
            axes.legend(
                loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8, borderaxespad=0.1,
                handlelength=1.6, labelcolor=INK,
            )  # fmt: skip
    axes.set_xlabel("capture time [s]", fontsize=8, color=INK)


def _draw_moment(
    figure: Any,
    panels: tuple[Any, Any],
    branches: tuple[_TaxelValues, _TaxelValues],
    moment: int,
    skin: _Skin,
    spec: Spec,
    time: float,
) -> None:
    """Draw the taxels in one capture, true and measured, with the same colours and arrow scale."""
    both = np.stack([felt.normal[moment] for felt in branches])
    both[:, skin.fillers] = np.nan
    is_flag = np.dtype(spec["dtype"]).kind == "b"
    low, high, colors = _scale(both[0], both[1], spec, _least(branches[0]))
    options = {"cmap": color_map(colors), "vmin": low, "vmax": high}
    layer, text = _layer(both[0], skin)
    shear = np.stack([felt.shear[moment] for felt in branches])
    shear[:, skin.fillers] = 0.0
    longest = float(np.nan_to_num(shear).max(initial=0.0))
    for axes, felt, values, which in zip(panels, branches, both, ("true", "measured"), strict=True):
        if len(skin.shape) == 1 and skin.at is not None:
            spacing = _spacing(skin.at)
            drawn = axes.scatter(*skin.at.T, c=values, lw=0.0, plotnonfinite=True, **options)
            _size_dots(axes, drawn, skin.at, spacing)
        elif skin.at is not None:
            x, y = (skin.at[:, k].reshape(skin.shape) for k in (0, 1))
            drawn = axes.pcolormesh(
                x, y, np.ma.masked_invalid(values.reshape(skin.shape)), shading="nearest", **options
            )
            spacing = _spacing(skin.at)
        else:
            drawn = axes.imshow(
                values.reshape(skin.shape)[layer].T if len(skin.shape) == 3 else values.reshape(skin.shape),
                origin="lower", interpolation="nearest", **options,
            )  # fmt: skip
            spacing = 1.0
        axes.set_aspect("equal", anchor="NW")
        if felt.along is not None and longest > 0.0:
            scale = max(longest, 0.3 * float(np.nan_to_num(np.abs(both)).max(initial=0.0)))
            _draw_arrows(axes, skin, felt.along[moment], scale, spacing)
        axes.set_xlabel(text[0], fontsize=8, color=INK)
        title = f"{_labelled(spec)}, true\nt = {time:.4g} s{text[2]}"
        if which == "measured":
            title = f"measured\n{_error(both, spec)}"
        axes.set_title(title, fontsize=8.5, color=INK, loc="left", pad=4.0)
        if which == "measured" and not is_flag and np.ptp(np.nan_to_num(both)) > 0.0:
            _bar_beside(figure, axes, drawn)
    panels[0].set_ylabel(text[1], fontsize=8, color=INK, labelpad=1.0)
    panels[1].tick_params(labelleft=False)
    if branches[0].along is not None:
        unit = unit_text(spec["unit"])
        arrows = f" · arrows: {_shear(spec)}, up to {longest:.2g} {unit}" if longest > 0.0 else ""
        panels[0].annotate(
            f"colour: normal part{arrows}", (0.0, 0.0), xycoords="axes fraction", xytext=(0.0, -29.0),
            textcoords="offset points", fontsize=7, color=FAINT, va="top",
        )  # fmt: skip


def _bar_beside(figure: Any, axes: Any, drawn: Any) -> None:
    """Add a colour bar as high as the map."""
    axes.apply_aspect()
    box = axes.get_position()
    bar = figure.colorbar(drawn, cax=figure.add_axes((box.x1 + 0.01, box.y0, 0.012, box.height)))
    bar.formatter.set_powerlimits((-2, 3))
    bar.ax.yaxis.get_offset_text().set_fontsize(7)
    bar.ax.tick_params(labelsize=7, colors=INK, length=2.0, width=0.5)
    bar.outline.set_visible(False)


def _labelled(spec: Spec) -> str:
    """Return the name of a field, with its unit if it has one."""
    return str(spec["name"]) if spec["unit"] == "1" else name_and_unit(spec)


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
    if np.dtype(spec["dtype"]).kind == "b":
        return 0.0, 1.0, "viridis"
    known = np.concatenate([each[np.isfinite(each)] for each in (true, measured)])
    if not len(known):
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


def _layer(true: Array, skin: _Skin) -> tuple[tuple[Any, ...], tuple[str, str, str]]:
    """Return the drawn layer of cells, the names of its axes, and a text that identifies it."""
    if len(skin.shape) < 3:
        return (), (*skin.labels, "")
    axis = int(np.argmin(skin.shape))
    cell = np.unravel_index(int(np.nan_to_num(np.abs(true), nan=-1.0).argmax()), skin.shape)[axis]
    first, second = (word for k, word in enumerate("xyz") if k != axis)
    count = skin.shape[axis]
    which = f", layer {int(cell) + 1} of {count} in {'xyz'[axis]}" if count > 1 else ""
    return tuple(int(cell) if k == axis else slice(None) for k in range(3)), (
        f"cell, {first}",
        f"cell, {second}",
        which,
    )


def _spacing(at: Array) -> float:
    """Return the median distance of taxels to their nearest neighbours in the picture."""
    some = at[:: max(1, len(at) // 500)]
    distance = np.linalg.norm(some[:, None] - at[None], axis=-1)
    distance[distance < TINY] = np.inf
    nearest = distance.min(axis=1)
    return float(np.median(nearest[np.isfinite(nearest)])) if np.isfinite(nearest).any() else 1.0


def _size_dots(axes: Any, drawn: Any, at: Array, spacing: float) -> None:
    """Set limits around the taxels, and make dots as large as fits between them."""
    middle, half = 0.5 * (at.min(axis=0) + at.max(axis=0)), 0.5 * np.ptp(at, axis=0) + 0.8 * spacing
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])
    box = axes.get_window_extent()
    points = 72.0 / axes.figure.dpi * min(box.width / (2.0 * half[0]), box.height / (2.0 * half[1])) * spacing
    drawn.set_sizes([float(np.clip(points, 2.0, 20.0)) ** 2])


def _draw_arrows(axes: Any, skin: _Skin, along: Array, scale: float, spacing: float) -> None:
    """Draw the tangential components; an arrow of size `scale` is 1.8 times as long as the taxel spacing."""
    across = np.stack([(along * skin.right).sum(axis=-1), (along * skin.up).sum(axis=-1)], axis=1)
    if skin.at is not None:
        at = skin.at
    else:
        rows, columns = np.indices(skin.shape)
        at = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)
    shown = np.isfinite(across).all(axis=1) & ~skin.fillers
    if len(skin.shape) == 2:
        kept = [np.arange(size) % -(-size // MAX_ARROWS) == 0 for size in skin.shape]
        shown &= np.outer(*kept).ravel()
    shown &= np.hypot(*np.nan_to_num(across).T) > 0.08 * scale
    axes.quiver(
        *at[shown].T, *across[shown].T, angles="xy", scale_units="xy", scale=scale / (1.8 * spacing), color="#ffffff",
        edgecolor=TRUTH, linewidth=0.4, width=0.012, headwidth=3.6, headlength=3.6, headaxislength=3.2, minlength=0.0,
    )  # fmt: skip


def _draw_over_time(
    figure: Any, panels: tuple[Any, Any], branches: tuple[_TaxelValues, _TaxelValues], time: Array, spec: Spec
) -> None:
    """Draw taxels without positions by their number, over time."""
    both = [felt.normal for felt in branches]
    low, high, colors = _scale(both[0].ravel(), both[1].ravel(), spec, _least(branches[0]))
    columns = np.unique(np.linspace(0, len(time) - 1, min(len(time), MAX_COLUMNS)).round().astype(int))
    step = (time[-1] - time[0]) / max(len(columns) - 1, 1) or 1e-3
    extent = (time[0] - 0.5 * step, time[-1] + 0.5 * step, -0.5, both[0].shape[1] - 0.5)
    for axes, values, which in zip(panels, both, ("true", "measured"), strict=True):
        drawn = axes.imshow(
            values[columns].T, aspect="auto", origin="lower", extent=extent, interpolation="nearest",
            cmap=color_map(colors), vmin=low, vmax=high,
        )  # fmt: skip
        part = ", along z" if branches[0].along is not None else ""
        title = f"{_labelled(spec)}{part}\ntrue" if which == "true" else f"measured\n{_error(np.stack(both), spec)}"
        axes.set_title(title, fontsize=8.5, color=INK, loc="left", pad=4.0)
        axes.set_xlabel("capture time [s]", fontsize=8, color=INK)
        if which == "measured" and np.dtype(spec["dtype"]).kind != "b":
            _bar_beside(figure, axes, drawn)
    panels[0].set_ylabel("taxel", fontsize=8, color=INK, labelpad=1.0)
    panels[1].tick_params(labelleft=False)


def _error(both: Array, spec: Spec) -> str:
    """Return a text on the difference between the second and the first of two values."""
    if np.dtype(spec["dtype"]).kind == "b":
        return f"{int((both[0] != both[1]).sum())} of {both[0].size} differ"
    difference = both[1] - both[0]
    known = difference[np.isfinite(difference)]
    if not known.any():
        return "no error"
    return f"error {known.mean():+.2g} ± {known.std():.2g} {unit_text(spec['unit'])}"
