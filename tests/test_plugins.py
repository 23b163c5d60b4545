"""Plugins: the example packages install, are found and run; broken plugins are named and affect no others."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nursery import OWN_TESTS, PATIENCE, Nursery
from selection import gate

import sensorium as sn
from sensorium import registry
from sensorium.cli import main
from sensorium.cli.new_sensor import LONGEST, Names, write
from sensorium.demo import model_path
from sensorium.jobs.rig import load_rig
from sensorium.measurement.stage_cfg import SENSOR_PLUGINS, STAGE_KINDS
from sensorium.plugins import is_ours
from sensorium.record import load
from sensorium.sensors.core.hooks import HOOKS, HOOKS_OF_OTHERS, SIMPLE_HOOKS, hook_of
from sensorium.testing import tumbling_engine

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
LONG = "Abcdefghijklmnopqrstuvwx"
INSTALL = """
import os, runpy, sys, tomllib
from importlib import import_module
from pathlib import Path
here = os.getcwd()
editable, *packages = sys.argv[1:]
for package in packages:
    os.chdir(package)
    backend = tomllib.loads(Path("pyproject.toml").read_text())["build-system"]["build-backend"]
    import_module(backend).build_wheel(here)
    os.chdir(here)
options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
sys.argv = ["pip", "install", *options, "--target", "site", "-e", "./" + editable, *map(str, Path().glob("*.whl"))]
runpy.run_module("pip", run_name="__main__")
"""
"""A program that has pip install the package in the first folder as editable, and wheels of the packages in the other
folders, which it builds in this process. Nothing is downloaded.
"""


def run(nursery: Nursery, code: str, *arguments: str, folder: Path, bare: bool = False) -> str:
    """Run a program and return its output."""
    program = nursery.program(code, *arguments, bare=bare, folder=folder, COLUMNS="200")
    assert program.wait(10.0 * PATIENCE) == 0, program.out + program.err
    return program.out + program.err


# Installed ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Path:
    """A folder with installed packages: the examples, from copies, so that the build leaves no trace in examples/, and
    new packages: one with a short name, as editable, and one with the longest name and full control.
    """
    folder = tmp_path_factory.mktemp("plugins")
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    assert len(LONG) == LONGEST
    write(Names.of("ohm"), folder / "simple")
    write(Names.of(LONG), folder / "full", full_control=True)
    run(nursery, INSTALL, "simple", "full", *(package.name for package in PACKAGES), folder=folder, bare=True)
    return folder / "site"


def test_three_example_packages_exist() -> None:
    assert [package.name for package in PACKAGES] == ["plugin_full_control", "plugin_proximity", "plugin_stage"]


RIG = """
[[sensor]]
kind = "my_proximity"
body = "trunk"
noise = 0.01

[[sensor]]
kind = "beam"
body = "trunk"
tremble = 0.1

[[sensor]]
kind = "floor_image"
body = "trunk"
width = 6
height = 4

[[sensor]]
kind = "imu"
body = "trunk"
[[sensor.stages]]
kind = "warm_up"
fields = ["ang_vel_b"]
start = 0.1
"""
PROGRAM = """
import site, sys, warnings
sys.dont_write_bytecode = True
site.addsitedir(sys.argv.pop(1))
warnings.simplefilter("error")
from my_proximity.options import MyProximityCfg
import sensorium as sn
from sensorium.cli import main

assert "my_proximity.sensor" not in sys.modules
engine = sn.TensorEngine(2)
engine.body_pos_w[:, 0, 2] = 0.25
scene = sn.Scene(engine, [MyProximityCfg(body="body")])
assert scene["my_proximity"].data.distance.tolist() == [0.25, 0.25]
assert not {"full_control", "warm_up"} & set(sys.modules)
text = 'body = "body"\\n[[stages]]\\nkind = "warm_up"\\nfields = ["ang_vel_b"]\\nstart = 0.1\\n'
(stage,) = sn.ImuCfg.from_toml(text).stages
assert type(stage).__module__ == "warm_up.stage" and stage.start == 0.1
print("found")
for command in (["list"], ["list", "--all"], ["run", *sys.argv[1:]]):
    print("=" * 40)
    assert main(command) == 0
"""
"""A program that uses the installed packages. Its checks come before commands that load all plugins."""


@pytest.fixture(scope="module")
def used(site: Path, tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> tuple[list[str], Path]:
    """The output of each part of the program, and the folder with its recording."""
    folder = tmp_path_factory.mktemp("used")
    (folder / "rig.toml").write_text(RIG, encoding="utf-8")
    options = ["--rig", "rig.toml", "--out", "out", "--envs", "2", "--seconds", "0.02"]
    said = run(nursery, PROGRAM, str(site), str(model_path()), *options, folder=folder, bare=True)
    return said.split("=" * 40), folder


@pytest.mark.slow
def test_sensor_is_found_by_options_and_stage_by_file(used: tuple[list[str], Path]) -> None:
    """Only `my_proximity.options` is imported; its sensor is found in the package, the stage by its entry point."""
    assert used[0][0] == "found\n"


@pytest.mark.slow
def test_list_shows_installed_plugins_with_their_packages(used: tuple[list[str], Path]) -> None:
    _, index, text, _ = used[0]
    assert "\n plugins\n" in index and "warm_up" in index and "broken" not in index
    for kind, package in (("my_proximity", "my-proximity"), ("beam", "full-control"), ("floor_image", "full-control")):
        assert f"\n  {kind} " in index
        assert f'kind = "{kind}"' in text and f"(plugin '{kind}' of {package} 0.1.0)" in text
    assert "(plugin 'warm_up' of warm-up 0.1.0)" in text
    assert "Largest reported distance, m." in text
    assert "broken" not in text


@pytest.mark.slow
def test_new_packages_are_listed(used: tuple[list[str], Path]) -> None:
    text = used[0][2]
    assert 'kind = "ohm"' in text and "(plugin 'ohm' of sensorium-ohm 0.1.0)" in text
    assert f'kind = "{LONG.lower()}"' in text


@pytest.mark.slow
def test_a_rig_file_uses_installed_kinds_and_stages(used: tuple[list[str], Path]) -> None:
    recording = load(used[1] / "out/readings.npz")
    assert list(recording) == ["my_proximity", "beam", "floor_image", "imu"]
    assert recording["floor_image"].measured["image"].shape[-2:] == (4, 6)
    for name, field in (("my_proximity", "distance"), ("beam", "distance"), ("imu", "ang_vel_b")):
        assert (recording[name].measured[field] != recording[name].truth[field]).any()


@pytest.mark.slow
@pytest.mark.parametrize("package", gate(PACKAGES, PACKAGES[:1]), ids=lambda package: package.name)
def test_an_example_package_passes_its_own_tests(package: Path, nursery: Nursery) -> None:
    """The tests run as for a reader: in the package's folder, before it is installed."""
    run(nursery, OWN_TESTS, folder=package)


# Broken ---------------------------------------------------------------------------------------------------------------

SENSOR = '''
from dataclasses import dataclass
from typing import Annotated
from torch import Tensor
import sensorium as sn

@dataclass(frozen=True, slots=True)
class {name}Data:
    value: Annotated[Tensor, sn.Field("m")]

class {name}Cfg(sn.MountedSensorCfg[{name}Data]):
    """A sensor of a plugin."""

class {name}(sn.SimpleSensor[{name}Cfg, {name}Data]):
    requires = (sn.engines.BODY_POSE,)
    def update_raw_data(self, raw):
        {work}
'''
GOOD = "raw.value.copy_(self.mount.pos_w[..., 2])"
PLUGINS: dict[str, tuple[str, str]] = {
    "good": ("b_good", SENSOR.format(name="Good", work=GOOD)),
    "raising": ("b_raising", SENSOR.format(name="Raising", work=GOOD) + "\nraise RuntimeError('no licence found')\n"),
    "leaving": ("b_leaving", "import sys\nsys.exit(3)\n"),
    "malformed": ("a b c !!", ""),
    "aborting": ("b_aborting", "class Abort(BaseException): ...\nraise Abort('no display')\n"),
    "kindless": (
        "b_kindless",
        SENSOR.format(name="Kindless", work=GOOD)
        + "\ndef kind(cls): raise RuntimeError('no kind')\nKindlessCfg.kind = classmethod(kind)\n",
    ),
    "mute": ("b_mute", "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute\n"),
    "needy": ("b_needy", "import no_such_dependency\n"),
    "absent": ("b_no_such_module.sensor", ""),
    "empty": ("json", ""),
    "builtin": ("builtins:print", ""),
    "heir": ("b_heir", "import sensorium as sn\nclass ImuCfg(sn.ImuCfg):\n    pass\n"),
    "nameless": ("b_nameless:Nothing", SENSOR.format(name="Nameless", work=GOOD)),
    "twice": ("b_twice", "import sensorium as sn\nclass Twice(sn.SimpleSensor[sn.ImuCfg, sn.ImuData]):\n    pass\n"),
    "clashing": ("b_clashing", SENSOR.format(name="Imu", work=GOOD)),
    "samea": ("b_samea", SENSOR.format(name="Same", work=GOOD)),
    "sameb": ("b_sameb", SENSOR.format(name="Same", work=GOOD)),
    "staging": ("b_staging", "import sensorium as sn\nclass Saturation(sn.stages.StageCfg):\n    place = 'post'\n"),
    "rebinding": ("b_rebinding", SENSOR.format(name="Rebinding", work="raw = self.mount.pos_w[..., 2]")),
    "misshapen": ("b_misshapen", SENSOR.format(name="Misshapen", work="raw.value.copy_(self.mount.pos_w)")),
}
"""Entry point -> its target, and the source of that module."""
BROKEN = {
    "raising": ["RuntimeError: no licence found (", "b_raising.py:", "Mend or update it", "pip uninstall p-raising"],
    "leaving": ["SystemExit: 3", "pip uninstall p-leaving"],
    "malformed": ["'a b c !!' names no module; expected package.module", "Correct malformed = 'a b c !!'"],
    "aborting": ["Abort: no display (", "b_aborting.py:2", "pip uninstall p-aborting"],
    "kindless": ["RuntimeError: no kind (", "b_kindless.py:", "pip uninstall p-kindless"],
    "mute": ["Mute (", "b_mute.py:3", "pip uninstall p-mute"],
    "needy": ["it needs no_such_dependency, which is not installed", "Install no_such_dependency"],
    "absent": ["there is no module b_no_such_module", "Correct absent = 'b_no_such_module.sensor'"],
    "empty": ["it defines nothing that belongs to the group sensorium.sensors", "pip uninstall p-empty"],
    "builtin": ["it defines nothing that belongs to the group sensorium.sensors", "pip uninstall p-builtin"],
    "heir": ["it defines nothing that belongs to the group sensorium.sensors", "pip uninstall p-heir"],
    "nameless": ["its module b_nameless has no Nothing", "Correct nameless = 'b_nameless:Nothing'"],
    "twice": ["config ImuCfg is already paired with sensorium.sensors.inertial.imu.Imu", "class MyImuCfg(ImuCfg): ..."],
    "clashing": [
        "b_clashing.ImuCfg, whose kind 'imu' is that of sensorium.sensors.inertial.imu.ImuCfg",
        "Rename the config",
    ],
    "sameb": [
        "b_sameb.SameCfg, whose kind 'same' is that of b_samea.SameCfg: in files it is ambiguous",
        "Rename the config class",
    ],
    "staging": ["b_staging.Saturation has the kind 'saturation', which belongs to sensorium", "Rename the stage class"],
}
"""Entry point -> expected text of its report."""


@pytest.fixture
def broken_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with installed plugins, all but one broken, and a registry that has not loaded them yet."""
    SENSOR_PLUGINS.load()
    folder = tmp_path / "site"
    for name, (value, text) in PLUGINS.items():
        info = folder / f"p_{name}-0.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: p-{name}\nVersion: 0.1\n", encoding="utf-8")
        entry = f"[{SENSOR_PLUGINS.group}]\n{name} = {value}\n"
        (info / "entry_points.txt").write_text(entry, encoding="utf-8")
        if text:
            (folder / f"{value.partition(':')[0]}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    stages, modules = dict(STAGE_KINDS), set(sys.modules)
    ours = {cfg: sensor for cfg, sensor in registry._pairs.items() if is_ours(cfg)}
    monkeypatch.setattr(registry._pairs, "data", ours)
    monkeypatch.setattr(registry, "_hidden", set())
    for name, value in (("broken", []), ("is_loaded", False)):
        monkeypatch.setattr(SENSOR_PLUGINS, name, value)
    yield folder
    STAGE_KINDS.clear()
    STAGE_KINDS.update(stages)
    for module in set(sys.modules) - modules:
        if module.startswith("b_"):
            del sys.modules[module]


@pytest.mark.usefixtures("broken_site")
def test_each_broken_plugin_is_a_warning_with_its_name_package_reason_and_fix() -> None:
    with pytest.warns(sn.SensoriumWarning) as caught:
        SENSOR_PLUGINS.load()
    said = {str(warning.message).split("'")[1]: str(warning.message) for warning in caught}
    assert sorted(said) == sorted(BROKEN)
    for name, parts in BROKEN.items():
        for part in (f"the sensor plugin '{name}' of p-{name} 0.1 ({PLUGINS[name][0]})", *parts):
            assert part in said[name], said[name]


def test_package_without_metadata_is_ignored(broken_site: Path) -> None:
    for info in broken_site.glob("p_good-*"):
        (info / "METADATA").unlink()
    SENSOR_PLUGINS.load(warn=False)
    good = registry.cfg_for_kind("good")
    assert registry.plugin_of(good) == "plugin 'good'"


def test_ctrl_c_during_an_import_ends_the_program(broken_site: Path) -> None:
    (broken_site / "b_raising.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        SENSOR_PLUGINS.load(warn=False)


@pytest.mark.usefixtures("broken_site")
def test_with_warnings_as_errors_every_plugin_loads_before_the_first_raises() -> None:
    with pytest.raises(sn.SensoriumWarning):
        SENSOR_PLUGINS.load()
    assert len(registry.broken()) == len(BROKEN)
    assert registry.cfg_for_kind("good").__module__ == "b_good"


@pytest.mark.usefixtures("broken_site")
def test_other_plugins_work_beside_broken_ones() -> None:
    """Registrations of a plugin before its failure are undone; built-in kinds are unaffected."""
    SENSOR_PLUGINS.load(warn=False)
    saturation = STAGE_KINDS["saturation"]
    assert registry.cfg_for_kind("imu") is sn.ImuCfg
    assert saturation is sn.stages.Saturation
    kinds = {cfg_class.kind() for cfg_class in registry.registered()}  # type: ignore[attr-defined]
    assert "good" in kinds and "raising" not in kinds
    scene = sn.Scene(tumbling_engine(2), [registry.cfg_for_kind("good")(body="body"), sn.ImuCfg(body="body")])
    assert scene["good"].data.value.shape == (2,)


@pytest.mark.usefixtures("broken_site")
def test_list_works_and_shows_broken_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    """Broken plugins appear once, in the table, and not as additional warnings."""
    assert main(["list"]) == 0
    index = capsys.readouterr().out
    assert "\n  good " in index and "broken plugins" in index
    assert main(["list", "--all"]) == 0
    out, err = capsys.readouterr()
    assert 'kind = "good"' in out and "p-good 0.1" in out and 'kind = "imu"' in out
    table = out[out.index("broken plugins") :].splitlines()
    last = next(line.index("problem and fix") for line in table if "problem and fix" in line)
    text = " ".join(" ".join(line[last:] for line in table).split())
    for name, parts in BROKEN.items():
        assert any(line.split()[:3] == [name, f"p-{name}", "0.1"] for line in table)
        assert parts[-1] in text, text
    assert "warning" not in err


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("raising", ["unknown sensor kind 'raising'", "p-raising 0.1", "no licence found", "pip uninstall p-raising"]),
        ("absent", ["unknown sensor kind 'absent'", "there is no module b_no_such_module"]),
        ("same", ["two sensors have the kind 'same': b_samea.SameCfg, b_sameb.SameCfg"]),
        ("lidarr", ["unknown sensor kind 'lidarr'", "may be in a plugin that is broken", "'needy' of p-needy 0.1"]),
        ("rebinding", ["'rebinding' (Rebinding, plugin 'rebinding' of p-rebinding 0.1)", "raw.value.copy_(...)"]),
        ("misshapen", ["plugin 'misshapen' of p-misshapen 0.1", "update_raw_data failed", "value=(1, 1) float32"]),
    ],
)
@pytest.mark.usefixtures("broken_site")
def test_rig_with_a_broken_plugin_gives_the_reason(
    kind: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rig that uses a broken plugin gives one message and exit code 2, whether it breaks on load or on use."""
    SENSOR_PLUGINS.load(warn=False)
    rig = tmp_path / "rig.toml"
    rig.write_text(f'[[sensor]]\nkind = "{kind}"\nbody = "trunk"\n', encoding="utf-8")
    assert main(["run", str(model_path()), "--rig", str(rig), "--out", str(tmp_path / "out"), "--seconds", "0.02"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("error:") == 1 and "Traceback" not in said
    for part in parts:
        assert part in said, said


@pytest.mark.usefixtures("broken_site")
def test_rig_without_broken_plugins_runs(tmp_path: Path) -> None:
    SENSOR_PLUGINS.load(warn=False)
    rig = tmp_path / "rig.toml"
    rig.write_text('[[sensor]]\nkind = "good"\nbody = "trunk"\n', encoding="utf-8")
    configs, _ = load_rig(rig)
    assert [cfg.kind() for cfg in configs] == ["good"]


# Names of other frameworks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        (
            "### Genesis",
            "_get_return_format _get_cache_dtype _get_intermediate_format _get_intermediate_dtype _update_raw_data "
            "_update_current_timestep_data _apply_physics_imperfections _apply_transform _apply_hardware_imperfections "
            "_post_process _update_shared_cache _apply_camera_transform _render_current_state uses_ring_pipeline "
            "SimpleSensorOptions RigidSensorOptionsMixin KinematicSensorOptionsMixin RigidSensorMixin "
            "RigidSensorMetadataMixin SharedSensorMetadata SimpleSensorMetadata BaseCameraSensor NamedTuple build() "
            "_update_shared_ground_truth_cache _apply_delay "
            "make_tensor_field concat_with_tensor tensor_to_array scene.add_sensor timeline.at has_any_noise",
        ),
        (
            "### mjlab",
            "edit_spec initialize update reset _compute_data postprocess_rays debug_vis requires_sensor_context",
        ),
    ],
)
def test_manual_maps_every_foreign_hook_name(framework: str, names: str) -> None:
    """Each name in the other framework's guide to custom sensors has a row with its equivalent."""
    text = (ROOT / "docs/porting.md").read_text(encoding="utf-8").split(framework)[1].split("\n##")[0]
    left = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    for name in names.split():
        assert any(name in cell for cell in left), name


def test_manual_has_a_row_for_every_refused_hook() -> None:
    text = (ROOT / "docs/porting.md").read_text(encoding="utf-8").split("## From other frameworks")[1]
    left = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert [name for name in HOOKS_OF_OTHERS if not any(name in cell for cell in left)] == []


@pytest.mark.parametrize("name", HOOKS_OF_OTHERS)
def test_hook_of_another_library_is_refused_with_its_replacement(name: str) -> None:
    with pytest.raises(
        sn.RegistrationError, match=re.escape(f"{name} is never called: write {HOOKS_OF_OTHERS[name]}.")
    ):
        type("Old", (sn.SimpleSensor,), {name: lambda self: {}, "__module__": "sensorium.sensors.core.old"})


def test_a_hook_counts_as_defined_unless_it_is_the_function_of_a_base() -> None:
    names = {"update_raw_data": lambda self, raw: None, "observe": sn.SimpleSensor.observe}
    sensor = type("Own", (sn.SimpleSensor,), {**names, "__module__": "sensorium.sensors.core.own"})
    own = sensor.__new__(sensor)
    defined = [name for name in (*SIMPLE_HOOKS.values(), *HOOKS.values()) if hook_of(own, name)]
    assert defined == ["update_raw_data"]


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("apply_tranform", "apply_transform"), ("postprocess", "post_process"), ("upate_raw_data", "update_raw_data"),
        ("reset_stat", "reset_state"), ("comupte", "compute"), ("obseve", "observe"), ("setUp", "setup"),
        ("intermediate_field", "intermediate_fields"), ("render_curent_state", "render_current_state"),
        ("update_raw", "update_raw_data"), ("apply_physics", "apply_physics_imperfections"), ("setup_impl", "setup"),
        ("apply_transforms", "apply_transform"), ("update_raw_data_impl", "update_raw_data"),
        ("reset_state_of", "reset_state"),
    ],
)  # fmt: skip
def test_a_misspelled_hook_is_refused_with_its_name(name: str, hook: str) -> None:
    for value in (lambda self: None, staticmethod(print)):
        for bases, own in (((sn.SimpleSensor,), {name: value}), ((type("Mixin", (), {name: value}), sn.Sensor), {})):
            with pytest.raises(sn.RegistrationError, match=f"misspelled hook. {name} is never called: write {hook}."):
                type("Ported", bases, own)


def test_helpers_whose_names_resemble_hooks_are_allowed() -> None:
    names = (
        "observed observer computed commute compute_all field need transform set_state preserve apply state raw_data "
        "_post_proces _setup _observe _compute _reset_state _describe_measured preprocess update_state"
    )
    type("Free", (sn.SimpleSensor,), {name: lambda self: None for name in names.split()})
    type("Free", (sn.SimpleSensor,), {"obseve": 1.0, "setUp": property(lambda self: 1.0)})
    type("Camera", (sn.RenderedSensor,), {"camera_transform": lambda self: None})
