"""The frame transformer, checked against SciPy's rotations in float64, MuJoCo's sensors, and on robots."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.demo import Trot, model_path
from sensorium.testing import check_sensor, tumbling_engine
from sensorium.world.select import match_prim_path

Array = NDArray[np.float64]
Frame = sn.FrameTransformerCfg.FrameCfg

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
ALL = ("target_pos_source", "target_quat_source", "target_pos_w", "target_quat_w", "source_pos_w", "source_quat_w")
LEGS = ("FL", "FR", "RL", "RR")
FOOT = sn.OffsetCfg(pos=(0.0, 0.0, -0.22))
"""The foot's centre on the demo robot's shank, where the model has the sites FL_foot, ..."""


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def wxyz(rotation: Rotation) -> Array:
    return np.asarray(rotation.as_quat(scalar_first=True, canonical=True))


def rotation(quat: Any) -> Rotation:
    return Rotation.from_quat(np.asarray(quat, np.float64), scalar_first=True)


def offset(pos: Any, turn: Rotation) -> sn.OffsetCfg:
    return sn.OffsetCfg(pos=tuple(np.asarray(pos).tolist()), rot=tuple(wxyz(turn).tolist()))


def engine_of(envs: int = 1, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, 0.01, **kwargs)


def scatter(engine: sn.TensorEngine, rng: np.random.Generator) -> tuple[Array, Array]:
    """Write random poses into every body; return positions `[env, body, 3]` and quaternions in the engine's order."""
    envs, bodies = engine.body_pos_w.shape[:2]
    engine.body_pos_w = rng.normal(size=(envs, bodies, 3))
    quats = Rotation.random(envs * bodies, rng=rng).as_quat(scalar_first=True)
    engine.body_quat_w = (quats * rng.choice([-1.0, 1.0], size=(len(quats), 1))).reshape(envs, bodies, 4)
    return numpy(engine.body_pos_w), numpy(engine.body_quat_w)


def transformer(engine: sn.engines.Engine, **fields: Any) -> Any:
    return sn.Scene(engine, [sn.FrameTransformerCfg(**fields)])["frame_transformer"]


def assert_same_turn(got: Array, expected: Array, tolerance: float) -> None:
    """Compare rotations given as quaternions, up to their sign."""
    sign = np.sign((got * expected).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(got * sign, expected, atol=tolerance)


# The transform --------------------------------------------------------------------------------------------------------


def reference(
    pos: Array, quat: Array, source: tuple[int, Array, Rotation], targets: list[tuple[int, Array, Rotation]]
) -> dict[str, Array]:
    """Return all fields `[env, ...]` in float64; a frame is (body, offset, rotation), body -1 is the world."""

    def placed(body: int, at: Array, turn: Rotation) -> tuple[Array, Rotation]:
        if body < 0:
            return np.tile(at, (len(pos), 1)), Rotation.concatenate([turn] * len(pos))
        attitude = rotation(quat[:, body])
        return pos[:, body] + attitude.apply(at), attitude * turn

    p_s, q_s = placed(*source)
    poses = [placed(*target) for target in targets]
    return {
        "target_pos_source": np.stack([q_s.inv().apply(p - p_s) for p, _ in poses], axis=1),
        "target_quat_source": np.stack([wxyz(q_s.inv() * q) for _, q in poses], axis=1),
        "target_pos_w": np.stack([p for p, _ in poses], axis=1),
        "target_quat_w": np.stack([wxyz(q) for _, q in poses], axis=1),
        "source_pos_w": p_s,
        "source_quat_w": wxyz(q_s),
    }


def test_every_field_follows_the_rigid_transforms_of_a_float64_reference() -> None:
    """For random poses, offsets on source and targets, sites and the world, all fields agree to some 30 roundings."""
    rng = np.random.default_rng(1)
    at, turns = rng.normal(size=(6, 3)), Rotation.random(6, rng=rng)
    sites = {"tip": ("c", at[5], wxyz(turns[5]))}
    engine = engine_of(48, bodies=("a", "b", "c"), sites=sites)
    pos, quat = scatter(engine, rng)
    data = transformer(
        engine,
        body="b",
        offset=offset(at[0], turns[0]),
        target_frames=[
            Frame(body="a", offset=offset(at[1], turns[1])),
            Frame(body="b", offset=offset(at[2], turns[2])),
            Frame(body="world", offset=offset(at[3], turns[3])),
            Frame(site="tip", offset=offset(at[4], turns[4])),
        ],
    ).data
    assert data.target_frame_names == ["a", "b", "world", "tip"]
    on_tip = (2, at[5] + turns[5].apply(at[4]), turns[5] * turns[4])
    targets = [(0, at[1], turns[1]), (1, at[2], turns[2]), (-1, at[3], turns[3]), on_tip]
    expected = reference(pos, quat, (1, at[0], turns[0]), targets)
    largest = float(np.abs(expected["target_pos_w"]).max())
    for name in ALL:
        values = expected[name]
        got = numpy(getattr(data, name))
        assert got.shape == values.shape
        bound = 30 * EPS * (1.0 if "quat" in name else 4.0 * largest)
        if "quat" in name:
            assert (got[..., 0] >= 0.0).all(), name
            assert_same_turn(got, values, bound)
        else:
            np.testing.assert_allclose(got, values, atol=bound, err_msg=name)


def test_several_sources_see_every_target_each_in_its_own_frame() -> None:
    """A plural source gives `[env, mount, target, ...]`, bit for bit the reading of one sensor per source."""
    rng = np.random.default_rng(2)
    engine = engine_of(5, bodies=("left", "right", "cube"))
    scatter(engine, rng)
    common: dict[str, Any] = {"target_frames": [Frame(body=".*")], "offset": FOOT}
    both = sn.FrameTransformerCfg(name="both", bodies="left|right", **common)
    singles = [sn.FrameTransformerCfg(name=name, body=name, **common) for name in ("left", "right")]
    scene = sn.Scene(engine, [both, *singles])
    assert scene[both].data.target_pos_source.shape == (5, 2, 3, 3)
    assert scene[both].data.source_quat_w.shape == (5, 2, 4)
    for mount, single in enumerate(singles):
        for name in ALL:
            assert torch.equal(getattr(scene[both].data, name)[:, mount], getattr(scene[single].data, name)), name


def test_the_source_among_its_own_targets_is_the_identity() -> None:
    """The source seen from itself is at exactly 0 and rotated by less than a rounding, for equal or no offsets."""
    engine = engine_of(64, bodies=("base", "arm"))
    scatter(engine, np.random.default_rng(3))
    place = offset((0.3, -0.2, 0.5), Rotation.from_euler("xyz", (0.3, -1.0, 2.0)))
    for each in (sn.OffsetCfg(), place):
        data = transformer(engine, body="base", offset=each, target_frames=[Frame(body="base", offset=each)]).data
        assert not data.target_pos_source.any()
        np.testing.assert_allclose(numpy(data.target_quat_source), [[[1.0, 0.0, 0.0, 0.0]]] * 64, atol=8 * EPS)


def test_far_from_the_worlds_origin_neighbours_keep_their_digits() -> None:
    """A kilometre out, frames at offsets on the same or near bodies are exact to some roundings of their distance."""
    engine = engine_of(8, bodies=("base", "arm"))
    rng = np.random.default_rng(4)
    _, quat = scatter(engine, rng)
    pos = np.tile([[1024.0, -2048.0, 8.0], [1024.5, -2048.25, 8.125]], (8, 1, 1))  # exact in float32
    engine.body_pos_w = pos
    turn = Rotation.random(rng=rng)
    at = (np.array([0.1, 0.2, -0.3]), np.array([-0.3, 0.15, 0.05]))
    data = transformer(
        engine,
        body="base",
        offset=offset(at[0], turn),
        target_frames=[Frame(body="base", offset=offset(at[1], turn)), Frame(body="arm", offset=offset(at[1], turn))],
    ).data
    expected = reference(pos, quat, (0, at[0], turn), [(0, at[1], turn), (1, at[1], turn)])
    np.testing.assert_allclose(numpy(data.target_pos_source), expected["target_pos_source"], atol=40 * EPS * 2.0)


def test_quaternions_have_the_sign_of_w_above_zero() -> None:
    """Of a rotation's two quaternions the result is the one with w >= 0; past half a turn the vector changes sign."""
    engine = engine_of(4, bodies=("base", "wheel"))
    angles = np.radians([170.0, 179.0, 181.0, 190.0])
    engine.body_quat_w[:, 1] = torch.tensor(
        np.stack([np.cos(angles / 2), 0 * angles, 0 * angles, np.sin(angles / 2)], 1)
    )
    data = transformer(engine, body="base", target_frames=[Frame(body="wheel")]).data
    expected = np.stack([np.abs(np.cos(angles / 2)), np.sin(angles / 2) * np.sign(np.cos(angles / 2))], axis=1)
    for quat in (data.target_quat_source, data.target_quat_w):
        np.testing.assert_allclose(numpy(quat)[:, 0, ::3], expected, atol=4 * EPS)


def test_all_targets_of_all_envs_are_one_launch() -> None:
    """A sample of many targets records a single kernel launch."""
    engine = engine_of(3, bodies=[f"body_{i}" for i in range(20)])
    sensor = transformer(engine, bodies="body_[01]", target_frames=[Frame(body=".*")])
    segment = sensor.compute_on.record(lambda: sensor.update_raw_data(sensor.buffers.truth))
    assert repr(segment).count("_frames") == 1
    assert "," not in repr(segment)


# Against MuJoCo -------------------------------------------------------------------------------------------------------


def test_transformer_equals_mujocos_frame_sensors() -> None:
    """Positions and orientations equal MuJoCo's framepos and framequat with a reference frame, in float64, to 1e-5."""
    envs, rng = 8, np.random.default_rng(5)
    spec = mujoco.MjSpec.from_file(str(model_path()))
    place = offset((0.1, -0.05, 0.2), Rotation.from_euler("xyz", (0.4, -0.7, 2.2)))
    kinds = mujoco.mjtObj
    targets: list[tuple[Any, Any, str]] = [
        (Frame(body="FL_shank"), kinds.mjOBJ_XBODY, "FL_shank"),
        (Frame(site="RR_foot_imu"), kinds.mjOBJ_SITE, "RR_foot_imu"),
        (Frame(geom="FR_motor"), kinds.mjOBJ_GEOM, "FR_motor"),
        (Frame(camera="front"), kinds.mjOBJ_CAMERA, "front"),
        (Frame(joint="RL_knee"), None, ""),
        (Frame(body="world"), None, ""),
    ]
    spec.body("RL_hip").add_site(name="reference", pos=place.pos, quat=place.rot)
    for reference_type, reference_name in ((kinds.mjOBJ_SITE, "reference"), (kinds.mjOBJ_UNKNOWN, "")):
        for _, kind, name in targets[:4]:
            for what in ("FRAMEPOS", "FRAMEQUAT"):
                spec.add_sensor(
                    name=f"{what}/{name}/{reference_name}", type=getattr(mujoco.mjtSensor, f"mjSENS_{what}"),
                    objtype=kind, objname=name, reftype=reference_type, refname=reference_name,
                )  # fmt: skip
    native = spec.compile()
    data = mujoco.MjData(native)

    engine = sn.MujocoEngine(model_path(), envs)
    cfg = sn.FrameTransformerCfg(body="RL_hip", offset=place, target_frames=[frame for frame, _, _ in targets])
    scene = sn.Scene(engine, [cfg])
    qpos = np.tile(np.asarray(engine.model.qpos0), (envs, 1))
    qpos[:, :3] += rng.normal(size=(envs, 3))
    qpos[:, 2] += 1.0
    qpos[:, 3:7] = Rotation.random(envs, rng=rng).as_quat(scalar_first=True)
    qpos[:, 7:] += 0.5 * rng.normal(size=(envs, 12))
    scene.reset(qpos=qpos, qvel=rng.normal(size=(envs, engine.model.nv)))
    worst = 0.0
    for _ in range(10):
        scene.step(substeps=10)
        got = scene[cfg].data
        for env in range(envs):
            data.qpos[:] = engine.qpos[env].numpy()
            mujoco.mj_forward(native, data)
            for i, (_, kind, name) in enumerate(targets):
                if kind is None:
                    continue
                for suffix, refname in (("source", "reference"), ("w", "")):
                    pos = numpy(getattr(got, f"target_pos_{suffix}"))[env, i]
                    worst = max(worst, float(np.abs(pos - data.sensor(f"FRAMEPOS/{name}/{refname}").data).max()))
                    quat = numpy(getattr(got, f"target_quat_{suffix}"))[env, i]
                    turn = rotation(quat).inv() * rotation(data.sensor(f"FRAMEQUAT/{name}/{refname}").data)
                    worst = max(worst, float(turn.magnitude()))
            knee = native.joint("RL_knee").id
            np.testing.assert_allclose(numpy(got.target_pos_w)[env, 4], data.xanchor[knee], atol=1e-5)
            assert_same_turn(numpy(got.target_quat_w)[env, 4], data.body("RL_shank").xquat, 1e-5)
            origin = data.site("reference")
            np.testing.assert_allclose(numpy(got.source_pos_w)[env], origin.xpos, atol=1e-5)
            back = origin.xmat.reshape(3, 3).T
            np.testing.assert_allclose(numpy(got.target_pos_source)[env, 5], back @ -origin.xpos, atol=1e-5)
    print(f"largest error {worst:.1e} m or rad")
    assert worst < 1e-5


# Robots ---------------------------------------------------------------------------------------------------------------


class World:
    """Return MuJoCo's float64 poses for the state of an engine."""

    def __init__(self, engine: sn.MujocoEngine) -> None:
        self.engine, self.data = engine, mujoco.MjData(engine.model)

    def at(self, env: int) -> Any:
        self.data.qpos[:] = self.engine.qpos[env].numpy()
        mujoco.mj_kinematics(self.engine.model, self.data)
        return self.data

    def feet(self, env: int, source: str, prefix: str = "") -> tuple[Array, Array]:
        """Return the feet of one env in the world and in a body, `[leg, 3]` each."""
        data = self.at(env)
        feet = np.stack([data.site(f"{prefix}{leg}_foot").xpos for leg in LEGS])
        body = data.body(f"{prefix}{source}")
        return feet, rotation(body.xquat).inv().apply(feet - body.xpos)


def feet_cfg(source: str, **fields: Any) -> sn.FrameTransformerCfg:
    """Return four offset frames, as users of other simulators write them."""
    targets = [Frame(name=f"{leg}_USER", prim_path=f"{{ENV_REGEX_NS}}/Robot/{leg}_shank", offset=FOOT) for leg in LEGS]
    return sn.FrameTransformerCfg(prim_path=f"{{ENV_REGEX_NS}}/Robot/{source}", target_frames=targets, **fields)


def test_feet_in_the_base_over_a_walk_with_partial_resets() -> None:
    """Four offset frames of 32 trotting robots are at MuJoCo's feet, at every tenth step and after resets."""
    envs, rng = 32, np.random.default_rng(6)
    engine = sn.MujocoEngine(model_path(), envs, keyframe="home")
    scene = sn.Scene(engine, [feet_cfg("trunk")])
    sensor, world, trot = scene["frame_transformer"], World(engine), Trot()
    start = engine.qpos[0].numpy().copy()
    for step in range(100):
        if step % 25 == 24:
            ids = rng.choice(envs, 7, replace=False)
            qpos = np.tile(start, (7, 1))
            qpos[:, :2] += rng.normal(size=(7, 2))
            qpos[:, 3:7] = wxyz(Rotation.from_rotvec(rng.uniform(-3.0, 3.0, (7, 1)) * [0.0, 0.0, 1.0]))
            qpos[:, 7:] += 0.1 * rng.normal(size=(7, 12))
            scene.reset(ids, qpos=qpos)
        else:
            scene.step(trot.targets(step * 0.01), substeps=5)
        if step % 10 != 0 and step % 25 != 24:
            continue
        assert sensor.data.target_frame_names == [f"{leg}_USER" for leg in LEGS]
        for env in range(envs):
            feet, seen = world.feet(env, "trunk")
            np.testing.assert_allclose(numpy(sensor.data.target_pos_w)[env], feet, atol=1e-5)
            np.testing.assert_allclose(numpy(sensor.data.target_pos_source)[env], seen, atol=1e-5)
            np.testing.assert_allclose(numpy(sensor.data.source_pos_w)[env], world.data.body("trunk").xpos, atol=1e-5)
            assert_same_turn(numpy(sensor.data.source_quat_w)[env], world.data.body("trunk").xquat, 1e-5)
            for i, leg in enumerate(LEGS):
                quat = world.data.body(f"{leg}_shank").xquat
                assert_same_turn(numpy(sensor.data.target_quat_w)[env, i], quat, 1e-5)
                relative = wxyz(rotation(world.data.body("trunk").xquat).inv() * rotation(quat))
                assert_same_turn(numpy(sensor.data.target_quat_source)[env, i], relative, 1e-5)


def test_feet_in_a_thigh() -> None:
    """The source need not be the root: feet in a thigh's frame are in the order of the config."""
    engine = sn.MujocoEngine(model_path(), 4, keyframe="home")
    scene = sn.Scene(engine, [feet_cfg("FR_thigh")])
    world = World(engine)
    for step in range(10):
        scene.step(Trot().targets(0.4 + step * 0.02), substeps=10)
        data = scene["frame_transformer"].data
        assert data.target_frame_names == [f"{leg}_USER" for leg in LEGS]
        for env in range(4):
            _, seen = world.feet(env, "FR_thigh")
            np.testing.assert_allclose(numpy(data.target_pos_source)[env], seen, atol=1e-5)


CUBE = """<mujoco><worldbody><body name="cube"><freejoint/><geom type="box" size=".05 .05 .05"/></body></worldbody>
</mujoco>"""


def test_robot_body_in_another_frame_and_cube_in_the_robots_frame() -> None:
    """Source and target may belong to different entities."""
    engine = sn.MujocoEngine.compose({"Robot": model_path(), "Cube": (CUBE, (0.6, 0.2, 0.5))}, num_envs=3)
    to_cube = sn.FrameTransformerCfg(
        prim_path="{ENV_REGEX_NS}/Robot/trunk", target_frames=[Frame(prim_path="{ENV_REGEX_NS}/Cube/cube", name="CUBE")]
    )
    to_robot = sn.FrameTransformerCfg(
        name="back", prim_path="/World/envs/env_.*/Cube/cube",
        target_frames=[Frame(body=sn.ObjRef(type="body", name="trunk", entity="Robot"))],
    )  # fmt: skip
    scene = sn.Scene(engine, [to_cube, to_robot])
    world = World(engine)
    scene.reset(qvel=np.random.default_rng(7).normal(size=(3, engine.model.nv)))
    for _ in range(10):
        scene.step(substeps=5)
        there, back = scene[to_cube].data, scene[to_robot].data
        assert (there.target_frame_names, back.target_frame_names) == (["CUBE"], ["trunk"])
        for env in range(3):
            data = world.at(env)
            cube, trunk = data.body("Cube/cube"), data.body("Robot/trunk")
            q_cube, q_trunk = rotation(cube.xquat), rotation(trunk.xquat)
            seen = q_trunk.inv().apply(cube.xpos - trunk.xpos)
            np.testing.assert_allclose(numpy(there.target_pos_source)[env, 0], seen, atol=1e-5)
            assert_same_turn(numpy(there.target_quat_source)[env, 0], wxyz(q_trunk.inv() * q_cube), 1e-5)
            seen = q_cube.inv().apply(trunk.xpos - cube.xpos)
            np.testing.assert_allclose(numpy(back.target_pos_source)[env, 0], seen, atol=1e-5)


def test_three_offset_frames_on_one_body() -> None:
    """Centre, top and bottom of a cube, seen from the cube, are constant for any motion of the cube."""
    engine = sn.MujocoEngine(CUBE, 4)
    targets = [
        Frame(body="cube", name="CUBE_CENTER"),
        Frame(body="cube", name="CUBE_TOP", offset=sn.OffsetCfg(pos=(0.0, 0.0, 0.1))),
        Frame(body="cube", name="CUBE_BOTTOM", offset=sn.OffsetCfg(pos=(0.0, 0.0, -0.1))),
    ]
    scene = sn.Scene(engine, [sn.FrameTransformerCfg(body="cube", target_frames=targets)])
    scene.reset(qvel=np.random.default_rng(8).normal(size=(4, 6)) * 3.0)
    world = World(engine)
    for _ in range(10):
        scene.step(substeps=10)
        data = scene["frame_transformer"].data
        assert data.target_frame_names == ["CUBE_CENTER", "CUBE_TOP", "CUBE_BOTTOM"]
        expected = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.1], [0.0, 0.0, -0.1]]
        np.testing.assert_allclose(numpy(data.target_pos_source), [expected] * 4, atol=1e-6)
        np.testing.assert_allclose(numpy(data.target_quat_source), [[[1.0, 0.0, 0.0, 0.0]] * 3] * 4, atol=1e-6)
        for env in range(4):
            cube = world.at(env).body("cube")
            points = cube.xpos + rotation(cube.xquat).apply(expected)
            np.testing.assert_allclose(numpy(data.target_pos_w)[env], points, atol=1e-5)


@pytest.mark.parametrize("path", ["{ENV_REGEX_NS}/Robot/.*", "/World/envs/env_.*/Robot/.*"])
def test_all_bodies_of_a_robot(path: str) -> None:
    """`.*` selects every body in the order of the model, including the source as the identity."""
    engine = sn.MujocoEngine(model_path(), 2, keyframe="home")
    sensor = transformer(engine, prim_path="{ENV_REGEX_NS}/Robot/trunk", target_frames=[Frame(prim_path=path)])
    names = [engine.model.body(i).name for i in range(1, engine.model.nbody)]
    assert sensor.data.target_frame_names == names
    assert (sensor.num_bodies, sensor.body_names) == (13, names)
    data = World(engine).at(1)
    base = data.body("trunk")
    seen = rotation(base.xquat).inv().apply(data.xpos[1:] - base.xpos)
    np.testing.assert_allclose(numpy(sensor.data.target_pos_source)[1], seen, atol=1e-5)
    assert_same_turn(numpy(sensor.data.target_quat_w)[1], data.xquat[1:], 1e-5)
    trunk = names.index("trunk")
    assert not sensor.data.target_pos_source[:, trunk].any()
    pair = sn.MujocoEngine.compose({"Robot": model_path(), "Other": (model_path(), (0.0, 2.0, 0.0))}, num_envs=1)
    both = transformer(pair, prim_path="{ENV_REGEX_NS}/Robot/trunk", target_frames=[Frame(prim_path=path)])
    assert both.info.bodies == ("Robot/trunk",) and both.data.target_frame_names == names


@pytest.mark.parametrize("source", ["robot_0/trunk", "robot_1/RR_hip"])
def test_bodies_of_one_name_in_two_robots(source: str) -> None:
    """Two robots with equal body names stay distinct: implicit names are qualified, explicit names are kept."""
    engine = sn.MujocoEngine.compose({"robot_0": model_path(), "robot_1": (model_path(), (0.0, 2.0, 0.0))}, num_envs=2)
    targets = [
        Frame(prim_path="{ENV_REGEX_NS}/robot_0/FR_shank"),
        Frame(prim_path="{ENV_REGEX_NS}/robot_1/FR_shank"),
        Frame(prim_path="/World/envs/env_.*/robot_0/FR_shank", name="first", offset=FOOT),
        Frame(body=sn.ObjRef(type="body", name="FR_shank", entity="robot_1"), name="second", offset=FOOT),
        Frame(prim_path="{ENV_REGEX_NS}/robot_1/FL_thigh"),
    ]
    cfg = sn.FrameTransformerCfg(prim_path=f"{{ENV_REGEX_NS}}/{source}", target_frames=targets)
    scene = sn.Scene(engine, [cfg])
    scene.step(substeps=20)
    data, world = scene[cfg].data, World(engine)
    assert data.target_frame_names == ["robot_0/FR_shank", "robot_1/FR_shank", "first", "second", "FL_thigh"]
    for env in range(2):
        now = world.at(env)
        origin = now.body(source)
        shanks = [now.body(f"{robot}/FR_shank").xpos for robot in ("robot_0", "robot_1")]
        feet = [now.site(f"{robot}/FR_foot").xpos for robot in ("robot_0", "robot_1")]
        points = [*shanks, *feet, now.body("robot_1/FL_thigh").xpos]
        np.testing.assert_allclose(numpy(data.target_pos_w)[env], points, atol=1e-5)
        seen = rotation(origin.xquat).inv().apply(np.stack(points) - origin.xpos)
        np.testing.assert_allclose(numpy(data.target_pos_source)[env], seen, atol=1e-5)
        assert np.linalg.norm(numpy(data.target_pos_source)[env, 2] - numpy(data.target_pos_source)[env, 3]) > 1.0


def test_a_reading_right_after_a_reset_is_of_the_new_pose() -> None:
    """After a reset no value is outdated: the reading is the new pose at once, and the first idle step keeps it."""
    model = """<mujoco><option gravity="0 0 0"/><worldbody><body name="base"><geom size=".1"/>
      <body name="arm" pos=".2 0 0"><joint name="hinge" axis="0 1 0"/><site name="tool" pos=".5 0 0"/>
      <geom type="capsule" fromto="0 0 0 .5 0 0" size=".02"/></body></body></worldbody></mujoco>"""
    scene = sn.Scene(
        sn.MujocoEngine(model, 2), [sn.FrameTransformerCfg(body="base", target_frames=[Frame(site="tool")])]
    )
    tool = scene["frame_transformer"]
    scene.step(substeps=3)
    angle = 0.9
    scene.reset([1], qpos=[[angle]])
    expected = [[0.7, 0.0, 0.0], [0.2 + 0.5 * math.cos(angle), 0.0, -0.5 * math.sin(angle)]]
    np.testing.assert_allclose(numpy(tool.data.target_pos_source)[:, 0], expected, atol=1e-6)
    scene.step()
    np.testing.assert_allclose(numpy(tool.data.target_pos_source)[:, 0], expected, atol=1e-6)


def test_repr_describes_the_sensor() -> None:
    """A sensor, its data and its config are printable; the sensor names its source and its fields."""
    sensor = transformer(engine_of(2, bodies=("base", "foot")), body="base", target_frames=[Frame(body="foot")])
    assert repr(sensor).startswith(
        "<FrameTransformer 'frame_transformer' on base, 2 env(s), 100 Hz: target_pos_source["
    )
    assert str(sensor) == repr(sensor)
    assert "target_frame_names: ['foot']" in repr(sensor.data)
    assert "FrameCfg(body='foot')" in repr(sensor.cfg)
    assert sensor.info.notes == {"targets": "foot on foot"}


# Names and order ------------------------------------------------------------------------------------------------------


def tree(rng: np.random.Generator, names: list[str]) -> str:
    """Return a random MJCF tree of named bodies, each at a position that identifies it."""
    children: dict[str, list[str]] = {"": []}
    for name in names:
        parent = str(rng.choice(list(children)))
        children[parent].append(name)
        children[name] = []

    def body(name: str) -> str:
        x = int(name.rpartition("_")[2])
        inner = "".join(body(child) for child in children[name])
        return f'<body name="{name}" pos="{x} {x * x} 0"><geom size=".1"/>{inner}</body>'

    return f"<mujoco><worldbody>{''.join(body(name) for name in children[''])}</worldbody></mujoco>"


def test_targets_are_in_config_order_and_within_patterns_in_model_order() -> None:
    """In 100 models of shuffled bodies and entities, names, order and offsets match the model and the config."""
    rng = np.random.default_rng(9)
    for _ in range(100):
        entities = [f"e_{i}" for i in rng.permutation(3)]
        models = {
            entity: tree(rng, [f"b_{i}" for i in rng.permutation(6)[: rng.integers(3, 7)]]) for entity in entities
        }
        engine = sn.MujocoEngine.compose(models)
        bodies = [engine.model.body(i).name for i in range(1, engine.model.nbody)]
        first, second = (str(name) for name in rng.permutation(entities)[:2])
        lift = sn.OffsetCfg(pos=(0.0, 0.0, 1.0))
        cfg = sn.FrameTransformerCfg(
            body="world",
            target_frames=[
                Frame(prim_path=f"{{ENV_REGEX_NS}}/{first}/.*"),
                Frame(body=str(rng.choice(bodies)), name="mine", offset=lift),
                Frame(body=f"{second}/b_[0-9]", offset=lift),
                Frame(body="world"),
            ],
        )
        mine = cfg.target_frames[1].body
        elements = [name for name in bodies if name.startswith(f"{first}/")]
        count = len(elements)
        elements += [mine, *(name for name in bodies if name.startswith(f"{second}/"))]
        leaves = [name.split("/")[1] for name in elements if name]
        del leaves[count]
        expected = [
            element if leaves.count(element.split("/")[1]) > 1 else element.split("/")[1] for element in elements
        ]
        expected[count] = "mine"
        data = transformer(engine, **{name: getattr(cfg, name) for name in ("body", "target_frames")}).data
        assert data.target_frame_names == [*expected, "world"]
        now = mujoco.MjData(engine.model)
        mujoco.mj_kinematics(engine.model, now)
        places = np.stack([now.body(name).xpos for name in elements] + [np.zeros(3)])
        places[count:-1, 2] += 1.0
        np.testing.assert_allclose(numpy(data.target_pos_w)[0], places, atol=1e-4)


def two_robots() -> sn.TensorEngine:
    bodies = ("r1/base", "r1/foot", "r2/base", "r2/foot", "box")
    return engine_of(1, bodies=bodies, sites={"r1/tip": "r1/foot", "box_top": ("box", (0.0, 0.0, 0.1))})


@pytest.mark.parametrize(
    ("frames", "names"),
    [
        ([Frame(body="r1/foot")], ["foot"]),
        ([Frame(body=".*/foot")], ["r1/foot", "r2/foot"]),
        ([Frame(body="r2/foot"), Frame(body="r1/foot", name="left")], ["foot", "left"]),
        ([Frame(body="r2/foot"), Frame(body="box", name="foot")], ["r2/foot", "foot"]),
        ([Frame(body="r2/.*"), Frame(body="box"), Frame(body="r1/base")], ["r2/base", "foot", "box", "r1/base"]),
        ([Frame(site="r1/tip"), Frame(site="box_top"), Frame(link_name="r2/base")], ["tip", "box_top", "base"]),
        ([Frame(prim_path="/World/r1/tip"), Frame(prim_path="r2/.*")], ["tip", "base", "foot"]),
        ([Frame(prim_path="{ENV_REGEX_NS}/Thing/box")], ["box"]),
        ([Frame(prim_path="/World/envs/env_0/r1/foot"), Frame(prim_path="/World")], ["foot", "world"]),
        ([Frame(body=sn.ObjRef(type="body", name=".*", entity="r2"))], ["base", "foot"]),
    ],
)
def test_frame_names(frames: list[Any], names: list[str]) -> None:
    """A frame has its given name, or the leaf of its element's name, or, if that is not unique, the full name."""
    assert transformer(two_robots(), body="world", target_frames=frames).data.target_frame_names == names


IMPOSSIBLE: dict[str, tuple[list[Any], str]] = {
    "typo": ([Frame(body="r1/fot")], r"0\.body: got 'r1/fot', expected the name of a body.*Did you mean 'r1/foot'"),
    "kind": ([Frame(body="box"), Frame(body="r1/tip")], r"1\.body: .*Write site='r1/tip'"),
    "reference": ([Frame(site=sn.ObjRef(type="body", name="box"))], r"0\.site: .*a reference to a site.*Use body="),
    "path": ([Frame(prim_path="{ENV_REGEX_NS}/r1/fooot")], r"0\.prim_path: .*Tried 'r1/fooot' and 'fooot'"),
    "leaf": ([Frame(prim_path="{ENV_REGEX_NS}/Robot/foot")], r"bodies of one entity\. It matches r1/foot, r2/foot"),
    "bare leaf": ([Frame(prim_path="{ENV_REGEX_NS}/foot")], r"expected bodies of one entity"),
    "broken path": (
        [Frame(prim_path="/World/Robot/(foot")],
        r"0\.prim_path: got .*The regular expression is invalid: missing \)",
    ),
    "broken": ([Frame(body="(foot")], r"0\.body: got '\(foot'.*The regular expression is invalid"),
    "one name": (
        [Frame(body=".*/foot", name="foot")],
        r"one element for the name 'foot'\. It matches r1/foot, r2/foot",
    ),
    "twice": ([Frame(body="box"), Frame(body="box")], r"0\.body: got 'box', expected frames with distinct names"),
    "taken": ([Frame(body="r1/foot", name="r2/foot"), Frame(body=".*/foot")], r"not 2 named 'r2/foot'"),
    "again": ([Frame(body="box"), Frame(body=".*")], r"not 2 named 'box'\. Give all but one of them a distinct name"),
}


@pytest.mark.parametrize(("frames", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_unresolved_targets_give_the_reason(frames: list[Any], message: str) -> None:
    """A pattern with no match, too many, the wrong kind or duplicate frame names is an error that states the fix."""
    title = r"FrameTransformerCfg\('frame_transformer'\)\.target_frames\."
    with pytest.raises(sn.SelectionError, match=rf"{title}.*{message}"):
        transformer(two_robots(), body="world", target_frames=frames)


def test_one_prim_path_and_many() -> None:
    """A path that matches several elements is rejected if exactly one is needed; bodies take precedence over sites."""
    bodies = ("robot/leg_a", "robot/leg_b", "robot/tip", "other/leg_b")
    engine = engine_of(1, bodies=bodies, sites={"robot/tip": "robot/tip"})
    assert match_prim_path("{ENV_REGEX_NS}/robot/leg_.*", engine, "Cfg") == ("body", ["robot/leg_a", "robot/leg_b"])
    assert match_prim_path("/World/envs/env_*/robot/x/y/leg_b", engine, "Cfg") == ("body", ["robot/leg_b"])
    assert match_prim_path("/World/envs/env_0/robot/leg_*", engine, "Cfg") == ("body", ["robot/leg_a", "robot/leg_b"])
    assert match_prim_path("{ENV_REGEX_NS}/robot/tip", engine, "Cfg", exactly_one=True) == ("body", ["robot/tip"])
    with pytest.raises(sn.SelectionError, match=r"Cfg\.prim_path: .*exactly one body\. It matches robot/leg_a, robot/"):
        match_prim_path("{ENV_REGEX_NS}/robot/leg_.*", engine, "Cfg", exactly_one=True)


def test_bodies_are_found_by_frame_name() -> None:
    """`find_bodies` matches full frame names; indices follow the target axis, or the keys on request."""
    engine = engine_of(1, bodies=("base", "LF", "RF", "LH"))
    sensor = transformer(engine, body="base", target_frames=[Frame(body="[LR].*"), Frame(body="base", name="centre")])
    assert sensor.find_bodies(".F") == ([0, 1], ["LF", "RF"])
    assert sensor.find_bodies(["centre", "L."]) == ([0, 2, 3], ["LF", "LH", "centre"])
    assert sensor.find_bodies(["centre", "L."], preserve_order=True) == ([3, 0, 2], ["centre", "LF", "LH"])
    assert sensor.find_bodies(["LF", "L."]) == ([0, 2], ["LF", "LH"])
    with pytest.raises(sn.SelectionError, match=r"find_bodies: got 'base', expected the name of a target frame"):
        sensor.find_bodies("base")


def test_names_are_in_every_view_copy_and_description() -> None:
    """Truth, copies, histories and recorders have the same names; a write to one does not affect the others."""
    engine = engine_of(3, bodies=("base", "foot"))
    cfg = sn.FrameTransformerCfg(body="base", target_frames=[Frame(body=".*")], history_length=2)
    scene = sn.Scene(engine, [cfg])
    sensor = scene[cfg]
    for view in (sensor.data, sensor.ground_truth, sensor.read([1]), sensor.read_ground_truth(), sensor.history):
        assert view.target_frame_names == ["base", "foot"]
    sensor.read().target_frame_names.append("mine")
    assert sensor.data.target_frame_names == ["base", "foot"]
    assert sensor.history.target_pos_source.shape == (3, 2, 2, 3)
    names = scene.description().sensors["frame_transformer"]["constants"]
    assert names == {"target_frame_names": ["base", "foot"], "target_names": ["base", "foot"]}


# Config ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"visualizer_cfg": object()}, "visualizer_cfg"),
        ({"target_frames": []}, r"target_frames: got \[\], expected a list of at least one FrameCfg"),
        ({"target_frames": Frame(body="a")}, r"target_frames: got FrameCfg.*expected a list of at least one FrameCfg"),
        (
            {"target_frames": [Frame(body="a", name="x"), Frame(body="b", name="x")]},
            r"FrameTransformerCfg\.target_frames: got .*, not 2 named 'x'\. Rename all but one",
        ),
        ({"target_frames": [{"body": "a", "site": "b"}]}, r"target_frames\.0\.frame: got body='a', site='b', expe"),
        ({"fields": ("target_pos",)}, r"fields: got .*Did you mean 'target_pos_w'"),
        ({"fields": ()}, r"fields: got \(\), expected at least one field"),
        ({"geom": "g"}, r"mount: got body='a', geom='g', expected exactly one selector"),
    ],
)  # fmt: skip
def test_contradictory_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    """Each fault is reported with its field, the given value and the accepted values."""
    with pytest.raises(sn.ConfigError, match=message):
        sn.FrameTransformerCfg(**{"body": "a", "target_frames": [Frame(body="a")], **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {},
            r"FrameCfg\.frame: got no selector, expected one of prim_path, body, site, geom, camera, joint, link_name",
        ),
        ({"body": "a", "prim_path": "/a"}, r"frame: got prim_path='/a', body='a'.*Keep one of them"),
        ({"body": "a", "name": ""}, r"name: got '', expected a name, or None"),
        ({"body": "a", "offset": {"rot": (2.0, 0.0, 0.0, 0.0)}}, r"FrameCfg\.offset\.rot: .*unit quaternion"),
    ],
)
def test_contradictory_frames_are_refused(fields: dict[str, Any], message: str) -> None:
    """A target frame has exactly one selector, which is a name."""
    with pytest.raises(sn.ConfigError, match=message):
        Frame(**fields)


def test_config_with_every_selector_round_trips() -> None:
    """Frames, references and offsets survive a round trip."""
    place = sn.OffsetCfg(pos=(1.0, 2.0, 3.0), rot=(0.0, 1.0, 0.0, 0.0))
    cfg = sn.FrameTransformerCfg(
        prim_path="{ENV_REGEX_NS}/Robot/base", offset=place, fields=["target_pos_source"],
        target_frames=[
            Frame(site="a", name="x", offset=place), Frame(body=sn.ObjRef(type="body", name="b", entity="r")),
        ],
    )  # fmt: skip
    again = sn.FrameTransformerCfg.from_json(cfg.to_json())
    assert again == cfg == sn.FrameTransformerCfg.from_toml(cfg.to_toml())
    assert again.offset == place


def test_only_selected_fields_are_computed() -> None:
    """Fields that were not requested are None and use no memory."""
    engine = engine_of(100, bodies=("base", "foot"))
    scatter(engine, np.random.default_rng(10))
    common: dict[str, Any] = {"body": "base", "target_frames": [Frame(body=".*")]}
    full = sn.FrameTransformerCfg(name="full", **common)
    part = sn.FrameTransformerCfg(name="part", fields=("target_quat_source", "source_pos_w"), **common)
    scene = sn.Scene(engine, [full, part])
    for name in ALL:
        value = getattr(scene[part].data, name)
        if name in part.fields:
            assert torch.equal(value, getattr(scene[full].data, name))
        else:
            assert value is None
    left_out = 4 * 100 * (2 * 3 + 2 * 3 + 2 * 4 + 4)
    assert scene[full].nbytes - scene[part].nbytes == left_out


# Measurement ----------------------------------------------------------------------------------------------------------


def test_rotation_noise_is_small_angle_and_per_field() -> None:
    """Noise on an orientation is a rotation vector of the given deviation and keeps quaternions unit."""
    envs, sigma, spread = 4000, 0.02, 0.005
    engine = engine_of(envs, bodies=("base", "foot"))
    scatter(engine, np.random.default_rng(11))
    noise = {"target_quat_source": sigma, "target_pos_source": spread}
    sensor = transformer(engine, body="base", target_frames=[Frame(body=".*")], noise=noise)
    data, truth = sensor.data, sensor.ground_truth
    got, true = numpy(data.target_quat_source).reshape(-1, 4), numpy(truth.target_quat_source).reshape(-1, 4)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=8 * EPS)
    error = (rotation(true).inv() * rotation(got)).as_rotvec()
    shift = numpy(data.target_pos_source - truth.target_pos_source).reshape(-1, 3)
    for values, deviation in ((error, sigma), (shift, spread)):
        count = len(values)
        low, high = stats.chi2.ppf([1e-6, 1.0 - 1e-6], count)
        for column in range(3):
            assert low < (values[:, column] ** 2).sum() / deviation**2 < high
        assert (np.abs(np.corrcoef(values.T)[np.triu_indices(3, 1)]) < 5.0 / math.sqrt(count)).all()
    for name in set(ALL) - set(noise):
        assert torch.equal(getattr(data, name), getattr(truth, name)), name


def test_non_finite_body_invalidates_its_env_and_is_named() -> None:
    """If the pose of a target or the source is not finite, the sample is invalid, and the warning names the body."""
    for lost, where in (("foot", 1), ("base", 0)):
        engine = engine_of(3, bodies=("base", "foot", "other"))
        scene = sn.Scene(engine, [sn.FrameTransformerCfg(body="base", target_frames=[Frame(body="foot")])])
        sensor = scene["frame_transformer"]
        engine.body_pos_w[2] = math.nan  # a body without a target does not count
        engine.body_pos_w[2, :2] = 0.0
        engine.body_pos_w[1, where] = math.inf
        scene.update()
        with pytest.warns(sn.NonFiniteStateWarning, match=f"env 1, body '{lost}', at tick 1"):
            assert sensor.valid.tolist() == [True, False, True]
        engine.body_pos_w[1] = 0.0
        scene.update()
        assert sensor.valid.tolist() == [True] * 3


@pytest.mark.parametrize(
    "cfg",
    [
        sn.FrameTransformerCfg(bodies="body", target_frames=[Frame(body=".*"), Frame(site="site")], delay=0.004),
        pytest.param(
            sn.FrameTransformerCfg(body="world", target_frames=[Frame(site="site")], rate_hz=333.0, history_length=3),
            marks=pytest.mark.full,
        ),
        sn.FrameTransformerCfg(
            site="site", fields=("target_pos_source", "target_quat_source"), noise={"target_pos_source": 0.01},
            random_walk={"target_quat_source": 0.01},
            target_frames=[Frame(body="world"), Frame(body="body", offset=FOOT)],
        ),
    ],
    ids=["plural", "history", "selected"],
)  # fmt: skip
def test_contract_holds(cfg: sn.FrameTransformerCfg) -> None:
    """Every rule of `check_sensor` holds for one and several sources, with delay, history, noise and walks."""
    rules = check_sensor(cfg, steps=8)
    assert {"env_count_does_not_matter", "truth_is_never_altered", "nothing_old_after_reset"} <= set(rules)


def test_transformer_requires_poses_only() -> None:
    """An engine that gives only poses is sufficient."""
    engine = engine_of(2, provides=("pose",))
    assert transformer(engine, body="body", target_frames=[Frame(body="world")]).data.target_pos_w.shape == (2, 1, 3)


def test_debug_draw_shows_frames_and_connections() -> None:
    """Debug shapes are frames of the source and the targets, and lines from the source to the targets, in the world."""
    scene = sn.Scene(tumbling_engine(3), [sn.FrameTransformerCfg.example()])
    sensor = scene["frame_transformer"]
    assert sensor.has_debug_vis_implementation
    scene.step(substeps=20)
    source, targets, lines = sensor.debug_draw()
    assert (source.kind, targets.kind, lines.kind) == ("frames", "frames", "lines")
    data = sensor.data
    np.testing.assert_allclose(source.data[:, :3], numpy(data.source_pos_w), atol=1e-6)
    assert_same_turn(source.data[:, 3:].astype(np.float64), numpy(data.source_quat_w), 1e-6)
    np.testing.assert_allclose(targets.data[:, :3], numpy(data.target_pos_w).reshape(-1, 3), atol=1e-6)
    assert_same_turn(targets.data[:, 3:].astype(np.float64), numpy(data.target_quat_w).reshape(-1, 4), 1e-6)
    assert lines.data.shape == (6, 2, 3)
    np.testing.assert_allclose(lines.data[:, 1], targets.data[:, :3], atol=0.0)
    np.testing.assert_allclose(lines.data[::2, 0], source.data[:, :3], atol=0.0)
