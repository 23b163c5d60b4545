"""Isaac Lab's cameras, `Camera` and `TiledCamera`, by the names and defaults of its page."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from camera_scenes import POSITION, SAME_CAMERA

import sensorium as sn
from sensorium.cameras.geometry import apertures_from_intrinsics
from sensorium.compat import isaaclab

from .tables import DOCUMENTS

MODEL = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <body name="crate" pos="2 0 .3"><geom name="crate" type="box" size=".3 .3 .3"/></body>
  <body name="base" pos="0 0 .5"><freejoint/><geom name="trunk" size=".1" pos="-.3 0 0"/>
    <camera name="Camera" pos=".1 0 0" xyaxes="0 -1 0 0 0 1" fovy="60"/>
    <body name="head" pos="0 0 .5"><geom name="head" size=".02" pos="-.1 0 0"/></body></body>
</worldbody></mujoco>
"""
CFGS: dict[str, type[isaaclab.CameraCfg]] = {"Camera": isaaclab.CameraCfg, "TiledCamera": isaaclab.TiledCameraCfg}
LATEST = {"Camera": "update_latest_camera_pose", "TiledCamera": "return_latest_camera_pose"}
each_camera = pytest.mark.parametrize("name", CFGS)
FORWARD = {"rot": (0.5, -0.5, 0.5, -0.5)}
"""Offset of a camera that looks along x of its parent, in the ros convention."""
CREATED: dict[str, Any] = {
    "prim_path": "{ENV_REGEX_NS}/robot/base/eye", "spawn": isaaclab.PinholeCameraCfg(), "offset": FORWARD,
}  # fmt: skip


def camera(name: str, **options: Any) -> isaaclab.CameraCfg:
    own = {"name": "eye", "width": 32, "height": 24, "data_types": ["depth"], LATEST[name]: True}
    return CFGS[name](**own | {"prim_path": "{ENV_REGEX_NS}/robot/base/Camera", "spawn": None} | options)


def sensor_of(name: str, envs: int = 2, semantics: Any = None, **options: Any) -> Any:
    engine = sn.MujocoEngine.compose({"robot": MODEL}, num_envs=envs)
    return sn.Scene(engine, [camera(name, **options)], semantics=semantics)["eye"]


# Cameras of a scene, and cameras to create ----------------------------------------------------------------------------


@each_camera
def test_a_camera_of_the_scene_is_wrapped(name: str) -> None:
    """Without `spawn` the camera of the model is used: its pose and its lens."""
    sensor = sensor_of(name)
    torch.testing.assert_close(sensor.data.pos_w, torch.tensor([[0.1, 0.0, 0.5]] * 2))
    assert float(sensor.intrinsic_matrices[0, 0, 0]) == pytest.approx(12.0 / math.tan(math.pi / 6), rel=1e-6)
    assert sensor.info.mounts == ("robot/Camera",)


@each_camera
def test_a_camera_is_created_at_a_free_leaf(name: str) -> None:
    """The rest of the path carries it: a body, an entity, or the world; the offset is relative to that frame."""
    paths = {
        "{ENV_REGEX_NS}/robot/base/eye": (0.0, 0.0, 0.5), "/World/envs/env_.*/robot/base/head/eye": (0.0, 0.0, 1.0),
        "/World/envs/env_.*/eye": (0.0, 0.0, 0.0), "/World/eye": (0.0, 0.0, 0.0),
    }  # fmt: skip
    for path, pos in paths.items():
        offset = {"pos": (0.0, 0.2, 0.1), **FORWARD}
        data = sensor_of(name, **CREATED | {"prim_path": path, "offset": offset}).data
        torch.testing.assert_close(data.pos_w, torch.tensor([pos] * 2) + torch.tensor([0.0, 0.2, 0.1]))
        torch.testing.assert_close(data.quat_w_world.abs(), torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2))
    lens = isaaclab.PinholeCameraCfg(focal_length=12.0, horizontal_aperture=24.0)
    assert float(sensor_of(name, **CREATED | {"spawn": lens}).intrinsic_matrices[0, 1, 1]) == pytest.approx(16.0)


@each_camera
def test_a_missing_camera_is_an_error(name: str) -> None:
    """A path to no camera or to a body, a pattern at the end, and a camera to create on nothing are refused."""
    for path, options in (
        ("{ENV_REGEX_NS}/robot/base/Camra", {}), ("{ENV_REGEX_NS}/robot/base", {}), ("/World/robot/base/Cam.*", {}),
        ("{ENV_REGEX_NS}/robot/tail/eye", CREATED), ("{ENV_REGEX_NS}/robot/base/eye_*", CREATED),
    ):  # fmt: skip
        with pytest.raises(
            sn.SelectionError, match=f"prim_path: got '{re.escape(path.replace('tail/eye', 'tail'))}'"
        ) as fault:
            sensor_of(name, **options | {"prim_path": path})
        assert isinstance(fault.value, RuntimeError)


@each_camera
def test_the_namespace_stands_for_all_environments(name: str) -> None:
    one, other = (sensor_of(name, prim_path=f"{space}/robot/base/Camera").data.output["depth"]
                  for space in ("{ENV_REGEX_NS}", "/World/envs/env_.*"))  # fmt: skip
    assert torch.equal(one, other) and len(one) == 2


def test_the_clipping_range_of_the_lens_is_that_of_the_images() -> None:
    """The crate at 1.7 m is outside a range that ends at 1.5 m, and behind the near end of one that begins at 1.8 m."""
    depth = {}
    for near, far in ((0.01, 1e6), (0.01, 1.5), (1.8, 9.0)):
        spawn = isaaclab.PinholeCameraCfg(clipping_range=(near, far))
        sensor = sensor_of("Camera", **CREATED | {"spawn": spawn}, targets="robot/crate")
        depth[near, far] = float(sensor.data.output["depth"][0, 14, 16, 0])
    assert depth[0.01, 1e6] == pytest.approx(1.7) and depth[0.01, 1.5] == math.inf
    assert depth[1.8, 9.0] == pytest.approx(2.3)  # its back


def test_lens_of_an_intrinsic_matrix() -> None:
    """Nine numbers give a lens whose matrix is the same, off-centre and with pixels that are not square."""
    k = [70.0, 0.0, 12.0, 0.0, 50.0, 15.0, 0.0, 0.0, 1.0]
    for focal_length in (None, 1.0):
        lens = isaaclab.PinholeCameraCfg.from_intrinsic_matrix(k, 32, 24, (0.1, 7.0), focal_length=focal_length)
        assert lens.focal_length == (24.0 if focal_length is None else 1.0) and lens.clipping_range == (0.1, 7.0)
        sensor = sensor_of("Camera", **CREATED | {"spawn": lens})
        torch.testing.assert_close(sensor.data.intrinsic_matrices[1], torch.tensor(k).view(3, 3))


def test_a_fisheye_lens_is_that_of_its_polynomial() -> None:
    """The defaults are those of the document's lens; the crate 0.4 rad off the axis is at its radius."""
    lens = isaaclab.FisheyeCameraCfg()
    values = (lens.fisheye_nominal_width, lens.fisheye_nominal_height, lens.fisheye_max_fov, lens.projection_type)
    assert values == (1936.0, 1216.0, 200.0, "fisheyePolynomial") and lens.fisheye_polynomial_b == 0.00245
    assert (lens.fisheye_optical_centre_x, lens.fisheye_optical_centre_y) == (970.94244, 600.37482)
    sensor = sensor_of("Camera", **CREATED | {"spawn": lens}, width=968, height=608, targets="robot/crate")
    edge = 0.5 * (970.94244 + math.atan(0.3 / 1.7) / 0.00245)
    row, column = 300, math.floor(edge - 0.5)  # the last pixel whose centre is on the crate
    depth = sensor.data.output["depth"][0, row, :, 0]
    assert float(depth[column]) == pytest.approx(1.7, rel=1e-5) and float(depth[column + 1]) == math.inf
    with pytest.raises(ValueError, match="projection_type"):
        isaaclab.FisheyeCameraCfg(projection_type="fisheyeSpherical")
    with pytest.raises(ValueError, match="does not fold over"):
        sensor_of("Camera", **CREATED | {"spawn": isaaclab.FisheyeCameraCfg(fisheye_polynomial_c=-1e-5)})


PATH = {"prim_path": "{ENV_REGEX_NS}/robot/base"}
RAYS: dict[str, Any] = {**PATH, "mesh_prim_paths": ["/World"]}
GRID = isaaclab.GridPatternCfg(size=(1.0, 1.0), resolution=0.5)
IMAGE: dict[str, Any] = {**RAYS, "pattern_cfg": isaaclab.PinholeCameraPatternCfg(width=4, height=3)}


def test_a_scene_builds_the_classes_of_the_document() -> None:
    """Each sensor is of its class, a ray caster's camera is a ray caster, and handles of the simulator are refused."""
    cfgs = [
        isaaclab.ImuCfg(**PATH), isaaclab.ContactSensorCfg(**PATH),
        isaaclab.FrameTransformerCfg(**PATH, target_frames=[isaaclab.FrameTransformerCfg.FrameCfg(**PATH)]),
        isaaclab.RayCasterCfg(name="RayCaster", **RAYS, pattern_cfg=GRID),
        isaaclab.MultiMeshRayCasterCfg(name="MultiMesh", **RAYS, pattern_cfg=GRID),
        isaaclab.RayCasterCameraCfg(name="eye", **IMAGE), isaaclab.MultiMeshRayCasterCameraCfg(name="many", **IMAGE),
        *(camera(name).replace(name=name) for name in CFGS),
    ]  # fmt: skip
    scene = sn.Scene(sn.MujocoEngine.compose({"robot": MODEL}, num_envs=2), cfgs)
    for cfg in cfgs:
        sensor: Any = scene[cfg]
        assert type(sensor) is getattr(isaaclab, type(cfg).__name__.removesuffix("Cfg"))
        for handle in (
            "render_product_paths", "body_physx_view", "contact_physx_view", "root_physx_view", "warp_meshes", "meshes",
        ):  # fmt: skip
            with pytest.raises(sn.UnsupportedError, match=rf"{handle}.*: read .*(data|scene)\."):
                getattr(sensor, handle)
            assert not hasattr(sensor, handle)
    assert isinstance(scene["TiledCamera"], isaaclab.Camera) and isinstance(scene["eye"], isaaclab.RayCaster)
    assert scene["eye"].UNSUPPORTED_TYPES >= isaaclab.UNSUPPORTED_TYPES | {"rgb", "skeleton_data"}  # type: ignore[attr-defined]
    assert issubclass(isaaclab.RayCasterCameraCfg, isaaclab.RayCasterCfg)
    assert issubclass(isaaclab.MultiMeshRayCasterCameraCfg, isaaclab.MultiMeshRayCasterCfg)
    for changes, fault in (
        ({"ray_cast_drift_range": {"x": (0.0, 1.0)}}, "ray_cast_drift_range: got an unknown field"),
        ({"pattern_cfg": GRID}, r"pattern.*expected a PinholeCameraPatternCfg"),
    ):  # fmt: skip
        with pytest.raises(sn.ConfigError, match=fault):
            isaaclab.RayCasterCameraCfg(**IMAGE | changes)


# Data types -----------------------------------------------------------------------------------------------------------

BYTES = {"rgb": 3, "rgba": 4}
COLORS = ("semantic_segmentation", "instance_segmentation_fast", "instance_id_segmentation_fast")


@pytest.mark.parametrize("kind", ["distance_to_camera", "distance_to_image_plane", "depth", "normals", *BYTES, *COLORS])
@each_camera
def test_each_data_type_is_computed(name: str, kind: str) -> None:
    """The crate's face is 1.6 m before the camera and faces it; the crate has one id, the floor another one."""
    semantics = {"box": "robot/crate", "ground": "robot/floor"}
    data = sensor_of(name, data_types=[kind], semantics=semantics).data
    assert list(data.output) == [kind]
    image = data.output[kind]
    channels = BYTES.get(kind, 3 if kind == "normals" else 4 if kind in COLORS else 1)
    assert image.shape == (2, 24, 32, channels)
    middle, corner, below = (image[1, row, column] for row, column in ((12, 16), (0, 0), (23, 0)))
    info = data.info if name == "TiledCamera" else data.info[1]
    if kind in COLORS:
        labels = info[kind]["idToLabels"]
        texts = [labels[str(tuple(pixel.tolist()))] for pixel in (middle, corner, below)]
        expected: Any = ["robot/crate", "BACKGROUND", "robot/floor"]
        if kind == "semantic_segmentation":
            expected = [{"class": label} for label in ("box", "BACKGROUND", "ground")]
        if kind == "instance_segmentation_fast":
            expected = ["robot/crate", "BACKGROUND", "robot/floor"]
        assert image.dtype == torch.uint8 and texts == expected
    elif kind in BYTES:
        assert image.dtype == torch.uint8
        assert int(middle.min()) > 0 and not corner.any()
    elif kind == "normals":
        torch.testing.assert_close(
            torch.stack([middle, corner, below]), torch.tensor([[-1.0, 0, 0], [0, 0, 0], [0, 0, 1]])
        )
    else:
        ray = np.array([0.5, 0.5, 12.0 * math.sqrt(3)])
        scale = np.linalg.norm(ray) / ray[2] if kind == "distance_to_camera" else 1.0
        assert float(middle) == pytest.approx(1.6 * scale, rel=1e-6) and float(corner) == math.inf
        assert info == {kind: None}


@each_camera
def test_unsupported_types_match_the_page(name: str) -> None:
    """Exactly these types are refused by name, with their fast counterparts; a built sensor lists them."""
    row = next(row for row in DOCUMENTS[0].rows if row.name == f"{name}.UNSUPPORTED_TYPES")
    words = row.says.partition(": ")[2].split(", ")
    assert {*words} == getattr(isaaclab, name).UNSUPPORTED_TYPES == sensor_of(name).UNSUPPORTED_TYPES
    for word in words:
        with pytest.raises(
            ValueError, match=rf"data_types.*without {word}, which this camera does not support"
        ) as fault:
            camera(name, data_types=["depth", word])
        assert "fast_fast" not in str(fault.value)
    with pytest.raises(ValueError, match="Use instance_segmentation_fast instead"):
        camera(name, data_types=["instance_segmentation"])
    assert CFGS[name](prim_path="/World/eye", spawn=None, width=4, height=4).data_types == ("rgb",)


@each_camera
def test_motion_vectors_point_to_the_previous_position(name: str) -> None:
    """A camera that moves 0.1 m to its right sees the crate's face, 1.6 m away, move left: positive in x."""
    engine = sn.MujocoEngine.compose({"robot": MODEL}, num_envs=2)
    scene = sn.Scene(engine, [camera(name, data_types=["motion_vectors"])])
    sensor: Any = scene["eye"]
    assert not sensor.data.output["motion_vectors"].any()
    pos = sensor.data.pos_w.clone()
    sensor.set_world_poses(pos[1:] + torch.tensor([0.0, -0.1, 0.0]), env_ids=[1])
    scene.step()
    motion = sensor.data.output["motion_vectors"]
    assert motion.shape == (2, 24, 32, 2)
    focal = 12.0 * math.sqrt(3)
    assert motion[1, 12, 16].tolist() == pytest.approx([0.1 * focal / 1.6, 0.0], abs=2e-3)
    assert motion[0, 12, 16].tolist() == pytest.approx([0.0, 0.0], abs=2e-3)


@pytest.mark.parametrize("colorize", [True, False])
@pytest.mark.parametrize("kind", ["semantic_segmentation", "instance_segmentation", "instance_id_segmentation"])
@each_camera
def test_segmentations_are_colors_or_ids(name: str, kind: str, colorize: bool) -> None:
    """By default uint8 with 4 channels, with the option off int32; every visible surface has its own value."""
    asked = kind if kind == "semantic_segmentation" else f"{kind}_fast"
    semantics = {"box": "robot/crate", "ground": "robot/floor"}
    data = sensor_of(name, data_types=[asked], semantics=semantics, **{f"colorize_{kind}": colorize}).data
    image = data.output[asked]
    assert image.dtype == (torch.uint8 if colorize else torch.int32) and image.shape[-1] == (4 if colorize else 1)
    found = {tuple(pixel) for pixel in image.reshape(-1, image.shape[-1]).unique(dim=0).tolist()}
    keys = {str(pixel if colorize else pixel[0]) for pixel in found}
    info = data.info if name == "TiledCamera" else data.info[0]
    assert len(found) == 3 and keys <= {*info[asked]["idToLabels"]}


FILTERS = {
    "text": ("class: box", {"box"}),
    "labels": ("typeA : labelA & !labelB | labelC , typeB: labelA ; typeC: labelE", {"ok1", "ok2", "ok3", "ok4"}),
    "wildcards": ("typeA : * ; * : labelA", {"ok1", "ok2", "no1", "no2", "ok3"}),
    "list": (["typeA"], {"ok1", "ok2", "no1", "no2"}),
    "absent": ("class: ghost | box; typeA: ghost; typeZ: *", {"box"}),
}


@pytest.mark.parametrize("given", FILTERS)
@each_camera
def test_semantic_filter(name: str, given: str) -> None:
    """Both examples of the page, a single term, a list of types, and labels that the scene lacks, which select nothing,
    select exactly the labelled things."""
    labels = {
        "ok1": ["typeA:labelA"], "ok2": ["typeA:labelC", "typeA:labelB"], "ok3": ["typeB:labelA"],
        "ok4": ["typeC:labelE"], "no1": ["typeA:labelA", "typeA:labelB"], "no2": ["typeA:labelF"],
        "no3": ["typeB:labelC"], "box": ["class:box"],
    }  # fmt: skip
    shapes = [
        sn.engines.Shape(
            "sphere", each, (0.3,), pos=(3.0, 1.0 * (k % 4) - 1.5, 1.0 * (k // 4) - 0.5), labels=tuple(own)
        )
        for k, (each, own) in enumerate(labels.items())
    ]
    text, expected = FILTERS[given]
    cfg = camera(
        name, **CREATED | {"prim_path": "/World/eye"}, data_types=["semantic_segmentation", "geom_ids"],
        semantic_filter=text, colorize_semantic_segmentation=False,
    )  # fmt: skip
    data = sn.Scene(sn.TensorEngine(1, shapes=shapes), [cfg])["eye"].data
    ids = data.output["geom_ids"]
    assert {*ids.unique().tolist()} == {-1, *range(8)}
    kept = {each for k, each in enumerate(labels) if int(data.output["semantic_segmentation"][ids == k].min()) > 1}
    assert kept == expected


# Pose and lens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", SAME_CAMERA)
@each_camera
def test_offset_and_pose_in_each_convention(name: str, convention: str) -> None:
    """The same camera by an offset and by `set_world_poses`; the reported orientations are of the three conventions."""
    offset = {"pos": POSITION, "rot": SAME_CAMERA[convention], "convention": convention}
    still = sensor_of(name, **CREATED | {"prim_path": "/World/eye", "offset": offset})
    moved = sensor_of(name, **CREATED)
    moved.set_world_poses(torch.tensor([POSITION] * 2), torch.tensor([SAME_CAMERA[convention]] * 2), None, convention)
    for data in (still.data, moved.data):
        torch.testing.assert_close(data.pos_w, torch.tensor([POSITION] * 2))
        for kind, field in (("world", data.quat_w_world), ("ros", data.quat_w_ros), ("opengl", data.quat_w_opengl)):
            torch.testing.assert_close(field[1], torch.tensor(SAME_CAMERA[kind]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(still.data.output["depth"], moved.data.output["depth"], rtol=1e-5, atol=1e-5)
    moved.set_world_poses(positions=torch.tensor([0.0, 0.0, 3.0]))
    torch.testing.assert_close(moved.data.quat_w_world, still.data.quat_w_world)
    moved.set_world_poses(orientations=torch.tensor([1.0, 0.0, 0.0, 0.0]), env_ids=[1], convention="world")
    assert moved.data.pos_w[:, 2].tolist() == [3.0, 3.0]
    torch.testing.assert_close(moved.data.quat_w_world[0], still.data.quat_w_world[0])


@each_camera
def test_views_are_set_per_environment(name: str) -> None:
    sensor = sensor_of(name)
    sensor.set_world_poses_from_view(torch.tensor([POSITION]), torch.zeros(1, 3), env_ids=[1])
    torch.testing.assert_close(sensor.data.quat_w_ros[1], torch.tensor(SAME_CAMERA["ros"]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sensor.data.pos_w[0], torch.tensor([0.1, 0.0, 0.5]))


@each_camera
def test_a_matrix_sets_focal_length_and_apertures(name: str) -> None:
    """The values of a USD camera follow from the matrix, also off-centre and with pixels that are not square; a skew
    tilts the columns."""
    sensor = sensor_of(name, targets="robot/floor", data_types=["depth", "distance_to_camera"])
    k = torch.tensor([[60.0, 0.0, 10.0], [0.0, 45.0, 14.0], [0.0, 0.0, 1.0]])
    sensor.set_intrinsic_matrices(k[None], focal_length=2.0, env_ids=[1])
    torch.testing.assert_close(sensor.data.intrinsic_matrices[1], k)
    values = apertures_from_intrinsics(sensor.intrinsic_matrices[1], 32, 24, focal_length=2.0)
    assert values == pytest.approx((32 * 2.0 / 60.0, 24 * 2.0 / 45.0, (10.0 - 16.0) / 60.0, (14.0 - 12.0) / 45.0))
    depth = sensor.data.output["depth"][..., 0]
    height = 0.5 / ((23.5 - 14.0) / 45.0)
    assert float(depth[1, 23, 0]) == pytest.approx(height, rel=1e-5) != pytest.approx(float(depth[0, 23, 0]), rel=1e-2)
    for skew in (0.0, 30.0):
        k[0, 1] = skew
        sensor.set_intrinsic_matrices(k)
        y = (23.5 - 14.0) / 45.0
        x = (0.5 - 10.0 - skew * y) / 60.0
        length = float(sensor.data.output["distance_to_camera"][1, 23, 0, 0])
        assert length / height == pytest.approx(math.sqrt(1.0 + x * x + y * y), rel=1e-5)


BARE: dict[str, Any] = {
    "name": "eye", "prim_path": "/World/robot/base/Camera", "spawn": None, "width": 32, "height": 24,
}  # fmt: skip


@each_camera
def test_the_pose_of_the_start_or_of_each_frame_is_reported(name: str) -> None:
    """With the option the pose is that of the frame, without it that of the last reset; by default a tiled camera
    reports the latter, and a camera the former."""
    for option in (True, False, None):
        engine = sn.MujocoEngine.compose({"robot": MODEL}, num_envs=2)
        cfg = CFGS[name](**BARE) if option is None else camera(name, **{LATEST[name]: option})
        scene = sn.Scene(engine, [cfg])
        before = scene["eye"].data.pos_w.clone()
        for _ in range(50):
            scene.step()
        moved = float((scene["eye"].data.pos_w - before).norm())
        assert (moved > 1e-3) is (name == "Camera" if option is None else option)
        scene.reset(qpos=torch.tensor([0.0, 0.0, 1.5, 1.0, 0.0, 0.0, 0.0]))
        torch.testing.assert_close(scene["eye"].data.pos_w, torch.tensor([[0.1, 0.0, 1.5]] * 2))
    for option in (True, False):  # the tiled camera's option has two names
        cfg = camera(name, **{LATEST[name]: option})
        again = CFGS[name](**BARE | {"update_latest_camera_pose": option})
        assert again.reported_pose == cfg.reported_pose
        assert again.update_latest_camera_pose is getattr(cfg, LATEST[name]) is option


@pytest.mark.parametrize(("envs", "grid"), [(1, (1, 1)), (2, (1, 2)), (5, (2, 3)), (11, (3, 4))])
def test_tiles_are_the_images_of_all_cameras_row_by_row(envs: int, grid: tuple[int, int]) -> None:
    """The number of columns is the root of the number of cameras, rounded up; free tiles are 0."""
    sensor = sensor_of("TiledCamera", envs=envs, data_types=["depth", "normals"])
    heights = torch.arange(envs) + 1.0
    eyes = torch.stack([torch.full((envs,), 4.0), torch.zeros(envs), heights], dim=1)
    sensor.set_world_poses_from_view(eyes, eyes * torch.tensor([1.0, 1.0, 0.0]))
    data = sensor.data
    rows, columns = grid
    for name, channels in (("depth", 1), ("normals", 3)):
        tiled, images = data.tiled_output[name], data.output[name]
        assert tiled.shape == (rows * 24, columns * 32, channels)
        for k in range(rows * columns):
            tile = tiled[k // columns * 24 :][:24, k % columns * 32 :][:, :32]
            assert torch.equal(tile, images[k] if k < envs else torch.zeros_like(tile))
