"""Obstacle: the way of a ball to the first surface, and which surfaces count."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

SHAPES = (
    sn.engines.Shape("box", "wall", (0.1, 5.0, 5.0), pos=(6.0, 0.0, 0.0)),
    sn.engines.Shape("sphere", "post", (0.2,), pos=(0.0, 0.0, 0.0), body="post/base", is_static=False),
    sn.engines.Shape("sphere", "hull", (0.1,), pos=(0.0, 0.0, 0.0), body="car/base", is_static=False),
)
BODIES = ("car/base", "post/base")


def read(post: tuple[float, float, float], **options: Any) -> tuple[float, int]:
    """Return distance and body of a sensor on a car at the origin, with the post at a place."""
    pos = torch.tensor([[[0.0, 0.0, 0.0], post]])
    engine = sn.TensorEngine(1, 0.01, bodies=BODIES, shapes=SHAPES)
    engine.body_pos_w[:] = pos
    data = sn.Scene(engine, [sn.ObstacleCfg(name="it", body="car/base", **options)])["it"].data
    return float(data.distance[0]), int(data.body[0])


@pytest.mark.parametrize(
    ("post", "options", "distance", "body"),
    [
        ((3.0, 0.4, 0.0), {}, 3.0 - math.sqrt(0.7**2 - 0.4**2), 1),
        ((3.0, 0.4, 0.0), {"hit_radius": 0.1, "max_distance": 9.0}, 5.8, -1),
        ((3.0, 0.1, 0.0), {"hit_radius": 0.0}, 3.0 - math.sqrt(0.2**2 - 0.1**2), 1),
        ((3.0, 0.4, 0.0), {"hit_radius": 0.1, "max_distance": 9.0, "ignore_static": True}, math.inf, -2),
        ((7.5, 0.0, 0.0), {"max_distance": 9.0, "ignore_static": True}, 6.8, 1),
        ((3.0, 0.0, 0.0), {"max_distance": 2.2}, math.inf, -2),
        ((3.0, 0.0, 0.0), {"max_distance": 2.4}, 2.3, 1),
        ((0.4, 0.0, 0.0), {}, 0.0, 1),
        ((3.0, 1.0, 0.0), {"offset": {"pos": (1.0, 1.0, 0.0)}}, 1.3, 1),
        ((0.0, 3.0, 0.0), {"offset": {"rot": (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))}}, 2.3, 1),
    ],
)
def test_the_ball_stops_at_the_first_surface(
    post: tuple[float, float, float], options: dict[str, Any], distance: float, body: int
) -> None:
    found = read(post, **options)
    assert found[1] == body and found[0] == pytest.approx(distance, abs=0.02)


def tumbling(envs: int) -> sn.TensorEngine:
    """Return the engine of `check_sensor` between a wall and a ground."""
    base = tumbling_engine(envs)
    return sn.TensorEngine(
        envs, base.dt, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))},
        shapes=[SHAPES[0], sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -1.0))],
        provides=("pose", "velocity", "acceleration", "gravity"), motion=base.motion,
    )  # fmt: skip


def test_it_follows_the_rules_of_every_sensor() -> None:
    check_sensor(sn.ObstacleCfg(body="body", max_distance=8.0, noise=0.1, delay=0.004), engine=tumbling)
