"""Limits on clients: memory and rays of spawned sensors, and memory of waiting messages."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from typing import Any

import pytest
from streaming import build, connect, held, running
from test_server import Listener

import sensorium as sn
from sensorium.client.session import ServerError

MIRROR = {"kind": "rotating_mirror", "elevation_range": (-7.0, 52.0)}
GRID = {"kind": "grid", "size": (100.0, 100.0), "resolution": 0.02}


@pytest.fixture
def world() -> sn.Scene:
    """Return a scene with something that rays hit."""
    wall = sn.engines.Shape("box", "wall", (0.5, 30.0, 30.0), pos=(2.5, 0.0, 0.0))
    return sn.Scene(sn.TensorEngine(2, 0.01, provides=("pose", "velocity", "gravity"), shapes=(wall,)))


@contextlib.contextmanager
def serving(world: sn.Scene, **options: Any) -> Iterator[tuple[sn.Server, sn.Client]]:
    """Serve a scene, and connect a client to it."""
    with sn.serve(world, "tcp://127.0.0.1:0", **options) as server, running(server):
        with connect(server.address) as client:
            yield server, client


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        ("imu", {"history_length": 200_000_000}, r"ImuCfg\('imu'\)\.history_length: got 200000000.* 19200 MB with 2"),
        ("imu", {"delay": 1e6, "rate_hz": 100.0}, r"ImuCfg\('imu'\)\.delay: got 1000000\.0, "),
        ("ray_caster", {"pattern": GRID}, r"RayCasterCfg\('ray_caster'\)\.pattern: got GridPatternCfg.* 50020002 rays"),
        ("depth_camera", {"res": [2000, 2000]}, r"DepthCameraCfg\('depth_camera'\)\.res: .* 8000000 rays"),
        ("depth", {"image_size_x": 9000, "image_size_y": 9000}, r"CameraCfg\('depth'\)\.width"),
        (
            "lidar",
            {"pattern": {**MIRROR, "points_per_second": 4e6}},
            r"LidarCfg\('lidar'\)\.pattern: .* 16000000 rays",
        ),
        ("radar", {"points": 3_000_000}, r"RadarCfg\('radar'\)\.points: got 3000000.* 6000000 rays"),
    ],
)
def test_oversized_sensor_is_refused_before_allocation(
    world: sn.Scene, kind: str, values: dict[str, Any], says: str
) -> None:
    """The config's error states size, bound and the way to raise it; the server continues."""
    with serving(world) as (server, client):
        before = peak()
        with pytest.raises(ServerError, match=says) as refused:
            client.spawn(_blueprint(client, kind, values), attach_to="body")
        assert refused.value.kind == "ConfigError"
        bound = "expected at most 1024 MB and 5000000 rays for all sensors that clients spawn"
        assert bound in str(refused.value) and "max_spawned_mb or max_spawned_rays" in str(refused.value)
        assert peak() < before + 100.0
        assert len(world.sensors) == len(server.streams) == 1
        assert client.spawn(_blueprint(client, "imu", {}), attach_to="body").name == "imu"


def _blueprint(client: sn.Client, kind: str, values: dict[str, Any]) -> Any:
    blueprint = next(each for each in client.blueprints if each.id.endswith(f".{kind}") or each.definition.kind == kind)
    for name, value in values.items():
        blueprint.set_attribute(name, value)
    return blueprint


def test_memory_bound_is_on_the_sum_and_freed_by_destroy(world: sn.Scene) -> None:
    options: dict[str, Any] = {"max_spawned_mb": 30.0, "max_spawned_rays": 1500}
    with serving(world, **options) as (_, client):
        large = _blueprint(client, "imu", {"history_length": 100_000})  # 2 envs x 48 bytes: 9.6 MB, and the same again
        first = [client.spawn(large, attach_to="body") for _ in range(3)]
        for _ in range(2):
            with pytest.raises(ServerError, match=r"at most 30 MB.* needs 9.6 MB .*, and 0\.\d+ MB are available"):
                client.spawn(large, attach_to="body")
            client.destroy(first.pop())
            first.append(client.spawn(large, attach_to="body"))
        rays = _blueprint(client, "ray_caster", {"pattern": {"kind": "grid", "size": (1.9, 1.9), "resolution": 0.1}})
        client.spawn(rays, attach_to="body")  # 400 rays in 2 envs
        with pytest.raises(ServerError, match=r"needs 800 rays with 2 environments, and 700 are left"):
            client.spawn(rays, attach_to="body")


def test_spawned_sensors_are_bounded_in_number(world: sn.Scene) -> None:
    with serving(world, max_spawned_mb=1.0) as (_, client):
        blueprint = _blueprint(client, "imu", {})
        with pytest.raises(ServerError, match=r"spawn\.blueprint: .* expected at most 1 MB"):
            for _ in range(17):
                client.spawn(blueprint, attach_to="body")
        assert len(world.sensors) == 16  # with the state of all bodies


def test_the_owner_of_the_server_is_not_bounded(world: sn.Scene) -> None:
    with sn.serve(world, "tcp://127.0.0.1:0", max_spawned_mb=1.0) as server:
        server.spawn("sensor.other.imu", {"history_length": 100_000}, attach_to="body")


@pytest.mark.parametrize("name", ["max_queued_mb", "max_spawned_mb", "max_spawned_rays"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", True, None])
def test_invalid_bound_is_refused(name: str, value: Any) -> None:
    with pytest.raises(sn.ConfigError, match=rf"ServerOptions\.{name}: got"):
        sn.serve(build(columns=0), "tcp://127.0.0.1:0", **{name: value})


def test_non_reading_clients_stay_within_the_memory_bound() -> None:
    """Sixteen lossless subscriptions to 0.5 MB per step keep 8 MB over 100 steps; an active reader misses nothing."""
    scene, before = build(columns=32768), 0
    with sn.serve(scene, "tcp://127.0.0.1:0", max_queued_mb=8.0, shared_memory=False) as server:
        hoarders, reader = [Listener(server) for _ in range(4)], Listener(server)
        for listener in hoarders:
            for env in range(4):
                listener.listen("sheet", first=env, count=1)
        number = reader.listen("gauge")
        for k in range(100):
            scene.step()
            server.poll()
            before = before if k else held()["rss"]
        assert held()["rss"] - before < 24_000_000  # without a bound it would grow by 50 MB
        assert not reader.session.subscriptions[number].ended
        ended = [each.reason for listener in hoarders for each in listener.take() if hasattr(each, "reason")]
        assert ended and all("max_queued_mb" in reason for reason in ended)
        assert any("max_queued_mb" in each for each in server.slow_client_reports())
