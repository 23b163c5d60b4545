"""What a sensor shows, copied to the host: the only way from sensors to outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from sensorium.compute import pinned
from sensorium.engines.base import Engine
from sensorium.errors import ConfigError
from sensorium.measurement.stages import ClockError
from sensorium.readings import Reading, read_only
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.poses import CapturePoses
from sensorium.spec import BODY_POSE


def env_range(envs: slice | None, num_envs: int) -> range:
    """Return which envs a slice means.

    Raises:
        ConfigError: they are not side by side, or do not exist.
    """
    if envs is None:
        return range(num_envs)
    rows = range(num_envs)[envs]
    ends = [end for end in (envs.start, envs.stop) if end is not None]
    if rows.step != 1 or any(not -num_envs <= end <= num_envs for end in ends):
        expected = f"a slice of step 1 within the {num_envs} environments"
        raise ConfigError.single("Scene.publish", "envs", envs, expected)
    return rows


def without_poses(sensors: Iterable[Sensor[Any, Any]], engine: Engine) -> list[Sensor[Any, Any]]:
    """Return the sensors whose poses are not kept yet and can be; the engine is prepared for that."""
    new = [sensor for sensor in sensors if sensor.buffers.poses is None and sensor.mount is not None]
    if BODY_POSE not in engine.prepared:
        can = engine.grants_late(BODY_POSE) and engine.supports(BODY_POSE) is None
        new = [sensor for sensor in new if can or not CapturePoses.needs_bodies(sensor)]
        if (asks := next(filter(CapturePoses.needs_bodies, new), None)) is not None:
            engine.prepare({BODY_POSE: asks.name})
    return new


def take_reading(sensor: Sensor[Any, Any], envs: range, *, truth: bool, poses: bool) -> Reading:
    """Return a reading; on CUDA its copies are under way and it waits for them when it is looked at.

    Args:
        sensor: the sensor.
        envs: the envs that are copied, side by side.
        truth: whether its ground truth is copied.
        poses: whether the poses that are kept with its samples are.
    """
    compute = sensor.compute_on
    some = slice(envs.start, envs.stop) if len(envs) < compute.num_envs else None

    def copied(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
        """Start a copy on the host, on CUDA into pinned memory, which is filled once `wait` returns."""
        tensor = tensor if some is None else tensor[some]
        if compute.is_cpu:
            return read_only(tensor.numpy().copy())
        host = pinned(tensor.shape, tensor.dtype, compute.device)
        return read_only(host.copy_(tensor, non_blocking=True).numpy())

    def newest(is_measured: bool) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Take the newest sample, also of a sensor whose `data` is its history."""
        sensor.ensure_current(is_measured=is_measured)
        return {name: copied(value) for name, value in sensor.own_tensors(is_measured=is_measured).items()}

    measured, true = newest(is_measured=True), newest(is_measured=False) if truth else {}
    ring, stages = sensor.buffers.ring, sensor.buffers.stages
    about = ["capture_tick", "valid", "is_new", "frame"]
    if ring is not None and ring.has_delay:
        about.append("truth_tick")
    if any(isinstance(run.cfg, ClockError) for run in stages):
        about.append("stamp")
    meta = {what: copied(getattr(sensor, what)) for what in about}
    pose = copied(sensor.buffers.poses.shown()) if poses and sensor.buffers.poses is not None else None
    wait: Callable[[], None] | None = None
    if not compute.is_cpu:
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(compute.device))
        wait = event.synchronize
    return Reading(
        name=sensor.name,
        kind=sensor.cfg.kind(),
        specs=sensor.specs,
        env_ids=read_only(np.arange(envs.start, envs.stop)),
        tick=sensor.clock.tick,
        time=sensor.clock.time,
        _measured=measured,
        _truth=true,
        _meta=meta,
        _pose=pose,
        _wait=wait,
        _count="count" if any(spec.is_ragged for spec in sensor.specs) else "",
        _dt=sensor.clock.dt,
    )


_NAMES_OF_IDS = {"geom_ids": "geom_names", "semantic_ids": "semantic_names"}
"""Field with ids -> property of the sensor with the names that they count."""


def describe(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return what a listener needs to know of a sensor once, JSON-able."""
    words = (_NAMES_OF_IDS.get(spec.name, "") for spec in sensor.specs)
    constants = {**sensor.constants, **{word: list(getattr(sensor, word)) for word in words if hasattr(sensor, word)}}
    has_mounts = any(spec.axes[:1] == ("mount",) for spec in sensor.specs)
    return {
        "kind": sensor.cfg.kind(),
        "rate_hz": sensor.info.rate_hz,
        "fields": [spec.to_dict() for spec in sensor.specs],
        **({"mounts": list(sensor.info.mounts)} if has_mounts else {}),
        **({"constants": dict(constants)} if constants else {}),
        "cfg": sensor.cfg.to_dict(),
    }
