"""The live view of a scene: the process that serves the page, and the feed that supplies it."""

from __future__ import annotations

import contextlib
import html
import os
import subprocess
import sys
import time
import weakref
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from sensorium import errors
from sensorium.errors import ConfigError, MissingDependencyError, SensoriumError
from sensorium.view.live.feed import Channel, SceneFeed
from sensorium.view.live.web import check_host, checked_token, is_loopback

START_S = 60.0
"""Longest wait for the page's process, s."""
END_S = 5.0
"""Longest wait for its end, s."""


class LiveView(SceneFeed):
    """A page in the browser that shows a scene, made by `Scene.view`; in a notebook it is shown in the cell.

    The page follows the scene whenever it advances. Its commands run on the loop's thread: a paused scene waits inside
    `step` or `update`. While no browser is connected, the scene is not slowed down. The page ends with `close`, with
    the scene, or with this process.

    It is also a context manager that closes the page on exit.

    Args:
        scene: the scene, or a recording that replaces it.
        host: address to bind to; by default only this machine can open the page.
        port: first port to try; 0 selects any free port.
        token: token that the page's address must have; empty selects a random one if other machines can open the page.
        speed: simulated seconds per second of wall-clock time; 0 runs as fast as the loop.

    Attributes:
        url: address of the page, with its token.

    Raises:
        ConfigError: `speed` is negative or not finite, `host` is not an address of this machine, or the token has
            characters that are not allowed.
        MissingDependencyError: the extra `view` is not installed.
        SensoriumError: the page could not be started; the message gives the reason.
    """

    def __init__(
        self, scene: Any, *, host: str = "127.0.0.1", port: int = 8080, token: str = "", speed: float = 0.0
    ) -> None:
        if not 0.0 <= speed < float("inf"):
            raise ConfigError.single("view", "speed", speed, "a finite number >= 0", "0 runs as fast as the loop.")
        check_host(host)
        channel, theirs = Pipe()
        with theirs:
            folder = str(Path(errors.__file__).parents[1])
            path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH", "")]))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sensorium.view.live", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self._end = weakref.finalize(self, _end, channel, self._process)
        try:
            channel.send({"host": host, "port": port, "token": checked_token(host, token)})
            self.url: str = _answer(channel, self._process)
            super().__init__(scene, channel, speed=speed)
        except BaseException:
            self._end()
            raise
        if not is_loopback(host):
            self._notes.append("The page is open to other machines that know its address with the token.")
        print(f"live view: {self.url}", flush=True)

    def __repr__(self) -> str:
        return f"<LiveView {self.url}: {'closed' if self.is_closed else 'open'}>"

    def _repr_html_(self) -> str:
        return f"<iframe src='{html.escape(self.url)}' width='100%' height='600' style='border:0'></iframe>"

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the page; the loop continues. Closing twice has no effect."""
        super().close()
        self._end()


def _answer(channel: Channel, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the page, or raise its error."""
    end = time.monotonic() + START_S
    while not channel.poll(0.1):
        if process.poll() is not None or time.monotonic() > end:
            raise SensoriumError("the process of the live view did not start; see its messages on stderr")
    try:
        kind, text = channel.recv()
    except EOFError:
        raise SensoriumError("the process of the live view ended at once; see its messages on stderr") from None
    if kind != "url":
        raise (MissingDependencyError if kind == MissingDependencyError.__name__ else SensoriumError)(text)
    return str(text)


def _end(channel: Channel, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
