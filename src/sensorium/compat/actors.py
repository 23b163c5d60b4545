"""CARLA's names for blueprints, their attributes and definitions. It needs no torch, so that clients can use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from sensorium.wire.attributes import Attribute, SensorDefinition, text_of

if TYPE_CHECKING:
    from sensorium.wire.keywords import AttributeType


@dataclass(frozen=True, kw_only=True)
class ActorAttribute(Attribute):
    """Attribute of a blueprint with its value at the time of the look-up.

    Args:
        value: current value, as a Python value; the default if no value was set; None if there is no default either.
        is_chosen: whether a value was set.
        blueprint: id of the blueprint.
    """

    value: Any
    is_chosen: bool
    blueprint: str

    def as_bool(self) -> bool:
        """Return the value as a bool.

        Raises:
            ConfigError: the value is not a bool.
        """
        return cast(bool, self._as("boolean"))

    def as_int(self) -> int:
        """Return the value as an integer.

        Raises:
            ConfigError: the value is not an integer.
        """
        return cast(int, self._as("integer"))

    def as_float(self) -> float:
        """Return the value as a float.

        Raises:
            ConfigError: the value is not a number.
        """
        return cast(float, self._as("number"))

    def as_str(self) -> str:
        """Return the value as text; empty if there is no value."""
        return text_of(self.value)

    def _as(self, type: AttributeType) -> Any:
        return Attribute(self.id, {"type": type}, required=True).parse(self.value, self.blueprint)


class ActorBlueprint(ABC):
    """Methods of a blueprint that is also a mapping from the ids of its attributes to their values."""

    definition: SensorDefinition

    @property
    @abstractmethod
    def chosen(self) -> Mapping[str, Any]:
        """Values that were set: attribute id -> value."""

    @abstractmethod
    def __getitem__(self, id: str) -> Any: ...

    @abstractmethod
    def __setitem__(self, id: str, value: object) -> None: ...

    def __iter__(self) -> Iterator[ActorAttribute]:
        return (self.get_attribute(attribute.id) for attribute in self.definition)

    @property
    def tags(self) -> list[str]:
        """Search tags."""
        return list(self.definition.tags)

    def has_attribute(self, id: str) -> bool:
        """Return whether the blueprint has an attribute with this id."""
        return id in self.definition

    def get_attribute(self, id: str) -> ActorAttribute:
        """Return the current value of an attribute.

        Raises:
            UnknownNameError: the attribute does not exist; the message suggests the nearest name.
        """
        value, attribute = self[id], self.definition[id]
        about = {"value": value, "is_chosen": id in self.chosen, "blueprint": self.definition.id}
        return ActorAttribute(id, attribute.schema, attribute.required, **about)

    def set_attribute(self, id: str, value: object) -> None:
        """Set an attribute to a value, given as text or as a Python value; None restores the default.

        Raises:
            UnknownNameError: the attribute does not exist; the message suggests the nearest name.
            ConfigError: the value has the wrong type, is out of bounds, or is not among the allowed values.
        """
        self[id] = value

    def set_attributes(self, **values: object) -> Self:
        """Set several attributes and return the blueprint itself.

        Raises:
            UnknownNameError: an attribute does not exist.
            ConfigError: a value is invalid.
        """
        for name, value in values.items():
            self[name] = value
        return self


def make_generic_sensor_definition(
    type: str = "other", id: str = "", attributes: Iterable[Attribute] = (), **fields: Any
) -> SensorDefinition:
    """Return the definition ``sensor.TYPE.ID``; authors add attributes with `with_attributes`.

    Args:
        type: group of the sensor, e.g. ``"other"``, ``"camera"``, ``"lidar"``.
        id: name within the group, e.g. ``"safe_distance"``.
        attributes: attributes of the blueprint.
        fields: see `SensorDefinition`.

    Raises:
        ConfigError: the names do not form a valid id.
    """
    return SensorDefinition(id=f"sensor.{type}.{id}", attributes=tuple(attributes), **fields)
