"""Small robots for trying the sensors: a quadruped on uneven ground, with a trot, and an arm with a sense of touch.

Importing this package loads neither MuJoCo nor torch; `Trot` is imported from `sensorium.demo.gait` on first use.

Example:
    >>> from sensorium.demo import model_path
    >>> model_path().name
    'quadruped.xml'

"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorium.demo.gait import Trot

__all__ = ["SEMANTICS", "Trot", "model_path"]

SEMANTICS = {
    "ground": "terrain|apron_.*", "robot": ["trunk", ".*_(hip|thigh|shank)"], "crate": "crate_.*", "pole": "pole_.*",
}  # fmt: skip
"""Semantic label -> names of bodies and geoms of the model."""


def model_path(robot: str = "quadruped") -> Path:
    """Return the path of a robot's MJCF file.

    Args:
        robot: ``"quadruped"`` or ``"arm"``.
    """
    return Path(str(files(__name__).joinpath(f"{robot}.xml")))


def __getattr__(name: str) -> Any:
    if name == "Trot":
        from sensorium.demo.gait import Trot

        return Trot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
