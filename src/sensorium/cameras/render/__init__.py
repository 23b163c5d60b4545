"""Visibility of shapes in images: the nearest surface of every pixel."""
