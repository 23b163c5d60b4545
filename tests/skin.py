"""A synthetic skin: its taxels read the positions of bodies, one body for each taxel, as force, pressure and touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record, SimpleSensor, SimpleSensorCfg

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SkinData:
    force: Annotated[Tensor, Field("N", (3,))]
    torque: Annotated[Tensor, Field("N m", (3,))]
    pressure: Annotated[Tensor, Field("Pa")]
    touch: Annotated[Tensor, Field("1", dtype="bool", kind="flag")]


class SkinCfg(SimpleSensorCfg[SkinData]):
    """Force is the position of a taxel's body, torque twice that, pressure its z; it touches where z > 0."""

    layout: tuple[int, ...] = (3, 4)
    """Sizes of the axes of one pad."""
    pads: int = 1
    """Pads side by side, as mounts."""


class Skin(SimpleSensor[SkinCfg, SkinData]):
    requires = (sn.BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        layout = (self.cfg.pads, *self.cfg.layout)
        axes = ("mount", *(("probe",) if len(self.cfg.layout) == 1 else ("row", "column")))
        return {
            name: replace(field, shape=(*layout, *field.shape), axes=(*axes, *("xyz",) * len(field.shape)))
            for name, field in super().fields().items()
        }

    def update_raw_data(self, raw: Record) -> None:
        force = self.engine.array("body_pos_w").reshape(raw.force.shape)
        raw.force.copy_(force)
        raw.torque.copy_(2.0 * force)
        raw.pressure.copy_(force[..., 2])
        raw.touch.copy_(force[..., 2] > 0.0)


BOTH = ("force", "torque")


def engine_of(cfg: SkinCfg, envs: int, dt: float = 0.01, **kwargs: Any) -> sn.TensorEngine:
    """Return an engine with a body for each taxel."""
    count = cfg.pads * int(np.prod(cfg.layout))
    return sn.TensorEngine(envs, dt, bodies=tuple(f"t{k}" for k in range(count)), provides=("pose",), **kwargs)


def moving(cfg: SkinCfg) -> Any:
    """Return a function from a number of envs to an engine whose taxels all move on paths of their own."""

    def engine(envs: int) -> sn.TensorEngine:
        count = cfg.pads * int(np.prod(cfg.layout))
        phase = torch.arange(envs * count * 3, dtype=torch.float64).reshape(envs, count, 3)
        return engine_of(cfg, envs, motion=lambda t: {"body_pos_w": (9.0 * t + phase).sin()})

    return engine


def drive(cfg: SkinCfg, forces: Array, dt: float = 0.01, **kwargs: Any) -> tuple[sn.Scene, Iterator[Any]]:
    """Return a scene with the skin, and what goes from tick to tick of forces `[tick, env, taxel, 3]` and yields it."""
    engine = engine_of(cfg, forces.shape[1], dt)
    values = torch.tensor(forces.copy(), dtype=torch.float32)
    engine.body_pos_w[:] = values[0]
    scene = sn.Scene(engine, [cfg], **kwargs)
    sensor = next(iter(scene.sensors.values())) if hasattr(scene, "sensors") else scene[cfg.label]

    def run() -> Iterator[Any]:
        yield sensor
        for value in values[1:]:
            engine.body_pos_w[:] = value
            scene.update()
            yield sensor

    return scene, run()


def readings(cfg: SkinCfg, forces: Array, field: str = "force", dt: float = 0.01, **kwargs: Any) -> Array:
    """Return what the skin reads of forces `[tick, env, taxel, 3]`: `[tick, env, pad, ...]` in float64.

    The truth of every tick is checked to be the force itself.
    """
    _, run = drive(cfg, forces, dt, **kwargs)
    rows = []
    for tick, sensor in enumerate(run):
        rows.append(getattr(sensor.data, field).double().numpy().copy())
        if sensor.cfg.update_period == 0.0 and sensor.cfg.rate_hz is None:
            true = torch.tensor(forces[tick], dtype=torch.float32).reshape(sensor.ground_truth.force.shape)
            assert torch.equal(sensor.ground_truth.force, true)
            assert torch.equal(sensor.ground_truth.torque, 2.0 * true)
    return np.stack(rows)
