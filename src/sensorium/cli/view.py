"""`sensorium view`: a live view in the browser. `--help` shows the docstring."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from sensorium.cli.arguments import RIG, unset
from sensorium.cli.commands import INTERRUPTED, Driven, Run, ticks_left
from sensorium.cli.messages import busy, note
from sensorium.demo.robots import ROBOTS
from sensorium.errors import UsageError
from sensorium.jobs.models import EngineName

if TYPE_CHECKING:
    from sensorium.view.live.handle import LiveView

PERIOD = 0.01
"""Simulated time between two checks of the page while a recording or a trajectory is shown, s."""


@dataclass
class View(Driven):
    """Show a robot, a trajectory, a recording or a served simulation in the browser.

    The page shows the robot in its world, the drawings of its sensors, a list of all sensors, live plots of true and
    measured values, and images. Its controls are play, pause, step, speed, reset, environment, and the knobs of each
    sensor. The first line on stdout is its address. Ctrl-C ends it.

    SOURCE is an MJCF or URDF file with --rig, the name of a bundled robot (demo or arm), or a recording: an MCAP file
    or a ROS 2 bag. It may also be the address of a simulation that is served by sensorium serve or sensorium.serve.
    With --trajectory there is no SOURCE: a body moves along the trajectory. The page waits at its end, and a reset
    starts it again.

    For example:
      sensorium view demo
      sensorium view arm
      sensorium view robot.xml --rig rig.toml --envs 4
      sensorium view --trajectory drone --world hall --rig rig.toml
      sensorium view run.mcap
      sensorium view tcp://127.0.0.1:7447
    """

    source: Annotated[Positional[str], unset("[MODEL|RECORDING|ADDRESS]", "")] = ""
    """Source to show; see above. Omit it with --trajectory."""
    rig: Annotated[Path | None, unset("RIG", "the sensors of a bundled robot"), RIG] = None
    """Rig file: the sensors of a model, as TOML. All sensors are drawn, unless some have debug_vis = true."""
    envs: Annotated[int, arg(metavar="N")] = 4
    """Number of environments of a model or a trajectory."""
    control: Annotated[str, arg(metavar="hold|zero|random|FILE.npz|FILE.mcap|module:function")] = "hold"
    """Control of a model, as for `sensorium run`; with hold, bundled robots move by themselves."""
    speed: Annotated[float, arg(metavar="X")] = 1.0
    """Simulated seconds per second of wall-clock time at the start; 0: as fast as possible. A free-running served
    simulation keeps its own speed."""
    seconds: Annotated[float, arg(metavar="S")] = 0.0
    """End S seconds of wall-clock time after the address was printed; 0 runs until Ctrl-C."""
    host: Annotated[str, arg(metavar="HOST")] = "127.0.0.1"
    """Address of the page; 0.0.0.0 opens it to other machines, with a random token in its address."""
    port: Annotated[int, arg(metavar="P")] = 8080
    """Port of the page; the next free one is taken."""
    token_file: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the token of a served simulation. Alternatively set SENSORIUM_TOKEN."""
    server_key: Annotated[str, unset("KEY", "none")] = ""
    """Public key of a served simulation, if it uses keys."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of all random numbers of a model."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Device of the sensors of a model: cpu, cuda or cuda:INDEX."""
    engine: EngineName = "mujoco"
    """Physics engine of a model, as for `sensorium run`."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if not 0.0 <= self.speed < float("inf"):
            raise UsageError.of("--speed", self.speed, "a number >= 0", "Give 1 for real time, 0 for no limit.")
        from sensorium.record.replay import SUFFIXES

        try:
            if not self.source or any(self.path.values()):
                self._show_model()
            elif re.match(r"(tcp|ipc)://", self.source):
                self._show_served()
            elif self.source.endswith(SUFFIXES) or (self.source not in ROBOTS and Path(self.source).is_dir()):
                self._show_recording()
            else:
                self._show_model()
        except KeyboardInterrupt:
            note("ended")
            return INTERRUPTED
        return 0

    def _opened(self, scene: object, speed: float) -> LiveView:
        from sensorium.view.live.handle import LiveView

        view = LiveView(scene, host=self.host, port=self.port, speed=speed)
        self._end = self._end_from_now()
        return view

    def _end_from_now(self) -> float:
        return time.monotonic() + self.seconds if self.seconds else float("inf")

    def _is_over(self, view: LiveView) -> bool:
        return view.is_closed or time.monotonic() > self._end

    def _show_model(self) -> None:
        from sensorium.cli.simulation import check_device

        run = Run(
            Path(self.source) if self.source else None, self.rig, self.envs, seed=self.seed, device=self.device,
            engine=self.engine, control=self.control, **self.path,
        )  # fmt: skip
        drive = run.drive()
        with busy("loading"):
            scene, _, control, every = run.built(drive, lambda: check_device(self.device), draws=True)
        start, period = scene.tick, max(1, round(PERIOD / scene.engine.dt))
        with self._opened(scene, self.speed) as view:
            while not self._is_over(view):
                ticks = every if drive is None else min(period, ticks_left(scene))
                if ticks:
                    scene.step(control(scene, (scene.tick - start) * scene.engine.dt), ticks)
                else:
                    view.wait(0.1)

    def _show_recording(self) -> None:
        from sensorium.record.replay_scene import ReplayScene

        with busy("loading"):
            scene = ReplayScene(self.source)
        ticks = max(1, round(PERIOD / scene.engine.dt))
        with self._opened(scene, self.speed) as view:
            while not view.is_watched and not self._is_over(view):
                view.wait(0.1)  # it starts with the first browser
            while not self._is_over(view):
                if scene.is_over:
                    view.wait(0.1)
                else:
                    scene.step(substeps=ticks)

    def _show_served(self) -> None:
        from sensorium.cli.monitor import Options
        from sensorium.view.live.page import Page
        from sensorium.view.live.web import check_host, checked_token

        check_host(self.host)
        options = Options(self.source, token_file=self.token_file, server_key=self.server_key)
        with options.connect("sensorium view") as client:
            page = Page(client, host=self.host, port=self.port, token=checked_token(self.host, ""), speed=self.speed)
            print(f"live view: {page.url}", flush=True)
            end = self._end_from_now()
            page.run(lambda: time.monotonic() > end)
