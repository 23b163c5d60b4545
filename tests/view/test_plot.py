"""Pictures are drawn from any recording, choose what fits, and name what cannot be drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorium.errors import MissingDependencyError, UnknownNameError
from sensorium.record import Recording, SensorRecording
from sensorium.view import imu_figure, plot_recording, plottable

pytest.importorskip("matplotlib")


def field(name: str, axes: Sequence[str], shape: Sequence[int], dtype: str = "float32") -> dict[str, Any]:
    return {
        "name": name,
        "axes": ["env", *axes],
        "shape": list(shape),
        "dtype": dtype,
        "unit": "m/s^2",
        "kind": "vector",
    }


def sensor(
    name: str, fields: Sequence[dict[str, Any]], rows: int = 60, kind: str = "imu", **cfg: Any
) -> SensorRecording:
    random = np.random.default_rng(0)
    time = np.arange(rows) * 0.01
    both = time[:, None] + np.zeros((1, 2))
    data = {f["name"]: random.normal(size=(rows, 2, *f["shape"])).astype(f["dtype"]) for f in fields}
    info = {"kind": kind, "rate_hz": 100.0, "fields": list(fields), "cfg": cfg}
    return SensorRecording(name, info, np.array([0, 5]), time, both, both, np.full((rows, 2), True), data, data, both)


def recording(*sensors: SensorRecording) -> Recording:
    return Recording({"dt": 0.01, "sensors": {each.name: each.info for each in sensors}}, {s.name: s for s in sensors})


ACC = field("lin_acc_b", ["xyz"], [3])


def size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_two_imus_fit_a_page(tmp_path: Path) -> None:
    """Two IMUs of six axes give a picture of about 1400 by 900 pixels, also with every kind of delay."""
    gyro = field("ang_vel_b", ["xyz"], [3])
    a = sensor("a", [gyro, ACC], delay=0.004, jitter=0.002)
    b = sensor("b", [gyro, ACC], delay={"uniform": [0.001, 0.02]})
    path = imu_figure(recording(a, b), tmp_path / "new/imu.png", env=5)
    width, height = size(path)
    assert 1300 <= width <= 1500 and 850 <= height <= 950


@pytest.mark.parametrize(
    "fields",
    [
        [field("distance", [], [])],
        [field("pos", ["mount", "xyz"], [2, 3]), field("hit", ["mount"], [2], "bool")],
        [ACC, field("image", ["height", "width"], [8, 8])],
        [field(f"f{i}", ["xyz"], [3]) for i in range(4)],
    ],
)
def test_any_fields_are_drawn(tmp_path: Path, fields: list[dict[str, Any]]) -> None:
    """Scalars, mounts, many fields and fields that no line can show end in a picture."""
    assert size(plot_recording(recording(sensor("s", fields, kind="other")), tmp_path / "s.png"))[0] > 500


@pytest.mark.parametrize("rows", [2, 3])
def test_short_constant_and_lost_samples_are_drawn(tmp_path: Path, rows: int) -> None:
    """A few rows, constant values, values that are not finite, and samples that never arrived are no obstacle."""
    short = sensor("short", [ACC], rows)
    short.measured["lin_acc_b"][:] = 1.0
    lost = sensor("lost", [ACC], rows)
    lost.valid[:] = False
    odd = sensor("odd", [ACC], rows)
    odd.measured["lin_acc_b"][:] = np.inf
    plot_recording(recording(short, lost, odd), tmp_path / "x.png")
    assert size(tmp_path / "x.png")[0] > 1400


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Sensors and axes beyond the limits are named in the picture."""
    many = [sensor(f"s{i}", [field(f"f{k}", ["xyz"], [3]) for k in range(3)]) for i in range(5)]
    text = plot_recording(recording(*many), tmp_path / "many.svg").read_text(encoding="utf-8")
    assert "not drawn: s3, s4" in text and "3 more axes not drawn" in text
    text = plot_recording(recording(*many), tmp_path / "some.svg", names=["s4"]).read_text(encoding="utf-8")
    assert "not drawn: " not in text


def test_what_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    """Unknown sensors, kinds and envs, and recordings without numbers over time, are named errors."""
    one = recording(sensor("s", [ACC]))
    with pytest.raises(UnknownNameError, match=r"'lidar'.*Known: imu"):
        plot_recording(one, tmp_path / "x.png", kind="lidar")
    with pytest.raises(UnknownNameError, match="Known: s"):
        plot_recording(one, tmp_path / "x.png", names=["t"])
    with pytest.raises(UnknownNameError, match=r"recorded env of 's' '3'\. Known: 0, 5"):
        plot_recording(one, tmp_path / "x.png", env=3)
    flags = sensor("flags", [field("hit", [], [], "bool")])
    assert not plottable(flags) and not plottable(sensor("s", [ACC], rows=1))
    with pytest.raises(UnknownNameError, match="sensor to draw"):
        plot_recording(recording(flags), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"sensorium\[plot\]"):
        imu_figure(recording(sensor("s", [ACC])), tmp_path / "x.png")


def test_items_are_named_and_every_field_has_its_share(tmp_path: Path) -> None:
    """Of 12 joints the first three are drawn for each of two fields, by name; of targets the vectors of the first."""
    encoders = sensor(
        "encoders", [field("position", ["joint"], [12]), field("velocity", ["joint"], [12])], kind="joint"
    )
    encoders.info["constants"] = {"joint_names": [f"knee_{k}" for k in range(12)]}
    feet = sensor("feet", [field("target_pos_w", ["target", "xyz"], [4, 3])], kind="frames")
    text = plot_recording(recording(encoders, feet), tmp_path / "x.svg").read_text(encoding="utf-8")
    assert text.count("<!-- knee_0 ") == text.count("<!-- knee_2 ") == 2 and "knee_3" not in text
    assert "target 0 x" in text and "target 1" not in text
