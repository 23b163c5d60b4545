"""Attributes of blueprints: accepted text and Python values, refused values, and transport."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.errors import ConfigError, UnknownNameError, WireError
from sensorium.wire.attributes import (
    ActorDescription,
    Attribute,
    SensorDefinition,
    find_definition,
    make_generic_sensor_definition,
    read_text,
)

FRONT = Attribute(id="safe_distance_front", type="float", recommended_values=("1.0",), unit="m")
BACK = Attribute(id="safe_distance_back", type="float", recommended_values=("0.5",), unit="m")
SIDE = Attribute(id="safe_distance_lateral", type="float", recommended_values=("0.5",), unit="m")


def safe_distance() -> SensorDefinition:
    return make_generic_sensor_definition("other", "safe_distance").with_attributes(FRONT, BACK, SIDE)


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "value", "meant"),
    [
        ("bool", "true", True),
        ("bool", "False", False),
        ("bool", "1", True),
        ("bool", False, False),
        ("int", "7", 7),
        ("int", " -7 ", -7),
        ("int", 7.0, 7),
        ("int", np.int64(7), 7),
        ("float", "0.02", 0.02),
        ("float", "1e3", 1000.0),
        ("float", 2, 2.0),
        ("float", np.float32(0.5), 0.5),
        ("float", "inf", math.inf),
        ("string", "raw", "raw"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("vector", "[0, 0, 1]", (0.0, 0.0, 1.0)),
        ("vector", "(0, 0, 1)", (0.0, 0.0, 1.0)),
        ("vector", "0 0 1", (0.0, 0.0, 1.0)),
        ("vector", "0,0,1", (0.0, 0.0, 1.0)),
        ("vector", (0, 0, 1), (0.0, 0.0, 1.0)),
        ("vector", np.arange(3), (0.0, 1.0, 2.0)),
        ("vector", "[]", ()),
        ("json", "0.02", 0.02),
        ("json", "true", True),
        ("json", "[0.1, 0.2]", [0.1, 0.2]),
        ("json", "{uniform = [0, 0.02]}", {"uniform": [0, 0.02]}),
        ("json", '{"uniform": [0, 0.02]}', {"uniform": [0, 0.02]}),
        ("json", sn.Uniform(0.0, 0.02), {"uniform": [0.0, 0.02]}),
        ("json", {"ang_vel_b": sn.Normal(0.0, 1.0)}, {"ang_vel_b": {"normal": [0.0, 1.0]}}),
        ("json", "[{kind = 'low_pass', tau = 0.1}]", [{"kind": "low_pass", "tau": 0.1}]),
    ],
)
def test_value_is_accepted_as_text_and_python_value(type: Any, value: Any, meant: Any) -> None:
    parsed = Attribute(id="it", type=type).parse(value)
    assert parsed == meant and parsed.__class__ is meant.__class__


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ("bool", "yes", "true or false"),
        ("bool", 1, "true or false"),
        ("int", "7.5", "a whole number"),
        ("int", 7.5, "a whole number"),
        ("int", True, "a whole number"),
        ("int", math.inf, "a whole number"),
        ("float", "fast", "a number"),
        ("float", "nan", "a number"),
        ("float", True, "a number"),
        ("float", [1.0], "a number"),
        ("string", [1.0], "text"),
        ("vector", "[0, x]", "numbers"),
        ("vector", 1.0, "numbers"),
        ("vector", "[true]", "numbers"),
        ("json", "{uniform = ", "JSON or TOML"),
        ("json", "uniform", "JSON or TOML"),
        ("json", "1\nother = 2", "JSON or TOML"),
        ("json", "2024-01-01", "JSON or TOML"),
        ("json", "[" * 100_000, "JSON or TOML"),
        ("json", object(), "JSON or TOML"),
    ],
)
def test_wrong_type_error_names_blueprint_attribute_value_and_accepted_values(
    type: Any, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Attribute(id="rate", type=type).parse(value, "sensor.other.imu")
    (fault,) = error.value.faults
    assert error.value.config == "Blueprint('sensor.other.imu')" and fault.field == "rate"
    assert expected in fault.expected and fault.got[:10] == repr(value)[:10]


@pytest.mark.parametrize("type", ["bool", "int", "float", "vector", "json"])
def test_none_and_empty_text_mean_unset(type: Any) -> None:
    attribute = Attribute(id="it", type=type)
    assert attribute.parse(None) is None and attribute.parse("  ") is None and attribute.value is None


@pytest.mark.parametrize("value", [0.1, -1e-300, math.inf, 7, True, "raw", [0.1, [2, {"a": "b"}]], "ä ö", (1.0, 0.1)])
def test_text_of_a_value_parses_to_that_value(value: Any) -> None:
    """Every double survives as Python's shortest text."""
    kinds: dict[type, Any] = {bool: "bool", int: "int", float: "float", str: "string", tuple: "vector"}
    attribute = Attribute(id="it", type=kinds.get(type(value), "json"))
    assert attribute.parse(attribute.text(attribute.parse(value))) == value


def test_words_are_accepted_if_allowed() -> None:
    """In a structure with words, ``all`` is a word, a list is a list, and a pattern that is no list is a word."""
    fields = Attribute(id="fields", type="json", words=True)
    assert [fields.parse(text) for text in ("all", '["a", "b"]', "['a']", "[lr]_foot")] == [
        "all",
        ["a", "b"],
        ["a"],
        "[lr]_foot",
    ]


@pytest.mark.parametrize(
    ("options", "good", "wrong", "says"),
    [
        ({"type": "float", "low": 0.0}, (0, 5), (-1e-9,), "a number >= 0"),
        ({"type": "float", "low": 0.0, "open_low": True, "unit": "Hz"}, (1e-9,), (0.0, "0"), "a number > 0 (Hz)"),
        ({"type": "int", "low": 1, "high": 30}, (1, 30), (0, "31"), "a whole number >= 1 and <= 30"),
        ({"type": "float", "high": 2.0}, (-9, 2), (2.1,), "a number <= 2"),
        ({"type": "vector", "size": 3}, ([1, 2, 3],), ([1, 2], "1 2 3 4"), "3 numbers, e.g. [0, 0, 1]"),
        ({"type": "vector", "low": 0.0}, ([0, 1],), ([0, -1],), "numbers, e.g. [0, 0, 1] >= 0"),
        ({"type": "json", "low": 0.0}, (1, [0, 1], {"normal": [-1, 1]}), (-1, [1, -1], "-1"), "with numbers >= 0"),
    ],
)
def test_bounds_and_sizes_are_enforced(options: Any, good: Any, wrong: Any, says: str) -> None:
    attribute = Attribute(id="it", **options)
    for value in good:
        attribute.parse(value)
    for value in wrong:
        with pytest.raises(ConfigError) as error:
            attribute.parse(value)
        assert error.value.faults[0].expected.endswith(says)


def test_restricted_attribute_accepts_only_recommended_values_and_suggests_nearest() -> None:
    mode = Attribute(id="mode", recommended_values=("fast", "exact"), restrict_to_recommended=True)
    assert mode.parse("exact") == "exact" and mode.default == "fast"
    with pytest.raises(ConfigError, match=r"got 'exakt', expected one of fast, exact\. Did you mean 'exact'"):
        mode.parse("exakt")
    assert replace(mode, restrict_to_recommended=False).parse("exakt") == "exakt"
    rays = Attribute(id="rays", type="int", recommended_values=(7, 19), restrict_to_recommended=True)  # type: ignore[arg-type]
    assert rays.recommended_values == ("7", "19") and rays.parse("19") == 19 == rays.parse(19.0)
    tare = Attribute(
        id="tare", type="json", recommended_values=("true", "manual"), restrict_to_recommended=True, words=True
    )
    assert tare.parse(True) is True and tare.parse("manual") == "manual"
    for attribute, value in ((rays, 8), (tare, 1), (tare, False)):
        with pytest.raises(ConfigError):
            attribute.parse(value)


def test_recommended_values_do_not_restrict_by_default() -> None:
    assert FRONT.parse("2.5") == 2.5 and FRONT.value == 1.0


def test_default_is_the_first_recommended_value_unless_given() -> None:
    assert FRONT.default == "1.0"
    assert Attribute(id="a", recommended_values=("x", "y")).default == "x"
    assert Attribute(id="a", recommended_values=("x",), default="").default == ""
    assert Attribute(id="a", recommended_values=("x",), required=True).default == ""
    assert Attribute(id="a", type="float", recommended_values=("1.0",), default=2.0).default == "2.0"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"id": "safe distance"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "a", "type": "Float"}, "type"),
        ({"id": "a", "type": "float", "default": "x"}, "default"),
        ({"id": "a", "type": "float", "recommended_values": ("x",)}, "recommended_values"),
        ({"id": "a", "recommended_values": "x"}, "recommended_values"),
        ({"id": "a", "restrict_to_recommended": True}, "restrict_to_recommended"),
        ({"id": "a", "type": "float", "low": 0.0, "default": -1.0}, "default"),
    ],
)
def test_contradictory_attribute_is_refused(options: Any, field: str) -> None:
    with pytest.raises(ConfigError) as error:
        Attribute(**options)
    assert [fault.field for fault in error.value.faults] == [field]


def test_text_is_read_as_json_first() -> None:
    assert read_text("null") is None and read_text('"1"') == "1" and read_text("1e3") == 1000.0


def test_deeply_nested_text_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_text("[" * 100_000)


# Definitions ----------------------------------------------------------------------------------------------------------


def test_tutorial_definition_has_its_attributes_and_defaults() -> None:
    definition = safe_distance()
    assert definition.id == "sensor.other.safe_distance" and definition.tags == ("sensor", "other", "safe_distance")
    assert {each.id: each.default for each in definition} == {
        "safe_distance_front": "1.0",
        "safe_distance_back": "0.5",
        "safe_distance_lateral": "0.5",
    }
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
    definition = safe_distance().with_attributes(Attribute(id="mode", required=True))
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
    """Its defaults survive as well: none, the first recommended value, and another value."""
    definition = SensorDefinition(
        id="sensor.other.thing",
        attributes=(
            Attribute(id="a", type="float", low=0.0, open_low=True, unit="Hz", doc="What it is."),
            Attribute(id="b", recommended_values=("x", "y"), restrict_to_recommended=True),
            Attribute(id="c", recommended_values=("x", "y"), default=""),
            Attribute(id="d", recommended_values=("x", "y"), default="y"),
            Attribute(id="e", type="vector", size=3, required=True),
            Attribute(id="f", type="json", words=True, default="[1, 2]", recommended_values=("all",)),
        ),
        tags=("x",),
        doc="A thing.",
        where="client",
        needs="reserve contact",
        kind="other_thing",
        attach="",
    )
    again = SensorDefinition.from_dict(json.loads(json.dumps(definition.to_dict())))
    assert again == definition and [each.default for each in again] == ["", "x", "", "y", "", "[1, 2]"]


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
        {"id": "sensor.other.x", "properties": {"a": {"type": ["number"]}}},
        {"id": "sensor.other.x", "properties": {"a": {"type": "integer", "examples": ["x"]}}},
        {"id": "sensor.other.x", "properties": {"a": {"minimum": "b"}}},
        {"id": "sensor.other.x", "properties": {"a": {"unit": 1}}},
        {"id": "sensor.other.x", "properties": {"a": {"anyOf": [1]}}},
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
    assert SensorDefinition.from_dict({**safe_distance().to_dict(), "colour": "red"}) == safe_distance()


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
