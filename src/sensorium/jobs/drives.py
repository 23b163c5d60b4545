"""A trajectory through a world, from files or from the bundled hall, and its engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sensorium.errors import ConfigError

if TYPE_CHECKING:
    from sensorium.engines.trajectory.engine import TrajectoryEngine
    from sensorium.engines.trajectory.trajectory import Trajectory

TIME_STEP = 0.001
"""Time step, s."""
PATHS, HALL = ("drone", "car"), "hall"
"""Names of the bundled trajectories and of the bundled world."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A trajectory through a world.

    Args:
        name: file of the trajectory, or one of `PATHS`.
        trajectory: the trajectory.
        world: file of the world, or `HALL`; None for an empty world.
    """

    name: str
    trajectory: Trajectory
    world: str | None

    def seconds(self, given: float | None) -> float:
        """Return the simulated time, s: the given one, or that of all whole time steps of the trajectory.

        Raises:
            ConfigError: the trajectory is shorter.
        """
        duration = self.trajectory.duration
        if given is not None and given > duration:
            expected = f"at most {duration:g} s, the duration of the trajectory"
            raise ConfigError.single("Job", "seconds", given, expected, "Omit it for the whole trajectory.")
        whole = math.floor(duration / TIME_STEP + 1e-6) * TIME_STEP
        return whole if given is None else min(given, whole)

    def engine(self, envs: int, device: str) -> TrajectoryEngine:
        """Return the engine, whose body is named ``body``."""
        return engine_of(self.trajectory, self.world, envs, device)


def engine_of(trajectory: Trajectory | list[Any], world: str | None, envs: int, device: str) -> TrajectoryEngine:
    """Return the engine of one trajectory, or of one for each environment; the body is named ``body``."""
    from sensorium.demo import hall
    from sensorium.engines.trajectory.engine import TrajectoryEngine

    place: dict[str, Any] = {"world": world or ()}
    if _is_name(world, (HALL,)):
        place = {"world": hall.shapes(), "lighting": hall.lighting()}
    return TrajectoryEngine(trajectory, TIME_STEP, num_envs=envs, device=device, **place)


def drive_of(trajectory: str, world: str | None = None, **reading: Any) -> Drive:
    """Return a trajectory and a world by name or by file; the world is loaded later.

    Args:
        trajectory: file of the trajectory, or one of `PATHS`.
        world: file of the world, or `HALL`; None for an empty world.
        reading: how to read a file, see `Trajectory.from_file`.

    Raises:
        ModelError: the file of the trajectory is missing or invalid.
    """
    from sensorium.demo import hall
    from sensorium.engines.trajectory.trajectory import Trajectory

    if _is_name(trajectory, PATHS):
        return Drive(trajectory, {"drone": hall.drone, "car": hall.car}[trajectory](), world)
    return Drive(trajectory, Trajectory.from_file(trajectory, **reading), world)


def _is_name(given: str | None, names: tuple[str, ...]) -> bool:
    """Whether a text is a bundled name; a file of this name has priority."""
    return given in names and not Path(str(given)).exists()
