"""Lenses of cameras."""

from sensorium.lazy import public_names

__all__, __getattr__, __dir__ = public_names(__name__, f"{__file__}i")
