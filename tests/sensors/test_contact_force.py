"""Contact forces, checked against scripted reports, statics, and MuJoCo's contacts."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.spec import CONTACT_REPORT, Requirement
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24
G = 9.81
FEET = ("left", "right")
NET = CONTACT_REPORT(("body", FEET), None, ("found", "force"), "netforce")
LEFT = CONTACT_REPORT(("body", ("left",)), None, ("found", "force"), "netforce")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(envs: int, **kwargs: Any) -> sn.TensorEngine:
    geoms = {"sole": ("left", (0.0, 0.0, -0.1)), "toe": ("right", (0.2, 0.0, 0.0), (0.5, 0.5, 0.5, 0.5))}
    return sn.TensorEngine(envs, 0.01, bodies=FEET, geoms=geoms, provides=("pose", "contact"), **kwargs)


def stepping(report: Requirement) -> Any:
    """Return a factory of engines whose feet touch intermittently, differently in each env."""

    def make(envs: int) -> sn.TensorEngine:
        engine = engine_of(envs)
        primaries = torch.arange(len(report.args[0][1]))
        phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + primaries

        def motion(t: float) -> dict[Any, Any]:
            force = 40.0 * (10.0 * t + phase).sin().clamp(min=0.0)
            found = (force > 0.0).double()
            return {report: torch.stack([found, 0.1 * force, -0.2 * force, force], dim=-1)[:, :, None]}

        engine.contacts[report] = 0.0
        engine.motion = motion
        return engine

    return make


@pytest.mark.parametrize(
    ("fields", "report"),
    [
        pytest.param({"bodies": ".*"}, NET, marks=pytest.mark.full),
        ({"body": "left", "min_force": 2.0, "max_force": (30.0, 30.0, 20.0)}, LEFT),
        ({"bodies": FEET, "min_force": 1.0, "resolution": 0.3, "max_force": 20.0,
          "stages": (sn.stages.ScaleError(scale=0.1),)}, NET),
    ],
)  # fmt: skip
def test_contract_holds(fields: dict[str, Any], report: Requirement) -> None:
    """`check_sensor` passes with and without a range, with and without a mount axis."""
    check_sensor(sn.ContactForceCfg(**fields), stepping(report))


# Frame and sign -------------------------------------------------------------------------------------------------------


def test_force_is_rotated_into_the_mounts_axes() -> None:
    """The reading is R^T F with R the body's orientation times the offset's; the other foot and env do not
    contribute.
    """
    envs, rng = 20, np.random.default_rng(0)
    engine, f = engine_of(envs), rng.normal(0.0, 50.0, (envs, 2, 3))
    turns = Rotation.random(2 * envs, rng=rng)
    engine.body_quat_w = turns.as_quat(scalar_first=True).reshape(envs, 2, 4)
    mount = Rotation.from_euler("xyz", (20.0, -40.0, 70.0), degrees=True)
    offset = sn.OffsetCfg(rot=tuple(mount.as_quat(scalar_first=True).tolist()), pos=(0.1, 0.2, 0.3))
    cfgs = [sn.ContactForceCfg(name="feet", bodies=".*"), sn.ContactForceCfg(name="turned", bodies=".*", offset=offset)]
    scene = sn.Scene(engine, cfgs)
    engine.contacts[NET] = np.concatenate([np.ones((envs, 2, 1)), f], axis=-1)[:, :, None]
    scene.update()
    plain = turns.inv().apply(f.reshape(-1, 3)).reshape(envs, 2, 3)
    np.testing.assert_allclose(numpy(scene["feet"].data), plain, atol=20.0 * EPS * 200.0)
    turned = mount.inv().apply(plain.reshape(-1, 3)).reshape(envs, 2, 3)
    np.testing.assert_allclose(numpy(scene["turned"].data), turned, atol=30.0 * EPS * 200.0)


def test_geoms_read_their_own_contacts_in_their_own_axes() -> None:
    """A geom has its own report, and its orientation on the body is included."""
    engine = engine_of(1)
    scene = sn.Scene(engine, [sn.ContactForceCfg(geom="toe")])
    report = CONTACT_REPORT(("geom", ("toe",)), None, ("found", "force"), "netforce")
    engine.contacts[report] = (1.0, 1.0, 2.0, 3.0)
    scene.update()
    assert scene["contact_force"].data[0].tolist() == [2.0, 3.0, 1.0]


# The range ------------------------------------------------------------------------------------------------------------


def reading(force: tuple[float, float, float], **fields: Any) -> tuple[list[float], list[float]]:
    """Return the measured force on the left foot and the truth."""
    engine = engine_of(1)
    scene = sn.Scene(engine, [sn.ContactForceCfg(name="f", body="left", **fields)])
    engine.contacts[LEFT] = (1.0, *force)
    scene.update()
    return scene["f"].data[0].tolist(), scene["f"].ground_truth[0].tolist()


def test_both_branches_are_clipped_then_small_forces_zeroed() -> None:
    """Each axis is clipped to +-max, then set to 0 below min; exactly min is kept."""
    fields = {"min_force": (1.0, 1.0, 2.0), "max_force": (10.0, 5.0, 20.0)}
    for force, expected in (
        ((0.5, -3.0, -25.0), [0.0, -3.0, -20.0]),
        ((1.0, -0.999, 2.0), [1.0, 0.0, 2.0]),
        ((-11.0, 6.0, 1.99), [-10.0, 5.0, 0.0]),
    ):
        assert reading(force, **fields) == (pytest.approx(expected), pytest.approx(expected))


def test_noise_is_applied_before_the_range() -> None:
    """A bias that lifts a small force over the deadband is read; a bias that lifts a large force over full scale is
    not.
    """
    measured, truth = reading((0.5, 9.5, 0.0), bias=1.0, min_force=1.0, max_force=10.0)
    assert measured == [1.5, 10.0, 1.0] and truth == [0.0, 9.5, 0.0]


def test_a_clipped_reading_is_on_the_grid_as_if_quantised_after_the_clip() -> None:
    """Full scale 10 N in steps of 0.7 N reads at most 9.8 N; any force is clipped first and quantised then."""
    for force in np.random.default_rng(1).uniform(-15.0, 15.0, (40, 3)):
        measured, truth = reading(tuple(force), resolution=0.7, max_force=10.0)
        clipped = np.clip(force.astype(np.float32), -10.0, 10.0)
        step = np.float32(0.7)
        np.testing.assert_array_equal(measured, (np.rint(clipped / step) * step).astype(np.float32))
        np.testing.assert_array_equal(truth, clipped)


def test_full_scale_grid_follows_a_resolution_set_per_env() -> None:
    """Env 1 gets a coarser grid at run time: its full scale is on that one."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.ContactForceCfg(name="f", body="left", resolution=0.0, max_force=10.0)])
    scene["f"].set("resolution", 3.0, env_ids=[1])
    engine.contacts[LEFT] = (1.0, 50.0, -50.0, 4.0)
    scene.update()
    assert scene["f"].data.tolist() == [[10.0, -10.0, 4.0], [9.0, -9.0, 3.0]]


# Ignored bodies -------------------------------------------------------------------------------------------------------


def test_contacts_with_ignored_bodies_do_not_count() -> None:
    """The force of an ignored body is subtracted; if it is the only force, the result is exactly zero."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.ContactForceCfg(name="f", body="left", ignore=("right", "world"))])
    total, right, world = (
        CONTACT_REPORT(("body", ("left",)), other, ("found", "force"), "netforce")
        for other in (None, ("body", "right"), ("body", "world"))
    )
    engine.contacts[total] = torch.tensor([[3.0, 0.3, 0.2, 40.1], [2.0, 0.1, 0.2, 30.3]])[:, None, None]
    engine.contacts[right] = (1.0, 0.1, 0.1, 10.1)
    engine.contacts[world] = (1.0, 0.0, 0.1, 20.2)
    scene.update()
    np.testing.assert_allclose(numpy(scene["f"].data)[0], [0.2, 0.0, 9.8], atol=1e-5)
    assert scene["f"].data[1].tolist() == [0.0, 0.0, 0.0]
    assert scene["f"].info.notes["ignored"] == "right, world"


# MuJoCo ---------------------------------------------------------------------------------------------------------------

BOX = """
<mujoco>
  <option timestep="0.002" tolerance="1e-12" iterations="200"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" euler="{tilt} 0 0"/>
    <body name="box" pos="0 0 0.101" euler="{tilt} 0 0"><freejoint/>
      <geom name="shell" type="box" size="0.2 0.15 0.1" mass="3" friction="2"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("tilt", [0.0, 20.0])
def test_box_at_rest_reads_its_weight_in_its_own_axes(tilt: float) -> None:
    """On a slope of angle a, the force is (0, m g sin a, m g cos a) in the box's axes, within 1 %."""
    scene = sn.Scene(sn.MujocoEngine(BOX.format(tilt=tilt)), [sn.ContactForceCfg(name="f", body="box")])
    scene.step(substeps=1000)
    a, weight = math.radians(tilt), 3.0 * G
    expected = [0.0, weight * math.sin(a), weight * math.cos(a)]
    np.testing.assert_allclose(numpy(scene["f"].data)[0], expected, atol=0.01 * weight)


def test_bouncing_bodies_read_as_the_sum_of_mujocos_contacts() -> None:
    """For two spheres and a box that collide, forces equal mj_contactForce summed in float64, to 1e-5."""
    xml = """
    <mujoco><option timestep="0.002"/><worldbody>
      <geom name="floor" type="plane" size="5 5 1"/>
      <body name="a" pos="0 0 0.15"><freejoint/><geom name="ga" size="0.1" mass="1"/></body>
      <body name="b" pos="0.02 0.01 0.36"><freejoint/><geom name="gb" size="0.1" mass="2"/></body>
      <body name="c" pos="0.05 0 0.6" euler="20 30 0"><freejoint/><geom name="gc" type="box" size=".1 .1 .05"/></body>
    </worldbody></mujoco>
    """
    model = mujoco.MjModel.from_xml_string(xml)
    engine = sn.MujocoEngine(xml, num_envs=2)
    scene = sn.Scene(engine, [sn.ContactForceCfg(name="f", bodies="[abc]")])
    rng = np.random.default_rng(4)
    scene.reset(qvel=rng.normal(0.0, 1.0, (2, model.nv)))
    seen = 0
    for _ in range(60):
        scene.step(substeps=5)
        for env in range(2):
            data = mujoco.MjData(model)
            for name in ("qpos", "qvel", "qacc_warmstart"):
                if hasattr(engine, name):
                    getattr(data, name)[:] = getattr(engine, name)[env].detach().cpu().numpy()
            mujoco.mj_forward(model, data)
            expected = np.zeros((4, 3))
            for k in range(data.ncon):
                wrench, contact = np.zeros(6), data.contact[k]
                mujoco.mj_contactForce(model, data, k, wrench)
                on_second = contact.frame.reshape(3, 3).T @ wrench[:3]
                expected[model.geom_bodyid[contact.geom2]] += on_second
                expected[model.geom_bodyid[contact.geom1]] -= on_second
            seen += data.ncon
            turned = [data.xmat[body].reshape(3, 3).T @ expected[body] for body in (1, 2, 3)]
            size = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(numpy(scene["f"].data)[env], turned, atol=2e-5 * size)
    assert seen > 50


# Refused configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"site": "s"}, "a body or a geom"),
        ({"body": "world"}, "a body or a geom"),
        ({"bodies": ("left", "world")}, "a body or a geom"),
        ({"body": "left", "min_force": -1.0}, "min_force.*force >= 0"),
        ({"body": "left", "max_force": math.inf}, "max_force: got inf.*None"),
        ({"body": "left", "min_force": 5.0, "max_force": (9.0, 9.0, 4.0)}, "at least min_force"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.ContactForceCfg(**fields)


def test_unknown_names_raise() -> None:
    """A missing body, a missing ignored body or an engine without contacts is an error, never zeros."""
    with pytest.raises(sn.SelectionError, match=r"lefft.*left"):
        sn.Scene(engine_of(1), [sn.ContactForceCfg(body="lefft")])
    with pytest.raises(sn.SelectionError, match="ignore"):
        sn.Scene(engine_of(1), [sn.ContactForceCfg(body="left", ignore="wall")])
    with pytest.raises(sn.UnsupportedError, match="CONTACT_REPORT"):
        sn.Scene(sn.TensorEngine(), [sn.ContactForceCfg(body="body")])


def test_non_finite_force_names_the_body() -> None:
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.ContactForceCfg(bodies=".*", evaluate="always")])
    engine.contacts[NET][0, 1, 0] = torch.tensor([1.0, math.nan, 0.0, 0.0])
    with pytest.warns(sn.NonFiniteStateWarning, match="env 0, body 'right'"):
        scene.update()
    assert scene["contact_force"].valid.tolist() == [False, True]


def test_debug_draw_shows_the_force_at_the_mount() -> None:
    """One arrow per mount in world axes, 0.01 m per N."""
    engine = engine_of(1)
    engine.body_pos_w = [[[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]]
    engine.body_quat_w = (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0)
    scene = sn.Scene(engine, [sn.ContactForceCfg(bodies=".*")])
    engine.contacts[NET] = torch.tensor([[1.0, 0.0, 0.0, 50.0], [1.0, 10.0, 0.0, 0.0]])[None, :, None]
    scene.update()
    (shape,) = scene["contact_force"].debug_draw()
    starts, ends = [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]], [[1.0, 0.0, 0.5], [0.1, 0.0, 2.0]]
    np.testing.assert_allclose(shape.data, np.stack([starts, ends], axis=1), atol=1e-6)
