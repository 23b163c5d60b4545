"""Who wants to know when a scene has moved: servers, recorders, viewers. A scene without any pays nothing."""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """One callback of `Scene.watch`. It is also a context manager, which closes it.

    Attributes:
        every_tick: while True, `Scene.step` stops at every tick, also where no sensor is due: then a sensor that is
            evaluated on read, and the arrival of a delayed sample, can be seen at each of them.
    """

    def __init__(self, callback: Callable[[], object], every_tick: bool, open_watches: list[Watch]) -> None:
        self._callback, self._open = callback, open_watches
        self.every_tick = every_tick
        open_watches.append(self)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "every tick" if self.every_tick else "where sensors are looked at"
        return f"<Watch {self._callback!r}: {state}>"

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it is called no more."""
        return self not in self._open

    def close(self) -> None:
        """Call it no more, from now on; closing twice does nothing. It may close itself in its callback."""
        if self in self._open:
            self._open.remove(self)


def call_watches(watches: list[Watch]) -> None:
    """Call all watches in order; those that are closed meanwhile are left out.

    Raises:
        Exception: what a callback raised, once all were called; an ExceptionGroup where several did.
    """
    errors: list[Exception] = []
    for watch in watches[:]:
        if not watch.is_closed:
            try:
                watch._callback()
            except Exception as error:
                errors.append(error)
    if len(errors) > 1:
        raise ExceptionGroup("callbacks that watch the scene", errors)
    if errors:
        raise errors[0]


__all__ = ["Watch", "call_watches"]
