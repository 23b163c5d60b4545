"""Quaternions, poses and points of cameras as torch tensors, for observations, rewards and custom sensors.

Quaternions are unit quaternions (w, x, y, z) `[..., 4]`, vectors are `[..., 3]`.
"""

from sensorium.lazy import public_names

__all__, __getattr__, __dir__ = public_names(__name__, f"{__file__}i")
