"""Fits of a lidar find the noise that simulated scans have, and agree with other measurements of real scans."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ouster_pcap import read_ouster
from rosbags.rosbag2 import Writer
from rosbags.typesys import Stores, get_typestore

import sensorium as sn
from sensorium.fitting.lidar import Errors, errors_of, lidar_samples, noise_of
from sensorium.fitting.logs import read_samples

OUSTER = Path(os.environ.get("SENSOR_LOGS", "absent"), "ouster")
STORE = get_typestore(Stores.ROS2_JAZZY)
SEEDS = 10


def scan(envs: int, **noise: Any) -> sn.LidarData:
    """Return one scan of a room for each env."""
    lidar = sn.LidarCfg(
        name="lidar", body="car", rate_hz=10.0, max_distance=60.0, motion_distortion=False,
        fields=("points_b", "distances", "intensity", "channel"), **noise,
    )  # fmt: skip
    shape = sn.engines.Shape
    room = [
        shape("plane", "ground", reflectance=0.2),
        shape("box", "left", (30.0, 0.1, 8.0), pos=(0.0, 5.0, 4.0), reflectance=0.6),
        shape("box", "right", (30.0, 0.1, 8.0), pos=(0.0, -9.0, 4.0), reflectance=0.3),
        shape("box", "front", (0.1, 30.0, 8.0), pos=(16.0, 0.0, 4.0), reflectance=0.5),
        shape("box", "back", (0.1, 30.0, 8.0), pos=(-2.5, 0.0, 4.0), reflectance=0.5),
    ]
    engine = sn.TensorEngine(envs, 0.1, bodies=("car",), shapes=room, motion=lambda t: {"body_pos_w": (0.0, 0.0, 1.5)})
    scene = sn.Scene(engine, [lidar], seed=0)
    scene.step(substeps=1)
    return scene[lidar].data


def samples(data: sn.LidarData, env: int) -> sn.Samples:
    """Return the scan of an env as samples."""
    fields = {"points_b": data.points_b, "distances": data.distances, "intensity": data.intensity, "ring": data.channel}
    values = {name: value[env].numpy().astype(float).reshape(-1, 3 if name == "points_b" else 1)
              for name, value in fields.items()}  # fmt: skip
    return sn.Samples(np.zeros(len(values["ring"])), values, {"points_b": "m"}, "simulated")


@pytest.mark.parametrize(("sd", "step", "drop"), [(0.02, 0.008, 0.02), (0.005, 0.008, 0.05)])
def test_noise_step_and_losses_of_simulated_scans_lie_in_the_intervals(sd: float, step: float, drop: float) -> None:
    data = scan(SEEDS, range_noise=sd, resolution=step, drop_rate=drop)
    inside: dict[str, int] = {}
    values: dict[str, list[float]] = {}
    for env in range(SEEDS):
        for name, each in sn.fit(samples(data, env), "lidar").parameters.items():
            true = {"resolution": step, "drop_rate": drop}.get(name, sd)
            if name != "surface_roughness":
                inside[name] = inside.get(name, 0) + (each.low <= true <= each.high)
                values.setdefault(name, []).append(each.value / true)
    assert {"range_noise.1-3m", "range_noise.3-6m", "range_noise.6-12m.dim", "drop_rate", "resolution"} <= {*inside}
    assert all(np.mean(each) == pytest.approx(1.0, abs=0.05) for each in values.values()), values
    assert min(inside.values()) >= SEEDS - 3, inside
    assert np.mean([*inside.values()]) >= 0.9 * SEEDS, inside


def test_a_lidar_with_the_fitted_fields_has_the_fitted_noise() -> None:
    weak = {"range_noise": 0.01, "range_noise_snr": 100.0, "reference_snr": 100.0, "reference_range": 5.0}
    found = sn.fit(samples(scan(1, reference_reflectance=0.4, **weak), 0), "lidar")
    fields = tomllib.loads(found.to_toml())["fields"]
    assert len(fields["range_noise"]) >= 3 and "resolution" in found.refused and "drop_rate" in found.refused
    assert fields["range_noise"][-1] > 2.0 * fields["range_noise"][0]
    twin = sn.fit(
        samples(scan(1, **{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}), 0), "lidar"
    )
    for name, each in found.parameters.items():
        if name.startswith("range_noise") and not name.endswith(("dim", "bright")):
            assert twin.parameters[name].value == pytest.approx(each.value, rel=0.35), name


def test_an_organised_cloud_of_a_bag_shows_noise_and_losses(tmp_path: Path) -> None:
    data = scan(1, range_noise=0.02, drop_rate=0.02)
    expected = samples(data, 0)
    rows = int(data.channel.max()) + 1
    order = np.argsort(expected.values["ring"][:, 0], kind="stable")
    points = expected.values["points_b"][order].astype("<f4")
    points[~np.isfinite(points)] = np.nan
    messages = STORE.types
    field = messages["sensor_msgs/msg/PointField"]
    header = messages["std_msgs/msg/Header"](messages["builtin_interfaces/msg/Time"](1, 0), "lidar")
    cloud = messages["sensor_msgs/msg/PointCloud2"](
        header, rows, len(points) // rows, [field(axis, 4 * k, 7, 1) for k, axis in enumerate("xyz")], False, 12,
        12 * len(points) // rows, np.frombuffer(points.tobytes(), np.uint8), False,
    )  # fmt: skip
    with Writer(tmp_path / "bag", version=9) as bag:
        topic = bag.add_connection("/points", cloud.__msgtype__, typestore=STORE)
        bag.write(topic, 10**9, STORE.serialize_cdr(cloud, cloud.__msgtype__))
    read = read_samples(tmp_path / "bag", "lidar")
    found, direct = sn.fit(read, "lidar").parameters, sn.fit(expected, "lidar").parameters
    assert {*found} == {name for name in direct if not name.endswith(("dim", "bright"))}
    for name, each in found.items():
        assert each.value == pytest.approx(direct[name].value, rel=1e-3), name
    assert "range_noise.3-6m" in sn.fit(read, "lidar").to_html()


def test_clouds_without_rings_or_surfaces_are_refused() -> None:
    one = samples(scan(1), 0)
    without = {name: value for name, value in one.values.items() if name != "ring"}
    with pytest.raises(sn.ArgumentError, match=r"without ring\. Give .* an organised cloud"):
        sn.fit(sn.Samples(one.time, without, one.units, "a cloud"), "lidar")
    with pytest.raises(sn.ArgumentError, match="0 rays on flat surfaces"):
        sn.fit(one.rows(slice(0, 10)), "lidar")
    with pytest.raises(sn.ArgumentError, match="there are none"):
        lidar_samples([], "a bag")


@pytest.mark.skipif(not OUSTER.exists(), reason="SENSOR_LOGS names no folder with recordings of Ouster lidars")
@pytest.mark.parametrize(
    ("name", "metadata", "step", "deviations"),
    [
        ("OS-0-128-U1_v2.3.0_1024x10", "", 8.0, {(1, 3): 4.8, (3, 12): 9.7, (12, 25): 14.5}),
        ("OS-1-32-G_v2.1.1_1024x10", "", 1.0, {(3, 6): 5.4, (6, 12): 11.5, (12, 25): 23.0}),
        ("OS-1-128_v2.3.0_1024x10_lb_n3", "OS-1-128_v2.3.0_1024x10", 8.0, {}),
        ("OS-1-64_1024x10_fw20", "OS-1-64_sensor_config_reduced", 1.0, {}),
        ("OS-2-128-U1_v2.3.0_1024x10", "", 1.0, {}),
    ],
)
def test_real_scans_show_step_and_deviation(
    name: str, metadata: str, step: float, deviations: dict[tuple[float, float], float]
) -> None:
    read = read_ouster(OUSTER / f"{name}.pcap", OUSTER / f"{metadata or name}.json")
    found = sn.fit(read, "lidar").parameters
    assert found["resolution"].value == pytest.approx(step / 1000.0, abs=1e-9)
    assert 0.0 < found["drop_rate"].value < 0.05
    bins = [
        each.value
        for key, each in found.items()
        if key.startswith("range_noise") and not key.endswith(("dim", "bright"))
    ]
    assert len(bins) >= 2 and bins == sorted(bins)  # farther returns are weaker
    errors: Errors = errors_of(read, read.values["distances"][:, 0])
    for (low, high), deviation in deviations.items():
        part = errors.rows((errors.distance >= low) & (errors.distance < high))
        assert noise_of(part, step / 1000.0, "", "").value == pytest.approx(deviation / 1000.0, rel=0.2)
