"""Readings: host NumPy data with their specs, the only view of a sensor that recorders, streams and viewers have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sensorium.errors import ConfigError, UnknownNameError, WireError, listed
from sensorium.spec import FieldSpec

Array = np.ndarray[Any, np.dtype[Any]]


def read_only(array: Array) -> Array:
    """Return the array with its write flag cleared."""
    array.flags.writeable = False
    return array


@dataclass(slots=True)
class Reading:
    """Immutable host copy of the output of one sensor at one tick.

    Its arrays are read-only because all outputs share them; use ``array.copy()`` to modify one.

    A field with an event axis is ragged: it holds the rows of all envs one after the other, `[row, ...]`, and `offsets`
    gives the first row of each env. Any other field has one row per env.

    Attributes:
        name: the sensor's name.
        kind: the sensor's kind, e.g. ``"imu"``.
        specs: specs of its fields; a singular selector has no mount axis.
        env_ids: int64 [n], the envs in this reading.
        tick: physics tick of the reading.
        time: time of that tick, s.
    """

    name: str
    kind: str
    specs: tuple[FieldSpec, ...]
    env_ids: Array
    tick: int
    time: float
    _measured: dict[str, Array] = field(repr=False)
    _truth: dict[str, Array] = field(repr=False)
    _meta: dict[str, Array] = field(repr=False)
    _wait: Callable[[], None] | None = field(default=None, repr=False)
    _count: str = field(default="", repr=False)
    """Name of the field that holds the number of rows per env, while ragged fields are still padded to their
    capacity."""
    _offsets: Array | None = field(default=None, repr=False)
    _pose: Array | None = field(default=None, repr=False)
    _dt: float = field(default=math.nan, repr=False)
    """Time step, s: values that `_meta` lacks are derived from ticks with it."""

    def _arrived(self) -> None:
        if self._wait is not None:
            self._wait()
            self._wait = None
        if self._count:
            self._make_ragged()

    def _make_ragged(self) -> None:
        """Remove the empty rows of fields with an event axis."""
        counts, self._count = self._measured[self._count], ""
        self._offsets = read_only(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))))
        for spec in self.specs:
            if spec.is_ragged:
                filled = np.arange(spec.shape[0]) < counts[:, None]
                for branch in (self._measured, self._truth):
                    if branch:
                        branch[spec.name] = read_only(branch[spec.name][filled])

    @property
    def offsets(self) -> Array | None:
        """int64 [n + 1], first row of each env in ragged fields; None without such fields."""
        self._arrived()
        return self._offsets

    def rows(self, index: int) -> slice:
        """Return the rows of ragged fields that belong to ``env_ids[index]``.

        Raises:
            TypeError: the sensor has no ragged fields.
        """
        offsets = self.offsets
        if offsets is None:
            raise TypeError(f"reading of {self.name!r}: the sensor has no ragged fields, so there are no rows per env")
        return slice(int(offsets[index]), int(offsets[index + 1]))

    @property
    def measured(self) -> Mapping[str, Array]:
        """Field -> array `[n, ...]` as the device would report it; waits for a pending copy to the host."""
        self._arrived()
        return self._measured

    @property
    def truth(self) -> Mapping[str, Array]:
        """Field -> array `[n, ...]`, ground truth at the newest capture; empty unless truth was requested."""
        self._arrived()
        return self._truth

    @property
    def pose(self) -> Array | None:
        """float32 [n, mount, 7], pose of the sensor in the world when the shown value was captured: m and wxyz.

        The sensor's `offset` is included. The x axis of a camera points forward in every convention of its `offset`.
        NaN for values captured before poses were requested. None if poses were not requested, if the sensor is not
        mounted on anything, or if the engine does not provide poses of bodies.
        """
        self._arrived()
        return self._pose

    def __getitem__(self, name: str) -> Array:
        return self.measured[name]

    @property
    def capture_tick(self) -> Array:
        """int64 [n], tick at which the shown value was captured."""
        return self._about("capture_tick")

    @property
    def truth_tick(self) -> Array:
        """int64 [n], tick of the newest capture, to which `truth` belongs."""
        return self._about("truth_tick" if "truth_tick" in self._meta else "capture_tick")

    @property
    def stamp(self) -> Array:
        """float64 [n], timestamp of the shown value by the sensor's own clock, s."""
        if "stamp" not in self._meta:
            self._meta["stamp"] = read_only(self.capture_tick.astype(np.float64) * self._dt)
        return self._about("stamp")

    @property
    def age(self) -> Array:
        """float64 [n], age of the shown value, s."""
        if "age" not in self._meta:
            self._meta["age"] = read_only((self.tick - self.capture_tick).astype(np.float64) * self._dt)
        return self._about("age")

    @property
    def valid(self) -> Array:
        """Bool [n], whether the shown value has arrived and the engine's state was finite when it was captured."""
        return self._about("valid")

    @property
    def is_new(self) -> Array:
        """Bool [n], whether the shown value arrived in this control step."""
        return self._about("is_new")

    @property
    def frame(self) -> Array:
        """int64 [n], captures since the env's reset."""
        return self._about("frame")

    def _about(self, what: str) -> Array:
        self._arrived()
        return self._meta[what]


@dataclass(frozen=True, slots=True)
class SceneDescription:
    """Static description of a scene for listeners: engine, time step, environments, sensors and their fields."""

    engine: str
    dt: float
    num_envs: int
    seed: int
    sensors: Mapping[str, Mapping[str, Any]]
    """Name -> ``{"kind", "rate_hz", "fields": [...], "cfg": {...}}``, and ``"mounts": [name, ...]`` where fields have a
    mount axis."""
    first_env: int = 0
    """Global index of env 0, where the scene is a slice of a larger run."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description."""
        return {
            "engine": self.engine,
            "dt": self.dt,
            "num_envs": self.num_envs,
            "seed": self.seed,
            "first_env": self.first_env,
            "sensors": {name: dict(value) for name, value in self.sensors.items()},
        }


@dataclass(frozen=True, slots=True)
class Body:
    """Description of one body of the model.

    Attributes:
        id: index in the engine's list of bodies.
        name: full name, e.g. ``"robot/base"``.
        entity: part of the name before the first ``/``; empty if there is none.
        center: centre of the bounding box of its shapes, in the body's frame, m.
        half_extents: half the size of that box, m; all 0 for a body without shapes.
    """

    id: int
    name: str
    entity: str = ""
    center: tuple[float, float, float] = (0.0, 0.0, 0.0)
    half_extents: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def type_id(self) -> str:
        """The entity that the body belongs to."""
        return self.entity

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description."""
        return {
            "id": self.id,
            "name": self.name,
            "entity": self.entity,
            "center": list(self.center),
            "half_extents": list(self.half_extents),
        }


class Bodies(Mapping[int, Body]):
    """Bodies of a model by number or by name: ``bodies[3]``, ``bodies["robot/base"]``. Iteration gives numbers.

    Args:
        bodies: all bodies, in the order of the rows of a `Snapshot`.

    Raises:
        ConfigError: two bodies have the same number or name.
    """

    __slots__ = ("_by_id", "_by_name", "_rows")

    def __init__(self, bodies: Iterable[Body]) -> None:
        listed_bodies = list(bodies)
        self._by_id = {body.id: body for body in listed_bodies}
        self._by_name = {body.name: body for body in listed_bodies}
        self._rows = {body.id: row for row, body in enumerate(listed_bodies)}
        if not len(self._by_id) == len(self._by_name) == len(listed_bodies):
            raise ConfigError.single(
                "Bodies", "bodies", [body.name for body in listed_bodies], "bodies with different numbers and names"
            )

    def __getitem__(self, key: int | str) -> Body:
        """Return a body.

        Raises:
            UnknownNameError: no body has that number or name; the message lists the nearest names.
        """
        found = self._by_name.get(key) if isinstance(key, str) else self._by_id.get(key)
        if found is None:
            if isinstance(key, str):
                raise UnknownNameError("body", key, self._by_name)
            raise UnknownNameError("body number", str(key), [f"{body.id} ({body.name})" for body in self.values()])
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, key: object) -> bool:
        return key in self._by_name if isinstance(key, str) else key in self._by_id

    def __eq__(self, other: object) -> bool:
        return list(self.values()) == list(other.values()) if isinstance(other, Bodies) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._by_id))

    def __repr__(self) -> str:
        return f"Bodies({listed(self._by_name)})"

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._by_name)

    def find(self, pattern: str) -> tuple[Body, ...]:
        """Return the bodies whose full name matches a regular expression as a whole, in order.

        Raises:
            UnknownNameError: no body matches.
            ConfigError: the pattern is not a valid regular expression.
        """
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise ConfigError.single("Bodies", "find", pattern, f"a regular expression ({error})") from None
        found = tuple(body for name, body in self._by_name.items() if matches(name))
        if not found:
            raise UnknownNameError("body", pattern, self._by_name, "A pattern must match a full name.")
        return found

    def row(self, key: int | str) -> int:
        """Return the row of a `Snapshot` that belongs to a body.

        Raises:
            UnknownNameError: no such body.
        """
        return self._rows[self[key].id]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description."""
        return {"bodies": [body.to_dict() for body in self.values()]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Bodies:
        """Return the bodies described by the result of `to_dict`.

        Raises:
            WireError: the values do not describe bodies.
        """
        try:
            return cls(
                Body(
                    int(each["id"]),
                    str(each["name"]),
                    str(each["entity"]),
                    _three(each["center"]),
                    _three(each["half_extents"]),
                )
                for each in values["bodies"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"invalid description of bodies: {type(error).__name__}: {error}") from None


def _three(values: Iterable[Any]) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z


@dataclass(frozen=True, slots=True)
class DebugShape:
    """One simple shape for a viewer, in world coordinates (m).

    Attributes:
        kind: ``points`` (positions [n, 3]), ``lines`` and ``arrows`` (starts and ends [n, 2, 3]) or ``frames`` (poses
            [n, 7], wxyz).
        data: coordinates, one environment after the other.
        color: red, green, blue in [0, 1].
        counts: number of points, lines, arrows or frames of each environment; None if all have the same number.
        colors: red, green, blue of each item, float32 [n, 3]; None if all have `color`.
        size: diameter of points, thickness of lines and arrows, or length of the axes of frames, m; None lets the
            viewer choose.
    """

    kind: str
    data: Array
    color: tuple[float, float, float] = (1.0, 0.2, 0.2)
    counts: Sequence[int] | None = None
    colors: Array | None = None
    size: float | None = None

    @classmethod
    def where(
        cls, mask: Any, kind: str, values: Any, color: tuple[float, float, float] = (1.0, 0.2, 0.2)
    ) -> DebugShape:
        """Return a shape from the values `[env, ..., n]` of a tensor where a mask `[env, ...]` is true."""
        return cls(kind, values[mask].cpu().numpy(), color, mask.flatten(1).sum(dim=1).tolist())

    @property
    def items(self) -> Array:
        """Coordinates of all items: points [n, 3], frames [n, 7], lines and arrows [n, 2, 3]."""
        return self.data.reshape(-1, *{"points": (3,), "frames": (7,)}.get(self.kind, (2, 3)))

    def _rows(self, env: int, num_envs: int) -> slice:
        counts = [len(self.items) // num_envs] * num_envs if self.counts is None else list(self.counts)
        start = sum(counts[:env])
        return slice(start, start + counts[env])

    def of_env(self, env: int, num_envs: int) -> Array:
        """Return the coordinates of one environment."""
        return self.items[self._rows(env, num_envs)]

    def only(self, env: int, num_envs: int) -> DebugShape:
        """Return the shape of one environment."""
        colors = None if self.colors is None else self.colors_of_env(env, num_envs)
        return replace(self, data=self.of_env(env, num_envs), colors=colors, counts=None)

    def colors_of_env(self, env: int, num_envs: int) -> Array:
        """Return the colour of each item of one environment, `[n, 3]`."""
        rows = self._rows(env, num_envs)
        if self.colors is not None:
            return self.colors.reshape(-1, 3)[rows]
        return np.tile(np.asarray(self.color, np.float32), (rows.stop - rows.start, 1))
