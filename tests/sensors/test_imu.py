"""The IMU, checked against kinematics by hand: rotations by SciPy, positions and derivatives in float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.transform import Rotation
from synthetic import same, snapshot

import sensorium as sn

Array = NDArray[np.float64]

G = 9.81
EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
ALL = ("pos_w", "quat_w", "projected_gravity_b", "lin_vel_b", "ang_vel_b", "lin_acc_b", "ang_acc_b", "mag_b")
EVERYTHING: tuple[Any, ...] = ("pose", "velocity", "acceleration", "gravity")
OFFSET = sn.OffsetCfg(pos=(0.2488, 0.00835, 0.04628), rot=(math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)))


def tolerance(*sizes: float, operations: int = 30) -> float:
    """Return the rounding bound of a sum of parts of the given sizes over some tens of float32 operations."""
    return operations * EPS * sum(sizes)


def turns(rng: np.random.Generator, count: int) -> Rotation:
    return Rotation.random(count, rng=rng)


def wxyz(rotation: Rotation) -> Array:
    return np.asarray(rotation.as_quat(scalar_first=True))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(envs: int, dt: float = 0.001, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, dt, **{"provides": EVERYTHING, **kwargs})


def fill(engine: sn.TensorEngine, rng: np.random.Generator) -> dict[str, Array]:
    """Write a random motion state into every body and return it."""
    envs, bodies = engine.body_pos_w.shape[:2]
    state = {
        f"body_{name}_w": rng.normal(size=(envs, bodies, 3))
        for name in ("pos", "lin_vel", "ang_vel", "lin_acc", "ang_acc")
    }
    state["body_quat_w"] = wxyz(turns(rng, envs * bodies)).reshape(envs, bodies, 4)
    for name, values in state.items():
        setattr(engine, name, values)
    return state


# Specific force -------------------------------------------------------------------------------------------------------


def test_rest_reads_g_upwards_in_every_attitude_and_mounting() -> None:
    """At rest the accelerometer, rotated into the world, reads (0, 0, 9.81) for any attitude of body and mount."""
    rng = np.random.default_rng(1)
    mounts = turns(rng, 6)
    sites = {f"imu_{i}": ("body", rng.normal(size=3), wxyz(mounts)[i]) for i in range(6)}
    engine = engine_of(64, sites=sites)
    attitude = turns(rng, 64)
    engine.body_quat_w = wxyz(attitude)[:, None]
    scene = sn.Scene(engine, [sn.ImuCfg(sites="imu_.*")])
    reading = numpy(scene["imu"].data.lin_acc_b)
    for i in range(6):
        world = (attitude * mounts[i]).apply(reading[:, i])
        np.testing.assert_allclose(world, np.tile([0.0, 0.0, G], (64, 1)), atol=tolerance(G))
    assert not numpy(scene["imu"].data.ang_vel_b).any()


def test_free_fall_reads_zero() -> None:
    """A body in free fall reads zero, also while it moves."""
    engine = engine_of(8)
    fill(engine, np.random.default_rng(2))
    engine.body_ang_vel_w = engine.body_ang_acc_w = 0.0
    engine.body_lin_acc_w = (0.0, 0.0, -G)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body")])
    assert numpy(scene["imu"].data.lin_acc_b) == pytest.approx(0.0, abs=tolerance(G))


SPIN, SPIN_UP, RADIUS, LIFT = 5.0, 3.0, 0.4, 0.05


def turntable(dt: float) -> sn.TensorEngine:
    """Return a platter about z at angle w t + alpha t^2 / 2."""

    def motion(t: float) -> dict[str, Any]:
        angle = SPIN * t + 0.5 * SPIN_UP * t * t
        return {
            "body_quat_w": (math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)),
            "body_ang_vel_w": (0.0, 0.0, SPIN + SPIN_UP * t),
            "body_ang_acc_w": (0.0, 0.0, SPIN_UP),
        }

    return engine_of(2, dt, motion=motion)


@pytest.mark.parametrize("source", ["engine", "difference"])
def test_a_turntable_reads_centripetal_and_euler_acceleration(source: Any) -> None:
    """Off the axis of a turntable the IMU reads (-w^2 r, alpha r, g); by differences up to half a step of jerk."""
    dt, ticks = 0.001, 200
    offset = sn.OffsetCfg(pos=(RADIUS, 0.0, LIFT))
    scene = sn.Scene(turntable(dt), [sn.ImuCfg(body="body", offset=offset, acceleration=source, fields="all",
                                               magnetic_field=(0.0, 0.0, 1.0))])  # fmt: skip
    imu = scene["imu"]
    assert imu.info.notes["acceleration"] == source
    for _ in range(ticks):
        scene.update()
    w = SPIN + SPIN_UP * dt * ticks
    expected = [-w * w * RADIUS, SPIN_UP * RADIUS, G]
    bound = tolerance(w * w * RADIUS, SPIN_UP * RADIUS, G)
    if source == "difference":
        # mean acceleration of the last step: off by at most dt/2 of jerk; velocities are rounded, then divided by dt
        jerk = RADIUS * math.hypot(3 * w * SPIN_UP, w**3)
        bound += 0.5 * dt * jerk + tolerance(w * RADIUS, operations=8) / dt
    np.testing.assert_allclose(numpy(imu.data.lin_acc_b), [expected] * 2, atol=bound)
    np.testing.assert_allclose(numpy(imu.data.lin_vel_b), [[0.0, w * RADIUS, 0.0]] * 2, atol=tolerance(w * RADIUS))
    np.testing.assert_allclose(numpy(imu.data.ang_vel_b), [[0.0, 0.0, w]] * 2, atol=tolerance(w))
    step = tolerance(w, operations=4) / dt if source == "difference" else 0.0
    np.testing.assert_allclose(numpy(imu.data.ang_acc_b), [[0.0, 0.0, SPIN_UP]] * 2, atol=tolerance(SPIN_UP) + step)


def test_every_field_of_a_random_state_follows_rigid_body_kinematics() -> None:
    """All eight fields agree with a float64 evaluation for random poses, velocities, accelerations and mounts."""
    rng = np.random.default_rng(3)
    mount = turns(rng, 1)[0]
    d_body = rng.normal(size=3)
    engine = engine_of(32, magnetic=(0.3, 0.1, 0.5), sites={"imu": ("body", d_body, wxyz(mount))})
    state = {name: values[:, 0] for name, values in fill(engine, rng).items()}
    field, gravity = rng.normal(size=(32, 3)), rng.normal(size=(32, 3)) + np.array([0.0, 0.0, -G])
    engine.magnetic_w, engine.gravity_w = field, gravity
    data = sn.Scene(engine, [sn.ImuCfg(site="imu", fields="all")])["imu"].data

    body = Rotation.from_quat(state["body_quat_w"], scalar_first=True)
    d, w, alpha = body.apply(d_body), state["body_ang_vel_w"], state["body_ang_acc_w"]
    v = state["body_lin_vel_w"] + np.cross(w, d)
    a = state["body_lin_acc_w"] + np.cross(alpha, d) + np.cross(w, np.cross(w, d))
    back = (body * mount).inv()
    expected = {
        "pos_w": state["body_pos_w"] + d,
        "projected_gravity_b": back.apply(gravity / np.linalg.norm(gravity, axis=1, keepdims=True)),
        "lin_vel_b": back.apply(v),
        "ang_vel_b": back.apply(w),
        "lin_acc_b": back.apply(a - gravity),
        "ang_acc_b": back.apply(alpha),
        "mag_b": back.apply(field),
    }
    for name, values in expected.items():
        largest = float(np.abs(values).max()) + 20.0 * (name == "lin_acc_b")
        np.testing.assert_allclose(numpy(getattr(data, name)), values, atol=tolerance(largest), err_msg=name)
    quat, turned = numpy(data.quat_w), wxyz(body * mount)
    np.testing.assert_allclose(quat * np.sign((quat * turned).sum(1, keepdims=True)), turned, atol=tolerance(1.0))


def test_projected_gravity_is_a_direction_or_zero_without_gravity() -> None:
    """Projected gravity is a unit vector in the IMU's frame for any strength of gravity, and 0 without gravity."""
    engine = engine_of(3)
    engine.body_quat_w = wxyz(Rotation.from_euler("x", 90, degrees=True))
    engine.gravity_w = [[0.0, 0.0, -1.62], [0.0, 0.0, -9.81], [0.0, 0.0, 0.0]]
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("projected_gravity_b",))])
    expected = [[0.0, -1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(numpy(scene["imu"].data.projected_gravity_b), expected, atol=tolerance(1.0))


def test_gravity_is_read_per_env_at_every_sample() -> None:
    """Each env has its own gravity, and a change takes effect in the next sample."""
    engine = engine_of(3)
    engine.gravity_w = [[0.0, 0.0, -1.62], [0.0, 0.0, -9.81], [3.7, 0.0, 0.0]]
    scene = sn.Scene(engine, [sn.ImuCfg(body="body")])
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), -numpy(engine.gravity_w), atol=0.0)
    engine.gravity_w[1] = torch.tensor([0.0, 0.0, -20.0])
    scene.update()
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), -numpy(engine.gravity_w), atol=0.0)


@pytest.mark.parametrize("bias", [(0.0, 0.0, 0.0), (0.0, 0.0, 9.81), (1.0, -2.0, 3.0)])
def test_a_gravity_bias_is_added_in_world_axes(bias: Any) -> None:
    """With `gravity_bias` the reading is acceleration plus the bias, both rotated from world axes, with or without
    gravity.
    """
    rng = np.random.default_rng(4)
    engine = engine_of(16, provides=("pose", "velocity", "acceleration"))
    state = fill(engine, rng)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", gravity_bias=bias, fields=("lin_acc_b",))])
    body = Rotation.from_quat(state["body_quat_w"][:, 0], scalar_first=True)
    expected = body.inv().apply(state["body_lin_acc_w"][:, 0] + bias)
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), expected, atol=tolerance(20.0))


# Mounts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["config", "engine"])
def test_a_rotated_mount_on_a_turned_body_composes_body_first(given: str) -> None:
    """A body yawed by 180 deg, with a mount rotated 90 deg about x, reads the field (0.3, 0.1, 0.5) as (-0.3, 0.5,
    0.1).
    """
    field = (0.3, 0.1, 0.5)
    engine = engine_of(1, magnetic=field if given == "engine" else None)
    engine.body_quat_w = wxyz(Rotation.from_euler("z", 180, degrees=True))
    mount = tuple(wxyz(Rotation.from_euler("x", 90, degrees=True)))
    cfg = sn.ImuCfg(body="body", offset=sn.OffsetCfg(rot=mount), magnetic_field=field if given == "config" else None)
    reading = numpy(sn.Scene(engine, [cfg])["imu"].data.mag_b)[0]
    np.testing.assert_allclose(reading, (-0.3, 0.5, 0.1), atol=tolerance(1.0))


def test_magnetic_field_of_the_config_overrides_the_engines() -> None:
    """A `magnetic_field` in the config is used instead of the engine's."""
    scene = sn.Scene(engine_of(1, magnetic=(9.0, 9.0, 9.0)), [sn.ImuCfg(body="body", magnetic_field=(1.0, 2.0, 3.0))])
    assert scene["imu"].data.mag_b.tolist() == [[1.0, 2.0, 3.0]]


def test_an_offset_on_a_body_equals_a_site_there() -> None:
    """A body with an offset reads the same in all fields as a site at that position."""
    engine = engine_of(8, magnetic=(0.3, 0.1, 0.5), sites={"imu_link": ("body", OFFSET.pos, OFFSET.rot)})
    fill(engine, np.random.default_rng(5))
    by_offset = sn.ImuCfg(name="offset", body="body", offset=OFFSET, fields="all")
    by_site = sn.ImuCfg(name="site", site="imu_link", fields="all")
    scene = sn.Scene(engine, [by_offset, by_site])
    for name in ALL:
        one, other = (getattr(scene[cfg].data, name) for cfg in (by_offset, by_site))
        np.testing.assert_allclose(numpy(one), numpy(other), atol=1e-4, err_msg=name)


def test_an_offset_on_a_site_composes() -> None:
    """An offset on a site is expressed in the site's frame."""
    rng = np.random.default_rng(6)
    outer, inner = turns(rng, 2)[0], turns(rng, 2)[1]
    p, q = rng.normal(size=3), rng.normal(size=3)
    sites = {"outer": ("body", p, wxyz(outer)), "composed": ("body", p + outer.apply(q), wxyz(outer * inner))}
    engine = engine_of(4, magnetic=(0.3, 0.1, 0.5), sites=sites)
    fill(engine, rng)
    offset = sn.OffsetCfg(pos=tuple(q.tolist()), rot=tuple(wxyz(inner).tolist()))
    scene = sn.Scene(engine, [sn.ImuCfg(name="a", site="outer", offset=offset, fields="all"),
                              sn.ImuCfg(name="b", site="composed", fields="all")])  # fmt: skip
    for name in set(ALL) - {"quat_w"}:
        one, other = (numpy(getattr(scene[label].data, name)) for label in "ab")
        np.testing.assert_allclose(one, other, atol=tolerance(float(np.abs(other).max()) + 20.0), err_msg=name)
    assert np.abs((numpy(scene["a"].data.quat_w) * numpy(scene["b"].data.quat_w)).sum(1)) == pytest.approx(
        1.0, abs=1e-6
    )


def test_plural_mounts_have_a_mount_axis_and_equal_single_ones() -> None:
    """`bodies=` gives `[env, mount, ...]` in the model's order, bit for bit the reading of one sensor per body."""
    names = ("base", "thigh", "shank")
    engine = engine_of(5, bodies=names, magnetic=(0.3, 0.1, 0.5))
    fill(engine, np.random.default_rng(7))
    plural = sn.ImuCfg(name="all", bodies=".*", offset=OFFSET, fields="all")
    singles = [sn.ImuCfg(name=name, body=name, offset=OFFSET, fields="all") for name in names]
    scene = sn.Scene(engine, [plural, *singles])
    assert scene["all"].info.mounts == names
    assert scene["all"].num_instances == 15
    for field in ALL:
        both = getattr(scene[plural].data, field)
        width = 4 if field == "quat_w" else 3
        assert both.shape == (5, 3, width)
        for i, name in enumerate(names):
            single = getattr(scene[name].data, field)
            assert single.shape == (5, width)
            assert torch.equal(both[:, i], single)


def test_a_plural_selector_of_one_name_keeps_the_mount_axis() -> None:
    """A plural selector that matches one body still gives the mount axis; a singular selector never does."""
    scene = sn.Scene(engine_of(2), [sn.ImuCfg(name="one", body="body"), sn.ImuCfg(name="many", bodies=("body",))])
    assert scene["one"].data.lin_acc_b.shape == (2, 3)
    assert scene["many"].data.lin_acc_b.shape == (2, 1, 3)


@pytest.mark.parametrize("selector", [{"body": "world"}, {"body": None}, {"prim_path": "/World"}])
def test_mount_on_the_world_reads_g_and_no_motion(selector: dict[str, Any]) -> None:
    """An IMU on the world reads +g along its own axes, independent of the bodies."""
    engine = engine_of(4)
    fill(engine, np.random.default_rng(8))
    tilt = wxyz(Rotation.from_euler("x", 90, degrees=True))
    offset = sn.OffsetCfg(pos=(1.0, 2.0, 3.0), rot=tuple(tilt.tolist()))
    imu = sn.Scene(engine, [sn.ImuCfg(**selector, offset=offset, fields="all", magnetic_field=(0.0, 0.0, 1.0))])["imu"]
    np.testing.assert_allclose(numpy(imu.data.lin_acc_b), [[0.0, G, 0.0]] * 4, atol=tolerance(G))
    np.testing.assert_allclose(numpy(imu.data.pos_w), [[1.0, 2.0, 3.0]] * 4, atol=0.0)
    assert not imu.data.lin_vel_b.any()
    assert not imu.data.ang_vel_b.any()
    assert imu.info.bodies == ("world",)


def test_unknown_mount_error_lists_existing_ones() -> None:
    """A wrong body name is rejected with the nearest name and the list of bodies."""
    with pytest.raises(sn.SelectionError, match=r"ImuCfg\('imu'\)\.body: got 'bas'.*Did you mean 'base'.*base, arm"):
        sn.Scene(engine_of(1, bodies=("base", "arm")), [sn.ImuCfg(body="bas")])


# Fields and knobs -----------------------------------------------------------------------------------------------------


def test_fields_selects_computed_fields_and_the_rest_is_none() -> None:
    """Only the requested fields exist, and they require only their own engine data."""
    engine = sn.TensorEngine(2, 0.01, provides=("pose",))
    data = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("quat_w", "pos_w"))])["imu"].data
    assert data.pos_w.shape == (2, 3)
    assert data.quat_w.shape == (2, 4)
    assert [getattr(data, name) for name in ALL[2:]] == [None] * 6


def test_default_fields_are_those_of_a_device() -> None:
    """The default fields are gyroscope, accelerometer and magnetometer; `"all"` is all eight."""
    engine = engine_of(1, magnetic=(1.0, 0.0, 0.0))
    scene = sn.Scene(engine, [sn.ImuCfg(name="device", body="body"), sn.ImuCfg(name="all", body="body", fields="all")])
    given = {
        label: [name for name in ALL if getattr(scene[label].data, name) is not None] for label in ("device", "all")
    }
    assert given == {"device": ["ang_vel_b", "lin_acc_b", "mag_b"], "all": list(ALL)}
    assert [spec.name for spec in scene["all"].specs] == list(ALL)


@pytest.mark.parametrize("fields", ["measured", "all"])
def test_without_a_magnetic_field_only_that_field_is_absent(fields: Any) -> None:
    """`mag_b` is None and `info` says why; all other fields have the same bits as with a field."""
    cfg = sn.ImuCfg(body="body", fields=fields, noise={"ang_vel_b": 0.1})
    scenes = [sn.Scene(engine_of(2, magnetic=magnetic), [cfg], seed=1) for magnetic in (None, (1.0, 0.0, 0.0))]
    for scene in scenes:
        scene.step(substeps=3)
    without, full = (scene[cfg].data for scene in scenes)
    assert without.mag_b is None and full.mag_b is not None
    assert "the engine has no magnetic field" in str(scenes[0][cfg].info.notes["mag_b"])
    assert "mag_b" not in scenes[1][cfg].info.notes
    for name in (spec.name for spec in scenes[0][cfg].specs):
        assert torch.equal(getattr(without, name), getattr(full, name)), name


@pytest.mark.parametrize("request_", [{"fields": ("lin_acc_b", "mag_b")}, {"mag_noise": 0.1}, {"bias": {"mag_b": 0.1}}])
def test_a_requested_magnetometer_needs_a_field(request_: dict[str, Any]) -> None:
    """A list with `mag_b`, or a knob of it, is refused by an engine without a field; `magnetic_field` replaces it."""
    with pytest.raises(sn.UnsupportedError, match="MAGNETIC"):
        sn.Scene(engine_of(1, magnetic=None), [sn.ImuCfg(body="body", **request_)])
    own = sn.ImuCfg(body="body", magnetic_field=(1.0, 2.0, 3.0), **request_)
    assert sn.Scene(engine_of(1, magnetic=None), [own])["imu"].data.mag_b is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [(("lin_acc_w",), "Did you mean 'lin_acc_b'"), ((), "at least one field"), ("some", "'all'")],
)
def test_wrong_fields_are_refused(fields: Any, message: str) -> None:
    """An unknown field, or an empty selection, is an error at construction that states the options."""
    with pytest.raises(sn.ConfigError, match=message):
        sn.ImuCfg(body="body", fields=fields)


def test_knob_of_an_unselected_field_is_refused() -> None:
    """Gyroscope noise without the gyroscope's field raises an error that names the field to add."""
    with pytest.raises(sn.ConfigError, match=r"gyro_noise.*Add 'ang_vel_b'"):
        sn.Scene(engine_of(1), [sn.ImuCfg(body="body", fields=("lin_acc_b",), gyro_noise=0.1)])


def test_knobs_by_prefix_equal_knobs_by_field() -> None:
    """`gyro_noise=x` and `noise={"ang_vel_b": x}` give the same bits, for every standard setting of every prefix."""
    amounts = {"noise": 0.1, "bias": 0.2, "random_walk": 0.03, "resolution": 0.004}
    prefixes = {"acc": "lin_acc_b", "gyro": "ang_vel_b", "mag": "mag_b"}
    by_prefix = {f"{prefix}_{knob}": amount for prefix in prefixes for knob, amount in amounts.items()}
    by_field = {knob: dict.fromkeys(prefixes.values(), amount) for knob, amount in amounts.items()}
    by_alias = {knob: dict.fromkeys(prefixes, amount) for knob, amount in amounts.items()}
    readings = []
    for knobs in (by_prefix, by_field, by_alias):
        scene = sn.Scene(engine_of(4), [sn.ImuCfg(body="body", magnetic_field=(0.3, 0.1, 0.5), **knobs)], seed=11)
        for _ in range(5):
            scene.update()
        data = scene["imu"].read()
        readings.append([data.ang_vel_b, data.lin_acc_b, data.mag_b])
    for other in readings[1:]:
        assert all(torch.equal(one, two) for one, two in zip(readings[0], other, strict=True))


def test_truth_is_untouched_by_imperfections() -> None:
    """With every imperfection on, the ground truth is bit for bit that of a clean IMU."""
    engine = engine_of(4, magnetic=(0.3, 0.1, 0.5))
    fill(engine, np.random.default_rng(9))
    dirty = sn.preset(
        "adis16448", name="dirty", body="body", bias={"ang_vel_b": 1.0}, fields="all", update_period=0.001
    )
    scene = sn.Scene(engine, [sn.ImuCfg(name="clean", body="body", fields="all"), dirty])
    for _ in range(3):
        scene.update()
    for name in ALL:
        assert torch.equal(getattr(scene["dirty"].ground_truth, name), getattr(scene["clean"].data, name)), name
    assert not torch.equal(scene["dirty"].data.ang_vel_b, scene["dirty"].ground_truth.ang_vel_b)


def test_repr_describes_the_imu() -> None:
    """The sensor's text states its name, mount, rate and fields with units."""
    scene = sn.Scene(engine_of(3), [sn.ImuCfg(name="imu_0", body="body", rate_hz=250.0, fields=("lin_acc_b",))])
    assert str(scene["imu_0"]) == "<Imu 'imu_0' on body, 3 env(s), 250 Hz: lin_acc_b[env,xyz] m/s^2>"


def test_debug_draw_shows_the_specific_force_at_each_mount() -> None:
    """The debug arrow of an IMU at rest points up from the mount, 0.05 m per m/s^2, also before the first read."""
    engine = engine_of(2)
    engine.body_quat_w = wxyz(Rotation.from_euler("xyz", (0.3, -1.0, 2.0)))
    engine.body_pos_w = (1.0, 2.0, 3.0)
    imu = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("lin_acc_b",))])["imu"]
    assert imu.has_debug_vis_implementation
    (arrows,) = imu.debug_draw()
    expected = [[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0 + 0.05 * G]]] * 2
    np.testing.assert_allclose(arrows.data, expected, atol=1e-5)


# Differences ----------------------------------------------------------------------------------------------------------


def test_acceleration_source_is_selected_and_reported() -> None:
    """`auto` takes the engine's accelerations if available, otherwise differences; `engine` never falls back."""

    def source(**kwargs: Any) -> str:
        engine = engine_of(1, **kwargs)
        return sn.Scene(engine, [sn.ImuCfg(body="body", magnetic_field=(1.0, 0.0, 0.0))])["imu"].info.notes[
            "acceleration"
        ]

    assert source() == "engine"
    without: Any = ("pose", "velocity", "gravity")
    assert source(provides=without) == "difference"
    with pytest.raises(sn.UnsupportedError, match="sensor 'imu' requires BODY_ACCELERATION"):
        sn.Scene(engine_of(1, provides=without), [sn.ImuCfg(body="body", acceleration="engine")])
    engine = engine_of(1)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("ang_vel_b",))])
    assert scene["imu"].info.notes["acceleration"] == "none"


def constant_acceleration(a: tuple[float, float, float], dt: float = 0.001) -> Callable[[float], dict[str, Any]]:
    def motion(t: float) -> dict[str, Any]:
        return {"body_lin_vel_w": tuple(part * t for part in a), "body_ang_vel_w": tuple(2.0 * part * t for part in a)}

    return motion


@pytest.mark.parametrize("every", [1, 4])
def test_differences_use_the_elapsed_time(every: int) -> None:
    """A constant acceleration reads the same with one sample per four ticks and per tick, not four times as much."""
    dt, a = 0.001, (3.0, -1.0, 0.5)
    engine = engine_of(3, dt, provides=("pose", "velocity", "gravity"), motion=constant_acceleration(a))
    turn = Rotation.from_euler("xyz", (0.4, 0.2, -1.0))
    engine.body_quat_w = wxyz(turn)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", update_period=every * dt, gravity_bias=(0.0, 0.0, 0.0),
                                        fields=("lin_acc_b", "ang_acc_b"))])  # fmt: skip
    for _ in range(41):
        scene.update()
    bound = tolerance(3.0 * 0.041, operations=8) / (every * dt) + tolerance(4.0)
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [turn.inv().apply(a)] * 3, atol=bound)
    np.testing.assert_allclose(numpy(scene["imu"].data.ang_acc_b), [2.0 * turn.inv().apply(a)] * 3, atol=2.0 * bound)


def test_differences_at_a_rate_not_a_multiple_of_the_step() -> None:
    """At 3 samples per 10 ticks, with intervals of 3 or 4 ticks, every sample reads the same acceleration."""
    dt, a = 0.001, (3.0, -1.0, 0.5)
    engine = engine_of(1, dt, provides=("pose", "velocity", "gravity"), motion=constant_acceleration(a))
    scene = sn.Scene(
        engine, [sn.ImuCfg(body="body", rate_hz=300.0, gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))]
    )
    seen = 0
    for _ in range(40):
        scene.update()
        if bool(scene["imu"].valid.all()):
            np.testing.assert_allclose(
                numpy(scene["imu"].data.lin_acc_b), [a], atol=tolerance(0.12, operations=8) / 0.003
            )
            seen += 1
    assert seen == 37  # all but ticks 1 to 3, which show the sample of the start


def test_differences_never_span_a_reset() -> None:
    """A reset that teleports a moving body gives an invalid first sample without a spike; other envs continue."""
    engine = engine_of(3, 0.001, provides=("pose", "velocity", "gravity"))
    engine.body_lin_vel_w = (2.0, 0.0, 0.0)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("lin_acc_b", "ang_acc_b"))])
    imu = scene["imu"]
    assert imu.valid.tolist() == [False] * 3
    for _ in range(3):
        scene.update()
        assert imu.valid.tolist() == [True] * 3
        np.testing.assert_allclose(numpy(imu.data.lin_acc_b), [[0.0, 0.0, G]] * 3, atol=tolerance(G))
    scene.reset([1], body_lin_vel_w=[[[-50.0, 30.0, 0.0]]], body_pos_w=[[[100.0, 0.0, 0.0]]])
    assert imu.valid.tolist() == [True, False, True]
    np.testing.assert_allclose(numpy(imu.data.lin_acc_b), [[0.0, 0.0, G]] * 3, atol=tolerance(G))
    scene.update()
    assert imu.valid.tolist() == [True] * 3
    np.testing.assert_allclose(numpy(imu.data.lin_acc_b), [[0.0, 0.0, G]] * 3, atol=tolerance(G))


def test_a_reset_off_the_grid_does_not_stretch_the_next_difference() -> None:
    """After a reset between two samples the next difference spans the ticks since the reset, in that env only."""
    dt, a = 0.001, (3.0, 0.0, 0.0)
    engine = engine_of(2, dt, provides=("pose", "velocity", "gravity"), motion=constant_acceleration(a))
    scene = sn.Scene(
        engine, [sn.ImuCfg(body="body", update_period=4 * dt, gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))]
    )
    for _ in range(5):
        scene.update()
    scene.reset([0])
    for _ in range(3):
        scene.update()
    assert scene["imu"].capture_tick.tolist() == [8, 8]
    assert scene["imu"].valid.tolist() == [True, True]
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [a, a], atol=tolerance(0.024, operations=8) / 0.003)


def test_a_first_sample_without_a_difference_stays_invalid_through_a_delay() -> None:
    """The sample at the reset is shown and marked invalid, until a sample with a difference arrives."""
    engine = engine_of(1, 0.001, provides=("pose", "velocity", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("lin_acc_b",), delay=0.003)])
    states = []
    for _ in range(6):
        scene.update()
        states.append((int(scene["imu"].capture_tick[0]), bool(scene["imu"].valid[0])))
    assert states == [(0, False), (0, False), (0, False), (1, True), (2, True), (3, True)]


def test_difference_over_a_jump_uses_its_whole_duration() -> None:
    """With `allow_gaps`, a jump of five ticks reads the mean acceleration over the five ticks."""
    a = (3.0, 0.0, 0.0)
    engine = engine_of(1, 0.001, provides=("pose", "velocity", "gravity"), motion=constant_acceleration(a))
    cfg = sn.ImuCfg(body="body", gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))
    scene = sn.Scene(engine, [cfg], allow_gaps=True)
    scene.update(ticks=5)
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [a], atol=tolerance(0.015, operations=8) / 0.005)


def test_edit_without_time_is_in_no_difference() -> None:
    """`update(ticks=0)` after an edit keeps the sample; the next difference uses the velocity of that sample."""
    engine = engine_of(1, 0.001, provides=("pose", "velocity", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))])
    scene.update()
    engine.body_lin_vel_w = (0.001, 0.0, 0.0)
    scene.update()
    assert scene["imu"].data.lin_acc_b[0, 0] == pytest.approx(1.0, rel=1e-6)
    held = snapshot(scene["imu"])
    engine.body_lin_vel_w = (0.004, 0.0, 0.0)
    for _ in range(2):
        scene.update(ticks=0)
        same(snapshot(scene["imu"]), held)
    assert scene["imu"].valid.tolist() == [True]
    scene.update()
    assert scene["imu"].data.lin_acc_b[0, 0] == pytest.approx(3.0, rel=1e-6)


def test_differences_hold_over_long_runs() -> None:
    """Beyond 2^24 ticks, where a float32 no longer counts every tick, intervals are still exact."""
    engine = engine_of(2, 0.001, provides=("pose", "velocity", "gravity"))
    engine.tick = 2**24 - 6
    cfg = sn.ImuCfg(body="body", update_period=0.004, gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))
    scene = sn.Scene(engine, [cfg])
    for tick in range(24):
        engine.body_lin_vel_w = (0.001 * (tick + 1), 0.0, 0.0)
        scene.update()
        if tick == 2:
            scene.reset([0])
        if tick > 6:
            assert scene["imu"].valid.tolist() == [True, True]
            assert numpy(scene["imu"].data.lin_acc_b)[:, 0] == pytest.approx(1.0, abs=tolerance(0.024) / 0.004)


def test_partial_reset_keeps_other_envs_bit_identical() -> None:
    """Resetting one env does not affect the differences of others, also if the processor flushes denormals to 0."""
    dt, a = 0.001, (3.0, 0.0, 0.0)
    engine = engine_of(2, dt, provides=("pose", "velocity", "gravity"), motion=constant_acceleration(a))
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", gravity_bias=(0.0, 0.0, 0.0), fields=("lin_acc_b",))])
    flushes = torch.set_flush_denormal(True)
    try:
        for _ in range(20):
            scene.update()
        scene.reset([0])
        scene.update()
    finally:
        torch.set_flush_denormal(False)
    assert scene["imu"].valid.tolist() == [True, True], flushes
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [a, a], atol=tolerance(0.063, operations=8) / dt)


def test_saved_scene_resumes_bit_identically() -> None:
    """Noise, walks, Gauss-Markov biases and differences continue from a saved state without interruption."""
    velocities = np.random.default_rng(14).normal(size=(8, 3, 1, 3))
    provides: Any = ("pose", "velocity", "gravity")
    cfg = sn.preset("adis16448", name="imu", body="body", fields=("lin_acc_b",), acc_random_walk=0.01, rate_hz=300.0)

    def steps(scene: sn.Scene, rows: range) -> list[torch.Tensor]:
        seen = []
        for row in rows:
            scene.engine.body_lin_vel_w = velocities[row]  # type: ignore[attr-defined]
            scene.update()
            seen.append(scene["imu"].read().lin_acc_b)
        return seen

    scene = sn.Scene(engine_of(3, provides=provides), [cfg])
    steps(scene, range(5))
    state = scene.state()
    expected = steps(scene, range(5, 8))
    other = sn.Scene(engine_of(3, provides=provides), [cfg])
    other.load_state(state)
    assert all(torch.equal(one, two) for one, two in zip(steps(other, range(5, 8)), expected, strict=True))


# Imperfections --------------------------------------------------------------------------------------------------------


def test_the_turn_on_bias_is_normal_over_envs_and_constant_in_an_episode() -> None:
    """Turn-on biases of 2048 envs pass a Kolmogorov-Smirnov test, are constant in an episode, and are redrawn at a
    reset.
    """
    envs, sd = 2048, 0.01
    turn_on = sn.stages.GaussMarkov(fields=("ang_vel_b",), density=0.0, tau=100.0, turn_on=sd)
    scene = sn.Scene(engine_of(envs), [sn.ImuCfg(body="body", fields=("ang_vel_b",), stages=(turn_on,))])
    first = numpy(scene["imu"].read().ang_vel_b)
    assert stats.kstest(first.ravel() / sd, "norm").pvalue > 1e-3
    correlation = np.corrcoef(first.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 4.0 / math.sqrt(envs)
    for _ in range(10):
        scene.update()
    np.testing.assert_array_equal(numpy(scene["imu"].data.ang_vel_b), first)
    scene.reset(range(envs // 2))
    again = numpy(scene["imu"].data.ang_vel_b)
    np.testing.assert_array_equal(again[envs // 2 :], first[envs // 2 :])
    assert stats.kstest(again[: envs // 2].ravel() / sd, "norm").pvalue > 1e-3
    both = np.corrcoef(again[: envs // 2].ravel(), first[: envs // 2].ravel())[0, 1]
    assert abs(both) < 4.0 / math.sqrt(3 * envs / 2)


def test_saturation_clips_exactly_at_full_scale() -> None:
    """Beyond full scale the reading is the end of the range, bit for bit; within it, nothing changes."""
    rates = torch.linspace(-50.0, 50.0, 201)
    engine = engine_of(201)
    engine.body_ang_vel_w = rates[:, None, None].expand(201, 1, 3)
    stages = (sn.stages.Saturation(fields=("ang_vel_b",), high=(34.9, 10.0, 20.0), low=(-34.9, -10.0, 0.0)),)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("ang_vel_b",), stages=stages)])
    for column, (low, high) in enumerate([(-34.9, 34.9), (-10.0, 10.0), (0.0, 20.0)]):
        expected = rates.clamp(torch.tensor(low), torch.tensor(high))
        assert torch.equal(scene["imu"].data.ang_vel_b[:, column], expected)
    assert torch.equal(scene["imu"].ground_truth.ang_vel_b[:, 0], rates)


def test_every_reading_is_a_multiple_of_the_resolution() -> None:
    """Noisy readings are multiples of the LSB, and the quantisation error is uniform: its deviation is LSB/sqrt(12)."""
    envs, lsb = 4096, 0.01
    engine = engine_of(envs)
    rng = np.random.default_rng(10)
    engine.body_ang_vel_w = rng.uniform(-1.0, 1.0, size=(envs, 1, 3))
    cfg = sn.ImuCfg(body="body", fields=("ang_vel_b",), gyro_resolution=lsb)
    noisy = sn.ImuCfg(name="noisy", body="body", fields=("ang_vel_b",), gyro_resolution=lsb, gyro_noise=0.3)
    scene = sn.Scene(engine, [cfg, noisy])
    for sensor in (scene[cfg], scene[noisy]):
        steps = numpy(sensor.data.ang_vel_b) / np.float64(np.float32(lsb))
        assert np.abs(steps - np.rint(steps)).max() < 2 * EPS * np.abs(steps).max()
    error = numpy(scene[cfg].data.ang_vel_b - scene[cfg].ground_truth.ang_vel_b)
    assert np.abs(error).max() <= 0.5 * lsb * (1 + 1e-3)
    # sd of the sample variance of a uniform law: sqrt((9/5 - 1) / n) of it
    assert error.var() == pytest.approx(lsb**2 / 12, rel=5 * math.sqrt(0.8 / error.size))


def test_six_pose_calibration_recovers_scale_and_misalignment() -> None:
    """Six attitudes at rest determine the matrix T (I + S) and the bias of the accelerometer."""
    poses = Rotation.from_euler("xy", [[0, 0], [90, 0], [-90, 0], [180, 0], [0, 90], [0, -90]], degrees=True)
    engine = engine_of(6)
    engine.body_quat_w = wxyz(poses)[:, None]
    scale, bias = np.array([0.01, -0.02, 0.03]), np.array([0.1, -0.2, 0.05])
    xy, xz, yx, yz, zx, zy = cross = (0.001, -0.002, 0.003, -0.004, 0.005, -0.006)
    stages = (sn.stages.ScaleError(fields=("lin_acc_b",), scale=scale.tolist(), cross_axis=cross),)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("lin_acc_b",), stages=stages, acc_bias=bias.tolist())])
    truth, measured = numpy(scene["imu"].ground_truth.lin_acc_b), numpy(scene["imu"].data.lin_acc_b)
    solution, *_ = np.linalg.lstsq(np.hstack([truth, np.ones((6, 1))]), measured, rcond=None)
    expected = np.array([[1.0, xy, xz], [yx, 1.0, yz], [zx, zy, 1.0]]) @ np.diag(1.0 + scale)
    np.testing.assert_allclose(solution[:3].T, expected, atol=tolerance(1.0))
    np.testing.assert_allclose(solution[3], bias, atol=tolerance(G))


# Broken state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["engine", "difference"])
def test_non_finite_state_invalidates_one_env_and_names_it(source: Any) -> None:
    """NaN in one env invalidates only its samples, warns once with env, body and tick, and ends with a reset."""
    engine = engine_of(3, bodies=("base", "arm"))
    clean, broken = (sn.ImuCfg(name=name, bodies=".*", fields=("ang_vel_b", "lin_acc_b"), acceleration=source,
                               evaluate="always") for name in ("clean", "broken"))  # fmt: skip
    scene = sn.Scene(engine, [broken])
    reference_engine = engine_of(3, bodies=("base", "arm"))
    reference = sn.Scene(reference_engine, [clean])
    for each in (engine, reference_engine):
        fill(each, np.random.default_rng(12))
    for each in (scene, reference):
        each.update()
        each.update()
    imu = scene["broken"]
    assert imu.valid.tolist() == [True] * 3
    engine.body_ang_vel_w[1, 1, 0] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match=r"'broken'.*env 1, body 'arm', at tick 3.*reset env 1"):
        scene.update()
    reference.update()
    assert imu.valid.tolist() == [True, False, True]
    scene.update()  # no second warning: it would fail here
    reference.update()
    for env in (0, 2):
        assert torch.equal(imu.data.lin_acc_b[env], reference["clean"].data.lin_acc_b[env])
    engine.body_ang_vel_w[1, 1, 0] = 0.5
    scene.reset([1])
    scene.update()
    assert imu.valid.tolist() == [True] * 3
    assert bool(imu.data.lin_acc_b.isfinite().all())
    assert bool(imu.data.ang_vel_b.isfinite().all())


def test_difference_from_a_non_finite_velocity_is_invalid() -> None:
    """If a NaN disappears by itself, the sample that would subtract it is also invalid, and the next is correct."""
    engine = engine_of(1, provides=("pose", "velocity", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=("lin_acc_b",))])
    scene.update()
    engine.body_lin_vel_w = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="env 0, body 'body', at tick 2"):
        scene.update()
    engine.body_lin_vel_w = 0.0
    scene.update()
    assert scene["imu"].valid.tolist() == [False]
    scene.update()
    assert scene["imu"].valid.tolist() == [True]
    np.testing.assert_allclose(numpy(scene["imu"].data.lin_acc_b), [[0.0, 0.0, G]], atol=tolerance(G))


def test_reset_of_one_sensor_accepts_env_ids() -> None:
    """`sensor.reset(env_ids)` recaptures these envs and does not affect the others."""
    engine = engine_of(3)
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", update_period=0.01, fields=("ang_vel_b",))])
    engine.body_ang_vel_w = 1.0
    scene.update()
    scene["imu"].reset([2])
    assert scene["imu"].data.ang_vel_b[:, 0].tolist() == [0.0, 0.0, 1.0]
    assert scene["imu"].frame.tolist() == [1, 1, 1]
    assert scene["imu"].capture_tick.tolist() == [0, 0, 1]


def test_the_data_class_declares_every_field_with_unit_and_frame() -> None:
    """The specs of all fields state the unit, frame and kind that recorders and viewers use."""
    scene = sn.Scene(engine_of(1, magnetic=(1.0, 0.0, 0.0)), [sn.ImuCfg(body="body", fields="all")])
    specs = {spec.name: (spec.shape, spec.unit, spec.frame, spec.kind) for spec in scene["imu"].specs}
    assert tuple(specs) == tuple(field.name for field in dataclasses.fields(sn.ImuData)) == ALL
    assert specs["lin_acc_b"] == ((3,), "m/s^2", "sensor", "vector")
    assert specs["ang_vel_b"] == ((3,), "rad/s", "sensor", "vector")
    assert specs["quat_w"] == ((4,), "1", "world", "rotation")
