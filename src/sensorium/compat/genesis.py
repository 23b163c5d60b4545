"""The sensors and options of Genesis' document, with its names and defaults.

Options are configs: ``ContactSensor`` is the switch `sensorium.Contact`, and ``Contact`` is its config. Names and
defaults follow version 1.4; those of 0.4 that 1.4 renamed are also accepted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from sensorium.cfg import Float, NonNegative, ObjRef, OffsetCfg, Selectors, Vec3, VisualizerCfg, as_plain, name_in
from sensorium.cfg.sensor import SELECTORS
from sensorium.compat.aliases import AliasedCfg
from sensorium.engines.base import Engine
from sensorium.errors import ConfigError, SensoriumWarning, StaleError
from sensorium.geometry.transforms import compose
from sensorium.measurement.stages import ScaleError
from sensorium.patterns import GridPatternCfg, PinholeCameraPatternCfg, SphericalPatternCfg
from sensorium.scene.scene import Scene as _Scene
from sensorium.sensors.cameras.camera import Camera
from sensorium.sensors.cameras.camera_base_cfg import CameraOffsetCfg
from sensorium.sensors.cameras.camera_cfg import CameraCfg
from sensorium.sensors.cameras.camera_data import CameraData as _CameraData
from sensorium.sensors.cameras.camera_data import DataTypes
from sensorium.sensors.cameras.depth_camera import DepthCamera as DepthCameraSensor
from sensorium.sensors.cameras.depth_camera import DepthCameraCfg
from sensorium.sensors.cameras.lenses import PinholeLensCfg
from sensorium.sensors.cameras.rendered import RenderedSensor as BaseCameraSensor
from sensorium.sensors.cameras.rendered import RenderedSensorCfg
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
from sensorium.world.ray_scene import Geometry

DepthCameraPattern = PinholeCameraPatternCfg.from_lens
DataT = TypeVar("DataT")
VIEW: dict[str, Vec3] = {"pos": (3.5, 0.0, 1.5), "lookat": (0.0, 0.0, 0.0), "up": (0.0, 0.0, 1.0)}
"""View of a camera by default, in the frame of its link, m."""
GROUPS = {"track_link_idx": "targets", "filter_link_idx": "ignore"}
"""Options with positions of links among all links, and the fields that hold references to them."""
REFUSED = {
    **dict.fromkeys(
        ("dilate_coefficient", "shear_coefficient", "twist_coefficient", "dilate_max_delta", "shear_max_delta",
         "twist_max_delta"),
        "Give the gel of version 1.4 instead: lambda_d, lambda_s, dilate_scale, shear_scale.",
    ),
    **dict.fromkeys(
        ("spp", "denoise", "aperture", "focal_len", "focus_dist", "env_surface", "env_radius", "env_pos", "env_quat"),
        "Omit it, since one renderer without path tracing serves all cameras.",
    ),
    "lights": "Give the lights in the model, since they belong to the scene.",
    "contact_depth_weight": "Omit it, since heat flows through the area of contact.",
    "properties_dict": "Give properties={'link': TemperatureProperties(...)}, and default_properties for key -1.",
}  # fmt: skip
"""Options without a counterpart, and what to do."""


def GridPattern(
    resolution: float = 0.1, size: tuple[float, float] = (2.0, 2.0), direction: Vec3 = (0.0, 0.0, -1.0)
) -> GridPatternCfg:
    """Return a grid; y varies fastest, so `return_shape` is (x, y)."""
    return GridPatternCfg(size=size, resolution=resolution, direction=direction, ordering="yx")


def SphericalPattern(
    fov: tuple[Any, Any] = (360.0, 60.0),
    n_points: tuple[int, int] = (128, 64),
    angular_resolution: Sequence[float | None] = (None, None),
    angles: Sequence[Sequence[float] | None] = (None, None),
) -> SphericalPatternCfg:
    """Return rays over azimuths and elevations; `return_shape` is (azimuths, elevations).

    Args:
        fov: centred extent, or (low, high), of azimuth and elevation, deg.
        n_points: number of azimuths and elevations.
        angular_resolution: largest step of each, deg; it replaces that number.
        angles: azimuths and elevations, deg; they replace the others.
    """
    sizes = [each[1] - each[0] if isinstance(each, Sequence) else each for each in fov]
    counts = tuple(
        count if step is None else math.ceil(size / step) + (size < 360.0)
        for count, step, size in zip(n_points, angular_resolution, sizes, strict=True)
    )
    even = SphericalPatternCfg(fov=fov, n_points=counts)
    if all(each is None for each in angles):
        return even
    mixed = [each if own is None else own for own, each in zip(angles, even.grid_angles(), strict=True)]
    return SphericalPatternCfg(angles=tuple(tuple(map(float, each)) for each in mixed))


def TemperatureProperties(
    base_temperature: float = 21.0,
    conductivity: float = 50.0,
    density: float = 1000.0,
    specific_heat: float = 1.0,
    emissivity: float = 0.9,
) -> LinkThermalCfg:
    """Return the material of a link."""
    values = {"base_temperature": base_temperature, "conductivity": conductivity, "density": density}
    return LinkThermalCfg(**values, specific_heat=specific_heat, emissivity=emissivity)


# Readings -------------------------------------------------------------------------------------------------------------


class Unpacked:
    """Reading that unpacks as a tuple of its `parts`."""

    __slots__ = ()
    parts: ClassVar[tuple[str, ...]] = ()

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.parts)

    def __getitem__(self, index: int) -> Any:
        return getattr(self, self.parts[index])


class IMUData(Unpacked, _imu.ImuData):
    """One IMU sample."""

    __slots__ = ()
    parts = ("lin_acc", "ang_vel", "mag")

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
        """The hits `[env, height, width, 3]` in the frame of the camera, x forward, m; +inf for a miss."""
        if (right_down_forward := self.points_b) is None:
            return None
        right, down, forward = right_down_forward.unbind(-1)
        points = torch.stack([forward, -right, -down], dim=-1)
        return points.masked_fill(forward.isinf()[..., None], math.inf)

    @property
    def distances(self) -> Tensor:
        """Length of the ray of each pixel `[env, height, width]`, m."""
        return self.distance_to_camera.squeeze(-1)


class ProximityData(_probe.SurfaceDistanceProbeData):
    """One sample of the probes."""

    __slots__ = ()

    @property
    def nearest_points(self) -> Tensor:
        """`nearest_points_w`."""
        return self.nearest_points_w


class KinematicTaxelData(Unpacked, _tactile.KinematicTactileSensorData):
    """One sample of the taxels."""

    __slots__ = ()
    parts = ("force", "torque")


class ImageData(Unpacked, _CameraData):
    """One image."""

    __slots__ = ()
    parts = ("rgb",)


# Options --------------------------------------------------------------------------------------------------------------


def _link(index: Any) -> Any:
    return ObjRef(type="body", name=".*", index=index) if isinstance(index, int) else index


def _attached(title: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config from the options that all sensors have: the link, the offset and the drawing.

    Raises:
        ConfigError: an option has no counterpart.
    """
    title, data = f"{title}{name_in(data)}", dict(data)
    if name := next((name for name in REFUSED if name in data and as_plain(data[name]) not in (None, [], {})), None):
        raise ConfigError.single(title, name, data[name], "no such option", REFUSED[name])
    for name in (*REFUSED, "update_ground_truth_only"):
        data.pop(name, None)
    if data.pop("interpolate", False):
        text = f"{title}: `interpolate` has no effect, as in Genesis 1.4: a delayed sample is shown until the next."
        warnings.warn(text, SensoriumWarning, stacklevel=4)
    if {"entity_idx", "link_idx_local"} & {*data} or not {*SELECTORS} & {*data}:
        entity, index = data.pop("entity_idx", None), data.pop("link_idx_local", 0)
        is_static = entity is None or entity == -1
        data["body"] = "world" if is_static else ObjRef(type="body", name=".*", entity=entity, index=index)
    if {"pos_offset", "euler_offset"} & {*data}:
        pos, rot = data.pop("pos_offset", (0.0, 0.0, 0.0)), (1.0, 0.0, 0.0, 0.0)
        for axis, angle in enumerate(data.pop("euler_offset", ())):  # about the fixed axes x, then y, then z
            turn = [math.cos(math.radians(angle) / 2.0), 0.0, 0.0, 0.0]
            turn[1 + axis] = math.sin(math.radians(angle) / 2.0)
            rot = compose((0.0,) * 3, turn, (0.0,) * 3, rot)[1]
        data["offset"] = OffsetCfg(pos=pos, rot=rot)
    for name, field in GROUPS.items():
        if links := data.pop(name, ()):
            data[field] = tuple(map(_link, links))
    if "draw_debug" in data:
        data["debug_vis"] = data.pop("draw_debug")
    style = {name: data.pop(name) for name in [*data] if name.startswith("debug_") and name[6:] not in ("vis", "rays")}
    for name in {"debug_color", "debug_ray_hit_color", "debug_acc_color"} & {*style}:
        data["visualizer_cfg"] = VisualizerCfg(color=tuple(style[name][:3]))
    return data


class Options(AliasedCfg):
    """Common base of the options.

    Its fields are those of the config here, and these options of the document:

    Args:
        entity_idx: entity that carries the sensor: its position in the model or its name; None or -1 for the world.
        link_idx_local: position of the link in the entity.
        pos_offset: position of the sensor in the frame of the link, m.
        euler_offset: its orientation, deg: rotations about the fixed axes x, y and z, in this order.
        track_link_idx: positions of the links that the sensor interacts with, among all bodies of the model.
        filter_link_idx: positions of the links whose contacts are ignored.
        draw_debug: whether viewers draw the sensor, in `debug_color`. Other options `debug_...` have no effect.
    """

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**_attached(type(self).__name__, data))


class IMU(Options, _imu.ImuCfg):
    """Options of an IMU.

    `acc_cross_axis_coupling`, `gyro_...` and `mag_...`, a number, three or a 3x3 matrix, add a `ScaleError` stage.
    """

    data_class: ClassVar[type[Any] | None] = IMUData

    magnetic_field: Vec3 | None = (0.0, 0.0, 0.5)
    """Flux in world axes, any unit."""

    def __init__(self, /, **data: Any) -> None:
        stages = [*data.pop("stages", ())]
        for prefix, (field, _) in _imu.ImuCfg.prefixed_knobs.items():
            coupling = np.asarray(data.pop(f"{prefix}_cross_axis_coupling", 0.0), np.float64)
            if coupling.shape == (3, 3):
                scale, coupling = coupling.diagonal() - 1.0, (coupling / coupling.diagonal())[~np.eye(3, dtype=bool)]
                stages.append(ScaleError(fields=(field,), scale=scale.tolist(), cross_axis=coupling.tolist()))
            elif coupling.any():
                stages.append(ScaleError(fields=(field,), cross_axis=coupling.tolist()))
        super().__init__(**data, **({"stages": tuple(stages)} if stages else {}))


class Contact(Options, ContactCfg):
    """Options of a contact switch."""

    on_force: Force = Field(default=0.0, alias="threshold")
    """Force above which the switch is on, N."""


class ContactForce(Options, ContactForceCfg):
    """Options of a contact force; an infinite `max_force` is no limit."""

    def __init__(self, /, **data: Any) -> None:
        if "max_force" in data and np.isposinf(np.asarray(data["max_force"], np.float64)).all():
            data["max_force"] = None
        super().__init__(**data)


class Raycaster(Options, _rays.RayCasterCfg):
    """Options of a ray caster. It also hits its own link, and a miss reads `max_range`.

    Args:
        return_world_frame: whether `points` are `ray_hits_w` (in the world) instead of `points_b` (in the frame of the
            sensor).
        return_points: whether to compute them.
        data: fields of the config.
    """

    data_class: ClassVar[type[Any] | None] = RaycasterData
    keeps_layout: ClassVar[bool] = True

    min_distance: Distance = Field(default=0.0, alias="min_range")
    """Smallest measured distance, m; nearer hits are misses."""
    max_distance: Float = Field(default=20.0, alias="max_range")
    """Largest measured distance, m; farther hits are misses."""
    geometry: Geometry = "collision"
    """Candidate shapes."""
    exclude_parent_body: bool = False
    """Whether to exclude the shapes of the link that carries the sensor."""

    def __init__(self, /, **data: Any) -> None:
        points = "ray_hits_w" if data.pop("return_world_frame", False) else "points_b"
        data.setdefault("fields", ("distances", points) if data.pop("return_points", True) else ("distances",))
        super().__init__(**_with_miss(data))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; a miss still reads the range, if it did before."""
        return super().replace(**_with_miss(changes, self))


Lidar = Raycaster


def _with_miss(data: dict[str, Any], before: Raycaster | DepthCamera | None = None) -> dict[str, Any]:
    """Return the data of a config whose misses read the range, unless the value of a miss is given."""
    follows = before is None or before.no_hit_value == before.max_distance
    if data.get("no_hit_value") is None and follows:
        most = data.get("max_range", data.get("max_distance", 20.0 if before is None else before.max_distance))
        data = {**data, "no_hit_value": most}
    return data


class DepthCamera(Options, DepthCameraCfg):
    """Options of a depth camera that looks along x, whose image holds the lengths of rays; a miss reads `max_range`.

    Args:
        return_points: whether to compute `points`.
        data: fields of the config.
    """

    data_class: ClassVar[type[Any] | None] = DepthCameraData

    min_distance: Distance = Field(default=0.0, alias="min_range")
    """Smallest measured distance, m; nearer hits are misses."""
    max_distance: Float = Field(default=20.0, alias="max_range")
    """Largest measured distance, m; farther hits are misses."""
    ray_length: bool = True
    """Whether `read_image` returns the length of the ray instead of z-depth."""
    geometry: Geometry = "collision"
    """Candidate shapes."""
    exclude_parent_body: bool = False
    """Whether to exclude the shapes of the link that carries the sensor."""

    def __init__(self, /, **data: Any) -> None:
        if data.pop("return_world_frame", False):
            fix = "Use Raycaster(pattern=DepthCameraPattern(...)), whose points can be in the world."
            raise ConfigError.single("DepthCamera", "return_world_frame", True, "False", fix)
        wanted = ("distance_to_camera", *(("points_b",) if data.pop("return_points", True) else ()))
        if data.get("ray_length", True):
            data.setdefault("data_types", wanted)
        super().__init__(**_with_miss(data))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; a miss still reads the range, if it did before."""
        return super().replace(**_with_miss(changes, self))


class SurfaceDistanceProbe(Options, _probe.SurfaceDistanceProbeCfg):
    """Options of probes of the nearest surface; a miss shows the probe's reach and its own position."""

    data_class: ClassVar[type[Any] | None] = ProximityData

    targets: Selectors = Field(default=None, alias="track_link")
    """Links whose surfaces count; None means all."""
    misses_at_radius: bool = True
    """Whether a miss shows the reach and the probe's own position."""


class Proximity(SurfaceDistanceProbe):
    """Options of probes of the nearest surface, under the names of version 0.4."""

    probe_radius: _probe.Reach = Field(default=10.0, alias="max_range")
    """Largest distance that a probe measures, m."""


class ElastomerDisplacement(Options, ElastomerTaxelCfg):
    """Options of taxels in an elastomer."""

    targets: Selectors = Field(default=None, alias="track_link")
    """Links that drag the skin."""


ElastomerTaxel = ElastomerDisplacement


class KinematicTaxel(Options, _tactile.KinematicTactileSensorCfg):
    """Options of taxels that sense force and torque along the surface's normal; shear is along the link's motion."""

    data_class: ClassVar[type[Any] | None] = KinematicTaxelData

    targets: Selectors = Field(default=None, alias="track_link")
    """Sensed links; None means all."""
    surface_normals: bool = True
    """Whether forces follow the touched surface's normal."""
    shear_along_motion: bool = True
    """Whether shear and twist act along the motion of the link."""


class TemperatureGrid(Options, TemperatureGridCfg):
    """Options of a temperature grid."""

    default_properties: LinkThermalCfg = TemperatureProperties()
    """Material of links that match no pattern of `properties`."""
    convection: Annotated[NonNegative, BeforeValidator(lambda value: 1.0 if value is None else value)] = Field(
        default=1.0, alias="convection_coefficient"
    )
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

    data_class: ClassVar[type[Any] | None] = ImageData

    data_types: DataTypes = ("rgb",)
    """Computed data types."""

    def __init__(self, /, **data: Any) -> None:
        name = type(self).__name__
        if data.pop("model", "pinhole") != "pinhole":
            raise ConfigError.single(name, "model", "another lens", "'pinhole'", "Give a fisheye lens as `lens`.")
        data.pop("use_rasterizer", None)
        if "clipping_range" not in data:
            data["clipping_range"] = data.pop("near", 0.01), data.pop("far", 100.0)
        if "lens" not in data:
            data["lens"] = PinholeLensCfg(fovy=data.pop("fov", 60.0))
        super().__init__(**_viewed(name, data))


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
        return getattr(self._scene[self.name], name)


class Scene:
    """Scene to which sensors are added before it is built; further attributes are those of `sensorium.Scene`.

    Args:
        engine: the engine.
        options: arguments of `sensorium.Scene`.
    """

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._engine, self._options = engine, options
        self._added: dict[str, Any] = {}
        self._built: _Scene | None = None

    def add_sensor(self, options: Any) -> AddedSensor:
        """Add a sensor and return it; it can be read once the scene is built."""
        count = sum(each.kind() == options.kind() for each in self._added.values())
        label = options.name or options.kind() + (f"_{count}" if count else "")
        self._added[label] = named = options.replace(name=label)
        if self._built is not None:
            self._built.add(named)
        return AddedSensor(self, label)

    def build(self, n_envs: int | None = None) -> None:
        """Build the scene.

        Args:
            n_envs: number of environments of the engine, or 0 for one.

        Raises:
            ConfigError: the engine has another number of environments.
        """
        if n_envs is not None and max(n_envs, 1) != self._engine.num_envs:
            fix = "Give num_envs to the engine."
            raise ConfigError.single("Scene.build", "n_envs", n_envs, f"{self._engine.num_envs}", fix)
        self._built = _Scene(self._engine, [*self._added.values()], **self._options)

    def __getitem__(self, name: str) -> Any:
        return self.built[name]

    @property
    def built(self) -> _Scene:
        """The scene.

        Raises:
            StaleError: it is not built yet.
        """
        if self._built is None:
            raise StaleError("the scene has no sensors yet: call scene.build()")
        return self._built

    def __getattr__(self, name: str) -> Any:
        return getattr(self.built, name)


__all__ = [
    "IMU", "AddedSensor", "BaseCameraOptions", "BaseCameraSensor", "BatchRendererCameraOptions", "BatchRendererCameraSensor", "Contact", "ContactForce", "ContactForceSensor", "ContactSensor", "DepthCamera", "DepthCameraData", "DepthCameraPattern", "DepthCameraSensor", "ElastomerDisplacement", "ElastomerDisplacementSensor", "ElastomerTaxel", "GridPattern", "IMUData", "IMUSensor", "ImageData", "KinematicTaxel", "KinematicTaxelData", "Lidar", "Options", "Proximity", "ProximityData", "ProximitySensor", "RasterizerCameraOptions", "RasterizerCameraSensor", "Raycaster", "RaycasterData", "RaycasterSensor", "RaytracerCameraOptions", "RaytracerCameraSensor", "Scene", "SphericalPattern", "SurfaceDistanceProbe", "TemperatureGrid", "TemperatureGridSensor", "TemperatureProperties",
]  # fmt: skip
