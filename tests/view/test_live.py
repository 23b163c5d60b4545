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
  <option timestep="0.002" gravity="0 0 0"/>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 .1" pos="0 0 -1" rgba="0.6 0.7 0.6 1"/>
    <body name="cart">
      <joint name="x" type="slide" axis="1 0 0"/><site name="middle"/>
      <geom type="sphere" size=".05" pos="0 0 .16" rgba="1 0 0 1"/>
      <geom type="sphere" size=".05" pos="0 0 -.16" rgba="1 0 0 1"/>
    </body>
  </worldbody>
</mujoco>
"""
CHART = "Object.values(window.__viserTestpoints.uplots)[0].chart"


class Session:
    """A page of a scene that a server runs, by default at speed 1, and a browser that shows it."""

    def __init__(self, scene: sn.Scene, browser: Browser, control: Callable[[], Any] | None = None, **run: Any) -> None:
        self.scene, self.is_over = scene, threading.Event()
        self.server = sn.serve(scene, "tcp://127.0.0.1:0", on_demand=False)
        self._loop = threading.Thread(
            target=self.server.run, args=[control], kwargs={"substeps": 5, "until": self.is_over.is_set, **run}
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
    """Save a picture for the documentation, if wanted."""
    if folder := os.environ.get("SENSORIUM_PICTURES"):
        session.tab.resize(LARGE)
        session.client.pace(speed=1.0)
        end = session.page.time + 12.0
        wait_until(lambda: session.page.time > end)
        session.tab.screenshot(Path(folder) / name)
        session.tab.resize(SMALL)


def place(picture: np.ndarray[Any, np.dtype[np.uint8]], band: int) -> float:
    """Return the mean column of the pixels of the world that are red (0) or blue (2); NaN without any."""
    pixels = picture[:300, :300].astype(int)
    other = np.delete(pixels, band, axis=-1).max(axis=-1)
    columns = np.nonzero((pixels[..., band] > 100) & (other < 0.5 * pixels[..., band]))[1]
    return float(columns.mean()) if len(columns) > 20 else np.nan


def test_drawings_lie_on_their_body_in_every_frame(browser: Browser) -> None:
    """A sensor at 10 Hz is drawn in the middle of its body, within 2 px, while the body moves at 0.5 m/s."""
    style = sn.VisualizerCfg(color=(0.0, 0.0, 1.0), size=0.12)
    sensors = [
        sn.BarometerCfg(name="slow", site="middle", rate_hz=10.0, delay=0.05, debug_vis=True, visualizer_cfg=style),
        sn.JointSensorCfg(name="joint", joints="x", fields=("position",)),
    ]
    scene = sn.Scene(sn.MujocoEngine(MARKS), sensors, seed=0)
    scene.reset(qvel=np.array([[0.5]]))
    with Session(scene, browser) as session:
        wait_until(lambda: np.isfinite(place(session.tab.screenshot(), 2)))
        seen = set()
        for _ in range(FRAMES):
            picture = session.tab.screenshot()
            body, drawing = place(picture, 0), place(picture, 2)
            assert abs(body - drawing) <= 2.0
            seen.add(session.page.time)
        assert len(seen) == FRAMES
        assert scene.engine.qpos[0, 0] > 0.5  # it moved


def test_every_sample_is_a_point_of_the_plot(browser: Browser) -> None:
    """400 more samples give 400 more points, in the browser too, and a second without data is a gap."""
    scene = sn.Scene(sn.MujocoEngine(MARKS), [sn.JointSensorCfg(name="joint", joints="x", fields=("position",))])
    with Session(scene, browser) as session:
        session.client.pace(paused=True)
        plot, tick = session.page.plots[0], scene.tick
        shown = session.page.readings  # the bodies may arrive before the samples of the plot
        wait_until(lambda: "joint" in shown and shown["joint"].time == pytest.approx(0.002 * tick))
        wait_until(lambda: plot.values.data[0].size)
        before = plot.values.data[0].size
        session.client.pace(steps=80)
        wait_until(lambda: plot.values.data[0].size == before + 400)
        np.testing.assert_allclose(np.diff(plot.values.data[0][-401:]), 0.002, atol=1e-9)
        assert np.isfinite(plot.values.data[2]).all()
        wait_until(lambda: session.tab.evaluate(f"{CHART}.data[0].length") == before + 400)
        last = session.page.readings["joint"]
        plot.add([replace(last, time=last.time + 1.0, seq=last.seq + 1)], 500.0)
        assert [each for each in plot.values.data[2] if each is None] == [None]  # a gap: no line joins its sides
        assert plot.values.data[2][-2] is None
        wait_until(lambda: session.tab.evaluate(f"{CHART}.data[2][{before + 400}] === null"))


def test_the_arm_with_all_its_sensors(browser: Browser) -> None:
    """Images, knobs and environments; a reset; sensors that are replaced; and two browsers."""
    kind = robots.ROBOTS["arm"]
    scene = sn.Scene(kind.engine(3, "cpu"), load_rig(kind.rig)[0], discover=False)
    motion = kind.control(scene)
    with Session(scene, browser, lambda: motion(scene, scene.time), speed=0.1) as session:
        page, tab = session.page, session.tab
        assert page.panel.drawn == {"encoders", "wrist", "skin", "tip", "camera"}
        page.env.value = 2
        wait_until(lambda: tab.evaluate("document.body.innerText.includes('environment 2')"))
        wait_until(lambda: page.readings and all(each.env_ids.tolist() == [2] for each in page.readings.values()))
        tab.click("[role=tab]", "Images")
        seen = "[...document.querySelectorAll('img')].some(each => each.naturalWidth == 128 && each.clientWidth > 200)"
        wait_until(lambda: tab.evaluate(seen))
        assert page.image.image.std() > 10.0
        save(session, "live_view_images.png")
        tab.click("[role=tab]", "Sensors")
        page.panel.sensor.value = "wrist"
        wait_until(lambda: "noise of force [N]" in page.panel.sliders)
        page.panel.sliders["noise of force [N]"].value = 0.2

        def error() -> float:
            reading = page.readings.get("wrist")
            return float(np.abs(reading["force"] - reading.truth["force"]).max()) if reading and reading.truth else 0.0

        wait_until(lambda: error() > 0.3)  # beyond 6 times the noise of the config
        save(session, "live_view_sensors.png")
        page.panel.draw.value = False
        wait_until(lambda: not page.panel.draws("wrist"))
        other = browser.open(page.url)
        wait_until(lambda: "environment 2" in (other.evaluate("document.body.innerText") or ""))
        other.close()
        tab.click("button, label", "pause")
        wait_until(lambda: tab.evaluate("document.body.innerText.includes('paused')"))
        before = scene.tick
        tab.click("button, label", "step")
        wait_until(lambda: scene.tick == before + 5)


def test_the_demo_is_shown(browser: Browser) -> None:
    """The quadruped with all its sensors, for the pictures of the documentation."""
    if not os.environ.get("SENSORIUM_PICTURES"):
        pytest.skip("only for pictures: SENSORIUM_PICTURES is not set")
    kind = robots.ROBOTS["demo"]
    scene = sn.Scene(kind.engine(3, "cpu"), load_rig(kind.rig)[0], discover=False)
    motion = kind.control(scene)
    with Session(scene, browser, lambda: motion(scene, scene.time)) as session:
        save(session, "live_view.png")
