"""Functions of the user, given as ``module:function``."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from sensorium.errors import ConfigError, SensoriumError, listed, nearest


def function_of(field: str, name: str) -> Callable[..., Any]:
    """Import a function, also from the working directory.

    Args:
        field: field of a job that names it.
        name: ``module:function``.

    Raises:
        ConfigError: the module or the function does not exist, or the module cannot be imported.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise _fault(field, name, "For example: my_gait:control.")
    import_from_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in (module_name, module_name.split(".")[0]):
            text = f"Module {module_name!r} imports {error.name!r}, which is not installed."
            raise _fault(field, name, text) from error
        text = f"There is no module {module_name!r} in the working directory or among the installed packages."
        raise _fault(field, name, text) from error
    except Exception as error:
        raise _fault(field, name, f"Importing {module_name!r} failed: {reason(error)}") from error
    function: Any = getattr(module, function_name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        hint = nearest(function_name, names)
        text = f"Module {module_name!r} has no function {function_name!r}.{hint} It has: {listed(names)}."
        raise _fault(field, name, text)
    found: Callable[..., Any] = function
    return found


def called(field: str, name: str) -> Callable[..., Any]:
    """Return a function of the user as `function_of`; an exception in it becomes a ConfigError."""
    function = function_of(field, name)

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            raise ConfigError.single(
                "Job", field, name, "a function that returns", f"It failed: {reason(error)}"
            ) from error

    return call


def import_from_here() -> None:
    """Make modules in the working directory importable, also those that were written after this process started."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    importlib.invalidate_caches()


def reason(error: BaseException) -> str:
    """Return the kind, the text and the place of an exception of a user's function."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def message(error: Exception) -> str:
    """Return the text of an error of this package, and `reason` for another one."""
    return str(error) if isinstance(error, SensoriumError) else reason(error)


def _fault(field: str, name: str, fix: str) -> ConfigError:
    return ConfigError.single("Job", field, name, "module:function", fix)
