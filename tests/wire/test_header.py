"""The 128 bytes before each body: the layout is pinned byte by byte, and invalid headers are refused."""

from __future__ import annotations

import hashlib
import random
import struct

import pytest

from sensorium.errors import StreamError, WireError
from sensorium.wire.header import EVENTS, HEADER_BYTES, TRUTH, Header, aligned, body_offset, type_id

EXAMPLE = Header(
    flags=TRUTH | EVENTS, type_id=0x1122334455667788, stream=0xA1A2A3A4, rows=5, seq=6, frame=2**63 + 7, tick=-8,
    time_ns=-9, capture_ns=10, wall_ns=1_700_000_000_000_000_000, first_env=11, num_envs=3, poses=2,
    body_bytes=40,
)  # fmt: skip


def message(header: Header) -> bytes:
    return header.pack() + bytes(header.body_offset + header.body_bytes - HEADER_BYTES)


def test_header_fields_are_at_their_protocol_offsets_in_little_endian() -> None:
    data = EXAMPLE.pack()
    assert len(data) == HEADER_BYTES == 128
    assert data[:4] == b"SNSR"
    places = {
        4: ("H", 1), 6: ("H", 3), 8: ("Q", EXAMPLE.type_id), 16: ("I", EXAMPLE.stream), 20: ("I", 5), 24: ("Q", 6),
        32: ("Q", 2**63 + 7), 40: ("q", -8), 48: ("q", -9), 56: ("q", 10), 64: ("q", 1_700_000_000_000_000_000),
        72: ("I", 11), 76: ("I", 3), 80: ("I", 2), 84: ("I", 0), 88: ("Q", 40),
    }  # fmt: skip
    for offset, (kind, expected) in places.items():
        assert struct.unpack_from(f"<{kind}", data, offset) == (expected,)
    assert data[96:] == bytes(32)


def test_header_round_trips() -> None:
    assert Header.read(memoryview(message(EXAMPLE))) == EXAMPLE


def test_poses_and_body_begin_at_multiples_of_64() -> None:
    assert [aligned(size) for size in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    assert body_offset(0, 3) == body_offset(5, 0) == 128
    assert body_offset(1, 1) == 192  # 28 bytes of a pose
    assert body_offset(3, 2) == EXAMPLE.body_offset == 128 + 192
    assert EXAMPLE.body_offset + EXAMPLE.body_bytes == 320 + 40


def test_type_number_is_a_stable_hash_of_the_name() -> None:
    assert type_id("sensorium.fields/1") == int.from_bytes(
        hashlib.blake2b(b"sensorium.fields/1", digest_size=8).digest(), "little"
    )
    assert type_id("sensorium.fields/1") == 0x15FBB7F7DC1510EB


def test_header_and_body_can_be_separate() -> None:
    head = memoryview(message(EXAMPLE)[: EXAMPLE.body_offset])
    assert Header.read(head, 40) == EXAMPLE
    with pytest.raises(WireError, match=r"320 and 39 bytes, .* 3 envs, 2 poses of each, and a body of 40"):
        Header.read(head, 39)
    with pytest.raises(WireError, match="360 and 40 bytes"):
        Header.read(memoryview(message(EXAMPLE)), 40)


def test_length_mismatch_with_the_header_is_refused() -> None:
    whole = message(EXAMPLE)
    for wrong in (whole[:-1], whole + b"\0", whole[:128], whole[:319]):
        with pytest.raises(WireError, match="but its header states 3 envs, 2 poses of each, and a body of 40 bytes"):
            Header.read(memoryview(wrong))
    with pytest.raises(WireError, match="127 bytes, which is shorter than a header of 128 bytes"):
        Header.read(memoryview(whole[:127]))
    with pytest.raises(WireError, match="has 0 bytes"):
        Header.read(memoryview(b""))


def test_foreign_bytes_and_other_versions_are_refused() -> None:
    whole = bytearray(message(EXAMPLE))
    whole[4] = 2
    with pytest.raises(WireError, match="header version 2, but this side reads version 1"):
        Header.read(memoryview(whole))
    whole[0] = 0
    with pytest.raises(WireError, match=r"starts with b'.x00NSR' instead of b'SNSR'"):
        Header.read(memoryview(whole))
    with pytest.raises(WireError, match="flags 0x13, of which 0x10 are unknown"):
        Header.read(memoryview(message(EXAMPLE._replace(flags=19))))
    assert issubclass(WireError, StreamError)


@pytest.mark.parametrize(
    "wrong", [{"num_envs": -1}, {"num_envs": 2**32}, {"tick": 2**63}, {"seq": -1}, {"poses": 1.5}, {"flags": 2**16}]
)
def test_oversized_number_is_refused_in_packing(wrong: dict[str, int]) -> None:
    header = EXAMPLE._replace(**wrong)
    with pytest.raises(WireError, match="does not fit into a header"):
        header.pack()


def test_random_and_mutated_bytes_raise_only_wire_errors() -> None:
    generator = random.Random(0)
    whole = message(EXAMPLE)
    accepted = 0
    for _ in range(1500):
        if generator.random() < 0.3:
            data = bytearray(generator.randbytes(generator.randrange(300)))
        else:
            data = bytearray(whole[: generator.randrange(len(whole) + 1)] if generator.random() < 0.3 else whole)
        for _ in range(generator.randrange(4)):
            if data:
                data[generator.randrange(len(data))] = generator.choice((0, 1, 255, generator.randrange(256)))
        try:
            header = Header.read(memoryview(data))
        except WireError:
            continue
        accepted += 1
        assert header.body_offset + header.body_bytes == len(data)
    assert 500 < accepted < 4000  # many mutations concern numbers without restrictions
