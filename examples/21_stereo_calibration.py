"""OpenCV calibrates a stereo rig from images of a chessboard: pip install opencv-python-headless."""

import cv2
import numpy as np
import torch

import sensorium as sn

BASELINE, SIZE, POSES, PATTERN = 0.11, (640, 480), 16, (9, 6)  # m, px
board = sn.targets.chessboard(*PATTERN, square=0.05)
lens = sn.lenses.BrownConradyLensCfg(fovy=55.0, k1=-0.21, k2=0.06, p1=2e-4, p2=-3e-4)
left, right = (
    sn.CameraCfg(
        name=name, body="platform", offset=sn.CameraCfg.OffsetCfg(pos=(0.0, y, 0.0)), width=SIZE[0], height=SIZE[1],
        lens=lens, data_types=("rgb",),
    )
    for name, y in (("left", 0.5 * BASELINE), ("right", -0.5 * BASELINE))
)  # fmt: skip
lamp = sn.engines.Light("directional", "lamp", direction=(0.2, -0.3, -1.0), ambient=(0.4,) * 3, diffuse=(0.5,) * 3)
engine = sn.TensorEngine(
    bodies=("platform",), provides=("pose",), shapes=[board.shape()], lighting=sn.engines.Lighting((lamp,))
)
scene = sn.Scene(engine, [left, right])


def corners(image: np.ndarray) -> np.ndarray | None:
    """Return the corners of the chessboard, `[corner, 1, 2]`, px, in OpenCV's coordinates; None if it is not found."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    found, rough = cv2.findChessboardCorners(gray, PATTERN)
    return cv2.cornerSubPix(gray, rough, (5, 5), (-1, -1), (3, 100, 1e-4)) if found else None


rng, views = np.random.default_rng(0), []
while len(views) < POSES:  # the platform moves above the board, tilts and rolls
    tilt, around, roll = rng.uniform(0.2, 0.6), rng.uniform(-np.pi, np.pi), rng.uniform(-0.5, 0.5)
    back = np.array([np.sin(tilt) * np.cos(around), np.sin(tilt) * np.sin(around), np.cos(tilt)])
    aim = np.array([*rng.uniform(-0.06, 0.06, 2), 0.0])
    pose = sn.CameraCfg.OffsetCfg.from_view(aim + rng.uniform(0.5, 0.75) * back, aim, (np.sin(roll), np.cos(roll), 0.0))
    engine.body_pos_w[0, 0], engine.body_quat_w[0, 0] = torch.tensor(pose.pos), torch.tensor(pose.rot)
    scene.update()
    pair = [corners(scene[camera].data.rgb[0].numpy()) for camera in (left, right)]
    if all(view is not None for view in pair):
        views.append(pair)
points = [(board.corners - board.corners[0]).astype(np.float32)] * POSES
images, known = list(zip(*views, strict=True)), []
true = scene[left].data.intrinsic_matrices[0].numpy()
for name, seen in zip(("left", "right"), images, strict=True):
    rms, matrix, bends, *_ = cv2.calibrateCamera(points, seen, SIZE, None, None, flags=cv2.CALIB_FIX_K3)
    error = matrix[[0, 1], [0, 1]] / true[[0, 1], [0, 1]] - 1.0
    print(f"{name}: {rms:.3f} px rms, focal lengths off by {100.0 * np.abs(error).max():.4f} %, k1 {bends.flat[0]:.4f}")
    assert rms < 0.1 and np.abs(error).max() < 1e-3
    assert np.abs(matrix[:2, 2] + 0.5 - true[:2, 2]).max() < 0.5  # OpenCV's first pixel is at 0, ours at 0.5
    known += [matrix, bends]
rms, *_, shift, _, _ = cv2.stereoCalibrate(points, *images, *known, SIZE, flags=cv2.CALIB_FIX_INTRINSIC)
print(f"stereo: {rms:.3f} px rms, baseline {np.linalg.norm(shift):.5f} m")
assert rms < 0.1 and abs(np.linalg.norm(shift) - BASELINE) < 1e-3 * BASELINE
