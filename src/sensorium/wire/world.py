"""World state for listeners: the poses of all bodies at one frame, and the body that a sensor is attached to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError, WireError, listed
from sensorium.pose import Pose
from sensorium.readings import Bodies, Body, Reading

Floats = npt.NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Snapshot:
    """Poses and velocities of all bodies at one frame. Its arrays are read-only.

    Attributes:
        frame: number of the frame on the server.
        tick: physics tick.
        time: simulation time, s.
        bodies: the bodies, in the order of the rows of the arrays.
        env_ids: numbers of the envs, int64 `[env]`.
        pos_w: origins of the body frames, world, float32 `[env, body, 3]`, m.
        quat_w: orientations, world, float32 `[env, body, 4]`, wxyz.
        lin_vel_w: velocities of the origins, world, float32 `[env, body, 3]`, m/s.
        ang_vel_w: angular velocities, world, float32 `[env, body, 3]`, rad/s.
        captures: number of captures of the state since the env's reset, int64 `[env]`; None if they are not counted.
    """

    frame: int
    tick: int
    time: float
    bodies: Bodies
    env_ids: npt.NDArray[np.int64]
    pos_w: Floats
    quat_w: Floats
    lin_vel_w: Floats
    ang_vel_w: Floats
    captures: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(cls, data: Reading, bodies: Bodies) -> Snapshot:
        """Return the data of a body-state sensor with one mount per body as a snapshot, without a copy.

        Args:
            data: data with the fields `pos_w`, `quat_w`, `lin_vel_w`, `ang_vel_w`, `[env, mount, ...]`.
            bodies: the bodies of its mounts, in the same order.

        Raises:
            WireError: the data lack one of these fields.
            ConfigError: the mounts are other bodies.
        """
        mounts = data.info.mounts if data.info is not None else ()
        if mounts and mounts != bodies.names:
            raise ConfigError.single(
                "Snapshot", "bodies", list(bodies.names), f"the mounts of sensor {data.sensor!r}: {listed(mounts)}"
            )
        names = ("pos_w", "quat_w", "lin_vel_w", "ang_vel_w")
        if lacking := [name for name in names if name not in data]:
            raise WireError(f"data of {data.sensor!r} cannot become a snapshot, because {listed(lacking)} is missing.")
        shape = (data.num_envs, len(bodies))
        arrays = [data[name] for name in names]
        if len(bodies) == 1:  # a singular selector has no mount axis
            arrays = [array.reshape(*shape, array.shape[-1]) if array.ndim == 2 else array for array in arrays]
        pos, quat, lin_vel, ang_vel = arrays
        return cls(data.frame, data.tick, data.time, bodies, data.env_ids, pos, quat, lin_vel, ang_vel, data.captures)

    def pose(self, body: int | str, env: int | None = None) -> Pose:
        """Return the pose of a body in the world.

        Args:
            body: its number or full name.
            env: number of the env; by default the first env of the snapshot.

        Raises:
            UnknownNameError: there is no such body.
            IndexError: the snapshot does not contain that env.
            ConfigError: the state is not a valid pose, e.g. not finite.
        """
        row, place = self.bodies.row(body), self.env_row(env)
        return Pose(self.pos_w[place, row].tolist(), self.quat_w[place, row].tolist())

    def env_row(self, env: int | None = None) -> int:
        """Return the row of an env; by default the first row.

        Raises:
            IndexError: the snapshot does not contain that env.
        """
        rows = np.flatnonzero(self.env_ids == env) if env is not None else np.arange(min(len(self.env_ids), 1))
        if not len(rows):
            held = listed(map(str, self.env_ids.tolist()))
            raise IndexError(f"the snapshot has no env {'' if env is None else env}. It contains: {held}")
        return int(rows[0])

    def find(self, body: int | str) -> Body:
        """Return a body by number or name, like ``bodies[...]``."""
        return self.bodies[body]

    def __repr__(self) -> str:
        return (
            f"Snapshot(frame={self.frame}, tick={self.tick}, time={self.time:.6g} s, {len(self.env_ids)} envs, "
            f"{len(self.bodies)} bodies)"
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """Body that a sensor is attached to.

    Attributes:
        body: its id, name, entity and bounding box.
        links: ids of all bodies of its kinematic tree, including its own. If the tree is unknown, as in clients, the
            bodies of its entity.
        root: body of the tree that is attached to the world; the body itself if the tree is unknown.
    """

    body: Body
    links: frozenset[int]
    root: Body


def owner_of(body: Body, bodies: Bodies, parent: Callable[[int], int | None] = lambda body: None) -> Owner:
    """Return a body with the bodies of its kinematic tree; of its entity, if any, if the tree is unknown.

    Args:
        body: body that the sensor is attached to.
        bodies: all bodies.
        parent: function that returns the parent of a body, -1 for the world; None if the tree is unknown.
    """

    def root_of(body: int) -> int | None:
        above = parent(body)
        while above is not None and above >= 0:
            body, above = above, parent(above)
        return None if above is None else body

    root = root_of(body.id)
    if root is None:
        mine = [other.id for other in bodies.values() if body.entity and other.entity == body.entity]
        return Owner(body, frozenset({body.id, *mine}), body)
    return Owner(body, frozenset(other for other in bodies if root_of(other) == root), bodies[root])
