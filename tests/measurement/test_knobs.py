"""Run-time settings: per env, per column, per field, by prefix; distributions; rejected values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.random import stream_key

# Per env --------------------------------------------------------------------------------------------------------------


def error(scene: sn.Scene, name: str = "p", field: str = "vec") -> torch.Tensor:
    """Return measured minus true."""
    sensor = scene[name]
    return getattr(sensor.data, field) - getattr(sensor.ground_truth, field)


def test_set_changes_only_given_envs() -> None:
    """A setter changes only the envs it names, for every setting: one env, several, a mask or all."""
    amounts: dict[str, Any] = {"noise": 0.5, "bias": 2.0, "random_walk": 0.5, "resolution": 0.25}
    for knob, amount in amounts.items():
        cfg = syn.ProbeCfg(name="p", fields=("vec",), **{knob: 0.0})
        scene, twin = syn.world([cfg]), syn.world([cfg])
        syn.advance(scene), syn.advance(twin)
        scene["p"].set(knob, amount, [2])
        scene["p"].set(knob, amount, torch.tensor([True, False, False, False]))
        scene.engine.body_pos_w += 0.1
        twin.engine.body_pos_w += 0.1
        scene.update(), twin.update()
        changed = (scene["p"].data.vec != twin["p"].data.vec).any(dim=1)
        assert changed.tolist() == [True, False, True, False], knob
        getattr(scene["p"], f"set_{knob}")(0.0)
        scene.reset(), twin.reset()
        syn.same(syn.snapshot(scene["p"]), syn.snapshot(twin["p"]))


def test_set_accepts_values_per_env_and_column() -> None:
    """A number, one per column, one row per env and one per env have their documented meanings."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"), bias={"vec": 0.0, "speed": 0.0})])
    sensor = scene["p"]
    sensor.set("bias", {"vec": (1.0, 2.0, 3.0)}, [0])
    sensor.set("bias", {"vec": [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]}, [3, 1])
    sensor.set("bias", {"speed": [1.0, 2.0, 3.0]}, [1, 2, 3])
    syn.advance(scene)
    assert error(scene).tolist() == [[1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [0.0, 0.0, 0.0], [4.0, 5.0, 6.0]]
    assert error(scene, field="speed").tolist() == [0.0, 1.0, 2.0, 3.0]
    sensor.set("bias", {"vec": [[10.0], [20.0]]}, [0, 2])
    sensor.set("bias", {"speed": torch.arange(4.0)})
    sensor.set("bias", {"vec": np.full((4, 3), 0.5)})
    syn.advance(scene)
    assert error(scene).unique().tolist() == [0.5] and error(scene, field="speed").tolist() == [0.0, 1.0, 2.0, 3.0]
    sensor.set("bias", {"vec": [1.0, 2.0, 3.0, 4.0]})
    sensor.set("bias", {"vec": (5.0, 6.0, 7.0)}, [0, 1, 2])  # as in the config: one per column
    syn.advance(scene)
    assert error(scene).tolist() == [[5.0, 6.0, 7.0]] * 3 + [[4.0] * 3]


def test_knobs_by_field_and_prefix_are_equal() -> None:
    """A mapping sets fields, and a prefix sets one field; other fields keep their values."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"), bias={"vec": 1.0}, speed_bias=2.0)])
    syn.advance(scene)
    assert error(scene).unique().tolist() == [1.0] and error(scene, field="speed").unique().tolist() == [2.0]
    scene["p"].set("speed_bias", 3.0, [1])
    scene["p"].set("bias", {"speed": 4.0}, [2])
    syn.advance(scene)
    assert error(scene).unique().tolist() == [1.0] and error(scene, field="speed").tolist() == [2.0, 3.0, 4.0, 2.0]


def test_invalid_knobs_are_refused() -> None:
    """Errors for absent settings name `reconfigure`, for unknown ones the nearest; negative, non-finite and ill-shaped
    amounts fail.
    """
    cfg = syn.ProbeCfg(name="p", fields=("vec", "speed"), noise={"vec": 0.1}, delay=0.05, jitter=0.01, loss=0.1)
    sensor = syn.world([cfg])["p"]
    for knob, amount, envs, text in [
        ("bias", {"vec": 1.0}, None, "reconfigure"),
        ("noise", {"speed": 1.0}, None, "reconfigure"),
        ("noise", {"vec": -1.0}, None, "negative"),
        ("noise", {"vec": float("nan")}, None, "finite"),
        ("noise", {"vec": torch.tensor(float("nan"))}, None, "finite"),
        ("noise", {"vec": (1.0, 2.0)}, None, "fits"),
        ("noise", {"vec": [[1.0] * 3] * 3}, [0, 1], "noise"),
        ("noise", {"vec": sn.Uniform(0.0, 1.0)}, None, "config"),
        ("delay", 0.06, None, "reconfigure"),
        ("delay", -0.01, None, "seconds"),
        ("jitter", 0.06, None, "reconfigure"),
        ("jitter", -0.01, None, "seconds"),
        ("loss", 1.5, None, "probability"),
    ]:
        with pytest.raises(sn.ConfigError, match=text):
            sensor.set(knob, amount, envs)
    for knob, text in (("nose", "noise"), ("sped_bias", "speed_bias")):
        with pytest.raises(KeyError, match=text):
            sensor.set(knob, 1.0)
    with pytest.raises(KeyError, match="'vec'"):
        sensor.set("noise", {"vek": 1.0})
    with pytest.raises(ValueError, match="env_ids"):
        sensor.set("noise", {"vec": 1.0}, [9])
    with pytest.raises(sn.ConfigError, match="reconfigure"):
        syn.world([syn.ScalarCfg(name="s")])["s"].set("delay", 0.01)
    with pytest.raises(sn.ConfigError, match="reconfigure"):
        syn.world([syn.ScalarCfg(name="s", delay=0.01)])["s"].set("jitter", 0.01)


def test_error_for_an_absent_knob_has_the_config_that_allows_it() -> None:
    """One number for all fields fails at the absent knob, not at the units; the config of the message can be set."""
    rows = ((syn.ProbeCfg(name="p", fields=("vec", "speed")), 1.0, {"vec": 0.0, "speed": 0.0}),
            (syn.ProbeCfg(name="p", fields=("vec", "speed")), {"speed": 1.0}, {"speed": 0.0}),
            (syn.ScalarCfg(name="p"), 1.0, 0.0))  # fmt: skip
    for cfg, amount, given in rows:
        scene = syn.world([cfg])
        with pytest.raises(sn.ConfigError) as caught:
            scene["p"].set_noise(amount)
        fix = f"Absent knobs take no memory: give noise={given} in the config, or use "
        assert caught.value.faults[0].fix == fix + "scene.reconfigure('p', noise=...)."
        scene.reconfigure("p", noise=given)
        scene["p"].set_noise({"speed": 1.0} if isinstance(given, dict) else 1.0)


def test_zero_knobs_are_live() -> None:
    """A setting given as 0 has no effect until it is set."""
    knobs = {"noise": 0.0, "bias": 0.0, "random_walk": 0.0, "resolution": 0.0, "delay": 0.0, "loss": 0.0}
    scene = syn.world([syn.ScalarCfg(name="p", **knobs), syn.ScalarCfg(name="q")])
    syn.advance(scene, 3)
    assert torch.equal(scene["p"].data, scene["q"].data)
    scene["p"].set("bias", 1.0)
    scene["p"].set("loss", 1.0, [0])
    syn.advance(scene)
    assert (scene["p"].data - scene["q"].data).tolist() == [-1.0, 1.0, 1.0, 1.0]  # env 0 shows the previous sample


@pytest.mark.parametrize("as_tensor", [False, True])
def test_delay_and_jitter_per_env(as_tensor: bool) -> None:
    """Delay and jitter belong to sensor and env: two sensors in either order, envs set separately, also from
    tensors.
    """
    dt = 0.1
    wrap = (lambda values: torch.tensor(values)) if as_tensor else (lambda values: values)
    for order in (1, -1):
        cfgs = [syn.ProbeCfg(name="a", fields=("vec", "speed", "quat"), delay=0.3, jitter=0.0),
                syn.ProbeCfg(name="b", fields=("vec", "speed", "quat"), delay=0.3, jitter=0.1)]  # fmt: skip
        scene = syn.world(cfgs[::order], 4, dt)
        scene["a"].set("delay", wrap([0.1, 0.2]), [1, 2])
        scene["a"].set_jitter(0.3, [3])
        lags: dict[str, list[Any]] = {"a": [], "b": []}
        for k in range(60):
            syn.advance(scene)
            if k >= 10:
                for name, seen in lags.items():
                    seen.append((scene.tick - scene[name].capture_tick).tolist())
        a, b = (np.array(lags[name]) for name in ("a", "b"))
        assert [set(a[:, env]) for env in range(3)] == [{3}, {1}, {2}]
        assert set(a[:, 3]) >= {3, 4, 5} and a.max() <= 6
        assert all(set(b[:, env]) == {3, 4} for env in range(4))


# Distributions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [sn.Uniform(1.0, 2.0), sn.Normal(0.0, 1.0), sn.Choice((1.0, 2.0, 4.0)),
                                 sn.Uniform((0.0, 10.0, 20.0), (1.0, 11.0, 21.0)),
                                 sn.Choice(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)))], ids=str)  # fmt: skip
def test_distributions_are_drawn_per_env_at_reset(law: Any) -> None:
    """A distribution is drawn per env at reset, in bounds, constant in an episode; others keep theirs."""
    scene = syn.world([syn.ProbeCfg(name="p", bias=law)], 64, seed=3)

    def bias() -> np.ndarray:
        return scene["p"].buffers.knobs.tables["bias", "vec"].values.numpy().copy()

    first = bias()
    key = stream_key(3, "p", "knob/bias")
    assert syn.bits(first) == syn.bits(law.sample(key, 0, np.arange(64), 0, 0, 3))
    low, high = law.bounds
    assert np.all(first >= low) and np.all(first <= high)
    assert len(np.unique(first, axis=0)) > (1 if isinstance(law, sn.Choice) else 60)
    if getattr(law, "joint", False):
        assert {tuple(row) for row in first.tolist()} == set(law.values)
    syn.advance(scene, 3)
    assert np.array_equal(bias(), first)
    assert np.array_equal(error(scene).numpy(), (syn.signal(3, 64).numpy() + first) - syn.signal(3, 64).numpy())
    syn.reset(scene, [5, 6, 7, 8, 9, 10])
    second = bias()
    others = [env for env in range(64) if not 5 <= env <= 10]
    assert np.array_equal(second[others], first[others])
    assert syn.bits(second[5:11]) == syn.bits(law.sample(key, 0, np.arange(5, 11), 1, 0, 3))
    assert not np.array_equal(second[5:11], first[5:11])


def test_negative_draws_are_clipped() -> None:
    """A normal distribution of a nonnegative amount is clipped at 0."""
    scene = syn.world([syn.ScalarCfg(name="p", noise=sn.Normal(0.0, 1.0))], 256)
    values = scene["p"].buffers.knobs.tables["noise", "value"].values
    assert values.min() == 0.0 and 96 < int((values == 0.0).sum()) < 160


def test_an_array_is_one_amount_per_env_or_refused() -> None:
    """Its meaning does not depend on whether the number of envs happens to be that of the axes."""
    scene = sn.Scene(sn.TensorEngine(6), [sn.ImuCfg(name="imu", body="body", gyro_noise=0.0)])
    imu, each = scene["imu"], torch.arange(1.0, 4.0)
    for values in (each[:, None], each[:, None, None], each[:, None].expand(3, 3)):
        imu.set("gyro_noise", 0.0)
        imu.set("gyro_noise", values, env_ids=[0, 2, 4])
        assert imu.get("gyro_noise").tolist() == [[k] * 3 for k in (1.0, 0.0, 2.0, 0.0, 3.0, 0.0)]
    imu.set("gyro_noise", each[:2], env_ids=[0, 1])
    assert imu.get("gyro_noise", [0, 1]).tolist() == [[1.0] * 3, [2.0] * 3]
    for values in (each[None], (1.0, 2.0, 3.0)):
        imu.set("gyro_noise", values, env_ids=[0, 2, 4])
        assert imu.get("gyro_noise", [0, 2, 4]).tolist() == [[1.0, 2.0, 3.0]] * 3
    with pytest.raises(sn.ConfigError, match=r"shape \(3, 1, 1\) for one per env, or \(1, 1, 3\) for the same in all"):
        imu.set("gyro_noise", each, env_ids=[0, 2, 4])


def test_delay_is_drawn_per_env_at_reset() -> None:
    """A delay drawn per env follows its distribution, in ticks, and is redrawn at reset."""
    scene = syn.world([syn.ScalarCfg(name="p", delay=sn.Choice((0.0, 0.02, 0.05)))], 64)
    syn.advance(scene, 10)
    first = scene.tick - scene["p"].capture_tick
    assert set(first.tolist()) == {0, 2, 5}
    scene.reset(list(range(32)))
    syn.advance(scene, 10)
    second = scene.tick - scene["p"].capture_tick
    assert torch.equal(second[32:], first[32:]) and not torch.equal(second[:32], first[:32])


# Reconfigure ----------------------------------------------------------------------------------------------------------


def test_reconfigure_adds_an_absent_knob() -> None:
    """`reconfigure` adds an absent setting and keeps the order, and a faulty change does not affect the old sensor."""
    scene = syn.world([syn.ScalarCfg(name="a"), syn.ScalarCfg(name="b", noise=1.0)])
    syn.advance(scene, 3)
    with pytest.raises(sn.ConfigError):
        scene.reconfigure("a", noise=-1.0)
    with pytest.raises(sn.ConfigError, match="on_read"):
        scene.reconfigure("a", delay=0.01, evaluate="on_read")
    assert torch.equal(scene["a"].data, syn.signal(3, 4)[:, 0])
    new = scene.reconfigure("a", bias=1.0, delay=0.01)
    assert list(scene) == ["a", "b"] and scene["a"] is new and new.frame.tolist() == [1] * 4
    syn.advance(scene)
    assert torch.equal(new.data, syn.signal(3, 4)[:, 0] + 1.0)
    with pytest.raises(sn.DuplicateNameError):
        scene.reconfigure("a", name="b")
