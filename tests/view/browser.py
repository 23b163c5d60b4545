"""A headless browser, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL, LARGE = (600, 240), (1280, 800)
"""Sizes of a page, px: in tests, since it is drawn without a GPU, and in pictures."""


def chromium() -> str:
    """Return the path of the browser; skip the test where it is missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        import pytest

        if os.environ.get("SENSORIUM_REQUIRE_PACKAGES"):
            pytest.fail("the system package chromium is missing: apt-get install chromium")
        pytest.skip("the system package chromium is missing: apt-get install chromium")
    return found


def wait_until(done: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.05)


class Browser:
    """A browser process; `open` opens pages.

    Args:
        folder: folder for its profile.
    """

    def __init__(self, folder: Path) -> None:
        options = (
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
            "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-port=0",
            "--disable-background-networking", "--disable-extensions", "--no-first-run", "--disable-sync",
            f"--user-data-dir={folder}", "--window-size={},{}".format(*SMALL), "about:blank",
        )  # fmt: skip
        self._process = subprocess.Popen([chromium(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = folder / "DevToolsActivePort"
        wait_until(lambda: port.exists() and port.read_text().count("\n"))
        self.port = int(port.read_text().split()[0])

    def open(self, url: str) -> Tab:
        """Open a page."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?{url}", method="PUT")
        with urllib.request.urlopen(request) as answer:
            return Tab(json.load(answer)["webSocketDebuggerUrl"])

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(60.0)


class Tab:
    """A page of the browser."""

    def __init__(self, address: str) -> None:
        from websockets.sync.client import connect

        self._socket = connect(address, max_size=None)
        self._numbers = itertools.count(1)
        self.resize(SMALL)

    def __call__(self, method: str, **options: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": options}))
        while True:
            answer = json.loads(self._socket.recv(300.0))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the page, px."""
        width, height = size
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, code: str) -> Any:
        """Return the value of JavaScript code."""
        return self("Runtime.evaluate", expression=code, returnByValue=True)["result"].get("value")

    def screenshot(self, path: Path | None = None) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the page's pixels, uint8 `[height, width, 3]`, and write them to a file."""
        from PIL import Image

        data = base64.b64decode(self("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"])
        if path is not None:
            path.write_bytes(data)
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def click(self, selector: str, text: str) -> None:
        """Click on the first element that contains a text."""
        found = f"[...document.querySelectorAll({selector!r})].find(each => each.textContent.includes({text!r}))"
        wait_until(lambda: self.evaluate(f"!!{found}"))
        place = f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())"
        x, y = self.evaluate(place)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def close(self) -> None:
        """Close the page."""
        self("Page.close")
        self._socket.close()
