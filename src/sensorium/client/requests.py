"""What was asked of the server, and its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from sensorium import errors
from sensorium.client.callbacks import LOGGER
from sensorium.errors import StreamError
from sensorium.wire import messages as say

PUMP_S = 0.01
"""Longest wait of a loop on this thread for a request, s."""

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
        self._worked: dict[int, float] = {}
        """When the server last said that it is at work, for requests that wait for that."""
        self._told: set[int] = set()
        """Requests whose users know what the server does meanwhile."""

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

    def extend(self, numbers: Iterable[int], text: str) -> None:
        """Note that the server is at work, so that requests which wait for it time out later.

        Args:
            numbers: the requests.
            text: what the server does, which is logged once for each; may be empty.
        """
        for number in numbers:
            if number not in self._answers:
                continue
            self._worked[number] = time.monotonic()
            if text and number not in self._told:
                self._told.add(number)
                LOGGER.warning("the server at %s is at work: %s; waiting for its answer", self._address, text)

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
            timeout: longest wait, s, from when it was asked, or from when the server last said that it is at work.

        Raises:
            StreamError: none came, or the connection broke.
            ServerError: the server refused; with its words.
        """
        end = time.monotonic() + timeout

        def is_answered() -> bool:
            return self._answers.get(number, _GONE) is not None or self._is_over()

        while not is_answered() and (before := time.monotonic()) < end and self._pump(PUMP_S):
            end += max(time.monotonic() - before - PUMP_S, 0.0)  # the loop is on this thread: the server worked here
        with self._changed:
            while not is_answered() and (left := self._end(number, end, timeout) - time.monotonic()) > 0.0:
                self._changed.wait(left)
            answer = self._answers.pop(number, _GONE)
            self._worked.pop(number, None)
            self._told.discard(number)
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

    def _end(self, number: int, end: float, timeout: float) -> float:
        """Return when a request times out."""
        return max(end, self._worked.get(number, end - timeout) + timeout)


__all__ = ["Requests", "ServerError"]
