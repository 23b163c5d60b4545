"""Stereo depth: noise, quantum, search range, shadows, grazing holes and steps, checked against stereo geometry."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from depth_camera import Z, camera, cosines, measured, plane, step, world

import sensorium as sn

F, B = 424.0, 0.05
FB = F * B
PHI = statistics.NormalDist().cdf


def stereo(**fields: Any) -> sn.stages.StereoDepth:
    """Return a pair of cameras without errors other than the given ones."""
    return sn.stages.StereoDepth(**{"baseline": B, "focal_px": F, "shadow": False, **fields})


def test_a_perfect_pair_measures_the_truth() -> None:
    """Without errors the depth is the true one, to the rounding of two divisions."""
    image = plane(48, 64, F, 2.0, math.radians(50.0))
    np.testing.assert_allclose(measured(image, stereo())[0], image, rtol=3e-7)


def test_the_noise_grows_with_the_square_of_the_depth() -> None:
    """Log sd over log z has slope 2.00 +- 0.05 and sd = z^2 s_d / (f B) within 5 %, with the quantum of 1/32 px on."""
    depths = np.array([0.5, 1.0, 2.0, 4.0, 6.0])
    sds = [measured(np.full((48, 64), z), stereo(noise_px=0.08, quantum=1 / 32), envs=4).std() for z in depths]
    slope, intercept = np.polyfit(np.log(depths), np.log(sds), 1)
    assert slope == pytest.approx(2.0, abs=0.05)
    assert math.exp(intercept) == pytest.approx(0.08 / FB, rel=0.05)


@pytest.mark.parametrize("quantum", [1 / 8, 1 / 32])
def test_disparities_are_multiples_of_the_quantum(quantum: float) -> None:
    """Each measured disparity is a multiple of the quantum, and without noise the nearest one to the true disparity."""
    image = plane(24, 64, F, 3.0, math.radians(30.0))
    for noise in (0.0, 0.2):
        d = FB / measured(image, stereo(noise_px=noise, quantum=quantum))[0] / quantum
        np.testing.assert_allclose(d, np.round(d), atol=1e-6 * d.max())
    exact = FB / image / quantum
    np.testing.assert_allclose(
        np.round(FB / measured(image, stereo(quantum=quantum))[0] / quantum), exact, atol=0.5 + 1e-4
    )


def test_background_left_of_an_occluder_is_invalid() -> None:
    """The band is f B (1/near - 1/far) px wide, up to a pixel of rounding, and ends at the object."""
    errors = []
    for far in (2.0, 2.3, 2.7, 3.3, 4.1):
        image = step(6, 120, 1.0, far, 60, 110)
        holes = measured(image, stereo(shadow=True))[0] == 0.0
        assert (holes == holes[0]).all()
        columns = np.flatnonzero(holes[0, 30:]) + 30
        width = FB * (1.0 - 1.0 / far)
        assert columns[-1] == 59 and (np.diff(columns) == 1).all()
        errors.append(columns.size - width)
        assert abs(errors[-1]) <= 1.0
    assert abs(np.mean(errors)) < 0.5


def test_a_thin_occluder_hides_no_more_than_its_own_width() -> None:
    """A pole of 4 px before a far wall hides 4 px of it, at the pole's other image: 14 px to the left of the pole."""
    holes = measured(step(4, 120, 1.0, 3.0, 60, 64), stereo(shadow=True))[0] == 0.0
    columns = np.flatnonzero(holes[1, 30:]) + 30
    shift = FB * (1.0 - 1.0 / 3.0)
    assert columns.size == 4 and abs(columns[0] - (60 - shift)) <= 1.0


def test_the_left_border_is_not_seen_by_both_cameras() -> None:
    """f B / z columns along the left border have no value."""
    for z in (0.7, 1.5, 3.0):
        holes = measured(np.full((4, 100), z), stereo(shadow=True))[0] == 0.0
        assert (holes == holes[0]).all() and not holes[0, 60:].any()
        assert holes[0].sum() == pytest.approx(FB / z, abs=0.5)


def test_a_slanted_surface_casts_no_shadow_on_itself() -> None:
    """A wall visible to both cameras is complete, on either slant, up to 75 degrees."""
    for degrees in (-75.0, -60.0, 60.0, 75.0):
        holes = measured(plane(4, 200, F, 1.5, math.radians(degrees)), stereo(shadow=True))[0] == 0.0
        assert not holes[:, 60:].any(), degrees


def test_depths_out_of_range_are_invalid() -> None:
    """Values end at f B / max_disparity and at max_range; a hole reports hole_value."""
    z = np.tile(np.linspace(0.1, 5.0, 400), (2, 1))
    out = measured(z, stereo(max_disparity=126.0, max_range=3.0))[0]
    seen = (z > FB / 126.0) & (z < 3.0)
    np.testing.assert_allclose(out[seen], z[seen], rtol=3e-7)
    assert (out[~seen] == 0.0).all() and 0 < seen.sum() < seen.size
    assert (measured(z, stereo(max_disparity=126.0, hole_value=math.inf))[0][z < FB / 126.0] == math.inf).all()


def fill(angle: float, images: Any = None, **fields: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of values per pixel over 400 samples, and the cosines of the pixels."""
    images = plane(16, 24, F, 2.0, angle) if images is None else images
    out = measured(images, stereo(grazing=(0.2, 0.5), **fields), envs=400)
    return (out > 0.0).mean(axis=0), cosines(16, 24, F, angle)


def test_the_fill_rate_falls_with_the_incidence_as_configured() -> None:
    """None is filled below the cosine 0.2, all above 0.5, proportionally between: 4.9 sd of a binomial at each
    angle.
    """
    rates = []
    for degrees in (0.0, 50.0, 58.0, 64.0, 70.0, 76.0, 82.0):
        share, cosine = fill(math.radians(degrees))
        expected = np.clip((cosine - 0.2) / 0.3, 0.0, 1.0)
        bound = 4.9 * np.sqrt((expected * (1.0 - expected)).sum() / 400.0) / share.size + 1e-4
        assert share.mean() == pytest.approx(expected.mean(), abs=bound), degrees
        assert (share[cosine < 0.199] == 0.0).all() and (share[cosine > 0.501] == 1.0).all()
        rates.append(share.mean())
    assert rates[0] == rates[1] == 1.0 and rates[-1] == 0.0 and (np.diff(rates) <= 0.0).all()


def test_true_normals_are_used_if_available() -> None:
    """A wall seen at 66 degrees by its normals is filled accordingly, for any rotation of the camera."""
    angle, half = math.radians(66.0), math.radians(35.0)
    quat = np.array([math.cos(half), *(math.sin(half) * np.array([0.36, 0.48, 0.8]))])
    w, axis = quat[0], quat[1:]
    normal = np.array([-math.sin(angle), 0.0, math.cos(angle)])
    normal_w = normal + 2.0 * w * np.cross(axis, normal) + 2.0 * np.cross(axis, np.cross(axis, normal))
    images = {
        Z: np.full((16, 24), 2.0),
        "normals": np.broadcast_to(normal_w, (16, 24, 3)),
        "quat_w_ros": quat,
    }
    share, cosine = fill(angle, images, fields=(Z,))
    expected = np.clip((cosine - 0.2) / 0.3, 0.0, 1.0)
    bound = 4.9 * np.sqrt((expected * (1.0 - expected)).sum() / 400.0) / share.size
    assert 0.5 < expected.mean() < 0.9
    assert share.mean() == pytest.approx(expected.mean(), abs=bound)


@pytest.mark.parametrize("sd", [0.3, 0.5, 1.2])
def test_lookup_blurs_a_step(sd: float) -> None:
    """A pixel k + 1/2 px beside the step shows the other side with probability Phi(-(k + 1/2) / sd)."""
    envs, rows = 100, 40
    out = measured(step(rows, 40, 1.0, 2.0, 20, 40), stereo(edge_fattening=sd), envs=envs)
    near = (np.abs(out - 1.0) < 1e-3).mean(axis=(0, 1))
    assert ((np.abs(out - 1.0) < 1e-3) | (np.abs(out - 2.0) < 1e-3)).all()
    expected = np.array([PHI((u + 0.5 - 20.0) / sd) for u in range(40)])
    bound = 4.9 * np.sqrt(expected * (1.0 - expected) / (envs * rows)) + 1e-3
    assert (np.abs(near - expected) <= bound).all()


def test_lookup_adds_no_error_within_a_surface() -> None:
    """On a slanted wall edge fattening has no effect."""
    image = plane(30, 40, F, 2.0, math.radians(60.0))
    np.testing.assert_array_equal(measured(image, stereo(edge_fattening=2.0)), measured(image, stereo()))


@pytest.mark.parametrize("window", [3, 7])
def test_noise_is_correlated_over_the_window(window: int) -> None:
    """Pixels k apart are correlated by 1 - k/window, and not beyond the window; the border keeps the variance."""
    out = measured(np.full((40, 48), 1.0), stereo(noise_px=0.1, window=window), envs=200)
    noise = FB / out - FB
    assert noise.std() == pytest.approx(0.1, rel=0.02)
    assert noise[:, :, 0].std() == pytest.approx(0.1, rel=0.1) and noise[:, -1].std() == pytest.approx(0.1, rel=0.1)
    for k in range(window + 2):
        for axis in (1, 2):
            a, b = np.take(noise, range(k, noise.shape[axis]), axis), np.take(noise, range(noise.shape[axis] - k), axis)
            assert (a * b).mean() / 0.01 == pytest.approx(max(1.0 - k / window, 0.0), abs=0.05), (k, axis)


def test_a_share_of_the_noise_changes_slowly() -> None:
    """With share 0.6 two samples correlate by at most 0.6, and not after twice the time; the sd is unchanged."""
    samples, size = 41, 32 * 32 * 8
    stage = stereo(noise_px=0.1, slow_share=0.6, slow_time=0.1)  # ten samples
    noise = (FB / measured(np.full((32, 32), 1.0), stage, envs=8, samples=samples) - FB).reshape(samples, size)
    np.testing.assert_allclose(noise.std(axis=1), 0.1, rtol=0.05)  # 6 sd of an estimate from 8192 pixels

    def correlation(k: int, at: int) -> float:
        return float((noise[at] * noise[at + k]).mean()) / 0.01

    knot = 9  # update 10 is the first tick of a slow draw
    for k, x in ((1, 0.1), (5, 0.5)):
        expected = 0.6 * (1.0 - x) / math.hypot(1.0 - x, x)
        assert correlation(k, knot) == pytest.approx(expected, abs=0.06)
    assert abs(correlation(20, knot)) < 0.06


def test_pixel_locking_is_a_sine_of_the_fraction() -> None:
    """The error of the disparity is locking sin(2 pi d)."""
    z = FB / np.tile(np.linspace(8.0, 12.0, 201), (2, 1))
    d = FB / measured(z, stereo(locking=0.05))[0]
    np.testing.assert_allclose(d - FB / z, 0.05 * np.sin(2.0 * np.pi * FB / z), atol=1e-4)


def test_the_field_of_view_gives_the_focal_length() -> None:
    """fov_deg=90 at 64 px is f = 32 px, and the noise corresponds to it."""
    by_fov = sn.stages.StereoDepth(baseline=B, fov_deg=90.0, noise_px=0.05, shadow=False)
    by_focal = sn.stages.StereoDepth(baseline=B, focal_px=32.0, noise_px=0.05, shadow=False)
    image = np.full((8, 64), 0.3)
    np.testing.assert_allclose(measured(image, by_fov), measured(image, by_focal), rtol=1e-5)


def test_the_resolution_knob_is_the_unit_of_the_output() -> None:
    """Depth cameras report whole millimetres: resolution=0.001 rounds the stage's measurement."""
    out = measured(np.full((16, 16), 2.0), stereo(noise_px=0.08), resolution=0.001) * 1000.0
    np.testing.assert_allclose(out, np.round(out), atol=2e-4)
    assert len(np.unique(np.round(out))) > 10


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"baseline": 0.0}, "number > 0"),
        ({"focal_px": None}, "exactly one of focal_px and fov_deg"),
        ({"fov_deg": 80.0}, "exactly one of focal_px and fov_deg"),
        ({"focal_px": None, "fov_deg": 180.0}, r"\(0, 180\)"),
        ({"noise_px": -0.1}, ">= 0"),
        ({"window": 4}, "odd number"),
        ({"grazing": (0.5, 0.2)}, "c0 <= c1"),
        ({"hole_value": math.nan}, "not NaN"),
        ({"slow_share": 1.5}, r"share in \[0, 1\]"),
        ({"max_range": 0.0}, "> 0"),
        ({"principal_point": (math.inf, 0.0)}, "finite numbers, px"),
    ],
)
def test_impossible_numbers_are_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        stereo(**fields)


def of_two(image: Any, stage: sn.stages.StereoDepth, envs: int = 1) -> np.ndarray:
    """Return the measurements of two cameras of one sensor, `[env, mount, height, width]`."""
    scene = world(camera({"flat": image}, stage.replace(fields=("flat",))), envs)
    scene.update()
    return scene["camera"].data.flat.double().numpy()


def test_mounts_draw_independently() -> None:
    """Two equal cameras of one sensor have different noise of equal size."""
    out = of_two(np.full((2, 20, 30), 1.0), stereo(noise_px=0.1, window=3), envs=20)
    assert out.shape == (20, 2, 20, 30)
    noise = FB / out - FB
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 0.05 * 0.01
    assert noise.std() == pytest.approx(0.1, rel=0.05)


def test_a_shadow_stays_in_its_row_and_mount() -> None:
    """An object in one row of one of two images has its shadow there."""
    image = np.full((2, 5, 100), 3.0)
    image[1, 2, 60:90] = 1.0
    holes = of_two(image, stereo(shadow=True))[0][..., 10:] == 0.0
    assert holes[1, 2].any() and holes.sum() == holes[1, 2].sum()


def test_incompatible_stage_is_named_at_scene_build() -> None:
    """The length of the ray is rejected, and the error names the intended field."""
    cfg = camera({Z: np.ones((4, 6)), "distance_to_camera": np.ones((4, 6))}, stereo(fields=("distance_to_camera",)))
    with pytest.raises(sn.ConfigError, match=r"z-depth, distance_to_image_plane, since distance_to_camera is"):
        world(cfg)
