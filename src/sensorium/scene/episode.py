"""The first capture of an episode: for the envs of the reset mask, off the grid, unnoticed by the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sensorium.compute import Clock, Program
from sensorium.compute.clock import FIRST, SAMPLE
from sensorium.scene.schedule import Group, work
from sensorium.sensors.core.base import Sensor


@contextmanager
def starting(clock: Clock, mask: torch.Tensor, lag: int) -> Iterator[None]:
    """In this block, the envs of a bool mask start at the clock's tick; outside, their episode goes on.

    Args:
        clock: the scene's clock.
        mask: bool [env].
        lag: ticks by which the engine's state is older.
    """
    resets = clock.reset_tick.clone()
    try:
        clock.compute.reset_envs.copy_(mask)
        clock.reset_tick.copy_(torch.where(mask, clock.tick, resets))
        clock.set(clock.tick, FIRST, lag)
        yield
    finally:
        clock.reset_tick.copy_(resets)
        clock.set(clock.tick, SAMPLE, lag)


def program_of(sensor: Sensor[Any, Any]) -> Program:
    """Return the program of a sensor's first capture; it is made when it is first needed."""
    if sensor.at_reset is None:
        segments, _ = work(sensor.compute_on, sensor.clock, [sensor], sensor.compute_on.reset_envs)
        sensor.at_reset = Program([(0, segment) for segment in segments])
    return sensor.at_reset


def load_kernels(sensors: Sequence[Sensor[Any, Any]]) -> None:
    """Load all kernels that sensors launch before the first one runs, so that it is known how many are compiled."""
    for sensor in sensors:
        if sensor.is_pure:  # it has no first capture
            group = Group(sensor.rate, [sensor])
            group.work(sensor.compute_on, sensor.clock)
            group.forget()
        else:
            program_of(sensor)
    for compute in dict.fromkeys(sensor.compute_on for sensor in sensors):
        compute.load()


def begin(sensor: Sensor[Any, Any]) -> None:
    """Start a sensor anew for the envs of the reset mask, and capture it for them."""
    mask = sensor.compute_on.reset_envs
    with sensor.compute_on.masked(mask):
        sensor.line.begin_episode()
        if sensor.line.hooks.reset is not None:
            sensor.line.hooks.reset(mask)
    sensor.captures.note_reset(mask)
    if not sensor.is_pure:
        _capture(sensor)


def begin_again(sensor: Sensor[Any, Any]) -> None:
    """Evaluate the first capture of the envs of the reset mask anew: it fills histories and delay lines."""
    sensor.line.restore(sensor.compute_on.reset_envs)
    _capture(sensor)


def _capture(sensor: Sensor[Any, Any]) -> None:
    """Capture a sensor for the envs of the reset mask; hooks in Python see all envs, so the others are kept."""
    program = program_of(sensor)
    if not sensor.line.needs_protection():
        program.run()
        return
    tensors = sensor.line.protected()
    kept = [tensor.clone() for tensor in tensors]
    program.run()
    inside = sensor.compute_on.reset_envs > 0
    for tensor, before in zip(tensors, kept, strict=True):
        tensor.copy_(torch.where(inside.reshape(-1, *(1,) * (tensor.dim() - 1)), tensor, before))


__all__ = ["begin", "begin_again", "load_kernels", "starting"]
