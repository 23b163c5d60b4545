"""A custom simulation loop: a ball with an IMU inside is thrown, bounces and rolls."""

import mujoco

import sensorium as sn

BALL = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body name="ball" pos="0 0 1">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""

imu = sn.ImuCfg(name="imu", body="ball", acc_noise=0.02)

# This script compiles the model itself. `prepare` first adds the elements that the sensors need.
model = sn.prepare(mujoco.MjSpec.from_string(BALL), [imu]).compile()
data = mujoco.MjData(model)
data.qvel[:3] = (1.0, 0.0, 2.0)
data.qvel[3:] = (0.0, 3.0, 0.0)

scene = sn.Scene(sn.MujocoEngine.from_mj(model, data), [imu])
flight, impact = 0.0, 0.0
for step in range(5000):
    mujoco.mj_step(model, data)
    scene.update()
    if step < 500:  # in the air
        flight = max(flight, scene[imu].data.lin_acc_b.norm().item())
    impact = max(impact, scene[imu].ground_truth.lin_acc_b.norm().item())

print(f"in the air   {flight:8.3f} m/s^2 at most, only noise")
print(f"at an impact {impact:8.3f} m/s^2")
rest = scene[imu].read_ground_truth().lin_acc_b.norm().item()
print(f"on the floor {rest:8.3f} m/s^2 after {scene.time:g} s, at height {data.qpos[2]:.3f} m")

# In free fall an accelerometer reads zero at any speed. At the centre of the ball, spin has no effect either.
assert flight < 6 * 0.02 * 3**0.5
assert impact > 10 * 9.81
assert abs(rest - 9.81) < 0.1
assert scene.tick == round(data.time / model.opt.timestep)
