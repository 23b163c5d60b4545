"""Distances of the pixels to the camera and to its image plane, and their points in the camera's frame."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.camera_data import DISTANCES
from sensorium.cameras.render.structs import HitRecord, Lens, line_at
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.measurement.record import Record

HITS, DEPTH, RANGE = 0, 1, 2
"""Given distance: that of the hits, or of an image, to the image plane or to the camera."""


@kernel(group="images")
def _measure(
    rows: Rows,
    given: int,
    is_last: int,
    farthest: float,
    beyond: float,
    point_beyond: float,
    limits: wp.vec3,
    hole: float,
    lens: Lens,
    hits: HitRecord,
    given_in: wp.array3d[wp.float32],
    ranges: wp.array3d[wp.float32],
    depths: wp.array3d[wp.float32],
    points: wp.array3d[wp.vec3],
) -> None:
    """Compute both distances and the point of each pixel from one distance; clip as the last step.

    Args:
        rows: the environments.
        given: `HITS`, `DEPTH` or `RANGE`.
        is_last: whether this is the last step.
        farthest: maximum distance that is not clipped, m.
        beyond: value of misses and of greater distances, m.
        point_beyond: depth of their points, m, by the depth; negative keeps the points.
        limits: range of a given distance: least and greatest t, and least length of the ray, m.
        hole: given distance of a pixel without a measurement, which the range does not change, m.
        lens: the lines of sight.
        hits: the hit record.
        given_in: the given distance, unless it is that of the hits.
        ranges: distances to the camera, m.
        depths: distances to the image plane, m.
        points: points in the camera's frame, m.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    row = rows.first + piece
    first = row * lens.width
    is_depth = given == wp.static(HITS) and lens.inverse_k.shape[0] > 0
    if is_depth and ranges.shape[0] == 0 and points.shape[0] == 0:  # the depths of a pinhole need no lines of sight
        for pixel in range(first, first + lens.width):
            depth = 1.0 / hits.inverse[place, mount, pixel]
            if is_last != 0 and (depth > farthest or wp.isinf(depth)):
                depth = beyond
            depths[env, mount, pixel] = depth
        return
    for column in range(lens.width):
        pixel = first + column
        start, direction = line_at(lens, env, row, column)
        t = float(wp.inf)
        if given == wp.static(HITS):
            inverse = hits.inverse[place, mount, pixel]
            if inverse > 0.0:
                t = 1.0 / inverse
        elif given == wp.static(DEPTH):
            if wp.abs(direction[0]) > 1.0e-6:  # at a right angle to the axis, the depth does not define the point
                t = given_in[env, mount, pixel] / direction[0]
        elif wp.length_sq(direction) > 0.0:
            t = given_in[env, mount, pixel] / wp.length(direction)
        misses = wp.isinf(t)
        if given != wp.static(HITS) and given_in[env, mount, pixel] != hole:
            misses = misses or t < limits[0] or t > limits[1] or t * wp.length(direction) < limits[2]
        z = float(wp.inf)
        r = float(wp.inf)
        point = wp.vec3(wp.inf, wp.inf, wp.inf)
        if not misses:
            z = t * direction[0]
            r = t * wp.length(direction)
            at = start + t * direction
            point = wp.vec3(-at[1], -at[2], at[0])
        if is_last != 0:
            if misses or r > farthest:
                r = beyond
            if misses or z > farthest:
                z = beyond
                if point_beyond == wp.inf:
                    point = wp.vec3(wp.inf, wp.inf, wp.inf)
                elif point_beyond >= 0.0:
                    axis = direction / direction[0]
                    point = point_beyond * wp.vec3(-axis[1], -axis[2], 1.0)
        if ranges.shape[0] > 0:
            ranges[env, mount, pixel] = r
        if depths.shape[0] > 0:
            depths[env, mount, pixel] = z
        if points.shape[0] > 0:
            points[env, mount, pixel] = point


class Distances(Annotator):
    """`distance_to_camera`, `distance_to_image_plane` and `points_b`."""

    types = (*DISTANCES, "points_b")

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the distances and points of a frame (one launch)."""
        self._measure(record, HITS, hits, is_last=is_last)

    def derive(self, record: Record, altered: Collection[str]) -> None:
        """Compute the other distance and the points from the measured distance, and clip (one launch)."""
        given = DEPTH if DISTANCES[0] in record else RANGE
        self._measure(record, given, self.camera.cast.record, is_last=True)

    def _measure(self, record: Record, given: int, hits: Any, *, is_last: bool) -> None:
        camera, cfg = self.camera, self.camera.cfg
        depths, ranges = (self.image(record, name) for name in DISTANCES)
        source = {HITS: self.image(Record((), 0, camera.device), ""), DEPTH: depths, RANGE: ranges}[given]
        clipping = [*cfg.clipping, cfg.point_beyond, wp.vec3(*cfg.measured_range), cfg.hole]
        inputs = [given, int(is_last), *clipping, camera.cast.lens, hits, source]
        outputs = [ranges, depths, self.image(record, "points_b", wp.vec3)]
        camera.compute_on.launch(_measure, (camera.mount.count, camera.image_shape[0]), inputs, outputs, split="row")
