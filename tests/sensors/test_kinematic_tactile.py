"""The kinematic tactile sensor: its law in oblique contacts, friction and anchors, and presses in MuJoCo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
THREE = ((0.0, 0.0, 0.0), (0.005, 0.0, 0.0), (-0.005, 0.0, 0.0))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def rotated(quat: Any, vector: Any) -> Array:
    w, axis = float(quat[0]), np.asarray(quat[1:], float)
    twice = 2.0 * np.cross(axis, vector)
    out: Array = np.asarray(vector, float) + w * twice + np.cross(axis, twice)
    return out


def back(quat: Any, vector: Any) -> Array:
    return rotated([quat[0], -quat[1], -quat[2], -quat[3]], vector)


def unit(*values: float) -> Array:
    out: Array = np.array(values) / np.linalg.norm(values)
    return out


def engine_of(shapes: Any, envs: int = 1, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, 0.001, bodies=("tip", "thing"), shapes=shapes, **kwargs)


def tactile(engine: sn.engines.Engine, **cfg: Any) -> tuple[sn.Scene, sn.KinematicTactileSensor]:
    scene = sn.Scene(engine, [sn.KinematicTactileSensorCfg(name="skin", **{"link_name": "tip", **cfg})], seed=2)
    return scene, scene["skin"]  # type: ignore[return-value]


BOX = sn.engines.Shape("box", "block", (0.2, 0.2, 0.1), body="thing")
BALL = sn.engines.Shape("sphere", "ball", (0.05,), body="thing")


def law(
    normal: Array, depth: float, v: Array, w: Array, p: Array, *, k: float, b: float, e: float, g: float, h: float
) -> tuple[Array, Array]:
    """Return the contract's formula as printed; the default has the sign of its example, the opposite."""
    s = depth**e
    v_n = (v @ normal) * normal
    force = -k * s * normal - b * s * v_n - g * (v - v_n)
    return force, np.cross(p, force) - h * (w @ normal) * normal


# The contract's example -----------------------------------------------------------------------------------------------


def test_contract_example_reads_ten_newtons_along_the_normal() -> None:
    """Return a fingertip of three taxels at rest, 1 cm deep in a box at 1000 N/m."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1])  # its lower face is at z = 0
    scene, skin = tactile(engine, probe_local_pos=THREE, probe_local_normal=(0.0, 0.0, 1.0), normal_stiffness=1000.0)
    scene.update()  # the surface passes through the probes, whose radius is 0.01 m
    np.testing.assert_allclose(numpy(skin.data.force)[0], [[0.0, 0.0, 10.0]] * 3, atol=1e-5)
    np.testing.assert_allclose(numpy(skin.data.torque)[0], [[0, 0, 0], [0, -0.05, 0], [0, 0.05, 0]], atol=1e-7)
    assert skin.data.force.shape == (1, 3, 3)


def test_no_contact_reads_exactly_zero() -> None:
    """The reading is zero also at high speed, and just above the surface."""
    engine = engine_of([BOX], 2)
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1101])
    engine.body_lin_vel_w[:, 0] = torch.tensor([3.0, -2.0, 5.0])
    scene, skin = tactile(engine, probe_local_pos=THREE)
    scene.update()
    assert not skin.data.force.any() and not skin.data.torque.any()


def test_the_link_must_be_named() -> None:
    with pytest.raises(sn.ConfigError, match="no selector"):
        sn.KinematicTactileSensorCfg(name="skin")


# Force law ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exponent", "on_link"), [(1.0, False), (1.5, True), (2.0, False)])
def test_oblique_normals_and_velocities_match_the_force_law(exponent: float, on_link: bool) -> None:
    """Approach, slide and twist at once, with both bodies moving, match the float64 formula per env."""
    rng = np.random.default_rng(4)
    envs, normal, p = 8, unit(0.3, -0.5, 0.8), np.array([[0.01, -0.02, 0.03], [0.0, 0.01, 0.02]])
    engine = engine_of([BALL], envs)
    tip, thing = np.zeros((envs, 13)), np.zeros((envs, 13))
    for state in (tip, thing):
        state[:, :3] = rng.uniform(-1.0, 1.0, (envs, 3))
        state[:, 3:7] = rng.normal(size=(envs, 4))
        state[:, 3:7] /= np.linalg.norm(state[:, 3:7], axis=1, keepdims=True)
        state[:, 7:] = rng.normal(size=(envs, 6))
    for env in range(envs):  # the first probe is 2 to 9 mm deep
        place = tip[env, :3] + rotated(tip[env, 3:7], p[0])
        thing[env, :3] = place + (0.05 + 0.01 - rng.uniform(0.002, 0.009)) * unit(*rng.normal(size=3))
    for body, state in enumerate((tip, thing)):
        for name, part in (
            ("body_pos_w", slice(0, 3)), ("body_quat_w", slice(3, 7)), ("body_lin_vel_w", slice(7, 10)),
            ("body_ang_vel_w", slice(10, 13)),
        ):  # fmt: skip
            getattr(engine, name)[:, body] = torch.tensor(state[:, part], dtype=torch.float32)
    numbers = {"k": 800.0, "b": 30.0, "e": exponent, "g": 2.5, "h": 0.7}
    scene, skin = tactile(
        engine, probe_local_pos=p, probe_local_normal=3.0 * normal, normal_stiffness=800.0, normal_damping=30.0,
        normal_exponent=exponent, shear_scalar=2.5, twist_scalar=0.7, on_link=on_link,
    )  # fmt: skip
    scene.update()
    sign = 1.0 if on_link else -1.0
    force, torque = sign * numpy(skin.data.force), sign * numpy(skin.data.torque)
    felt = 0
    for env in range(envs):
        turn = tip[env, 3:7]
        for k in range(len(p)):
            arm = rotated(turn, p[k])
            place = tip[env, :3] + arm
            depth = 0.01 - (np.linalg.norm(place - thing[env, :3]) - 0.05)
            own = tip[env, 7:10] + np.cross(tip[env, 10:], arm)
            other = thing[env, 7:10] + np.cross(thing[env, 10:], place - thing[env, :3])
            expected = np.zeros(3), np.zeros(3)
            if depth > 0.0:
                felt += 1
                v, w = back(turn, own - other), back(turn, tip[env, 10:] - thing[env, 10:])
                expected = law(normal, depth, v, w, p[k], **numbers)
            scale = np.abs(expected[0]).max() + 1e-3
            np.testing.assert_allclose(force[env, k], expected[0], atol=2e-4 * scale)  # depth: 1e-7 m of 2e-3 m
            np.testing.assert_allclose(torque[env, k], expected[1], atol=2e-4 * (np.abs(expected[1]).max() + 1e-3))
    assert felt >= envs


def test_damping_adds_force_and_sliding_adds_shear() -> None:
    """On a plane above the tip an approach adds b s v, and a slide of the tip along +x reads +x."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1])
    scene, skin = tactile(engine, normal_damping=50.0, shear_scalar=3.0)
    for velocity, expected in (
        ((0.0, 0.0, 2.0), (0.0, 0.0, 10.0 + 50.0 * 0.01 * 2.0)),
        ((0.0, 0.0, -2.0), (0.0, 0.0, 10.0 - 50.0 * 0.01 * 2.0)),
        ((0.4, 0.0, 0.0), (3.0 * 0.4, 0.0, 10.0)),
    ):
        engine.body_lin_vel_w[:, 0] = torch.tensor(velocity)
        scene.update()
        np.testing.assert_allclose(numpy(skin.data.force)[0, 0], expected, rtol=1e-5)
    engine.body_lin_vel_w[:] = 0.0
    engine.body_lin_vel_w[:, 1] = torch.tensor([0.4, 0.0, 0.0])  # the box slides instead
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0], (-3.0 * 0.4, 0.0, 10.0), rtol=1e-5)


def test_a_twist_reads_a_torque_about_the_normal() -> None:
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1])
    engine.body_ang_vel_w[:, 0] = torch.tensor([0.0, 0.0, 5.0])
    scene, skin = tactile(engine, twist_scalar=0.2)
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], (0.0, 0.0, 1.0), atol=1e-6)
    engine.body_ang_vel_w[:, 0] = torch.tensor([0.0, 0.0, -5.0])
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], (0.0, 0.0, -1.0), atol=1e-6)


@pytest.mark.parametrize("speed", [-300.0, 1e-5, 300.0])
@pytest.mark.parametrize("surface_normals", [False, True])
def test_friction_bounds_the_torque_of_a_pad_that_twists_on_a_plate(speed: float, surface_normals: bool) -> None:
    """A disc under uniform pressure slips at 2/3 mu F A, and one taxel slips at the value of its own contact circle.

    The pad's taxels lie on rings of equal area; the default `twist_scalar` must not add more than their own share.
    """
    mu, radius, depth, reach = 0.5, 1e-3, 4e-4, 0.02
    rings = reach * np.sqrt((np.arange(40) + 0.5) / 40)
    angles = 2.0 * np.pi * np.arange(24) / 24
    places = np.stack([np.outer(rings, np.cos(angles)), np.outer(rings, np.sin(angles))], -1).reshape(-1, 2)
    places = np.concatenate([np.zeros((1, 2)), places])
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1])
    engine.body_pos_w[:, 0] = torch.tensor([0.0, 0.0, depth - radius])
    engine.body_ang_vel_w[:, 0] = torch.tensor([0.0, 0.0, speed])
    scene, skin = tactile(
        engine, probe_local_pos=np.concatenate([places, np.zeros((len(places), 1))], axis=1), probe_radius=radius,
        probe_local_normal=(0.0, 0.0, 1.0), friction=mu, shear_scalar=1e4, surface_normals=surface_normals,
        probe_radius_noise=1e-12,
    )  # fmt: skip
    scene.update()
    force, torque = numpy(skin.data.force)[0].astype(np.float64), numpy(skin.data.torque)[0].astype(np.float64)
    np.testing.assert_allclose(torque, numpy(skin.ground_truth.torque)[0], atol=1e-9)
    load = abs(force[:, 2].sum())
    assert load == pytest.approx(1000.0 * depth * len(places), rel=1e-3)
    of_disc = 2.0 / 3.0 * mu * load * reach
    of_taxel = 2.0 / 3.0 * mu * (1000.0 * depth) * np.sqrt(depth * (2.0 * radius - depth))
    side = -1.0 if surface_normals else 1.0  # the force on the link resists, the force on the skin drives
    assert torque[0, 2] == pytest.approx(side * np.sign(speed) * min(abs(speed), of_taxel), rel=1e-3)
    lever = side * torque[:, 2].sum()
    if abs(speed) > 1.0:  # all slip
        own = len(places) * of_taxel
        assert lever == pytest.approx(np.sign(speed) * (of_disc * len(places[1:]) / len(places) + own), rel=2e-3)
        assert abs(lever) < 1.1 * of_disc


def test_without_friction_a_twist_has_no_bound() -> None:
    """The law of the contract is `twist_scalar` times the angular velocity, N m s times rad/s, by default 1 N m s."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 0.1])
    engine.body_ang_vel_w[:, 0] = torch.tensor([0.0, 0.0, 300.0])
    scene, skin = tactile(engine)
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], (0.0, 0.0, 300.0), atol=1e-4)


def test_reading_is_in_the_links_axes() -> None:
    """Two bodies moved together read the same, also with the cube rotated onto another face.

    Force and torque have components along all axes that a wrong frame would mix.
    """
    readings, torques = [], []
    places = ((0.0, 0.0, 0.0), (0.005, 0.003, 0.0), (-0.005, 0.001, 0.002))
    level, askew = (1.0, 0.0, 0.0, 0.0), unit(0.2, 0.5, -0.7, 0.4)
    quarter, over = unit(1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 0.0)
    for quat, pos, own in (
        (level, (0.0, 0.0, 0.0), level), (askew, (3.0, -2.0, 1.0), level), (level, (0.0, 0.0, 0.0), quarter),
        (askew, (0.0, 0.0, 0.0), over),
    ):  # fmt: skip
        engine = engine_of([BOX])
        engine.body_quat_w[:, 0] = torch.tensor(np.asarray(quat), dtype=torch.float32)
        turned = Rotation.from_quat(quat, scalar_first=True) * Rotation.from_quat(own, scalar_first=True)
        engine.body_quat_w[:, 1] = torch.tensor(turned.as_quat(scalar_first=True), dtype=torch.float32)
        engine.body_pos_w[:, 0] = torch.tensor(pos)
        engine.body_pos_w[:, 1] = torch.tensor(np.array(pos) + rotated(quat, (0.0, 0.0, 0.1)), dtype=torch.float32)
        engine.body_lin_vel_w[:, 0] = torch.tensor(rotated(quat, (0.3, 0.1, 0.2)), dtype=torch.float32)
        engine.body_ang_vel_w[:, 0] = torch.tensor(rotated(quat, (0.0, 0.0, 5.0)), dtype=torch.float32)
        scene, skin = tactile(engine, probe_local_pos=places, twist_scalar=0.2)
        scene.update()
        readings.append(numpy(skin.data.force)[0])
        torques.append(numpy(skin.data.torque)[0])
    for force, torque in zip(readings[1:], torques[1:], strict=True):
        np.testing.assert_allclose(force, readings[0], atol=2e-3)  # 1000 N/m of 1e-6 m at a distance of 4 m
        np.testing.assert_allclose(torque, torques[0], atol=2e-5)  # at arms of 5 mm
    assert (np.abs(readings[0]).min(axis=0) > 0.05).all() and (np.abs(torques[0]).max(axis=0) > 1e-4).all()


def test_own_link_is_ignored_and_every_other_shape_detected() -> None:
    """The scene includes invisible shapes, shapes without collisions, and shapes of the robot's other links."""
    shell = sn.engines.Shape("sphere", "shell", (0.5,), body="tip")
    for shape, is_felt in (
        (shell, False),
        (sn.engines.Shape("sphere", "ghost", (0.05,), body="thing", is_collision=False, is_visible=False), True),
        (sn.engines.Shape("plane", "ground"), True),
    ):
        engine = engine_of([shape, sn.engines.Shape("sphere", "far", (0.1,), pos=(50.0, 0.0, 0.0))])
        scene, skin = tactile(engine, probe_local_pos=((0.0, 0.0, 0.0),))
        scene.update()
        assert bool(skin.data.force.any()) == is_felt, shape.name
    engine = engine_of([shell, sn.engines.Shape("sphere", "far", (0.1,), pos=(50.0, 0.0, 0.0))])
    scene, skin = tactile(engine, exclude_parent_body=False)
    scene.update()
    assert skin.data.force[0, 0, 2] > 500.0


def test_deepest_shape_determines_the_reading() -> None:
    deep, shallow = (
        sn.engines.Shape("sphere", "deep", (0.1,), pos=(0.0, 0.0, 0.102)),
        sn.engines.Shape("plane", "ground", pos=(0, 0, -0.004)),
    )
    engine = engine_of([shallow, deep])
    scene, skin = tactile(engine)
    scene.update()
    assert float(skin.data.force[0, 0, 2]) == pytest.approx(1000.0 * 0.008, rel=1e-4)


def test_depth_grows_deep_inside() -> None:
    """A probe 0.15 m below the surface of a ball of 0.3 m reads a depth of 0.16 m."""
    engine = engine_of([sn.engines.Shape("sphere", "ball", (0.3,), pos=(0.0, 0.0, 0.15))])
    scene, skin = tactile(engine)
    scene.update()
    assert float(skin.data.force[0, 0, 2]) == pytest.approx(160.0, rel=1e-5)


# Surface normals ------------------------------------------------------------------------------------------------------


def test_surface_normals_give_the_force_on_the_link_along_the_touched_surface() -> None:
    """A ball beside the probe pushes it away, for any probe normal; every part resists the motion."""
    engine = engine_of([BALL])
    out = unit(-1.0, 2.0, 0.5)  # from the ball to the probe
    engine.body_pos_w[:, 1] = torch.tensor(-0.055 * out, dtype=torch.float32)
    v, w = np.array([0.3, -0.2, 0.1]), np.array([1.0, 2.0, 3.0])
    engine.body_lin_vel_w[:, 0] = torch.tensor(v, dtype=torch.float32)
    engine.body_ang_vel_w[:, 0] = torch.tensor(w, dtype=torch.float32)
    numbers = {"normal_stiffness": 500.0, "normal_damping": 20.0, "shear_scalar": 4.0, "twist_scalar": 0.3}
    scene, skin = tactile(engine, surface_normals=True, **numbers)
    scene.update()
    depth, u = 0.005, -v
    u_n = (u @ out) * out
    expected = 500.0 * depth * out + 20.0 * depth * u_n + 4.0 * (u - u_n)
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], 0.3 * (-w @ out) * out, rtol=1e-3, atol=1e-4)
    assert numpy(skin.data.force)[0, 0] @ v < 0.0  # energy is removed from the slide


def test_legacy_shear_gives_the_numbers_of_genesis() -> None:
    """F = k s m + b s (u . m) m - g u_t and T = p x F - h (w . m) m; u and w are surface velocity less probe
    velocity.
    """
    engine = engine_of([BALL])
    out, p = unit(-1.0, 2.0, 0.5), np.array([0.01, -0.02, 0.005])
    engine.body_pos_w[:, 1] = torch.tensor(p - 0.055 * out, dtype=torch.float32)
    engine.body_lin_vel_w[:, 1] = torch.tensor([0.3, -0.2, 0.1])
    engine.body_ang_vel_w[:, 1] = torch.tensor([1.0, 2.0, 3.0])
    numbers = {"normal_stiffness": 500.0, "normal_damping": 20.0, "shear_scalar": 4.0, "twist_scalar": 0.3}
    scene, skin = tactile(engine, surface_normals=True, shear_along_motion=True, probe_local_pos=p[None], **numbers)
    scene.update()
    w = np.array([1.0, 2.0, 3.0])
    u = np.array([0.3, -0.2, 0.1]) + np.cross(w, 0.055 * out)
    u_n = (u @ out) * out
    force = 500.0 * 0.005 * out + 20.0 * 0.005 * u_n - 4.0 * (u - u_n)
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0], force, rtol=1e-3, atol=1e-3)
    torque = np.cross(p, force) - 0.3 * (w @ out) * out
    np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], torque, rtol=1e-3, atol=1e-4)


# Hertz and springs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exponent", "wanted"), [(1.0, 1.0), (1.5, 1.5)])
def test_force_over_depth_has_the_configured_exponent(exponent: float, wanted: float) -> None:
    """For a sphere pressed against one taxel at ten depths, one per env, the log-log slope is correct within 1 %."""
    depths = np.geomspace(5e-4, 8e-3, 10)
    engine = engine_of([BALL], len(depths))
    engine.body_pos_w[:, 1, 2] = torch.tensor(0.06 - depths, dtype=torch.float32)
    scene, skin = tactile(engine, normal_exponent=exponent)
    scene.update()
    force = numpy(skin.data.force)[:, 0, 2]
    slope = np.polyfit(np.log(depths), np.log(force), 1)[0]
    assert slope == pytest.approx(wanted, rel=0.01)


# Friction and anchors -------------------------------------------------------------------------------------------------


def test_shear_stays_within_the_friction_cone() -> None:
    """For random depths and velocities in 512 envs, |shear| <= mu F_n always, with equality if viscosity exceeds it."""
    generator = torch.Generator().manual_seed(5)
    engine = engine_of([BOX], 512)
    engine.body_pos_w[:, 1, 2] = 0.1 + 0.012 * torch.rand(512, generator=generator) - 0.002
    engine.body_lin_vel_w[:, 0] = torch.randn(512, 3, generator=generator)
    scene, skin = tactile(engine, friction=0.5, shear_scalar=2.0, normal_damping=400.0)
    scene.update()
    force = skin.data.force[:, 0].double()
    shear, normal = force[:, :2].norm(dim=1), force[:, 2]
    assert (normal >= 0.0).all()
    assert (shear <= 0.5 * normal * (1.0 + 1e-6)).all()
    at_bound = (shear > 0.5 * normal * (1.0 - 1e-5)) & (normal > 0.0)
    assert at_bound.sum() > 50 and (~at_bound & (normal > 0.0)).sum() > 10
    assert ((normal == 0.0) & (engine.body_lin_vel_w[:, 0, 2] < -2.5)).any()  # pulled off, without adhesion


def test_slip_starts_at_mu_times_the_normal_force() -> None:
    """An anchored taxel is dragged: the shear grows by k_t times the distance up to mu N, then stays constant."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine, friction=0.4, shear_stiffness=2000.0, shear_scalar=0.0)
    ways, shears = np.linspace(0.0, 0.005, 51), []
    for way in ways:
        engine.body_pos_w[:, 0, 0] = float(way)
        scene.update()
        shears.append(float(skin.data.force[0, 0, 0]))
    expected = np.minimum(2000.0 * ways, 0.4 * 10.0)
    np.testing.assert_allclose(shears, expected, atol=2e-3)
    engine.body_pos_w[:, 0, 0] -= 0.0005  # back: it sticks at once at the slipped position
    scene.update()
    assert float(skin.data.force[0, 0, 0]) == pytest.approx(4.0 - 1.0, abs=2e-3)


def test_an_anchor_moves_with_the_touched_shape() -> None:
    """If both bodies move together there is no shear; a rotation of the shape alone causes shear at a distance."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine, shear_stiffness=1000.0, shear_scalar=0.0)
    scene.update()
    angle = 0.3
    engine.body_quat_w[:] = torch.tensor([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)], dtype=torch.float32)
    engine.body_pos_w[:, :, 0] += 0.7
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0], (0.0, 0.0, 10.0), atol=2e-4)
    engine.body_pos_w[:, 1, 1] += 0.001  # now the box alone
    scene.update()
    expected = back(numpy(engine.body_quat_w)[0, 0], (0.0, -1.0, 0.0))  # 1000 N/m of -1 mm
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0, :2], expected[:2], atol=2e-3)


def test_an_anchor_is_dropped_when_contact_is_lost_and_at_a_reset() -> None:
    engine = engine_of([BOX], 2)
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine, shear_stiffness=1000.0, shear_scalar=0.0)
    scene.update()
    engine.body_pos_w[:, 0, 0] += 0.002
    scene.update()
    assert skin.data.force[:, 0, 0].tolist() == pytest.approx([2.0, 2.0], abs=1e-3)
    before = engine.body_pos_w.clone()
    scene.reset([1])
    engine.body_pos_w[:] = before
    scene.update()
    assert skin.data.force[:, 0, 0].tolist() == pytest.approx([2.0, 0.0], abs=1e-3)
    engine.body_pos_w[:, 1, 2] += 0.05
    scene.update()
    engine.body_pos_w[:, 1, 2] -= 0.05
    scene.update()
    assert skin.data.force[:, 0, 0].tolist() == pytest.approx([0.0, 0.0], abs=1e-3)


def test_anchor_persists_while_the_deepest_shape_of_a_body_changes() -> None:
    """For two blocks moved within a body the shear covers the whole distance at each step; another body's does not."""
    half = np.sqrt(0.5)
    left = sn.engines.Shape(
        "box", "left", (0.1, 0.05, 0.1), body="thing", pos=(-0.05, 0.0, 0.0), quat=(half, 0.0, 0.0, half)
    )
    right = sn.engines.Shape("box", "right", (0.05, 0.1, 0.1), body="thing", pos=(0.05, 0.0, 0.0001))
    for body, is_one in (("thing", True), ("other", False)):
        shapes = [left, replace(right, body=body)]
        engine = sn.TensorEngine(1, 0.001, bodies=("tip", "thing", "other"), shapes=shapes)
        engine.body_pos_w[:, 1:, 2] = 0.1
        engine.body_pos_w[:, 0, 0] = -0.002
        scene, skin = tactile(engine, shear_stiffness=500.0, shear_scalar=0.0, friction=2.0)
        scene.update()
        ways = (-0.001, 0.001, 0.003, -0.003)
        shears = []
        for way in ways:
            engine.body_pos_w[:, 0, 0] = way
            scene.update()
            shears.append(float(skin.data.force[0, 0, 0]))
        expected = [500.0 * (way + 0.002) for way in ways]
        if not is_one:  # a new anchor where a shape of the other body becomes the deepest
            expected[1:] = [0.0, 500.0 * 0.002, 0.0]
        assert shears == pytest.approx(expected, abs=1e-3)


def test_the_friction_cone_holds_for_anchors_along_random_drags() -> None:
    generator = torch.Generator().manual_seed(6)
    engine = engine_of([BALL], 64)
    scene, skin = tactile(
        engine, friction=0.3, shear_stiffness=3000.0, shear_scalar=1.0, probe_local_pos=THREE, probe_radius_noise=1e-3
    )
    place = torch.tensor([0.0, 0.0, 0.055]).repeat(64, 1)
    for _ in range(60):
        step = 1e-3 * torch.randn(64, 3, generator=generator)
        place = place + step
        place[:, 2].clamp_(0.05, 0.062)
        engine.body_pos_w[:, 1] = place
        engine.body_lin_vel_w[:, 1] = step / 1e-3
        scene.update()
        for data in (skin.data, skin.ground_truth):
            shear, normal = data.force[..., :2].double().norm(dim=-1), data.force[..., 2].double()
            assert (shear <= 0.3 * normal + 1e-6 * (1.0 + normal)).all()


# Imperfections --------------------------------------------------------------------------------------------------------


def test_radius_noise_is_uniform_and_in_the_measured_branch_only() -> None:
    """Deep in a box the measured depth has U(-1, 1) noise with correct mean, variance and range per probe and
    sample.
    """
    engine = engine_of([BOX], 64)
    engine.body_pos_w[:, 1, 2] = 0.1
    grid = np.zeros((4, 4, 3))
    scene, skin = tactile(engine, probe_local_pos=grid, probe_radius_noise=0.002, normal_damping=0.0)
    clean_scene, clean = tactile(engine, probe_local_pos=grid, normal_damping=0.0)
    draws: list[Array] = []
    first = torch.zeros(0)
    for _ in range(20):
        scene.update()
        clean_scene.update()
        assert torch.equal(skin.ground_truth.force, clean.data.force)
        first = skin.read().force[..., 2] if not draws else first
        draws.append((numpy(skin.data.force) - numpy(skin.ground_truth.force))[..., 2] / 1000.0)
    values = np.stack(draws).ravel()
    n, a = len(values), 0.002
    assert np.abs(values).max() <= a * (1.0 + 1e-5)
    assert abs(values.mean()) < 5.0 * a / np.sqrt(3.0 * n)
    assert values.var() == pytest.approx(a**2 / 3.0, rel=5.0 * np.sqrt(4.0 / 5.0 / n))  # var of U^2: 4/45 a^4
    assert len(np.unique(values.round(9))) > 0.9 * n
    fresh = engine_of([BOX], 64)
    fresh.body_pos_w[:, 1, 2] = 0.1
    again_scene, again = tactile(fresh, probe_local_pos=grid, probe_radius_noise=0.002, normal_damping=0.0)
    again_scene.update()
    np.testing.assert_array_equal(numpy(again.data.force)[..., 2], numpy(first))


def test_probe_without_radius_keeps_its_place_and_reads_zero() -> None:
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1, 2] = 0.05
    scene, skin = tactile(
        engine, probe_local_pos=THREE, probe_radius=(0.01, 0.0, 0.01), probe_radius_noise=0.003,
        noise={"force": 0.1, "torque": 0.1},
    )  # fmt: skip
    scene.update()
    assert not skin.data.torque[0, 1].any() and skin.data.torque[0, [0, 2]].all()
    for data in (skin.data, skin.ground_truth):
        assert (data.force[0, :, 2] != 0.0).tolist() == [True, False, True]


# Settings -------------------------------------------------------------------------------------------------------------


def test_history_is_a_leading_axis_of_force_and_torque() -> None:
    """The shape is `[env, history, probe, 3]`, with 0 the newest; the same holds for read()."""
    engine = engine_of([BOX], 2)
    scene, skin = tactile(engine, probe_local_pos=THREE, history_length=3)
    for depth in (0.001, 0.002, 0.004):
        engine.body_pos_w[:, 1, 2] = 0.11 - depth
        scene.update()
    assert skin.data.force.shape == (2, 3, 3, 3) and skin.data.torque.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(numpy(skin.data.force)[0, :, 1, 2], [4.0, 2.0, 1.0], atol=1e-4)
    assert skin.read([1]).force.shape == (1, 3, 3, 3)
    assert skin.ground_truth.force.shape == (2, 3, 3)


def test_coefficients_can_be_set_per_env_at_run_time() -> None:
    engine = engine_of([BOX], 3)
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine)
    for _ in range(3):
        scene.update()
    skin.set("normal_stiffness", [200.0, 300.0], env_ids=[0, 2])
    scene.update()
    assert skin.data.force[:, 0, 2].tolist() == pytest.approx([2.0, 10.0, 3.0], rel=1e-5)
    state = scene.state()
    skin.set("normal_stiffness", 50.0)
    scene.update()
    assert skin.data.force[:, 0, 2].tolist() == pytest.approx([0.5] * 3, rel=1e-5)
    scene.load_state(state)
    scene.update()
    assert skin.data.force[:, 0, 2].tolist() == pytest.approx([2.0, 10.0, 3.0], rel=1e-5)
    with pytest.raises(sn.ConfigError, match="exponent"):
        skin.set("normal_exponent", 0.5)


def test_only_coefficients_given_in_the_config_can_be_set() -> None:
    """No setting is ignored silently: without anchors, or without a bound, `set` states the fix."""
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine, shear_scalar=0.0)
    for knob in ("shear_stiffness", "friction"):
        with pytest.raises(sn.ConfigError, match=rf"scene.reconfigure\('skin', {knob}=...\)"):
            skin.set(knob, 0.5)
    scene, skin = tactile(engine, shear_scalar=0.0, shear_stiffness=0.0)
    skin.set("shear_stiffness", 500.0)
    scene.update()
    engine.body_pos_w[:, 0, 0] += 0.002
    scene.update()
    assert skin.data.force[0, 0].tolist() == pytest.approx([1.0, 0.0, 10.0], abs=1e-3)


def test_a_grid_and_several_links_keep_their_axes() -> None:
    engine = engine_of([sn.engines.Shape("plane", "ground")], 2)
    engine.body_pos_w[:, 1, 2] = 0.005
    scene, skin = tactile(engine, link_name=None, link_names=("tip", "thing"), probe_local_pos=np.zeros((2, 5, 3)))
    scene.update()
    assert skin.data.force.shape == (2, 2, 2, 5, 3)
    np.testing.assert_allclose(numpy(skin.data.force)[0, :, 0, 0, 2], [10.0, 5.0], rtol=1e-5)
    assert skin.specs[0].axes == ("mount", "row", "column", "xyz")


def test_each_probe_can_have_its_own_normal() -> None:
    normals = ((0.0, 0.0, 1.0), (2.0, 0.0, 0.0), (0.0, 1.0, 1.0))
    engine = engine_of([BOX])
    engine.body_pos_w[:, 1, 2] = 0.1
    scene, skin = tactile(engine, probe_local_pos=THREE, probe_local_normal=normals)
    scene.update()
    half = 10.0 * np.sqrt(0.5)
    np.testing.assert_allclose(numpy(skin.data.force)[0], [(0, 0, 10), (10, 0, 0), (0, half, half)], atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"probe_local_normal": (0.0, 0.0, 0.0)}, "not zero"),
        ({"probe_local_pos": THREE, "probe_local_normal": ((0, 0, 1), (0, 0, 0), (0, 0, 1))}, "Normal 1 has length 0"),
        ({"probe_local_pos": THREE, "probe_local_normal": ((0, 0, 1), (0, 0, 1))}, "one for each of 3 probes"),
        ({"normal_exponent": 0.9}, ">= 1"),
        ({"normal_stiffness": -1.0}, "normal_stiffness"),
        ({"normal_damping": -1.0}, "normal_damping"),
        ({"shear_scalar": float("nan")}, "shear_scalar"),
        ({"twist_scalar": -0.1}, "twist_scalar"),
        ({"friction": -0.1}, "friction"),
        ({"shear_along_motion": True}, "without surface_normals"),
        ({"shear_along_motion": True, "surface_normals": True, "friction": 0.5}, "shear_along_motion: .*friction"),
        ({"solver_force": True, "friction": 0.5}, "solver_force: got True, expected False with friction"),
        ({"solver_force": True, "link_name": None, "site": "tip"}, "solver_force: .*a body or a geom as mount"),
        ({"shear_stiffness": float("inf")}, "shear_stiffness"),
        ({"probe_radius": -0.01}, "radii"),
        ({"probe_radius": 0.0}, "at least one radius above 0"),
        ({"probe_radius": (0.01, 0.02)}, "one for each probe; not 2"),
        ({"probe_radius_noise": -1e-3}, "probe_radius_noise"),
        ({"probe_local_pos": ()}, "at least one probe"),
        ({"probe_local_pos": ((0.0, 0.0, float("inf")),)}, "finite"),
    ],
)  # fmt: skip
def test_bad_input_error_names_field_and_fix(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(sn.ConfigError, match=words) as caught:
        sn.KinematicTactileSensorCfg(name="skin", **{"link_name": "tip", **fields})
    assert "KinematicTactileSensorCfg('skin')" in str(caught.value)


def test_configs_round_trip_through_toml() -> None:
    cfg = sn.KinematicTactileSensorCfg(
        name="skin",
        link_name="tip",
        probe_local_pos=np.zeros((2, 3, 3)),
        probe_local_normal=(0.0, 1.0, 0.0),
        friction=0.5,
    )
    assert sn.KinematicTactileSensorCfg.from_toml(cfg.to_toml()) == cfg
    assert sn.KinematicTactileSensorCfg.from_json(cfg.to_json()) == cfg


def test_shape_without_pose_invalidates_the_sample() -> None:
    engine = engine_of([BALL], 2)
    scene, skin = tactile(engine)
    scene.update()
    assert skin.valid.tolist() == [True, True]
    engine.body_pos_w[1, 1] = float("nan")
    with pytest.warns(UserWarning, match="thing"):
        scene.update()
        valid = skin.valid.tolist()
        scene.update()
    assert valid == [True, False]


def test_contract_holds() -> None:
    def make(num_envs: int) -> sn.TensorEngine:
        plain = tumbling_engine(num_envs)
        ground = sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.5))
        return sn.TensorEngine(
            num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
            shapes=[ground], provides=("pose", "velocity", "acceleration", "gravity"),
        )  # fmt: skip

    for extra in ({"probe_radius_noise": 0.05, "shear_stiffness": 10.0, "friction": 0.5}, {"history_length": 3}):
        check_sensor(sn.KinematicTactileSensorCfg.example().replace(**extra), make)


# In MuJoCo ------------------------------------------------------------------------------------------------------------

PRESS = """
<mujoco>
  <option timestep="0.001" gravity="0 0 0"/>
  <default><geom solref="-4000 -100" solimp="0.9 0.9 0.001" friction="1 0.005 0.0001"/></default>
  <worldbody>
    <body name="pad" pos="0 0 0.02"><geom name="pad" type="box" size="0.05 0.05 0.02"/></body>
    <body name="block" pos="0 0 0.06">
      <joint name="lift" type="slide" axis="0 0 1"/>
      <joint name="tilt" type="hinge" axis="0 1 0"/>
      <geom name="block" type="box" size="0.0312 0.0212 0.02" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor name="press" joint="lift"/><motor name="lean" joint="tilt"/></actuator>
</mujoco>
"""


def test_pad_taxels_sum_to_the_engines_contact_force_and_moment() -> None:
    """Calibrated with a press of 10 N, the sensor is within 5 % for presses of 5 to 40 N and for tilted presses.

    The sum is compared with the engine's contact force, and the taxels' moment with that of the load.
    """
    xs, ys = np.linspace(-0.04, 0.04, 33), np.linspace(-0.03, 0.03, 25)
    grid = np.stack([*np.meshgrid(xs, ys, indexing="ij"), np.full((33, 25), 0.019)], axis=-1)  # touching its top
    presses = [(-10.0, 0.0), (-5.0, 0.0), (-20.0, 0.0), (-40.0, 0.0), (-20.0, 0.06), (-40.0, -0.2)]
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(PRESS), num_envs=len(presses))
    skin_cfg = sn.KinematicTactileSensorCfg(
        name="skin", link_name="pad", probe_local_pos=grid, probe_radius=1e-3, normal_damping=0.0, shear_scalar=0.0
    )
    contact = sn.ContactForceCfg(name="contact", body="pad")
    scene = sn.Scene(engine, [skin_cfg, contact])
    ctrl = torch.tensor(presses)
    for _ in range(20):
        scene.step(ctrl, substeps=100)
    force = scene["skin"].data.force[..., 2].double().numpy()
    wanted = scene["contact"].data.double().norm(dim=-1).numpy()
    np.testing.assert_allclose(wanted, -ctrl[:, 0].numpy(), rtol=1e-3)  # at rest the contact supports the press
    total = force.sum(axis=(1, 2))
    calibration = wanted[0] / total[0]
    np.testing.assert_allclose(total * calibration, wanted, rtol=0.05)
    lever = (force * grid[..., 0]).sum(axis=(1, 2)) * calibration
    # the solver supports a block on its four corners, the pad everywhere: mean x^2 is a third of the corners'
    np.testing.assert_allclose(3.0 * lever[4:], ctrl[4:, 1].numpy(), rtol=0.05)


HOLD = """
<mujoco>
  <option timestep="0.001" gravity="0 0 0"/>
  <worldbody>
    <body name="pad" pos="0.3 0 0.02" euler="0 0 30">
      <geom name="skin" type="box" size="0.05 0.05 0.01" pos="0 0 .01"/>
    </body>
    <body name="block" pos="0.3 0 0.06">
      <joint name="along" type="slide" axis="1 0 0"/>
      <joint name="lift" type="slide" axis="0 0 1"/>
      <joint name="tilt" type="hinge" axis="0 1 0"/>
      <geom name="block" type="box" size="0.0312 0.0212 0.02" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="drag" joint="along"/><motor name="press" joint="lift"/><motor name="lean" joint="tilt"/>
  </actuator>
</mujoco>
"""


def test_taxels_share_the_solvers_force_whatever_the_mass() -> None:
    """Blocks of 0.05 to 1 kg at rest under the same load: force and moment follow from the balance of the block.

    The last block is lifted off. MuJoCo's contact is stiffer for a heavier block, so the forces of the model differ.
    """
    xs, ys = np.linspace(-0.04, 0.04, 17), np.linspace(-0.03, 0.03, 13)
    grid = np.stack([*np.meshgrid(xs, ys, indexing="ij"), np.full((17, 13), 0.02)], axis=-1)
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(HOLD), num_envs=5)
    mass = np.array([0.05, 0.2, 0.8, 1.0, 1.0])
    for field in ("body_mass", "body_inertia"):
        values = engine.batch.expand(field)
        values[:, 2] = (values[:, 2].T * mass).T
    engine.batch.set_const()
    skin = sn.KinematicTactileSensorCfg(
        name="skin", link_name="pad", probe_local_pos=grid, probe_radius=2e-3, solver_force=True
    )
    on_geom = skin.replace(name="geom", link_name=None, geom="skin", on_link=True, probe_local_pos=grid - [0, 0, 0.01])
    cfgs = [skin, on_geom, skin.replace(name="noisy", probe_radius_noise=1e-3)]
    cfgs.append(skin.replace(name="model", solver_force=False))
    scene = sn.Scene(engine, [*cfgs, sn.ContactForceCfg(name="contact", body="pad")])
    ctrl = torch.tensor([[1.0, -4.0, 0.0]] * 3 + [[1.0, -4.0, 0.03], [0.0, 4.0, 0.0]])
    for _ in range(20):
        scene.step(ctrl, substeps=100)
    force, torque = (numpy(each).reshape(5, -1, 3) for each in (scene["skin"].data.force, scene["skin"].data.torque))
    total = Rotation.from_euler("z", 30, degrees=True).apply(force.sum(axis=1))
    np.testing.assert_allclose(total[:4], [[-1.0, 0.0, 4.0]] * 4, atol=2e-3)  # of the skin on the block
    np.testing.assert_allclose(force.sum(axis=1), -numpy(scene["contact"].data), atol=1e-6, rtol=1e-6)
    hinge = np.zeros((4, 3))  # its place from the pad's origin
    hinge[:, [0, 2]] = engine.qpos[:4, :2].numpy()
    hinge[:, 2] += 0.04
    moment = Rotation.from_euler("z", 30, degrees=True).apply(torque.sum(axis=1)[:4]) - np.cross(hinge, total[:4])
    np.testing.assert_allclose(moment[:, 1], -ctrl[:4, 2].numpy(), atol=2e-4)  # about the hinge, against the lean
    assert not force[4].any() and not torque[4].any()
    pressed = force[:4] @ [0.0, 0.0, 1.0] > 0.0
    assert (pressed.sum(axis=1) > 100).all() and (
        pressed == (numpy(scene["model"].data.force)[:4, ..., 2] > 0).reshape(4, -1)
    ).all()
    modelled = numpy(scene["model"].data.force).sum(axis=(1, 2))[:3, 2]
    assert modelled[0] > 1.1 * modelled[2]  # the model alone reads the mass
    np.testing.assert_allclose(numpy(scene["geom"].data.force).reshape(5, -1, 3), -force, atol=1e-6)
    noisy = numpy(scene["noisy"].data.force).reshape(5, -1, 3)
    assert np.abs(noisy - force).max() > 1e-4
    np.testing.assert_allclose(noisy.sum(axis=1), force.sum(axis=1), atol=1e-5)


def test_the_solvers_force_is_that_of_the_target() -> None:
    """Two cubes rest on a pad: the taxels read the weight of the selected one, or of both."""
    cubes = [f"<body name='{name}' pos='{x} 0 .03'><freejoint/><geom name='{name}_geom' type='box' size='.02 .02 .02'"
             f" mass='{mass}'/></body>" for name, x, mass in (("light", -0.03, 0.1), ("heavy", 0.03, 0.3))]  # fmt: skip
    xml = f"<mujoco><worldbody><body name='pad'><geom type='box' size='.06 .04 .01'/></body>{''.join(cubes)}"
    engine = sn.MujocoEngine(f"{xml}</worldbody></mujoco>")
    grid = np.stack(
        [*np.meshgrid(np.linspace(-0.05, 0.05, 21), np.linspace(-0.02, 0.02, 9)), np.full((9, 21), 0.01)], -1
    )
    both = sn.KinematicTactileSensorCfg(
        name="both", body="pad", probe_local_pos=grid, probe_radius=1e-3, solver_force=True
    )
    cfgs = [both, *(both.replace(name=each, targets=each) for each in ("light", "heavy_geom"))]
    scene = sn.Scene(engine, cfgs)
    scene.step(substeps=1000)
    weights = [float(scene[cfg].data.force.sum(dim=(1, 2))[0, 2]) for cfg in cfgs]
    np.testing.assert_allclose(weights, np.array([-0.4, -0.1, -0.3]) * -9.81, rtol=1e-3)
    with pytest.raises(sn.errors.ConfigError, match="one body or geom with solver_force"):
        sn.Scene(engine, [both.replace(targets=".*")])
    with pytest.raises(sn.errors.ConfigError, match="False with labels or exclude"):
        both.replace(labels="cup")


def test_contract_holds_for_the_solvers_force() -> None:
    def held(num_envs: int) -> sn.MujocoEngine:
        engine = sn.MujocoEngine(mujoco.MjSpec.from_string(HOLD), num_envs=num_envs)
        engine.ctrl[:] = torch.tensor([1.0, -4.0, 0.02])
        return engine

    cfg = sn.KinematicTactileSensorCfg(link_name="pad", probe_local_pos=((0.0, 0.0, 0.02), (0.02, 0.0, 0.02)),
                                       solver_force=True)  # fmt: skip
    check_sensor(cfg, held)


BALL_PRESS = """
<mujoco>
  <option timestep="0.001" gravity="0 0 0"/>
  <default><geom solref="-8000 -200" solimp="0.9 0.9 0.001"/></default>
  <worldbody>
    <body name="pad"><geom name="pad" type="box" size="0.05 0.05 0.02" pos="0 0 -0.02"/></body>
    <body name="ball" pos="0 0 0.03">
      <joint name="along" type="slide" axis="1 0 0"/>
      <joint name="lift" type="slide" axis="0 0 1"/>
      <geom name="ball" type="sphere" size="0.03" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor name="press" joint="lift"/></actuator>
</mujoco>
"""


def test_a_pressed_sphere_reads_the_engines_contact_force() -> None:
    """After calibration at 10 N, a fine skin is within 5 % at that load everywhere, and a contact-sized taxel at any
    load.

    The solver's force is linear in the depth. So is that of one spring, but not that of many springs under a sphere.
    """
    loads, places = [10.0, 10.0, 10.0, 5.0, 7.0, 14.0, 20.0], [0.0, 0.0033, 0.0101, 0.0, 0.0, 0.0, 0.0]
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(BALL_PRESS), num_envs=len(loads))
    engine.qpos[:, 0] = torch.tensor(places)
    cfgs: list[sn.SensorCfg[Any]] = [sn.ContactForceCfg(name="contact", body="pad")]
    for name, spacing in (("fine", 1e-3), ("coarse", 5e-3)):
        side = spacing * np.arange(-3.0 if name == "coarse" else -15.0, 4.0 if name == "coarse" else 16.0)
        grid = np.stack([*np.meshgrid(side, side, indexing="ij"), np.full((side.size, side.size), -1e-3)], axis=-1)
        cfgs.append(
            sn.KinematicTactileSensorCfg(
                name=name, link_name="pad", probe_local_pos=grid, probe_radius=1e-3, normal_damping=0.0
            )
        )
    scene = sn.Scene(engine, cfgs)
    for _ in range(20):
        scene.step(-torch.tensor(loads)[:, None], substeps=100)
    wanted = numpy(scene["contact"].data).reshape(len(loads), 3)
    wanted = np.linalg.norm(wanted, axis=1)
    np.testing.assert_allclose(wanted, loads, rtol=1e-3)
    for name, rows in (("fine", slice(0, 3)), ("coarse", [0, 3, 4, 5, 6])):
        force = numpy(scene[name].data.force)[..., 2]
        assert np.count_nonzero(force[0]) == (1 if name == "coarse" else 21)
        total = force.sum(axis=(1, 2))
        np.testing.assert_allclose((total * wanted[0] / total[0])[rows], wanted[rows], rtol=0.05)


def test_a_sphere_on_a_bed_of_springs_makes_the_force_of_its_indentation() -> None:
    """Winkler's foundation: sum k (d - r^2 / 2 R) over the taxels is k n pi R d^2 for n taxels per area."""
    spacing, depth, radius = 2.5e-4, 2e-4, 0.05
    side = np.arange(-0.006, 0.006, spacing)
    grid = np.stack([*np.meshgrid(side, side), np.zeros((len(side), len(side)))], axis=-1)
    engine = engine_of([sn.engines.Shape("sphere", "ball", (radius,), body="thing")])
    engine.body_pos_w[:, 1, 2] = radius - depth
    scene, skin = tactile(engine, probe_local_pos=grid, probe_radius=1e-7)
    scene.update()
    total = float(skin.data.force[..., 2].double().sum())
    assert total == pytest.approx(1000.0 * np.pi * radius * depth**2 / spacing**2, rel=0.01)
