"""The sensors and options of Genesis' document, with its names and defaults.

Options are configs: ``ContactSensor`` is the switch `sensorium.Contact`, and ``Contact`` is its config.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field
from torch import Tensor

from sensorium.cfg import Float, Vec3, as_plain, name_in
from sensorium.compat.aliases import AliasedCfg
from sensorium.errors import ConfigError
from sensorium.patterns import GridPatternCfg, PinholeCameraPatternCfg
from sensorium.patterns import SphericalPatternCfg as SphericalPattern
from sensorium.sensors.cameras.camera import Camera
from sensorium.sensors.cameras.camera_base_cfg import CameraOffsetCfg
from sensorium.sensors.cameras.camera_cfg import CameraCfg
from sensorium.sensors.cameras.camera_data import DataTypes
from sensorium.sensors.cameras.depth_camera import DepthCamera as DepthCameraSensor
from sensorium.sensors.cameras.depth_camera import DepthCameraCfg
from sensorium.sensors.cameras.rendered import RenderedSensor as BaseCameraSensor
from sensorium.sensors.cameras.rendered import RenderedSensorCfg
from sensorium.sensors.contact.contact import Contact as ContactSensor
from sensorium.sensors.contact.contact import ContactCfg as Contact
from sensorium.sensors.contact.contact_force import ContactForce as ContactForceSensor
from sensorium.sensors.contact.contact_force import ContactForceCfg as ContactForce
from sensorium.sensors.core.base import PIPELINE_KNOBS
from sensorium.sensors.inertial import imu as _imu
from sensorium.sensors.inertial.imu import Imu as IMUSensor
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.sensors.rays.ray_caster import RayCaster as RaycasterSensor
from sensorium.sensors.rays.ray_cfg import Distance
from sensorium.sensors.touch import surface_distance_probe as _probe
from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxel as ElastomerDisplacementSensor
from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxelCfg
from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensorCfg
from sensorium.sensors.touch.surface_distance_probe import SurfaceDistanceProbe as ProximitySensor
from sensorium.sensors.touch.temperature_grid import TemperatureGrid as TemperatureGridSensor
from sensorium.sensors.touch.temperature_grid import TemperatureGridCfg as TemperatureGrid

DepthCameraPattern = PinholeCameraPatternCfg.from_lens
DataT = TypeVar("DataT")
Links = str | tuple[str, ...] | None
VIEW: dict[str, Vec3] = {"pos": (3.5, 0.0, 1.5), "lookat": (0.0, 0.0, 0.0), "up": (0.0, 0.0, 1.0)}
"""View of a camera by default, in the frame of its link, m."""


def GridPattern(
    resolution: float = 0.1, size: tuple[float, float] = (2.0, 2.0), direction: Vec3 = (0.0, 0.0, -1.0)
) -> GridPatternCfg:
    """Return a grid; x varies fastest."""
    return GridPatternCfg(size=size, resolution=resolution, direction=direction)


class IMUData(_imu.ImuData):
    """One IMU sample."""

    __slots__ = ()

    @property
    def lin_acc(self) -> Tensor:
        """`lin_acc_b`."""
        return self.lin_acc_b

    @property
    def ang_vel(self) -> Tensor:
        """`ang_vel_b`."""
        return self.ang_vel_b

    @property
    def mag(self) -> Tensor:
        """`mag_b`."""
        return self.mag_b


class RaycasterData(_rays.RayCasterData):
    """One scan."""

    __slots__ = ()

    @property
    def points(self) -> Tensor:
        """The hits: `points_b` if computed, otherwise `ray_hits_w`."""
        return self.points_b if self.points_b is not None else self.ray_hits_w


class ProximityData(_probe.SurfaceDistanceProbeData):
    """One sample of the probes."""

    __slots__ = ()

    @property
    def nearest_points(self) -> Tensor:
        """`nearest_points_w`."""
        return self.nearest_points_w


class IMU(AliasedCfg, _imu.ImuCfg):
    """Options of an IMU."""

    data_class: ClassVar[type[Any] | None] = IMUData


def _framed(value: Any) -> Any:
    return ("distances", "ray_hits_w" if value else "points_b") if isinstance(value, bool) else value


class Raycaster(AliasedCfg, _rays.RayCasterCfg):
    """Options of a ray caster."""

    data_class: ClassVar[type[Any] | None] = RaycasterData

    min_distance: Distance = Field(default=0.0, alias="min_range")
    """Smallest measured distance, m; nearer hits are misses."""
    max_distance: Float = Field(default=1.0e6, alias="max_range")
    """Largest measured distance, m; farther hits are misses."""
    fields: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_framed)] = Field(
        default=_rays.RayCasterCfg.model_fields["fields"].default, alias="return_world_frame"
    )
    """Computed fields. A flag selects distances and hits, in the world's frame (True) or in the sensor's (False)."""


class DepthCamera(AliasedCfg, DepthCameraCfg):
    """Options of a depth camera, whose image holds the lengths of rays."""

    min_distance: Distance = Field(default=0.0, alias="min_range")
    """Smallest measured distance, m; nearer hits are misses."""
    max_distance: Float = Field(default=1.0e6, alias="max_range")
    """Largest measured distance, m; farther hits are misses."""
    ray_length: bool = True
    """Whether `read_image` returns the length of the ray instead of z-depth."""


class Proximity(AliasedCfg, _probe.SurfaceDistanceProbeCfg):
    """Options of probes of the nearest surface; a miss shows the probe's reach and its own position."""

    data_class: ClassVar[type[Any] | None] = ProximityData

    targets: Links = Field(default=None, alias="track_link")
    """Links whose surfaces count; None means all."""
    probe_radius: _probe.Reach = Field(default=0.5, alias="max_range")
    """Largest distance that a probe measures, m."""
    misses_at_radius: bool = True
    """Whether a miss shows the reach and the probe's own position."""


class ElastomerDisplacement(AliasedCfg, ElastomerTaxelCfg):
    """Options of taxels in an elastomer."""

    targets: Links = Field(default=None, alias="track_link")
    """Links that drag the skin."""


class KinematicTaxel(AliasedCfg, KinematicTactileSensorCfg):
    """Options of taxels that sense force and torque along the surface's normal; shear is along the link's motion."""

    targets: Links = Field(default=None, alias="track_link")
    """Sensed links; None means all."""
    surface_normals: bool = True
    """Whether forces follow the touched surface's normal."""
    shear_along_motion: bool = True
    """Whether shear and twist act along the motion of the link."""


def _viewed(title: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a camera with its pose and size from the fields of this document.

    Raises:
        ConfigError: `res` is invalid, or a knob is given: these cameras take none.
    """
    title = f"{title}{name_in(data)}"
    for knob in PIPELINE_KNOBS:
        if as_plain(data.get(knob)) not in (None, 0, (), []):
            fix = "This camera has no such knob: use sn.CameraCfg, or derive its config from sn.RenderedSensorCfg."
            raise ConfigError.single(title, knob, data[knob], "no value", fix)
    data = {name: value for name, value in data.items() if name not in PIPELINE_KNOBS}
    if "offset" not in data:
        view = {name: data.pop(name, default) for name, default in VIEW.items()}
        matrix = data.pop("offset_T", None)
        is_view = matrix is None
        data["offset"] = CameraOffsetCfg.from_view(**view) if is_view else CameraOffsetCfg.from_matrix(matrix)
    if "width" not in data and "height" not in data:
        size = data.pop("res", (512, 512))
        if not (isinstance(size, Sequence) and len(size) == 2):
            raise ConfigError.single(title, "res", size, "(width, height), px")
        data["width"], data["height"] = size
    return data


class RasterizerCameraOptions(CameraCfg):
    """Options of a camera that images the scene in colour.

    Its `pos`, `lookat`, `up`, `offset_T` and `res` are those of `BaseCameraOptions`, and it takes no knobs either.
    """

    data_types: DataTypes = ("rgb",)
    """Computed data types."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_viewed(type(self).__name__, data))


class RaytracerCameraOptions(RasterizerCameraOptions):
    """Options of a camera that images the scene in colour; there is one renderer for all cameras."""


class BatchRendererCameraOptions(RasterizerCameraOptions):
    """Options of a camera that images the scene in colour; there is one renderer for all cameras."""


RasterizerCameraSensor = RaytracerCameraSensor = BatchRendererCameraSensor = Camera


class BaseCameraOptions(RenderedSensorCfg[DataT], Generic[DataT]):
    """Options of a camera that renders its own images. It takes no knobs: no noise, delay, jitter or history.

    Args:
        pos: position of the camera in the frame of its link, m; with `lookat` and `up` it stands for `offset`.
        lookat: point in the centre of the view, in the frame of the link, m.
        up: direction that is up in the image.
        offset_T: pose of the camera in the frame of the link, a 4x4 matrix with the axes right, up, backward; it
            replaces `pos`, `lookat` and `up`.
        res: (width, height), px, instead of `width` and `height`.
        data: fields of the config.

    Raises:
        ConfigError: a field is invalid, or is given under both names.
    """

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_viewed(type(self).__name__, data))


__all__ = [
    "IMU", "BaseCameraOptions", "BaseCameraSensor", "BatchRendererCameraOptions", "BatchRendererCameraSensor",
    "Contact", "ContactForce", "ContactForceSensor", "ContactSensor", "DepthCamera", "DepthCameraPattern",
    "DepthCameraSensor", "ElastomerDisplacement", "ElastomerDisplacementSensor", "GridPattern", "IMUData", "IMUSensor",
    "KinematicTaxel", "Proximity", "ProximityData", "ProximitySensor", "RasterizerCameraOptions",
    "RasterizerCameraSensor", "Raycaster", "RaycasterData", "RaycasterSensor", "RaytracerCameraOptions",
    "RaytracerCameraSensor", "SphericalPattern", "TemperatureGrid", "TemperatureGridSensor",
]  # fmt: skip
