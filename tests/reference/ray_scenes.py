"""Random scenes for rays: shapes of all kinds, poses of their bodies, and rays that hit them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape, ShapeKind
from sensorium.geometry.transforms import compose

Floats = NDArray[np.float64]


def at_world(shape: Shape, poses: tuple[ArrayLike, ArrayLike] | None) -> tuple[Floats, Floats]:
    """Return position, m, and quaternion (w, x, y, z) of a shape in the world.

    Args:
        shape: the shape.
        poses: positions `[body, 3]` and quaternions `[body, 4]` of the bodies.

    Raises:
        ModelError: its body is not resolved yet.
        ValueError: it moves with a body without a pose.
    """
    pos, quat = np.array(shape.pos), np.array(shape.quat)
    if shape.is_static or shape.row < 0:
        return pos, quat
    if poses is None or len(np.asarray(poses[0])) <= shape.row:
        raise ValueError(f"shape {shape.name!r} moves with body {shape.row}, whose pose is not in `poses`.")
    body_pos, body_quat = (np.asarray(part, float)[shape.row] for part in poses)
    at, turn = compose(body_pos, body_quat, pos, quat)
    return np.array(at), np.array(turn)


def random_shapes(
    rng: np.random.Generator, count: int, kinds: Sequence[ShapeKind] = KINDS, bodies: int = 0, extent: float = 10.0
) -> list[Shape]:
    """Return shapes of all given kinds in turn, with random sizes and poses.

    Meshes are bent, not convex, open or closed, scaled, and every second one mirrored; some have a degenerate face
    removed. Height fields are tilted, every second one with a base. Every second plane is a rectangle; the others are
    unbounded and below the other shapes.

    Args:
        rng: source of all random numbers.
        count: number of shapes.
        kinds: kinds of shapes, in turn.
        bodies: number of bodies; about two of three shapes move with one, the others are static. 0 for static only.
        extent: side of the cube about the origin that contains the shapes' origins, m; their size is a fifth of it.
    """
    shapes = []
    for i in range(count):
        kind = kinds[i % len(kinds)]
        odd = bool((i // len(kinds)) % 2)
        body = int(rng.integers(0, bodies)) if bodies and rng.random() < 2.0 / 3.0 else -1
        reach = 0.5 * extent if body < 0 else 0.1 * extent
        unit = 0.2 * extent
        pos, quat = _single(rng.uniform(-reach, reach, 3)), _single(rng.normal(size=4))
        size = tuple(_single(rng.uniform(0.3 * unit, unit, 3)))
        numbers = {"sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3}.get(kind, 0)
        mesh, scale, hfield = None, np.ones(3), None
        if kind == "plane":
            size = (size[0], 2.0 * size[1])
            if not odd:
                body, size = -1, (0.0, 0.0)
                pos, quat = _single([0.0, 0.0, -extent]), _single([1.0, *rng.uniform(-0.1, 0.1, 2), 0.0])
        elif kind == "mesh":
            mesh = _MESHES[int(rng.integers(len(_MESHES)))](rng, f"mesh {i}")
            signs = rng.choice([-1.0, 1.0], 3)
            signs[2] *= signs.prod() * (-1.0 if odd else 1.0)
            scale = _single(rng.uniform(0.4, 1.2, 3) * unit * signs)
        elif kind == "hfield":
            rows, columns = (int(n) for n in rng.integers(3, 9, 2))
            heights = _single(rng.uniform(0.0, 0.6 * unit, (rows, columns)))
            hfield = HeightField(heights, (2.0 * size[0], 2.0 * size[1]), base=size[2] if odd else None)
        shapes.append(
            Shape(
                kind, f"{kind} {i}", size if kind == "plane" else size[:numbers], body,
                (pos[0], pos[1], pos[2]), (quat[0], quat[1], quat[2], quat[3]),
                mesh, (scale[0], scale[1], scale[2]), hfield,
            )
        )  # fmt: skip
    return shapes


def random_poses(rng: np.random.Generator, bodies: int, extent: float = 10.0) -> tuple[Floats, Floats]:
    """Return positions `[body, 3]`, m, and unit quaternions (w, x, y, z) `[body, 4]`, in the same range as shapes."""
    quat = rng.normal(size=(bodies, 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    return _single(rng.uniform(-0.5 * extent, 0.5 * extent, (bodies, 3))), _single(quat)


def random_rays(
    rng: np.random.Generator, shapes: Sequence[Shape], n: int, *, poses: tuple[ArrayLike, ArrayLike] | None = None
) -> tuple[Floats, Floats]:
    """Return starts `[ray, 3]`, m, and unit directions `[ray, 3]`, exactly representable in float32.

    Three quarters point at shapes. A quarter start inside or close to one, and a quarter point straight down.

    Args:
        rng: source of all random numbers.
        shapes: targets of the rays.
        n: number of rays.
        poses: of the bodies, as for `reference_cast`.
    """
    places = [at_world(shape, poses)[0] for shape in shapes if not (shape.kind == "plane" and 0.0 in shape.size)]
    centres = np.array(places or [np.zeros(3)])
    middle = 0.5 * (centres.min(axis=0) + centres.max(axis=0))
    reach = 0.5 * float(np.ptp(centres, axis=0).max()) + 1.0
    starts = middle + rng.uniform(-1.2 * reach, 1.2 * reach, (n, 3))
    turn = np.arange(n) % 4
    aim = centres[rng.integers(len(centres), size=n)] + rng.normal(scale=0.07 * reach, size=(n, 3))
    starts = np.where((turn == 1)[:, None], aim, starts)
    directions = np.where(((turn == 0) | (turn == 2))[:, None], aim - starts, rng.normal(size=(n, 3)))
    directions[turn == 3] = [0.0, 0.0, -1.0]
    above = turn == 3
    starts[above] = aim[above] + [0.0, 0.0, 1.5] * np.array(reach)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return _single(starts), _single(directions)


def _single(values: ArrayLike) -> Floats:
    """Return float64 numbers that are exact in float32, so that both sides of a comparison use the same values."""
    return np.asarray(values, np.float32).astype(np.float64)


def _bracket(rng: np.random.Generator, name: str) -> Mesh:
    """Return a closed L with a slanted top: not convex and without symmetry; a face without area is removed."""
    outline = np.array([[-1.0, -0.8], [1.0, -0.8], [1.0, -0.2], [-0.3, -0.1], [-0.2, 0.9], [-1.0, 0.9]])
    top = rng.uniform(0.2, 0.8, 6)
    points = np.concatenate([np.c_[outline, np.full(6, -0.5)], np.c_[outline, top]])
    cap = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5]])
    side = [[i, (i + 1) % 6, (i + 1) % 6 + 6] for i in range(6)] + [[i, (i + 1) % 6 + 6, i + 6] for i in range(6)]
    faces = np.concatenate([cap[:, ::-1], [[0, 0, 1]], cap + 6, side])
    return Mesh(_single(points), faces, name, drop_degenerate=True)


def _boulder(rng: np.random.Generator, name: str) -> Mesh:
    """Return a closed, bumpy ball of random radii."""
    rings, around = 7, 10
    polar = np.pi * np.arange(1, rings) / rings
    turn = 2.0 * np.pi * np.arange(around) / around
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    ball = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    points = np.concatenate([ball, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    points *= rng.uniform(0.6, 1.1, (len(points), 1))
    index, k = np.arange(len(ball)).reshape(rings - 1, around), np.arange(around)
    after = (k + 1) % around
    up, down = index[:-1], index[1:]
    faces = [np.stack([up, down, down[:, after]], -1), np.stack([up, down[:, after], up[:, after]], -1)]
    north, south = np.full(around, len(ball)), np.full(around, len(ball) + 1)
    caps = [np.stack([north, index[0], index[0, after]], -1), np.stack([south, index[-1, after], index[-1]], -1)]
    return Mesh(_single(points), np.concatenate([part.reshape(-1, 3) for part in (*faces, *caps)]), name)


def _sheet(rng: np.random.Generator, name: str) -> Mesh:
    """Return an open, wavy sheet."""
    n = 7
    x, y = np.meshgrid(np.linspace(-1.0, 1.0, n), np.linspace(-0.7, 1.0, n), indexing="ij")
    points = np.stack([x, y, rng.uniform(-0.3, 0.3, (n, n))], axis=-1).reshape(-1, 3)
    index = np.arange(n * n).reshape(n, n)
    a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([a, c, d], -1).reshape(-1, 3)])
    return Mesh(_single(points), faces, name)


_MESHES = (_bracket, _boulder, _sheet)
