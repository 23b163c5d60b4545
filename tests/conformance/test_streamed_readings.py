"""Every kind of sensor is transmitted bit for bit: fields, truth, flags, times, rows of events, and poses.

The world is that of `two_engines`, with every sensor once unchanged and once late and lossy. Captures, stamps, ages and
flags therefore differ between environments.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from streaming import until
from two_engines import ENVS, MODEL, sensors, start
from wire_messages import make_message

import sensorium as sn
from sensorium import registry
from sensorium.readings import Reading
from sensorium.wire.header import TRUTH
from sensorium.wire.serializers import FieldSerializer, for_kind, read_message
from sensorium.wire.stream_info import StreamInfo

TICKS = 12
FRAMES = 8
PARTS = {"all": slice(0, ENVS), "first": slice(0, 1), "last two": slice(1, ENVS)}
CONFIGS = {cfg.label: cfg for cfg in sensors()}
TRUTHFUL = ("collision_events", "contact_sensor")
"""Kinds without delay and losses."""
NATIVE = ("builtin",)
"""Kinds that are declared in the model by their name."""
LATE = {
    f"late {name}": cfg.replace(name=f"late {name}", delay=0.012, loss=0.2)
    for name, cfg in CONFIGS.items()
    if cfg.kind() not in (*TRUTHFUL, *NATIVE)
}
OURS = {cfg.kind() for cfg in registry.registered() if cfg.__module__.startswith("sensorium.")}


@pytest.fixture(scope="module")
def scene() -> sn.Scene:
    engine = sn.MujocoEngine(MODEL, ENVS)
    made = sn.Scene(engine, [*CONFIGS.values(), *LATE.values()], seed=3)
    start(engine)
    engine.forward()
    generator = np.random.default_rng(5)
    for _ in range(TICKS):
        made.step(generator.uniform(-1.0, 1.0, (ENVS, engine.ctrl.shape[1])))
    return made


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def assert_same(data: Reading, reading: Reading, part: slice, truth: bool) -> None:
    """Assert that a listener sees every bit of some environments of a reading."""
    for what in ("capture_tick", "stamp", "age", "captures", "valid", "is_new", "env_ids"):
        got, expected = getattr(data, what), getattr(reading, what)[part]
        assert got.dtype == expected.dtype and bits(got) == bits(expected), what
    assert (data.tick, round(data.time * 1e9)) == (reading.tick, round(reading.time * 1e9))
    assert type(data) is Reading and (data.pose is None) == (reading.pose is None)
    if reading.pose is not None:
        assert data.pose is not None
        assert bits(data.pose) == bits(reading.pose[part])
    assert [*data.measured] == [spec.name for spec in reading.specs] and data.specs == reading.specs
    assert bool(data.truth) == truth
    for branch, values in ((data.measured, reading.measured), *(((data.truth, reading.truth),) if truth else ())):
        for spec in reading.specs:
            rows = part
            if spec.is_ragged:
                assert reading.offsets is not None
                rows = slice(int(reading.offsets[part.start]), int(reading.offsets[part.stop]))
            got, expected = branch[spec.name], values[spec.name][rows]
            assert got.dtype == np.dtype(spec.dtype) and got.shape == expected.shape and bits(got) == bits(expected)
            assert not got.flags.writeable


def test_every_kind_of_sensor_is_covered(scene: sn.Scene) -> None:
    """Each built-in sensor is included, most of them late as well; only some environments have rows of events."""
    assert {cfg.kind() for cfg in CONFIGS.values()} == OURS
    assert {cfg.kind() for cfg in LATE.values()} == OURS - {*TRUTHFUL, *NATIVE}
    late = scene.publish([*LATE])
    assert any((reading.age > 0.0).any() for reading in late.values())
    assert any(bits(reading.capture_tick) != bits(reading.truth_tick) for reading in late.values())
    events = scene.publish(["events"])["events"].offsets
    assert events is not None and 0 < events[-1] and (np.diff(events) == 0).any()


@pytest.mark.parametrize("name", [*CONFIGS, *LATE])
def test_arrays_of_a_reading_are_read_only(name: str, scene: sn.Scene) -> None:
    """All outputs share them: fields of both branches, times, flags, poses and rows of events, also of some envs."""
    for envs in (None, slice(1, 2)):
        reading = scene.publish([name], poses=True, envs=envs)[name]
        arrays = [*reading.measured.values(), *reading.truth.values(), reading.pose, reading.offsets, reading.env_ids]
        arrays += [getattr(reading, what) for what in ("capture_tick", "truth_tick", "stamp", "age", "valid", "is_new")]
        arrays.append(reading.captures)
        for array in arrays:
            assert array is None or not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            reading.age[0] = 1.0


@pytest.mark.parametrize("name", [*CONFIGS, *LATE])
def test_reading_is_bit_identical_after_transport(name: str, scene: sn.Scene) -> None:
    """The stream is described in JSON; the message has all environments or some, with the truth or without."""
    described = scene.description().sensors[name]
    for truth in (False, True):
        reading = scene.publish([name], truth=truth, poses=True)[name]
        stream = StreamInfo(
            7, name, described["kind"], FieldSerializer.type_name, reading.specs, described["rate_hz"],
            tuple(described.get("mounts", ())), cfg=described["cfg"], constants=described.get("constants", {}),
            num_envs=ENVS,
        )  # fmt: skip
        info = StreamInfo.from_dict(json.loads(json.dumps(stream.to_dict())))
        assert info.specs == stream.specs and json.dumps(info.to_dict()) == json.dumps(stream.to_dict())
        for envs in PARTS.values():
            count = envs.stop - envs.start
            poses = None if reading.pose is None else reading.pose[envs].reshape(count, -1, 7)
            message = make_message(
                info, FieldSerializer.serialize(reading, envs.start, count, truth), poses, flags=TRUTH * truth,
                rows=FieldSerializer.rows(reading, envs.start, count), first_env=envs.start, num_envs=count,
                tick=reading.tick, time_ns=round(reading.time * 1e9),
            )  # fmt: skip
            data = read_message(message, info)
            assert isinstance(data, Reading)
            assert_same(data, reading, envs, truth)


def test_listeners_receive_the_scenes_values_in_each_frame(scene: sn.Scene) -> None:
    """This holds with and without truth, for all and some envs. A sensor without a capture in a frame sends nothing.

    Sensors whose serializer sends events of their own type have their own tests.
    """
    got: dict[tuple[int, str], Any] = {}
    marks: list[Any] = []
    shown: dict[int, dict[str, Reading]] = {}
    names = [name for name, cfg in (CONFIGS | LATE).items() if for_kind(cfg.kind()) is FieldSerializer]
    parts = {name: [*PARTS.values()][k % len(PARTS)] for k, name in enumerate(names)}
    truths = {name: k % 2 == 0 for k, name in enumerate(names)}
    generator = np.random.default_rng(6)
    with scene.local_client(timeout=120.0) as client:
        for name in names:
            client.sensors[name].listen(
                lambda data: got.update({(data.frame, data.sensor): data}), policy="lossless", envs=parts[name],
                truth=truths[name],
            )  # fmt: skip
        client.on_frame(marks.append)
        for _ in range(FRAMES):
            frame = client.step(generator.uniform(-1.0, 1.0, (ENVS, scene.engine.ctrl.shape[1])))
            shown[frame] = scene.publish(names, truth=True, poses=True)
        until(lambda: marks and marks[-1].frame == max(shown), "the end of the last frame")
        known = {info.id: name for name, info in client.streams.items()}
        announced = {(mark.frame, known[k]) for mark in marks for k in mark.streams if mark.frame in shown}
        until(lambda: announced <= got.keys(), "the last data")
    assert {key for key in got if key[0] in shown} == announced
    assert not client.errors
    for frame, name in announced:
        assert_same(got[frame, name], shown[frame][name], parts[name], truths[name])
    everything = {**CONFIGS, **LATE}
    events = {name for name, cfg in everything.items() if cfg.kind() in ("collision_events", "event_camera")}
    assert set(names) - {name for _, name in announced} <= events
    received = {name for (frame, name), data in got.items() if name in events and data.offsets[-1]}
    assert received == {name for _, name in announced} & events != set()
