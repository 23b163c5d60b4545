"""`mujoco.sysid` finds delay and gain of a gyroscope on a driven pendulum, and the preset of them loads."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from mujoco import sysid

import sensorium as sn
from sensorium.errors import ArgumentError, MissingDependencyError
from sensorium.fitting import identify

PENDULUM = """<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0" damping="0.3"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/>
      <site name="tip" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="hinge" gear="{gear}"/></actuator>
  <sensor><jointpos name="angle" joint="hinge"/><gyro name="gyro" site="tip"/></sensor>
</mujoco>"""
DELAY, GAIN, FORCE, BIAS = 0.0234, 1.04, 1.25, (0.02, -0.03, 0.01)

needs_sysid = pytest.mark.skipif(not hasattr(sysid, "optimize"), reason="mujoco.sysid lacks packages: extra sysid")


def driven(seed: int) -> tuple[sn.Samples, tuple[np.ndarray, np.ndarray]]:
    """Return 8 s of a gyroscope at 200 Hz with white noise on a pendulum whose motor is stronger, and the controls."""
    random = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(PENDULUM.format(gear=FORCE))
    data = mujoco.MjData(model)
    time = np.arange(4001) * 0.002
    control = 0.5 * sum(np.sin(2.0 * np.pi * hertz * time + hertz) for hertz in (0.4, 0.9, 1.7))[:, None]
    rates = []
    for each in control:
        data.ctrl[:] = each
        mujoco.mj_forward(model, data)
        rates.append(data.sensor("gyro").data.copy())
        mujoco.mj_step(model, data)
    at = np.arange(0.1, 7.9, 0.005)
    true = np.stack([np.interp(at - DELAY, time, column) for column in np.array(rates).T], axis=1)
    values = GAIN * true + BIAS + 0.02 * random.normal(size=true.shape)
    return sn.Samples(at, {"ang_vel_b": values}, {"ang_vel_b": "rad/s"}, "log"), (time, control)


@needs_sysid
def test_delay_gains_and_bias_are_found_and_written_to_a_preset(tmp_path: Path) -> None:
    samples, control = driven(0)
    spec = mujoco.MjSpec.from_string(PENDULUM.format(gear=1.0))
    found = identify(samples, "imu", spec, control, {"ang_vel_b": "gyro"}, actuators=["motor"])
    wanted = {"delay": DELAY, "ang_vel_b.gain": GAIN, "motor.gain": FORCE}
    wanted |= {f"ang_vel_b.bias.{axis}": BIAS[k] for k, axis in enumerate("xyz")}
    assert found.parameters.keys() == wanted.keys()
    for name, value in wanted.items():
        each = found.parameters[name]
        assert abs(each.value - value) < 1.5 * (each.high - each.value), name
    assert found.parameters["delay"].value == pytest.approx(DELAY, abs=0.0005)
    assert found.parameters["ang_vel_b.gain"].value == pytest.approx(GAIN, abs=0.01)
    assert found.parameters["motor.gain"].value == pytest.approx(FORCE, abs=0.02)
    path = tmp_path / "imu.toml"
    path.write_text(found.to_toml(), encoding="utf-8")
    cfg = sn.preset(str(path), site="tip").to_dict()
    assert cfg["delay"] == found.parameters["delay"].value
    assert cfg["stages"][0]["scale"] == pytest.approx(GAIN - 1.0, abs=0.01)
    with pytest.raises(ArgumentError, match="Unknown names: pump"):
        identify(samples, "imu", spec, control, {"ang_vel_b": "gyro"}, actuators=["pump"])


@pytest.mark.skipif(hasattr(sysid, "optimize"), reason="the packages of mujoco.sysid are installed")
def test_missing_packages_are_named() -> None:
    samples, control = driven(0)
    spec = mujoco.MjSpec.from_string(PENDULUM.format(gear=1.0))
    with pytest.raises(MissingDependencyError, match=r"sensorium\[sysid\]"):
        identify(samples, "imu", spec, control, {"ang_vel_b": "gyro"})
