"""What GeneLab's page on its tactile sensor names."""

from __future__ import annotations

from .rows import Alias, Document, NotApplicable, Present, Replaced, Row, section

CFG = "sn.compat.genelab.KinematicTactileSensorCfg"
DATA = "sn.compat.genelab.KinematicTactileSensorData"
TEST = "tests/sensors/test_kinematic_tactile.py::test_"
LAW = TEST + "oblique_normals_and_velocities_follow_the_law*"

ROWS = (
    *section(
        "KinematicTactileSensor",
        Row(
            "KinematicTactileSensor",
            "class",
            Present("sn.compat.genelab.KinematicTactileSensor"),
            "point taxels on a link: force and torque per probe",
        ),
        Row(
            "genesis.sensors.KinematicTaxel",
            "class",
            NotApplicable("Genesis", "the Genesis sensor object that the class wraps"),
        ),
        Row("taxels ride on a parent link", "guarantee", Present("sn.KinematicTactileSensor", LAW)),
        Row(
            "penetration comes from signed distance",
            "guarantee",
            Present(test=TEST + "deep_inside_the_depth_goes_on"),
            "of probe against geometry",
        ),
        Row("relative motion is that of probe and touched geometry", "guarantee", Present(test=LAW)),
        Row("normal velocity", "guarantee", Present(test=LAW), "v_n = (v . n) n"),
        Row("tangential velocity", "guarantee", Present(test=LAW), "v_t = v - v_n"),
        Row(
            "exponent of penetration",
            "guarantee",
            Present(test=TEST + "force_over_depth_has_the_configured_exponent*"),
            "s = penetration ** normal_exponent",
        ),
        Row(
            "force formula",
            "guarantee",
            Present(
                test=LAW,
                note="Formula and example of the document disagree in sign; values follow the example: -F.",
            ),
            "spring, damping scaled by s, and shear: F = -k s n - c s v_n - g v_t",
        ),
        Row(
            "torque formula",
            "guarantee",
            Present(test=LAW, note="With the sign of the force."),
            "T = p x F - h (w . n) n",
        ),
        Row(
            "the direction of the force carries the contact normal",
            "guarantee",
            Present(test=TEST + "each_probe_may_have_its_own_normal"),
            "along the probe's normal",
        ),
        Row(
            "outputs are in the parent link's frame",
            "guarantee",
            Present(test=TEST + "the_reading_is_in_the_links_axes_wherever_the_link_is"),
        ),
    ),
    *section(
        "Fidelity",
        Row(
            "a geometric estimate, not the solver's force",
            "guarantee",
            Present(test=TEST + "own_link_is_not_felt_and_every_other_shape_is_collision_enabled_or_not"),
            "nor a deformable or optical skin",
        ),
        Row(
            "KinematicContactSensor",
            "class",
            Alias("sn.ContactProbe", where="sn.compat.genelab.KinematicContactSensor"),
            "a binary contact flag instead",
        ),
        Row(
            "KinematicDepthSensor",
            "class",
            Alias("sn.ContactDepthProbe", where="sn.compat.genelab.KinematicDepthSensor"),
            "the raw penetration depth instead",
        ),
    ),
    *section(
        "Configuration",
        Row("SensorCfg", "class", Present("sn.SensorCfg"), "base of the config"),
        Row("KinematicTactileSensorCfg", "class", Present(CFG), "extends SensorCfg"),
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
            Present(f"{CFG}.entity_name"),
            "inherited; entity that carries the taxels",
            default="robot",
        ),
        Row(
            "KinematicTactileSensorCfg.link_name",
            "cfg field",
            Present(f"{CFG}.link_name", default=None, why="A link or another selector is required; see the error."),
            "parent link; must be given",
            default="",
        ),
        Row(
            "link_name must be given",
            "error",
            Present("sn.ConfigError", TEST + "the_link_must_be_named", builtin="ValueError"),
        ),
        Row(
            "KinematicTactileSensorCfg.probe_local_pos",
            "cfg field",
            Present(f"{CFG}.probe_local_pos"),
            "positions of the taxels in the link's frame, m",
            default=((0.0, 0.0, 0.0),),
        ),
        Row(
            "KinematicTactileSensorCfg.probe_local_normal",
            "cfg field",
            Present(f"{CFG}.probe_local_normal"),
            "one normal for all, in the link's frame",
            default=(0.0, 0.0, 1.0),
        ),
        Row(
            "KinematicTactileSensorCfg.probe_radius",
            "cfg field",
            Present(f"{CFG}.probe_radius"),
            "radius of the distance query, m",
            default=0.01,
        ),
        Row(
            "KinematicTactileSensorCfg.probe_radius_noise",
            "cfg field",
            Present(f"{CFG}.probe_radius_noise"),
            "magnitude of a second, perturbed radius, m; 0 switches it off",
            default=0.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_stiffness",
            "cfg field",
            Present(f"{CFG}.normal_stiffness"),
            "N/m",
            default=1000.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_damping",
            "cfg field",
            Present(f"{CFG}.normal_damping"),
            "against the rate of penetration",
            default=1.0,
        ),
        Row(
            "KinematicTactileSensorCfg.normal_exponent",
            "cfg field",
            Present(f"{CFG}.normal_exponent"),
            "1 linear, 1.5 Hertz",
            default=1.0,
        ),
        Row(
            "normal_exponent below 1",
            "error",
            Present("sn.ConfigError", TEST + "bad_input_names_field_and_fix*", builtin="ValueError"),
            "must be at least 1",
        ),
        Row(
            "KinematicTactileSensorCfg.shear_scalar",
            "cfg field",
            Present(f"{CFG}.shear_scalar"),
            "shear force per tangential velocity",
            default=1.0,
        ),
        Row(
            "KinematicTactileSensorCfg.twist_scalar",
            "cfg field",
            Present(f"{CFG}.twist_scalar"),
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
            Present(test=TEST + "history_is_a_leading_axis_of_force_and_torque", note="After env."),
            "data.force and data.torque carry it where history_length > 0",
        ),
    ),
    *section(
        "Data",
        Row("KinematicTactileSensorData", "class", Present(DATA)),
        Row(
            "KinematicTactileSensorData.force",
            "data field",
            Present(f"{DATA}.force", unit="N"),
            "spring-damper force in the link's frame, N; (tangent x, tangent y, normal) where the normal is +z",
            shape=("env", "probe", 3),
        ),
        Row(
            "KinematicTactileSensorData.torque",
            "data field",
            Present(f"{DATA}.torque", unit="N m"),
            "in the link's frame, N m",
            shape=("env", "probe", 3),
        ),
        Row(
            "KinematicTactileSensorData.raw",
            "data field",
            Alias(
                f"{DATA}.force",
                where=f"{DATA}.raw",
                test=TEST + "the_contracts_example_reads_ten_newtons_along_the_normal",
            ),
            "alias of force",
            shape=("env", "probe", 3),
        ),
        Row(
            "raw serves reward functions",
            "guarantee",
            Present(test=TEST + "the_contracts_example_reads_ten_newtons_along_the_normal"),
            "which read data.raw",
        ),
    ),
    *section(
        "Example",
        Row(
            "InteractiveSceneCfg",
            "class",
            Replaced(("sn.Scene",), "The scene takes engine and configs directly", "tests/test_scene.py::test_access"),
        ),
        Row("InteractiveSceneCfg.sensors", "cfg field", Present("sn.Scene.sensors", default=())),
        Row(
            "three taxels on a fingertip",
            "example",
            Present(test=TEST + "the_contracts_example_reads_ten_newtons_along_the_normal"),
            "probes at 0 and 5 mm to either side",
        ),
        Row("clear of contact reads about 0", "guarantee", Present(test=TEST + "clear_of_contact_reads_exactly_zero")),
        Row(
            "a pressed fingertip reads stiffness times penetration",
            "guarantee",
            Present(test=TEST + "deep_inside_the_depth_goes_on"),
            "k p along the normal",
        ),
        Row(
            "10 N at 1000 N/m and 1 cm",
            "example",
            Present(test=TEST + "the_contracts_example_reads_ten_newtons_along_the_normal"),
            "force about (0, 0, 10) N",
        ),
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
