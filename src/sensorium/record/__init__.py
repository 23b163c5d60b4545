"""Recorders: readings to files, and back."""

from sensorium.record.npz import NpzRecorder, Recording, SensorRecording, load

__all__ = ["NpzRecorder", "Recording", "SensorRecording", "load"]
