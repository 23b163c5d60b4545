"""Image and lens of sensors on cameras of the model: MuJoCo's values, unless the config sets them.

MuJoCo's rays through pixels come from the frustum of its renderers (`mjv_updateScene`), which needs no GL. For a camera
by `fovy`, they also come from its camera rangefinder. In images of another aspect than `resolution`, left and right of
the frustum match the aspect, as the header of `mjvGLCamera` states. With intrinsics the rangefinder measures the
principal point from the upper left corner, which contradicts MuJoCo's documentation and renderers. `camprojection`
ignores the principal point.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn

pytest.importorskip("mujoco.batch")
mujoco_warp = pytest.importorskip("mujoco_warp")

Array = NDArray[np.float64]
MODEL = """
<mujoco><worldbody>
  <geom name="ball" type="sphere" size=".5" pos="2 .2 .3"/>
  <geom name="wall" type="box" size=".1 4 4" pos="4 0 0" euler="0 10 20"/>
  <geom name="back" type="box" size=".1 30 30" pos="25 0 0"/>
  <geom name="roof" type="box" size="30 30 .1" pos="0 0 20"/>
  <geom name="left" type="box" size="30 .1 30" pos="0 25 0"/>
  <geom name="right" type="box" size="30 .1 30" pos="0 -25 0"/>
  <geom name="floor" type="box" size="30 30 .1" pos="0 0 -2"/>
  <body name="head" pos="0 0 .1" euler="5 3 -8">
    <joint axis="0 0 1"/><geom name="skull" type="sphere" size=".01"/>
    <camera name="fovy" fovy="70" resolution="20 14" xyaxes="0 -1 0 0 0 1"/>
    <camera name="lens" resolution="24 16" sensorsize=".012 .01" focalpixel="17 15" principalpixel="3 -2"
            xyaxes="0 -1 0 0 0 1"/>
    <camera name="metres" resolution="24 16" sensorsize=".012 .01" focal=".01 .009" principal=".001 .0005"
            xyaxes="0 -1 0 0 0 1"/>
    <camera name="mount" resolution="1280 720" sensorsize="3896e-6 2140e-6" focal="1.93e-3 1.93e-3"
            principal="2e-4 -1e-4" xyaxes="0 -1 0 0 0 1"/>
    <camera name="twin" pos="0 .1 0" fovy="70" resolution="20 14" xyaxes="0 -1 0 0 0 1"/>
    <camera name="sizeless" fovy="50" xyaxes="0 -1 0 0 0 1"/>
    <camera name="parallel" fovy="2" projection="orthographic" resolution="8 8" xyaxes="0 -1 0 0 0 1"/>
  </body>
</worldbody>
<sensor><rangefinder camera="fovy" data="dist"/></sensor></mujoco>
"""
ENGINES = ("mujoco", "from_mj", "mujoco_warp", "from_mjw")


def engine_of(kind: str, envs: int = 1) -> Any:
    if kind == "mujoco":
        return sn.MujocoEngine(MODEL, envs)
    if kind == "mujoco_warp":
        return sn.MujocoWarpEngine(MODEL, envs, device="cpu")
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    if kind == "from_mj":
        return sn.MujocoEngine.from_mj(model, data)
    m, d = mujoco_warp.put_model(model), mujoco_warp.put_data(model, data, nworld=envs)
    return sn.MujocoWarpEngine.from_mjw(model, m, d)


def mujocos(name: str, width: int, height: int) -> tuple[Array, Array]:
    """Return distances along the rays of MuJoCo's frustum, m, and z-depths, `[height, width]`."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    scene, view = mujoco.MjvScene(model, 10), mujoco.MjvCamera()
    view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(name).id
    every = mujoco.mjtCatBit.mjCAT_ALL
    mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, view, every, scene)
    eye = scene.camera[0]
    half = 0.5 * width / height * (eye.frustum_top - eye.frustum_bottom)
    if eye.frustum_width and (width, height) == tuple(model.cam_resolution[view.fixedcamid]):
        half = eye.frustum_width
    u, v = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    x = eye.frustum_center + half * (2.0 * u - 1.0)
    y = eye.frustum_top + (eye.frustum_bottom - eye.frustum_top) * v
    local = np.stack([x, y, np.full_like(x, -eye.frustum_near)], -1) / eye.frustum_near
    directions = (local @ data.cam_xmat[view.fixedcamid].reshape(3, 3).T).reshape(-1, 3)
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    geom, head = np.zeros(1, np.int32), model.body("head").id
    start = data.cam_xpos[view.fixedcamid]
    found = np.array([mujoco.mj_ray(model, data, start, d, None, 1, head, geom, None) for d in unit])
    assert (found > 0.0).all()
    distance = found.reshape(height, width)
    return distance, distance / np.linalg.norm(local, axis=-1)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


@pytest.mark.parametrize("engine", ENGINES)
def test_image_and_lens_match_the_models_camera(engine: str) -> None:
    both = ("distance_to_camera", "distance_to_image_plane")
    sizes = {"fovy": (20, 14), "lens": (24, 16), "metres": (24, 16)}
    cfgs = [sn.RayCasterCameraCfg(name=name, camera=name, data_types=both) for name in sizes]
    cfgs += [sn.DepthCameraCfg(name=f"depth of {name}", camera=name, max_distance=50.0) for name in sizes]
    cfgs += [sn.RayCasterCameraCfg(name="by path", prim_path="{ENV_REGEX_NS}/Robot/head/lens", data_types=both)]
    scene = sn.Scene(engine_of(engine), cfgs)
    scene.update(ticks=0)
    for name, (width, height) in sizes.items():
        distance, depth = mujocos(name, width, height)
        sensor = scene[name]
        assert sensor.image_shape == (height, width)
        np.testing.assert_allclose(numpy(sensor.data.distance_to_camera)[0, ..., 0], distance, atol=2e-5, rtol=1e-5)
        np.testing.assert_allclose(numpy(sensor.data.distance_to_image_plane)[0, ..., 0], depth, atol=2e-5, rtol=1e-5)
        np.testing.assert_allclose(numpy(scene[f"depth of {name}"].read_image())[0], depth, atol=2e-5, rtol=1e-5)
    by_path = scene["by path"].data.distance_to_camera
    np.testing.assert_array_equal(numpy(by_path), numpy(scene["lens"].data.distance_to_camera))


@pytest.mark.parametrize(("width", "height"), [(32, 32), (64, 16)])
@pytest.mark.parametrize("name", ["fovy", "lens", "metres", "mount"])
def test_an_image_of_another_aspect_has_the_rays_of_the_frustum(name: str, width: int, height: int) -> None:
    """All 1024 depths are within 1 mm; in "mount", sensor and resolution also differ in aspect."""
    size = sn.patterns.PinholeCameraPatternCfg(width=width, height=height)
    scene = sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eye", camera=name, pattern=size)])
    depth = numpy(scene["eye"].data.distance_to_image_plane)[0, ..., 0]
    assert (abs(depth - mujocos(name, width, height)[1]) < 1e-3).all()


def test_a_camera_by_fovy_has_the_rays_of_mujocos_camera_rangefinder() -> None:
    engine = sn.MujocoEngine(MODEL)
    scene = sn.Scene(engine, [sn.RayCasterCameraCfg(name="eye", camera="fovy", data_types=("distance_to_camera",))])
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    image = numpy(scene["eye"].data.distance_to_camera)[0, ..., 0]
    np.testing.assert_allclose(image, data.sensordata.reshape(image.shape), atol=2e-5, rtol=1e-5)


def k_of(cfg: Any, kind: str = "mujoco") -> Array:
    scene = sn.Scene(engine_of(kind), [cfg])
    np.testing.assert_array_equal(numpy(scene[cfg].data.intrinsic_matrices), numpy(scene[cfg].intrinsic_matrices))
    return numpy(scene[cfg].intrinsic_matrices)[0]


def test_config_overrides_the_model_field_by_field() -> None:
    """The camera "lens" has focal lengths 17 and 15 px and centre (12 - 3, 8 + 2) px of 24 x 16."""
    pinhole = sn.patterns.PinholeCameraPatternCfg
    lens = [[17.0, 0.0, 9.0], [0.0, 15.0, 10.0], [0.0, 0.0, 1.0]]
    for options, expected in (
        ({}, lens),
        ({"pattern": pinhole(width=24, height=16)}, lens),
        # half the size: half of all pixels
        ({"pattern": pinhole(width=12, height=8)}, [[8.5, 0.0, 4.5], [0.0, 7.5, 5.0], [0.0, 0.0, 1.0]]),
        # another aspect: the vertical field of view, and square pixels
        (
            {"pattern": pinhole(width=16, height=16)},
            [[15.0, 0.0, 8.0 - 15.0 * 3.0 / 17.0], [0.0, 15.0, 10.0], [0.0, 0.0, 1.0]],
        ),
        (
            {"pattern": pinhole(width=24, height=16, focal_length=20.0, horizontal_aperture=24.0)},
            [[20.0, 0.0, 9.0], [0.0, 20.0, 10.0], [0.0, 0.0, 1.0]],
        ),
        (
            {"pattern": pinhole(width=24, height=16, horizontal_aperture_offset=0.0)},
            [[17.0, 0.0, 12.0], [0.0, 15.0, 10.0], [0.0, 0.0, 1.0]],
        ),
        (
            {"pattern": pinhole.from_intrinsic_matrix([30.0, 0, 11, 0, 31, 7, 0, 0, 1], 24, 16)},
            [[30.0, 0.0, 11.0], [0.0, 31.0, 7.0], [0.0, 0.0, 1.0]],
        ),
    ):  # fmt: skip
        k = k_of(sn.RayCasterCameraCfg(name="eye", camera="lens", **options))
        np.testing.assert_allclose(k, expected, rtol=1e-6, err_msg=str(options))
    for options, expected in (
        ({}, lens),
        ({"res": (12, 8)}, [[8.5, 0.0, 4.5], [0.0, 7.5, 5.0], [0.0, 0.0, 1.0]]),
        ({"fx": 40.0}, [[40.0, 0.0, 9.0], [0.0, 40.0, 10.0], [0.0, 0.0, 1.0]]),
        ({"cx": 12.5}, [[17.0, 0.0, 12.5], [0.0, 15.0, 10.0], [0.0, 0.0, 1.0]]),
        ({"fov_horizontal": 90.0, "cy": 8.0}, [[12.0, 0.0, 9.0], [0.0, 12.0, 8.0], [0.0, 0.0, 1.0]]),
        ({"pattern": pinhole(width=12, height=8)}, [[8.5, 0.0, 4.5], [0.0, 7.5, 5.0], [0.0, 0.0, 1.0]]),
    ):  # fmt: skip
        k = k_of(sn.DepthCameraCfg(name="eye", camera="lens", **options))
        np.testing.assert_allclose(k, expected, rtol=1e-6, err_msg=str(options))


def test_camera_without_resolution_uses_that_of_the_config() -> None:
    focal = 24.0 / np.tan(np.radians(25.0))
    image = sn.patterns.PinholeCameraPatternCfg(width=64, height=48)
    k = k_of(sn.RayCasterCameraCfg(name="eye", camera="sizeless", pattern=image))
    np.testing.assert_allclose(k, [[focal, 0.0, 32.0], [0.0, focal, 24.0], [0.0, 0.0, 1.0]], rtol=1e-6)
    k = k_of(sn.DepthCameraCfg(name="eye", camera="sizeless"))  # 128 x 96, the default
    np.testing.assert_allclose(k[0], [2.0 * focal, 0.0, 64.0], rtol=1e-6)
    with pytest.raises(sn.ConfigError, match=r"pattern: got nothing, .*'sizeless'.*resolution=..."):
        sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eye", camera="sizeless")])


def test_missing_lens_raises() -> None:
    with pytest.raises(sn.ConfigError, match=r"pattern: .*a camera of the model"):
        sn.RayCasterCameraCfg(name="eye", body="head")
    with pytest.raises(sn.ConfigError, match=r"pattern: got nothing, .*a PinholeCameraPatternCfg"):
        sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eye", prim_path="/World/head")])


def test_parallel_rays_are_refused_by_name() -> None:
    with pytest.raises(
        sn.ConfigError, match="camera: got camera 'parallel', which is orthographic, expected a perspective camera"
    ):
        sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eye", camera="parallel")])
    image = sn.patterns.PinholeCameraPatternCfg(width=8, height=8, fovy=90.0)
    k = k_of(sn.RayCasterCameraCfg(name="eye", camera="parallel", pattern=image))
    np.testing.assert_allclose(k, [[4.0, 0.0, 4.0], [0.0, 4.0, 4.0], [0.0, 0.0, 1.0]], rtol=1e-6)


def test_cameras_of_one_sensor_share_image_and_lens() -> None:
    scene = sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eyes", cameras=("fovy", "twin"))])
    assert scene["eyes"].data.distance_to_image_plane.shape == (1, 2, 14, 20, 1)
    for cameras, what in ((("fovy", "lens"), "image"), (("lens", "metres"), "lens")):
        with pytest.raises(sn.ConfigError, match=f"cameras: got '{cameras[0]}' and '{cameras[1]}', whose {what} diff"):
            sn.Scene(sn.MujocoEngine(MODEL), [sn.RayCasterCameraCfg(name="eyes", cameras=cameras)])
    same = sn.patterns.PinholeCameraPatternCfg.from_fov(8, 6, fov_horizontal=60.0)
    offsets = {"horizontal_aperture_offset": 0.0, "vertical_aperture_offset": 0.0}
    scene = sn.Scene(
        sn.MujocoEngine(MODEL),
        [sn.RayCasterCameraCfg(name="eyes", cameras=("fovy", "lens"), pattern=same.replace(**offsets))],
    )
    assert scene["eyes"].image_shape == (6, 8)


@pytest.mark.parametrize("engine", ["mujoco", "mujoco_warp"])
def test_each_environment_has_its_own_lens(engine: str) -> None:
    """The lens follows `cam_fovy` and `cam_intrinsic` as domain randomisation sets them before the scene is built."""
    made = engine_of(engine, 3)
    fovy = np.array([40.0, 60.0, 90.0], np.float32)
    focal = np.array([0.008, 0.01, 0.02], np.float32)
    if engine == "mujoco":
        made.batch.expand("cam_fovy")[:, 0] = fovy
        made.batch.expand("cam_intrinsic")[:, 1, 0] = focal
    else:
        import warp as wp

        cams = np.repeat(made.model.cam_fovy[None].astype(np.float32), 3, axis=0)
        cams[:, 0] = fovy
        made.m.cam_fovy = wp.array(cams, dtype=float)
        values = np.repeat(made.model.cam_intrinsic[None], 3, axis=0)
        values[:, 1, 0] = focal
        made.m.cam_intrinsic = wp.array(values, dtype=wp.vec4)
    cfgs = [sn.RayCasterCameraCfg(name=name, camera=name) for name in ("fovy", "lens")]
    scene = sn.Scene(made, cfgs)
    expected = 7.0 / np.tan(np.radians(0.5 * fovy))
    np.testing.assert_allclose(numpy(scene["fovy"].intrinsic_matrices)[:, 0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(numpy(scene["lens"].intrinsic_matrices)[:, 0, 0], focal * 24 / 0.012, rtol=1e-6)
    depth = numpy(scene["fovy"].data.distance_to_image_plane)
    assert not np.allclose(depth[0], depth[1]) and not np.allclose(depth[1], depth[2])


def test_depth_error_stage_must_use_the_cameras_lens() -> None:
    stage = sn.stages.StereoDepth(focal_px=14.0, baseline=0.05)
    with pytest.raises(sn.ConfigError, match="the focal length of the camera"):
        sn.Scene(sn.MujocoEngine(MODEL), [sn.DepthCameraCfg(name="eye", camera="fovy", stages=(stage,))])
    right = sn.stages.StereoDepth(focal_px=float(7.0 / np.tan(np.radians(35.0))), baseline=0.05)
    sn.Scene(sn.MujocoEngine(MODEL), [sn.DepthCameraCfg(name="eye", camera="fovy", stages=(right,))])


def test_config_without_lens_round_trips_through_files() -> None:
    cfg = sn.RayCasterCameraCfg(
        name="eye", camera="lens", pattern=sn.patterns.PinholeCameraPatternCfg(width=12, height=8)
    )
    again = sn.RayCasterCameraCfg.from_json(cfg.to_json())
    np.testing.assert_array_equal(k_of(again), k_of(cfg))
    bare = sn.RayCasterCameraCfg(name="eye", camera="lens")
    assert sn.RayCasterCameraCfg.from_json(bare.to_json()) == bare
