"""The sensors and options of Genesis' document, with its names and defaults.

Options are configs: ``ContactSensor`` is the switch `sensorium.Contact`, and ``Contact`` is its config. Names and
defaults follow version 1.4; those of 0.4 that 1.4 renamed are also accepted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sensorium.cameras.camera import Camera
from sensorium.cameras.camera_base_cfg import CameraOffsetCfg
from sensorium.cameras.camera_cfg import CameraCfg
from sensorium.cameras.camera_data import CameraData as _CameraData
from sensorium.cameras.camera_data import DataTypes
from sensorium.cameras.depth_camera import DepthCamera as DepthCameraSensor
from sensorium.cameras.depth_camera import DepthCameraCfg
from sensorium.cameras.lenses import PinholeLensCfg
from sensorium.cameras.rendered import RenderedSensor as BaseCameraSensor
from sensorium.cameras.rendered import RenderedSensorCfg
from sensorium.cfg import Float, NonNegative, ObjRef, OffsetCfg, Vec3, as_plain, name_in
from sensorium.compat.aliases import AliasedCfg
from sensorium.engines.base import Engine
from sensorium.errors import ConfigError, SensoriumWarning, StaleError
from sensorium.measurement.sensor_cfg import SELECTORS, Selectors
from sensorium.measurement.stages.scale import ScaleError
from sensorium.patterns import GridPatternCfg, PinholeCameraPatternCfg, SphericalPatternCfg
from sensorium.pose import Pose
from sensorium.scene.scene import Scene as _Scene
from sensorium.sensors.contact.contact import Contact as ContactSensor
from sensorium.sensors.contact.contact import ContactCfg, Force
from sensorium.sensors.contact.contact_force import ContactForce as ContactForceSensor
from sensorium.sensors.contact.contact_force import ContactForceCfg
from sensorium.sensors.core.base import PIPELINE_KNOBS
from sensorium.sensors.inertial import imu as _imu
from sensorium.sensors.inertial.imu import Imu as IMUSensor
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.sensors.rays.ray_caster import RayCaster as RaycasterSensor
from sensorium.sensors.rays.ray_cfg import Distance
from sensorium.sensors.touch import kinematic_tactile as _tactile
from sensorium.sensors.touch import surface_distance_probe as _probe
from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxel as ElastomerDisplacementSensor
from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxelCfg
from sensorium.sensors.touch.surface_distance_probe import SurfaceDistanceProbe as ProximitySensor
from sensorium.sensors.touch.temperature_grid import TemperatureGrid as TemperatureGridSensor
from sensorium.sensors.touch.temperature_grid_cfg import LinkThermalCfg, TemperatureGridCfg
from sensorium.shapes.scene import Geometry

DepthCameraPattern = PinholeCameraPatternCfg.from_lens
DataT = TypeVar("DataT")
VIEW: dict[str, Vec3] = {"pos": (3.5, 0.0, 1.5), "lookat": (0.0, 0.0, 0.0), "up": (0.0, 0.0, 1.0)}
"""View of a camera by default, in the frame of its link, m."""
LINKS = {"track_link_idx": "targets", "filter_link_idx": "ignore"}
"""Options with positions of links among all links, and the fields that hold references to them."""
FIELDS = {**LINKS, "pos_offset": "offset", "euler_offset": "offset"}
"""Options, and the fields that hold their values."""
_OMITTED = {
    "Omit it, since one renderer without path tracing serves all cameras.":
        "spp denoise aperture focal_len focus_dist env_surface env_radius env_pos env_quat",
    "Give the gel of version 1.4: lambda_d, lambda_s, dilate_scale, shear_scale.":
        "dilate_coefficient shear_coefficient twist_coefficient dilate_max_delta shear_max_delta twist_max_delta",
    "Give the lights in the model, since they belong to the scene.": "lights",
    "Omit it, since heat flows through the area of contact.": "contact_depth_weight",
    "Give properties={'link': TemperatureProperties(...)}, and default_properties for key -1.": "properties_dict",
    "Use a Raycaster with this pattern.": "return_world_frame",
    "Omit it, since a sensor that is not read costs nothing.": "update_ground_truth_only",
}  # fmt: skip
REFUSED = {name: fix for fix, names in _OMITTED.items() for name in names.split()}
"""Options without a counterpart, and what to do."""


def GridPattern(
    resolution: float = 0.1, size: tuple[float, float] = (2.0, 2.0), direction: Vec3 = (0.0, 0.0, -1.0)
) -> GridPatternCfg:
    """Return a grid; y varies fastest, so `return_shape` is (x, y)."""
    return GridPatternCfg(size=size, resolution=resolution, direction=direction, ordering="yx")


def SphericalPattern(
    fov: tuple[Any, Any] = (360.0, 60.0), n_points: tuple[int, int] = (128, 64), angular_resolution: Any = (None, None),
    angles: Any = (None, None),
) -> SphericalPatternCfg:  # fmt: skip
    """Return rays over azimuths and elevations; `return_shape` is (azimuths, elevations).

    Args:
        fov: centred extent, or (low, high), of azimuth and elevation, deg.
        n_points: number of azimuths and elevations.
        angular_resolution: largest step of each, deg; it replaces that number.
        angles: all azimuths and all elevations, deg; they replace the others.
    """
    counts = [*n_points]
    for axis, (extent, step) in enumerate(zip(fov, angular_resolution, strict=True)):
        if step is not None:
            size = extent[1] - extent[0] if isinstance(extent, Sequence) else extent
            counts[axis] = math.ceil(size / step) + (size < 360.0)
    both = None if angles[0] is angles[1] is None else (tuple(angles[0]), tuple(angles[1]))
    return SphericalPatternCfg(fov=fov, n_points=(counts[0], counts[1]), angles=both)


TemperatureProperties = partial(LinkThermalCfg, conductivity=50.0, density=1000.0, specific_heat=1.0)


# Readings -------------------------------------------------------------------------------------------------------------


class Unpacked:
    """Reading that unpacks as a tuple of its `parts`."""

    __slots__ = ()
    parts: ClassVar[tuple[str, ...]] = ()

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.parts)


class IMUData(Unpacked, _imu.ImuData):
    """One IMU sample."""

    __slots__ = ()
    parts = ("lin_acc", "ang_vel", "mag")

    lin_acc = property(attrgetter("lin_acc_b"), doc="`lin_acc_b`.")
    ang_vel = property(attrgetter("ang_vel_b"), doc="`ang_vel_b`.")
    mag = property(attrgetter("mag_b"), doc="`mag_b`.")


class RaycasterData(Unpacked, _rays.RayCasterData):
    """One scan; the rays have the axes of `pattern.return_shape`."""

    __slots__ = ()
    parts = ("points", "distances")

    @property
    def points(self) -> Tensor:
        """The hits: `points_b` if computed, otherwise `ray_hits_w`."""
        return self.points_b if self.points_b is not None else self.ray_hits_w


class DepthCameraData(Unpacked, _CameraData):
    """One depth image."""

    __slots__ = ()
    parts = ("points", "distances")

    @property
    def points(self) -> Tensor | None:
        """The hits `[env, height, width, 3]` in the frame of the camera, x forward, m; not finite for a miss."""
        hit = self.points_b  # right, down, forward
        return None if hit is None else torch.stack([hit[..., 2], -hit[..., 0], -hit[..., 1]], dim=-1)

    @property
    def distances(self) -> Tensor:
        """Length of the ray of each pixel `[env, height, width]`, m."""
        return self.distance_to_camera.squeeze(-1)


class ProximityData(_probe.SurfaceDistanceProbeData):
    """One sample of the probes."""

    __slots__ = ()

    nearest_points = property(attrgetter("nearest_points_w"), doc="`nearest_points_w`.")


class KinematicTaxelData(Unpacked, _tactile.KinematicTactileSensorData):
    """One sample of the taxels."""

    __slots__ = ()
    parts = ("force", "torque")


# Options --------------------------------------------------------------------------------------------------------------


def _attached(title: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config from the options that all sensors have: the link and the offset.

    Raises:
        ConfigError: an option has no counterpart.
    """
    title = f"{title}{name_in(data)}"
    for name in REFUSED.keys() & data:
        if as_plain(value := data.pop(name)) not in (None, False, (), []):
            raise ConfigError.single(title, name, value, "no such option", REFUSED[name])
    for name in FIELDS.keys() & data:
        if FIELDS[name] in data:
            raise ConfigError.single(title, name, data[name], f"either {name} or {FIELDS[name]}", "Keep one of them.")
    if data.pop("interpolate", False):
        text = f"{title}: `interpolate` has no effect, as in Genesis 1.4: a delayed sample is shown until the next."
        warnings.warn(text, SensoriumWarning, stacklevel=4)
    if {"entity_idx", "link_idx_local"} & data.keys() or not {*SELECTORS} & data.keys():
        entity, index = data.pop("entity_idx", None), data.pop("link_idx_local", 0)
        link = ObjRef(type="body", name=".*", entity=entity, index=index)
        selector = "link_name" if "body" in data else "body"  # the config refuses two selectors
        data[selector] = "world" if entity is None or entity == -1 else link
    if {"pos_offset", "euler_offset"} & data.keys():
        euler = OffsetCfg(pos=as_plain(data.pop("euler_offset", (0.0, 0.0, 0.0)))).pos  # validated as three numbers
        rot = Pose.from_euler((0.0, 0.0, 0.0), [math.radians(angle) for angle in euler]).rot
        data["offset"] = OffsetCfg(pos=data.pop("pos_offset", (0.0, 0.0, 0.0)), rot=rot)
    for name, field in LINKS.items():
        if rows := data.pop(name, ()):
            rows = rows if isinstance(rows, Sequence) else (rows,)
            data[field] = tuple(ObjRef(type="body", name=".*", index=row) for row in rows)
    if "draw_debug" in data:
        data["debug_vis"] = data.pop("draw_debug")
    return {name: value for name, value in data.items() if not name.startswith("debug_") or name[6:] in ("vis", "rays")}


class _Options(AliasedCfg):
    """Common base of the options.

    Args:
        entity_idx: entity that carries the sensor: its position in the model or its name; None or -1 for the world.
        link_idx_local: position of the link in the entity.
        pos_offset: position of the sensor in the frame of the link, m.
        euler_offset: its orientation, deg: rotations about the fixed axes x, y and z, in this order.
        track_link_idx: positions of the links that the sensor interacts with, among all bodies of the model.
        filter_link_idx: positions of the links whose contacts are ignored.
        draw_debug: whether viewers draw the sensor. Options of colours and sizes, `debug_...`, have no effect.
        data: fields of the config.
    """

    other_aliases: ClassVar[Mapping[str, str]] = {"draw_debug": "debug_vis"}

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_attached(type(self).__name__, data))


class IMU(_Options, _imu.ImuCfg):
    """Options of an IMU; `acc_`, `gyro_` and `mag_cross_axis_coupling`, one number or three, add a `ScaleError`."""

    data_class: ClassVar[type[Any] | None] = IMUData

    magnetic_field: Vec3 | None = (0.0, 0.0, 0.5)
    """Flux in world axes, any unit."""

    def __init__(self, /, **data: Any) -> None:
        stages: tuple[Any, ...] = ()
        for prefix, (field, _) in self.prefixed_knobs.items():
            if np.any(coupling := data.pop(f"{prefix}_cross_axis_coupling", 0.0)):
                stages += (ScaleError(fields=(field,), cross_axis=coupling),)
        if stages:
            data["stages"] = (*(data.get("stages") or ()), *stages)
        super().__init__(**data)


class Contact(_Options, ContactCfg):
    """Options of a contact switch."""

    on_force: Force = Field(default=0.0, alias="threshold")
    """Force above which the switch is on, N."""


class ContactForce(_Options, ContactForceCfg):
    """Options of a contact force; an infinite `max_force` is no limit."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data | ({"max_force": None} if as_plain(data.get("max_force")) == math.inf else {}))


class _Ranged(_Options):
    """Options of a sensor that casts rays. It also hits its own link, and a miss reads `max_range`."""

    min_distance: Distance = Field(default=0.0, alias="min_range")
    """Smallest measured distance, m; nearer hits are misses."""
    max_distance: Float = Field(default=20.0, alias="max_range")
    """Largest measured distance, m; farther hits are misses."""
    geometry: Geometry = "collision"
    """Candidate shapes."""
    exclude_parent_body: bool = False
    """Whether to exclude the shapes of the link that carries the sensor."""

    def __init__(self, /, **data: Any) -> None:
        if data.get("no_hit_value") is None:
            data["no_hit_value"] = data.get("max_range", data.get("max_distance", 20.0))
        super().__init__(**data)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole; a miss reads the new range."""
        follows = {"no_hit_value": None} if self.no_hit_value == self.max_distance else {}
        return super().replace(**follows | changes)


class Raycaster(_Ranged, _rays.RayCasterCfg):
    """Options of a ray caster.

    Args:
        return_world_frame: whether `points` are `ray_hits_w`, in the world, instead of `points_b`, in the link.
        return_points: whether to compute them.
        data: options that all sensors have, and fields of the config.
    """

    data_class: ClassVar[type[Any] | None] = RaycasterData
    keeps_layout: ClassVar[bool] = True

    def __init__(self, /, **data: Any) -> None:
        points = "ray_hits_w" if data.pop("return_world_frame", False) else "points_b"
        data.setdefault("fields", ("distances", points) if data.pop("return_points", True) else ("distances",))
        super().__init__(**data)


Lidar = Raycaster


class DepthCamera(_Ranged, DepthCameraCfg):
    """Options of a depth camera that looks along x, whose image holds the lengths of rays.

    Args:
        return_points: whether to compute `points`.
        data: options that all sensors have, and fields of the config.
    """

    data_class: ClassVar[type[Any] | None] = DepthCameraData

    ray_length: bool = True
    """Whether `read_image` returns the length of the ray instead of z-depth."""

    def __init__(self, /, **data: Any) -> None:
        types = ("distance_to_camera", "points_b") if data.pop("return_points", True) else ("distance_to_camera",)
        super().__init__(**{"data_types": types, **data} if data.get("ray_length", True) else data)


class SurfaceDistanceProbe(_Options, _probe.SurfaceDistanceProbeCfg):
    """Options of probes of the nearest surface; a miss shows the probe's reach and its own position."""

    data_class: ClassVar[type[Any] | None] = ProximityData

    targets: Selectors = Field(default=None, alias="track_link")
    """Links whose surfaces count; None means all."""
    misses_at_radius: bool = True
    """Whether a miss shows the reach and the probe's own position."""
    geometry: Geometry = "collision"
    """Candidate shapes."""


class Proximity(SurfaceDistanceProbe):
    """Options of probes of the nearest surface, under the names of version 0.4."""

    probe_radius: _probe.Reach = Field(default=10.0, alias="max_range")
    """Largest distance that a probe measures, m."""


class ElastomerDisplacement(_Options, ElastomerTaxelCfg):
    """Options of taxels in an elastomer."""

    targets: Selectors = Field(default=None, alias="track_link")
    """Links that drag the skin."""


ElastomerTaxel = ElastomerDisplacement


class KinematicTaxel(_Options, _tactile.KinematicTactileSensorCfg):
    """Options of taxels that sense force and torque along the surface's normal; shear is along the link's motion."""

    data_class: ClassVar[type[Any] | None] = KinematicTaxelData

    targets: Selectors = Field(default=None, alias="track_link")
    """Sensed links; None means all."""
    surface_normals: bool = True
    """Whether forces follow the touched surface's normal."""
    shear_along_motion: bool = True
    """Whether shear and twist act along the motion of the link."""


class TemperatureGrid(_Options, TemperatureGridCfg):
    """Options of a temperature grid."""

    default_properties: LinkThermalCfg = TemperatureProperties()
    """Material of links that match no pattern of `properties`."""
    convection: NonNegative = Field(default=1.0, alias="convection_coefficient")
    """Heat transfer coefficient to the air, W/(m^2 K)."""


def _viewed(title: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a camera with its pose and size from the fields of this document.

    Raises:
        ConfigError: `res` is invalid, or a knob is given: these cameras take none.
    """
    data, title = _attached(title, data), f"{title}{name_in(data)}"
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

    Args:
        fov: vertical field of view, deg, instead of `lens`; 60 by default.
        near: nearest visible distance, m; with `far` it stands for `clipping_range`.
        far: farthest visible distance, m.
        model: ``"pinhole"``; for other lenses give `lens`.
        data: fields of the config.
    """

    data_types: DataTypes = ("rgb",)
    """Computed data types."""

    def __init__(self, /, **data: Any) -> None:
        if (model := data.pop("model", "pinhole")) != "pinhole":
            raise ConfigError.single(type(self).__name__, "model", model, "'pinhole'", "Give another lens as `lens`.")
        data.pop("use_rasterizer", None)
        range_ = data.pop("near", 0.01), data.pop("far", 100.0)
        lens = PinholeLensCfg(fovy=data.pop("fov", 60.0))
        super().__init__(**_viewed(type(self).__name__, {"clipping_range": range_, "lens": lens, **data}))


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


# Scene ----------------------------------------------------------------------------------------------------------------


class AddedSensor:
    """Sensor of a scene that may not be built yet; its attributes are those of the sensor."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene, self.name = scene, name

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_scene"].built[self.name], name)


class Scene:
    """Scene to which sensors are added before or after `build`; its other attributes are those of `sensorium.Scene`.

    Args:
        engine: the engine, which determines the number of environments.
        options: arguments of `sensorium.Scene`.
    """

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._engine, self._options, self._added = engine, options, list[Any]()

    def add_sensor(self, options: Any) -> AddedSensor:
        """Add a sensor and return it; it can be read once the scene is built."""
        named = options if options.name else options.replace(name=f"{options.kind()}_{len(self._added)}")
        self._added.append(named)
        if "built" in vars(self):
            self.built.add(named)
        return AddedSensor(self, named.name)

    def build(self, n_envs: int | None = None) -> None:
        """Build the scene with the sensors added so far.

        Raises:
            ConfigError: the engine has another number of environments than `n_envs`, where 0 means one.
        """
        if n_envs is not None and max(n_envs, 1) != (count := self._engine.num_envs):
            raise ConfigError.single("Scene.build", "n_envs", n_envs, str(count), "Give num_envs to the engine.")
        self.built = _Scene(self._engine, self._added, **self._options)

    def __getattr__(self, name: str) -> Any:
        if name == "built":
            raise StaleError("the scene is not built: call scene.build()")
        return getattr(self.built, name)


__all__ = [
    "IMU", "AddedSensor", "BaseCameraOptions", "BaseCameraSensor", "BatchRendererCameraOptions",
    "BatchRendererCameraSensor", "Contact", "ContactForce", "ContactForceSensor", "ContactSensor", "DepthCamera",
    "DepthCameraData", "DepthCameraPattern", "DepthCameraSensor", "ElastomerDisplacement",
    "ElastomerDisplacementSensor", "ElastomerTaxel", "GridPattern", "IMUData", "IMUSensor",
    "KinematicTaxel", "KinematicTaxelData", "Lidar", "Proximity", "ProximityData", "ProximitySensor",
    "RasterizerCameraOptions", "RasterizerCameraSensor", "Raycaster", "RaycasterData", "RaycasterSensor",
    "RaytracerCameraOptions", "RaytracerCameraSensor", "Scene", "SphericalPattern", "SurfaceDistanceProbe",
    "TemperatureGrid", "TemperatureGridSensor", "TemperatureProperties",
]  # fmt: skip
