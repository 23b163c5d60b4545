"""Short training runs with the real libraries: the return rises, on what the wrappers give to each of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cart import Cart, Pushed
from slices import Values, check_slices, seen

import sensorium as sn
from sensorium.rl import GymnasiumVectorEnv, RlEnv, RslRlEnv, StableBaselinesEnv

ENVS = 16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)


def task(envs: int = ENVS) -> Cart:
    return Cart(envs, seed=1)


def mean_return(env: RlEnv, policy: Any) -> float:
    """Return the mean reward per step of a policy, a function of the observation, over one episode."""
    env.reset(seed=11)
    total = torch.zeros(env.num_envs)
    alive = torch.ones(env.num_envs)
    with torch.no_grad():
        for _ in range(env.max_episode_steps):
            reward, terminated, _ = env.step(torch.as_tensor(policy(env.observe()["policy"])).clamp(-1.0, 1.0))
            total += alive * reward
            alive *= 1.0 - terminated.float()
    return float(total.mean()) / env.max_episode_steps


def assert_rose(before: float, after: float) -> None:
    """Assert that training raised the mean reward, of which about 0.6 needs no policy and about 0.85 is possible."""
    assert after > 0.72 and after > before + 0.1, (before, after)


# rsl_rl ---------------------------------------------------------------------------------------------------------------


def rsl_cfg(**algorithm: Any) -> dict[str, Any]:
    network = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu", "obs_normalization": False}
    return {
        "num_steps_per_env": 40,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.7}},
        "critic": dict(network),
        "algorithm": {"class_name": "PPO", "learning_rate": 3e-3, "rnd_cfg": None, "symmetry_cfg": None} | algorithm,
        "multi_gpu": None,
    }


def test_rsl_rl_learns_with_a_privileged_critic() -> None:
    from rsl_rl.runners import OnPolicyRunner

    env = RslRlEnv(task(), {"task": "cart"})
    runner = OnPolicyRunner(env, copy.deepcopy(rsl_cfg()), device="cpu")
    before = mean_return(env.env, lambda obs: runner.alg.actor({"policy": obs}))
    runner.learn(25, init_at_random_ep_len=True)
    policy = runner.get_inference_policy()
    after = mean_return(env.env, lambda obs: policy({"policy": obs}))
    assert_rose(before, after)


def test_rsl_rl_gets_groups_time_outs_and_observations_after_resets() -> None:
    env = RslRlEnv(task(4))
    obs = env.get_observations()
    assert {name: tuple(each.shape) for name, each in obs.items()} == {"policy": (4, 3), "critic": (4, 3)}
    assert obs.batch_size == torch.Size([4]) and (env.num_actions, env.max_episode_length) == (1, 40)
    env.episode_length_buf = torch.tensor([39, 0, 0, 38])
    obs, reward, done, extras = env.step(torch.zeros(4, 1))
    assert done.tolist() == [True, False, False, False] and extras["time_outs"].tolist() == done.tolist()
    assert env.episode_length_buf.tolist() == [0, 1, 1, 39] and reward.shape == (4,)
    assert torch.equal(obs["policy"], env.env.observe()["policy"]) and obs["policy"][0, 2] == 0.0


def test_walking_example_learns() -> None:
    """A few iterations of the example raise the return, and the mirror image of a mirror image is the original."""
    import train
    from task import Walk

    env = train.Logged(Walk(8, seed=1))
    obs = env.get_observations()
    actions = torch.randn(8, 12)
    twice, both = train.mirrored(env, *(each[8:] for each in train.mirrored(env, obs, actions)))
    assert all(torch.equal(twice[name][8:], obs[name]) for name in obs.keys()) and torch.equal(both[8:], actions)
    runner = train.runner_of(env)
    runner.learn(2)
    assert all(torch.isfinite(weights).all() for weights in runner.alg.actor.parameters())


# Stable-Baselines3 ----------------------------------------------------------------------------------------------------


def test_stable_baselines_learns() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    env = StableBaselinesEnv(task())
    model = PPO("MlpPolicy", VecMonitor(env), n_steps=40, batch_size=160, learning_rate=2e-3, gamma=0.97, seed=0,
                device="cpu", policy_kwargs={"net_arch": [32, 32]})  # fmt: skip

    def act(obs: torch.Tensor) -> np.ndarray:
        return model.predict(obs.numpy(), deterministic=True)[0]

    before = mean_return(env.env, act)
    model.learn(40 * ENVS * 30)
    after = mean_return(env.env, act)
    assert_rose(before, after)


def test_stable_baselines_gets_terminal_observations_and_seeds() -> None:
    env, twin = StableBaselinesEnv(task(4)), task(4)
    assert env.seed(5)[0] == 5
    obs = env.reset()
    twin.reset(seed=5)
    np.testing.assert_array_equal(obs, twin.observe()["policy"].numpy())
    for _ in range(39):
        env.step(np.zeros((4, 1), np.float32))
        twin.step(torch.zeros(4, 1))
    push = np.full((4, 1), 0.5, np.float32)
    obs, reward, done, infos = env.step(push)
    twin.step(torch.from_numpy(push))
    assert done.all() and reward.dtype == np.float32 and obs.dtype == np.float32
    for k, info in enumerate(infos):
        np.testing.assert_array_equal(info["terminal_observation"], twin.observe()["policy"][k].numpy())
        assert info["TimeLimit.truncated"] and info["terminal_observation"][2] == 0.5 and obs[k, 2] == 0.0
    assert env.get_attr("max_episode_steps", [0, 2]) == [40, 40] and env.env_is_wrapped(object) == [False] * 4
    groups = StableBaselinesEnv(task(2), None).reset()
    assert {name: each.shape for name, each in groups.items()} == {"policy": (2, 3), "critic": (2, 3)}


@pytest.mark.parametrize("wrapper", [RslRlEnv, StableBaselinesEnv])
def test_slices_of_a_task(wrapper: Any) -> None:
    """Six environments give the bits of 3 + 3 and 1 + 5, with random starts, delays, knobs and masses."""
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (16, 6, 1)).astype(np.float32)

    def run(envs: int, first: int) -> Values:
        env, found = wrapper(Pushed(envs, first)), {}
        env.env.episode_length.copy_(env.env.scene.global_env_ids)  # episodes end at different steps
        for step, action in enumerate(actions[:, first : first + envs]):
            result = env.step(action if wrapper is StableBaselinesEnv else torch.from_numpy(action))
            obs = result[0] if wrapper is StableBaselinesEnv else result[0]["policy"]
            told = zip(("obs", "reward", "done"), (obs, *result[1:3]), strict=True)
            found |= {f"{name}:{step}": torch.as_tensor(values).clone() for name, values in told} | seen(env.env.scene)
        return found

    check_slices(run, ("obs", "reward", "engine"))


class Views(Cart):
    """A cart whose reward is a view of a sensor."""

    def reward(self) -> torch.Tensor:
        return self.place


@pytest.mark.parametrize("wrapper", [RslRlEnv, StableBaselinesEnv])
def test_results_are_kept_and_divergence_is_reported(
    wrapper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No result changes in later steps and resets. A diverged environment is done, with the reason and a reward of 0,
    and starts again.
    """
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory
    env = wrapper(Views(4))
    env.reset() if wrapper is StableBaselinesEnv else env.get_observations()
    kept, copies = [], []
    for _ in range(45):
        result = env.step(torch.full((4, 1), 0.3))
        kept.append(result)
        copies.append(copy.deepcopy(result))
    for now, before in zip(kept, copies, strict=True):
        for a, b in zip(now, before, strict=True):
            if isinstance(a, list):
                np.testing.assert_equal(a, b)
            else:
                fields = a.keys() if hasattr(a, "keys") else [slice(None)]
                assert all(bool((a[field] == b[field]).all()) for field in fields)
    env.env.scene.engine.qvel[1] = np.nan
    with pytest.warns(sn.NonFiniteStateWarning):
        _, reward, done, info = env.step(torch.zeros(4, 1))
    assert done.tolist() == [False, True, False, False] and reward[1] == 0.0 and (reward[[0, 2, 3]] != 0.0).all()
    diverged = info["diverged"].tolist() if isinstance(info, dict) else [each.get("diverged", False) for each in info]
    assert diverged == done.tolist() and (env.env.episode_length == 0).tolist() == diverged
    late = info["time_outs"].any() if isinstance(info, dict) else info[1]["TimeLimit.truncated"]
    assert not late
    with pytest.raises(sn.ArgumentError, match="seed: got"):
        env.seed(1.5) if wrapper is StableBaselinesEnv else env.env.reset(seed=1.5)


# skrl and TorchRL take the vector environment of Gymnasium ------------------------------------------------------------


def test_skrl_learns_on_the_gymnasium_environment() -> None:
    import gymnasium
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    class Policy(GaussianMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            GaussianMixin.__init__(self)
            self.net = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ELU(), torch.nn.Linear(32, 1))
            self.log_std = torch.nn.Parameter(torch.full((1,), -0.5))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)
            self.net = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ELU(), torch.nn.Linear(32, 1))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {}

    cart = task()
    env = wrap_env(GymnasiumVectorEnv(cart, autoreset_mode="SameStep"), wrapper="gymnasium", verbose=False)
    assert isinstance(env.action_space, gymnasium.spaces.Box) and env.num_envs == ENVS
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    models = {"policy": Policy(**spaces), "value": Value(**spaces)}
    cfg = PPO_CFG(rollouts=40, learning_epochs=5, mini_batches=4, learning_rate=3e-3, discount_factor=0.97)
    cfg.experiment.write_interval = cfg.experiment.checkpoint_interval = 0
    agent = PPO(models=models, memory=RandomMemory(memory_size=40, num_envs=ENVS, device="cpu"), cfg=cfg, **spaces)

    def act(obs: torch.Tensor) -> torch.Tensor:
        return models["policy"].net(obs)

    before = mean_return(cart, act)
    trainer = SequentialTrainer(cfg={"timesteps": 40 * 25, "headless": True, "disable_progressbar": True,
                                     "close_environment_at_exit": False}, env=env, agents=agent)  # fmt: skip
    trainer.train()
    after = mean_return(cart, act)
    assert_rose(before, after)


def test_torchrl_checks_and_learns_on_the_gymnasium_environment() -> None:
    """The specs hold, final observations are from before the reset, and a policy improves by REINFORCE."""
    from torchrl.envs import GymWrapper
    from torchrl.envs.utils import check_env_specs

    cart = task()
    env = GymWrapper(GymnasiumVectorEnv(cart, autoreset_mode="SameStep"))
    check_env_specs(env)
    mean = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(mean.parameters(), lr=1e-2)
    before = mean_return(cart, mean)
    for _ in range(40):
        rollout = env.rollout(
            40,
            lambda observation: (mean(observation) + 0.5 * torch.randn(ENVS, 1)).detach(),
            break_when_any_done=False,
        )  # [env, time]
        reward = rollout["next", "reward"][..., 0]
        gains = torch.zeros_like(reward)
        gain = torch.zeros(ENVS)
        for step in reversed(range(40)):
            gain = reward[:, step] + 0.95 * gain * ~rollout["next", "done"][:, step, 0]
            gains[:, step] = gain
        gains = (gains - gains.mean(dim=0)) / (gains.std() + 1e-6)
        loss = ((rollout["action"] - mean(rollout["observation"])).square()[..., 0] * gains).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = mean_return(cart, mean)
    assert_rose(before, after)
