"""Draws the textures of the hall: python tests/demo/hall_textures.py writes them to the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[2] / "src/sensorium/demo/hall.npz"
PIXELS, LEVELS = 256, 24
"""Size of a texture, and its number of grey levels; few levels make the file small."""
KINDS = {
    # rows and columns of cells, shift of every other row, width of joints (px), range of cells, patches, their contrast
    "floor": (8, 8, 0.0, 2, 0.22, 500, 0.16),
    "wall": (16, 8, 0.5, 2, 0.30, 160, 0.22),
    "roof": (4, 16, 0.0, 2, 0.25, 120, 0.20),
    "room": (4, 4, 0.0, 1, 0.15, 220, 0.30),
    "crate": (8, 2, 0.0, 2, 0.25, 160, 0.30),
    "wood": (2, 12, 0.0, 1, 0.30, 260, 0.18),
    "steel": (8, 8, 0.25, 1, 0.20, 300, 0.30),
}
"""Layout of each texture."""


def drawn(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    shift: float,
    joint: int,
    spread: float,
    patches: int,
    step: float,
) -> np.ndarray:
    """Return a texture that repeats, uint8 `[row, column]`: cells with joints, and rectangles of all sizes on them."""
    at = (np.arange(PIXELS) + 0.5) / PIXELS
    row = (at * rows).astype(int)
    along = (at[None, :] + shift / columns * (row[:, None] % 2)) % 1.0 * columns
    shade = rng.uniform(0.75 - spread, 0.75 + spread, (rows, columns))
    image = shade[row[:, None], along.astype(int)]
    for _ in range(patches):
        height, width = np.ceil(2.0 ** rng.uniform(0.5, 4.5, 2)).astype(int)
        top, left = rng.integers(0, PIXELS, 2)
        place = np.ix_((top + np.arange(height)) % PIXELS, (left + np.arange(width)) % PIXELS)
        image[place] += rng.choice((-step, step)) * rng.uniform(0.4, 1.0)
    is_joint = (at * rows % 1.0 * PIXELS / rows < joint)[:, None] | (along % 1.0 * PIXELS / columns < joint)
    image[is_joint] = 0.25
    return (np.rint(image.clip(0.15, 1.0) * (LEVELS - 1)) * (255.0 / (LEVELS - 1))).astype(np.uint8)


def textures() -> dict[str, np.ndarray]:
    """Return all textures by their names."""
    return {name: drawn(np.random.default_rng(k), *layout) for k, (name, layout) in enumerate(KINDS.items())}


if __name__ == "__main__":
    np.savez_compressed(FILE, **textures())
