"""Draws the hall as a camera on the drone sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.demo import hall

SIZE, TIMES = (400, 260), (10.5, 23.0, 46.5, 70.0)
"""Size of each image, px, and when it is taken, s."""


def simulate() -> np.ndarray:
    """Return the images of four moments, `[image, row, column, 3]`."""
    flight, steps = hall.drone(), 0.02 * np.arange(4)
    pieces = [sn.Trajectory(steps, *flight.at(time + steps)[:2]) for time in TIMES]
    engine = sn.TrajectoryEngine(pieces, 0.02, world=hall.shapes(), lighting=hall.lighting())
    camera = sn.CameraCfg(
        name="cam", body="body", width=SIZE[0], height=SIZE[1], lens=sn.lenses.PinholeLensCfg(fovy=62.0),
        data_types=("rgb",), samples=4,
    )  # fmt: skip
    return sn.Scene(engine, [camera])["cam"].data.rgb.numpy()


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    from PIL import Image

    images = simulate()
    rows = [np.concatenate(list(images[k : k + 2]), axis=1) for k in (0, 2)]
    Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/hall.png")
