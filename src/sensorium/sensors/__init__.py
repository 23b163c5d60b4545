"""The sensors, one file each, in families."""
