"""Images of cameras as pictures: every data type as colours with its key, and as image files.

Distances have a colour bar in their unit, ids the labels of their surfaces, normals the colours of the axes, and motion
a colour wheel. Boxes are drawn over the ids. Colour images are shown unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium import pictures
from sensorium.drawing import INVERSE, rotate
from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec
from sensorium.view.panels import Spec, captures_of, name_panel, own_shape, panel, panels_of, shown_values
from sensorium.view.style import INK, column_of, name_and_unit

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

MAX_PIXELS = 320
"""Maximum width or height of a shown image; of larger ones every k-th pixel is shown."""
IN_ROW = 3
"""Number of images beside each other."""
SHARP = 240
"""Minimum number of columns of a picture in a panel, about."""
EDGE_POINTS = 24
"""Points along each edge of a 3-D box."""
MAX_KEYS = 6
"""Maximum number of entries of a key."""
LONGEST = 22
"""Maximum number of letters of an entry."""
PLUS, MINUS = (178, 24, 43), (33, 102, 172)
"""Colours of the largest positive and of the largest negative number."""
IDS = ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation", "segmentation", "geom_ids")
"""Fields below boxes, in order of preference."""


def _displayed(values: Array) -> Array:
    """Return linear light as a display shows it (sRGB), uint8."""
    light = np.clip(values, 0.0, 1.0)
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1.0 / 2.4) - 0.055)
    return (255.0 * encoded + 0.5).astype(np.uint8)


def _signed(values: Array) -> Array:
    """Return positive and negative numbers as red and blue, the largest in full colour and 0 white."""
    share = values.astype(np.float64) / max(float(np.abs(values).max(initial=0.0)), 1.0)
    ends = 255.0 - np.where(share >= 0.0, np.array(PLUS), np.array(MINUS))
    return np.asarray(255.5 - np.abs(share) * ends, np.uint8)


_COLORS: Mapping[str, Callable[[Array], Array]] = {
    "depth": pictures.colorize_depth,
    "normals": pictures.colorize_normals,
    "flow": pictures.colorize_flow,
    "light": _displayed,
    "points": lambda points: pictures.colorize_depth(np.linalg.norm(points, axis=-1)),
    "counts": _signed,
}
_TOLD = {"BACKGROUND": "background", "UNLABELLED": "unlabelled"}


def picture_kind(spec: Spec) -> str:
    """Return how a field is drawn; empty if it is not.

    One of: color, light, ids, counts, depth, normals, flow, points, boxes.
    """
    axes, shape, kind = spec["axes"], own_shape(spec), np.dtype(spec["dtype"]).kind
    if list(axes[-2:]) == ["box", "value"]:
        return "boxes"
    if spec.get("role") != "image" or len(shape) != 3 or 0 in shape:
        return ""
    channels = shape[2]
    if kind in "iu":
        is_color = spec["dtype"] == "uint8" and channels in (3, 4)
        if is_color or spec.get("kind") == "id":
            return "color" if is_color else "ids" if channels in (1, 2) else ""
        return "counts" if channels == 1 else ""
    vectors = {"uv": "flow", "rgb": "light", "xyz": "points" if spec["unit"] == "m" else "normals"}
    return "depth" if channels == 1 and kind == "f" else vectors.get(axes[-1], "") if kind == "f" else ""


# Colours --------------------------------------------------------------------------------------------------------------


def picture_of(sensor: SensorRecording, spec: Spec, row: int, env: int, zoom: int = 1) -> Array:
    """Return one measured image of a sensor as colours, uint8 `[height * zoom, width * zoom, 3]`.

    Args:
        sensor: the recorded sensor.
        spec: the field, of any `picture_kind` except points.
        row: row of the recording.
        env: column of the env.
        zoom: pixels of the picture along a pixel of the image; lines of boxes are one pixel of the picture wide.
    """
    kind = picture_kind(spec)
    values = captures_of(sensor.measured[spec["name"]], row, env, spec)
    if kind == "boxes":
        ids = {each["name"]: each for each in sensor.info["fields"]}
        below = next((ids[name] for name in IDS if name in ids), None)
        if below is None:
            height, width = sensor.info["constants"]["image_shape"]
            picture: Array = np.full((height * zoom, width * zoom, 3), pictures.MISS, np.uint8)
        else:
            picture = picture_of(sensor, below, row, env, zoom)
        if values.shape[-1] == 6:
            boxes = values[values[:, 0] >= 0.0]
            boxes[:, 3:5] += 1.0  # the far sides of the pixels
            boxes[:, 1:5] *= zoom
            boxes[:, 3:5] -= 1.0
            return pictures.draw_boxes(picture, boxes)
        return pictures.draw_lines(picture, zoom * _edges(sensor, values, row, env).reshape(-1, EDGE_POINTS, 2))
    colors = colored(values, spec, first=2 if _labels(sensor.info, spec) else 0)
    return colors.repeat(zoom, axis=0).repeat(zoom, axis=1)


def colored(values: Array, spec: Spec, *, first: int = 0) -> Array:
    """Return an image `[height, width, channel]` as colours, uint8 `[height, width, 3]`; see `colorize_ids`."""
    kind = picture_kind(spec)
    if kind == "color":
        return pictures.composite(values) if values.shape[2] == 4 else values
    return pictures.colorize_ids(values[..., 0], first=first) if kind == "ids" else _COLORS[kind](values)


def save_frames(recording: Mapping[str, SensorRecording], folder: str | os.PathLike[str], env: int = 0) -> list[Path]:
    """Write the last measured image of each camera and data type as ``FOLDER/SENSOR.FIELD.png``; return the paths.

    Args:
        recording: the recording.
        folder: created if missing.
        env: id of the environment.

    Raises:
        MissingDependencyError: Pillow is not installed.
        UnknownNameError: the env was not recorded.
    """
    written = []
    for sensor in recording.values():
        specs = [spec for spec in sensor.info.get("fields", ()) if picture_kind(spec) not in ("", "points")]
        column = column_of(sensor, env) if specs else 0
        arrivals = sensor.pairs(column)[0] if specs else np.zeros(0, np.int64)
        for spec in specs if len(arrivals) else ():
            name = f"{sensor.name}.{spec['name']}.png".replace("/", "_")
            written.append(pictures.save_image(Path(folder) / name, picture_of(sensor, spec, arrivals[-1], column)))
    return written


def image_fields(specs: tuple[FieldSpec, ...]) -> list[str]:
    """Return the names of a sensor's images, those in colour first."""
    images = [spec for spec in specs if picture_kind(spec.to_dict()) not in ("", "boxes")]
    return [spec.name for spec in sorted(images, key=lambda spec: spec.dtype != "uint8" or spec.kind == "id")]


def image_of(reading: Reading, field: str, *, truth: bool) -> Array | None:
    """Return an image of the first environment and mount as uint8 `[height, width, 3]`; None without pixels."""
    spec = next(spec for spec in reading.specs if spec.name == field)
    values = (reading.truth if truth and reading.truth else reading.measured)[field][0]
    if spec.axes[:1] == ("mount",):
        values = values[0]
    every = 1 + (max(values.shape[:2]) - 1) // MAX_PIXELS
    pixels = values[::every, ::every]
    return np.ascontiguousarray(colored(pixels, spec.to_dict())) if pixels.size else None


# Keys -----------------------------------------------------------------------------------------------------------------


def _labels(info: Mapping[str, Any], spec: Spec) -> Mapping[str, Any]:
    """Return id or colour as text -> its label; empty for fields without labels."""
    of_field = info.get("constants", {}).get("labels", {}).get(spec["name"], {})
    found: Mapping[str, Any] = of_field.get("idToLabels", {})
    return found


def id_shares(info: Mapping[str, Any], spec: Spec, values: Array) -> list[tuple[str, tuple[int, ...], float]]:
    """Return the parts of an image of ids or of their colours, the largest first: label, colour and share of pixels.

    Args:
        info: description of the sensor.
        spec: the field.
        values: the image, `[height, width, channel]`.
    """
    labels, names = _labels(info, spec), info.get("constants", {}).get("geom_names", ())
    names = names if spec["name"] in ("geom_ids", "segmentation") else ()
    is_color = values.dtype == np.uint8 and values.shape[-1] == 4
    pixels = values.reshape(-1, 4) if is_color else values.reshape(-1, values.shape[-1])[:, :1]
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    shares = []
    for each, count in sorted(zip(found.tolist(), counts.tolist(), strict=True), key=lambda pair: -pair[1]):
        ids = np.array([each])
        color = pictures.composite(each) if is_color else pictures.colorize_ids(ids, first=2 if labels else 0)[0]
        key = str(tuple(each)) if is_color else str(each[0])
        label = labels.get(key, key)
        if not is_color and not labels:
            missed = "background" if names else "none"
            label = missed if each[0] < 0 else names[each[0]] if each[0] < len(names) else key
        shares.append((_worded(label), tuple(np.ravel(color).tolist()), count / len(pixels)))
    return shares


def _worded(label: Any) -> str:
    """Return a label as short text: a name, or the labels by their types, without the type ``class``."""
    parts = [label] if isinstance(label, str) else [
        name if kind == "class" else f"{kind}: {name}" for kind, name in label.items()
    ]  # fmt: skip
    return ", ".join(_TOLD.get(part, part) for part in parts)


# Drawing --------------------------------------------------------------------------------------------------------------


def draw_row(figure: Any, sensor: SensorRecording, specs: Sequence[Spec], env: int, row: int) -> None:
    """Draw measured images beside each other, each with its key below.

    Args:
        figure: a figure or subfigure of Matplotlib.
        sensor: the recorded sensor.
        specs: at most three fields.
        env: column of the env.
        row: row of the recording.
    """
    panels = panels_of(figure, (1.0,) * IN_ROW)
    for axes, spec in zip(panels, specs, strict=False):
        _draw_picture(axes, sensor, spec, row, env)
    for axes in panels[len(specs) :]:
        axes.set_axis_off()


def _draw_picture(axes: Any, sensor: SensorRecording, spec: Spec, row: int, env: int) -> None:
    """Draw one measured image with its key; see `draw_row`."""
    kind, values = picture_kind(spec), captures_of(sensor.measured[spec["name"]], row, env, spec)
    axes.set_anchor("NW")
    axes.tick_params(labelbottom=False, labelleft=False, length=0.0)
    if kind == "depth":
        depth = shown_values(sensor, spec, values[..., 0])
        panel(axes, depth, name_and_unit(spec), pictures.depth_range(values), "viridis_r")
        return
    height, width = sensor.info["constants"]["image_shape"] if kind == "boxes" else values.shape[:2]
    picture = picture_of(sensor, spec, row, env, zoom=max(1, round(SHARP / width)))
    axes.imshow(picture, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    name_panel(axes, name_and_unit(spec))
    if kind == "ids" or (kind == "color" and _labels(sensor.info, spec)):
        _add_key(axes, [(name, color) for name, color, _ in id_shares(sensor.info, spec, values)])
    elif kind == "counts":
        largest = int(np.abs(values.astype(np.int64)).max(initial=0))
        _add_key(axes, [(f"+{largest}", PLUS), (f"-{largest}", MINUS)] if largest else [])
    elif kind == "normals":
        colors = pictures.colorize_normals(np.concatenate([np.eye(3), -np.eye(3)])).tolist()
        _add_key(axes, list(zip(("+x", "+y", "+z", "-x", "-y", "-z"), colors, strict=True)))
    elif kind == "flow":
        _add_wheel(axes, pictures.flow_length(values))
    elif kind == "boxes":
        _name_boxes(axes, sensor, spec, values, row, env)


def _add_key(axes: Any, entries: Sequence[tuple[str, Sequence[int]]]) -> None:
    """Add patches of colours with their names below an image; the last entry counts those without space."""
    from matplotlib.patches import Patch

    shown = list(entries[:MAX_KEYS] if len(entries) <= MAX_KEYS else entries[: MAX_KEYS - 1])
    handles = [
        Patch(facecolor=tuple(np.array(color) / 255.0), edgecolor=INK, linewidth=0.3,
              label=name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…")
        for name, color in shown
    ]  # fmt: skip
    if len(shown) < len(entries):
        handles.append(Patch(facecolor="none", label=f"and {len(entries) - len(shown)} more"))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.0, -0.01), ncols=2, fontsize=6.5, handlelength=0.9,
        handleheight=0.9, handletextpad=0.4, columnspacing=0.9, labelspacing=0.25,
    )  # fmt: skip


def _add_wheel(axes: Any, longest: float) -> None:
    """Add the colours of all directions of motion below an image, and the length of the strongest colour."""
    flow = np.stack(np.meshgrid(*2 * [np.linspace(-1.0, 1.0, 96)]), axis=-1)
    colors = pictures.colorize_flow(flow, 1.0)
    colors[np.hypot(flow[..., 0], flow[..., 1]) > 1.0] = 255
    wheel = axes.inset_axes((0.0, -0.34, 0.25, 0.32))
    wheel.imshow(colors)
    wheel.set_anchor("NW")
    wheel.set_axis_off()
    text = f"direction of motion; the strongest\ncolor is {longest:.3g} px or more"
    axes.text(0.25, -0.17, text, transform=axes.transAxes, fontsize=6.5, va="center")


# Boxes ----------------------------------------------------------------------------------------------------------------


def _name_boxes(axes: Any, sensor: SensorRecording, spec: Spec, boxes: Array, row: int, env: int) -> None:
    """Write the label of each box at its upper left corner, or at the highest point of a 3-D box."""
    labels, (height, width) = _labels(sensor.info, spec), sensor.info["constants"]["image_shape"]
    boxes = boxes[boxes[:, 0] >= 0.0].astype(np.float64)
    corners = boxes[:, 1:3]
    if boxes.shape[-1] != 6:
        points = _edges(sensor, boxes, row, env).reshape(len(boxes), -1, 2)
        highest = np.nan_to_num(points[..., 1], nan=np.inf).argmin(axis=1)
        corners = points[np.arange(len(boxes)), highest]
        if sensor.info["constants"]["lens"]["kind"] != "pinhole":
            name_panel(axes, f"{spec['name']}: edges need a pinhole")
    for id, (left, top) in zip(boxes[:, 0].astype(int).tolist(), corners.tolist(), strict=True):
        if np.isfinite(left):
            edge = pictures.colors_of(id)[:3] / 255.0
            box = {"facecolor": "#ffffff", "edgecolor": edge, "linewidth": 0.8, "pad": 0.6, "alpha": 0.85}
            text = _worded(labels.get(str(id), ""))
            axes.text(np.clip(left, 0.0, width), np.clip(top, 0.0, height), text, fontsize=5.5, clip_on=True, bbox=box)


def _edges(sensor: SensorRecording, boxes: Array, row: int, env: int) -> Array:
    """Return the edges of 3-D boxes in the image of a pinhole, `[box, 12, point, 2]`, px.

    They are NaN behind the camera, and for other lenses, whose projection a recording does not have.
    """
    fields = {spec["name"]: spec for spec in sensor.info["fields"]}
    pos, quat, k = (
        captures_of(sensor.measured[name], row, env, fields[name]).astype(np.float64)
        for name in ("pos_w", "quat_w_world", "intrinsic_matrices")
    )
    seen = rotate(quat * INVERSE, pictures.box_edges(boxes, EDGE_POINTS) - pos)
    is_seen = (seen[..., :1] > 1e-3) & (sensor.info["constants"]["lens"]["kind"] == "pinhole")
    depth = np.where(is_seen, seen[..., :1], np.nan)
    plane = np.concatenate([-seen[..., 1:] / depth, np.ones_like(depth)], axis=-1)
    pixels: Array = (plane @ k.T)[..., :2]
    return pixels
