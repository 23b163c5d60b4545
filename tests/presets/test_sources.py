"""Every number of every preset has a source and the converted value; files load as bundled presets do."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

import sensorium as sn
from sensorium import presets as names
from sensorium.jobs.job import Job
from sensorium.jobs.rig import load_rig
from sensorium.presets import preset_fields, presets
from sensorium.presets.info import FOLDER, PresetInfo, read_preset
from sensorium.presets.ranges import preset_ranges

MOUNTS = {"joint": {"joints": ".*"}, "force_torque": {"joint": "hinge"}}
DEG, G = 0.017453292519943295, 9.80665
MODEL = """<mujoco><worldbody><body name="body" pos="0 0 1"><joint name="hinge"/><geom size=".05"/></body>
<geom type="plane" size="9 9 .1"/></worldbody></mujoco>"""


def numbers(fields: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all numbers, written as in `parameters`."""
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            yield from numbers(value, f"{path}.{key}" if path else key)
    elif isinstance(fields, list) and fields and isinstance(fields[0], dict):
        for stage in fields:
            rest = {key: value for key, value in stage.items() if key not in ("kind", "fields")}
            yield from numbers(rest, f"{path}.{stage['kind']}.{stage['fields'][0]}")
    elif isinstance(fields, list):
        for value in fields:
            yield from numbers(value, path)
    elif isinstance(fields, int | float) and not isinstance(fields, bool):
        yield path


def covered(info: PresetInfo, path: str) -> bool:
    return any(f"{path}.".startswith(f"{each}.") for each in info.parameters)


@pytest.mark.parametrize("name", presets())
def test_every_number_has_a_source(name: str) -> None:
    """A number is in `parameters`, or a path above it; every entry belongs to a number and says where it is from."""
    info = presets()[name]
    assert (FOLDER / info.kind / f"{name}.toml").is_file() and info.title and info.source and info.notes
    paths = set(numbers(info.fields))
    assert [path for path in paths if not covered(info, path)] == []
    for key, each in info.parameters.items():
        assert any(f"{path}.".startswith(f"{key}.") for path in paths), key
        assert each["source"].startswith("none: ") or {"value", "unit"} <= each.keys(), key
        assert each.keys() <= {"value", "unit", "method", "source"}
    assert (
        "https://" in info.source
        or "http://" in info.source
        or any(word in each["source"] for each in info.parameters.values() for word in ("no address", "none: "))
    )


def test_names_are_listed_for_type_checkers() -> None:
    """There are at least 28 devices, and each kind's names are those of its Literal."""
    assert len(presets()) >= 28
    listed = {name for each in dir(names) if each.endswith("Name") for name in get_args(getattr(names, each))}
    assert listed == set(presets())


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("bmi160", "noise_density.ang_vel_b", 9.8731e-5),  # 0.008 deg/s/sqrt(Hz), one-sided
        ("bmi160", "noise_density.lin_acc_b", 1.24818e-3),  # 180 ug/sqrt(Hz)
        ("bmi160", "bias.lin_acc_b.normal", [0.0, 0.392266]),  # 40 mg
        ("bmi055", "bias.ang_vel_b.normal", [0.0, 0.0174533]),  # 1 deg/s
        ("bmi055", "resolution.lin_acc_b", 9.57681e-3),  # 1024 LSB/g
        ("bmi270", "resolution.ang_vel_b", 1.065264e-3),  # 16.384 LSB/(deg/s)
        ("icm20948", "noise_density.lin_acc_b", 1.59490e-3),  # 230 ug/sqrt(Hz)
        ("icm20948", "resolution.mag_b", 0.15),  # uT
        ("mti300", "noise_density.ang_vel_b", 1.23413e-4),  # 0.01 deg/s/sqrt(Hz)
        ("mti300", "noise.mag_b", 5e-4),  # 0.5 mG
        ("mti1", "noise_density.lin_acc_b", 8.32122e-4),  # 120 ug/sqrt(Hz)
        ("mti100", "noise_density.lin_acc_b", [8.19366e-4, 7.76851e-4, 7.59732e-4]),
        ("imx5", "noise_density.ang_vel_b", 4.65421e-5),  # 0.16 deg/sqrt(h)
        ("imx5", "noise_density.lin_acc_b", 3.33333e-4),  # 0.02 m/s/sqrt(h)
        ("mv5_ar", "noise_density.lin_acc_b", 5.89420e-4),  # 85 ug/sqrt(Hz)
        ("os1_128", "beam_divergence", 3.141593e-3),  # 0.18 deg
        ("rplidar_a2m8", "pattern.cycle_interval", 1.25e-4),  # 8000 samples/s
        ("max_m8q", "horizontal_sd", 2.12330),  # 2.5 m CEP
        ("f9p_rtk", "horizontal_sd", 8.49322e-3),  # 0.01 m CEP
        ("bmp388", "noise.pressure", 1.32145),  # 11 cm of air
        ("ati_mini45", "resolution.torque", [1.329787e-3, 1.329787e-3, 6.64894e-4]),  # 1/752, 1/1504 N m
        ("as5047d", "resolution.position", 3.834952e-4),  # 2 pi / 16384
        ("azure_kinect", "noise.distance_to_image_plane", 0.017),
    ],
)
def test_values_are_converted_from_the_units_of_the_source(name: str, path: str, value: Any) -> None:
    """SI values computed by hand."""
    found: Any = preset_fields(name)
    for key in path.split("."):
        found = found[key]
    assert found == pytest.approx(value, rel=1e-5)


def test_every_preset_builds_and_small_ones_measure() -> None:
    """All configs build and survive TOML; one scene has all devices without rays, none of them unusual."""
    cfgs: list[Any] = [
        presets().build(name, name=name, **MOUNTS.get(info.kind, {"body": "body"})) for name, info in presets().items()
    ]
    for cfg in cfgs:
        assert type(cfg).from_toml(cfg.to_toml()) == cfg
    small = [cfg for cfg in cfgs if cfg.kind() not in ("camera", "depth_camera", "lidar")]
    with warnings.catch_warnings():
        warnings.simplefilter("error", sn.SensoriumWarning)
        scene = sn.Scene(sn.MujocoEngine(MODEL, num_envs=2), small, seed=1)
    assert bool(scene["bmi270"].valid.all())
    assert bool((scene["bmp388"].data.pressure != scene["bmp388"].ground_truth.pressure).any())


# Files ----------------------------------------------------------------------------------------------------------------

FILE = """kind = "imu"
[fields]
rate_hz = 200.0
noise_density.ang_vel_b = 1e-4
[parameters]
"noise_density.ang_vel_b" = {value = 1e-4, low = 9e-5, high = 1.1e-4, unit = "rad/s/sqrt(Hz)", source = "log.mcap"}
"""


def test_a_preset_file_loads_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sn.preset` and a rig accept a path; a server, whose clients choose names, does not."""
    monkeypatch.chdir(tmp_path)
    Path("imu.toml").write_text(FILE)
    Path("rig.toml").write_text('[[sensor]]\nkind = "imu"\npreset = "imu.toml"\nbody = "body"\nrate_hz = 100.0\n')
    cfg: Any = sn.preset(Path("imu.toml"), body="body")
    assert cfg.rate_hz == 200.0 and cfg.noise_density == {"ang_vel_b": 1e-4}
    (of_rig,), used = load_rig(Path("rig.toml"))
    assert of_rig == cfg.replace(rate_hz=100.0) and used == {"imu": "imu.toml"}
    assert "log.mcap" in repr(read_preset(Path("imu.toml")))
    job: Any = {"model": "demo", "rig": "rig.toml", "envs": 1, "envs_per_shard": 1, "episode_seconds": 1.0}
    before = Job(**job).origin
    Path("imu.toml").write_text(FILE.replace("200.0", "250.0"))
    assert Job(**job).origin["files"] != before["files"]  # the file determines the data
    with pytest.raises(sn.UnknownNameError, match=r"unknown preset 'imu\.toml'"):
        presets().build("imu.toml", body="body")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = 3\n[fields]\n", "kind: got 3, expected text"),
        ("[fields]\n", "kind: got nothing"),
        ('kind = "imu"\n', "fields: got nothing"),
        ('kind = "imu"\nfield = 1\n', "unknown key 'field'.*Did you mean 'fields'"),
        ('kind = "imu"\n[fields]\n[parameters]\nrate_hz = 3\n', "parameters: rate_hz: got 3, expected its source"),
        ("kind = ", "is not valid TOML"),
    ],
)
def test_a_file_that_is_no_preset_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "it.toml"
    path.write_text(text)
    with pytest.raises(sn.ModelError, match=f"it.toml.*{message}"):
        sn.preset(path, body="body")
    with pytest.raises(sn.ModelError, match=r"does not exist.*Did you mean 'it\.toml'"):
        sn.preset(tmp_path / "itt.toml", body="body")


# Unusual noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (sn.LidarCfg(body="b", range_noise=2.0), "LidarCfg('lidar'): range_noise is 2, more than ten times .*'os1_"),
        (sn.ImuCfg(body="b", gyro_noise_density=0.014), "noise_density.ang_vel_b is 0.014, more .*'adis16448'"),
        (sn.ImuCfg(body="b", acc_noise=1e-6, rate_hz=100.0), "lin_acc_b is 1e-07, less than a tenth of .*'imx5'"),
        (sn.BarometerCfg(body="b", noise=101.0, rate_hz=100.0), "noise_density.pressure is 10.1, more .*'bmp388'"),
        (sn.ImuCfg(body="b", gyro_noise=0.01, acc_noise=0.05), ""),
        (sn.ImuCfg(body="b", gyro_noise=0.0, acc_noise=None), ""),
        (sn.BodyStateCfg(body="b", noise={"pos_w": 50.0}), ""),
    ],
)
def test_a_noise_that_no_device_has_is_reported(cfg: Any, message: str) -> None:
    """The warning names config, field, value and the nearest preset; usual noise or none is not reported."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sn.Scene(sn.TensorEngine(1, 0.001, bodies=("b",), shapes=[]), [cfg])
    texts = [str(each.message) for each in caught if each.category is sn.SensoriumWarning]
    assert len(texts) == bool(message)
    if message:
        assert re.search(message.replace("(", r"\(").replace(")", r"\)"), texts[0])


def test_ranges_hold_every_preset_in_densities() -> None:
    """Smallest and largest gyroscope noise, with the names of their devices, and per-sample noise as a density."""
    low, high = preset_ranges("imu")["noise_density.ang_vel_b"]
    assert (low.preset, high.preset) == ("icm42688p", "adis16448")
    assert low.value == pytest.approx(0.0028 * DEG / math.sqrt(2.0))
    assert preset_ranges("barometer")["noise_density.pressure"][0].value == pytest.approx(1.0 / math.sqrt(50.0))
    assert "adis16448" not in {
        each.preset for each in preset_ranges("imu", magnetic_unit="uT")["noise_density.lin_acc_b"]
    }
