"""Rig files: the sensors of a robot as TOML, one `[[sensor]]` table each, and labels of shapes in `[semantics]`.

A table `[about]` may state the robot, its model and the source of the numbers. Rigs in `presets/rigs` have names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sensorium.errors import ConfigError, DuplicateNameError, ModelError, SensoriumError, listed, nearest, shown
from sensorium.presets.info import read_toml

if TYPE_CHECKING:
    from sensorium.measurement.sensor_cfg import SensorCfg

EXAMPLE = """\
[[sensor]]
kind = "imu"               # the kinds: sensorium list; fields of one: sensorium list imu
name = "trunk_imu"
body = "torso"             # or site = ..., link_name = ..., geom = ...
preset = "bmi088"          # optional: a device; fields given here override those of the preset
rate_hz = 200.0
delay = 0.004              # s
gyro_noise = 0.01          # rad/s per sample
"""
RIGS = Path(__file__).parents[1] / "presets/rigs"
"""Folder of the bundled rigs."""
KEYS = ("about", "sensor", "semantics")
FIX = f"A rig file looks like this:\n{EXAMPLE}"


def rig_file(path: Path) -> Path:
    """Return the path of a rig file; a name such as ``go2``, if it is no file here, is that of a bundled rig."""
    bundled = RIGS / f"{path}.toml"
    return bundled if path.name == str(path) and bundled.is_file() and not path.exists() else path


def bundled_rigs() -> dict[str, dict[str, Any]]:
    """Return name -> content of the bundled rigs."""
    return {path.stem: _read(path) for path in sorted(RIGS.glob("*.toml"))}


def load_rig(path: Path) -> tuple[list[SensorCfg[Any]], dict[str, str]]:
    """Read a rig file.

    Args:
        path: the TOML file.

    Returns:
        The sensors' configs in the order of the file, and sensor name -> preset for those with one.

    Raises:
        ModelError: the file is missing, is not TOML, or is not a rig; each message names the file.
        SensoriumError: the faults of all sensors at once.
    """
    from sensorium.cfg import toml_words

    tables = tables_of(path)
    configs, presets, faults = [], {}, []
    for number, table in enumerate(tables, 1):
        try:
            with toml_words():
                cfg = sensor_cfg(table)
        except SensoriumError as error:
            lines = error.faults if isinstance(error, ConfigError) else str(error).splitlines()
            faults += [f"{_place(path, number, table)}: {line}" for line in lines]
            continue
        configs.append(cfg)
        if "preset" in table:
            presets[cfg.label] = str(table["preset"])
    if faults:
        raise ModelError("\n".join(faults))
    seen: dict[str, int] = {}
    for number, cfg in enumerate(configs, 1):
        if cfg.label in seen:
            raise DuplicateNameError(
                f"rig file {str(path)!r}: sensors {seen[cfg.label]} and {number} are both named {cfg.label!r}. Give "
                f'each a unique name: name = "{cfg.label}_2".'
            )
        seen[cfg.label] = number
    return configs, presets


def load_semantics(path: Path) -> dict[str, str | list[str]]:
    """Return the semantic labels of a rig file: label -> patterns of names of geoms or bodies; empty without any.

    Raises:
        ModelError: as `load_rig`, or the labels are no table of patterns.
    """
    found: Any = _read(path).get("semantics", {})
    is_patterns = isinstance(found, dict) and all(
        isinstance(each, str) or (isinstance(each, list) and each and all(isinstance(one, str) for one in each))
        for each in found.values()
    )
    if not is_patterns:
        fix = 'Write a table such as [semantics] with lines such as crate = "crate_.*".'
        raise ModelError(f"rig file {str(path)!r}: semantics: got {shown(found, 60)}, expected label = patterns. {fix}")
    return dict(found)


def _place(path: Path, number: int, table: Mapping[str, Any]) -> str:
    """Return the location of a sensor: the file, and its table by number, kind and name."""
    labels = [f", {key} {table[key]!r}" for key in ("kind", "name") if isinstance(table.get(key), str)]
    return f"rig file {str(path)!r}, [[sensor]] {number}{''.join(labels)}"


@contextlib.contextmanager
def naming_tables(path: Path | None, configs: Sequence[SensorCfg[Any]]) -> Iterator[None]:
    """Add the file and the table of the rig to faults that the scene finds.

    Args:
        path: the rig file; None for none.
        configs: the result of `load_rig` for that file.

    Raises:
        ModelError: a config of the rig does not fit the model.
    """
    from sensorium.cfg import toml_words

    try:
        with toml_words():
            yield
    except ConfigError as error:
        for number, cfg in enumerate(configs if path else (), 1):
            if path and error.config == cfg.title:
                where = _place(path, number, {"kind": cfg.kind(), "name": cfg.label})
                raise ModelError("\n".join(f"{where}: {fault}" for fault in error.faults)) from None
        raise


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a rig file."""
    label = f"rig file {str(path)!r}"
    data = read_toml("rig file", path, [each.stem for each in RIGS.glob("*.toml")], FIX)
    for key, value in data.items():
        if key not in KEYS:
            hint = nearest(key, KEYS)
            if key == "sensors" and isinstance(value, list):
                hint = " Did you mean [[sensor]]?"
            raise ModelError(
                f"{label}: unknown top-level key {key!r} with value {shown(value, 60)}, expected only [[sensor]] "
                f"tables, [semantics] and [about].{hint} {FIX}"
            )
    return data


def tables_of(path: Path) -> list[Mapping[str, Any]]:
    """Return the tables of the sensors of a rig file, without importing the sensors.

    Raises:
        ModelError: the file is missing, is not TOML, or has neither sensors nor semantic labels.
    """
    label, content = f"rig file {str(path)!r}", _read(path)
    tables = content.get("sensor", [])
    if isinstance(tables, dict):
        raise ModelError(
            f"{label}: got one [sensor] table, expected a list of them. Write [[sensor]], with two brackets."
        )
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ModelError(f"{label}: sensor: got {shown(tables, 60)}, expected [[sensor]] tables. {FIX}")
    if not tables and "semantics" not in content:
        raise ModelError(f"{label}: got no sensor, expected at least one [[sensor]] table, or [semantics]. {FIX}")
    return tables


def sensor_cfg(table: Mapping[str, Any]) -> SensorCfg[Any]:
    """Build one sensor's config from its table: `kind`, optionally `preset`, and the config's own fields.

    Raises:
        SensoriumError: every fault of the table.
    """
    from sensorium import registry

    fields = dict(table)
    kind, device = fields.pop("kind", None), fields.pop("preset", None)
    if kind is None and device is None:
        kinds = sorted(cfg.kind() for cfg in registry.registered())  # type: ignore[attr-defined]
        raise ModelError(f'kind: got nothing, expected one of {listed(kinds)}. Add a line such as kind = "imu".')
    if kind is not None and not isinstance(kind, str):
        raise ModelError(f"kind: got {shown(kind)}, expected text such as 'imu'.")
    cfg_class = None if kind is None else registry.cfg_for_kind(kind)
    if device is None:
        assert cfg_class is not None
        return cfg_class.from_dict(fields)  # type: ignore[no-any-return]
    if not isinstance(device, str):
        raise ModelError(f"preset: got {shown(device)}, expected text such as 'bmi088'.")
    from sensorium.presets import preset, presets

    is_file = device.endswith(".toml")
    build: Callable[..., SensorCfg[Any]] = preset if is_file else presets().build
    cfg = build(device, **fields)
    if cfg_class is not None and not isinstance(cfg, cfg_class):
        raise ModelError(f"preset: {device!r} is a device of kind {cfg.kind()!r}, expected one of kind {kind!r}.")
    return cfg
