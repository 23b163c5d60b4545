"""Addresses of servers."""

from __future__ import annotations

import re

from sensorium.errors import ConfigError


def split(call: str, address: object, low: int = 0) -> tuple[str, str]:
    """Return scheme and host (or path) of an address.

    Args:
        call: name of the call, for the message.
        address: the address.
        low: smallest accepted port; 0 also accepts ``*``.

    Raises:
        ConfigError: the address is invalid.
    """
    text = address if isinstance(address, str) and address.isprintable() else ""
    found = re.fullmatch(r"(ipc|inproc)://(.+)|tcp://(.+):([0-9]{1,5}|\*)", text)
    port = low if found is None or found[4] in (None, "*") else int(found[4])
    if found is None or not low <= port <= 65535 or (found[4] == "*" and low):
        expected = f"'tcp://HOST:PORT' with a port of {low} to 65535, or 'ipc:///path/of/a/socket'"
        fix = "For example 'tcp://127.0.0.1:7447'." + (" Port 0 selects a free port." if low == 0 else "")
        raise ConfigError.single(call, "address", address, expected, fix)
    return (found[1], found[2]) if found[1] else ("tcp", found[3].strip("[]"))
