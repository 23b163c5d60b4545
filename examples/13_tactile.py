"""A ball is pressed onto a fingertip of 8 x 8 taxels and dragged: its load, friction and position."""

import torch

import sensorium as sn
from sensorium.record import NpzRecorder
from sensorium.view import plot_recording

ENVS, LOAD, MU, SPACING = 16, 5.0, 0.5, 0.0025  # N, 1, m
FINGER = f"""
<mujoco>
  <option timestep="0.001" gravity="0 0 0" cone="elliptic" impratio="100"/>
  <default><geom solref="-6000 -20" solimp="0.9 0.9 0.001" friction="{MU}"/></default>
  <worldbody>
    <body name="finger"><geom type="box" size="0.011 0.011 0.005" pos="0 0 -0.005"/></body>
    <body name="ball" pos="-0.003 0.001 0.012">
      <joint name="lift" type="slide" axis="0 0 1" damping="20"/><joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.012" mass="0.1"/>
    </body>
  </worldbody>
  <actuator><motor joint="lift"/><position joint="slide" kp="4000" kv="80"/></actuator>
</mujoco>
"""
pad = sn.patterns.taxel_grid(8, 8, SPACING)
crosstalk = sn.stages.TaxelCrosstalk(fields=("force",), strength=0.2, sigma=SPACING, spacing=SPACING)
gain = sn.stages.TaxelGain(fields=("force",), gain=sn.Normal(1.0, 0.05))
dead = sn.stages.DeadTaxels(fields=("force",), taxels=(27,))
skin = sn.KinematicTactileSensorCfg(
    name="skin", link_name="finger", normal_damping=0.0, shear_scalar=0.0, rate_hz=100.0,
    friction=MU, shear_stiffness=2000.0, noise={"force": 0.005}, stages=(crosstalk, gain, dead),
    **pad.cfg(radius=0.001),
)  # fmt: skip
engine = sn.MujocoEngine(FINGER, num_envs=ENVS)
scene = sn.Scene(engine, [skin], seed=0)
pads, recorder = sn.Pads.of(scene[skin], {"all": slice(None)}, loaded_above=0.2), NpzRecorder(max_envs=1)

for step in range(120):  # press within 0.4 s, hold, drag by 6 mm from 0.6 s on
    scene.step([-LOAD * min(step / 40, 1.0), 0.006 * max(0.0, step / 60 - 1.0)], substeps=10)
    recorder.add_all(scene.publish())
    if step == 55:  # calibration: this is 5 N
        factor = LOAD / pads(scene[skin].ground_truth.force).load.mean().item()

true, felt = pads(scene[skin].ground_truth.force).clone(), pads(scene[skin].data.force)
load, measured = factor * true.load[:, 0], factor * felt.load[:, 0]
print(f"load {load[0]:.2f} N, measured {measured.mean():.2f} +- {measured.std():.2f} N over {ENVS} fingers")
assert (load / LOAD - 1.0).abs().max() < 0.05 and (measured / LOAD - 1.0).abs().max() < 0.1

shear = true.force[:, 0, 0] / true.load[:, 0]  # the ball slides along +x, the skin pushes it along -x
print(f"shear divided by load {shear[0]:.3f}, friction {MU}")
assert (shear / -MU - 1.0).abs().max() < 0.02
normal, tangent = scene[skin].ground_truth.force[..., 2], scene[skin].ground_truth.force[..., :2].norm(dim=-1)
assert (tangent <= MU * normal * (1.0 + 1e-5)).all() and torch.equal(normal > 0.0, tangent > 0.0)

place = engine.array("body_pos_w")[:, engine.names("body").index("ball"), :2]
off = [1e3 * (each.centre[:, 0, :2] - place).norm(dim=-1).max().item() for each in (true, felt)]
print(f"centre of pressure: true error {off[0]:.2f} mm, measured error {off[1]:.2f} mm")
assert off[0] < 0.3 and off[1] < 1.0
print(f"pressure maps: {plot_recording(recorder.recording(scene.description()), 'out/tactile/pressure.png')}")
