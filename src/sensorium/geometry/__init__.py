"""Pure geometry in Warp: no engine, no sensor."""
