"""Regular grids of probes: the effect of each place on every other, as a table over offsets and as a convolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXACT = 1e-4
"""Largest deviation of the probes from a regular grid, relative to the spacing."""
PERIOD = 8
"""Period of the layer in grid extents; the periodic images then change it by 1 % of its peak."""
SHALLOW, DEEP = 1e-3, 30.0
"""Limits of wave number times thickness: below, the response of a layer diverges; above, it is 0 in float32."""

CHUNK = 64
"""Number of grids that are transformed together on the CPU, chosen to fit into its caches."""


@dataclass(frozen=True, eq=False, slots=True)
class GelLattice:
    """A regular rectangular grid of places.

    Attributes:
        rows: number of rows.
        columns: number of columns.
        origin: first place, m.
        along_rows: unit vector from row to row.
        along_columns: unit vector from column to column.
        spacing: between rows and between columns, m; a single row or column has the spacing of the other axis.
    """

    rows: int
    columns: int
    origin: Array
    along_rows: Array
    along_columns: Array
    spacing: tuple[float, float]

    def offsets(self) -> tuple[Array, Array]:
        """Return the offsets between places along rows and columns `[2 rows - 1, 2 columns - 1]`, m."""
        x, y = (
            step * np.arange(1.0 - count, count)
            for count, step in zip((self.rows, self.columns), self.spacing, strict=True)
        )
        along_rows, along_columns = np.meshgrid(x, y, indexing="ij")
        return along_rows, along_columns


def lattice_of(places: Array) -> GelLattice | str:
    """Return the regular grid formed by places, or a text on why they form none.

    Args:
        places: `[probe, 3]` or `[row, column, 3]`, m.
    """
    if places.ndim != 3:
        return f"it is a list of {len(places)} probes, not a grid [row, column, 3]"
    rows, columns = places.shape[:2]
    if rows * columns == 1:
        return "it is one probe"
    steps = [(places[-1, 0] - places[0, 0]) / max(rows - 1, 1), (places[0, -1] - places[0, 0]) / max(columns - 1, 1)]
    sizes = [float(np.linalg.norm(step)) for step in steps]
    for count, size, what in ((rows, sizes[0], "rows"), (columns, sizes[1], "columns")):
        if count > 1 and size == 0.0:
            return f"its first and last {what} start at the same place"
    if rows > 1 and columns > 1:
        slant = abs(float(steps[0] @ steps[1])) / (sizes[0] * sizes[1])
        if slant > EXACT:
            return f"its rows and columns are at {np.degrees(np.arccos(slant)):.4g} degrees, not at 90"
    even = places[0, 0] + np.arange(rows)[:, None, None] * steps[0] + np.arange(columns)[:, None] * steps[1]
    off = np.linalg.norm(places - even, axis=-1)
    least = min(size for size in sizes if size > 0.0)
    if off.max() > EXACT * least:
        row, column = (int(k) for k in np.unravel_index(off.argmax(), off.shape))
        return (
            f"probe [{row}, {column}] is {off.max():.3g} m off a plane grid with a spacing of "
            f"{sizes[0]:.4g} m by {sizes[1]:.4g} m"
        )
    if rows == 1 or columns == 1:  # a line: the other axis is any perpendicular direction
        k = 0 if columns == 1 else 1
        axis = steps[k] / sizes[k]
        other = np.cross(axis, np.eye(3)[np.abs(axis).argmin()])
        axes = [axis, other / np.linalg.norm(other)] if k == 0 else [other / np.linalg.norm(other), axis]
        sizes = [sizes[k], sizes[k]]
    else:
        axes = [step / size for step, size in zip(steps, sizes, strict=True)]
    return GelLattice(rows, columns, places[0, 0], axes[0], axes[1], (sizes[0], sizes[1]))


def typical_spacing(places: Array) -> tuple[float, float]:
    """Return median and maximum of the distances to the nearest neighbour, m; 0 for a single place."""
    if len(places) < 2:
        return 0.0, 0.0
    nearest = np.empty(len(places))
    for k, place in enumerate(places):
        far = ((places - place) ** 2).sum(axis=1)
        far[k] = np.inf
        nearest[k] = np.sqrt(far.min())
    return float(np.median(nearest)), float(nearest.max())


def layer_table(lattice: GelLattice, thickness: float) -> Array:
    """Return the in-plane displacement for a unit depth at one place, along rows and columns `[..., 2]`, m per m.

    A layer of an incompressible gel that is bonded to a rigid backing and pressed by a depth field H moves by

        u^(k) = -i k / |k| S(|k| t) H^(k)        S(q) = 2 q^2 / (sinh 2q - 2q)

    along its surface: the gel can only move sideways, and the backing holds it. The response is that of a periodic
    layer, `PERIOD` times as large as the grid.

    Args:
        lattice: the grid, of at least two rows and columns.
        thickness: t, m.
    """
    counts = [fast_size(PERIOD * max(count, 8)) for count in (lattice.rows, lattice.columns)]
    waves = [2.0 * np.pi * np.fft.fftfreq(n, step) for n, step in zip(counts, lattice.spacing, strict=True)]
    k0, k1 = np.meshgrid(*waves, indexing="ij")
    k = np.hypot(k0, k1)
    q = np.clip(k * thickness, SHALLOW, DEEP)
    response = 2.0 * q**2 / (np.sinh(2.0 * q) - 2.0 * q)
    k[0, 0] = 1.0
    table = np.empty((2 * lattice.rows - 1, 2 * lattice.columns - 1, 2))
    at = [np.arange(1 - count, count) % n for count, n in zip((lattice.rows, lattice.columns), counts, strict=True)]
    for axis, along in enumerate((k0, k1)):
        # At the highest wave number of an even count, left and right coincide: taking the real part removes it.
        kernel = np.fft.ifft2(-1j * along / k * response).real
        table[..., axis] = kernel[np.ix_(*at)]
    return table


def fast_size(least: int) -> int:
    """Return the smallest size >= `least` with no prime factors but 2, 3 and 5, for which FFTs are fast."""
    size = max(least, 1)
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 1


class Convolution:
    """The sums over a grid for all environments and mounts, by FFT, padded so that nothing wraps around.

    Args:
        tables: effect of a unit at one place at each offset `[3, 2 rows - 1, 2 columns - 1]`: depths cause the first
            two, their powers the third.
        batch: sizes of env and mount.
        device: torch device.
    """

    def __init__(self, tables: Array, batch: tuple[int, int], device: str) -> None:
        counts = [(size + 1) // 2 for size in tables.shape[1:]]
        self.size = fast_size(tables.shape[1]), fast_size(tables.shape[2])
        """Rows and columns of the transform."""
        wrapped = np.zeros((3, *self.size))
        at = [np.arange(1 - count, count) % size for count, size in zip(counts, self.size, strict=True)]
        wrapped[:, at[0][:, None], at[1]] = tables
        self._response = torch.from_numpy(np.fft.rfft2(wrapped)).to(device, torch.complex64)
        self.heights = torch.zeros((*batch, 2, *self.size), dtype=torch.float32, device=device)
        """Depths and their powers `[env, mount, 2, *size]`, m; only the first rows and columns are written."""
        self.sums = torch.zeros((*batch, 3, *self.size), dtype=torch.float32, device=device)
        """Results, in the same layout."""
        count = batch[0] * batch[1]
        chunk = min(CHUNK, count) if torch.device(device).type == "cpu" else count
        half = (self.size[0], self.size[1] // 2 + 1)
        self._waves = torch.zeros((chunk, 2, *half), dtype=torch.complex64, device=device)
        self._products = torch.zeros((chunk, 3, *half), dtype=torch.complex64, device=device)
        self._chunks = []
        for start in range(0, count, chunk):
            some, number = slice(start, start + chunk), min(chunk, count - start)
            put, got = self.heights.flatten(0, 1)[some], self.sums.flatten(0, 1)[some]
            self._chunks.append((put, got, self._waves[:number], self._products[:number]))

    def run(self) -> None:
        """Convolve `heights` into `sums`."""
        for heights, sums, waves, products in self._chunks:
            torch.fft.rfft2(heights, out=waves)
            torch.mul(waves[:, :1], self._response[:2], out=products[:, :2])
            torch.mul(waves[:, 1], self._response[2], out=products[:, 2])
            torch.fft.irfft2(products, s=self.size, out=sums)

    @property
    def nbytes(self) -> int:
        """Bytes of its memory."""
        kept = (self._response, self.heights, self.sums, self._waves, self._products)
        return sum(each.numel() * each.element_size() for each in kept)
