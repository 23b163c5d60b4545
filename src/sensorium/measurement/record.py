"""Memory of samples: one contiguous `[env, mount, ...]` block per field, with a Warp view.

All of `raw`, `slot`, `data` and `timeline.at(k)` in a sensor's hooks are instances of `Record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import warp as wp

from sensorium.compute.rows import bytes_at, words_at
from sensorium.errors import UnknownNameError
from sensorium.spec import DTYPES, FieldSpec

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}


def warp_twin(tensor: torch.Tensor, spec: FieldSpec) -> Any:
    """Return a Warp array on the same memory, of vec3 or vec4 where a float32 field contains vectors.

    Warp's arrays have at most four axes: further axes are merged into the last one.
    """
    if tensor.dtype == torch.float32 and spec.is_vector:  # an axis of three mounts is not a vector
        return wp.from_torch(tensor, dtype=wp.vec3 if tensor.shape[-1] == 3 else wp.vec4)
    return wp.from_torch(tensor.flatten(3) if tensor.dim() > 4 else tensor)


class Words(NamedTuple):
    """Rows of a tensor as machine words, for kernels that copy any dtype: 4-byte words where they fit, otherwise bytes.

    Kernels take the address instead of a typed array, so that one kernel serves all dtypes. A generic kernel would be
    compiled per dtype, and Warp 1.19 confuses such overloads in captured CPU graphs.
    """

    per_row: int
    """Number of words per row."""
    wide: int
    """1 for 4-byte words, 0 for bytes."""
    address: Any
    """Address of the first row, wp.uint64."""


def words_of(tensor: torch.Tensor, lead: int = 1) -> Words:
    """Return a contiguous tensor's rows as words; the first `lead` axes are rows."""
    if not tensor.is_contiguous():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} is not contiguous")
    rows = int(torch.Size(tensor.shape[:lead]).numel())
    nbytes = tensor.numel() * tensor.element_size() // max(rows, 1)
    wide = int(tensor.element_size() % 4 == 0)
    return Words(nbytes // 4 if wide else nbytes, wide, wp.uint64(tensor.data_ptr()))


@wp.func
def copy_word(wide: int, source: wp.uint64, source_at: int, target: wp.uint64, target_at: int) -> None:
    """Copy one word (4 bytes, or 1) from one place to another."""
    if wide != 0:
        words_at(target, target_at, 1)[0] = words_at(source, source_at, 1)[0]
    else:
        bytes_at(target, target_at, 1)[0] = bytes_at(source, source_at, 1)[0]


class Record:
    """One sample of one sensor in all envs: a tensor per field, at fixed addresses.

    An assignment to a field copies into its memory; it never rebinds the name.

    Attributes:
        flat: all float32 fields as one tensor `[env * columns]`, for element-wise operations on all fields at once.
        warp: the same fields as Warp arrays.
    """

    __slots__ = ("_views", "flat", "warp")
    _views: dict[str, torch.Tensor]
    flat: torch.Tensor
    warp: SimpleNamespace

    def __init__(self, specs: Iterable[FieldSpec], num_envs: int, device: str) -> None:
        specs = list(specs)
        floats = [spec for spec in specs if spec.dtype == "float32"]
        flat = torch.zeros(num_envs * sum(spec.columns for spec in floats), dtype=torch.float32, device=device)
        views: dict[str, torch.Tensor] = {}
        offset = 0
        for spec in specs:
            shape = (num_envs, *spec.shape)
            if spec.dtype == "float32":
                size = num_envs * spec.columns
                views[spec.name] = flat[offset : offset + size].view(shape)
                offset += size
            else:
                views[spec.name] = torch.zeros(shape, dtype=TORCH_DTYPES[spec.dtype], device=device)
        object.__setattr__(self, "_views", views)
        object.__setattr__(self, "flat", flat)
        twins = {spec.name: warp_twin(views[spec.name], spec) for spec in specs if spec.columns}
        object.__setattr__(self, "warp", SimpleNamespace(**twins))

    def __getattr__(self, name: str) -> torch.Tensor:
        try:
            return self._views[name]
        except KeyError:
            raise AttributeError(str(UnknownNameError("field", name, self._views))) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._views:
            raise AttributeError(str(UnknownNameError("field", name, self._views)))
        view = self._views[name]
        value = torch.as_tensor(value, device=view.device)
        try:
            view.copy_(value)
        except RuntimeError:
            raise ValueError(
                f"field {name!r} has shape {tuple(view.shape)} and dtype {view.dtype}; a value of shape "
                f"{tuple(value.shape)} does not fit into it"
            ) from None

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._views[name]

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={tuple(view.shape)} {str(view.dtype)[6:]}" for name, view in self._views.items())
        return f"Record({fields})"

    def items(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Return field names and tensors."""
        return self._views.items()

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that own this record's memory: the float32 fields as one, then each other field."""
        others = [view for view in self._views.values() if view.dtype != torch.float32]
        return [self.flat, *others] if self.flat.numel() else others

    def copy_from(self, values: Mapping[str, torch.Tensor] | Record) -> None:
        """Copy all fields of another record, or of a mapping, into this one."""
        for name, view in self._views.items():
            view.copy_(values[name])


class Timeline:
    """Current and previous records of a sensor.

    `at(0)` is the current sample, `at(k)` the one k samples earlier. Until k samples exist, `at(k)` is the first sample
    before any processing; in a hook that fills the first sample itself, it is zero. A hook that has already transformed
    its data to another frame initialises its memory with `timeline.previous("temperature", now=data.temperature)`
    instead.

    Args:
        records: records, newest first.
        is_first: returns the bool [env] mask of envs whose current sample is the first since their reset.
    """

    __slots__ = ("_is_first", "_records")

    def __init__(self, records: list[Record], is_first: Callable[[], torch.Tensor]) -> None:
        self._records = records
        self._is_first = is_first

    @property
    def first(self) -> torch.Tensor:
        """Bool [env]: whether the current sample is the first one since the env's reset."""
        return self._is_first()

    def at(self, k: int, copy: bool = False) -> Record:
        """Return the record of k samples ago.

        Args:
            k: number of samples.
            copy: must be False: the record itself is returned. Use `timeline.at(k).field.clone()` for a copy.

        Raises:
            IndexError: k exceeds the sensor's `lookback`.
            ValueError: `copy` is True.
        """
        if copy:
            raise ValueError("copy: got True, expected False. Use clone() on the required field.")
        if not 0 <= k < len(self._records):
            raise IndexError(
                f"timeline.at({k}) exceeds the samples that this sensor keeps; "
                f"set the class attribute `lookback = {max(k, 1)}`"
            )
        return self._records[k]

    def previous(self, field: str, now: torch.Tensor, k: int = 1) -> torch.Tensor:
        """Return a field of k samples ago, `[env, ...]`; `now`, the initial value, where no such sample exists."""
        then = self.at(k)[field]
        return torch.where(self.first.reshape(-1, *(1,) * (then.dim() - 1)), now, then)
