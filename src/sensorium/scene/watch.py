"""Who wants to know when a scene has moved: servers, recorders, viewers. A scene without any pays nothing."""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """One callback of `Scene.watch`. It is also a context manager, which closes it.

    Attributes:
        every_tick: while True, `Scene.step` stops at every tick, also where no sensor is due: then a sensor that is
            evaluated on read, and the arrival of a delayed sample, can be seen at each of them.
    """

    def __init__(self, watches: Watches, callback: Callable[[], object], every_tick: bool) -> None:
        self._watches, self._callback = watches, callback
        self.every_tick = every_tick

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
        return self not in self._watches.all

    def close(self) -> None:
        """Call it no more, from now on; closing twice does nothing. It may close itself in its callback."""
        self._watches.all = tuple(watch for watch in self._watches.all if watch is not self)


class Watches:
    """The watches of one scene, in the order they were made.

    Attributes:
        all: those that are open.
    """

    def __init__(self) -> None:
        self.all: tuple[Watch, ...] = ()

    def add(self, callback: Callable[[], object], *, every_tick: bool) -> Watch:
        """Return a new watch."""
        watch = Watch(self, callback, every_tick)
        self.all = (*self.all, watch)
        return watch

    @property
    def want_every_tick(self) -> bool:
        """Whether one of them wants every tick."""
        return bool(self.all) and any(watch.every_tick for watch in self.all)

    def call(self) -> None:
        """Call all of them in order; those that are closed meanwhile are left out.

        Raises:
            Exception: what a callback raised, once all were called; an ExceptionGroup where several did.
        """
        errors: list[Exception] = []
        for watch in self.all:
            if watch.is_closed:
                continue
            try:
                watch._callback()
            except Exception as error:
                errors.append(error)
        if len(errors) > 1:
            raise ExceptionGroup("callbacks that watch the scene", errors)
        if errors:
            raise errors[0]


__all__ = ["Watch", "Watches"]
