"""What Genesis' guide on custom sensors names."""

from __future__ import annotations

from .rows import Alias, Document, NotApplicable, Present, Replaced, Row, With, section

HERE = "tests/contract/test_genesis.py::"
PIPE = "tests/measurement/test_pipeline.py::"
OWN = "sn.SimpleSensor"
KNOB = "off, and without cost"

ROWS = (
    *section(
        "Implementing Custom Sensors",
        Row(
            "override only the hooks you need",
            "guarantee",
            Present("sn.SimpleSensor", HERE + "test_the_positions_of_the_guide"),
        ),
        Row(
            "sensors that bypass the pipeline derive from Sensor",
            "guarantee",
            Present("sn.Sensor", PIPE + "test_own_memory"),
        ),
    ),
    *section(
        "What you write to add a sensor",
        Row(
            "options class",
            "class",
            Replaced(
                ("sn.SimpleSensorCfg", "sn.MountedSensorCfg"),
                "A frozen config, typed by its data class instead of a forward reference to the sensor",
                "tests/contract/test_genesis.py::test_the_proximity_sensor_of_the_guide",
            ),
            "holds every parameter of a sensor",
        ),
        Row(
            "SimpleSensorOptions",
            "class",
            Replaced(
                ("sn.SimpleSensorCfg",),
                "Options are called configs here",
                "tests/measurement/test_knobs.py::test_fields_and_prefixes",
            ),
        ),
        Row(
            "SimpleSensorOptions.noise",
            "cfg field",
            Present("sn.SimpleSensorCfg.noise", default=None, note=f"None is {KNOB}."),
        ),
        Row(
            "SimpleSensorOptions.bias",
            "cfg field",
            Present("sn.SimpleSensorCfg.bias", default=None, note=f"None is {KNOB}."),
        ),
        Row(
            "SimpleSensorOptions.random_walk",
            "cfg field",
            Present("sn.SimpleSensorCfg.random_walk", default=None, note=f"None is {KNOB}."),
        ),
        Row(
            "SimpleSensorOptions.resolution",
            "cfg field",
            Present("sn.SimpleSensorCfg.resolution", default=None, note=f"None is {KNOB}."),
        ),
        Row(
            "SimpleSensorOptions.delay",
            "cfg field",
            Present("sn.SimpleSensorCfg.delay", default=None, note=f"None is {KNOB}."),
        ),
        Row(
            "SimpleSensorOptions.jitter",
            "cfg field",
            Present("sn.SimpleSensorCfg.jitter", default=None, note=f"None is {KNOB}."),
        ),
        Row("SimpleSensorOptions.history_length", "cfg field", Present("sn.SimpleSensorCfg.history_length", default=0)),
        Row(
            "SharedMetadata",
            "class",
            Replaced(
                ("sn.Sensor.setup", "sn.Sensor.params", "sn.Sensor.new_state"),
                "One object is one config with all its mounts and environments, so its state lives on the object",
                "tests/contract/test_replacements.py::test_a_state_lives_on_the_object_and_is_saved_and_reset_with_it",
            ),
            "state shared by all sensors of a class",
        ),
        Row(
            "SimpleSensorMetadata",
            "class",
            Replaced(
                ("sn.Sensor.set", "sn.Sensor.params"),
                "Knobs live in the sensor's own tables, per environment",
                "tests/measurement/test_knobs.py::test_only_these_envs*",
            ),
        ),
        Row(
            "SharedSensorMetadata",
            "class",
            Replaced(
                ("sn.Sensor.new_state",),
                "See SharedMetadata",
                "tests/contract/test_replacements.py::test_a_state_lives_on_the_object_and_is_saved_and_reset_with_it",
            ),
        ),
        Row("sensor class", "class", Present("sn.SimpleSensor"), "SimpleSensor[Options, Metadata], overriding hooks"),
        Row(
            "NamedTuple data class",
            "class",
            Replaced(
                ("sn.Field", "sn.FieldSpec"),
                "A frozen dataclass whose fields carry unit, shape, frame and dtype",
                "tests/contract/test_genesis.py::test_fields_of_a_data_class_share_one_block_of_memory",
            ),
            "where a sensor returns several tensors",
        ),
        Row(
            "options and sensor are paired automatically",
            "guarantee",
            Present("sensorium.registry.pair", PIPE + "test_pairing"),
            "as soon as both are imported",
        ),
        Row(
            "scene.add_sensor",
            "method",
            Replaced(
                ("sn.Scene.sensors", "sn.Scene.add"),
                "Configs are passed to the scene, or added between steps",
                "tests/test_scene.py::test_add_and_remove",
            ),
            "takes an options instance and makes the sensor",
        ),
        Row(
            "users only create options",
            "guarantee",
            Present("sn.Scene", "tests/test_scene.py::test_access"),
            "never the sensor object",
        ),
    ),
    *section(
        "Automatic registration (the plugin mechanism)",
        Row(
            "defining the class registers it",
            "guarantee",
            Present("sn.SimpleSensor", PIPE + "test_pairing"),
            "nothing is registered by hand",
        ),
        Row(
            "built-in sensors",
            "guarantee",
            Present("sensorium.registry.registered", "tests/test_registry.py::test_a_kind_leads_to_its_config_class"),
            "are found without an import of their modules",
        ),
        Row(
            "genesis/options/sensors and genesis/engine/sensors",
            "guarantee",
            NotApplicable("Genesis", "folders of its package"),
        ),
        Row(
            "options and sensor in sibling modules of one package",
            "guarantee",
            Present(
                "sensorium.registry.sensor_for",
                "tests/test_registry.py::test_a_config_finds_its_sensor_in_a_sibling_module",
            ),
            "the sensor's module is imported upon first use of its options",
        ),
        Row(
            "my_sensor_plugin with options.py and sensor.py",
            "example",
            Present("", "tests/test_registry.py::test_a_config_finds_its_sensor_in_a_sibling_module"),
        ),
    ),
    *section(
        "Picking the right base class",
        Row("SimpleSensor[OptionsT, MetadataT]", "class", Present("sn.SimpleSensor"), "almost always"),
        Row(
            "order of the pipeline",
            "guarantee",
            Present("sn.SimpleSensor", PIPE + "test_contract"),
            "raw, physics imperfections, transform, hardware imperfections, post-process, delay",
        ),
        Row(
            "SimpleSensor[OptionsT, MetadataT, DataT]",
            "class",
            Present("sn.SimpleSensor", note="The data class is always given."),
            "read() returns DataT",
        ),
        Row(
            "BaseCameraSensor[OptionsT]",
            "class",
            With("Cameras", where="sn.RenderedSensor"),
            "renders an image lazily on read",
        ),
        Row("Sensor[OptionsT, MetadataT]", "class", Present("sn.Sensor"), "where no standard pipeline applies"),
        Row(
            "_update_shared_cache",
            "method",
            Present("sn.Sensor.compute", call="truth, measured"),
            "implemented by sensors that derive from Sensor",
        ),
        Row(
            "full kernel control with internal noise",
            "guarantee",
            Present("sn.Sensor.compute", PIPE + "test_full_control"),
            "one pass writes truth and measured",
        ),
        Row(
            "KinematicSensorOptionsMixin",
            "class",
            Replaced(
                ("sn.MountedSensorCfg",),
                "One base for all mounted sensors",
                "tests/contract/test_genesis.py::test_the_positions_of_the_guide",
            ),
            "attached to a kinematic entity",
        ),
        Row(
            "RigidSensorOptionsMixin",
            "class",
            Replaced(
                ("sn.MountedSensorCfg",),
                "One base for all mounted sensors",
                "tests/contract/test_genesis.py::test_the_positions_of_the_guide",
            ),
            "requires rigid-body physics",
        ),
        Row(
            "RigidSensorOptionsMixin.entity_idx",
            "cfg field",
            Replaced(
                ("sn.MountedSensorCfg.body", "sn.MountedSensorCfg.link_name", "sn.ObjRef.entity"),
                "Names instead of indices",
                "tests/contract/test_mjlab.py::test_a_sensor_on_an_element_of_an_entity_or_on_none",
            ),
        ),
        Row(
            "RigidSensorMixin",
            "class",
            Replaced(
                ("sn.SimpleSensor.mount",),
                "The mount has the pose and motion of every place",
                "tests/contract/test_genesis.py::test_the_positions_of_the_guide",
            ),
        ),
        Row(
            "RigidSensorMetadataMixin",
            "class",
            Replaced(
                ("sensorium.world.mount.MountView",),
                "The mount knows its bodies and offsets",
                "tests/contract/test_genesis.py::test_the_positions_of_the_guide",
            ),
        ),
        Row("KinematicEntity and RigidLink", "class", NotApplicable("Genesis", "its entity and link objects")),
        Row(
            "solver",
            "property",
            Replaced(
                ("sn.Engine.array", "sn.Sensor.requires"),
                "Hooks read the engine's derived state, the same for all engines",
                "tests/contract/test_replacements.py::test_hooks_read_the_engines_state",
            ),
        ),
    ),
    *section(
        "The hooks of SimpleSensor",
        Row(
            "hooks are classmethods with shared metadata",
            "guarantee",
            Replaced(
                ("sn.SimpleSensor",),
                "Hooks are methods of an object for all mounts and environments of one config",
                HERE + "test_a_hook_is_called_once_for_all_mounts_and_envs",
            ),
            "one state container per class",
        ),
        Row(
            "hooks are called once per step for the whole class",
            "guarantee",
            Present(
                "sn.SimpleSensor",
                HERE + "test_a_hook_is_called_once_for_all_mounts_and_envs",
                note="Once per due tick and sensor; sensors of one rate share one launch of the standard chain.",
            ),
            "never per instance, never per environment",
        ),
    ),
    *section(
        "_get_return_format",
        Row("_get_return_format", "method", Present("sn.Sensor.fields"), "shape of what read() returns, per instance"),
        Row(
            "shape may depend on the options",
            "guarantee",
            Present("sn.Sensor.fields", HERE + "test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields"),
        ),
        Row("Raycaster.pattern.return_shape", "property", Present("sn.PatternBaseCfg.return_shape")),
        Row("Camera.res", "cfg field", With("Cameras")),
        Row(
            "Proximity.probe_local_pos",
            "cfg field",
            Present("sn.compat.genesis.Proximity.probe_local_pos", default=((0.0, 0.0, 0.0),)),
        ),
        Row(
            "one tensor of N scalars",
            "guarantee",
            Present("sn.Sensor.single", HERE + "test_one_tensor_of_n_scalars"),
            "(N,)",
        ),
        Row(
            "several tensors",
            "guarantee",
            Present("sn.Field.shape", HERE + "test_fields_of_a_data_class_share_one_block_of_memory"),
            "a tuple of shapes, in the order of the data class",
        ),
        Row("return format (3,)", "example", Present("", HERE + "test_the_positions_of_the_guide")),
    ),
    *section(
        "_get_cache_dtype",
        Row(
            "_get_cache_dtype",
            "method",
            Replaced(
                ("sn.Field.dtype",),
                "Each field of the data class states its dtype",
                "tests/contract/test_genesis.py::test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields",
            ),
            "dtype of what read() returns, per class",
        ),
        Row(
            "one dtype for all instances of a class",
            "guarantee",
            Present(
                "sn.Field.dtype",
                HERE + "test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields",
                note="Declared by the data class, so all its instances share it; fields may differ.",
            ),
        ),
        Row(
            "different dtypes need different classes",
            "guarantee",
            Replaced(
                ("sn.Field.dtype",),
                "Fields of one sensor may have different dtypes",
                PIPE + "test_cast_outputs_are_delayed",
            ),
        ),
        Row(
            "the dtype is known without an instance",
            "guarantee",
            Present(
                "sensorium.sensors.core.parts.declared_fields",
                HERE + "test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields",
            ),
        ),
        Row(
            "gs.tc_float",
            "property",
            Replaced(
                ("sn.Field.dtype",),
                "float32 unless a field says otherwise",
                "tests/contract/test_genesis.py::test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields",
            ),
        ),
    ),
    *section(
        "_update_raw_data",
        Row(
            "_update_raw_data",
            "method",
            Present(f"{OWN}.update_raw_data", call="raw"),
            "writes the true value of the current timestep",
        ),
        Row(
            "raw data are (cols, B), column-major",
            "guarantee",
            Replaced(
                ("sn.Record",),
                "`raw` has a contiguous [env, mount, ...] view per field, so no transpose and no offsets",
                HERE + "test_fields_of_a_data_class_share_one_block_of_memory",
            ),
        ),
        Row(
            "the buffer is written in place",
            "guarantee",
            Present("sn.Record", PIPE + "test_assigning_never_loses_the_value"),
        ),
        Row(
            "solver.get_links_pos(links_idx)",
            "method",
            Replaced(
                ("sensorium.world.mount.MountView.pos_w",),
                "World position of every mount, [env, mount, 3]",
                "tests/contract/test_genesis.py::test_the_positions_of_the_guide",
            ),
        ),
        Row(
            "it is the only hook that must be defined",
            "guarantee",
            Present(
                "sn.RegistrationError",
                "tests/contract/test_guarantees.py::test_an_incomplete_sensor_is_refused_when_it_is_defined_or_built",
            ),
        ),
        Row("positions of links", "example", Present("", HERE + "test_the_positions_of_the_guide")),
    ),
    *section(
        "_apply_transform",
        Row(
            "_apply_transform",
            "method",
            Present(f"{OWN}.apply_transform", call="data, timeline, *, is_measured"),
            "coordinate transform or response model, in place",
        ),
        Row(
            "it is called for truth and for measured",
            "guarantee",
            Present(f"{OWN}.apply_transform", HERE + "test_apply_transform_is_called_on_both_branches"),
            "is_measured False, then True",
        ),
        Row(
            "both rings are clean of hardware noise",
            "guarantee",
            Present("sn.Timeline", PIPE + "test_contract"),
            "they hold values after the transform and before hardware imperfections",
        ),
        Row("timeline.at(k)", "method", Present("sn.Timeline.at", call="k"), "the slot k samples ago"),
        Row(
            "timeline.at(k, copy=False)",
            "guarantee",
            Present(
                "sn.Timeline.at",
                HERE + "test_the_timeline_gives_the_record_itself",
                note="There is never a copy: `copy=True` is refused.",
            ),
        ),
        Row(
            "data is timeline.at(0)",
            "guarantee",
            Present("sn.Timeline.at", HERE + "test_apply_transform_is_called_on_both_branches"),
            "the same memory",
        ),
        Row(
            "data is batch-first",
            "guarantee",
            Present("sn.Record", HERE + "test_fields_of_a_data_class_share_one_block_of_memory"),
            "[B, ...]",
        ),
        Row(
            "effects of the sensor element are gated by is_measured",
            "guarantee",
            Present(f"{OWN}.apply_transform", HERE + "test_the_rc_element_of_the_guide_leaves_the_truth_alone"),
        ),
        Row(
            "effects without the gate act on both branches",
            "guarantee",
            Present(f"{OWN}.apply_transform", PIPE + "test_contract"),
        ),
        Row(
            "transform_by_quat",
            "method",
            Replaced(
                ("sensorium.geometry.transforms.quat_rotate",),
                "For kernels, quaternions (w, x, y, z); a mount has composed poses",
                "tests/contract/test_replacements.py::test_kernels_turn_vectors_by_quaternions",
            ),
        ),
        Row(
            "rotation and RC time constant",
            "example",
            Present("", HERE + "test_the_rc_element_of_the_guide_leaves_the_truth_alone"),
        ),
    ),
    *section(
        "_post_process",
        Row(
            "_post_process",
            "method",
            Present(f"{OWN}.post_process", call="data, timeline, *, is_measured"),
            "projects from intermediate to return space",
        ),
        Row(
            "the returned tensor goes into the return-space ring",
            "guarantee",
            Present(f"{OWN}.post_process", PIPE + "test_cast_outputs_are_delayed"),
            "and on the measured branch through the delay",
        ),
        Row(
            "it is called once per branch and step",
            "guarantee",
            Present(f"{OWN}.post_process", HERE + "test_post_process_sees_each_branch_and_its_own_previous_output"),
        ),
        Row(
            "its timeline is of the return space, one step behind",
            "guarantee",
            Present("sn.Timeline", PIPE + "test_post_process_memory"),
            "at(0) is the previous output",
        ),
        Row(
            "a stateful response on the measured branch only",
            "guarantee",
            Present(f"{OWN}.post_process", HERE + "test_post_process_sees_each_branch_and_its_own_previous_output"),
            "is_measured tells the branches apart",
        ),
        Row(
            "stateless overrides need neither timeline nor branch",
            "guarantee",
            Present(f"{OWN}.post_process", HERE + "test_the_threshold_of_the_guide"),
        ),
        Row("threshold", "example", Present("", HERE + "test_the_threshold_of_the_guide"), "tensor > thresholds"),
        Row(
            "_post_process without an intermediate format",
            "error",
            Present("sn.RegistrationError", PIPE + "test_post_process_needs_intermediate_fields", builtin="TypeError"),
            "TypeError when the class is defined",
        ),
        Row(
            "the intermediate buffer is distinct",
            "guarantee",
            Present(
                "sn.Sensor.intermediate_fields",
                HERE + "test_the_intermediate_record_is_distinct_where_the_spaces_coincide",
            ),
            "also where shape and dtype coincide",
        ),
        Row(
            "a no-op override acknowledges that the spaces coincide",
            "guarantee",
            Present(
                "sn.Sensor.intermediate_fields",
                HERE + "test_the_intermediate_record_is_distinct_where_the_spaces_coincide",
            ),
        ),
    ),
    *section(
        "_get_intermediate_format",
        Row(
            "_get_intermediate_format",
            "method",
            Present("sn.Sensor.intermediate_fields", note="Name, shape and dtype in one."),
            "shape of the pipeline's own buffer",
        ),
        Row(
            "it defaults to the return format",
            "guarantee",
            Present("sn.Sensor.intermediate_fields", HERE + "test_intermediate_fields_default_to_the_fields"),
        ),
        Row(
            "intermediate format as a no-op",
            "example",
            Present("", HERE + "test_the_intermediate_record_is_distinct_where_the_spaces_coincide"),
        ),
    ),
    *section(
        "_get_intermediate_dtype",
        Row(
            "_get_intermediate_dtype",
            "method",
            Replaced(
                ("sn.Sensor.intermediate_fields",),
                "The intermediate fields state shape and dtype together",
                "tests/contract/test_genesis.py::test_the_threshold_of_the_guide",
            ),
            "dtype of the pipeline's own buffer",
        ),
        Row(
            "it defaults to the return dtype",
            "guarantee",
            Present("sn.Sensor.intermediate_fields", HERE + "test_intermediate_fields_default_to_the_fields"),
        ),
        Row("float inside, bool outside", "example", Present("", HERE + "test_the_threshold_of_the_guide")),
        Row(
            "a plain sensor has one buffer",
            "guarantee",
            Present("sn.Sensor.nbytes", "tests/measurement/test_memory.py::test_a_clean_sensor"),
            "no copy, no extra memory",
        ),
        Row(
            "post-process, delay or history bring a buffer and a ring of their own",
            "guarantee",
            Present("sn.Sensor.nbytes", "tests/measurement/test_memory.py::test_each_part_costs_itself"),
        ),
        Row(
            "one sensor with delay or history makes its whole class pay",
            "guarantee",
            Replaced(
                ("sn.Sensor.nbytes",),
                "Rings belong to single sensors, at no cost for others of the class",
                "tests/measurement/test_memory.py::test_history_of_one_sensor_is_its_own",
            ),
        ),
    ),
    *section(
        "_apply_physics_imperfections",
        Row(
            "_apply_physics_imperfections",
            "method",
            Present(f"{OWN}.apply_physics_imperfections", call="slot, timeline"),
            "alters the phenomenon itself, before the transform",
        ),
        Row(
            "it is measured-only",
            "guarantee",
            Present(f"{OWN}.apply_physics_imperfections", PIPE + "test_contract"),
            "truth keeps the simulated phenomenon",
        ),
        Row(
            "noise meant for both branches is written into the simulator",
            "guarantee",
            Present("sn.Engine", "tests/engines/test_tensor.py::test_what_is_written_is_what_sensors_read"),
        ),
        Row(
            "it does nothing by default",
            "guarantee",
            Present(f"{OWN}.apply_physics_imperfections", HERE + "test_the_default_hooks_do_nothing"),
        ),
        Row(
            "its noise goes through the response model",
            "guarantee",
            Present(
                f"{OWN}.apply_physics_imperfections",
                "tests/measurement/test_stages.py::test_physics_stage_enters_the_recurrence",
            ),
        ),
        Row(
            "it is part of the default _update_current_timestep_data",
            "guarantee",
            Present(f"{OWN}.update_current_timestep_data", HERE + "test_the_fused_hook_replaces_raw_and_physics"),
            "overriding that replaces both",
        ),
    ),
    *section(
        "_apply_hardware_imperfections",
        Row(
            "_apply_hardware_imperfections",
            "method",
            Present(f"{OWN}.apply_hardware_imperfections", call="slot"),
            "noise, bias, random walk, resolution at the sensor's output",
        ),
        Row(
            "it comes before _post_process and before the freeze",
            "guarantee",
            Present(f"{OWN}.apply_hardware_imperfections", HERE + "test_noise_acts_before_post_process"),
        ),
        Row(
            "it never writes to the timeline",
            "guarantee",
            Present(
                f"{OWN}.apply_hardware_imperfections", HERE + "test_the_rc_element_of_the_guide_leaves_the_truth_alone"
            ),
        ),
        Row(
            "nothing of it reaches the truth",
            "guarantee",
            Present(f"{OWN}.apply_hardware_imperfections", PIPE + "test_truth_of_every_combination"),
        ),
        Row(
            "noise",
            "guarantee",
            Present("sn.SimpleSensorCfg.noise", "tests/measurement/test_chain.py::test_noise_statistics"),
        ),
        Row("bias", "guarantee", Present("sn.SimpleSensorCfg.bias", "tests/measurement/test_chain.py::test_reference")),
        Row(
            "random_walk",
            "guarantee",
            Present("sn.SimpleSensorCfg.random_walk", "tests/measurement/test_chain.py::test_random_walk_is_exact"),
        ),
        Row(
            "resolution",
            "guarantee",
            Present(
                "sn.SimpleSensorCfg.resolution", "tests/measurement/test_chain.py::test_quantised_outputs_are_multiples"
            ),
        ),
        Row(
            "super() keeps the standard pieces",
            "guarantee",
            Present(
                f"{OWN}.apply_hardware_imperfections",
                HERE + "test_signal_dependent_noise_of_the_guide",
                note="`self.standard_chain(slot)` does the same.",
            ),
        ),
        Row(
            "torch.normal in a hook",
            "method",
            Replaced(
                ("sn.Sensor.key", "sn.Sensor.stream"),
                "Numbers of a pure function of seed, name, tick, env and episode, instead of a global generator",
                "tests/sensors/test_params.py::test_torch_hooks_draw_reproducible_tensors",
            ),
        ),
        Row("signal-dependent noise on top", "example", Present("", HERE + "test_signal_dependent_noise_of_the_guide")),
    ),
    *section(
        "_update_current_timestep_data",
        Row(
            "_update_current_timestep_data",
            "method",
            Present(f"{OWN}.update_current_timestep_data", call="raw, slot, timeline"),
            "raw and physics imperfections in one pass",
        ),
        Row(
            "its default mirrors raw into both rings",
            "guarantee",
            Present(
                f"{OWN}.update_current_timestep_data",
                HERE + "test_the_default_of_the_fused_hook_mirrors_raw_and_applies_physics_imperfections",
            ),
            "then applies physics imperfections to the measured slot",
        ),
        Row(
            "the rest of the pipeline runs on top of an override",
            "guarantee",
            Present(f"{OWN}.update_current_timestep_data", HERE + "test_the_fused_hook_replaces_raw_and_physics"),
        ),
    ),
    *section(
        "uses_ring_pipeline",
        Row(
            "Sensor.uses_ring_pipeline",
            "property",
            Present("sn.Sensor.uses_ring_pipeline"),
            "whether a class takes part in the ring pipeline",
        ),
        Row(
            "it is True by default, and inherited",
            "guarantee",
            Present(
                "sn.Sensor.uses_ring_pipeline", HERE + "test_uses_ring_pipeline_is_true_unless_a_class_says_otherwise"
            ),
        ),
        Row("False allocates no rings", "guarantee", Present("sn.Sensor.uses_ring_pipeline", PIPE + "test_own_memory")),
        Row(
            "it is read once, when the scene is built",
            "guarantee",
            Present("sn.Sensor.uses_ring_pipeline", HERE + "test_uses_ring_pipeline_is_read_once"),
            "changing it later has no effect",
        ),
        Row("a sensor without rings", "example", Present("", PIPE + "test_own_memory")),
        Row(
            "has_any_noise, has_any_bias, ...",
            "property",
            Replaced(
                ("sn.Sensor.set", "sn.Sensor.info"),
                "A knob that is absent takes no memory and no time; a given one is live",
                "tests/measurement/test_knobs.py::test_zero_knobs_are_live",
            ),
            "flags that the setters keep, to skip work",
        ),
        Row(
            "set_noise",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_noise", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
        Row(
            "set_bias",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_bias", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
        Row(
            "set_random_walk",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_random_walk", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
        Row(
            "set_resolution",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_resolution", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
        Row(
            "set_delay",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_delay", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
        Row(
            "set_jitter",
            "method",
            Alias("sn.Sensor.set", where="sn.Sensor.set_jitter", test=HERE + "test_setters_of_the_guide_are_set"),
        ),
    ),
    *section(
        "Kernel-internal physics noise",
        Row(
            "noise that shapes the physics in one kernel",
            "guarantee",
            Present(
                f"{OWN}.update_current_timestep_data", "tests/test_docs.py::test_python_blocks_run[docs/extending.md*"
            ),
            "truth and measured from one pass",
        ),
        Row(
            "route 1: override _update_current_timestep_data",
            "example",
            Present("", HERE + "test_the_fused_hook_replaces_raw_and_physics"),
            "the standard pipeline follows",
        ),
        Row(
            "route 2: derive from Sensor",
            "example",
            Present("", PIPE + "test_full_control"),
            "post-process, rings and delay follow the hook",
        ),
    ),
    *section(
        "Camera-style sensors via BaseCameraSensor",
        Row("RasterizerCameraSensor", "class", With("Cameras")),
        Row("RaytracerCameraSensor", "class", With("Cameras")),
        Row("BatchRendererCameraSensor", "class", With("Cameras")),
        Row(
            "an image is rendered on first read of a step", "guarantee", With("Cameras"), "and shared by further reads"
        ),
        Row("no _update_shared_cache is needed for a camera", "guarantee", With("Cameras")),
        Row("attached to a link by pos, lookat and up", "guarantee", With("Cameras"), "follows the link each frame"),
        Row("attached to a link by offset_T", "guarantee", With("Cameras"), "an explicit offset instead"),
        Row("the hook gets the world transform", "guarantee", With("Cameras")),
        Row("rgb output", "guarantee", With("Cameras"), "(h, w, 3) uint8 from options.res"),
        Row("CameraData", "class", Present("sn.CameraData", note="Of the ray-cast camera so far, without colour.")),
        Row(
            "CameraData.rgb",
            "data field",
            With("Cameras", where="sn.CameraData.rgb"),
            shape=("env", "height", "width", 3),
        ),
        Row(
            "read(envs_idx)",
            "method",
            Present(
                "sn.Sensor.read",
                HERE + "test_read_returns_the_data_class_with_memory_of_its_own",
                call="envs_idx=None",
                note="An alias of `env_ids`, which may be given by place.",
            ),
            "for some environments",
        ),
        Row(
            "the batch axis is dropped with n_envs 0",
            "guarantee",
            Replaced(
                ("sn.Sensor.read",),
                "The env axis is always there, also for one environment",
                "tests/contract/test_guarantees.py::test_one_env_keeps_its_axis",
            ),
        ),
        Row("cameras are opted out of the ring pipeline", "guarantee", With("Cameras")),
        Row(
            "delay, jitter, history on a camera",
            "error",
            With(
                "Cameras",
                note="Due frames are then rendered when due and kept; unsupported options are rejected by name.",
            ),
            "refused when it is built",
        ),
        Row("_apply_camera_transform", "method", With("Cameras", where="sn.RenderedSensor.apply_camera_transform")),
        Row(
            "_render_current_state",
            "method",
            With("Cameras", where="sn.RenderedSensor.render_current_state"),
            "at most once per step and camera",
        ),
        Row("MyCameraSensor", "example", With("Cameras"), "two hooks"),
        Row("non-RGB output", "guarantee", With("Cameras"), "by overriding return format and dtype"),
        Row(
            "imperfection knobs are not available on a camera",
            "guarantee",
            With("Cameras"),
            "its noise lives in its own hooks",
        ),
        Row("history is refused on a camera", "guarantee", With("Cameras"), "stacks are made by the caller"),
    ),
    *section(
        "Per-class metadata",
        Row(
            "solver and entity references",
            "guarantee",
            Replaced(
                ("sn.Sensor.engine",),
                "The engine is available in every hook",
                "tests/contract/test_replacements.py::test_hooks_read_the_engines_state",
            ),
        ),
        Row(
            "index tensors per sensor",
            "guarantee",
            Replaced(
                ("sn.Sensor.setup",),
                "Created once, when the sensor is built",
                "tests/contract/test_genesis.py::test_setup_is_called_once_per_sensor",
            ),
        ),
        Row(
            "offsets per sensor",
            "guarantee",
            Replaced(
                ("sn.MountedSensorCfg.offset", "sn.SimpleSensor.mount"),
                "The mount applies them",
                "tests/sensors/test_imu_mujoco.py::test_a_mount_through_a_fixed_child_composes_its_offsets",
            ),
        ),
        Row(
            "filter coefficients, states, accumulators",
            "guarantee",
            Present(
                "sn.Sensor.new_state",
                HERE + "test_a_state_is_kept_from_step_to_step_and_begins_anew_with_an_episode",
            ),
            "kept from step to step",
        ),
        Row(
            "precomputed flags that gate slow paths",
            "guarantee",
            Replaced(
                ("sn.Sensor.setup",),
                "Decided once, when the sensor is built",
                "tests/contract/test_genesis.py::test_setup_is_called_once_per_sensor",
            ),
        ),
        Row(
            "imperfection state out of the box",
            "guarantee",
            Present("sn.Sensor.set", "tests/measurement/test_knobs.py::test_only_these_envs"),
        ),
        Row(
            "SimpleSensorMetadata.noise",
            "property",
            Replaced(
                ("sn.Sensor.set",),
                "Set per environment",
                "tests/contract/test_genesis.py::test_setters_of_the_guide_are_set[noise]",
            ),
        ),
        Row(
            "SimpleSensorMetadata.bias",
            "property",
            Replaced(
                ("sn.Sensor.set",),
                "Set per environment",
                "tests/contract/test_genesis.py::test_setters_of_the_guide_are_set[bias]",
            ),
        ),
        Row(
            "SimpleSensorMetadata.random_walk",
            "property",
            Replaced(
                ("sn.Sensor.set",),
                "Set per environment",
                "tests/contract/test_genesis.py::test_setters_of_the_guide_are_set[random_walk]",
            ),
        ),
        Row(
            "SimpleSensorMetadata.resolution",
            "property",
            Replaced(
                ("sn.Sensor.set",),
                "Set per environment",
                "tests/contract/test_genesis.py::test_setters_of_the_guide_are_set[resolution]",
            ),
        ),
        Row(
            "SimpleSensorMetadata.jitter_ts",
            "property",
            Replaced(
                ("sn.Sensor.set",),
                "Jitter is in seconds, and set per environment",
                "tests/contract/test_genesis.py::test_setters_of_the_guide_are_set[jitter]",
            ),
        ),
        Row(
            "make_tensor_field",
            "method",
            Replaced(
                ("sn.Sensor.new_state", "sn.Field"),
                "States and fields are allocated by the sensor",
                "tests/contract/test_replacements.py::test_a_state_lives_on_the_object_and_is_saved_and_reset_with_it",
            ),
        ),
        Row(
            "concat_with_tensor",
            "method",
            Replaced(
                ("sn.Sensor.setup", "sn.Sensor.params"),
                "Nothing is concatenated: an object holds all its mounts",
                "tests/contract/test_genesis.py::test_a_hook_is_called_once_for_all_mounts_and_envs",
            ),
        ),
        Row(
            "build",
            "method",
            Replaced(
                ("sn.Sensor.setup",),
                "Called once per sensor when the scene is built",
                HERE + "test_setup_is_called_once_per_sensor",
            ),
        ),
        Row(
            "MySharedMetadata with thresholds",
            "example",
            Replaced(
                ("sn.Sensor.set", "sn.Sensor.params"),
                "A number of the config, set per environment",
                "tests/sensors/test_params.py::test_a_number_of_the_config_can_be_set_per_env",
            ),
        ),
    ),
    *section(
        "Returning a NamedTuple instead of a tensor",
        Row("IMUData", "class", Present("sn.compat.genesis.IMUData")),
        Row(
            "IMUData.lin_acc",
            "data field",
            Alias("sn.ImuData.lin_acc_b", where="sn.compat.genesis.IMUData.lin_acc"),
            shape=("env", 3),
        ),
        Row(
            "IMUData.ang_vel",
            "data field",
            Alias("sn.ImuData.ang_vel_b", where="sn.compat.genesis.IMUData.ang_vel"),
            shape=("env", 3),
        ),
        Row(
            "IMUData.mag",
            "data field",
            Alias("sn.ImuData.mag_b", where="sn.compat.genesis.IMUData.mag"),
            shape=("env", 3),
        ),
        Row("IMUSensor", "class", Alias("sn.Imu", where="sn.compat.genesis.IMUSensor")),
        Row(
            "shapes match the field order",
            "guarantee",
            Present("sn.Field", HERE + "test_fields_of_a_data_class_share_one_block_of_memory"),
        ),
        Row(
            "one contiguous slab per sensor, sliced on read",
            "guarantee",
            Present(
                "sn.Record.flat",
                HERE + "test_fields_of_a_data_class_share_one_block_of_memory",
                note="Of its float32 fields, each contiguous in itself.",
            ),
        ),
        Row(
            "read() returns the data class",
            "guarantee",
            Present("sn.Sensor.read", HERE + "test_read_returns_the_data_class_with_memory_of_its_own"),
        ),
        Row(
            "an IMU as three tensors",
            "example",
            Present("", "tests/compat/test_compat_configs.py::test_genesis_imu_has_its_fields"),
        ),
    ),
    *section(
        "Worked example: a minimal proximity sensor",
        Row(
            "MyProximity and MyProximitySensor",
            "example",
            Present("", HERE + "test_the_proximity_sensor_of_the_guide"),
            "clamped distance of a link, with max_range 1",
        ),
        Row(
            "MyProximity.max_range",
            "cfg field",
            Present(
                "contract.test_genesis.ProximityCfg.max_range",
                HERE + "test_the_proximity_sensor_of_the_guide",
                note="A field of the example's own config.",
            ),
            default=1.0,
        ),
        Row(
            "max_range per sensor",
            "guarantee",
            Present("sn.Sensor.params", HERE + "test_the_proximity_sensor_of_the_guide"),
            "each instance has its own",
        ),
        Row(
            "all imperfections are inherited",
            "guarantee",
            Present("sn.SimpleSensorCfg", HERE + "test_the_proximity_sensor_of_the_guide"),
            "noise, bias, random walk, delay, jitter, history",
        ),
    ),
    *section(
        "Canonical examples",
        Row(
            "ContactSensor",
            "class",
            Alias(
                "sn.Contact",
                where="sn.compat.genesis.ContactSensor",
                why="the short name of the options; `sn.ContactSensor` is the report of mjlab and Isaac Lab",
                test="tests/sensors/test_contact.py::test_noise_acts_on_the_force_and_not_on_the_flag",
            ),
            "bool by threshold; float inside",
        ),
        Row(
            "ContactForceSensor",
            "class",
            Alias(
                "sn.ContactForce",
                where="sn.compat.genesis.ContactForceSensor",
                why="Named after its options",
                test="tests/sensors/test_contact_force.py::test_both_branches_are_clipped_and_then_lose_what_is_small",
            ),
            "clamp and deadband; spaces coincide",
        ),
        Row(
            "IMU: raw, then rotation to the body frame",
            "guarantee",
            Present(
                "sn.Imu",
                "tests/sensors/test_imu.py::test_every_field_of_a_random_state_follows_rigid_body_kinematics",
                note="In one kernel.",
            ),
        ),
        Row("ProximitySensor", "class", Alias("sn.SurfaceDistanceProbe", where="sn.compat.genesis.ProximitySensor")),
        Row("RaycasterSensor", "class", Alias("sn.RayCaster", where="sn.compat.genesis.RaycasterSensor")),
        Row("DepthCameraSensor", "class", Alias("sn.DepthCamera", where="sn.compat.genesis.DepthCameraSensor")),
        Row(
            "TemperatureGridSensor",
            "class",
            Alias("sn.TemperatureGrid", where="sn.compat.genesis.TemperatureGridSensor"),
            "RC filter through timeline.at(1)",
        ),
        Row(
            "ElastomerDisplacementSensor",
            "class",
            Alias("sn.ElastomerTaxel", where="sn.compat.genesis.ElastomerDisplacementSensor"),
        ),
        Row(
            "recurrence on both branches stays clean",
            "guarantee",
            Present("sn.Timeline", PIPE + "test_contract"),
            "hardware imperfections never reach the ring",
        ),
        Row(
            "every SimpleSensor inherits _apply_hardware_imperfections",
            "guarantee",
            Present(
                "sn.SimpleSensor.apply_hardware_imperfections",
                "tests/contract/test_guarantees.py::test_our_sensors_take_the_standard_chain_as_it_is",
                note="`Contact` also runs it, but reverts its effect where the force is zero.",
            ),
        ),
    ),
    *section(
        "Things to double-check",
        Row(
            "rebinding raw breaks the pipeline silently",
            "guarantee",
            Replaced(
                ("sn.Record",),
                "Assigning to a field of the record copies, so no value is lost",
                PIPE + "test_assigning_never_loses_the_value",
            ),
        ),
        Row(
            "reads are idempotent",
            "guarantee",
            Present("sn.Sensor.read", "tests/measurement/test_randomness.py::test_reads_are_pure"),
        ),
        Row(
            "reading mutates nothing",
            "guarantee",
            Present("sensorium.testing.check_sensor", "tests/measurement/test_randomness.py::test_reads_are_pure"),
        ),
        Row(
            "hooks must be vectorised",
            "guarantee",
            Present("sn.SimpleSensor", HERE + "test_a_hook_is_called_once_for_all_mounts_and_envs"),
            "they are called once for all",
        ),
        Row(
            "shape is per instance, dtype per class",
            "guarantee",
            Present("sn.Sensor.fields", HERE + "test_shapes_are_those_of_the_config_and_dtypes_those_of_the_fields"),
        ),
        Row(
            "_post_process goes with an intermediate override",
            "guarantee",
            Present("sn.RegistrationError", PIPE + "test_post_process_needs_intermediate_fields"),
        ),
        Row(
            "the checks can be run on a plugin",
            "guarantee",
            Present("sensorium.testing.check_sensor", "tests/test_check_sensor.py::test_broken_plugins_are_found_out"),
        ),
        Row(
            "tensor_to_array",
            "method",
            Replaced(
                ("sn.Scene.publish", "sn.Reading"),
                "Published readings are NumPy arrays",
                "tests/test_scene.py::test_publish",
            ),
        ),
    ),
)

SECTIONS = {
    "Implementing Custom Sensors": 2,
    "What you write to add a sensor": 17,
    "Automatic registration (the plugin mechanism)": 5,
    "Picking the right base class": 14,
    "The hooks of SimpleSensor": 2,
    "_get_return_format": 8,
    "_get_cache_dtype": 5,
    "_update_raw_data": 6,
    "_apply_transform": 11,
    "_post_process": 10,
    "_get_intermediate_format": 3,
    "_get_intermediate_dtype": 6,
    "_apply_physics_imperfections": 6,
    "_apply_hardware_imperfections": 11,
    "_update_current_timestep_data": 3,
    "uses_ring_pipeline": 12,
    "Kernel-internal physics noise": 3,
    "Camera-style sensors via BaseCameraSensor": 21,
    "Per-class metadata": 15,
    "Returning a NamedTuple instead of a tensor": 9,
    "Worked example: a minimal proximity sensor": 4,
    "Canonical examples": 10,
    "Things to double-check": 8,
}

GENESIS = Document("Genesis", "Implementing custom sensors", SECTIONS, ROWS)
