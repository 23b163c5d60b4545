"""What the configs of this package share: fields under two names, and defaults that go into files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from pydantic import ConfigDict

from sensorium.cfg import Cfg
from sensorium.errors import ConfigError


class Words(Cfg):
    """A config of ours in the words of another system: ``Field(alias=...)`` has its name of a field.

    Either name may be given, not both. A default that differs from ours counts as given: files, which hold our kinds
    and our names, state it.
    """

    model_config = ConfigDict(populate_by_name=True)

    def __init__(self, /, **data: Any) -> None:
        for word, name in words(type(self)).items():
            if word in data and name in data:
                fix = "They are one field: keep one of the two."
                raise ConfigError.single(type(self).__name__, word, data[word], f"it absent beside {name}", fix)
        given = {words(type(self)).get(name, name) for name in data}
        own = {name: value for name, value in own_defaults(type(self)).items() if name not in given}
        super().__init__(**own, **data)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        return super().replace(**{words(type(self)).get(name, name): value for name, value in changes.items()})

    def __getattr__(self, name: str) -> Any:
        if name in (found := words(type(self))):
            return getattr(self, found[name])
        return super().__getattr__(name)  # type: ignore[misc]


@cache
def words(cls: type[Cfg]) -> Mapping[str, str]:
    """Return the other system's name of each field that has one -> ours."""
    return {info.alias: name for name, info in cls.model_fields.items() if info.alias}


@cache
def own_defaults(cls: type[Cfg]) -> Mapping[str, Any]:
    """Return the defaults of a config that differ from those of ours that it is built on."""
    ours = next(base for base in cls.__mro__ if issubclass(base, Cfg) and not issubclass(base, Words)).model_fields
    return {
        name: info.default
        for name, info in cls.model_fields.items()
        if not info.is_required() and info.default != ours[name].default
    }


__all__ = ["Words"]
