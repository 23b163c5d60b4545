"""True states of sensors as readings: biases, random walks, delays and velocities, for recordings.

The states of the sensor NAME are the readings of NAME.states, of the kind ``"sensor_states"``, one per capture. Their
fields, where the sensor has them, in the units of the sensor's fields:

    bias_FIELD   all that is added to a field and does not depend on its value: the knob `bias`, the random walk, and
                 the biases of stages. For a rotation it is a rotation vector, rad
    walk_FIELD   the part of it that is the random walk
    delay        delay of the environment as drawn or set, without jitter, s
    lin_vel_w    velocity of the mount in the world, m/s, of sensors that need it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import STATES, STATES_OF, Reading, read_only
from sensorium.spec import BODY_VELOCITY, FieldSpec

if TYPE_CHECKING:
    import torch

    from sensorium.sensors.core.base import Sensor


class SensorStates:
    """States of one sensor.

    Args:
        sensor: the sensor.

    Attributes:
        sensor: the sensor.
        name: name of the readings.
        specs: their fields; empty for a sensor without states.
    """

    def __init__(self, sensor: Sensor[Any, Any]) -> None:
        self.sensor = sensor
        self._sources: list[tuple[FieldSpec, Callable[[], Any]]] = []
        self.name = sensor.name + STATES_OF
        buffers, has_mounts = sensor.buffers, any(spec.axes[:1] == ("mount",) for spec in sensor.specs)
        for field, (_, spec) in buffers.plan.chained.items():
            own = _spec_of_amount(spec if has_mounts else spec.squeezed())
            if any(part is not None for part in self._biases(field)):
                self._add(replace(own, name=f"bias_{field}"), partial(self._bias, field))
            if field in buffers.walks:
                self._add(replace(own, name=f"walk_{field}"), partial(buffers.walks.get, field))
        ring = buffers.ring
        if ring is not None and buffers.plan.cfg.delay is not None:
            self._add(FieldSpec("delay", (), (), "float32", "s", "", "vector", "scalar"), partial(ring.get, "delay"))
        mount, needs = sensor.mount, type(sensor).needs(sensor.cfg, sensor.engine, sensor.engine.supports)
        if mount is not None and BODY_VELOCITY in needs:
            axes, shape = (("mount",), (mount.count,)) if has_mounts else ((), ())
            names = (*axes, "xyz"), (*shape, 3)
            self._add(FieldSpec("lin_vel_w", *names, "float32", "m/s", "world", "vector", "vector_at"),
                      partial(getattr, mount, "lin_vel_w"))  # fmt: skip
        self.specs = tuple(spec for spec, _ in self._sources)
        envs = sensor.num_envs
        self._values = {spec.name: np.zeros((envs, *spec.shape), np.float32) for spec in self.specs}
        self._ticks, self._frames, self._resets = np.full(envs, -1), np.full(envs, -1), -1
        """Tick, number and resets of the newest capture that was returned."""

    def _add(self, spec: FieldSpec, source: Callable[[], Any]) -> None:
        self._sources.append((spec, source))

    def _biases(self, field: str) -> list[torch.Tensor | None]:
        """Return what the knob, the random walk and the stages add to a field, `[env, column]` or `[1, column]`."""
        buffers = self.sensor.buffers
        knob = buffers.knobs.tables.get(("bias", field))
        stages = [run.cfg.bias(field, run.states, run.key) for run in buffers.stages if field in run.key.columns]
        return [None if knob is None else knob.values, buffers.walks.get(field), *stages]

    def _bias(self, field: str) -> Any:
        return sum(part.cpu() for part in self._biases(field) if part is not None)

    def read(self, envs: slice | None) -> Reading | None:
        """Return the states at the newest capture, which is evaluated already; None if it was returned before.

        Args:
            envs: contiguous environments; None for all.
        """
        sensor, clock, counter = self.sensor, self.sensor.clock, self.sensor.buffers.counter
        ticks, frames = counter.newest_tick.cpu().numpy(), counter.frame.cpu().numpy().copy()
        new = (ticks != self._ticks) | (frames != self._frames)
        if counter.off_grid != self._resets:
            new |= frames == 1
        self._ticks, self._frames, self._resets = ticks, frames, counter.off_grid
        if not new.any():
            return None
        for spec, source in self._sources:
            array = source().cpu().numpy()
            if spec.shape:  # a rotation vector has a fourth column
                array = array.reshape(len(array), *spec.shape[:-1], -1)[..., : spec.shape[-1]]
            self._values[spec.name][new] = np.broadcast_to(array, (sensor.num_envs, *spec.shape))[new]
        rows = slice(None) if envs is None else envs
        ids, *about = (read_only(each[rows].copy()) for each in (np.arange(sensor.num_envs), ticks, frames, new))
        meta = dict(zip(("capture_tick", "frame", "is_new"), about, strict=True))
        values = {name: read_only(array[rows].copy()) for name, array in self._values.items()}
        meta["valid"] = read_only(np.ones(len(ids), bool))
        return Reading(self.name, STATES, self.specs, ids, clock.tick, clock.time, values, {}, meta, _dt=clock.dt)

    def describe(self) -> dict[str, Any]:
        """Return the description of these readings, see `SceneDescription.sensors`."""
        info = self.sensor.info
        has_mounts = any(spec.axes[:1] == ("mount",) for spec in self.specs)
        return {
            "kind": STATES, "rate_hz": info.rate_hz, "fields": [spec.to_dict() for spec in self.specs],
            **({"mounts": list(info.mounts)} if has_mounts else {}), "cfg": {},
        }  # fmt: skip


def _spec_of_amount(spec: FieldSpec) -> FieldSpec:
    """Return the spec of an amount that is added to a field."""
    amount = replace(spec, role="scalar", low=-inf, high=inf)
    if spec.kind != "rotation":
        return amount
    return replace(amount, axes=(*spec.axes[:-1], "xyz"), shape=(*spec.shape[:-1], 3), kind="vector", unit="rad")
