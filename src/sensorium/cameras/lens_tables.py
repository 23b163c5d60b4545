"""Lenses for kernels: lines of sight of all pixels as tables, and the formula of the projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from sensorium.cameras.lenses import LensCfg, lens_rays
from sensorium.cameras.render.project import Projection


def projection_of(lens: LensCfg, matrices: Tensor) -> Projection:
    """Return the projection of a lens.

    Args:
        lens: the lens.
        matrices: its intrinsic matrices, live, float32 `[env, 3, 3]`.
    """
    out = Projection()
    out.kind, coefficients, out.edge = lens.formula
    out.k = wp.from_torch(matrices, dtype=wp.vec3)
    out.coefficients = wp.array(np.array(coefficients, np.float32), dtype=wp.float32, device=str(matrices.device))
    return out


def lines_of(lens: LensCfg, matrices: Tensor, height: int, width: int, config: str) -> dict[str, Tensor]:
    """Return the lines of sight in the camera's frame (x forward, y left, z up); nothing for a pinhole.

    Args:
        lens: the lens.
        matrices: its intrinsic matrices, `[env, 3, 3]`.
        height: number of rows.
        width: number of columns.
        config: name of the caller, for messages.

    Returns:
        ``directions``, float32 unit vectors `[1 or env, pixel, 3]`, 0 where the lens sees nothing, and for a parallel
        camera ``starts``, m. Equal matrices of all environments give one table.

    Raises:
        ConfigError: the lens folds over within the image.
    """
    if lens.is_pinhole:
        return {}
    each, which = torch.unique(matrices, dim=0, return_inverse=True)
    which = which[:1] if len(each) == 1 else which
    starts, directions = (_forward(rays)[which].contiguous() for rays in lens_rays(lens, each, height, width, config))
    return {"directions": directions, "starts": starts} if lens.is_parallel else {"directions": directions}


def _forward(rays: Any) -> Tensor:
    """Return vectors with axes right, down, forward on the axes forward, left, up, float32."""
    return torch.stack([rays[..., 2], -rays[..., 0], -rays[..., 1]], dim=-1).float()
