"""Draws the fit of an IMU over the Allan deviations of its samples, as on the page of `sensorium fit --html`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sensorium.fitting import Samples, fit


def samples_of() -> Samples:
    """Return 300 s of a simulated IMU at rest, 100 Hz."""
    random, count = np.random.default_rng(1), 30_000
    white, walk = random.normal(size=(2, count, 3))
    values = {
        "ang_vel_b": 0.01 * white + np.cumsum(2e-4 * walk, axis=0) * [1.0, 0.3, 0.1],
        "lin_acc_b": 0.02 * np.rint(random.normal(size=(count, 3)) * [0.5, 1.0, 2.0] + [0.0, 0.0, 490.5]),
    }
    return Samples(np.arange(count) / 100.0, values, {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2"}, "log")


def draw(path: Path) -> None:
    """Fit and write the picture."""
    from sensorium.view.style import picture

    found = fit(samples_of(), "imu")
    with picture(path, 8.8, 3.6, dpi=92, pil_kwargs={"optimize": True}) as figure:
        margins = {"left": 0.09, "right": 0.985, "top": 0.9, "bottom": 0.14, "wspace": 0.25}
        panels = figure.subplots(1, len(found.drawings), gridspec_kw=margins)
        for axes, (title, drawing) in zip(panels, found.drawings.items(), strict=True):
            drawing(axes)
            axes.set_title(title)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "fit.png")
