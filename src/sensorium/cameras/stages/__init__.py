"""Stages of cameras: errors of depth and of image sensors, each with config and behaviour in one class."""
