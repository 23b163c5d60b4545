"""Streamed sensors: sensors that live in the server, look at the bodies of the world in each frame, and send messages.

An author derives from `StreamedSensor`; defining the class registers it. It needs a `definition` (what a user can set),
and, in order to send, a serializer. A frame is a moment at which the server looks at its sensors. What is sent carries
the frame, the time and the pose of the moment at which it was measured, also where a worker thread sends it later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sensorium.errors import RegistrationError, shown
from sensorium.readings import Array, Bodies, Reading
from sensorium.stream.failures import FailureLog, SensorFailure
from sensorium.stream.geometry import quat_product, rotated
from sensorium.stream.model import Model
from sensorium.stream.sending import Stream
from sensorium.wire.attributes import ActorDescription
from sensorium.wire.owner import Owner
from sensorium.wire.pose import Pose
from sensorium.wire.serializers import Serializer
from sensorium.wire.spawned import SpawnedSensor, check_envs, place, registry_of, rows_of
from sensorium.wire.world import Snapshot

if TYPE_CHECKING:
    from sensorium.cfg import SensorCfg

ENTRY_POINT_GROUP = "sensorium.streamed"
"""Where installed packages announce modules with streamed sensors."""

OURS = ("sensorium.stream.safe_distance", "sensorium.stream.collision")
"""Modules with our own streamed sensors."""
REGISTRY = registry_of("streamed sensor", ENTRY_POINT_GROUP, OURS)


class StreamedSensor(SpawnedSensor):
    """Base of streamed sensors: define `definition`, and what else is needed of `set`, `set_owner` and `tick`.

    The order of calls is: `__init__` without arguments, `set`, `set_owner`, `scene_sensors`, then `tick` in each frame,
    and `close` at the end; all on the simulation's thread. What is set and attached is known from `set` on. A class
    that defines `definition` is registered under its id; one that inherits it registers nothing.
    """

    serializer: ClassVar[type[Serializer]]
    """Makes bytes out of what is given to `stream.send`, and data of them on the other side."""
    events: ClassVar[bool] = False
    """Whether its messages are events: none is left out for a newer one."""

    readings: Mapping[str, Reading]
    """The newest readings of the scene's sensors that `scene_sensors` asked for, by their keys; before each `tick`."""
    is_within_step: bool = False
    """Whether the frame is in the midst of a control step, of which further ticks follow; before each `tick`."""

    _registry = REGISTRY
    _bodies: Bodies
    _stream: Stream

    def __init_subclass__(cls, **kwargs: Any) -> None:
        serializer = getattr(cls, "serializer", None)
        if serializer is not None and not (isinstance(serializer, type) and issubclass(serializer, Serializer)):
            raise RegistrationError(
                f"{cls.__qualname__}.serializer is {shown(serializer)}, expected a subclass of Serializer"
            )
        super().__init_subclass__(**kwargs)

    def scene_sensors(self, model: Model) -> Mapping[str, Mapping[str, Any]]:
        """Return sensors that the scene must have for this one: by a key of its own the config, with its `kind`.

        They are added once, after `set_owner`, and removed with this sensor; see `readings`.

        Args:
            model: what the engine has and can give.
        """
        return {}

    def tick(self, snapshot: Snapshot) -> None:
        """Measure, and send what there is to send; called in every frame. An exception ends the sensor."""

    @property
    def bodies(self) -> Bodies:
        """All bodies, by id or name."""
        return self._bodies

    @property
    def stream(self) -> Stream:
        """What it sends with."""
        return self._stream

    @property
    def listeners(self) -> bool:
        """Whether anyone listens."""
        return self._stream.has_listeners

    def reading_rows(self, key: str) -> slice:
        """Return where the sensor's environments are on the first axis of `readings[key]`.

        Raises:
            StreamError: the reading does not have all of them.
        """
        return rows_of(self.readings[key].env_ids, self, f"the reading {key!r}")

    def pose(self, snapshot: Snapshot) -> Array:
        """Return where the sensor is in the world, float64 `[env, 7]`: position in m, orientation wxyz."""
        own = self._transform.to_array()
        own[3:] /= np.linalg.norm(own[3:])  # a pose may be a little off
        if self._owner is None:
            return np.tile(own, (len(self._envs), 1))
        rows, body = self.rows(snapshot), snapshot.bodies.row(self._owner.body.id)
        quat = snapshot.quat_w[rows, body].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # a state may be anything
            quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
        out = np.empty((len(quat), 7))
        out[:, :3] = snapshot.pos_w[rows, body] + rotated(quat, own[:3])
        out[:, 3:] = quat_product(quat, own[3:])
        return out


# Registry -------------------------------------------------------------------------------------------------------------


def registered() -> dict[str, type[StreamedSensor]]:
    """Return all streamed sensors that are known, by id: ours, those of plugins, and those defined so far.

    A plugin that cannot be loaded is reported by name, once, and takes nothing down.
    """
    return REGISTRY.registered()


def find(id: str) -> type[StreamedSensor]:
    """Return the streamed sensor with an id.

    Raises:
        UnknownNameError: there is none; the message has the nearest, and the plugins that could not be loaded.
    """
    return REGISTRY.find(id)


# What the server does with them ---------------------------------------------------------------------------------------


def spawn(
    cls: type[StreamedSensor],
    name: str,
    description: ActorDescription,
    *,
    stream: Callable[[StreamedSensor], Stream],
    bodies: Bodies,
    envs: range,
    transform: Pose | None = None,
    owner: Owner | None = None,
) -> StreamedSensor:
    """Make a streamed sensor: build it, give it its attributes, then its owner.

    Args:
        cls: its class.
        name: its name in the server.
        description: blueprint and chosen attributes.
        stream: makes its stream.
        bodies: all bodies of the world.
        envs: the environments it is for, one after the other.
        transform: its pose relative to the owner, else in the world.
        owner: what it is attached to.

    Raises:
        ConfigError: environments that do not follow each other.
        Exception: what its own `__init__`, `set` and `set_owner` raise; it then was closed.
    """
    check_envs(cls, envs)
    sensor = cls()
    place(sensor, name, description, envs, transform, owner)
    sensor._bodies, sensor.readings = bodies, {}
    sensor._stream = stream(sensor)
    try:
        sensor.set(description)
        sensor.set_owner(owner)
    except BaseException:
        sensor._stream.close()
        sensor.close()
        raise
    return sensor


def scene_cfgs(sensor: StreamedSensor, model: Model) -> dict[str, SensorCfg[Any]]:
    """Return the configs of the sensors that the scene must have for a sensor, by its own keys.

    Their names are ``NAME/KEY``, with the sensor's name.

    Raises:
        ConfigError, UnknownNameError, UnsupportedError: there are no such sensors.
    """
    wanted = sensor.scene_sensors(model)
    return {key: config({**values, "name": f"{sensor.name}/{key}"}) for key, values in wanted.items()}


def config(values: Mapping[str, Any]) -> SensorCfg[Any]:
    """Return the config that a mapping with a `kind` means.

    Raises:
        ConfigError, UnknownNameError: it means none.
    """
    from sensorium import registry  # clients import this module for its serializers, without what configs need

    given = dict(values)
    cfg: SensorCfg[Any] = registry.cfg_for_kind(given.pop("kind")).from_dict(given)
    return cfg


def run_tick(sensor: StreamedSensor, snapshot: Snapshot, failures: FailureLog) -> SensorFailure | None:
    """Let a sensor measure; return why it must end, None where it goes on.

    Args:
        sensor: the sensor; `readings` are set already.
        snapshot: the bodies at the frame in progress.
        failures: where its exception goes, with its name.
    """
    stream = sensor.stream
    try:
        stream.begin_tick()
        try:
            sensor.tick(snapshot)
        finally:
            stream.end_tick()
    except Exception as error:
        return failures.add(sensor.name, "tick", snapshot.frame, error)
    return None


def end(sensor: StreamedSensor, failures: FailureLog) -> None:
    """Close a sensor and its stream; an exception in its `close` is reported."""
    sensor._stream.close()
    try:
        sensor.close()
    except Exception as error:
        failures.add(sensor.name, "close", -1, error)
