"""Looks of shapes and lights that are drawn at each reset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sensorium.cameras.appearance_cfg import ShapeLookCfg
from sensorium.cameras.render.looks import SceneLooks
from sensorium.errors import ConfigError, listed, nearest
from sensorium.geometry.appearance import VARIED
from sensorium.measurement.draws import column_distribution, draw_columns, is_drawn, stream_of
from sensorium.random import Choice, normal_table, stream_key
from sensorium.sensors.core.parts import SensorContext
from sensorium.shapes.scene import ShapeScene
from sensorium.world.select import match_names

LIMITS = dict.fromkeys(("rgba", "emission", "specular", "shininess", "mirror"), (0.0, 1.0))
LIMITS |= dict.fromkeys(("light_ambient", "light_diffuse", "light_specular"), (0.0, math.inf))
"""Quantity -> range to which drawn values are clipped."""


class RandomLooks:
    """The quantities of a scene's looks that configs set at reset.

    Args:
        context: the scene, with the configs in `appearance`; later ones overwrite earlier ones.

    Raises:
        SelectionError: a pattern matches nothing.
        ConfigError: a value does not fit its quantity, or there is no such texture.
    """

    def __init__(self, context: SensorContext) -> None:
        scene, seed, self._compute = context.service(ShapeScene), context.seed, context.compute
        self._looks = context.service(SceneLooks)
        self._draws: list[tuple[str, torch.Tensor, int, list[Any], torch.Tensor]] = []
        names = [light.name for light in self._looks.lighting.lights]
        for number, cfg in enumerate(context.appearance):
            if isinstance(cfg, ShapeLookCfg):
                items = scene.matching(_patterns(cfg.shapes), type(cfg).__name__, "shapes")
            else:
                title, found = type(cfg).__name__, dict[int, None]()
                for pattern in _patterns(cfg.lights):
                    hits = match_names(pattern, names, config=title, field="lights", what="light")
                    found |= dict.fromkeys(i for i, name in enumerate(names) if name in hits)
                items = list(found)
            for name in cfg.given:
                amount = getattr(cfg, name)
                if name == "texture":
                    amount = Choice(tuple(self._texture(each, type(cfg).__name__) for each in amount))
                key = stream_key(seed, f"appearance/{number}", name)
                self._add(cfg.prefix + name, items, amount, key, type(cfg).__name__)

    def _texture(self, name: str, title: str) -> float:
        known = [texture.name for texture in self._looks.textures]
        if name and name not in known:
            fix = f"{nearest(name, known).strip()} Textures of this model: {listed(known)}.".strip()
            raise ConfigError.single(title, "texture", name, "the name of a texture", fix)
        return float(known.index(name)) if name else -1.0

    def _add(self, quantity: str, items: Sequence[int], amount: Any, key: tuple[int, int], title: str) -> None:
        compute, full = self._compute, VARIED[quantity]
        sizes, inputs = [full - 1, full] if quantity == "rgba" else [full], list[Any]()
        for size in sizes:

            def spread(value: Any, size: int = size) -> np.ndarray[Any, Any]:
                return np.broadcast_to(np.asarray(value, np.float32), (len(items), size)).ravel()

            try:
                fixed = np.zeros(len(items) * size, np.float32)
                if is_drawn(amount):
                    stream, table = stream_of(0, key), normal_table(compute.wp_device)
                    distribution = column_distribution(amount, len(fixed), spread, compute.wp_device)
                    inputs = [distribution, size, 0, stream, table]
                else:
                    fixed = spread(amount).copy()
                break
            except ValueError:
                continue
        else:
            expected = f"a number or {' or '.join(map(str, sizes))} numbers"
            raise ConfigError.single(title, quantity.removeprefix("light_"), amount, expected)
        values = torch.from_numpy(fixed).to(compute.device).expand(compute.num_envs, -1).contiguous()
        rows = torch.tensor(items, dtype=torch.int64, device="cpu").to(compute.device)
        self._draws.append((quantity, rows, size, inputs, values))

    def reset(self, env_mask: torch.Tensor) -> None:
        """Take the engine's looks in the envs of a uint8 `[env]` mask, and draw those of the configs."""
        self._looks.refresh(env_mask)
        for quantity, rows, size, inputs, values in self._draws:
            if inputs:
                self._compute.launch(draw_columns, (values.shape[1],), inputs, [values])
            if quantity in LIMITS:
                values.clamp_(*LIMITS[quantity])
            self._looks.tables[quantity][:, rows, :size] = values.view(len(values), len(rows), size)
        self._looks.bind()


def _patterns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given
