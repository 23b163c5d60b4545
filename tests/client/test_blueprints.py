"""The blueprint library as a client sees it: finding, choosing, comparing, and immediate error messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sensorium.client.blueprints import Blueprint, BlueprintLibrary
from sensorium.compat.actors import ActorAttribute, make_generic_sensor_definition
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.wire.attributes import Attribute, SensorDefinition

IMU = make_generic_sensor_definition(
    "other",
    "imu",
    [
        Attribute("rate_hz", {"type": "number", "exclusiveMinimum": 0.0, "unit": "Hz"}),
        Attribute("history_length", {"type": "integer", "default": 0, "minimum": 0}),
        Attribute("noise", {"minimum": 0.0}),
        Attribute("debug_vis", {"type": "boolean", "default": False}),
        Attribute(
            "evaluate",
            {"type": "string", "enum": ["auto", "always"], "default": "auto", "description": "When it is\n computed."},
        ),
        Attribute("gravity", {"type": "array", "items": {"type": "number"}, "maxItems": 3, "unit": "m/s^2"}),
    ],
    doc="An IMU.",
)
LIDAR = SensorDefinition(
    id="sensor.lidar.ray_cast",
    kind="lidar",
    attributes=(Attribute("channels", {"type": "integer", "examples": [16, 32], "default": 16}),),
    tags=("sensor", "lidar", "ray_cast", "ranging"),
)
SEMANTIC = SensorDefinition(id="sensor.lidar.ray_cast_semantic")
GUARD = make_generic_sensor_definition(
    "other",
    "safe_distance",
    [
        Attribute("safe_distance_front", {"type": "number", "default": 1.0, "unit": "m"}),
        Attribute("entity", required=True),
    ],
    needs="reserve contact",
)
LIBRARY = BlueprintLibrary([IMU, LIDAR, SEMANTIC, GUARD])


def imu() -> Blueprint:
    return LIBRARY.find("sensor.other.imu")


# Library --------------------------------------------------------------------------------------------------------------


def test_library_is_sorted_by_id_and_indexable() -> None:
    ids = ["sensor.lidar.ray_cast", "sensor.lidar.ray_cast_semantic", "sensor.other.imu", "sensor.other.safe_distance"]
    assert [bp.id for bp in LIBRARY] == ids == LIBRARY.ids and len(LIBRARY) == 4
    assert LIBRARY[0].id == ids[0] and LIBRARY[-1].id == ids[-1]
    assert LIBRARY["imu"].id == "sensor.other.imu"
    with pytest.raises(IndexError):
        LIBRARY[4]
    assert "sensor.other.imu" in LIBRARY and "imu" in LIBRARY and "gnss" not in LIBRARY


def test_find_accepts_id_or_kind_and_suggests_nearest_for_unknown() -> None:
    assert LIBRARY.find("lidar").id == LIBRARY.find("sensor.other.lidar").id == "sensor.lidar.ray_cast"
    with pytest.raises(UnknownNameError, match=r"Did you mean 'sensor\.other\.safe_distance'"):
        LIBRARY.find("sensor.other.safe_distanse")


@pytest.mark.parametrize(
    ("wildcard", "ids"),
    [
        ("sensor.lidar.*", ["sensor.lidar.ray_cast", "sensor.lidar.ray_cast_semantic"]),
        ("*imu*", ["sensor.other.imu"]),
        ("ranging", ["sensor.lidar.ray_cast"]),
        ("sensor.lidar.ray_cast", ["sensor.lidar.ray_cast"]),
        ("sensor.other.???", ["sensor.other.imu"]),
        ("SENSOR.*", []),
        ("vehicle.*", []),
    ],
)
def test_filter_matches_wildcards_in_ids_and_tags(wildcard: str, ids: list[str]) -> None:
    assert LIBRARY.filter(wildcard).ids == ids


def test_every_lookup_returns_a_fresh_copy() -> None:
    first = imu()
    first["rate_hz"] = 100
    assert imu()["rate_hz"] is None and LIBRARY[2]["rate_hz"] is None and first["rate_hz"] == 100.0
    twin = first.copy()
    twin["rate_hz"] = 50
    assert first["rate_hz"] == 100.0 and twin["rate_hz"] == 50.0


def test_library_repr_shows_its_content() -> None:
    assert repr(BlueprintLibrary([LIDAR])) == "BlueprintLibrary(1 blueprints: sensor.lidar.ray_cast)"


# Blueprints -----------------------------------------------------------------------------------------------------------


def test_blueprint_has_id_tags_and_attributes() -> None:
    bp = LIBRARY.find("lidar")
    assert (bp.id, bp.definition.kind, bp.tags) == (
        "sensor.lidar.ray_cast",
        "lidar",
        ["sensor", "lidar", "ray_cast", "ranging"],
    )
    assert bp.match_tags("lid*") and bp.match_tags("sensor.lidar.*")
    assert bp.has_attribute("channels") and "channels" in bp and not bp.has_attribute("rate_hz")
    assert [each.id for each in imu()] == ["rate_hz", "history_length", "noise", "debug_vis", "evaluate", "gravity"]
    assert imu().definition.doc == "An IMU."
    assert LIBRARY.find("safe_distance").definition.needs == "reserve contact"


def test_values_are_set_as_text_or_python_values_and_read_as_python_values() -> None:
    bp = imu()
    bp.set_attribute("rate_hz", "100")
    bp["history_length"] = 5
    bp["noise"] = "{uniform = [0, 0.02]}"
    bp["gravity"] = "0 0 -9.81"
    bp["debug_vis"] = "True"
    assert [bp[name] for name in ("rate_hz", "history_length", "noise", "gravity", "debug_vis", "evaluate")] == [
        100.0, 5, {"uniform": [0, 0.02]}, (0.0, 0.0, -9.81), True, "auto",
    ]  # fmt: skip
    assert bp.chosen == {
        "rate_hz": 100.0, "history_length": 5, "noise": {"uniform": [0, 0.02]}, "gravity": [0.0, 0.0, -9.81],
        "debug_vis": True,
    }  # fmt: skip


def test_none_empty_text_and_del_undo_a_choice() -> None:
    bp = imu().set_attributes(rate_hz=100, history_length=3, evaluate="always")
    bp["rate_hz"] = None
    bp["history_length"] = ""
    del bp["evaluate"]
    assert bp.chosen == {} and bp["history_length"] == 0 and bp["evaluate"] == "auto"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("rate_hz", "fast", r"Blueprint\('sensor.other.imu'\).rate_hz: got 'fast', expected a number > 0 \(Hz\)"),
        ("rate_hz", 0, r"rate_hz: got 0, expected a number > 0"),
        ("history_length", 1.5, r"history_length: got 1.5, expected a whole number >= 0"),
        ("noise", -0.1, r"noise: got -0.1, expected .*numbers >= 0"),
        ("evaluate", "alwais", r"got 'alwais', expected one of auto, always\. Did you mean 'always'"),
        ("gravity", [0, 1], r"gravity: got \[0, 1\], expected 3 numbers"),
    ],
)
def test_rejected_value_raises_immediately_and_changes_nothing(name: str, value: object, says: str) -> None:
    bp = imu()
    before = bp[name]
    with pytest.raises(ConfigError, match=says):
        bp.set_attribute(name, value)
    assert bp[name] == before and bp.chosen == {}


def test_unknown_attribute_raises_and_suggests_nearest() -> None:
    bp = imu()
    for wrong in (lambda: bp.get_attribute("rate"), lambda: bp.set_attribute("rate_h", 1), lambda: bp["rate_hzz"]):
        with pytest.raises(UnknownNameError, match=r"attribute of sensor\.other\.imu.*rate_hz"):
            wrong()


def test_required_attributes_are_checked_before_spawning() -> None:
    bp = LIBRARY.find("safe_distance")
    with pytest.raises(ConfigError, match=r"entity: got nothing, expected text\. Set entity\."):
        bp.check()
    bp["entity"] = "robot"
    bp.check()


def test_blueprint_reports_choices_and_its_text_shows_all_attributes() -> None:
    bp = LIBRARY.find("safe_distance")
    assert repr(bp) == "Blueprint('sensor.other.safe_distance')"
    assert str(bp).splitlines() == [
        "sensor.other.safe_distance",
        "  needs: reserve contact",
        "  safe_distance_front: number = 1.0 m",
        "  entity: string = to be set",
    ]
    bp["safe_distance_front"] = 2
    bp["entity"] = "robot"
    assert repr(bp) == "Blueprint('sensor.other.safe_distance', safe_distance_front=2.0, entity='robot')"
    assert "* safe_distance_front: number = 2.0 m" in str(bp)
    assert "  evaluate: string = auto (one of auto, always)  When it is computed." in str(imu()).splitlines()


# Values of attributes -------------------------------------------------------------------------------------------------


def test_attribute_converts_its_value_to_the_requested_type() -> None:
    bp = imu().set_attributes(rate_hz=100, history_length=3, debug_vis=True)
    rate, length, shows = (bp.get_attribute(name) for name in ("rate_hz", "history_length", "debug_vis"))
    assert (rate.as_float(), rate.as_int(), rate.as_str()) == (100.0, 100, "100.0")
    assert (length.as_int(), length.as_float(), length.as_str()) == (3, 3.0, "3")
    assert shows.as_bool() is True and rate.type == "number"
    assert bp.get_attribute("evaluate").recommended_values == ("auto", "always")
    with pytest.raises(ConfigError, match=r"rate_hz: got 100.0, expected true or false"):
        rate.as_bool()
    with pytest.raises(ConfigError, match=r"rate_hz: got None, expected a number"):
        imu().get_attribute("rate_hz").as_float()


def test_attribute_object_is_a_snapshot() -> None:
    bp = imu()
    before = bp.get_attribute("rate_hz")
    bp["rate_hz"] = 100
    assert before.value is None and not before.is_chosen and bp.get_attribute("rate_hz").is_chosen
    assert isinstance(before, ActorAttribute)


def test_blueprints_import_no_heavy_package() -> None:
    """Blueprints load where torch, Warp, pydantic and MuJoCo cannot be imported."""
    code = (
        "import sys\n"
        "for name in ('torch', 'warp', 'pydantic', 'mujoco', 'rich', 'tyro'): sys.modules[name] = None\n"
        "from sensorium.client.blueprints import BlueprintLibrary\n"
        "from sensorium.compat.actors import make_generic_sensor_definition\n"
        "print(BlueprintLibrary([make_generic_sensor_definition('other', 'x')]).find('x').id)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("sensor.other.x\n", "")
