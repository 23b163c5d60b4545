"""Train the demo quadruped to walk with rsl_rl on the CPU, on measured and on true observations, and compare.

    python examples/walk/train.py measured --minutes 4 --out out/walk
    python examples/walk/train.py truth --minutes 4 --out out/walk
    python examples/walk/train.py compare --out out/walk

Requires ``pip install rsl-rl-lib``. The first two commands write a learning curve and a policy, the third a table.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch
from rsl_rl.runners import OnPolicyRunner
from task import HIPS, SPEED, Walk
from tensordict import TensorDict

import sensorium as sn
from sensorium.rl import RslRlEnv

NETWORK = {"class_name": "MLPModel", "hidden_dims": [128, 64], "activation": "elu", "obs_normalization": True}


class Logged(RslRlEnv):
    """Environments that keep the returns and lengths of finished episodes."""

    def __init__(self, env: Walk) -> None:
        super().__init__(env)
        self.total = torch.zeros(env.num_envs)
        self.finished: list[tuple[float, int]] = []

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        lengths = self.env.episode_length + 1
        obs, reward, done, extras = super().step(actions)
        self.total += reward
        self.finished += zip(self.total[done].tolist(), lengths[done].tolist(), strict=True)
        self.total[done] = 0.0
        return obs, reward, done, extras


def mirrored(env: Logged, obs: TensorDict | None, actions: torch.Tensor | None) -> tuple[Any, Any]:
    """Return observations and actions, followed by their mirror images."""
    if obs is not None:
        look = env.env.observer
        images = {name: look[name].mirror(flip=HIPS)(obs[name]) for name in look}
        obs = torch.cat([obs, TensorDict(images, batch_size=obs.batch_size)])
    if actions is not None:
        actions = torch.cat([actions, sn.Mirror.of_names(env.env.action_names, flip=HIPS)(actions)])
    return obs, actions


def runner_of(env: Logged) -> OnPolicyRunner:
    """Return rsl_rl's PPO for small networks."""
    cfg = {
        "num_steps_per_env": 24,
        "save_interval": 10_000,
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "actor": {**NETWORK, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": dict(NETWORK),
        "algorithm": {
            "class_name": "PPO", "entropy_coef": 0.003, "num_learning_epochs": 4, "num_mini_batches": 4,
            "learning_rate": 1e-3, "rnd_cfg": None,
            "symmetry_cfg": {"use_data_augmentation": True, "data_augmentation_func": mirrored},
        },
        "multi_gpu": None,
    }  # fmt: skip
    return OnPolicyRunner(env, cfg, device="cpu")


def train(name: str, minutes: float, envs: int, out: Path) -> None:
    """Train one policy for a given processor time, and write its learning curve and its weights."""
    env = Logged(Walk(envs, truth=name == "truth", seed=1))
    env.env.reset(seed=1)
    runner = runner_of(env)
    runner.learn(1, init_at_random_ep_len=True)
    start, seconds, iteration = time.process_time(), 0.0, 1
    with (out / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("iteration", "steps", "return", "length", "seconds"))
        while seconds < 60.0 * minutes:
            runner.learn(1)
            iteration, seconds = iteration + 1, time.process_time() - start
            if len(env.finished) >= envs:
                returns, lengths = map(sum, zip(*env.finished, strict=True))
                means = returns / len(env.finished), lengths / len(env.finished)
                table.writerow((iteration, iteration * 24 * envs, *means, seconds))
                file.flush()
                print(iteration, *(f"{value:.4g}" for value in (*means, seconds)), flush=True)
                env.finished.clear()
                runner.save(str(out / f"{name}.pt"))
    runner.save(str(out / f"{name}.pt"))


@torch.no_grad()
def evaluate(name: str, sees: str, out: Path, envs: int = 32) -> tuple[float, float, float]:
    """Return the mean return, the speed (m/s) and the share of falls of a policy on its observations."""
    env = Logged(Walk(envs, truth=sees == "truth", seed=2))
    runner = runner_of(env)
    runner.load(str(out / f"{name}.pt"))
    policy = runner.get_inference_policy()
    env.env.reset(seed=2)
    obs, speeds, falls = env.get_observations(), [], torch.zeros(envs)
    for _ in range(env.env.max_episode_steps):
        obs, _, done, extras = env.step(policy(obs))
        speeds.append(env.env.scene["imu"].ground_truth.lin_vel_b[:, 0].mean())
        falls += done & ~extras["time_outs"]
    returns = [total for total, _ in env.finished]
    return sum(returns) / len(returns), float(torch.stack(speeds[50:]).mean()), float((falls > 0).float().mean())


def compare(out: Path) -> None:
    """Run both policies on measured and on true observations; write a table."""
    rows: list[tuple[str, str, float, float, float]] = []
    for name in ("measured", "truth"):
        for sees in ("measured", "truth"):
            rows.append((name, sees, *evaluate(name, sees, out)))
            print("trained on {}, run on {}: return {:.0f}, {:.2f} m/s of {:.2f}, {:.0%} fell".format(
                *rows[-1][:4], SPEED, rows[-1][4]))  # fmt: skip
    with (out / "compare.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("trained", "sees", "return", "speed", "falls"), *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measured", "truth", "compare"])
    parser.add_argument("--minutes", type=float, default=4.0, help="time on the processor")
    parser.add_argument("--envs", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/walk"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "compare":
        compare(args.out)
    else:
        train(args.what, args.minutes, args.envs, args.out)
