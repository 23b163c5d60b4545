"""Scenes of Isaac Lab as classes: their attributes are sensors by name, and the engine brings the rest."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import sensorium as sn
from sensorium.compat.isaaclab import (
    FrameTransformerCfg,
    ImuCfg,
    InteractiveSceneCfg,
    RayCasterCfg,
    configclass,
    patterns,
)

BASE = "{ENV_REGEX_NS}/Robot/base"
GROUND = sn.engines.Shape("plane", "ground", (20.0, 20.0))
DOWN = patterns.GridPatternCfg(size=(0.0, 0.0), resolution=0.1)


@configclass
class GroundSceneCfg(InteractiveSceneCfg):
    terrain = SimpleNamespace(prim_path="/World/ground")
    robot: Any
    scanner = RayCasterCfg(prim_path=BASE, mesh_prim_paths=["/World/ground"], pattern_cfg=DOWN, update_period=0.02)
    limits: ClassVar[dict[str, float]] = {"height": 2.0}

    @property
    def height(self) -> float:
        return self.limits["height"]


@configclass
class RobotSceneCfg(GroundSceneCfg):
    robot = SimpleNamespace(prim_path="{ENV_REGEX_NS}/Robot")
    imu: ImuCfg = ImuCfg(prim_path=BASE)
    frames = FrameTransformerCfg(prim_path=BASE, target_frames=[FrameTransformerCfg.FrameCfg(prim_path="/World")])
    named = ImuCfg(name="own", prim_path=BASE)


def engine(num_envs: int = 2) -> sn.TensorEngine:
    provides = ("pose", "velocity", "acceleration", "gravity")
    return sn.TensorEngine(num_envs, 0.01, bodies=("base",), shapes=[GROUND], provides=provides)


def test_a_scene_has_the_sensors_of_a_class_or_of_an_instance() -> None:
    """Names are those of the attributes, in their order; a name in the config stays, and None removes a sensor."""
    scene = sn.Scene(engine(), RobotSceneCfg)
    assert [*scene.sensors] == ["scanner", "imu", "frames", "own"] and "terrain" not in scene
    assert scene["scanner"].cfg.update_period == 0.02 and scene["imu"].info.bodies == ("base",)
    assert scene.env_origins.tolist() == [[0.0] * 3] * 2
    cfg = RobotSceneCfg(num_envs=2, env_spacing=2.5, imu=None)
    cfg.named = None
    assert [*sn.Scene(engine(), cfg).sensors] == ["scanner", "frames"]
    assert [*sn.Scene(engine(), [*cfg, sn.ImuCfg(body="base")]).sensors] == ["scanner", "frames", "imu"]


def test_a_scene_that_is_not_lazy_computes_each_sample() -> None:
    lazy, eager = (
        sn.Scene(engine(), RobotSceneCfg(num_envs=2, lazy_sensor_update=is_lazy)) for is_lazy in (True, False)
    )
    assert lazy["imu"].is_lazy and not eager["imu"].is_lazy
    assert eager["imu"].cfg.evaluate == eager["scanner"].cfg.evaluate == "always"


def test_a_scene_of_another_size_or_library_is_refused() -> None:
    with pytest.raises(sn.ConfigError, match=r"RobotSceneCfg\.num_envs: got 4, expected 2, as the engine has"):
        sn.Scene(engine(), RobotSceneCfg(num_envs=4))
    foreign = SimpleNamespace(prim_path=BASE, update_period=0.0, offset=None)
    with pytest.raises(sn.ConfigError, match=r"RobotSceneCfg\.imu: got namespace.*sensorium\.compat\.isaaclab"):
        sn.Scene(engine(), RobotSceneCfg(imu=foreign))
    with pytest.raises(sn.ConfigError, match=r"GroundSceneCfg\.robot: got nothing, .*robot = None"):
        sn.Scene(engine(), GroundSceneCfg)
    for given in (SimpleNamespace(imu=1), ImuCfg(prim_path=BASE), SimpleNamespace):
        with pytest.raises(sn.ConfigError, match=r"Scene\.sensors: got .*a list of configs"):
            sn.Scene(engine(), given)


def test_a_class_of_settings_copies_its_defaults() -> None:
    """Annotations may be missing; class variables, properties and configs stay what they are."""
    one, other = GroundSceneCfg(), GroundSceneCfg()
    one.terrain.prim_path = "/World/hall"
    copy = one.copy()
    copy.terrain.prim_path = "/World/yard"
    assert other.terrain.prim_path == "/World/ground" and one.terrain.prim_path == "/World/hall"
    assert one.replace(num_envs=3).num_envs == 3 and one.num_envs is None and one.robot is MISSING
    assert one.height == 2.0 and [each.name for each in fields(GroundSceneCfg)][-3:] == ["terrain", "scanner", "robot"]
    assert configclass(ImuCfg) is ImuCfg
    with pytest.raises(TypeError, match="scaner"):
        RobotSceneCfg(scaner=None)
