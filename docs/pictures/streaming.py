"""Draws docs/images/streaming.png: frames and their age at a listener that takes 100 ms per frame of a 60 Hz stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

HZ, WORK, SECONDS = 60.0, 0.1, 2.5
POLICIES: dict[str, dict[str, Any]] = {
    'policy="latest"': {"policy": "latest"},
    'policy="lossless"': {"policy": "lossless"},
    "max_rate=4": {"max_rate": 4.0},
}


def run() -> dict[str, np.ndarray]:
    """Return for each policy what its listener got: wall clock of the call and of the frame's capture [call, 2], s."""
    imu = sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b",))
    scene = sn.Scene(sn.TensorEngine(num_envs=1, dt=1.0 / HZ), [imu])
    got: dict[str, list[tuple[float, float]]] = {name: [] for name in POLICIES}

    def listener(calls: list[tuple[float, float]]) -> Callable[[sn.Reading], None]:
        def work(data: sn.Reading) -> None:
            calls.append((time.time(), data.capture_time_wall))
            time.sleep(WORK)  # what it does with the frame

        return work

    with sn.serve(scene, []) as server:
        clients = {name: sn.local_client(scene, server=server, name=name) for name in POLICIES}
        server.run(until=lambda: scene.time >= 0.2)  # everything is warm then
        begin, start = time.time(), scene.time
        for name, options in POLICIES.items():
            clients[name].sensors["imu"].listen(listener(got[name]), **options)
        server.run(until=lambda: scene.time >= start + SECONDS)
    return {name: np.array(calls) - begin for name, calls in got.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (ages, frames) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, width_ratios=(4, 3), layout="constrained")
    frames.plot([0.0, SECONDS], [0.0, SECONDS], color="black", lw=0.8, label="what is now")
    for (name, calls), marker in zip(run().items(), ("o", "s", "^"), strict=True):
        now, captured = calls.T
        ages.plot(now, 1e3 * (now - captured), f"{marker}-", ms=4, lw=0.8, label=name)
        frames.plot(now, captured, f"{marker}-", ms=4, lw=0.8, label=name)
    ages.axhline(1e3 / HZ, color="gray", lw=0.8, ls=":", label="period of the simulation")
    ages.set(title="How old a frame is when its callback begins", xlabel="wall clock (s)", ylabel="age (ms)",
             yscale="log", ylim=(0.1, 5e3), xlim=(0.0, SECONDS))  # fmt: skip
    frames.set(title="Which frame that is", xlabel="wall clock (s)", ylabel="captured at (s)", xlim=(0.0, SECONDS),
               ylim=(0.0, SECONDS))  # fmt: skip
    ages.legend(fontsize=8, loc="lower right", ncols=2)
    frames.legend(fontsize=8)
    for each in (ages, frames):
        each.grid(alpha=0.3)
    fig.suptitle(f"A listener that works for {1e3 * WORK:.0f} ms on each frame; the simulation runs at {HZ:.0f} Hz",
                 fontsize=10)  # fmt: skip
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/streaming.png")
