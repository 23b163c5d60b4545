"""The magnetometer, checked against SciPy rotations, closed forms of a dipole, an ellipsoid-fit calibration, and
MuJoCo.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]

FIELD = (21.5, -1.2, -42.7)
"""Flux in Zurich, uT, in a world with x to the north and y to the west."""
STRENGTH = float(np.linalg.norm(FIELD))
EPS = 2.0**-24
SOFT = (1.06, 0.95, 1.02, 0.03, -0.02, 0.04)
HARD = (12.0, -30.0, 7.5)


def matrix(six: Any) -> Array:
    xx, yy, zz, xy, xz, yz = six
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], np.float64)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def turned_engine(envs: int, seed: int = 1, **kwargs: Any) -> tuple[sn.TensorEngine, Rotation]:
    """Return an engine whose body has a different attitude in each env."""
    attitudes = Rotation.random(envs, rng=np.random.default_rng(seed))
    engine = sn.TensorEngine(envs, 0.01, provides=("pose",), **kwargs)
    engine.body_quat_w = attitudes.as_quat(scalar_first=True)[:, None]
    return engine, attitudes


def reading(engine: sn.TensorEngine, seed: int = 0, **kwargs: Any) -> Array:
    cfg = sn.MagnetometerCfg(**{"body": "body", "magnetic_field": FIELD, **kwargs})
    return numpy(sn.Scene(engine, [cfg], seed=seed)["magnetometer"].data.mag_b)


# Truth ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["config", "engine"])
def test_flux_is_read_in_the_sensors_frame(given: str) -> None:
    """In every attitude, on a rotated mount, the reading is R^-1 B; the config's field overrides the engine's."""
    mount = Rotation.from_euler("xyz", (0.3, -1.1, 2.0))
    engine, attitudes = turned_engine(64, magnetic=FIELD if given == "engine" else (9.0, 9.0, 9.0))
    offset = sn.OffsetCfg(rot=tuple(mount.as_quat(scalar_first=True).tolist()))
    read = reading(engine, offset=offset, magnetic_field=None if given == "engine" else FIELD)
    np.testing.assert_allclose(read, (attitudes * mount).inv().apply(FIELD), atol=30 * EPS * STRENGTH)


def test_each_env_can_have_its_own_field() -> None:
    """The engine's flux is read per env at every sample, and plural mounts have an axis."""
    engine = sn.TensorEngine(3, 0.01, bodies=("a", "b"), magnetic=(0.0, 0.0, 0.0))
    scene = sn.Scene(engine, [sn.MagnetometerCfg(bodies=".*")])
    engine.magnetic_w = [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]
    scene.update()
    assert scene["magnetometer"].data.mag_b.shape == (3, 2, 3)
    assert scene["magnetometer"].data.mag_b[:, 1].tolist() == [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]


def test_missing_magnetic_field_is_refused() -> None:
    """An engine without a magnetic field rejects a magnetometer that has no field in its config."""
    engine = sn.TensorEngine(1, 0.01, magnetic=None)
    with pytest.raises(sn.UnsupportedError, match="requires MAGNETIC"):
        sn.Scene(engine, [sn.MagnetometerCfg(body="body")])


def test_magnetometer_equals_mujocos() -> None:
    """On a tumbling body of MuJoCo the truth matches MuJoCo's sensor at the same site."""
    model = """<mujoco><option timestep="0.002" magnetic="0.21 -0.03 -0.42"/><worldbody>
      <body pos="0 0 2"><freejoint/><geom type="box" size=".1 .2 .05"/>
      <site name="mag" pos=".05 .02 0" euler="20 -40 110"/></body></worldbody>SENSOR</mujoco>"""
    engine = sn.MujocoEngine(model.replace("SENSOR", ""), num_envs=3)
    scene = sn.Scene(engine, [sn.MagnetometerCfg(site="mag", hard_iron=0.1, soft_iron=SOFT)])
    qvel = np.random.default_rng(4).normal(size=(3, 6)) * 4.0
    scene.reset(qvel=qvel)
    native = mujoco.MjModel.from_xml_string(model.replace("SENSOR", '<sensor><magnetometer site="mag"/></sensor>'))
    data = mujoco.MjData(native)
    for _ in range(20):
        scene.step(substeps=5)
        truth = numpy(scene["magnetometer"].ground_truth.mag_b)
        measured = numpy(scene["magnetometer"].data.mag_b)
        for env in range(3):
            data.qpos[:], data.qvel[:] = engine.qpos[env].numpy(), engine.qvel[env].numpy()
            mujoco.mj_forward(native, data)
            np.testing.assert_allclose(truth[env], data.sensordata, atol=1e-6)
            np.testing.assert_allclose(measured[env], matrix(SOFT) @ data.sensordata + 0.1, atol=1e-6)


# Dipoles --------------------------------------------------------------------------------------------------------------


def dipole_flux(at: Array, pos: Any, moment: Any) -> Array:
    """Return mu0/4pi (3 r (m.r)/r^5 - m/r^3), T, in float64."""
    r, m = at - np.asarray(pos), np.asarray(moment)
    distance = np.linalg.norm(r, axis=-1, keepdims=True)
    along = (r * m).sum(-1, keepdims=True)
    return np.asarray(1e-7 * (3.0 * r * along / distance**5 - m / distance**3))


def test_magnets_in_the_world_add_their_dipole_field() -> None:
    """Two dipoles and the Earth's field add up at every position and attitude, in truth and measurement."""
    engine, attitudes = turned_engine(64)
    places = np.random.default_rng(5).normal(size=(64, 3)) * 2.0
    engine.body_pos_w = places[:, None]
    magnets = [((0.5, -1.0, 0.2), (30.0, 5.0, -20.0)), ((-2.0, 0.0, 1.0), (0.0, 0.0, 80.0))]
    dipoles = tuple(sn.MagneticDipole(pos=pos, moment=moment) for pos, moment in magnets)
    cfg = sn.MagnetometerCfg(body="body", magnetic_field=FIELD, unit="uT", dipoles=dipoles)
    scene = sn.Scene(engine, [cfg])
    flux = FIELD + 1e6 * sum(dipole_flux(places, pos, moment) for pos, moment in magnets)
    expected = attitudes.inv().apply(flux)
    for data in (scene["magnetometer"].data, scene["magnetometer"].ground_truth):
        # the rounding of the position at a distance d enters the field to the third power
        np.testing.assert_allclose(numpy(data.mag_b), expected, atol=60 * EPS * float(np.abs(flux).max()))


@pytest.mark.parametrize(("unit", "tesla"), [("T", 1.0), ("uT", 1e-6), ("nT", 1e-9), ("G", 1e-4), ("mG", 1e-7)])
def test_a_dipole_has_its_field_in_tesla_and_is_converted(unit: Any, tesla: float) -> None:
    """A magnet of 1 A m^2 has 0.2 uT on its axis at 1 m, and half of that, reversed, beside it, in any unit."""
    engine = sn.TensorEngine(2, 0.01, provides=("pose",))
    engine.body_pos_w = [[[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]]
    magnet = sn.MagneticDipole(pos=(0.0, 0.0, 0.0), moment=(0.0, 0.0, 1.0))
    read = reading(engine, magnetic_field=(0.0, 0.0, 0.0), unit=unit, dipoles=(magnet,)) * tesla
    np.testing.assert_allclose(read, [[0.0, 0.0, 2e-7], [0.0, 0.0, -1e-7]], rtol=1e-6, atol=1e-20)


def test_inside_a_magnet_the_field_is_uniform_and_finite() -> None:
    """Within the radius the flux is 2 mu0/4pi m/radius^3 everywhere: on the axis it is continuous at the surface."""
    engine = sn.TensorEngine(4, 0.01, provides=("pose",))
    engine.body_pos_w = [[[0.0, 0.0, 0.0]], [[0.02, 0.01, 0.0]], [[0.0, 0.0, 0.0499]], [[0.0, 0.0, 0.0501]]]
    magnet = sn.MagneticDipole(pos=(0.0, 0.0, 0.0), moment=(0.0, 0.0, 2.0), radius=0.05)
    read = reading(engine, magnetic_field=(0.0, 0.0, 0.0), unit="T", dipoles=(magnet,))
    uniform = 2.0 * 1e-7 * 2.0 / 0.05**3
    np.testing.assert_allclose(read[:3], [[0.0, 0.0, uniform]] * 3, rtol=1e-6)
    assert read[3, 2] == pytest.approx(uniform, rel=0.01)


# Iron -----------------------------------------------------------------------------------------------------------------


def ellipsoid_fit(points: Array, strength: float) -> tuple[Array, Array]:
    """Return A and b of points A m + b, |m| = strength, A symmetric: least squares for x'Qx + 2 u'x = 1."""
    x, y, z = (points / strength).T
    design = np.stack([x * x, y * y, z * z, 2 * x * y, 2 * x * z, 2 * y * z, 2 * x, 2 * y, 2 * z], axis=-1)
    fit = np.linalg.lstsq(design, np.ones(len(points)), rcond=None)[0]
    q, u = matrix(fit[:6]), fit[6:]
    centre = -np.linalg.solve(q, u)
    shape = np.linalg.inv(q / (1.0 + centre @ q @ centre))
    return np.real(sqrtm(shape)), centre * strength


@pytest.mark.parametrize(("noise", "bound"), [(None, 1e-4), (0.05, 0.01)])
def test_ellipsoid_fit_recovers_soft_and_hard_iron(noise: float | None, bound: float) -> None:
    """A calibration over 600 random attitudes returns the configured A and b, to 1e-4 without and 1 % with noise."""
    engine, _ = turned_engine(600, seed=6)
    read = reading(engine, hard_iron=HARD, soft_iron=SOFT, noise=noise)
    soft, hard = ellipsoid_fit(read, STRENGTH)
    assert np.abs(soft - matrix(SOFT)).max() < bound
    assert np.abs(hard - HARD).max() < bound * np.linalg.norm(HARD)
    assert np.ptp(np.linalg.norm(read, axis=1)) > 0.2 * STRENGTH, "the errors are meant to be large"


def test_iron_is_matrix_times_field_plus_offset_in_the_measured_branch_only() -> None:
    """The measurement is A m + b for every attitude, also for an asymmetric matrix; the truth stays m."""
    engine, attitudes = turned_engine(32)
    full = ((1.05, 0.02, -0.03), (0.01, 0.9, 0.04), (-0.02, 0.05, 1.1))
    cfgs = [
        sn.MagnetometerCfg(name="six", body="body", magnetic_field=FIELD, hard_iron=HARD, soft_iron=SOFT),
        sn.MagnetometerCfg(name="nine", body="body", magnetic_field=FIELD, hard_iron=HARD, soft_iron=full),
        sn.MagnetometerCfg(name="hard", body="body", magnetic_field=FIELD, hard_iron=HARD),
        sn.MagnetometerCfg(name="soft", body="body", magnetic_field=FIELD, soft_iron=SOFT),
    ]
    scene = sn.Scene(engine, cfgs)
    true = attitudes.inv().apply(FIELD)
    none = np.zeros(3)
    for name, a, b in (("six", matrix(SOFT), HARD), ("nine", np.array(full), HARD), ("hard", np.eye(3), HARD),
                       ("soft", matrix(SOFT), none)):  # fmt: skip
        np.testing.assert_allclose(numpy(scene[name].data.mag_b), true @ a.T + b, atol=60 * EPS * STRENGTH)
        np.testing.assert_allclose(numpy(scene[name].ground_truth.mag_b), true, atol=30 * EPS * STRENGTH)


def drawn_iron(**kwargs: Any) -> tuple[Array, Array]:
    """Return A [env, mount, 3, 3] and b [env, mount, 3] drawn by 3000 envs, read off with unit fields and zero
    field.
    """
    engine = sn.TensorEngine(3000, 0.01, bodies=("a", "b"), provides=("pose",))
    fields = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0)]
    read = [reading(engine, body=None, bodies=".*", magnetic_field=field, **kwargs) for field in fields]
    return np.stack(read[:3], axis=-1) - read[3][..., None], read[3]


def test_drawn_soft_iron_is_symmetric_with_its_distribution() -> None:
    """The six numbers of A - I are independent, with the configured deviation, in every env and mount."""
    soft, hard = drawn_iron(soft_iron=sn.Normal(0.0, 0.02))
    assert not hard.any()
    np.testing.assert_allclose(soft, soft.swapaxes(-1, -2), atol=1e-7)
    six = (soft - np.eye(3))[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].reshape(len(soft), 12)  # mounts side by side
    assert six.std(axis=0) == pytest.approx(np.full(12, 0.02), rel=5 / math.sqrt(2 * len(six)))
    assert np.abs(np.corrcoef(six.T) - np.eye(12)).max() < 5 / math.sqrt(len(six))


def test_drawn_hard_iron_has_its_distribution() -> None:
    """Draws are uniform per axis within their bounds; from a list of vectors, a whole vector is chosen."""
    low, high = np.array([-5.0, 0.0, 10.0]), np.array([5.0, 1.0, 20.0])
    soft, hard = drawn_iron(hard_iron=sn.Uniform(tuple(low), tuple(high)))
    np.testing.assert_allclose(soft, np.broadcast_to(np.eye(3), soft.shape), atol=4e-6)
    place = (hard.reshape(-1, 3) - low) / (high - low)
    assert place.min() >= 0.0 and place.max() <= 1.0
    assert place.mean(axis=0) == pytest.approx(np.full(3, 0.5), abs=5 * math.sqrt(1 / 12 / len(place)))
    _, chosen = drawn_iron(hard_iron=sn.Choice(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))))
    rows, counts = np.unique(chosen.reshape(-1, 3), axis=0, return_counts=True)
    assert rows.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert counts[0] == pytest.approx(3000, abs=5 * math.sqrt(6000 / 4))


def test_iron_is_constant_in_an_episode_and_redrawn_at_a_reset() -> None:
    """The distortion is constant over ticks; a reset of one env redraws it in that env only."""
    engine = sn.TensorEngine(3, 0.01, provides=("pose",))
    cfg = sn.MagnetometerCfg(
        body="body", magnetic_field=FIELD, hard_iron=sn.Normal(0, 5), soft_iron=sn.Uniform(-0.1, 0.1)
    )
    scene = sn.Scene(engine, [cfg], seed=2)
    first = scene["magnetometer"].read().mag_b
    for _ in range(3):
        scene.update()
        assert torch.equal(scene["magnetometer"].data.mag_b, first)
    scene.reset([1])
    again = scene["magnetometer"].read().mag_b
    assert torch.equal(again[[0, 2]], first[[0, 2]])
    assert (again[1] - first[1]).abs().min() > 1e-3


def test_noise_and_quantisation_come_after_the_iron() -> None:
    """The reading is a multiple of the resolution, and the noise keeps its deviation, unscaled by A."""
    engine = sn.TensorEngine(4000, 0.01, provides=("pose",))
    read = reading(engine, soft_iron=(2.0, 2.0, 2.0, 0.0, 0.0, 0.0), hard_iron=0.07, noise=0.5, resolution=0.15)
    steps = read / 0.15
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    white = math.sqrt(0.5**2 + 0.15**2 / 12)
    assert (read - 2.0 * np.array(FIELD) - 0.07).std() == pytest.approx(white, rel=5 / math.sqrt(2 * 12000))


# Config ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hard_iron": (1.0, 2.0)}, r"hard_iron: got \(1\.0, 2\.0\), expected a number, three numbers"),
        ({"soft_iron": 0.1}, "soft_iron: got 0.1, expected six numbers"),
        ({"soft_iron": (0.0, 0.0, 0.0, 0.1, 0.0, 0.0)}, "positive definite.*Give A, not A - I"),
        ({"soft_iron": ((1.0, 0.0), (0.0, 1.0))}, "a 3 x 3 matrix"),
        ({"soft_iron": sn.Normal(1.0, 0.1)}, "deviations below 1/3.*A - I, not of A"),
        ({"soft_iron": sn.Uniform(-0.4, 0.1)}, "deviations below 1/3"),
        ({"soft_iron": sn.Normal((0.0, 0.0, 0.0), 0.1)}, "a distribution of numbers, or of six"),
        ({"unit": "tesla"}, "unit: got 'tesla'"),
        ({"magnetic_field": (0.0, math.nan, 0.0)}, "magnetic_field: got .*, expected three finite numbers"),
        (
            {"dipoles": (sn.MagneticDipole(pos=(0, 0, 0), moment=(1, 0, 0)),)},
            "dipoles: .*expected `unit` together with dipoles.*unit='T'",
        ),
    ],
)
def test_wrong_configs_are_refused(given: dict[str, Any], message: str) -> None:
    """A wrong size, a missing identity or a dipole without a unit raises an error that states the accepted values."""
    with pytest.raises(sn.ConfigError, match=message):
        sn.MagnetometerCfg(body="body", **given)


def test_a_dipole_without_a_size_is_refused() -> None:
    """The radius of a dipole is above zero."""
    with pytest.raises(sn.ConfigError, match=r"radius: got 0\.0, expected a finite radius > 0"):
        sn.MagneticDipole(pos=(0.0, 0.0, 0.0), moment=(1.0, 0.0, 0.0), radius=0.0)
    with pytest.raises(sn.ConfigError, match=r"moment: got .*, expected three finite numbers"):
        sn.MagneticDipole(pos=(0.0, 0.0, 0.0), moment=(math.inf, 0.0, 0.0))


def test_unit_is_given_in_the_spec() -> None:
    """The field's spec has the unit that the config names, and `field` if it names none."""
    engine = sn.TensorEngine(1, 0.01)
    cfgs = [sn.MagnetometerCfg(name="a", body="body", unit="uT"), sn.MagnetometerCfg(name="b", body="body")]
    scene = sn.Scene(engine, cfgs)
    assert [scene[name].specs[0].unit for name in "ab"] == ["uT", "field"]


def test_non_finite_state_is_flagged() -> None:
    """NaN in one env's pose makes that env's sample invalid, and a warning says so."""
    engine = sn.TensorEngine(2, 0.01)
    scene = sn.Scene(engine, [sn.MagnetometerCfg(body="body")])
    engine.body_quat_w[1] = math.nan
    scene.update()
    with pytest.warns(sn.NonFiniteStateWarning):
        assert scene["magnetometer"].valid.tolist() == [True, False]


def test_debug_draw_shows_the_flux_direction() -> None:
    """The debug arrow points along the world's flux, 0.2 m long, for any attitude and distortion."""
    engine, _ = turned_engine(2)
    engine.body_pos_w = (1.0, 2.0, 3.0)
    mag = sn.Scene(engine, [sn.MagnetometerCfg(body="body", magnetic_field=(0.0, 3.0, 4.0), hard_iron=9.0)])[
        "magnetometer"
    ]
    (arrows,) = mag.debug_draw()
    np.testing.assert_allclose(arrows.data, [[[1.0, 2.0, 3.0], [1.0, 2.12, 3.16]]] * 2, atol=1e-6)


def test_contract_holds() -> None:
    """Every rule of `check_sensor` holds, with both distortions drawn and a magnet in the world."""
    magnet = sn.MagneticDipole(pos=(0.4, 0.0, 0.0), moment=(100.0, 0.0, 0.0))
    check_sensor(
        sn.MagnetometerCfg(
            sites="site",
            unit="G",
            dipoles=(magnet,),
            hard_iron=sn.Normal(0.0, 0.1),
            soft_iron=sn.Uniform(-0.05, 0.05),
            stages=(sn.stages.Saturation(high=5.0),),
        )
    )
