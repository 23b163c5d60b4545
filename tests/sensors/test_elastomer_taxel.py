"""Elastomer taxels: closed forms, FFT against the direct sum, anchors, and a slow float64 model of a random scene."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.sensors.touch.elastomer_grid import lattice_of, layer_table
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
RADIUS = 0.01
BALL = sn.engines.Shape("sphere", "ball", (RADIUS,), body="ball")
UP = np.array([0.0, 0.0, 1.0])


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def grid(rows: int, columns: int, spacing: float | tuple[float, float] = 1e-3) -> Array:
    """Return positions [row, column, 3] in the plane z = 0, around the origin."""
    x, y = (
        (np.arange(count) - 0.5 * (count - 1)) * step
        for count, step in zip((rows, columns), np.broadcast_to(spacing, 2), strict=True)
    )
    return np.stack([*np.meshgrid(x, y, indexing="ij"), np.zeros((rows, columns))], axis=-1)


def turned(quat: Any, vector: Any) -> Array:
    w, axis = float(quat[0]), np.asarray(quat[1:], float)
    vector = np.asarray(vector, float)
    twice = 2.0 * np.cross(axis, vector)
    out: Array = vector + w * twice + np.cross(axis, twice)
    return out


def back(quat: Any, vector: Any) -> Array:
    return turned([quat[0], -quat[1], -quat[2], -quat[3]], vector)


def product(a: Any, b: Any) -> Array:
    """Return the quaternion that applies rotation b first, then a."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


def about_z(angle: float) -> list[float]:
    return [float(np.cos(angle / 2)), 0.0, 0.0, float(np.sin(angle / 2))]


def engine_of(shapes: Any = (BALL,), envs: int = 1, bodies: tuple[str, ...] = ("pad", "ball")) -> sn.TensorEngine:
    engine = sn.TensorEngine(envs, 0.01, bodies=bodies, shapes=list(shapes))
    engine.body_pos_w[:, 1:, 2] = 1.0  # no contact with the pad
    return engine


def elastomer(engine: sn.engines.Engine, seed: int = 1, **cfg: Any) -> tuple[sn.Scene, sn.ElastomerTaxel]:
    given = {"body": "pad", "probe_local_pos": grid(9, 9), "targets": "ball", **cfg}
    if "bodies" in cfg:
        del given["body"]
    scene = sn.Scene(engine, [sn.ElastomerTaxelCfg(name="gel", **given)], seed=seed)
    return scene, scene["gel"]  # type: ignore[return-value]


def press(engine: sn.TensorEngine, depth: float, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> None:
    """Place the ball at a depth below z = 0, rotated about the vertical."""
    engine.body_pos_w[:, 1] = torch.tensor([x, y, RADIUS - depth])
    engine.body_quat_w[:, 1] = torch.tensor(about_z(angle))


def weights(r2: Array, c: float, lam: float, soft: float) -> Array:
    """Return the in-plane weight of a unit depth over the square of the distance."""
    gauss, inverse = np.exp(-lam * r2), 1.0 / (r2 + soft**2)
    if c in (0.0, 1.0):
        return gauss if c == 1.0 else inverse
    return c * gauss / (np.exp(-0.5) / np.sqrt(2.0 * lam)) + (1.0 - c) * inverse * (2.0 * soft)


def dilation(
    places: Array, normals: Array, depth: Array, *, c: float = 1.0, lam: float = 700.0, e: float = 2.0, soft: float
) -> Array:
    """Evaluate the formula in float64."""
    out = np.zeros(places.shape)
    for i, (p, n) in enumerate(zip(places, normals, strict=True)):
        arm = p - places
        r2 = (arm**2).sum(axis=1)
        total = (arm * (depth * weights(r2, c, lam, soft))[:, None]).sum(axis=0)
        out[i] = total - (total @ n) * n + n * (depth**e * np.exp(-lam * r2)).sum()
    return out


def assert_near(got: Any, wanted: Array, share: float) -> None:
    """Assert that each component is within a share of the greatest magnitude of the field."""
    assert np.abs(wanted).max() > 0.0
    assert np.abs(numpy(got) - wanted).max() <= share * np.abs(wanted).max()


# Closed forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_indenting_sphere_matches_the_closed_form(method: str) -> None:
    """Depths of a sphere are R - |p - c|: the float64 sum over them agrees to 1e-6 of the greatest displacement."""
    engine = engine_of()
    press(engine, 0.004, 0.0007, -0.0004)
    scene, gel = elastomer(engine, probe_local_pos=grid(20, 20, 8e-4), method=method, shear_scale=0.0)
    scene.update()
    places = grid(20, 20, 8e-4).reshape(-1, 3)
    centre = numpy(engine.body_pos_w[0, 1])
    depth = np.maximum(0.0, RADIUS - np.linalg.norm(places - centre, axis=1))
    assert 50 < (depth > 0.0).sum() < 400
    wanted = dilation(places, np.tile(UP, (400, 1)), depth, soft=8e-4)
    assert_near(gel.data.view(400, 3), wanted, 1e-6)


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_each_pad_and_env_matches_the_closed_form_of_its_sphere(method: str) -> None:
    """Two pads with different orientations in four envs, each pressed by a ball to a different depth, agree to 1e-6."""
    balls = (BALL, sn.engines.Shape("sphere", "bead", (0.5 * RADIUS,), body="bead"))
    engine = engine_of(balls, 4, ("left", "right", "ball", "bead"))
    faces = [(1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.5, 0.5), (0.5, -0.5, 0.5, 0.5), (0.0, 1.0, 0.0, 0.0)]
    for env in range(4):
        for pad, radius in ((0, RADIUS), (1, 0.5 * RADIUS)):
            quat, pos = faces[(env + 2 * pad + env * pad) % 4], np.array([0.25 * env, 0.5 * pad, -0.125])
            near = np.array([4e-4 * env, -3e-4 * pad, radius - 1e-3 - 4e-4 * env - 2e-4 * pad])
            engine.body_pos_w[env, pad] = torch.tensor(pos, dtype=torch.float32)
            engine.body_quat_w[env, pad] = torch.tensor(quat)
            engine.body_pos_w[env, 2 + pad] = torch.tensor(pos + turned(quat, near), dtype=torch.float32)
    scene, gel = elastomer(
        engine, bodies=("left", "right"), targets=("ball", "bead"), probe_local_pos=grid(12, 15, 7e-4), method=method,
        shear_scale=0.0,
    )  # fmt: skip
    scene.update()
    places = grid(12, 15, 7e-4).reshape(-1, 3)
    for env in range(4):
        for pad, radius in ((0, RADIUS), (1, 0.5 * RADIUS)):
            way = numpy(engine.body_pos_w[env, 2 + pad]) - numpy(engine.body_pos_w[env, pad])
            centre = back(numpy(engine.body_quat_w[env, pad]), way)
            depth = np.maximum(0.0, radius - np.linalg.norm(places - centre, axis=1))
            wanted = dilation(places, np.tile(UP, (180, 1)), depth, soft=7e-4)
            assert_near(gel.data[env, pad].reshape(180, 3), wanted, 1e-6)


def test_single_probe_moves_along_its_normal_by_the_power_of_its_depth() -> None:
    engine = engine_of(envs=3)
    engine.body_pos_w[:, 1, 2] = RADIUS - torch.tensor([1e-3, 2e-3, 4e-3])
    scene, gel = elastomer(engine, probe_local_pos=((0.0, 0.0, 0.0),), normal_exponent=1.5, shear_scale=0.0)
    scene.update()
    depth = np.array([1e-3, 2e-3, 4e-3])
    np.testing.assert_allclose(numpy(gel.data)[:, 0, 2], depth**1.5, rtol=3e-6)
    assert not gel.data[:, 0, :2].any()
    scene.engine.body_pos_w[:, 1, 2] = RADIUS - 2e-3
    gel.set("normal_exponent", [1.0, 2.0, 3.0])
    gel.set("dilate_scale", [5.0], env_ids=[2])
    scene.update()
    np.testing.assert_allclose(numpy(gel.data)[:, 0, 2], [2e-3, 4e-6, 5.0 * 8e-9], rtol=5e-6)


@pytest.mark.parametrize("c", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("method", ["direct", "fft"])
def test_gel_rises_in_the_centre_and_moves_sideways_around_it(method: str, c: float) -> None:
    """A press at the centre of symmetry is along the normal there, outwards elsewhere, and equal in four rotations."""
    engine = engine_of()
    press(engine, 0.002)
    scene, gel = elastomer(engine, compressibility=c, method=method, shear_scale=0.0)
    scene.update()
    field, places = numpy(gel.data)[0], grid(9, 9)
    most = np.abs(field[..., :2]).max()
    assert np.abs(field[4, 4, :2]).max() < 1e-6 * most and field[4, 4, 2] == field[..., 2].max() > 0.0
    outward = (field[..., :2] * places[..., :2]).sum(axis=-1)
    assert (np.delete(outward.ravel(), 40) > 0.0).all()
    quarter = np.rot90(field, axes=(0, 1))
    np.testing.assert_allclose(np.stack([-quarter[..., 1], quarter[..., 0]], -1), field[..., :2], atol=3e-6 * most)


def test_no_contact_reads_exactly_zero() -> None:
    for method in ("direct", "fft"):
        engine = engine_of(envs=2)
        press(engine, -1e-6)
        scene, gel = elastomer(engine, method=method)
        scene.update()
        assert gel.data.shape == (2, 9, 9, 3) and not gel.data.any()


def test_radius_zero_disables_a_probe() -> None:
    """The reading does not depend on the probe radius; probes of radius 0 read 0, also with noise, and exert no
    pressure.
    """
    readings = []
    for radius in (1e-3, 0.05):
        engine = engine_of()
        press(engine, 0.002)
        scene, gel = elastomer(engine, probe_radius=radius)
        scene.update()
        readings.append(gel.data.clone())
    assert torch.equal(*readings)
    places, radii = grid(9, 9), np.full((9, 9), 0.01)
    radii[0], radii[:, 8], radii[4, 4] = 0.0, 0.0, 0.0
    kept = radii.ravel() > 0.0
    for method in ("fft", "direct"):
        engine = engine_of()
        press(engine, 0.002, 0.001)
        scene, gel = elastomer(engine, probe_radius=radii.ravel(), noise=1e-6, method=method)
        scene_2, alone = elastomer(engine, probe_local_pos=places.reshape(-1, 3)[kept])
        for x in (0.0, 3e-4):
            press(engine, 0.002, 0.001 + x)
            scene.update()
            scene_2.update()
        assert not gel.data.view(81, 3)[~kept].any() and gel.data.view(81, 3)[kept].all()
        assert_near(gel.ground_truth.view(81, 3)[kept], numpy(alone.data)[0], 1e-6)


# FFT and direct -------------------------------------------------------------------------------------------------------


MODES = {
    "gaussian": {},
    "inverse": {"compressibility": 0.0},
    "mixed": {"compressibility": 0.35, "normal_exponent": 1.3},
    "layer": {"elastomer_thickness": 2e-3},
}


@pytest.mark.parametrize("shape", [(20, 20), (7, 12), (13, 5), (2, 2), (1, 9), (6, 1)])
@pytest.mark.parametrize("mode", MODES)
def test_fft_equals_the_direct_sum(mode: str, shape: tuple[int, int]) -> None:
    """FFT and direct sum agree to 1e-5 of the greatest displacement, on two mounts in five envs with different poses
    and normals.
    """
    if mode == "layer" and 1 in shape:
        with pytest.raises(sn.ConfigError, match="at least 2 rows"):
            sn.ElastomerTaxelCfg(body="pad", probe_local_pos=grid(*shape), shear_scale=0.0, elastomer_thickness=1e-3)
        return
    rng = np.random.default_rng(sum(shape))
    places = grid(*shape, (1.2e-3, 0.9e-3))
    normals = UP + 0.2 * rng.normal(size=places.shape)
    box = sn.engines.Shape("box", "brick", (0.003, 0.002, 0.004), body="brick")
    fields = []
    for method in ("fft", "direct"):
        engine = engine_of([BALL, box], 5, ("left", "right", "ball", "brick"))
        rng = np.random.default_rng(3)
        scene, gel = elastomer(
            engine, bodies=("left", "right"), probe_local_pos=places, probe_local_normal=normals, method=method,
            targets=("ball", "brick"), **MODES[mode],
        )  # fmt: skip
        for _ in range(3):
            for env in range(5):
                for pad in range(2):
                    quat = rng.normal(size=4)
                    quat /= np.linalg.norm(quat)
                    pos, mate = rng.uniform(-0.2, 0.2, 3), 2 + (pad + env) % 2
                    near = np.array([*rng.uniform(-1e-3, 1e-3, 2), (RADIUS if mate == 2 else 0.004) - 0.0015])
                    engine.body_pos_w[env, [pad, mate]] = torch.tensor(
                        np.stack([pos, pos + turned(quat, near)]), dtype=torch.float32
                    )
                    engine.body_quat_w[env, [pad, mate]] = torch.tensor(quat, dtype=torch.float32)
            scene.update()
        fields.append(gel.data.clone())
    assert (fields[1].abs().amax(dim=(2, 3, 4)) > 0.0).all()
    for env in range(5):
        for mount in range(2):
            assert_near(fields[0][env, mount], numpy(fields[1][env, mount]), 1e-5)


def test_list_and_grid_of_equal_positions_read_the_same() -> None:
    for mode in ("gaussian", "inverse", "mixed"):
        fields = []
        for places in (grid(9, 9), grid(9, 9).reshape(-1, 3)):
            engine = engine_of()
            scene, gel = elastomer(engine, probe_local_pos=places, sample_spacing=4e-4, **MODES[mode])
            for x in (0.0, 2e-4):
                press(engine, 0.002, x)
                scene.update()
            fields.append(gel.data.clone().view(81, 3))
        assert_near(fields[1], numpy(fields[0]), 1e-5)


def test_auto_uses_the_fft_only_on_large_regular_grids() -> None:
    for places, uses in ((grid(8, 8), True), (grid(7, 7), False), (grid(9, 9).reshape(-1, 3), False)):
        _, gel = elastomer(engine_of(), probe_local_pos=places)
        assert gel.cfg.uses_fft == uses and gel.info.notes["sums"].startswith("FFT" if uses else "direct")


# Kernels of the gel ---------------------------------------------------------------------------------------------------


def in_plane(field: torch.Tensor) -> Array:
    """Return how far each probe of a grid moves in the plane."""
    return np.linalg.norm(numpy(field)[0][..., :2], axis=-1)


def test_less_compressible_gel_has_a_wider_field() -> None:
    """At the border, relative to the greatest displacement, the value increases as c goes from 1 over 0.5 to 0."""
    shares = []
    for c in (1.0, 0.5, 0.0):
        engine = engine_of()
        press(engine, 5e-4)
        scene, gel = elastomer(
            engine, probe_local_pos=grid(31, 31), compressibility=c, lambda_d=2e4, shear_scale=0.0
        )  # fmt: skip
        scene.update()
        moved = in_plane(gel.data)
        shares.append(moved[15, 30] / moved.max())
    assert shares[0] < 0.9 * shares[1] and shares[1] < 0.9 * shares[2]


def test_thick_layer_moves_less_sideways() -> None:
    """The energy of the in-plane displacement decreases with the thickness of a bonded layer."""
    energy = []
    for thickness in (1e-3, 2e-3, 4e-3, 8e-3):
        engine = engine_of()
        press(engine, 1e-3)
        scene, gel = elastomer(
            engine, probe_local_pos=grid(24, 24), elastomer_thickness=thickness, shear_scale=0.0, compressibility=0.0
        )  # fmt: skip
        scene.update()
        energy.append(float((in_plane(gel.data) ** 2).sum()))
    assert (np.diff(energy) < 0.0).all() and energy[0] > 4.0 * energy[-1]


def test_layer_kernel_is_the_hankel_transform_of_its_response() -> None:
    """For an unbounded layer u(r) = 1 / 2 pi int S(k t) J1(k r) k dk: near the press the table agrees within 2 %.

    J1(x) = 1 / pi int_0^pi cos(a - x sin a) da; the table is of a layer with a period of 8 grids.
    """
    thickness, spacing, count = 2e-3, 5e-4, 24
    lattice = lattice_of(grid(count, count, spacing))
    assert not isinstance(lattice, str)
    table = layer_table(lattice, thickness)
    q = (np.arange(60000) + 0.5) * 5e-4
    response = 2.0 * q**2 / (np.sinh(2.0 * q) - 2.0 * q)
    a = (np.arange(200) + 0.5) * np.pi / 200
    for k in (2, 4, 6):
        x = q * k * spacing / thickness
        bessel = np.array([np.cos(a - each * np.sin(a)).mean() for each in x])
        wanted = (response * bessel * q).sum() * 5e-4 / (2.0 * np.pi * thickness**2) * spacing**2
        assert table[count - 1 + k, count - 1, 0] == pytest.approx(wanted, rel=0.02)
        assert table[count - 1, count - 1 - k, 1] == pytest.approx(-wanted, rel=0.02)


# Shear and twist ------------------------------------------------------------------------------------------------------


def dragged(**cfg: Any) -> tuple[sn.TensorEngine, sn.Scene, sn.ElastomerTaxel]:
    """Return a scene with a ball just pressed 1 mm deep into a pad with shear only."""
    engine = engine_of()
    press(engine, 1e-3)
    scene, gel = elastomer(
        engine, **{"probe_local_pos": grid(15, 15), "n_sample_points": 4000, "dilate_scale": 0.0, **cfg}
    )
    scene.update()
    assert not gel.data.any()  # nothing has been dragged yet
    return engine, scene, gel


def test_drag_shears_along_its_direction_most_under_the_contact() -> None:
    engine, scene, gel = dragged(lambda_s=2e5)
    press(engine, 1e-3, 2e-4)
    scene.update()
    field = numpy(gel.data)[0]
    assert (field[..., 0] > 0.0).all() and not field[..., 2].any()
    assert np.abs(field[..., 1]).max() < 1e-3 * field[..., 0].max()
    assert np.unravel_index(field[..., 0].argmax(), (15, 15)) == (7, 7)


def test_drag_equals_the_integral_over_the_cap() -> None:
    """Area weights: the sum is the integral of h exp(-lambda r^2) over the sphere's cap times the drag, within 2 %."""
    engine, scene, gel = dragged(n_sample_points=40000, area_weighted=True, lambda_s=3e4)
    press(engine, 1e-3, 1e-4)
    scene.update()
    polar, turn = np.meshgrid(
        (np.arange(400) + 0.5) * np.arccos(0.9) / 400, (np.arange(100) + 0.5) * 2 * np.pi / 100, indexing="ij"
    )
    x, y = RADIUS * np.sin(polar) * np.cos(turn) + 1e-4, RADIUS * np.sin(polar) * np.sin(turn)
    h = RADIUS * np.cos(polar) - 0.9 * RADIUS
    area = RADIUS**2 * np.sin(polar) * (np.arccos(0.9) / 400) * (2 * np.pi / 100)
    for row, column in ((7, 7), (9, 7), (4, 10)):
        p = grid(15, 15)[row, column]
        far = (p[0] - x) ** 2 + (p[1] - y) ** 2 + h**2
        wanted = 1e-4 * (h * area * np.exp(-3e4 * far)).sum()
        assert float(gel.data[0, row, column, 0]) == pytest.approx(wanted, rel=0.02)


def test_pure_twist_gives_a_rotational_field() -> None:
    """Twist moves the skin around the centre, along z x r, in the same direction everywhere; the centre rests."""
    engine, scene, gel = dragged(n_sample_points=40000)
    press(engine, 1e-3, angle=0.01)
    scene.update()
    field, places = numpy(gel.data)[0], grid(15, 15)
    around = np.cross(UP, places)
    sense = (field * around).sum(axis=-1)
    assert (np.delete(sense.ravel(), 112) > 0.0).all()
    radial = np.abs((field * places).sum(axis=-1))
    assert (radial < 0.06 * sense + 1e-3 * sense.max()).all()
    assert np.linalg.norm(field[7, 7]) < 0.02 * np.linalg.norm(field, axis=-1).max()
    press(engine, 1e-3, angle=-0.01)
    scene.update()
    np.testing.assert_allclose(numpy(gel.data)[0], -field, atol=0.02 * np.abs(field).max())


def test_press_drag_and_twist_together_are_the_sum_of_dilation_and_shear() -> None:
    fields = []
    for scales in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        engine = engine_of()
        scene, gel = elastomer(
            engine, probe_local_pos=grid(11, 11), dilate_scale=scales[0], shear_scale=scales[1],
            compressibility=0.5, n_sample_points=2000,
        )  # fmt: skip
        for k in range(4):
            press(engine, 1e-3 + 2e-4 * k, 2e-4 * k, 0.0, 0.1 * k)
            scene.update()
        fields.append(gel.data.clone())
    assert fields[0].any() and fields[1].any()
    assert_near(fields[2], numpy(fields[0]) + numpy(fields[1]), 1e-6)


def test_visual_copy_of_a_shape_changes_nothing() -> None:
    """An object with identical collision and visual boxes presses and drags the same as an object with one box."""
    fields, counts = [], []
    for names in (("brick",), ("brick", "look")):
        box = [sn.engines.Shape("box", name, (0.004, 0.003, 0.004), body="ball") for name in names]
        engine = engine_of([*box, sn.engines.Shape("sphere", "knob", (0.002,), pos=(0.0, 0.0, 0.004), body="ball")])
        scene, gel = elastomer(engine, n_sample_points=400)
        for x in (0.0, 3e-4):
            engine.body_pos_w[:, 1] = torch.tensor([x, 0.0, 0.003])
            scene.update()
        fields.append(gel.data.clone())
        counts.append(len(gel.sample_points["ball"]))
    assert counts[0] == pytest.approx(400, abs=12) and counts[1] == pytest.approx(400, abs=12)
    assert_near(fields[1], numpy(fields[0]), 0.05)  # the points have other positions


def test_shear_vanishes_on_return() -> None:
    """A sliding ball keeps its points: back at its start, all points are where they entered."""
    engine, scene, gel = dragged()
    for x, y in ((1e-4, 0.0), (3e-4, -2e-4), (0.0, 0.0)):
        press(engine, 1e-3, x, y)
        scene.update()
        assert bool(gel.data.any()) == (x > 0.0)


def test_anchors_hold_up_to_the_release_gap() -> None:
    """After a lift by less than 0.1 mm the points keep their entry positions; after a larger lift they do not."""
    for gap, remembers in ((5e-5, True), (2e-4, False)):
        engine, scene, gel = dragged()
        press(engine, 1e-3, 2e-4)
        scene.update()
        before = float(gel.data[0, 7, 7, 0])
        press(engine, -gap, 2e-4)
        scene.update()
        assert not gel.data.any()
        press(engine, 1e-3, 2e-4)
        scene.update()
        after = float(gel.data[0, 7, 7, 0])
        if not remembers:
            assert not gel.data.any()
        else:  # of a cap, only its lowest part stayed so near the skin
            assert 0.0 < after < 0.5 * before


def test_points_leaving_the_pad_sideways_detach() -> None:
    engine, scene, gel = dragged()
    for x in (0.03, 0.0):
        press(engine, 1e-3, x)
        scene.update()
        assert not gel.data.any()


def test_point_sticks_from_the_threshold_on() -> None:
    """A drag at half the threshold depth, before a deeper press, is not sensed."""
    engine = engine_of()
    scene, gel = elastomer(engine, dilate_scale=0.0, contact_threshold=5e-4, n_sample_points=4000)
    for depth, x in ((2.5e-4, 0.0), (2.5e-4, 3e-4), (1e-3, 3e-4)):
        press(engine, depth, x)
        scene.update()
        assert not gel.data.any()
    press(engine, 1e-3, 4e-4)
    scene.update()
    assert gel.data[0, 4, 4, 0] > 0.0


def test_points_slip_beyond_max_shear_and_reverse_immediately() -> None:
    """For a flat block all points are alike: the field follows the drag up to 0.2 mm, then stays constant."""
    block = sn.engines.Shape("box", "block", (0.002, 0.002, 0.002), body="ball")
    engine = engine_of([block])
    scene, gel = elastomer(engine, dilate_scale=0.0, max_shear=2e-4, lambda_s=0.0, release=-1.0)
    levels = []
    for x in (0.0, 1e-4, 2e-4, 4e-4, 8e-4, 7e-4):
        engine.body_pos_w[:, 1] = torch.tensor([x, 0.0, 0.002 - 1e-3])
        scene.update()
        levels.append(float(gel.data[0, 4, 4, 0]))
    np.testing.assert_allclose(np.array(levels) / levels[1], [0.0, 1.0, 2.0, 2.0, 2.0, 1.0], atol=2e-3)


def test_contact_at_the_back_does_not_drag_the_front() -> None:
    """A ball 1 mm deep in the back of a 6 mm finger has points below the front skin, which are not sensed."""
    engine = engine_of([BALL, sn.engines.Shape("box", "finger", (0.01, 0.01, 0.003), pos=(0, 0, -0.003), body="pad")])
    scene, gel = elastomer(engine, probe_local_pos=grid(15, 15))
    for x in (0.0, 5e-4):
        engine.body_pos_w[:, 1] = torch.tensor([x, 0.0, -0.006 - RADIUS + 1e-3])
        scene.update()
    assert not gel.data.any()


def test_reading_is_in_the_links_frame() -> None:
    fields = []
    for quat, pos in (((1.0, 0.0, 0.0, 0.0), np.zeros(3)), ((0.1, 0.7, -0.1, 0.7), np.array([0.05, -0.04, 0.03]))):
        quat = np.asarray(quat) / np.linalg.norm(quat)
        engine = engine_of()
        scene, gel = elastomer(engine, n_sample_points=2000)
        for x in (0.0, 2e-4):
            place = [pos, pos + turned(quat, (x, 1e-4, RADIUS - 1e-3))]
            engine.body_pos_w[0] = torch.tensor(np.stack(place), dtype=torch.float32)
            engine.body_quat_w[0] = torch.tensor(np.stack([quat, quat]), dtype=torch.float32)
            scene.update()
        fields.append(numpy(gel.data))
    assert np.abs(fields[1] - fields[0]).max() < 2e-4 * np.abs(fields[0]).max()  # 1e-8 m of the drag of 2e-4 m


# All at once ----------------------------------------------------------------------------------------------------------


class Slow:
    """Evaluate the model in float64, point by point, from the module's description."""

    def __init__(self, places: Array, normals: Array, points: dict[str, Array], boxes: dict[str, Array]) -> None:
        self.places, self.normals, self.points, self.boxes = places, normals, points, boxes
        self.entry = {name: np.full(each.shape, np.nan) for name, each in points.items()}
        self.reach = np.sqrt(0.5) * 1e-3 * 1.001
        centre = 0.5 * (places.min(axis=0) + places.max(axis=0))
        self.deepest = np.linalg.norm(places - centre, axis=1).max() + self.reach

    def distance(self, name: str, p: Array) -> Array:
        """Return the signed distance of points in the link's frame to a box or a ball."""
        size = self.boxes[name]
        if len(size) == 1:
            return np.asarray(np.linalg.norm(p, axis=-1) - size[0])
        gap = np.abs(p) - size
        return np.asarray(np.linalg.norm(np.maximum(gap, 0.0), axis=-1) + np.minimum(gap.max(axis=-1), 0.0))

    def step(self, poses: dict[str, tuple[Array, Array]]) -> Array:
        """Return the displacements for the poses of links in the frame of the pad."""
        depth = np.zeros(len(self.places))
        shear = np.zeros(self.places.shape)
        for name, (pos, quat) in poses.items():
            depth = np.maximum(depth, -self.distance(name, back(quat, self.places - pos)))
            x = pos + turned(quat, self.points[name])
            far = ((x[:, None] - self.places) ** 2).sum(axis=-1)
            near = far.argmin(axis=1)
            n = self.normals[near]
            h = -((x - self.places[near]) * n).sum(axis=1)
            beside = np.linalg.norm(x - self.places[near] + h[:, None] * n, axis=1)
            foot = self.distance(name, back(quat, x + h[:, None] * n - pos))
            held = ~np.isnan(self.entry[name][:, 0])
            stays = np.where(held, h > -1e-4, h > 1e-5) & (beside <= self.reach) & (h <= self.deepest)
            stays &= (h <= 0.0) | (foot <= 1e-6)
            self.entry[name][stays & ~held] = x[stays & ~held]
            self.entry[name][~stays] = np.nan
            for o in np.flatnonzero(stays & (h > 0.0)):
                shear += (x[o] - self.entry[name][o]) * (h[o] * np.exp(-300.0 * far[o]))[:, None]
        shear -= (shear * self.normals).sum(axis=1)[:, None] * self.normals
        return dilation(self.places, self.normals, depth, c=0.7, e=1.6, soft=1e-3) + shear


@pytest.mark.parametrize("method", ["fft", "direct"])
def test_a_random_scene_agrees_with_a_slow_model(method: str) -> None:
    """A ball and a box press, slide, rotate and leave, at different poses of the pad in each of four envs, for 12
    ticks.
    """
    places = grid(10, 9)
    normals = np.tile(UP, (90, 1))
    box = sn.engines.Shape("box", "brick", (0.003, 0.002, 0.004), body="brick")
    engine = engine_of([BALL, box], 4, ("pad", "ball", "brick"))
    scene, gel = elastomer(
        engine, probe_local_pos=places, targets=("ball", "brick"), n_sample_points=3000, compressibility=0.7,
        normal_exponent=1.6, method=method,
    )  # fmt: skip
    points = {name: samples.points for name, samples in gel.sample_points.items()}
    sizes = {"ball": np.array([RADIUS]), "brick": np.array([0.003, 0.002, 0.004])}
    slow = [Slow(places.reshape(-1, 3), normals, points, sizes) for _ in range(4)]
    rng = np.random.default_rng(11)
    start = rng.uniform(-1e-3, 1e-3, (4, 2, 3)) + np.array([[-2e-3, 0, RADIUS - 5e-4], [2.5e-3, 0, 3.5e-3]])
    pace, spin = rng.uniform(-6e-5, 6e-5, (4, 2, 3)), rng.uniform(-0.02, 0.02, (4, 2, 3))
    most = 0.0
    for tick in range(12):
        lift = np.array([0.0, 0.0, 2e-3 if tick == 7 else 0.0])
        quat = rng.normal(size=(4, 4))
        quat /= np.linalg.norm(quat, axis=1, keepdims=True)
        wanted = []
        for env in range(4):
            poses = {}
            home = rng.uniform(-0.02, 0.02, 3)
            engine.body_pos_w[env, 0] = torch.tensor(home, dtype=torch.float32)
            engine.body_quat_w[env, 0] = torch.tensor(quat[env], dtype=torch.float32)
            home, own = numpy(engine.body_pos_w[env, 0]), numpy(engine.body_quat_w[env, 0])
            for k, name in enumerate(("ball", "brick")):
                half = 0.5 * tick * spin[env, k]
                turn = np.array([np.sqrt(1.0 - half @ half), *half])
                pos = home + turned(quat[env], start[env, k] + tick * pace[env, k] + lift)
                engine.body_pos_w[env, 1 + k] = torch.tensor(pos, dtype=torch.float32)
                both = product(quat[env], turn)
                engine.body_quat_w[env, 1 + k] = torch.tensor(both, dtype=torch.float32)
                at, way = numpy(engine.body_pos_w[env, 1 + k]), numpy(engine.body_quat_w[env, 1 + k])
                rel = product([own[0], *-own[1:]], way)
                poses[name] = (back(own, at - home), rel)
            wanted.append(slow[env].step(poses))
        scene.update()
        field = numpy(gel.data).reshape(4, 90, 3)
        most = max(most, float(np.abs(wanted).max()))
        assert np.abs(field - wanted).max() < 3e-5 * most, tick
    assert most > 0.0


# Envs, resets, imperfections ------------------------------------------------------------------------------------------


def test_a_reset_drops_the_anchors_of_its_envs_only() -> None:
    for method in ("fft", "direct"):
        engine = engine_of(envs=3)
        scene, gel = elastomer(engine, dilate_scale=0.0, method=method)
        for x in (0.0, 3e-4):
            press(engine, 1e-3, x)
            scene.update()
        before = gel.data.clone()
        assert before.abs().amax(dim=(1, 2, 3)).min() > 0.0
        scene.reset([1])
        press(engine, 1e-3, 3e-4)
        scene.update()
        after = gel.data
        assert not after[1].any() and torch.equal(after[[0, 2]], before[[0, 2]])


def test_resuming_during_a_drag_keeps_the_anchors() -> None:
    """A state saved while the ball sticks continues bit for bit in a scene that never saw the entry."""
    for method in ("fft", "direct"):
        scenes = []
        for is_fresh in (False, True):
            engine = engine_of(envs=2)
            press(engine, -1e-3 if is_fresh else 1e-3)
            scenes.append(elastomer(engine, method=method, dilate_scale=0.0))
        (scene, gel), (other, copy) = scenes
        press(scene.engine, 1e-3, 2e-4)  # type: ignore[arg-type]
        scene.update()
        other.load_state(scene.state())
        for each in (scene, other):
            press(each.engine, 1e-3, 3e-4)  # type: ignore[arg-type]
            each.update()
        assert torch.equal(gel.data, copy.data) and (gel.data[..., 0] > 0.0).all()


def test_envs_are_independent() -> None:
    """Environments are independent: three together read the same as each alone."""
    depths = torch.tensor([5e-4, 1e-3, 2e-3])
    together = engine_of(envs=3)
    scene, gel = elastomer(together, n_sample_points=2000)
    alone = [engine_of() for _ in range(3)]
    others = [elastomer(engine, n_sample_points=2000) for engine in alone]
    for x in (0.0, 2e-4):
        together.body_pos_w[:, 1] = torch.stack([torch.full((3,), x), torch.zeros(3), RADIUS - depths], dim=1)
        scene.update()
        for env, (engine, (one, _)) in enumerate(zip(alone, others, strict=True)):
            engine.body_pos_w[0, 1] = together.body_pos_w[env, 1]
            one.update()
    for env, (_, each) in enumerate(others):
        assert each.data.any() and torch.equal(each.data[0], gel.data[env])


def test_imperfections_do_not_affect_the_truth() -> None:
    fields = []
    for extra in ({}, {"noise": 1e-4, "bias": (1e-4, 0.0, 0.0), "resolution": 1e-5}):
        engine = engine_of()
        scene, gel = elastomer(engine, **extra)
        for x in (0.0, 2e-4):
            press(engine, 1e-3, x)
            scene.update()
        fields.append(gel.ground_truth.clone())
    assert torch.equal(*fields) and not torch.equal(gel.data, gel.ground_truth)


def test_shape_without_pose_invalidates_the_sample() -> None:
    engine = engine_of(envs=2)
    press(engine, 1e-3)
    scene, gel = elastomer(engine)
    engine.body_pos_w[1, 1] = float("nan")
    with pytest.warns(UserWarning, match="ball"):
        scene.update()
        valid = gel.valid.tolist()
        scene.update()
    assert valid == [True, False]


def tumbling_over_ground(num_envs: int) -> sn.TensorEngine:
    """Return the tumbling body, and a static block around it."""
    plain = tumbling_engine(num_envs)
    return sn.TensorEngine(
        num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
        shapes=[sn.engines.Shape("sphere", "ground", (0.3,))], provides=("pose", "velocity", "acceleration", "gravity"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [{}, {"method": "fft", "noise": 1e-3}, pytest.param({"shear_scale": 0.0, "noise": 1e-3}, marks=pytest.mark.full)],
)
def test_contract_holds(given: dict[str, Any]) -> None:
    places: Any = grid(8, 9, 0.05) if given.get("method") == "fft" else ((0.1, 0.0, 0.0), (0.0, 0.3, -0.1))
    cfg = sn.ElastomerTaxelCfg.example().replace(probe_local_pos=places, **given)
    assert len(check_sensor(cfg, engine=tumbling_over_ground)) > 15


def test_config_round_trips_through_json() -> None:
    cfg = sn.ElastomerTaxelCfg(body="pad", targets="ball", probe_local_pos=grid(3, 3), compressibility=0.5)
    assert cfg.targets == "ball" and sn.ElastomerTaxelCfg.from_json(cfg.to_json()) == cfg


# Bad input ------------------------------------------------------------------------------------------------------------


def bent() -> Array:
    places = grid(4, 5)
    places[2, 3, 2] = 4e-4
    return places


def slanted() -> Array:
    places = grid(4, 5)
    places[..., 0] += 0.1 * places[..., 1]
    return places


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"probe_local_normal": (0.0, 0.0, 0.0)}, "probe_local_normal.*length 0"),
        ({"lambda_d": -1.0}, "lambda_d.*>= 0"),
        ({"lambda_s": float("nan")}, "lambda_s.*>= 0"),
        ({"dilate_scale": -1.0}, "dilate_scale.*>= 0"),
        ({"shear_scale": -1.0}, "shear_scale.*>= 0"),
        ({"normal_exponent": 0.9}, "normal_exponent.*>= 1"),
        ({"compressibility": 1.1}, "compressibility.*from 0"),
        ({"compressibility": 0.5, "lambda_d": 0.0}, "lambda_d.*above 0 if compressibility"),
        ({"elastomer_thickness": -1e-3}, "elastomer_thickness.*>= 0"),
        ({"elastomer_thickness": 1e-3, "probe_local_pos": grid(3, 3)[0]}, "regular plane grid, and it is a list of 3"),
        ({"release": 1e-3}, "release.*up to contact_threshold"),
        ({"max_shear": 0.0}, "max_shear.*above 0"),
        ({"n_sample_points": 0}, "n_sample_points.*points from 1 to 10000000"),
        ({"n_sample_points": 10**8}, "n_sample_points.*points from 1 to 10000000"),
        ({"probe_radius_noise": 1e-3}, "probe_radius_noise.*do not depend on a radius"),
        ({"targets": None}, "targets.*shear_scale=0"),
        ({"method": "fft", "probe_local_pos": grid(3, 3)[0]}, "method.*a list of 3 probes"),
        ({"method": "fft", "probe_local_pos": grid(1, 1)}, "method.*one probe"),
        ({"method": "fft", "probe_local_pos": bent()}, r"probe \[2, 3\] is 0.0004 m off"),
        ({"method": "fft", "probe_local_pos": slanted()}, r"at 84\.29 degrees"),
        ({"method": "fft", "probe_local_pos": np.zeros((3, 3, 3))}, "start at the same place"),
        ({"method": "quick"}, "method"),
    ],
)
def test_bad_values_are_refused_with_the_reason(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        sn.ElastomerTaxelCfg(**{"body": "pad", "targets": "ball", "probe_local_pos": grid(4, 5), **given})


def test_an_unbounded_plane_presses_but_cannot_drag() -> None:
    """The shape has no points, so it is rejected as the only tracked link, unless shear is disabled."""
    engine = engine_of([sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, 0.001))])
    with pytest.raises(sn.ConfigError, match=r"ground.*bounded surface.*shear_scale=0"):
        elastomer(engine, targets="ground")
    scene, gel = elastomer(engine, targets="ground", shear_scale=0.0)
    scene.update()
    assert (gel.data[..., 2] > 0.0).all()


def test_too_many_points_are_refused_by_name() -> None:
    """A spacing with a wrong unit is rejected: 1e-7 m on a ball of 12.6 square centimetres."""
    with pytest.raises(
        sn.ConfigError, match=r"Cfg\('gel'\).sample_spacing: got 1e-07, .*not 1.26e\+11, on .*0.00126 m"
    ):
        elastomer(engine_of(), sample_spacing=1e-7)


def test_table_parameters_cannot_be_set_at_run_time() -> None:
    for method in ("fft", "direct"):
        scene, gel = elastomer(engine_of(), method=method, shear_scale=0.0)
        for knob in ("lambda_d", "compressibility", "shear_scale", "elastomer_thickness", "n_sample_points"):
            with pytest.raises(sn.ConfigError, match=rf"{knob}.*reconfigure"):
                gel.set(knob, 1.0)
        with pytest.raises(sn.ConfigError, match="exponent >= 1"):
            gel.set("normal_exponent", 0.5)
        del scene


# In MuJoCo ------------------------------------------------------------------------------------------------------------

PRESS = """
<mujoco>
  <option timestep="0.001" gravity="0 0 0"/>
  <default><geom solref="-2000 -60" solimp="0.9 0.9 0.001" friction="1 0.005 0.0001"/></default>
  <worldbody>
    <body name="pad" pos="0.1 0 0.02" quat="0.6 0 0 0.8">
      <geom name="pad" type="box" size="0.015 0.015 0.01" pos="0 0 -0.01"/>
    </body>
    <body name="ball" pos="0.1 0 0.0305">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="lift" type="slide" axis="0 0 1"/>
      <joint name="spin" type="hinge" axis="0 0 1"/>
      <geom name="ball" size="0.01" mass="0.05"/>
    </body>
  </worldbody>
  <actuator><motor joint="x"/><motor joint="lift"/><motor joint="spin"/></actuator>
</mujoco>
"""


def test_in_mujoco_a_pressed_ball_drags_the_skin_along() -> None:
    """Pressed with 2 N, pushed along world x below the friction bound, the field is along x, in the pad's axes."""
    scene = sn.Scene(
        sn.MujocoEngine(PRESS, num_envs=2),
        [gel := sn.ElastomerTaxelCfg(name="gel", body="pad", targets="ball", probe_local_pos=grid(15, 15),
                                     n_sample_points=4000)],
    )  # fmt: skip
    for k in range(400):
        push = torch.tensor([[0.0, -2.0, 0.0], [0.3 if k > 200 else 0.0, -2.0, 0.0]])
        scene.step(push)
    field = numpy(scene[gel].ground_truth)
    assert field[0, ..., 2].max() > 0.0 and (field[0, 7, 7, 2] == field[0, ..., 2].max())
    change = field[1] - field[0]
    mean = turned((0.6, 0.0, 0.0, 0.8), change.reshape(-1, 3).mean(axis=0))
    assert mean[0] > 0.0 and abs(mean[1]) < 0.1 * mean[0]
