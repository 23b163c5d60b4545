"""One-time information about a stream: its sensor, its fields, its rate, and the layout of its readings.

A body of the default serializer starts with the blocks per env: `capture_tick` i64, `stamp` f64 (s), `age` f64 (s),
`frame` i64 (number of captures), `valid` u8 and `is_new` u8. Bodies with ragged fields add `offsets` i64 [env + 1]. The
measured fields follow. With the truth, `truth_tick` i64 per env and the true fields follow. Every block starts at a
multiple of 64 bytes; bytes between blocks are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from sensorium.errors import WireError, listed
from sensorium.spec import FieldSpec
from sensorium.wire.header import aligned

Where = Literal["scene", "server", "client"]
MAX_LAYOUTS = 64
"""Maximum number of layouts that a stream remembers: messages differ in their envs, and in their ragged rows."""


IN_CONSTANTS = ("frames", "prefixes")
"""Entries of `SceneDescription.sensors` that are sent among the constants."""


Branch = Literal["meta", "measured", "truth"]
"""Kind of a block: a value per env, a measured field or a true field."""


class Block(NamedTuple):
    """Array in a body.

    Attributes:
        branch: see `Branch`.
        name: name of the value or field.
        shape: env (or row of a ragged field) first.
        dtype: element type, little endian.
        offset: start of the array relative to the body's first byte, bytes.
        is_ragged: whether it is a ragged field.
    """

    branch: Branch
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_ragged: bool = False


class Layout(NamedTuple):
    """All blocks of a body.

    Attributes:
        blocks: the blocks in order.
        gaps: (start, end) of the bytes between blocks.
        nbytes: size of the body, bytes.
    """

    blocks: tuple[Block, ...]
    gaps: tuple[tuple[int, int], ...]
    nbytes: int


META: Mapping[str, str] = {
    "capture_tick": "<i8",
    "stamp": "<f8",
    "age": "<f8",
    "frame": "<i8",
    "valid": "?",
    "is_new": "?",
}
"""Values of a reading sent for each env, and their element types."""


def plan(specs: tuple[FieldSpec, ...], num_envs: int, rows: int = 0, truth: bool = False) -> Layout:
    """Return the layout of a body.

    Args:
        specs: the sensor's fields, as in its readings.
        num_envs: number of envs in the message.
        rows: total number of rows of the ragged fields in all these envs.
        truth: whether the ground truth is included.
    """
    blocks: list[Block] = []
    gaps: list[tuple[int, int]] = []
    end = 0

    def add(branch: Branch, name: str, dtype: str, *shape: int, ragged: bool = False) -> None:
        nonlocal end
        element, offset = np.dtype(dtype).newbyteorder("<"), aligned(end)
        gaps.extend([(end, offset)] if offset > end else [])
        blocks.append(Block(branch, name, shape, element, offset, ragged))
        end = offset + element.itemsize * prod(shape)

    for name, dtype in META.items():
        add("meta", name, dtype, num_envs)
    if any(spec.is_ragged for spec in specs):
        add("meta", "offsets", "<i8", num_envs + 1)
    branches: tuple[Branch, ...] = ("measured", "truth") if truth else ("measured",)
    for branch in branches:
        if branch == "truth":
            add("meta", "truth_tick", "<i8", num_envs)
        for spec in specs:
            shape = (rows, *spec.shape[1:]) if spec.is_ragged else (num_envs, *spec.shape)
            add(branch, spec.name, spec.dtype, *shape, ragged=spec.is_ragged)
    return Layout(tuple(blocks), tuple(gaps), end)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One-time information about a stream for listeners.

    Attributes:
        id: number of the stream on its server.
        name: the sensor's name.
        kind: the sensor's kind, e.g. ``"imu"``, or the id of its definition.
        type_name: name of the type of its data, e.g. ``"sensorium.fields/1"``; it selects the serializer.
        specs: the fields, if the data have any; the mount axis is squeezed for a singular selector.
        rate_hz: samples per second of simulation time; 0 for events.
        mounts: name of each mount.
        events: whether it sends on events instead of at a rate.
        where: origin of the data: scene, server or client.
        cfg: the sensor's config, read-only; ``dict(info.cfg)`` is JSON-able.
        constants: constant values of the sensor, e.g. the names of ids in its fields, and the entries `IN_CONSTANTS`
            of its description; read-only and JSON-able like `cfg`.
        num_envs: number of environments of the server.
    """

    id: int
    name: str
    kind: str
    type_name: str
    specs: tuple[FieldSpec, ...] = ()
    rate_hz: float = 0.0
    mounts: tuple[str, ...] = ()
    events: bool = False
    where: Where = "scene"
    cfg: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    num_envs: int = 1
    _layouts: dict[tuple[int, int, bool], Layout] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("cfg", "constants"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def layout(self, num_envs: int, rows: int = 0, truth: bool = False) -> Layout:
        """Return the layout of the body of a reading, see `plan`; without hashing the specs for each message."""
        key = num_envs, rows, truth
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[key] = plan(self.specs, *key)
        return layout

    def described(self) -> dict[str, Any]:
        """Return the entry of a sensor of the scene in `SceneDescription.sensors`."""
        constants = dict(self.constants)
        own = {key: constants.pop(key) for key in IN_CONSTANTS if key in constants}
        lists = {"mounts": list(self.mounts), **own, "constants": constants}
        return {
            "kind": self.kind,
            "rate_hz": self.rate_hz,
            "fields": [spec.to_dict() for spec in self.specs],
            **{key: value for key, value in lists.items() if value},
            "cfg": dict(self.cfg),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        changed = {"mounts": list(self.mounts), "cfg": dict(self.cfg), "constants": dict(self.constants)}
        return plain | changed | {"specs": [spec.to_dict() for spec in self.specs]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StreamInfo:
        """Return the stream described by the result of `to_dict`.

        Raises:
            WireError: the values do not describe a stream.
        """
        from sensorium.wire.keywords import convert

        try:
            specs = tuple(FieldSpec.from_dict(each) for each in values["specs"])
            info = convert({**values, "specs": specs}, cls)
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"invalid description of a stream: {type(error).__name__}: {error}") from None
        wrong = [f"dtype of {spec.name}" for spec in specs if np.dtype(spec.dtype).kind not in "biuf"]
        wrong += ["specs"] * (len({spec.name for spec in specs}) != len(specs))
        wrong += [name for name in ("id", "num_envs") if not 0 <= getattr(info, name) < 2**32]
        if wrong:
            raise WireError(f"invalid description of a stream: wrong value of {listed(wrong)} in {values!r:.400}")
        return info

    def __reduce__(self) -> tuple[Any, ...]:
        values = (getattr(self, each.name) for each in fields(self) if each.init)
        return StreamInfo, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)
