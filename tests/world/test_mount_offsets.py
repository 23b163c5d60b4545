"""Mount offsets: per environment, sensors follow the model elements that they are mounted on when these are moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from numpy.typing import NDArray

import sensorium as sn
from sensorium.engines.offsets import LiveOffsets

Pose = tuple[tuple[float, float, float], tuple[float, float, float, float]]
Places = Mapping[str, Pose]

ELEMENTS = {"wrist": "site", "tip": "site", "eye": "cam", "hinge": "jnt"}
PLACES: list[Places] = [
    {
        "wrist": ((0.10, 0.00, 0.05), (1.0, 0.0, 0.0, 0.0)),
        "tip": ((0.30, 0.00, 0.00), (0.8, 0.6, 0.0, 0.0)),
        "eye": ((0.20, 0.05, 0.10), (0.5, 0.5, -0.5, -0.5)),
        "hinge": ((0.01, 0.00, 0.02), (1.0, 0.0, 0.0, 0.0)),
    },
    {
        "wrist": ((0.07, -0.04, 0.02), (0.9805806756909202, 0.0, 0.19611613513818404, 0.0)),
        "tip": ((0.25, 0.03, -0.06), (0.6, 0.8, 0.0, 0.0)),
        "eye": ((0.15, -0.05, 0.12), (0.5, 0.5, -0.5, -0.5)),
        "hinge": ((-0.02, 0.01, 0.00), (1.0, 0.0, 0.0, 0.0)),
    },
    {
        "wrist": ((-0.03, 0.06, 0.11), (0.0, 0.0, 0.6, 0.8)),
        "tip": ((0.31, -0.02, 0.04), (0.28, 0.0, 0.96, 0.0)),
        "eye": ((0.22, 0.02, 0.07), (0.4, 0.5656854249492381, -0.4, -0.6)),
        "hinge": ((0.00, 0.03, -0.01), (1.0, 0.0, 0.0, 0.0)),
    },
]
"""Model fields with the poses of all elements relative to their bodies, for three environments. Geoms are omitted: they
are shapes that rays hit.
"""
ON_TOP = sn.OffsetCfg(pos=(0.02, -0.01, 0.03), rot=(0.5, 0.5, -0.5, 0.5))
FrameCfg = sn.FrameTransformerCfg.FrameCfg
DT = 0.002


def world(places: Places) -> str:
    """Return an arm between a floor and a wall, on a floating base that rotates; inertias are not derived from
    geoms.
    """

    def pose(name: str) -> str:
        pos, quat = places[name]
        turn = "" if ELEMENTS[name] == "jnt" else f' quat="{" ".join(map(str, quat))}"'
        return f'name="{name}" pos="{" ".join(map(str, pos))}"{turn}'

    return f"""
    <mujoco><compiler inertiafromgeom="false"/><option timestep="{DT}" magnetic="0.2 0.1 -0.4"/><worldbody>
      <geom name="floor" type="plane" size="0 0 0.1"/>
      <geom name="wall" type="box" pos="2 0.3 1" euler="0 0 20" size="0.1 2 1"/>
      <body name="base" pos="0 0 1"><freejoint/><inertial pos="0 0 0" mass="2" diaginertia="0.02 0.03 0.04"/>
        <body name="arm" pos="0.2 0 0"><joint {pose("hinge")} axis="0 1 0" damping="0.1"/>
          <inertial pos="0.1 0 0" mass="0.5" diaginertia="0.002 0.003 0.004"/>
          <geom name="pad" pos="0 0.1 0.2" type="box" size="0.02 0.03 0.04" contype="0" conaffinity="0"/>
          <site {pose("wrist")}/><site {pose("tip")}/><camera {pose("eye")} mode="fixed"/>
        </body>
      </body>
    </worldbody></mujoco>"""


def sensors() -> list[sn.SensorCfg[Any]]:
    """Return mounted sensors of all kinds, on elements of all kinds."""
    frames = [
        FrameCfg(name="tip", site="tip", offset=ON_TOP),
        FrameCfg(name="eye", camera="eye"),
        FrameCfg(name="hinge", joint="hinge"),
        FrameCfg(name="base", body="base"),
    ]
    grid = sn.patterns.GridPatternCfg(size=(0.4, 0.2), resolution=0.1)
    return [
        sn.ImuCfg(name="imu", site="wrist", offset=ON_TOP),
        sn.ForceTorqueCfg(name="wrench", site="wrist", offset=ON_TOP),
        sn.JointWrenchCfg(name="joint", joint="hinge"),
        sn.FrameTransformerCfg(name="frames", site="wrist", target_frames=frames),
        sn.RayCasterCfg(name="scan", site="wrist", pattern=grid, offset=ON_TOP),
        sn.TerrainHeightCfg(name="height", sites=("tip", "wrist"), pattern=grid),
        sn.DepthCameraCfg(name="camera", camera="eye", res=(16, 12)),
        sn.LidarCfg(name="lidar", site="tip", pattern=grid, rate_hz=1.0 / DT),
        sn.RadarCfg(name="radar", site="tip", pattern=grid),
        sn.SurfaceDistanceProbeCfg(name="probe", sites=("wrist", "tip"), probe_radius=3.0),
        sn.GnssCfg(name="gnss", site="wrist", origin=(47.0, 8.0, 400.0)),
        sn.BarometerCfg(name="barometer", site="wrist"),
        sn.MagnetometerCfg(name="compass", site="wrist"),
    ]


def write(field: Callable[[str], NDArray[Any]], row: Callable[[str], int], places: Places, envs: Any) -> None:
    """Write poses of all elements into the fields of a model."""
    for name, (pos, quat) in places.items():
        field(f"{ELEMENTS[name]}_pos")[envs, row(name)] = pos
        if ELEMENTS[name] != "jnt":
            field(f"{ELEMENTS[name]}_quat")[envs, row(name)] = quat


def row_in(model: Any) -> Callable[[str], int]:
    """Return a function that gives the row of an element."""
    kinds = {"cam": "camera", "jnt": "joint"}
    return lambda name: int(getattr(model, kinds.get(ELEMENTS[name], ELEMENTS[name]))(name).id)


def move(engine: sn.MujocoEngine, env: int, places: Places) -> None:
    """Move all elements of one environment of a batch."""
    write(engine.batch.expand, row_in(engine.model), places, env)


def start(engine: sn.MujocoEngine) -> None:
    """Set the same spin in all environments."""
    engine.qvel[:] = torch.tensor([0.1, 0.2, -0.1, 0.5, -1.0, 0.7, 2.0], dtype=torch.float64)
    engine.forward()


def truths(scene: sn.Scene, env: int) -> dict[str, NDArray[np.float64]]:
    """Return the true values of all sensors of one environment."""
    return {
        f"{name}.{field.name}": value[env].numpy().astype(np.float64)
        for name, sensor in scene.sensors.items()
        for field in dataclasses.fields(sensor.ground_truth)
        if isinstance(value := getattr(sensor.ground_truth, field.name), torch.Tensor)
    }


def compare(got: Mapping[str, NDArray[np.float64]], expected: Mapping[str, NDArray[np.float64]]) -> None:
    assert got.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)


def compiled(places: Places, steps: int) -> dict[str, NDArray[np.float64]]:
    """Return the true values after some steps of one environment whose model was compiled with these poses."""
    engine = sn.MujocoEngine(world(places))
    scene = sn.Scene(engine, sensors())
    start(engine)
    for _ in range(steps):
        scene.step()
    return truths(scene, 0)


@pytest.mark.parametrize("capture", [False, True])
def test_each_env_reads_like_a_model_compiled_with_its_poses(capture: bool) -> None:
    """Fields that are expanded after the scene is built may differ between the environments."""
    engine = sn.MujocoEngine(world(PLACES[0]), 3)
    scene = sn.Scene(engine, sensors(), capture=capture)
    start(engine)
    for _ in range(4):
        scene.step()
    truths(scene, 0)  # fields that are computed on read were read before as well
    for env in (1, 2):
        move(engine, env, PLACES[env])
    scene.reset()
    start(engine)
    for _ in range(6):
        scene.step()
    readings = [truths(scene, env) for env in range(3)]
    differ = {name.split(".")[0] for name in readings[0] if not np.allclose(readings[0][name], readings[2][name])}
    assert differ == {*scene.sensors}
    for env, got in enumerate(readings):
        compare(got, compiled(PLACES[env], 6))


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "field"),
    [
        ("site", "wrist", "site_pos"),
        ("geom", "pad", "geom_pos"),
        ("camera", "eye", "cam_pos"),
        ("joint", "hinge", "jnt_pos"),
    ],
)
def test_written_offset_applies_at_the_next_sample_and_survives_a_reset(
    kind: str, name: str, field: str, capture: bool
) -> None:
    """After each of several writes in place, the mount follows its field and nothing is rebuilt."""
    engine = sn.MujocoEngine(world(PLACES[0]), 2)
    target = FrameCfg(name="target", **{kind: name})
    scene = sn.Scene(
        engine, [sn.FrameTransformerCfg(name="frames", body="arm", target_frames=[target])], capture=capture
    )
    values = engine.batch.expand(field)
    row = getattr(engine.model, kind)(name).id
    rng = np.random.default_rng(0)
    addresses = None
    for _ in range(8):
        values[:, row] = rng.uniform(-1.0, 1.0, (2, 3))
        scene.step()
        got = scene["frames"].data.target_pos_source[:, 0]
        np.testing.assert_allclose(got.numpy(), values[:, row], atol=1e-6)
        mount = scene["frames"].targets
        assert addresses in (None, (mount.offset_pos.data_ptr(), mount.offset_quat.data_ptr()))
        addresses = mount.offset_pos.data_ptr(), mount.offset_quat.data_ptr()
    scene.reset()
    np.testing.assert_allclose(scene["frames"].data.target_pos_source[:, 0].numpy(), values[:, row], atol=1e-6)


def test_reset_of_some_envs_moves_only_their_mounts() -> None:
    """A write to all environments takes effect at once in the reset one, and with the next sample in the others."""
    engine = sn.MujocoEngine(world(PLACES[0]), 3)
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="wrist")])
    scene.step()
    scene["imu"].read()
    row = engine.model.site("wrist").id
    before = np.array(PLACES[0]["wrist"][0], np.float32)
    engine.batch.expand("site_pos")[:, row] = (0.5, 0.25, 0.125)
    scene.reset([1])
    mount = scene["imu"].mount
    np.testing.assert_array_equal(mount.offset_pos[:, 0], [before, (0.5, 0.25, 0.125), before])
    scene.step()
    scene["imu"].read()
    np.testing.assert_array_equal(mount.offset_pos[:, 0], [(0.5, 0.25, 0.125)] * 3)


def test_expanded_fields_survive_model_changes_by_sensors() -> None:
    """An IMU makes MuJoCo compute accelerations: the model is recompiled, and the values per environment are kept."""
    engine = sn.MujocoEngine(world(PLACES[0]), 2)
    engine.batch.expand("cam_pos")[1, engine.model.camera("eye").id] = (0.5, 0.25, 0.125)
    engine.batch.expand("body_mass")[1] *= 2.0
    old = engine.batch
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", camera="eye")])
    assert engine.batch is not old
    np.testing.assert_array_equal(scene["imu"].mount.offset_pos[1, 0], (0.5, 0.25, 0.125))
    np.testing.assert_allclose(engine.batch.expanded("body_mass")[1], 2.0 * engine.model.body_mass)


def test_unkeepable_batch_fields_are_refused_by_name() -> None:
    """Sites added by a sensor change the size of `site_pos`; a model passed by the caller without them is rejected."""
    engine = sn.MujocoEngine(world(PLACES[0]), 2)
    engine.batch.expand("site_pos")[1] += 1.0
    with pytest.raises(sn.ModelError, match=r"changed the size of site_pos.*after Scene"):
        sn.Scene(engine, [sn.ImuCfg(name="imu", site="wrist")])
    engine = sn.MujocoEngine(world(PLACES[0]), 2)
    engine.batch.set_models([mujoco.MjModel.from_xml_string(world(places)) for places in PLACES[:2]])
    with pytest.raises(sn.ModelError, match=r"batch.set_models.*after Scene"):
        sn.Scene(engine, [sn.ImuCfg(name="imu", site="wrist")])


def test_callers_models_keep_their_poses() -> None:
    """`batch.set_models` assigns each environment its own model, follows edits of it, and can remove it again."""
    engine = sn.MujocoEngine(mujoco.MjModel.from_xml_string(world(PLACES[0])), 3)
    frames = sn.FrameTransformerCfg(name="frames", body="arm", target_frames=[FrameCfg(name="tip", site="tip")])
    scene = sn.Scene(engine, [frames])
    models = [mujoco.MjModel.from_xml_string(world(places)) for places in PLACES]
    for given, expected in ((models, [0, 1, 2]), (models[2], [2, 2, 2]), (None, [0, 0, 0])):
        engine.batch.set_models(given)
        scene.step()
        got = scene["frames"].data.target_pos_source[:, 0].numpy()
        np.testing.assert_allclose(got, [PLACES[env]["tip"][0] for env in expected], atol=1e-6)
    engine.batch.set_models(models)
    scene.step()
    scene["frames"].read()
    models[1].site("tip").pos += (0.5, 0.0, 0.0)
    scene.step()
    x = scene["frames"].data.target_pos_source[:, 0, 0].numpy()
    np.testing.assert_allclose(x, [PLACES[env]["tip"][0][0] + 0.5 * (env == 1) for env in range(3)], atol=1e-6)


def test_edit_of_a_live_model_applies_from_the_next_update() -> None:
    """All sensors of a wrapped model read the same as those of a model compiled with the new poses."""
    spec = mujoco.MjSpec.from_string(world(PLACES[0]))
    sn.prepare(spec, sensors())
    model = spec.compile()
    data = mujoco.MjData(model)
    scene = sn.Scene(sn.MujocoEngine.from_mj(model, data), sensors())
    scene.update(0)
    truths(scene, 0)
    for places in (PLACES[1], PLACES[2], PLACES[0]):
        write(lambda field: getattr(model, field)[None], row_in(model), places, 0)
        mujoco.mj_resetData(model, data)
        data.qvel[:] = [0.1, 0.2, -0.1, 0.5, -1.0, 0.7, 2.0]
        scene.reset()
        for _ in range(3):
            mujoco.mj_step(model, data)
            scene.update()
        compare(truths(scene, 0), compiled(places, 3))


def test_a_partial_reset_of_live_data_reads_the_model_again() -> None:
    """An edit that only some environments have seen, and that is then undone, is undone for these as well."""
    model = mujoco.MjModel.from_xml_string(world(PLACES[0]))
    datas = [mujoco.MjData(model) for _ in range(2)]
    scene = sn.Scene(sn.MujocoEngine.from_mj(model, datas), [sn.BarometerCfg(name="air", site="wrist")])
    mount = scene["air"].mount
    before = model.site("wrist").pos.copy()
    model.site("wrist").pos[:] = (0.5, 0.25, 0.125)
    scene.reset([1])
    np.testing.assert_array_equal(mount.offset_pos[:, 0], [before.astype(np.float32), (0.5, 0.25, 0.125)])
    model.site("wrist").pos[:] = before
    for data in datas:
        mujoco.mj_step(model, data)
    scene.update()
    scene["air"].read()
    np.testing.assert_array_equal(mount.offset_pos[:, 0], [before.astype(np.float32)] * 2)


def test_contact_axes_of_a_geom_are_those_of_its_env() -> None:
    """A ball rests on a floor: the force on it points upwards in the world, however the geom is oriented."""
    xml = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 0.1"/><body name="ball" pos="0 0 0.1">
      <freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/><geom name="skin" size="0.1"/>
    </body></worldbody></mujoco>"""
    engine = sn.MujocoEngine(xml, 2)
    pose = sn.ContactSensorCfg(name="pose", prim_path="skin", track_pose=True)
    scene = sn.Scene(engine, [sn.ContactForceCfg(name="force", geom="skin"), pose])
    engine.batch.expand("geom_quat")[1, engine.model.geom("skin").id] = (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)
    scene.step(substeps=500)
    got = scene["force"].ground_truth.numpy()
    np.testing.assert_allclose(got, [(0.0, 0.0, 9.81), (0.0, 9.81, 0.0)], atol=2e-2)
    turns = scene["pose"].data.quat_w[:, 0].numpy()
    np.testing.assert_allclose(turns, [(1.0, 0.0, 0.0, 0.0), (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)], atol=1e-6)


def test_loaded_state_uses_the_batchs_mount_poses() -> None:
    """The owner of a model saves its fields; a loaded state continues with the fields of the batch it is loaded
    into.
    """
    engines = [sn.MujocoEngine(world(PLACES[0]), 2) for _ in range(2)]
    scenes = [sn.Scene(engine, [sn.ImuCfg(name="imu", site="wrist")]) for engine in engines]
    start(engines[0])
    for engine in engines:
        engine.batch.expand("site_pos")[1, engine.model.site("wrist").id] = (0.5, 0.25, 0.125)
    scenes[0].step(substeps=3)
    scenes[1].load_state(scenes[0].state())
    np.testing.assert_array_equal(scenes[1]["imu"].mount.offset_pos[1, 0], (0.5, 0.25, 0.125))
    for scene in scenes:
        scene.step()
    assert torch.equal(scenes[0]["imu"].data.lin_acc_b, scenes[1]["imu"].data.lin_acc_b)


@pytest.mark.slow
@pytest.mark.parametrize("capture", [False, True])
def test_mujoco_warp_mount_poses_match_mujoco(capture: bool) -> None:
    """Three cases: one row for all environments, a replacing array with a row per environment, and writes in place."""
    frames = [FrameCfg(name="wrist", site="wrist", offset=ON_TOP), FrameCfg(name="eye", camera="eye")]
    cfg = sn.FrameTransformerCfg(name="frames", body="arm", target_frames=frames)
    warp, cpu = sn.MujocoWarpEngine(world(PLACES[0]), 3, device="cpu"), sn.MujocoEngine(world(PLACES[0]), 3)
    scenes = sn.Scene(warp, [cfg], capture=capture), sn.Scene(cpu, [cfg])
    fields = [f"{word}_{part}" for word in ("site", "cam") for part in ("pos", "quat")]

    def agree() -> None:
        for scene in scenes:
            scene.step()
        for env in range(3):
            got, expected = (truths(scene, env) for scene in scenes)
            for name in ("frames.target_pos_source", "frames.target_quat_source"):
                np.testing.assert_allclose(got[name], expected[name], atol=1e-5)

    agree()
    for env, places in enumerate(PLACES):
        move(cpu, env, places)
    for name in fields:
        array = getattr(warp.m, name)
        setattr(warp.m, name, wp.array(cpu.batch.expanded(name).astype(np.float32), dtype=array.dtype, device="cpu"))
    for _ in range(6):
        agree()
    for env, places in enumerate(reversed(PLACES)):
        move(cpu, env, places)
    for name in fields:
        getattr(warp.m, name).assign(cpu.batch.expanded(name).astype(np.float32))
    for _ in range(2):
        agree()


def test_unmoved_mounts_need_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch that follows elements runs as soon as the first field is expanded, and never before."""
    engine = sn.MujocoEngine(world(PLACES[0]), 2)
    scene = sn.Scene(engine, sensors())
    calls = []
    monkeypatch.setattr(LiveOffsets, "follow", lambda self, ids=None: calls.append(ids))
    for _ in range(3):
        scene.step()
        truths(scene, 0)
    scene.reset([0])
    assert not calls
    engine.batch.expand("site_quat")
    scene.step()
    truths(scene, 0)
    assert calls == [None]


def test_mounts_on_bodies_and_on_plain_tensors_share_one_row() -> None:
    """An engine that moves no elements stores one offset for all environments, which kernels read with a stride of
    0.
    """
    engine = sn.TensorEngine(4, bodies=("body",), sites={"site": ("body", (0.1, 0.2, 0.3))})
    mount = sn.Scene(engine, [sn.BarometerCfg(name="air", site="site")])["air"].mount
    assert mount.offset_pos.shape == (4, 1, 3)
    assert mount.offset_pos.stride(0) == mount.offset_quat.stride(0) == 0
    on_body = sn.Scene(sn.MujocoEngine(world(PLACES[0]), 4), [sn.BarometerCfg(name="air", body="arm")])["air"].mount
    assert on_body.offset_pos.stride(0) == 0
    assert [array.strides[0] for array in on_body.warp_inputs[1:]] == [0, 0]
