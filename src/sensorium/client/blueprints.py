"""The blueprint library: which sensors a server can make, and what is to be chosen before one is spawned.

>>> bp = client.blueprints.find("sensor.other.imu")      # doctest: +SKIP
>>> bp["rate_hz"] = 100                                  # doctest: +SKIP
>>> imu = client.spawn(bp, attach_to="robot/base")       # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, overload

from sensorium.client import checks
from sensorium.errors import ConfigError
from sensorium.wire.attributes import (
    Attribute,
    AttributeType,
    SensorDefinition,
    blueprint_title,
    find_definition,
    plain,
)


@dataclass(frozen=True, slots=True, eq=False)
class ActorAttribute:
    """The value of one attribute of a blueprint at one moment.

    It compares with Python values and with text: ``attribute == 100`` and ``attribute == "100"`` say the same.

    Args:
        attribute: what may be chosen.
        value: what is chosen, as a Python value; the default where nothing is; None where it is not given at all.
        is_chosen: whether it was set.
        blueprint: id of the blueprint.
    """

    attribute: Attribute
    value: Any
    is_chosen: bool
    blueprint: str

    @property
    def id(self) -> str:
        """Name of the attribute."""
        return self.attribute.id

    @property
    def type(self) -> AttributeType:
        """What it takes."""
        return self.attribute.type

    @property
    def recommended_values(self) -> tuple[str, ...]:
        """Values that make sense, as text."""
        return self.attribute.recommended_values

    @property
    def restrict_to_recommended(self) -> bool:
        """Whether no other value is accepted."""
        return self.attribute.restrict_to_recommended

    @property
    def is_modifiable(self) -> bool:
        """Whether it can be set: always."""
        return True

    def as_bool(self) -> bool:
        """Return the truth value.

        Raises:
            ConfigError: it is none.
        """
        return bool(self._as("bool"))

    def as_int(self) -> int:
        """Return the whole number.

        Raises:
            ConfigError: it is none.
        """
        return int(self._as("int"))

    def as_float(self) -> float:
        """Return the number.

        Raises:
            ConfigError: it is none.
        """
        return float(self._as("float"))

    def as_str(self) -> str:
        """Return the value as text; empty where it is not given."""
        return self.attribute.text(self.value)

    def _as(self, type: AttributeType) -> Any:
        value = None
        if self.value is not None:
            value = Attribute(id=self.id, type=type).parse(self.value, self.blueprint)
        if value is None:
            expected = Attribute(id=self.id, type=type).expected
            fix = "It is not set and has no default." if self.value is None else ""
            raise ConfigError.single(blueprint_title(self.blueprint), self.id, self.value, expected, fix)
        return value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return self.as_int()

    def __float__(self) -> float:
        return self.as_float()

    def __str__(self) -> str:
        return self.as_str()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ActorAttribute):
            return self.id == other.id and self.value == other.value
        if isinstance(other, bool) != isinstance(self.value, bool) and not isinstance(other, str):
            return False
        if self.value is None or other is None:
            return self.value is other or (self.value is None and other == "")
        try:
            return bool(self.value == self.attribute.parse(other))
        except ConfigError:
            return False

    def __hash__(self) -> int:
        return hash((self.id, self.as_str()))

    def __repr__(self) -> str:
        unit = f" {self.attribute.unit}" if self.attribute.unit and self.value is not None else ""
        shown = "not set" if self.value is None else f"{self.value!r}{unit}"
        kinds = f"const {self.type}" if self.restrict_to_recommended else self.type
        return f"ActorAttribute({self.id}: {kinds} = {shown}{'' if self.is_chosen else ', the default'})"


class Blueprint:
    """A sensor to be made, and what is chosen about it; each is a copy of its own.

    Attributes are set with `set_attribute` or as in a mapping, ``blueprint["rate_hz"] = 100``, by text or by Python
    values. What is not accepted is an error at once.

    Args:
        definition: which sensor, and what can be chosen.
        chosen: attribute id -> value.

    Raises:
        ConfigError: a value is not accepted.
        UnknownNameError: there is no such attribute.
    """

    def __init__(self, definition: SensorDefinition, chosen: Mapping[str, object] | None = None) -> None:
        self.definition = definition
        self._chosen: dict[str, Any] = {}
        for name, value in (chosen or {}).items():
            self.set_attribute(name, value)

    @property
    def id(self) -> str:
        """Id of the blueprint, e.g. ``"sensor.other.imu"``."""
        return self.definition.id

    @property
    def kind(self) -> str:
        """Short name of the sensor, e.g. ``"imu"``."""
        return self.definition.kind

    @property
    def tags(self) -> list[str]:
        """Words to search by."""
        return list(self.definition.tags)

    @property
    def doc(self) -> str:
        """What the sensor is."""
        return self.definition.doc

    @property
    def needs(self) -> str:
        """What must be reserved when the server starts; empty where nothing is needed."""
        return self.definition.needs

    def has_tag(self, tag: str) -> bool:
        """Return whether it has a tag."""
        return tag in self.definition.tags

    def match_tags(self, wildcard: str) -> bool:
        """Return whether its id or one of its tags fits a pattern such as ``"sensor.lidar.*"``."""
        checks.text("match_tags", "wildcard", wildcard, "a pattern")
        return any(fnmatchcase(word, wildcard) for word in (self.id, *self.definition.tags))

    def has_attribute(self, id: str) -> bool:
        """Return whether there is an attribute of that id."""
        return id in self.definition

    def get_attribute(self, id: str) -> ActorAttribute:
        """Return the value of an attribute as it is now.

        Raises:
            UnknownNameError: there is none of that id, with the nearest.
        """
        attribute = self._attribute(id)
        is_chosen = id in self._chosen
        return ActorAttribute(attribute, self._chosen[id] if is_chosen else attribute.value, is_chosen, self.id)

    def set_attribute(self, id: str, value: object) -> None:
        """Choose a value, by text or by a Python value; None takes the choice back.

        Raises:
            UnknownNameError: there is no attribute of that id, with the nearest.
            ConfigError: the value is not of its type, not within its bounds, or none of those it is restricted to.
        """
        attribute = self._attribute(id)
        if value is None:
            self._chosen.pop(id, None)
            return
        parsed = attribute.parse(value, self.id)
        if parsed is None:
            self._chosen.pop(id, None)
        else:
            self._chosen[id] = parsed

    def set_attributes(self, **values: object) -> Blueprint:
        """Choose several values and return the blueprint itself.

        Raises:
            UnknownNameError: there is no such attribute.
            ConfigError: a value is not accepted.
        """
        for name, value in values.items():
            self.set_attribute(name, value)
        return self

    def _attribute(self, id: str) -> Attribute:
        return self.definition[checks.text(blueprint_title(self.id), "attribute", id, "the id of an attribute")]

    @property
    def chosen(self) -> dict[str, Any]:
        """What was set, as plain data: attribute id -> value."""
        return {name: plain(value) for name, value in self._chosen.items()}

    def check(self) -> None:
        """Raise `ConfigError` where something that must be chosen is not."""
        self.definition.describe(self._chosen)

    def copy(self) -> Blueprint:
        """Return a blueprint of its own with the same choices."""
        twin = Blueprint(self.definition)
        twin._chosen = dict(self._chosen)
        return twin

    def __getitem__(self, id: str) -> Any:
        """Return the value of an attribute as a Python value; None where it is not given.

        Raises:
            UnknownNameError: there is none of that id, with the nearest.
        """
        return self.get_attribute(id).value

    def __setitem__(self, id: str, value: object) -> None:
        self.set_attribute(id, value)

    def __delitem__(self, id: str) -> None:
        self.set_attribute(id, None)

    def __contains__(self, id: object) -> bool:
        return id in self.definition

    def __iter__(self) -> Iterator[ActorAttribute]:
        return (self.get_attribute(attribute.id) for attribute in self.definition)

    def __len__(self) -> int:
        return len(self.definition)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        chosen = [f"{name}={value!r}" for name, value in self._chosen.items()]
        missing = [each.id for each in self.definition if each.required and each.id not in self._chosen]
        rest = len(self) - len(chosen) - len(missing)
        parts = [*chosen, *([f"{', '.join(missing)} to be set"] if missing else [])]
        parts.append(f"{rest} attribute{'' if rest == 1 else 's'} at {'its' if rest == 1 else 'their'} default")
        return f"Blueprint({self.id!r}: {', '.join(parts)})"

    def __str__(self) -> str:
        """Return the blueprint with all its attributes, one a line."""
        lines = [f"{self.id}: {self.doc}" if self.doc else self.id]
        if self.needs:
            lines.append(f"  needs: {self.needs}")
        for each in self:
            unit = f" {each.attribute.unit}" if each.attribute.unit else ""
            text = each.as_str() or ("to be set" if each.attribute.required else "not set")
            among = f" (one of {', '.join(each.recommended_values)})" if each.restrict_to_recommended else ""
            meaning = " ".join(each.attribute.doc.split())
            mark = "*" if each.is_chosen else " "
            lines.append(f"{mark} {each.id}: {each.type} = {text}{unit}{among}{'  ' + meaning if meaning else ''}")
        return "\n".join(lines)


class BlueprintLibrary:
    """The blueprints of a server, in the order of their ids; every look-up gives a fresh copy.

    Args:
        definitions: the sensors that can be made.
    """

    def __init__(self, definitions: Iterable[SensorDefinition]) -> None:
        self._definitions = {each.id: each for each in sorted(definitions, key=lambda each: each.id)}

    @classmethod
    def from_dicts(cls, items: Iterable[Mapping[str, Any]]) -> BlueprintLibrary:
        """Build the library from definitions as plain data.

        Raises:
            WireError: one of them is none.
        """
        return cls(SensorDefinition.from_dict(item) for item in items)

    def find(self, id: str) -> Blueprint:
        """Return the blueprint of an id such as ``"sensor.other.imu"``; the bare kind (``"imu"``) will do.

        Raises:
            UnknownNameError: there is none, with the nearest.
            ConfigError: that is no text.
        """
        checks.text("blueprints.find", "id", id, "the id of a blueprint, e.g. 'sensor.other.imu'")
        return Blueprint(find_definition(self._definitions, id))

    def filter(self, wildcard: str) -> BlueprintLibrary:
        """Return the blueprints whose id or one of whose tags fits a pattern such as ``"sensor.lidar.*"``."""
        checks.text("blueprints.filter", "wildcard", wildcard, "a pattern, e.g. 'sensor.lidar.*'")
        return BlueprintLibrary(each.definition for each in self if each.match_tags(wildcard))

    def filter_by_attribute(self, name: str, value: object) -> BlueprintLibrary:
        """Return the blueprints with an attribute whose default, or one of whose recommended values, is that."""

        def offers(definition: SensorDefinition) -> bool:
            if name not in definition:
                return False
            attribute = definition[name]
            values = [attribute.value, *map(attribute.parse, attribute.recommended_values)]
            return any(ActorAttribute(attribute, each, False, definition.id) == value for each in values)

        return BlueprintLibrary(each for each in self._definitions.values() if offers(each))

    @property
    def ids(self) -> list[str]:
        """The ids, in order."""
        return list(self._definitions)

    @overload
    def __getitem__(self, index: int | str) -> Blueprint: ...
    @overload
    def __getitem__(self, index: slice) -> BlueprintLibrary: ...
    def __getitem__(self, index: int | str | slice) -> Blueprint | BlueprintLibrary:
        """Return one blueprint by its place or its id, or a part of the library.

        Raises:
            IndexError: past the end.
            UnknownNameError: no such id, with the nearest.
        """
        if isinstance(index, str):
            return self.find(index)
        found = list(self._definitions.values())[index]
        return Blueprint(found) if isinstance(found, SensorDefinition) else BlueprintLibrary(found)

    def __contains__(self, id: object) -> bool:
        return id in self._definitions or (isinstance(id, str) and any(id == each.kind for each in self))

    def __iter__(self) -> Iterator[Blueprint]:
        return map(Blueprint, self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)

    def __repr__(self) -> str:
        return f"BlueprintLibrary({len(self)} blueprints: {', '.join(self.ids)})"
