"""Configs of `sensorium.compat.mjlab` as entries of mjlab's `SceneCfg.sensors`, beside mjlab's own sensors."""

from __future__ import annotations

from typing import Any

import mjlab.sensor as theirs
import mujoco
import pytest
import torch
from mjlab.entity import EntityCfg
from mjlab.envs import ManagerBasedRlEnv
from mjlab.envs.mdp import dr
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.scene import Scene, SceneCfg
from mjlab.sim import Simulation, SimulationCfg
from mjlab.terrains import TerrainEntityCfg
from world import DT, ENVS, robot_env_cfg

from sensorium.compat import mjlab as ours

CUBE = """
<mujoco><worldbody><light pos="0 0 2" dir="0 0 -1"/><body name="cube"><freejoint/>
  <geom name="cube" type="box" size=".1 .1 .1" mass="1"/></body></worldbody></mujoco>
"""
COLUMNS = ("distances", "normals_w", "frame_pos_w", "frame_quat_w", "pos_w", "quat_w")


def entries(page: Any, prefix: str) -> tuple[Any, ...]:
    """Return the same sensors in the classes of one module."""
    feet = tuple(page.ObjRef(type="geom", name=name, entity="robot") for name in ("left_foot", "right_foot"))
    base = page.ObjRef(type="body", name="base", entity="robot")
    cube = page.ContactMatch(mode="geom", pattern="^cube$", entity="cube")
    every, ring = ("found", "force", "normal", "tangent"), page.RingPatternCfg.single_ring(0.05, 5)
    camera = {"pos": (0.0, 0.0, 0.6), "width": 32, "height": 24, "data_types": ("rgb", "depth", "segmentation")}
    return (
        page.ContactSensorCfg(name=f"{prefix}net", primary=cube, reduce="netforce", history_length=2),
        page.ContactSensorCfg(name=f"{prefix}world", primary=cube, fields=every, global_frame=True),
        page.ContactSensorCfg(
            name=f"{prefix}feet",
            primary=page.ContactMatch(mode="geom", pattern="^(left|right)_foot$", entity="robot"),
            secondary=page.ContactMatch(mode="body", pattern="terrain"),
        ),
        page.BuiltinSensorCfg(name=f"{prefix}pos", sensor_type="framepos", obj=base),
        page.RayCastSensorCfg(name=f"{prefix}rays", frame=feet, pattern=ring, ray_alignment="yaw"),
        page.RayCastSensorCfg(name=f"{prefix}view", frame=base, pattern=page.PinholeCameraPatternCfg(5, 4, 60.0)),
        page.RayCastSensorCfg(name=f"{prefix}grid", frame=base, pattern=page.GridPatternCfg((0.38, 0.3), 0.1)),
        page.TerrainHeightSensorCfg(name=f"{prefix}height", frame=feet, pattern=ring, max_distance=1.0),
        page.CameraSensorCfg(name=f"{prefix}eye", parent_body="cube/cube", **camera),
    )


@pytest.fixture(scope="module")
def env() -> ManagerBasedRlEnv:
    """An environment with both sets of sensors, and with colours that differ between environments and episodes."""
    cfg = robot_env_cfg()
    cfg.scene.entities["cube"] = EntityCfg(
        spec_fn=lambda: mujoco.MjSpec.from_string(CUBE), init_state=EntityCfg.InitialStateCfg(pos=(0.8, 0.0, 0.1))
    )
    cfg.scene.terrain = TerrainEntityCfg(terrain_type="plane", textures=(), materials=())
    params = {"asset_cfg": SceneEntityCfg("cube", geom_names=(".*",)), "ranges": (0.0, 0.7), "axes": [0, 1, 2],
              "operation": "abs", "distribution": "uniform"}  # fmt: skip
    cfg.events["color"] = EventTermCfg(func=dr.geom_rgba, mode="reset", params=params)
    cfg.scene.sensors = (*entries(ours, "a_"), *entries(theirs, "b_"))
    env = ManagerBasedRlEnv(cfg, device="cpu")
    env.reset(seed=4)
    return env


def pair(env: ManagerBasedRlEnv, name: str) -> tuple[Any, Any]:
    return env.scene[f"a_{name}"].data, env.scene[f"b_{name}"].data


def test_contacts_equal_mjlabs_with_its_sign(env: ManagerBasedRlEnv) -> None:
    """After each tick, the force of a cube of 1 kg that stands on the ground reads -9.81 N, along the normal."""
    for _ in range(60):
        env.sim.step()
        env.scene.update(DT)
        for name, fields in (
            ("net", ("found", "force")),
            ("world", ("found", "force", "normal")),
            ("feet", ("found",)),
        ):
            got, wanted = pair(env, name)
            for field in fields:
                torch.testing.assert_close(getattr(got, field), getattr(wanted, field), rtol=1e-5, atol=1e-4)
    got, wanted = pair(env, "net")
    torch.testing.assert_close(got.force[..., 2], torch.full((ENVS, 1), -9.81), rtol=0.01, atol=0)
    torch.testing.assert_close(got.force_history, wanted.force_history, rtol=1e-5, atol=1e-4)
    got, _ = pair(env, "world")
    assert bool((got.normal[..., 2] < -0.99).all()) and bool((got.force[..., 2] < 0.0).all())
    assert env.scene["a_feet"].primary_names == env.scene["b_feet"].primary_names


def test_rays_and_heights_equal_mjlabs(env: ManagerBasedRlEnv) -> None:
    """All rays of all frames are on one axis in mjlab's order; a grid that does not fit its size is rounded alike."""
    env.step(torch.zeros(ENVS, 2))
    env.sim.step()
    env.sim.forward()
    env.scene.update(DT)  # both see the state of this instant
    env.sim.sense()
    for name in ("rays", "view", "grid", "height"):
        got, wanted = pair(env, name)
        for field in COLUMNS:
            values = getattr(got, field), getattr(wanted, field)
            torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4, msg=f"{name}.{field}")
        hit = wanted.distances >= 0
        torch.testing.assert_close(got.hit_pos_w[hit], wanted.hit_pos_w[hit], rtol=1e-4, atol=1e-4)
        assert type(got).__name__.startswith(("_", type(wanted).__name__))
    got, wanted = pair(env, "height")
    torch.testing.assert_close(got.heights, wanted.heights, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(env.scene["robot/a_pos"].data, env.scene["robot/b_pos"].data, rtol=0, atol=1e-5)
    assert isinstance(env.scene["a_height"], theirs.TerrainHeightSensor)  # as mjlab's terms check
    assert env.scene["a_rays"].num_rays == env.scene["b_rays"].num_rays == 12


def test_images_of_randomised_colours_equal_mjlabs(env: ManagerBasedRlEnv) -> None:
    """After each reset, colours are within 2 levels of those of mjlab's renderer, and differ between environments."""
    seen = []
    for _ in range(2):
        env.reset()
        env.sim.sense()
        got, wanted = pair(env, "eye")
        assert int((got.rgb.int() - wanted.rgb.int()).abs().max()) <= 2
        torch.testing.assert_close(got.depth, wanted.depth, rtol=1e-4, atol=1e-5)
        assert torch.equal(got.segmentation, wanted.segmentation)
        seen.append(got.rgb[:, 12, 16].clone())
    assert len(torch.unique(torch.cat(seen), dim=0)) == 2 * ENVS


def test_entries_share_one_scene(env: ManagerBasedRlEnv) -> None:
    """All entries of one mjlab scene are advanced together, once per update."""
    scenes = {id(env.scene[f"a_{name}"]._shared.scene) for name in ("net", "rays", "eye")}
    scene = env.scene["a_net"]._shared.scene
    assert len(scenes) == 1 and len(scene) == len(entries(ours, "a_"))
    before = scene.tick
    env.scene.update(DT)
    assert scene.tick == before + 1


def test_reads_before_the_first_update_show_the_present_state() -> None:
    """In a loop without an environment, as in mjlab: also of sensors with memory, and without a new episode."""
    cube = EntityCfg(spec_fn=lambda: mujoco.MjSpec.from_string(CUBE))
    terrain = TerrainEntityCfg(terrain_type="plane", textures=(), materials=())
    touch = ours.ContactSensorCfg(name="touch", primary=ours.ContactMatch(mode="body", pattern="cube", entity="cube"))
    scene = Scene(SceneCfg(num_envs=2, terrain=terrain, entities={"cube": cube}, sensors=(touch,)), "cpu")
    sim = Simulation(num_envs=2, cfg=SimulationCfg(), model=scene.compile(), device="cpu")
    scene.initialize(sim.mj_model, sim.model, sim.data)
    for height, count in ((0.5, 0.0), (0.099, 4.0), (0.5, 0.0)):
        sim.data.qpos[:, 2] = height
        assert scene["touch"].data.found.tolist() == [[count]] * 2
    scene.update(sim.cfg.mujoco.timestep)
    assert scene["touch"].frame.tolist() == [2, 2] and scene["touch"].clock.episode.tolist() == [0, 0]
