"""Draws docs/images/collision.png: a ball is thrown against a wall; its path, and the impulse of each collision."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

DT, TICKS, SECONDS = 0.001, 32, 2.24
RADIUS, MASS = 0.1, 1.0
COURT = """
<mujoco><option timestep="0.001"/>
  <default><geom solref="-150000 -30" solimp="0.95 0.95 0.001" friction="0.3"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="wall" pos="2 0 1"><geom type="box" size="0.1 1 1"/></body>
    <body name="ball" pos="0 0 0.8"><freejoint/><geom size="0.1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def simulate() -> tuple[np.ndarray, list[sn.CollisionEvent], list[str]]:
    """Return the centre of the ball [tick, x and z], its collisions, and with what each was."""
    engine = sn.MujocoEngine(COURT)
    scene = sn.Scene(engine, reserve=sn.reserve_contact(engine, "ball"), seed=0)
    scene.reset(qvel=[[2.2, 0.0, 1.0, 0.0, 0.0, 0.0]])
    path: list[np.ndarray] = []
    events: list[sn.CollisionEvent] = []
    with scene.local_client() as client:
        client.spawn("sensor.other.collision", attach_to="ball", name="bumper")
        row = client.bodies.row("ball")
        with sn.client.FrameSync(client, ["bumper", "world"]) as sync:
            for _ in range(round(SECONDS / DT / TICKS)):
                last, frame = client.step(substeps=TICKS), 0
                while frame < last:  # contacts are looked at in every tick, so a step has many frames
                    frame, bundle = sync.next(timeout=10.0)
                    if bundle["bumper"] is not None:
                        events.append(bundle["bumper"])
                path.append(bundle["world"]["pos_w"][0, row, [0, 2]])
        names = ["floor" if event.other_actor < 0 else client.bodies[event.other_actor].name for event in events]
    return np.array(path), events, names


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    track, events, names = simulate()
    fig, (court, sizes) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, width_ratios=(3, 2), layout="constrained")
    court.plot(*track.T, ".-", ms=3, lw=0.6, color="gray", label="centre of the ball, each 32 ms")
    court.add_patch(Rectangle((1.9, 0.0), 0.2, 2.0, fc="0.8", ec="black"))
    court.axhline(0.0, color="black", lw=1.5)
    colors = {"floor": "tab:blue", "wall": "tab:red"}
    seen: set[str] = set()
    for event, name in zip(events, names, strict=True):
        label = None if name in seen else f"collision with the {name}, its impulse"
        arrow = (*event.pos_w[[0, 2]], *event.normal_impulse[[0, 2]])
        court.quiver(*arrow, color=colors[name], angles="xy", scale_units="xy", scale=10.0, width=0.008, label=label)
        seconds = event.event_tick * DT
        size = float(np.linalg.norm(event.normal_impulse))
        sizes.plot([seconds, seconds], [0.0, size], color=colors[name], lw=1.0)
        sizes.plot(seconds, size, "o", ms=6, color=colors[name], label=None if name in seen else name)
        seen.add(name)
    court.set(title="From the side; arrows: 1 m is 10 N s", xlabel="x (m)", ylabel="z (m)", xlim=(-0.2, 2.3),
              ylim=(-0.1, 1.4))  # fmt: skip
    sizes.set(title="The messages", xlabel="time (s)", ylabel="impulse (N s)", xlim=(0.0, SECONDS), ylim=(0.0, None))
    court.legend(fontsize=8, loc="upper left")
    sizes.legend(fontsize=8)
    for each in (court, sizes):
        each.grid(alpha=0.3)
    fig.suptitle("Collision: a ball of 1 kg is thrown against a wall", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/collision.png")
