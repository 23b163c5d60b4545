"""The launches that follow elements, on fields as stored by MuJoCo (float64) and mujoco_warp (float32)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from sensorium.compute import Compute
from sensorium.engines.base import FrameOnBody
from sensorium.engines.offsets import LiveOffsets

ENVS, ROWS = 3, 5
ROW = {("site", "a"): 3, ("site", "b"): 0, ("camera", "eye"): 1, ("joint", "hinge"): 4}
BODY = FrameOnBody(0, (0.25, 0.5, -0.5), (0.6, 0.0, 0.8, 0.0))
FRAMES = [FrameOnBody(0, element=("site", "a")), BODY, FrameOnBody(-1, element=("camera", "eye")),
          FrameOnBody(1, element=("joint", "hinge")), FrameOnBody(1, element=("site", "b"))]  # fmt: skip
INNER = [((0.1 * k, -0.2, 0.3), (1.0, 0.0, 0.2 * k, 0.4)) for k in range(len(FRAMES))]
"""Additional offsets, with quaternions that are not normalised."""
FIELDS = ("site_pos", "site_quat", "cam_pos", "cam_quat", "jnt_pos")


def fields(seed: int, envs: int) -> dict[str, NDArray[np.float64]]:
    """Return random poses `[env, row, 3 or 4]`."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(envs, ROWS, 4 if "quat" in name else 3)) for name in FIELDS}


def expected(values: dict[str, NDArray[np.float64]], env: int, k: int) -> tuple[NDArray[Any], Rotation]:
    """Return the pose of a mount, by SciPy."""
    frame, (inner_pos, inner_quat) = FRAMES[k], INNER[k]
    pos, quat = np.array(frame.pos), np.array(frame.quat)
    if frame.element is not None:
        word = {"site": "site", "camera": "cam", "joint": "jnt"}[frame.element[0]]
        row = ROW[frame.element]
        pos = values[f"{word}_pos"][env % len(values[f"{word}_pos"]), row]
        if word != "jnt":
            quat = values[f"{word}_quat"][env % len(values[f"{word}_quat"]), row]
    turn = Rotation.from_quat(quat, scalar_first=True)
    return pos + turn.apply(inner_pos), turn * Rotation.from_quat(inner_quat, scalar_first=True)


def check(pair: tuple[torch.Tensor, torch.Tensor], values: dict[str, NDArray[np.float64]], envs: Any) -> None:
    for env in envs:
        for k in range(len(FRAMES)):
            pos, turn = expected(values, env, k)
            np.testing.assert_allclose(pair[0][env, k], pos, atol=2e-6)
            got = Rotation.from_quat(pair[1][env, k].numpy(), scalar_first=True)
            assert abs(float(pair[1][env, k].double().norm()) - 1.0) < 1e-6
            assert (turn.inv() * got).magnitude() < 2e-6


def held(values: dict[str, NDArray[np.float64]], dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Return fields as stored by one of the simulators; float64 is the same memory."""
    return {name: torch.from_numpy(value).to(dtype) for name, value in values.items()}


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("envs", [1, ENVS])
def test_mounts_follow_written_and_replaced_fields(dtype: torch.dtype, envs: int, capture: bool) -> None:
    """Recorded or captured launches follow writes in place, and replaced arrays, also of other sizes."""
    live = LiveOffsets(Compute("cpu", ENVS, capture=capture), "cpu")
    pair = live.add(FRAMES, INNER)
    assert set(live.fields) == set(FIELDS)
    values = fields(0, envs)
    arrays = held(values, dtype)
    live.bind(lambda kind, name: ROW[kind, name], arrays)
    addresses = [tensor.data_ptr() for tensor in pair]
    for seed in range(6):  # beyond the timed runs before capture
        for name, value in fields(seed, envs).items():
            values[name][...] = value
            arrays[name].copy_(torch.from_numpy(value))
        live.follow()
        check(pair, values, range(ENVS))
    values = fields(7, ENVS)
    live.bind(lambda kind, name: ROW[kind, name], held(values, dtype))
    live.follow()
    check(pair, values, range(ENVS))
    assert [tensor.data_ptr() for tensor in pair] == addresses


def test_only_the_chosen_environments_follow() -> None:
    """A reset moves the mounts of the reset envs, also in other views that were added later."""
    live = LiveOffsets(Compute("cpu", ENVS), "cpu")
    old, new = fields(0, ENVS), fields(1, ENVS)
    values = {name: value.copy() for name, value in old.items()}
    first = live.add(FRAMES, INNER)
    live.bind(lambda kind, name: ROW[kind, name], held(values))
    live.follow()
    second = live.add(FRAMES, INNER)
    live.bind(lambda kind, name: ROW[kind, name], held(values))
    live.follow()
    for name, value in new.items():
        values[name][...] = value
    live.follow(torch.tensor([1]))
    for pair in (first, second):
        check(pair, new, [1])
        check(pair, old, [0, 2])


@pytest.mark.parametrize("capture", [False, True])
def test_unreferenced_mounts_are_released(capture: bool) -> None:
    """As scenes and sensors come and go on one engine, the followed set does not grow, and the remaining ones still
    follow.
    """
    live = LiveOffsets(Compute("cpu", ENVS, capture=capture), "cpu")
    values = fields(0, ENVS)
    kept = live.add(FRAMES, INNER)
    for _ in range(4):
        gone = live.add(FRAMES, INNER)
        live.bind(lambda kind, name: ROW[kind, name], held(values))
        live.follow()
        assert len(live.views) <= 3
    address = kept[0].data_ptr()
    del gone
    part = live.add(FRAMES[:1], INNER[:1])[1]  # one of the two tensors is enough
    live.bind(lambda kind, name: ROW[kind, name], held(values))
    for seed in range(1, 5):
        for name, value in fields(seed, ENVS).items():
            values[name][...] = value
        live.follow()
        check(kept, values, range(ENVS))
    assert len(live.views) == 2 and kept[0].data_ptr() == address and part.shape == (ENVS, 1, 4)


def test_bodies_have_no_offsets_to_follow() -> None:
    """A view of bodies alone has no element, so nothing is launched for it."""
    live = LiveOffsets(Compute("cpu", ENVS), "cpu")
    pos, _ = live.add([BODY], [((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))])
    assert not live.views
    assert live.fields == ()
    np.testing.assert_allclose(pos, np.broadcast_to(np.array(BODY.pos, np.float32), (ENVS, 1, 3)))
