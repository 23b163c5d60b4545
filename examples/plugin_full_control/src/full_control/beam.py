"""A range finder with a trembling beam: one kernel computes truth and measured value."""

from dataclasses import dataclass
from typing import Annotated

import sensorium as sn
import warp as wp
from pydantic import NonNegativeFloat, PositiveFloat
from sensorium.compute import sample_normals
from sensorium.geometry.transforms import quat_rotate
from sensorium.random import normal_table
from torch import Tensor

wp.set_module_options({"fuse_fp": False, "enable_backward": False})  # the same numbers on every device


@dataclass(frozen=True, slots=True)
class BeamData:
    """Data of the range finder."""

    distance: Annotated[Tensor, sn.Field("m", role="range")]
    """Distance to the floor along the beam, m, `[env, mount]`; +inf for a miss beyond `max_range`."""


class BeamCfg(sn.MountedSensorCfg[BeamData]):
    """Configuration of a range finder along the -z axis of its mount."""

    floor: float = 0.0
    """Height of the level floor, m."""
    max_range: PositiveFloat = 2.0
    """Largest range, m."""
    tremble: NonNegativeFloat = 0.01
    """Standard deviation of the beam's direction about each of the mount's x and y axes, rad."""


@wp.func
def to_floor(pos: wp.vec3, direction: wp.vec3, floor: float, max_range: float) -> float:
    """Return the distance at which a beam hits the floor from above, m; +inf for a miss."""
    distance = float(wp.inf)
    if direction[2] < 0.0 and pos[2] >= floor:
        distance = (floor - pos[2]) / direction[2]
    if distance > max_range:
        distance = wp.inf
    return distance


@wp.kernel
def follow_beams(
    rows: sn.Rows,
    floor: float,
    max_range: float,
    tremble: float,
    key0: wp.uint32,
    key1: wp.uint32,
    table: wp.array[wp.vec3],
    pos_w: wp.array2d[wp.vec3],
    quat_w: wp.array2d[wp.vec4],
    truth: wp.array2d[float],
    measured: wp.array2d[float],
) -> None:
    """Cast the true and the trembling beam of each mount."""
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    z = sample_normals(rows, env, wp.uint32(mount), key0, key1, table)
    pos = pos_w[env, mount]
    quat = quat_w[env, mount]
    trembling = wp.normalize(wp.vec3(tremble * z[0], tremble * z[1], -1.0))
    truth[env, mount] = to_floor(pos, quat_rotate(quat, wp.vec3(0.0, 0.0, -1.0)), floor, max_range)
    measured[env, mount] = to_floor(pos, quat_rotate(quat, trembling), floor, max_range)


class Beam(sn.Sensor[BeamCfg, BeamData]):
    """Distance to a level floor along a trembling beam."""

    requires = (sn.engines.BODY_POSE,)

    @sn.recorded
    def compute(self, truth: sn.Record, measured: sn.Record) -> None:
        """Launch one kernel for both values, all mounts and all environments. It is recorded once and replayed."""
        assert self.mount is not None  # a mounted config has one
        cfg = self.cfg
        keys = [wp.uint32(word) for word in self.stream("tremble")]
        pose = [wp.from_torch(self.mount.pos_w, dtype=wp.vec3), wp.from_torch(self.mount.quat_w, dtype=wp.vec4)]
        inputs = [cfg.floor, cfg.max_range, cfg.tremble, *keys, normal_table(self.device), *pose]
        outputs = [truth.warp.distance, measured.warp.distance]
        self.compute_on.launch(follow_beams, (self.mount.count,), inputs, outputs)
