"""The guarantees and examples of mjlab's and Isaac Lab's pages on contact sensors, in this library's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.compat import mjlab

Array = NDArray[np.float64]
DT = 0.005
G = 9.81
DOWN = torch.tensor([0.0, 0.0, -1.0])


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def on(mode: Any, pattern: Any, entity: str | None = None) -> sn.ContactMatch:
    return sn.ContactMatch(mode=mode, pattern=pattern, entity=entity)


# Scripted contacts ----------------------------------------------------------------------------------------------------


def script(*bodies: str, num_envs: int = 2, **fields: Any) -> sn.Scene:
    """Return a scene with a contact sensor, whose contacts are written by `tick`."""
    engine = sn.TensorEngine(num_envs, DT, bodies=bodies, provides=("pose", "contact"))
    return sn.Scene(engine, [sn.ContactSensorCfg(name="x", **fields)])


def press(engine: sn.TensorEngine, forces: Mapping[tuple[int, str], float], friction: float = 0.0) -> None:
    """Write a contact from below for each (env, body), with its normal force and a friction along both tangents."""
    for report, array in engine.contacts.items():
        (_, names), _, columns, reduce, _ = report.args
        array.zero_()
        for (env, name), force in forces.items():
            if name not in names:
                continue
            place = env, names.index(name), 0
            engine.contacts.field(report, "found")[place] = 1.0
            vector = [0.0, 0.0, force] if reduce == "netforce" else [force, friction, -friction]
            engine.contacts.field(report, "force")[place] = torch.tensor(vector)
            if "normal" in columns:
                engine.contacts.field(report, "normal")[place] = DOWN


def tick(scene: sn.Scene, forces: Mapping[tuple[int, str], float], friction: float = 0.0) -> Any:
    """Take a tick that ends with these contacts, and return the sensor, unread."""
    press(scene.engine, forces, friction)
    scene.update()
    return scene["x"]


def test_every_tick_is_observed_whether_read_or_not() -> None:
    """Unread ticks are in the history and in the times; contacts written after a tick belong to the next tick."""
    scene = script("foot", num_envs=1, prim_path="foot", history_length=3, track_air_time=True)
    for force in (10.0, 20.0, 30.0):
        sensor = tick(scene, {(0, "foot"): force})
    press(scene.engine, {(0, "foot"): 99.0})
    assert sensor.data.net_forces_w_history[0, :, 0, 2].tolist() == [30.0, 20.0, 10.0]
    assert float(sensor.data.net_forces_w[0, 0, 2]) == 30.0
    assert float(sensor.data.current_contact_time) == np.float32(3 * DT)
    scene.update()
    assert sensor.data.net_forces_w_history[0, :, 0, 2].tolist() == [99.0, 30.0, 20.0]


def test_history_is_kept_if_a_length_is_given() -> None:
    """History fields have a separate length, newest first, with 0 before the episode.

    At the default length of 0 they have the present entry, or are None with `primary`. There is no second history of
    all fields.
    """
    scene = script("foot", num_envs=1, prim_path="foot", history_length=3)
    sensor = tick(scene, {(0, "foot"): 7.0})
    assert sensor.data.net_forces_w_history[0, :, 0, 2].tolist() == [7.0, 0.0, 0.0]
    assert sensor.history_valid.tolist() == [[True, True, False]]
    with pytest.raises(sn.ConfigError, match="history"):
        sensor.history  # noqa: B018
    data = tick(script("foot", num_envs=1, prim_path="foot"), {(0, "foot"): 7.0}).data
    assert data.net_forces_w_history.equal(data.net_forces_w[:, None])
    assert script("foot", primary=on("body", "foot"))["x"].data.force_history is None


def test_net_force_history_excludes_friction() -> None:
    """For a contact with 10 N of normal force plus friction, every entry holds 10 N along the normal."""
    scene = script("foot", num_envs=1, prim_path="foot", history_length=2)
    for _ in range(2):
        sensor = tick(scene, {(0, "foot"): 10.0}, friction=4.0)
    assert sensor.data.net_forces_w_history[0, :, 0].tolist() == [[0.0, 0.0, 10.0]] * 2


def test_the_environment_namespace_stands_for_all_environments() -> None:
    """In the path and the filters, `{ENV_REGEX_NS}/...` means `/World/envs/env_.*/...`: the same bodies per env."""
    for space in ("{ENV_REGEX_NS}", "/World/envs/env_.*"):
        scene = script(  # the leaf alone would match two bodies
            "Robot/sensor", "Object", "Spare/sensor", prim_path=f"{space}/Robot/sensor",
            filter_prim_paths_expr=[f"{space}/Object"],
        )  # fmt: skip
        data = tick(scene, {(0, "Robot/sensor"): 2.0, (1, "Robot/sensor"): 3.0}).data
        assert scene["x"].body_names == ["sensor"] and scene["x"].filter_names == ["Object"]
        assert data.net_forces_w[:, 0, 2].tolist() == data.force_matrix_w[:, 0, 0, 2].tolist() == [2.0, 3.0]


def test_debug_draw_shows_the_net_force_on_each_body() -> None:
    """An arrow of 0.01 m per newton starts at the body where the force exceeds the threshold."""
    scene = script("FL", "FR", num_envs=1, prim_path="F.", track_pose=True)
    scene.engine.body_pos_w[0] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    sensor = tick(scene, {(0, "FL"): 50.0, (0, "FR"): 0.5})
    (shape,) = sensor.debug_draw()
    assert shape.kind == "arrows"
    np.testing.assert_allclose(shape.data, [[[1.0, 2.0, 3.0], [1.0, 2.0, 3.5]]])


def test_columns_are_primary_major_and_times_are_per_primary() -> None:
    """Slot s of primary p is column p * num_slots + s; times are per primary, and any filled slot counts as contact."""
    scene = script(
        "a", "b", "c", num_envs=2, primary=on("body", "[abc]"), num_slots=2, track_air_time=True, latch=False
    )
    (report,) = scene.engine.contacts
    found, force = (scene.engine.contacts.field(report, name) for name in ("found", "force"))
    for primary, slot in ((0, 0), (0, 1), (2, 0)):
        found[1, primary, slot] = 2.0 - primary // 2
        force[1, primary, slot, 0] = 10.0 * (primary + 1) - slot
    scene.update()
    data = scene["x"].data
    assert data.force.shape == (2, 6, 3) and data.found.shape == (2, 6)
    assert data.force[1, :, 0].tolist() == [10.0, 9.0, 0.0, 0.0, 30.0, 0.0]
    assert data.found[1].tolist() == [2.0, 2.0, 0.0, 0.0, 1.0, 0.0]
    assert data.current_contact_time.tolist() == [[0.0] * 3, [np.float32(DT), 0.0, np.float32(DT)]]
    assert data.current_air_time.tolist() == [[np.float32(DT)] * 3, [0.0, np.float32(DT), 0.0]]


def test_landing_and_taking_off() -> None:
    """Landing and take-off within control steps of four ticks are each reported once, and times count ticks.

    The foot lands at the third tick of a control step and leaves at the second tick of the next.
    """
    scene = script("foot", num_envs=1, primary=on("body", "foot"), track_air_time=True)
    seen, dt = [], 4 * DT
    for forces in ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 9.0, 9.0), (9.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)):
        scene.begin_control_step()
        for force in forces:
            sensor = tick(scene, {(0, "foot"): force} if force else {})
        data = sensor.data
        seen.append([bool(sensor.compute_first_contact(dt)), bool(sensor.compute_first_air(dt))])
        seen[-1] += [round(float(time) / DT) for time in (data.current_contact_time, data.current_air_time)]
    assert seen == [[False, False, 0, 4], [True, False, 2, 0], [False, True, 0, 3], [False, False, 0, 7]]
    assert float(data.last_contact_time) == np.float32(4 * DT) and float(data.last_air_time) == np.float32(7 * DT)


def test_a_brief_self_collision_is_in_the_history() -> None:
    """With a decimation of four and contact in one tick, `found` is 0 at the end.

    The norm of the history distinguishes 12 N from 9 N.
    """
    pelvis = on("subtree", "pelvis", "robot")
    scene = script("pelvis", primary=pelvis, secondary=pelvis, fields=("found", "force"), history_length=4)
    scene.begin_control_step()
    for k in range(4):
        sensor = tick(scene, {(0, "pelvis"): 12.0, (1, "pelvis"): 9.0} if k == 1 else {})
    data = sensor.data
    force_mag = torch.norm(data.force_history, dim=-1)
    had_contact = (force_mag > 10.0).any(dim=1).any(dim=-1)
    assert force_mag.shape == (2, 1, 4) and not bool(data.found.any())
    assert had_contact.tolist() == [True, False]


# In MuJoCo ------------------------------------------------------------------------------------------------------------

OPTION = '<option timestep="0.002" cone="elliptic" impratio="10"/>'
GROUND = (
    f'<mujoco>{OPTION}<worldbody><body name="terrain"><geom type="plane" size="9 9 .1"/></body></worldbody></mujoco>'
)
DOG = """
<mujoco><worldbody><body name="trunk" pos="0 0 .13"><freejoint/><geom type="box" size=".2 .1 .02" mass="4"/>
  <body name="FR" pos=".2 -.1 -.1"><geom name="FR_foot" size=".03"/></body>
  <body name="FL" pos=".2 .1 -.1"><geom name="FL_foot" size=".03"/></body>
  <body name="RR" pos="-.2 -.1 -.1"><geom name="RR_foot" size=".03"/></body>
  <body name="RL" pos="-.2 .1 -.1"><geom name="RL_foot" size=".03"/></body>
</body></worldbody></mujoco>
"""


def world(bodies: str, option: str = OPTION) -> str:
    ground = '<geom name="ground" type="plane" size="9 9 .1"/>'
    return f"<mujoco>{option}<worldbody>{ground}{bodies}</worldbody></mujoco>"


def free(name: str, geom: str, pos: str) -> str:
    return f'<body name="{name}" pos="{pos}"><freejoint/><geom name="{name}_geom" {geom}/></body>'


def settled(xml: str, *cfgs: sn.ContactSensorCfg, ticks: int = 400) -> sn.Scene:
    scene = sn.Scene(sn.MujocoEngine(xml), cfgs)
    scene.step(substeps=ticks)
    return scene


def test_the_feet_on_the_terrain() -> None:
    """The pattern gives one column per foot, in the order of the model.

    The standing dog has contacts and forces, the falling dog has air time.
    """
    cfg = sn.ContactSensorCfg(
        name="feet_contact",
        primary=on("geom", r".*_foot$", "robot"),
        secondary=on("body", "terrain"),
        fields=("found", "force"),
        track_air_time=True,
    )
    engine = sn.MujocoEngine.compose({"robot": DOG}, GROUND, num_envs=2)
    scene = sn.Scene(engine, [cfg])
    scene.reset(qpos=[[0, 0, 0.13, 1, 0, 0, 0], [0, 0, 9.0, 1, 0, 0, 0]])
    scene.step(substeps=400)
    sensor, feet = scene["feet_contact"], scene["feet_contact"].data
    assert sensor.primary_names == ["FR_foot", "FL_foot", "RR_foot", "RL_foot"]
    assert feet.found.tolist() == [[1.0] * 4, [0.0] * 4]
    assert feet.force.shape == (2, 4, 3) and not bool(feet.force[1].any())
    weight = float(engine.model.body_mass.sum()) * G
    assert float(feet.force[0, :, 0].sum()) == pytest.approx(weight, rel=1e-2)
    assert feet.current_air_time.shape == (2, 4)
    assert feet.current_air_time[:, 0].tolist() == [0.0, pytest.approx(0.8)]


def test_sensor_requests_contact_reports_for_its_bodies() -> None:
    """The config alone adds MuJoCo's own contact sensors to a model without sensors, and no others."""
    scene = settled(
        world(free("ball", 'size=".1" mass="2"', "0 0 .1")), sn.ContactSensorCfg(name="x", prim_path="ball")
    )
    types = scene.engine.model.sensor_type
    assert len(types) > 0 and (types == mujoco.mjtSensor.mjSENS_CONTACT).all()
    assert list(scene) == ["x"]
    assert float(scene["x"].data.net_forces_w[0, 0, 2]) == pytest.approx(2.0 * G, rel=1e-2)


ARMS = """
<mujoco><option gravity="0 0 0"/><worldbody><body name="pelvis" pos="0 0 1"><freejoint/><geom size=".02"/>
  <body name="left" pos="0 .1 0"><joint type="slide" axis="0 1 0" stiffness="200" springref="-.1" damping="5"/>
    <geom size=".05"/></body>
  <body name="right" pos="0 -.1 0"><joint type="slide" axis="0 1 0" stiffness="200" springref=".1" damping="5"/>
    <geom size=".05"/></body>
</body></worldbody></mujoco>
"""


def test_a_subtree_that_collides_with_itself() -> None:
    """Two hands pressed together by springs are a contact of the pelvis' subtree with itself."""
    pelvis = on("subtree", "pelvis", "robot")
    cfg = sn.ContactSensorCfg(name="self_collision", primary=pelvis, secondary=pelvis, fields=("found",))
    scene = sn.Scene(sn.MujocoEngine.compose({"robot": ARMS}, num_envs=2), [cfg])
    assert scene[cfg].data.found.tolist() == [[0.0], [0.0]]
    scene.step(substeps=500)
    assert scene[cfg].data.found.tolist() == [[1.0], [1.0]] and scene[cfg].data.force is None


@pytest.mark.parametrize(
    ("mode", "pattern", "count"), [("geom", "heel", 1), ("body", "foot", 2), ("subtree", "foot", 3)],
    ids=["geom", "body", "subtree"],
)  # fmt: skip
def test_each_mode_has_its_geoms(mode: Any, pattern: str, count: int) -> None:
    """A geom has its own contact, a body those of its geoms, a subtree also that of the toe below it."""
    foot = """<body name="foot" pos="0 0 .049"><freejoint/>
      <geom name="heel" size=".05" pos="-.2 0 0"/><geom name="ball" size=".05" pos="0 .1 0"/>
      <body name="toe"><geom name="tip" size=".05" pos="0 -.1 0"/></body></body>"""
    scene = settled(world(foot), sn.ContactSensorCfg(name="x", primary=on(mode, pattern), fields=("found",)))
    assert float(scene["x"].data.found) == count


BOX_FOOT = """<body name="foot" pos="0 0 .02"><freejoint/>
  <inertial pos=".03 -.02 0" mass="3" diaginertia=".01 .01 .01"/><geom type="box" size=".1 .05 .02"/></body>"""


def test_the_centre_of_pressure_of_a_flat_foot() -> None:
    """Normal forces and points of four corners: their weighted mean is below the centre of mass."""
    cfg = sn.ContactSensorCfg(
        name="x", primary=on("body", "foot"), fields=("found", "force", "pos"), reduce="mindist", num_slots=4
    )
    data = settled(world(BOX_FOOT), cfg)["x"].data
    assert data.found[0].tolist() == [4.0] * 4
    force, pos = numpy(data.force[0, :, :1]), numpy(data.pos[0])
    np.testing.assert_allclose((force * pos).sum(axis=0)[:2] / force.sum(), [0.03, -0.02], atol=1e-3)
    assert force.sum() == pytest.approx(3.0 * G, rel=1e-3)


def test_netforce_acts_at_the_force_weighted_centre() -> None:
    """The force is the sum of the corners' forces, at their force-weighted mean point, with the remaining moment.

    mjlab's config shows the wrench on the ground, along the normal; the corners show the forces on the foot.
    """
    foot = on("body", "foot")
    corners = sn.ContactSensorCfg(
        name="corners", primary=foot, fields=("force", "torque", "pos"), num_slots=4, global_frame=True
    )
    fields = ("found", "force", "torque", "pos")
    net = mjlab.ContactSensorCfg(name="net", primary=foot, fields=fields, reduce="netforce")
    one = mjlab.ContactSensorCfg(name="one", primary=foot, fields=("force", "normal"), num_slots=4, global_frame=True)
    slope = OPTION.replace("cone", 'gravity="2 1 -9.81" cone')
    scene = settled(world(BOX_FOOT, slope), corners, net, one, ticks=50)
    force, torque, pos = (numpy(getattr(scene["corners"].data, name)[0]) for name in ("force", "torque", "pos"))
    size = np.linalg.norm(force, axis=1)
    centre = (size[:, None] * pos).sum(axis=0) / size.sum()
    moment = (np.cross(pos - centre, force) + torque).sum(axis=0)
    data = scene["net"].data
    assert data.found.tolist() == [[4.0]] and np.linalg.norm(force.sum(axis=0)[:2]) > 1.0
    np.testing.assert_allclose(numpy(data.force[0, 0]), -force.sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(numpy(data.pos[0, 0]), centre, atol=1e-5)
    np.testing.assert_allclose(numpy(data.torque[0, 0]), -moment, atol=1e-4)
    data = scene["one"].data
    np.testing.assert_allclose(numpy(data.force[0]), -force, rtol=1e-4, atol=1e-4)
    assert bool(((data.force * data.normal).sum(dim=-1) > 0.0).all()) and bool((data.normal[..., 2] < -0.99).all())


def test_the_contacts_of_fingertips_balance_what_they_hold() -> None:
    """The forces of two fingertips carry an object's weight, without a moment about its centre of mass."""
    fingers = "".join(
        f'<body name="finger_{k}" pos="{x} 0 .1"><geom type="box" size=".02 .03 .02"/></body>'
        for k, x in enumerate((-0.1, 0.1))
    )
    thing = """<body name="object" pos="0 0 .14"><freejoint/>
      <inertial pos=".03 .01 0" mass="2" diaginertia=".01 .01 .01"/><geom type="box" size=".15 .05 .02"/></body>"""
    cfg = sn.ContactSensorCfg(
        name="x",
        primary=on("body", "finger_.*"),
        secondary=on("body", "object"),
        fields=("found", "force", "pos"),
        num_slots=8,
        global_frame=True,
    )
    scene = settled(world(fingers + thing), cfg, ticks=1000)
    data = scene["x"].data
    found, on_object, pos = numpy(data.found[0]), -numpy(data.force[0]), numpy(data.pos[0])
    assert (found.reshape(2, 8)[:, 0] >= 2.0).all()
    centre = np.array([0.03, 0.01, 0.14]) + numpy(scene.engine.qpos[0, :3]) - [0.0, 0.0, 0.14]
    arm = np.where(found[:, None] > 0.0, pos - centre, 0.0)
    np.testing.assert_allclose(on_object.sum(axis=0), [0.0, 0.0, 2.0 * G], atol=0.02)
    np.testing.assert_allclose(np.cross(arm, on_object).sum(axis=0), 0.0, atol=2e-3)


def test_a_foot_that_tips_has_fewer_corners_on_the_ground() -> None:
    """A flat foot has four contacts; pitched by 3 degrees it has two, those of the lower edge."""
    cfg = sn.ContactSensorCfg(name="x", primary=on("body", "foot"), fields=("found", "pos"), num_slots=4)
    scene = sn.Scene(sn.MujocoEngine(world(BOX_FOOT), num_envs=2), [cfg])
    pitch, depth = np.deg2rad(3.0), 1e-3
    height = 0.02 * np.cos(pitch) + 0.1 * np.sin(pitch) - depth
    scene.reset(qpos=[[0, 0, 0.02 - depth, 1, 0, 0, 0], [0, 0, height, np.cos(pitch / 2), 0, np.sin(pitch / 2), 0]])
    data = scene["x"].data
    assert data.found.tolist() == [[4.0] * 4, [2.0, 2.0, 0.0, 0.0]]
    assert bool((data.pos[1, :2, 0] > 0.09).all())


def test_a_sphere_on_a_plane_fills_one_slot_of_eight() -> None:
    """MuJoCo finds a single contact point, so seven slots stay 0 at every tick."""
    every = ("found", "force", "torque", "dist", "pos", "normal", "tangent")
    cfg = sn.ContactSensorCfg(name="x", primary=on("body", "ball"), fields=every, num_slots=8)
    scene = settled(world(free("ball", 'size=".1" mass="2"', "0 0 .1")), cfg, ticks=5)
    for _ in range(20):
        data = scene["x"].data
        assert data.found[0].tolist() == [1.0] + [0.0] * 7
        assert not any(bool(getattr(data, name)[0, 1:].any()) for name in every)
        scene.step()


@pytest.mark.parametrize("condim", [1, 4])
def test_without_friction_only_the_normal_force_remains(condim: int) -> None:
    """Without friction of the pair, a ball that slides and spins exerts its normal force alone.

    With friction it is dragged along both tangents and turned about the normal.
    """
    xml = world(free("ball", f'size=".1" mass="2" condim="{condim}"', "0 0 .099"))
    xml = xml.replace('type="plane"', f'type="plane" condim="{condim}"')
    cfg = sn.ContactSensorCfg(name="x", primary=on("body", "ball"), fields=("found", "force", "torque"))
    scene = sn.Scene(sn.MujocoEngine(xml), [cfg])
    scene.reset(qvel=[[1.0, 0.5, 0.0, 0.0, 0.0, 20.0]])
    scene.step()
    force, torque = scene["x"].data.force[0, 0], scene["x"].data.torque[0, 0]
    assert float(force[0]) > 1.0
    assert bool((force[1:] != 0.0).all()) == (condim == 4) and bool((force[1:] == 0.0).all()) == (condim == 1)
    assert bool(torque[0] != 0.0) == (condim == 4) and not bool(torque[1:].any())


def test_one_sensor_covers_all_feet_against_one_object() -> None:
    """One of two feet stands on the object, the other on the ground: both are pressed upwards, one by the object."""
    bodies = (
        free("Object", 'type="box" size=".2 .2 .05" mass="5"', "1 0 .05")
        + free("L_FOOT", 'size=".1" mass="2"', "1 0 .2")
        + free("R_FOOT", 'size=".1" mass="3"', "0 0 .1")
    )
    cfg = sn.ContactSensorCfg(
        name="x", prim_path="{ENV_REGEX_NS}/Robot/.*_FOOT", filter_prim_paths_expr=["{ENV_REGEX_NS}/Object"]
    )
    scene = settled(world(bodies), cfg)
    assert scene["x"].body_names == ["L_FOOT", "R_FOOT"]
    data = scene["x"].data
    assert numpy(data.net_forces_w[0, :, 2]) == pytest.approx([2.0 * G, 3.0 * G], rel=1e-2)
    assert numpy(data.force_matrix_w[0, :, 0, 2]) == pytest.approx([2.0 * G, 0.0], rel=1e-2)


def test_base_reports_ground_and_object_separately() -> None:
    """A base that lies on the ground and carries an object is pressed up by the ground and down by the object."""
    bodies = free("base", 'type="box" size=".2 .2 .1" mass="4"', "0 0 .1") + free(
        "Object", 'type="box" size=".1 .1 .05" mass="1.5"', "0 0 .25"
    )
    cfg = sn.ContactSensorCfg(
        name="x",
        prim_path="{ENV_REGEX_NS}/Robot/base",
        filter_prim_paths_expr=["/World/ground", "{ENV_REGEX_NS}/Object"],
    )
    scene = settled(world(bodies), cfg)
    data = scene["x"].data
    assert scene["x"].filter_names == ["ground", "Object"]
    assert numpy(data.force_matrix_w[0, 0, :, 2]) == pytest.approx([5.5 * G, -1.5 * G], rel=1e-2)
    assert float(data.net_forces_w[0, 0, 2]) == pytest.approx(4.0 * G, rel=1e-2)
