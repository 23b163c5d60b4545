"""Bodies by number, name or pattern, and their poses at a frame."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wire_messages import field_message, make_info, make_reading, spec

from sensorium.errors import ConfigError, UnknownNameError, WireError
from sensorium.pose import Pose
from sensorium.readings import Bodies, Body, Reading
from sensorium.wire.data import RawData
from sensorium.wire.serializers import FieldSerializer
from sensorium.wire.world import Snapshot

BODIES = Bodies(
    [
        Body(0, "world"),
        Body(1, "robot/base", "robot", (0.1, 0.0, 0.2), (0.3, 0.2, 0.1)),
        Body(2, "robot/foot", "robot", (0.0, 0.0, 0.0), (0.05, 0.05, 0.05)),
        Body(3, "box/box", "box"),
    ]
)


def state(envs: int = 2, bodies: int = 4) -> dict[str, Any]:
    """Return arrays in which every body of every env has a different position and a different angle about z."""
    index = np.arange(envs * bodies, dtype=np.float64).reshape(envs, bodies)
    half = 0.05 * index
    return {
        "pos_w": np.stack([index, 2 * index, 3 * index], -1).astype(np.float32),
        "quat_w": np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], -1).astype(np.float32),
        "lin_vel_w": np.stack([-index, index, index], -1).astype(np.float32),
        "ang_vel_w": np.stack([index, -index, index], -1).astype(np.float32),
    }


def snapshot(first: int = 0, **wrong: Any) -> Snapshot:
    return Snapshot(5, 50, 0.25, BODIES, np.arange(first, first + 2), **{**state(), **wrong})


# Bodies ---------------------------------------------------------------------------------------------------------------


def test_bodies_are_found_by_number_and_by_name() -> None:
    assert BODIES[1] is BODIES["robot/base"]
    assert BODIES[np.uint32(3)].name == "box/box"
    assert BODIES[1].type_id == BODIES[1].entity == "robot"
    assert BODIES[1].half_extents == (0.3, 0.2, 0.1)
    assert (list(BODIES), len(BODIES)) == ([0, 1, 2, 3], 4)
    assert BODIES.names == ("world", "robot/base", "robot/foot", "box/box")
    assert 2 in BODIES
    assert "robot/foot" in BODIES
    assert 4 not in BODIES
    assert "robot" not in BODIES
    assert BODIES.get(9) is None


def test_unknown_body_error_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown body 'robot/bas'\. Did you mean 'robot/base'"):
        BODIES["robot/bas"]
    with pytest.raises(UnknownNameError, match=r"unknown body number '17'\. Known: 0 \(world\), 1 \(robot/base\), "):
        BODIES[17]


def test_find_matches_full_names() -> None:
    assert [body.id for body in BODIES.find("robot/.*")] == [1, 2]
    assert [body.id for body in BODIES.find("box/box")] == [3]
    with pytest.raises(UnknownNameError, match=r"unknown body 'robot'\..*A pattern must match a full name"):
        BODIES.find("robot")
    with pytest.raises(ConfigError, match=r"Bodies\.find: got '\(', expected a regular expression"):
        BODIES.find("(")


def test_body_numbers_and_names_must_be_unique() -> None:
    for other in (Body(1, "b"), Body(2, "a")):
        with pytest.raises(ConfigError, match="expected bodies with different numbers and names"):
            Bodies([Body(1, "a"), other])


def test_bodies_round_trip_through_their_description() -> None:
    described = json.loads(json.dumps(BODIES.to_dict()))
    assert Bodies.from_dict(described) == BODIES
    assert Bodies.from_dict(described) != Bodies(list(BODIES.values())[:3])
    assert pickle.loads(pickle.dumps(BODIES)) == BODIES


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"bodies": 3}, {"bodies": [1]}, {"bodies": [{}]}, {"bodies": [{**BODIES[1].to_dict(), "center": [1, 2]}]},
        {"bodies": [{**BODIES[1].to_dict(), "id": "x"}]}, {"bodies": [BODIES[1].to_dict()] * 2},
    ],
)  # fmt: skip
def test_invalid_description_of_bodies_raises_wire_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="description of bodies"):
        Bodies.from_dict(wrong)


# Snapshots ------------------------------------------------------------------------------------------------------------


def test_the_pose_of_a_body_is_that_of_its_row() -> None:
    shot, arrays = snapshot(), state()
    assert shot.pose(2) == shot.pose("robot/foot") == shot.pose(2, env=0)
    assert shot.pose(2).pos == (2.0, 4.0, 6.0)
    assert shot.pose(3, env=1).pos == tuple(arrays["pos_w"][1, 3].tolist())
    assert shot.pose(3, env=1).rot == tuple(arrays["quat_w"][1, 3].tolist())
    assert shot.find(2) is shot.find("robot/foot") is BODIES[2]
    assert repr(shot) == "Snapshot(frame=5, tick=50, time=0.25 s, 2 envs, 4 bodies)"


def test_env_is_given_by_number_and_defaults_to_the_first() -> None:
    shot = snapshot(first=6)
    assert shot.pose(1) == shot.pose(1, env=6) == Pose.from_array([1, 2, 3, *state()["quat_w"][0, 1]])
    assert shot.pose(1, env=7) == Pose.from_array([5, 10, 15, *state()["quat_w"][1, 1]])
    with pytest.raises(IndexError, match=r"the snapshot has no env 0.*6, 7"):
        shot.pose(1, env=0)
    with pytest.raises(UnknownNameError, match="unknown body 'leg'"):
        shot.pose("leg")


def test_body_numbers_can_differ_from_rows() -> None:
    some = Bodies([BODIES[3], BODIES[1]])
    arrays = {name: value[:, [3, 1]] for name, value in state().items()}
    shot = Snapshot(5, 50, 0.25, some, np.arange(2), **arrays)
    assert shot.pose(1) == snapshot().pose(1)
    assert shot.pose(3, env=1) == snapshot().pose(3, env=1)


# From data of a body-state sensor -------------------------------------------------------------------------------------


def body_state(bodies: int | None, envs: int = 2, mounts: tuple[str, ...] = ()) -> Reading:
    lead = ((), ()) if bodies is None else (("mount",), (bodies,))
    specs = tuple(
        spec(name, (*lead[0], "wxyz" if name == "quat_w" else "xyz"), (*lead[1], 4 if name == "quat_w" else 3))
        for name in ("pos_w", "quat_w", "lin_vel_w", "ang_vel_w")
    )
    reading = make_reading(specs, envs)
    for name, value in state(envs, bodies or 1).items():
        reading.measured[name][...] = value.reshape(reading.measured[name].shape)
    return FieldSerializer.deserialize(RawData(field_message(reading), make_info(specs, envs, mounts=mounts)))


@pytest.mark.parametrize("mounts", [(), BODIES.names])
def test_data_of_a_body_state_sensor_are_a_snapshot_without_a_copy(mounts: tuple[str, ...]) -> None:
    data = body_state(4, mounts=mounts)
    shot = Snapshot.of(data, BODIES)
    assert (shot.frame, shot.tick, shot.time) == (41, 120, pytest.approx(0.6))
    assert shot.env_ids.tolist() == [0, 1]
    assert np.shares_memory(shot.pos_w, data.pos_w)
    assert not any(getattr(shot, name).flags.writeable for name in ("env_ids", *state()))
    assert shot.captures is not None
    assert shot.captures.tolist() == data.captures.tolist()
    assert shot.pose("box/box", env=1) == snapshot().pose(3, env=1)
    for name, value in state().items():
        assert getattr(shot, name).tobytes() == value.tobytes()


def test_one_body_without_a_mount_axis_is_a_snapshot_too() -> None:
    data = body_state(None)
    shot = Snapshot.of(data, Bodies([BODIES[1]]))
    assert shot.pos_w.shape == (2, 1, 3)
    assert np.shares_memory(shot.quat_w, data.quat_w)
    assert shot.pose(1, env=1).pos == tuple(data.pos_w[1].tolist())


def test_data_of_other_bodies_or_fields_are_refused_as_snapshot() -> None:
    with pytest.raises(ConfigError, match=r"Snapshot\.bodies: .* expected the mounts of sensor 'unit': a, b, c, d"):
        Snapshot.of(body_state(4, mounts=("a", "b", "c", "d")), BODIES)
    specs = (spec("pos_w", ("mount", "xyz"), (4, 3)), spec("height"))
    data = FieldSerializer.deserialize(RawData(field_message(make_reading(specs)), make_info(specs)))
    with pytest.raises(WireError, match=r"data of 'unit' .*quat_w, lin_vel_w, ang_vel_w"):
        Snapshot.of(data, BODIES)


def test_a_body_is_plain_and_frozen() -> None:
    body = replace(BODIES[1], id=7)
    assert (body.id, body.name) == (7, "robot/base")
    with pytest.raises(AttributeError):
        body.id = 8  # type: ignore[misc]
