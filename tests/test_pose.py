"""A pose is a position and a unit quaternion; poses chain like rigid motions. SciPy's rotations are the reference."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.pose import Pose


def random_pose(seed: int) -> Pose:
    generator = np.random.default_rng(seed)
    rot = generator.normal(size=4)
    return Pose(tuple(generator.normal(size=3)), tuple(rot / np.linalg.norm(rot)))


def rotation(pose: Pose) -> Rotation:
    w, x, y, z = pose.rot
    return Rotation.from_quat((x, y, z, w))


def test_default_pose_is_identity() -> None:
    assert Pose() == Pose((0, 0, 0), (1, 0, 0, 0))
    assert np.array_equal(Pose().apply([[1.0, 2.0, 3.0]]), [[1.0, 2.0, 3.0]])
    assert sn.Pose is Pose


@pytest.mark.parametrize("seed", range(5))
def test_apply_rotates_and_moves_points(seed: int) -> None:
    pose = random_pose(seed)
    points = np.random.default_rng(100 + seed).normal(size=(4, 5, 3))
    expected = rotation(pose).apply(points.reshape(-1, 3)).reshape(points.shape) + pose.pos
    assert np.allclose(pose.apply(points), expected, rtol=0, atol=1e-14)
    assert np.allclose(pose.apply(points[0, 0]), expected[0, 0], rtol=0, atol=1e-14)
    assert pose.apply(points.astype(np.float32)).dtype == np.float64
    assert np.allclose(pose.matrix(), rotation(pose).as_matrix(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_of_two_poses_applies_the_second_first(seed: int) -> None:
    a, b = random_pose(seed), random_pose(50 + seed)
    points = np.random.default_rng(seed).normal(size=(7, 3))
    assert np.allclose((a @ b).apply(points), a.apply(b.apply(points)), rtol=0, atol=1e-13)
    assert np.isclose(np.linalg.norm((a @ b).rot), 1.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_the_inverse_undoes_a_pose_from_both_sides(seed: int) -> None:
    pose = random_pose(seed)
    for chained in (pose @ pose.inverse(), pose.inverse() @ pose):
        assert np.allclose(chained.pos, 0.0, rtol=0, atol=1e-14)
        assert np.allclose(np.abs(chained.rot), [1, 0, 0, 0], rtol=0, atol=1e-14)


def test_a_quarter_turn_about_z_takes_x_to_y() -> None:
    turn = Pose((0.0, 0.0, 1.0), (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)))
    assert np.allclose(turn.apply([1.0, 0.0, 0.0]), [0.0, 1.0, 1.0], rtol=0, atol=1e-15)


def test_a_rounded_quaternion_still_turns_without_scaling() -> None:
    """Its length may deviate by 0.001: lengths of vectors are preserved all the same, and so is the inverse."""
    pose = Pose((1.0, 2.0, 3.0), (0.9995, 0.0, 0.0, 0.0))
    assert np.allclose(pose.apply([1.0, 1.0, 1.0]), [2.0, 3.0, 4.0], rtol=0, atol=1e-15)
    slanted = Pose(rot=tuple(0.9992 * part for part in random_pose(3).rot))
    assert np.isclose(np.linalg.norm(slanted.apply([3.0, 0.0, 4.0])), 5.0, rtol=0, atol=1e-14)
    assert np.allclose((slanted.inverse() @ slanted).apply([1.0, 2.0, 3.0]), [1, 2, 3], rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_pose_from_euler_angles_equals_scipys(seed: int) -> None:
    """Also those of CARLA, whose y axis points to the right: mirrored, its frames are the same as ours."""
    roll, pitch, yaw = np.random.default_rng(seed).uniform(-1.4, 1.4, 3).tolist()
    pose = Pose.from_euler((1.0, 2.0, 3.0), (roll, pitch, yaw))
    fixed = Rotation.from_euler("xyz", (roll, pitch, yaw))
    assert pose.pos == (1.0, 2.0, 3.0)
    np.testing.assert_allclose(pose.matrix(), fixed.as_matrix(), atol=1e-15)
    # Unreal Engine, FRotationTranslationMatrix: rows are the axes of the rotated frame
    (sr, sp, sy), (cr, cp, cy) = np.sin((roll, pitch, yaw)), np.cos((roll, pitch, yaw))
    rows = [
        [cp * cy, cp * sy, sp],
        [sr * sp * cy - cr * sy, sr * sp * sy + cr * cy, -sr * cp],
        [-(cr * sp * cy + sr * sy), cy * sr - cr * sp * sy, cr * cp],
    ]
    mirror = np.diag([1.0, -1.0, 1.0])
    ours = Pose.from_euler((0.0, 0.0, 0.0), (roll, -pitch, -yaw))
    np.testing.assert_allclose(ours.matrix(), mirror @ np.transpose(rows) @ mirror, atol=1e-15)


def test_seven_numbers_round_trip() -> None:
    pose = random_pose(7)
    array = pose.to_array()
    assert array.shape == (7,)
    assert array.dtype == np.float64
    assert Pose.from_array(array) == pose
    assert Pose.from_array(array.astype(np.float32)).to_array().tolist() == array.astype(np.float32).tolist()


def test_pose_accepts_any_sequence_and_stores_floats() -> None:
    pose = Pose(np.array([1, 2, 3]), [1, 0, 0, 0])  # type: ignore[arg-type]
    assert pose.pos == (1.0, 2.0, 3.0)
    assert {type(part) for part in (*pose.pos, *pose.rot)} == {float}
    assert hash(pose) == hash(Pose((1, 2, 3)))


def test_pose_is_immutable_picklable_and_copyable() -> None:
    pose = random_pose(1)
    with pytest.raises(FrozenInstanceError):
        pose.pos = (0.0, 0.0, 0.0)  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(pose)) == pose
    assert copy.deepcopy(pose) == pose


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"pos": (1.0, 2.0)}, r"Pose\.pos: got \(1\.0, 2\.0\), expected 3 finite numbers \(m\)"),
        ({"pos": (1.0, float("nan"), 0.0)}, r"Pose\.pos: got \(1\.0, nan, 0\.0\), expected 3 finite"),
        ({"pos": "abc"}, r"Pose\.pos: got 'abc', expected 3 finite"),
        ({"pos": 3.0}, r"Pose\.pos: got 3\.0, expected 3 finite"),
        (
            {"rot": (1.0, 0.0, 0.0)},
            r"Pose\.rot: got .*, expected 4 finite numbers \(wxyz\)\. Pose\.from_euler accepts roll",
        ),
        ({"rot": (0.0, 0.0, 0.0, 0.0)}, r"Pose\.rot: .* unit quaternion \(w, x, y, z\), not one of length 0"),
        ({"rot": (1.0, 1.0, 0.0, 0.0)}, r"not one of length 1\.41421\. Divide it by its length"),
        ({"rot": (1.002, 0.0, 0.0, 0.0)}, r"not one of length 1\.002"),
    ],
)
def test_invalid_pose_is_refused(kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        Pose(**kwargs)  # type: ignore[arg-type]


def test_invalid_pose_array_is_refused() -> None:
    with pytest.raises(sn.ConfigError, match=r"Pose\.from_array: got \(6,\), expected an array of shape \(7,\)"):
        Pose.from_array(np.zeros(6))


def test_only_poses_can_be_chained() -> None:
    with pytest.raises(TypeError):
        Pose() @ np.zeros(3)  # type: ignore[operator]
