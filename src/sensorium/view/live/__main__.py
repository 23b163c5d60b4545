"""The process of a page; `LiveView` starts it with the number of the pipe to the loop."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from multiprocessing.connection import Connection

from sensorium.errors import SensoriumError
from sensorium.view.live.page import Page


def main() -> None:
    """Serve the page until the loop closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the loop, and thereby the page
    for name in ("cv2", "pillow_heif"):  # viser and imageio search for them at each image
        if find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]
    channel: Connection = Connection(int(sys.argv[1]))
    try:
        page = Page(channel, **channel.recv())
    except (SensoriumError, OSError) as error:
        channel.send((type(error).__name__, str(error)))
        return
    channel.send(("url", page.url))
    page.run()


if __name__ == "__main__":
    main()
