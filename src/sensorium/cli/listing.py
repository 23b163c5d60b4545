"""`sensorium list`: kinds of sensors with fields and options, patterns, stages, presets, broken plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from sensorium.cli.arguments import unset
from sensorium.cli.kinds import Kinds, Rows, kinds
from sensorium.cli.messages import stdout
from sensorium.errors import UnknownNameError, UsageError

FAMILIES = {
    "motion and place": (
        "imu", "body_state", "frame_transformer", "gnss", "barometer", "magnetometer", "safe_distance",
    ),
    "joints and loads": ("joint", "joint_torque", "motor_current", "joint_wrench", "force_torque"),
    "contacts": ("contact_sensor", "contact", "contact_force", "touch", "collision", "collision_events"),
    "skin": (
        "kinematic_tactile", "contact_probe", "contact_depth_probe", "elastomer_taxel", "proximity_taxel",
        "temperature_grid",
    ),
    "rays and images": (
        "ray_caster", "terrain_height", "lidar", "radar", "obstacle", "surface_distance_probe", "camera",
        "ray_caster_camera", "depth_camera", "event_camera",
    ),
    "native": ("builtin",),
}  # fmt: skip
"""Groups of the kinds of sensors in the index; kinds of plugins come last."""


@dataclass
class List:
    """List the kinds of sensors, the ray patterns, the stages, the presets and the broken plugins.

    Without arguments it prints an index with one line per kind of sensor. With kinds it prints their fields, units and
    options. Options of every sensor (name, rate, noise, delay, mount, ...) come last.

    For example:
      sensorium list
      sensorium list imu joint
      sensorium list low_pass bmi088
      sensorium list lidar spinning
      sensorium list --all
      sensorium list --rigs
    """

    names: Annotated[Positional[tuple[str, ...]], unset("[KIND ...]", "")] = ()
    """Show the details of these kinds of sensors, patterns, stages and presets."""
    all: bool = False
    """Show the details of everything."""
    rigs: bool = False
    """Show the rigs of known robots, which --rig of other commands accepts by name."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.all and self.names:
            raise UsageError.of("--all", True, "no kinds with it", f"Omit --all, or omit {self.names[0]}.")
        if self.rigs:
            return _show_rigs()
        found = kinds()
        known = {each["kind"] for each in found["sensors"]}.union(*(found[part] for part in PARTS))
        for name in self.names:
            if name not in known:
                raise UnknownNameError("kind of sensor, pattern, stage or preset", name, known)
        if self.names or self.all:
            _show_details(found, self.names)
        else:
            _show_index(found)
        if found["broken"] and not self.names:
            stdout().print("[bold red]broken plugins[/]")
            headings = ("plugin", "package", "entry point", "problem and fix")
            stdout().print(_table(headings, found["broken"], wrapped=headings[-1]))
        return 0


def _show_rigs() -> int:
    from sensorium.jobs.rig import bundled_rigs

    console = stdout()
    console.print("[bold]rigs[/] for models of the MuJoCo Menagerie, as in sensorium run go2.xml --rig go2")
    for name, rig in bundled_rigs().items():
        about = rig["about"]
        sensors = ", ".join(f"{each['name']} ({each.get('preset', each['kind'])})" for each in rig["sensor"])
        console.print(f"[bold]{name}[/]  {about['title']}, {about['model']}", highlight=False)
        console.print(_plain(f"  sensors: {sensors}\n  source: {' '.join(about['source'].split())}"))
    return 0


PARTS = ("patterns", "stages", "presets")
"""Tables other than those of sensors."""


def _show_index(found: Kinds) -> None:
    console = stdout()
    summaries: dict[str, str] = {}
    for each in found["sensors"]:
        summaries.setdefault(each["kind"], each["summary"].partition(". ")[0].removesuffix("."))
    listed = {kind for members in FAMILIES.values() for kind in members}
    families = {**FAMILIES, "plugins": tuple(kind for kind in summaries if kind not in listed)}
    width = max(map(len, summaries))
    console.print('[bold]sensors[/], as in kind = "imu"')
    for family, members in families.items():
        if members:
            console.print(f" {family}", style="dim")
        for kind in members:
            line = f"  {kind:<{width}}  {_plain(summaries[kind])}"
            console.print(line, markup=False, no_wrap=True, overflow="ellipsis")
    by_kind: dict[str, list[str]] = {}
    for name, info in found["presets"].items():
        by_kind.setdefault(info["kind"], []).append(name)
    presets = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items())
    for heading, text in (
        ('[bold]ray patterns[/], as in pattern = {kind = "grid"}', ", ".join(sorted(found["patterns"]))),
        ('[bold]stages[/], as in stages = \\[{kind = "low_pass"}]', ", ".join(sorted(found["stages"]))),
        ('[bold]presets[/], as in preset = "bmi088"', presets),
    ):
        console.print(heading)
        console.print(text, markup=False)
    console.print("[bold]details[/]: sensorium list KIND ...; details of everything: sensorium list --all")


def _show_details(found: Kinds, names: Sequence[str]) -> None:
    """Print the tables of some kinds, or of all if no names are given."""
    console = stdout()

    def wanted(name: str) -> bool:
        return not names or name in names

    headings = ("option", "default", "meaning")

    def show_options(rows: Rows) -> None:
        console.print(_table(headings, rows, wrapped="default meaning"))

    sensors = [each for each in found["sensors"] if wanted(each["kind"])]
    for each in sensors:
        console.print(f'[bold]kind = "{each["kind"]}"[/]  {_escaped(each["title"])}')
        console.print(_table(("data field", "shape", "unit", "frame", "dtype"), each["fields"], wrapped="unit"))
        if each["options"]:
            show_options(each["options"])
    if sensors:
        console.print("[bold]options of every sensor[/] (mounts apply to sensors with a mount)")
        show_options(found["shared"])
        console.print("Shapes omit mounts and axes that depend on the config: joints, targets, rays, pixels, taxels.\n")
    patterns = {kind: each for kind, each in found["patterns"].items() if wanted(kind)}
    if patterns:
        console.print('[bold]ray patterns[/], as in pattern = {kind = "grid", size = \\[1.6, 1.0]}')
        rows = [[kind, each["title"]] for kind, each in patterns.items()]
        console.print(_table(("pattern", "meaning"), rows, wrapped="meaning"))
    stages = {kind: each for kind, each in found["stages"].items() if wanted(kind)}
    if names:
        _show_each(patterns, show_options)
    if stages:
        console.print("[bold]stages[/], in the order in which they act")
        rows = [[kind, each["place"], each["title"]] for kind, each in stages.items()]
        console.print(_table(("stage", "place", "meaning"), rows, wrapped="meaning"))
    if names:
        _show_each(stages, show_options)
    presets = [
        [name, each["kind"], each["title"], each["source"]]
        for name, each in found["presets"].items()
        if wanted(name) or each["kind"] in names
    ]
    if presets:
        console.print("[bold]presets[/]")
        console.print(_table(("preset", "kind", "device", "source"), presets, wrapped="device source"))
    for name in (name for name in found["presets"] if name in names):
        console.print(f"[bold]numbers of {name}[/], in the units of the source")
        numbers = found["presets"][name]["numbers"]
        console.print(_table(("number", "value", "method", "source"), numbers, wrapped="value method source"))


def _show_each(described: Mapping[str, Any], show_options: Callable[[Rows], None]) -> None:
    for kind, each in described.items():
        stdout().print(f'[bold]kind = "{kind}"[/]')
        show_options(each["options"])


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


def _plain(text: str) -> Any:
    """Return a text unchanged, not interpreted as markup."""
    from rich.text import Text

    return Text(text.replace("``", "`"))


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text.replace("``", "`"))
