"""Recorders: writing readings to files, and reading them back."""

from sensorium.record.npz import NpzRecorder, Recording, SensorRecording, load
from sensorium.record.recorder import Recorder
from sensorium.record.replay import Mark, Replay, open, replay

__all__ = ["Mark", "NpzRecorder", "Recorder", "Recording", "Replay", "SensorRecording", "load", "open", "replay"]
