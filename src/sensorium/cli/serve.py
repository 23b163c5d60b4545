"""`sensorium serve`: simulates a robot and serves its sensors to other processes. `--help` shows the docstring."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape
from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import RIG, unset
from sensorium.cli.checks import check_addresses, check_device_name, check_envs, check_files
from sensorium.cli.commands import INTERRUPTED, NAMED, Driven, Run, ticks_left
from sensorium.cli.messages import busy, live, note, stderr, stdout, warn
from sensorium.cli.signals import ending
from sensorium.demo import robots
from sensorium.errors import ConfigError, UsageError, nearest
from sensorium.jobs.models import EngineName

if TYPE_CHECKING:
    from rich.live import Live

    from sensorium.engines.base import Engine
    from sensorium.jobs.drives import Drive
    from sensorium.scene import Scene
    from sensorium.stream.server import Server

TERMINATED = 143
"""Exit code after SIGTERM."""
ADDRESS = "tcp://127.0.0.1:7447"
EVERYWHERE = ("*", "0.0.0.0", "::")
"""Host names that mean all interfaces."""
REPLAY_STEP = 1e-3
"""Simulated time per step of a replay with a shorter time step, such as that of a bag, s."""
LOOK_EVERY = 0.2
"""Seconds between two checks of clients and of the amount of sent data."""
RATE_OVER = 2.0
"""Wall-clock interval for the computation of rates, s."""
CONTROLS = ("hold", "zero", "random", "client")
"""Names accepted by `--control`."""
BOUNDS = ("max_queued_mb", "max_spawned_mb", "max_spawned_rays")
"""Options that limit the resources of clients."""
RESERVED = ("contact",)
"""Words accepted by `--reserve`."""


@dataclass
class Serve(Driven):
    """Simulate a robot, or move along a trajectory, and serve its sensors to other processes.

    The first line on stdout is the address, "listening at tcp://127.0.0.1:7447"; then the served sensors are listed.
    Listen from another terminal with `sensorium listen ADDRESS`, or from Python with sensorium.connect(ADDRESS).
    Clients can spawn further sensors at run time, e.g. sensor.other.safe_distance. On a terminal a status line shows
    the frame, the simulation speed, the clients, and the data rate; clients that are too slow are reported. Ctrl-C
    stops the server.

    MODEL is an MJCF or URDF file, or a bundled robot: demo or arm. Bundled robots move until the server stops and need
    no rig file. With --replay, the sensors of a recording are served instead of a simulation. With --trajectory, a body
    moves along a trajectory, and the server stops at its end.

    By default, only this machine can connect. An --address for other machines requires --token-file or --keys. Secrets
    are not options, because other users of the machine can see those.

    For example:
      sensorium serve demo
      sensorium serve robot.xml --rig rig.toml --envs 4
      sensorium serve robot.xml --rig rig.toml --lockstep
      sensorium serve robot.xml --rig rig.toml --control my_gait:control --speed 0
      sensorium serve robot.xml --rig rig.toml --address tcp://127.0.0.1:0 --address ipc:///tmp/robot
      sensorium serve robot.xml --rig rig.toml --address tcp://0.0.0.0:7447 --keys server.keys
      sensorium serve --trajectory drone --world hall --rig rig.toml
      sensorium serve --replay run.mcap
      sensorium serve demo --foxglove
    """

    model: Annotated[Positional[str], unset("MODEL|demo|arm", "")] = ""
    """MJCF or URDF file, demo or arm; omit it with --replay or --trajectory."""
    replay: Annotated[Path | None, unset("FILE.mcap", "none")] = None
    """Recording to serve; it starts with the first subscription, and the server stops at its end."""
    rig: Annotated[Path | None, unset("RIG", "none"), RIG] = None
    """Rig file: the sensors, as TOML (sensorium run --help shows an example). By default: the sensors that the model
    itself declares, or those of a bundled robot."""
    envs: Annotated[int, arg(metavar="N")] = 1
    """Number of environments, each with its own noise."""
    address: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="ADDRESS")] = ()
    """Address of the server: tcp://HOST:PORT (port 0 selects a free one) or ipc:///path; may be repeated. Default:
    tcp://127.0.0.1:7447."""
    control: Annotated[str, unset("hold|zero|random|client|FILE.npz|FILE.mcap|module:function", "hold")] = ""
    """As for `sensorium run`, at most once per step; client: the controls that clients set with client.control(ctrl).
    By default a bundled robot moves by itself. In lock-step it is always client."""
    lockstep: bool = False
    """Clients control the steps (client.step(ctrl)), and each step waits for lossless listeners."""
    speed: Annotated[float, arg(metavar="X")] = 1.0
    """Simulated seconds per second of wall-clock time; 0: as fast as possible."""
    substeps: Annotated[int, arg(metavar="N")] = 0
    """Physics ticks per step, after which sensors are sampled; 0: one for hold and files, otherwise those of 10 ms."""
    seconds: Annotated[float, arg(metavar="S")] = 0.0
    """Simulated time after which the server stops, s; 0: runs until Ctrl-C."""
    reserve: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="contact|RIG.toml")] = ()
    """Prepare the model for sensors that clients may spawn later and that must be known at the start. contact:
    collisions of any body. contact=PATTERN: collisions of matching bodies. A rig file: sensors like those in it. Other
    sensors need no preparation."""
    token_file: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the token that clients must present; created if missing. Alternatively set SENSORIUM_TOKEN."""
    keys: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the server's keys; created if missing. All traffic is then encrypted, and clients need the public key,
    which is printed."""
    allow_key: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY")] = ()
    """Public key of a client that may connect, with --keys; may be repeated. By default: all clients that know the
    server's key."""
    max_spawned_mb: Annotated[float, arg(metavar="MB")] = 1024.0
    """Maximum total memory of the sensors that clients spawn."""
    max_spawned_rays: Annotated[int, arg(metavar="N")] = 5_000_000
    """Maximum total number of rays of these sensors per sample, in all environments."""
    max_queued_mb: Annotated[float, arg(metavar="MB")] = 1024.0
    """Maximum total memory of messages that are queued for clients or being sent to them."""
    foxglove: bool = False
    """Also serve the Foxglove app: images, clouds, transforms and values at ws://localhost:8765. This needs
    foxglove-sdk (sensorium[foxglove]), and is open to all programs and web pages on this machine."""
    foxglove_port: Annotated[int, arg(metavar="P")] = 8765
    """Port for Foxglove; 0 selects a free one."""
    engine: EngineName = "mujoco"
    """Physics engine; see `sensorium run --help`."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Device of the sensors: cpu, cuda or cuda:INDEX."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of all random numbers."""
    first_env: Annotated[int | None, unset("K", "0")] = None
    """Global index of env 0, if this process simulates a slice of a larger run; see `sensorium run --help`."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        self._check()
        run = self._run
        drive = run.drive() if self.replay is None else None
        addresses = list(self.address) or [ADDRESS]
        keys, token = self._secrets(addresses)
        check_addresses(addresses)
        with busy("loading"):
            if self.control not in ("", *CONTROLS):
                from sensorium.jobs.control import check_control

                NAMED(check_control)(self.control, CONTROLS)
            import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed
            from sensorium.cli.simulation import check_device
            from sensorium.jobs.rig import load_rig

            rig = load_rig(self.rig)[0] if self.rig is not None else None
            reserved = [cfg for word in self.reserve if word.endswith(".toml") for cfg in load_rig(Path(word))[0]]
            control: Callable[[], Any] | None
            scene: Any
            if self.replay is None:
                check_device(self.device)
                scene, title = self._scene(run, drive, rig, reserved)
                control, substeps = self._control(scene)
            else:
                scene, title, control = self._recorded(), f"replay of {self.replay}", None
                substeps = self.substeps or max(1, round(REPLAY_STEP / scene.engine.dt))
        with ending(signal.SIGINT, signal.SIGTERM) as ended:
            with self._server(scene, addresses, keys, token) as server, contextlib.ExitStack() as bridges:
                port = self._foxglove(server, bridges) if self.foxglove else 0
                self._announce(server, title, has_token=bool(token), public_key=keys.public if keys else "", port=port)
                start, dt = scene.tick, scene.engine.dt
                last = start + round(self.seconds / dt) if self.seconds else None

                def is_over() -> bool:
                    watch.look()
                    done = self.replay is not None and scene.is_over
                    if drive is not None and not self.lockstep:  # in lock-step, clients may reset
                        done = ticks_left(scene) < substeps
                    return bool(ended) or done or (last is not None and scene.tick >= last)

                with _Watch(server, dt) as watch:
                    while self.replay is not None and not server.counts.subscriptions and not ended:
                        server.poll(LOOK_EVERY)
                        watch.look()
                    server.run(control, substeps=substeps, speed=self.speed, until=is_over)
                why = {0: "its time is over", signal.SIGTERM: "it was terminated"}.get(ended[0] if ended else 0)
                server.close(why or "it was interrupted")
                passed = (scene.tick - start) * dt
            if ended:
                note(f"ended after {_many(server.frame, 'frame')}, {passed:.4g} s of simulation")
        return {0: 0, signal.SIGTERM: TERMINATED}.get(ended[0] if ended else 0, INTERRUPTED)

    # Options ----------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Reject options that are invalid in themselves."""
        from sensorium.jobs.rig import tables_of

        check_envs(self.envs, self.first_env or 0)
        check_device_name(self.device)
        if not 0.0 <= self.speed < float("inf"):
            fix = "Give 1 for real time, 0 for as fast as possible."
            raise UsageError.of("--speed", self.speed, "a number >= 0", fix)
        if not 0.0 <= self.seconds < float("inf"):
            raise UsageError.of("--seconds", self.seconds, "a time >= 0, in seconds", "Give 0 to run until Ctrl-C.")
        if self.substeps < 0:
            raise UsageError.of("--substeps", self.substeps, "a whole number >= 0", "Give 0 to choose by the control.")
        if self.lockstep and self.control not in ("", "client"):
            fix = "Omit it, since clients set the controls."
            raise UsageError.of("--control", self.control, "no control with --lockstep", fix)
        if self.lockstep and self.substeps:
            fix = "Omit it, since clients set them in client.step."
            raise UsageError.of("--substeps", self.substeps, "no substeps with --lockstep", fix)
        if self.replay is not None and (self.model or self.trajectory):
            given = f"{self.model or self.trajectory} --replay {self.replay}"
            raise UsageError.of("MODEL, --replay", given, "either a model or a recording", "Omit one of them.")
        if self.replay is None and not self.model and not self.trajectory:
            fix = "Use for example: sensorium serve demo"
            raise UsageError.of("MODEL, --trajectory, --replay", "", "a model, a trajectory or a recording", fix)
        if self.replay is not None:
            for option in ("rig", "control", "lockstep", "reserve", "first_env", *self.path):
                if value := getattr(self, option):
                    name = f"--{option.replace('_', '-')}"
                    raise UsageError.of(name, str(value), f"no {name} with --replay", "Omit it.")
        if self.model in robots.ROBOTS and self.engine != "mujoco":
            raise UsageError.of("--engine", self.engine, "mujoco for the demo", "Omit --engine, or serve a model file.")
        for word in self.reserve:
            if word.partition("=")[0] not in RESERVED and not word.endswith(".toml"):
                hint = nearest(word.partition("=")[0], RESERVED).strip()
                fix = hint or "Omit it for other sensors, which can be spawned without preparation."
                raise UsageError.of("--reserve", word, "contact, contact=PATTERN or a rig file (.toml)", fix)
        check_files(self.model if self.model not in ("", *robots.ROBOTS) else None, self.rig)
        for word in self.reserve:
            if word.endswith(".toml"):
                tables_of(Path(word))

    def _secrets(self, addresses: list[str]) -> tuple[Any, str]:
        """Return the server's keys and the token; reject addresses open to other machines without either."""
        from sensorium.stream.security import KeyPair, check_key, is_loopback
        from sensorium.wire.address import split
        from sensorium.wire.keyfiles import find_keys, find_token

        if self.allow_key and self.keys is None:
            raise UsageError.of("--allow-key", self.allow_key[0], "--keys as well", "Add --keys FILE.")
        for key in self.allow_key:
            try:
                check_key("serve", "allowed_keys", key)
            except ConfigError:
                fix = "Run `sensorium listen ADDRESS --keys FILE` to print a client's key."
                raise UsageError.of("--allow-key", key, "a public key of 40 characters", fix) from None
        with UsageError.naming(file="--keys"):
            keys = KeyPair(*find_keys(self.keys)) if self.keys is not None else None
        with UsageError.naming(file="--token-file"):
            token = find_token(self.token_file, make=True)
        for address in addresses:
            with UsageError.naming(address="--address"):
                scheme, host = split("stream", address)
            if scheme == "inproc":
                raise UsageError.of("--address", address, "tcp://HOST:PORT or ipc:///path", f"Use {ADDRESS}.")
            if scheme == "tcp" and not is_loopback(host) and keys is None and not token:
                expected = "an address of this machine only, such as tcp://127.0.0.1:7447, or --token-file or --keys"
                fix = "Add --keys FILE (created on first use); otherwise others could read sensors and move the robot."
                raise UsageError.of("--address", address, expected, fix)
        return keys, token

    # The simulation ---------------------------------------------------------------------------------------------------

    def _scene(self, run: Run, drive: Drive | None, rig: list[Any] | None, reserved: list[Any]) -> tuple[Scene, str]:
        from sensorium.jobs.rig import load_rig

        robot, patterns = robots.ROBOTS.get(self.model), [each for each in self.reserve if not each.endswith(".toml")]
        sensors = rig if rig is not None else [] if robot is None else load_rig(robot.rig)[0]

        def reserve(engine: Engine) -> list[Any]:
            from sensorium.sensors.contact.collision import reserve_contact

            return [*reserved, *chain(*(reserve_contact(engine, each.partition("=")[2] or ".*") for each in patterns))]

        return run.scene(drive, sensors, discover=rig is None, reserve=reserve), run.title

    @property
    def _run(self) -> Run:
        """The command `run` with the same simulation."""
        return Run(
            Path(self.model) if self.model else None, self.rig, self.envs, seed=self.seed, first_env=self.first_env,
            device=self.device, engine=self.engine, control=self.control or "hold", **self.path,
        )  # fmt: skip

    def _recorded(self) -> Any:
        """Return the recording, which replaces a scene."""
        from sensorium.record.replay_scene import ReplayScene

        assert self.replay is not None
        scene = ReplayScene(self.replay)
        if not scene.replay.description.sensors:
            raise UsageError.of("--replay", str(self.replay), "a recording with sensors", "It has none to serve.")
        return scene

    def _server(self, scene: Scene, addresses: list[str], keys: Any, token: str) -> Server:
        from sensorium.stream.server import serve

        bounds = {name: getattr(self, name) for name in BOUNDS}
        with UsageError.naming(**{name: f"--{name.replace('_', '-')}" for name in BOUNDS}):
            return serve(
                scene, addresses, token=token, keys=keys, allowed_keys=self.allow_key, lockstep=self.lockstep, **bounds
            )

    def _foxglove(self, server: Server, bridges: contextlib.ExitStack) -> int:
        """Start to serve Foxglove, and return the port."""
        from sensorium.bridges.foxglove import FoxgloveServer
        from sensorium.local import local_client

        client = bridges.enter_context(local_client(server.scene, server=server, name="foxglove"))
        return bridges.enter_context(FoxgloveServer(client, self.foxglove_port)).port

    def _control(self, scene: Scene) -> tuple[Callable[[], Any] | None, int]:
        """Return the source of the controls of a step (None: clients), and the ticks of a step."""
        from sensorium.jobs.control import CONTROL_PERIOD, control_for

        slow = max(1, round(CONTROL_PERIOD / scene.engine.dt))
        if self.lockstep or self.control == "client":
            return None, self.substeps or slow
        robot = None if self.control else robots.ROBOTS.get(self.model)
        control, every = NAMED(control_for)(self.control or "hold", scene, max(1, self.substeps), robot)
        control = NAMED(control)
        substeps = self.substeps or every
        start, due = scene.tick, scene.tick

        def controls() -> Any:
            nonlocal due
            if scene.tick < due:
                return None
            due = scene.tick + every
            return control(scene, (scene.tick - start) * scene.engine.dt)

        return controls, substeps

    # Output -----------------------------------------------------------------------------------------------------------

    def _announce(self, server: Server, title: str, *, has_token: bool, public_key: str, port: int) -> None:
        from sensorium.cli.listen import catalogue_table

        console, scene = stdout(), server.scene
        for address in server.addresses:
            console.print(f"listening at {address}", markup=False, soft_wrap=True)
        if public_key:
            console.print(f"public key {public_key}", markup=False, soft_wrap=True)
        if self.foxglove:
            console.print(f"Foxglove at ws://localhost:{port}", markup=False, soft_wrap=True)
        mode = "clients control the steps (lock-step)"
        if not self.lockstep:
            mode = f"at {self.speed:g} x real time" if self.speed else "as fast as possible"
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
    """Return an address for other machines: this machine's name instead of all interfaces."""
    match = re.fullmatch(r"tcp://\[?(.*?)\]?:(\d+)", address)
    return f"tcp://{socket.gethostname()}:{match[2]}" if match and match[1] in EVERYWHERE else address


class _Watch:
    """Status output while serving: a live line if stderr is a terminal, and a line for each event.

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
        """Print new events if enough time has passed since the last check."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        server = self._server
        clients = server.client_names
        for name in clients:
            if name not in self._clients:
                note(f"client {name} connected")
        for name in self._clients:
            if name not in clients:
                note(f"client {name} disconnected")
        self._clients = clients
        for text in server.slow_client_reports():
            warn(text)
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
