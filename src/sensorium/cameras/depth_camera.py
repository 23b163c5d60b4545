"""Depth camera: an image of z-depth, as from a stereo or time-of-flight camera.

It is a `RayCasterCamera` with the lens parameters of data sheets and the range of a device: a pixel without a value in
range is a miss. Axes: ``[env, mount, height, width, channel]``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from sensorium.cameras.camera_data import CameraData, RayDataTypes
from sensorium.cameras.ray_caster_camera import RayCasterCamera
from sensorium.cameras.ray_caster_camera_cfg import RayCasterCameraCfg
from sensorium.cfg import Finite, Float, bad, in_unit, must
from sensorium.engines.base import CameraLens
from sensorium.patterns import OptionalPatternField, PinholeCameraPatternCfg
from sensorium.patterns.base import Int
from sensorium.sensors.core.base import SimpleSensor

Size = Annotated[tuple[Int, Int], must(lambda size: min(size) >= 1, "(width, height) of at least 1 pixel")]
FocalLength = Annotated[Float, must(lambda px: 0.0 < px < math.inf, "a finite focal length above 0, px")]
LENS = ("res", "fov_horizontal", "fov_vertical", "fx", "fy", "cx", "cy")


class DepthCameraCfg(RayCasterCameraCfg):
    """Configuration of a depth camera. Give the lens by `fx`, `fy`, by angles, or by `pattern`.

    For a camera of the model, omitted fields are taken from it: `res`, the focal lengths or angles, `cx`, `cy`.
    """

    needs_pattern: ClassVar[bool] = False

    pattern: OptionalPatternField = None
    """Image and lens as a `PinholeCameraPatternCfg`; an alternative to `res`, angles and focal lengths."""
    res: Annotated[Size, in_unit("px")] = (128, 96)
    """(width, height), pixels; if omitted, that of the camera of the model, if it defines one."""
    fov_horizontal: Annotated[Float | None, in_unit("deg")] = None
    """Angle between the left and right edge of the image, degrees; 90 if neither another field nor a camera of the
    model defines the lens."""
    fov_vertical: Annotated[Float | None, in_unit("deg")] = None
    """Angle between the upper and lower edge of the image, degrees. A single angle implies square pixels."""
    fx: Annotated[FocalLength | None, in_unit("px")] = None
    """Focal length, px; an alternative to angles. Without `fy` it applies to both axes."""
    fy: Annotated[FocalLength | None, in_unit("px")] = None
    """Focal length, px; without `fx` it applies to both axes."""
    cx: Finite | None = None
    """Principal point, px from the left border; None uses the centre, or that of the camera of the model."""
    cy: Finite | None = None
    """Principal point, px from the upper border; None uses the centre, or that of the camera of the model."""
    ray_length: bool = False
    """Whether `read_image` returns the length of the ray (`distance_to_camera`) instead of z-depth
    (`distance_to_image_plane`), which most devices report."""
    data_types: RayDataTypes | None = None  # type: ignore[assignment]
    """Computed fields, as for `RayCasterCameraCfg`; None computes the one of `read_image`. ``"points_b"`` is a point
    cloud in the camera's frame."""

    @model_validator(mode="after")
    def _lens(self) -> Any:
        given = [name for name in LENS if name in self.model_fields_set and getattr(self, name) is not None]
        if self.pattern is not None and given:
            raise bad(f"pattern: either pattern or {given[0]}", "Keep one of the two.")
        self.pinhole  # noqa: B018 - raises if the lens is invalid
        if self.shown not in self.selected:
            raise bad(
                f"data_types: {self.shown}, which read_image returns, in data_types",
                "ray_length=... selects the field.",
            )
        return self

    @property
    def pinhole(self) -> PinholeCameraPatternCfg:
        """Image and lens."""
        if isinstance(self.pattern, PinholeCameraPatternCfg):
            return self.pattern
        return self._pattern(self.res)

    def _pattern(self, res: tuple[int, int]) -> PinholeCameraPatternCfg:
        return PinholeCameraPatternCfg.from_lens(
            res, self.fx, self.fy, self.cx, self.cy, self.fov_horizontal, self.fov_vertical
        )

    def image_on(self, camera: CameraLens | None, name: str = "") -> tuple[int, int]:
        """Return (width, height), px, of the image; see `RayCasterCameraCfg.image_on`."""
        if self.pattern is not None:
            return super().image_on(camera, name)
        is_open = "res" not in self.model_fields_set
        return camera.resolution if is_open and camera is not None and camera.resolution is not None else self.res

    @property
    def states_focal(self) -> bool:
        """Whether the config defines the focal length."""
        given = (self.fx, self.fy, self.fov_horizontal, self.fov_vertical)
        return super().states_focal or any(value is not None for value in given)

    def lens_at(self, width: int, height: int) -> PinholeCameraPatternCfg:
        """Return the lens of the config for an image of this size, px."""
        return self._pattern((width, height)) if self.pattern is None else self.pinhole

    def _state(self, k: NDArray[np.float64], width: int, height: int) -> None:
        super()._state(k, width, height)
        if self.pattern is not None:
            return
        for row, centre in enumerate((self.cx, self.cy)):
            if centre is not None:
                k[:, row, 2] = centre

    @property
    def shown(self) -> str:
        """Field that `read_image` returns."""
        return "distance_to_camera" if self.ray_length else "distance_to_image_plane"

    @property
    def asked(self) -> tuple[str, ...]:
        """Data types under the given names."""
        return (self.shown,) if self.data_types is None else self.data_types

    @property
    def clipping(self) -> tuple[float, float]:
        """Maximum distance that is not clipped, and the value beyond it and for a miss, m."""
        farthest = self.max_distance
        return farthest, {"none": self.miss, "max": farthest, "zero": 0.0}[self.depth_clipping_behavior]


class DepthCamera(RayCasterCamera, SimpleSensor[DepthCameraCfg, CameraData]):
    """Depth camera at one or several mounts."""

    cfg: DepthCameraCfg

    def read_image(self, env_ids: Any = None) -> Tensor:
        """Return a copy of the measured image for some envs (None for all).

        Returns:
            float32 `[n, height, width]` (`[n, mount, height, width]` with a mount axis), m: z-depth, or with
            `ray_length` the length of the ray; a miss is +inf, or the configured value.
        """
        image: Tensor = getattr(self.read(env_ids), self.cfg.shown)
        return image.squeeze(-1)
