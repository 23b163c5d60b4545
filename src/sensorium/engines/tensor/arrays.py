"""Arrays of a `TensorEngine` under their public names; an assignment copies into the tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from sensorium.engines.base import NATIVE_ARRAY
from sensorium.engines.contacts import is_contact
from sensorium.errors import ArgumentError, UnknownNameError
from sensorium.spec import Requirement, contact_array, contact_columns

if TYPE_CHECKING:
    from sensorium.engines.tensor.engine import TensorEngine


class Array:
    """An array of a `TensorEngine`; an assignment copies into the tensor."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, engine: TensorEngine | None, owner: type) -> torch.Tensor:
        return self if engine is None else engine._get(self._name)  # type: ignore[return-value]

    def __set__(self, engine: TensorEngine, value: Any) -> None:
        engine._assign(self._name, value)


class NativeArrays(Mapping[str, torch.Tensor]):
    """Outputs of native sensors by sensor name, float32 `[env, dim]`; an assignment copies into the tensor."""

    def __init__(self, engine: TensorEngine) -> None:
        self._engine = engine

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            fix = "Declare it in TensorEngine(..., native={name: dim})."
            raise UnknownNameError("native sensor", name, self._names, fix)
        return self._engine._get(f"{NATIVE_ARRAY}{name}")

    def __setitem__(self, name: str, value: Any) -> None:
        self[name]
        self._engine._assign(f"{NATIVE_ARRAY}{name}", value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(sensor.name for sensor in self._engine.native_sensors())


class ContactArrays(Mapping[Requirement, torch.Tensor]):
    """Contact reports: CONTACT_REPORT to its tensor `[env, primary, slot, column]`, float32.

    A report that a sensor requires, or that is first looked up here, gets a tensor of zeros (no contact) at a fixed
    address; `CONTACT_REPORT` defines its columns. An assignment copies into the tensor. Once it exists, the name of the
    array, `contact_array(report)`, is accepted as a key as well.
    """

    def __init__(self, engine: TensorEngine) -> None:
        self._engine = engine
        self._reports: dict[str, Requirement] = {}

    def __getitem__(self, report: Requirement | str) -> torch.Tensor:
        return self._engine._get(self._name(report))

    def __setitem__(self, report: Requirement | str, value: Any) -> None:
        self._engine._assign(self._name(report), value)

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self._reports.values())

    def __len__(self) -> int:
        return len(self._reports)

    def field(self, report: Requirement | str, name: str) -> torch.Tensor:
        """Return one field of a report as a writable view of its tensor.

        Args:
            report: a CONTACT_REPORT, or the name of its array.
            name: name of the field.

        Returns:
            `[env, primary, slot, 1 or 3]`.

        Raises:
            UnknownNameError: there is no such report, or it has no such field.
        """
        array = self[report]
        columns = contact_columns(self._reports[self._name(report)])
        if name not in columns:
            raise UnknownNameError("field of the contact report", name, columns)
        return array[..., columns[name]]

    def _name(self, report: Requirement | str) -> str:
        if isinstance(report, str):
            if report not in self._reports:
                fix = "Use its requirement, CONTACT_REPORT(...), which creates the report."
                raise UnknownNameError("contact report", report, self._reports, fix)
            return report
        if not is_contact(report):
            raise UnknownNameError("contact report", str(report), self._reports, "Use a CONTACT_REPORT(...) as key.")
        name = contact_array(report)
        if name not in self._reports:
            if (reason := self._engine.supports(report)) is not None:
                raise ArgumentError(f"{report}: {reason}")
            self._engine._add(report)
            self._reports[name] = report
        return name
