"""Streams of a server: one per sensor, its listeners, and changes to the scene by its owner."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sensorium.spec import FieldSpec
from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import Topic
from sensorium.wire.serializers import FieldSerializer, by_name, for_kind
from sensorium.wire.stream_info import IN_CONSTANTS, StreamInfo

if TYPE_CHECKING:
    from sensorium.scene import Scene
    from sensorium.scene.publish import SampleCursor
    from sensorium.sensors.core.base import Sensor


PLACES = ("frames", "drawing")
"""Constants of a stream that change if its sensor is moved on its body."""


class StreamCatalog:
    """The streams of a server. All methods run on the thread of the loop's owner.

    Args:
        scene: the scene.
        table: the subscriptions.
        cursor: tracker of the samples of the scene's sensors that were not yet published.
        on_demand: whether expensive sensors of the scene are computed only while they are listened to, read or
            recorded.
    """

    def __init__(self, scene: Scene, table: SubscriptionTable, cursor: SampleCursor, *, on_demand: bool) -> None:
        self._scene, self._table, self._cursor, self._on_demand = scene, table, cursor, on_demand
        self._numbers = itertools.count(1)
        self._noted = -1
        """Version of the subscriptions that were passed to the sensors."""
        self._lossless: list[Sensor[Any, Any]] = []
        self.topics: dict[str, Topic] = {}
        """Name -> stream."""
        self.listened: dict[str, Sensor[Any, Any]] = {}
        """Sensors of the scene with listeners; each counts this server among its listeners."""

    def number(self) -> int:
        """Return the number of a new stream."""
        return next(self._numbers)

    def offer(self, info: StreamInfo, *, env: int | None = None) -> None:
        """Offer a stream; with `env`, only of that environment."""
        serializer = by_name(info.type_name) if info.type_name else FieldSerializer
        topic = self.topics[info.name] = Topic(info, serializer, env)
        self._table.add_topic(topic)

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
        info = self._info(self.number(), name, described)
        if (self._on_demand if on_demand is None else on_demand) and _can_be_on_demand(info):
            self._scene.compute_on_demand(name)
        self.offer(info, env=env)

    def withdraw(self, name: str, reason: str) -> None:
        """Withdraw a stream."""
        topic = self.topics.pop(name)
        self.no_longer_listened(name)
        self._table.remove_topic(topic.info.id, reason)

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
                self._table.replace_info(topic, now)
            if self._on_demand and _can_be_on_demand(now) and self._scene[name].buffers.plan.evaluate != "wanted":
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
                self._cursor.skip(sensor, since)
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


def _fixed(info: StreamInfo) -> StreamInfo:
    """Return the information without the places of the sensor, which may change."""
    return replace(info, constants={key: info.constants[key] for key in info.constants if key not in PLACES})


def _can_be_on_demand(info: StreamInfo) -> bool:
    """Return whether a sensor has images or many numbers per env, so that on-demand computation pays off."""
    is_auto = info.cfg.get("evaluate", "auto") == "auto"
    return is_auto and any(spec.role == "image" or spec.columns >= 256 for spec in info.specs)
