"""Common base of this module's sensor configs, which mjlab's `SceneCfg.sensors` accepts as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sensorium.compat.aliases import AliasedCfg

if TYPE_CHECKING:
    from sensorium.compat.mjlab.scenes import SceneSensor


class SceneEntryCfg(AliasedCfg):
    """Config that can be an entry of mjlab's `SceneCfg.sensors`; the entries of a scene share one sensorium scene."""

    def build(self) -> SceneSensor:
        """Return the sensor of mjlab's scene.

        Raises:
            MissingDependencyError: mjlab is not installed.
        """
        from sensorium.compat.mjlab.scenes import SceneSensor  # imported on use: needs mjlab

        return SceneSensor(self)


__all__ = ["SceneEntryCfg"]
