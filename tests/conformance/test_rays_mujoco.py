"""Rays against MuJoCo's `mj_ray` and `mujoco.batch.Batch.ray`: moving robots, meshes, terrains, height fields.

MuJoCo's rays hit planes from above only. Inside a height field they stop at height 0, where the two halves of its solid
meet. The library's rays do neither. The reference and the geometry identify affected rays, which are counted.

Rays at silhouettes are omitted by the reference's rule, up to 0.4 % of those aimed at robots.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from ray_worlds import Array, World
from reference import compare_casts, reference_cast
from selection import gate

import sensorium as sn
from sensorium.errors import ConfigError
from sensorium.shapes.scene import Targets

pytest.importorskip("mujoco.batch")

ROBOTS = {
    "quadruped": "suite/quadruped.xml",
    "humanoid": "suite/humanoid.xml",
    "dog": "suite/dog.xml",
    "jaco_arm": "third_party/kinova/jaco_arm.xml",
    "manipulator": "suite/manipulator.xml",
}
FAR = 20.0
"""Greatest distance of a hit, m; farther hits are misses."""


def mj_rays(
    model: mujoco.MjModel, data: mujoco.MjData, starts: Array, directions: Array, exclude: int = -1, **more: Any
) -> tuple[Array, Array]:
    """Return distance, m (inf for a miss), and geom id of each ray from mj_ray; directions are unit vectors."""
    geom = np.zeros(1, np.int32)
    found = []
    for start, direction in zip(starts, directions, strict=True):
        t = mujoco.mj_ray(model, data, start, direction, more.get("geomgroup"), 1, exclude, geom)
        found.append((t if t >= 0.0 else np.inf, geom[0]))
    distance, ids = np.array(found).T
    return distance, ids.astype(int)


def geom_ids(engine: sn.engines.Engine, model: mujoco.MjModel) -> Array:
    """Return the geom id of each shape, by its name; the last entry is that of a miss."""
    named = {(model.geom(i).name or f"geom_{i}"): i for i in range(model.ngeom)}
    return np.array([*(named[shape.name] for shape in engine.shapes()), -1])


def aimed(rng: np.random.Generator, places: Array, n: int) -> tuple[Array, Array]:
    """Return rays from around the places to points near them, exact in float32."""
    reach = 0.5 * float(np.ptp(places, axis=0).max()) + 0.2
    aim = places[rng.integers(len(places), size=n)] + rng.normal(scale=0.2 * reach, size=(n, 3))
    starts = (places.mean(axis=0) + rng.normal(scale=1.2 * reach, size=(n, 3))).astype(np.float32).astype(np.float64)
    starts[:, 2] = np.abs(starts[:, 2]) + 0.05
    directions = aim - starts
    return starts, directions / np.linalg.norm(directions, axis=1, keepdims=True)


# Robots ---------------------------------------------------------------------------------------------------------------


@cache
def path_of(robot: str) -> str:
    import dm_control

    return str(Path(dm_control.__file__).parent / ROBOTS[robot])


SLOW = ("quadruped", "dog")
"""Robots with a height field or meshes of 80,000 triangles: the reference tries all of them, so they get fewer rays."""


@pytest.mark.slow
@pytest.mark.parametrize("robot", gate(ROBOTS, {*ROBOTS} - {"dog"}))
def test_a_robot_in_motion(robot: str) -> None:
    """At every 100 of 300 ticks under random controls, `Batch.ray`, `mj_ray` and the reference agree with the library.

    Rays start from the world, and from the robot's root, which does not see itself.
    """
    envs, n = 2, 100 if robot in SLOW else 600
    engine = sn.MujocoEngine(path_of(robot), envs)
    rng, random = np.random.default_rng(70), torch.Generator().manual_seed(2)
    model = mujoco.MjModel.from_xml_path(path_of(robot))
    root = next(i for i in range(1, model.nbody) if model.geom_bodyid.tolist().count(i))
    row = engine.names("body").index(model.body(root).name)
    world = World(engine, [(-1, (0.0, 0.0, 0.0)), (row, (0.0, 0.0, 0.0))])
    ids = geom_ids(engine, model)
    low, high = engine.ctrl_range.clamp(-1.0, 1.0).unbind(-1)
    data = mujoco.MjData(model)
    hits = out = 0
    for turn in range(3):
        for _ in range(10):
            engine.step(low + (high - low) * torch.rand((envs, engine.nu), generator=random, dtype=torch.float64), 10)
        engine.refresh()
        starts, directions = aimed(rng, world.poses(0)[0], n)
        targets = Targets(geometry="all")
        got = world.cast(world.rays(starts, directions, targets=targets, alignment="world", limits=(0.0, FAR)))
        env, mount = turn % envs, (turn + 1) % 2
        exclude = root if mount else -1
        o, d = (got[name][:, mount].astype(np.float64) for name in ("start", "direction"))
        d /= np.linalg.norm(d, axis=2, keepdims=True)
        by_batch, geoms = (np.array(part) for part in engine.batch.ray(o, d, bodyexclude=exclude))
        mujoco.mj_setState(model, data, engine.batch.state[env], mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_kinematics(model, data)
        by_ray, geom = mj_rays(model, data, o[env], d[env], exclude)
        np.testing.assert_allclose(by_ray, np.where(by_batch < 0.0, np.inf, by_batch)[env], atol=1e-9)
        np.testing.assert_array_equal(geom, geoms[env])
        seen = [shape.is_visible and not (mount and shape.row == row) for shape in engine.shapes()]
        reference = reference_cast(
            engine.shapes(), o[env], d[env], poses=world.poses(env), max_distance=FAR, include=np.array(seen)
        )
        reference = replace(reference, size=float(np.ptp(starts, axis=0).max()))  # not that of a floor to the horizon
        here = {name: values[env, mount] for name, values in got.items()}
        report = compare_casts(reference, here["distance"], here["shape"], most_left_out=1.0)
        under = below_planes(engine, reference)
        assert under.mean() < 0.5  # planes stand around the manipulator, facing in
        native = np.where(by_ray <= FAR, by_ray, np.inf)
        clear = ~under & ~reference.is_edge & (reference.tangency > np.radians(0.1))
        same_hits(
            here["distance"][clear], ids[here["shape"]][clear], native[clear],
            np.where(native <= FAR, geom, -1)[clear], reference.second[clear],
        )  # fmt: skip
        hits, out = hits + report.hits, out + report.left_out
    assert out <= 4e-3 * 3 * n  # the rays are aimed at thin limbs: more pass an edge than in a random scene
    assert hits > 0.2 * 3 * n


def below_planes(engine: sn.engines.Engine, reference: Any) -> Array:
    """Return which rays hit a plane from below, which mj_ray's do not."""
    kinds = np.array([*(shape.kind == "plane" for shape in engine.shapes()), False])
    under: Array = kinds[reference.shape] & ((reference.normal * reference.directions).sum(axis=1) > 0.0)
    return under


def same_hits(distance: Array, geom: Array, native: Array, native_geom: Array, second: Array) -> None:
    """Check distances within 1e-4 m, equal misses, and equal geoms unless another geom is within 1e-4 m."""
    both = np.isfinite(native)
    np.testing.assert_array_equal(np.isfinite(distance), both)
    np.testing.assert_allclose(distance[both], native[both], atol=1e-4)
    clear = both & (second > native + 1e-4)
    np.testing.assert_array_equal(geom[clear], native_geom[clear])


# Meshes and terrains --------------------------------------------------------------------------------------------------


def scene_of(xml: str) -> tuple[mujoco.MjModel, mujoco.MjData, World, Array]:
    """Return a static model, its data, the library's rays in it, and the geom id of each shape."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    engine = sn.MujocoEngine(xml, 1)
    engine.refresh()
    return model, data, World(engine), geom_ids(engine, model)


def same_as_mujoco(xml: str, starts: Array, directions: Array, **more: Any) -> dict[str, Array]:
    """Cast rays and return the cast; compare all rays except those at silhouettes with mj_ray and the reference."""
    model, data, world, ids = scene_of(xml)
    d = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    got = world.cast(world.rays(starts, d, targets=Targets(geometry="all"), **more))
    here = {name: values[0, 0] for name, values in got.items()}
    o, d = (here[name].astype(np.float64) for name in ("start", "direction"))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    reference = reference_cast(world.scene.shapes, o, d, poses=world.poses(0))
    compare_casts(reference, here["distance"], here["shape"], normal=here["normal"], face=here["face"])
    native, geom = mj_rays(model, data, o, d)
    clear = ~reference.is_edge & (reference.tangency > np.radians(0.1))
    assert (~clear).sum() < 1e-3 * len(clear)
    same_hits(here["distance"][clear], ids[here["shape"][clear]], native[clear], geom[clear], reference.second[clear])
    return here | {"native": native}


TETRAHEDRON = """
<mujoco>
  <asset><mesh name="m" vertex="0 0 0  2 0 0  0 1 0  0 0 1" scale="{scale}"/></asset>
  <worldbody>
    <body pos=".3 -.2 .1" euler="{euler}">{joint}<geom name="g" type="mesh" mesh="m" euler="{turn}"/></body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("joint", ["", "<freejoint/>"], ids=["standing", "moving"])
@pytest.mark.parametrize(
    ("scale", "euler", "turn"), [("1 1 1", "0 0 0", "0 0 0"), ("1.5 -.4 .7", "20 -50 130", "70 10 -30")]
)
def test_asymmetric_mesh_is_hit_in_any_pose(scale: str, euler: str, turn: str, joint: str) -> None:
    """5781 rays hit a tetrahedron, far from its centre of mass, as often as a test of all its triangles."""
    xml = TETRAHEDRON.format(scale=scale, euler=euler, turn=turn, joint=joint)
    x, y = np.meshgrid(np.linspace(-2.003, 3.001, 123), np.linspace(-2.002, 2.001, 47))
    aim = np.stack([x.ravel(), y.ravel(), 0.3 + 0.0 * x.ravel()], axis=1) * [1.0, 0.7, 1.0]
    starts = np.broadcast_to([0.4, 0.3, 4.0], aim.shape)
    got = same_as_mujoco(xml, starts, aim - starts)
    assert len(aim) == 5781
    hits = np.isfinite(got["distance"])
    model, data, _, _ = scene_of(xml)
    corners = data.geom_xpos[0] + (model.mesh_vert @ data.geom_xmat[0].reshape(3, 3).T)
    counted = tried(corners[model.mesh_face], got["start"].astype(np.float64), got["direction"].astype(np.float64))
    assert hits.sum() == counted.sum() == np.isfinite(got["native"]).sum()
    assert counted.sum() > 100


def tried(triangles: Array, starts: Array, directions: Array) -> Array:
    """Return which rays hit a triangle, by a test of all pairs (T. Moeller and B. Trumbore, 1997)."""
    a, e1, e2 = (part[None] for part in (triangles[:, 0], *(triangles[:, k] - triangles[:, 0] for k in (1, 2))))
    p = np.cross(directions[:, None], e2)
    det, s = (e1 * p).sum(-1), starts[:, None] - a
    q = np.cross(s, e1)
    u, v, t = (s * p).sum(-1) / det, (directions[:, None] * q).sum(-1) / det, (e2 * q).sum(-1) / det
    met: Array = ((u >= 0) & (v >= 0) & (u + v <= 1) & (t >= 0)).any(axis=1)
    return met


def terrain_xml(kind: str, n: int = 40) -> str:
    """Return a hilly ground as a mesh or a height field, rotated, with boxes and a moving mesh above it."""
    rng = np.random.default_rng(80)
    row, column = np.mgrid[:n, :n]
    z = 0.5 + 0.25 * np.sin(0.31 * row) + 0.2 * np.cos(0.23 * column) + rng.uniform(0.0, 0.03, (n, n))
    z = (z - z.min()) / np.ptp(z)
    if kind == "hfield":
        heights = " ".join(f"{value:.6f}" for value in z[::-1].ravel())  # MuJoCo reads the row of greatest y first
        asset = f'<hfield name="t" nrow="{n}" ncol="{n}" size="5 4 .9 .3" elevation="{heights}"/>'
    else:
        x, y = np.meshgrid(np.linspace(-5, 5, n), np.linspace(-4, 4, n))
        points = " ".join(f"{value:.6f}" for value in np.stack([x, y, 0.9 * z], axis=-1).ravel())
        a = (row[:-1, :-1] * n + column[:-1, :-1]).ravel()
        faces = np.concatenate([np.stack([a, a + 1, a + n + 1], 1), np.stack([a, a + n + 1, a + n], 1)])
        listed = " ".join(map(str, faces.ravel()))
        asset = f'<mesh name="t" vertex="{points}" face="{listed}" inertia="shell"/>'
    boxes = "".join(
        f'<geom name="box {i}" type="box" size=".2 .3 .15" pos="{x:.3f} {y:.3f} {h:.3f}" euler="{a:.1f} 20 50"/>'
        for i, (x, y, h, a) in enumerate(rng.uniform([-4, -3, 0.8, 0], [4, 3, 1.5, 90], (8, 4)))
    )
    return f"""
<mujoco>
  <asset>{asset}<mesh name="wedge" vertex="0 0 0  1 0 0  0 2 0  0 0 1" scale=".7 -.3 .5"/></asset>
  <worldbody>
    <geom name="ground" type="{kind}" {kind}="t" pos=".5 -.3 .2" euler="0 0 25"/>
    {boxes}
    <body name="stone" pos=".3 .2 1.6" euler="30 20 10">
      <freejoint/><geom name="stone" type="mesh" mesh="wedge" pos=".1 0 0" euler="10 50 0"/>
    </body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("how", ["slanted", "down"])
@pytest.mark.parametrize("kind", ["mesh", "hfield"])
def test_a_terrain_with_boxes_and_a_scaled_mesh(kind: str, how: str) -> None:
    """Rays from above, in all directions or down, agree, also past the rim."""
    rng = np.random.default_rng(81)
    starts = rng.uniform([-6, -5, 1.8], [6, 5, 3.0], (2000, 3)).astype(np.float32).astype(np.float64)
    directions = rng.normal(size=(2000, 3)) * [1.0, 1.0, 0.2] - [0.0, 0.0, 0.5]
    if how == "down":
        directions = np.broadcast_to([0.0, 0.0, -1.0], starts.shape)
    got = same_as_mujoco(terrain_xml(kind), starts, directions, alignment="world")
    assert 500 < np.isfinite(got["distance"]).sum() < 2000


# Visible geoms --------------------------------------------------------------------------------------------------------

SELECTION = """
<mujoco>
  <asset><material name="glass" rgba="1 1 1 0"/><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="box" size="5 5 .1" pos="0 0 -3"/>
    <geom name="clear" type="box" size="5 5 .1" pos="0 0 -2.5" rgba="1 1 1 0"/>
    <geom name="pane" type="box" size="5 5 .1" pos="0 0 -2" material="glass"/>
    <geom name="painted" type="sphere" size=".5" pos="1 1 -1" rgba="1 1 1 0" material="red"/>
    <geom name="shown" type="sphere" size=".5" pos="-1 1 -1" group="2"/>
    <geom name="hidden" type="sphere" size=".5" pos="-1 -1 -1" group="4"/>
    <geom name="decor" type="sphere" size=".5" pos="1 -1 -1" contype="0" conaffinity="0" group="1"/>
    <body name="robot" pos="0 0 1"><freejoint/>
      <geom name="trunk" type="box" size=".6 .6 .1"/>
      <geom name="shell" type="box" size=".7 .7 .1" pos="0 0 -.3" group="3"/>
      <body name="leg" pos="0 0 -.8"><joint/><geom name="foot" type="capsule" size=".2 .3"/></body>
    </body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("groups", [None, (0,), (0, 2), (3, 4), (1, 2, 3)])
@pytest.mark.parametrize("own", [True, False], ids=["own", "all"])
def test_groups_alpha_and_own_body_rules_match_mujoco(groups: tuple[int, ...] | None, own: bool) -> None:
    """`geometry="all"` follows mj_ray's rule: geoms with alpha 0, other groups and the excluded body are invisible."""
    engine = sn.MujocoEngine(SELECTION, 1)
    engine.refresh()
    row = engine.names("body").index("robot")
    world = World(engine, [(row, (0.0, 0.0, 0.0))])
    model = mujoco.MjModel.from_xml_string(SELECTION)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    rng = np.random.default_rng(82)
    starts = rng.uniform([-2, -2, -0.6], [2, 2, 0.6], (1500, 3))
    directions = rng.normal(size=(1500, 3)) - [0.0, 0.0, 0.5]
    targets = Targets(geometry="all", groups=groups, exclude_own=own)
    here = {k: v[0, 0] for k, v in world.cast(world.rays(starts, directions, targets=targets)).items()}
    mask = None if groups is None else np.isin(np.arange(6), groups).astype(np.uint8)
    o, d = (here[name].astype(np.float64) for name in ("start", "direction"))
    native, geom = mj_rays(model, data, o, d, model.body("robot").id if own else -1, geomgroup=mask)
    chosen = [
        shape.is_visible and (groups is None or shape.group in groups) and not (own and shape.row == row)
        for shape in engine.shapes()
    ]
    reference = reference_cast(engine.shapes(), o, d, poses=world.poses(0), include=chosen)
    clear = ~reference.is_edge & (reference.tangency > np.radians(0.1))
    assert (~clear).sum() <= 2
    ids = geom_ids(engine, model)
    same_hits(here["distance"][clear], ids[here["shape"][clear]], native[clear], geom[clear], reference.second[clear])
    names = {engine.shapes()[i].name for i in here["shape"] if i >= 0}
    assert names == {shape.name for shape, is_in in zip(engine.shapes(), chosen, strict=True) if is_in}
    assert not names & {"clear", "pane"}


@pytest.mark.parametrize(
    ("geometry", "expected"),
    [
        ("visual", {"floor", "painted", "shown", "decor", "foot"}),
        ("collision", {"floor", "clear", "pane", "painted", "shown", "hidden", "foot"}),
        ("all", {"floor", "painted", "shown", "hidden", "decor", "foot"}),
    ],
)
def test_visual_and_collision_geometry(geometry: Any, expected: set[str]) -> None:
    """Visual means visible and of groups 0 to 2; collision means collidable, visible or not; all means visible."""
    engine = sn.MujocoEngine(SELECTION, 1)
    world = World(engine, [(engine.names("body").index("robot"), (0.0, 0.0, 0.0))])
    chosen = world.scene.select(Targets(geometry=geometry), "Test")
    cast = world.rays([[0.0, 0.0, 0.0]], [[0.0, 0.0, -1.0]], targets=Targets(geometry=geometry))
    seen = {world.scene.shapes[i].name for i in chosen if world.scene.shapes[i].row != world.mount.body[0]}
    assert seen == expected
    names = {world.scene.shapes[i].name for i in cast.view.shapes}
    assert names <= expected


CLOTH = """
<mujoco>
  <worldbody>
    <geom name="floor" type="box" size="5 5 .1"/>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="0 0 1" dim="2" mass="1" radius=".01">
      <edge equality="true"/>
    </flexcomp>
  </worldbody>
</mujoco>"""


def test_deformable_is_refused_by_name_unless_excluded() -> None:
    engine = sn.MujocoEngine(CLOTH, 1)
    down = sn.patterns.GridPatternCfg(size=(0.2, 0.2), resolution=0.1)
    cfg = sn.RayCasterCfg(name="rays", prim_path="/World", pattern=down, offset=sn.OffsetCfg(pos=(0.0, 0.0, 3.0)))
    with pytest.raises(ConfigError, match=r"(?s)cloth.*deformable \(a flex\).*exclude=\('cloth',\)"):
        sn.Scene(engine, [cfg])
    scene = sn.Scene(sn.MujocoEngine(CLOTH, 1), [cfg.model_copy(update={"exclude": ("cloth",)})])
    torch.testing.assert_close(scene["rays"].data.distances, torch.full((1, 9), 2.9))  # through it, as mj_ray's
