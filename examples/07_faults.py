"""Scripted faults of an IMU: a frozen gyroscope axis, a spike, and a detector that must find exactly these two."""

import math

import torch

import sensorium as sn

RATE, ENVS = 100.0, 50  # Hz
STUCK, SPIKE = 1.5, 3.0  # s after the reset

imu = sn.ImuCfg(
    name="imu",
    body="body",
    fields=("ang_vel_b",),
    rate_hz=RATE,
    gyro_noise=0.002,
    stages=(
        sn.stages.StuckFault(fields=("ang_vel_b",), start=STUCK, duration=0.5, elements=(2,)),
        sn.stages.SpikeFault(fields=("ang_vel_b",), start=SPIKE, duration=1.0 / RATE, amount=0.5, elements=(0,)),
    ),
)


def wobble(time: float) -> dict[str, tuple[float, float, float]]:
    """Return the motion at a time: slow oscillations about all axes."""
    return {"body_ang_vel_w": (0.3 * math.sin(2.0 * time), 0.2 * math.cos(3.0 * time), 0.4 * math.sin(time))}


engine = sn.TensorEngine(num_envs=ENVS, dt=0.005, motion=wobble)
scene = sn.Scene(engine, [imu], seed=0)
readings = [scene[imu].read().ang_vel_b]
for _ in range(round(4.0 * RATE)):
    scene.step(substeps=2)
    readings.append(scene[imu].read().ang_vel_b)
steps = (
    torch.stack(readings).diff(dim=0).abs()
)  # [sample, env, axis]; row i is the step to the sample at (i + 1) / RATE

# Detector. Stuck: with noise, four equal readings in a row do not occur. Spike: a step larger than that of any motion.
# The threshold also exceeds the step at the end of a frozen period, when the reading catches up with the motion.
same = steps == 0.0
stuck = same[2:] & same[1:-1] & same[:-2]
spike = steps > 0.3


def alarms(found: torch.Tensor, first: int) -> dict[int, list[float]]:
    """Return the times of all alarms by axis, s; each must be the same in all environments."""
    assert torch.equal(found, found[:, :1].expand_as(found))
    return {axis: [(i + first) / RATE for i in found[:, 0, axis].nonzero()[:, 0].tolist()] for axis in range(3)}


frozen, spikes = alarms(stuck, first=3), alarms(spike, first=1)
print(f"z frozen from {frozen[2][0]:g} to {frozen[2][-1]:g} s, spike on x at {spikes[0][0]:g} s")
assert frozen[0] == frozen[1] == [] and spikes[1] == spikes[2] == []
assert abs(frozen[2][0] - (STUCK + 2.0 / RATE)) < 1e-9 and len(frozen[2]) == 48  # 50 samples, found from the third on
assert spikes[0] == [SPIKE, SPIKE + 1.0 / RATE]  # up and back down
