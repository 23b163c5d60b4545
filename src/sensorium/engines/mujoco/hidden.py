"""Elements that were added to a model for sensors carry a prefix and are hidden from name selection."""

HIDDEN_PREFIX = "sensorium/"
"""Elements whose name starts like this were added for sensors; `Engine.names` leaves them out."""


def hidden(name: str) -> bool:
    """Return whether an element was added for sensors and is left out of name selection."""
    return name.startswith(HIDDEN_PREFIX) or f"/{HIDDEN_PREFIX}" in name
