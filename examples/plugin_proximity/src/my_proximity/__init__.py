"""A proximity sensor. Its class is imported when a scene first needs it."""

from my_proximity.options import MyProximityCfg, MyProximityData

__all__ = ["MyProximityCfg", "MyProximityData"]
