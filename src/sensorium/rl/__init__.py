"""Reinforcement learning on a scene: environments, delayed actions, and wrappers for training libraries.

`RlEnv` is the base of a task. `GymnasiumVectorEnv`, `GymnasiumEnv`, `RslRlEnv` and `StableBaselinesEnv` wrap it. Each
wrapper imports its library when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sensorium.errors import MissingDependencyError, UnknownNameError
from sensorium.rl.delay import ActionDelay
from sensorium.rl.env import RlEnv, Transition

if TYPE_CHECKING:
    from sensorium.rl.gymnasium_env import GymnasiumEnv as GymnasiumEnv
    from sensorium.rl.gymnasium_env import GymnasiumVectorEnv as GymnasiumVectorEnv
    from sensorium.rl.rsl_rl_env import RslRlEnv as RslRlEnv
    from sensorium.rl.stable_baselines_env import StableBaselinesEnv as StableBaselinesEnv

__all__ = ["ActionDelay", "RlEnv", "Transition"]  # and the wrappers, whose libraries may be missing

_WRAPPERS = {
    "GymnasiumEnv": ("gymnasium_env", "pip install 'sensorium[rl]'"),
    "GymnasiumVectorEnv": ("gymnasium_env", "pip install 'sensorium[rl]'"),
    "RslRlEnv": ("rsl_rl_env", "pip install rsl-rl-lib"),
    "StableBaselinesEnv": ("stable_baselines_env", "pip install stable-baselines3"),
}
"""Wrappers, their modules, and the command that installs their libraries."""


def __getattr__(name: str) -> Any:
    if name not in _WRAPPERS:
        raise AttributeError(str(UnknownNameError("name in sensorium.rl", name, [*__all__, *_WRAPPERS])))
    module, install = _WRAPPERS[name]
    try:
        return getattr(import_module(f"sensorium.rl.{module}"), name)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"sensorium.rl.{name} needs {error.name}: {install}") from error


def __dir__() -> list[str]:
    return [*__all__, *_WRAPPERS]
