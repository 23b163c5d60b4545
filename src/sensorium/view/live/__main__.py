"""The process of a page; `LiveView` starts it, with the arguments as a line of JSON on stdin."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from sensorium.client.client import Client
from sensorium.errors import SensoriumError
from sensorium.view.live.page import Page


def main() -> None:
    """Serve the page until stdin ends, which is when the loop's process closes it or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the loop, and thereby the page
    given = json.loads(sys.stdin.readline())
    # the loop closes the server first, which is the normal end and no reason for a warning
    logging.getLogger("sensorium.client").addFilter(lambda record: "ended the connection" not in record.msg)
    is_over = threading.Event()
    try:
        with Client(**given["client"]) as client:
            page = Page(client, **given["page"])
            _report("url", page.url)
            threading.Thread(target=_wait_for_end, args=[is_over.set], daemon=True).start()
            page.run(is_over.is_set)
    except (SensoriumError, OSError) as error:
        _report(type(error).__name__, str(error))


def _wait_for_end(then: Callable[[], object]) -> None:
    sys.stdin.read()
    then()


def _report(*values: Any) -> None:
    """Write a line for `LiveView`."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
