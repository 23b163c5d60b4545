"""Files of readings in the layouts of other tools."""

from sensorium.record.export.euroc import write_euroc
from sensorium.record.export.kitti import write_kitti
from sensorium.record.export.tum import write_tum

__all__ = ["write_euroc", "write_kitti", "write_tum"]
