"""Poses of sensors' mounts on their bodies, where the owner of a model may move the elements under the mounts.

Domain randomisation writes fields such as `site_pos` for each environment. At each refresh, launches read these fields,
apply the offset of the config, and write the poses of all mounts: one launch per sensor and kind of element.
"""

# Without `from __future__ import annotations`: Warp must see the types that a factory is called with.

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid
from sensorium.engines.base import FrameOnBody, NameKind, PoseOnBody
from sensorium.engines.envs import EnvLaunches
from sensorium.geometry.transforms import compose

FIELDS: dict[str, tuple[str, str]] = {
    "site": ("site_pos", "site_quat"),
    "geom": ("geom_pos", "geom_quat"),
    "camera": ("cam_pos", "cam_quat"),
    "joint": ("jnt_pos", ""),
    "scalar_joint": ("jnt_pos", ""),
}
"""MuJoCo's position and orientation fields of each kind of element with an offset; a joint has no orientation."""


@wp.func
def _rotate(q: wp.vec4d, v: wp.vec3d) -> wp.vec3d:
    u = wp.vec3d(q[1], q[2], q[3])
    t = wp.float64(2.0) * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def _multiply(a: wp.vec4d, b: wp.vec4d) -> wp.vec4d:
    return wp.vec4d(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def _kernel_of(real: Any, vec3: Any, vec4: Any) -> Any:
    @kernel(group=f"move_mounts_{real.__name__}")
    def move_mounts(
        rows: Rows,
        elements: wp.array[wp.int32],
        mounts: wp.array[wp.int32],
        inner_pos: wp.array[wp.vec3d],
        inner_quat: wp.array[wp.vec4d],
        field_pos: wp.array2d[vec3],
        field_quat: wp.array2d[vec4],
        pos_out: wp.array2d[wp.vec3],
        quat_out: wp.array2d[wp.vec4],
    ) -> None:
        """Write the current poses of mounts from those of their elements; `field_quat` is empty for the identity."""
        env, k = masked_tid(rows)
        element = elements[k]
        pos = wp.vec3d(field_pos[env % field_pos.shape[0], element])
        quat = wp.vec4d(wp.float64(1.0), wp.float64(0.0), wp.float64(0.0), wp.float64(0.0))
        if field_quat.shape[0] > 0:
            quat = wp.normalize(wp.vec4d(field_quat[env % field_quat.shape[0], element]))
        pos_out[env, mounts[k]] = wp.vec3(pos + _rotate(quat, inner_pos[k]))
        quat_out[env, mounts[k]] = wp.vec4(_multiply(quat, inner_quat[k]))

    return move_mounts


_KERNELS = {
    torch.float64: _kernel_of(wp.float64, wp.vec3d, wp.vec4d),
    torch.float32: _kernel_of(wp.float32, wp.vec3, wp.vec4),
}
"""Kernels by the type of the fields."""


class LiveOffsets:
    """Mounts of one engine on elements that may move on their bodies, and the launches that track them.

    Args:
        compute: device of the launches and of the fields.
        device: torch device of the results.

    Attributes:
        views: the mounts of each sensor.
    """

    def __init__(self, compute: Compute, device: str) -> None:
        self._compute, self._device = compute, device
        self.views: list[_View] = []
        self._row_of: Callable[[NameKind, str], int]
        self._sources: Mapping[str, torch.Tensor] = {}
        self._launches: EnvLaunches | None = None  # recorded by the first `follow` after `bind`

    @property
    def fields(self) -> tuple[str, ...]:
        """Model fields with the poses of the elements."""
        kinds = dict.fromkeys(kind for view in self.views for kind in view.elements)
        return tuple(dict.fromkeys(name for kind in kinds for name in FIELDS[kind] if name))

    def add(self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return positions `[env, mount, 3]`, m, and orientations `[env, mount, 4]`, wxyz, of mounts on their bodies.

        Both are float32 on the device, at fixed addresses. Call `bind` next. The launches update them as long as the
        caller keeps a reference to one of the tensors.
        """
        self.views = [view for view in self.views if view.is_held]
        view = _View(self._compute, self._device, frames, inner)
        if view.elements:
            self.views.append(view)
        return view.give()

    def bind(self, row_of: Callable[[NameKind, str], int], sources: Mapping[str, torch.Tensor]) -> None:
        """Read the fields from their current memory, after `add` and whenever that changed.

        Args:
            row_of: returns the row of an element in the fields, by kind and name.
            sources: for each of `fields` a tensor `[rows, row, 3 or 4]`, float64 or float32 for all; env n uses
                `n % rows`. The last axis is contiguous, quaternions are w, x, y, z.
        """
        self._row_of, self._sources, self._launches = row_of, sources, None

    def start(self) -> None:
        """Write the poses of the mounts that the last `add` added, from the current fields."""
        view = self.views[-1]
        self._launch([view])
        view.bring()

    def follow(self, env_ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs, or of some, from the current fields."""
        if self._launches is None:
            self._launches = EnvLaunches(self._compute, lambda: self._launch(self.views))
        self._launches.run(env_ids)
        for view in self.views:
            view.bring()

    def _launch(self, views: "list[_View]") -> None:
        """Launch, or record, the updates of some views."""
        for view in views:
            for move_mounts, items, arguments in view.launches(self._row_of, self._sources):
                self._compute.launch(move_mounts, (items,), arguments)


class _View:
    """Mounts of one sensor: the memory that the launches write, and the tensors for the caller.

    Attributes:
        elements: names of the elements that may move under mounts, by kind; a mount may repeat one.
    """

    def __init__(
        self, compute: Compute, device: str, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]
    ) -> None:
        poses = [compose(frame.pos, frame.quat, *pose) for frame, pose in zip(frames, inner, strict=True)]
        first = (torch.tensor(part, dtype=torch.float32, device=compute.device) for part in zip(*poses, strict=True))
        self._mine = tuple(each.repeat(compute.num_envs, 1, 1) for each in first)
        self._wanted = tuple(tensor.to(device) for tensor in self._mine)
        self._given: list[weakref.ref[torch.Tensor]] = []
        self.elements: dict[NameKind, list[str]] = {}
        self._tables: dict[NameKind, list[torch.Tensor]] = {}
        moving = [(k, *frame.element) for k, frame in enumerate(frames) if frame.element is not None]
        for kind in dict.fromkeys(kind for _, kind, _ in moving):
            places = [k for k, each, _ in moving if each == kind]
            self.elements[kind] = [name for _, each, name in moving if each == kind]
            on_top = [compose((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), *inner[k]) for k in places]  # normalised
            tables = [torch.tensor(places, dtype=torch.int32, device="cpu")]
            tables += [torch.tensor(part, dtype=torch.float64, device="cpu") for part in zip(*on_top, strict=True)]
            self._tables[kind] = [table.to(compute.device) for table in tables]

    def launches(
        self, row_of: Callable[[NameKind, str], int], sources: Mapping[str, torch.Tensor]
    ) -> Iterator[tuple[Any, int, list[Any]]]:
        """Yield kernel, number of mounts and arguments of each launch."""
        for kind, names in self.elements.items():
            fields = [sources[name] if name else None for name in FIELDS[kind]]
            rows = torch.tensor([row_of(kind, name) for name in names], dtype=torch.int32, device="cpu")
            arguments = [rows.to(self._mine[0].device), *self._tables[kind], *fields, *self._mine]
            yield _KERNELS[sources[FIELDS[kind][0]].dtype], len(names), arguments

    @property
    def is_held(self) -> bool:
        """Whether a caller still references one of the tensors returned by `give`."""
        return any(tensor() is not None for tensor in self._given)

    def give(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return new tensor objects on the same memory, whose lifetime shows whether callers still reference them."""
        pos, quat = (tensor.view_as(tensor) for tensor in self._wanted)
        self._given = [weakref.ref(pos), weakref.ref(quat)]
        return pos, quat

    def bring(self) -> None:
        """Copy the results to the requested device, if that is a different one."""
        for mine, wanted in zip(self._mine, self._wanted, strict=True):
            if mine is not wanted:
                wanted.copy_(mine)
