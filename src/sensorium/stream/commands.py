"""Commands of clients, run on the loop owner's thread between two steps. Errors are answered, not raised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import ConfigError, SensoriumError, StreamError, UnknownNameError, listed
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.publisher import Publisher
from sensorium.stream.subscription_table import LOG, Session, SubscriptionTable
from sensorium.wire import messages as msg
from sensorium.wire.warning_relay import WarningText, recording_warnings

if TYPE_CHECKING:
    from sensorium.stream.server import Server


class Commands:
    """Execution of client commands.

    Args:
        server: the server.
        table: subscriptions of all clients.
        catalog: creates sensors.
        publisher: announces complete frames.
    """

    def __init__(self, server: Server, table: SubscriptionTable, catalog: StreamCatalog, publisher: Publisher) -> None:
        self._server, self._table, self._catalog, self._publisher = server, table, catalog, publisher
        self.current: tuple[Session, msg.Request] | None = None
        """Client and command in progress."""

    def do(self, session: Session, command: msg.Request) -> None:
        """Run one command and answer it; for a spawned sensor, the answer includes the warnings."""
        session.requests -= 1
        if self._table.sessions.get(session.route) is not session:
            return  # the client is gone
        result, error, kind = None, "", ""
        warned: list[WarningText] = []
        self.current = session, command
        try:
            if isinstance(command, msg.Spawn):
                with recording_warnings() as warned:
                    info = self._catalog.spawn(command, is_bounded=True)
                session.sensors.add(info.name)
                result = info.to_dict()
            else:
                result = self._result(session, command)
        except SensoriumError as problem:
            error, kind = str(problem), type(problem).__name__
        except Exception as problem:
            LOG.exception("The request %s of client %s failed", type(command).__name__, session)
            error, kind = f"{type(problem).__name__}: {problem}", type(problem).__name__
        finally:
            self.current = None
        self._table.send(session, msg.Reply(command.request, result, error, kind, tuple(warned)))

    def _result(self, session: Session, command: msg.Request) -> Any:
        server = self._server
        match command:
            case msg.Step():
                return self._step(command)
            case msg.Control():
                ctrl, target = self._controls("control", command), getattr(server.scene.engine, "ctrl", None)
                if target is None:
                    raise StreamError(f"The engine {server.scene.engine.name!r} has no controls.")
                if ctrl is not None:
                    target[...] = target.new_tensor(ctrl)
            case msg.Reset(envs=envs):
                if envs is None or envs:
                    server.scene.reset(None if envs is None else self._envs("reset", envs))
                return server.frame
            case msg.Destroy(name=name):
                if name not in session.sensors:
                    fix = "A client can only destroy sensors that it spawned."
                    if name not in server.streams:
                        raise UnknownNameError("sensor", name, session.sensors, fix)
                    fix += f" Those are: {listed(sorted(session.sensors))}."
                    raise ConfigError.single("destroy", "sensor", name, "a sensor that this client spawned", fix)
                server.remove(name, f"its client {session} destroyed it")
            case msg.Ask(what="blueprints"):
                return [each.to_dict() for each in self._catalog.definitions().values()]
            case msg.Ask(what="world"):
                return server.scene.world_file()
            case msg.Ask(what="pace"):
                return None if server.pace is None else server.pace.to_dict()
            case msg.Ask(what="drawings", env=env):
                return self._drawings(*self._envs("drawings", (env,)))
            case msg.Ask(what="nothing"):
                pass
            case msg.Ask(what=what):
                raise UnknownNameError("request", what, ["blueprints", "drawings", "pace", "world"])
            case msg.Set(name="", knob=what, value=value):
                if server.pace is None:
                    raise StreamError(
                        "Clients cannot pause or slow down this simulation, because its program takes the steps. They "
                        "can where `Server.run` or `sensorium serve` takes them."
                    )
                server.pace.set(what, value, session)
                return server.pace.to_dict()
            case msg.Set():
                self._set(command)
        return None

    def _step(self, command: msg.Step) -> dict[str, Any]:
        server = self._server
        if not server.lockstep:
            raise StreamError(
                "Clients cannot step a free-running simulation. Serve with lockstep=True (--lockstep), or use "
                "client.control(ctrl)."
            )
        if not 1 <= command.substeps <= 1_000_000:
            raise ConfigError.single("step", "substeps", command.substeps, "a whole number from 1 to 1000000")
        ctrl = self._controls("step", command)
        self._table.slow_in_step.clear()
        server.scene.step(ctrl, command.substeps)
        self._publisher.flush()
        scene = server.scene
        notes = list(self._table.slow_in_step)
        return {"frame": server.frame, "tick": scene.tick, "time": scene.time, "notes": notes}

    def _controls(self, call: str, command: msg.Step | msg.Control) -> Any:
        shape, content = command.shape, command.ctrl
        if not content and not shape:
            return None
        size = math.prod(shape)
        if len(content) != 8 * size or len(shape) not in (1, 2) or min(shape) < 0:
            raise ConfigError.single(call, "ctrl", shape, "numbers of shape [nu] or [env, nu]")
        ctrl = np.frombuffer(content, "<f8").reshape(shape)
        wanted = getattr(self._server.scene.engine, "nu", None)
        num_envs = self._server.scene.num_envs
        if wanted is not None and shape not in ((wanted,), (num_envs, wanted)):
            raise ConfigError.single(call, "ctrl", shape, f"the shape [{wanted}] or [{num_envs}, {wanted}]")
        if not np.isfinite(ctrl).all():
            raise ConfigError.single(call, "ctrl", "NaN or infinity", "finite numbers")
        return ctrl

    def _drawings(self, env: int) -> dict[str, Any]:
        """Return what viewers need of the sensors beside their readings; see `Client.drawings`."""
        scene, shapes, mounts = self._server.scene, {}, {}
        for name, sensor in scene.sensors_in_use.items():
            if (rows := sensor.mounts_on_bodies(env)) is not None:
                mounts[name] = rows.astype("<f4").tobytes()
            if sensor.debug_vis and sensor.draws_own_shapes:
                shapes[name] = [shape.only(env, scene.num_envs).to_dict() for shape in sensor.drawings()]
        drawn = [name for name, sensor in scene.sensors_in_use.items() if sensor.debug_vis]
        return {"drawn": drawn, "shapes": shapes, "mounts": mounts}

    def _envs(self, call: str, envs: tuple[int, ...]) -> list[int]:
        num_envs = self._server.scene.num_envs
        wrong = [env for env in envs if not 0 <= env < num_envs]
        if wrong or len(set(envs)) != len(envs):
            expected = f"numbers from 0 to {num_envs - 1}, each once"
            raise ConfigError.single(call, "env_ids", wrong or envs, expected)
        return list(envs)

    def _set(self, command: msg.Set) -> None:
        scene = self._server.scene
        call = f"set({command.knob!r})"
        envs = None if command.envs is None else self._envs(call, command.envs)
        value = command.value
        if isinstance(value, list):
            import torch

            try:
                value = torch.tensor(value, device=scene.engine.device, dtype=torch.float32)
            except (TypeError, ValueError, OverflowError):
                expected = "rows of numbers of equal length"
                raise ConfigError.single(call, "value", value, expected) from None
        try:
            scene[command.name].set(command.knob, value, envs)
        except ConfigError:
            needs_memory = command.knob in ("delay", "jitter", "loss")  # which is limited for clients
            if envs is not None or needs_memory or not hasattr(scene, "reconfigure"):
                raise
            scene.reconfigure(command.name, **{command.knob: value})  # a knob that the config lacks
