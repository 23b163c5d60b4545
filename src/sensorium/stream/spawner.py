"""Sensors added and removed at run time: of the scene, of the server, and placeholders for sensors of clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium import registry
from sensorium.errors import ConfigError, DuplicateNameError, SensoriumError, UnknownNameError
from sensorium.memory import Allowance
from sensorium.pose import Pose
from sensorium.readings import Bodies
from sensorium.stream import blueprints, streamed
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.options import ServerOptions
from sensorium.stream.streamed_sensors import WORLD, StreamedSensors
from sensorium.stream.subscriptions import LOG
from sensorium.wire import messages as msg
from sensorium.wire.attributes import SensorDefinition, find_definition
from sensorium.wire.owner import Owner, owner_of
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.scene import Scene

_WORLD = {"kind": "body_state", "bodies": ".*"}
MAX_NAME_LENGTH = 128
SENSOR_BYTES = 64 * 1024
"""Minimum memory counted for a spawned sensor with its stream, bytes; it also limits their number."""


class Spawner:
    """Creation and removal of the sensors of one server. All methods run on the thread of the loop's owner.

    Args:
        scene: the scene.
        bodies: all bodies of the world.
        catalog: the streams of the server.
        streamed_sensors: the sensors that run in the server.
        options: limits for clients.
        removed: callback with the name of each removed sensor.
    """

    def __init__(
        self,
        scene: Scene,
        bodies: Bodies,
        catalog: StreamCatalog,
        streamed_sensors: StreamedSensors,
        options: ServerOptions,
        *,
        removed: Callable[[str], None],
    ) -> None:
        self._scene, self._bodies, self._stream_catalog, self._streamed = scene, bodies, catalog, streamed_sensors
        self._options, self._removed = options, removed
        self._taken: dict[str, tuple[int, int]] = {}
        """Name of a sensor spawned by a client -> its bytes and rays."""
        self._spawned: set[str] = set()
        """Names of the spawned sensors."""

    def definitions(self) -> dict[str, SensorDefinition]:
        """Return all blueprints, by id."""
        return blueprints.definitions(extra=streamed.REGISTRY.registered().values(), presets=self._scene.presets)

    # Creation ---------------------------------------------------------------------------------------------------------

    def spawn(self, request: msg.Spawn, *, is_bounded: bool = False) -> StreamInfo:
        """Create a sensor; see `Server.spawn`. Requests of clients are limited."""
        if not is_bounded:
            return self._make(request)
        nbytes, rays = (sum(taken) for taken in zip((0, 0), *self._taken.values(), strict=True))
        max_mb, max_rays = self._options.max_spawned_mb, self._options.max_spawned_rays
        left = Allowance(
            1e6 * max_mb - nbytes,
            max_rays - rays,
            f"at most {max_mb:g} MB and {max_rays} rays for all sensors that clients spawn",
            "Spawn fewer sensors, destroy others, or serve with a higher max_spawned_mb or max_spawned_rays.",
        )
        memory = self._scene.compute.memory
        with memory.within(left) as allowance:
            memory.check(SENSOR_BYTES, "blueprint", request.blueprint, "spawn")
            allowance.taken += SENSOR_BYTES
            info = self._make(request)
        self._taken[info.name] = allowance.taken, allowance.rays_taken
        return info

    def _make(self, request: msg.Spawn) -> StreamInfo:
        num_envs, env = self._scene.num_envs, None if request.env == -1 else request.env
        body = self._bodies[request.attach_to] if request.attach_to else None
        if env is not None and not 0 <= env < num_envs:
            expected = f"None for all, or a number from 0 to {num_envs - 1}"
            raise ConfigError.single(request.blueprint, "env", env, expected)
        transform = Pose.from_array(np.asarray(request.pose, np.float64))
        local = request.client_side
        if local is None:
            definition = find_definition(self.definitions(), request.blueprint)
        else:
            definition = SensorDefinition.from_dict(local)
        name = self._free_name(request.name, definition)
        if local is not None:  # it runs in a client and sends no data; all clients know of it
            number, place = self._stream_catalog.number(), {"attach_to": body.name if body else ""}
            info = StreamInfo(number, name, definition.id, "", where="client", cfg=place, num_envs=num_envs)
            self._stream_catalog.offer(info)
        elif definition.where == "scene":
            presets, attach_to = self._scene.presets, request.attach_to or None
            cfg = blueprints.build_cfg(
                definition.id, request.values, name=name, attach_to=attach_to, transform=transform, preset=presets.build
            )  # fmt: skip
            self._scene.add(cfg)
            try:
                described = self._scene.description().sensors[name]
                self._stream_catalog.offer_sensor(name, described, on_demand=True, env=env)
            except BaseException:
                self._scene.remove(name)
                raise
        else:
            envs = range(num_envs) if env is None else range(env, env + 1)
            owner = None if body is None else owner_of(body, self._bodies, self._scene.engine.parent_body)
            self._add_to_server(definition, request.values, name, envs=envs, transform=transform, owner=owner)
        self._spawned.add(name)
        return self._stream_catalog.topics[name].info

    def _free_name(self, name: str, definition: SensorDefinition) -> str:
        taken = {*self._stream_catalog.topics, *self._scene.sensors}
        if name:
            if not name.isprintable() or name != name.strip() or len(name) > MAX_NAME_LENGTH:
                expected = f"at most {MAX_NAME_LENGTH} printable characters, without leading or trailing spaces"
                raise ConfigError.single("spawn", "name", name, expected, "All clients see this name.")
            if name in taken:
                raise DuplicateNameError(f"spawn: a sensor {name!r} already exists. Choose another name.")
            return name
        stem = definition.id.rpartition(".")[2]
        return next(each for i in itertools.count(1) if (each := stem if i == 1 else f"{stem}_{i}") not in taken)

    def _add_to_server(
        self, definition: SensorDefinition, values: Mapping[str, Any], name: str, *, owner: Owner | None, **place: Any
    ) -> None:
        body, world = "" if owner is None else owner.body.name, self._stream_catalog.topics.get(WORLD)
        is_whole = world is not None and world.info.cfg.get("bodies") in (".*", [".*"])
        if world is None or world.info.kind != _WORLD["kind"] or not is_whole:
            expected = "a scene whose engine provides the poses of bodies"
            fix = "The model was prepared without them. Use Scene(..., reserve=[BodyStateCfg(bodies='.*')])."
            if world is not None:
                expected = f"no sensor {WORLD!r} of another kind in the scene"
                fix = "The stream of body states needs this name. Rename the other sensor."
            raise ConfigError.single(definition.id, "attach_to", body or None, expected, fix)
        cls, description = streamed.REGISTRY.find(definition.id), definition.describe(values)
        sensor = streamed.spawn(cls, name, description, self._streamed, self._bodies, owner=owner, **place)
        self._streamed.sensors[name] = sensor
        about = sensor.about_drawing()
        info = StreamInfo(
            id=self._stream_catalog.number(),
            name=name,
            kind=definition.id,
            type_name=cls.serializer.type_name,
            events=cls.events,
            where="server",
            cfg={**description.values, "attach_to": body, "transform": place["transform"].to_array().tolist()},
            constants={"drawing": about} if about else {},
            num_envs=self._scene.num_envs,
        )
        try:
            self._stream_catalog.offer(info)
        except BaseException:
            self._streamed.remove(name)
            raise

    def offer_world(self) -> None:
        """Offer the state of all bodies, which sensors of clients and of the server require."""
        if WORLD in self._scene.sensors or not len(self._bodies):
            return
        try:
            self._scene.add(registry.cfg_for_kind(_WORLD["kind"])(name=WORLD, bodies=_WORLD["bodies"]))
        except SensoriumError as error:
            LOG.info("There is no stream of body states: %s", error)
            return
        self._spawned.add(WORLD)
        self._stream_catalog.offer_sensor(WORLD, self._scene.description().sensors[WORLD], on_demand=False)

    # Removal ----------------------------------------------------------------------------------------------------------

    def remove(self, name: str, reason: str) -> None:
        """Remove a spawned sensor, with the scene sensors added for it.

        Raises:
            UnknownNameError: there is no such sensor.
        """
        if name not in self._spawned or name == WORLD:
            known = sorted(self._spawned - {WORLD})
            raise UnknownNameError("spawned sensor", name, known, "Sensors of the scene itself cannot be removed.")
        self._spawned.remove(name)
        self._taken.pop(name, None)
        self._streamed.remove(name)
        self._stream_catalog.withdraw(name, reason)
        if name in self._scene.sensors:
            self._scene.remove(name)
        self._removed(name)

    def forget_removed(self, present: Container[str]) -> None:
        """Remove sensors that the owner of the scene removed, and sensors that depend on them.

        Args:
            present: names of the sensors of the scene.
        """
        if WORLD in self._stream_catalog.topics and WORLD not in present:
            self._spawned.discard(WORLD)
            self._streamed.world = None
            self._stream_catalog.withdraw(WORLD, "it was removed from its scene")
            self.offer_world()  # the server that it belonged to has ended, and sensors of this server need it
        for name in self._spawned - {WORLD}:
            needed = WORLD if name in self._streamed.sensors else name
            is_evaluated = self._stream_catalog.topics[name].info.where != "client"
            if is_evaluated and needed not in present and needed not in self._scene.sensors:
                what = "it" if needed == name else "a sensor that it needs"
                self.remove(name, f"{what} was removed from its scene")

    def remove_all(self) -> None:
        """Remove all spawned sensors from the scene."""
        for name in self._spawned & self._scene.sensors.keys():
            self._scene.remove(name)
        self._spawned.clear()
