"""Draws parts of a report: the Allan deviation of an IMU with its configured noise, and a field with its error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import sensorium as sn
from sensorium.record import NpzRecorder, Recording


def motion(time: float) -> dict[str, Any]:
    """Return the body's angular velocity and velocity at a time."""
    return {
        "body_ang_vel_w": [[[0.4 * math.sin(1.1 * time), 0.5 * math.sin(0.7 * time), 0.2]]],
        "body_lin_vel_w": [[[math.sin(0.5 * time), 0.3 * math.cos(0.8 * time), 0.0]]],
    }


def simulate() -> Recording:
    """Return 160 s of an IMU at 40 Hz that drifts."""
    imu = sn.ImuCfg(
        name="imu", body="body", fields=("ang_vel_b", "lin_acc_b"), delay=0.1, gyro_noise_density=2e-3,
        gyro_random_walk_density=4e-4, acc_noise_density=0.01,
        stages=(sn.GaussMarkov(fields=("lin_acc_b",), density=0.02, tau=4.0),),
    )  # fmt: skip
    scene = sn.Scene(sn.TensorEngine(dt=0.025, motion=motion), [imu], seed=2)
    recorder = NpzRecorder()
    for _ in range(6400):
        scene.update()
        recorder.add_all(scene.publish(["imu"]))
    return recorder.recording(scene.description())


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    from sensorium.view.fields import draw_field, field_inches, spec_of
    from sensorium.view.report import draw_allan, report_of
    from sensorium.view.style import picture

    recording = simulate()
    report, sensor = report_of(recording), recording["imu"].between(100.0, 105.0)
    spec = spec_of(sensor, "ang_vel_b")
    heights = 3.4, field_inches(sensor, spec, 0)
    with picture(path, 8.8, sum(heights), dpi=92, pil_kwargs={"optimize": True}) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=heights)
        margins = {"left": 0.08, "right": 0.985, "top": 0.9, "bottom": 0.15, "wspace": 0.2}
        panels = above.subplots(1, 2, gridspec_kw=margins)
        for axes, ((name, field), allan) in zip(panels, report.allan.items(), strict=True):
            draw_allan(axes, f"{name} · {field}", allan)
        draw_field(below, sensor, spec, 0, 0.025)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "reports.png")
