"""Poses of sensors' mounts on their bodies, where the owner of a model may move the elements under the mounts.

Domain randomisation writes fields such as `site_pos` for each environment. At each refresh a single launch reads these
fields, applies the offset of the config, and writes the poses of all mounts of all sensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Compute, Rows, Segment, kernel, masked_tid, shared_func
from sensorium.compute.addresses import doubles_at, floats_at
from sensorium.engines.base import FrameOnBody, NameKind, PoseOnBody
from sensorium.engines.envs import mark
from sensorium.geometry.transforms import compose

FIELDS: dict[str, tuple[str, str]] = {
    "site": ("site_pos", "site_quat"),
    "geom": ("geom_pos", "geom_quat"),
    "camera": ("cam_pos", "cam_quat"),
    "joint": ("jnt_pos", ""),
    "scalar_joint": ("jnt_pos", ""),
}
"""MuJoCo's position and orientation fields of each kind of element with an offset; a joint has no orientation."""


@wp.struct
class OffsetTable:
    """Elements under mounts, one entry per mount.

    Attributes:
        is_double: whether the fields are float64 instead of float32.
        pos_at: address of the element's position in env 0.
        pos_step: numbers from one env's position to that of the next.
        pos_rows: number of envs with separate positions; env `n` has that of env `n % pos_rows`.
        quat_at: address of the element's orientation (w, x, y, z); 0 for none.
        quat_step: as `pos_step`.
        quat_rows: as `pos_rows`.
        inner_pos: position of the mount in the element's frame, m.
        inner_quat: orientation of the mount in the element's frame, unit quaternion.
        mounts: number of mounts of the view that contains the mount.
        pos_to: address of the mount's position in env 0, float32 `[env, mount, 3]`.
        quat_to: address of the mount's orientation in env 0, float32 `[env, mount, 4]`.
    """

    is_double: wp.int32
    pos_at: wp.array[wp.uint64]
    pos_step: wp.array[wp.int32]
    pos_rows: wp.array[wp.int32]
    quat_at: wp.array[wp.uint64]
    quat_step: wp.array[wp.int32]
    quat_rows: wp.array[wp.int32]
    inner_pos: wp.array[wp.vec3d]
    inner_quat: wp.array[wp.vec4d]
    mounts: wp.array[wp.int32]
    pos_to: wp.array[wp.uint64]
    quat_to: wp.array[wp.uint64]


@shared_func
def _number(address: wp.uint64, at: int, is_double: int) -> wp.float64:
    if is_double != 0:
        return doubles_at(address, at, 1)[0]
    return wp.float64(floats_at(address, at, 1)[0])


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


@kernel
def _move(rows: Rows, moves: OffsetTable) -> None:
    """Write the current poses of mounts from those of their elements."""
    env, k = masked_tid(rows)
    pos = wp.vec3d()
    quat = wp.vec4d(wp.float64(1.0), wp.float64(0.0), wp.float64(0.0), wp.float64(0.0))
    address = moves.pos_at[k]
    at = (env % moves.pos_rows[k]) * moves.pos_step[k]
    for j in range(3):
        pos[j] = _number(address, at + j, moves.is_double)
    address = moves.quat_at[k]
    if address != wp.uint64(0):
        at = (env % moves.quat_rows[k]) * moves.quat_step[k]
        for j in range(4):
            quat[j] = _number(address, at + j, moves.is_double)
        quat = wp.normalize(quat)
    pos = pos + _rotate(quat, moves.inner_pos[k])
    quat = _multiply(quat, moves.inner_quat[k])
    pos_to = floats_at(moves.pos_to[k], 3 * env * moves.mounts[k], 3)
    quat_to = floats_at(moves.quat_to[k], 4 * env * moves.mounts[k], 4)
    for j in range(3):
        pos_to[j] = wp.float32(pos[j])
    for j in range(4):
        quat_to[j] = wp.float32(quat[j])


class LiveOffsets:
    """Mounts of one engine on elements that may move on their bodies, and the launch that tracks them.

    Args:
        compute: device of the launch and of the fields.
        device: torch device of the results.
    """

    def __init__(self, compute: Compute, device: str) -> None:
        self._compute, self._device = compute, device
        self._views: list[_View] = []
        self._moves = OffsetTable()
        self._tables: dict[str, torch.Tensor] = {}
        self._sources: list[Any] = []
        self._segments: tuple[Segment, Segment] | None = None

    def __bool__(self) -> bool:
        return bool(self._views)

    @property
    def count(self) -> int:
        """Number of mounts on elements that may move."""
        return len(self._elements)

    @property
    def _elements(self) -> list[tuple[NameKind, str]]:
        return [element for view in self._views for element in view.elements]

    @property
    def fields(self) -> tuple[str, ...]:
        """Model fields with the poses of the elements."""
        return tuple(dict.fromkeys(name for kind, _ in self._elements for name in FIELDS[kind] if name))

    def add(self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return positions `[env, mount, 3]`, m, and orientations `[env, mount, 4]`, wxyz, of mounts on their bodies.

        Both are float32 on the device, at fixed addresses. Call `bind` next. The launch updates them as long as the
        caller keeps a reference to one of the tensors.
        """
        self._views = [view for view in self._views if view.is_held]
        self._tables, self._segments = {}, None
        poses = [compose(frame.pos, frame.quat, *pose) for frame, pose in zip(frames, inner, strict=True)]
        envs, count, device = self._compute.num_envs, len(frames), self._compute.device
        pos = torch.tensor([pos for pos, _ in poses], dtype=torch.float32, device=device).repeat(envs, 1, 1)
        quat = torch.tensor([quat for _, quat in poses], dtype=torch.float32, device=device).repeat(envs, 1, 1)
        view = _View(pos, quat, self._device)
        for k, (frame, pose) in enumerate(zip(frames, inner, strict=True)):
            if frame.element is None:
                continue
            on_top = compose((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), *pose)  # normalises the quaternion
            entry = {"inner_pos": on_top[0], "inner_quat": on_top[1], "mounts": count,
                     "pos_to": pos.data_ptr() + 12 * k, "quat_to": quat.data_ptr() + 16 * k}  # fmt: skip
            view.fixed.append(entry)
            view.elements.append(frame.element)
        if view.elements:
            self._views.append(view)
        return view.give()

    def bind(self, row_of: Callable[[NameKind, str], int], sources: Mapping[str, Any]) -> None:
        """Register the memory of the fields, after `add` and whenever an array was replaced.

        Recorded launches remain valid unless mounts were added since.

        Args:
            row_of: returns the row of an element in the fields, by kind and name.
            sources: for each of `fields` an array `[rows, row, 3 or 4]`; env n uses `n % rows`. Either NumPy, float64,
                on the host, or Warp, vectors or quaternions of float32 in the order w, x, y, z. The last axis is
                contiguous.
        """
        places = {name: _place(sources[name]) for name in self.fields}
        values: dict[str, list[int]] = {f"{what}_{part}": [] for what in ("pos", "quat") for part in _PARTS}
        for kind, name in self._elements:
            row = row_of(kind, name)
            for what, field in zip(("pos", "quat"), FIELDS[kind], strict=True):
                address, step, rows, stride = places[field] if field else (0, 0, 1, 0)
                for part, value in zip(_PARTS, (address + row * stride, step, rows), strict=True):
                    values[f"{what}_{part}"].append(value)
        self._sources = [sources[name] for name in self.fields]
        if self._tables:
            for name, numbers in values.items():
                self._tables[name].copy_(_table(name, numbers))
            return
        entries = [entry for view in self._views for entry in view.fixed]
        fixed = {name: [entry[name] for entry in entries] for name in _FIXED}
        self._tables = {
            name: _table(name, numbers).to(self._compute.device) for name, numbers in {**values, **fixed}.items()
        }
        self._moves = OffsetTable()
        self._moves.is_double = int(any(isinstance(source, np.ndarray) for source in self._sources))
        for name, table in self._tables.items():
            setattr(self._moves, name, wp.from_torch(table, dtype=_DTYPES.get(name.rpartition("_")[2], wp.int32)))

    def launch(self) -> None:
        """Update the mounts from their elements in one launch, or record the launch."""
        self._compute.launch(_move, (len(self._elements),), [self._moves])

    def follow(self, env_ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs, or of some, from the current fields."""
        if self._segments is None:
            masked = self._compute.record(self.launch, mask=self._compute.reset_envs)
            self._segments = self._compute.record(self.launch), masked
        whole, masked = self._segments
        if env_ids is None:
            whole.run()
        else:
            mask = self._compute.reset_envs
            mark(mask, env_ids)
            masked.run()
            mask.zero_()
        for view in self._views:
            view.bring()


class _View:
    """Mounts of one view: the memory that the launch writes, and the tensors for the caller.

    Attributes:
        elements: kind and name of the element under each mount that may move.
        fixed: constant launch data of each such mount, by its name in `OffsetTable`.
    """

    def __init__(self, pos: torch.Tensor, quat: torch.Tensor, device: str) -> None:
        self.elements: list[tuple[NameKind, str]] = []
        self.fixed: list[dict[str, Any]] = []
        self._mine = pos, quat  # the launch holds their addresses
        self._wanted = pos.to(device), quat.to(device)
        self._given: list[weakref.ref[torch.Tensor]] = []

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
        """Copy the launch's results to the requested device, if that is a different one."""
        for mine, wanted in zip(self._mine, self._wanted, strict=True):
            if mine is not wanted:
                wanted.copy_(mine)


_FIXED = ("inner_pos", "inner_quat", "mounts", "pos_to", "quat_to")
_PARTS = ("at", "step", "rows")
_DTYPES: dict[str, Any] = {"at": wp.uint64, "to": wp.uint64, "pos": wp.vec3d, "quat": wp.vec4d}
"""Types of the tables of `OffsetTable`, by the last part of their names; all others are integers."""


def _table(name: str, numbers: Sequence[Any]) -> torch.Tensor:
    part = name.rpartition("_")[2]
    dtype = {"at": torch.int64, "to": torch.int64, "pos": torch.float64, "quat": torch.float64}.get(part, torch.int32)
    return torch.tensor(numbers, dtype=dtype, device="cpu")


def _place(source: NDArray[Any] | Any) -> tuple[int, int, int, int]:
    """Return address, step from env to env, number of envs with separate values, and bytes per row of a field."""
    if isinstance(source, np.ndarray):
        address, itemsize = source.ctypes.data, source.itemsize
    else:
        address, itemsize = int(source.ptr or 0), 4
    return address, source.strides[0] // itemsize, source.shape[0], source.strides[1]
