"""The loop's side of the live view, without a page: what it sends, what it does, and what it costs."""

from __future__ import annotations

import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import wait_until
from streaming import running

import sensorium as sn
from sensorium.record.replay_scene import ReplayScene
from sensorium.view.live.feed import LOOP, SceneFeed
from sensorium.view.live.frames import Frame
from sensorium.view.live.remote import RemoteScene

MODEL = """
<mujoco><option timestep="0.002"/><worldbody>
  <geom name="floor" type="plane" size="2 2 .1"/>
  <body name="box" pos="0 0 1">
    <freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="1"/><site name="imu"/>
  </body>
</worldbody></mujoco>
"""


def scene_of(num_envs: int = 3, **options: Any) -> sn.Scene:
    sensors = [
        sn.ImuCfg(name="imu", site="imu", fields=("lin_acc_b",), noise=0.1, debug_vis=True),
        sn.BodyStateCfg(name="state", body="box", rate_hz=100.0),
    ]
    return sn.Scene(sn.MujocoEngine(MODEL, num_envs), sensors, **options)


class Viewer:
    """The page's end of a feed."""

    def __init__(self, scene: Any, **options: Any) -> None:
        self.channel, theirs = Pipe()
        self.feed = SceneFeed(scene, theirs, **options)
        self.first = self.take()

    def take(self) -> Frame:
        assert self.channel.poll(30.0)
        return self.channel.recv()

    def frame(self, env: int = 0, *names: str) -> Frame:
        """Return a frame of the present state, served without stepping, with the ground truth of some sensors."""
        self.channel.send(("want", env, names))
        self.feed._send_at = 0.0
        self.feed.wait(0.05)
        return self.take()

    def send(self, *command: Any) -> None:
        self.channel.send(command)
        self.feed._look_at = 0.0


def test_the_first_frame_describes_the_world_and_all_sensors() -> None:
    scene = scene_of()
    frame = Viewer(scene).first
    assert frame.description.sensors.keys() == {"imu", "state"} and frame.world == scene.world_file()
    assert frame.drawn == {"imu"} and frame.can == LOOP | {"reset", "set"}
    np.testing.assert_allclose(frame.bodies[0], [0, 0, 1, 1, 0, 0, 0], atol=1e-6)


def test_readings_are_those_of_the_wanted_environment() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    scene.engine.qpos[:, 0] = torch.arange(3.0)
    scene.step(substeps=5)
    for env in (2, 0):
        frame = viewer.frame(env)
        assert frame.env == env and frame.readings["state"].env_ids.tolist() == [env]
        np.testing.assert_allclose(frame.readings["state"]["pos_w"][0], scene["state"].data.pos_w[env])
        np.testing.assert_allclose(frame.bodies[0, :3], scene["state"].data.pos_w[env], atol=1e-6)
    assert viewer.frame(0).readings == {}  # nothing is new
    assert not frame.readings["imu"].truth and viewer.frame(0, "imu").readings["imu"].truth  # shown from now on
    viewer.feed._send_at = float("inf")
    viewer.channel.send(("want", 1, ()))
    viewer.feed.wait(0.02)
    assert viewer.take().env == 1  # at once


def test_nothing_is_published_while_nobody_watches() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    published = []
    scene.publish = lambda *args, **options: published.append(args)  # type: ignore[method-assign]
    for _ in range(100):
        scene.step()
    assert not published and not viewer.channel.poll()


def test_nothing_remains_when_the_last_browser_has_gone() -> None:
    """The sensors keep their poses for the page only while it is shown; a recording needs them longer."""
    scene = scene_of()
    viewer = Viewer(scene)
    assert all(sensor.buffers.poses is None for sensor in scene.sensors.values())
    assert viewer.frame().readings.keys() == {"imu", "state"}
    assert all(sensor.buffers.poses is not None for sensor in scene.sensors.values())
    scene["imu"].buffers.listeners += 1
    viewer.send("pause", True)
    viewer.send("want", 0, ())
    viewer.send("leave")
    scene.step(substeps=20)
    scene.step(substeps=20)
    assert scene["imu"].buffers.poses is not None and scene["state"].buffers.poses is None
    viewer.frame()
    scene["imu"].buffers.listeners -= 1
    viewer.feed.close()
    assert all(sensor.buffers.poses is None for sensor in scene.sensors.values())


def test_a_paused_loop_waits_and_a_step_takes_one_step() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    for command in (("pause", True), ("step",), ("step",)):
        viewer.send(*command)
    scene.step(substeps=2)  # it would wait here without the two steps
    scene.step(substeps=2)
    assert scene.tick == 4 and viewer.feed.is_paused
    viewer.send("pause", False)
    begin = time.monotonic()
    scene.step()
    assert not viewer.feed.is_paused and time.monotonic() - begin < 1.0


def test_closing_the_page_ends_a_pause() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    viewer.send("pause", True)
    viewer.channel.close()
    scene.step()
    assert viewer.feed.is_closed
    scene.step()


def test_speed_is_that_of_the_wall_clock() -> None:
    scene = scene_of(1)
    viewer = Viewer(scene, speed=0.5)
    begin = time.monotonic()
    for _ in range(20):
        scene.step(substeps=5)
    assert 0.3 < time.monotonic() - begin < 1.5  # 0.2 s of simulation
    assert not viewer.feed.is_closed
    with pytest.raises(sn.ConfigError, match="speed"):
        scene.view(speed=-1.0)


def test_commands_run_between_steps() -> None:
    """A reset in the middle of an environment switch shows the new state of the new environment."""
    scene = scene_of()
    viewer = Viewer(scene)
    scene.step(substeps=50)
    viewer.send("want", 1, ())
    viewer.send("reset", 1)
    viewer.feed.wait(0.2)
    frame = viewer.take()
    assert frame.env == 1 and frame.bodies[0, 2] == pytest.approx(1.0)
    assert frame.readings["state"].captures.tolist() == [1] and scene["state"].frame.tolist() != [1, 1, 1]
    viewer.send("reset", None)
    viewer.feed.wait(0.05)
    assert scene["state"].frame.tolist() == [1, 1, 1]


def test_a_slider_sets_a_knob_or_configures_an_absent_one() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    viewer.send("set", "imu", "noise", 0.0, None)
    viewer.send("set", "state", "bias", {"pos_w": 0.5}, None)
    viewer.feed.wait(0.05)
    scene.step()
    assert scene["imu"].data.lin_acc_b.equal(scene["imu"].ground_truth.lin_acc_b)
    assert (scene["state"].data.pos_w - scene["state"].ground_truth.pos_w).allclose(torch.tensor(0.5))
    frame = viewer.frame()
    assert frame.description.sensors["state"]["cfg"]["bias"] == {"pos_w": 0.5} and not frame.notes
    viewer.send("set", "imu", "nois", 0.0, None)
    viewer.feed.wait(0.05)
    assert "nois" in viewer.frame().notes[0]


def test_sensors_may_be_added_removed_and_reconfigured() -> None:
    scene = scene_of()
    viewer = Viewer(scene)
    scene.add(sn.BodyStateCfg(name="more", body="box"))
    scene.remove("state")
    scene.step()
    frame = viewer.frame()
    assert frame.description.sensors.keys() == {"imu", "more"} == frame.readings.keys()
    scene["more"].set_debug_vis(True)
    scene["imu"].set_debug_vis(False)
    assert viewer.frame().drawn == {"more"}


def test_states_that_are_not_finite_are_sent() -> None:
    engine = sn.TensorEngine(1, provides=("pose", "velocity", "acceleration", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="body", fields=("lin_acc_b",))])
    viewer = Viewer(scene)
    engine.body_pos_w.fill_(float("nan"))
    engine.body_quat_w.fill_(float("nan"))
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
        frame = viewer.frame()
    assert np.isnan(frame.bodies).any() and not frame.readings["imu"].valid[0]


def test_a_recording_and_a_server_send_what_the_scene_sends(tmp_path: Path) -> None:
    """The same frames: readings of one environment, poses of bodies, description and world."""
    scene = scene_of(seed=1)
    with scene.record(tmp_path / "run.mcap"):
        for _ in range(20):
            scene.step(substeps=5)
    live = Viewer(scene).frame(1, "imu", "state")
    server = sn.serve(scene, "tcp://127.0.0.1:0")
    with server, sn.local_client(scene, server=server) as client:
        remote = RemoteScene(client)
        viewer = Viewer(remote)
        viewer.frame(1, "imu", "state")
        end, got = time.monotonic() + 10.0, []
        while len(got) < 2 and time.monotonic() < end:
            server.poll(0.02)
            got = remote.sample_cursor().pending()
        served = viewer.frame(1, "imu", "state")
        viewer.send("reset", 1)
        viewer.feed.close()
    replayed = ReplayScene(tmp_path / "run.mcap")
    viewer = Viewer(replayed)
    replayed.step(substeps=100)
    recorded = viewer.frame(1, "imu", "state")
    assert recorded.span == (0.0, pytest.approx(0.2)) and recorded.can == {"seek", "pause", "speed"}
    for frame in (recorded, served):
        assert frame.readings.keys() == live.readings.keys()
        for name, reading in live.readings.items():
            for field in reading.measured:
                np.testing.assert_array_equal(frame.readings[name][field], reading[field])
                np.testing.assert_array_equal(frame.readings[name].truth[field], reading.truth[field])
            np.testing.assert_allclose(frame.readings[name].pose, reading.pose, atol=1e-6)
    np.testing.assert_allclose(recorded.bodies, live.bodies, atol=0.01)
    viewer.send("seek", 0.1)
    viewer.feed.wait(0.05)
    assert viewer.frame(1).time == pytest.approx(0.1)
    replayed.step(substeps=100)
    viewer.send("pause", False)
    viewer.feed.wait(0.05)
    assert viewer.frame(1).time == 0.0  # played again from its start
    assert viewer.first.world == scene.world_file()


def test_the_page_sets_the_pace_of_a_served_simulation() -> None:
    """It pauses the server's loop until it leaves, takes the steps in lock-step, and says why it cannot."""
    scene, stop = scene_of(1), threading.Event()
    with sn.serve(scene, "tcp://127.0.0.1:0") as server, sn.connect(server.address) as client:
        with running(server):
            viewer = Viewer(RemoteScene(client))
            assert "takes the steps" in viewer.frame().refusal
            viewer.feed.close()
        loop = threading.Thread(target=server.run, kwargs={"speed": 5.0, "until": stop.is_set})
        loop.start()
        try:
            wait_until(lambda: server.pace is not None)
            viewer = Viewer(RemoteScene(client))
            frame = viewer.frame()
            assert (frame.speed, frame.is_paused, frame.refusal) == (5.0, False, "") and frame.can > LOOP
            viewer.send("speed", 0.5)
            viewer.send("step")
            frame = viewer.frame()
            assert frame.is_paused and frame.speed == 0.5 and server.pace.is_paused
            wait_until(lambda: not server.pace._steps)
            client.pace()  # the loop answers between two steps: the one that was counted is over
            tick = scene.tick
            time.sleep(0.05)
            assert scene.tick == tick
            viewer.send("leave")
            viewer.feed.wait(0.05)
            wait_until(lambda: scene.tick > tick)
            wait_until(lambda: not server.counts.subscriptions)
        finally:
            stop.set()
            loop.join()
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, sn.connect(server.address) as client:
        loop = threading.Thread(target=server.run, kwargs={"until": (stop := threading.Event()).is_set})
        loop.start()
        try:
            remote, tick = RemoteScene(client, speed=0.0), scene.tick
            viewer = Viewer(remote)
            assert viewer.frame().is_paused and viewer.frame().can > LOOP
            viewer.send("step")
            viewer.feed.wait(0.05)
            remote.run(lambda: scene.tick >= tick + 5)
            assert scene.tick == tick + 5 and remote.is_paused  # one step of 10 ms
            viewer.send("pause", False)
            viewer.feed.wait(0.05)
            remote.run(lambda: scene.tick >= tick + 50)
        finally:
            stop.set()
            loop.join()


def test_all_sensors_of_a_served_simulation_are_drawn_unless_some_are_selected() -> None:
    for is_selected, expected in ((False, {"imu", "state"}), (True, {"imu"})):
        sensors = [sn.ImuCfg(name="imu", site="imu", debug_vis=is_selected), sn.BodyStateCfg(name="state", body="box")]
        with sn.Scene(sn.MujocoEngine(MODEL), sensors).local_client() as client:
            assert Viewer(RemoteScene(client)).frame().drawn == expected
