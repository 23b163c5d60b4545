"""Bases of the sensors of Isaac Lab's document."""

from __future__ import annotations

from typing import Any

from sensorium.errors import UnsupportedError


class HandleError(UnsupportedError, AttributeError):
    """A handle of Isaac Lab's simulator was requested; the message names the replacement."""


class Handle:
    """Attribute that raises `HandleError`, so that `hasattr` is False.

    Args:
        fix: the replacement.
    """

    def __init__(self, fix: str) -> None:
        self._fix = fix

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, sensor: Any, owner: type) -> Any:
        if sensor is None:
            return self
        raise HandleError(sensor.name, self._name, sensor.engine.name, self._fix)


_STATE = 'read poses from `data`, or the state of bodies from scene.engine.array("body_pos_w") and similar arrays.'
_SHAPES = "read the shapes from scene.engine.shapes()."


class WithoutHandles:
    """Sensor without the handles of Isaac Lab's simulator."""

    render_product_paths = Handle("read images from `data.output`, and save them with sn.Recorder.")
    contact_physx_view = Handle("read forces from `data.net_forces_w` and `data.force_matrix_w`.")
    body_physx_view = Handle(_STATE)
    root_physx_view = Handle(_STATE)
    warp_meshes = Handle(_SHAPES)
    meshes = Handle(_SHAPES)


__all__ = ["Handle", "HandleError", "WithoutHandles"]
