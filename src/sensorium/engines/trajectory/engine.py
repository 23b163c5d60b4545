"""An engine whose bodies follow given trajectories through a world of meshes, without physics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike

from sensorium.compute import Compute, Rows, kernel, masked_tid, tick_now
from sensorium.engines.body_state import QuatOrder
from sensorium.engines.envs import env_rows, positive_int
from sensorium.engines.tensor import TensorEngine
from sensorium.engines.tensor.model import Parts, Site
from sensorium.engines.trajectory.trajectory import Trajectory, trajectory_of
from sensorium.errors import ArgumentError, ScheduleError
from sensorium.geometry.appearance import Lighting
from sensorium.geometry.shapes import Shape
from sensorium.geometry.spline import spline_at, spline_row, turning
from sensorium.spec import MAGNETIC, Requirement

Source = Trajectory | str | Path | tuple[ArrayLike, ArrayLike, ArrayLike]
"""A trajectory, the path of a TUM file or of an EuRoC CSV file, or arrays `(times, pos, quat wxyz)`."""
SLACK = 1e-6
"""Part of a time step by which the last tick may exceed the end of a trajectory, because of rounding."""


@kernel
def follow_paths(
    rows: Rows,
    dt: wp.float64,
    ends: wp.array2d[wp.vec4i],
    pos_times: wp.array[wp.float64],
    pos: wp.array[wp.vec3d],
    pos_bends: wp.array[wp.vec3d],
    quat_times: wp.array[wp.float64],
    quat: wp.array[wp.vec4d],
    quat_bends: wp.array[wp.vec4d],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    lin_vel_out: wp.array2d[wp.vec3],
    ang_vel_out: wp.array2d[wp.vec3],
    lin_acc_out: wp.array2d[wp.vec3],
    ang_acc_out: wp.array2d[wp.vec3],
) -> None:
    """Move a body to its pose at the tick; `ends` are the first and the last rows of its splines."""
    env, body = masked_tid(rows)
    end = ends[env, body]
    time = wp.min(wp.float64(tick_now(rows) - rows.reset_tick[env]) * dt, pos_times[end[1]])
    i = spline_row(pos_times, end[0], end[1], time)
    start = pos_times[i]
    step = pos_times[i + 1] - start
    p, v, acc = spline_at(time - start, step, pos[i], pos[i + 1], pos_bends[i], pos_bends[i + 1])
    k = spline_row(quat_times, end[2], end[3], time)
    start = quat_times[k]
    step = quat_times[k + 1] - start
    s, ds, dds = spline_at(time - start, step, quat[k], quat[k + 1], quat_bends[k], quat_bends[k + 1])
    q, w, ang_acc = turning(s, ds, dds)
    pos_out[env, body] = wp.vec3(p)
    quat_out[env, body] = wp.vec4(q)
    lin_vel_out[env, body] = wp.vec3(v)
    ang_vel_out[env, body] = wp.vec3(w)
    lin_acc_out[env, body] = wp.vec3(acc)
    ang_acc_out[env, body] = wp.vec3(ang_acc)


class BodyPaths:
    """Paths of all bodies, in tables on the device.

    Args:
        compute: device and environments; its `reset_tick` is the tick at which each environment starts.
        dt: time step, s.
        trajectories: path of each body in each environment, body -> `[env]`.
        arrays: float32 `[env, body, 3 or 4]`, in the order of `Motion`, which `run` fills.
    """

    def __init__(
        self,
        compute: Compute,
        dt: float,
        trajectories: Mapping[str, Sequence[Trajectory]],
        arrays: Sequence[torch.Tensor],
    ) -> None:
        paths = dict.fromkeys(path for each in trajectories.values() for path in each)
        ends, tables = [], list[torch.Tensor]()
        for splines in ([path.curve.pos for path in paths], [path.curve.quat for path in paths]):
            counts = np.array([len(spline.times) for spline in splines])
            ends += [np.cumsum(counts) - counts, np.cumsum(counts) - 1]
            for name in ("times", "values", "bends"):
                table = np.concatenate([getattr(spline, name) for spline in splines])
                tables.append(torch.from_numpy(np.ascontiguousarray(table)).to(compute.device))
        rows = dict(zip(paths, np.stack(ends, axis=1).astype(np.int32), strict=True))
        users = np.array([[rows[path] for path in each] for each in zip(*trajectories.values(), strict=True)])
        self._inputs: list[Any] = [dt, torch.from_numpy(users).to(compute.device), *tables]
        self._arrays, self._compute, self._tick = list(arrays), compute, compute.time[:1]
        self._segment = compute.record(self._launch)

    def _launch(self) -> None:
        self._compute.launch(follow_paths, (self._arrays[0].shape[1],), self._inputs, self._arrays)

    def run(self, tick: int) -> None:
        """Write the state of all bodies at a tick into the arrays."""
        self._tick.fill_(tick)
        self._segment.run()


class TrajectoryEngine(TensorEngine):
    """Bodies that follow given trajectories, and a world that rays can hit; there is no physics.

    Tick 0 is the first pose. Poses, velocities and accelerations of a tick are those of the smooth path, see
    `Trajectory`. A step beyond the end of a trajectory raises `ScheduleError`. A reset moves the bodies of an
    environment to the start of their trajectories.

    Attributes:
        trajectories: trajectory of each body in each environment, body -> tuple `[env]`.

    Args:
        trajectory: the path of the body: a `Trajectory`, the path of a TUM file or an EuRoC CSV file, or arrays
            ``(times, pos, quat wxyz)``. A list gives each environment its own path. A mapping from names of bodies to
            these gives several bodies.
        dt: time step, s.
        num_envs: number of environments; None takes the length of the lists, or 1.
        world: shapes that rays can hit, or the path of a file with shapes, lights and a sky: a mesh (OBJ, STL, PLY,
            GLB, glTF), or an MJCF or URDF file without joints. A shape may name one of the bodies and then moves with
            it.
        lighting: lights, sky and fog for images; by default those of the file of the world, or a headlight.
        body: name of the body, where `trajectory` is not a mapping.
        sites: names of further frames on the bodies, see `TensorEngine`.
        gravity: gravity, m/s^2.
        magnetic: magnetic flux in the world, any unit; None (default) without a magnetic field.
        device: torch device.

    Raises:
        ArgumentError: an argument is invalid.
        ModelError: a file is missing or invalid; the message names file, line and value.
        MissingDependencyError: `world` is a mesh file, and trimesh or Pillow is not installed.
    """

    name = "trajectory"
    owns_time = True

    def __init__(
        self,
        trajectory: Source | list[Source] | Mapping[str, Source | list[Source]],
        dt: float = 0.001,
        *,
        num_envs: int | None = None,
        world: str | Path | Iterable[Shape] = (),
        lighting: Lighting | None = None,
        body: str = "body",
        sites: Mapping[str, Site] | None = None,
        gravity: ArrayLike = (0.0, 0.0, -9.81),
        magnetic: ArrayLike | None = None,
        device: str = "cpu",
    ) -> None:
        bodies = trajectory if isinstance(trajectory, Mapping) else {body: trajectory}
        paths = {name: _paths(given, f"trajectory of {name!r}") for name, given in bodies.items()}
        lengths = {name: len(each) for name, each in paths.items()}
        count = max(lengths.values(), default=0) if num_envs is None else positive_int(num_envs, "num_envs")
        if set(lengths.values()) - {1, count} or not paths:
            raise ArgumentError(
                f"trajectory: got {lengths} (body: trajectories), expected one trajectory for each body, or a list of "
                f"one for each of {count} envs."
            )
        self.trajectories = {name: each * count if len(each) == 1 else each for name, each in paths.items()}
        self._starts = np.zeros(count, dtype=np.int64)
        is_file = isinstance(world, str | Path)
        given: Any = () if is_file else tuple(world) if isinstance(world, Iterable) else world
        super().__init__(
            count,
            dt,
            bodies=tuple(paths),
            sites=sites,
            shapes=given,
            world=world if is_file else None,  # type: ignore[arg-type]
            lighting=lighting,
            provides=("pose", "velocity", "acceleration", "gravity"),
            gravity=gravity,
            magnetic=magnetic,
            device=device,
        )
        durations = [[each.duration for each in paths] for paths in self.trajectories.values()]
        self._spans = np.floor(np.min(durations, axis=0) / self.dt + SLACK).astype(np.int64)
        self._start(slice(None), 0)

    def _start(self, envs: Any, ticks: Any) -> None:
        """Set the ticks at which environments are at the start of their trajectories."""
        self._starts[envs] = ticks
        self._compute.reset_tick.copy_(torch.from_numpy(self._starts))
        self._last = int((self._starts + self._spans).min())

    def __repr__(self) -> str:
        return (
            f"TrajectoryEngine(num_envs={self.num_envs}, dt={self.dt:g} s, bodies={list(self.trajectories)}, "
            f"duration={self.duration:g} s, device={self.device!r}, tick={self.tick})"
        )

    @property
    def duration(self) -> float:
        """Duration of the shortest trajectory, s."""
        return min(each.duration for paths in self.trajectories.values() for each in paths)

    @property
    def start_ns(self) -> int:
        """Time of the first pose as given, ns; 0 if the trajectories start at different times."""
        starts = {each.start_ns for paths in self.trajectories.values() for each in paths}
        return starts.pop() if len(starts) == 1 else 0

    @property
    def ticks_left(self) -> int:
        """Number of ticks until the first environment reaches the end of a trajectory."""
        return self._last - self.tick

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine provides a requirement, otherwise the reason and the fix."""
        reason = super().supports(requirement)
        if reason is None or requirement != MAGNETIC:
            return reason
        return (
            "its world has no magnetic field. Give the sensor magnetic_field=(x, y, z) or fields without mag_b, or the "
            "engine magnetic=(x, y, z)."
        )

    def _make_arrays(self, quat_order: QuatOrder, parts: Parts) -> None:
        super()._make_arrays(quat_order, parts)
        self._paths = BodyPaths(self._compute, self.dt, self.trajectories, [self._open[name] for name in _ARRAYS])

    def _move(self) -> None:
        self._paths.run(self.tick)

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps.

        Raises:
            ScheduleError: a trajectory ends before.
        """
        if ticks > self.ticks_left:
            env = int((self._starts + self._spans).argmin())
            raise ScheduleError(
                f"the trajectory of env {env} ends {self._spans[env] * self.dt:g} s after its start, {self.ticks_left} "
                f"ticks from now; got {ticks} ticks. Take fewer ticks, or reset: scene.reset([{env}])."
            )
        super().count_ticks(ticks)

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Move the bodies of environments to the start of their trajectories.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: values of `gravity_w` or `magnetic_w` `[n, 3]` for the n environments, in the order given.

        Raises:
            ArgumentError: env ids or values do not fit, or `state` contains an array that the trajectory defines.
        """
        for name in state or ():
            if name in _ARRAYS:
                raise ArgumentError(f"state: got {name!r}, which the trajectory defines. Remove it.")
        super().reset(env_ids, state)
        ids = env_rows(env_ids, self.num_envs)
        self._start(slice(None) if ids is None else ids.numpy(), self.tick)
        self.forward()

    def state(self) -> dict[str, Any]:
        """Return the tick, the tick at which each environment started, and all arrays."""
        return {**super().state(), "starts": self._starts.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`.

        Raises:
            ArgumentError: the state belongs to other bodies or another number of environments.
        """
        super().load_state(state)
        self._start(slice(None), state["starts"])


_ARRAYS = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w")
"""Arrays that a trajectory defines, in the order of `Motion`."""


def _paths(given: Any, what: str) -> tuple[Trajectory, ...]:
    """Return one trajectory, or one for each environment of a list."""
    if isinstance(given, list):
        if not given:
            raise ArgumentError(f"{what}: got an empty list, expected at least one trajectory.")
        return tuple(trajectory_of(each, f"{what}, env {env}") for env, each in enumerate(given))
    return (trajectory_of(given, what),)
