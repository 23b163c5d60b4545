"""Every sensor on Newton's SolverMuJoCo and on MuJoCo: equal states give equal readings, and identical noise.

Newton reads the same MJCF file. At each tick its state (float32) is copied into MuJoCo (float64), and both run forward.
The bounds are those of `agreement`. Poses and velocities have an absolute bound of 2e-5 besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import newton
import numpy as np
import pytest
import torch
import warp as wp
from agreement import Trajectory, assert_same_noise, noisy_of, noisy_readings
from two_engines import ENVS, MODEL, NATIVE, Pair, assert_need_agrees, assert_report_agrees, reports, sensors

import sensorium as sn
from sensorium.errors import SensoriumError
from sensorium.geometry.shapes import HeightField, Shape
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_WRENCH,
    MAGNETIC,
    Requirement,
    contact_array,
)

pytestmark = pytest.mark.filterwarnings("ignore:Heightfield-vs-heightfield collision")
REFUSED = {
    "torques": r"'torques' requires JOINT_TORQUE.*newton.*SolverMuJoCo has no such quantity",
    "current": r"'current' requires JOINT_TORQUE.*newton.*SolverMuJoCo has no such quantity",
    "camera": r"camera.*'front'",
    "images": r"camera.*'front'",
    "dvs": r"camera.*'front'",
    "touch": r"'touch' requires NATIVE_SENSOR.*'newton'.*Newton models have no sensors of MuJoCo",
    **{name: rf"BuiltinSensorCfg\('{name}'\).name: got .*It declares: none" for name in NATIVE},
}
"""Sensors that are rejected on Newton, and the error."""
CONFIGS = {cfg.label: cfg for cfg in sensors() if cfg.label not in REFUSED}
REPORTS = {contact_array(report): report for report in reports()}
ACTUATORS = ("left_knee", "left_hip", "right_hip", "right_knee", "linkage")
"""The actuators in Newton's order: those with a target of a joint first."""
NEEDS = (
    BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, JOINT_STATE, JOINT_EFFORT, JOINT_WRENCH, GRAVITY, MAGNETIC,
)  # fmt: skip


def engine_of(num_envs: int = ENVS) -> sn.NewtonEngine:
    """Return an engine of the common world."""
    world, builder = newton.ModelBuilder(), newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(world)
    world.rigid_gap = world.default_shape_cfg.gap = 0.0  # MuJoCo's default
    world.add_mjcf(str(MODEL), force_show_colliders=True)
    builder.replicate(world, num_envs)
    model = builder.finalize(device="cpu")
    solver = newton.solvers.SolverMuJoCo(model, nconmax=40, njmax=200)
    return sn.NewtonEngine(model, solver, dt=0.004, control="mujoco.ctrl")


def start(engine: sn.NewtonEngine) -> None:
    """Write the initial state: in the air, about to land, and standing with a ball on the back."""
    generator = torch.Generator().manual_seed(7)
    velocity = 2.0 * torch.rand(engine.joint_qd.shape, generator=generator) - 1.0
    engine.joint_qd[:] = velocity * torch.tensor([[2.0], [0.5], [0.1]])
    root, ball = (place_of(engine, joint) for joint in ("root", "ball"))
    engine.joint_q[:, root[0] + 2] = torch.tensor([1.8, 0.43, 0.395])
    engine.joint_q[:, ball[0] + 2] = torch.tensor([2.6, 0.9, 0.513])
    engine.joint_qd[1, root[1] + 2] = -0.8
    gravity = torch.tensor([[0.0, 0.0, -9.81], [0.5, -0.3, -9.0], [0.0, 0.0, -9.81]])
    wp.to_torch(engine.model.gravity)[:ENVS] = gravity
    engine.solver.notify_model_changed(newton.ModelFlags.MODEL_PROPERTIES)
    engine.forward()


def place_of(engine: sn.NewtonEngine, joint: str) -> tuple[int, int]:
    """Return the first coordinate and degree of freedom of a joint of the first world."""
    labels = engine.model.joint_label[: engine.model.joint_count // engine.num_envs]
    (row,) = (k for k, label in enumerate(labels) if label.endswith(f"/{joint}"))
    return int(engine.model.joint_q_start.numpy()[row]), int(engine.model.joint_qd_start.numpy()[row])


def carry(engine: sn.NewtonEngine, cpu: sn.MujocoEngine) -> None:
    """Copy Newton's state into MuJoCo."""
    data = engine.solver.mjw_data
    for name in ("qpos", "qvel", "act"):
        getattr(cpu, name).copy_(wp.to_torch(getattr(data, name)))
    cpu.ctrl[:, [cpu.names("actuator").index(name) for name in ACTUATORS]] = wp.to_torch(data.ctrl).double()
    cpu.gravity.copy_(engine.array("gravity_w"))


def shape_rows(cpu: sn.MujocoEngine, engine: sn.NewtonEngine) -> torch.Tensor:
    """Return the row of each of MuJoCo's shapes among Newton's: by name, unnamed ones by their order on a body."""
    mine, theirs = cpu.shapes(), engine.shapes()
    names = {shape.name: row for row, shape in enumerate(theirs)}
    unnamed = {shape.name for shape in mine} - names.keys()
    known = {shape.name for shape in mine} & names.keys()
    rows = []
    for shape in mine:
        peers = [each.name for each in mine if each.name in unnamed and each.row == shape.row]
        others = [row for row, each in enumerate(theirs) if each.name not in known and each.row == shape.row]
        rows.append(names[shape.name] if shape.name in known else others[peers.index(shape.name)])
    assert sorted(rows) == list(range(len(theirs)))
    return torch.tensor(rows, dtype=torch.int32)


def as_in_newton(shape: Shape) -> Shape:
    """Return a shape of MuJoCo as Newton's reader of MJCF files makes it: planes have no end, and fields no base."""
    if shape.kind == "plane":
        return replace(shape, size=(0.0, 0.0))
    if shape.hfield is None:
        return shape
    field = shape.hfield
    return replace(shape, hfield=HeightField(field.heights, field.size, None, field.name))


@pytest.fixture(scope="module")
def trajectory() -> Iterator[Trajectory]:
    cpu, engine = sn.MujocoEngine(MODEL, ENVS), engine_of()
    with pytest.MonkeyPatch.context() as patch:
        shapes = tuple(map(as_in_newton, cpu.shapes()))
        patch.setattr(cpu, "shapes", lambda: shapes)
        yield made(cpu, engine)


def made(cpu: sn.MujocoEngine, engine: sn.NewtonEngine) -> Trajectory:
    """Return the trajectory of both engines."""
    options: dict[str, Any] = {"reserve": reports(), "seed": 3, "discover": False}
    scenes = tuple(sn.Scene(each, CONFIGS.values(), **options) for each in (cpu, engine))
    for kind in ("body", "scalar_joint"):
        assert cpu.names(kind) == engine.names(kind)
    compiled, rows = engine.solver.mj_model, [cpu.names("actuator").index(name) for name in ACTUATORS]
    for field in ("actuator_gainprm", "actuator_biasprm", "actuator_gear", "actuator_dynprm"):
        np.testing.assert_allclose(getattr(compiled, field), getattr(cpu.model, field)[rows])
    start(engine)
    shapes = shape_rows(cpu, engine)

    def same_ids(field: str, values: torch.Tensor) -> torch.Tensor:
        return torch.where(values >= 0, shapes[values.clamp(min=0)], values) if field == "geom_ids" else values

    return Trajectory(Pair(cpu, engine, (scenes[0], scenes[1]), carry), same_ids)


def test_trajectory_has_contacts_and_motion(trajectory: Trajectory) -> None:
    touching = trajectory.touching
    assert touching.sum(0).tolist()[0] == 0 and 5 <= touching[:, 1].sum() <= len(touching) - 5
    assert touching[:, 2].all()


@pytest.mark.parametrize("name", CONFIGS)
def test_sensor_reads_the_same_on_both_engines(name: str, trajectory: Trajectory) -> None:
    trajectory.assert_sensor_agrees(name)


@pytest.mark.parametrize("requirement", NEEDS, ids=lambda requirement: requirement.kind)
def test_requirement_gives_equal_arrays(requirement: Requirement, trajectory: Trajectory) -> None:
    assert_need_agrees(requirement, *trajectory.arrays, trajectory.touching)


@pytest.mark.parametrize("name", ["body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"])
def test_poses_and_velocities_have_an_absolute_bound(name: str, trajectory: Trajectory) -> None:
    mine, theirs = (arrays[name] for arrays in trajectory.arrays)
    torch.testing.assert_close(mine, theirs, rtol=0.0, atol=2e-5)


@pytest.mark.parametrize("array", REPORTS)
def test_contact_reports_are_equal(array: str, trajectory: Trajectory) -> None:
    mine, theirs = (arrays[array] for arrays in trajectory.arrays)
    assert_report_agrees(REPORTS[array], mine, theirs, trajectory.touching)


@pytest.fixture(scope="module")
def noisy(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Shapes and frames are fed as well: Newton has them in float32, so the truth would differ in the last bit."""
    pair = trajectory.pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair.other, "shapes", pair.cpu.shapes)
        patch.setattr(pair.other, "frame", lambda *element: replace(pair.cpu.frame(*element), element=None))
        yield noisy_readings(pair, list(CONFIGS.values()))


@pytest.mark.parametrize("name", [cfg.label for cfg in noisy_of(list(CONFIGS.values()))])
def test_noise_on_identical_truth_is_bit_identical(name: str, noisy: dict[str, Any]) -> None:
    assert_same_noise(*noisy[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_sensor_and_quantity(name: str, trajectory: Trajectory) -> None:
    (cfg,) = (cfg for cfg in sensors() if cfg.label == name)
    with pytest.raises(SensoriumError, match=REFUSED[name]):
        sn.Scene(trajectory.pair.other, [cfg])
