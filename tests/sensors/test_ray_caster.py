"""The ray caster, checked against geometry derived by hand, the float64 reference, and MuJoCo's rays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference.rays import reference_cast
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.compat.genesis import GridPattern, Raycaster
from sensorium.compat.mjlab import RayCastSensorCfg
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
INF = float("inf")
EPS = 2.0**-24
"""Half a unit in the last place of float32, relative."""
DOWN = (0.0, 0.0, -1.0)
IDENTITY = (1.0, 0.0, 0.0, 0.0)


class GivenPatternCfg(sn.patterns.PatternBaseCfg):
    """Explicitly listed rays."""

    starts: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 0.0),)
    """Starts, m."""
    directions: tuple[tuple[float, float, float], ...] = (DOWN,)
    """Directions."""

    def func(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rays."""
        starts, directions = (torch.tensor(rows, device=device) for rows in (self.starts, self.directions))
        return starts, directions


RAY = GivenPatternCfg()
"""One ray, straight down."""


def rays(*pairs: tuple[Sequence[float], Sequence[float]]) -> GivenPatternCfg:
    """Return a pattern of (start, direction) pairs."""
    return GivenPatternCfg(starts=[start for start, _ in pairs], directions=[direction for _, direction in pairs])


def turn(axis: str, degrees: float) -> tuple[float, ...]:
    """Return a quaternion (w, x, y, z); several rotations about body axes are applied one after the other."""
    return tuple(Rotation.from_euler(axis.upper(), degrees, degrees=True).as_quat(scalar_first=True).tolist())


def engine_of(
    shapes: Sequence[sn.engines.Shape], poses: Mapping[str, Sequence[Any]] | None = None, envs: int = 1, **kwargs: Any
) -> sn.TensorEngine:
    """Return an engine with bodies at poses: name to (position,) or (position, quaternion)."""
    poses = {"base": ((0.0, 0.0, 2.0),)} if poses is None else poses
    engine = sn.TensorEngine(envs, kwargs.pop("dt", 0.01), bodies=tuple(poses), shapes=shapes, **kwargs)
    for k, (pos, *quat) in enumerate(poses.values()):
        engine.body_pos_w[:, k] = torch.tensor(pos)
        engine.body_quat_w[:, k] = torch.tensor(quat[0] if quat else IDENTITY)
    return engine


GROUND = sn.engines.Shape("plane", "ground")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def scene_of(
    engine: sn.engines.Engine, seed: int = 0, kind: type[sn.SensorCfg[Any]] = sn.RayCasterCfg, **fields: Any
) -> sn.Scene:
    """Return a scene with one ray caster "rays", by default with one ray down from the body "base"."""
    selectors = {"sites", "site", "bodies", "body", "geom", "geoms", "prim_path", "frame", "frames"}
    mount = {} if selectors & {*fields} else {"body": "base"}
    return sn.Scene(engine, [kind(**{"name": "rays", "pattern": RAY, **mount, **fields})], seed=seed)


def data_of(engine: sn.engines.Engine, **fields: Any) -> sn.RayCasterData:
    """Return what one ray caster measures."""
    data: sn.RayCasterData = scene_of(engine, **fields)["rays"].data
    return data


# Boxes as Isaac Lab's tests have them ---------------------------------------------------------------------------------

CORNERS = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-0.5, 0.5)])
FACES = [[1, 3, 0], [4, 1, 0], [0, 3, 2], [2, 4, 0], [1, 7, 3], [5, 1, 4],
         [5, 7, 1], [3, 7, 2], [6, 4, 2], [2, 7, 6], [6, 5, 4], [7, 5, 6]]  # fmt: skip
BOX = sn.engines.Mesh(CORNERS, FACES, "box")
"""A box of 2 x 2 x 1 m, its faces in trimesh's order: the bottom is 3 (x + y < 0) and 8."""
UP = ((0.0, -0.35, -5.0), (0.0, 0.0, 1.0)), ((0.25, 0.35, -5.0), (0.0, 0.0, 1.0))


def test_rays_from_below_hit_the_bottom_of_a_box() -> None:
    engine = engine_of([sn.engines.Shape("mesh", "box", mesh=BOX)], {})
    data = data_of(engine, body="world", pattern=rays(*UP), fields="all")
    assert data.distances.tolist() == [[4.5, 4.5]]
    np.testing.assert_allclose(numpy(data.ray_hits_w), [[[0.0, -0.35, -0.5], [0.25, 0.35, -0.5]]], rtol=EPS)
    assert data.normals_w.tolist() == [[[0.0, 0.0, -1.0]] * 2]
    assert data.face_ids.tolist() == [[3, 8]]


@pytest.mark.parametrize("is_moving", [False, True])
def test_two_boxes_are_distinguished(is_moving: bool) -> None:
    """The id is the shape's row in `geom_names`, for static boxes and for boxes on bodies."""
    up = (0.0, 0.0, 1.0)
    pattern = rays(UP[0], ((0.25, 4.5, -5.0), up), ((0.0, 9.0, -5.0), up))
    places = [(0.0, 0.0, 0.0), (0.0, 4.5, 0.0)]
    if is_moving:
        shapes = [sn.engines.Shape("mesh", f"box_{k}", mesh=BOX, body=f"body_{k}") for k in range(2)]
        engine = engine_of(shapes, {f"body_{k}": (place,) for k, place in enumerate(places)})
    else:
        engine = engine_of(
            [sn.engines.Shape("mesh", f"box_{k}", mesh=BOX, pos=place) for k, place in enumerate(places)], {}
        )
    cfg = sn.RayCasterCfg(body="world", pattern=pattern, fields=("distances", "geom_ids"))
    sensor = sn.Scene(engine, [cfg])[cfg]
    assert sensor.data.geom_ids.tolist() == [[0, 1, -1]]
    assert sensor.geom_names == ("box_0", "box_1")
    assert sensor.data.distances.tolist() == [[4.5, 4.5, INF]]


def test_a_moving_mesh_is_followed_in_the_same_step() -> None:
    """A box that rises from 0 to 1 m moves hits and distances with it, and the faces are unchanged."""
    engine = engine_of([sn.engines.Shape("mesh", "box", mesh=BOX, body="box")], {"box": ((0.0, 0.0, 0.0),)})
    scene = scene_of(engine, body="world", pattern=rays(*UP), fields="all")
    for height in np.linspace(0.0, 1.0, 10):
        engine.body_pos_w[:, 0, 2] = float(height)
        scene.update()
        data = scene["rays"].data
        np.testing.assert_allclose(numpy(data.distances), [[4.5 + height] * 2], atol=50 * EPS)
        np.testing.assert_allclose(numpy(data.ray_hits_w)[..., 2], [[height - 0.5] * 2], atol=50 * EPS)
        assert data.face_ids.tolist() == [[3, 8]]


def test_a_box_that_is_turned_by_half_a_turn_swaps_its_faces() -> None:
    engine = engine_of(
        [sn.engines.Shape("mesh", "box", mesh=BOX, body="box")], {"box": ((0.0, 0.0, 0.0), turn("z", 180))}
    )
    data = data_of(engine, body="world", pattern=rays(*UP), fields="all")
    np.testing.assert_allclose(numpy(data.distances), [[4.5, 4.5]], atol=50 * EPS)
    assert data.face_ids.tolist() == [[8, 3]]


def test_posed_mesh_is_hit_like_one_with_rotated_vertices() -> None:
    """In ten random poses, a mesh on a body, the same on the world, and a mesh with baked vertices agree."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        rotation, pos = Rotation.random(rng=rng), rng.uniform(-0.2, 0.2, 3)
        quat = tuple(rotation.as_quat(scalar_first=True).tolist())
        pattern = rays(*(((*rng.uniform(-0.1, 0.1, 2), -5.0), (0.0, 0.0, 1.0)) for _ in range(20)))
        moved = sn.engines.Mesh(rotation.apply(CORNERS) + pos, FACES)
        engines = [
            engine_of([sn.engines.Shape("mesh", "box", mesh=BOX, body="box")], {"box": (pos, quat)}),
            engine_of([sn.engines.Shape("mesh", "box", mesh=BOX, pos=tuple(pos), quat=quat)], {}),
            engine_of([sn.engines.Shape("mesh", "box", mesh=moved)], {}),
        ]
        first, *others = [data_of(each, body="world", pattern=pattern, fields="all") for each in engines]
        assert first.distances.isfinite().all()
        for other in others:
            np.testing.assert_allclose(numpy(first.distances), numpy(other.distances), atol=1e-5)
            np.testing.assert_allclose(numpy(first.ray_hits_w), numpy(other.ray_hits_w), atol=1e-5)
            np.testing.assert_allclose(numpy(first.normals_w), numpy(other.normals_w), atol=1e-5)
            assert torch.equal(first.face_ids, other.face_ids)


# Alignment, offset ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alignment", "x"), [("base", -2.0 * math.tan(math.radians(30))), ("yaw", 0.0), ("world", 0.0)]
)
def test_pitch_of_30_degrees_moves_the_ray_by_alignment(alignment: str, x: float) -> None:
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("y", 30))})
    hit = numpy(data_of(engine, ray_alignment=alignment).ray_hits_w)
    np.testing.assert_allclose(hit, [[[x, 0.0, 0.0]]], atol=20 * EPS)


@pytest.mark.parametrize(("alignment", "x", "y"), [("world", 1.0, 0.0), ("yaw", 0.5**0.5, 0.5**0.5)])
def test_ray_start_turns_with_the_heading_by_alignment(alignment: str, x: float, y: float) -> None:
    """The base has yaw 45 degrees and roll; the offset is 1 m ahead."""
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("zx", [45, 20]))})
    hit = numpy(data_of(engine, ray_alignment=alignment, offset=sn.OffsetCfg(pos=(1.0, 0.0, 0.0))).ray_hits_w)
    np.testing.assert_allclose(hit, [[[x, y, 0.0]]], atol=20 * EPS)


@pytest.mark.parametrize(("alignment", "expected"), [("yaw", (0.0, 3.0, 0.0)), ("yaw_starts", (2.0, 1.0, 0.0))])
def test_yaw_alignment_turns_starts_and_optionally_directions(alignment: str, expected: Any) -> None:
    """A ray from 1 m ahead points ahead and down at 45 degrees, on a base with yaw 90 degrees, 2 m up."""
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("z", 90))})
    pattern = rays(((1.0, 0.0, 0.0), (1.0, 0.0, -1.0)))
    data = data_of(engine, pattern=pattern, ray_alignment=alignment)
    np.testing.assert_allclose(numpy(data.ray_hits_w), [[expected]], atol=20 * EPS)


@pytest.mark.parametrize("pitch", [-90.0, 90.0, -88.0])
def test_heading_of_an_upright_body_is_that_of_its_side(pitch: float) -> None:
    """With the nose straight up or down yaw is still defined, by the body's y axis."""
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("zy", [40.0, pitch]))})
    data = data_of(engine, pattern=rays(((1.0, 0.0, 0.0), DOWN)), ray_alignment="yaw")
    heading = math.radians(40.0)
    np.testing.assert_allclose(numpy(data.ray_hits_w), [[[math.cos(heading), math.sin(heading), 0.0]]], atol=1e-6)


@pytest.mark.parametrize("alignment", ["base", "yaw", "world"])
def test_offsets_are_full_poses_of_starts_and_directions(alignment: str) -> None:
    """For random poses, offsets and rays, p + R(o + O s) along R O d matches a float64 reference; pos_w excludes s."""
    rng = np.random.default_rng(1)
    shapes = [GROUND, sn.engines.Shape("box", "box", (0.6, 0.4, 0.3), pos=(0.5, 0.2, 0.3), quat=(0.9, 0.1, 0.2, 0.3)),
              sn.engines.Shape("sphere", "ball", (0.7,), pos=(-1.0, 0.5, 0.6))]  # fmt: skip
    envs, count = 5, 40
    starts, directions = rng.normal(scale=0.3, size=(count, 3)), rng.normal(size=(count, 3))
    turned, offset = Rotation.random(rng=rng), rng.normal(scale=0.3, size=3)
    pose = sn.OffsetCfg(pos=tuple(offset), rot=tuple(turned.as_quat(scalar_first=True).tolist()))
    engine = engine_of(shapes, envs=envs)
    attitudes, places = Rotation.random(envs, rng=rng), rng.normal(size=(envs, 3)) + np.array([0.0, 0.0, 2.0])
    engine.body_pos_w[:, 0] = torch.tensor(places)
    engine.body_quat_w[:, 0] = torch.tensor(attitudes.as_quat(scalar_first=True))
    pattern = rays(*zip(starts.tolist(), directions.tolist(), strict=True))
    data = data_of(engine, pattern=pattern, offset=pose, ray_alignment=alignment, fields="all", max_distance=6.0)
    for env in range(envs):
        x = attitudes[env].apply([1.0, 0.0, 0.0])
        turn_of = {"base": attitudes[env], "world": Rotation.identity(),
                   "yaw": Rotation.from_euler("z", math.atan2(x[1], x[0]))}[alignment]  # fmt: skip
        starts_w = places[env] + turn_of.apply(offset + turned.apply(starts))
        directions_w = turn_of.apply(turned.apply(directions / np.linalg.norm(directions, axis=1, keepdims=True)))
        expected = reference_cast(shapes, starts_w, directions_w, max_distance=6.0)
        clear = ~expected.is_edge & (expected.tangency > math.radians(0.1))
        assert clear.sum() > 0.9 * count
        distances, hits = numpy(data.distances[env]), numpy(data.ray_hits_w[env])
        np.testing.assert_allclose(distances[clear], expected.distance[clear], atol=2e-5)
        seen = clear & np.isfinite(expected.distance)
        np.testing.assert_allclose(hits[seen], (starts_w + distances[:, None] * directions_w)[seen], atol=1e-5)
        np.testing.assert_allclose(numpy(data.normals_w[env])[seen], expected.normal[seen], atol=1e-4)
        assert (numpy(data.geom_ids[env])[clear] == expected.shape[clear]).all()
        local = attitudes[env].inv().apply(hits[seen] - places[env])
        np.testing.assert_allclose(numpy(data.points_b[env])[seen], local, atol=1e-5)
        assert np.isinf(hits[clear & ~seen]).all() and np.isinf(numpy(data.points_b[env])[clear & ~seen]).all()
    np.testing.assert_allclose(numpy(data.pos_w), places, rtol=EPS)
    same = np.abs((numpy(data.quat_w) * attitudes.as_quat(scalar_first=True)).sum(axis=1))
    np.testing.assert_allclose(same, 1.0, atol=1e-6)


# Visibility -----------------------------------------------------------------------------------------------------------

TOWER = [
    sn.engines.Shape("box", "hull", (0.2, 0.2, 0.1), body="base"),
    sn.engines.Shape("box", "foot", (0.1, 0.1, 0.1), body="leg", group=3),
    sn.engines.Shape("sphere", "lamp", (0.1,), pos=(0.0, 0.0, 0.7), group=1, labels=("lamp",)),
    sn.engines.Shape("plane", "ground", is_visual=False),
]
POSES = {"base": ((0.0, 0.0, 2.0),), "leg": ((0.0, 0.0, 1.5),)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "foot"),
        ({"exclude_parent_body": False}, "hull"),
        ({"exclude": "leg"}, "lamp"),
        ({"exclude": ("leg", "lamp"), "geometry": "collision"}, "ground"),
        ({"exclude": "leg", "geometry": "visual"}, "lamp"),
        ({"include_geom_groups": (1, 2)}, "lamp"),
        ({"include_geom_groups": (3,)}, "foot"),
        ({"targets": "lamp"}, "lamp"),
        ({"targets": ("lamp", "le.")}, "foot"),
        ({"targets": "world", "geometry": "all"}, "lamp"),
        ({"labels": "lamp"}, "lamp"),
        ({"labels": "wal.*"}, "ground"),
        ({"targets": ["/World/lamp"]}, "lamp"),
        ({"targets": "{ENV_REGEX_NS}/Robot/leg"}, "foot"),
        ({"targets": "/World/envs/env_.*/Robot/.*"}, "foot"),
        ({"targets": ["/World"], "exclude": "{ENV_REGEX_NS}/Robot/leg"}, "lamp"),
        ({"targets": ["/World/.*"]}, "foot"),
    ],
    ids=str,
)
def test_shapes_are_selected_by_geometry_group_name_path_and_label(fields: dict[str, Any], expected: str) -> None:
    """A tower under the sensor: its own hull, a foot on another body, a lamp and the ground (collision only)."""
    shapes = [each if each.name != "foot" else sn.engines.Shape("box", "foot", each.size, body="leg") for each in TOWER]
    if "include_geom_groups" in fields:
        shapes = TOWER
    shapes = [shape if fields.get("labels") != "wal.*" or shape.name != "ground" else GROUND for shape in shapes]
    cfg = sn.RayCasterCfg(body="base", pattern=RAY, fields="all", **fields)
    scene = sn.Scene(engine_of(shapes, POSES), [cfg], semantics={"walkable": ("gro.*",)})
    sensor = scene[cfg]
    assert sensor.geom_names[sensor.data.geom_ids.item()] == expected
    assert sn.RayCasterCfg.from_json(cfg.to_json()) == cfg


def test_paths_select_entities_and_their_bodies() -> None:
    """``Robot`` and ``Robot/.*`` select the whole robot, ``Robot_*`` all robots; a body without shapes gives none."""
    shapes = [sn.engines.Shape("sphere", "Robot_1/hull", (0.1,), pos=(1.0, 0.0, 0.0), body="Robot_1/base"),
              sn.engines.Shape("sphere", "Robot_2/hull", (0.1,), pos=(2.0, 0.0, 0.0), body="Robot_2/base"),
              sn.engines.Shape("sphere", "marker", (0.1,), pos=(3.0, 0.0, 0.0)),
              sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -1.0))]  # fmt: skip
    poses = {name: ((0.0, 0.0, 1.0),) for name in ("Robot_1/base", "Robot_2/base", "marker")}
    pattern = rays(*(((x, 0.0, 1.0 if x < 3 else 0.0), (0.0, 0.0, -1.0)) for x in (1.0, 2.0, 3.0, 5.0)))
    cases = {
        "{ENV_REGEX_NS}/Robot_1": [0, -1, -1, -1],
        "{ENV_REGEX_NS}/Robot_1/.*": [0, -1, -1, -1],
        "{ENV_REGEX_NS}/Robot_*": [0, 1, -1, -1],
        "/World/Robot_2/base": [-1, 1, -1, -1],
        "/World/envs/env_0/Robot_2/hull": [-1, 1, -1, -1],
        "/World/marker": [-1, -1, 2, -1],
        "{ENV_REGEX_NS}": [0, 1, 2, 3],
    }
    for path, expected in cases.items():
        data = data_of(engine_of(shapes, poses), body="world", pattern=pattern, targets=path, fields="all")
        assert data.geom_ids.tolist() == [expected], path


def test_every_mount_ignores_only_its_own_body() -> None:
    shapes = [
        GROUND,
        *(sn.engines.Shape("box", f"hull_{name}", (0.1, 0.1, 0.1), body=name) for name in ("low", "high")),
    ]
    engine = engine_of(shapes, {"low": ((0.0, 0.0, 1.0),), "high": ((0.0, 0.0, 3.0),)})
    data = data_of(engine, bodies=("low", "high"), fields="all")
    np.testing.assert_allclose(numpy(data.distances), [[[1.0], [1.9]]], atol=10 * EPS)
    assert data.geom_ids.tolist() == [[[0], [1]]]
    assert data.pos_w.shape == (1, 2, 3) and data.quat_w.shape == (1, 2, 4)


def test_the_world_is_never_a_mounts_own_body() -> None:
    data = data_of(engine_of([GROUND], {}), body="world", offset=sn.OffsetCfg(pos=(0.0, 0.0, 1.5)))
    assert data.distances.tolist() == [[1.5]]
    assert data.pos_w.tolist() == [[0.0, 0.0, 0.0]]


def test_rays_never_hit_bodies_of_other_envs() -> None:
    """A box is under the sensor in env 1 only, and at a different height in env 2."""
    box = sn.engines.Shape("box", "box", (0.2, 0.2, 0.1), body="box")
    engine = engine_of([GROUND, box], {"base": ((0.0, 0.0, 2.0),), "box": ((5.0, 0.0, 0.5),)}, envs=4)
    engine.body_pos_w[1, 1] = torch.tensor([0.0, 0.0, 0.5])
    engine.body_pos_w[2, 1] = torch.tensor([0.0, 0.0, 1.0])
    np.testing.assert_allclose(numpy(data_of(engine).distances), [[2.0], [1.4], [0.9], [2.0]], atol=10 * EPS)


# Limits and misses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "distance"),
    [
        ({}, 2.0),
        ({"max_distance": 1.999}, INF),
        ({"max_distance": 2.001}, 2.0),
        ({"min_distance": 2.001}, INF),
        ({"min_distance": 1.999}, 2.0),
        ({"min_distance": 3.0, "no_hit_value": -1.0}, -1.0),
        ({"max_distance": 1.0, "no_hit_value": 1.0}, 1.0),
        ({"max_distance": 1.0, "no_hit_value": -1.0, "noise": 0.3, "bias": 0.1, "resolution": 0.7}, -1.0),
        ({"max_distance": 1.0, "noise": 0.3, "bias": 0.1, "random_walk": 0.1}, INF),
    ],
    ids=str,
)
def test_hits_outside_the_limits_are_misses_and_stay_without_noise(fields: dict[str, Any], distance: float) -> None:
    scene = scene_of(engine_of([GROUND], envs=3), **{"fields": "all", **fields})
    for _ in range(3):
        data = scene["rays"].data
        assert data.distances.flatten().tolist() == [distance] * 3
        assert scene["rays"].ground_truth.distances.flatten().tolist() == [distance] * 3
        if distance != 2.0:
            assert (data.ray_hits_w == INF).all() and (data.points_b == INF).all()
            assert (data.geom_ids == -1).all() and (data.normals_w == 0.0).all() and (data.face_ids == -1).all()
        scene.update()


def test_hit_below_min_distance_occludes() -> None:
    """A hit before `min_distance` is a miss, even if the ray would hit a farther shape."""
    shapes = [GROUND, sn.engines.Shape("box", "lid", (0.2, 0.2, 0.01), pos=(0.0, 0.0, 1.9))]
    assert data_of(engine_of(shapes), min_distance=0.5).distances.tolist() == [[INF]]
    assert data_of(engine_of([GROUND]), min_distance=0.5).distances.tolist() == [[2.0]]


# Measured branch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [("distances", "ray_hits_w"), ("ray_hits_w",), ("points_b",), "all"])
def test_measured_hits_match_the_measured_distances(fields: Any) -> None:
    engine = engine_of([GROUND], {"base": ((0.3, 0.1, 2.0), turn("zy", [30, 20]))}, envs=4)
    pattern = sn.patterns.GridPatternCfg(size=(0.4, 0.2), direction=(0.3, 0.0, -1.0))
    sensor = scene_of(engine, pattern=pattern, fields=fields, noise=0.05)["rays"]
    data, truth = sensor.data, sensor.ground_truth
    error = numpy(data.distances - truth.distances)
    assert 0.03 < error.std() < 0.07  # 60 draws of 0.05: 4.4 standard errors
    local = np.array([0.3, 0.0, -1.0]) / math.sqrt(1.09)
    direction = Rotation.from_euler("ZY", [30, 20], degrees=True).apply(local)
    if data.ray_hits_w is not None:
        moved = numpy(data.ray_hits_w - truth.ray_hits_w)
        np.testing.assert_allclose(moved, error[..., None] * direction, atol=2e-6)
    if data.points_b is not None:
        moved = numpy(data.points_b - truth.points_b)
        np.testing.assert_allclose(moved, error[..., None] * local, atol=2e-6)


def test_position_drift_affects_the_measured_scan_and_is_redrawn_at_reset() -> None:
    envs = 64
    scene = scene_of(engine_of([GROUND], envs=envs), drift_range=(-0.1, 0.3), fields="all")
    sensor = scene["rays"]
    seen = []
    for _ in range(2):
        drift = numpy(sensor.data.pos_w - sensor.ground_truth.pos_w)
        assert (drift >= -0.1 - EPS * 2).all() and (drift <= 0.3 + EPS * 2).all()
        # mean of 192 uniforms of width 0.4: standard error 0.0083
        assert drift.mean() == pytest.approx(0.1, abs=0.042) and np.unique(drift).size > 0.9 * drift.size
        np.testing.assert_allclose(numpy(sensor.data.distances)[:, 0], 2.0 + drift[:, 2], atol=1e-6)
        np.testing.assert_allclose(numpy(sensor.data.ray_hits_w)[:, 0, :2], drift[:, :2], atol=1e-6)
        np.testing.assert_allclose(numpy(sensor.data.points_b)[:, 0, :2], 0.0, atol=1e-6)
        assert (sensor.ground_truth.distances == 2.0).all()
        scene.update()
        np.testing.assert_array_equal(numpy(sensor.data.pos_w - sensor.ground_truth.pos_w), drift)
        seen.append(drift)
        scene.reset(torch.arange(32))
    assert (seen[0][:32] != seen[1][:32]).all() and (seen[0][32:] == seen[1][32:]).all()


def test_drift_can_be_given_per_axis() -> None:
    sensor = scene_of(engine_of([GROUND], envs=8), drift_range={"x": (0.1, 0.2)})["rays"]
    drift = numpy(sensor.data.pos_w - sensor.ground_truth.pos_w)
    assert (drift[:, 0] >= 0.1 - EPS).all() and (drift[:, 0] <= 0.2 + EPS).all() and not drift[:, 1:].any()


def test_the_scan_drift_moves_rays_along_the_heading_and_hits_up() -> None:
    """x and y follow the alignment's axes, without moving pos_w; z moves the hits and never the start."""
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("z", 90))}, envs=16)
    spans = {"x": (0.1, 0.2), "z": (-0.3, -0.2)}
    sensor = scene_of(engine, ray_cast_drift_range=spans, ray_alignment="yaw")["rays"]
    hits = numpy(sensor.data.ray_hits_w)[:, 0]
    assert (hits[:, 1] > 0.1 - 1e-6).all() and (hits[:, 1] < 0.2 + 1e-6).all() and np.unique(hits[:, 1]).size == 16
    assert (hits[:, 2] > -0.3 - 1e-6).all() and (hits[:, 2] < -0.2 + 1e-6).all() and np.unique(hits[:, 2]).size == 16
    np.testing.assert_allclose(hits[:, 0], 0.0, atol=1e-6)
    assert (sensor.data.distances == 2.0).all()
    assert torch.equal(sensor.data.pos_w, sensor.ground_truth.pos_w)
    assert (sensor.ground_truth.ray_hits_w[..., 2].abs() < 1e-6).all()


def test_noise_and_drift_combine() -> None:
    """The noisy distance starts at the drifted position: hits are that far below it."""
    scene = scene_of(
        engine_of([GROUND], envs=8), drift_range=(-0.1, 0.1), ray_cast_drift_range={"z": (0.5, 0.5)}, noise=0.1
    )
    data = scene["rays"].data
    expected = numpy(data.pos_w)[:, 2] - numpy(data.distances)[:, 0] + 0.5
    np.testing.assert_allclose(numpy(data.ray_hits_w)[:, 0, 2], expected, atol=1e-6)


def test_saved_scene_resumes_with_its_drift() -> None:
    fields = {"drift_range": (-0.1, 0.1), "ray_cast_drift_range": {"y": (-0.1, 0.1)}, "noise": 0.01}
    one, other = (scene_of(engine_of([GROUND], envs=3), **fields) for _ in range(2))
    one.update()
    one.reset([1])
    state = one.state()
    other.load_state(state)
    for scene in (one, other):
        scene.update()
    for name in ("pos_w", "distances", "ray_hits_w"):
        assert torch.equal(getattr(one["rays"].data, name), getattr(other["rays"].data, name))


def test_rate_delay_and_history_apply_to_whole_scans() -> None:
    """A base rises by 0.1 m per tick, sampled every second tick, shown one sample late, with a history of three."""
    engine = engine_of([GROUND])
    scene = scene_of(engine, update_period=0.02, delay=0.02, history_length=3)
    sensor = scene["rays"]
    for tick in range(1, 7):
        engine.body_pos_w[:, 0, 2] = 2.0 + 0.1 * tick
        scene.update()
    np.testing.assert_allclose(numpy(sensor.data.distances), [[2.4]], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.data.pos_w), [[0.0, 0.0, 2.4]], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.data.ray_hits_w), [[[0.0, 0.0, 0.0]]], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.ground_truth.distances), [[2.6]], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.history.distances), [[[2.6], [2.4], [2.2]]], atol=1e-6)


def test_non_finite_pose_invalidates_samples_until_it_is_finite() -> None:
    engine = engine_of([GROUND], envs=2)
    scene = scene_of(engine)
    engine.body_pos_w[1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="base"):
        scene.update()
        scene["rays"].read()
    assert scene["rays"].valid.tolist() == [True, False]
    assert scene["rays"].data.distances.tolist() == [[2.0], [INF]]
    scene.reset([1], body_pos_w=[[[0.0, 0.0, 3.0]]])
    assert scene["rays"].valid.tolist() == [True, True]
    assert scene["rays"].data.distances.tolist() == [[2.0], [3.0]]


def test_non_finite_shape_pose_invalidates_scans_of_its_env() -> None:
    engine = engine_of([GROUND, sn.engines.Shape("box", "box", (0.2, 0.2, 0.1), body="box")],
                       {"base": ((0.0, 0.0, 2.0),), "box": ((0.0, 0.0, 0.5),)}, envs=2)  # fmt: skip
    scene = scene_of(engine, noise=0.0)
    engine.body_pos_w[0, 1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="box"):
        scene.update()
        scene["rays"].read()
    assert scene["rays"].valid.tolist() == [False, True]


# Mounts ------------------------------------------------------------------------------------------------------


def test_flat_puts_the_rays_of_all_mounts_on_one_axis() -> None:
    engine = engine_of([GROUND], sites={"a": ("base", (0.0, 0.0, 0.0)), "b": ("base", (0.0, 0.0, 1.0))}, envs=2)
    pattern = sn.patterns.GridPatternCfg(size=(0.1, 0.1))
    sensor = scene_of(engine, fields="all", sites=("a", "b"), pattern=pattern)["rays"]
    assert (sensor.num_frames, sensor.num_rays_per_frame, sensor.num_rays) == (2, 4, 8)
    assert sensor.flat.distances.tolist() == [[2.0] * 4 + [3.0] * 4] * 2
    assert sensor.flat.normals_w.shape == sensor.flat.ray_hits_w.shape == (2, 8, 3)
    assert sensor.flat.pos_w.shape == (2, 2, 3)
    single = scene_of(engine, site="a", pattern=pattern)["rays"]
    assert single.flat.distances.shape == (2, 4)


def test_unrequested_fields_are_none() -> None:
    data = data_of(engine_of([GROUND]), fields=("distances",))
    for name in ("pos_w", "quat_w", "ray_hits_w", "normals_w", "geom_ids", "points_b"):
        assert getattr(data, name) is None


def test_pattern_determines_the_scan_shape() -> None:
    pattern = sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1)
    sensor = scene_of(engine_of([GROUND]), pattern=pattern)["rays"]
    assert sensor.pattern.return_shape == (11, 17) and sensor.num_rays == 187
    grid = sensor.data.ray_hits_w.view(-1, *sensor.pattern.return_shape, 3)
    np.testing.assert_allclose(numpy(grid[0, 0, :, 0]), np.linspace(-0.8, 0.8, 17), atol=1e-6)
    np.testing.assert_allclose(numpy(grid[0, :, 0, 1]), np.linspace(-0.5, 0.5, 11), atol=1e-6)


def test_a_height_scan_is_the_mounts_height_above_the_hits() -> None:
    shapes = [
        sn.engines.Shape("box", "step", (0.5, 0.5, 0.15), pos=(0.6, 0.0, 0.15)),
        sn.engines.Shape("plane", "ground", (2.0, 2.0)),
    ]
    pattern = rays(((0.0, 0.0, 0.0), DOWN), ((0.5, 0.0, 0.5), DOWN), ((5.0, 0.0, 0.0), DOWN))
    sensor = scene_of(engine_of(shapes), pattern=pattern, max_distance=10.0)["rays"]
    np.testing.assert_allclose(numpy(sensor.height_scan()), [[2.0, 1.7, 10.0]], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.height_scan(0.5, miss_value=-1.0)), [[1.5, 1.2, -1.0]], atol=1e-6)
    bare = scene_of(engine_of(shapes), fields=("distances",))["rays"]
    with pytest.raises(sn.ConfigError, match=r"RayCasterCfg\('rays'\).fields: .*'pos_w' in fields"):
        bare.height_scan()


def test_debug_draw_shows_hits_misses_and_rays() -> None:
    engine = engine_of(
        [sn.engines.Shape("plane", "ground", (1.0, 1.0))], {"base": ((0.0, 0.0, 2.0), turn("z", 90))}, envs=2
    )
    pattern = rays(((0.5, 0.0, 0.0), DOWN), ((3.0, 0.0, 0.0), DOWN))
    for fields in ("all", ("distances",)):
        for alignment, shown in (("base", None), ("yaw", -1.0)):
            options = {"debug_rays": True, "ray_alignment": alignment, "no_hit_value": shown}
            sensor = scene_of(engine, pattern=pattern, fields=fields, **options)["rays"]
            hits, misses, lines, stubs = sensor.debug_draw()
            np.testing.assert_allclose(hits.data, [[0.0, 0.5, 0.0]] * 2, atol=1e-6)
            np.testing.assert_allclose(misses.data, [[0.0, 3.0, 2.0]] * 2, atol=1e-6)
            np.testing.assert_allclose(lines.data, [[[0.0, 0.5, 2.0], [0.0, 0.5, 0.0]]] * 2, atol=1e-6)
            np.testing.assert_allclose(stubs.data, [[[0.0, 3.0, 2.0], [0.0, 3.0, 1.0]]] * 2, atol=1e-6)
            assert hits.color != misses.color and (hits.kind, lines.kind) == ("points", "lines")
            options["debug_rays"] = False
            plain = scene_of(engine, pattern=pattern, fields=fields, **options)["rays"].debug_draw()
            assert [shape.data.tolist() for shape in plain] == [hits.data.tolist(), misses.data.tolist()]
    assert len(scene_of(engine)["rays"].debug_draw()) == 2
    assert scene_of(engine)["rays"].set_debug_vis(True)


def test_debug_draw_distinguishes_environments() -> None:
    """The second scanner is beside the ground: the hit belongs to the first, as does one of the four misses."""
    engine = engine_of(
        [sn.engines.Shape("plane", "ground", (1.0, 1.0))], {"base": ((0.0, 0.0, 2.0), turn("z", 90))}, envs=2
    )
    engine.body_pos_w[1, 0, 0] = 5.0
    pattern = rays(((0.5, 0.0, 0.0), DOWN), ((3.0, 0.0, 0.0), DOWN))
    shapes = scene_of(engine, pattern=pattern, debug_rays=True)["rays"].debug_draw()
    assert [[len(shape.of_env(env, 2)) for env in range(2)] for shape in shapes] == [[1, 0], [1, 2], [1, 0], [1, 2]]
    np.testing.assert_allclose(shapes[0].of_env(0, 2), [[0.0, 0.5, 0.0]], atol=1e-6)
    np.testing.assert_allclose(shapes[1].of_env(1, 2), [[5.0, 0.5, 2.0], [5.0, 3.0, 2.0]], atol=1e-6)
    every = sn.readings.DebugShape("points", np.arange(12.0).reshape(2, 2, 3))  # as many in each
    np.testing.assert_array_equal(every.of_env(1, 2), [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])


# MuJoCo ---------------------------------------------------------------------------------------------------------------

ARENA = """
<mujoco>
  <option timestep="0.005"/>
  <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 2 0  0 0 .5" scale=".5 .5 .5"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <geom name="rock" type="mesh" mesh="wedge" pos=".3 -.3 0"/>
    <geom name="post" type="cylinder" size=".1 .3" pos="-.4 .2 .3"/>
    <body name="base" pos="0 0 2"><freejoint/>
      <geom name="hull" type="box" size=".3 .2 .05" mass="1"/>
      <site name="scanner" pos=".1 0 -.1"/>
      <body name="arm" pos="0 0 -.3"><joint name="swing" axis="0 1 0" damping=".01"/>
        <geom name="rod" type="capsule" fromto="0 0 0 .1 0 -.3" size=".1" mass=".1"/></body>
    </body>
    <body name="ball" pos=".2 .3 .8"><freejoint/><geom name="ball" size=".15" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def mj_scan(model: mujoco.MjModel, qpos: Array, pattern: sn.patterns.PatternBaseCfg) -> tuple[Array, list[int]]:
    """Return distances and geoms by mj_ray from the site, ignoring its body; -1 on a miss."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    site = model.site("scanner").id
    rotation, pos = data.site_xmat[site].reshape(3, 3), data.site_xpos[site]
    found = pattern.rays("cpu")
    distances, geoms = [], []
    for start, direction in zip(numpy(found.starts), numpy(found.directions), strict=True):
        geom = np.zeros(1, np.int32)
        distances.append(mujoco.mj_ray(model, data, pos + rotation @ start, rotation @ direction, None, 1,
                                       model.body("base").id, geom, None))  # fmt: skip
        geoms.append(int(geom[0]))
    return np.array(distances), geoms


@pytest.mark.parametrize("kind", ["batch", "live"])
def test_hits_match_mujocos_rays_while_bodies_fall(kind: str) -> None:
    """A base with an arm and a ball fall and rotate; every scan matches mj_ray at the state of that step."""
    model = mujoco.MjModel.from_xml_string(ARENA)
    pattern = sn.patterns.GridPatternCfg(size=(0.9, 0.9), resolution=0.15, direction=(0.1, 0.2, -1.0))
    cfg = RayCastSensorCfg(name="rays", site="scanner", pattern=pattern, no_hit_value=-1.0)
    rng = np.random.default_rng(3)
    velocities = rng.normal(size=(2, model.nv))
    if kind == "batch":
        engine: Any = sn.MujocoEngine(model, num_envs=2)
        scene = sn.Scene(engine, [cfg])
        scene.reset(qvel=velocities)
    else:
        datas = [mujoco.MjData(model) for _ in range(2)]
        for data, velocity in zip(datas, velocities, strict=True):
            data.qvel[:] = velocity
        scene = sn.Scene(sn.MujocoEngine.from_mj(model, datas), [cfg])
    seen: set[str] = set()
    for _ in range(6):
        for _ in range(10):
            if kind == "batch":
                scene.step()
            else:
                for data in datas:
                    mujoco.mj_step(model, data)
                scene.update()
        states = numpy(engine.qpos) if kind == "batch" else np.array([data.qpos for data in datas])
        reading = scene["rays"].data
        names = scene["rays"].geom_names
        for env in range(2):
            distances, geoms = mj_scan(model, states[env], pattern)
            mine = numpy(reading.distances[env])
            same = np.abs(mine - distances) < 1e-4
            assert same.sum() >= len(same) - 1  # at most one of 49 passes an edge
            found = [names[i] if i >= 0 else "" for i in reading.geom_ids[env].tolist()]
            expected = [model.geom(i).name if i >= 0 else "" for i in geoms]
            assert all(a == b for a, b, ok in zip(found, expected, same, strict=True) if ok)
            seen |= set(expected)
    assert {"floor", "rock", "post", "rod", "ball"} <= seen and "hull" not in seen


FLEX = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="base" pos="0 0 2"><freejoint/><geom name="hull" size=".1"/></body>
    <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" pos="0 0 1" dim="2" mass="1" radius=".01">
      <edge equality="true"/></flexcomp>
  </worldbody>
</mujoco>
"""


def test_deformable_is_refused_by_name_unless_excluded() -> None:
    with pytest.raises(sn.ConfigError, match=r"cloth.*deformable.*exclude=\('cloth',\)"):
        scene_of(sn.MujocoEngine(FLEX))
    data = data_of(sn.MujocoEngine(FLEX), exclude="cloth")
    np.testing.assert_allclose(numpy(data.distances), [[2.0]], atol=1e-6)


# mjlab's own cases ----------------------------------------------------------------------------------------------------

MJLAB = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="10 10 .1" group="0"/>
    <geom name="shelf" type="box" size="1 1 .05" pos="0 0 1" group="3"/>
    <body name="base" pos="0 0 2"><freejoint/>
      <geom name="hull" type="box" size=".2 .2 .1" mass="5"/><site name="eye" pos="0 0 -.2"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize(
    ("fields", "distance"),
    [
        ({}, 2.0),
        ({"frame": sn.ObjRef(type="geom", name="hull")}, 2.0),
        ({"frame": sn.ObjRef(type="site", name="eye")}, 1.8),
        ({"include_geom_groups": (0, 3)}, 0.95),
        ({"include_geom_groups": None, "geometry": "all"}, 0.95),
        ({"exclude_parent_body": False}, 0.1),
        ({"max_distance": 1.5}, -1.0),
        ({"pattern": sn.patterns.GridPatternCfg(size=(0.2, 0.2), direction=(0.0, 0.0, 1.0))}, -1.0),
    ],
    ids=str,
)
def test_mjlab_cases(fields: dict[str, Any], distance: float) -> None:
    """Grids of 3 x 3 rays over a floor have correct hits and normals, misses, own body, groups, frames and limits."""
    mount = {} if "frame" in fields else {"body": "base"}
    given = {"pattern": sn.patterns.GridPatternCfg(size=(0.2, 0.2)), "no_hit_value": -1.0, **mount, **fields}
    data = data_of(sn.MujocoEngine(MJLAB), kind=RayCastSensorCfg, **given)
    np.testing.assert_allclose(numpy(data.distances), np.full((1, 9), distance), atol=1e-6)
    if distance > 0.0:
        outward = 1.0 if fields.get("exclude_parent_body", True) else -1.0
        np.testing.assert_allclose(numpy(data.normals_w), np.tile([0.0, 0.0, outward], (1, 9, 1)), atol=1e-6)
        height = data.pos_w[0, 2].item() - distance
        np.testing.assert_allclose(numpy(data.hit_pos_w)[..., 2], np.full((1, 9), height), atol=1e-6)
    else:
        assert (data.normals_w == 0.0).all()


@pytest.mark.parametrize(("alignment", "distance"), [("base", 8.0**0.5), ("yaw", 2.0), ("world", 2.0)])
def test_a_roll_of_45_degrees_lengthens_the_ray_of_a_base_aligned_scan_only(alignment: str, distance: float) -> None:
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("x", 45))})
    data = data_of(engine, ray_alignment=alignment)
    np.testing.assert_allclose(numpy(data.distances), [[distance]], atol=2e-6)


def test_world_alignment_keeps_the_site_position() -> None:
    """The origin is the site's position on the tilted body; only offset and rays are aligned with the world."""
    engine = engine_of([GROUND], {"base": ((0.0, 0.0, 2.0), turn("y", 90))}, sites={"eye": ("base", (1.0, 0.0, 0.0))})
    data = data_of(engine, site="eye", ray_alignment="world")
    np.testing.assert_allclose(numpy(data.pos_w), [[0.0, 0.0, 1.0]], atol=1e-6)
    np.testing.assert_allclose(numpy(data.distances), [[1.0]], atol=1e-6)


def test_pinhole_pattern_points_ahead() -> None:
    """For a wall 3 m ahead, the middle ray is 3 m long and others 3 m over the cosine of their angle."""
    wall = sn.engines.Shape("box", "wall", (0.1, 50.0, 50.0), pos=(3.1, 0.0, 0.0))
    pattern = sn.patterns.PinholeCameraPatternCfg(focal_length=1.0, horizontal_aperture=2.0, width=5, height=3)
    data = data_of(engine_of([wall]), pattern=pattern)
    directions = numpy(pattern.rays("cpu").directions)
    np.testing.assert_allclose(numpy(data.distances)[0], 3.0 / directions[:, 0], rtol=1e-5)
    assert data.distances[0, 7].item() == pytest.approx(3.0, abs=1e-5)


# Contract and bad input -----------------------------------------------------------------------------------------------


def tumbling(envs: int) -> sn.TensorEngine:
    """Return a tumbling body with a ball on it, a rotating box, and ground."""
    model = tumbling_engine(envs)
    shapes = [GROUND, sn.engines.Shape("box", "table", (0.5, 0.5, 0.1), pos=(0.0, 0.0, -0.5)),
              sn.engines.Shape("sphere", "ball", (0.1,), body="body", pos=(0.3, 0.0, 0.0))]  # fmt: skip
    return sn.TensorEngine(
        envs, model.dt, sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=model.motion, shapes=shapes,
        provides=("pose", "velocity", "acceleration", "gravity"), magnetic=(0.2, 0.0, -0.4),
    )  # fmt: skip


SMALL = sn.patterns.GridPatternCfg(size=(0.4, 0.2))


@pytest.mark.parametrize(
    "cfg",
    [
        pytest.param(
            sn.RayCasterCfg(body="body", pattern=SMALL, fields="all", exclude_parent_body=False),
            marks=pytest.mark.full,
        ),
        sn.RayCasterCfg(sites="site", pattern=SMALL, ray_alignment="yaw", drift_range=(-0.1, 0.1),
                        ray_cast_drift_range={"z": (0, 0.1)}, noise=0.01, no_hit_value=-1.0),
        Raycaster(body="body", pattern=GridPattern(0.2, (0.4, 0.2)), max_range=0.6, delay=0.004, history_length=2),
        pytest.param(
            sn.RayCasterCfg(body="body", pattern=SMALL, max_distance=0.6, noise=0.01, no_hit_value=7.0),
            marks=pytest.mark.full,
        ),
    ],
    ids=["clean", "drifting", "layout", "misses"],
)  # fmt: skip
def test_contract_holds(cfg: sn.SensorCfg[Any]) -> None:
    rules = check_sensor(cfg, tumbling)
    assert {"truth_is_never_altered", "resuming_is_exact", "env_count_does_not_matter"} <= {*rules}
    assert ("lazy_equals_eager" in rules) == (cfg.delay is None and not any(cfg.drift_range))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_distance": 0.0}, r"\.max_distance: got 0.0, expected a finite distance above min_distance"),
        ({"max_distance": INF}, r"\.max_distance: got inf, expected a finite distance"),
        ({"min_distance": -1.0}, r"\.min_distance: got -1.0, expected a finite distance >= 0"),
        (
            {"min_distance": 2.0, "max_distance": 1.0},
            r"\.max_distance: got 1.0, expected a finite distance above min_distance = 2",
        ),
        ({"no_hit_value": math.nan}, r"\.no_hit_value: got nan, expected a number"),
        ({"include_geom_groups": (6,)}, "geom groups from 0 to 5"),
        ({"include_geom_groups": ()}, "geom groups from 0 to 5"),
        ({"targets": ()}, "at least one name"),
        ({"fields": ("distance",)}, "distances"),
        ({"fields": ()}, "at least one field"),
        ({"fields": ("normals_w",), "noise": 0.1}, r"\.noise: got 0.1, expected no such option while no distances"),
        ({"ray_alignment": "gravity"}, "ray_alignment"),
        ({"geometry": "mesh"}, "geometry"),
        ({"drift_range": (0.2, 0.1)}, r"a range \(low, high\) with low <= high"),
        ({"ray_cast_drift_range": {"x": (0.0, INF)}}, r"a range \(low, high\)"),
        ({"ray_cast_drift_range": {"w": (0.0, 0.1)}}, "ray_cast_drift_range"),
        ({"pattern": None}, "a pattern such as GridPatternCfg"),
        ({"visualizer_cfg": {"color": (2.0, 0.0, 0.0)}}, "red, green and blue from 0 to 1"),
    ],
    ids=str,
)
def test_contradictory_config_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        sn.RayCasterCfg(**{"body": "base", **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"targets": "groud"}, r"targets: got 'groud'.*Did you mean 'ground'"),
        ({"targets": "sensor"}, r"targets: got 'sensor', expected a body with shapes"),
        ({"targets": "gro("}, "The regular expression is invalid"),
        ({"targets": "/World/groud"}, r"targets: got '/World/groud'.*'ground'"),
        ({"targets": "{ENV_REGEX_NS}/Robot/sensor"}, "expected a body with shapes"),
        ({"targets": "/World/gro("}, "The regular expression is invalid"),
        ({"exclude": "bsae"}, r"exclude: got 'bsae'"),
        ({"exclude": ".*"}, "expected at least one shape"),
        ({"targets": "base"}, "expected at least one shape"),
        ({"labels": "table"}, "expected a semantic label"),
        ({"include_geom_groups": (4,)}, "expected at least one shape"),
        ({"pattern": rays(((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)))}, "directions"),
    ],
    ids=str,
)  # fmt: skip
def test_selection_that_rays_cannot_hit_is_refused(fields: dict[str, Any], message: str) -> None:
    poses = {"base": ((0.0, 0.0, 2.0),), "sensor": ((0.0, 0.0, 0.0),)}
    engine = engine_of([GROUND, sn.engines.Shape("sphere", "hull", (0.1,), body="base")], poses)
    with pytest.raises(sn.ConfigError, match=message):
        scene_of(engine, **fields)


def test_excluding_a_body_without_shapes_is_allowed() -> None:
    poses = {"base": ((0.0, 0.0, 2.0),), "sensor": ((0.0, 0.0, 0.0),)}
    assert data_of(engine_of([GROUND], poses), exclude="sensor").distances.tolist() == [[2.0]]


@pytest.mark.parametrize("patterns", ["groud", ("ground", "tabel")])
def test_unused_semantic_label_raises_at_scene_build(patterns: Any) -> None:
    shapes = [GROUND, sn.engines.Shape("box", "table", (1.0, 1.0, 1.0))]
    with pytest.raises(sn.SelectionError, match=r"Scene.semantics\['walkable'\]: got '(groud|tabel)'"):
        sn.Scene(engine_of(shapes), [], semantics={"walkable": patterns})


def test_engine_without_shapes_is_refused() -> None:
    with pytest.raises(sn.UnsupportedError, match=r"rays.*SHAPES.*TensorEngine\(..., shapes="):
        scene_of(sn.TensorEngine(bodies=("base",)))


LINKS = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="crate" pos="1 0 .5"><freejoint/><geom name="crate" type="box" size=".1 .1 .1"/></body>
    <body name="trunk" pos="0 0 2">
      <freejoint/><geom name="trunk" type="sphere" size=".1"/>
      <body name="leg" pos="0 0 -.5">
        <joint axis="0 1 0"/><geom name="leg" type="sphere" size=".1"/>
        <body name="foot" pos="0 0 -.5"><joint axis="0 1 0"/><geom name="foot" type="sphere" size=".1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize(
    ("fields", "distance"),
    [
        ({}, 2.0),  # the floor: trunk, leg and foot are one robot
        ({"exclude_own_links": False}, 0.4),  # the leg
        ({"exclude_parent_body": False}, 0.1),  # the trunk from inside
        ({"targets": "foot"}, 0.9),
        ({"targets": ".*"}, 0.4),
        ({"labels": "limb"}, 0.4),
        ({"exclude_own_links": False, "exclude": ("leg", "foot")}, 2.0),
    ],
    ids=str,
)
def test_robots_own_links_are_ignored_unless_requested(fields: dict[str, Any], distance: float) -> None:
    cfg = sn.RayCasterCfg(name="rays", body="trunk", pattern=RAY, **fields)
    scene = sn.Scene(sn.MujocoEngine(LINKS), [cfg], semantics={"limb": ["leg", "foot"]})
    np.testing.assert_allclose(numpy(scene["rays"].data.distances), [[distance]], atol=1e-6)


def test_every_mount_ignores_its_robot_and_hits_others() -> None:
    down = sn.RayCasterCfg(name="rays", bodies=("trunk", "leg", "crate"), pattern=RAY)
    scene = sn.Scene(sn.MujocoEngine(LINKS), [down])
    np.testing.assert_allclose(numpy(scene["rays"].data.distances)[0, :, 0], [2.0, 1.5, 0.5], atol=1e-6)
    across = sn.patterns.GridPatternCfg(size=(0.0, 0.0), direction=(-1.0, 0.0, 0.5))
    cfg = sn.RayCasterCfg(name="rays", body="crate", pattern=across, fields="all")
    sensor = sn.Scene(sn.MujocoEngine(LINKS), [cfg])["rays"]
    assert sensor.geom_names[int(sensor.data.geom_ids)] == "foot"


def test_without_a_kinematic_tree_the_links_of_its_entity_are_its_own() -> None:
    poses = {"dog/trunk": ((0.0, 0.0, 2.0), (1, 0, 0, 0)), "dog/leg": ((0.0, 0.0, 1.5), (1, 0, 0, 0)),
             "ball": ((0.0, 0.0, 1.0), (1, 0, 0, 0))}  # fmt: skip
    shapes = [GROUND, *(sn.engines.Shape("sphere", name, (0.1,), body=name) for name in poses)]
    engine = engine_of(shapes, poses)
    assert data_of(engine, body="dog/trunk").distances.item() == pytest.approx(0.9)
    assert data_of(engine, body="ball").distances.item() == pytest.approx(1.0)


def test_body_ids_distinguish_body_world_and_miss() -> None:
    shapes = [GROUND, sn.engines.Shape("box", "crate", (0.2, 0.2, 0.2), body="crate")]
    poses = {"base": ((0.0, 0.0, 2.0),), "crate": ((1.0, 0.0, 0.5),)}
    down, up = (0.0, 0.0, -1.0), (0.0, 0.0, 1.0)
    pattern = rays(((0.0, 0.0, 0.0), down), ((1.0, 0.0, 0.0), down), ((0.0, 0.0, 0.0), up))
    engine = engine_of(shapes, poses)
    for alignment in ("base", "yaw"):
        data = data_of(engine, pattern=pattern, ray_alignment=alignment, fields=("body_ids", "geom_ids"))
        assert data.body_ids.tolist() == [[-1, 1, -2]]
        assert data.geom_ids.tolist() == [[0, 1, -1]]
