"""Images on Newton: the bits of other engines from equal poses, and the sites of the model."""

from __future__ import annotations

from typing import Any

import newton
import quadruped
import torch

import sensorium as sn

TYPES = ("depth", "normals", "geom_ids", "face_ids", "motion_vectors", "segmentation")
CAMERA = sn.CameraCfg(
    name="camera", body="world", width=56, height=40, lens=sn.lenses.PinholeLensCfg(fovy=50.0), data_types=TYPES,
    offset=sn.CameraCfg.OffsetCfg.from_view((0.9, -0.8, 0.8), (0.0, 0.0, 0.3)),
)  # fmt: skip


def test_images_have_the_same_bits_from_equal_poses() -> None:
    """Three frames of falling quadrupeds, and a TensorEngine with the same shapes and poses."""
    engine = quadruped.engine_of(4)
    scene = sn.Scene(engine, [CAMERA], discover=False)
    scene.reset(**quadruped.start(4))
    names = engine.names("body")
    tensors = sn.TensorEngine(4, quadruped.DT, bodies=names, shapes=engine.shapes(), provides=("pose",))
    other = sn.Scene(tensors, [CAMERA], discover=False)
    mine: Any
    theirs: Any
    for steps in (0, 1, 1):
        if steps:
            scene.step(torch.zeros(8), steps)
        mine = scene["camera"].data.output  # type: ignore[attr-defined]
        tensors.body_pos_w, tensors.body_quat_w = engine.array("body_pos_w"), engine.array("body_quat_w")
        if steps:
            other.update()
        else:
            other.reset()
        theirs = other["camera"].data.output  # type: ignore[attr-defined]
        for name in TYPES:
            assert torch.equal(mine[name].view(torch.int32), theirs[name].view(torch.int32)), name
    assert len(mine["geom_ids"].unique()) > 6 and (mine["motion_vectors"] != 0.0).any()


def test_sites_are_visible_by_option() -> None:
    builder = newton.ModelBuilder()
    model_file = quadruped.ROBOT.replace('<site name="imu"', '<site name="imu" size=".08"')
    builder.add_mjcf(model_file, force_show_colliders=True)
    model = builder.finalize(device="cpu")
    engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)
    cfg = CAMERA.replace(show_sites=True, geometry="all", exclude="floor|trunk")
    sensor: Any = sn.Scene(engine, [cfg], discover=False)["camera"]
    seen = {sensor.geom_names[i] for i in sensor.data.geom_ids.unique().tolist() if i >= 0}
    assert "imu" in seen
    found = sensor.data.segmentation[sensor.data.geom_ids[..., 0] >= len(engine.shapes())]
    assert len(found) and (found[:, 1] == 6).all()
