"""What Isaac Lab's `omni.isaac.lab.sensors` page names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sensorium as sn

from .rows import REQUIRED, Alias, Code, Document, NotApplicable, Present, Replaced, Row, Status, With, section

HERE = "tests/contract/test_isaaclab.py::"
COMPAT = "tests/compat/test_compat_configs.py::"
CONTACT = "tests/contract/test_contact_rows.py::"
REPORTS = "tests/sensors/test_contact_sensor.py::"
PAIRS = REPORTS + "test_forces_by_prim_path_are_normal_forces_on_the_bodies_in_all_and_by_filter"
ABSENT = REPORTS + "test_what_is_not_asked_for_is_none"
WHOLE_TICKS = REPORTS + "test_times_of_contact_and_air_are_whole_ticks[prim_path]"
UNTRACKED = REPORTS + "test_what_it_does_not_keep_is_an_error"
FRAMES = "tests/sensors/test_frame_transformer.py::"
IMU = "tests/sensors/test_imu.py::"
RAYS = "tests/sensors/test_ray_caster.py::"
RAY_CAMERA = "tests/sensors/test_ray_caster_camera.py::"
RAY_ROWS = "tests/sensors/test_ray_contract.py::"
IMU_MUJOCO = "tests/sensors/test_imu_mujoco.py::"
SCHEDULE = "tests/measurement/test_schedule.py::"

IDENTITY = Code("identity")
BODIES_FIRST = "If no body has the name, a site, geom or camera is used, which is also a frame on a body."
EVERY_TICK = "It reads every tick, because times, latches and histories must include all ticks; readers do not wait"
LAZY = (
    "By default, only if a skipped sample changes no later one: the sensor is due at every tick and has no memory. "
    'With a period it is lazy by `evaluate="on_read"`. With a history, a delay or another memory `evaluate="wanted"` '
    "skips samples while the sensor is not read; the next due one is computed again."
)
OF_ITS_MOUNT = "Of the mount: the offset applies only to the rays, as in the original implementation."
SHAPES = (
    "`set_debug_vis` keeps the wish and `debug_draw` returns plain shapes; only the bridge to mjlab draws them so far"
)
DRAWN = With("Viewer", note=SHAPES)
UNCONFIGURED = With("Viewer", note=f"{SHAPES}. The config rejects it, because there are no marker assets to configure")


# Rows that many classes have ------------------------------------------------------------------------------------------


def of_every_sensor(
    name: str, issue: str = "", ours: str = "", *, cfg: bool = True, every_tick: str = ""
) -> Iterable[Row]:
    """Yield the rows of a sensor class that it has from SensorBase.

    Args:
        name: the class in the document.
        issue: the later work that brings it; empty where it is here (and in `SENSORS` of test_isaaclab.py).
        ours: path of our class, where it is not ``sn.<name>``.
        cfg: whether the document lists the attribute `cfg`.
        every_tick: the test of a sensor that looks at every tick, and leaves nothing to its reader.
    """
    path = ours or f"sn.{name}"

    def here(member: str, present: Status) -> Status:
        return With(issue, where=f"{path}.{member}") if issue else present

    def shown(where: str, test: str, note: str = "") -> Status:
        return With(issue) if issue else Present(where, f"{HERE}{test}[{name}]", note=note)

    if cfg:
        yield Row(f"{name}.cfg", "property", here("cfg", Present(f"{path}.cfg")), "its config")
    made = Replaced(
        ("sn.Scene.sensors", "sn.Scene.add"),
        "A scene builds the sensors of its configs",
        f"{HERE}test_a_sensor_is_ready_when_the_scene_is_built[{name}]",
    )
    yield Row(f"{name}.__init__", "method", With(issue) if issue else made, "makes the sensor of a config: (cfg)")
    for word, says in (
        ("is_initialized", "whether it is initialised"),
        ("num_instances", "number of instances"),
        ("device", "device of computation and memory"),
        ("data", "its data"),
        ("has_debug_vis_implementation", "whether it can draw itself"),
    ):
        status = DRAWN if word.startswith("has_debug_vis") else Present(f"{path}.{word}")
        yield Row(f"{name}.{word}", "property", here(word, status), says)
    yield Row(f"{name}.set_debug_vis", "method", here("set_debug_vis", DRAWN), "(debug_vis) -> bool")
    again = Present(f"{path}.reset", call="env_ids=None")
    yield Row(f"{name}.reset", "method", here("reset", again), "(env_ids=None)")
    yield Row(
        f"{name}: is_initialized is true once it is ready",
        "guarantee",
        shown(
            f"{path}.is_initialized",
            "test_a_sensor_is_ready_when_the_scene_is_built",
            "Every sensor is ready, so it is never false.",
        ),
        "true if initialised, else false",
    )
    yield Row(
        f"{name}: num_instances counts all envs",
        "guarantee",
        shown(f"{path}.num_instances", "test_instances_are_sensors_per_env_times_envs"),
        "sensors per environment times environments",
    )
    yield Row(
        f"{name}: data are updated when they are accessed",
        "guarantee",
        Replaced((f"{path}Cfg.evaluate",), EVERY_TICK, every_tick)
        if every_tick
        else shown(f"{path}.data", "test_data_are_computed_on_access_or_by_force", LAZY),
        "so that nothing is computed that nobody uses",
    )
    yield Row(
        f"{name}: snippet for the data property",
        "example",
        With(issue)
        if issue
        else Replaced(
            ("sn.Sensor.data", "sn.SimpleSensor.update_raw_data"),
            "The base class has the only `data`; an author fills the given record when it is needed",
            every_tick or f"{HERE}test_data_are_computed_on_access_or_by_force[{name}]",
        ),
        "refreshes outdated buffers, then returns them",
    )
    yield Row(
        f"{name}: set_debug_vis is false where unsupported",
        "guarantee",
        With(issue) if issue else DRAWN,
        "whether it was set; false if the sensor cannot draw",
    )
    yield Row(
        f"{name}: reset takes the given envs, or all",
        "guarantee",
        shown(f"{path}.reset", "test_reset_starts_the_given_envs_anew_or_all"),
        "None resets every environment",
    )


def of_every_config(name: str, issue: str = "", ours: str = "", *, note: bool = True, own: str = "") -> Iterable[Row]:
    """Yield the rows of a config class that it has from SensorBaseCfg.

    Args:
        name: the class in the document.
        issue: the later work that brings it; empty where it is here.
        ours: path of our class, where it is not ``sn.<name>``.
        note: whether the document says how the environments' namespace is written.
        own: where the tests of namespace and history are that belong to this class alone.
    """
    path = ours or f"sn.compat.isaaclab.{name}"
    sensor = name.removesuffix("Cfg")

    def here(field: str, present: Status) -> Status:
        return With(issue, where=f"{path}.{field}") if issue else present

    def shown(where: str, test: str, why: str = "") -> Status:
        return With(issue) if issue else Present(where, f"{HERE}{test}", note=why)

    def alone(where: str, test: str, mark: str = f"[{sensor}]") -> Status:
        return Present(where, f"{own}{test}") if own else shown(where, f"{test}{mark}")

    where = "sn.MountedSensorCfg.prim_path" if ours else f"{path}.prim_path"
    optional: Any = (
        {"default": None, "why": "One of several selectors, exactly one of which must be given"} if ours else {}
    )
    given = Present(where, f"{HERE}test_an_entity_alone_is_its_root_body_in_every_selector", **optional)
    yield Row(f"{name}.prim_path", "cfg field", here("prim_path", given), "path of the prim, or pattern", REQUIRED)
    if note:
        test, mark = "test_the_environment_namespace_stands_for_all_environments", "" if ours else f"[{sensor}]"
        yield Row(
            f"{name}: {{ENV_REGEX_NS}} in a path",
            "guarantee",
            alone(where, test, mark),
            "stands for the namespace of the environments",
        )
        yield Row(
            f"{name}: {{ENV_REGEX_NS}}/Robot/sensor",
            "example",
            alone("", test, mark),
            "is the same as /World/envs/env_.*/Robot/sensor",
        )
    period = Present(f"{path}.update_period")
    yield Row(f"{name}.update_period", "cfg field", here("update_period", period), "seconds between updates", 0.0)
    yield Row(
        f"{name}: update_period 0",
        "guarantee",
        shown(f"{path}.update_period", f"test_a_period_of_zero_samples_at_every_step[{sensor}]"),
        "updates at every step",
    )
    length = Present(f"{path}.history_length")
    yield Row(f"{name}.history_length", "cfg field", here("history_length", length), "past frames that are kept", 0)
    yield Row(
        f"{name}: history_length 0",
        "guarantee",
        alone(f"{path}.history_length", "test_history_is_kept_where_a_length_is_given"),
        "keeps the present data only",
    )
    yield Row(f"{name}.debug_vis", "cfg field", here("debug_vis", DRAWN), "whether it is drawn", False)


def of_an_offset(name: str, issue: str = "", ours: str = "", *, convention: bool = False) -> Iterable[Row]:
    """Yield the rows of a class that holds an offset.

    Args:
        name: the class in the document.
        issue: the later work that brings it; empty where it is here.
        ours: path of our class, where it is not ``sn.<name>``.
        convention: whether it also says the camera convention of the offset.
    """
    path = ours or f"sn.{name}"

    def here(field: str) -> Status:
        return With(issue, where=f"{path}.{field}") if issue else Present(f"{path}.{field}")

    yield Row(name, "class", With(issue, where=path) if issue else Present(path), "pose of a frame in its parent's")
    yield Row(f"{name}.pos", "cfg field", here("pos"), "translation", (0.0, 0.0, 0.0))
    yield Row(f"{name}.rot", "cfg field", here("rot"), "quaternion (w, x, y, z)", (1.0, 0.0, 0.0, 0.0))
    if convention:
        yield Row(f"{name}.convention", "cfg field", here("convention"), "opengl, ros or world", "ros")
        test = RAY_CAMERA + "test_an_offset_in_any_convention_is_the_same_camera"
        yield from in_conventions(f"{name}.convention", issue, f"{path}.convention", test)


def in_conventions(name: str, issue: str, where: str, test: str) -> Iterable[Row]:
    """Yield one row per camera convention.

    Args:
        name: what is in a convention.
        issue: the later work that brings it; empty where it is here.
        where: its path.
        test: the test of it, which has one case per convention.
    """
    for word, axes in (
        ("opengl", "forward -z, up +y, as a USD camera"),
        ("ros", "forward +z, up -y"),
        ("world", "forward +x, up +z"),
    ):
        yield Row(f"{name} {word}", "guarantee", With(issue) if issue else Present(where, f"{test}[{word}]"), axes)


# Cameras: what a rendered and a ray-cast one share --------------------------------------------------------------------

TYPES = {
    "rgb": "rendered colour, 3 channels",
    "rgba": "rendered colour with alpha, 4 channels",
    "distance_to_camera": "distance to the optical centre",
    "distance_to_image_plane": "distance to the camera plane along its z",
    "depth": "the same as distance_to_image_plane",
    "normals": "surface normals per pixel",
    "motion_vectors": "motion per pixel",
    "semantic_segmentation": "semantic labels per pixel",
    "instance_segmentation_fast": "instances per pixel",
    "instance_id_segmentation_fast": "instance ids per pixel",
}
UNSUPPORTED = {
    "instance_segmentation": "not supported; its fast counterpart is",
    "instance_id_segmentation": "not supported; its fast counterpart is",
    "bounding_box_2d_tight": "not supported: tight 2D boxes of visible parts",
    "bounding_box_2d_tight_fast": "not supported: tight 2D boxes of visible parts",
    "bounding_box_2d_loose": "not supported: loose 2D boxes including occluded parts",
    "bounding_box_2d_loose_fast": "not supported: loose 2D boxes including occluded parts",
    "bounding_box_3d": "not supported: 3D boxes in view space",
    "bounding_box_3d_fast": "not supported: 3D boxes in view space",
}
NOT_BY_RAYS = (
    *UNSUPPORTED, "instance_segmentation_fast", "instance_id_segmentation_fast", "motion_vectors", "rgb",
    "semantic_segmentation", "skeleton_data",
)  # fmt: skip


def of_every_camera(name: str, issue: str = "") -> Iterable[Row]:
    """Yield the rows of a camera class beyond those of every sensor.

    Args:
        name: the class in the document.
        issue: the later work that brings it; empty where it is here.
    """
    path = f"sn.{name}"
    rendered = name != "RayCasterCamera"
    refused: Iterable[str] = UNSUPPORTED if rendered else NOT_BY_RAYS

    def here(member: str, call: str | None = None) -> Status:
        return With(issue, where=f"{path}.{member}") if issue else Present(f"{path}.{member}", call=call)

    def shown(member: str, test: str) -> Status:
        return With(issue) if issue else Present(f"{path}.{member}", RAY_CAMERA + test)

    never = Replaced(
        ("sn.Scene.sensors", "sn.Sensor.is_initialized"),
        "Every sensor is ready",
        f"{HERE}test_a_sensor_is_ready_when_the_scene_is_built[{name}]",
    )
    yield Row(
        f"{name}.UNSUPPORTED_TYPES",
        "property",
        here("UNSUPPORTED_TYPES"),
        f"set of unsupported types: {', '.join(sorted(refused))}",
    )
    yield Row(
        f"{name}: data types that it cannot give",
        "error",
        With(issue)
        if issue
        else Present(
            "sn.ConfigError", HERE + "test_the_types_that_a_camera_by_rays_cannot_give_are_those_of_the_page",
            builtin="ValueError",
            note="When its config is made.",
        ),
        "a ValueError when it is made",
    )  # fmt: skip
    if rendered:
        yield Row(f"{name}: no camera at the given path", "error", With(issue), "a RuntimeError when it is made")
    yield Row(f"{name}.frame", "property", here("frame"), "number of the frame measured last")
    yield Row(f"{name}.image_shape", "property", here("image_shape"), "(height, width)")
    yield Row(
        f"{name}.set_intrinsic_matrices",
        "method",
        here("set_intrinsic_matrices", "matrices, focal_length=1.0, env_ids=None"),
        "(matrices, focal_length=1.0, env_ids=None); matrices [N, 3, 3], focal length in cm, None sets all",
    )
    if rendered:
        for part in ("focal_length", "horizontal_aperture", "vertical_aperture"):
            yield Row(f"{name}.set_intrinsic_matrices sets {part}", "guarantee", With(issue))
        for part in ("horizontal_aperture_offset", "vertical_aperture_offset"):
            yield Row(f"{name}.set_intrinsic_matrices sets {part}", "guarantee", With(issue))
        yield Row(
            f"{name}.set_intrinsic_matrices: warning",
            "guarantee",
            With(issue),
            "right only for square pixels and an optical centre in the middle of the image",
        )
    yield Row(
        f"{name}.set_world_poses",
        "method",
        here("set_world_poses", 'positions=None, orientations=None, env_ids=None, convention="ros"'),
        '(positions=None, orientations=None, env_ids=None, convention="ros"); [N, 3] m, [N, 4] wxyz, None sets all',
    )
    set_poses = "set_world_poses"
    yield from in_conventions(
        f"{name}.{set_poses}", issue, f"{path}.{set_poses}", RAY_CAMERA + "test_a_pose_that_was_set_is_read_back"
    )
    yield Row(
        f"{name}.set_world_poses: None",
        "guarantee",
        shown(set_poses, "test_setters_reach_only_the_envs_that_are_named_and_leave_what_is_none"),
        "leaves positions or orientations as they are",
    )
    yield Row(
        f"{name}.set_world_poses before it is initialised", "error", With(issue) if issue else never, "a RuntimeError"
    )
    yield Row(
        f"{name}.set_world_poses_from_view",
        "method",
        here("set_world_poses_from_view", "eyes, targets, env_ids=None"),
        "(eyes, targets, env_ids=None); both [N, 3]: camera positions and their targets, None sets all",
    )
    yield Row(
        f"{name}.set_world_poses_from_view before it is initialised",
        "error",
        With(issue) if issue else never,
        "a RuntimeError",
    )
    yield Row(
        f"{name}.set_world_poses_from_view with an odd up-axis",
        "error",
        NotApplicable("Omniverse", "up-axis of a USD stage; z is up in every model here"),
        "a NotImplementedError where the stage's up-axis is neither Y nor Z",
    )


def of_every_ray_caster_config(name: str) -> Iterable[Row]:
    """Yield the rows that the configs of the ray caster and of its camera share, beyond those of every config."""
    path, sensor = f"sn.compat.isaaclab.{name}", name.removesuffix("Cfg")
    is_camera = sensor == "RayCasterCamera"
    seen = "test_a_moving_mesh_is_followed_in_the_same_step"
    yield Row(
        f"{name}.mesh_prim_paths",
        "cfg field",
        Present(f"{path}.mesh_prim_paths"),
        "paths of the meshes",
        REQUIRED,
    )
    yield Row(
        f"{name}.mesh_prim_paths is one static mesh",
        "guarantee",
        Replaced(
            (f"{path}.mesh_prim_paths",),
            "Any number of paths, and rays also hit moving shapes",
            RAY_ROWS + "test_a_camera_sees_only_the_meshes_it_was_given" if is_camera else RAYS + seen,
        ),
        "more are work in progress there",
    )
    offset = f"{path}.OffsetCfg()"
    yield Row(
        f"{name}.offset",
        "cfg field",
        Present(
            f"{path}.offset", default=sn.RayCasterCameraCfg.OffsetCfg() if is_camera else sn.OffsetCfg(),
            why=f"`{offset}` is the identity",
        ),
        "pose in the parent's frame",
        IDENTITY,
    )  # fmt: skip
    yield Row(
        f"{name}.attach_yaw_only",
        "cfg field",
        Present(
            f"{path}.attach_yaw_only", default="base", note='It is our `ray_alignment`: a flag is `"yaw"` or `"base"`.'
        ),
        "whether starts and directions follow the yaw alone",
    )
    what, how = ("by a camera", "by_a_camera") if is_camera else ("under a robot", "under_a_robot")
    yield Row(
        f"height map {what}",
        "example",
        Present(f"{path}.attach_yaw_only", f"{RAY_ROWS}test_a_height_map_{how}_follows_its_heading_only"),
        "attach_yaw_only: only the yaw counts",
    )
    yield Row(f"{name}.max_distance", "cfg field", Present(f"{path}.max_distance"), "m from the sensor", 1e6)
    yield Row(
        f"{name}.drift_range",
        "cfg field",
        Present(f"{path}.drift_range", note="Of the measured branch."),
        "m, added to the starts' x, y and z",
        (0.0, 0.0),
    )
    yield Row(
        "drift of a floating base's " + ("camera" if is_camera else "pose estimate"),
        "example",
        Present(
            f"{path}.drift_range",
            RAY_CAMERA + "test_the_measured_image_is_taken_from_a_place_that_drifts"
            if is_camera
            else RAYS + "test_the_position_drift_moves_the_measured_scan_only_and_is_drawn_anew_at_each_reset",
        ),
        "simulated by drift_range",
    )
    yield Row(
        f"{name}.visualizer_cfg",
        "cfg field",
        UNCONFIGURED,
        "look of the markers",
        Code("RAY_CASTER_MARKER_CFG"),
    )
    yield Row(
        f"{name}.visualizer_cfg is for debug_vis only",
        "guarantee",
        DRAWN,
    )


def of_a_rendered_camera(name: str) -> Iterable[Row]:
    """Yield the rows of a camera class that renders: its types and its handles."""
    for word, says in TYPES.items():
        yield Row(f"{name} type {word}", "guarantee", With("Cameras"), says)
    for word, says in UNSUPPORTED.items():
        yield Row(f"{name} type {word}", "guarantee", With("Cameras"), says)
    yield from of_every_sensor(name, "Cameras")
    yield from of_every_camera(name, "Cameras")
    yield Row(
        f"{name}.render_product_paths",
        "property",
        NotApplicable("Omniverse", "paths of its render products, for its replicator's writers and annotators"),
    )


def of_a_rendered_camera_config(name: str) -> Iterable[Row]:
    """Yield the rows of a config of a camera that renders."""
    path = f"sn.{name}"

    def field(word: str, says: str, default: object) -> Row:
        return Row(f"{name}.{word}", "cfg field", With("Cameras", where=f"{path}.{word}"), says, default)

    yield from of_an_offset(f"{name}.OffsetCfg", "Cameras", convention=True)
    yield field("offset", "pose of the camera in its parent's frame", IDENTITY)
    yield Row(
        f"{name}: parent frame of the offset",
        "guarantee",
        With("Cameras"),
        "the frame the camera is attached to: of .../Robot/Camera it is .../Robot",
    )
    yield field("spawn", "PinholeCameraCfg, FisheyeCameraCfg or None: the lens to create", REQUIRED)
    yield Row(f"{name}.spawn None", "guarantee", With("Cameras"), "takes a camera that the scene already has")
    yield field("data_types", "types to give", ["rgb"])
    yield from of_every_config(name, "Cameras")
    yield field("width", "pixels", REQUIRED)
    yield field("height", "pixels", REQUIRED)
    yield field("semantic_filter", "which semantics are seen", "*:*")
    yield Row(
        f"{name}.semantic_filter as text",
        "guarantee",
        With("Cameras"),
        "a disjunctive normal form of types and labels: `;` and `,` between types, `|`, `&`, `!` between labels",
    )
    yield Row(
        f"{name}.semantic_filter example with labels",
        "example",
        With("Cameras"),
        "one type with a label but not another, or a third label; and labels of two other types",
    )
    yield Row(
        f"{name}.semantic_filter example with wildcards",
        "example",
        With("Cameras"),
        "`*` for a label takes a whole type, `*` for a type takes a label in any",
    )
    yield Row(f"{name}.semantic_filter as a list", "guarantee", With("Cameras"), 'types to take whole, e.g. ["class"]')
    for word in ("semantic", "instance_id", "instance"):
        each = f"colorize_{word}_segmentation"
        yield field(each, f"whether {word.replace('_', ' ')} segmentation is an image of colours", True)
        yield Row(f"{name}.{each} True", "guarantee", With("Cameras"), "ids become colours, uint8 with 4 channels")
        yield Row(f"{name}.{each} False", "guarantee", With("Cameras"), "ids as int32")


# The table ------------------------------------------------------------------------------------------------------------

ROWS = (
    *section(
        "Overview",
        Row(
            "USD-prim sensors",
            "guarantee",
            With("Cameras", note="The model gets a new camera if it has none of that name."),
            "need a prim to be created, e.g. RTX cameras and lidars",
        ),
        Row(
            "USD-schema sensors",
            "guarantee",
            Replaced(
                ("sn.Sensor.requires", "sn.Requirement"),
                "A sensor declares its requirements, and the engine adds them to the model before it is compiled",
                "tests/engines/test_mujoco.py::test_a_model_is_compiled_once_with_what_the_sensors_need",
            ),
            "need a schema on an existing prim, e.g. contact sensors and frame transformers",
        ),
        Row(
            "custom sensors",
            "guarantee",
            Present("sn.SimpleSensor", "tests/test_check_sensor.py::test_correct_plugins_pass"),
            "are written in Python alone, without prim or schema, e.g. ray-casters",
        ),
        Row(
            "how a prim path is read depends on the sensor",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path", HERE + "test_the_example_path_of_each_sensor_leads_to_its_element"
            ),
        ),
        Row(
            "patterns",
            "guarantee",
            Present(
                "sensorium.patterns", "tests/patterns/test_pattern_configs.py::test_patterns_are_there_as_a_submodule"
            ),
            "submodule with the patterns of rays",
        ),
    ),
    *section(
        "Prim paths",
        Row(
            "Camera: /World/robot/base/camera",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path",
                HERE + "test_the_example_path_of_each_sensor_leads_to_its_element[Camera]",
                note="An existing camera is found by its name.",
            ),
            "the path of the camera itself",
        ),
        Row("Camera: the leaf is free, and a camera is created there", "guarantee", With("Cameras")),
        Row(
            "Contact Sensor: /World/robot/feet_*",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path",
                HERE + "test_the_example_path_of_each_sensor_leads_to_its_element[ContactSensor]",
            ),
            "the leaf exists; it may match several bodies",
        ),
        Row(
            "Contact Sensor: the schema of contact reports is checked",
            "guarantee",
            Replaced(
                ("sn.ContactSensor.needs", "sn.CONTACT_REPORT"),
                "The engine reports the contacts that a config requests, or rejects the config",
                REPORTS + "test_an_engine_without_contacts_is_refused",
            ),
        ),
        Row(
            "Ray Caster: /World/robot/base",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path",
                HERE + "test_the_example_path_of_each_sensor_leads_to_its_element[RayCaster]",
                note=BODIES_FIRST,
            ),
            "the leaf exists and is a body: of an articulation, or rigid",
        ),
        Row(
            "Ray Caster: it sits on that body",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCfg.prim_path",
                HERE + "test_a_sensor_sits_on_the_body_that_its_path_names[RayCaster]",
                note=BODIES_FIRST,
            ),
        ),
        Row(
            "Frame Transformer: /World/robot/base",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path",
                HERE + "test_the_example_path_of_each_sensor_leads_to_its_element[FrameTransformer]",
                note=BODIES_FIRST,
            ),
            "the leaf exists and is a body: of an articulation, or rigid",
        ),
        Row(
            "Frame Transformer: its source is that body",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg.prim_path",
                HERE + "test_a_sensor_sits_on_the_body_that_its_path_names[FrameTransformer]",
            ),
        ),
        Row(
            "Imu: /World/robot/base",
            "guarantee",
            Present(
                "sn.MountedSensorCfg.prim_path",
                HERE + "test_the_example_path_of_each_sensor_leads_to_its_element[Imu]",
                note=BODIES_FIRST,
            ),
            "the leaf exists and is a rigid body",
        ),
        Row(
            "Imu: it sits on that body",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ImuCfg.prim_path", HERE + "test_a_sensor_sits_on_the_body_that_its_path_names[Imu]"
            ),
        ),
    ),
    *section(
        "SensorBase",
        Row("SensorBase", "class", Alias("sn.Sensor", why="One base, under its name in mjlab"), "base of every sensor"),
        *of_every_sensor("SensorBase", ours="sn.Sensor", cfg=False),
        Row(
            "SensorBase.update",
            "method",
            Present("sn.Scene.update", call="force_compute=False", note="Of the scene: its sensors share one clock."),
            "with force_compute=True data are updated at once",
        ),
        Row(
            "SensorBase.update with force_compute",
            "guarantee",
            Present("sn.Scene.update", HERE + "test_data_are_computed_on_access_or_by_force"),
            "computes without being read",
        ),
        Row(
            "evaluation is lazy",
            "guarantee",
            Present("sn.Sensor.is_lazy", HERE + "test_evaluation_is_lazy_where_no_sample_can_be_missed", note=LAZY),
            "nothing is computed while nobody reads",
        ),
        Row(
            "a sensor is updated at its period",
            "guarantee",
            Present("sn.SensorCfg.update_period", SCHEDULE + "test_exact_schedule"),
        ),
        Row(
            "a sensor that is due waits for its reader",
            "guarantee",
            Replaced(
                ("sn.SensorCfg.evaluate", "sn.Sensor.is_lazy"),
                "Samples are on one exact grid of ticks, the same for all envs, whoever reads and when; only where it "
                'makes no difference is a sample left to its first read, or where `evaluate="on_read"` asks for it',
                HERE + "test_a_period_counts_from_the_start_and_not_from_the_last_read",
            ),
            "laziness and period together: data are of the time of the access",
        ),
        Row(
            "without a period a sensor is updated at every step",
            "guarantee",
            Present("sn.SensorCfg.update_period", HERE + "test_a_period_of_zero_samples_at_every_step"),
        ),
    ),
    *section(
        "SensorBaseCfg",
        Row(
            "SensorBaseCfg",
            "class",
            Alias("sn.SensorCfg", why="One base, under its name in mjlab and GeneLab; `MountedSensorCfg` adds a place"),
        ),
        *of_every_config("SensorBaseCfg", ours="sn.SensorCfg"),
    ),
    *section(
        "Camera",
        Row("Camera", "class", With("Cameras"), "gives images of a USD camera in ROS convention; a SensorBase"),
        Row("Camera wraps a camera of the scene", "guarantee", With("Cameras"), "one interface for any visual data"),
        Row("Camera follows the ROS convention", "guarantee", With("Cameras"), "of its coordinate frame"),
        *of_a_rendered_camera("Camera"),
        Row(
            "convert_camera_frame_orientation_convention",
            "method",
            Present(
                "sensorium.geometry.cameras.convert_camera_frame_orientation_convention",
                call='orientation, origin="opengl", target="ros"',
            ),
            "turns an orientation from one convention into another",
        ),
    ),
    *section(
        "CameraData",
        Row(
            "CameraData",
            "class",
            Present("sn.compat.isaaclab.CameraData", note="Of the ray-cast camera so far."),
            "also of the ray-cast camera; N is the number of sensors",
        ),
        Row(
            "CameraData.pos_w",
            "data field",
            Present("sn.CameraData.pos_w", unit="m"),
            "origin in the world, ROS convention",
            shape=("env", 3),
        ),
        Row(
            "CameraData.quat_w_world",
            "data field",
            Present("sn.CameraData.quat_w_world", unit="1"),
            "orientation (w, x, y, z) in the world, world convention",
            shape=("env", 4),
        ),
        *(
            Row(
                f"CameraData.quat_w_{word} convention",
                "guarantee",
                Present(
                    f"sn.CameraData.quat_w_{word}",
                    f"{RAY_CAMERA}test_an_offset_in_any_convention_is_the_same_camera[{word}]",
                ),
                axes,
            )
            for word, axes in (
                ("world", "forward +x, up +z"),
                ("ros", "forward +z, up -y"),
                ("opengl", "forward -z, up +y"),
            )
        ),
        Row("CameraData.image_shape", "property", Present("sn.CameraData.image_shape"), "(height, width)"),
        Row(
            "CameraData.intrinsic_matrices",
            "data field",
            Present("sn.CameraData.intrinsic_matrices", unit="px"),
            shape=("env", 3, 3),
        ),
        Row(
            "CameraData.output",
            "property",
            Present("sn.CameraData.output"),
            "dict: type -> tensor; of segmentations the `data` part",
        ),
        Row(
            "CameraData.info",
            "property",
            Present("sn.CameraData.info", note="None for each type: rays need none."),
            "list of dicts: type -> extra information",
        ),
        Row(
            "CameraData.info of segmentations",
            "guarantee",
            With("Cameras"),
            "labels of ids and similar; otherwise empty",
        ),
        Row(
            "CameraData.quat_w_ros",
            "property",
            Present("sn.CameraData.quat_w_ros"),
            "orientation in the world, ROS convention; [N, 4]",
        ),
        Row(
            "CameraData.quat_w_opengl",
            "property",
            Present("sn.CameraData.quat_w_opengl"),
            "orientation in the world, OpenGL convention; [N, 4]",
        ),
        Row(
            "CameraData fields are None at first",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.RayCasterCameraCfg.data_types",),
                "Data is available when the scene is built; only types that were not requested are None",
                RAY_CAMERA + "test_what_was_not_asked_for_is_absent",
            ),
        ),
    ),
    *section(
        "CameraCfg",
        Row("CameraCfg", "class", With("Cameras"), "a SensorBaseCfg"),
        Row("PinholeCameraCfg", "class", With("Cameras"), "lens of a camera to create; only named"),
        Row("FisheyeCameraCfg", "class", With("Cameras"), "lens of a camera to create; only named"),
        *of_a_rendered_camera_config("CameraCfg"),
    ),
    *section(
        "TiledCamera",
        Row("TiledCamera", "class", With("Cameras"), "the same data as Camera by tiled rendering; a Camera"),
        Row(
            "TiledCamera renders all cameras into one image", "guarantee", With("Cameras"), "in parallel, for many envs"
        ),
        Row(
            "TiledCamera and the version of Isaac Sim",
            "error",
            NotApplicable("Omniverse", "version 4.2 of its simulator, the first with tiled rendering"),
            "a RuntimeError with an older one",
        ),
        *of_a_rendered_camera("TiledCamera"),
    ),
    *section(
        "TiledCameraCfg",
        Row("TiledCameraCfg", "class", With("Cameras"), "a CameraCfg"),
        *of_a_rendered_camera_config("TiledCameraCfg"),
        Row(
            "TiledCameraCfg.return_latest_camera_pose",
            "cfg field",
            With("Cameras", where="sn.TiledCameraCfg.return_latest_camera_pose"),
            "whether data carry the latest pose",
            False,
        ),
        Row("TiledCameraCfg.return_latest_camera_pose True", "guarantee", With("Cameras"), "at the cost of speed"),
        Row("TiledCameraCfg.return_latest_camera_pose False", "guarantee", With("Cameras"), "the pose of the start"),
    ),
    *section(
        "ContactSensor",
        Row(
            "ContactSensor",
            "class",
            Present("sn.compat.isaaclab.ContactSensor"),
            "reports contact forces of bodies; a SensorBase",
        ),
        Row(
            "ContactSensor reports normal forces",
            "guarantee",
            Present("sn.ContactSensorData.net_forces_w", PAIRS),
            "on a rigid body, in the world frame",
        ),
        Row(
            "ContactSensor needs contact reports on its bodies",
            "guarantee",
            Replaced(
                ("sn.ContactSensor.needs",),
                "The sensor itself requests the needs of its config from the engine",
                CONTACT + "test_the_engine_is_asked_for_reports_of_the_bodies_by_the_sensor",
            ),
        ),
        Row(
            "RigidObjectSpawnerCfg.activate_contact_sensors",
            "cfg field",
            NotApplicable("Omniverse", "flag of its asset spawner that switches PhysX contact reports on"),
        ),
        Row(
            "PhysX ContactReporter API",
            "guarantee",
            NotApplicable("PhysX", "schema on the prims of bodies"),
            "has to be active on every body in question",
        ),
        Row(
            "ContactSensor filters by a set of bodies",
            "guarantee",
            Present("sn.ContactSensorData.force_matrix_w", PAIRS),
            "forces of the pairs alone",
        ),
        Row(
            "ContactSensor filters one body against many",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr",),
                "One sensor filters each of its bodies against each of the filters; the limit exists only in PhysX",
                PAIRS,
            ),
            "of several bodies each needs a sensor of its own",
        ),
        Row(
            "all feet against one object",
            "example",
            Replaced(
                ("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr",),
                "One sensor does it",
                CONTACT + "test_all_feet_against_one_object_take_one_sensor",
            ),
            "{ENV_REGEX_NS}/Robot/.*_FOOT against {ENV_REGEX_NS}/Object needs one sensor per foot",
        ),
        *of_every_sensor(
            "ContactSensor", every_tick=CONTACT + "test_every_tick_is_looked_at_whether_it_is_read_or_not"
        ),
        Row("ContactSensor.num_bodies", "property", Present("sn.ContactSensor.num_bodies")),
        Row("ContactSensor.body_names", "property", Present("sn.ContactSensor.body_names"), "in order"),
        Row(
            "ContactSensor.body_physx_view",
            "property",
            Replaced(
                (
                    "sn.ContactSensor.body_physx_view",
                    "sn.compat.isaaclab.ContactSensorCfg.track_pose",
                    "sn.Scene.engine",
                ),
                "A handle of PhysX: it raises an error that names the replacement",
                UNTRACKED,
            ),
            "the RigidBodyView of the bodies, to be used with care",
        ),
        Row(
            "ContactSensor.contact_physx_view",
            "property",
            Replaced(
                ("sn.ContactSensor.contact_physx_view", "sn.ContactSensorData.force_matrix_w", "sn.Engine.array"),
                "A handle of PhysX: it raises an error that names the replacement",
                UNTRACKED,
            ),
            "the RigidContactView of the bodies, to be used with care",
        ),
        Row("RigidBodyView and RigidContactView", "class", NotApplicable("PhysX", "its tensor views")),
        Row(
            "ContactSensor.find_bodies",
            "method",
            Present("sn.ContactSensor.find_bodies", call="name_keys, preserve_order=False"),
            "(name_keys, preserve_order=False) -> indices, names; keys are one pattern or several",
        ),
        Row(
            "ContactSensor.find_bodies preserve_order",
            "guarantee",
            Present("sn.ContactSensor.find_bodies", REPORTS + "test_primaries_are_named_and_found"),
            "keeps the order of the keys",
        ),
        *(
            row
            for what, says, time in (("contact", "began", "contact time"), ("air", "ended", "air time"))
            for row in (
                Row(
                    f"ContactSensor.compute_first_{what}",
                    "method",
                    Present(f"sn.ContactSensor.compute_first_{what}", call="dt, abs_tol=1e-08"),
                    f"(dt, abs_tol=1e-08) -> bool [N, B]: contacts that {says} within the last dt seconds",
                ),
                Row(
                    f"ContactSensor.compute_first_{what} compares times",
                    "guarantee",
                    Present(
                        f"sn.ContactSensor.compute_first_{what}",
                        WHOLE_TICKS,
                        note="In whole ticks. Contacts at a reset are not events.",
                    ),
                    f"the current {time} is less than dt",
                ),
                Row(
                    f"ContactSensor.compute_first_{what}: dt",
                    "guarantee",
                    Present(f"sn.ContactSensor.compute_first_{what}", WHOLE_TICKS),
                    "a multiple of the sensor's step",
                ),
                Row(
                    f"ContactSensor.compute_first_{what} untracked",
                    "error",
                    Present("sn.NotTrackedError", UNTRACKED, builtin="RuntimeError"),
                    "a RuntimeError",
                ),
            )
        ),
    ),
    *section(
        "ContactSensorData",
        Row(
            "ContactSensorData",
            "class",
            Present("sn.compat.isaaclab.ContactSensorData"),
            "N sensors, B bodies each, M filtered bodies, T in history",
        ),
        Row(
            "ContactSensorData fields are None at first",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.ContactSensorCfg",),
                "Data is available when the scene is built; only fields that were not requested are None",
                ABSENT,
            ),
        ),
        Row(
            "ContactSensorData.pos_w",
            "data field",
            Present("sn.ContactSensorData.pos_w", unit="m", shape=("env", "body", 3), note="Of each body."),
            "origin of the sensor in the world",
            shape=("env", 3),
        ),
        Row(
            "ContactSensorData.pos_w is None without track_pose",
            "guarantee",
            Present("sn.compat.isaaclab.ContactSensorCfg.track_pose", ABSENT),
        ),
        Row(
            "ContactSensorData.quat_w",
            "data field",
            Present("sn.ContactSensorData.quat_w", unit="1", shape=("env", "body", 4), note="Of each body."),
            "orientation (w, x, y, z) in the world",
            shape=("env", 4),
        ),
        Row(
            "ContactSensorData.quat_w is None without track_pose",
            "guarantee",
            Present("sn.compat.isaaclab.ContactSensorCfg.track_pose", ABSENT),
        ),
        Row(
            "ContactSensorData.net_forces_w",
            "data field",
            Present("sn.ContactSensorData.net_forces_w", unit="N"),
            "net normal force in the world",
            shape=("env", "body", 3),
        ),
        Row(
            "ContactSensorData.net_forces_w sums normal forces",
            "guarantee",
            Present("sn.ContactSensorData.net_forces_w", PAIRS),
            "without the tangential ones",
        ),
        Row(
            "ContactSensorData.net_forces_w_history",
            "data field",
            Present("sn.ContactSensorData.net_forces_w_history", unit="N"),
            "net normal force in the world",
            shape=("env", "history", "body", 3),
        ),
        Row(
            "ContactSensorData.net_forces_w_history begins with the newest",
            "guarantee",
            Present(
                "sn.ContactSensorData.net_forces_w_history",
                REPORTS + "test_histories_have_the_shapes_of_their_contracts",
                note="One entry per physics tick.",
            ),
        ),
        Row(
            "ContactSensorData.net_forces_w_history sums normal forces",
            "guarantee",
            Present(
                "sn.ContactSensorData.net_forces_w_history",
                CONTACT + "test_friction_is_in_no_entry_of_the_history_of_net_forces",
            ),
            "without the tangential ones",
        ),
        Row(
            "ContactSensorData.force_matrix_w",
            "data field",
            Present("sn.ContactSensorData.force_matrix_w", unit="N"),
            "normal forces between bodies and filter",
            shape=("env", "body", "filter", 3),
        ),
        Row(
            "ContactSensorData.force_matrix_w is None without a filter",
            "guarantee",
            Present("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr", ABSENT),
        ),
        *(
            row
            for word, says in {
                "last_air_time": "time in the air before the last contact, s",
                "current_air_time": "time in the air since the last detachment, s",
                "last_contact_time": "time in contact before the last detachment, s",
                "current_contact_time": "time in contact since the last contact, s",
            }.items()
            for row in (
                Row(
                    f"ContactSensorData.{word}",
                    "data field",
                    Present(f"sn.ContactSensorData.{word}", unit="s"),
                    says,
                    shape=("env", "body"),
                ),
                Row(
                    f"ContactSensorData.{word} is None without track_air_time",
                    "guarantee",
                    Present("sn.compat.isaaclab.ContactSensorCfg.track_air_time", ABSENT),
                ),
            )
        ),
    ),
    *section(
        "ContactSensorCfg",
        Row("ContactSensorCfg", "class", Present("sn.compat.isaaclab.ContactSensorCfg"), "a SensorBaseCfg"),
        Row(
            "ContactSensorCfg.track_pose",
            "cfg field",
            Present("sn.compat.isaaclab.ContactSensorCfg.track_pose"),
            "whether the origin's pose is tracked",
            False,
        ),
        Row(
            "ContactSensorCfg.track_air_time",
            "cfg field",
            Present("sn.compat.isaaclab.ContactSensorCfg.track_air_time"),
            "whether times between contacts are tracked",
            False,
        ),
        *of_every_config("ContactSensorCfg", own=CONTACT),
        Row(
            "ContactSensorCfg.force_threshold",
            "cfg field",
            Present(
                "sn.compat.isaaclab.ContactSensorCfg.force_threshold",
                default=None,
                note="None is 1 N here, the usual value, and any contact with `primary`.",
            ),
            "norm of the force that counts as contact",
        ),
        Row(
            "ContactSensorCfg.force_threshold is for times only",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ContactSensorCfg.force_threshold",
                REPORTS + "test_the_threshold_decides_what_is_contact_for_the_times_alone",
            ),
            "used where track_air_time is on",
        ),
        Row(
            "ContactSensorCfg.filter_prim_paths_expr",
            "cfg field",
            Present("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr"),
            "paths of the bodies to filter by",
            [],
        ),
        Row(
            "ContactSensorCfg.filter_prim_paths_expr empty",
            "guarantee",
            Present("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr", ABSENT),
            "filters nothing",
        ),
        Row(
            "base of a robot against ground and object",
            "example",
            Present("", CONTACT + "test_a_base_reports_ground_and_object_apart"),
            "a report for each of the two",
        ),
        Row(
            "ContactSensorCfg.filter_prim_paths_expr: {ENV_REGEX_NS}",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr",
                CONTACT + "test_the_environment_namespace_stands_for_all_environments",
                note="The namespace alone is the world with everything fixed to it.",
            ),
            "stands for the namespace of the environments",
        ),
        Row(
            "ContactSensorCfg.filter_prim_paths_expr: {ENV_REGEX_NS}/Object",
            "example",
            Present("", CONTACT + "test_the_environment_namespace_stands_for_all_environments"),
            "is the same as /World/envs/env_.*/Object",
        ),
        Row(
            "ContactSensorCfg.filter_prim_paths_expr and several bodies",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.ContactSensorCfg.filter_prim_paths_expr", "sn.ContactSensorData.force_matrix_w"),
                "It works with any number of bodies",
                PAIRS,
            ),
            "works only if prim_path is one body per environment",
        ),
        Row(
            "ContactSensorCfg.visualizer_cfg",
            "cfg field",
            UNCONFIGURED,
            "look of the markers",
            Code("CONTACT_SENSOR_MARKER_CFG"),
        ),
        Row(
            "ContactSensorCfg.visualizer_cfg is for debug_vis only",
            "guarantee",
            DRAWN,
        ),
        Row("CONTACT_SENSOR_MARKER_CFG", "class", NotApplicable("Omniverse", "config of USD markers")),
        Row("VisualizationMarkersCfg", "class", NotApplicable("Omniverse", "config class of USD markers")),
    ),
    *section(
        "FrameTransformer",
        Row(
            "FrameTransformer",
            "class",
            Present("sn.compat.isaaclab.FrameTransformer"),
            "reports transforms; a SensorBase",
        ),
        Row(
            "transforms of target frames with respect to a source frame",
            "guarantee",
            Present(
                "sn.FrameTransformer",
                FRAMES + "test_every_field_follows_the_rigid_transforms_of_a_float64_reference",
            ),
            "one or more targets",
        ),
        Row(
            "source and targets are given by prim paths",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg",
                FRAMES + "test_feet_in_the_base_over_a_walk_with_partial_resets",
            ),
        ),
        Row(
            "source and targets are rigid bodies",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg",
                FRAMES + "test_every_field_follows_the_rigid_transforms_of_a_float64_reference",
                note="Sites, geoms, cameras, joints and the world are frames as well.",
            ),
        ),
        Row(
            "both poses come from the physics engine",
            "guarantee",
            Present("sn.FrameTransformer.requires", FRAMES + "test_it_equals_mujocos_own_frame_sensors"),
            "and the relative one is computed from them",
        ),
        Row(
            "offsets of the source and of each target",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg",
                FRAMES + "test_every_field_follows_the_rigid_transforms_of_a_float64_reference",
            ),
        ),
        Row(
            "end effector of a manipulator",
            "example",
            Present("", HERE + "test_the_end_effector_of_an_arm_seen_from_its_base"),
            "base as the source, the last body with an offset as the target",
        ),
        *of_every_sensor("FrameTransformer"),
    ),
    *section(
        "FrameTransformerData",
        Row(
            "FrameTransformerData",
            "class",
            Present("sn.compat.isaaclab.FrameTransformerData"),
            "N environments, M target frames",
        ),
        Row(
            "FrameTransformerData.target_frame_names",
            "property",
            Present("sn.FrameTransformerData.target_frame_names", note="A list of text, not a tensor."),
            "the order of the target axis",
        ),
        Row(
            "target_frame_names come from FrameCfg.name",
            "guarantee",
            Present("sn.FrameTransformerData.target_frame_names", FRAMES + "test_names_of_frames"),
        ),
        Row(
            "the order of targets need not be that of the config",
            "guarantee",
            Replaced(
                ("sn.FrameTransformerData.target_frame_names", "sn.FrameTransformer.body_names"),
                "The order is that of the config, and inside a pattern that of the model",
                FRAMES + "test_order_is_that_of_the_config_and_inside_a_pattern_that_of_the_model",
            ),
            "because of patterns",
        ),
        Row(
            "FrameTransformerData.target_pos_source",
            "data field",
            Present("sn.FrameTransformerData.target_pos_source", unit="m"),
            "targets in the source frame",
            shape=("env", "target", 3),
        ),
        Row(
            "FrameTransformerData.target_quat_source",
            "data field",
            Present("sn.FrameTransformerData.target_quat_source", unit="1"),
            "(w, x, y, z) in the source frame",
            shape=("env", "target", 4),
        ),
        Row(
            "FrameTransformerData.target_pos_w",
            "data field",
            Present("sn.FrameTransformerData.target_pos_w", unit="m"),
            "targets after their offsets, in the world",
            shape=("env", "target", 3),
        ),
        Row(
            "FrameTransformerData.target_quat_w",
            "data field",
            Present("sn.FrameTransformerData.target_quat_w", unit="1"),
            "(w, x, y, z) after offsets, in the world",
            shape=("env", "target", 4),
        ),
        Row(
            "FrameTransformerData.source_pos_w",
            "data field",
            Present("sn.FrameTransformerData.source_pos_w", unit="m"),
            "source after its offset, in the world",
            shape=("env", 3),
        ),
        Row(
            "FrameTransformerData.source_quat_w",
            "data field",
            Present("sn.FrameTransformerData.source_quat_w", unit="1"),
            "(w, x, y, z) after the offset, in the world",
            shape=("env", 4),
        ),
        Row(
            "FrameTransformerData fields are None at first",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.FrameTransformerCfg.fields",),
                "Data is available when the scene is built; only fields that were not selected are None",
                FRAMES + "test_only_selected_fields_are_computed",
            ),
        ),
    ),
    *section(
        "FrameTransformerCfg",
        Row("FrameTransformerCfg", "class", Present("sn.compat.isaaclab.FrameTransformerCfg"), "a SensorBaseCfg"),
        Row(
            "FrameTransformerCfg.FrameCfg",
            "class",
            Present("sn.compat.isaaclab.FrameTransformerCfg.FrameCfg"),
            "one target frame",
        ),
        Row(
            "FrameTransformerCfg.FrameCfg.prim_path",
            "cfg field",
            Present("sn.compat.isaaclab.FrameTransformerCfg.FrameCfg.prim_path"),
            "path of a rigid body, or pattern",
            REQUIRED,
        ),
        Row(
            "a pattern of targets matches many",
            "guarantee",
            Present("sn.compat.isaaclab.FrameTransformerCfg.FrameCfg.prim_path", FRAMES + "test_all_bodies_of_a_robot"),
        ),
        Row(
            "/Robot/.* seen from /Robot/base",
            "example",
            Present("", FRAMES + "test_all_bodies_of_a_robot"),
            "every body below /Robot, the source among them as the identity",
        ),
        Row(
            "FrameTransformerCfg.FrameCfg.name",
            "cfg field",
            Present("sn.compat.isaaclab.FrameTransformerCfg.FrameCfg.name"),
            "name of the frame",
            None,
        ),
        Row(
            "FrameTransformerCfg.FrameCfg.name None",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg.FrameCfg.name",
                FRAMES + "test_names_of_frames",
                note="If leaves are equal, the full name.",
            ),
            "takes the leaf of the path",
        ),
        Row(
            "FrameTransformerCfg.FrameCfg.offset",
            "cfg field",
            Present("sn.compat.isaaclab.FrameTransformerCfg.FrameCfg.offset", default=sn.OffsetCfg()),
            "pose in the body's frame",
        ),
        *of_every_config("FrameTransformerCfg", note=False),
        Row(
            "FrameTransformerCfg.source_frame_offset",
            "cfg field",
            Present("sn.compat.isaaclab.FrameTransformerCfg.source_frame_offset", default=sn.OffsetCfg()),
            "pose in the source's frame",
        ),
        Row(
            "FrameTransformerCfg.target_frames",
            "cfg field",
            Present("sn.compat.isaaclab.FrameTransformerCfg.target_frames"),
            "list of FrameCfg",
            REQUIRED,
        ),
        Row(
            "one transformer for many targets",
            "guarantee",
            Present(
                "sn.compat.isaaclab.FrameTransformerCfg.target_frames",
                FRAMES + "test_all_targets_of_all_envs_are_one_launch",
            ),
        ),
        Row(
            "feet of a quadruped in its base",
            "example",
            Present("", FRAMES + "test_feet_in_the_base_over_a_walk_with_partial_resets"),
            "four targets with offsets",
        ),
        Row(
            "FrameTransformerCfg.visualizer_cfg",
            "cfg field",
            UNCONFIGURED,
            "look of the markers",
            Code("FRAME_MARKER_CFG"),
        ),
        Row(
            "FrameTransformerCfg.visualizer_cfg is for debug_vis only",
            "guarantee",
            DRAWN,
        ),
        Row("FRAME_MARKER_CFG", "class", NotApplicable("Omniverse", "config of USD markers")),
    ),
    *section("OffsetCfg", *of_an_offset("OffsetCfg")),
    *section(
        "RayCaster",
        Row("RayCaster", "class", Present("sn.compat.isaaclab.RayCaster"), "casts rays at meshes; a SensorBase"),
        Row(
            "RayCaster casts a set of rays at meshes of the scene",
            "guarantee",
            Present("sn.RayCaster", RAYS + "test_a_posed_mesh_is_met_as_one_with_turned_vertices"),
        ),
        Row(
            "RayCaster's rays are in the sensor's own frame",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCfg.pattern", RAYS + "test_offsets_are_full_poses_of_starts_and_directions"
            ),
        ),
        Row(
            "RayCaster takes a set of meshes and a pattern",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCfg", RAYS + "test_shapes_are_chosen_by_geometry_group_name_path_and_label"
            ),
        ),
        Row(
            "RayCaster finds its meshes by prim paths",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCfg.mesh_prim_paths", RAYS + "test_paths_lead_to_entities_and_their_bodies"
            ),
        ),
        Row(
            "RayCaster.warp_meshes",
            "property",
            Replaced(
                ("sn.SimpleSensor.rays",),
                "Geometry belongs to the scene, and all ray sensors share it",
                "tests/world/test_ray_scene.py::test_sensors_of_one_selection_share_trees_and_indices",
            ),
            "the meshes as Warp meshes",
        ),
        Row(
            "RayCaster casts at static meshes only",
            "guarantee",
            Replaced(
                ("sn.RayCaster",),
                "Rays also hit moving meshes, at their pose of the same step",
                RAYS + "test_a_moving_mesh_is_followed_in_the_same_step",
            ),
        ),
        *of_every_sensor("RayCaster"),
    ),
    *section(
        "RayCasterData",
        Row("RayCasterData", "class", Present("sn.compat.isaaclab.RayCasterData"), "N sensors, B rays each"),
        Row(
            "RayCasterData.pos_w",
            "data field",
            Present("sn.RayCasterData.pos_w", unit="m", note=OF_ITS_MOUNT),
            "origin of the sensor in the world",
            shape=("env", 3),
        ),
        Row(
            "RayCasterData.quat_w",
            "data field",
            Present("sn.RayCasterData.quat_w", unit="1", note=OF_ITS_MOUNT),
            "orientation (w, x, y, z) in the world",
            shape=("env", 4),
        ),
        Row(
            "RayCasterData.ray_hits_w",
            "data field",
            Present("sn.RayCasterData.ray_hits_w", unit="m"),
            "hits in the world",
            shape=("env", "ray", 3),
        ),
        Row(
            "RayCasterData fields are None at first",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.RayCasterCfg.fields",),
                "Data is available when the scene is built; only fields that were not selected are None",
                RAYS + "test_fields_that_nobody_asked_for_are_none",
            ),
        ),
    ),
    *section(
        "RayCasterCfg",
        Row("RayCasterCfg", "class", Present("sn.compat.isaaclab.RayCasterCfg"), "a SensorBaseCfg"),
        *of_an_offset("RayCasterCfg.OffsetCfg"),
        *of_every_config("RayCasterCfg"),
        *of_every_ray_caster_config("RayCasterCfg"),
        Row(
            "RayCasterCfg.pattern_cfg",
            "cfg field",
            Present("sn.compat.isaaclab.RayCasterCfg.pattern_cfg"),
            "pattern of local starts and directions",
            REQUIRED,
        ),
        Row(
            "PatternBaseCfg", "class", Present("sn.compat.isaaclab.PatternBaseCfg"), "base of the patterns; only named"
        ),
        Row("RAY_CASTER_MARKER_CFG", "class", NotApplicable("Omniverse", "config of USD markers")),
    ),
    *section(
        "RayCasterCamera",
        Row("RayCasterCamera", "class", Present("sn.compat.isaaclab.RayCasterCamera"), "a camera by rays; a RayCaster"),
        Row(
            "RayCasterCamera gives distances to meshes of the scene",
            "guarantee",
            Present("sn.RayCasterCamera", RAY_ROWS + "test_a_camera_gives_the_distances_to_a_mesh"),
        ),
        Row(
            "RayCasterCamera's rays are in the sensor's own frame",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCameraCfg.pattern_cfg",
                RAY_CAMERA + "test_alignment_says_how_a_camera_follows",
            ),
        ),
        Row(
            "RayCasterCamera has the interface of Camera",
            "guarantee",
            Present(
                "sn.RayCasterCamera",
                RAY_CAMERA + "test_the_data_have_the_shapes_of_one_camera",
                note="Of the types that the page lists for both; the rendered camera is planned.",
            ),
            "but makes images faster",
        ),
        Row(
            "RayCasterCamera sees only the meshes it was given",
            "guarantee",
            Present(
                "sn.compat.isaaclab.RayCasterCameraCfg.mesh_prim_paths",
                RAY_ROWS + "test_a_camera_sees_only_the_meshes_it_was_given",
            ),
        ),
        *(
            Row(
                f"RayCasterCamera type {word}",
                "guarantee",
                Present(f"sn.CameraData.{word}", RAY_CAMERA + "test_the_images_are_those_of_a_brute_force_render"),
                TYPES[word],
            )
            for word in ("distance_to_camera", "distance_to_image_plane", "normals")
        ),
        Row(
            "RayCasterCamera sees static meshes only",
            "guarantee",
            Replaced(
                ("sn.RayCasterCamera",),
                "Moving shapes are also visible, at their pose of the same step",
                RAY_CAMERA + "test_a_moving_shape_is_seen_where_it_is_in_the_same_step",
            ),
        ),
        *of_every_sensor("RayCasterCamera"),
        *of_every_camera("RayCasterCamera"),
    ),
    *section(
        "RayCasterCameraCfg",
        Row(
            "RayCasterCameraCfg",
            "class",
            Present(
                "sn.compat.isaaclab.RayCasterCameraCfg",
                note="No `RayCasterCfg`: the two share a base, so that a type checker knows the data of each, and each "
                "has its own fields only.",
            ),
            "a RayCasterCfg",
        ),
        *of_an_offset("RayCasterCameraCfg.OffsetCfg", convention=True),
        *of_every_config("RayCasterCameraCfg"),
        *of_every_ray_caster_config("RayCasterCameraCfg"),
        Row(
            "RayCasterCameraCfg.data_types",
            "cfg field",
            Present("sn.compat.isaaclab.RayCasterCameraCfg.data_types"),
            "types to give",
            ["distance_to_image_plane"],
        ),
        Row(
            "RayCasterCameraCfg.pattern_cfg",
            "cfg field",
            Present(
                "sn.compat.isaaclab.RayCasterCameraCfg.pattern_cfg",
                "tests/sensors/test_camera_lens.py::test_no_camera_no_lens",
            ),
            "a pinhole pattern",
            REQUIRED,
        ),
        Row(
            "PinholeCameraPatternCfg",
            "class",
            Present("sn.compat.isaaclab.PinholeCameraPatternCfg"),
            "rays of a pinhole camera; only named",
        ),
    ),
    *section(
        "Imu",
        Row("Imu", "class", Present("sn.compat.isaaclab.Imu"), "an inertial measurement unit; a SensorBase"),
        Row(
            "it can be attached to any rigid object or articulation",
            "guarantee",
            Present("sn.compat.isaaclab.ImuCfg", HERE + "test_a_sensor_sits_on_the_body_that_its_path_names[Imu]"),
        ),
        Row(
            "it gives the complete state",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ImuCfg.fields",
                IMU + "test_every_field_of_a_random_state_follows_rigid_body_kinematics",
            ),
            "pose in the world; velocities and accelerations in the body frame",
        ),
        Row(
            "primarily it gives linear acceleration and angular velocity in the body frame",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ImuCfg.fields",
                COMPAT + "test_isaac_labs_imu_gives_all_fields_and_counts_a_fixed_gravity",
                note="By default, sensorium computes the quantities that a device measures.",
            ),
        ),
        Row(
            "the rest is for comparison with perfect state estimation",
            "guarantee",
            Present("sn.Imu.ground_truth", IMU + "test_truth_is_untouched_by_imperfections"),
        ),
        Row(
            "accelerations are differences of velocities",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.ImuCfg.acceleration",),
                "They are the engine's own if available; differences use the actual time between samples",
                IMU + "test_the_source_of_accelerations_is_chosen_and_told",
            ),
        ),
        Row(
            "accuracy depends on the time step",
            "guarantee",
            Replaced(
                ("sn.compat.isaaclab.ImuCfg.acceleration",),
                "Only if accelerations are differences, by half a step of jerk; the engine's own are exact",
                IMU + "test_a_turntable_reads_centripetal_and_euler_acceleration",
            ),
            "200 Hz or more is advised",
        ),
        Row(
            "an offset on a moving body rather than a small body fixed to it",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ImuCfg.offset",
                IMU_MUJOCO + "test_a_mount_through_a_fixed_child_composes_its_offsets",
                note="Both are valid and equal here; sites are also frames.",
            ),
            "a body at a fixed joint costs speed and accuracy",
        ),
        *of_every_sensor("Imu"),
    ),
    *section(
        "ImuData",
        Row(
            "ImuData",
            "class",
            Present("sn.compat.isaaclab.ImuData"),
            "only named, with the quantities that the sensor provides",
        ),
        Row(
            "ImuData.lin_acc_b",
            "data field",
            Present("sn.ImuData.lin_acc_b", unit="m/s^2", shape=("env", 3)),
            "linear acceleration in the body frame",
        ),
        Row(
            "ImuData.ang_vel_b",
            "data field",
            Present("sn.ImuData.ang_vel_b", unit="rad/s", shape=("env", 3)),
            "angular velocity in the body frame",
        ),
        Row(
            "ImuData.pos_w",
            "data field",
            Present("sn.ImuData.pos_w", unit="m", shape=("env", 3)),
            "position in the world",
        ),
        Row(
            "ImuData.quat_w",
            "data field",
            Present("sn.ImuData.quat_w", unit="1", shape=("env", 4)),
            "orientation in the world",
        ),
        Row(
            "ImuData.ang_acc_b",
            "data field",
            Present("sn.ImuData.ang_acc_b", unit="rad/s^2", shape=("env", 3)),
            "angular acceleration in the body frame",
        ),
        Row(
            "ImuData.lin_vel_b",
            "data field",
            Present("sn.ImuData.lin_vel_b", unit="m/s", shape=("env", 3)),
            "linear velocity in the body frame",
        ),
    ),
    *section(
        "ImuCfg",
        Row("ImuCfg", "class", Present("sn.compat.isaaclab.ImuCfg"), "a SensorBaseCfg"),
        *of_an_offset("ImuCfg.OffsetCfg"),
        *of_every_config("ImuCfg"),
        Row(
            "ImuCfg.offset",
            "cfg field",
            Present("sn.compat.isaaclab.ImuCfg.offset"),
            "pose in the parent's frame",
            sn.OffsetCfg(),
        ),
        Row(
            "ImuCfg.visualizer_cfg",
            "cfg field",
            UNCONFIGURED,
            "look of the markers",
            Code("RED_ARROW_X_MARKER_CFG"),
        ),
        Row(
            "ImuCfg.visualizer_cfg is for debug_vis only",
            "guarantee",
            DRAWN,
        ),
        Row("RED_ARROW_X_MARKER_CFG", "class", NotApplicable("Omniverse", "config of USD markers")),
        Row(
            "ImuCfg.gravity_bias",
            "cfg field",
            Present(
                "sn.compat.isaaclab.ImuCfg.gravity_bias",
                note="The default here is None, the gravity of each env, which may differ from 9.81 m/s^2 along -z.",
            ),
            "added to the acceleration in world axes, m/s^2",
            (0.0, 0.0, 9.81),
        ),
        Row(
            "at rest an Imu reads gravity upwards",
            "guarantee",
            Present(
                "sn.compat.isaaclab.ImuCfg.gravity_bias",
                IMU + "test_rest_reads_g_upwards_in_every_attitude_and_mounting",
            ),
            "by default, positive along the world's z",
        ),
        Row(
            "gravity_bias (0, 0, 0) takes gravity away",
            "guarantee",
            Present("sn.compat.isaaclab.ImuCfg.gravity_bias", IMU + "test_a_gravity_bias_is_added_in_world_axes"),
        ),
    ),
)

SECTIONS = {
    "Overview": 5,
    "Prim paths": 10,
    "SensorBase": 21,
    "SensorBaseCfg": 9,
    "Camera": 59,
    "CameraData": 14,
    "CameraCfg": 39,
    "TiledCamera": 58,
    "TiledCameraCfg": 40,
    "ContactSensor": 38,
    "ContactSensorData": 21,
    "ContactSensorCfg": 23,
    "FrameTransformer": 22,
    "FrameTransformerData": 11,
    "FrameTransformerCfg": 21,
    "OffsetCfg": 3,
    "RayCaster": 22,
    "RayCasterData": 5,
    "RayCasterCfg": 25,
    "RayCasterCamera": 38,
    "RayCasterCameraCfg": 29,
    "Imu": 23,
    "ImuData": 7,
    "ImuCfg": 19,
}

ISAACLAB = Document("Isaac Lab", "omni.isaac.lab.sensors", SECTIONS, ROWS)
