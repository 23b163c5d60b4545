"""Images without sensors: visibility passes at the shapes of a `TensorEngine`, and their slow reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from ray_worlds import World
from reference import CastComparison, compare_casts
from reference.images import lengths_of, pinhole_lines, reference_image

from sensorium.cameras.render.image_cast import ImageCast, ImageSpec
from sensorium.cameras.render.structs import HitRecord
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.shapes.query import QueryContext

Array = NDArray[Any]


@kernel
def copy_record(
    rows: Rows,
    record: HitRecord,
    inverse: wp.array3d[wp.float32],
    shape: wp.array3d[wp.int32],
    face: wp.array3d[wp.int32],
) -> None:
    env, mount, piece = masked_tid(rows)
    pixel = rows.first + piece
    place = place_of(rows, env)
    inverse[env, mount, pixel] = record.inverse[place, mount, pixel]
    shape[env, mount, pixel] = record.shape[place, mount, pixel]
    face[env, mount, pixel] = record.face[place, mount, pixel]


def inverse_pinhole(image: tuple[int, int], focal: float, centre: tuple[float, float] | None = None) -> torch.Tensor:
    """Return the inverse intrinsic matrix of square pixels, `[1, 3, 3]`."""
    height, width = image
    cx, cy = (width / 2, height / 2) if centre is None else centre
    k = torch.tensor([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]], dtype=torch.float64)
    return torch.linalg.inv(k)[None].float().contiguous()


def level_offsets(mounts: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return poses of cameras at their mounts."""
    return torch.zeros(1, mounts, 3), torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, mounts, 4).contiguous()


class ImageWorld(World):
    """A ray scene on an engine, with images instead of rays."""

    def images(self, image: tuple[int, int], **options: Any) -> ImageCast:
        """Return the visibility pass of all mounts; see `ImageSpec`."""
        context = QueryContext(self.scene, self.engine, self.compute, self.clock, self.mount, "ImageCast")
        options.setdefault("offsets", level_offsets(self.mount.count))
        return ImageCast(context, ImageSpec(image=image, **options))

    def outputs_of(self, cast: ImageCast) -> dict[str, torch.Tensor]:
        """Return images filled with values that no pass writes."""
        size = (self.compute.num_envs, self.mount.count, cast.count)
        types = {"inverse": torch.float32, "shape": torch.int32, "face": torch.int32}
        return {name: torch.full(size, -77, dtype=dtype) for name, dtype in types.items()}

    def render_into(self, cast: ImageCast, images: Mapping[str, torch.Tensor]) -> None:
        """Render, and copy the record."""
        with cast.render() as record:
            items = (self.mount.count, cast.count)
            self.compute.launch(copy_record, items, [record], list(images.values()), split=True)

    def render(self, cast: ImageCast) -> dict[str, Array]:
        """Render once and return the record of all environments, `[env, mount, pixel]`."""
        images = self.outputs_of(cast)
        self.clock.set(self.clock.tick, 0, 0)
        self.render_into(cast, images)
        return {name: tensor.numpy() for name, tensor in images.items()}

    def check(
        self,
        cast: ImageCast,
        got: Mapping[str, Array],
        env: int,
        mount: int = 0,
        include: Sequence[bool] | None = None,
        most_left_out: float = 0.05,
    ) -> CastComparison:
        """Compare an image with the reference."""
        spec, near = cast._spec, cast._spec.limits[0]
        starts = None
        if spec.inverse_k is not None:
            lines = pinhole_lines(spec.inverse_k[env % len(spec.inverse_k)].numpy(), spec.image)
        else:
            assert spec.directions is not None
            lines = spec.directions[env % len(spec.directions)].numpy().astype(float)
            starts = None if spec.starts is None else spec.starts[env % len(spec.starts)].numpy().astype(float)
        shapes = self.scene.shapes
        reference = reference_image(
            shapes, cast.pos_w[env, mount].numpy(), cast.quat_w[env, mount].numpy(), lines, near=near, starts=starts,
            poses=self.poses(env), include=None if include is None else np.asarray(include),
        )  # fmt: skip
        here = {name: values[env, mount] for name, values in got.items()}
        faces = here["face"].copy()
        for i, shape in enumerate(shapes):
            if shape.mesh is not None:
                mine = here["shape"] == i
                faces[mine] = shape.mesh.face_ids[faces[mine]]
        distance = lengths_of(here["inverse"], lines, near)
        tolerance = 1e-4 * np.maximum(np.where(np.isfinite(reference.distance), reference.distance, 0.0), 1.0)
        return compare_casts(
            reference, distance, here["shape"], face=faces, tolerance=tolerance, most_left_out=most_left_out
        )
