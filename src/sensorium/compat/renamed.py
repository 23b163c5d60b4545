"""Fields of other systems' configs that have another form in sensorium."""

FIXES = {
    "visualizer_cfg sets the style: give debug_vis=True.": "viz",
    "Meshes are always shared: omit this field.": "reference_meshes",
    "The config's class determines the sensor class: omit this field.": "class_type",
    "Give targets=...; sensorium.compat.isaaclab has configs with mesh_prim_paths.": "mesh_prim_paths",
    "Give pattern=...; sensorium.compat.isaaclab has configs with pattern_cfg.": "pattern_cfg",
    'Give ray_alignment="yaw"; sensorium.compat.isaaclab has configs with attach_yaw_only.': "attach_yaw_only",
    "Give offset=...; sensorium.compat.isaaclab has configs with source_frame_offset.": "source_frame_offset",
    "Add geom_ids to fields; sensorium.compat.isaaclab has configs with update_mesh_ids.": "update_mesh_ids",
    "Isaac Lab 3 has it; sensorium.compat.isaaclab follows 2.3, whose quaternions are (w, x, y, z).":
        "renderer_cfg isp_cfg",
    "Give site=..., body=... or geom=..., or sites=...; sensorium.compat.mjlab has configs with frame.": "frame frames",
    "Give targets=...; sensorium.compat.genesis has options with track_link.": "track_link",
    "Give min_distance=...; sensorium.compat.genesis has options with min_range.": "min_range",
    "Give max_distance=...; sensorium.compat.genesis has options with max_range.": "max_range",
    "Add ray_hits_w or points_b to fields.": "return_points return_world_frame",
    "Contact with any of the matches counts: omit this field.": "secondary_policy",
    "Give the mount by name: link_name=..., body=..., site=... or ObjRef(type, name, entity).":
        "entity_idx link_idx_local",
    "Give offset=OffsetCfg(pos=...).": "pos_offset",
    "Give offset=OffsetCfg(rot=(w, x, y, z)).": "euler_offset",
    "Give lens=PinholeLensCfg(fovy=...).": "fov fovy",
    "Give lens=PinholeLensCfg(focal_length=...).": "focal_length",
    "Give width=..., height=...": "res",
}  # fmt: skip
REPLACEMENTS = {name: fix for fix, names in FIXES.items() for name in names.split()}
"""Field -> what to write instead."""
