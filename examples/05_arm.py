"""An arm lifts a load: a controller estimates tool position and load from encoders and motor currents."""

import torch

import sensorium as sn

LENGTHS, LOAD, COUNTS = (0.4, 0.3), 1.5, 4096  # m, kg, counts per turn
ARM = f"""
<mujoco>
  <option integrator="implicitfast"/>
  <default><geom type="capsule" size="0.02" mass="1e-3"/><joint axis="0 -1 0" damping="2" armature="0.05"/></default>
  <worldbody>
    <body name="base" pos="0 0 0.5">
      <body name="upper"><joint name="shoulder"/><geom fromto="0 0 0 {LENGTHS[0]} 0 0"/>
        <body name="fore" pos="{LENGTHS[0]} 0 0"><joint name="elbow"/><geom fromto="0 0 0 {LENGTHS[1]} 0 0"/>
          <body name="tool" pos="{LENGTHS[1]} 0 0"><geom type="sphere" size="0.03" mass="{LOAD}"/></body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><position joint="shoulder" kp="400" kv="20"/><position joint="elbow" kp="400" kv="20"/></actuator>
</mujoco>
"""

encoders = sn.JointSensorCfg(name="encoders", joints=".*", counts_per_turn=COUNTS, velocity_mode="period")
motors = sn.MotorCurrentCfg(name="motors", joints=".*", torque_constant=0.1, gear=50.0, viscous=2.0, noise=0.02)
tool = sn.FrameTransformerCfg(
    name="tool",
    body="base",
    target_frames=[sn.FrameTransformerCfg.FrameCfg(body="tool")],
    fields=("target_pos_source",),
)
engine = sn.MujocoEngine(ARM, num_envs=16)
scene = sn.Scene(engine, [encoders, motors, tool], seed=0)

for step in range(400):  # 4 s: raise the shoulder and lower the elbow, then hold
    reach = min(step / 200.0, 1.0)
    scene.step([0.8 * reach, -1.2 * reach], substeps=5)

# Forward kinematics from the counts give the tool position, up to the resolution: half a count at each joint.
shoulder, elbow = scene[encoders].data.position.unbind(-1)
ahead = LENGTHS[0] * shoulder.cos() + LENGTHS[1] * (shoulder + elbow).cos()
up = LENGTHS[0] * shoulder.sin() + LENGTHS[1] * (shoulder + elbow).sin()
reckoned, true = torch.stack([ahead, up], -1), scene[tool].ground_truth.target_pos_source[:, 0, [0, 2]]
error, half_count = (reckoned - true).norm(dim=-1).max().item(), torch.pi / COUNTS
print(f"tool at ({true[0, 0]:.3f}, {true[0, 1]:.3f}) m; error from the encoders {1e3 * error:.2f} mm")
assert error < half_count * (sum(LENGTHS) + LENGTHS[1])

# At rest the current of the shoulder gives the load: torque = m g x. Noise of 0.02 A is 0.1 N m, or 20 g.
torque = scene[motors].data.torque[:, 0]  # the drive's estimate [env], N m
load = (torque / (9.81 * true[:, 0])).mean().item()
print(f"shoulder {scene[motors].data.current[0, 0]:.2f} A, {torque[0]:.2f} N m; a load of {load:.3f} kg")
assert abs(load - LOAD) < 4 * 0.019 / 16**0.5
