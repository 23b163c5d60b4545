"""The page of the live view, in a headless browser: one session for all tests, in their order.

The pictures of docs/live_view.md are made with ``SENSORIUM_PICTURES=docs/images pytest tests/view/test_live.py``.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import LARGE, SMALL, Browser, wait_until
from scipy.ndimage import binary_erosion

import sensorium as sn
from sensorium.demo import robots
from sensorium.jobs.rig import load_rig
from sensorium.view.live.feed import SceneFeed
from sensorium.view.live.page import Page

WORLD = slice(0, 300)
"""Columns of the picture that show the world."""


class Session:
    """A page of a bundled robot, its loop, and a browser that shows it."""

    def __init__(self, robot: str, browser: Browser) -> None:
        kind = robots.ROBOTS[robot]
        self.engine = kind.engine(3, "cpu")
        self.scene = sn.Scene(
            self.engine, [cfg.replace(debug_vis=True) for cfg in load_rig(kind.rig)[0]], discover=False
        )
        self._control = kind.control(self.scene)
        self._numbers = itertools.count()
        channel, theirs = Pipe()
        self.page = Page(theirs)
        self._thread = threading.Thread(target=self.page.run)
        self._thread.start()
        self.feed = SceneFeed(self.scene, channel)
        self.tab = browser.open(self.page.url)
        self.run_until(lambda: self.page.server.get_clients())
        style = "document.head.appendChild(document.createElement('style')).textContent"
        self.tab.evaluate(f"{style} = '.mantine-Notification-root {{ display: none }}'")  # the warning of no GPU

    def close(self) -> None:
        self.feed.close()
        self._thread.join(10.0)
        self.tab.close()

    def run_until(self, done: Callable[[], object], seconds: float = 120.0) -> None:
        """Step the scene until a condition is true."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"not within {seconds:g} s"
            self.scene.step(self._control(self.scene, self.scene.time), 5)
            time.sleep(0.002)  # for the page's thread

    def run(self, seconds: float) -> None:
        """Step the scene for a simulated time, and until the page shows it."""
        end = self.scene.time + seconds
        self.run_until(lambda: self.scene.time >= end and self.page.frame.time >= end)

    def picture(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the pixels of the world once the browser has drawn all that the page has sent."""
        text = f"picture {next(self._numbers)}"
        mark = self.page.server.gui.add_markdown(text)  # messages arrive in their order
        wait_until(lambda: self.tab.evaluate(f"document.body.innerText.includes('{text}')"))
        mark.remove()
        shown = [self.tab.screenshot()]

        def is_still() -> bool:
            time.sleep(0.2)
            shown.append(self.tab.screenshot())
            return np.array_equal(*shown[-2:])

        wait_until(is_still)
        return shown[-1].astype(np.int64)[:, WORLD]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def session(browser: Browser) -> Iterator[Session]:
    found = Session("arm", browser)
    yield found
    found.close()


def save(session: Session, name: str) -> None:
    """Save a picture for the documentation, if wanted."""
    folder = os.environ.get("SENSORIUM_PICTURES")
    if folder:
        session.tab.resize(LARGE)
        session.run(0.5)
        time.sleep(2.0)
        session.tab.screenshot(Path(folder) / name)
        session.tab.resize(SMALL)


def differing(one: Any, other: Any) -> int:
    """Return the number of pixels that differ visibly, as their neighbours do.

    On a busy machine the page is drawn with fewer pixels, so that edges differ.
    """
    return int(binary_erosion(np.abs(one - other).max(axis=-1) > 24, np.ones((3, 3))).sum())


def test_the_robot_is_seen(session: Session) -> None:
    """Its pixels vanish with its bodies, and the drawings of the sensors when they are switched off."""
    page = session.page
    session.run(1.2)
    followed = page.frame.bodies[page._world.moving[0], :3]
    assert np.abs(followed).max() > 0.01  # the cameras look at the body
    np.testing.assert_allclose(page._origin.position, -followed, atol=1e-6)
    page.panel._draw_all("none")
    session.run(0.2)
    wait_until(lambda: not page._overlays._overlays)
    seen = session.picture()
    nodes = [node for row, node in page._world._nodes.items() if row >= 0]
    for node in nodes:
        node.visible = False
    wait_until(lambda: differing(session.picture(), seen) > 500)
    for node in nodes:
        node.visible = True
    wait_until(lambda: differing(session.picture(), seen) < 500)
    page.panel._draw_all("as configured")
    session.run(0.2)
    wait_until(lambda: differing(session.picture(), seen) > 500)
    save(session, "live_view_arm.png")


def test_a_plot_changes(session: Session) -> None:
    plot = session.page.plots[0]
    text = "document.querySelector('.uplot canvas').toDataURL()"
    wait_until(lambda: session.tab.evaluate("!!document.querySelector('.uplot canvas')"))
    before, times = session.tab.evaluate(text), plot.values.data[0][-1]
    session.run(0.3)
    assert plot.values.data[0][-1] > times and "N]" in plot.values.title
    wait_until(lambda: session.tab.evaluate(text) != before)


def test_another_environment_is_shown(session: Session) -> None:
    session.page.env.value = 2
    session.run_until(lambda: session.page.frame.env == 2)
    wait_until(lambda: session.tab.evaluate("document.body.innerText.includes('environment 2')"))
    assert all(reading.env_ids.tolist() == [2] for reading in session.page.readings.values())


def test_an_image_appears(session: Session) -> None:
    session.tab.click("[role=tab]", "Images")
    session.run(0.3)
    seen = "[...document.querySelectorAll('img')].some(each => each.naturalWidth == 128 && each.clientWidth > 200)"
    wait_until(lambda: session.tab.evaluate(seen))
    assert session.page.image.image.std() > 10.0
    save(session, "live_view_images.png")


def test_a_slider_changes_the_noise_at_once(session: Session) -> None:
    """The error of the wrist's force grows by the factor of the noise."""
    panel = session.page.panel
    session.tab.click("[role=tab]", "Sensors")
    panel.sensor.value = "wrist"
    wait_until(lambda: "noise of force [N]" in panel.sliders)
    session.run(0.2)

    def error() -> float:
        rows = []
        for _ in range(20):
            session.scene.step(None, 5)
            sensor = session.scene["wrist"]
            rows.append((sensor.data.force - sensor.ground_truth.force).numpy())
        return float(np.std(rows))

    assert error() == pytest.approx(0.05, rel=0.3)
    panel.sliders["noise of force [N]"].value = 0.2
    wait_until(lambda: session.scene.step(None, 5) or error() > 0.15)
    assert error() == pytest.approx(0.2, rel=0.3)
    save(session, "live_view_sensors.png")


def test_a_second_browser_sees_the_same(session: Session, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    other = browser.open(session.page.url)
    session.run_until(lambda: len(session.page.server.get_clients()) == 2)
    wait_until(lambda: "environment 2" in (other.evaluate("document.body.innerText") or ""))
    both = session.page.server.get_clients()
    other.close()
    wait_until(lambda: len(session.page.server.get_clients()) == 1)
    monkeypatch.setattr(session.page.server, "get_clients", lambda: both)  # as if it left just now: no warning of viser
    session.page.show(dataclasses.replace(session.page.frame, notes=["a late note"]))


def test_a_reset_during_a_switch_shows_the_new_state_of_the_new_environment(session: Session) -> None:
    session.page.env.value = 1
    session.page.do("reset")
    session.run_until(lambda: session.page.frame.env == 1)
    session.run_until(lambda: (shown := session.page.readings.get("encoders")) and shown.env_ids.tolist() == [1])
    assert session.scene["encoders"].frame[1] < session.scene["encoders"].frame[0]
    home = session.page.readings["encoders"]["position"]
    np.testing.assert_allclose(home[0], session.scene["encoders"].ground_truth.position[1], atol=0.2)


def test_it_survives_changed_sensors_and_states_that_are_not_finite(session: Session) -> None:
    scene, page = session.scene, session.page
    scene.remove("skin")
    scene.reconfigure("tip", bias=0.1)
    scene.add(sn.BodyStateCfg(name="hand", body="hand", debug_vis=True))
    session.run_until(lambda: "hand" in page.readings)
    assert "skin" not in page.readings and "hand" in page.panel.sensor.options
    broken = page.frame
    bodies = np.full_like(broken.bodies, np.nan)
    values = {name: np.full_like(value, np.nan) for name, value in page.readings["hand"].measured.items()}
    reading = page.readings["hand"]
    nan = dataclasses.replace(reading, _measured=values, _truth=values, time=reading.time + 0.01)
    page.show(dataclasses.replace(broken, bodies=bodies, readings={"hand": nan}, notes=["a note"]))
    session.run(0.2)
    assert np.isfinite(page.frame.bodies).all()


def test_the_demo_is_shown(browser: Browser) -> None:
    """The quadruped with all its sensors, for the pictures of the documentation."""
    if not os.environ.get("SENSORIUM_PICTURES"):
        pytest.skip("only for pictures: SENSORIUM_PICTURES is not set")
    session = Session("demo", browser)
    session.run(1.5)
    save(session, "live_view.png")
    session.close()
