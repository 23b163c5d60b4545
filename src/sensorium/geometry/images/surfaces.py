"""Surfaces of hits, for annotators."""

from __future__ import annotations

import warp as wp

from sensorium.geometry.ray_structs import Instances


@wp.func
def triangle_of(instances: Instances, row: int, face: int) -> wp.int32:
    """Return the triangle of a mesh that has a face id; ids rise with the triangles."""
    start = instances.face_start[row]
    low = int(0)
    high = wp.min(face, wp.mesh_get(instances.mesh[row]).indices.shape[0] / 3 - 1)
    while low < high:
        middle = (low + high + 1) / 2
        if instances.face_id[start + middle] > face:
            high = middle - 1
        else:
            low = middle
    return low
