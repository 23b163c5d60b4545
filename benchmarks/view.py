"""Cost of the live view on the demo with all its sensors: of the loop's thread, and of the page's process."""

import os
import threading
import time
from statistics import median
from urllib.parse import urlsplit

import msgspec
import viser
from websockets.sync.client import connect

from benchmarks.timing import repeats_of
from sensorium import LiveView, Scene
from sensorium.demo import robots
from sensorium.jobs.rig import load_rig

Row = tuple[str, str, str]

ENVS, ROUNDS = 16, 5
SPEED = 0.25
"""Speed at which the loop waits between its steps, so that the page has its full rate."""
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


class TimedView(LiveView):
    """A view that sums up its own CPU time on the loop's thread, s."""

    spent = 0.0

    def _on_frame(self) -> None:
        begin = time.thread_time()
        super()._on_frame()
        self.spent += time.thread_time() - begin


def cpu_of(process: int) -> float:
    """Return the CPU time of a process, s."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run() -> list[Row]:
    """Compare the loop's thread without a view, with a page that no browser shows, and with a browser, in pairs."""
    engine = robots.ROBOTS["demo"].engine(ENVS, "cpu")
    scene = Scene(engine, [cfg.replace(debug_vis=True) for cfg in load_rig(robots.ROBOTS["demo"].rig)[0]])
    control = robots.trot(scene)

    def loop() -> float:
        """Return the CPU time of the loop's thread per control step, s."""
        steps, end, begin = 0, time.monotonic() + 0.1 * repeats_of(10), time.thread_time()
        while time.monotonic() < end or steps % PERIOD:
            scene.step(control(scene, scene.time), 5)
            steps += 1
        return (time.thread_time() - begin) / steps

    loop()
    found: dict[str, list[float]] = {"no view": [], "no browser": [], "a browser": []}
    shares: list[float] = []
    costs: list[float] = []
    rates: list[float] = []
    pages: list[float] = []
    for _ in range(repeats_of(ROUNDS)):
        loop()  # the sensors have forgotten the poses that they kept for the page
        found["no view"].append(loop())
        view = TimedView(scene, port=0)
        with view:
            found["no browser"].append(loop())
            browser = Browser(view.url)
            while view.updates < 20:  # the page is built
                loop()
            before, begin, view.spent = view.updates, time.thread_time(), 0.0
            found["a browser"].append(loop())
            shares.append(view.spent / (time.thread_time() - begin - view.spent))
            costs.append(view.spent / max(view.updates - before, 1))
            view._do("speed", SPEED)
            loop()
            before, begin, spent = view.updates, time.monotonic(), cpu_of(view._process.pid)
            loop()
            pages.append((cpu_of(view._process.pid) - spent) / max(view.updates - before, 1))
            rates.append((view.updates - before) / (time.monotonic() - begin))
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
    return [
        *rows,
        (f"{what}, loop's thread, CPU per update", f"{1e3 * median(costs):.2f} ms", f"+{100.0 * median(shares):.1f} %"),
        (
            f"{what}, page's process, CPU per update, at {SPEED:g} x real time",
            f"{1e3 * median(pages):.1f} ms",
            f"{median(rates):.0f} Hz",
        ),
    ]
