"""`TrajectoryEngine`: IMU data that integrate to the trajectory, scans that lie on the world, and its rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.surfaces import nearest_on_triangles
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.demo import hall
from sensorium.errors import ArgumentError, MissingDependencyError, ModelError, ScheduleError
from sensorium.testing import check_engine

PERIOD = 12.0


def figure_eight(seconds: float, rate: float = 50.0, shift: float = 0.0) -> sn.Trajectory:
    """Return a banked flight along a figure-eight, with random signs of the quaternions.

    Args:
        seconds: duration, s.
        rate: poses per second.
        shift: height added to the path, m.
    """
    times = np.arange(0.0, seconds + 0.5 / rate, 1.0 / rate)
    a = 2.0 * np.pi * times / PERIOD
    pos = np.stack([8.0 * np.sin(a), 4.0 * np.sin(2.0 * a), 2.0 + shift + 0.5 * np.sin(3.0 * a)], axis=1)
    heading = np.unwrap(np.arctan2(8.0 * np.cos(2.0 * a), 8.0 * np.cos(a)))
    angles = np.stack([heading, 0.2 * np.sin(3.0 * a), 0.5 * np.sin(a) + 0.1 * np.sin(5.0 * a)], axis=1)
    quat = Rotation.from_euler("ZYX", angles).as_quat()[:, [3, 0, 1, 2]]
    return sn.Trajectory(times, pos, np.random.default_rng(3).choice([-1.0, 1.0], len(times))[:, None] * quat)


def test_every_rule_of_the_protocol_holds() -> None:
    paths = [figure_eight(2.0, shift=shift) for shift in (0.0, 0.3, 0.6)]

    def make(num_envs: int) -> sn.TrajectoryEngine:
        return sn.TrajectoryEngine({"drone": paths[:num_envs], "car": paths[0]}, 0.01, world=hall.shapes())

    checked = check_engine(make)
    assert {
        "velocities_move_the_bodies",
        "angular_velocities_turn_the_bodies",
        "accelerations_change_the_velocities",
        "ticks_are_counted",
        "reset_leaves_the_others",
        "a_reset_starts_anew",
        "resuming_is_exact",
    } <= set(checked)


# Inertial data --------------------------------------------------------------------------------------------------------


def test_an_integrated_imu_returns_to_the_figure_eight() -> None:
    """A strapdown integration of 60 s ends within 1e-3 m of the trajectory, and is never farther from it.

    The integration is independent of the engine: float64, gravity and the start as given, then only the IMU. A
    Runge-Kutta step of fourth order has the length of two samples, h = 10 ms each, and uses the samples at its ends and
    in its middle. Its error per second is that of Simpson's rule, h^4 / 180 times the fourth derivative of the
    acceleration, at most 4 (6 pi / 12)^4 m/s^6 here. It grows to a position error of T^2 / 2 h^4 / 180 * 24 = 2e-6 m.
    Poses are 2 samples apart, so no step contains a kink of the spline's acceleration.

    The samples are float32. Rounding of the angular rates (up to 2 rad/s, so up to 6e-8, standard deviation 3.5e-8)
    tilts the estimated gravity as a random walk. This gives sqrt(h T^5 / 20) g 3.5e-8 = 2e-4 m, the greatest part.
    Rounding of the specific forces adds 1e-5 m.
    """
    rate, seconds = 100.0, 60.0
    path, gravity = figure_eight(seconds), np.array([0.0, 0.0, -9.81])
    scene = sn.Scene(
        sn.TrajectoryEngine(path, 1.0 / rate),
        [imu := sn.ImuCfg(body="body", fields=("ang_vel_b", "lin_acc_b"))],
    )
    samples = [torch.cat([scene[imu].data.ang_vel_b, scene[imu].data.lin_acc_b], dim=1)[0].clone()]
    for _ in range(round(rate * seconds)):
        scene.step()
        samples.append(torch.cat([scene[imu].data.ang_vel_b, scene[imu].data.lin_acc_b], dim=1)[0].clone())
    measured = torch.stack(samples).double().numpy()

    def slope(state: np.ndarray, sample: np.ndarray) -> np.ndarray:
        w, x, y, z = state[6:]
        a, b, c = sample[:3]
        turn = 0.5 * np.array(
            [-x * a - y * b - z * c, w * a + y * c - z * b, w * b + z * a - x * c, w * c + x * b - y * a]
        )
        u = 2.0 * np.cross([x, y, z], sample[3:])
        force = sample[3:] + w * u + np.cross([x, y, z], u)
        return np.concatenate([state[3:6], force + gravity, turn])

    start = path.at(0.0)
    state, step = np.concatenate([start.pos[0], start.lin_vel[0], start.quat[0]]), 2.0 / rate
    found = [state[:3]]
    for k in range(0, len(measured) - 1, 2):
        k1 = slope(state, measured[k])
        k2 = slope(state + 0.5 * step * k1, measured[k + 1])
        k3 = slope(state + 0.5 * step * k2, measured[k + 1])
        k4 = slope(state + step * k3, measured[k + 2])
        state = state + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        state[6:] /= np.linalg.norm(state[6:])
        found.append(state[:3])
    true = path.at(np.arange(len(found)) * step).pos
    error = np.linalg.norm(np.array(found) - true, axis=1)
    assert np.linalg.norm(true, axis=1).max() > 7.0
    assert error.max() < 1e-3


ARRAYS = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w")


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "uncaptured"])
def test_state_has_the_bits_of_the_path_at_the_tick(capture: bool) -> None:
    """For any number of ticks per step, after resets and in a resumed engine, as NumPy computes it in float64.

    Each environment has its own paths, some with turns of 150 degrees between two poses and with poses of uneven times.
    The last tick exceeds the end of the shortest path by less than rounding errors.
    """
    rng = np.random.default_rng(7)
    times, angles = (
        np.array([0.0, 0.1, 0.35, 0.9, 1.0, 1.3, 1.5]),
        np.radians([0.0, 150.0, 20.0, -120.0, 0.0, 60.0, 9.0]),
    )
    jagged = (times, rng.normal(size=(7, 3)), Rotation.from_rotvec(angles[:, None] * [0.36, 0.48, 0.8]).as_quat())
    paths = {
        "drone": [figure_eight(3.0), sn.Trajectory(*jagged), figure_eight(1.5, 20.0, 0.3)],
        "car": [path := figure_eight(2.5, shift=-1.0), path, figure_eight(6.0, 10.0)],
    }
    engine, resumed = (sn.TrajectoryEngine(paths, 0.003) for _ in range(2))
    engine.capture(capture)
    starts, found, at = np.zeros(3, dtype=int), [], []
    for ticks in [*rng.integers(1, 9, 40).tolist(), *[1] * 40, *[50] * 9, *[7] * 60]:
        if ticks > engine.ticks_left:
            engine.reset(ends := [env for env, start in enumerate(starts) if engine.tick + ticks - start > 500])
            starts[ends] = engine.tick
        engine.step(None, ticks)
        resumed.load_state(engine.state())
        resumed.forward()
        found.append([torch.cat([each.array(name) for name in ARRAYS], dim=2).numpy() for each in (engine, resumed)])
        at.append((engine.tick - starts) * 0.003)
    assert engine.tick > 1000 and starts.min() > 0
    for env, body in np.ndindex(3, 2):
        path = list(paths.values())[body][env]
        expected = np.concatenate(path.at(np.minimum(np.array(at)[:, env], path.duration)), axis=1).astype(np.float32)
        for each in (0, 1):
            np.testing.assert_array_equal(np.array(found)[:, each, env, body], expected)


def test_a_last_tick_that_exceeds_the_end_by_rounding_has_the_last_pose() -> None:
    """The third tick is 0.09 us after the last pose, where the body stops from 1000 m/s^2."""
    times = np.array([0.0, 0.1, 0.2, 0.3 - 9e-8])
    path = sn.Trajectory(times, 500.0 * (times[:, None] - [0.3, 0.4, 0.5]) ** 2, np.tile([1.0, 0.0, 0.0, 0.0], (4, 1)))
    engine = sn.TrajectoryEngine(path, 0.1, sites={"tip": ("body", (0.5, 0.0, 0.0))})
    engine.step(None, 3)
    for name, value in zip(ARRAYS, path.at(path.duration), strict=True):
        np.testing.assert_array_equal(engine.array(name)[0].numpy(), value.astype(np.float32))
    assert engine.names("site") == ("tip",) and engine.ticks_left == 0


# Environments and time ------------------------------------------------------------------------------------------------


def test_each_environment_has_its_own_path() -> None:
    paths = [figure_eight(2.0, shift=shift) for shift in (0.0, 1.0)]
    engine = sn.TrajectoryEngine(paths, 0.01)
    assert engine.num_envs == 2 and engine.names("body") == ("body",)
    engine.step(None, 50)
    np.testing.assert_allclose(engine.body_pos_w[:, 0, 2] - paths[0].at(0.5).pos[0, 2], [0.0, 1.0], atol=1e-6)


def test_one_path_serves_several_environments_and_bodies_have_names() -> None:
    path = figure_eight(2.0)
    engine = sn.TrajectoryEngine({"drone": path, "car": (path.times, path.pos + 5.0, path.quat)}, 0.01, num_envs=3)
    assert engine.names("body") == ("drone", "car") and engine.body_pos_w.shape == (3, 2, 3)
    np.testing.assert_allclose((engine.body_pos_w[:, 1] - engine.body_pos_w[:, 0]).numpy(), 5.0, atol=1e-6)


def test_a_world_without_a_magnetic_field_says_how_to_give_one() -> None:
    """The advice works: a field of the sensor, fewer fields, or a field of the engine."""
    engine = sn.TrajectoryEngine(figure_eight(1.0), 0.001)
    device = sn.preset("adis16448", body="body")
    with pytest.raises(sn.UnsupportedError, match=r"Give the sensor magnetic_field=.* or fields without mag_b, or the"):
        sn.Scene(engine, [device])
    sn.Scene(engine, [device.replace(magnetic_field=(0.2, 0.0, -0.4))])
    sn.Scene(engine, [sn.preset("adis16448", body="body", fields=("ang_vel_b", "lin_acc_b"))])
    sn.Scene(sn.TrajectoryEngine(figure_eight(1.0), 0.001, magnetic=(0.2, 0.0, -0.4)), [device])


def test_a_step_beyond_the_end_raises_and_changes_nothing() -> None:
    scene = sn.Scene(sn.TrajectoryEngine([figure_eight(1.0), figure_eight(0.5)], 0.01), [sn.ImuCfg(body="body")])
    engine: Any = scene.engine
    assert engine.duration == pytest.approx(0.5) and engine.ticks_left == 50
    scene.step(substeps=48)
    before = engine.body_pos_w.clone()
    with pytest.raises(ScheduleError, match=r"env 1 ends 0\.5 s after its start, 2 ticks from now; got 3 ticks"):
        engine.step(None, 3)
    assert engine.tick == 48 and torch.equal(engine.body_pos_w, before)
    scene.step(substeps=2)
    with pytest.raises(ScheduleError, match=r"scene\.reset\(\[1\]\)"):
        scene.step()
    scene.reset([1])
    scene.step(substeps=50)
    with pytest.raises(ScheduleError, match="env 0"):
        scene.step()


def test_a_reset_restarts_the_paths_of_its_environments() -> None:
    path = figure_eight(2.0)
    engine = sn.TrajectoryEngine(path, 0.01, num_envs=3)
    engine.step(None, 70)
    engine.reset(torch.tensor([False, True, False]), {})
    expected = path.at([0.7, 0.0, 0.7]).pos
    np.testing.assert_allclose(engine.body_pos_w[:, 0].numpy(), expected, atol=1e-6)
    engine.step(None, 20)
    np.testing.assert_allclose(engine.body_pos_w[:, 0].numpy(), path.at([0.9, 0.2, 0.9]).pos, atol=1e-6)
    assert engine.ticks_left == 110


def test_a_saved_state_contains_the_starts_of_the_paths() -> None:
    path = figure_eight(2.0)
    engine, other = (sn.TrajectoryEngine(path, 0.01, num_envs=2) for _ in range(2))
    engine.step(None, 30)
    engine.reset([1])
    saved = engine.state()
    engine.step(None, 40)
    other.load_state(saved)
    other.step(None, 40)
    assert torch.equal(other.body_pos_w, engine.body_pos_w) and other.ticks_left == engine.ticks_left
    np.testing.assert_allclose(other.body_pos_w[:, 0].numpy(), path.at([0.7, 0.4]).pos, atol=1e-6)


def test_a_reset_writes_gravity_but_not_what_the_path_defines() -> None:
    engine = sn.TrajectoryEngine(figure_eight(1.0), 0.01, num_envs=2)
    engine.reset([1], {"gravity_w": (0.0, 0.0, -1.62)})
    np.testing.assert_allclose(engine.gravity_w[:, 2].numpy(), [-9.81, -1.62], atol=1e-6)
    with pytest.raises(ArgumentError, match="'body_pos_w', which the trajectory defines"):
        engine.reset([1], {"body_pos_w": 0.0})


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"trajectory": [figure_eight(1.0)] * 2, "num_envs": 3}, "one for each of 3 envs"),
        ({"trajectory": {"a": [figure_eight(1.0)] * 2, "b": [figure_eight(1.0)] * 3}}, "'a': 2, 'b': 3"),
        ({"trajectory": {}}, "at least one|expected one trajectory"),
        ({"trajectory": []}, "empty list"),
        ({"trajectory": 3.0}, "expected a Trajectory, a path, or"),
        ({"trajectory": figure_eight(1.0), "dt": 0.0}, "dt: got 0.0"),
        ({"trajectory": figure_eight(1.0), "num_envs": 0}, "num_envs: got 0"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(ArgumentError, match=part):
        sn.TrajectoryEngine(**arguments)


# World ----------------------------------------------------------------------------------------------------------------


def off(points: np.ndarray, world: tuple[sn.engines.Shape, ...]) -> float:
    """Return the greatest distance of points from the surface of a world, in float64, m."""
    corners = np.concatenate([shape.mesh.vertices[shape.mesh.faces] for shape in world if shape.mesh is not None])
    points = points.astype(np.float64)
    foot, _ = nearest_on_triangles(points, corners)
    return float(np.linalg.norm(points - foot, axis=1).max())


@pytest.mark.parametrize("path", [hall.drone(), hall.car()], ids=["drone", "car"])
def test_lidar_points_lie_on_the_hall(path: sn.Trajectory) -> None:
    """True points lie on the hall; measured ones do as well, placed by the pose at the time of each ray.

    Each environment has a part of the path.
    """
    world, starts = hall.shapes(), np.linspace(0, len(path.times) - 21, 3).astype(int)
    parts = [sn.Trajectory(*(each[k : k + 21] for each in (path.times, path.pos, path.quat))) for k in starts]
    fields = ("distances", "points_b", "points_w", "time_offset")
    lidar = sn.LidarCfg(body="body", max_distance=60.0, rate_hz=10.0, fields=fields)
    scene = sn.Scene(sn.TrajectoryEngine(parts, 0.002, world=world), [lidar])
    scene.step(substeps=300)
    rng, points = np.random.default_rng(1), []
    for env, part in enumerate(parts):
        true, measured = (scene[lidar].point_cloud(env, measured=each) for each in (False, True))
        assert len(true["points_w"]) > 10_000
        points.append(true["points_w"][rng.choice(len(true["points_w"]), 200, replace=False)])
        rows = rng.choice(len(measured["points_b"]), 200, replace=False)
        motion = part.at(scene.time + measured["time_offset"][rows].astype(np.float64))
        turn = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]])
        points.append(motion.pos + turn.apply(measured["points_b"][rows]))
    assert off(np.concatenate(points), world) < 1e-4


@pytest.mark.parametrize("ending", ["obj", "stl", "ply"])
def test_a_world_from_a_mesh_file_is_that_of_its_triangles(ending: str, tmp_path: Path) -> None:
    world = hall.shapes(seed=4)
    corners = {shape.name: shape.mesh.vertices[shape.mesh.faces] for shape in world if shape.mesh is not None}
    path, every = tmp_path / f"hall.{ending}", np.concatenate(list(corners.values()))
    if ending == "obj":
        hall.write_obj(world, path)
    elif ending == "stl":
        record = np.zeros(len(every), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("flags", "<u2")])
        record["corners"] = every
        path.write_bytes(bytes(80) + np.uint32(len(every)).tobytes() + record.tobytes())
    else:
        lines = ["ply", "format ascii 1.0", f"element vertex {3 * len(every)}", "property double x"]
        lines += ["property double y", "property double z", f"element face {len(every)}"]
        lines += ["property list uchar int vertex_indices", "end_header"]
        lines += [f"{x!r} {y!r} {z!r}" for x, y, z in every.reshape(-1, 3).tolist()]
        lines += [f"3 {3 * row} {3 * row + 1} {3 * row + 2}" for row in range(len(every))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shapes = sn.TrajectoryEngine(figure_eight(1.0), world=path).shapes()
    assert {shape.name for shape in shapes} == (set(corners) if ending == "obj" else {"hall"})
    for shape in shapes:
        assert shape.is_static and shape.mesh is not None
        expected = corners[shape.name] if ending == "obj" else every
        np.testing.assert_allclose(shape.mesh.vertices[shape.mesh.faces], expected, atol=2e-6)


def test_a_world_from_a_model_has_its_shapes(tmp_path: Path) -> None:
    path = tmp_path / "world.xml"
    text = """<mujoco><worldbody>
      <geom name="ground" type="plane" size="0 0 1"/>
      <body name="shelf" pos="1 2 0" euler="0 0 90"><geom name="box" type="box" size=".1 .2 .3" pos="1 0 0"/>{}</body>
    </worldbody></mujoco>"""
    path.write_text(text.format(""), encoding="utf-8")
    ground, box = sn.TrajectoryEngine(figure_eight(1.0), world=path).shapes()
    assert (ground.kind, box.kind, box.body, box.is_static) == ("plane", "box", -1, True)
    np.testing.assert_allclose(box.pos, [1.0, 3.0, 0.0], atol=1e-12)
    path.write_text(text.format("<joint name='hinge'/>"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"world\.xml.*moving parts \(hinge\)"):
        sn.TrajectoryEngine(figure_eight(1.0), world=path)


def test_files_that_are_no_world(tmp_path: Path) -> None:
    path = figure_eight(1.0)
    with pytest.raises(ModelError, match="does not exist"):
        sn.TrajectoryEngine(path, world=tmp_path / "hall.obj")
    (tmp_path / "hall.dae").write_bytes(b"")
    with pytest.raises(ModelError, match=r"hall\.dae.*ending '\.dae'.*\.obj"):
        sn.TrajectoryEngine(path, world=tmp_path / "hall.dae")
    triangle = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"
    for number, (text, part) in enumerate(
        [
            ("nothing\n", "no triangles"),
            (triangle, "no triangles"),
            (triangle + "f 1 2 9\n", "cannot be read"),
            (triangle.replace("1 0 0", "nan 0 0") + "f 1 2 3\n", "not finite"),
            (triangle.replace("0 1 0", "2 0 0") + "f 1 2 3\n", "degenerate"),
        ]
    ):
        file = tmp_path / f"broken_{number}.obj"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match=f"(?s)world file .*broken_{number}.obj.*{part}"):
            sn.TrajectoryEngine(path, world=file)


def test_a_mesh_file_without_trimesh_names_the_line_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trimesh", None)
    (tmp_path / "hall.obj").write_text("v 0 0 0\n", encoding="utf-8")
    with pytest.raises(MissingDependencyError, match=r"hall\.obj.*pip install 'sensorium\[mesh\]'"):
        sn.TrajectoryEngine(figure_eight(1.0), world=tmp_path / "hall.obj")


def test_a_shape_moves_with_its_body() -> None:
    ball = sn.engines.Shape("sphere", "ball", (0.2,), body="body")
    beam = sn.RayCasterCfg(body="world", pattern=sn.patterns.GridPatternCfg(size=(0.0, 0.0), direction=(0.0, 0.0, 1.0)))
    scene = sn.Scene(sn.TrajectoryEngine(figure_eight(1.0), 0.01, world=[ball]), [beam])
    assert scene[beam].data.distances[0, 0].item() == pytest.approx(1.8, abs=1e-5)
    scene.step(substeps=20)
    assert torch.isinf(scene[beam].data.distances[0, 0])
