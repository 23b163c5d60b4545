"""Bodies of a `TensorEngine` and their attachments: names, frames, the tree, shapes and native sensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from sensorium.engines.base import ARRAYS, FrameOnBody, NameKind, NativeSensor
from sensorium.engines.contacts import ContactList
from sensorium.engines.envs import as_tensor, positive_int
from sensorium.errors import ArgumentError, ModelError, UnknownNameError, listed, nearest, shown
from sensorium.geometry.appearance import VARIED, Lighting
from sensorium.geometry.shapes import Shape

if TYPE_CHECKING:
    from sensorium.engines.world_file import World

Provides = Literal[
    "pose", "velocity", "acceleration", "gravity", "magnetic", "joint_state", "joint_effort", "joint_torque",
    "joint_wrench", "tendon_paths", "contact",
]  # fmt: skip
Site = str | FrameOnBody | tuple[Any, ...]
"""Frame of a site: a body's name (its origin), `(body name, pos)`, `(body name, pos, quat)` or a FrameOnBody."""

WORD = {requirement: requirement.kind.lower().removeprefix("body_") for requirement in ARRAYS}
WORDS = {**{word: ARRAYS[requirement] for requirement, word in WORD.items()}, "contact": {}}
"""Arrays of each word of `provides`: name to shape after the env axis; a contact report defines its own array."""


class Parts(TypedDict, total=False):
    """Parts of the bodies of a `TensorEngine`, described in its docstring."""

    sites: Mapping[str, Site] | None
    joints: Sequence[str] | Mapping[str, Site | None]
    slides: Sequence[str]
    geoms: Mapping[str, Site] | None
    shapes: Sequence[Shape] | Mapping[str, Shape] | Sequence[Sequence[Shape]] | None
    world: str | Path | None
    lighting: Lighting | None
    looks: Mapping[str, Any] | None
    native: Mapping[str, int | NativeSensor] | None
    parents: Mapping[str, str | int] | Sequence[str | int] | NDArray[np.integer[Any]] | None
    com: Any
    at_com: Sequence[Literal["pose", "velocity", "acceleration", "joint_wrench"]]
    bound: Mapping[str, Any] | None
    contact_list: ContactList | None


class TensorModel:
    """Names, frames, tree, shapes and native sensors of the bodies of a `TensorEngine`.

    Args:
        num_envs: number of environments.
        bodies: names of the bodies.
        provides: quantities that the user writes.
        parts: parts of the bodies, see `TensorEngine`.

    Attributes:
        bodies: names of the bodies.
        joints: frame of each joint, None for a joint without one.
        slides: names of the joints that slide.
        native: native sensors, in order.
        shapes: shapes of one environment; None if they are unknown.
        world: the world of the file; empty without one.
        lighting: lights, sky and fog.
        looks: values of quantities of shapes and lights, see `Engine.looks`.
        shape_fault: why sensors that need shapes are rejected, or an empty text.

    Raises:
        ArgumentError: an argument is invalid.
        ModelError: a site, joint, geom or shape is invalid.
    """

    def __init__(self, num_envs: int, bodies: Sequence[str], provides: frozenset[str], parts: Parts) -> None:
        joints, slides, shapes = parts.get("joints", ()), parts.get("slides", ()), parts.get("shapes")
        slides = (slides,) if isinstance(slides, str) else slides
        for what, given in (("bodies", bodies), ("joints", joints), ("slides", slides)):
            check_names(given, what)
        if "world" in bodies:
            raise ArgumentError(
                "bodies: got 'world', which is the name of the world, row -1: omit it or rename the body."
            )
        self._num_envs, self._provides = num_envs, provides
        self.bodies = tuple(bodies)
        self._rows: dict[str | int, int] = {"world": -1, **{body: row for row, body in enumerate(self.bodies)}}
        self._parents = None if parts.get("parents") is None else self._rows_of_parents(parts["parents"])
        self._places: dict[str, Mapping[str, FrameOnBody | None]] = {
            kind: {name: self._place(kind, name, given) for name, given in mapping_of(parts, f"{kind}s").items()}
            for kind in ("site", "geom")
        }
        places = joints if isinstance(joints, Mapping) else dict.fromkeys(joints)
        self.joints = {
            joint: None if given is None else self._place("joint", joint, given) for joint, given in places.items()
        }
        self._places |= {"joint": self.joints, "scalar_joint": self.joints}
        self.shape_fault = ""
        self.world: World | None = None
        """The world of a file."""
        if (file := parts.get("world")) is not None:
            from sensorium.engines.world_file import read_world  # imported on use: few engines read a file

            self.world, shapes = read_world(file), () if shapes is None else shapes
        self.shapes = None if shapes is None else self._shapes_of_worlds(shapes)
        lighting = parts.get("lighting")
        if lighting is None:
            lighting = Lighting() if self.world is None else self.world.lighting
        self.lighting = lighting
        if not isinstance(self.lighting, Lighting):
            raise ArgumentError(f"lighting: got {shown(self.lighting)}, expected a Lighting.")
        self.looks = dict(mapping_of(parts, "looks"))
        self._check_looks()
        self.slides = tuple(slides)
        for joint in self.slides:
            if joint not in self.joints:
                raise ArgumentError(
                    f"slides: got {shown(joint)}, expected names among the joints {listed(self.joints)}."
                )
        self.native = tuple(_native_sensor(sensor, given) for sensor, given in mapping_of(parts, "native").items())

    def _check_looks(self) -> None:
        for name, values in self.looks.items():
            if name not in VARIED:
                raise ArgumentError(f"looks: got {shown(name)}, expected quantities among {listed(VARIED)}.")
            count = len(self.lighting.lights if name.startswith("light_") else self.shapes or ())
            size, shape = VARIED[name], tuple(as_tensor(values, f"looks[{name!r}]").shape)
            wanted = (count, size) if size > 1 else (count,)
            if shape[1:] not in (wanted, (count, size)) or shape[0] not in (1, self._num_envs):
                raise ArgumentError(
                    f"looks[{name!r}]: got values of shape {shape}, expected {(1, *wanted)}, or "
                    f"{(self._num_envs, *wanted)} for different values in each environment."
                )

    def _rows_of_parents(self, given: Any) -> tuple[int, ...]:
        given = given.tolist() if isinstance(given, np.ndarray) else given
        if not isinstance(given, Mapping | Sequence) or isinstance(given, str) or len(given) != len(self.bodies):
            raise ModelError(f"parents: got {shown(given)}, expected the parent of each of {listed(self.bodies)}.")
        known = self._rows | {row: row for row in range(-1, len(self.bodies))}
        above: list[Any] = [given.get(name) for name in self.bodies] if isinstance(given, Mapping) else list(given)
        for body, parent in zip(self.bodies, above, strict=True):
            if not isinstance(parent, str | int | np.integer) or parent not in known:
                raise ModelError(f"parents[{body!r}]: got {shown(parent)}, expected a body (name or row) or 'world'.")
        rows = tuple(known[parent] for parent in above)
        for row, body in enumerate(self.bodies):
            for _ in rows:
                row = rows[row] if row >= 0 else row
            if row >= 0:
                raise ModelError(f"parents[{body!r}]: the body is its own ancestor: make the parents a tree.")
        return rows

    def _place(self, kind: str, name: str, given: Site) -> FrameOnBody:
        if isinstance(given, FrameOnBody):
            if not -1 <= given.body < len(self.bodies):
                raise ModelError(
                    f"{kind} {name!r}: got body index {given.body}, expected -1 to {len(self.bodies) - 1}."
                )
            return given
        parts = tuple(given) if isinstance(given, tuple | list) else (given,)
        place = [_numbers(part) for part in parts[1:]]
        sizes = [len(numbers) for numbers in place]
        if (
            not isinstance(next(iter(parts), None), str)
            or parts[0] not in self._rows
            or sizes != [3, 4][: len(sizes)]
            or (len(sizes) == 2 and not any(place[1]))
        ):
            raise ModelError(
                f"{kind} {name!r}: got {shown(given)}, expected a body, (body, pos) or (body, pos, quat wxyz) "
                f"with one of the bodies {listed(self.bodies)}."
            )
        return FrameOnBody(self._rows[parts[0]], *place)  # type: ignore[arg-type]

    def _shapes_of_worlds(self, given: Any) -> tuple[Shape, ...]:
        """Return the shapes of one environment, from one sequence for all or one for each."""
        if (
            not isinstance(given, list | tuple)
            or not given
            or not all(isinstance(each, list | tuple) for each in given)
        ):
            return self._placed_shapes(given)
        if len(given) != self._num_envs:
            raise ModelError(f"shapes: got shapes of {len(given)} worlds, expected one sequence or {self._num_envs}.")
        from sensorium.engines.worlds import common_shapes  # imported on use, as above

        worlds = [self._placed_shapes(each) for each in given]
        try:
            return common_shapes(worlds)
        except ModelError as error:
            self.shape_fault = str(error)
            return ()

    def _placed_shapes(self, given: Any) -> tuple[Shape, ...]:
        if isinstance(given, Shape):
            raise ModelError(f"shapes: got one Shape, {given.name!r}, expected a sequence: write shapes=[...].")
        if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
            raise ModelError(f"shapes: got {shown(given)}, expected a sequence of shapes, or a mapping from names.")
        shapes = list(given.values() if isinstance(given, Mapping) else given)
        for shape in shapes:
            if not isinstance(shape, Shape):
                raise ModelError(f"shapes: got {shown(shape)}, expected a Shape, e.g. Shape('plane', 'ground').")
        if isinstance(given, Mapping):
            shapes = [replace(shape, name=name) for name, shape in given.items()]
        shapes = [*(() if self.world is None else self.world.shapes), *shapes]
        names = Counter((shape.element, shape.name) for shape in shapes if shape.element != "tendon")
        for (_, name), count in names.items():
            if count > 1:
                raise ModelError(f"shape {name!r}: {count} shapes have this name, give each a unique name.")
        return tuple(map(self._placed_shape, shapes))

    def _placed_shape(self, shape: Shape) -> Shape:
        row = shape.body
        if isinstance(row, str):
            if row not in self._rows:
                raise ModelError(
                    f"shape {shape.name!r}: there is no body {row!r}.{nearest(row, self.bodies)} Bodies: "
                    f"{listed(self.bodies)}, and 'world'."
                )
            row = self._rows[row]
        if not -1 <= row < len(self.bodies):
            raise ModelError(f"shape {shape.name!r}: got body index {row}, expected -1 to {len(self.bodies) - 1}.")
        if shape.element == "tendon" and "tendon_paths" not in self._provides:
            raise ModelError(
                f"shape {shape.name!r} is a segment of a tendon, whose path is not provided: give "
                f"{providing(self._provides, 'tendon_paths')}."
            )
        if shape.element == "tendon":
            return replace(shape, body=-1)
        if row < 0 and not shape.is_static and not shape.fault:
            raise ModelError(f"shape {shape.name!r}: is_static=False on the world, which never moves: name a body.")
        if not shape.is_static and not shape.fault and "pose" not in self._provides:
            raise ModelError(
                f"shape {shape.name!r} moves with body {self.bodies[row]!r}, whose pose is not provided: "
                f"give {providing(self._provides, 'pose')}, or set is_static=True on the shape and place it in "
                "the world frame."
            )
        return replace(shape, body=row)

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the names of a kind."""
        return self.bodies if kind == "body" else tuple(self._places.get(kind, ()))

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return a frame; see `TensorEngine.frame`."""
        if kind == "body" and name in self._rows:
            return FrameOnBody(self._rows[name])
        places = self._places.get(kind, {})
        if name not in places:
            raise UnknownNameError(kind, name, self.names(kind))
        if (place := places[name]) is None:
            raise ModelError(
                f"joint {name!r} has no frame: write TensorEngine(..., joints={{{name!r}: frame}}), where frame is "
                f"a body, (body, pos) or (body, pos, quat wxyz); bodies: {listed(self.bodies)}."
            )
        return place

    def parent(self, body: int) -> int | None:
        """Return the index of a body's parent, -1 for the world; None without `parents`."""
        return None if self._parents is None else self._parents[body]


def providing(provides: Set[str], word: str) -> str:
    """Return the call that creates an engine with one more word of `provides`."""
    words = tuple(each for each in WORDS if each in provides or each == word)
    return f"TensorEngine(..., provides={words!r})"


def check_names(given: Any, what: str) -> None:
    """Raise ArgumentError unless a value is a sequence of unique texts, or a mapping from texts."""
    is_some = isinstance(given, Sequence | Mapping | Set) and not isinstance(given, str)
    if not is_some or not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise ArgumentError(f"{what}: got {shown(given)}, expected a sequence of names without repetition.")


def mapping_of(parts: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Return an argument that must be a mapping from names; None is empty."""
    given = {} if parts.get(what) is None else parts[what]
    if not isinstance(given, Mapping):
        raise ArgumentError(f"{what}: got {shown(given)}, expected a mapping from names.")
    return given


def _numbers(given: Any) -> tuple[float, ...]:
    """Return finite numbers; an empty tuple for any other value."""
    try:
        values = as_tensor(given, "place").flatten().tolist()
    except ArgumentError:
        return ()
    return tuple(map(float, values)) if all(map(math.isfinite, values)) else ()


def _native_sensor(name: str, given: int | NativeSensor) -> NativeSensor:
    if isinstance(given, NativeSensor):
        if given.name != name:
            raise ArgumentError(f"native[{name!r}]: got a NativeSensor named {given.name!r}, expected the same name.")
        return given
    return NativeSensor(name, dim=positive_int(given, f"native[{name!r}]"))
