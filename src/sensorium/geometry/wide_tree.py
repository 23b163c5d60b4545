"""Rays against triangles on the CPU: a tree of boxes, eight per node, tested together by the vector units.

Wald, Benthin and Boulos, Getting rid of packets (2008), describe the layout: a node has the boxes of up to eight
children, and a leaf up to eight triangles, component by component. On CUDA, rays use `wp.Mesh`.

The vector units select triangles in float32, with a bound on its rounding errors (Higham, Accuracy and Stability of
Numerical Algorithms, chapter 3), and boxes with a bound from Ize, Robust BVH Ray Traversal (2013). A selected triangle
is then intersected in float64. So a hit is that of all triangles in float64, and no ray passes between two triangles.

A tree is one array of rows of eight float32. Row 0 starts with the origin of the vertices: a multiple of a power of two
near them, so that starts of rays near them are converted without rounding. Row 1 is the root. A node has seven rows:
minimum x, y, z and maximum x, y, z of its children, and their numbers as int32: n > 0 for a node that starts at row n,
~n for a leaf. A leaf has 11 rows: x, y, z of the three corners of its triangles, their longest edges, and their indices
as int32. The lower and upper bounds of unused children are +inf and -inf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

from sensorium.compute import kernel

WIDTH = wp.constant(8)
"""Number of children of a node, and of triangles of a leaf."""
NODE_ROWS = 7
LEAF_ROWS = 11
BINS = wp.constant(16)
"""Number of places between which the triangles of a node can be split along an axis."""
CUT_LEVELS = 12
"""Number of levels that are split by the surface area heuristic; below them, numbers are halved, so that 2^31 triangles
need at most 11 further levels."""
STACK = 7 * (CUT_LEVELS + 11) + 1
"""Size of the stack: at each level, at most seven children wait."""
FARTHEST = 1e30
"""Coordinate from which triangles are omitted, m."""
MARGIN = 3e-7
"""Margin of boxes relative to the largest coordinate, for rays along their faces."""
if TYPE_CHECKING:  # Warp's types are not valid annotations for a type checker
    Box: TypeAlias = Any
else:
    Box = wp.types.vector(length=6, dtype=wp.float32)
"""Minimum of x, y, z, and of -x, -y, -z, m."""
_Bins = wp.types.matrix(shape=(16, 6), dtype=wp.float32)
_Counts = wp.types.vector(length=16, dtype=wp.int32)
_Costs = wp.types.vector(length=16, dtype=wp.float32)
_Areas = wp.types.vector(length=8, dtype=wp.float32)
_Ends = wp.types.vector(length=8, dtype=wp.int32)


def build_wide_tree(points: ArrayLike, faces: ArrayLike) -> wp.array[wp.float32]:
    """Return the tree of triangles, `[row, 8]`, on the CPU; triangles that are not finite are omitted.

    Args:
        points: `[n, 3]`, m; they are rounded to float32 relative to the tree's origin.
        faces: `[m, 3]`, rows of `points`; the index identifies triangles by their row here.
    """
    exact = np.asarray(points, np.float64)[np.asarray(faces).reshape(-1, 3)]
    ids = np.flatnonzero((np.abs(exact) < FARTHEST).all(axis=(1, 2))).astype(np.int32)
    low, high = exact[ids].min(axis=(0, 1), initial=FARTHEST), exact[ids].max(axis=(0, 1), initial=-FARTHEST)
    step = np.exp2(np.ceil(np.log2(np.maximum((high - low).max(), 1e-30))))
    origin = np.round(0.5 * (low + high) / step) * step
    corners = (exact[ids] - origin).astype(np.float32)
    boxes = np.concatenate([corners.min(axis=1), -corners.max(axis=1)], axis=1)
    order = wp.array(np.arange(len(ids)), dtype=wp.int32, device="cpu")
    inputs = [wp.array(boxes, dtype=Box, device="cpu"), order]
    level = np.array([[0, len(ids)]], np.int32)
    ends: list[NDArray[np.int32]] = []
    bounds: list[NDArray[np.float32]] = []
    while len(level):
        ends_of = wp.zeros((len(level), int(WIDTH)), dtype=wp.vec2i, device="cpu")
        bounds_of = wp.full((len(level), int(WIDTH)), Box(*[np.inf] * 6), dtype=Box, device="cpu")
        halves = int(len(ends) >= CUT_LEVELS)
        nodes = wp.array(level, dtype=wp.vec2i, device="cpu")
        wp.launch(_split, len(level), [*inputs, nodes, halves, ends_of, bounds_of], device="cpu")
        ends.append(ends_of.numpy())
        bounds.append(bounds_of.numpy())
        level = ends[-1][ends[-1][..., 1] - ends[-1][..., 0] > int(WIDTH)]
    rows = _packed(corners, ids, order.numpy(), np.concatenate(ends), np.concatenate(bounds))
    rows[0, :3] = origin
    return wp.array(rows, dtype=wp.float32, device="cpu")


def _packed(
    corners: NDArray[np.float32],
    ids: NDArray[np.int32],
    order: NDArray[np.int32],
    ends: NDArray[np.int32],
    bounds: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the rows of a tree around the origin.

    Args:
        corners: of the triangles `[triangle, 3, xyz]`, m.
        ids: their indices.
        order: the triangles; those of a node are neighbours.
        ends: first and last entry in `order` of each child `[node, child]`.
        bounds: their boxes.
    """
    sizes = ends[..., 1] - ends[..., 0]
    is_leaf = (sizes > 0) & (sizes <= int(WIDTH))
    starts = ends[is_leaf][:, 0]
    count, leaf_at = len(ends), 1 + NODE_ROWS * len(ends)
    tree = np.zeros((leaf_at + LEAF_ROWS * len(starts), int(WIDTH)), np.float32)
    nodes = tree[1:leaf_at].reshape(count, NODE_ROWS, int(WIDTH))
    pad = np.float32(MARGIN * np.abs(corners).max(initial=0.0) + 1e-30)
    nodes[:, :3] = bounds[..., :3].transpose(0, 2, 1) - pad
    nodes[:, 3:6] = pad - bounds[..., 3:].transpose(0, 2, 1)
    children = nodes[:, 6].view(np.int32)
    children[sizes > int(WIDTH)] = 1 + NODE_ROWS * np.arange(1, count)
    first = np.argsort(starts)  # neighbouring leaves are near each other
    rank = np.empty_like(first)
    rank[first] = np.arange(len(first))
    children[is_leaf] = ~(leaf_at + LEAF_ROWS * rank)
    leaves = tree[leaf_at:].reshape(len(starts), LEAF_ROWS, int(WIDTH))
    lanes = starts[first][:, None] + np.arange(int(WIDTH))
    is_used = np.arange(int(WIDTH)) < sizes[is_leaf][first][:, None]
    of = order[np.where(is_used, lanes, 0)] if len(order) else np.zeros_like(lanes)
    # unused lanes are NaN, which no comparison accepts
    here = np.where(is_used[..., None, None], corners[of], np.float32(np.nan))
    leaves[:, :9] = here.reshape(len(starts), int(WIDTH), 9).transpose(0, 2, 1)
    leaves[:, 9] = np.linalg.norm(here[:, :, [1, 2, 2]] - here[:, :, [0, 0, 1]], axis=-1).max(axis=-1)
    leaves[:, 10] = np.where(is_used, ids[of], -1).astype(np.int32).view(np.float32)
    return tree


@wp.func
def _area(box: Box) -> wp.float32:
    """Return a quarter of the surface of a box."""
    x = -(box[3] + box[0])
    y = -(box[4] + box[1])
    z = -(box[5] + box[2])
    return x * y + y * z + z * x


@wp.func
def _bin(box: Box, axis: int, low: float, per: float) -> wp.int32:
    """Return the bin of a triangle: that of the middle of its box along an axis."""
    return wp.clamp(wp.int32((box[axis] - box[axis + 3] - low) * per), 0, BINS - 1)


@wp.func
def _cut(boxes: wp.array[Box], order: wp.array[wp.int32], begin: int, end: int, halves: int) -> int:
    """Reorder triangles and return where to split them, by the surface area heuristic of Wald (2007)."""
    middles = Box(wp.inf, wp.inf, wp.inf, wp.inf, wp.inf, wp.inf)
    for i in range(begin, end):
        box = boxes[order[i]]
        x = box[0] - box[3]
        y = box[1] - box[4]
        z = box[2] - box[5]
        middles = wp.min(middles, Box(x, y, z, -x, -y, -z))
    best = float(wp.inf)
    axis = int(-1)
    last = int(0)
    for a in range(3):
        per = float(BINS) / -(middles[a + 3] + middles[a])
        if halves == 0 and per > 0.0 and per < 1.0e30:
            bins = _Bins()
            counts = _Counts()
            right = _Costs()
            for b in range(BINS):
                for k in range(6):
                    bins[b, k] = wp.inf
            for i in range(begin, end):
                box = boxes[order[i]]
                b = _bin(box, a, middles[a], per)
                counts[b] = counts[b] + 1
                for k in range(6):
                    if box[k] < bins[b, k]:
                        bins[b, k] = box[k]
            box = Box(wp.inf, wp.inf, wp.inf, wp.inf, wp.inf, wp.inf)
            count = int(0)
            for n in range(BINS - 1):
                b = BINS - 1 - n
                count += counts[b]
                box = wp.min(box, bins[b])
                right[b] = wp.where(count > 0, _area(box), 0.0) * float((count + WIDTH - 1) / WIDTH)
            box = Box(wp.inf, wp.inf, wp.inf, wp.inf, wp.inf, wp.inf)
            count = int(0)
            for b in range(BINS - 1):
                count += counts[b]
                box = wp.min(box, bins[b])
                if count > 0 and count < end - begin:
                    cost = _area(box) * float((count + WIDTH - 1) / WIDTH) + right[b + 1]
                    if cost < best:
                        best = cost
                        axis = a
                        last = b
    if axis < 0:  # equal middles, or too deep
        return begin + (end - begin) // 2
    per = float(BINS) / -(middles[axis + 3] + middles[axis])
    i = int(begin)
    j = int(end)
    while i < j:
        triangle = order[i]
        if _bin(boxes[triangle], axis, middles[axis], per) <= last:
            i += 1
        else:
            j -= 1
            order[i] = order[j]
            order[j] = triangle
    return i


@wp.func
def _bounds(boxes: wp.array[Box], order: wp.array[wp.int32], begin: int, end: int) -> Box:
    """Return the box around triangles."""
    out = Box(wp.inf, wp.inf, wp.inf, wp.inf, wp.inf, wp.inf)
    for i in range(begin, end):
        out = wp.min(out, boxes[order[i]])
    return out


@kernel
def _split(
    boxes: wp.array[Box],
    order: wp.array[wp.int32],
    nodes: wp.array[wp.vec2i],
    halves: int,
    ends: wp.array2d[wp.vec2i],
    bounds: wp.array2d[Box],
) -> None:
    """Split the triangles of each node of a level for up to eight children.

    Args:
        boxes: boxes of all triangles.
        order: the triangles; those of a node are neighbours.
        nodes: first entry of each node in `order`, and the one after its last.
        halves: 1 to halve the numbers.
        ends: the same of the children `[node, child]`; equal for unused ones.
        bounds: their boxes.
    """
    node = wp.tid()
    begins = _Ends()
    stops = _Ends()
    areas = _Areas()
    begins[0] = nodes[node][0]
    stops[0] = nodes[node][1]
    areas[0] = wp.inf
    count = int(1)
    pick = int(0)
    while pick >= 0 and count < WIDTH:
        pick = int(-1)
        largest = float(-1.0)
        for k in range(count):
            size = stops[k] - begins[k]
            value = wp.where(halves == 1, float(size), areas[k])
            if size > WIDTH and value > largest:
                largest = value
                pick = k
        if pick >= 0:
            middle = _cut(boxes, order, begins[pick], stops[pick], halves)
            begins[count] = middle
            stops[count] = stops[pick]
            stops[pick] = middle
            areas[count] = _area(_bounds(boxes, order, middle, stops[count]))
            areas[pick] = _area(_bounds(boxes, order, begins[pick], middle))
            count += 1
    for k in range(count):
        ends[node, k] = wp.vec2i(begins[k], stops[k])
        bounds[node, k] = _bounds(boxes, order, begins[k], stops[k])


@wp.func_native(
    """
#ifdef __CUDA_ARCH__
return 0x7f800000ffffffffull;  // a miss: inf, -1
#else
// Vectors of the compiler: it emits AVX, or pairs of SSE or NEON registers where the CPU has no wider ones.
typedef float f8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
typedef bool b8 __attribute__((ext_vector_type(8)));
// Rows in memory: aligned to floats, and readable as such
typedef float row __attribute__((vector_size(32), aligned(4), may_alias));
const row* rows = (const row*)tree;
const float ox = o[0] - rows[0][0], oy = o[1] - rows[0][1], oz = o[2] - rows[0][2], dx = d[0], dy = d[1], dz = d[2];
float best = limit < 3e38f ? limit : 3e38f;  // no product with it is inf * 0
int face = -1;
const float size = __builtin_fabsf(dx) + __builtin_fabsf(dy) + __builtin_fabsf(dz);
// Comparisons with NaN are false, so such rays end here.
if (size > 0.0f && size + __builtin_fabsf(ox) + __builtin_fabsf(oy) + __builtin_fabsf(oz) < 1e30f) {
    // Without zeros in the direction, no product is 0 * inf. The margin of boxes covers the difference.
    const float tiny = 1e-18f;
    const float ix = 1.0f / (__builtin_fabsf(dx) < tiny ? __builtin_copysignf(tiny, dx) : dx);
    const float iy = 1.0f / (__builtin_fabsf(dy) < tiny ? __builtin_copysignf(tiny, dy) : dy);
    const float iz = 1.0f / (__builtin_fabsf(dz) < tiny ? __builtin_copysignf(tiny, dz) : dz);
    // The sign of the direction tells which of the two planes of an axis comes first: no minimum and maximum per axis
    const int near_x = ix < 0.0f ? 3 : 0, near_y = iy < 0.0f ? 4 : 1, near_z = iz < 0.0f ? 5 : 2;
    const int far_x = 3 - near_x, far_y = 5 - near_y, far_z = 7 - near_z;
    // Ize (2013): three roundings, of 2^-24 each, move the interval of a box by less than this.
    const float wider = 1.000001f;
    const float loose = 1e-6f * size;  // 16 * 2^-24: twice the bound on the errors of the sums of products below
    struct { float t; int at; } stack[$STACK];
    int top = 0, at = 1;
    for (;;) {
        while (at >= 0) {
            const row* b = rows + at;
            const f8 x = (b[near_x] - ox) * ix, y = (b[near_y] - oy) * iy, z = (b[near_z] - oz) * iz;
            const f8 u = (b[far_x] - ox) * ix, v = (b[far_y] - oy) * iy, w = (b[far_z] - oz) * iz;
            f8 in = x > y ? x : y, out = u < v ? u : v;
            in = in > z ? in : z;
            out = (out < w ? out : w) * wider;
            const i8 meets = (in <= out) & (out >= 0.0f) & (in <= best * wider);
            // One bit per child; the loop below visits those that are set.
            unsigned bits = __builtin_bit_cast(unsigned char, __builtin_convertvector(meets, b8));
            if (!bits) {
                at = -1;
                goto next;
            }
            const int* children = (const int*)(b + 6);
            float t[8];
            __builtin_memcpy(t, &in, 32);
            int k = __builtin_ctz(bits);
            at = children[k];
            bits &= bits - 1;
            if (bits) {
                // The nearest child is next; the others wait, the nearest of them on top.
                float first = t[k];
                const int base = top;
                do {
                    k = __builtin_ctz(bits);
                    bits &= bits - 1;
                    float key = t[k];
                    int child = children[k];
                    if (key < first) {
                        float swap = key;
                        key = first;
                        first = swap;
                        int other = child;
                        child = at;
                        at = other;
                    }
                    int j = top++;
                    for (; j > base && stack[j - 1].t < key; --j) stack[j] = stack[j - 1];
                    stack[j].t = key;
                    stack[j].at = child;
                } while (bits);
            }
        }
        {
            // Moeller and Trumbore (1997) for eight triangles, without the division: values times the determinant
            const row* b = rows + ~at;
            const f8 sx = ox - b[0], sy = oy - b[1], sz = oz - b[2];
            const f8 ex = b[3] - b[0], ey = b[4] - b[1], ez = b[5] - b[2];
            const f8 gx = b[6] - b[0], gy = b[7] - b[1], gz = b[8] - b[2];
            const f8 px = dy * gz - dz * gy, py = dz * gx - dx * gz, pz = dx * gy - dy * gx;
            f8 det = ex * px + ey * py + ez * pz, b1 = sx * px + sy * py + sz * pz;
            const f8 qx = sy * ez - sz * ey, qy = sz * ex - sx * ez, qz = sx * ey - sy * ex;
            f8 b2 = dx * qx + dy * qy + dz * qz, t = gx * qx + gy * qy + gz * qz;
            // The determinant's sign bit turns all values, so that both faces are one case.
            const i8 signs = (i8)det & (int)0x80000000, mask = i8{} + 0x7fffffff;
            det = (f8)((i8)det ^ signs);
            b1 = (f8)((i8)b1 ^ signs);
            b2 = (f8)((i8)b2 ^ signs);
            t = (f8)((i8)t ^ signs);
            const f8 edge = b[9], far = (f8)((i8)sx & mask) + (f8)((i8)sy & mask) + (f8)((i8)sz & mask);
            const f8 more = loose * edge * (far + edge), later = edge * (1e-6f * far * edge + best * loose * edge);
            const i8 meets = (b1 >= -more) & (b2 >= -more) & (b1 + b2 - det <= 3.0f * more) & (t >= -later)
                           & (t - best * det <= later);
            unsigned bits = __builtin_bit_cast(unsigned char, __builtin_convertvector(meets, b8));
            for (; bits; bits &= bits - 1) {
                // The same in float64 for a triangle that may be hit
                const float* c = (const float*)b + __builtin_ctz(bits);
                const double ax = c[0], ay = c[8], az = c[16], s0 = ox - ax, s1 = oy - ay, s2 = oz - az;
                const double e0 = c[24] - ax, e1 = c[32] - ay, e2 = c[40] - az;
                const double g0 = c[48] - ax, g1 = c[56] - ay, g2 = c[64] - az;
                const double p0 = dy * g2 - dz * g1, p1 = dz * g0 - dx * g2, p2 = dx * g1 - dy * g0;
                const double per = 1.0 / (e0 * p0 + e1 * p1 + e2 * p2);  // inf without area: NaN or inf below
                const double q0 = s1 * e2 - s2 * e1, q1 = s2 * e0 - s0 * e2, q2 = s0 * e1 - s1 * e0;
                const double b1 = (s0 * p0 + s1 * p1 + s2 * p2) * per, b2 = (dx * q0 + dy * q1 + dz * q2) * per;
                const float t = (float)((g0 * q0 + g1 * q1 + g2 * q2) * per);
                const int id = ((const int*)c)[80];
                if (b1 >= -1e-10 && b2 >= -1e-10 && b1 + b2 <= 1.0 + 1e-10 && t >= 0.0f
                    && (t < best || (t == best && (face < 0 || id < face)))) {
                    best = t;
                    face = id;
                }
            }
        }
    next:
        do {
            if (!top) goto done;
            --top;
        } while (stack[top].t > best * wider);
        at = stack[top].at;
    }
}
done:
if (face < 0) best = __builtin_inff();
return (unsigned long long)__builtin_bit_cast(unsigned, best) << 32 | (unsigned)face;
#endif
""".replace("$STACK", str(STACK))
)
def _wide_tree_ray(tree: wp.uint64, o: wp.vec3, d: wp.vec3, limit: float) -> wp.uint64:
    """Return the bits of t and the triangle of `wide_tree_ray`."""


@wp.func
def wide_tree_ray(tree: wp.uint64, o: wp.vec3, d: wp.vec3, limit: float) -> tuple[wp.float32, wp.int32]:
    """Return t and the first triangle that a ray hits, the lowest index among equal t; (inf, -1) on a miss.

    It runs on the CPU only. On CUDA it always returns a miss.

    Args:
        tree: address of the array of `build_wide_tree`.
        o: start of the ray in the frame of the vertices, m.
        d: its direction, of any length: t >= 0 is in units of it. Both faces of a triangle can be hit. A direction of
            length 0 and values that are not finite are misses.
        limit: maximum t, inclusive, in the same units.
    """
    found = _wide_tree_ray(tree, o, d, limit)
    return wp.cast(wp.uint32(found >> wp.uint64(32)), wp.float32), wp.int32(wp.uint32(found & wp.uint64(0xFFFFFFFF)))
