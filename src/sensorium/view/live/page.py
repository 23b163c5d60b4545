"""The page: layout, and the loop that shows one frame after the other."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from sensorium.client.client import WORLD, Client, Drawings
from sensorium.errors import SensoriumError
from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec
from sensorium.view.images import image_fields, image_of
from sensorium.view.live.listening import RATE, Listening
from sensorium.view.live.overlays import Overlays
from sensorium.view.live.panel import SensorPanel
from sensorium.view.live.plots import Plot
from sensorium.view.live.web import serve
from sensorium.view.live.world3d import World3d
from sensorium.wire.stream_info import StreamInfo

LOG = logging.getLogger("sensorium.view")
SPEEDS = {"no limit": 0.0, "1/20": 0.05, "1/10": 0.1, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "5": 5.0}
ENLARGED = "<style>img[src^='blob:'] { width: 100%; image-rendering: pixelated }</style>"
"""Style of images, which the browser enlarges to the width of the panel."""
SMALL = 160
"""Width below which images are sent with twice their pixels: JPEG has half the resolution for colours."""
PLOTS = 2
"""Number of plots."""
STEP = 0.01
"""Duration of a step that the page takes in lock-step, s."""
ASK_EVERY = 0.5
"""Interval of the requests for the pace and the drawings of the server, s; those of plugins have the page's rate."""
REFUSAL = "The program that serves the simulation takes the steps, so it cannot be paused here."


class Page:
    """A page that shows the sensors of a server, and sends commands to it.

    Args:
        client: connection to the server.
        host: address to bind to.
        port: port; 0 for any.
        token: token that the page's URL must have; empty for none.
        title: title of the page.
        draws_all: whether all sensors are drawn where no config selects some.
        speed: initial speed in lock-step, in simulated seconds per second; 0 for no limit.

    Attributes:
        server: the `viser.ViserServer`.
        url: address of the page on this machine, with the token.
        readings: newest reading of each sensor, of the shown environment.
        time: simulation time of the newest data, s.

    Raises:
        MissingDependencyError: viser is not installed.
    """

    def __init__(
        self,
        client: Client,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        title: str = "sensorium",
        draws_all: bool = True,
        speed: float = 1.0,
    ) -> None:
        self._client, self._listening, self._draws_all = client, Listening(client), draws_all
        for name in ("cv2", "pillow_heif"):  # viser and imageio search for them at each image
            if find_spec(name) is None:
                sys.modules[name] = None  # type: ignore[assignment]
        self.server = serve(host, port, token, title)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server.get_port()}/{f'?token={token}' if token else ''}"
        self.readings: dict[str, Reading] = {}
        self.time = 0.0
        self._times: dict[str, float] = {}
        """Stream -> time of its newest reading, s."""
        self._env = -1
        self._bodies: Array | None = None
        self._own_pace = {"paused": True, "speed": speed} if client.is_lockstep else None
        """The pace in lock-step, in which the page takes the steps."""
        self._steps, self._note = 0, ""
        self._pace: Mapping[str, Any] | None = self._own_pace or client.pace()
        self._has_paused = self._stands_still = self._is_open = False
        self._asks_now = threading.Event()
        self._drawings = Drawings()
        self._streams: Mapping[str, StreamInfo] = {}
        self._overlays = Overlays(self.server.scene)
        self._world = World3d(self.server, client.world_file())
        self._build()

    # The loop ---------------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Show the newest data until a condition is true; no work is done while no browser is connected."""
        self._is_open = True
        asking = threading.Thread(target=self._ask, daemon=True)
        asking.start()
        try:
            while not until() and not self._client.is_closed:
                begin = time.monotonic()
                try:
                    self._update()
                except Exception:
                    LOG.exception("The live view could not be updated")
                time.sleep(max(0.0, begin + 1.0 / RATE - time.monotonic()))
        finally:
            self._is_open = False
            self._asks_now.set()
            self._leave()
            self.server.stop()

    @property
    def _is_paced(self) -> bool:
        """Whether plots get every sample: a loop at full speed would have to stop at each of their ticks."""
        pace = self._pace or {}
        return bool(pace.get("paused") or pace.get("speed") or "span" in pace)

    def _update(self) -> None:
        """Show the data that arrived since the last call.

        They are shown in viser's loop, which therefore sends them in one piece; `atomic` does not hold back messages of
        which it has already begun to send some.
        """
        if not self.server.get_clients():
            self._leave()
            return
        if (found := self._shown_streams()) != self._streams:
            self._describe(found)
        env = int(np.clip(self.env.value, 0, self._client.num_envs - 1))  # a browser may send any number
        if env != self._env:
            self._env = env
            self._restart()
            self._asks_now.set()
        if self._stands_still:
            self._stands_still = False
            self._listening.renew()
        streams = [*self._streams, *([WORLD] if WORLD in self._client.streams else [])]
        plotted = {plot.sensor for plot in self.plots}
        every = plotted if self._is_paced else set[str]()
        self._listening.follow(streams, env, every, {self.panel.chosen, *self.panel.true, *plotted})
        arrived = self._listening.take_all()

        async def show() -> None:
            self._show(arrived)

        asyncio.run_coroutine_threadsafe(show(), self.server.get_event_loop()).result()

    def _leave(self) -> None:
        """Stop listening, and end the pause of this page."""
        self._listening.stop()
        self._env = -1
        if self._has_paused:
            self._has_paused = False
            self._do(self._client.pace, paused=False)

    def _restart(self) -> None:
        """Forget the data of another environment, or of a later time."""
        self.readings.clear()
        self._times.clear()
        self._bodies = None
        for plot in self.plots:
            plot.restart()

    def _shown_streams(self) -> dict[str, StreamInfo]:
        return {
            name: info
            for name, info in self._client.streams.items()
            if name != WORLD and (info.where == "scene" or "drawing" in info.constants)
        }

    # Commands ---------------------------------------------------------------------------------------------------------

    def _do(self, command: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run a command; its errors are shown on the page."""
        try:
            return command(*args, **options)
        except SensoriumError as error:
            self._notify(str(error))
        except Exception:
            LOG.exception("A command of the live view failed")

    def _send(self, command: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run a command of a browser, and ask for the state that it leads to."""
        self._note = ""
        self._do(command, *args, **options)
        self._asks_now.set()

    def _set_pace(self, **change: Any) -> None:
        """Pause, continue, take a step, or change the speed."""
        pace = self._own_pace
        if pace is None:
            self._has_paused = change.get("paused", "steps" in change or self._has_paused)
            self._client.pace(**change)
            self._stands_still = self._has_paused or "time" in change
        elif "steps" in change:
            pace["paused"], self._steps = True, self._steps + 1
        else:
            pace.update(change)

    def _set_knob(self, sensor: str, knob: str, value: Any) -> None:
        self._client.sensors[sensor].set(knob, value)

    def _ask(self) -> None:
        """Ask for the pace and the drawings of the server, and take steps in lock-step, on a separate thread."""
        due = 0.0
        while self._is_open:
            pace = self._own_pace
            self._asks_now.clear()
            if pace is not None and (self._steps or not pace["paused"]):
                self._steps = max(0, self._steps - 1)
                substeps = max(1, round(STEP / self._client.dt))
                if self._do(self._client.step, substeps=substeps) is None:
                    pace["paused"] = True
            if self._env >= 0 and time.monotonic() >= due:
                self._do(self._note_state)
                due = time.monotonic() + (1.0 / RATE if self._drawings.shapes else ASK_EVERY)
            if pace is None or pace["paused"]:
                if self._asks_now.wait(max(0.0, due - time.monotonic()) if self._env >= 0 else 1.0 / RATE):
                    due = 0.0
            elif pace["speed"]:
                time.sleep(max(0.0, STEP / pace["speed"]))

    def _note_state(self) -> None:
        """Ask for the pace and for the drawings."""
        self._pace = self._own_pace or self._client.pace()
        self._drawings = self._client.drawings(max(self._env, 0))
        drawn = self._drawings.drawn
        other = {name for name, info in self._streams.items() if info.where != "scene"}
        self.panel.drawn = frozenset(drawn or (self._streams if self._draws_all else ())) | other

    # Contents ---------------------------------------------------------------------------------------------------------

    def _show(self, arrived: Mapping[str, Sequence[Reading]]) -> None:
        """Show readings."""
        times = {name: each[-1].time for name, each in arrived.items()}
        if any(time < self._times.get(name, time) for name, time in times.items()):
            self._restart()
        self._times |= times
        self.time = max(self._times.values(), default=0.0)
        self.readings.update({name: each[-1] for name, each in arrived.items() if name != WORLD})
        if WORLD in arrived:
            reading = arrived[WORLD][-1]
            self._bodies = np.concatenate([reading["pos_w"], reading["quat_w"]], axis=-1).reshape(1, -1, 7)
            self._world.show(self._bodies[0], follows=self.follow.value)
        drawn = [name for name in self._streams if self.panel.draws(name)]
        changed = {*arrived, *self.panel.take_changed()}
        self._overlays.show(
            self.readings, self._bodies, self._drawings, self.panel.shows_truth, drawn, changed, self._world.origin
        )
        for plot in self.plots:
            info = self._streams.get(plot.sensor)
            if info is not None and plot.sensor in arrived:
                plot.add(arrived[plot.sensor], info.rate_hz, has_all=self._is_paced)
        self._show_images(arrived)
        self.panel.show(self.time, self.readings, arrived)
        pace = self._pace or {}
        state = "paused" if pace.get("paused") else "running"
        if not self._client.is_connected:
            state = "the server does not answer"
        refusal = f"\n\n{REFUSAL}" if self._pace is None else ""
        self.status.content = f"**t = {self.time:.3f} s** · environment {max(self._env, 0)} · {state}{refusal}"
        if self.buttons.options != (words := self._words()):
            self.buttons.options = words
        self.speed.disabled = self._pace is None
        if (span := pace.get("span")) is not None:
            self.seek.value = float(np.clip(self.time, *span))

    def _notify(self, note: str) -> None:
        """Show a message in all browsers, unless it was the last one."""
        if note != self._note:
            self._note = note
            with warnings.catch_warnings(action="ignore"):  # of viser, about a browser that is just leaving
                for client in self.server.get_clients().values():
                    client.add_notification("sensorium", note, color="red", auto_close_seconds=8.0)

    def _press(self, word: str) -> None:
        """Perform the action of a button of the loop; a browser may send any text."""
        if word in ("play", "pause"):
            self._send(self._set_pace, paused=word == "pause")
        elif word == "step":
            self._send(self._set_pace, steps=1)
        elif word in ("reset", "reset all"):
            self._send(self._client.reset, max(self._env, 0) if word == "reset" else None)

    def _words(self) -> tuple[str, ...]:
        """Return the buttons of the loop: those that its server accepts."""
        if self._pace is not None and "span" in self._pace:
            return "play", "pause"
        loop = () if self._pace is None else ("play", "pause", "step")
        return (*loop, "reset", *(["reset all"] if self._client.num_envs > 1 else []))

    # Layout -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Add the controls."""
        gui = self.server.gui
        size = self._world.size
        self.server.initial_camera.position = (1.1 * size, -1.1 * size, 0.7 * size)
        self.server.initial_camera.look_at = (0.0, 0.0, 0.0)
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        self.status = gui.add_markdown("")
        self.buttons = gui.add_button_group("loop", self._words())
        self.buttons.on_click(lambda _: self._press(str(self.buttons.value)))
        pace = self._pace or {}
        chosen = min(SPEEDS, key=lambda name: abs(SPEEDS[name] - pace.get("speed", 0.0)))
        self.speed = gui.add_dropdown("speed", list(SPEEDS), initial_value=chosen)
        self.speed.on_update(lambda _: self._send(self._set_pace, speed=SPEEDS.get(self.speed.value, 1.0)))
        last = self._client.num_envs - 1
        self.env = gui.add_slider("environment", 0, max(last, 1), 1, 0, visible=last > 0)
        self.follow = gui.add_checkbox("camera follows", True)
        first, end = pace.get("span", (0.0, 1.0))
        end = max(end, first + 1e-3)
        self.seek = gui.add_slider("time [s]", first, end, 0.001, first, visible="span" in pace)

        async def seek(event: Any) -> None:
            when = self.seek.value  # in viser's loop: before `_show` moves the slider again
            if event.client_id is not None:
                when = float(np.clip(np.nan_to_num(when), first, end))
                await asyncio.to_thread(self._send, self._set_pace, time=when)

        self.seek.on_update(seek)
        self.tabs = gui.add_tab_group()
        fields = _plottable(self._shown_streams())
        with self.tabs.add_tab("Plots"):
            self.plots = [Plot(gui, fields, choice) for choice in _first_choices(fields)]
        with self.tabs.add_tab("Sensors") as tab:
            self.panel = SensorPanel(gui, tab, functools.partial(self._send, self._set_knob))
        with self.tabs.add_tab("Images"):
            gui.add_html(ENLARGED)
            self.image_field = gui.add_dropdown("image", ["none"])
            self.image = gui.add_image(np.zeros((2, 2, 3), np.uint8), format="jpeg", jpeg_quality=90)

    def _describe(self, streams: Mapping[str, StreamInfo]) -> None:
        """Apply changes of the streams: sensors were added, removed or reconfigured."""
        self._streams = streams
        fields = _plottable(streams)
        for plot in self.plots:
            plot.set_fields(fields)
        self.readings = {name: reading for name, reading in self.readings.items() if name in streams}
        self._overlays.describe(streams)
        images = [f"{name}.{field}" for name, info in streams.items() for field in image_fields(info.specs)]
        chosen = self.image_field.value
        self.image_field.options = images or ["none"]
        if chosen in images:
            self.image_field.value = chosen
        self.image.visible = bool(images)
        self.panel.describe(streams, can_set="span" not in (self._pace or {}))

    def _show_images(self, arrived: Collection[str]) -> None:
        chosen = str(self.image_field.value)
        name, _, field = chosen.rpartition(".")
        if name in arrived and chosen in self.image_field.options:
            image = image_of(self.readings[name], field, truth=self.panel.shows_truth(name))
            if image is not None:
                twice = 2 if image.shape[1] < SMALL else 1
                self.image.image = image.repeat(twice, axis=0).repeat(twice, axis=1)


def _plottable(streams: Mapping[str, StreamInfo]) -> dict[str, FieldSpec]:
    """Return ``"sensor.field"`` -> spec of the fields that can be plotted over time."""
    return {
        f"{name}.{spec.name}": spec
        for name, info in streams.items()
        for spec in info.specs
        if not spec.is_ragged and spec.columns
    }


def _first_choices(fields: Mapping[str, FieldSpec]) -> Iterator[str]:
    """Yield the initial fields of the plots: vectors of different sensors first."""
    best = sorted(
        fields, key=lambda name: (fields[name].role not in ("specific_force", "vector_at"), fields[name].columns > 4)
    )
    names = [*dict.fromkeys(name.rpartition(".")[0] for name in best)]
    for k in range(PLOTS):
        sensor = names[k % len(names)] if names else ""
        yield next((name for name in best if name.rpartition(".")[0] == sensor), "none")
