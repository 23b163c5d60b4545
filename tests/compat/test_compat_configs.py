"""Configs in the notation of other systems: aliases, files, kinds, and default behaviour of their sensors."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import sensorium as sn
from sensorium import registry
from sensorium.compat import carla, genelab, genesis, isaaclab, mjlab
from sensorium.compat.aliases import AliasedCfg, aliases, own_defaults
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
    yield genesis.IMU(link_name="base")
    yield genesis.Raycaster(link_name="base", min_range=0.5, max_range=3.0, return_world_frame=False)
    yield genesis.DepthCamera(link_name="base", max_range=3.0)
    yield genesis.Proximity(link_name="base", track_link="ground", max_range=2.0)
    yield genesis.ElastomerDisplacement(link_name="base", track_link=("ground",))
    yield genesis.KinematicTaxel(link_name="base", track_link="ground")
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
    assert registry.sensor_for(type(cfg)) is registry.sensor_for(ours)
    again = ours.from_dict(json.loads(json.dumps(cfg.to_dict())))
    for name in ours.model_fields:
        if name == "prim_path" and hasattr(cfg, "selector"):  # of a camera to create, the file has the mount
            assert again.selector == cfg.selector
        elif name == "lens" and cfg.lens is not None:
            assert again.lens == cfg.own_lens
        elif name not in ("targets", "target_frames"):  # entries may be of the other system's classes
            assert getattr(again, name) == getattr(cfg, name), name
    assert again.to_dict() == {name: value for name, value in cfg.to_dict().items() if value is not None}
    for given in (cfg, *with_none(cfg)):
        for back in (type(cfg).from_json(given.to_json()), type(cfg).from_toml(given.to_toml())):
            assert back.to_dict() == given.to_dict()
            if isinstance(cfg, isaaclab.MultiMeshRayCasterCfg) or getattr(cfg, "lens", None) is not None:
                continue  # the file is without options that have no effect
            assert back == given


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
        ({"legacy_yaw_directions": True}, "ray_alignment"),
        ({"max_range": 2.0}, "max_distance"),
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
    assert sensor.data.ray_mesh_ids.tolist() == [[[1]]] and sensor.data.ray_hits_w.tolist() == [[[0.0, 0.0, 1.0]]]
    only = isaaclab.RayCasterCfg(**given, mesh_prim_paths=["/World/ground"])
    assert sn.Scene(above_ground(box), [only])["rays"].data.ray_hits_w.tolist() == [[[0.0, 0.0, 0.0]]]
    assert only.ray_alignment == "base" and only.replace(attach_yaw_only=True).ray_alignment == "yaw"
    moving = sn.Shape("box", "hull", (0.1, 0.1, 0.1), body="leg")
    still = isaaclab.RaycastTargetCfg(prim_expr="/World/leg", track_mesh_transforms=False)
    engine = sn.TensorEngine(1, 0.01, bodies=("base", "leg"), shapes=[GROUND, moving])
    with pytest.raises(sn.ConfigError, match=r"targets: got 'hull', which moves with 'leg'.*track_mesh_transforms"):
        sn.Scene(engine, [isaaclab.MultiMeshRayCasterCfg(**given, mesh_prim_paths=still)])


def test_isaac_lab_camera_has_its_image_names() -> None:
    cfg = isaaclab.RayCasterCameraCfg(
        name="eye", prim_path="/World/base", mesh_prim_paths=["/World"], pattern_cfg=IMAGE,
        data_types=["depth", "image_mesh_ids"],
    )  # fmt: skip
    data: Any = sn.Scene(above_ground(), [cfg])["eye"].data
    assert data.output["depth"] is data.depth is data.distance_to_image_plane
    assert data.output["image_mesh_ids"] is data.image_mesh_ids is data.geom_ids


def test_isaac_lab_frames_accept_its_name_of_the_offset() -> None:
    frame = isaaclab.FrameTransformerCfg.FrameCfg(prim_path="/World/base")
    place = sn.OffsetCfg(pos=(1.0, 0.0, 0.0))
    cfg = isaaclab.FrameTransformerCfg(prim_path="/World/base", source_frame_offset=place, target_frames=[frame])
    data = sn.Scene(above_ground(), [cfg])["frame_transformer"].data
    assert data.source_pos_w.tolist() == [[1.0, 0.0, 2.0]] and data.target_pos_source.tolist() == [[[-1.0, 0.0, 0.0]]]


def test_isaac_lab_lidar_pattern_includes_both_ends() -> None:
    pattern = isaaclab.LidarPatternCfg(
        channels=1, vertical_fov_range=(0.0, 0.0), horizontal_fov_range=(0.0, 100.0), horizontal_res=30.0
    )
    assert pattern.azimuths().tolist() == [0.0, 25.0, 50.0, 75.0, 100.0]


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


def test_genesis_contact_sensor_is_the_contact_switch() -> None:
    assert genesis.ContactSensor is sn.Contact and genesis.Contact is sn.ContactCfg
    assert genesis.ContactForceSensor is sn.ContactForce and genesis.ContactForce is sn.ContactForceCfg
    assert genesis.ElastomerDisplacementSensor is sn.ElastomerTaxel
    assert genesis.TemperatureGridSensor is sn.TemperatureGrid and genesis.IMUSensor is sn.Imu


def test_genesis_imu_has_its_fields() -> None:
    scene = sn.Scene(tumbling_engine(2), [genesis.IMU(name="imu", link_name="body", magnetic_field=(1.0, 0.0, 0.0))])
    for data in (scene["imu"].data, scene["imu"].ground_truth, scene["imu"].read()):
        assert isinstance(data, genesis.IMUData)
        assert data.lin_acc is data.lin_acc_b and data.ang_vel is data.ang_vel_b and data.mag is data.mag_b


def test_genesis_proximity_reports_a_miss_as_reach_and_own_position() -> None:
    cfg = genesis.Proximity(name="p", body="base", probe_local_pos=((0.0, 0.0, -1.5), (0.0, 0.0, 0.0)))
    data: Any = sn.Scene(above_ground(), [cfg])["p"].data
    assert data.distance.tolist() == [[0.5, 0.5]] and data.nearest_points is data.nearest_points_w
    assert data.nearest_points[0, 1].tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("is_world", [True, False])
def test_genesis_ray_caster_returns_points_in_the_requested_frame(is_world: bool) -> None:
    cfg = genesis.Raycaster(name="rays", body="base", pattern=DOWN, return_world_frame=is_world)
    data: Any = sn.Scene(above_ground(), [cfg])["rays"].data
    assert data.points.tolist() == [[[0.0, 0.0, 0.0 if is_world else -2.0]]]


def test_genesis_depth_camera_returns_ray_lengths() -> None:
    cfg = genesis.DepthCamera(name="eye", body="base", res=(3, 3), offset={"convention": "world"})
    sensor: Any = sn.Scene(above_ground(), [cfg])["eye"]
    assert isinstance(sensor, genesis.DepthCameraSensor) and sensor.data.distance_to_image_plane is None
    assert sensor.read_image().shape == (1, 3, 3)


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
