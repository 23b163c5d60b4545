"""Bases of the sensors of Isaac Lab's document."""

from __future__ import annotations

from typing import Any

from sensorium.errors import UnsupportedError


class HandleError(UnsupportedError, AttributeError):
    """A handle of Isaac Lab's simulator was requested; the message names the replacement."""


def _refused(name: str, fix: str) -> property:
    """Return a property that raises `HandleError`, so that `hasattr` is False."""

    def refuse(sensor: Any) -> Any:
        raise HandleError(sensor.name, name, sensor.engine.name, fix)

    return property(refuse)


_FORCES = "read forces from `data.net_forces_w` and `data.force_matrix_w`."
_IMAGES = "read images from `data.output`, and save them with sn.Recorder."
_SHAPES = "read the shapes from scene.engine.shapes()."
_STATE = 'read poses from `data`, or the state of bodies from scene.engine.array("body_pos_w") and similar arrays.'


class WithoutHandles:
    """Sensor without the handles of Isaac Lab's simulator."""

    render_product_paths = _refused("render_product_paths", _IMAGES)
    contact_physx_view = _refused("contact_physx_view", _FORCES)
    body_physx_view = _refused("body_physx_view", _STATE)
    root_physx_view = _refused("root_physx_view", _STATE)
    warp_meshes = _refused("warp_meshes", _SHAPES)
    meshes = _refused("meshes", _SHAPES)


__all__ = ["HandleError", "WithoutHandles"]
