"""The registry: pairs are registered by type, kinds are unique, plugins are found, broken plugins are named."""

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import pytest
from torch import Tensor

import sensorium as sn
from sensorium import plugins, registry
from sensorium.measurement.stage_cfg import SENSOR_PLUGINS

PLUGIN = {
    "__init__.py": "",
    "options.py": """
from dataclasses import dataclass
from typing import Annotated
from torch import Tensor
import sensorium as sn

@dataclass(frozen=True, slots=True)
class LevelData:
    level: Annotated[Tensor, sn.Field("m")]

class LevelCfg(sn.SimpleSensorCfg[LevelData]):
    pass
""",
    "sensor.py": """
import sensorium as sn
from .options import LevelCfg, LevelData

class Level(sn.SimpleSensor[LevelCfg, LevelData]):
    def update_raw_data(self, raw):
        raw.level.fill_(2.0)
""",
}


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are forgotten after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())
    monkeypatch.setattr(SENSOR_PLUGINS, "broken", [])
    monkeypatch.setattr(registry, "_hidden", set())


def _package(folder: Path, name: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


def test_kind_resolves_to_its_config_class() -> None:
    """In a file `imu` means `ImuCfg`; a typo names the nearest kind."""
    assert registry.cfg_for_kind("imu") is sn.ImuCfg
    with pytest.raises(sn.UnknownNameError, match=r"unknown sensor kind 'imuu'\. Did you mean 'imu'"):
        registry.cfg_for_kind("imuu")


def test_duplicate_kind_error_names_both() -> None:
    """A plugin's `ImuCfg` makes the kind `imu` ambiguous in files."""

    @dataclass(frozen=True, slots=True)
    class OtherData:
        value: Annotated[Tensor, sn.Field("1")]

    class ImuCfg(sn.SimpleSensorCfg[OtherData]):
        pass

    registry.pair(ImuCfg, type("Other", (), {}))
    with pytest.raises(sn.DuplicateNameError, match=r"two sensors have the kind 'imu': .*sensorium.*ImuCfg.*ImuCfg"):
        registry.cfg_for_kind("imu")


def test_a_config_finds_its_sensor_in_a_sibling_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `options` was imported; the scene finds `sensor` beside it."""
    _package(tmp_path, "sibling_plugin", PLUGIN, monkeypatch)
    from sibling_plugin.options import LevelCfg  # type: ignore[import-not-found]

    assert "sibling_plugin.sensor" not in sys.modules
    scene = sn.Scene(sn.TensorEngine(2), [LevelCfg()])
    assert scene["level"].data.level.tolist() == [2.0, 2.0]


def test_broken_sibling_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the module that could not be imported, and the reason."""
    files = {**PLUGIN, "sensor.py": "import no_such_package"}
    _package(tmp_path, "broken_sibling", files, monkeypatch)
    from broken_sibling.options import LevelCfg  # type: ignore[import-not-found]

    with pytest.raises(
        sn.RegistrationError, match=r"broken_sibling.sensor could not be imported: ModuleNotFoundError: No module named"
    ):
        sn.Scene(sn.TensorEngine(2), [LevelCfg()])


def test_sibling_program_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `__main__` module is not imported, and a sibling that ends the process does not end the test's process."""
    program = {"__main__.py": "raise AssertionError('this was run')", "a_script.py": "import sys; sys.exit(1)"}
    _package(tmp_path, "program_plugin", {**PLUGIN, **program}, monkeypatch)
    from program_plugin.options import LevelCfg  # type: ignore[import-not-found]

    assert registry.sensor_for(LevelCfg).__name__ == "Level"
    assert "program_plugin.a_script" not in sys.modules  # `sensor` comes first


def test_sibling_package_can_contain_the_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`my_plugin.options` and `my_plugin.sensors/` are paired."""
    files = {name: text for name, text in PLUGIN.items() if name != "sensor.py"}
    _package(tmp_path, "nested_plugin", files, monkeypatch)
    nested = tmp_path / "nested_plugin" / "sensors"
    nested.mkdir()
    (nested / "__init__.py").write_text(PLUGIN["sensor.py"].replace(".options", "..options"), encoding="utf-8")
    from nested_plugin.options import LevelCfg  # type: ignore[import-not-found]

    assert registry.sensor_for(LevelCfg).__module__ == "nested_plugin.sensors"


def test_redefined_class_replaces_itself() -> None:
    """As in a notebook, where a cell is run again, the kind stays unique."""

    @dataclass(frozen=True, slots=True)
    class AgainData:
        value: Annotated[Tensor, sn.Field("1")]

    def define() -> type:
        class AgainCfg(sn.SimpleSensorCfg[AgainData]):
            pass

        class Again(sn.SimpleSensor[AgainCfg, AgainData]):
            pass

        return AgainCfg

    define()
    newest = define()
    assert registry.cfg_for_kind("again") is newest


def test_a_broken_installed_plugin_is_a_warning_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other plugins still load."""
    broken = EntryPoint("leaky", "no_such_package.sensors", SENSOR_PLUGINS.group)
    ours = EntryPoint("builtin", "sensorium.sensors.all", SENSOR_PLUGINS.group)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken, ours])
    monkeypatch.setattr(SENSOR_PLUGINS, "is_loaded", False)
    with pytest.warns(sn.SensoriumWarning, match=r"'leaky' \(no_such_package\.sensors\).*ignored: .*no_such_package"):
        assert registry.cfg_for_kind("imu") is sn.ImuCfg


def test_pairing_a_config_twice_is_refused() -> None:
    """A second sensor class for `ImuCfg` raises an error at its definition."""
    with pytest.raises(
        sn.RegistrationError, match=r"ImuCfg is already paired with sensorium\.sensors\.inertial\.imu\.Imu"
    ):

        class Second(sn.SimpleSensor[sn.ImuCfg, sn.ImuData]):
            pass


def test_a_subclass_without_parameters_pairs_with_nothing() -> None:
    """Such a subclass leaves its parent's config with the parent."""

    class Quiet(sn.Imu):
        pass

    assert registry.sensor_for(sn.ImuCfg) is sn.Imu
