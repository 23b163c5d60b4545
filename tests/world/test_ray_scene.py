"""Ray scenes: shared shapes, work per step, selections and bad meshes."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from ray_worlds import World, tensor_engine
from selection import gate

import sensorium as sn
from sensorium.errors import ConfigError, ModelError, SelectionError
from sensorium.geometry.shapes import HeightField, Mesh, Shape
from sensorium.shapes.ray_static import LARGE, building
from sensorium.shapes.ray_view import RayViews
from sensorium.shapes.scene import ShapeScene, Targets


def ground(n: int, name: str = "ground") -> Mesh:
    """Return a bumpy ground of about n * n * 2 triangles."""
    x, y = np.meshgrid(np.linspace(-5, 5, n + 1), np.linspace(-5, 5, n + 1))
    z = 0.2 * np.sin(2 * x) * np.cos(3 * y)
    a = (np.arange(n)[:, None] * (n + 1) + np.arange(n)).ravel()
    faces = np.concatenate([np.stack([a, a + 1, a + n + 2], 1), np.stack([a, a + n + 2, a + n + 1], 1)])
    return Mesh(np.stack([x, y, z], axis=-1).reshape(-1, 3), faces, name)


WEDGE = Mesh([[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]], [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], "wedge")
HILLS = HeightField(np.random.default_rng(0).uniform(0, 1, (20, 20)), (3.0, 3.0))
SHAPES = (
    Shape("mesh", "ground", mesh=ground(12), labels=("terrain",)),
    Shape("hfield", "hills", pos=(9.0, 0.0, 0.0), hfield=HILLS, labels=("terrain", "rough"), group=1),
    Shape("box", "wall", (0.1, 2.0, 1.0), pos=(3.0, 0.0, 1.0), group=4),
    Shape("mesh", "left foot", body="b0", mesh=WEDGE),
    Shape("mesh", "right foot", body="b1", mesh=WEDGE, scale=(1.0, -1.0, 1.0), is_visual=False),
    Shape("sphere", "lamp", (0.2,), body="b1", is_collision=False, labels=("light",)),
    Shape("sphere", "ghost", (0.2,), body="b1", is_visible=False, is_visual=False),
)


def world_of(envs: int = 2, shapes: Any = SHAPES, **more: Any) -> World:
    return World(tensor_engine(shapes, 2, envs), **more)


def names(scene: ShapeScene, **targets: Any) -> set[str]:
    return {scene.shapes[i].name for i in scene.select(Targets(**targets), "Test")}


# Sharing --------------------------------------------------------------------------------------------------------------


def test_sensors_with_equal_selection_share_trees_and_indices() -> None:
    """Equal selections share the same tree and view; another selection has its own, with the same moving
    meshes.
    """
    world = world_of()
    ray = [[0.0, 0.0, 5.0]], [[0.0, 0.1, -1.0]]
    one, two = world.rays(*ray), world.rays(*ray, alignment="world", block=1)
    assert one.view is two.view
    assert int(one.view.slanted().tree) == int(two.view.slanted().tree) != 0
    assert one.view.indexed() is two.view.indexed()
    other = world.rays(*ray, targets=Targets(exclude=("wall",)))
    assert other.view is not one.view
    meshes = [[int(i) for i in cast.view.instances.mesh.numpy() if i] for cast in (one, other)]
    assert meshes[0] == meshes[1]
    assert len(set(meshes[0])) == 1  # two feet, one mirrored: one mesh


def test_memory_does_not_grow_with_the_number_of_sensors() -> None:
    cfg = sn.RayCasterCfg(name="a", body="b0", targets="ground")
    scene = sn.Scene(tensor_engine(SHAPES, 2, 2), [cfg, cfg.model_copy(update={"name": "b"})])
    a, b = (scene[name] for name in "ab")
    assert a.rays is b.rays
    before = a.rays.nbytes
    scene.add(cfg.model_copy(update={"name": "c", "body": "b1"}))
    scene.update()
    assert a.rays.nbytes == before


def sizes(struct: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays in a struct."""
    members = {name: getattr(struct, name) for name in type(struct).vars} if hasattr(type(struct), "vars") else {}
    members = members or {name: getattr(struct, name) for name in struct._cls.vars}
    return {name: value.shape for name, value in members.items() if isinstance(value, wp.array)}


@pytest.mark.parametrize("direction", [[0.0, 0.1, -1.0], [0.0, 0.0, -1.0]], ids=["slanted", "down"])
def test_memory_per_env_is_independent_of_the_terrain_and_no_env_has_a_copy(direction: list[float]) -> None:
    """Trees have the same size for 1 and 307 envs; a cast has the same size over 288 and 12800 triangles."""
    weights: dict[tuple[int, int], tuple[int, int]] = {}
    for n in (12, 80):
        shapes = (Shape("mesh", "ground", mesh=ground(n)), *SHAPES[1:])
        for envs in (1, 307):
            world = world_of(envs, shapes)
            cast = world.rays([[0.0, 0.0, 5.0]], [direction], alignment="world")
            world.cast(cast, ("distance",))
            weights[n, envs] = world.scene.nbytes, cast.nbytes
            everything = sizes(cast.view.instances) | sizes(cast.view.slanted()) | sizes(cast.view.indexed())
            assert not any(307 in shape for shape in everything.values())
    for n in (12, 80):
        assert weights[n, 1][0] == weights[n, 307][0]
    per_env = {n: (weights[n, 307][1] - weights[n, 1][1]) / 306 for n in (12, 80)}
    assert per_env[12] == per_env[80] <= 4 * (7 + 3 * 10)  # a mount's pose; position, rotation and centre of a body
    assert weights[80, 1][0] > 10 * weights[12, 1][0]


# Work per step --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [None, 0.5])
def test_normals_of_a_height_field_are_the_same_with_and_without_other_outputs(base: float | None) -> None:
    """Distance and normal come from one look-up; with the face they come from the shape that was hit, in general."""
    field = HeightField(HILLS.heights, (3.0, 2.0), base)
    turned = Shape("hfield", "hills", pos=(0.5, 0.2, -0.3), quat=(0.8, 0.0, 0.0, 0.6), hfield=field)
    world = world_of(2, (turned, Shape("sphere", "ball", (0.8,), pos=(0.5, 0.2, 0.2))))
    starts = np.random.default_rng(2).uniform(-3.5, 3.5, (600, 3))
    cast = world.rays(starts, np.tile([0.0, 0.0, -1.0], (600, 1)), alignment="yaw")
    short, full = world.cast(cast, ("distance", "normal")), world.cast(cast)
    np.testing.assert_allclose(short["distance"], full["distance"], rtol=0.0, atol=2e-6)
    same = np.isclose(short["normal"], full["normal"], rtol=0.0, atol=1e-6).all(axis=-1)
    assert same.mean() > 0.995  # the rest hit an edge within rounding
    shapes = np.unique(full["shape"])
    assert len(shapes) == 3  # the field, the ball and misses
    assert 0.1 < (full["normal"][..., 2] == 0.0).mean() < 0.9
    assert len(np.unique(full["normal"].reshape(-1, 3), axis=0)) > 100


@pytest.mark.parametrize("direction", [[0.0, 0.1, -1.0], [0.0, 0.0, -1.0]], ids=["slanted", "down"])
def test_static_shapes_cost_nothing_per_step(direction: list[float]) -> None:
    """A step places the mount and the moving shapes, and casts; in a static world it only casts."""
    for moves, expected in ((True, ["place_shapes"]), (False, [])):
        world = world_of(2, SHAPES if moves else SHAPES[:3])
        cast = world.rays([[0.0, 0.0, 5.0]], [direction], alignment="world")
        outputs = world.outputs(cast, ("distance", "point"))
        segment = world.compute.record(lambda cast=cast, outputs=outputs: cast.cast(outputs))
        launches = {launch.kernel.key: launch for launch in segment._launches}
        casts = [key for key in launches if key.startswith("cast_")]
        assert [key for key in launches if key not in casts] == ["_pose", "keep_pose", *expected]
        assert len(casts) == 1
        if moves:
            assert launches["place_shapes"].dim == (2, 2)  # a foot and the lamp of each env, nothing else
        surroundings = cast.view.indexed() if cast.vertical else cast.view.slanted()
        before = {k: v.numpy().copy() for k, v in arrays(surroundings).items()}
        for _ in range(3):
            world.engine.body_pos_w += 0.1
            segment.run()
        for name, array in arrays(surroundings).items():
            np.testing.assert_array_equal(array.numpy(), before[name])


def arrays(struct: Any) -> Mapping[str, Any]:
    """Return the non-empty arrays of a struct."""
    return {name: getattr(struct, name) for name in sizes(struct) if getattr(struct, name).size}


# Selections -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({}, {"ground", "hills", "wall", "left foot", "lamp"}),
        ({"geometry": "collision"}, {"ground", "hills", "wall", "left foot", "right foot", "ghost"}),
        ({"geometry": "all"}, {"ground", "hills", "wall", "left foot", "right foot", "lamp"}),
        ({"groups": (1, 4)}, {"hills", "wall"}),
        ({"groups": (0,)}, {"ground", "left foot", "right foot", "lamp"}),
        ({"include": ("hills", ".*foot")}, {"hills", "left foot"}),
        ({"include": ("b1",)}, {"lamp"}),
        ({"include": ("b[01]",), "geometry": "all"}, {"left foot", "right foot", "lamp"}),
        ({"include": ("world",)}, {"ground", "hills", "wall"}),
        ({"labels": ("terrain",)}, {"ground", "hills"}),
        ({"labels": ("ro.*", "light")}, {"hills", "lamp"}),
        ({"labels": ("terrain",), "exclude": ("hills",)}, {"ground"}),
        ({"exclude": ("b0", "wall")}, {"ground", "hills", "lamp"}),
    ],
)
def test_selections_match_expected_shapes(targets: dict[str, Any], expected: set[str]) -> None:
    """Selections by geometry, groups (which then replace every other rule but visibility), names, bodies and labels."""
    assert names(world_of().scene, **targets) == expected


def test_labels_are_given_by_name_and_body() -> None:
    scene = sn.Scene(
        tensor_engine(SHAPES, 2, 1),
        [sn.RayCasterCfg(name="rays", body="b0", labels="robot", fields=("geom_ids",))],
        semantics={"robot": ("b.*",), "wood": "wall"},
    )
    rays = scene["rays"].rays
    assert rays.label_names == ("light", "robot", "rough", "terrain", "wood")
    assert names(rays, labels=("robot",), geometry="all") == {"left foot", "right foot", "lamp"}
    assert dict(zip((s.name for s in rays.shapes), rays.semantic_ids.tolist(), strict=True)) == {
        "ground": 4, "hills": 4, "wall": 5, "left foot": 2, "right foot": 2, "lamp": 1, "ghost": 2,
    }  # fmt: skip
    with pytest.raises(SelectionError, match=r"semantics\['wood'\].*'wal'.*wall"):
        sn.Scene(tensor_engine(SHAPES, 2, 1), [], semantics={"wood": "wal"})


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"include": ("grund",)}, r"Test.*targets.*'grund'.*a body or a geom.*ground"),
        ({"exclude": ("hils",)}, r"Test.*exclude.*'hils'.*hills"),
        ({"labels": ("terain",)}, r"Test.*labels.*'terain'.*semantic label.*terrain"),
        ({"include": ("hi(",)}, r"Test.*targets.*'hi\('.*regular expression is invalid"),
        ({"groups": (5,)}, r"Test.*targets.*groups=\(5,\).*at least one shape.*ground"),
        (
            {"include": ("ghost",)},
            r"Test.*'visual'.*at least one shape. Give geometry='any' .*ghost",
        ),
        ({"groups": (5,)}, r"geometry='any', include_geom_groups=None for every shape"),
    ],
)
def test_selection_without_match_error_lists_existing_names(targets: dict[str, Any], message: str) -> None:
    world = world_of()
    with pytest.raises(SelectionError, match=re.compile(message, re.DOTALL)):
        world.scene.view(RayViews).select(Targets(**targets), [-1], "Test")


def test_own_body_is_hit_only_if_requested() -> None:
    shapes = [Shape("sphere", "head", (0.1,), body="b0")]
    alone = sn.Scene(tensor_engine(shapes, 2, 1), [sn.RayCasterCfg(name="rays", body="b0")])
    assert torch.isinf(alone["rays"].data.distances).all()
    scene = sn.Scene(tensor_engine(shapes, 2, 1), [sn.RayCasterCfg(name="rays", body="b0", exclude_parent_body=False)])
    assert torch.allclose(scene["rays"].data.distances[:, 60], torch.tensor(0.1))


def test_rays_and_images_of_an_empty_world_miss_and_named_targets_are_refused() -> None:
    cfgs = sn.RayCasterCfg(name="rays", body="b0"), sn.DepthCameraCfg(name="depth", body="b0")
    empty = sn.Scene(tensor_engine([], 2, 1), cfgs)
    assert torch.isinf(empty["rays"].data.distances).all()
    assert torch.isinf(empty["depth"].data.distance_to_image_plane).all()
    with pytest.raises(SelectionError, match="Bodies and shapes that rays can hit: none"):
        sn.Scene(tensor_engine([], 2, 1), [sn.RayCasterCfg(name="rays", body="b0", targets="wall")])


def test_deformable_is_refused_by_name_unless_excluded() -> None:
    cloth = Shape("mesh", "cloth", is_static=False, fault="it is deformable")
    world = world_of(1, (*SHAPES, cloth))
    with pytest.raises(ConfigError, match=r"(?s)Test.*targets.*cloth.*deformable.*exclude=\('cloth',\)"):
        world.scene.select(Targets(), "Test")
    assert "cloth" not in names(world.scene, exclude=("cloth",))
    assert names(world.scene, include=("ground",)) == {"ground"}


def test_rays_require_directions() -> None:
    world = world_of()
    for start, direction in (([0, 0, 0], [0, 0, 0]), ([0, 0, np.nan], [0, 0, 1]), ([0, 0, 0], [0, np.inf, 1])):
        with pytest.raises(ConfigError, match=r"pattern.*ray 1 with start.*directions that are not zero"):
            world.rays([[0, 0, 0], start], [[0, 0, 1], direction])
    with pytest.raises(ConfigError, match=r"pattern.*2 starts.*1, one for each direction"):
        world.rays([[0, 0, 0], [0, 0, 0]], [[0, 0, 1]])


# Meshes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (np.zeros((0, 3)), [[0, 1, 2]], "vertices: got an array of shape"),
        ([[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.zeros((0, 3), int), "faces: got an array of shape"),
        ([[0, 0, np.nan], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], "vertices: 1 of 3 are not finite, first row 0"),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0]], [[0, 1, 3], [0, 1, 2]], "1 of 2 triangles are degenerate"),
        ([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 3]], "indices 0 to 3, expected 0 to 2"),
        ([["a", 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], "vertices: got .*not only real numbers"),
    ],
)
def test_broken_mesh_error_names_it(vertices: Any, faces: Any, message: str) -> None:
    with pytest.raises(ModelError, match=f"mesh 'rock': .*{message}"):
        Mesh(vertices, faces, "rock")


class Terminal(io.StringIO):
    """Meshes that look like a height field, and meshes that do not."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


@pytest.mark.parametrize(
    ("triangles", "is_terminal", "shows"), [(10**6, True, True), (10**6, False, False), (5, True, False)]
)
def test_a_long_build_shows_its_progress_on_a_terminal_only(
    triangles: int, is_terminal: bool, shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with building("the tree of the static world", triangles) as progress:
        assert (progress is not None) == shows
        if progress is not None:
            progress(0.5)
    assert ("Building the tree of the static world: 1,000,000 triangles" in terminal.getvalue()) == shows


@pytest.mark.slow
@pytest.mark.parametrize("cells", gate([400, 1000], {400}))
def test_a_mesh_of_two_million_triangles_works(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slanted and vertical rays hit the height given by the formula, and the build reports its deviation."""
    mesh = ground(cells, "land")
    assert len(mesh.faces) == 2 * cells**2 > LARGE
    terminal = Terminal(True)
    monkeypatch.setattr(sys, "stderr", terminal)
    world = World(tensor_engine([Shape("mesh", "land", mesh=mesh)], 0, 1))
    rng = np.random.default_rng(1)
    starts = np.c_[rng.uniform(-4, 4, (500, 2)), np.full(500, 3.0)]
    for slope in (0.0, 0.2):
        directions = np.broadcast_to([slope, 0.0, -1.0], starts.shape)
        got = world.cast(world.rays(starts, directions, alignment="world"))
        x, y, z = got["point"][0, 0].T
        sag = 2e-4 * (1000 / cells) ** 2  # 1 cm cells: 0.2 mm
        np.testing.assert_allclose(z, 0.2 * np.sin(2 * x) * np.cos(3 * y), atol=sag)
        assert np.isfinite(got["distance"]).all()
    assert "land" in terminal.getvalue() or "static world" in terminal.getvalue()
    assert torch.isfinite(torch.from_numpy(got["normal"])).all()


@pytest.mark.parametrize("fresh", [True, False])
def test_rays_added_later_do_not_affect_other_sensors(fresh: bool) -> None:
    """Shapes only need poses from the engine, so nothing is reserved for them."""
    model = (
        '<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/><body name="ball" pos="0 0 3"><freejoint/>'
        '<geom size=".1"/></body></worldbody></mujoco>'
    )
    scenes = [sn.Scene(sn.MujocoEngine(model, fresh=fresh), [sn.ImuCfg(name="imu", body="ball")]) for _ in range(2)]
    for scene in scenes:
        scene.step(substeps=20)
    pattern = sn.patterns.GridPatternCfg(size=(0.0, 0.0))
    scenes[0].add(sn.RayCasterCfg(name="down", body="ball", pattern=pattern, evaluate="always"))
    for scene in scenes:
        scene.step(substeps=20)
        assert torch.equal(scene["imu"].data.lin_acc_b, scenes[1]["imu"].data.lin_acc_b)
    down = scenes[0]["down"].data
    assert torch.allclose(down.distances[:, 0], down.pos_w[:, 2]) and 2.0 < down.distances.item() < 3.0
