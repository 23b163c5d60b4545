"""Exclusive use of a scene by one thread, and detection of interrupted changes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, NoReturn, TypeVar, cast

from sensorium.compute.graph import launching
from sensorium.errors import ScheduleError

Function = TypeVar("Function", bound=Callable[..., Any])


class SceneGuard:
    """Guard of a scene: one thread at a time, and no change left incomplete.

    A call sets `changing` before its first change and clears it after the last. It remains set if an exception ends the
    call in between, including a KeyboardInterrupt at any point.

    Attributes:
        thread: ident of the thread that is in a call of the scene; 0 for none.
        changing: call that is changing the sensors, or was interrupted; empty if all sensors are at the same tick.
        cause: exception that interrupted it, as text.
    """

    __slots__ = ("cause", "changing", "thread")

    def __init__(self) -> None:
        self.thread = 0
        self.changing = ""
        self.cause = ""

    def check(self) -> None:
        """Raise `ScheduleError` if another thread is in a call, or if a changing call was interrupted."""
        if self.thread == get_ident():  # a hook reads another sensor, or a callback of `watch` uses the scene
            return
        if self.thread:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            raise ScheduleError(
                f"Scene: thread {threading.current_thread().name!r} uses the scene while thread "
                f"{names.get(self.thread, self.thread)!r} is in a call of it. Read its sensors in the thread that "
                "steps it, and pass the result of scene.publish() to other threads."
            )
        if self.changing:
            self.raise_interrupted()

    def raise_interrupted(self) -> NoReturn:
        """Raise `ScheduleError` with the interrupted call, the cause, and the call to make."""
        cause = f" by {self.cause}" if self.cause else ""
        raise ScheduleError(
            f"Scene: {self.changing} was interrupted{cause}, so the sensors are not all at the same tick. Call "
            "scene.reset() for all environments, or scene.load_state(state), before any other call."
        )

    def note(self, error: BaseException, tick: int) -> None:
        """Record the exception that interrupted a changing call; the first cause is kept."""
        if self.changing and not self.cause:
            text = str(error).partition("\n")[0]
            self.cause = f"{type(error).__name__}{f' ({text})' if text else ''} at tick {tick}"

    def mark_consistent(self) -> None:
        """Record that all sensors are at the same tick again."""
        self.changing = self.cause = ""


def exclusive(method: Function) -> Function:
    """Decorate a method of a scene that needs exclusive use, and all sensors at the same tick.

    The object must have the scene's `_guard`, `compute` and `clock`.
    """
    return _decorated(method, restores=False)


def restoring(method: Function) -> Function:
    """Decorate a method like `exclusive`, but allow it after an interrupted call."""
    return _decorated(method, restores=True)


def _decorated(method: Function, restores: bool) -> Function:
    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard, me = self._guard, get_ident()
        before = guard.thread
        if before != me and (before or (guard.changing and not restores)):
            guard.check()
        guard.thread = me  # no call since `before` was read, so no thread switch and no signal in between
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            if before != me:
                guard.note(error, self.clock.tick)
                self.clock.version += 1  # readers must check their views again
                self.compute.recover()
                launching.recover()
            raise
        finally:
            guard.thread = before

    return cast(Function, guarded)
