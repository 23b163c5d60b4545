"""Every sensor on both MuJoCo engines: equal states give equal readings within bounds, and identical noise.

At each tick the state of mujoco_warp (float32) is copied into MuJoCo (float64), so both have the same numbers, and both
run forward. The bounds are those of `agreement`.
"""

from __future__ import annotations

from typing import Any

import mujoco
import pytest
import torch
from agreement import NOISELESS, TICKS, Trajectory, assert_same_noise, noisy_of, noisy_readings
from two_engines import (
    ENVS,
    MODEL,
    NATIVE,
    Pair,
    assert_need_agrees,
    assert_report_agrees,
    copy_state,
    reports,
    sensors,
    start,
)

import sensorium as sn
from sensorium import registry
from sensorium.engines.mujoco.derived import NEEDS
from sensorium.spec import contact_array

CONFIGS = {cfg.label: cfg for cfg in sensors()}
OURS = [cfg for cfg in registry.registered() if cfg.__module__.startswith(("sensorium.sensors.", "sensorium.cameras."))]
REPORTS = {contact_array(report): report for report in reports()}


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    cpu, warp = sn.MujocoEngine(MODEL, ENVS), sn.MujocoWarpEngine(MODEL, ENVS, device="cpu")
    scenes = tuple(sn.Scene(engine, CONFIGS.values(), reserve=reports(), seed=3) for engine in (cpu, warp))
    start(warp)
    copy_state(warp, cpu)
    return Trajectory(Pair(cpu, warp, (scenes[0], scenes[1])))


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
    trajectory.assert_sensor_agrees(name)


# Derived arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", NEEDS, ids=lambda requirement: requirement.kind)
def test_requirement_gives_equal_arrays(requirement, trajectory):
    """All bodies (moving, static, welded, mocap) and joints agree, with gravity and flux per environment."""
    assert_need_agrees(requirement, *trajectory.arrays, trajectory.touching)


@pytest.mark.parametrize("name", NATIVE)
def test_native_sensor_values_are_equal(name, trajectory):
    """The results of mujoco_warp's own sensors agree with MuJoCo's."""
    trajectory.assert_native_agrees(name)


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
    pair.cpu.gravity[:] = pair.other.gravity[:] = torch.from_numpy(pair.cpu.model.opt.gravity)  # MjData share the model
    pair.cpu.magnetic[:] = pair.other.magnetic[:] = torch.from_numpy(pair.cpu.model.opt.magnetic)
    live = sn.MujocoEngine.from_mj(pair.cpu.model, datas)
    live_warp = sn.MujocoWarpEngine.from_mjw(pair.other.model, pair.other.m, pair.other.d)
    for engine in (pair.cpu, pair.other, live, live_warp):
        engine.prepare(prepared)
        engine.forward()
    arrays = pair.cpu._derived.arrays
    assert arrays.keys() == pair.other._derived.arrays.keys() == live_warp._derived.arrays.keys()
    for name in arrays:
        assert torch.equal(live_warp.array(name), pair.other.array(name)), name
        if not name.startswith("native block"):
            torch.testing.assert_close(live.array(name), pair.cpu.array(name), rtol=1e-5, atol=1e-6)


# Noise ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(trajectory) -> dict[str, Any]:
    return noisy_readings(trajectory.pair, list(CONFIGS.values()))


def test_only_ground_truth_sensors_have_no_noise():
    """Kinds excluded from the comparison of noise have no knob for it."""
    assert {cfg.kind() for cfg in OURS if "noise" not in cfg.model_fields} == set(NOISELESS)


@pytest.mark.parametrize("name", [cfg.label for cfg in noisy_of(list(CONFIGS.values()))])
def test_noise_on_identical_truth_is_bit_identical(name, noisy):
    """Noise, bias, walk, dropout, loss and jitter are functions of seed, name, tick and env, not of the engine."""
    assert_same_noise(*noisy[name])
