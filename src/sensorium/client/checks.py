"""Validation of the arguments of client methods, with readable errors, before anything is sent.

NumPy numbers are accepted and converted to Python numbers. A bool is not a number.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError
from sensorium.pose import Pose
from sensorium.wire.attributes import plain

Policy = Literal["latest", "lossless"]
"""Handling of samples for a slow listener: keep only the newest, or keep all."""
Envs = slice | int | range | None

MAX_WHOLE = 2**31 - 1
"""Default upper bound of integers."""
MAX_WAIT = 10.0**6
"""Longest allowed wait, s."""
HIDDEN = "(not shown)"
"""Text that error messages show in place of a secret."""


def whole(call: str, argument: str, value: object, low: int = 1, high: int = MAX_WHOLE, *, other: str = "") -> int:
    """Return a valid integer.

    Args:
        call: name of the call, for the message.
        argument: name of the argument.
        value: the given value.
        low: smallest accepted value.
        high: largest accepted value.
        other: other accepted values, for the message, e.g. ``"None, or "``.

    Raises:
        ConfigError: the value is not an integer, or is out of bounds. All checks of this module raise this error.
    """
    number = _index(value)
    if number is None or not low <= number <= high:
        raise ConfigError.single(call, argument, value, f"{other}a whole number from {low} to {high}")
    return number


def number(call: str, argument: str, value: object, expected: str, low: float = 0.0, high: float = math.inf) -> float:
    """Return a finite number above `low` and at most `high`; `expected` describes this for the message."""
    right = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        found = float(value) if right else math.nan  # type: ignore[arg-type]
    except OverflowError:
        found = math.nan
    if not (math.isfinite(found) and low < found <= high):
        raise ConfigError.single(call, argument, value, expected)
    return found


def seconds(call: str, value: object, *, may_be_zero: bool = True) -> float:
    """Return a valid `timeout`, s."""
    sign, low = (">=", -math.ulp(0.0)) if may_be_zero else (">", 0.0)
    return number(call, "timeout", value, f"a number of seconds {sign} 0, at most {MAX_WAIT:g}", low, MAX_WAIT)


def flag(call: str, argument: str, value: object) -> bool:
    """Return a valid bool."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError.single(call, argument, value, "True or False")
    return bool(value)


def text(call: str, argument: str, value: object, expected: str = "text", *, secret: bool = False) -> str:
    """Return text that can be encoded as UTF-8; error messages do not show a secret."""
    if not isinstance(value, str):
        raise ConfigError.single(call, argument, HIDDEN if secret else value, expected)
    try:
        value.encode()
    except UnicodeEncodeError:
        got = HIDDEN if secret else value
        raise ConfigError.single(call, argument, got, "text that can be written as UTF-8") from None
    return str(value)


def pose(call: str, argument: str, value: object) -> Pose:
    """Return a valid pose; None gives the identity."""
    if value is None:
        return Pose()
    if not isinstance(value, Pose):
        fix = "Write Pose((x, y, z)), or Pose((x, y, z), (w, x, y, z))."
        raise ConfigError.single(call, argument, value, "a sensorium.Pose, or None", fix)
    return value


def function(call: str, argument: str, value: object) -> None:
    """Raise an error if the value is not callable."""
    if not callable(value):
        raise ConfigError.single(call, argument, value, "a function of one argument")


def env(call: str, value: object, num_envs: int) -> int | None:
    """Return the index of one environment, or None for all."""
    return None if value is None else whole(call, "env", value, 0, num_envs - 1, other="None for all, or ")


def env_ids(call: str, value: Any, num_envs: int) -> tuple[int, ...] | None:
    """Return the environments that an argument selects, in the given order; None for all.

    Args:
        call: name of the call, for the message.
        value: None, a slice, an integer, integers without repetition, or a bool mask `[env]`: sequences, NumPy arrays,
            torch tensors.
        num_envs: number of environments.
    """
    if value is None:
        return None
    found: tuple[int, ...] | None = None
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        given = range(num_envs)[value] if isinstance(value, slice) else value
        if isinstance(given, Iterable) and not isinstance(given, str | bytes) and not hasattr(given, "__array__"):
            given = list(given)
        ids = array(given)
        has_bools = isinstance(given, list) and any(isinstance(each, bool | np.bool_) for each in given)
        if ids.dtype == bool:
            found = tuple(np.flatnonzero(ids).tolist()) if ids.shape == (num_envs,) else None
        elif ids.ndim == 1 and ids.size == 0:
            found = ()
        elif ids.dtype.kind in "iu" and ids.ndim <= 1 and not has_bools:
            found = tuple(ids.reshape(-1).tolist())
    if found is None or not all(0 <= each < num_envs for each in found) or len(set(found)) != len(found):
        expected = f"None for all, integers from 0 to {num_envs - 1} without repetition, or a mask of {num_envs} bools"
        raise ConfigError.single(call, "env_ids", value, expected)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Options of a listener; see `RemoteSensor.listen`."""

    policy: Policy = "latest"
    every: int = 1
    max_rate: float | None = None
    envs: Envs = None
    truth: bool = False
    queue: int | None = None


def listening(name: str, **options: Any) -> ListenOptions:
    """Return validated options of `RemoteSensor.listen`, except for `envs`, which `env_range` validates.

    Args:
        name: name of the sensor.
        options: options by name.
    """
    call, given = f"listen({name!r})", ListenOptions(**options)
    if given.policy not in ("latest", "lossless"):
        raise ConfigError.single(call, "policy", given.policy, "'latest' or 'lossless'")
    expected = "a finite number of messages per second > 0, or None"
    return replace(
        given,
        every=whole(call, "every", given.every),
        max_rate=None if given.max_rate is None else number(call, "max_rate", given.max_rate, expected),
        truth=flag(call, "truth", given.truth),
        queue=None if given.queue is None else whole(call, "queue", given.queue),
    )


def env_range(envs: Any, num_envs: int, name: str) -> tuple[int, int]:
    """Return (first, count) of the environments that a listener of a sensor requests."""
    if envs is None:
        return 0, num_envs
    single = _index(envs)
    if single is not None and 0 <= single < num_envs:
        return single, 1
    if isinstance(envs, slice | range):
        ends = (envs.start, envs.stop, envs.step)
        if all(end is None or _index(end) is not None for end in ends):
            chosen = range(num_envs)[envs] if isinstance(envs, slice) else envs
            if len(chosen) and chosen.step == 1 and 0 <= chosen.start and chosen.stop <= num_envs:
                return chosen.start, len(chosen)
    expected = f"None for all, a whole number from 0 to {num_envs - 1}, or a slice of them without a step"
    raise ConfigError.single(f"listen({name!r})", "envs", envs, expected)


def controls(call: str, value: Any) -> tuple[tuple[int, ...], bytes]:
    """Return the shape and the little-endian float64 bytes of controls; empty for None."""
    if value is None:
        return (), b""
    given = None
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        given = array(value)
    if given is None or given.dtype.kind not in "fiub" or given.ndim > 2:
        raise ConfigError.single(call, "ctrl", value, "numbers of shape [nu] or [env, nu]")
    content = np.ascontiguousarray(given, "<f8")  # a single number becomes [1]
    return content.shape, content.tobytes()


def knob_value(call: str, value: object) -> Any:
    """Return the value of a knob as plain data."""
    try:
        return plain(value)
    except TypeError:
        expected = "a number, numbers, or a mapping from field to these"
        raise ConfigError.single(call, "value", value, expected) from None


def array(value: Any) -> npt.NDArray[Any]:
    """Return numbers as a NumPy array; a torch tensor is copied from its device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.double()  # NumPy has no bfloat16
    return np.asarray(value)


def _index(value: object) -> int | None:
    """Return an integer, or None if the value is not an integer."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None  # an array
