"""The kinds of sensors, patterns, stages and presets as plain values, available without torch and Warp.

The file `kinds.json` holds the kinds of sensorium. ``python -m sensorium.cli.kinds`` writes it; run that after a change
of a config, a data class or their docstrings. A test compares it with the classes. If plugins are installed, the values
come from the classes themselves.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from sensorium.plugins import is_ours

FILE = "kinds.json"
Rows = list[list[str]]
Kinds = dict[str, Any]
"""Type of the result of `described`."""


def kinds() -> Kinds:
    """Return all kinds, those of installed plugins included; see `described`."""
    ours = read()
    return described() if _plugins(ours["entry_points"]) else ours


def read() -> Kinds:
    """Return the kinds of sensorium."""
    ours: Kinds = json.loads((files("sensorium.cli") / FILE).read_text(encoding="utf-8"))
    return ours


def _plugins(group: str) -> list[str]:
    """Return the values of the entry points of plugins, without the built-in ones."""
    return [point.value for point in entry_points(group=group) if not point.value.startswith("sensorium.")]


def described() -> Kinds:
    """Return all kinds as JSON-serialisable values, built from the classes.

    Returns:
        ``entry_points``: the group under which plugins announce themselves; ``sensors``: a list; ``patterns``,
        ``stages`` and ``presets``: by kind, each with texts and the rows of its tables, stages in the order in which
        they act; ``shared``: rows of the options of every sensor; ``broken``: rows of the plugins that cannot be used.
    """
    import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed
    from sensorium import registry
    from sensorium.measurement.sensor_cfg import MountedSensorCfg
    from sensorium.measurement.stage_cfg import PLACES, SENSOR_PLUGINS, STAGE_KINDS
    from sensorium.patterns.base import PATTERN_KINDS, GeneratedPatternCfg
    from sensorium.presets import presets

    SENSOR_PLUGINS.load(warn=False)  # reported in the rows of `broken`
    sensors: list[tuple[Any, Any]] = list(registry.registered().items())
    shared = MountedSensorCfg.model_fields
    return {
        "entry_points": SENSOR_PLUGINS.group,
        "sensors": [
            {
                "kind": cfg.kind(),
                "config": _path(cfg),
                "title": _title(cfg),
                "summary": summary(sensor),
                "fields": _fields(sensor),
                "options": _options(cfg, (name for name in cfg.model_fields if name not in shared)),
            }
            for cfg, sensor in sorted(sensors, key=lambda pair: (pair[0].kind(), _path(pair[0])))
        ],
        "shared": _options(MountedSensorCfg, shared),
        "patterns": {
            kind: {"title": _title(pattern), "options": _options(pattern, pattern.model_fields)}
            for kind, pattern in sorted(PATTERN_KINDS.items())
            if pattern is not GeneratedPatternCfg  # it holds an object, which a file cannot
        },
        "stages": {
            kind: {"title": _title(stage), "place": _place(stage), "options": _options(stage, stage.model_fields)}
            for kind, stage in sorted(STAGE_KINDS.items(), key=lambda item: (PLACES.index(_place(item[1])), item[0]))
        },
        "presets": {
            name: {"kind": info.kind, "title": info.title, "source": info.source, "numbers": info.table()}
            for name, info in presets().items()
        },
        "broken": [
            [each.name, each.distribution, each.value, f"{each.reason} {each.fix}"] for each in registry.broken()
        ],
    }


def summary(cls: type) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _title(cls: type) -> str:
    """Return name, plugin and summary of a config or stage."""
    from sensorium.measurement.stage_cfg import SENSOR_PLUGINS

    plugin = "" if is_ours(cls) else SENSOR_PLUGINS.of(cls)
    return f"{cls.__name__}{f' ({plugin})' if plugin else ''}: {summary(cls)}"


def _place(stage: Any) -> str:
    """Return the place of a stage: that of its kind, or the default if each instance chooses."""
    place = stage.model_fields["place"].default if "place" in stage.model_fields else stage.place
    return str(place)


def _fields(sensor: Any) -> Rows:
    """Return name, shape, unit, frame and dtype of each field of a sensor's data.

    An axis is a number if it holds the components of a vector, otherwise a name.
    """
    from sensorium.sensors.core.parts import declared_fields
    from sensorium.spec import resolve_field

    rows, known = [], sensor.cfg_class.selectable
    for name, field in declared_fields(sensor.data_class).items():
        if known and name not in known and field.role == "image":
            continue  # a data type of another camera with the same data class
        spec = resolve_field(name, field, None)
        sizes = [str(size) if len(axis) == size else axis for axis, size in zip(spec.axes, spec.shape, strict=True)]
        shape = f"[{', '.join(['env', *sizes])}]"
        rows.append([name, shape, spec.unit, spec.frame or "-", "" if spec.dtype == "float32" else spec.dtype])
    return rows


def _options(cls: Any, names: Iterable[str]) -> Rows:
    """Return name, default and meaning of fields of a config."""
    from sensorium.cfg import meanings

    texts = meanings(cls)
    return [[name, _default(cls.model_fields[name]), " ".join(texts.get(name, "").split())] for name in names]


def _default(info: Any) -> str:
    """Return the default of a field: for a config its content, in TOML syntax.

    For a pattern it is the kind with its short values.
    """
    from pydantic import BaseModel

    if info.is_required():
        return "(required)"
    value = info.get_default(call_default_factory=True)
    kind = getattr(type(value), "kind", None)
    if value is None:
        return ""
    if kind is None and isinstance(value, BaseModel):
        return f"{{{', '.join(f'{name} = {part}' for name, part in value if part is not None)}}}"
    if kind is None:
        return repr(value)
    given = {name: part for name, part in value.to_dict().items() if name != "kind"}
    parts = [f'kind = "{kind()}"', *(f"{name} = {part}" for name, part in given.items() if len(str(part)) < 30)]
    return f"{{{', '.join(parts)}{', ...' if len(parts) <= len(given) else ''}}}"


def text(described: Mapping[str, Any]) -> str:
    """Return kinds as text of the file: one line per row of a table."""
    row = re.compile(r"""\[\n((?: +"(?:[^"\\\n]|\\.)*",?\n)+) +\]""")
    return (
        row.sub(lambda found: "[" + re.sub(r"\n *", " ", found[1]).strip() + "]", json.dumps(described, indent=1))
        + "\n"
    )


if __name__ == "__main__":
    if plugins := _plugins(read()["entry_points"]):
        sys.exit(f"{FILE} must hold only the kinds of sensorium. First uninstall: {', '.join(plugins)}.")
    Path(__file__).with_name(FILE).write_text(text(described()), encoding="utf-8")
