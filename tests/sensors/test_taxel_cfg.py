"""Common rules of all taxel sensors: link names, probe layouts, and the warning about distant probes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.sensors.touch.taxel_cfg import unit_normals

BALL = sn.engines.Shape("sphere", "ball", (0.1,), body="ball")
ARM = """
<mujoco><worldbody><body name="base"><geom size=".1"/>
  <body name="tip" pos="0 0 1"><joint/><geom name="tip" size=".02"/></body></body></worldbody></mujoco>
"""


def skin(**given: Any) -> sn.ContactDepthProbeCfg:
    return sn.ContactDepthProbeCfg(name="skin", **given)


def mounts(engine: sn.engines.Engine, **given: Any) -> tuple[str, ...]:
    return sn.Scene(engine, [skin(**given)])["skin"].info.mounts


# Names ----------------------------------------------------------------------------------------------------------------


def test_link_is_resolved_within_its_entity() -> None:
    """The default entity is "robot"; a pattern of links is also restricted to it."""
    engine = sn.MujocoEngine.compose({"robot": ARM, "other": ARM})
    assert mounts(engine, link_name="tip") == ("robot/tip",)
    assert mounts(engine, link_name="tip", entity_name="other") == ("other/tip",)
    assert mounts(engine, link_names="base|tip") == ("robot/base", "robot/tip")
    assert mounts(engine, link_names=("tip", "base"), entity_name="other") == ("other/tip", "other/base")


def test_only_the_default_entity_may_be_one_that_the_model_lacks() -> None:
    """Links of an unknown entity are those of no other, and a full name or another selector uses none."""
    engine = sn.MujocoEngine(ARM)
    assert mounts(engine, link_name="tip") == mounts(engine, body="tip", entity_name="hand") == ("tip",)
    with pytest.raises(sn.SelectionError, match=r"entity_name: got 'hand'.*Entities of this model: none\."):
        mounts(engine, link_name="tip", entity_name="hand")
    engine = sn.MujocoEngine.compose({"robot": ARM, "other": ARM})
    with pytest.raises(sn.SelectionError, match=r"entity_name: got 'otherr'.*mean 'other'\? .*model: robot, other\."):
        mounts(engine, link_names=("tip", "base"), entity_name="otherr")
    assert mounts(engine, link_name="robot/tip", entity_name="otherr") == ("robot/tip",)


def test_a_full_name_needs_no_entity() -> None:
    """A reference, the world, or a selector that is not a link is rejected as well."""
    engine = sn.MujocoEngine.compose({"robot": ARM, "other": ARM})
    assert mounts(engine, link_name="other/tip") == ("other/tip",)
    assert mounts(engine, link_name=sn.ObjRef(type="body", name="tip", entity="other")) == ("other/tip",)
    assert mounts(engine, link_name="world") == ("world",)
    assert mounts(engine, body="other/tip") == ("other/tip",)


def test_unknown_link_error_lists_existing_ones() -> None:
    """The same applies if the link is only in another entity."""
    engine = sn.MujocoEngine.compose({"hand": ARM})
    with pytest.raises(sn.SelectionError, match=r"link_name: got 'tip'.*hand/tip"):
        mounts(engine, link_name="tip")
    with pytest.raises(sn.SelectionError, match="tipp"):
        mounts(sn.MujocoEngine(ARM), link_name="tipp")


def test_the_link_must_be_named() -> None:
    with pytest.raises(sn.ConfigError, match=r"mount: got no selector.*link_name"):
        skin()
    with pytest.raises(sn.ConfigError, match="exactly one selector"):
        skin(link_name="tip", body="tip")


# Layout ---------------------------------------------------------------------------------------------------------------


def test_probes_are_a_list_or_grid_or_array() -> None:
    """Layout, positions and radii are row by row; TOML and JSON restore the same config."""
    grid = np.arange(18.0).reshape(2, 3, 3)
    cfg = skin(link_name="tip", probe_local_pos=grid, probe_radius=np.arange(6.0))
    assert cfg.layout == (2, 3) and cfg.num_probes == 6
    np.testing.assert_array_equal(cfg.places, grid.reshape(6, 3))
    np.testing.assert_array_equal(cfg.radii, np.arange(6.0))
    assert sn.ContactDepthProbeCfg.from_toml(cfg.to_toml()) == cfg == sn.ContactDepthProbeCfg.from_json(cfg.to_json())
    flat = skin(link_name="tip", probe_local_pos=torch.zeros(4, 3), probe_radius=0.02)
    assert flat.layout == (4,) and flat.radii.tolist() == [0.02] * 4
    plain = skin(link_name="tip")
    assert plain.places.tolist() == [[0.0, 0.0, 0.0]] and plain.probe_radius == 0.01 and plain.probe_radius_noise == 0.0


def test_normal_is_shared_or_one_per_probe() -> None:
    """Normals may have any length; they become unit vectors, row by row."""
    grid = skin(link_name="tip", probe_local_pos=np.zeros((2, 2, 3)))
    np.testing.assert_array_equal(unit_normals((0.0, 0.0, 5.0), grid), [[0.0, 0.0, 1.0]] * 4)
    each = np.array([[[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]], [[-1.0, 0.0, 0.0], [0.0, 0.0, -9.0]]])
    expected = [[0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]
    np.testing.assert_allclose(unit_normals(each, grid), expected, atol=1e-15)
    with pytest.raises(ValueError, match="one for each of 4 probes in their layout, not 4"):
        unit_normals(each.reshape(4, 3), grid)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"probe_local_pos": ()}, r"probe_local_pos.*\[probe, 3\] or \[row, column, 3\]"),
        ({"probe_local_pos": (0.01, 0.0, 0.0)}, r"probe_local_pos: got \(0.01, 0.0, 0.0\), expected \[probe, 3\]"),
        ({"probe_local_pos": ((0.0, 0.0), (0.0, 0.1))}, r"probe_local_pos: got \(\(0.0, 0.0\).*expected \[probe, 3\]"),
        ({"probe_local_pos": "tip"}, r"probe_local_pos: got 'tip', expected \[probe, 3\]"),
        ({"probe_local_pos": None}, r"probe_local_pos: got None, expected \[probe, 3\]"),
        ({"probe_local_pos": ((0, 0, math.nan),)}, "probe_local_pos.*finite positions, m"),
        ({"probe_local_pos": (((0, 0, 0),), ((0, 0, 0), (0, 0, 1)))}, r"probe_local_pos.*all rows of a grid"),
        ({"probe_radius": -0.01}, r"probe_radius: got -0\.01, expected finite radii >= 0, m"),
        ({"probe_radius": math.inf}, "probe_radius: got inf, expected finite radii >= 0, m"),
        ({"probe_radius": 0.0}, r"probe_radius: got 0\.0, expected at least one radius above 0, m"),
        ({"probe_radius": (0.01, 0.02)}, "probe_radius.*one number, or 1, one for each probe; not 2"),
        ({"probe_radius_noise": -0.001}, r"probe_radius_noise: got -0\.001, expected a finite number >= 0"),
        ({"probe_radius_noise": math.nan}, "probe_radius_noise: got nan, expected a finite number >= 0"),
    ],
    ids=str,
)
def test_invalid_probes_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        skin(link_name="tip", **given)


def test_open_mesh_is_refused_unless_excluded() -> None:
    sheet = sn.engines.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    shapes = [BALL, sn.engines.Shape("mesh", "sheet", mesh=sheet, is_collision=False)]
    engine = sn.TensorEngine(1, bodies=("tip", "ball"), shapes=shapes)
    with pytest.raises(sn.ModelError, match="3 of 3 edges are open"):
        sn.Scene(engine, [skin(link_name="tip")])
    for left_out in ({"geometry": "collision"}, {"exclude": "sheet"}, {"targets": "ball"}):
        assert sn.Scene(engine, [skin(link_name="tip", **left_out)])["skin"].data.item() > 0.0


# Probes far away ------------------------------------------------------------------------------------------------------

SHELL = sn.engines.Shape("box", "shell", (0.03, 0.04, 0.05), body="tip", pos=(0.0, 0.0, 0.1))
"""A link with a diagonal, its size, of 0.1414 m."""


def test_probes_far_outside_their_link_are_warned_of_with_the_distance(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Positions in mm instead of m cause a warning; just within the limit, and on a link without shapes, there is
    none.
    """
    engine = sn.TensorEngine(1, bodies=("tip", "ball"), shapes=[SHELL, BALL])
    near = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.15 + 0.141), (0.03 + 0.14, 0.0, 0.1))
    sn.Scene(engine, [skin(link_name="tip", probe_local_pos=near)])
    bare = sn.TensorEngine(1, bodies=("tip", "ball"), shapes=[BALL])
    sn.Scene(bare, [skin(link_name="tip", probe_local_pos=((50.0, 0.0, 0.0),))])
    assert not recwarn
    far = (*near, (0.0, 0.0, 0.15 + 0.142), (5.03, 0.0, 0.1))
    with pytest.warns(UserWarning, match=r"2 of 5 probes are outside 'tip' .* size of 0\.141 m; probe 4 is 5 m away"):
        sn.Scene(engine, [skin(link_name="tip", probe_local_pos=far)])


def test_link_size_is_pose_independent_and_includes_the_offset(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A rotated post is welded to the world far from its origin, with probes on it, and then off it."""
    post = """
    <mujoco><worldbody><geom type="plane" size="1 1 1"/>
      <body name="post" pos="50 0 1" euler="0 90 30"><geom type="box" size=".1 .2 .3" pos="0 0 .3"/></body>
      <body name="ball" pos="0 0 9"><freejoint/><geom size=".1"/></body></worldbody></mujoco>
    """
    on_it = ((0.1, 0.2, 0.6), (-0.1, -0.2, 0.0))
    sn.Scene(sn.MujocoEngine(post), [skin(link_name="post", probe_local_pos=on_it)])
    assert not recwarn
    away = sn.OffsetCfg(pos=(0.0, 0.0, 4.0))
    with pytest.warns(UserWarning, match=r"2 of 2 probes .* size of 0\.748 m; probe 0 is 4 m away"):
        sn.Scene(sn.MujocoEngine(post), [skin(link_name="post", probe_local_pos=on_it, offset=away)])
