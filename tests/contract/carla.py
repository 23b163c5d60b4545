"""What CARLA's tutorial on adding a sensor names."""

from __future__ import annotations

from .rows import Document, NotApplicable, Present, Replaced, Row, With, section

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
                note="The first of the kind is the collision sensor.",
            ),
            "only when something happens, like a collision",
        ),
        Row(
            "sensors that run in the simulator",
            "guarantee",
            Present("sn.Scene", "tests/test_scene.py::test_ready_when_built"),
            "computed where the simulation is",
        ),
        Row("sensors that run in the client", "guarantee", With("Streaming"), "computed where they are listened to"),
        Row(
            "data go all the way to a Python client",
            "guarantee",
            With("Streaming"),
            "sensor, serializer, stream, data object, callback",
        ),
        Row(
            "sensor actor",
            "class",
            Replaced(
                ("sn.Sensor", "sn.SimpleSensor"), "A sensor class measures; it needs no simulator object of its own"
            ),
            "measures or simulates the data",
        ),
        Row("serializer", "class", With("Streaming"), "turns data into bytes and back, on both sides"),
        Row("sensor data", "class", With("Streaming"), "object that the user gets"),
        Row(
            "sensors are registered and dispatched by type",
            "guarantee",
            Present("sensorium.registry.pair", "tests/measurement/test_pipeline.py::test_pairing"),
            "there at compile time, by templates; here when the class is defined",
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
            Present("sn.CollisionEvents", note="With begin, persist and end of each pair, and the impulse."),
            "triggered by a collision",
        ),
        Row("LaneInvasion", "class", With("Streaming"), "tells every time a lane mark was crossed"),
    ),
    *section(
        "Creating a new sensor",
        Row(
            "SafeDistance sensor",
            "class",
            With("Streaming"),
            "reports while something is inside a box around its owner",
        ),
        Row(
            "SafeDistance step by step",
            "example",
            With("Streaming"),
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
            NotApplicable(UE, "its collision component; the box itself comes with SafeDistance"),
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
            NotApplicable(UE, "its actor bounds; a body's own geoms give them with SafeDistance"),
        ),
        Row(
            "only one static method is required",
            "guarantee",
            With("Streaming"),
            "the definition; set, set_owner and tick are optional",
        ),
        Row("GetSensorDefinition", "method", With("Streaming"), "the attributes that users may set"),
        Row("Set", "method", With("Streaming"), "applies the attributes that the user asked for"),
        Row("SetOwner", "method", With("Streaming"), "sees the actor that the sensor is attached to"),
        Row("Tick", "method", With("Streaming"), "measures at every update of the simulator"),
        Row(
            "MakeGenericSensorDefinition",
            "method",
            With("Streaming"),
            'makes the definition "sensor.other.safe_distance"',
        ),
        Row("FActorDefinition", "class", With("Streaming"), "id and attributes of a blueprint"),
        Row("FActorVariation", "class", With("Streaming"), "one attribute"),
        Row("FActorVariation.Id", "data field", With("Streaming")),
        Row("FActorVariation.Type", "data field", With("Streaming"), "e.g. Float"),
        Row("FActorVariation.RecommendedValues", "data field", With("Streaming"), "strings"),
        Row("FActorVariation.bRestrictToRecommended", "data field", With("Streaming"), "false lets any value through"),
        Row("safe_distance_front", "cfg field", With("Streaming"), "recommended 1.0, not restricted, m", default=1.0),
        Row("safe_distance_back", "cfg field", With("Streaming"), "recommended 0.5, not restricted, m", default=0.5),
        Row("safe_distance_lateral", "cfg field", With("Streaming"), "recommended 0.5, not restricted, m", default=0.5),
        Row("FActorDescription", "class", With("Streaming"), "the attributes as the user gave them"),
        Row("RetrieveActorAttributeToFloat", "method", With("Streaming"), "attribute as a number, with a default"),
        Row(
            "the definition makes a blueprint in the library",
            "guarantee",
            With("Streaming"),
            "with which users configure and spawn",
        ),
        Row("set is called right after creation, before the first tick", "guarantee", With("Streaming")),
        Row(
            "metres to centimetres", "guarantee", NotApplicable(UE, "its unit of length; everything here is in metres")
        ),
        Row("centre of the box", "guarantee", With("Streaming"), "x = (front - back) / 2"),
        Row("half-extents of the box", "guarantee", With("Streaming"), "x (front + back) / 2, y lateral"),
        Row("set_owner extends the box by the owner's bounds", "guarantee", With("Streaming")),
        Row("set_owner is called upon attachment", "guarantee", With("Streaming")),
        Row("the owner itself is not detected", "guarantee", With("Streaming")),
        Row("GetOverlappingActors", "method", With("Streaming"), "what is inside the box now"),
        Row(
            "detection is filtered by kind of actor",
            "guarantee",
            With("Streaming"),
            "only wheeled vehicles there; here by entity",
        ),
        Row(
            "a message is sent at every tick with something inside",
            "guarantee",
            With("Streaming"),
            "and none while the box is empty",
        ),
        Row(
            "tick must be fast",
            "guarantee",
            Replaced(
                ("sn.SimpleSensor.update_raw_data", "sn.recorded"),
                "Hooks are called once per due tick for all environments and launch kernels",
            ),
            "it is called in the thread of the simulation",
        ),
        Row("GetDataStream", "method", With("Streaming"), "the stream of a sensor"),
        Row("Stream.Send", "method", With("Streaming"), "sends data to whoever listens"),
        Row("every sensor has a stream", "guarantee", With("Streaming")),
        Row("sending triggers the callback on the client", "guarantee", With("Streaming")),
    ),
    *section(
        "2. The sensor data serializer",
        Row("Serialize", "method", With("Streaming"), "the sensor and whatever was sent -> a buffer"),
        Row("Deserialize", "method", With("Streaming"), "received raw data -> a data object"),
        Row("a serializer has two static methods, no more", "guarantee", With("Streaming")),
        Row("the first argument of Serialize is the sensor", "guarantee", With("Streaming"), "and it returns a buffer"),
        Row("carla::Buffer", "class", With("Streaming"), "dynamically allocated raw memory"),
        Row("RawData", "class", With("Streaming"), "received bytes, before they are an object"),
        Row(
            "UCarlaEpisode",
            "class",
            Replaced(("sn.Scene", "sn.Engine.names"), "Scene and engine know everything by name"),
            "state of the simulation since the map was loaded; finds actors",
        ),
        Row("UCarlaEpisode.FindActor", "method", With("Streaming"), "the id of an actor"),
        Row("ActorId", "class", With("Streaming"), "number of an actor, the same on both sides"),
        Row(
            "actor ids are valid on both sides",
            "guarantee",
            With("Streaming"),
            "the client recognises the ids it receives as actors",
        ),
        Row(
            "serializer without the simulator's headers",
            "guarantee",
            With("Streaming", note="The client imports no engine."),
            "templates keep the library free of the engine",
        ),
        Row("list of actor ids in a buffer", "example", With("Streaming"), "the tutorial's serializer"),
    ),
    *section(
        "3. The sensor data object",
        Row("SafeDistanceEvent", "class", With("Streaming"), "a list of actor ids"),
        Row("Array", "class", With("Streaming"), "typed view over a received buffer"),
        Row("no memory is allocated to view a buffer", "guarantee", With("Streaming"), "it is reinterpreted"),
        Row("large data reuse the raw memory", "guarantee", With("Streaming"), "e.g. images"),
        Row("SafeDistanceEvent.__len__", "method", With("Streaming")),
        Row("SafeDistanceEvent.__iter__", "method", With("Streaming")),
        Row("SafeDistanceEvent.__getitem__", "method", With("Streaming"), "bounds are checked"),
        Row("index past the end", "error", With("Streaming"), "raises IndexError"),
        Row("data objects cannot be modified", "guarantee", With("Streaming")),
        Row("Boost.Python bindings", "guarantee", NotApplicable(BUILD, "bindings of its C++ classes")),
    ),
    *section(
        "4. Register your sensor",
        Row("SensorRegistry", "class", With("Streaming"), "sensor type -> serializer"),
        Row(
            "a pair in the registry header",
            "guarantee",
            Replaced(
                ("sensorium.registry.pair",),
                "Sensors register when they are defined; serializers will at run time",
                "tests/measurement/test_pipeline.py::test_pairing",
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
        Row("blueprint_library.find", "method", With("Streaming"), 'by "sensor.other.safe_distance"'),
        Row("world.spawn_actor", "method", With("Streaming"), "(blueprint, transform, attach_to)"),
        Row(
            "carla.Transform", "class", With("Streaming", note="`sn.Pose`."), "pose relative to what it is attached to"
        ),
        Row("sensor.listen", "method", With("Streaming"), "registers a callback"),
        Row("world.get_actor", "method", With("Streaming"), "actor by id"),
        Row("actor.type_id", "property", With("Streaming"), "name of the actor's kind"),
        Row("the callback runs at every update with a vehicle in the box", "guarantee", With("Streaming")),
        Row("a new sensor appears in the library", "guarantee", With("Streaming"), "the factory has added it"),
        Row(
            "vehicles that are too close are printed",
            "example",
            With("Streaming"),
            "find, spawn, listen, callback over ids",
        ),
    ),
    *section(
        "Appendix: Reusing buffers",
        Row("Stream.PopBufferFromPool", "method", With("Streaming")),
        Row("every stream has a buffer pool", "guarantee", With("Streaming")),
        Row("an empty pool gives an empty buffer", "guarantee", With("Streaming"), "without memory"),
        Row("a buffer returns to its pool by itself", "guarantee", With("Streaming"), "when it goes out of scope"),
        Row("the next buffer has the memory of the one before", "guarantee", With("Streaming")),
        Row("Buffer.reset", "method", With("Streaming"), "sets the size"),
        Row("Buffer.size", "property", With("Streaming")),
        Row("Buffer.capacity", "property", With("Streaming")),
        Row("a smaller size keeps the memory", "guarantee", With("Streaming")),
        Row("a larger size allocates anew", "guarantee", With("Streaming"), "the old memory is given up"),
        Row("reset to 1024, 512, 2048 bytes", "example", With("Streaming"), "allocates, keeps, allocates"),
    ),
    *section(
        "Appendix: Sending data asynchronously",
        Row(
            "data may be sent from another thread",
            "guarantee",
            With("Streaming"),
            "as a camera does from its render thread",
        ),
        Row("the stream is made in the simulation's thread", "guarantee", With("Streaming"), "and moved to the other"),
        Row("a tick that sends asynchronously", "example", With("Streaming")),
    ),
    *section(
        "Appendix: Client-side sensors",
        Row("a client-side sensor costs the simulator nothing", "guarantee", With("Streaming")),
        Row("a dummy in the simulator neither ticks nor sends", "guarantee", With("Streaming"), "it only exists"),
        Row("on-tick callback in the client", "method", With("Streaming"), "runs at every new update"),
        Row(
            "on-tick callbacks run concurrently",
            "guarantee",
            With("Streaming"),
            "the same method in several threads at once",
        ),
        Row(
            "shared data must be synchronised or constant",
            "guarantee",
            With("Streaming"),
            "mutex, atomics or constant members",
        ),
        Row("LaneInvasion as a client-side sensor", "example", With("Streaming")),
    ),
)

SECTIONS = {
    "Prerequisites": 1,
    "Introduction": 12,
    "Creating a new sensor": 2,
    "1. The sensor actor": 45,
    "2. The sensor data serializer": 12,
    "3. The sensor data object": 10,
    "4. Register your sensor": 4,
    "5. Usage example": 9,
    "Appendix: Reusing buffers": 11,
    "Appendix: Sending data asynchronously": 3,
    "Appendix: Client-side sensors": 6,
}

CARLA = Document("CARLA", "How to add a new sensor", SECTIONS, ROWS)
