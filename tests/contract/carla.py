"""What CARLA's tutorial on adding a sensor names."""

from __future__ import annotations

from .rows import Alias, Document, NotApplicable, Present, Replaced, Row, section

UE = "Unreal Engine"
BUILD = "CARLA's build"

ROWS = (
    *section(
        "Prerequisites",
        Row(
            "building the simulator from source", "guarantee", NotApplicable(BUILD, "its C++ source tree and toolchain")
        ),
    ),
    *section(
        "Introduction",
        Row(
            "sensors that produce data at every update",
            "guarantee",
            Present("sn.SensorCfg.update_period", "tests/measurement/test_schedule.py::test_counts_end_to_end"),
            "continuously, like a camera",
        ),
        Row(
            "sensors that produce data upon events",
            "guarantee",
            Present(
                "sn.CollisionEvents",
                "tests/sensors/test_collision_events.py::test_begin_persist_and_end",
                note="The first event sensor is the collision sensor.",
            ),
            "only when something happens, like a collision",
        ),
        Row(
            "sensors that run in the simulator",
            "guarantee",
            Present("sn.Scene", "tests/test_scene.py::test_ready_when_built"),
            "computed where the simulation is",
        ),
        Row(
            "sensors that run in the client",
            "guarantee",
            Present("sn.ClientSensor", "tests/client/test_client_sensor.py::test_the_hooks_are_called_in_their_order"),
            "computed where they are listened to",
        ),
        Row(
            "data go all the way to a Python client",
            "guarantee",
            Present(
                "sn.connect",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                note="The client is a process with only numpy, pyzmq and msgspec: tests/client/test_light.py.",
            ),
            "sensor, serializer, stream, data object, callback",
        ),
        Row(
            "sensor actor",
            "class",
            Replaced(
                ("sn.StreamedSensor", "sn.Sensor"),
                "A class measures; it needs no simulator object of its own",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
            "measures or simulates the data",
        ),
        Row("serializer", "class", Present("sn.Serializer"), "turns data into bytes and back, on both sides"),
        Row("sensor data", "class", Present("sn.SensorData"), "object that the user gets"),
        Row(
            "sensors are registered and dispatched by type",
            "guarantee",
            Present("sensorium.registry.pair", "tests/measurement/test_pipeline.py::test_pairing"),
            "there at compile time, by templates; here at class definition",
        ),
        Row(
            "an incomplete sensor does not compile",
            "guarantee",
            Present(
                "sn.RegistrationError",
                "tests/contract/test_guarantees.py::test_an_incomplete_sensor_is_refused_when_it_is_defined_or_built",
            ),
            "all the pieces must be present",
        ),
        Row(
            "collision sensor",
            "class",
            Present(
                "sn.Collision", note="sn.CollisionEvents in the scene also has begin, persist and end of each pair."
            ),
            "triggered by a collision",
        ),
        Row("LaneInvasion", "class", Present("sn.LaneInvasion"), "tells every time a lane mark was crossed"),
    ),
    *section(
        "Creating a new sensor",
        Row(
            "SafeDistance sensor",
            "class",
            Present("sn.SafeDistance", note="Spawned as sensor.other.safe_distance."),
            "reports while something is inside a box around its owner",
        ),
        Row(
            "SafeDistance step by step",
            "example",
            Present(
                test="tests/test_docs.py::test_python_blocks_run[docs/streamed_sensors.md*",
                note="docs/streamed_sensors.md builds it; the code of the page runs.",
            ),
            "the tutorial's sensor, from the class to the callback",
        ),
    ),
    *section(
        "1. The sensor actor",
        Row("AActor and ASensor", "class", NotApplicable(UE, "its actor classes")),
        Row("UObject", "class", NotApplicable(UE, "its garbage-collected base class")),
        Row("UPROPERTY", "guarantee", NotApplicable(UE, "the macro that keeps its objects from being collected")),
        Row("UCLASS and GENERATED_BODY", "guarantee", NotApplicable(UE, "macros of its reflection")),
        Row(
            "a header and a source file in the plugin's folder",
            "guarantee",
            NotApplicable(BUILD, "paths in its source tree"),
        ),
        Row(
            "UBoxComponent",
            "class",
            NotApplicable(UE, "its collision component; the box itself is that of SafeDistance"),
        ),
        Row(
            "CreateDefaultSubobject, SetupAttachment, SetHiddenInGame",
            "method",
            NotApplicable(UE, "set-up of its component"),
        ),
        Row("SetCollisionProfileName", "method", NotApplicable(UE, "names of its collision profiles")),
        Row("PrimaryActorTick.bCanEverTick", "property", NotApplicable(UE, "switch of its actor's tick")),
        Row("BeginPlay", "method", NotApplicable(UE, "its actor life cycle")),
        Row("TSet, FVector, FName, TEXT", "class", NotApplicable(UE, "its containers, vectors and strings")),
        Row(
            "GetActorBoundingBox",
            "method",
            Replaced(
                ("sensorium.wire.world.Body.half_extents",),
                "Each body has the box of its own shapes, `center` and `half_extents`",
                "tests/stream/test_safe_distance.py::test_the_bounding_box_of_a_body_turns_with_it_and_has_its_own_centre",
            ),
        ),
        Row(
            "only one static method is required",
            "guarantee",
            Present("sn.StreamedSensor.definition", "tests/stream/test_streamed.py::test_only_a_definition_is_needed"),
            "the definition; set, set_owner and tick are optional",
        ),
        Row(
            "GetSensorDefinition",
            "method",
            Present(
                "sn.StreamedSensor.definition",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="",
            ),
            "the attributes that users may set",
        ),
        Row(
            "Set",
            "method",
            Present(
                "sn.StreamedSensor.set",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="description",
            ),
            "applies the attributes that the user asked for",
        ),
        Row(
            "SetOwner",
            "method",
            Present(
                "sn.StreamedSensor.set_owner",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="owner",
            ),
            "sees the actor that the sensor is attached to",
        ),
        Row(
            "Tick",
            "method",
            Present(
                "sn.StreamedSensor.tick",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="snapshot",
            ),
            "measures at every update of the simulator",
        ),
        Row(
            "MakeGenericSensorDefinition",
            "method",
            Present(
                "sn.make_generic_sensor_definition",
                "tests/wire/test_attributes.py::test_the_definition_of_the_tutorial_has_its_attributes_and_defaults",
                call="type, id",
            ),
            'makes the definition "sensor.other.safe_distance"',
        ),
        Row(
            "FActorDefinition",
            "class",
            Alias("sn.SensorDefinition", "sn.compat.carla.FActorDefinition"),
            "id and attributes of a blueprint",
        ),
        Row(
            "FActorVariation",
            "class",
            Alias("sn.Attribute", "sn.compat.carla.FActorVariation"),
            "one attribute",
        ),
        Row("FActorVariation.Id", "property", Present("sn.Attribute.id")),
        Row("FActorVariation.Type", "property", Present("sn.Attribute.type"), "e.g. Float"),
        Row(
            "FActorVariation.RecommendedValues",
            "property",
            Present(
                "sn.Attribute.recommended_values",
                "tests/wire/test_attributes.py::test_the_default_is_the_first_recommended_value_unless_another_or_none_is_said",
            ),
            "strings",
        ),
        Row(
            "FActorVariation.bRestrictToRecommended",
            "property",
            Present(
                "sn.Attribute.restrict_to_recommended",
                "tests/wire/test_attributes.py::test_a_restricted_attribute_takes_its_recommended_values_alone_and_names_the_nearest",
            ),
            "false lets any value through",
        ),
        Row(
            "safe_distance_front",
            "cfg field",
            Present(
                "sn.SafeDistance.safe_distance_front",
                "tests/stream/test_safe_distance.py::test_the_blueprint_has_the_attributes_of_the_contract",
            ),
            "recommended 1.0, not restricted, m",
            default=1.0,
        ),
        Row(
            "safe_distance_back",
            "cfg field",
            Present(
                "sn.SafeDistance.safe_distance_back",
                "tests/stream/test_safe_distance.py::test_the_blueprint_has_the_attributes_of_the_contract",
            ),
            "recommended 0.5, not restricted, m",
            default=0.5,
        ),
        Row(
            "safe_distance_lateral",
            "cfg field",
            Present(
                "sn.SafeDistance.safe_distance_lateral",
                "tests/stream/test_safe_distance.py::test_the_blueprint_has_the_attributes_of_the_contract",
            ),
            "recommended 0.5, not restricted, m",
            default=0.5,
        ),
        Row(
            "FActorDescription",
            "class",
            Alias("sn.ActorDescription", "sn.compat.carla.FActorDescription"),
            "the attributes as the user gave them",
        ),
        Row(
            "RetrieveActorAttributeToFloat",
            "method",
            Present(
                "sn.ActorDescription.get_float",
                "tests/wire/test_attributes.py::test_a_description_gives_the_default_for_what_was_not_chosen",
                call="id, default",
            ),
            "attribute as a number, with a default",
        ),
        Row(
            "the definition makes a blueprint in the library",
            "guarantee",
            Present(
                "sn.BlueprintLibrary",
                "tests/contract/test_carla.py::test_a_definition_makes_a_blueprint_in_the_library",
            ),
            "with which users configure and spawn",
        ),
        Row(
            "set is called right after creation, before the first tick",
            "guarantee",
            Present(
                "sn.StreamedSensor.set",
                "tests/stream/test_streamed.py::test_attributes_come_before_the_owner_and_both_before_the_first_tick",
            ),
        ),
        Row(
            "metres to centimetres", "guarantee", NotApplicable(UE, "its unit of length; everything here is in metres")
        ),
        Row(
            "centre of the box",
            "guarantee",
            Present("sn.SafeDistance", "tests/stream/test_safe_distance.py::test_the_box_follows_the_formula"),
            "x = (front - back) / 2",
        ),
        Row(
            "half-extents of the box",
            "guarantee",
            Present("sn.SafeDistance", "tests/stream/test_safe_distance.py::test_the_box_follows_the_formula"),
            "x (front + back) / 2, y lateral",
        ),
        Row(
            "set_owner extends the box by the owner's bounds",
            "guarantee",
            Present(
                "sn.SafeDistance.set_owner", "tests/stream/test_safe_distance.py::test_the_box_follows_the_formula"
            ),
        ),
        Row(
            "set_owner is called upon attachment",
            "guarantee",
            Present(
                "sn.StreamedSensor.set_owner",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
        ),
        Row(
            "the owner itself is not detected",
            "guarantee",
            Present(
                "sn.SafeDistance",
                "tests/stream/test_safe_distance.py::test_the_owner_is_never_inside_and_bodies_without_shapes_neither",
                note="Nor, by default, the other links of its tree.",
            ),
        ),
        Row(
            "GetOverlappingActors",
            "method",
            Present(
                "sn.SafeDistance.inside",
                "tests/stream/test_safe_distance.py::test_the_overlap_of_turned_boxes_agrees_with_a_linear_programme",
                call="snapshot",
            ),
            "bodies inside the box now",
        ),
        Row(
            "detection is filtered by kind of actor",
            "guarantee",
            Present("sn.SafeDistance", "tests/stream/test_safe_distance.py::test_only_the_chosen_entities_count"),
            "only wheeled vehicles there; here by entity",
        ),
        Row(
            "a message is sent at every tick with something inside",
            "guarantee",
            Present(
                "sn.SafeDistance.tick",
                "tests/stream/test_safe_distance.py::test_the_ids_inside_are_told_in_each_frame_in_which_there_are_any",
            ),
            "and none while the box is empty",
        ),
        Row(
            "tick must be fast",
            "guarantee",
            Replaced(
                ("sn.SimpleSensor.update_raw_data", "sn.recorded"),
                "Hooks are called once per due tick for all environments and launch kernels",
                "tests/contract/test_genesis.py::test_a_hook_is_called_once_for_all_mounts_and_envs",
            ),
            "it is called in the thread of the simulation",
        ),
        Row(
            "GetDataStream",
            "method",
            Replaced(
                (
                    "sn.StreamedSensor.stream",
                    "sensorium.stream.sending.Stream.capture",
                ),
                "A property of the sensor; another thread sends with a capture",
                "tests/contract/test_carla.py::test_every_sensor_has_a_stream_and_a_pool_of_its_own",
            ),
            "the stream of a sensor",
        ),
        Row(
            "Stream.Send",
            "method",
            Present(
                "sensorium.stream.sending.Stream.send",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
            "sends data to whoever listens",
        ),
        Row(
            "every sensor has a stream",
            "guarantee",
            Present(
                "sn.StreamedSensor.stream",
                "tests/contract/test_carla.py::test_every_sensor_has_a_stream_and_a_pool_of_its_own",
            ),
        ),
        Row(
            "sending triggers the callback on the client",
            "guarantee",
            Present(
                "sensorium.stream.sending.Stream.send",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
        ),
    ),
    *section(
        "2. The sensor data serializer",
        Row(
            "Serialize",
            "method",
            Present(
                "sn.Serializer.serialize",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="sensor",
            ),
            "the sensor and whatever was sent -> a buffer",
        ),
        Row(
            "Deserialize",
            "method",
            Present(
                "sn.Serializer.deserialize",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="raw",
            ),
            "received raw data -> a data object",
        ),
        Row(
            "a serializer has two static methods, no more",
            "guarantee",
            Present("sn.Serializer", "tests/wire/test_serializers.py::test_both_methods_are_there_and_static"),
        ),
        Row(
            "the first argument of Serialize is the sensor",
            "guarantee",
            Present(
                "sn.Serializer.serialize",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
            "and it returns a buffer",
        ),
        Row("carla::Buffer", "class", Present("sensorium.wire.buffers.Buffer"), "dynamically allocated raw memory"),
        Row("RawData", "class", Present("sn.RawData"), "received bytes, before they are an object"),
        Row(
            "UCarlaEpisode",
            "class",
            Replaced(
                ("sn.Scene", "sn.Engine.names"),
                "Scene and engine identify everything by name",
                "tests/contract/test_carla.py::test_ids_of_bodies_are_the_same_on_both_sides",
            ),
            "state of the simulation since the map was loaded; finds actors",
        ),
        Row(
            "UCarlaEpisode.FindActor",
            "method",
            Present(
                "sensorium.wire.world.Snapshot.find",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="body",
            ),
            "the id of an actor",
        ),
        Row(
            "ActorId",
            "class",
            Replaced(
                ("sensorium.wire.world.Body.id",),
                "A number: the index in the engine's list of bodies",
                "tests/contract/test_carla.py::test_ids_of_bodies_are_the_same_on_both_sides",
            ),
            "number of an actor, the same on both sides",
        ),
        Row(
            "actor ids are valid on both sides",
            "guarantee",
            Present("sn.Client.bodies", "tests/contract/test_carla.py::test_ids_of_bodies_are_the_same_on_both_sides"),
            "the client recognises the ids it receives as actors",
        ),
        Row(
            "serializer without the simulator's headers",
            "guarantee",
            Present(
                test="tests/client/test_light.py::test_nothing_else_is_installed", note="The client imports no engine."
            ),
            "templates keep the library free of the engine",
        ),
        Row(
            "what Serialize returned comes back in Deserialize",
            "guarantee",
            Present(
                "sn.RawData.body", "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback"
            ),
            "the same buffer, on the client's side, packed as raw data",
        ),
        Row(
            "list of actor ids in a buffer",
            "example",
            Present(test="tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback"),
            "the tutorial's serializer",
        ),
    ),
    *section(
        "3. The sensor data object",
        Row("SafeDistanceEvent", "class", Present("sn.SafeDistanceEvent"), "a list of actor ids"),
        Row("Array", "class", Present("sn.ArrayData"), "typed view over a received buffer"),
        Row(
            "no memory is allocated to view a buffer",
            "guarantee",
            Present("sn.ArrayData", "tests/wire/test_data.py::test_the_received_memory_itself_is_what_is_seen"),
            "it is reinterpreted",
        ),
        Row(
            "large data reuse the raw memory",
            "guarantee",
            Present(
                "sn.FieldData",
                "tests/stream/test_local_client.py::test_a_large_frame_is_the_servers_memory_itself",
                note="In one process the server's memory; on one host shared memory.",
            ),
            "e.g. images",
        ),
        Row(
            "SafeDistanceEvent.__len__",
            "method",
            Present(
                "sn.SafeDistanceEvent.__len__", "tests/wire/test_data.py::test_an_array_of_ids_is_used_like_a_list"
            ),
        ),
        Row(
            "SafeDistanceEvent.__iter__",
            "method",
            Present(
                "sn.SafeDistanceEvent.__iter__", "tests/wire/test_data.py::test_an_array_of_ids_is_used_like_a_list"
            ),
        ),
        Row(
            "SafeDistanceEvent.__getitem__",
            "method",
            Present(
                "sn.SafeDistanceEvent.__getitem__",
                "tests/wire/test_data.py::test_an_array_of_ids_is_used_like_a_list",
                call="index",
            ),
            "bounds are checked",
        ),
        Row(
            "index past the end",
            "error",
            Present(
                "builtins.IndexError",
                "tests/contract/test_carla.py::test_the_event_behaves_as_an_array_that_cannot_be_modified",
            ),
            "raises IndexError",
        ),
        Row(
            "data objects cannot be modified",
            "guarantee",
            Present(
                "sn.SensorData",
                "tests/contract/test_carla.py::test_the_event_behaves_as_an_array_that_cannot_be_modified",
            ),
        ),
        Row(
            "a data object may have methods of its own",
            "guarantee",
            Present(
                "sn.ArrayData",
                "tests/contract/test_carla.py::test_the_event_behaves_as_an_array_that_cannot_be_modified",
            ),
            "the example adds none",
        ),
        Row(
            "a data object lives as long as somebody holds it",
            "guarantee",
            Present(
                "sn.SensorData",
                "tests/stream/test_kept_data.py::test_a_kept_view_is_unchanged_after_a_thousand_later_frames",
            ),
            "it is exposed as a shared pointer",
        ),
        Row("Boost.Python bindings", "guarantee", NotApplicable(BUILD, "bindings of its C++ classes")),
    ),
    *section(
        "4. Register your sensor",
        Row(
            "SensorRegistry",
            "class",
            Replaced(
                (
                    "sn.StreamedSensor.serializer",
                    "sensorium.wire.serializers.by_id",
                ),
                "A sensor names its serializer; messages contain a number for their type",
                "tests/contract/test_carla.py::test_the_serializer_that_belongs_to_the_sensor_is_found_by_its_type",
            ),
            "sensor type -> serializer",
        ),
        Row(
            "a pair in the registry header",
            "guarantee",
            Replaced(
                ("sn.StreamedSensor.serializer", "sensorium.registry.pair"),
                "Sensors and serializers register when they are defined; a streamed sensor names its serializer",
                "tests/contract/test_carla.py::test_the_serializer_that_belongs_to_the_sensor_is_found_by_its_type",
            ),
        ),
        Row("make rebuild", "guarantee", NotApplicable(BUILD, "its make target")),
        Row(
            "errors of registration are cryptic",
            "guarantee",
            Present("sn.RegistrationError", "tests/test_check_sensor.py::test_broken_plugins_are_found_out"),
            "template errors there; here a message with name and fix",
        ),
    ),
    *section(
        "5. Usage example",
        Row(
            "blueprint_library.find",
            "method",
            Present(
                "sn.BlueprintLibrary.find",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="id",
            ),
            'by "sensor.other.safe_distance"',
        ),
        Row(
            "world.spawn_actor",
            "method",
            Present(
                "sn.Client.spawn",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="blueprint, transform=None, attach_to=None",
            ),
            "(blueprint, transform, attach_to)",
        ),
        Row("carla.Transform", "class", Present("sn.Pose"), "pose relative to the parent actor"),
        Row(
            "sensor.listen",
            "method",
            Present(
                "sn.RemoteSensor.listen",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                call="callback",
            ),
            "registers a callback",
        ),
        Row(
            "world.get_actor",
            "method",
            Replaced(
                (
                    "sn.Client.bodies",
                    "sensorium.wire.world.Bodies.__getitem__",
                ),
                "client.bodies[id]",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
            "actor by id",
        ),
        Row(
            "actor.type_id",
            "property",
            Present(
                "sensorium.wire.world.Body.type_id",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
                note="The entity: the part of the name before the first slash.",
            ),
            "name of the actor's kind",
        ),
        Row(
            "the callback runs at every update with a vehicle in the box",
            "guarantee",
            Present(
                "sn.RemoteSensor.listen",
                "tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback",
            ),
        ),
        Row(
            "a new sensor appears in the library",
            "guarantee",
            Present(
                "sn.Client.blueprints",
                "tests/contract/test_carla.py::test_a_definition_makes_a_blueprint_in_the_library",
            ),
            "the factory has added it",
        ),
        Row(
            "vehicles that are too close are printed",
            "example",
            Present(test="tests/contract/test_carla.py::test_the_tutorial_from_the_definition_to_the_callback"),
            "find, spawn, listen, callback over ids",
        ),
    ),
    *section(
        "Appendix: Reusing buffers",
        Row(
            "Stream.PopBufferFromPool",
            "method",
            Present(
                "sensorium.stream.sending.Stream.pop_buffer",
                "tests/contract/test_carla.py::test_every_sensor_has_a_stream_and_a_pool_of_its_own",
                call="",
            ),
        ),
        Row(
            "every stream has a buffer pool",
            "guarantee",
            Present(
                "sensorium.stream.sending.Stream.pool",
                "tests/contract/test_carla.py::test_every_sensor_has_a_stream_and_a_pool_of_its_own",
            ),
        ),
        Row(
            "an empty pool gives an empty buffer",
            "guarantee",
            Present(
                "sensorium.wire.buffers.BufferPool.pop",
                "tests/wire/test_buffers.py::test_a_buffer_from_an_empty_pool_has_no_memory",
            ),
            "without memory",
        ),
        Row(
            "a buffer returns to its pool by itself",
            "guarantee",
            Present(
                "sensorium.wire.buffers.BufferPool",
                "tests/stream/test_streamed.py::test_the_memory_of_a_message_comes_back_when_nobody_looks_at_it",
            ),
            "when it goes out of scope",
        ),
        Row(
            "the next buffer has the memory of the one before",
            "guarantee",
            Present(
                "sensorium.wire.buffers.BufferPool",
                "tests/wire/test_buffers.py::test_the_next_buffer_has_the_memory_of_the_one_before",
            ),
        ),
        Row("Buffer.reset", "method", Present("sensorium.wire.buffers.Buffer.reset", call="size"), "sets the size"),
        Row("Buffer.size", "property", Present("sensorium.wire.buffers.Buffer.size")),
        Row("Buffer.capacity", "property", Present("sensorium.wire.buffers.Buffer.capacity")),
        Row(
            "a smaller size keeps the memory",
            "guarantee",
            Present(
                "sensorium.wire.buffers.Buffer.reset", "tests/wire/test_buffers.py::test_the_table_of_the_contract"
            ),
        ),
        Row(
            "a larger size allocates anew",
            "guarantee",
            Present(
                "sensorium.wire.buffers.Buffer.reset",
                "tests/wire/test_buffers.py::test_memory_given_up_for_a_larger_one_does_not_come_back",
            ),
            "the old memory is given up",
        ),
        Row(
            "reset to 1024, 512, 2048 bytes",
            "example",
            Present(test="tests/wire/test_buffers.py::test_the_table_of_the_contract"),
            "allocates, keeps, allocates",
        ),
    ),
    *section(
        "Appendix: Sending data asynchronously",
        Row(
            "data may be sent from another thread",
            "guarantee",
            Present(
                "sensorium.stream.sending.Stream.send_async",
                "tests/stream/test_streamed.py::test_real_worker_threads_send_every_frame",
            ),
            "as a camera does from its render thread",
        ),
        Row(
            "the stream is made in the simulation's thread",
            "guarantee",
            Present(
                "sensorium.stream.sending.Stream.capture",
                "tests/stream/test_streamed.py::test_sending_from_another_thread_needs_a_capture",
                note="A capture, for one message of that frame.",
            ),
            "and moved to the other",
        ),
        Row(
            "a tick that sends asynchronously",
            "example",
            Present(test="tests/contract/test_carla.py::test_a_tick_that_sends_asynchronously"),
        ),
    ),
    *section(
        "Appendix: Client-side sensors",
        Row(
            "a client-side sensor costs the simulator nothing",
            "guarantee",
            Present(
                "sn.ClientSensor",
                "tests/contract/test_carla.py::test_a_client_side_sensor_is_a_dummy_on_the_server",
                note="The state of the bodies is sent while a client listens.",
            ),
        ),
        Row(
            "a dummy in the simulator neither ticks nor sends",
            "guarantee",
            Present(
                "sn.ClientSensor", "tests/contract/test_carla.py::test_a_client_side_sensor_is_a_dummy_on_the_server"
            ),
            "it only exists",
        ),
        Row(
            "on-tick callback in the client",
            "method",
            Present(
                "sn.ClientSensor.on_tick",
                "tests/contract/test_carla.py::test_a_client_side_sensor_is_a_dummy_on_the_server",
                call="snapshot",
            ),
            "runs at every new update",
        ),
        Row(
            "on-tick callbacks run concurrently",
            "guarantee",
            Replaced(
                ("sn.ClientSensor.on_tick",),
                "Snapshots may arrive on several threads at once; on_tick gets them one at a time, in order",
                "tests/client/test_client_sensor.py::test_many_threads_with_shuffled_frames_see_one_tick_at_a_time_in_order",
            ),
            "the same method in several threads at once",
        ),
        Row(
            "shared data must be synchronised or constant",
            "guarantee",
            Replaced(
                ("sn.ClientSensor.on_tick",),
                "The base class does it: an author needs no locks",
                "tests/client/test_client_sensor.py::test_listen_and_stop_from_many_threads_while_ticks_arrive",
            ),
            "mutex, atomics or constant members",
        ),
        Row(
            "LaneInvasion as a client-side sensor",
            "example",
            Present(
                test="tests/client/test_lane_invasion.py::test_a_car_that_drifts_over_a_line_tells_each_corner_once"
            ),
        ),
    ),
)

SECTIONS = {
    "Prerequisites": 1,
    "Introduction": 12,
    "Creating a new sensor": 2,
    "1. The sensor actor": 45,
    "2. The sensor data serializer": 13,
    "3. The sensor data object": 12,
    "4. Register your sensor": 4,
    "5. Usage example": 9,
    "Appendix: Reusing buffers": 11,
    "Appendix: Sending data asynchronously": 3,
    "Appendix: Client-side sensors": 6,
}

CARLA = Document("CARLA", "How to add a new sensor", SECTIONS, ROWS)
