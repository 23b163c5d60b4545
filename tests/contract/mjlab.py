"""What mjlab's page on sensors names."""

from __future__ import annotations

from .rows import REQUIRED, Document, Present, Replaced, Row, With, section

HERE = "tests/contract/test_mjlab.py::"
EACH = HERE + "test_sensors_of_each_category_equal_mujocos_own"
XML = HERE + "test_sensors_of_the_xml_are_discovered_under_their_entity"

ROWS = (
    *section(
        "Sensors",
        Row("Sensor", "class", Present("sn.Sensor"), "base of all sensors, a general way from state to outputs"),
        Row("SceneCfg", "class", Replaced(("sn.Scene",), "The scene takes engine and configs by itself")),
        Row("SceneCfg.sensors", "cfg field", Present("sn.Scene.sensors", default=()), "configs of the scene's sensors"),
        Row(
            "SceneCfg.entities",
            "cfg field",
            Replaced(("sn.MujocoEngine.compose",), "Entities are models attached under their names"),
            "name -> entity",
        ),
        Row(
            "EntityCfg",
            "class",
            Replaced(("sn.MujocoEngine.compose",), "An entity is a model file, text or spec under a name prefix"),
        ),
        Row(
            "EntityData",
            "class",
            Replaced(("sn.Engine.array",), "The engine's batched derived state, in one convention for all engines"),
        ),
        Row("scene[name]", "method", Present("sn.Scene.__getitem__"), "sensor by its name"),
        Row("env.scene", "property", Replaced(("sn.Scene",), "The scene is an object of its own, in any loop")),
        Row(
            "sensors belong to the scene, not to an entity",
            "guarantee",
            Present("sn.Scene", "tests/test_scene.py::test_access"),
            "they are configured at the scene and found there by name",
        ),
        Row(
            "a sensor may refer to an element of an entity",
            "guarantee",
            Present("sn.ObjRef.entity", HERE + "test_a_sensor_on_an_element_of_an_entity_or_on_none"),
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
            Present("sn.BuiltinSensorCfg", HERE + "test_the_first_example_reads_an_accelerometer"),
            'configured with ObjRef, read as scene["robot/imu_acc"].data [env, 3]',
        ),
        Row(
            "first example: contact of feet with the terrain",
            "example",
            With("Contact"),
            "found [env, P] and force [env, P, 3] of the feet",
        ),
        Row("ContactData.found per foot", "guarantee", With("Contact"), "[B, P] contacts per foot"),
        Row(
            "four sensor types and a base class",
            "guarantee",
            With("Cameras", note="The last of the four to come is the camera."),
            "native measurements, contact, rays, cameras; the base class can be subclassed",
        ),
    ),
    *section(
        "BuiltinSensor",
        Row("BuiltinSensor", "class", Present("sn.BuiltinSensor"), "wraps a native MuJoCo sensor"),
        Row("BuiltinSensorCfg", "class", Present("sn.BuiltinSensorCfg")),
        Row("BuiltinSensorCfg.name", "cfg field", Present("sn.BuiltinSensorCfg.name", default="")),
        Row(
            "BuiltinSensorCfg.sensor_type",
            "cfg field",
            Present("sn.BuiltinSensorCfg.sensor_type", default="", why="Empty names a sensor that the model declares"),
            "MuJoCo's word for the type; always given",
            default=REQUIRED,
        ),
        Row(
            "BuiltinSensorCfg.obj",
            "cfg field",
            Present("sn.BuiltinSensorCfg.obj", default=None),
            "element it is attached to",
        ),
        Row(
            "BuiltinSensorCfg.ref", "cfg field", Present("sn.BuiltinSensorCfg.ref", default=None), "frame of reference"
        ),
        Row(
            "BuiltinSensorCfg.cutoff",
            "cfg field",
            Present("sn.BuiltinSensorCfg.cutoff", default=0.0),
            "clamps the output",
        ),
        Row("ObjRef", "class", Present("sn.ObjRef"), "an element of the model"),
        Row("ObjRef.type", "cfg field", Present("sn.ObjRef.type", default=REQUIRED), "site, joint, body, ..."),
        Row("ObjRef.name", "cfg field", Present("sn.ObjRef.name", default=REQUIRED)),
        Row("ObjRef.entity", "cfg field", Present("sn.ObjRef.entity", default=None), "scopes the name to an entity"),
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
            Present("sn.BuiltinSensorCfg.label", HERE + "test_the_first_example_reads_an_accelerometer"),
            'imu_acc on entity robot is "robot/imu_acc"',
        ),
        Row(
            "the entity scopes the lookup of the element",
            "guarantee",
            Present("sn.ObjRef", HERE + "test_a_sensor_on_an_element_of_an_entity_or_on_none"),
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
        Row("ContactSensor", "class", With("Contact"), "contacts of chosen pairs as batched tensors"),
        Row("ContactSensorCfg", "class", With("Contact")),
        Row("ContactSensorCfg.name", "cfg field", With("Contact", where="sn.ContactSensorCfg.name")),
        Row("raw contacts are filtered to chosen pairs", "guarantee", With("Contact")),
        Row("contacts of one element are reduced to a fixed count", "guarantee", With("Contact")),
        Row("it builds on MuJoCo's native contact sensor", "guarantee", With("Contact")),
    ),
    *section(
        "Primary and secondary",
        Row(
            "ContactSensorCfg.primary",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.primary"),
            "elements that are measured",
        ),
        Row(
            "ContactSensorCfg.secondary",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.secondary"),
            "what they touch",
            default=None,
        ),
        Row("ContactMatch", "class", With("Contact"), "one side of a contact"),
        Row(
            "ContactMatch.mode",
            "cfg field",
            With("Contact", where="sn.ContactMatch.mode"),
            "geom, body or subtree",
        ),
        Row(
            "ContactMatch.pattern",
            "cfg field",
            With("Contact", where="sn.ContactMatch.pattern"),
            "a regex or a tuple of them, matched within the entity",
        ),
        Row("ContactMatch.entity", "cfg field", With("Contact", where="sn.ContactMatch.entity")),
        Row("secondary None counts any contact", "guarantee", With("Contact")),
        Row("mode geom", "guarantee", With("Contact"), "matches geoms"),
        Row("mode body", "guarantee", With("Contact"), "matches bodies"),
        Row("mode subtree", "guarantee", With("Contact"), "matches a body with its descendants"),
        Row("foot geoms against the terrain body", "example", With("Contact")),
        Row("self-collision of a subtree with itself", "example", With("Contact")),
    ),
    *section(
        "Output shape",
        Row("a pattern resolves to P primaries, one column each", "guarantee", With("Contact")),
        Row("per-contact fields", "guarantee", With("Contact"), "[B, N, ...] with N = P * num_slots"),
        Row("per-contact columns are primary-major", "guarantee", With("Contact")),
        Row("per-primary fields", "guarantee", With("Contact"), "[B, P], reduced across slots"),
        Row("both shapes coincide at num_slots 1", "guarantee", With("Contact"), "N == P"),
        Row(
            "ContactSensor.primary_names",
            "property",
            With("Contact", where="sn.ContactSensor.primary_names"),
            "names after expansion of the pattern, in column order",
        ),
        Row("air time of a foot by its name", "example", With("Contact"), "primary_names and current_air_time[:, 0]"),
    ),
    *section(
        "Reduction",
        Row(
            "ContactSensorCfg.reduce",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.reduce"),
            "none, mindist, maxforce or netforce",
        ),
        Row(
            "ContactSensorCfg.num_slots",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.num_slots"),
            "contacts kept per primary",
            default=1,
        ),
        Row("reduce none", "guarantee", With("Contact"), "fast selection of up to num_slots, in no fixed order"),
        Row("reduce mindist", "guarantee", With("Contact"), "keeps the deepest contacts"),
        Row("reduce maxforce", "guarantee", With("Contact"), "keeps the strongest contacts"),
        Row("reduce netforce", "guarantee", With("Contact"), "one net wrench at the force-weighted centroid"),
        Row("netforce gives one slot whatever num_slots is", "guarantee", With("Contact")),
    ),
    *section(
        "When to set num_slots > 1",
        Row("several slots go with none, mindist or maxforce", "guarantee", With("Contact"), "no effect on netforce"),
        Row("centre of pressure of a flat foot", "example", With("Contact"), "from its corner contacts"),
        Row("grasp from several fingertip contacts", "example", With("Contact")),
        Row("tipping seen by a corner that lifts", "example", With("Contact")),
        Row("num_slots is a ceiling", "guarantee", With("Contact"), "the engine may give fewer contacts of a pair"),
        Row("slots without a contact stay zero", "guarantee", With("Contact")),
    ),
    *section(
        "Fields",
        Row(
            "ContactSensorCfg.fields",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.fields"),
            "among found, force, torque, dist, pos, normal, tangent",
        ),
        Row("only requested fields are allocated", "guarantee", With("Contact"), "the others are None"),
        Row(
            "without friction there is no torque and no tangential force",
            "guarantee",
            With("Contact"),
            "condim 1 gives a normal force only: physics, not the sensor",
        ),
    ),
    *section(
        "Air time tracking",
        Row(
            "ContactSensorCfg.track_air_time",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.track_air_time"),
            "keeps four timers per primary",
            default=False,
        ),
        Row(
            "ContactSensor.compute_first_contact",
            "method",
            With("Contact", where="sn.ContactSensor.compute_first_contact"),
            "(dt) -> [B, P], just landed",
        ),
        Row(
            "ContactSensor.compute_first_air",
            "method",
            With("Contact", where="sn.ContactSensor.compute_first_air"),
            "(dt) -> [B, P], just took off",
        ),
        Row("air time is per primary with several slots", "guarantee", With("Contact"), "any slot in contact counts"),
        Row("first contact and first air", "example", With("Contact")),
    ),
    *section(
        "History (decimation safe contacts)",
        Row(
            "ContactSensorCfg.history_length",
            "cfg field",
            With("Contact", where="sn.ContactSensorCfg.history_length"),
            "substeps kept of force, torque and distance",
        ),
        Row(
            "ContactData.force_history",
            "data field",
            With("Contact", where="sn.ContactData.force_history"),
            shape=("env", "N", "H", 3),
        ),
        Row(
            "ContactData.torque_history",
            "data field",
            With("Contact", where="sn.ContactData.torque_history"),
            shape=("env", "N", "H", 3),
        ),
        Row(
            "ContactData.dist_history",
            "data field",
            With("Contact", where="sn.ContactData.dist_history"),
            shape=("env", "N", "H"),
        ),
        Row("index 0 of a history is the newest substep", "guarantee", With("Contact")),
        Row("a collision within a control step is not lost", "guarantee", With("Contact")),
        Row("a history as long as the decimation covers one control step", "guarantee", With("Contact")),
        Row("air time accumulates across substeps", "guarantee", With("Contact")),
        Row("self-collision with history", "example", With("Contact"), "history_length = decimation"),
        Row("any substep above a force threshold", "example", With("Contact"), "norm of force_history > 10"),
    ),
    *section(
        "Output",
        Row("ContactData", "class", With("Contact")),
        Row("ContactData fields that were not asked for are None", "guarantee", With("Contact")),
        Row(
            "ContactData.found",
            "data field",
            With("Contact", where="sn.ContactData.found"),
            "count",
            shape=("env", "N"),
        ),
        Row("ContactData.force", "data field", With("Contact", where="sn.ContactData.force"), shape=("env", "N", 3)),
        Row("ContactData.torque", "data field", With("Contact", where="sn.ContactData.torque"), shape=("env", "N", 3)),
        Row(
            "ContactData.dist",
            "data field",
            With("Contact", where="sn.ContactData.dist"),
            "penetration",
            shape=("env", "N"),
        ),
        Row("ContactData.pos", "data field", With("Contact", where="sn.ContactData.pos"), shape=("env", "N", 3)),
        Row("ContactData.normal", "data field", With("Contact", where="sn.ContactData.normal"), shape=("env", "N", 3)),
        Row(
            "ContactData.tangent", "data field", With("Contact", where="sn.ContactData.tangent"), shape=("env", "N", 3)
        ),
        Row(
            "ContactData.current_air_time",
            "data field",
            With("Contact", where="sn.ContactData.current_air_time"),
            shape=("env", "P"),
        ),
        Row(
            "ContactData.last_air_time",
            "data field",
            With("Contact", where="sn.ContactData.last_air_time"),
            shape=("env", "P"),
        ),
        Row(
            "ContactData.current_contact_time",
            "data field",
            With("Contact", where="sn.ContactData.current_contact_time"),
            shape=("env", "P"),
        ),
        Row(
            "ContactData.last_contact_time",
            "data field",
            With("Contact", where="sn.ContactData.last_contact_time"),
            shape=("env", "P"),
        ),
    ),
    *section(
        "RayCastSensor",
        Row("RayCastSensor", "class", With("Rays"), "ray casting for terrain scans and depth"),
        Row("RayCastSensor on the GPU", "guarantee", With("MuJoCo Warp"), "accelerated"),
        Row("grid pattern", "guarantee", With("Rays")),
        Row("pinhole camera pattern", "guarantee", With("Rays")),
        Row("configurable alignment of rays", "guarantee", With("Rays")),
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
            Present("sn.Sensor.single", "tests/measurement/test_pipeline.py::test_single_has_one_field"),
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
                ("sn.Sensor.requirements", "sn.MODEL_ELEMENTS", "sn.prepare"),
                "A sensor declares what it needs; the engine's adapter adds it, or refuses by name",
                "tests/engines/test_mujoco.py::test_model_elements_are_added_once_and_hidden_names_stay_hidden",
            ),
            "adds elements to the MjSpec",
        ),
        Row(
            "Sensor.initialize",
            "method",
            Replaced(("sn.Sensor.setup",), "Called once when the sensor is built; mounts and memory are there already"),
            "after compilation: indices, buffers, references",
        ),
        Row(
            "Sensor.update",
            "method",
            Replaced(
                ("sn.SimpleSensor.update_raw_data", "sn.Sensor.new_state", "sn.Scene.update"),
                "The scene knows what is due; what must last is a state that resets and saves with the scene",
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
                ("sn.SimpleSensor.update_raw_data", "sn.Sensor.compute", "sn.Sensor.outputs"),
                "Outputs are written into memory whose address never changes",
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
