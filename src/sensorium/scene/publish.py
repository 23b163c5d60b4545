"""Readings copied to the host: the only path from sensors to outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from sensorium.compute import pinned
from sensorium.engines.base import Engine
from sensorium.measurement.counter import NEVER
from sensorium.measurement.sensor_cfg import SimpleSensorCfg
from sensorium.readings import Reading, read_only
from sensorium.sensors.core.base import Sensor
from sensorium.spec import BODY_POSE

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene


def without_poses(sensors: Iterable[Sensor[Any, Any]], engine: Engine) -> list[Sensor[Any, Any]]:
    """Return the sensors whose poses can be kept but are not yet; prepare the engine for them."""
    new = [sensor for sensor in sensors if sensor.buffers.poses is None and sensor.mount is not None]
    if new and BODY_POSE not in engine.prepared:
        from sensorium.sensors.core.poses import CapturePoses  # imported on use, for outputs only

        can = engine.grants_late(BODY_POSE) and engine.supports(BODY_POSE) is None
        new = [sensor for sensor in new if can or not CapturePoses.needs_bodies(sensor)]
        if (asks := next(filter(CapturePoses.needs_bodies, new), None)) is not None:
            engine.prepare({BODY_POSE: asks.name})
    return new


def take_reading(sensor: Sensor[Any, Any], envs: range, *, truth: bool, poses: bool, copy: bool = True) -> Reading:
    """Return a reading; on CUDA its copies are asynchronous, and it waits for them on first access.

    Args:
        sensor: sensor to read.
        envs: contiguous environments to copy.
        truth: whether to copy the ground truth.
        poses: whether to copy the poses that are kept with the samples.
        copy: whether to copy memory on the CPU.
    """
    compute, buffers, clock = sensor.compute_on, sensor.buffers, sensor.clock
    some = slice(envs.start, envs.stop) if len(envs) < compute.num_envs else slice(None)
    sensor.ensure_current(is_measured=True)  # the newest sample, also of a sensor whose `data` is its history
    counter, late = buffers.counter, buffers.late
    if late is None:
        tick, arrival, valid = counter.newest_tick, counter.arrival_tick, (buffers.bad == 0).all(dim=1)
    else:
        tick, arrival, valid = late.shown_stamp, late.shown_arrival, late.shown_valid > 0
    about = {"capture_tick": tick, "valid": valid, "is_new": arrival > clock.control_tick, "frame": counter.frame}
    if late is not None:
        about["truth_tick"] = counter.newest_tick
    if buffers.own_clock is not None:
        about["stamp"] = sensor.stamp
    measured: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    true, meta, pose = measured.copy(), measured.copy(), measured.copy()
    for tensors, arrays in (
        (sensor.own_tensors(is_measured=True), measured),
        (sensor.own_tensors(is_measured=False) if truth else {}, true),
        (about, meta),
        ({"pose": buffers.poses.shown()} if poses and buffers.poses is not None else {}, pose),
    ):
        for name, tensor in tensors.items():
            part = tensor[some]
            if not compute.is_cpu:  # into pinned memory, which is complete once `wait` returns
                part = pinned(part.shape, part.dtype, compute.device).copy_(part, non_blocking=True)
            array = part.numpy()
            arrays[name] = array.copy() if copy and compute.is_cpu else array
            arrays[name].flags.writeable = False
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
        tick=clock.tick,
        time=clock.time,
        _measured=measured,
        _truth=true,
        _meta=meta,
        _pose=pose.get("pose"),
        _wait=wait,
        _count="count" if "count" in measured else "",
        _dt=clock.dt,
    )


class LiveSample:
    """Newest sample of a sensor in host memory, without copies, for an output that copies it at once. Only on the CPU.

    The current sample counts as taken.

    Args:
        sensor: a sensor without ragged fields, whose `compute_on` is the CPU.

    Attributes:
        measured: field -> `[env, ...]`, the sensor's memory, which the next sample overwrites.
        truth: the same for the ground truth.
        pose: float32 `[env, mount, 7]`, memory of the poses that are kept with the sample; None if there are none, and
            for delayed samples, which have `shown_pose` instead.
        bad: uint8 [env, mount], where the engine's state was not finite at the capture; such samples are not valid.
        frame_base: int64 [env], number of captures on the sensor's grid before the env's reset.
        taken: captures on the grid and off it, and tick of the last sample that was taken, as in `SampleCursor`.
        time_at: returns the time of a tick, s.
    """

    def __init__(self, sensor: Sensor[Any, Any]) -> None:
        self._sensor, self._counter, self._clock = sensor, sensor.buffers.counter, sensor.clock
        self.measured, self.truth = (
            {name: value.numpy() for name, value in sensor.own_tensors(is_measured=measured).items()}
            for measured in (True, False)
        )
        self.frame_base = self._counter.frame_base.numpy()
        self.bad = sensor.buffers.bad.numpy()
        self.taken = (*_captures(sensor), sensor.clock.tick)
        self.time_at = sensor.clock.time_at
        self._is_lazy, self._is_late = sensor.buffers.plan.is_lazy, sensor.buffers.late is not None
        self._varies = self._is_late or sensor.buffers.own_clock is not None
        """Whether environments may differ in their captures."""
        poses = sensor.buffers.poses
        self.pose = None if poses is None or self._is_late else poses.shown().numpy()

    @property
    def resets(self) -> int:
        """Number of captures off the grid; while it is constant, so is `frame_base`."""
        return self._counter.off_grid

    def take(self) -> bool:
        """Return whether there is a sample that was not taken yet, and take it; see `SampleCursor.pending`."""
        counter, now, (samples, off_grid, tick) = self._counter, self._clock.tick, self.taken
        count = self._sensor.rate.index(now) if self._is_lazy else counter.samples
        if count == samples and counter.off_grid == off_grid and not (self._is_late and self._sensor.has_arrived(tick)):
            return False
        self.taken = count, counter.off_grid, now
        return True

    def update(self) -> tuple[int, int, bool] | None:
        """Bring the memory up to date.

        Returns:
            Tick of the capture, number of captures on the grid, and whether it arrived in this control step, if all
            environments share them; otherwise None, and `about` gives them per environment.
        """
        counter = self._counter
        if self._sensor.is_lazy or self._is_late:  # otherwise it is when due
            self._sensor.ensure_shown(is_measured=True)
        last = counter.last_tick
        if self._varies or last <= counter.first_at:
            return None
        return last - counter.last_lag, counter.samples, last > self._clock.control_tick

    def about(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Return capture_tick, truth_tick, frame, stamp, valid and is_new of each environment."""
        names = ("capture_tick", "truth_tick", "frame", "stamp", "valid", "is_new")
        with self._sensor.held():
            return {name: getattr(self._sensor, name).numpy() for name in names}

    def shown_pose(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the poses that are kept with the sample, float32 `[env, mount, 7]`, see `Reading.pose`."""
        poses = self._sensor.buffers.poses
        assert poses is not None  # the output requested them
        return poses.shown().numpy()


_NAMES_OF_IDS = {"geom_ids": "geom_names", "semantic_ids": "semantic_names"}
"""Field with ids -> property of the sensor with the corresponding names."""


MAX_RAYS = 1024
"""Maximum number of rays that a description lists; misses of more rays are not drawn."""


def _frames(sensor: Sensor[Any, Any]) -> list[dict[str, Any]]:
    """Return body and constant pose on it of each mount, `offset` included; empty where environments differ."""
    if sensor.mount is None:
        return []
    tensors = (sensor.mount.offset_pos, sensor.mount.offset_quat, *(sensor.pose_offset or ()))
    places = sensor.mounts_on_bodies(0)
    if places is None or not all(bool((each == each[:1]).all()) for each in tensors):
        return []
    poses = places[:, 1:].astype(np.float64).round(7).tolist()
    return [{"body": body, "pose": pose} for body, pose in zip(sensor.mount.body_names, poses, strict=True)]


class Places:
    """Places of sensors on their bodies. They change only with a reset, or if a camera is moved."""

    def __init__(self) -> None:
        self._tick, self._versions = -1, list[int]()
        self._frames: dict[str, list[dict[str, Any]]] = {}

    def have_changed(self, sensors: Mapping[str, Sensor[Any, Any]], tick: int) -> bool:
        """Return whether a sensor has another place than at the last call; called after each step and reset."""
        versions = [tensor._version for each in sensors.values() for tensor in each.pose_offset or ()]
        stayed = tick > self._tick and versions == self._versions and sensors.keys() == self._frames.keys()
        self._tick, self._versions = tick, versions
        if stayed:
            return False
        before, self._frames = self._frames, {name: _frames(each) for name, each in sensors.items()}
        return any(frames != before.get(name, frames) for name, frames in self._frames.items())


def describe(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return the static description of a sensor for recorders and listeners, as JSON types."""
    axes = dict.fromkeys(["joint", *(axis for spec in sensor.specs for axis in spec.axes)])
    words = (*(f"{axis}_names" for axis in axes), *(_NAMES_OF_IDS.get(spec.name, "") for spec in sensor.specs))
    constants = {**sensor.constants, **{word: list(getattr(sensor, word)) for word in words if hasattr(sensor, word)}}
    about = sensor.about_drawing()
    if (rays := about.pop("rays", None)) is not None and len(rays["lines"]) <= MAX_RAYS:
        about["rays"] = {**rays, "lines": rays["lines"].round(6).tolist()}
    if about:
        constants["drawing"] = about
    has_mounts = any(spec.axes[:1] == ("mount",) for spec in sensor.specs)
    cfg, fields = sensor.cfg, {spec.name for spec in sensor.specs}
    prefixes = cfg.knob_prefixes() if isinstance(cfg, SimpleSensorCfg) else {}
    prefixes = {prefix: name for prefix, name in prefixes.items() if name in fields}
    frames = _frames(sensor)
    return {
        "kind": sensor.cfg.kind(),
        "rate_hz": sensor.info.rate_hz,
        "fields": [spec.to_dict() for spec in sensor.specs],
        **({"mounts": list(sensor.info.mounts)} if has_mounts else {}),
        **({"constants": dict(constants)} if constants else {}),
        **({"prefixes": prefixes} if prefixes else {}),
        **({"frames": frames} if frames else {}),
        "cfg": sensor.cfg.to_dict(),
    }


# Watches and cursors --------------------------------------------------------------------------------------------------


class Watch:
    """One callback of `Scene.watch`, also a context manager that closes it on exit.

    Attributes:
        every_tick: whether `Scene.step` stops at every tick, even where no sensor is due. Then the callback can see
            every tick's value of a sensor that is evaluated on read, and the arrival of each delayed sample.
        sensors: sensors at whose `next_change` `Scene.step` stops too, which is less often.
    """

    def __init__(self, callback: Callable[[], object], every_tick: bool, open_watches: list[Watch]) -> None:
        self._callback, self._open = callback, open_watches
        self.every_tick = every_tick
        self.sensors: Iterable[Sensor[Any, Any]] = ()
        open_watches.append(self)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "every tick" if self.every_tick else "ticks at which a sensor is due"
        return f"<Watch {self._callback!r}: {state}>"

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the callback is no longer called."""
        return self not in self._open

    def next_stop(self, tick: int) -> int:
        """Return the next tick after this one at which `Scene.step` must stop for the callback."""
        stop = tick + 1 if self.every_tick else NEVER
        for sensor in self.sensors:  # the owner has to replace a retired sensor
            stop = min(stop, tick + 1 if sensor.is_retired else sensor.next_change)
        return stop

    def close(self) -> None:
        """Stop calling the callback; closing twice has no effect. A callback may close its own watch."""
        if self in self._open:
            self._open.remove(self)

    def call_all(self) -> None:
        """Call all watches of the scene in order, except those closed in the meantime.

        Raises:
            Exception: the exception raised by a callback, after all were called; an ExceptionGroup where several
                failed.
        """
        errors: list[Exception] = []
        for watch in self._open[:]:
            if watch in self._open:
                try:
                    watch._callback()
                except Exception as error:
                    errors.append(error)
        if len(errors) > 1:
            raise ExceptionGroup("callbacks that watch the scene", errors)
        if errors:
            raise errors[0]


class SampleCursor:
    """Samples of a scene's sensors that one output has not taken yet; created by `Scene.sample_cursor`.

    At first everything is new. ``scene.publish(names, since=cursor)`` takes the new samples and records that they were
    taken.

    Args:
        scene: whose sensors.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._taken: WeakKeyDictionary[Sensor[Any, Any], tuple[int, int, int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"SampleCursor({len(self._taken)} sensor(s) taken before)"

    def pending(self, names: Iterable[str] | None = None, *, truth: bool = True) -> list[str]:
        """Return the names of sensors with new samples, without copying or evaluating anything.

        A sample that arrived is new and, with `truth`, a sample that was captured. They differ where a sensor has a
        delay. A capture that was repeated, at a reset or after an edit, is new as well. On CUDA the host does not read
        the device, so a sample may be reported at every tick at which it can have arrived.

        Args:
            names: sensors to check, as for `Scene.publish`; None checks those that `Scene.publish` takes by default.
            truth: whether a capture that has not arrived yet is new: the ground truth shows it at once.
        """
        wanted = self._scene.sensors_in_use if names is None else names
        return [name for name in wanted if self._is_new(self._scene[name], truth)]

    def mark_taken(self, sensor: Sensor[Any, Any]) -> None:
        """Record that the current sample of a sensor was taken."""
        self._taken[sensor] = (*_captures(sensor), sensor.clock.tick)

    def follow(self, sensor: Sensor[Any, Any], live: LiveSample) -> None:
        """Record that the samples which a `LiveSample` of the sensor returned were taken."""
        self._taken[sensor] = live.taken

    def skip(self, sensor: Sensor[Any, Any], tick: int) -> None:
        """Record that samples up to a tick were taken; later ones are still new.

        For an output that starts to follow a sensor and needs no older samples.
        """
        captures, off_grid = _captures(sensor)
        if sensor.buffers.plan.is_lazy:
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
    """Return the numbers of captures on a sensor's grid and off it; a lazy sensor counts possible captures."""
    captures, is_lazy = sensor.buffers.counter, sensor.buffers.plan.is_lazy
    return sensor.rate.index(sensor.clock.tick) if is_lazy else captures.samples, captures.off_grid
