"""Fields of several sensors as one tensor for a policy: one gather, into memory that the caller may keep.

Each field is a run of columns. The kernel reads every sensor's own storage through a table of addresses, so that one
launch serves any number of fields of any dtype; the table is made when the observer is bound to its sensors, which is
once, and again where one of them was reconfigured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel
from sensorium.compute.graph import launching
from sensorium.compute.program import Segment
from sensorium.errors import ConfigError, DuplicateNameError, StaleError, UnknownNameError
from sensorium.sensors.core.base import Sensor, declared_fields
from sensorium.spec import VECTOR_AXES, FieldSpec

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

TRUE = "truth:"
"""What the names of columns with ground truth begin with."""
FIRST_BUFFERS = 2
"""Buffers that take turns from the start."""
MOST_BUFFERS = 4
"""Buffers that an observer keeps for itself; what is needed beyond belongs to those who hold it."""

_USE_COUNT: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
"""How many tensors share a storage; None where torch cannot tell."""

FLOAT32, FLOAT64, INT32, INT64, INT16, BYTE, FLAG = range(7)
_CODES = {
    torch.float32: FLOAT32, torch.float64: FLOAT64, torch.int32: INT32, torch.int64: INT64, torch.int16: INT16,
    torch.uint8: BYTE, torch.bool: FLAG,
}  # fmt: skip


# Kernel ---------------------------------------------------------------------------------------------------------------


@wp.struct
class Piece:
    """Consecutive columns that lie side by side in one field.

    Attributes:
        address: of the first element of env 0.
        stride: bytes from one env to the next.
        column: the first column.
        count: how many columns.
        code: the dtype.
        far: what +inf becomes, and with a minus -inf; infinite to leave them.
    """

    address: wp.uint64
    stride: wp.uint64
    column: wp.int32
    count: wp.int32
    code: wp.int32
    far: wp.float32


@wp.func
def _near(value: wp.float32, far: wp.float32) -> wp.float32:
    """Put `far` in the place of an infinite value."""
    if wp.isinf(value):
        return wp.where(value > 0.0, far, -far)
    return value


@kernel
def _gather(rows: Rows, lanes: int, width: int, pieces: wp.array[Piece], target: wp.uint64) -> None:
    i, lane = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    row = target + wp.uint64(env) * wp.uint64(4 * width)
    for p in range(lane, pieces.shape[0], lanes):
        piece = pieces[p]
        source = piece.address + wp.uint64(env) * piece.stride
        n = piece.count
        out = wp.array(ptr=row + wp.uint64(4 * piece.column), shape=(n,), dtype=wp.float32)
        if piece.code == wp.static(FLOAT32):
            floats = wp.array(ptr=source, shape=(n,), dtype=wp.float32)
            if wp.isinf(piece.far):
                fours = n // 4
                many = wp.array(ptr=source, shape=(fours,), dtype=wp.vec4)
                many_out = wp.array(ptr=row + wp.uint64(4 * piece.column), shape=(fours,), dtype=wp.vec4)
                for k in range(fours):
                    many_out[k] = many[k]
                for k in range(4 * fours, n):
                    out[k] = floats[k]
            else:
                for k in range(n):
                    out[k] = _near(floats[k], piece.far)
        elif piece.code == wp.static(FLOAT64):
            doubles = wp.array(ptr=source, shape=(n,), dtype=wp.float64)
            for k in range(n):
                out[k] = _near(wp.float32(doubles[k]), piece.far)
        elif piece.code == wp.static(INT32):
            ints = wp.array(ptr=source, shape=(n,), dtype=wp.int32)
            for k in range(n):
                out[k] = wp.float32(ints[k])
        elif piece.code == wp.static(INT64):
            longs = wp.array(ptr=source, shape=(n,), dtype=wp.int64)
            for k in range(n):
                out[k] = wp.float32(longs[k])
        elif piece.code == wp.static(INT16):
            shorts = wp.array(ptr=source, shape=(n,), dtype=wp.int16)
            for k in range(n):
                out[k] = wp.float32(shorts[k])
        else:
            small = wp.array(ptr=source, shape=(n,), dtype=wp.uint8)
            for k in range(n):
                out[k] = wp.float32(small[k])


# Memory ---------------------------------------------------------------------------------------------------------------


class _Buffer:
    """Memory for one observation. Readers get aliases of the tensor, so that its storage tells whether one is left."""

    def __init__(self, shape: tuple[int, int], device: str) -> None:
        with torch.inference_mode(False):  # a tensor made in that mode could never be used in a backward pass
            self.tensor = torch.empty(shape, dtype=torch.float32, device=device)
        self._storage = self.tensor.untyped_storage()
        self._alone = self._uses()
        self.address = self.tensor.data_ptr()
        self.runs = 0
        self.segment: Segment | None = None

    def _uses(self) -> int:
        return 0 if _USE_COUNT is None else _USE_COUNT(self._storage._cdata)

    @property
    def has_moved(self) -> bool:
        """Whether torch moved the memory, for another process to see it, which may hold it without being counted."""
        return self.tensor.data_ptr() != self.address

    @property
    def is_free(self) -> bool:
        """Whether nobody holds an observation in it, or a view of one; False where torch cannot tell."""
        return self.runs == 0 or (_USE_COUNT is not None and self._uses() == self._alone)


# Fields ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One field as it was asked for: name of its columns, full name of the sensor, field, branch."""

    name: str
    sensor: str
    field: str
    is_measured: bool


class _Source:
    """One field of one sensor, and where the gather reads it."""

    def __init__(self, wanted: _Wanted, sensor: Sensor[Any, Any], spec: FieldSpec) -> None:
        self.wanted, self.sensor, self.spec = wanted, sensor, spec
        self.tensor = value = self._value()
        self.is_staged = not (sensor.uses_ring_pipeline and value.is_contiguous() and value.dtype in _CODES)
        if self.is_staged:
            self.tensor = torch.empty(value.shape, dtype=torch.float32, device=value.device)
        self.shape = tuple(value.shape[1:])

    def _value(self) -> torch.Tensor:
        return self.sensor.own_tensors(is_measured=self.wanted.is_measured)[self.spec.name]

    def stage(self) -> None:
        """Copy a field whose memory may be another each time to where the gather reads it."""
        self.tensor.copy_(self._value())

    @property
    def count(self) -> int:
        """Number of columns."""
        return math.prod(self.shape)

    def pieces(self, column: int, far: float, split: bool) -> Iterator[tuple[float, ...]]:
        """Yield rows of the table from a column on: one for all, or, `split`, one for each column."""
        tensor, size = self.tensor, self.tensor.element_size()
        stride = size * self.count
        parts = [(k, 1) for k in range(self.count)] if split else [(0, self.count)] if self.count else []
        for k, count in parts:
            yield tensor.data_ptr() + k * size, stride, column + k, count, _CODES[tensor.dtype], far

    def bounds(self, far: float) -> tuple[float, float]:
        """Return what no value is below or above; infinite where nothing is known."""
        spec, is_measured = self.spec, self.wanted.is_measured
        if spec.dtype == "bool" or spec.kind == "flag":
            return 0.0, 1.0
        if spec.dtype == "uint8":
            return max(0.0, spec.low), min(255.0, spec.high)
        if spec.kind == "rotation" or (spec.role == "pose" and spec.axes[-1:] == ("wxyz",)):
            return -1.0, 1.0
        from sensorium.sensors.rays.ray_cfg import RayCfg  # slow to import, and needed where rays are observed only

        cfg, is_true = self.sensor.cfg, not is_measured or self._is_unaltered()
        if isinstance(cfg, RayCfg) and spec.role == "range":
            if not is_true and not (cfg.is_clean and spec.kind == "vector"):
                return -math.inf, math.inf
            miss = far if math.isinf(cfg.miss) else cfg.miss
            return min(0.0, miss), max(cfg.max_distance, miss)
        if is_true or spec.kind not in ("vector", "rotation"):
            return spec.low, spec.high
        return -math.inf, math.inf

    def _is_unaltered(self) -> bool:
        """Whether nothing can make the measured field differ from a true one, but for its age."""
        line = self.sensor.line
        if line.work_out is line.truth_out:
            return True
        altered = {field for _, field in line.knobs.tables}
        return not (line.has_own_chain or line.has_branches or line.hooks.post or self.spec.name in altered)

    @property
    def units(self) -> list[str]:
        """The unit of each column; where the parts of a vector have their own, they are listed in the spec's."""
        parts = self.spec.unit.split(", ")
        parts = parts if self.shape and len(parts) == self.shape[-1] else [self.spec.unit]
        return parts * (self.count // len(parts))

    @property
    def columns(self) -> list[str]:
        """A name of each column for people, such as ``imu.ang_vel_b[x]`` or ``feet.force[FL_foot,z]``."""
        words: list[Sequence[object]] = []
        for axis, size in zip(self.spec.axes, self.shape, strict=True):
            if axis in VECTOR_AXES and size == len(axis):
                words.append(axis)
            elif axis == "mount" and self.sensor.mount is not None and len(self.sensor.mount.names) == size:
                words.append(self.sensor.mount.names)
            else:
                words.append(range(size))
        if not words:
            return [self.wanted.name]
        return [f"{self.wanted.name}[{','.join(map(str, each))}]" for each in product(*words)]


class Observer:
    """Fields of a scene's sensors as one float32 tensor `[env, column]`; calling it returns the newest one.

    ``look = scene.observer("imu.ang_vel_b", "feet.found", truth=("imu.lin_vel_b",))`` makes one, and ``look()`` brings
    the sensors up to date as reading them does, and gathers all columns in one launch. The tensor is the caller's: it
    is never written again while it, or a view of it, is held. Flags, ids and other numbers become float32.

    Args:
        scene: whose sensors.
        fields: ``"sensor.field"``, or ``"sensor"`` for all its fields; columns are in this order.
        truth: further fields, from the ground truth, whose columns follow and are called ``truth:sensor.field``; True
            takes all `fields` from there.
        replace_inf: what +inf becomes (and with a minus -inf), e.g. the greatest range of a scan; None leaves them.

    Attributes:
        names: name -> slice of its columns, in order.
        low: float32 [column], bounds for ``gymnasium.spaces.Box(look.low, look.high)``, -inf where there is none.
        high: float32 [column], +inf where there is none.
        units: the unit of each column.
        shape: `(env, column)`.
        dtype: ``torch.float32``.

    Raises:
        UnknownNameError, SelectionError: no such sensor or field, or several; the message names what there is.
        DuplicateNameError: a field was given twice.
        ConfigError: nothing to observe, a field that is no tensor with an env axis, or `replace_inf` is not finite.
        StaleError: when called: a sensor was removed, or reconfigured so that the field is gone or of another shape.
    """

    dtype = torch.float32

    def __init__(
        self,
        scene: Scene,
        fields: Iterable[str],
        *,
        truth: bool | str | Iterable[str] = (),
        replace_inf: float | None = None,
    ) -> None:
        if replace_inf is not None and not math.isfinite(replace_inf):
            raise ConfigError.single("Observer", "replace_inf", replace_inf, "a finite number, or None to keep +inf")
        self._scene = scene
        self._compute: Compute = scene.compute
        self._far = math.inf if replace_inf is None else float(replace_inf)
        self._wanted = self._resolve(list(fields), truth)
        self._buffers: list[_Buffer] = []
        self._turn = 0
        self._bind()
        slices, start = {}, 0
        for source in self._sources:
            slices[source.wanted.name] = slice(start, start + source.count)
            start += source.count
        self.names: Mapping[str, slice] = MappingProxyType(slices)
        self.shape = (scene.num_envs, start)
        self._shapes = {source.wanted.name: source.shape for source in self._sources}
        self._buffers = [self._new_buffer() for _ in range(FIRST_BUFFERS)]

    # Which fields -----------------------------------------------------------------------------------------------------

    def _resolve(self, fields: list[str], truth: bool | str | Iterable[str]) -> list[_Wanted]:
        if truth is True:
            asked = [(field, False) for field in fields]
        else:
            true = [truth] if isinstance(truth, str) else list(truth or ())
            asked = [*((field, True) for field in fields), *((field, False) for field in true)]
        if not asked:
            fix = 'Name at least one: scene.observer("imu.ang_vel_b").'
            raise ConfigError.single("Observer", "fields", (), "fields of sensors", fix)
        wanted: dict[str, _Wanted] = {}
        for text, is_measured in asked:
            for each in self._named(text, is_measured):
                if each.name in wanted:
                    raise DuplicateNameError(f"Observer: {each.name!r} was given twice; its columns would be the same")
                wanted[each.name] = each
        return list(wanted.values())

    def _named(self, text: object, is_measured: bool) -> Iterator[_Wanted]:
        """Yield what one name means: a field, or all fields of a sensor."""
        scene, mark = self._scene, "" if is_measured else TRUE
        if not isinstance(text, str):
            raise ConfigError.single("Observer", "fields", text, "names such as 'imu.ang_vel_b'")
        if text in scene:
            sensor = scene[text]
            for spec in sensor.specs:
                name = text if sensor.single else f"{text}.{spec.name}"
                yield _Wanted(mark + name, sensor.name, spec.name, is_measured)
            return
        head, _, field = text.rpartition(".")
        try:
            sensor = scene[head or text]
        except UnknownNameError:
            known = [f"{name}.{spec.name}" for name in scene for spec in self._specs_of(name)]
            raise UnknownNameError("observation", text, [*scene, *known], "Write sensor.field, or a sensor.") from None
        yield _Wanted(mark + text, sensor.name, _field_of(sensor, field), is_measured)

    def _specs_of(self, name: str) -> Sequence[FieldSpec]:
        """Return the fields of a sensor for a message; a discovered one is not built for that."""
        built = self._scene._sensors.get(name)
        return () if built is None else built.specs

    # Where they are ---------------------------------------------------------------------------------------------------

    @launching
    def _bind(self) -> None:
        """Find the memory of every field; segments that read elsewhere are forgotten."""
        sources = [self._source(wanted) for wanted in self._wanted]
        self._sources = sources
        readers: dict[str, tuple[Sensor[Any, Any], bool]] = {}
        for source in sources:  # one that is measured as well needs no second visit for its truth
            name = source.sensor.name
            readers[name] = (source.sensor, source.wanted.is_measured or readers.get(name, (None, False))[1])
        self._readers = list(readers.values())
        self._staged = [source for source in sources if source.is_staged]
        split = not self._compute.is_cpu  # neighbouring threads write neighbouring columns there
        table: list[Any] = []
        column = 0
        for source in sources:
            table += source.pieces(column, self._far, split)
            column += source.count
        if not column:
            got = [wanted.name for wanted in self._wanted]
            raise ConfigError.single("Observer", "fields", got, "fields with at least one element")
        pieces: Any = np.array(table, dtype=Piece.numpy_dtype())  # type: ignore[attr-defined]
        self._pieces = wp.array(pieces, dtype=Piece, device=self._compute.wp_device)
        self._lanes = len(table) if split else 1
        for buffer in self._buffers:
            buffer.segment = None
        for name in ("low", "high", "units", "columns"):
            self.__dict__.pop(name, None)

    def _source(self, wanted: _Wanted) -> _Source:
        """Return where a field is now; raise `StaleError` where it has gone."""
        if wanted.sensor not in list(self._scene):  # another one that ends in this name is not meant
            raise StaleError(
                f"observer: sensor {wanted.sensor!r} is no longer in the scene, so {wanted.name!r} cannot be "
                "observed; make a new observer: scene.observer(...)"
            )
        sensor = self._scene[wanted.sensor]
        spec = next((spec for spec in sensor.specs if spec.name == wanted.field), None)
        if spec is None:
            raise StaleError(
                f"observer: sensor {wanted.sensor!r} was reconfigured and has no field {wanted.field!r} any more; make "
                "a new observer: scene.observer(...)"
            )
        source = _Source(wanted, sensor, spec)
        before = self.__dict__.get("_shapes", {}).get(wanted.name, source.shape)
        if source.shape != before:
            envs = self._scene.num_envs
            raise StaleError(
                f"observer: sensor {wanted.sensor!r} was reconfigured and its field {wanted.field!r} has the shape "
                f"{[envs, *source.shape]}, before {[envs, *before]}; make a new observer: scene.observer(...)"
            )
        return source

    # Looking ----------------------------------------------------------------------------------------------------------

    def __call__(self) -> torch.Tensor:
        """Return what the sensors show now, float32 `[env, column]`; it stays as it is for as long as it is held."""
        if any(sensor.is_retired for sensor, _ in self._readers):
            self._bind()
        for sensor, is_measured in self._readers:
            sensor.bring_up_to_date(is_measured=is_measured)
        for source in self._staged:
            source.stage()
        buffer = self._next_buffer()
        if buffer.segment is None and buffer.runs == 0:
            self._launch(buffer)  # it may never come back: recording is for those that do
        else:
            if buffer.segment is None:
                buffer.segment = self._compute.record(lambda: self._launch(buffer))
            buffer.segment.run()
        buffer.runs += 1
        return buffer.tensor.detach()

    def _launch(self, buffer: _Buffer) -> None:
        target = wp.uint64(buffer.address)
        self._compute.launch(_gather, (self._lanes,), [self._lanes, self.shape[1], self._pieces, target])

    def _next_buffer(self) -> _Buffer:
        """Return the buffer that was used longest ago of those that nobody holds, or a new one."""
        buffers = self._buffers
        for k in range(len(buffers)):
            turn = (self._turn + k) % len(buffers)
            if buffers[turn].has_moved:
                buffers[turn] = self._new_buffer()
            if buffers[turn].is_free:
                self._turn = turn + 1
                return buffers[turn]
        buffer = self._new_buffer()
        if len(buffers) < MOST_BUFFERS:
            buffers.append(buffer)
            self._turn = 0
        else:  # the oldest one is left to those who hold it
            self._turn %= len(buffers)
            buffers[self._turn] = buffer
            self._turn += 1
        return buffer

    def _new_buffer(self) -> _Buffer:
        return _Buffer(self.shape, self._compute.device)

    # What the columns are ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> slice:
        try:
            return self.names[name]
        except KeyError:
            raise UnknownNameError("observation", name, self.names) from None

    def split(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name -> view of an observation with the field's own shape, `[env, ...]`.

        Args:
            obs: `[..., column]`, of any leading axes, e.g. `[time, env, column]` of a rollout buffer.

        Raises:
            ValueError: the last axis is not that of the columns.
        """
        if obs.shape[-1:] != self.shape[-1:]:
            raise ValueError(f"Observer.split: got shape {tuple(obs.shape)}, expected [..., {self.shape[-1]}]")
        lead = obs.shape[:-1]
        return {name: obs[..., part].view(*lead, *self._shapes[name]) for name, part in self.names.items()}

    @cached_property
    def low(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32 [column], what no value is below; -inf where nothing is known. See `high`."""
        return self._bounds(0)

    @cached_property
    def high(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32 [column], what no value is above, in the column's unit; +inf where nothing is known.

        Flags, quaternions, and the true values of fields that have bounds; imperfections may lead out of these.
        """
        return self._bounds(1)

    def _bounds(self, side: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        parts = [np.full(source.count, source.bounds(self._far)[side], np.float32) for source in self._sources]
        return np.concatenate(parts)

    @cached_property
    def units(self) -> list[str]:
        """The unit of each column, as text; ``"1"`` for none."""
        return [unit for source in self._sources for unit in source.units]

    @cached_property
    def columns(self) -> list[str]:
        """A name of each column for people, such as ``imu.ang_vel_b[x]`` or ``scan.distances[17]``."""
        return [column for source in self._sources for column in source.columns]

    def __len__(self) -> int:
        return self.shape[1]

    def __repr__(self) -> str:
        rows = [("columns", "name", "shape", "unit", "bounds")]
        for source in self._sources:
            part, spec = self.names[source.wanted.name], source.spec
            shape = ", ".join(f"{axis} {size}" for axis, size in zip(spec.axes, source.shape, strict=True))
            low, high = source.bounds(self._far)
            bounds = f"{low:g} to {high:g}" if math.isfinite(low) or math.isfinite(high) else "-"
            rows.append((f"{part.start}:{part.stop}", source.wanted.name, shape or "-", spec.unit, bounds))
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"Observer({self.shape[0]} env(s), {self.shape[1]} columns, float32 on {self._compute.device})"
        return "\n  ".join([title, *lines])


def _field_of(sensor: Sensor[Any, Any], field: str) -> str:
    """Return the name that a field, or an alias of it, has in a sensor's specs."""
    names = [spec.name for spec in sensor.specs]
    if field in names:
        return field
    data_class = sensor.data_class
    own = sensor.own_tensors(is_measured=False)
    title = f"Observer of {sensor.name!r}"
    if field in declared_fields(data_class):
        fix = f"Its config must ask for it: fields=(..., {field!r})."
        raise ConfigError.single(title, "field", field, f"one that it computes: {', '.join(names)}", fix)
    if not field.startswith("_") and hasattr(data_class, field) and not sensor.single:
        if isinstance(getattr(data_class, field), property):
            value = getattr(sensor._package(own), field)
            found = [name for name, tensor in own.items() if tensor is value]
            if found:
                return found[0]
    if field in getattr(data_class, "__dataclass_fields__", {}) or (
        not field.startswith("_") and hasattr(data_class, field)
    ):
        expected = f"a tensor with an env axis: {', '.join(names)}"
        raise ConfigError.single(title, "field", field, expected, "What is the same at every sample is no observation.")
    raise UnknownNameError("field", field, names, f"These are the fields of {sensor.name!r}.")


__all__ = ["Observer"]
