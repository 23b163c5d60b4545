"""Temperature grid: conduction, contacts, air, radiation, heat and the element, against closed forms and a slow
solver.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.engines import Shape
from sensorium.testing import check_sensor

METAL = sn.LinkThermalCfg(
    base_temperature=121.0, conductivity=200.0, density=2700.0, specific_heat=900.0, emissivity=0.0
)
PLASTIC = sn.LinkThermalCfg(emissivity=0.0)
AIRLESS: dict[str, Any] = {"convection": 0.0}
SIGMA = 5.670374419e-8


def box(name: str, *half: float, **kwargs: Any) -> Shape:
    return Shape("box", name, half, body=kwargs.pop("body", name), **kwargs)


def world(
    cfg: sn.TemperatureGridCfg,
    shapes: list[Shape],
    places: dict[str, Any],
    dt: float = 0.1,
    num_envs: int = 1,
) -> tuple[sn.Scene, Any]:
    """Return a scene with bodies at poses (position, or position and quaternion), and its sensor."""
    engine = sn.TensorEngine(num_envs, dt, bodies=tuple(places), shapes=shapes)
    for k, place in enumerate(places.values()):
        pos, quat = place if len(place) == 2 else (place, (1.0, 0.0, 0.0, 0.0))
        engine.body_pos_w[:, k] = torch.tensor(pos)
        engine.body_quat_w[:, k] = torch.tensor(quat)
    scene = sn.Scene(engine, [cfg], seed=0)
    return scene, scene[cfg]


def run(scene: sn.Scene, ticks: int) -> None:
    for _ in range(ticks):
        scene.update()


def energy(sensor: Any, **capacity: float) -> float:
    """Return the heat in links of known capacity, J above 0 degC."""
    return sum(value * float(sensor.link_temperature(name)[0]) for name, value in capacity.items())


# Losses ---------------------------------------------------------------------------------------------------------------


def test_a_cube_cools_by_newtons_law_with_its_real_area():
    """For 0.1 m, 10 W/m2K and 100 K, 0.06 m2 lose 60 W at first; T follows exp(-h A t / C) to 1e-4 of the 100 K."""
    cfg = sn.TemperatureGridCfg(body="cube", default_properties=METAL, convection=10.0)
    scene, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 1.0)}, dt=5.0)
    rate = 10.0 * 0.06 / (2700.0 * 900.0 * 1e-3)
    for ticks in (1, 199, 600):
        run(scene, ticks)
        expected = 21.0 + 100.0 * math.exp(-rate * scene.time)
        assert abs(float(sensor.ground_truth) - expected) < 0.01


def test_radiation_follows_the_stefan_boltzmann_law():
    """A black cube at 400 K in a room at 300 K matches Runge-Kutta on C dT/dt = eps sigma A (Ta^4 - T^4)."""
    black = METAL.replace(base_temperature=400.0 - 273.15, emissivity=0.8)
    cfg = sn.TemperatureGridCfg(body="cube", default_properties=black, ambient_temperature=26.85, **AIRLESS)
    scene, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 1.0)}, dt=10.0)

    def slope(kelvin: float) -> float:
        return 0.8 * SIGMA * 0.06 * (300.0**4 - kelvin**4) / (2700.0 * 900.0 * 1e-3)

    kelvin = 400.0
    for _ in range(600):
        k1 = slope(kelvin)
        k2 = slope(kelvin + 5.0 * k1)
        k3 = slope(kelvin + 5.0 * k2)
        kelvin += 10.0 * (k1 + 2.0 * k2 + 2.0 * k3 + slope(kelvin + 10.0 * k3)) / 6.0
    run(scene, 600)
    assert kelvin < 370.0 and abs(float(sensor.ground_truth) + 273.15 - kelvin) < 1e-3


OCTAHEDRON = sn.engines.Mesh(
    [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]],
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]],
)
TILT = (0.8, 0.36, 0.0, 0.48)
SOLIDS = {
    "sphere": (Shape("sphere", "s", (0.05,), body="link"), 4 / 3 * math.pi * 0.05**3, 4 * math.pi * 0.05**2),
    "capsule": (
        Shape("capsule", "s", (0.02, 0.05), body="link", quat=TILT),
        math.pi * 0.02**2 * (0.1 + 4 / 3 * 0.02), 2 * math.pi * 0.02 * (0.1 + 0.04),
    ),
    "cylinder": (
        Shape("cylinder", "s", (0.03, 0.05), body="link", quat=TILT),
        math.pi * 0.03**2 * 0.1, 2 * math.pi * 0.03 * (0.1 + 0.03),
    ),
    "tilted box": (
        box("s", 0.03, 0.04, 0.05, body="link", quat=TILT), 8 * 0.03 * 0.04 * 0.05,
        8 * (0.03 * 0.04 + 0.04 * 0.05 + 0.05 * 0.03),
    ),
    "mesh": (
        Shape("mesh", "s", body="link", mesh=OCTAHEDRON, scale=(0.05, 0.05, 0.05)), 4 / 3 * 0.05**3,
        8 * math.sqrt(3) / 4 * 2 * 0.05**2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("grid", [(1, 1, 1), (5, 4, 3)])
@pytest.mark.parametrize("kind", SOLIDS)
def test_a_body_of_any_shape_loses_heat_through_its_own_surface(kind, grid):
    """For a well-conducting body at rest, the rate is h A / (rho c V), with A and V of the shape, within 1 %."""
    shape, volume, area = SOLIDS[kind]
    cfg = sn.TemperatureGridCfg(body="link", grid_size=grid, default_properties=METAL, convection=20.0)
    scene, sensor = world(cfg, [shape], {"link": (0.0, 0.0, 1.0)}, dt=1.0)
    (cells,) = sensor.link_cells
    assert abs(cells.volume.sum() / volume - 1.0) < 1e-9 and abs(cells.area.sum() / area - 1.0) < 1e-3
    assert abs(cells.samples.area / cells.area.sum() - 1.0) < 1e-12
    run(scene, 50)
    rate = -math.log((float(sensor.link_temperature("link")) - 21.0) / 100.0) / 50.0
    assert abs(rate * 2700.0 * 900.0 * volume / (20.0 * area) - 1.0) < 0.01


def test_mutually_covered_surfaces_lose_no_heat():
    """Two boxes joined into one link have the surface and volume of their union."""
    shapes = [box("left", 0.05, 0.05, 0.05, body="link"), box("right", 0.05, 0.05, 0.05, body="link", pos=(0.1, 0, 0))]
    cfg = sn.TemperatureGridCfg(body="link", grid_size=(4, 2, 2), default_properties=METAL)
    _, sensor = world(cfg, shapes, {"link": (0.0, 0.0, 0.0)})
    (cells,) = sensor.link_cells
    assert abs(cells.volume.sum() - 2e-3) < 1e-9 and abs(cells.area.sum() - 0.1) < 1e-9
    assert np.allclose(cells.low, -0.05) and np.allclose(cells.size, 0.05)
    assert abs(cells.faces[0].sum() - 3 * 0.01) < 1e-9, "heat passes from one box to the other"


@pytest.mark.parametrize("geometry", ["collision", "all"])
def test_visual_and_collision_shapes_are_one_body(geometry):
    """A link with two shapes at one position has the volume and the surface of one shape."""
    shapes = [
        box("seen", 0.05, 0.02, 0.02, body="link", is_collision=False),
        box("felt", 0.05, 0.02, 0.02, body="link", is_visual=False),
    ]
    cfg = sn.TemperatureGridCfg(body="link", grid_size=(4, 1, 1), geometry=geometry)
    _, sensor = world(cfg, shapes, {"link": (0.0, 0.0, 0.0)})
    (cells,) = sensor.link_cells
    assert abs(cells.volume.sum() / (8 * 0.05 * 0.02 * 0.02) - 1.0) < 1e-9
    assert abs(cells.area.sum() / (8 * (2 * 0.05 * 0.02 + 0.02 * 0.02)) - 1.0) < 1e-9


def test_a_mesh_whose_parts_overlap_has_the_volume_and_the_surface_of_both_together():
    """Two octahedra in one mesh, one unit apart, match a point count of their union to 1 %, the accuracy of the
    cells.
    """
    vertices, faces = OCTAHEDRON.vertices, OCTAHEDRON.faces
    both = sn.engines.Mesh(
        np.concatenate([vertices, vertices + np.array((1.0, 0.0, 0.0))]), np.concatenate([faces, faces + 6])
    )
    shape = Shape("mesh", "s", body="link", mesh=both, scale=(0.05, 0.05, 0.05))
    _, sensor = world(sn.TemperatureGridCfg(body="link", grid_size=(3, 2, 2)), [shape], {"link": (0.0, 0.0, 0.0)})
    (cells,) = sensor.link_cells
    shared, cut = 2 / 3 * (0.5 * 0.05) ** 3 * 2, 8 * math.sqrt(3) / 4 * 2 * (0.5 * 0.05) ** 2
    assert abs(cells.volume.sum() / (8 / 3 * 0.05**3 - shared) - 1.0) < 0.01
    assert abs(cells.area.sum() / (2 * 8 * math.sqrt(3) / 4 * 2 * 0.05**2 - cut) - 1.0) < 0.01


# Conduction -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_cosine_across_a_slab_decays_at_its_analytic_rate(axis):
    """The mode cos(pi x / L) of an insulated slab decays with k / (rho c) (pi / L)^2, within 1 %."""
    grid = tuple(64 if k == axis else 1 for k in range(3))
    half = [0.01, 0.01, 0.01]
    half[axis] = 0.1
    cfg = sn.TemperatureGridCfg(body="bar", grid_size=grid, default_properties=METAL, heat_generation=0.0, **AIRLESS)
    scene, sensor = world(cfg, [box("bar", *half)], {"bar": (0.0, 0.0, 1.0)}, dt=0.05)
    mode = np.cos(math.pi * (np.arange(64) + 0.5) / 64)
    sensor.set("heat_generation", 1000.0 * mode.reshape(grid))
    run(scene, 1)
    sensor.set("heat_generation", 0.0)
    start = (sensor.ground_truth[0].double().numpy().ravel() - 121.0) @ mode
    run(scene, 400)
    end = (sensor.ground_truth[0].double().numpy().ravel() - 121.0) @ mode
    rate = math.log(start / end) / 20.0
    assert abs(rate / (200.0 / (2700.0 * 900.0) * (math.pi / 0.2) ** 2) - 1.0) < 0.01


def resistance(cells: Any, one: int, other: int) -> float:
    """Return the resistance between two cells over that of a unit of conductivity, 1/m, by the graph's Laplacian."""
    count = cells.volume.size
    flows = np.zeros((count, count))
    for axis, step in enumerate((cells.grid[1] * cells.grid[2], cells.grid[2], 1)):
        for cell in np.flatnonzero(cells.faces[axis]):
            flows[cell, cell + step] = flows[cell + step, cell] = cells.faces[axis][cell] / cells.size[axis]
    poke = np.zeros(count)
    poke[[one, other]] = 1.0, -1.0
    return float(poke @ np.linalg.pinv(np.diag(flows.sum(axis=1)) - flows) @ poke)


@pytest.mark.parametrize("degrees", [20.0, 45.0, 70.0])
@pytest.mark.parametrize("thickness", [0.001, 0.002])
def test_tilted_thin_sheet_conducts_along_itself(degrees, thickness):
    """Walls of 1 and 2 mm of 100 mm, across oblique cells, are connected, with L / (k A) to 10 % for the staircase."""
    half = 0.5 * math.radians(degrees)
    sheet = box("s", 0.05, 0.02, 0.5 * thickness, body="link", quat=(math.cos(half), 0.0, math.sin(half), 0.0))
    cfg = sn.TemperatureGridCfg(body="link", grid_size=(6, 1, 6))
    _, sensor = world(cfg, [sheet], {"link": (0.0, 0.0, 0.0)})
    (cells,) = sensor.link_cells
    there = np.argwhere(cells.volume.reshape(6, 6) > 0.0)
    ends = there[[np.argmin(there @ (1, -1)), np.argmax(there @ (1, -1))]]
    length = np.linalg.norm((ends[1] - ends[0]) * cells.size[[0, 2]])
    found = resistance(cells, *(ends @ (6, 1)))
    assert abs(found * thickness * 0.04 / length - 1.0) < 0.1


def test_sheet_too_thin_for_its_cells_is_refused_unless_one_cell():
    """A wall of 20 um at 30 degrees is missed by sample points, but a single cell needs no points."""
    sheet = box("s", 0.05, 0.02, 1e-5, body="link", quat=(math.cos(0.26), 0.0, math.sin(0.26), 0.0))
    cfg = sn.TemperatureGridCfg(body="link", grid_size=(6, 1, 6))
    with pytest.raises(sn.ConfigError, match=r"grid_size.*shapes thick enough.*grid_size=\(1, 1, 1\)"):
        world(cfg, [sheet], {"link": (0.0, 0.0, 0.0)})
    _, sensor = world(cfg.replace(grid_size=(1, 1, 1)), [sheet], {"link": (0.0, 0.0, 0.0)})
    assert abs(float(sensor.heat_capacity.sum()) / (1050.0 * 1400.0 * 8e-8) - 1.0) < 1e-6


def slow_solver(cells: Any, each: Any, watts: np.ndarray, convection: float, ambient: float, seconds: float) -> Any:
    """Return temperatures `[x, y, z]` by explicit Euler with tiny steps, cell by cell from the equation."""
    grid = cells.grid
    value = np.full(grid, each.base_temperature)
    capacity = each.density * each.specific_heat * cells.volume.reshape(grid)
    area = cells.area.reshape(grid)
    flows = [cells.faces[k].reshape(grid) * each.conductivity / cells.size[k] for k in range(3)]
    steps = int(seconds / 0.01)
    for _ in range(steps):
        gain = watts + convection * area * (ambient - value)
        gain += each.emissivity * SIGMA * area * ((ambient + 273.15) ** 4 - (value + 273.15) ** 4)
        for k in range(3):
            flow = np.take(flows[k], range(grid[k] - 1), k) * np.diff(value, axis=k)
            lower, upper = ([slice(None)] * 3 for _ in range(2))
            lower[k], upper[k] = slice(0, -1), slice(1, None)
            gain[tuple(lower)] += flow
            gain[tuple(upper)] -= flow
        value = value + seconds / steps * gain / capacity
    return value


def test_conduction_losses_and_heat_together_match_a_slow_explicit_solver():
    """Random heat in 24 cells of a box, with air and radiation, agrees over 60 s within 0.2 % of the rise."""
    each = sn.LinkThermalCfg(base_temperature=60.0, conductivity=15.0, density=2000.0, specific_heat=500.0)
    watts = np.random.default_rng(3).uniform(0.0, 4.0, (4, 3, 2))
    cfg = sn.TemperatureGridCfg(
        body="box", grid_size=(4, 3, 2), default_properties=each, convection=15.0, heat_generation=watts.tolist()
    )
    scene, sensor = world(cfg, [box("box", 0.04, 0.03, 0.02)], {"box": (0.0, 0.0, 1.0)}, dt=0.05)
    run(scene, 1200)
    expected = slow_solver(sensor.link_cells[0], each, watts, 15.0, 21.0, 60.0)
    assert np.ptp(expected) > 4.0
    assert np.abs(sensor.ground_truth[0].numpy() - expected).max() < 2e-3 * np.abs(expected - 60.0).max()


def test_a_cell_outside_of_the_shapes_shows_its_nearest_and_conducts_nothing():
    """In an angle of two bars heat flows around the corner; heat given to an absent cell goes to the cell that
    represents it.
    """
    shapes = [
        box("foot", 0.06, 0.02, 0.02, body="link"),
        box("leg", 0.02, 0.02, 0.04, body="link", pos=(-0.04, 0, 0.06)),
    ]
    watts = np.zeros((3, 1, 3))
    watts[2, 0, 2] = 5.0  # outside; (2, 0, 0) and (0, 0, 2) are equally near: the first of them
    cfg = sn.TemperatureGridCfg(
        body="link", grid_size=(3, 1, 3), default_properties=METAL, heat_generation=watts.tolist(), **AIRLESS
    )
    scene, sensor = world(cfg, shapes, {"link": (0.0, 0.0, 0.0)})
    there = sensor.heat_capacity[0, :, 0] > 0.0
    assert there.tolist() == [[True, True, True], [True, False, False], [True, False, False]]
    run(scene, 100)
    shown = sensor.ground_truth[0, :, 0]
    assert shown[2, 2] == shown[0, 2] and shown[1, 1] in (shown[0, 1], shown[1, 0])
    assert shown[0, 2] > shown[0, 1] > shown[0, 0] > shown[1, 0] > shown[2, 0] > 121.0, "along the bars"
    gained = float((sensor.heat_capacity[0, :, 0] * (shown.double() - 121.0)).sum())
    assert abs(gained / (5.0 * 10.0) - 1.0) < 1e-3


# Contacts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conductance", [None, 300.0])
def test_the_flow_through_a_contact_is_that_of_the_resistances_in_series(conductance):
    """With half a cell of the link and the interface to a floor of fixed temperature, T decays with A / (R C)."""
    each = PLASTIC.replace(base_temperature=80.0)
    cfg = sn.TemperatureGridCfg(
        body="block", default_properties=each, properties={"world": sn.LinkThermalCfg(base_temperature=20.0)},
        contact_conductance=conductance, **AIRLESS,
    )  # fmt: skip
    shapes = [box("block", 0.05, 0.04, 0.01), Shape("plane", "floor")]
    scene, sensor = world(cfg, shapes, {"block": (0.3, 0.2, 0.0099)})
    run(scene, 200)
    resistance = 0.01 / 0.2 + (0.0 if conductance is None else 1.0 / conductance)
    expected = 20.0 + 60.0 * math.exp(-20.0 / (resistance * 1050.0 * 1400.0 * 0.02))
    assert abs(float(sensor.ground_truth) - expected) < 1e-3 * (80.0 - expected)


@pytest.mark.parametrize("quat", [(1.0, 0.0, 0.0, 0.0), (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))])
def test_only_facing_surfaces_touch(quat):
    """For a block on the floor, the contact area is the bottom, 4 a b, without the sides, which start equally near."""
    cfg = sn.TemperatureGridCfg(body="block", grid_size=(4, 2, 3), contact_distance=0.003)
    shapes = [box("block", 0.05, 0.03, 0.02), Shape("plane", "floor")]
    scene, sensor = world(cfg, shapes, {"block": ((0.0, 0.0, 0.0195), quat)})
    run(scene, 1)
    covered = sensor._covered[0].view(4, 2, 3)
    assert abs(float(covered.sum()) / (4 * 0.05 * 0.03) - 1.0) < 1e-3
    assert (covered[..., 0] > 0.0).all() and (covered[..., 1:] == 0.0).all()


def test_sphere_touches_with_its_nearest_cap():
    """Pressed in by 2 mm, with 1 mm of reach, the cap of 3 mm has an area of 2 pi R h, within 3 %."""
    cfg = sn.TemperatureGridCfg(body="ball", contact_distance=0.001, surface_samples=4000)
    shapes = [Shape("sphere", "ball", (0.05,), body="ball"), Shape("plane", "floor")]
    scene, sensor = world(cfg, shapes, {"ball": (0.0, 0.0, 0.048)})
    run(scene, 1)
    assert abs(float(sensor._covered) / (2.0 * math.pi * 0.05 * 0.003) - 1.0) < 0.03


def test_box_mesh_touches_like_a_box():
    """A cold bar under one half of a warm pad gives the same temperatures as a primitive and as twelve triangles."""
    corners = [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    faces = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
             [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]  # fmt: skip
    cfg = sn.TemperatureGridCfg(
        body="pad", grid_size=(4, 2, 2), default_properties=METAL, properties={"bar": PLASTIC},
        simulate_all_link_temperatures=True,
    )  # fmt: skip
    shown = []
    for bar in (
        box("bar", 0.01, 0.05, 0.01),
        Shape("mesh", "bar", body="bar", mesh=sn.engines.Mesh(corners, faces), scale=(0.01, 0.05, 0.01)),
    ):
        places = {"pad": (0.0, 0.0, 0.0), "bar": (-0.0113, 0.0, -0.0152)}
        scene, sensor = world(cfg, [box("pad", 0.02, 0.02, 0.005), bar], places)
        run(scene, 20)
        shown.append(torch.cat([sensor.ground_truth.flatten(), sensor.link_temperature("bar").float()]))
    assert shown[0][0] < shown[0][-2] - 0.05 and shown[0][-1] > 21.05
    assert torch.allclose(shown[0], shown[1], atol=0.01 * float(shown[0][-1] - 21.0))


def test_link_temperature_does_not_depend_on_the_number_of_environments():
    """A product of a matrix of few rows and a vector would differ in the last bit."""
    warm = 1e4 * torch.rand((16, 400), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cfg, found = sn.TemperatureGridCfg(bodies=("bar", "rod"), grid_size=(200, 1, 1)), []
    shapes, places = (
        [box(name, 0.1, 0.01, 0.01) for name in ("bar", "rod")],
        {"bar": (0.0, 0.0, 1.0), "rod": (0.0, 0.0, 2.0)},
    )
    for envs in (16, 1, 2, 3):
        _, sensor = world(cfg, shapes, places, num_envs=envs)
        sensor._theta[:] = warm[:envs]
        found.append(sensor.link_temperature("rod"))
    assert all(torch.equal(few, found[0][: len(few)]) for few in found)


@pytest.mark.parametrize("order", [("pad", "table"), ("table", "pad")])
def test_contact_between_two_grids_counts_once_with_the_finer_area(order):
    """A pad of 4 cm2 is in the middle of a table whose points are 4 cm apart, with the table first or last."""
    cfg = sn.TemperatureGridCfg(bodies=order, grid_size=(2, 2, 1), **AIRLESS)
    shapes = [box("pad", 0.01, 0.01, 0.005), box("table", 0.4, 0.4, 0.02)]
    scene, sensor = world(cfg, shapes, {"pad": (0.1, 0.1, 0.0251), "table": (0.0, 0.0, 0.0)})
    run(scene, 1)
    covered = sensor._covered[0].view(2, 4)
    assert torch.allclose(covered.sum(dim=1), torch.tensor(4e-4, dtype=torch.float64), rtol=1e-3)
    assert (covered[order.index("table")] > 0.0).tolist() == [False, False, False, True], "the corner it is on"


@pytest.mark.parametrize("is_gridded", [True, False])
def test_an_isolated_pair_keeps_its_energy_and_reaches_the_weighted_mean(is_gridded):
    """Two blocks of different materials side by side conserve heat to 1e-6 at any time and reach one temperature."""
    hot, cold = METAL.replace(base_temperature=90.0), METAL.replace(base_temperature=10.0, density=8000.0)
    mounts: dict[str, Any] = {"bodies": ("hot", "cold")} if is_gridded else {"body": "hot"}
    cfg = sn.TemperatureGridCfg(
        **mounts, grid_size=(3, 2, 2), properties={"hot": hot, "cold": cold}, **AIRLESS,
        simulate_all_link_temperatures=not is_gridded,
    )  # fmt: skip
    shapes = [box("hot", 0.02, 0.02, 0.02), box("cold", 0.02, 0.02, 0.02)]
    scene, sensor = world(cfg, shapes, {"hot": (0.0, 0.0, 0.0), "cold": (0.0402, 0.003, 0.0)})
    capacity = {"hot": 2700.0 * 900.0 * 0.04**3, "cold": 8000.0 * 900.0 * 0.04**3}
    start = energy(sensor, **capacity)
    for ticks in (1, 9, 90, 900):
        run(scene, ticks)
        assert abs(energy(sensor, **capacity) / start - 1.0) < 1e-6
    run(scene, 1000)
    mean = start / sum(capacity.values())
    for name in capacity:
        assert abs(float(sensor.link_temperature(name)) - mean) < 1e-3


def test_unsimulated_link_keeps_its_temperature():
    """Without simulate_all_link_temperatures the other block stays at its base, and the warm block approaches it."""
    properties = {"hot": METAL.replace(base_temperature=90.0), "cold": METAL.replace(base_temperature=10.0)}
    cfg = sn.TemperatureGridCfg(body="hot", properties=properties, **AIRLESS)
    shapes = [box("hot", 0.02, 0.02, 0.02), box("cold", 0.02, 0.02, 0.02)]
    scene, sensor = world(cfg, shapes, {"hot": (0.0, 0.0, 0.0), "cold": (0.0402, 0.0, 0.0)})
    run(scene, 2000)
    assert abs(float(sensor.ground_truth) - 10.0) < 0.01 and float(sensor.link_temperature("cold")) == 10.0


def test_two_links_on_one_object_share_its_temperature():
    """Two fingers hold a cold cube: it absorbs heat from both, they cool equally, and all heat is conserved."""
    each = {"finger.": METAL.replace(base_temperature=60.0), "cube": METAL.replace(base_temperature=0.0)}
    cfg = sn.TemperatureGridCfg(
        bodies="finger.", grid_size=(2, 1, 1), properties=each, simulate_all_link_temperatures=True, **AIRLESS
    )
    shapes = [box("finger1", 0.01, 0.02, 0.02), box("finger2", 0.01, 0.02, 0.02), box("cube", 0.02, 0.02, 0.02)]
    places = {"finger1": (-0.0302, 0, 0), "finger2": ((0.0302, 0, 0), (0.0, 0.0, 0.0, 1.0)), "cube": (0.0, 0.0, 0.0)}
    scene, sensor = world(cfg, shapes, places)
    run(scene, 20)
    one, two = sensor.ground_truth[0]
    assert torch.allclose(one, two, atol=1e-3) and one[1, 0, 0] < one[0, 0, 0] < 60.0, "cold where it touches"
    mass = 2700.0 * 900.0 * 0.04**2
    total = energy(sensor, finger1=mass * 0.02, finger2=mass * 0.02, cube=mass * 0.04)
    assert abs(total / (2 * mass * 0.02 * 60.0) - 1.0) < 1e-6 and float(sensor.link_temperature("cube")) > 5.0


CHAIN = {"a": (90.0, 2700.0), "b": (10.0, 8000.0), "c": (50.0, 1000.0), "d": (0.0, 2000.0), "o": (30.0, 5000.0)}


def chain(order: str, dt: float, ticks: int) -> tuple[torch.Tensor, float]:
    """Return the temperatures of four blocks in a row on a fifth, `[env, link]`, and the relative heat loss.

    In env 1 the fifth is missing, in env 2 the second of the row.
    """
    properties = {name: METAL.replace(base_temperature=base, density=rho) for name, (base, rho) in CHAIN.items()}
    cfg = sn.TemperatureGridCfg(
        bodies=tuple(order), grid_size=(3, 2, 2), properties=properties, simulate_all_link_temperatures=True, **AIRLESS
    )
    shapes = [*(box(name, 0.02, 0.02, 0.02) for name in "abcd"), box("o", 0.1, 0.1, 0.01)]
    places: dict[str, Any] = {name: (0.0401 * k - 0.06, 0.0, 0.0301) for k, name in enumerate("abcd")}
    scene, sensor = world(cfg, shapes, places | {"o": (0.0, 0.0, 0.0)}, dt=dt, num_envs=3)
    scene.engine.body_pos_w[1, 4, 2] = -1.0
    scene.engine.body_pos_w[2, 1, 1] = 5.0
    volumes = torch.tensor([0.04**3] * 4 + [0.2 * 0.2 * 0.02], dtype=torch.float64)
    capacity = 900.0 * volumes * torch.tensor([rho for _, rho in CHAIN.values()])
    start = sum(float(c) * base for c, (base, _) in zip(capacity, CHAIN.values(), strict=True))
    run(scene, ticks)
    values = torch.stack([sensor.link_temperature(name) for name in CHAIN], dim=1)
    return values, float((values @ capacity / start - 1.0).abs().max())


@pytest.mark.parametrize(("dt", "ticks"), [(0.1, 300), (100.0, 200)])
def test_links_in_a_chain_on_one_object_keep_their_energy_in_each_env(dt, ticks):
    """All touch their neighbours and the object; after long steps all connected blocks are equally warm."""
    values, lost = chain("abcd", dt, ticks)
    assert lost < 1e-12
    assert values[1, 4] == 30.0 and values[2, 1] == 10.0, "what touches nothing"
    if dt == 100.0:
        for env, alike in enumerate(([0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 2, 3, 4])):
            assert float(values[env, alike].max() - values[env, alike].min()) < 1e-3


@pytest.mark.parametrize("order", ["dcba", "cadb"])
def test_the_order_of_the_mounts_does_not_matter(order):
    """Pairs exchange heat in forward and reverse order, so the effect of the order is second order in the step."""
    off = [float((chain("abcd", dt, ticks)[0] - chain(order, dt, ticks)[0]).abs().max())
           for dt, ticks in ((0.2, 50), (0.05, 200))]  # fmt: skip
    assert off[0] < 1e-3 and off[1] < off[0] / 8.0


def test_covered_surface_does_not_lose_heat_to_the_air():
    """A hot block between two plates at its own temperature loses heat through 4 of 6 faces."""
    cfg = sn.TemperatureGridCfg(body="cube", default_properties=METAL, convection=50.0)
    shapes = [box(name, 0.05, 0.05, 0.05) for name in ("cube", "low", "high")]
    places = {"cube": (0.0, 0.0, 0.0), "low": (0.0, 0.0, -0.1), "high": (0.0, 0.0, 0.1)}
    bare, alone = world(cfg, shapes[:1], {"cube": (0.0, 0.0, 0.0)}, dt=1.0), world(cfg, shapes, places, dt=1.0)
    for scene, _ in (bare, alone):
        run(scene, 1)
    lost = [121.0 - float(sensor.link_temperature("cube")) for _, sensor in (bare, alone)]
    assert abs(lost[1] / lost[0] - 4.0 / 6.0) < 0.02, "the plates give back a little of what it lost"


# Turned links ---------------------------------------------------------------------------------------------------------

YAW = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
ROOM = """
<mujoco><worldbody>
  <geom name="hot" type="sphere" size="0.02" pos="{ball}"/>
  <body name="link" pos="1 2 0.5" quat="{quat}">{joint}<geom type="box" size="0.1 0.05 0.02" pos="0.02 0 0"/></body>
</worldbody></mujoco>
"""


@pytest.mark.parametrize("joint", ["", '<joint type="hinge" axis="0 0 1"/>'])
def test_link_built_at_90_degrees_yaw_gives_equal_values(joint):
    """In MuJoCo, at rest and in motion, the box, the ball that heats it and the values rotate together."""
    shown = []
    for quat, ball in (((1.0, 0.0, 0.0, 0.0), "1.1 2.03 0.539"), (YAW, "0.97 2.1 0.539")):
        engine = sn.MujocoEngine(ROOM.format(quat=" ".join(map(str, quat)), ball=ball, joint=joint))
        cfg = sn.TemperatureGridCfg(
            body="link", grid_size=(6, 4, 2), default_properties=METAL,
            properties={"world": METAL.replace(base_temperature=500.0)}, contact_distance=0.004,
        )  # fmt: skip
        scene = sn.Scene(engine, [cfg])
        for _ in range(50):
            scene.step()
        (cells,) = scene[cfg].link_cells
        assert np.allclose(cells.low, (-0.08, -0.05, -0.02), atol=1e-6)
        shown.append(scene[cfg].ground_truth[0])
    assert shown[0].max() - shown[0].min() > 0.1
    assert torch.allclose(shown[0], shown[1], atol=2e-4)


def test_link_rotated_at_run_time_gives_equal_values():
    """The two envs have the same pair of blocks, rotated about all axes in one of them."""
    cfg = sn.TemperatureGridCfg(body="a", grid_size=(3, 2, 2), properties={"b": METAL}, contact_distance=0.002)
    shapes = [box("a", 0.03, 0.02, 0.01), box("b", 0.01, 0.01, 0.01, pos=(0.02, 0.005, 0.0205), body="b")]
    scene, sensor = world(cfg, shapes, {"a": (0.0, 0.0, 0.0), "b": (0.0, 0.0, 0.0)}, num_envs=2)
    scene.engine.body_quat_w[1] = torch.tensor(TILT)
    scene.engine.body_pos_w[1] = torch.tensor((1.0, 2.0, 3.0))
    run(scene, 50)
    assert sensor.ground_truth[0].max() > 21.5 and sensor.ground_truth[0].min() < 21.001
    assert torch.allclose(sensor.ground_truth[0], sensor.ground_truth[1], atol=1e-4)


# Heat and time --------------------------------------------------------------------------------------------------------


def test_generated_heat_warms_by_power_times_time_over_capacity():
    """A number applies to the whole link; it can be set per env, and a scene that loads a state continues with it."""
    cfg = sn.TemperatureGridCfg(
        body="motor", grid_size=(2, 2, 1), default_properties=METAL, heat_generation=3.0, **AIRLESS
    )
    scene, sensor = world(cfg, [box("motor", 0.02, 0.02, 0.02)], {"motor": (0.0, 0.0, 0.0)}, num_envs=3)
    capacity = 2700.0 * 900.0 * 0.04**3
    run(scene, 10)
    sensor.set("heat_generation", [12.0], env_ids=[1])
    run(scene, 10)
    expected = 121.0 + torch.tensor([6.0, 15.0, 6.0]) / capacity
    assert torch.allclose(sensor.ground_truth, expected[:, None, None, None].expand(3, 2, 2, 1), atol=1e-4)
    fresh, twin = world(cfg, [box("motor", 0.02, 0.02, 0.02)], {"motor": (0.0, 0.0, 0.0)}, num_envs=3)
    fresh.load_state(scene.state())
    for each in (scene, fresh):
        run(each, 5)
    assert torch.equal(twin.ground_truth, sensor.ground_truth)


@pytest.mark.parametrize("dt", [1e-3, 1.0, 1e6])
def test_solver_is_stable_for_any_time_step(dt):
    """With contacts, radiation and thin cells no temperature leaves the existing range, and no heat is lost."""
    properties = {
        "hot": METAL.replace(base_temperature=300.0, emissivity=1.0),
        "cold": METAL.replace(base_temperature=0.0),
    }
    cfg = sn.TemperatureGridCfg(
        bodies=("hot", "cold"), grid_size=(4, 3, 2), properties=properties, sensor_time_constant=0.01, convection=100.0
    )
    shapes = [box("hot", 0.002, 0.02, 0.02), box("cold", 0.002, 0.02, 0.02)]
    scene, sensor = world(cfg, shapes, {"hot": (0.0, 0.0, 0.0), "cold": (0.004, 0.0, 0.0)}, dt=dt)
    for _ in range(50):
        scene.update()
        for values in (sensor.ground_truth, sensor.data):
            assert values.min() >= 0.0 and values.max() <= 300.0
    if dt == 1e6:
        assert torch.allclose(sensor.ground_truth, torch.tensor(21.0), atol=1e-3)


def test_a_change_far_below_a_float32_digit_per_step_is_not_lost():
    """A joule in a kilogram over 10000 steps adds 1e-7 K each, where a float32 step at 121 degC is 7.6e-6 K."""
    cfg = sn.TemperatureGridCfg(body="cube", default_properties=METAL, heat_generation=0.243, **AIRLESS)
    scene, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)}, dt=0.001)
    run(scene, 10000)
    assert abs(float(sensor.ground_truth) - 121.001) < 1e-5


def test_slower_rate_integrates_all_time_since_the_last_sample():
    """A link sampled at every fourth tick has as much heat as a link sampled at all of them."""
    cfg = sn.TemperatureGridCfg(body="cube", default_properties=METAL, heat_generation=50.0, **AIRLESS)
    slow = cfg.replace(name="slow", update_period=0.4)
    engine = sn.TensorEngine(1, 0.1, bodies=("cube",), shapes=[box("cube", 0.05, 0.05, 0.05)])
    scene = sn.Scene(engine, [cfg, slow])
    run(scene, 40)
    assert torch.allclose(scene[cfg].ground_truth, scene["slow"].ground_truth, atol=2e-5)


def test_reset_restores_base_temperatures_exactly():
    """The reset includes the element's lag and the other link's temperature; the other environment continues."""
    properties = {"hot": METAL.replace(base_temperature=90.0), "cold": METAL.replace(base_temperature=10.0)}
    cfg = sn.TemperatureGridCfg(
        body="hot", grid_size=(2, 1, 1), properties=properties, simulate_all_link_temperatures=True,
        sensor_time_constant=3.0,
    )  # fmt: skip
    shapes = [box("hot", 0.02, 0.02, 0.02), box("cold", 0.02, 0.02, 0.02)]
    scene, sensor = world(cfg, shapes, {"hot": (0.0, 0.0, 0.0), "cold": (0.0402, 0.0, 0.0)}, num_envs=2)
    assert (sensor.data == 90.0).all() and (sensor.ground_truth == 90.0).all()
    run(scene, 50)
    assert (sensor.data < 90.0).all() and float(sensor.link_temperature("cold")[0]) > 10.0
    scene.reset([0])
    assert (sensor.data[0] == 90.0).all() and (sensor.ground_truth[0] == 90.0).all()
    assert float(sensor.link_temperature("cold")[0]) == 10.0
    assert (sensor.data[1] < 90.0).all() and float(sensor.link_temperature("cold")[1]) > 10.0


# The element ----------------------------------------------------------------------------------------------------------


def element(tau: float, dt: float, ticks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and measurement of a link that jumps by 50 K in the first tick, at each tick from the first
    sample.
    """
    capacity = 2700.0 * 900.0 * 1e-3
    cfg = sn.TemperatureGridCfg(
        body="cube", default_properties=METAL, heat_generation=0.0, sensor_time_constant=tau, **AIRLESS
    )
    scene, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)}, dt=dt)
    rows = [(float(sensor.ground_truth), float(sensor.data))]
    sensor.set("heat_generation", 50.0 * capacity / dt)
    for tick in range(ticks):
        scene.update()
        if tick == 0:
            sensor.set("heat_generation", 0.0)
        rows.append((float(sensor.ground_truth), float(sensor.data)))
    truth, measured = np.array(rows).T
    return truth, measured


def test_element_reaches_63_percent_after_its_time_constant():
    """The response starts from 121 degC, not from 0; the truth jumps at once."""
    truth, measured = element(tau=2.0, dt=0.01, ticks=200)
    assert measured[0] == 121.0 and abs(truth[1] - 171.0) < 1e-4 and (np.abs(truth[1:] - 171.0) < 1e-4).all()
    assert abs((measured[200] - 121.0) / 50.0 - (1.0 - math.exp(-1.0))) < 1e-5
    steps = 1.0 - np.exp(-0.005 * np.arange(201))
    assert np.abs(measured - (121.0 + 50.0 * steps)).max() < 1e-3


@pytest.mark.parametrize("share", [0.3, 0.01, 1e-6])
def test_element_faster_than_the_time_step_never_overshoots(share):
    """tau is below half the step, where an explicit filter diverges."""
    truth, measured = element(tau=0.1 * share, dt=0.1, ticks=5)
    assert measured[0] == 121.0
    for k in range(1, 6):
        assert abs(measured[k] - (truth[k] - 50.0 * math.exp(-k / share))) < 1e-4


def test_slow_element_does_not_stall_by_rounding():
    """For tau = 1000 s at 10 ms, the last part of the response moves by less than half a float32 step per sample."""
    each = METAL.replace(base_temperature=121.0)
    capacity = 2700.0 * 900.0 * 1e-3
    cfg = sn.TemperatureGridCfg(
        body="cube", default_properties=each, heat_generation=0.0, sensor_time_constant=1000.0, **AIRLESS
    )
    scene, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)}, dt=0.01)
    sensor.set("heat_generation", 0.1 * capacity / 0.01)
    run(scene, 1)
    sensor.set("heat_generation", 0.0)
    run(scene, 5000)
    assert abs(float(sensor.data) - (121.0 + 0.1 * (1.0 - math.exp(-0.05)))) < 2e-5


def test_knobs_follow_the_element_and_do_not_affect_truth_or_lag():
    """A bias shifts every measured cell separately; noise does not enter the recurrence."""
    cfg = sn.TemperatureGridCfg(
        body="cube", grid_size=(2, 1, 1), default_properties=METAL, convection=100.0, sensor_time_constant=5.0
    )
    pairs = []
    for each in (cfg, cfg.replace(bias=1.5, noise=0.0), cfg.replace(noise=0.5)):
        scene, sensor = world(each, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)})
        run(scene, 30)
        pairs.append((sensor.ground_truth.clone(), sensor.data.clone(), sensor.buffers.slot.temperature.clone()))
    assert torch.equal(pairs[0][0], pairs[1][0]) and torch.equal(pairs[0][0], pairs[2][0])
    assert torch.allclose(pairs[1][1], pairs[0][1] + 1.5, atol=1e-5)
    assert not torch.equal(pairs[2][1], pairs[0][1]) and torch.equal(pairs[2][2], pairs[0][2])


# Contract and bad input -----------------------------------------------------------------------------------------------


def bouncing(num_envs: int) -> sn.TensorEngine:
    """Return a pad that moves up and down over a floor, with a ball on it that appears and disappears."""
    shapes = [
        box("pad", 0.02, 0.02, 0.01), Shape("sphere", "ball", (0.03,), body="ball"), Shape("plane", "floor")
    ]  # fmt: skip
    phase = torch.arange(num_envs, dtype=torch.float64)

    def motion(t: float) -> dict[str, torch.Tensor]:
        pos = torch.zeros(num_envs, 2, 3, dtype=torch.float64)
        pos[:, 0, 2] = 0.0102 + 0.004 * torch.sin(40.0 * t + phase)
        pos[:, 1, 2] = pos[:, 0, 2] + 0.0402 + 0.002 * torch.sin(70.0 * t + phase)
        return {"body_pos_w": pos}

    return sn.TensorEngine(num_envs, 0.01, bodies=("pad", "ball"), shapes=shapes, motion=motion)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"body": "pad", "simulate_all_link_temperatures": True, "sensor_time_constant": 0.05, "heat_generation": 2.0},
        {"bodies": ".*", "contact_conductance": 500.0},
    ],
)
def test_contract_holds(options):
    """All rules hold, with intermittent contacts, with and without a lag."""
    warm = sn.LinkThermalCfg(base_temperature=40.0, conductivity=20.0)
    cfg = sn.TemperatureGridCfg(
        grid_size=(3, 3, 2), surface_samples=40, default_properties=warm, properties={"ball": METAL}, **options
    )  # fmt: skip
    assert "resuming_is_exact" in check_sensor(cfg, bouncing)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"sensor_time_constant": 0.0}, "sensor_time_constant"),
        ({"sensor_time_constant": -1.0}, "sensor_time_constant"),
        ({"update_period": -0.1}, "update_period"),
        ({"grid_size": (2, 0, 1)}, "grid_size"),
        ({"convection": -1.0}, "convection"),
        ({"contact_conductance": 0.0}, "contact_conductance"),
        ({"contact_distance": 0.0}, "contact_distance"),
        ({"surface_samples": 3}, "surface_samples"),
        ({"ambient_temperature": 300.0 - 600.0}, "ambient_temperature"),
        ({"heat_generation": [1.0, 2.0]}, "heat_generation"),
        ({"grid_size": (2, 1, 1), "heat_generation": [[[1.0]]]}, "heat_generation"),
        ({"heat_generation": float("nan")}, "heat_generation"),
        ({"offset": sn.OffsetCfg(pos=(0.0, 0.0, 0.1))}, "offset"),
        ({"properties": {"cube": {"density": -1.0}}}, "density"),
    ],
)
def test_bad_options_are_refused_by_name(options, field):
    with pytest.raises(sn.ConfigError, match=field):
        sn.TemperatureGridCfg(body="cube", **options)


@pytest.mark.parametrize("field", ["conductivity", "density", "specific_heat", "emissivity", "base_temperature"])
def test_bad_materials_are_refused_by_name(field):
    for value in (-300.0, float("inf")) if field == "base_temperature" else (-1.0, float("nan")):
        with pytest.raises(sn.ConfigError, match=field):
            sn.LinkThermalCfg(**{field: value})


def test_unknown_links_and_links_without_a_volume_are_refused_with_a_hint():
    """Patterns that match nothing, a body without shapes, an open mesh, a plane, the world, a site, a link twice."""
    sheet = sn.engines.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    shapes = [
        box("cube", 0.05, 0.05, 0.05), Shape("mesh", "sheet", body="sheet", mesh=sheet),
        Shape("plane", "plate", (0.1, 0.1), body="plate"), Shape("plane", "floor"),
        Shape("sphere", "ghost", (0.1,), body="ghost", is_collision=False),
    ]  # fmt: skip
    bodies = ("cube", "sheet", "plate", "empty", "ghost")

    def refused(match: str, **options: Any) -> None:
        engine = sn.TensorEngine(
            1, bodies=bodies, shapes=shapes, sites={"tip": ("cube", (0.0, 0.0, 0.05)), "hub": "cube", "core": "cube"}
        )
        with pytest.raises(sn.ConfigError, match=match):
            sn.Scene(engine, [sn.TemperatureGridCfg(exclude=("sheet",), **options)])

    refused("'cube'", body="cube", properties={"cubs": METAL})
    refused("shapes", body="empty")
    refused("geometry", body="ghost")
    refused("closed", body="sheet")
    refused("plane", body="plate")
    refused("a link", body="world")
    refused("body='cube'", site="tip")
    refused("once", sites=("hub", "core"))


def test_heat_can_be_set_only_if_configured_and_of_matching_shape():
    cfg = sn.TemperatureGridCfg(body="cube", grid_size=(2, 1, 1))
    _, sensor = world(cfg, [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)})
    with pytest.raises(sn.ConfigError, match=r"heat_generation=0\.0"):
        sensor.set("heat_generation", 1.0)
    _, sensor = world(cfg.replace(heat_generation=0.0), [box("cube", 0.05, 0.05, 0.05)], {"cube": (0.0, 0.0, 0.0)})
    for value in ([1.0, 2.0, 3.0], "warm", [[1.0, 2.0], [3.0]], None, float("nan")):
        with pytest.raises(sn.ConfigError, match="watts"):
            sensor.set("heat_generation", value)
    with pytest.raises(sn.UnknownNameError, match="cube"):
        sensor.link_temperature("cubs")


def test_non_finite_pose_is_flagged_and_keeps_temperatures():
    """NaN in the pose of a touching shape makes the sample invalid, and no heat is exchanged with that shape."""
    cfg = sn.TemperatureGridCfg(body="hot", properties={"hot": METAL}, **AIRLESS)
    shapes = [box("hot", 0.02, 0.02, 0.02), box("cold", 0.02, 0.02, 0.02)]
    scene, sensor = world(cfg, shapes, {"hot": (0.0, 0.0, 0.0), "cold": (0.0402, 0.0, 0.0)})
    scene.engine.body_pos_w[:, 1] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning, match="cold"):
        run(scene, 3)
        assert not sensor.valid.any()
    assert float(sensor.ground_truth) == 121.0
