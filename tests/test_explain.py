"""`sensorium explain`: the meaning of a rig on a model, as tables and JSON, and one message for a mismatch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streaming import Nursery

import sensorium as sn
from sensorium.cli import main
from sensorium.demo import model_path

pytest.importorskip("mujoco.batch")

MODEL = str(model_path())
RIG = """
[[sensor]]
name = "trunk"
site = "imu"
preset = "bmi088"
rate_hz = 200.0
delay = 0.004

[[sensor]]
kind = "imu"
name = "feet"
sites = ["F._foot_imu", "RL_foot_imu"]
fields = ["ang_vel_b"]

[[sensor]]
kind = "joint"
name = "encoders"
joints = "F._.*"
bits = 14

[[sensor]]
kind = "builtin"
name = "FL_touch"
"""
FEET = ["FL_foot_imu", "FR_foot_imu", "RL_foot_imu"]
JOINTS = ["FL_hip", "FL_thigh", "FL_knee", "FR_hip", "FR_thigh", "FR_knee"]
ENVS = 3


def rig(folder: Path, text: str = RIG) -> str:
    path = folder / "rig.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def scene() -> sn.Scene:
    """Return a scene built by hand from the rig, for comparison with `info`."""
    cfgs = [
        sn.preset("bmi088", name="trunk", site="imu", rate_hz=200.0, delay=0.004),
        sn.ImuCfg(name="feet", sites=("F._foot_imu", "RL_foot_imu"), fields=("ang_vel_b",)),
        sn.JointSensorCfg(name="encoders", joints="F._.*", bits=14),
        sn.BuiltinSensorCfg.from_existing("FL_touch"),
    ]
    return sn.Scene(sn.MujocoEngine(MODEL, ENVS, keyframe=0), cfgs)


@pytest.fixture
def described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the output of `--json` for three envs."""
    assert main(["explain", MODEL, "--rig", rig(tmp_path), "--envs", str(ENVS), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def table(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str, text: str = RIG) -> str:
    """Return the command's output without `--json`, with each run of blanks reduced to a single blank."""
    assert main(["explain", MODEL, "--rig", rig(tmp_path, text), "--envs", str(ENVS), *options]) == 0
    return " ".join(capsys.readouterr().out.split())


# Output ---------------------------------------------------------------------------------------------------------------


def test_each_selector_is_shown_with_its_resolved_elements(described: dict[str, Any]) -> None:
    """Mounts appear in model order with their bodies; a list stays a list; joints and native sensors appear by name."""
    sensors = described["sensors"]
    assert sensors["trunk"]["selector"] == {"site": "imu"}
    assert sensors["trunk"]["mounts"] == [{"name": "imu", "body": "trunk"}]
    assert sensors["feet"]["selector"] == {"sites": ["F._foot_imu", "RL_foot_imu"]}
    assert [mount["name"] for mount in sensors["feet"]["mounts"]] == FEET
    assert [mount["body"] for mount in sensors["feet"]["mounts"]] == ["FL_shank", "FR_shank", "RL_shank"]
    assert sensors["encoders"]["constants"]["joint_names"] == JOINTS
    assert "touch on site 'FL_foot'" in sensors["FL_touch"]["notes"]["native"]


def test_shapes_bytes_and_evaluation_are_those_of_the_sensors(described: dict[str, Any], scene: sn.Scene) -> None:
    """The output agrees with the metadata of a scene built by hand, with the env axis first."""
    assert list(described["sensors"]) == ["trunk", "feet", "encoders", "FL_touch"]
    for name, sensor in described["sensors"].items():
        info = scene[name].info
        for spec, field in zip(info.specs, sensor["fields"], strict=True):
            data = scene[name].data
            value = data if scene[name].single else getattr(data, spec.name)
            assert field["shape"] == list(value.shape) and field["axes"][0] == "env", (name, spec.name)
            assert (field["name"], field["unit"], field["dtype"]) == (spec.name, spec.unit, spec.dtype)
        assert sensor["nbytes"] == info.nbytes
        assert sensor["rate_hz"] == pytest.approx(info.rate_hz)
        assert (sensor["evaluation"], sensor["why"]) == (info.evaluation, info.why)
        assert (sensor["evaluation"] == "lazy") == scene[name].is_lazy
    assert described["nbytes"] == sum(scene[name].info.nbytes for name in described["sensors"])
    assert (described["num_envs"], described["dt"]) == (ENVS, scene.engine.dt)
    assert described["sensors"]["feet"]["fields"][0]["shape"] == [ENVS, 3, 3]
    assert described["sensors"]["trunk"]["ticks_per_sample"] == "5/2"


def test_needs_are_the_requirements(described: dict[str, Any], scene: sn.Scene) -> None:
    """Each requirement of the sensor's class for this config is listed, and a preset by its name."""
    for name, sensor in described["sensors"].items():
        cfg = scene[name].cfg
        needs = type(scene[name]).needs(cfg, scene.engine, scene.engine.supports)
        assert sensor["needs"] == [str(need) for need in needs] and sensor["needs"], name
    assert "BODY_ACCELERATION" in described["sensors"]["trunk"]["needs"]
    assert described["sensors"]["encoders"]["needs"] == ["JOINT_STATE"]
    assert [sensor.get("preset") for sensor in described["sensors"].values()] == ["bmi088", None, None, None]


SKIN = f"""
[[sensor]]
kind = "kinematic_tactile"
name = "skin"
link_name = "FL_shank"
probe_local_pos = {[[0.0, 0.0, -0.01 * k] for k in range(12)]}
geometry = "collision"
exclude = ["F._.*"]
"""


def test_tactile_sensor_lists_detectable_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The link is shown as written, large layouts by their size, and the detectable shapes are listed."""
    assert main(["explain", MODEL, "--rig", rig(tmp_path, SKIN), "--json"]) == 0
    skin = json.loads(capsys.readouterr().out)["sensors"]["skin"]
    assert skin["selector"] == {"link_name": "FL_shank"} and skin["mounts"] == [
        {"name": "FL_shank", "body": "FL_shank"}
    ]
    assert len(skin["options"]["probe_local_pos"]) == 12
    cfg = sn.KinematicTactileSensorCfg.from_dict(skin["options"])
    scene = sn.Scene(sn.MujocoEngine(MODEL), [cfg])
    felt = scene[cfg]._taxels.query
    assert [shape["name"] for shape in skin["detects"]] == list(felt.names)
    names = {shape["name"]: shape["moves"] for shape in skin["detects"]}
    assert names["terrain"] is False and not any(name.startswith(("FL_", "FR_")) for name in names)
    text = table(tmp_path, capsys, text=SKIN)
    assert "link_name='FL_shank': FL_shank" in text and "probe_local_pos=12 x 3 numbers" in text
    assert f"detects {len(names)} shapes, {sum(names.values())} of them moving: " in text


def test_options_are_the_given_ones(described: dict[str, Any], scene: sn.Scene) -> None:
    """The listed options suffice to rebuild the config."""
    for name, sensor in described["sensors"].items():
        cfg = scene[name].cfg
        assert type(cfg).from_dict({"name": name, **sensor["options"]}) == cfg


def test_model_sensors_missing_in_the_rig_are_named(described: dict[str, Any]) -> None:
    """The native sensor that the rig takes is not listed."""
    assert described["declared"] == ["FR_touch", "RL_touch", "RR_touch", "trunk_velocity"]


def test_tables_match_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], described: dict[str, Any]) -> None:
    """Every sensor, field, shape and reason of the JSON appears in the tables."""
    text = table(tmp_path, capsys)
    for name, sensor in described["sensors"].items():
        assert f"{name} kind {sensor['kind']}" in text
        assert sensor["why"] in text and ", ".join(sensor["needs"]) in text
        for field in sensor["fields"]:
            assert f"{field['name']} {' x '.join(map(str, field['shape']))}" in text
    assert "imu on trunk" in text and "FL_foot_imu on FL_shank" in text and ", preset bmi088" in text
    assert "declared by the model itself: FR_touch, RL_touch, RR_touch, trunk_velocity" in text
    assert "cost per physics step" not in text


def test_time_adds_a_row_for_the_physics_and_for_each_sensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times appear as a table and as JSON; every sensor takes a positive time."""
    text = table(tmp_path, capsys, "--time")
    cost = text[text.index("cost per physics step") :]
    places = [cost.index(f" {row} ") for row in ("physics alone", "trunk", "feet", "encoders", "FL_touch")]
    assert places == sorted(places)
    assert main(["explain", MODEL, "--rig", rig(tmp_path), "--time", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    measured, profile = shown["cost"], shown["profile"]
    assert sum(part["s"] for part in profile["parts"]) == pytest.approx(profile["step_s"])
    assert {"physics", "host"} <= {part["part"] for part in profile["parts"]}
    assert " physics " in cost[places[-1] :] and "█" in cost
    assert list(measured["sensors_s"]) == ["trunk", "feet", "encoders", "FL_touch"]
    assert measured["physics_s"] > 0.0 and min(measured["sensors_s"].values()) >= 0.0


def test_rig_sensor_replaces_a_declared_one_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that the model declares as well is accepted: `sensorium run` uses only the rig's sensor."""
    text = RIG.replace('"trunk"', '"trunk_velocity"')
    assert "trunk_velocity kind imu" in table(tmp_path, capsys, text=text)
    again = ["run", MODEL, "--rig", rig(tmp_path, text), "--seconds", "0.01", "--out", str(tmp_path / "out")]
    assert main(again) == 0


CLOSED = """
import os, sys
from sensorium.cli import main
reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(writing)
os.close(reading)  # before the first write
sys.stdout = open(1, "w", closefd=False)  # has a buffer also where PYTHONUNBUFFERED is set
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "args",
    [["explain", MODEL, "--rig", "rig.toml", "--json"], ["explain", "--help"], ["--version"]],
    ids=lambda args: args[-1],
)
def test_output_can_be_closed_early(args: list[str], tmp_path: Path, nursery: Nursery) -> None:
    """`sensorium explain ... --json | head` ends without a traceback, also where the output fits into a buffer."""
    rig(tmp_path)
    program = nursery.program(CLOSED, *args, folder=tmp_path)
    assert (program.wait(), program.err) == (1, "")


# Mismatches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "parts"),
    [
        ('[[sensor]]\nkind = "imu"\nsite = "imoo"\n', (), ["site: got 'imoo'", "'imu'"]),
        ('[[sensor]]\nkind = "imu"\nsite = ".*foot"\n', (), ["exactly one site", "FL_foot, FR_foot"]),
        ('[[sensor]]\nkind = "joint"\njoints = "elbow"\n', (), ["joints: got 'elbow'", "FL_hip"]),
        ('[[sensor]]\nkind = "builtin"\nname = "FL_tuch"\n', (), ["'FL_touch'"]),
        ('[[sensor]]\nkind = "imuu"\n', (), ["unknown sensor kind 'imuu'", "'imu'"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\nnois = 1\n', (), ["nois", "noise"]),
        ("", (), ["got no sensor"]),
        (RIG, ("--envs", "0"), ["--envs: got 0"]),
        (RIG, ("--device", "tpu"), ["--device: got 'tpu'"]),
    ],
    ids=["site", "several", "joint", "native", "kind", "field", "empty", "envs", "device"],
)
def test_mismatch_ends_with_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: tuple[str, ...], parts: list[str]
) -> None:
    """The exit code is 2, stdout is empty, and the reason names the available alternatives, also with `--json`."""
    for form in ((), ("--json",)):
        assert main(["explain", MODEL, "--rig", rig(tmp_path, text), *options, *form]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("error:") == 1 and "Traceback" not in err
        assert all(part in " ".join(err.split()) for part in parts), err


def test_a_missing_model_or_rig_ends_with_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each missing file is named by its path."""
    for args in ([str(tmp_path / "no.xml"), "--rig", rig(tmp_path)], [MODEL, "--rig", str(tmp_path / "no.toml")]):
        assert main(["explain", *args]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("error:") == 1 and "no." in err


def test_pairs_of_contacts_are_shown_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of a pair are shown side by side, and a list without names has no row."""
    match = '{mode = "geom", pattern = "F._foot"}'
    text = "".join(
        f'[[sensor]]\nkind = "{kind}"\nprimary = {match}\n' for kind in ("collision_events", "contact_sensor")
    )
    shown = table(tmp_path, capsys, text=text)
    assert "pairs FL_foot | *, FR_foot | *" in shown and "primary_names FL_foot, FR_foot" in shown
    assert "filter_names" not in shown


def test_rays_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pattern, number of rays, visible shapes and the memory of both are shown; the robot's trunk is excluded."""
    text = """
[[sensor]]
kind = "ray_caster"
name = "scan"
body = "trunk"
pattern = {kind = "grid", size = [1.6, 1.0]}
exclude_own_links = false
[[sensor]]
kind = "terrain_height"
name = "feet"
sites = ".*_foot"
targets = ["terrain", "apron_.*"]
"""
    shown = table(tmp_path, capsys, text=text)
    assert (
        "pattern grid, size=[1.6, 1.0] rays 187, 11 x 17 hits 42 shapes, 28 of them moving: terrain (hfield)" in shown
    )
    assert "rays 7 hits 5 shapes, none of them moving" in shown and "and 30 more" in shown
    assert "shapes for rays: " in shown
    assert main(["explain", MODEL, "--rig", rig(tmp_path, text), "--json", "--envs", "3"]) == 0
    described = json.loads(capsys.readouterr().out)
    rays = described["sensors"]["scan"]["rays"]
    assert rays["pattern"] == {"kind": "grid", "size": [1.6, 1.0]} and rays["return_shape"] == [11, 17]
    names = {shape["name"]: shape["moves"] for shape in rays["shapes"]}
    assert names["terrain"] is False and names["FL_foot"] is True and "trunk" not in names
    assert rays["nbytes"] >= 187 * 2 * 12 and described["shapes_nbytes"] > 0
