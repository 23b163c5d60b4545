"""The scene: an engine, its sensors, their schedule and their outputs."""

from sensorium.scene.scene import Scene

__all__ = ["Scene"]
