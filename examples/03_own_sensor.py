"""A custom sensor in one file: a Pitot tube, which measures the dynamic pressure of the oncoming air."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import sensorium as sn
from sensorium.testing import check_sensor


@dataclass(frozen=True, slots=True)
class PitotData:
    pressure: Annotated[Tensor, sn.Field("Pa")]
    """Dynamic pressure of the oncoming air, Pa."""


class PitotCfg(sn.MountedSensorCfg[PitotData]):
    """Configuration of a Pitot tube along the x axis of its mount."""

    wind: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Velocity of the air, world axes, m/s."""
    density: float = 1.225
    """Density of the air, kg/m^3."""


class Pitot(sn.SimpleSensor[PitotCfg, PitotData]):
    """Pitot tube: q = rho v^2 / 2 for the airspeed v from ahead, 0 from behind."""

    requires = (sn.engines.BODY_POSE, sn.engines.BODY_VELOCITY)

    def update_raw_data(self, raw: sn.Record) -> None:
        air = self.mount.lin_vel_w - torch.tensor(self.cfg.wind, device=self.device)  # [env, mount, 3]
        w, x, y, z = self.mount.quat_w.unbind(-1)
        ahead = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], dim=-1)
        speed = (air * ahead).sum(-1).clamp(min=0.0)
        raw.pressure.copy_(0.5 * self.cfg.density * speed * speed)


print("rules passed:", len(check_sensor(Pitot)))

# A body flies north (y) at 30 m/s, nose forward, against a wind of 10 m/s.
engine = sn.TensorEngine(num_envs=3, dt=0.01, bodies=("fuselage",))
engine.body_quat_w = (0.5**0.5, 0.0, 0.0, 0.5**0.5)  # the body's x axis points along y
engine.body_lin_vel_w = (0.0, 30.0, 0.0)
probe = PitotCfg(name="pitot", body="fuselage", wind=(0.0, -10.0, 0.0), noise=10.0, resolution=5.0)
scene = sn.Scene(engine, [probe])
scene.update()

true, measured = scene[probe].ground_truth.pressure, scene[probe].data.pressure
print(f"true {true} Pa, measured {measured} Pa")
assert torch.allclose(true, torch.tensor(0.5 * 1.225 * 40.0**2))
assert torch.all(measured % 5.0 == 0.0)
