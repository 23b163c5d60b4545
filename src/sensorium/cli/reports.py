"""The commands `plot` and `report`. Their docstrings are shown by `--help`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.checks import recorded_env
from sensorium.cli.messages import note, progress, stdout
from sensorium.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from sensorium.readings import Reading
    from sensorium.record import Recording
    from sensorium.record import Replay as OpenReplay
    from sensorium.view.report import Table

PICTURES = (".png", ".svg", ".html")
MAX_FIELDS = 8
"""Maximum number of fields in a picture if none is chosen; a page has all."""


@dataclass
class Plot:
    """Draw fields of a recording, true and measured, as a picture or an HTML page.

    A field is named SENSOR.FIELD; SENSOR alone stands for all its fields. Controls, and logged values such as actions
    and rewards, have the names control, action and so on. Values over time are drawn with their error, and with spans
    without a valid value, gaps and lost samples marked. Scans are drawn as maps over time; skins, images and point
    clouds as maps at one time, see --at; and events as points.

    For example:
      sensorium plot run.mcap --to run.html
      sensorium plot run.mcap imu.ang_vel_b imu.lin_acc_b --to imu.png --start 1 --end 2
      sensorium plot run.mcap control reward --to loop.png
      sensorium plot run.mcap camera.depth lidar.points_b --at 1.5 --to scene.png
      sensorium plot out/demo/readings.npz trunk --env 3 --to trunk.html
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Recording: an MCAP file, an npz file of sensorium run, or a ROS 2 bag."""
    fields: Annotated[Positional[tuple[str, ...]], unset("[SENSOR[.FIELD]|control|LOG ...]", "all")] = ()
    """Fields to draw; for an unknown name, the error lists all names."""
    to: Annotated[Path, arg(metavar="FILE.png|.svg|.html")] = Path("plot.png")
    """Picture or page to write; an existing file is replaced."""
    env: Annotated[int | None, unset("K", "the first recorded one")] = None
    """Environment."""
    start: Annotated[float | None, unset("S", "the first sample")] = None
    """Simulation time to start at, s."""
    end: Annotated[float | None, unset("S", "the last sample")] = None
    """Simulation time to end at, s."""
    at: Annotated[float | None, unset("S", "the last sample; of a skin, that of its largest load")] = None
    """Simulation time of images, point clouds and skins, s: the newest sample that had arrived is drawn."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.to.suffix.lower() not in PICTURES:
            raise UsageError.of("--to", str(self.to), f"a file ending in {', '.join(PICTURES)}")
        from sensorium.view.fields import every_field, plot_fields
        from sensorium.view.report import fields_html, write_page

        recording, env, _ = loaded(self.file, self.fields, self.env, self.start, self.end, logs=True)
        known = {name: each.info for name, each in recording.items()}
        described = known | {name: each for name, each in recording.description["sensors"].items() if name not in known}
        fields = _chosen({name: _fields_of(about) for name, about in described.items()}, self.fields)
        fields = [each for each in fields if each in every_field(recording)]
        is_page = self.to.suffix.lower() == ".html"
        if not is_page and not self.fields and len(fields) > MAX_FIELDS:
            left_out = ", ".join(".".join(each) for each in fields[MAX_FIELDS:])
            note(f"not drawn: {left_out}. Name fields, or write a page: --to {self.to.with_suffix('.html')}")
            fields = fields[:MAX_FIELDS]
        if not fields:
            raise UsageError.of("FILE", str(self.file), "a recording with samples of these fields in this time span")
        with UsageError.writing("--to", self.to, "file"):
            if is_page:
                write_page(self.to, f"{self.file}, env {env}", fields_html(recording, fields, env, self.at))
            else:
                plot_fields(recording, fields, self.to, env=env, at=self.at)
        stdout().print(f"wrote {self.to}", markup=False, soft_wrap=True)
        return 0


@dataclass
class Report:
    """Report the properties of each recorded sensor: rate, gaps, loss, latency, error, noise and quantisation step.

    The figures are computed from the data and shown beside those of the config. Latency is that of the measured signal
    behind the true one, by cross-correlation. White noise, quantisation, random walk and bias instability are fitted to
    the Allan deviation of measured minus true, or of a sensor at rest; motion is refused. With --to, an HTML page
    contains the same tables, Allan deviations, and pictures of the fields.

    For example:
      sensorium report run.mcap
      sensorium report run.mcap --to report.html
      sensorium report run.mcap --env 3 --start 10 --sensor imu --to imu.html
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Recording: an MCAP file, an npz file of sensorium run, or a ROS 2 bag."""
    to: Annotated[Path | None, unset("FILE.html", "none")] = None
    """Page to write; an existing file is replaced."""
    sensor: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    """Only this sensor; may be repeated. By default all."""
    env: Annotated[int | None, unset("K", "the first recorded one")] = None
    """Environment."""
    start: Annotated[float | None, unset("S", "the first sample")] = None
    """Simulation time to start at, s."""
    end: Annotated[float | None, unset("S", "the last sample")] = None
    """Simulation time to end at, s."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.to is not None and self.to.suffix.lower() != ".html":
            raise UsageError.of("--to", str(self.to), "a file ending in .html")
        from sensorium.view.report import facts_of, report_of, write_report

        recording, env, resets = loaded(self.file, self.sensor, self.env, self.start, self.end)
        with progress("analysing", len(recording)) as shown:
            report = report_of(recording, env, resets, shown)
        console = stdout()
        for line in (f"{self.file}", *facts_of(report)):
            console.print(line, style="bold", markup=False, soft_wrap=True)
        for table in report.tables:
            if table.rows:
                print_table(table)
        for text in report.notes:
            note(text)
        if self.to is not None:
            with UsageError.writing("--to", self.to, "file"), progress("drawing", len(recording)) as shown:
                write_report(report, self.to, f"Report of {self.file}", shown)
            console.print(f"wrote {self.to}", markup=False, soft_wrap=True)
        return 0


def print_table(table: Table) -> None:
    """Print a table; texts on the left, numbers on the right."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table as View

    from sensorium.view.report import without_repeats

    view = View(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=table.title, title_justify="left")
    for k, heading in enumerate(table.headings):
        view.add_column(heading, justify="left" if k < 3 else "right", overflow="fold")
    for row in without_repeats(table.rows):
        view.add_row(*map(escape, row))
    stdout().print(view)


# Recordings -----------------------------------------------------------------------------------------------------------


def loaded(
    file: Path, wanted: Sequence[str], env: int | None, start: float | None, end: float | None, *, logs: bool = False
) -> tuple[Recording, int, list[float]]:
    """Return part of a recording in memory, its environment, and the times at which that was reset, s.

    Args:
        file: a recording of any kind.
        wanted: sensors, or fields as SENSOR.FIELD; none for all.
        env: the environment; None for the first recorded one.
        start: first time, s; None for the first sample.
        end: last time, s; None for the last sample.
        logs: whether controls and logged values are read too, as sensors of the kind ``"log"``.

    Raises:
        ModelError: the file is missing, damaged or not a recording.
        UnknownNameError: no such sensor or field was recorded.
        UsageError: the environment was not recorded.
    """
    from math import inf

    import sensorium
    from sensorium.record import Recording

    first, last = -inf if start is None else start, inf if end is None else end
    recording = sensorium.open(file)
    if isinstance(recording, Recording):
        names = _sensors({name: _fields_of(each.info) for name, each in recording.items()}, wanted)
        sensors = {name: recording[name].between(first, last) for name in names}
        envs = sorted({int(each) for sensor in sensors.values() for each in sensor.env_ids})
        return Recording(recording.description, sensors), recorded_env(env, envs), []
    with recording as replay:
        known = {**replay.description.sensors, **(_logs(replay) if logs else {})}
        names = _sensors({name: _fields_of(about) for name, about in known.items()}, wanted)
        env = recorded_env(env, replay.env_ids.tolist())
        resets = [
            mark.time
            for mark in replay.marks
            if mark.name == "episode" and env in mark.env_ids and max(first, replay.start) < mark.time <= last
        ]
        return _read(replay, {name: known[name] for name in names}, env, first, last), env, resets


def _logs(replay: OpenReplay) -> dict[str, Mapping[str, object]]:
    """Return name -> description of controls and logged values; a log with a sensor's name is named ``log.NAME``."""
    sensors, about = replay.description.sensors, replay.log_descriptions
    return {f"log.{name}" if name in sensors else name: {**about[name], "log": name} for name in replay.logs}


def _read(
    replay: OpenReplay, known: Mapping[str, Mapping[str, object]], env: int, start: float, end: float
) -> Recording:
    """Return one environment of some sensors and logs, by their descriptions, and show how much is read."""
    from math import inf

    from sensorium.record import NpzRecorder
    from sensorium.record.batches import of_envs

    names = [name for name, about in known.items() if "log" not in about]
    recorder, row = NpzRecorder(max_envs=None), replay.env_ids.searchsorted([env])
    first, last = max(start, replay.start), min(end, replay.end)
    with progress("reading", last - first) as show_progress:
        for reading in replay.readings(names, start, end):
            recorder.add(of_envs(reading, row))
            if recorder.is_full:
                note("choose a part of the recording: a sensor, --start or --end")
                break
            show_progress(reading.time - first)
    for name in (each for each in known if each not in names):
        log = str(known[name]["log"])
        is_control = log == "control"
        values = replay.log(log, -inf if is_control else first, last)
        for reading in _held(values, first, last, replay.description.dt) if is_control else values:
            if reading.time >= first:
                recorder.add(replace(of_envs(reading, row), name=name))
    return recorder.recording(replace(replay.description, sensors=known))


def _held(controls: Iterable[Reading], start: float, end: float, dt: float) -> Iterator[Reading]:
    """Yield controls, which hold until the next ones, also at the start and at the end of a time span, s."""
    from math import ceil, floor

    held: Reading | None = None
    first, last = ceil(start / dt - 1e-6), floor(end / dt + 1e-6)
    for reading in controls:
        if held is not None and held.tick < first < reading.tick:
            yield _at(held, first, dt)
        yield reading
        held = reading
    for tick in (first, last) if held is not None else ():
        if held is not None and held.tick < tick:
            held = _at(held, tick, dt)
            yield held


def _at(reading: Reading, tick: int, dt: float) -> Reading:
    """Return the values of a reading at a later tick."""
    import numpy as np

    ticks = np.full_like(reading.capture_tick, tick)
    meta = {"capture_tick": ticks, "frame": reading.captures, "valid": reading.valid, "is_new": reading.is_new}
    return replace(reading, tick=tick, time=tick * dt, _meta=meta)


def _fields_of(info: Mapping[str, object]) -> list[str]:
    """Return the names of a sensor's fields, by its description."""
    specs = info.get("fields", ())
    assert isinstance(specs, Iterable)
    return [str(spec["name"]) for spec in specs]


def _chosen(fields: Mapping[str, Sequence[str]], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the sensors and fields that texts name; all if there is none.

    Raises:
        UnknownNameError: a text is neither SENSOR nor SENSOR.FIELD of this recording.
    """
    from sensorium.cameras.camera_data import ALIASES

    known = {
        f"{name}.{alias}": [(name, field)] for name, each in fields.items() for alias, field in ALIASES.items()
        if field in each
    }  # fmt: skip
    known |= {f"{name}.{field}": [(name, field)] for name, each in fields.items() for field in each}
    known |= {name: [(name, field) for field in each] for name, each in fields.items()}
    found: dict[tuple[str, str], None] = {}
    for text in texts or fields:
        if text not in known:
            raise UnknownNameError("recorded sensor or field", text, known)
        found |= dict.fromkeys(known[text])
    return [*found]


def _sensors(fields: Mapping[str, Sequence[str]], texts: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(name for name, _ in _chosen(fields, texts))]
