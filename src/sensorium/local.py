"""A client in the simulation's own process: the same API, data by reference."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sensorium.client.client import Client, LocalServer
from sensorium.stream.server import Server

if TYPE_CHECKING:
    from sensorium.scene import Scene


def local_client(scene: Scene, *, server: Server | None = None, lockstep: bool = True, **options: Any) -> Client:
    """Return a client of a scene in this process. Listeners get the server's memory itself, without a socket.

    What is asked of it on this thread (`step`, `spawn`, ...) is done at once, unless another thread runs the server's
    loop. What other threads ask for is done when the server is polled: ``client.server.poll()``, or by anything that
    this thread asks for.

    One that nobody holds any more is closed, see `sensorium.connect`; the server that was made for it ends with it, and
    the scene loses what it brought at its next step.

    Args:
        scene: the scene; its owner may go on stepping it.
        server: the server of this scene, where there is one; None makes one for this client alone.
        lockstep: for that one: whether clients may step, and steps wait for listeners that must lose nothing.
        options: see `sensorium.Client`.

    Raises:
        MissingDependencyError: pyzmq or msgspec is not installed.
    """
    own = Server(scene, lockstep=lockstep) if server is None else None
    serving = own if own is not None else server
    assert serving is not None
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
            shared_memory=options.pop("shared_memory", False),  # the socket hands over the memory itself
            local=LocalServer(serving.context, pump, own.close if own is not None else None),
            **options,
        )
    except BaseException:
        if own is not None:
            own.close()
        raise
    client.server = serving
    serving.local_clients.add(client)
    return client


__all__ = ["local_client"]
