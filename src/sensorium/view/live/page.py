"""The page: layout, and the loop that shows one frame after the other."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec
from sensorium.view.live.feed import Channel
from sensorium.view.live.frames import Frame
from sensorium.view.live.images import image_fields, image_of
from sensorium.view.live.overlays import Overlays
from sensorium.view.live.panel import SensorPanel
from sensorium.view.live.plots import Plot
from sensorium.view.live.web import serve
from sensorium.view.live.world3d import ORIGIN, World3d

LOG = logging.getLogger("sensorium.view")
SPEEDS = {"no limit": 0.0, "1/20": 0.05, "1/10": 0.1, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "5": 5.0}
ENLARGED = "<style>img[src^='blob:'] { width: 100%; image-rendering: pixelated }</style>"
"""Style of images, which the browser enlarges to the width of the panel."""
SMALL = 160
"""Width below which images are sent with twice their pixels: JPEG has half the resolution for colours."""
PLOTS = 2
"""Number of plots."""


class Page:
    """A page that shows the frames of a channel, until the channel is closed.

    Args:
        channel: connection to the loop, see `SceneFeed`.
        host: address to bind to.
        port: port; 0 for any.
        token: token that the page's URL must have; empty for none.
        title: title of the page.

    Attributes:
        server: the `viser.ViserServer`.
        url: address of the page on this machine, with the token.

    Raises:
        MissingDependencyError: viser is not installed.
    """

    def __init__(
        self, channel: Channel, *, host: str = "127.0.0.1", port: int = 0, token: str = "", title: str = "sensorium"
    ) -> None:
        self._channel, self._lock = channel, threading.Lock()
        self.server = serve(host, port, token, title)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server.get_port()}/{f'?token={token}' if token else ''}"
        self.readings: dict[str, Reading] = {}
        """Newest reading of each sensor, of the shown environment."""
        self.frame: Frame | None = None
        self._world: World3d | None = None
        self._origin = self.server.scene.add_frame(ORIGIN, show_axes=False)
        """Node of the whole scene. It moves against the followed body, so that no camera has to move."""
        self._overlays = Overlays(self.server.scene)
        self._is_waiting = True
        """Whether a frame was requested and has not arrived; the loop sends the first one without a request."""
        self._is_watched = False
        """Whether frames were requested since the last browser connected."""
        self._is_built = self._is_showing_time = False
        self.plots: list[Plot] = []
        self.sensors: Mapping[str, Mapping[str, Any]] = {}
        self._specs: dict[str, tuple[FieldSpec, ...]] = {}

    # The loop ---------------------------------------------------------------------------------------------------------

    def send(self, *command: Any) -> None:
        """Send a command to the loop; a closed loop ignores it."""
        try:
            with self._lock:
                self._channel.send(command)
        except OSError:
            pass

    def run(self) -> None:
        """Show frames until the loop ends; no work is done while no browser is connected."""
        try:
            while True:
                frame = self._channel.recv() if self._channel.poll(0.1) else None
                self._is_waiting = self._is_waiting and frame is None
                self._ask()  # for the next frame, before this one is shown
                if frame is not None:
                    self._try_to_show(frame)
        except (EOFError, OSError):
            pass
        finally:
            self.server.stop()

    def _ask(self) -> None:
        """Request a frame, or notify the loop that the last browser has left."""
        is_watched = bool(self.server.get_clients())
        if is_watched and not self._is_waiting and self._is_built:
            self._is_waiting = self._is_watched = True
            self._want()
        elif self._is_watched and not is_watched:
            self._is_waiting = self._is_watched = False
            self.send("leave")  # no readings, and no pause, for a page that no browser shows

    def _want(self) -> None:
        """Request a frame of the chosen environment, with the ground truth of the sensors that show it."""
        names = {*(plot.sensor for plot in self.plots), self.panel.chosen, *self.panel.true} - {""}
        self.send("want", int(self.env.value), tuple(names))

    def _try_to_show(self, frame: Frame) -> None:
        """Show a frame; an error is logged, and the next frame is tried."""
        try:
            self.show(frame)
        except Exception:
            LOG.exception("A frame of the live view could not be shown")

    def show(self, frame: Frame) -> None:
        """Show a frame."""
        with self.server.atomic():
            self._show(frame)

    def _show(self, frame: Frame) -> None:
        before, self.frame = self.frame, frame
        if frame.world is not None:
            self._set_world(frame.world)
        if frame.description is not None:
            self._describe(frame)
        for name, reading in frame.readings.items():
            reading.specs = self._specs.get(name, ())
        if before is None or before.env != frame.env or frame.time < before.time:
            self.readings.clear()
            for plot in self.plots:
                plot.restart()
        self.readings.update(frame.readings)
        if frame.notes:
            self._notify(frame.notes)
        if self._world is not None and frame.bodies is not None and len(frame.bodies):
            self._world.show(frame.bodies)
            self._follow(frame.bodies)
        drawn = [name for name in self.sensors if self.panel.draws(name, frame)]
        self._overlays.show(frame, self.readings, self.panel.shows_truth, drawn, self.panel.take_changed())
        for plot in self.plots:
            plot.add(self.readings)
        self._show_images()
        self.panel.show(frame, self.readings)
        paused = "paused" if frame.is_paused else "running"
        refusal = f"\n\n{frame.refusal}" if frame.refusal else ""
        self.status.content = f"**t = {frame.time:.3f} s** · environment {frame.env} · {paused}{refusal}"
        if self.buttons.options != (words := self._words(frame)):
            self.buttons.options = words
            self.speed.disabled = "speed" not in frame.can
        if frame.span is not None:
            self._is_showing_time = True
            self.seek.value = float(np.clip(frame.time, *frame.span))
            self._is_showing_time = False

    def _notify(self, notes: list[str]) -> None:
        """Show messages in all browsers."""
        with warnings.catch_warnings(action="ignore"):  # of viser, about a browser that is just leaving
            for client in self.server.get_clients().values():
                for note in notes:
                    client.add_notification("sensorium", note, color="red", auto_close_seconds=8.0)

    def do(self, word: str) -> None:
        """Perform the action of a button of the loop: ``play``, ``pause``, ``step``, ``reset`` or ``reset all``."""
        commands = {
            "play": ("pause", False), "pause": ("pause", True), "step": ("step",), "reset all": ("reset", None),
            "reset": ("reset", int(self.env.value)),
        }  # fmt: skip
        self.send(*commands[word])

    def _words(self, frame: Frame) -> tuple[str, ...]:
        """Return the buttons of the loop: those that its source accepts."""
        loop = [word for word in ("play", "pause", "step") if word.replace("play", "pause") in frame.can]
        resets = ["reset", *(["reset all"] if self._num_envs > 1 else [])] if "reset" in frame.can else []
        return (*loop, *resets)

    # Layout -----------------------------------------------------------------------------------------------------------

    def _build(self, frame: Frame) -> None:
        """Add the controls."""
        gui, description = self.server.gui, frame.description
        assert description is not None
        gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        self.status = gui.add_markdown("")
        self._num_envs = description.num_envs
        self.buttons = gui.add_button_group("loop", self._words(frame))
        self.buttons.on_click(lambda _: self.do(str(self.buttons.value)))
        chosen = min(SPEEDS, key=lambda name: abs(SPEEDS[name] - frame.speed))
        is_fixed = "speed" not in frame.can
        self.speed = gui.add_dropdown("speed", list(SPEEDS), initial_value=chosen, disabled=is_fixed)
        self.speed.on_update(lambda _: self.send("speed", SPEEDS[self.speed.value]))
        last = description.num_envs - 1
        self.env = gui.add_slider("environment", 0, max(last, 1), 1, frame.env, visible=last > 0)
        self.env.on_update(lambda _: self._want())
        self.follow = gui.add_checkbox("camera follows", True)
        first, end = frame.span or (0.0, 1.0)
        self.seek = gui.add_slider(
            "time [s]", first, max(end, first + 1e-3), 0.001, first, visible=frame.span is not None
        )
        self.seek.on_update(lambda _: None if self._is_showing_time else self.send("seek", float(self.seek.value)))
        self.tabs = gui.add_tab_group()
        fields = _plottable(description.sensors)
        with self.tabs.add_tab("Plots"):
            self.plots = [Plot(gui, fields, choice) for choice in _first_choices(fields)]
        with self.tabs.add_tab("Sensors") as tab:
            self.panel: SensorPanel = SensorPanel(gui, tab, self.send)
        with self.tabs.add_tab("Images"):
            gui.add_html(ENLARGED)
            self.image_field = gui.add_dropdown("image", ["none"])
            self.image = gui.add_image(np.zeros((2, 2, 3), np.uint8), format="jpeg", jpeg_quality=90)
        self._is_built = True

    def _describe(self, frame: Frame) -> None:
        """Apply a new description: sensors were added, removed or reconfigured."""
        assert frame.description is not None
        self.sensors = frame.description.sensors
        if not self._is_built:
            self._build(frame)
        fields = _plottable(self.sensors)
        for plot in self.plots:
            plot.set_fields(fields)
        self.readings = {name: reading for name, reading in self.readings.items() if name in self.sensors}
        self._overlays.describe(self.sensors)
        self._specs = {name: _specs(info) for name, info in self.sensors.items()}
        images = [f"{name}.{field}" for name, specs in self._specs.items() for field in image_fields(specs)]
        chosen = self.image_field.value
        self.image_field.options = images or ["none"]
        if chosen in images:
            self.image_field.value = chosen
        self.image.visible = bool(images)
        self.panel.describe(frame)

    def _set_world(self, data: bytes) -> None:
        if self._world is not None:
            self._world.remove()
        self._world = World3d(self.server, data)
        size = self._world.size
        self.server.initial_camera.position = (1.1 * size, -1.1 * size, 0.7 * size)
        self.server.initial_camera.look_at = (0.0, 0.0, 0.0)

    # Contents ---------------------------------------------------------------------------------------------------------

    def _show_images(self) -> None:
        name, _, field = str(self.image_field.value).rpartition(".")
        reading = self.readings.get(name)
        if reading is not None and name in self.frame.readings:  # type: ignore[union-attr]  # set by `_show`
            image = image_of(reading, field, truth=self.panel.shows_truth(name))
            if image is not None:
                twice = 2 if image.shape[1] < SMALL else 1
                self.image.image = image.repeat(twice, axis=0).repeat(twice, axis=1)

    def _follow(self, bodies: Array) -> None:
        """Keep the first moving body where the cameras look."""
        assert self._world is not None
        place = bodies[next(iter(self._world.moving), 0), :3]
        if self.follow.value and np.isfinite(place).all():
            self._origin.position = -place


def _specs(info: Mapping[str, Any]) -> tuple[FieldSpec, ...]:
    return tuple(FieldSpec.from_dict(each) for each in info["fields"])


def _plottable(sensors: Mapping[str, Mapping[str, Any]]) -> dict[str, FieldSpec]:
    """Return ``"sensor.field"`` -> spec of the fields that can be plotted over time."""
    return {
        f"{name}.{spec.name}": spec
        for name, info in sensors.items()
        for spec in _specs(info)
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
