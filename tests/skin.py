"""A synthetic skin whose taxels read body positions as force, pressure and touch, with one body per taxel."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Force is the position of a taxel's body, torque is twice that, pressure is its z; it touches where z > 0."""

    layout: tuple[int, ...] = (3, 4)
    """Sizes of the axes of one pad."""
    pads: int = 1
    """Pads side by side, as mounts; one has no mount axis."""


class Skin(SimpleSensor[SkinCfg, SkinData]):
    requires = (sn.engines.BODY_POSE,)

    def fields(self) -> Mapping[str, Field]:
        axes = ("probe",) if len(self.cfg.layout) == 1 else ("row", "column")
        layout = self.cfg.layout
        if self.cfg.pads > 1:
            axes, layout = ("mount", *axes), (self.cfg.pads, *layout)
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
    """Return a function from a number of envs to an engine whose taxels all move on different paths."""

    def engine(envs: int) -> sn.TensorEngine:
        count = cfg.pads * int(np.prod(cfg.layout))
        phase = torch.arange(envs * count * 3, dtype=torch.float64).reshape(envs, count, 3)
        return engine_of(cfg, envs, motion=lambda t: {"body_pos_w": (9.0 * t + phase).sin()})

    return engine


def readings(cfg: SkinCfg, forces: Array, field: str = "force", dt: float = 0.01, **kwargs: Any) -> Array:
    """Return the readings of a skin for forces `[tick, env, taxel, 3]`: `[tick, env, pad, ...]` in float64.

    The truth of every sample must equal the force bit for bit.
    """
    engine, rows = engine_of(cfg, forces.shape[1], dt), []
    values = torch.tensor(forces.copy(), dtype=torch.float32)
    engine.body_pos_w[:] = values[0]
    scene = sn.Scene(engine, [cfg], **kwargs)
    sensor = scene[cfg]
    for tick, value in enumerate(values):
        if tick > 0:
            engine.body_pos_w[:] = value
            scene.update()
        data = getattr(sensor.data, field)
        rows.append(data.reshape(len(data), cfg.pads, *data.shape[1 if cfg.pads == 1 else 2 :]).double().numpy().copy())
        true = values[int(sensor.capture_tick.max())].reshape(sensor.ground_truth.force.shape)
        assert torch.equal(sensor.ground_truth.force, true)
        assert torch.equal(sensor.ground_truth.torque, 2.0 * true)
    return np.stack(rows)
