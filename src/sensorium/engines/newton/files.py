"""Newton engines of MJCF and URDF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sensorium.engines.model_file import urdf_of
from sensorium.engines.mujoco.spec import load_spec
from sensorium.engines.newton.engine import Control, NewtonEngine
from sensorium.engines.newton.layout import newton
from sensorium.errors import MissingDependencyError, ModelError


def engine_of_file(path: Path, num_envs: int, device: str) -> NewtonEngine:
    """Return an engine of the robot in a file, on SolverMuJoCo.

    The time step is that of the MJCF file, or MuJoCo's default for URDF. Controls are targets of joint positions where
    a joint has a position drive, otherwise efforts of joints.

    Args:
        path: MJCF (``.xml``) or URDF (``.urdf``) file.
        num_envs: number of environments.
        device: torch device of physics and sensors.

    Raises:
        ModelError: the file is missing or invalid.
        MissingDependencyError: newton is not installed, or lacks a package that reads this file.
    """
    package = newton()
    robot = package.ModelBuilder()
    package.solvers.SolverMuJoCo.register_custom_attributes(robot)
    dt = float(load_spec(path).option.timestep)
    urdf = urdf_of(path)
    try:
        if urdf is not None:
            robot.add_urdf(urdf, floating=False, force_show_colliders=True)
        else:
            robot.add_mjcf(str(path), force_show_colliders=True)
        builder: Any = package.ModelBuilder()
        builder.replicate(robot, num_envs)
        model = builder.finalize(device=device)
    except ImportError as error:
        raise MissingDependencyError(
            f"Newton cannot read {str(path)!r} ({error}): pip install 'newton[importers]'."
        ) from error
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        raise ModelError(f"Newton cannot read {str(path)!r}: {error}") from error
    has_drives = bool(np.any(model.joint_target_ke.numpy() > 0.0)) if model.joint_dof_count else False
    control: Control = "joint_target_q" if has_drives else "joint_f"
    engine = NewtonEngine(model, package.solvers.SolverMuJoCo(model), dt=dt, control=control)
    if has_drives:
        engine.hold()
    return engine
