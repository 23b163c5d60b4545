"""Fields of several sensors gathered into one new tensor for a policy: each term takes a range of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.compute import keeps_current
from sensorium.errors import ConfigError, DuplicateNameError, MissingDependencyError, UnknownNameError
from sensorium.scene.columns import TermColumns
from sensorium.scene.terms import TRUE, ObsTerm, TermPart, parts_of

if TYPE_CHECKING:
    from sensorium.scene.mirror import Mirror
    from sensorium.scene.scene import Scene

ALONE = ""
"""Name of the group of an observer without groups."""


@dataclass(frozen=True, slots=True)
class TermPlace:
    """Columns of a term in its group."""

    part: TermPart
    columns: slice
    shape: tuple[int, ...]
    """Shape of the term after env, with its history first."""


@dataclass(slots=True)
class _Group:
    """Terms of one group."""

    places: dict[str, TermPlace]
    stacked: int
    """Entries of the axis before the columns; 0 for none."""
    columns: int
    values: TermColumns


class Sources:
    """All terms of one or several groups.

    Args:
        scene: scene of the sensors.
        groups: group -> terms.
        replace_inf: as for `Observer`.
        stacked: groups whose history is an axis.

    Attributes:
        learns: whether running statistics follow new values.

    Raises:
        see `Observer`.
    """

    _arrangement: int
    _version: int

    @keeps_current
    def __init__(
        self,
        scene: Scene,
        groups: Mapping[str, Sequence[str | ObsTerm]],
        *,
        replace_inf: float | None = None,
        history: int = 0,
        stacked: Collection[str] = (),
    ) -> None:
        if replace_inf is not None and not math.isfinite(replace_inf):
            raise ConfigError.single("Observer", "replace_inf", replace_inf, "a finite number, or None to keep +inf")
        self.scene, self.learns = scene, True
        self.far = math.inf if replace_inf is None else float(replace_inf)
        self.groups = {
            name: self._laid_out(name, list(terms), history, name in stacked) for name, terms in groups.items()
        }
        for group in self.groups.values():
            if group.values.key:
                scene.keep_memory(group.values)
        self._bind()

    def _laid_out(self, group: str, terms: list[str | ObsTerm], history: int, stacked: bool) -> _Group:
        found: dict[str, TermPart] = {}
        for term in terms:
            if not isinstance(term, str | ObsTerm):
                raise ConfigError.single("Observer", "fields", term, "names such as 'imu.ang_vel_b', or an ObsTerm")
            term = term if isinstance(term, ObsTerm) else ObsTerm(term)
            for part in parts_of(self.scene, term if term.history or not history else replace(term, history=history)):
                if part.name in found:
                    raise DuplicateNameError(f"Observer: {part.name!r} was given twice; both would be the same columns")
                found[part.name] = part
        if not found:
            fix = 'Name at least one: scene.observer("imu.ang_vel_b").'
            raise ConfigError.single("Observer", group or "fields", (), "fields of sensors", fix)
        lengths = {part.term.history for part in found.values()}
        if stacked and (len(lengths) > 1 or 0 in lengths):
            expected = "one history >= 1 for all terms of a stacked group"
            raise ConfigError.single(
                "Observer", "history", sorted(lengths), expected, "Write observer(..., history=4)."
            )
        places, start = {}, 0
        for name, part in found.items():
            entries = part.term.history
            shape = part.shape if stacked or not entries else (entries, *part.shape)
            places[name] = TermPlace(part, slice(start, start + math.prod(shape)), shape)
            start += math.prod(shape)
        if not start:
            raise ConfigError.single("Observer", "fields", list(found), "fields with at least one element")
        entries = max(lengths) if stacked else 0
        return _Group(places, entries, start, TermColumns(self.scene, group, list(found.values()), self.far, entries))

    # Observations -----------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> Iterator[TermPart]:
        """All parts, group by group."""
        return (place.part for group in self.groups.values() for place in group.places.values())

    def collect(self) -> dict[str, torch.Tensor]:
        """Return group -> current values in new memory, float32 `[env, column]` or `[env, history, column]`."""
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # tensors made in inference mode cannot be used in a backward pass
                return self.collect()
        if self._arrangement != self.scene.arrangement:
            self._bind()
        if self._version != self.scene.clock.version:
            for sensor, is_measured in self._readers:
                sensor.ensure_shown(is_measured=is_measured)
            self._version = self.scene.clock.version
        for part in self._computed:
            part.compute()
        return {name: group.values.run(self.learns) for name, group in self.groups.items()}

    def _bind(self) -> None:
        """Look up the memory of every field again, after the scene's sensors may have changed."""
        for group in self.groups.values():
            for name, place in group.places.items():
                group.places[name] = replace(place, part=place.part.current(self.scene))
            group.values.bind([place.part.value() for place in group.places.values()])
        parts = list(self.parts)
        self._computed = [part for part in parts if part.read is not None]
        fields = sorted((part for part in parts if part.read is None), key=lambda part: part.is_measured)
        readers = {part.sensor: part.is_measured for part in fields if part.sensor is not None}
        self._readers = list(readers.items())  # a sensor read for measured fields is not read again for its truth
        self._arrangement = self.scene.arrangement
        self._version = -1  # of the clock when the sensors were last brought up to date


class _Learning:
    """Switch of the running statistics, common to an observer and to groups of them."""

    _sources: Sources

    @property
    def learns(self) -> bool:
        """Whether running statistics follow new values; set it to False to evaluate a policy."""
        return self._sources.learns

    @learns.setter
    def learns(self, on: bool) -> None:
        self._sources.learns = on


class Observer(_Learning):
    """Fields of a scene's sensors as one float32 tensor `[env, column]`; a call returns the newest one.

    ``look = scene.observer("imu.ang_vel_b", "feet.found", truth=("imu.lin_vel_b",))`` creates an observer. ``look()``
    brings the sensors up to date, as reading them does, and copies all columns into a new tensor that the caller owns.
    Flags, ids and other numbers are converted to float32. Terms with options are `ObsTerm`.

    Histories, delays and running statistics advance once per tick with a call, and are part of `Scene.state`. The
    values of an environment that was reset start again with its first value.

    Attributes:
        names: name -> slice of its columns, in order.
        low: float32 [column], lower bounds for ``gymnasium.spaces.Box(look.low, look.high)``, -inf where unbounded.
        high: float32 [column], upper bounds, +inf where unbounded.
        units: unit of each column.
        shape: `(env, column)`; `(env, history, column)` if stacked.
        dtype: ``torch.float32``.

    Raises:
        UnknownNameError, SelectionError: a name matches no sensor or field, or several; the message lists the known
            names.
        DuplicateNameError: a field was given twice.
        ConfigError: no field was given, a field is not a tensor with an env axis, or an option is invalid.
        StaleError: on a call: a sensor was removed, or its reconfiguration removed or reshaped the field.
    """

    dtype = torch.float32

    def __init__(self, sources: Sources, group: str = ALONE) -> None:
        self._sources, self._name = sources, group
        self._group = plan = sources.groups[group]
        self.names: Mapping[str, slice] = MappingProxyType({name: each.columns for name, each in plan.places.items()})
        self.shape: tuple[int, ...] = (sources.scene.num_envs, plan.columns)
        if plan.stacked:
            self.shape = (sources.scene.num_envs, plan.stacked, plan.columns)

    def __call__(self) -> torch.Tensor:
        """Return the current values of the fields, a new float32 tensor of the observer's `shape`."""
        return self._sources.collect()[self._name]

    # Columns ----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> slice:
        try:
            return self.names[name]
        except KeyError:
            raise UnknownNameError("observation", name, self.names) from None

    def split(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name -> view of an observation with the term's own shape, `[env, ...]` or `[env, history, ...]`.

        Args:
            obs: `[..., column]` with any leading axes, e.g. `[time, env, column]` of a rollout buffer.

        Raises:
            ValueError: the size of the last axis is not the number of columns.
        """
        if obs.shape[-1:] != self.shape[-1:]:
            raise ValueError(f"Observer.split: got shape {tuple(obs.shape)}, expected [..., {self.shape[-1]}]")
        lead = obs.shape[:-1]
        return {name: obs[..., each.columns].view(*lead, *each.shape) for name, each in self._group.places.items()}

    @property
    def low(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Lower bound of each column, float32 [column], in its unit; -inf where unknown. See `high`."""
        return self._bounds(0)

    @property
    def high(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Upper bound of each column, float32 [column], in its unit; +inf where unknown.

        Flags, quaternions and true values of bounded fields have bounds. Measured values may exceed those of the truth.
        A stacked observer has the same bounds for each entry, `[history, column]`.
        """
        return self._bounds(1)

    def _bounds(self, side: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        places = self._group.places.values()
        ends = np.array([place.part.bounds(self._sources.far)[side] for place in places], np.float32)
        row = np.repeat(ends, [math.prod(place.shape) for place in places])
        return np.repeat(row[None], self._group.stacked, axis=0) if self._group.stacked else row

    @property
    def units(self) -> list[str]:
        """Unit of each column, as text; ``"1"`` for dimensionless, scaled and normalised values."""
        places = self._group.places.values()
        return [unit for each in places for unit in each.part.units() * self._entries(each, 1)]

    @property
    def columns(self) -> list[str]:
        """Readable name of each column, such as ``imu.ang_vel_b[x]``, or ``imu.ang_vel_b[2,x]`` in a flat history."""
        places = self._group.places.values()
        return [title for each in places for title in each.part.titles(self._entries(each, 0))]

    def _entries(self, place: TermPlace, otherwise: int) -> int:
        """Return the number of values of a term in a flat history."""
        return otherwise if self._group.stacked else place.part.term.history or otherwise

    def mirror(
        self,
        *,
        pairs: Iterable[tuple[str, str]] | Callable[[str], str] | None = None,
        flip: Iterable[str] | None = None,
    ) -> Mirror:
        """Return the map of an observation to that of the robot's mirror image, for symmetric training.

        The mirror is the plane y = 0 of the world and of the frames of the sensors. Components of vectors change sign
        by the parity of their field. Items named left and right, such as joints and mounts, are exchanged, and so are
        sensors named left and right.

        Args:
            pairs: pairs of texts that are exchanged in names, such as ``[("left", "right")]``, or a function from a
                name to that of its partner. None exchanges left and right, L and R, FL and FR, and similar words.
            flip: patterns of the names of scalars that change sign, such as joints that turn about x or z. Required if
                the observer has joints.

        Raises:
            ConfigError: a partner does not exist, the mirror image of a field is unknown, or `flip` is missing.
        """
        from sensorium.scene.mirror import mirror_of  # imported on use

        return mirror_of(self._group.places, self._group.columns, pairs, flip)

    def __len__(self) -> int:
        return self.shape[-1]

    def __repr__(self) -> str:
        rows = [("columns", "name", "shape", "unit", "bounds")]
        for name, place in self._group.places.items():
            part, run = place.part, place.columns
            axes = [*(["history"] if len(place.shape) > len(part.shape) else []), *part.spec.axes]
            shape = ", ".join(f"{axis} {size}" for axis, size in zip(axes, place.shape, strict=True))
            low, high = part.bounds(self._sources.far)
            bounds = f"{low:g} to {high:g}" if math.isfinite(low) or math.isfinite(high) else "-"
            unit = part.spec.unit if part.term.scale is None and not part.term.normalise else "1"
            rows.append((f"{run.start}:{run.stop}", name, shape or "-", unit, bounds))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        history = f"history {self._group.stacked}, " if self._group.stacked else ""
        title = (
            f"Observer({self.shape[0]} env(s), {history}{len(self)} columns, float32 on "
            f"{self._sources.scene.compute.device})"
        )
        return "\n  ".join([title, *lines])


class ObserverGroups(_Learning, Mapping[str, Observer]):
    """Several groups of observations, such as those of a policy and of a critic; one call gathers all of them.

    ``look = scene.observer(groups={"policy": ["imu"], "critic": ["imu", ObsTerm("imu", truth=True)]})`` creates it.
    ``look()`` returns new tensors by group. ``look["policy"]`` is an `Observer` with the columns of that group.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._observers = {name: Observer(sources, name) for name in sources.groups}

    def __call__(self) -> dict[str, torch.Tensor]:
        """Return group -> current values, new float32 tensors `[env, column]`, or `[env, history, column]`."""
        return self._sources.collect()

    def tensordict(self) -> Any:
        """Return the same as a call, as a ``tensordict.TensorDict`` with the batch size `[env]`.

        Raises:
            MissingDependencyError: tensordict is not installed.
        """
        return as_tensordict(self())

    def __getitem__(self, name: str) -> Observer:
        try:
            return self._observers[name]
        except KeyError:
            raise UnknownNameError("group of observations", name, self._observers) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._observers)

    def __len__(self) -> int:
        return len(self._observers)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {observer!r}" for name, observer in self._observers.items())


def as_tensordict(groups: Mapping[str, torch.Tensor]) -> Any:
    """Return tensors `[env, ...]` as a ``tensordict.TensorDict``."""
    try:
        from tensordict import TensorDict
    except ImportError as error:
        raise MissingDependencyError("a TensorDict of observations needs tensordict: pip install tensordict") from error
    return TensorDict(dict(groups), batch_size=[len(next(iter(groups.values())))])


def measured_and_true(fields: Sequence[str | ObsTerm], truth: bool | str | Iterable[str]) -> list[str | ObsTerm]:
    """Return terms for `fields`, followed by the fields of `truth` from the ground truth; True takes all `fields`."""
    named = [field.source if isinstance(field, ObsTerm) else field for field in fields]
    true = named if truth is True else [truth] if isinstance(truth, str) else list(truth or ())
    terms: list[str | ObsTerm] = [] if truth is True else list(fields)
    return [*terms, *(ObsTerm(name, truth=True) for name in true)]


__all__ = ["TRUE", "ObsTerm", "Observer", "ObserverGroups"]
