"""Pictures are drawn from any recording, select what fits, and name everything that cannot be drawn."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.errors import MissingDependencyError, UnknownNameError
from sensorium.record import NpzRecorder, Recording, SensorRecording, load
from sensorium.view import imu_figure, plot_recording, plottable
from sensorium.view.fields import draw_field

Figure = pytest.importorskip("matplotlib.figure").Figure
pytestmark = pytest.mark.usefixtures("no_ticks")


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
    """Two IMUs of six axes give a picture of about 1230 by 990 pixels, also with every kind of delay."""
    gyro = field("ang_vel_b", ["xyz"], [3])
    a = sensor("a", [gyro, ACC], delay=0.004, jitter=0.002)
    b = sensor("b", [gyro, ACC], delay={"uniform": [0.001, 0.02]})
    path = imu_figure(recording(a, b), tmp_path / "new/imu.png", env=5)
    width, height = size(path)
    assert 1100 <= width <= 1400 and 850 <= height <= 1000


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
    """Scalars, mounts, many fields and fields without a line plot all give a picture."""
    assert size(plot_recording(recording(sensor("s", fields, kind="other")), tmp_path / "s.png"))[0] > 500


@pytest.mark.parametrize("rows", [2, 3])
def test_short_constant_and_lost_samples_are_drawn(tmp_path: Path, rows: int) -> None:
    """A few rows, constant values, non-finite values, and samples that never arrived are drawn."""
    short = sensor("short", [ACC], rows)
    short.measured["lin_acc_b"][:] = 1.0
    lost = sensor("lost", [ACC], rows)
    lost.valid[:] = False
    odd = sensor("odd", [ACC], rows)
    odd.measured["lin_acc_b"][:] = np.inf
    plot_recording(recording(short, lost, odd), tmp_path / "x.png")
    assert size(tmp_path / "x.png")[0] > 1400


def test_omitted_parts_are_mentioned(tmp_path: Path) -> None:
    """Sensors and axes beyond the limits are named in the picture."""
    many = [sensor(f"s{i}", [field(f"f{k}", ["xyz"], [3]) for k in range(3)], rows=9) for i in range(5)]
    text = plot_recording(recording(*many), tmp_path / "many.svg").read_text(encoding="utf-8")
    assert "not drawn: s3, s4" in text and "3 more axes not drawn" in text
    text = plot_recording(recording(*many), tmp_path / "some.svg", names=["s4"]).read_text(encoding="utf-8")
    assert "not drawn: " not in text


def test_undrawable_fields_are_named(tmp_path: Path) -> None:
    """Unknown sensors, kinds and envs, and recordings without numbers over time, raise errors that name them."""
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
    """The error states what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"sensorium\[plot\]"):
        imu_figure(recording(sensor("s", [ACC])), tmp_path / "x.png")


def test_items_are_named_and_every_field_has_its_share(tmp_path: Path) -> None:
    """The first three of 12 joints are drawn for each of two fields, by name; of targets, the first two vectors."""
    encoders = sensor(
        "encoders", [field("position", ["joint"], [12]), field("velocity", ["joint"], [12])], kind="joint"
    )
    encoders.info["constants"] = {"joint_names": [f"knee_{k}" for k in range(12)]}
    feet = sensor("feet", [field("target_pos_w", ["target", "xyz"], [4, 3])], kind="frames")
    text = plot_recording(recording(encoders, feet), tmp_path / "x.svg").read_text(encoding="utf-8")
    assert text.count("<!-- knee_0 ") == text.count("<!-- knee_2 ") == 2 and "knee_3" not in text
    assert "target 0 x" in text and "target 1 z" in text and "target 2" not in text


# Maps -----------------------------------------------------------------------------------------------------------------


def ray(
    name: str, shape: Sequence[int], role: str, axes: Sequence[str] = ("ray", "xyz"), **more: Any
) -> dict[str, Any]:
    return {**field(name, list(axes)[: len(shape)], shape), "unit": "m", "role": role, **more}


def scanner(spec: dict[str, Any], rows: int = 60, **cfg: Any) -> SensorRecording:
    """Return a recording of a field whose measured values are those of the truth plus 0.5."""
    made = sensor("s", [spec], rows, kind="scanner", **cfg)
    truth = {spec["name"]: 4.0 + made.measured[spec["name"]]}
    measured = {spec["name"]: truth[spec["name"]] + np.array(0.5, spec["dtype"])}
    return dataclasses.replace(made, measured=measured, truth=truth)


def svg(made: SensorRecording, tmp_path: Path, **options: Any) -> str:
    path = plot_recording(recording(made), tmp_path / "x.svg", **options)
    return "\n".join(part.split("-->")[0] for part in path.read_text(encoding="utf-8").split("<!--")[1:])


SCAN = ray("distances", [187], "range")
IMAGE = ray("depth", [6, 8, 1], "image", ("height", "width", "channel"))
CLOUD = ray("points", [50, 3], "point", frame="sensor")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SCAN, ["distances [m], measured, 80 of 187 rays", "error +0.5 ± ", "capture time [s]"]),
        (ray("heights", [2, 40], "range", ("mount", "ray")), ["heights [m], measured", "mount 1 of 2"]),
        (ray("echo", [40, 2], "range", ("ray", "return")), ["echo [m], measured"]),
        (IMAGE, ["depth [m], true", "measured, t = 0.59 s", "error +0.5 ± "]),
        (CLOUD, ["points from above (sensor frame), t = 0.59 s", "from the side: 50 points"]),
    ],
)
def test_many_numbers_are_drawn_as_a_map(tmp_path: Path, spec: dict[str, Any], words: list[str]) -> None:
    """A scan is drawn over time, an image and a cloud at the last capture; each has a title and its error."""
    made = scanner(spec)
    assert plottable(made)
    text = svg(made, tmp_path)
    for word in words:
        assert word in text, word
    assert "ms close-up" not in text  # no lines


def test_few_rays_are_drawn_as_lines(tmp_path: Path) -> None:
    """Nine rays are numbered lines; heights of feet are lines by name, whichever rays they come from."""
    text = svg(scanner(ray("distances", [9], "range")), tmp_path)
    assert "ray 0" in text and "ms close-up" in text
    heights, rays = ray("heights", [4], "range", ("mount",)), ray("distances", [4, 12], "range", ("mount", "ray"))
    feet = sensor("feet", [rays, heights], kind="terrain_height")
    feet.info["mounts"] = ["FL", "FR", "RL", "RR"]
    text = svg(feet, tmp_path)
    assert all(f"{name}  [m]" in text for name in feet.info["mounts"])
    assert "distances" not in text and "mount 1 of 4" not in text


@pytest.mark.parametrize("miss", [np.inf, -1.0])
def test_misses_are_not_drawn_as_errors(tmp_path: Path, miss: float) -> None:
    """Misses of both branches are ignored, and misses of the measured value alone are counted separately."""
    cfg = {"no_hit_value": miss} if miss < 0.0 else {}
    made = scanner(SCAN, **cfg)
    for branch in (made.measured, made.truth):
        branch["distances"][:, :, :88] = miss
    made.measured["distances"][:, :, 88:187:2] = miss
    assert "error +0.5 ± " in svg(made, tmp_path) and "% lost" in svg(made, tmp_path)
    made.measured["distances"][:] = made.truth["distances"]
    assert "no error" in svg(made, tmp_path)
    made.measured["distances"][:] = made.truth["distances"][:] = miss
    assert "error: no hits" in svg(made, tmp_path)


@pytest.mark.parametrize("spec", [SCAN, IMAGE, CLOUD])
def test_maps_of_empty_and_single_captures_are_drawn(tmp_path: Path, spec: dict[str, Any]) -> None:
    """Samples that never arrived, captures with misses only, constants, and a single capture are drawn."""
    lost = scanner(spec)
    lost.valid[:] = False
    assert f"{spec['name']}: no sample arrived" in svg(lost, tmp_path)
    for value in (np.inf, 1.0):
        flat = scanner(spec)
        flat.measured[spec["name"]][:] = flat.truth[spec["name"]][:] = value
        svg(flat, tmp_path)
    first = scanner(spec, rows=2)
    first.capture_time[:] = first.truth_time[:] = 0.0
    svg(first, tmp_path, env=5)


def test_the_error_of_a_delayed_scan_is_that_of_the_same_captures(tmp_path: Path) -> None:
    """A scan that arrives three rows late has the error of the same capture, not relative to the current truth."""
    made = scanner(SCAN)
    late = made.measured["distances"].copy()
    late[3:] = made.measured["distances"][:-3]
    capture_time = made.truth_time.copy()
    capture_time[3:] = made.truth_time[:-3]
    valid = np.full((60, 2), True)
    valid[:3] = False
    shifted = dataclasses.replace(made, measured={"distances": late}, capture_time=capture_time, valid=valid)
    assert "error +0.5 ± 7" in svg(shifted, tmp_path)  # 7e-08: rounding of float32
    arrivals, captures = shifted.pairs()
    assert np.array_equal(arrivals, np.arange(3, 60)) and np.array_equal(captures, np.arange(57))


def test_id_images_show_equality(tmp_path: Path) -> None:
    """An image of ids has no error but a count of differing pixels."""
    ids = ray("geom_ids", [4, 4, 1], "image", ("height", "width", "channel"), dtype="int32", kind="id")
    made = scanner(ids)
    made.measured["geom_ids"][:] = made.truth["geom_ids"]
    made.measured["geom_ids"][-1, 0, :2, 0, 0] += 1
    assert "2 of 16 differ" in svg(made, tmp_path)


def test_large_scans_make_small_files(tmp_path: Path) -> None:
    """A picture of ten thousand rays of pure noise, and maps beside lines, takes less than 200 kB."""
    wide = scanner(ray("distances", [10_000], "range"), rows=200)
    path = plot_recording(recording(wide), tmp_path / "wide.png")
    assert path.stat().st_size < 200_000
    lines = sensor("imu", [ACC])
    width, height = size(plot_recording(recording(wide, lines), tmp_path / "both.png"))
    assert width == 1386 and 300 < height < 700


# Skins ----------------------------------------------------------------------------------------------------------------


def skin(
    shape: Sequence[int],
    unit: str = "N",
    *,
    name: str = "force",
    axes: Sequence[str] | None = None,
    dtype: str = "float32",
    vector: bool = True,
    rows: int = 60,
    **cfg: Any,
) -> SensorRecording:
    """Return a recording of taxels: a load on the first taxels that grows to 0.3 s and falls again, and 0 on the
    others.

    The truth of taxel 0 is a triangle up to 2, half of it along x; the measured value is 0.25 more, along the normal.
    """
    words = list(axes or (("probe",) if len(shape) == 1 else ("row", "column")))
    spec = field(name, [*words, *(["xyz"] if vector else [])], [*shape, *([3] if vector else [])], dtype)
    made = sensor("pad", [{**spec, "unit": unit, "role": "scalar"}], rows, kind="skin", **cfg)
    load = 2.0 * np.interp(made.time, (0.0, 0.3, 0.6), (0.0, 1.0, 0.0))
    taxels = np.zeros((rows, 2, int(np.prod(shape)), 3))
    taxels[:, :, 0, 2] = load[:, None]
    taxels[:, :, 0, 0] = 0.5 * load[:, None]
    measured = taxels + np.array([0.0, 0.0, 0.25])
    branches = []
    for values in (taxels, measured):
        numbers = values if vector else values[..., 2]
        branches.append(numbers.reshape(rows, 2, *spec["shape"]).astype(dtype))
    return dataclasses.replace(made, truth={name: branches[0]}, measured={name: branches[1]})


def places(rows: int, columns: int, x: float = 0.0) -> list[list[list[float]]]:
    return [[[0.002 * c, 0.002 * r, x * c * c] for c in range(columns)] for r in range(rows)]


FLAT = {"probe_local_pos": places(4, 5)}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            skin((4, 5), **FLAT),
            [
                "force [N], true", "t = 0.3 s", "error +0.25 ± ", "x [mm]", "y [mm]", "sum [N]", "shear,",
                "active taxels", "(&gt; 0.1 N)", "colour: normal part · arrows: shear, up to 1 N",
            ],
        ),
        (skin((4, 5)), ["force [N], true", "column", "row", "arrows: shear, up to 1 N"]),
        (skin((4, 5), probe_local_pos=places(4, 5, 0.0005)), ["column", "row"]),
        (skin((20,), probe_local_pos=np.reshape(places(4, 5), (20, 3)).tolist()), ["t = 0.3 s", "x [mm]", "y [mm]"]),
        (skin((20,)), ["force [N], along z", "taxel", "error +0.25 ± "]),
        (skin((4, 5), "m", name="depth", vector=False, **FLAT), ["depth [m], true", "greatest", "active taxels"]),
        (skin((4, 5), "m", name="displacement", **FLAT), ["displacement [m], true", "shear [m]", "t = 0.3 s"]),
        (skin((4, 5), "N m", name="torque", **FLAT), ["arrows: along the skin, up to 1 N m"]),
        (skin((4, 5), "1", name="contact", dtype="bool", vector=False, **FLAT), ["contact, true", "of 20 differ"]),
        (skin((40,), "1", name="contact", dtype="bool", vector=False), ["contact", "of 2400 differ"]),
        (
            skin((3, 4, 2), "degC", name="temperature", axes=("x", "y", "z"), vector=False),
            ["temperature [degC], true", "layer 1 of 2 in z", "cell, x", "cell, y"],
        ),
    ],
)  # fmt: skip
def test_a_skin_is_drawn_as_pressure_maps(tmp_path: Path, made: SensorRecording, words: list[str]) -> None:
    """At the largest load, at 0.3 s, truth and measurement are side by side, in the link's axes for known places."""
    assert plottable(made)
    text = svg(made, tmp_path, env=5)
    for word in words:
        assert word in text, word
    assert "ms close-up" not in text  # no lines


@pytest.mark.parametrize(("at", "shown"), [(0.105, 0.1), (None, 0.3)])
def test_a_skin_is_drawn_at_a_given_time_with_its_curves_in_full(at: float | None, shown: float) -> None:
    """The newest arrival at that time is marked in the curves; without a time, it is that of the largest load."""
    made = skin((4, 5), **FLAT)
    figure = Figure((10.0, 4.0))
    draw_field(figure, made, made.info["fields"][0], 1, 0.01, at)
    ((titled, *_),) = ([axes for axes in part.axes if axes.get_title()] for part in figure.subfigs[-1:])
    assert f"t = {shown} s" in titled.get_title()
    ((seen, _, mark), *_) = (axes.lines for axes in figure.subfigs[-1].axes if len(axes.lines) == 3)
    assert mark.get_xdata()[0] == pytest.approx(shown) and seen.get_xdata()[-1] == pytest.approx(0.59)


def test_few_taxels_are_drawn_as_lines(tmp_path: Path) -> None:
    """Three vectors are nine numbers and therefore lines; four are a map, and so are a few on each of several links."""
    assert "ms close-up" in svg(skin((3,)), tmp_path)
    assert "ms close-up" not in svg(skin((4,)), tmp_path)
    feet = sensor("feet", [field("force", ["mount", "probe", "xyz"], [4, 2, 3])], kind="skin")
    cells = svg(skin((2, 2, 1), "degC", axes=("x", "y", "z"), vector=False, name="temperature"), tmp_path)
    assert "ms close-up" in cells and "x 1 y 0 z 0" in cells
    flags = svg(skin((3,), "1", vector=False, name="contact", dtype="bool"), tmp_path)
    assert "ms close-up" in flags and "contact" in flags
    text = svg(feet, tmp_path)
    assert "force [m/s²], along z" in text and "mount 1 of 4" in text  # no line plot shows these


@pytest.mark.parametrize(
    ("normal", "labels"),
    [
        ((0.0, 0.0, 1.0), ("x", "y")),
        ((0.0, 0.0, -2.0), ("x", "-y")),
        ((1.0, 0.0, 0.0), ("y", "z")),
        ((-1.0, 0.0, 0.0), ("-y", "z")),
        ((0.0, 1.0, 0.0), ("-x", "z")),
        ((0.0, -0.8, -0.1), ("x", "about z")),
    ],
)
def test_skin_is_drawn_from_outside(
    tmp_path: Path, normal: tuple[float, float, float], labels: tuple[str, str]
) -> None:
    """The picture's right and up are axes of the link that make a right-handed frame with the normal."""
    cube = [[0.01 * x, 0.01 * y, 0.01 * z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    text = svg(skin((8,), probe_local_pos=cube, probe_local_normal=list(normal)), tmp_path)
    assert all(f"{label} [mm]" in text for label in labels)
    layout = skin_layout(skin((8,), probe_local_pos=cube, probe_local_normal=list(normal)))
    unit = np.array(normal) / np.linalg.norm(normal)
    assert np.allclose(np.cross(layout.right, layout.up), unit)
    assert np.allclose(layout.at, 1e3 * np.stack([cube @ layout.right[0], cube @ layout.up[0]], axis=1))


def skin_layout(made: SensorRecording) -> Any:
    from sensorium.view.taxels import _skin

    return _skin(made, made.info["fields"][0])


def test_arrows_on_a_bent_grid_follow_its_rows_and_columns() -> None:
    """Around a cylinder, right is along the circumference and up along the axis, at each taxel."""
    angles = np.linspace(-1.0, 1.0, 9)
    normals = np.stack([np.sin(angles), 0.0 * angles, np.cos(angles)], axis=-1)
    rings = [(0.01 * normals + np.array([0.0, 0.002 * row, 0.0])).tolist() for row in range(4)]
    layout = skin_layout(skin((4, 9), probe_local_pos=rings, probe_local_normal=[normals.tolist()] * 4))
    around = np.stack([np.cos(angles), 0.0 * angles, -np.sin(angles)], axis=-1)
    assert np.array_equal(layout.at[:10], [*((k, 0) for k in range(9)), (0, 1)]) and layout.labels == ("column", "row")
    assert np.allclose(layout.right.reshape(4, 9, 3), around, atol=1e-6)
    assert np.allclose(layout.up, (0.0, 1.0, 0.0))


def drawn_skin(made: SensorRecording) -> Any:
    """Return the figure of the second environment of a skin."""
    from matplotlib.figure import Figure

    from sensorium.view.taxels import draw_skin

    figure = Figure(figsize=(7.0, 2.9))
    draw_skin(figure, made, made.info["fields"][0], 1)
    return figure


def test_loads_match_the_vectors() -> None:
    """The parts along the normal and along the skin are those of the force, at any normal, and so are the sums."""
    random = np.random.default_rng(3)
    normals = random.normal(size=(12, 3))
    made = skin((12,), probe_local_pos=random.normal(size=(12, 3)).tolist(), probe_local_normal=normals.tolist())
    made = dataclasses.replace(made, truth={"force": random.normal(size=made.truth["force"].shape)})
    unit = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    force = made.truth["force"][made.pairs(1)[1], 1]
    normal = (force * unit).sum(-1)
    along = force - normal[..., None] * unit
    lines = [line for axes in drawn_skin(made).axes for line in axes.get_lines() if line.get_label() == "true"]
    assert np.allclose(lines[0].get_ydata(), normal.sum(axis=1))
    assert np.allclose(lines[1].get_ydata(), np.linalg.norm(along.sum(axis=1), axis=-1))


@pytest.mark.parametrize(
    "made", [skin((4, 5), **FLAT), skin((20,)), skin((3, 4, 2), axes=("x", "y", "z"), vector=False)]
)
def test_skins_of_empty_and_single_captures_are_drawn(tmp_path: Path, made: SensorRecording) -> None:
    """Samples that never arrived, zero load, non-finite values, and a single capture are drawn."""
    lost = dataclasses.replace(made, valid=np.full_like(made.valid, False))
    assert "force: no sample arrived" in svg(lost, tmp_path)
    for value in (0.0, np.nan):
        flat = dataclasses.replace(made, truth={"force": value * made.truth["force"]})
        svg(dataclasses.replace(flat, measured=flat.truth), tmp_path)
    first = dataclasses.replace(made, capture_time=0.0 * made.capture_time, truth_time=0.0 * made.truth_time)
    svg(first, tmp_path, env=5)


def test_a_grid_of_distances_is_a_map_of_the_nearest_moment(tmp_path: Path) -> None:
    """All rows and columns of a grid of distance probes are drawn, at the least distance; misses have no error."""
    made = scanner(ray("distance", [4, 5], "range", ("row", "column")))
    for branch in (made.measured, made.truth):
        branch["distance"][:, :, 0] = np.inf
    made.truth["distance"][40, :, 2, 3] = 0.125
    text = svg(made, tmp_path)
    for word in ("distance [m], true", "t = 0.4 s", "least", "column", "row", "error +"):
        assert word in text, word


def drawn_colors(true: Any, measured: Any) -> tuple[float, float, str]:
    """Return the limits and the name of the colours of three taxels in a row with these constant values."""
    places = [[0.01 * k, 0.0, 0.0] for k in range(3)]
    made = skin((3,), vector=np.ndim(true) > 1, probe_local_pos=places)
    shape = made.truth["force"].shape
    truth, seen = ({"force": np.broadcast_to(np.asarray(values), shape)} for values in (true, measured))
    dots = drawn_skin(dataclasses.replace(made, truth=truth, measured=seen)).axes[0].collections[0]
    return (*dots.get_clim(), dots.get_cmap().name)


def test_rounding_errors_are_not_drawn_as_load() -> None:
    """Where the load along the normals is rounding compared with that along the skin, the colours show zero load."""
    force = [[0.1, 0.0, 1e-9], [0.0, 0.0, -1e-9], [0.0, 0.2, 0.0]]
    assert drawn_colors(force, force)[:2] == (0.0, pytest.approx(0.02 * 0.2))


def test_colors_start_at_zero_or_are_symmetric_for_loads() -> None:
    """Loads of both signs have symmetric colours, of one sign colours from 0; values without a zero have their span."""
    both = np.array([-1.0, 0.0, 3.0])
    assert drawn_colors(both, both) == (-3.0, 3.0, "RdBu_r")
    assert drawn_colors(-np.abs(both), both) == (-3.0, 0.0, "viridis_r")
    warm = np.array([20.0, 21.0, 20.5])
    assert drawn_colors(warm, warm + 1.0) == (20.0, 22.0, "viridis")


def test_real_skin_is_drawn_at_its_position(tmp_path: Path) -> None:
    """A recorded tactile sensor contains its places: a ball pressed at x = 4 mm, y = -2 mm appears there."""
    layout = sn.patterns.taxel_grid(6, 8, 0.002)
    ball = sn.engines.Shape("sphere", "ball", (0.008,), body="ball")
    engine = sn.TensorEngine(2, 0.01, bodies=("pad", "ball"), provides=("pose", "velocity"), shapes=[ball])
    engine.body_pos_w[:, 1] = torch.tensor([0.004, -0.002, 0.0078])
    scene = sn.Scene(
        engine, [sn.KinematicTactileSensorCfg(name="skin", link_name="pad", probe_radius=1e-4, **layout.cfg())]
    )
    recorder = NpzRecorder()
    for _ in range(3):
        scene.update()
        recorder.add_all(scene.publish())
    recorder.save(tmp_path / "skin.npz", scene.description())
    made = load(tmp_path / "skin.npz")["skin"]
    text = svg(made, tmp_path)
    assert "force [N], true" in text and "torque [N m], true" in text and "x [mm]" in text
    at, force = skin_layout(made).at, made.truth["force"][-1, 0, ..., 2].ravel()
    assert np.allclose((force[:, None] * at).sum(axis=0) / force.sum(), (4.0, -2.0), atol=0.2)


def test_positions_without_taxel_are_omitted(tmp_path: Path) -> None:
    """A probe of radius 0 fills a place of the layout, but has neither colour nor arrow."""
    radii = [0.0, *[0.001] * 19]
    assert "arrows" not in svg(skin((4, 5), probe_radius=radii, **FLAT), tmp_path)


def test_a_skin_on_several_links_shows_the_first(tmp_path: Path) -> None:
    """With a mount axis the taxels of the first mount are drawn, and the heading states this."""
    made = skin((4, 5), **FLAT)
    spec = {**made.info["fields"][0], "axes": ["env", "mount", "row", "column", "xyz"], "shape": [2, 4, 5, 3]}
    info = {**made.info, "fields": [spec]}
    branches = [{"force": np.stack([b["force"], 9.0 * b["force"]], axis=2)} for b in (made.truth, made.measured)]
    both = dataclasses.replace(made, info=info, truth=branches[0], measured=branches[1])
    text = svg(both, tmp_path)
    assert "mount 1 of 2" in text and "arrows: shear, up to 1 N" in text


def test_large_skins_make_small_files(tmp_path: Path) -> None:
    """A picture of a skin of 10,000 noisy taxels takes less than 200 kB."""
    made = skin((100, 100))
    noise = np.random.default_rng(0).normal(size=made.truth["force"].shape)
    noisy = dataclasses.replace(made, measured={"force": made.truth["force"] + noise})
    assert plot_recording(recording(noisy), tmp_path / "large.png").stat().st_size < 200_000
