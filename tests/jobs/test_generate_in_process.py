"""Outputs, inputs and errors of jobs, with the worker in the process of the test."""

from __future__ import annotations

import json
import resource
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_sets import ENVS, MODEL, SHARDS, job, rows, sensors
from streaming import GaugeCfg

import sensorium as sn
from sensorium.errors import ArgumentError, ConfigError, GenerateError, SensoriumWarning
from sensorium.jobs import driver
from sensorium.jobs.rows import Block, Column
from sensorium.jobs.shard import ShardWorker
from sensorium.jobs.store import Store
from sensorium.jobs.workers import InProcess, Task

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generate in this process, also into a folder."""

    def workers(job: sn.Job, store: Store, *args: Any) -> InProcess:
        return InProcess(Task(job.to_dict(), job.key, store.url, ".", job.threads))

    monkeypatch.setattr(driver, "_workers", workers)


def small(folder: Path, **fields: Any) -> sn.Job:
    """A job with two shards of one short episode, and one sensor."""
    given = {"rig": sensors()[1:2], "envs": 2 * ENVS, "episodes": 1, "episode_seconds": 0.02,
             "control": "zero", "keep": None, "begin_episode": None, "randomise": {}}  # fmt: skip
    return job(folder, **{**given, **fields})


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let writing fail beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Rows -----------------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_one_scene(tmp_path: Path) -> None:
    """Each environment and tick has a row, whose values are those of one scene with all environments."""
    given = small(tmp_path, control="random", episode_seconds=0.3)
    out = tmp_path / "out"
    sn.generate(given, out)
    table = pq.read_table([out / f"shard-00000{shard}" / "joints.parquet" for shard in range(2)])
    read = {name: table[name].to_numpy() for name in table.column_names}
    scene = sn.Scene(sn.MujocoEngine(MODEL, num_envs=4), sensors()[1:2], seed=given.seed)
    span = np.array([-1.0, 1.0])
    for tick in range(61):
        if tick and (tick - 1) % 2 == 0:
            ctrl = span[0] + 2.0 * scene.draw(f"control/{(tick - 1) // 20}", sn.Uniform(0.0, 1.0)).double()
        if tick:
            scene.step(ctrl)
        at = read["tick"] == tick
        assert (read["env"][at] == np.arange(4)).all() and np.allclose(read["time"][at], 0.005 * tick)
        for name in ("position", "velocity"):
            (column,) = [each for each in read if each.startswith(name)]
            assert (read[column][at] == getattr(scene["joints"].data, name)[:, 0].numpy()).all()
    assert len(table) == 4 * 61


def test_masses_are_drawn_for_each_environment_and_episode(tmp_path: Path) -> None:
    """With a camera in the scene. A lighter robot is pushed further; without the draw, all episodes are equal."""
    given = small(
        tmp_path, rig=[*sensors()[1:2], sensors()[3]], control="data_sets:push", episodes=2,
        episode_seconds=0.1, randomise={"model.body_mass": sn.Uniform(0.5, 2.0)},
    )  # fmt: skip
    sn.generate(given, tmp_path / "out")
    ends = set[float]()
    for shard in range(2):
        table = pq.read_table(tmp_path / "out" / f"shard-00000{shard}" / "joints.parquet")
        (column,) = [each for each in table.column_names if each.startswith("velocity")]
        ends |= set(table[column].to_numpy()[table["tick"].to_numpy() == 20])
    assert len(ends) == 8


def test_dropped_episodes_are_counted(tmp_path: Path) -> None:
    given = small(tmp_path, control="random", keep="data_sets:swung", episodes=3, episode_seconds=0.1)
    sn.generate(given, tmp_path / "all")
    everything = small(tmp_path, control="random", episodes=3, episode_seconds=0.1)
    sn.generate(everything, tmp_path / "everything")
    manifest = [row for row in pq.read_table(tmp_path / "all/manifest.parquet").to_pylist() if row["sensor"]]
    for shard in range(2):
        kept, whole = (
            pq.read_table(tmp_path / name / f"shard-00000{shard}" / "joints.parquet") for name in ("all", "everything")
        )
        (column,) = [each for each in whole.column_names if each.startswith("truth.position")]
        last = np.flatnonzero(whole["tick"].to_numpy() == 20)
        good = {(whole["env"][i].as_py(), whole["episode"][i].as_py()) for i in last if whole[column][i].as_py() > 0.0}
        both = zip(whole["env"].to_pylist(), whole["episode"].to_pylist(), strict=True)
        assert kept.equals(whole.filter([each in good for each in both])) and 0 < len(kept) < len(whole)
        receipt = json.loads((tmp_path / "all" / f"shard-00000{shard}" / "receipt.json").read_text())
        for about in (receipt, *(each for each in manifest if each["shard"] == shard)):
            assert (about["episodes"], about["dropped"]) == (len(good), 6 - len(good))


def test_items_of_dropped_episodes() -> None:
    """Rows of three environments with 2, 0, 1 and 3 items."""
    env, counts = np.array([0, 1, 2, 0]), np.array([2, 0, 1, 3])
    block = Block({"points": Column(np.arange(6), counts), "x": Column(np.arange(4))}, env)
    kept = block.of_envs(np.array([True, True, False]))
    assert kept.columns["points"].values.tolist() == [0, 1, 3, 4, 5] and kept.columns["x"].values.tolist() == [0, 1, 3]
    assert kept.columns["points"].counts.tolist() == [2, 0, 3] and kept.env.tolist() == [0, 1, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": None, "factory": "data_sets:robot", "rig": "data_sets:rig", "control": "random"},
        {"model": None, "factory": "data_sets:flying", "rig": [sn.ImuCfg(name="imu", body="body")], "control": "hold"},
        {"model": None, "engine": "trajectory", "rig": [sn.ImuCfg(name="imu", body="body")], "control": "*.tum"},
        {"engine": "mujoco_warp", "control": "random"},
    ],
    ids=["factory", "trajectory of a factory", "set of trajectories", "mujoco_warp"],
)
def test_rows_depend_on_no_other_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    """Shard 1, alone and after shard 0; with its environments, whose rows differ from those of shard 0."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        lines = [f"{time} {number} {time**2 * number} 0 0 0 0 1" for time in (0.0, 0.5, 1.0, 1.5)]
        (tmp_path / f"{number}.tum").write_text("\n".join(lines))
    given = small(tmp_path, **fields)
    store = Store(f"memory://{tmp_path.name}")
    sn.run_shard(given, 1, tmp_path / "alone")
    sn.generate(given, store.url)
    for file in store.receipt(1)["files"]:  # type: ignore[index]
        found = [pq.read_table(store.fs.open(store.shard_path(shard, file))) for shard in (0, 1)]
        assert found[1].equals(pq.read_table(tmp_path / "alone" / "shard-000001" / file))
        assert set(found[1]["env"].to_pylist()) == {2, 3}
        values = [each.drop_columns(["env"]) for each in found]
        assert not values[0].equals(values[1])
    assert len(pq.read_table(store.fs.open(store.path("manifest.parquet")))) == 2 * len(store.receipt(1)["files"])  # type: ignore[index]


# Outputs --------------------------------------------------------------------------------------------------------------


def test_changed_job_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sn.run_shard(small(tmp_path), 0, out)
    before = rows(out)
    with pytest.raises(ArgumentError, match=r"out: .* holds the data of another job; different are job\.seed\. Give"):
        sn.generate(small(tmp_path, seed=9), out)
    (tmp_path / "hopper.xml").write_text(MODEL.replace('mass=".3"', 'mass=".4"'))
    with pytest.raises(ArgumentError, match=r"different are files\.model\. "):
        sn.generate(small(tmp_path), out)
    (tmp_path / "hopper.xml").write_text(MODEL)
    receipt = out / "shard-000000" / "receipt.json"
    receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "key": "0" * 32}))
    with pytest.raises(ArgumentError, match=r"holds shard 0 of another job\. Give another folder, or remove"):
        sn.generate(small(tmp_path), out, shards=[0])
    with pytest.raises(ArgumentError, match="holds shard 0 of another job"):
        sn.generate(small(tmp_path), out, shards=[1])  # by the manifest
    assert rows(out).items() >= before.items() and not (out / "manifest.parquet").exists()


def test_job_is_corrected_before_its_first_shard(tmp_path: Path) -> None:
    with pytest.raises(GenerateError, match="no licence"):
        sn.generate(small(tmp_path, model=None, factory="data_sets:broken"), tmp_path / "out")
    assert sn.generate(small(tmp_path), tmp_path / "out").done == 2


def test_incomplete_and_foreign_files(tmp_path: Path) -> None:
    """Files without a receipt, a receipt that ends too early, files of a killed worker, and files of the user."""
    given, out = small(tmp_path), tmp_path / "run[1] of *"
    sn.generate(given, out)
    before = rows(out)
    (out / "shard-000000" / "receipt.json").unlink()
    (out / "shard-000000" / "joints.parquet").write_bytes(b"PAR1")
    (out / "shard-000000" / "joints.parquet.77.part").write_bytes(b"PAR1")
    (out / "shard-000000" / "log" / "control.parquet.77.part").write_bytes(b"PAR1")
    receipt = out / "shard-000001" / "receipt.json"
    receipt.write_text(receipt.read_text()[:40])
    (out / "notes.txt").write_text("mine")
    (out / "shard-1").mkdir()
    with pytest.warns(SensoriumWarning, match=r"has foreign files, which stay as they are: notes\.txt, shard-1\."):
        run = sn.generate(given, out)
    assert (run.done, run.skipped) == (2, 0) and rows(out) == before
    assert (out / "notes.txt").read_text() == "mine" and (out / "shard-1").is_dir()
    assert not list(out.rglob("*.part"))
    with warnings.catch_warnings(action="ignore"):
        assert sn.generate(given, out).skipped == 2


def test_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    given, out = small(tmp_path, episode_seconds=0.5), tmp_path / "out"
    sn.run_shard(given, 0, out)
    with largest_file(2000), pytest.raises(GenerateError) as error:
        sn.generate(given, out)
    assert str(error.value).startswith(f"Shard 1: out: {str(out)!r} cannot be written: File too large. Free space")
    assert [each.name for each in out.glob("*/*")].count("receipt.json") == 1
    assert not [each for each in (out / "shard-000001").rglob("*") if each.is_file()]
    run = sn.generate(given, out)
    assert (run.done, run.skipped) == (2, 1)


@pytest.mark.parametrize("below", ["file", "file/out", "/proc/out"])
def test_output_that_cannot_be_written_is_one_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match=r"out: .* cannot be written: .*Free space, or give another folder"):
        sn.generate(small(tmp_path), tmp_path / below)
    with pytest.raises(ArgumentError, match=r"has no job\.json"):
        Store(tmp_path / below).job()


@pytest.mark.parametrize("field", ["control", "begin_episode", "keep"])
def test_error_of_a_function_is_no_error_of_the_output(tmp_path: Path, field: str) -> None:
    """A missing file of the user fails the shard, and not the run."""
    with pytest.raises(GenerateError) as error:
        sn.generate(small(tmp_path, **{field: "data_sets:missing"}), tmp_path / "out")
    first, second, _ = str(error.value).splitlines()
    assert first == "1 of 2 shards failed; the other ones are done."
    assert second.startswith(f"shard 1: Job.{field}: ") and "FileNotFoundError" in second and "data_sets.py" in second


def test_two_writers_of_a_file(tmp_path: Path) -> None:
    """Each writes its own file, and the last one that is complete stays."""
    store = Store(tmp_path)
    with store.create(f"{tmp_path}/file") as second:
        with store.create(f"{tmp_path}/file") as first:
            first.write(b"a" * 3)
            second.write(b"b" * 2)
        assert (tmp_path / "file").read_bytes() == b"aaa"
    assert (tmp_path / "file").read_bytes() == b"bb" and len(list(tmp_path.iterdir())) == 1


def test_shard_that_another_driver_completes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other driver removes the unfinished files of this one, whose worker then returns the receipt."""
    monkeypatch.chdir(tmp_path)
    given = small(tmp_path, control="data_sets:overtaken")
    Store("out").claim(given)
    worker = ShardWorker(given.to_dict(), given.key, "out", ".")
    receipt = sn.run_shard(given, 0, "other")
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    assert worker.run(0) == receipt
    (tmp_path / "receipt.json").unlink()
    assert worker.run(1)["shard"] == 1


def test_worker_that_would_write_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a worker changes its working directory
    given, out = small(tmp_path), tmp_path / "out"
    started = json.loads(json.dumps(given.origin))
    started["versions"]["numpy"] = "1.0"
    out.mkdir()
    (out / "job.json").write_text(json.dumps({"job": given.to_dict(), "origin": started}))
    with pytest.raises(
        ConfigError, match=r"another versions\.numpy., expected equal workers\. Install the same versions"
    ):
        ShardWorker(given.to_dict(), "0" * 32, str(out), str(tmp_path))
    with pytest.raises(ConfigError, match=r"working directory: got .*nowhere.*Share the folder"):
        ShardWorker(given.to_dict(), given.key, str(out), str(tmp_path / "nowhere"))


def test_ctrl_c_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, out, threads = (
        small(tmp_path, threads=torch.get_num_threads() + 1),
        tmp_path / "out",
        torch.get_num_threads(),
    )

    def press(run: driver.Run) -> None:
        if run.done == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sn.generate(given, out, progress=press)
    assert torch.get_num_threads() == threads
    assert sn.generate(given, out).done == 2 and torch.get_num_threads() == threads


# Inputs ---------------------------------------------------------------------------------------------------------------

TRAJECTORY = {"model": None, "engine": "trajectory", "rig": [sn.ImuCfg(body="body")]}


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"envs": 5}, ConfigError, r"envs_per_shard: got 5, 2, expected a multiple of .* envs_per_shard=1"),
        ({"episodes": 0}, ConfigError, r"Job\.episodes: got 0, expected a whole number >= 1"),
        ({"keep": "data_sets"}, ConfigError, r'Job\.keep: got .data_sets., expected an entry point "package'),
        ({"keep": "no_such:keep"}, ConfigError, r"Job\.keep: got .no_such., expected a package or module that can be"),
        ({"keep": "__main__:keep"}, ConfigError, r"Job\.keep: got .__main__., expected a package or module"),
        ({"keep": "data_sets:swing"}, GenerateError, r"no function .swing.. Did you mean .swung."),
        ({"keep": "data_sets:nothing"}, GenerateError, r"Job\.keep: got .float64 \[0\]., expected bool \[env\]"),
        ({"keep": "data_sets:uneven"}, GenerateError, r"Job\.keep: got .\[\[1\], \[1, 2\]\]., expected bool"),
        ({"begin_episode": "data_sets:threads"}, GenerateError, "cannot start: TypeError: .*must be a mapping"),
        ({"rig": "data_sets:nothing"}, GenerateError, r"Job\.rig: got \[\], expected a function that returns a list"),
        ({"model": None, "factory": "data_sets:broken"}, GenerateError, r"Job\.factory: .*OSError: no licence \(/"),
        ({"model": None, "factory": "data_sets:lonely"}, GenerateError, r"engine with 1., expected an engine with 2"),
        ({"model": None, "factory": "data_sets:nothing"}, GenerateError, r"got \[\], expected an engine that the"),
        ({"factory": "data_sets:robot"}, ConfigError, "model, factory: .*one of the two"),
        ({"model": None, "factory": "data_sets:robot", "engine": "newton"}, ConfigError, "engine, factory: .*Omit eng"),
        ({"model": None, "factory": "data_sets:robot", "device": "cuda"}, ConfigError, "device, factory: .*Omit dev"),
        ({"model": "demo", "engine": "mujoco_warp"}, ConfigError, 'expected "mujoco", which simulates the bundled'),
        ({"model": None, "rig": None, "engine": "trajectory", "control": "drone"}, ConfigError, "rig: got None"),
        ({"sensors": ["joint"]}, GenerateError, "unknown sensor 'joint'. Did you mean 'joints'"),
        ({"sensors": []}, ConfigError, r"sensors: got \[\], expected at least one name"),
        ({**TRAJECTORY, "control": "drone", "episode_seconds": 1e3}, GenerateError, "at most 72.6, the duration of"),
        ({**TRAJECTORY, "control": "no*.tum"}, sn.ModelError, "control: got 'no.*', which matches no file"),
        ({"randomise": {"joints.nois": sn.Uniform(0, 1)}}, GenerateError, "unknown knob .*Did you mean 'noise'"),
    ],
)  # fmt: skip
def test_bad_job_is_refused_before_anything_runs(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as found:
        sn.generate(small(tmp_path, **fields), tmp_path / "out")
    assert "Traceback" not in str(found.value) and not list(tmp_path.glob("out/shard*"))


@pytest.mark.parametrize("shards", [[2], [-1], ["0"], 1])
def test_shards_that_do_not_exist_are_refused(tmp_path: Path, shards: Any) -> None:
    with pytest.raises((ArgumentError, ConfigError), match=r"shards?: got .*, expected"):
        sn.generate(small(tmp_path), tmp_path / "out", shards=shards)


# Keys -----------------------------------------------------------------------------------------------------------------


def test_key_is_that_of_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal for files in other folders, tables and configs, defaults, and formats; different for other content."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first = job(folders[0])
    same = [
        job(folders[1], episode_seconds=0.1, threads=1),
        job(folders[1], rig=[{"kind": each.kind(), **each.to_dict()} for each in sensors()]),
        sn.Job.from_json(first.to_json()),
        sn.Job.from_toml(first.to_toml()),
        sn.Job.from_dict(json.loads(json.dumps(first.to_dict(), sort_keys=True))),
    ]
    assert {each.key for each in same} == {first.key}
    assert len({each.key for each in first.shards()}) == SHARDS
    for field, value in {"seed": 6, "truth": False, "episodes": 3, "sensors": ["imu"], "rig": sensors()[:3]}.items():
        assert job(folders[0], **{field: value}).key != first.key


def test_key_follows_the_sources_of_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module and a package without ``__init__.py`` in the working directory, which this process cannot import yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [each for each in __import__("sys").path if each])
    (tmp_path / "gaits").mkdir()
    for name, file in {"my_gait": "my_gait.py", "gaits.fast": "gaits/fast.py"}.items():
        keys = []
        for text in ("a = 1", "a = 2"):
            (tmp_path / file).write_text(text)
            keys.append(small(tmp_path, control=f"{name}:control").key)
        (tmp_path / file).with_name("__pycache__").mkdir(exist_ok=True)
        (tmp_path / file).parent.joinpath("__pycache__", "x.pyc.1234").touch()
        assert keys[0] != keys[1] == small(tmp_path, control=f"{name}:control").key


def test_key_follows_the_files_and_the_plugins_of_sensors(tmp_path: Path) -> None:
    table, rig = tmp_path / "scan.csv", tmp_path / "rig.toml"
    assert small(tmp_path, rig=[GaugeCfg()]).origin["sources"].keys() == {"sensorium", "streaming"}
    keys = []
    for angle in (1.0, 2.0):
        table.write_text(f"time,azimuth,elevation\n0,0,{angle}\n0.01,5,{angle}\n")
        rig.write_text(f'[[sensor]]\nkind = "lidar"\nbody = "base"\npattern = {{kind = "table", path = "{table}"}}\n')
        inline = sn.LidarCfg(body="base", pattern=sn.patterns.TablePatternCfg(path=table))
        keys.append([small(tmp_path, rig=each).key for each in (rig, [inline])])
    assert keys[0][0] != keys[1][0] and keys[0][1] != keys[1][1]
