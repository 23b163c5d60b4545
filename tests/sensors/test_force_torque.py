"""Force/torque sensors, checked against statics, Newton-Euler in float64, least squares, and MuJoCo's sensors."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from synthetic import same, snapshot

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24
G = 9.81
SIX = ("force", "torque")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def six(data: Any) -> Array:
    """Return force and torque side by side."""
    return np.concatenate([numpy(data.force), numpy(data.torque)], axis=-1)


def engine_of(envs: int, **kwargs: Any) -> sn.TensorEngine:
    words: Any = ("pose", "velocity", "acceleration", "joint_wrench", "gravity")
    sites = {"flange": ("hand", (0.1, -0.2, 0.05), (0.5, 0.5, 0.5, 0.5))}
    joints = {"wrist": ("hand", (0.0, 0.0, 0.1))}
    return sn.TensorEngine(
        envs, 0.002, bodies=("hand", "foot"), sites=sites, joints=joints, provides=words, **{"gravity": (0.0, 0.0, -G)}
        | kwargs,
    )  # fmt: skip


def loaded(envs: int) -> sn.TensorEngine:
    """Return two bodies that rotate under changing wrenches, differently in each env."""
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + torch.arange(2, dtype=torch.float64)

    def motion(t: float) -> dict[str, Any]:
        angle = 3.0 * t + phase
        half = torch.stack([angle.cos(), 0.6 * angle.sin(), 0.0 * angle, 0.8 * angle.sin()], dim=-1)
        force = torch.stack([angle.sin(), (2.0 * angle).cos(), angle], dim=-1)
        return {"body_quat_w": half, "body_parent_force_w": force, "body_parent_torque_w": 2.0 * force.flip(-1),
                "body_ang_vel_w": force, "body_lin_acc_w": force.flip(-1), "body_ang_acc_w": -force}  # fmt: skip

    return engine_of(envs, motion=motion)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"site": "flange"}, marks=pytest.mark.full),
        {"bodies": ".*", "tare": True, "tool_mass": 0.5, "tool_com": (0.0, 0.0, 0.1), "compensate": "motion"},
        {"joint": "wrist", "on": "parent", "tare": "manual", "stages": (sn.stages.Crosstalk(fields=SIX, matrix=0.01),)},
    ],
)
def test_contract_holds(fields: dict[str, Any]) -> None:
    """`check_sensor` passes for a site, for bodies with all compensation software, and for a joint with crosstalk."""
    check_sensor(sn.ForceTorqueCfg(**fields), loaded)


# The truth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["child", "parent"])
def test_a_known_force_at_a_known_point_gives_the_analytic_wrench(on: Any) -> None:
    """For f at the world point x, force is R^T f and torque R^T (x - s) x f about the sensor's origin s."""
    envs, rng = 50, np.random.default_rng(0)
    f, x, p = rng.normal(0.0, 30.0, (envs, 3)), rng.normal(size=(envs, 3)), rng.normal(size=(envs, 3))
    turn = Rotation.random(envs, rng=rng)
    engine = engine_of(envs)
    engine.body_pos_w[:, 0] = torch.as_tensor(p)
    engine.body_quat_w[:, 0] = torch.as_tensor(turn.as_quat(scalar_first=True))
    engine.body_parent_force_w[:, 0] = torch.as_tensor(f)
    engine.body_parent_torque_w[:, 0] = torch.as_tensor(np.cross(x - p, f))  # about the body's frame origin
    offset = sn.OffsetCfg(pos=(0.02, 0.03, -0.01), rot=(math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0))
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", site="flange", offset=offset, on=on)])
    site, mount = Rotation.from_quat([0.5, 0.5, 0.5, 0.5], scalar_first=True), Rotation.from_euler("y", 90, True)
    s = p + turn.apply(np.array([0.1, -0.2, 0.05]) + site.apply(offset.pos))
    back, sign = (turn * site * mount).inv(), 1.0 if on == "child" else -1.0
    data = scene["ft"].data
    np.testing.assert_allclose(numpy(data.force), sign * back.apply(f), atol=40.0 * EPS * 100.0)
    np.testing.assert_allclose(numpy(data.torque), sign * back.apply(np.cross(x - s, f)), atol=100.0 * EPS * 300.0)


def test_gravity_rotates_as_the_sensor_turns() -> None:
    """A hand of 2 kg rotates about a level axis: |F| = m g always, (Fx, Fz) is on a circle, and torque is r x F."""
    xml = """
    <mujoco><worldbody><body name="hand" pos="0 0 1"><joint name="roll" axis="0 1 0"/>
      <inertial mass="2" pos="0.03 0.02 -0.08" diaginertia=".01 .01 .01"/><site name="s"/></body></worldbody></mujoco>
    """
    engine = sn.MujocoEngine(xml, num_envs=36)
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", site="s")])
    angle = np.arange(36) * 2.0 * np.pi / 36
    scene.reset(qpos=angle[:, None])
    force = numpy(scene["ft"].data.force)
    # free to rotate, the hand falls about the axis: only the static part along the axis and the joint's force remain
    np.testing.assert_allclose(numpy(scene["ft"].data.torque)[:, 1], 0.0, atol=1e-5)  # nothing holds the hinge
    locked = xml.replace('axis="0 1 0"', 'axis="0 1 0" armature="1e9"')
    scene = sn.Scene(sn.MujocoEngine(locked, num_envs=36), [sn.ForceTorqueCfg(name="ft", site="s")])
    scene.reset(qpos=angle[:, None])
    force, torque = numpy(scene["ft"].data.force), numpy(scene["ft"].data.torque)
    circle = 2.0 * G * np.stack([-np.sin(angle), np.zeros(36), np.cos(angle)], axis=1)
    np.testing.assert_allclose(force, circle, atol=1e-5)
    np.testing.assert_allclose(torque[:, [0, 2]], np.cross([0.03, 0.02, -0.08], circle)[:, [0, 2]], atol=1e-5)


ARM = """
<mujoco>
  <option timestep="0.002" tolerance="1e-12" iterations="200"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="box" pos="0 0 0.4">
      <freejoint name="root"/>
      <geom type="box" size="0.2 0.1 0.05" pos="0.05 0.02 0" density="400"/>
      <body name="upper" pos="0.2 0 0" euler="0 20 10">
        <joint name="shoulder" type="ball" pos="0.02 -0.01 0.03" damping="0.02"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="one" pos="0.1 0.02 -0.03" euler="10 70 -40"/>
        <body name="lower" pos="0.3 0 0" euler="0 40 0">
          <joint name="elbow" axis="0 1 0" pos="0 0.04 0" damping="0.05" stiffness="2"/>
          <geom type="capsule" fromto="0 0 0 0.25 0 0" size="0.025"/>
          <site name="two" pos="0 0.04 0" euler="30 -50 120"/>
          <body name="hand" pos="0.25 0 0" euler="0 30 0">
            <geom name="hand" type="box" size="0.06 0.03 0.05" pos="0.02 0.01 0.05" mass="0.7"/>
            <site name="three" pos="0.01 0 0.02" euler="0 -60 15"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" ctrlrange="-3 3"/></actuator>
  <sensor>
    <force name="f one" site="one"/><torque name="t one" site="one"/>
    <force name="f two" site="two"/><torque name="t two" site="two"/>
    <force name="f three" site="three"/><torque name="t three" site="three"/>
  </sensor>
</mujoco>
"""


def test_a_moving_arm_in_contact_reads_as_mujocos_force_and_torque_sensors() -> None:
    """At sites on a ball-jointed, a hinged and a welded body of an arm that hits the floor, values agree to 1e-5."""
    model = mujoco.MjModel.from_xml_string(ARM)
    sites = ("one", "two", "three")
    engine = sn.MujocoEngine(ARM, num_envs=3)
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", sites=sites)])
    rng = np.random.default_rng(2)
    scene.reset(qvel=rng.normal(0.0, 1.0, (3, model.nv)))
    touched = 0
    for _ in range(30):
        scene.step(torch.as_tensor(rng.uniform(-3.0, 3.0, (3, 1))), substeps=10)
        data = scene["ft"].data
        for env in range(3):
            theirs = mujoco.MjData(model)
            for name in ("qpos", "qvel", "ctrl"):
                getattr(theirs, name)[:] = getattr(engine, name)[env].detach().cpu().numpy()
            mujoco.mj_forward(model, theirs)
            touched += theirs.ncon
            for k, site in enumerate(sites):
                for letter, values in (("f", data.force), ("t", data.torque)):
                    native = theirs.sensor(f"{letter} {site}").data
                    size = max(1.0, float(np.abs(native).max()))
                    np.testing.assert_allclose(numpy(values[env, k]), native, atol=1e-5 * size, err_msg=site)
    assert touched > 30


# The software ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["child", "parent"])
def test_the_weight_of_a_tool_is_subtracted_in_the_true_direction_of_gravity(on: Any) -> None:
    """A tool held still in any pose, under any gravity, reads zero; the truth includes its weight."""
    envs, rng, mass, com = 30, np.random.default_rng(5), 1.5, np.array([0.02, -0.01, 0.12])
    turn, gravity = Rotation.random(envs, rng=rng), rng.normal(0.0, 6.0, (envs, 3))
    engine = engine_of(envs, gravity=torch.as_tensor(gravity))
    site = Rotation.from_quat([0.5, 0.5, 0.5, 0.5], scalar_first=True)
    s = turn.apply([0.1, -0.2, 0.05])
    lift, point = -mass * gravity, s + (turn * site).apply(com)
    engine.body_quat_w[:, 0] = torch.as_tensor(turn.as_quat(scalar_first=True))
    engine.body_parent_force_w[:, 0] = torch.as_tensor(lift)
    engine.body_parent_torque_w[:, 0] = torch.as_tensor(np.cross(point, lift))
    cfg = sn.ForceTorqueCfg(name="ft", site="flange", on=on, tool_mass=mass, tool_com=tuple(com))
    scene = sn.Scene(engine, [cfg])
    size = np.abs(lift).max()
    np.testing.assert_allclose(six(scene["ft"].data), 0.0, atol=100.0 * EPS * size)
    norms = np.linalg.norm(numpy(scene["ft"].ground_truth.force), axis=1)
    np.testing.assert_allclose(norms, mass * np.linalg.norm(gravity, axis=1), rtol=1e-5)


def test_motion_compensation_leaves_only_contact_forces() -> None:
    """On the tumbling, colliding arm with hand = tool, the wrench less its inertia is that of the hand's contacts."""
    model = mujoco.MjModel.from_xml_string(ARM)
    mass, com = float(model.body("hand").mass[0]), model.body("hand").ipos
    turn = Rotation.from_quat(model.site("three").quat, scalar_first=True)
    inertia = Rotation.from_quat(model.body("hand").iquat, scalar_first=True)
    # a second sensor whose axes are the hand's principal axes, at the origin of site three
    offset = sn.OffsetCfg(rot=tuple((turn.inv() * inertia).as_quat(scalar_first=True).tolist()))
    arm = tuple((inertia.inv().apply(com - model.site("three").pos)).tolist())
    cfg = sn.ForceTorqueCfg(
        name="ft", site="three", offset=offset, tool_mass=mass, tool_com=arm, compensate="motion",
        tool_inertia=tuple(model.body("hand").inertia.tolist()),
    )  # fmt: skip
    engine = sn.MujocoEngine(ARM, num_envs=3)
    scene = sn.Scene(engine, [cfg, cfg.replace(name="weight", compensate="weight", tool_inertia=(0.0, 0.0, 0.0))])
    rng = np.random.default_rng(3)
    scene.reset(qvel=rng.normal(0.0, 2.0, (3, model.nv)))
    free, moved, hits = 0, 0.0, 0
    for _ in range(40):
        scene.step(torch.as_tensor(rng.uniform(-3.0, 3.0, (3, 1))), substeps=10)
        ours, weight, truth = (six(x) for x in (scene["ft"].data, scene["weight"].data, scene["ft"].ground_truth))
        for env in range(3):
            theirs = mujoco.MjData(model)
            for name in ("qpos", "qvel", "ctrl"):
                getattr(theirs, name)[:] = getattr(engine, name)[env].detach().cpu().numpy()
            mujoco.mj_forward(model, theirs)
            axes = Rotation.from_matrix(theirs.site("three").xmat.reshape(3, 3)) * turn.inv() * inertia
            expected, origin = np.zeros(6), theirs.site("three").xpos
            for k in range(theirs.ncon):
                contact, wrench = theirs.contact[k], np.zeros(6)
                if model.geom("hand").id not in (contact.geom1, contact.geom2):
                    continue
                mujoco.mj_contactForce(model, theirs, k, wrench)
                on_second = contact.frame.reshape(3, 3).T @ wrench[:3]
                on_hand = on_second if contact.geom2 == model.geom("hand").id else -on_second
                hits += 1
                expected -= np.concatenate(  # the parent's force that withstands the contact
                    [axes.inv().apply(on_hand), axes.inv().apply(np.cross(contact.pos - origin, on_hand))]
                )
            free += not expected.any()
            size = max(10.0, float(np.abs(truth[env]).max()), float(np.abs(expected).max()))
            np.testing.assert_allclose(ours[env], expected, atol=3e-5 * size)
            moved = max(moved, float(np.abs(weight[env] - expected).max()))
    assert free > 20 and hits > 5 and moved > 1.0  # compensation of the weight alone would not suffice


def test_tare_subtracts_the_first_noisy_reading() -> None:
    """The first sample of an episode reads exactly zero; later ones differ from the untared reading by that sample."""
    engine = loaded(4)
    noise = {"force": 0.5, "torque": 0.05}
    cfg = sn.ForceTorqueCfg(name="ft", bodies=".*", tare=True, noise=noise)
    scene = sn.Scene(engine, [cfg])
    plain = sn.Scene(loaded(4), [cfg.replace(tare=False)])
    assert not six(scene["ft"].data).any()
    zero = six(plain["ft"].data).copy()
    for k in range(10):
        if k == 5:
            scene.reset([2])
            plain.reset([2])
            assert not six(scene["ft"].data)[2].any()
            zero[2] = six(plain["ft"].data)[2]
        for each in (scene, plain):
            each.step()
        np.testing.assert_allclose(six(scene["ft"].data), six(plain["ft"].data) - zero, atol=4.0 * EPS * 10.0)
        assert torch.equal(scene["ft"].ground_truth.force, plain["ft"].ground_truth.force)


def test_manual_tare_applies_from_the_next_sample_to_its_envs() -> None:
    """`tare([1])` zeroes env 1 from the next sample on, not in `update(ticks=0)`; it ends with the episode."""
    engine = engine_of(3)
    engine.body_parent_force_w[:] = torch.tensor([3.0, 4.0, 5.0])
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", body="hand", tare="manual", bias={"force": 1.0})])
    scene.update()
    held = snapshot(scene["ft"])
    scene["ft"].tare([1])
    for _ in range(2):
        engine.body_parent_force_w[:, 0] += 1.0
        scene.update(ticks=0)
        same(snapshot(scene["ft"]), held)
        scene.update()
        held = snapshot(scene["ft"])
    np.testing.assert_allclose(numpy(scene["ft"].data.force), [[6, 7, 8], [2, 2, 2], [6, 7, 8]], atol=1e-5)
    scene["ft"].tare()
    scene["ft"].tare()  # two calls have the effect of one: the sample is the same
    scene.update()
    np.testing.assert_allclose(numpy(scene["ft"].data.force), 0.0, atol=1e-5)
    scene.reset([0])
    np.testing.assert_allclose(numpy(scene["ft"].data.force)[:, 0], [6, 0, 0], atol=1e-5)


def test_crosstalk_is_identified_from_eight_noisy_loads() -> None:
    """A laboratory calibration with full-scale loads and the device's noise gives C within 1 %."""
    rng, envs = np.random.default_rng(6), 200
    engine = engine_of(envs)
    full = np.array([300.0] * 3 + [30.0] * 3)
    stage = sn.stages.Crosstalk(fields=SIX, matrix=sn.Normal(0.0, 0.02), full_scale=(300.0, 30.0))
    noise = {"force": 0.1, "torque": 0.005}
    cfg = sn.ForceTorqueCfg(name="ft", body="hand", stages=(stage,), noise=noise, tare=True)
    scene = sn.Scene(engine, [cfg], seed=1)
    loads, readings = rng.uniform(-1.0, 1.0, (8, 6)), []
    for load in loads * full:
        engine.body_parent_force_w[:, 0], engine.body_parent_torque_w[:, 0] = (
            torch.as_tensor(load[:3]), torch.as_tensor(load[3:])
        )  # fmt: skip
        scene.update()
        readings.append(six(scene["ft"].data) / full)
    table = next(run.states["matrix"] for run in scene["ft"].buffers.stages)
    true = np.eye(6) + numpy(table).reshape(envs, 6, 6) * ~np.eye(6, dtype=bool)
    found = np.stack([np.linalg.lstsq(loads, np.stack(readings)[:, env], rcond=None)[0].T for env in range(envs)])
    assert np.abs(found - true).max() < 0.01
    assert np.abs(true - np.eye(6)).max() > 0.06  # the crosstalk to find is not zero


def test_inverse_crosstalk_recovers_a_known_wrench() -> None:
    """The reading is C (w - w0); C^-1 gives the change of the wrench since the tare."""
    rng = np.random.default_rng(7)
    c = np.eye(6) + rng.uniform(-0.05, 0.05, (6, 6))
    stage = sn.stages.Crosstalk(fields=SIX, matrix=tuple(map(tuple, c - np.eye(6))))
    first, second = rng.normal(0.0, 20.0, (2, 6))
    engine = engine_of(1)

    def load(w: Array) -> None:
        engine.body_parent_force_w[:, 0], engine.body_parent_torque_w[:, 0] = (torch.as_tensor(w[:3]),
                                                                             torch.as_tensor(w[3:]))  # fmt: skip

    load(first)
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", body="hand", stages=(stage,), tare=True)])
    load(second)
    scene.update()
    found = np.linalg.solve(c, six(scene["ft"].data)[0])
    np.testing.assert_allclose(found, second - first, atol=1e-5 * 60.0)


def test_compensation_follows_full_scale_and_quantisation() -> None:
    """A load beyond full scale reads full scale less the tare, however large it is; the tare is on the grid."""
    engine = engine_of(1)
    engine.body_parent_force_w[:, 0] = torch.tensor([12.3, 0.0, 0.0])
    full = sn.stages.Saturation(fields=("force",), high=50.0)
    cfg = sn.ForceTorqueCfg(name="ft", body="hand", stages=(full,), resolution={"force": 1.0}, tare=True)
    scene = sn.Scene(engine, [cfg])
    for load, expected in ((30.7, 19.0), (70.0, 38.0), (700.0, 38.0)):
        engine.body_parent_force_w[:, 0] = torch.tensor([load, 0.0, 0.0])
        scene.update()
        assert scene["ft"].data.force[0].tolist() == [expected, 0.0, 0.0]


# Notes and errors -----------------------------------------------------------------------------------------------------


def test_notes_and_specs_describe_the_wrench() -> None:
    """Side, frame, and the quantities subtracted by software are stated in words; units and frames are in the specs."""
    cfg = sn.ForceTorqueCfg(joint="wrist", on="parent", tool_mass=1.0, tare=True)
    sensor = sn.Scene(engine_of(1), [cfg])["force_torque"]
    notes = sensor.info.notes
    assert notes["wrench"] == "wrench that the child exerts on the parent"
    assert notes["subtracted from the measured wrench"] == "the tool's weight and the tare"
    assert [(spec.name, spec.unit, spec.frame) for spec in sensor.specs] == [
        ("force", "N", "sensor"), ("torque", "N m", "sensor"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"camera": "c"}, "a joint, a site or a body"),
        ({"body": "world"}, "a joint, a site or a body"),
        ({"joint": "wrist", "tool_mass": -1.0}, "tool_mass.*a finite mass >= 0"),
        ({"joint": "wrist", "tool_com": (0.0, 0.0, 1.0)}, "tool_com.*a tool_mass"),
        ({"joint": "wrist", "tool_mass": 1.0, "tool_inertia": (1.0, 1.0, 1.0)}, "compensate='motion'"),
        ({"joint": "wrist", "tare": "later"}, "tare"),
        ({"joint": "wrist", "on": "both"}, "on"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.ForceTorqueCfg(**fields)


def test_unsupported_use_raises() -> None:
    """A site on the world, an unrequested tare, and an engine without wrenches are errors, never zeros."""
    engine = sn.TensorEngine(1, sites={"wall": ("world", (0.0, 0.0, 1.0))}, provides=("pose", "joint_wrench"))
    with pytest.raises(sn.ConfigError, match="an element of a moving body"):
        sn.Scene(engine, [sn.ForceTorqueCfg(site="wall")])
    scene = sn.Scene(engine_of(1), [sn.ForceTorqueCfg(joint="wrist")])
    with pytest.raises(sn.ConfigError, match="'manual' or True"):
        scene["force_torque"].tare()
    with pytest.raises(sn.UnsupportedError, match="JOINT_WRENCH"):
        sn.Scene(sn.TensorEngine(), [sn.ForceTorqueCfg(body="body")])
