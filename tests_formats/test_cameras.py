"""OpenCV and AprilTag's detectors read the images of our cameras: tags, corners, optical flow and calibration."""

from __future__ import annotations

import runpy
from pathlib import Path

import cv2
import numpy as np
import opencv_tags
import pytest

import sensorium as sn
from sensorium.demo import hall

WIDTH, HEIGHT = 320, 240
ROOT = Path(__file__).parents[1]


def test_bundled_codes_are_those_of_opencv() -> None:
    np.testing.assert_array_equal(np.load(opencv_tags.FILE), opencv_tags.codes())


@pytest.mark.parametrize("border", [1, 2])
def test_opencv_finds_the_corners_of_tags(border: int) -> None:
    """Its tags are upside down, so its first corner is our second."""
    board = sn.targets.aprilgrid(4, 3, 0.1, 0.3) if border == 2 else sn.targets.apriltag(77, 0.2)
    wanted = {k: corners for k, corners in enumerate(board.corners)} if border == 2 else {77: board.corners}
    parameters = cv2.aruco.DetectorParameters()
    parameters.markerBorderBits = border
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    tags = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    image = np.pad(board.pixels, 60, constant_values=255)
    found, numbers, _ = cv2.aruco.ArucoDetector(tags, parameters).detectMarkers(image)
    assert sorted(numbers.reshape(-1).tolist()) == sorted(wanted)
    scale = board.pixels.shape[1] / board.size[0]
    for number, corners in zip(numbers.reshape(-1), found, strict=True):
        x, y = (wanted[int(number)][[1, 0, 3, 2], :2] * (1.0, -1.0) * scale).T
        middle = np.array(image.shape[::-1]) / 2.0
        np.testing.assert_allclose(corners[0] + 0.5, np.stack([x, y], axis=1) + middle, atol=0.6)


@pytest.mark.parametrize("number", [1, 8, 13, 16, 20])
def test_opencv_reads_the_tags_of_the_hall(number: int) -> None:
    """Those of each wall, from 2 m in front of them."""
    x, y, z, azimuth = np.array(hall.TAGS[number]) * (1.0, 1.0, 1.0, np.pi / 180.0)
    offset = sn.CameraCfg.OffsetCfg.from_view((x + 2.0 * np.cos(azimuth), y + 2.0 * np.sin(azimuth), z), (x, y, z))
    camera = sn.CameraCfg(
        name="cam", body="world", offset=offset, width=WIDTH, height=HEIGHT, lens=sn.lenses.PinholeLensCfg(fovy=40.0),
        data_types=("rgb",),
    )  # fmt: skip
    engine = sn.TensorEngine(provides=("pose",), shapes=hall.shapes(), lighting=hall.lighting())
    image = cv2.cvtColor(sn.Scene(engine, [camera])["cam"].data.rgb[0].numpy(), cv2.COLOR_RGB2GRAY)
    tags = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    found, numbers, _ = cv2.aruco.ArucoDetector(tags).detectMarkers(image)
    assert number in numbers
    side = 0.6 * 0.5 * HEIGHT / np.tan(np.radians(20.0)) / 2.0
    at = found[numbers.reshape(-1).tolist().index(number)][0] + 0.5 - (0.5 * WIDTH, 0.5 * HEIGHT)
    np.testing.assert_allclose(at, 0.5 * side * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]), atol=2.0)


def test_opencv_tracks_the_flight_through_the_hall() -> None:
    """Frames have many corners, and the flow of Lucas and Kanade is that of the camera's own optical flow."""
    flight, times = hall.drone(), np.arange(4) * 0.02
    pieces = [sn.Trajectory(times, *flight.at(start + times)[:2]) for start in np.linspace(1.0, 70.0, 8)]
    lens = sn.lenses.PinholeLensCfg(fovy=60.0)
    camera = sn.CameraCfg(
        name="cam",
        body="body",
        width=WIDTH,
        height=HEIGHT,
        lens=lens,
        data_types=("rgb", "optical_flow"),
        samples=4,
    )
    engine = sn.TrajectoryEngine(pieces, 0.02, world=hall.shapes(), lighting=hall.lighting())
    scene, tracked = sn.Scene(engine, [camera]), []
    first = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in scene["cam"].read().rgb.numpy()]
    scene.step()
    data = scene["cam"].data
    for before, image, flow in zip(first, data.rgb.numpy(), data.optical_flow.numpy(), strict=True):  # each piece
        corners = cv2.goodFeaturesToTrack(before, 400, 0.01, 7)
        assert len(corners) >= 150
        after = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        moved, found, _ = cv2.calcOpticalFlowPyrLK(before, after, corners, None, winSize=(15, 15))
        exact = cv2.remap(flow, moved, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=np.nan)
        error = np.linalg.norm(moved - corners - exact, axis=-1)[found == 1]
        tracked.append(error[np.isfinite(error)])
    errors = np.concatenate(tracked)
    assert min(len(each) for each in tracked) >= 150
    assert np.median(errors) < 0.1 and (errors < 1.0).mean() > 0.9


def test_opencv_calibrates_a_stereo_rig(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/21_stereo_calibration.py"), run_name="__main__")
    assert "baseline" in capsys.readouterr().out
