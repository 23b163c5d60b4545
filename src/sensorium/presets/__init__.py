"""Device presets: the imperfections of real sensors, as plain data with their sources.

>>> import sensorium as sn
>>> cfg = sn.preset("bmi088", site="imu")
>>> cfg.rate_hz
400.0
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from sensorium.errors import MissingDependencyError
from sensorium.presets.info import PresetInfo, Presets, read_preset

if TYPE_CHECKING:
    from sensorium.cameras.camera_cfg import CameraCfg
    from sensorium.cameras.depth_camera import DepthCameraCfg
    from sensorium.measurement.sensor_cfg import SensorCfg, SimpleSensorCfg
    from sensorium.sensors.inertial.barometer import BarometerCfg
    from sensorium.sensors.inertial.gnss import GnssCfg
    from sensorium.sensors.inertial.imu import ImuCfg
    from sensorium.sensors.inertial.magnetometer import MagnetometerCfg
    from sensorium.sensors.joints.force_torque import ForceTorqueCfg
    from sensorium.sensors.joints.joint import JointSensorCfg
    from sensorium.sensors.rays.lidar import LidarCfg

__all__ = [
    "BarometerName",
    "CameraName",
    "DepthCameraName",
    "ForceTorqueName",
    "GnssName",
    "ImuName",
    "JointName",
    "LidarName",
    "MagnetometerName",
    "PresetInfo",
    "Presets",
    "preset",
    "preset_fields",
    "presets",
]

_ALL = Presets()
ImuName = Literal[
    "adis16448",
    "bmi055",
    "bmi088",
    "bmi160",
    "bmi270",
    "d455",
    "dji_a3",
    "dji_n3",
    "gx4",
    "icm20948",
    "icm42688p",
    "imx5",
    "mti1",
    "mti100",
    "mti300",
    "mv5_ar",
]
"""Names of IMU presets."""
MagnetometerName = Literal["px4_mag"]
"""Names of magnetometer presets."""
BarometerName = Literal["bmp388", "mti300_baro", "px4_baro"]
"""Names of barometer presets."""
DepthCameraName = Literal["azure_kinect", "d435", "kinect_v1"]
"""Names of depth camera presets."""
CameraName = Literal["d435_rgbd", "d455_rgbd", "zed2", "oak_d", "pi_hq"]
"""Names of camera presets."""
LidarName = Literal["mid360", "os1_128", "os1_64", "rplidar_a1m8", "rplidar_a2m8", "unitree_l1", "vlp16", "xt32"]
"""Names of lidar presets."""
GnssName = Literal["f9p_rtk", "max_m8q", "neo_m8n"]
"""Names of GNSS presets."""
JointName = Literal["as5047d"]
"""Names of encoder presets."""
ForceTorqueName = Literal["ati_mini45"]
"""Names of force/torque presets."""


if TYPE_CHECKING:  # the arguments of each preset are the fields of its config
    P = ParamSpec("P")
    CfgT = TypeVar("CfgT")
    NameT = TypeVar("NameT")

    def _fields_of(
        cfg: Callable[P, CfgT],
    ) -> Callable[[Callable[[NameT], CfgT]], Callable[Concatenate[NameT, P], CfgT]]: ...


def presets() -> Presets:
    """Return all presets by name."""
    return _ALL


def _info(name: str | Path) -> PresetInfo:
    is_file = isinstance(name, Path) or name.endswith(".toml")
    return read_preset(Path(name)) if is_file else _ALL[str(name)]


def preset_fields(name: str | Path) -> dict[str, Any]:
    """Return a copy of a preset's config fields as plain data (SI, JSON-serialisable); see `presets()[name].kind`.

    Args:
        name: name of a preset, or path of a preset file.

    Raises:
        UnknownNameError: no preset has that name; the message lists the nearest names.
        ModelError: the file is missing or is not a preset.
    """
    return copy.deepcopy(dict(_info(name).fields))


if TYPE_CHECKING:

    @overload
    @_fields_of(ImuCfg)
    def preset(name: ImuName, /) -> ImuCfg: ...
    @overload
    @_fields_of(MagnetometerCfg)
    def preset(name: MagnetometerName, /) -> MagnetometerCfg: ...
    @overload
    @_fields_of(BarometerCfg)
    def preset(name: BarometerName, /) -> BarometerCfg: ...
    @overload
    @_fields_of(LidarCfg)
    def preset(name: LidarName, /) -> LidarCfg: ...
    @overload
    @_fields_of(GnssCfg)
    def preset(name: GnssName, /) -> GnssCfg: ...
    @overload
    @_fields_of(JointSensorCfg)
    def preset(name: JointName, /) -> JointSensorCfg: ...
    @overload
    @_fields_of(ForceTorqueCfg)
    def preset(name: ForceTorqueName, /) -> ForceTorqueCfg: ...
    @overload
    @_fields_of(DepthCameraCfg)
    def preset(name: DepthCameraName, /) -> DepthCameraCfg: ...
    @overload
    @_fields_of(CameraCfg)
    def preset(name: CameraName, /) -> CameraCfg: ...


def preset(name: str | Path, /, **fields: Any) -> SensorCfg[Any]:
    """Build the config of a device: the preset's fields, overridden by the given fields.

    - Given knobs replace single knobs: ``gyro_noise_density=0`` keeps the accelerometer's noise.
    - ``fields=("lin_acc_b",)``, and ``data_types=("rgb",)`` of a camera, omit the knobs and the stages of other fields.
    - ``update_period`` replaces the preset's rate, and noise densities keep their meaning.
    - ``stages`` replaces all of the preset's stages; to add one, start from ``preset_fields(name)["stages"]``.

    Args:
        name: name of a preset, or path of a preset file (text that ends with ``.toml``, or a `Path`).
        fields: fields of the config; at least the mount, e.g. ``site="imu"``.

    Returns:
        The config of the preset's kind, e.g. an `ImuCfg`.

    Raises:
        UnknownNameError: no preset has that name; the message lists the nearest names.
        ModelError: the file is missing or is not a preset.
        ConfigError: the given fields are invalid.
        MissingDependencyError: a package is missing, as in an environment for clients only.
    """
    try:
        import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of_core("sensorium.preset", error) or error from None
    from sensorium.registry import cfg_for_kind

    cfg_class: type[SimpleSensorCfg[Any]] = cfg_for_kind((info := _info(name)).kind)
    base = copy.deepcopy(dict(info.fields))
    if "update_period" in fields:
        base.pop("rate_hz", None)
    for option in ("fields", "data_types"):
        if isinstance(wanted := fields.get(option), list | tuple):
            _select(base, _sources(map(str, wanted)))
    given = dict(fields)
    _yield_knobs(base, given, cfg_class.knob_prefixes())
    return cfg_class(**{**base, **given})


def _sources(wanted: Iterable[str]) -> set[str]:
    """Return the wanted fields, and those from which a camera derives them."""
    from sensorium.cameras.camera_data import ALIASES, DISTANCES

    found = {ALIASES.get(field, field) for field in wanted}
    colours = {"linear_rgb"} if found & {"rgb", "rgba"} else set()
    distances = {*DISTANCES} if found & {*DISTANCES, "points_b"} else set()
    return found | colours | distances


def _select(base: dict[str, Any], wanted: set[str]) -> None:
    """Remove the knobs and stages of a preset that refer to data fields which are not wanted."""
    from sensorium.cfg import COLUMN_KNOBS

    for knob, amounts in list(base.items()):
        if knob in COLUMN_KNOBS and isinstance(amounts, dict):
            kept = {field: amount for field, amount in amounts.items() if field in wanted}
            base.pop(knob)
            base |= {knob: kept} if kept else {}
    stages = []
    for stage in base.get("stages", ()):
        kept_fields = [field for field in stage["fields"] if field in wanted]
        if kept_fields:
            stages.append({**stage, "fields": kept_fields})
    base["stages"] = stages


def _yield_knobs(base: dict[str, Any], given: dict[str, Any], prefixes: Mapping[str, str]) -> None:
    """Let the given knobs override the preset field by field; ``noise`` and ``noise_density`` count as one knob."""
    from sensorium.cfg import COLUMN_KNOBS

    for written in list(given):
        head, _, tail = written.partition("_")
        prefix, knob = (head, tail) if head in prefixes else ("", written)
        if knob not in COLUMN_KNOBS:
            continue
        plain = knob.removesuffix("_density")
        value = given[written]
        for variant in (plain, f"{plain}_density"):
            amounts = base.get(variant)
            if amounts is None:
                continue
            if not isinstance(amounts, Mapping):  # one amount for all fields
                del base[variant]
                continue
            claimed = set(amounts)
            if prefix:
                claimed = {prefixes[prefix]}
            elif isinstance(value, Mapping) and not (
                len(value) == 1 and value.keys() <= {"uniform", "normal", "choice"}
            ):
                claimed = {prefixes.get(field, field) for field in value}
            rest = {field: amount for field, amount in amounts.items() if field not in claimed}
            if rest and variant == written:
                given[written] = {**rest, **value}
            elif rest:
                base[variant] = rest
            else:
                del base[variant]
