"""Processes that start within milliseconds: a nursery that has imported everything forks them.

A child executes requests from a local socket, one line of JSON in each direction, and ends when the connection ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 120.0
"""Time-out of a waiting test, s."""
LIBRARIES = ("torch", "warp", "mujoco", "pydantic", "tyro", "zmq", "msgspec")
"""What a bare child has imported; none of these starts a device or a thread when it is imported."""
COMMAND = "import sys; from sensorium.cli import main; sys.exit(main())"
"""Program: the command line."""
OWN_TESTS = """
import sys
import pytest
sys.dont_write_bytecode = True
sys.exit(pytest.main(["-q", "-W", "error", "-p", "no:cacheprovider"]))
"""
"""Program: the tests of a package in its folder, as its author runs them before it is installed."""


def until(condition: Callable[[], object], what: str = "what was waited for", timeout: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {timeout:g} s")
        pause.wait(0.002)


class Child:
    """A child process of the nursery."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.settimeout(PATIENCE)
        self._lines = channel.makefile("rb")
        self.about: dict[str, Any] = self._line()

    def _line(self) -> dict[str, Any]:
        text = self._lines.readline()
        if not text:
            raise EOFError("the child has ended")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer

    @property
    def pid(self) -> int:
        return int(self.about["pid"])

    @property
    def address(self) -> str:
        return str(self.about["address"])

    def tell(self, op: str, **options: Any) -> None:
        """Send a request without waiting for the answer; `answer` returns it."""
        self._channel.sendall(json.dumps({"op": op, **options}).encode() + b"\n")

    def answer(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """Return the answer."""
        self._channel.settimeout(timeout)
        return self._line()

    def ask(self, op: str, **options: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        self.tell(op, **options)
        return self._line()

    def wait(self) -> None:
        """Wait until the process has ended."""
        with contextlib.suppress(ConnectionResetError):
            while self._lines.readline():
                pass
        until(lambda: not Path(f"/proc/{self.pid}").exists(), "the end of a process")
        self._lines.close()
        self._channel.close()

    def kill(self) -> None:
        """Kill the process at once, as `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Stop the process in an orderly way."""
        self._channel.shutdown(socket.SHUT_WR)
        self.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._channel._closed:  # type: ignore[attr-defined]
            self.stop()


class Program:
    """A program in a forked process; its errors and output are in files."""

    def __init__(self, child: Child, out: Path, err: Path) -> None:
        self._child = child
        self._out, self._err = out, err
        self.code: int | None = None
        """Exit code, once `wait` has returned it."""

    @property
    def out(self) -> str:
        """Output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Error output so far."""
        return self._err.read_text()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return Path(f"/proc/{self._child.pid}").exists()

    def send(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self._child.pid, number)

    def kill(self) -> None:
        """Kill the process at once, as `kill -9` does."""
        self.send(signal.SIGKILL)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end and return its exit code."""
        if self.code is None:
            self.code = int(self._child.answer(timeout)["code"])
            self._child.stop()
        return self.code


class Nursery:
    """A process that starts other processes.

    Args:
        folder: folder for its socket.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "nursery"
        self._programs = 0
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self._path))
        self._server.listen(64)
        self._server.settimeout(10.0 * PATIENCE)
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        environment["MUJOCO_GL"] = "disable"  # otherwise the import of mujoco opens a display, which no child may share
        code = "import nursery; nursery.nurse()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(self._path)], stdin=subprocess.PIPE, env=environment
        )

    def start(self, what: str, *, bare: bool = False, **options: Any) -> Child:
        """Start a child, ``"server"`` or ``"client"``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "bare": bare, **options}).encode() + b"\n")
        self._process.stdin.flush()
        channel, _ = self._server.accept()
        return Child(channel)

    def program(
        self, code: str, *arguments: str, bare: bool = False, folder: Path | str = ".", err: str = "", **env: str
    ) -> Program:
        """Start a program, which ends as `python -c` does: with exit functions and the end of the interpreter.

        Args:
            code: source.
            arguments: its arguments.
            bare: whether it has imported only `LIBRARIES`, as a new interpreter would have to, and nothing of ours.
            folder: its working folder.
            err: device for errors, such as a terminal; the default is a file.
            env: additional environment variables.
        """
        self._programs += 1
        files = [Path(f"{self._path}-{self._programs}.{ending}") for ending in ("out", "err")]
        for file in files:  # before the program opens them, because the test may read them earlier
            file.touch()
        names = [os.devnull, str(files[0]), err or str(files[1])]
        child = self.start(
            "program",
            bare=bare,
            code=code,
            arguments=arguments,
            files=names,
            folder=str(Path(folder).resolve()),
            env=env,
        )
        return Program(child, *files)

    def close(self) -> None:
        """Stop the nursery."""
        assert self._process.stdin is not None
        self._server.close()
        self._process.stdin.close()
        self._process.wait(PATIENCE)


def nurse() -> None:
    """Run the nursery: a process with the libraries, and its child with our package as well."""
    for name in LIBRARIES:
        import_module(name)
    import_module("headers").share()
    reading, writing = os.pipe()
    is_bare = os.fork() != 0
    os.close(reading if is_bare else writing)
    if not is_bare:
        import_module("streaming").prepare()
    gc.collect()
    gc.freeze()  # otherwise the end of each child's interpreter visits and copies all inherited objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    lines = sys.stdin.buffer if is_bare else os.fdopen(reading, "rb")
    for line in lines:
        command = json.loads(line)
        if is_bare and not command["bare"]:
            os.write(writing, line)
        elif not os.fork():
            if is_bare:
                os.close(writing)
            else:
                lines.close()
            return _be_child(**command)
    os._exit(0)


def _be_child(what: str, bare: bool, **options: Any) -> None:
    """Be a program or have another role, in a new process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(sys.argv[1])
    if what == "program":
        return _be_program(channel, **options)
    try:
        import_module("streaming").ROLES[what](Asked(channel), **options)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        os._exit(1)
    os._exit(0)


def _be_program(
    channel: socket.socket, code: str, arguments: Sequence[str], files: Sequence[str], folder: str, env: dict[str, str]
) -> None:
    """Run a program in this process, while another one waits for its exit code."""
    waits = os.fork()
    if waits:
        channel.sendall(b'{"pid": %d}\n' % waits)
        channel.sendall(b'{"code": %d}\n' % os.waitstatus_to_exitcode(os.waitpid(waits, 0)[1]))
        channel.recv(1)
        os._exit(0)
    channel.close()
    for number, name in enumerate(files):
        os.dup2(os.open(name, os.O_RDWR if number else os.O_RDONLY), number)
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    exec(code, vars(sys.modules["__main__"]))  # whose objects live until the interpreter ends


class Asked:
    """The requests to a child, on the child's side."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.ended = False
        self.wake: Callable[[], object] = lambda: None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(ConnectionError), self._channel.makefile("rb") as lines:
            for line in lines:
                self._lines.put(json.loads(line))
                self.wake()
        self._lines.put(None)
        self.wake()

    def say(self, **values: Any) -> None:
        self._channel.sendall(json.dumps(values).encode() + b"\n")

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the next request; None where there is none, or after the end of the connection."""
        try:
            command = self._lines.get(timeout=timeout) if timeout != 0.0 else self._lines.get_nowait()
        except queue.Empty:
            return None
        self.ended |= command is None
        return command


__all__ = ["COMMAND", "OWN_TESTS", "PATIENCE", "Asked", "Child", "Nursery", "Program", "nurse", "until"]
