"""Description of presets, and the units used in data sheets."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorium.cfg import SensorCfg

DPS = math.pi / 180.0
"""One degree per second, rad/s."""
G = 9.80665
"""Standard gravity, m/s^2."""
MG = 1e-3 * G
"""One thousandth of standard gravity, m/s^2."""
UG = 1e-6 * G
"""One millionth of standard gravity, m/s^2."""


def two_sided(density: float) -> float:
    """Return Allan's two-sided density N, as in `noise_density`, for a data sheet's one-sided density ND: ND / sqrt(2).

    Both describe the same white noise: integrated over the bandwidth B a one-sided density gives the variance ND^2 B; a
    sample stream of rate f has the bandwidth f/2, hence ND^2 f/2 = N^2 f.
    """
    return density / math.sqrt(2.0)


def normal(std: float) -> dict[str, list[float]]:
    """Return a normal distribution around 0, as in files."""
    return {"normal": [0.0, std]}


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


TEXTS: Mapping[str, Mapping[str, Any]] = tomllib.loads((files(__package__) / "devices.toml").read_text("utf-8"))
"""Name -> kind, title, source, convention and notes."""


def described(fields: Mapping[str, Mapping[str, Any]]) -> tuple[PresetInfo, ...]:
    """Return presets with their texts; `fields` gives name -> the fields of the config."""
    return tuple(PresetInfo(name=name, fields=given, **texts_of(name)) for name, given in fields.items())


def texts_of(name: str) -> dict[str, Any]:
    """Return kind, title, source, convention and notes of a device."""
    return {**TEXTS[name], "notes": tuple(TEXTS[name]["notes"])}


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
        """Build the config of a device whose name is known only at run time; otherwise as `sensorium.preset`."""
        from sensorium.presets import preset

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
