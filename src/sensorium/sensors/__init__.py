"""The sensors, one file each. Importing this package defines, and thereby registers, all of ours."""

from sensorium.sensors.imu import Imu, ImuCfg, ImuData

__all__ = ["Imu", "ImuCfg", "ImuData"]
