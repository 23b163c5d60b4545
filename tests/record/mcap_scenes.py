"""Small scenes to record, and comparison of readings bit by bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.readings import Reading

META = ("env_ids", "capture_tick", "truth_tick", "stamp", "age", "valid", "is_new", "captures", "offsets", "pose")


def scene(envs: int = 5, *, dt: float = 0.002, seed: int = 1) -> sn.Scene:
    """Return a scene with a delayed sensor of two mounts and a slow one of one mount."""
    engine = sn.TensorEngine(num_envs=envs, dt=dt, bodies=["base", "arm"])
    sensors = [
        sn.ImuCfg(
            name="imu", bodies=["base", "arm"], gyro_noise=0.01, delay=0.01, jitter=0.005,
            fields=("ang_vel_b", "lin_acc_b"),
        ),
        sn.BodyStateCfg(name="robot/state", body="base", rate_hz=50.0),
    ]  # fmt: skip
    return sn.Scene(engine, sensors, seed=seed)


@contextmanager
def following(scene: sn.Scene) -> Iterator[list[Reading]]:
    """Collect what a live listener gets at each tick."""
    cursor, found = scene.sample_cursor(), []

    def take() -> None:
        found.extend(scene.publish(since=cursor, poses=True).values())

    with scene.watch(take, every_tick=True):
        take()
        yield found


def bits(array: Any) -> Any:
    return None if array is None else (array.dtype, array.shape, np.ascontiguousarray(array).tobytes())


def assert_same(live: Reading, replayed: Reading, rows: Any = slice(None)) -> None:
    """Assert that two readings agree in every bit, in some environments of the first one."""
    about = ("name", "kind", "specs", "tick", "time")
    assert [getattr(live, name) for name in about] == [getattr(replayed, name) for name in about]
    chosen = np.arange(len(live.env_ids))[rows]
    events = None
    if live.offsets is not None:
        events = np.concatenate([np.arange(*live.offsets[[k, k + 1]]) for k in chosen]).astype(int)
    for name in META:
        first, second = getattr(live, name), getattr(replayed, name)
        if name == "offsets" and first is not None:
            first = np.concatenate(([0], np.cumsum(np.diff(first)[chosen])))
        elif first is not None:
            first = first[chosen]
        assert bits(first) == bits(second), (live.name, name)
        assert second is None or not second.flags.writeable
    for branch in ("measured", "truth"):
        first, second = getattr(live, branch), getattr(replayed, branch)
        assert [*first] == [*second]
        for spec in live.specs:
            part = first[spec.name][events if spec.is_ragged else chosen]
            assert bits(part) == bits(second[spec.name]), (live.name, branch, spec.name)
            assert not second[spec.name].flags.writeable and second[spec.name].flags.aligned


def assert_all_same(live: Iterable[Reading], replayed: Iterable[Reading], rows: Any = slice(None)) -> None:
    for first, second in zip(live, replayed, strict=True):
        assert_same(first, second, rows)
