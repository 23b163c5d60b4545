"""What a sensor shows, copied to the host: the only way from sensors to outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene


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
    about = ["capture_tick", "valid", "is_new", "frame"]
    if sensor.buffers.late is not None:
        about.append("truth_tick")
    if any(isinstance(run.cfg, ClockError) for run in sensor.buffers.stages):
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


# When outputs ask, and for what ---------------------------------------------------------------------------------------


class Watch:
    """One callback of `Scene.watch`. It is also a context manager, which closes it.

    Attributes:
        every_tick: while True, `Scene.step` stops at every tick, also where no sensor is due: then a sensor that is
            evaluated on read, and the arrival of a delayed sample, can be seen at each of them.
    """

    def __init__(self, callback: Callable[[], object], every_tick: bool, open_watches: list[Watch]) -> None:
        self._callback, self._open = callback, open_watches
        self.every_tick = every_tick
        open_watches.append(self)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "every tick" if self.every_tick else "where sensors are looked at"
        return f"<Watch {self._callback!r}: {state}>"

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it is called no more."""
        return self not in self._open

    def close(self) -> None:
        """Call it no more, from now on; closing twice does nothing. It may close itself in its callback."""
        if self in self._open:
            self._open.remove(self)


def call_watches(watches: list[Watch]) -> None:
    """Call all watches in order; those that are closed meanwhile are left out.

    Raises:
        Exception: what a callback raised, once all were called; an ExceptionGroup where several did.
    """
    errors: list[Exception] = []
    for watch in watches[:]:
        if not watch.is_closed:
            try:
                watch._callback()
            except Exception as error:
                errors.append(error)
    if len(errors) > 1:
        raise ExceptionGroup("callbacks that watch the scene", errors)
    if errors:
        raise errors[0]


class News:
    """What one output has not yet taken of a scene's sensors; `Scene.news` makes one.

    At first everything is news. ``scene.publish(names, since=news)`` takes what is new and notes that it was taken.

    Args:
        scene: whose sensors.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._taken: WeakKeyDictionary[Sensor[Any, Any], tuple[int, int, int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"News({len(self._taken)} sensor(s) taken before)"

    def of(self, names: Iterable[str] | None = None, *, truth: bool = True) -> list[str]:
        """Return the sensors that have something new, without copying or evaluating anything.

        New is a sample that arrived, and, with `truth`, one that was captured: they differ where a sensor has a delay.
        So is a capture that was made anew, at a reset or after an edit. On CUDA the host does not look at the device:
        there a sample may be said to have arrived at each tick at which it can.

        Args:
            names: sensors to ask about, as for `Scene.publish`. None takes those that `Scene.publish` would.
            truth: whether a capture that has not arrived is news as well: the ground truth has it at once.
        """
        wanted = self._scene.sensors_in_use if names is None else names
        return [name for name in wanted if self._is_new(self._scene[name], truth)]

    def note(self, sensor: Sensor[Any, Any]) -> None:
        """Note that what a sensor shows now was taken."""
        self._taken[sensor] = (*_captures(sensor), sensor.clock.tick)

    def skip(self, sensor: Sensor[Any, Any], tick: int) -> None:
        """Note that what came up to a tick was taken: what came after it is still news.

        For an output that begins to look at a sensor, and wants nothing older.
        """
        captures, off_grid = _captures(sensor)
        if sensor.is_lazy:
            captures = sensor.rate.index(min(tick, sensor.clock.tick))
        elif sensor.buffers.counter.last_tick > tick:
            captures -= 1
        if sensor.buffers.counter.first_at > tick:
            off_grid -= 1
        self._taken[sensor] = captures, off_grid, tick

    def _is_new(self, sensor: Sensor[Any, Any], truth: bool) -> bool:
        taken = self._taken.get(sensor)
        if taken is None:
            return True
        captures, off_grid = _captures(sensor)
        is_delayed = sensor.buffers.late is not None
        if off_grid != taken[1] or (captures != taken[0] and (truth or not is_delayed)):
            return True
        return is_delayed and sensor.has_arrived(taken[2])


def _captures(sensor: Sensor[Any, Any]) -> tuple[int, int]:
    """Return how many captures a sensor has had on its grid and off it; a lazy one has those that it could have."""
    captures = sensor.buffers.counter
    return sensor.rate.index(sensor.clock.tick) if sensor.is_lazy else captures.samples, captures.off_grid
