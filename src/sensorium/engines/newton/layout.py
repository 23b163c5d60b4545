"""Elements of one environment of a Newton model, and their places in Newton's arrays, which are flat over the worlds.

Newton labels elements by paths. It may use one label for a site and a geom, which are both shapes of Newton.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.engines.base import FrameOnBody, NameKind, PoseOnBody
from sensorium.engines.worlds import rows_of_worlds
from sensorium.errors import MissingDependencyError, ModelError, UnknownNameError
from sensorium.geometry.transforms import compose

Pose = tuple[tuple[float, float, float], tuple[float, float, float, float]]


@functools.cache
def newton() -> Any:
    """Return the module newton.

    Raises:
        MissingDependencyError: it is not installed, or cannot be imported.
    """
    try:
        return import_module("newton")
    except ImportError as error:
        raise MissingDependencyError(
            f"NewtonEngine needs newton, which cannot be imported ({error}): pip install 'sensorium[newton]'."
        ) from error


def poses(transforms: Any) -> NDArray[np.float64]:
    """Return transforms of Newton (position, quaternion xyzw) as float64 `[item, 7]` with quaternions wxyz."""
    values = np.asarray(transforms.numpy(), dtype=np.float64).reshape(-1, 7)
    return values[:, [0, 1, 2, 6, 3, 4, 5]]


def pose_of(row: NDArray[np.float64]) -> Pose:
    """Return position and orientation (wxyz) of a row of `poses`."""
    x, y, z, *quat = row.tolist()
    return (x, y, z), (quat[0], quat[1], quat[2], quat[3])


class NewtonLayout:
    """Names of one environment, and rows of its elements in the arrays of a Newton model.

    Args:
        model: a `newton.Model`.

    Attributes:
        num_envs: number of environments: `model.world_count`, or 1 for a model without separate worlds.
        bodies: rows of the bodies, int64 `[env, body]`.
        joint_q: rows of the scalar joints in `joint_q`, int64 `[env, joint]`.
        joint_qd: rows of the scalar joints in `joint_qd`, int64 `[env, joint]`.
        quats: first coordinate of each quaternion in the `joint_q` of an environment.
        shapes: rows of the geoms, int64 `[env, geom]`.
        rows: rows of the elements of each kind in Newton's arrays, int64 `[env, name]`.
        faults: for each kind of names, why sensors cannot use them; only kinds with a fault.

    Raises:
        ModelError: the worlds differ in their bodies, or do not follow one another in Newton's arrays.
    """

    def __init__(self, model: Any) -> None:
        kinds = newton()
        self.num_envs = max(int(model.world_count), 1)
        self.faults: dict[str, str] = {}
        self._names: dict[str, tuple[str, ...]] = {"camera": (), "actuator": ()}
        self.rows: dict[str, NDArray[np.int64]] = {}
        self._add("body", "bodies", model.body_label, model.body_world, None)
        if "body" in self.faults:
            raise ModelError(f"newton: {self.faults['body']}")
        self.bodies = self.rows["body"]
        if (np.diff(self.bodies.reshape(-1)) != 1).any():
            raise ModelError(
                "newton: bodies of different worlds are interleaved or shared. Sensors need the bodies of each world "
                "in one run: build the model with ModelBuilder.replicate or add_world, without bodies in world -1."
            )
        types = model.joint_type.numpy() if model.joint_count else np.zeros(0, dtype=np.int32)
        scalar = np.isin(types, (int(kinds.JointType.REVOLUTE), int(kinds.JointType.PRISMATIC)))
        fixed = types == int(kinds.JointType.FIXED)
        self._add("joint", "joints", model.joint_label, model.joint_world, ~fixed)
        self._add("scalar_joint", "joints", model.joint_label, model.joint_world, scalar)
        rows = self.rows["scalar_joint"]
        self.joint_q = _starts(model.joint_q_start, rows)
        self.joint_qd = _starts(model.joint_qd_start, rows)
        quats = {int(kinds.JointType.BALL): 0, int(kinds.JointType.FREE): 3, int(kinds.JointType.DISTANCE): 3}
        starts = model.joint_q_start.numpy()[: len(types)] if len(types) else types
        self.quats = [
            int(start) + quats[int(kind)]
            for start, kind in zip(starts, types, strict=True)
            if int(kind) in quats and start < model.joint_coord_count // self.num_envs
        ]
        slides = types == int(kinds.JointType.PRISMATIC)
        names = self._names["scalar_joint"]
        self.slides = tuple(name for name, row in zip(names, rows[0], strict=True) if slides[row])
        flags = model.shape_flags.numpy() if model.shape_count else np.zeros(0, dtype=np.int32)
        site = (flags & int(kinds.ShapeFlags.SITE)) != 0
        self._add("site", "sites", model.shape_label, model.shape_world, site)
        self._add("geom", "shapes", model.shape_label, model.shape_world, ~site)
        self.shapes = self.rows["geom"]
        self._local = np.full(model.body_count + 1, -1, dtype=np.int64)  # the last entry is for the world, -1
        self._local[self.bodies] = np.arange(self.bodies.shape[1])
        self._shape_body = model.shape_body.numpy().astype(np.int64) if model.shape_count else np.zeros(0, np.int64)
        self._shape_pose = poses(model.shape_transform) if model.shape_count else np.zeros((0, 7))
        for kind in ("site", "geom"):
            bodies = self._local[self._shape_body[self.rows[kind]]]
            if (bodies != bodies[:1]).any():
                self._refuse(
                    kind, f"worlds have the same {kind}s on different bodies: build all worlds from one model."
                )
        child = model.joint_child.numpy().astype(np.int64) if model.joint_count else np.zeros(0, np.int64)
        parent = model.joint_parent.numpy().astype(np.int64) if model.joint_count else np.zeros(0, np.int64)
        self._joint_body = self._local[child]
        self._joint_pos = poses(model.joint_X_c)[:, :3] if model.joint_count else np.zeros((0, 3))
        self.parents = self._tree(model, child, parent)

    def _tree(self, model: Any, child: NDArray[np.int64], parent: NDArray[np.int64]) -> list[int]:
        """Return the parent of each body of an environment, -1 for the world, without joints that close loops."""
        rows = {int(row): k for k, row in enumerate(self.bodies[0])}
        parents: dict[int, int] = {}
        loose = model.joint_articulation.numpy() < 0 if len(child) else child  # joints that close loops are loose
        for joint in np.argsort(loose, kind="stable").tolist():
            row, above = rows.get(int(child[joint])), int(self._local[parent[joint]])
            if row is None or row in parents:
                continue
            root = above
            while root != row and root in parents:
                root = parents[root]
            if root != row:
                parents[row] = above
        return [parents.get(row, -1) for row in range(len(rows))]

    def _add(self, kind: str, what: str, labels: Sequence[str], worlds: Any, chosen: NDArray[np.bool_] | None) -> None:
        """Register the names and rows of one kind of elements; `chosen` marks them among the labels."""
        places = np.arange(len(labels)) if chosen is None else np.flatnonzero(chosen)
        world = (worlds.numpy() if len(labels) else np.zeros(0, np.int32))[places].tolist()
        try:
            names, rows = rows_of_worlds([labels[place] for place in places.tolist()], world, self.num_envs, what)
        except ModelError as error:
            self._refuse(kind, str(error))
            return
        self._names[kind], self.rows[kind] = names, places[rows] if len(places) else rows

    def _refuse(self, kind: str, why: str) -> None:
        self.faults[kind] = why
        self._names[kind], self.rows[kind] = (), np.zeros((self.num_envs, 0), dtype=np.int64)

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the names of a kind."""
        return self._names[kind]

    def of_bodies(self, array: Any) -> torch.Tensor:
        """Return an array of Newton's bodies as a view `[env, body, ...]`."""
        values: torch.Tensor = wp.to_torch(array)
        start = int(self.bodies[0, 0]) if self.bodies.size else 0
        return values[start : start + self.bodies.size].view(*self.bodies.shape, *values.shape[1:])

    def body_of_shape(self, row: int) -> int:
        """Return the row of a shape's body in `names("body")`, -1 for the world."""
        return int(self._local[self._shape_body[row]])

    def pose_of_shape(self, row: int) -> Pose:
        """Return the pose of a shape on its body."""
        return pose_of(self._shape_pose[row])

    def differ(self, kind: NameKind, name: str) -> bool:
        """Whether the poses of a site or geom on its body differ between worlds."""
        rows = self.rows[kind][:, self._names[kind].index(name)]
        return bool((self._shape_pose[rows] != self._shape_pose[rows[0]]).any())

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of an element of the first world, with the element's pose on it.

        Raises:
            UnknownNameError: there is no such element; the message says so where the worlds differ.
        """
        names = self._names[kind]
        if kind == "body" and name == "world":
            return FrameOnBody(-1)
        if name not in names:
            raise UnknownNameError(kind, name, names, self.faults.get(kind, ""))
        k = names.index(name)
        if kind == "body":
            return FrameOnBody(k)
        row = int(self.rows[kind][0, k])
        if "joint" in kind:
            x, y, z = self._joint_pos[row].tolist()
            return FrameOnBody(int(self._joint_body[row]), (x, y, z))
        pos, quat = self.pose_of_shape(row)
        element = (kind, name) if self.num_envs > 1 and self.differ(kind, name) else None
        return FrameOnBody(self.body_of_shape(row), pos, quat, element)

    def mounts(self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]) -> NDArray[np.float64] | None:
        """Return poses of mounts on their bodies in each world, `[env, mount, 7]`; None if all worlds have the same."""
        if all(frame.element is None for frame in frames):
            return None
        found = np.zeros((self.num_envs, len(frames), 7))
        for k, (frame, pose) in enumerate(zip(frames, inner, strict=True)):
            for env in range(self.num_envs):
                outer: Pose = (frame.pos, frame.quat)
                if frame.element is not None:
                    kind, name = frame.element
                    outer = self.pose_of_shape(int(self.rows[kind][env, self._names[kind].index(name)]))
                pos, quat = compose(*outer, *pose)
                found[env, k] = (*pos, *quat)
        return found


def _starts(starts: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if not rows.size:
        return rows
    found: NDArray[np.int64] = starts.numpy().astype(np.int64)[rows]
    return found
