"""Images of episodes as H.264 in MP4 files, through PyAV."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.errors import MissingDependencyError
from sensorium.readings import Array

OPTIONS = {"qp": "25", "preset": "fast", "tune": "psnr", "g": "10", "bf": "0"}
"""Options of the encoder. The quality is that of constant quantisation, since other modes depend on the rate. A key
frame every 10 frames keeps random access fast. Without B frames, packets are in the order of time, so that those of one
episode follow those of another."""
PIXELS = "yuv444p"
"""Format of the pixels. Colours at half the resolution lose more than the quantisation does."""
BT601, LIMITED = 5, 1
"""Colour matrix and range of the encoded values, by which a player that knows neither would guess from the size."""
FILE_BYTES = 200 * 2**20
"""Size at which a file is closed, bytes."""
FILE_SECONDS = 500.0
"""Duration at which a file is closed, s: readers compare times as float32, whose step is then below their 0.1 ms."""
MAX_DENOMINATOR = 10_000
"""Maximum denominator of a rate, whose error is then below 1e-8 Hz."""
SAMPLED_IMAGES, SAMPLED_PIXELS = 100, 150
"""Maximum number of images of an episode, and about the pixels per row of an image, that enter its statistics."""


def _av() -> Any:
    try:
        return import_module("av")
    except ImportError:
        raise MissingDependencyError(
            "videos need PyAV, which is not installed: pip install 'sensorium[lerobot]'."
        ) from None


def video_info(height: int, width: int, fps: float) -> dict[str, Any]:
    """Return the description of a video in ``info.json``."""
    about = {
        "height": height, "width": width, "codec": "h264", "pix_fmt": PIXELS, "fps": int(fps),
        "channels": 3, "g": int(OPTIONS["g"]), "preset": OPTIONS["preset"], "video_backend": "pyav",
        "extra_options": {"qp": int(OPTIONS["qp"]), "bf": int(OPTIONS["bf"]), "tune": OPTIONS["tune"]},
    }  # fmt: skip
    return {f"video.{name}": value for name, value in about.items()} | {"has_audio": False, "is_depth_map": False}


def _configured(codec: Any, height: int, width: int) -> Any:
    codec.width, codec.height, codec.pix_fmt = width, height, PIXELS
    codec.colorspace, codec.color_range = BT601, LIMITED
    codec.thread_count = 1  # the bits depend on the number of threads
    return codec


class VideoEpisode:
    """Encoded images of one episode.

    Args:
        height: rows of an image.
        width: columns of an image.
        fps: images per second.

    Attributes:
        samples: some pixels of some of its images, evenly spaced, uint8 `[row, column, 3]`.

    Raises:
        MissingDependencyError: PyAV is not installed.
    """

    def __init__(self, height: int, width: int, fps: float) -> None:
        self._frame: Any = _av().VideoFrame
        self._codec = _configured(_av().CodecContext.create("libx264", "w"), height, width)
        self._codec.options = OPTIONS
        self._codec.framerate = Fraction(fps).limit_denominator(MAX_DENOMINATOR)
        self._codec.time_base = 1 / self._codec.framerate
        self._codec.flags |= _av().codec.context.Flags.global_header  # MP4 keeps the parameters outside the packets
        self._packets: list[Any] = []
        self._count, self._every = 0, 1
        self.samples: list[Array] = []

    def __len__(self) -> int:
        return self._count

    def append(self, pixels: Array) -> None:
        """Add an image, uint8 `[height, width, channel]` with 1, 3 or 4 channels; a fourth one is omitted."""
        rgb = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
        if self._count % self._every == 0:
            step = max(1, max(rgb.shape[:2]) // SAMPLED_PIXELS)
            self.samples.append(rgb[::step, ::step].copy())
            if len(self.samples) > SAMPLED_IMAGES:
                self.samples, self._every = self.samples[::2], 2 * self._every
        frame = self._frame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
        frame.pts = self._count
        self._packets += self._codec.encode(frame)
        self._count += 1

    def packets(self) -> list[Any]:
        """Return its packets; no image can be added afterwards."""
        self._packets += self._codec.encode(None)
        return self._packets


class VideoFiles:
    """Video files of one feature, with one episode after the other.

    Args:
        root: folder of the feature; created with the first file.
        path: path of a file in it, by `chunk_index` and `file_index`.
        chunk: number of files of a folder.
        height: rows of an image.
        width: columns of an image.
        fps: images per second.
    """

    def __init__(self, root: Path, path: str, chunk: int, height: int, width: int, fps: float) -> None:
        self._root, self._path, self._chunk, self._size = root, path, chunk, (height, width)
        self._fps = Fraction(fps).limit_denominator(MAX_DENOMINATOR)
        self._file, self._frames, self._bytes = -1, 0, 0
        self._container: Any = None

    def add(self, episode: VideoEpisode) -> dict[str, Any]:
        """Add an episode and return its place: indices of the file, and times of its start and end in it, s."""
        if self._container is None or self._bytes >= FILE_BYTES or self._frames >= FILE_SECONDS * self._fps:
            self._open()
        first = self._frames
        for packet in episode.packets():
            packet.stream = self._stream
            packet.pts += first
            packet.dts = packet.pts
            packet.duration = 1
            self._bytes += packet.size
            self._container.mux(packet)
        self._frames += len(episode)
        times = {"from_timestamp": float(first / self._fps), "to_timestamp": float(self._frames / self._fps)}
        return {**self._indices, **times}

    def _open(self) -> None:
        self.close()
        self._file, self._frames, self._bytes = self._file + 1, 0, 0
        self._indices = {"chunk_index": self._file // self._chunk, "file_index": self._file % self._chunk}
        path = self._root / self._path.format(**self._indices)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._container = _av().open(str(path), "w", format="mp4")
        self._stream = self._container.add_stream("libx264", rate=self._fps, options=OPTIONS)
        _configured(self._stream.codec_context, *self._size)
        self._container.start_encoding()

    def close(self) -> None:
        """Complete the last file."""
        if self._container is not None:
            self._container.close()
