"""Layouts of taxels: positions by hand, areas in closed form, and patches checked by independent searches."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import surfaces
from numpy.typing import NDArray
from reference import random_shapes
from scipy.spatial.distance import cdist, pdist

import sensorium as sn
from sensorium.engines import Shape
from sensorium.errors import ConfigError, ModelError, SelectionError
from sensorium.patterns import taxel_grid, taxel_list, taxel_patch, taxels_on
from sensorium.patterns.taxels import TaxelLayout

Array = NDArray[np.float64]


def arrays(layout: TaxelLayout) -> tuple[Array, Array, Array]:
    """Positions, normals and areas."""
    return np.array(layout.positions), np.array(layout.normals), np.array(layout.areas)


def boulder() -> Shape:
    """A closed ball of random radii, a third of a metre wide."""
    return next(
        shape for shape in random_shapes(np.random.default_rng(4), 12, kinds=("mesh",), extent=1.0)
        if shape.mesh is not None and len(shape.mesh.faces) == 120
    )  # fmt: skip


# Lists and grids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0.004, 0.0001, -0.0001, -0.002])
def test_taxels_sunk_by_their_radius_measure_contact_at_the_skin(gap: float) -> None:
    """On a pad under a plate, 1 cm above its link, taxels on the skin sense contact a radius too early; sunk ones do
    not.
    """
    pad = taxel_grid(2, 3, 0.004, origin=(0.0, 0.0, 0.01))
    plate = Shape("plane", "plate", quat=(0.0, 1.0, 0.0, 0.0))  # solid above z = 0
    engine = sn.TensorEngine(bodies=("tip",), shapes=[plate])
    engine.body_pos_w[0, 0, 2] = -0.01 - gap
    skin, sunk = (
        sn.ContactDepthProbeCfg(
            name=name, link_name="tip", probe_local_pos=given["probe_local_pos"], probe_radius=0.005
        )
        for name, given in (("skin", pad.cfg()), ("sunk", pad.cfg(radius=0.005)))
    )
    scene = sn.Scene(engine, [skin, sunk])
    np.testing.assert_allclose(scene[skin].data.numpy(), 0.005 - gap, atol=1e-7)
    np.testing.assert_allclose(scene[sunk].data.numpy(), max(0.0, -gap), atol=1e-7)


def test_sunk_taxels_of_a_dome_are_closer_to_its_centre_by_their_radius() -> None:
    dome = sn.patterns.taxel_dome(0.01, 3, 8)
    given = dome.cfg(radius=0.002)
    assert given["probe_radius"] == 0.002 and given["probe_local_normal"] == dome.normals
    np.testing.assert_allclose(np.linalg.norm(given["probe_local_pos"], axis=-1), 0.008, rtol=1e-12)
    sn.KinematicTactileSensorCfg(link_name="tip", **given)
    for radius in (0.0, -1.0, math.inf, True):
        with pytest.raises(ConfigError, match="radius: got"):
            dome.cfg(radius=radius)


def test_list_keeps_positions_and_normalises_normals() -> None:
    layout = taxel_list([(0, 0, 0), (0.003, 0, 0), (0, 0.005, 0)], normals=(0, 3, 4))
    assert layout.positions == ((0.0, 0.0, 0.0), (0.003, 0.0, 0.0), (0.0, 0.005, 0.0))
    assert layout.normals == ((0.0, 0.6, 0.8),) * 3
    assert layout.spacing == pytest.approx(0.003) and layout.areas == pytest.approx((9e-6,) * 3)
    assert layout.shape == (3,) and len(layout) == 3
    grid = taxel_list(np.zeros((2, 4, 3)) + np.arange(4)[:, None], normals=np.ones((2, 4, 3)), areas=2.0)
    assert grid.shape == (2, 4) and np.array(grid.normals)[1, 3] == pytest.approx([3**-0.5] * 3)
    assert grid.areas == ((2.0,) * 4,) * 2


def test_grid_has_columns_along_x_and_rows_along_y_about_its_centre() -> None:
    layout = taxel_grid(2, 3, (0.002, 0.004), origin=(1.0, 0.0, 0.0))
    places, normals, areas = arrays(layout)
    np.testing.assert_allclose(places[0], [[0.998, -0.002, 0], [1.0, -0.002, 0], [1.002, -0.002, 0]], atol=1e-15)
    np.testing.assert_allclose(places[1], [[0.998, 0.002, 0], [1.0, 0.002, 0], [1.002, 0.002, 0]], atol=1e-15)
    assert (normals == [0.0, 0.0, 1.0]).all()
    assert areas == pytest.approx(np.full((2, 3), 8e-6)) and layout.spacing == pytest.approx(0.002)
    assert repr(layout) == "TaxelLayout(2 x 3 taxels, 2 mm apart, 0.48 cm2)"


def test_grid_of_a_size_has_taxels_at_the_centres_of_equal_parts() -> None:
    places, _, areas = arrays(taxel_grid(4, 2, size=(0.01, 0.04)))
    assert sorted(set(np.round(places[..., 0].ravel(), 9))) == [-0.0025, 0.0025]
    assert sorted(set(np.round(places[..., 1].ravel(), 9))) == [-0.015, -0.005, 0.005, 0.015]
    assert areas.sum() == pytest.approx(4e-4)


def test_a_grid_with_an_oblique_normal_is_right_handed_and_flat() -> None:
    layout = taxel_grid(3, 4, 0.002, normal=(1.0, 2.0, 2.0), x_axis=(1.0, 0.0, 0.0), origin=(0.1, 0.2, 0.3))
    places, normals, _ = arrays(layout)
    n = np.array([1.0, 2.0, 2.0]) / 3.0
    np.testing.assert_allclose(normals, np.broadcast_to(n, normals.shape), atol=1e-15)
    across, along = places[0, 1] - places[0, 0], places[1, 0] - places[0, 0]
    np.testing.assert_allclose(np.cross(across, along), 4e-6 * n, atol=1e-18)
    assert across[0] > 0.0 and across @ n == pytest.approx(0.0, abs=1e-16)
    np.testing.assert_allclose(places.mean(axis=(0, 1)), [0.1, 0.2, 0.3], atol=1e-15)


def test_a_normal_along_x_has_columns_along_y() -> None:
    places, _, _ = arrays(taxel_grid(1, 2, 0.002, normal=(1.0, 0.0, 0.0)))
    np.testing.assert_allclose(places[0], [[0.0, -0.001, 0.0], [0.0, 0.001, 0.0]], atol=1e-18)


def test_a_cylinder_has_its_taxels_at_its_radius_with_normals_from_its_axis() -> None:
    layout = sn.patterns.taxel_cylinder(
        0.02, 6, 5, length=0.05, angle_deg=120.0, origin=(0.0, 0.0, 0.1), normal=(0.0, 1.0, 0.0)
    )
    places, normals, areas = arrays(layout)
    across = places - [0.0, 0.0, 0.1]
    np.testing.assert_allclose(np.hypot(across[..., 1], across[..., 2]), 0.02, rtol=1e-12)
    np.testing.assert_allclose(normals * 0.02, across * [0.0, 1.0, 1.0], atol=1e-15)
    np.testing.assert_allclose(places[0, :, 0], [-0.02, -0.01, 0.0, 0.01, 0.02], atol=1e-15)
    angle = np.degrees(np.arctan2(np.cross(normals[0, 0], normals[:, 0])[:, 0], normals[:, 0] @ normals[0, 0]))
    np.testing.assert_allclose(angle, -20.0 * np.arange(6), atol=1e-9)  # towards y = normal x x_axis, here -z
    np.testing.assert_allclose(normals[:, 0].sum(axis=0)[[0, 2]], 0.0, atol=1e-12)
    assert areas.sum() == pytest.approx(0.02 * math.radians(120.0) * 0.05)


def test_a_dome_has_rings_about_its_top_with_the_area_of_the_cap() -> None:
    layout = sn.patterns.taxel_dome(0.01, 3, 8, angle_deg=60.0, origin=(0.0, 0.0, -0.01))
    places, normals, areas = arrays(layout)
    np.testing.assert_allclose(places, 0.01 * normals + [0.0, 0.0, -0.01], atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=-1), 1.0, rtol=1e-14)
    polar = np.degrees(np.arccos(normals[..., 2]))
    np.testing.assert_allclose(polar, np.broadcast_to([[10.0], [30.0], [50.0]], (3, 8)), atol=1e-9)
    np.testing.assert_allclose(normals[:, 0, 1], 0.0, atol=1e-15)
    assert (normals[:, 0, 0] > 0.0).all() and (normals[:, 2, 1] > 0.1).all()  # from x to y
    assert areas.sum() == pytest.approx(2.0 * math.pi * 1e-4 * (1.0 - math.cos(math.radians(60.0))))
    assert layout.spacing == pytest.approx(pdist(places.reshape(-1, 3)).min())


def test_dome_can_point_in_any_direction() -> None:
    n = np.array([2.0, -1.0, 2.0]) / 3.0
    _, normals, _ = arrays(sn.patterns.taxel_dome(0.01, 4, 6, normal=tuple(2.0 * n)))
    np.testing.assert_allclose(normals @ n, np.cos(np.radians(75.0 * (np.arange(4) + 0.5) / 4))[:, None] * np.ones(6))


def test_layout_can_be_moved_to_another_frame() -> None:
    layout = taxel_grid(2, 2, 0.002).placed((0.0, 0.0, 0.5), (1.0, 1.0, 0.0, 0.0))  # y to z
    places, normals, _ = arrays(layout)
    np.testing.assert_allclose(places[1, 0], [-0.001, 0.0, 0.501], atol=1e-15)
    np.testing.assert_allclose(normals[0, 0], [0.0, -1.0, 0.0], atol=1e-15)


# Patches --------------------------------------------------------------------------------------------------------------


def test_crosstalk_of_a_list_depends_on_distance() -> None:
    """Columns sum to 1, so a load is preserved; a taxel's spread is a Gaussian of the distance, up to three sigma."""
    layout = sn.patterns.taxel_dome(0.01, 4, 9, angle_deg=60.0)
    crosstalk = np.array(layout.crosstalk(0.4, 0.002))
    far = cdist(*[np.array(layout.positions).reshape(-1, 3)] * 2)
    np.testing.assert_allclose(crosstalk.sum(axis=0), 1.0, atol=1e-12)
    given = crosstalk - 0.6 * np.eye(36)
    np.testing.assert_allclose(given.diagonal() * np.exp(-0.5 * (far / 0.002) ** 2) * (far < 0.006), given, atol=1e-12)
    assert (given[:, 0] > 0.0).sum() < 36 and json.loads(json.dumps(crosstalk.tolist())) == crosstalk.tolist()
    sn.stages.TaxelCrosstalk(matrix=layout.crosstalk(0.4, 0.002))


def test_crosstalk_of_a_list_equals_the_grid_kernel_in_the_centre() -> None:
    """The exception is the corners beyond three sigma, where a Gaussian has exp(-4.5)."""
    crosstalk = np.array(taxel_grid(15, 15, 0.001).crosstalk(0.4, 0.0015))
    kernel = sn.stages.TaxelCrosstalk(strength=0.4, sigma=0.0015, spacing=0.001).coefficients((15, 15))
    assert np.abs(crosstalk - kernel)[:, 112].sum() < 2 * 0.4 * math.exp(-4.5)
    assert kernel[112, 112] < 0.7


@pytest.mark.parametrize("count", [1, 2, 20, 64])
def test_patch_has_the_given_number_of_taxels_on_the_facing_cap(count: int) -> None:
    """The cap's area is known. No set of n points on area A is wider spaced than the densest packing, and the result is
    close to it.
    """
    r, n = 0.01, np.array([0.6, 0.0, 0.8])
    layout = taxel_patch(Shape("sphere", "tip", (r,)), count=count, normal=tuple(n), max_angle_deg=50.0)
    places, normals, areas = arrays(layout)
    assert places.shape == (count, 3)
    np.testing.assert_allclose(places, r * normals, atol=1e-12)
    assert np.degrees(np.arccos(normals @ n)).max() <= 50.0
    cap = 2.0 * math.pi * r**2 * (1.0 - math.cos(math.radians(50.0)))
    assert areas.sum() == pytest.approx(cap, rel=2e-3)
    if count == 1:
        assert normals[0] @ n > 0.999 and layout.spacing == math.inf
        return
    assert layout.spacing == pytest.approx(pdist(places).min())
    assert layout.spacing > 0.6 * math.sqrt(2.0 / math.sqrt(3.0) * cap / count)
    assert areas.min() > 0.4 * cap / count and areas.max() < 2.0 * cap / count


def test_patch_taxels_lie_on_the_mesh_with_face_normals() -> None:
    shape = boulder()
    assert shape.mesh is not None
    layout = taxel_patch(shape, count=50, normal=(0.0, -1.0, 0.0), max_angle_deg=70.0)
    places, normals, _ = arrays(layout)
    assert surfaces.to_shape(Shape("mesh", "m", mesh=shape.mesh, scale=shape.scale, pos=shape.pos, quat=shape.quat),
                             places).max() < 1e-6  # fmt: skip
    off = surfaces.to_shape(shape, places + 1e-5 * normals)
    assert np.median(np.abs(off - 1e-5)) < 1e-8
    assert np.degrees(np.arccos(-normals[:, 1])).max() <= 70.0
    centre = np.array(shape.pos)
    assert (((places - centre) * normals).sum(axis=1) > 0.0).all()  # the boulder is star-shaped about its middle


def test_spacing_places_as_many_taxels_as_fit() -> None:
    """Any randomly chosen place on the patch is within the spacing of a taxel, up to the resolution of the search."""
    r, spacing, cosine = 0.01, 0.002, math.cos(math.radians(60.0))
    layout = taxel_patch(Shape("capsule", "finger", (r, 0.02)), spacing=spacing)
    places, _, _ = arrays(layout)
    assert pdist(places).min() >= spacing
    z = np.random.default_rng(0).uniform(cosine, 1.0, 4000)
    turn = np.random.default_rng(1).uniform(0.0, 2.0 * math.pi, 4000)
    out = np.sqrt(1.0 - z * z)
    chance = r * np.stack([out * np.cos(turn), out * np.sin(turn), z], axis=1) + [0.0, 0.0, 0.02]
    assert cdist(chance, places).min(axis=1).max() < 1.1 * spacing


def test_count_and_spacing_both_hold_if_possible() -> None:
    box = Shape("box", "pad", (0.01, 0.01, 0.002))
    layout = taxel_patch(box, count=30, spacing=0.0029)
    assert len(layout) == 30 and pdist(arrays(layout)[0]).min() >= 0.0029
    with pytest.raises(ConfigError, match=r"count: got 80, expected at most \d+, which fit on 4 cm2 at a spacing of 0"):
        taxel_patch(box, count=80, spacing=0.003)


@pytest.mark.parametrize(
    "region", [((-1.0, 0.0, -1.0), (0.003, 1.0, 1.0)), ((0.005, 0.005, 0.002), 0.004)], ids=["box", "ball"]
)
def test_region_limits_a_patch(region: Any) -> None:
    layout = taxel_patch(Shape("box", "pad", (0.01, 0.01, 0.002)), count=12, region=region)
    places, _, areas = arrays(layout)
    if isinstance(region[1], float):
        assert np.linalg.norm(places - region[0], axis=1).max() <= region[1]
        assert areas.sum() == pytest.approx(math.pi * 0.004**2, rel=0.02)
    else:
        assert places[:, 0].max() <= 0.003 and places[:, 1].min() >= 0.0
        assert areas.sum() == pytest.approx(0.013 * 0.01, rel=0.02)
    assert (places[:, 2] == 0.002).all()


def test_patch_on_several_shapes_omits_hidden_surface() -> None:
    shapes = [Shape("sphere", "a", (0.01,)), Shape("sphere", "b", (0.01,), pos=(0.01, 0.0, 0.0))]
    places, normals, _ = arrays(taxel_patch(shapes, count=40, max_angle_deg=80.0))
    on = np.stack([np.linalg.norm(places - shape.pos, axis=1) for shape in shapes])
    np.testing.assert_allclose(on.min(axis=0), 0.01, rtol=1e-9)
    assert (np.abs(on - 0.01).min(axis=0) < 1e-9).all() and {0, 1} == set(np.abs(on - 0.01).argmin(axis=0))
    assert (normals[:, 2] > 0.17).all()


def test_layout_is_deterministic_per_seed() -> None:
    one, same, other = (taxel_patch(boulder(), count=20, seed=seed) for seed in (0, 0, 1))
    assert one == same and one.positions != other.positions


def test_the_innermost_taxels_come_first() -> None:
    places, _, _ = arrays(taxel_patch(Shape("box", "pad", (0.01, 0.01, 0.002)), count=40))
    far = np.hypot(places[:, 0], places[:, 1])
    assert (np.diff(far) > -2e-4).all()


# On engines -----------------------------------------------------------------------------------------------------------


HAND = """
<mujoco>
  <asset><mesh name="tip" scale=".01 .01 .02" vertex="-1 -1 0  1 -1 0  1 1 0  -1 1 0  0 0 1"/></asset>
  <worldbody><geom name="floor" type="plane" size="1 1 .1"/>
    <body name="rig" pos="1 2 3" euler="0 0 90"><geom name="anvil" type="box" size=".03 .02 .01" pos="0 0 .1"/></body>
    <body name="hand" pos="0 0 1"><freejoint/><geom name="palm" type="box" size=".05 .04 .01"/>
      <body name="finger" pos=".1 0 0" euler="0 40 0"><joint axis="0 1 0"/>
        <geom name="bone" type="capsule" size=".008" fromto="0 0 0 .05 0 0"/>
        <geom name="skin" type="sphere" size=".01" pos=".05 0 0" contype="0" conaffinity="0"/></body>
      <body name="thumb" pos="0 .1 0"><joint/><geom name="nail" type="mesh" mesh="tip" pos="0 0 .01"/></body>
    </body></worldbody>
</mujoco>
"""


def test_taxels_on_a_body_are_in_its_frame() -> None:
    engine = sn.MujocoEngine(HAND)
    places, normals, _ = arrays(taxels_on(engine, "finger", count=16, normal=(1.0, 0.0, 0.0)))
    np.testing.assert_allclose(np.linalg.norm(places - [0.05, 0.0, 0.0], axis=1), 0.008, rtol=1e-5)
    assert (places[:, 0] > 0.05).all() and (normals[:, 0] >= 0.5 - 1e-6).all()
    scene = sn.Scene(engine, [])
    assert taxels_on(scene, "finger", count=16, normal=(1.0, 0.0, 0.0)).positions == tuple(map(tuple, places))


def test_shapes_of_a_body_are_selected_by_purpose_or_name() -> None:
    engine = sn.MujocoEngine(HAND)
    outer = taxels_on(engine, "finger", count=8, normal=(1.0, 0.0, 0.0), geometry="all")
    np.testing.assert_allclose(np.linalg.norm(np.array(outer.positions) - [0.05, 0, 0], axis=1), 0.01, rtol=1e-5)
    named = taxels_on(engine, geom="skin", count=8, normal=(0.0, 1.0, 0.0))
    np.testing.assert_allclose(np.linalg.norm(np.array(named.positions) - [0.05, 0, 0], axis=1), 0.01, rtol=1e-5)


def test_taxels_on_a_mujoco_mesh_match_the_file() -> None:
    """MuJoCo moves the mesh into its inertial frame; the pyramid's flanks are at z = 0.03 - 2 max(|x|, |y|)."""
    places, normals, _ = arrays(taxels_on(sn.MujocoEngine(HAND), "thumb", count=24, max_angle_deg=80.0))
    np.testing.assert_allclose(places[:, 2], 0.03 - 2.0 * np.abs(places[:, :2]).max(axis=1), atol=1e-6)
    np.testing.assert_allclose(normals[:, 2], 5.0**-0.5, rtol=1e-5)


def test_taxels_on_a_static_body_are_in_its_frame() -> None:
    places, _, _ = arrays(taxels_on(sn.MujocoEngine(HAND), "rig", count=9))
    np.testing.assert_allclose(places[:, 2], 0.11, atol=1e-6)
    assert np.abs(places[:, 0]).max() < 0.03 and np.abs(places[:, 1]).max() < 0.02
    assert np.abs(places[:, 0]).max() > 0.02 - 1e-6


def test_taxels_on_shapes_of_a_tensor_engine() -> None:
    engine = sn.TensorEngine(
        2, bodies=("a", "b"), shapes=[Shape("sphere", "tip", (0.01,), body="b", pos=(0.0, 0.0, 0.3))]
    )
    places, _, _ = arrays(taxels_on(engine, "b", spacing=0.003))
    np.testing.assert_allclose(np.linalg.norm(places - [0.0, 0.0, 0.3], axis=1), 0.01, rtol=1e-9)
    with pytest.raises(ConfigError, match="a body with collision shapes in engine"):
        taxels_on(engine, "a", count=3)


def test_selection_other_than_one_body_with_shapes_raises() -> None:
    engine = sn.MujocoEngine(HAND)
    with pytest.raises(SelectionError, match="finger"):
        taxels_on(engine, "fingr", count=3)
    with pytest.raises(SelectionError, match=r"geoms of one body.*hand, finger"):
        taxels_on(engine, geom=("palm", "skin"), count=3)
    with pytest.raises(ConfigError, match=r"taxels_on.body, geom: .*one of the two"):
        taxels_on(engine, count=3)
    with pytest.raises(ConfigError, match="collision, visual or all"):
        taxels_on(engine, "finger", count=3, geometry="both")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="unbounded plane"):
        taxels_on(sn.MujocoEngine('<mujoco><worldbody><geom type="plane" size="0 0 1"/></worldbody></mujoco>'),
                     "world", count=3)  # fmt: skip


# Configs and errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        taxel_grid(2, 3, 0.002, normal=(1, 2, 2)),
        taxel_patch(Shape("sphere", "s", (0.01,)), count=5),
    ],
    ids=["grid", "list"],
)
def test_layout_in_a_config_round_trips_through_json_and_toml(layout: TaxelLayout, tmp_path: Any) -> None:
    cfg = sn.KinematicTactileSensorCfg(name="skin", link_name="tip", **layout.cfg())
    assert cfg.probe_local_pos == layout.positions and cfg.probe_local_normal == layout.normals
    assert type(cfg).from_json(cfg.to_json()) == cfg and type(cfg).from_toml(cfg.to_toml()) == cfg
    assert json.loads(json.dumps(layout.positions)) == np.array(layout.positions).tolist()


PAD = Shape("box", "pad", (0.01, 0.01, 0.002))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: taxel_list([]), r"taxel_list.positions: .*\[probe, 3\]"),
        (lambda: taxel_list([[(0, 0, 0)], [(0, 0, 0), (1, 0, 0)]]), "all rows of a grid of the same length"),
        (lambda: taxel_list([(0, 0, float("inf"))]), "finite"),
        (lambda: taxel_list([(0, 0, 0), (1, 0, 0)], normals=[(0, 0, 1), (0, 0, 0)]), "normals that are not zero"),
        (lambda: taxel_list([(0, 0, 0), (1, 0, 0)], normals=[(0, 0, 1)]), "one normal, or one for each"),
        (lambda: taxel_list([(0, 0, 0)], areas=-1.0), "positive areas"),
        (lambda: taxel_grid(0, 3, 0.002), "taxel_grid.rows: got 0, expected a whole number"),
        (lambda: taxel_grid(2, 3), "spacing, size: .*one of the two"),
        (lambda: taxel_grid(2, 3, 0.002, size=(1, 1)), "one of the two"),
        (lambda: taxel_grid(2, 3, -0.002), "taxel_grid.spacing: .*positive lengths"),
        (lambda: taxel_grid(2, 3, (0.1, 0.1, 0.1)), "taxel_grid.spacing: .*positive lengths"),  # type: ignore[arg-type]
        (lambda: taxel_grid(2, 3, 0.002, normal=(0, 0, 0)), "normal: .*a direction that is not zero"),
        (lambda: taxel_grid(2, 3, 0.002, x_axis=(0, 0, 2)), "x_axis: .*not along the normal"),
        (lambda: taxel_grid(1000, 1000, 0.002), "at most 100000 taxels"),
        (lambda: sn.patterns.taxel_dome(0.0, 2, 3), "radius: .*positive length"),
        (lambda: sn.patterns.taxel_dome(0.01, 2, 3, angle_deg=200.0), "up to 180 degrees"),
        (lambda: sn.patterns.taxel_cylinder(0.01, 2, 3, length=0.1, angle_deg=0.0), "above 0 and up to 360"),
        (lambda: taxel_patch(PAD), "count, spacing: .*one of the two, or both"),
        (lambda: taxel_patch(PAD, count=-1), "count: got -1"),
        (lambda: taxel_patch(PAD, spacing=0.0), "spacing: .*positive length"),
        (lambda: taxel_patch(PAD, spacing=1e-7), "at most 100000 taxels"),
        (lambda: taxel_patch(PAD, count=3, normal=(0, 0, 0)), "normal: .*not zero"),
        (lambda: taxel_patch(PAD, count=3, normal=(1, 1, 1), max_angle_deg=20.0), "pad is 54.7 degrees away"),
        (lambda: taxel_patch(PAD, count=3, max_angle_deg=0.0), "max_angle_deg: .*up to 180"),
        (lambda: taxel_patch(PAD, count=3, region=((1, 1, 1), 0.1)), r"reaches from \(-0.01"),
        (lambda: taxel_patch(PAD, count=3, region=((0, 0, 0), (1, -1, 1))), "that is not empty"),
        (lambda: taxel_patch(PAD, count=3, region=0.3), "a box, .* or a ball"),  # type: ignore[arg-type]
        (lambda: taxel_patch([], count=3), "at least one shape"),
        (lambda: taxel_grid(1, 1, 0.1).placed(quat=(0, 0, 0, 0)), "not zero"),
        (lambda: taxel_grid(2, 2, 0.1).crosstalk(1.1, 0.1), "crosstalk.strength: got 1.1, expected a number"),
        (lambda: taxel_grid(2, 2, 0.1).crosstalk(0.1, 0.0), "crosstalk.sigma: .*a finite length above 0"),
    ],
)  # fmt: skip
def test_bad_input_error_names_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
