"""What sensors that are spawned from blueprints have in common, whether they work in the server or in a client.

Defining a class with a `definition` registers it under its id, in the registry of its side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError, RegistrationError, StreamError, shown
from sensorium.plugins import Plugins, Registry
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.owner import Owner
from sensorium.wire.pose import Pose
from sensorium.wire.world import Snapshot


def registry_of(what: str, group: str, ours: Sequence[str]) -> Registry[str, type[Any]]:
    """Return a registry of sensors by the id of their definition.

    Args:
        what: what they are, for messages, e.g. ``"client sensor"``.
        group: the entry-point group in which installed packages announce modules with more of them.
        ours: our own modules with them.
    """
    clash = "{cls} defines {key!r}, which {other} defines already: give it another id."
    return Registry(what, Plugins(group, what, ours), clash)


class SpawnedSensor:
    """Base of sensors that are spawned: what they are told, and what they know of themselves."""

    _registry: ClassVar[Registry[str, type[Any]]]
    """The registry of the side on which it works."""

    _name: str
    _envs: range
    _transform: Pose
    _description: ActorDescription
    _owner: Owner | None

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the id, the attributes and their defaults. The one method that a sensor must have."""
        raise RegistrationError(f"{cls.__qualname__} has no definition: @classmethod def definition(cls)")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "definition" in vars(cls):
            definition: object = cls.definition()
            if not isinstance(definition, SensorDefinition):
                raise RegistrationError(
                    f"{cls.__qualname__}.definition() returned {shown(definition)}, expected a SensorDefinition"
                )
            cls._registry.add(definition.id, cls)

    def set(self, description: ActorDescription) -> None:
        """Take the attributes; called once, right after creation. Call `super().set(description)` first."""

    def set_owner(self, owner: Owner | None) -> None:
        """Take what the sensor is attached to; None: nothing, it stands in the world. Call `super()`'s first."""

    def close(self) -> None:
        """Let go of what it holds; called once, when it is destroyed. Call `super().close()` as well."""

    @property
    def name(self) -> str:
        """Its name in the server."""
        return self._name

    @property
    def envs(self) -> range:
        """The environments that it is for, one after the other."""
        return self._envs

    @property
    def transform(self) -> Pose:
        """Its pose in the frame of the body that it is attached to, else in the world."""
        return self._transform

    @property
    def description(self) -> ActorDescription:
        """Its blueprint's id and the attributes that were chosen."""
        return self._description

    @property
    def owner(self) -> Owner | None:
        """What it is attached to."""
        return self._owner

    def rows(self, snapshot: Snapshot) -> slice:
        """Return where the sensor's environments are on the first axis of a snapshot's arrays.

        Raises:
            StreamError: the snapshot does not have all of them.
        """
        return rows_of(snapshot.env_ids, self, "the snapshot")


def rows_of(env_ids: npt.NDArray[Any], sensor: SpawnedSensor, what: str) -> slice:
    """Return where a sensor's environments are among some that ascend.

    Args:
        env_ids: their numbers.
        sensor: the sensor.
        what: what has these environments, for the message.

    Raises:
        StreamError: not all of them are there.
    """
    envs = sensor.envs
    first = int(np.searchsorted(env_ids, envs.start))
    rows = slice(first, first + len(envs))
    if not np.array_equal(env_ids[rows], envs):
        raise StreamError(
            f"sensor {sensor.name!r}: {what} does not have all of the environments {envs.start}..{envs.stop - 1}"
        )
    return rows


def check_envs(cls: type, envs: range) -> None:
    """Refuse environments that a sensor cannot be for.

    Raises:
        ConfigError: they do not follow each other, or there are none.
    """
    if envs.step != 1 or not envs or envs.start < 0:
        raise ConfigError.single(cls.__name__, "envs", envs, "environments that follow each other, at least one")


def place(
    sensor: SpawnedSensor,
    name: str,
    description: ActorDescription,
    envs: range,
    transform: Pose | None,
    owner: Owner | None,
) -> None:
    """Tell a sensor what it knows of itself from `set` on."""
    sensor._name, sensor._description, sensor._envs = name, description, envs
    sensor._transform, sensor._owner = Pose() if transform is None else transform, owner
