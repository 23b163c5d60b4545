"""Configs whose fields can be assigned, and those of the configs inside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

Holder = tuple[BaseModel, str, int | None]
"""Config, its field, and the index in the tuple there, that hold a config; None without a tuple."""


class Held(set[str]):
    """Names of the given fields of a config whose fields can be assigned, which marks it as such.

    Args:
        names: the fields.
        place: place of the config, if it is inside another one.
    """

    def __init__(self, names: Iterable[str], place: Holder | None = None) -> None:
        super().__init__(names)
        self._place = place

    def __copy__(self) -> set[str]:
        """Return the names without the mark: nothing holds a copy."""
        return {*self}

    def assign(self, cfg: BaseModel, changed: BaseModel) -> None:
        """Make the config, and what its holder has of it, equal to a changed copy."""
        if self._place is not None:
            holder, name, index = self._place
            value = getattr(holder, name)
            setattr(holder, name, changed if index is None else (*value[:index], changed, *value[index + 1 :]))
        vars(cfg).clear()
        vars(cfg).update(vars(changed))
        let_change(cfg, changed.model_fields_set, self._place)


class Entries(tuple[Any, ...]):
    """Values in a field of a config whose fields can be assigned."""

    place: tuple[BaseModel, str]

    def __add__(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return a tuple with further values."""
        return (*self, *values)

    def append(self, value: Any) -> None:
        """Assign the field with a further value at the end."""
        holder, name = self.place
        setattr(holder, name, (*getattr(holder, name), value))


def let_change(cfg: BaseModel, given: set[str], place: Holder | None = None) -> BaseModel:
    """Let the fields of a config be assigned, and those of the configs inside it, which become copies."""

    def part(value: Any, name: str, index: int | None = None) -> Any:
        if isinstance(value, tuple) and index is None:
            entries = Entries(part(each, name, k) for k, each in enumerate(value))
            entries.place = cfg, name
            return entries
        if not isinstance(value, BaseModel):
            return value
        return let_change(BaseModel.__copy__(value), value.model_fields_set, (cfg, name, index))

    object.__setattr__(cfg, "__pydantic_fields_set__", Held(given, place))
    vars(cfg).update({name: part(getattr(cfg, name), name) for name in type(cfg).model_fields})
    return cfg
