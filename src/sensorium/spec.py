"""What an output is (`FieldSpec`) and what a sensor asks of an engine (`Requirement`): plain values.

One `FieldSpec` drives allocation, documentation, tests, the recording schema, the stream header and the viewer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, isfinite, prod
from typing import Any, Literal

import numpy as np


def exact_fraction(seconds: float) -> Fraction:
    """Return the decimal that `seconds` was written as, exactly (0.002 is 1/500, not its nearest double)."""
    return Fraction(repr(float(seconds)))


def snake_case(name: str) -> str:
    """Return ``"gauss_markov"`` for ``"GaussMarkov"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kind_of(cls: type) -> str:
    """Return the kind that names a config class in files: without ``Cfg`` and ``Sensor``, in snake_case."""
    return snake_case(cls.__name__.split("[")[0].removesuffix("Cfg").removesuffix("Sensor"))


Kind = Literal["vector", "rotation", "id", "flag", "derived"]
"""What noise may do to a field: a `vector` takes it per column, a `rotation` takes small-angle noise and stays a unit
quaternion, an `id` and a `flag` take none. A `derived` field takes none of its own: its measured value follows from
other measured fields."""

Role = Literal[
    "scalar", "point", "vector_at", "specific_force", "angular_velocity", "magnetic", "pose", "range", "image"
]
"""What a field is to a viewer or a recorder."""


@dataclass(frozen=True, slots=True)
class Field:
    """The annotation of one field of a sensor's data class: ``Annotated[Tensor, Field(unit="m")]``.

    Args:
        unit: SI unit as text, e.g. ``"m/s^2"``; ``"1"`` for none.
        shape: sizes of the axes after env and mount.
        axes: one word for each of those sizes; by default ``("xyz",)`` for (3,), ``("wxyz",)`` for (4,).
        dtype: NumPy name of the element type.
        frame: frame of the coordinates: ``"world"``, ``"sensor"`` or ``""`` where none applies.
        kind: what noise may do to it.
        role: what it is to a viewer or recorder.
        low: what no true value is below, up to rounding; -inf where that is not known.
        high: what no true value is above, up to rounding; +inf where that is not known.
    """

    unit: str
    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] | None = None
    dtype: str = "float32"
    frame: str = ""
    kind: Kind = "vector"
    role: Role = "scalar"
    low: float = -inf
    high: float = inf


VECTOR_AXES = ("xyz", "wxyz", "enu", "ned", "rpy", "rgb", "rgba")
"""Words for axes whose elements are the parts of one vector. Every other axis counts things: mounts, joints, rays."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One output of one sensor, after its config is known.

    Args:
        name: field name, as in the sensor's data class.
        axes: one word for each axis after env, ``"mount"`` first where there is a mount axis.
        shape: the sizes of those axes.
        dtype: NumPy name of the element type.
        unit: SI unit as text.
        frame: frame of the coordinates.
        kind: what noise may do to it.
        role: what it is to a viewer or recorder.
        low: what no true value is below, up to rounding.
        high: what no true value is above, up to rounding.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    unit: str
    frame: str
    kind: Kind
    role: Role
    low: float = -inf
    high: float = inf

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape):
            raise ValueError(f"FieldSpec {self.name!r}: {len(self.axes)} axes {self.axes} for shape {self.shape}")
        np.dtype(self.dtype)

    @property
    def is_ragged(self) -> bool:
        """Whether environments have different numbers of rows: the first axis is events, its size their capacity."""
        return self.axes[:1] == ("event",)

    @property
    def columns(self) -> int:
        """Number of elements of one env."""
        return prod(self.shape)

    @property
    def is_vector(self) -> bool:
        """Whether the last axis holds the three or four parts of one vector, so that kernels see vec3 or vec4."""
        return bool(self.axes) and self.axes[-1] in VECTOR_AXES and self.shape[-1] in (3, 4)

    @property
    def nbytes(self) -> int:
        """Bytes of one env."""
        return self.columns * np.dtype(self.dtype).itemsize

    def squeezed(self) -> FieldSpec:
        """Return the spec without its mount axis (a singular selector)."""
        if not self.axes or self.axes[0] != "mount":
            return self
        return replace(self, axes=self.axes[1:], shape=self.shape[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description; the limits `low` and `high` are in it where they are known."""
        limits = {"low": self.low, "high": self.high}
        return {
            "name": self.name,
            "axes": ["env", *self.axes],
            "shape": list(self.shape),
            "dtype": self.dtype,
            "unit": self.unit,
            "frame": self.frame,
            "kind": self.kind,
            "role": self.role,
            **{name: float(limit) for name, limit in limits.items() if isfinite(limit)},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FieldSpec:
        """Return the spec that `to_dict` described; the limits `low` and `high` are read where they are given.

        Raises:
            ValueError: the values are none of a spec.
        """
        try:
            texts = {name: values[name] for name in ("name", "dtype", "unit", "frame", "kind", "role")}
            axes, shape = tuple(values["axes"]), tuple(values["shape"])
            low, high = float(values.get("low", -inf)), float(values.get("high", inf))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"no description of a field: {type(error).__name__}: {error}") from None
        if axes[:1] != ("env",) or not all(isinstance(text, str) for text in (*texts.values(), *axes)):
            raise ValueError(f"no description of a field: {values!r}")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"no description of a field: shape {shape!r}")
        try:
            return cls(axes=axes[1:], shape=shape, low=low, high=high, **texts)
        except (TypeError, ValueError, SyntaxError) as error:
            raise ValueError(f"no description of a field: {error}") from None


DEFAULT_AXES: dict[tuple[int, ...], tuple[str, ...]] = {(): (), (3,): ("xyz",), (4,): ("wxyz",)}


def resolve_field(name: str, annotation: Field, mounts: int | None) -> FieldSpec:
    """Turn the annotation of a data field into its spec.

    Args:
        name: field name.
        annotation: the declared `Field`.
        mounts: number of mounts, or None where the sensor has no mount axis.
    """
    axes = annotation.axes
    if axes is None:
        axes = DEFAULT_AXES.get(annotation.shape, tuple(f"axis{i}" for i in range(len(annotation.shape))))
    lead_axes, lead_shape = ((), ()) if mounts is None else (("mount",), (mounts,))
    return FieldSpec(
        name,
        (*lead_axes, *axes),
        (*lead_shape, *annotation.shape),
        annotation.dtype,
        annotation.unit,
        annotation.frame,
        annotation.kind,
        annotation.role,
        annotation.low,
        annotation.high,
    )


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a sensor needs of an engine, as a plain value that can be compared and hashed.

    Args:
        kind: e.g. ``"BODY_POSE"``.
        args: what specifies it further, hashable.
    """

    kind: str
    args: tuple[Any, ...] = field(default=())

    def __str__(self) -> str:
        shown = [getattr(arg, "__qualname__", repr(arg)) for arg in self.args]
        return f"{self.kind}({', '.join(shown)})" if shown else self.kind


BODY_POSE = Requirement("BODY_POSE")
"""`body_pos_w [env, body, 3]` m, `body_quat_w [env, body, 4]` wxyz: the body frame origin in the world."""
BODY_VELOCITY = Requirement("BODY_VELOCITY")
"""`body_lin_vel_w`, `body_ang_vel_w [env, body, 3]`: linear at the body frame origin, world axes."""
BODY_ACCELERATION = Requirement("BODY_ACCELERATION")
"""`body_lin_acc_w`, `body_ang_acc_w [env, body, 3]`: coordinate acceleration (0 at rest), world axes."""
GRAVITY = Requirement("GRAVITY")
"""`gravity_w [env, 3]` m/s^2, per env."""
MAGNETIC = Requirement("MAGNETIC")
"""`magnetic_w [env, 3]`, the engine's magnetic flux in world axes, in the engine's unit."""
JOINT_STATE = Requirement("JOINT_STATE")
"""`joint_pos`, `joint_vel [env, joint]`: position and velocity of each scalar joint (hinge: rad, rad/s; slide: m, m/s).

Rows of all joint arrays follow `engine.names("scalar_joint")`.
"""
JOINT_EFFORT = Requirement("JOINT_EFFORT")
"""`joint_effort [env, joint]`: what the actuators exert at each scalar joint, through their gears, N m (slide: N)."""
JOINT_TORQUE = Requirement("JOINT_TORQUE")
"""`joint_torque [env, joint]`: what the drive passes on to the link at the gearbox output, N m (slide: N).

Actuator force - armature * acceleration + dry friction - damping * velocity: what is left of the actuators' force after
the drive's own inertia and friction. Springs, end stops, contacts and gravity act on the link beside the drive.
"""
JOINT_WRENCH = Requirement("JOINT_WRENCH")
"""`body_parent_force_w`, `body_parent_torque_w [env, body, 3]`: what the parent exerts on the body through the joints
(or the weld) between them, world axes, N and N m about the body frame origin. A body at rest is held up: +m g."""
SHAPES = Requirement("SHAPES")
"""`engine.shapes()`: what rays can meet, described once; with BODY_POSE for the poses of the shapes that move."""


def NATIVE_SENSOR(
    name: str,
    type: str = "",
    objtype: str = "",
    objname: str = "",
    reftype: str = "",
    refname: str = "",
    cutoff: float = 0.0,
    parameters: tuple[tuple[str, Any], ...] = (),
) -> Requirement:
    """Require one of the engine's own sensors: the array `native:NAME [env, dim]` holds its output.

    Args:
        name: name of the sensor. With a `type` it is added to the model, hidden; without, the model declares it.
        type: word for the type in the engine's own files, e.g. ``"accelerometer"``.
        objtype: kind of element that it is attached to (``"site"``, ``"xbody"``, ...); empty for none.
        objname: full name of that element.
        reftype: kind of the reference element; empty for none.
        refname: full name of the reference.
        cutoff: see the engine; 0 for none.
        parameters: further (name, value) pairs of the type, e.g. of a rangefinder.
    """
    return Requirement("NATIVE_SENSOR", (name, type, objtype, objname, reftype, refname, cutoff, parameters))


CONTACT_FIELDS = {"found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3}
"""What a contact report can say of a contact, in the order of its columns, and the number of columns of each."""

ContactReduce = Literal["none", "mindist", "maxforce", "netforce"]
"""Which contacts of a primary fill its slots: the engine's first, the deepest, the strongest, or one sum of all."""


def CONTACT_REPORT(
    primary: tuple[str, tuple[str, ...]],
    secondary: tuple[str, str] | None = None,
    fields: tuple[str, ...] = ("found", "force"),
    reduce: ContactReduce = "maxforce",
    slots: int = 1,
) -> Requirement:
    """Require the contacts of some elements: the array `contact_array(requirement)` `[env, primary, slot, column]`.

    Columns are those of the fields, in the order of CONTACT_FIELDS. `found` is the number of contacts that match the
    primary, in each filled slot; an empty slot is 0 throughout. `normal` points from the primary to the secondary;
    `tangent` and `pos` (m) are in the world, too; `dist` (m) is negative where the two penetrate. `force` (N) and
    `torque` (N m, about `pos`) are in the contact's frame (normal, tangent, normal x tangent), the first > 0 where it
    presses: on the primary acts minus that. With ``netforce`` they are in world axes and act on the primary.

    Args:
        primary: kind (``"geom"``, ``"body"`` or ``"subtree"``) and full names.
        secondary: kind and full name of what they touch; None for anything.
        fields: what is reported.
        reduce: which contacts fill the slots.
        slots: contacts kept for each primary; 1 with ``netforce``.
    """
    order = tuple(name for name in CONTACT_FIELDS if name in fields)
    return Requirement("CONTACT_REPORT", (primary, secondary, order, reduce, slots))


def contact_array(requirement: Requirement) -> str:
    """Return the name of the array that a CONTACT_REPORT brings."""
    (kind, names), secondary, fields, reduce, slots = requirement.args
    other = "*" if secondary is None else ":".join(secondary)
    return f"contact:{kind}:{','.join(names)}|{other}|{','.join(fields)}|{reduce}|{slots}"


def contact_columns(requirement: Requirement) -> dict[str, slice]:
    """Return which columns of a CONTACT_REPORT's array each of its fields has, in order."""
    columns, start = {}, 0
    for name in requirement.args[2]:
        columns[name] = slice(start, start + CONTACT_FIELDS[name])
        start += CONTACT_FIELDS[name]
    return columns


def MODEL_ELEMENTS(add: Callable[[Any], None]) -> Requirement:
    """Require elements of the model that a plugin adds by itself: `add(mjSpec)` is called before the model is compiled.

    Two requirements with the same function are one: it is called once.
    """
    return Requirement("MODEL_ELEMENTS", (add,))
