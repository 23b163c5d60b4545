"""Bridges: the readings of a running simulation as messages for other systems, ROS 2 and Foxglove."""
