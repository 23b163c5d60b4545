"""Common base of the sensors that cast rays: the rays, the names of the hit shapes, and values of shapes by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from sensorium.errors import Fault, SelectionError, listed, nearest
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.rays.ray_cfg import RayCfg
from sensorium.shapes.ray_cast import RayCast
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement

RayCfgT = TypeVar("RayCfgT", bound=RayCfg[Any])
RayDataT = TypeVar("RayDataT")


class RaySensor(SimpleSensor[RayCfgT, RayDataT], Generic[RayCfgT, RayDataT]):
    """Sensor that casts rays; `setup` creates the cast."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    _cast: RayCast

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene, indexed by `geom_ids`."""
        return tuple(shape.name for shape in self.rays.shapes)

    def is_hit(self, distances: Any) -> Any:
        """Return which distances, m, as read from the sensor, are hits; tensor or array."""
        isfinite = torch.isfinite if isinstance(distances, Tensor) else np.isfinite
        none = self.cfg.no_hit_value
        return isfinite(distances) if none is None else isfinite(distances) & (distances != np.float32(none))

    def _rows_of(self, env: int, mount: int, *, measured: bool) -> dict[str, NDArray[Any]]:
        """Return each selected field of one env and mount on the host, `[ray, ...]`."""
        self.ensure_current(is_measured=measured)
        own = self.own_tensors(is_measured=measured)
        rows = {name: own[name][env].detach().cpu().numpy() for name in self.cfg.selected if name in own}
        return {name: row[mount] if self._mount_axis else row for name, row in rows.items()}

    def _array(self, values: Any, dtype: Any = wp.float32) -> Any:
        return wp.array(np.asarray(values, wp.dtype_to_numpy(dtype)), dtype=dtype, device=self.compute_on.wp_device)

    def _twin(self, tensor: Tensor | None, count: int, dtype: Any) -> Any:
        """View a tensor as a Warp array `[env, mount, count]`; None for None, which is an empty array in a kernel."""
        if tensor is None:
            return None
        shape = (self.num_envs, self.mount.count, count, *((3,) if dtype is wp.vec3 else ()))
        return wp.from_torch(tensor.view(shape), dtype=dtype)

    def _of_shapes(self, field: str) -> list[float]:
        """Return the reflectance of each shape, overridden by a field of the config by label or name.

        Raises:
            SelectionError: a key of the field is not a label and matches no name.
        """
        scene, given = self.rays, getattr(self.cfg, field)
        values = [shape.reflectance for shape in scene.shapes]
        words = zip(scene.shapes, scene.body_names, scene.labels, strict=False)
        names = [(shape.name, body, *labels) for shape, body, labels in words]
        for word, value in given.items():
            title, what = self.cfg.title, f"{field}[{word!r}]"
            try:
                regex = re.compile(word)
            except re.error as error:
                expected = "a label, a name or a regular expression"
                raise SelectionError(
                    title, [Fault(what, repr(word), expected, f"The regular expression is invalid: {error}.")]
                ) from None
            rows = [i for i, each in enumerate(names) if any(word == name or regex.fullmatch(name) for name in each)]
            if not rows:
                known = [*scene.label_names, *dict.fromkeys(scene.body_names), *self.geom_names]
                fix = f"{nearest(word, known).strip()} Labels, bodies and shapes of the scene: {listed(known)}.".strip()
                expected = "a semantic label, or the name of a body or a geom"
                raise SelectionError(title, [Fault(what, repr(word), expected, fix)])
            for i in rows:
                values[i] = value
        return values


def ray_field(field: Field, *sizes: int) -> Field:
    """Return a field with one value, or vector, per ray, or per ray and return."""
    axes = ("ray", "return")[: len(sizes)]
    return replace(field, shape=(*sizes, *field.shape), axes=(*axes, *(("xyz",) if field.shape == (3,) else ())))
