"""evo finds no difference between exported poses and the trajectory that the data set was made along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evo.core import metrics, sync
from evo.core.trajectory import PoseTrajectory3D
from evo.tools import file_interface

import sensorium as sn
from sensorium.cli import main


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[sn.Trajectory, Path]:
    """A recorded flight along a figure-eight of 60 s, as TUM and EuRoC files."""
    root = tmp_path_factory.mktemp("flight")
    times = np.linspace(0.0, 60.0, 1201)
    phase = 2.0 * np.pi * times / 20.0
    pos = np.stack([6.0 * np.sin(phase), 3.0 * np.sin(2.0 * phase), 1.5 + 0.5 * np.cos(phase)], axis=1)
    yaw, roll = 0.5 * (phase + 0.3 * np.sin(phase)), 0.15 * np.sin(2.0 * phase)
    w, x, y, z = np.cos(yaw) * np.cos(roll), np.cos(yaw) * np.sin(roll), np.sin(yaw) * np.sin(roll), np.sin(yaw)
    path = sn.Trajectory(times, pos, np.stack([w, x, y, z * np.cos(roll)], axis=1))
    scene = sn.Scene(
        sn.TrajectoryEngine(path, 0.005),
        [sn.ImuCfg(name="imu", body="body", rate_hz=100.0), sn.BodyStateCfg(name="state", body="body", rate_hz=50.0)],
    )
    with scene.record(root / "run.mcap"):
        scene.step(substeps=12000)
    for kind in ("tum", "euroc"):
        assert main(["export", str(root / "run.mcap"), "--to", str(root / kind), "--format", kind]) == 0
    return path, root


def true(path: sn.Trajectory, times: np.ndarray) -> PoseTrajectory3D:
    """Return the poses of the trajectory."""
    motion = path.at(np.clip(times, 0.0, path.duration))
    return PoseTrajectory3D(motion.pos, motion.quat, times)


@pytest.mark.parametrize(
    ("file", "rate"),
    [("tum/imu.tum", 100.0), ("tum/state.tum", 50.0), ("euroc/mav0/state_groundtruth_estimate0/data.csv", 100.0)],
)
def test_poses_agree(file: str, rate: float, exported: tuple[sn.Trajectory, Path]) -> None:
    path, root = exported
    read = file_interface.read_tum_trajectory_file if "tum" in file else file_interface.read_euroc_csv_trajectory
    found = read(str(root / file))
    assert found.num_poses == round(60.0 * rate) + 1 and found.check()[0]
    reference, estimate = sync.associate_trajectories(
        true(path, np.arange(found.num_poses) / rate), found, max_diff=1e-6
    )
    assert estimate.num_poses == found.num_poses
    for relation in (metrics.PoseRelation.translation_part, metrics.PoseRelation.rotation_angle_rad):
        error = metrics.APE(relation)
        error.process_data((reference, estimate))
        assert error.get_statistic(metrics.StatisticsType.max) < 1e-6, relation
