"""Cameras: images from cast rays."""
