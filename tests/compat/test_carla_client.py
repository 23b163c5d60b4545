"""Sensors as clients of CARLA use them: find, set attributes, spawn on an actor, append to a list, destroy.

The client is connected to a server over the network. The lists are read after the connection has ended. All readings
are compared with an independent calculation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import connect, running, until

import sensorium as sn
from sensorium.client.blueprints import BlueprintLibrary
from sensorium.compat.carla import lidar_pattern
from sensorium.errors import ConfigError
from sensorium.readings import Array
from sensorium.stream.blueprints import build_cfg, definitions
from sensorium.wire.attributes import SensorDefinition

TICK, STEPS, GRAVITY = 0.01, 10, 9.81
STREET = """
<mujoco><option timestep="0.01" gravity="0 0 -9.81"/>
  <default><geom contype="0" conaffinity="0" rgba="1 1 1 1"/></default>
  <worldbody>
    <geom name="wall" type="box" size="0.5 20 20" pos="8.5 0 0"/>
    <geom name="back" type="box" size="0.5 20 20" pos="-8.5 0 0"/>
    <body name="vehicle.ego/chassis"><freejoint/><geom type="box" size="0.5 0.3 0.2" mass="100"/></body>
    <body name="vehicle.audi/chassis" pos="5 0.3 0"><freejoint/>
      <geom name="vehicle.audi/hull" size="0.4" mass="100"/></body>
  </worldbody></mujoco>
"""
AUDI, RADIUS = np.array([5.0, 0.3, 0.0]), 0.4
MAST = sn.Pose((0.6, 0.0, 0.3))
LATITUDE, LONGITUDE, HEIGHT = 49.0, 8.0, 100.0
IMAGE = {"image_size_x": "40", "image_size_y": "30", "fov": "60"}
ATTRIBUTES: dict[str, dict[str, str]] = {
    "sensor.lidar.ray_cast": {
        "channels": "16", "range": "50", "points_per_second": "32000", "rotation_frequency": "20", "upper_fov": "5",
        "lower_fov": "-10", "sensor_tick": "0.05", "dropoff_general_rate": "0.0", "dropoff_zero_intensity": "0.0",
        "atmosphere_attenuation_rate": "0.01", "noise_seed": "0",
    },
    "sensor.lidar.ray_cast_semantic": {"points_per_second": "64000"},
    "sensor.other.radar": {"horizontal_fov": "20", "vertical_fov": "10", "range": "20", "points_per_second": "6000"},
    "sensor.other.obstacle": {"distance": "20", "hit_radius": "0.3", "only_dynamics": "True"},
    "sensor.other.imu": {"noise_gyro_bias_x": "0.25", "noise_gyro_bias_z": "-0.5"},
    "sensor.other.gnss": {"noise_lat_bias": "0.0001", "noise_lon_bias": "0.0002", "noise_alt_bias": "3.0",
                          "origin": f"[{LATITUDE}, {LONGITUDE}, {HEIGHT}]"},
    "sensor.camera.rgb": {**IMAGE, "bloom_intensity": "0", "gamma": "2.2", "enable_postprocess_effects": "False"},
    "sensor.camera.depth": IMAGE,
}  # fmt: skip


@pytest.fixture(scope="module")
def received() -> Iterator[dict[str, list[Any]]]:
    """The readings of each sensor."""
    scene = sn.Scene(sn.MujocoEngine(STREET), [sn.ImuCfg(name="reserved", body="vehicle.ego/chassis")], seed=0)
    scene.reset(qvel=[[1.0, *[0.0] * 11]])  # the ego drives forward, and both fall freely
    readings: dict[str, list[Any]] = {type_id: [] for type_id in ATTRIBUTES}
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with connect(server.address) as world:
            actor_list = []
            for type_id, attributes in ATTRIBUTES.items():
                blueprint = world.blueprints.find(type_id)
                for name, value in attributes.items():
                    blueprint.set_attribute(name, value)
                sensor = world.spawn(blueprint, MAST, attach_to="vehicle.ego/chassis")
                sensor.listen(readings[type_id].append)
                actor_list.append(sensor)
            for k in range(1, STEPS + 1):
                frame = world.step()
                due = [each for type_id, each in readings.items() if k % 5 == 0 or type_id != "sensor.lidar.ray_cast"]
                until(lambda due=due, frame=frame: all(each and each[-1].frame == frame for each in due))
            for sensor in actor_list:
                sensor.destroy()
                assert not sensor.is_alive
            assert world.bodies[1].type_id == "vehicle.audi" and not world.notes and not world.errors
    yield readings


def mast(data: Any) -> tuple[Array, Array, Array]:
    """Return position and velocity of the sensors, and the position of the audi, after semi-implicit Euler steps."""
    k = data.tick
    fall = np.array([0.0, 0.0, -0.5 * GRAVITY * TICK**2 * k * (k + 1)])
    pos = np.array([1.0, 0.0, 0.0]) * k * TICK + MAST.pos + fall
    return pos, np.array([1.0, 0.0, -GRAVITY * TICK * k]), AUDI + fall


def cast(data: Any, directions: Array) -> tuple[Array, Array]:
    """Return the lengths along directions `[ray, 3]` to the nearest surface, and which hit the audi."""
    pos, _, audi = mast(data)
    with np.errstate(divide="ignore", invalid="ignore"):
        lengths = np.where(directions[:, 0] > 0, 8.0 - pos[0], -8.0 - pos[0]) / directions[:, 0]
        sides = np.abs(pos[1:] + lengths[:, None] * directions[:, 1:]).max(axis=1)
    lengths = np.where(sides < 20.0, lengths, np.inf)
    between, square = pos - audi, (directions**2).sum(axis=1)
    half = directions @ between
    root = half**2 - square * (between @ between - RADIUS**2)
    near = np.where((root > 0) & (half < 0), (-half - np.sqrt(np.maximum(root, 0.0))) / square, np.inf)
    return np.minimum(lengths, near), near < lengths


def of_all(received: dict[str, list[Any]], type_id: str, count: int = STEPS) -> list[Any]:
    """Return the readings after the first step, which all differ in their frames."""
    found = [data for data in received[type_id] if data.tick > 0]
    assert len({data.frame for data in found}) == len(found) == count
    return found


def test_a_rotation_of_the_lidar_has_its_share_of_the_points(received: dict[str, list[Any]]) -> None:
    for data in of_all(received, "sensor.lidar.ray_cast", STEPS // 5):
        assert data.distances.shape == (1, 32000 // 20)
        points = data.points_b[0].astype(float)[np.isfinite(data.distances[0])]
        length = np.linalg.norm(points, axis=1)
        expected, is_audi = cast(data, points / length[:, None])
        np.testing.assert_allclose(length, expected, rtol=2e-5)
        np.testing.assert_allclose(data.intensity[0][np.isfinite(data.distances[0])], np.exp(-0.01 * length), rtol=1e-5)
        elevation, count = np.unique(np.degrees(np.arcsin(points[:, 2] / length)).round(2), return_counts=True)
        np.testing.assert_allclose(elevation, np.linspace(-10.0, 5.0, 16), atol=0.011)
        azimuths = np.unique(np.degrees(np.arctan2(points[:, 1], points[:, 0])).round(2))
        np.testing.assert_allclose(np.median(np.diff(azimuths)), 360.0 / 100, atol=0.03)
        # a wall of 20 m at each side: all lasers miss beside it alike
        assert is_audi.any() and len({*count.tolist()}) == 1 and 60 < count[0] <= 100 == 1600 // 16


def test_each_tick_of_the_semantic_lidar_shows_what_it_hits(received: dict[str, list[Any]]) -> None:
    for data in of_all(received, "sensor.lidar.ray_cast_semantic"):
        assert data.distances.shape == (1, 640)
        hit = np.isfinite(data.distances[0])
        points = data.points_b[0][hit].astype(float)
        directions = points / np.linalg.norm(points, axis=1)[:, None]
        expected, is_audi = cast(data, directions)
        np.testing.assert_allclose(data.distances[0][hit], expected, rtol=2e-5)
        assert (expected <= 10.0).all()
        names = np.array(data.info.constants["geom_names"])[data.geom_ids[0][hit]]
        np.testing.assert_array_equal(names == "vehicle.audi/hull", is_audi)
        is_wall = (names == "wall") | (names == "back")
        np.testing.assert_allclose(data.cos_incidence[0][hit][is_wall], np.abs(directions[is_wall, 0]), atol=1e-5)


def test_the_radar_measures_the_speed_of_approach(received: dict[str, list[Any]]) -> None:
    for data in of_all(received, "sensor.other.radar"):
        assert data.range.shape == (1, 60)
        azimuth, altitude = data.azimuth[0].astype(float), data.altitude[0].astype(float)
        flat = np.cos(altitude)
        directions = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(altitude)], axis=1)
        expected, is_audi = cast(data, directions)
        np.testing.assert_allclose(data.range[0], expected, rtol=2e-5)
        _, velocity, _ = mast(data)
        of_target = np.where(is_audi[:, None], velocity * [0.0, 0.0, 1.0], 0.0)
        speed = ((of_target - velocity) * directions).sum(axis=1)
        np.testing.assert_allclose(data.velocity[0], speed, atol=1e-4)
        ends = directions[:, 1:] / directions[:, :1] / np.tan(np.radians([10.0, 5.0]))
        assert (np.linalg.norm(ends, axis=1) <= 1.0 + 1e-5).all() and np.median(np.linalg.norm(ends, axis=1)) < 0.7


def test_the_obstacle_is_the_first_thing_in_the_way_of_the_ball(received: dict[str, list[Any]]) -> None:
    for data in of_all(received, "sensor.other.obstacle"):
        pos, _, audi = mast(data)
        between = audi - pos
        expected = between[0] - math.sqrt((RADIUS + 0.3) ** 2 - between[1] ** 2 - between[2] ** 2)
        assert data.other_actor == 1 and data.distance == pytest.approx(expected, abs=0.02)


def test_imu_and_gnss_have_the_biases_of_their_axes(received: dict[str, list[Any]]) -> None:
    """In free fall the accelerometer reads 0; degrees of latitude and longitude have different lengths."""
    for data in of_all(received, "sensor.other.imu"):
        np.testing.assert_allclose(data.lin_acc_b, [[0.0, 0.0, 0.0]], atol=1e-4)
        np.testing.assert_allclose(data.ang_vel_b, [[0.25, 0.0, -0.5]], atol=1e-6)
    a, b = 6378137.0, 6356752.314245
    sine, cosine = math.sin(math.radians(LATITUDE)), math.cos(math.radians(LATITUDE))
    east_radius = (a**2 / math.hypot(a * cosine, b * sine) + HEIGHT) * cosine
    for data in of_all(received, "sensor.other.gnss"):
        pos, _, _ = mast(data)
        longitude = LONGITUDE + math.degrees(pos[0] / east_radius)
        np.testing.assert_allclose(data.lla[0, :2], [LATITUDE + 1e-4, longitude + 2e-4], rtol=0.0, atol=2e-8)
        assert data.lla[0, 2] == pytest.approx(HEIGHT + pos[2] + 3.0, abs=1e-4)


def test_cameras_show_the_audi_before_the_wall(received: dict[str, list[Any]]) -> None:
    focal = 20.0 / math.tan(math.radians(30.0))
    v, u = np.mgrid[:30, :40]
    directions = np.stack([np.ones(1200), (20.0 - u.ravel() - 0.5) / focal, (15.0 - v.ravel() - 0.5) / focal], axis=1)
    for data in of_all(received, "sensor.camera.depth"):
        assert data.distance_to_image_plane.shape == (1, 30, 40, 1)
        expected, is_audi = cast(data, directions)
        image = data.distance_to_image_plane.reshape(-1)
        assert 0 < is_audi.sum() < 600 and (np.abs(image - expected) < 1e-3).mean() > 0.99  # not at the silhouette
    for data in of_all(received, "sensor.camera.rgb"):
        assert data.rgb.shape == (1, 30, 40, 3) and data.rgb.dtype == np.uint8
        _, is_audi = cast(data, directions)
        pixels = data.rgb.reshape(-1, 3).astype(float).mean(axis=1)
        assert pixels[is_audi].std() > 1.3 * pixels[~is_audi].std() > 0.0  # a shaded ball before an even wall


DEFAULTS = {
    "sensor.lidar.ray_cast": {
        "channels": 32, "range": 10, "points_per_second": 56000, "rotation_frequency": 10, "upper_fov": 10,
        "lower_fov": -30, "horizontal_fov": 360, "atmosphere_attenuation_rate": 0.004, "dropoff_general_rate": 0.45,
        "dropoff_intensity_limit": 0.8, "dropoff_zero_intensity": 0.4, "noise_stddev": 0, "noise_seed": 0,
    },
    "sensor.lidar.ray_cast_semantic": {"channels": 32, "range": 10, "points_per_second": 56000, "upper_fov": 10},
    "sensor.other.radar": {"horizontal_fov": 30, "vertical_fov": 30, "range": 100, "points_per_second": 1500},
    "sensor.other.obstacle": {"distance": 5, "hit_radius": 0.5, "only_dynamics": False, "debug_linetrace": False},
    "sensor.other.imu": dict.fromkeys(
        [f"noise_{name}_{axis}" for name in ("accel_stddev", "gyro_stddev", "gyro_bias") for axis in "xyz"], 0
    ),
    "sensor.other.gnss": dict.fromkeys(
        [f"noise_{name}_{what}" for name in ("lat", "lon", "alt") for what in ("bias", "stddev")], 0
    ),
    "sensor.camera.rgb": {"image_size_x": 800, "image_size_y": 600, "fov": 90, "shutter_speed": 200, "iso": 100,
                          "fstop": 1.4, "gamma": 2.2},
    "sensor.camera.depth": {"image_size_x": 800, "image_size_y": 600, "fov": 90, "lens_k": -1},
    "sensor.camera.dvs": {"positive_threshold": 0.3, "negative_threshold": 0.3, "sigma_positive_threshold": 0,
                          "refractory_period_ns": 0, "use_log": True, "log_eps": 0.001},
}  # fmt: skip
"""Attributes of CARLA and their defaults."""


@pytest.mark.parametrize("type_id", DEFAULTS)
def test_attributes_have_their_names_and_defaults(type_id: str) -> None:
    library = BlueprintLibrary(definitions().values())
    blueprint = library.find(type_id)
    assert {name: blueprint[name] for name in DEFAULTS[type_id]} == DEFAULTS[type_id]
    assert "sensor_tick" in blueprint


@pytest.mark.parametrize(
    ("type_id", "name", "value", "reason"),
    [
        ("sensor.lidar.ray_cast", "noise_seed", "7", "expected only 0. The random numbers follow from the seed"),
        ("sensor.other.imu", "noise_seed", 3, "expected only 0. The random numbers follow from the seed"),
        ("sensor.camera.rgb", "gamma", "1.8", "expected only 2.2. Colours are encoded as sRGB"),
        ("sensor.camera.rgb", "exposure_mode", "histogram", "expected only manual. The exposure is not automatic"),
        ("sensor.camera.rgb", "enable_postprocess_effects", "True", "expected only false. The image is sharp"),
        ("sensor.camera.depth", "lens_kcube", "0.5", "expected only 0.0. The distortion has no published formula"),
        ("sensor.lidar.ray_cast", "channels", "0", "expected a whole number >= 1"),
        ("sensor.lidar.ray_cast", "channels", "1000000000", "expected a whole number >= 1 and <= 4096"),
    ],
)
def test_values_that_cannot_be_honoured_are_refused_with_the_reason(
    type_id: str, name: str, value: object, reason: str
) -> None:
    """When they are set, and also in a request that was not checked."""
    blueprint = BlueprintLibrary(SensorDefinition.from_dict(each.to_dict()) for each in definitions().values())
    for refuse in (
        lambda: blueprint.find(type_id).set_attribute(name, value),
        lambda: build_cfg(type_id, {name: value}, attach_to="car"),
    ):
        with pytest.raises(ConfigError) as error:
            refuse()
        assert str(error.value).startswith(f"Blueprint({type_id!r}).{name}: got {value!r}, {reason}")


def test_attributes_and_fields_for_the_same_thing_are_refused_together() -> None:
    for type_id, values, text in (
        (
            "sensor.lidar.ray_cast",
            {"channels": "4", "pattern": "{kind = 'grid'}"},
            "channels: got 4, expected no value",
        ),
        (
            "sensor.other.imu",
            {"noise_accel_stddev_y": "1", "acc_noise": 2},
            "noise_accel_stddev_y: got 1.0, expected no",
        ),
    ):
        with pytest.raises(ConfigError, match=text):
            build_cfg(type_id, values, attach_to="car")


def test_deviations_become_noise_and_the_aperture_changes_the_exposure() -> None:
    imu = build_cfg("sensor.other.imu", {"noise_accel_stddev_y": "0.5", "noise_gyro_stddev_z": 0.1}, attach_to="car")
    assert imu == sn.ImuCfg(body="car", acc_noise=(0.0, 0.5, 0.0), gyro_noise=(0.0, 0.0, 0.1))
    (stage,) = build_cfg("sensor.camera.rgb", {"fstop": "2.8", "shutter_speed": "50"}).stages
    assert stage == sn.stages.ImageSensor(exposure_time=0.02, white_exposure=0.02)  # a quarter of the light
    lidar = build_cfg("sensor.lidar.ray_cast", attach_to="car")
    assert isinstance(lidar, sn.LidarCfg) and lidar.model == "dropoff" and lidar.pattern.count_rays() == 5600
    semantic = build_cfg("sensor.lidar.ray_cast_semantic", attach_to="car")
    assert semantic.is_clean and not semantic.alters_returns and semantic.pattern == lidar.pattern
    assert lidar.pattern == lidar_pattern()
