"""Streams of a server: one per sensor, its listeners, changes to the scene by its owner, and spawned sensors."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium import registry
from sensorium.errors import ConfigError, DuplicateNameError, SensoriumError, UnknownNameError
from sensorium.memory import Allowance
from sensorium.pose import Pose
from sensorium.readings import Bodies
from sensorium.spec import FieldSpec
from sensorium.stream import blueprints, streamed
from sensorium.stream.options import ServerOptions
from sensorium.stream.streamed import WORLD, StreamedSensors
from sensorium.stream.subscription_table import LOG, SubscriptionTable, Topic
from sensorium.wire import messages as msg
from sensorium.wire.attributes import SensorDefinition, find_definition
from sensorium.wire.serializers import FieldSerializer, by_name, for_kind
from sensorium.wire.stream_info import IN_CONSTANTS, StreamInfo
from sensorium.wire.world import Owner, owner_of

if TYPE_CHECKING:
    from sensorium.scene import Scene
    from sensorium.sensors.core.base import Sensor

_WORLD = {"kind": "body_state", "bodies": ".*"}
MAX_NAME_LENGTH = 128
SENSOR_BYTES = 64 * 1024
"""Minimum memory counted for a spawned sensor with its stream, bytes; it also limits their number."""


PLACES = ("frames", "drawing")
"""Constants of a stream that change if its sensor is moved on its body."""


class StreamCatalog:
    """The streams of a server, and the sensors spawned on it. All methods run on the thread of the loop's owner.

    Args:
        scene: the scene.
        bodies: all bodies of the world.
        table: the subscriptions.
        streamed_sensors: the sensors that run in the server.
        options: options of sending, and limits for clients.
    """

    def __init__(
        self, scene: Scene, bodies: Bodies, table: SubscriptionTable, streamed_sensors: StreamedSensors,
        options: ServerOptions,
    ) -> None:  # fmt: skip
        self._scene, self._bodies, self._table, self._streamed = scene, bodies, table, streamed_sensors
        self._options, self._on_demand = options, options.on_demand
        self.cursor = scene.sample_cursor()
        """Tracker of the samples of the scene's sensors that were not yet published."""
        self._numbers = itertools.count(1)
        self._noted = -1
        """Version of the subscriptions that were passed to the sensors."""
        self._lossless: list[Sensor[Any, Any]] = []
        self.topics = table.topics
        """Name -> stream."""
        self.listened: dict[str, Sensor[Any, Any]] = {}
        """Sensors of the scene with listeners; each counts this server among its listeners."""
        self._taken: dict[str, tuple[int, int]] = {}
        """Name of a sensor spawned by a client -> its bytes and rays."""
        self._spawned: set[str] = set()
        """Names of the spawned sensors."""

    def offer(self, info: StreamInfo, *, env: int | None = None) -> None:
        """Offer a stream; with `env`, only of that environment."""
        serializer = by_name(info.type_name) if info.type_name else FieldSerializer
        self._table.add_topic(Topic(info, serializer, env))

    def offer_sensor(
        self, name: str, described: Mapping[str, Any], *, on_demand: bool | None = None, env: int | None = None
    ) -> None:
        """Offer a sensor of the scene.

        Args:
            name: its name.
            described: its entry in the scene's description.
            on_demand: whether it may be computed on demand; None for the setting of the catalog.
            env: only environment of the stream; None for all.
        """
        info = self._info(next(self._numbers), name, described)
        if (self._on_demand if on_demand is None else on_demand) and _can_be_on_demand(info):
            self._scene.compute_on_demand(name)
        self.offer(info, env=env)

    def withdraw(self, name: str, reason: str) -> None:
        """Withdraw a stream."""
        self.no_longer_listened(name)
        self._table.remove_topic(name, reason)

    def follow(self, described: Mapping[str, Mapping[str, Any]]) -> None:
        """Offer sensors that the scene's owner added, withdraw removed ones, and update reconfigured and moved ones.

        Args:
            described: entries of the sensors in the scene's description.
        """
        for name, topic in list(self.topics.items()):
            if topic.info.where != "scene":
                continue
            if name not in described:
                self.withdraw(name, "it was removed from its scene")
                continue
            now = self._info(topic.info.id, name, described[name])
            if _fixed(now) != _fixed(topic.info) or (name in self.listened and self.listened[name].is_retired):
                self.withdraw(name, "it was reconfigured; listen again")
                self.offer_sensor(name, described[name], env=topic.env)
                continue
            if now != topic.info:
                topic.info = now
                self._table.add_topic(topic)
            if (
                self._options.on_demand
                and _can_be_on_demand(now)
                and self._scene[name].buffers.plan.evaluate != "wanted"
            ):
                self._scene.compute_on_demand(name)  # the sensor object was replaced
        for name, about in described.items():
            if name not in self.topics:
                self.offer_sensor(name, about)

    def _info(self, number: int, name: str, described: Mapping[str, Any]) -> StreamInfo:
        """Return the information for listeners about a sensor of the scene."""
        specs = tuple(FieldSpec.from_dict(each) for each in described["fields"])
        serializer = for_kind(described["kind"])
        is_event = bool(serializer.kind) or any(spec.is_ragged for spec in specs)
        return StreamInfo(
            id=number,
            name=name,
            kind=described["kind"],
            type_name=serializer.type_name,
            specs=() if serializer.kind else specs,
            rate_hz=0.0 if is_event else described["rate_hz"],
            mounts=tuple(described.get("mounts", ())),
            events=is_event,
            cfg=described["cfg"],
            constants={
                **described.get("constants", {}),
                **{key: described[key] for key in IN_CONSTANTS if key in described},
            },
            num_envs=self._scene.num_envs,
        )

    # Listeners --------------------------------------------------------------------------------------------------------

    def note_listeners(self, since: int) -> list[Sensor[Any, Any]]:
        """Pass to the scene's sensors whether they have listeners; some are computed only then.

        Args:
            since: tick up to which samples do not count as new for new listeners.

        Returns:
            Sensors of lossless listeners: each of their changes needs a frame.
        """
        if self._noted == self._table.version:
            return self._lossless
        self._noted, self._lossless = self._table.version, []
        for name, topic in self.topics.items():
            if topic.info.where != "scene":
                continue
            if not topic.subscriptions:
                self.no_longer_listened(name)
                continue
            sensor = self.listened.get(name)
            if sensor is None:
                sensor = self.listened[name] = self._scene[name]
                sensor.buffers.listeners += 1
                self.cursor.skip(sensor, since)
                topic.sent_tick = since
            if not topic.info.events and any(each.lossless for each in topic.subscriptions):
                self._lossless.append(sensor)  # events that are computed on read are those of each frame
        return self._lossless

    def no_longer_listened(self, name: str) -> None:
        """Unregister a sensor without listeners here. Listeners of another server may still need its poses."""
        sensor = self.listened.pop(name, None)
        if sensor is None:
            return
        sensor.buffers.listeners -= 1
        if not sensor.is_retired:
            self._scene.forget_poses([name])

    # Spawned sensors --------------------------------------------------------------------------------------------------

    def definitions(self) -> dict[str, SensorDefinition]:
        """Return all blueprints, by id."""
        return blueprints.definitions(extra=streamed.REGISTRY.registered().values(), presets=self._scene.presets)

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
            number, place = next(self._numbers), {"attach_to": body.name if body else ""}
            info = StreamInfo(number, name, definition.id, "", where="client", cfg=place, num_envs=num_envs)
            self.offer(info)
        elif definition.where == "scene":
            presets, attach_to = self._scene.presets, request.attach_to or None
            cfg = blueprints.build_cfg(
                definition.id, request.values, name=name, attach_to=attach_to, transform=transform, preset=presets.build
            )  # fmt: skip
            self._scene.add(cfg)
            try:
                described = self._scene.description().sensors[name]
                self.offer_sensor(name, described, on_demand=True, env=env)
            except BaseException:
                self._scene.remove(name)
                raise
        else:
            envs = range(num_envs) if env is None else range(env, env + 1)
            owner = None if body is None else owner_of(body, self._bodies, self._scene.engine.parent_body)
            self._add_to_server(definition, request.values, name, envs=envs, transform=transform, owner=owner)
        self._spawned.add(name)
        return self.topics[name].info

    def _free_name(self, name: str, definition: SensorDefinition) -> str:
        taken = {*self.topics, *self._scene.sensors}
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
        body, world = "" if owner is None else owner.body.name, self.topics.get(WORLD)
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
            id=next(self._numbers),
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
            self.offer(info)
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
        self.offer_sensor(WORLD, self._scene.description().sensors[WORLD], on_demand=False)

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
        self.withdraw(name, reason)
        if name in self._scene.sensors:
            self._scene.remove(name)
        for session in [*self._table.sessions.values(), *self._table.gone]:
            session.sensors.discard(name)

    def forget_removed(self, present: Container[str]) -> None:
        """Remove sensors that the owner of the scene removed, and sensors that depend on them.

        Args:
            present: names of the sensors of the scene.
        """
        if WORLD in self.topics and WORLD not in present:
            self._spawned.discard(WORLD)
            self._streamed.world = None
            self.withdraw(WORLD, "it was removed from its scene")
            self.offer_world()  # the server that it belonged to has ended, and sensors of this server need it
        for name in self._spawned - {WORLD}:
            needed = WORLD if name in self._streamed.sensors else name
            is_evaluated = self.topics[name].info.where != "client"
            if is_evaluated and needed not in present and needed not in self._scene.sensors:
                what = "it" if needed == name else "a sensor that it needs"
                self.remove(name, f"{what} was removed from its scene")

    def remove_all(self) -> None:
        """Remove all spawned sensors from the scene."""
        for name in self._spawned & self._scene.sensors.keys():
            self._scene.remove(name)
        self._spawned.clear()


def _fixed(info: StreamInfo) -> StreamInfo:
    """Return the information without the places of the sensor, which may change."""
    return replace(info, constants={key: info.constants[key] for key in info.constants if key not in PLACES})


def _can_be_on_demand(info: StreamInfo) -> bool:
    """Return whether a sensor has images or many numbers per env, so that on-demand computation pays off."""
    is_auto = info.cfg.get("evaluate", "auto") == "auto"
    return is_auto and any(spec.role == "image" or spec.columns >= 256 for spec in info.specs)
