"""Message mappers of tactile sensors and event cameras."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sensorium.record.ros2.mapping import Channel, Columns, MappedSensor, Samples, message_mapper
from sensorium.record.ros2.names import OPTICAL
from sensorium.spec import VECTOR_AXES, FieldSpec

_TAXELS = ({"probe"}, {"row", "column"}, {"x", "y", "z"})
"""Axes of the taxels or cells of a skin."""


def _is_skin(spec: FieldSpec) -> bool:
    """Return whether a field has a value or vector per taxel, or is one normal force."""
    axes = {axis for axis in spec.axes if axis not in VECTOR_AXES}
    is_array = axes in _TAXELS and spec.unit != "px"
    is_force = not spec.axes and (spec.name, spec.unit) == ("force", "N")
    return (is_array or is_force) and spec.role != "image" and spec.kind != "id"


@message_mapper("tactile_state")
def tactile_state(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield tactile_msgs/TactileState: one array per field and component of a vector, with a value per taxel."""
    skins = [spec for spec in sensor.specs if _is_skin(spec)]
    if not skins:
        return
    arrays: list[tuple[str, FieldSpec, int | None]] = []
    for spec in skins:
        if spec.axes[-1:] and spec.axes[-1] in VECTOR_AXES:
            arrays += [(f"{spec.name}.{axis}", spec, k) for k, axis in enumerate(spec.axes[-1])]
        else:
            arrays.append((spec.name, spec, None))

    def columns(samples: Samples) -> Columns:
        out = {}
        for index, (_, spec, part) in enumerate(arrays):
            values = samples[spec.name]
            out[f"sensors[{index}].values"] = (values if part is None else values[..., part]).reshape(len(samples), -1)
        return out

    values = {
        "sensors": [
            {"name": name, "values": np.zeros(spec.columns // (1 if part is None else spec.shape[-1]))}
            for name, spec, part in arrays
        ]
    }
    yield Channel("tactile_msgs/msg/TactileState", "tactile", tuple(spec.name for spec in skins), values, columns)


@message_mapper("event_packet")
def event_packet(sensor: MappedSensor) -> Iterator[Channel]:
    """Yield event_camera_msgs/EventPacket in the encoding ``mono`` of a sensor with ragged pixel events.

    Its fields are `x` and `y` (px), `polarity` (positive for brighter) and `time_offset` (s, relative to the capture).
    Its constant `image_shape` is (height, width).
    """
    shape = sensor.constants.get("image_shape")
    wanted = ("x", "y", "polarity", "time_offset")
    specs = [sensor.field(name) for name in wanted]
    if shape is None or not all(spec is not None and spec.is_ragged for spec in specs):
        return

    def columns(samples: Samples) -> Columns:
        (x, counts), (y, _), (polarity, _), (offset, _) = (samples.ragged(name) for name in wanted)
        after = np.rint(offset.astype(np.float64) * 1e9).astype(np.int64)
        base = samples.stamps.copy()
        filled = counts > 0
        if filled.any():
            base[filled] += np.minimum.reduceat(after, (np.cumsum(counts) - counts)[filled])
        base = np.maximum(base, 0)
        dt = np.maximum(np.repeat(samples.stamps - base, counts) + after, 0)
        is_brighter = polarity > 0
        packed = is_brighter.astype("<u8") << np.uint64(63)
        for values, shift in ((y, 48), (x, 32), (dt, 0)):
            packed |= values.astype("<u8") << np.uint64(shift)
        return {
            "header.stamp": base, "time_base": base, "seq": samples.frames,
            "events": (packed.view(np.uint8), counts * packed.itemsize),
        }  # fmt: skip

    values = {"height": int(shape[0]), "width": int(shape[1]), "encoding": "mono"}
    yield Channel("event_camera_msgs/msg/EventPacket", "events", wanted, values, columns, "events", frame=OPTICAL)
