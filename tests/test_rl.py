"""Environments for reinforcement learning, action delays and seeds, and the wrappers for Gymnasium."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from cart import MODEL, Cart
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics

import sensorium as sn
from sensorium.rl import ActionDelay, GymnasiumEnv, GymnasiumVectorEnv, RlEnv


def actions(envs: int, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (steps, envs, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def cart() -> Cart:
    return Cart(3)


# Environments ---------------------------------------------------------------------------------------------------------


def test_episode_is_counted_and_ends(cart: Cart) -> None:
    """An episode terminates at its limit of the state, or is truncated at its limit of time, but never both."""
    cart.reset(seed=0)
    for step in range(1, 41):
        push = np.array([[0.0], [1.0], [-1.0]], np.float32)
        reward, terminated, truncated = cart.step(push)
        assert cart.episode_length.tolist() == [step] * 3 and not (terminated & truncated).any()
        torch.testing.assert_close(reward, torch.exp(-4.0 * cart.place**2))
        assert torch.equal(terminated, cart.place.abs() > 1.5)
    assert truncated.tolist() == [True, False, False] and terminated.tolist() == [False, True, True]
    cart.reset(terminated)
    assert cart.episode_length.tolist() == [40, 0, 0] and cart.action[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert (cart.place[1:].abs() < 1.0).all()
    with pytest.raises(sn.ArgumentError, match=r"an action of shape \[3\]; \[env, action\], \[3, 1\]"):
        cart.step(np.zeros(3))
    with pytest.raises(sn.ArgumentError, match="omit env_ids"):
        cart.reset([0], seed=1)


def test_seed_repeats_the_run_and_others_differ(cart: Cart) -> None:
    """Equal seeds give equal starts, noise and biases, over resets of single environments; other seeds do not."""

    def run(seed: int) -> torch.Tensor:
        cart.reset(seed=seed)
        seen = [cart.observe()]
        for step, action in enumerate(actions(3, 12)):
            cart.step(action)
            if step == 5:
                cart.reset([1])
            seen.append(cart.observe())
        return torch.stack([torch.cat([obs["policy"], obs["critic"]], dim=1) for obs in seen])

    first, other = run(7), run(8)
    assert torch.equal(run(7), first)
    assert (first[0] != other[0])[:, [0, 1, 3, 5]].all() and (first[0, 1] != first[6, 1])[[0, 3, 5]].all()


def test_seed_keeps_running_statistics(cart: Cart) -> None:
    look = cart.scene.observer(sn.ObsTerm("joints.position", normalise=True))
    seen = []
    for _ in range(2):
        cart.reset(seed=3)
        seen.append((cart.observe()["policy"], look()))
        for action in actions(3, 10):
            cart.step(action)
            look()
    (first, before), (again, after) = seen
    assert torch.equal(first, again) and not torch.equal(before, after)


def test_knobs_and_models_are_randomised() -> None:
    """Each reset draws the knobs and factors of the models of its environments, and leaves the others."""
    env = Cart(
        5,
        randomise={
            "joints.delay": sn.Uniform(0.0, 0.01),
            "joints.noise.velocity": sn.Uniform(0.0, 1.0),
            "model.geom_friction": sn.Uniform(0.5, 2.0),
        },
        delay=0.01,
    )
    friction = env.scene.engine.batch.expanded("geom_friction")  # type: ignore[attr-defined]
    env.reset(seed=1)
    assert len(env.scene["joints"].get("noise.velocity").unique()) == 5
    delay, before = env.scene["joints"].get("delay"), friction.copy()
    assert len(delay.unique()) == 5 and len(np.unique(before[:, 0, 0])) == 5
    np.testing.assert_allclose(before[:, :, 1] / before[:, :, 0], 0.005, rtol=1e-6)  # one factor per environment
    env.reset([0, 3])
    changed = env.scene["joints"].get("delay") != delay
    assert changed.tolist() == (friction != before).any(axis=(1, 2)).tolist() == [True, False, False, True, False]
    with pytest.raises(sn.ConfigError, match="a knob that the config gives"):
        Cart(1, randomise={"joints.resolution.position": sn.Uniform(0.0, 1.0)})
    with pytest.raises(sn.ConfigError, match="The sensor draws it at each reset"):
        Cart(1, randomise={"joints.bias.position": sn.Uniform(0.0, 1.0)})
    with pytest.raises(sn.ArgumentError, match="cannot vary 'nothing'"):
        Cart(1, randomise={"model.nothing": sn.Uniform(0.0, 1.0)})


def test_action_arrives_after_its_delay() -> None:
    """With a delay of 1.5 control steps, the motor sees the control of a zero action, then each one for two ticks,
    from the tick of its arrival on.
    """
    delay = sn.Choice((0.0, 0.01, 0.03))
    env = Cart(12, action_delay=ActionDelay(delay))
    env.reset(seed=3)
    late = (env.action_delay / 0.01).round().long()
    assert set(late.tolist()) == {0, 1, 3}
    seen: list[torch.Tensor] = []
    watch = env.scene.watch(lambda: seen.append(env.scene.engine.ctrl[:, 0].clone()), every_tick=True)  # type: ignore[attr-defined]
    for step in range(1, 6):
        env.step(torch.full((12, 1), float(step)))
    watch.close()
    ticks = torch.stack(seen)  # the control that holds after each tick, until the next control step
    for tick in range(0, 10, 2):  # after the first tick of a step, its second one begins
        expected = ((tick + 1 - late).clamp(min=-2) // 2 + 1).clamp(min=0)
        assert torch.equal(ticks[tick], expected.double()), tick


def test_jitter_and_loss_of_actions() -> None:
    """A lost action never arrives; a later action is never replaced by an earlier one."""
    env = Cart(64, action_delay=ActionDelay(0.0, jitter=0.04, loss=0.3))
    env.reset(seed=3)
    newest = torch.zeros(64)
    seen: list[torch.Tensor] = []
    watch = env.scene.watch(lambda: seen.append(env.scene.engine.ctrl[:, 0].float().clone()), every_tick=True)  # type: ignore[attr-defined]
    for step in range(1, 31):
        env.step(torch.full((64, 1), float(step)))
    watch.close()
    for ctrl in seen:
        assert (ctrl >= newest).all()
        newest = ctrl
    shown = [set(torch.stack(seen)[:, env].tolist()) for env in range(64)]
    missing = 1.0 - np.mean([len(each & set(range(1, 28))) / 27 for each in shown])
    assert 0.3 < missing < 0.75 and ((30.0 - newest) <= 9.0).all()
    with pytest.raises(sn.ConfigError, match=r"loss: got 1\.5, expected a probability"):
        ActionDelay(0.0, loss=1.5)
    with pytest.raises(sn.ConfigError, match=r"delay: got -0\.1, expected seconds"):
        ActionDelay(-0.1)


def test_missing_parts_are_named() -> None:
    scene = sn.Scene(sn.MujocoEngine(MODEL), [sn.JointSensorCfg(name="joints", joints="rail")])
    task = RlEnv(scene, {"policy": ["joints"]})
    task.reset()
    with pytest.raises(NotImplementedError, match="RlEnv must define reward"):
        task.step(np.zeros((1, 1)))
    with pytest.raises(sn.ConfigError, match="substeps: got 0"):
        RlEnv(scene, {"policy": ["joints"]}, substeps=0)
    with pytest.raises(sn.UnknownNameError, match="Did you mean 'policy'"):
        GymnasiumVectorEnv(task, "polisy")


def test_missing_library_names_the_line_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sensorium.rl as rl

    libraries = {
        "RslRlEnv": ("rsl_rl", "pip install rsl-rl-lib"),
        "StableBaselinesEnv": ("stable_baselines3", "pip install stable-baselines3"),
    }
    for name, (library, line) in libraries.items():
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(sn.MissingDependencyError, match=f"{name} needs {library}.*{line}"):
            getattr(rl, name)
    with pytest.raises(AttributeError, match="Did you mean 'RslRlEnv'"):
        getattr(rl, "RslRlEnw")  # noqa: B009  # a name that the type checker would reject


# Gymnasium ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["policy", None])
def test_single_environment_passes_the_checker(group: str | None) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box observation space m(in|ax)imum.*")
        warnings.filterwarnings("ignore", message=".*render.*")
        warnings.filterwarnings("ignore", message=".*not within the expected interval.*")
        check_env(GymnasiumEnv(Cart(1), group), skip_render_check=True)
    with pytest.raises(sn.ConfigError, match="Use GymnasiumVectorEnv"):
        GymnasiumEnv(Cart(2))


def reference(mode: AutoresetMode, steps: np.ndarray) -> list[tuple[Any, ...]]:
    """Return what a vector environment should return: a loop over `RlEnv` with resets by the rules of Gymnasium."""
    env = Cart(3)
    env.reset(seed=4)
    out: list[tuple[Any, ...]] = [(env.observe()["policy"].numpy(),)]
    waiting = np.zeros(3, bool)
    for action in steps:
        reward, terminated, truncated = (each.numpy().copy() for each in env.step(action))
        final = None
        if mode == AutoresetMode.NEXT_STEP and waiting.any():
            env.reset(torch.from_numpy(waiting))
            reward[waiting], terminated[waiting], truncated[waiting] = 0.0, False, False
        done = terminated | truncated
        obs = env.observe()["policy"].numpy().copy()
        if mode != AutoresetMode.NEXT_STEP and done.any():
            final = obs[done]
            env.reset(torch.from_numpy(done))
            obs = env.observe()["policy"].numpy().copy()
        waiting = done
        out.append((obs, reward, terminated, truncated, final))
    return out


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environment_resets_by_its_mode(mode: AutoresetMode) -> None:
    """Observations, rewards and flags are those of the reference in each mode; final observations are from before the
    reset.
    """
    envs = GymnasiumVectorEnv(Cart(3), autoreset_mode=mode.value)
    assert envs.metadata["autoreset_mode"] == mode and envs.num_envs == 3
    steps = np.concatenate([np.ones((30, 3, 1), np.float32), actions(3, 60)])
    expected = reference(mode, steps)
    obs, info = envs.reset(seed=4)
    np.testing.assert_array_equal(obs, expected[0][0])
    ends = 0
    for action, (next_obs, reward, terminated, truncated, final) in zip(steps, expected[1:], strict=True):
        obs, got_reward, got_terminated, got_truncated, info = envs.step(action)
        done = terminated | truncated
        if mode == AutoresetMode.DISABLED and done.any():
            with pytest.raises(sn.ScheduleError, match="reset_mask"):
                envs.step(action)
            np.testing.assert_array_equal(obs[done], final)
            obs, _ = envs.reset(options={"reset_mask": done})
        np.testing.assert_array_equal(obs, next_obs)
        np.testing.assert_array_equal(got_reward, reward)
        np.testing.assert_array_equal(got_terminated, terminated)
        np.testing.assert_array_equal(got_truncated, truncated)
        assert obs in envs.observation_space and got_reward.dtype == np.float64
        if mode == AutoresetMode.SAME_STEP and done.any():
            np.testing.assert_array_equal(info["_final_obs"], done)
            np.testing.assert_array_equal(np.stack(list(info["final_obs"][done])), final)
            assert all(each is None for each in info["final_obs"][~done])
            assert (np.stack(list(info["final_obs"][done])) != obs[done]).any()
        ends += int(done.sum())
    assert ends >= 6 and terminated.dtype == np.bool_
    for bad in (np.zeros(3, bool), np.ones(2, bool), np.ones(3)):
        with pytest.raises(sn.ArgumentError, match="reset_mask"):
            envs.reset(options={"reset_mask": bad})


def test_wrappers_of_gymnasium_accept_it() -> None:
    """Its own wrappers of vector environments keep returns over episodes, and statistics of observations."""
    envs = RecordEpisodeStatistics(NormalizeObservation(GymnasiumVectorEnv(Cart(3))))
    envs.reset(seed=4)
    total = np.zeros(3)
    for action in 0.1 * actions(3, 40):
        obs, reward, _, truncated, info = envs.step(action)
        total += reward
    np.testing.assert_allclose(info["episode"]["r"][truncated], total[truncated], rtol=1e-6)
    assert truncated.any() and obs.shape == (3, 3)
    plain = GymnasiumVectorEnv(Cart(2), None, action_limit=None)
    obs, _ = plain.reset(seed=1)
    assert {name: each.shape for name, each in obs.items()} == {"policy": (2, 3), "critic": (2, 3)}
    assert obs in plain.observation_space and np.isinf(plain.single_action_space.high).all()  # type: ignore[attr-defined]
