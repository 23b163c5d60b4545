"""Nearest surfaces of probes on mounts, among all static and moving shapes of a scene."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.hfield import HFields
from sensorium.geometry.nearest import nearest_hfield, nearest_mesh, nearest_primitive
from sensorium.geometry.primitives import HFIELD, MESH
from sensorium.geometry.ray_structs import Instances, Moving, Surroundings
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse


@wp.struct
class Trees:
    """Meshes for distances: a tree, and factors that preserve ratios of distances.

    Attributes:
        mesh: `wp.Mesh` id of each instance, 0 for no mesh. If the magnitudes of the shape's scale differ, it is a
            scaled copy, since the nearest point in the mesh's own frame may differ.
        scale: remaining scale, of one magnitude with signs.
    """

    mesh: wp.array[wp.uint64]
    scale: wp.array[wp.vec3]


@wp.struct
class Nearest:
    """Outputs, `[env, mount, probe]` each; an empty array is not written.

    Attributes:
        distance: distance to the nearest surface, m.
        point: the nearest point there, m, world.
        shape: number of its shape in the scene; -1 if none is in reach.
        miss: value of `distance` if none is in reach; NaN for the reach of the probe.
        stay: 1 if `point` is then the probe's own position, otherwise +inf.
    """

    distance: wp.array3d[wp.float32]
    point: wp.array3d[wp.vec3]
    shape: wp.array3d[wp.int32]
    miss: wp.float32
    stay: wp.int32


@wp.func
def nearest_instance(
    instances: Instances, trees: Trees, fields: HFields, row: int, pos: wp.vec3, quat: wp.vec4, p: wp.vec3, limit: float
) -> tuple[wp.vec3, wp.float32]:
    """Return the nearest point, m, world, of one shape at a pose, and the distance, m; infinite beyond the limit."""
    local = quat_rotate_inverse(quat, p - pos)
    kind = instances.kind[row]
    foot = wp.vec3()
    distance = float(wp.inf)
    if kind == MESH:
        scale = trees.scale[row]
        factor = wp.abs(scale[0])
        spot, far, _face = nearest_mesh(trees.mesh[row], wp.cw_div(local, scale), limit / factor)
        foot = wp.cw_mul(spot, scale)
        distance = factor * far
    elif kind == HFIELD:
        foot, distance = nearest_hfield(fields, instances.field[row], local, limit)
    else:
        foot, distance = nearest_primitive(kind, instances.size[row], local)
    if not distance <= limit:
        return wp.vec3(wp.inf, wp.inf, wp.inf), wp.inf
    return pos + quat_rotate(quat, foot), distance


@kernel(blocks=2)
def probe_surfaces(
    rows: Rows,
    probe_in: wp.array[wp.vec3],
    reach_in: wp.array[wp.float32],
    least: float,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    surroundings: Surroundings,
    instances: Instances,
    trees: Trees,
    fields: HFields,
    moving: Moving,
    hidden: wp.array2d[wp.uint8],
    out: Nearest,
) -> None:
    """Find the nearest surface of one probe of one mount of one environment.

    Args:
        rows: the environments.
        probe_in: positions of the probes on the mount, m.
        reach_in: sensing distance of each, m.
        least: minimum distance, m; nearer surfaces are misses.
        pos_in: positions of the mounts.
        quat_in: orientations of the mounts.
        surroundings: the static shapes.
        instances: shapes that are tested individually.
        trees: their meshes.
        fields: all height fields.
        moving: poses of the moving shapes; slot 0.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        out: the outputs.
    """
    env, mount, probe = masked_tid(rows)
    p = pos_in[env, mount] + quat_rotate(quat_in[env, mount], probe_in[probe])
    reach = reach_in[probe]
    best = reach
    point = wp.vec3(wp.inf, wp.inf, wp.inf)
    shape = wp.int32(-1)
    if surroundings.mesh != wp.uint64(0):
        spot, far, face = nearest_mesh(surroundings.mesh, p, best)
        if far <= best:
            best = far
            point = spot
            shape = surroundings.face_shape[face]
    for k in range(surroundings.alone.shape[0]):
        row = surroundings.alone[k]
        if hidden[mount, row] == wp.uint8(0):
            spot, far = nearest_instance(
                instances, trees, fields, row, instances.pos[row], instances.quat[row], p, best
            )
            if far < best or (far == best and shape < 0):
                best = far
                point = spot
                shape = instances.shape[row]
    if surroundings.bvh != wp.uint64(0):
        around = wp.vec3(best, best, best)
        boxes = wp.bvh_query_aabb(surroundings.bvh, p - around, p + around)
        leaf = wp.int32(0)
        while wp.bvh_query_next(boxes, leaf):
            row = surroundings.bvh_row[leaf]
            if hidden[mount, row] == wp.uint8(0):
                away = instances.pos[row] + quat_rotate(instances.quat[row], instances.centre[row]) - p
                if wp.length(away) - instances.radius[row] <= best:
                    spot, far = nearest_instance(
                        instances, trees, fields, row, instances.pos[row], instances.quat[row], p, best
                    )
                    if far < best or (far == best and (shape < 0 or instances.shape[row] < shape)):
                        best = far
                        point = spot
                        shape = instances.shape[row]
    for k in range(moving.pos.shape[2]):
        row = instances.moving + k
        if hidden[mount, row] != wp.uint8(0):
            continue
        if wp.length(moving.centre[env, 0, k] - p) - instances.radius[row] > best:
            continue
        spot, far = nearest_instance(
            instances, trees, fields, row, moving.pos[env, 0, k], moving.quat[env, 0, k], p, best
        )
        if far < best or (far == best and shape < 0):
            best = far
            point = spot
            shape = instances.shape[row]
    if best < least:
        shape = -1
    if shape < 0:
        point = wp.vec3(wp.inf, wp.inf, wp.inf)
        if out.stay != 0:
            point = p
        best = out.miss
        if wp.isnan(out.miss):
            best = reach
    if out.distance.shape[0] > 0:
        out.distance[env, mount, probe] = best
    if out.point.shape[0] > 0:
        out.point[env, mount, probe] = point
    if out.shape.shape[0] > 0:
        out.shape[env, mount, probe] = shape


@kernel
def follow_distance(
    rows: Rows,
    probe_in: wp.array[wp.vec3],
    reach_in: wp.array[wp.float32],
    least: float,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    distances: wp.array3d[wp.float32],
    point: wp.array3d[wp.vec3],
) -> None:
    """Clip other distances to the range of their probe, and move the nearest points along their true directions there.

    A point is +inf if either distance is not finite.

    A probe that touches a surface has no direction, and its point is unchanged.

    Args:
        rows: the environments.
        probe_in: positions of the probes on the mount, m.
        reach_in: largest distances, m.
        least: smallest distance, m.
        pos_in: positions of the mounts.
        quat_in: orientations of the mounts.
        distances: the other distances `[env, mount, probe]`, m; overwritten.
        point: the nearest points, m, world; overwritten if there are any.
    """
    env, mount, probe = masked_tid(rows)
    distance = distances[env, mount, probe]
    if wp.isfinite(distance):
        distance = wp.clamp(distance, least, reach_in[probe])
        distances[env, mount, probe] = distance
    if point.shape[0] == 0:
        return
    p = pos_in[env, mount] + quat_rotate(quat_in[env, mount], probe_in[probe])
    arm = point[env, mount, probe] - p
    length = wp.length(arm)
    if not (wp.isfinite(length) and wp.isfinite(distance)):
        point[env, mount, probe] = wp.vec3(wp.inf, wp.inf, wp.inf)
    elif length > 0.0:
        point[env, mount, probe] = p + (distance / length) * arm


@kernel
def show_misses(
    rows: Rows,
    probe_in: wp.array[wp.vec3],
    reach_in: wp.array[wp.float32],
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    found: Nearest,
    out: Nearest,
) -> None:
    """Copy results, with infinite distances and points replaced by the miss values of `out`."""
    env, mount, probe = masked_tid(rows)
    if out.distance.shape[0] > 0:
        distance = found.distance[env, mount, probe]
        if wp.isinf(distance):
            distance = out.miss
            if wp.isnan(out.miss):
                distance = reach_in[probe]
        out.distance[env, mount, probe] = distance
    if out.point.shape[0] > 0:
        point = found.point[env, mount, probe]
        if out.stay != 0 and wp.isinf(point[0]):
            point = pos_in[env, mount] + quat_rotate(quat_in[env, mount], probe_in[probe])
        out.point[env, mount, probe] = point
    if out.shape.shape[0] > 0:
        out.shape[env, mount, probe] = found.shape[env, mount, probe]
