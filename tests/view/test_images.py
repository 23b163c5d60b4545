"""Pictures of cameras: every data type has its colors and its key, and image files hold the last frame."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import matplotlib.image
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.cameras.annotators import TYPES
from sensorium.cameras.event_camera import EventCameraData
from sensorium.record import NpzRecorder, Recording
from sensorium.view import plot_recording, plottable, save_frames
from sensorium.view.images import _edges, id_shares, picture_kind, picture_of

SHAPES = {
    "floor": sn.engines.Shape("plane", "floor", pos=(0.0, 0.0, -0.5)),
    "cup": sn.engines.Shape("cylinder", "cup", (0.2, 0.3), body="cup", labels=("cup", "color:red")),
    "crate": sn.engines.Shape("box", "crate", (0.3, 0.2, 0.25), pos=(1.8, 0.7, 0.0), labels=("crate",)),
}
VIEW = sn.CameraCfg.OffsetCfg.from_view(pos=(-0.5, 0.2, 0.8), lookat=(1.5, 0.1, 0.0))


def recorded(envs: int = 2, data_types: Any = TYPES, **cfg: Any) -> Recording:
    """Return a recording of two frames between which the cup moves."""
    size = {"width": 48, "height": 36, "lens": sn.lenses.PinholeLensCfg(fovy=60.0)}
    place = {"body": "world", "offset": VIEW} | (
        {"bodies": "cup|hand", "body": None} if cfg.pop("plural", False) else {}
    )
    camera = sn.CameraCfg(name="cam/1", data_types=data_types, **{**size, **place, **cfg})
    engine = sn.TensorEngine(envs, bodies=("cup", "hand"), shapes=SHAPES)
    engine.body_pos_w[:, 0] = engine.body_pos_w.new_tensor([1.6, -0.2, -0.2])
    scene = sn.Scene(engine, [camera], seed=0)
    recorder = NpzRecorder()
    for _ in range(2):
        scene.update()
        recorder.add_all(scene.publish())
        engine.body_pos_w[:, 0, 1] += 0.05
    return recorder.recording(scene.description().to_dict())


@pytest.fixture(scope="module")
def every() -> Recording:
    return recorded()


def words_of(recording: Recording, tmp_path: Path, **options: Any) -> str:
    path = plot_recording(recording, tmp_path / "x.svg", **options)
    return "\n".join(part.split("-->")[0] for part in path.read_text(encoding="utf-8").split("<!--")[1:])


def test_every_data_type_is_drawn_with_its_key(every: Recording, tmp_path: Path) -> None:
    """Titles, labels of ids and boxes, the axes of normals, the strongest motion, and the points as a cloud."""
    text = words_of(every, tmp_path)
    fields = [spec["name"] for spec in every["cam/1"].info["fields"] if picture_kind(spec)]
    assert {*fields} == {*TYPES}
    for word in (*fields, "[m]", "unlabelled", "cup, color: red", "crate", "floor", "+x", "-z", "the strongest", "none",
                 "points_b from above (sensor frame)", "forward [m]", "images at t = 0.02 s"):  # fmt: skip
        assert word in text, word
    assert "measured, t" not in text  # nothing differs from the truth
    length = next(line for line in text.splitlines() if "px or more" in line)
    flow = every["cam/1"].measured["optical_flow"][-1, 0]
    assert float(length.split()[2]) == pytest.approx(np.linalg.norm(flow, axis=-1).max(), rel=0.1)


def test_noise_is_drawn_beside_the_truth(tmp_path: Path) -> None:
    text = words_of(recorded(7, ("depth", "instance_segmentation"), noise=0.02, width=31, height=17), tmp_path, env=6)
    assert "distance_to_image_plane [m], true" in text and "± 0.0" in text and "instance_segmentation" in text


def test_mounts_fisheyes_and_frames_that_never_arrived_are_drawn(tmp_path: Path) -> None:
    fisheye = sn.lenses.KannalaBrandtLensCfg(fovy=100.0, max_fov_deg=150.0)
    several = recorded(1, ("normals", "bounding_box_2d_tight", "bounding_box_3d"), plural=True, lens=fisheye)
    text = words_of(several, tmp_path)
    assert "mount 1 of 2" in text and "bounding_box_3d: edges need a pinhole" in text
    assert len(save_frames(several, tmp_path / "frames")) == 3
    never = dataclasses.replace(several["cam/1"], valid=np.full_like(several["cam/1"].valid, False))
    lost = Recording({"dt": 0.01, "sensors": {"cam/1": never.info}}, {"cam/1": never})
    assert "no sample arrived" in words_of(lost, tmp_path) and save_frames(lost, tmp_path / "none") == []
    one = dataclasses.replace(never, **{name: getattr(never, name)[:1] for name in ("time", "capture_time", "valid",
                                                                                     "truth_time")})  # fmt: skip
    assert plottable(one)  # one frame is enough for a picture


def test_files_hold_the_last_frame(every: Recording, tmp_path: Path) -> None:
    sensor, paths = every["cam/1"], save_frames(every, tmp_path, env=1)
    assert [path.name for path in paths] == [f"cam_1.{name}.png" for name in sensor.measured if name in TYPES and
                                             name != "points_b"]  # fmt: skip
    images = {path.name.split(".")[1]: np.rint(matplotlib.image.imread(path) * 255.0).astype(int) for path in paths}
    last = {name: values[-1, 1] for name, values in sensor.measured.items()}
    np.testing.assert_array_equal(images["distance_to_camera"], sn.pictures.colorize_depth(last["distance_to_camera"]))
    np.testing.assert_array_equal(images["optical_flow"], sn.pictures.colorize_flow(last["optical_flow"]))
    np.testing.assert_array_equal(images["geom_ids"], sn.pictures.colorize_ids(last["geom_ids"], first=0))
    np.testing.assert_array_equal(images["instance_id_segmentation"], images["geom_ids"])  # one color for one shape
    crate = last["geom_ids"][..., 0] == 2
    assert (images["instance_segmentation"][crate] == last["instance_segmentation"][crate][:, :3]).all()
    assert (images["semantic_segmentation"][last["geom_ids"][..., 0] == 0] == 128).all()  # the floor has no label


def test_ids_have_the_colors_of_colorized_segmentations(every: Recording, tmp_path: Path) -> None:
    types = ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation")
    raw = recorded(2, types, **{f"colorize_{name}": False for name in types})
    assert raw["cam/1"].measured[types[0]].dtype == np.int32
    for recording, folder in ((every, "colors"), (raw, "ids")):
        save_frames(recording, tmp_path / folder)
    for name in types:
        ids, colors = (matplotlib.image.imread(tmp_path / each / f"cam_1.{name}.png") for each in ("ids", "colors"))
        np.testing.assert_array_equal(ids, colors)


def test_shares_are_those_of_the_pixels(every: Recording) -> None:
    """Of colors and of ids: each label with its share, the largest first."""
    sensor = every["cam/1"]
    specs = {spec["name"]: spec for spec in sensor.info["fields"]}
    ids = sensor.measured["geom_ids"][-1, 0, ..., 0]
    for name, labels in (("geom_ids", {"floor": 0, "cup": 1, "crate": 2, "background": -1}),
                         ("instance_id_segmentation", {"floor": 0, "cup": 1, "crate": 2, "background": -1}),
                         ("semantic_segmentation", {"unlabelled": 0, "cup, color: red": 1, "crate": 2,
                                                    "background": -1})):  # fmt: skip
        found = id_shares(sensor.info, specs[name], sensor.measured[name][-1, 0])
        assert [share for *_, share in found] == sorted((share for *_, share in found), reverse=True)
        assert {label: share for label, _, share in found} == {
            label: (ids == id).mean() for label, id in labels.items() if (ids == id).any()
        }


def test_edges_of_boxes_are_those_of_the_projection(every: Recording) -> None:
    """The picture's own projection equals `project_points`; the edges of the crate surround its pixels."""
    last = {name: values[-1, 0].astype(np.float64) for name, values in every["cam/1"].measured.items()}
    k, pos, quat = (last[name] for name in ("intrinsic_matrices", "pos_w", "quat_w_world"))
    for box in last["bounding_box_3d"]:
        found = _edges(every["cam/1"], box[None], -1, 0)
        w, x, y, z = quat
        turn = np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                         [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                         [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]])  # fmt: skip
        local = (sn.pictures.box_edges(box[None]).reshape(-1, 3) - pos) @ turn
        optical = torch.tensor(np.stack([-local[:, 1], -local[:, 2], local[:, 0]], axis=1))
        expected = sn.math.project_points(optical, torch.tensor(k))[:, :2].numpy()
        np.testing.assert_allclose(found.reshape(-1, 2), expected, atol=1e-4)
    rows, columns = np.nonzero(last["geom_ids"][..., 0] == 2)
    low, high = found.reshape(-1, 2).min(axis=0), found.reshape(-1, 2).max(axis=0)
    assert (
        low[0] <= columns.min() + 1 and columns.max() <= high[0] and low[1] <= rows.min() + 1 and rows.max() <= high[1]
    )


def test_color_images_are_shown_unchanged(every: Recording, tmp_path: Path) -> None:
    """A field of bytes with three channels needs no code here."""
    image = np.random.default_rng(0).integers(0, 256, (2, 2, 6, 8, 3)).astype(np.uint8)
    spec = {"name": "rgb", "axes": ["env", "height", "width", "rgb"], "shape": [6, 8, 3], "dtype": "uint8", "unit": "1",
            "kind": "derived", "role": "image"}  # fmt: skip
    info = {**every["cam/1"].info, "fields": [spec]}
    sensor = dataclasses.replace(every["cam/1"], info=info, measured={"rgb": image}, truth={"rgb": image})
    recording = Recording({"dt": 0.01, "sensors": {"cam": info}}, {"cam": sensor})
    (path,) = save_frames(recording, tmp_path)
    np.testing.assert_array_equal(np.rint(matplotlib.image.imread(path) * 255.0), image[-1, 0])
    assert "rgb" in words_of(recording, tmp_path)


def test_signed_counts_are_red_and_blue(every: Recording, tmp_path: Path) -> None:
    """Unlike an id, -1 is a number: the polarities of an event camera."""
    counts = np.array([[[[[3], [0], [-1]]]]], np.int16)
    field = get_type_hints(EventCameraData, include_extras=True)["polarity_image"].__metadata__[0]
    spec = {**dataclasses.asdict(field), "name": "polarity_image", "axes": ["env", *field.axes], "shape": [1, 3, 1]}
    info = {**every["cam/1"].info, "fields": [spec]}
    sensor = dataclasses.replace(every["cam/1"], info=info, measured={"polarity_image": counts}, truth={})
    plus, none, minus = picture_of(sensor, spec, 0, 0)[0].astype(int)
    assert plus[0] > 150 > 50 > plus[2] and minus[2] - minus[0] > 30 and none.tolist() == [255, 255, 255]
