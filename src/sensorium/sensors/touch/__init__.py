"""Tactile sensors: touch pads, taxels, probes, skins."""
