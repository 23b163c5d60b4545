"""Requests to the server and their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from sensorium import errors
from sensorium.client.callbacks import LOGGER
from sensorium.errors import StreamError
from sensorium.wire import messages as msg

PUMP_S = 0.01
"""Longest wait of a server loop on the calling thread while a request is pending, s."""

_GONE = msg.Reply(-1, None, "the request was cancelled", "StreamError")


class ServerError(StreamError):
    """Error for a request that the server could not fulfil, with the message of the server.

    Args:
        text: message of the server.
        kind: class name of the exception on the server.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Requests:
    """Requests that wait for their answers; all methods except `answer` require the lock of `changed`.

    Args:
        address: address of the server, for messages.
        changed: condition notified when an answer arrives.
        is_over: function that returns whether no further answer can arrive.
        pump: runs the server loop for some seconds if the loop belongs to the calling thread; otherwise returns False.
    """

    def __init__(
        self, address: str, changed: threading.Condition, is_over: Callable[[], bool], pump: Callable[[float], bool]
    ) -> None:
        self._address, self._changed, self._is_over, self._pump = address, changed, is_over, pump
        self._answers: dict[int, msg.Reply | None] = {}
        self._worked: dict[int, float] = {}
        """Time of the last progress report of the server, for pending requests that need it."""
        self._reported: set[int] = set()
        """Requests whose users were already notified of the work of the server."""

    def __len__(self) -> int:
        return len(self._answers)

    def begin(self, number: int) -> None:
        """Record that a request is about to be sent."""
        self._answers[number] = None

    def forget(self, number: int) -> None:
        """Record that the request was not sent."""
        self._answers.pop(number, None)

    def take(self, reply: msg.Reply) -> bool:
        """Store an answer; return whether a request waits for it."""
        waits = reply.request in self._answers
        if waits:
            self._answers[reply.request] = reply
            self._changed.notify_all()
        return waits

    def extend(self, numbers: Iterable[int], text: str) -> None:
        """Record that the server is at work, so that the requests that depend on the work time out later.

        Args:
            numbers: numbers of the requests.
            text: description of the work, logged once per request; may be empty.
        """
        for number in numbers:
            if number not in self._answers:
                continue
            self._worked[number] = time.monotonic()
            if text and number not in self._reported:
                self._reported.add(number)
                LOGGER.warning("waiting for the server at %s: %s", self._address, text)

    def fail(self, reason: str) -> None:
        """Answer all pending requests with an error."""
        for number, answer in self._answers.items():
            if answer is None:
                self._answers[number] = msg.Reply(number, None, reason, "StreamError")
        self._changed.notify_all()

    def answer(self, number: int, what: str, timeout: float) -> msg.Reply:
        """Wait for the answer to a request and return it.

        Args:
            number: number of the request.
            what: name of the request, for messages.
            timeout: longest wait, s, from the request or from the last progress report of the server.

        Raises:
            StreamError: no answer arrived, or the connection broke.
            ServerError: the server refused; the message contains its reason.
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
            self._reported.discard(number)
        if answer is None:
            raise StreamError(
                f"{what}: the server at {self._address} did not answer within {timeout:g} s. Check that its loop runs "
                "and calls server.poll() between steps."
            )
        if answer.error:
            cls = getattr(errors, answer.kind, None)
            if isinstance(cls, type) and issubclass(cls, StreamError):
                raise cls(answer.error)
            raise ServerError(answer.error, answer.kind)
        return answer

    def _end(self, number: int, end: float, timeout: float) -> float:
        """Return the time at which a request times out."""
        return max(end, self._worked.get(number, end - timeout) + timeout)


__all__ = ["Requests", "ServerError"]
