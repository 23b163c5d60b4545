"""`sensorium list`: what there is: kinds of sensors with fields and options, stages, presets, broken plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from sensorium.cli.arguments import unset
from sensorium.cli.messages import stdout


@dataclass
class List:
    """List the kinds of sensors with their fields, units and options, ray patterns, stages, presets, broken plugins.

    What all sensors have (name, rate, noise, delay, where they are mounted, ...) is shown once, at the end.

    For example:
      sensorium list
      sensorium list imu joint
      sensorium list low_pass bmi088
      sensorium list lidar spinning
    """

    names: Annotated[Positional[tuple[str, ...]], unset("[KIND ...]", "")] = ()
    """Show only these kinds of sensors, patterns, stages and presets."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        import sensorium.sensors.all  # noqa: F401 - registers our sensors, also where the package is not installed
        from sensorium import registry
        from sensorium.cfg import STAGE_KINDS
        from sensorium.errors import UnknownNameError
        from sensorium.patterns.base import PATTERN_KINDS, GeneratedPatternCfg
        from sensorium.presets import presets

        registry.load_installed(warn=False)  # the table at the end says it
        sensors = sorted(registry.registered().items(), key=lambda pair: pair[0].kind())  # type: ignore[attr-defined]
        pairs: list[tuple[Any, Any]] = list(sensors)
        kinds = [cfg_class.kind() for cfg_class, _ in pairs]
        in_files = sorted(set(PATTERN_KINDS) - {GeneratedPatternCfg.kind()})
        infos = presets()
        for name in self.names:
            if name not in (known := [*kinds, *in_files, *STAGE_KINDS, *infos]):
                raise UnknownNameError("kind of sensor, pattern, stage or preset", name, known)

        def wanted(name: str) -> bool:
            return not self.names or name in self.names

        console = stdout()
        shown = [(cfg_class, sensor) for cfg_class, sensor in pairs if wanted(cfg_class.kind())]
        for cfg_class, sensor in shown:
            console.print(f'[bold]kind = "{cfg_class.kind()}"[/]  {_escaped(_title(cfg_class))}')
            console.print(_fields(sensor))
            own = [name for name in cfg_class.model_fields if name not in _shared().model_fields]
            if own:
                console.print(_options(cfg_class, own))
        if shown:
            console.print("[bold]options of every sensor[/] (where it is mounted, of those that are mounted somewhere)")
            console.print(_options(_shared(), _shared().model_fields))
            console.print(
                "Shapes are without mounts, and without what a config decides: joints, targets, rays, pixels, taxels.\n"
            )
        patterns = {kind: PATTERN_KINDS[kind] for kind in in_files if wanted(kind)}
        if patterns:
            console.print('[bold]ray patterns[/], as in pattern = {kind = "grid", size = \\[1.6, 1.0]}')
            console.print(_patterns(patterns))
            if self.names:
                for kind, pattern in patterns.items():
                    console.print(f'[bold]kind = "{kind}"[/]')
                    console.print(_options(pattern, pattern.model_fields))
        stages = {kind: stage for kind, stage in STAGE_KINDS.items() if wanted(kind)}
        if stages:
            console.print("[bold]stages[/], in the order in which they act")
            console.print(_stages(stages))
            if self.names:
                for kind, stage in stages.items():
                    console.print(f'[bold]kind = "{kind}"[/]')
                    console.print(_options(stage, stage.model_fields))
        chosen = {
            name: info for name, info in infos.items() if wanted(name) or (self.names and info.kind in self.names)
        }
        if chosen:
            console.print("[bold]presets[/]")
            console.print(_presets(chosen))
        if registry.broken() and not self.names:
            console.print("[bold red]broken plugins[/]")
            console.print(_broken(registry.broken()))
        return 0


def _shared() -> Any:
    """Return the config class whose fields every sensor has, or every one that is mounted somewhere."""
    from sensorium.cfg import MountedSensorCfg

    return MountedSensorCfg


def _title(cls: type) -> str:
    """Return name, plugin and summary of a config or stage."""
    from sensorium import registry

    plugin = "" if cls.__module__.startswith(registry.OURS) else registry.plugin_of(cls)
    return f"{cls.__name__}{f' ({plugin})' if plugin else ''}: {_summary(cls)}"


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, wrapped: str) -> Any:
    """Return a table of plain texts; only columns named in `wrapped` may break lines."""
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        view.add_column(heading, no_wrap=heading not in wrapped)
    for row in rows:
        view.add_row(*map(_plain, row))
    return view


def _fields(sensor: Any) -> Any:
    """Return the fields of a sensor's data; axes are by size where they are the parts of a vector, else by name."""
    from sensorium.sensors.parts import declared_fields
    from sensorium.spec import resolve_field

    rows = []
    for name, field in declared_fields(sensor.data_class).items():
        spec = resolve_field(name, field, None)
        sizes = [str(size) if len(axis) == size else axis for axis, size in zip(spec.axes, spec.shape, strict=True)]
        shape = f"[{', '.join(['env', *sizes])}]"
        rows.append((name, shape, spec.unit, spec.frame or "-", "" if spec.dtype == "float32" else spec.dtype))
    return _table(("data field", "shape", "unit", "frame", "dtype"), rows, wrapped="unit")


def _options(cls: Any, names: Iterable[str]) -> Any:
    from sensorium.cfg import meanings

    rows, texts = [], meanings(cls)
    for name in names:
        info = cls.model_fields[name]
        value = None if info.is_required() else info.get_default(call_default_factory=True)
        default = "(to be given)" if info.is_required() else "" if value is None else _default(value)
        rows.append((name, default, " ".join(texts.get(name, "").split())))
    return _table(("option", "default", "meaning"), rows, wrapped="default meaning")


def _default(value: Any) -> str:
    """Return a default as it is shown: of a config what it holds, as TOML would have it.

    Of a pattern it is the kind, with what would be given for it as far as it is short.
    """
    from pydantic import BaseModel

    kind = getattr(type(value), "kind", None)
    if kind is None and isinstance(value, BaseModel):
        parts = [f"{name} = {part}" for name, part in value if part is not None]
        return f"{{{', '.join(parts)}}}"
    if kind is None:
        return repr(value)
    given = {name: part for name, part in value.to_dict().items() if name != "kind"}
    parts = [f'kind = "{kind()}"', *(f"{name} = {part}" for name, part in given.items() if len(str(part)) < 30)]
    return f"{{{', '.join(parts)}{', ...' if len(parts) <= len(given) else ''}}}"


def _patterns(kinds: Mapping[str, Any]) -> Any:
    rows = [(kind, _title(pattern)) for kind, pattern in kinds.items()]
    return _table(("pattern", "meaning"), rows, wrapped="meaning")


def _stages(stages: Mapping[str, Any]) -> Any:
    from sensorium.cfg import PLACES

    places = {  # of the kind, or of each instance, with a default
        kind: stage.model_fields["place"].default if "place" in stage.model_fields else stage.place
        for kind, stage in stages.items()
    }
    order = sorted(stages, key=lambda kind: (PLACES.index(places[kind]), kind))
    rows = [(kind, places[kind], _title(stages[kind])) for kind in order]
    return _table(("stage", "place", "meaning"), rows, wrapped="meaning")


def _presets(infos: Mapping[str, Any]) -> Any:
    rows = [(name, info.kind, info.title, info.source) for name, info in infos.items()]
    return _table(("preset", "kind", "device", "source"), rows, wrapped="device source")


def _broken(plugins: Any) -> Any:
    rows = [(each.name, each.distribution, each.value, f"{each.reason} {each.fix}") for each in plugins]
    headings = ("plugin", "package", "entry point", "what is wrong, and what to do")
    return _table(headings, rows, wrapped=headings[-1])


def _plain(text: str) -> Any:
    """Return a text as it stands, not as markup."""
    from rich.text import Text

    return Text(text.replace("``", "`"))


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text.replace("``", "`"))
