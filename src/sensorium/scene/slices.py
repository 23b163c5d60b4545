"""The slice of a larger run that a scene holds: the global index of its first environment."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

import numpy as np

from sensorium.errors import ConfigError, SensoriumWarning

MOST_ENVS = 2**31
"""Maximum number of environments of one run: the index is an int32 in kernels."""


def first_env_of(value: Any, num_envs: int) -> int:
    """Return the global index of a scene's first environment.

    Args:
        value: the argument as given; None means 0, with one warning in a process of a distributed launcher.
        num_envs: number of environments of the scene.

    Raises:
        ConfigError: the value is not an integer, is negative or is too large.
    """
    if value is None:
        _warn_where_distributed()
        return 0
    most = MOST_ENVS - num_envs
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= most:
        expected = f"an integer from 0 to {most}"
        raise ConfigError.single("Scene", "first_env", value, expected, "Pass first_env=rank * num_envs.")
    return int(value)


@functools.cache
def _warn_where_distributed() -> None:
    """Warn, once per process, where a launcher started several ranks: all would draw the same random numbers."""
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "several")
    if rank.isdigit() and size != "1":
        warnings.warn(
            f"rank {rank} of {size} builds a Scene without first_env: all ranks draw the same random numbers. Pass "
            "first_env=rank * num_envs, or first_env=0 if the ranks should draw the same numbers.",
            SensoriumWarning,
            stacklevel=6,
        )
