"""The guarantees of mjlab's page and its examples, in this library's names."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn

ROBOT = """
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 1">
      <freejoint/>
      <geom size=".1"/>
      <site name="imu_site" pos=".05 0 0"/>
      <body name="leg" pos=".1 0 0">
        <joint name="knee_joint" axis="0 1 0" range="-30 30" limited="true"/>
        <geom size=".03" pos=".2 0 0"/>
        <body name="end_effector" pos=".3 0 0"><geom size=".02"/></body>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="knee" joint="knee_joint" gear="2"/></actuator>
  <option magnetic="0.2 -0.5 0.4"><flag energy="enable"/></option>
  %s
</mujoco>
"""
BOX = "<mujoco><worldbody><body name='box' pos='2 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"


def robot(num_envs: int = 3, sensors: str = "") -> sn.MujocoEngine:
    return sn.MujocoEngine.compose({"robot": ROBOT % sensors, "box": BOX}, num_envs=num_envs)


def site(name: str = "imu_site") -> sn.ObjRef:
    return sn.ObjRef(type="site", name=name, entity="robot")


def test_sensor_on_an_element_with_or_without_entity() -> None:
    """`ObjRef(entity=)` finds the element under the entity's prefix; the world needs no entity."""
    cfgs = [
        sn.ImuCfg(name="on", site=site(), fields=("pos_w",)),
        sn.ImuCfg(name="off", body="world", fields=("pos_w",)),
    ]
    scene = sn.Scene(robot(), cfgs)
    torch.testing.assert_close(scene["on"].data.pos_w, torch.tensor([[0.05, 0.0, 1.0]]).expand(3, 3))
    assert scene["off"].data.pos_w.tolist() == [[0.0, 0.0, 0.0]] * 3
    with pytest.raises(sn.SelectionError, match="imu_site"):
        sn.Scene(robot(), [sn.ImuCfg(site=sn.ObjRef(type="site", name="imu_site", entity="box"))])


def test_anchored_patterns_match_within_an_entity() -> None:
    """`^`, `$` and flags of a pattern refer to the name without the entity's prefix, for every kind of reference."""
    ref = sn.ObjRef
    cfgs = [
        sn.ImuCfg(name="site", site=ref(type="site", name="^imu_(site|tip)$", entity="robot")),
        sn.ImuCfg(name="bodies", bodies=ref(type="body", name="(?i)^(LEG|END_EFFECTOR)$", entity="robot")),
        sn.JointSensorCfg(name="joint", joint=ref(type="joint", name="^knee_joint$", entity="robot")),
        sn.BuiltinSensorCfg(
            name="native", sensor_type="jointpos", obj=ref(type="joint", name="^knee.*$", entity="robot")
        ),
        sn.ContactForceCfg(name="force", bodies=ref(type="body", name="^leg$", entity="robot")),
        sn.ContactSensorCfg(name="touch", primary=sn.ContactMatch(mode="body", pattern="^(leg|base)$", entity="robot")),
    ]
    scene = sn.Scene(robot(), cfgs)
    assert list(scene["site"].mount.names) == ["robot/imu_site"]
    assert list(scene["bodies"].mount.names) == ["robot/leg", "robot/end_effector"]
    assert list(scene["joint"].joint_names) == ["robot/knee_joint"]
    assert scene["native"].native.objname == "robot/knee_joint"
    assert scene["touch"].primary_names == ["base", "leg"]
    with pytest.raises(sn.SelectionError, match="robot/\\^robot"):
        sn.Scene(robot(), [sn.ImuCfg(site=ref(type="site", name="^robot/imu_site$", entity="robot"))])


def test_data_is_computed_once_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = syn.world([syn.ProbeCfg(name="p")])
    syn.advance(scene)
    monkeypatch.setattr(syn.Probe, "calls", 0)
    for k in range(1, 4):
        for _ in range(5):
            scene["p"].data  # noqa: B018
        assert syn.Probe.calls == k
        syn.advance(scene)
    assert syn.Probe.calls == 3  # not read since


def test_update_and_reset_invalidate_computed_data() -> None:
    """An edit shows after `update()`, a new episode after `reset()`."""
    scene = syn.world([syn.ProbeCfg(name="p")])
    before = scene["p"].read().vec
    scene.engine.body_pos_w += 1.0
    assert scene["p"].read().vec.equal(before)
    scene.update()
    assert scene["p"].read().vec.equal(before + 1.0)
    syn.reset(scene, [2], tick=500)
    assert scene["p"].read().vec[2].equal(syn.signal(500, 4)[2])
    assert scene["p"].read().vec[[0, 1, 3]].equal((before + 1.0)[[0, 1, 3]])


def test_authors_reset_receives_the_env_mask() -> None:
    """A sensor's private state is reset for the selected envs only."""
    scene = syn.world([syn.SumCfg(name="sum")])
    syn.advance(scene, 3)
    before: Any = scene["sum"].read()
    syn.reset(scene, [1], tick=7)
    after: Any = scene["sum"].read()
    assert after.total[1] == syn.signal(7, 4)[1, 0] and after.offset[1] == 7.0
    assert after.total[[0, 2, 3]].equal(before.total[[0, 2, 3]])


# BuiltinSensor --------------------------------------------------------------------------------------------------------


def test_the_first_example_reads_an_accelerometer() -> None:
    """The sensor is named without the entity and found with it; in free fall it reads 0, `[env, 3]`, as a tensor."""
    scene = sn.Scene(robot(), [sn.BuiltinSensorCfg(name="imu_acc", sensor_type="accelerometer", obj=site())])
    assert "robot/imu_acc" in scene
    acc = scene["robot/imu_acc"].data
    assert isinstance(acc, torch.Tensor) and acc.shape == (3, 3)
    torch.testing.assert_close(acc, torch.zeros(3, 3), rtol=0.0, atol=1e-4)


CATEGORIES = {
    "site": ("site", "imu_site", ["accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer"]),
    "joint": ("joint", "knee_joint", ["jointpos", "jointvel", "jointlimitpos", "jointlimitvel", "jointlimitfrc"]),
    "frame": (
        "body",
        "end_effector",
        ["framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel", "frameangvel", "framelinacc",
         "frameangacc"],
    ),
    "other": ("body", "base", ["subtreecom", "subtreelinvel", "subtreeangmom"]),
}  # fmt: skip


@pytest.mark.parametrize("category", CATEGORIES)
def test_sensors_of_each_category_equal_mujocos(category: str) -> None:
    """The type's name and an element give `[env, dim]` of MuJoCo's result for the same state, bit-exact in float32."""
    objtype, name, types = CATEGORIES[category]
    attribute = {"site": 'site="{}"', "joint": 'joint="{}"'}.get(objtype, f'objtype="{objtype}" objname="{{}}"')
    if category == "other":
        attribute = 'body="{}"'
    declared = "".join(f'<{word} name="{word}" {attribute.format(name)}/>' for word in types)
    model = mujoco.MjModel.from_xml_string(ROBOT % f"<sensor>{declared}</sensor>")
    rng = np.random.default_rng(1)
    qpos, qvel = rng.normal(size=(3, model.nq)), rng.normal(size=(3, model.nv))
    qpos[:, -1] = [0.2, 0.6, -0.6]  # the last two beyond the limit
    obj = sn.ObjRef(type=objtype, name=name, entity="robot")  # type: ignore[arg-type]
    engine = sn.MujocoEngine(ROBOT % "", num_envs=3)
    scene = sn.Scene(engine, [sn.BuiltinSensorCfg(name=word, sensor_type=word, obj=obj) for word in types])
    scene.reset(qpos=qpos, qvel=qvel)
    for env in range(3):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos[env], qvel[env]
        mujoco.mj_forward(model, data)
        for word in types:
            expected = data.sensor(word).data.astype(np.float32)
            got = scene[f"robot/{word}"].data[env].numpy()
            assert got.shape == expected.shape, word
            assert np.array_equal(got, expected), word


def test_vectors_have_3_columns_quaternions_4_scalars_1() -> None:
    words = {"gyro": 3, "framequat": 4, "jointpos": 1}
    obj = {"gyro": site(), "framequat": sn.ObjRef(type="body", name="base", entity="robot"),
           "jointpos": sn.ObjRef(type="joint", name="knee_joint", entity="robot")}  # fmt: skip
    scene = sn.Scene(robot(), [sn.BuiltinSensorCfg(name=word, sensor_type=word, obj=obj[word]) for word in words])
    assert {word: scene[f"robot/{word}"].data.shape for word in words} == {w: (3, dim) for w, dim in words.items()}


def test_the_joint_limit_example_is_clamped_at_its_cutoff() -> None:
    """Far beyond the limit the penetration reads -cutoff, near it the value itself."""
    knee = sn.ObjRef(type="joint", name="knee_joint", entity="robot")
    cfg = sn.BuiltinSensorCfg(name="knee_limit", sensor_type="jointlimitpos", obj=knee, cutoff=0.1)
    engine = robot()
    scene = sn.Scene(engine, [cfg])
    qpos = engine.qpos.clone()
    limit = np.deg2rad(30.0)
    qpos[:, 7] = torch.tensor([limit + 0.02, limit + 0.5, 0.0], dtype=qpos.dtype)
    scene.reset(qpos=qpos)
    expected = torch.tensor([[-0.02], [-0.1], [0.0]])
    torch.testing.assert_close(scene["robot/knee_limit"].data, expected, rtol=0.0, atol=1e-6)


def test_the_frame_position_example_is_relative_to_its_base() -> None:
    """The end effector in the base's axes does not change when the base is moved and rotated."""
    cfg = sn.BuiltinSensorCfg(
        name="ee_pos",
        sensor_type="framepos",
        obj=sn.ObjRef(type="xbody", name="end_effector", entity="robot"),
        ref=sn.ObjRef(type="xbody", name="base", entity="robot"),
    )
    engine = robot()
    scene = sn.Scene(engine, [cfg])
    qpos = engine.qpos.clone()
    qpos[1, :7] = torch.tensor([3.0, -2.0, 5.0, 0.5, 0.5, 0.5, 0.5], dtype=qpos.dtype)
    scene.reset(qpos=qpos)
    torch.testing.assert_close(scene["robot/ee_pos"].data, torch.tensor([[0.4, 0.0, 0.0]]).expand(3, 3))


def test_xml_sensors_are_discovered_under_their_entity() -> None:
    """Without a config they are in the scene, prefixed, and read MuJoCo's results."""
    imu, hip = '<accelerometer name="trunk_imu" site="imu_site"/>', '<jointpos name="hip_sensor" joint="knee_joint"/>'
    engine = robot(sensors=f"<sensor>{imu}{hip}</sensor>")
    scene = sn.Scene(engine)
    assert list(scene) == ["robot/trunk_imu", "robot/hip_sensor"]
    qpos = engine.qpos.clone()
    qpos[:, 7] = torch.tensor([0.1, 0.2, -0.3], dtype=qpos.dtype)
    scene.reset(qpos=qpos)
    torch.testing.assert_close(scene["robot/hip_sensor"].data, torch.tensor([[0.1], [0.2], [-0.3]]))
    assert scene["robot/trunk_imu"].data.shape == (3, 3)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"sensor_type": "accelerometre", "obj": site()}, "sensor_type"),
        ({"sensor_type": "accelerometer"}, "obj"),
        ({"sensor_type": "accelerometer", "obj": sn.ObjRef(type="body", name="base")}, "obj"),
        ({"sensor_type": "gyro", "obj": site(), "ref": site()}, "ref"),
        ({"sensor_type": "gyro", "obj": site(), "cutoff": -1.0}, "cutoff"),
    ],
)
def test_wrong_builtin_config_error_names_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(sn.ConfigError) as caught:
        sn.BuiltinSensorCfg(name="x", **given)
    assert [fault.field for fault in caught.value.faults] == [field]
