"""MJX: an engine over the data of a loop in JAX, which its owner steps and resets."""
