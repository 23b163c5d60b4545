"""Sensors at joints: state, torque, wrench, force/torque, motor current."""
