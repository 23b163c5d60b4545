"""Readings: host NumPy data with their specs, the only view of a sensor that recorders, streams and viewers have."""

from __future__ import annotations

import math
import operator
import re
import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError, UnknownNameError, WireError, listed, nearest
from sensorium.pose import Pose
from sensorium.spec import FieldSpec

if TYPE_CHECKING:
    from sensorium.wire.stream_info import StreamInfo

__all__ = ["DebugShape", "Reading", "Sample", "SceneDescription"]

Array = np.ndarray[Any, np.dtype[Any]]

STATES = "sensor_states"
"""Kind of the readings with the true states of a sensor, whose name is the sensor's with `STATES_OF` at its end."""
STATES_OF = ".states"

_CHUNK = 4096
"""Number of items that an iteration converts to Python numbers at once."""


def read_only(array: Array) -> Array:
    """Return the array with its write flag cleared."""
    array.flags.writeable = False
    return array


class Items:
    """Access to an object's `array` as to a read-only list: length, iteration, index and slices."""

    __slots__ = ()

    @property
    def array(self) -> Array:
        """Array of all items."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        array = self.array
        if array.ndim > 1 or array.dtype.names is not None:
            yield from array
            return
        for start in range(0, len(array), _CHUNK):  # as one list, an image of bytes would be 50 MB of numbers
            yield from array[start : start + _CHUNK].tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.array[index]
        try:
            position = operator.index(index)
        except TypeError:
            raise TypeError(f"an index of {type(self).__name__} is an integer or a slice, got {index!r}") from None
        item = self.array[position]
        return item.item() if isinstance(item, np.generic) and item.dtype.names is None else item

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy:
            return np.array(self.array, dtype)
        array: Array = np.asarray(self.array, dtype)
        if copy is False and not np.shares_memory(array, self.array):
            raise ValueError(f"{type(self).__name__} cannot be converted to {np.dtype(dtype)} without a copy")
        return array


class Sample:
    """What all data of a sensor at one frame have in common: name, frame, time, pose.

    Attributes:
        name: the sensor's name.
        info: description of the stream; None if no server sent the data.
        frame: number of the frame on the server; all data of a frame share it. -1 if no server sent the data.
        seq: number of the message in its stream; a gap means that this listener missed messages. -1 as above.
        tick: physics tick of the frame.
        time: simulation time of that tick, s.
        timestamp: simulation time of the capture that the first env shows, s.
        capture_time_wall: wall-clock time of the server at the capture, s since 1970; NaN if no server sent the data.
        env_ids: numbers of the envs, int64 `[env]`, without gaps in data of a server.
        pose: float32 `[env, mount, 7]`, pose of the sensor in the world when the shown value was captured: m and wxyz,
            including the sensor's `offset`. The x axis of a camera points forward in every convention of its `offset`.
            NaN for values captured before poses were requested. None if poses were not requested, if the sensor is not
            mounted on anything, or if the engine does not provide poses of bodies.
        events_lost: number of events lost before this message.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        name: str
        info: StreamInfo | None
        frame: int
        seq: int
        tick: int
        time: float
        timestamp: float
        capture_time_wall: float
        env_ids: Array
        pose: Array | None
    events_lost: int = 0

    @property
    def sensor(self) -> str:
        """Equal to `name`."""
        return self.name

    def latency(self) -> float:
        """Return the wall-clock time since the capture, s; between hosts, clock offsets add to it."""
        return clock.time() - self.capture_time_wall

    @property
    def first_env(self) -> int:
        """Number of the first env in the data."""
        return int(self.env_ids[0]) if len(self.env_ids) else 0

    @property
    def num_envs(self) -> int:
        """Number of envs in the data."""
        return len(self.env_ids)

    @property
    def transforms(self) -> Array | None:
        """Equal to `pose`."""
        return self.pose

    @property
    def transform(self) -> Pose | None:
        """Pose of the first env and mount in the world at the capture; None for a sensor without a pose.

        It is also None for a state that is not finite, and for a late sample captured before any listener requested it.

        Raises:
            WireError: the received numbers are not a pose.
        """
        pose = self.pose
        if pose is None or not len(pose) or not np.isfinite(pose[0, 0]).all():
            return None
        try:
            return Pose.from_array(pose[0, 0])
        except ConfigError as error:
            raise WireError(f"the first pose of {self.name!r} is invalid. {error}") from None

    def __repr__(self) -> str:
        last = self.first_env + self.num_envs - 1
        envs = {0: "no envs", 1: f"env {last}"}.get(self.num_envs, f"envs {self.first_env}..{last}")
        frame = f"frame={self.frame}, " if self.frame >= 0 else ""
        age = f"age={self.time - self.timestamp:.6g} s"
        about = f"{frame}time={self.time:.6g} s, {age}, {envs}, {self._about()}".removesuffix(", ")
        return f"{type(self).__name__}({self.name!r}, {about})"

    def _about(self) -> str:
        """Return the summary of the contents for `repr`."""
        raise NotImplementedError


class Fields(Mapping[str, Array]):
    """Read-only mapping of fields to their arrays, with fields as attributes: ``reading.truth.lin_acc_b``."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise UnknownNameError("field", name, self._arrays) from None

    def __contains__(self, name: object) -> bool:  # the inherited one builds an error for each unknown name
        return name in self._arrays

    def __getattr__(self, name: str) -> Array:
        known = [] if name.startswith("_") else self._arrays
        if name not in known:
            raise AttributeError(f"there is no field {name!r}.{nearest(name, known)} Fields: {listed(known)}")
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._arrays]

    def __reduce__(self) -> tuple[Any, ...]:
        return Fields, (dict(self._arrays),)

    def __repr__(self) -> str:
        return f"Fields({_described(self._arrays)})"


@dataclass(slots=True, repr=False, eq=False, weakref_slot=True)
class Reading(Items, Sample):
    """Output of one sensor at one tick in host memory: from a live scene, a recording, or the server of a client.

    Fields are available by attribute, ``reading.lin_acc_b``, or by name, ``reading["lin_acc_b"]``; a field with the
    name of an attribute of this class only by name. A reading with a single field can also be used as that array:
    `len`, iteration, index. With several fields, `len` is the number of envs.

    Its arrays are read-only because all outputs share them; use ``array.copy()`` to modify one. Arrays of a received
    reading are views of the received memory, which they keep alive and unchanged; `copy` has its own memory.

    A field with an event axis is ragged: it holds the rows of all envs one after the other, `[row, ...]`, and `offsets`
    gives the first row of each env. Any other field has one row per env.

    Attributes:
        name: the sensor's name.
        kind: the sensor's kind, e.g. ``"imu"``.
        specs: specs of its fields; a singular selector has no mount axis.
        env_ids: int64 [n], the envs in this reading.
        tick: physics tick of the reading.
        time: time of that tick, s.
        frame: number of the frame on the server; -1 if no server sent the reading.
        seq: number of the message in its stream; -1 if no server sent the reading.
        info: description of the stream; None if no server sent the reading.
    """

    name: str
    kind: str
    specs: tuple[FieldSpec, ...]
    env_ids: Array
    tick: int
    time: float
    _measured: dict[str, Array]
    _truth: dict[str, Array]
    _meta: dict[str, Array]
    _wait: Callable[[], None] | None = None
    _count: str = ""
    """Name of the field that holds the number of rows per env, while ragged fields, if any, are still padded to their
    capacity."""
    _offsets: Array | None = None
    _pose: Array | None = None
    _dt: float = math.nan
    """Time step, s: values that `_meta` lacks are derived from ticks with it."""
    frame: int = -1
    seq: int = -1
    info: StreamInfo | None = None
    capture_time_wall: float = math.nan

    def _arrived(self) -> None:
        if self._wait is not None:
            self._wait()
            self._wait = None
        if self._count:
            self._make_ragged()

    def _make_ragged(self) -> None:
        """Remove the empty rows of fields with an event axis."""
        counts, self._count = self._measured[self._count], ""
        for spec in filter(operator.attrgetter("is_ragged"), self.specs):
            self._offsets = read_only(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))))
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
            IndexError: there is no such env.
        """
        offsets, count = self.offsets, len(self.env_ids)
        if offsets is None:
            raise TypeError(f"reading of {self.name!r}: the sensor has no ragged fields, so there are no rows per env")
        position = operator.index(index)
        if not -count <= position < count:
            raise IndexError(f"reading of {self.name!r}: it has {count} envs, got index {position}")
        position %= count
        return slice(int(offsets[position]), int(offsets[position + 1]))

    @property
    def measured(self) -> Mapping[str, Array]:
        """Field -> array `[n, ...]` as the device would report it; waits for a pending copy to the host."""
        self._arrived()
        return self._measured

    @property
    def truth(self) -> Fields:
        """Field -> array `[n, ...]`, ground truth at the newest capture; empty unless truth was requested."""
        self._arrived()
        return Fields(self._truth)

    def arrays(self) -> dict[str, dict[str, Array]]:
        """Return all arrays: those of `meta`, with `offsets` if there are ragged fields, of `measured` and `truth`."""
        meta = {**self.meta}
        if self._offsets is not None:
            meta["offsets"] = self._offsets
        return {"meta": meta, "measured": self._measured, "truth": self._truth}

    @property
    def array(self) -> Array:
        """Array of the only field.

        Raises:
            TypeError: there are several fields.
        """
        measured = self.measured
        if len(measured) != 1:
            example = f"reading[{next(iter(measured), '')!r}]"
            raise TypeError(
                f"reading of {self.name!r} has several fields: {listed(measured)}. Select one, e.g. {example}."
            )
        return next(iter(measured.values()))

    @overload
    def __getitem__(self, name: str | slice) -> Array: ...
    @overload
    def __getitem__(self, name: int) -> Any: ...
    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return Items.__getitem__(self, name)
        try:
            return self.measured[name]
        except KeyError:
            raise UnknownNameError(f"field of {self.name!r}", name, self._measured) from None

    def __getattr__(self, name: str) -> Array:
        known = [] if name.startswith("_") else self.measured
        if name not in known:
            raise AttributeError(
                f"reading of {self.name!r} has no {name!r}.{nearest(name, known)} Fields: {listed(known)}"
            )
        return self.measured[name]

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._measured
        return any(np.array_equal(each, item) for each in self)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.array) if len(self._measured) == 1 else len(self.env_ids)

    def __iter__(self) -> Iterator[Any]:
        self.array  # noqa: B018 - of several fields none is looped over: an error at once, not at the first item
        return Items.__iter__(self)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._measured]

    @property
    def pose(self) -> Array | None:  # type: ignore[override]  # waits for it here
        """Poses of the sensor, float32 [n, mount, 7]; see `Sample`."""
        self._arrived()
        return self._pose

    @property
    def meta(self) -> Mapping[str, Array]:
        """Values per env `[n]` by their names in recordings, where ``"frame"`` is the number of captures."""
        meta = self._meta
        self._arrived()
        if "stamp" not in meta:
            meta["stamp"] = read_only(meta["capture_tick"].astype(np.float64) * self._dt)
        if "age" not in meta:
            meta["age"] = read_only((self.tick - meta["capture_tick"]).astype(np.float64) * self._dt)
        if "truth_tick" not in meta:
            meta["truth_tick"] = meta["capture_tick"]
        return meta

    def _own(self, name: str) -> Array:
        """Return a value of `meta` that is never derived."""
        self._arrived()
        return self._meta[name]

    @property
    def capture_tick(self) -> Array:
        """int64 [n], tick at which the shown value was captured."""
        return self._own("capture_tick")

    @property
    def truth_tick(self) -> Array:
        """int64 [n], tick of the newest capture, to which `truth` belongs."""
        return self._own("truth_tick" if "truth_tick" in self._meta else "capture_tick")

    @property
    def timestamp(self) -> float:  # type: ignore[override]  # derived here
        """Simulation time of the capture that the first env shows, s; NaN without envs."""
        return self.time - float(self.age[0]) if len(self.env_ids) else math.nan

    @property
    def stamp(self) -> Array:
        """float64 [n], timestamp of the shown value by the sensor's own clock, s."""
        return self.meta["stamp"]

    @property
    def age(self) -> Array:
        """float64 [n], age of the shown value, s."""
        return self.meta["age"]

    @property
    def valid(self) -> Array:
        """Bool [n], whether the shown value has arrived and the engine's state was finite when it was captured."""
        return self._own("valid")

    @property
    def is_new(self) -> Array:
        """Bool [n], whether the shown value arrived in this control step."""
        return self._own("is_new")

    @property
    def captures(self) -> Array:
        """int64 [n], number of captures since the env's reset."""
        return self._own("frame")

    def copy(self) -> Reading:
        """Return a copy in separate memory; received memory can then be released."""
        self._arrived()

        def own(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return {name: read_only(array.copy()) for name, array in arrays.items()}

        return replace(
            self, _measured=own(self._measured), _truth=own(self._truth), _meta=own(self._meta),
            _offsets=None if self._offsets is None else read_only(self._offsets.copy()),
            _pose=None if self._pose is None else read_only(self._pose.copy()),
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        self._arrived()
        return Reading, tuple(getattr(self, each.name) for each in fields(self))

    def _about(self) -> str:
        return _described(self.measured) + (", with truth" if self._truth else "")


def _described(arrays: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {array.dtype.name} {list(array.shape)}" for name, array in arrays.items())


@dataclass(frozen=True, slots=True)
class SceneDescription:
    """Static description of a scene for listeners: engine, time step, environments, sensors and their fields."""

    engine: str
    dt: float
    num_envs: int
    seed: int
    sensors: Mapping[str, Mapping[str, Any]]
    """Name -> ``{"kind", "rate_hz", "fields": [...], "cfg": {...}}``, and ``"mounts": [name, ...]`` where fields have a
    mount axis. ``"frames"``: body and pose on it (m, wxyz) of each mount, where these are constant and equal in all
    environments."""
    first_env: int = 0
    """Global index of env 0, where the scene is a slice of a larger run."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


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
        return {**asdict(self), "center": list(self.center), "half_extents": list(self.half_extents)}


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
            names = ("center", "half_extents")
            return cls(
                Body(int(each["id"]), str(each["name"]), str(each["entity"]), *(_three(each[name]) for name in names))
                for each in values["bodies"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"invalid description of bodies: {type(error).__name__}: {error}") from None


def _three(values: Iterable[Any]) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z


_ITEMS = {"points": (3,), "lines": (2, 3), "arrows": (2, 3), "frames": (7,)}
"""Kind of a `DebugShape` -> shape of an item."""


@dataclass(frozen=True, slots=True)
class DebugShape:
    """One simple shape for a viewer, in world coordinates (m).

    Attributes:
        kind: ``points`` (positions [n, 3]), ``lines`` and ``arrows`` (starts and ends [n, 2, 3]) or ``frames`` (poses
            [n, 7], wxyz).
        data: coordinates, one environment after the other; a tensor is converted.
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

    def __post_init__(self) -> None:
        if self.kind not in _ITEMS:
            raise UnknownNameError("kind of a DebugShape", self.kind, _ITEMS)
        for name in ("data", "colors"):
            if hasattr(value := getattr(self, name), "detach"):  # a tensor, as hooks have them
                object.__setattr__(self, name, value.detach().cpu().numpy())

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as numbers and bytes."""
        colors = None if self.colors is None else self.colors.astype("<f4").tobytes()
        items = self.items.astype("<f4").tobytes()
        return {"kind": self.kind, "items": items, "color": list(self.color), "colors": colors, "size": self.size}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DebugShape:
        """Return the shape described by the result of `to_dict`."""
        colors = None if values["colors"] is None else np.frombuffer(values["colors"], "<f4").reshape(-1, 3)
        red, green, blue = values["color"]
        items = np.frombuffer(values["items"], "<f4")
        return cls(values["kind"], items, (red, green, blue), colors=colors, size=values["size"])

    @classmethod
    def where(
        cls, mask: Any, kind: str, values: Any, color: tuple[float, float, float] = (1.0, 0.2, 0.2)
    ) -> DebugShape:
        """Return a shape from the values `[env, ..., n]` of a tensor where a mask `[env, ...]` is true."""
        return cls(kind, values[mask].cpu().numpy(), color, mask.flatten(1).sum(dim=1).tolist())

    @property
    def items(self) -> Array:
        """Coordinates of all items: points [n, 3], frames [n, 7], lines and arrows [n, 2, 3]."""
        return self.data.reshape(-1, *_ITEMS[self.kind])

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
