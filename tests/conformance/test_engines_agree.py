"""Every sensor on both MuJoCo engines: equal states give equal readings within bounds, and identical noise.

At each tick the state of mujoco_warp (float32) is copied into MuJoCo (float64), so both have the same numbers, and both
run forward. Errors are relative to the greatest magnitude of the item (see `two_engines.errors`). The bound is 1e-4 for
quantities from positions and velocities, and for accelerations and forces without contact. During contact,
accelerations and forces have a bound of 1e-2, because the solver of mujoco_warp works in float32 with a tolerance of
1e-6, not 1e-8.

Integers and flags are equal, and so are the shapes that rays hit. Poses differ by 1e-7 m, and each m^2 has some 10 m of
edges. Of the 2 * 10^4 rays cast here, about 10^-2 would therefore be expected to hit another shape on the other engine.
"""

from __future__ import annotations

from typing import Any

import mujoco
import pytest
import torch
from two_engines import (
    ENVS,
    FORCE_UNITS,
    LEVER_OF,
    MODEL,
    NATIVE,
    Pair,
    assert_agrees,
    assert_need_agrees,
    assert_report_agrees,
    copy_state,
    feed,
    reports,
    sensors,
    stacked,
    start,
    values_of,
)

import sensorium as sn
from sensorium import registry
from sensorium.engines.base import NATIVE_ARRAY
from sensorium.engines.mujoco.needs import NEEDS
from sensorium.spec import VECTOR_AXES, contact_array

TICKS = 40
CONFIGS = {cfg.label: cfg for cfg in sensors()}
OURS = [cfg for cfg in registry.registered() if cfg.__module__.startswith("sensorium.sensors.")]
REPORTS = {contact_array(report): report for report in reports()}


class Trajectory:
    """The values of all sensors and arrays on both engines, `[tick, env, ...]`."""

    def __init__(self) -> None:
        cpu, warp = sn.MujocoEngine(MODEL, ENVS), sn.MujocoWarpEngine(MODEL, ENVS, device="cpu")
        scenes = tuple(sn.Scene(engine, CONFIGS.values(), reserve=reports(), seed=3) for engine in (cpu, warp))
        self.pair = Pair(cpu, warp, (scenes[0], scenes[1]))
        start(warp)
        copy_state(warp, cpu)
        truth: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in scenes[0]}
        arrays: tuple[list[Any], list[Any]] = ([], [])
        for _ in range(TICKS):
            self.pair.advance()
            for side, (scene, engine) in enumerate(zip(scenes, (cpu, warp), strict=True)):
                arrays[side].append({name: values.clone() for name, values in engine._derived.arrays.items()})
                for name, sensor in scene.sensors.items():
                    truth[name][side].append(values_of(sensor, is_measured=False))
        self.touching = torch.stack(self.pair.touching)
        self.truth = {name: (stacked(first), stacked(second)) for name, (first, second) in truth.items()}
        self.arrays = stacked(arrays[0]), stacked(arrays[1])


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    return Trajectory()


def test_every_kind_of_sensor_is_covered():
    """Each built-in sensor is in the list."""
    assert {cfg.kind() for cfg in CONFIGS.values()} == {cls.kind() for cls in OURS}


def test_trajectory_has_contacts_and_motion(trajectory):
    """One environment is never in contact, one lands, one always is; ball, feet and trunk touch, and rays hit."""
    touching = trajectory.touching
    assert touching.sum(0).tolist()[0] == 0 and 5 <= touching[:, 1].sum() <= TICKS - 5 and touching[:, 2].all()
    cpu = {name: values for name, (values, _) in trajectory.truth.items()}
    assert (cpu["net"]["found"] > 0).any(0).any(0).all(), "each foot touches something"
    assert (cpu["ball"]["force"].norm(dim=-1) > 10.0).any(), "the ball presses on the trunk"
    assert cpu["switches"]["contact"].any() and not cpu["switches"]["contact"].all()
    for name, field in (("scan", "distances"), ("height", "distances"), ("lidar", "distances"), ("radar", "range"),
                        ("camera", "distance_to_camera"), ("depth", "distance_to_image_plane")):  # fmt: skip
        hit = cpu[name][field].isfinite()
        assert 0.1 < hit.float().mean(), name
    assert len(cpu["lidar"]["geom_ids"].unique()) > 4
    assert (cpu["depths"]["depth"] > 0.01).any(0).any(0).all(), "each probe is deep in something"
    assert cpu["contacts"]["contact"].any(0).any(0).all() and not cpu["contacts"]["contact"].all(0).all(0).all()
    assert (cpu["proximity"]["force"].norm(dim=-1) > 0.0).any(0).any(0).all(), "something comes near each taxel"
    heat = cpu["heat"]["temperature"]
    assert (heat[-1] - heat[0])[2].flatten(1).abs().amax(dim=1)[[0, 2]].min() > 0.1, "the ball warms the trunk"


@pytest.mark.parametrize("name", CONFIGS)
def test_sensor_reads_the_same_on_both_engines(name, trajectory):
    """Truth agrees within the bounds in each field, at each tick and in each environment."""
    scene = trajectory.pair.scenes[0]
    cpu, warp = trajectory.truth[name]
    specs = {spec.name: spec for spec in scene[name].specs}
    forces = next((field for field, spec in specs.items() if spec.unit == "N"), None)
    for field, spec in specs.items():
        what = f"{name}.{field}"
        if not cpu[field].is_floating_point() or spec.kind in ("id", "flag"):
            assert torch.equal(cpu[field], warp[field]), what
            continue
        is_vector = spec.axes[-1:] != () and spec.axes[-1] in VECTOR_AXES
        lever = cpu[forces] if forces is not None and spec.unit == "N m" else LEVER_OF.get(field)
        assert_agrees(
            what, cpu[field], warp[field], trajectory.touching, is_vector=is_vector, lever=lever,
            is_force=spec.unit in FORCE_UNITS,
        )  # fmt: skip


# Derived arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", NEEDS, ids=lambda requirement: requirement.kind)
def test_requirement_gives_equal_arrays(requirement, trajectory):
    """All bodies (moving, static, welded, mocap) and joints agree, with gravity and flux per environment."""
    assert_need_agrees(requirement, *trajectory.arrays, trajectory.touching)


@pytest.mark.parametrize("name", NATIVE)
def test_native_sensor_values_are_equal(name, trajectory):
    """The results of mujoco_warp's own sensors agree with MuJoCo's."""
    cpu, warp = (arrays[f"{NATIVE_ARRAY}{name}"] for arrays in trajectory.arrays)
    sensor = next(sensor for sensor in trajectory.pair.cpu.native_sensors() if sensor.name == name)
    is_force = sensor.stage == "acc"
    assert_agrees(name, cpu, warp, trajectory.touching, is_vector=sensor.dim > 1, is_force=is_force)


@pytest.mark.parametrize("array", REPORTS)
def test_contact_reports_are_equal(array, trajectory):
    """Each column of each reduction agrees, also for empty slots and between two moving bodies."""
    cpu, warp = (arrays[array] for arrays in trajectory.arrays)
    assert_report_agrees(REPORTS[array], cpu, warp, trajectory.touching)


def test_live_models_and_data_give_equal_arrays(trajectory):
    """Live engines around the same MjData, and around mujoco_warp's Model and Data, give the owning engines' arrays."""
    pair = trajectory.pair
    state = mujoco.mjtState.mjSTATE_INTEGRATION
    datas = [mujoco.MjData(pair.cpu.model) for _ in range(ENVS)]
    for env, data in enumerate(datas):
        mujoco.mj_setState(pair.cpu.model, data, pair.cpu.batch.state[env], state)
    prepared = dict.fromkeys(pair.cpu.prepared, "probe")
    pair.cpu.gravity[:] = pair.warp.gravity[:] = torch.from_numpy(pair.cpu.model.opt.gravity)  # MjData share the model
    pair.cpu.magnetic[:] = pair.warp.magnetic[:] = torch.from_numpy(pair.cpu.model.opt.magnetic)
    live = sn.MujocoEngine.from_mj(pair.cpu.model, datas)
    live_warp = sn.MujocoWarpEngine.from_mjw(pair.warp.model, pair.warp.m, pair.warp.d)
    for engine in (pair.cpu, pair.warp, live, live_warp):
        engine.prepare(prepared)
        engine.forward()
    arrays = pair.cpu._derived.arrays
    assert arrays.keys() == pair.warp._derived.arrays.keys() == live_warp._derived.arrays.keys()
    for name in arrays:
        assert torch.equal(live_warp.array(name), pair.warp.array(name)), name
        if not name.startswith("native block"):
            torch.testing.assert_close(live.array(name), pair.cpu.array(name), rtol=1e-5, atol=1e-6)


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
NOISELESS = ("collision_events", "contact_sensor")
"""Kinds that report only the truth."""
WITHOUT_FIELDS = ("collision", "safe_distance")
"""Kinds with a delay, but without a field that takes noise."""


def imperfect(cfg: Any, sensor: Any) -> Any:
    """Return a config with every common imperfection, and those of its kind."""
    fields = [spec for spec in sensor.specs if spec.kind in ("vector", "rotation")]
    vectors = [spec.name for spec in fields if spec.kind == "vector"]
    size = {spec.name: 0.01 for spec in fields} if len(fields) > 1 else 0.01
    stages = tuple(sn.Dropout(probability=0.1, fields=(name,)) for name in vectors[:1])
    knobs = {"noise": size, "bias": size, "random_walk": size, "loss": 0.2, "delay": 0.012, "jitter": 0.008}
    return cfg.replace(**knobs, stages=stages, **OWN_IMPERFECTIONS.get(cfg.kind(), {}))


@pytest.fixture(scope="module")
def noisy(trajectory) -> dict[str, tuple[Any, Any]]:
    """True and measured values of imperfect sensors with identical truth."""
    first, pair = trajectory.pair.scenes[0], trajectory.pair
    configs = [
        imperfect(cfg, first[name]) for name, cfg in CONFIGS.items() if cfg.kind() not in NOISELESS + WITHOUT_FIELDS
    ]
    feed(pair.cpu, pair.warp)
    scenes = tuple(sn.Scene(engine, configs, seed=11) for engine in (pair.cpu, pair.warp))
    fed = Pair(pair.cpu, pair.warp, (scenes[0], scenes[1]))
    seen: dict[str, tuple[list[Any], list[Any]]] = {cfg.label: ([], []) for cfg in configs}
    for _ in range(12):
        fed.advance(fed=True)
        for side, scene in enumerate(scenes):
            for name, both in seen.items():
                sensor = scene[name]
                both[side].append([values_of(sensor, is_measured=measured) for measured in (False, True)])
    return seen


def test_only_ground_truth_sensors_have_no_noise():
    """Kinds excluded from the comparison of noise have no knob for it."""
    assert {cfg.kind() for cfg in OURS if "noise" not in cfg.model_fields} == set(NOISELESS)


@pytest.mark.parametrize(
    "name", [name for name, cfg in CONFIGS.items() if cfg.kind() not in NOISELESS + WITHOUT_FIELDS]
)
def test_noise_on_identical_truth_is_bit_identical(name, noisy):
    """Noise, bias, walk, dropout, loss and jitter are functions of seed, name, tick and env, not of the engine."""
    cpu, warp = noisy[name]
    altered = False
    for (truth, measured), (same_truth, same) in zip(cpu, warp, strict=True):
        for field in truth:
            assert torch.equal(truth[field].nan_to_num(7e7), same_truth[field].nan_to_num(7e7)), f"truth of {field}"
            assert torch.equal(measured[field].nan_to_num(7e7), same[field].nan_to_num(7e7)), field
            altered |= not torch.equal(measured[field], truth[field])
    assert altered, "nothing was imperfect"
