"""Cost of the live view on the demo with all its sensors: of the loop's thread, and of the page's process."""

import os
import threading
import time
from statistics import median
from urllib.parse import urlsplit

import msgspec
import viser
from websockets.sync.client import connect

from sensorium import LiveView, Scene
from sensorium.cli import demo

Row = tuple[str, str, str]

ENVS, SECONDS, ROUNDS = 16, 1.0, 7
PERIOD = 10
"""Control steps after which the slowest sensors, at 10 Hz, are due again. They cost several times the others."""
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (1.0, 1.0, 1.0), "fov": 1.0, "near": 0.01,
    "far": 100.0, "image_height": 600, "image_width": 800, "look_at": (0.0, 0.0, 0.0), "up_direction": (0.0, 0.0, 1.0),
}  # fmt: skip
"""Message with which a browser connects."""


class Browser:
    """A client of the page that takes all messages, as a browser does, without drawing them."""

    def __init__(self, url: str) -> None:
        protocol = f"viser-v{viser.__version__}"
        self._socket = connect(f"ws://{urlsplit(url).netloc}", subprotocols=[protocol], max_size=None)  # type: ignore[list-item]
        self._socket.send(msgspec.msgpack.encode(CAMERA))
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        for _ in self._socket:
            pass

    def close(self) -> None:
        self._socket.close()


def cpu_of(process: int) -> float:
    """Return the CPU time of a process, s."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run() -> list[Row]:
    """Compare the loop's thread without a view, with a page that no browser shows, and with a browser, in pairs."""
    engine = demo.quadruped(ENVS, 0, "cpu")
    scene = Scene(engine, [cfg.replace(debug_vis=True) for cfg in demo.sensors()])
    control = demo.trot(engine)

    def loop() -> float:
        """Return the CPU time of the loop's thread per control step, s."""
        steps, end, begin = 0, time.monotonic() + SECONDS, time.thread_time()
        while time.monotonic() < end or steps % PERIOD:
            scene.step(control(scene, scene.time), 5)
            steps += 1
        return (time.thread_time() - begin) / steps

    loop()
    found: dict[str, list[float]] = {"no view": [], "no browser": [], "a browser": []}
    updates, cpu = 0, 0.0
    for _ in range(ROUNDS):
        found["no view"].append(loop())
        with LiveView(scene, port=0) as view:
            found["no browser"].append(loop())
            browser = Browser(view.url)
            while view.updates < 20:  # the page is built
                loop()
            before, spent = view.updates, cpu_of(view._process.pid)
            found["a browser"].append(loop())
            updates, cpu = updates + view.updates - before, cpu + cpu_of(view._process.pid) - spent
            browser.close()
    what = f"view, demo with {ENVS} envs"
    plain = found["no view"]
    rows = [
        (
            f"{what}, loop's thread per control step: {name}",
            f"{median(values) * 1e6:.0f} us",
            f"{median(value / before for value, before in zip(values, plain, strict=True)):.3f} x",
        )
        for name, values in found.items()
    ]
    rate = updates / (ROUNDS * SECONDS)
    return [
        *rows,
        (f"{what}, page's process, CPU per update", f"{1e3 * cpu / max(updates, 1):.1f} ms", f"{rate:.0f} Hz"),
    ]
