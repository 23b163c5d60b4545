"""What GeneLab's page on its tactile sensor names."""

from __future__ import annotations

from .rows import Document, NotApplicable, Present, Replaced, Row, With, section

CFG = "sn.KinematicTactileSensorCfg"
DATA = "sn.KinematicTactileSensorData"

ROWS = (
    *section(
        "KinematicTactileSensor",
        Row("KinematicTactileSensor", "class", With("Touch"), "point taxels on a link: force and torque per probe"),
        Row(
            "genesis.sensors.KinematicTaxel",
            "class",
            NotApplicable("Genesis", "the Genesis sensor object that the class wraps"),
        ),
        Row("taxels ride on a parent link", "guarantee", With("Touch")),
        Row("penetration comes from signed distance", "guarantee", With("Touch"), "of probe against geometry"),
        Row("relative motion is that of probe and touched geometry", "guarantee", With("Touch")),
        Row("normal velocity", "guarantee", With("Touch"), "v_n = (v . n) n"),
        Row("tangential velocity", "guarantee", With("Touch"), "v_t = v - v_n"),
        Row("exponent of penetration", "guarantee", With("Touch"), "s = penetration ** normal_exponent"),
        Row(
            "force formula",
            "guarantee",
            With("Touch", note="Formula and example of the document disagree in sign; the example holds."),
            "spring, damping scaled by s, and shear: F = -k s n - c s v_n - g v_t",
        ),
        Row("torque formula", "guarantee", With("Touch"), "T = p x F - h (w . n) n"),
        Row(
            "the direction of the force carries the contact normal",
            "guarantee",
            With("Touch"),
            "along the probe's normal",
        ),
        Row("outputs are in the parent link's frame", "guarantee", With("Touch")),
    ),
    *section(
        "Fidelity",
        Row(
            "a geometric estimate, not the solver's force",
            "guarantee",
            With("Touch"),
            "nor a deformable or optical skin",
        ),
        Row("KinematicContactSensor", "class", With("Touch"), "a binary contact flag instead"),
        Row("KinematicDepthSensor", "class", With("Touch"), "the raw penetration depth instead"),
    ),
    *section(
        "Configuration",
        Row("SensorCfg", "class", Present("sn.SensorCfg"), "base of the config"),
        Row("KinematicTactileSensorCfg", "class", With("Touch"), "extends SensorCfg"),
        Row(
            "all fields are keyword-only",
            "guarantee",
            Present("sn.SensorCfg", "tests/contract/test_guarantees.py::test_fields_of_every_config_are_keyword_only"),
        ),
        Row("KinematicTactileSensorCfg.name", "cfg field", Present("sn.SensorCfg.name"), "inherited", default=""),
        Row(
            "names are unique per scene",
            "guarantee",
            Present("sn.DuplicateNameError", "tests/test_scene.py::test_names_are_unique"),
        ),
        Row(
            "KinematicTactileSensorCfg.entity_name",
            "cfg field",
            With("Touch", where=f"{CFG}.entity_name"),
            "inherited; entity that carries the taxels",
            default="robot",
        ),
        Row(
            "KinematicTactileSensorCfg.link_name",
            "cfg field",
            With("Touch", where=f"{CFG}.link_name"),
            "parent link; must be given",
            default="",
        ),
        Row("link_name must be given", "error", With("Touch")),
        Row(
            "KinematicTactileSensorCfg.probe_local_pos",
            "cfg field",
            With("Touch", where=f"{CFG}.probe_local_pos"),
            "positions of the taxels in the link's frame, m",
            default=((0.0, 0.0, 0.0),),
        ),
        Row(
            "KinematicTactileSensorCfg.probe_local_normal",
            "cfg field",
            With("Touch", where=f"{CFG}.probe_local_normal"),
            "one normal for all, in the link's frame",
            default=(0.0, 0.0, 1.0),
        ),
        Row(
            "KinematicTactileSensorCfg.probe_radius",
            "cfg field",
            With("Touch", where=f"{CFG}.probe_radius"),
            "radius of the distance query, m",
            default=0.01,
        ),
        Row(
            "KinematicTactileSensorCfg.probe_radius_noise",
            "cfg field",
            With("Touch", where=f"{CFG}.probe_radius_noise"),
            "magnitude of a second, perturbed radius, m; 0 switches it off",
            default=0.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_stiffness",
            "cfg field",
            With("Touch", where=f"{CFG}.normal_stiffness"),
            "N/m",
            default=1000.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_damping",
            "cfg field",
            With("Touch", where=f"{CFG}.normal_damping"),
            "against the rate of penetration",
            default=1.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_exponent",
            "cfg field",
            With("Touch", where=f"{CFG}.normal_exponent"),
            "1 linear, 1.5 Hertz",
            default=1.0,
        ),
        Row("normal_exponent below 1", "error", With("Touch"), "must be at least 1"),
        Row(
            "KinematicTactileSensorCfg.shear_scalar",
            "cfg field",
            With("Touch", where=f"{CFG}.shear_scalar"),
            "shear force per tangential velocity",
            default=1.0,
        ),
        Row(
            "KinematicTactileSensorCfg.twist_scalar",
            "cfg field",
            With("Touch", where=f"{CFG}.twist_scalar"),
            "torque per angular velocity about the normal",
            default=1.0,
        ),
        Row(
            "KinematicTactileSensorCfg.history_length",
            "cfg field",
            Present("sn.SensorCfg.history_length"),
            "0 is the current step only",
            default=0,
        ),
        Row(
            "history as a leading axis of force and torque",
            "guarantee",
            With("Touch"),
            "data.force and data.torque carry it where history_length > 0",
        ),
    ),
    *section(
        "Data",
        Row("KinematicTactileSensorData", "class", With("Touch")),
        Row(
            "KinematicTactileSensorData.force",
            "data field",
            With("Touch", where=f"{DATA}.force"),
            "spring-damper force in the link's frame, N; (tangent x, tangent y, normal) where the normal is +z",
            shape=("env", "probe", 3),
        ),
        Row(
            "KinematicTactileSensorData.torque",
            "data field",
            With("Touch", where=f"{DATA}.torque"),
            "in the link's frame, N m",
            shape=("env", "probe", 3),
        ),
        Row(
            "KinematicTactileSensorData.raw",
            "data field",
            With("Touch", where=f"{DATA}.raw"),
            "alias of force",
            shape=("env", "probe", 3),
        ),
        Row("raw serves reward functions", "guarantee", With("Touch"), "which read data.raw"),
    ),
    *section(
        "Example",
        Row("InteractiveSceneCfg", "class", Replaced(("sn.Scene",), "The scene takes engine and configs by itself")),
        Row("InteractiveSceneCfg.sensors", "cfg field", Present("sn.Scene.sensors", default=())),
        Row("three taxels on a fingertip", "example", With("Touch"), "probes at 0 and 5 mm to either side"),
        Row("clear of contact reads about 0", "guarantee", With("Touch")),
        Row(
            "a pressed fingertip reads stiffness times penetration", "guarantee", With("Touch"), "k p along the normal"
        ),
        Row("10 N at 1000 N/m and 1 cm", "example", With("Touch"), "force about (0, 0, 10) N"),
    ),
)

SECTIONS = {
    "KinematicTactileSensor": 12,
    "Fidelity": 3,
    "Configuration": 20,
    "Data": 5,
    "Example": 6,
}

GENELAB = Document("GeneLab", "KinematicTactileSensor", SECTIONS, ROWS)
