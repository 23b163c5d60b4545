"""mjlab's and GeneLab's examples as printed, with the import changed; mjlab's scene config is a plain class."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sensorium as sn

ROBOT = """
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 0.999">
      <freejoint/>
      <geom size=".1"/>
      <site name="imu_site" pos=".05 0 0"/>
      <body name="pelvis">
        <geom size=".05" pos="0 0 .2"/>
        <body name="left" pos=".1 0 -.9">
          <joint name="knee_joint" axis="0 1 0" range="-30 30" limited="true"/>
          <geom name="left_foot" size=".1"/>
        </body>
        <body name="end_effector" pos="-.1 0 -.9"><geom name="right_foot" size=".1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
TERRAIN = "<mujoco><worldbody><body name='terrain'><geom type='plane' size='5 5 1'/></body></worldbody></mujoco>"


@dataclass
class SceneCfg:
    """mjlab's container for sensors; `entities` are models by name."""

    sensors: tuple[Any, ...]
    entities: Any = None


def run(text: str, **names: Any) -> dict[str, Any]:
    """Run an example and return its variables."""
    found = {"SceneCfg": SceneCfg, **names}
    exec(text, found)
    return found


# mjlab ----------------------------------------------------------------------------------------------------------------

MJLAB = "from sensorium.compat.mjlab import BuiltinSensorCfg, ContactSensorCfg, ContactMatch, ObjRef\n"

FIRST = (
    MJLAB
    + """
scene_cfg = SceneCfg(
    entities={"robot": robot_cfg},
    sensors=(
        BuiltinSensorCfg(
            name="imu_acc",
            sensor_type="accelerometer",
            obj=ObjRef(type="site", name="imu_site", entity="robot"),
        ),
        ContactSensorCfg(
            name="feet_contact",
            primary=ContactMatch(
                mode="geom", pattern=r".*_foot$", entity="robot",
            ),
            secondary=ContactMatch(mode="body", pattern="terrain"),
            fields=("found", "force"),
        ),
    ),
)
"""
)
READ = """
imu = env.scene["robot/imu_acc"].data  # [B, 3] acceleration
feet = env.scene["feet_contact"].data  # ContactData
feet.found  # [B, P] contact count per foot
feet.force  # [B, P, 3] contact force per foot
"""
SENSORS = (
    MJLAB
    + """
BuiltinSensorCfg(
    name="imu_acc",
    sensor_type="accelerometer",
    obj=ObjRef(type="site", name="imu_site", entity="robot"),
)
BuiltinSensorCfg(
    name="knee_limit",
    sensor_type="jointlimitpos",
    obj=ObjRef(type="joint", name="knee_joint", entity="robot"),
    cutoff=0.1,
)
BuiltinSensorCfg(
    name="ee_pos",
    sensor_type="framepos",
    obj=ObjRef(type="body", name="end_effector", entity="robot"),
    ref=ObjRef(type="body", name="base", entity="robot"),
)
ContactSensorCfg(
    name="feet_ground",
    primary=ContactMatch(
        mode="geom", pattern=r".*_foot$", entity="robot",
    ),
    secondary=ContactMatch(mode="body", pattern="terrain"),
    fields=("found", "force"),
)
ContactSensorCfg(
    name="self_collision",
    primary=ContactMatch(
        mode="subtree", pattern="pelvis", entity="robot",
    ),
    secondary=ContactMatch(
        mode="subtree", pattern="pelvis", entity="robot",
    ),
    fields=("found",),
)
ContactSensorCfg(
    name="self_collision_history",
    primary=ContactMatch(mode="subtree", pattern="pelvis", entity="robot"),
    secondary=ContactMatch(mode="subtree", pattern="pelvis", entity="robot"),
    fields=("found", "force"),
    history_length=4,  # matches decimation=4
)
"""
)


def engine() -> sn.MujocoEngine:
    return sn.MujocoEngine.compose({"robot": ROBOT}, terrain=TERRAIN, num_envs=2)


def test_mjlab_first_example() -> None:
    cfg = run(FIRST, robot_cfg=ROBOT)["scene_cfg"]
    scene = sn.Scene(engine(), cfg.sensors)
    for _ in range(20):
        scene.step()
    found = run(READ, env=SimpleNamespace(scene=scene))
    assert found["imu"].shape == (2, 3)
    assert found["feet"].found.shape == (2, 2) and found["feet"].force.shape == (2, 2, 3)
    assert (found["feet"].found > 0).all() and scene["feet_contact"].primary_names == ["left_foot", "right_foot"]


def test_other_mjlab_configs_build_sensors() -> None:
    made: list[Any] = []
    text = SENSORS.replace("\nBuiltinSensorCfg(", "\nadd(BuiltinSensorCfg)(").replace(
        "\nContactSensorCfg(", "\nadd(ContactSensorCfg)("
    )
    run(text, add=lambda cls: lambda **fields: made.append(cls(**fields)))
    scene = sn.Scene(engine(), made)
    scene.step(substeps=4)
    data = scene["self_collision_history"].data
    force_mag = torch.norm(data.force_history, dim=-1)  # [B, N, H]
    had_contact = (force_mag > 10.0).any(dim=1).any(dim=-1)  # [B]
    assert data.force_history.shape == (2, 1, 4, 3) and not had_contact.any()
    assert {"robot/imu_acc", "robot/knee_limit", "robot/ee_pos", "feet_ground", "self_collision"} <= {*scene}


def test_mjlab_air_time_example() -> None:
    match = "ContactMatch(mode='geom', pattern='.*_foot$', entity='robot')"
    cfg = run(f"{MJLAB}cfg = ContactSensorCfg(name='feet_air', primary={match}, track_air_time=True)")["cfg"]
    scene = sn.Scene(engine(), [cfg])
    scene.step()
    found = run(
        'sensor = env.scene["feet_air"]\n'
        "first_contact = sensor.compute_first_contact(dt)  # [B, P]\n"
        "first_air = sensor.compute_first_air(dt)  # [B, P]\n"
        "sensor.data.current_air_time[:, 0]\n",
        env=SimpleNamespace(scene=scene), dt=0.002,
    )  # fmt: skip
    assert found["first_contact"].shape == found["first_air"].shape == (2, 2)


# GeneLab --------------------------------------------------------------------------------------------------------------

GENELAB = """
from sensorium.compat.genelab import InteractiveSceneCfg, KinematicTactileSensorCfg

scene_cfg = InteractiveSceneCfg(
    sensors=(
        KinematicTactileSensorCfg(
            name="fingertip_taxels",
            link_name="right_finger_tip",
            probe_local_pos=(
                (0.0, 0.0, 0.0),
                (0.005, 0.0, 0.0),
                (-0.005, 0.0, 0.0),
            ),
            probe_local_normal=(0.0, 0.0, 1.0),
            normal_stiffness=1000.0,
        ),
    ),
)
"""


def test_genelab_example_reads_zero_without_contact_and_ten_newtons_at_one_centimetre() -> None:
    cfg = run(GENELAB)["scene_cfg"]
    box = sn.engines.Shape("box", "box", (0.5, 0.5, 0.5), pos=(0.0, 0.0, -0.5))
    tip = sn.TensorEngine(1, 0.01, bodies=("right_finger_tip",), shapes=[box], provides=("pose", "velocity"))
    tip.body_pos_w[0, 0] = torch.tensor([0.0, 0.0, 0.5])
    scene = sn.Scene(tip, cfg)
    data: Any = scene["fingertip_taxels"].data
    assert data.force.shape == data.torque.shape == (1, 3, 3) and not data.force.any()
    tip.body_pos_w[0, 0, 2] = 0.0  # a probe of 1 cm, with its centre on the surface
    scene.update()
    data = scene["fingertip_taxels"].data
    assert data.raw is data.force
    assert data.force[0, :, 2].tolist() == pytest.approx([10.0] * 3, rel=1e-4)
