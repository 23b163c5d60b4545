"""Splines of poses: against SciPy, difference quotients, and curves with known derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline as SciPySpline
from scipy.spatial.transform import Rotation

from sensorium.geometry.spline import CubicSpline, Motion, PoseSpline

RNG = np.random.default_rng(5)
TIMES = np.cumsum(RNG.uniform(0.05, 0.2, 60))


def turns(times: np.ndarray) -> Rotation:
    """Return an orientation that tumbles about a moving axis."""
    return Rotation.from_rotvec(np.stack([np.sin(times), 0.4 * np.cos(2.0 * times), 0.7 * times], axis=1))


def wxyz(rotation: Rotation) -> np.ndarray:
    return rotation.as_quat()[:, [3, 0, 1, 2]]


def rotation(quat: np.ndarray) -> Rotation:
    return Rotation.from_quat(quat[:, [1, 2, 3, 0]])


def poses() -> PoseSpline:
    pos = np.stack([np.sin(TIMES), np.cos(1.3 * TIMES), 0.1 * TIMES], axis=1)
    return PoseSpline(TIMES, pos, wxyz(turns(TIMES)))


@pytest.mark.parametrize("count", [4, 5, 6, 60])
def test_cubic_spline_is_that_of_scipy(count: int) -> None:
    times, values = TIMES[:count], RNG.normal(size=(count, 3))
    ours, theirs = CubicSpline(times, values), SciPySpline(times, values, bc_type="not-a-knot")
    at = np.concatenate([times, np.linspace(times[0], times[-1], 501)])
    for order, found in enumerate(ours.at(at)):
        expected = theirs(at, order)
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())


def test_curve_passes_through_every_pose() -> None:
    motion = poses().at(TIMES)
    np.testing.assert_allclose(motion.pos[:, 0], np.sin(TIMES), atol=1e-14)
    assert (rotation(motion.quat).inv() * turns(TIMES)).magnitude().max() < 1e-14


def test_rates_are_derivatives_of_the_curve() -> None:
    step, at, curve = 1e-4, np.linspace(TIMES[0] + 0.01, TIMES[-1] - 0.01, 997), poses()
    before, now, after = (curve.at(at + shift) for shift in (-step, 0.0, step))
    for rate, value in (("lin_vel", "pos"), ("lin_acc", "lin_vel"), ("ang_acc", "ang_vel")):
        slope = (getattr(after, value) - getattr(before, value)) / (2.0 * step)
        np.testing.assert_allclose(getattr(now, rate), slope, atol=2e-5)
    turn = (rotation(after.quat) * rotation(before.quat).inv()).as_rotvec() / (2.0 * step)
    np.testing.assert_allclose(now.ang_vel, turn, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(now.quat, axis=1), 1.0, atol=1e-15)


def test_accelerations_are_continuous_at_the_poses() -> None:
    curve, inner = poses(), TIMES[1:-1]
    before, after = curve.at(inner - 1e-9), curve.at(inner + 1e-9)
    for name in Motion._fields:
        np.testing.assert_allclose(getattr(before, name), getattr(after, name), atol=1e-6, err_msg=name)


def test_rates_converge_to_those_of_the_true_motion() -> None:
    """A spin about a tilted axis with an uneven rate: half the distance of the poses gives a quarter of the error."""
    axis, at = np.array([0.36, 0.48, 0.8]), np.linspace(0.0, 4.0, 401)
    errors = []
    for count in (41, 81, 161):
        times = np.linspace(0.0, 4.0, count)
        quat = wxyz(Rotation.from_rotvec((2.0 * times + 0.4 * np.sin(3.0 * times))[:, None] * axis))
        motion = PoseSpline(times, np.zeros((count, 3)), quat).at(at)
        errors.append(np.abs(motion.ang_acc + 3.6 * np.sin(3.0 * at)[:, None] * axis).max())
    assert errors[2] < 0.02 and errors[1] < errors[0] / 3.5 and errors[2] < errors[1] / 3.5


def test_signs_of_quaternions_do_not_matter() -> None:
    quat, at = wxyz(turns(TIMES)), np.linspace(TIMES[0], TIMES[-1], 301)
    signs = RNG.choice([-1.0, 1.0], len(TIMES))[:, None]
    signs[0] = 1.0
    plain, flipped = (PoseSpline(TIMES, np.zeros((len(TIMES), 3)), q).at(at) for q in (quat, signs * quat))
    for name in Motion._fields:
        np.testing.assert_array_equal(getattr(plain, name), getattr(flipped, name))


def test_curve_does_not_depend_on_the_frame() -> None:
    """The curve through turned poses is the turned curve, and its rates are turned."""
    other, at = Rotation.from_rotvec([0.3, -1.2, 0.5]), np.linspace(TIMES[0], TIMES[-1], 301)
    here = PoseSpline(TIMES, np.zeros((len(TIMES), 3)), wxyz(turns(TIMES))).at(at)
    there = PoseSpline(TIMES, np.zeros((len(TIMES), 3)), wxyz(other * turns(TIMES))).at(at)
    assert (rotation(there.quat).inv() * other * rotation(here.quat)).magnitude().max() < 1e-12
    np.testing.assert_allclose(there.ang_acc, other.apply(here.ang_acc), atol=1e-11)
