"""Sensors that cast rays: ray caster, lidar, radar, terrain height."""
