"""Invalid arguments of engines and of a scene's clock: each raises a package error that names the argument."""

from __future__ import annotations

import copy
import math
import random
import re
from fractions import Fraction

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.engines.mujoco.engine import MujocoEngine

BODY = """<mujoco><option timestep="{}"/><worldbody><body name="box" pos="0 0 1"><freejoint/><geom size=".1"/>
  <site name="imu"/></body></worldbody></mujoco>"""
NAN, INF = float("nan"), float("inf")
ODD = (
    None, True, False, "x", "2", "", b"x", 0, -1, 1, 2.5, NAN, INF, -INF, 1e300, 1e-320, 10**30, 2**31, -(2**63),
    1j, {0}, {0: 1}, set(), [], [0], [None], [NAN], [[0]], [1j], [10**30], ["x"], [[1], [1, 2]], (), (0, 0),
    (0.0, 0.0, 0.0), (0, 0, 0, 0), (1, 0, 0, 0), range(2), np.float64(NAN), np.int64(2), np.True_, np.zeros(0),
    np.zeros(3), np.zeros((2, 2)), np.array("x"), np.array([None]), np.array([1j]), np.datetime64("2020-01-01"),
    torch.zeros(()), torch.zeros(2), torch.zeros(1, device="meta"), torch.zeros(2, 1, 4),
    torch.ones(2, dtype=torch.bool), torch.ones(3, dtype=torch.bool), torch.zeros(2, dtype=torch.complex64),
    torch.zeros(3).to_sparse(), torch.tensor([0, 1]), torch.tensor([1, 1]), slice(1), slice("a"),
    slice(None, None, 0), object(), object, len, Fraction(1, 3), Ellipsis,
)  # fmt: skip


def name_of(value: object) -> str:
    """Return a name for a value that is the same in every process."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


def scene_of(engine=None):
    return sn.Scene(engine or MujocoEngine(BODY.format(0.002), num_envs=2), [sn.ImuCfg(name="imu", site="imu")])


# Time steps


@pytest.mark.parametrize("step", ["0", "-0.01", "nan", "inf", "1e-320", "1e300"])
def test_invalid_time_step_is_refused_by_every_engine(step):
    """A time step that is zero, negative, not finite or absurd raises an error that names it, when the engine is
    created.
    """
    with pytest.raises(sn.ModelError, match=rf"timestep: got {re.escape(str(float(step)))}.*<option timestep="):
        MujocoEngine(BODY.format(step))
    model = mujoco.MjModel.from_xml_string(BODY.format(0.002))
    model.opt.timestep = float(step)
    for make in (MujocoEngine, lambda model: MujocoEngine.from_mj(model, mujoco.MjData(model))):
        with pytest.raises(sn.ModelError, match=r"timestep: got"):
            make(model)
    with pytest.raises(sn.ArgumentError, match=r"dt: got"):
        sn.TensorEngine(dt=float(step))


def test_time_step_written_by_a_sensor_is_checked():
    """MODEL_ELEMENTS may set the model's time step."""

    def stop(spec):
        spec.option.timestep = 0.0

    engine = MujocoEngine(BODY.format(0.002))
    with pytest.raises(sn.ModelError, match=r"timestep: got 0"):
        engine.prepare({sn.engines.MODEL_ELEMENTS(stop): "probe"})


def test_edited_time_step_raises_at_the_next_step():
    """Edits of engine.model, the batch's model or a wrapped model are detected; once reverted, the scene continues."""
    scene = scene_of()
    scene.step()
    scene.engine.model.opt.timestep = 0.01
    with pytest.raises(
        sn.ScheduleError, match=r"engine.model: the time step is 0.01 s now, and was 0.002 s.*rebuild engine"
    ):
        scene.step()
    scene.engine.model.opt.timestep = 0.002
    scene.step()
    assert scene.time == pytest.approx(0.004)
    scene.engine.batch.expand("opt.timestep")[1] = 0.01
    with pytest.raises(sn.ScheduleError, match=r"expand.*0.01 s now"):
        scene.step()
    engine = MujocoEngine(BODY.format(0.002), num_envs=2)
    other = copy.copy(engine.model)
    other.opt.timestep = 0.01
    engine.batch.set_models([engine.model, other])
    with pytest.raises(sn.ScheduleError, match=r"set_models.*0.01 s now"):
        engine.step()
    model = mujoco.MjModel.from_xml_string(BODY.format(0.002))
    data = mujoco.MjData(model)
    scene = scene_of(MujocoEngine.from_mj(model, data))
    model.opt.timestep = 0.001
    mujoco.mj_step(model, data)
    with pytest.raises(sn.ScheduleError, match=r"wrapped MjModel: the time step is 0.001 s now"):
        scene.update()
    assert scene.tick == 0
    engine = MujocoEngine(BODY.format(0.002))
    engine.model.opt.timestep = 0.01
    with pytest.raises(sn.ScheduleError, match=r"0.01 s now"):
        scene_of(engine)


@pytest.mark.slow
def test_edited_time_step_of_mujoco_warp_raises():
    """The value is written in place or replaced, in an engine's own model or a wrapped model."""
    import mujoco_warp
    import warp as wp

    with pytest.raises(sn.ModelError, match=r"timestep: got 0"):
        sn.MujocoWarpEngine(BODY.format(0), device="cpu")
    model = mujoco.MjModel.from_xml_string(BODY.format(0.002))
    m, d = mujoco_warp.put_model(model), mujoco_warp.make_data(model, nworld=2)
    m.opt.timestep.fill_(-1.0)
    with pytest.raises(sn.ModelError, match=r"timestep: got -1"):
        sn.MujocoWarpEngine.from_mjw(model, m, d)
    m.opt.timestep.fill_(0.002)
    live, own = sn.MujocoWarpEngine.from_mjw(model, m, d), sn.MujocoWarpEngine(BODY.format(0.002), 2, device="cpu")
    for engine, go in ((live, lambda scene: scene.update()), (own, lambda scene: scene.step())):
        scene = scene_of(engine)
        go(scene)
        engine.m.opt.timestep.fill_(0.01)
        with pytest.raises(sn.ScheduleError, match=r"mujoco_warp's Model: the time step is 0.01 s now"):
            go(scene)
        engine.m.opt.timestep.fill_(0.002)
        go(scene)
        engine.m.opt.timestep = wp.array([0.004], dtype=wp.float32, device="cpu")
        with pytest.raises(sn.ScheduleError, match=r"0.004 s now"):
            go(scene)
    own.m.opt.timestep = wp.array([0.002], dtype=wp.float32, device="cpu")
    own.model.opt.timestep = 0.005
    with pytest.raises(sn.ScheduleError, match=r"engine.model: the time step is 0.005 s now"):
        own.step()


# Ticks and environments


@pytest.mark.parametrize(
    "value",
    [value for value in ODD if not (type(value) is int and 0 < value < 5) and not isinstance(value, np.int64)],
    ids=name_of,
)
def test_substeps_and_ticks_must_be_integers(value):
    """Any other value is a ScheduleError that names it, and the scene is unchanged."""
    scene = scene_of()
    with pytest.raises(sn.ScheduleError, match=r"Scene.step: substeps: got"):
        scene.step(substeps=value)
    with pytest.raises(sn.ArgumentError, match=r"substeps: got"):
        scene.engine.step(substeps=value)
    if value is not None and not (type(value) is int and value == 0):
        with pytest.raises(sn.ScheduleError, match=r"Scene.update: ticks: got"):
            scene.update(ticks=value)
    assert (scene.tick, scene.engine.tick) == (0, 0)
    scene.step(substeps=np.int64(2))
    assert scene.tick == 2


@pytest.mark.parametrize("value", ["2", 0, -1, 2.5, True, [1]], ids=name_of)
@pytest.mark.parametrize("name", ["num_envs", "threads"])
def test_counts_must_be_integers_of_at_least_one(name, value):
    with pytest.raises(sn.ArgumentError, match=rf"^{name}: got .*, expected an integer of at least 1"):
        MujocoEngine(BODY.format(0.002), **{name: value})


@pytest.mark.parametrize("value", ODD, ids=name_of)
def test_env_ids_must_be_integers_or_a_mask(value):
    """Any other value is an ArgumentError, also a ValueError, that names it."""
    for scene in (scene_of(), sn.Scene(sn.TensorEngine(num_envs=2), [sn.ImuCfg(name="imu", body="body")])):
        for call in (scene.reset, scene["imu"].reset, scene["imu"].read):
            try:
                call(value)
            except sn.ArgumentError as error:
                assert isinstance(error, ValueError) and "env_ids: got" in str(error)
        scene.step()
        assert scene["imu"].valid.tolist() == [True, True]


# TensorEngine


@pytest.mark.parametrize("value", ODD, ids=name_of)
@pytest.mark.parametrize("name", ["body_pos_w", "body_quat_w", "gravity_w", "joint_pos"])
def test_arrays_accept_real_numbers_only(name, value):
    """Values assigned, passed to reset, or returned by motion are real numbers of a matching shape, or raise a package
    error.
    """
    engine = sn.TensorEngine(num_envs=2, joints=("j",), provides=("pose", "joint_state", "gravity"))
    before = engine.array(name).clone()

    def assign():
        setattr(engine, name, value)

    makes = (
        assign,
        lambda: engine.reset([0, 1], {name: value}),
        lambda: sn.TensorEngine(num_envs=2, joints=("j",), provides=engine.provides, motion=lambda time: {name: value}),
    )
    if name == "joint_pos":
        makes += (lambda: MujocoEngine(BODY.format(0.002), 2).reset(None, {"qpos": value}),)
    for make in makes:
        try:
            make()
        except sn.ArgumentError as error:
            assert f"{name}: got" in str(error) or "qpos: got" in str(error)
            if make is assign:
                assert torch.equal(engine.array(name), before)


def test_zero_quaternion_is_refused():
    """The value is rejected on assignment, in reset or for a site."""
    for order, name in (("wxyz", "body_quat_w"), ("xyzw", "body_quat")):
        engine = sn.TensorEngine(num_envs=2, quat_order=order)
        for make in (lambda: setattr(engine, name, 0.0), lambda: engine.reset([1], {name: (0, 0, 0, 0)})):  # noqa: B023
            with pytest.raises(sn.ArgumentError, match=rf"{name}: got a quaternion of zeros"):
                make()
        assert engine.body_quat_w[..., 0].tolist() == [[1.0], [1.0]]
    with pytest.raises(sn.ModelError, match=r"site 'tip': got"):
        sn.TensorEngine(sites={"tip": ("body", (0, 0, 0), (0, 0, 0, 0))})


def test_a_mistyped_array_is_an_error():
    """An attribute that a TensorEngine does not have cannot be assigned; a subclass may define attributes."""
    engine = sn.TensorEngine()
    for name in ("body_pos", "body_quat_W", "gravity", "joints_pos"):
        with pytest.raises(sn.UnknownNameError, match=rf"unknown array '{name}'"):
            setattr(engine, name, 0.0)
    engine.motion = None

    class Mine(sn.TensorEngine):
        pass

    mine = Mine()
    mine.label = "x"
    assert mine.label == "x"


ARGUMENTS = (
    "num_envs", "dt", "bodies", "sites", "joints", "slides", "geoms", "shapes", "native", "device", "provides",
    "quat_order", "gravity", "magnetic", "motion", "parents", "com", "at_com", "bound", "contact_list",
)  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_tensor_engine_arguments_are_accepted_or_refused_with_reason(name):
    """Invalid values for each argument, also within mappings and sequences, give an engine or a package error."""
    nested = [{"a": value} for value in ODD] + [[value] for value in ODD] + [{"a": ("body", value)} for value in ODD]
    nested += [{"a": ("body", (0, 0, 0), value)} for value in ODD]
    for value in (*ODD, *nested):
        if (name == "num_envs" and isinstance(value, int) and value > 1e6) or (name == "motion" and callable(value)):
            continue
        try:
            engine = sn.TensorEngine(**{name: value})
        except sn.SensoriumError:
            continue
        assert math.isfinite(engine.dt) and engine.num_envs >= 1


@pytest.mark.slow
def test_random_odd_values_raise_only_sensorium_errors():
    """Many combinations of invalid arguments of engine, reset and step are tested."""
    random_ = random.Random(3)
    for _ in range(3000):
        given = {
            name: random_.choice(ODD) for name in random_.sample(ARGUMENTS, 2) if name not in ("num_envs", "motion")
        }
        try:
            engine = sn.TensorEngine(num_envs=2, **given)
            engine.reset(random_.choice(ODD), {random_.choice(["body_pos_w", "body_quat_w"]): random_.choice(ODD)})
            engine.step(substeps=random_.choice(ODD))
        except sn.SensoriumError:
            continue
