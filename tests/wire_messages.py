"""Readings and messages for tests of listeners: random numbers from a fixed seed in fields of all types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec
from sensorium.wire.data import empty
from sensorium.wire.header import TRUTH, Header, begin_message, type_id
from sensorium.wire.serializers import FieldSerializer
from sensorium.wire.stream_info import StreamInfo

FIELDS = "sensorium.fields/1"


def spec(name: str, axes: Sequence[str] = (), shape: Sequence[int] = (), dtype: str = "float32") -> FieldSpec:
    return FieldSpec(name, tuple(axes), tuple(shape), dtype, "1", "", "vector", "scalar")


DENSE = (
    spec("force", ("mount", "xyz"), (2, 3)),
    spec("height", (), ()),
    spec("image", ("height", "width", "channel"), (3, 5, 1), "uint8"),
    spec("label", ("ray",), (7,), "int32"),
    spec("stamp_ns", (), (), "int64"),
    spec("contact", ("mount",), (2,), "bool"),
    spec("precise", ("xyz",), (3,), "float64"),
)
"""Fields of every type that sensors use."""

RAGGED = (
    spec("count", (), (), "int32"),
    spec("point", ("event", "xyz"), (9, 3)),
    spec("body", ("event",), (9,), "int32"),
)
"""Fields of a sensor with events: `count` gives the number of events of each env, at most 9."""


def values_of(field: FieldSpec, envs: int, generator: np.random.Generator) -> Array:
    """Return random bits for a field, including bit patterns of non-finite floats."""
    dtype = np.dtype(field.dtype)
    shape = (envs, *field.shape)
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(np.bool_)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(generator.bytes(size), dtype).reshape(shape).copy()


def make_reading(specs: tuple[FieldSpec, ...] = DENSE, envs: int = 4, seed: int = 0) -> Reading:
    """Return a reading of random bits, with ragged rows where a field has an event axis."""
    generator = np.random.default_rng(seed)
    measured = {each.name: values_of(each, envs, generator) for each in specs}
    truth = {each.name: values_of(each, envs, generator) for each in specs}
    ragged = any(each.is_ragged for each in specs)
    if ragged:
        measured["count"] = truth["count"] = generator.integers(0, 5, envs).astype(np.int32)
    meta = {
        "capture_tick": generator.integers(0, 1000, envs),
        "truth_tick": generator.integers(0, 1000, envs),
        "stamp": generator.normal(size=envs),
        "age": generator.normal(size=envs),
        "valid": generator.integers(0, 2, envs).astype(np.bool_),
        "is_new": generator.integers(0, 2, envs).astype(np.bool_),
        "frame": generator.integers(0, 1000, envs),
    }
    return Reading(
        "unit", "test", specs, np.arange(envs), 120, 0.6, measured, truth, meta, _count="count" if ragged else ""
    )


def make_info(
    specs: tuple[FieldSpec, ...] = DENSE, envs: int = 4, type_name: str = FIELDS, **kwargs: Any
) -> StreamInfo:
    return StreamInfo(7, "unit", "test", type_name, specs, num_envs=envs, **kwargs)


def make_message(info: StreamInfo, body: Any = b"", poses: Array | None = None, **numbers: int) -> Array:
    """Return a message as received: aligned, read-only bytes."""
    body = np.frombuffer(body, np.uint8) if isinstance(body, bytes) else np.asarray(body).reshape(-1).view(np.uint8)
    header = Header(
        type_id=type_id(info.type_name),
        stream=info.id,
        num_envs=numbers.pop("num_envs", info.num_envs if poses is None else len(poses)),
        poses=0 if poses is None else poses.shape[1],
        body_bytes=len(body),
        **numbers,
    )
    memory = empty(header.body_offset + header.body_bytes)
    rest = begin_message(memory, header, 0.0 if poses is None else poses)
    np.frombuffer(rest, np.uint8)[:] = body
    memory.flags.writeable = False
    return memory


def field_message(
    reading: Reading, first: int = 0, count: int | None = None, truth: bool = False, poses: Array | None = None
) -> Array:
    """Return the message for some envs of a reading."""
    count = len(reading.env_ids) - first if count is None else count
    body = FieldSerializer.serialize(reading, first, count, truth)
    rows = FieldSerializer.rows(reading, first, count)
    info = make_info(reading.specs, len(reading.env_ids))
    return make_message(
        info, body, poses, flags=TRUTH if truth else 0, rows=rows, first_env=first, num_envs=count, seq=3, frame=41,
        tick=reading.tick, time_ns=600_000_000, capture_ns=595_000_000,
    )  # fmt: skip


def random_poses(envs: int, mounts: int, seed: int = 5) -> Array:
    """Return poses float32 [env, mount, 7]."""
    generator = np.random.default_rng(seed)
    quat = generator.normal(size=(envs, mounts, 4))
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    return np.concatenate([generator.normal(size=(envs, mounts, 3)), quat], axis=-1).astype(np.float32)
