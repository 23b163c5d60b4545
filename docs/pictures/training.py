"""Draws the learning curves of the walking example, and both policies on measured and on true observations."""

from __future__ import annotations

import csv
from pathlib import Path

from sensorium.view.style import COLORS, FAINT, TRUTH, picture, tidy

RESULTS = Path(__file__).parents[2] / "examples" / "walk" / "results"
COLOR = {"measured": COLORS[0], "truth": TRUTH}
OPEN_LOOP = 1.3
"""Reward per step of the trot on the spot, without a policy."""
STEPS, SPEED = 400, 0.4
"""Control steps of an episode, and the speed to follow, m/s."""


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of results."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def draw(path: Path) -> None:
    """Write the picture."""
    with picture(path, 7.4, 2.9) as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(2.1, 1, 1))
        for name, color in COLOR.items():
            rows = table(name)
            steps = [float(row["steps"]) / 1e3 for row in rows]
            left.plot(steps, [float(row["return"]) / float(row["length"]) for row in rows], color=color, lw=1.4,
                      label=f"trained on {'the truth' if name == 'truth' else 'measured values'}")  # fmt: skip
        left.axhline(OPEN_LOOP, color=FAINT, lw=0.8, ls="--")
        left.text(0.98, OPEN_LOOP, "trot on the spot", transform=left.get_yaxis_transform(), ha="right", va="bottom",
                  fontsize=7, color=FAINT)  # fmt: skip
        left.set(xlabel="environment steps, thousands", ylabel="reward per step")
        left.legend(loc="lower right")
        results = {(row["trained"], row["sees"]): row for row in table("compare")}
        bars = ((middle, "return", "return of an episode", STEPS * OPEN_LOOP), (right, "speed", "speed, m/s", SPEED))
        for axes, key, label, line in bars:
            for k, sees in enumerate(("measured", "truth")):
                for j, (name, color) in enumerate(COLOR.items()):
                    axes.bar(k + 0.38 * j - 0.19, float(results[name, sees][key]), 0.34, color=color)
            axes.axhline(line, color=FAINT, lw=0.8, ls="--")
            axes.set_xticks([0, 1], ["run on\nmeasured", "run on\ntruth"])
            axes.set_title(label)
        for axes in (left, middle, right):
            tidy(axes)
        figure.tight_layout(w_pad=1.6)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "training.png")
