"""The guarantees for camera-style sensors in the guide on custom sensors, in this library's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.compat import genesis
from sensorium.compat.genesis import BaseCameraOptions, BaseCameraSensor
from sensorium.geometry.transforms import rotation
from sensorium.testing import check_sensor, tumbling_engine

IMAGE = ("height", "width", "channel")
COSTLY_KNOBS = ("noise", "bias", "random_walk", "resolution")


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are forgotten after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())


@dataclass(frozen=True, slots=True)
class CeilingData:
    depth: Annotated[Tensor, sn.Field("m", (1, 1, 1), axes=IMAGE, role="image")]
    row: Annotated[Tensor, sn.Field("1", (1, 1, 1), axes=IMAGE, dtype="int32", kind="id", role="image")]
    mean: Annotated[Tensor, sn.Field("m", kind="derived")]


@dataclass(frozen=True, slots=True)
class MyData:
    grey: Annotated[Tensor, sn.Field("1", (1, 1, 1), axes=IMAGE, dtype="uint8", role="image")]


def camera(base: type[Any] = sn.RenderedSensorCfg) -> tuple[type[Any], type[Any]]:
    """Return the config and the class of a camera that renders the depth of a ceiling by arithmetic."""

    class CeilingCfg(base[CeilingData]):  # type: ignore[misc]
        pass

    class Ceiling(sn.RenderedSensor[CeilingCfg, CeilingData]):
        def setup(self) -> None:
            self.seen: list[Tensor] = []
            self.renders = 0

        def apply_camera_transform(self, transform: Tensor) -> None:
            self.seen.append(transform)

        def render_current_state(self) -> None:
            self.renders += 1
            height = self.seen[-1][..., 2, 3]
            self.output.depth.copy_((2.0 - height)[..., None, None, None].expand_as(self.output.depth))
            rows = torch.arange(self.image_shape[0], dtype=torch.int32, device=self.device)
            self.output.row.copy_(rows[:, None, None].expand_as(self.output.row))
            self.output.mean.copy_(2.0 - height)

    return CeilingCfg, Ceiling


def built(num_envs: int = 3, base: type[Any] = sn.RenderedSensorCfg, **fields: Any) -> tuple[sn.Scene, Any]:
    """Return a scene with one such camera, and the camera."""
    cfg = camera(base)[0](**{"name": "cam", "body": "body", "width": 5, "height": 4, **fields})
    scene = sn.Scene(tumbling_engine(num_envs), [cfg])
    sensor = scene["cam"]
    sensor.seen.clear()
    sensor.renders = 0  # those of the trial
    return scene, sensor


def links(scene: sn.Scene) -> np.ndarray[Any, Any]:
    """Return the pose of the body, `[env, 4, 4]`."""
    pose = np.zeros((scene.num_envs, 4, 4))
    pose[:, :3, 3], pose[:, 3, 3] = scene.engine.array("body_pos_w")[:, 0], 1.0
    for env, quat in enumerate(scene.engine.array("body_quat_w")[:, 0].double()):
        pose[env, :3, :3] = rotation(quat.numpy())
    return pose


def test_an_image_is_rendered_at_the_first_read_of_a_step_and_shared() -> None:
    scene, cam = built()
    for step in range(3):
        scene.step()
        assert cam.renders == step
        first = cam.data.depth
        assert cam.renders == step + 1
        assert cam.data.depth is first
        cam.read()
        cam.read([1])
        assert cam.ground_truth.depth.equal(first)
        assert cam.renders == len(cam.seen) == step + 1
        height = scene.engine.array("body_pos_w")[:, 0, 2]
        torch.testing.assert_close(first, (2.0 - height)[:, None, None, None].expand(3, 4, 5, 1))
    for _ in range(4):
        scene.step()  # without a read
    assert cam.renders == 3


def test_the_hook_gets_the_pose_of_a_camera_that_looks_at_a_point_of_its_link() -> None:
    """The camera follows the link; right, up and backward are computed from the points by cross products."""
    pos, lookat, up = np.array([0.3, -0.1, 0.2]), np.array([1.0, 0.4, -0.3]), np.array([0.1, 0.2, 1.0])
    scene, cam = built(base=BaseCameraOptions, pos=pos.tolist(), lookat=lookat.tolist(), up=up.tolist())
    for _ in range(3):
        scene.step(substeps=7)
        cam.data  # noqa: B018  (renders)
        for link, got in zip(links(scene), cam.seen[-1][:, 0].double().numpy(), strict=True):
            back = link[:3, :3] @ (pos - lookat)
            right = np.cross(link[:3, :3] @ up, back)
            axes = [right, np.cross(back, right), back]
            want = np.stack([axis / np.linalg.norm(axis) for axis in axes], axis=-1)
            np.testing.assert_allclose(got[:3, :3], want, atol=2e-6)
            np.testing.assert_allclose(got[:3, 3], link[:3, :3] @ pos + link[:3, 3], atol=2e-6)
            assert got[3].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert cam.seen[-1].shape == (3, 1, 4, 4)
    assert cam.seen[-1].dtype == torch.float32


def test_an_explicit_matrix_replaces_the_view() -> None:
    quat = np.array([0.5, -0.1, 0.7, 0.3])
    offset = np.eye(4)
    offset[:3, :3], offset[:3, 3] = rotation(quat / np.linalg.norm(quat)), (0.1, 0.2, -0.3)
    scene, cam = built(base=BaseCameraOptions, offset_T=offset, pos=(9.0, 9.0, 9.0))
    scene.step(substeps=11)
    cam.data  # noqa: B018  (renders)
    np.testing.assert_allclose(cam.seen[-1][:, 0].numpy(), links(scene) @ offset, atol=2e-6)


@pytest.mark.parametrize("name", ["Rasterizer", "Raytracer", "BatchRenderer"])
def test_color_cameras_image_the_scene(name: str) -> None:
    """One renderer behind three names: uint8 `[env, height, width, 3]`, whose middle shows a red ball on black."""
    options = getattr(genesis, f"{name}CameraOptions")
    ball = sn.engines.Shape("sphere", "ball", (0.5,), rgba=(1.0, 0.0, 0.0, 1.0))
    engine = sn.TensorEngine(2, bodies=("link",), provides=("pose",), shapes=[ball])
    cfg = options(name="eye", body="link", pos=(3.0, 0.0, 0.0), lookat=(0.0, 0.0, 0.0), res=(9, 5))
    scene = sn.Scene(engine, [cfg])
    image = scene["eye"].read().rgb
    assert isinstance(scene["eye"], getattr(genesis, f"{name}CameraSensor"))
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (2, 5, 9, 3))
    assert int(image[1, 2, 4, 0]) > 100 and int(image[1, 2, 4, 1]) < 80 and not image[:, 0, 0].any()


def test_the_offset_of_a_rendered_sensor_has_the_axes_of_its_convention() -> None:
    """The given axes are right, down, forward; those of the transform are right, up, backward."""
    scene, cam = built(offset={"convention": "ros"})
    scene.step(substeps=11)
    cam.data  # noqa: B018  (renders)
    np.testing.assert_allclose(cam.seen[-1][:, 0].numpy(), links(scene) * [1, -1, -1, 1], atol=2e-6)


def test_the_published_pose_of_a_camera_looks_forward() -> None:
    cam = built(offset=sn.CameraCfg.OffsetCfg.from_view((0.0, 0.0, 0.0), (0.0, 3.0, 0.0)))[1]
    assert cam.pose_offset is not None
    forward = rotation(cam.pose_offset[1][0, 0].double().numpy()) @ (1.0, 0.0, 0.0)
    np.testing.assert_allclose(forward, (0.0, 1.0, 0.0), atol=1e-6)


def test_a_camera_allocates_its_images_only() -> None:
    """Each further pixel costs its own bytes: a float and an int. With a delay, there are further frames."""
    small, large = (built(width=8, height=height)[1] for height in (8, 72))
    assert not large.uses_ring_pipeline
    assert large.buffers.ring is None
    assert not dict(large.buffers.truth.items())
    pixels = 3 * 8 * 64
    assert large.info.nbytes - small.info.nbytes == pixels * 8
    small, large = (built(width=8, height=height, delay=0.01)[1] for height in (8, 72))
    assert large.info.nbytes - small.info.nbytes > 3 * pixels * 8


def test_other_outputs_have_the_size_and_dtype_of_their_fields() -> None:
    scene, cam = built(width=6, height=4)
    scene.step()
    data = cam.data
    assert (data.depth.shape, data.depth.dtype) == ((3, 4, 6, 1), torch.float32)
    assert (data.row.shape, data.row.dtype) == ((3, 4, 6, 1), torch.int32)
    assert data.mean.shape == (3,)
    assert data.row[2, :, 5, 0].tolist() == [0, 1, 2, 3]


def test_the_size_of_the_options_is_that_of_the_image() -> None:
    options, _ = camera(BaseCameraOptions)
    size = options(body="body", res=(7, 3))
    assert (size.width, size.height) == (7, 3)
    scene = sn.Scene(tumbling_engine(2), [size])
    scene.step()
    assert scene[size].data.depth.shape == (2, 3, 7, 1)
    assert (options(body="body").width, options(body="body").height) == (512, 512)
    for fields in ({"res": (4, 3), "width": 5, "height": 4}, {"res": (4,)}, {"res": (0, 4)}, {"res": 3}):
        with pytest.raises(sn.ConfigError, match=r"res|width"):
            options(body="body", **fields)


@pytest.mark.parametrize("knob", ["delay", "jitter", "history_length"])
def test_a_camera_refuses_delay_jitter_and_history(knob: str) -> None:
    rendered = (genesis.RasterizerCameraOptions, genesis.RaytracerCameraOptions, genesis.BatchRendererCameraOptions)
    for options in (camera(BaseCameraOptions)[0], *rendered):
        with pytest.raises(sn.ConfigError, match=rf"{knob}: got 1, expected no value"):
            options(body="body", **{knob: 1})
    assert not built(base=BaseCameraOptions, **{knob: 0})[1].uses_ring_pipeline


@pytest.mark.parametrize("lookback", [0, 1])
def test_noise_of_a_camera_is_in_its_own_hooks_and_not_in_knobs(lookback: int) -> None:
    """`post_process` darkens the measured image; without earlier images, frames are still rendered on read only."""

    class DarkOptions(BaseCameraOptions[MyData]):
        pass

    class Dark(BaseCameraSensor[DarkOptions, MyData]):
        def setup(self) -> None:
            self.renders = 0

        def intermediate_fields(self) -> dict[str, sn.Field]:
            return {"level": sn.Field("1", (*self.image_shape, 1), axes=IMAGE)}

        def render_current_state(self) -> None:
            self.renders += 1
            self.output.level.copy_(self.mount.pos_w[:, :, 2, None, None, None].expand_as(self.output.level))

        def post_process(self, data: sn.Record, timeline: sn.Timeline, *, is_measured: bool) -> Tensor:
            grey = 100.0 + 50.0 * data.level - (20.0 if is_measured else 0.0)
            if self.lookback:
                return (0.5 * grey + 0.5 * timeline.at(0).grey).to(torch.uint8)
            with pytest.raises(IndexError, match="lookback = 1"):
                timeline.at(0)
            return grey.to(torch.uint8)

    Dark.lookback = lookback
    scene = sn.Scene(tumbling_engine(2), [options := DarkOptions(body="body", res=(4, 3))])
    eye: Any = scene[options]
    assert (eye.uses_ring_pipeline, eye.is_lazy) == (lookback > 0, lookback == 0)
    eye.renders, last = 0, {True: 0, False: 0}
    for step in range(4):
        height = scene.engine.array("body_pos_w")[:, 0, 2]
        for branch, grey in ((True, 80.0 + 50.0 * height), (False, 100.0 + 50.0 * height)):
            last[branch] = (0.5 * grey + 0.5 * last[branch] if lookback else grey).to(torch.uint8)
            if lookback == 0 and step == 2:
                continue  # unread
            shown = (eye.data if branch else eye.ground_truth).grey
            assert shown.shape == (2, 3, 4, 1) and shown.dtype == torch.uint8
            assert shown[:, 1, 2, 0].tolist() == last[branch].tolist()
        scene.step()
    assert eye.renders == (4 if lookback else 3)
    if lookback == 0:
        check_sensor(options)
        for knob in COSTLY_KNOBS:
            for each in (DarkOptions, genesis.RasterizerCameraOptions):
                with pytest.raises(sn.ConfigError, match=rf"{knob}: got 0.1, expected no value"):
                    each(body="body", **{knob: 0.1})


def test_a_rendered_sensor_with_a_delay_is_rendered_when_due_and_shows_the_older_frame() -> None:
    scene, cam = built(delay=0.006, history_length=2)  # three ticks
    heights = [scene.engine.array("body_pos_w")[:, 0, 2].clone()]
    for step in range(8):
        scene.step()
        heights.append(scene.engine.array("body_pos_w")[:, 0, 2].clone())
        assert cam.renders >= step + 1
    torch.testing.assert_close(cam.data.mean, 2.0 - heights[-4], rtol=0.0, atol=1e-6)
    torch.testing.assert_close(cam.ground_truth.mean, 2.0 - heights[-1], rtol=0.0, atol=1e-6)
    torch.testing.assert_close(cam.history.mean[:, 1], 2.0 - heights[-2], rtol=0.0, atol=1e-6)


def test_noise_of_a_rendered_sensor_changes_its_measured_image() -> None:
    scene, cam = built(noise={"depth": 0.05})
    scene.step()
    error = cam.data.depth - cam.ground_truth.depth
    assert 0.02 < float(error.std()) < 0.1
    assert cam.data.row.equal(cam.ground_truth.row)


def test_camera_example_of_the_guide() -> None:
    """Two hooks are a camera, in the names of the guide; it passes all rules."""

    class MyCameraOptions(BaseCameraOptions[MyData]):
        pass

    class MyCameraSensor(BaseCameraSensor[MyCameraOptions, MyData]):
        def apply_camera_transform(self, transform: Tensor) -> None:
            self.eye = transform[..., :3, 3].clone()

        def render_current_state(self) -> None:
            grey = (255.0 * self.eye[..., 2].clamp(0.0, 1.0)).to(torch.uint8)
            self.output.grey.copy_(grey[..., None, None, None].expand_as(self.output.grey))

    options = MyCameraOptions(body="body", res=(4, 3), pos=(0.0, 0.0, 0.0), lookat=(1.0, 0.0, 0.0))
    assert not MyCameraSensor.uses_ring_pipeline
    assert "shapes_and_dtypes" in check_sensor(options)
    engine = sn.TensorEngine(2, bodies=("body",))
    engine.body_pos_w[:, 0, 2] = torch.tensor([0.2, 0.6])
    grey = sn.Scene(engine, [options])[options.label].data.grey
    assert grey.shape == (2, 3, 4, 1) and grey[:, 0, 0, 0].tolist() == [51, 153] == grey[:, 2, 3, 0].tolist()


def test_a_camera_without_a_render_hook_fails_when_it_is_built() -> None:
    class EmptyCfg(sn.RenderedSensorCfg[CeilingData]):
        pass

    class Empty(sn.RenderedSensor[EmptyCfg, CeilingData]):
        pass

    with pytest.raises(sn.RegistrationError, match=r"must define render_current_state\(self\)"):
        sn.Scene(tumbling_engine(1), [EmptyCfg(body="body", width=4, height=3)])
