"""Adapters, one per simulator, and what engines are given: shapes, lights, contacts and requirements of sensors.

Only an adapter imports its simulator. This module imports none of them.
"""

from sensorium.lazy import public_names

__all__, __getattr__, __dir__ = public_names(__name__, f"{__file__}i")
