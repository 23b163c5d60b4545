"""Poses and velocities of bodies and frames."""
