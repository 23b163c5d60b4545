from __future__ import annotations

import math
import warnings

import mujoco
import numpy as np
import pytest
import torch
from selection import gate, pairs

from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import ModelError, SensoriumWarning, UnknownNameError, UnsupportedError
from sensorium.spec import (
    BODY_POSE,
    CONTACT_FIELDS,
    CONTACT_REPORT,
    NATIVE_SENSOR,
    contact_array,
    contact_columns,
)

CORNERS = {"fl": (1, 1), "fr": (1, -1), "rl": (-1, 1), "rr": (-1, -1)}
LEGS = "".join(
    f"""
    <body name="{leg}_thigh" pos="{0.2 * x} {0.12 * y} 0">
      <joint name="{leg}_hip" axis="0 1 0" stiffness="150" damping="3" range="-60 60"/>
      <geom name="{leg}_thigh" type="capsule" fromto="0 0 0 0 0 -.12" size=".03"/>
      <body name="{leg}_shank" pos="0 0 -.15">
        <joint name="{leg}_knee" axis="0 1 0" stiffness="150" damping="3" range="-170 170"/>
        <geom name="{leg}_shank" type="capsule" fromto="0 0 -.02 0 0 -.1" size=".02" condim="1"/>
        <geom name="{leg}_foot" pos="0 0 -.14" size=".03" condim="{condim}" friction="1 .01 .002"/>
      </body>
    </body>"""
    for (leg, (x, y)), condim in zip(CORNERS.items(), (3, 4, 6, 3), strict=True)
)
DOG = f"""
  <body name="dog" pos="0 0 .33">
    <freejoint/>
    <geom name="trunk" type="box" size=".25 .1 .04" mass="6"/>
    <site name="imu"/>
    {LEGS}
  </body>"""
STACK = "".join(
    f"""
  <body name="{name}" pos="{x} 1 {z}">
    <freejoint/>
    <geom name="{name}" type="box" size=".1 .08 .1" condim="{condim}" friction=".8 .02 .01"/>
  </body>"""
    for name, x, z, condim in (("low", 0.0, 0.1, 6), ("mid", 0.03, 0.3, 4), ("top", -0.04, 0.5, 3))
)
WORLD = """
  <geom name="ground" type="plane" size="5 5 .1"/>
  <geom name="kerb" type="box" size=".3 .05 .02" pos=".2 .1 .02" margin=".01" gap=".005"/>
  <geom name="paint" size=".2" contype="0" conaffinity="0"/>"""
OPTION = '<option timestep="0.002" integrator="implicitfast" cone="{cone}"/>'
SCENE = f"<mujoco>{OPTION.format(cone='pyramidal')}<worldbody>{WORLD}{DOG}{STACK}</worldbody></mujoco>"
FEET = tuple(f"{leg}_foot" for leg in CORNERS)
SHANKS = tuple(f"{leg}_shank" for leg in CORNERS)
REDUCTIONS = ("none", "mindist", "maxforce", "netforce")
ALL = tuple(CONTACT_FIELDS)
MATCHES = (
    (("geom", FEET), None),
    (("geom", FEET[:2]), ("geom", "ground")),
    (("body", SHANKS), ("body", "world")),
    (("subtree", ("dog", "low")), None),
    (("subtree", ("dog",)), ("subtree", "dog")),
    (("body", ("world",)), ("subtree", "dog")),
    (("geom", ("ground",)), ("geom", "low")),
    (("geom", ("low", "mid", "top")), None),
    (("geom", ("low",)), ("geom", "mid")),
    (("geom", ("mid",)), ("geom", "low")),
    (("geom", ("trunk",)), ("subtree", "fl_thigh")),
    (("geom", ("kerb",)), ("subtree", "dog")),
)
"""Geoms, bodies and subtrees; a static body on either side; both orders of a pair; a subtree against itself."""
REPORTS = tuple(
    CONTACT_REPORT(primary, secondary, ALL, reduce, 1 if reduce == "netforce" else 3)
    for primary, secondary in MATCHES
    for reduce in REDUCTIONS
)
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


def probe(*requirements):
    return dict.fromkeys(requirements, "probe")


def throw(model, qpos, qvel):
    """Return an engine whose envs each fall differently, with one knee bent until the foot touches the trunk."""
    generator = torch.Generator().manual_seed(7)
    qvel[:] = 1.5 * torch.randn(100, qvel.shape[1], generator=generator, dtype=torch.float64)[: len(qvel)]
    qvel[:, 2] = -3.0
    qpos[:, int(model.joint("fl_knee").qposadr[0])] = 2.6


def fields(engine, report):
    """Return the fields of a report `[env, primary, slot, n]`."""
    array = engine.array(contact_array(report))
    return {name: array[..., columns] for name, columns in contact_columns(report).items()}


def world_force(found):
    """Return the force on the primary in world axes, from a report and its frame."""
    force, normal, tangent = (found[name].double() for name in ("force", "normal", "tangent"))
    second = torch.linalg.cross(normal, tangent)
    return -(force[..., :1] * normal + force[..., 1:2] * tangent + force[..., 2:] * second)


# The reference: MuJoCo's list of contacts in float64


def contacts_of(model, data):
    """Return each contact's geoms, force and torque on the second geom in the world, distance, position and axes."""
    found, wrench = [], np.zeros(6)
    for i, contact in enumerate(data.contact):
        mujoco.mj_contactForce(model, data, i, wrench)
        axes = contact.frame.reshape(3, 3)
        force, torque = axes.T @ wrench[:3], axes.T @ wrench[3:]
        found.append((*contact.geom, force, torque, contact.dist, contact.pos.copy(), axes[0].copy(), axes[1].copy()))
    return found


def geoms_of(model, kind, name):
    if kind == "geom":
        return {model.geom(name).id}
    wanted = model.body(name).id
    own = set()
    for geom in range(model.ngeom):
        body = model.geom_bodyid[geom]
        while kind == "subtree" and body not in (0, wanted):
            body = model.body_parentid[body]
        if body == wanted:
            own.add(geom)
    return own


def expected(model, contacts, report):
    """Return the expected report `[primary, slot, 20]`: found, force and torque on the primary in the world, and so
    on.
    """
    (kind, names), secondary, _, reduce, slots = report.args
    result = np.zeros((len(names), slots, 17))
    others = set(range(model.ngeom)) if secondary is None else geoms_of(model, *secondary)
    for row, name in zip(result, names, strict=True):
        mine, matches = geoms_of(model, kind, name), []
        for first, second, force, torque, dist, pos, normal, tangent in contacts:
            if first in mine and second in others:
                matches.append((-force, -torque, dist, pos, normal, tangent))
            elif second in mine and first in others:
                matches.append((force, torque, dist, pos, -normal, -tangent))
        if not matches:
            continue
        if reduce == "netforce":
            sizes = [np.linalg.norm(force) for force, *_ in matches]
            centre = sum(size * match[3] for size, match in zip(sizes, matches, strict=True)) / max(sum(sizes), 1e-15)
            force = sum(match[0] for match in matches)
            torque = sum(torque + np.cross(pos - centre, force) for force, torque, _, pos, *_ in matches)
            matches = [(force, torque, 0.0, centre, np.eye(3)[0], np.eye(3)[1])]
            count = len(sizes)
        else:
            count = len(matches)
            if reduce == "mindist":
                matches.sort(key=lambda match: match[2])
            if reduce == "maxforce":
                matches.sort(key=lambda match: -np.linalg.norm(match[0]))
        for slot, match in zip(row, matches, strict=False):
            slot[:] = np.concatenate([[count], *(np.atleast_1d(part) for part in match)])
    return result


def measured(engine, report, env):
    """Return the same values from the engine's array."""
    found = {name: values[env] for name, values in fields(engine, report).items()}
    if report.args[3] != "netforce":
        turned = {**found, "force": found["torque"]}
        found = {**found, "force": world_force(found), "torque": world_force(turned)}
    return torch.cat([found[name].double() for name in ALL], dim=-1).numpy()


def compare(engine, model, data, env, seen):
    """Compare every report of an env with the reference; `seen` collects the reports that had a contact."""
    contacts = contacts_of(model, data)
    strongest = max((float(np.linalg.norm(contact[2])) for contact in contacts), default=0.0)
    scale = np.array([1.0, *([max(strongest, 1.0)] * 6), *([1.0] * 10)])
    for report in REPORTS:
        wanted, got = expected(model, contacts, report), measured(engine, report, env)
        # float32 columns and a product of three of them: a few units in the last place
        np.testing.assert_allclose(got / scale, wanted / scale, rtol=0, atol=1e-6, err_msg=f"{report} {engine.tick}")
        if wanted.any():
            seen.add(report)


def forwarded(model, state):
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, state, INTEGRATION)
    mujoco.mj_forward(model, data)
    return data


@pytest.mark.parametrize(("cone", "fresh"), pairs(["pyramidal", "elliptic"], [True, False]))
@pytest.mark.parametrize("num_envs", gate([3, PERSISTENT_UP_TO + 1], {3}))
def test_every_report_matches_mujocos_contact_list(num_envs, fresh, cone):
    """For a thrown quadruped and a falling stack, each report, reduction and primary kind matches mj_contactForce.

    The signs are physical: forces act on the primary and normals point away from it, for any order of the geoms.
    Reading does not change the physics, bit for bit.
    """
    scene = SCENE.replace("pyramidal", cone)
    engine, alone = (MujocoEngine(scene, num_envs, fresh=fresh) for _ in range(2))
    engine.prepare(probe(*REPORTS))
    for each in (engine, alone):
        throw(each.model, each.qpos, each.qvel)
    addresses = [engine.array(contact_array(report)).data_ptr() for report in REPORTS]
    model, envs, seen = engine.model, (0, num_envs - 1), set()
    datas = {env: mujoco.MjData(model) for env in envs}
    for env, data in datas.items():
        data.qpos[:], data.qvel[:] = engine.qpos[env], engine.qvel[env]
    for tick in range(120):
        engine.step()
        alone.step()
        engine.refresh()
        for env, data in datas.items():
            mujoco.mj_step(model, data)
            if tick % 8 == 7:
                compare(engine, model, forwarded(model, engine.batch.state[env]) if fresh else data, env, seen)
    assert engine.lag == (0 if fresh else 1)
    assert np.array_equal(engine.batch.state, alone.batch.state), "reading has changed the physics"
    assert [engine.array(contact_array(report)).data_ptr() for report in REPORTS] == addresses
    assert set(REPORTS) == seen, "these should have shown a contact"


@pytest.mark.parametrize("fresh", [True, False])
def test_live_data_give_equal_reports(fresh):
    """Wrapped data are sealed after sn.prepare, stepped by their owner, and not modified."""
    spec = mujoco.MjSpec.from_string(SCENE)
    prepare_spec(spec, REPORTS)
    model = spec.compile()
    datas, twins = ([mujoco.MjData(model) for _ in range(2)] for _ in range(2))
    engine = MujocoEngine.from_mj(model, datas, fresh=fresh)
    engine.prepare(probe(*REPORTS))
    qpos, qvel = torch.tensor(model.qpos0).repeat(2, 1), torch.zeros(2, model.nv, dtype=torch.float64)
    throw(model, qpos, qvel)
    for pair in (datas, twins):
        for env, data in enumerate(pair):
            data.qpos[:], data.qvel[:] = qpos[env], qvel[env]
    row, seen = np.empty(mujoco.mj_stateSize(model, INTEGRATION)), set()
    for tick in range(120):
        for data in (*datas, *twins):
            mujoco.mj_step(model, data)
        engine.count_ticks(1)
        engine.refresh()
        for env, twin in enumerate(twins):
            assert np.array_equal(datas[env].qpos, twin.qpos)
            if tick % 8 == 7:
                mujoco.mj_getState(model, twin, row, INTEGRATION)
                compare(engine, model, forwarded(model, row) if fresh else twin, env, seen)
    assert set(REPORTS) == seen


# Physics


def test_foot_forces_balance_the_weight():
    """For a robot standing still, the sum over the feet is m g upwards to 1 %, as one net force and slot by slot."""
    engine = MujocoEngine(SCENE.replace(WORLD, '<geom name="ground" type="plane" size="5 5 .1"/>'), 2)
    net = CONTACT_REPORT(("geom", FEET), None, ("found", "force"), "netforce")
    strongest = CONTACT_REPORT(("geom", FEET), ("body", "world"), ALL, "maxforce")
    reaction = CONTACT_REPORT(("geom", ("ground",)), ("subtree", "dog"), ("force",), "netforce")
    engine.prepare(probe(net, strongest, reaction))
    engine.step(substeps=2000)
    engine.refresh()
    model = engine.model
    weight = float(model.body_subtreemass[model.body("dog").id]) * 9.81
    for forces in (fields(engine, net)["force"], world_force(fields(engine, strongest))):
        assert forces.sum(dim=(1, 2))[0].tolist() == pytest.approx([0.0, 0.0, weight], abs=0.01 * weight)
    assert fields(engine, net)["found"].flatten().tolist() == [1.0] * 8
    assert fields(engine, reaction)["force"][1, 0, 0, 2] == pytest.approx(-weight, rel=0.01)


BRICK = """
<mujoco>
  <option timestep="0.002" gravity="{gravity}" cone="elliptic"/>
  <worldbody>
    <geom name="ground" type="plane" size="50 50 .1" friction="{mu}"/>
    <body name="brick" pos="0 0 .05"><freejoint/><geom name="brick" type="box" size=".2 .2 .05" mass="2"
      friction="{mu}"/></body>
  </worldbody>
</mujoco>
"""
NET = CONTACT_REPORT(("body", ("brick",)), None, ("found", "force"), "netforce")


def test_friction_on_a_sliding_body_is_opposite_to_its_motion():
    """Down a steep slope, friction is mu N against the velocity at every tick with contact, and impulses obey Newton's
    law.
    """
    slides = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))
    xml = BRICK.format(gravity="0 0 -9.81", mu=0.4).replace("<freejoint/>", slides)
    engine = MujocoEngine(xml, 2)
    ground = CONTACT_REPORT(("geom", ("ground",)), ("geom", "brick"), ("force",), "netforce")
    slots = CONTACT_REPORT(("geom", ("brick",)), ("geom", "ground"), ALL, "maxforce", 4)
    engine.prepare(probe(NET, ground, slots))
    engine.gravity[:] = torch.tensor([[3.0, 4.0, -7.0], [-6.0, 0.0, -7.0]])
    engine.step(substeps=200)
    downhill = torch.tensor([[0.6, 0.8], [-1.0, 0.0]]).double()
    torch.testing.assert_close(engine.qvel[:, :2] / engine.qvel[:, :2].norm(dim=1, keepdim=True), downhill)
    before, impulse, touches = engine.qvel.clone(), torch.zeros(2, 3).double(), 0
    for _ in range(200):
        engine.refresh()
        force = fields(engine, NET)["force"][:, 0, 0].double()
        wanted = torch.cat([-0.4 * force[:, 2:] * downhill, force[:, 2:]], dim=1)
        for same in (
            force,
            -fields(engine, ground)["force"][:, 0, 0].double(),
            world_force(fields(engine, slots)).sum(dim=(1, 2)),
        ):
            torch.testing.assert_close(same, wanted, rtol=1e-4, atol=1e-3)
        impulse += engine.dt * (force + 2.0 * engine.gravity)
        touches += int((force[:, 2] > 1.0).sum())
        engine.step()
    torch.testing.assert_close(impulse, 2.0 * (engine.qvel - before), rtol=1e-5, atol=1e-5)
    assert touches > 20


@pytest.mark.parametrize("degrees", [5.0, 20.0])
def test_friction_ratio_on_an_incline_is_the_slopes_tangent(degrees):
    """For a brick at rest on a slope, the ratio is tan(theta), in net force and in the contacts' own frames."""
    slope = math.radians(degrees)
    engine = MujocoEngine(BRICK.format(gravity=f"{9.81 * math.sin(slope)} 0 {-9.81 * math.cos(slope)}", mu=1.0))
    slots = CONTACT_REPORT(("geom", ("brick",)), ("geom", "ground"), ("force",), "none", 4)
    engine.prepare(probe(NET, slots))
    engine.step(substeps=500)
    engine.refresh()
    force = fields(engine, NET)["force"][0, 0, 0]
    assert float(-force[0] / force[2]) == pytest.approx(math.tan(slope), rel=0.01)
    pressing, *rubbing = fields(engine, slots)["force"][0, 0].sum(dim=0).tolist()
    assert pressing > 0.0 and math.hypot(*rubbing) / pressing == pytest.approx(math.tan(slope), rel=0.01)


def test_force_is_zero_after_lift_off():
    """At the first tick in the air a fresh report is empty; a lagging report still shows the contact for one tick."""
    for fresh, shown in ((True, [0.0, 0.0]), (False, [4.0, 0.0])):
        engine = MujocoEngine(BRICK.format(gravity="0 0 -9.81", mu=1.0), fresh=fresh)
        engine.prepare(probe(NET))
        engine.step(substeps=200)
        engine.refresh()
        assert engine.array(contact_array(NET))[0, 0, 0, 0] == 4.0
        engine.qvel[0, 2] = 5.0
        found = []
        for _ in range(2):
            engine.step()
            engine.refresh()
            found.append(float(engine.array(contact_array(NET))[0, 0, 0, 0]))
        assert found == shown and not engine.array(contact_array(NET)).any()


def test_found_counts_contacts_beyond_the_slots():
    """With four touching corners, two slots both report 4, of six slots the last two are empty, and the net report says
    4.
    """
    engine = MujocoEngine(BRICK.format(gravity="0 0 -9.81", mu=1.0))
    few, many = (CONTACT_REPORT(("body", ("brick",)), None, ALL, "mindist", slots) for slots in (2, 6))
    engine.prepare(probe(few, many, NET))
    engine.step(substeps=100)
    engine.refresh()
    assert fields(engine, few)["found"].flatten().tolist() == [4, 4]
    assert fields(engine, many)["found"].flatten().tolist() == [4, 4, 4, 4, 0, 0]
    assert not engine.array(contact_array(many))[0, 0, 4:].any()
    assert fields(engine, NET)["found"].item() == 4
    dist = fields(engine, many)["dist"].flatten()[:4]
    assert (dist < 0).all() and torch.equal(dist, dist.sort().values)


def test_hundreds_of_contacts_are_all_counted():
    """MuJoCo on the CPU does not limit the matches of one report."""
    balls = "".join(f'<geom size=".1" pos="{0.3 * (i % 16)} {0.3 * (i // 16)} 0"/>' for i in range(256))
    engine = MujocoEngine(
        f'<mujoco><worldbody><geom type="plane" size="9 9 .1"/><body name="mat" pos="0 0 .095"><freejoint/>{balls}'
        "</body></worldbody></mujoco>"
    )
    reports = [CONTACT_REPORT(("body", ("mat",)), None, ("found",), reduce) for reduce in REDUCTIONS]
    engine.prepare(probe(*reports))
    engine.refresh()
    assert [fields(engine, report)["found"].item() for report in reports] == [256.0] * 4


@pytest.mark.parametrize("how", ["batch", "live", "live, not fresh"])
def test_exceeded_mujoco_memory_is_reported_once_per_limit(how, tmp_path, monkeypatch):
    """With a full arena MuJoCo drops contacts and all constraints: no report may present that as no contact."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory
    boxes = "".join(
        f'<body name="b{i}" pos="{0.15 * (i % 8)} {0.15 * (i // 8)} .05"><freejoint/>'
        '<geom type="box" size=".1 .1 .1"/></body>'
        for i in range(48)
    )
    for memory, lost in (("300K", ["contacts", "constraints"]), ("800K", ["constraints"]), ("8M", [])):
        floor, size = '<geom type="plane" size="9 9 .1"/>', f'<size memory="{memory}"/>'
        spec = mujoco.MjSpec.from_string(f"<mujoco>{size}<worldbody>{floor}{boxes}</worldbody></mujoco>")
        report = CONTACT_REPORT(("body", ("b9",)), None, ("found", "force"), "netforce")
        prepare_spec(spec, [report])
        model = spec.compile()
        data = mujoco.MjData(model)
        live = how != "batch"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            engine = MujocoEngine.from_mj(model, data, fresh=how == "live") if live else MujocoEngine(model, num_envs=2)
            engine.prepare(probe(report))
            for _ in range(3):
                if live:
                    mujoco.mj_step(model, data)
                    engine.count_ticks(1)
                else:
                    engine.step()
                engine.refresh()
        messages = [str(warning.message) for warning in said]
        assert all(warning.category is SensoriumWarning for warning in said)
        assert [m.split("MuJoCo's ")[1].split(",")[0] for m in messages] == lost
        assert all('<size memory="..."/>' in m and str(model.narena) in m for m in messages)


def test_self_collision_counts_once():
    """In a subtree against itself, a touch of two of its bodies is one contact, from the first geom to the second."""
    engine = MujocoEngine(
        """
        <mujoco><option gravity="0 0 0"/><worldbody>
          <body name="arm"><freejoint/><geom name="upper" size=".1"/>
            <body name="link" pos=".3 0 0"><joint axis="0 1 0"/><geom size=".05"/>
              <body name="hand" pos="-.12 0 0"><joint axis="0 1 0"/><geom name="hand" size=".1"/></body></body></body>
        </worldbody></mujoco>
        """
    )
    itself = CONTACT_REPORT(("subtree", ("arm",)), ("subtree", "arm"), ALL, "none", 3)
    anything = CONTACT_REPORT(("subtree", ("arm",)), None, ("found",), "netforce")
    by_hand = CONTACT_REPORT(("body", ("hand",)), ("subtree", "arm"), ("normal",), "none")
    engine.prepare(probe(itself, anything, by_hand))
    engine.refresh()
    found = fields(engine, itself)
    assert found["found"].flatten().tolist() == [1, 0, 0] and fields(engine, anything)["found"].item() == 1
    assert found["normal"][0, 0, 0].tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert fields(engine, by_hand)["normal"][0, 0, 0].tolist() == pytest.approx([-1.0, 0.0, 0.0], abs=1e-6)
    assert found["dist"][0, 0, 0].item() == pytest.approx(-0.02)


def test_a_contact_in_the_gap_zone_is_found_without_a_force():
    """Within a geom's gap MuJoCo lists the contact without force: found 1, dist above 0, force 0."""
    xml = BRICK.format(gravity="0 0 0", mu=1.0).replace('name="ground"', 'name="ground" margin=".01" gap=".03"')
    engine = MujocoEngine(xml.replace("0 0 .05", "0 0 .07"))
    report = CONTACT_REPORT(("body", ("brick",)), None, ("found", "force", "dist"), "mindist")
    engine.prepare(probe(report))
    engine.refresh()
    found = fields(engine, report)
    assert found["found"].item() == 4 and found["dist"].item() == pytest.approx(0.02)
    assert found["force"].flatten().tolist() == [0, 0, 0]


def test_cloth_presses_with_its_weight():
    """Contacts with a flex count for the body beneath it; the cloth as a whole is a subtree."""
    engine = MujocoEngine(CLOTH)
    table = CONTACT_REPORT(("body", ("world",)), None, ("found", "force"), "netforce")
    cloth = CONTACT_REPORT(("subtree", ("holder",)), ("body", "world"), ("found", "force"), "netforce")
    engine.prepare(probe(table, cloth))
    engine.step(substeps=1500)
    engine.refresh()
    assert fields(engine, table)["force"][0, 0, 0, 2].item() == pytest.approx(-0.5 * 9.81, rel=0.02)
    assert torch.equal(fields(engine, cloth)["force"], -fields(engine, table)["force"])


CLOTH = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="table" type="plane" size="5 5 .1"/>
    <body name="holder" pos="0 0 .03">
      <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".1 .1 .1" radius=".02" dim="2" mass=".5">
        <contact selfcollide="none"/><edge equality="true" damping="1"/>
      </flexcomp>
    </body>
  </worldbody>
</mujoco>
"""


# What there is


def test_columns_are_those_of_the_fields_in_order():
    """A report of some fields has the same values as a report of all, in the order of CONTACT_FIELDS."""
    engine = MujocoEngine(SCENE, 2)
    whole = CONTACT_REPORT(("geom", FEET), None, ALL, "maxforce", 2)
    parts = [CONTACT_REPORT(("geom", FEET), None, wanted, "maxforce", 2) for wanted in (("pos",), ("tangent", "force"))]
    engine.prepare(probe(whole, *parts))
    engine.step(substeps=150)
    engine.refresh()
    complete = fields(engine, whole)
    assert complete["found"].any()
    for part in parts:
        assert engine.array(contact_array(part)).shape == (2, 4, 2, 3 * len(part.args[2]))
        for name, values in fields(engine, part).items():
            assert torch.equal(values, complete[name]), name
    assert list(fields(engine, parts[1])) == ["force", "tangent"]


def test_solver_is_rerun_only_for_forces():
    """Counts, positions and directions of the deepest contacts require only positions; forces and their order require
    more.
    """
    for wanted, reduce, stage in (
        (("found", "dist", "pos", "normal"), "mindist", "POS"),
        (("found",), "none", "POS"),
        (("found",), "maxforce", "ACC"),
        (("force",), "none", "ACC"),
    ):
        engine = MujocoEngine(SCENE)
        engine.prepare(probe(CONTACT_REPORT(("geom", FEET), None, wanted, reduce)))
        assert engine._plan.stage == int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}"))


@pytest.mark.parametrize("live", [True, False])
def test_position_only_report_is_fresh(live):
    """If MuJoCo's computation stops at positions, the report is that of the current state."""
    report = CONTACT_REPORT(("geom", FEET), None, ("found", "dist", "pos", "normal"), "mindist", 2)
    spec = mujoco.MjSpec.from_string(SCENE)
    prepare_spec(spec, [report])
    model = spec.compile()
    data = mujoco.MjData(model)
    engine = MujocoEngine.from_mj(model, data) if live else MujocoEngine(model)
    engine.prepare(probe(report))
    seen = False
    for _ in range(100):
        mujoco.mj_step(model, data)
        engine.count_ticks(1) if live else engine.step()
        engine.refresh()
        fresh = mujoco.MjData(model)
        fresh.qpos[:] = data.qpos
        mujoco.mj_forward(model, fresh)
        values = engine.array(contact_array(report))
        assert np.array_equal(values.numpy().ravel(), np.float32(fresh.sensordata))
        seen |= bool(values.any())
    assert seen


def test_names_are_full_and_added_elements_hidden():
    """In a composed model two robots have separate reports; the hidden sensors are not listed."""
    robot = SCENE.replace(WORLD, "").replace(STACK, "")
    ground = f"<mujoco>{OPTION.format(cone='pyramidal')}<worldbody>{WORLD}</worldbody></mujoco>"
    engine = MujocoEngine.compose({"a": robot, "b": (robot, (2.0, 0.0, 1.0))}, ground)
    reports = [CONTACT_REPORT(("geom", tuple(f"{e}/{foot}" for foot in FEET)), ("geom", "ground")) for e in "ab"]
    before = {kind: engine.names(kind) for kind in ("geom", "body", "site")}
    engine.prepare(probe(*reports))
    engine.step(substeps=100)
    engine.refresh()
    first, second = (fields(engine, report)["found"] for report in reports)
    assert first.any() and not second.any()
    assert {kind: engine.names(kind) for kind in before} == before and engine.native_sensors() == ()
    assert engine.model.nsensor == 8


def test_reports_share_common_sensors():
    """A report on some of another report's primaries adds nothing to the model, and neither does a second
    sn.prepare.
    """
    spec = mujoco.MjSpec.from_string(SCENE)
    whole, part = (CONTACT_REPORT(("geom", names)) for names in (FEET, FEET[2:0:-1]))
    for _ in range(2):
        prepare_spec(spec, [whole, part])
        assert len(spec.sensors) == 4
    engine = MujocoEngine(spec.compile())
    engine.prepare(probe(whole, part))
    engine.step(substeps=150)
    engine.refresh()
    array = engine.array(contact_array(whole))
    assert array.any() and torch.equal(engine.array(contact_array(part))[:, [1, 0]], array[:, 1:3])


def test_sealed_or_running_model_accepts_only_prepared_reports():
    """Sensors can no longer be added to a compiled model, or to a file after the first tick."""
    feet = CONTACT_REPORT(("geom", FEET))
    sealed = mujoco.MjModel.from_xml_string(SCENE)
    for engine in (MujocoEngine(sealed), MujocoEngine.from_mj(sealed, mujoco.MjData(sealed))):
        with pytest.raises(UnsupportedError, match=r"'probe' requires CONTACT_REPORT.*not in the model.*sn\.prepare"):
            engine.prepare(probe(feet))
    engine = MujocoEngine(SCENE)
    engine.qvel[0, 2] = -1.0
    engine.prepare(probe(feet))
    engine.step()
    array = engine.array(contact_array(feet))
    with pytest.raises(UnsupportedError, match=r"after 1 ticks the model cannot be changed.*reserve="):
        engine.prepare(probe(CONTACT_REPORT(("body", SHANKS))))
    engine.prepare(probe(BODY_POSE, feet))
    assert engine.array(contact_array(feet)) is array


@pytest.mark.parametrize("fresh", [True, False])
def test_reports_are_reset_saved_and_restored(fresh):
    """A reset changes the rows of its envs only, and a restored engine gives the same rows."""
    engine, other = (MujocoEngine(SCENE, 3, fresh=fresh) for _ in range(2))
    report = CONTACT_REPORT(("subtree", ("dog",)), None, ALL, "netforce")
    for each in (engine, other):
        each.prepare(probe(report))
    engine.step(substeps=200)
    engine.refresh()
    array = engine.array(contact_array(report))
    before = array.clone()
    assert before[..., 0].all()
    high = torch.from_numpy(engine.model.qpos0.copy())
    high[2] += 1.0
    engine.reset([1], {"qpos": high})
    assert torch.equal(array[[0, 2]], before[[0, 2]]) and not array[1].any()
    other.load_state(engine.state())
    for each in (engine, other):
        each.step(substeps=3)
        each.refresh()
    assert torch.equal(array, other.array(contact_array(report))) and not torch.equal(array, before)


def test_bodies_know_their_geoms_and_their_subtrees():
    """Names of geoms fixed to a body, and of a body with its descendants, are available for per-element reports."""
    engine = MujocoEngine(SCENE)
    assert engine.geoms("fl_shank") == ("fl_shank", "fl_foot") and engine.geoms("world") == ("ground", "kerb", "paint")
    assert engine.subtree("fl_thigh") == ("fl_thigh", "fl_shank")
    assert len(engine.subtree("dog")) == 9 and engine.subtree("world") == engine.names("body")
    for ask in (engine.geoms, engine.subtree):
        with pytest.raises(UnknownNameError, match="Did you mean 'dog'"):
            ask("dogg")


# What cannot be


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (CONTACT_REPORT(("geom", ("fl_feet",))), r"primary: there is no geom 'fl_feet'. Did you mean 'fl_foot'"),
        (CONTACT_REPORT(("body", ("cat",))), r"primary: there is no body 'cat'.*There are: dog"),
        (CONTACT_REPORT(("geom", FEET), ("subtree", "mud")), "secondary: there is no body 'mud'"),
        (CONTACT_REPORT(("site", ("imu",))), "primary: got kind 'site', expected one of geom, body, subtree"),
        (CONTACT_REPORT(("geom", FEET), ("site", "imu")), "secondary: got kind 'site'"),
        (CONTACT_REPORT(("geom", ())), r"primary: got the names \(\), expected at least one"),
        (CONTACT_REPORT(("geom", ("trunk", "trunk"))), "expected at least one name, without repetition"),
        (CONTACT_REPORT(("geom", FEET), slots=0), "slots: got 0, expected an integer of at least 1"),
        (CONTACT_REPORT(("geom", FEET), slots=2, reduce="netforce"), "slots: got 2, expected 1 with reduce='netforce'"),
        (CONTACT_REPORT(("geom", FEET), reduce="max"), "reduce: got 'max', expected one of none, mindist"),
        (CONTACT_REPORT(("geom", FEET), fields=()), r"fields: got \(\), expected some of found"),
    ],
)
def test_impossible_report_is_refused_by_name(report, message):
    """Engine and sn.prepare reject the request before they modify the model."""
    model = mujoco.MjModel.from_xml_string(SCENE)
    for engine in (MujocoEngine(SCENE), MujocoEngine(model), MujocoEngine.from_mj(model, mujoco.MjData(model))):
        with pytest.raises(UnsupportedError, match=f"'probe' requires CONTACT_REPORT.*{message}"):
            engine.prepare(probe(report))
        assert engine.prepared == frozenset()
    spec = mujoco.MjSpec.from_string(SCENE)
    with pytest.raises(ModelError, match=message.replace("there is no", "the model has no").split(".*There")[0]):
        prepare_spec(spec, [report])
    assert len(spec.sensors) == 0


@pytest.mark.parametrize(
    ("xml", "report", "message"),
    [
        (SCENE, CONTACT_REPORT(("geom", ("paint",))), "the geom 'paint' collides with nothing .contype"),
        (
            SCENE.replace(WORLD, '<geom name="paint" size=".2" contype="0" conaffinity="0"/>'),
            CONTACT_REPORT(("geom", FEET), ("body", "world")),
            "secondary: no geom of the body 'world' collides with anything",
        ),
        (
            SCENE.replace(WORLD, ""),
            CONTACT_REPORT(("geom", FEET), ("body", "world")),
            "secondary: the body 'world' has no geoms, so nothing can touch it.*'subtree'",
        ),
        (
            SCENE.replace(
                "<body name=", '<body name="frame"><body><joint/><geom size=".1"/></body></body><body name=', 1
            ),
            CONTACT_REPORT(("body", ("frame",))),
            "primary: the body 'frame' has no geoms, so nothing can touch it.*'subtree'",
        ),
        (
            CLOTH,
            CONTACT_REPORT(("geom", ("table",)), ("body", "cloth_5")),
            "secondary: the body 'cloth_5' is a vertex of the flex 'cloth'.*'subtree'",
        ),
        *(
            (SCENE.replace("<option ", f'<option><flag {flag}="disable"/></option><option '), REPORTS[0], message)
            for flag, message in (
                ("contact", '<flag contact="disable"/>'),
                ("constraint", '<flag constraint="disable"/>'),
                ("sensor", '<flag sensor="disable"/>'),
            )
        ),
        (
            SCENE.replace("<option ", '<option><flag sleep="enable"/></option><option ').replace(
                "implicitfast", "Euler"
            ),
            CONTACT_REPORT(("geom", ("ground",)), ("subtree", "dog")),
            "primary: the geom 'ground' is static.*sleep.*secondary",
        ),
    ],
)
def test_report_that_is_always_zero_is_refused(xml, report, message):
    """Elements without contacts, parts of a flex, and models without contacts raise an error, never zeros."""
    model = mujoco.MjModel.from_xml_string(xml)
    for engine in (MujocoEngine(xml), MujocoEngine.from_mj(model, mujoco.MjData(model))):
        with pytest.raises(UnsupportedError, match=message):
            engine.prepare(probe(report))


def test_contact_pair_enables_a_geom():
    """A geom that collides only through an explicit pair is a primary like any other."""
    paired = SCENE.replace("</mujoco>", '<contact><pair geom1="paint" geom2="trunk"/></contact></mujoco>')
    report = CONTACT_REPORT(("geom", ("paint",)), None, ("found",), "none")
    engine = MujocoEngine(paired)
    engine.prepare(probe(report))
    engine.qpos[0, 2] = 0.2
    engine.forward()
    assert fields(engine, report)["found"].item() >= 1


def test_unprepared_array_error_names_the_requirement():
    """A report without its requirement raises an error that names CONTACT_REPORT; native sensors are no substitute."""
    with pytest.raises(UnknownNameError, match="It comes with a CONTACT_REPORT"):
        MujocoEngine(SCENE).array(contact_array(REPORTS[0]))
    with pytest.raises(UnsupportedError, match="use ContactSensor instead"):
        MujocoEngine(SCENE).prepare(probe(NATIVE_SENSOR("s", "contact")))
