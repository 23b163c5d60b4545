"""Options of a server."""

from __future__ import annotations

from typing import Annotated

from sensorium.cfg import Cfg, Positive, must

_Count = Annotated[int, must(lambda number: number >= 1, "a whole number >= 1")]
_Megabytes = Annotated[float, must(lambda size: 1.0 <= size < float("inf"), "a finite number of MB >= 1")]


class ServerOptions(Cfg):
    """Options of a server: how readings are sent, and how much clients may use.

    Raises:
        ConfigError: a value is out of its range.
    """

    patience: Positive = 5.0
    """Longest time that a step waits for a slow client, s; then its subscription is ended, with its name."""
    on_demand: bool = True
    """Whether cameras and lidars are computed only while they are listened to, read or recorded, where their config
    leaves ``evaluate="auto"``."""
    shared_memory: bool = True
    """Whether clients on this machine read large data from shared memory."""
    lease: Positive = 5.0
    """Seconds of silence after which a client counts as gone, with the sensors it spawned."""
    max_clients: _Count = 64
    """Most clients at a time."""
    max_message: _Count = 16 * 2**20
    """Most bytes of one message from a client; a client that sends more is disconnected."""
    max_queued_mb: _Megabytes = 1024.0
    """Most memory of the messages that wait for clients or are on their way to them, all clients together, MB. Where
    they need more, the subscriptions with most of it give way."""
    max_spawned_mb: _Megabytes = 1024.0
    """Most memory of all sensors that clients have spawned together, MB."""
    max_spawned_rays: Annotated[int, must(lambda number: number >= 0, "a whole number >= 0")] = 5_000_000
    """Most rays that these sensors cast for one sample each, in all environments together."""


__all__ = ["ServerOptions"]
