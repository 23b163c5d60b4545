"""Common base of this package's configs: fields with two names, and defaults that are written to files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from pydantic import ConfigDict

from sensorium.cfg import Cfg
from sensorium.cfg.held import Held, let_change
from sensorium.errors import ConfigError

sensors: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Address of a config with fields in `read_at_reset` -> the sensor that keeps it."""


class AliasedCfg(Cfg):
    """Config with another system's names: ``Field(alias=...)`` holds that name of a field.

    Either name may be given, but not both. A default that differs from sensorium's is treated as a given value, so that
    files, which contain sensorium's kinds and names, include it. Fields, and those of configs inside, can be assigned,
    which validates the whole config. A sensor keeps a copy, of which only fields in `read_at_reset` can be.
    """

    model_config = ConfigDict(populate_by_name=True)
    read_at_reset: ClassVar[tuple[str, ...]] = ()
    """Fields that a sensor reads at each reset."""
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
        let_change(self, self.model_fields_set)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        return super().replace(**{aliases(type(self)).get(name, name): value for name, value in changes.items()})

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a field.

        Raises:
            ConfigError: the config would be invalid or has no such field, or a sensor keeps it.
        """
        field, given = aliases(type(self)).get(name, name), self.model_fields_set
        if isinstance(given, Held) or field not in type(self).model_fields:
            super().__setattr__(field, value)
        elif field in self.read_at_reset:
            value = getattr(self.replace(**{field: value}), field)
            if field not in given and (sensor := sensors.get(id(self))):
                given.add(field)  # with which a sensor has memory for the values
                try:
                    sensor.rebuild()
                except BaseException:
                    given.discard(field)
                    raise
            vars(self)[field] = value
        else:
            fix = f"Use scene.reconfigure({getattr(self, 'label', '...')!r}, {field}=...)."
            raise ConfigError.single(self._title, name, value, "no assignment once a sensor keeps the config", fix)

    def copy(self) -> Self:  # type: ignore[override]  # that of pydantic is deprecated
        """Return a copy that can change."""
        return self.replace()

    __copy__ = copy

    def __deepcopy__(self, memo: object = None) -> Self:
        """Return a copy that can change."""
        return self.replace()

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
