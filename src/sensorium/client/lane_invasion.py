"""Lane invasion sensor: reports when a corner of a vehicle crosses a lane marking. The sensor runs in the client.

The sensor tracks the four corners of the bounding box of its owner, rotated by the yaw only. Between two frames each
corner follows a straight path. The corner crosses a marking if its path intersects the marking. A corner that stops
exactly on a marking has crossed it at that time. It does not cross the marking again when it leaves or moves along it.

The test is exact for the corners as computed in float64. Rational arithmetic decides the cases that rounding leaves
undecided (the rounding bound is that of J. R. Shewchuk, Adaptive Precision Floating-Point Arithmetic and Fast Robust
Geometric Predicates, 1997).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from sensorium.client import checks
from sensorium.client.client_sensor import ClientEvent, ClientSensor
from sensorium.errors import ConfigError
from sensorium.readings import Body
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition, make_generic_sensor_definition
from sensorium.wire.owner import Owner
from sensorium.wire.world import Snapshot

Floats: TypeAlias = npt.NDArray[np.float64]
Corner: TypeAlias = Literal["front_left", "front_right", "back_left", "back_right"]

CORNERS: tuple[Corner, ...] = ("front_left", "front_right", "back_left", "back_right")
"""The corners: the x axis of the body points to the front, its y axis to the left."""

MAX_STEP = 5.0
"""Largest motion of a corner in one frame, m: 180 km/h at 10 frames per second. A larger motion is a jump."""

_SIGNS = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)], np.float64)
_EPS = 2.0**-53
_BOUND = (3.0 + 16.0 * _EPS) * _EPS  # of the rounding of an orientation, relative to the sum of its two products
_TINY = 1e-290  # products below this lose digits
_PAIRS = 1 << 20  # maximum number of (path, segment) pairs per batch


@dataclass(frozen=True, slots=True)
class LaneMarking:
    """Line on the ground.

    Args:
        points: points in order, `[k, 2]` or `[k, 3]`, k >= 2, world, m. The height is ignored.
        type: appearance: ``"solid"``, ``"broken"``, ``"solid_broken"``, ``"curb"``, ... or any other word.
        color: colour, any word.
        width: width, m; None if unknown. Crossings refer to the centre line.

    Raises:
        ConfigError: the points are invalid or all equal, or the width is not positive.
    """

    points: tuple[tuple[float, ...], ...]
    type: str = "solid"
    color: str = "white"
    width: float | None = None

    def __post_init__(self) -> None:
        try:
            array = np.array(self.points, np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] not in (2, 3) or not np.isfinite(array).all():
            raise ConfigError.single("LaneMarking", "points", self.points, "finite numbers [k, 2] or [k, 3]")
        if len(_distinct(array)) < 2:
            raise ConfigError.single("LaneMarking", "points", self.points, "at least two points that differ in x, y")
        object.__setattr__(self, "points", tuple(map(tuple, array.tolist())))
        for name in ("type", "color"):
            if not checks.text("LaneMarking", name, getattr(self, name), "a word"):
                raise ConfigError.single("LaneMarking", name, "", "a word")
        if self.width is not None:
            width = checks.number("LaneMarking", "width", self.width, "a width > 0 (m), or None")
            object.__setattr__(self, "width", width)

    def to_dict(self) -> dict[str, Any]:
        """Return the marking as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> LaneMarking:
        """Build a marking from plain data: a mapping with its fields, or a list of points.

        Raises:
            ConfigError: the data are invalid.
        """
        if not isinstance(data, Mapping):
            return cls(cast(Any, data))  # validated there
        try:
            return cls(**data)
        except TypeError:
            expected = "points, and any of type, color, width"
            raise ConfigError.single("LaneMarking", "from_dict", list(data), expected) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneInvasionEvent(ClientEvent):
    """Lane markings that were crossed since the previous frame.

    Attributes:
        actor: the body that crossed them.
        crossed_lane_markings: the crossed markings without repetition, in the given order.
        corners: for each marking, the corners that crossed it.
        indices: for each marking, its index among the markings of the sensor.
    """

    actor: Body
    crossed_lane_markings: tuple[LaneMarking, ...]
    corners: tuple[tuple[Corner, ...], ...]
    indices: tuple[int, ...]


class LaneInvasion(ClientSensor):
    """Sensor that reports when a corner of the bounding box of its owner crosses a lane marking, per environment.

    No crossing is reported in the first frame, after a reset of the environment, or after a non-finite state. The same
    applies after a corner jumped by more than `max_step`. The box encloses the shapes of the body to which the sensor
    is attached. The pose of the sensor on the body has no effect.

    Args:
        lanes: lane markings, as `LaneMarking` objects or as plain data; the attribute of the same name takes
            precedence.

    Raises:
        ConfigError: the lane markings are invalid.
    """

    actor: Body
    """Body whose corners are tracked."""
    max_step: float
    """Largest motion of a corner in one frame, m; a larger motion is a jump, which crosses nothing."""

    _lanes: tuple[LaneMarking, ...]
    _lines: Lines
    _before: _Seen | None

    def __init__(self, lanes: Iterable[Any] = ()) -> None:
        self.lanes = lanes
        self.max_step = MAX_STEP
        self._before = None

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the id and the attributes."""
        length = {"type": "number", "exclusiveMinimum": 0.0, "unit": "m"}
        lanes = "Lane markings: a list of {points, type, color, width}, or of lists of points [k, 2 or 3]."
        step = "Largest motion of a corner in one frame. A larger motion is a jump, which crosses nothing."
        return make_generic_sensor_definition(
            type="other",
            id="lane_invasion",
            doc="Reports when a corner of the body's bounding box crosses a lane marking.",
            where="client",
            attach="the body whose corners are tracked",
            attributes=(
                Attribute("lanes", {"unit": "m", "description": lanes}),
                Attribute("max_step", {**length, "default": MAX_STEP, "description": step}),
            ),
        )

    def set(self, description: ActorDescription) -> None:
        """Set the lane markings and the largest step.

        Raises:
            ConfigError: the lane markings are invalid, or the sensor is not attached to a body.
        """
        super().set(description)
        if self.owner is None:
            title = f"LaneInvasion({self.name!r})"
            raise ConfigError.single(title, "attach_to", None, "a body, whose corners are tracked")
        lanes = Attribute("lanes", {}).parse(description.get("lanes"), description.id)
        if lanes is not None:
            self.lanes = lanes
        self.max_step = description.get_float("max_step", MAX_STEP)

    def set_owner(self, owner: Owner) -> None:
        """Set the body whose corners are tracked.

        Raises:
            ConfigError: the body has no shape.
        """
        super().set_owner(owner)
        title = f"LaneInvasion({self.name!r})"
        if not any(owner.body.half_extents[:2]):
            fix = "Attach it to the body of the vehicle's chassis."
            raise ConfigError.single(
                title, "attach_to", owner.body.name, "a body with shapes, which define its box", fix
            )
        self.actor = owner.body
        center, half = np.array(owner.body.center[:2]), np.array(owner.body.half_extents[:2])
        self._box = center + half * _SIGNS

    @property
    def lanes(self) -> tuple[LaneMarking, ...]:
        """Lane markings; they can be replaced at any time by `LaneMarking` objects or plain data."""
        return self._lanes

    @lanes.setter
    def lanes(self, lanes: Iterable[Any]) -> None:
        if isinstance(lanes, str | Mapping) or not isinstance(lanes, Iterable):
            raise ConfigError.single("LaneInvasion", "lanes", lanes, "a list of lane markings")
        found = []
        for i, each in enumerate(lanes):
            try:
                found.append(each if isinstance(each, LaneMarking) else LaneMarking.from_dict(each))
            except ConfigError as error:
                raise ConfigError(f"LaneInvasion.lanes[{i}]: {error.config}", error.faults) from None
        self._lines, self._lanes = Lines(found), tuple(found)

    def listen(self, callback: Any) -> None:
        """Start the sensor and pass crossings to the listener; see `ClientSensor.listen`.

        Raises:
            ConfigError: there are no lane markings.
        """
        if not self._lanes:
            fix = "Set the attribute 'lanes' of the blueprint, or sensor.lanes = [LaneMarking(...)]."
            raise ConfigError.single(f"LaneInvasion({self.name!r})", "lanes", (), "at least one lane marking", fix)
        super().listen(callback)

    def reset(self) -> None:
        """Forget the previous positions of the corners."""
        self._before = None

    def on_tick(self, snapshot: Snapshot) -> None:
        """Emit an event for each environment in which a corner has crossed a marking since the previous frame."""
        rows, body = self.rows(snapshot), snapshot.bodies.row(self.actor.id)
        corners = corners_of(self._box, snapshot.pos_w[rows, body], snapshot.quat_w[rows, body])
        before, self._before = self._before, _Seen(snapshot, rows, corners)
        lines = self._lines
        if before is None:
            return
        usable = before.leads_to(self._before, self.max_step)
        if not usable.any():
            return
        places = np.flatnonzero(usable)
        paths = (before.corners[places].reshape(-1, 2), corners[places].reshape(-1, 2))
        crossed = lines.crossed(*paths).reshape(len(places), len(CORNERS), -1)
        for place in np.flatnonzero(crossed.any((1, 2))).tolist():
            indices = np.flatnonzero(crossed[place].any(0)).tolist()
            self.emit(
                LaneInvasionEvent.at(
                    self,
                    snapshot,
                    self.envs[int(places[place])],
                    actor=self.actor,
                    crossed_lane_markings=tuple(lines.markings[i] for i in indices),
                    corners=tuple(
                        tuple(corner for corner, has in zip(CORNERS, crossed[place, :, i], strict=True) if has)
                        for i in indices
                    ),
                    indices=tuple(indices),
                )
            )


class _Seen:
    """Positions of the corners in a frame."""

    def __init__(self, snapshot: Snapshot, rows: slice, corners: Floats) -> None:
        self.frame, self.tick, self.corners = snapshot.frame, snapshot.tick, corners
        self.captures = None if snapshot.captures is None else snapshot.captures[rows]

    def leads_to(self, now: _Seen, max_step: float) -> npt.NDArray[np.bool_]:
        """Return, `[env]`, whether the corners moved from these positions to the new positions without a jump."""
        with np.errstate(invalid="ignore", over="ignore"):
            far = np.hypot(*np.moveaxis(now.corners - self.corners, -1, 0)).max(-1)
            usable: npt.NDArray[np.bool_] = far <= max_step  # False where a corner is NaN
        if self.captures is not None and now.captures is not None:
            usable &= now.captures > self.captures  # otherwise the environment was reset
            if now.frame != self.frame + 1:  # a reset may be hidden in the frames that were not seen
                usable &= now.captures > now.tick - self.tick
        return usable


def corners_of(box: Floats, pos: npt.ArrayLike, quat: npt.ArrayLike) -> Floats:
    """Return the corners of a box on the ground, rotated by the yaw only; NaN where the x axis of the body is vertical.

    Args:
        box: corners in the body frame, `[corner, 2]`, m.
        pos: origin of the body, `[env, 3]`, world, m.
        quat: orientation of the body, `[env, 4]`, wxyz.

    Returns:
        float64 `[env, corner, 2]`, world, m.
    """
    x, y = np.asarray(pos, np.float64)[:, :2].T[:, :, None]
    w, i, j, k = np.asarray(quat, np.float64).T
    with np.errstate(invalid="ignore", divide="ignore"):
        ahead = np.stack((w * w + i * i - j * j - k * k, 2.0 * (i * j + w * k)))
        cos, sin = (ahead / np.hypot(*ahead))[:, :, None]
        return np.stack((x + cos * box[:, 0] - sin * box[:, 1], y + sin * box[:, 0] + cos * box[:, 1]), axis=-1)


class Lines:
    """Markings as segments, with a test for the paths that cross them.

    Args:
        markings: the lane markings.
    """

    def __init__(self, markings: Iterable[LaneMarking]) -> None:
        self.markings = tuple(markings)
        lines = [_distinct(np.array(each.points, np.float64)) for each in self.markings]
        self.start: Floats = np.concatenate([line[:-1] for line in lines] or [np.empty((0, 2))])
        self.end: Floats = np.concatenate([line[1:] for line in lines] or [np.empty((0, 2))])
        self.marking = np.repeat(np.arange(len(lines)), [len(line) - 1 for line in lines])
        self._low, self._high = np.minimum(self.start, self.end), np.maximum(self.start, self.end)

    def crossed(self, before: Floats, now: Floats) -> npt.NDArray[np.bool_]:
        """Return which straight paths cross which markings: they arrive from outside, or pass through.

        Args:
            before: start points of the paths, float64 `[path, 2]`, finite.
            now: end points of the paths.

        Returns:
            bool `[path, marking]`.
        """
        found = np.zeros((len(before), len(self.markings)), np.bool_)
        moved = np.flatnonzero((before != now).any(1))
        chunk = max(_PAIRS // max(len(self.start), 1), 1)
        for first in range(0, len(moved), chunk):
            paths = moved[first : first + chunk]
            low, high = np.minimum(before[paths], now[paths]), np.maximum(before[paths], now[paths])
            near = (low[:, None, 0] <= self._high[:, 0]) & (high[:, None, 0] >= self._low[:, 0])
            near &= (low[:, None, 1] <= self._high[:, 1]) & (high[:, None, 1] >= self._low[:, 1])
            place, segment = np.nonzero(near)
            self._cross(found, before, now, paths[place], segment)
        return found

    def _cross(self, found: Any, before: Floats, now: Floats, path: Any, segment: Any) -> None:
        """Record which of the given (path, segment) pairs cross; they include all near pairs of each path."""
        p, q, a, b = before[path], now[path], self.start[segment], self.end[segment]
        ends, sides = _side(a, b, p) * _side(a, b, q), _side(p, q, a) * _side(p, q, b)
        through, apart = (ends < 0) & (sides < 0), (ends > 0) | (sides > 0)
        marking = self.marking[segment]
        found[path[through], marking[through]] = True
        unsure = ~(through | apart)
        for row, which in set(zip(path[unsure].tolist(), marking[unsure].tolist(), strict=True)):
            mine = (path == row) & (marking == which)
            found[row, which] = _arrives(before[row], now[row], a[mine], b[mine])


def _side(a: Floats, b: Floats, c: Floats) -> npt.NDArray[np.int8]:
    """Return on which side of the line from a to b the points c lie, +1 or -1; 0 where rounding leaves it open."""
    left, right = (a[:, 0] - c[:, 0]) * (b[:, 1] - c[:, 1]), (a[:, 1] - c[:, 1]) * (b[:, 0] - c[:, 0])
    turn = left - right
    sure = np.abs(turn) > _BOUND * (np.abs(left) + np.abs(right)) + _TINY
    return np.where(sure, np.sign(turn), 0.0).astype(np.int8)


def _arrives(p: Floats, q: Floats, start: Floats, end: Floats) -> bool:
    """Return whether the path from p to q arrives on a segment from outside all segments; exact.

    Each segment covers an interval of the path, given as fractions of its length. Intervals connected to the start of
    the path do not count, because the path starts on them.
    """
    px, py, qx, qy = map(Fraction, (*p.tolist(), *q.tolist()))
    dx, dy = qx - px, qy - py
    length = dx * dx + dy * dy
    stretches = []
    for ax, ay, bx, by in (map(Fraction, each) for each in np.hstack((start, end)).tolist()):
        ex, ey, wx, wy = bx - ax, by - ay, ax - px, ay - py
        turn, off = dx * ey - dy * ex, wx * dy - wy * dx
        if turn:
            share, along = (wx * ey - wy * ex) / turn, off / turn
            if 0 <= share <= 1 and 0 <= along <= 1:
                stretches.append((share, share))
        elif not off:
            one, other = (wx * dx + wy * dy) / length, ((bx - px) * dx + (by - py) * dy) / length
            first, last = max(min(one, other), Fraction(0)), min(max(one, other), Fraction(1))
            if first <= last:
                stretches.append((first, last))
    reach = Fraction(0)
    for first, last in sorted(stretches):
        if first > reach:
            return True
        reach = max(reach, last)
    return False


def _distinct(points: Floats) -> Floats:
    """Return points on the ground without consecutive duplicates."""
    flat = points[:, :2]
    return flat[np.concatenate(([True], (flat[1:] != flat[:-1]).any(1)))] if len(flat) else flat
