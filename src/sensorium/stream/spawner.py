"""Sensors that come and go while a server runs: of the scene, of the server itself, and dummies of those of clients."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from sensorium.errors import ConfigError, DuplicateNameError, SensoriumError, UnknownNameError
from sensorium.memory import Allowance
from sensorium.readings import Body
from sensorium.stream import blueprints, streamed
from sensorium.stream.model import owner_of
from sensorium.stream.outgoing import Context
from sensorium.stream.sending import Stream
from sensorium.stream.sockets import LOG
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import SensorDefinition, find_definition
from sensorium.wire.pose import Pose
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.stream.server import Server

WORLD = "world"
"""Name of the stream with the state of all bodies."""
_WORLD = {"kind": "body_state", "bodies": ".*"}
WORKERS = 2
"""Threads for what streamed sensors compute beside the simulation."""
LONGEST_NAME = 128
SENSOR_BYTES = 64 * 1024
"""Memory that a spawned sensor counts as at least, with its stream: so their number is bounded as well."""
PATIENCE = 5.0
"""Longest wait for them at the end, s."""


class _Desk(Executor):
    """Where one sensor gives work to the threads of all.

    Args:
        workers: the threads.
        name: of the sensor.
        running: notes what they do, and for which sensor.
    """

    def __init__(self, workers: Executor, name: str, running: dict[Future[Any], str]) -> None:
        self._workers, self._name, self._running = workers, name, running

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a thread call something."""
        future = self._workers.submit(fn, *args, **kwargs)
        self._running[future] = self._name
        future.add_done_callback(lambda done: self._running.pop(done, None))
        return future


class Spawner:
    """Makes and removes the sensors of one server. All on the thread of the loop's owner.

    Args:
        server: the server.
        max_mb: most memory of what clients spawned, all of it together, MB.
        max_rays: most rays of it, for one sample of each sensor in all environments.
    """

    def __init__(self, server: Server, *, max_mb: float, max_rays: int) -> None:
        self._server = server
        self._max_mb, self._max_rays = max_mb, max_rays
        self._taken: dict[str, tuple[int, int]] = {}
        """Name of what a client spawned -> the bytes and rays that it takes."""
        self._spawned: dict[str, list[str]] = {}
        """Name -> the names of the sensors in the scene that it brought along; for those in the scene its own."""
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[Future[Any], str] = {}
        """What worker threads do, and for which sensor."""

    @property
    def has_world(self) -> bool:
        """Whether there is a stream of the state of all bodies."""
        info = self._server.streams.get(WORLD)
        return info is not None and info.kind == _WORLD["kind"] and info.cfg.get("bodies") in (".*", [".*"])

    @property
    def hidden(self) -> set[str]:
        """Names of the scene's sensors that only feed streamed ones."""
        return {source for feeds in self._server._feeds.values() for source in feeds.values()}

    def definitions(self) -> dict[str, SensorDefinition]:
        """Return all blueprints, by id."""
        return blueprints.definitions(extra=streamed.registered().values(), presets=self._server.scene.presets)

    def owner(self, name: str) -> Body | None:
        """Return the body that a sensor would be attached to.

        Raises:
            UnknownNameError: there is none of that name.
        """
        return self._server.bodies[name] if name else None

    # Making -----------------------------------------------------------------------------------------------------------

    def spawn(
        self,
        blueprint: str,
        values: Mapping[str, Any],
        name: str,
        transform: Pose,
        attach_to: str | None,
        env: int | None,
        *,
        client_side: Mapping[str, Any] | None = None,
        is_bounded: bool = False,
    ) -> StreamInfo:
        """Make a sensor; see `Server.spawn`. What clients ask for is bounded."""
        if not is_bounded:
            return self._make(blueprint, values, name, transform, attach_to, env, client_side)
        memory = self._server.scene.compute.memory
        with memory.within(self._allowance()) as allowance:
            memory.check(SENSOR_BYTES, "blueprint", blueprint, "spawn")
            allowance.taken += SENSOR_BYTES
            info = self._make(blueprint, values, name, transform, attach_to, env, client_side)
        self._taken[info.name] = allowance.taken, allowance.rays_taken
        return info

    def _allowance(self) -> Allowance:
        """Return what is left of what clients may spawn."""
        nbytes, rays = (sum(taken) for taken in zip((0, 0), *self._taken.values(), strict=True))
        return Allowance(
            1e6 * self._max_mb - nbytes,
            self._max_rays - rays,
            f"at most {self._max_mb:g} MB and {self._max_rays} rays for all sensors that clients spawn",
            "Spawn less, destroy other sensors, or serve with a higher max_spawned_mb or max_spawned_rays.",
        )

    def _make(
        self,
        blueprint: str,
        values: Mapping[str, Any],
        name: str,
        transform: Pose,
        attach_to: str | None,
        env: int | None,
        client_side: Mapping[str, Any] | None,
    ) -> StreamInfo:
        server = self._server
        server._check_open()
        body = None if not attach_to else server.bodies[attach_to]
        if env is not None and not 0 <= env < server.scene.num_envs:
            raise ConfigError.single(
                blueprint, "env", env, f"None for all, or a number from 0 to {server.scene.num_envs - 1}"
            )
        if client_side is not None:
            return self._dummy(blueprint, name, body, client_side)
        definition = find_definition(self.definitions(), blueprint)
        name = self._free_name(name, definition)
        if definition.where == "scene":
            if env is not None and server.scene.num_envs > 1:
                expected = "None: a sensor of the scene is for all envs"
                raise ConfigError.single(definition.id, "env", env, expected, f"Listen with envs={env}.")
            return self._in_scene(definition, values, name, transform, attach_to)
        return self._in_server(definition, values, name, transform, body, env)

    def _free_name(self, name: str, definition: SensorDefinition) -> str:
        taken = {*self._server.streams, *self._server.scene.sensors}
        if name:
            if not name.isprintable() or name != name.strip() or len(name) > LONGEST_NAME:
                expected = f"at most {LONGEST_NAME} printable characters, without spaces around them"
                raise ConfigError.single("spawn", "name", name, expected, "Others see it in their tables.")
            if name in taken:
                raise DuplicateNameError(f"spawn: there is a sensor {name!r} already. Choose another name.")
            return name
        stem = definition.id.rpartition(".")[2]
        return next(each for i in itertools.count(1) if (each := stem if i == 1 else f"{stem}_{i}") not in taken)

    def _in_scene(
        self, definition: SensorDefinition, values: Mapping[str, Any], name: str, transform: Pose, attach_to: str | None
    ) -> StreamInfo:
        server = self._server
        cfg = blueprints.build_cfg(
            definition.id,
            values,
            name=name,
            attach_to=attach_to,
            transform=transform,
            preset=server.scene.presets.build,
        )
        server.scene.add(cfg)
        try:
            server._offers.offer_sensor(name, server.scene.description().sensors[name], on_demand=True)
        except BaseException:
            server.scene.remove(name)
            raise
        self._spawned[name] = [name]
        return server.streams[name]

    def _in_server(
        self,
        definition: SensorDefinition,
        values: Mapping[str, Any],
        name: str,
        transform: Pose,
        body: Body | None,
        env: int | None,
    ) -> StreamInfo:
        server = self._server
        if WORLD in server.streams and not self.has_world:
            raise ConfigError.single(
                definition.id, "attach_to", body and body.name, f"no sensor {WORLD!r} of another kind in the scene",
                "It stands where the stream of the bodies' states would be: give it another name.",
            )  # fmt: skip
        if not self.has_world:
            raise ConfigError.single(
                definition.id, "attach_to", body and body.name, "a scene whose engine gives the poses of bodies",
                "It was prepared without them: Scene(..., reserve=[BodyStateCfg(bodies='.*')]).",
            )  # fmt: skip
        cls = streamed.find(definition.id)
        envs = range(server.scene.num_envs) if env is None else range(env, env + 1)
        owner = None if body is None else owner_of(body, server.bodies, server.scene.engine)
        description = definition.describe(values)
        sensor = streamed.spawn(
            cls,
            name,
            description,
            stream=self._stream,
            bodies=server.bodies,
            envs=envs,
            transform=transform,
            owner=owner,
        )
        feeds: dict[str, str] = {}
        try:
            for key, cfg in streamed.scene_cfgs(sensor, server.scene.engine).items():
                server.scene.add(cfg)
                feeds[key] = cfg.name
                server.scene[cfg.name].buffers.listeners += 1
            serializer = getattr(cls, "serializer", None)
            info = StreamInfo(
                id=server._offers.number(),
                name=name,
                kind=definition.id,
                type_name="" if serializer is None else serializer.type_name,
                events=cls.events,
                where="server",
                cfg={**description.values, **_place(body, transform)},
                num_envs=server.scene.num_envs,
            )
            server._offers.offer(info)
        except BaseException:
            streamed.end(sensor, server.failures)
            for source in feeds.values():
                server.scene.remove(source)
            raise
        server._streamed[name], server._feeds[name] = sensor, feeds
        self._spawned[name] = list(feeds.values())
        return info

    def _stream(self, sensor: StreamedSensor) -> Stream:
        server, name = self._server, sensor.name
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="sensorium-streamed")

        def context() -> Context:
            if server._context is None:
                raise SensoriumError(f"sensor {name!r}: stream.send was called outside tick")
            return server._context

        def has_listeners() -> bool:
            topic = server._offers.topics.get(name)
            return topic is not None and bool(topic.subscriptions)

        return Stream(
            sensor,
            sink=lambda message: server._take(name, message),
            context=context,
            executor=_Desk(self._executor, name, self._running),
            has_listeners=has_listeners,
            on_capture=functools.partial(server._marks.capture, name),
            on_done=functools.partial(server._resolved, name),
            failures=server.failures,
        )

    def _dummy(self, blueprint: str, name: str, body: Body | None, about: Mapping[str, Any]) -> StreamInfo:
        """Note a sensor that runs in a client, so that everybody knows of it; it sends nothing."""
        server = self._server
        definition = SensorDefinition.from_dict(about)
        name = self._free_name(name, definition)
        cfg = {"attach_to": body.name if body else ""}
        num_envs = server.scene.num_envs
        info = StreamInfo(server._offers.number(), name, definition.id, "", where="client", cfg=cfg, num_envs=num_envs)
        server._offers.offer(info)
        self._spawned[name] = []
        return info

    def offer_world(self) -> None:
        """Offer the state of all bodies, for sensors of clients and of the server; without it there are none."""
        server = self._server
        if WORLD in server.scene.sensors or not len(server.bodies):
            return
        try:
            server.scene.add(streamed.config({**_WORLD, "name": WORLD}))
        except SensoriumError as error:
            LOG.info("there is no stream of the bodies' states: %s", error)
            return
        self._spawned[WORLD] = [WORLD]
        server._offers.offer_sensor(WORLD, server.scene.description().sensors[WORLD], on_demand=False)

    # Removing ---------------------------------------------------------------------------------------------------------

    def remove(self, name: str, reason: str) -> None:
        """Remove a sensor that was spawned, and what it brought along.

        Raises:
            UnknownNameError: there is no such.
        """
        server = self._server
        if name not in self._spawned or name == WORLD:
            known = [each for each in self._spawned if each != WORLD]
            raise UnknownNameError("spawned sensor", name, known, "Sensors of the scene itself stay.")
        brought = self._spawned.pop(name)
        self._taken.pop(name, None)
        sensor = server._streamed.pop(name, None)
        server._feeds.pop(name, None)
        if sensor is not None:
            streamed.end(sensor, server.failures)
        server._offers.withdraw(name, reason)
        for each in brought:
            server._readings.pop(each, None)
            if each in server.scene.sensors:
                server.scene.remove(each)
        if not server._streamed:
            server._readings.clear()
        for session in [*server._hub.sessions.values(), *server._gone]:
            session.sensors.discard(name)

    def forget_removed(self, there: Container[str]) -> None:
        """Forget what the owner of the scene took out of it, and what cannot be without that.

        Args:
            there: names of the sensors that the scene has.
        """
        server = self._server
        if WORLD in server._offers.topics and WORLD not in there:
            self._spawned.pop(WORLD, None)
            server._readings.pop(WORLD, None)
            server._offers.withdraw(WORLD, "it was removed from its scene")
            self.offer_world()  # another server, to which it belonged, has ended, and what is here needs it
        for name, brought in list(self._spawned.items()):
            needs = [*brought, WORLD] if name in server._streamed else brought
            if any(each not in there and each not in server.scene.sensors for each in needs):
                what = "it" if name in brought else "what it looks at"
                self.remove(name, f"{what} was removed from its scene")

    def end_streamed(self) -> None:
        """End the sensors of the server and their threads, for good."""
        for sensor in self._server._streamed.values():
            streamed.end(sensor, self._server.failures)
        self._server._streamed.clear()
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        late = wait([*self._running], PATIENCE).not_done
        for name in sorted({self._running[each] for each in late if each in self._running}):
            text = "sensor %r: what it gave to send_async still runs %g s after the end, and is left to itself"
            LOG.warning(text, name, PATIENCE)
        if not late:
            self._executor.shutdown(wait=True)

    def remove_all(self) -> None:
        """Take everything that was spawned out of the scene."""
        for brought in self._spawned.values():
            for name in brought:
                if name in self._server.scene.sensors:
                    self._server.scene.remove(name)
        self._spawned.clear()


def _place(body: Body | None, transform: Pose) -> dict[str, Any]:
    return {"attach_to": body.name if body is not None else "", "transform": transform.to_array().tolist()}


__all__ = ["WORLD", "Spawner"]
