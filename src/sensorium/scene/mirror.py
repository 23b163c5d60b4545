"""Mirror images of observations and actions, for symmetric training.

The mirror is the plane y = 0. A polar vector (x, y, z) becomes (x, -y, z), an axial one (-x, y, -z), a quaternion
(w, x, y, z) becomes (w, -x, y, -z). Items with a left and a right form are exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.errors import ConfigError, listed

if TYPE_CHECKING:
    from sensorium.scene.observer import TermPlace
    from sensorium.scene.terms import TermPart

Pairs = Iterable[tuple[str, str]] | Callable[[str], str] | None

VECTORS = ("xyz", "enu")
"""Axes of vectors whose sign depends on the parity of the field."""
POLAR, AXIAL = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0)
SIGNS = {"wxyz": (1.0, -1.0, 1.0, -1.0), "rpy": AXIAL, "rgb": (1.0,) * 3, "rgba": (1.0,) * 4}
"""Signs of the components on axes that need no parity."""
REVERSED = ("width", "column")
"""Axes across the mirror, of images taken in it."""

_SIDES = {"left": "right", "Left": "Right", "LEFT": "RIGHT", "l": "r", "L": "R"}
_SIDES |= {right: left for left, right in _SIDES.items()}
_ENDS = "FRHBM"
"""First letters of front, rear, hind, back and middle, which stand beside that of a side: FL, RR, HL."""
_WORD = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]{1,2}(?![A-Za-z0-9])|(?<![A-Za-z])(?:left|right)|(?<![A-Z])(?:Left|Right|LEFT|RIGHT)"
)


def other_side(name: str) -> str:
    """Return the name of the partner on the other side: left and right, L and R, FL and FR, LF and RF, HL and HR.

    Abbreviations must be whole words, between characters other than letters and digits, as in ``FL_foot``. A name
    without a side is returned unchanged.
    """
    return _WORD.sub(lambda match: _exchanged(match[0]), name)


def _exchanged(word: str) -> str:
    if word in _SIDES:
        return _SIDES[word]
    if len(word) != 2 or not (word.isupper() or word.islower()):
        return word
    first, last = word[0].upper(), word[1].upper()
    if first in _ENDS and last in "LR":  # before the other form: RL is rear left
        return word[0] + _SIDES[word[1]]
    return _SIDES[word[0]] + word[1] if first in "LR" and last in _ENDS else word


def partner_of(pairs: Pairs) -> Callable[[str], str]:
    """Return the function from a name to that of its partner; see `Observer.mirror`."""
    if pairs is None:
        return other_side
    if callable(pairs):
        return pairs
    table = {name: other for pair in pairs for name, other in (pair, pair[::-1])}
    words = re.compile("|".join(map(re.escape, sorted(table, key=len, reverse=True))) or "(?!)")
    return lambda name: words.sub(lambda match: table[match[0]], name)


@dataclass(frozen=True, slots=True, eq=False)
class Mirror:
    """Map from values to those of the mirror image: exchanged columns and signs.

    Args:
        columns: int64 [column], source of each column.
        signs: float32 [column], -1 or 1.
    """

    columns: torch.Tensor
    signs: torch.Tensor

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mirror image of values `[..., column]`, a new tensor."""
        return values[..., self.columns.to(values.device)] * self.signs.to(values.device)

    @classmethod
    def of_names(cls, names: Sequence[str], *, pairs: Pairs = None, flip: Iterable[str] = ()) -> Mirror:
        """Return the mirror of named scalars, such as the actions of joints.

        Args:
            names: name of each column.
            pairs: as for `Observer.mirror`.
            flip: patterns of the names that change sign.

        Raises:
            ConfigError: a partner does not exist.
        """
        order = _partners("Mirror", names, names, partner_of(pairs))
        signs = [-1.0 if _matches(flip, name) else 1.0 for name in names]
        return cls(torch.tensor(order, device="cpu"), torch.tensor(signs, device="cpu"))


def mirror_of(places: Mapping[str, TermPlace], columns: int, pairs: Pairs, flip: Iterable[str] | None) -> Mirror:
    """Return the mirror of an observer; see `Observer.mirror`."""
    partner, patterns = partner_of(pairs), None if flip is None else tuple(flip)
    order, signs = np.arange(columns), np.ones(columns, np.float32)
    for name, place in places.items():
        other = places.get(partner(name))
        if other is None or other.shape != place.shape:
            expected = f"a partner {partner(name)!r} of the same shape among {listed(places)}"
            raise ConfigError.single("Observer.mirror", name, place.shape, expected, "Give pairs=[...].")
        part, inner = place.part, place.part.shape
        grid = np.arange(other.columns.start, other.columns.stop).reshape(other.shape)
        first = len(place.shape) - len(inner)  # the axis of a history comes first
        for number, axis in enumerate(part.spec.axes):
            grid = np.take(grid, _order(part, other.part, number, axis, partner), axis=first + number)
        order[place.columns] = grid.ravel()
        signs[place.columns] = np.broadcast_to(_signs(part, patterns), place.shape).ravel()
    return Mirror(torch.from_numpy(order), torch.from_numpy(signs))


def _order(part: TermPart, other: TermPart, number: int, axis: str, partner: Callable[[str], str]) -> Any:
    """Return the source of each item on one axis of a part, among the items of its partner."""
    items, size = part.items()[number], part.shape[number]
    if axis == "ray" and part.sensor is not None:
        return _rays(part, size)
    if axis in REVERSED:
        return np.arange(size)[::-1]
    if axis in VECTORS or axis in SIGNS:
        return np.arange(size)
    if isinstance(items, range):
        if size > 1 and axis.startswith("axis"):  # the axis of a function's result, or of a Field without axes
            expected, fix = "named elements", "Give their names: ObsTerm(..., items=[...]), or axes in the Field."
            raise ConfigError.single("Observer.mirror", part.name, f"{size} elements without names", expected, fix)
        return np.arange(size)
    return _partners(part.name, [*map(str, items)], [*map(str, other.items()[number])], partner)


def _partners(where: str, names: Sequence[str], others: Sequence[str], partner: Callable[[str], str]) -> list[int]:
    order = []
    for name in names:
        if partner(name) not in others:
            expected = f"a partner {partner(name)!r} among {listed(others)}"
            raise ConfigError.single("Observer.mirror", where, name, expected, "Give pairs=[...].")
        order.append(others.index(partner(name)))
    return order


def _rays(part: TermPart, size: int) -> list[int]:
    """Return the mirror image of each ray of the sensor's pattern."""
    assert part.sensor is not None
    rays = part.sensor.rays_of("pattern")
    lines = np.concatenate([rays.starts.numpy(), rays.directions.numpy()], axis=1)
    keys = [tuple(row) for row in np.rint(1e4 * lines).astype(int).tolist()]
    index = {key: number for number, key in enumerate(keys)}
    images = [index.get((x, -y, z, a, -b, c), -1) for x, y, z, a, b, c in keys]
    if -1 in images or len(images) != size:
        raise ConfigError.single("Observer.mirror", part.name, f"{size} rays", "a pattern that is symmetric in y")
    return images


def _signs(part: TermPart, flip: tuple[str, ...] | None) -> Any:
    """Return the sign of each element of a part, in a shape that broadcasts to its own."""
    spec, items = part.spec, part.items()
    last = spec.axes[-1] if spec.axes else ""
    if last in SIGNS:
        return np.array(SIGNS[last], np.float32)
    if last in VECTORS and spec.parity:
        return np.array(POLAR if spec.parity == "polar" else AXIAL, np.float32)
    if "joint" in spec.axes and flip is None:
        fix = "Name the joints that turn about x or z or slide along y: flip=['.*_hip'], or flip=[] for none."
        raise ConfigError.single("Observer.mirror", "flip", None, f"patterns, since {part.name!r} has joints", fix)
    titles, named = part.titles(0), [str(item) for item in items[-1]] if items else [""]
    flat = [
        -1.0 if _matches(flip or (), title) or _matches(flip or (), named[number % len(named)]) else 1.0
        for number, title in enumerate(titles)
    ]
    if last in VECTORS and -1.0 not in flat:
        fix = 'Mark its Field with parity="polar" or "axial", or name the columns that change sign in flip.'
        raise ConfigError.single("Observer.mirror", part.name, "a vector", "a vector of known parity", fix)
    return np.array(flat, np.float32).reshape(part.shape)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
