"""Newton: an engine that steps the worlds of a Newton model, and one over a live loop of its owner."""
