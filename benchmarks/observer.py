"""Cost of an observation of many fields with each option, against the same in plain torch."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.timing import wall_and_cpu
from sensorium import ImuCfg, JointSensorCfg, MujocoEngine, ObsTerm, Scene
from sensorium.demo import model_path

Row = tuple[str, str, str]

IMU = ("ang_vel_b", "lin_acc_b", "projected_gravity_b", "lin_vel_b")
JOINTS = ("position", "velocity")
DEPTH, LATE, FAR = 4, 2, 10.0


class Plain:
    """The options in plain torch, for views `[env, ...]` that are up to date."""

    def __init__(self, views: list[torch.Tensor]) -> None:
        self.views = views
        first = self.row()
        self.ring = torch.zeros(DEPTH, *first.shape)
        self.envs = torch.arange(len(first))
        self.late = torch.randint(LATE + 1, (len(views), len(first)))
        self.rings = [torch.zeros(DEPTH, *view.shape) for view in views]
        self.stack = torch.zeros(len(first), DEPTH, first.shape[1])
        self.stacks = [torch.zeros(len(first), DEPTH, view.shape[1]) for view in views]
        self.count, self.mean, self.var = 0, torch.zeros(first.shape[1]), torch.ones(first.shape[1])
        self.head = 0

    def row(self) -> torch.Tensor:
        return torch.cat(self.views, 1)

    def clip(self) -> torch.Tensor:
        return self.row().clamp_(-1.0, 1.0)

    def scale(self) -> torch.Tensor:
        return self.row().mul_(0.5)

    def replace_inf(self) -> torch.Tensor:
        return self.row().nan_to_num_(torch.nan, FAR, -FAR)

    def noise(self) -> torch.Tensor:
        row = self.row()
        return row.add_(torch.randn_like(row), alpha=0.1)

    def delay(self) -> torch.Tensor:
        self.head += 1
        self.ring[self.head % DEPTH] = self.row()
        return self.ring[(self.head - LATE) % DEPTH].clone()

    def drawn_delay(self) -> torch.Tensor:
        self.head += 1
        shown = []
        for ring, view, late in zip(self.rings, self.views, self.late, strict=True):
            ring[self.head % DEPTH] = view
            shown.append(ring[(self.head - late) % DEPTH, self.envs])
        return torch.cat(shown, 1)

    def history(self) -> torch.Tensor:
        """Return the columns of an observer, in which the values of each field follow one another."""
        pairs = zip(self.views, self.stacks, strict=True)
        self.stacks = [torch.cat([view[:, None], stack[:, :-1]], 1) for view, stack in pairs]
        return torch.cat([stack.flatten(1) for stack in self.stacks], 1)

    def stacked(self) -> torch.Tensor:
        self.stack = torch.cat([self.row()[:, None], self.stack[:, :-1]], 1)
        return self.stack

    def normalise(self) -> torch.Tensor:
        row = self.row()
        mean, var, count = row.mean(0), row.var(0, unbiased=False), len(row)
        away, before = mean - self.mean, self.count
        self.count += count
        self.mean += away * (count / self.count)
        self.var += (count / self.count) * (var - self.var + away.square() * (before / self.count))
        return ((row - self.mean) / (self.var + 1e-8).sqrt()).clamp_(-10.0, 10.0)


OPTIONS = {
    "row": ({}, {}),
    "clip": ({"clip": (-1.0, 1.0)}, {}),
    "scale": ({"scale": 0.5}, {}),
    "replace_inf": ({}, {"replace_inf": FAR}),
    "noise": ({"noise": 0.1}, {}),
    "delay": ({"delay": LATE}, {}),
    "drawn_delay": ({"delay": (0, LATE)}, {}),
    "history": ({"history": DEPTH}, {}),
    "stacked": ({"history": DEPTH}, {"stacked": True}),
    "normalise": ({"normalise": True}, {}),
}


def options(num_envs: int, rounds: int = 60) -> list[Row]:
    """Observe twelve current fields of four sensors with one option at a time, at a new tick in each call."""
    engine = MujocoEngine(model_path(), num_envs=num_envs, keyframe="home")
    sensors = [
        ImuCfg(name="trunk", site="imu", fields=IMU, gyro_noise=0.01),
        ImuCfg(name="foot", site="FL_foot_imu", fields=IMU, gyro_noise=0.01, delay=0.004),
        JointSensorCfg(name="joints", joints=".*", fields=JOINTS, noise={"position": 0.001}),
        JointSensorCfg(name="encoders", joints=".*", fields=JOINTS, resolution={"position": 0.001}),
    ]
    scene = Scene(engine, sensors)
    names = [(imu, field) for imu in ("trunk", "foot") for field in IMU]
    names += [(joint, field) for joint in ("joints", "encoders") for field in JOINTS]
    plain = Plain([getattr(scene[name].data, field) for name, field in names])
    repeats, rows = (20 if num_envs < 1000 else 1), []
    for option, (of_term, of_observer) in OPTIONS.items():
        look = scene.observer(*(ObsTerm(f"{name}.{field}", **of_term) for name, field in names), **of_observer)
        assert look().shape == getattr(plain, option)().shape
        calls = {
            "ours": partial(_repeat, scene, look, repeats),
            "torch": partial(_repeat, scene, getattr(plain, option), repeats),
        }
        seconds = wall_and_cpu(calls, rounds)
        wall, cpu = np.median(seconds["ours"] / seconds["torch"], axis=0)
        ours, theirs = (1e6 / repeats * np.median(seconds[name][:, 0]) for name in ("ours", "torch"))
        what = f"observation, {len(names)} fields, {len(look.columns)} columns, {num_envs} env(s): {option}"
        rows.append(
            (what, f"{ours:.1f} us", f"torch {theirs:.1f} us; median ratios: time {wall:.2f}, CPU time {cpu:.2f}")
        )
    return rows


def _repeat(scene: Scene, call: Callable[[], object], repeats: int) -> None:
    for _ in range(repeats):
        scene.clock.tick += 1  # sensors stay up to date, and memory of observers advances
        call()
