"""Every kind of field gives a picture: lines, events, scans, images, colours, clouds, skins and matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorium.errors import UnknownNameError
from sensorium.record import Recording, SensorRecording
from sensorium.view.fields import every_field, plot_fields

pytest.importorskip("matplotlib")

ROWS = 40


def field(axes: Sequence[str], shape: Sequence[int], dtype: str = "float32", **more: Any) -> dict[str, Any]:
    about = {"name": "value", "axes": ["env", *axes], "shape": list(shape), "dtype": dtype, "unit": "m/s^2"}
    return {**about, "kind": "vector", "role": "scalar", **more}


def recorded(spec: dict[str, Any], rows: int = ROWS, **info: Any) -> Recording:
    """Return a recording of one field in the environments 0 and 5, at 100 Hz, that arrives after 20 ms."""
    random, ticks = np.random.default_rng(0), np.arange(rows)
    time, late = ticks * 0.01, (np.maximum(ticks - 2, 0) * 0.01)[:, None] + np.zeros((1, 2))
    shape, offsets = (rows, 2, *spec["shape"]), None
    if spec["axes"][1:2] == ["event"]:
        offsets = np.arange(2 * rows).reshape(rows, 2) * 3
        offsets = np.concatenate([offsets, offsets[:, -1:] + 3], axis=1)
        shape = (int(offsets[-1, -1]), *spec["shape"][1:])
    truth = (10.0 * random.normal(size=shape)).astype(spec["dtype"])
    measured = (truth + (random.normal(size=shape) if truth.dtype.kind == "f" else 0)).astype(spec["dtype"])
    valid = np.broadcast_to((time >= 0.02)[:, None], (rows, 2)).copy()
    about = {"kind": "thing", "rate_hz": 100.0, "fields": [spec], "cfg": {}, **info}
    both = time[:, None] + np.zeros((1, 2))
    sensor = SensorRecording("s", about, np.array([0, 5]), time, late, both, valid, {"value": measured},
                             {"value": truth}, both, offsets)  # fmt: skip
    return Recording({"dt": 0.01, "sensors": {"s": about}}, {"s": sensor})


def drawn(recording: Recording, path: Path, **options: Any) -> str:
    plot_fields(recording, [("s", "value")], path, env=5, **options)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (field([], []), ["measured", "true", "error", "not valid"]),
        (field(["mount", "xyz"], [2, 3]), ["mount 1 z", "error"]),
        (field(["joint"], [3]), ["knee_2"]),
        (field([], [], "bool", kind="flag"), ["measured"]),
        (field(["xyz"], [3], "int32", kind="id"), ["measured"]),
        (field(["wxyz"], [4], kind="rotation"), ["w", "z"]),
        (field(["event", "xyz"], [8, 3]), ["114 events"]),
        (field(["event"], [8], "int64", kind="id"), ["114 events"]),
        (field(["row", "column"], [6, 6], kind="derived"), ["element", "error"]),
        (field(["joint"], [40], "bool", kind="flag"), ["element", "no error"]),
        (field(["ray"], [30], role="range"), ["value [m/s²], measured", "ray"]),
        (field(["height", "width", "channel"], [8, 12, 1], role="image"), ["measured, t = 0.37 s"]),
        (field(["ray", "xyz"], [60, 3], role="point", frame="sensor"), ["from above (sensor frame), t = 0.37 s"]),
    ],
    ids=lambda value: "-".join(map(str, (*value["axes"][1:], value["dtype"]))) if isinstance(value, dict) else "",
)
def test_every_kind_of_field_is_drawn(spec: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    names = {"joint_names": [f"knee_{k}" for k in range(spec["shape"][0])]} if spec["axes"][1:] == ["joint"] else {}
    text = drawn(recorded(spec, constants=names), tmp_path / "new/x.svg")
    for part in expected:
        assert part in text, part
    assert "env 5" in text


def test_images_and_clouds_at_a_time(tmp_path: Path) -> None:
    """The newest one that had arrived at that time."""
    image = field(["height", "width", "channel"], [8, 12, 1], role="image")
    assert "t = 0.08 s" in drawn(recorded(image), tmp_path / "x.svg", at=0.105)


def test_gaps_and_losses_are_marked(tmp_path: Path) -> None:
    """A legend entry for each kind of mark, and none without one."""
    recording = recorded(field([], []))
    sensor = recording["s"]
    text = drawn(recording, tmp_path / "x.svg")
    assert "<!-- gap -->" not in text and "<!-- lost -->" not in text
    sensor.truth_time[10:20] = sensor.truth_time[9]
    text = drawn(recording, tmp_path / "x.svg")
    assert "<!-- gap -->" in text
    recording = recorded(field([], []))
    recording["s"].capture_time[20] = recording["s"].capture_time[19]
    text = drawn(recording, tmp_path / "x.svg")
    assert "<!-- lost -->" in text and "<!-- gap -->" not in text


def test_equal_values_have_no_error_panel(tmp_path: Path) -> None:
    recording = recorded(field([], []))
    recording["s"].truth["value"][:-2] = recording["s"].measured["value"][2:]
    assert "capture time" not in drawn(recording, tmp_path / "x.svg")


@pytest.mark.parametrize("spec", [field(["xyz"], [3]), field(["ray"], [30], role="range"), field(["event"], [8])])
def test_a_recording_without_truth_is_drawn(spec: dict[str, Any], tmp_path: Path) -> None:
    recording = recorded(spec)
    sensor = replace(recording["s"], truth={})
    text = drawn(Recording(recording.description, {"s": sensor}), tmp_path / "x.svg")
    assert "measured" in text and "error +" not in text


def test_several_fields_are_stacked(tmp_path: Path) -> None:
    one, two = recorded(field([], [])), recorded(field(["ray"], [30], role="range"))
    both = Recording(one.description, {"a": one["s"], "b": two["s"]})
    assert every_field(both) == [("a", "value"), ("b", "value")]
    path = plot_fields(both, every_field(both), tmp_path / "x.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UnknownNameError, match=r"recorded env of 's' '3'\. Known: 0, 5"):
        plot_fields(both, every_field(both), tmp_path / "y.png", env=3)


def test_long_lines_keep_their_extremes(tmp_path: Path) -> None:
    """An outlier among 30,000 noisy values is in the picture, which has far fewer points."""
    recording = recorded(field([], []), 30_000)
    recording["s"].truth["value"][12_345, 1] = 500.0
    paths = re.findall(r' d="([^"]+)"', drawn(recording, tmp_path / "x.svg"))
    points = [np.array(re.findall(r"[ML] (\S+) (\S+)", path), float) for path in paths if path.count("L") > 1000]
    assert len(points) == 3 and max(map(len, points)) < 15_000  # measured, true, and the error
    highest = [np.median(each[:, 1]) - each[:, 1].min() for each in points]
    noise = [np.ptp(np.percentile(each[:, 1], (1.0, 99.0))) for each in points]
    assert highest[1] > 3.0 * noise[1] and highest[0] < noise[0]  # that of the truth
