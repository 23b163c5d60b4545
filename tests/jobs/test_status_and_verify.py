"""An output reports what it holds, and finds damaged files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_collect import EPISODES, SENSORS, job

import sensorium as sn
from sensorium.errors import ArgumentError
from sensorium.jobs.collect import collect
from sensorium.jobs.report import ranges, status, verify
from sensorium.jobs.store import RECEIPT

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("mcap")
pytest.importorskip("fsspec")


def middle_of_values(file: Path) -> int:
    """A byte within the values of a file."""
    if file.suffix == ".mcap":
        return file.stat().st_size // 2
    group = parquet.read_metadata(file).row_group(0)
    largest = max((group.column(k) for k in range(group.num_columns)), key=lambda each: each.total_compressed_size)
    return int(largest.data_page_offset + largest.total_compressed_size // 2)


@pytest.mark.parametrize("kind", ["parquet", "mcap"])
def test_damaged_files_are_found(tmp_path: Path, kind: str) -> None:
    whole, out = job(tmp_path, format=kind, rig=(SENSORS[0], SENSORS[2])), tmp_path / "out"
    for index in range(2):
        sn.run_shard(whole, index, out)
    steps: list[tuple[int, int]] = []
    assert verify(out, rerun=1, progress=lambda done, total: steps.append((done, total))) == []
    assert steps == [(done, 7) for done in range(1, 8)]
    for name in ("robot%2Fimu", "eye", "log/control"):
        file = out / f"shard-000001/{name}.{kind}"
        intact = file.read_bytes()
        place = middle_of_values(file)
        file.write_bytes(intact[:place] + bytes([intact[place] ^ 0xFF]) + intact[place + 1 :])
        (found,) = verify(out)
        assert found.startswith(f"shard 1: {name}.{kind} ")
        file.unlink()
        (found,) = verify(out)
        assert "cannot be read" in found
        shutil.copyfile(out / f"shard-000000/{name}.{kind}", file)
        (found,) = verify(out)
        assert found == f"shard 1: {name}.{kind} has other rows than its receipt"
        file.write_bytes(intact)
    receipt = out / f"shard-000000/{RECEIPT}"
    changed = json.loads(receipt.read_text())
    changed["files"][f"eye.{kind}"]["checksum"] = "0"
    receipt.write_text(json.dumps(changed))
    assert verify(out, rerun=2) == [
        f"shard 0: eye.{kind} has other rows than its receipt",
        f"shard 0: eye.{kind} differs from the same shard generated again",
    ]
    (tmp_path / "hopper.xml").write_text((tmp_path / "hopper.xml").read_text().replace('gear="3"', 'gear="4"'))
    assert len(verify(out)) == 1 and collect(out) == []  # need nothing but the output
    with pytest.raises(ArgumentError, match=r"rerun: .* was generated with other values of files"):
        verify(out, rerun=1)


def test_status_sums_the_receipts(tmp_path: Path) -> None:
    """As of a large job of which some shards are missing; the receipts are those of one shard."""
    shards = 600
    whole = job(tmp_path, rig=SENSORS[:1], envs=2 * shards, control="zero")
    receipt = sn.run_shard(whole, 0, tmp_path / "out")
    (tmp_path / "out/shard-000001").mkdir()  # being generated
    for index in range(4, shards):
        folder = tmp_path / f"out/shard-{index:06d}"
        folder.mkdir()
        (folder / RECEIPT).write_text(json.dumps({**receipt, "shard": index, "key": whole.shard(index).key}))
    found, done = status(tmp_path / "out"), shards - 3
    assert (found.total, found.done, found.missing) == (shards, done, "1-3")
    files = {about.get("sensor", "log/control"): about for about in receipt["files"].values()}
    assert found.sensors == {name: (done * each["rows"], done * each["bytes"]) for name, each in files.items()}
    assert (found.episodes, found.dropped) == (done * 2 * EPISODES, 0)
    assert found.simulated_s == pytest.approx(done * 2 * EPISODES * 0.15)
    assert found.job == whole and found.wall_s == pytest.approx(done * receipt["wall_s"])


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 7, 9, 10], "0-3, 7, 9-10")])
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_shards_of_another_job_are_refused(tmp_path: Path) -> None:
    for seed in (1, 2):
        sn.run_shard(job(tmp_path, rig=SENSORS[:1], seed=seed), 0, tmp_path / f"{seed}")
    shutil.copytree(tmp_path / "1/shard-000000", tmp_path / "2/shard-000001")
    for call in (status, verify, collect):
        with pytest.raises(ArgumentError, match="holds shard 1 of another job"):
            call(tmp_path / "2")


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    for call in (status, verify):
        with pytest.raises(ArgumentError, match="has no job"):
            call(tmp_path)
