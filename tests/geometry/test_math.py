"""`sensorium.math` against SciPy, and poses against homogeneous matrices."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.math import quat_apply, quat_apply_inverse

RANDOM = np.random.default_rng(3)
ROTATIONS = Rotation.concatenate([
    Rotation.random(60, random_state=3), Rotation.identity(), Rotation.from_rotvec([[math.pi, 0, 0], [0, 1e-9, 0]])
])  # fmt: skip
N = len(ROTATIONS)
VECTORS = RANDOM.normal(size=(N, 3))


def quat(rotations: Rotation) -> torch.Tensor:
    return torch.tensor(rotations.as_quat(scalar_first=True))


def same_rotation(found: torch.Tensor, rotations: Rotation) -> None:
    np.testing.assert_allclose(
        Rotation.from_quat(found, scalar_first=True).as_matrix(), rotations.as_matrix(), atol=1e-12
    )


def matrices(rotations: Rotation, pos: np.ndarray) -> np.ndarray:
    frames = np.tile(np.eye(4), (N, 1, 1))
    frames[:, :3, :3], frames[:, :3, 3] = rotations.as_matrix(), pos
    return frames


def test_rotations_equal_scipys() -> None:
    q, v = quat(ROTATIONS), torch.tensor(VECTORS)
    np.testing.assert_allclose(quat_apply(q, v), ROTATIONS.apply(VECTORS), atol=1e-12)
    np.testing.assert_allclose(quat_apply_inverse(q, v), ROTATIONS.inv().apply(VECTORS), atol=1e-12)
    np.testing.assert_allclose(sn.math.matrix_from_quat(q), ROTATIONS.as_matrix(), atol=1e-12)
    same_rotation(sn.math.quat_from_matrix(torch.tensor(ROTATIONS.as_matrix())), ROTATIONS)
    same_rotation(sn.math.quat_mul(q, q.flip(0)), ROTATIONS * ROTATIONS[::-1])
    same_rotation(sn.math.quat_conjugate(q), ROTATIONS.inv())


def test_euler_angles_and_rotation_vectors_equal_scipys() -> None:
    q, angles = quat(ROTATIONS), ROTATIONS.as_euler("xyz")  # lower case: about fixed axes
    np.testing.assert_allclose(sn.math.euler_from_quat(q), angles, atol=1e-7)
    same_rotation(sn.math.quat_from_euler(torch.tensor(angles)), ROTATIONS)
    same_rotation(sn.math.quat_from_rotvec(torch.tensor(ROTATIONS.as_rotvec())), ROTATIONS)
    np.testing.assert_allclose(sn.math.rotvec_from_quat(q), ROTATIONS.as_rotvec(), atol=1e-12)
    np.testing.assert_allclose(sn.math.rotvec_from_quat(-q[:60]), ROTATIONS[:60].as_rotvec(), atol=1e-12)
    steep = sn.math.euler_from_quat(sn.math.quat_from_euler(torch.tensor([0.3, math.pi / 2, 0.0])))
    assert torch.isfinite(steep).all() and math.isclose(steep[1], math.pi / 2, abs_tol=1e-3)
    level = sn.math.quat_level(sn.math.quat_from_euler(torch.tensor([0.2, -0.3, 1.1], dtype=torch.float64)))
    same_rotation(level, Rotation.from_rotvec([0.0, 0.0, 1.1]))


def test_poses_equal_products_of_matrices() -> None:
    inner, origins = ROTATIONS[::-1], RANDOM.normal(size=(2, N, 3))
    outer = matrices(ROTATIONS, origins[0])
    pos, q = torch.tensor(origins[0]), quat(ROTATIONS)
    found = sn.math.compose_poses(pos, q, torch.tensor(origins[1]), quat(inner))
    product = outer @ matrices(inner, origins[1])
    np.testing.assert_allclose(found[0], product[:, :3, 3], atol=1e-12)
    same_rotation(found[1], Rotation.from_matrix(product[:, :3, :3]))
    back = sn.math.relative_pose(pos, q, *found)
    np.testing.assert_allclose(back[0], origins[1], atol=1e-12)
    same_rotation(back[1], inner)
