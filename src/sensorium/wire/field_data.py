"""Data of a sensor of the scene: measured and true fields, each a view of the received memory."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from sensorium.errors import UnknownNameError, WireError, listed, nearest
from sensorium.spec import FieldSpec
from sensorium.wire.data import Array, Items, SensorData
from sensorium.wire.header import TRUTH
from sensorium.wire.layout import Block, Layout, plan
from sensorium.wire.raw_data import RawData, ReadOnly, put

_BRANCH_SLOTS = ("_blocks", "_layout", "_source", "_views")


class FieldBranch(Items, ReadOnly):
    """Fields of a sensor, measured or true: by attribute, ``data.lin_acc_b``, or by name, ``data["lin_acc_b"]``.

    Each field is a read-only view `[env, ...]` of the received memory (`[row, ...]` if ragged), created on demand. Data
    with a single field can also be used as that array: `len`, iteration, index. With several fields, `len` is the
    number of envs.
    """

    __slots__ = ()

    _source: RawData
    _layout: Layout
    _blocks: Mapping[str, Block]
    _views: dict[str, Array]

    def _fill(self, source: RawData, layout: Layout, blocks: Mapping[str, Block]) -> None:
        put(self, "_source", source)
        put(self, "_layout", layout)
        put(self, "_blocks", blocks)
        put(self, "_views", {})

    @property
    def specs(self) -> tuple[FieldSpec, ...]:
        """Specification of each field."""
        return self._source.info.specs

    @property
    def fields(self) -> Mapping[str, Array]:
        """All fields, name -> array."""
        return MappingProxyType({name: self._field(name) for name in self._blocks})

    @property
    def array(self) -> Array:
        """Array of the only field.

        Raises:
            TypeError: there are several fields.
        """
        if len(self._blocks) != 1:
            raise TypeError(
                f"data of {self._source.info.name!r} have several fields: {listed(self._blocks)}. Select one, e.g. "
                f"data[{next(iter(self._blocks), '')!r}]."
            )
        return self._field(next(iter(self._blocks)))

    @property
    def offsets(self) -> npt.NDArray[np.int64] | None:
        """Start of the rows of each env in ragged fields, int64 `[env + 1]`; None without such fields."""
        return self._meta("offsets") if "offsets" in self._layout.meta else None

    def rows(self, index: int) -> slice:
        """Return the rows of ragged fields that belong to ``env_ids[index]``.

        Raises:
            TypeError: the sensor has no ragged field.
            IndexError: there is no such env.
        """
        offsets, count = self.offsets, self._source.header.num_envs
        if offsets is None:
            raise TypeError(
                f"data of {self._source.info.name!r} have no field with an event axis, so rows() is undefined"
            )
        position = operator.index(index)
        if not -count <= position < count:
            raise IndexError(f"data of {self._source.info.name!r} have {count} envs, got index {position}")
        position %= count
        return slice(int(offsets[position]), int(offsets[position + 1]))

    def _field(self, name: str) -> Array:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self._blocks[name].view(self._source.array)
        return view

    def _meta(self, what: str) -> Any:
        return self._layout.meta[what].view(self._source.array)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in self._blocks:
            known = list(self._blocks) if not name.startswith("_") else []
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}.{nearest(name, known)} Fields: {listed(known)}"
            )
        return self._field(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._blocks]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: str | slice) -> Array: ...
    def __getitem__(self, index: str | int | slice) -> Any:
        if not isinstance(index, str):
            return super().__getitem__(index)
        if index not in self._blocks:
            raise UnknownNameError(f"field of {self._source.info.name!r}", index, self._blocks)
        return self._field(index)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._blocks
        return any(np.array_equal(each, item) for each in self)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.array) if len(self._blocks) == 1 else self._source.header.num_envs

    def __iter__(self) -> Iterator[Any]:
        self.array  # noqa: B018 - of several fields none is looped over: an error at once, not at the first item
        return super().__iter__()


class TruthData(FieldBranch):
    """True values sent with the measured ones: those of the newest capture, without delay."""

    __slots__ = _BRANCH_SLOTS

    def __init__(self, source: RawData, layout: Layout) -> None:
        self._fill(source, layout, layout.truth)

    @property
    def capture_tick(self) -> npt.NDArray[np.int64]:
        """Tick of the capture of the truth, int64 `[env]`."""
        return self._meta("truth_tick")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"TruthData({self._source.info.name!r}, {_described(self._blocks)})"


class FieldData(FieldBranch, SensorData):
    """Data of a sensor of the scene at one frame; see `FieldBranch` for the fields.

    A field with the same name as an attribute of this class is only available by name: ``data["tick"]``.

    Raises:
        WireError: the length of the body does not match the stream's fields and the header, or its ragged rows are not
            in order.
    """

    __slots__ = (*_BRANCH_SLOTS, "_truth")

    _truth: TruthData | None

    def __init__(self, raw: RawData) -> None:
        SensorData.__init__(self, raw)
        header, info = raw.header, raw.info
        layout = plan(info.specs, header.num_envs, header.rows, bool(header.flags & TRUTH))
        if layout.nbytes != header.body_bytes:
            raise WireError(
                f"a message of {info.name!r} has a body of {header.body_bytes} bytes, expected {layout.nbytes} for "
                f"{header.num_envs} envs with {header.rows} rows of {listed(spec.name for spec in info.specs)}."
            )
        self._fill(raw, layout, layout.measured)
        if "offsets" in layout.meta:
            offsets = self._meta("offsets")
            if offsets[0] != 0 or offsets[-1] != header.rows or (offsets[1:] < offsets[:-1]).any():
                raise WireError(
                    f"a message of {info.name!r} has row offsets that do not ascend from 0 to {header.rows}."
                )
        put(self, "_truth", TruthData(raw, layout) if layout.truth else None)

    @property
    def truth(self) -> TruthData | None:
        """True values; None if the subscription did not request them."""
        return self._truth

    @property
    def capture_tick(self) -> npt.NDArray[np.int64]:
        """Tick of the capture of the shown value, int64 `[env]`."""
        return self._meta("capture_tick")  # type: ignore[no-any-return]

    @property
    def stamps(self) -> npt.NDArray[np.float64]:
        """Time stamp of the shown value from the sensor's own clock, float64 `[env]`, s."""
        return self._meta("stamp")  # type: ignore[no-any-return]

    @property
    def ages(self) -> npt.NDArray[np.float64]:
        """Age of the shown value, float64 `[env]`, s of simulation time."""
        return self._meta("age")  # type: ignore[no-any-return]

    @property
    def captures(self) -> npt.NDArray[np.int64]:
        """Number of captures since the env's reset, int64 `[env]`."""
        return self._meta("frame")  # type: ignore[no-any-return]

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Whether the shown value has arrived and the engine's state was finite at its capture, bool `[env]`."""
        return self._meta("valid")  # type: ignore[no-any-return]

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Whether the shown value arrived in this control step, bool `[env]`."""
        return self._meta("is_new")  # type: ignore[no-any-return]

    def _about(self) -> str:
        return _described(self._blocks) + (", with truth" if self._truth is not None else "")


def _described(blocks: Mapping[str, Block]) -> str:
    return ", ".join(
        f"{name} {re.sub('[<>=|]', '', block.dtype.name)} {list(block.shape)}" for name, block in blocks.items()
    )
