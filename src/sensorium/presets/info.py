"""The one reader of presets: TOML files that describe devices."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sensorium.errors import ModelError, UnknownNameError, listed, nearest, shown

if TYPE_CHECKING:
    from sensorium.measurement.sensor_cfg import SensorCfg

FOLDER = Path(__file__).parent / "devices"
"""One folder per kind of sensor, with one file per device."""
TEXTS = ("title", "source", "convention")
FIX = 'Write kind = "imu", and the fields of the config in a table [fields].'


@dataclass(frozen=True, slots=True, repr=False)
class PresetInfo:
    """Description of one device.

    Attributes:
        name: name for `preset`, or the path of the file.
        kind: kind of the sensor config, e.g. ``"imu"``.
        title: the device.
        source: sources of the numbers, with their addresses.
        convention: noise density convention of the source, and its conversion.
        notes: omitted effects and other remarks.
        fields: the fields of the config, SI, JSON-serialisable.
        parameters: part of `fields`, e.g. ``"noise_density.ang_vel_b"`` -> its ``value`` and ``unit`` in the source,
            the ``method`` that gives the field's value, and the ``source``. Fitted ones have ``low`` and ``high``, the
            ends of their 95 % interval. A source that starts with ``"none"`` marks a number that no source states.
    """

    name: str
    kind: str
    title: str
    source: str
    convention: str
    notes: tuple[str, ...]
    fields: Mapping[str, Any] = field(repr=False)
    parameters: Mapping[str, Mapping[str, Any]] = field(repr=False)

    def __repr__(self) -> str:
        lines = [f"{self.name} ({self.kind}): {self.title}", f"  source: {self.source}"]
        lines.append(f"  density: {self.convention}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {name} = {_shown(value)}" for name, value in self.fields.items() if name != "stages"]
        for stage in self.fields.get("stages", ()):
            amounts = ", ".join(f"{name}={_shown(value)}" for name, value in stage.items() if name != "kind")
            lines.append(f"  stage {stage['kind']}({amounts})")
        lines += [f"  {'; '.join(row)}" for row in self.table()]
        return "\n".join(lines)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return rows of parameter, value with unit as in the source, method and source."""
        return [
            (
                name,
                f"{_shown(each['value'])} {each.get('unit', '')}".rstrip() if "value" in each else "",
                each.get("method", ""),
                each["source"],
            )
            for name, each in self.parameters.items()
        ]


def read_toml(what: str, path: Path, known: Iterable[str], fix: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Args:
        what: what the file is, for messages, e.g. ``"rig file"``.
        path: the file.
        known: names that are accepted instead of a path.
        fix: what to write into the file.

    Raises:
        ModelError: the file is missing or is not TOML.
    """
    label = f"{what} {str(path)!r}"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        names = [*(each.name for each in path.absolute().parent.glob("*.toml")), *known]
        kind = what.removesuffix(" file")
        hint = f"Check the path, or give the name of a bundled {kind}: `sensorium list --{kind}s`."
        raise ModelError(f"{label} does not exist.{nearest(path.name, names)} {hint}") from None
    except IsADirectoryError:
        raise ModelError(f"{label} is a folder. Give the TOML file in it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{label} cannot be read: {error}") from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        if text.lstrip().startswith("<"):
            raise ModelError(f"{label} is XML, like a model file; expected TOML. {fix}") from None
        raise ModelError(f"{label} is not valid TOML: {error}. Correct that line.") from error


def read_preset(path: Path, name: str = "") -> PresetInfo:
    """Return the preset of a file, see `docs/presets.md` for its form.

    Args:
        path: the file.
        name: name of the preset; by default the path.

    Raises:
        ModelError: the file is missing, is not TOML or is not a preset.
    """
    label, content = f"preset file {str(path)!r}", read_toml("preset file", path, (), FIX)
    expected = {"kind": str, **dict.fromkeys(TEXTS, str), "notes": list, "fields": dict, "parameters": dict}
    for key, value in content.items():
        if key not in expected:
            raise ModelError(
                f"{label}: unknown key {key!r}, expected {listed(expected)}.{nearest(key, expected)} {FIX}"
            )
        if not isinstance(value, expected[key]):
            wanted = {str: "text", list: "a list of texts", dict: "a table"}[expected[key]]
            raise ModelError(f"{label}: {key}: got {shown(value, 60)}, expected {wanted}. {FIX}")
    for key in ("kind", "fields"):
        if key not in content:
            raise ModelError(f"{label}: {key}: got nothing. {FIX}")
    for key, parameter in content.get("parameters", {}).items():
        if not isinstance(parameter, dict) or not isinstance(parameter.get("source"), str):
            fix = 'Write for example {value = 0.014, unit = "deg/s/sqrt(Hz)", source = "data sheet, table 3"}.'
            raise ModelError(f"{label}: parameters: {key}: got {shown(parameter, 60)}, expected its source. {fix}")
    return PresetInfo(
        name=name or str(path),
        kind=content["kind"],
        **{key: content.get(key, "") for key in TEXTS},
        notes=tuple(content.get("notes", ())),
        fields=content["fields"],
        parameters=content.get("parameters", {}),
    )


class Presets(Mapping[str, PresetInfo]):
    """All presets by name; `repr` gives a table."""

    def __init__(self) -> None:
        self._paths = {path.stem: path for path in sorted(FOLDER.glob("*/*.toml"))}
        self._infos: dict[str, PresetInfo] = {}

    def __getitem__(self, name: str) -> PresetInfo:
        if name not in self._paths:
            raise UnknownNameError("preset", name, self)
        if name not in self._infos:
            self._infos[name] = read_preset(self._paths[name], name)
        return self._infos[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def of_kind(self, kind: str) -> list[PresetInfo]:
        """Return the presets of one kind of sensor; reads no file of others."""
        return [self[name] for name, path in self._paths.items() if path.parent.name == kind]

    def build(self, name: str, /, **fields: Any) -> SensorCfg[Any]:
        """Build the config of a device whose name is known only at run time; otherwise as `sensorium.preset`.

        It reads no other files, since names come from clients of a server.

        Raises:
            UnknownNameError: no preset has that name.
        """
        from sensorium.presets import preset

        _ = self[name]
        build: Callable[..., SensorCfg[Any]] = preset
        return build(name, **fields)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{info.name:{width}}  {info.kind}  {info.title}" for info in self.values())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shown(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)
