"""Truth and measurement side by side: noise density, bias per environment, latency and full scale."""

import torch

import sensorium as sn

RATE, DENSITY, LIMIT = 200.0, 0.002, 3.0  # Hz, rad/s/sqrt(Hz), rad/s

gyro = sn.ImuCfg(
    name="gyro",
    body="body",
    fields=("ang_vel_b",),
    rate_hz=RATE,
    gyro_noise_density=DENSITY,
    gyro_bias=sn.Normal(0.0, 0.02),  # drawn per environment at each reset
    delay=0.010,
    stages=(sn.stages.Saturation(fields=("ang_vel_b",), high=LIMIT),),
)


def spin_up(time: float) -> dict[str, tuple[float, float, float]]:
    """Return the motion at a time: the body spins up about z at 1 rad/s^2."""
    return {"body_ang_vel_w": (0.0, 0.0, time)}


engine = sn.TensorEngine(num_envs=2000, dt=0.001, motion=spin_up)
scene = sn.Scene(engine, [gyro], seed=7)

scene.step(substeps=2000)
true, measured, age = scene[gyro].ground_truth.ang_vel_b, scene[gyro].data.ang_vel_b, scene[gyro].age[0].item()
print(f"t = {scene.time:g} s: true {true[0, 2]:.3f} rad/s, measured {measured[0, 2]:.3f} rad/s, {1000 * age:g} ms old")

# The reading lags by its age: it shows the rate of 10 ms ago. The mean over environments removes the noise.
lag = (true - measured)[:, 2].mean().item()
print(f"mean lag {lag:.4f} rad/s, expected {age:.4f}")
assert abs(lag - age) < 0.003

# White noise of density N, sampled at rate f, has the deviation N sqrt(f). The variance of the biases is added.
expected = (DENSITY**2 * RATE + 0.02**2) ** 0.5
scatter = measured[:, :2].std().item()
print(f"standard deviation over environments {scatter:.4f} rad/s, expected {expected:.4f}")
assert abs(scatter / expected - 1.0) < 0.05

# After 4 s the true rate exceeds the full scale. The measured rate is clipped, the true rate is not.
scene.step(substeps=2000)
print(f"t = {scene.time:g} s: true {scene[gyro].ground_truth.ang_vel_b[0, 2]:.3f}, measured at most {LIMIT} rad/s")
assert scene[gyro].data.ang_vel_b.max().item() == LIMIT
assert torch.allclose(scene[gyro].ground_truth.ang_vel_b[:, 2], torch.tensor(4.0))
