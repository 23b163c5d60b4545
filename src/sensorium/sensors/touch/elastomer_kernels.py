"""Kernels of elastomer taxels: depths of the probes, anchors of surface points, and the sums over both."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.solid_around import NearShapes, Shapes, deepest
from sensorium.geometry.solids import signed_distance
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse
from sensorium.random import F64

ON_SURFACE = wp.constant(1e-6)
"""Tolerance outside a shape, m, for a foot point on a wall that passes through the skin: rounding, not a gap."""


@wp.struct
class Gel:
    """The elastomer: its probes and its influence functions.

    Attributes:
        points: places of the probes, m, in the mount's frame.
        normals: unit normals out of the skin.
        radius: m; a probe of radius 0 is unused.
        rows: of a regular grid; 0 without one.
        columns: of a regular grid; 0 without one.
        width: elements from row to row in `heights`.
        origin: place of the first probe of a regular grid, m.
        along_rows: unit vector from row to row.
        along_columns: unit vector from column to column.
        per_row: rows per metre.
        per_column: columns per metre.
        reach: lateral extent of the skin beyond a probe, m.
        deepest: depth beyond which a point is not under this skin, m.
        gauss: weight of exp(-lambda_d r^2).
        inverse: weight of 1 / (r^2 + soft2).
        lambda_d: 1/m^2.
        lambda_s: 1/m^2.
        soft2: m^2.
        layer: in-plane displacement for a unit depth, along rows and columns, `[rows between + rows - 1, columns
            between + columns - 1]`; empty if the two weights apply.
    """

    points: wp.array[wp.vec3]
    normals: wp.array[wp.vec3]
    radius: wp.array[wp.float32]
    rows: wp.int32
    columns: wp.int32
    width: wp.int32
    origin: wp.vec3
    along_rows: wp.vec3
    along_columns: wp.vec3
    per_row: wp.float32
    per_column: wp.float32
    reach: wp.float32
    deepest: wp.float32
    gauss: wp.float32
    inverse: wp.float32
    lambda_d: wp.float32
    lambda_s: wp.float32
    soft2: wp.float32
    layer: wp.array2d[wp.vec2]


@wp.struct
class Law:
    """Numbers that can differ between envs; see the config.

    Attributes:
        dilate: factor of the dilation.
        exponent: of the depth, along the normal.
        shear: factor of the shear.
        threshold: depth at which a point sticks, m.
        release: depth at which a point detaches, m.
        slip: largest distance that the skin is dragged, m; NaN for no limit.
    """

    dilate: wp.array2d[wp.float32]
    exponent: wp.array2d[wp.float32]
    shear: wp.array2d[wp.float32]
    threshold: wp.array2d[wp.float32]
    release: wp.array2d[wp.float32]
    slip: wp.array2d[wp.float32]


@wp.struct
class GelSurface:
    """Points on the surfaces that can stick to the skin, in blocks of one link each.

    Attributes:
        point: in the link's frame, m.
        weight: of each point.
        start: first point of each block, and finally the number of all points.
        centre: centre of a ball around each block, in the link's frame, m.
        radius: radius of that ball, m.
        body: row of the link's body, -1 if static.
        link: number of the link.
        hidden: 1 if a mount ignores a block `[mount, block]`.
        link_of_row: number of the link of each instance row.
    """

    point: wp.array[wp.vec3]
    weight: wp.array[wp.float32]
    start: wp.array[wp.int32]
    centre: wp.array[wp.vec3]
    radius: wp.array[wp.float32]
    body: wp.array[wp.int32]
    link: wp.array[wp.int32]
    hidden: wp.array2d[wp.uint8]
    link_of_row: wp.array[wp.int32]


@wp.func
def _slot(gel: Gel, probe: int) -> wp.int32:
    """Return the index of a probe's depth in memory: rows of a grid are padded for the transform."""
    if gel.width > 0:
        return (probe / gel.columns) * gel.width + probe % gel.columns
    return probe


@kernel(blocks=2)
def press(
    rows: Rows, block: int, gel: Gel, law: Law, shapes: Shapes, around: NearShapes, heights: wp.array4d[wp.float32]
) -> None:
    """Write the depth of each probe in the shapes, `heights[env, mount, 0]`, and its power by the exponent."""
    env, mount, first = masked_tid(rows)
    exponent = law.exponent[env, 0]
    is_clear = around.count[env, mount] == 0
    for probe in range(first * block, wp.min((first + 1) * block, gel.points.shape[0])):
        depth = wp.float32(0.0)
        power = wp.float32(0.0)
        if gel.radius[probe] > 0.0 and not is_clear:
            touched = deepest(shapes, around, env, mount, gel.points[probe], 0.0)
            depth = wp.max(-touched.distance, 0.0)
            power = depth * depth
            if exponent != 2.0 and depth > 0.0:
                power = wp.pow(depth, exponent)
        slot = _slot(gel, probe)
        heights[env, mount, 0, slot] = depth
        heights[env, mount, 1, slot] = power


@wp.func
def _nearest(gel: Gel, x: wp.vec3) -> wp.int32:
    """Return the probe nearest to a point; -1 if all neighbouring probes have no radius."""
    best = wp.int32(-1)
    least = wp.float32(wp.inf)
    if gel.rows == 0:
        for probe in range(gel.points.shape[0]):
            far = wp.length_sq(x - gel.points[probe])
            if gel.radius[probe] > 0.0 and far < least:
                least = far
                best = probe
        return best
    arm = x - gel.origin
    row = wp.clamp(wp.int32(wp.round(wp.dot(arm, gel.along_rows) * gel.per_row)), 0, gel.rows - 1)
    column = wp.clamp(wp.int32(wp.round(wp.dot(arm, gel.along_columns) * gel.per_column)), 0, gel.columns - 1)
    if gel.radius[row * gel.columns + column] > 0.0:
        return row * gel.columns + column
    for r in range(wp.max(row - 1, 0), wp.min(row + 2, gel.rows)):
        for c in range(wp.max(column - 1, 0), wp.min(column + 2, gel.columns)):
            probe = r * gel.columns + c
            far = wp.length_sq(x - gel.points[probe])
            if gel.radius[probe] > 0.0 and far < least:
                least = far
                best = probe
    return best


@wp.func
def _is_inside(
    shapes: Shapes, around: NearShapes, surface: GelSurface, env: int, mount: int, link: int, p: wp.vec3
) -> bool:
    """Return whether a point in the mount's frame is inside, or on, a shape of a link."""
    for k in range(around.count[env, mount]):
        row = around.row[env, mount, k]
        if surface.link_of_row[row] == link:
            local = quat_rotate_inverse(around.quat[env, mount, k], p - around.pos[env, mount, k])
            far, _foot, _out = signed_distance(
                shapes.instances, shapes.solids, shapes.fields, row, local, 2.0 * ON_SURFACE
            )
            if far <= ON_SURFACE:
                return True
    return False


@kernel(blocks=2)
def stick(
    rows: Rows,
    ball: wp.vec3,
    ball_radius: float,
    gel: Gel,
    law: Law,
    surface: GelSurface,
    shapes: Shapes,
    around: NearShapes,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    anchor: wp.array3d[wp.vec4],
    pressed: wp.array3d[wp.float32],
    place: wp.array3d[wp.vec3],
    drag: wp.array3d[wp.vec3],
) -> None:
    """Attach points to the skin where they come under it, and detach them; write their depths and drags.

    Args:
        rows: the environments.
        ball: centre of a ball around everything under the skin, in the mount's frame, m.
        ball_radius: its radius, m.
        gel: the elastomer.
        law: numbers per env.
        surface: the points.
        shapes: the shapes.
        around: shapes near each mount.
        pos_in: positions of the mounts, m, world.
        quat_in: orientations of the mounts.
        body_pos_in: positions of the bodies.
        body_quat_in: orientations of the bodies.
        anchor: point of attachment of each point `[env, mount, point]`, m, in the mount's frame, and 1; 0 for none.
        pressed: weighted depth of each, m; 0 for points without pressure.
        place: current positions of the pressing points.
        drag: their displacements from the anchors.
    """
    env, mount, block = masked_tid(rows)
    pos = pos_in[env, mount]
    quat = quat_in[env, mount]
    body = surface.body[block]
    link = surface.link[block]
    at = wp.vec3()
    turn = wp.vec4(1.0, 0.0, 0.0, 0.0)
    if body >= 0:
        at = body_pos_in[env, body]
        turn = body_quat_in[env, body]
    centre = quat_rotate_inverse(quat, at + quat_rotate(turn, surface.centre[block]) - pos)
    is_near = surface.hidden[mount, block] == wp.uint8(0) and around.count[env, mount] > 0
    is_near = is_near and wp.length(centre - ball) <= ball_radius + surface.radius[block]
    for point in range(surface.start[block], surface.start[block + 1]):
        held = anchor[env, mount, point]
        depth = wp.float32(0.0)
        stays = wp.bool(False)
        if is_near:
            x = quat_rotate_inverse(quat, at + quat_rotate(turn, surface.point[point]) - pos)
            probe = _nearest(gel, x)
            if probe >= 0:
                normal = gel.normals[probe]
                arm = x - gel.points[probe]
                depth = -wp.dot(normal, arm)
                limit = law.threshold[env, 0]
                if held[3] != 0.0:
                    limit = law.release[env, 0]
                stays = depth > limit and depth <= gel.deepest and wp.length(arm + depth * normal) <= gel.reach
                if stays and depth > 0.0:
                    stays = _is_inside(shapes, around, surface, env, mount, link, x + depth * normal)
        if not stays:
            if held[3] != 0.0:
                anchor[env, mount, point] = wp.vec4()
            pressed[env, mount, point] = 0.0
            continue
        if held[3] == 0.0:
            held = wp.vec4(x[0], x[1], x[2], 1.0)
            anchor[env, mount, point] = held
        away = x - wp.vec3(held[0], held[1], held[2])
        slip = law.slip[env, 0]
        flat = away - wp.dot(away, normal) * normal
        if wp.length(flat) > slip:  # never for NaN
            away = away - flat + flat * (slip / wp.length(flat))
            anchor[env, mount, point] = wp.vec4(x[0] - away[0], x[1] - away[1], x[2] - away[2], 1.0)
        pressed[env, mount, point] = wp.max(depth, 0.0) * surface.weight[point]
        place[env, mount, point] = x
        drag[env, mount, point] = away


@kernel
def gather(
    rows: Rows, pressed: wp.array3d[wp.float32], count: wp.array2d[wp.int32], listed: wp.array3d[wp.int32]
) -> None:
    """List the pressing points in order, so that sums do not depend on the threads."""
    env, mount = masked_tid(rows)
    number = wp.int32(0)
    for point in range(pressed.shape[2]):
        if pressed[env, mount, point] > 0.0:
            listed[env, mount, number] = point
            number += 1
    count[env, mount] = number


@wp.struct
class Dragged:
    """The pressing points, as written by `gather` and `stick`.

    Attributes:
        count: number of points.
        listed: indices of the points.
        pressed: weighted depths, m.
        place: positions, m.
        drag: displacements from the anchors, m.
    """

    count: wp.array2d[wp.int32]
    listed: wp.array3d[wp.int32]
    pressed: wp.array3d[wp.float32]
    place: wp.array3d[wp.vec3]
    drag: wp.array3d[wp.vec3]


@wp.func
def _flat(v: wp.vec3, normal: wp.vec3) -> wp.vec3:
    """Return the component of a vector perpendicular to a unit normal."""
    return v - wp.dot(v, normal) * normal


@kernel
def shear_list(rows: Rows, block: int, gel: Gel, law: Law, dragged: Dragged, out: wp.array3d[wp.vec3]) -> None:
    """Write the shear of each probe by the dragged points."""
    env, mount, first = masked_tid(rows)
    for probe in range(first * block, wp.min((first + 1) * block, gel.points.shape[0])):
        p = gel.points[probe]
        total = wp.vec3()
        for k in range(dragged.count[env, mount]):
            point = dragged.listed[env, mount, k]
            far = wp.length_sq(p - dragged.place[env, mount, point])
            weight = dragged.pressed[env, mount, point] * wp.exp(-gel.lambda_s * far)
            total += weight * dragged.drag[env, mount, point]
        out[env, mount, probe] = law.shear[env, 0] * _flat(total, gel.normals[probe])


@kernel
def shear_grid(rows: Rows, gel: Gel, law: Law, dragged: Dragged, out: wp.array3d[wp.vec3]) -> None:
    """Write the shear of each probe of a regular grid by the dragged points, with one thread per row of the grid.

    From one column to the next, a Gaussian changes by a factor that itself changes by a constant factor. So no further
    exponentials are needed from the nearest column outwards. Products are in float64 to limit accumulated rounding.
    """
    env, mount, row = masked_tid(rows)
    start = row * gel.columns
    step = 1.0 / gel.per_column
    fall = F64(wp.exp(-2.0 * gel.lambda_s * step * step))
    up = wp.cross(gel.along_rows, gel.along_columns)
    for probe in range(start, start + gel.columns):
        out[env, mount, probe] = wp.vec3()
    for k in range(dragged.count[env, mount]):
        point = dragged.listed[env, mount, k]
        drag = dragged.drag[env, mount, point]
        arm = dragged.place[env, mount, point] - gel.origin
        along = wp.dot(arm, gel.along_columns)
        column = wp.clamp(wp.int32(wp.round(along * gel.per_column)), 0, gel.columns - 1)
        x = float(row) / gel.per_row - wp.dot(arm, gel.along_rows)
        y = float(column) * step - along
        z = wp.dot(arm, up)
        top = F64(dragged.pressed[env, mount, point] * wp.exp(-gel.lambda_s * (x * x + y * y + z * z)))
        weight = top
        factor = F64(wp.exp(-gel.lambda_s * (step + 2.0 * y) * step))
        for probe in range(start + column, start + gel.columns):
            out[env, mount, probe] = out[env, mount, probe] + wp.float32(weight) * drag
            weight *= factor
            factor *= fall
        factor = F64(wp.exp(-gel.lambda_s * (step - 2.0 * y) * step))
        weight = top * factor
        for probe in range(start + column - 1, start - 1, -1):
            factor *= fall
            out[env, mount, probe] = out[env, mount, probe] + wp.float32(weight) * drag
            weight *= factor
    for probe in range(start, start + gel.columns):
        out[env, mount, probe] = law.shear[env, 0] * _flat(out[env, mount, probe], gel.normals[probe])


@kernel
def displace_direct(
    rows: Rows,
    block: int,
    gel: Gel,
    law: Law,
    heights: wp.array4d[wp.float32],
    has_shear: int,
    out: wp.array3d[wp.vec3],
) -> None:
    """Add the dilation to the shear of each probe, summing over all probes one by one, in float64."""
    env, mount, first = masked_tid(rows)
    is_layer = gel.layer.shape[0] > 0
    for probe in range(first * block, wp.min((first + 1) * block, gel.points.shape[0])):
        if gel.radius[probe] == 0.0:
            out[env, mount, probe] = wp.vec3()
            continue
        p = gel.points[probe]
        across = wp.vec3d()
        along = F64(0.0)
        for other in range(gel.points.shape[0]):
            depth = heights[env, mount, 0, other]
            if depth == 0.0:
                continue
            arm = p - gel.points[other]
            far = wp.length_sq(arm)
            near = wp.exp(-gel.lambda_d * far)
            along += F64(heights[env, mount, 1, other] * near)
            if is_layer:
                u = gel.layer[
                    probe / gel.columns - other / gel.columns + gel.rows - 1,
                    probe % gel.columns - other % gel.columns + gel.columns - 1,
                ]
                across += wp.vec3d(depth * (u[0] * gel.along_rows + u[1] * gel.along_columns))
            else:
                weight = gel.gauss * near
                if gel.inverse > 0.0:
                    weight += gel.inverse / (far + gel.soft2)
                across += wp.vec3d(depth * weight * arm)
        n = gel.normals[probe]
        dilate = _flat(wp.vec3(across), n) + wp.float32(along) * n
        dilate = law.dilate[env, 0] * dilate
        if has_shear != 0:
            dilate += out[env, mount, probe]
        out[env, mount, probe] = dilate


@kernel
def displace_fft(
    rows: Rows, block: int, gel: Gel, law: Law, sums: wp.array4d[wp.float32], has_shear: int, out: wp.array3d[wp.vec3]
) -> None:
    """Add the dilation to the shear of each probe, from the convolutions along rows, columns and normals."""
    env, mount, first = masked_tid(rows)
    for probe in range(first * block, wp.min((first + 1) * block, gel.points.shape[0])):
        if gel.radius[probe] == 0.0:
            out[env, mount, probe] = wp.vec3()
            continue
        at = _slot(gel, probe)
        n = gel.normals[probe]
        across = sums[env, mount, 0, at] * gel.along_rows + sums[env, mount, 1, at] * gel.along_columns
        dilate = _flat(across, n) + sums[env, mount, 2, at] * n
        dilate = law.dilate[env, 0] * dilate
        if has_shear != 0:
            dilate += out[env, mount, probe]
        out[env, mount, probe] = dilate
