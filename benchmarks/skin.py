"""Taxels on a fingertip against a sphere, a box and a mesh: a step of the sensor and the same formula in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.solids import bumpy_ball, fingertips
from benchmarks.timing import interleaved
from sensorium import (
    ContactDepthProbeCfg,
    ContactProbeCfg,
    ElastomerTaxelCfg,
    KinematicTactileSensorCfg,
    ProximityTaxelCfg,
    Scene,
    SensorCfg,
    TemperatureGridCfg,
    TensorEngine,
    Uniform,
)
from sensorium.engines import Shape
from sensorium.stages import TaxelCrosstalk, TaxelGain, Viscoelastic

Row = tuple[str, str, str]
RADIUS = 0.004
"""Radius of a probe, m."""
SHAPES = {
    "sphere": Shape("sphere", "ball", (0.05,), body="thing"),
    "box": Shape("box", "box", (0.05, 0.05, 0.05), body="thing"),
    "mesh": Shape("mesh", "mesh", mesh=bumpy_ball(), body="thing"),
}


def grid(rows: int, columns: int) -> np.ndarray:
    """Return places on the top of a box-shaped fingertip of 4 cm, `[row, column, 3]`, m."""
    x, y = np.meshgrid(np.linspace(-0.02, 0.02, columns), np.linspace(-0.02, 0.02, rows))
    return np.stack([x, y, np.full_like(x, 0.02)], axis=-1)


def finger(
    shape: str,
    num_envs: int,
    places: np.ndarray,
    kind: Callable[..., SensorCfg[Any]] = KinematicTactileSensorCfg,
    device: str = "cpu",
    **options: object,
) -> Scene:
    """Return a scene with the shape pressed 0.5 mm deep. The mesh has a dome, with some of its probes near the mesh."""
    tip = Shape("box", "tip", (0.02, 0.02, 0.02), body="tip")
    engine = TensorEngine(num_envs, 0.001, bodies=("tip", "thing"), shapes=[tip, SHAPES[shape]], device=device)
    engine.body_pos_w[:, 1, 2] = 0.02 + 0.05 - 0.0005
    engine.body_lin_vel_w[:, 1] = torch.tensor([0.1, 0.0, -0.01], device=device)
    if shape == "mesh":
        engine.body_pos_w[:, 1] = 0.0
    cfg = kind(name="skin", body="tip", probe_local_pos=places, probe_radius=RADIUS, evaluate="always", **options)
    return Scene(engine, [cfg])


class InTorch:
    """The contract's formula for a sphere, written with batched tensors."""

    def __init__(self, num_envs: int, places: np.ndarray) -> None:
        self.points = torch.tensor(places.reshape(-1, 3), dtype=torch.float32)
        self.normal = torch.tensor([0.0, 0.0, 1.0])
        self.pos = torch.tensor([0.0, 0.0, 0.0695]).repeat(num_envs, 1)
        self.vel = torch.tensor([0.1, 0.0, -0.01]).repeat(num_envs, 1)

    def __call__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return force and torque `[env, probe, 3]`; poses are the identity, which saves two rotations."""
        arm = self.points - self.pos[:, None]
        depth = (RADIUS - (arm.norm(dim=-1) - 0.05)).clamp_(min=0.0)[..., None]
        v = -self.vel[:, None].expand_as(arm)
        v_n = (v @ self.normal)[..., None] * self.normal
        force = 1000.0 * depth * self.normal + depth * v_n + (v - v_n) * (depth > 0.0)
        return force, torch.linalg.cross(self.points.expand_as(force), force)


def touch(num_envs: int, rows: int, columns: int) -> list[Row]:
    """Measure a step of one tactile sensor."""
    places = grid(rows, columns)
    scenes = {name: finger(name, num_envs, places) for name in ("sphere", "box")}
    noisy = finger("sphere", num_envs, places, probe_radius_noise=1e-4)
    held = finger("sphere", num_envs, places, friction=0.5, shear_stiffness=100.0)
    calls = {name: scene.update for name, scene in scenes.items()}
    calls |= {"radius noise": noisy.update, "anchors": held.update, "torch": InTorch(num_envs, places)}
    if rows * columns == 64:
        dome = fingertips(bumpy_ball(), 1)  # the mesh is not centred on the tip: a third of the probes are near
        calls["mesh"] = finger("mesh", num_envs, dome).update
    best = interleaved(calls, 20, rounds=12, warm_up=50)
    base = best.pop("torch")
    count = rows * columns
    return [
        (
            f"{count} taxels, {name}, {num_envs} env(s)",
            f"{1e3 * time:.3f} ms",
            f"formula for a sphere in torch {1e3 * base:.3f} ms ({base / time:.1f}x)",
        )
        for name, time in best.items()
    ]


def small() -> list[Row]:
    """1000 taxels of one environment."""
    return touch(1, 25, 40)


def large() -> list[Row]:
    """64 taxels of each of 1024 environments."""
    return touch(1024, 8, 8)


def kinds(num_envs: int = 1024) -> list[Row]:
    """Measure a step of each kind of skin sensor, 8 x 8 taxels under a ball, and of one with imperfections."""
    places = grid(8, 8)
    probes = {"body": "tip", "probe_local_pos": places, "probe_radius": RADIUS, "evaluate": "always"}
    force = ("force",)
    skin = (
        TaxelCrosstalk(fields=force, strength=0.2, sigma=1.0),
        Viscoelastic(fields=force, strength=0.3, tau=0.1),
        TaxelGain(fields=force, gain=Uniform(0.9, 1.1)),
    )
    cfgs = {
        "kinematic tactile": KinematicTactileSensorCfg(name="skin", **probes),
        "... with gain, crosstalk, hysteresis": KinematicTactileSensorCfg(name="skin", stages=skin, **probes),
        "contact depth probe": ContactDepthProbeCfg(name="skin", **probes),
        "contact probe": ContactProbeCfg(name="skin", **probes),
        "elastomer taxel, dilation": ElastomerTaxelCfg(name="skin", shear_scale=0.0, **probes),
        "elastomer taxel, 500 points": ElastomerTaxelCfg(name="skin", targets="thing", **probes),
        "proximity taxel, 500 points": ProximityTaxelCfg(name="skin", targets="thing", **probes),
        "temperature grid, 8 x 8 x 2 cells": TemperatureGridCfg(name="skin", body="tip", grid_size=(8, 8, 2)),
    }
    tip = Shape("box", "tip", (0.02, 0.02, 0.02), body="tip")
    calls: dict[str, Callable[[], object]] = {}
    for name, cfg in cfgs.items():
        engine = TensorEngine(num_envs, 0.001, bodies=("tip", "thing"), shapes=[tip, SHAPES["sphere"]])
        engine.body_pos_w[:, 1, 2] = 0.02 + 0.05 - 0.0005
        calls[name] = Scene(engine, [cfg]).update
    calls["torch"] = InTorch(num_envs, places)
    best = interleaved(calls, 5, rounds=8, warm_up=50)
    base = best.pop("torch")
    against = f"formula of the first in torch {1e3 * base:.1f} ms"
    return [
        (f"{name}, {num_envs} envs", f"{1e3 * time:.2f} ms", f"{against} ({base / time:.1f}x)")
        for name, time in best.items()
    ]
