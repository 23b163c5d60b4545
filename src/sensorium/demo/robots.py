"""The bundled robots and their sensors: the quadruped of `sensorium demo`, and an arm with a sense of touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sensorium.demo import SEMANTICS, model_path

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.engines.mujoco.engine import MujocoEngine
    from sensorium.scene import Scene

    Control = Callable[[Scene, float], Any]


@dataclass(frozen=True, slots=True)
class Robot:
    """A bundled robot, which commands accept by its name instead of a model file.

    Args:
        title: heading of its results.
        model: name of its model, for `model_path`, and of its rig file.
        control: returns its motion, for its scene.
        semantics: labels of its world, as `Scene(semantics=...)` takes them.
        begin_episode: returns the state that new episodes of some environments start with, as for `Scene.reset`; by
            default the engine's own.
    """

    title: str
    model: str
    control: Callable[[Scene], Control]
    semantics: Mapping[str, Any] = field(default_factory=dict)
    begin_episode: Callable[[Scene, Tensor], Mapping[str, Tensor] | None] = lambda scene, env_ids: None

    @property
    def rig(self) -> Path:
        """Rig file with its sensors."""
        return model_path(self.model).with_suffix(".toml")

    def engine(self, envs: int, device: str) -> MujocoEngine:
        """Return the engine for a number of environments and a device of the sensors."""
        from sensorium.engines.mujoco.engine import MujocoEngine

        return MujocoEngine(model_path(self.model), envs, device=device, keyframe="home")

    def start(self, scene: Scene) -> None:
        """Start the first episode of a new scene."""
        from sensorium.scene.draws import start_episodes

        start_episodes(scene, partial(self.begin_episode, scene), number=0)


def trot(scene: Scene) -> Control:
    """Return the control of a trot that turns, so that the robot stays on its ground."""
    from sensorium.demo.gait import Trot, steer

    gait, engine = Trot(), cast("MujocoEngine", scene.engine)
    return lambda _, time: gait.targets(time, steer(engine.qpos[:, :7]))


def scatter(scene: Scene, env_ids: Tensor) -> Mapping[str, Tensor]:
    """Return the start of the robot: a random place (up to 0.2 m away) and heading (up to 0.2 rad).

    The first environment of the whole run starts at the centre.
    """
    import torch

    from sensorium.random import Uniform

    home = torch.from_numpy(cast("MujocoEngine", scene.engine).model.key("home").qpos)
    moved = scene.draw("demo/start", Uniform(-0.2, 0.2), 3, env_ids).double()
    moved[scene.global_env_ids[env_ids] == 0] = 0.0
    x, y, yaw = moved.cpu().T.contiguous()
    qpos = home.repeat(len(yaw), 1)
    c, s = (0.5 * yaw).cos(), (0.5 * yaw).sin()
    qw, qx, qy, qz = home[3:7]
    qpos[:, :2] += torch.stack([x, y], dim=1)
    qpos[:, 3:7] = torch.stack([c * qw - s * qz, c * qx - s * qy, c * qy + s * qx, c * qz + s * qw], dim=1)
    return {"qpos": qpos}


def stroke(scene: Scene) -> Control:
    """Return the control of the arm: it presses on the object and strokes it.

    A figure takes 3 s in the first environment of the whole run, and in others a random time from 2.5 to 5 s.
    """
    from sensorium.demo.arm import Stroke
    from sensorium.random import Uniform

    def control(scene: Scene, time: float) -> Any:
        period = scene.draw("arm/period", Uniform(2.5, 5.0))[:, 0].double()
        period[scene.global_env_ids == 0] = 3.0
        return Stroke(period=period.cpu().numpy()).targets(time)

    return control


ROBOTS = {
    "demo": Robot("demo quadruped, trotting", "quadruped", trot, SEMANTICS, scatter),
    "arm": Robot("demo arm, stroking an object", "arm", stroke),
}
"""Name of a model -> the bundled robot."""
