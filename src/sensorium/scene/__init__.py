"""The scene: one engine, its sensors, their schedule, and what outputs get of them."""

from sensorium.scene.needs import prepare
from sensorium.scene.observer import Observer
from sensorium.scene.scene import Scene

__all__ = ["Observer", "Scene", "prepare"]
