"""One data set from the shards of a job: tables, a recording, or a data set of LeRobot, written shard by shard."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.jobs.job import Job
from sensorium.jobs.manifest import receipts_of, write_manifest
from sensorium.jobs.mcap import Episode, McapRecording, about_of, episodes_of
from sensorium.jobs.parquet import ParquetRows
from sensorium.jobs.report import Progress, ranges
from sensorium.jobs.rows import TRUTH
from sensorium.jobs.shard_files import FileRows, file_rows, recording
from sensorium.jobs.store import Store
from sensorium.readings import Array, Reading, SceneDescription
from sensorium.record.export.lerobot import (
    DONE,
    NO_TASK,
    FeatureLayout,
    FeatureSource,
    Vector,
    action_of,
    fps_of,
    period_of,
    sources_of,
)
from sensorium.record.export.lerobot_files import OUTDATED, DatasetFiles
from sensorium.record.staging import staged

RECORDING = "recording.mcap"
"""Name of the collected recording."""
SOON = 1e-7
"""Tolerance of times that are equal, s."""


def collect(
    out: Any, to: Any = None, format: Literal["parquet", "mcap", "lerobot"] | None = None,
    progress: Progress | None = None, *, features: Mapping[str, Vector] | None = None, video: bool = False,
) -> list[str]:  # fmt: skip
    """Write the shards of an output that are done as one data set, or only the manifest.

    - ``"parquet"``: one file per sensor, with the rows of all shards in the order of the environments.
    - ``"mcap"``: one recording, `RECORDING`, from shards in MCAP files. The shards follow one another in time, in the
      environments of one shard. The mark ``"episode"`` at each start has the global index of environment 0.
    - ``"lerobot"``: a data set of LeRobot with an episode per environment and episode, in this order. Its frames are at
      the calls of the control, with the values that had arrived; without controls at the samples of the slowest sensor.

    Args:
        out: folder or URL of the output.
        to: folder or URL of fsspec for the data set, whose earlier files are replaced. For LeRobot a folder.
        format: format of the data set; None writes the manifest of the output if all shards are done.
        progress: called with the numbers of parts that are done, and of all.
        features: vectors of chosen values for LeRobot, of one capture each, see `write_lerobot`.
        video: write images for LeRobot as H.264 instead of PNG files.

    Returns:
        A message for everything that is missing.

    Raises:
        ArgumentError: the output holds no shard, or cannot be written in this format.
        ModelError: a file of a shard is missing or damaged.
        MissingDependencyError: a package is not installed.
    """
    store = Store(out)
    job = store.job()
    if (to is None) != (format is None):
        raise ArgumentError("to, format: got one of the two, expected both, or none to write the manifest.")
    if format not in (None, *_WRITERS):
        raise ArgumentError(f"format: got {format!r}, expected {', '.join(_WRITERS)} or None.")
    if (features or video) and format != "lerobot":
        raise ArgumentError(f'features, video: got them with format {format!r}, expected format="lerobot".')
    if windows := [name for name, each in (features or {}).items() if each.captures > 1]:
        fix = "Generate MCAP files, and export those with features of several captures."
        raise ArgumentError(f"features: got several captures for {windows[0]!r}, expected one. {fix}")
    done, first = set[int](), dict[str, Any]()
    for index, receipt in receipts_of(store, store.key(), range(job.num_shards)):
        done.add(index)
        first = first or receipt
    notes = []
    if missing := ranges(index for index in range(job.num_shards) if index not in done):
        notes.append(f"missing are the shards {missing}, which are not done")
    if format is None:
        write_manifest(job, store)
        return notes
    if not done:
        raise ArgumentError(f"out: {store.url!r} has no shard that is done. Generate the job first.")
    target = Store(to)
    if target.url == store.url:
        raise ArgumentError(f"to: got the output itself, {store.url!r}. Give another folder.")
    write = _WRITERS[format]
    if format == "lerobot":
        write = partial(write, layout=FeatureLayout(features, video=video))
    return notes + write(job, store, target, sorted(done), first, progress or (lambda done, total: None))


def _write_parquet(
    job: Job, store: Store, target: Store, shards: list[int], first: Mapping[str, Any], progress: Progress
) -> list[str]:
    total, done = len(shards) * len(first["files"]), 0
    for name in first["files"]:
        stem = name.rpartition(".")[0]
        with target.create(target.path(f"{stem}.parquet")) as opened, ExitStack() as stack:
            writer: ParquetRows | None = None
            for index in shards:
                with file_rows(store, index, name) as file:
                    if writer is None:
                        writer = ParquetRows(opened, file.about)
                        stack.callback(writer.abort)
                    for block in file.blocks:
                        writer.write(block)
                done += 1
                progress(done, total)
            assert writer is not None
            writer.close()
    return []


# MCAP -----------------------------------------------------------------------------------------------------------------


def _write_mcap(
    job: Job, store: Store, target: Store, shards: list[int], first: Mapping[str, Any], progress: Progress
) -> list[str]:
    if job.format != "mcap":
        raise ArgumentError(
            'format: got "mcap" for shards in Parquet files, whose rows are no readings. Generate the job with '
            'format="mcap", or collect "parquet" or "lerobot".'
        )
    whole: McapRecording | None = None
    with target.create(target.path(RECORDING)) as opened, ExitStack() as closing:
        for place, index in enumerate(shards):
            with ExitStack() as stack:
                replays = [
                    (about.get("sensor") or about["log"], stack.enter_context(recording(store, index, name)))
                    for name, about in first["files"].items()
                ]
                abouts = [about_of(replay) for _, replay in replays]
                scene: SceneDescription = abouts[0].scene
                if whole is None:
                    sensors = {name: each for about in abouts for name, each in about.scene.sensors.items()}
                    actuators = [name for about in abouts for name in about.actuators]
                    about = replace(abouts[0], scene=replace(scene, sensors=sensors), truth=job.truth)
                    whole = McapRecording(opened, replace(about, actuators=actuators))
                    closing.callback(whole.abort)
                ticks = place * round(first["simulated_s"] / first["num_envs"] / scene.dt)
                streams = [episodes_of(replay, name) for name, replay in replays]
                current: Episode | None = None
                for episode, reading in heapq.merge(*streams, key=lambda each: (each[0].start, each[1].tick)):
                    if episode != current:
                        current = episode
                        whole.mark(replace(episode, start=episode.start + ticks))
                    whole.add([_later(reading, ticks, scene.dt)])
            progress(place + 1, len(shards))
        assert whole is not None
        whole.close()
    return []


def _later(reading: Reading, ticks: int, dt: float) -> Reading:
    """Return a reading moved by a number of ticks."""
    about = {name: reading.meta[name] for name in ("valid", "is_new", "frame")}
    about |= {name: reading.meta[name] + ticks for name in ("capture_tick", "truth_tick")}
    about["stamp"] = reading.stamp + ticks * dt
    return replace(reading, tick=reading.tick + ticks, time=(reading.tick + ticks) * dt, _meta=about)


# LeRobot --------------------------------------------------------------------------------------------------------------


class _Rows:
    """Measured rows of one file of a shard in memory, by environment and episode."""

    def __init__(self, shard: int, file: FileRows) -> None:
        self.specs, self._names, self._shard = file.about.specs, file.about.names, shard
        fields = [
            each for each in file.about.fields if not each.name.startswith(TRUTH) and each.name not in file.about.ragged
        ]
        parts = [{each.name: np.zeros((0, *each.shape), each.dtype) for each in fields}]
        parts += [{each.name: block.columns[each.name].values for each in fields} for block in file.blocks]
        self.columns: dict[str, Array] = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
        order = np.lexsort([self.columns[name] for name in ("arrival", "episode", "env")])
        keys = np.stack([self.columns[name][order] for name in ("env", "episode")], axis=1)
        first = np.flatnonzero((np.diff(keys, axis=0, prepend=-1) != 0).any(axis=1))
        starts = [(int(env), int(episode)) for env, episode in keys[first]]
        self.rows = dict(zip(starts, np.split(order, first[1:]), strict=False))
        """Global environment and episode -> its rows, in the order of arrival."""

    def at(self, episode: tuple[int, int], times: Array) -> Array:
        """Return the row of the newest value at some times of an episode, s; -1 before the first one."""
        rows = self.rows.get(episode, np.zeros(0, np.int64))
        return np.append(rows, -1)[np.searchsorted(self.columns["arrival"][rows], times + SOON, "right") - 1]

    def reading(self, name: str, rows: Array) -> Reading:
        """Return rows as a reading of several captures of one environment; shard and row identify a capture."""
        values = {spec.name: self.columns[self._names[spec.name]][rows] for spec in self.specs if not spec.is_ragged}
        captures = {"capture_tick": rows, "frame": np.full(len(rows), self._shard)}
        return Reading(name, "", self.specs, np.zeros(len(rows), np.int64), 0, 0.0, values, {}, captures)

    @property
    def period(self) -> float:
        """Period of the captures in an episode, s; 0 with less than two."""
        ticks, times = self.columns["tick"], self.columns["time"]
        last = int(ticks.argmax()) if len(ticks) else 0
        if not len(ticks) or not ticks[last]:
            return 0.0
        dt = float(times[last] / ticks[last])
        rows = self.rows[int(self.columns["env"][last]), int(self.columns["episode"][last])]
        return period_of(ticks[rows].tolist(), dt) * dt


class _Dataset:
    """Open data set of LeRobot.

    Args:
        root: an empty folder.
        duration: duration of the episodes, s.
        layout: options of the features.
    """

    def __init__(self, root: Path, duration: float, layout: FeatureLayout) -> None:
        self._root, self._duration, self._layout = root, duration, layout
        self._files: DatasetFiles | None = None
        self._times: Array = np.zeros(0)
        self._sources: list[FeatureSource] = []
        self.notes: list[str] = []
        self._short = 0

    def add(self, tables: Mapping[str, _Rows], controls: _Rows | None) -> None:
        """Add the episodes of a shard."""
        if self._files is None:
            self._start(tables, controls)
        seen = {name: each for name, each in tables.items() if any(not spec.is_ragged for spec in each.specs)}
        for episode in sorted({key for each in tables.values() for key in each.rows}):
            self._add(episode, seen, controls)

    def _start(self, tables: Mapping[str, _Rows], controls: _Rows | None) -> None:
        periods = [each.period for each in ([controls] if controls is not None else tables.values())]
        period = max(periods) or self._duration
        self._times = np.arange(0.0, self._duration - SOON, period)
        self._files = DatasetFiles(self._root, fps_of(1.0 / period))
        self._sources, self.notes = sources_of({name: each.specs for name, each in tables.items()}, self._layout)
        if controls is None:
            self.notes.append("the action: the engine has no controls")

    def _add(self, episode: tuple[int, int], tables: Mapping[str, _Rows], controls: _Rows | None) -> None:
        rows = {name: each.at(episode, self._times) for name, each in tables.items()}
        begin = max(int((each < 0).sum()) for each in rows.values())
        count = len(self._times) - begin
        if not count:
            self._short += 1
            return
        newest = {name: each.reading(name, rows[name][begin:]) for name, each in tables.items()}
        assert self._files is not None
        columns, features = dict[str, Any](), {each.feature.name: each.feature for each in self._sources}
        for source in self._sources:
            columns[source.feature.name] = values = source.values(newest, np.arange(count))
            if source.feature.dtype == "video":
                columns[source.feature.name] = images = self._files.column(source.feature)
                for pixels in values:
                    images.append(pixels)
        if controls is not None and "action" not in features:
            actions = controls.columns["value"][controls.at(episode, self._times)[begin:]].astype(np.float32)
            columns["action"], features["action"] = actions, action_of(actions.shape[1])
        columns["next.done"], features["next.done"] = [False] * (count - 1) + [True], DONE
        self._files.add(features, columns, [NO_TASK] * count)

    def close(self) -> None:
        """Complete the files.

        Raises:
            ArgumentError: there is no frame.
        """
        if self._files is None or not self._files.frames:
            raise ArgumentError("out: got no episode in which all sensors have values, expected at least one.")
        self._files.close()
        if self._short:
            self.notes.append(f"{self._short} episodes in which a sensor has no value")


def _write_lerobot(
    job: Job, store: Store, target: Store, shards: list[int], first: Mapping[str, Any], progress: Progress, *,
    layout: FeatureLayout,
) -> list[str]:  # fmt: skip
    if not target.is_local:
        raise ArgumentError(f"to: got {target.url!r}, expected a folder for LeRobot. Collect into one and copy it.")
    duration = first["simulated_s"] / first["num_envs"] / job.episodes
    with staged(target.root, *OUTDATED) as root:
        dataset = _Dataset(root, duration, layout)
        for place, index in enumerate(shards):
            tables, controls = dict[str, _Rows](), None
            for name, about in first["files"].items():
                with file_rows(store, index, name) as file:
                    rows = _Rows(index, file)
                if "sensor" in about:
                    tables[about["sensor"]] = rows
                else:
                    controls = rows
            dataset.add(tables, controls)
            progress(place + 1, len(shards))
        dataset.close()
    return dataset.notes


_WRITERS: dict[str, Callable[..., list[str]]] = {
    "parquet": _write_parquet, "mcap": _write_mcap, "lerobot": _write_lerobot,
}  # fmt: skip
