"""Bodies on their paths: the state of all bodies in all environments at a tick, in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid, tick_now
from sensorium.engines.trajectory.trajectory import Trajectory
from sensorium.geometry.spline import spline_at, spline_row, turning


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
