"""Data of cameras: the images of one frame, by data type, with the pose and the lens of the camera."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from torch import Tensor

from sensorium.cameras.geometry import convert_orientation_convention
from sensorium.spec import Field

IMAGE = ("height", "width", "channel")
VECTORS = ("height", "width", "xyz")
COLORS = ("height", "width", "rgba")
ALWAYS = ("pos_w", "quat_w_world", "intrinsic_matrices")
"""Fields that every frame has."""
DISTANCES = ("distance_to_image_plane", "distance_to_camera")
"""The two distances; noise acts on the first one that is selected, and the other one follows."""
DataType = Literal[
    "albedo", "bounding_box_2d_loose", "bounding_box_2d_loose_fast", "bounding_box_2d_tight",
    "bounding_box_2d_tight_fast", "bounding_box_3d", "bounding_box_3d_fast", "depth", "distance_to_camera",
    "distance_to_image_plane", "face_ids", "geom_ids", "instance_id_segmentation", "instance_id_segmentation_fast",
    "instance_segmentation", "instance_segmentation_fast", "linear_rgb", "motion_vectors", "normals", "optical_flow",
    "points_b", "rgb", "rgba", "segmentation", "semantic_segmentation",
]  # fmt: skip
"""Data types of `CameraCfg`."""
RayDataType = Literal["distance_to_camera", "distance_to_image_plane", "face_ids", "geom_ids", "normals", "points_b"]
"""Data types of `RayCasterCameraCfg`."""
if TYPE_CHECKING:
    DataTypes = tuple[DataType, ...]
    RayDataTypes = tuple[RayDataType, ...]
else:  # names are checked by the configs, whose error names the nearest one
    DataTypes = RayDataTypes = tuple[str, ...]
MOTION = ("height", "width", "uv")
COUNT = "_count"
"""Ending of the name of the field with the number of boxes."""
ALIASES = {
    "depth": "distance_to_image_plane",
    "instance_segmentation_fast": "instance_segmentation",
    "instance_id_segmentation_fast": "instance_id_segmentation",
    "bounding_box_2d_tight_fast": "bounding_box_2d_tight",
    "bounding_box_2d_loose_fast": "bounding_box_2d_loose",
    "bounding_box_3d_fast": "bounding_box_3d",
}
"""Other name of a data type -> its field."""


class Images(dict[str, Tensor]):
    """Images by data type: the keys are the requested names in their order, and other names are found as well."""

    def __missing__(self, name: str) -> Tensor:
        field = ALIASES.get(name, name)
        for given in self:
            if ALIASES.get(given, given) == field:
                return self[given]
        raise KeyError(f"{name}: the camera computes {', '.join(self)}. Add it to data_types.")


@dataclass(frozen=True, slots=True)
class CameraData:
    """One frame and the pose of its camera; data types that the config does not select are None.

    Attributes:
        image_shape: (height, width), pixels.
        data_types: the data types, under the config's names.
        labels: data type with ids -> ``{"idToLabels": {id as text: labels}}``; see `info`.
        lens: the lens as plain values, its ``kind`` and coefficients; the sensor's `optics` is its object.
    """

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point", parity="polar")]
    """Position of the camera's optical centre in the world, m."""
    quat_w_world: Annotated[Tensor, Field("1", (4,), frame="world", kind="derived", role="pose")]
    """Orientation of the camera in the world, axes forward, left, up; unit quaternion (w, x, y, z)."""
    intrinsic_matrices: Annotated[Tensor, Field("px", (3, 3), ("row", "column"), kind="derived")]
    """Intrinsic matrix, px: ((fx, 0, cx), (0, fy, cy), (0, 0, 1))."""
    distance_to_camera: Annotated[Tensor, Field("m", (1, 1, 1), IMAGE, role="image")]
    """Distance along each pixel's ray to its hit, m."""
    distance_to_image_plane: Annotated[Tensor, Field("m", (1, 1, 1), IMAGE, role="image")]
    """Distance of each pixel's hit along the camera's axis (z-depth), m."""
    normals: Annotated[
        Tensor, Field("1", (1, 1, 3), VECTORS, frame="world", kind="derived", role="image", parity="polar")
    ]
    """Outward unit normal of the surface at the hit, in the world; 0 for a miss."""
    points_b: Annotated[
        Tensor, Field("m", (1, 1, 3), VECTORS, frame="sensor", kind="derived", role="image", parity="polar")
    ]
    """Hit point of each pixel, in the camera's frame with axes right, down, forward, m; +inf for a miss."""
    rgb: Annotated[
        Tensor, Field("1", (1, 1, 3), ("height", "width", "rgb"), dtype="uint8", kind="derived", role="image")
    ]
    """Colour of the surface in the light, as a display shows it: red, green, blue; black for a miss without a sky."""
    rgba: Annotated[Tensor, Field("1", (1, 1, 4), COLORS, dtype="uint8", kind="derived", role="image")]
    """`rgb` and opacity: 255 for surfaces and sky, 0 for a miss without a sky."""
    albedo: Annotated[Tensor, Field("1", (1, 1, 4), COLORS, dtype="uint8", kind="derived", role="image")]
    """Colour of the surface and its texture without light, and opacity as in `rgba`."""
    linear_rgb: Annotated[Tensor, Field("1", (1, 1, 3), ("height", "width", "rgb"), role="image")]
    """Linear radiance relative to the white of a display: `rgb` before it is limited and stored in 8 bits, decoded
    with the curve of sRGB. Values above 1 are brighter than white."""
    geom_ids: Annotated[Tensor, Field("1", (1, 1, 1), IMAGE, dtype="int32", kind="id", role="image")]
    """Shape that was hit: row in the sensor's `geom_names`; -1 for a miss."""
    face_ids: Annotated[Tensor, Field("1", (1, 1, 1), IMAGE, dtype="int32", kind="id", role="image")]
    """Triangle that was hit, of a mesh (row of its faces) or height field; -1 for other shapes and for a miss."""
    semantic_segmentation: Annotated[Tensor, Field("1", (1, 1, 4), COLORS, dtype="uint8", kind="id", role="image")]
    """Labels of the surface, as a colour (red, green, blue, alpha) or an id int32 `[..., 1]`; see `info`."""
    instance_segmentation: Annotated[Tensor, Field("1", (1, 1, 4), COLORS, dtype="uint8", kind="id", role="image")]
    """Labelled object of the surface, as a colour or an id int32 `[..., 1]`; see `info`."""
    instance_id_segmentation: Annotated[Tensor, Field("1", (1, 1, 4), COLORS, dtype="uint8", kind="id", role="image")]
    """Shape of the surface, labelled or not, as a colour or an id int32 `[..., 1]`; see `info`."""
    segmentation: Annotated[Tensor, Field("1", (1, 1, 2), IMAGE, dtype="int32", kind="id", role="image")]
    """Number and type of the object, as in MuJoCo: 5 geom (row in `geom_names`), 6 site, 18 tendon; (-1, -1) for a
    miss."""
    motion_vectors: Annotated[Tensor, Field("px", (1, 1, 2), MOTION, kind="derived", role="image")]
    """Where each pixel's surface was in the previous frame, relative to the pixel: right and down, px. A surface that
    moves to the left has a positive first component. 0 in the first frame; +inf if it was behind the camera. A miss
    moves like a point at infinity, and pixels that the lens does not see are 0."""
    optical_flow: Annotated[Tensor, Field("px", (1, 1, 2), MOTION, kind="derived", role="image")]
    """How far each pixel's surface moved since the previous frame, right and down, px: minus `motion_vectors`."""
    bounding_box_2d_tight: Annotated[Tensor, Field("1", (1, 6), ("box", "value"), kind="derived")]
    """Boxes around the visible pixels of the labelled objects: semantic id, least column and row, greatest column and
    row (inclusive, px), occlusion ratio. The ratio is the share of the object's pixels that other surfaces hide. Rows
    beyond the count are -1."""
    bounding_box_2d_tight_count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of tight boxes."""
    bounding_box_2d_loose: Annotated[Tensor, Field("1", (1, 6), ("box", "value"), kind="derived")]
    """As `bounding_box_2d_tight`, around all pixels that the object would cover if nothing hid it."""
    bounding_box_2d_loose_count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of loose boxes."""
    bounding_box_3d: Annotated[Tensor, Field("1", (1, 24), ("box", "value"), kind="derived")]
    """Boxes of the labelled objects in view, hidden ones included: semantic id, minimum and maximum corner in the frame
    of the object (m), the frame's 4x4 matrix to the world row by row (origin in the last row), occlusion ratio. The
    frame is that of the shape, or of the body for several shapes."""
    bounding_box_3d_count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of 3-D boxes."""
    image_shape: tuple[int, int]
    data_types: tuple[str, ...]
    labels: Mapping[str, Mapping[str, Any]]
    lens: Mapping[str, Any]

    @property
    def output(self) -> Images:
        """The selected data types, in the config's order and under its names."""
        return Images((name, getattr(self, ALIASES.get(name, name))) for name in self.data_types)

    @property
    def depth(self) -> Tensor:
        """`distance_to_image_plane`, m, under its name in `data_types`."""
        return self.distance_to_image_plane

    @property
    def info(self) -> list[dict[str, Any]]:
        """One dict per camera: data type -> labels of its ids, or None for a type without ids.

        For a segmentation, ``["idToLabels"]`` maps each id, or each colour (red, green, blue, alpha), as text such as
        ``"2"`` or ``"(0, 0, 0, 255)"`` to its labels: type -> labels for semantics, otherwise the name of the object.
        """
        found = {name: self.labels.get(ALIASES.get(name, name)) for name in self.data_types}
        return [dict(found) for _ in range(self.pos_w[..., 0].numel())]

    @property
    def quat_w_ros(self) -> Tensor:
        """`quat_w_world` for the axes right, down, forward."""
        return convert_orientation_convention(self.quat_w_world, "world", "ros")

    @property
    def quat_w_opengl(self) -> Tensor:
        """`quat_w_world` for the axes right, up, backward, as in OpenGL and USD."""
        return convert_orientation_convention(self.quat_w_world, "world", "opengl")
