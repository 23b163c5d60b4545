"""Images from equal poses have the same bits on every engine.

Poses are exact in float32, so that every engine has the same: free bodies whose positions are multiples of 1/8 and
whose quaternions are exactly of unit length.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sensorium as sn

MODEL = """
<mujoco><option gravity="0 0 0"><flag contact="disable"/></option>
  <asset><mesh name="wedge" vertex="-.25 -.25 0 .5 -.25 0 0 .5 0 0 0 .5"/>
    <hfield name="rubble" nrow="6" ncol="5" size="1 1 .25 .125"/></asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="8 8 1"/>
    <geom name="wall" type="box" size=".125 2 1" pos="3 0 1"/>
    <geom name="rubble" type="hfield" hfield="rubble" pos="1.5 -1 .125"/>
    <geom name="rock" type="mesh" mesh="wedge" pos="1 1.25 .25"/>
    <body name="eye"><freejoint/><geom name="eye" size=".0625" pos="-.5 0 0" mass="1"/></body>
    <body name="a"><freejoint/><geom name="capsule" type="capsule" size=".125 .25" mass="1"/>
      <geom name="tip" type="ellipsoid" size=".25 .125 .125" pos=".25 0 .5" mass="1"/></body>
    <body name="b"><freejoint/><geom name="cylinder" type="cylinder" size=".25 .25" mass="1"/></body>
    <body name="c"><freejoint/><geom name="wedge" type="mesh" mesh="wedge" mass="1"/></body>
  </worldbody></mujoco>
"""
TYPES = ("depth", "distance_to_camera", "normals", "points_b", "geom_ids", "face_ids", "motion_vectors", "segmentation")
POSES = torch.tensor(
    [
        [[-1.0, 0.125, 1.0, 1, 0, 0, 0], [1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [1.5, -0.5, 1, 1, 0, 0, 0],
         [0.5, -0.75, 0.5, 0.5, -0.5, 0.5, 0.5]],
        [[-0.875, 0, 0.875, 1, 0, 0, 0], [1.125, 0.5, 0.625, 0.5, 0.5, -0.5, 0.5], [1.5, -0.25, 1, 0.5, 0.5, 0.5, 0.5],
         [0.5, -0.75, 0.75, 0, 1, 0, 0]],
    ]
)  # fmt: skip
"""Poses of the bodies in two frames: position, m, and quaternion wxyz."""


def camera(lens: Any) -> sn.CameraCfg:
    return sn.CameraCfg(
        name="camera", body="eye", width=56, height=40, lens=lens, data_types=TYPES, offset={"convention": "world"}
    )


def frames(engine: Any, cfg: Any, write: Any) -> list[dict[str, torch.Tensor]]:
    """Return the images of both frames in the last environment; `write` puts the poses of all environments."""
    scene, found = sn.Scene(engine, [cfg], discover=False), []
    for poses in POSES:
        each = torch.stack([poses.roll(1, dims=0), poses])
        write(engine, each)
        if isinstance(engine, sn.TensorEngine):
            scene.update()
        else:
            engine.qvel[:] = 0.0
            engine.forward()
            scene.step()
        output = scene["camera"].data.output  # type: ignore[attr-defined]
        found.append({name: image[-1].clone() for name, image in output.items()})
    return found


def into_qpos(engine: Any, poses: torch.Tensor) -> None:
    engine.qpos[:] = poses.flatten(1).to(engine.qpos.dtype)


def into_tensors(engine: Any, poses: torch.Tensor) -> None:
    engine.body_pos_w, engine.body_quat_w = poses[..., :3], poses[..., 3:]


@pytest.mark.parametrize(
    "lens", [sn.lenses.PinholeLensCfg(fovy=60.0), sn.lenses.EquirectangularLensCfg()], ids=["pinhole", "panorama"]
)
def test_images_have_the_same_bits_on_every_engine(lens: Any) -> None:
    """Depth, normals, points, ids and motion of two frames, on MuJoCo, MuJoCo Warp on the CPU and a TensorEngine."""
    pytest.importorskip("mujoco_warp")
    cfg, first = camera(lens), sn.MujocoEngine(MODEL, 2)
    expected = frames(first, cfg, into_qpos)
    assert len(expected[0]["geom_ids"].unique()) > 6 and (expected[1]["motion_vectors"] != 0.0).any()
    tensors = sn.TensorEngine(2, bodies=first.names("body"), shapes=first.shapes(), provides=("pose",))
    for other in (
        frames(sn.MujocoWarpEngine(MODEL, 2, device="cpu"), cfg, into_qpos),
        frames(tensors, cfg, into_tensors),
    ):
        for mine, theirs in zip(expected, other, strict=True):
            for name in TYPES:
                assert torch.equal(mine[name].view(torch.int32), theirs[name].view(torch.int32)), name
