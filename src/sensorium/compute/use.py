"""Which thread uses a scene, and whether a call that changes it ended before it was done."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, NoReturn, TypeVar, cast

from sensorium.compute.graph import launching
from sensorium.errors import ScheduleError

Function = TypeVar("Function", bound=Callable[..., Any])


class Use:
    """The use of one scene.

    A call sets `changing` before its first change and clears it after its last one. So it stays set where an exception
    ended the call in between, also a KeyboardInterrupt at any point.

    Attributes:
        thread: ident of the thread that is in a call of the scene; 0 for none.
        changing: the call that changes the sensors now, or that was interrupted; empty where they are of one tick.
        cause: the exception that interrupted it, in words.
    """

    __slots__ = ("cause", "changing", "thread")

    def __init__(self) -> None:
        self.thread = 0
        self.changing = ""
        self.cause = ""

    def check(self) -> None:
        """Raise `ScheduleError` where another thread is in a call, or where a call that changes was interrupted."""
        if self.thread == get_ident():  # a hook reads another sensor, or a callback of `watch` the scene
            return
        if self.thread:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            raise ScheduleError(
                f"Scene: thread {threading.current_thread().name!r} uses the scene while thread "
                f"{names.get(self.thread, self.thread)!r} is in a call of it. Read its sensors in the thread that "
                "steps it, and give other threads what scene.publish() returns."
            )
        if self.changing:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise `ScheduleError` that says what was interrupted, by what, and what to call."""
        cause = f" by {self.cause}" if self.cause else ""
        raise ScheduleError(
            f"Scene: {self.changing} was interrupted{cause}, so the sensors are not all of one tick. Call "
            "scene.reset() for all environments, or scene.load_state(state), before you go on."
        )

    def note(self, error: BaseException, tick: int) -> None:
        """Note what interrupted a call that changes the scene; the first cause stays."""
        if self.changing and not self.cause:
            text = str(error).partition("\n")[0]
            self.cause = f"{type(error).__name__}{f' ({text})' if text else ''} at tick {tick}"

    def mended(self) -> None:
        """Note that all sensors are of one tick again."""
        self.changing = self.cause = ""


def exclusive(method: Function) -> Function:
    """Decorate a method of a scene that no other thread may use meanwhile, and that needs sensors of one tick.

    Its object has the scene's `_use`, `compute` and `clock`.
    """
    return _guarded(method, mends=False)


def mending(method: Function) -> Function:
    """Decorate like `exclusive` a method that may also follow an interrupted call."""
    return _guarded(method, mends=True)


def _guarded(method: Function, mends: bool) -> Function:
    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        use, me = self._use, get_ident()
        before = use.thread
        if before != me and (before or (use.changing and not mends)):
            use.check()
        use.thread = me  # no call since `before` was read, so no other thread and no signal came in between
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            if before != me:
                use.note(error, self.clock.tick)
                self.clock.version += 1  # what readers were shown is looked at again
                self.compute.recover()
                launching.recover()
            raise
        finally:
            use.thread = before

    return cast(Function, guarded)
