"""An interrupted step leaves no trace in any kind of sensor: after a reset all behave as if it had finished."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from two_engines import ENVS, MODEL, sensors, start

import sensorium as sn
from sensorium.compute import program
from sensorium.testing.trial import snapshot

UNTIMED = ("collision_events", "contact_sensor", "builtin")
"""Kinds without delay and losses, or declared in the model; they are left unchanged."""
TICKS = 4
EVERY = 9
"""Only each boundary of this many is tried."""


def configs() -> list[Any]:
    return [
        cfg if cfg.kind() in UNTIMED else cfg.replace(delay=0.004, jitter=0.002, loss=0.2, history_length=2)
        for cfg in sensors()
    ]


def made() -> sn.Scene:
    engine = sn.MujocoEngine(MODEL, ENVS)
    scene = sn.Scene(engine, configs(), seed=3)
    start(engine)
    engine.forward()
    return scene


def compare(scene: sn.Scene, twin: sn.Scene, where: str) -> None:
    for name in scene:
        mine, other = snapshot(scene[name]), snapshot(twin[name])
        for key, values in mine.items():
            same = np.array_equal(values.numpy(), other[key].numpy(), equal_nan=values.is_floating_point())
            assert same, f"{where}: {name!r}, {key}"


def test_every_kind_of_sensor_recovers_from_an_interrupt_by_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Successive interrupts before a segment of a step of several ticks are compared with an uninterrupted twin."""
    scene, twin = made(), made()
    generator = torch.Generator().manual_seed(2)
    left = [10**9]
    work = program.Segment.run

    def interrupted(self: program.Segment) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        work(self)

    monkeypatch.setattr(program.Segment, "run", interrupted)
    for k in range(1, 1000, EVERY):
        ctrl = 2.0 * torch.rand(ENVS, scene.engine.ctrl.shape[1], generator=generator) - 1.0
        for each in (scene, twin):
            start(each.engine, own_options=False)
            each.update()
            each.step(ctrl, substeps=3)
        compare(scene, twin, f"before boundary {k}")
        left[0] = k
        try:
            scene.step(ctrl, substeps=TICKS)
        except KeyboardInterrupt:
            left[0] = 10**9
        else:
            left[0] = 10**9
            twin.step(ctrl, substeps=TICKS)
            break
        with pytest.raises(sn.ScheduleError, match=r"step\(\) was interrupted by KeyboardInterrupt"):
            scene["imu"].data  # noqa: B018
        twin.step(ctrl, substeps=scene.engine.tick - twin.tick)
        for each in (scene, twin):
            each.reset()
        compare(scene, twin, f"boundary {k}")
    assert k > 3 * EVERY
    for each in (scene, twin):
        each.step(ctrl, substeps=TICKS)
    compare(scene, twin, "in the end")
