"""A client in the simulation's own process: the same API, with data passed by reference."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sensorium.client.client import Client, LocalServer
from sensorium.stream.server import Server

if TYPE_CHECKING:
    from sensorium.scene import Scene


def local_client(scene: Scene, *, server: Server | None = None, lockstep: bool = True, **options: Any) -> Client:
    """Return a client of a scene in this process. Listeners receive the server's memory itself, without a socket.

    Requests from this thread (`step`, `spawn`, ...) are carried out at once, unless another thread runs the server's
    loop. Requests from other threads are carried out when the server is polled: by ``client.server.poll()`` or by any
    request from this thread.

    A client that is garbage-collected is closed, see `sensorium.connect`. The server that was created for it stops with
    it, and the scene removes that server's additions at its next step.

    Args:
        scene: the scene; its owner can continue to step it.
        server: an existing server of this scene; None creates one for this client alone.
        lockstep: for a created server: whether clients may step, and whether steps wait for lossless listeners.
        options: see `sensorium.Client`.

    Raises:
        MissingDependencyError: pyzmq or msgspec is not installed.
    """
    serving = Server(scene, lockstep=lockstep) if server is None else server
    maker = threading.current_thread()

    def pump(seconds: float) -> bool:
        owner = serving.owner
        if threading.current_thread() is not maker or (owner not in (None, maker) and owner.is_alive()):
            return False
        serving.poll(seconds)
        return True

    try:
        client = Client(
            serving.local_address,
            name=options.pop("name", "local"),
            token=serving.token,
            shared_memory=options.pop("shared_memory", False),  # the socket passes the memory itself
            local=LocalServer(serving, pump, serving.close if server is None else None),
            **options,
        )
    except BaseException:
        if server is None:
            serving.close()
        raise
    serving.local_clients.add(client)
    return client
