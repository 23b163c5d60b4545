"""All data of one frame, by sensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from sensorium.errors import UnknownNameError

E = TypeVar("E")


class FrameBundle(Mapping[str, Any]):
    """The data of several sensors in one frame: sensor -> its data, or None where it sent none. Read-only.

    The data are of the class that the sensor's serializer makes, e.g. `FieldData`, whose fields only the sensor knows:
    hence a type checker takes ``bundle["imu"].lin_acc_b`` as it is, and does not see that it may be None. Where it
    should, write ``bundle.of("imu", FieldData)``.

    Args:
        frame: number of the frame.
        newest: the newest data of each sensor in it.
        events: all of them.
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
        """Sensor -> everything that it sent in this frame, in order; ``()`` where nothing happened.

        Where some were lost, or are more than the `FrameSync` keeps, the last one is a `LostEvents` of this frame that
        says how many: it is empty wherever it is looped over. Of a sensor that sends its state it is usually one.
        """
        return self._events

    def of(self, name: str, kind: type[E]) -> E | None:
        """Return the same as ``bundle[name]``, typed.

        Raises:
            UnknownNameError: there is no such sensor in it.
            TypeError: its data are of another class.
        """
        data = self[name]
        if data is not None and not isinstance(data, kind):
            raise TypeError(f"the data of {name!r} are {type(data).__name__}, not {kind.__name__}")
        return data

    def __getitem__(self, name: str) -> Any:
        """Return the newest data of a sensor in this frame; of events the newest that came. None: there were none."""
        try:
            return self._newest[name]
        except KeyError:
            raise UnknownNameError("sensor", name, self._newest) from None

    def __contains__(self, name: object) -> bool:
        return name in self._newest

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_events"):
            self._refuse(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> NoReturn:
        self._refuse(name)

    @staticmethod
    def _refuse(name: str) -> NoReturn:
        raise AttributeError(f"FrameBundle.{name} cannot be assigned to: received data are read-only")

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameBundle, (self._frame, self._newest, dict(self._events))

    def __repr__(self) -> str:
        return f"FrameBundle(frame={self._frame}, {self._newest!r})"


__all__ = ["FrameBundle"]
