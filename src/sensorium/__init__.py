"""Senses for simulated robots: what their sensors would report, true and measured, for one environment or thousands."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorium.cfg import GilbertElliott as GilbertElliott
    from sensorium.cfg import MountedSensorCfg as MountedSensorCfg
    from sensorium.cfg import ObjRef as ObjRef
    from sensorium.cfg import OffsetCfg as OffsetCfg
    from sensorium.cfg import SensorCfg as SensorCfg
    from sensorium.cfg import SimpleSensorCfg as SimpleSensorCfg
    from sensorium.cfg import StageCfg as StageCfg
    from sensorium.client import Client as Client
    from sensorium.client import ServerError as ServerError
    from sensorium.client import connect as connect
    from sensorium.client.blueprints import Blueprint as Blueprint
    from sensorium.client.blueprints import BlueprintLibrary as BlueprintLibrary
    from sensorium.client.client_sensor import ClientEvent as ClientEvent
    from sensorium.client.client_sensor import ClientSensor as ClientSensor
    from sensorium.client.frame_bundle import FrameBundle as FrameBundle
    from sensorium.client.frame_sync import FrameSync as FrameSync
    from sensorium.client.lane_invasion import LaneInvasion as LaneInvasion
    from sensorium.client.lane_invasion import LaneInvasionEvent as LaneInvasionEvent
    from sensorium.client.lane_invasion import LaneMarking as LaneMarking
    from sensorium.client.sensors import RemoteSensor as RemoteSensor
    from sensorium.compute import Rows as Rows
    from sensorium.compute import recorded as recorded
    from sensorium.engines.base import Engine as Engine
    from sensorium.engines.mujoco.engine import MujocoEngine as MujocoEngine
    from sensorium.engines.mujoco_warp.engine import MujocoWarpEngine as MujocoWarpEngine
    from sensorium.engines.tensor import TensorEngine as TensorEngine
    from sensorium.errors import ArgumentError as ArgumentError
    from sensorium.errors import ConfigError as ConfigError
    from sensorium.errors import DeviceError as DeviceError
    from sensorium.errors import DuplicateNameError as DuplicateNameError
    from sensorium.errors import MissingDependencyError as MissingDependencyError
    from sensorium.errors import ModelError as ModelError
    from sensorium.errors import NonFiniteStateWarning as NonFiniteStateWarning
    from sensorium.errors import NotTrackedError as NotTrackedError
    from sensorium.errors import RegistrationError as RegistrationError
    from sensorium.errors import ScheduleError as ScheduleError
    from sensorium.errors import SelectionError as SelectionError
    from sensorium.errors import SensoriumError as SensoriumError
    from sensorium.errors import SensoriumWarning as SensoriumWarning
    from sensorium.errors import StaleError as StaleError
    from sensorium.errors import StreamError as StreamError
    from sensorium.errors import UnknownNameError as UnknownNameError
    from sensorium.errors import UnsupportedError as UnsupportedError
    from sensorium.errors import WireError as WireError
    from sensorium.geometry.samples import SurfaceSamples as SurfaceSamples
    from sensorium.geometry.samples import body_samples as body_samples
    from sensorium.geometry.samples import surface_samples as surface_samples
    from sensorium.geometry.shapes import HeightField as HeightField
    from sensorium.geometry.shapes import Mesh as Mesh
    from sensorium.geometry.shapes import Shape as Shape
    from sensorium.local import local_client as local_client
    from sensorium.measurement.record import Record as Record
    from sensorium.measurement.record import Timeline as Timeline
    from sensorium.measurement.stages import ClockError as ClockError
    from sensorium.measurement.stages import Creep as Creep
    from sensorium.measurement.stages import Crosstalk as Crosstalk
    from sensorium.measurement.stages import DeadTaxels as DeadTaxels
    from sensorium.measurement.stages import Debounce as Debounce
    from sensorium.measurement.stages import Dropout as Dropout
    from sensorium.measurement.stages import Flicker as Flicker
    from sensorium.measurement.stages import GaussMarkov as GaussMarkov
    from sensorium.measurement.stages import GroupDelay as GroupDelay
    from sensorium.measurement.stages import GSensitivity as GSensitivity
    from sensorium.measurement.stages import KinectDepth as KinectDepth
    from sensorium.measurement.stages import LowPass as LowPass
    from sensorium.measurement.stages import Play as Play
    from sensorium.measurement.stages import RowScan as RowScan
    from sensorium.measurement.stages import Saturation as Saturation
    from sensorium.measurement.stages import SaturationFault as SaturationFault
    from sensorium.measurement.stages import ScaleError as ScaleError
    from sensorium.measurement.stages import SpikeFault as SpikeFault
    from sensorium.measurement.stages import StageKey as StageKey
    from sensorium.measurement.stages import StereoDepth as StereoDepth
    from sensorium.measurement.stages import StuckFault as StuckFault
    from sensorium.measurement.stages import StuckTaxels as StuckTaxels
    from sensorium.measurement.stages import TaxelCrosstalk as TaxelCrosstalk
    from sensorium.measurement.stages import TaxelGain as TaxelGain
    from sensorium.measurement.stages import TemperatureDrift as TemperatureDrift
    from sensorium.measurement.stages import TofDepth as TofDepth
    from sensorium.measurement.stages import Viscoelastic as Viscoelastic
    from sensorium.measurement.stages import WindowAverage as WindowAverage
    from sensorium.patterns import BpearlPatternCfg as BpearlPatternCfg
    from sensorium.patterns import GridPatternCfg as GridPatternCfg
    from sensorium.patterns import LidarPatternCfg as LidarPatternCfg
    from sensorium.patterns import PatternBaseCfg as PatternBaseCfg
    from sensorium.patterns import PinholeCameraPatternCfg as PinholeCameraPatternCfg
    from sensorium.patterns import Rays as Rays
    from sensorium.patterns import Ring as Ring
    from sensorium.patterns import RingPatternCfg as RingPatternCfg
    from sensorium.patterns import RisleyPatternCfg as RisleyPatternCfg
    from sensorium.patterns import RotatingMirrorPatternCfg as RotatingMirrorPatternCfg
    from sensorium.patterns import ScanPatternCfg as ScanPatternCfg
    from sensorium.patterns import ScanTable as ScanTable
    from sensorium.patterns import SphericalPatternCfg as SphericalPatternCfg
    from sensorium.patterns import SpinningPatternCfg as SpinningPatternCfg
    from sensorium.patterns import TablePatternCfg as TablePatternCfg
    from sensorium.patterns.taxels import TaxelLayout as TaxelLayout
    from sensorium.patterns.taxels import taxel_cylinder as taxel_cylinder
    from sensorium.patterns.taxels import taxel_dome as taxel_dome
    from sensorium.patterns.taxels import taxel_grid as taxel_grid
    from sensorium.patterns.taxels import taxel_list as taxel_list
    from sensorium.patterns.taxels import taxel_patch as taxel_patch
    from sensorium.patterns.taxels import taxels_on as taxels_on
    from sensorium.presets import preset as preset
    from sensorium.random import Choice as Choice
    from sensorium.random import Normal as Normal
    from sensorium.random import Uniform as Uniform
    from sensorium.readings import DebugShape as DebugShape
    from sensorium.readings import Reading as Reading
    from sensorium.readings import SceneDescription as SceneDescription
    from sensorium.scene import Observer as Observer
    from sensorium.scene import Scene as Scene
    from sensorium.scene import prepare as prepare
    from sensorium.scene.news import News as News
    from sensorium.scene.watch import Watch as Watch
    from sensorium.sensors.builtin import BuiltinSensor as BuiltinSensor
    from sensorium.sensors.builtin import BuiltinSensorCfg as BuiltinSensorCfg
    from sensorium.sensors.builtin import BuiltinSensorData as BuiltinSensorData
    from sensorium.sensors.cameras.depth_camera import DepthCamera as DepthCamera
    from sensorium.sensors.cameras.depth_camera import DepthCameraCfg as DepthCameraCfg
    from sensorium.sensors.cameras.ray_caster_camera import CameraData as CameraData
    from sensorium.sensors.cameras.ray_caster_camera import RayCasterCamera as RayCasterCamera
    from sensorium.sensors.cameras.ray_caster_camera import RayCasterCameraCfg as RayCasterCameraCfg
    from sensorium.sensors.contact.collision_events import CollisionEvents as CollisionEvents
    from sensorium.sensors.contact.collision_events import CollisionEventsCfg as CollisionEventsCfg
    from sensorium.sensors.contact.collision_events import CollisionEventsData as CollisionEventsData
    from sensorium.sensors.contact.contact import Contact as Contact
    from sensorium.sensors.contact.contact import ContactCfg as ContactCfg
    from sensorium.sensors.contact.contact import ContactFlagData as ContactFlagData
    from sensorium.sensors.contact.contact_force import ContactForce as ContactForce
    from sensorium.sensors.contact.contact_force import ContactForceCfg as ContactForceCfg
    from sensorium.sensors.contact.contact_force import ContactForceData as ContactForceData
    from sensorium.sensors.contact.contact_sensor import ContactSensor as ContactSensor
    from sensorium.sensors.contact.contact_sensor import ContactSensorCfg as ContactSensorCfg
    from sensorium.sensors.contact.contact_sensor import ContactSensorData as ContactSensorData
    from sensorium.sensors.core.base import Sensor as Sensor
    from sensorium.sensors.core.base import SimpleSensor as SimpleSensor
    from sensorium.sensors.frames.body_state import BodyState as BodyState
    from sensorium.sensors.frames.body_state import BodyStateCfg as BodyStateCfg
    from sensorium.sensors.frames.body_state import BodyStateData as BodyStateData
    from sensorium.sensors.frames.frame_transformer import FrameTransformer as FrameTransformer
    from sensorium.sensors.frames.frame_transformer import FrameTransformerCfg as FrameTransformerCfg
    from sensorium.sensors.frames.frame_transformer import FrameTransformerData as FrameTransformerData
    from sensorium.sensors.inertial.barometer import Barometer as Barometer
    from sensorium.sensors.inertial.barometer import BarometerCfg as BarometerCfg
    from sensorium.sensors.inertial.barometer import BarometerData as BarometerData
    from sensorium.sensors.inertial.gnss import Gnss as Gnss
    from sensorium.sensors.inertial.gnss import GnssCfg as GnssCfg
    from sensorium.sensors.inertial.gnss import GnssData as GnssData
    from sensorium.sensors.inertial.gnss import SkyZone as SkyZone
    from sensorium.sensors.inertial.imu import Imu as Imu
    from sensorium.sensors.inertial.imu import ImuCfg as ImuCfg
    from sensorium.sensors.inertial.imu import ImuData as ImuData
    from sensorium.sensors.inertial.magnetometer import MagneticDipole as MagneticDipole
    from sensorium.sensors.inertial.magnetometer import Magnetometer as Magnetometer
    from sensorium.sensors.inertial.magnetometer import MagnetometerCfg as MagnetometerCfg
    from sensorium.sensors.inertial.magnetometer import MagnetometerData as MagnetometerData
    from sensorium.sensors.joints.force_torque import ForceTorque as ForceTorque
    from sensorium.sensors.joints.force_torque import ForceTorqueCfg as ForceTorqueCfg
    from sensorium.sensors.joints.force_torque import ForceTorqueData as ForceTorqueData
    from sensorium.sensors.joints.joint import JointSensor as JointSensor
    from sensorium.sensors.joints.joint import JointSensorCfg as JointSensorCfg
    from sensorium.sensors.joints.joint import JointSensorData as JointSensorData
    from sensorium.sensors.joints.joint_torque import JointTorque as JointTorque
    from sensorium.sensors.joints.joint_torque import JointTorqueCfg as JointTorqueCfg
    from sensorium.sensors.joints.joint_torque import JointTorqueData as JointTorqueData
    from sensorium.sensors.joints.joint_wrench import JointWrench as JointWrench
    from sensorium.sensors.joints.joint_wrench import JointWrenchCfg as JointWrenchCfg
    from sensorium.sensors.joints.joint_wrench import JointWrenchData as JointWrenchData
    from sensorium.sensors.joints.motor_current import MotorCurrent as MotorCurrent
    from sensorium.sensors.joints.motor_current import MotorCurrentCfg as MotorCurrentCfg
    from sensorium.sensors.joints.motor_current import MotorCurrentData as MotorCurrentData
    from sensorium.sensors.rays.lidar import Lidar as Lidar
    from sensorium.sensors.rays.lidar import LidarCfg as LidarCfg
    from sensorium.sensors.rays.lidar import LidarData as LidarData
    from sensorium.sensors.rays.radar import Radar as Radar
    from sensorium.sensors.rays.radar import RadarCfg as RadarCfg
    from sensorium.sensors.rays.radar import RadarData as RadarData
    from sensorium.sensors.rays.ray_caster import RayCaster as RayCaster
    from sensorium.sensors.rays.ray_caster import RayCasterCfg as RayCasterCfg
    from sensorium.sensors.rays.ray_caster import RayCasterData as RayCasterData
    from sensorium.sensors.rays.terrain_height import TerrainHeight as TerrainHeight
    from sensorium.sensors.rays.terrain_height import TerrainHeightCfg as TerrainHeightCfg
    from sensorium.sensors.rays.terrain_height import TerrainHeightData as TerrainHeightData
    from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbe as ContactDepthProbe
    from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbeCfg as ContactDepthProbeCfg
    from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbeData as ContactDepthProbeData
    from sensorium.sensors.touch.contact_probe import ContactProbe as ContactProbe
    from sensorium.sensors.touch.contact_probe import ContactProbeCfg as ContactProbeCfg
    from sensorium.sensors.touch.contact_probe import ContactProbeData as ContactProbeData
    from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxel as ElastomerTaxel
    from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxelCfg as ElastomerTaxelCfg
    from sensorium.sensors.touch.elastomer_taxel import ElastomerTaxelData as ElastomerTaxelData
    from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensor as KinematicTactileSensor
    from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensorCfg as KinematicTactileSensorCfg
    from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensorData as KinematicTactileSensorData
    from sensorium.sensors.touch.pads import PadReading as PadReading
    from sensorium.sensors.touch.pads import Pads as Pads
    from sensorium.sensors.touch.pads import pad_blocks as pad_blocks
    from sensorium.sensors.touch.proximity_taxel import ProximityTaxel as ProximityTaxel
    from sensorium.sensors.touch.proximity_taxel import ProximityTaxelCfg as ProximityTaxelCfg
    from sensorium.sensors.touch.proximity_taxel import ProximityTaxelData as ProximityTaxelData
    from sensorium.sensors.touch.surface_distance_probe import SurfaceDistanceProbe as SurfaceDistanceProbe
    from sensorium.sensors.touch.surface_distance_probe import SurfaceDistanceProbeCfg as SurfaceDistanceProbeCfg
    from sensorium.sensors.touch.surface_distance_probe import SurfaceDistanceProbeData as SurfaceDistanceProbeData
    from sensorium.sensors.touch.temperature_grid import LinkThermalCfg as LinkThermalCfg
    from sensorium.sensors.touch.temperature_grid import TemperatureGrid as TemperatureGrid
    from sensorium.sensors.touch.temperature_grid import TemperatureGridCfg as TemperatureGridCfg
    from sensorium.sensors.touch.temperature_grid import TemperatureGridData as TemperatureGridData
    from sensorium.sensors.touch.touch import Touch as Touch
    from sensorium.sensors.touch.touch import TouchCfg as TouchCfg
    from sensorium.sensors.touch.touch import TouchData as TouchData
    from sensorium.spec import BODY_ACCELERATION as BODY_ACCELERATION
    from sensorium.spec import BODY_POSE as BODY_POSE
    from sensorium.spec import BODY_VELOCITY as BODY_VELOCITY
    from sensorium.spec import CONTACT_REPORT as CONTACT_REPORT
    from sensorium.spec import GRAVITY as GRAVITY
    from sensorium.spec import JOINT_EFFORT as JOINT_EFFORT
    from sensorium.spec import JOINT_STATE as JOINT_STATE
    from sensorium.spec import JOINT_TORQUE as JOINT_TORQUE
    from sensorium.spec import JOINT_WRENCH as JOINT_WRENCH
    from sensorium.spec import MAGNETIC as MAGNETIC
    from sensorium.spec import MODEL_ELEMENTS as MODEL_ELEMENTS
    from sensorium.spec import NATIVE_SENSOR as NATIVE_SENSOR
    from sensorium.spec import SHAPES as SHAPES
    from sensorium.spec import Field as Field
    from sensorium.spec import FieldSpec as FieldSpec
    from sensorium.spec import Requirement as Requirement
    from sensorium.stream.collision import Collision as Collision
    from sensorium.stream.collision import CollisionEvent as CollisionEvent
    from sensorium.stream.collision import reserve_contact as reserve_contact
    from sensorium.stream.safe_distance import SafeDistance as SafeDistance
    from sensorium.stream.safe_distance import SafeDistanceEvent as SafeDistanceEvent
    from sensorium.stream.security import KeyPair as KeyPair
    from sensorium.stream.server import Server as Server
    from sensorium.stream.server import serve as serve
    from sensorium.stream.streamed import StreamedSensor as StreamedSensor
    from sensorium.wire.attributes import ActorDescription as ActorDescription
    from sensorium.wire.attributes import Attribute as Attribute
    from sensorium.wire.attributes import SensorDefinition as SensorDefinition
    from sensorium.wire.attributes import make_generic_sensor_definition as make_generic_sensor_definition
    from sensorium.wire.data import ArrayData as ArrayData
    from sensorium.wire.data import LostEvents as LostEvents
    from sensorium.wire.data import SensorData as SensorData
    from sensorium.wire.field_data import FieldData as FieldData
    from sensorium.wire.pose import Pose as Pose
    from sensorium.wire.raw_data import RawData as RawData
    from sensorium.wire.serializers import Serializer as Serializer
    from sensorium.world.contacts import ContactMatch as ContactMatch
    from sensorium.world.ray_cast import RayCast as RayCast
    from sensorium.world.ray_scene import Targets as Targets

    __version__: str

_MODULES = {
    "ActorDescription": "sensorium.wire.attributes",
    "ArgumentError": "sensorium.errors",
    "ArrayData": "sensorium.wire.data",
    "Attribute": "sensorium.wire.attributes",
    "BODY_ACCELERATION": "sensorium.spec",
    "BODY_POSE": "sensorium.spec",
    "BODY_VELOCITY": "sensorium.spec",
    "Barometer": "sensorium.sensors.inertial.barometer",
    "BarometerCfg": "sensorium.sensors.inertial.barometer",
    "BarometerData": "sensorium.sensors.inertial.barometer",
    "Blueprint": "sensorium.client.blueprints",
    "BlueprintLibrary": "sensorium.client.blueprints",
    "BodyState": "sensorium.sensors.frames.body_state",
    "BodyStateCfg": "sensorium.sensors.frames.body_state",
    "BodyStateData": "sensorium.sensors.frames.body_state",
    "BpearlPatternCfg": "sensorium.patterns",
    "BuiltinSensor": "sensorium.sensors.builtin",
    "BuiltinSensorCfg": "sensorium.sensors.builtin",
    "BuiltinSensorData": "sensorium.sensors.builtin",
    "CONTACT_REPORT": "sensorium.spec",
    "CameraData": "sensorium.sensors.cameras.ray_caster_camera",
    "Choice": "sensorium.random",
    "Client": "sensorium.client",
    "ClientEvent": "sensorium.client.client_sensor",
    "ClientSensor": "sensorium.client.client_sensor",
    "ClockError": "sensorium.measurement.stages",
    "Collision": "sensorium.stream.collision",
    "CollisionEvent": "sensorium.stream.collision",
    "CollisionEvents": "sensorium.sensors.contact.collision_events",
    "CollisionEventsCfg": "sensorium.sensors.contact.collision_events",
    "CollisionEventsData": "sensorium.sensors.contact.collision_events",
    "ConfigError": "sensorium.errors",
    "Contact": "sensorium.sensors.contact.contact",
    "ContactCfg": "sensorium.sensors.contact.contact",
    "ContactDepthProbe": "sensorium.sensors.touch.contact_depth_probe",
    "ContactDepthProbeCfg": "sensorium.sensors.touch.contact_depth_probe",
    "ContactDepthProbeData": "sensorium.sensors.touch.contact_depth_probe",
    "ContactFlagData": "sensorium.sensors.contact.contact",
    "ContactForce": "sensorium.sensors.contact.contact_force",
    "ContactForceCfg": "sensorium.sensors.contact.contact_force",
    "ContactForceData": "sensorium.sensors.contact.contact_force",
    "ContactMatch": "sensorium.world.contacts",
    "ContactProbe": "sensorium.sensors.touch.contact_probe",
    "ContactProbeCfg": "sensorium.sensors.touch.contact_probe",
    "ContactProbeData": "sensorium.sensors.touch.contact_probe",
    "ContactSensor": "sensorium.sensors.contact.contact_sensor",
    "ContactSensorCfg": "sensorium.sensors.contact.contact_sensor",
    "ContactSensorData": "sensorium.sensors.contact.contact_sensor",
    "Creep": "sensorium.measurement.stages",
    "Crosstalk": "sensorium.measurement.stages",
    "DeadTaxels": "sensorium.measurement.stages",
    "Debounce": "sensorium.measurement.stages",
    "DebugShape": "sensorium.readings",
    "DepthCamera": "sensorium.sensors.cameras.depth_camera",
    "DepthCameraCfg": "sensorium.sensors.cameras.depth_camera",
    "DeviceError": "sensorium.errors",
    "Dropout": "sensorium.measurement.stages",
    "DuplicateNameError": "sensorium.errors",
    "ElastomerTaxel": "sensorium.sensors.touch.elastomer_taxel",
    "ElastomerTaxelCfg": "sensorium.sensors.touch.elastomer_taxel",
    "ElastomerTaxelData": "sensorium.sensors.touch.elastomer_taxel",
    "Engine": "sensorium.engines.base",
    "Field": "sensorium.spec",
    "FieldData": "sensorium.wire.field_data",
    "FieldSpec": "sensorium.spec",
    "Flicker": "sensorium.measurement.stages",
    "ForceTorque": "sensorium.sensors.joints.force_torque",
    "ForceTorqueCfg": "sensorium.sensors.joints.force_torque",
    "ForceTorqueData": "sensorium.sensors.joints.force_torque",
    "FrameBundle": "sensorium.client.frame_bundle",
    "FrameSync": "sensorium.client.frame_sync",
    "FrameTransformer": "sensorium.sensors.frames.frame_transformer",
    "FrameTransformerCfg": "sensorium.sensors.frames.frame_transformer",
    "FrameTransformerData": "sensorium.sensors.frames.frame_transformer",
    "GRAVITY": "sensorium.spec",
    "GSensitivity": "sensorium.measurement.stages",
    "GaussMarkov": "sensorium.measurement.stages",
    "GilbertElliott": "sensorium.cfg",
    "Gnss": "sensorium.sensors.inertial.gnss",
    "GnssCfg": "sensorium.sensors.inertial.gnss",
    "GnssData": "sensorium.sensors.inertial.gnss",
    "GridPatternCfg": "sensorium.patterns",
    "GroupDelay": "sensorium.measurement.stages",
    "HeightField": "sensorium.geometry.shapes",
    "Imu": "sensorium.sensors.inertial.imu",
    "ImuCfg": "sensorium.sensors.inertial.imu",
    "ImuData": "sensorium.sensors.inertial.imu",
    "JOINT_EFFORT": "sensorium.spec",
    "JOINT_STATE": "sensorium.spec",
    "JOINT_TORQUE": "sensorium.spec",
    "JOINT_WRENCH": "sensorium.spec",
    "JointSensor": "sensorium.sensors.joints.joint",
    "JointSensorCfg": "sensorium.sensors.joints.joint",
    "JointSensorData": "sensorium.sensors.joints.joint",
    "JointTorque": "sensorium.sensors.joints.joint_torque",
    "JointTorqueCfg": "sensorium.sensors.joints.joint_torque",
    "JointTorqueData": "sensorium.sensors.joints.joint_torque",
    "JointWrench": "sensorium.sensors.joints.joint_wrench",
    "JointWrenchCfg": "sensorium.sensors.joints.joint_wrench",
    "JointWrenchData": "sensorium.sensors.joints.joint_wrench",
    "KeyPair": "sensorium.stream.security",
    "KinectDepth": "sensorium.measurement.stages",
    "KinematicTactileSensor": "sensorium.sensors.touch.kinematic_tactile",
    "KinematicTactileSensorCfg": "sensorium.sensors.touch.kinematic_tactile",
    "KinematicTactileSensorData": "sensorium.sensors.touch.kinematic_tactile",
    "LaneInvasion": "sensorium.client.lane_invasion",
    "LaneInvasionEvent": "sensorium.client.lane_invasion",
    "LaneMarking": "sensorium.client.lane_invasion",
    "Lidar": "sensorium.sensors.rays.lidar",
    "LidarCfg": "sensorium.sensors.rays.lidar",
    "LidarData": "sensorium.sensors.rays.lidar",
    "LidarPatternCfg": "sensorium.patterns",
    "LinkThermalCfg": "sensorium.sensors.touch.temperature_grid",
    "LostEvents": "sensorium.wire.data",
    "LowPass": "sensorium.measurement.stages",
    "MAGNETIC": "sensorium.spec",
    "MODEL_ELEMENTS": "sensorium.spec",
    "MagneticDipole": "sensorium.sensors.inertial.magnetometer",
    "Magnetometer": "sensorium.sensors.inertial.magnetometer",
    "MagnetometerCfg": "sensorium.sensors.inertial.magnetometer",
    "MagnetometerData": "sensorium.sensors.inertial.magnetometer",
    "Mesh": "sensorium.geometry.shapes",
    "MissingDependencyError": "sensorium.errors",
    "ModelError": "sensorium.errors",
    "MotorCurrent": "sensorium.sensors.joints.motor_current",
    "MotorCurrentCfg": "sensorium.sensors.joints.motor_current",
    "MotorCurrentData": "sensorium.sensors.joints.motor_current",
    "MountedSensorCfg": "sensorium.cfg",
    "MujocoEngine": "sensorium.engines.mujoco.engine",
    "MujocoWarpEngine": "sensorium.engines.mujoco_warp.engine",
    "NATIVE_SENSOR": "sensorium.spec",
    "News": "sensorium.scene.news",
    "NonFiniteStateWarning": "sensorium.errors",
    "Normal": "sensorium.random",
    "NotTrackedError": "sensorium.errors",
    "ObjRef": "sensorium.cfg",
    "Observer": "sensorium.scene",
    "OffsetCfg": "sensorium.cfg",
    "PadReading": "sensorium.sensors.touch.pads",
    "Pads": "sensorium.sensors.touch.pads",
    "PatternBaseCfg": "sensorium.patterns",
    "PinholeCameraPatternCfg": "sensorium.patterns",
    "Play": "sensorium.measurement.stages",
    "Pose": "sensorium.wire.pose",
    "ProximityTaxel": "sensorium.sensors.touch.proximity_taxel",
    "ProximityTaxelCfg": "sensorium.sensors.touch.proximity_taxel",
    "ProximityTaxelData": "sensorium.sensors.touch.proximity_taxel",
    "Radar": "sensorium.sensors.rays.radar",
    "RadarCfg": "sensorium.sensors.rays.radar",
    "RadarData": "sensorium.sensors.rays.radar",
    "RawData": "sensorium.wire.raw_data",
    "RayCast": "sensorium.world.ray_cast",
    "RayCaster": "sensorium.sensors.rays.ray_caster",
    "RayCasterCamera": "sensorium.sensors.cameras.ray_caster_camera",
    "RayCasterCameraCfg": "sensorium.sensors.cameras.ray_caster_camera",
    "RayCasterCfg": "sensorium.sensors.rays.ray_caster",
    "RayCasterData": "sensorium.sensors.rays.ray_caster",
    "Rays": "sensorium.patterns",
    "Reading": "sensorium.readings",
    "Record": "sensorium.measurement.record",
    "RegistrationError": "sensorium.errors",
    "RemoteSensor": "sensorium.client.sensors",
    "Requirement": "sensorium.spec",
    "Ring": "sensorium.patterns",
    "RingPatternCfg": "sensorium.patterns",
    "RisleyPatternCfg": "sensorium.patterns",
    "RotatingMirrorPatternCfg": "sensorium.patterns",
    "RowScan": "sensorium.measurement.stages",
    "Rows": "sensorium.compute",
    "SHAPES": "sensorium.spec",
    "SafeDistance": "sensorium.stream.safe_distance",
    "SafeDistanceEvent": "sensorium.stream.safe_distance",
    "Saturation": "sensorium.measurement.stages",
    "SaturationFault": "sensorium.measurement.stages",
    "ScaleError": "sensorium.measurement.stages",
    "ScanPatternCfg": "sensorium.patterns",
    "ScanTable": "sensorium.patterns",
    "Scene": "sensorium.scene",
    "SceneDescription": "sensorium.readings",
    "ScheduleError": "sensorium.errors",
    "SelectionError": "sensorium.errors",
    "Sensor": "sensorium.sensors.core.base",
    "SensorCfg": "sensorium.cfg",
    "SensorData": "sensorium.wire.data",
    "SensorDefinition": "sensorium.wire.attributes",
    "SensoriumError": "sensorium.errors",
    "SensoriumWarning": "sensorium.errors",
    "Serializer": "sensorium.wire.serializers",
    "Server": "sensorium.stream.server",
    "ServerError": "sensorium.client",
    "Shape": "sensorium.geometry.shapes",
    "SimpleSensor": "sensorium.sensors.core.base",
    "SimpleSensorCfg": "sensorium.cfg",
    "SkyZone": "sensorium.sensors.inertial.gnss",
    "SphericalPatternCfg": "sensorium.patterns",
    "SpikeFault": "sensorium.measurement.stages",
    "SpinningPatternCfg": "sensorium.patterns",
    "StageCfg": "sensorium.cfg",
    "StageKey": "sensorium.measurement.stages",
    "StaleError": "sensorium.errors",
    "StereoDepth": "sensorium.measurement.stages",
    "StreamError": "sensorium.errors",
    "StreamedSensor": "sensorium.stream.streamed",
    "StuckFault": "sensorium.measurement.stages",
    "StuckTaxels": "sensorium.measurement.stages",
    "SurfaceDistanceProbe": "sensorium.sensors.touch.surface_distance_probe",
    "SurfaceDistanceProbeCfg": "sensorium.sensors.touch.surface_distance_probe",
    "SurfaceDistanceProbeData": "sensorium.sensors.touch.surface_distance_probe",
    "SurfaceSamples": "sensorium.geometry.samples",
    "TablePatternCfg": "sensorium.patterns",
    "Targets": "sensorium.world.ray_scene",
    "TaxelCrosstalk": "sensorium.measurement.stages",
    "TaxelGain": "sensorium.measurement.stages",
    "TaxelLayout": "sensorium.patterns.taxels",
    "TemperatureDrift": "sensorium.measurement.stages",
    "TemperatureGrid": "sensorium.sensors.touch.temperature_grid",
    "TemperatureGridCfg": "sensorium.sensors.touch.temperature_grid",
    "TemperatureGridData": "sensorium.sensors.touch.temperature_grid",
    "TensorEngine": "sensorium.engines.tensor",
    "TerrainHeight": "sensorium.sensors.rays.terrain_height",
    "TerrainHeightCfg": "sensorium.sensors.rays.terrain_height",
    "TerrainHeightData": "sensorium.sensors.rays.terrain_height",
    "Timeline": "sensorium.measurement.record",
    "TofDepth": "sensorium.measurement.stages",
    "Touch": "sensorium.sensors.touch.touch",
    "TouchCfg": "sensorium.sensors.touch.touch",
    "TouchData": "sensorium.sensors.touch.touch",
    "Uniform": "sensorium.random",
    "UnknownNameError": "sensorium.errors",
    "UnsupportedError": "sensorium.errors",
    "Viscoelastic": "sensorium.measurement.stages",
    "Watch": "sensorium.scene.watch",
    "WindowAverage": "sensorium.measurement.stages",
    "WireError": "sensorium.errors",
    "body_samples": "sensorium.geometry.samples",
    "connect": "sensorium.client",
    "local_client": "sensorium.local",
    "make_generic_sensor_definition": "sensorium.wire.attributes",
    "pad_blocks": "sensorium.sensors.touch.pads",
    "prepare": "sensorium.scene",
    "preset": "sensorium.presets",
    "recorded": "sensorium.compute",
    "reserve_contact": "sensorium.stream.collision",
    "serve": "sensorium.stream.server",
    "surface_samples": "sensorium.geometry.samples",
    "taxel_cylinder": "sensorium.patterns.taxels",
    "taxel_dome": "sensorium.patterns.taxels",
    "taxel_grid": "sensorium.patterns.taxels",
    "taxel_list": "sensorium.patterns.taxels",
    "taxel_patch": "sensorium.patterns.taxels",
    "taxels_on": "sensorium.patterns.taxels",
}
"""Every public name and the module it lives in; a module is imported when one of its names is first used."""

_SUBMODULES = ("compat", "patterns")
"""Subpackages that are there without an import of their own, as they are in the libraries whose names they have."""

__all__ = [
    "BODY_ACCELERATION",
    "BODY_POSE",
    "BODY_VELOCITY",
    "CONTACT_REPORT",
    "GRAVITY",
    "JOINT_EFFORT",
    "JOINT_STATE",
    "JOINT_TORQUE",
    "JOINT_WRENCH",
    "MAGNETIC",
    "MODEL_ELEMENTS",
    "NATIVE_SENSOR",
    "SHAPES",
    "ActorDescription",
    "ArgumentError",
    "ArrayData",
    "Attribute",
    "Barometer",
    "BarometerCfg",
    "BarometerData",
    "Blueprint",
    "BlueprintLibrary",
    "BodyState",
    "BodyStateCfg",
    "BodyStateData",
    "BpearlPatternCfg",
    "BuiltinSensor",
    "BuiltinSensorCfg",
    "BuiltinSensorData",
    "CameraData",
    "Choice",
    "Client",
    "ClientEvent",
    "ClientSensor",
    "ClockError",
    "Collision",
    "CollisionEvent",
    "CollisionEvents",
    "CollisionEventsCfg",
    "CollisionEventsData",
    "ConfigError",
    "Contact",
    "ContactCfg",
    "ContactDepthProbe",
    "ContactDepthProbeCfg",
    "ContactDepthProbeData",
    "ContactFlagData",
    "ContactForce",
    "ContactForceCfg",
    "ContactForceData",
    "ContactMatch",
    "ContactProbe",
    "ContactProbeCfg",
    "ContactProbeData",
    "ContactSensor",
    "ContactSensorCfg",
    "ContactSensorData",
    "Creep",
    "Crosstalk",
    "DeadTaxels",
    "Debounce",
    "DebugShape",
    "DepthCamera",
    "DepthCameraCfg",
    "DeviceError",
    "Dropout",
    "DuplicateNameError",
    "ElastomerTaxel",
    "ElastomerTaxelCfg",
    "ElastomerTaxelData",
    "Engine",
    "Field",
    "FieldData",
    "FieldSpec",
    "Flicker",
    "ForceTorque",
    "ForceTorqueCfg",
    "ForceTorqueData",
    "FrameBundle",
    "FrameSync",
    "FrameTransformer",
    "FrameTransformerCfg",
    "FrameTransformerData",
    "GSensitivity",
    "GaussMarkov",
    "GilbertElliott",
    "Gnss",
    "GnssCfg",
    "GnssData",
    "GridPatternCfg",
    "GroupDelay",
    "HeightField",
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
    "KeyPair",
    "KinectDepth",
    "KinematicTactileSensor",
    "KinematicTactileSensorCfg",
    "KinematicTactileSensorData",
    "LaneInvasion",
    "LaneInvasionEvent",
    "LaneMarking",
    "Lidar",
    "LidarCfg",
    "LidarData",
    "LidarPatternCfg",
    "LinkThermalCfg",
    "LostEvents",
    "LowPass",
    "MagneticDipole",
    "Magnetometer",
    "MagnetometerCfg",
    "MagnetometerData",
    "Mesh",
    "MissingDependencyError",
    "ModelError",
    "MotorCurrent",
    "MotorCurrentCfg",
    "MotorCurrentData",
    "MountedSensorCfg",
    "MujocoEngine",
    "MujocoWarpEngine",
    "News",
    "NonFiniteStateWarning",
    "Normal",
    "NotTrackedError",
    "ObjRef",
    "Observer",
    "OffsetCfg",
    "PadReading",
    "Pads",
    "PatternBaseCfg",
    "PinholeCameraPatternCfg",
    "Play",
    "Pose",
    "ProximityTaxel",
    "ProximityTaxelCfg",
    "ProximityTaxelData",
    "Radar",
    "RadarCfg",
    "RadarData",
    "RawData",
    "RayCast",
    "RayCaster",
    "RayCasterCamera",
    "RayCasterCameraCfg",
    "RayCasterCfg",
    "RayCasterData",
    "Rays",
    "Reading",
    "Record",
    "RegistrationError",
    "RemoteSensor",
    "Requirement",
    "Ring",
    "RingPatternCfg",
    "RisleyPatternCfg",
    "RotatingMirrorPatternCfg",
    "RowScan",
    "Rows",
    "SafeDistance",
    "SafeDistanceEvent",
    "Saturation",
    "SaturationFault",
    "ScaleError",
    "ScanPatternCfg",
    "ScanTable",
    "Scene",
    "SceneDescription",
    "ScheduleError",
    "SelectionError",
    "Sensor",
    "SensorCfg",
    "SensorData",
    "SensorDefinition",
    "SensoriumError",
    "SensoriumWarning",
    "Serializer",
    "Server",
    "ServerError",
    "Shape",
    "SimpleSensor",
    "SimpleSensorCfg",
    "SkyZone",
    "SphericalPatternCfg",
    "SpikeFault",
    "SpinningPatternCfg",
    "StageCfg",
    "StageKey",
    "StaleError",
    "StereoDepth",
    "StreamError",
    "StreamedSensor",
    "StuckFault",
    "StuckTaxels",
    "SurfaceDistanceProbe",
    "SurfaceDistanceProbeCfg",
    "SurfaceDistanceProbeData",
    "SurfaceSamples",
    "TablePatternCfg",
    "Targets",
    "TaxelCrosstalk",
    "TaxelGain",
    "TaxelLayout",
    "TemperatureDrift",
    "TemperatureGrid",
    "TemperatureGridCfg",
    "TemperatureGridData",
    "TensorEngine",
    "TerrainHeight",
    "TerrainHeightCfg",
    "TerrainHeightData",
    "Timeline",
    "TofDepth",
    "Touch",
    "TouchCfg",
    "TouchData",
    "Uniform",
    "UnknownNameError",
    "UnsupportedError",
    "Viscoelastic",
    "Watch",
    "WindowAverage",
    "WireError",
    "body_samples",
    "connect",
    "local_client",
    "make_generic_sensor_definition",
    "pad_blocks",
    "prepare",
    "preset",
    "recorded",
    "reserve_contact",
    "serve",
    "surface_samples",
    "taxel_cylinder",
    "taxel_dome",
    "taxel_grid",
    "taxel_list",
    "taxel_patch",
    "taxels_on",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    value: Any
    if name in _MODULES:
        try:
            value = getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            missing = __getattr__("MissingDependencyError").of_core(f"sensorium.{name}", error)
            if missing is None:
                raise
            raise missing from None
    elif name == "__version__":
        try:
            value = metadata.version("sensorium")
        except metadata.PackageNotFoundError:  # run from a source tree that is not installed
            value = "0+unknown"
    elif name in _SUBMODULES:
        value = import_module(f"sensorium.{name}")
    else:
        from difflib import get_close_matches

        if name in (moved := __getattr__("compat").MOVED):
            raise AttributeError(f"module 'sensorium' has no attribute {name!r}: it is {moved[name]} now")
        near = get_close_matches(name, _MODULES, n=3)
        hint = f". Did you mean: {', '.join(near)}?" if near else ""
        raise AttributeError(f"module 'sensorium' has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
