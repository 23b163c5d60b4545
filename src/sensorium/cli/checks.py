"""Checks of arguments that need neither torch nor Warp nor a simulator, and so run first."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from sensorium.engines.model_file import SUFFIXES, model_file
from sensorium.errors import UsageError, listed
from sensorium.jobs.rig import tables_of

DEVICES = re.compile(r"(?:cpu|cuda)(?::(0|[1-9]\d*))?")
EVERY_INTERFACE = "*"
LONGEST_PATH = 107
"""Largest size of a socket path, bytes (`sun_path` of Linux, without the final zero)."""


def check_envs(envs: int, first_env: int = 0) -> None:
    """Raise `UsageError` for a number of environments, or a global index of the first one, that is out of range."""
    if not 1 <= envs < 2**31:
        expected = f"a whole number >= 1 and at most {2**31 - 1}"
        raise UsageError.of("--envs", envs, expected, "Use --envs 1 for a single environment.")
    if not 0 <= first_env <= 2**31 - envs:
        fix = "Use for example --first-env 64 for the second slice of 64 environments."
        raise UsageError.of("--first-env", first_env, f"a whole number from 0 to {2**31 - envs}", fix)


def check_files(model: str | Path | None, rig: Path | None) -> None:
    """Reject a model file or a rig file that is missing or of the wrong kind.

    Args:
        model: the model file; None for none.
        rig: the rig file; None for none.

    Raises:
        UsageError: the two files are swapped.
        ModelError: a file is missing, or is not a model or a rig.
    """
    if model is not None and rig is not None and Path(model).suffix == ".toml" and rig.suffix.lower() in SUFFIXES:
        fix = f"Swap them: {rig} --rig {model}"
        raise UsageError.of("MODEL, --rig", f"{model}, {rig}", "the model first, then the rig", fix)
    if rig is not None:
        tables_of(rig)
    if model is not None:
        model_file(model)


def recorded_env(env: int | None, envs: Sequence[int]) -> int:
    """Return the environment of a recording to read; the first one for None.

    Raises:
        UsageError: the environment was not recorded.
    """
    if env is None and envs:
        return envs[0]
    if env is None or env not in envs:
        raise UsageError.of("--env", env, f"a recorded environment: {listed(map(str, envs), 8)}")
    return env


def check_device_name(device: str) -> None:
    """Raise `UsageError` if a text does not name a device; does not check whether the device is present."""
    if not DEVICES.fullmatch(device):
        fix = "Use --device cpu on a machine without a GPU."
        raise UsageError.of("--device", device, "cpu, cuda or cuda:INDEX", fix)


def check_addresses(addresses: Iterable[str]) -> None:
    """Reject addresses at which the server cannot listen. No client can connect during the check.

    Args:
        addresses: ``tcp://`` and ``ipc://`` addresses.

    Raises:
        UsageError: an address is unavailable; the message gives the address and the reason.
    """
    seen: set[str] = set()
    for address in addresses:
        scheme, _, rest = address.partition("://")
        host, _, port = rest.rpartition(":")
        takes_any = scheme == "tcp" and port in ("0", "*")
        if address in seen and not takes_any:
            raise UsageError.of("--address", address, "each address once", "Remove the second one.")
        seen.add(address)
        if scheme == "ipc":
            _check_path(address, rest)
            continue
        number = _number(address, host)
        if number and (why := _why_not(number, 0 if takes_any else int(port))):
            raise _cannot(address, why, "Give another address; port 0 selects a free port.")


def _cannot(address: str, why: str, fix: str) -> UsageError:
    return UsageError(f"--address: cannot listen at {address!r}: {why}. {fix}")


def _number(address: str, host: str) -> str:
    """Return the IPv4 address of a host name; empty if only binding can determine it."""
    if host == EVERY_INTERFACE:
        return "0.0.0.0"
    if ":" in host or host in [name for _, name in socket.if_nameindex()]:
        return ""
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise _cannot(
            address, f"there is no host {host!r}", "Give an address of this machine, such as 127.0.0.1."
        ) from None


def _why_not(number: str, port: int) -> str:
    """Return why a port is unavailable, as text; empty if it is available."""
    with socket.socket() as probe:  # bound, but not listening, so no client can connect
        if os.name == "posix":  # as libzmq does, so that a recently closed socket does not block the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((number, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return "this machine does not have that address"
            return error.strerror or str(error)
    return ""


def _check_path(address: str, path: str) -> None:
    """Reject the path of a socket that cannot be created there."""
    other = "Give another path."
    if path.startswith("@"):  # the abstract namespace needs no file
        return
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise _cannot(address, f"its path is longer than {LONGEST_PATH} bytes", "Give a shorter path.")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _cannot(address, f"there is no folder {folder!r}", "Create it, or give another path.")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise _cannot(address, "the path exists and is not a socket", other)
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(path)
            raise _cannot(address, "Address already in use by another server", other)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot(address, f"the folder {folder!r} is not writable", other)
