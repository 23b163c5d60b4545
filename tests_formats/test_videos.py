"""PyAV decodes the videos of an exported flight through the hall."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import sensorium as sn
from sensorium.cli import main
from sensorium.demo import hall

SIZES = {"small": (160, 120), "large": (320, 240)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the data sets `png` and `video` of 4 s of the drone's flight, at 10 Hz."""
    root = tmp_path_factory.mktemp("flight")
    engine = sn.TrajectoryEngine(hall.drone(), world=hall.shapes(), lighting=hall.lighting(), dt=0.01)
    cameras = [
        sn.CameraCfg(name=name, body="body", width=width, height=height, data_types=("rgb",), rate_hz=10.0)
        for name, (width, height) in SIZES.items()
    ]
    scene = sn.Scene(engine, cameras)
    with scene.record(root / "run.mcap"):
        for _ in range(40):
            scene.step(substeps=10)
    for name, options in (("png", []), ("video", ["--video"])):
        run, to = str(root / "run.mcap"), str(root / name)
        assert main(["export", run, "--to", to, "--format", "lerobot", *options]) == 0
    return root


@pytest.mark.parametrize("camera", SIZES)
def test_quality_and_bytes_of_a_flight(exported: Path, camera: str) -> None:
    """At most a tenth of the bytes of PNG, at 35 dB or more, and every image at 34 dB or more."""
    key = f"observation.images.{camera}"
    table = pq.read_table(exported / "png/data/chunk-000/file-000.parquet", columns=[key])
    images = [image["bytes"] for image in table[key].to_pylist()]
    path = exported / "video/videos" / key / "chunk-000/file-000.mp4"
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        decoded = [frame.to_ndarray(format="rgb24") for frame in video.decode(stream)]
        assert (stream.codec_context.colorspace, stream.codec_context.color_range) == (5, 1)  # BT.601, limited
    assert len(images) == len(decoded) == 40 and decoded[0].shape == (*SIZES[camera][::-1], 3)
    errors = [
        np.mean((np.asarray(Image.open(io.BytesIO(image)), np.float64) - pixels) ** 2) / 255.0**2
        for image, pixels in zip(images, decoded, strict=True)
    ]
    assert np.mean(errors) <= 10**-3.5 and max(errors) <= 10**-3.4
    assert path.stat().st_size <= 0.1 * sum(map(len, images))
