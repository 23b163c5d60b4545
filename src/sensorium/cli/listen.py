"""`sensorium listen`: shows the samples of a simulation in another process. `--help` shows the docstring."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from sensorium.cli.arguments import unset
from sensorium.cli.messages import live, note, stdout

if TYPE_CHECKING:
    from sensorium.cli.monitor import Monitor, Options
    from sensorium.client.blueprints import Blueprint
    from sensorium.client.client import Client
    from sensorium.wire.stream_info import StreamInfo

REFRESH_EVERY = 0.2
"""Seconds between two updates of the live table."""
TITLE = "sensorium listen"
WIDE = 110
"""Terminal width in characters from which the catalogue has all its columns."""
NARROW = 100
"""Terminal width in characters below which a blueprint and its description are on separate lines."""
GAP = 2
"""Characters between two columns, and at both edges together."""
STATS_WORTH = ("envs", "MB/s", "lost", "received", "replaced", "age", "latency")
"""Counts by importance, the least important first, which a narrow terminal omits first."""


@dataclass
class Listen:
    """Show the samples of a simulation in another process: rate, age, latency, losses, and the newest values.

    `sensorium serve` prints the ADDRESS. Without a SENSOR, the available sensors are listed. On a terminal the tables
    are live; otherwise there is one line per second and sensor, or with --json one line per sample.

    The age of a value at its frame is in simulation time: the sensor's delay, and the time since the capture. The
    latency is in wall-clock time, from the capture until arrival. Dropped samples were replaced by newer ones before
    they were sent (--policy latest); lost counts missing events. If the server ends, the command waits until it
    returns.

    A plain version needs only numpy, pyzmq and msgspec: python -m sensorium.client ADDRESS.

    For example:
      sensorium listen tcp://127.0.0.1:7447
      sensorium listen tcp://127.0.0.1:7447 lidar --env 0
      sensorium listen tcp://127.0.0.1:7447 trunk foot --truth --max-rate 20
      sensorium listen tcp://127.0.0.1:7447 trunk --policy lossless --json --count 1000 > trunk.jsonl
      sensorium listen tcp://127.0.0.1:7447 --blueprints
      sensorium listen tcp://127.0.0.1:7447 --blueprints safe_distance
    """

    address: Annotated[Positional[str], arg(metavar="ADDRESS")]
    """Address of the server: tcp://HOST:PORT or ipc:///path."""
    sensors: Annotated[Positional[tuple[str, ...]], unset("[SENSOR ...]", "")] = ()
    """Names of sensors, or with --blueprints of blueprints."""
    env: Annotated[int | None, unset("K", "all")] = None
    """Only this environment. By default all; the values shown are those of the first."""
    every: Annotated[int, arg(metavar="N")] = 1
    """Only each N-th sample."""
    max_rate: Annotated[float, arg(metavar="HZ")] = 0.0
    """Maximum number of samples per second of wall-clock time; 0 for no limit."""
    policy: Literal["latest", "lossless"] = "latest"
    """Treatment of samples that arrive too fast. latest: only the newest is kept. lossless: samples are queued (up to a
    limit; in lock-step the simulation waits)."""
    truth: bool = False
    """Also show the ground truth."""
    count: Annotated[int, arg(metavar="N")] = 0
    """End after N samples of each sensor; 0 runs until Ctrl-C."""
    seconds: Annotated[float, arg(metavar="S")] = 0.0
    """End after S seconds of wall-clock time; 0 runs until Ctrl-C."""
    json: bool = False
    """Print one line of JSON per sample (without SENSOR: per stream; with --blueprints: per blueprint)."""
    blueprints: bool = False
    """List the sensors that clients can spawn; with names, also their attributes."""
    token_file: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the server's token. Alternatively set SENSORIUM_TOKEN."""
    server_key: Annotated[str, unset("KEY", "none")] = ""
    """The server's public key, if it uses keys; the server prints it."""
    keys: Annotated[Path | None, unset("FILE", "none")] = None
    """File with this client's keys, for a server that admits only certain clients; created if missing. The public key
    is printed, for the server's --allow-key."""
    timeout: Annotated[float, arg(metavar="S")] = 5.0
    """Longest wait for the first connection to the server, s."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.cli.monitor import NO_SENSOR, Options, listen
        from sensorium.cli.values import line

        options = Options(
            self.address, self.sensors, self.env, self.every, self.max_rate, self.policy, self.truth, self.count,
            self.seconds, self.json, self.token_file, self.server_key, self.keys, self.timeout,
        )  # fmt: skip
        if self.blueprints:
            options.refuse_of_samples("no such option with --blueprints", "Omit it, since blueprints have no samples.")
        elif not self.sensors:
            options.refuse_of_samples(*NO_SENSOR)
        if (keys := options.keys()) is not None:
            note(f"public key of this client: {keys[0]}")
        if self.blueprints:
            with options.connect(TITLE) as client:
                _print_blueprints(client, self.sensors, as_json=self.json)
        elif self.json or (self.sensors and not stdout().is_terminal):
            listen(options, sys.stdout, note, TITLE, line)
        elif self.sensors:
            _live(options)
        else:
            with options.connect(TITLE) as client:
                _print_catalogue(client)
        return 0


# Catalogue ------------------------------------------------------------------------------------------------------------


def catalogue_table(streams: Iterable[StreamInfo], width: int) -> Table:
    """Return the table of available streams; with environments and mounts only if `width` characters allow it."""
    from sensorium.cli import show

    headings, rows = list(show.CATALOGUE_HEADINGS), list(show.catalogue(streams))
    if width < WIDE:
        rows = [(*row[:3], "", row[4], row[5].replace("[env, ", "[").replace("[env]", ""), row[6], "") for row in rows]
        headings[5] = "shape per env"
    wrapped = ("kind", "mounts")
    spare = ("mounts", "envs", "kind", headings[5], "rate", "unit")
    return _table(headings, rows, width, right=("rate", "envs"), wrapped=wrapped, spare=spare)


def _print_catalogue(client: Client) -> None:
    from sensorium.cli.monitor import about

    console = stdout()
    console.print(about(client), style="bold", markup=False, soft_wrap=True)
    console.print(catalogue_table(client.streams.values(), console.width))
    console.print(f"listen: sensorium listen {client.address} SENSOR", markup=False, soft_wrap=True)


def _print_blueprints(client: Client, names: Sequence[str], *, as_json: bool) -> None:
    from sensorium.cli import show

    console, library = stdout(), client.blueprints
    chosen = [library.find(name) for name in names]
    if as_json:
        for blueprint in chosen or library:
            print(show.description_json(blueprint.definition), flush=True)
    elif names:
        for blueprint in chosen:
            console.print(str(blueprint), markup=False)
    else:
        rows = [
            (each.id, each.definition.where, _reserve(each), each.definition.doc.replace("``", "`")) for each in library
        ]
        if console.width < NARROW:
            for name, where, reserve, doc in rows:
                notes = [f"in the {where}"] if where != "scene" else []
                notes += [f"needs --reserve {reserve}"] if reserve else []
                console.print(Text(name, style="bold", overflow="fold"))
                console.print(Padding(Text(f"{doc} ({', '.join(notes)})" if notes else doc), (0, 0, 0, 2)))
        else:
            headings = ("blueprint", "runs in", "--reserve", "description")
            console.print(_table(headings, rows, console.width, wrapped=("description",)))
        console.print("attributes: sensorium listen ADDRESS --blueprints NAME", markup=False, soft_wrap=True)


def _reserve(blueprint: Blueprint) -> str:
    """Return the --reserve argument that the server needs for a blueprint, if any."""
    needs = blueprint.definition.needs
    return "RIG.toml" if "(reserve" in needs else needs if blueprint.definition.where == "server" else ""


# Live -----------------------------------------------------------------------------------------------------------------


def _live(options: Options) -> None:
    """Show tables until the end."""
    from rich.live import Live

    from sensorium.cli.monitor import Monitor

    console = stdout()
    with options.connect(TITLE) as client:
        monitor = Monitor(client, options)
        with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as shown, live(console):
            monitor.watch(lambda: shown.update(picture(monitor, console.width), refresh=True), note, REFRESH_EVERY)


def picture(monitor: Monitor, width: int) -> Group:
    """Return two tables of at most `width` characters: the rates and counts, and the newest values."""
    from sensorium.cli.values import STATS_HEADINGS, VALUE_HEADINGS, stats_row, values_rows

    names, newest = monitor.names, monitor.newest
    stats = [stats_row(monitor, name) for name in names]
    values = [row for name in names if (data := newest.get(name)) is not None for row in values_rows(name, data)]
    frames = max((data.frame for data in newest.values()), default=0)
    times = max((data.time for data in newest.values()), default=0.0)
    title = f"{monitor.client.address}: frame {frames}, {times:.3f} s"
    stats_table = _table(
        STATS_HEADINGS, stats, width, right=STATS_HEADINGS[1:-1], spare=STATS_WORTH,
    )  # fmt: skip
    parts: list[Any] = [Text(title, style="bold"), stats_table]
    if values:
        parts.append(_table(VALUE_HEADINGS, values, width, wrapped=("newest",), spare=("shape", "unit")))
    return Group(*parts)


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, right: Sequence[str] = (),
    wrapped: Sequence[str] = (), spare: Sequence[str] = (),
) -> Table:  # fmt: skip
    """Return a table of plain texts; empty columns are omitted.

    Args:
        headings: headings of the columns.
        rows: the texts.
        width: available characters; if they are insufficient, columns are omitted, and finally all columns break lines.
        right: right-aligned columns.
        wrapped: columns that may break lines at any width.
        spare: columns that may be omitted, the first one first.
    """
    used = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in rows)]
    spared = [i for heading in spare if (i := headings.index(heading)) in used]
    texts = [[headings[i], *(row[i] for row in rows)] for i in range(len(headings))]
    least = [
        max(len(part) for text in column for part in (text.split() if heading in wrapped else text.splitlines()))
        for heading, column in zip(headings, texts, strict=True)
    ]
    while spared and sum(least[i] + GAP for i in used) > width:
        used.remove(spared.pop(0))
    if sum(least[i] + GAP for i in used) > width:
        wrapped = headings
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i in used:
        heading = headings[i]
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        view.add_column(heading, justify=justify, no_wrap=heading not in wrapped, overflow="fold")
    for row in rows:
        view.add_row(*(Text(row[i]) for i in used))
    return view
