"""Names and shapes of simulators that keep all worlds in one list, under labels that are paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ModelError, listed
from sensorium.geometry.appearance import Material, Texture
from sensorium.geometry.shapes import HeightField, Mesh, Shape


def short_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the last part of each path, with as many parents as it needs to be unique among the paths.

    Args:
        labels: paths such as ``"/World/env_0/robot/left/foot"``, with ``/`` between the parts.

    Raises:
        ModelError: two labels are equal.
    """
    parts = [[part for part in label.split("/") if part] or [label] for label in labels]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(path[-length:]) for path, length in zip(parts, lengths, strict=True)]
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        shared = [row for each in rows.values() if len(each) > 1 for row in each]
        if not shared:
            return tuple(names)
        longer = [row for row in shared if lengths[row] < len(parts[row])]
        if not longer:
            raise ModelError(f"label {labels[shared[0]]!r}: {len(rows[names[shared[0]]])} elements have this label.")
        for row in longer:
            lengths[row] += 1


def rows_of_worlds(
    labels: Sequence[str], worlds: Sequence[int], num_envs: int, what: str
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the short names of one environment's elements, and the place of each in a list of all worlds.

    Args:
        labels: label of each element, as for `short_names`.
        worlds: world of each element, -1 for an element that all worlds share.
        num_envs: number of worlds.
        what: the elements, in the plural, for messages.

    Returns:
        Names, shared elements first, and int64 `[env, name]`.

    Raises:
        ModelError: an element is in a world beyond `num_envs`, or the worlds have different elements. An adapter's
            `supports` returns this text as its reason, so that the error names the sensor and its requirement.
    """
    shared = [row for row, world in enumerate(worlds) if world < 0]
    own: list[list[int]] = [[] for _ in range(num_envs)]
    for row, world in enumerate(worlds):
        if world >= num_envs:
            raise ModelError(f"{labels[row]!r} is in world {world}, expected -1 to {num_envs - 1}.")
        if world >= 0:
            own[world].append(row)
    rows = [[*shared, *each] for each in own]
    names = [short_names([labels[row] for row in each]) for each in rows]
    for env, others in enumerate(names):
        if others != names[0]:
            odd = sorted({*others} ^ {*names[0]})
            detail = f", {listed(odd)} are only in one of them" if odd else ", in another order"
            raise ModelError(
                f"worlds 0 and {env} have different {what} ({len(names[0])} and {len(others)}{detail}). Sensors need "
                f"the same {what} in every environment: build all worlds from one model."
            )
    return names[0], np.array(rows, dtype=np.int64).reshape(num_envs, -1)


def common_shapes(worlds: Sequence[Sequence[Shape]]) -> tuple[Shape, ...]:
    """Return the shapes of one environment from those of each world; equal meshes and textures count as the same.

    Raises:
        ModelError: the worlds have different shapes; see `rows_of_worlds`.
    """
    first = worlds[0]
    for env, shapes in enumerate(worlds):
        if len(shapes) != len(first):
            raise ModelError(f"worlds 0 and {env} have {len(first)} and {len(shapes)} shapes. {_SAME_SHAPES}")
        for mine, its in zip(first, shapes, strict=True):
            for each in fields(Shape):
                if not _equal(getattr(mine, each.name), getattr(its, each.name)):
                    raise ModelError(f"shape {mine.name!r} has a different {each.name} in world {env}. {_SAME_SHAPES}")
    return tuple(first)


_SAME_SHAPES = "Shapes are shared by all environments: make them equal, or put them on a body and move it."


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Mesh | HeightField | Material | Texture) and type(a) is type(b):  # of equal numbers
        names = [each.name for each in fields(a) if each.name != "name"]
        return a is b or all(_equal(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
