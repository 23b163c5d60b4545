"""Worlds that do not move, from MJCF and URDF files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco

from sensorium.engines.mujoco.looks import light_name, model_lighting, model_textures
from sensorium.engines.mujoco.shapes import model_decorations, model_shapes
from sensorium.engines.mujoco.spec import compile_spec, load_spec, lost_visuals
from sensorium.engines.world_file import World
from sensorium.errors import ModelError, listed


def model_world(path: Path) -> World:
    """Return the world of a model without joints: shapes and sites, which are all on the world, lights and sky.

    Raises:
        ModelError: the file is missing or invalid, or has joints.
    """
    label = f"world file {str(path)!r}"
    spec = load_spec(path)
    model = compile_spec(spec, label)
    if model.njnt or model.nmocap:
        moving = [model.joint(i).name for i in range(model.njnt)] or ["a mocap body"]
        raise ModelError(f"{label}: got moving parts ({listed(moving, 5)}), expected none. Remove them.")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    on_world = dict.fromkeys(range(model.nbody), -1)
    shapes = model_shapes(model, on_world)
    others = model_decorations(model, on_world, (model.site_pos[None], model.site_quat[None]), None)
    own = [shape.material.texture for shape in shapes if shape.material.texture is not None]
    lighting = model_lighting(model, on_world, model_textures(model, own))
    fixed: dict[str, Any] = {
        light_name(model, i): {"pos": data.light_xpos[i], "direction": data.light_xdir[i]} for i in range(model.nlight)
    }
    lights = [replace(each, tracking="fixed", points=(), **fixed.get(each.name, {})) for each in lighting.lights]
    drawn = [*shapes, *(each for each in others if each.element != "tendon")]
    cables = f"{label}: its tendons are not drawn. Use capsules." if len(drawn) < len(shapes) + len(others) else ""
    return World(tuple(drawn), replace(lighting, lights=tuple(lights)), lost_visuals(spec) or cables)
