"""The page of the live view, in a headless browser.

The pictures of docs/live_view.md are made with ``SENSORIUM_PICTURES=docs/images pytest tests/view/test_live.py``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import LARGE, SMALL, Browser, wait_until

import sensorium as sn
from sensorium.demo import robots
from sensorium.jobs.rig import load_rig
from sensorium.view.live.page import Page

FRAMES = 20
"""Number of pictures of a moving body."""
MARKS = """
<mujoco>
  <option timestep="0.02" gravity="0 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 .1" pos="0 0 -1" rgba="0.6 0.6 0.6 1"/>
    <geom type="cylinder" size=".02 .02" pos="0 0 .1" rgba="1 0 0 1"/>
    <geom type="cylinder" size=".02 .02" pos="0 0 .2" rgba="1 0 0 1"/>
    <site name="post" pos="0 0 .15"/>
    <body name="cart">
      <joint name="x" type="slide" axis="1 0 0" stiffness="40"/>
      <geom type="box" size=".02 .02 .02" mass="1" rgba="0 1 0 1"/>
    </body>
    <body name="sled" pos="0 0 -.15">
      <joint name="y" type="slide" axis="1 0 0" stiffness="40"/><site name="sled"/>
      <geom type="sphere" size=".02" pos="0 0 .05" mass=".5" rgba="1 0 0 1"/>
      <geom type="sphere" size=".02" pos="0 0 -.05" mass=".5" rgba="1 0 0 1"/>
    </body>
  </worldbody>
</mujoco>
"""
"""A body that the cameras follow, and another one below it, which swing against each other at 1 Hz, and a post."""
CHART = "Object.values(window.__viserTestpoints.uplots)[0].chart"


class Session:
    """A page of a scene that a server runs, by default at speed 1, and a browser that shows it."""

    def __init__(self, scene: sn.Scene, browser: Browser, control: Callable[[], Any] | None = None, **run: Any) -> None:
        self.scene, self.is_over = scene, threading.Event()
        self.server = sn.serve(scene, "tcp://127.0.0.1:0", on_demand=False)
        self._loop = threading.Thread(
            target=self.server.run, args=[control], kwargs={"until": self.is_over.is_set, **run}
        )
        self._loop.start()
        self.client = sn.connect(self.server.address, timeout=60.0)
        self.page = Page(self.client, draws_all=True)
        self._thread = threading.Thread(target=self.page.run, args=[self.is_over.is_set])
        self._thread.start()
        self.tab = browser.open(self.page.url)
        wait_until(lambda: self.page.readings)
        style = "document.head.appendChild(document.createElement('style')).textContent"
        self.tab.evaluate(f"{style} = '.mantine-Notification-root {{ display: none }}'")  # the warning of no GPU

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self._thread.join(30.0)
        self.client.close()
        self._loop.join(30.0)
        self.server.close()
        self.tab.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


def save(session: Session, name: str) -> None:
    """Save a picture for the documentation, with full plots."""
    session.tab.resize(LARGE)
    end = session.page.time + 12.0
    wait_until(lambda: session.page.time > end)
    session.tab.screenshot(Path(os.environ["SENSORIUM_PICTURES"]) / name)
    session.tab.resize(SMALL)


Picture = np.ndarray[Any, np.dtype[np.uint8]]


def halves_of(picture: Picture) -> tuple[Picture, Picture]:
    """Return the half with the post and the half with the sled."""
    return picture[: SMALL[1] // 2], picture[SMALL[1] // 2 :]


def place(picture: Picture, band: int) -> float:
    """Return the mean column of the pixels that are red (0), green (1) or blue (2); NaN without any."""
    pixels = picture[:, : SMALL[0] - 390].astype(int)
    other = np.delete(pixels, band, axis=-1).max(axis=-1)
    columns = np.nonzero((pixels[..., band] > 100) & (other < 0.5 * pixels[..., band]))[1]
    return float(columns.mean()) if len(columns) > 20 else np.nan


def check_frames(session: Session) -> None:
    """Check in pictures of moving bodies that all their parts are of one time."""
    frames = np.empty((FRAMES, 5))
    for frame in frames:
        before = session.page.time
        wait_until(lambda before=before: session.page.time > before)  # type: ignore[misc]
        picture = session.tab.screenshot()
        frame[:] = place(picture, 1), *(place(half, band) for half in halves_of(picture) for band in (0, 2))
    followed, post, hit, sled, drawing = frames.T
    assert np.ptp(followed) <= 2.0
    assert np.abs(post - hit).max() <= 2.0
    assert np.abs(sled - drawing).max() <= 2.0
    assert np.ptp(post) > 5.0 and np.ptp(sled) > 5.0  # they move


def check_plot(session: Session) -> None:
    """Check that samples are points of the plot, of the page and of the browser, and that missing ones are a gap."""
    plot, end = session.page.plots[0], 0.02 * (session.scene.tick + 200)
    shown = session.page.readings
    session.client.pace(steps=200)
    wait_until(lambda: "joint" in shown and shown["joint"].time == pytest.approx(end))
    wait_until(lambda: np.allclose(np.diff(plot.values.data[0][-201:]), 0.02, atol=1e-9))
    assert np.isfinite(plot.values.data[2][-201:]).all()
    count = plot.values.data[0].size
    assert count > 200
    wait_until(lambda: session.tab.evaluate(f"{CHART}.data[0].length") == count)
    last = session.page.readings["joint"]
    plot.add([replace(last, time=last.time + 1.0, seq=last.seq + 1)], 50.0)
    assert plot.values.data[2][-2] is None and None not in plot.values.data[2][-202:-2]  # no line joins its sides
    gap = len(plot.values.data[2]) - 2
    wait_until(lambda: session.tab.evaluate(f"{CHART}.data[2][{gap}] === null"))


def test_a_page_in_a_browser(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    """Frames of one time, every sample in a plot, images, knobs, environments, and the buttons of the loop.

    Sensors at 10 Hz are drawn within 2 px of their places, on a moving body and on the world that moves against it. The
    followed body stays within 2 px of its place. In the picture, the others move at up to 10 px per update.
    """
    style = sn.VisualizerCfg(color=(0.0, 0.0, 1.0), size=0.05)
    slow: Any = {"rate_hz": 10.0, "delay": 0.05, "debug_vis": True, "visualizer_cfg": style}
    sensors = [
        sn.JointSensorCfg(name="joint", joints="x", fields=("position",), noise=0.001),
        sn.RayCasterCfg(name="post", site="post", pattern=sn.patterns.GridPatternCfg(size=(0.0, 0.0)), **slow),
        sn.BarometerCfg(name="sled", site="sled", **slow),
        sn.CameraCfg(name="camera", body="cart", width=64, height=48, rate_hz=1.0),
    ]
    scene = sn.Scene(sn.MujocoEngine(MARKS, 3), sensors, seed=0)
    scene.reset(qpos=np.tile([[0.06, -0.06]], (3, 1)))
    with Session(scene, browser) as session:
        page, tab = session.page, session.tab
        tab.click("[role=tab]", "Images")
        seen = "[...document.querySelectorAll('img')].some(each => each.naturalWidth == 128 && each.clientWidth > 200)"
        wait_until(lambda: tab.evaluate(seen))
        assert page.image.image.std() > 10.0
        wait_until(lambda: np.isfinite([place(half, 2) for half in halves_of(tab.screenshot())]).all())
        assert page.panel.drawn == {"post", "sled"}
        check_frames(session)
        tab.click("[role=tab]", "Plots")
        tab.click("button, label", "pause")
        wait_until(lambda: tab.evaluate("document.body.innerText.includes('paused')"))
        check_plot(session)
        before = scene.tick
        tab.click("button, label", "step")
        wait_until(lambda: scene.tick == before + 1)
        page.panel.sensor.value = "joint"
        page.env.value = 2
        wait_until(lambda: tab.evaluate("document.body.innerText.includes('environment 2')"))
        wait_until(lambda: page.readings and all(each.env_ids.tolist() == [2] for each in page.readings.values()))
        page.panel.draw_all.value = "all"
        wait_until(lambda: "noise" in page.panel.sliders)
        page.panel.sliders["noise"].value = 0.004
        session.client.pace(speed=0.1, paused=False)

        def error() -> float:
            reading = page.readings.get("joint")
            if reading is None or not reading.truth:
                return 0.0
            return float(np.abs(reading["position"] - reading.truth["position"]).max())

        wait_until(lambda: error() > 0.006)  # beyond 6 times the noise of the config
        page.panel.draw.value = False
        wait_until(lambda: not page.panel.draws("joint"))
        assert page.panel.draws("camera")
    assert not [each for each in caplog.records if each.name.startswith("sensorium")]


@pytest.mark.parametrize(
    ("robot", "tabs"), [("demo", {"Plots": ""}), ("arm", {"Images": "_images", "Sensors": "_sensors"})]
)
def test_pictures_of_the_documentation(robot: str, tabs: dict[str, str], browser: Browser) -> None:
    if not os.environ.get("SENSORIUM_PICTURES"):
        pytest.skip("only for pictures: SENSORIUM_PICTURES is not set")
    kind = robots.ROBOTS[robot]
    scene = sn.Scene(kind.engine(3, "cpu"), load_rig(kind.rig)[0], discover=False)
    motion = kind.control(scene)
    with Session(scene, browser, lambda: motion(scene, scene.time), substeps=5) as session:
        for tab, suffix in tabs.items():
            session.tab.click("[role=tab]", tab)
            if tab == "Sensors":
                session.page.panel.sensor.value = "wrist"
            save(session, f"live_view{suffix}.png")
