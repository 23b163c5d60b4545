"""pykitti opens an exported sequence, and its calibration places the scans in the images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pykitti
from kitti_drive import INTRINSICS, LANDMARKS, drive

from sensorium.record.export import write_kitti


def test_a_sequence(tmp_path: Path) -> None:
    readings, poses = drive()
    write_kitti(readings, tmp_path)
    found = pykitti.odometry(str(tmp_path), "00")
    assert len(found) == len(found.poses) == 5
    np.testing.assert_allclose([each.total_seconds() for each in found.timestamps], np.arange(5) * 0.1, atol=1e-9)
    np.testing.assert_allclose(found.calib.K_cam2, INTRINSICS, atol=1e-5)
    start, origin = poses["lidar"][0]
    to_lidar = np.linalg.inv(found.calib.T_cam0_velo)
    for scan in range(5):
        assert np.asarray(found.get_cam0(scan)).flat[0] == np.asarray(found.get_cam2(scan)).flat[0] == 10 * scan
        points = found.get_velo(scan).astype(np.float64)
        points[:, 3] = 1.0
        x, y, z = poses["color"][10 * scan][0].inv().apply(LANDMARKS - poses["color"][10 * scan][1]).T
        u, v, w = found.calib.P_rect_20 @ found.calib.T_cam0_velo @ points.T
        np.testing.assert_allclose(np.stack([u / w, v / w]), INTRINSICS[:2] @ [-y / x, -z / x, np.ones(200)], atol=1e-3)
        world = to_lidar @ found.poses[scan] @ found.calib.T_cam0_velo @ points.T
        np.testing.assert_allclose(start.apply(world[:3].T) + origin, LANDMARKS, atol=1e-4)
