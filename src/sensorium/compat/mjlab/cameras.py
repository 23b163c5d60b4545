"""The camera of mjlab's document, with its names and defaults."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from sensorium.cameras import camera as _camera
from sensorium.cameras import camera_cfg as _cfg
from sensorium.cameras import camera_data as _data
from sensorium.cameras import lenses as _lenses
from sensorium.cfg import Float, name_in
from sensorium.compat.mjlab.entries import SceneEntryCfg
from sensorium.errors import ConfigError
from sensorium.measurement.sensor_cfg import SELECTORS
from sensorium.patterns.pinhole import Pixels

CameraSensor = _camera.Camera
_POSE = {"parent_body": None, "pos": (0.0, 0.0, 1.0), "quat": (1.0, 0.0, 0.0, 0.0)}
"""Place of a camera to create."""


class CameraSensorData(_data.CameraData):
    """One image; a miss has depth 0."""

    __slots__ = ()

    def __init__(self, *, depth: Tensor | None = None, **values: Any) -> None:
        given = {"distance_to_image_plane": depth} if depth is not None else {}
        super().__init__(**{**dict.fromkeys(self.__dataclass_fields__), **values, **given})

    @property
    def depth(self) -> Tensor:
        """`distance_to_image_plane`."""
        return self.distance_to_image_plane


class CameraSensorCfg(SceneEntryCfg, _cfg.CameraCfg):
    """Configuration of a camera: one of the model, or one to create on a body or in the world.

    Give `camera_name`, or `parent_body`, `pos` and `quat` with the axes of OpenGL, relative to the body or the world.
    """

    data_class: ClassVar[type[Any] | None] = CameraSensorData

    width: Pixels = 160
    """Number of columns, px."""
    height: Pixels = 120
    """Number of rows, px."""
    data_types: _data.DataTypes = ("rgb",)
    """Computed data types: ``rgb``, ``depth`` and ``segmentation``."""
    textures: bool = Field(default=True, alias="use_textures")
    """Whether surfaces show their textures."""
    shadows: bool = Field(default=False, alias="use_shadows")
    """Whether lights cast shadows."""
    include_geom_groups: tuple[int, ...] | None = Field(default=(0, 1, 2), alias="enabled_geom_groups")
    """Geom groups that are visible, 0 to 5; None derives them from `geometry`."""
    copy_data: bool = Field(default=False, alias="clone_data")
    """Whether each read of `data` returns new tensors."""
    clipping_range: tuple[Float, Float] = (1.0e-4, 1.0e6)
    """Nearest and farthest distance to the image plane of a visible surface, m."""
    depth_clipping_behavior: Literal["max", "zero", "none"] = "zero"
    """Depth of a miss."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_placed(f"{type(self).__name__}{name_in(data)}", data))


def _placed(title: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config with the selector, the offset and the lens that mjlab's fields describe.

    Raises:
        ConfigError: a field that does not apply, or an option that is not available.
    """
    own = {name: data[name] for name in (*_POSE, "camera_name", "fovy", "orthographic") if name in data}
    kept = {name: value for name, value in data.items() if name not in own}
    if own.get("orthographic") and own.get("fovy") is None:
        raise ConfigError.single(
            title, "orthographic", True, "False without fovy", "Give fovy, the height of the view, m."
        )
    if own.get("fovy") is not None:
        is_parallel, fovy = bool(own.get("orthographic")), own["fovy"]
        kept["lens"] = (
            _lenses.OrthographicLensCfg(view_height=fovy) if is_parallel else _lenses.PinholeLensCfg(fovy=fovy)
        )
    if own.get("camera_name") is not None:
        if others := [name for name in _POSE if own.get(name) is not None]:
            fix = "A camera of the model has its own pose."
            raise ConfigError.single(title, others[0], own[others[0]], "no value beside camera_name", fix)
        return {**kept, "camera": own["camera_name"]}
    if not kept.keys() & {*SELECTORS}:
        pose = {**_POSE, **own}
        offset = {"pos": pose["pos"], "rot": pose["quat"], "convention": "opengl"}
        kept |= {"body": pose["parent_body"] or "world", "offset": offset}
        kept.setdefault("lens", _lenses.PinholeLensCfg(fovy=45.0))
    return kept


__all__ = ["CameraSensor", "CameraSensorCfg", "CameraSensorData"]
