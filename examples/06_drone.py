"""A drone on a climbing spiral: height from GNSS and barometer, heading from a calibrated magnetometer."""

import math

import torch

import sensorium as sn

FLUX, SPEED, RADIUS = (21.5, 0.0, -42.7), 6.0, 40.0  # uT with x north, m/s, m

gnss = sn.GnssCfg(body="body", origin=(47.4, 8.5, 500.0), rate_hz=5.0, horizontal_sd=1.5, vertical_sd=3.0, tau=20.0)
baro = sn.BarometerCfg(body="body", altitude_offset=500.0, rate_hz=5.0, noise=3.0, bias=sn.Normal(0.0, 300.0))
compass = sn.MagnetometerCfg(
    body="body", magnetic_field=FLUX, unit="uT", rate_hz=5.0, hard_iron=sn.Normal(0.0, 15.0), noise=0.3
)


def spiral(time: float) -> dict[str, tuple[float, ...]]:
    """Return the motion at a time: level circles, nose forward, climbing at 0.1 m/s."""
    a = SPEED * time / RADIUS  # the heading, counter-clockwise from x
    return {
        "body_pos_w": (RADIUS * math.sin(a), RADIUS * (1.0 - math.cos(a)), 0.1 * time),
        "body_quat_w": (math.cos(a / 2), 0.0, 0.0, math.sin(a / 2)),
        "body_lin_vel_w": (SPEED * math.cos(a), SPEED * math.sin(a), 0.1),
    }


engine = sn.TensorEngine(num_envs=200, dt=0.02, motion=spiral)
scene = sn.Scene(engine, [gnss, baro, compass], seed=3)
heights, fluxes = [], []
for _ in range(1500):  # 300 s, seven turns
    scene.step(substeps=10)
    heights.append(torch.stack([scene[gnss].data.pos_enu[:, 2], scene[baro].data.altitude - 500.0]))
    fluxes.append(scene[compass].read().mag_b)
by_gnss, by_baro = torch.stack(heights, -1).unbind(0)  # [env, sample] each

# Weather gives a barometer a constant bias. GNSS errors average to zero, so the mean difference estimates the bias.
fused = by_baro[:, -1] + (by_gnss - by_baro).mean(dim=-1)
true = scene[baro].ground_truth.altitude - 500.0
off = [(height - true).square().mean().sqrt().item() for height in (by_gnss[:, -1], by_baro[:, -1], fused)]
print("height error {:.2f} m (GNSS), {:.2f} m (barometer), {:.2f} m (both)".format(*off))
assert off[2] < 0.5 * off[0] < 0.5 * off[1]

# Over whole turns, the flux traces a circle. Its centre is the hard iron. Subtracting it calibrates the compass.
turn = round(2.0 * math.pi * RADIUS / SPEED * 5.0)  # samples
iron = torch.stack(fluxes[-turn:]).mean(dim=0)
heading = SPEED * scene.time / RADIUS
for what, flux in (("raw", fluxes[-1]), ("calibrated", fluxes[-1] - iron)):
    error = torch.remainder(torch.atan2(-flux[:, 1], flux[:, 0]) - heading + math.pi, 2.0 * math.pi) - math.pi
    print(f"heading error {math.degrees(error.square().mean().sqrt().item()):.1f} deg, {what}")
assert error.abs().max().item() < math.radians(5.0)
