"""The commands `generate` and `generate status|verify|collect|template`. Their docstrings are shown by `--help`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich import box
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.checks import check_envs
from sensorium.cli.commands import INTERRUPTED
from sensorium.cli.explain import bytes_text
from sensorium.cli.messages import error, note, progress, stdout
from sensorium.errors import GenerateError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from sensorium.jobs.job import Job
    from sensorium.jobs.report import Status

TemplateName = Literal["demo", "arm", "trajectories"]
"""Names of the bundled jobs."""
TEMPLATES: tuple[TemplateName, ...] = ("demo", "arm", "trajectories")
JOB_FILE = "job.json"


@dataclass
class Generate:
    """Generate a data set: many simulated episodes with the readings of all sensors, on all cores or on many machines.

    A job file says what is simulated, see docs/generate.md. The data set is divided into shards. Each worker simulates
    one shard at a time and writes OUT/shard-000012/ with one file per sensor. The rows are the same for any number of
    workers. Run the same command again after an interruption: it generates only what is missing.

    JOB is a TOML file, the job.json in the output of an earlier run, or the name of a bundled job. demo is a quadruped,
    arm an arm with a wrist camera, trajectories a drone and a car with lidars. sensorium generate template NAME prints
    their files, from which your own can start.

    For example:
      sensorium generate demo --out out/data --envs 64 --workers 2
      sensorium generate job.toml --out s3://bucket/data --ray auto
      sensorium generate job.toml --out /shared/data --shards 0-99
      sensorium generate status out/data
      sensorium generate verify out/data --rerun 3
      sensorium generate collect out/data --to out/lerobot --format lerobot
      sensorium generate template demo > job.toml

    Exit codes: 0 all shards are done, 1 shards failed, 2 invalid input or an output that is not writable, 130 Ctrl-C.
    """

    job: Annotated[Positional[str], arg(metavar="JOB.toml|demo|arm|trajectories")]
    """Job file, or name of a bundled job."""
    out: Annotated[str, arg(metavar="DIR|URL")]
    """Folder or URL of fsspec for the output; created if missing."""
    envs: Annotated[int | None, unset("N", "as in the job")] = None
    """Number of environments of the whole data set."""
    seed: Annotated[int | None, unset("K", "as in the job")] = None
    """Seed of all random numbers."""
    workers: Annotated[int | None, unset("N", "one per core, divided by the threads of the job")] = None
    """Number of processes that generate shards; with --ray the number of actors."""
    ray: Annotated[str | None, unset("ADDRESS", "this machine")] = None
    """Address of a Ray cluster (pip install 'sensorium[ray]'); auto finds the one of this machine."""
    gpus: Annotated[float, arg(metavar="F")] = 0.0
    """With --ray: share of a GPU that each worker reserves, e.g. 0.25."""
    shards: Annotated[str, unset("I-J,K,...", "all")] = ""
    """Only these shards, e.g. 0-99 or 3,7; for arrays of Slurm jobs, which may share one output."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.workers is not None and self.workers < 1:
            raise UsageError.of("--workers", self.workers, "a whole number >= 1", "Omit it for one worker per core.")
        if not 0.0 <= self.gpus < float("inf"):
            raise UsageError.of("--gpus", self.gpus, "a share of a GPU >= 0", "Use for example --gpus 0.5.")
        if self.gpus and self.ray is None:
            raise UsageError.of("--gpus", self.gpus, "a share of a GPU only with --ray", "Add --ray ADDRESS.")
        job = self.given()
        chosen = shards_of(self.shards, job.num_shards) if self.shards else list(range(job.num_shards))
        from sensorium.jobs.driver import generate
        from sensorium.jobs.report import status
        from sensorium.jobs.store import Store

        began = time.monotonic()
        try:
            run = generate(job, self.out, workers=self.workers, ray=self.ray, gpus=self.gpus, shards=chosen)
        except KeyboardInterrupt:
            done = sum(1 for _ in Store(self.out).receipts(chosen))
            note(f"{done} of {len(chosen)} shards are done; run the same command to continue")
            return INTERRUPTED
        except GenerateError as failure:
            if not getattr(failure.run, "failed", None):
                raise
            error(str(failure))
            return 1
        took = time.monotonic() - began
        show(status(self.out))
        if run.simulated_s:
            new = run.done - run.skipped
            rate = f"{run.simulated_s / took:.3g} x real time"
            note(f"generated {new} shard{'s' if new > 1 else ''} in {took:.0f} s, {rate}")
        stdout().print(f"wrote {run.out}", markup=False, soft_wrap=True)
        return 0

    def given(self) -> Job:
        """Return the job with the options of the command line.

        Raises:
            SensoriumError: the job does not exist or is invalid.
        """
        job = _job(self.job)
        changes = {"envs": self.envs, "seed": self.seed}
        if self.envs is not None:
            check_envs(self.envs)
            if self.job in TEMPLATES:
                divisors = (n for n in range(job.envs_per_shard, 0, -1) if self.envs % n == 0)
                changes["envs_per_shard"] = next(divisors)
        with UsageError.naming(envs="--envs", seed="--seed"):
            return job.replace(**{name: value for name, value in changes.items() if value is not None})


def _job(name: str) -> Job:
    """Return the job of a file or the bundled job of a name."""
    from sensorium.jobs.job import Job
    from sensorium.jobs.store import Store

    if name in TEMPLATES:
        return Job.from_toml(template(name))
    folder, _, file = name.rpartition("/")
    if file == JOB_FILE:
        return Store(folder or ".").job()
    if not Path(name).suffix and not Path(name).exists():
        raise UnknownNameError("job", name, TEMPLATES, "Or give a file, such as job.toml.")
    return Job.load(name)


def template(name: str) -> str:
    """Return the text of the file of a bundled job."""
    return (files("sensorium") / "templates" / "jobs" / f"{name}.toml").read_text(encoding="utf-8")


def shards_of(text: str, total: int) -> list[int]:
    """Return the numbers in a text such as ``"0-99,120"``.

    Raises:
        UsageError: it is anything else, or there are no such shards.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < total):
            expected = f"numbers or ranges from 0 to {total - 1}, separated by commas"
            raise UsageError.of("--shards", text, expected, "Use for example --shards 0-99 or --shards 3,7.")
        found += range(int(first), int(last) + 1)
    return found


def show(status: Status) -> None:
    """Print a table of the data of each sensor, and what is done."""
    console = stdout()
    job = status.job
    envs = f"{job.envs} env{'s' if job.envs > 1 else ''}"
    episodes = f"{job.episodes} episode{'s' if job.episodes > 1 else ''}"
    title = (
        f"{job.model or job.factory or job.engine}: {envs}, {episodes} of {job.episode_seconds:g} s, seed {job.seed}"
    )
    console.print(title, style="bold", markup=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("sensor")
    for heading in ("rows", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.show_footer = True
    for name, (rows, size) in status.sensors.items():
        table.add_row(escape(name), f"{rows:,}", bytes_text(size))
    all_rows, all_bytes = (sum(each[part] for each in status.sensors.values()) for part in (0, 1))
    totals = ("all", f"{all_rows:,}", bytes_text(all_bytes))
    for column, text in zip(table.columns, totals, strict=True):
        column.footer = text
    console.print(table)
    dropped = f", {status.dropped} dropped" if status.dropped else ""
    missing = f"; missing: {status.missing}" if status.missing else ""
    console.print(f"{status.done} of {status.total} shards are done{missing}", markup=False, soft_wrap=True)
    times = f"{_time(status.simulated_s)} simulated in {_time(status.wall_s)} of workers"
    console.print(f"{status.episodes} episodes{dropped}, {times}", markup=False, soft_wrap=True)


def _time(seconds: float) -> str:
    """Return a duration as text."""
    return f"{seconds:.3g} s" if seconds < 360.0 else f"{seconds / 3600.0:.3g} h"


@dataclass
class GenerateStatus:
    """Show how much of a data set is done: shards, rows and bytes of each sensor, episodes, simulated hours.

    It reads the receipts of the shards, also while other processes generate.

    For example:
      sensorium generate status out/data
    """

    out: Annotated[Positional[str], arg(metavar="OUT")]
    """Output of `sensorium generate`: a folder or URL."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.jobs.report import status

        show(status(self.out))
        return 0


@dataclass
class GenerateVerify:
    """Check a data set: read all files, and compare the checksums of their rows with the receipts.

    With --rerun it also generates random shards again and compares their rows, which shows whether this machine, with
    its versions, gives the same data.

    For example:
      sensorium generate verify out/data
      sensorium generate verify out/data --rerun 3
    """

    out: Annotated[Positional[str], arg(metavar="OUT")]
    """Output of `sensorium generate`: a folder or URL."""
    rerun: Annotated[int, arg(metavar="N")] = 0
    """Number of random shards to generate again."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.rerun < 0:
            raise UsageError.of("--rerun", self.rerun, "a whole number >= 0", "Use for example --rerun 3.")
        from sensorium.jobs.report import verify

        with progress("verifying") as show_progress:
            differences = verify(self.out, self.rerun, show_progress)
        for text in differences:
            error(text)
        if not differences:
            stdout().print(f"{self.out}: all rows are equal to the receipts", markup=False, soft_wrap=True)
        return 1 if differences else 0


@dataclass
class GenerateCollect:
    """Merge the shards of a data set into one data set for other programs, without loading all of it.

    Without --to it writes the manifest, OUT/manifest.parquet, with a row per shard and sensor, and names the missing
    shards.

    For example:
      sensorium generate collect out/data
      sensorium generate collect out/data --to out/tables --format parquet
      sensorium generate collect out/data --to out/lerobot --format lerobot
    """

    out: Annotated[Positional[str], arg(metavar="OUT")]
    """Output of `sensorium generate`: a folder or URL."""
    to: Annotated[str | None, unset("DIR|URL", "none")] = None
    """Folder or URL for the merged data set, for lerobot a folder; created if missing, existing files are replaced."""
    format: Annotated[Literal["lerobot", "parquet", "mcap"] | None, unset("lerobot|parquet|mcap", "none")] = None
    """Format of the merged data set."""
    feature: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=SENSOR,...")] = ()
    """With lerobot: vector observation.NAME, or action, of the values of sensors, or of fields as SENSOR.FIELD. May be
    repeated. By default state of all sensors."""
    video: bool = False
    """With lerobot: write images as H.264 in MP4 files instead of PNG (pip install 'sensorium[lerobot]')."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if (self.to is None) != (self.format is None):
            option, given = ("--to", self.to) if self.format is None else ("--format", self.format)
            raise UsageError.of(option, given, "--to and --format together", "Use --to DIR --format parquet.")
        for option, chosen in (("--feature", self.feature), ("--video", self.video)):
            if chosen and self.format != "lerobot":
                raise UsageError.of(option, chosen, "--format lerobot", "Other formats do not have this option.")
        from sensorium.jobs.collect import collect
        from sensorium.record.export.lerobot import Vector

        features = dict(map(Vector.parse, self.feature))
        with progress("collecting") as show_progress:
            notes = collect(self.out, self.to, self.format, show_progress, features=features, video=self.video)
        for text in notes:
            note(text)
        if self.to is not None:
            stdout().print(f"wrote {self.to}", markup=False, soft_wrap=True)
        return 0


@dataclass
class GenerateTemplate:
    """Print the job file of a bundled job, with comments, as a start for your own.

    For example:
      sensorium generate template demo > job.toml
    """

    name: Annotated[Positional[TemplateName], arg(metavar="demo|arm|trajectories")]
    """Name of the bundled job."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        sys.stdout.write(template(self.name))
        return 0
