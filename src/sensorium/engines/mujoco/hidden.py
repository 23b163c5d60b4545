"""Elements added to a model for sensors, which carry a prefix and are hidden from name selection."""

HIDDEN_PREFIX = "sensorium/"
"""Prefix of elements added for sensors; `Engine.names` omits them."""


def hidden(name: str) -> bool:
    """Whether an element was added for sensors and is omitted from name selection."""
    return name.startswith(HIDDEN_PREFIX) or f"/{HIDDEN_PREFIX}" in name
