"""The IMU on MuJoCo, checked against MuJoCo's sensors, closed forms, and the test cases of other simulators."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn

Array = NDArray[np.float64]

G = 9.81
OFFSET = sn.OffsetCfg(pos=(0.2488, 0.00835, 0.04628), rot=(math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)))
ALL = ("pos_w", "quat_w", "projected_gravity_b", "lin_vel_b", "ang_vel_b", "lin_acc_b", "ang_acc_b", "mag_b")

SITES = ("at_box", "on_box", "on_arm", "on_hand", "on_ball", "on_floor")
TUMBLE = """
<mujoco>
  <option timestep="0.002" magnetic="0.3 -0.1 0.45" wind="1 0 0" density="1.2" tolerance="1e-12" iterations="200"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <site name="on_floor" pos="1 2 3" euler="90 0 20"/>
    <body name="box" pos="0 0 0.5">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05" pos="0.05 0.02 0" density="400"/>
      <site name="at_box"/>
      <site name="on_box" pos="0.2 -0.1 0.05" euler="30 -50 120"/>
      <body name="arm" pos="0.2 0 0" euler="0 20 0">
        <joint axis="0 1 0" damping="0.02"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="on_arm" pos="0.15 0.03 0" euler="-10 200 45"/>
        <body name="hand" pos="0.3 0 0">
          <joint type="ball" damping="0.01"/>
          <geom type="ellipsoid" size="0.06 0.03 0.1" pos="0 0 -0.1"/>
          <body name="finger" pos="0 0 -0.2">
            <site name="on_hand" pos="0.02 0.01 -0.05" quat="0.5 0.5 0.5 0.5"/>
          </body>
        </body>
      </body>
    </body>
    <body name="ball" pos="0.1 0.05 1">
      <freejoint/>
      <geom type="sphere" size="0.08" pos="0.01 0 0"/>
      <site name="on_ball" pos="0 0.08 0" euler="0 0 30"/>
    </body>
  </worldbody>
  SENSORS
</mujoco>
"""


def with_native_sensors() -> str:
    lines = [
        f'<{kind} name="{kind}/{site}" site="{site}"/>'
        for site in SITES
        for kind in ("accelerometer", "gyro", "magnetometer", "velocimeter")
    ]
    lines += [f'<frameangacc name="frameangacc/{site}" objtype="site" objname="{site}"/>' for site in SITES]
    return TUMBLE.replace("SENSORS", f"<sensor>{''.join(lines)}</sensor>")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def test_imu_equals_mujocos_sensors_in_a_tumbling_collision() -> None:
    """In a run of impacts every site reads the same as MuJoCo's sensors, to 1e-4 of the larger of the value and a
    floor.
    """
    envs, rng = 6, np.random.default_rng(1)
    plain = TUMBLE.replace(
        "SENSORS", ""
    )  # the engine's model declares no sensors: the adapter adds the required ones to it
    engine = sn.MujocoEngine(plain, num_envs=envs)
    scene = sn.Scene(engine, [sn.ImuCfg(sites=SITES, fields="all")])
    qpos = np.tile(np.asarray(engine.model.qpos0), (envs, 1))
    qpos[:, 3:7] = Rotation.random(envs, rng=rng).as_quat(scalar_first=True)
    scene.reset(qpos=qpos, qvel=rng.normal(size=(envs, engine.model.nv)) * 3.0)

    native = mujoco.MjModel.from_xml_string(with_native_sensors())
    data = mujoco.MjData(native)
    floors = {"accelerometer": G, "gyro": 1.0, "magnetometer": 0.5, "velocimeter": 1.0, "frameangacc": 10.0}
    ours = {"accelerometer": "lin_acc_b", "gyro": "ang_vel_b", "magnetometer": "mag_b", "velocimeter": "lin_vel_b",
            "frameangacc": "ang_acc_b"}  # fmt: skip
    worst = dict.fromkeys(ours, 0.0)
    impacts, largest = 0, 0.0
    for _ in range(60):
        scene.step(substeps=5)
        reading = {kind: numpy(getattr(scene["imu"].data, field)) for kind, field in ours.items()}
        quats = numpy(scene["imu"].data.quat_w)
        for env in range(envs):
            mujoco.mj_resetData(native, data)
            data.qpos[:], data.qvel[:] = engine.qpos[env].numpy(), engine.qvel[env].numpy()
            data.qacc_warmstart[:] = 0.0
            mujoco.mj_forward(native, data)
            impacts += int(data.ncon > 0)
            for kind in ours:
                expected = np.stack([data.sensor(f"{kind}/{site}").data for site in SITES])
                if kind == "frameangacc":  # world axes there, the IMU's axes here
                    expected = Rotation.from_quat(quats[env], scalar_first=True).inv().apply(expected)
                scale = np.maximum(np.linalg.norm(expected, axis=1), floors[kind])
                error = np.linalg.norm(reading[kind][env] - expected, axis=1) / scale
                worst[kind] = max(worst[kind], float(error.max()))
                if kind == "accelerometer":
                    largest = max(largest, float(scale.max()))
    print({kind: f"{error:.1e}" for kind, error in worst.items()}, f"{largest:.0f} m/s^2")
    assert impacts > 100, "the run is meant to be one of impacts"
    assert largest > 50.0
    assert all(error < 1e-4 for error in worst.values()), worst


def free_body(**kwargs: Any) -> sn.MujocoEngine:
    model = """<mujoco><option timestep="0.001"/><worldbody>
      <body name="cube" pos="0 0 10"><freejoint/><geom type="box" size="0.1 0.2 0.3" pos="0.02 0 0"/></body>
      <body name="fixed"><geom type="sphere" size="0.1" pos="20 0 0"/></body>
    </worldbody></mujoco>"""
    return sn.MujocoEngine(model, **kwargs)


@pytest.mark.parametrize("source", ["engine", "difference"])
def test_constant_velocity(source: Any) -> None:
    """With the velocity rewritten before each step, accelerations are unchanged and velocity is (1, 0, -g dt)."""
    dt = 0.001
    scene = sn.Scene(free_body(num_envs=2), [sn.ImuCfg(body="cube", gravity_bias=(0.0, 0.0, 0.0), fields="all",
                                                       acceleration=source)])  # fmt: skip
    imu, before = scene["imu"], None
    for step in range(20):
        scene.engine.qvel[:] = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        scene.step()
        np.testing.assert_allclose(numpy(imu.data.lin_vel_b), [[1.0, 0.0, -G * dt]] * 2, atol=1e-4)
        now = np.hstack([numpy(imu.data.lin_acc_b), numpy(imu.data.ang_acc_b)])
        if before is not None and step > 1:
            np.testing.assert_allclose(now, before, atol=1e-3)
        before = now


def test_constant_acceleration_by_differences() -> None:
    """A velocity raised by 0.1 m/s per step reads R^-1 (0.1/dt, 0, 0) by differences; the gyroscope is the body's."""
    dt = 0.001
    engine = free_body(num_envs=2)
    scene = sn.Scene(
        engine, [sn.ImuCfg(body="cube", gravity_bias=(0.0, 0.0, 0.0), fields="all", acceleration="difference")]
    )
    turn = Rotation.from_euler("xyz", (0.3, -0.8, 1.9))
    pose = [0.0, 0.0, 10.0, *turn.as_quat(scalar_first=True)]
    scene.reset(qpos=[pose, pose])
    for i in range(100):
        engine.qvel[:] = torch.tensor([0.1 * (i + 1), 0.0, 0.0, 0.0, 0.0, 0.0])
        scene.step()
        if i > 0:
            expected = turn.inv().apply([0.1 / dt, 0.0, 0.0])
            # 1e-4 relative: velocities up to 10 m/s in float32 are known to 1e-6 m/s, over dt that is 1e-3 m/s^2
            np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [expected] * 2, atol=1e-4 * 0.1 / dt)
            np.testing.assert_allclose(numpy(scene["imu"].data.ang_vel_b), numpy(engine.qvel[:, 3:]), atol=1e-4)


LENGTH, LIFT = 0.4, 0.1
TILTED = (0.5, 0.5, 0.5, 0.5)
PENDULUM = f"""<mujoco><option timestep="0.001" integrator="RK4"/><worldbody>
  <body name="arm"><joint name="hinge" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 {LENGTH} 0 0" size="0.02"/>
    <site name="on_axis" pos="{LENGTH} 0 0" quat="0.5 0.5 0.5 0.5"/>
    <body name="imu_link" pos="{LENGTH} 0 {LIFT}" quat="0.5 0.5 0.5 0.5">
      <geom type="sphere" size="0.01" mass="0.001"/>
    </body>
  </body></worldbody></mujoco>"""


@pytest.mark.parametrize("source", ["engine", "difference"])
def test_single_dof_pendulum(source: Any) -> None:
    """A swinging pendulum follows its closed form; an IMU on a link there equals an IMU by offset."""
    engine = sn.MujocoEngine(PENDULUM, num_envs=2)
    on_axis, linked, by_offset = (
        sn.ImuCfg(name="on_axis", site="on_axis", fields="all", acceleration=source),
        sn.ImuCfg(name="linked", body="imu_link", fields="all", acceleration=source),
        sn.ImuCfg(name="by_offset", body="arm", offset=sn.OffsetCfg(pos=(LENGTH, 0.0, LIFT), rot=TILTED), fields="all",
                  acceleration=source),
    )  # fmt: skip
    scene = sn.Scene(engine, [on_axis, linked, by_offset])
    scene.reset(qpos=[[0.0], [0.6]])
    exact = source == "engine"
    stiffness = _hinge_acceleration(engine, 0)  # the arm is level there: angular acceleration = stiffness cos(angle)
    for step in range(500):
        scene.step()
        if step % 10:
            continue
        angle, rate = (numpy(values)[:, 0] for values in (engine.qpos, engine.qvel))
        acceleration = np.array([_hinge_acceleration(engine, env) for env in range(2)])
        turn = Rotation.from_rotvec(angle[:, None] * [0.0, 1.0, 0.0])
        back = (turn * Rotation.from_quat(TILTED, scalar_first=True)).inv()
        sin, cos, zero = np.sin(angle), np.cos(angle), np.zeros(2)
        v = LENGTH * np.stack([-rate * sin, zero, -rate * cos], axis=1)
        a = LENGTH * np.stack([-acceleration * sin - rate**2 * cos, zero, -acceleration * cos + rate**2 * sin], axis=1)
        data = scene[on_axis].data
        near = {"rtol": 1e-4, "atol": 1e-4} if exact else {"rtol": 0.1, "atol": 1e-3}
        far = {"rtol": 1e-4, "atol": 1e-3} if exact else {"rtol": 0.1, "atol": 1.0}
        np.testing.assert_allclose(numpy(data.projected_gravity_b), back.apply([0.0, 0.0, -1.0]), atol=1e-5)
        np.testing.assert_allclose(
            numpy(data.ang_vel_b), back.apply(rate[:, None] * [0.0, 1.0, 0.0]), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(numpy(data.lin_vel_b), back.apply(v), rtol=1e-4, atol=1e-5)
        if exact or step > 0:
            # a difference is the acceleration at the middle of the step: off by half a step of the angular jerk
            slack = 0.0 if exact else 0.5 * 0.001 * stiffness * float(np.abs(rate).max())
            np.testing.assert_allclose(
                numpy(data.ang_acc_b), back.apply(acceleration[:, None] * [0.0, 1.0, 0.0]), rtol=near["rtol"],
                atol=near["atol"] + slack,
            )  # fmt: skip
            np.testing.assert_allclose(numpy(data.lin_acc_b), back.apply(a + np.array([0.0, 0.0, G])), **far)
        one, other = scene[linked].data, scene[by_offset].data
        limits = {"pos_w": 1e-5, "quat_w": 1e-4, "ang_vel_b": 1e-4, "ang_acc_b": 1e-4 if exact else 1e-3,
                  "lin_vel_b": 1e-4, "lin_acc_b": 1e-3 if exact else 1e-2}  # fmt: skip
        for name, limit in limits.items():
            np.testing.assert_allclose(numpy(getattr(one, name)), numpy(getattr(other, name)), atol=limit, err_msg=name)


def _hinge_acceleration(engine: sn.MujocoEngine, env: int) -> float:
    model = engine.model
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = engine.qpos[env].numpy(), engine.qvel[env].numpy()
    mujoco.mj_forward(model, data)
    return float(data.qacc[0])


ATTACHED = """<mujoco><option timestep="0.001"/><worldbody>
  <body name="base" pos="0 0 2"><freejoint/><geom type="box" size="0.1 0.2 0.3"/>
    <body name="imu_link" pos="0.2488 0.00835 0.04628" euler="0 0 90">
      <geom type="box" size="0.01 0.01 0.01" mass="0.01"/>
      <site name="chip" pos="0.01 0 0.02" euler="90 0 0"/>
      <camera name="eye" pos="0.01 0 0.02" euler="90 0 0"/>
    </body>
  </body></worldbody></mujoco>"""


def test_an_offset_on_the_base_equals_the_link_there() -> None:
    """Base plus (0.2488, 0.00835, 0.04628), yawed by 90 deg, equals the link at that position, all fields to 1e-4."""
    engine = sn.MujocoEngine(ATTACHED, num_envs=4)
    link, base = (
        sn.ImuCfg(name="link", body="imu_link", fields="all"),
        sn.ImuCfg(body="base", offset=OFFSET, fields="all"),
    )
    scene = sn.Scene(engine, [link, base])
    scene.reset(qvel=np.random.default_rng(3).normal(size=(4, 6)))
    for _ in range(50):
        scene.step()
        for name in ALL:
            one, other = numpy(getattr(scene[link].data, name)), numpy(getattr(scene[base].data, name))
            np.testing.assert_allclose(one, other, atol=1e-4, err_msg=name)


def test_a_mount_through_a_fixed_child_composes_its_offsets() -> None:
    """A site or camera on a welded child equals the base with the two offsets composed."""
    inner = Rotation.from_euler("x", 90, degrees=True)
    outer = Rotation.from_euler("z", 90, degrees=True)
    pos = np.array(OFFSET.pos) + outer.apply([0.01, 0.0, 0.02])
    offset = sn.OffsetCfg(pos=tuple(pos.tolist()), rot=tuple((outer * inner).as_quat(scalar_first=True).tolist()))
    engine = sn.MujocoEngine(ATTACHED, num_envs=2)
    base = sn.ImuCfg(name="base", body="base", offset=offset, fields="all")
    site = sn.ImuCfg(name="site", site="chip", fields="all")
    camera = sn.ImuCfg(name="camera", camera="eye", fields="all")
    scene = sn.Scene(engine, [base, site, camera])
    scene.reset(qvel=np.random.default_rng(4).normal(size=(2, 6)))
    scene.step(substeps=20)
    for other in ("site", "camera"):
        for name in ALL:
            one, two = numpy(getattr(scene["base"].data, name)), numpy(getattr(scene[other].data, name))
            np.testing.assert_allclose(one, two, atol=1e-4, err_msg=name)


def test_free_fall_reads_zero_and_rest_reads_g() -> None:
    """A falling body's accelerometer reads 0 although it spins; a body at rest and a mount on the world read +g."""
    engine = free_body(num_envs=2)
    com = sn.OffsetCfg(pos=(0.02, 0.0, 0.0))
    cube = sn.ImuCfg(name="cube", body="cube", offset=com)
    scene = sn.Scene(engine, [cube, sn.ImuCfg(name="fixed", body="fixed"), sn.ImuCfg(name="world", body="world")])
    scene.reset(qvel=[[0.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    for _ in range(30):
        scene.step()
        # the mount is the centre of mass; accelerations of 12 m/s^2 cancel there, in some 30 roundings of 2^-24
        np.testing.assert_allclose(numpy(scene["cube"].data.lin_acc_b), np.zeros((2, 3)), atol=30 * 2**-24 * 12.0)
        for name in ("fixed", "world"):
            np.testing.assert_allclose(numpy(scene[name].data.lin_acc_b), [[0.0, 0.0, G]] * 2, atol=1e-6)


def test_gravity_and_flux_differ_per_env() -> None:
    """Gravity and magnetic flux set per env appear in that env's readings."""
    engine = free_body(num_envs=3)
    scene = sn.Scene(engine, [sn.ImuCfg(body="fixed", fields=("lin_acc_b", "mag_b", "projected_gravity_b"))])
    gravity = torch.tensor([[0.0, 0.0, -9.81], [0.0, 0.0, -1.62], [3.7, 0.0, 0.0]], dtype=torch.float64)
    engine.gravity[:] = gravity
    engine.magnetic[1] = torch.tensor([1.0, 2.0, 3.0])
    scene.step()
    data = scene["imu"].data
    np.testing.assert_allclose(numpy(data.lin_acc_b), -gravity.numpy(), atol=1e-6)
    np.testing.assert_allclose(numpy(data.mag_b), [[0.0, -0.5, 0.0], [1.0, 2.0, 3.0], [0.0, -0.5, 0.0]], atol=1e-6)
    np.testing.assert_allclose(numpy(data.projected_gravity_b)[2], [1.0, 0.0, 0.0], atol=1e-6)


def test_a_teleport_by_reset_gives_no_spike() -> None:
    """Resetting a fast body to a distant position reads as free fall at once, by both sources."""
    engine = free_body(num_envs=2)
    com = sn.OffsetCfg(pos=(0.02, 0.0, 0.0))
    scene = sn.Scene(engine, [sn.ImuCfg(name=source, body="cube", acceleration=source, offset=com)
                              for source in ("engine", "difference")])  # fmt: skip
    scene.reset(qvel=[[30.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 2)
    scene.step(substeps=10)
    scene.reset([1], qpos=[[100.0, 50.0, 200.0, 1.0, 0.0, 0.0, 0.0]], qvel=[[-80.0, 10.0, 5.0, 0.0, 0.0, 0.0]])
    assert scene["engine"].valid.tolist() == [True, True]
    assert scene["difference"].valid.tolist() == [True, False]
    np.testing.assert_allclose(numpy(scene["engine"].data.lin_acc_b), np.zeros((2, 3)), atol=30 * 2**-24 * 12.0)
    for _ in range(3):
        scene.step()
        assert scene["difference"].valid.tolist() == [True, True]
        # velocities of 80 m/s are known to 4e-6 m/s in float32; over dt = 1 ms that is 0.004 m/s^2, for each of two
        np.testing.assert_allclose(numpy(scene["difference"].data.lin_acc_b), np.zeros((2, 3)), atol=0.02)
