"""Proximity taxels near to and far from an object: lists of points per cell against all points of the cloud."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.sensors import step
from benchmarks.timing import interleaved
from sensorium import ProximityTaxelCfg, Scene, TensorEngine
from sensorium.engines import Shape
from sensorium.geometry import surface_cloud

Row = tuple[str, str, str]
ENVS = 1024
OBJECTS = (
    Shape("sphere", "sphere", (0.05,), body="object"),
    Shape("box", "box", (0.05, 0.05, 0.05), body="object"),
)
GAPS = {"near": (0.0, 0.01), "clear": (0.03, 0.05)}
"""Distances between the centre of the fingertip and the object, m: within the probe radius, and beyond it."""


def fingertip() -> list[Row]:
    """64 probes of 1 cm radius on a fingertip, 1024 envs, 500 points on the object."""
    side = np.linspace(-0.007, 0.007, 8)
    places = np.stack([*np.meshgrid(side, side), np.zeros((8, 8))], axis=-1)
    rows = []
    for shape in OBJECTS:
        for where, gaps in GAPS.items():

            def scene(shape: Shape = shape, gaps: tuple[float, float] = gaps) -> Scene:
                engine = TensorEngine(ENVS, 0.001, bodies=("tip", "object"), shapes=[shape])
                away = torch.rand(ENVS, generator=torch.Generator().manual_seed(1))
                engine.body_pos_w[:, 1, 2] = 0.05 + gaps[0] + (gaps[1] - gaps[0]) * away
                return Scene(engine, [ProximityTaxelCfg(body="tip", probe_local_pos=places)])

            with patch.object(surface_cloud, "_grid", _one_cell):
                brute = scene()
            calls = {"lists": partial(step, scene()), "all points": partial(step, brute)}
            seconds = interleaved(calls, repeats=5, rounds=9, warm_up=3)
            ratio = f"{seconds['all points'] / seconds['lists']:.1f} x faster than all points"
            what = f"64 proximity taxels, {ENVS} envs, 500 points on a {shape.name}, {where}, a step"
            rows.append((what, f"{seconds['lists'] * 1e3:.2f} ms", ratio))
            rows.append((f"{what}: all points", f"{seconds['all points'] * 1e3:.2f} ms", "baseline"))
    return rows


def _one_cell(points: Any, reach: float) -> tuple[Any, float, Any]:
    """Return a grid of a single cell that lists all points."""
    side = 1.01 * float((np.ptp(points, axis=0) + 2.0 * reach).max())
    return points.min(axis=0) - reach, side, np.ones(3, np.int64)
