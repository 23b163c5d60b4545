"""Viewers: recorded readings as pictures."""

from sensorium.view.images import save_frames
from sensorium.view.plot import imu_figure, plot_recording, plottable

__all__ = ["imu_figure", "plot_recording", "plottable", "save_frames"]
