"""A pinhole depth camera with prescribed images, for the tests of the depth error models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record, SimpleSensor, SimpleSensorCfg
from sensorium.compute import Rows

Array = NDArray[np.float64]
Z = "distance_to_image_plane"
AXES = ("height", "width", "channel")
IMAGES: dict[str, dict[str, Any]] = {}
"""Images that cameras see: name -> field -> image `[height, width, ...]`, or the 4 numbers of a quaternion."""


@dataclass(frozen=True, slots=True)
class PlainCameraData:
    distance_to_image_plane: Annotated[Tensor, Field("m", (1, 1, 1), AXES, role="image")]
    distance_to_camera: Annotated[Tensor, Field("m", (1, 1, 1), AXES, role="image")]
    reflectance: Annotated[Tensor, Field("1", (1, 1, 1), AXES, role="image")]
    normals: Annotated[Tensor, Field("1", (1, 1, 3), ("height", "width", "xyz"), frame="world", role="image")]
    quat_w_ros: Annotated[Tensor, Field("1", (4,), ("wxyz",), frame="world", kind="rotation")]
    flat: Annotated[Tensor, Field("m", (1, 1), ("height", "width"), role="image")]


class PlainCameraCfg(SimpleSensorCfg[PlainCameraData]):
    """Sees `IMAGES[sees]` in all envs, at all ticks."""

    sees: str = ""
    """Name of the images."""


@wp.kernel(enable_backward=False)
def _show(rows: Rows, image: wp.array[wp.float32], values: wp.array2d[wp.float32]):
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        values[env, column] = image[column]


class PlainCamera(SimpleSensor[PlainCameraCfg, PlainCameraData]):
    def fields(self) -> Mapping[str, Field]:
        declared, images = super().fields(), IMAGES[self.cfg.sees]
        out = {}
        for name, field in declared.items():
            if name not in images:
                continue
            axes, shape = field.axes, np.shape(images[name])
            if axes[-1:] == ("channel",):
                shape = (*shape, 1)
            if len(shape) > len(axes):
                axes = ("mount", *axes)
            out[name] = Field(field.unit, shape, axes, frame=field.frame, kind=field.kind, role=field.role)
        return out

    @sn.recorded
    def update_raw_data(self, raw: Record) -> None:
        for name, view in raw.items():
            image = np.ascontiguousarray(np.asarray(IMAGES[self.cfg.sees][name], np.float32).reshape(-1))
            source = wp.array(image, dtype=wp.float32, device=self.compute_on.wp_device)
            target = wp.from_torch(view.view(len(view), -1), dtype=wp.float32)
            self.compute_on.launch(_show, (image.size,), [source], [target])


def camera(images: Any, *stages: sn.stages.StageCfg, **knobs: Any) -> PlainCameraCfg:
    """Return a camera that sees a z-depth image, or images by field."""
    name = f"images {len(IMAGES)}"
    IMAGES[name] = dict(images) if isinstance(images, Mapping) else {Z: images}
    return PlainCameraCfg(name="camera", sees=name, stages=stages, **knobs)


def world(cfg: PlainCameraCfg, envs: int = 1, seed: int = 0, dt: float = 0.01, **kwargs: Any) -> sn.Scene:
    """Return a scene with the camera."""
    return sn.Scene(sn.TensorEngine(envs, dt), [cfg], seed=seed, **kwargs)


def measured(images: Any, *stages: sn.stages.StageCfg, envs: int = 1, samples: int = 1, **knobs: Any) -> Array:
    """Return the measured z-depth of some samples, `[sample * env, height, width]`, and check the truth."""
    scene = world(camera(images, *stages, **knobs), envs)
    out = []
    for _ in range(samples):
        scene.update()
        sensor = scene["camera"]
        values = getattr(sensor.data, Z)
        out.append(values.squeeze(-1).double().numpy().copy())
        truth = getattr(sensor.ground_truth, Z)[0].squeeze(-1).numpy()
        np.testing.assert_array_equal(truth, np.asarray(IMAGES[sensor.cfg.sees][Z], np.float32))
    return np.concatenate(out)


def plane(height: int, width: int, focal: float, distance: float, angle: float, about: str = "v") -> Array:
    """Return the z-depth of a plane that the camera's axis hits at a distance, turned about an image axis, rad."""
    x = (np.arange(width) + 0.5 - 0.5 * width) / focal
    y = (np.arange(height) + 0.5 - 0.5 * height) / focal
    along = np.broadcast_to(x if about == "v" else y[:, None], (height, width))
    inverse = (1.0 - np.tan(angle) * along) / distance
    return np.where(inverse > 0.0, 1.0 / np.where(inverse > 0.0, inverse, 1.0), np.inf)


def cosines(height: int, width: int, focal: float, angle: float) -> Array:
    """Return |cos| between each pixel's ray and the normal of `plane(..., angle, "v")`, computed from vectors."""
    u, v = np.meshgrid(np.arange(width) + 0.5 - 0.5 * width, np.arange(height) + 0.5 - 0.5 * height)
    rays = np.stack([u / focal, v / focal, np.ones_like(u)], axis=-1)
    normal = np.array([-np.sin(angle), 0.0, np.cos(angle)])
    return np.abs(rays @ normal) / np.linalg.norm(rays, axis=-1)


def step(height: int, width: int, near: float, far: float, first: int, last: int) -> Array:
    """Return a far wall with a near strip over columns `first` to `last` - 1."""
    image = np.full((height, width), far)
    image[:, first:last] = near
    return image


__all__ = ["IMAGES", "PlainCamera", "Z", "camera", "cosines", "measured", "plane", "step", "world"]
