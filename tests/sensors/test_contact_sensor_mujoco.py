"""The contact sensor in MuJoCo, checked against MuJoCo's contact list, Newton's laws, and on robots."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.demo import Trot, model_path

pytest.importorskip("mujoco.batch")

Array = NDArray[np.float64]
DT = 0.0025
G = 9.81
RADIUS = 0.1
ALL = ("found", "force", "torque", "dist", "pos", "normal", "tangent")
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def on(mode: Any, pattern: Any, **fields: Any) -> sn.ContactMatch:
    return sn.ContactMatch(mode=mode, pattern=pattern, **fields)


def world(bodies: str, *, option: str = "", floor: str = '<geom name="floor" type="plane" size="9 9 .1"/>') -> str:
    options = f'<option timestep="{DT}" cone="elliptic" impratio="10" {option}/>'
    return f"<mujoco>{options}<worldbody>{floor}{bodies}</worldbody></mujoco>"


def free(name: str, geom: str, pos: str = "0 0 1") -> str:
    return f'<body name="{name}" pos="{pos}"><freejoint/><geom name="{name}_geom" {geom}/></body>'


BALL = free("ball", f'size="{RADIUS}" mass="2"')
CUBE = free("cube", f'type="box" size="{RADIUS} {RADIUS} {RADIUS}" mass="2"')


def listed(
    model: mujoco.MjModel, data: mujoco.MjData, primary: set[int], secondary: set[int] | None
) -> list[dict[str, Array]]:
    """Return MuJoCo's contacts between two sets of geoms, each from the primary's side, in float64."""
    found = []
    for k in range(data.ncon):
        contact = data.contact[k]
        first, second = int(contact.geom1), int(contact.geom2)
        for mine, other, sign in ((first, second, 1.0), (second, first, -1.0)):
            if mine not in primary or (secondary is not None and other not in secondary):
                continue
            wrench, frame = np.zeros(6), contact.frame.reshape(3, 3).T
            mujoco.mj_contactForce(model, data, k, wrench)
            # mj_contactForce is the force of geom1 on geom2, in a frame whose x points from geom1 to geom2
            force_w = -sign * frame @ wrench[:3]
            normal_w = -sign * frame[:, 0] * wrench[0]
            found.append({"force_w": force_w, "normal_w": normal_w, "pos": contact.pos.copy(),
                          "dist": np.array(contact.dist), "normal": sign * frame[:, 0]})  # fmt: skip
            break  # a contact of a set with itself counts once
    return found


def native(engine: sn.MujocoEngine, env: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return MuJoCo's forward computation of an environment's state."""
    model, data = engine.model, mujoco.MjData(engine.model)
    mujoco.mj_setState(model, data, engine.batch.state[env], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    return model, data


def place(engine: sn.MujocoEngine, height: float) -> None:
    """Place the free body at rest at a height."""
    engine.qpos[:, :3] = torch.tensor([0.0, 0.0, height])
    engine.qpos[:, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    engine.qvel.zero_()


# Times and points -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [BALL, CUBE], ids=["ball", "cube"])
def test_contact_times_of_a_body_set_down_and_lifted(shape: str) -> None:
    """For phases of 1, 2, 32 and 128 ticks, current time is k dt and last time (k + 1) dt, with correct events."""
    body = "ball" if shape is BALL else "cube"
    engine = sn.MujocoEngine(world(shape))
    scene = sn.Scene(engine, [
        sn.ContactSensorCfg(name="forces", prim_path=f"{{ENV_REGEX_NS}}/{body}", track_air_time=True),
        sn.ContactSensorCfg(name="contacts", primary=on("body", body), track_air_time=True),
    ])  # fmt: skip
    last = 0
    for ticks in (1, 2, 32, 128):
        for standing in (True, False):
            for k in range(1, ticks + 1):
                place(engine, RADIUS - 2e-4 if standing else 1.0)
                scene.step()
                for name in ("forces", "contacts"):
                    sensor, data = scene[name], scene[name].data
                    now, other = data.current_contact_time, data.current_air_time
                    past = data.last_air_time
                    if not standing:
                        now, other, past = other, now, data.last_contact_time
                    assert float(now) == np.float32(k * DT) and float(other) == 0.0
                    if last:
                        assert float(past) == np.float32((last + 1) * DT)
                    assert bool(sensor.compute_first_contact(ticks * DT)) == standing
                    assert bool(sensor.compute_first_air(ticks * DT)) == (not standing)
            last = ticks


def test_a_ball_touches_below_its_centre() -> None:
    """The contact point of a ball at rest is a radius below its centre to 1e-3 m, and NaN in the air, in both forms."""
    engine = sn.MujocoEngine(world(BALL), 2)
    scene = sn.Scene(engine, [
        sn.ContactSensorCfg(name="forces", prim_path="ball", filter_prim_paths_expr=["{ENV_REGEX_NS}"], track_pose=True,
                            track_contact_points=True, track_friction_forces=True),
        sn.ContactSensorCfg(name="contacts", primary=on("geom", "ball_geom"), secondary=on("geom", "floor"),
                            track_contact_points=True, track_friction_forces=True, fields=ALL),
    ])  # fmt: skip
    scene.reset(qpos=[[0.3, 0.2, RADIUS, 1, 0, 0, 0], [0, 0, 1.0, 1, 0, 0, 0]])
    for _ in range(40):
        scene.step()
    for name in ("forces", "contacts"):
        data = scene[name].data
        point = data.contact_pos_w.reshape(2, 3)
        below = scene["forces"].data.pos_w[0, 0] - torch.tensor([0.0, 0.0, RADIUS])
        torch.testing.assert_close(point[0], below, atol=1e-3, rtol=0.0)
        assert bool(point[1].isnan().all()) and not bool(data.friction_forces_w[1].any())
    assert float(scene["forces"].data.net_forces_w[0, 0, 2]) == pytest.approx(2.0 * G, rel=0.01)
    assert scene["contacts"].data.normal[0, 0].tolist() == pytest.approx([0.0, 0.0, -1.0], abs=1e-6)
    assert float(scene["contacts"].data.dist[0, 0]) < 0.0


# Forces ---------------------------------------------------------------------------------------------------------------


def test_stacked_cubes_have_equal_and_opposite_forces() -> None:
    """The lower cube's force is the only contact force on the upper cube, supports its weight, and is minus the reverse
    one.
    """
    cubes = CUBE.replace('pos="0 0 1"', f'pos="0 0 {RADIUS}"') + free(
        "top", f'type="box" size="{RADIUS} {RADIUS} {RADIUS}" mass="3"', f"0.01 0 {3 * RADIUS}"
    )
    scene = sn.Scene(sn.MujocoEngine(world(cubes), 3), [
        sn.ContactSensorCfg(name="both", prim_path="{ENV_REGEX_NS}/(cube|top)",
                            filter_prim_paths_expr=["cube", "top", "floor"]),
    ])  # fmt: skip
    for _ in range(400):
        scene.step()
    data = scene["both"].data
    matrix, net = numpy(data.force_matrix_w), numpy(data.net_forces_w)
    np.testing.assert_allclose(matrix[:, 1, 0], net[:, 1], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(matrix[:, 1, 0], -matrix[:, 0, 1], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(matrix[:, 1, 0, 2], 3.0 * G, rtol=1e-3)
    np.testing.assert_allclose(matrix[:, 0, 2, 2], 5.0 * G, rtol=1e-3)
    assert not matrix[:, [0, 1], [0, 1]].any() and not matrix[:, 1, 2].any()


def test_world_contacts_exclude_welded_bodies() -> None:
    """On a table fixed to the world, the table exerts the force; the world's floor does not."""
    table = '<body name="table" pos="0 0 .1"><geom type="box" size=".3 .3 .1"/></body>'
    ball = free("ball", f'size="{RADIUS}" mass="2"', "0 0 .3")
    cfg = sn.ContactSensorCfg(prim_path="ball", filter_prim_paths_expr=("{ENV_REGEX_NS}", "table"))
    force = sn.ContactForceCfg(name="f", body="ball", ignore="world")
    none = sn.ContactForceCfg(name="none", body="ball", ignore=("world", "table"))
    scene = sn.Scene(sn.MujocoEngine(world(table + ball)), [cfg, force, none])
    scene.step(substeps=400)
    assert scene[cfg].filter_names == ["world", "table"]
    weight = [0.0, 0.0, 2.0 * G]
    np.testing.assert_allclose(numpy(scene[cfg].data.force_matrix_w)[0, 0], [[0.0] * 3, weight], atol=1e-3)
    np.testing.assert_allclose(numpy(scene[force].data)[0], weight, atol=1e-3)
    np.testing.assert_allclose(numpy(scene[none].data)[0], 0.0, atol=1e-5)


@pytest.mark.parametrize("degrees", [5.0, 15.0, 25.0])
def test_on_an_incline_friction_over_normal_force_is_the_tangent(degrees: float) -> None:
    """For a cube at rest on a slope, |friction| / |normal| = tan(theta), and together they support its weight."""
    theta = np.deg2rad(degrees)
    floor = f'<geom name="floor" type="plane" size="9 9 .1" euler="0 {degrees} 0" friction="1"/>'
    pos = RADIUS * np.array([np.sin(theta), 0.0, np.cos(theta)])
    cube = CUBE.replace('pos="0 0 1"', f'pos="{pos[0]} 0 {pos[2]}" euler="0 {degrees} 0"')
    scene = sn.Scene(sn.MujocoEngine(world(cube, floor=floor)), [
        sn.ContactSensorCfg(name="cube", prim_path="cube", filter_prim_paths_expr=["floor"],
                            track_friction_forces=True),
        sn.ContactSensorCfg(name="net", primary=on("body", "cube"), reduce="netforce"),
    ])  # fmt: skip
    for _ in range(300):
        scene.step()
    data = scene["cube"].data
    normal, friction = numpy(data.force_matrix_w[0, 0, 0]), numpy(data.friction_forces_w[0, 0, 0])
    assert np.linalg.norm(friction) / np.linalg.norm(normal) == pytest.approx(np.tan(theta), rel=1e-2)
    np.testing.assert_allclose(normal + friction, [0.0, 0.0, 2.0 * G], atol=0.02 * G)
    np.testing.assert_allclose(numpy(scene["net"].data.force[0, 0]), normal + friction, atol=1e-3)


@pytest.mark.parametrize("gravity", [(-10.0, 0.0, -0.1), (0.0, -10.0, -0.1)])
def test_friction_opposes_sliding(gravity: tuple[float, float, float]) -> None:
    """A cube that gravity drags along the floor has friction exactly opposite to its motion."""
    option = f'gravity="{gravity[0]} {gravity[1]} {gravity[2]}"'
    engine = sn.MujocoEngine(world(CUBE.replace('pos="0 0 1"', f'pos="0 0 {RADIUS}"'), option=option))
    cfg = sn.ContactSensorCfg(prim_path="cube", filter_prim_paths_expr=["floor"], track_friction_forces=True)
    scene = sn.Scene(engine, [cfg])
    scene.step()  # so light, it hops off the floor soon after
    friction = numpy(scene[cfg].data.friction_forces_w[0, 0, 0])
    direction = np.array([*gravity[:2], 0.0])
    cosine = friction @ direction / np.linalg.norm(friction) / np.linalg.norm(direction)
    assert cosine == pytest.approx(-1.0, abs=1e-4)


def test_the_latched_impulse_is_the_change_of_momentum() -> None:
    """For a ball that bounces within one control step, impulse is m (dv + g t) between the summed states, to 1e-5."""
    engine = sn.MujocoEngine(world(BALL, option='integrator="Euler"'))
    cfg = sn.ContactSensorCfg(primary=on("body", "ball"), force_threshold=1.0, track_air_time=True)
    scene = sn.Scene(engine, [cfg])
    scene.reset(qpos=[[0, 0, RADIUS + 0.05, 1, 0, 0, 0]], qvel=[[0.3, 0, -3.0, 0, 0, 0]])
    scene.step()
    start = engine.qvel[0, :3].clone()
    scene.step(substeps=40)
    before = scene[cfg].read()
    scene.step()  # the force at the end of a tick acts in the next one
    gravity = torch.tensor([0.0, 0.0, G], dtype=torch.float64)
    momentum = 2.0 * (engine.qvel[0, :3] - start + 41 * DT * gravity)
    impulse = numpy(before.latched_impulse_w[0, 0])
    np.testing.assert_allclose(impulse, momentum.numpy(), atol=1e-5 * np.linalg.norm(impulse))
    assert impulse[2] > 6.0


def test_bounce_of_few_ticks_within_ten_is_detected() -> None:
    """A hard ball touches the floor for one or two ticks of ten: latch and history match the single ticks of a twin."""
    xml = world(BALL.replace("mass", 'solref="-1500000 -400" mass'))
    cfg = sn.ContactSensorCfg(primary=on("body", "ball"), history_length=10)
    coarse, fine = (sn.Scene(sn.MujocoEngine(xml), [cfg]) for _ in range(2))
    state = {"qpos": [[0, 0, RADIUS + 0.055, 1, 0, 0, 0]], "qvel": [[0, 0, -4.0, 0, 0, 0]]}
    ticks = []
    for scene in (coarse, fine):
        scene.reset(**state)
    coarse.step(substeps=10)
    for _ in range(10):
        fine.step()
        ticks.append(fine[cfg].read())
    found = [float(each.found) for each in ticks]
    assert 1 <= sum(found) <= 3 and found[-1] == 0.0
    data = coarse[cfg].data
    assert float(data.found) == 0.0 and bool(data.latched_any)
    assert data.found_history[0, 0].tolist() == found[::-1]
    assert float(data.latched_peak_force) == max(float(each.force.norm()) for each in ticks)
    assert float(data.latched_first_time) == np.float32((found.index(1.0) + 1) * DT)


# Robots ---------------------------------------------------------------------------------------------------------------


def test_the_feet_of_a_standing_quadruped_carry_its_weight() -> None:
    """The sum of the vertical forces on the four feet is m g within 1 %, in both forms, and no other body touches."""
    engine = sn.MujocoEngine(model_path(), 2, keyframe="home")
    scene = sn.Scene(engine, [
        sn.ContactSensorCfg(name="net", primary=on("geom", ".*_foot"), reduce="netforce", track_air_time=True),
        sn.ContactSensorCfg(name="strongest", primary=on("geom", ".*_foot"), global_frame=True, num_slots=2),
        sn.ContactSensorCfg(name="paths", prim_path="{ENV_REGEX_NS}/Robot/.*_foot"),
    ])  # fmt: skip
    assert scene["net"].primary_names == scene["paths"].body_names == list(FEET)
    for _ in range(600):
        scene.step()
    weight = float(engine.model.body_subtreemass[1]) * G
    for force in (scene["net"].data.force, scene["strongest"].data.force, scene["paths"].data.net_forces_w):
        assert numpy(force[..., 2].sum(dim=1)) == pytest.approx(weight, rel=0.01)
    assert bool((scene["net"].data.current_contact_time > 0.5).all())
    assert bool((scene["strongest"].data.force[..., 2] >= 0.0).all())


def test_contacts_of_a_trotting_quadruped_match_mujocos_list() -> None:
    """For every foot against the ground, at every fifth tick of a trot, number, force, point, depth and normal of the
    strongest contact, and normal forces, agree with mj_contactForce.
    """
    engine = sn.MujocoEngine(model_path(), 2, keyframe="home")
    scene = sn.Scene(engine, [
        sn.ContactSensorCfg(name="slots", primary=on("geom", ".*_foot"), fields=ALL, global_frame=True),
        sn.ContactSensorCfg(name="paths", prim_path=".*_foot"),
    ])  # fmt: skip
    trot, seen = Trot(), 0
    for tick in range(300):
        scene.step(trot.targets(scene.time))
        if tick % 5:
            continue
        slots, paths = scene["slots"].data, scene["paths"].data
        for env in range(2):
            model, data = native(engine, env)
            for p, foot in enumerate(FEET):
                contacts = listed(model, data, {model.geom(foot).id}, None)
                assert float(slots.found[env, p]) == len(contacts) == float(paths.found[env, p])
                total = sum((each["normal_w"] for each in contacts), np.zeros(3))
                np.testing.assert_allclose(numpy(paths.net_forces_w[env, p]), total, rtol=1e-4, atol=1e-3)
                if not contacts:
                    continue
                seen += 1
                best = max(contacts, key=lambda each: float(np.linalg.norm(each["force_w"])))
                np.testing.assert_allclose(numpy(slots.force[env, p]), best["force_w"], rtol=1e-4, atol=1e-3)
                for field in ("pos", "dist", "normal"):
                    got = numpy(getattr(slots, field)[env, p])
                    np.testing.assert_allclose(got, best[field], rtol=1e-5, atol=1e-6)
    assert seen > 100


@cache
def dm_control(name: str) -> str:
    import dm_control

    return str(Path(dm_control.__file__).parent / "suite" / f"{name}.xml")


ROBOTS = {"quadruped": ("toe_.*", "torso"), "humanoid": (".*_foot", "torso")}


@pytest.mark.parametrize("name", ROBOTS)
def test_feet_and_self_collision_of_known_robots(name: str) -> None:
    """Foot bodies against the ground, and the whole robot against itself, report each contact once, as MuJoCo lists
    them while the robot falls and thrashes.
    """
    feet, root = ROBOTS[name]
    engine = sn.MujocoEngine(dm_control(name), 2)
    scene = sn.Scene(engine, [
        sn.ContactSensorCfg(name="feet", primary=on("body", feet), secondary=on("body", "world"), reduce="netforce"),
        sn.ContactSensorCfg(name="self", primary=on("subtree", root), secondary=on("subtree", root),
                            fields=("found",), history_length=4),
    ])  # fmt: skip
    random, seen = torch.Generator().manual_seed(2), np.zeros(2)
    low, high = engine.ctrl_range.clamp(-1.0, 1.0).unbind(-1)
    names = scene["feet"].primary_names
    assert len(names) == (4 if name == "quadruped" else 2)
    for tick in range(120):
        scene.step(low + (high - low) * torch.rand((2, engine.nu), generator=random, dtype=torch.float64), 4)
        if tick % 4:
            continue
        for env in range(2):
            model, data = native(engine, env)
            ground = {k for k in range(model.ngeom) if model.geom_bodyid[k] == 0}
            bodies = [model.body(body).id for body in engine.subtree(root) or ()]
            robot = {k for k in range(model.ngeom) if model.geom_bodyid[k] in bodies}
            for p, foot in enumerate(names):
                mine = {k for k in range(model.ngeom) if model.geom_bodyid[k] == model.body(foot).id}
                contacts = listed(model, data, mine, ground)
                force = sum((each["force_w"] for each in contacts), np.zeros(3))
                assert float(scene["feet"].data.found[env, p]) == len(contacts)
                np.testing.assert_allclose(numpy(scene["feet"].data.force[env, p]), force, rtol=1e-3, atol=1e-2)
                seen[0] += len(contacts)
            inside = listed(model, data, robot, robot)
            assert float(scene["self"].data.found[env, 0]) == len(inside)
            assert float(scene["self"].data.found_history[env, 0, 0]) == len(inside)
            seen[1] += len(inside)
    assert seen[0] > 20
    assert name == "quadruped" or seen[1] > 0


# Engines, models ------------------------------------------------------------------------------------------------------


def test_unfresh_readings_are_one_tick_older() -> None:
    """With fresh=False every field at a tick equals the fresh sensor's field at the previous tick."""
    cfg = sn.ContactSensorCfg(primary=on("body", "ball"), fields=ALL, track_air_time=True, history_length=3)
    scenes = [sn.Scene(sn.MujocoEngine(world(BALL), fresh=fresh), [cfg]) for fresh in (True, False)]
    shown: list[dict[str, torch.Tensor]] = []
    landed = False
    for scene in scenes:
        scene.reset(qpos=[[0, 0, RADIUS + 0.02, 1, 0, 0, 0]])
    for _ in range(60):
        for scene in scenes:
            scene.step()
        fresh, stale = (scene[cfg] for scene in scenes)
        assert float(stale.age) == DT and float(fresh.age) == 0.0
        if landed:
            for name, value in shown[-1].items():
                if "air" not in name and not name.startswith("latched_first"):
                    assert torch.equal(getattr(stale.data, name), value), name
        landed = landed or bool(fresh.data.current_contact_time > 0.0)
        shown.append({spec.name: getattr(fresh.read(), spec.name) for spec in fresh.specs})
    assert landed


def test_model_compiled_by_the_owner_is_prepared_first() -> None:
    """sn.prepare adds the reports, from patterns and paths, to a spec, and live objects that are wrapped then have
    them.
    """
    spec = mujoco.MjSpec.from_string(world(BALL + CUBE.replace("0 0 1", "1 0 1")))
    cfgs = [
        sn.ContactSensorCfg(name="any", primary=on("body", ".*"), reduce="netforce"),
        sn.ContactSensorCfg(name="path", prim_path="/World/envs/env_.*/ball", filter_prim_paths_expr=["floor"]),
    ]
    model = sn.prepare(spec, cfgs).compile()
    data = mujoco.MjData(model)
    scene = sn.Scene(sn.MujocoEngine.from_mj(model, data), cfgs)
    assert scene["any"].primary_names == ["ball", "cube"]
    for _ in range(800):
        mujoco.mj_step(model, data)
        scene.update()
    assert numpy(scene["any"].data.force[0, :, 2]) == pytest.approx(2.0 * G, rel=0.01)
    assert float(scene["path"].data.force_matrix_w[0, 0, 0, 2]) == pytest.approx(2.0 * G, rel=0.01)


def test_secondaries_that_contain_each_other_are_refused() -> None:
    """A subtree nested in another would count its contacts twice."""
    cfg = sn.ContactSensorCfg(primary=on("geom", "terrain"), secondary=on("subtree", "FL_.*"))
    with pytest.raises(sn.SelectionError, match="contains FL_"):
        sn.Scene(sn.MujocoEngine(model_path()), [cfg])


def test_a_body_without_geoms_has_no_contacts_to_report() -> None:
    """The case is rejected with the body's name, and never reported as no contact."""
    xml = world('<body name="bare"><joint name="j"/><inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/></body>')
    with pytest.raises(sn.SensoriumError, match="bare"):
        sn.Scene(sn.MujocoEngine(xml), [sn.ContactSensorCfg(primary=on("body", "bare"))])
