"""Sensors on a robot as in Isaac Lab 2.3: a scene as a class, with a camera, a height scanner and contact sensors."""

import mujoco
import torch

import sensorium as sn
from sensorium.compat.isaaclab import CameraCfg, ContactSensorCfg, PinholeCameraCfg, RayCasterCfg, patterns
from sensorium.compat.isaaclab.scenes import InteractiveSceneCfg, configclass
from sensorium.demo import model_path


@configclass
class SensorsSceneCfg(InteractiveSceneCfg):
    """The sensors of the scene. The engine has its ground, its lights and its robot."""

    camera = CameraCfg(
        prim_path="{ENV_REGEX_NS}/Robot/trunk/front_cam",
        update_period=0.1,
        height=48,
        width=64,
        data_types=["rgb", "distance_to_image_plane"],
        spawn=PinholeCameraCfg(focal_length=24.0, horizontal_aperture=20.955, clipping_range=(0.1, 1.0e5)),
        offset=CameraCfg.OffsetCfg(pos=(0.3, 0.0, 0.015), rot=(0.5, -0.5, 0.5, -0.5), convention="ros"),
    )
    height_scanner = RayCasterCfg(
        prim_path="{ENV_REGEX_NS}/Robot/trunk",
        update_period=0.02,
        offset=RayCasterCfg.OffsetCfg(pos=(0.0, 0.0, 20.0)),
        ray_alignment="yaw",
        pattern_cfg=patterns.GridPatternCfg(resolution=0.1, size=[1.6, 1.0]),
        mesh_prim_paths=["/World/terrain"],
    )
    contact_forces = ContactSensorCfg(prim_path="{ENV_REGEX_NS}/Robot/.*_foot", update_period=0.0, history_length=6)


scene_cfg = SensorsSceneCfg(num_envs=2, env_spacing=2.0)
engine = sn.MujocoEngine(model_path(), num_envs=scene_cfg.num_envs, keyframe="home")
scene = sn.Scene(engine, scene_cfg)
sim_dt = engine.dt

start = engine.qpos.clone()
start[:, :3] += scene.env_origins
start[:, 7:] += 0.1 * scene.draw("start", sn.Uniform(0.0, 1.0), 12)
scene.reset(qpos=start)
for _ in range(300):
    engine.step()
    scene.update(sim_dt)

image, depth = (scene["camera"].data.output[name] for name in ("rgb", "distance_to_image_plane"))
heights = scene["height_scanner"].data.ray_hits_w[..., -1]
forces = scene["contact_forces"].data.net_forces_w
print(f"greatest height {torch.max(heights).item():.4f} m, greatest force {torch.max(forces).item():.1f} N")

# The images show ground below sky, the rays hit the ground, and the feet carry the robot.
weight = 9.81 * mujoco.MjModel.from_xml_path(str(model_path())).body_mass.sum()
assert image.shape == (2, 48, 64, 3) and depth[:, -1].isfinite().all() and depth[:, 0].isinf().any()
assert heights.shape == (2, 17 * 11) and (heights.abs() < 0.06).all()
assert (forces[..., 2].sum(dim=1) - weight).abs().max() < 0.05 * weight
