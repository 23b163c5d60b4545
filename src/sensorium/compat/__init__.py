"""Names and defaults of other systems' documents, each as a thin layer: isaaclab, mjlab, genesis, genelab, carla.

A script written against one of those documents only changes its imports: ``from sensorium.compat.isaaclab import
ImuCfg``. The configs are subclasses of sensorium's and build the same sensors; files contain sensorium's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sensorium.compat.carla.blueprints import Variant

SYSTEMS = ("isaaclab", "mjlab", "genesis", "genelab", "carla")


def places_of(name: str) -> list[str]:
    """Return where this package has a name, such as ``"sensorium.compat.carla.RadarData"``."""
    modules = [import_module(f"sensorium.compat.{system}") for system in SYSTEMS]
    return [f"{module.__name__}.{name}" for module in modules if name in module.__all__]


def replacement_of(field: str) -> str:
    """Return what to write instead of a field of another system's config; empty if the field is unknown."""
    from sensorium.compat.renamed import REPLACEMENTS

    return REPLACEMENTS.get(field, "")


def variants() -> Mapping[str, Variant]:
    """Return the blueprints of sensors with another system's attributes, by id."""
    from sensorium.compat.carla.blueprints import VARIANTS

    return VARIANTS
