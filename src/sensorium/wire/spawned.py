"""Common base of sensors that are spawned from blueprints, in the server or in a client.

The definition of a class with a `definition` registers it under its id, in the registry of its side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sensorium.errors import RegistrationError, StreamError, shown
from sensorium.plugins import Plugins, Registry
from sensorium.pose import Pose
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.world import Owner, Snapshot


def registry_of(what: str, group: str, ours: Sequence[str]) -> Registry[str, type[Any]]:
    """Return a registry of sensors by the id of their definition.

    Args:
        what: description of the sensors, for messages, e.g. ``"client sensor"``.
        group: entry-point group in which installed packages announce modules with further sensors.
        ours: built-in modules with such sensors.
    """
    clash = "{cls} defines {key!r}, which {other} already defines. Use another id."
    return Registry(what, Plugins(group, what, ours), clash)


class SpawnedSensor:
    """Base of spawned sensors: the configuration passed to them, and their properties."""

    _registry: ClassVar[Registry[str, type[Any]]]
    """Registry of the side on which the sensor runs."""

    name: str
    """Name of the sensor in the server."""
    envs: range
    """Environments of the sensor, consecutive."""
    transform: Pose
    """Pose of the sensor in the frame of its body, or in the world if it is not attached."""
    description: ActorDescription
    """Id of the blueprint and the chosen attributes."""
    owner: Owner | None
    """Body that the sensor is attached to; None for the world."""

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the id, the attributes and their defaults. This is the only required method of a sensor."""
        raise RegistrationError(f"{cls.__qualname__} needs a method: @classmethod def definition(cls)")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "definition" in vars(cls):
            definition: object = cls.definition()
            if not isinstance(definition, SensorDefinition):
                raise RegistrationError(
                    f"{cls.__qualname__}.definition() returned {shown(definition)}, expected a SensorDefinition"
                )
            cls._registry.add(definition.id, cls)

    def begin(
        self,
        name: str,
        description: ActorDescription,
        *,
        envs: range = range(1),
        transform: Pose | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Set the properties, then the attributes (`set`) and the owner (`set_owner`).

        Args:
            name: name of the sensor in the server.
            description: blueprint and chosen attributes.
            envs: its environments, consecutive.
            transform: its pose relative to the owner, or in the world without owner.
            owner: body that it is attached to.
        """
        self.name, self.description, self.envs = name, description, envs
        self.transform, self.owner = Pose() if transform is None else transform, owner
        self.set(description)
        if owner is not None:
            self.set_owner(owner)

    def set(self, description: ActorDescription) -> None:
        """Set the attributes; called once, right after creation. Overrides call `super().set(description)` first."""

    def set_owner(self, owner: Owner) -> None:
        """Set the body that the sensor is attached to; called once, after `set`, if the sensor is attached.

        Overrides call `super().set_owner(owner)` first.
        """

    def close(self) -> None:
        """Release all resources; called once, when the sensor is destroyed. Overrides also call `super().close()`."""

    def rows(self, snapshot: Snapshot) -> slice:
        """Return the rows of the sensor's environments on the first axis of a snapshot's arrays.

        Raises:
            StreamError: the snapshot does not contain all of them.
        """
        envs = self.envs
        first = int(np.searchsorted(snapshot.env_ids, envs.start))
        rows = slice(first, first + len(envs))
        if not np.array_equal(snapshot.env_ids[rows], envs):
            raise StreamError(
                f"the snapshot does not contain all environments {envs.start}..{envs.stop - 1} of sensor {self.name!r}"
            )
        return rows
