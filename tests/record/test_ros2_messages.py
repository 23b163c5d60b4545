"""Messages of all built-in mappers, as rosbags decodes them, equal the values of the readings."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from ros2_cases import DT, NS, Rig, cloud, decoded, spec, stamp, stores, vector, wxyz, xyz
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.errors import ConfigError
from sensorium.record.ros2 import Ros2Messages

POSES = (vector("pos_w", "m", "point", "world"),
         spec("quat_w", ("wxyz",), (4,), frame="world", kind="rotation", role="pose"))  # fmt: skip
GYRO = vector("ang_vel_b", "rad/s", "angular_velocity")
ACC = vector("lin_acc_b", "m/s^2", "specific_force")
ZEROS = [0.0] * 9
ABSENT = [-1.0, *[0.0] * 8]


@pytest.fixture(scope="module")
def store() -> Any:
    return stores()


def single(rig: Rig, store: Any, topic: str, **options: Any) -> list[tuple[int, int, Any, Any]]:
    """Return (row in the reading, log time, message, reading) of all messages of three readings on topics of an env."""
    readings = [rig.reading(tick) for tick in (4, 5, 9)]
    found = decoded(store, rig.messages(**options), readings)
    out = []
    for env in rig.converted:
        messages = found[f"/env_{env:04d}/{rig.name}/{topic}"]
        assert len(messages) == 3
        for (time, message), reading in zip(messages, readings, strict=True):
            assert time == round(reading.tick * DT * NS)
            if hasattr(message, "header"):
                assert message.header.frame_id.startswith(f"env_{env:04d}/")
            out.append((env, time, message, reading))
    return out


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))


# Inertial -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", ["gyro", "acc", "both", "pose"])
def test_imu(parts: str, store: Any) -> None:
    specs = {"gyro": [GYRO], "acc": [ACC], "both": [ACC, GYRO], "pose": [*POSES, GYRO, ACC]}[parts]
    rig = Rig(specs)
    for env, time, message, reading in single(rig, store, "data" if parts == "pose" else "data_raw"):
        assert message.header.frame_id == f"env_{env:04d}/front"
        assert stamp(message) == time
        has_gyro, has_acc = parts != "acc", parts != "gyro"
        same(xyz(message.angular_velocity), reading["ang_vel_b"][env] if has_gyro else [0, 0, 0])
        same(xyz(message.linear_acceleration), reading["lin_acc_b"][env] if has_acc else [0, 0, 0])
        same(message.angular_velocity_covariance, ZEROS if has_gyro else ABSENT)
        same(message.linear_acceleration_covariance, ZEROS if has_acc else ABSENT)
        same(message.orientation_covariance, ZEROS if parts == "pose" else ABSENT)
        same(wxyz(message.orientation), reading["quat_w"][env] if parts == "pose" else [1, 0, 0, 0])


def test_an_imu_of_another_frame_is_none() -> None:
    rig = Rig([vector("lin_acc_w", "m/s^2", "specific_force", "world")])
    assert [topic.name for topic in rig.messages().topics] == ["/clock"]


@pytest.mark.parametrize(("unit", "scale"), [("T", 1.0), ("uT", 1e-6), ("mG", 1e-7)])
def test_magnetic_field(unit: str, scale: float, store: Any) -> None:
    for env, _, message, reading in single(Rig([vector("mag_b", unit, "magnetic")]), store, "mag"):
        same(xyz(message.magnetic_field), reading["mag_b"][env].astype(float) * scale)
        same(message.magnetic_field_covariance, ZEROS)


def test_a_magnetic_field_without_a_unit_has_no_message() -> None:
    messages = Rig([vector("mag_b", "field", "magnetic")]).messages()
    assert messages.unmapped == {"front": ("mag_b",)} and [each.name for each in messages.topics] == ["/clock"]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_pressure_and_temperature(shape: tuple[int, ...], store: Any) -> None:
    axes = ("value",)[: len(shape)]
    rig = Rig([spec("pressure", axes, shape, "Pa", dtype="float64"), spec("temperature", axes, shape, "degC")])
    for env, _, message, reading in single(rig, store, "pressure"):
        same(message.fluid_pressure, reading["pressure"][env].reshape(()))
        assert message.variance == 0.0
    for env, _, message, reading in single(rig, store, "temperature"):
        same(message.temperature, reading["temperature"][env].reshape(()))


@pytest.mark.parametrize("heading", [None, 0.0, 90.0, -130.0])
def test_satellite_fix(heading: float | None, store: Any) -> None:
    """Velocities are in the axes of the world, whose x axis has the heading."""
    rig = Rig([
        spec("lla", ("lla",), (3,), "deg, deg, m", dtype="float64", frame="WGS84"),
        spec("vel_enu", ("enu",), (3,), "m/s", frame="enu"),
        spec("fix", dtype="int32", kind="id"),
    ], about={"cfg": {} if heading is None else {"heading_deg": heading}})  # fmt: skip
    to_enu = Rotation.from_euler("z", heading or 0.0, degrees=True)
    fixes = {0: -1, 2: 0, 3: 0, 4: 2, 5: 2}
    messages = rig.messages()
    for tick, (fix, status) in enumerate(fixes.items()):
        reading = rig.reading(tick, {each.name: rig.values(each) for each in rig.specs})
        reading.measured["fix"][:] = fix
        reading.measured["vel_enu"][:] = rig.rng.normal(size=(5, 3))
        found = decoded(store, messages, [reading])
        for env in rig.converted:
            ((_, message),) = found[f"/env_{env:04d}/front/fix"]
            place = reading["lla"][env] if fix else [np.nan] * 3
            same([message.latitude, message.longitude, message.altitude], place)
            assert (message.status.status, message.status.service) == (status, 1)
            assert message.position_covariance_type == 0
            ((_, velocity),) = found[f"/env_{env:04d}/front/fix_velocity"]
            linear = np.array(xyz(velocity.twist.twist.linear))
            np.testing.assert_allclose(to_enu.apply(linear), reading["vel_enu"][env], atol=1e-12)
            assert velocity.header.frame_id == f"env_{env:04d}/world"


@pytest.mark.parametrize("frame", ["world", "sensor"])
def test_odometry_has_velocities_in_the_axes_of_the_body(frame: str, store: Any) -> None:
    end = "w" if frame == "world" else "b"
    specs = [*POSES, vector(f"lin_vel_{end}", "m/s", "vector_at", frame),
             vector(f"ang_vel_{end}", "rad/s", "angular_velocity", frame)]  # fmt: skip
    rig = Rig(specs)
    reading = rig.reading(3, {each.name: rig.rng.normal(size=(5, *each.shape)) for each in specs})
    quat = reading["quat_w"]
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    found = decoded(store, rig.messages(truth=True), [reading])
    for env in rig.converted:
        for branch in ("", "truth/"):
            ((_, message),) = found[f"/env_{env:04d}/front/{branch}odometry"]
            assert message.header.frame_id == f"env_{env:04d}/world"
            assert message.child_frame_id == f"env_{env:04d}/front"
            same(xyz(message.pose.pose.position), reading["pos_w"][env])
            same(wxyz(message.pose.pose.orientation), quat[env] if not branch else reading.truth["quat_w"][env])
            same(message.pose.covariance, [0.0] * 36)
            if branch:
                continue
            w, x, y, z = quat[env]
            turn = np.array([
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]) if frame == "world" else np.eye(3)  # fmt: skip
            for name, twist in (("lin_vel", message.twist.twist.linear), ("ang_vel", message.twist.twist.angular)):
                np.testing.assert_allclose(turn @ xyz(twist), reading[f"{name}_{end}"][env], rtol=0, atol=1e-12)


# Joints and forces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joints", [None, 1, 4])
@pytest.mark.parametrize(
    "fields", [("position",), ("velocity", "position"), ("position", "velocity", "effort"), ("torque",)]
)
def test_joint_state(joints: int | None, fields: tuple[str, ...], store: Any) -> None:
    shape = () if joints is None else (joints,)
    names = [f"robot/joint_{index}" for index in range(joints or 1)]
    rig = Rig([spec(name, ("joint",)[: len(shape)], shape, "rad") for name in fields],
              about={"constants": {"joint_names": names}})  # fmt: skip
    for env, _, message, reading in single(rig, store, "joint_states"):
        assert message.name == names
        for path, name in (
            ("position", "position"),
            ("velocity", "velocity"),
            ("effort", "effort"),
            ("effort", "torque"),
        ):
            if name in fields:
                same(getattr(message, path), reading[name][env].reshape(-1))
        assert ("position" in fields) == (len(message.position) > 0)


def test_wrench_per_mount(store: Any) -> None:
    rig = Rig([vector("force", "N", "vector_at"), vector("torque", "N m")], mounts=("robot/FL foot", "robot/tip.2"))
    for mount, word in enumerate(("robot/FL_foot", "robot/tip_2")):
        for env, _, message, reading in single(rig, store, f"{word}/wrench"):
            assert message.header.frame_id == f"env_{env:04d}/front/{word}"
            same(xyz(message.wrench.force), reading["force"][env, mount])
            same(xyz(message.wrench.torque), reading["torque"][env, mount])


def test_wrench_without_torque(store: Any) -> None:
    for _, _, message, _ in single(Rig([vector("force", "N", "vector_at")]), store, "wrench"):
        same(xyz(message.wrench.torque), [0, 0, 0])


# Rays -----------------------------------------------------------------------------------------------------------------


def lidar(rays: int = 40, returns: int | None = None, *fields: str, **about: Any) -> Rig:
    sizes, axes = (rays,) if returns is None else (rays, returns), ("ray", "return")[: 1 if returns is None else 2]
    known = {
        "distances": spec("distances", axes, sizes, "m", role="range"),
        "points_b": spec("points_b", (*axes, "xyz"), (*sizes, 3), "m", frame="sensor", role="point"),
        "intensity": spec("intensity", axes, sizes),
        "channel": spec("channel", ("ray",), (rays,), dtype="int32", kind="id"),
        "time_offset": spec("time_offset", ("ray",), (rays,), "s"),
        "azimuth": spec("azimuth", ("ray",), (rays,), "rad"),
        "elevation": spec("elevation", ("ray",), (rays,), "rad"),
    }
    return Rig([known[name] for name in fields or known], kind="lidar", about=about)


def scan(rig: Rig, tick: int, share: float = 0.6) -> Any:
    """Return a reading of a lidar with that share of hits, the same points as distances along the rays."""
    values = {}
    rng = rig.rng
    sizes = next(each.shape for each in rig.specs if each.name in ("distances", "points_b"))
    rays, returns = sizes[0], sizes[1:] if rig.specs[0].name == "distances" else ()
    azimuth = np.linspace(3.0, -3.0, rays) * np.ones((rig.n, 1))
    elevation = rng.uniform(-0.3, 0.3, (rig.n, rays))
    level = np.cos(elevation)
    along = np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], -1)
    shape = (rig.n, rays, *returns)
    distances = np.where(rng.random(shape) < share, rng.uniform(0.5, 60.0, shape), np.inf)
    with np.errstate(invalid="ignore"):
        points = distances[..., None] * (along[:, :, None] if returns else along)
    points[~np.isfinite(distances)] = np.inf
    known = {
        "distances": distances, "points_b": points, "intensity": rng.uniform(0, 300, shape),
        "channel": rng.integers(0, 64, (rig.n, rays)), "azimuth": azimuth, "elevation": elevation,
        "time_offset": np.sort(rng.uniform(-0.1, 0.0, (rig.n, rays)), axis=1),
    }  # fmt: skip
    for each in rig.specs:
        values[each.name] = np.asarray(known[each.name], each.dtype)
    return rig.reading(tick, values)


def hits_of(reading: Any, env: int) -> dict[str, Any]:
    """Return the hits of one env, ray by ray."""
    points = reading["points_b"][env]
    wanted: dict[str, list[Any]] = {"points": [], "intensity": [], "channel": [], "offset": []}
    for ray in range(len(points)):
        for echo in np.ndindex(points.shape[1:-1]):
            if np.isfinite(points[ray][echo]).all():
                wanted["points"].append(points[ray][echo])
                wanted["intensity"].append(reading["intensity"][env][ray][echo])
                wanted["channel"].append(reading["channel"][env, ray])
                wanted["offset"].append(float(reading["time_offset"][env, ray]))
    return {key: np.array(value) for key, value in wanted.items()}


@pytest.mark.parametrize("returns", [None, 2])
@pytest.mark.parametrize("share", [0.6, 0.0, 1.0])
@pytest.mark.parametrize("layout", ["points", "ouster", "livox", "livox_custom"])
def test_point_clouds_in_the_layouts_of_drivers(layout: str, share: float, returns: int | None, store: Any) -> None:
    rig = lidar(40, returns)
    readings = [scan(rig, tick, share) for tick in (60, 80)]
    found = decoded(store, rig.messages(messages={"front": (layout,)}), readings)
    for env in rig.converted:
        topic = f"/env_{env:04d}/front/{'livox' if layout == 'livox_custom' else 'points'}"
        for (_, message), reading in zip(found[topic], readings, strict=True):
            hits = hits_of(reading, env)
            offsets = reading["time_offset"][env].astype(float)
            start = round(reading.tick * DT * NS) + round(float(str(np.float32(offsets.min()))) * NS)
            assert stamp(message) == start
            since = np.rint((hits["offset"] - offsets.min()) * NS)
            limited = np.rint(hits["intensity"])
            if layout == "livox_custom":
                assert (message.timebase, message.point_num, message.lidar_id) == (start, len(since), 0)
                got = {name: np.array([getattr(point, name) for point in message.points]) for name in (
                    "x", "y", "z", "offset_time", "reflectivity", "tag", "line")}  # fmt: skip
                same(got["offset_time"], since)
                same(got["reflectivity"], np.minimum(limited, 255))
                same(got["line"], hits["channel"])
                same(got["tag"], np.zeros(len(since)))
            else:
                got = cloud(message)
                assert (message.height, message.is_dense) == (1, True)
                got = got[0]
                same(got["intensity"], hits["intensity"].astype(np.float32))
                if layout == "points":
                    assert message.point_step == 22
                    assert got["ring"].dtype == np.uint16 and got["time"].dtype == np.float32
                    same(got["ring"], hits["channel"])
                    same(got["time"], np.float32(hits["offset"] - offsets.min()))
                elif layout == "ouster":
                    assert message.point_step == 48
                    same(got["t"], since)
                    same(got["ring"], hits["channel"])
                    same(got["reflectivity"], limited)
                    same([got["noise"], got["ambient"]], np.zeros((2, len(since))))
                    same(
                        got["range"], np.rint(np.linalg.norm(hits["points"].reshape(-1, 3).astype(float), axis=1) * 1e3)
                    )
                else:
                    assert message.point_step == 26
                    same(got["timestamp"], start + since)
                    same(got["line"], hits["channel"])
            for axis, name in enumerate("xyz"):
                same(got[name], hits["points"].reshape(-1, 3)[:, axis])


LAYOUTS = {  # offset and sensor_msgs/PointField type of each field, as the drivers' messages have them
    "points": {"x": (0, 7), "y": (4, 7), "z": (8, 7), "intensity": (12, 7), "ring": (16, 4), "time": (18, 7)},
    "ouster": {"x": (0, 7), "y": (4, 7), "z": (8, 7), "intensity": (16, 7), "t": (20, 6), "reflectivity": (24, 4),
               "ring": (26, 2), "ambient": (28, 4), "noise": (30, 4), "range": (32, 6)},
    "livox": {"x": (0, 7), "y": (4, 7), "z": (8, 7), "intensity": (12, 7), "tag": (16, 2), "line": (17, 2),
              "timestamp": (18, 8)},
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fields_of_the_layouts(layout: str, store: Any) -> None:
    rig = lidar()
    found = decoded(store, rig.messages(messages={"front": [layout]}), [scan(rig, 60)])
    ((_, message),) = found["/env_0003/front/points"]
    assert {each.name: (each.offset, each.datatype) for each in message.fields} == LAYOUTS[layout]
    assert {each.count for each in message.fields} == {1}


def test_a_cloud_has_only_known_fields(store: Any) -> None:
    rig = lidar(10, None, "distances", "points_b")
    reading = scan(rig, 2)
    found = decoded(store, rig.messages(), [reading])
    ((_, message),) = found["/env_0003/front/points"]
    assert [each.name for each in message.fields] == ["x", "y", "z"] and message.point_step == 12
    assert stamp(message) == 2 * DT * NS


@pytest.mark.parametrize("miss", [None, -1.0])
def test_a_cloud_follows_from_distances_and_angles(miss: float | None, store: Any) -> None:
    rig = lidar(30, 2, "distances", "azimuth", "elevation", cfg={} if miss is None else {"no_hit_value": miss})
    reading = scan(rig, 2)
    if miss is not None:
        values = reading["distances"]
        values[~np.isfinite(values)] = miss
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/points"]
        distances, got = reading["distances"][env], cloud(message)[0]
        hit = distances > 0 if miss is not None else np.isfinite(distances)
        assert len(got) == hit.sum() > 0
        points = np.stack([got[name] for name in "xyz"], -1).astype(float)
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), distances[hit], rtol=1e-6)
        rays = np.nonzero(hit)[0]
        np.testing.assert_allclose(np.arctan2(points[:, 1], points[:, 0]), reading["azimuth"][env, rays], atol=1e-6)
        np.testing.assert_allclose(points[:, 2] / distances[hit], np.sin(reading["elevation"][env, rays]), atol=1e-6)


def test_a_scan_that_starts_before_time_0_is_omitted(store: Any) -> None:
    """Two scans with the stamp 0 would follow each other, the first with points of times to come."""
    rig = lidar()
    found = decoded(store, rig.messages(messages={"front": ("points", "livox_custom")}), [scan(rig, 1)])
    assert not any("front/" in topic for topic in found)
    dated = decoded(store, rig.messages(messages={"front": ("points",)}, start_ns=10**12), [scan(rig, 1)])
    assert all(len(dated[f"/env_{env:04d}/front/points"]) == 1 for env in rig.converted)


def test_hits_in_the_world(store: Any) -> None:
    rig = Rig([spec("ray_hits_w", ("ray", "xyz"), (7, 3), "m", frame="world", role="point")], kind="ray_caster")
    for env, _, message, reading in single(rig, store, "points"):
        assert message.header.frame_id == f"env_{env:04d}/world"
        points = reading["ray_hits_w"][env]
        got = cloud(message)[0]
        same(np.stack([got[name] for name in "xyz"], -1), points[np.isfinite(points).all(-1)].reshape(-1, 3))


@pytest.mark.parametrize("pattern", [{"elevations": [0.0]}, {"channels": 1}])
def test_laser_scan(pattern: dict[str, Any], store: Any) -> None:
    cfg = {"pattern": pattern, "max_distance": 25.0, "min_distance": 0.2, "no_hit_value": 0.0}
    rig = lidar(31, None, "distances", "azimuth", "intensity", "time_offset", cfg=cfg)
    reading = scan(rig, 60)
    reading["distances"][~np.isfinite(reading["distances"])] = 0.0
    turned = np.linspace(np.pi, -np.pi, 31)  # a full turn wraps once
    reading["azimuth"][:] = np.mod(turned + 1.0 + np.pi, 2 * np.pi) - np.pi
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/scan"]
        offsets = reading["time_offset"][env].astype(float)
        assert stamp(message) == round(60 * DT * NS) + round(float(str(np.float32(offsets.min()))) * NS)
        expected = reading["distances"][env].copy()
        expected[expected == 0.0] = np.inf
        same(message.ranges, expected)
        same(message.intensities, reading["intensity"][env])
        assert (message.range_min, message.range_max) == (np.float32(0.2), 25.0)
        assert message.scan_time == np.float32(0.1)
        np.testing.assert_allclose(message.time_increment, (offsets.max() - offsets.min()) / 30, rtol=1e-6)
        angles = message.angle_min + message.angle_increment * np.arange(31)
        np.testing.assert_allclose(np.exp(1j * angles), np.exp(1j * reading["azimuth"][env]), atol=1e-5)
        np.testing.assert_allclose(message.angle_max, angles[-1], atol=1e-5)


@pytest.mark.parametrize("cfg", [{}, {"pattern": {"elevations": [0.0, 1.0]}}, {"pattern": {"channels": 16}}])
def test_a_scan_with_several_channels_is_no_laser_scan(cfg: dict[str, Any]) -> None:
    rig = lidar(31, None, "distances", "azimuth", cfg=cfg)
    assert not any("scan" in topic.name for topic in rig.messages().topics)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_range(shape: tuple[int, ...], store: Any) -> None:
    rig = Rig([spec("distance", ("value",)[: len(shape)], shape, "m", role="range")],
              about={"cfg": {"no_hit_value": 9.0, "max_distance": 4.0}})  # fmt: skip
    reading = rig.reading(1)
    reading["distance"][3] = 9.0
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/distance"]
        same(message.range, np.inf if env == 3 else reading["distance"][env].reshape(()))
        assert (message.min_range, message.max_range, message.radiation_type) == (0.0, 4.0, 1)


def test_a_miss_of_a_rangefinder_of_mujoco(store: Any) -> None:
    """Its -1 is no distance, also with noise."""
    model = (
        "<mujoco><worldbody><body pos='0 0 2'><geom size='.1'/><site name='up'/><site name='down' euler='180 0 0'/>"
        "</body><geom type='plane' size='5 5 1'/></worldbody><sensor><rangefinder name='up' site='up'/>"
        "<rangefinder name='down' site='down'/></sensor></mujoco>"
    )
    scene = sn.Scene(sn.MujocoEngine(model), [sn.BuiltinSensorCfg(name=name, noise=0.01) for name in ("up", "down")])
    messages = Ros2Messages(scene.description())
    for reading in scene.publish().values():
        ((_, _, data),) = next(iter(messages.encode([reading])))
        found = store.deserialize_cdr(bytes(data), "sensor_msgs/msg/Range").range
        assert found == (np.inf if reading.name == "up" else reading["value"][0])


@pytest.mark.parametrize("share", [0.4, 0.0])
def test_radar_scan(share: float, store: Any) -> None:
    names = {"range": "m", "velocity": "m/s", "azimuth": "rad", "altitude": "rad", "snr": "1"}
    specs = [
        spec(name, ("ray",), (25,), unit, role="range" if name == "range" else "scalar") for name, unit in names.items()
    ]
    rig = Rig(specs, kind="radar")
    values = {name: rig.rng.uniform(0.5, 2.0, (5, 25)).astype(np.float32) for name in names}
    values["range"][rig.rng.random((5, 25)) >= share] = np.inf
    reading = rig.reading(1, values)
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/scan"]
        rays = np.flatnonzero(np.isfinite(values["range"][env]))
        assert len(message.returns) == len(rays)
        for got, ray in zip(message.returns, rays, strict=True):
            assert got.range == values["range"][env, ray]
            assert got.azimuth == values["azimuth"][env, ray]
            assert got.elevation == values["altitude"][env, ray]
            assert got.doppler_velocity == values["velocity"][env, ray]
            np.testing.assert_allclose(10 ** (got.amplitude / 10), values["snr"][env, ray], rtol=1e-5)


# Images ---------------------------------------------------------------------------------------------------------------

IMAGE = ("height", "width", "channel")
ENCODINGS = [
    ("uint8", 1, "mono8"), ("uint8", 3, "rgb8"), ("uint8", 4, "rgba8"), ("uint16", 1, "mono16"),
    ("int32", 1, "32SC1"), ("float32", 3, "32FC3"), ("float64", 1, "64FC1"), ("bool", 1, "8UC1"),
]  # fmt: skip


def pixels(message: Any) -> Any:
    """Return the pixels of an Image from its encoding."""
    kinds = {"mono8": ("u1", 1), "rgb8": ("u1", 3), "rgba8": ("u1", 4), "mono16": ("<u2", 1), "32SC1": ("<i4", 1),
             "32FC3": ("<f4", 3), "64FC1": ("<f8", 1), "8UC1": ("u1", 1), "32FC1": ("<f4", 1)}  # fmt: skip
    dtype, channels = kinds[message.encoding]
    assert message.step == message.width * channels * np.dtype(dtype).itemsize and not message.is_bigendian
    return np.frombuffer(message.data.tobytes(), dtype).reshape(message.height, message.width, channels)


@pytest.mark.parametrize(("dtype", "channels", "encoding"), ENCODINGS)
def test_image(dtype: str, channels: int, encoding: str, store: Any) -> None:
    rig = Rig([spec("rgb", IMAGE, (4, 6, channels), dtype=dtype, role="image")])
    for env, _, message, reading in single(rig, store, "color/image_raw"):
        assert message.encoding == encoding
        assert message.header.frame_id == f"env_{env:04d}/front_optical"
        same(pixels(message), reading["rgb"][env])


def test_image_without_channel_axis(store: Any) -> None:
    rig = Rig([spec("floor", ("row", "column"), (4, 6), dtype="uint8", role="image")])
    for env, _, message, reading in single(rig, store, "floor/image_raw"):
        same(pixels(message)[..., 0], reading["floor"][env])


LENSES = [
    (None, "plumb_bob", [0.0] * 5),
    (sn.lenses.PinholeLensCfg(fovy=40.0), "plumb_bob", [0.0] * 5),
    (sn.lenses.BrownConradyLensCfg(k1=0.1, k2=0.2, p1=0.3, p2=0.4, k3=0.5), "plumb_bob", [0.1, 0.2, 0.3, 0.4, 0.5]),
    (sn.lenses.BrownConradyLensCfg(p2=0.4, k6=0.8), "rational_polynomial", [0.0, 0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.8]),
    (sn.lenses.KannalaBrandtLensCfg(k1=0.1, k4=0.4), "equidistant", [0.1, 0.0, 0.0, 0.4]),
    (sn.lenses.FThetaLensCfg(coefficients=(0.1,), nominal_size=(4, 6)), "", []),
    (sn.lenses.EquirectangularLensCfg(), "", []),
    (sn.lenses.OrthographicLensCfg(view_height=2.0), "", []),
]


@pytest.mark.parametrize(("lens", "model", "coefficients"), LENSES)
def test_camera_info_has_the_distortion_of_the_lens(
    lens: Any, model: str, coefficients: list[float], store: Any
) -> None:
    """In the order of ROS; a lens that ROS cannot express has no CameraInfo, which `unmapped` reports."""
    rig = depth(constants={} if lens is None else {"lens": lens.to_dict()})
    reading = rig.reading(3)
    messages = rig.messages()
    assert ("intrinsic_matrices" in messages.unmapped.get("front", ())) == (not model)
    found = decoded(store, messages, [reading])
    topics = [topic for topic in found if topic.endswith("depth/camera_info")]
    assert len(topics) == (len(rig.converted) if model else 0)
    assert len([topic for topic in found if topic.endswith("depth/image_raw")]) == len(rig.converted)
    for topic in topics:
        ((_, info),) = found[topic]
        assert info.distortion_model == model
        same(info.d, coefficients)
    if not model:
        with pytest.raises(ConfigError, match="camera_info"):
            rig.messages(messages={"front": ("camera_info",)})


def depth(**about: Any) -> Rig:
    return Rig([
        spec("intrinsic_matrices", ("row", "column"), (3, 3), "px"),
        spec("distance_to_image_plane", IMAGE, (4, 6, 1), "m", role="image"),
        spec("points_b", ("height", "width", "xyz"), (4, 6, 3), "m", frame="sensor", role="image"),
        spec("normals", ("height", "width", "xyz"), (4, 6, 3), frame="world", role="image"),
    ], about=about)  # fmt: skip


def test_points_have_the_colors_of_their_pixels(store: Any) -> None:
    """Each point has the RGB of its pixel, packed in a float; without an image of colors there is none."""
    rig = Rig([
        spec("rgb", ("height", "width", "rgb"), (4, 6, 3), dtype="uint8", kind="derived", role="image"),
        spec("points_b", ("height", "width", "xyz"), (4, 6, 3), "m", frame="sensor", role="image"),
    ])  # fmt: skip
    reading = rig.reading(3)
    reading["rgb"][:] = rig.rng.integers(0, 256, reading["rgb"].shape)
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/points"]
        assert message.point_step == 16 and message.row_step == 6 * 16
        got = cloud(message)
        packed = np.ascontiguousarray(got["rgb"]).view(np.uint32)
        colors = np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], axis=-1)
        same(colors, reading["rgb"][env])
        points = reading["points_b"][env]
        same(got["z"], np.where(np.isfinite(points).all(-1), points[..., 2], np.nan))


@pytest.mark.parametrize(
    ("cfg", "miss"), [({"no_hit_value": 7.0}, 7.0), ({"depth_clipping_behavior": "zero", "no_hit_value": None}, 0.0)]
)
def test_depth_image_and_camera_info(cfg: dict[str, Any], miss: float, store: Any) -> None:
    rig = depth(cfg=cfg)
    reading = rig.reading(3)
    plane = reading["distance_to_image_plane"]
    plane[:, 1, 2] = miss
    reading["intrinsic_matrices"][:] = rig.rng.normal(size=(5, 3, 3))
    found = decoded(store, rig.messages(), [reading])
    for env in rig.converted:
        ((_, image),) = found[f"/env_{env:04d}/front/depth/image_raw"]
        ((_, info),) = found[f"/env_{env:04d}/front/depth/camera_info"]
        assert image.encoding == "32FC1" and image.header == info.header
        expected = plane[env].copy()
        expected[~np.isfinite(expected) | (expected == miss)] = np.nan
        same(pixels(image), expected)
        k = reading["intrinsic_matrices"][env]
        k = k.astype(float) - [[0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]  # ROS: first pixel at (0, 0)
        same(info.k.reshape(3, 3), k)
        same(info.p.reshape(3, 4), np.hstack([k, np.zeros((3, 1))]))
        same(info.r.reshape(3, 3), np.eye(3))
        assert (info.height, info.width, info.distortion_model) == (4, 6, "plumb_bob")
        same(info.d, [0.0] * 5)
        ((_, message),) = found[f"/env_{env:04d}/front/points"]
        points, got = reading["points_b"][env], cloud(message)
        assert got.shape == (4, 6) and not message.is_dense and message.header.frame_id.endswith("_optical")
        hit = np.isfinite(points).all(-1)
        for axis, name in enumerate("xyz"):
            same(got[name], np.where(hit, points[..., axis], np.nan))
        ((_, normals),) = found[f"/env_{env:04d}/front/normals/image_raw"]
        same(pixels(normals), reading["normals"][env])


@pytest.mark.parametrize(("mapper", "codec", "dtype", "channels", "format"), [
    ("compressed_png", "PNG", "uint8", 3, "rgb8; png compressed bgr8"),
    ("compressed_png", "PNG", "uint8", 4, "rgba8; png compressed bgra8"),
    ("compressed_png", "PNG", "uint8", 1, "mono8; png compressed "),
    ("compressed_png", "PNG", "uint16", 1, "mono16; png compressed "),
    ("compressed_jpeg", "JPEG", "uint8", 3, "rgb8; jpeg compressed bgr8"),
    ("compressed_jpeg", "JPEG", "uint8", 1, "mono8; jpeg compressed "),
])  # fmt: skip
def test_compressed_image(mapper: str, codec: str, dtype: str, channels: int, format: str, store: Any) -> None:
    pillow = pytest.importorskip("PIL.Image")
    rig = Rig([spec("rgb", IMAGE, (32, 48, channels), dtype=dtype, role="image")])
    y, x = np.mgrid[:32, :48]
    reading = rig.reading(1, {"rgb": np.stack([
        np.stack([x * 3 + 20 * env, y * 5, x + y, 255 - x][:channels], -1).astype(dtype) for env in range(5)
    ])})  # fmt: skip
    found = decoded(store, rig.messages(messages={"front": [mapper]}), [reading, rig.reading(2, reading.measured)])
    for env in rig.converted:
        (_, message), _ = found[f"/env_{env:04d}/front/color/image_raw/compressed"]
        picture = pillow.open(io.BytesIO(message.data.tobytes()))
        assert (message.format, picture.format) == (format, codec)
        got = np.asarray(picture).reshape(32, 48, channels)
        if codec == "PNG":
            same(got, reading["rgb"][env])
        else:
            assert np.abs(got.astype(int) - reading["rgb"][env]).mean() < 2.0


def test_compressed_depth(store: Any) -> None:
    pillow = pytest.importorskip("PIL.Image")
    rig = depth()
    reading = rig.reading(1)
    plane = reading["distance_to_image_plane"]
    plane[:] = rig.rng.uniform(0.0, 80.0, plane.shape)
    plane[:, 0, 0], plane[:, 0, 1] = np.inf, np.nan
    found = decoded(store, rig.messages(messages={"front": ("compressed_depth", "camera_info")}), [reading])
    for env in rig.converted:
        ((_, message),) = found[f"/env_{env:04d}/front/depth/image_raw/compressedDepth"]
        data = message.data.tobytes()
        assert message.format == "16UC1; compressedDepth png" and data[:12] == bytes(12)
        got = np.asarray(pillow.open(io.BytesIO(data[12:])))
        expected = np.minimum(np.rint(plane[env, ..., 0] * 1e3), 65535)
        expected[0, :2] = 0
        same(got, expected)


# Touch and events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [("probe",), ("row", "column")])
def test_tactile_state(axes: tuple[str, ...], store: Any) -> None:
    sizes = (4, 3)[: len(axes)]
    rig = Rig([
        spec("force", (*axes, "xyz"), (*sizes, 3), "N", frame="link"),
        spec("contact", axes, sizes, dtype="bool", kind="flag"),
    ], mounts=("left", "right"))  # fmt: skip
    for mount, word in enumerate(rig.mounts):
        for env, _, message, reading in single(rig, store, f"{word}/tactile"):
            got = {each.name: each.values for each in message.sensors}
            assert list(got) == ["force.x", "force.y", "force.z", "contact"]
            for axis, name in enumerate("xyz"):
                same(got[f"force.{name}"], reading["force"][env, mount, ..., axis].reshape(-1))
            same(got["contact"], reading["contact"][env, mount].reshape(-1))


def test_a_normal_force(store: Any) -> None:
    for env, _, message, reading in single(Rig([spec("force", unit="N")]), store, "tactile"):
        (array,) = message.sensors
        assert array.name == "force"
        same(array.values, [reading["force"][env]])


def test_grid_of_temperatures(store: Any) -> None:
    rig = Rig([spec("temperature", ("x", "y", "z"), (2, 3, 1), "degC")])
    for env, _, message, reading in single(rig, store, "tactile"):
        (array,) = message.sensors
        same(array.values, reading["temperature"][env].reshape(-1))


def test_event_packets(store: Any) -> None:
    names = {"x": "uint16", "y": "uint16", "polarity": "int8", "time_offset": "float32"}
    specs = [spec(name, ("event",), (50,), dtype=dtype) for name, dtype in names.items()]
    rig = Rig(specs, about={"constants": {"image_shape": [480, 640]}})
    readings = []
    for tick, counts in ((50, [0, 3, 0, 7, 1]), (51, [0, 0, 0, 0, 0]), (52, [2, 2, 2, 2, 2])):
        total, offsets = sum(counts), np.concatenate(([0], np.cumsum(counts)))
        values = {"x": rig.rng.integers(0, 640, total), "y": rig.rng.integers(0, 480, total)}
        values |= {"polarity": rig.rng.choice([-1, 1], total), "time_offset": rig.rng.uniform(-0.01, 0.0, total)}
        values = {name: np.asarray(each, names[name]) for name, each in values.items()}
        readings.append(rig.reading(tick, values, offsets=offsets))
    found = decoded(store, rig.messages(), readings)
    for env in rig.converted:
        for (_, message), reading in zip(found[f"/env_{env:04d}/front/events"], readings, strict=True):
            rows = reading.rows(env)
            assert (message.height, message.width, message.encoding, message.seq) == (480, 640, "mono", reading.tick)
            packed = np.frombuffer(message.events.tobytes(), "<u8")
            assert stamp(message) == message.time_base
            same(packed >> np.uint64(63), reading["polarity"][rows] > 0)
            same(packed >> np.uint64(48) & np.uint64(0x7FFF), reading["y"][rows])
            same(packed >> np.uint64(32) & np.uint64(0xFFFF), reading["x"][rows])
            times = int(message.time_base) + (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
            capture = round(reading.tick * DT * NS)
            same(times, capture + np.rint(reading["time_offset"][rows].astype(float) * NS).astype(np.int64))
