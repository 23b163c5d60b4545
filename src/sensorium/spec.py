"""Outputs of a sensor (`FieldSpec`) and requirements on an engine (`Requirement`), as plain values.

One `FieldSpec` drives allocation, documentation, tests, the recording schema, the stream header and the viewer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cache
from math import inf, prod
from typing import Any, Literal, get_args

import numpy as np

from sensorium.errors import RegistrationError, listed, nearest


def exact_fraction(seconds: float) -> Fraction:
    """Return the decimal number that `seconds` was written as, exactly: 0.002 gives 1/500, not its nearest double."""
    return Fraction(repr(float(seconds)))


@cache
def snake_case(name: str) -> str:
    """Return ``"gauss_markov"`` for ``"GaussMarkov"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kind_of(cls: type) -> str:
    """Return the name of a config class in files: in snake_case, without ``Cfg`` and ``Sensor``."""
    return snake_case(cls.__name__.split("[")[0].removesuffix("Cfg").removesuffix("Sensor"))


Kind = Literal["vector", "rotation", "id", "flag", "derived"]
"""How noise affects a field. A `vector` takes noise per column. A `rotation` takes small-angle noise and stays a unit
quaternion. An `id` and a `flag` take none. A `derived` field takes none directly, since it is computed from other
measured fields."""

Role = Literal[
    "scalar", "point", "vector_at", "specific_force", "angular_velocity", "magnetic", "pose", "range", "image"
]
"""How viewers and recorders interpret a field."""

DTYPES = ("float32", "float64", "int32", "int64", "int16", "uint8", "bool")
"""NumPy names of the element types of fields."""

FLUX_UNITS: Mapping[str, float] = {"T": 1.0, "mT": 1e-3, "uT": 1e-6, "nT": 1e-9, "G": 1e-4, "mG": 1e-7}
"""Units of magnetic flux density, in tesla."""
FluxUnit = Literal["T", "mT", "uT", "nT", "G", "mG"]

Parity = Literal["", "polar", "axial"]
"""How a vector of three components behaves in a mirror. A `polar` vector, such as a velocity or a force, reverses its
component across the mirror. An `axial` vector, such as an angular velocity or a torque, reverses the other two. Empty
for scalars, rotations and vectors without a mirror image."""


@dataclass(frozen=True, slots=True)
class Field:
    """Annotation of one field of a sensor's data class: ``Annotated[Tensor, Field(unit="m")]``.

    Args:
        unit: SI unit as text, e.g. ``"m/s^2"``; ``"1"`` for a dimensionless field.
        shape: sizes of the axes after env and mount.
        axes: one name for each of those axes; by default ``("xyz",)`` for (3,), ``("wxyz",)`` for (4,).
        dtype: NumPy name of the element type.
        frame: frame of the coordinates: ``"world"``, ``"sensor"`` or ``""`` where none applies.
        kind: how noise affects the field.
        role: how viewers and recorders interpret the field.
        low: lower bound of the true values, up to rounding; -inf where unknown.
        high: upper bound of the true values, up to rounding; +inf where unknown.
        parity: how the vector behaves in a mirror; see `Parity`.

    Raises:
        RegistrationError: `axes` does not have one name for each size of `shape`, or `dtype`, `kind`, `role` or
            `parity` is unknown.
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
    parity: Parity = ""

    def __post_init__(self) -> None:
        if self.axes is not None and len(self.axes) != len(self.shape):
            sizes = ", ".join(str(len(axis)) if axis in VECTOR_AXES else "n" for axis in self.axes)
            comma = "," if len(self.axes) == 1 else ""
            raise RegistrationError(
                f"Field({self.unit!r}): got axes={self.axes!r} for shape={self.shape!r}, expected one name for each "
                f"size; give shape=({sizes}{comma})."
            )
        known = {"dtype": DTYPES, "kind": get_args(Kind), "role": get_args(Role), "parity": get_args(Parity)}
        for name, names in known.items():
            if (value := getattr(self, name)) not in names:
                raise RegistrationError(
                    f"Field({self.unit!r}): got {name}={value!r}, expected one of {listed(map(repr, names))}."
                    f"{nearest(str(value), names)}"
                )


VECTOR_AXES = ("xyz", "wxyz", "enu", "ned", "rpy", "rgb", "rgba")
"""Names of axes whose elements are the components of one vector. All other axes count items: mounts, joints, rays."""


def unit_of(unit: str, shape: Sequence[int], element: int) -> str:
    """Return the unit of one element of a field by its place in memory; of several, such as ``"deg, deg, m"``, its own.

    Args:
        unit: unit of the field.
        shape: its shape.
        element: place of the element.
    """
    units = unit.split(", ")
    return units[element % len(units)] if shape and len(units) == shape[-1] else unit


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """Description of one output of one sensor, complete once the config is known.

    Args:
        name: field name, as in the sensor's data class.
        axes: one name for each axis after env, ``"mount"`` first where there is a mount axis.
        shape: the sizes of those axes.
        dtype: NumPy name of the element type.
        unit: SI unit as text.
        frame: frame of the coordinates.
        kind: how noise affects the field.
        role: how viewers and recorders interpret the field.
        low: lower bound of the true values, up to rounding.
        high: upper bound of the true values, up to rounding.
        parity: how the vector behaves in a mirror.
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
    parity: Parity = ""

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape):
            raise ValueError(f"FieldSpec {self.name!r}: {len(self.axes)} axes {self.axes} for shape {self.shape}")
        np.dtype(self.dtype)

    @property
    def is_ragged(self) -> bool:
        """Whether environments differ in their number of rows; the first axis then counts events up to a capacity."""
        return self.axes[:1] == ("event",)

    @property
    def columns(self) -> int:
        """Number of elements per environment."""
        return prod(self.shape)

    @property
    def is_vector(self) -> bool:
        """Whether the last axis holds the three or four components of one vector, so that kernels see vec3 or vec4."""
        return bool(self.axes) and self.axes[-1] in VECTOR_AXES and self.shape[-1] in (3, 4)

    @property
    def nbytes(self) -> int:
        """Bytes per environment."""
        return self.columns * np.dtype(self.dtype).itemsize

    def squeezed(self) -> FieldSpec:
        """Return the spec without its mount axis, as for a singular selector."""
        if not self.axes or self.axes[0] != "mount":
            return self
        return replace(self, axes=self.axes[1:], shape=self.shape[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description, with the bounds and the parity where they are known."""
        shape = {"axes": ["env", *self.axes], "shape": list(self.shape)}
        values = {**asdict(self), **shape, "low": float(self.low), "high": float(self.high)}
        unknown = {"low": -inf, "high": inf, "parity": ""}
        return {name: value for name, value in values.items() if value != unknown.get(name)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FieldSpec:
        """Return the spec described by the result of `to_dict`; the bounds and the parity are optional.

        Raises:
            ValueError: the values do not describe a field.
        """
        try:
            texts = {name: values[name] for name in ("name", "dtype", "unit", "frame", "kind", "role")}
            axes, shape = tuple(values["axes"]), tuple(values["shape"])
            low, high = float(values.get("low", -inf)), float(values.get("high", inf))
            parity = values.get("parity", "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"invalid description of a field: {type(error).__name__}: {error}") from None
        if axes[:1] != ("env",) or not all(isinstance(text, str) for text in (*texts.values(), *axes, parity)):
            raise ValueError(f"invalid description of a field: {values!r}")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"invalid description of a field: shape {shape!r}")
        try:
            return cls(axes=axes[1:], shape=shape, low=low, high=high, parity=parity, **texts)
        except (TypeError, ValueError, SyntaxError) as error:
            raise ValueError(f"invalid description of a field: {error}") from None


DEFAULT_AXES: dict[tuple[int, ...], tuple[str, ...]] = {(): (), (3,): ("xyz",), (4,): ("wxyz",)}


def resolve_field(name: str, annotation: Field, mounts: int | None) -> FieldSpec:
    """Return the spec of an annotated data field.

    Args:
        name: field name.
        annotation: the declared `Field`.
        mounts: number of mounts, or None if the sensor has no mount axis.
    """
    axes = annotation.axes
    if axes is None:
        axes = DEFAULT_AXES.get(annotation.shape, tuple(f"axis{i}" for i in range(len(annotation.shape))))
    lead_axes, lead_shape = ((), ()) if mounts is None else (("mount",), (mounts,))
    layout = {"axes": (*lead_axes, *axes), "shape": (*lead_shape, *annotation.shape)}
    return FieldSpec(name, **{**asdict(annotation), **layout})


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirement of a sensor on an engine: a plain value that can be compared and hashed.

    Args:
        kind: e.g. ``"BODY_POSE"``.
        args: further details of the requirement, hashable.
    """

    kind: str
    args: tuple[Any, ...] = field(default=())

    def __str__(self) -> str:
        shown = [getattr(arg, "__qualname__", repr(arg)) for arg in self.args]
        return f"{self.kind}({', '.join(shown)})" if shown else self.kind


BODY_POSE = Requirement("BODY_POSE")
"""`body_pos_w [env, body, 3]` m, `body_quat_w [env, body, 4]` wxyz: the body frame in the world."""
BODY_VELOCITY = Requirement("BODY_VELOCITY")
"""`body_lin_vel_w`, `body_ang_vel_w [env, body, 3]`: linear at the body frame origin, world axes."""
BODY_ACCELERATION = Requirement("BODY_ACCELERATION")
"""`body_lin_acc_w`, `body_ang_acc_w [env, body, 3]`: coordinate acceleration (0 at rest), world axes."""
GRAVITY = Requirement("GRAVITY")
"""`gravity_w [env, 3]` m/s^2, per environment."""
MAGNETIC = Requirement("MAGNETIC")
"""`magnetic_w [env, 3]`: the engine's magnetic flux in world axes, in the engine's unit."""
JOINT_STATE = Requirement("JOINT_STATE")
"""`joint_pos`, `joint_vel [env, joint]`: position and velocity of each scalar joint (hinge: rad, rad/s; slide: m, m/s).

Rows of all joint arrays follow `engine.names("scalar_joint")`.
"""
JOINT_EFFORT = Requirement("JOINT_EFFORT")
"""`joint_effort [env, joint]`: effort of the actuators at each scalar joint, through their gears, N m (slide: N)."""
JOINT_TORQUE = Requirement("JOINT_TORQUE")
"""`joint_torque [env, joint]`: torque that the drive delivers to the link at the gearbox output, N m (slide: N).

Actuator force - armature * acceleration + dry friction - damping * velocity: the actuator force less the drive's
inertia and friction. Springs, end stops, contacts and gravity act on the link in addition to the drive.
"""
JOINT_WRENCH = Requirement("JOINT_WRENCH")
"""`body_parent_force_w`, `body_parent_torque_w [env, body, 3]`: wrench that the parent exerts on the body through the
joints (or the weld) between them, world axes, N and N m about the body frame origin. For a body at rest it is +m g."""
TENDON_PATHS = Requirement("TENDON_PATHS")
"""`tendon_segments_w [env, segment, 2, 3]` m, world: the ends of each segment of the spatial tendons' paths, and
`tendon_radii [env, segment]` m, 0 for a segment that the path does not have now.

Rows follow the shapes of tendons in `engine.decorations()`.
"""
SHAPES = Requirement("SHAPES")
"""`engine.shapes()`: the shapes that rays can hit, described once. BODY_POSE gives the poses of moving shapes."""


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
    """Require one of the engine's native sensors: the array `native:NAME [env, dim]` holds its output.

    Args:
        name: name of the sensor. With a `type` it is added to the model as a hidden sensor; otherwise the model
            declares it.
        type: name of the type in the engine's model files, e.g. ``"accelerometer"``.
        objtype: kind of element that it is attached to (``"site"``, ``"xbody"``, ...); empty for none.
        objname: full name of that element.
        reftype: kind of the reference element; empty for none.
        refname: full name of the reference element.
        cutoff: as the engine defines it; 0 for none.
        parameters: further (name, value) pairs of the type, e.g. those of a rangefinder.
    """
    return Requirement("NATIVE_SENSOR", (name, type, objtype, objname, reftype, refname, cutoff, parameters))


CONTACT_FIELDS = {"found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3}
"""Quantities that a contact report can hold, in the order of its columns, and the number of columns of each."""

ContactReduce = Literal["none", "mindist", "maxforce", "netforce"]
"""Which contacts of a primary fill its slots: the engine's first, the deepest, the strongest, or the sum of all."""


def CONTACT_REPORT(
    primary: tuple[str, tuple[str, ...]],
    secondary: tuple[str, str] | None = None,
    fields: tuple[str, ...] = ("found", "force"),
    reduce: ContactReduce = "maxforce",
    slots: int = 1,
) -> Requirement:
    """Require a report of contacts: the array `contact_array(requirement)` `[env, primary, slot, column]`.

    The columns are those of `fields`, in the order of CONTACT_FIELDS. Each filled slot holds in `found` the number of
    contacts that match the primary; an empty slot is all 0. `normal` points from the primary to the secondary.
    `normal`, `tangent` and `pos` (m) are in world axes. `dist` (m) is negative where the two penetrate. `force` (N) and
    `torque` (N m, about `pos`) are in the contact's frame (normal, tangent, normal x tangent); the first component of
    the force is positive under pressure, and the negative of the whole vector acts on the primary. With ``netforce``,
    both are in world axes and act on the primary.

    Args:
        primary: kind (``"geom"``, ``"body"`` or ``"subtree"``) and full names.
        secondary: kind and full name of the other side; None for anything.
        fields: quantities to report.
        reduce: which contacts fill the slots.
        slots: number of contacts kept per primary; 1 with ``netforce``.
    """
    order = tuple(name for name in CONTACT_FIELDS if name in fields)
    return Requirement("CONTACT_REPORT", (primary, secondary, order, reduce, slots))


def contact_array(requirement: Requirement) -> str:
    """Return the name of the array that holds a CONTACT_REPORT."""
    (kind, names), secondary, fields, reduce, slots = requirement.args
    other = "*" if secondary is None else ":".join(secondary)
    return f"contact:{kind}:{','.join(names)}|{other}|{','.join(fields)}|{reduce}|{slots}"


def contact_columns(requirement: Requirement) -> dict[str, slice]:
    """Return the columns of each field in the array of a CONTACT_REPORT, in order."""
    columns, start = {}, 0
    for name in requirement.args[2]:
        columns[name] = slice(start, start + CONTACT_FIELDS[name])
        start += CONTACT_FIELDS[name]
    return columns


def MODEL_ELEMENTS(add: Callable[[Any], None]) -> Requirement:
    """Require model elements that a plugin adds: `add(mjSpec)` is called before the model is compiled.

    Two requirements with the same function count as one: the function is called once.
    """
    return Requirement("MODEL_ELEMENTS", (add,))
