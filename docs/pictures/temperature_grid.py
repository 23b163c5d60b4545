"""Draws docs/images/temperature_grid.png: a warm gripper pad takes hold of a cold aluminium rod, and lets it go."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

GRID = (12, 12, 2)
DT = 0.02
PERIODS = ((3.0, 23.0),)
"""When the pad touches the rod, s."""
SHOWN = ((5, "on the rod", "tab:blue"), (10, "beside it", "tab:red"))


def simulate() -> dict[str, np.ndarray]:
    """Return time, temperatures of the pad's lower layer [time, x, y], true and measured, and of the rod."""
    rubber = sn.LinkThermalCfg(base_temperature=36.0, conductivity=0.8, density=1200.0, specific_heat=1200.0)
    aluminium = sn.LinkThermalCfg(
        base_temperature=8.0, conductivity=170.0, density=2700.0, specific_heat=900.0, emissivity=0.1
    )
    engine = sn.TensorEngine(
        1, DT, bodies=("pad", "rod"),
        shapes=[
            sn.engines.Shape("box", "pad", (0.012, 0.012, 0.0015), body="pad"),
            sn.engines.Shape("box", "rod", (0.003, 0.03, 0.003), body="rod", quat=(0.966, 0.0, 0.0, -0.259)),
        ],
    )  # fmt: skip
    cfg = sn.TemperatureGridCfg(
        name="heat", body="pad", grid_size=GRID, properties={"pad": rubber, "rod": aluminium},
        simulate_all_link_temperatures=True, contact_conductance=2000.0, sensor_time_constant=1.5, noise=0.1,
        resolution=0.0625,
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg], seed=0)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("time", "true", "measured", "rod")}
    for _ in range(int(40.0 / DT)):
        is_held = any(start <= scene.time < end for start, end in PERIODS)
        engine.body_pos_w = np.array([[[0.0, 0.0, 0.0046 if is_held else 0.02], [-0.001, 0.0, 0.0]]])
        scene.update()
        rows["time"].append(np.array(scene.time))
        rows["true"].append(scene[cfg].ground_truth[0, :, :, 0].numpy().copy())
        rows["measured"].append(scene[cfg].data[0, :, :, 0].numpy().copy())
        rows["rod"].append(scene[cfg].link_temperature("rod")[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig = plt.figure(figsize=(9, 4.2), dpi=110, layout="constrained")
    left, right = fig.subfigures(1, 2, width_ratios=[1.0, 1.25])
    axes = left.subplots(2, 2, sharex=True, sharey=True)
    times = (2.0, 5.0, 22.0, 30.0)
    low, high = float(run["true"].min()), float(run["true"].max())
    for ax, time in zip(axes.ravel(), times, strict=True):
        shown = run["true"][int(time / DT)].T
        image = ax.imshow(shown, origin="lower", extent=(-12, 12, -12, 12), cmap="inferno", vmin=low, vmax=high)
        ax.set_title(f"{time:g} s", fontsize=9)
        ax.set(xticks=(-10, 0, 10), yticks=(-10, 0, 10))
        ax.tick_params(labelsize=8)
        for cell, _, color in SHOWN:
            ax.plot(-12 + 2 * (cell + 0.5), -12 + 2 * 6.5, "o", ms=5, mfc=color, mec="white")
    left.suptitle("Lower side of the pad, true temperature", fontsize=10)
    left.supxlabel("x (mm)", fontsize=9)
    left.supylabel("y (mm)", fontsize=9)
    left.colorbar(image, ax=axes, label="degC", shrink=0.8)
    curve = right.subplots()
    for cell, name, color in SHOWN:
        curve.plot(run["time"], run["measured"][:, cell, 6], ".", ms=1.5, color=color, label=f"cell {name}, measured")
        curve.plot(run["time"], run["true"][:, cell, 6], "-", lw=1.2, color="black")
    curve.plot([], [], "-", lw=1.2, color="black", label="true")
    curve.plot(run["time"], run["rod"], "--", lw=1.2, color="tab:gray", label="the rod, one temperature")
    for start, end in PERIODS:
        curve.axvspan(start, end, color="tab:gray", alpha=0.12)
        curve.text(0.5 * (start + end), high + 1.0, "the pad holds the rod", ha="center", fontsize=8, color="0.3")
    curve.set(xlabel="time (s)", ylabel="temperature (degC)", xlim=(0, 40), ylim=(1, high + 4),
              title="Truth, and an element with a lag of 1.5 s")  # fmt: skip
    curve.title.set_fontsize(10)
    curve.legend(fontsize=8, markerscale=6, loc="lower right", ncols=2)
    curve.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/temperature_grid.png")
