"""Kernels of heat in the cells of links: contacts, exchange, conduction, air and radiation, and the sensing element.

Temperatures are stored in float64, as differences from the base temperature of their link: in float32 a cell that warms
by less than 1e-6 K per step would never warm. A node is a cell, then a link with one temperature, then a node of fixed
temperature.

Each process has a separate substep that is stable for any time step. Substeps that only move heat conserve it. Exchange
is exact for each pair of nodes, conduction is implicit along one axis after another, and losses are exact for their
rate.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_captured, ticks_after
from sensorium.geometry.primitives import MESH, PLANE
from sensorium.geometry.solid_around import NearShapes, Shapes
from sensorium.geometry.solids import signed_analytic, signed_distance
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse
from sensorium.random import F64

STEFAN_BOLTZMANN = 5.670374419e-8
"""Stefan-Boltzmann constant, W/(m^2 K^4) (SI 2019, exact to all digits given)."""
BLOCK = wp.constant(wp.int32(32))
"""Surface points per thread: a thread costs more than a point without neighbours."""
FACING = wp.constant(-0.5)
"""Largest cosine between the outward normals of two touching surfaces, so that they face each other within 60 degrees.
The side walls of a block are therefore not in contact with the table that it stands on."""

_ZERO: F64 = wp.constant(wp.float64(0.0))
_HALF: F64 = wp.constant(wp.float64(0.5))
_ONE: F64 = wp.constant(wp.float64(1.0))
_SMALL: F64 = wp.constant(wp.float64(1e-3))
_KELVIN: F64 = wp.constant(wp.float64(273.15))
_SIGMA: F64 = wp.constant(wp.float64(STEFAN_BOLTZMANN))


@wp.struct
class TemperatureSkin:
    """Points that represent the surfaces of the links, `[mount, sample]` each, in the link's frame.

    Attributes:
        point: positions, m.
        normal: outward unit normals.
        area: area of each point, m^2.
        cell: cell of each point within the mount; -1 beyond the last sample.
        resistance: thermal resistance of half its cell towards the surface, m^2 K/W.
    """

    point: wp.array2d[wp.vec3]
    normal: wp.array2d[wp.vec3]
    area: wp.array2d[wp.float32]
    cell: wp.array2d[wp.int32]
    resistance: wp.array2d[wp.float32]


@wp.struct
class Links:
    """All bodies that can be touched; entry 0 is the world, entry b + 1 is body b.

    Attributes:
        of_row: entry of each instance row of the shapes.
        node: node of the entry; for a mount, its first node.
        mount: index of the mount; -1 for none.
        counts: 0 if touch is counted from the other side `[mount, entry]`.
        half: half the sides of its cells, or of a link with one temperature; 0 for a fixed temperature, m.
        resistivity: 1 / conductivity, m K/W.
        low: minimum corner of its cells, m.
        per_size: cells per metre along each axis.
        grid_y: cells along y.
        grid_z: cells along z.
        last: maximum index of a cell along each axis.
        nearest: nearest cell that is not empty `[mount, cell]`.
        gap: thermal resistance of the touching surfaces, m^2 K/W.
        reach: contact distance, m.
    """

    of_row: wp.array[wp.int32]
    node: wp.array[wp.int32]
    mount: wp.array[wp.int32]
    counts: wp.array2d[wp.uint8]
    half: wp.array[wp.vec3]
    resistivity: wp.array[wp.float32]
    low: wp.array[wp.vec3]
    per_size: wp.array[wp.vec3]
    grid_y: wp.int32
    grid_z: wp.int32
    last: wp.vec3
    nearest: wp.array2d[wp.int32]
    gap: wp.float32
    reach: wp.float32


@kernel(blocks=2)
def find_contacts(
    rows: Rows,
    shapes: Shapes,
    around: NearShapes,
    skin: TemperatureSkin,
    links: Links,
    mount_pos_in: wp.array2d[wp.vec3],
    mount_quat_in: wp.array2d[wp.vec4],
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    node_out: wp.array3d[wp.int32],
    conductance_out: wp.array3d[wp.float32],
) -> None:
    """Find the node that each point of a surface touches, -1 for none, and the conductance to it, W/K.

    Args:
        rows: the environments.
        shapes: all shapes.
        around: shapes near each mount.
        skin: the points.
        links: the bodies that can be touched.
        mount_pos_in: positions of the mounts, m, world.
        mount_quat_in: orientations of the mounts.
        body_pos_in: positions of the bodies.
        body_quat_in: orientations of the bodies.
        node_out: `[env, mount, sample]`.
        conductance_out: `[env, mount, sample]`.
    """
    env, mount, block = masked_tid(rows)
    for sample in range(block * BLOCK, wp.min(block * BLOCK + BLOCK, node_out.shape[2])):
        node_out[env, mount, sample] = -1
        if skin.cell[mount, sample] < 0:
            continue
        p = skin.point[mount, sample]
        deepest = links.reach
        touched = wp.int32(-1)
        normal = wp.vec3()
        place = wp.vec3()
        for k in range(around.count[env, mount]):  # inlined `solid_around.deepest`, which copies its structs per point
            row = around.row[env, mount, k]
            turn = around.quat[env, mount, k]
            arm = around.pos[env, mount, k]
            local = quat_rotate_inverse(turn, p - arm)
            kind = shapes.instances.kind[row]
            far = shapes.instances.radius[row] + links.reach
            if kind != PLANE and wp.length_sq(local - shapes.instances.centre[row]) > far * far:
                continue
            distance, foot, gradient = signed_analytic(kind, shapes.instances.size[row], local)
            if kind >= MESH:
                limit = wp.max(deepest, 0.0)
                distance, foot, gradient = signed_distance(
                    shapes.instances, shapes.solids, shapes.fields, row, local, limit
                )
            if distance < deepest:
                deepest = distance
                touched = row
                place = arm + quat_rotate(turn, foot)
                normal = quat_rotate(turn, gradient)
        if touched < 0 or wp.dot(normal, skin.normal[mount, sample]) > FACING:
            continue
        entry = links.of_row[touched]
        if links.counts[mount, entry] == wp.uint8(0):
            continue
        normal = quat_rotate(mount_quat_in[env, mount], normal)
        place = mount_pos_in[env, mount] + quat_rotate(mount_quat_in[env, mount], place)
        if entry > 0:
            normal = quat_rotate_inverse(body_quat_in[env, entry - 1], normal)
            place = quat_rotate_inverse(body_quat_in[env, entry - 1], place - body_pos_in[env, entry - 1])
        node = links.node[entry]
        if links.mount[entry] >= 0:
            at = wp.cw_mul(place - links.low[entry], links.per_size[entry])
            x = wp.int32(wp.clamp(at[0], 0.0, links.last[0]))
            y = wp.int32(wp.clamp(at[1], 0.0, links.last[1]))
            z = wp.int32(wp.clamp(at[2], 0.0, links.last[2]))
            node = node + links.nearest[links.mount[entry], (x * links.grid_y + y) * links.grid_z + z]
        depth = wp.length(wp.cw_mul(links.half[entry], normal))
        resistance = skin.resistance[mount, sample] + links.gap + depth * links.resistivity[entry]
        conductance_out[env, mount, sample] = skin.area[mount, sample] / resistance
        node_out[env, mount, sample] = node


@wp.func
def mean_decay(x: F64) -> F64:
    """Return (1 - exp(-x)) / x for x >= 0: the mean of an exponential decay over x time constants."""
    if x < _SMALL:
        return _ONE - x * (_HALF - x * (wp.float64(1.0 / 6.0) - x * wp.float64(1.0 / 24.0)))
    return (_ONE - wp.exp(-x)) / x


@kernel
def exchange(
    rows: Rows,
    dt: F64,
    cells: int,
    samples: int,
    cell_in: wp.array2d[wp.int32],
    area_in: wp.array2d[wp.float32],
    node_in: wp.array3d[wp.int32],
    conductance_in: wp.array3d[wp.float32],
    base: wp.array[F64],
    per_capacity: wp.array[F64],
    last_tick: wp.array[wp.int32],
    span: wp.array[F64],
    covered: wp.array2d[F64],
    theta: wp.array2d[F64],
) -> None:
    """Exchange heat between all touching pairs, each exactly, for half a step in order and half in reverse order.

    Args:
        rows: the environments.
        dt: s.
        cells: cells of a mount.
        samples: points of a mount.
        cell_in: cell of each point.
        area_in: area of each point, m^2.
        node_in: node that each point touches, -1 for none.
        conductance_in: W/K.
        base: base temperature of each node, degC.
        per_capacity: 1 / heat capacity of each node, K/J; 0 for a fixed temperature.
        last_tick: low word of the tick of the last sample of each environment.
        span: time since then, s; 0 at the first sample.
        covered: surface of each node in contact, m^2.
        theta: temperature of each node above its base, K.
    """
    env = masked_tid(rows)
    captured = tick_captured(rows)
    time = wp.max(F64(ticks_after(captured, last_tick[env])) * dt, _ZERO)
    if is_first(rows, env):
        time = _ZERO
    last_tick[env] = wp.int32(captured)
    span[env] = time
    nodes = theta.shape[1]
    for k in range(nodes):
        covered[env, k] = _ZERO
    if time == _ZERO:
        return
    total = node_in.shape[1] * samples
    touching = wp.int32(0)
    for way in range(2):
        if way == 1 and touching == 0:
            return
        for step in range(total):
            k = step
            if way == 1:
                k = total - 1 - step
            mount = k / samples
            sample = k - mount * samples
            other = node_in[env, mount, sample]
            if other < 0:
                continue
            touching += 1
            own = mount * cells + cell_in[mount, sample]
            both = per_capacity[own] + per_capacity[other]
            flow = _HALF * time * F64(conductance_in[env, mount, sample])
            there = base[other]
            if other < nodes:
                there = there + theta[env, other]
            heat = flow * mean_decay(flow * both) * (there - base[own] - theta[env, own])
            theta[env, own] = theta[env, own] + heat * per_capacity[own]
            if other < nodes:
                theta[env, other] = theta[env, other] - heat * per_capacity[other]
            if way == 0:
                covered[env, own] = covered[env, own] + F64(area_in[mount, sample])
                if other < nodes:
                    covered[env, other] = covered[env, other] + F64(area_in[mount, sample])


@kernel
def conduct(
    rows: Rows,
    length: int,
    stride: int,
    cells: int,
    span: wp.array[F64],
    capacity: wp.array2d[F64],
    conductance: wp.array2d[F64],
    swept: wp.array2d[F64],
    theta: wp.array2d[F64],
) -> None:
    """Conduct heat along one line of cells: implicit Euler, a tridiagonal system (Thomas 1949).

    Args:
        rows: the environments.
        length: cells of a line.
        stride: from one cell of a line to the next.
        cells: cells of a mount.
        span: time step, s.
        capacity: heat capacity `[mount, cell]`, J/K; any non-zero value for an empty cell.
        conductance: from each cell to the next along the axis `[mount, cell]`, W/K; 0 at walls.
        swept: scratch memory for the elimination.
        theta: temperature of each node above its base, K.
    """
    env, mount, line = masked_tid(rows)
    time = span[env]
    if time == _ZERO:
        return
    first = line / stride * stride * length + line % stride
    start = mount * cells
    flow = _ZERO
    ratio = _ZERO
    before = _ZERO
    for k in range(length):
        cell = first + k * stride
        mass = capacity[mount, cell]
        onward = time * conductance[mount, cell]
        inverse = _ONE / (mass + flow * (_ONE - ratio) + onward)
        before = (mass * theta[env, start + cell] + flow * before) * inverse
        theta[env, start + cell] = before
        ratio = onward * inverse
        swept[env, start + cell] = ratio
        flow = onward
    for k in range(length - 1):
        cell = first + (length - 2 - k) * stride
        before = theta[env, start + cell] + swept[env, start + cell] * before
        theta[env, start + cell] = before


@kernel
def apply_losses(
    rows: Rows,
    cells: int,
    span: wp.array[F64],
    base: wp.array[F64],
    per_capacity: wp.array[F64],
    area: wp.array[F64],
    emissivity: wp.array[F64],
    convection: F64,
    ambient: F64,
    covered: wp.array2d[F64],
    heat: wp.array2d[wp.float32],
    shown_start: wp.array[wp.int32],
    shown: wp.array[wp.int32],
    theta: wp.array2d[F64],
    temperature_out: wp.array2d[wp.float32],
) -> None:
    """Apply losses to the air and by radiation, add generated heat, and write the temperature of each node.

    The rate of radiation uses the mean of the temperatures before and after: eps sigma (T^2 + Ta^2) (T + Ta), K.

    Args:
        rows: the environments.
        cells: cells of all mounts.
        span: time step, s.
        base: base temperature of each node, degC.
        per_capacity: 1 / heat capacity of each node, K/J; 0 for an empty cell.
        area: surface of each node, m^2.
        emissivity: emissivity of each node.
        convection: W/(m^2 K).
        ambient: temperature of the surroundings, degC.
        covered: surface of each node in contact, m^2.
        heat: heat generated in each cell `[env, cell]`, W; empty for none.
        shown_start: first entry of each node in `shown` `[node + 1]`.
        shown: cells that show a node.
        theta: temperature of each node above its base, K.
        temperature_out: `[env, cell]`, degC.
    """
    env, node = masked_tid(rows)
    if per_capacity[node] == _ZERO:
        return
    value = theta[env, node]
    time = span[env]
    if time > _ZERO:
        power = _ZERO
        if heat.shape[0] > 0 and node < cells:
            power = F64(heat[env, node])
        bare = wp.max(area[node] - covered[env, node], _ZERO)
        start = value
        mean = value
        for _step in range(2):
            rate = convection
            if emissivity[node] > _ZERO:
                hot = wp.max(base[node] + mean + _KELVIN, _ZERO)
                cold = ambient + _KELVIN
                rate = rate + emissivity[node] * _SIGMA * (hot * hot + cold * cold) * (hot + cold)
            rate = rate * bare
            gain = (power + rate * (ambient - base[node] - start)) * time * per_capacity[node]
            value = start + gain * mean_decay(rate * time * per_capacity[node])
            mean = _HALF * (start + value)
            if emissivity[node] == _ZERO:
                break
        theta[env, node] = value
    show = wp.float32(base[node] + value)
    for k in range(shown_start[node], shown_start[node + 1]):
        temperature_out[env, shown[k]] = show


@kernel
def respond(
    rows: Rows,
    tau: F64,
    span: wp.array[F64],
    last: wp.array2d[wp.float32],
    rest: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    """Update the sensing element: tau dy/dt = x - y, exact for an x that is constant over the step.

    Args:
        rows: the environments.
        tau: time constant, s.
        span: time step, s; 0 at the first sample, which is copied.
        last: output at the previous sample.
        rest: rounding residue of the output, since a slow element changes by less than a digit per step.
        values: of the cell on input, of the element on output.
    """
    env, column = masked_tid(rows)
    x = span[env] / tau
    if x == _ZERO:
        rest[env, column] = 0.0
        return
    before = F64(last[env, column]) + F64(rest[env, column])
    after = before + x * mean_decay(x) * (F64(values[env, column]) - before)
    shown = wp.float32(after)
    rest[env, column] = wp.float32(after - F64(shown))
    values[env, column] = shown
