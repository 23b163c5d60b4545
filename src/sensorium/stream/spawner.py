"""Sensors added and removed at run time: of the scene, of the server, and placeholders for sensors of clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sensorium import registry
from sensorium.errors import ConfigError, DuplicateNameError, SensoriumError, UnknownNameError
from sensorium.memory import Allowance
from sensorium.pose import Pose
from sensorium.readings import Bodies, Body
from sensorium.stream import blueprints, streamed
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.failures import LOG
from sensorium.stream.streamed_sensors import WORLD, StreamedSensors
from sensorium.wire.attributes import SensorDefinition, find_definition
from sensorium.wire.owner import owner_of
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.scene import Scene

_WORLD = {"kind": "body_state", "bodies": ".*"}
MAX_NAME_LENGTH = 128
SENSOR_BYTES = 64 * 1024
"""Minimum memory counted for a spawned sensor with its stream, bytes; it also limits their number."""


@dataclass(frozen=True, slots=True)
class SensorRequest:
    """Request for a sensor; see `Server.spawn`.

    Args:
        blueprint: id or kind of its blueprint.
        values: attribute id -> value, for values that differ from the default.
        name: its name; empty for a free name.
        transform: its pose relative to the body it is attached to.
        attach_to: name of a body; None for the world.
        env: its only environment; None for all.
        client_side: definition of a sensor that runs in the client, as plain data; None for all other sensors.
    """

    blueprint: str
    values: Mapping[str, Any]
    name: str
    transform: Pose
    attach_to: str | None
    env: int | None
    client_side: Mapping[str, Any] | None = None


class Spawner:
    """Creation and removal of the sensors of one server. All methods run on the thread of the loop's owner.

    Args:
        scene: the scene.
        bodies: all bodies of the world.
        catalog: the streams of the server.
        streamed_sensors: the sensors that run in the server.
        max_mb: maximum total memory of sensors spawned by clients, MB.
        max_rays: maximum total rays of these sensors, for one sample of each in all environments.
        removed: callback with the name of each removed sensor.
    """

    def __init__(
        self,
        scene: Scene,
        bodies: Bodies,
        catalog: StreamCatalog,
        streamed_sensors: StreamedSensors,
        *,
        max_mb: float,
        max_rays: int,
        removed: Callable[[str], None],
    ) -> None:
        self._scene, self._bodies, self._stream_catalog, self._streamed = scene, bodies, catalog, streamed_sensors
        self._max_mb, self._max_rays, self._removed = max_mb, max_rays, removed
        self._taken: dict[str, tuple[int, int]] = {}
        """Name of a sensor spawned by a client -> its bytes and rays."""
        self._spawned: set[str] = set()
        """Names of the spawned sensors."""

    @property
    def has_world(self) -> bool:
        """Whether there is a stream of the state of all bodies."""
        topic = self._stream_catalog.topics.get(WORLD)
        return (
            topic is not None and topic.info.kind == _WORLD["kind"] and topic.info.cfg.get("bodies") in (".*", [".*"])
        )

    def definitions(self) -> dict[str, SensorDefinition]:
        """Return all blueprints, by id."""
        return blueprints.definitions(extra=streamed.registered().values(), presets=self._scene.presets)

    # Creation ---------------------------------------------------------------------------------------------------------

    def spawn(self, request: SensorRequest, *, is_bounded: bool = False) -> StreamInfo:
        """Create a sensor; see `Server.spawn`. Requests of clients are limited."""
        if not is_bounded:
            return self._make(request)
        memory = self._scene.compute.memory
        with memory.within(self._allowance()) as allowance:
            memory.check(SENSOR_BYTES, "blueprint", request.blueprint, "spawn")
            allowance.taken += SENSOR_BYTES
            info = self._make(request)
        self._taken[info.name] = allowance.taken, allowance.rays_taken
        return info

    def _allowance(self) -> Allowance:
        """Return the remaining allowance for sensors spawned by clients."""
        nbytes, rays = (sum(taken) for taken in zip((0, 0), *self._taken.values(), strict=True))
        return Allowance(
            1e6 * self._max_mb - nbytes,
            self._max_rays - rays,
            f"at most {self._max_mb:g} MB and {self._max_rays} rays for all sensors that clients spawn",
            "Spawn fewer sensors, destroy others, or serve with a higher max_spawned_mb or max_spawned_rays.",
        )

    def _make(self, request: SensorRequest) -> StreamInfo:
        num_envs, env = self._scene.num_envs, request.env
        body = self._bodies[request.attach_to] if request.attach_to else None
        if env is not None and not 0 <= env < num_envs:
            expected = f"None for all, or a number from 0 to {num_envs - 1}"
            raise ConfigError.single(request.blueprint, "env", env, expected)
        if request.client_side is not None:
            definition, make = SensorDefinition.from_dict(request.client_side), self._dummy
        else:
            definition = find_definition(self.definitions(), request.blueprint)
            make = self._in_scene if definition.where == "scene" else self._in_server
        name = self._free_name(request.name, definition)
        make(definition, request, name, body)
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

    def _in_scene(self, definition: SensorDefinition, request: SensorRequest, name: str, body: Body | None) -> None:
        cfg = blueprints.build_cfg(
            definition.id,
            request.values,
            name=name,
            attach_to=request.attach_to or None,
            transform=request.transform,
            preset=self._scene.presets.build,
        )
        self._scene.add(cfg)
        try:
            self._stream_catalog.offer_sensor(
                name, self._scene.description().sensors[name], on_demand=True, env=request.env
            )
        except BaseException:
            self._scene.remove(name)
            raise

    def _in_server(self, definition: SensorDefinition, request: SensorRequest, name: str, body: Body | None) -> None:
        if not self.has_world:
            expected = "a scene whose engine provides the poses of bodies"
            fix = "The model was prepared without them. Use Scene(..., reserve=[BodyStateCfg(bodies='.*')])."
            if WORLD in self._stream_catalog.topics:
                expected = f"no sensor {WORLD!r} of another kind in the scene"
                fix = "The stream of body states needs this name. Rename the other sensor."
            raise ConfigError.single(definition.id, "attach_to", body and body.name, expected, fix)
        num_envs, env = self._scene.num_envs, request.env
        cls, description = streamed.find(definition.id), definition.describe(request.values)
        self._streamed.add(
            cls,
            name,
            description,
            envs=range(num_envs) if env is None else range(env, env + 1),
            transform=request.transform,
            owner=None if body is None else owner_of(body, self._bodies, self._scene.engine.parent_body),
        )
        place = {"attach_to": body.name if body else "", "transform": request.transform.to_array().tolist()}
        info = StreamInfo(
            id=self._stream_catalog.number(),
            name=name,
            kind=definition.id,
            type_name=cls.serializer.type_name,
            events=cls.events,
            where="server",
            cfg={**description.values, **place},
            constants={"drawing": about} if (about := self._streamed.sensors[name].about_drawing()) else {},
            num_envs=num_envs,
        )
        try:
            self._stream_catalog.offer(info)
        except BaseException:
            self._streamed.remove(name)
            raise

    def _dummy(self, definition: SensorDefinition, request: SensorRequest, name: str, body: Body | None) -> None:
        """Register a sensor that runs in a client, so that all clients know of it; it sends no data."""
        cfg = {"attach_to": body.name if body else ""}
        number, num_envs = self._stream_catalog.number(), self._scene.num_envs
        info = StreamInfo(number, name, definition.id, "", where="client", cfg=cfg, num_envs=num_envs)
        self._stream_catalog.offer(info)

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
