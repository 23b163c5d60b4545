"""Random numbers: bits, quality, keys and the distributions of knobs."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import warp as wp
from reference.draws import normals_numpy, uniforms_numpy
from scipy import stats
from scipy.special import ndtri

from sensorium import random
from sensorium.random import Choice, Distribution, Normal, Uniform, distribution_from_dict, stream_key

wp.config.quiet = True
wp.set_module_options({"fuse_fp": False, "enable_backward": False})

DEVICES = ["cpu", *(["cuda:0"] if wp.is_cuda_available() else [])]
KEY = stream_key(7, "imu", "noise")
GOLDEN_KEY = (0x867CB2B, 0x74F551DF)
GOLDEN_NORMALS = [1.2707438468933105, 0.2162812054157257, -1.6227943897247314, -0.8944257497787476, 0.3510826826095581]


@wp.kernel
def _fill(
    counters: wp.array2d[wp.uint32],
    k0: wp.uint32,
    k1: wp.uint32,
    table: wp.array[wp.vec3],
    words: wp.array2d[wp.uint32],
    uniforms: wp.array2d[wp.float32],
    normals: wp.array2d[wp.float32],
):
    i = wp.tid()
    c0 = counters[i, 0]
    c1 = counters[i, 1]
    c2 = counters[i, 2]
    c3 = counters[i, 3]
    w = random.philox(c0, c1, c2, c3, k0, k1)
    u = random.uniforms4(w)
    z = random.normals4(w, table)
    for j in range(4):
        words[i, j] = w[j]
        uniforms[i, j] = u[j]
        normals[i, j] = z[j]


@wp.kernel
def _of_words(
    words: wp.array[wp.uint32],
    table: wp.array[wp.vec3],
    uniforms: wp.array[wp.float32],
    normals: wp.array[wp.float32],
):
    i = wp.tid()
    uniforms[i] = random.word_to_uniform(words[i])
    normals[i] = random.word_to_normal(words[i], table)


@wp.kernel
def _draw(
    kind: wp.int32,
    a: wp.array[wp.float32],
    b: wp.array[wp.float32],
    values: wp.array2d[wp.float32],
    words: wp.array2d[wp.uint32],
    joint: wp.int32,
    table: wp.array[wp.vec3],
    out: wp.array2d[wp.float32],
):
    i, column = wp.tid()
    w = words[i, column]
    if joint == 1:
        w = words[i, 0]
    out[i, column] = random.draw(kind, a[column], b[column], values[column], w, table)


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x.ravel(), y.ravel())[0, 1])


@pytest.mark.parametrize("device", DEVICES)
def test_warp_equals_numpy(device: str) -> None:
    """Words, uniforms and normals of Warp and NumPy agree bit for bit under many keys and counters."""
    generator = np.random.default_rng(0)
    n = 1 << 16
    table = random.normal_table(device)
    for seed in range(8):
        key = stream_key(seed, "lidar", "noise")
        counters = generator.integers(0, 1 << 32, (n, 4), dtype=np.uint32)
        words = wp.zeros((n, 4), dtype=wp.uint32, device=device)
        uniforms = wp.zeros((n, 4), dtype=wp.float32, device=device)
        normals = wp.zeros((n, 4), dtype=wp.float32, device=device)
        inputs = [wp.array(counters, dtype=wp.uint32, device=device), *key, table]
        wp.launch(_fill, dim=n, inputs=inputs, outputs=[words, uniforms, normals], device=device)
        expected = random.philox_numpy(counters, key)
        assert np.array_equal(words.numpy(), expected)
        assert np.array_equal(_bits(uniforms.numpy()), _bits(random.uniform_numpy(expected)))
        assert np.array_equal(_bits(normals.numpy()), _bits(random.normal_numpy(expected)))


@pytest.mark.parametrize("device", DEVICES)
def test_draws_are_bit_identical_at_edge_values(device: str) -> None:
    """The words at every power of two, where rounding and segments change, agree bit for bit as well."""
    powers = 2 ** np.arange(33, dtype=np.int64)
    near = (powers[:, None] + np.arange(-300, 301)).ravel()
    words = np.unique(near[(near >= 0) & (near < 1 << 32)]).astype(np.uint32)
    uniforms = wp.zeros(words.size, dtype=wp.float32, device=device)
    normals = wp.zeros(words.size, dtype=wp.float32, device=device)
    inputs = [wp.array(words, dtype=wp.uint32, device=device), random.normal_table(device)]
    wp.launch(_of_words, dim=words.size, inputs=inputs, outputs=[uniforms, normals], device=device)
    assert np.array_equal(_bits(uniforms.numpy()), _bits(random.uniform_numpy(words)))
    assert np.array_equal(_bits(normals.numpy()), _bits(random.normal_numpy(words)))
    assert 0.0 <= uniforms.numpy().min() and uniforms.numpy().max() == 1.0 - 2.0**-24
    assert random.normal_numpy(np.array([0, 1, (1 << 32) - 2], np.uint32)).tolist() == [
        random.MAX_NORMAL,
        -random.MAX_NORMAL,
        0.0,
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "distribution",
    [
        Uniform(-0.3, 0.02),
        Uniform((0.0, -1.0, 5.0), (0.1, 1.0, 5.0)),
        Normal(0.1, 0.7),
        Normal((0.0, 1.0, -2.0), 0.01),
        Choice((0.1, 0.2, 0.7)),
        Choice(((0.1, 0.2, 0.3), (1.0, 2.0, 3.0), (-1.0, -2.0, -3.0), (0.0, 0.0, 0.0))),
    ],
    ids=repr,
)
def test_draw_equals_sample(device: str, distribution: Distribution) -> None:
    """`draw` in a kernel equals `sample` bit for bit, and every draw respects the bounds."""
    n, count = 50_000, 3
    env = np.arange(n)
    sample = distribution.sample(KEY, 12, env, env % 5, 2, count)
    assert sample.dtype == np.float32 and sample.shape == (n, count)
    a, b, values = (wp.array(part.T, dtype=wp.float32, device=device) for part in distribution.parameters(count))
    counters = np.stack([np.full(n, 12), env, env % 5, np.full(n, 2 << 24)], axis=-1).astype(np.uint32)
    words = wp.array(random.philox_numpy(counters, KEY), dtype=wp.uint32, device=device)
    out = wp.zeros((n, count), dtype=wp.float32, device=device)
    inputs = [distribution.kind, a, b, values, words, int(distribution.joint), random.normal_table(device)]
    wp.launch(_draw, dim=(n, count), inputs=inputs, outputs=[out], device=device)
    assert np.array_equal(_bits(out.numpy()), _bits(sample))
    low, high = distribution.bounds
    assert np.all(sample >= np.float32(low)) and np.all(sample <= np.float32(high))


@pytest.mark.parametrize(
    ("counter", "key", "seven", "ten"),
    [
        (
            (0, 0, 0, 0),
            (0, 0),
            "5f6fb709 0d893f64 4f121f81 4f730a48",
            "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        ),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            "5207ddc2 45165e59 4d8ee751 8c52f662",
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "4dfccaba 190a87f0 c47362ba b6b5242a",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], seven: str, ten: str) -> None:
    """Philox gives its authors' published results for seven and for ten rounds."""
    counters = np.array(counter, np.uint32)
    for rounds, answer in ((7, seven), (10, ten)):
        assert " ".join(f"{word:08x}" for word in random.philox_numpy(counters, key, rounds)) == answer


def test_quantile_accuracy() -> None:
    """The table follows the normal quantile within 1e-6 from the median to the last word, and is monotonic."""
    last = (1 << 31) - 1
    u = np.concatenate([np.linspace(0, last, 1 << 19), np.geomspace(1, last, 1 << 19), np.arange(1 << 12)])
    u = np.unique(u.astype(np.int64))
    z = random.normal_numpy((u << 1).astype(np.uint32)).astype(np.float64)
    exact = -ndtri((u + 0.5) / 2.0**32)
    assert exact.max() > 6.3
    assert np.abs(z - exact).max() < 1e-6
    assert np.all(np.diff(z) <= 0.0) and z.min() == 0.0
    assert np.array_equal(random.normal_numpy((u << 1 | 1).astype(np.uint32)), -z.astype(np.float32))
    assert random.normal_table("cpu").numpy()[0, 0] == random.MAX_NORMAL == z.max()


def test_normals_are_normal() -> None:
    """A million normals pass Kolmogorov-Smirnov and have the moments of a standard normal."""
    z = normals_numpy(KEY, 3, np.arange(1000), 0, 1, 1000).astype(np.float64).ravel()
    n = z.size
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.mean()) < 4.0 / math.sqrt(n)
    assert abs(z.var() - 1.0) < 4.0 * math.sqrt(2.0 / n)
    assert abs(stats.skew(z)) < 4.0 * math.sqrt(6.0 / n)
    assert abs(stats.kurtosis(z)) < 4.0 * math.sqrt(24.0 / n)


def test_uniforms_are_uniform() -> None:
    """A million uniforms fill 1024 bins evenly, by their high and by their low bits."""
    u = uniforms_numpy(KEY, 3, np.arange(1000), 0, 1, 1000).astype(np.float64).ravel()
    for part in (u, u * 2.0**14 % 1.0):
        assert stats.chisquare(np.bincount((part * 1024).astype(int), minlength=1024)).pvalue > 1e-3


def test_normal_tails_are_exact() -> None:
    """Draws beyond 3, 4 and 5 sigma have the expected frequency on either side."""
    beyond = np.zeros((2, 3), int)
    n = 0
    for tick in range(32):
        z = normals_numpy(KEY, tick, np.arange(500), 4, 0, 1000)
        n += z.size
        beyond += [[np.count_nonzero(side > sigma) for sigma in (3.0, 4.0, 5.0)] for side in (z, -z)]
    for column, sigma in enumerate((3.0, 4.0, 5.0)):
        low, high = stats.poisson.interval(0.999, n * stats.norm.sf(sigma))
        assert np.all((low <= beyond[:, column]) & (beyond[:, column] <= high)), (sigma, beyond, low, high)


def test_no_correlation() -> None:
    """Envs, columns, ticks, episodes, fields, names, purposes and seeds are uncorrelated."""
    env = np.arange(512)
    z = normals_numpy(KEY, 100, env, 3, 1, 512)
    limit = 4.0 / math.sqrt(z.size - 512)
    for lag in (1, 2, 3, 4, 8, 64):
        assert abs(_correlation(z[lag:], z[:-lag])) < limit * math.sqrt(512 / (512 - lag))
        assert abs(_correlation(z[:, lag:], z[:, :-lag])) < limit * math.sqrt(512 / (512 - lag))
    others = {
        "tick": normals_numpy(KEY, 101, env, 3, 1, 512),
        "episode": normals_numpy(KEY, 100, env, 4, 1, 512),
        "field": normals_numpy(KEY, 100, env, 3, 2, 512),
        "name": normals_numpy(stream_key(7, "imu2", "noise"), 100, env, 3, 1, 512),
        "purpose": normals_numpy(stream_key(7, "imu", "bias"), 100, env, 3, 1, 512),
        "seed": normals_numpy(stream_key(8, "imu", "noise"), 100, env, 3, 1, 512),
    }
    for what, other in others.items():
        assert abs(_correlation(z, other)) < limit, what
        assert abs(_correlation(z**2, other**2)) < limit, what


def test_ticks_and_envs_are_not_correlated_pairwise() -> None:
    """No pair among 100 envs, and no pair among 100 ticks, is correlated over 4096 draws."""
    by_env = normals_numpy(KEY, 5, np.arange(100), 0, 0, 4096)
    by_tick = np.stack([normals_numpy(KEY, tick, 5, 0, 0, 4096) for tick in range(100)])
    for rows in (by_env, by_tick):
        pairs = np.corrcoef(rows)[np.triu_indices(100, 1)] * math.sqrt(4096)
        assert np.abs(pairs).max() < 5.0  # of 4950 pairs; 4 sigma for a single pair
        assert abs(pairs.std() - 1.0) < 0.05


def test_counter_convention() -> None:
    """Word j of block q belongs to element 4 q + j; the numbers of envs and columns do not change a draw."""
    z = normals_numpy(KEY, (1 << 32) + 9, np.array([4, 2]), np.array([1, 6]), 3, 10)
    words = random.philox_numpy(np.array([9, 2, 6, 3 << 24 | 2], np.uint32), KEY)
    assert np.array_equal(z[1, 8:], random.normal_numpy(words)[:2])
    assert np.array_equal(z[0, :7], normals_numpy(KEY, 9, 4, 1, 3, 7))
    assert normals_numpy(KEY, 9, np.arange(3), 0, 0, 0).shape == (3, 0)
    with pytest.raises(ValueError, match="field: got 256"):
        normals_numpy(KEY, 0, 0, 0, 256, 1)
    with pytest.raises(ValueError, match="count: got"):
        normals_numpy(KEY, 0, 0, 0, 0, (1 << 26) + 1)


def test_stream_keys_differ() -> None:
    """Seeds, names and purposes give different keys, however they are split, and the keys never change."""
    keys = {
        stream_key(seed, name, purpose)
        for seed in (-1, 0, 1, 12, 2**40)
        for name in ("", "imu", "imu2", "2imu", "größe")
        for purpose in ("", "noise", "bias")
    }
    assert len(keys) == 75
    assert stream_key(0, "ab", "c") != stream_key(0, "a", "bc")
    assert stream_key(np.int64(7), "imu", "noise") == KEY == GOLDEN_KEY
    assert normals_numpy(KEY, 1, 2, 3, 4, 5).tolist() == GOLDEN_NORMALS


def test_table_is_shared() -> None:
    """The table is built once per device."""
    assert random.normal_table("cpu") is random.normal_table(wp.get_device("cpu"))
    assert random.normal_table("cpu").numpy().shape == (1025, 3)


@pytest.mark.parametrize(
    ("distribution", "data"),
    [
        (Uniform(0, 0.02), {"uniform": [0, 0.02]}),
        (Uniform(0, [1, 2]), {"uniform": [0, [1, 2]]}),
        (Normal(np.float32(0.5), 2), {"normal": [0.5, 2]}),
        (Choice([1, 2, 4]), {"choice": [1, 2, 4]}),
        (Choice(np.array([[1, 2], [3, 4]])), {"choice": [[1, 2], [3, 4]]}),
    ],
    ids=repr,
)
def test_distributions_round_trip(distribution: Distribution, data: dict[str, Any]) -> None:
    """A distribution survives `to_dict`, `repr`, pickling and hashing."""
    assert distribution.to_dict() == data
    assert distribution_from_dict(data) == distribution
    assert eval(repr(distribution)) == distribution
    assert pickle.loads(pickle.dumps(distribution)) == distribution
    assert hash(distribution) == hash(distribution_from_dict(data))


def test_distribution_bounds() -> None:
    """Bounds are floats, or arrays where there are columns."""
    assert Uniform(0, 0.02).bounds == (0.0, 0.02)
    assert Choice((3, 1, 2)).bounds == (1.0, 3.0)
    assert Normal(1, 0.5).bounds == (1.0 - 0.5 * random.MAX_NORMAL, 1.0 + 0.5 * random.MAX_NORMAL)
    low, high = Uniform(0, (1, 2)).bounds
    assert np.array_equal(low, [0, 0]) and np.array_equal(high, [1, 2])
    low, high = Choice(((1, 5), (2, 4))).bounds
    assert np.array_equal(low, [1, 4]) and np.array_equal(high, [2, 5])
    assert [d.columns for d in (Uniform(0, 1), Uniform(0, (1, 2)), Choice(((1, 2, 3),)))] == [None, 2, 3]


def test_choice_of_vectors_is_joint() -> None:
    """A choice of vectors returns a whole vector, a choice of numbers chooses per column; all are equally frequent."""
    vectors = Choice(((1, 1), (2, 2), (3, 3))).sample(KEY, 0, np.arange(30_000), 0, 0, 2)
    assert np.array_equal(vectors[:, 0], vectors[:, 1])
    numbers = Choice((1, 2, 3)).sample(KEY, 0, np.arange(30_000), 0, 0, 2)
    assert abs(np.mean(numbers[:, 0] == numbers[:, 1]) - 1 / 3) < 0.015
    for column in (vectors[:, 0], *numbers.T):
        assert stats.chisquare(np.bincount(column.astype(int))[1:]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1, 0), r"Uniform\.low: got 1\.0, expected at most high, 0\.0\. Swap"),
        (lambda: Uniform((0, 0), (1, -1)), r"Uniform\.low: got \(0\.0, 0\.0\)"),
        (lambda: Uniform((0, 0), (1, 1, 1)), r"Uniform\.high: .*expected 2 numbers like low\. Give low and high"),
        (lambda: Uniform(0, math.nan), r"Uniform\.high: got nan, expected a finite number"),
        (lambda: Uniform(0, 1e39), r"Uniform\.high: .*range of float32"),
        (lambda: Uniform(-3e38, 3e38), r"Uniform\.high: .*float32 can hold"),
        (lambda: Uniform("0", 1), r"Uniform\.low: got '0', expected a number"),
        (lambda: Uniform(False, 1), r"Uniform\.low: got False, expected a number"),
        (lambda: Uniform((), 1), r"Uniform\.low: got \(\), expected at least one number"),
        (lambda: Normal(0, -1), r"Normal\.std: got -1\.0, expected a standard deviation >= 0"),
        (lambda: Normal((0, math.inf), 1), r"Normal\.mean\.1: got inf"),
        (lambda: Normal(0, 3e38), r"Normal\.std: .*float32 can hold"),
        (lambda: Normal(10**400, 1), r"Normal\.mean: .*finite"),
        (lambda: Choice(()), r"Choice\.values: got \(\), expected a non-empty tuple"),
        (lambda: Choice(1.0), r"Choice\.values: got 1\.0, expected a non-empty tuple"),  # type: ignore[arg-type]
        (lambda: Choice("abc"), r"Choice\.values: got 'abc'"),  # type: ignore[arg-type]
        (lambda: Choice((1, (1, 2))), r"Choice\.values: .*only numbers, or only vectors of one length"),
        (lambda: Choice((1, None)), r"Choice\.values\.1: got None"),  # type: ignore[arg-type]
        (lambda: distribution_from_dict({}), r"Distribution\.keys: got \{\}, expected one of .*uniform.*normal"),
        (lambda: distribution_from_dict({"gauss": [0, 1]}), r"Distribution\.keys: got 'gauss', expected one of"),
        (lambda: distribution_from_dict({"uniform": [1]}), r"Distribution\.uniform: got \[1\], .*\[low, high\]"),
        (lambda: distribution_from_dict({"normal": 1}), r"Distribution\.normal: got 1, .*\[mean, std\]"),
        (lambda: distribution_from_dict([1]), r"Distribution\.keys: got \[1\]"),  # type: ignore[arg-type]
        (lambda: Uniform((0, 0), 1).sample(KEY, 0, 0, 0, 0, 3), r"Uniform\.columns: got 2, expected 3"),
    ],
)
def test_invalid_distributions_are_refused(make: Any, message: str) -> None:
    """A fault is a ValueError with class, field, given value, expected value and fix."""
    with pytest.raises(ValueError, match=message):
        make()
