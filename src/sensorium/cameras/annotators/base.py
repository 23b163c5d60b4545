"""Base of the annotators of a camera."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import warp as wp
from torch import Tensor

from sensorium.measurement.record import Record
from sensorium.spec import Field


class Annotator:
    """Computation of some data types from the hits of a frame.

    Args:
        camera: the `ImageCamera`, whose visibility pass exists.
        names: the selected fields among those of this annotator.
    """

    types: ClassVar[Sequence[str]]
    """All fields of this annotator."""
    labels: dict[str, Mapping[str, Any]]
    """Field with ids -> ``{"idToLabels": {id as text: labels}}``."""

    def __init__(self, camera: Any, names: tuple[str, ...]) -> None:
        self.camera, self.names = camera, names
        self.labels = {}

    @classmethod
    def sized(cls, name: str, field: Field, camera: Any) -> Field:
        """Return a field with the sizes of its axes, channels and dtype; by default those of an image."""
        return replace(field, shape=(*camera.image_shape, *field.shape[2:]))

    def reset(self, env_mask: Tensor) -> None:
        """Follow a reset of the envs of a uint8 `[env]` mask; by default nothing."""

    def loaded(self) -> None:
        """Follow the restoring of saved state; by default nothing."""

    def begin(self) -> None:
        """Run work before the frame (launches, outside the visibility pass); by default nothing."""

    def finish(self) -> None:
        """Run work after the frame of all environments (launches, outside the visibility pass); by default nothing."""

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the images of a frame (launches, inside the camera's visibility pass).

        Args:
            record: fields of the frame.
            hits: the hit record, a `cameras.render.structs.HitRecord`.
            is_last: whether no noise follows.
        """
        raise NotImplementedError

    def derive(self, record: Record, altered: Collection[str]) -> None:
        """Compute fields of a measured frame from others, once those are final (launches); by default nothing.

        Args:
            record: fields of the frame.
            altered: the fields that knobs and stages alter.
        """

    def image(self, record: Record, name: str, dtype: Any = wp.float32, channels: int = 1) -> Any:
        """View an image as a Warp array `[env, mount, pixel * channels]`; an empty array where it is not selected."""
        if name not in record:
            return wp.zeros((0, 0, 0), dtype=dtype, device=self.camera.compute_on.wp_device)
        camera, tensor = self.camera, record[name]
        shape = (camera.num_envs, camera.mount.count, self.pixels * channels)
        return wp.from_torch(tensor.view((*shape, 3) if dtype is wp.vec3 else shape), dtype=dtype)

    @property
    def pixels(self) -> int:
        """Pixels of one image."""
        height, width = self.camera.image_shape
        return int(height * width)
