"""Rules for every built-in stage: env counts, resets, captured graphs, files, and the rules of `check_sensor`."""

from __future__ import annotations

from typing import Any

import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.measurement.stage_cfg import PLACES, STAGE_KINDS, StageCfg
from sensorium.random import MAX_NORMAL
from sensorium.stages import Dropout, SpikeFault
from sensorium.testing import check_sensor

STAGES: dict[str, StageCfg] = {
    "gauss_markov": sn.stages.GaussMarkov(density=0.5, tau=0.1, turn_on=1.0),
    "flicker": sn.stages.Flicker(bias_instability=1.0, tau_min=0.05, tau_max=2.0),
    "flicker_drawn": sn.stages.Flicker(bias_instability=sn.Uniform(0.5, 1.0), tau_min=0.05, tau_max=2.0),
    "temperature": sn.stages.TemperatureDrift(coefficient=0.1, scale_coefficient=0.01, self_heating=20.0, tau=0.1),
    "temperature_drawn": sn.stages.TemperatureDrift(
        coefficient=sn.Normal(0.0, 0.1), scale_coefficient=sn.Uniform(-0.01, 0.01), ambient=sn.Uniform(0.0, 40.0),
        self_heating=sn.Choice((5.0, 10.0)), tau=0.1,
    ),
    "scale_error": sn.stages.ScaleError(scale=sn.Normal(0.0, 0.1), cross_axis=0.02),
    "g_sensitivity": sn.stages.GSensitivity(matrix=sn.Normal(0.0, 0.1), fields=("vec",), source="vec"),
    "crosstalk": sn.stages.Crosstalk(matrix=sn.Normal(0.0, 0.1), size=3),
    "creep": sn.stages.Creep(creep=sn.Uniform(0.0, 0.1), t0=0.01, t_max=1.0, drift=sn.Normal(0.0, 100.0)),
    "creep_settled": sn.stages.Creep(creep=0.1, t0=0.01, t_max=1.0, start="settled"),
    "debounce": sn.stages.Debounce(samples=3, threshold=4.0),
    "debounce_timed": sn.stages.Debounce(time=0.02, threshold=4.0, place="scale"),
    "low_pass": sn.stages.LowPass(time_constant=(0.02, 0.05, 0.1)),
    "low_pass_2": sn.stages.LowPass(cutoff_hz=8.0, order=2, place="saturation"),
    "low_pass_physics": sn.stages.LowPass(cutoff_hz=8.0, place="physics"),
    "group_delay": sn.stages.GroupDelay(window="hann", length=5),
    "group_delay_pure": sn.stages.GroupDelay(samples=2, place="post"),
    "taxel_gain": sn.stages.TaxelGain(gain=sn.Normal(1.0, 0.5)),
    "dead_taxels": sn.stages.DeadTaxels(probability=0.5, value=sn.Uniform(0.0, 1.0)),
    "stuck_taxels": sn.stages.StuckTaxels(probability=0.5, start=sn.Uniform(0.0, 0.1)),
    "viscoelastic": sn.stages.Viscoelastic(strength=sn.Uniform(0.5, 1.0), tau=0.05),
    "play": sn.stages.Play(width=(3.0, 6.0), weight=(0.3, 0.6)),
    "saturation": sn.stages.Saturation(high=20.0, low=-3.0),
    "dropout": Dropout(probability=sn.Uniform(0.1, 0.6)),
    "dropout_bursts": Dropout(probability=sn.GilbertElliott(0.3, 0.4), per="sample", mode="value", value=-1.0),
    "stuck_fault": sn.stages.StuckFault(rate=10.0, duration=sn.Uniform(0.0, 0.05)),
    "stuck_fault_timed": sn.stages.StuckFault(start=sn.Uniform(0.0, 0.1), duration=0.05, per="sample"),
    "spike_fault": SpikeFault(probability=sn.Uniform(0.1, 0.4), amount=sn.Choice((-50.0, 50.0)), place="dropout"),
    "saturation_fault": sn.stages.SaturationFault(rate=sn.Uniform(5.0, 20.0), duration=0.03, high=9.0, elements=(0, 2)),
}  # fmt: skip
ALL = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


def everything(num_envs: int = 4, **kwargs: Any) -> sn.Scene:
    """Build a scene with a sensor for each stage, named after the stage."""
    cfgs = [
        syn.KernelProbeCfg(name=name, noise={"vec": 0.1}, stages=(stage.replace(fields=("vec",)),), history_length=2)
        for name, stage in STAGES.items()
    ]
    return syn.world(cfgs, num_envs, seed=8, **kwargs)


def same(a: sn.Scene, b: sn.Scene, rows: Any = slice(None)) -> None:
    """Assert that all sensors of two scenes read the same bits in some rows of the smaller scene."""
    for name in STAGES:
        shown = {field: values[: a.num_envs] for field, values in syn.snapshot(b[name]).items()}
        syn.same(syn.snapshot(a[name]), shown, rows)


def test_every_built_in_stage_is_covered() -> None:
    """Each stage that modifies the values of a sample is in the table, and files identify it by its kind."""
    of_time = {"window_average", "clock_error"}  # the state of a sample, and its stamp: with separate tests
    of_grids = {"taxel_crosstalk", "row_scan"}  # tested in test_stage_skin_*.py
    of_depths = {"stereo_depth", "kinect_depth", "tof_depth"}  # tested in test_stage_depth.py
    of_images = {"image"}  # tested in test_image_sensor.py
    ours = {kind for kind, cls in STAGE_KINDS.items() if cls.__module__.startswith("sensorium.measurement.stages")}
    assert ours - of_time - of_grids - of_depths - of_images == {stage.to_dict()["kind"] for stage in STAGES.values()}
    assert all(stage.place in PLACES for stage in STAGES.values())


def test_env_is_independent_of_env_count() -> None:
    """Env 3 of 4 equals env 3 of 600, bit for bit, also after its reset."""
    few, many = everything(), everything(600)
    for k in range(10):
        for scene in (few, many):
            syn.advance(scene)
            if k == 5:
                syn.reset(scene, [3])
        same(few, many)


def test_env_slices_draw_the_numbers_of_the_whole() -> None:
    """Envs 2 to 5 of 6 equal a scene of 4 whose first env is number 2, bit for bit, also after a reset."""
    whole, part = everything(6), everything(4, first_env=2)
    for k in range(1, 11):
        for scene, rows in ((whole, slice(0, 6)), (part, slice(2, 6))):
            scene.engine.body_pos_w[:, 0] = syn.signal(k, 6)[rows]
            scene.engine.body_quat_w[:, 0] = syn.yaw(k, 6)[rows]
            scene.update()
            if k in (1, 6):  # from its first sample on, a stage's memory contains the newly written state
                scene.reset([each - rows.start for each in ((2, 4) if k == 6 else range(rows.start, 6))])
        for name in STAGES:
            shown = {field: values[2:] for field, values in syn.snapshot(whole[name]).items()}
            syn.same(syn.snapshot(part[name]), shown)


def test_reset_clears_all_states_of_its_env_only() -> None:
    """The others are unaffected by a reset, and after it env 2 reads nothing of its earlier values."""
    scene, twin, past = everything(), everything(), everything()
    for k in range(1, 14):
        for each in (scene, twin, past):
            syn.write(each, each.tick + 1)
            if each is past and k <= 7:
                each.engine.body_pos_w[2] = 7.0 * k
            each.update()
            if k == 7 and each is not twin:
                syn.reset(each, [2])
        same(scene, twin, [0, 1, 3])
        if k >= 7:
            same(scene, past, [2])


@pytest.mark.usefixtures("at_once")
def test_captured_and_launched_results_are_equal() -> None:
    """A scene that replays captured graphs gives the bits of a scene that launches kernels."""
    launched, captured = everything(capture=False), everything(capture=True)
    for k in range(12):
        for scene in (launched, captured):
            syn.advance(scene)
            if k == 6:
                syn.reset(scene, [1])
        same(launched, captured)


def test_evaluation_without_time_keeps_states() -> None:
    """`update(ticks=0)` after an edit keeps the readings of stages with states, and no later sample contains the
    edit.
    """
    scene, twin = everything(), everything()
    for k in range(8):
        for each in (scene, twin):
            syn.advance(each)
        if k % 3 == 0:
            holds = [name for name in scene if scene[name].buffers.plan.has_memory]
            held = {name: syn.snapshot(scene[name]) for name in holds}
            scene.engine.body_pos_w[:] = 3.0
            scene.update(ticks=0)
            assert len(holds) > len(STAGES) / 2
            for name in holds:
                syn.same(syn.snapshot(scene[name]), held[name])
            syn.write(scene, scene.tick)
            scene.update(ticks=0)
        same(scene, twin)


@ALL
def test_stages_round_trip_through_files(stage: StageCfg) -> None:
    """JSON and TOML restore the same stage, inside its sensor's config."""
    cfg = syn.ProbeCfg(name="p", stages=(stage,))
    assert syn.ProbeCfg.from_json(cfg.to_json()) == cfg
    assert syn.ProbeCfg.from_toml(cfg.to_toml()) == cfg
    assert type(stage).from_dict({k: v for k, v in stage.to_dict().items() if k != "kind"}) == stage


def test_truth_is_not_affected_by_stages() -> None:
    """Each measured value sometimes differs by more than its noise ever does, and the true value is the body's."""
    scene = everything()
    differs = dict.fromkeys(STAGES, False)
    for _ in range(12):
        syn.advance(scene)
        for name in STAGES:
            truth = scene[name].ground_truth.vec
            assert torch.equal(truth, syn.signal(scene.tick, 4)), name
            differs[name] |= bool(((scene[name].data.vec - truth).abs() > 0.1 * MAX_NORMAL).any())
    assert all(differs.values()), differs


GYRO = ("ang_vel_b",)


@pytest.mark.parametrize(
    "stages",
    [
        (
            sn.stages.Flicker(fields=GYRO, bias_instability=sn.Uniform(1e-3, 1e-2), tau_min=0.01, tau_max=1.0),
            sn.stages.TemperatureDrift(
                fields=GYRO, coefficient=1e-3, ambient=sn.Uniform(0.0, 40.0), self_heating=9.0, tau=0.02
            ),
            sn.stages.GSensitivity(matrix=sn.Normal(0.0, 1e-3)),
            sn.stages.LowPass(fields=GYRO, time_constant=0.01),
        ),
        (
            sn.stages.LowPass(fields=GYRO, cutoff_hz=80.0, order=2, place="saturation"),
            sn.stages.GroupDelay(fields=GYRO, window="boxcar", length=4),
            sn.stages.LowPass(fields=("lin_acc_b",), cutoff_hz=50.0, place="physics"),
        ),
        (
            Dropout(fields=GYRO, probability=sn.GilbertElliott(0.2, 0.5)),
            Dropout(fields=("lin_acc_b",), probability=0.3, per="sample", mode="value", value=7.0),
            SpikeFault(fields=("lin_acc_b",), rate=100.0, amount=sn.Normal(0.0, 9.0)),
        ),
        (
            sn.stages.StuckFault(fields=GYRO, rate=50.0, duration=sn.Uniform(0.0, 0.01)),
            sn.stages.SaturationFault(fields=("lin_acc_b",), start=sn.Uniform(0.0, 0.02), duration=0.008, high=160.0),
        ),
    ],
    ids=["bias", "filters", "dropout", "faults"],
)
def test_contract_holds(stages: tuple[StageCfg, ...]) -> None:
    """An IMU with these stages passes every rule of `check_sensor`."""
    assert len(check_sensor(sn.ImuCfg(body="body", fields=("ang_vel_b", "lin_acc_b"), stages=stages))) >= 15
