"""Sensors of body motion and of the surrounding fields: IMU, magnetometer, barometer, GNSS."""
