"""The scene: an engine, its sensors, their schedule and their outputs."""

from sensorium.scene.needs import prepare
from sensorium.scene.observer import Observer, ObserverGroups, ObsTerm
from sensorium.scene.scene import Scene

__all__ = ["ObsTerm", "Observer", "ObserverGroups", "Scene", "prepare"]
