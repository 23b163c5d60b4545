from __future__ import annotations

import pytest
import torch

from sensorium.engines.base import FrameOnBody, NativeSensor
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ModelError, UnknownNameError, UnsupportedError
from sensorium.spec import BODY_POSE, JOINT_EFFORT, JOINT_STATE, JOINT_TORQUE, JOINT_WRENCH, NATIVE_SENSOR

JOINT_ARRAYS = {
    JOINT_STATE: ("joint_state", {"joint_pos": (2,), "joint_vel": (2,)}),
    JOINT_EFFORT: ("joint_effort", {"joint_effort": (2,)}),
    JOINT_TORQUE: ("joint_torque", {"joint_torque": (2,)}),
    JOINT_WRENCH: ("joint_wrench", {"body_parent_force_w": (3, 3), "body_parent_torque_w": (3, 3)}),
}


def arm(**options):
    return TensorEngine(4, bodies=("base", "upper", "lower"), joints=("shoulder", "elbow"), **options)


@pytest.mark.parametrize(("requirement", "word", "arrays"), [(r, *given) for r, given in JOINT_ARRAYS.items()])
def test_each_provided_joint_requirement_gives_its_arrays(requirement, word, arrays):
    """An entry of `provides` grants its requirement; its arrays, by joint or by body, are writable."""
    engine = arm(provides=(word,))
    engine.prepare({requirement: "probe"})
    for name, shape in arrays.items():
        array = engine.array(name)
        assert array.shape == (4, *shape) and array.dtype == torch.float32
        values = torch.arange(array.numel(), dtype=torch.float32).view_as(array)
        setattr(engine, name, values)
        assert getattr(engine, name) is array and torch.equal(array, values)
    with pytest.raises(UnsupportedError, match=rf"requires {requirement}.*provides=.*'{word}'.*engine\.{name}"):
        arm().prepare({requirement: "probe"})
    with pytest.raises(AttributeError, match=f"has no {name}: add '{word}'"):
        getattr(arm(), name)


def test_joint_arrays_are_restored_after_motion_reset_and_load():
    """Motion fills joint arrays, a reset writes rows of some envs, and a restored state restores all."""
    words = tuple(word for word, _ in JOINT_ARRAYS.values())
    engine = arm(dt=0.5, provides=words, native={"strain": 2}, motion=lambda t: {"joint_pos": [t, 2.0 * t]})
    engine.step(substeps=4)
    assert engine.joint_pos.tolist() == [[2.0, 4.0]] * 4
    engine.reset([2, 0], {"joint_vel": [[2.0, 2.0], [0.5, 0.5]], "native:strain": 7.0})
    assert engine.joint_vel[:, 0].tolist() == [0.5, 0.0, 2.0, 0.0]
    assert engine.native["strain"][:, 1].tolist() == [7.0, 0.0, 7.0, 0.0]
    other = arm(provides=words, native={"strain": 2})
    addresses = {name: other.array(name).data_ptr() for name in ("joint_pos", "native:strain")}
    other.load_state(engine.state())
    assert torch.equal(other.joint_pos, engine.joint_pos) and torch.equal(other.joint_vel, engine.joint_vel)
    assert torch.equal(other.native["strain"], engine.native["strain"])
    assert {name: other.array(name).data_ptr() for name in addresses} == addresses


def test_joints_are_named_in_order_at_their_given_poses():
    """All joints are scalar; a joint with a position has a frame, and one without raises an error that states the
    fix.
    """
    engine = TensorEngine(bodies=("base", "arm"), joints={"pan": ("arm", (0, 0, 1)), "tilt": "base", "grip": None})
    assert engine.names("joint") == engine.names("scalar_joint") == ("pan", "tilt", "grip")
    assert engine.frame("joint", "pan") == FrameOnBody(1, (0.0, 0.0, 1.0))
    assert engine.frame("scalar_joint", "tilt") == FrameOnBody(0)
    with pytest.raises(ModelError, match=r"joint 'grip' has no frame: write .*joints=\{'grip': frame\}"):
        engine.frame("joint", "grip")
    with pytest.raises(UnknownNameError, match=r"unknown joint 'pam'.*Did you mean 'pan'"):
        engine.frame("joint", "pam")
    with pytest.raises(ModelError, match="joint 'pan': got 'head'"):
        TensorEngine(joints={"pan": "head"})
    for joints in ("pan", ("pan", "pan")):
        with pytest.raises(ValueError, match=r"joints: got .* without repetition"):
            TensorEngine(joints=joints)


def test_native_arrays_are_written_in_place_or_by_assignment():
    """`engine.native[name]` is the array itself; an assignment copies, and motion writes it by `native:NAME`."""
    engine = TensorEngine(2, native={"strain": 3, "heat": 1}, motion=lambda t: {"native:heat": 5.0})
    engine.prepare({NATIVE_SENSOR("strain"): "gauge"})
    array = engine.array("native:strain")
    engine.native["strain"] = [1.0, 2.0, 3.0]
    engine.native["strain"][1, 2] = 9.0
    assert array.tolist() == [[1, 2, 3], [1, 2, 9]] and engine.native["strain"] is array
    assert engine.native["heat"].tolist() == [[5.0], [5.0]] and list(engine.native) == ["strain", "heat"]
    with pytest.raises(ValueError, match=r"native:strain: got values of shape \(2,\), expected \(2, 3\)"):
        engine.native["strain"] = [1.0, 2.0]
    for touch in (lambda: engine.native["strian"], lambda: engine.native.__setitem__("strian", 0.0)):
        with pytest.raises(UnknownNameError, match=r"native sensor 'strian'.*'strain'.*native=\{name: dim\}"):
            touch()


def test_native_sensors_are_listed_as_described():
    """A number of values or a full description names a native sensor; any other value is rejected."""
    gauge = NativeSensor("gauge", "force", 3, "N", "real", "acc", "site", "wrist")
    engine = TensorEngine(native={"strain": 2, "gauge": gauge})
    assert engine.native_sensors() == (NativeSensor("strain", dim=2), gauge)
    assert engine.supports(NATIVE_SENSOR("gauge", "force", "site", "wrist")) is None
    assert "is of type 'force'" in str(engine.supports(NATIVE_SENSOR("gauge", "torque")))
    with pytest.raises(UnsupportedError, match=r"native sensors here: strain, gauge.*native=\{'flow': dim\}"):
        engine.prepare({NATIVE_SENSOR("flow"): "meter"})
    assert TensorEngine().native_sensors() == () and TensorEngine().supports(BODY_POSE) is None
    with pytest.raises(ValueError, match=r"native\['strain'\]: got 0"):
        TensorEngine(native={"strain": 0})
    with pytest.raises(ValueError, match="got a NativeSensor named 'gauge', expected the same name"):
        TensorEngine(native={"other": gauge})
