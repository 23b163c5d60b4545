"""Test engine: a body that tumbles along a smooth, known path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from sensorium.engines.base import Engine
from sensorium.engines.tensor import TensorEngine

EngineFactory = Callable[[int], Engine]
"""A function that creates an engine for a number of environments."""


def tumbling_engine(num_envs: int, dt: float = 0.002, shift: float = 0.0, device: str = "cpu") -> TensorEngine:
    """Return a `TensorEngine` whose one body ``"body"``, with a site ``"site"``, tumbles differently in each env.

    Position is a sum of sines, orientation an uneven spin about one axis; velocities and accelerations are their exact
    derivatives.

    Args:
        num_envs: number of environments.
        dt: time step, s.
        shift: seconds added to the path's time, which gives another past with the same motion.
        device: torch device.
    """
    phase = torch.arange(num_envs, dtype=torch.float64, device=device)[:, None, None]
    axis = torch.tensor([0.36, 0.48, 0.8], dtype=torch.float64, device=device)
    amplitude = torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64, device=device)
    pace = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64, device=device)

    def motion(t: float) -> Mapping[str, torch.Tensor]:
        angle = pace * (t + shift) + 0.7 * phase
        late = t + shift + 0.3 * phase[..., 0]
        half = late + 0.2 * (3.0 * late).sin()  # half the angle about the axis
        rate, gain = 2.0 + 1.2 * (3.0 * late).cos(), -3.6 * (3.0 * late).sin()
        return {
            "body_pos_w": amplitude * angle.sin(),
            "body_lin_vel_w": amplitude * pace * angle.cos(),
            "body_lin_acc_w": -amplitude * pace**2 * angle.sin(),
            "body_quat_w": torch.cat([half.cos()[..., None], axis * half.sin()[..., None]], dim=-1),
            "body_ang_vel_w": rate[..., None] * axis,
            "body_ang_acc_w": gain[..., None] * axis,
        }

    return TensorEngine(
        num_envs,
        dt,
        bodies=("body",),
        sites={"site": ("body", (0.1, 0.0, 0.05))},
        provides=("pose", "velocity", "acceleration", "gravity"),
        magnetic=(0.2, 0.0, -0.4),
        motion=motion,
        device=device,
    )
