"""Materials, textures, lights, sky and fog of a MuJoCo model, as MuJoCo's OpenGL renderer draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from sensorium.geometry.appearance import HEADLIGHT, Fog, Light, Lighting, LightKind, Material, Sky, Texture, Varied

_TEXTURE, _OBJ, _MODE = mujoco.mjtTexture, mujoco.mjtObj, mujoco.mjtCamLight
_RGB = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
_SRGB = int(mujoco.mjtColorSpace.mjCOLORSPACE_SRGB)
_LIGHTS: dict[int, LightKind] = {
    int(mujoco.mjtLightType.mjLIGHT_SPOT): "spot",
    int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL): "directional",
    int(mujoco.mjtLightType.mjLIGHT_POINT): "point",
}
_GREY = (0.5, 0.5, 0.5, 1.0)
"""Colour of a geom without a given colour (MuJoCo's XML reference, geom, rgba)."""
_SKY_RADIUS = 0.7
"""Radius of the sky in MuJoCo's renderer, as a share of the far clipping distance."""
_HEAD = ("ambient", "diffuse", "specular")
"""Quantities of the headlight that a model defines."""
_MATERIAL = {"emission": "mat_emission", "specular": "mat_specular", "shininess": "mat_shininess",
             "mirror": "mat_reflectance"}  # fmt: skip
_LIGHT = {"ambient": "light_ambient", "diffuse": "light_diffuse", "specular": "light_specular",
          "is_active": "light_active"}  # fmt: skip

Given = Callable[[str], np.ndarray]
"""Function from a field of the model to its values `[1 or env, ...]`."""


def texture_ids(model: Any) -> list[int]:
    """Return the ids of the textures of a model, without the skies and those that are not colours."""
    return [
        i for i in range(model.ntex)
        if model.tex_type[i] != _TEXTURE.mjTEXTURE_SKYBOX and int(model.tex_nchannel[i]) in (3, 4)
    ]  # fmt: skip


def model_textures(model: Any, known: Iterable[Texture] = ()) -> dict[int, Texture]:
    """Return the textures of a model by their ids, those in `known` by their names."""
    named = {texture.name: texture for texture in known}
    return {i: named.get(_texture_name(model, i)) or _texture(model, i) for i in texture_ids(model)}


def _texture_name(model: Any, i: int) -> str:
    return mujoco.mj_id2name(model, _OBJ.mjOBJ_TEXTURE, i) or f"texture_{i}"


def _texture(model: Any, i: int) -> Texture:
    width, height, channels = (int(size[i]) for size in (model.tex_width, model.tex_height, model.tex_nchannel))
    start = int(model.tex_adr[i])
    pixels = model.tex_data[start : start + width * height * channels].reshape(height, width, channels)
    if int(model.tex_colorspace[i]) == _SRGB:  # the renderer decodes these
        levels = np.arange(256) / 255.0
        linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
        pixels = np.concatenate([np.rint(255.0 * linear).astype(np.uint8)[pixels[..., :3]], pixels[..., 3:]], axis=-1)
    if model.tex_type[i] != _TEXTURE.mjTEXTURE_2D:
        sides = height // width
        pixels = np.broadcast_to(pixels[..., :3].reshape(sides, width, width, 3), (6, width, width, 3))
    return Texture(pixels, _texture_name(model, i))


def drawn_rgba(model: Any, material: int, own: Any) -> Any:
    """Return the colour that MuJoCo draws: the geom's own if that is not the default grey, otherwise its material's."""
    return model.mat_rgba[material] if material >= 0 and tuple(own) == _GREY else own


def material_of(model: Any, material: int, textures: Mapping[int, Texture]) -> Material:
    """Return the material of a geom; `material` is its id, -1 for none."""
    if material < 0:
        return Material()
    values = {name: float(getattr(model, field)[material]) for name, field in _MATERIAL.items()}
    u, v = (float(count) for count in model.mat_texrepeat[material])
    texture = textures.get(int(model.mat_texid[material, _RGB]))
    return Material(texture=texture, repeat=(u, v), is_uniform=bool(model.mat_texuniform[material]), **values)


def model_lighting(model: Any, body_row: Mapping[int, int], textures: Mapping[int, Texture]) -> Lighting:
    """Return the lights, the sky and the fog of a model, and its textures.

    Args:
        model: the MjModel.
        body_row: MuJoCo's body id -> row of the body, -1 for the world.
        textures: its textures, see `model_textures`.
    """
    vis, extent = model.vis, float(model.stat.extent)
    lights = [_light(model, i, body_row) for i in range(model.nlight) if int(model.light_type[i]) in _LIGHTS]
    if vis.headlight.active:
        look = {name: tuple(map(float, getattr(vis.headlight, name))) for name in _HEAD}
        lights.insert(0, Light("head", "headlight", casts_shadow=False, **look))  # type: ignore[arg-type]
    skies = np.flatnonzero(np.asarray(model.tex_type) == _TEXTURE.mjTEXTURE_SKYBOX)
    sky = None
    if skies.size:
        radius = _SKY_RADIUS * float(vis.map.zfar) * extent
        red, green, blue = (float(part) for part in vis.rgba.haze[:3])
        sky = Sky(_texture(model, int(skies[0])), radius, (red, green, blue), float(vis.map.haze))
    red, green, blue = (float(part) for part in vis.rgba.fog[:3])
    fog = Fog(float(vis.map.fogstart) * extent, float(vis.map.fogend) * extent, (red, green, blue))
    images = [i for i in range(model.nlight) if int(model.light_type[i]) not in _LIGHTS]
    fault = f"light {light_name(model, images[0])!r} has an image, which is not supported" if images else ""
    return Lighting(tuple(lights), sky, fog, tuple(textures.values()), fault)


def light_name(model: Any, i: int) -> str:
    """Return the name of a light."""
    return mujoco.mj_id2name(model, _OBJ.mjOBJ_LIGHT, i) or f"light_{i}"


def _light(model: Any, i: int, body_row: Mapping[int, int]) -> Light:
    kind, mode = _LIGHTS[int(model.light_type[i])], int(model.light_mode[i])
    body, target = int(model.light_bodyid[i]), int(model.light_targetbodyid[i])
    pos, direction = model.light_pos[i], model.light_dir[i]
    parts: dict[str, Any] = {}
    if mode in (_MODE.mjCAMLIGHT_TRACK, _MODE.mjCAMLIGHT_TRACKCOM):
        is_com = mode == _MODE.mjCAMLIGHT_TRACKCOM
        pos, direction = (model.light_poscom0 if is_com else model.light_pos0)[i], model.light_dir0[i]
        parts = {"tracking": "position", "points": _points(model, body, body_row, is_com)}
    elif mode != _MODE.mjCAMLIGHT_FIXED and target >= 0:
        is_com = mode == _MODE.mjCAMLIGHT_TARGETBODYCOM
        parts = {"tracking": "target", "points": _points(model, target, body_row, is_com)}
    return Light(
        kind,
        light_name(model, i),
        body_row[body],
        tuple(pos),
        tuple(direction),
        ambient=tuple(model.light_ambient[i]),
        diffuse=tuple(model.light_diffuse[i]),
        specular=tuple(model.light_specular[i]),
        attenuation=(1.0, 0.0, 0.0) if kind == "directional" else tuple(model.light_attenuation[i]),
        cutoff_deg=float(model.light_cutoff[i]) if kind == "spot" else 180.0,
        exponent=float(model.light_exponent[i]),
        casts_shadow=bool(model.light_castshadow[i]),
        is_active=bool(model.light_active[i]),
        **parts,
    )


def _points(model: Any, body: int, body_row: Mapping[int, int], is_com: bool) -> tuple[Any, ...]:
    """Return the points whose weighted mean is the origin of a body, or the centre of mass of its subtree."""
    if not is_com:
        return ((body_row[body], 1.0, (0.0, 0.0, 0.0)),)
    below = {body}
    for i in range(body + 1, model.nbody):
        if int(model.body_parentid[i]) in below and i in body_row:
            below.add(i)
    mass = max(float(sum(model.body_mass[i] for i in below)), 1e-15)
    return tuple(
        (body_row[i], float(model.body_mass[i]) / mass, tuple(map(float, model.body_ipos[i])))
        for i in sorted(below)
        if model.body_mass[i] > 0.0
    )


def model_looks(model: Any, geoms: Sequence[int], values: Given) -> Varied:
    """Return the current values of quantities of shapes and lights, see `Engine.looks`.

    Args:
        model: the MjModel.
        geoms: ids of the geoms that are shapes, in order; the flexes follow them.
        values: returns the values `[1 or env, ...]` of a field of the model.
    """
    materials = np.asarray(model.geom_matid, dtype=np.int64)[list(geoms)]

    def shaped(found: np.ndarray, default: Any) -> np.ndarray:
        """Return values of materials, the last of which is that of no material, for the shapes."""
        none = np.broadcast_to(np.asarray(default, dtype=np.float32), (len(found), 1, *found.shape[2:]))
        flexes = np.repeat(none, model.nflex, axis=1)
        return np.concatenate([np.concatenate([found, none], axis=1)[:, materials], flexes], axis=1)

    default = Material()
    looks = {name: shaped(values(field), getattr(default, name)) for name, field in _MATERIAL.items()}
    rows = {i: row for row, i in enumerate(texture_ids(model))}
    row_of = np.array([*(rows.get(i, -1) for i in range(model.ntex)), -1])
    looks["texture"] = shaped(row_of[values("mat_texid")[..., _RGB]], -1)
    own, given = values("geom_rgba")[:, list(geoms)], shaped(values("mat_rgba"), 0.0)
    takes_own = (own != _GREY).any(axis=-1) | (materials < 0)
    drawn = np.where(takes_own[..., None], own, given[:, : len(geoms)])
    looks["rgba"] = np.concatenate(
        [drawn, np.broadcast_to(given[:1, len(geoms) :], (len(drawn), model.nflex, 4))], axis=1
    )
    return looks | _light_looks(model, values)


def _light_looks(model: Any, values: Given) -> Varied:
    """Return the current values of quantities of lights; the first light is the headlight, if there is one."""
    lights = [i for i in range(model.nlight) if int(model.light_type[i]) in _LIGHTS]
    if not lights:
        return {}
    head = HEADLIGHT if model.vis.headlight.active else None
    modes = np.asarray(model.light_mode)[lights]
    follows = np.isin(modes, (_MODE.mjCAMLIGHT_TRACK, _MODE.mjCAMLIGHT_TRACKCOM))[:, None]
    is_com = (modes == _MODE.mjCAMLIGHT_TRACKCOM)[:, None]
    looks = {name: values(field)[:, lights] for name, field in _LIGHT.items()}
    tracked = np.where(is_com, values("light_poscom0")[:, lights], values("light_pos0")[:, lights])
    looks["pos"] = np.where(follows, tracked, values("light_pos")[:, lights])
    looks["direction"] = np.where(follows, values("light_dir0")[:, lights], values("light_dir")[:, lights])
    if head is not None:
        for name, found in looks.items():
            own = getattr(model.vis.headlight, name) if name in _HEAD else getattr(head, name)
            first = np.broadcast_to(np.asarray(own, dtype=found.dtype), (len(found), 1, *found.shape[2:]))
            looks[name] = np.concatenate([first, found], axis=1)
    return {f"light_{name}": found for name, found in looks.items()}
