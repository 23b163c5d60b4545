"""Viewers: recorded readings as pictures."""

from sensorium.view.fields import plot_fields
from sensorium.view.images import save_frames
from sensorium.view.plot import imu_figure, plot_recording, plottable
from sensorium.view.report import report_of, write_report

__all__ = ["imu_figure", "plot_fields", "plot_recording", "plottable", "report_of", "save_frames", "write_report"]
