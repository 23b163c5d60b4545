"""Tendons, sites, skins and flexes in images: which of them a camera shows, where, and with which ids."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn

VIEW = sn.CameraCfg.OffsetCfg.from_view((0.0, -3.0, 1.0), (0.0, 0.0, 0.5))
IDS = ("geom_ids", "segmentation", "instance_segmentation", "instance_id_segmentation", "semantic_segmentation")
RAW: dict[str, Any] = {f"colorize_{name}": False for name in IDS[2:]}
HANGING = """
<mujoco><option gravity="0 0 -9.81"/><worldbody>
  <geom name="floor" type="plane" size="9 9 1"/>
  <site name="nail" pos="-.6 0 1.2" size=".05"/>
  <body name="load" pos=".6 0 1"><freejoint/><geom name="load" size=".1"/>
    <site name="eye" type="box" size=".05 .05 .05" pos="-.2 0 0"/></body></worldbody>
  <tendon><spatial name="rope" width=".02" {limit}><site site="nail"/><site site="eye"/></spatial></tendon></mujoco>
"""
SLACK = HANGING.format(limit='range="0 1.6"')
SKIN = '<skin name="hide" vertex="0 0 0 1 0 0 0 1 0" face="0 1 2"><bone body="load" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 1 2" vertweight="1 1 1"/></skin>'  # noqa: E501


def camera(**options: Any) -> sn.CameraCfg:
    return sn.CameraCfg(
        **{
            "name": "camera", "body": "world", "width": 80, "height": 60, "offset": VIEW, "data_types": IDS, **RAW,
            "lens": sn.lenses.PinholeLensCfg(fovy=40.0), **options,
        }
    )  # fmt: skip


def seen(model: Any, envs: int = 1, semantics: Any = None, **options: Any) -> Any:
    """Return the camera of a scene of a MuJoCo model."""
    return sn.Scene(sn.MujocoEngine(model, envs), [camera(**options)], semantics=semantics, discover=False)["camera"]


def names(sensor: Any, env: int = 0) -> set[str]:
    """Return the names of the visible shapes."""
    return {sensor.geom_names[i] for i in sensor.data.geom_ids[env].unique().tolist() if i >= 0}


# Which elements -------------------------------------------------------------------------------------------------------


def test_tendons_are_visible_by_default_and_sites_by_option() -> None:
    assert names(seen(SLACK)) == {"floor", "load", "rope"}
    assert names(seen(SLACK, show_sites=True)) == {"floor", "load", "rope", "nail", "eye"}
    assert names(seen(SLACK, exclude="rope")) == {"floor", "load"}
    assert names(seen(SLACK, geometry="collision", show_sites=True)) == {"floor", "load"}
    assert names(seen(SLACK, targets=("nail", "rope"), show_sites=True)) == {"nail", "rope"}
    assert names(seen(HANGING.format(limit='group="3"'))) == {"floor", "load"}
    assert names(seen(HANGING.format(limit='rgba="1 1 1 0"'))) == {"floor", "load"}


def test_geoms_keep_their_rows_and_rays_do_not_see_other_elements() -> None:
    """Without tendons and sites `geom_names` are the geoms; with them they follow. Cast rays see geoms only."""
    assert seen(SLACK, exclude="rope").geom_names == ("floor", "load")
    assert seen(SLACK, show_sites=True).geom_names[:3] == ("floor", "load", "rope")
    pattern = sn.patterns.PinholeCameraPatternCfg(width=80, height=60, fovy=40)
    rays = sn.RayCasterCameraCfg(name="rays", body="world", pattern=pattern, offset=VIEW, data_types=("geom_ids",))
    sensor: Any = sn.Scene(sn.MujocoEngine(SLACK), [rays], discover=False)["rays"]
    assert sensor.geom_names == ("floor", "load") and names(sensor) == {"floor", "load"}


def test_visible_skin_or_flex_is_rejected_by_name() -> None:
    """The error names sensor, element and fix; without the element, or for rays that skins do not stop, all is well."""
    model = SLACK.replace("</worldbody>", f"</worldbody><deformable>{SKIN}</deformable>")
    with pytest.raises(sn.ConfigError, match=r"(?s)camera.*hide.*it is a skin.*exclude=\('hide',\)"):
        seen(model)
    assert names(seen(model, exclude="hide")) == {"floor", "load", "rope"}
    scan = sn.RayCasterCfg(name="scan", body="load", pattern=sn.patterns.GridPatternCfg(size=(0.1, 0.1)))
    sn.Scene(sn.MujocoEngine(model), [scan], discover=False)
    cloth = '<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".2 .2 .2" dim="2" radius=".01" rigid="true"/>'
    with pytest.raises(sn.ConfigError, match=r"(?s)camera.*cloth.*deformable.*exclude=\('cloth',\)"):
        seen(SLACK.replace("</worldbody>", f"{cloth}</worldbody>"))


def test_site_that_moves_between_environments_is_rejected() -> None:
    engine = sn.MujocoEngine(SLACK, 2)
    engine.batch.expand("site_pos")[1, 0, 2] += 0.1
    with pytest.raises(sn.ConfigError, match=r"(?s)nail.*its pose on its body differs between environments.*exclude"):
        sn.Scene(engine, [camera(show_sites=True)], discover=False)
    sn.Scene(engine, [camera(show_sites=True, exclude="nail")], discover=False)


# Ids and labels -------------------------------------------------------------------------------------------------------


def test_tendons_and_sites_have_ids_labels_and_mujocos_numbers() -> None:
    """A tendon has one id for all segments; `segmentation` has number and type of MuJoCo; labels select by name."""
    semantics = {"class:string": "rope", "class:mark": "nail|eye", "class:thing": "load"}
    sensor = seen(SLACK, show_sites=True, semantics=semantics)
    data, info = sensor.data, sensor.data.info[0]
    model = mujoco.MjModel.from_xml_string(SLACK)
    ids = data.geom_ids[0, ..., 0]
    expected = {"rope": (model.tendon("rope").id, 18, "string"), "eye": (model.site("eye").id, 6, "mark"),
                "load": (model.geom("load").id, 5, "thing")}  # fmt: skip
    for name, (number, kind, label) in expected.items():
        rows = [i for i, each in enumerate(sensor.geom_names) if each == name]
        mask = torch.isin(ids, torch.tensor(rows, dtype=torch.int32))
        assert mask.any()
        assert data.segmentation[0][mask].unique(dim=0).tolist() == [[number, kind]]
        texts = {}
        for segmentation in IDS[2:]:
            (value,) = data.output[segmentation][0][mask].unique().tolist()
            texts[segmentation] = info[segmentation]["idToLabels"][str(value)]
        assert texts["instance_id_segmentation"] == name
        assert texts["semantic_segmentation"]["class"].split(",")[0] == label
        assert texts["instance_segmentation"] == ("rope" if name == "rope" else "load")


def test_boxes_of_a_tendon_surround_it() -> None:
    """The tight box is that of the visible pixels; the 3-D box contains the rope and is as deep as it is wide."""
    types = ("geom_ids", "bounding_box_2d_tight", "bounding_box_3d")
    sensor = seen(HANGING.format(limit=""), semantics={"class:string": "rope"}, data_types=types)
    data = sensor.data
    assert data.bounding_box_2d_tight_count.item() == data.bounding_box_3d_count.item() == 1
    rows, columns = np.nonzero(data.geom_ids[0, ..., 0].numpy() >= 2)
    assert data.bounding_box_2d_tight[0, 0, 1:5].tolist() == [
        columns.min(), rows.min(), columns.max(), rows.max(),
    ]  # fmt: skip
    low, high = data.bounding_box_3d[0, 0, 1:4], data.bounding_box_3d[0, 0, 4:7]
    length = float(np.linalg.norm([1.0, 0.0, -0.2]))
    torch.testing.assert_close(high - low, torch.tensor([0.04, 0.04, length + 0.04]), rtol=1e-4, atol=1e-5)


# Where tendons are ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["mujoco", "mujoco_warp", "live"])
def test_a_slack_rope_is_a_catenary(dtype: str) -> None:
    """Its segments are connected, from site to site, as long as the rope; the slope grows evenly along the rope."""
    if dtype == "mujoco_warp":
        pytest.importorskip("mujoco_warp")
    model = mujoco.MjModel.from_xml_string(SLACK)
    engine: Any = {
        "mujoco": lambda: sn.MujocoEngine(SLACK, 3),
        "mujoco_warp": lambda: sn.MujocoWarpEngine(SLACK, 3, device="cpu"),
        "live": lambda: sn.MujocoEngine.from_mj(model, mujoco.MjData(model)),
    }[dtype]()
    sn.Scene(engine, [camera()], discover=False)
    engine.refresh()
    ends, radii = (engine.array(name)[-1].double().numpy() for name in ("tendon_segments_w", "tendon_radii"))
    np.testing.assert_allclose(radii, 0.02, rtol=1e-6)
    np.testing.assert_allclose(ends[0, 0], [-0.6, 0.0, 1.2], atol=1e-5)
    np.testing.assert_allclose(ends[-1, 1], [0.4, 0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(ends[1:, 0], ends[:-1, 1], atol=1e-6)
    steps = ends[:, 1] - ends[:, 0]
    assert np.linalg.norm(steps, axis=1).sum() == pytest.approx(1.6, rel=5e-3)
    slope = steps[:, 2] / steps[:, 0]
    growth = np.diff(slope)
    np.testing.assert_allclose(growth, growth.mean(), rtol=0.05)


@pytest.mark.parametrize("limit", ["", 'range="0 1.0"', 'range="0 1.6" damping="1"', 'range=".1 1.6"'])
def test_other_tendons_are_straight(limit: str) -> None:
    """A tendon that is no slack string is one segment from site to site; segments that it lacks have radius 0."""
    engine = sn.MujocoEngine(HANGING.format(limit=limit), 2)
    sn.Scene(engine, [camera()], discover=False)
    engine.refresh()
    ends, radii = engine.array("tendon_segments_w"), engine.array("tendon_radii")
    assert radii[:, 0].tolist() == pytest.approx([0.02, 0.02]) and (radii[:, 1:] == 0.0).all()
    torch.testing.assert_close(ends[1, 0], torch.tensor([[-0.6, 0.0, 1.2], [0.4, 0.0, 1.0]]))


WRAPPED = """
<mujoco><worldbody><geom name="drum" type="cylinder" size=".1 .2" pos="0 0 1" euler="90 0 0"/>
  <site name="above" pos="0 0 1.3"/><site name="left" pos="-.5 0 .5"/>
  <body name="load" pos=".5 0 .5"><joint type="slide" axis="0 0 1"/><geom name="load" size=".05"/>
    <site name="ring"/></body></worldbody><tendon>
    <spatial name="other"><site site="left"/><site site="above"/></spatial>
    <spatial name="rope" width=".02"><site site="left"/><geom geom="drum" sidesite="above"/><site site="ring"/>
      <pulley divisor="2"/><site site="above"/><site site="left"/></spatial></tendon></mujoco>
"""


def test_a_path_around_a_geom_follows_mujocos_points() -> None:
    """The arc is on the geom and touches both ends; nothing spans a pulley; a path off the geom has no arc."""
    engine = sn.MujocoEngine(WRAPPED, 2)
    sn.Scene(engine, [camera()], discover=False)
    engine.qpos[1] = 2.0  # straight past the drum
    engine.forward()
    model = engine.model
    data = mujoco.MjData(model)
    for env, expected in enumerate(([1, 0, 1, 0, 0, 1, *[1] * 8], [1, 0, 0, 1, 0, 0, *[0] * 8])):
        data.qpos[:] = engine.qpos[env].numpy()
        mujoco.mj_forward(model, data)
        points = data.wrap_xpos.reshape(-1, 3)[data.ten_wrapadr[1] :]
        ends, radii = engine.array("tendon_segments_w")[env, 1:], engine.array("tendon_radii")[env, 1:]
        assert radii.tolist() == pytest.approx([0.02 * each for each in expected])
        for k in np.flatnonzero(expected[:6]):
            np.testing.assert_allclose(ends[k], points[k : k + 2], atol=1e-6)
        if env == 0:
            arc = ends[6:].double().numpy()
            np.testing.assert_allclose(arc[[0, -1], [0, 1]], points[1:3], atol=1e-6)
            np.testing.assert_allclose(arc[1:, 0], arc[:-1, 1], atol=1e-6)
            np.testing.assert_allclose(np.linalg.norm(arc - [0.0, 0.0, 1.0], axis=-1), 0.1, rtol=2e-3)
            assert arc[..., 2].max() > 1.099


def tensor_engine(envs: int, shapes: Any) -> Any:
    return sn.TensorEngine(envs, bodies=("b",), shapes=shapes, provides=("pose", "tendon_paths"))


CHAIN = [sn.engines.Shape("capsule", "cable", (0.05, 1.0), element="tendon") for _ in range(3)]


@pytest.mark.parametrize(
    "lens",
    [
        sn.lenses.PinholeLensCfg(fovy=40.0),
        sn.lenses.EquirectangularLensCfg(horizontal_fov_deg=60.0, vertical_fov_deg=45.0),
        sn.lenses.OrthographicLensCfg(view_height=2.0),
    ],
    ids=["pinhole", "panorama", "parallel"],
)
def test_a_segment_is_the_capsule_between_its_ends(lens: Any) -> None:
    """Each environment has its own path; the image is that of capsules at the same places, for any lens."""
    envs, types = 7, ("depth", "normals", "geom_ids")
    rng = np.random.default_rng(5)
    engine = tensor_engine(envs, CHAIN)
    points = torch.tensor(rng.uniform([-0.8, -0.4, 0.0], [0.8, 0.4, 1.0], (envs, 4, 3)), dtype=torch.float32)
    engine.tendon_segments_w = torch.stack([points[:, :-1], points[:, 1:]], dim=2)
    engine.tendon_radii = torch.tensor(rng.uniform(0.02, 0.1, (envs, 3)))
    engine.tendon_radii[1, 2] = 0.0  # this path has two segments
    sensor: Any = sn.Scene(engine, [camera(lens=lens, data_types=types)])["camera"]
    for env in range(envs):
        capsules = []
        for k in range(2 if env == 1 else 3):
            start, end = points[env, k].double().numpy(), points[env, k + 1].double().numpy()
            axis = (end - start) / np.linalg.norm(end - start)
            turn = np.array([1.0 + axis[2], -axis[1], axis[0], 0.0])
            size = float(engine.tendon_radii[env, k]), 0.5 * float(np.linalg.norm(end - start))
            capsules.append(sn.engines.Shape("capsule", f"c{k}", size, pos=tuple((start + end) / 2), quat=tuple(turn)))
        other: Any = sn.Scene(sn.TensorEngine(shapes=capsules), [camera(lens=lens, data_types=types)])["camera"]
        mine, theirs = sensor.data, other.data
        same = mine.geom_ids[env] == theirs.geom_ids[0]
        assert (theirs.geom_ids >= 0).sum() > 20 and same.float().mean() > 0.998
        for name in ("distance_to_image_plane", "normals"):
            a, b = getattr(mine, name)[env][same[..., 0]], getattr(theirs, name)[0][same[..., 0]]
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-3)


def test_a_tendon_moves_in_the_image() -> None:
    """The flow of a segment that moves by 0.1 m at 3 m of depth is the focal length times 0.1 / 3."""
    engine = tensor_engine(1, CHAIN[:1])
    engine.tendon_segments_w = torch.tensor([[-0.5, 0.0, 0.5], [0.5, 0.0, 0.5]])
    engine.tendon_radii = 0.05
    offset = sn.CameraCfg.OffsetCfg.from_view((0.0, -3.05, 0.5), (0.0, 0.0, 0.5))
    scene = sn.Scene(engine, [camera(offset=offset, data_types=("optical_flow", "geom_ids"))])
    assert (scene["camera"].data.optical_flow == 0.0).all()  # type: ignore[attr-defined]
    engine.tendon_segments_w[..., 0] += 0.1
    scene.update()
    data: Any = scene["camera"].data
    flow = data.optical_flow[0][data.geom_ids[0, ..., 0] >= 0]
    focal = float(data.intrinsic_matrices[0, 0, 0])
    assert len(flow) > 20
    near = flow[(flow[:, 0] - flow[:, 0].max()).abs() < 0.01]
    assert near[:, 0].mean().item() == pytest.approx(focal * 0.1 / 3.0, rel=0.01) and flow[:, 1].abs().max() < 0.01


# Bad input ------------------------------------------------------------------------------------------------------------


def test_tendon_without_path_is_rejected() -> None:
    with pytest.raises(sn.ModelError, match=r"cable.*segment of a tendon.*provides=.*'tendon_paths'"):
        sn.TensorEngine(shapes=CHAIN, provides=("pose",))


def test_non_finite_path_invalidates_the_image() -> None:
    engine = tensor_engine(2, CHAIN)
    scene = sn.Scene(engine, [camera()])
    engine.tendon_segments_w[1, 0, 0, 0] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
        assert scene["camera"].valid.tolist() == [True, False]
