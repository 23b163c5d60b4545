"""Gains, dead and stuck taxels: checked against their distributions, and taxel by taxel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import skin
import torch
from skin import BOTH, SkinCfg, readings

import sensorium as sn
from sensorium.testing import check_sensor

RNG = np.random.default_rng(4)


def steady(envs: int, taxels: int, ticks: int = 1) -> skin.Array:
    """Return constant forces, all nonzero, as represented in float32."""
    values = RNG.uniform(0.5, 2.0, (envs, taxels, 3)).astype(np.float32).astype(np.float64)
    return np.broadcast_to(values, (ticks, envs, taxels, 3))


# Gain -----------------------------------------------------------------------------------------------------------------


def test_a_gain_is_one_factor_for_all_parts_and_fields_of_a_taxel() -> None:
    """Gains are drawn per env and taxel: all six numbers of force and torque share a gain, other taxels or envs
    differ.
    """
    stage = sn.stages.TaxelGain(fields=BOTH, gain=sn.Normal(1.0, 0.1))
    cfg, forces = SkinCfg(name="s", pads=2, stages=(stage,)), steady(500, 24)
    force, torque = (readings(cfg, forces, field)[0].reshape(500, 24, 3) for field in BOTH)
    gains = force / forces[0]
    np.testing.assert_allclose(gains, gains[..., :1] + 0.0 * gains, rtol=3e-7)
    np.testing.assert_allclose(torque, 2.0 * force, rtol=3e-7)
    drawn = gains[..., 0]
    assert drawn.std() == pytest.approx(0.1, rel=5.0 / math.sqrt(2.0 * drawn.size))
    assert drawn.mean() == pytest.approx(1.0, abs=5.0 * 0.1 / math.sqrt(drawn.size))
    pairs = np.corrcoef(drawn, rowvar=False)[np.triu_indices(24, 1)]
    assert np.abs(pairs).max() < 5.5 / math.sqrt(500)


@pytest.mark.parametrize("layout", [(6,), (2, 3)])
def test_gains_can_be_given_per_taxel(layout: tuple[int, ...]) -> None:
    """One number per taxel, row by row or nested like the grid, is the same for each pad."""
    gains = np.arange(6.0)
    given = gains.reshape(layout).tolist()
    cfg = SkinCfg(name="s", layout=layout, pads=2, stages=(sn.stages.TaxelGain(fields=("pressure",), gain=given),))
    forces = steady(3, 12)
    expected = forces[0, ..., 2].reshape(3, 2, *layout) * gains.reshape(layout)
    np.testing.assert_allclose(readings(cfg, forces, "pressure")[0], expected, rtol=1e-7)


def test_gains_are_redrawn_at_a_reset_of_their_env_only() -> None:
    """The state holds the drawn gains, `[env, mount, row, column]`; a reset of env 1 changes those of env 1."""
    stage = sn.stages.TaxelGain(fields=("force",), gain=sn.Uniform(0.8, 1.2))
    cfg = SkinCfg(name="s", stages=(stage,))
    engine = skin.engine_of(cfg, 3)
    engine.body_pos_w[:] = 1.0
    scene = sn.Scene(engine, [cfg])
    gains = scene["s"].stage_state(stage)["gain"]
    assert gains.shape == (3, 1, 3, 4)
    assert torch.equal(scene["s"].data.force, gains[:, 0, ..., None].expand(3, 3, 4, 3))
    before = gains.clone()
    scene.reset([1])
    assert torch.equal(gains[[0, 2]], before[[0, 2]]) and not torch.isin(gains[1], before[1]).any()
    assert gains.min() >= 0.8 and gains.max() <= 1.2


def test_a_normal_gain_is_never_negative() -> None:
    """A negative gain is clipped at 0, which silences the taxel."""
    stage = sn.stages.TaxelGain(fields=("force",), gain=sn.Normal(0.0, 1.0))
    out = readings(SkinCfg(name="s", stages=(stage,)), steady(50, 12))
    assert (out >= 0.0).all() and 0.4 < (out == 0.0).mean() < 0.6


def test_a_miss_stays_a_miss() -> None:
    """Infinity times a gain of 0 is undefined, so infinity is kept."""
    forces = steady(1, 12).copy()
    forces[0, 0, 3] = math.inf
    out = readings(SkinCfg(name="s", stages=(sn.stages.TaxelGain(fields=("force",), gain=0.0),)), forces)
    assert np.isposinf(out[0, 0, 0, 0, 3]).all() and np.count_nonzero(out) == 3


# Dead taxels ----------------------------------------------------------------------------------------------------------


def test_fraction_of_dead_taxels_is_the_probability() -> None:
    """Taxels are dead independently; a dead taxel reads 0 in all parts of all fields, and the others are unchanged."""
    p, envs = 0.2, 1000
    stage = sn.stages.DeadTaxels(fields=BOTH, probability=p)
    cfg, forces = SkinCfg(name="s", pads=2, stages=(stage,)), steady(envs, 24)
    force, torque = (readings(cfg, forces, field)[0].reshape(envs, 24, 3) for field in BOTH)
    dead = force[..., 0] == 0.0
    assert abs(dead.mean() - p) < 5.0 * math.sqrt(p * (1.0 - p) / dead.size)
    pairs = np.corrcoef(dead, rowvar=False)[np.triu_indices(24, 1)]
    assert np.abs(pairs).max() < 5.5 / math.sqrt(envs)
    assert (force[dead] == 0.0).all() and (torque[dead] == 0.0).all()
    assert np.array_equal(force[~dead], forces[0][~dead]) and np.array_equal(torque[~dead], 2.0 * forces[0][~dead])


def test_dead_taxel_is_constant_despite_noise_and_quantisation() -> None:
    """One draw of the range applies to all parts of all fields, unrounded, for the whole episode, until a reset."""
    stage = sn.stages.DeadTaxels(fields=BOTH, probability=0.5, value=sn.Uniform(5.0, 6.0))
    knobs: Any = {"noise": {"force": 0.1, "torque": 0.1}, "resolution": {"force": 0.25, "torque": 0.25}}
    cfg = SkinCfg(name="s", stages=(stage,), **knobs)
    scene = sn.Scene(skin.engine_of(cfg, 20), [cfg])
    dead = scene["s"].stage_state(stage)["dead"]
    assert dead.shape == (20, 1, 3, 4) and 0.0 < dead.mean() < 1.0

    def shown() -> tuple[torch.Tensor, torch.Tensor]:
        data = scene["s"].data
        six = torch.cat([data.force, data.torque], dim=-1)[dead[:, 0] > 0.0]
        assert torch.equal(six, six[:, :1].expand_as(six)) and bool(((six >= 5.0) & (six < 6.0)).all())
        assert (six % 0.25 != 0.0).float().mean() > 0.9
        return dead.clone(), six[:, 0].clone()

    who, values = shown()
    scene.update()
    again, same = shown()
    assert torch.equal(who, again) and torch.equal(values, same)
    scene.reset([3, 4])
    after, _ = shown()
    others = [k for k in range(20) if k not in (3, 4)]
    assert torch.equal(who[others], after[others]) and not torch.equal(who[[3, 4]], after[[3, 4]])


MASK = np.zeros((3, 4), bool)
MASK[0, 3] = MASK[1, 3] = True


@pytest.mark.parametrize("given", [{"taxels": (3, 7)}, {"mask": MASK}, {"mask": MASK.reshape(-1).tolist()},
                                   {"probability": MASK.astype(float).tolist()}])  # fmt: skip
def test_dead_taxels_can_be_selected(given: dict[str, Any]) -> None:
    """Taxels are given by numbers, by a mask nested or not, or by probabilities of 0 and 1, for each pad and env."""
    cfg = SkinCfg(name="s", pads=2, stages=(sn.stages.DeadTaxels(fields=("force",), value=-1.0, **given),))
    forces = steady(3, 24)
    expected = forces[0].reshape(3, 2, 3, 4, 3).copy()
    expected[:, :, MASK] = -1.0
    assert np.array_equal(readings(cfg, forces)[0], expected)
    assert SkinCfg.from_toml(cfg.to_toml()) == cfg and SkinCfg.from_json(cfg.to_json()) == cfg


# Stuck taxels ---------------------------------------------------------------------------------------------------------


def test_a_stuck_taxel_holds_its_first_sample_until_the_reset() -> None:
    """The others continue; after a reset of its env the taxel holds the first sample of the new episode."""
    cfg = SkinCfg(name="s", stages=(sn.stages.StuckTaxels(fields=BOTH, taxels=(5,)),))
    engine = skin.engine_of(cfg, 2)
    scene = sn.Scene(engine, [cfg])
    for k in range(1, 4):
        engine.body_pos_w[:] = float(k)
        scene.update()
    flat = scene["s"].data.force.view(2, 12, 3)
    assert (flat[:, 5] == 0.0).all() and (flat[:, :5] == 3.0).all() and (flat[:, 6:] == 3.0).all()
    scene.reset([1], body_pos_w=torch.full((1, 12, 3), 7.0))
    engine.body_pos_w[:] = 9.0
    scene.update()
    force, torque = (getattr(scene["s"].data, name).view(2, 12, 3) for name in BOTH)
    assert (force[0, 5] == 0.0).all() and (force[1, 5] == 7.0).all() and (force[:, 4] == 9.0).all()
    assert (torque[0, 5] == 0.0).all() and (torque[1, 5] == 14.0).all()


def test_a_taxel_sticks_at_the_last_value_before_its_time() -> None:
    """From the first sample at or after `start` on, the taxel shows the previous sample, like `StuckFault`."""
    ramp = np.broadcast_to(np.arange(10.0)[:, None, None, None], (10, 2, 4, 3))
    stage = sn.stages.StuckTaxels(fields=("force",), probability=1.0, start=(0.0, 0.03, 0.035, 1.0))
    out = readings(SkinCfg(name="s", layout=(4,), stages=(stage,)), ramp)[:, 1, 0, :, 0]
    for taxel, last in enumerate((0.0, 2.0, 3.0, 9.0)):
        assert np.array_equal(out[:, taxel], np.minimum(np.arange(10.0), last))
    alike = sn.stages.StuckFault(fields=("force",), start=tuple(np.repeat((0.0, 0.03, 0.035, 1.0), 3).tolist()))
    assert np.array_equal(out, readings(SkinCfg(name="s", layout=(4,), stages=(alike,)), ramp)[:, 1, 0, :, 0])


def test_drawn_times_are_per_env_and_taxel() -> None:
    """Start times are uniform over ten ticks, and all parts of a taxel stick together."""
    envs = 400
    ramp = np.broadcast_to(np.arange(13.0)[:, None, None, None], (13, envs, 4, 3))
    stage = sn.stages.StuckTaxels(fields=("force",), probability=1.0, start=sn.Uniform(0.01, 0.11))
    out = readings(SkinCfg(name="s", layout=(4,), stages=(stage,)), ramp)[-1, :, 0]
    assert (out == out[..., :1]).all()
    counts = np.bincount(out[..., 0].astype(int).reshape(-1), minlength=11)
    assert counts.sum() == counts[1:11].sum() == envs * 4
    assert np.abs(counts[1:11] - 0.1 * envs * 4).max() < 5.0 * math.sqrt(0.1 * 0.9 * envs * 4)


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: sn.stages.TaxelGain(), "gain: got nothing"),
        (lambda: sn.stages.TaxelGain(gain=-0.1), r"gain: got -0\.1, expected factors >= 0"),
        (lambda: sn.stages.TaxelGain(gain=sn.Uniform(-1.0, 1.0)), "factors >= 0"),
        (lambda: sn.stages.DeadTaxels(), "probability, taxels, mask: .*at least one of them"),
        (lambda: sn.stages.DeadTaxels(probability=-0.1), r"probability: got -0\.1, expected a probability in \[0, 1\]"),
        (lambda: sn.stages.DeadTaxels(probability=1.1), "a probability"),
        (lambda: sn.stages.DeadTaxels(probability=sn.Uniform(0.0, 1.0)), "drawn per env and taxel"),
        (lambda: sn.stages.DeadTaxels(taxels=(-1,)), "indices of taxels >= 0"),
        (lambda: sn.stages.DeadTaxels(mask=(0.5, 1.0)), "true or false for each taxel"),
        (lambda: sn.stages.DeadTaxels(mask=True), "true or false for each taxel"),
        (lambda: sn.stages.StuckTaxels(probability=0.1, start=-1.0), r"start: got -1\.0, expected times >= 0"),
    ],
)
def test_invalid_gain_and_fault_are_refused(make: Any, match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        make()


@pytest.mark.parametrize(
    ("stage", "match"),
    [
        (
            sn.stages.TaxelGain(fields=BOTH, gain=(1.0, 2.0)),
            r"gain with one number, or one for each of 12 taxels \(3 x 4, row",
        ),
        (sn.stages.DeadTaxels(fields=BOTH, taxels=(12,)), r"taxels below 12, since there are 12 taxels .*, not 12"),
        (sn.stages.DeadTaxels(fields=BOTH, mask=(True,) * 3), r"a mask over 12 taxels .*, not one of 3"),
        (
            sn.stages.DeadTaxels(fields=BOTH, probability=(0.1,) * 3),
            "probability with one number, or one for each of 12",
        ),
        (
            sn.stages.DeadTaxels(fields=BOTH, taxels=(1,), value=(0.1,) * 3),
            "value with one number, or one for each of 12",
        ),
        (
            sn.stages.StuckTaxels(fields=BOTH, taxels=(1,), start=(0.1,) * 3),
            "start with one number, or one for each of 12",
        ),
        (sn.stages.DeadTaxels(fields=("touch",), taxels=(1,)), "'touch', expected fields of float32, not bool"),
        (sn.stages.TaxelGain(gain=1.0), "units N, N m, Pa"),
    ],
)
def test_mismatch_with_the_skin_is_refused(stage: sn.stages.StageCfg, match: str) -> None:
    """The fault is found when the scene is built, and the error states the number of taxels."""
    cfg = SkinCfg(name="s", stages=(stage,))
    with pytest.raises(sn.ConfigError, match=match):
        sn.Scene(skin.engine_of(cfg, 1), [cfg])


def test_absent_stage_has_no_state() -> None:
    cfg = SkinCfg(name="s")
    scene = sn.Scene(skin.engine_of(cfg, 1), [cfg])
    with pytest.raises(KeyError, match="has no stage"):
        scene["s"].stage_state(sn.stages.DeadTaxels(taxels=(1,)))


@pytest.mark.parametrize("layout", [pytest.param((5,), marks=pytest.mark.full), (3, 4)])
def test_contract_holds(layout: tuple[int, ...]) -> None:
    """A skin with these stages passes every rule."""
    stages = (
        sn.stages.TaxelGain(fields=BOTH, gain=sn.Normal(1.0, 0.1)),
        sn.stages.DeadTaxels(fields=BOTH, probability=0.2, value=sn.Uniform(0.0, 1.0)),
        sn.stages.StuckTaxels(fields=("force",), probability=0.3, start=sn.Uniform(0.0, 0.05)),
    )
    cfg = SkinCfg(layout=layout, stages=stages)
    assert "resuming_is_exact" in check_sensor(cfg, engine=skin.moving(cfg))
