"""Arrays of a simulator in its own convention: bound without a copy, at the centre of mass, xyzw, from any owner."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import warp as wp

import sensorium as sn
from sensorium.compute import Compute
from sensorium.engines.body_state import BodyState
from sensorium.engines.envs import as_tensor
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ArgumentError, ModelError, UnknownNameError
from sensorium.geometry.transforms import quat_apply
from sensorium.testing import tumbling_engine

BODIES = ("base", "arm", "hand")
WORDS = ("pose", "velocity", "acceleration", "joint_wrench")


class Owner:
    """An array of another library, which only speaks DLPack."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class Elsewhere(Owner):
    """An array on a device that this build of torch lacks; its owner copies it to the host for NumPy."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("Torch not compiled with CUDA enabled")

    def __array__(self, *_: Any, **options: Any) -> Any:
        return self.tensor.numpy()


@pytest.mark.parametrize("owner", [lambda t: t, Owner, wp.from_torch, lambda t: t.numpy()])
def test_a_bound_array_is_the_owners_memory(owner: Any) -> None:
    """Nothing is copied: sensors read the owner's memory, as it is or through one conversion."""
    state = torch.zeros(2, 3, 7)
    state[..., 6] = 1.0
    place, turn = state[..., :3], state[..., 3:]
    engine = TensorEngine(2, bodies=BODIES, quat_order="xyzw", bound={"body_pos_w": place, "body_quat": owner(turn)})
    assert engine.array("body_pos_w").data_ptr() == state.data_ptr()
    assert engine.body_quat.data_ptr() == turn.data_ptr()
    scene = sn.Scene(engine, [imu := sn.ImuCfg(body="hand", fields=("pos_w", "quat_w"))])
    state[1, 2, :3] = torch.tensor([1.0, 2.0, 3.0])
    turn[1, 2] = torch.tensor([0.6, 0.0, 0.0, 0.8])
    scene.update()
    assert scene[imu].data.pos_w[1].tolist() == [1, 2, 3]
    assert scene[imu].data.quat_w[1].tolist() == pytest.approx([0.8, 0.6, 0, 0])
    for name in ("body_quat", "body_quat_w"):  # in this order, both are names of one array
        engine = TensorEngine(2, bodies=BODIES, bound={name: owner(turn)})
        assert engine.array("body_quat_w").data_ptr() == engine.body_quat.data_ptr() == turn.data_ptr()


def test_an_array_that_cannot_be_bound_is_rejected() -> None:
    """The error names the array, what it is, and how to copy it instead."""
    reverse, fixed = np.zeros((1, 3, 3), np.float32)[:, ::-1], np.zeros((1, 3, 3), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"got read-only float32 of shape .*, expected writable float32"):
        TensorEngine(1, bodies=BODIES, bound={"body_pos_w": fixed})
    others = (torch.zeros(1, 3, 3, dtype=torch.float64), torch.zeros(1, 2, 3), torch.zeros(1, 3, 6)[..., ::2])
    for given in (*others, reverse, [[[0.0] * 3] * 3]):
        with pytest.raises(ArgumentError, match=r"bound\['body_pos_w'\]: got .* Copy other .*engine.body_pos_w = val"):
            TensorEngine(1, bodies=BODIES, bound={"body_pos_w": given})
    with pytest.raises(ArgumentError, match="got reversed float32 of shape"):
        TensorEngine(1, bodies=BODIES, bound={"body_pos_w": reverse})
    with pytest.raises(ArgumentError, match=r"got torch\.float32 of shape .* and strides \(18, 6, 2\)"):
        TensorEngine(1, bodies=BODIES, bound={"body_pos_w": torch.zeros(1, 3, 6)[..., ::2]})
    with pytest.raises(ArgumentError, match="got int32 of shape"):
        TensorEngine(1, bodies=BODIES, bound={"body_pos_w": np.zeros((1, 3, 3), np.int32)})
    with pytest.raises(UnknownNameError, match="body_lin_vel"):
        TensorEngine(1, bodies=BODIES, bound={"body_lin_vel": torch.zeros(1, 3, 3)})


def test_other_owners_are_not_copied_through_numpy() -> None:
    """An array that speaks DLPack keeps its type and memory; complex numbers are still rejected."""
    own = torch.arange(6.0).view(2, 3)
    assert as_tensor(Owner(own), "x").data_ptr() == own.data_ptr()
    vectors = wp.zeros((2, 4), dtype=wp.vec3)
    assert as_tensor(vectors, "x").shape == (2, 4, 3) and as_tensor(vectors, "x").data_ptr() == vectors.ptr
    with pytest.raises(ArgumentError, match="x: got"):
        as_tensor(Owner(torch.zeros(2, dtype=torch.complex64)), "x")
    assert as_tensor(Elsewhere(own), "x").tolist() == own.tolist()
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    assert as_tensor(read_only, "x").tolist() == [0, 1, 2]


@pytest.mark.parametrize("com_of", ["every env", "each env"])
def test_state_at_the_centre_of_mass_is_moved_to_the_origin(com_of: str) -> None:
    """From the motion of a body's centre of mass, the motion of its frame origin follows, in float64 to rounding."""
    origin = tumbling_engine(4)
    generator = torch.Generator().manual_seed(1)
    com = 0.3 * torch.randn(4 if com_of == "each env" else 1, 1, 3, generator=generator)
    engine = TensorEngine(
        4, bodies=("body",), provides=WORDS, quat_order="xyzw", com=com if com_of == "each env" else com[0],
        at_com=("pose", "velocity", "acceleration", "joint_wrench"),
    )  # fmt: skip
    for tick in range(3):
        origin.step()
        quat, w, alpha = (origin.array(f"body_{name}_w").double() for name in ("quat", "ang_vel", "ang_acc"))
        r, cross = quat_apply(quat, com.double().expand(4, 1, 3)), torch.linalg.cross
        force, torque = torch.randn(2, 4, 1, 3, generator=generator, dtype=torch.float64)
        engine.body_quat = quat.roll(-1, dims=-1)
        engine.body_ang_vel_w, engine.body_ang_acc_w = w, alpha
        engine.body_parent_force_w = force
        engine.body_com_pos_w = origin.body_pos_w + r
        engine.body_com_lin_vel_w = origin.body_lin_vel_w + cross(w, r)
        engine.body_com_lin_acc_w = origin.body_lin_acc_w + cross(alpha, r) + cross(w, cross(w, r))
        engine.body_com_parent_torque_w = torque - cross(r, force)
        engine.refresh()
        for name in ("pos", "quat", "lin_vel", "ang_vel", "lin_acc", "ang_acc"):
            wanted = origin.array(f"body_{name}_w")
            torch.testing.assert_close(
                engine.array(f"body_{name}_w"), wanted, rtol=1e-5, atol=1e-5, msg=f"{name} {tick}"
            )
        torch.testing.assert_close(engine.array("body_parent_torque_w").double(), torque, rtol=1e-5, atol=1e-5)
    with pytest.raises(AttributeError, match="body_lin_vel_w is computed from body_com_lin_vel_w here"):
        engine.body_lin_vel_w = 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at_com": ("velocity",)}, "com and at_com: got only one"),
        ({"com": torch.zeros(3, 3)}, "com and at_com: got only one"),
        ({"at_com": ("velocity",), "com": torch.zeros(2, 3)}, r"com: got values of shape \(2, 3\)"),
        ({"at_com": ("velocity",), "com": torch.full((3, 3), torch.nan)}, "com: got values that are not finite"),
        ({"at_com": ("speed",), "com": torch.zeros(3, 3)}, "at_com: got 'speed', expected any of"),
        ({"at_com": ("acceleration",), "com": torch.zeros(3, 3)}, "at_com: 'acceleration' needs 'acceleration'"),
    ],
)
def test_a_wrong_centre_of_mass_is_rejected(options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        TensorEngine(2, bodies=BODIES, provides=("pose", "velocity"), **options)


def test_no_bodies_need_no_conversion() -> None:
    """An adapter that refuses unequal worlds has no bodies, with rows and centres of mass of any layout."""
    given = {"body_pos_w": torch.zeros(2, 0, 3), "body_quat_w": torch.zeros(2, 0, 4)}
    com = torch.from_numpy(np.zeros((4, 3), np.float32)[np.zeros((2, 0), int)])  # all strides are 0
    BodyState(Compute("cpu", 2), given, quat_order="xyzw", at_com=["body_pos_w"], com=com).run()


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("body_lin_vel_w", "body_ang_vel_w"),
        ("body_lin_acc_w", "body_ang_vel_w, body_ang_acc_w"),
        ("body_parent_torque_w", "body_parent_force_w"),
    ],
)
def test_a_conversion_without_its_inputs_is_rejected(name: str, missing: str) -> None:
    given = {"body_quat_w": torch.zeros(1, 2, 4), name: torch.zeros(1, 2, 3)}
    com = torch.zeros(1, 2, 3)
    with pytest.raises(ArgumentError, match=f"{name}' needs {missing}"):
        BodyState(Compute("cpu", 1), given, at_com=[name], com=com)
    with pytest.raises(ArgumentError, match="com: got None"):
        BodyState(Compute("cpu", 1), given | dict.fromkeys(missing.split(", "), given[name]), at_com=[name])


@pytest.mark.parametrize(
    "parents",
    [
        ("world", "base", "arm"),
        (-1, 0, "arm"),
        {"arm": "base", "hand": "arm", "base": "world"},
        np.array([-1, 0, 1], np.int32),
        list(np.array([-1, 0, 1])),
    ],
    ids=str,
)
def test_a_tree_gives_subtrees(parents: Any) -> None:
    """Parents by name or row, in order or as a mapping, make subtrees selectable."""
    engine = TensorEngine(bodies=BODIES, parents=parents)
    assert engine.subtree("arm") == ("arm", "hand") and engine.subtree("world") == BODIES
    assert TensorEngine(bodies=BODIES).subtree("arm") is None


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (("world", "base"), "expected the parent of each of base, arm, hand"),
        (("world", "base", "leg"), r"parents\['hand'\]: got 'leg', expected a body"),
        (("world", "hand", "arm"), r"parents\['arm'\]: the body is its own ancestor"),
        ("base", "expected the parent of each"),
    ],
)
def test_a_wrong_tree_is_rejected(parents: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TensorEngine(bodies=BODIES, parents=parents)


def test_arrays_are_converted_once_per_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor sampled at the tick and one evaluated on read share a conversion; an edit needs `update(ticks=0)`."""
    engine = TensorEngine(1, bodies=BODIES, quat_order="xyzw")
    sampled, on_read = (
        sn.ImuCfg(name=name, body="hand", fields=("quat_w",), **options)
        for name, options in (("sampled", {"delay": 0.01}), ("on_read", {}))
    )
    scene = sn.Scene(engine, [sampled, on_read])
    refresh = Mock(side_effect=engine.refresh)
    monkeypatch.setattr(engine, "refresh", refresh)
    for rounds, turn in enumerate(([0.6, 0.0, 0.0, 0.8], [0.0, 0.6, 0.0, 0.8]), start=1):
        engine.body_quat[0, 2] = torch.tensor(turn)
        scene.update()
        for cfg in (sampled, on_read):
            assert scene[cfg].ground_truth.quat_w[0].tolist() == pytest.approx([turn[-1], *turn[:-1]])
        assert refresh.call_count == rounds
    engine.body_quat[0, 2] = torch.tensor([0.0, 0.0, 0.0, 1.0])
    scene.update(ticks=0)
    assert scene[on_read].data.quat_w[0].tolist() == [1, 0, 0, 0]
