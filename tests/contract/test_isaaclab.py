"""The guarantees of Isaac Lab's page for every sensor, for prim paths and for examples, in this library's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mujoco
import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.compat import isaaclab
from sensorium.patterns import GridPatternCfg
from sensorium.world.select import match_prim_path

from .tables import DOCUMENTS

FRAME = sn.FrameTransformerCfg.FrameCfg


def base(**fields: Any) -> syn.ProbeCfg:
    return syn.ProbeCfg(name="x", **fields)


def imu(**fields: Any) -> sn.ImuCfg:
    mount = {} if {"bodies", "prim_path"} & fields.keys() else {"body": "body"}
    return sn.ImuCfg(name="x", fields=("pos_w",), **mount, **fields)


def transformer(**fields: Any) -> sn.FrameTransformerCfg:
    mount = {} if {"bodies", "prim_path"} & fields.keys() else {"body": "body"}
    return sn.FrameTransformerCfg(name="x", **{"target_frames": [FRAME(body="world")], **mount, **fields})


def contact(bodies: str = "body", **fields: Any) -> sn.ContactSensorCfg:
    return sn.ContactSensorCfg(name="x", **{"prim_path": bodies, "track_pose": True, **fields})


def ray_caster(**fields: Any) -> sn.RayCasterCfg:
    mount = {} if {"bodies", "prim_path"} & fields.keys() else {"body": "body"}
    return sn.RayCasterCfg(name="x", **mount, **fields)


def ray_camera(**fields: Any) -> sn.RayCasterCameraCfg:
    mount = {} if {"bodies", "prim_path"} & fields.keys() else {"body": "body"}
    return sn.RayCasterCameraCfg(
        name="x", pattern=sn.patterns.PinholeCameraPatternCfg(width=4, height=3), **mount, **fields
    )


def camera(cfg_class: Any = isaaclab.CameraCfg, **fields: Any) -> sn.CameraCfg:
    """Return a camera by the page's names, mounted like the other sensors, with the pose of each frame."""
    own: Any = {"name": "x", "width": 4, "height": 3, "data_types": ["depth"], "evaluate": "auto"} | fields
    if "bodies" in fields:  # the page has one camera per path
        return sn.CameraCfg(**own)
    path = own.pop("prim_path", "/World/body")
    lens = isaaclab.PinholeCameraCfg()
    made: sn.CameraCfg = cfg_class(**own, prim_path=f"{path}/eye", spawn=lens, reported_pose="frame")
    return made


SENSORS = {
    "SensorBase": (base, "vec"),
    "ContactSensor": (contact, "pos_w"),
    "FrameTransformer": (transformer, "source_pos_w"),
    "RayCaster": (ray_caster, "pos_w"),
    "RayCasterCamera": (ray_camera, "pos_w"),
    "Camera": (camera, "pos_w"),
    "TiledCamera": (partial(camera, isaaclab.TiledCameraCfg), "pos_w"),
    "Imu": (imu, "pos_w"),
}
"""Class of the document -> config of such a sensor on the body, and the field that holds the body's position."""
each_sensor = pytest.mark.parametrize("name", SENSORS)
each_plain_sensor = pytest.mark.parametrize("name", [name for name in SENSORS if name != "ContactSensor"])
"""Sensors that can be lazy and have the common history, which excludes contact sensors."""
PROVIDES = ("pose", "velocity", "gravity", "contact")
SHAPES = (sn.engines.Shape("plane", "ground"),)


def built(name: str, **fields: Any) -> sn.Scene:
    """Return a scene with a sensor of a class; its body is at `synthetic.signal(tick)`."""
    return syn.world([SENSORS[name][0](**fields)], num_envs=3, provides=PROVIDES, shapes=SHAPES)


def position(scene: sn.Scene, name: str) -> torch.Tensor:
    value: torch.Tensor = getattr(scene["x"].data, SENSORS[name][1])
    return value.clone().reshape(-1, 3)  # a contact sensor has an axis of bodies


def update_sensor(scene: sn.Scene, **options: Any) -> None:
    syn.write(scene, scene.tick + 1)
    scene["x"].update(0.01, **options)


# SensorBase -----------------------------------------------------------------------------------------------------------


@each_plain_sensor
def test_data_are_computed_on_access_or_by_force(name: str) -> None:
    """Data are computed on access, once per step, or during the update with `force_compute`."""
    scene = built(name)
    syn.advance(scene)
    scene.engine.body_pos_w += 1.0
    assert position(scene, name).equal(syn.signal(1, 3) + 1.0)
    scene.engine.body_pos_w += 1.0
    assert position(scene, name).equal(syn.signal(1, 3) + 1.0)
    for ticks, advance in enumerate((partial(syn.advance, scene), partial(update_sensor, scene)), 2):
        advance(force_compute=True)
        scene.engine.body_pos_w += 1.0
        assert position(scene, name).equal(syn.signal(ticks, 3))


PATH: dict[str, Any] = {"name": "x", "prim_path": "/World/body"}
EYE: dict[str, Any] = {"name": "x", "prim_path": "/World/body/eye", "spawn": isaaclab.PinholeCameraCfg()}
IMAGE: dict[str, Any] = {**EYE, "width": 4, "height": 3, "reported_pose": "frame"}
WAITING: dict[str, Callable[..., Any]] = {
    "SensorBase": partial(base, evaluate="on_access"),
    "FrameTransformer": partial(
        isaaclab.FrameTransformerCfg, **PATH,
        target_frames=[isaaclab.FrameTransformerCfg.FrameCfg(prim_path="/World/body")],
    ),
    "RayCaster": partial(isaaclab.RayCasterCfg, **PATH, mesh_prim_paths=["ground"], pattern_cfg=GridPatternCfg()),
    "RayCasterCamera": partial(
        isaaclab.RayCasterCameraCfg, **PATH, mesh_prim_paths=["ground"],
        pattern_cfg=sn.patterns.PinholeCameraPatternCfg(width=4, height=3),
    ),
    "Camera": partial(isaaclab.CameraCfg, **IMAGE),
    "TiledCamera": partial(isaaclab.TiledCameraCfg, **IMAGE),
    "Imu": partial(isaaclab.ImuCfg, **PATH),
}  # fmt: skip
"""Class of the document -> its config with the page's defaults."""


@pytest.mark.parametrize("name", WAITING)
def test_a_due_sensor_waits_for_its_reader(name: str) -> None:
    """With a period of four steps, reads at steps 6, 8 and 11 give the data of steps 6, 6 and 11: nothing is computed
    between them, and a period starts with the read. Only a history keeps the samples of every period.
    """
    options = {"update_period": 0.04}
    provides = (*PROVIDES, "acceleration")
    scene = syn.world([WAITING[name](**options)], num_envs=3, provides=provides, shapes=SHAPES)
    sensor = scene["x"]
    for tick in range(1, 12):
        syn.advance(scene)
        scene.engine.body_pos_w += 1.0  # only a computation at the read shows it
        if tick in (6, 8, 11):
            shown = 6 if tick == 8 else tick
            assert position(scene, name).equal(syn.signal(shown, 3) + 1.0)
            assert sensor.capture_tick.tolist() == [shown] * 3
    assert sensor.frame.tolist() == [2] * 3 and "reads change" in sensor.info.why
    cfg = sensor.cfg.replace(history_length=2)
    assert syn.world([cfg], provides=provides, shapes=SHAPES)["x"].info.evaluation == "eager"


@each_plain_sensor
def test_evaluation_is_lazy_if_no_sample_can_be_missed(name: str) -> None:
    """Sensors without period and memory, or with the option, are lazy, as `info` shows; others compute at due ticks."""
    for options, evaluation in (
        ({}, "lazy"),
        ({"evaluate": "always"}, "eager"),
        ({"update_period": 0.03}, "eager"),
        ({"update_period": 0.03, "evaluate": "on_read"}, "lazy"),
        ({"history_length": 2}, "eager"),
        ({"delay": 0.02}, "eager"),
    ):
        scene = built(name, **options)
        sensor = scene["x"]
        assert sensor.info.evaluation == evaluation and sensor.is_lazy is (evaluation == "lazy")
        syn.advance(scene, 3)
        scene.engine.body_pos_w += 1.0  # later computations show it
        expected = syn.signal(1 if "delay" in options else 3, 3)
        assert position(scene, name).equal(expected + 1.0 if evaluation == "lazy" else expected)
    for options in ({"history_length": 2}, {"delay": 0.02}):
        with pytest.raises(sn.ConfigError, match="evaluate"):
            built(name, **options, evaluate="on_read")
        scene = built(name, **options, evaluate="wanted")
        syn.advance(scene, 8)
        assert scene["x"].frame.tolist() == [2] * 3  # at the start and at the first tick: before then it was unread
        scene["x"].data  # noqa: B018 - a read is the point
        syn.advance(scene)
        assert scene["x"].frame.tolist() == [3] * 3


@each_sensor
def test_a_period_of_zero_samples_at_every_step(name: str) -> None:
    scene = built(name, update_period=0.0)
    for tick in range(1, 6):
        syn.advance(scene)
        assert position(scene, name).equal(syn.signal(tick, 3))
    assert scene["x"].frame.tolist() == [6] * 3


@each_sensor
def test_a_period_counts_from_the_start_and_not_from_the_last_read(name: str) -> None:
    """Every third step has a new sample, which is held in between; late and rare reads give the same values."""
    often, seldom = built(name, update_period=0.03), built(name, update_period=0.03)
    for tick in range(1, 13):
        syn.advance(often)
        syn.advance(seldom)
        assert position(often, name).equal(syn.signal(tick - tick % 3, 3))
        if tick in (4, 11):
            assert position(seldom, name).equal(position(often, name))


@each_plain_sensor
def test_history_is_kept_if_a_length_is_given(name: str) -> None:
    """The newest sample is first, and the first sample fills the rest; the default of 0 keeps no history."""
    scene = built(name, history_length=3)
    syn.advance(scene)
    history = getattr(scene["x"].history, SENSORS[name][1])
    assert history.equal(torch.stack([syn.signal(tick, 3) for tick in (1, 0, 0)], dim=1))
    assert scene["x"].history_valid.tolist() == [[True, True, False]] * 3
    with pytest.raises(sn.ConfigError, match="history_length"):
        built(name)["x"].history  # noqa: B018


@each_sensor
def test_reset_restarts_given_envs_or_all(name: str) -> None:
    """Within a long period, envs 0 and 2 are captured again, then, without ids, all envs."""
    scene = built(name, update_period=0.1)
    syn.advance(scene, 4)
    scene["x"].reset([0, 2])
    assert scene["x"].capture_tick.tolist() == [4, 0, 4]
    expected = syn.signal(4, 3)
    expected[1] = syn.signal(0, 3)[1]
    assert position(scene, name).equal(expected)
    syn.advance(scene, 7)
    assert scene["x"].frame.tolist() == [2, 2, 2] and position(scene, name).equal(syn.signal(10, 3))
    scene["x"].reset()
    assert scene["x"].frame.tolist() == [1, 1, 1] and position(scene, name).equal(syn.signal(11, 3))


@each_sensor
def test_a_sensor_is_ready_when_the_scene_is_built(name: str) -> None:
    """Every sensor is initialised: its first sample exists before the first step."""
    scene = built(name)
    assert scene["x"].is_initialized is True
    assert position(scene, name).equal(syn.signal(0, 3))


@pytest.mark.parametrize(
    ("name", "several"),
    [(name, 1 if name == "SensorBase" else 2) for name in SENSORS],
    ids=list(SENSORS),
)
def test_instances_are_sensors_per_env_times_envs(name: str, several: int) -> None:
    """Three envs give three instances with a single place, and six where a plural selector finds two bodies in each."""
    cfg = SENSORS[name][0](**{} if name == "SensorBase" else {"bodies": ".*"})
    one = sn.Scene(sn.TensorEngine(3, provides=PROVIDES, shapes=SHAPES), [SENSORS[name][0]()])
    two = sn.Scene(sn.TensorEngine(3, bodies=("body", "other"), provides=PROVIDES, shapes=SHAPES), [cfg])
    assert one["x"].num_instances == 3 and two["x"].num_instances == 3 * several
    if name == "SensorBase":
        return
    for path in ("/World/envs/env_0/body", "/World/envs/env_1/body"):  # of one environment
        alone = sn.TensorEngine(1, provides=PROVIDES, shapes=SHAPES)
        for engine in (alone, sn.TensorEngine(3, provides=PROVIDES, shapes=SHAPES)):
            if engine is alone and "env_0" in path:
                assert sn.Scene(engine, [SENSORS[name][0](prim_path=path)])["x"].num_instances == 1
                continue
            with pytest.raises(sn.PathError, match=r"a path in .* Write '\{ENV_REGEX_NS\}/body'") as caught:
                sn.Scene(engine, [SENSORS[name][0](prim_path=path)])
            assert isinstance(caught.value, RuntimeError | ValueError)


@pytest.mark.parametrize(
    ("name", "draws"),
    [(name, name != "SensorBase") for name in SENSORS],
    ids=list(SENSORS),
)
def test_set_debug_vis_returns_whether_the_sensor_draws(name: str, draws: bool) -> None:
    """The result is True for a sensor that draws and False otherwise; requesting it in the config is never an error."""
    sensor = built(name, debug_vis=True)["x"]
    assert sensor.has_debug_vis_implementation is draws
    assert sensor.set_debug_vis(True) is draws and sensor.set_debug_vis(False) is draws


def test_unsupported_camera_types_match_the_page() -> None:
    """Exactly these types are refused, each by name."""
    row = next(row for row in DOCUMENTS[0].rows if row.name == "RayCasterCamera.UNSUPPORTED_TYPES")
    words = row.says.partition(": ")[2].split(", ")
    assert {*words} == sn.RayCasterCamera.UNSUPPORTED_TYPES
    for word in words:
        with pytest.raises(ValueError, match=rf"data_types.*without {word}, which cast rays do not provide"):
            ray_camera(data_types=["distance_to_camera", word])


# Prim paths -----------------------------------------------------------------------------------------------------------

ROBOT = """
<mujoco><worldbody>
  <body name="base" pos="0 0 1"><freejoint/><geom size=".1"/><site name="base"/><site name="sensor" pos=".1 0 0"/>
    <camera name="camera" pos=".2 0 0"/>
    <body name="feet_left" pos="0 .2 -.5"><joint axis="0 1 0"/><geom size=".05"/></body>
    <body name="feet_right" pos="0 -.2 -.5"><joint axis="0 1 0"/><geom size=".05"/></body>
  </body>
</worldbody></mujoco>
"""
BOX = "<mujoco><worldbody><body name='box' pos='2 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
NAMESPACES = ("/World/", "{ENV_REGEX_NS}/", "/World/envs/env_.*/")


def robot() -> sn.MujocoEngine:
    return sn.MujocoEngine.compose({"robot": ROBOT, "box": BOX}, num_envs=2)


PRIM_PATHS = {
    "Camera": ("robot/base/camera", "camera", ["robot/camera"]),
    "ContactSensor": ("robot/feet_*", "body", ["robot/feet_left", "robot/feet_right"]),
    "RayCaster": ("robot/base", "body", ["robot/base"]),
    "FrameTransformer": ("robot/base", "body", ["robot/base"]),
    "Imu": ("robot/base", "body", ["robot/base"]),
}
"""Sensor of the table -> its example path below the world, and the kind and names of its elements."""


@pytest.mark.parametrize("sensor", PRIM_PATHS)
def test_example_path_of_each_sensor_resolves_to_its_element(sensor: str) -> None:
    """Every notation of the namespace works; the camera is found by its name, and bodies precede sites of the same
    name.

    Where the path must lead to a single element, several matches are refused; a missing leaf is always refused.
    """
    path, kind, names = PRIM_PATHS[sensor]
    engine = robot()
    for namespace in NAMESPACES:
        assert match_prim_path(namespace + path, engine, "Cfg") == (kind, names)
    if len(names) == 1:
        assert match_prim_path(f"/World/{path}", engine, "Cfg", exactly_one=True) == (kind, names)
    else:
        with pytest.raises(sn.SelectionError, match="exactly one body"):
            match_prim_path(f"/World/{path}", engine, "Cfg", exactly_one=True)
    with pytest.raises(RuntimeError, match="Tried 'robot/base/none' and 'none'"):
        match_prim_path("/World/robot/base/none", engine, "Cfg")


@pytest.mark.parametrize("sensor", ["FrameTransformer", "RayCaster", "Imu"])
def test_prim_path_selects_the_body_of_the_sensor(sensor: str) -> None:
    """The path may name an articulation body or a free rigid body, but not several bodies or a missing body."""
    make, field = SENSORS[sensor]
    engine = robot()
    for path, body in (("/World/robot/base", "robot/base"), ("{ENV_REGEX_NS}/robot/feet_left", "robot/feet_left"),
                       ("/World/envs/env_.*/box/box", "box/box")):  # fmt: skip
        scene = sn.Scene(engine, [make(prim_path=path)])
        row = engine.names("body").index(body)
        assert getattr(scene["x"].data, field).equal(engine.array("body_pos_w")[:, row])
        assert scene["x"].info.bodies == (body,)
    with pytest.raises(sn.SelectionError, match="exactly one body"):
        sn.Scene(engine, [make(prim_path="/World/robot/feet_*")])
    with pytest.raises(sn.SelectionError, match="prim_path") as missing:
        sn.Scene(engine, [make(prim_path="/World/robot/tail")])
    assert isinstance(missing.value, RuntimeError)


def test_a_missing_path_of_bodies_filters_or_meshes_is_a_runtime_error() -> None:
    engine = robot()
    for cfg in (
        contact("/World/robot/tail_.*"),
        contact("/World/robot/feet_*", filter_prim_paths_expr=["/World/robot/tail"]),
        transformer(target_frames=[FRAME(prim_path="/World/robot/tail")]),
        ray_caster(targets=["/World/robot/tail"]),
    ):
        with pytest.raises(RuntimeError, match="robot/tail"):
            sn.Scene(engine, [cfg if cfg.prim_path else cfg.replace(body="robot/base")])


@pytest.mark.parametrize("sensor", ["FrameTransformer", "RayCaster", "RayCasterCamera", "Imu"])
def test_the_environment_namespace_stands_for_all_environments(sensor: str) -> None:
    """`{ENV_REGEX_NS}/Robot/sensor` equals `/World/envs/env_.*/Robot/sensor`: the sensor's place in each env."""
    make, field = SENSORS[sensor]
    for path in ("{ENV_REGEX_NS}/Robot/sensor", "/World/envs/env_.*/Robot/sensor"):
        engine = sn.MujocoEngine.compose({"Robot": ROBOT, "Spare": (ROBOT, (0.0, 2.0, 0.0))}, num_envs=2)
        scene = sn.Scene(engine, [make(prim_path=path)])  # the leaf alone would match two sites
        assert scene["x"].info.mounts == ("Robot/sensor",)
        torch.testing.assert_close(getattr(scene["x"].data, field), torch.tensor([[0.1, 0.0, 1.0]] * 2))


@pytest.mark.parametrize("space", NAMESPACES)
def test_entity_name_alone_selects_its_root_body(space: str) -> None:
    """This holds for mounts, target frames, contact sources and filters, and ray targets; the root has another name."""
    path = {name: f"{space}{name}" for name in ("Robot", "Cube")}
    scene = sn.Scene(
        sn.MujocoEngine.compose({"Robot": ROBOT, "Cube": BOX}, num_envs=2),
        [
            sn.ImuCfg(name="imu", prim_path=path["Cube"]),
            sn.FrameTransformerCfg(
                name="frames", prim_path=path["Robot"], target_frames=[FRAME(prim_path=path["Cube"])]
            ),
            sn.ContactSensorCfg(name="net", prim_path=path["Cube"], filter_prim_paths_expr=[path["Robot"]]),
            sn.RayCasterCfg(name="rays", prim_path=path["Robot"], targets=[path["Cube"]]),
            sn.RayCasterCameraCfg(
                name="eye", prim_path=path["Robot"], pattern=sn.patterns.PinholeCameraPatternCfg(width=4, height=3)
            ),
        ],
    )
    assert scene["imu"].info.bodies == ("Cube/box",)
    assert scene["frames"].info.bodies == ("Robot/base",) and scene["frames"].body_names == ["box"]
    torch.testing.assert_close(scene["frames"].data.target_pos_source[0, 0], torch.tensor([2.0, 0.0, 0.0]))
    assert scene["net"].body_names == ["box"]
    assert scene["net"].data.force_matrix_w.shape == (2, 1, 1, 3)
    assert scene["rays"].info.bodies == ("Robot/base",) and scene["eye"].info.bodies == ("Robot/base",)


def test_entity_name_alone_is_resolved_before_compilation() -> None:
    """`sn.prepare` finds the same bodies for the reports of contacts."""
    spec = mujoco.MjSpec.from_string(COMPOSED)
    cfg = sn.ContactSensorCfg(
        name="x", prim_path="{ENV_REGEX_NS}/Cube", filter_prim_paths_expr=["{ENV_REGEX_NS}/Robot"]
    )
    model = sn.prepare(spec, [cfg]).compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    scene = sn.Scene(sn.MujocoEngine.from_mj(model, data), [cfg])
    assert scene["x"].data.force_matrix_w.shape == (1, 1, 1, 3)


COMPOSED = """
<mujoco><worldbody><geom type="plane" size="5 5 1"/>
  <body name="Robot/base" pos="0 0 1"><freejoint/><geom size=".1"/>
    <body name="Robot/leg" pos="0 .2 0"><joint/><geom size=".05"/>
      <body name="Hand/held"><geom size=".02"/><body name="Hand/tip"/></body></body></body>
  <body name="Cube/box" pos="2 0 1"><freejoint/><geom size=".1"/></body>
  <body name="Pile/a" pos="4 0 1"><freejoint/><geom size=".1"/></body>
  <body name="Pile/b" pos="5 0 1"><freejoint/><geom size=".1"/></body>
</worldbody></mujoco>
"""


def test_entity_with_several_roots_and_name_without_entity_are_refused() -> None:
    """This holds also where the kinematic tree is unknown; a body with that exact name takes precedence."""
    engine = sn.MujocoEngine(COMPOSED)
    assert match_prim_path("{ENV_REGEX_NS}/Robot", engine, "Cfg") == ("body", ["Robot/base"])
    assert match_prim_path("{ENV_REGEX_NS}/Hand", engine, "Cfg") == ("body", ["Hand/held"])
    assert match_prim_path("{ENV_REGEX_NS}/(Robot|Box)", engine, "Cfg") == ("body", ["Robot/base"])
    for exactly_one in (False, True):
        with pytest.raises(sn.SelectionError, match=r"an entity with one root body.*Pile/a, Pile/b"):
            match_prim_path("{ENV_REGEX_NS}/Pile", engine, "Cfg", exactly_one=exactly_one)
    with pytest.raises(sn.SelectionError, match="Tried 'Robo' and 'Robo'"):
        match_prim_path("{ENV_REGEX_NS}/Robo", engine, "Cfg")
    flat = sn.TensorEngine(bodies=("Robot/base", "Robot/foot", "Cube/box", "Cup", "Cup/lid"))
    assert match_prim_path("{ENV_REGEX_NS}/Cube", flat, "Cfg") == ("body", ["Cube/box"])
    assert match_prim_path("{ENV_REGEX_NS}/Cup", flat, "Cfg") == ("body", ["Cup"])
    with pytest.raises(sn.SelectionError, match="an entity with one root body"):
        match_prim_path("{ENV_REGEX_NS}/Robot", flat, "Cfg")


# Examples -------------------------------------------------------------------------------------------------------------

ARM = """
<mujoco><worldbody>
  <body name="arm_base" pos="1 2 .5" quat=".7071067811865476 0 0 .7071067811865476"><geom size=".1"/>
    <body name="upper"><joint name="shoulder" axis="0 0 1"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".02"/>
      <body name="hand" pos=".4 0 0"><joint name="elbow" axis="0 0 1"/><geom size=".03"/></body></body></body>
</worldbody></mujoco>
"""


def test_the_end_effector_of_an_arm_seen_from_its_base() -> None:
    """A point 0.3 m beyond the hand of a planar arm, in the axes of the base, follows textbook forward kinematics."""
    tool = FRAME(prim_path="{ENV_REGEX_NS}/Robot/hand", name="tool", offset=sn.OffsetCfg(pos=(0.3, 0.0, 0.0)))
    cfg = sn.FrameTransformerCfg(prim_path="{ENV_REGEX_NS}/Robot/arm_base", target_frames=[tool])
    scene = sn.Scene(sn.MujocoEngine(ARM, num_envs=3), [cfg])
    a, b = np.array([[0.0, 0.5, -2.0], [0.0, 1.1, 0.7]])
    scene.reset(qpos=np.stack([a, b], axis=1))
    data = scene[cfg].data
    x, y = 0.4 * np.cos(a) + 0.3 * np.cos(a + b), 0.4 * np.sin(a) + 0.3 * np.sin(a + b)
    np.testing.assert_allclose(data.target_pos_source[:, 0], np.stack([x, y, 0 * x], axis=1), atol=1e-6)
    half = 0.5 * (a + b)
    turn = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1)
    np.testing.assert_allclose(data.target_quat_source[:, 0], turn, atol=1e-6)
    np.testing.assert_allclose(data.target_pos_w[:, 0], np.stack([1.0 - y, 2.0 + x, 0.5 + 0 * x], axis=1), atol=1e-6)
    assert data.target_frame_names == ["tool"]
