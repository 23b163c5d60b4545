"""Documented guarantees of blueprints and large sensors, tested with the built-in sensors."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest
import zmq
from streaming import PATIENCE, connect, running, until

import sensorium as sn
from sensorium.presets import presets
from sensorium.wire import messages as msg
from sensorium.wire.packing import CONTROL, Record, pack, unpack

COURT = """
<mujoco><option timestep="0.01" gravity="0 0 -1"/><worldbody>
  <body name="robot/base" pos="0 0 1"><freejoint/><geom type="box" size="0.4 0.25 0.2"/></body>
  <body name="ball/base" pos="2 1 0"><freejoint/><geom size="0.5"/></body>
  <geom type="box" pos="5 0 0" size="0.1 5 1"/>
</worldbody></mujoco>
"""


def court(sensor: sn.SensorCfg[Any], num_envs: int = 2) -> sn.Scene:
    """Return a scene in which the sensor and a visible body move and rotate."""
    scene = sn.Scene(sn.MujocoEngine(COURT, num_envs=num_envs), [sensor], seed=3)
    scene.reset(qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    return scene


# Devices --------------------------------------------------------------------------------------------------------------


def test_blueprints_of_a_served_scene_list_presets_of_their_kind() -> None:
    """The attribute `preset` offers the names of `sn.presets()`; a spawned device is configured as by `sn.preset`."""
    with court(sn.ImuCfg(name="imu", body="robot/base")).local_client(timeout=PATIENCE) as client:
        for blueprint in client.blueprints:
            names = [name for name, info in presets().items() if info.kind == blueprint.definition.kind]
            assert blueprint.has_attribute("preset") == bool(names)
            if names:
                offered = blueprint.get_attribute("preset")
                assert offered.recommended_values == tuple(names) and not offered.is_chosen and offered.value is None
        blueprint = client.blueprints.find("imu").set_attributes(
            preset="bmi088", gyro_noise_density="0", sensor_tick=0.01
        )
        client.spawn(blueprint, attach_to="robot/base", name="device")
        wanted = sn.preset("bmi088", name="device", body="robot/base", gyro_noise_density=0.0, update_period=0.01)
        assert client.server.scene["device"].cfg == wanted
        with pytest.raises(sn.ConfigError, match=r"preset: got 'bmi08', expected one of .*bmi088, .* Did you mean"):
            blueprint.set_attribute("preset", "bmi08")
        with pytest.raises(sn.UnknownNameError, match="preset 'bmi08'"):
            client.server.spawn("imu", {"preset": "bmi08"}, attach_to="robot/base")
        with pytest.raises(sn.ConfigError, match="a preset of kind imu, not of lidar"):
            client.server.spawn("imu", {"preset": "vlp16"}, attach_to="robot/base")


# A single environment -------------------------------------------------------------------------------------------------


def test_stream_of_a_sensor_for_one_environment_has_only_that_environment() -> None:
    """The sensor itself covers all environments of the scene; listening to another environment ends with a reason."""
    with court(sn.ImuCfg(name="imu", body="robot/base")).local_client(timeout=PATIENCE) as client:
        one = client.spawn("sensor.other.imu", attach_to="robot/base", env=1, name="one")
        data = one.read()
        assert (data.first_env, data.num_envs, data.lin_acc_b.shape) == (1, 1, (1, 3))
        one.listen(print, envs=0)
        until(lambda: "only env 1" in one.why_ended, "the end of the subscription")
    with court(sn.ImuCfg(name="imu", body="robot/base"), num_envs=1).local_client(timeout=PATIENCE) as client:
        assert client.spawn("sensor.other.imu", attach_to="robot/base", env=0).read().num_envs == 1


# Lidars ---------------------------------------------------------------------------------------------------------------


def test_lidar_casts_no_rays_without_listeners_and_then_sends_equal_data() -> None:
    """The first scan, which started before a client listened, equals that of an always active lidar bit for bit."""
    cfg = sn.preset("mid360", name="lidar", body="robot/base", range_noise=0.02)
    cfg = cfg.replace(pattern=cfg.pattern.replace(points_per_second=2e4))
    always_on = court(cfg.replace(evaluate="always"))
    scans: dict[int, Any] = {}
    for _ in range(60):
        always_on.step()
        reading = always_on.publish(["lidar"])["lidar"]
        scans[int(reading.capture_tick[0])] = reading["distances"]

    scene = court(cfg)
    with scene.local_client(timeout=PATIENCE) as client:
        client.step(substeps=12)
        before = scene["lidar"].buffers.counter.samples
        for _ in range(11):
            client.step()
        assert scene["lidar"].buffers.counter.samples == before  # tick 20 was due
        got: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.sensors["lidar"].listen(got.put, policy="lossless")
        for _ in range(37):
            client.step()
        found = [got.get(timeout=PATIENCE) for _ in range(4)]
        client.sensors["lidar"].stop()
    assert [data.tick for data in found] == [30, 40, 50, 60]
    for data in found:
        np.testing.assert_array_equal(data.distances, scans[data.tick])
        assert np.isfinite(data.distances).any()


def test_sensors_with_memory_are_not_computed_on_demand() -> None:
    """A contact sensor refuses `evaluate="wanted"`; a stage that averages over ticks needs each tick."""
    contact = sn.ContactSensorCfg(name="contact", primary=sn.ContactMatch(mode="body", pattern="robot/base"))
    mean = sn.ImuCfg(
        name="mean", body="robot/base", rate_hz=50.0, stages=(sn.stages.WindowAverage(fields=("ang_vel_b",)),)
    )
    always = sn.LidarCfg(name="always", body="robot/base", evaluate="always")
    lidar = sn.LidarCfg(name="lidar", body="robot/base")
    scene = sn.Scene(sn.MujocoEngine(COURT), [contact, mean, always, lidar])
    assert [scene.compute_on_demand(name) for name in ("contact", "mean", "always", "lidar")] == [False] * 3 + [True]
    assert [scene[name].buffers.plan.evaluate for name in ("contact", "mean", "always", "lidar")] == [
        "auto",
        "auto",
        "always",
        "wanted",
    ]


# Blocking listeners ---------------------------------------------------------------------------------------------------


def test_blocked_listener_does_not_delay_closing(caplog: pytest.LogCaptureFixture) -> None:
    """An example is a listener that puts data into a full queue that is never emptied."""
    scene = court(sn.ImuCfg(name="imu", body="robot/base"))
    full: queue.Queue[Any] = queue.Queue(maxsize=2)
    others = set(threading.enumerate())
    client = scene.local_client(timeout=PATIENCE)
    try:
        client.callbacks.patience = 0.2
        imu = client.sensors["imu"]
        imu.listen(full.put, policy="lossless")
        for _ in range(10):
            client.step()
        until(lambda: client.server.poll(0.01) is not None and imu.stats.received == 3, "the call that blocks")
        for end in (imu.stop, client.close):
            ending = threading.Thread(target=end)
            ending.start()
            ending.join(PATIENCE)
            assert not ending.is_alive()
        assert not imu.is_listening and "the listener of 'imu' was abandoned" in caplog.text
    finally:
        while not full.empty():  # the thread can end now
            full.get()
        client.close()
    until(lambda: not [each for each in set(threading.enumerate()) - others if "listener" in each.name])


# Oversized messages ---------------------------------------------------------------------------------------------------


def test_listening_to_oversized_messages_ends_with_a_reason() -> None:
    """The connection survives, and shorter messages still arrive."""
    scene = sn.Scene(
        sn.MujocoEngine(COURT, num_envs=2),
        [sn.ImuCfg(name="imu", body="robot/base"), sn.preset("vlp16", name="lidar", body="robot/base")],
    )
    with sn.serve(scene, "tcp://127.0.0.1:0") as server, running(server, step=True):
        with connect(server.address, shared_memory=False, max_message=100_000) as client:
            lidar = client.sensors["lidar"]
            with pytest.warns(sn.SensoriumWarning, match="accepts at most 100000"):
                lidar.listen(lambda data: None)
                until(lambda: not lidar.is_listening)
                until(lambda: client.notes)
            assert "connect(..., max_message=...)" in lidar.why_ended
            assert client.sensors["imu"].read(PATIENCE).num_envs == 2
            until(lambda: client.is_connected)


# Ids ------------------------------------------------------------------------------------------------------------------


def test_listener_receives_the_names_of_ids() -> None:
    """Shapes and labels are sent if the sensor has them among its fields, otherwise they are omitted."""
    semantics = {"wall": "wall"}
    model = COURT.replace('<geom type="box" pos="5', '<geom name="wall" type="box" pos="5')
    cfgs = [
        sn.preset("vlp16", name="ids", body="robot/base", fields=("distances", "geom_ids", "semantic_ids")),
        sn.LidarCfg(name="plain", body="robot/base", fields=("distances",)),
    ]
    scene = sn.Scene(sn.MujocoEngine(model), cfgs, semantics=semantics)
    with scene.local_client(timeout=PATIENCE) as client:
        names = client.sensors["ids"].info.constants
        data = client.sensors["ids"].read(PATIENCE)
        assert client.sensors["plain"].info.constants.keys() == {"frames"}  # the place on the body
    hits = np.isfinite(data.distances[0])
    seen = {(names["geom_names"][g], names["semantic_names"][s]) for g, s in
            zip(data.geom_ids[0][hits], data.semantic_ids[0][hits], strict=True)}  # fmt: skip
    assert ("wall", "wall") in seen and {label for name, label in seen if name != "wall"} <= {""}


# Versions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [msg.PROTOCOL - 1, msg.PROTOCOL + 1])
def test_client_with_another_protocol_version_is_refused_with_both_versions(protocol: int) -> None:
    """Older and newer clients are refused with the fix, and the server continues."""
    with sn.serve(court(sn.ImuCfg(name="imu", body="robot/base")), "tcp://127.0.0.1:0") as server:
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(server.address)
            hello = msg.Hello(protocol, "99.0", "", "of tomorrow", "", 0, b"")
            dealer.send_multipart(pack([Record(CONTROL, 0, 0, msg.encode(hello))]))
            assert dealer.poll(1000 * PATIENCE)
            (record,) = unpack([memoryview(part) for part in dealer.recv_multipart()])
        answer = msg.decode(msg.TO_CLIENT, record.content)
        assert isinstance(answer, msg.Refused) and answer.final
        assert f"protocol {msg.PROTOCOL} (sensorium {sn.__version__})" in answer.reason
        assert f"the client {protocol} (sensorium 99.0)" in answer.reason and "same version" in answer.reason
        assert server.clients == 0


# Events frame by frame ------------------------------------------------------------------------------------------------


def test_frame_sync_returns_the_same_events_as_a_listener() -> None:
    """A `FrameSync` gives one message per environment; access by name gives the last message."""
    scene = court(sn.ImuCfg(name="imu", body="robot/base"), num_envs=3)
    with scene.local_client(timeout=PATIENCE) as client:
        blueprint = client.blueprints.find("safe_distance").set_attributes(safe_distance_front=3)
        guard = client.spawn(blueprint, sn.Pose((0.0, 0.0, -1.0)), "robot/base")  # at the height of the ball
        got: queue.SimpleQueue[Any] = queue.SimpleQueue()
        guard.listen(got.put)
        with sn.client.FrameSync(client, [guard.name]) as sync:
            frame = client.step()
            bundle = sync.get(frame, timeout=PATIENCE)
            assert [event.first_env for event in bundle.events[guard.name]] == [0, 1, 2]
            assert bundle[guard.name].first_env == 2
        assert [got.get(timeout=PATIENCE).first_env for _ in range(3)] == [0, 1, 2]
