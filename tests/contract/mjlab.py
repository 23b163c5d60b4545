"""What mjlab's page on sensors names."""

from __future__ import annotations

from .rows import REQUIRED, Alias, Document, Present, Replaced, Row, With, section

HERE = "tests/contract/test_mjlab.py::"
EACH = HERE + "test_sensors_of_each_category_equal_mujocos_own"
CONTACT = "tests/contract/test_contact_rows.py::"
RAYS = "tests/sensors/test_ray_caster.py::"
REPORTS = "tests/sensors/test_contact_sensor.py::"
SLOTS = REPORTS + "test_slots_hold_the_contacts_in_the_order_of_the_reduction"
NETFORCE = REPORTS + "test_netforce_is_one_sum_whatever_num_slots_is"
ABSENT = REPORTS + "test_what_is_not_asked_for_is_none"
BOUNCE = REPORTS + "test_a_bounce_within_a_control_step_is_seen"
XML = HERE + "test_sensors_of_the_xml_are_discovered_under_their_entity"

ROWS = (
    *section(
        "Sensors",
        Row("Sensor", "class", Present("sn.Sensor"), "base of all sensors, a general way from state to outputs"),
        Row(
            "SceneCfg",
            "class",
            Replaced(("sn.Scene",), "The scene takes engine and configs directly", "tests/test_scene.py::test_access"),
        ),
        Row("SceneCfg.sensors", "cfg field", Present("sn.Scene.sensors", default=()), "configs of the scene's sensors"),
        Row(
            "SceneCfg.entities",
            "cfg field",
            Replaced(
                ("sn.MujocoEngine.compose",),
                "Entities are models attached under their names",
                "tests/engines/test_mujoco.py::test_compose_puts_each_entity_under_its_prefix",
            ),
            "name -> entity",
        ),
        Row(
            "EntityCfg",
            "class",
            Replaced(
                ("sn.MujocoEngine.compose",),
                "An entity is a model file, text or spec under a name prefix",
                "tests/engines/test_mujoco.py::test_compose_puts_each_entity_under_its_prefix",
            ),
        ),
        Row(
            "EntityData",
            "class",
            Replaced(
                ("sn.Engine.array",),
                "The engine's batched derived state, in one convention for all engines",
                "tests/engines/test_mujoco.py::test_derived_state_is_what_mujoco_computes_at_the_body_frame_origins",
            ),
        ),
        Row("scene[name]", "method", Present("sn.Scene.__getitem__"), "sensor by its name"),
        Row(
            "env.scene",
            "property",
            Replaced(
                ("sn.Scene",), "The scene is a separate object, usable in any loop", "tests/test_scene.py::test_access"
            ),
        ),
        Row(
            "sensors belong to the scene, not to an entity",
            "guarantee",
            Present("sn.Scene", "tests/test_scene.py::test_access"),
            "they are configured at the scene and found there by name",
        ),
        Row(
            "a sensor may refer to an element of an entity",
            "guarantee",
            Present("sn.compat.mjlab.ObjRef.entity", HERE + "test_a_sensor_on_an_element_of_an_entity_or_on_none"),
        ),
        Row(
            "a sensor may be independent of any entity",
            "guarantee",
            Present(
                "sn.MountedSensorCfg", "tests/sensors/test_imu.py::test_a_mount_on_the_world_reads_g_and_stands_still"
            ),
        ),
        Row(
            "first example: accelerometer of a robot",
            "example",
            Present("sn.compat.mjlab.BuiltinSensorCfg", HERE + "test_the_first_example_reads_an_accelerometer"),
            'configured with ObjRef, read as scene["robot/imu_acc"].data [env, 3]',
        ),
        Row(
            "first example: contact of feet with the terrain",
            "example",
            Present("", CONTACT + "test_the_feet_on_the_terrain"),
            "found [env, P] and force [env, P, 3] of the feet",
        ),
        Row(
            "ContactData.found per foot",
            "guarantee",
            Present("sn.compat.mjlab.ContactData.found", CONTACT + "test_the_feet_on_the_terrain"),
            "[B, P] contacts per foot",
        ),
        Row(
            "four sensor types and a base class",
            "guarantee",
            With("Cameras", note="Of the four, only the camera is planned."),
            "native measurements, contact, rays, cameras; the base class can be subclassed",
        ),
    ),
    *section(
        "BuiltinSensor",
        Row("BuiltinSensor", "class", Present("sn.BuiltinSensor"), "wraps a native MuJoCo sensor"),
        Row("BuiltinSensorCfg", "class", Present("sn.compat.mjlab.BuiltinSensorCfg")),
        Row("BuiltinSensorCfg.name", "cfg field", Present("sn.compat.mjlab.BuiltinSensorCfg.name", default="")),
        Row(
            "BuiltinSensorCfg.sensor_type",
            "cfg field",
            Present("sn.compat.mjlab.BuiltinSensorCfg.sensor_type"),
            "MuJoCo's word for the type; always given",
            default=REQUIRED,
        ),
        Row(
            "BuiltinSensorCfg.obj",
            "cfg field",
            Present("sn.compat.mjlab.BuiltinSensorCfg.obj", default=None),
            "element it is attached to",
        ),
        Row(
            "BuiltinSensorCfg.ref",
            "cfg field",
            Present("sn.compat.mjlab.BuiltinSensorCfg.ref", default=None),
            "frame of reference",
        ),
        Row(
            "BuiltinSensorCfg.cutoff",
            "cfg field",
            Present("sn.compat.mjlab.BuiltinSensorCfg.cutoff", default=0.0),
            "clamps the output",
        ),
        Row("ObjRef", "class", Present("sn.compat.mjlab.ObjRef"), "an element of the model"),
        Row(
            "ObjRef.type",
            "cfg field",
            Present("sn.compat.mjlab.ObjRef.type", default=REQUIRED),
            "site, joint, body, ...",
        ),
        Row("ObjRef.name", "cfg field", Present("sn.compat.mjlab.ObjRef.name", default=REQUIRED)),
        Row(
            "ObjRef.entity",
            "cfg field",
            Present("sn.compat.mjlab.ObjRef.entity", default=None),
            "scopes the name to an entity",
        ),
        Row(
            "BuiltinSensor.data",
            "data field",
            Present("sn.BuiltinSensorData.value", shape=("env", 3), unit="m/s^2", note="Here of an accelerometer."),
            "dim depends on the type",
            shape=("env", "dim"),
        ),
        Row(
            "BuiltinSensor.data is one tensor",
            "guarantee",
            Present("sn.BuiltinSensor.single", HERE + "test_the_first_example_reads_an_accelerometer"),
        ),
        Row(
            "three columns for vectors, four for quaternions, one for scalars",
            "guarantee",
            Present("sn.BuiltinSensor", HERE + "test_vectors_have_three_columns_quaternions_four_scalars_one"),
        ),
        Row("site sensors", "guarantee", Present("sn.BuiltinSensor", EACH + "[site]"), "the types attached to a site"),
        Row(
            "joint sensors", "guarantee", Present("sn.BuiltinSensor", EACH + "[joint]"), "the types attached to a joint"
        ),
        Row(
            "frame sensors",
            "guarantee",
            Present("sn.BuiltinSensor", EACH + "[frame]"),
            "the types that measure a frame",
        ),
        Row("other sensors", "guarantee", Present("sn.BuiltinSensor", EACH + "[other]"), "the remaining types"),
        Row(
            "a wrong config is refused",
            "error",
            Present("sn.ConfigError", HERE + "test_a_wrong_builtin_config_names_its_field", builtin="ValueError"),
            "type and element must fit",
        ),
        Row(
            "the entity prefixes the sensor's name",
            "guarantee",
            Present("sn.compat.mjlab.BuiltinSensorCfg.label", HERE + "test_the_first_example_reads_an_accelerometer"),
            'imu_acc on entity robot is "robot/imu_acc"',
        ),
        Row(
            "the entity scopes the lookup of the element",
            "guarantee",
            Present("sn.compat.mjlab.ObjRef", HERE + "test_a_sensor_on_an_element_of_an_entity_or_on_none"),
        ),
        Row("accelerometer on a site", "example", Present("", HERE + "test_the_first_example_reads_an_accelerometer")),
        Row(
            "joint limit sensor with cutoff",
            "example",
            Present("", HERE + "test_the_joint_limit_example_is_clamped_at_its_cutoff"),
            "jointlimitpos, cutoff 0.1",
        ),
        Row(
            "frame position relative to a base",
            "example",
            Present("", HERE + "test_the_frame_position_example_is_relative_to_its_base"),
            "framepos of a body with ref",
        ),
    ),
    *section(
        "Auto-discovery",
        Row(
            "sensors of the XML are discovered",
            "guarantee",
            Present("sn.Scene.discover", XML),
            "no config is needed for those that an entity's model declares",
        ),
        Row("discovered names are prefixed by the entity", "guarantee", Present("sn.Scene.discover", XML)),
        Row(
            "trunk_imu and hip_sensor of robot.xml",
            "example",
            Present("", XML),
            'scene["robot/trunk_imu"], scene["robot/hip_sensor"]',
        ),
    ),
    *section(
        "ContactSensor",
        Row("ContactSensor", "class", Present("sn.ContactSensor"), "contacts of chosen pairs as batched tensors"),
        Row("ContactSensorCfg", "class", Present("sn.compat.mjlab.ContactSensorCfg")),
        Row("ContactSensorCfg.name", "cfg field", Present("sn.compat.mjlab.ContactSensorCfg.name", default="")),
        Row(
            "raw contacts are filtered to chosen pairs",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.secondary", f"{SLOTS}[one*"),
        ),
        Row(
            "contacts of one element are reduced to a fixed count",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.num_slots", SLOTS),
        ),
        Row(
            "it builds on MuJoCo's native contact sensor",
            "guarantee",
            Present(
                "sn.CONTACT_REPORT",
                CONTACT + "test_the_engine_is_asked_for_reports_of_the_bodies_by_the_sensor",
                note="On `MujocoEngine`; any engine may give the report.",
            ),
        ),
    ),
    *section(
        "Primary and secondary",
        Row(
            "ContactSensorCfg.primary",
            "cfg field",
            Present(
                "sn.compat.mjlab.ContactSensorCfg.primary",
                default=REQUIRED,
                note="One of two forms: this one, or `prim_path`, is given",
            ),
            "elements that are measured",
        ),
        Row(
            "ContactSensorCfg.secondary",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.secondary"),
            "what they touch",
            default=None,
        ),
        Row("ContactMatch", "class", Present("sn.compat.mjlab.ContactMatch"), "one side of a contact"),
        Row(
            "ContactMatch.mode",
            "cfg field",
            Present("sn.compat.mjlab.ContactMatch.mode", default=REQUIRED),
            "geom, body or subtree",
        ),
        Row(
            "ContactMatch.pattern",
            "cfg field",
            Present("sn.compat.mjlab.ContactMatch.pattern", default=REQUIRED),
            "a regex or a tuple of them, matched within the entity",
        ),
        Row("ContactMatch.entity", "cfg field", Present("sn.compat.mjlab.ContactMatch.entity", default=None)),
        Row(
            "secondary None counts any contact",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.secondary", f"{SLOTS}[anything*"),
        ),
        *(
            Row(
                f"mode {mode}",
                "guarantee",
                Present("sn.compat.mjlab.ContactMatch.mode", f"{CONTACT}test_each_mode_has_its_geoms[{mode}]"),
                says,
            )
            for mode, says in {
                "geom": "matches geoms",
                "body": "matches bodies",
                "subtree": "matches a body with its descendants",
            }.items()
        ),
        Row(
            "foot geoms against the terrain body",
            "example",
            Present("", CONTACT + "test_the_feet_on_the_terrain"),
        ),
        Row(
            "self-collision of a subtree with itself",
            "example",
            Present("", CONTACT + "test_a_subtree_that_collides_with_itself"),
        ),
    ),
    *section(
        "Output shape",
        Row(
            "a pattern resolves to P primaries, one column each",
            "guarantee",
            Present("sn.ContactSensor.primary_names", CONTACT + "test_the_feet_on_the_terrain"),
        ),
        Row(
            "per-contact fields",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", CONTACT + "test_columns_are_primary_major_and_times_per_primary"),
            "[B, N, ...] with N = P * num_slots",
        ),
        Row(
            "per-contact columns are primary-major",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", CONTACT + "test_columns_are_primary_major_and_times_per_primary"),
        ),
        Row(
            "per-primary fields",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", CONTACT + "test_columns_are_primary_major_and_times_per_primary"),
            "[B, P], reduced across slots",
        ),
        Row(
            "both shapes coincide at num_slots 1",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.num_slots", CONTACT + "test_the_feet_on_the_terrain"),
            "N == P",
        ),
        Row(
            "ContactSensor.primary_names",
            "property",
            Present("sn.ContactSensor.primary_names"),
            "names after expansion of the pattern, in column order",
        ),
        Row(
            "air time of a foot by its name",
            "example",
            Present("", CONTACT + "test_the_feet_on_the_terrain"),
            "primary_names and current_air_time[:, 0]",
        ),
    ),
    *section(
        "Reduction",
        Row(
            "ContactSensorCfg.reduce",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.reduce", default="maxforce"),
            "none, mindist, maxforce or netforce",
        ),
        Row(
            "ContactSensorCfg.num_slots",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.num_slots"),
            "contacts kept per primary",
            default=1,
        ),
        *(
            Row(
                f"reduce {word}", "guarantee", Present("sn.compat.mjlab.ContactSensorCfg.reduce", test, note=note), says
            )
            for word, test, says, note in (
                (
                    "none",
                    f"{SLOTS}[anything-none]",
                    "fast selection of up to num_slots, in no fixed order",
                    "In the engine's order, the same in every run.",
                ),
                ("mindist", f"{SLOTS}[anything-mindist]", "keeps the deepest contacts", ""),
                ("maxforce", f"{SLOTS}[anything-maxforce]", "keeps the strongest contacts", ""),
                (
                    "netforce",
                    CONTACT + "test_netforce_is_a_wrench_at_the_force_weighted_centre",
                    "one net wrench at the force-weighted centroid",
                    "",
                ),
            )
        ),
        Row(
            "netforce gives one slot whatever num_slots is",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.num_slots", NETFORCE),
        ),
    ),
    *section(
        "When to set num_slots > 1",
        Row(
            "several slots go with none, mindist or maxforce",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.num_slots", SLOTS),
            "no effect on netforce",
        ),
        Row(
            "centre of pressure of a flat foot",
            "example",
            Present("", CONTACT + "test_the_centre_of_pressure_of_a_flat_foot"),
            "from its corner contacts",
        ),
        Row(
            "grasp from several fingertip contacts",
            "example",
            Present("", CONTACT + "test_the_contacts_of_fingertips_balance_what_they_hold"),
        ),
        Row(
            "tipping seen by a corner that lifts",
            "example",
            Present("", CONTACT + "test_a_foot_that_tips_has_fewer_corners_on_the_ground"),
        ),
        Row(
            "num_slots is a ceiling",
            "guarantee",
            Present(
                "sn.compat.mjlab.ContactSensorCfg.num_slots",
                CONTACT + "test_a_sphere_on_a_plane_fills_one_slot_of_eight",
            ),
            "the engine may give fewer contacts of a pair",
        ),
        Row(
            "slots without a contact stay zero",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", CONTACT + "test_a_sphere_on_a_plane_fills_one_slot_of_eight"),
        ),
    ),
    *section(
        "Fields",
        Row(
            "ContactSensorCfg.fields",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.fields", default=("found", "force")),
            "among found, force, torque, dist, pos, normal, tangent",
        ),
        Row(
            "only requested fields are allocated",
            "guarantee",
            Present("sn.ContactSensor.fields", ABSENT),
            "the others are None",
        ),
        Row(
            "without friction there is no torque and no tangential force",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", CONTACT + "test_without_friction_there_is_a_normal_force_only"),
            "condim 1 gives a normal force only: physics, not the sensor",
        ),
    ),
    *section(
        "Air time tracking",
        Row(
            "ContactSensorCfg.track_air_time",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.track_air_time"),
            "keeps four timers per primary",
            default=False,
        ),
        Row(
            "ContactSensor.compute_first_contact",
            "method",
            Present("sn.ContactSensor.compute_first_contact", call="dt"),
            "(dt) -> [B, P], just landed",
        ),
        Row(
            "ContactSensor.compute_first_air",
            "method",
            Present("sn.ContactSensor.compute_first_air", call="dt"),
            "(dt) -> [B, P], just took off",
        ),
        Row(
            "air time is per primary with several slots",
            "guarantee",
            Present(
                "sn.compat.mjlab.ContactSensorCfg.track_air_time",
                CONTACT + "test_columns_are_primary_major_and_times_per_primary",
            ),
            "any slot in contact counts",
        ),
        Row("first contact and first air", "example", Present("", CONTACT + "test_landing_and_taking_off")),
    ),
    *section(
        "History (decimation safe contacts)",
        Row(
            "ContactSensorCfg.history_length",
            "cfg field",
            Present("sn.compat.mjlab.ContactSensorCfg.history_length", default=0),
            "substeps kept of force, torque and distance",
        ),
        Row(
            "ContactData.force_history",
            "data field",
            Present("sn.compat.mjlab.ContactData.force_history", unit="N", shape=("env", "contact", "history", 3)),
            shape=("env", "N", "H", 3),
        ),
        Row(
            "ContactData.torque_history",
            "data field",
            Present("sn.compat.mjlab.ContactData.torque_history", unit="N m", shape=("env", "contact", "history", 3)),
            shape=("env", "N", "H", 3),
        ),
        Row(
            "ContactData.dist_history",
            "data field",
            Present("sn.compat.mjlab.ContactData.dist_history", unit="m", shape=("env", "contact", "history")),
            shape=("env", "N", "H"),
        ),
        Row(
            "index 0 of a history is the newest substep",
            "guarantee",
            Present("sn.compat.mjlab.ContactData.force_history", BOUNCE),
        ),
        Row(
            "a collision within a control step is not lost",
            "guarantee",
            Present(
                "sn.compat.mjlab.ContactData.force_history", BOUNCE, note="Nor to the latches, which need no history."
            ),
        ),
        Row(
            "a history as long as the decimation covers one control step",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.history_length", BOUNCE),
        ),
        Row(
            "air time accumulates across substeps",
            "guarantee",
            Present("sn.compat.mjlab.ContactSensorCfg.track_air_time", CONTACT + "test_landing_and_taking_off"),
        ),
        Row(
            "self-collision with history",
            "example",
            Present("", CONTACT + "test_a_brief_self_collision_is_in_the_history"),
            "history_length = decimation",
        ),
        Row(
            "any substep above a force threshold",
            "example",
            Present("", CONTACT + "test_a_brief_self_collision_is_in_the_history"),
            "norm of force_history > 10",
        ),
    ),
    *section(
        "Output",
        Row(
            "ContactData",
            "class",
            Alias("sn.ContactSensorData", where="sn.compat.mjlab.ContactData"),
            "one data class for both forms of the config",
        ),
        Row(
            "ContactData fields that were not asked for are None",
            "guarantee",
            Present("sn.compat.mjlab.ContactData", ABSENT),
        ),
        Row(
            "ContactData.found",
            "data field",
            Present("sn.compat.mjlab.ContactData.found", unit="1", shape=("env", "contact")),
            "count",
            shape=("env", "N"),
        ),
        Row(
            "ContactData.force",
            "data field",
            Present("sn.compat.mjlab.ContactData.force", unit="N", shape=("env", "contact", 3)),
            shape=("env", "N", 3),
        ),
        Row(
            "ContactData.torque",
            "data field",
            Present("sn.compat.mjlab.ContactData.torque", unit="N m", shape=("env", "contact", 3)),
            shape=("env", "N", 3),
        ),
        Row(
            "ContactData.dist",
            "data field",
            Present(
                "sn.compat.mjlab.ContactData.dist",
                unit="m",
                shape=("env", "contact"),
                note="Negative where the two penetrate.",
            ),
            "penetration",
            shape=("env", "N"),
        ),
        Row(
            "ContactData.pos",
            "data field",
            Present("sn.compat.mjlab.ContactData.pos", unit="m", shape=("env", "contact", 3)),
            shape=("env", "N", 3),
        ),
        Row(
            "ContactData.normal",
            "data field",
            Present("sn.compat.mjlab.ContactData.normal", unit="1", shape=("env", "contact", 3)),
            shape=("env", "N", 3),
        ),
        Row(
            "ContactData.tangent",
            "data field",
            Present("sn.compat.mjlab.ContactData.tangent", unit="1", shape=("env", "contact", 3)),
            shape=("env", "N", 3),
        ),
        *(
            Row(
                f"ContactData.{word}",
                "data field",
                Present(f"sn.compat.mjlab.ContactData.{word}", unit="s", shape=("env", "primary")),
                shape=("env", "P"),
            )
            for word in ("current_air_time", "last_air_time", "current_contact_time", "last_contact_time")
        ),
    ),
    *section(
        "RayCastSensor",
        Row(
            "RayCastSensor",
            "class",
            Present("sn.compat.mjlab.RayCastSensor"),
            "ray casting for terrain scans and depth",
        ),
        Row(
            "RayCastSensor on the GPU",
            "guarantee",
            Present(
                "sn.MujocoWarpEngine",
                "tests/compute/test_cuda_compiles.py::test_every_kernel_compiles_for_cuda",
                note="Every kernel compiles for CUDA and gives the readings of the CPU engine on mujoco_warp's CPU "
                "device. It has not been run on a GPU yet.",
            ),
            "accelerated",
        ),
        Row("grid pattern", "guarantee", Present("sn.GridPatternCfg", RAYS + "test_mjlabs_cases_hold")),
        Row(
            "pinhole camera pattern",
            "guarantee",
            Present("sn.PinholeCameraPatternCfg", RAYS + "test_a_pinhole_pattern_looks_ahead"),
        ),
        Row(
            "configurable alignment of rays",
            "guarantee",
            Present(
                "sn.compat.mjlab.RayCastSensorCfg.ray_alignment",
                RAYS + "test_a_base_that_pitches_by_30_degrees_takes_its_ray_along_or_not",
            ),
        ),
    ),
    *section(
        "RGB-D Camera",
        Row("CameraSensor", "class", With("Cameras"), "renders images from MuJoCo cameras"),
        Row("RGB images", "guarantee", With("Cameras")),
        Row("depth images", "guarantee", With("Cameras")),
    ),
    *section(
        "Extending: custom sensors",
        Row(
            "Sensor[T]",
            "guarantee",
            Present("sn.Sensor", "tests/test_typing.py::test_a_scene_is_typed_by_its_configs"),
            "generic in the type that `data` returns",
        ),
        Row(
            "T may be a tensor or a data class",
            "guarantee",
            Present("sn.Sensor.single", "tests/contract/test_genesis.py::test_one_tensor_of_n_scalars"),
        ),
        Row("Sensor.data", "property", Present("sn.Sensor.data")),
        Row(
            "data is computed on first access of a step and cached",
            "guarantee",
            Present("sn.Sensor.data", HERE + "test_data_is_computed_once_per_step_however_often_it_is_read"),
        ),
        Row(
            "update() and reset() invalidate the cache",
            "guarantee",
            Present("sn.Scene.update", HERE + "test_update_and_reset_make_the_next_read_compute_anew"),
        ),
        Row(
            "Sensor.edit_spec",
            "method",
            Replaced(
                ("sn.Sensor.needs", "sn.MODEL_ELEMENTS", "sn.prepare"),
                "A sensor declares its requirements; the engine's adapter adds them, or rejects them by name",
                "tests/engines/test_mujoco.py::test_model_elements_are_added_once_and_hidden_names_stay_hidden",
            ),
            "adds elements to the MjSpec",
        ),
        Row(
            "Sensor.initialize",
            "method",
            Replaced(
                ("sn.Sensor.setup",),
                "Called once when the sensor is built, after mounts and memory were created",
                "tests/contract/test_genesis.py::test_setup_is_called_once_per_sensor",
            ),
            "after compilation: indices, buffers, references",
        ),
        Row(
            "Sensor.update",
            "method",
            Replaced(
                ("sn.Sensor.observe", "sn.Sensor.new_state", "sn.Scene.update"),
                "The scene knows the due sensors; values that last are states that reset and save with the scene",
                "tests/measurement/test_observe.py::"
                "test_every_tick_is_observed_once_at_samples_and_between_them_read_or_not",
            ),
            "called each physics step",
        ),
        Row(
            "Sensor.reset", "method", Present("sn.Sensor.reset"), "an override clears the state of single environments"
        ),
        Row(
            "an overridden reset is called for the envs that are reset",
            "guarantee",
            Present("sn.Sensor.reset", HERE + "test_an_authors_reset_is_called_with_the_mask_of_envs"),
        ),
        Row(
            "Sensor._compute_data",
            "method",
            Replaced(
                ("sn.SimpleSensor.update_raw_data", "sn.Sensor.compute", "sn.Sensor.set_outputs"),
                "Outputs are written to memory with a constant address",
                "tests/contract/test_mjlab.py::test_data_is_computed_once_per_step_however_often_it_is_read",
            ),
            "computes and returns the output, lazily",
        ),
        Row(
            "reference implementations for own sensors",
            "example",
            Present("", "tests/test_docs.py::test_python_blocks_run[docs/extending.md*"),
        ),
    ),
)

SECTIONS = {
    "Sensors": 15,
    "BuiltinSensor": 24,
    "Auto-discovery": 3,
    "ContactSensor": 6,
    "Primary and secondary": 12,
    "Output shape": 7,
    "Reduction": 7,
    "When to set num_slots > 1": 6,
    "Fields": 3,
    "Air time tracking": 5,
    "History (decimation safe contacts)": 10,
    "Output": 13,
    "RayCastSensor": 5,
    "RGB-D Camera": 3,
    "Extending: custom sensors": 12,
}

MJLAB = Document("mjlab", "Sensors", SECTIONS, ROWS)
