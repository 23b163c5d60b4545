"""Sensors of a body's own motion and of the field around it: IMU, magnetometer, barometer, GNSS."""
