"""A measurement stage: the bias of a device that warms up."""

from warm_up.stage import WarmUp

__all__ = ["WarmUp"]
