"""Features missing from mjlab's MuJoCo are named, and its live objects are read like those of later versions."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from world import ROBOT

import sensorium as sn
from sensorium.spec import CONTACT_REPORT, contact_array

WORLD = ROBOT.replace("<worldbody>", '<worldbody><geom name="ground" type="plane" size="5 5 .1"/>').replace(
    '<body name="base">', '<body name="base" pos="0 0 .26">'
)
IMU = sn.ImuCfg(name="imu", site="imu", fields=("ang_vel_b", "lin_acc_b", "pos_w"))
FEET = sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="geom", pattern=".*_foot"))
JOINT = sn.JointSensorCfg(name="joint", joint="left_hip")


def test_batch_engine_error_names_the_required_mujoco() -> None:
    with pytest.raises(sn.MissingDependencyError, match=rf"3\.17.*{mujoco.__version__} is installed.*from_mj"):
        sn.MujocoEngine(ROBOT)


@pytest.mark.parametrize("fresh", [True, False])
def test_live_objects_equal_mujocos_sensors(fresh: bool) -> None:
    """Gyro, accelerometer, position and joint agree in float32, for the current state or the previous step's state."""
    model = sn.prepare(mujoco.MjSpec.from_string(WORLD), [IMU, FEET, JOINT]).compile()
    data = mujoco.MjData(model)
    data.qvel[3:] = 1.0
    scene = sn.Scene(sn.MujocoEngine.from_mj(model, data, fresh=fresh), [IMU, FEET, JOINT])
    touched = False
    for _ in range(100):
        mujoco.mj_step(model, data)
        scene.update()
        now = mujoco.MjData(model)
        mujoco.mj_setState(model, now, *_state(model, data))
        mujoco.mj_forward(model, now)
        wanted = now if fresh else data
        for field, sensor in (("ang_vel_b", "gyro"), ("lin_acc_b", "accelerometer"), ("pos_w", "imu_pos")):
            value = wanted.sensor(sensor).data
            got = getattr(scene["imu"].data, field)[0].numpy()
            np.testing.assert_allclose(got, value, rtol=0, atol=2e-5 * max(1.0, np.abs(value).max()), err_msg=field)
        np.testing.assert_allclose(scene["joint"].data.position[0], wanted.sensor("left_hip_pos").data, atol=1e-6)
        found = [
            wanted.contact.geom[:, :].tolist().count([0, model.geom(foot).id]) for foot in ("left_foot", "right_foot")
        ]
        assert scene["feet"].data.found[0].tolist() == found
        touched |= any(found)
    assert touched


def _state(model: mujoco.MjModel, data: mujoco.MjData) -> tuple[np.ndarray, int]:
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, state, spec)
    return state, spec


def test_a_sum_of_no_contacts_is_zero_throughout() -> None:
    """This MuJoCo assigns it the axes of the world; a report is empty there with every MuJoCo."""
    report = CONTACT_REPORT(("geom", ("left_foot",)), None, ("found", "force", "normal", "tangent"), "netforce")
    spec = mujoco.MjSpec.from_string(ROBOT)
    model = sn.prepare(spec, [report]).compile()
    data = mujoco.MjData(model)
    engine = sn.MujocoEngine.from_mj(model, data)
    engine.prepare({report: "test"})
    engine.refresh()
    assert torch.equal(engine.array(contact_array(report)), torch.zeros(1, 1, 1, 10))
