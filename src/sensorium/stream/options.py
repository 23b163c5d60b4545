"""Options of a server."""

from __future__ import annotations

from typing import Annotated

from sensorium.cfg import Cfg, Positive, must

_Count = Annotated[int, must(lambda number: number >= 1, "a whole number >= 1")]
_Megabytes = Annotated[float, must(lambda size: 1.0 <= size < float("inf"), "a finite number of MB >= 1")]


class ServerOptions(Cfg):
    """Options of a server: sending of readings, and limits for clients.

    Raises:
        ConfigError: a value is out of its range.
    """

    patience: Positive = 5.0
    """Maximum time that a step waits for a slow client, s. After this time, the subscription ends and the client is
    named."""
    on_demand: bool = True
    """Whether cameras and lidars with ``evaluate="auto"`` are computed only while they are listened to, read or
    recorded."""
    shared_memory: bool = True
    """Whether clients on this machine read large data from shared memory."""
    lease: Positive = 5.0
    """Time without messages after which a client counts as disconnected, s; its spawned sensors are then removed."""
    max_clients: _Count = 64
    """Maximum number of connected clients."""
    max_message: _Count = 16 * 2**20
    """Largest message from a client, bytes; a client that sends a larger one is disconnected."""
    max_queued_mb: _Megabytes = 1024.0
    """Maximum total memory of the messages that are queued for clients or in transit to them, MB. Each client has an
    equal share; beyond it, its subscriptions lose messages or are ended."""
    max_spawned_mb: _Megabytes = 1024.0
    """Maximum total memory of all sensors spawned by clients, MB."""
    max_spawned_rays: Annotated[int, must(lambda number: number >= 0, "a whole number >= 0")] = 5_000_000
    """Maximum total number of rays of these sensors, for one sample of each in all environments."""
