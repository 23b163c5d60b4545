"""Lane invasion sensor: reports when a corner of a vehicle crosses a lane marking. The sensor runs in the client.

The sensor tracks the four corners of the bounding box of its owner, rotated by the yaw only. Between two frames each
corner follows a straight path. A corner within `TOLERANCE` of a marking lies on it. The corner crosses a marking if its
path reaches the marking and did not start on it. A corner that stops on a marking has therefore crossed it at that
time. It does not cross the marking again when it leaves or moves along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from sensorium.client import checks
from sensorium.client.client_sensor import ClientEvent, ClientSensor
from sensorium.errors import ConfigError
from sensorium.readings import Body
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition
from sensorium.wire.world import Owner, Snapshot

Points: TypeAlias = npt.NDArray[np.complex128]
"""Points on the ground, x + iy, m."""
Corner: TypeAlias = Literal["front_left", "front_right", "back_left", "back_right"]

CORNERS: tuple[Corner, ...] = ("front_left", "front_right", "back_left", "back_right")
"""The corners: the x axis of the body points to the front, its y axis to the left."""

MAX_STEP = 5.0
"""Largest motion of a corner in one frame, m: 180 km/h at 10 frames per second. A larger motion is a jump."""

TOLERANCE = 1e-6
"""Distance up to which a corner lies on a marking, m: far above the rounding of float64, far below that of poses."""


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
        if len(np.unique(array[:, :2], axis=0)) < 2:
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

    _lines: Lines
    _before: tuple[Snapshot, Points] | None

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
        return SensorDefinition(
            id="sensor.other.lane_invasion",
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
        (x, y, _), (length, width, _) = owner.body.center, owner.body.half_extents
        self._box = complex(x, y) + np.array([complex(i * length, j * width) for i in (1, -1) for j in (1, -1)])

    @property
    def lanes(self) -> tuple[LaneMarking, ...]:
        """Lane markings; they can be replaced at any time by `LaneMarking` objects or plain data."""
        return self._lines.markings

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
        self._lines = Lines(found)

    def listen(self, callback: Any) -> None:
        """Start the sensor and pass crossings to the listener; see `ClientSensor.listen`.

        Raises:
            ConfigError: there are no lane markings.
        """
        if not self.lanes:
            fix = "Set the attribute 'lanes' of the blueprint, or sensor.lanes = [LaneMarking(...)]."
            raise ConfigError.single(f"LaneInvasion({self.name!r})", "lanes", (), "at least one lane marking", fix)
        super().listen(callback)

    def reset(self) -> None:
        """Forget the previous positions of the corners."""
        self._before = None

    def on_tick(self, snapshot: Snapshot) -> None:
        """Emit an event for each environment in which a corner has crossed a marking since the previous frame."""
        rows, body, lines = self.rows(snapshot), snapshot.bodies.row(self.actor.id), self._lines
        with np.errstate(all="ignore"):  # the state may not be finite
            corners = corners_of(self._box, snapshot.pos_w[rows, body], snapshot.quat_w[rows, body])
            before, self._before = self._before, (snapshot, corners)
            if before is None:
                return
            last, start = before
            usable = np.abs(corners - start).max(-1) <= self.max_step
            if last.captures is not None and snapshot.captures is not None:
                # A reset restarts the count, which may reach the earlier count again in frames that were not seen.
                unseen = snapshot.tick - last.tick if snapshot.frame != last.frame + 1 else 0
                usable &= snapshot.captures[rows] > np.maximum(last.captures[self.rows(last)], unseen)
            crossed = lines.crossed(np.where(usable[:, None], start, np.nan), corners)
        for row in np.flatnonzero(crossed.any((1, 2))).tolist():
            indices = np.flatnonzero(crossed[row].any(0)).tolist()
            self.emit(
                LaneInvasionEvent.at(
                    self,
                    snapshot,
                    self.envs[row],
                    actor=self.actor,
                    crossed_lane_markings=tuple(lines.markings[i] for i in indices),
                    corners=tuple(tuple(compress(CORNERS, crossed[row, :, i])) for i in indices),
                    indices=tuple(indices),
                )
            )


def corners_of(box: Points, pos: npt.ArrayLike, quat: npt.ArrayLike) -> Points:
    """Return the corners of a box on the ground, rotated by the yaw only; NaN where the x axis of the body is vertical.

    Args:
        box: corners in the body frame, `[corner]`.
        pos: origin of the body, `[env, 3]`, world, m.
        quat: orientation of the body, `[env, 4]`, wxyz.

    Returns:
        `[env, corner]`, world.
    """
    (x, y, _), (w, i, j, k) = np.asarray(pos, np.float64).T, np.asarray(quat, np.float64).T
    ahead = w * w + i * i - j * j - k * k + 2j * (i * j + w * k)
    corners: Points = (x + 1j * y)[:, None] + (ahead / np.abs(ahead))[:, None] * box
    return corners


class Lines:
    """Markings as segments, with a test for the paths that cross them.

    Args:
        markings: the lane markings.
    """

    def __init__(self, markings: Iterable[LaneMarking]) -> None:
        self.markings = tuple(markings)
        lines = [np.array([complex(*point[:2]) for point in each.points]) for each in self.markings]
        self.start: Points = np.concatenate([np.empty(0), *(line[:-1] for line in lines)])
        self.end: Points = np.concatenate([np.empty(0), *(line[1:] for line in lines)])
        self.marking = np.repeat(np.arange(len(lines)), [len(line) - 1 for line in lines])

    def crossed(self, before: Points, now: Points) -> npt.NDArray[np.bool_]:
        """Return which straight paths reach which markings without having started on them.

        Args:
            before: start points of the paths, `[env, corner]`; NaN for a path that crosses nothing.
            now: end points of the paths.

        Returns:
            bool `[env, corner, marking]`.
        """
        apart = np.abs((before + now)[..., None] - (self.start + self.end))
        reach = np.abs(now - before)[..., None] + np.abs(self.end - self.start) + 2.0 * TOLERANCE
        env, corner, segment = np.nonzero(apart <= reach)  # the circles around path and segment touch
        p, q, a, b = before[env, corner], now[env, corner], self.start[segment], self.end[segment]
        starts_on = _distance(p, a, b) <= TOLERANCE
        gap = np.minimum(_distance(q, a, b), np.minimum(_distance(a, p, q), _distance(b, p, q)))
        reached = (gap <= TOLERANCE) | (_are_apart(a, b, p, q) & _are_apart(p, q, a, b))
        found = np.zeros((*before.shape, len(self.markings)), np.bool_)
        for pairs, value in ((reached, True), (starts_on, False)):
            found[env[pairs], corner[pairs], self.marking[segment[pairs]]] = value
        return found


def _are_apart(a: Points, b: Points, c: Points, d: Points) -> npt.NDArray[np.bool_]:
    """Return whether the points c and d lie on different sides of the line from a to b."""
    return np.sign(((c - a) * (b - a).conj()).imag) * np.sign(((d - a) * (b - a).conj()).imag) < 0.0


def _distance(point: Points, a: Points, b: Points) -> npt.NDArray[np.float64]:
    """Return the distances of points from the segments from a to b, m."""
    along, square = b - a, np.abs(b - a) ** 2
    share = ((point - a) * along.conj()).real / np.where(square > 0.0, square, 1.0)
    return np.abs(point - a - np.clip(share, 0.0, 1.0) * along)
