"""The live view of a scene: the server for its page, the process of the page, and the pace of the loop."""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from sensorium import errors
from sensorium.errors import ConfigError, MissingDependencyError, SensoriumError, StreamError
from sensorium.stream.pace import Pace
from sensorium.stream.server import Server, serve
from sensorium.view.live.web import check_host, checked_token

START_S = 60.0
"""Longest wait for the page's process, s."""
END_S = 5.0
"""Longest wait for its end, s."""
LOOK_EVERY, IDLE_EVERY = 0.02, 0.1
"""Seconds between two checks for requests of the page: while a browser shows it, and otherwise."""
BEHIND = 0.2
"""Delay that a loop may catch up, s."""


class LiveView:
    """A page in the browser that shows a scene, made by `Scene.view`; in a notebook it is shown in the cell.

    The page follows the scene whenever it advances. Its commands run on the loop's thread: a paused scene waits inside
    `step` or `update`. While no browser is connected, nothing is published. The page ends with `close` or with this
    process; until then it keeps the scene.

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
        page = {"host": host, "port": port, "token": checked_token(host, token), "draws_all": hasattr(scene, "seek")}
        secret, folder = secrets.token_urlsafe(), tempfile.TemporaryDirectory(prefix="sensorium-")
        self._scene, self._pace = scene, LoopPace(scene, speed)
        self._is_busy, self._look_at = False, 0.0
        self._server = serve(scene, f"ipc://{folder.name}/view", token=secret, on_demand=False)
        self._server.pace = self._pace
        self._process = _started()
        self._end = weakref.finalize(self, _end, self._server, self._process, folder)
        self._watch = scene.watch(self._on_frame)
        try:
            client = {"address": self._server.address, "token": secret, "name": "live view", "timeout": START_S}
            self.url = _address(self._server, self._process, {"client": client, "page": page})
        except BaseException:
            self.close()
            raise
        print(f"live view: {self.url}", flush=True)

    def __repr__(self) -> str:
        return f"<LiveView {self.url}: {'closed' if self.is_closed else 'open'}>"

    def _repr_html_(self) -> str:
        return f"<iframe src='{html.escape(self.url)}' width='100%' height='600' style='border:0'></iframe>"

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the page has ended."""
        return not self._end.alive

    @property
    def is_watched(self) -> bool:
        """Whether a browser shows the page."""
        return not self.is_closed and self._server.counts.subscriptions > 0

    @property
    def is_paused(self) -> bool:
        """Whether the loop waits."""
        return not self.is_closed and self._pace.is_paused

    def close(self) -> None:
        """End the page; the loop continues without limit. Closing twice has no effect."""
        self._watch.close()
        self._end()

    def wait(self, seconds: float = float("inf")) -> None:
        """Serve the page without stepping, until it is closed or the time has passed."""
        end = time.monotonic() + seconds
        while not self.is_closed and (left := end - time.monotonic()) > 0.0:
            self._look(min(left, 0.05))

    # The loop ---------------------------------------------------------------------------------------------------------

    def _on_frame(self) -> None:
        """Serve the page; called on the loop's thread after each advance of the scene."""
        pace = self._pace
        if self._is_busy or self._scene.is_within_step:
            return
        if not pace.speed and not pace.is_paused and time.monotonic() < self._look_at:
            return
        self._look(0.0)
        while not self.is_closed and (left := pace.time_left()) > 0.0:
            self._look(min(left, 0.05))

    def _look(self, seconds: float) -> None:
        """Run the requests that arrive within some seconds."""
        self._is_busy = True
        try:
            self._server.poll(seconds)
        except StreamError:  # closed by another thread
            self.close()
        finally:
            self._is_busy = False
        self._look_at = time.monotonic() + (LOOK_EVERY if self.is_watched else IDLE_EVERY)
        if self._process.poll() is not None:
            self.close()


class LoopPace(Pace):
    """Pace of a loop that its owner steps: it waits between two steps.

    Args:
        scene: the scene of the loop.
        speed: simulated seconds per second of wall-clock time; 0 for no limit.
    """

    def __init__(self, scene: Any, speed: float) -> None:
        super().__init__(speed)
        self._scene = scene
        self._restart_clock()

    def time_left(self) -> float:
        """Return the time until the next step, s: 0 for now, infinite in a pause."""
        if self.is_paused:
            return 0.0 if self.take_step() else float("inf")
        if not self.speed:
            return 0.0
        wall, simulated = self._start
        left = wall + (self._scene.time - simulated) / self.speed - time.monotonic()
        if left < -BEHIND or self._scene.time < simulated:
            self._restart_clock()
        return left if left > 1e-4 else 0.0

    def _restart_clock(self) -> None:
        self._start = time.monotonic(), self._scene.time

    def set(self, what: str, value: Any, session: Any) -> None:
        """Change the pace; see `Pace.set`. A recording that is over starts again where a pause ends."""
        if what == "paused" and not value and getattr(self._scene, "is_over", False):
            self._scene.seek(self._scene.span[0])
        if what == "time" and hasattr(self._scene, "seek"):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigError.single("pace", what, value, "a finite number")
            self._scene.seek(value)
        else:
            super().set(what, value, session)
        self._restart_clock()

    def to_dict(self) -> dict[str, Any]:
        """Return the pace for clients, and the first and last time of a recording as ``"span"``, s."""
        span = getattr(self._scene, "span", None)
        return super().to_dict() | ({"span": list(span)} if span is not None else {})


def _started() -> subprocess.Popen[str]:
    """Start the process of a page."""
    folder = str(Path(errors.__file__).parents[1])
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "sensorium.view.live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def _address(server: Server, process: subprocess.Popen[str], arguments: dict[str, Any]) -> str:
    """Pass a process the arguments of its page, and return the page's address, or raise its error."""
    assert process.stdin is not None and process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    process.stdin.write(f"{json.dumps(arguments)}\n")
    process.stdin.flush()
    end = time.monotonic() + START_S
    while lines.empty() and time.monotonic() < end:
        server.poll(0.05)  # the page asks for the world
    kind, text = ("", "") if lines.empty() else json.loads(lines.get() or '["", ""]')
    if not kind:
        raise SensoriumError("the process of the live view did not start; see its messages on stderr")
    if kind != "url":
        raise (MissingDependencyError if kind == MissingDependencyError.__name__ else SensoriumError)(text)
    return str(text)


def _end(server: Server, process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    server.close()
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        process.communicate(timeout=END_S)
    if process.poll() is None:
        process.kill()
        process.communicate()
    folder.cleanup()
