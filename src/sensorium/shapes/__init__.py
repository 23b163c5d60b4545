"""The shapes of a scene: labels, selection, and views of them for rays, probes and solids."""
