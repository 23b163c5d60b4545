"""Presets: they build, run and measure as stated, with the stated units and conventions."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sensorium as sn
from sensorium.presets import Presets, preset_fields, presets

Array = NDArray[np.float64]
DPS, G = math.pi / 180.0, 9.80665
"""One degree per second, rad/s, and standard gravity, m/s^2."""
MG, UG = 1e-3 * G, 1e-6 * G
PREFIXES = {"ang_vel_b": "gyro", "lin_acc_b": "acc", "mag_b": "mag"}
IMUS: Any = ("bmi088", "icm42688p", "adis16448", "d455")
"""Presets with noise, range and resolution of all fields."""


def two_sided(density: float) -> float:
    """Return Allan's two-sided density for a data sheet's one-sided density: ND / sqrt(2)."""
    return density / math.sqrt(2.0)


def scene_of(cfg: Any, envs: int = 256, dt: float = 0.001) -> sn.Scene:
    return sn.Scene(sn.TensorEngine(envs, dt, magnetic=(0.2, 0.0, -0.4)), [cfg], seed=3)


def run(scene: sn.Scene, samples: int) -> dict[str, Array]:
    """Return measured minus true `[sample, env, xyz]` of that many captures at rest."""
    imu = scene["imu"]
    rows: dict[str, list[Array]] = {spec.name: [] for spec in imu.specs}
    seen = int(imu.frame[0])
    while len(next(iter(rows.values()))) < samples:
        scene.update()
        if int(imu.frame[0]) == seen:
            continue
        seen = int(imu.frame[0])
        for name, values in rows.items():
            error = getattr(imu.data, name) - getattr(imu.ground_truth, name)
            values.append(error.numpy().astype(np.float64))
    return {name: np.stack(values) for name, values in rows.items()}


# The table ------------------------------------------------------------------------------------------------------------


def test_every_preset_cites_its_source() -> None:
    """Each preset has a name, kind, title, source, density convention and notes, which its text and the table show."""
    table = presets()
    assert isinstance(table, Presets)
    for name, info in table.items():
        assert info.name == name
        assert info.source and info.notes and info.title
        assert "two-sided" in info.convention or "noise_density" not in info.fields
        assert info.source in repr(info) and info.convention in repr(info)
        assert f"{name}" in repr(table) and info.title in repr(table)


@pytest.mark.parametrize("name", IMUS)
def test_unchecked_values_are_marked(name: str) -> None:
    """Every preset's notes name the numbers that were not checked against the source."""
    assert any("not checked" in note for note in presets()[name].notes)


def test_preset_fields_are_plain_data_owned_by_the_caller() -> None:
    """`preset_fields` returns JSON-compatible data, and changes to it do not affect the preset."""
    fields = preset_fields("bmi088")
    assert json.loads(json.dumps(fields)) == fields
    fields["noise_density"]["ang_vel_b"] = 99.0
    assert preset_fields("bmi088")["noise_density"]["ang_vel_b"] != 99.0


@pytest.mark.parametrize("call", [sn.preset, preset_fields])
def test_unknown_preset_suggests_the_nearest(call: Any) -> None:
    """A misspelt preset raises an UnknownNameError (a KeyError) that names the nearest preset and lists all."""
    with pytest.raises(
        sn.UnknownNameError, match=r"unknown preset 'bmi08'\. Did you mean 'bmi088' or .*Known: adis16448"
    ):
        call("bmi08")


# Building -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMUS)
def test_preset_config_round_trips_through_a_file(name: str) -> None:
    """The config has the preset's fields and survives JSON and TOML."""
    cfg = sn.preset(name, name="imu", body="body")
    assert isinstance(cfg, sn.ImuCfg)
    assert cfg.rate_hz == presets()[name].fields["rate_hz"]
    assert sn.ImuCfg.from_json(cfg.to_json()) == cfg
    assert sn.ImuCfg.from_toml(cfg.to_toml()) == cfg


@pytest.mark.parametrize("name", IMUS)
def test_preset_includes_the_devices_magnetometer(name: str) -> None:
    """Only the ADIS16448 has a magnetometer; the others do not compute `mag_b`."""
    expected = ("ang_vel_b", "lin_acc_b", "mag_b") if name == "adis16448" else ("ang_vel_b", "lin_acc_b")
    assert sn.preset(name, body="body").selected == expected


def test_given_fields_override_the_preset() -> None:
    """A field given with the preset replaces the preset's value; a rate may also be given as a period."""
    assert sn.preset("bmi088", body="body", rate_hz=100.0).rate_hz == 100.0
    by_period = sn.preset("bmi088", body="body", update_period=0.01)
    assert (by_period.rate_hz, by_period.update_period) == (None, 0.01)
    assert sn.preset("bmi088", body="body", stages=()).stages == ()
    assert sn.preset("bmi088", body="body", delay=0.002, name="imu_0").label == "imu_0"


@pytest.mark.parametrize(
    "given",
    [
        {"gyro_noise": 0.5},
        {"noise": {"ang_vel_b": 0.5}},
        {"noise": {"gyro": 0.5}},
        {"gyro_noise_density": 0.5 / 20.0},
        {"noise_density": {"ang_vel_b": 0.5 / 20.0}},
    ],
)
def test_given_knob_replaces_the_presets_in_that_field_only(given: dict[str, Any]) -> None:
    """In any notation, a given gyroscope noise replaces the preset's, and the accelerometer keeps its preset noise."""
    scene = scene_of(sn.preset("bmi088", body="body", **given), envs=2)
    tables = scene["imu"].buffers.knobs.tables
    assert tables["noise", "ang_vel_b"].values[0].tolist() == pytest.approx([0.5] * 3, rel=1e-6)
    expected = [160 * UG / math.sqrt(2) * 20, 160 * UG / math.sqrt(2) * 20, 190 * UG / math.sqrt(2) * 20]
    assert tables["noise", "lin_acc_b"].values[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("given", [0.0, None, {"distances": 0.5}])
def test_given_knob_replaces_one_amount_for_all_fields(given: Any) -> None:
    """The preset's resolution is one number, without the name of a field."""
    made = sn.preset("vlp16", body="body", resolution=given)
    assert made.resolution == sn.LidarCfg(body="body", pattern=made.pattern, resolution=given).resolution
    assert made.range_noise == sn.preset("vlp16", body="body").range_noise


def test_none_switches_a_knob_off() -> None:
    """`gyro_noise_density=None` removes the gyroscope's noise, `noise_density=None` the noise of all fields."""
    knobs = scene_of(sn.preset("bmi088", body="body", gyro_noise_density=None), envs=1)["imu"].buffers.knobs.tables
    assert ("noise", "ang_vel_b") not in knobs and ("noise", "lin_acc_b") in knobs
    knobs = scene_of(sn.preset("bmi088", body="body", noise_density=None), envs=1)["imu"].buffers.knobs.tables
    assert not [key for key in knobs if key[0] == "noise"]


@pytest.mark.parametrize("wanted", [("lin_acc_b",), ("pos_w", "lin_acc_b")])
def test_fewer_fields_omit_the_others_knobs(wanted: tuple[str, ...]) -> None:
    """Selecting the accelerometer drops the gyroscope's settings and stages and keeps the accelerometer's."""
    cfg = sn.preset("adis16448", body="body", fields=wanted)
    assert set(cfg.noise_density) == {"lin_acc_b"}
    assert [stage.fields for stage in cfg.stages] == [("lin_acc_b",)] * 2
    scene_of(cfg, envs=1)


def test_field_without_preset_noise_stays_clean() -> None:
    """With `fields="all"`, fields that the device does not measure have their true values."""
    scene = scene_of(sn.preset("d455", body="body", fields="all"), envs=4)
    for _ in range(10):
        scene.update()
    imu = scene["imu"]
    for name in ("pos_w", "quat_w", "lin_vel_b", "ang_acc_b", "mag_b", "projected_gravity_b"):
        assert getattr(imu.data, name).tolist() == getattr(imu.ground_truth, name).tolist(), name


# Numbers --------------------------------------------------------------------------------------------------------------


def test_units_are_converted_as_in_the_data_sheets() -> None:
    """0.014 deg/s is 2.443e-4 rad/s, 160 ug 1.569e-3 m/s^2, 175 ug 1.716e-3 m/s^2, 20 mg 0.196 m/s^2."""
    assert 0.014 * DPS == pytest.approx(2.443e-4, abs=5e-8)
    assert 160 * UG == pytest.approx(1.569e-3, abs=5e-7)
    assert 175 * UG == pytest.approx(1.716e-3, abs=5e-7)
    assert 20 * MG == pytest.approx(0.196, abs=5e-4)
    assert G == 9.80665
    assert two_sided(math.sqrt(2.0)) == pytest.approx(1.0)


def test_the_presets_hold_the_published_values() -> None:
    """The SI values agree with figures converted by hand."""
    bmi, icm, adis, d455 = (preset_fields(name) for name in ("bmi088", "icm42688p", "adis16448", "d455"))
    assert bmi["noise_density"]["ang_vel_b"] == pytest.approx(1.728e-4, rel=1e-3)
    assert bmi["noise_density"]["lin_acc_b"] == pytest.approx([1.109e-3, 1.109e-3, 1.318e-3], rel=1e-3)
    assert icm["noise_density"]["ang_vel_b"] == pytest.approx(3.456e-5, rel=1e-3)
    assert icm["noise_density"]["lin_acc_b"] == pytest.approx([4.507e-4, 4.507e-4, 4.854e-4], rel=1e-3)
    assert adis["noise_density"] == pytest.approx({"ang_vel_b": 3.394e-4, "lin_acc_b": 4e-3, "mag_b": 4e-4}, rel=1e-3)
    stages = {(stage["kind"], stage["fields"][0]): stage for stage in adis["stages"]}
    gyro, acc, mag = (stages["gauss_markov", field] for field in PREFIXES)
    assert (gyro["density"], gyro["tau"], gyro["turn_on"]) == pytest.approx((3.879e-5, 1000.0, 8.727e-3), rel=1e-3)
    assert (acc["density"], acc["tau"], acc["turn_on"]) == pytest.approx((6e-3, 300.0, 0.196), rel=1e-3)
    assert (mag["density"], mag["tau"]) == (6.4e-6, 600.0)
    assert d455["noise_density"] == {"ang_vel_b": 1.72e-4, "lin_acc_b": 1.49e-3}
    assert d455["random_walk_density"] == {"ang_vel_b": 9.6e-6, "lin_acc_b": 1.22e-4}


@pytest.mark.parametrize("name", IMUS)
def test_full_scale_is_a_whole_number_of_steps(name: str) -> None:
    """The range of every field is a multiple of its resolution to better than one step, as for a real converter."""
    fields = preset_fields(name)
    full_scale = {stage["fields"][0]: stage["high"] for stage in fields["stages"] if stage["kind"] == "saturation"}
    assert set(full_scale) == set(fields["resolution"])
    for field, high in full_scale.items():
        steps = high / fields["resolution"][field]
        assert 1000 < steps < 40000
        assert steps == pytest.approx(round(steps), abs=1e-6)


# Measured -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMUS)
def test_noise_at_rest_matches_the_data_sheet(name: str) -> None:
    """At rest, a sample's standard deviation about its env's mean is N sqrt(rate), plus the resolution's LSB^2/12."""
    samples, envs = 48, 256
    fields = presets()[name].fields
    errors = run(scene_of(sn.preset(name, body="body"), envs), samples)
    assert set(errors) == set(fields["fields"])
    rate = fields["rate_hz"]
    for field, error in errors.items():
        for column in range(3):
            density = np.broadcast_to(fields["noise_density"][field], 3)[column]
            white = density**2 * rate + fields["resolution"][field] ** 2 / 12
            # a random walk of density K adds at most K^2 T/6 to the variance about the mean of an interval of T seconds
            walks = [
                stage["density"]
                for stage in fields["stages"]
                if stage["kind"] == "gauss_markov" and field in stage["fields"]
            ]
            walks.append(fields.get("random_walk_density", {}).get(field, 0.0))
            wandering = sum(walk**2 for walk in walks) * samples / rate / 6.0
            measured = error[:, :, column].var(axis=0, ddof=1).mean()
            chance = 5 * math.sqrt(2.0 / ((samples - 1) * envs))
            assert white * (1 - chance) < measured < (white + wandering) * (1 + chance), (field, column)


def test_bmi088_rms_matches_its_data_sheet_at_47_hz() -> None:
    """Over 47 Hz the simulated gyroscope has 0.096 deg/s and the sheet 0.1 deg/s rms: the sheet's ND is one-sided."""
    samples, envs = 800, 64
    cfg = sn.preset("bmi088", body="body", gyro_bias=None, resolution=None, fields=("ang_vel_b",))
    error = run(scene_of(cfg, envs, dt=0.0025), samples)["ang_vel_b"] / DPS
    spectrum = np.abs(np.fft.rfft(error, axis=0)) ** 2 * 2.0 / (samples * 400.0)  # one-sided, (deg/s)^2/Hz
    frequency = np.fft.rfftfreq(samples, 1 / 400.0)
    band = (frequency > 0) & (frequency <= 47.0)
    rms = math.sqrt(spectrum.mean(axis=(1, 2))[band].sum() * frequency[1])
    chance = 5 / math.sqrt(4 * band.sum() * envs * 3)
    assert rms == pytest.approx(0.014 * math.sqrt(47.0), rel=chance)
    assert round(rms, 1) == 0.1


@pytest.mark.parametrize("name", IMUS)
def test_device_readings_are_on_its_grid_and_in_range(name: str) -> None:
    """A device driven beyond full scale reads its full scale; every reading is a multiple of the resolution."""
    fields = presets()[name].fields
    engine = sn.TensorEngine(
        32, 0.001, provides=("pose", "velocity", "acceleration", "gravity"), magnetic=(50.0, -50.0, 0.1)
    )
    engine.body_ang_vel_w = (1e3, -1e3, 0.3)
    engine.body_lin_acc_w = (1e5, -1e5, 0.0)
    imu = sn.Scene(engine, [sn.preset(name, body="body")])["imu"]
    full_scale = {stage["fields"][0]: stage["high"] for stage in fields["stages"] if stage["kind"] == "saturation"}
    for field, high in full_scale.items():
        values = getattr(imu.data, field).numpy().astype(np.float64)
        np.testing.assert_allclose(values[:, 0], high, rtol=1e-6)
        np.testing.assert_allclose(values[:, 1], -high, rtol=1e-6)
        steps = values / fields["resolution"][field]
        np.testing.assert_allclose(steps, np.rint(steps), atol=4e-7 * np.abs(steps).max())


@pytest.mark.parametrize("name", ["bmi088", "icm42688p"])
def test_offsets_and_scale_errors_differ_between_devices(name: str) -> None:
    """Over envs the zero offset has the sheet's deviation, stays constant in an episode, and is redrawn at a reset."""
    fields = presets()[name].fields
    envs = 1024
    quiet: dict[str, Any] = {"noise_density": None, "resolution": None, "stages": ()}
    scene = scene_of(sn.preset(name, body="body", **quiet), envs)
    first = run(scene, 2)
    for field in fields["fields"]:
        sd = fields["bias"][field]["normal"][1]
        assert (first[field][0] == first[field][1]).all()
        assert first[field][0].std() == pytest.approx(sd, rel=5 / math.sqrt(2 * 3 * envs))
    scene.reset()
    again = run(scene, 1)["ang_vel_b"][0]
    assert abs(np.corrcoef(again.ravel(), first["ang_vel_b"][0].ravel())[0, 1]) < 5 / math.sqrt(3 * envs)


def test_the_adis16448_turns_on_with_its_bias() -> None:
    """Over envs the first reading's deviation combines the turn-on bias and the stationary bias."""
    quiet: dict[str, Any] = {"noise_density": None, "resolution": None}
    envs = 1024
    errors = run(scene_of(sn.preset("adis16448", body="body", **quiet), envs), 1)
    for stage in presets()["adis16448"].fields["stages"]:
        if stage["kind"] == "gauss_markov":
            sd = math.hypot(stage.get("turn_on", 0.0), stage["density"] * math.sqrt(stage["tau"] / 2.0))
            assert errors[stage["fields"][0]].std() == pytest.approx(sd, rel=5 / math.sqrt(2 * 3 * envs))


@pytest.mark.parametrize("name", ["os1_64", "mid360"])
def test_fewer_fields_keep_the_device(name: str) -> None:
    """Only knobs name fields: a pattern is a table, too."""
    assert sn.preset(name, body="a", fields=("distances",)).pattern == sn.preset(name, body="a").pattern


@pytest.mark.parametrize(
    ("types", "stages", "knob"),
    [
        (("rgb",), ["image"], False),
        (("depth",), ["stereo_depth"], True),
        (("normals", "semantic_segmentation"), [], False),
        (("distance_to_camera", "rgba"), ["image", "stereo_depth"], True),
    ],
)
def test_fewer_data_types_drop_the_knobs_of_the_others(types: tuple[str, ...], stages: list[str], knob: bool) -> None:
    """The lens and the size are those of the device."""
    for name in ("d435_rgbd", "d455_rgbd", "zed2", "oak_d"):
        cfg, whole = (sn.preset(name, body="a", **more) for more in ({"data_types": types}, {}))
        assert [each["kind"] for each in cfg.to_dict().get("stages", ())] == stages
        assert ("resolution" in cfg.to_dict()) is knob and cfg.lens == whole.lens and cfg.size == whole.size
