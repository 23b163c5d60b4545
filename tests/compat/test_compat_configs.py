"""Configs in the notation of other systems: aliases, files, kinds, and default behaviour of their sensors."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium import registry
from sensorium.compat import carla, genelab, genesis, isaaclab, mjlab
from sensorium.compat.aliases import AliasedCfg, aliases, own_defaults
from sensorium.geometry.transforms import rotation
from sensorium.testing import tumbling_engine

GROUND = sn.Shape("plane", "ground", (20.0, 20.0))
DOWN = sn.GridPatternCfg(size=(0.0, 0.0))
RING = mjlab.RingPatternCfg.single_ring(0.1, 4, include_center=False)
IMAGE = sn.PinholeCameraPatternCfg(width=4, height=3)


def above_ground(*shapes: sn.Shape, envs: int = 1, height: float = 2.0, **options: Any) -> sn.TensorEngine:
    """Return an engine with a body ``base`` at a height over the ground."""
    engine = sn.TensorEngine(envs, 0.01, bodies=("base",), shapes=[GROUND, *shapes], **options)
    engine.body_pos_w[:, 0, 2] = height
    return engine


def configs() -> Iterator[Any]:
    """Yield a config of every class in the package."""
    rays = {"prim_path": "{ENV_REGEX_NS}/Robot/base", "mesh_prim_paths": ["/World/ground"]}
    yield isaaclab.ContactSensorCfg(prim_path="{ENV_REGEX_NS}/Robot/.*", filter_prim_paths_expr=["/World/ground"])
    yield isaaclab.FrameTransformerCfg(
        prim_path="/World/base", source_frame_offset=sn.OffsetCfg(pos=(1.0, 0.0, 0.0)),
        target_frames=[isaaclab.FrameTransformerCfg.FrameCfg(prim_path="/World/base")],
    )  # fmt: skip
    yield isaaclab.RayCasterCfg(**rays, pattern_cfg=DOWN, attach_yaw_only=True)
    yield isaaclab.MultiMeshRayCasterCfg(
        prim_path="/World/base", pattern_cfg=DOWN, update_mesh_ids=True,
        mesh_prim_paths=["/World/ground", isaaclab.RaycastTargetCfg(prim_expr="/World/box")],
    )  # fmt: skip
    yield isaaclab.RayCasterCameraCfg(**rays, pattern_cfg=IMAGE, data_types=["depth"])
    yield isaaclab.MultiMeshRayCasterCameraCfg(
        prim_path="/World/base", pattern_cfg=IMAGE, update_mesh_ids=True,
        mesh_prim_paths=["/World/ground", isaaclab.RaycastTargetCfg(prim_expr="/World/box")],
    )  # fmt: skip
    image = {"width": 4, "height": 3, "data_types": ["depth"]}
    lens = isaaclab.PinholeCameraCfg(focal_length=12.0, clipping_range=(0.1, 9.0), f_stop=2.0)
    yield isaaclab.CameraCfg(prim_path="/World/base/eye", spawn=lens, **image)
    yield isaaclab.CameraCfg(prim_path="/World/base/eye", spawn=isaaclab.FisheyeCameraCfg(), **image)
    yield isaaclab.TiledCameraCfg(prim_path="/World/base", spawn=None, return_latest_camera_pose=True, **image)
    yield isaaclab.ImuCfg(prim_path="/World/base")
    yield mjlab.CameraSensorCfg(parent_body="base", data_types=("depth", "segmentation"))
    yield mjlab.BuiltinSensorCfg(name="imu", sensor_type="gyro", obj=mjlab.ObjRef(type="site", name="imu"))
    yield mjlab.ContactSensorCfg(primary=mjlab.ContactMatch(mode="geom", pattern=".*_foot$"))
    yield mjlab.RayCastSensorCfg(frame=mjlab.ObjRef(type="site", name="imu"))
    yield mjlab.TerrainHeightSensorCfg(frame=(mjlab.ObjRef(type="body", name="base"),))
    yield genesis.IMU(entity_idx=0, link_idx_local=0, pos_offset=(0.1, 0.0, 0.0), acc_cross_axis_coupling=0.01)
    yield genesis.Contact(link_name="base", threshold=2.0, filter_link_idx=(0,))
    yield genesis.ContactForce(link_name="base", max_force=math.inf)
    yield genesis.Raycaster(min_range=0.5, max_range=3.0, return_points=False)
    yield genesis.DepthCamera(link_name="base", max_range=3.0, draw_debug=True)
    yield genesis.SurfaceDistanceProbe(link_name="base", track_link_idx=(0,), probe_radius=2.0)
    yield genesis.Proximity(link_name="base", track_link="ground", max_range=2.0)
    yield genesis.ElastomerDisplacement(link_name="base", track_link=("ground",))
    yield genesis.KinematicTaxel(link_name="base", track_link="ground")
    yield genesis.TemperatureGrid(entity_idx="robot", convection_coefficient=2.0)
    yield genelab.KinematicTactileSensorCfg(link_name="base")
    yield carla.LidarCfg(body="base")
    yield carla.RadarCfg(body="base")
    yield carla.EventCameraCfg(body="base", width=4, height=3)


def with_none(cfg: Any) -> Iterator[Any]:
    """Yield a config with each of its optional fields None, where it has another default."""
    for name, info in type(cfg).model_fields.items():
        if info.default is not None:
            with contextlib.suppress(sn.ConfigError):
                yield cfg.replace(**{name: None})


@pytest.mark.parametrize("cfg", list(configs()), ids=lambda cfg: f"{type(cfg).__module__}.{type(cfg).__name__}")
def test_file_has_native_kind_and_names_and_loads_equal(cfg: Any) -> None:
    """The file gives back the library's own config, whose fields equal those of the other system's config."""
    ours = registry.cfg_for_kind(cfg.kind())
    assert isinstance(cfg, ours) and not issubclass(ours, AliasedCfg)
    assert issubclass(registry.sensor_for(type(cfg)), registry.sensor_for(ours))
    again = ours.from_dict(json.loads(json.dumps(cfg.to_dict())))
    for name in ours.model_fields:
        if name == "prim_path" and hasattr(cfg, "selector"):  # of a camera to create, the file has the mount
            assert again.selector == cfg.selector
        elif name == "lens" and cfg.lens is not None:
            assert again.lens == cfg.own_lens
        elif name == "ray_alignment":  # as it is cast
            assert again.ray_alignment == getattr(cfg, "alignment", cfg.ray_alignment)
        elif name not in ("targets", "target_frames"):  # entries may be of the other system's classes
            assert getattr(again, name) == getattr(cfg, name), name
    assert again.to_dict() == {name: value for name, value in cfg.to_dict().items() if value is not None}
    for given in (cfg, *with_none(cfg)):
        for back in (type(cfg).from_json(given.to_json()), type(cfg).from_toml(given.to_toml())):
            assert back.to_dict() == given.to_dict()
            if isinstance(cfg, isaaclab.MultiMeshRayCasterCfg) or getattr(cfg, "lens", None) is not None:
                continue  # the file is without options that have no effect
            assert back == given


ODD: tuple[Any, ...] = (
    None, True, -1, 10**40, math.nan, "", "odd", b"odd", (), [1, "two"], {"odd": 1}, {1: 2}, object(), {"kind": "odd"},
)  # fmt: skip
"""Values that hardly any field accepts."""


def test_assignment_copies_and_calls_of_pydantic_raise_our_errors() -> None:
    """For configs of all kinds, with odd values for all their fields."""

    def change(cfg: Any, field: str, odd: Any) -> None:
        setattr(cfg, field, odd) if isinstance(cfg, AliasedCfg) else cfg.replace(**{field: odd})

    for cfg in [*configs(), sn.ImuCfg(site="imu", noise={"ang_vel_b": 0.1}), DOWN, sn.OffsetCfg()]:
        cls, name = type(cfg), next(iter(type(cfg).model_fields))
        assert copy.copy(cfg) == cfg == copy.deepcopy(cfg) == pickle.loads(pickle.dumps(cfg))
        assert cls.model_validate(cfg) == cfg == cfg.model_copy() == cfg.model_copy(deep=True)
        attempts: list[Any] = [partial(delattr, cfg, name), partial(setattr, cfg, "no_field", 1)]
        attempts += [partial(call, odd) for call in (cls, cls.model_validate) for odd in ODD]
        for field in cls.model_fields:
            attempts += [partial(change, other, field, odd) for other in (copy.copy(cfg),) for odd in ODD]
        for attempt in attempts:
            with contextlib.suppress(sn.SensoriumError):
                attempt()
        for attempt in attempts[:2]:
            with pytest.raises(sn.ConfigError, match=cls.__name__.split("[")[0]):
                attempt()


def test_fields_are_assigned_until_a_sensor_keeps_the_config() -> None:
    cfg = isaaclab.RayCasterCfg(
        prim_path="/World/base", mesh_prim_paths=["/World/ground"], pattern_cfg=DOWN, drift_range=(0.1, 0.2)
    )
    other = copy.deepcopy(cfg)
    other.update_period, other.mesh_prim_paths = 0.02, ["/World/.*"]
    assert (cfg.update_period, cfg.targets) == (0.0, ("/World/ground",))
    assert other.to_dict() == cfg.to_dict() | {"update_period": 0.02, "targets": ["/World/.*"]}
    with pytest.raises(sn.ConfigError, match=r"RayCasterCfg\.update_period: got -1\.0"):
        other.update_period = -1.0
    assert other.update_period == 0.02
    scene = sn.Scene(above_ground(), [cfg])
    sensor = scene["ray_caster"]
    cfg.update_period = 0.5
    assert sensor.cfg.update_period == 0.0 and sn.Scene(above_ground(), [cfg])["ray_caster"].cfg.update_period == 0.5
    with pytest.raises(sn.ConfigError, match=r"update_period: .* Use scene\.reconfigure\('ray_caster', update_period"):
        sensor.cfg.update_period = 0.1
    sensor.cfg.drift_range = (3.0, 4.0)
    assert sensor.drift.abs().max() <= 0.2
    scene.reset()
    assert 3.0 <= sensor.drift.min() and sensor.drift.max() <= 4.0
    changed = sensor.cfg.copy()
    changed.update_period = 0.1
    assert changed.drift_range == (3.0, 4.0)


def test_drifts_absent_from_a_config_are_assigned_before_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"prim_path": "/World/base", "mesh_prim_paths": ["/World/ground"], "pattern_cfg": DOWN}
    pattern = isaaclab.patterns.PinholeCameraPatternCfg(width=3, height=2)
    image = given | {"pattern_cfg": pattern, "data_types": ("distance_to_image_plane",)}
    configs = [isaaclab.RayCasterCfg(**given), isaaclab.RayCasterCameraCfg(name="image", **image)]
    scene = sn.Scene(above_ground(), configs)
    sensor, camera = scene["ray_caster"], scene["image"]
    cfg, true = sensor.cfg, sensor.ground_truth.ray_hits_w.clone()
    assert sensor.data.ray_hits_w.equal(true) and not sensor.drift.any()
    before = sensor.info.nbytes
    with monkeypatch.context() as patch, pytest.raises(sn.ConfigError, match="memory"):
        patch.setattr(torch, "zeros", Mock(side_effect=MemoryError))
        cfg.drift_range = (3.0, 4.0)
    assert cfg.drift_range == (0.0, 0.0) and sensor.data.ray_hits_w.equal(true)
    cfg.drift_range = (3.0, 4.0)
    assert sensor.data.ray_hits_w.equal(true) and not sensor.drift.any()  # until the reset
    cfg.ray_cast_drift_range = {"z": (0.5, 0.6)}
    camera.cfg.drift_range = (1.0, 2.0)
    with pytest.raises(sn.ConfigError, match="drift_range"):
        cfg.drift_range = (4.0, 3.0)
    scene.reset()
    for each in (sensor, scene["ray_caster"]):
        data, drift = each.data, each.drift
        assert 3.0 <= drift.min() and drift.max() <= 4.0 and each.cfg is cfg and each.info.nbytes > before
        torch.testing.assert_close(data.pos_w - each.ground_truth.pos_w, drift)
        assert each.ground_truth.ray_hits_w.equal(true)
        z = data.ray_hits_w[..., 2] - true[..., 2]
        assert 0.5 - 1e-5 <= z.min() and z.max() <= 0.6 + 1e-5
    assert 1.0 <= camera.drift.min() and camera.drift.max() <= 2.0
    scene.step()
    assert sensor.data.pos_w.equal(scene["ray_caster"].data.pos_w) and sensor.drift.equal(drift)


def test_configs_inside_are_assigned_and_fields_are_appended_to() -> None:
    """Through the config that holds them, which is validated, also where they are defaults."""
    cfg = isaaclab.RayCasterCfg(prim_path="/World/base", mesh_prim_paths=["/World/ground"], pattern_cfg=DOWN)
    other, offset = pickle.loads(pickle.dumps(copy.deepcopy(cfg))), cfg.offset
    offset.pos = (0.0, 0.0, 1.0)
    cfg.update_period = 0.02
    offset.rot = (0.0, 0.0, 0.0, 1.0)
    assert cfg.offset == offset == sn.OffsetCfg(pos=(0.0, 0.0, 1.0), rot=(0.0, 0.0, 0.0, 1.0))
    assert (
        cfg.to_dict()["offset"] == {"pos": [0.0, 0.0, 1.0], "rot": [0.0, 0.0, 0.0, 1.0]} and cfg.update_period == 0.02
    )
    assert other.offset == sn.OffsetCfg() == sn.RayCasterCfg(body="base").offset and "offset" not in other.to_dict()
    with pytest.raises(sn.ConfigError, match=r"OffsetCfg\.rot: got .*unit quaternion"):
        cfg.offset.rot = (2.0, 0.0, 0.0, 0.0)
    with pytest.raises(sn.ConfigError, match="immutable"):
        copy.copy(offset).pos = (0.0, 0.0, 9.0)  # nothing holds the copy
    other.offset = offset
    other.offset.pos = (0.0, 0.0, 0.5)
    assert cfg.offset.pos == (0.0, 0.0, 1.0)
    for each, height in ((cfg, 3.0), (other, 2.5)):
        scene = sn.Scene(above_ground(), [each])
        sensor = scene["ray_caster"]
        assert sensor.ground_truth.distances.item() == pytest.approx(height)
        with pytest.raises(sn.ConfigError, match=r"OffsetCfg\.pos: .* immutable"):
            sensor.cfg.offset.pos = (0.0, 0.0, 0.0)
    assert type(sensor.cfg.targets) is tuple
    cfg.mesh_prim_paths.append("/World/box")
    cfg.mesh_prim_paths += ["/World/ball"]
    assert cfg.targets == ("/World/ground", "/World/box", "/World/ball")
    assert other.targets == sensor.cfg.targets == ("/World/ground",)

    frames = isaaclab.FrameTransformerCfg(
        prim_path="/World/base", target_frames=[{"prim_path": "/World/a"}, {"prim_path": "/World/b"}]
    )
    for frame in frames.target_frames:
        frame.name = frame.prim_path[-1]
        frame.offset.pos = (1.0, 0.0, 0.0)
    assert [(each.name, each.offset.pos[0]) for each in frames.replace().target_frames] == [("a", 1.0), ("b", 1.0)]
    with pytest.raises(sn.ConfigError, match=r"target_frames\.2: got 1"):
        frames.target_frames.append(1)
    scan = mjlab.RayCastSensorCfg(body="base")
    scan.pattern.size = (3.0, 3.0)
    assert scan.pattern.size == (3.0, 3.0) != mjlab.RayCastSensorCfg(body="base").pattern.size


def test_a_config_inside_a_kept_one_cannot_be_assigned() -> None:
    """Neither in a config of this package nor in one of sensorium's, whose owner's own can still change."""
    pattern = isaaclab.GridPatternCfg(resolution=1.0, size=(2.0, 2.0))
    for cfg in (
        isaaclab.RayCasterCfg(prim_path="/World/base", mesh_prim_paths=["/World/ground"], pattern_cfg=pattern),
        sn.RayCasterCfg(body="base", pattern=pattern),
    ):
        sensor = sn.Scene(above_ground(), [cfg])["ray_caster"]
        assert sensor.cfg == cfg and sensor.cfg.to_dict() == cfg.to_dict()
        with pytest.raises(sn.ConfigError, match=r"GridPatternCfg\.resolution: got 0\.1"):
            sensor.cfg.pattern.resolution = 0.1
        if isinstance(cfg, isaaclab.RayCasterCfg):
            copy.deepcopy(sensor.cfg).pattern.resolution = 0.1
        assert sensor.cfg.pattern.resolution == 1.0 and sensor.num_rays == 9
    pattern.resolution = 0.5
    assert sn.Scene(above_ground(), [sn.RayCasterCfg(body="base", pattern=pattern)])["ray_caster"].num_rays == 25


def test_another_lens_brings_its_clipping_range_unless_one_was_chosen() -> None:
    near, far = (isaaclab.PinholeCameraCfg(clipping_range=(0.1, reach)) for reach in (5.0, 9.0))
    fields: dict[str, Any] = {"prim_path": "/World/base/eye", "width": 4, "height": 3}
    cfg = isaaclab.CameraCfg(spawn=near, **fields)
    assert cfg.replace(spawn=far) == isaaclab.CameraCfg(spawn=far, **fields)
    cfg.spawn = far
    assert cfg == isaaclab.CameraCfg(spawn=far, **fields) and cfg.clipping_range == (0.1, 9.0)
    cfg.spawn.clipping_range = (0.2, 4.0)
    assert cfg.clipping_range == (0.2, 4.0) and far.clipping_range == (0.1, 9.0)
    cfg.clipping_range = (0.2, 3.0)
    cfg.spawn = near
    assert cfg.clipping_range == (0.2, 3.0)


def test_a_subclass_gives_defaults_without_annotations() -> None:
    class Scanner(isaaclab.RayCasterCfg):
        prim_path = "/World/base"
        mesh_prim_paths = ("/World/ground",)
        pattern_cfg = DOWN
        update_period = 0.02

    assert Scanner().to_dict() == isaaclab.RayCasterCfg(
        prim_path="/World/base", mesh_prim_paths=["/World/ground"], pattern_cfg=DOWN, update_period=0.02
    ).to_dict()  # fmt: skip
    with pytest.raises(sn.ConfigError, match=r"Scanner\.update_period: got -1"):
        Scanner(update_period=-1)


def test_options_that_are_none_stay_none() -> None:
    """A config that reads None as its default would measure something else."""
    for cfg, name in ((mjlab.RayCastSensorCfg(body="base"), "no_hit_value"),
                      (mjlab.RayCastSensorCfg(body="base"), "include_geom_groups"),
                      (isaaclab.ImuCfg(prim_path="/World/base"), "gravity_bias")):  # fmt: skip
        none = cfg.replace(**{name: None})
        assert getattr(cfg, name) is not None and name in {
            each for each in none.to_dict() if none.to_dict()[each] is None
        }
        for ours in (type(cfg), registry.cfg_for_kind(cfg.kind())):  # a file is read by either
            for back in (ours.from_json(none.to_json()), ours.from_toml(none.to_toml())):
                assert getattr(back, name) is None


def test_all_config_classes_are_covered() -> None:
    modules = (carla, genelab, genesis, isaaclab, mjlab)
    values = [value for module in modules for name, value in vars(module).items() if not name.startswith("_")]
    assert {type(cfg) for cfg in configs()} == {
        value
        for value in values
        if isinstance(value, type) and issubclass(value, AliasedCfg) and issubclass(value, sn.SensorCfg)
    }


def test_either_name_is_accepted_but_not_both() -> None:
    cfg = genesis.Raycaster(link_name="base", max_range=3.0)
    assert (cfg.max_distance, cfg.max_range) == (3.0, 3.0)
    assert cfg.replace(max_range=4.0).max_distance == cfg.replace(max_distance=4.0).max_range == 4.0
    assert genesis.Raycaster(link_name="base", max_distance=3.0) == cfg
    with pytest.raises(sn.ConfigError, match=r"Raycaster\.max_range: got 3\.0, .*max_distance"):
        genesis.Raycaster(link_name="base", max_range=3.0, max_distance=3.0)
    with pytest.raises(sn.ConfigError, match=r"RayCasterCfg\.mesh_prim_paths: got nothing, expected a value"):
        isaaclab.RayCasterCfg(prim_path="/World/base", pattern_cfg=DOWN)
    with pytest.raises(AttributeError, match="no_such"):
        cfg.no_such  # noqa: B018
    assert aliases(genesis.Raycaster)["min_range"] == "min_distance" and "fields" not in own_defaults(genesis.Raycaster)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mesh_prim_paths": "a"}, r"targets=.*sensorium\.compat\.isaaclab"),
        ({"track_link": "a"}, r"targets=.*sensorium\.compat\.genesis"),
        ({"frame": "a"}, r"site=.*sensorium\.compat\.mjlab"),
        ({"max_range": 2.0}, "max_distance"),
        ({"renderer_cfg": None}, r"isaaclab follows 2\.3, .*\(w, x, y, z\)"),
    ],
    ids=str,
)
def test_native_configs_name_the_replacement_of_former_names(given: dict[str, Any], words: str) -> None:
    with pytest.raises(sn.ConfigError, match=words):
        sn.RayCasterCfg(body="base", **given)


# Isaac Lab ------------------------------------------------------------------------------------------------------------


def test_isaac_lab_imu_has_all_fields_and_a_fixed_gravity() -> None:
    engine = tumbling_engine(2)
    other, ours = isaaclab.ImuCfg(name="a", prim_path="/World/body"), sn.ImuCfg(name="b", body="body", fields="all")
    scene = sn.Scene(engine, [other, ours.replace(fields=other.fields, gravity_bias=(0.0, 0.0, 9.81))])
    data, expected = scene["a"].data, scene["b"].data
    for name in ("pos_w", "quat_w", "lin_vel_b", "ang_vel_b", "lin_acc_b", "ang_acc_b", "projected_gravity_b"):
        assert torch.equal(getattr(data, name), getattr(expected, name)), name


def test_isaac_lab_contact_histories_have_one_entry_per_sensor_update() -> None:
    """With a sample every 3 ticks, entry k is the force of k samples before; the library's own history counts ticks."""

    def histories(cfg: Any) -> tuple[list[float], list[float], list[bool]]:
        engine = sn.MujocoEngine(FALL)
        scene = sn.Scene(engine, [cfg])
        shown = [0.0]
        for _ in range(12):
            scene.step()
            shown.insert(0, scene["feet"].data.net_forces_w[0, 0, 2].item())
        data = scene["feet"].data.net_forces_w_history[0, :, 0, 2].tolist()
        return data, shown, scene["feet"].history_valid[0].tolist()

    given = {"name": "feet", "prim_path": "{ENV_REGEX_NS}/ball", "history_length": 3, "update_period": 0.006}
    entries, shown, valid = histories(isaaclab.ContactSensorCfg(**given))
    assert entries == [shown[0], shown[3], shown[6]] and len(set(entries)) == 3 and valid == [True] * 3
    ticks, _, _ = histories(sn.ContactSensorCfg(**given))
    assert ticks[0] == entries[0] and ticks[1:] != entries[1:]


def test_isaac_lab_contact_history_becomes_valid_sample_by_sample() -> None:
    scene = sn.Scene(
        sn.MujocoEngine(FALL),
        [isaaclab.ContactSensorCfg(prim_path="/World/ball", history_length=3, update_period=0.006)],
    )
    sensor, seen = scene["contact_sensor"], []
    for _ in range(7):
        seen.append(sensor.history_valid[0].tolist())
        scene.step()
    assert seen == [[True, False, False]] * 3 + [[True, True, False]] * 3 + [[True] * 3]


FALL = """
<mujoco><option timestep="0.002"/><worldbody><geom name="ground" type="plane" size="5 5 1"/>
<body name="ball" pos="0 0 0.0999"><freejoint/><geom name="ball" size="0.1"/></body></worldbody></mujoco>
"""


def test_isaac_lab_ray_casters_have_its_fields() -> None:
    box = sn.Shape("box", "box", (0.5, 0.5, 0.5), pos=(0.0, 0.0, 0.5))
    given = {"name": "rays", "prim_path": "/World/base", "pattern_cfg": DOWN}
    cfg = isaaclab.MultiMeshRayCasterCfg(**given, mesh_prim_paths=["/World"], update_mesh_ids=True)
    sensor = sn.Scene(above_ground(box), [cfg])["rays"]
    assert isinstance(sensor, isaaclab.MultiMeshRayCaster) and isinstance(sensor.data, isaaclab.RayCasterData)
    assert cfg.update_mesh_ids is True and cfg.replace(update_mesh_ids=False).update_mesh_ids is False
    assert sensor.data.ray_mesh_ids.tolist() == [[[1]]] and sensor.data.ray_hits_w.tolist() == [[[0.0, 0.0, 1.0]]]
    only = isaaclab.RayCasterCfg(**given, mesh_prim_paths=["/World/ground"])
    assert sn.Scene(above_ground(box), [only])["rays"].data.ray_hits_w.tolist() == [[[0.0, 0.0, 0.0]]]
    assert only.attach_yaw_only is False and only.replace(attach_yaw_only=True).ray_alignment == "yaw"
    assert only.replace(ray_alignment="yaw").attach_yaw_only is True
    moving = sn.Shape("box", "hull", (0.1, 0.1, 0.1), body="leg")
    still = isaaclab.RaycastTargetCfg(prim_expr="/World/leg", track_mesh_transforms=False)
    engine = sn.TensorEngine(1, 0.01, bodies=("base", "leg"), shapes=[GROUND, moving])
    with pytest.raises(sn.ConfigError, match=r"targets: got 'hull', which moves with 'leg'.*track_mesh_transforms"):
        sn.Scene(engine, [isaaclab.MultiMeshRayCasterCfg(**given, mesh_prim_paths=still)])


def test_isaac_lab_rays_turn_with_the_yaw_of_their_starts_only() -> None:
    """A body yawed by 90 degrees, pitched and drifted: starts turn about the vertical, directions keep world axes."""
    pattern = isaaclab.patterns.GridPatternCfg(size=(1.0, 0.0), resolution=1.0, direction=(1.0, 0.0, -1.0))
    engine, half, pitch = above_ground(envs=2), math.sqrt(0.5), 0.1
    engine.body_quat_w[:, 0] = half * torch.tensor(
        [math.cos(pitch), -math.sin(pitch), math.sin(pitch), math.cos(pitch)]
    )
    given = {"prim_path": "{ENV_REGEX_NS}/base", "mesh_prim_paths": ["/World/ground"], "pattern_cfg": pattern}
    offset = isaaclab.RayCasterCfg.OffsetCfg(pos=(0.2, 0.0, 0.5))
    drifts = {"drift_range": (-0.1, 0.1), "ray_cast_drift_range": {"z": (0.1, 0.3)}}
    yaw = isaaclab.RayCasterCfg(name="yaw", **given, offset=offset, ray_alignment="yaw", **drifts)
    flag = isaaclab.RayCasterCfg(name="flag", **given, offset=offset, attach_yaw_only=True)
    world = isaaclab.RayCasterCfg(name="world", **given, offset=offset, ray_alignment="world")
    scene = sn.Scene(engine, [yaw, flag, world])
    for name, starts in (("yaw", [(0.0, -0.3), (0.0, 0.7)]), ("flag", [(0.0, -0.3), (0.0, 0.7)]),
                         ("world", [(-0.3, 0.0), (0.7, 0.0)])):  # fmt: skip
        hits = [[x + 2.5, y, 0.0] for x, y in starts]  # from 2.5 m, 45 degrees down along the world's x
        torch.testing.assert_close(scene[name].ground_truth.ray_hits_w, torch.tensor([hits] * 2))
    sensor: Any = scene["yaw"]
    assert sensor.ray_starts.shape == sensor.ray_directions.shape == (2, 2, 3)
    torch.testing.assert_close(sensor.ray_starts[1], torch.tensor([[-0.3, 0.0, 0.5], [0.7, 0.0, 0.5]]))
    torch.testing.assert_close(sensor.ray_directions[1, 0], torch.tensor([half, 0.0, -half]))
    torch.testing.assert_close(sensor.data.pos_w - sensor.ground_truth.pos_w, sensor.drift)
    assert sensor.drift.shape == (2, 3) and sensor.drift.abs().amin() > 0.0
    z = sensor.ray_cast_drift[:, 2]
    assert (0.1 <= z).all() and not sensor.ray_cast_drift[:, :2].any()
    torch.testing.assert_close(sensor.data.ray_hits_w[..., 2], z[:, None].expand(2, 2))
    before = sensor.drift.clone()
    scene.reset([1])
    assert sensor.drift[0].equal(before[0]) and not sensor.drift[1].equal(before[1])
    assert not scene["world"].drift.any()
    with pytest.raises(RuntimeError):
        scene["world"].drift[:] = 1.0


def test_isaac_lab_path_of_a_ray_caster_ends_with_a_name() -> None:
    """A pattern there is refused even if one body matches; a pattern of environments is allowed."""
    given = {"mesh_prim_paths": ["/World"], "pattern_cfg": DOWN}
    image = {"mesh_prim_paths": ["/World"], "pattern_cfg": IMAGE}
    for cfg_class, fields in ((isaaclab.RayCasterCfg, given), (isaaclab.MultiMeshRayCasterCfg, given),
                              (isaaclab.RayCasterCameraCfg, image)):  # fmt: skip
        for leaf in ("bas.*", "bas[e]", "(base|other)", "base_*"):
            with pytest.raises(RuntimeError, match=r"prim_path: got .*the path of one prim"):
                sn.Scene(above_ground(), [cfg_class(prim_path=f"/World/{leaf}", **fields)])
        assert len(sn.Scene(above_ground(), [cfg_class(prim_path="/World/envs/env_.*/base", **fields)])) == 1


def test_isaac_lab_camera_has_its_image_names() -> None:
    cfg = isaaclab.RayCasterCameraCfg(
        name="eye", prim_path="/World/base", mesh_prim_paths=["/World"], pattern_cfg=IMAGE,
        data_types=["depth", "image_mesh_ids"],
    )  # fmt: skip
    data: Any = sn.Scene(above_ground(), [cfg])["eye"].data
    assert data.output["depth"] is data.depth is data.distance_to_image_plane
    assert data.output["image_mesh_ids"] is data.image_mesh_ids is data.geom_ids


def test_isaac_lab_camera_for_several_meshes_reports_their_ids() -> None:
    """The box fills the middle of the image, and the ground is around it; a mesh that was not listed is not seen."""
    shapes = [sn.Shape("box", name, (0.3, 0.3, 0.3), pos=(x, 0.0, 0.0)) for name, x in (("box", 0.0), ("other", 1.0))]
    down = isaaclab.RayCasterCameraCfg.OffsetCfg(rot=(0.0, 1.0, 0.0, 0.0))
    given: dict[str, Any] = {"name": "eye", "prim_path": "/World/base", "offset": down}
    given["pattern_cfg"] = isaaclab.PinholeCameraPatternCfg(width=21, height=3, focal_length=10.0)
    meshes = ["/World/ground", isaaclab.RaycastTargetCfg(prim_expr="/World/box", track_mesh_transforms=False)]
    cfg = isaaclab.MultiMeshRayCasterCameraCfg(**given, mesh_prim_paths=meshes, update_mesh_ids=True)
    sensor: Any = sn.Scene(above_ground(*shapes), [cfg])["eye"]
    assert isinstance(sensor.data, isaaclab.MultiMeshRayCasterCameraData) and cfg.update_mesh_ids
    ids, depth = sensor.data.image_mesh_ids, sensor.data.output["distance_to_image_plane"]
    assert ids.shape == depth.shape == (1, 3, 21, 1)
    names = [sensor.geom_names[int(each)] for each in ids[0, 1, :, 0]]
    columns = [abs(column - 10) / (21 * 10.0 / 20.955) * 1.7 < 0.3 for column in range(21)]
    assert names == ["box" if inside else "ground" for inside in columns] and {*names} == {"box", "ground"}
    torch.testing.assert_close(depth[0, 1, :, 0], torch.tensor([1.7 if inside else 2.0 for inside in columns]))
    bare = isaaclab.MultiMeshRayCasterCameraCfg(**given, mesh_prim_paths=meshes)
    assert not bare.update_mesh_ids
    assert sn.Scene(above_ground(*shapes), [bare])["eye"].data.image_mesh_ids is None  # type: ignore[attr-defined]


def test_isaac_lab_frames_without_a_name_have_the_leaf_of_their_path() -> None:
    """The frames of two robots have the same name, which finds both; sensorium's own frames have the full name."""
    bodies = ("base", "a/RF_FOOT", "b/RF_FOOT")
    engine = sn.TensorEngine(2, 0.01, bodies=bodies)
    engine.body_pos_w[:, 2, 0] = 3.0
    frame = isaaclab.FrameTransformerCfg.FrameCfg
    frames = [frame(prim_path=f"{{ENV_REGEX_NS}}/{robot}/RF_FOOT") for robot in "ab"]
    given = {"prim_path": "{ENV_REGEX_NS}/base", "target_frames": frames}
    cfg = isaaclab.FrameTransformerCfg(name="theirs", **given)
    scene: Any = sn.Scene(engine, [cfg, sn.FrameTransformerCfg(name="ours", **given)])
    data = scene["theirs"].data
    assert data.target_frame_names == ["RF_FOOT", "RF_FOOT"] and data.target_pos_w[1, :, 0].tolist() == [0.0, 3.0]
    assert scene["theirs"].find_bodies("RF_.*") == scene["theirs"].find_bodies("RF_FOOT") == ([0, 1], ["RF_FOOT"] * 2)
    assert scene["ours"].data.target_frame_names == ["a/RF_FOOT", "b/RF_FOOT"]
    with pytest.raises(sn.SelectionError, match="2 named 'RF_FOOT'"):
        sn.Scene(engine, [cfg.replace(target_frames=frames[:1] * 2)])


def test_isaac_lab_frames_accept_its_name_of_the_offset() -> None:
    frame = isaaclab.FrameTransformerCfg.FrameCfg(prim_path="/World/base")
    place = sn.OffsetCfg(pos=(1.0, 0.0, 0.0))
    cfg = isaaclab.FrameTransformerCfg(prim_path="/World/base", source_frame_offset=place, target_frames=[frame])
    data = sn.Scene(above_ground(), [cfg])["frame_transformer"].data
    assert data.source_pos_w.tolist() == [[1.0, 0.0, 2.0]] and data.target_pos_source.tolist() == [[[-1.0, 0.0, 0.0]]]


@pytest.mark.parametrize(
    ("channels", "span", "step", "count"),
    [(16, (-90.0, 90.0), 7.0, 432), (2, (-180.0, 180.0), 90.0, 8), (1, (0.0, 100.0), 30.0, 5), (3, (0.0, 0.0), 1.0, 3)],
)
def test_isaac_lab_lidar_pattern_includes_both_ends(
    channels: int, span: tuple[float, float], step: float, count: int
) -> None:
    """The rays are at even azimuths with both ends, of which a full turn omits the second; azimuth varies fastest."""
    patterns = isaaclab.patterns
    cfg = patterns.LidarPatternCfg(
        channels=channels, vertical_fov_range=(-15.0, 30.0), horizontal_fov_range=span, horizontal_res=step
    )
    columns = math.ceil((span[1] - span[0]) / step) + 1
    azimuths = np.linspace(*span, columns)[: columns - (span[1] - span[0] == 360.0)]
    h, v = np.meshgrid(np.radians(azimuths), np.radians(np.linspace(-15.0, 30.0, channels)))
    expected = np.stack([np.cos(v) * np.cos(h), np.cos(v) * np.sin(h), np.sin(v)], axis=-1).reshape(-1, 3)
    starts, directions = patterns.lidar_pattern(cfg, "cpu")
    assert starts.shape == (count, 3) and not starts.any()
    np.testing.assert_allclose(directions, expected, atol=1e-6)
    assert isinstance(cfg, patterns.LidarPatternCfg) and isinstance(cfg, patterns.PatternBaseCfg)
    for ours in (patterns.LidarPatternCfg, sn.PatternBaseCfg):  # a file is read by either
        assert ours.from_dict(cfg.to_dict()).rays().directions.equal(directions)


def test_isaac_lab_grid_pattern_is_checked_by_its_function() -> None:
    """A config needs size and resolution; a wrong ordering or resolution is an error once rays are computed."""
    patterns = isaaclab.patterns
    with pytest.raises(sn.ConfigError, match=r"size: got \(-1\.0, 1\.0\), expected two lengths"):
        patterns.GridPatternCfg(size=(-1.0, 1.0), resolution=0.1)
    for fields in ({"size": (1.0, 1.0)}, {"resolution": 0.1}):
        with pytest.raises(sn.ConfigError, match="got nothing"):
            patterns.GridPatternCfg(**fields)
    for fields, words in (
        ({"ordering": "zx"}, "must be 'xy' or 'yx'"),
        ({"resolution": 0.0}, "must be greater than 0"),
    ):
        cfg = patterns.GridPatternCfg(**{"size": (1.0, 1.0), "resolution": 0.5, **fields})
        for use in (
            lambda cfg: patterns.grid_pattern(cfg, "cpu"),
            lambda cfg: cfg.rays(),
            lambda cfg: cfg.count_rays(),
        ):
            with pytest.raises(sn.ConfigError, match=words):
                use(cfg)
    cfg = patterns.GridPatternCfg(size=(1.0, 0.5), resolution=0.5, ordering="yx")
    expected = [[x, y, 0.0] for x in (-0.5, 0.0, 0.5) for y in (-0.25, 0.25)]
    assert patterns.grid_pattern(cfg, "cpu")[0].tolist() == expected
    assert sn.PatternBaseCfg.from_dict(cfg.to_dict()).rays().starts.tolist() == expected
    assert (
        patterns.PinholeCameraPatternCfg.from_intrinsic_matrix([5, 0, 3, 0, 6, 2, 0, 0, 1], 6, 4).focal_length == 24.0
    )


# mjlab ----------------------------------------------------------------------------------------------------------------


def test_mjlab_ray_caster_has_its_defaults() -> None:
    cfg = mjlab.RayCastSensorCfg(frame=mjlab.ObjRef(type="body", name="base"), pattern=DOWN)
    assert (cfg.max_distance, cfg.include_geom_groups, cfg.fields) == (10.0, (0, 1, 2), "all")
    sensor = sn.Scene(above_ground(), [cfg])["ray_caster"]
    data: Any = sensor.data
    assert isinstance(sensor, mjlab.RayCastSensor) and data.hit_pos_w is data.ray_hits_w
    assert data.frame_pos_w.shape == (1, 1, 3) and data.frame_quat_w.shape == (1, 1, 4)
    far = sn.Scene(above_ground(height=20.0), [cfg])["ray_caster"].data
    assert far.distances.tolist() == [[-1.0]]


def test_mjlab_frame_is_a_mount() -> None:
    engine = sn.TensorEngine(
        1, 0.01, bodies=("base",), shapes=[GROUND],
        sites={"left": ("base", (0.0, 1.0, 0.5)), "right": ("base", (0.0, -1.0, 0.0))},
        geoms={"hull": ("base", (0.0, 0.0, -0.5))},
    )  # fmt: skip
    engine.body_pos_w[:, 0, 2] = 2.0
    ref = sn.ObjRef

    def data_of(**given: Any) -> Any:
        return sn.Scene(engine, [mjlab.RayCastSensorCfg(name="rays", pattern=DOWN, **given)])["rays"].data

    one = mjlab.RayCastSensorCfg(frame=ref(type="site", name="left"))
    assert one.selector == ("site", ref(type="site", name="left"))
    assert data_of(frame=ref(type="site", name="left")).distances.tolist() == [[2.5]]
    both = (ref(type="site", name="left"), ref(type="site", name="right"))
    sensor = sn.Scene(engine, [mjlab.RayCastSensorCfg(name="rays", pattern=RING, frame=both, history_length=2)])["rays"]
    for data in (sensor.data, sensor.ground_truth, sensor.read()):  # frame by frame
        assert data.distances.tolist() == [[2.5] * 4 + [2.0] * 4] and data.frame_pos_w.shape == (1, 2, 3)
        assert data.hit_pos_w[0, 5].tolist() == pytest.approx([0.0, -0.9, 0.0], abs=1e-6)
        assert data.pos_w.tolist() == [[0.0, 1.0, 2.5]] and data.frame_pos_w[0, 1].tolist() == [0.0, -1.0, 2.0]
    assert sensor.history.distances.shape == (1, 2, 8) and sensor.flat is sensor.data
    assert sensor.own_tensors(is_measured=True)["distances"].shape == (1, 2, 4)  # of files and streams
    height = mjlab.TerrainHeightSensorCfg(name="feet", pattern=RING, frame=both, reduction="none")
    data = sn.Scene(engine, [height])["feet"].data
    assert isinstance(data, mjlab.TerrainHeightData) and data.distances.shape == (1, 8)
    assert data.heights.tolist() == [[[2.5] * 4, [2.0] * 4]] and data.hit_pos_w.shape == (1, 8, 3)
    assert data_of(frame=ref(type="geom", name="hull")).distances.tolist() == [[1.5]]
    assert data_of(frame=ref(type="body", name="base", entity="robot")).frame_pos_w.shape == (1, 1, 3)
    assert mjlab.RayCastSensorCfg.from_toml(one.to_toml()) == one


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frame": sn.ObjRef(type="joint", name="knee")}, "ObjRef of one type: body, site or geom"),
        ({"frame": (sn.ObjRef(type="site", name="a"), sn.ObjRef(type="body", name="b"))}, "ObjRef of one type"),
        ({"frame": ()}, "ObjRef of one type"),
        ({"frame": "base"}, "ObjRef of one type"),
        ({"frame": sn.ObjRef(type="site", name="a"), "body": "base"}, "exactly one selector"),
    ],
    ids=str,
)
def test_invalid_frame_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        mjlab.RayCastSensorCfg(**fields)


def test_mjlab_terrain_height_without_hit_is_the_world_height() -> None:
    cfg = mjlab.TerrainHeightSensorCfg(name="feet", body="base", targets="ground", max_distance=1.0)
    assert sn.Scene(above_ground(), [cfg])["feet"].data.heights.item() == 1.0
    ours = sn.TerrainHeightCfg(name="feet", body="base", targets="ground", max_distance=1.0)
    assert sn.Scene(above_ground(), [ours])["feet"].data.heights.item() == math.inf


# Genesis --------------------------------------------------------------------------------------------------------------


def test_genesis_sensors_are_those_of_the_options() -> None:
    pairs = {"Contact": sn.Contact, "ContactForce": sn.ContactForce, "ElastomerDisplacement": sn.ElastomerTaxel,
             "IMU": sn.Imu, "Proximity": sn.SurfaceDistanceProbe, "TemperatureGrid": sn.TemperatureGrid}  # fmt: skip
    for name, sensor in pairs.items():
        assert getattr(genesis, f"{name}Sensor") is sensor is registry.sensor_for(getattr(genesis, name))


def test_genesis_imu_has_its_fields() -> None:
    """Readings unpack in the order of the document; the coupling is Genesis' example: (0, g, 0) reads (g, g, g)."""
    engine = tumbling_engine(2)
    rig = [genesis.IMU(name="imu", link_name="body"), genesis.IMU(name="bent", acc_cross_axis_coupling=(0.0, 1.0, 0.0))]
    scene = sn.Scene(engine, rig)
    for data in (scene["imu"].data, scene["imu"].ground_truth, scene["imu"].read()):
        assert isinstance(data, genesis.IMUData)
        lin_acc, ang_vel, mag = data
        assert lin_acc is data.lin_acc is data.lin_acc_b and ang_vel is data.ang_vel is data.ang_vel_b
        assert mag is data.mag is data.mag_b
    engine.gravity_w[:] = torch.tensor([0.0, -9.0, 0.0])
    scene.update()
    assert scene["bent"].ground_truth.lin_acc[0].tolist() == [0.0, 9.0, 0.0]  # on the world: no entity is given
    assert scene["bent"].data.lin_acc[0].tolist() == [9.0, 9.0, 9.0]
    assert scene["bent"].data.mag[0].tolist() == [0.0, 0.0, 0.5]


def test_genesis_proximity_reports_a_miss_as_reach_and_own_position() -> None:
    probes = {"body": "base", "probe_local_pos": ((0.0, 0.0, -1.5), (0.0, 0.0, 0.0))}
    for cfg, reach in ((genesis.SurfaceDistanceProbe(**probes), 0.5), (genesis.Proximity(**probes), 10.0)):
        ghost = sn.Shape("sphere", "ghost", (0.2,), pos=(0.0, 0.0, 19.0), is_collision=False)
        sensor: Any = sn.Scene(above_ground(ghost, height=20.0), [cfg])[cfg]
        assert sensor.data.distance.tolist() == [[reach, reach]]
        assert sensor.data.nearest_points is sensor.data.nearest_points_w
        assert sensor.data.nearest_points[0, 1].tolist() == [0.0, 0.0, 20.0]


WALL = sn.Shape("box", "wall", (0.05, 5.0, 5.0), pos=(3.05, 0.0, 0.0))
"""A wall whose face is the plane x = 3 m."""
BALL = sn.Shape("sphere", "ball", (0.4,), pos=(2.0, 0.5, 0.0))


def test_genesis_rays_have_the_axes_of_their_pattern() -> None:
    """A grid of 3 x 5 rays along x, y fastest, meets a ball before a wall; the range ends behind the ball."""
    pattern = genesis.GridPattern(resolution=0.5, size=(1.0, 2.0), direction=(1.0, 0.0, 0.0))
    starts = np.array([[(x, y) for y in np.arange(-1.0, 1.01, 0.5)] for x in (-0.5, 0.0, 0.5)])
    face = np.where(starts[..., 1] == 0.5, 1.6, 3.0)  # the near side of the ball, or the wall
    distance = face - starts[..., 0]
    beyond = distance > 2.9
    distance[beyond] = 2.9
    cfg = {"entity_idx": 1, "link_idx_local": 0, "pattern": pattern, "max_range": 2.9}
    engine = sn.TensorEngine(2, bodies=("table/top", "robot/base"), shapes=[WALL, BALL], provides=("pose",))
    scene = sn.Scene(engine, [genesis.Raycaster(name="local", **cfg, pos_offset=(0.0, 0.0, 0.1), history_length=2),
                              genesis.Raycaster(name="world", **cfg, return_world_frame=True),
                              genesis.Raycaster(name="bare", **cfg, return_points=False)])  # fmt: skip
    engine.body_pos_w[:, 1, 2] = -0.1
    engine.body_quat_w[:, 1] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    scene.update()
    assert pattern.return_shape == distance.shape == (3, 5)
    for name in ("local", "world", "bare"):
        sensor: Any = scene[name]
        points, distances = sensor.read([1])
        assert distances.shape == (1, *pattern.return_shape) == sensor.data.distances[1:].shape
        tolerance = 0.0 if name == "local" else 0.02  # the others hit the ball 0.1 m below its middle
        np.testing.assert_allclose(distances[0].numpy(), distance, atol=1e-5 + tolerance)
        assert sensor.own_tensors(is_measured=True)["distances"].shape == (2, 15)  # as in files and streams
        assert sensor.data.distances.data_ptr() == sensor.buffers.truth["distances"].data_ptr()
    assert scene["bare"].data.points is None
    assert scene["local"].history.distances.shape == (2, 2, 3, 5)
    points, _ = scene["local"].read()
    np.testing.assert_allclose(points[0, ..., 0].numpy()[~beyond], face[~beyond], atol=1e-5)
    np.testing.assert_allclose(points[0, 1, 3].numpy(), [1.6, 0.5, 0.1], atol=1e-5)  # in the link
    points, _ = scene["world"].read()
    np.testing.assert_allclose(points[0, 1, 3, 2].item(), -0.1, atol=1e-6)
    scan = genesis.Raycaster(entity_idx=0, pattern=DOWN, fields=("pos_w", "distances", "ray_hits_w"))
    assert sn.Scene(above_ground(), [scan])[scan].height_scan().tolist() == [[2.0]]
    assert genesis.Raycaster(max_range=3.0).replace(max_range=4.0).no_hit_value == 4.0
    assert genesis.Raycaster(no_hit_value=-1.0).replace(max_range=4.0).no_hit_value == -1.0


def test_genesis_depth_camera_looks_along_x() -> None:
    """The middle pixel sees the wall 3 m ahead; a pixel right of it has a negative y."""
    engine = sn.TensorEngine(1, bodies=("base",), shapes=[WALL], provides=("pose",))
    cfg = genesis.DepthCamera(name="eye", entity_idx=0, pattern=genesis.DepthCameraPattern(res=(3, 1)))
    sensor: Any = sn.Scene(engine, [cfg])["eye"]
    points, distances = sensor.read()
    side = 3.0 * 2.0 / 3.0  # the outer pixels are 2/3 of the half width, which is 45 degrees, from the middle
    np.testing.assert_allclose(points[0, 0].numpy(), [(3.0, side, 0.0), (3.0, 0.0, 0.0), (3.0, -side, 0.0)], atol=1e-5)
    np.testing.assert_allclose(distances[0, 0].numpy(), [math.hypot(3.0, side), 3.0, math.hypot(3.0, side)], atol=1e-5)
    assert isinstance(sensor, genesis.DepthCameraSensor) and isinstance(sensor, genesis.RaycasterSensor)
    assert sensor.read_image().equal(distances) and sensor.data.distance_to_image_plane is None
    near = sn.Scene(engine, [cfg.replace(max_range=2.0, name="near")])["near"].read_image()
    assert near.tolist() == [[[2.0, 2.0, 2.0]]]


def test_genesis_rays_hit_their_own_link() -> None:
    hull = sn.Shape("sphere", "hull", (1.0,), body=0)
    cfg = genesis.Raycaster(name="r", entity_idx=0, pattern=genesis.SphericalPattern(n_points=(3, 5)))
    engine = sn.TensorEngine(1, bodies=("base",), shapes=[hull], provides=("pose",))
    _points, distances = sn.Scene(engine, [cfg])["r"].read()
    torch.testing.assert_close(distances, torch.ones(1, 3, 5))


def test_genesis_spherical_pattern_takes_steps_per_axis() -> None:
    pattern = genesis.SphericalPattern(fov=(360.0, (-10.0, 11.0)), n_points=(7, 7), angular_resolution=(100.0, 5.0))
    azimuth, elevation = pattern.grid_angles()
    np.testing.assert_allclose(azimuth, [-180.0, -90.0, 0.0, 90.0])  # ceil(3.6), without the end of the turn
    np.testing.assert_allclose(elevation, np.linspace(-10.0, 11.0, 6))  # ceil(4.2) + 1
    assert genesis.SphericalPattern(angular_resolution=(None, 20.0)).return_shape == (128, 4)
    assert genesis.SphericalPattern(angles=([0.0, 1.0], [2.0])).grid_angles()[0].tolist() == [0.0, 1.0]


def test_genesis_links_are_positions_in_the_model() -> None:
    """Entities are prefixes, or kinematic trees in a model without them; links are counted in an entity or in all."""

    def mount(engine: sn.TensorEngine, **given: Any) -> tuple[str, ...]:
        mounts: tuple[str, ...] = sn.Scene(engine, [sn.BodyStateCfg(name="b", **given)])["b"].info.mounts
        return mounts

    prefixed = sn.TensorEngine(1, bodies=("a/x", "b/x", "b/y"), provides=("pose", "velocity"))
    trees = sn.TensorEngine(1, bodies=("a", "b", "c", "d"), parents=(-1, 0, -1, 2), provides=("pose", "velocity"))
    for entity, index, wanted in ((1, 1, "b/y"), ("b", 0, "b/x"), (0, 0, "a/x")):
        assert mount(prefixed, body=genesis.IMU(entity_idx=entity, link_idx_local=index).body) == (wanted,)
    assert mount(trees, body=genesis.IMU(entity_idx=1, link_idx_local=1).body) == ("d",)
    assert mount(trees, body=sn.ObjRef(type="body", name=".*", index=2)) == ("c",)
    assert mount(trees, bodies=sn.ObjRef(type="body", name=".*", entity=1)) == ("c", "d")
    faults = {
        r"ObjRef\.entity: got 2, expected a position from 0 to 1: a, b": {"entity": 2},
        r"ObjRef\.index: got 2, expected a position from 0 to 1: b/x, b/y": {"entity": 1, "index": 2},
    }
    for message, given in faults.items():
        with pytest.raises(sn.SelectionError, match=message):
            mount(prefixed, body=sn.ObjRef(type="body", name=".*", **given))
    assert genesis.IMU(entity_idx=-1).body == genesis.IMU(entity_idx=None).body == genesis.IMU().body == "world"
    turned = genesis.IMU(entity_idx=0, euler_offset=(90.0, 0.0, 90.0)).offset  # x up first, then about the fixed z
    np.testing.assert_allclose(rotation(np.array(turned.rot)) @ [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(rotation(np.array(turned.rot)) @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-12)
    with pytest.raises(sn.ConfigError, match="exactly one selector"):
        genesis.IMU(entity_idx=0, body="base")
    for given in ({"pos_offset": (0.0, 0.0, 1.0), "offset": {}}, {"filter_link_idx": (1,), "ignore": "a"},
                  {"euler_offset": 3.0}, {"entity_idx": 1.5}, {"filter_link_idx": 1.5}):  # fmt: skip
        with pytest.raises(sn.ConfigError):
            genesis.Contact(**{"entity_idx": 0, **given})


def test_genesis_contacts_count_above_a_threshold_and_without_filtered_links() -> None:
    """A box of 1 kg on a table presses with 9.81 N."""
    scene = genesis.Scene(
        sn.MujocoEngine(
            "<mujoco><worldbody><body name='table'><geom type='box' size='1 1 .1'/></body>"
            "<body name='box' pos='0 0 .2'><freejoint/><geom type='box' size='.1 .1 .1' mass='1'/></body>"
            "</worldbody></mujoco>"
        ),
    )
    on, off = (scene.add_sensor(genesis.Contact(entity_idx=1, threshold=force)) for force in (9.0, 10.0))
    force = scene.add_sensor(genesis.ContactForce(entity_idx=1, max_force=math.inf))
    alone = scene.add_sensor(genesis.ContactForce(name="alone", entity_idx=1, filter_link_idx=(0,)))
    with pytest.raises(sn.StaleError, match=r"call scene\.build\(\)"):
        on.read()
    with pytest.raises(sn.ConfigError, match="n_envs: got 2, expected 1"):
        scene.build(n_envs=2)
    scene.build(n_envs=0)
    scene.step(substeps=500)
    assert on.read().item() and not off.read().item()
    assert force.read()[0, 2].item() == pytest.approx(9.81, abs=0.01) and not alone.read().any()
    late = scene.add_sensor(sn.BodyStateCfg(body="box"))
    assert late.data.pos_w[0, 2].item() == pytest.approx(0.2, abs=0.01) and late.name in scene.built


def test_genesis_options_without_a_counterpart_are_refused_with_a_reason() -> None:
    for options, given, reason in (
        (genesis.RaytracerCameraOptions, {"spp": 64}, "without path tracing"),
        (genesis.RasterizerCameraOptions, {"lights": [{"dir": (0, 0, -1)}]}, "lights in the model"),
        (genesis.RaytracerCameraOptions, {"model": "thinlens"}, "another lens"),
        (genesis.ElastomerDisplacement, {"dilate_coefficient": 0.01}, "lambda_d"),
        (genesis.DepthCamera, {"return_world_frame": True}, "Use a Raycaster"),
        (genesis.TemperatureGrid, {"properties_dict": {-1: genesis.TemperatureProperties()}}, "default_properties"),
    ):
        with pytest.raises(sn.ConfigError, match=reason):
            options(entity_idx=0, **given)
    with pytest.warns(sn.SensoriumWarning, match="interpolate"):
        genesis.IMU(delay=0.1, jitter=0.1, interpolate=True)
    camera = genesis.RasterizerCameraOptions(entity_idx=0, lights=[], near=0.1, far=9.0)
    assert camera.lens == sn.PinholeLensCfg(fovy=60.0) and camera.clipping_range == (0.1, 9.0)
    drawn = genesis.Contact(entity_idx=0, draw_debug=True, debug_sphere_radius=0.1, debug_color=(1.0, 0.0, 1.0, 0.5))
    assert drawn.debug_vis and genesis.TemperatureProperties().density == 1000.0
    assert genesis.RasterizerCameraOptions(draw_debug=True).debug_vis


# GeneLab and CARLA ----------------------------------------------------------------------------------------------------


def test_other_genelab_sensors_are_native() -> None:
    assert genelab.KinematicContactSensor is sn.ContactProbe and genelab.KinematicDepthSensor is sn.ContactDepthProbe


def test_carla_event_camera_has_its_values() -> None:
    """Its polarities are bool and its times whole nanoseconds."""
    ball = sn.Shape("sphere", "ball", (0.3,), pos=(1.0, 0.0, 0.0), body="ball")
    engine = sn.TensorEngine(1, 0.01, bodies=("base", "ball"), shapes=[ball])
    offset = {"convention": "world"}
    cfg = carla.EventCameraCfg(name="dvs", body="base", offset=offset, width=16, height=12)
    assert (cfg.positive_threshold, cfg.negative_threshold) == (0.3, 0.3)
    scene = sn.Scene(engine, [cfg])
    engine.body_pos_w[:, 1, 1] = 0.2
    scene.update()
    data: Any = scene[cfg].data
    count = int(data.count)
    assert count > 0 and {0, 1} >= set(data.pol[0, :count].int().tolist())
    assert (data.t[0, :count] - data.time_offset[0, :count].double() * 1e9).abs().max() <= 0.5


def test_carla_radar_has_its_values() -> None:
    ball = sn.Shape("sphere", "ball", (1.0,), pos=(5.0, 2.0, 1.0))
    cfg = carla.RadarCfg(name="radar", body="base", points=400, horizontal_fov_deg=90.0, vertical_fov_deg=60.0)
    engine = above_ground(ball, provides=("pose", "velocity"))
    data: Any = sn.Scene(engine, [cfg])["radar"].data
    assert torch.equal(data.azimuth_carla, -data.azimuth) and data.depth is data.range
    assert torch.equal(data.raw_data, torch.stack([data.velocity, -data.azimuth, data.altitude, data.range], dim=-1))


def test_subclass_without_sensor_uses_that_of_its_base() -> None:
    class CalmImuCfg(sn.ImuCfg):
        acceleration: Any = "difference"

    assert CalmImuCfg.kind() == "imu" and registry.sensor_for(CalmImuCfg) is sn.Imu
    assert sn.Scene(tumbling_engine(1), [CalmImuCfg(body="body")])["imu"].acceleration_source == "difference"
