"""Measured observations for environments of MuJoCo Playground."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sensorium.engines.mjx.arrays import check_concrete, module, to_jax, to_torch
from sensorium.engines.mjx.live import LiveMjxEngine
from sensorium.errors import ConfigError, ScheduleError
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.scene import Scene
from sensorium.scene.observer import TRUE, Observer


class SensorWrapper:
    """An environment of MuJoCo Playground whose observations include measurements.

    `reset` and `step` run the functions of the environment, compiled by JAX, and then update the sensors. They cannot
    be part of a function that JAX compiles. Environments that the wrapped environment reports as done start a new
    episode of the sensors, in the state to which the wrapped environment reset them. All other attributes are those of
    the wrapped environment.

    A step of the environment takes several ticks at once, and sensors sample at its end. Sensors whose readings depend
    on earlier samples, such as those with a delay, need an `update_period` of whole steps of the environment.

    Args:
        env: environments with a leading env axis that reset themselves, such as
            ``mujoco_playground.wrapper.wrap_for_brax_training(env)``.
        sensors: configs of the sensors.
        observations: key in the observation -> names of fields as in `Scene.observer`, with the prefix ``truth:`` for
            the ground truth. An observation of the environment that is one array gets the key ``"state"``.
        mx: the `mjx.Model` of a domain randomisation, with a leading env axis in some fields; None is `env.mjx_model`.
        seed: seed of all random numbers of the sensors.
        first_env: global index of the first environment, as for `Scene`.
        fresh: as for `from_mjx`. False needs an environment with one tick per step.
        replace_inf: finite value that replaces +inf in observations, such as that of rays without a hit.

    Attributes:
        env: the wrapped environment.

    Raises:
        MissingDependencyError: jax or mujoco-mjx is not installed.
    """

    def __init__(
        self,
        env: Any,
        sensors: Iterable[SensorCfg[Any]],
        observations: Mapping[str, Sequence[str]],
        *,
        mx: Any = None,
        seed: int = 0,
        first_env: int | None = None,
        fresh: bool = True,
        replace_inf: float | None = None,
    ) -> None:
        jax = module("jax")
        self.env = env
        self._sensors, self._names, self._mx = tuple(sensors), dict(observations), mx
        self._seed, self._first_env, self._fresh, self._far = seed, first_env, fresh, replace_inf
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._ticks = int(env.n_substeps) * int(getattr(env, "action_repeat", 1))
        self._scene: Scene | None = None
        self._looks: dict[str, Observer] = {}
        self._last: Any = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def scene(self) -> Scene:
        """Scene with the sensors.

        Raises:
            ScheduleError: `reset` was not called yet.
        """
        if self._scene is None:
            raise ScheduleError("this SensorWrapper has no state yet: call reset(rng) first.")
        return self._scene

    @property
    def observation_size(self) -> dict[str, Any]:
        """Size of each observation, after the first `reset`."""
        looks = self._looks if self.scene else {}
        own = self.env.observation_size
        return {**_keyed(own), **{key: (look.shape[1],) for key, look in looks.items()}}

    def reset(self, rng: Any) -> Any:
        """Reset all environments and sensors, and return the state with measured observations.

        Args:
            rng: one key per environment, as for the wrapped environment.

        Raises:
            ScheduleError: JAX is tracing this call.
            ModelError: the environment has no env axis, or another number of environments than before.
        """
        check_concrete(rng, "rng")
        state = self._reset(rng)
        if self._scene is None:
            self._build(state)
        else:
            self._engine.data = state.data
            self._scene.reset()
        return self._observed(state)

    def step(self, state: Any, action: Any) -> Any:
        """Step the environments and sensors, and return the state with measured observations.

        Args:
            state: state of the last `reset`, `step` or `resume`.
            action: action of each environment, as for the wrapped environment.

        Raises:
            ScheduleError: JAX is tracing this call, `state` is not the last one, or a step of the environment skips
                samples of a sensor.
        """
        check_concrete((state.done, action), "the state or the action")
        scene = self.scene
        if state.data.qpos is not self._last.qpos and not _equal(state.data, self._last):
            raise ScheduleError(
                "step() got a state that is not the last one, but sensors have memory: pass the last state, or call "
                "resume(state, env_ids) after you changed environments."
            )
        state = self._step(state.replace(obs=self._own(state.obs)), action)
        self._engine.data = state.data
        try:
            scene.update(ticks=self._ticks)
        except ScheduleError as error:
            period = self._ticks * self._engine.dt
            error.add_note(f"A step of this environment has {self._ticks} ticks: set update_period={period:g}.")
            raise
        done = to_torch(state.done, "state.done") != 0
        if bool(done.any()):
            scene.reset(done)
        return self._observed(state)

    def resume(self, state: Any, env_ids: Any = None) -> Any:
        """Start new episodes of the sensors in environments whose state you changed; return the state to continue from.

        Args:
            state: changed state, with new `data`.
            env_ids: changed environments: int ids, a bool mask, or None for all.
        """
        check_concrete(state.done, "the state")
        self._engine.data = state.data
        self.scene.reset(env_ids)
        return self._observed(state.replace(obs=self._own(state.obs)))

    @property
    def _engine(self) -> LiveMjxEngine:
        engine = self.scene.engine
        assert isinstance(engine, LiveMjxEngine)
        return engine

    def _build(self, state: Any) -> None:
        env = self.env
        engine = LiveMjxEngine(
            env.mj_model, env.mjx_model if self._mx is None else self._mx, state.data, fresh=self._fresh
        )
        scene = Scene(engine, self._sensors, seed=self._seed, first_env=self._first_env)
        if taken := sorted(_keyed(state.obs).keys() & self._names.keys()):
            raise ConfigError.single("SensorWrapper", "observations", taken, "keys that the environment does not use")
        for key, names in self._names.items():
            true = [name.removeprefix(TRUE) for name in names if name.startswith(TRUE)]
            measured = [name for name in names if not name.startswith(TRUE)]
            self._looks[key] = scene.observer(*measured, truth=true, replace_inf=self._far)
        self._scene, self._is_keyed = scene, isinstance(state.obs, Mapping)

    def _observed(self, state: Any) -> Any:
        """Return a state with measured observations."""
        self._last = state.data
        measured = {key: to_jax(look()) for key, look in self._looks.items()}
        return state.replace(obs={**_keyed(state.obs), **measured})

    def _own(self, obs: Any) -> Any:
        """Return an observation without measurements, as the wrapped environment made it."""
        if not self._is_keyed:
            return obs["state"]
        return {key: values for key, values in obs.items() if key not in self._names}


def _keyed(obs: Any) -> Mapping[str, Any]:
    return obs if isinstance(obs, Mapping) else {"state": obs}


def _equal(a: Any, b: Any) -> bool:
    """Whether two `mjx.Data` have the same state."""
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("time", "qpos", "qvel"))
