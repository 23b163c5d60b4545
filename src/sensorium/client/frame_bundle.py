"""All data of one frame, by sensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from sensorium.errors import UnknownNameError

E = TypeVar("E")


class FrameBundle(Mapping[str, Any]):
    """Read-only data of several sensors in one frame: sensor -> its data, or None if the sensor sent none.

    The class of the data depends on the serializer of the sensor, e.g. `FieldData`, whose fields are known only at run
    time. A type checker therefore accepts ``bundle["imu"].lin_acc_b`` as it is, and does not report that the value may
    be None. Write ``bundle.of("imu", FieldData)`` for a checked type.

    Args:
        frame: number of the frame.
        newest: newest data of each sensor in the frame.
        events: all data of each sensor in the frame.
    """

    __slots__ = ("_events", "_frame", "_newest")

    def __init__(self, frame: int, newest: Mapping[str, Any], events: Mapping[str, tuple[Any, ...]]) -> None:
        self._frame, self._newest = frame, dict(newest)
        self._events = MappingProxyType(dict(events))

    @property
    def frame(self) -> int:
        """Number of the frame."""
        return self._frame

    @property
    def events(self) -> Mapping[str, tuple[Any, ...]]:
        """All messages of each sensor in this frame, in order; ``()`` if the sensor sent none.

        If events were lost, or exceed the limit of the `FrameSync`, the last item is a `LostEvents` of this frame. It
        states their number, and iterating over it yields nothing. A sensor that sends its state usually has a single
        item.
        """
        return self._events

    def of(self, name: str, kind: type[E]) -> E | None:
        """Return ``bundle[name]``, typed.

        Raises:
            UnknownNameError: the bundle has no such sensor.
            TypeError: the data are of another class.
        """
        data = self[name]
        if data is not None and not isinstance(data, kind):
            raise TypeError(f"sensor {name!r} sent {type(data).__name__}, not {kind.__name__}")
        return data

    def __getitem__(self, name: str) -> Any:
        """Return the newest data of a sensor in this frame, or its newest received event; None if there are none."""
        try:
            return self._newest[name]
        except KeyError:
            raise UnknownNameError("sensor", name, self._newest) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameBundle, (self._frame, self._newest, dict(self._events))

    def __repr__(self) -> str:
        return f"FrameBundle(frame={self._frame}, {self._newest!r})"


__all__ = ["FrameBundle"]
