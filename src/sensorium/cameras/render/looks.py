"""Looks of the shapes of a scene, its lights and its textures, for the colours of all cameras."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.cameras.appearance_cfg import LightLookCfg, ShapeLookCfg
from sensorium.cameras.render.lighting import LightMounts, place_lights
from sensorium.cameras.render.paint_structs import Backdrop, Light, Looks, Textures
from sensorium.errors import ConfigError, ModelError
from sensorium.geometry.appearance import LIGHT_KINDS, TRACKING, VARIED, Lighting, Texture
from sensorium.geometry.shapes import Shape
from sensorium.sensors.core.parts import SensorContext
from sensorium.shapes.arrays import device_array
from sensorium.shapes.scene import ShapeScene

OPAQUE = 0.995
"""Minimum opacity of a shape that hides everything behind it, as in MuJoCo."""
_SHININESS = 128.0
"""Exponent of highlights for a shininess of 1, as in OpenGL."""
_FINISH = ("emission", "specular", "shininess", "mirror")
_DERIVED = ("light_pos", "light_direction")
"""Quantities that engines derive from masses and sizes, which may be randomised after the scene was built."""


class SceneLooks:
    """Looks, lights and textures of a scene, shared by its cameras.

    Args:
        context: the scene; the quantities that its `appearance` sets differ between environments.

    Attributes:
        lighting: lights, sky and fog of one environment.
        textures: all textures; the first ones are those of `lighting`.
        looks: looks of the shapes, for kernels.
        images: the textures, for kernels.
        lights: the lights, for kernels; their poses are those of the last `place`.
        tables: quantity -> its current values `[1 or env, shape or light, ...]`, float32, see `VARIED`.

    Raises:
        ConfigError: an item of `appearance` is no `ShapeLookCfg` or `LightLookCfg`.
        ModelError: the engine cannot describe its lights, or gives values of another shape.
    """

    def __init__(self, context: SensorContext) -> None:
        engine, compute, shapes = context.engine, context.compute, context.service(ShapeScene).drawable
        self._engine, self._shapes, self._compute = engine, shapes, compute
        for number, cfg in enumerate(context.appearance):
            if not isinstance(cfg, ShapeLookCfg | LightLookCfg):
                raise ConfigError.single("Scene", f"appearance[{number}]", cfg, "ShapeLookCfg or LightLookCfg")
        varied = {cfg.prefix + name for cfg in context.appearance for name in cfg.given}
        self._varied = frozenset(VARIED if engine.varies_late else varied)
        self.lighting: Lighting = engine.lighting()
        if self.lighting.fault:
            raise ModelError(f"{engine.name} engine: colours: {self.lighting.fault}.")
        lights = self.lighting.lights
        own = [shape.material.texture for shape in shapes if shape.material.texture is not None]
        sky = [self.lighting.sky.texture] if self.lighting.sky is not None else []
        self.textures: tuple[Texture, ...] = tuple(dict.fromkeys([*self.lighting.textures, *own, *sky]))
        self._rows = {texture: row for row, texture in enumerate(self.textures)}
        self.images = _textures(self.textures, compute.wp_device)
        self.tables = {name: self._common(name) for name in VARIED}
        for name in {*self._varied, *_DERIVED}:
            self.tables[name] = self.tables[name].expand(compute.num_envs, -1, -1).contiguous()
        self._kept: dict[str, torch.Tensor] = {}
        self.looks, self._mounts = Looks(), LightMounts()
        self.lights = wp.zeros((compute.num_envs, len(lights)), dtype=Light, device=compute.wp_device)
        self._fill_fixed()
        self.refresh()
        self.bind()

    def _array(self, values: Any, dtype: Any) -> Any:
        return device_array(values, dtype, self._compute.wp_device)

    def _common(self, name: str) -> torch.Tensor:
        """Return the values of a quantity that all environments share, `[1, shape or light, ...]`."""
        values: list[Any]
        if name.startswith("light_"):
            values = [getattr(light, name.removeprefix("light_")) for light in self.lighting.lights]
        elif name == "rgba":
            values = [shape.rgba for shape in self._shapes]
        elif name == "texture":
            values = [self._rows.get(shape.material.texture, -1) for shape in self._shapes]  # type: ignore[arg-type]
        else:
            values = [getattr(shape.material, name) for shape in self._shapes]
        array = np.asarray(values, dtype=np.float32).reshape(1, len(values), VARIED[name])
        return torch.from_numpy(array.copy()).to(self._compute.device)

    def _fill_fixed(self) -> None:
        """Fill the arrays that are the same in all environments."""
        shapes, lights, mounts = self._shapes, self.lighting.lights, self._mounts
        extents = np.array([_extent(shape) for shape in shapes], np.float32).reshape(-1, 3)
        self.looks.extent = self._array(extents, wp.vec3)
        self.looks.inverse = self._array(np.divide(1.0, extents, where=extents > 0.0, out=extents * 0.0), wp.vec3)
        self.looks.scale = self._array(list(map(_scale, shapes, extents)), wp.vec3)
        self.looks.casts = self._array([int(shape.casts_shadow) for shape in shapes], wp.int32)
        first, normals, uvs = _corners(shapes)
        self.looks.first = self._array(first, wp.vec2i)
        self.looks.normals, self.looks.uvs = self._array(normals, wp.vec3), self._array(uvs, wp.vec2)
        mounts.kind = self._array([LIGHT_KINDS.index(light.kind) for light in lights], wp.int32)
        mounts.fall = self._array([light.attenuation for light in lights], wp.vec3)
        cones = [(math.cos(math.radians(light.cutoff_deg)), light.exponent) for light in lights]
        mounts.cone = self._array(cones, wp.vec2)
        bits = np.cumsum([light.casts_shadow for light in lights]) - 1
        mounts.shadow = self._array(np.where([light.casts_shadow for light in lights], bits, -1), wp.int32)
        points = [light.points or ((light.body, 1.0, (0.0, 0.0, 0.0)),) for light in lights]
        mounts.body = self._array([light.body for light in lights], wp.int32)
        mounts.tracking = self._array([TRACKING.index(light.tracking) for light in lights], wp.int32)
        mounts.first = self._array([0, *np.cumsum([len(each) for each in points])], wp.int32)
        flat = [point for each in points for point in each]
        mounts.point_body = self._array([body for body, _, _ in flat], wp.int32)
        mounts.point = self._array([(*pos, weight) for _, weight, pos in flat], wp.vec4)

    # Values that may differ between environments ----------------------------------------------------------------------

    def refresh(self, env_mask: torch.Tensor | None = None) -> None:
        """Take the engine's current values of quantities, in the envs of a uint8 `[env]` mask where they differ."""
        for name, given in self._engine.looks().items():
            common = self.tables[name]
            values = torch.as_tensor(given, dtype=torch.float32, device=self._compute.device)
            size = (common.shape[1], common.shape[2])
            if not name.startswith("light_") and values.shape[1] < size[0]:  # of geoms, without decorations
                more = common[:, values.shape[1] :].reshape(len(common), -1, *values.shape[2:])
                values = torch.cat([values, more[:1].expand(len(values), *more.shape[1:])], dim=1)
            if len(values) not in (1, self._compute.num_envs) or values[0].numel() != size[0] * size[1]:
                raise ModelError(
                    f"{self._engine.name} engine: {name}: got values of shape {tuple(values.shape)}, expected "
                    f"[1 or env, {'light' if name.startswith('light_') else 'shape'}, {size[1]}] with {size[0]} rows."
                )
            self._store(name, values.reshape(len(values), *size), env_mask)

    def _store(self, name: str, values: torch.Tensor, env_mask: torch.Tensor | None) -> None:
        table = self.tables[name]
        if len(values) <= len(table):
            if env_mask is not None and len(table) > 1:
                values = torch.where(env_mask[:, None, None] > 0, values, table)
            table.copy_(values)
            return
        if self._kept:
            raise ModelError(
                f"{self._engine.name} engine: {name} became different in each environment after the scene was built. "
                "Expand it before."
            )
        self.tables[name] = values.clone()

    def bind(self) -> None:
        """Compute the arrays of kernels from `tables`; call it after they were written."""
        tables, device = self.tables, self._compute.device
        count = max(len(tables[name]) for name in _FINISH)
        finish = torch.cat([tables[name].expand(count, -1, -1) for name in _FINISH], dim=-1)
        finish[..., 2] *= _SHININESS
        may_mirror = torch.tensor([shape.kind in ("plane", "box") and shape.is_visual for shape in self._shapes],
                                  dtype=torch.bool, device=device)  # fmt: skip
        rgba = tables["rgba"]
        if len(rgba) > count:
            finish = finish.expand(len(rgba), -1, -1).clone()
        mirrors = (finish[..., 3] > 0.0) & may_mirror & (rgba[..., 3] >= OPAQUE)
        finish[..., 3] *= mirrors & (mirrors.cumsum(dim=1) == 1)  # as in MuJoCo, only the first one
        values = {"rgba": rgba, "finish": finish, "texture": tables["texture"][..., 0].to(torch.int32)}
        colors = ("ambient", "diffuse", "specular")
        count = max(len(tables[f"light_{name}"]) for name in (*colors, "is_active"))
        for name in colors:
            values[name] = (tables[f"light_{name}"] * tables["light_is_active"]).expand(count, -1, -1)
        for name in ("pos", "direction"):
            values[name] = tables[f"light_{name}"]
        if self._kept:  # recorded kernels read it
            for name, value in values.items():
                self._kept[name].copy_(value)
            return
        self._kept = {name: value.contiguous().clone() for name, value in values.items()}
        for owner, names in (
            (self.looks, {"rgba": wp.vec4, "finish": wp.vec4, "texture": wp.int32}),
            (self._mounts, dict.fromkeys((*colors, "pos", "direction"), wp.vec3)),
        ):
            for name, dtype in names.items():
                setattr(owner, name, _as_warp(self._kept[name], dtype))

    @property
    def without_textures(self) -> Any:
        """`looks` of shapes without textures, for kernels."""
        out = Looks()
        for name in Looks.vars:  # type: ignore[attr-defined]
            setattr(out, name, getattr(self.looks, name))
        self._untextured = torch.full((1, len(self._shapes)), -1, dtype=torch.int32, device=self._compute.device)
        out.texture = _as_warp(self._untextured, wp.int32)
        return out

    @property
    def has_clear(self) -> bool:
        """Whether a shape may be transparent: by its opacity, or as a plane seen from behind."""
        varies = "rgba" in self._varied or len(self.tables["rgba"]) > 1
        is_clear = bool((self.tables["rgba"][..., 3] < OPAQUE).any())
        return varies or is_clear or any(shape.kind == "plane" for shape in self._shapes)

    @property
    def has_mirrors(self) -> bool:
        """Whether a shape may be a mirror."""
        varies = "mirror" in self._varied or len(self.tables["mirror"]) > 1
        return varies or bool((self._kept["finish"][..., 3] > 0.0).any())

    def place(self, body_pose: list[Any]) -> None:
        """Compute the poses of the lights from those of the bodies `[env, body]` (a launch)."""
        if self.lighting.lights:
            self._compute.launch(place_lights, self.lights.shape[1:], [self._mounts, *body_pose], [self.lights])

    def backdrop(self, *, fog: bool, haze: bool) -> Any:
        """Return the background of the shapes, with or without fog and haze."""
        out, sky = Backdrop(), self.lighting.sky
        out.sky, out.ground, out.haze_top = -1, -1, 1.0
        if sky is not None:
            out.sky, out.distance = self._rows[sky.texture], sky.distance
            out.haze, out.haze_height = wp.vec3(*sky.haze_rgb), sky.haze_height
            ground = [i for i, shape in enumerate(self._shapes) if shape.kind == "plane" and not any(shape.size[:2])]
            if haze and ground and sky.haze_height > 0.0:
                rise = math.atan2(1.0, sky.haze_height)
                out.ground = ground[0]
                out.haze_top = math.sqrt(0.5) * sky.haze_height * math.sin(rise) / math.sin(0.75 * math.pi - rise)
        if fog and self.lighting.fog is not None:
            out.fog = wp.vec3(*self.lighting.fog.rgb)
            out.fog_range = wp.vec2(self.lighting.fog.start, self.lighting.fog.end)
        return out


def _corners(shapes: Sequence[Shape]) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return the first corner of each shape, then normals and texture coordinates of all meshes, corner by corner."""
    starts: dict[tuple[int, str], int] = {}
    found = {"normals": [np.zeros((0, 3), np.float32)], "uv": [np.zeros((0, 2), np.float32)]}
    first = np.full((len(shapes), 2), -1, dtype=np.int32)
    for i, shape in enumerate(shapes):
        for column, (name, parts) in enumerate(found.items()):
            values = None if shape.mesh is None else getattr(shape.mesh, name)
            if values is None:
                continue
            key = (id(shape.mesh), name)
            if key not in starts:
                starts[key] = sum(map(len, parts))
                parts.append(values.reshape(-1, values.shape[-1]))
            first[i, column] = starts[key]
    return first, np.concatenate(found["normals"]), np.concatenate(found["uv"])


def _as_warp(tensor: torch.Tensor, dtype: Any) -> Any:
    """Return a tensor `[row, column, ...]` as a Warp array `[row, column]` on the same memory."""
    if tensor.numel() == 0:
        return wp.zeros(tuple(tensor.shape[:2]), dtype=dtype, device=str(tensor.device))
    return wp.from_torch(tensor, dtype=dtype)


def _extent(shape: Shape) -> tuple[float, ...]:
    """Return the half lengths of a shape along its axes, m, as MuJoCo maps textures; 0 where it is unbounded."""
    size = shape.size
    if shape.mesh is not None:
        return tuple(np.abs(shape.mesh.vertices * np.array(shape.scale)).max(axis=0))
    if shape.hfield is not None:
        return (*shape.hfield.size, 0.25 * float(shape.hfield.heights.max()) + 0.5 * (shape.hfield.base or 0.0))
    if shape.kind == "sphere":
        return (size[0],) * 3
    if shape.kind in ("capsule", "cylinder"):
        return (size[0], size[0], size[1])
    return (*size, 1.0)[:3]


def _scale(shape: Shape, extent: NDArray[np.float32]) -> tuple[float, float, float]:
    """Return the factors of texture coordinates, and 1 where repetitions count per metre."""
    material, (x, y) = shape.material, (float(half) or 1.0 for half in extent[:2])
    u, v = material.repeat
    if shape.hfield is not None or (shape.mesh is not None and shape.mesh.uv is None):
        return (u, v, 1.0) if material.is_uniform else (u / x, v / y, 0.0)
    return (u * x, v * y, 1.0) if material.is_uniform else (u, v, 0.0)


def _textures(textures: Sequence[Texture], device: Any) -> Any:
    """Return textures with all levels of detail, each half as large as the one before."""
    words, rows, counts = [np.zeros(0, np.uint32)], [], []
    start = 0
    for texture in textures:
        sides = texture.pixels if texture.is_cube else texture.pixels[None]
        opaque = np.full((*sides.shape[:-1], 1), 255, np.uint8)
        level = np.concatenate([sides, opaque], axis=-1)[..., :4]
        levels = []
        while True:
            levels.append((start, level.shape[2], level.shape[1]))
            words.append(np.ascontiguousarray(level).view(np.uint32).ravel())
            start += len(words[-1])
            if max(level.shape[1:3]) == 1:
                break
            level = _halved(level)
        rows.append(levels)
        counts.append((len(levels), len(sides)))
    out = Textures()
    most = max(map(len, rows), default=1)
    table = np.array([[*levels, *[levels[-1]] * (most - len(levels))] for levels in rows], np.int32)
    out.texels = device_array(np.concatenate(words), wp.uint32, device)
    out.level = wp.array(table.reshape(len(rows), most, 3), dtype=wp.vec3i, device=device)
    out.count = device_array(counts, wp.vec2i, device)
    return out


def _halved(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images `[side, row, column, channel]` of half the size, rounded down, with linear interpolation."""
    image = pixels.astype(np.float32)
    for axis in (1, 2):
        old = image.shape[axis]
        new = max(old // 2, 1)
        at = (np.arange(new) + 0.5) * (old / new) - 0.5
        low = np.clip(np.floor(at).astype(int), 0, old - 1)
        blend = (at - low).astype(np.float32).reshape(-1, *(1,) * (image.ndim - 1 - axis))
        high = np.minimum(low + 1, old - 1)
        image = (1.0 - blend) * image.take(low, axis=axis) + blend * image.take(high, axis=axis)
    return np.rint(image).astype(np.uint8)
