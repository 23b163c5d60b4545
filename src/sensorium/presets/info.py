"""Description of presets."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sensorium.errors import ModelError, UnknownNameError

if TYPE_CHECKING:
    from sensorium.measurement.sensor_cfg import SensorCfg


@dataclass(frozen=True, slots=True, repr=False)
class PresetInfo:
    """Description of one device.

    Attributes:
        name: name for `preset`.
        kind: kind of the sensor config, e.g. ``"imu"``.
        title: the device.
        source: source of the numbers.
        convention: noise density convention of the source, and its conversion.
        notes: numbers that were not checked against the source, and omitted effects.
        fields: the fields of the config, SI, JSON-serialisable.
    """

    name: str
    kind: str
    title: str
    source: str
    convention: str
    notes: tuple[str, ...]
    fields: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        lines = [f"{self.name} ({self.kind}): {self.title}", f"  source: {self.source}"]
        lines.append(f"  density: {self.convention}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {name} = {_shown(value)}" for name, value in self.fields.items() if name != "stages"]
        for stage in self.fields.get("stages", ()):
            amounts = ", ".join(f"{name}={_shown(value)}" for name, value in stage.items() if name != "kind")
            lines.append(f"  stage {stage['kind']}({amounts})")
        return "\n".join(lines)


DEVICES: Mapping[str, Mapping[str, Any]] = tomllib.loads((files(__package__) / "devices.toml").read_text("utf-8"))
"""Name -> kind, title, source, convention, notes, and fields or device."""


def device(name: str, more: Mapping[str, Any]) -> PresetInfo:
    """Return the preset of a device; `more` gives fields that its table lacks."""
    about = DEVICES[name]
    texts = {key: about[key] for key in ("kind", "title", "source", "convention")}
    return PresetInfo(name=name, **texts, notes=tuple(about["notes"]), fields={**more, **about.get("fields", {})})


def preset_file(path: str) -> PresetInfo:
    """Return the preset in a TOML file: kind, title, source, convention, notes, and the table ``fields`` of the config.

    Raises:
        ModelError: the file is missing, is not TOML, or lacks one of these.
    """
    try:
        with open(path, "rb") as file:
            about = tomllib.load(file)
        texts = {key: str(about[key]) for key in ("kind", "title", "source", "convention")}
        return PresetInfo(name=path, **texts, notes=tuple(map(str, about["notes"])), fields=dict(about["fields"]))
    except OSError as error:
        raise ModelError(f"preset {path!r}: {error.strerror}. Give the path of a readable TOML file.") from None
    except KeyError as error:
        raise ModelError(
            f"preset {path!r} has no {error.args[0]!r}, expected kind, title, source, convention, notes and fields."
        ) from None
    except ValueError as error:
        raise ModelError(f"preset {path!r} is not TOML: {error}. Correct the file.") from None


class Presets(Mapping[str, PresetInfo]):
    """All presets by name; `repr` gives a table."""

    def __init__(self, infos: Mapping[str, PresetInfo]) -> None:
        self._infos = dict(infos)

    def __getitem__(self, name: str) -> PresetInfo:
        return self._infos[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def build(self, name: str, /, **fields: Any) -> SensorCfg[Any]:
        """Build the config of a device whose name is known only at run time; otherwise as `sensorium.preset`.

        It reads no files, since names come from clients of a server.

        Raises:
            UnknownNameError: no preset has that name.
        """
        from sensorium.presets import preset

        if name not in self:
            raise UnknownNameError("preset", name, self)

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
