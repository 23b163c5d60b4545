"""Attributes of blueprints: accepted text and Python values, refused values, and transport."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.compat.carla import FActorVariation
from sensorium.errors import ConfigError, UnknownNameError, WireError
from sensorium.wire.attributes import (
    ActorDescription,
    Attribute,
    SensorDefinition,
    find_definition,
    text_of,
)

VECTOR = {"type": "array", "items": {"type": "number"}}
SCHEMAS: dict[str, dict[str, Any]] = {
    **{type: {"type": type} for type in ("boolean", "integer", "number", "string")},
    "array": VECTOR,
    "structure": {},
}

FRONT = FActorVariation("safe_distance_front", "float", ("1.0",))
BACK = FActorVariation("safe_distance_back", "float", ("0.5",))
SIDE = FActorVariation("safe_distance_lateral", "float", ("0.5",))


def safe_distance() -> SensorDefinition:
    return make_generic_sensor_definition("other", "safe_distance").with_attributes(FRONT, BACK, SIDE)


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "value", "meant"),
    [
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "1", True),
        ("boolean", False, False),
        ("integer", "7", 7),
        ("integer", " -7 ", -7),
        ("integer", 7.0, 7),
        ("integer", np.int64(7), 7),
        ("number", "0.02", 0.02),
        ("number", "1e3", 1000.0),
        ("number", 2, 2.0),
        ("number", np.float32(0.5), 0.5),
        ("number", "inf", math.inf),
        ("string", "raw", "raw"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("array", "[0, 0, 1]", (0.0, 0.0, 1.0)),
        ("array", "(0, 0, 1)", (0.0, 0.0, 1.0)),
        ("array", "0 0 1", (0.0, 0.0, 1.0)),
        ("array", "0,0,1", (0.0, 0.0, 1.0)),
        ("array", (0, 0, 1), (0.0, 0.0, 1.0)),
        ("array", np.arange(3), (0.0, 1.0, 2.0)),
        ("array", "[]", ()),
        ("structure", "0.02", 0.02),
        ("structure", "true", True),
        ("structure", "[0.1, 0.2]", [0.1, 0.2]),
        ("structure", "{uniform = [0, 0.02]}", {"uniform": [0, 0.02]}),
        ("structure", '{"uniform": [0, 0.02]}', {"uniform": [0, 0.02]}),
        ("structure", sn.Uniform(0.0, 0.02), {"uniform": [0.0, 0.02]}),
        ("structure", {"ang_vel_b": sn.Normal(0.0, 1.0)}, {"ang_vel_b": {"normal": [0.0, 1.0]}}),
        ("structure", "[{kind = 'low_pass', tau = 0.1}]", [{"kind": "low_pass", "tau": 0.1}]),
    ],
)
def test_value_is_accepted_as_text_and_python_value(type: Any, value: Any, meant: Any) -> None:
    parsed = Attribute("it", SCHEMAS[type]).parse(value)
    assert parsed == meant and parsed.__class__ is meant.__class__


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ("boolean", "yes", "true or false"),
        ("boolean", 2, "true or false"),
        ("integer", "7.5", "a whole number"),
        ("integer", 7.5, "a whole number"),
        ("integer", True, "a whole number"),
        ("integer", math.inf, "a whole number"),
        ("number", "fast", "a number"),
        ("number", "nan", "a number"),
        ("number", True, "a number"),
        ("number", [1.0], "a number"),
        ("string", [1.0], "text"),
        ("array", "[0, x]", "numbers"),
        ("array", 1.0, "numbers"),
        ("array", "[true]", "numbers"),
        ("structure", "{uniform = ", "JSON or TOML"),
        ("structure", "uniform", "JSON or TOML"),
        ("structure", "1\nother = 2", "JSON or TOML"),
        ("structure", "2024-01-01", "JSON or TOML"),
        ("structure", "[" * 100_000, "JSON or TOML"),
        ("structure", object(), "JSON or TOML"),
    ],
)
def test_wrong_type_error_names_blueprint_attribute_value_and_accepted_values(
    type: Any, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Attribute("rate", SCHEMAS[type]).parse(value, "sensor.other.imu")
    (fault,) = error.value.faults
    assert error.value.config == "Blueprint('sensor.other.imu')" and fault.field == "rate"
    assert expected in fault.expected and fault.got[:10] == repr(value)[:10]


@pytest.mark.parametrize("type", ["boolean", "integer", "number", "array", "structure"])
def test_none_and_empty_text_mean_unset(type: str) -> None:
    attribute = Attribute("it", SCHEMAS[type])
    assert attribute.type == type
    assert attribute.parse(None) is None and attribute.parse("  ") is None and attribute.default is None


@pytest.mark.parametrize("value", [0.1, -1e-300, math.inf, 7, True, "raw", [0.1, [2, {"a": "b"}]], "ä ö", (1.0, 0.1)])
def test_text_of_a_value_parses_to_that_value(value: Any) -> None:
    """Every double survives as Python's shortest text."""
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", tuple: "array"}
    attribute = Attribute("it", SCHEMAS[kinds.get(type(value), "structure")])
    assert attribute.parse(text_of(attribute.parse(value))) == value


def test_words_are_accepted_if_allowed() -> None:
    """In a structure with words, ``all`` is a word, a list is a list, and a pattern that is no list is a word."""
    fields = Attribute("fields", {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]})
    assert [fields.parse(text) for text in ("all", '["a", "b"]', "['a']", "[lr]_foot")] == [
        "all",
        ["a", "b"],
        ["a"],
        "[lr]_foot",
    ]


@pytest.mark.parametrize(
    ("schema", "good", "wrong", "says"),
    [
        ({"type": "number", "minimum": 0.0}, (0, 5), (-1e-9,), "a number >= 0"),
        ({"type": "number", "exclusiveMinimum": 0.0, "unit": "Hz"}, (1e-9,), (0.0, "0"), "a number > 0 (Hz)"),
        ({"type": "integer", "minimum": 1, "maximum": 30}, (1, 30), (0, "31"), "a whole number >= 1 and <= 30"),
        ({"type": "number", "maximum": 2.0}, (-9, 2, -math.inf), (2.1,), "a number <= 2"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, (0, 0.9), (1, -1), "a number >= 0 and < 1"),
        (VECTOR | {"maxItems": 3}, ([1, 2, 3],), ([1, 2], "1 2 3 4"), "3 numbers, e.g. [0, 0, 1]"),
        (VECTOR | {"minimum": 0.0}, ([0, 1],), ([0, -1],), "numbers, e.g. [0, 0, 1] >= 0"),
        ({"type": "array", "items": {"type": "number", "minimum": 0}}, ("0 1",), ("0 -1",), "[0, 0, 1] >= 0"),
        ({"minimum": 0.0}, (1, [0, 1], {"normal": [-1, 1]}), (-1, [1, -1], "-1"), "with numbers >= 0"),
        ({"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}], "unit": "s"}, (1,), (-1,), "number >= 0 (s)"),
    ],
)
def test_bounds_and_sizes_are_enforced(schema: Any, good: Any, wrong: Any, says: str) -> None:
    attribute = Attribute("it", schema)
    for value in good:
        attribute.parse(value)
    for value in wrong:
        with pytest.raises(ConfigError) as error:
            attribute.parse(value)
        assert error.value.faults[0].expected.endswith(says)


def test_enumerated_attribute_accepts_only_its_choices_and_suggests_nearest() -> None:
    mode = Attribute("mode", {"type": "string", "enum": ["fast", "exact"]})
    assert mode.parse("exact") == "exact" and mode.restrict_to_recommended
    with pytest.raises(ConfigError, match=r"got 'exakt', expected one of fast, exact\. Did you mean 'exact'"):
        mode.parse("exakt")
    assert Attribute("mode", {"type": "string", "examples": ["fast", "exact"]}).parse("exakt") == "exakt"
    rays = Attribute("rays", {"type": "integer", "enum": [7, 19]})
    assert rays.recommended_values == ("7", "19") and rays.parse("19") == 19 == rays.parse(19.0)
    tare = Attribute("tare", {"anyOf": [{"type": "boolean"}, {"type": "string", "const": "manual"}]})
    assert tare.parse(True) is True and tare.parse("manual") == "manual"
    off = Attribute("off", {"type": "boolean", "const": False, "description": "It is always off."})
    assert off.parse("False") is False and off.is_fixed
    for attribute, value in ((rays, 8), (tare, 1), (tare, "auto"), (off, "true")):
        with pytest.raises(ConfigError):
            attribute.parse(value)


def test_default_is_the_first_recommended_value_unless_given() -> None:
    """In CARLA's words; a schema states its default."""
    assert FRONT.default == 1.0 and FRONT.parse("2.5") == 2.5 and FRONT.recommended_values == ("1.0",)
    mode = FActorVariation("mode", "string", ("x", "y"), restrict_to_recommended=True)
    assert mode.schema == {"type": "string", "enum": ["x", "y"], "default": "x"}
    assert FActorVariation("mode").default is None
    assert Attribute("a", {"type": "number", "examples": [1.0], "default": "2.0"}).default == 2.0
    with pytest.raises(ConfigError, match=r"type: got 'Float', expected one of bool, int, float, string"):
        FActorVariation("a", "Float")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"id": "safe distance"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "a", "schema": {"type": "float"}}, "schema"),
        ({"id": "a", "schema": {"type": "number", "default": "x"}}, "default"),
        ({"id": "a", "schema": {"type": "number", "examples": ["x"]}}, "examples"),
        ({"id": "a", "schema": {"examples": "x"}}, "schema"),
        ({"id": "a", "schema": {"type": "integer", "enum": [1, "x"]}}, "enum"),
        ({"id": "a", "schema": {"type": "number", "minimum": 0.0, "default": -1.0}}, "default"),
    ],
)
def test_contradictory_attribute_is_refused(options: Any, field: str) -> None:
    with pytest.raises(ConfigError) as error:
        Attribute(**options)
    assert [fault.field for fault in error.value.faults] == [field]


def test_text_is_read_as_json_first() -> None:
    assert [Attribute("it", {}).parse(text) for text in ("null", '"1"', "1e3")] == [None, "1", 1000.0]


# Definitions ----------------------------------------------------------------------------------------------------------


def test_tutorial_definition_has_its_attributes_and_defaults() -> None:
    definition = safe_distance()
    assert definition.id == "sensor.other.safe_distance" and definition.tags == ("sensor", "other", "safe_distance")
    assert definition.describe().values == {
        "safe_distance_front": 1.0,
        "safe_distance_back": 0.5,
        "safe_distance_lateral": 0.5,
    }


def test_a_definition_is_a_collection_of_attributes_by_id() -> None:
    definition = safe_distance()
    assert "safe_distance_back" in definition and "back" not in definition
    assert len(definition) == 3 and list(definition) == [FRONT, BACK, SIDE]
    assert definition["safe_distance_back"] is BACK
    with pytest.raises(UnknownNameError, match=r"safe_distance_frnt.*Did you mean 'safe_distance_front'"):
        definition["safe_distance_frnt"]


@pytest.mark.parametrize("id", ["safe_distance", "sensor.other.", "sensor..x", "Sensor.Other.X", "sensor.other.a b"])
def test_id_is_dot_separated_words(id: str) -> None:
    with pytest.raises(ConfigError, match="words separated by dots"):
        SensorDefinition(id=id)


def test_duplicate_attribute_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="safe_distance_front"):
        safe_distance().with_attributes(FRONT)


def test_description_error_names_all_faults() -> None:
    definition = safe_distance().with_attributes(Attribute("mode", required=True))
    with pytest.raises(ConfigError) as error:
        definition.describe({"safe_distance_front": "far", "safe_distance_bak": 1.0})
    assert [fault.field for fault in error.value.faults] == ["safe_distance_front", "safe_distance_bak"]
    assert "Did you mean 'safe_distance_back'" in error.value.faults[1].fix
    with pytest.raises(ConfigError, match=r"mode: got nothing, expected text\. Set mode\."):
        definition.describe({"safe_distance_front": "2"})
    assert definition.describe({"mode": "x", "safe_distance_front": "2"})["safe_distance_front"] == 2.0


def test_choices_omit_unset_attributes() -> None:
    assert safe_distance().choose({"safe_distance_front": "2", "safe_distance_back": None}) == {
        "safe_distance_front": 2.0
    }


@pytest.mark.parametrize("name", ["sensor.lidar.ray_cast", "sensor.other.lidar", "lidar"])
def test_a_definition_is_found_by_its_id_and_by_its_kind(name: str) -> None:
    lidar = SensorDefinition(id="sensor.lidar.ray_cast", kind="lidar")
    other = SensorDefinition(id="sensor.other.ray_cast")
    definitions = {each.id: each for each in (lidar, other, safe_distance())}
    assert find_definition(definitions, name) is lidar
    assert find_definition(definitions, "ray_cast") is other
    with pytest.raises(UnknownNameError, match=r"Did you mean 'sensor\.other\.safe_distance'"):
        find_definition(definitions, "sensor.other.safe_distence")
    definitions["sensor.camera.ray_cast"] = SensorDefinition(id="sensor.camera.ray_cast")
    with pytest.raises(UnknownNameError, match="Several have that kind"):
        find_definition(definitions, "ray_cast")


# On the wire ----------------------------------------------------------------------------------------------------------


def test_definition_round_trips_through_json() -> None:
    """The schemas are sent unchanged, also keywords that attributes do not use."""
    schemas = {
        "a": {"type": "number", "exclusiveMinimum": 0.0, "unit": "Hz", "description": "What it is.", "title": "A"},
        "b": {"type": "string", "enum": ["x", "y"]},
        "c": {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}], "default": None},
        "d": VECTOR | {"maxItems": 3},
    }
    definition = SensorDefinition(
        id="sensor.other.thing",
        attributes=tuple(Attribute(id, schema, required=id == "d") for id, schema in schemas.items()),
        tags=("x",),
        doc="A thing.",
        where="client",
        needs="reserve contact",
        kind="other_thing",
        attach="",
        defs={"Part": {"type": "object"}},
    )
    sent = json.loads(json.dumps(definition.to_dict()))
    assert sent["properties"] == schemas and sent["required"] == ["d"] and sent["$defs"] == definition.defs
    assert SensorDefinition.from_dict(sent) == definition


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"id": 1},
        {"id": "sensor.other.x", "properties": None},
        {"id": "sensor.other.x", "properties": [1]},
        {"id": "sensor.other.x", "properties": {"a": {"default": 1, "type": "string", "enum": ["x"]}}},
        {"id": "sensor.other.x", "properties": {"a": {"type": [1]}}},
        {"id": "sensor.other.x", "properties": {"a": {"type": "integer", "examples": ["x"]}}},
        {"id": "sensor.other.x", "properties": {"a": {"minimum": "b"}}},
        {"id": "sensor.other.x", "properties": {"a": {"unit": 1}}},
        {"id": "sensor.other.x", "properties": {"a": {"anyOf": [1]}}},
        {"id": "sensor.other.x", "properties": {"a": {"enum": [b"x"]}}},
        {"id": "sensor.other.x", "properties": {"a b": {}}},
        {"id": "sensor.other.x", "tags": [1]},
        {"id": "sensor.other.x", "where": "nowhere"},
        {"id": "x"},
    ],
)
def test_plain_data_without_definition_is_refused(data: Any) -> None:
    with pytest.raises(WireError):
        SensorDefinition.from_dict(data)


def test_unknown_keys_of_a_newer_version_are_ignored() -> None:
    data = safe_distance().to_dict()
    assert SensorDefinition.from_dict({**data, "colour": "red"}).to_dict() == data


# Descriptions ---------------------------------------------------------------------------------------------------------


def test_description_reads_text_and_typed_values() -> None:
    for values in ({"f": "2.5", "i": "3", "b": "true", "s": "x", "v": "[1, 2]"},
                   {"f": 2.5, "i": 3, "b": True, "s": "x", "v": (1, 2)}):  # fmt: skip
        description = ActorDescription("sensor.other.x", values)
        assert description.get_float("f", 0.0) == 2.5 and description.get_int("i", 0) == 3
        assert description.get_bool("b", False) is True and description.get_str("s", "") == "x"
        assert description.get_vector("v", ()) == (1.0, 2.0) and "f" in description and description.get("g") is None


def test_description_returns_defaults_of_unset_attributes() -> None:
    description = ActorDescription("sensor.other.x", {"f": None})
    assert description.get_float("f", 1.5) == 1.5 and description.get_float("g", 1.5) == 1.5
    assert description.get_bool("b", True) is True and description.get_str("s", "y") == "y"
    with pytest.raises(UnknownNameError, match=r"value of sensor\.other\.x"):
        description["g"]


def test_description_refuses_values_of_another_type() -> None:
    with pytest.raises(ConfigError, match=r"Blueprint\('sensor.other.x'\).f: got 'far', expected a number"):
        ActorDescription("sensor.other.x", {"f": "far"}).get_float("f", 1.0)
