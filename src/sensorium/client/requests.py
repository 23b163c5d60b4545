"""What was asked of the server, and its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sensorium import errors
from sensorium.errors import StreamError
from sensorium.wire import messages as say

_GONE = say.Reply(-1, None, "the request was forgotten", "StreamError")


class ServerError(StreamError):
    """The server could not do what was asked; the message is its own.

    Args:
        text: the server's message.
        kind: name of the exception's class there.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Requests:
    """Requests that wait for their answers; all but `answer` under the lock of `changed`.

    Args:
        address: of the server, for messages.
        changed: notified when an answer has come.
        is_over: whether no answer will come any more.
        pump: where the server's loop is on this very thread: lets it work for some seconds; else returns False.
    """

    def __init__(
        self, address: str, changed: threading.Condition, is_over: Callable[[], bool], pump: Callable[[float], bool]
    ) -> None:
        self._address, self._changed, self._is_over, self._pump = address, changed, is_over, pump
        self._answers: dict[int, say.Reply | None] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def begin(self, number: int) -> None:
        """Note that a request goes out."""
        self._answers[number] = None

    def forget(self, number: int) -> None:
        """Note that it did not."""
        self._answers.pop(number, None)

    def take(self, reply: say.Reply) -> bool:
        """Take an answer; return whether somebody waits for it."""
        waits = reply.request in self._answers
        if waits:
            self._answers[reply.request] = reply
            self._changed.notify_all()
        return waits

    def fail(self, reason: str) -> None:
        """Answer all that have no answer yet with an error."""
        for number, answer in self._answers.items():
            if answer is None:
                self._answers[number] = say.Reply(number, None, reason, "StreamError")
        self._changed.notify_all()

    def answer(self, number: int, what: str, timeout: float) -> say.Reply:
        """Wait for the answer to a request and return it.

        Args:
            number: of the request.
            what: what it asks for, for messages.
            timeout: longest wait, s.

        Raises:
            StreamError: none came, or the connection broke.
            ServerError: the server refused; with its words.
        """
        end = time.monotonic() + timeout

        def is_answered() -> bool:
            return self._answers.get(number, _GONE) is not None or self._is_over()

        while not is_answered() and time.monotonic() < end and self._pump(0.01):
            pass  # on the thread of a loop in this process: the server does it here
        with self._changed:
            self._changed.wait_for(is_answered, max(0.0, end - time.monotonic()))
            answer = self._answers.pop(number, _GONE)
        if answer is None:
            raise StreamError(
                f"{what}: the server at {self._address} did not answer within {timeout:g} s. It answers between two "
                "steps: does its loop run, and call server.poll()?"
            )
        if answer.error:
            cls = getattr(errors, answer.kind, None)
            if isinstance(cls, type) and issubclass(cls, StreamError):
                raise cls(answer.error)
            raise ServerError(answer.error, answer.kind)
        return answer


__all__ = ["Requests", "ServerError"]
