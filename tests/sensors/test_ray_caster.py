"""The ray caster against geometry worked out by hand, the float64 reference, and MuJoCo's own rays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine
from sensorium.testing.rays import reference_cast

Array = NDArray[np.float64]
INF = float("inf")
EPS = 2.0**-24
"""Half a unit in the last place of float32, relative."""
DOWN = (0.0, 0.0, -1.0)
IDENTITY = (1.0, 0.0, 0.0, 0.0)


class GivenPatternCfg(sn.PatternBaseCfg):
    """Rays that are written out."""

    starts: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 0.0),)
    """Starts, m."""
    directions: tuple[tuple[float, float, float], ...] = (DOWN,)
    """Directions."""

    def func(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return them."""
        starts, directions = (torch.tensor(rows, device=device) for rows in (self.starts, self.directions))
        return starts, directions


RAY = GivenPatternCfg()
"""One ray, straight down."""


def rays(*pairs: tuple[Sequence[float], Sequence[float]]) -> GivenPatternCfg:
    """Return a pattern of (start, direction) pairs."""
    return GivenPatternCfg(starts=[start for start, _ in pairs], directions=[direction for _, direction in pairs])


def turn(axis: str, degrees: float) -> tuple[float, ...]:
    """Return a quaternion (w, x, y, z); several axes turn about those of the body, one after the other."""
    return tuple(Rotation.from_euler(axis.upper(), degrees, degrees=True).as_quat(scalar_first=True).tolist())


def engine_of(
    shapes: Sequence[sn.Shape], poses: Mapping[str, Sequence[Any]] | None = None, envs: int = 1, **kwargs: Any
) -> sn.TensorEngine:
    """Return an engine with bodies at poses: name to (position,) or (position, quaternion)."""
    poses = {"base": ((0.0, 0.0, 2.0),)} if poses is None else poses
    engine = sn.TensorEngine(envs, kwargs.pop("dt", 0.01), bodies=tuple(poses), shapes=shapes, **kwargs)
    for k, (pos, *quat) in enumerate(poses.values()):
        engine.body_pos_w[:, k] = torch.tensor(pos)
        engine.body_quat_w[:, k] = torch.tensor(quat[0] if quat else IDENTITY)
    return engine


GROUND = sn.Shape("plane", "ground")


def scan(engine: sn.Engine, cfg: sn.SensorCfg[Any] | None = None, seed: int = 0, **fields: Any) -> Any:
    """Return the sensor of a scene with one ray caster, by default with one ray down from the body "base"."""
    if cfg is None:
        mount = {} if {*fields} & {"sites", "site", "bodies", "body", "prim_path", "frame", "frames"} else {"body": "base"}
        cfg = sn.RayCasterCfg(**{"pattern": RAY, **mount, **fields})
    scene = sn.Scene(engine, [cfg], seed=seed)
    return scene[cfg]


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


# Boxes as Isaac Lab's tests have them ---------------------------------------------------------------------------------

CORNERS = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-0.5, 0.5)])
FACES = [[1, 3, 0], [4, 1, 0], [0, 3, 2], [2, 4, 0], [1, 7, 3], [5, 1, 4],
         [5, 7, 1], [3, 7, 2], [6, 4, 2], [2, 7, 6], [6, 5, 4], [7, 5, 6]]  # fmt: skip
BOX = sn.Mesh(CORNERS, FACES, "box")
"""A box of 2 x 2 x 1 m, its faces in trimesh's order: the bottom is 3 (x + y < 0) and 8."""
UP = ((0.0, -0.35, -5.0), (0.0, 0.0, 1.0)), ((0.25, 0.35, -5.0), (0.0, 0.0, 1.0))


def test_rays_from_below_meet_the_bottom_of_a_box() -> None:
    data = scan(engine_of([sn.Shape("mesh", "box", mesh=BOX)], {}), body="world", pattern=rays(*UP), fields="all").data
    assert data.distances.tolist() == [[4.5, 4.5]]
    assert data.ray_hits_w.tolist() == [[[0.0, -0.35000002384185791, -0.5], [0.25, 0.35000002384185791, -0.5]]]
    assert data.normals_w.tolist() == [[[0.0, 0.0, -1.0]] * 2]
    assert data.face_ids.tolist() == [[3, 8]]


@pytest.mark.parametrize("is_moving", [False, True])
def test_two_boxes_are_told_apart(is_moving: bool) -> None:
    """The id is the shape's row in `geom_names`, where the boxes stand and where they hang on bodies."""
    pattern = rays(UP[0], ((0.25, 4.5, -5.0), (0.0, 0.0, 1.0)), ((0.0, 9.0, -5.0), (0.0, 0.0, 1.0)))
    places = [(0.0, 0.0, 0.0), (0.0, 4.5, 0.0)]
    if is_moving:
        shapes = [sn.Shape("mesh", f"box_{k}", mesh=BOX, body=f"body_{k}") for k in range(2)]
        engine = engine_of(shapes, {f"body_{k}": (place,) for k, place in enumerate(places)})
    else:
        engine = engine_of([sn.Shape("mesh", f"box_{k}", mesh=BOX, pos=place) for k, place in enumerate(places)], {})
    sensor = scan(engine, body="world", pattern=pattern, fields=("distances",), update_mesh_ids=True)
    assert sensor.data.ray_mesh_ids.tolist() == [[[0], [1], [-1]]]
    assert sensor.geom_names == ("box_0", "box_1")
    assert sensor.data.distances.tolist() == [[4.5, 4.5, INF]]


def test_a_moving_mesh_is_followed_in_the_same_step() -> None:
    """A box that rises from 0 to 1 m moves hits and distances along, and the faces stay."""
    heights = np.linspace(0.0, 1.0, 10)
    engine = engine_of([sn.Shape("mesh", "box", mesh=BOX, body="box")], {"box": ((0.0, 0.0, 0.0),)})
    sensor = scan(engine, body="world", pattern=rays(*UP), fields="all")
    for height in heights:
        engine.body_pos_w[:, 0, 2] = float(height)
        sensor._evaluate(sensor) if False else sensor.read()
        scene_of(sensor).update()
        assert numpy(sensor.data.distances) == pytest.approx(4.5 + height, abs=10 * EPS * 5)
        assert numpy(sensor.data.ray_hits_w[..., 2]) == pytest.approx(-0.5 + height, abs=10 * EPS * 5)
        assert sensor.data.face_ids.tolist() == [[3, 8]]
