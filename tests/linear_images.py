"""A camera with prescribed linear images, for the tests of image sensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record, SimpleSensor, SimpleSensorCfg

Array = NDArray[np.float64]
SOURCES: list[Callable[[int], Any]] = []
"""Functions from the tick to an image `[height, width, 3]`, or one per env."""


@dataclass(frozen=True, slots=True)
class LinearCameraData:
    linear_rgb: Annotated[Tensor, Field("1", (1, 1, 3), ("height", "width", "rgb"), role="image")]
    intrinsic_matrices: Annotated[Tensor, Field("px", (3, 3), ("row", "column"), kind="derived")]


class LinearCameraCfg(SimpleSensorCfg[LinearCameraData]):
    """Sees `SOURCES[source]`."""

    source: int
    """Number of the source."""
    focal: float = 40.0
    """Focal length, px; the centre is that of the image."""


class LinearCamera(SimpleSensor[LinearCameraCfg, LinearCameraData]):
    def fields(self) -> Mapping[str, Field]:
        out = dict(super().fields())
        height, width, _ = np.shape(SOURCES[self.cfg.source](0))[-3:]
        out["linear_rgb"] = replace(out["linear_rgb"], shape=(height, width, 3))
        return out

    def update_raw_data(self, raw: Record) -> None:
        image = np.asarray(SOURCES[self.cfg.source](self.clock.tick), np.float32)
        raw.linear_rgb.copy_(torch.from_numpy(image).expand_as(raw.linear_rgb))
        height, width = image.shape[-3:-1]
        f = self.cfg.focal
        raw.intrinsic_matrices.copy_(torch.tensor([[f, 0, width / 2], [0, f, height / 2], [0, 0, 1]]))


def scene_of(
    source: Any, *stages: sn.stages.StageCfg, envs: int = 1, seed: int = 0, dt: float = 0.01, **fields: Any
) -> sn.Scene:
    """Return a scene with a camera that sees an image, or a function of the tick."""
    SOURCES.append(source if callable(source) else lambda tick: source)
    cfg = LinearCameraCfg(name="camera", source=len(SOURCES) - 1, stages=stages, **fields)
    return sn.Scene(sn.TensorEngine(envs, dt), [cfg], seed=seed)


def images(scene: sn.Scene, samples: int) -> Array:
    """Return the measured images of some samples `[sample, env, height, width, 3]`."""
    out = []
    for _ in range(samples):
        scene.update()
        out.append(scene["camera"].data.linear_rgb.double().numpy())
    return np.stack(out)


def flat(level: Any, height: int = 64, width: int = 64) -> Array:
    """Return a uniform image; `level` is a number or a colour."""
    return np.broadcast_to(np.asarray(level, np.float64), (height, width, 3)).copy()


__all__ = ["LinearCamera", "flat", "images", "scene_of"]
