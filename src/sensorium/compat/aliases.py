"""Common base of this package's configs: fields with two names, and defaults that are written to files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import ConfigDict

from sensorium.cfg import Cfg
from sensorium.errors import ConfigError


class AliasedCfg(Cfg):
    """Config with another system's names: ``Field(alias=...)`` holds that name of a field.

    Either name may be given, but not both. A default that differs from sensorium's is treated as a given value, so that
    files, which contain sensorium's kinds and names, include it.
    """

    model_config = ConfigDict(populate_by_name=True)
    other_aliases: ClassVar[Mapping[str, str]] = {}
    """The other system's further names -> sensorium's name, where it has several."""

    def __init__(self, /, **data: Any) -> None:
        for alias, name in aliases(type(self)).items():
            if alias in data and name in data:
                fix = "Keep one of the two, since both name the same field."
                raise ConfigError.single(type(self).__name__, alias, data[alias], f"either {alias} or {name}", fix)
        given = {aliases(type(self)).get(name, name) for name in data}
        own = {name: value for name, value in own_defaults(type(self)).items() if name not in given}
        super().__init__(**own, **{self.other_aliases.get(name, name): value for name, value in data.items()})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        return super().replace(**{aliases(type(self)).get(name, name): value for name, value in changes.items()})

    def __getattr__(self, name: str) -> Any:
        if name in (found := aliases(type(self))):
            return getattr(self, found[name])
        return super().__getattr__(name)  # type: ignore[misc]


@cache
def aliases(cls: type[AliasedCfg]) -> Mapping[str, str]:
    """Return the other system's name -> sensorium's name, for each field with two names."""
    return {**{info.alias: name for name, info in cls.model_fields.items() if info.alias}, **cls.other_aliases}


@cache
def own_defaults(cls: type[Cfg]) -> Mapping[str, Any]:
    """Return the defaults of a config that differ from those of its base in sensorium."""
    ours = next(base for base in cls.__mro__ if issubclass(base, Cfg) and not issubclass(base, AliasedCfg)).model_fields
    return {
        name: info.default
        for name, info in cls.model_fields.items()
        if not info.is_required() and info.default != ours[name].default
    }


__all__ = ["AliasedCfg"]
