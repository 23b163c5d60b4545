"""`sensorium serve`: simulate, and let other processes listen to the sensors. The docstring is what `--help` shows."""

from __future__ import annotations

import contextlib
import logging
import re
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.markup import escape
from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.checks import check_addresses, check_device_name, check_envs, check_files
from sensorium.cli.commands import INTERRUPTED
from sensorium.cli.messages import busy, live, note, stderr, stdout
from sensorium.cli.signals import ending
from sensorium.errors import ConfigError, UsageError, nearest

if TYPE_CHECKING:
    from rich.live import Live

    from sensorium.cli.simulation import OwnEngine
    from sensorium.scene import Scene
    from sensorium.stream.server import Server

TERMINATED = 143
"""Exit code after SIGTERM."""
ADDRESS = "tcp://127.0.0.1:7447"
EVERYWHERE = ("*", "0.0.0.0", "::")
"""Hosts that mean all interfaces."""
LOOK_EVERY = 0.2
"""Seconds between two looks at clients and at what is sent."""
RATE_OVER = 2.0
"""Seconds of wall clock that rates are taken over."""
CONTROLS = ("hold", "zero", "random", "client")
"""Words for `--control`."""
BOUNDS = ("max_queued_mb", "max_spawned_mb", "max_spawned_rays")
"""Options that bound what clients take."""
RESERVED = ("contact",)
"""Words for `--reserve`."""


@dataclass
class Serve:
    """Simulate a robot and let other processes listen to its sensors.

    The first line on stdout is the address, "listening at tcp://127.0.0.1:7447"; then comes what is served. Listen from
    another terminal with `sensorium listen ADDRESS`, or from Python with sensorium.connect(ADDRESS). Clients can spawn
    further sensors while it runs, e.g. sensor.other.safe_distance. On a terminal a line shows the frame, how fast it
    runs, clients, and what is sent; clients that are too slow are named. Ctrl-C ends it.

    MODEL is an MJCF or URDF file, or the word demo: the bundled quadruped, which walks over its ground until the
    server ends and needs no rig file.

    Only this machine can connect, unless --address says otherwise; then it needs --token-file or --keys. Secrets are no
    options, because other users of the machine can see those.

    For example:
      sensorium serve demo
      sensorium serve robot.xml --rig rig.toml --envs 4
      sensorium serve robot.xml --rig rig.toml --lockstep
      sensorium serve robot.xml --rig rig.toml --control my_gait:control --speed 0
      sensorium serve robot.xml --rig rig.toml --address tcp://127.0.0.1:0 --address ipc:///tmp/robot
      sensorium serve robot.xml --rig rig.toml --address tcp://0.0.0.0:7447 --keys server.keys
    """

    model: Annotated[Positional[str], arg(metavar="MODEL|demo")]
    """MJCF or URDF file, or demo."""
    rig: Annotated[Path | None, unset("RIG.toml", "none")] = None
    """Rig file: the sensors, as TOML (sensorium run --help shows one). Without it: the sensors that the model itself
    declares, or those of the demo."""
    envs: Annotated[int, arg(metavar="N")] = 1
    """Environments, each with its own noise."""
    address: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="ADDRESS")] = ()
    """Where it listens: tcp://HOST:PORT (port 0 takes a free one) or ipc:///path; may be given several times. Default:
    tcp://127.0.0.1:7447."""
    control: Annotated[str, unset("hold|zero|random|client|FILE.npz|module:function", "hold")] = ""
    """As for `sensorium run`, at most once a step; client: what clients set with client.control(ctrl). The demo trots
    where this is not given, and in lock-step it is always client."""
    lockstep: bool = False
    """Clients take the steps (client.step(ctrl)), and each step waits for listeners that must lose nothing."""
    speed: Annotated[float, arg(metavar="X")] = 1.0
    """Simulated seconds per second; 0: as fast as it goes."""
    substeps: Annotated[int, arg(metavar="N")] = 0
    """Physics ticks of a step, at whose end sensors are looked at; 0: one for hold and files, else what makes 10 ms."""
    seconds: Annotated[float, arg(metavar="S")] = 0.0
    """Simulated time after which it ends; 0: at Ctrl-C."""
    reserve: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="contact|RIG.toml")] = ()
    """Prepare the model for sensors that clients may spawn later and that must be known at start: contact for
    collisions of any body, contact=PATTERN for those of the bodies whose names match, a rig file for sensors like those
    in it. Others need no word."""
    token_file: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the token that clients must have; made where it does not exist. Or set SENSORIUM_TOKEN."""
    keys: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the server's keys; made where it does not exist. Everything is encrypted then, and clients need the
    public key, which is printed."""
    allow_key: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY")] = ()
    """Public key of a client that may connect, with --keys; may be given several times. Without it: all that know the
    server's."""
    max_spawned_mb: Annotated[float, arg(metavar="MB")] = 1024.0
    """Most memory of the sensors that clients spawn, all of them together."""
    max_spawned_rays: Annotated[int, arg(metavar="N")] = 5_000_000
    """Most rays that these sensors cast for one sample each, in all environments together."""
    max_queued_mb: Annotated[float, arg(metavar="MB")] = 1024.0
    """Most memory of messages that wait for clients or are on their way to them, all clients together."""
    engine: Literal["mujoco", "mujoco_warp"] = "mujoco"
    """What steps the physics: MuJoCo on the CPU, or MuJoCo Warp, which is for many environments on a GPU."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Where the sensors compute: cpu, cuda or cuda:INDEX."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of every random number."""
    first_env: Annotated[int | None, unset("K", "0")] = None
    """Global index of env 0, if this process simulates a slice of a larger run: env 0 then has the noise of env K."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        self._check()
        addresses = list(self.address) or [ADDRESS]
        keys, token = self._secrets(addresses)
        check_addresses(addresses)
        with busy("loading"):
            if self.control not in ("", *CONTROLS):
                from sensorium.cli.control import check_control

                check_control(self.control, CONTROLS)
            import sensorium.sensors.all  # noqa: F401 - registers our sensors, also where the package is not installed
            from sensorium.cli.rig import load_rig
            from sensorium.cli.simulation import check_device

            rig = load_rig(self.rig)[0] if self.rig is not None else None
            reserved = [cfg for word in self.reserve if word.endswith(".toml") for cfg in load_rig(Path(word))[0]]
            check_device(self.device)
            engine, scene, title = self._scene(rig, reserved)
            control, substeps = self._control(scene, engine)
        with _logged(), ending(signal.SIGINT, signal.SIGTERM) as ended:
            with self._server(scene, addresses, keys, token) as server:
                self._announce(server, title, has_token=bool(token), public_key=keys.public if keys else "")
                start = scene.tick
                last = start + round(self.seconds / engine.dt) if self.seconds else None

                def is_over() -> bool:
                    watch.look()
                    return bool(ended) or (last is not None and scene.tick >= last)

                with _Watch(server, engine.dt) as watch:
                    server.run(control, substeps=substeps, speed=self.speed, until=is_over)
                why = {0: "its time is over", signal.SIGTERM: "it was terminated"}.get(ended[0] if ended else 0)
                server.close(why or "it was interrupted")
                passed = (scene.tick - start) * engine.dt
            if ended:
                note(f"ended after {_many(server.frame, 'frame')}, {passed:.4g} s of simulation")
        return {0: 0, signal.SIGTERM: TERMINATED}.get(ended[0] if ended else 0, INTERRUPTED)

    # Options ----------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Refuse what can be seen to be wrong at once."""
        from sensorium.cli.rig import check_rig

        check_envs(self.envs, self.first_env or 0)
        check_device_name(self.device)
        if not 0.0 <= self.speed < float("inf"):
            raise UsageError.of("--speed", self.speed, "a number >= 0", "1 is real time, 0 as fast as it goes.")
        if not 0.0 <= self.seconds < float("inf"):
            raise UsageError.of("--seconds", self.seconds, "a time >= 0, in seconds", "0 goes on until Ctrl-C.")
        if self.substeps < 0:
            raise UsageError.of("--substeps", self.substeps, "a whole number >= 0", "0 takes what suits the control.")
        if self.lockstep and self.control not in ("", "client"):
            raise UsageError.of("--control", self.control, "nothing beside --lockstep", "Clients give the controls.")
        if self.lockstep and self.substeps:
            raise UsageError.of("--substeps", self.substeps, "nothing beside --lockstep", "Clients say: client.step.")
        if self.model == "demo" and self.engine != "mujoco":
            raise UsageError.of("--engine", self.engine, "mujoco for the demo", "Serve a model file on another engine.")
        for word in self.reserve:
            if word.partition("=")[0] not in RESERVED and not word.endswith(".toml"):
                hint = nearest(word.partition("=")[0], RESERVED).strip()
                expected = "contact, contact=PATTERN or a rig file (.toml)"
                raise UsageError.of("--reserve", word, expected, hint or "Other sensors can be spawned as they are.")
        check_files(None if self.model == "demo" else self.model, self.rig)
        for word in self.reserve:
            if word.endswith(".toml"):
                check_rig(Path(word))

    def _secrets(self, addresses: list[str]) -> tuple[Any, str]:
        """Return the server's keys and the token, and refuse what others can reach without either."""
        from sensorium.stream.security import KeyPair, check_key, is_loopback, split
        from sensorium.wire.keyfiles import find_keys, find_token

        if self.allow_key and self.keys is None:
            raise UsageError.of("--allow-key", self.allow_key[0], "--keys beside it", "Add --keys FILE.")
        for key in self.allow_key:
            try:
                check_key("serve", "allowed_keys", key)
            except ConfigError:
                fix = "`sensorium listen ADDRESS --keys FILE` prints that of a client."
                raise UsageError.of("--allow-key", key, "a public key of 40 characters", fix) from None
        with UsageError.naming(file="--keys"):
            keys = KeyPair(*find_keys(self.keys)) if self.keys is not None else None
        with UsageError.naming(file="--token-file"):
            token = find_token(self.token_file, make=True)
        for address in addresses:
            with UsageError.naming(address="--address"):
                scheme, host = split(address)
            if scheme == "inproc":
                raise UsageError.of("--address", address, "tcp://HOST:PORT or ipc:///path", f"Use {ADDRESS}.")
            if scheme == "tcp" and not is_loopback(host) and keys is None and not token:
                raise UsageError.of(
                    "--address",
                    address,
                    "one of this machine only, such as tcp://127.0.0.1:7447, or --token-file or --keys beside it",
                    "Others could read the sensors and move the robot: add --keys FILE (made on first use).",
                )
        return keys, token

    # The simulation ---------------------------------------------------------------------------------------------------

    def _scene(self, rig: list[Any] | None, reserved: list[Any]) -> tuple[OwnEngine, Scene, str]:
        from sensorium.cli import demo
        from sensorium.cli.rig import naming_tables
        from sensorium.cli.simulation import load_model
        from sensorium.scene import Scene

        engine: OwnEngine
        if self.model == "demo":
            engine, title = demo.quadruped(self.envs, self.seed, self.device), demo.TITLE
            configs = demo.sensors() if rig is None else rig
        else:
            engine, title = load_model(Path(self.model), self.envs, self.device, self.engine), self.model
            configs = rig or []
        for word in self.reserve:
            if not word.endswith(".toml"):
                from sensorium.stream.collision import reserve_contact

                reserved += reserve_contact(engine, word.partition("=")[2] or ".*")
        with naming_tables(self.rig, configs):
            scene = Scene(
                engine, configs, seed=self.seed, first_env=self.first_env, reserve=reserved, discover=rig is None
            )
        return engine, scene, title

    def _server(self, scene: Scene, addresses: list[str], keys: Any, token: str) -> Server:
        from sensorium.stream.server import serve

        bounds = {name: getattr(self, name) for name in BOUNDS}
        with UsageError.naming(**{name: f"--{name.replace('_', '-')}" for name in BOUNDS}):
            return serve(
                scene, addresses, token=token, keys=keys, allowed_keys=self.allow_key, lockstep=self.lockstep, **bounds
            )

    def _control(self, scene: Scene, engine: OwnEngine) -> tuple[Callable[[], Any] | None, int]:
        """Return what gives the controls of a step (None: clients do), and the ticks of a step."""
        from sensorium.cli import demo
        from sensorium.cli.control import CONTROL_PERIOD, control_for

        slow = max(1, round(CONTROL_PERIOD / engine.dt))
        if self.lockstep or self.control == "client":
            return None, self.substeps or slow
        if self.model == "demo" and not self.control:
            control, every = demo.trot(engine), slow
        else:
            control, every = control_for(self.control or "hold", engine, self.seed, max(1, self.substeps))
        substeps = self.substeps or every
        start, due = scene.tick, scene.tick

        def controls() -> Any:
            nonlocal due
            if scene.tick < due:
                return None
            due = scene.tick + every
            return control(scene, (scene.tick - start) * engine.dt)

        return controls, substeps

    # What it says -----------------------------------------------------------------------------------------------------

    def _announce(self, server: Server, title: str, *, has_token: bool, public_key: str) -> None:
        from sensorium.cli.listen import catalogue_table

        console, scene = stdout(), server.scene
        for address in server.addresses:
            console.print(f"listening at {address}", markup=False, soft_wrap=True)
        if public_key:
            console.print(f"public key {public_key}", markup=False, soft_wrap=True)
        mode = "clients take the steps (lock-step)"
        if not self.lockstep:
            mode = f"at {self.speed:g} x real time" if self.speed else "as fast as it goes"
        envs = f"{scene.num_envs} env{'s' if scene.num_envs > 1 else ''}"
        console.print(f"\n{title}: {envs}, {scene.engine.dt * 1e3:.4g} ms per tick, {mode}", markup=False, style="bold",
                      soft_wrap=True)  # fmt: skip
        console.print(catalogue_table(server.streams.values(), console.width))
        command = f"sensorium listen {_reachable(server.address)}"
        if public_key:
            command += f" --server-key={shlex.quote(public_key)}"
        if has_token:
            command += f" --token-file {shlex.quote(str(self.token_file))}" if self.token_file else ""
        names = [name for name, info in server.streams.items() if not info.events]
        console.print(f"listen from another terminal: {command} {names[0] if names else ''}".rstrip(), markup=False,
                      soft_wrap=True)  # fmt: skip
        console.file.flush()


def _reachable(address: str) -> str:
    """Return an address as others can use it: this machine's name instead of all interfaces."""
    match = re.fullmatch(r"tcp://\[?(.*?)\]?:(\d+)", address)
    return f"tcp://{socket.gethostname()}:{match[2]}" if match and match[1] in EVERYWHERE else address


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Show what the server logs, as one line each."""
    log, handler = logging.getLogger("sensorium.stream"), _Lines(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _warn(self.format(record))


def _warn(text: str) -> None:
    stderr().print(f"[bold yellow]warning:[/] {escape(text)}", soft_wrap=True)


class _Watch:
    """What happens while it serves: a live line where stderr is a terminal, and a line for each thing to know.

    Args:
        server: the server.
        dt: physics time step, s.
    """

    def __init__(self, server: Server, dt: float) -> None:
        self._server, self._dt = server, dt
        self._clients: list[str] = []
        self._next = 0.0
        self._marks: list[tuple[float, int, int]] = []
        self._live: Live | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> _Watch:
        console = stderr()
        if console.is_terminal:
            from rich.live import Live

            self._live = self._open.enter_context(Live(console=console, auto_refresh=False, transient=True))
            self._open.enter_context(live(console))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def look(self) -> None:
        """Say what is new, where some time has passed since the last look."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        server = self._server
        clients = server.client_names
        for name in clients:
            if name not in self._clients:
                note(f"client {name} is connected")
        for name in self._clients:
            if name not in clients:
                note(f"client {name} is gone")
        self._clients = clients
        for text in server.complaints():
            _warn(text)
        if self._live is not None:
            self._live.update(self._line(now), refresh=True)

    def _line(self, now: float) -> str:
        server, marks = self._server, self._marks
        marks.append((now, server.scene.tick, server.sent_bytes))
        while len(marks) > 2 and now - marks[0][0] > RATE_OVER:
            marks.pop(0)
        (_, tick, sent), span = marks[0], max(now - marks[0][0], 1e-9)
        speed = (server.scene.tick - tick) * self._dt / span
        counts = server.counts
        return escape(
            f"frame {server.frame}, {server.scene.time:.1f} s, {speed:.2f} x real time | "
            f"{_many(counts.sessions, 'client')}, {_many(counts.subscriptions, 'subscription')}, "
            f"{(server.sent_bytes - sent) / span * 1e-6:.3g} MB/s"
        )


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
