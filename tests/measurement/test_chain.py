"""The fused chain, checked against a slow float64 reference in NumPy with the twin generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synthetic as syn
from reference.draws import normals_numpy

import sensorium as sn
from sensorium.random import stream_key

SEED, ENVS, TICKS, DT = 5, 21, 30, 0.002  # the chain runs on groups of 8 envs: whole ones and remainders
INDEX = {name: k for k, name in enumerate(syn.ALL_FIELDS)}


def draws(what: str, field: str, tick: int, count: int, episode: Any = 0, name: str = "p") -> np.ndarray:
    """Return the normals of one field at one tick, [env, count]."""
    return normals_numpy(stream_key(SEED, name, what), tick, np.arange(ENVS), episode, INDEX[field], count)


def turn(q: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Return q times the unit quaternion along (1, e/2), float64."""
    p = np.concatenate([np.ones((len(e), 1)), e / 2.0], axis=1)
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    scalar = q[:, 0] * p[:, 0] - np.einsum("ij,ij->i", q[:, 1:], p[:, 1:])
    vector = q[:, :1] * p[:, 1:] + p[:, :1] * q[:, 1:] + np.cross(q[:, 1:], p[:, 1:])
    return np.concatenate([scalar[:, None], vector], axis=1)


def test_chain_matches_the_reference() -> None:
    """Noise, walk, bias and quantisation per column, on vectors and a rotation, agree with the reference each tick."""
    noise, walk = np.array([0.5, 0.0, 2.0]), np.array([0.1, 0.3, 0.2])
    bias, step = np.array([1.0, -2.0, 0.5]), np.array([0.0, 0.125, 0.1])
    turn_noise, turn_walk, turn_bias = np.array([0.01, 0.02, 0.03]), np.full(3, 0.001), np.array([0.1, 0.0, -0.1])
    cfg = syn.ProbeCfg(
        name="p", fields=("vec", "speed", "quat"),
        noise={"vec": tuple(noise), "quat": tuple(turn_noise), "speed": 0.25},
        random_walk={"vec": tuple(walk), "quat": 0.001}, bias={"vec": tuple(bias), "quat": tuple(turn_bias)},
        resolution={"vec": tuple(step)},
    )  # fmt: skip
    scene = syn.world([cfg], ENVS, DT, seed=SEED)
    scene.compute.shards = 2  # of 10 and 11 envs
    w, v, episode = np.zeros((ENVS, 3)), np.zeros((ENVS, 3)), np.zeros(ENVS, int)
    for k in range(TICKS + 1):
        source = k
        if k:
            syn.advance(scene)
            w += walk * draws("random_walk", "vec", k, 3, episode)
            v += turn_walk * draws("random_walk", "quat", k, 4, episode)[:, :3]
        if k == 20:
            syn.reset(scene, tick=20)
            episode += 1
            w, v = np.zeros_like(w), np.zeros_like(v)
        data = scene["p"].data
        x = syn.signal(source, ENVS).double().numpy() + noise * draws("noise", "vec", k, 3, episode) + w + bias
        rounded = np.where(step > 0, np.rint(x / np.where(step > 0, step, 1.0)) * step, x)
        # float32 stores x to 2^-24 of its greatest term, in each of four additions; a value at the edge of two steps
        # may round to either
        tolerance = 4.0 * 2.0**-24 * (np.abs(x) + 10.0)
        wrong = np.abs(data.vec.numpy() - rounded) > tolerance + 1e-6 * np.abs(x)
        at_edge = np.abs(np.abs(x - rounded) - step / 2.0) <= tolerance
        assert not np.any(wrong & ~at_edge)
        z = draws("noise", "speed", k, 1, episode)[:, 0]
        true = 2.0 * syn.signal(source, ENVS)[:, 0].numpy()
        assert syn.bits(data.speed.numpy()) == syn.bits(true + np.float32(0.25) * z), "not bit-exact"
        e = turn_noise * draws("noise", "quat", k, 4, episode)[:, :3] + v + turn_bias
        np.testing.assert_allclose(data.quat.numpy(), turn(syn.yaw(source, ENVS).double().numpy(), e), atol=5e-7)


def test_random_walk_is_exact() -> None:
    """The walk is the float32 sum of its increments, starts at 0, and restarts at 0 after a reset."""
    scene = syn.world([syn.ScalarCfg(name="p", random_walk=0.5)], ENVS, DT, seed=SEED)
    walk = scene["p"].buffers.walks["value"]
    expected = np.zeros((ENVS, 1), np.float32)
    episode = np.zeros(ENVS, int)
    for k in range(1, 40):
        syn.advance(scene)
        key = stream_key(SEED, "p", "random_walk")
        expected = expected + np.float32(0.5) * normals_numpy(key, k, np.arange(ENVS), episode, 0, 1)
        assert syn.bits(walk.numpy()) == syn.bits(expected)
        if k == 25:
            scene.reset([1])
            episode[1] += 1
            expected[1] = 0.0
    assert np.all(np.abs(expected) > 0.0)


def test_quantised_outputs_are_multiples() -> None:
    """With a resolution of 1/8 every output is a multiple of it, after noise, walk and bias; halves go to even."""
    knobs: dict[str, Any] = {"noise": 1.0, "random_walk": 1.0, "bias": 0.3, "resolution": 0.125}
    scene = syn.world([syn.ProbeCfg(name="p", **knobs), syn.ScalarCfg(name="half", resolution=2.0)], 16)
    for k in range(1, 9):
        syn.advance(scene)
        steps = scene["p"].data.vec.numpy() / 0.125
        assert np.array_equal(steps, np.rint(steps))
        assert np.array_equal(scene["half"].data.numpy(), 2.0 * np.rint((k + 64.0 * np.arange(16)) / 2.0))


def test_any_step_gives_multiples() -> None:
    """With any resolution the output is a whole number times it, rounded once to float32."""
    scene = syn.world([syn.ProbeCfg(name="p", noise=1.0, resolution=0.07)], 64)
    syn.advance(scene)
    values, step = scene["p"].data.vec.numpy(), np.float32(0.07)
    assert np.array_equal(values, np.rint(values / step) * step)


@pytest.mark.parametrize("rate", [{}, {"rate_hz": 100.0}, {"update_period": 0.025}])
@pytest.mark.parametrize("dt", [0.001, 0.002])
def test_density_knobs_scale_with_rate(dt: float, rate: dict[str, float]) -> None:
    """sigma = N sqrt(rate) and walk sigma = K / sqrt(rate): halving dt keeps the density."""
    hz = rate.get("rate_hz") or (1.0 / rate["update_period"] if rate else 1.0 / dt)
    scene = syn.world([syn.ScalarCfg(name="p", noise_density=0.01, random_walk_density=0.02, **rate)], dt=dt)
    tables = scene["p"].buffers.knobs.tables
    assert float(tables["noise", "value"].values) == pytest.approx(0.01 * hz**0.5, rel=1e-6)
    assert float(tables["random_walk", "value"].values) == pytest.approx(0.02 * hz**-0.5, rel=1e-6)
    scene["p"].set("noise_density", 0.03)
    assert float(tables["noise", "value"].values) == pytest.approx(0.03 * hz**0.5, rel=1e-6)


def test_random_walk_density_grows_with_time() -> None:
    """After one second the spread of a walk is K sqrt(1 s) at any dt, within a 99 % interval of the variance."""
    from scipy import stats

    low, high = stats.chi2.ppf([0.005, 0.995], 4095) / 4095
    for dt, ticks in ((0.05, 20), (0.025, 40)):
        scene = syn.world([syn.ScalarCfg(name="p", random_walk_density=0.3)], 4096, dt, seed=8)
        syn.advance(scene, ticks)
        variance = float((scene["p"].data - scene["p"].ground_truth).double().var())
        assert low < variance / 0.09 < high * 1.001  # subtracting float32 values near 2^18 adds their rounding


def test_rotation_noise_turns_by_small_angles() -> None:
    """Rotation noise keeps unit quaternions; its rotation vector is normal with the given deviation per axis."""
    from scipy import stats
    from scipy.spatial.transform import Rotation

    sigma = np.array([0.01, 0.02, 0.03])
    cfg = syn.ProbeCfg(name="p", fields=("quat",), noise={"quat": tuple(sigma)})
    scene = syn.world([cfg], 4096, seed=2)
    syn.advance(scene)
    measured = scene["p"].data.quat.double().numpy()
    truth = scene["p"].ground_truth.quat.double().numpy()
    assert np.abs(np.linalg.norm(measured, axis=1) - 1.0).max() < 4.0 * 2.0**-24
    rotations = [Rotation.from_quat(np.roll(q, -1, 1)) for q in (truth, measured)]
    turned = (rotations[0].inv() * rotations[1]).as_rotvec()
    for axis in range(3):  # a rotation vector of e is 2 atan(e/2), 3e-5 less than e at 0.02
        assert stats.kstest(turned[:, axis] / sigma[axis], "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(turned.T) - np.eye(3)).max() < 2.58 / 64.0


def test_custom_hardware_hook_calls_the_chain() -> None:
    """A sensor with its own hardware hook that calls `standard_chain` gets the bits of the fused chain."""
    scene = syn.world([syn.ContractCfg(name="p", noise=0.5, bias=1.0, resolution=0.01)], ENVS, seed=SEED)
    syn.advance(scene)
    key = stream_key(SEED, "p", "noise")
    z = normals_numpy(key, 1, np.arange(ENVS), 0, 0, 8)
    before = (syn.signal(1, ENVS)[:, :1] + syn.PHYSICS + syn.ELEMENT).numpy()
    x = (before + np.float32(0.5) * z) + np.float32(1.0)
    step = np.float32(0.01)
    assert syn.bits(scene["p"].data.x.numpy()) == syn.bits(np.rint(x / step) * step + syn.HARDWARE.numpy())
    record = scene["p"].buffers.slot
    with pytest.raises(ValueError, match="standard_chain"):
        scene["p"].standard_chain(record)


def test_noise_statistics() -> None:
    """White noise is standard normal across envs, columns and ticks, without correlation between them."""
    from scipy import stats

    scene = syn.world([syn.ProbeCfg(name="p", noise=1024.0)], 2048, seed=4)
    seen = []
    for _ in range(4):
        syn.advance(scene)
        seen.append(scene["p"].data.vec.double() - scene["p"].ground_truth.vec.double())
    z = np.concatenate(seen, axis=1) / 1024.0
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(z.T) - np.eye(12)).max() < 4.0 / 2048**0.5  # 66 pairs: 99.6 % each at 2.9 sigma


def test_noise_given_twice_is_refused() -> None:
    """Each field has one amount: noise with its density, or a field with its prefix, is rejected."""
    with pytest.raises(sn.ConfigError, match="noise_density"):
        syn.world([syn.ScalarCfg(noise=1.0, noise_density=1.0)])
    with pytest.raises(sn.ConfigError, match="speed_noise"):
        syn.world([syn.ProbeCfg(fields=("speed",), noise={"speed": 1.0}, speed_noise=2.0)])
    with pytest.raises(sn.ConfigError, match="resolution"):
        syn.world([syn.ProbeCfg(fields=("quat",), resolution={"quat": 0.1})])
