"""Slow references for comparison with fast code: `reference_cast` for rays, `reference_distance` for distances."""

from reference.ray_scenes import random_poses, random_rays, random_shapes
from reference.rays import CastComparison, ReferenceHits, compare_casts, reference_cast
from reference.surfaces import ReferenceDistance, reference_distance

__all__ = [
    "CastComparison", "ReferenceDistance", "ReferenceHits", "compare_casts", "random_poses", "random_rays",
    "random_shapes", "reference_cast", "reference_distance",
]  # fmt: skip
