"""Files of a LeRobot data set, layout v3.0.

data/chunk-000/file-000.parquet           frames, one episode after the other
videos/FEATURE/chunk-000/file-000.mp4     images, one episode after the other
meta/episodes/chunk-000/file-000.parquet  length, tasks, place and statistics of each episode
meta/tasks.parquet                        texts of the tasks
meta/info.json                            features, counts and the rate
meta/stats.json                           statistics of all frames
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.errors import MissingDependencyError
from sensorium.readings import Array
from sensorium.record.export import video
from sensorium.record.export.video import SAMPLED_IMAGES, SAMPLED_PIXELS, VideoEpisode, VideoFiles, video_info

FILE_BYTES = 100 * 2**20
"""Size at which a file of frames is closed, bytes."""
EPISODES = 200
"""Number of episodes whose descriptions are kept in memory."""
CHUNK_FILES = 1000
"""Number of files of a folder."""
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
MAX_COLUMNS = 1024
"""Most elements of a field whose statistics are computed per element."""
SAMPLED_ROWS = 20_000
"""About the maximum number of values from which quantiles are estimated."""
OUTDATED = (
    "data/chunk-*/file-*.parquet", "meta/episodes/chunk-*/file-*.parquet", "videos/*/chunk-*/file-*.mp4"
)  # fmt: skip
"""Files of an earlier data set; readers take all files of these folders."""
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"

Column = Sequence[Any] | Array
"""Value of each frame."""
OpenColumn = list[Any] | VideoEpisode
"""Values of the frames of an open episode."""
Stats = dict[str, Array]
"""Statistic -> value, float64 `[column]`, for images `[channel, 1, 1]`; `count` is the number of frames, `[1]`."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the frames.

    Attributes:
        name: its name, without slashes.
        dtype: NumPy name of the element type, ``"image"`` for PNG files, or ``"video"``.
        shape: its shape; (1,) for numbers.
        names: name of each element, or of each axis of an image.
        info: further description of images.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: list[str] | None = None
    info: dict[str, Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        return self.shape[0], self.shape[1]

    def to_dict(self, fps: float) -> dict[str, Any]:
        """Return the description in ``info.json``, of a video with its rate."""
        info = video_info(*self.size, fps) if self.dtype == "video" else self.info
        about = {"dtype": self.dtype, "shape": list(self.shape), "names": self.names}
        return about if info is None else about | {"info": info}


DEFAULTS = {
    "timestamp": Feature("timestamp", "float32", (1,)),
    **{name: Feature(name, "int64", (1,)) for name in ("frame_index", "episode_index", "index", "task_index")},
}
"""Columns that every data set has."""


class DatasetFiles:
    """Open data set.

    Args:
        root: an empty folder.
        fps: frames per second.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, root: Path, fps: float) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            self._parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise MissingDependencyError(
                "data sets of LeRobot need pyarrow, which is not installed: pip install 'sensorium[parquet]'."
            ) from None
        self._root, self._fps = root, fps
        self.frames = 0
        """Number of frames so far."""
        self._features: dict[str, Feature] = {}
        self._videos: dict[str, VideoFiles] = {}
        self._tasks: dict[str, int] = {}
        self._count = 0
        self._episodes: list[dict[str, Any]] = []
        """Number of episodes, and descriptions of those that are not written."""
        self._episodes_writer: Any = None
        self._stats: dict[str, Stats] = {}
        self._file = 0
        self._writer: Any = None
        self._written = 0

    def column(self, feature: Feature) -> OpenColumn:
        """Return an empty column, to which the values of an episode are appended.

        Raises:
            MissingDependencyError: PyAV is not installed, which videos need.
        """
        if feature.dtype != "video":
            return []
        if feature.name not in self._videos:
            files = self._root / "videos" / feature.name, f"{_FILE}.mp4", CHUNK_FILES
            self._videos[feature.name] = VideoFiles(*files, *feature.size, self._fps)
        return VideoEpisode(*feature.size, self._fps)

    def add(
        self, features: Mapping[str, Feature], columns: Mapping[str, Column | OpenColumn], tasks: Sequence[str]
    ) -> None:
        """Add an episode.

        Args:
            features: its features; the same for all episodes.
            columns: feature -> value of each frame; of videos, a column made by `column`.
            tasks: task of each frame.
        """
        count, number = len(tasks), self._count
        self._features = {**features, **DEFAULTS}
        frame = np.arange(count)
        numbers = [self._tasks.setdefault(task, len(self._tasks)) for task in tasks]
        whole: dict[str, Any] = {
            **columns,
            "timestamp": (frame / self._fps).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.full(count, number),
            "index": self.frames + frame,
            "task_index": np.array(numbers),
        }
        arrays, place = dict[str, Any](), dict[str, Any]()
        for name, feature in self._features.items():
            if feature.dtype == "video":
                about = self._videos[name].add(whole[name])
                place |= {f"videos/{name}/{key}": value for key, value in about.items()}
            else:
                arrays[name] = self._array(feature, whole[name])
        self._write(self._arrow.table(arrays))
        stats = {
            name: _image_stats(whole[name]) if feature.dtype in ("image", "video") else _stats(np.asarray(whole[name]))
            for name, feature in self._features.items()
        }
        for name, each in stats.items():
            self._stats[name] = _merged(self._stats[name], each) if name in self._stats else each
        place |= {"data/chunk_index": self._file // CHUNK_FILES, "data/file_index": self._file % CHUNK_FILES}
        self._episodes.append({
            "episode_index": number,
            "tasks": list(dict.fromkeys(tasks)),
            "length": count,
            **place,
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + count,
            **{f"stats/{name}/{key}": value.tolist() for name, each in stats.items() for key, value in each.items()},
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        })  # fmt: skip
        self.frames += count
        self._count += 1
        if len(self._episodes) >= EPISODES:
            self._write_episodes()

    def _write_episodes(self) -> None:
        """Write the descriptions of episodes, which would otherwise fill the memory."""
        table, self._episodes = self._arrow.Table.from_pylist(self._episodes), []
        if self._episodes_writer is None:
            path = self._root / "meta" / "episodes" / _numbered(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._episodes_writer = self._parquet.ParquetWriter(path, table.schema)
        self._episodes_writer.write_table(table.cast(self._episodes_writer.schema))

    def _array(self, feature: Feature, values: Column) -> Any:
        """Return a column as an Arrow array."""
        pa = self._arrow
        if feature.dtype == "image":
            paths = [f"frame-{k:06d}.png" for k in range(len(values))]
            parts = [pa.array(values, pa.binary()), pa.array(paths, pa.string())]
            return pa.StructArray.from_arrays(parts, ["bytes", "path"])
        array = np.asarray(values, feature.dtype)
        found = pa.array(np.ascontiguousarray(array).reshape(-1))
        if feature.shape == (1,):
            return found
        for size in reversed(feature.shape[1:]):
            offsets = pa.array(np.arange(0, len(found) + 1, size, dtype=np.int32))
            found = pa.ListArray.from_arrays(offsets, found)
        if len(feature.shape) == 1:
            return pa.FixedSizeListArray.from_arrays(found, feature.shape[0])
        return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32) * feature.shape[0]), found)

    def _write(self, table: Any) -> None:
        """Write the frames of an episode, in a new file if the last one is full."""
        if self._writer is not None and self._written >= FILE_BYTES:
            self._writer.close()
            self._writer, self._written = None, 0
            self._file += 1
        if self._writer is None:
            path = self._root / "data" / _numbered(self._file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._parquet.ParquetWriter(path, table.schema)
        self._writer.write_table(table)
        self._written += table.nbytes

    def close(self) -> None:
        """Complete the files."""
        self._writer.close()
        for each in self._videos.values():
            each.close()
        meta = self._root / "meta"
        if self._episodes:
            self._write_episodes()
        self._episodes_writer.close()
        self._parquet.write_table(self._task_table(), meta / "tasks.parquet")
        features = {name: feature.to_dict(self._fps) for name, feature in self._features.items()}
        info = {
            "codebase_version": "v3.0",
            "robot_type": None,
            "total_episodes": self._count,
            "total_frames": self.frames,
            "total_tasks": len(self._tasks),
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": FILE_BYTES // 2**20,
            "video_files_size_in_mb": video.FILE_BYTES // 2**20,
            "fps": self._fps,
            "splits": {"train": f"0:{self._count}"},
            "data_path": f"data/{_FILE}.parquet",
            "video_path": f"videos/{{video_key}}/{_FILE}.mp4" if self._videos else None,
            "features": features,
        }
        stats = {name: {key: value.tolist() for key, value in each.items()} for name, each in self._stats.items()}
        for name, contents in (("info.json", info), ("stats.json", stats)):
            (meta / name).write_text(json.dumps(contents, indent=4) + "\n", encoding="utf-8")

    def _task_table(self) -> Any:
        """Return the tasks with their numbers, as pandas stores a table with the texts as its index."""
        column = {"field_name": None, "metadata": None}
        about = {
            "index_columns": ["__index_level_0__"],
            "column_indexes": [],
            "columns": [
                {**column, "name": "task_index", "field_name": "task_index", "pandas_type": "int64",
                 "numpy_type": "int64"},
                {**column, "name": None, "field_name": "__index_level_0__", "pandas_type": "unicode",
                 "numpy_type": "object"},
            ],
            "creator": {"library": "pyarrow", "version": self._arrow.__version__},
        }  # fmt: skip
        table = self._arrow.table({"task_index": [*self._tasks.values()], "__index_level_0__": [*self._tasks]})
        return table.replace_schema_metadata({"pandas": json.dumps(about)})


def _numbered(file: int) -> str:
    return f"{_FILE}.parquet".format(chunk_index=file // CHUNK_FILES, file_index=file % CHUNK_FILES)


# Statistics -----------------------------------------------------------------------------------------------------------


def _stats(values: Array) -> Stats:
    """Return the statistics of numbers `[frame, ...]`; infinite values are omitted.

    There is one value per element of the last axis, or a single one if that axis is long, as that of rays is.
    """
    columns = values.shape[-1] if values.ndim > 1 and values.shape[-1] <= MAX_COLUMNS else 1
    wide = values.reshape(-1, columns).astype(np.float64)
    finite = np.isfinite(wide)
    counts = np.maximum(finite.sum(axis=0), 1)
    known = wide if finite.all() else np.where(finite, wide, 0.0)
    mean = known.sum(axis=0) / counts
    spread = np.where(finite, wide - mean, 0.0)
    found = {
        "min": wide.min(axis=0, initial=np.inf, where=finite),
        "max": wide.max(axis=0, initial=-np.inf, where=finite),
        "mean": mean,
        "std": np.sqrt((spread * spread).sum(axis=0) / counts),
        "count": np.array([len(values)]),
    }
    ordered = np.sort(np.where(finite, wide, np.nan)[:: max(1, len(wide) // SAMPLED_ROWS)], axis=0)  # NaN comes last
    last = np.isfinite(ordered).sum(axis=0) - 1
    for q in QUANTILES:
        row = np.clip(np.rint(q * last), 0, None).astype(int)
        found[f"q{round(100 * q):02d}"] = np.take_along_axis(ordered, row[None], axis=0)[0]
    return {key: np.where(np.isfinite(value), value, 0.0) for key, value in found.items()} | {"count": found["count"]}


def _image_stats(images: Sequence[bytes] | VideoEpisode) -> Stats:
    """Return the statistics of images per channel, of 8 bits in [0, 1] and of depth in mm."""
    if isinstance(images, VideoEpisode):
        chosen = images.samples
    else:
        pillow: Any = import_module("PIL.Image")
        numbers = np.unique(np.linspace(0, len(images) - 1, SAMPLED_IMAGES).round().astype(int)).tolist()
        chosen = [np.atleast_3d(np.asarray(pillow.open(io.BytesIO(images[number])))) for number in numbers]
    step = max(1, max(chosen[0].shape[:2]) // SAMPLED_PIXELS)
    pixels = np.concatenate([each[::step, ::step].reshape(-1, each.shape[2]) for each in chosen])
    found = _stats(pixels / (255.0 if pixels.dtype == np.uint8 else 1.0))
    return {key: value.reshape(-1, 1, 1) for key, value in found.items()} | {"count": np.array([len(images)])}


def _merged(first: Stats, second: Stats) -> Stats:
    """Return the statistics of two parts together. Quantiles are weighted means, as in LeRobot."""
    share = second["count"] / (first["count"] + second["count"])
    found = {key: (1.0 - share) * first[key] + share * second[key] for key in first}
    spread = (1.0 - share) * share * (first["mean"] - second["mean"]) ** 2
    variance = (1.0 - share) * first["std"] ** 2 + share * second["std"] ** 2 + spread
    return found | {
        "min": np.minimum(first["min"], second["min"]),
        "max": np.maximum(first["max"], second["max"]),
        "std": np.sqrt(variance),
        "count": first["count"] + second["count"],
    }
