"""Draws the effect of a vehicle's iron on the Earth's field: an ellipse instead of a circle, and a wrong heading."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

FIELD = (21.5, 0.0, -42.7)
ENVS = 360


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return headings [env] rad of a level vehicle, and the measured and true flux [env, 3] uT."""
    headings = np.linspace(-np.pi, np.pi, ENVS, endpoint=False)
    engine = sn.TensorEngine(ENVS, 0.01, provides=("pose",))
    quats = np.stack([np.cos(headings / 2), 0 * headings, 0 * headings, np.sin(headings / 2)], axis=-1)
    engine.body_quat_w = quats[:, None]
    mag = sn.MagnetometerCfg(
        body="body",
        magnetic_field=FIELD,
        unit="uT",
        hard_iron=(6.0, -4.0, 2.0),
        soft_iron=(1.15, 0.9, 1.0, 0.12, 0.0, 0.0),
        noise=0.4,
    )
    scene = sn.Scene(engine, [mag], seed=1)
    return headings, scene[mag].data.mag_b.numpy().copy(), scene[mag].ground_truth.mag_b.numpy().copy()


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    headings, measured, true = simulate()
    fig, (plane, course) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained", width_ratios=(1, 1.15))
    plane.plot(measured[:, 0], measured[:, 1], ".", ms=2.5, color=MEASURED, label="measured")
    plane.plot(*true[:, :2].T, color="black", lw=1.2, label="true")
    plane.plot(0, 0, "+", color="black", ms=8)
    plane.plot(6.0, -4.0, "+", color="tab:red", ms=8)
    plane.annotate("hard iron", (6.0, -4.0), (4.0, -10.0), color="tab:red", fontsize=8)
    plane.set(xlabel="x (µT)", ylabel="y (µT)", title="Horizontal flux in one full turn", aspect="equal")
    plane.legend(loc="upper left", fontsize=8)
    plane.set(xlim=(-36, 42), ylim=(-34, 40))
    found = np.arctan2(-measured[:, 1], measured[:, 0])
    error = np.rad2deg((found - headings + np.pi) % (2 * np.pi) - np.pi)
    course.plot(np.rad2deg(headings), error, ".", ms=2.5, color=MEASURED, label="from measured flux")
    course.axhline(0.0, color="black", lw=1.2, label="from true flux")
    course.set(xlabel="heading (deg)", ylabel="error of the heading (deg)", title="What a compass makes of it")
    course.set_xticks(range(-180, 181, 60))
    course.legend(loc="upper right", fontsize=8)
    for each in (plane, course):
        each.grid(alpha=0.3)
    fig.suptitle("Magnetometer: hard iron (6, -4) µT, soft iron 1.15, 0.90, 0.12 off the diagonal", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/magnetometer.png")
