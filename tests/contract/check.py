"""Check of a single row against the package: it returns faults as text, and nothing for a valid row."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

from pydantic import BaseModel

from sensorium.stream.streamed import StreamedSensor

from .rows import FOREIGN, ISSUES, Alias, Kind, NotApplicable, Present, Replaced, Row
from .rows import With as WithIssue
from .scenes import sensor_for

Collected = Mapping[str, str]
"""Test id -> why it may be skipped; empty for a test that always runs."""

NEEDS_TEST = ("error", "guarantee", "example")


def resolve(path: str) -> Any:
    """Return the object of a dotted path.

    A field of a config gives its `FieldInfo`. Instance attributes, constructor parameters and blueprint attributes of a
    streamed sensor give None.

    Raises:
        LookupError: the path does not exist; the message states where it ends.
    """
    parts = ["sensorium" if path.startswith("sn.") else path.split(".")[0], *path.split(".")[1:]]
    found = import_module(parts[0])
    so_far = parts[0]
    for part in parts[1:]:
        if isinstance(found, type) and issubclass(found, BaseModel) and part in fields_of(found):
            found = fields_of(found)[part]
        elif hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, type) and part in _instance_attributes(found) | set(inspect.signature(found).parameters):
            found = None
        elif isinstance(found, type) and issubclass(found, StreamedSensor) and part in found.definition():
            found = None
        elif inspect.ismodule(found):
            try:
                found = import_module(f"{so_far}.{part}")
            except ModuleNotFoundError:
                raise LookupError(f"{so_far} has no {part!r}") from None
        else:
            raise LookupError(f"{so_far} has no {part!r}")
        so_far = f"{so_far}.{part}"
    return found


def fields_of(cfg_class: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a config by all their names, aliases included."""
    aliases = {info.alias: info for info in cfg_class.model_fields.values() if info.alias}
    return {**cfg_class.model_fields, **aliases}


def _instance_attributes(owner: type) -> set[str]:
    """Return the names that a class sets on its objects: annotations, and assignments to self in `__init__`."""
    names: set[str] = set()
    for base in owner.__mro__:
        names |= set(inspect.get_annotations(base))
        init = base.__dict__.get("__init__")
        is_ours = base.__module__.startswith("sensorium") and not dataclasses.is_dataclass(base)  # those have no source
        if is_ours and inspect.isfunction(init):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
    return names


def exists(path: str) -> str:
    """Return why a path does not exist, or an empty text if it exists."""
    try:
        resolve(path)
    except (LookupError, ImportError, AttributeError) as error:
        return f"{path} does not exist: {error}"
    return ""


def faults(row: Row, collected: Collected) -> list[str]:
    """Return all faults of a row."""
    found = []
    if row.kind not in get_args(Kind):
        found.append(f"{row.kind!r} is no kind")
    status = row.status
    if isinstance(status, Present):
        found += _present(row, status)
    elif isinstance(status, Alias):
        found += _alias(row, status)
    elif isinstance(status, Replaced):
        found += [why for path in status.by if (why := exists(path))]
        if not status.by or not status.why:
            found.append("a replacement says by what, and why")
        elif not status.test:
            found.append("a replacement names the test that shows it")
    elif isinstance(status, NotApplicable):
        if status.engine not in FOREIGN:
            found.append(f"only handles and assets of {', '.join(FOREIGN)} are not applicable, not {status.engine!r}")
        if not status.why:
            found.append("say which handle or asset it is")
    elif isinstance(status, WithIssue):
        found += _with(row, status)
    test = getattr(status, "test", "")
    if test:
        found += _test(test, collected)
    return found


def _with(row: Row, status: WithIssue) -> list[str]:
    found = []
    if status.issue not in ISSUES:
        found.append(f"no such issue: {status.issue!r}; known are {', '.join(ISSUES)}")
    path = status.where or (f"sn.{row.name}" if row.kind == "class" and row.name.isidentifier() else "")
    if path and not exists(path):
        found.append(f"{path} exists by now: turn the row to present")
    return found


def _present(row: Row, status: Present) -> list[str]:
    if row.kind in NEEDS_TEST and not status.test:
        return [f"a present {row.kind} names the test that shows it"]
    if not status.where:
        return [] if row.kind in ("guarantee", "example") else ["say where it is"]
    if missing := exists(status.where):
        return [missing]
    target = resolve(status.where)
    if row.kind == "class":
        return [] if isinstance(target, type) else [f"{status.where} is no class"]
    if row.kind == "cfg field":
        return _cfg_field(row, status)
    if row.kind == "data field":
        return _data_field(row, status)
    if row.kind == "method":
        return _method(status, target)
    if row.kind == "property":
        return [f"{status.where} is a method"] if inspect.isroutine(target) else []
    if row.kind == "error":
        return _error(status, target)
    return []


def _cfg_field(row: Row, status: Present) -> list[str]:
    owner_path, _, name = status.where.rpartition(".")
    owner = resolve(owner_path)
    if isinstance(owner, type) and issubclass(owner, StreamedSensor):
        ours = owner.definition()[name].value
    elif not (isinstance(owner, type) and issubclass(owner, BaseModel)):
        parameters = inspect.signature(owner).parameters
        if name not in parameters:
            return [f"{owner_path} is no config and takes no {name!r}"]
        ours = parameters[name].default
    elif name not in fields_of(owner):
        return [f"{status.where} is no field of the config"]
    else:
        info = fields_of(owner)[name]
        ours = inspect.Parameter.empty if info.is_required() else info.get_default(call_default_factory=True)
    stated = status.our_default or row.default
    if not stated:
        return ["state the default: as `default` where the document has it, or as `our_default` where it has none"]
    found = []
    try:
        if not same(ours, stated):
            actual = "is required" if ours is inspect.Parameter.empty else f"defaults to {ours!r}"
            found.append(f"{status.where} {actual}, not {stated}")
    except ValueError:
        return [f"{stated} cannot be compared with {ours!r}; state `our_default`"]
    differs = bool(row.default) and row.default != stated
    if differs and not status.why:
        found.append("a default other than the document's says why")
    if not differs and status.why and row.default:
        found.append("`why` explains a different default, but it is the same")
    return found


def same(ours: Any, stated: str) -> bool:
    """Compare a default with the stated default; a list equals its tuple, True differs from 1.

    Raises:
        ValueError: the stated default is neither a literal nor a class of this package with all its defaults.
    """
    if stated == "required":
        return ours is inspect.Parameter.empty
    if stated == f"{type(ours).__name__}()":
        return bool(ours == type(ours)())
    a, b = (tuple(x) if isinstance(x, list) else x for x in (ours, ast.literal_eval(stated)))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _data_field(row: Row, status: Present) -> list[str]:
    owner_path, _, name = status.where.rpartition(".")
    owner = resolve(owner_path)
    if not dataclasses.is_dataclass(owner):
        return [f"{owner_path} is no data class"]
    shape = status.our_shape or row.shape
    if shape is None or status.unit is None:
        return ["a present data field states its shape and its unit"]
    try:
        sensor = sensor_for(owner, owner_path.rpartition(".")[2])
    except LookupError as error:
        return [str(error)]
    specs = {spec.name: spec for spec in sensor.specs}
    if name not in specs:
        return [f"{status.where} is no field of {sensor!r}"]
    spec = specs[name]
    value = sensor.data if sensor.single else getattr(sensor.data, name)
    found = []
    axes = ("env", *spec.axes)
    if len(shape) != len(axes):
        return [f"{status.where} has axes {axes}, not {shape}"]
    for want, axis, size in zip(shape, axes, value.shape, strict=True):
        if want not in (axis, size):
            found.append(f"{status.where}: axis {axis!r} of size {size}, not {want!r}")
    if spec.unit != status.unit:
        found.append(f"{status.where} is in {spec.unit!r}, not {status.unit!r}")
    if not status.dtype == spec.dtype == str(value.dtype).removeprefix("torch."):
        found.append(f"{status.where} is {value.dtype}, not {status.dtype}")
    return found


def _method(status: Present, target: Any) -> list[str]:
    if not callable(target):
        return [f"{status.where} cannot be called"]
    if status.call is None:
        return []
    wanted = ast.parse(f"def f({status.call}): ...").body[0]
    assert isinstance(wanted, ast.FunctionDef)
    args = wanted.args
    names = [arg.arg for arg in (*args.args, *args.kwonlyargs)]
    defaults = dict(zip(reversed([arg.arg for arg in args.args]), reversed(args.defaults), strict=False))
    defaults |= {arg.arg: value for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
    try:
        parameters = inspect.signature(target).parameters
    except ValueError as error:
        return [f"{status.where} has no signature: {error}"]
    found = []
    for name in names:
        if name not in parameters:
            found.append(f"{status.where} takes no {name!r}, only {', '.join(parameters)}")
        elif name in defaults and not same(parameters[name].default, ast.unparse(defaults[name])):
            found.append(f"{status.where}: {name} defaults to {parameters[name].default!r}")
    return found


def _error(status: Present, target: Any) -> list[str]:
    if not (isinstance(target, type) and issubclass(target, BaseException)):
        return [f"{status.where} is no exception"]
    wanted = getattr(builtins, status.builtin, None) if status.builtin else target
    if wanted is None or not issubclass(target, wanted):
        return [f"{status.where} is no {status.builtin}"]
    return []


def _alias(row: Row, status: Alias) -> list[str]:
    if missing := exists(status.of):
        return [missing]
    if not status.where:
        return [] if status.why else ["an alias that is only in a document says why it has no name here"]
    if missing := exists(status.where):
        return [missing]
    if row.kind == "class" and resolve(status.where) is not resolve(status.of):
        return [f"{status.where} is not {status.of}"]
    if row.kind == "data field":
        (owner, alias), name = status.where.rsplit(".", 1), status.of.rpartition(".")[2]
        data = sensor_for(resolve(owner)).data
        if getattr(data, alias) is not getattr(data, name):
            return [f"{status.where} is not {status.of}"]
    return []


def _test(test: str, collected: Collected) -> list[str]:
    if test.endswith("*"):
        found = [name for name in collected if name.startswith(test[:-1])]
    else:
        found = [name for name in collected if name == test or name.startswith(f"{test}[")]
    if not found:
        return [f"no such test: {test}"]
    return [f"{name}: {collected[name]}" for name in found if collected[name]]
