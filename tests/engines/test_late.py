"""Late preparation, on every engine: a sensor added to a running scene reads the same as one present from the start.

The model has one accelerometer, so that MuJoCo computes accelerations of bodies from the start.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_EFFORT, JOINT_STATE

HAS_WARP = importlib.util.find_spec("mujoco_warp") is not None
MODEL = """
<mujoco>
  <option timestep="0.004" integrator="implicitfast" magnetic="0.2 0 -0.4"><flag contact="disable"/></option>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1"/>
    <body name="base" pos="0 0 .6">
      <freejoint/>
      <geom type="box" size=".2 .1 .05" mass="2"/>
      <site name="imu" pos="0.1 0.02 0.03" euler="40 0 20"/>
      <body name="arm" pos=".2 0 0">
        <joint name="shoulder" axis="0 1 0"/>
        <geom type="capsule" size=".03 .15" pos="0 0 -.15" mass="0.5"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="shoulder" gear="2"/></actuator>
  <sensor>{}</sensor>
</mujoco>
"""
WITH, WITHOUT = MODEL.format('<accelerometer name="own" site="imu"/>'), MODEL.format("")
QVEL = (0.3, -0.2, 0.5, 1.0, -2.0, 3.0, 4.0)
ENVS = 2

Runner = tuple[sn.engines.Engine, Callable[[sn.Scene], None]]


def tensor() -> Runner:
    """Return an engine of bodies and joints that follow functions of time."""

    def motion(t: float) -> dict[str, Any]:
        return {
            "body_pos_w": [[[t, 2.0 * t, 0.5]] * 2] * ENVS,
            "body_quat_w": (float(np.cos(t)), 0.0, float(np.sin(t)), 0.0),
            "body_lin_vel_w": (1.0, 2.0, 0.0),
            "body_ang_vel_w": (0.0, 2.0, 0.0),
            "body_lin_acc_w": (t, 0.0, -t),
            "joint_pos": t,
            "joint_vel": 1.0,
            "joint_effort": -t,
        }

    words = ("pose", "velocity", "acceleration", "gravity", "magnetic", "joint_state", "joint_effort")
    place = {"imu": ("base", (0.1, 0.02, 0.03))}
    engine = sn.TensorEngine(
        ENVS, 0.004, bodies=("base", "arm"), sites=place, joints=("shoulder",), provides=words, motion=motion
    )
    return engine, lambda scene: scene.step()


def started(engine: Any) -> Any:
    """Set an engine's bodies in motion."""
    engine.qvel.copy_(torch.tensor(QVEL, dtype=engine.qvel.dtype).expand(ENVS, -1) * torch.tensor([[1.0], [0.7]]))
    return engine


def owned() -> Runner:
    """Return a MuJoCo batch that steps itself."""
    return started(sn.MujocoEngine(WITH, ENVS)), lambda scene: scene.step([[0.3], [-0.2]])


def live() -> Runner:
    """Return the owner's MjData."""
    model = mujoco.MjModel.from_xml_string(WITH)
    datas = [mujoco.MjData(model) for _ in range(ENVS)]
    for env, data in enumerate(datas):
        data.qvel[:] = np.array(QVEL) * (1.0, 0.7)[env]
        data.ctrl[:] = (0.3, -0.2)[env]

    def step(scene: sn.Scene) -> None:
        for data in datas:
            mujoco.mj_step(model, data)
        scene.update()

    return sn.MujocoEngine.from_mj(model, datas), step


def warp() -> Runner:
    """Return mujoco_warp worlds that step themselves."""
    return started(sn.MujocoWarpEngine(WITH, ENVS, device="cpu")), lambda scene: scene.step([[0.3], [-0.2]])


def live_warp() -> Runner:
    """Return the owner's mujoco_warp worlds."""
    import mujoco_warp as mjw

    model = mujoco.MjModel.from_xml_string(WITH)
    m, d = mjw.put_model(model), mjw.make_data(model, nworld=ENVS)
    engine = sn.MujocoWarpEngine.from_mjw(model, m, d)
    started(engine)
    engine.ctrl.copy_(torch.tensor([[0.3], [-0.2]]))

    def step(scene: sn.Scene) -> None:
        mjw.step(m, d)
        scene.update()

    return engine, step


ENGINES = [tensor, owned, live, *([warp, live_warp] if HAS_WARP else [])]


@pytest.fixture(params=ENGINES, ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Runner]]:
    """Return a function that builds an engine, and a function that steps a scene on it."""
    yield request.param


def late() -> list[sn.SensorCfg[Any]]:
    """Return sensors whose requirements no other sensor in the scene has."""
    return [
        sn.ImuCfg(name="imu", site="imu", fields="all", acceleration="engine", noise={"lin_acc_b": 0.1}),
        sn.BodyStateCfg(name="state"),
        sn.JointSensorCfg(name="joints", joints=".*", fields="all"),
    ]


def there() -> list[sn.SensorCfg[Any]]:
    """Return a sensor with memory that is present from the start."""
    return [
        sn.BodyStateCfg(name="old", fields=("pos_w",), delay=0.008, noise={"pos_w": 0.1}, random_walk={"pos_w": 1.0})
    ]


def fields_of(scene: sn.Scene, name: str) -> dict[str, np.ndarray]:
    """Return all readings of a sensor except its capture count."""
    return {key: value for key, value in syn.snapshot(scene[name]).items() if key != "frame"}


def test_late_sensor_reads_the_same_as_an_early_one(make: Callable[[], Runner]) -> None:
    """Poses, velocities, accelerations, gravity, flux, joints and efforts match bit for bit, at once and from then
    on.
    """
    (early_engine, step_early), (late_engine, step_late) = make(), make()
    early = sn.Scene(early_engine, [*there(), *late()], seed=4, discover=False)
    scene = sn.Scene(late_engine, there(), seed=4, discover=False)
    for each in (early, scene):
        each.capture(True)
    for tick in range(12):
        step_early(early)
        step_late(scene)
        if tick == 6:
            for cfg in late():
                scene.add(cfg)
        if tick >= 6:
            for cfg in late():
                syn.same(fields_of(early, cfg.label), fields_of(scene, cfg.label))
        syn.same(syn.snapshot(early["old"]), syn.snapshot(scene["old"]))
    assert scene["imu"].info.notes["acceleration"] == "engine" and scene["imu"].data.lin_acc_b.abs().max() > 0.1
    scene.reset([1])
    early.reset([1])
    for cfg in [*there(), *late()]:
        syn.same(fields_of(early, cfg.label), fields_of(scene, cfg.label))


def test_late_preparation_does_not_change_physics(make: Callable[[], Runner]) -> None:
    """The bodies continue as in a simulation without the added sensor."""
    (plain_engine, step_plain), (engine, step) = make(), make()
    plain, scene = (sn.Scene(each, there(), discover=False) for each in (plain_engine, engine))
    for tick in range(10):
        step_plain(plain)
        step(scene)
        if tick == 4:
            engine.prepare(dict.fromkeys((BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, JOINT_STATE, JOINT_EFFORT), "x"))
    names = ("body_pos_w", "body_quat_w")
    assert all(torch.equal(plain_engine.array(name), engine.array(name)) for name in names)


def test_poses_and_bodies_are_available_late(make: Callable[[], Runner]) -> None:
    """A scene built without sensors publishes poses and lists bodies once it runs."""
    engine, step = make()
    scene = sn.Scene(engine, discover=False)
    step(scene)
    assert BODY_POSE not in engine.prepared
    assert scene.bodies().names == ("base", "arm") and BODY_POSE in engine.prepared
    scene.add(sn.BodyStateCfg(name="state"))
    reading = scene.publish(poses=True)["state"]
    assert reading.pose is not None and reading.pose.shape == (ENVS, 2, 7)
    assert np.array_equal(reading.pose[..., :3], reading.measured["pos_w"])
    assert np.array_equal(reading.pose[..., 3:], reading.measured["quat_w"])


def test_late_model_changes_must_be_reserved() -> None:
    """After the first tick MuJoCo cannot add the sensor that accelerations need; the message states the fix."""
    scene = sn.Scene(sn.MujocoEngine(WITHOUT, ENVS), discover=False)
    scene.step()
    cfg = sn.ImuCfg(name="imu", site="imu")
    with pytest.raises(sn.UnsupportedError, match=r"'imu' requires BODY_ACCELERATION.*reserve="):
        scene.add(cfg.replace(acceleration="engine"))
    assert "imu" not in scene and not {BODY_POSE, BODY_VELOCITY} & scene.engine.prepared  # all or none
    assert scene.add(cfg).info.notes["acceleration"] == "difference"


def test_model_changes_are_allowed_before_the_first_tick() -> None:
    """An IMU added at tick 0 is the same as one present from the start, including engine accelerations."""
    early = sn.Scene(started(sn.MujocoEngine(WITHOUT, ENVS)), [*there(), sn.ImuCfg(site="imu")], discover=False)
    scene = sn.Scene(started(sn.MujocoEngine(WITHOUT, ENVS)), there(), discover=False)
    scene.add(sn.ImuCfg(site="imu"))
    for _ in range(5):
        for name in early:
            syn.same(syn.snapshot(early[name]), syn.snapshot(scene[name]))
        early.step()
        scene.step()
    assert scene["imu"].info.notes["acceleration"] == "engine"


@pytest.mark.parametrize("kind", ["owned", *(["warp"] if HAS_WARP else [])])
def test_unfresh_engine_allows_no_late_sensors(kind: str) -> None:
    """With fresh=False values computed now would be newer than the rest; before the first tick they are not."""
    options = {"fresh": False} | ({"device": "cpu"} if kind == "warp" else {})
    engines = {"owned": sn.MujocoEngine, "warp": sn.MujocoWarpEngine if HAS_WARP else None}
    early = sn.Scene(started(engines[kind](WITH, ENVS, **options)), [*there(), *late()[1:]], discover=False)
    scene = sn.Scene(started(engines[kind](WITH, ENVS, **options)), there(), discover=False)
    for cfg in late()[1:]:
        scene.add(cfg)
    for _ in range(4):
        for name in early:
            syn.same(syn.snapshot(early[name]), syn.snapshot(scene[name]))
        early.step()
        scene.step()
    with pytest.raises(sn.UnsupportedError, match=r"requires (GRAVITY|BODY_ACCELERATION).*reserve="):
        scene.add(late()[0])


def test_engine_reports_what_it_grants_late() -> None:
    """By default an engine grants only shapes late; contacts must be reserved on all engines."""
    engine = sn.TensorEngine(1)
    report = sn.engines.CONTACT_REPORT(("body", ("body",)), None, ("found",), "netforce")
    assert sn.engines.Engine.grants_late(engine, sn.engines.SHAPES) and not sn.engines.Engine.grants_late(
        engine, BODY_POSE
    )
    assert engine.grants_late(BODY_POSE) and engine.grants_late(sn.engines.SHAPES) and not engine.grants_late(report)
    assert not sn.MujocoEngine(WITH).grants_late(report)
