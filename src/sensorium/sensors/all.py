"""Every sensor of ours: importing this module defines, and thereby registers, all of them."""

from sensorium.sensors.builtin import BuiltinSensor, BuiltinSensorCfg, BuiltinSensorData
from sensorium.sensors.cameras.depth_camera import DepthCamera, DepthCameraCfg
from sensorium.sensors.cameras.ray_caster_camera import CameraData, RayCasterCamera, RayCasterCameraCfg
from sensorium.sensors.contact.collision_events import CollisionEvents, CollisionEventsCfg, CollisionEventsData
from sensorium.sensors.contact.contact import Contact, ContactCfg, ContactFlagData
from sensorium.sensors.contact.contact_force import ContactForce, ContactForceCfg, ContactForceData
from sensorium.sensors.contact.contact_sensor import ContactSensor, ContactSensorCfg, ContactSensorData
from sensorium.sensors.frames.body_state import BodyState, BodyStateCfg, BodyStateData
from sensorium.sensors.frames.frame_transformer import FrameTransformer, FrameTransformerCfg, FrameTransformerData
from sensorium.sensors.inertial.barometer import Barometer, BarometerCfg, BarometerData
from sensorium.sensors.inertial.gnss import Gnss, GnssCfg, GnssData, SkyZone
from sensorium.sensors.inertial.imu import Imu, ImuCfg, ImuData
from sensorium.sensors.inertial.magnetometer import MagneticDipole, Magnetometer, MagnetometerCfg, MagnetometerData
from sensorium.sensors.joints.force_torque import ForceTorque, ForceTorqueCfg, ForceTorqueData
from sensorium.sensors.joints.joint import JointSensor, JointSensorCfg, JointSensorData
from sensorium.sensors.joints.joint_torque import JointTorque, JointTorqueCfg, JointTorqueData
from sensorium.sensors.joints.joint_wrench import JointWrench, JointWrenchCfg, JointWrenchData
from sensorium.sensors.joints.motor_current import MotorCurrent, MotorCurrentCfg, MotorCurrentData
from sensorium.sensors.rays.lidar import Lidar, LidarCfg, LidarData
from sensorium.sensors.rays.radar import Radar, RadarCfg, RadarData
from sensorium.sensors.rays.ray_caster import RayCaster, RayCasterCfg, RayCasterData
from sensorium.sensors.rays.terrain_height import TerrainHeight, TerrainHeightCfg, TerrainHeightData
from sensorium.sensors.touch.contact_depth_probe import (
    ContactDepthProbe,
    ContactDepthProbeCfg,
    ContactDepthProbeData,
)
from sensorium.sensors.touch.contact_probe import (
    ContactProbe,
    ContactProbeCfg,
    ContactProbeData,
)
from sensorium.sensors.touch.elastomer_taxel import (
    ElastomerTaxel,
    ElastomerTaxelCfg,
    ElastomerTaxelData,
)
from sensorium.sensors.touch.kinematic_tactile import (
    KinematicTactileSensor,
    KinematicTactileSensorCfg,
    KinematicTactileSensorData,
)
from sensorium.sensors.touch.proximity_taxel import ProximityTaxel, ProximityTaxelCfg, ProximityTaxelData
from sensorium.sensors.touch.surface_distance_probe import (
    SurfaceDistanceProbe,
    SurfaceDistanceProbeCfg,
    SurfaceDistanceProbeData,
)
from sensorium.sensors.touch.temperature_grid import (
    LinkThermalCfg,
    TemperatureGrid,
    TemperatureGridCfg,
    TemperatureGridData,
)
from sensorium.sensors.touch.touch import Touch, TouchCfg, TouchData

__all__ = [
    "Barometer",
    "BarometerCfg",
    "BarometerData",
    "BodyState",
    "BodyStateCfg",
    "BodyStateData",
    "BuiltinSensor",
    "BuiltinSensorCfg",
    "BuiltinSensorData",
    "CameraData",
    "CollisionEvents",
    "CollisionEventsCfg",
    "CollisionEventsData",
    "Contact",
    "ContactCfg",
    "ContactDepthProbe",
    "ContactDepthProbeCfg",
    "ContactDepthProbeData",
    "ContactFlagData",
    "ContactForce",
    "ContactForceCfg",
    "ContactForceData",
    "ContactProbe",
    "ContactProbeCfg",
    "ContactProbeData",
    "ContactSensor",
    "ContactSensorCfg",
    "ContactSensorData",
    "DepthCamera",
    "DepthCameraCfg",
    "ElastomerTaxel",
    "ElastomerTaxelCfg",
    "ElastomerTaxelData",
    "ForceTorque",
    "ForceTorqueCfg",
    "ForceTorqueData",
    "FrameTransformer",
    "FrameTransformerCfg",
    "FrameTransformerData",
    "Gnss",
    "GnssCfg",
    "GnssData",
    "Imu",
    "ImuCfg",
    "ImuData",
    "JointSensor",
    "JointSensorCfg",
    "JointSensorData",
    "JointTorque",
    "JointTorqueCfg",
    "JointTorqueData",
    "JointWrench",
    "JointWrenchCfg",
    "JointWrenchData",
    "KinematicTactileSensor",
    "KinematicTactileSensorCfg",
    "KinematicTactileSensorData",
    "Lidar",
    "LidarCfg",
    "LidarData",
    "LinkThermalCfg",
    "MagneticDipole",
    "Magnetometer",
    "MagnetometerCfg",
    "MagnetometerData",
    "MotorCurrent",
    "MotorCurrentCfg",
    "MotorCurrentData",
    "ProximityTaxel",
    "ProximityTaxelCfg",
    "ProximityTaxelData",
    "Radar",
    "RadarCfg",
    "RadarData",
    "RayCaster",
    "RayCasterCamera",
    "RayCasterCameraCfg",
    "RayCasterCfg",
    "RayCasterData",
    "SkyZone",
    "SurfaceDistanceProbe",
    "SurfaceDistanceProbeCfg",
    "SurfaceDistanceProbeData",
    "TemperatureGrid",
    "TemperatureGridCfg",
    "TemperatureGridData",
    "TerrainHeight",
    "TerrainHeightCfg",
    "TerrainHeightData",
    "Touch",
    "TouchCfg",
    "TouchData",
]
