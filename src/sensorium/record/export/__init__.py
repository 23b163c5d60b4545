"""Files of readings in the layouts of other tools."""

from sensorium.record.export.calib import write_calibration
from sensorium.record.export.euroc import write_euroc
from sensorium.record.export.kitti import write_kitti
from sensorium.record.export.lerobot import write_lerobot
from sensorium.record.export.rosbag2 import write_rosbag2
from sensorium.record.export.tables import write_tables
from sensorium.record.export.tum import write_tum

__all__ = [
    "write_calibration", "write_euroc", "write_kitti", "write_lerobot", "write_rosbag2", "write_tables",
    "write_tum",
]  # fmt: skip
