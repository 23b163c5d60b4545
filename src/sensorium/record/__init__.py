"""Recorders: writing readings to files, and reading them back."""

from sensorium.record.npz import NpzRecorder, Recording, SensorRecording, load

__all__ = ["NpzRecorder", "Recording", "SensorRecording", "load"]
