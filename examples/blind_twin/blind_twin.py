"""A twin of an unknown IMU: `fit` finds it in two logs, and a policy for a balancing robot is trained in the twin.

Policies are trained with the same seeds and budget: with clean sensors, in the twin, and with the true parameters. All
are evaluated in the hidden simulator. The script prints their falls and draws them in `blind_twin.png`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import sensorium as sn

POP, TRIALS = 32, 16  # policies per round, episodes per policy
LENGTH, TICKS, DT = 0.25, 10, 0.01  # m to the centre of mass, ticks per control step, s
HIDDEN = sn.ImuCfg(
    body="body", fields=("ang_vel_b", "lin_acc_b"), rate_hz=100.0, delay=0.037, loss=sn.GilbertElliott(p=0.02, r=0.3),
    noise_density={"ang_vel_b": 0.002, "lin_acc_b": 0.02}, random_walk_density={"ang_vel_b": 0.003},
    bias={"ang_vel_b": (0.02, -0.03, 0.01)}, resolution={"ang_vel_b": 0.01, "lin_acc_b": 0.02},
)  # fmt: skip


def scene_of(imu: sn.ImuCfg, envs: int, seed: int) -> sn.Scene:
    provides = ("pose", "velocity", "acceleration", "gravity")
    return sn.Scene(sn.TensorEngine(envs, dt=DT / TICKS, provides=provides), [imu], seed=seed)


def log(rate_of: torch.Tensor) -> sn.Samples:
    """Return the hidden IMU's log while the body turns about y at the given rate of each tick, rad/s."""
    scene, rows = scene_of(HIDDEN, 1, 99), []
    imu = scene["imu"]
    for rate in rate_of:
        scene.engine.body_ang_vel_w[0, 0, 1] = rate
        scene.update()
        if imu.is_new.item():
            rows.append((scene.time, *imu.data.ang_vel_b[0].tolist(), *imu.data.lin_acc_b[0].tolist()))
    table = np.array(rows)
    return sn.Samples(table[:, 0], {"ang_vel_b": table[:, 1:4], "lin_acc_b": table[:, 4:]},
                      {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2"}, "hidden")  # fmt: skip


def episodes(scene: sn.Scene, policy: torch.Tensor, seed: int, steps: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Drive with commanded speeds and pushes; return the cost, and whether the robot fell, `[env]` each."""
    engine, draw = scene.engine, torch.Generator().manual_seed(seed)
    envs = engine.num_envs
    lean, turn, speed, drive, guess, cost = torch.zeros(6, envs)
    fell, k = torch.zeros(envs, dtype=torch.bool), policy.exp().T
    pushes = torch.randn(steps, envs, generator=draw) * (torch.rand(steps, envs, generator=draw) < 0.01) * 0.8
    wanted = torch.randn(steps // 100, envs, generator=draw).repeat_interleave(100, 0) * 0.5
    for step in range(-10, steps):  # the robot is held until readings arrive
        engine.body_quat_w[:, 0, 0], engine.body_quat_w[:, 0, 2] = (lean / 2).cos(), (lean / 2).sin()
        engine.body_ang_vel_w[:, 0, 1], engine.body_lin_acc_w[:, 0, 0] = turn, drive
        if step == -10:
            scene.reset()
        scene.update(ticks=TICKS)
        rate, force = scene["imu"].data.ang_vel_b[:, 1], scene["imu"].data.lin_acc_b[:, 0]
        if step >= 0:
            guess = guess + DT * rate
            guess = (guess + k[3] * ((drive - force) / 9.81 - guess)).clamp(-1.5, 1.5)
            drive = (k[0] * guess + k[1] * rate + k[2] * (speed - wanted[step])).clamp(-8.0, 8.0)
            turn = turn + DT * (9.81 * lean.sin() - drive * lean.cos()) / LENGTH + pushes[step]
            lean, speed = (lean + DT * turn).clamp(-1.5, 1.5), (speed + DT * drive).clamp(-9.0, 9.0)
            fell |= lean.abs() > 0.6
            cost += torch.where(fell, 5.0, 10.0 * lean**2 + 0.5 * turn**2 + (speed - wanted[step]) ** 2)
    return cost / steps, fell


def train(imu: sn.ImuCfg, seed: int, rounds: int) -> torch.Tensor:
    """Return a policy `[4]`, logarithms of gains, found by the cross-entropy method."""
    scene, draw = scene_of(imu, POP * TRIALS, seed), torch.Generator().manual_seed(seed)
    mean, spread = torch.tensor([20.0, 3.0, 1.0, 0.01]).log(), torch.full((4,), 0.5)
    for number in range(rounds):
        tried = mean + spread * torch.randn(POP, 4, generator=draw)
        cost, _ = episodes(scene, tried.repeat_interleave(TRIALS, 0), 1000 * seed + number)
        best = tried[cost.view(POP, TRIALS).mean(dim=1).argsort()[: POP // 5]]
        mean, spread = best.mean(dim=0), best.std(dim=0) + 0.02
    return mean


def twin_of_hidden(seconds: int) -> sn.ImuCfg:
    """Return the IMU fitted to a log at rest of some seconds, and to one in motion beside reference rates."""
    time = np.arange(1, 8_001) * DT / TICKS  # a short log: the bias walks away from that at its start
    rate = sum(np.sin(2 * np.pi * hertz * time + hertz) for hertz in (0.37, 0.91, 1.73, 3.1))
    true = np.stack((0 * time, rate, 0 * time), axis=1)
    reference = sn.Samples(time, {"ang_vel_b": true}, {"ang_vel_b": "rad/s"}, "reference")
    moving = sn.fit(log(torch.from_numpy(rate)), "imu", reference=reference)
    rest = sn.fit(log(torch.zeros(round(seconds * TICKS / DT))), "imu")
    with tempfile.TemporaryDirectory() as folder:
        preset = Path(folder) / "imu.toml"
        preset.write_text(rest.merged_with(moving).to_toml(), encoding="utf-8")
        return sn.preset(preset, body="body")


def main(twin: sn.ImuCfg, seeds: Sequence[int], rounds: int, judged: int) -> dict[str, list[int]]:
    """Train the policies, and return their falls in the hidden simulator, by training sensors and seed."""
    judge = scene_of(HIDDEN, judged, 77)
    clean = sn.ImuCfg(body="body", fields=("ang_vel_b", "lin_acc_b"), rate_hz=100.0)
    falls: dict[str, list[int]] = {}
    for seed in seeds:
        for name, imu in {"clean": clean, "twin": twin, "true": HIDDEN}.items():
            policy = train(imu, seed, rounds)
            fell = int(episodes(judge, policy.expand(judged, 4), 5)[1].sum())
            falls.setdefault(name, []).append(fell)
            gains = ", ".join(f"{each:.3g}" for each in policy.exp().tolist())
            print(f"seed {seed}  {name:5}  {fell:5} of {judged} episodes end in a fall, gains {gains}", flush=True)
    return falls


def draw(falls: dict[str, list[int]], judged: int) -> None:
    """Draw the share of falls, a bar per policy."""
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    for number, (name, counts) in enumerate(falls.items()):
        places = number + 0.25 * (np.arange(len(counts)) - (len(counts) - 1) / 2)
        axes.bar(places, [100 * count / judged for count in counts], width=0.2, label=name)
    axes.set(xticks=range(len(falls)), xticklabels=falls, xlabel="sensors in training", ylabel="falls [%]")
    figure.savefig("blind_twin.png", dpi=150)


if __name__ == "__main__":
    fitted = twin_of_hidden(seconds=100)
    print(fitted)
    draw(main(fitted, seeds=(1, 2, 3), rounds=10, judged=8000), judged=8000)
