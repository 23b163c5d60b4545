"""Delay, bias, scale and misalignment of a sensor, from a second log of the same motion.

The model of a field is y(t) = b + M x(t - d - r (t - middle)), with the reference x, the delay d and the drift r of the
clock. A search over whole periods finds the first delay, and Gauss-Newton steps solve Z' (y - model) = 0. The
instruments Z are the derivatives of the model at a smoothed reference: its noise then has little effect on M and d
(P. G. Wright, 1928; J. Durbin, 1954). The covariance is (Z'J)^-1 Z'RZ (J'Z)^-1, J the derivatives and R the covariance
of the residuals. R comes from their periodogram, averaged over frequencies, so that intervals hold for coloured noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.fitting.stamps import Z, stamps_of
from sensorium.readings import Array

LONGEST = 1.0
"""Maximum delay, s."""
FEWEST = 512
"""Minimum number of samples that both logs cover."""
SIMILAR = 0.5
"""Minimum share of the variance of the sensor that the reference explains."""
REPEATED = 0.98
"""Minimum share, relative to the best, at which a second delay counts as equally good."""
NEAR = 0.05
"""Maximum distance of two delays that count as one, s."""
MOVES = 5.0
"""Minimum motion along an axis, in standard deviations of the residual."""
TURNED = 0.2
"""Maximum element of M beside its diagonal."""
SMOOTH = 1.5
"""Standard deviation of the kernel that smooths the instruments, samples of the reference."""
NODES = 6
"""Number of samples of the reference that give one interpolated value."""
ORDINATES, SPREAD = 6, 0.25
"""Number of frequencies that are averaged at least, and relative width of a band."""
Z_BIAS = 2.18
"""Half width of a 95 % interval if the variance is that of 6 frequencies: Student's t with 12 degrees of freedom."""
ROUNDS = 20
"""Maximum number of Gauss-Newton steps."""
SETTLED = 1e-8
"""Change of the delay at which the steps end, s."""


def fit_with_reference(samples: Samples, kind: str, reference: Samples) -> Fit:
    """Return delay, bias, scale and misalignment of a sensor relative to a reference; see `sensorium.fit`.

    Raises:
        ArgumentError: the logs share no field or time, the reference does not move, or the motion repeats.
    """
    fields = [name for name in samples.values if name in reference.values]
    if not fields:
        raise ArgumentError(
            f"reference: got the fields {', '.join(reference.values)}, expected one of {', '.join(samples.values)}."
        )
    samples.check()
    reference.check()
    stamps = stamps_of(samples.time)
    kept = samples.rows(stamps.rows)
    truth = reference.rows(stamps_of(reference.time).rows)
    late = np.zeros(len(kept)) if kept.arrival is None else kept.arrival - kept.time
    time = kept.time + (kept.start - truth.start + float(late.mean()))
    inside = (time >= truth.time[0] + LONGEST) & (time <= truth.time[-1] - LONGEST)
    if np.count_nonzero(inside) < FEWEST:
        raise ArgumentError(
            f"reference: {np.count_nonzero(inside)} samples are at least {LONGEST} s inside its time span, expected "
            f"{FEWEST}. Use logs with one clock, and start the reference earlier."
        )
    place = stamps.place[inside] - stamps.place[inside][0]
    y = {name: kept.values[name][inside] for name in fields}
    x = {name: truth.values[name] for name in fields}
    start = _first_delay(time[inside], y, truth.time, x)
    solved = _Solution(time[inside], place, y, truth.time, x, start)
    solved.solve()
    late_sd = math.sqrt(_spectrum(late[inside, None], place)[0, 0] / len(place)) if late.any() else 0.0
    return _result(solved, kind, samples, f"{samples.source}, reference {reference.source}", late_sd)


def _first_delay(time: Array, y: dict[str, Array], true_time: Array, x: dict[str, Array]) -> float:
    """Return the delay in whole periods at which the reference explains most of the sensor's variance."""
    step = min(float(np.median(np.diff(time))), float(np.median(np.diff(true_time))))
    most = round(LONGEST / step)
    grid = np.arange(time[0], time[-1], step)
    explained = np.zeros(2 * most + 1)
    for name, values in y.items():
        seen = np.stack([np.interp(grid, time, column) for column in values.T])
        wide = grid[0] + step * np.arange(-most, len(grid) + most)
        true = np.stack([np.interp(wide, true_time, column) for column in x[name].T])
        if not (spread := true.std(axis=1)).any():
            raise ArgumentError(f"{name}: the reference does not move. Move sensor and reference together.")
        live = spread > 1e-9 * spread.max()
        true = true[live] - true[live].mean(axis=1, keepdims=True)
        seen = seen - seen.mean(axis=1, keepdims=True)
        size = 1 << (len(wide) + len(grid)).bit_length()
        spectra = np.fft.rfft(true, size)[:, None] * np.conj(np.fft.rfft(seen, size))
        # place `most` is the delay 0: the reference `most - k` steps later
        cross = np.fft.irfft(spectra, size)[..., : 2 * most + 1][..., ::-1] / len(grid)
        inverse = np.linalg.pinv(np.cov(true, bias=True).reshape(len(true), -1))
        share = np.einsum("aik,ab,bik->ik", cross, inverse, cross).sum(axis=0) / max(seen.var(axis=1).sum(), 1e-300)
        explained += share / len(y)
    best = int(np.argmax(explained))
    if explained[best] < SIMILAR:
        raise ArgumentError(
            f"reference: it explains {100.0 * explained[best]:.0f} % of the sensor's variance, expected {SIMILAR:.0%} "
            "or more: the reference does not move, or not as the sensor does. Check clocks, axes and motion."
        )
    inner = explained[1:-1]
    peaks = 1 + np.flatnonzero(
        (inner > explained[:-2]) & (inner >= explained[2:]) & (inner > REPEATED * explained[best])
    )
    others = np.abs(peaks - best) * step
    if (others := others[others > NEAR]).size:
        raise ArgumentError(
            f"reference: its motion repeats after {others.min():.3g} s, so that the delay is ambiguous, "
            "expected an irregular motion. Move the sensor irregularly."
        )
    return (best - most) * step


def interpolated(time: Array, values: Array, at: Array) -> Array:
    """Return values `[time, column]` between samples `[row, column]`: Lagrange's polynomial through 6 samples."""
    first = np.clip(np.searchsorted(time, at) - NODES // 2, 0, len(time) - NODES)
    nodes = time[first[:, None] + np.arange(NODES)]
    found = np.zeros((len(at), values.shape[1]))
    for k in range(NODES):
        others = [j for j in range(NODES) if j != k]
        ratio = (at[:, None] - nodes[:, others]) / (nodes[:, k : k + 1] - nodes[:, others])
        found += ratio.prod(axis=1)[:, None] * values[first + k]
    return found


def _smoothed(values: Array) -> Array:
    """Return values `[row, column]` after a Gaussian kernel."""
    kernel = np.exp(-0.5 * np.square(np.arange(-6, 7) / SMOOTH))
    padded = np.pad(values, ((6, 6), (0, 0)), mode="edge")
    return np.stack([np.convolve(column, kernel / kernel.sum(), "valid") for column in padded.T], axis=1)


def _on_grid(values: Array, place: Array) -> Array:
    """Return values `[place, column]` of even times, 0 where a sample is missing."""
    full = np.zeros((int(place[-1]) + 1, values.shape[1]))
    full[place] = values
    return full


def _spectrum(values: Array, place: Array) -> Array:
    """Return the power per sample at the frequencies of a real Fourier transform `[frequency, column]`, in bands."""
    full = _on_grid(values - values.mean(axis=0), place)
    power = np.square(np.abs(np.fft.rfft(full, axis=0))) / len(place)
    edges = [1]
    while (last := edges[-1]) + max(ORDINATES, round(SPREAD * last)) < len(power) - ORDINATES:
        edges.append(last + max(ORDINATES, round(SPREAD * last)))
    sizes = np.diff([*edges, len(power)])
    bands = np.add.reduceat(power, edges, axis=0) / sizes[:, None]
    return np.concatenate((bands[:1], np.repeat(bands, sizes, axis=0)))


@dataclass
class _Solution:
    """The solved model of all fields: parameters, and their covariance.

    `matrix` and `bias` hold M and b of each field. `index` maps ``(field, row, column)`` to a parameter, column -1 to
    the bias. The last two parameters are delay and drift.
    """

    time: Array
    place: Array
    y: dict[str, Array]
    true_time: Array
    x: dict[str, Array]
    delay: float
    drift: float = 0.0

    def solve(self) -> None:
        """Find all parameters, first of all axes, then of those that move."""
        self.matrix = {name: np.eye(each.shape[1]) for name, each in self.y.items()}
        self.bias = {name: np.zeros(each.shape[1]) for name, each in self.y.items()}
        self.moves = {name: each.std(axis=0) > 1e-9 * each.std() for name, each in self.x.items()}
        self._iterate()
        spread = {name: self.x[name].std(axis=0) for name in self.y}
        moves = {name: spread[name] > MOVES * self.residual[name].std(axis=0) for name in self.y}
        if not any(each.any() for each in moves.values()):
            raise ArgumentError(
                f"reference: the reference does not move, its values change by less than {MOVES:g} times the noise of "
                "the sensor. Move sensor and reference together."
            )
        if any((moves[name] != self.moves[name]).any() for name in moves):
            self.moves = moves
            self.matrix = {name: np.eye(each.shape[1]) for name, each in self.y.items()}
            self._iterate()

    def _iterate(self) -> None:
        names = [(name, row) for name in self.y for row in range(self.y[name].shape[1])]
        keys = [(name, row, k) for name, row in names for k in (-1, *np.flatnonzero(self.moves[name]).tolist())]
        self.index = {key: k for k, key in enumerate(keys)}
        tau = self.time - 0.5 * (self.time[0] + self.time[-1])
        sources = {}
        for name, true in self.x.items():
            both = np.concatenate((true, np.gradient(true, self.true_time, axis=0)), axis=1)
            sources[name] = np.concatenate((both, _smoothed(both)), axis=1)
        weight = {name: 1.0 / np.maximum(each.var(axis=0), 1e-300) for name, each in self.y.items()}
        size = len(keys) + 2
        settled = False
        for count in range(ROUNDS + 1):
            last = settled or count == ROUNDS
            at = self.time - self.delay - self.drift * tau
            left, right, meat = np.zeros((size, size)), np.zeros(size), np.zeros((size, size))
            residual: dict[str, Array] = {}
            for name, values in self.y.items():
                live, matrix = self.moves[name], self.matrix[name]
                x, v, zx, zv = np.split(interpolated(self.true_time, sources[name], at), 4, axis=1)
                residual[name] = values - self.bias[name] - x @ matrix.T
                spectrum = _spectrum(residual[name], self.place) if last else None
                for row in range(values.shape[1]):
                    rows = [self.index[name, row, k] for k in (-1, *np.flatnonzero(live).tolist())]
                    rows += [size - 2, size - 1]
                    slope, z_slope = -v @ matrix[row], -zv @ matrix[row]
                    one = np.ones(len(x))
                    j = np.column_stack((one, x[:, live], slope, slope * tau))
                    z = np.column_stack((one, zx[:, live], z_slope, z_slope * tau)) * weight[name][row]
                    left[np.ix_(rows, rows)] += z.T @ j
                    right[rows] += z.T @ residual[name][:, row]
                    if spectrum is not None:
                        f = np.fft.rfft(_on_grid(z, self.place), axis=0)
                        twice = np.full(len(f), 2.0)
                        twice[0] = 1.0
                        scaled = f * (twice * spectrum[:, row])[:, None]
                        meat[np.ix_(rows, rows)] += (np.conj(f).T @ scaled).real / (self.place[-1] + 1)
            scale = np.sqrt(np.maximum(np.abs(np.diag(left)), 1e-300))
            inverse = np.linalg.pinv(left / np.outer(scale, scale), rcond=1e-12) / np.outer(scale, scale)
            self.residual = residual
            if last:
                self.covariance = inverse @ meat @ inverse.T
                return
            change = inverse @ right
            for (name, row, k), number in self.index.items():
                target = self.bias[name][row : row + 1] if k < 0 else self.matrix[name][row, k : k + 1]
                target += change[number]
            self.delay += float(change[-2])
            self.drift += float(change[-1])
            weight = {name: 1.0 / np.maximum(each.var(axis=0), 1e-300) for name, each in residual.items()}
            settled = count > 1 and abs(float(change[-2])) < SETTLED
            if abs(self.delay) > LONGEST:
                raise ArgumentError("reference: no delay below 1 s was found. Use logs with one clock.")

    def sd(self, gradient: dict[int, float]) -> float:
        """Return the standard deviation of a function of the parameters, from its derivatives."""
        rows = [*gradient]
        slopes = np.array([gradient[row] for row in rows])
        return math.sqrt(max(float(slopes @ self.covariance[np.ix_(rows, rows)] @ slopes), 0.0))


def _result(solved: _Solution, kind: str, samples: Samples, source: str, late_sd: float) -> Fit:
    """Return parameters, fields of the preset and drawings."""
    parameters: dict[str, Parameter] = {}
    refused: dict[str, str] = {}
    drawings: dict[str, Callable[[Any], None]] = {}
    bias: dict[str, Any] = {}
    stages: list[dict[str, Any]] = []

    def add(name: str, value: float, unit: str, half: float, method: str) -> None:
        parameters[name] = Parameter(value, unit, value - half, value + half, method, source)

    size = len(solved.covariance)
    line = "least squares over the aligned reference"
    add("delay", solved.delay, "s", Z * math.hypot(solved.sd({size - 2: 1.0}), late_sd), line)
    add("stamp.drift", 1e6 * solved.drift, "ppm", 1e6 * Z * solved.sd({size - 1: 1.0}), line)
    for name, matrix in solved.matrix.items():
        columns = len(matrix)
        labels = ("x", "y", "z") if columns == 3 else tuple(map(str, range(columns))) if columns > 1 else ("",)
        beside = np.abs(matrix - np.diag(np.diag(matrix))).max() if columns > 1 else 0.0
        if beside > TURNED or (np.diag(matrix) < TURNED).any():
            raise ArgumentError(
                f"{name}: its axes are not those of the reference, M = {np.round(matrix, 3).tolist()} in y = M x + b, "
                f"expected a diagonal near 1 and less than {TURNED} beside it. Rotate the reference first."
            )
        scale, cross = np.zeros(columns), np.zeros((columns, columns))
        for row, label in enumerate(labels):
            key = f"{name}.{{}}{'.' if label else ''}{label}"
            half = Z_BIAS * solved.sd({solved.index[name, row, -1]: 1.0})
            add(key.format("bias"), float(solved.bias[name][row]), samples.units[name], half, line)
            if (own := solved.index.get((name, row, row))) is None:
                refused[key.format("scale")] = "the reference does not move along this axis"
                continue
            scale[row] = matrix[row, row] - 1.0
            add(key.format("scale"), float(scale[row]), "1", Z * solved.sd({own: 1.0}), line)
            for other in set(range(columns)) - {row}:  # M = T (I + S): this axis couples into another
                cross[other, row] = matrix[other, row] / matrix[row, row]
                gradient = {
                    solved.index[name, other, row]: 1.0 / matrix[row, row],
                    own: -cross[other, row] / matrix[row, row],
                }
                key_of_cross = f"{name}.cross_axis.{labels[other]}{label}"
                add(key_of_cross, float(cross[other, row]), "1", Z * solved.sd(gradient), line)
        bias[name] = solved.bias[name].tolist() if columns > 1 else float(solved.bias[name][0])
        if columns == 3:
            couplings = cross[~np.eye(3, dtype=bool)].tolist()
            stages.append(
                {"kind": "scale_error", "fields": [name], "scale": scale.tolist(), "cross_axis": couplings}
            )  # fmt: skip
        drawings[f"{name} and the aligned reference"] = _drawing(solved, name, labels, samples.units[name])
    fields: dict[str, Any] = {"bias": bias, "stages": stages}
    if solved.delay > 0.0:
        fields["delay"] = solved.delay
    else:
        refused["fields.delay"] = "the sensor is earlier than the reference, which a preset cannot express"
    if kind == "imu":
        fields["fields"] = [*solved.y]
    return Fit(kind, source, parameters, refused, fields, drawings)


def _drawing(solved: _Solution, name: str, labels: tuple[str, ...], unit: str) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        shown = solved.time <= solved.time[0] + 5.0
        time, rest = solved.time[shown], solved.residual[name][shown]
        for k, label in enumerate(labels):
            (line,) = axes.plot(time, solved.y[name][shown, k], ".", ms=3, label=f"sensor {label}")
            axes.plot(time, solved.y[name][shown, k] - rest[:, k], color=line.get_color(), label=f"fitted {label}")
            axes.plot(time, rest[:, k], ":", lw=0.8, color=line.get_color(), label=f"residual {label}")
        axes.set(xlabel="time [s]", ylabel=f"{name} [{unit}]")
        axes.legend(ncols=3, fontsize="small")

    return draw
