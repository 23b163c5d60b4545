"""Readings survive a message bit for bit; serializers are found by the type name of the data."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from wire_messages import DENSE, FIELDS, RAGGED, field_message, make_info, make_message, make_reading, spec

import sensorium as sn
from sensorium import plugins
from sensorium.errors import RegistrationError, SensoriumWarning, UnknownNameError, WireError
from sensorium.plugins import Plugins
from sensorium.readings import Reading
from sensorium.wire import serializers
from sensorium.wire.data import ArrayData, RawData, empty
from sensorium.wire.header import type_id
from sensorium.wire.serializers import FieldSerializer, Serializer, by_name, read_message
from sensorium.wire.stream_info import StreamInfo, plan


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test define serializers that are forgotten after it."""
    table, fresh = serializers._serializers, Plugins(serializers.ENTRY_POINT_GROUP, "serializer", serializers.OURS)
    fresh.tables.append(table)
    table.registered()  # the built-in ones are defined outside of a test
    monkeypatch.setattr(table, "plugins", fresh)
    monkeypatch.setattr(table, "data", dict(table))
    yield


def define(type_name: str, **body: Any) -> type[Serializer]:
    methods = {"serialize": staticmethod(lambda sensor, *data: b""), "deserialize": staticmethod(lambda raw: None)}
    return type("Made", (Serializer,), {"__module__": "made", "type_name": type_name, **methods, **body})


# Layout ---------------------------------------------------------------------------------------------------------------

SPECS = {"dense": DENSE, "ragged": RAGGED, "one": (spec("distance"),), "none": ()}


@pytest.mark.parametrize("case", SPECS)
@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("envs", [0, 1, 4, 65])
def test_blocks_are_aligned_disjoint_and_complete(case: str, truth: bool, envs: int) -> None:
    specs = SPECS[case]
    layout = plan(specs, envs, 11, truth)
    assert [block.offset % 64 for block in layout.blocks] == [0] * len(layout.blocks)
    covered = np.zeros(layout.nbytes, np.int64)
    for block in layout.blocks:
        nbytes = np.zeros(block.shape, block.dtype).nbytes
        assert block.dtype.newbyteorder("<") == block.dtype
        covered[block.offset : block.offset + nbytes] += 1
    for begin, end in layout.gaps:
        covered[begin:end] += 1
        assert 0 < end - begin < 64
    assert (covered == 1).all()
    expected = {each.name: (11, *each.shape[1:]) if each.is_ragged else (envs, *each.shape) for each in specs}
    for branch in ("measured", "truth"):
        found = {block.name: block.shape for block in layout.blocks if block.branch == branch}
        assert found == (expected if truth or branch == "measured" else {})


def test_layout_matches_the_protocol() -> None:
    """The layout is pinned: both sides must agree on it, whichever version they run."""
    layout = plan((spec("a", ("xyz",), (3,)), *RAGGED[:2]), 5, 11, True)
    assert {(block.branch, block.name): block.offset for block in layout.blocks} == {
        ("meta", "capture_tick"): 0, ("meta", "stamp"): 64, ("meta", "age"): 128, ("meta", "frame"): 192,
        ("meta", "valid"): 256, ("meta", "is_new"): 320, ("meta", "offsets"): 384, ("measured", "a"): 448,
        ("measured", "count"): 512, ("measured", "point"): 576, ("meta", "truth_tick"): 576 + 192, ("truth", "a"): 832,
        ("truth", "count"): 896, ("truth", "point"): 960,
    }  # fmt: skip
    assert layout.nbytes == 960 + 11 * 3 * 4


# Round trips ----------------------------------------------------------------------------------------------------------


def assert_equal(data: Reading, reading: Reading, first: int, count: int, truth: bool) -> None:
    """Compare every bit that a listener sees with the reading."""
    part = slice(first, first + count)
    for what in ("capture_tick", "stamp", "age", "captures", "valid", "is_new"):
        got, expected = getattr(data, what), getattr(reading, what)[part]
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes(), what
    branches = [(data.measured, reading.measured)]
    if truth:
        assert data.truth_tick.tobytes() == reading.truth_tick[part].tobytes()
        branches.append((data.truth, reading.truth))
    else:
        assert not data.truth
    for seen, values in branches:
        for each in reading.specs:
            rows = part
            if each.is_ragged:
                assert reading.offsets is not None
                rows = slice(int(reading.offsets[first]), int(reading.offsets[first + count]))
            assert seen[each.name].dtype == np.dtype(each.dtype)
            assert seen[each.name].shape == values[each.name][rows].shape
            assert seen[each.name].tobytes() == values[each.name][rows].tobytes(), each.name
    assert data.env_ids.tolist() == reading.env_ids[part].tolist()


@pytest.mark.parametrize("case", ["dense", "ragged", "one"])
@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 2), (3, 1), (2, 0)])
def test_reading_round_trips_bit_identically(case: str, truth: bool, first: int, count: int) -> None:
    reading = make_reading(SPECS[case])
    data = read_message(field_message(reading, first, count, truth), make_info(SPECS[case]))
    assert isinstance(data, Reading)
    assert_equal(data, reading, first, count, truth)


def test_ragged_rows_of_no_env_and_of_envs_without_rows() -> None:
    reading = make_reading(RAGGED)
    reading._measured["count"][:] = 0
    data = read_message(field_message(reading), make_info(RAGGED))
    assert isinstance(data, Reading)
    assert data.offsets is not None
    assert data.offsets.tolist() == [0] * 5
    assert data.point.shape == (0, 3)
    assert data.rows(2) == slice(0, 0)


def test_scene_reading_round_trips_bit_identically() -> None:
    """The reading is that of an IMU with noise, delay and two mounts, from `scene.publish()`."""
    engine = sn.TensorEngine(3, 0.005, bodies=["a", "b"], provides=("pose", "velocity", "acceleration", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", bodies=["a", "b"], noise={"lin_acc_b": 0.1}, delay=0.01)], seed=1)
    for tick in range(5):
        engine.body_lin_acc_w[:] = float(tick)
        scene.update()
    reading = scene.publish()["imu"]
    assert reading.specs[0].shape[0] == 2
    data = read_message(field_message(reading, 1, 2, True), make_info(reading.specs, 3))
    assert isinstance(data, Reading)
    assert_equal(data, reading, 1, 2, True)
    assert not np.array_equal(data.lin_acc_b, data.truth.lin_acc_b)  # type: ignore[union-attr]


def test_padding_between_blocks_is_zeroed() -> None:
    """Two messages of a reading are therefore equal, and reused memory leaks nothing of other streams."""
    reading = make_reading(DENSE)
    bodies = []
    for filler in (0x00, 0xFF):
        layout = plan(DENSE, 4, 0, True)
        memory = empty(layout.nbytes)
        memory[:] = filler
        FieldSerializer.write(reading.name, reading.arrays(), 0, 4, layout, memory.data)
        bodies.append(memory.tobytes())
    assert bodies[0] == bodies[1]


def test_write_refuses_arrays_that_contradict_the_specs() -> None:
    """Nothing is converted or broadcast."""
    reading = make_reading((spec("force", ("xyz",), (3,)),))
    reading._measured["force"] = reading._measured["force"].astype(np.float64)
    with pytest.raises(WireError, match=r"force is float64 \[4, 3\], not float32 \[4, 3\] as its spec says"):
        FieldSerializer.serialize(reading)
    reading._measured["force"] = np.zeros((4, 1), np.float32)
    with pytest.raises(WireError, match=r"force is float32 \[4, 1\], not float32 \[4, 3\] as its spec says"):
        FieldSerializer.serialize(reading)


def test_a_body_begins_at_a_multiple_of_64() -> None:
    assert FieldSerializer.serialize(make_reading()).ctypes.data % 64 == 0


# Registry -------------------------------------------------------------------------------------------------------------


class Distances(ArrayData):
    dtype = np.float32


def test_defining_a_class_registers_it() -> None:
    class DistanceSerializer(Serializer):
        type_name = "test.Distances/1"

        @staticmethod
        def serialize(sensor: Any, distances: list[float]) -> Any:
            return np.asarray(distances, np.float32)

        @staticmethod
        def deserialize(raw: RawData) -> Distances:
            return Distances(raw)

    assert by_name("test.Distances/1") is DistanceSerializer
    assert serializers.registered()["test.Distances/1"] is DistanceSerializer
    info = make_info((), type_name="test.Distances/1")
    data = read_message(make_message(info, DistanceSerializer.serialize(None, [1.5, 0.25])), info)
    assert isinstance(data, Distances)
    assert list(data) == [1.5, 0.25]


def test_numbers_of_types_are_stable() -> None:
    """The numbers are pinned: recorded messages and other versions contain them."""
    assert type_id("sensorium.fields/1") == 0x15FBB7F7DC1510EB
    assert by_name("sensorium.fields/1") is FieldSerializer
    assert sn.Serializer is Serializer


@pytest.mark.parametrize("name", [None, 3, "", "no version", "x/", "x/one", "a b/1", "x/1\n"])
def test_a_type_has_a_name_and_a_version(name: Any) -> None:
    with pytest.raises(RegistrationError, match=r"type_name: got .*, expected a name and a version"):
        define(name)
    with pytest.raises(RegistrationError, match="type_name: got None"):
        type("Nameless", (Serializer,), {})


def test_both_methods_must_be_static() -> None:
    with pytest.raises(RegistrationError, match=r"Made\.serialize must be defined, as a @staticmethod"):
        define("test.A/1", serialize=lambda self: b"")
    with pytest.raises(RegistrationError, match=r"Lacking\.deserialize must be defined, as a @staticmethod"):
        type("Lacking", (Serializer,), {"type_name": "test.A/1", "serialize": staticmethod(lambda sensor: b"")})
    assert "test.A/1" not in serializers.registered()


def test_duplicate_type_name_raises_and_keeps_the_first() -> None:
    first = define("test.A/1", __qualname__="First")
    with pytest.raises(
        RegistrationError, match=r"made\.Second has the type_name 'test\.A/1', which made\.First already has"
    ):
        define("test.A/1", __qualname__="Second")
    assert by_name("test.A/1") is first
    with pytest.raises(
        RegistrationError, match=r"Derived has the type_name 'test\.A/1', which made\.First already has"
    ):
        type("Derived", (first,), {})


def test_redefined_class_replaces_the_old_one() -> None:
    define("test.A/1")
    again = define("test.A/1")
    assert by_name("test.A/1") is again


def test_unknown_type_error_suggests_the_nearest_and_a_fix() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'sensorium\.field/1'\. Did you mean 'sensorium\.fields/1'.*Import the"
    ):
        by_name("sensorium.field/1")


def test_version_mismatch_of_a_type_is_reported() -> None:
    define("test.A/2")
    define("test.A/3")
    with pytest.raises(
        UnknownNameError,
        match=r"This process has version 2, 3 of 'test\.A', but the other side sends version 1",
    ):
        by_name("test.A/1")


def test_a_message_of_another_type_or_stream_is_a_wire_error() -> None:
    define("test.A/1")
    reading = make_reading()
    with pytest.raises(WireError, match=r"stream 'unit' has data of type 0x[0-9a-f]{16} instead of 'test\.A/1'"):
        read_message(field_message(reading), make_info(type_name="test.A/1"))
    info = StreamInfo(8, "other", "test", FIELDS, DENSE, num_envs=4)
    with pytest.raises(WireError, match=r"stream 8 \('other'\) received a message that belongs to stream 7"):
        read_message(field_message(reading), info)


def test_random_and_mutated_messages_raise_only_wire_errors() -> None:
    generator = random.Random(3)
    whole = field_message(make_reading(RAGGED), truth=True).tobytes()
    info, accepted = make_info(RAGGED), 0
    for _ in range(800):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(128 if generator.random() < 0.7 else len(data))] = generator.randrange(256)
        if generator.random() < 0.2:
            data = data[: generator.randrange(len(data))]
        try:
            read_message(bytes(data), info)
        except WireError:
            continue
        accepted += 1
    assert 300 < accepted < 2700


# Installed packages ---------------------------------------------------------------------------------------------------

GOOD = """
from sensorium import Serializer
from sensorium.client import ArrayData

class Wind(ArrayData):
    dtype = "f4"

class WindSerializer(Serializer):
    type_name = "wind.Wind/1"

    @staticmethod
    def serialize(sensor, wind):
        return wind

    @staticmethod
    def deserialize(raw):
        return Wind(raw)
"""

USE = """
import warnings
from sensorium import plugins
from sensorium.wire import serializers
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert "wind.Wind/1" not in serializers._serializers
    assert serializers.by_name("wind.Wind/1").__name__ == "WindSerializer"
    events = {f"sensorium.{name}Event/1" for name in ("SafeDistance", "Obstacle", "Collision")}
    ours = {"sensorium.fields/1", *events}
    assert set(serializers.registered()) == {*ours, "wind.Wind/1"}
for each in caught:
    print(each.category.__name__, each.message)
try:
    serializers.by_name("half.Half/1")
except KeyError as error:
    print("KeyError", error)
"""


def plugin(folder: Path, name: str, text: str) -> None:
    """Write the files of an installed package with a serializer module."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    info = folder / f"p_{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: p-{name}\nVersion: 0.1\n", encoding="utf-8")
    entry = f"[sensorium.serializers]\n{name} = {name}\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


def test_installed_serializers_are_found_and_broken_ones_are_named(tmp_path: Path) -> None:
    """A broken plugin leaves no partial registration and does not prevent the discovery of others."""
    plugin(tmp_path, "wind", GOOD)
    plugin(tmp_path, "half", GOOD.replace("wind.Wind", "half.Half") + "\nraise RuntimeError('not today')\n")
    plugin(tmp_path, "leaves", "raise SystemExit(3)\n")
    plugin(tmp_path, "takes", GOOD.replace("wind.Wind/1", "sensorium.fields/1"))
    paths = [str(tmp_path), str(Path(__file__).parents[2] / "src")]
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *warned, unknown = done.stdout.splitlines()
    assert len(warned) == 3
    assert warned[0] == (
        "SensoriumWarning the serializer plugin 'half' of p-half 0.1 (half) could not be loaded and is ignored: "
        f"RuntimeError: not today ({tmp_path / 'half.py'}:{len(GOOD.splitlines()) + 2}). "
        "Mend or update it, or remove it: pip uninstall p-half."
    )
    assert "'leaves' of p-leaves 0.1 (leaves) could not be loaded and is ignored: SystemExit: 3" in warned[1]
    assert "'takes' of p-takes 0.1" in warned[2]
    assert (
        "has the type_name 'sensorium.fields/1', which sensorium.wire.serializers.FieldSerializer already has"
        in warned[2]
    )
    assert unknown.startswith("KeyError unknown type of data 'half.Half/1'.")
    assert "It may be in a plugin that is broken: the serializer plugin 'half' of p-half 0.1" in unknown


def test_concurrent_lookups_load_plugins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads see the plugin's definitions, including threads that arrive during its import."""
    loads: list[str] = []
    inside = threading.Event()
    proceed = threading.Event()

    def load() -> None:
        loads.append("once")
        inside.set()
        assert proceed.wait(120.0)
        define("test.Slow/1")

    point = SimpleNamespace(name="slow", value="slow", dist=None, load=load)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    found: list[type[Serializer]] = []
    threads = [threading.Thread(target=lambda: found.append(by_name("test.Slow/1"))) for _ in range(4)]
    threads[0].start()
    assert inside.wait(120.0)
    for thread in threads[1:]:
        thread.start()
    proceed.set()
    for thread in threads:
        thread.join(120.0)
    assert loads == ["once"]
    assert [cls.type_name for cls in found] == ["test.Slow/1"] * 4


def test_a_broken_plugin_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no such thing")

    point = SimpleNamespace(name="gone", value="gone.module", dist=None, load=load)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    with pytest.warns(SensoriumWarning, match=r"plugin 'gone' \(gone\.module\) could not be loaded .*: no such thing"):
        serializers.registered()
    (plugin,) = serializers._serializers.plugins.broken
    text = str(plugin)
    assert "ImportError: no such thing" in text


def test_a_message_carries_its_flags_and_rows() -> None:
    data = read_message(field_message(make_reading(RAGGED), truth=True), make_info(RAGGED))
    assert isinstance(data, Reading)
    assert data.truth
    assert data.offsets is not None
    assert data.offsets[-1] == len(data["point"])
