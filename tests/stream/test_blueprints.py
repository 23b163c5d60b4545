"""Blueprints from configs and configs from blueprints: nothing is lost, and invalid values are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from selection import pairs

import sensorium as sn
import sensorium.sensors.all  # registers the built-in sensors
from sensorium import compat, registry
from sensorium.cfg import meanings
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.errors import ConfigError, SensoriumWarning, UnknownNameError
from sensorium.measurement.sensor_cfg import SELECTORS, MountedSensorCfg, SensorCfg
from sensorium.pose import Pose
from sensorium.presets import presets
from sensorium.stream.blueprints import build_cfg, definitions
from sensorium.wire.attributes import Attribute, SensorDefinition, text_of

ALL = definitions()
OURS = sorted({each.kind() for each in registry.registered() if each.__module__.startswith("sensorium.")})  # type: ignore[attr-defined]
BODY = "robot/base"
LEAST: dict[str, dict[str, Any]] = {
    "builtin": {"sensor_type": "clock"},
    "camera": {"width": 4, "height": 3},
    "elastomer_taxel": {"targets": "cube"},
    "event_camera": {"width": 4, "height": 3},
    "frame_transformer": {"target_frames": [{"body": "world"}]},
    "motor_current": {"torque_constant": 0.1},
    "ray_caster_camera": {"pattern": {"kind": "pinhole_camera", "width": 4, "height": 3}},
    "touch": {"site": "pad"},
}
"""Required choices of kinds for which a body is not sufficient."""


def built(kind: str, **chosen: Any) -> Any:
    attach = None if kind in ("builtin", "touch") else BODY
    return build_cfg(kind, {**LEAST.get(kind, {}), **chosen}, attach_to=attach, name="it")


# Definitions ----------------------------------------------------------------------------------------------------------


def test_every_sensor_has_a_blueprint_with_carlas_id_if_there_is_one() -> None:
    assert {each.kind for each in ALL.values()} >= set(OURS) and len(OURS) > 25
    ids = {each.kind: id for id, each in ALL.items()}
    assert {kind: ids[kind] for kind in ("depth", "ray_cast", "radar", "gnss", "imu")} == {
        "depth": "sensor.camera.depth",
        "ray_cast": "sensor.lidar.ray_cast",
        "radar": "sensor.other.radar",
        "gnss": "sensor.other.gnss",
        "imu": "sensor.other.imu",
    }
    assert all(ids[kind] == f"sensor.other.{kind}" for kind in OURS)
    assert all(each.where == "scene" and each.kind in each.tags for each in ALL.values())


@pytest.mark.parametrize("kind", OURS)
def test_every_field_except_name_offset_and_refused_selectors_is_an_attribute(kind: str) -> None:
    """Each attribute has the description from the config's source."""
    cfg_class = registry.cfg_for_kind(kind)
    definition = next(each for each in ALL.values() if each.kind == kind)
    variant = compat.variants().get(definition.id)
    names = variant.names if variant is not None else {}  # fields with other names
    left_out = set(cfg_class.model_fields) - {each.id for each in definition} - names.keys()
    known = {"name", "offset"}
    if issubclass(cfg_class, MountedSensorCfg):
        known |= {each for each in SELECTORS if each not in definition}
    more = {each.id for each in definition if not each.id.startswith("noise_")} - set(cfg_class.model_fields)
    assert left_out <= known and more == ({"sensor_tick", *names.values()} if variant is not None else set())
    if kind in ("imu", "joint"):
        schema = cfg_class.model_json_schema()
        both = schema["properties"].keys() & {each.id for each in definition}
        assert definition.defs == schema["$defs"]
        assert {each: definition[each].schema for each in both} == {each: schema["properties"][each] for each in both}
    for name, text in meanings(cfg_class).items():
        is_own = name in left_out or name in names or (kind, name) == ("radar", "distribution")
        assert is_own or definition[name].doc == " ".join(text.split())


@pytest.mark.parametrize(
    ("id", "name", "expected"),
    [
        ("sensor.other.imu", "rate_hz", {"type": "number", "expected": "a number > 0 (Hz)", "default": None}),
        ("sensor.other.imu", "update_period", {"type": "number", "expected": "a number >= 0 (s)", "default": 0.0}),
        ("sensor.other.imu", "sensor_tick", {"type": "number", "unit": "s", "default": None}),
        ("sensor.other.imu", "history_length", {"expected": "a whole number >= 0", "default": 0}),
        ("sensor.other.imu", "debug_vis", {"type": "boolean", "default": False, "unit": ""}),
        ("sensor.other.imu", "gravity_bias", {"expected": "3 numbers, e.g. [0, 0, 1]", "default": None}),
        ("sensor.other.imu", "gyro_noise", {
            "expected": "a value, or a text in JSON or TOML, with numbers >= 0", "unit": "rad/s", "default": None,
        }),
        ("sensor.other.imu", "bias", {"expected": "a value, or a text in JSON or TOML", "unit": ""}),
        ("sensor.other.imu", "stages", {"type": "structure", "default": []}),
        ("sensor.other.imu", "site", {"type": "structure", "default": None}),
        ("sensor.other.imu", "fields", {"type": "structure", "recommended_values": ("measured", "all")}),
        ("sensor.other.imu", "acceleration", {
            "type": "string", "restrict_to_recommended": True, "default": "auto",
            "recommended_values": ("auto", "engine", "difference"),
        }),
        ("sensor.lidar.ray_cast", "sub_rays", {
            "type": "integer", "restrict_to_recommended": True, "recommended_values": ("7", "19"), "default": 7,
        }),
        ("sensor.other.force_torque", "tare", {
            "type": "structure", "restrict_to_recommended": True, "recommended_values": ("true", "false", "manual"),
            "default": False,
        }),
        ("sensor.other.force_torque", "tool_com", {"type": "array", "unit": "m"}),
        ("sensor.other.magnetometer", "unit", {"type": "string", "restrict_to_recommended": True, "default": None}),
        ("sensor.other.motor_current", "torque_constant", {"type": "structure", "required": True, "unit": "N m/A"}),
        ("sensor.other.motor_current", "cogging", {"expected": "numbers, e.g. [0, 0, 1] (N m)", "default": ()}),
        ("sensor.other.gnss", "heading_deg", {"type": "number", "unit": "deg"}),
        ("sensor.other.surface_distance_probe", "lookup", {"type": "structure", "unit": "m"}),
        ("sensor.other.depth_camera", "res", {"type": "structure", "default": [128, 96]}),
        ("sensor.other.ray_caster", "pattern", {"type": "structure", "default": {"kind": "grid"}}),
    ],
)  # fmt: skip
def test_attribute_types_units_bounds_defaults_and_choices_match_the_field(
    id: str, name: str, expected: dict[str, Any]
) -> None:
    attribute = ALL[id][name]
    assert {each: getattr(attribute, each) for each in expected} == expected


BESIDE = {
    "lidar": {"detection_sd", "sub_rays", "pulse_duration", "atmosphere_attenuation_rate", "dropoff_general_rate",
              "dropoff_intensity_limit", "dropoff_zero_intensity", "noise_stddev"},
    "contact_sensor": {"filter_prim_paths_expr", "track_pose", "max_contact_data_count_per_prim"},
    "radar": {"reference_range", "rcs", "incidence_exponent"},
}  # fmt: skip
"""Fields that a config refuses, even with their default, unless another field is given."""


@pytest.mark.parametrize("kind", OURS)
def test_setting_every_default_as_text_changes_nothing(kind: str) -> None:
    """Types, defaults and texts are correct: the resulting config equals the config without choices."""
    definition = next(each for each in ALL.values() if each.kind == kind)
    left_out = {*LEAST.get(kind, {}), *BESIDE.get(kind, ())}
    left_out |= {each.id for each in definition if each.id.startswith("noise_") and kind in ("gnss", "imu")}
    texts = {each.id: text_of(each.default) for each in definition if each.id not in left_out}
    texts = {id: text for id, text in texts.items() if text}
    assert texts and built(kind, **texts) == built(kind)
    assert built(kind, **definition.describe({**LEAST.get(kind, {}), **texts}).values | {
        name: None for name in left_out - {*LEAST.get(kind, {})}
    }) == built(kind)  # fmt: skip


def test_definitions_round_trip_as_plain_data() -> None:
    assert {id: SensorDefinition.from_dict(each.to_dict()) for id, each in ALL.items()} == ALL


@pytest.mark.parametrize(
    ("id", "needs"),
    [
        ("sensor.other.contact", "CONTACT_REPORT (reserve contact)"),
        ("sensor.other.contact_force", "BODY_POSE, CONTACT_REPORT (reserve contact)"),
        ("sensor.other.collision_events", "CONTACT_REPORT (reserve contact)"),
        ("sensor.other.contact_sensor", "CONTACT_REPORT (reserve contact)"),
        ("sensor.other.touch", "NATIVE_SENSOR (reserve touch)"),
        ("sensor.lidar.ray_cast", "BODY_POSE, SHAPES"),
        ("sensor.other.joint", "JOINT_STATE"),
    ],
)
def test_definition_lists_requirements_to_reserve(id: str, needs: str) -> None:
    assert ALL[id].needs == needs


# Configs --------------------------------------------------------------------------------------------------------------


def test_config_from_text_equals_the_one_in_python() -> None:
    cfg = build_cfg(
        "sensor.other.imu",
        {
            "rate_hz": "100",
            "gyro_noise": "{uniform = [0, 0.02]}",
            "acc_bias": "[0.1, 0, 0]",
            "noise_density": '{"lin_acc_b": 0.01}',
            "delay": "0.02",
            "loss": "{p = 0.1, r = 0.5}",
            "stages": "[{kind = 'saturation', fields = ['ang_vel_b'], high = 3.0}]",
            "fields": "all",
            "gravity_bias": "0 0 9.81",
            "debug_vis": "true",
            "history_length": "3",
            "evaluate": "always",
        },
        name="front",
        attach_to=BODY,
        transform=Pose((0.1, 0.0, 0.2), (0.0, 1.0, 0.0, 0.0)),
    )
    assert cfg == sn.ImuCfg(
        name="front",
        body=BODY,
        offset=sn.OffsetCfg(pos=(0.1, 0.0, 0.2), rot=(0.0, 1.0, 0.0, 0.0)),
        rate_hz=100.0,
        gyro_noise=sn.Uniform(0.0, 0.02),
        acc_bias=(0.1, 0.0, 0.0),
        noise_density={"lin_acc_b": 0.01},
        delay=0.02,
        loss=sn.GilbertElliott(0.1, 0.5),
        stages=(sn.stages.Saturation(fields=("ang_vel_b",), high=3.0),),
        fields="all",
        gravity_bias=(0.0, 0.0, 9.81),
        debug_vis=True,
        history_length=3,
        evaluate="always",
    )


def test_typed_values_and_patterns_are_accepted_unchanged() -> None:
    pattern = sn.patterns.GridPatternCfg(size=(1.0, 2.0), resolution=0.5)
    cfg = build_cfg("ray_caster", {"pattern": pattern, "rate_hz": 20, "noise": sn.Normal(0.0, 0.01)}, attach_to=BODY)
    assert cfg == sn.RayCasterCfg(body=BODY, pattern=pattern, rate_hz=20.0, noise=sn.Normal(0.0, 0.01))
    assert build_cfg("ray_caster", {"pattern": "{kind = 'grid', size = [1, 2], resolution = 0.5}", "rate_hz": "20",
                                    "noise": "{normal = [0, 0.01]}"}, attach_to=BODY) == cfg  # fmt: skip


@pytest.mark.parametrize("id", ["sensor.other.lidar", "lidar"])
def test_a_config_is_found_by_id_and_by_kind(id: str) -> None:
    assert build_cfg(id) == sn.LidarCfg(body="world")


def test_unknown_blueprint_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown blueprint 'sensor\.other\.imuu'.*'sensor\.other\.imu'"):
        build_cfg("sensor.other.imuu")
    with pytest.raises(UnknownNameError, match=r"Did you mean 'imu'"):
        build_cfg("imuu")


def test_carla_name_of_the_period_is_accepted() -> None:
    assert build_cfg("imu", {"sensor_tick": "0.1"}) == build_cfg("imu", {"update_period": 0.1})
    with pytest.raises(ConfigError, match=r"sensor_tick: got 0\.1, expected no value, since update_period is set"):
        build_cfg("imu", {"sensor_tick": "0.1", "update_period": "0.1"})


@pytest.mark.parametrize(
    ("kind", "chosen", "says"),
    [
        ("imu", {"rate_hz": "fast"}, [r"rate_hz: got 'fast', expected a number > 0 (Hz)."]),
        (
            "imu",
            {"rate_hz": 100, "update_period": 0.1},
            ["rate_hz: got 100.0, expected either rate_hz or update_period"],
        ),
        ("imu", {"nois": 1, "rate_hz": -1}, ["nois: got unknown attribute with value 1", "rate_hz: got -1, expected"]),
        ("imu", {"stages": "[{kind='saturationn'}]"}, ["stages: got", "Did you mean 'saturation'"]),
        (
            "imu",
            {"acceleration": "engin"},
            ["acceleration: got 'engin', expected one of auto", "Did you mean 'engine'"],
        ),
        ("imu", {"noise": "{uniform = [1]}"}, ["noise.uniform: got [1], expected two numbers"]),
        ("imu", {"site": "a", "body": "b"}, ["mount: got site='a', body='b', expected exactly one selector"]),
        ("motor_current", {"torque_constant": None}, ["torque_constant: got nothing, expected a value"]),
        ("contact", {"on_force": -1.0}, ["on_force: got -1.0, expected a finite force >= 0 in newton"]),
    ],
)
def test_error_names_blueprint_attribute_value_and_accepted_values(
    kind: str, chosen: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        build_cfg(kind, chosen, attach_to=BODY)
    assert error.value.config == f"Blueprint('sensor.other.{kind}')"
    for text in says:
        assert text in str(error.value)


@pytest.mark.parametrize(
    "value", [{"normal": 1, "x": 2}, [[[]]], {"p": {"p": {}}}, "{kind = {}}", [{"kind": {}}], 1e308]
)
@pytest.mark.parametrize("name", ["loss", "stages", "fields", "noise", "body", "gravity_bias", "delay"])
def test_any_value_gives_a_config_or_a_config_error(name: str, value: Any) -> None:
    """Received values never cause any other error."""
    try:
        assert isinstance(build_cfg("imu", {name: value}), sn.ImuCfg)
    except ConfigError as error:
        assert name in str(error)


def test_preset_supplies_unset_fields() -> None:
    known = definitions(presets=presets())
    offered = known["sensor.other.imu"]["preset"]
    assert "preset" in known["sensor.other.lidar"] and "preset" not in known["sensor.lidar.ray_cast"]
    assert offered.restrict_to_recommended and offered.default is None and "bmi088" in offered.recommended_values
    chosen = {"preset": "bmi088", "gyro_noise_density": "0"}
    cfg = build_cfg("imu", chosen, attach_to=BODY, preset=sn.preset)
    assert cfg == sn.preset("bmi088", body=BODY, gyro_noise_density=0.0) and cfg.rate_hz == 400.0
    with pytest.raises(ConfigError, match=r"preset: got 'vlp16', expected a preset of kind imu, not of lidar"):
        build_cfg("imu", {"preset": "vlp16"}, attach_to=BODY, preset=sn.preset)
    with pytest.raises(ConfigError, match=r"preset: got unknown attribute"):
        build_cfg("imu", {"preset": "bmi088"}, attach_to=BODY)


# Attachment -----------------------------------------------------------------------------------------------------------


def test_sensor_is_mounted_on_body_or_world_unless_a_selector_is_given() -> None:
    assert build_cfg("imu", attach_to=BODY) == sn.ImuCfg(body=BODY)
    assert build_cfg("imu") == sn.ImuCfg(body="world")
    assert build_cfg("imu", {"site": "imu"}, attach_to=BODY) == sn.ImuCfg(site="imu")
    assert build_cfg("imu", {"sites": '["a", "b"]'}) == sn.ImuCfg(sites=("a", "b"))
    assert build_cfg("lidar", {"site": "{type = 'site', name = 'top'}"}, attach_to=BODY).site.name == "top"


def test_contacts_are_measured_on_the_body_and_joints_on_its_robot() -> None:
    match = sn.ContactMatch(mode="body", pattern=BODY)
    assert build_cfg("collision_events", attach_to=BODY) == sn.CollisionEventsCfg(primary=match)
    assert build_cfg("contact_sensor", attach_to=BODY) == sn.ContactSensorCfg(primary=match)
    foot = {"primary": "{mode = 'subtree', pattern = 'robot/foot'}"}
    assert build_cfg("collision_events", foot, attach_to=BODY).primary.mode == "subtree"
    assert build_cfg("contact_sensor", {"prim_path": "foot"}, attach_to=BODY) == sn.ContactSensorCfg(prim_path="foot")
    assert build_cfg("joint", attach_to=BODY) == sn.JointSensorCfg(joints="robot/.*")
    assert build_cfg("joint", attach_to="ro.bot/arm/base") == sn.JointSensorCfg(joints=r"ro\.bot/.*")
    assert build_cfg("joint", attach_to="base") == sn.JointSensorCfg(joints=".*")
    assert build_cfg("joint", {"joint": "knee"}, attach_to=BODY) == sn.JointSensorCfg(joint="knee")


@pytest.mark.parametrize(
    ("kind", "attach", "says"),
    [
        (
            "touch",
            BODY,
            "attach_to: got 'robot/base', expected no value, since this sensor is not mounted on a body. Set site",
        ),
        ("touch", None, "attach_to: got None, expected a place. Set site."),
        (
            "builtin",
            BODY,
            "attach_to: got 'robot/base', expected no value, since this sensor is not mounted on a body. Set obj",
        ),
        ("contact", None, "attach_to: got None, expected the name of a body. Set attach_to or geom."),
        ("contact", "world", "attach_to: got 'world', expected a body or a geom"),
        (
            "force_torque",
            None,
            "attach_to: got None, expected the name of a body. Set attach_to or site or joint.",
        ),
        ("collision_events", None, "primary: got nothing, expected a value"),
        ("joint", None, "joints: got no selector, expected exactly one of joint and joints"),
    ],
)
def test_unsuitable_attachment_is_refused_with_the_attribute_to_set(kind: str, attach: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_cfg(kind, attach_to=attach)
    assert str(error.value).startswith(f"Blueprint('sensor.other.{kind}').{says}")


def test_pose_is_refused_for_sensors_without_pose() -> None:
    up = Pose((0.0, 0.0, 1.0))
    with pytest.raises(ConfigError, match=r"transform: got Pose.*expected the identity\. A joint has no pose"):
        build_cfg("joint", attach_to=BODY, transform=up)
    with pytest.raises(
        ConfigError, match=r"Blueprint\('sensor\.other\.contact'\)\.transform: got .* expected no offset"
    ):
        build_cfg("contact", attach_to=BODY, transform=up)
    assert build_cfg("joint", attach_to=BODY, transform=Pose()) == build_cfg("joint", attach_to=BODY)


def test_spawned_imu_uses_its_pose() -> None:
    """Turned by 90 degrees about y, the x axis of the IMU points down: at rest it reads -g there."""
    half = 0.5**0.5
    cfg = build_cfg("imu", attach_to="body", transform=Pose(rot=(half, 0.0, half, 0.0)))
    scene = sn.Scene(sn.TensorEngine(2, 0.01, provides=("pose", "velocity", "gravity")), [cfg])
    expected = torch.tensor([[-9.81, 0.0, 0.0]] * 2)
    torch.testing.assert_close(scene["imu"].data.lin_acc_b, expected, rtol=1e-6, atol=1e-5)


def test_spawned_camera_looks_along_x() -> None:
    """Half a metre ahead of the body and 2 m from a wall, the camera sees the wall at 1.5 m, upright."""
    wall = sn.engines.Shape("box", "wall", (0.5, 30.0, 30.0), pos=(2.5, 0.0, 0.0))  # the wall's face is at x = 2
    floor = sn.engines.Shape("box", "floor", (30.0, 30.0, 0.5), pos=(0.0, 0.0, -1.5))  # the floor's face is at z = -1
    cfg = build_cfg("depth_camera", {"res": "[32, 24]"}, attach_to="body", transform=Pose((0.5, 0.0, 0.0)))
    image = sn.Scene(sn.TensorEngine(1, 0.01, shapes=(wall, floor)), [cfg])["depth_camera"].read_image()[0]
    torch.testing.assert_close(image[:12], torch.full((12, 32), 1.5), rtol=1e-6, atol=0.0)
    assert (image[-1] < 1.5).all()  # the floor is at the bottom of the image


CAMERA = {"kind": "pinhole_camera", "width": 9, "height": 9, "focal_length": 12.0, "horizontal_aperture": 12.0}
DIRECTED = [
    ("camera", {"width": 9, "height": 9}, ""),
    ("depth_camera", {"res": [9, 9]}, ""),
    ("depth_camera", {}, "d435"),
    ("depth_camera", {}, "kinect_v1"),
    ("ray_caster_camera", {"pattern": CAMERA}, ""),
    ("lidar", {"scan_duration": 0.1, "update_period": 0.1}, ""),
    ("lidar", {"update_period": 0.1}, "vlp16"),
    ("radar", {"points": 400}, ""),
    ("ray_caster", {"pattern": {"kind": "spherical", "n_points": [9, 9], "fov": [20.0, 20.0]}}, ""),
]
"""Every directed kind of sensor, with devices."""
SLOW = ("lidar", {"update_period": 0.1}, "mid360")


def _device(value: object) -> str | None:
    """Return the id of a directed sensor: its kind and device; None for other values, which pytest names."""
    return f"{value[0]} {value[2]}".strip() if isinstance(value, tuple) else None


@pytest.mark.parametrize(
    ("attach", "directed"),
    [*pairs(["body", None], DIRECTED), pytest.param("body", SLOW, marks=pytest.mark.full)],
    ids=_device,
)
def test_directional_sensors_look_along_x_of_their_transform(
    attach: str | None, directed: tuple[str, dict[str, Any], str]
) -> None:
    """Turned by 90 degrees to the left and 30 degrees down, the sensor sees a ball 2 m away in its centre."""
    kind, values, device = directed
    turn = Pose(rot=(0.5**0.5, 0.0, 0.0, 0.5**0.5)) @ Pose(
        rot=(math.cos(math.pi / 12), 0.0, math.sin(math.pi / 12), 0.0)
    )
    transform = Pose((0.3, -0.2, 0.1)) @ turn
    ball = sn.engines.Shape("sphere", "ball", (0.3,), pos=tuple(transform.apply((2.3, 0.0, 0.0)).tolist()))
    chosen = values | ({"preset": device} if device else {})
    cfg = build_cfg(kind, chosen, name="it", attach_to=attach, transform=transform, preset=sn.preset)
    scene = sn.Scene(sn.TensorEngine(1, 0.01, shapes=(ball,)), [cfg])
    scene.publish(["it"], poses=True)
    for _ in range(11):
        scene.update()
    pose = scene.publish(["it"], poses=True)["it"].pose[0, 0]
    np.testing.assert_allclose(pose, [*transform.pos, *transform.rot], atol=1e-6)  # the values that listeners get
    truth = scene["it"].ground_truth
    if isinstance(cfg, sn.CameraCfg | sn.DepthCameraCfg | sn.RayCasterCameraCfg):
        image = truth.distance_to_image_plane[0].squeeze()
        height, width = image.shape
        assert abs(float(image[height // 2, width // 2]) - 2.0) < 1e-2
        rows, columns = (axis.double().mean() for axis in torch.nonzero(image.isfinite(), as_tuple=True))
        assert abs(float(rows) - 0.5 * height) <= 0.51 and abs(float(columns) - 0.5 * width) <= 0.51
        return
    if isinstance(cfg, sn.RadarCfg):
        hit = truth.range[0].isfinite()
        azimuth, elevation = truth.azimuth[0][hit], truth.altitude[0][hit]
        distance = truth.range[0][hit]
    else:
        points = truth.points_b if isinstance(cfg, sn.LidarCfg) else truth.ray_hits_w - torch.tensor(transform.pos)
        if not isinstance(cfg, sn.LidarCfg):
            points = points @ torch.tensor(transform.matrix(), dtype=torch.float32)
        distance = truth.distances[0]
        hit = distance.isfinite()
        d = points[0][hit] / distance[hit][:, None]
        azimuth, elevation = torch.atan2(d[:, 1], d[:, 0]), torch.asin(d[:, 2])
        distance = distance[hit]
    assert len(distance) > 3 and abs(float(distance.min()) - 2.0) < 0.05
    assert float(azimuth.abs().max()) < 0.15 > float(elevation.abs().max())
    assert abs(float(azimuth.mean())) < 0.03


def test_a_camera_without_transform_looks_along_x() -> None:
    ahead = sn.DepthCameraCfg(body=BODY, offset={"convention": "world"})
    assert build_cfg("depth_camera", attach_to=BODY) == ahead


def test_a_camera_of_the_model_keeps_its_own_axes() -> None:
    assert build_cfg("depth_camera", {"camera": "wrist"}) == sn.DepthCameraCfg(camera="wrist")


# Third-party sensors --------------------------------------------------------------------------------------------------


class Guard:
    """A streamed sensor outside the scene."""

    @staticmethod
    def definition() -> SensorDefinition:
        reach = Attribute("range", {"type": "number", "default": 1.0})
        return make_generic_sensor_definition("other", "guard", [reach])


def test_added_definitions_keep_the_library_sorted() -> None:
    found = definitions([Guard, Guard])
    assert found["sensor.other.guard"] == Guard.definition()
    assert list(found) == sorted(found) and set(found) == {*definitions(), "sensor.other.guard"}


class Broken:
    """A sensor with an incomplete definition."""

    @staticmethod
    def definition() -> SensorDefinition:
        raise RuntimeError("no idea")


class Second:
    """A sensor with the id of another one."""

    @staticmethod
    def definition() -> SensorDefinition:
        return SensorDefinition(id="sensor.other.imu")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Broken, r"Broken.* has no blueprint: RuntimeError: no idea"),
        (Second, r"another sensor already has the blueprint 'sensor\.other\.imu'"),
    ],
)
def test_broken_definition_is_omitted_by_name(other: Any, says: str) -> None:
    ours = definitions()
    with pytest.warns(SensoriumWarning, match=says):
        found = definitions([other, Guard])
    assert found == {**ours, "sensor.other.guard": Guard.definition()}


def test_undescribable_config_class_is_omitted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class OddCfg(SensorCfg[Any]):
        """A sensor whose kind is not an identifier."""

        @classmethod
        def kind(cls) -> str:
            return "very odd"

    ours = definitions()
    monkeypatch.setitem(registry._pairs, OddCfg, object)
    with pytest.warns(SensoriumWarning, match=r"the sensor 'very odd' has no blueprint: ConfigError"):
        assert definitions() == ours
