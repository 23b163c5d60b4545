"""Contact reports on Newton are those of Newton's SensorContact."""

from __future__ import annotations

import mujoco
import newton
import numpy as np
import pytest
import quadruped
import torch
import warp as wp
from newton.sensors import SensorContact

import sensorium as sn
from sensorium.errors import UnsupportedError
from sensorium.spec import BODY_POSE, CONTACT_REPORT, contact_array

FEET = tuple(f"{leg}_foot" for leg in quadruped.LEGS)
NET = sn.ContactSensorCfg(
    name="net",
    primary=sn.ContactMatch(mode="geom", pattern=".*_foot"),
    fields=("found", "force"),
    reduce="netforce",
    global_frame=True,
)
SLOTS = CONTACT_REPORT(("geom", FEET), ("geom", "floor"), ("found", "force", "dist", "pos", "normal"), "maxforce", 2)


@pytest.fixture(scope="module", params=[4, 64])
def scene(request: pytest.FixtureRequest) -> sn.Scene:
    return sn.Scene(quadruped.engine_of(request.param), [NET])


def test_net_forces_are_those_of_newton(scene: sn.Scene) -> None:
    engine = scene.engine
    assert isinstance(engine, sn.NewtonEngine)
    theirs = SensorContact(
        engine.model, sensing_shapes="*_foot", counterpart_shapes="*floor", request_contact_attributes=False
    )
    scene.reset(**quadruped.start(scene.num_envs))
    strongest = 0.0
    for k in range(40):
        scene.step(torch.full((8,), 0.1 * k / 40), 2)
        theirs.update(engine.newton_state, engine._access.contacts, observables=engine._access.observables)
        total = quadruped.per_env(theirs.total_force, scene.num_envs)
        ours = scene["net"].ground_truth
        scale = float(total.abs().max())
        torch.testing.assert_close(ours.force, total, rtol=1e-5, atol=1e-5 * max(scale, 1.0))
        strongest = max(strongest, scale)
    assert strongest > 5.0


def test_slots_have_points_and_distances() -> None:
    engine = quadruped.engine_of()
    engine.prepare({SLOTS: "test", BODY_POSE: "test"})
    engine.reset(None, quadruped.start())
    for k in range(60):
        engine.step(torch.full((8,), 0.002 * k))
    engine.refresh()
    report = engine.array(contact_array(SLOTS))[:, :, 0]
    touching = report[..., 0] > 0
    assert bool(touching.any())
    force, dist, pos, normal = report[..., 1:4], report[..., 4], report[..., 5:8], report[..., 8:11]
    down = torch.tensor([0.0, 0.0, -1.0])
    torch.testing.assert_close(normal[touching], down.expand(int(touching.sum()), 3), rtol=0.0, atol=1e-5)
    assert float(force[touching][:, 0].min()) >= 0.0
    centre = torch.stack([_centre(engine, name) for name in FEET], dim=1)
    torch.testing.assert_close(dist[touching], (centre[..., 2] - 0.03)[touching], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(pos[touching][:, :2], centre[touching][:, :2], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(pos[touching][:, 2], 0.5 * dist[touching], rtol=0.0, atol=1e-5)


def _centre(engine: sn.NewtonEngine, geom: str) -> torch.Tensor:
    frame = engine.frame("geom", geom)
    turn = wp.to_torch(engine.newton_state.body_q).view(engine.num_envs, -1, 7)[:, frame.body]
    axis, w = turn[:, 3:6], turn[:, 6:]
    place = torch.tensor(frame.pos).expand(engine.num_envs, 3)
    twice = 2.0 * torch.linalg.cross(axis, place)
    return turn[:, :3] + place + w * twice + torch.linalg.cross(axis, twice)


def test_net_wrenches_are_those_of_mujoco() -> None:
    engine = quadruped.engine_of()
    shanks = tuple(f"{leg}_shank" for leg in quadruped.LEGS)
    report = CONTACT_REPORT(("body", shanks), None, ("found", "force", "torque", "pos"), "netforce")
    engine.prepare({report: "test"})
    engine.reset(None, quadruped.start())
    model, largest = engine.solver.mj_model, 0.0
    model.opt.timestep = quadruped.DT
    data = mujoco.MjData(model)
    bodies = [next(k for k in range(model.nbody) if model.body(k).name.endswith(name)) for name in shanks]
    for _ in range(4):
        quadruped.run(engine, 15)
        engine.refresh()
        ours = engine.array(contact_array(report))[:, :, 0].double().numpy()
        worlds = engine.solver.mjw_data
        for env in range(engine.num_envs):
            for name in ("qpos", "qvel", "ctrl"):
                getattr(data, name)[:] = getattr(worlds, name).numpy()[env]
            mujoco.mj_forward(model, data)
            for row, body in enumerate(bodies):
                theirs = _net(model, data, body)
                scale = max(1.0, float(np.abs(theirs[1:4]).max()))
                np.testing.assert_allclose(ours[env, row, :1], theirs[:1])
                np.testing.assert_allclose(ours[env, row, 1:7], theirs[1:7], rtol=0.0, atol=2e-4 * scale)
                np.testing.assert_allclose(ours[env, row, 7:], theirs[7:], rtol=0.0, atol=2e-5)
                largest = max(largest, float(np.abs(theirs[4:7]).max()))
    assert largest > 1e-3


def _net(model: mujoco.MjModel, data: mujoco.MjData, body: int) -> np.ndarray:
    """Return number, force, torque about the force-weighted centre, and that centre, of the contacts of a body."""
    points, forces, torques = [], [], []
    for k in range(data.ncon):
        contact, wrench = data.contact[k], np.zeros(6)
        sides = [int(model.geom_bodyid[geom]) for geom in contact.geom]
        if body not in sides:
            continue
        mujoco.mj_contactForce(model, data, k, wrench)
        axes = contact.frame.reshape(3, 3).T
        sign = 1.0 if sides[1] == body else -1.0
        points.append(np.array(contact.pos))
        forces.append(sign * axes @ wrench[:3])
        torques.append(sign * axes @ wrench[3:])
    if not points:
        return np.zeros(10)
    weights = np.linalg.norm(forces, axis=1)
    centre = weights @ np.array(points) / max(float(weights.sum()), 1e-15)
    about = np.sum(torques, axis=0) + np.cross(np.array(points) - centre, forces).sum(axis=0)
    return np.concatenate([[len(points)], np.sum(forces, axis=0), about, centre])


def test_torques_of_other_solvers_are_refused() -> None:
    model = quadruped.model_of(4)
    engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=quadruped.DT)
    report = CONTACT_REPORT(("geom", FEET), None, ("found", "torque"), "maxforce")
    with pytest.raises(UnsupportedError, match=r"CONTACT_REPORT.*newton.*SolverXPBD does not report torques"):
        engine.prepare({report: "feet"})
