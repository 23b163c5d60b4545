"""The sensors, one file per sensor, grouped in families."""
