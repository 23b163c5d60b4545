"""The commands `replay` and `repair`. Their docstrings are shown by `--help`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.messages import live, note, stdout
from sensorium.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from sensorium.readings import Reading
    from sensorium.record import Replay as OpenReplay

REFRESH_EVERY = 0.1
"""Wall-clock interval between two pictures of a replay at a speed, s."""


@dataclass
class Replay:
    """Show the contents of a recording, and the values of its sensors.

    Without options: the newest values at the end of the recording. With --speed the values are shown as they change.
    With --out, the recording is written to OUT/readings.npz with one picture per kind of sensor, as by sensorium run.
    To send it to listeners, use sensorium serve --replay FILE.

    For example:
      sensorium replay run.mcap
      sensorium replay run.mcap --end 3.5 --sensor trunk
      sensorium replay run.mcap --speed 1
      sensorium replay run.mcap --out out/run
    """

    file: Annotated[Positional[Path], arg(metavar="FILE.mcap")]
    """Recording, written by sensorium run --record or scene.record, or a ROS 2 bag: an MCAP or .db3 file, or a folder
    (pip install 'sensorium[bags]')."""
    sensor: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    """Only this sensor; may be repeated. By default all."""
    start: Annotated[float | None, unset("S", "the first sample")] = None
    """Simulation time to start at, s."""
    end: Annotated[float | None, unset("S", "the last sample")] = None
    """Simulation time to end at, s."""
    speed: Annotated[float, arg(metavar="X")] = 0.0
    """Simulated seconds per second of wall-clock time; 0 shows only the end."""
    out: Annotated[Path | None, unset("DIR", "none")] = None
    """Folder for readings.npz and pictures; created if missing, existing files are replaced."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if not 0.0 <= self.speed < float("inf"):
            raise UsageError.of("--speed", self.speed, "a number >= 0", "Give 1 for real time, 0 to show the end.")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise UsageError.of("--out", str(self.out), "a folder", "Give another path, since this one is a file.")
        import sensorium

        with sensorium.replay(self.file) as replay:
            console, names = stdout(), self.sensor or None
            start = replay.start if self.start is None else self.start
            end = replay.end if self.end is None else self.end
            console.print(_title(replay, self.file), style="bold", markup=False, soft_wrap=True)
            if self.speed:
                self._play(replay, names, start, end)
            else:
                console.print(_table(replay, replay.at(end, names), console.width))
            for topic, why in replay.unread.items():
                console.print(f"not shown: {topic}: {why}", markup=False, soft_wrap=True)
            if replay.logs:
                console.print(f"also recorded: {', '.join(replay.logs)}", markup=False, soft_wrap=True)
            if (marks := len(replay.marks)) > 0:
                console.print(f"{marks} mark{'s' if marks > 1 else ''}, the last: {_mark(replay)}", markup=False)
            if self.out is not None:
                for path in _written(replay, replay.readings(names, start, end), self.out):
                    console.print(f"wrote {path}", markup=False, soft_wrap=True)
        return 0

    def _play(self, replay: OpenReplay, names: tuple[str, ...] | None, start: float, end: float) -> None:
        """Show the values as they change."""
        import time

        from rich.live import Live

        console, newest, next_at = stdout(), replay.at(start, names), 0.0
        with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as shown, live(console):
            try:
                for frame in replay.play(self.speed, names, start, end):
                    newest |= frame
                    if (now := time.monotonic()) >= next_at:
                        next_at = now + REFRESH_EVERY
                        shown.update(_table(replay, newest, console.width), refresh=True)
            finally:
                shown.update(_table(replay, newest, console.width), refresh=True)


def _title(replay: OpenReplay, file: Path) -> str:
    about, envs = replay.description, len(replay.env_ids)
    if about.engine == "rosbag2":
        return f"{file}: a bag of ROS 2, {replay.start:.4g} to {replay.end:.4g} s"
    return (
        f"{file}: {envs} env{'s' if envs > 1 else ''}, {replay.start:.4g} to {replay.end:.4g} s at "
        f"{about.dt * 1e3:.4g} ms per tick, engine {about.engine}, seed {about.seed}"
    )


def _mark(replay: OpenReplay) -> str:
    mark = replay.marks[-1]
    return f"{mark.name} {mark.value!r} at {mark.time:.4g} s" if mark.value else f"{mark.name} at {mark.time:.4g} s"


def _table(replay: OpenReplay, readings: Mapping[str, Reading], width: int) -> Table:
    from sensorium.cli.simulation import table

    return table(readings, replay.description.to_dict(), width)


def _written(replay: OpenReplay, readings: Iterator[Reading], folder: Path) -> list[Path]:
    """Write the recording as an `.npz` file with pictures, and return the paths.

    Raises:
        UsageError: a file is not writable.
    """
    from sensorium.cli.simulation import pictures
    from sensorium.record import NpzRecorder

    recorder = NpzRecorder()
    for reading in readings:
        recorder.add(reading)
    recording = recorder.recording(replay.description)
    with UsageError.writing("--out", folder):
        folder.mkdir(parents=True, exist_ok=True)
        return [recording.save(folder / "readings.npz"), *pictures(recording, folder)]


@dataclass
class Repair:
    """Write a complete copy of a recording whose writer was killed, or that is damaged: run.repaired.mcap.

    The copy has everything up to the last complete part, without damaged parts, and every reader of MCAP files opens
    it. A complete file is left unchanged. Any MCAP file can be repaired, including those of other programs.

    For example:
      sensorium repair run.mcap
      sensorium repair run.mcap --in-place
    """

    file: Annotated[Positional[Path], arg(metavar="FILE.mcap")]
    """Recording to repair."""
    in_place: bool = False
    """Replace the recording by the copy."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.record.repair import repair

        result = repair(self.file, in_place=self.in_place)
        if result.was_complete:
            note(f"{self.file} is already complete; it was left unchanged")
        else:
            cut = f", without {result.cut} bytes of damaged or incomplete parts" if result.cut else ""
            stdout().print(f"wrote {result.path}: {result.messages} messages{cut}", markup=False, soft_wrap=True)
        return 0
