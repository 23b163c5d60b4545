"""Crosstalk between taxels: the matrix recovered by unit pokes, sums, and SciPy's convolution as reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import skin
import torch
from scipy import ndimage
from skin import BOTH, Array, SkinCfg, readings

import sensorium as sn
from sensorium.testing import check_sensor

RNG = np.random.default_rng(6)
FORCE = ("force",)
PEAK = ((0.0, 0.1, 0.0), (0.2, 0.5, 0.05), (0.0, 0.15, 0.0))


def recovered(stage: sn.stages.StageCfg, layout: tuple[int, ...], field: str = "force", pads: int = 1) -> Array:
    """Return each taxel's reading for a unit poke of each, `[poked, part, pad, taxel]`; pads are poked equally."""
    count = math.prod(layout)
    pokes = np.zeros((1, count * 3, pads, count, 3))
    for taxel in range(count):
        for part in range(3):
            pokes[0, 3 * taxel + part, :, taxel, part] = 1.0
    cfg = SkinCfg(name="s", layout=layout, pads=pads, stages=(stage,))
    out = readings(cfg, pokes.reshape(1, count * 3, pads * count, 3), field)[0]
    if field == "pressure":
        return out.reshape(count, 3, pads, count)
    out = out.reshape(count, 3, pads, count, 3)
    found = np.stack([out[:, part, ..., part] for part in range(3)], axis=1)
    assert np.count_nonzero(out) == np.count_nonzero(found)  # each part separately
    return found


@pytest.mark.parametrize(("layout", "pads"), [((7,), 1), ((2, 4), 3)])
def test_crosstalk_matrix_is_recovered_by_unit_loads(layout: tuple[int, ...], pads: int) -> None:
    """C is found column by column, to 1e-6, for a list and for a grid, for each pad and each part separately."""
    count = math.prod(layout)
    matrix = RNG.normal(0.0, 0.3, (count, count)) + np.eye(count)
    stage = sn.stages.TaxelCrosstalk(fields=FORCE, matrix=matrix)
    found = recovered(stage, layout, pads=pads)
    np.testing.assert_allclose(found, np.broadcast_to(matrix.T[:, None, None], found.shape), atol=1e-6)
    np.testing.assert_array_equal(stage.coefficients(layout), matrix)
    numbers = recovered(sn.stages.TaxelCrosstalk(fields=("pressure",), matrix=matrix), layout, "pressure", pads)
    np.testing.assert_allclose(numbers[:, 2], np.broadcast_to(matrix.T[:, None], numbers[:, 2].shape), atol=1e-6)


@pytest.mark.parametrize("given", [{"strength": 0.3, "sigma": 1.0}, {"matrix": RNG.normal(0.0, 0.3, (12, 12))}])
def test_crosstalk_matrix_is_recovered_by_loads_on_a_tactile_sensor(given: dict[str, Any]) -> None:
    """A ball of 1 mm pokes one probe per environment; all readings over the probe's own value are its column."""
    layout = sn.patterns.taxel_grid(3, 4, 0.004)
    stage = sn.stages.TaxelCrosstalk(fields=FORCE, **given)
    engine = sn.TensorEngine(
        12, bodies=("pad", "ball"), shapes=(sn.engines.Shape("sphere", "ball", (0.001,), body="ball"),)
    )
    engine.body_pos_w[:, 1] = torch.tensor(layout.positions).view(12, 3) + torch.tensor((0.0, 0.0, 0.0012))
    cfg = sn.KinematicTactileSensorCfg(name="s", body="pad", probe_radius=0.001, stages=(stage,), **layout.cfg())
    scene = sn.Scene(engine, [cfg])
    felt, read = (
        part.force[..., 2].view(12, 12).double().numpy() for part in (scene["s"].ground_truth, scene["s"].data)
    )
    assert np.array_equal(felt > 0.0, np.eye(12, dtype=bool))
    np.testing.assert_allclose((read / felt.diagonal()[:, None]).T, stage.coefficients((3, 4)), atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 8), (1, 6), (2, 2)])
@pytest.mark.parametrize("field", ["force", "pressure"])
@pytest.mark.parametrize("border", ["keep", "leak"])
def test_gaussian_equals_its_explicit_kernel(shape: tuple[int, int], field: str, border: Any) -> None:
    """Spread along each axis in turn, also on a pad narrower than the bell, it equals the full sum to 1e-6."""
    bell = sn.stages.TaxelCrosstalk(fields=(field,), strength=0.6, sigma=(0.5, 1.4), border=border)
    kernel = sn.stages.TaxelCrosstalk(fields=(field,), kernel=bell.weights(), border=border)
    forces = RNG.normal(size=(1, 4, math.prod(shape) * 2, 3))
    shown = [
        readings(SkinCfg(name="s", layout=shape, pads=2, stages=(each,)), forces, field) for each in (bell, kernel)
    ]
    np.testing.assert_allclose(*shown, rtol=0.0, atol=1e-6)


def test_readings_are_the_product_with_the_matrix() -> None:
    """y = C x for any loads, in float64, to the rounding of a sum of twelve."""
    matrix = RNG.normal(0.0, 0.3, (12, 12))
    forces = RNG.normal(size=(1, 5, 12, 3)).astype(np.float32).astype(np.float64)
    cfg = SkinCfg(name="s", stages=(sn.stages.TaxelCrosstalk(fields=BOTH, matrix=matrix),))
    expected = np.einsum("ij,ejk->eik", matrix, forces[0]).reshape(5, 1, 3, 4, 3)
    bound = 13.0 * 2.0**-24 * np.einsum("ij,ejk->eik", np.abs(matrix), np.abs(forces[0])).max()
    np.testing.assert_allclose(readings(cfg, forces)[0], expected, rtol=0.0, atol=bound)
    np.testing.assert_allclose(readings(cfg, forces, "torque")[0], 2.0 * expected, rtol=0.0, atol=2.0 * bound)


@pytest.mark.parametrize("shape", [(3, 3), (1, 5), (5, 3), (9, 9)])
def test_kernel_with_a_leak_convolves_with_zero_padding(shape: tuple[int, int]) -> None:
    """The result matches SciPy's float64 convolution, also for asymmetric kernels and kernels larger than the pad."""
    kernel = RNG.uniform(0.0, 0.2, shape)
    forces = RNG.normal(size=(1, 2, 20, 3)).astype(np.float32).astype(np.float64)
    stage = sn.stages.TaxelCrosstalk(fields=FORCE, kernel=kernel, border="leak")
    out = readings(SkinCfg(name="s", layout=(4, 5), stages=(stage,)), forces)[0, :, 0]
    x = forces[0].reshape(2, 4, 5, 3)
    for env in range(2):
        for part in range(3):
            expected = ndimage.convolve(x[env, ..., part], kernel, mode="constant")
            np.testing.assert_allclose(out[env, ..., part], expected, atol=1e-6)


def test_unit_load_in_the_centre_shows_the_kernel() -> None:
    """Row and column of the kernel are the target of the share."""
    found = recovered(sn.stages.TaxelCrosstalk(fields=FORCE, kernel=PEAK), (5, 5))
    np.testing.assert_allclose(found[12, 0, 0].reshape(5, 5)[1:4, 1:4], PEAK, atol=1e-7)


@pytest.mark.parametrize(
    "given",
    [{"strength": 0.4, "sigma": 1.0}, {"strength": 1.0, "sigma": (0.7, 2.5)}, {"kernel": PEAK},
     {"kernel": 0.5 * np.ones((3, 5))}],
)  # fmt: skip
def test_kernel_conserves_load_at_the_border(given: dict[str, Any]) -> None:
    """A load shows as itself (times the sum of the kernel) in the sum over the pad, also in a corner."""
    stage = sn.stages.TaxelCrosstalk(fields=FORCE, **given)
    found, leaky = recovered(stage, (4, 6)), recovered(stage.replace(border="leak"), (4, 6))
    total = stage.weights().sum()
    np.testing.assert_allclose(found.sum(axis=-1), total, rtol=1e-6)
    inside = leaky.sum(axis=-1)
    assert inside.max() <= total * (1.0 + 1e-6) and inside[0].max() < 0.95 * total
    np.testing.assert_allclose(found, leaky * total / inside[..., None], atol=1e-6)  # the ratios are the kernel's


def test_strength_and_sigma_give_a_normalised_gaussian() -> None:
    """A taxel keeps (1 - s) and spreads s over a bell cut at three deviations; sigma in m is converted to spacings."""
    weights = sn.stages.TaxelCrosstalk(strength=0.3, sigma=(1.0, 2.0)).weights()
    assert weights.shape == (7, 13) and weights.sum() == pytest.approx(1.0, abs=1e-12)
    own = weights[3, 6] - 0.7
    for down in range(-3, 4):
        for right in range(-6, 7):
            if (down, right) != (0, 0):
                bell = math.exp(-0.5 * down**2 - 0.5 * (right / 2.0) ** 2)
                assert weights[3 + down, 6 + right] == pytest.approx(own * bell, rel=1e-12)
    in_metres = sn.stages.TaxelCrosstalk(strength=0.3, sigma=0.004, spacing=(0.004, 0.002)).weights()
    np.testing.assert_allclose(in_metres, weights, rtol=1e-12)


@pytest.mark.parametrize(
    "given", [{"strength": 0.0, "sigma": 1.0}, {"kernel": ((1.0,),)}, {"kernel": np.pad([[1.0]], 1)},
              {"strength": 0.5, "sigma": 0.2}, {"matrix": np.eye(12)}]
)  # fmt: skip
def test_no_crosstalk_changes_no_bit(given: dict[str, Any]) -> None:
    """Strength 0, the kernel and the matrix that are the identity, a bell narrower than a taxel."""
    forces = RNG.normal(size=(1, 3, 12, 3)).astype(np.float32).astype(np.float64)
    out = readings(SkinCfg(name="s", stages=(sn.stages.TaxelCrosstalk(fields=FORCE, **given),)), forces)
    assert np.array_equal(out[0].reshape(3, 12, 3), forces[0])


def test_normal_force_shear_and_torque_have_separate_kernels() -> None:
    """Stages may name other components or fields; unnamed ones stay bit for bit the same, infinite or not."""
    stages = (
        sn.stages.TaxelCrosstalk(fields=FORCE, components=(2,), strength=0.5, sigma=1.0),
        sn.stages.TaxelCrosstalk(fields=FORCE, components=(0,), kernel=PEAK),
        sn.stages.TaxelCrosstalk(fields=("torque",), matrix=0.5 * np.eye(12)),
    )
    forces = RNG.normal(size=(1, 3, 12, 3)).astype(np.float32).astype(np.float64)
    forces[0, 0, 4, 1] = math.inf
    cfg = SkinCfg(name="s", stages=stages)
    out = readings(cfg, forces)[0].reshape(3, 12, 3)
    normal, shear = (stage.coefficients((3, 4)) for stage in stages[:2])
    np.testing.assert_allclose(out[..., 2], forces[0, ..., 2] @ normal.T, atol=1e-6)
    np.testing.assert_allclose(out[..., 0], forces[0, ..., 0] @ shear.T, atol=1e-6)
    assert np.array_equal(out[..., 1], forces[0, ..., 1])
    np.testing.assert_array_equal(readings(cfg, forces, "torque")[0].reshape(3, 12, 3), forces[0])


def test_genesis_order_is_the_given_order() -> None:
    """After crosstalk, the viscoelastic and the gain, a step in one taxel gives gain_i (1 + strength) C_ij."""
    gains = np.linspace(0.5, 1.5, 12)
    cross = sn.stages.TaxelCrosstalk(fields=FORCE, kernel=PEAK)
    stages = (
        cross,
        sn.stages.Viscoelastic(fields=FORCE, strength=0.25, tau=0.1),
        sn.stages.TaxelGain(fields=FORCE, gain=gains),
    )
    forces = np.zeros((2, 1, 12, 3))
    forces[1, 0, 5] = 2.0
    out = readings(SkinCfg(name="s", stages=stages), forces)[1].reshape(12, 3)
    np.testing.assert_allclose(
        out, (gains * 1.25 * 2.0 * cross.coefficients((3, 4))[:, 5])[:, None] + 0.0 * out, rtol=1e-6
    )
    other = readings(SkinCfg(name="s", stages=stages[::-1]), forces)[1].reshape(12, 3)
    assert not np.allclose(out, other)


@pytest.mark.usefixtures("at_once")
def test_env_counts_captures_and_resets_do_not_matter() -> None:
    """Env 1 of 2 equals env 1 of 300, bit for bit, launched or captured; a reset does not change the mixing."""
    stage = sn.stages.TaxelCrosstalk(fields=BOTH, strength=0.6, sigma=1.2)
    cfg = SkinCfg(name="s", layout=(6, 5), pads=2, stages=(stage,), noise={"force": 0.1})
    scenes = [sn.Scene(skin.moving(cfg)(envs), [cfg], capture=capture) for envs, capture in
              ((2, False), (300, False), (2, True))]  # fmt: skip
    for k in range(8):
        for scene in scenes:
            scene.update()
            if k == 5:
                scene.reset([1])
        few, many, captured = (torch.cat([s["s"].data.force[:2], s["s"].data.torque[:2]]) for s in scenes)
        assert few.numpy().tobytes() == many.numpy().tobytes() == captured.numpy().tobytes()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        ({}, "strength, kernel, matrix: .*exactly one of them"),
        ({"strength": 0.1, "sigma": 1.0, "kernel": PEAK}, "exactly one of them"),
        ({"strength": 0.1}, "sigma: .*a length if and only if strength"),
        ({"kernel": PEAK, "sigma": 1.0}, "sigma: .*a length if and only if strength"),
        ({"kernel": PEAK, "spacing": 1.0}, "spacing: .*None without sigma"),
        ({"strength": -0.1, "sigma": 1.0}, r"strength: got -0\.1, expected a share in \[0, 1\]"),
        ({"strength": 0.1, "sigma": 0.0}, r"sigma: got 0\.0, expected finite lengths above 0"),
        ({"strength": 0.1, "sigma": (1.0, -1.0)}, "finite lengths above 0"),
        ({"strength": 0.1, "sigma": 1.0, "spacing": 0.0}, r"spacing: got 0\.0, expected finite lengths above 0"),
        ({"kernel": ((0.5, 0.5),)}, "kernel: .*an odd number of rows of an odd number of weights, not 1 x 2"),
        ({"kernel": ((0.5, 0.0, 0.5), (0.5, 0.0, 0.5))}, "not 2 x 3"),
        ({"kernel": 0.5}, "not a number"),
        ({"kernel": sn.Uniform(0.0, 1.0)}, "fixed numbers"),
        ({"matrix": ((1.0, 2.0),)}, "matrix: .*a square matrix, not 1 x 2"),
        ({"matrix": ((1.0,),), "border": "leak"}, "border: .*'keep' with a matrix"),
        ({"kernel": PEAK, "components": (3,)}, "components: .*vector components 0, 1 or 2"),
    ],
)
def test_invalid_crosstalk_is_refused(make: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.stages.TaxelCrosstalk(fields=FORCE, **make)


@pytest.mark.parametrize(
    ("layout", "stage", "match"),
    [
        (
            (3, 4),
            sn.stages.TaxelCrosstalk(fields=FORCE, matrix=np.eye(3)),
            "a matrix over 12 taxels, 12 x 12, not 3 x 3",
        ),
        (
            (12,),
            sn.stages.TaxelCrosstalk(fields=FORCE, kernel=PEAK),
            "a grid .* not 12 taxels in a list: give a matrix",
        ),
        ((12,), sn.stages.TaxelCrosstalk(fields=FORCE, strength=0.1, sigma=1.0), "give a matrix"),
        (
            (3, 4),
            sn.stages.TaxelCrosstalk(fields=("pressure",), kernel=PEAK, components=(2,)),
            "'pressure' has 1 per taxel",
        ),
        (
            (1, 4),
            sn.stages.TaxelCrosstalk(fields=FORCE, kernel=((1.0,), (0.0,), (1.0,))),
            "border='leak': .* taxel 0 sum to 0",
        ),
        ((3, 4), sn.stages.TaxelCrosstalk(fields=("touch",), kernel=PEAK), "fields of float32, not bool"),
    ],
)
def test_mismatch_with_the_skin_is_refused(layout: tuple[int, ...], stage: sn.stages.StageCfg, match: str) -> None:
    """Found when the scene is built, with the number of taxels there are."""
    cfg = SkinCfg(name="s", layout=layout, stages=(stage,))
    with pytest.raises(sn.ConfigError, match=match):
        sn.Scene(skin.engine_of(cfg, 1), [cfg])


@pytest.mark.parametrize(
    "given",
    [
        {"strength": 0.3, "sigma": (1.0, 0.5), "spacing": 0.5, "border": "leak"},
        {"kernel": PEAK, "components": (0, 1)},
        pytest.param({"matrix": np.eye(12)}, marks=pytest.mark.full),
    ],
)
def test_contract_holds(given: dict[str, Any]) -> None:
    """A skin with crosstalk passes every rule, including files."""
    cfg = SkinCfg(stages=(sn.stages.TaxelCrosstalk(fields=BOTH, **given),))
    assert SkinCfg.from_toml(cfg.to_toml()) == cfg == SkinCfg.from_json(cfg.to_json())
    assert "resuming_is_exact" in check_sensor(cfg, engine=skin.moving(cfg))
