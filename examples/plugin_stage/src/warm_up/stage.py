"""The stage `WarmUp`."""

import math
from collections.abc import Mapping
from typing import ClassVar

import sensorium as sn
import torch
from pydantic import NonNegativeFloat, PositiveFloat
from sensorium.measurement.stage_cfg import Place
from torch import Tensor


class WarmUp(sn.stages.StageCfg):
    """A bias at switch-on that decays: b(t) = b0 exp(-t / tau)."""

    place: ClassVar[Place] = "bias"

    start: NonNegativeFloat
    """Standard deviation of b0, in the field's unit. b0 is drawn per environment and column at reset."""
    tau: PositiveFloat = 60.0
    """Time constant, s."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return one bias per column of each field."""
        return {f"bias_{field}": (count,) for field, count in columns.items()}

    def reset(self, state: Mapping[str, Tensor], key: sn.stages.StageKey) -> None:
        """Draw b0 for the environments that are reset."""
        for field in key.columns:
            bias = state[f"bias_{field}"]
            bias.copy_(torch.where(key.mask[:, None] > 0, self.start * key.normal("start", field), bias))

    def apply(self, slot: sn.Record, truth: sn.Record, state: Mapping[str, Tensor], key: sn.stages.StageKey) -> None:
        """Add the bias of this sample, and reduce it for the next one."""
        for field in key.columns:
            bias = state[f"bias_{field}"]
            slot[field].flatten(1).add_(bias)  # a view [env, column] of the record's memory
            bias.mul_(math.exp(-key.period / self.tau))
