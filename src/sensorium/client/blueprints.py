"""Blueprint library: the sensors that a server can spawn, and the attributes to set before spawning.

>>> bp = client.blueprints.find("sensor.other.imu")      # doctest: +SKIP
>>> bp["rate_hz"] = 100                                  # doctest: +SKIP
>>> imu = client.spawn(bp, attach_to="robot/base")       # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from sensorium.client import checks
from sensorium.compat.actors import ActorBlueprint
from sensorium.wire.attributes import Attribute, SensorDefinition, blueprint_title, find_definition, plain


class Blueprint(ActorBlueprint):
    """Definition of a sensor to spawn, with the chosen attribute values; each look-up returns an independent copy.

    Attributes are set with the syntax of a mapping, ``blueprint["rate_hz"] = 100``, or with `set_attribute`. Values are
    text or Python values. An invalid value raises an error immediately.

    Args:
        definition: the sensor and its attributes.
        chosen: attribute id -> value.

    Raises:
        ConfigError: a value is invalid.
        UnknownNameError: an attribute does not exist.
    """

    def __init__(self, definition: SensorDefinition, chosen: Mapping[str, object] | None = None) -> None:
        self.definition = definition
        self._chosen: dict[str, Any] = {}
        self.set_attributes(**(chosen or {}))

    @property
    def id(self) -> str:
        """Id of the blueprint, e.g. ``"sensor.other.imu"``."""
        return self.definition.id

    def match_tags(self, wildcard: str) -> bool:
        """Return whether the id or a tag matches a pattern such as ``"sensor.lidar.*"``."""
        checks.text("match_tags", "wildcard", wildcard, "a pattern")
        return any(fnmatchcase(word, wildcard) for word in (self.id, *self.definition.tags))

    def _attribute(self, id: str) -> Attribute:
        return self.definition[checks.text(blueprint_title(self.id), "attribute", id, "the id of an attribute")]

    @property
    def chosen(self) -> dict[str, Any]:
        """Values that were set, as plain data: attribute id -> value."""
        return {name: plain(value) for name, value in self._chosen.items()}

    def check(self) -> None:
        """Raise `ConfigError` if a required attribute is not set."""
        self.definition.describe(self._chosen)

    def copy(self) -> Blueprint:
        """Return an independent copy with the same values."""
        return Blueprint(self.definition, self._chosen)

    def __getitem__(self, id: str) -> Any:
        """Return the value of an attribute as a Python value; None if there is no value.

        Raises:
            UnknownNameError: the attribute does not exist; the message suggests the nearest name.
        """
        attribute = self._attribute(id)
        return self._chosen[id] if id in self._chosen else attribute.default

    def __setitem__(self, id: str, value: object) -> None:
        """Set an attribute to a value, given as text or as a Python value; None restores the default.

        Raises:
            UnknownNameError: the attribute does not exist; the message suggests the nearest name.
            ConfigError: the value has the wrong type, is out of bounds, or is not among the allowed values.
        """
        attribute = self._attribute(id)
        if (parsed := None if value is None else attribute.parse(value, self.id)) is None:
            self._chosen.pop(id, None)
        else:
            self._chosen[id] = parsed

    def __delitem__(self, id: str) -> None:
        self[id] = None

    def __contains__(self, id: object) -> bool:
        return id in self.definition

    def __repr__(self) -> str:
        chosen = "".join(f", {name}={value!r}" for name, value in self._chosen.items())
        return f"Blueprint({self.id!r}{chosen})"

    def __str__(self) -> str:
        """Return the blueprint with all its attributes, one per line."""
        lines = [f"{self.id}: {self.definition.doc}" if self.definition.doc else self.id]
        if self.definition.needs:
            lines.append(f"  needs: {self.definition.needs}")
        for each in self:
            text = each.as_str() or ("to be set" if each.required else "not set")
            unit = f" {each.unit}" if each.unit else ""
            among = f" (one of {', '.join(each.recommended_values)})" if each.choices else ""
            mark = "*" if each.is_chosen else " "
            lines.append(f"{mark} {each.id}: {each.type} = {text}{unit}{among}  {each.doc}".rstrip())
        return "\n".join(lines)


class BlueprintLibrary:
    """Blueprints of a server, sorted by id; every look-up returns a new copy.

    Args:
        definitions: the available sensors.
    """

    def __init__(self, definitions: Iterable[SensorDefinition]) -> None:
        self._definitions = {each.id: each for each in sorted(definitions, key=lambda each: each.id)}

    def find(self, id: str) -> Blueprint:
        """Return the blueprint with an id such as ``"sensor.other.imu"``; the short kind (``"imu"``) is also accepted.

        Raises:
            UnknownNameError: the blueprint does not exist; the message suggests the nearest name.
            ConfigError: the id is not text.
        """
        checks.text("blueprints.find", "id", id, "the id of a blueprint, e.g. 'sensor.other.imu'")
        return Blueprint(find_definition(self._definitions, id))

    def filter(self, wildcard: str) -> BlueprintLibrary:
        """Return the blueprints whose id or tags match a pattern such as ``"sensor.lidar.*"``."""
        checks.text("blueprints.filter", "wildcard", wildcard, "a pattern, e.g. 'sensor.lidar.*'")
        return BlueprintLibrary(each.definition for each in self if each.match_tags(wildcard))

    @property
    def ids(self) -> list[str]:
        """Ids of all blueprints, sorted."""
        return list(self._definitions)

    def __getitem__(self, index: int | str) -> Blueprint:
        """Return one blueprint by index or by id.

        Raises:
            IndexError: the index is out of range.
            UnknownNameError: the id does not exist; the message suggests the nearest name.
        """
        return self.find(index) if isinstance(index, str) else Blueprint(list(self._definitions.values())[index])

    def __contains__(self, id: object) -> bool:
        return id in self._definitions or (
            isinstance(id, str) and any(id == each.kind for each in self._definitions.values())
        )

    def __iter__(self) -> Iterator[Blueprint]:
        return map(Blueprint, self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)

    def __repr__(self) -> str:
        return f"BlueprintLibrary({len(self)} blueprints: {', '.join(self.ids)})"
