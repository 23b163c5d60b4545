"""Two engines from the same states: what their sensors, arrays and noise must have in common.

Errors are relative to the greatest magnitude of the item (see `two_engines.errors`). The bound is 1e-4 for quantities
from positions and velocities, and for accelerations and forces without contact. During contact, accelerations and
forces have a bound of 1e-2, because the solver of mujoco_warp works in float32 with a tolerance of 1e-6, not 1e-8.

Integers and flags are equal, and so are the shapes that rays hit. Poses differ by 1e-7 m, and each m^2 has some 10 m of
edges. Of the 2 * 10^4 rays cast here, about 10^-2 would therefore be expected to hit another shape on the other engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from two_engines import FORCE_UNITS, LEVER_OF, Pair, assert_agrees, feed, stacked, values_of

import sensorium as sn
from sensorium.engines.base import NATIVE_ARRAY
from sensorium.spec import VECTOR_AXES

TICKS = 40


class Trajectory:
    """The values of all sensors and arrays on both engines, `[tick, env, ...]`.

    Args:
        pair: the engines in the initial state, with scenes of equal sensors.
        same_ids: returns values of a field of MuJoCo with the other engine's ids, by the field's name.
    """

    def __init__(
        self, pair: Pair, same_ids: Callable[[str, torch.Tensor], torch.Tensor] = lambda _, values: values
    ) -> None:
        self.pair, self.same_ids = pair, same_ids
        truth: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in pair.scenes[0]}
        arrays: tuple[list[Any], list[Any]] = ([], [])
        for _ in range(TICKS):
            pair.advance()
            for side, (scene, engine) in enumerate(zip(pair.scenes, (pair.cpu, pair.other), strict=True)):
                arrays[side].append({name: values.clone() for name, values in engine._derived.arrays.items()})
                for name, sensor in scene.sensors.items():
                    truth[name][side].append(values_of(sensor, is_measured=False))
        self.touching = torch.stack(pair.touching)
        self.truth = {name: (stacked(first), stacked(second)) for name, (first, second) in truth.items()}
        self.arrays = stacked(arrays[0]), stacked(arrays[1])

    def assert_sensor_agrees(self, name: str) -> None:
        """Assert that the truth of a sensor agrees within the bounds in each field, at each tick and in each env."""
        cpu, other = self.truth[name]
        specs = {spec.name: spec for spec in self.pair.scenes[0][name].specs}
        forces = next((field for field, spec in specs.items() if spec.unit == "N"), None)
        for field, spec in specs.items():
            what = f"{name}.{field}"
            if not cpu[field].is_floating_point() or spec.kind in ("id", "flag"):
                assert torch.equal(self.same_ids(field, cpu[field]), other[field]), what
                continue
            is_vector = spec.axes[-1:] != () and spec.axes[-1] in VECTOR_AXES
            lever = cpu[forces] if forces is not None and spec.unit == "N m" else LEVER_OF.get(field)
            assert_agrees(
                what, cpu[field], other[field], self.touching, is_vector=is_vector, lever=lever,
                is_force=spec.unit in FORCE_UNITS,
            )  # fmt: skip

    def assert_native_agrees(self, name: str) -> None:
        """Assert that the values of a native sensor agree."""
        cpu, other = (arrays[f"{NATIVE_ARRAY}{name}"] for arrays in self.arrays)
        sensor = next(sensor for sensor in self.pair.cpu.native_sensors() if sensor.name == name)
        is_force = sensor.stage == "acc"
        assert_agrees(name, cpu, other, self.touching, is_vector=sensor.dim > 1, is_force=is_force)


# Noise ----------------------------------------------------------------------------------------------------------------

OWN_IMPERFECTIONS: dict[str, dict[str, Any]] = {
    "contact_depth_probe": {"probe_radius_noise": 0.01},
    "contact_probe": {"probe_radius_noise": 0.01},
    "gnss": {"horizontal_sd": 2.0, "vertical_sd": 3.0},
    "lidar": {"range_noise": 0.02, "drop_rate": 0.2, "intensity_noise": 0.1},
    "radar": {"clutter_rate": 8.0, "clutter_speed": 9.0},
    "ray_caster": {"drift_range": (-0.1, 0.1)},
    "magnetometer": {"hard_iron": 1e-5},
    "joint": {"backlash": 0.01, "eccentricity": (0.01, 0.02), "gear": 9.0},
    "joint_torque": {"ripple": 0.1, "gear": 50.0},
}
"""Imperfections of a kind besides the common knobs."""
NOISELESS = ("collision_events",)
"""Kinds that report only the truth."""
WITHOUT_FIELDS = ("collision", "contact_sensor", "event_camera", "safe_distance")
"""Kinds with a delay, but without a field that takes noise."""
Steps = list[list[dict[str, torch.Tensor]]]
"""True and measured values by field, at each tick."""


def noisy_of(configs: Sequence[Any]) -> list[Any]:
    """Return the configs whose kinds take noise."""
    return [cfg for cfg in configs if cfg.kind() not in NOISELESS + WITHOUT_FIELDS]


def imperfect(cfg: Any, sensor: Any) -> Any:
    """Return a config with every common imperfection, and those of its kind."""
    fields = [spec for spec in sensor.specs if spec.kind in ("vector", "rotation")]
    vectors = [spec.name for spec in fields if spec.kind == "vector"]
    size = {spec.name: 0.01 for spec in fields} if len(fields) > 1 else 0.01
    stages = tuple(sn.stages.Dropout(probability=0.1, fields=(name,)) for name in vectors[:1])
    knobs = {"noise": size, "bias": size, "random_walk": size, "loss": 0.2, "delay": 0.012, "jitter": 0.008}
    return cfg.replace(**knobs, stages=stages, **OWN_IMPERFECTIONS.get(cfg.kind(), {}))


def noisy_readings(pair: Pair, configs: Sequence[Any]) -> dict[str, tuple[Steps, Steps]]:
    """Return the values of imperfect sensors with identical truth, on both engines by the sensor's name."""
    dirty = [imperfect(cfg, pair.scenes[0][cfg.label]) for cfg in noisy_of(configs)]
    feed(pair.cpu, pair.other)
    scenes = tuple(sn.Scene(engine, dirty, seed=11) for engine in (pair.cpu, pair.other))
    fed = Pair(pair.cpu, pair.other, (scenes[0], scenes[1]), pair.carry)
    seen: dict[str, tuple[Steps, Steps]] = {cfg.label: ([], []) for cfg in dirty}
    for _ in range(12):
        fed.advance(fed=True)
        for side, scene in enumerate(scenes):
            for name, both in seen.items():
                sensor = scene[name]
                both[side].append([values_of(sensor, is_measured=measured) for measured in (False, True)])
    return seen


def assert_same_noise(first: Steps, second: Steps) -> None:
    """Assert that truth and measured values have the same bits at each tick, and that they differ from each other."""
    altered = False
    for (truth, measured), (same_truth, same) in zip(first, second, strict=True):
        for field in truth:
            assert torch.equal(truth[field].nan_to_num(7e7), same_truth[field].nan_to_num(7e7)), f"truth of {field}"
            assert torch.equal(measured[field].nan_to_num(7e7), same[field].nan_to_num(7e7)), field
            altered |= not torch.equal(measured[field], truth[field])
    assert altered, "nothing was imperfect"
