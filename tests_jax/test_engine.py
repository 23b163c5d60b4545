"""The engine over `mjx.Data` keeps the protocol, shows MuJoCo's values, and refuses what MJX lacks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import quadruped
import torch
from mujoco import mjx
from quadruped import LEGS, close

import sensorium as sn
import sensorium.jax as sj
from sensorium.errors import ModelError, ScheduleError, UnsupportedError
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    CONTACT_REPORT,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    NATIVE_SENSOR,
    SHAPES,
    contact_array,
    contact_columns,
)
from sensorium.testing import check_engine

EVERY = ("found", "force", "torque", "dist", "pos", "normal", "tangent")
NATIVE = ("acc", "gyro", "toe_vel", "knee", "range", "vel")


@pytest.mark.parametrize("fresh", [True, False])
def test_protocol(fresh: bool) -> None:
    rules = check_engine(
        lambda num_envs: quadruped.engine_of(num_envs, fresh=fresh), advance=quadruped.advance, ticks=20
    )
    assert {"velocities_move_the_bodies", "contact_reports_agree", "reset_leaves_the_others"} <= {*rules}
    assert "state_is_of_one_instant" in rules


@pytest.fixture(scope="module")
def landed() -> Any:
    """Return data of environments with feet on the ground."""
    _, mx = quadruped.models()
    data = quadruped.start(4)
    for _ in range(60):
        data = quadruped.stepper()(mx, data)
    return data


def wanted(fresh: bool) -> dict[Any, str]:
    requirements = (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, JOINT_STATE, JOINT_EFFORT, JOINT_WRENCH)
    return dict.fromkeys((*requirements, *map(NATIVE_SENSOR, NATIVE)), "test")


@pytest.mark.parametrize("fresh", [True, False])
def test_state_is_that_of_mujoco(landed: Any, fresh: bool) -> None:
    model, mx = quadruped.models()
    engine = sj.from_mjx(model, mx, landed, fresh=fresh)
    engine.prepare(wanted(fresh))
    before = quadruped.in_mujoco(landed, model)
    data = quadruped.stepper()(mx, landed)
    engine.data = data
    engine.count_ticks(1)
    engine.refresh()
    assert engine.lag == (0 if fresh else 1)
    reference = quadruped.in_mujoco(data, model) if fresh else before
    other = sn.MujocoEngine.from_mj(model, reference)
    other.prepare(wanted(fresh))
    other.refresh()
    for name, tolerance in {
        "body_pos_w": 1e-5, "body_quat_w": 1e-5, "body_lin_vel_w": 2e-5, "body_ang_vel_w": 2e-5, "body_lin_acc_w": 1e-3,
        "body_ang_acc_w": 1e-3, "joint_pos": 1e-5, "joint_vel": 1e-5, "joint_effort": 1e-4, "gravity_w": 0.0,
        "body_parent_force_w": 1e-3, "body_parent_torque_w": 1e-3,
    }.items():  # fmt: skip
        close(engine.array(name), other.array(name), tolerance)
    for name in NATIVE:
        native = [data.sensor(name).data for data in reference]
        close(engine.array(f"native:{name}"), np.array(native), 1e-3 if name == "acc" else 2e-5)


def run(scene: sn.Scene, data: Any, ticks: int = 5) -> Any:
    """Step the data, update the scene after each tick, and return the last data."""
    _, mx = quadruped.models()
    for _ in range(ticks):
        data = quadruped.stepper()(mx, data)
        scene.engine.data = data
        scene.update()
    return data


def test_sensors_read_what_mujoco_reads(landed: Any) -> None:
    model, mx = quadruped.models()
    sensors = [
        sn.ImuCfg(name="imu", site="imu"),
        sn.JointSensorCfg(name="joints", joints=".*"),
        sn.FrameTransformerCfg(name="toes", site="imu", target_frames=[sn.FrameTransformerCfg.FrameCfg(site=".*_toe")]),
    ]
    scene = sn.Scene(sj.from_mjx(model, mx, landed), sensors)
    reference = quadruped.in_mujoco(run(scene, landed), model)
    imu, joints, toes = (scene[name].ground_truth for name in ("imu", "joints", "toes"))
    close(imu.lin_acc_b, [each.sensor("acc").data for each in reference], 1e-3)
    close(imu.ang_vel_b, [each.sensor("gyro").data for each in reference], 2e-5)
    close(joints.position, [each.qpos[7:] for each in reference], 1e-5)
    close(joints.velocity, [each.qvel[6:] for each in reference], 1e-5)
    for row, leg in enumerate(LEGS):
        places = [
            each.site("imu").xmat.reshape(3, 3).T @ (each.site(f"{leg}_toe").xpos - each.site("imu").xpos)
            for each in reference
        ]
        close(toes.target_pos_source[:, row], places, 1e-5)


REPORTS = (
    CONTACT_REPORT(("geom", ("FL_foot", "FR_foot", "RL_foot")), ("geom", "floor"), EVERY, "maxforce", 2),
    CONTACT_REPORT(("body", tuple(f"{leg}_shank" for leg in LEGS)), None, EVERY, "mindist", 1),
    CONTACT_REPORT(("body", tuple(f"{leg}_shank" for leg in LEGS)), None, EVERY, "netforce"),
    CONTACT_REPORT(("subtree", ("base",)), ("geom", "floor"), EVERY, "netforce"),
    CONTACT_REPORT(("geom", ("floor",)), ("body", "RR_shank"), EVERY, "netforce"),
)


@pytest.mark.parametrize(
    ("option", "fresh"), [("", True), ("", False), ('cone="elliptic"', True)], ids=["fresh", "unfresh", "elliptic"]
)
def test_contacts_are_those_of_mujoco(option: str, fresh: bool) -> None:
    data, own = quadruped.start(4), quadruped.start(4, option=option)
    engine = sj.from_mjx(*quadruped.models(option), own, fresh=fresh)
    engine.prepare(dict.fromkeys(REPORTS, "test"))
    spec = mujoco.MjSpec.from_string(quadruped.XML.format(option=option, flag=""))
    reference = sn.prepare(spec, REPORTS).compile()
    strongest = 0.0
    for k in range(60):
        before, data = data, quadruped.stepper()(quadruped.models()[1], data)
        engine.data = own.replace(qpos=data.qpos, qvel=data.qvel) if option else data
        engine.count_ticks(1)
        if k < 30 or k % 6:
            continue
        engine.refresh()
        other = sn.MujocoEngine.from_mj(reference, quadruped.in_mujoco(data if fresh else before, reference))
        other.prepare(dict.fromkeys(REPORTS, "test"))
        other.refresh()
        for report in REPORTS:
            mine, theirs = engine.array(contact_array(report)), other.array(contact_array(report))
            for name, part in contact_columns(report).items():
                close(mine[..., part], theirs[..., part], 0.0 if name == "found" else 2e-3)
        strongest = max(strongest, float(engine.array(contact_array(REPORTS[2]))[..., 1:4].abs().max()))
    assert strongest > 10.0


def test_rays_are_those_of_mujoco(landed: Any) -> None:
    model, mx = quadruped.models()
    scan = sn.RayCasterCfg(
        name="scan",
        body="world",
        offset=sn.OffsetCfg(pos=(0.05, 0.02, 1.1)),
        pattern=sn.patterns.GridPatternCfg(resolution=0.05, size=(0.6, 0.4)),
    )
    scene = sn.Scene(sj.from_mjx(model, mx, landed), [scan])
    data = run(scene, landed)
    pattern, distances = scene["scan"].pattern, scene["scan"].ground_truth.distances
    for env, reference in enumerate(quadruped.in_mujoco(data, model)):
        hits = []
        for origin, direction in zip(pattern.starts.double().numpy(), pattern.directions.double().numpy(), strict=True):
            start = np.array([0.05, 0.02, 1.1]) + origin
            hits.append(mujoco.mj_ray(model, reference, start, direction, None, 1, -1, np.zeros(1, np.int32)))
        close(distances[env], hits, 1e-4)
        assert 10 < int((distances[env] < 1.0).sum()) < len(hits)


def test_noise_of_equal_truth_has_the_same_bits(landed: Any) -> None:
    model, mx = quadruped.models()
    imu = sn.ImuCfg(
        name="imu", site="imu", fields=("ang_vel_b", "quat_w"), gyro_noise=0.05, random_walk={"ang_vel_b": 0.01}
    )
    scene = sn.Scene(sj.from_mjx(model, mx, landed), [imu], seed=7)
    bodies = scene.engine.names("body")
    frame = scene.engine.frame("site", "imu")
    tensors = sn.TensorEngine(4, scene.engine.dt, bodies=bodies, sites={"imu": ("base", frame.pos, frame.quat)})

    def copy() -> None:
        for name in ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"):
            setattr(tensors, name, scene.engine.array(name))

    copy()
    other = sn.Scene(tensors, [imu], seed=7)
    data = landed
    for _ in range(5):
        data = run(scene, data, 1)
        copy()
        other.update()
        assert torch.equal(scene["imu"].ground_truth.ang_vel_b, other["imu"].ground_truth.ang_vel_b)
        assert torch.equal(scene["imu"].data.ang_vel_b, other["imu"].data.ang_vel_b)
    assert not torch.equal(scene["imu"].data.ang_vel_b, scene["imu"].ground_truth.ang_vel_b)


def _like(mask: Any, values: Any) -> Any:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


def test_a_reset_of_some_environments_starts_their_sensors_anew(landed: Any) -> None:
    model, mx = quadruped.models()
    scene = sn.Scene(sj.from_mjx(model, mx, landed), [sn.ImuCfg(name="imu", site="imu", delay=0.004)])
    data = run(scene, landed)
    kept = scene["imu"].read()
    fresh = quadruped.start(4, seed=5)
    done = np.array([False, True, False, True])
    merged = jax.tree.map(lambda a, b: jnp.asarray(np.where(_like(done, a), a, b)), fresh, data)
    scene.engine.data = merged
    scene.reset(torch.tensor([1, 3]))
    now = scene["imu"].read()
    assert torch.equal(now.lin_acc_b[[0, 2]], kept.lin_acc_b[[0, 2]])
    reference = quadruped.in_mujoco(merged, model)
    close(now.lin_acc_b[[1, 3]], [reference[env].sensor("acc").data for env in (1, 3)], 1e-3)
    assert scene["imu"].frame.tolist() == [6, 1, 6, 1]


def test_old_derived_state_of_other_environments_outlives_a_reset(landed: Any) -> None:
    """With `fresh=False`, only the reset environments read newer data that the loop has not yet counted as a tick."""
    model, mx = quadruped.models()
    engine = sj.from_mjx(model, mx, landed, fresh=False)
    engine.prepare({BODY_VELOCITY: "test", BODY_POSE: "test"})
    engine.refresh()
    before = {name: engine.array(name).clone() for name in ("body_pos_w", "body_lin_vel_w")}
    engine.data = quadruped.stepper()(mx, landed)
    engine.reset(torch.tensor([1]))
    for name, old in before.items():
        now = engine.array(name)
        assert torch.equal(now[[0, 2, 3]], old[[0, 2, 3]])
        assert not torch.equal(now[1], old[1])


def test_a_scene_resumes(landed: Any) -> None:
    model, mx = quadruped.models()
    imu = sn.ImuCfg(name="imu", site="imu", gyro_noise=0.01, delay=0.004)

    def scene_of(data: Any) -> sn.Scene:
        return sn.Scene(sj.from_mjx(model, mx, data, fresh=False), [imu], seed=3)

    scene = scene_of(landed)
    middle = run(scene, landed)
    saved = scene.state()
    run(scene, middle)
    other = scene_of(landed)
    other.engine.data = middle
    other.load_state(saved)
    run(other, middle)
    assert torch.equal(other["imu"].data.ang_vel_b, scene["imu"].data.ang_vel_b)
    assert torch.equal(other["imu"].data.lin_acc_b, scene["imu"].data.lin_acc_b)


def test_randomised_models_have_their_own_mounts_and_gravity(landed: Any) -> None:
    model, mx = quadruped.models()
    sites = np.tile(model.site_pos, (4, 1, 1))
    sites[:, 0, 2] += np.linspace(0.0, 0.1, 4)
    gravity = np.tile(model.opt.gravity, (4, 1))
    gravity[:, 2] *= np.linspace(0.5, 1.0, 4)
    batched = mx.tree_replace({"site_pos": jnp.float32(sites), "opt.gravity": jnp.float32(gravity)})
    scene = sn.Scene(sj.from_mjx(model, batched, landed), [sn.ImuCfg(name="imu", site="imu")])
    for env in range(4):
        own = mujoco.MjModel.from_xml_string(quadruped.XML.format(option="", flag=""))
        own.site_pos[:], own.opt.gravity[:] = sites[env], gravity[env]
        reference = quadruped.in_mujoco(landed, own)[env]
        close(scene["imu"].ground_truth.lin_acc_b[env], reference.sensor("acc").data, 1e-3)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_what_mjx_lacks_is_refused() -> None:
    engine = quadruped.engine_of()
    with pytest.raises(UnsupportedError, match=r"'torque'.*JOINT_TORQUE.*does not provide the force of dampers"):
        engine.prepare({JOINT_TORQUE: "torque"})
    with pytest.raises(UnsupportedError, match=r"'clock'.*this sensor is not in the model.*sn\.prepare"):
        engine.prepare({NATIVE_SENSOR("clock", "clock"): "clock"})
    assert engine.supports(SHAPES) is None
    with pytest.raises(ScheduleError, match=r"call mjx\.step"):
        engine.step()
    with pytest.raises(ScheduleError, match=r"assign data with the new qpos to engine\.data"):
        engine.reset(None, {"qpos": 0.0})


def test_a_model_without_constraints_has_no_old_accelerations() -> None:
    xml = """<mujoco><worldbody><body><freejoint/><geom size="0.1" contype="0"/><site name="imu"/></body></worldbody>
    <sensor><accelerometer name="acc" site="imu"/></sensor></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    mx = mjx.put_model(model)
    data = quadruped.rows_of(mjx.make_data(model), 2)
    acc = NATIVE_SENSOR("acc")
    old, fresh = sj.from_mjx(model, mx, data, fresh=False), sj.from_mjx(model, mx, data)
    for requirement in (acc, BODY_ACCELERATION):
        with pytest.raises(UnsupportedError, match=r"model without constraints.*fresh=True"):
            old.prepare({requirement: "imu"})
    with pytest.raises(UnsupportedError, match="no pair of geoms"):
        fresh.prepare({CONTACT_REPORT(("body", ("body_1",)), None, ("found",), "netforce"): "touch"})
    fresh.prepare({acc: "imu", BODY_ACCELERATION: "imu"})
    fresh.refresh()
    close(fresh.array("native:acc"), np.zeros((2, 3)), 1e-6)
    close(fresh.array("body_lin_acc_w"), np.tile([0.0, 0.0, -9.81], (2, 1, 1)), 1e-6)


def test_sensors_that_mjx_computes_differently_are_refused() -> None:
    xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1"><freejoint/><geom size="0.1"/>
    <site name="s"/></body></worldbody><sensor><rangefinder name="ray" site="s" data="dist normal"/>
    <gyro name="late" site="s" delay="0.004" nsample="4"/></sensor></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data = quadruped.rows_of(mjx.make_data(model), 1)
    engine = sj.from_mjx(model, mjx.put_model(model), data)
    assert "only the distance" in (engine.supports(NATIVE_SENSOR("ray")) or "")
    assert "interval and delay" in (engine.supports(NATIVE_SENSOR("late")) or "")


def test_wrong_arguments_are_refused() -> None:
    model, mx = quadruped.models()
    data = quadruped.start()
    small = mujoco.MjModel.from_xml_string("<mujoco/>")
    for args, text in (
        ((mx, mx, data), "model, expected MjModel"),
        ((model, model, data), "mx, expected Model"),
        ((model, mx, 3), "data: got 3, expected mjx.Data"),
        ((model, mx, jax.tree.map(lambda x: x[0], data)), "leading env axis"),
        ((model, mx, jax.tree.map(lambda x: x[:0], data)), r"qpos has shape \(0, .*leading env axis"),
        ((small, mx, data), r"mx = mjx\.put_model\(model\)"),
        ((model, mx.tree_replace({"opt.timestep": jnp.float32(0.01)}), data), "time steps"),
        ((model, mx.tree_replace({"site_pos": jnp.zeros((2, *model.site_pos.shape))}), data), "site_pos of mx has 2"),
    ):
        with pytest.raises(ModelError, match=text):
            sj.from_mjx(*args)
    sleeping, asleep = quadruped.models("", '<flag sleep="enable"/>')
    with pytest.raises(ModelError, match="sleep"):
        sj.from_mjx(sleeping, asleep, data)
    option = 'integrator="RK4"'
    rk4 = quadruped.models(option)
    with pytest.raises(ModelError, match="RK4"):
        sj.from_mjx(*rk4, data, fresh=False)
    assert sj.from_mjx(*rk4, data).lag == 0


def test_new_data_is_required_for_each_update(landed: Any) -> None:
    model, mx = quadruped.models()
    scene = sn.Scene(sj.from_mjx(model, mx, landed), [sn.ImuCfg(name="imu", site="imu")])
    with pytest.raises(ScheduleError, match=r"assign it, engine\.data = data"):
        scene.update()
    with pytest.raises(ModelError, match=r"\(4, 15\)"):
        scene.engine.data = quadruped.start(3)
    run(scene, landed, 1)


def test_a_lazy_reading_is_of_the_last_update(landed: Any) -> None:
    model, mx = quadruped.models()
    scene = sn.Scene(sj.from_mjx(model, mx, landed), [sn.ImuCfg(name="imu", site="imu")])
    data = run(scene, landed, 1)
    scene.engine.data = quadruped.stepper()(mx, data)  # not updated yet
    close(scene["imu"].data.ang_vel_b, [each.sensor("gyro").data for each in quadruped.in_mujoco(data, model)], 2e-5)


def test_the_state_is_a_copy(landed: Any) -> None:
    model, mx = quadruped.models()
    engine = sj.from_mjx(model, mx, landed)
    engine.qpos.zero_()
    assert float(jnp.abs(landed.qpos).max()) > 0.1 and not bool(engine.diverged.any())
