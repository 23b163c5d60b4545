"""An environment in the style of MuJoCo Playground, and wrappers that vectorise it and reset finished environments."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import quadruped
from mujoco import mjx


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    data: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any]
    info: dict[str, Any]

    def replace(self, **changes: Any) -> State:
        return dataclasses.replace(self, **changes)


class Walker:
    """One quadruped; an episode ends where the first action is above 1."""

    xml_path = "walker.xml"
    action_size = 8

    def __init__(self, n_substeps: int = 4, *, keyed: bool = False) -> None:
        self.n_substeps, self._keyed = n_substeps, keyed
        self.mj_model, self.mjx_model = quadruped.models()

    @property
    def dt(self) -> float:
        return 0.002 * self.n_substeps

    @property
    def observation_size(self) -> Any:
        return {"state": (15,)} if self._keyed else 15

    @property
    def unwrapped(self) -> Walker:
        return self

    def _obs(self, data: Any) -> Any:
        return {"state": data.qpos} if self._keyed else data.qpos

    def reset(self, rng: Any) -> State:
        data = mjx.make_data(self.mj_model)
        turn = 0.2 * jax.random.normal(rng, (8,))
        data = data.replace(qpos=jnp.float32(self.mj_model.qpos0).at[7:].set(turn))
        data = mjx.forward(self.mjx_model, data)
        return State(data, self._obs(data), jnp.float32(0.0), jnp.float32(0.0), {}, {"steps": jnp.int32(0)})

    def step(self, state: State, action: Any) -> State:
        def substep(data: Any, _: None) -> tuple[Any, None]:
            return mjx.step(self.mjx_model, data.replace(ctrl=action)), None

        data, _ = jax.lax.scan(substep, state.data, (), self.n_substeps)
        done = jnp.float32(action[0] > 1.0)
        info = {**state.info, "steps": state.info["steps"] + 1}
        return state.replace(data=data, obs=self._obs(data), reward=data.qpos[2], done=done, info=info)


class Batch:
    """Environments with a leading env axis that return to their first state when they are done."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, rng: Any) -> State:
        state = jax.vmap(self.env.reset)(rng)
        return state.replace(info={**state.info, "first_data": state.data, "first_obs": state.obs})

    def step(self, state: State, action: Any) -> State:
        first = {name: state.info[f"first_{name}"] for name in ("data", "obs")}
        info = {"steps": state.info["steps"]}
        new = jax.vmap(self.env.step)(state.replace(info=info), action)

        def choose(a: Any, b: Any) -> Any:
            return jnp.where(new.done.reshape(-1, *[1] * (a.ndim - 1)) > 0, a, b)

        return new.replace(
            data=jax.tree.map(choose, first["data"], new.data),
            obs=jax.tree.map(choose, first["obs"], new.obs),
            info={**new.info, **{f"first_{name}": each for name, each in first.items()}},
        )
