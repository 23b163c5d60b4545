"""Runs of six environments, whole and in slices, which are compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

import sensorium as sn
from sensorium.testing.trial import snapshot

ENVS = 6
SLICES = ((3, 0), (3, 3), (1, 0), (5, 1))
"""Number of environments and global index of the first, of the slices of a run."""

Values = dict[str, torch.Tensor]


def check_slices(run: Callable[[int, int], Mapping[str, torch.Tensor]], differ: tuple[str, ...]) -> None:
    """Assert that slices of a run give the values of the whole run.

    Args:
        run: returns values `[env, ...]` by name, for a number of environments and the global index of the first.
        differ: subjects whose values must differ between all environments, so that an exchange is noticed.
    """
    whole = run(ENVS, 0)
    assert whole and all(len(values) == ENVS for values in whole.values())
    for count, first in SLICES:
        part = run(count, first)
        assert part.keys() == whole.keys()
        for name, values in part.items():
            wanted = whole[name][first : first + count]
            same = values.contiguous().numpy().tobytes() == wanted.contiguous().numpy().tobytes()
            assert same, f"{name} in envs {first} to {first + count - 1}: {values} instead of {wanted}"
    for subject in differ:
        mine = [values for name, values in whole.items() if name.startswith(f"{subject}:")]
        rows = {b"".join(values[env].contiguous().numpy().tobytes() for values in mine) for env in range(ENVS)}
        assert len(rows) == ENVS, f"{subject} is the same in several environments"


def seen(scene: sn.Scene, ctrl: Any = None) -> Values:
    """Return copies of all readings, controls and the state of a scene, as ``"subject:tick.field"``."""
    found = {f"{name}:{scene.tick}.{key}": values.clone() for name, sensor in scene.sensors_in_use.items()
             for key, values in (snapshot(sensor) | {"stamp": sensor.stamp}).items()}  # fmt: skip
    for name in ("qpos", "qvel", "ctrl", "body_pos_w", "body_quat_w"):
        if (values := getattr(scene.engine, name, None)) is not None:
            found[f"engine:{scene.tick}.{name}"] = values.clone()
    if ctrl is not None:
        values = torch.as_tensor(ctrl).double()
        found[f"control:{scene.tick}"] = values.expand(scene.num_envs, -1).clone()
    return found
