"""The proximity taxel: surface sums against float64 and closed forms, its law, and its requirements on a scene."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.geometry.samples import surface_area
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
THREE = ((0.0, 0.0, 0.0), (0.005, 0.0, 0.0), (-0.005, 0.002, 0.003))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def matrix(quat: Any) -> Array:
    """Return the rotation matrix of a quaternion (w, x, y, z)."""
    w, x, y, z = np.asarray(quat, float)
    out: Array = np.eye(3) + 2.0 * np.array(
        [
            [-y * y - z * z, x * y - w * z, x * z + w * y],
            [x * y + w * z, -x * x - z * z, y * z - w * x],
            [x * z - w * y, y * z + w * x, -x * x - y * y],
        ]
    )
    return out


def unit(*values: float) -> Array:
    out: Array = np.array(values) / np.linalg.norm(values)
    return out


def engine_of(shapes: Any, envs: int = 1, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, 0.001, **{"bodies": ("tip", "thing"), "shapes": shapes, **kwargs})


def taxels(engine: sn.engines.Engine, **cfg: Any) -> tuple[sn.Scene, sn.ProximityTaxel]:
    scene = sn.Scene(engine, [sn.ProximityTaxelCfg(name="skin", **{"link_name": "tip", **cfg})], seed=2)
    return scene, scene["skin"]  # type: ignore[return-value]


BOX = sn.engines.Shape("box", "block", (0.05, 0.04, 0.03), body="thing")
BALL = sn.engines.Shape("sphere", "ball", (0.05,), body="thing")
FLOOR = sn.engines.Shape("plane", "floor")


def over_plane(radius: Any, height: Any) -> Any:
    """Return the integral of R - r over a plane: with the area 2 pi r dr from r = |h| to R."""
    h, r = np.minimum(np.abs(height), radius), radius
    return 2.0 * np.pi * ((r * r**2 / 2.0 - r**3 / 3.0) - (r * h**2 / 2.0 - h**3 / 3.0))


def over_ball(reach: float, radius: float, away: Any) -> Any:
    """Return the integral of R - r over a sphere with its centre at distance c, outside: the area is 2 pi a / c r dr.

    By the law of cosines r^2 = a^2 + c^2 - 2 a c cos(theta), so that r dr = a c sin(theta) dtheta.
    """
    c = np.asarray(away, float)
    near = np.minimum(np.abs(c - radius), reach)
    inner = (reach * reach**2 / 2.0 - reach**3 / 3.0) - (reach * near**2 / 2.0 - near**3 / 3.0)
    return 2.0 * np.pi * radius / c * inner


# The sums -------------------------------------------------------------------------------------------------------------


def random_state(rng: np.random.Generator, envs: int, bodies: int, reach: float) -> Array:
    """Return pos, quat, lin, ang `[env, body, 13]`."""
    state = rng.normal(size=(envs, bodies, 13))
    state[..., :3] = rng.uniform(-reach, reach, (envs, bodies, 3))
    state[..., 3:7] /= np.linalg.norm(state[..., 3:7], axis=-1, keepdims=True)
    return state


PARTS = {"body_pos_w": slice(0, 3), "body_quat_w": slice(3, 7), "body_lin_vel_w": slice(7, 10),
         "body_ang_vel_w": slice(10, 13)}  # fmt: skip


def written(engine: sn.TensorEngine, state: Array) -> Array:
    """Write the state of all bodies, and return it as the engine stores it, in float32."""
    for name, part in PARTS.items():
        getattr(engine, name)[:] = torch.tensor(state[..., part], dtype=torch.float32)
    return np.concatenate([numpy(getattr(engine, name)) for name in PARTS], axis=-1)


def reference(
    skin: sn.ProximityTaxel, engine: sn.TensorEngine, state: Array, env: int, probe: int, own: int = 0
) -> tuple[Array, Array]:
    """Evaluate the formula, point by point, in the world and in float64: force and torque in the link's frame."""
    cfg, names = skin.cfg, engine.names("body")
    pos, turn = state[env, own, :3], matrix(state[env, own, 3:7])
    lin, ang = state[env, own, 7:10], state[env, own, 10:]
    local, radius = cfg.places[probe], cfg.radii[probe]
    normals = np.broadcast_to(np.array(cfg.probe_local_normal, float).reshape(-1, 3), (cfg.num_probes, 3))
    a = turn @ unit(*normals[probe])
    p = pos + turn @ local
    near, slide, spin = 0.0, np.zeros(3), 0.0
    for shape in engine.shapes():
        if shape.row == own or shape.name not in skin.sample_points:
            continue
        cloud = skin.sample_points[shape.name]
        body = np.zeros(13) if shape.is_static else state[env, shape.row]
        turned = np.eye(3) if shape.is_static else matrix(body[3:7])
        o = cloud.points @ turned.T + body[:3]
        weight = cloud.areas * np.maximum(0.0, radius - np.linalg.norm(p - o, axis=1))
        # The probe's velocity at the point's position: that of the link's material there.
        v = (lin + np.cross(ang, o - pos)) - (body[7:10] + np.cross(body[10:], o - body[:3]))
        near += weight.sum()
        slide += weight @ (v - np.outer(v @ a, a))
        spin += weight.sum() * ((ang - body[10:]) @ a)
    assert names[own] == "tip"
    if near == 0.0:
        return np.zeros(3), np.zeros(3)
    area = (
        sum(each.area for each in skin.sample_points.values())
        if cfg.reference_area == "tracked"
        else cfg.reference_area
    )
    density = cfg.density_scalar / area
    force = turn.T @ (cfg.stiffness * density * near * a + cfg.shear_coupling * density * slide)
    return force, np.cross(local, force) + cfg.twist_scalar * spin / near * (turn.T @ a)


@pytest.mark.parametrize("radius", [0.15, (0.05, 0.15, 0.3, 0.0)])
def test_readings_are_the_formula_summed_point_by_point(radius: Any) -> None:
    """Random scenes of all kinds of shapes, poses, velocities and coefficients match float64 per env."""
    rng = np.random.default_rng(1)
    heights = rng.uniform(0.0, 0.1, (5, 6))
    tetra = sn.engines.Mesh(
        [[0, 0, 0], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0.3]], [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
    )
    sheet = sn.engines.Mesh([[0, 0, 0], [0.3, 0, 0], [0, 0.3, 0]], [[0, 1, 2]])  # open: there is no inside
    tilted = tuple(unit(1.0, 0.3, -0.2, 0.5))
    shapes = [
        sn.engines.Shape("box", "box", (0.1, 0.2, 0.05), body="a", pos=(0.1, 0.0, 0.0), quat=tilted),  # type: ignore[arg-type]
        sn.engines.Shape("sphere", "sphere", (0.12,), body="a", pos=(-0.05, 0.0, 0.1)),
        sn.engines.Shape("capsule", "capsule", (0.06, 0.1), body="b"),
        sn.engines.Shape("cylinder", "cylinder", (0.08, 0.05), body="b", pos=(0.2, 0.1, 0.0)),
        sn.engines.Shape("ellipsoid", "ellipsoid", (0.2, 0.1, 0.05), body="b", pos=(-0.3, 0.1, 0.0)),
        sn.engines.Shape("mesh", "tetra", mesh=tetra, body="c", scale=(1.0, -1.2, 0.8)),
        sn.engines.Shape("mesh", "sheet", mesh=sheet, pos=(0.1, 0.2, 0.3), quat=tilted),  # type: ignore[arg-type]
        sn.engines.Shape(
            "hfield", "hills", hfield=sn.engines.HeightField(heights, (0.5, 0.4), 0.1), pos=(0.0, 0.0, -0.3)
        ),
        sn.engines.Shape("plane", "plate", (0.3, 0.2), pos=(0.0, -0.3, 0.0), quat=tilted),  # type: ignore[arg-type]
        sn.engines.Shape("sphere", "shell", (0.1,), body="tip"),
    ]
    engine = engine_of(shapes, 24, bodies=("tip", "a", "b", "c"))
    state = written(engine, random_state(rng, 24, 4, 0.3))
    scene, skin = taxels(
        engine, probe_radius=radius, n_sample_points=4000, stiffness=70.0, shear_coupling=30.0, twist_scalar=0.4,
        density_scalar=300.0, probe_local_normal=((1.0, 0.0, 0.0), (0.0, 2.0, 0.0), (1.0, 1.0, 1.0), (0.0, 0.0, -1.0)),
        probe_local_pos=((0.2, 0.0, 0.0), (0.0, 0.0, 0.1), (-0.1, 0.1, 0.0), (0.0, 0.1, 0.0)),
    )  # fmt: skip
    scene.update()
    force, torque = numpy(skin.data.force), numpy(skin.data.torque)
    expected = [[reference(skin, engine, state, env, probe) for probe in range(4)] for env in range(24)]
    for got, k in ((force, 0), (torque, 1)):
        wanted = np.array([[both[k] for both in row] for row in expected])
        assert np.linalg.norm(wanted, axis=-1).astype(bool).sum() > 30
        np.testing.assert_allclose(got, wanted, atol=2e-5 * np.abs(wanted).max(), rtol=1e-4)


@pytest.mark.parametrize(("cells", "entries"), [(64, 4_000_000), (1, 4_000_000), (64, 0), (0.01, 0)])
def test_cells_of_any_size_list_all_points_in_reach(
    cells: float, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over the points of a cell equal those over all points, also for a cloud far larger than the reach."""
    from sensorium.geometry import surface_cloud

    monkeypatch.setattr(surface_cloud, "CELLS", cells)
    monkeypatch.setattr(surface_cloud, "ENTRIES", entries)
    rng = np.random.default_rng(9)
    engine = engine_of([sn.engines.Shape("cylinder", "rod", (0.02, 0.6), body="thing")], 200)
    state = random_state(rng, 200, 2, 0.03)
    state[:, 1, :3] = state[:, 0, :3]
    for env in range(200):
        state[env, 1, :3] -= matrix(state[env, 1, 3:7]) @ np.array(
            (*rng.uniform(-0.03, 0.03, 2), rng.uniform(-0.6, 0.6))
        )
    state = written(engine, state)
    scene, skin = taxels(engine, probe_radius=0.012, n_sample_points=3000)
    scene.update()
    wanted = np.array([reference(skin, engine, state, env, 0)[0] for env in range(200)])
    assert wanted.any(axis=1).sum() > 50
    np.testing.assert_allclose(numpy(skin.data.force)[:, 0], wanted, atol=2e-5 * np.abs(wanted).max())


def test_sum_over_a_flat_plate_matches_the_closed_form() -> None:
    """A bounded plate of many points is within 1 % of the greatest value at 30 heights, from deep below to out of
    reach.
    """
    engine = engine_of([sn.engines.Shape("plane", "plate", (0.1, 0.1), pos=(0.003, -0.002, 0.0))], 30)
    heights = np.linspace(-0.022, 0.022, 30)
    engine.body_pos_w[:, 0, 2] = torch.tensor(heights, dtype=torch.float32)
    scene, skin = taxels(engine, probe_radius=0.02, n_sample_points=8000)
    scene.update()
    wanted = 100.0 * 100.0 * over_plane(0.02, heights)
    np.testing.assert_allclose(numpy(skin.data.force)[:, 0, 2], wanted, atol=0.01 * wanted.max())
    assert not skin.data.force[..., :2].any()
    assert skin.data.force[0].count_nonzero() == 0 == skin.data.force[-1].count_nonzero()


def test_unbounded_plane_is_exact_without_points() -> None:
    """Also when tilted, sliding and rotating, the centre of the sum is the foot of the probe."""
    quat, rng = unit(0.9, 0.3, -0.2, 0.1), np.random.default_rng(3)
    up = matrix(quat)[:, 2]
    engine = engine_of([sn.engines.Shape("plane", "floor", pos=(0.1, 0.2, 0.3), quat=tuple(quat))], 16)  # type: ignore[arg-type]
    state = random_state(rng, 16, 2, 0.05)
    state[:, 0, :3] = (
        np.array((0.1, 0.2, 0.3))
        + rng.uniform(-0.02, 0.025, (16, 1)) * up
        + rng.uniform(-2, 2, (16, 1)) * matrix(quat)[:, 0]
    )
    state = written(engine, state)
    scene, skin = taxels(
        engine, probe_radius=0.02, shear_coupling=40.0, probe_local_normal=(1.0, 2.0, 3.0), n_sample_points=1
    )
    scene.update()
    heights = (state[:, 0, :3] - np.array((0.1, 0.2, 0.3))) @ up
    felt = 0
    for env, height in enumerate(heights):
        turn, near = matrix(state[env, 0, 3:7]), over_plane(0.02, height)
        a = turn @ unit(1.0, 2.0, 3.0)
        v = state[env, 0, 7:10] + np.cross(state[env, 0, 10:], -height * up)
        force = turn.T @ (1e4 * near * a + 4e3 * near * (v - (v @ a) * a))
        torque = (state[env, 0, 10:] @ a) * unit(1.0, 2.0, 3.0) * (near > 0.0)
        felt += near > 0.0
        np.testing.assert_allclose(numpy(skin.data.force)[env, 0], force, atol=2e-5)
        np.testing.assert_allclose(numpy(skin.data.torque)[env, 0], torque, atol=1e-5)
    assert 4 <= felt < 16


def test_sum_over_a_sphere_matches_the_closed_form() -> None:
    away = np.linspace(0.051, 0.085, 20)
    engine = engine_of([BALL], 20)
    engine.body_pos_w[:, 1, 2] = torch.tensor(away, dtype=torch.float32)
    scene, skin = taxels(engine, probe_radius=0.03, n_sample_points=8000)
    scene.update()
    wanted = 1e4 * over_ball(0.03, 0.05, away)
    np.testing.assert_allclose(numpy(skin.data.force)[:, 0, 2], wanted, atol=0.01 * wanted.max())
    assert wanted[-1] == 0.0 == float(skin.data.force[-1].abs().max())


@pytest.mark.parametrize("body", [BALL, BOX])
def test_readings_converge_with_the_number_of_points_and_do_not_grow_with_it(body: sn.engines.Shape) -> None:
    """The error over 200 random positions decreases at least as fast as n^-1/2, the law of random points."""
    rng = np.random.default_rng(5)
    engine = engine_of([body], 200)
    engine.body_pos_w[:, 1] = torch.tensor(0.06 * rng.normal(size=(200, 3)), dtype=torch.float32)

    def force(count: int) -> Array:
        scene, skin = taxels(engine, probe_radius=0.03, n_sample_points=count)
        scene.update()
        return numpy(skin.data.force)[:, 0, 2]

    fine = force(80_000)
    assert (fine > 0.0).sum() > 50
    errors = [float(np.sqrt(np.mean((force(n) - fine) ** 2))) for n in (500, 2000, 8000)]
    assert errors[0] < 0.1 * fine.max()
    assert errors[1] < 0.5 * errors[0] and errors[2] < 0.5 * errors[1]


def test_beyond_reach_reads_exactly_zero() -> None:
    """The reading is zero also just out of reach, and with everything in motion."""
    engine = engine_of([BALL, FLOOR], 2)
    engine.body_pos_w[:, 0, 2] = 1.0
    engine.body_pos_w[:, 1, 2] = torch.tensor([1.0 + 0.05 + 0.01001, 3.0])
    engine.body_lin_vel_w[:] = torch.tensor([3.0, -2.0, 5.0])
    scene, skin = taxels(engine, shear_coupling=5.0, n_sample_points=20_000)
    scene.update()
    assert not skin.data.force.any() and not skin.data.torque.any()


def test_approaching_boxes_read_before_contact_and_increase_evenly() -> None:
    """As a tip approaches and enters a box face, the force of the middle probe is the plate's closed form."""
    tip = sn.engines.Shape("box", "tip", (0.01, 0.01, 0.005), body="tip", pos=(0.0, 0.0, -0.005))
    gaps = np.linspace(0.012, -0.004, 17)
    engine = engine_of([tip, BOX], 17)
    engine.body_pos_w[:, 1, 2] = torch.tensor(0.03 + gaps, dtype=torch.float32)
    scene, skin = taxels(engine, n_sample_points=40_000)
    scene.update()
    force = numpy(skin.data.force)[:, 0, 2]
    wanted = 1e4 * over_plane(0.01, gaps)
    np.testing.assert_allclose(force, wanted, atol=0.03 * wanted.max())
    assert (force[gaps > 0.0005] > 0.0).sum() >= 9 and not force[gaps > 0.01].any()


def test_covered_points_do_not_count() -> None:
    """Two boxes that form one block read as the block, though their ends are inside each other."""
    whole = sn.engines.Shape("box", "whole", (0.1, 0.05, 0.05), body="thing")
    halves = [
        sn.engines.Shape("box", "left", (0.06, 0.05, 0.05), body="thing", pos=(-0.04, 0.0, 0.0)),
        sn.engines.Shape("box", "right", (0.06, 0.0499, 0.0499), body="thing", pos=(0.04, 0.0, 0.0)),
    ]
    areas = []
    for shapes in ([whole], halves):
        engine = engine_of(shapes)
        scene, skin = taxels(engine, probe_radius=0.02, n_sample_points=20_000)
        scene.update()  # the probe is in the middle, 5 cm from all outer sides
        assert not skin.data.force.any()
        areas.append(sum(each.area for each in skin.sample_points.values()))
    assert areas[0] == pytest.approx(surface_area(whole))
    assert areas[1] == pytest.approx(areas[0], rel=0.01)


def test_genesis_mode_weights_by_number_of_points() -> None:
    """The factor is density_scalar / n_sample_points for each shape: the reference area is that of all tracked
    shapes.
    """
    engine = engine_of([BALL])
    engine.body_pos_w[:, 1, 2] = 0.055
    scene, skin = taxels(engine, reference_area="tracked", n_sample_points=700)
    scene.update()
    cloud = skin.sample_points["ball"]
    assert len(cloud) == 700
    near = np.maximum(0.0, 0.01 - np.linalg.norm(cloud.points + np.array((0.0, 0.0, 0.055)), axis=1)).sum()
    assert float(skin.data.force[0, 0, 2]) == pytest.approx(100.0 * (100.0 / 700) * near, rel=1e-5)


def test_points_are_split_by_area_over_links_and_shapes() -> None:
    shapes = [
        sn.engines.Shape("sphere", "a", (0.1,), body="thing"),
        sn.engines.Shape("sphere", "b", (0.2,), body="thing", pos=(1.0, 0.0, 0.0)),
        sn.engines.Shape("sphere", "c", (0.05,), pos=(2.0, 0.0, 0.0)),
        FLOOR,
    ]
    _, skin = taxels(engine_of(shapes), n_sample_points=2100, probe_radius=0.1)
    assert {name: len(cloud) for name, cloud in skin.sample_points.items()} == {
        "a": 400,
        "b": 1600,
        "c": 100,
        "floor": 0,
    }
    _, skin = taxels(engine_of(shapes), sample_spacing=0.02, probe_radius=0.1)
    assert {name: len(cloud) for name, cloud in skin.sample_points.items()} == {
        "a": 314, "b": 1257, "c": 79, "floor": 0,
    }  # fmt: skip


# Force law ------------------------------------------------------------------------------------------------------------


def test_sliding_adds_shear_and_approach_adds_nothing() -> None:
    """A tip that slides along +x over the floor reads +x; a box that slides instead reads -x."""
    floor = sn.engines.Shape("box", "block", (0.1, 0.1, 0.1), body="thing")
    engine = engine_of([floor])
    engine.body_pos_w[:, 1, 2] = 0.105
    scene, skin = taxels(engine, shear_coupling=50.0, n_sample_points=20_000)
    engine.body_lin_vel_w[:, 0] = torch.tensor([0.4, 0.0, -2.0])
    scene.update()
    force = numpy(skin.data.force)[0, 0]
    np.testing.assert_allclose(force, force[2] * np.array((0.5 * 0.4, 0.0, 1.0)), atol=1e-7)
    assert force[2] > 0.0
    engine.body_lin_vel_w[:, 0] = 0.0
    engine.body_lin_vel_w[:, 1] = torch.tensor([0.4, 0.0, -2.0])
    scene.update()
    np.testing.assert_allclose(numpy(skin.data.force)[0, 0], force * np.array((-1.0, 0.0, 1.0)), atol=1e-7)


def test_bodies_moving_together_cause_no_shear() -> None:
    """In common rotation and translation there is no relative motion of skin and surface, at any distance."""
    engine = engine_of([BALL])
    engine.body_pos_w[:, 1] = torch.tensor([0.01, 0.02, 0.05])
    lin, ang = np.array((1.0, -2.0, 0.5)), np.array((3.0, 1.0, -2.0))
    engine.body_ang_vel_w[:] = torch.tensor(ang, dtype=torch.float32)
    engine.body_lin_vel_w[:, 0] = torch.tensor(lin, dtype=torch.float32)
    engine.body_lin_vel_w[:, 1] = torch.tensor(lin + np.cross(ang, (0.01, 0.02, 0.05)), dtype=torch.float32)
    scene, skin = taxels(engine, shear_coupling=1000.0, probe_radius=0.02)
    scene.update()
    force = numpy(skin.data.force)[0, 0]
    assert force[2] > 0.0 and np.abs(force[:2]).max() < 1e-5 * force[2]
    assert np.abs(numpy(skin.data.torque)).max() < 1e-5


def test_the_torque_about_the_normal_is_linear_in_the_twist_scalar_and_zero_without() -> None:
    normal = unit(0.2, -0.3, 0.9)
    engine = engine_of([BALL])
    engine.body_pos_w[:, 1, 2] = 0.053
    ang = np.array((1.0, 2.0, -4.0))
    engine.body_ang_vel_w[:, 0] = torch.tensor(ang, dtype=torch.float32)
    for scalar in (0.0, 0.5, 1.0, 2.0):
        scene, skin = taxels(engine, twist_scalar=scalar, probe_local_normal=normal)
        scene.update()
        np.testing.assert_allclose(numpy(skin.data.torque)[0, 0], scalar * (ang @ normal) * normal, atol=1e-6)


def test_the_torque_is_about_the_links_origin() -> None:
    engine = engine_of([FLOOR])
    engine.body_pos_w[:, 0, 2] = 0.004
    scene, skin = taxels(engine, probe_local_pos=THREE, probe_local_normal=(0.3, 0.2, 0.9))
    scene.update()
    force, torque = numpy(skin.data.force)[0], numpy(skin.data.torque)[0]
    np.testing.assert_allclose(torque, np.cross(THREE, force), atol=1e-9)
    assert (np.linalg.norm(torque[1:], axis=1) > 0.0).all()


def test_coefficients_can_be_set_per_env_at_run_time() -> None:
    engine = engine_of([FLOOR], 3)
    engine.body_pos_w[:, 0, 2] = 0.004
    scene, skin = taxels(engine)
    for _ in range(3):
        scene.update()
    before = float(skin.data.force[0, 0, 2])
    skin.set("stiffness", [200.0, 300.0], env_ids=[0, 2])
    skin.set("density_scalar", 50.0)
    scene.update()
    assert skin.data.force[:, 0, 2].tolist() == pytest.approx([before, 0.5 * before, 1.5 * before], rel=1e-6)


def test_own_link_is_ignored_and_other_links_detected() -> None:
    shell = sn.engines.Shape("sphere", "shell", (0.005,), body="tip")
    near = sn.engines.Shape("sphere", "near", (0.005,), body="thing")
    for shapes, is_sensed in (([shell, BOX], False), ([shell, near], True)):
        engine = engine_of(shapes)
        engine.body_pos_w[:, 1, 0] = 0.0 if is_sensed else 1.0
        scene, skin = taxels(engine)
        scene.update()
        assert bool(skin.data.force.any()) == is_sensed


def test_hidden_shapes_are_omitted_unless_requested() -> None:
    """An object with a visual and a collision shape counts once."""
    seen = sn.engines.Shape("sphere", "seen", (0.05,), body="thing", is_collision=False)
    hull = sn.engines.Shape("sphere", "hull", (0.05,), body="thing", is_visual=False, group=3)
    for geometry, names in (("visual", ["seen"]), ("collision", ["hull"]), ("any", ["seen", "hull"])):
        _, skin = taxels(engine_of([seen, hull]), geometry=geometry)
        assert list(skin.sample_points) == names


# Imperfections --------------------------------------------------------------------------------------------------------


def test_radius_noise_is_uniform_and_in_the_measured_branch_only() -> None:
    """On the plane itself F = k pi R^3 / 3, so R is the cube root: it has U(-1, 1) noise, per probe and sample."""
    grid = np.zeros((4, 4, 3))
    scene, skin = taxels(engine_of([FLOOR], 64), probe_local_pos=grid, probe_radius_noise=0.002)
    clean_scene, clean = taxels(engine_of([FLOOR], 64), probe_local_pos=grid)
    draws = []
    for _ in range(20):
        scene.update()
        clean_scene.update()
        assert torch.equal(skin.ground_truth.force, clean.data.force)
        assert torch.equal(skin.ground_truth.torque, clean.data.torque)
        draws.append(np.cbrt(numpy(skin.data.force)[..., 2] * 3.0 / np.pi / 1e4) - 0.01)
    values, a = np.stack(draws).ravel(), 0.002
    n = len(values)
    assert np.abs(values).max() <= a * (1.0 + 1e-4)
    assert abs(values.mean()) < 5.0 * a / np.sqrt(3.0 * n)
    assert values.var() == pytest.approx(a**2 / 3.0, rel=5.0 * np.sqrt(4.0 / 5.0 / n))  # var of U^2: 4/45 a^4
    assert len(np.unique(values.round(9))) > 0.9 * n


def test_radius_noise_does_not_change_a_bit_of_the_truth() -> None:
    """The same holds over a cloud, whose cells are larger if probes may have a longer reach."""
    x, y = np.meshgrid(np.linspace(-0.01, 0.01, 4), np.linspace(-0.01, 0.01, 5))
    places, truths = np.stack([x, y, np.full(x.shape, 0.053)], axis=-1), []
    for noise in (0.0, 1e-4, 3e-3):
        scene, skin = taxels(engine_of([BALL]), probe_local_pos=places, probe_radius_noise=noise)
        scene.update()
        truths.append(torch.cat([skin.ground_truth.force, skin.ground_truth.torque]))
    assert truths[0][0, ..., 2].all()
    assert torch.equal(truths[0], truths[1]) and torch.equal(truths[0], truths[2])


def test_gain_and_noise_do_not_affect_the_truth() -> None:
    engine = engine_of([BALL], 4)
    engine.body_pos_w[:, 1, 2] = 0.053
    scene, skin = taxels(
        engine, probe_local_pos=THREE, n_sample_points=4000, noise={"torque": 1e-4},
        stages=(sn.stages.TaxelGain(gain=(0.5, 1.0, 2.0), fields=("force",)),),
    )  # fmt: skip
    clean_scene, clean = taxels(engine, probe_local_pos=THREE, n_sample_points=4000)
    for _ in range(5):
        scene.update()
        clean_scene.update()
    assert torch.equal(skin.ground_truth.force, clean.data.force)
    assert torch.equal(skin.ground_truth.torque, clean.data.torque)
    factors = torch.tensor([0.5, 1.0, 2.0])[None, :, None]
    torch.testing.assert_close(skin.data.force, factors * clean.data.force)
    off = (skin.data.torque - clean.data.torque).abs()
    assert 0.0 < float(off.max()) < 6e-4


def test_probe_without_radius_keeps_its_place_and_reads_zero() -> None:
    scene, skin = taxels(
        engine_of([FLOOR]), probe_local_pos=THREE, probe_radius=(0.01, 0.0, 0.02), probe_radius_noise=1e-3
    )
    scene.update()
    for data in (skin.data, skin.ground_truth):
        assert (data.force[0, :, 2] > 0.0).tolist() == [True, False, True]
        assert not data.torque[0, 1].any()


# The scene ------------------------------------------------------------------------------------------------------------


def test_envs_are_independent() -> None:
    rng = np.random.default_rng(8)
    state = random_state(rng, 5, 2, 0.03)
    many = engine_of([BALL, FLOOR], 5)
    written(many, state)
    scene, skin = taxels(many, probe_radius=0.03, shear_coupling=3.0)
    scene.update()
    for env in range(5):
        one = engine_of([BALL, FLOOR])
        written(one, state[env : env + 1])
        alone_scene, alone = taxels(one, probe_radius=0.03, shear_coupling=3.0)
        alone_scene.update()
        assert torch.equal(alone.data.force[0], skin.data.force[env])
        assert torch.equal(alone.data.torque[0], skin.data.torque[env])


def test_reading_after_a_reset_is_of_the_new_state() -> None:
    engine = engine_of([FLOOR], 2)
    engine.body_pos_w[:, 0, 2] = 0.004
    scene, skin = taxels(engine, delay=0.003)
    for _ in range(5):
        scene.update()
    scene.reset([1], body_pos_w=torch.tensor([[[0.0, 0.0, 0.5]]]))
    assert skin.data.force[:, 0, 2].gt(0.0).tolist() == [True, False]


def test_a_grid_and_several_links_keep_their_axes() -> None:
    """Each link senses the other, and not itself."""
    shapes = [
        sn.engines.Shape("sphere", "one", (0.01,), body="tip"),
        sn.engines.Shape("sphere", "two", (0.02,), body="thing"),
    ]
    engine = engine_of(shapes, 2)
    engine.body_pos_w[:, 1, 0] = 0.025
    scene, skin = taxels(
        engine, link_name=None, link_names=("tip", "thing"), probe_local_pos=np.zeros((2, 5, 3)), probe_radius=0.02,
        n_sample_points=20_000,
    )  # fmt: skip
    scene.update()
    assert skin.data.force.shape == (2, 2, 2, 5, 3)
    wanted = [1e4 * over_ball(0.02, radius, 0.025) for radius in (0.02, 0.01)]
    np.testing.assert_allclose(numpy(skin.data.force)[0, :, 0, 0, 2], wanted, rtol=0.02)
    assert skin.specs[0].axes == ("mount", "row", "column", "xyz")


@pytest.mark.parametrize(("body", "name"), [(0, "tip"), (1, "thing")])
def test_non_finite_state_is_flagged(body: int, name: str) -> None:
    engine = engine_of([BALL], 2)
    scene, skin = taxels(engine)
    scene.update()
    engine.body_pos_w[1, body] = float("nan")
    with pytest.warns(UserWarning, match=name):
        scene.update()
        assert skin.valid.tolist() == [True, False]


def test_contract_holds() -> None:
    def make(num_envs: int) -> sn.TensorEngine:
        plain = tumbling_engine(num_envs)
        ground = sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.5))
        post = sn.engines.Shape("cylinder", "post", (0.1, 0.5), pos=(0.5, 0.0, 0.0))
        return sn.TensorEngine(
            num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
            shapes=[ground, post], provides=("pose", "velocity", "acceleration", "gravity"),
        )  # fmt: skip

    cfg = sn.ProximityTaxelCfg.example().replace(probe_radius_noise=0.05, shear_coupling=10.0)
    check_sensor(cfg, make)


HAND = """
<mujoco>
  <option timestep="0.001" gravity="0 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="hand" pos="0 0 0.1">
      <joint name="lift" type="slide" axis="0 0 1"/>
      <geom name="palm" type="box" size="0.03 0.03 0.005"/>
      <geom name="mesh_shell" size="0.03" group="3"/>
      <site name="skin" pos="0 0 -0.005" quat="0 1 0 0"/>
    </body>
    <body name="can" pos="0 0 0.03"><freejoint/><geom name="can" type="cylinder" size="0.03 0.03"/></body>
  </worldbody>
</mujoco>
"""


def test_mujoco_palm_detects_a_can_before_contact() -> None:
    """At 1 cm above a wide lid the sum is the plane's, at a site whose z points down."""
    engine = sn.MujocoEngine(HAND, num_envs=2)
    cfg = sn.ProximityTaxelCfg(
        name="skin", site="skin", probe_radius=0.02, targets="can", n_sample_points=60_000, shear_coupling=10.0
    )
    scene = sn.Scene(engine, [cfg])
    engine.qpos[:, 0] = torch.tensor([-0.025, 0.1], dtype=engine.qpos.dtype)
    engine.qvel[:, 0] = -0.2
    engine.forward()
    scene.update()
    force = numpy(scene[cfg].data.force)
    assert scene[cfg].data.force.shape == (2, 1, 3)
    assert force[0, 0, 2] == pytest.approx(1e4 * over_plane(0.02, 0.01), rel=0.02)
    assert np.abs(force[0, 0, :2]).max() < 0.01 * force[0, 0, 2] and not force[1].any()


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"probe_local_normal": (0.0, 0.0, 0.0)}, "not zero"),
        ({"probe_local_pos": THREE, "probe_local_normal": ((0, 0, 1), (0, 0, 1))}, "one for each of 3 probes"),
        ({"stiffness": -1.0}, "stiffness"),
        ({"shear_coupling": float("inf")}, "shear_coupling"),
        ({"twist_scalar": -0.1}, "twist_scalar"),
        ({"density_scalar": float("nan")}, "density_scalar"),
        ({"n_sample_points": 0}, "n_sample_points"),
        ({"n_sample_points": 100_000_000}, "from 1 to 10000000"),
        ({"sample_spacing": 0.0}, "sample_spacing"),
        ({"reference_area": -1.0}, "reference_area"),
        ({"probe_radius": 0.0}, "at least one radius above 0"),
        ({"probe_radius_noise": -1e-3}, "probe_radius_noise"),
    ],
)  # fmt: skip
def test_bad_input_error_names_field_and_fix(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(sn.ConfigError, match=words) as caught:
        sn.ProximityTaxelCfg(name="skin", link_name="tip", **fields)
    assert "ProximityTaxelCfg('skin')" in str(caught.value)


def test_no_tracked_shape_raises() -> None:
    shell = sn.engines.Shape("sphere", "shell", (0.01,), body="tip")
    with pytest.raises(sn.SelectionError, match="no_such_thing"):
        taxels(engine_of([BALL]), targets="no_such_thing")
    with pytest.raises(sn.SelectionError, match="exclude_parent_body=False"):
        taxels(engine_of([shell]), targets="tip")
    with pytest.raises(sn.ConfigError, match="a shape of another link"):
        taxels(engine_of([shell]))


def test_too_many_points_are_refused_by_name() -> None:
    with pytest.raises(
        sn.ConfigError, match=r"Cfg\('.*'\).sample_spacing: got 1e-07, expected at most 10000000 points"
    ):
        taxels(engine_of([BALL]), sample_spacing=1e-7)


def test_plane_without_required_area_is_named() -> None:
    with pytest.raises(sn.ConfigError, match=r"'floor' is an unbounded plane.*exclude=\('floor',\)"):
        taxels(engine_of([BALL, FLOOR]), reference_area="tracked")
    strip = sn.engines.Shape("plane", "strip", (0.5, 0.0))
    with pytest.raises(sn.ConfigError, match=r"'strip' is a plane of size.*bounded on one axis only"):
        taxels(engine_of([BALL, strip]))


def test_too_sparse_points_are_warned_of() -> None:
    """500 points on a hall are 0.25 m apart and raise a warning; the proposed spacing does not."""
    hall = sn.engines.Shape("box", "hall", (2.0, 2.0, 0.001))
    with pytest.warns(UserWarning, match="points on 'hall' are 0.253 m apart.*sample_spacing=0.0033"):
        taxels(engine_of([BALL, hall]))
    taxels(engine_of([BALL, hall]), probe_radius=0.1, sample_spacing=0.033)


def test_targets_select_detected_shapes() -> None:
    cfg = sn.ProximityTaxelCfg(link_name="tip", targets=("thing",))
    assert cfg.targets == ("thing",) and cfg.seen.include == ("thing",)
    assert cfg.replace(targets="ball").targets == "ball"
    assert sn.ProximityTaxelCfg.model_validate(cfg.model_dump()) == cfg
