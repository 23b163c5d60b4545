"""`Scene.view` and its page, in a process of its own, with a websocket in place of a browser."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
import torch
import viser
import zstandard
from browser import wait_until
from torch import Tensor
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import sensorium as sn
from sensorium import Field
from sensorium.readings import DebugShape
from sensorium.view.live.page import Page
from sensorium.view.live.world3d import World3d

MODEL = """
<mujoco><option timestep="0.002"/><worldbody>
  <geom name="floor" type="plane" size="2 2 .1"/>
  <body name="box" pos="0 0 1">
    <freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="1"/><site name="imu"/>
  </body>
</worldbody></mujoco>
"""
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (1.0, 1.0, 1.0), "fov": 1.0, "near": 0.01,
    "far": 100.0, "image_height": 600, "image_width": 800, "look_at": (0.0, 0.0, 0.0), "up_direction": (0.0, 0.0, 1.0),
}  # fmt: skip
"""Message with which a browser connects."""


class Socket:
    """A browser that draws nothing: the widgets that it received, by label, and their values."""

    def __init__(self, url: str) -> None:
        protocol: Any = f"viser-v{viser.__version__}"
        self._socket = connect(f"ws://{urlsplit(url).netloc}", subprotocols=[protocol], max_size=None)
        self.widgets: dict[str, str] = {}
        """Label -> number of the widget."""
        self.values: dict[str, dict[str, Any]] = {}
        """Number of a widget -> its properties."""
        threading.Thread(target=self._take, daemon=True).start()
        self.send(CAMERA)

    def _take(self) -> None:
        try:
            for message in self._socket:
                assert isinstance(message, bytes)
                length = int.from_bytes(message[8:16], "little")
                content = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(message[16 : 16 + length]))
                for each in content["messages"]:
                    if "uuid" in each:
                        new = each.get("props", {}) | each.get("updates", {})
                        self.values.setdefault(each["uuid"], {}).update(new)
                        if new.get("label"):
                            self.widgets[new["label"]] = each["uuid"]
        except ConnectionClosed:
            pass

    def send(self, message: dict[str, Any]) -> None:
        self._socket.send(msgspec.msgpack.encode(message))

    def set(self, uuid: str, value: Any) -> None:
        """Set the value of a widget."""
        self.send({"type": "GuiUpdateMessage", "uuid": uuid, "updates": {"value": value}})

    def shows(self, text: str) -> bool:
        """Return whether a text is shown."""
        return any(text in str(each) for each in list(self.values.values()))

    def close(self) -> None:
        self._socket.close()


class Loop:
    """A loop that steps a scene on a thread, until it is closed."""

    def __init__(self, scene: sn.Scene) -> None:
        self.scene, self._is_over = scene, threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.scene.view(port=0, speed=1.0) as self.view:
                while not self._is_over.is_set():
                    self.scene.step(substeps=5)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Loop:
        wait_until(lambda: hasattr(self, "view") or self.error)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60.0)
        assert self.error is None

    def goes_on(self) -> bool:
        """Return whether the scene advances."""
        tick = self.scene.tick
        wait_until(lambda: self.scene.tick > tick + 20 or self.error)
        return self.error is None


def children() -> set[int]:
    """Return the processes that this process started."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(each) for file in files for each in file.read_text().split()}


@dataclass(frozen=True, slots=True)
class BeaconData:
    height: Annotated[Tensor, Field(unit="m", role="range")]


class BeaconCfg(sn.MountedSensorCfg[BeaconData]):
    """A plugin that draws a point for each environment."""


class Beacon(sn.SimpleSensor[BeaconCfg, BeaconData]):
    requires = (sn.engines.BODY_POSE,)
    fails = False

    def update_raw_data(self, raw: Any) -> None:
        raw.height.copy_(self.mount.pos_w[..., 2])

    def debug_draw(self) -> Iterator[DebugShape]:
        points = np.array([[0.0, 0.0, 3.0], [1.0, 0.0, 3.0]], np.float32)
        yield DebugShape("points", points, (0.0, 1.0, 0.0), size=0.5 / (not self.fails))


def scene_of(num_envs: int = 3, **options: Any) -> sn.Scene:
    sensors = [
        sn.ImuCfg(name="imu", site="imu", fields=("lin_acc_b",), noise=0.1, debug_vis=True),
        sn.BodyStateCfg(name="state", body="box", rate_hz=100.0),
    ]
    return sn.Scene(sn.MujocoEngine(MODEL, num_envs), sensors, **options)


def test_no_message_of_a_page_ends_the_loop_and_no_browser_holds_it() -> None:
    """Every widget takes -1, 1e9, NaN and junk; a pause ends with the browser, and with a page that stands still."""
    before, scene = children(), scene_of()
    with Loop(scene) as loop:
        (process,) = children() - before
        socket = Socket(loop.view.url)
        wait_until(lambda: loop.view.is_watched and "environment" in socket.widgets)
        for uuid in list(socket.values):
            for value in (-1, 10**9, float("nan"), float("inf"), "junk", None, [], {"a": 1}):
                socket.set(uuid, value)
        assert loop.goes_on()
        socket.set(socket.widgets["environment"], 1)
        wait_until(lambda: socket.shows("environment 1"))
        socket.set(socket.widgets["speed"], "no limit")
        socket.set(socket.widgets["loop"], "pause")
        wait_until(lambda: loop.view.is_paused)
        tick = scene.tick
        socket.set(socket.widgets["loop"], "step")
        wait_until(lambda: scene.tick > tick)
        socket.set(socket.widgets["environment"], 2)
        wait_until(lambda: socket.shows("environment 2"))
        assert loop.view.is_paused and scene.tick == tick + 5
        socket.close()
        assert loop.goes_on() and not loop.view.is_paused
        socket = Socket(loop.view.url)
        wait_until(lambda: "loop" in socket.widgets)
        socket.set(socket.widgets["loop"], "pause")
        wait_until(lambda: loop.view.is_paused)
        os.kill(process, signal.SIGSTOP)
        try:
            assert loop.goes_on()  # the server has ended its session
        finally:
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: loop.view.is_closed)
        assert loop.goes_on()
    assert not any(sensor.buffers.listeners for sensor in scene.sensors.values())


def test_a_recording_is_shown_and_played_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has the bodies and the readings of the scene, continues at a time, and starts over at its end."""
    from sensorium.record.replay_scene import ReplayScene

    scene = scene_of(seed=1)
    with scene.record(tmp_path / "run.mcap"):
        for _ in range(40):
            scene.step(substeps=5)
    replayed = ReplayScene(tmp_path / "run.mcap")
    seen: dict[int, Any] = {}
    with sn.serve(replayed, "tcp://127.0.0.1:0") as server, sn.connect(server.address, timeout=120.0) as client:
        client.on_tick(lambda snapshot: seen.update({snapshot.tick: snapshot}), envs=1)
        wait_until(lambda: server.counts.subscriptions)
        replayed.step(substeps=200)
        wait_until(lambda: seen and max(seen) > 180)
    for tick, snapshot in seen.items():
        height = 1.0 - 0.5 * 9.81 * (0.002 * tick) ** 2
        assert snapshot.pos_w[0, 0, 2] == pytest.approx(height, abs=0.01)
        assert np.isnan(snapshot.lin_vel_w).all()
    with sn.LiveView(replayed, port=0) as view:
        socket = Socket(view.url)
        wait_until(lambda: view.wait(0.05) or "time [s]" in socket.widgets)
        assert socket.values[socket.widgets["loop"]]["options"] == ["play", "pause"]
        socket.set(socket.widgets["time [s]"], 0.2)
        wait_until(lambda: view.wait(0.05) or replayed.time == pytest.approx(0.2))
        wait_until(lambda: view.wait(0.05) or socket.shows("t = 0.200 s"))
        replayed.step(substeps=200)
        assert replayed.is_over
        socket.set(socket.widgets["loop"], "play")
        wait_until(lambda: view.wait(0.05) or replayed.time == 0.0)
        socket.close()
    assert "ended the connection" not in capfd.readouterr().err  # closing a page is no fault


def test_shapes_move_with_their_bodies() -> None:
    """The followed body stays where the cameras look, and the floor moves against it."""
    made: dict[int, SimpleNamespace] = {}

    def add(path: str, vertices: Any, faces: Any, quats: Any, positions: Any, **options: Any) -> SimpleNamespace:
        return made.setdefault(len(made), SimpleNamespace(batched_positions=positions))

    drawn = SimpleNamespace(configure_default_lights=lambda **_: None, add_batched_meshes_simple=add)
    with scene_of(1).local_client(timeout=120.0) as client:
        world = World3d(SimpleNamespace(scene=drawn), client.world_file())
        bodies = len(client.bodies)
    poses = np.tile(np.array([0.3, -0.2, 0.5, 1.0, 0.0, 0.0, 0.0], np.float32), (bodies, 1))
    for follows, places in ((False, [[0.0, 0.0, 0.0], [0.3, -0.2, 0.5]]), (True, [[-0.3, 0.2, -0.5], [0.0, 0.0, 0.0]])):
        world.show(poses, follows=follows)
        found = np.concatenate([node.batched_positions for node in made.values()])
        np.testing.assert_allclose(found, places, atol=1e-6)


def test_a_page_sets_a_knob_that_the_config_lacks(tmp_path: Path) -> None:
    """The server adds it to the config; a knob that does not exist is an error for the client."""
    scene = scene_of()
    with scene.local_client(timeout=120.0) as client:
        client.sensors["imu"].set("noise", 0.0)
        client.sensors["state"].set("bias", {"pos_w": 0.5})
        client.step()
        assert scene["imu"].data.lin_acc_b.equal(scene["imu"].ground_truth.lin_acc_b)
        error = scene["state"].data.pos_w - scene["state"].ground_truth.pos_w
        np.testing.assert_allclose(error.numpy(), 0.5, atol=1e-6)
        assert client.streams["state"].cfg["bias"] == {"pos_w": 0.5}
        with pytest.raises(sn.SensoriumError, match="nois"):
            client.sensors["imu"].set("nois", 0.0)


def test_mounts_are_where_their_bodies_are() -> None:
    """`Client.drawings` gives the place of each mount on its body: with the body's pose it is the pose of a reading."""
    scene = scene_of(2)
    scene.step(substeps=7)
    with scene.local_client(timeout=120.0) as client:
        drawings = client.drawings(1)
        row, *place = drawings.mounts["imu"][0]
        assert drawings.drawn == {"imu"} and not drawings.shapes
        scene["imu"].set_debug_vis(False)
        scene["state"].set_debug_vis(True)
        assert client.drawings(1).drawn == {"state"}
        with pytest.raises(sn.SensoriumError):
            client.drawings(2)
        reading = scene.publish(["imu"], poses=True)["imu"]
    assert client.bodies[int(row)].name == "box"
    np.testing.assert_allclose(place, [0, 0, 0, 1, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(reading.pose[1, 0, :3], scene["state"].ground_truth.pos_w[1].numpy(), atol=0.05)


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_page_takes_the_steps_in_lock_step_and_says_where_it_cannot(lockstep: bool) -> None:
    """It starts paused, steps while it plays, and stops with the browser.

    A custom loop cannot be paused, and its plots show samples with gaps between them.
    """
    scene, over = scene_of(1), threading.Event()
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=lockstep) as server:
        pages: list[Page] = []

        def show() -> None:
            with sn.connect(server.address, timeout=60.0) as client:
                pages.append(Page(client, speed=0.0))
                pages[0].run(over.is_set)

        thread = threading.Thread(target=show)
        thread.start()
        wait_until(lambda: (server.poll(0.02), pages)[1])
        socket = Socket(pages[0].url)
        wait_until(lambda: (server.poll(0.02), socket.shows("**t =") and "loop" in socket.widgets)[1])
        if lockstep:
            assert scene.tick == 0
            socket.set(socket.widgets["loop"], "step")
            wait_until(lambda: (server.poll(0.02), scene.tick == 5)[1])
            socket.set(socket.widgets["loop"], "play")
            wait_until(lambda: (server.poll(0.02), scene.tick > 50)[1])
            socket.set(socket.widgets["loop"], "pause")
            wait_until(lambda: (server.poll(0.02), socket.shows("paused"))[1])
        else:
            wait_until(lambda: (server.poll(0.02), socket.shows("takes the steps"))[1])
            assert socket.values[socket.widgets["loop"]]["options"] == ["reset"]
            values, first = pages[0].plots[0].values, scene.tick
            wait_until(lambda: (server.poll(0.02), scene.step(substeps=5), None in values.data[1])[2])
            shown = [each for each in values.data[1] if each is not None]
            assert 2 * len(shown) < scene.tick - first  # the loop need not stop at each of its ticks
            assert values.series[1]["points"]["show"]  # of samples that no line joins
        socket.close()
        over.set()
        wait_until(lambda: (server.poll(0.02), not thread.is_alive())[1])


def test_shapes_of_plugins_reach_clients() -> None:
    """`Client.drawings` has what `debug_draw` gives for the environment; its exception is an error that names it."""
    scene = sn.Scene(sn.MujocoEngine(MODEL, 2), [BeaconCfg(name="beacon", body="box", debug_vis=True)])
    with scene.local_client(timeout=120.0) as client:
        (shape,) = client.drawings(1).shapes["beacon"]
        np.testing.assert_allclose(shape.items, [[1.0, 0.0, 3.0]])
        assert (shape.kind, shape.color, shape.size, shape.colors) == ("points", (0.0, 1.0, 0.0), 0.5, None)
        Beacon.fails = True
        with pytest.raises(sn.StreamError, match=r"sensor 'beacon' \(Beacon\): debug_draw failed. ZeroDivisionError"):
            client.drawings(1)
        Beacon.fails = False
    tensors = DebugShape("points", torch.ones(2, 3, requires_grad=True), colors=torch.zeros(2, 3)).to_dict()
    assert tensors == DebugShape("points", np.ones((2, 3)), colors=np.zeros((2, 3))).to_dict()
    with pytest.raises(sn.errors.UnknownNameError, match=r"'line'\. Did you mean 'lines'"):
        DebugShape("line", np.zeros((1, 3)))
