"""`sensorium generate`: what its commands write, show and reject, and the bundled jobs."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sensorium as sn
from sensorium.cli import generate, main
from sensorium.jobs.driver import Run
from sensorium.jobs.progress import picture

pq = pytest.importorskip("pyarrow.parquet")

JOB = """
model = "demo"
envs = 3
envs_per_shard = 1
episode_seconds = 0.02
keep = "judge_of_cli:judge"

[[rig]]
kind = "imu"
name = "imu"
site = "imu"
"""
JUDGE = """
from pathlib import Path

def judge(scene):
    if scene.first_env == 1 and Path("fault").exists():
        raise {"error": ValueError, "interrupt": KeyboardInterrupt}[Path("fault").read_text()]("no judge")
    return scene.global_env_ids != 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a job of three shards, whose last episode is dropped."""
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "judge_of_cli.py").write_text(JUDGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def url(folder: Path) -> str:
    """Return an output in memory, for which no process is started."""
    return f"memory:/{folder}"


def run(*options: object) -> int:
    return main(["generate", *map(str, options)])


def test_job_file_on_a_local_worker(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """100 steps of 2 ms with an IMU sampled at each: 11 rows per episode of 20 ms, and the controls of two calls."""
    assert run("job.toml", "--out", "out", "--workers", 1, "--shards", "1-2", "--seed", 5) == 0
    shown = capfd.readouterr()
    assert shown.err.count("\n") == 1 and shown.err.startswith(
        "generated 2 shards in "
    )  # none of Warp's or of a worker
    table = pq.read_table(folder / "out/shard-000001/imu.parquet")
    assert len(table) == 11 and set(table["env"].to_pylist()) == {1}
    assert len(pq.read_table(folder / "out/shard-000002/imu.parquet")) == 0
    assert re.search(r"imu +11 +[\d.]+ kB", shown.out)
    assert "2 of 3 shards are done; missing: 0" in shown.out and "1 episodes, 1 dropped, 0.04 s simulated" in shown.out
    assert "seed 5" in shown.out and f"wrote {folder / 'out'}" in shown.out
    assert run("status", "out") == 0
    assert capfd.readouterr().out == shown.out.partition("wrote")[0]


def test_failed_shard_is_repeated_by_the_command_of_its_message(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "fault").write_text("error")
    assert run("job.toml", "--out", url(folder)) == 1
    out, err = capsys.readouterr()
    assert err.startswith("error: 1 of 3 shards failed") and "no judge" in err and not out
    command = re.search(r"repeat it alone: (.*)", err)
    assert command is not None
    program, *arguments = shlex.split(command[1])
    assert program == "sensorium" and arguments[-2:] == ["--shards", "1"]
    (folder / "fault").unlink()
    assert main(arguments) == 0
    assert "3 of 3 shards are done\n" in capsys.readouterr().out


def test_interrupted_command_continues(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fault").write_text("interrupt")
    assert run("job.toml", "--out", url(folder)) == 130
    out, err = capsys.readouterr()
    assert err == "1 of 3 shards are done; run the same command to continue\n" and not out
    (folder / "fault").unlink()
    assert run("job.toml", "--out", url(folder)) == 0
    assert "3 of 3 shards are done\n" in capsys.readouterr().out


def test_damaged_rows_are_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    job = sn.Job.load("job.toml")
    for index in (0, 1):
        sn.run_shard(job, index, out)
    assert run("verify", out, "--rerun", 1) == 0
    assert "all rows are equal" in capsys.readouterr().out
    (out / "shard-000000/imu.parquet").write_bytes((out / "shard-000001/imu.parquet").read_bytes())
    assert run("verify", out) == 1
    assert capsys.readouterr().err.startswith("error: shard 0: imu.parquet")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["job.toml"], ["--out"]),
        (["jbo.toml", "--out", "o"], ["job file 'jbo.toml'", "Did you mean 'job.toml'"]),
        (["arms", "--out", "o"], ["unknown job 'arms'", "Did you mean 'arm'"]),
        (["away/job.json", "--out", "o"], ["has no job.json"]),
        (["job.toml", "--out", "o", "--envs", "0"], ["--envs: got 0", ">= 1"]),
        (["job.toml", "--out", "o", "--workers", "0"], ["--workers: got 0", ">= 1"]),
        (["job.toml", "--out", "o", "--gpus", "0.5"], ["--gpus: got 0.5", "--ray"]),
        (["job.toml", "--out", "o", "--gpus", "-1", "--ray", "auto"], ["--gpus: got -1", ">= 0"]),
        (["job.toml", "--out", "o", "--shards", "2-3"], ["--shards: got '2-3'", "0 to 2"]),
        (["job.toml", "--out", "o", "--shards", "1,x"], ["--shards: got '1,x'", "0-99"]),
        (["verify", "o", "--rerun", "-1"], ["--rerun: got -1", ">= 0"]),
        (["status", "o"], ["has no job.json"]),
        (["collect", "o", "--to", "p"], ["--to: got 'p'", "--format"]),
        (["template", "legs"], ["legs", "trajectories"]),
    ],
)
def test_bad_input_is_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], parts: list[str]
) -> None:
    assert run(*options) == 2
    out, err = capsys.readouterr()
    assert not out and not (folder / "o").exists()
    for part in parts:
        assert part in err


def test_job_that_no_worker_can_start_is_bad_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.toml").write_text(JOB.replace(":judge", ":jury"))
    assert run("job.toml", "--out", url(folder)) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("error:") == 1 and "no function 'jury'" in err and "judge" in err


def test_other_number_of_environments_must_fit_the_shards(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.toml").write_text(JOB.replace("envs_per_shard = 1", "envs_per_shard = 3"))
    assert run("job.toml", "--out", "o", "--envs", 4) == 2
    assert "multiple of envs_per_shard" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3", [0, 1, 2, 3]), ("3,7", [3, 7]), ("9", [9]), ("5-5, 0-1", [5, 0, 1])]
)
def test_ranges_of_shards(text: str, numbers: list[int]) -> None:
    assert generate.shards_of(text, 10) == numbers


@pytest.mark.parametrize(("envs", "shards"), [(64, 8), (60, 10), (7, 1), (13, 13), (1, 1)])
def test_bundled_job_of_any_number_of_environments(envs: int, shards: int) -> None:
    """Shards have the largest divisor of `envs` up to 8 environments."""
    assert generate.Generate("demo", "o", envs=envs).given().num_shards == shards


ROWS: dict[str, dict[str, int]] = {
    "demo": {"encoders": 8, "feet": 21, "clearance": 5, "lidar": 1, "head": 1},
    "arm": {"camera": 1, "encoders": 21, "wrist": 21, "skin": 5},
    "trajectories": {"imu": 9, "lidar": 1},
}
"""Samples of an episode of 40 ms by their rates, with one at its start; difference quotients start with the second."""


@pytest.mark.parametrize("name", generate.TEMPLATES)
def test_bundled_jobs_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("template", name) == 0
    text = capsys.readouterr().out
    job, envs = sn.Job.from_toml(text), 2
    assert job.num_shards > 1 and all("#" in line for line in text.split("\n\n")[0].splitlines())
    short = re.sub(r"(?m)^episode_seconds = [\d.]+", "episode_seconds = 0.04", text)
    monkeypatch.setattr(generate, "template", lambda name: short)
    assert run(name, "--out", url(tmp_path), "--envs", envs) == 0
    shown = capsys.readouterr().out
    found = {sensor: int(rows) for sensor, rows in re.findall(r"(?m)^ (\w+) +(\d+) +[\d.]+ \w*B", shown)}
    assert {sensor: found[sensor] for sensor in ROWS[name]} == {
        sensor: envs * job.episodes * rows for sensor, rows in ROWS[name].items()
    }
    assert all(found.values())


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 new shards, 5 took 60 s, so that the other 15 take 180 s."""
    monkeypatch.setattr("sensorium.jobs.progress.time.monotonic", lambda: 100.0)
    now: dict[int, Any] = {1: (31, 88.0), 0: (30, 99.0)}
    state = Run("out", 25, done=10, skipped=5, failed={3: "no"}, simulated_s=90.0, working=now)
    console = Console(file=io.StringIO(), width=80)
    console.print(picture(state, 60.0, 5))
    whole, first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    for part in ("40%", "10 of 25 shards", "1.5 x real time", "0:03:00 left", "1 failed"):
        assert part in whole
    assert first.split() == "worker 0 shard 30 1 s".split() and second.split() == "worker 1 shard 31 12 s".split()


def test_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package and the job of docs/generate.md, with one short episode of two environments."""
    page = (Path(__file__).parents[2] / "docs/generate.md").read_text(encoding="utf-8")
    blocks = dict[str, list[str]]()
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        blocks.setdefault(kind, []).append(text)
    (walker,) = [text for text in blocks["python"] if "def control" in text]
    (tmp_path / "walker.py").write_text(walker)
    (tmp_path / "job.toml").write_text(re.sub(r"(?m)^episode_seconds = .*", "episode_seconds = 0.1", blocks["toml"][0]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run("job.toml", "--out", url(tmp_path), "--envs", 8) == 0
    shown = capsys.readouterr().out
    assert "16 episodes, " in shown and re.search(r"encoders +336 ", shown)  # 21 samples of each episode
