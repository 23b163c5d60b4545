"""Viewers: recorded readings as pictures."""

from sensorium.view.plot import imu_figure, plot_recording, plottable

__all__ = ["imu_figure", "plot_recording", "plottable"]
