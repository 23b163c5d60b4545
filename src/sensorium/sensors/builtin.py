"""Native sensors of the physics engine: those that the model declares, and those that a config adds to it.

Axes: ``[env, value]``; the engine computes the values (MuJoCo's `sensordata`) in its own conventions. Each config is
one sensor, so there is no mount axis. Quaternions are (w, x, y, z). `site` and `ref` below mean the axes of that
element. rad and N m apply to rotary joints, tendons and transmissions, m and N to linear ones.

    type               values  unit                     frame   meaning and sign
    -----------------  ------  -----------------------  ------  --------------------------------------------------------
    accelerometer      3       m/s^2                    site    specific force: +g upwards at rest, 0 in free fall
    velocimeter        3       m/s                      site    velocity relative to the world
    gyro               3       rad/s                    site    angular velocity relative to the world
    force              3       N                        site    force of the parent on the site's body: + m g upwards
    torque             3       N m                      site    torque of the parent on the site's body, about the site
    magnetometer       3       field                    site    the model's magnetic flux, in the model's unit
    touch              1       N                                sum of normal forces in the site's volume, >= 0
    rangefinder        any     m                                distance along +z of a site, -1 without a hit;
                                                                a camera: one ray per pixel along -z, row by row
    camprojection      2       pixel                     image   column and row of a site (obj) in a camera (ref), from
                                                                the upper left corner
    jointpos           1       rad or m                         joint position, + along the joint's axis
    jointvel           1       rad/s or m/s                     joint velocity
    jointlimitpos      1       rad or m                         distance to a limit less its margin: < 0 where the limit
                                                                acts, 0 where it does not
    jointlimitvel      1       rad/s or m/s                     rate of that distance: < 0 towards the limit
    jointlimitfrc      1       N m or N                         force of the limit, >= 0
    jointactuatorfrc   1       N m or N                         force of all actuators at the joint
    ballquat           4       1                        parent  orientation of a ball joint, unit quaternion
    ballangvel         3       rad/s                    body    angular velocity of a ball joint, in its body's axes
    tendonpos          1       m or rad                         length of a tendon
    tendonvel          1       m/s or rad/s                     rate of the length
    tendonlimitpos     1       m or rad                         as jointlimitpos
    tendonlimitvel     1       m/s or rad/s                     as jointlimitvel
    tendonlimitfrc     1       N or N m                         as jointlimitfrc
    tendonactuatorfrc  1       N or N m                         force of all actuators on the tendon
    actuatorpos        1       rad or m                         length of the transmission: gear times joint position
    actuatorvel        1       rad/s or m/s                     rate of that length
    actuatorfrc        1       N m or N                         force of the actuator, before the gear
    framepos           3       m                        ref     origin of the element; the world's axes without a ref
    framequat          4       1                        ref     orientation, unit quaternion
    framexaxis         3       1                        ref     the element's x axis, unit vector
    frameyaxis         3       1                        ref     y axis
    framezaxis         3       1                        ref     z axis
    framelinvel        3       m/s                      ref     velocity of the origin, relative to the ref
    frameangvel        3       rad/s                    ref     angular velocity, relative to the ref
    framelinacc        3       m/s^2                    world   acceleration of the origin minus gravity: +g at rest
    frameangacc        3       rad/s^2                  world   angular acceleration
    subtreecom         3       m                        world   centre of mass of a body and its descendants
    subtreelinvel      3       m/s                      world   velocity of that centre
    subtreeangmom      3       kg m^2/s                 world   angular momentum about that centre
    insidesite         1       1                                1 where the element (obj) is in a site's volume (ref)
    distance           1       m                                between two geoms or bodies, at most the cutoff, which
                                                                is the radius of the search; < 0 in penetration
    normal             3       1                        world   unit vector from obj to ref, 0 beyond the cutoff
    fromto             6       m                        world   the nearest points, on obj and on ref
    e_potential        1       J                                potential energy of the model
    e_kinetic          1       J                                kinetic energy
    clock              1       s                                simulation time
    tactile            any                                      per vertex of a mesh (obj) at a geom (ref): depth (m),
                                                                then two slip speeds (m/s)
    user, plugin       any                                      defined by the model's author; only as declared there

A `body` means the body's inertial frame, an `xbody` the body frame. A `cutoff` limits the values: signed values to
[-cutoff, cutoff], positive ones from above. `distance`, `normal` and `fromto` search up to that distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, ObjRef, ObjType, bad, must, name_in
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.engines.base import NameKind, NativeSensor
from sensorium.errors import Fault, SelectionError, listed, nearest, shown
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import SimpleSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.parts import frames_of
from sensorium.spec import NATIVE_SENSOR, Field, Requirement, Role
from sensorium.world.select import WORLD, Named, match_names


@dataclass(frozen=True, slots=True)
class BuiltinSensorData:
    """One sample of a native sensor; `sensor.data` is the tensor itself."""

    value: Annotated[Tensor, Field("", (1,))]
    """Values computed by the engine, `[env, value]`; their number, unit and frame depend on the sensor's type."""


@dataclass(frozen=True, slots=True)
class NativeType:
    """Outputs and arguments of a type of native sensor.

    Args:
        dim: number of values; None if it depends on the model.
        unit: SI unit as text; empty if the values have several units.
        frame: frame of the values: ``"sensor"`` is that of the element; empty if none applies.
        obj: kinds of elements that it can be attached to; empty for none.
        ref: kinds of elements that can be its reference; empty for none.
        needs_ref: whether a reference is required.
        role: how viewers and recorders interpret the values.
    """

    dim: int | None
    unit: str
    frame: str = ""
    obj: tuple[ObjType, ...] = ()
    ref: tuple[ObjType, ...] = ()
    needs_ref: bool = False
    role: Role = "scalar"


_FRAMES: tuple[ObjType, ...] = ("body", "xbody", "geom", "site", "camera")
_SOLIDS: tuple[ObjType, ...] = ("geom", "body")
_ANGLE, _RATE, _TORQUE = "rad or m", "rad/s or m/s", "N m or N"
_LENGTH, _SPEED, _FORCE = "m or rad", "m/s or rad/s", "N or N m"

TYPES: dict[str, NativeType] = {
    "accelerometer": NativeType(3, "m/s^2", "sensor", ("site",), role="specific_force"),
    "velocimeter": NativeType(3, "m/s", "sensor", ("site",), role="vector_at"),
    "gyro": NativeType(3, "rad/s", "sensor", ("site",), role="angular_velocity"),
    "force": NativeType(3, "N", "sensor", ("site",), role="vector_at"),
    "torque": NativeType(3, "N m", "sensor", ("site",)),
    "magnetometer": NativeType(3, "field", "sensor", ("site",), role="magnetic"),
    "touch": NativeType(1, "N", obj=("site",)),
    "rangefinder": NativeType(None, "m", obj=("site", "camera"), role="range"),
    "camprojection": NativeType(2, "pixel", "image", ("site",), ("camera",), needs_ref=True),
    "jointpos": NativeType(1, _ANGLE, obj=("joint",)),
    "jointvel": NativeType(1, _RATE, obj=("joint",)),
    "jointlimitpos": NativeType(1, _ANGLE, obj=("joint",)),
    "jointlimitvel": NativeType(1, _RATE, obj=("joint",)),
    "jointlimitfrc": NativeType(1, _TORQUE, obj=("joint",)),
    "jointactuatorfrc": NativeType(1, _TORQUE, obj=("joint",)),
    "ballquat": NativeType(4, "1", "parent", ("joint",), role="pose"),
    "ballangvel": NativeType(3, "rad/s", "body", ("joint",), role="angular_velocity"),
    "tendonpos": NativeType(1, _LENGTH, obj=("tendon",)),
    "tendonvel": NativeType(1, _SPEED, obj=("tendon",)),
    "tendonlimitpos": NativeType(1, _LENGTH, obj=("tendon",)),
    "tendonlimitvel": NativeType(1, _SPEED, obj=("tendon",)),
    "tendonlimitfrc": NativeType(1, _FORCE, obj=("tendon",)),
    "tendonactuatorfrc": NativeType(1, _FORCE, obj=("tendon",)),
    "actuatorpos": NativeType(1, _ANGLE, obj=("actuator",)),
    "actuatorvel": NativeType(1, _RATE, obj=("actuator",)),
    "actuatorfrc": NativeType(1, _TORQUE, obj=("actuator",)),
    "framepos": NativeType(3, "m", "ref", _FRAMES, _FRAMES, role="point"),
    "framequat": NativeType(4, "1", "ref", _FRAMES, _FRAMES, role="pose"),
    "framexaxis": NativeType(3, "1", "ref", _FRAMES, _FRAMES),
    "frameyaxis": NativeType(3, "1", "ref", _FRAMES, _FRAMES),
    "framezaxis": NativeType(3, "1", "ref", _FRAMES, _FRAMES),
    "framelinvel": NativeType(3, "m/s", "ref", _FRAMES, _FRAMES, role="vector_at"),
    "frameangvel": NativeType(3, "rad/s", "ref", _FRAMES, _FRAMES, role="angular_velocity"),
    "framelinacc": NativeType(3, "m/s^2", "world", _FRAMES, role="specific_force"),
    "frameangacc": NativeType(3, "rad/s^2", "world", _FRAMES),
    "subtreecom": NativeType(3, "m", "world", ("body",), role="point"),
    "subtreelinvel": NativeType(3, "m/s", "world", ("body",), role="vector_at"),
    "subtreeangmom": NativeType(3, "kg m^2/s", "world", ("body",)),
    "insidesite": NativeType(1, "1", obj=_FRAMES, ref=("site",), needs_ref=True),
    "distance": NativeType(1, "m", obj=_SOLIDS, ref=_SOLIDS, needs_ref=True, role="range"),
    "normal": NativeType(3, "1", "world", _SOLIDS, _SOLIDS, needs_ref=True),
    "fromto": NativeType(6, "m", "world", _SOLIDS, _SOLIDS, needs_ref=True),
    "e_potential": NativeType(1, "J"),
    "e_kinetic": NativeType(1, "J"),
    "clock": NativeType(1, "s"),
    "tactile": NativeType(None, "", obj=("mesh",), ref=("geom",), needs_ref=True),
}
"""Types that a config can add, named as in MuJoCo's XML; the module's docstring describes their values."""
ONLY_DECLARED = {
    "contact": "Use ContactSensorCfg(...) instead.",
    "user": "Declare it in the model's XML with its size and stage; the scene then has it under its name.",
    "plugin": "Declare it in the model's XML with its plugin; the scene then has it under its name.",
}
"""Types that a config cannot add, and what to do instead."""
PARAMETERS = {"rangefinder": ("data",), "insidesite": ("enclosed",)}
"""Names of the further parameters of each type."""


class BuiltinSensorCfg(SimpleSensorCfg[Tensor]):
    """Native sensor of the engine, given by type and element, or by name alone if the model declares it.

    ``BuiltinSensorCfg(name="acc", sensor_type="accelerometer", obj=ObjRef(type="site", name="imu", entity="robot"))``
    adds an accelerometer to the model, hidden from selection by name. The scene has it as ``"robot/acc"``, and as
    ``"acc"`` while that is unique. ``BuiltinSensorCfg.from_existing("acc", noise=0.1)`` adds knobs to the sensor
    ``acc`` of the model. Quaternions take rotation noise (rad).
    """

    sensor_type: str = ""
    """Type of sensor, named as in MuJoCo's XML, such as ``"accelerometer"``; empty for a sensor that the model
    declares."""
    obj: ObjRef | None = None
    """Element that the sensor is attached to, by its exact name; None for ``e_potential``, ``e_kinetic`` and
    ``clock``."""
    ref: ObjRef | None = None
    """Reference element of a frame sensor; the second element of ``distance``, ``normal``, ``fromto``, ``insidesite``
    (the site), ``camprojection`` (the camera) and ``tactile`` (the geom)."""
    cutoff: Annotated[
        Float, must(lambda cutoff: 0.0 <= cutoff < math.inf, "a finite number >= 0", "Give 0 for no limit.")
    ] = 0.0
    """Limit of the values, in their unit; 0 for none. For ``distance``, ``normal``, ``fromto``: radius of the
    search."""
    parameters: dict[str, str | bool] | None = None
    """Further parameters of the type: ``{"data": "dist normal"}`` of a rangefinder, ``{"enclosed": True}`` of
    insidesite."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            self._init_with(data, _missing(data))

    @classmethod
    def from_existing(cls, name: str, **fields: Any) -> Self:
        """Return the config of a sensor that the model declares, to add knobs such as ``noise`` or ``delay``.

        Args:
            name: its name in the model; the part after the entity's prefix suffices if it is unique.
            fields: further fields of the config.
        """
        return cls(name=name, **fields)

    @field_validator("sensor_type")
    @classmethod
    def _known(cls, value: str) -> str:
        if value in ONLY_DECLARED:
            raise bad("a type that a config can add", ONLY_DECLARED[value])
        if value and value not in TYPES:
            raise bad(f"one of {', '.join(TYPES)}", nearest(value, TYPES).strip())
        return value

    @field_validator("obj", "ref")
    @classmethod
    def _fits(cls, value: ObjRef | None, info: ValidationInfo) -> ObjRef | None:
        sensor_type = info.data.get("sensor_type")
        if value is None or sensor_type is None:
            return value
        if not sensor_type:
            raise bad(
                f"no {info.field_name} without sensor_type",
                "Omit it, since the model defines the element of its sensor.",
            )
        taken = TYPES[sensor_type].obj if info.field_name == "obj" else TYPES[sensor_type].ref
        if not taken:
            fix = f"Remove it, since {sensor_type} does not support {info.field_name} specification."
            raise bad(f"no {info.field_name} for {sensor_type}", fix)
        if value.type not in taken:
            kinds = " or ".join(map(repr, taken))
            fix = f"{sensor_type} requires {info.field_name}.type={kinds}. Write {_example(taken[0])}."
            raise bad(f"a reference to {_any_of(taken)} for {sensor_type}", fix)
        return value

    @field_validator("cutoff")
    @classmethod
    def _cutoff(cls, value: float, info: ValidationInfo) -> float:
        if value > 0.0 and info.data.get("sensor_type") == "":
            raise bad("no cutoff without sensor_type", "Omit it, since the model defines the limit of its sensor.")
        return value

    @field_validator("parameters")
    @classmethod
    def _taken(cls, value: dict[str, str | bool] | None, info: ValidationInfo) -> dict[str, str | bool] | None:
        taken = PARAMETERS.get(info.data.get("sensor_type", ""), ())
        for name in value or ():
            if name not in taken:
                raise bad(f"among {', '.join(taken)}" if taken else "none for this type", nearest(name, taken).strip())
        return value

    @property
    def label(self) -> str:
        """The name in the scene: `prefixed_name`."""
        name, entity = super().label, self.obj.entity if self.obj is not None else None
        return name if entity is None or name.startswith(f"{entity}/") else f"{entity}/{name}"

    @property
    def is_declared(self) -> bool:
        """Whether the model declares the sensor and the config only adds knobs."""
        return not self.sensor_type


def _missing(data: Mapping[str, Any]) -> list[Fault]:
    """Return the faults of missing fields."""
    sensor_type = data.get("sensor_type", "")
    if isinstance(sensor_type, str) and sensor_type == "":
        if name_in(data):
            return []
        fix = "Write sensor_type=..., or use from_existing(name) for a sensor that the model declares."
        return [Fault("sensor_type", shown(sensor_type), f"one of {', '.join(TYPES)}", fix)]
    known = TYPES.get(sensor_type) if isinstance(sensor_type, str) else None
    if known is None:
        return []
    needed = {"obj": known.obj, "ref": known.ref if known.needs_ref else ()}
    return [
        Fault(field, "nothing", f"a reference to {_any_of(taken)}",
              f"{sensor_type} requires {field} with type={' or '.join(map(repr, taken))}. "
              f"Write {field}={_example(taken[0])}.")
        for field, taken in needed.items() if taken and data.get(field) is None
    ]  # fmt: skip


def _any_of(kinds: tuple[ObjType, ...]) -> str:
    words = [f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" for kind in kinds]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _example(kind: str) -> str:
    return f"ObjRef(type={kind!r}, name=...)"


@wp.struct
class TakeTask:
    """Data of one sensor for the kernel: the arrays `[env, value]` of the engine and of the record."""

    source: wp.array2d[wp.float32]
    target: wp.array2d[wp.float32]


@kernel
def _take(rows: Rows, tasks: wp.array[TakeTask]) -> None:
    k, env, column = masked_tid(rows)
    t = tasks[k]
    if column < t.target.shape[1]:
        t.target[env, column] = t.source[env, column]


@kernel
def _limit(rows: Rows, low: float, high: float, source: wp.array2d[wp.float32], target: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)
    x = source[env, column]
    if x >= low:  # otherwise a miss
        x = wp.clamp(target[env, column], low, high)
    target[env, column] = x


class BuiltinSensor(SimpleSensor[BuiltinSensorCfg, BuiltinSensorData]):
    """Native sensor of the engine, with the standard imperfections added."""

    single: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: BuiltinSensorCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirement for the native sensor that the engine declares or adds; see `with_full_names`."""
        if cfg.is_declared:
            return [NATIVE_SENSOR(cfg.label)]
        further = tuple(sorted((cfg.parameters or {}).items()))
        return [NATIVE_SENSOR(cfg.label, cfg.sensor_type, *_words(cfg.obj), *_words(cfg.ref), cfg.cutoff, further)]

    @property
    def native(self) -> NativeSensor:
        """Description of the engine's sensor: type, number of values, unit and element."""
        cfg = self.cfg
        (requirement,) = self.needs(cfg, self.engine, self.engine.supports)
        known = self.engine.native_sensor(requirement)
        if known is not None:
            return known if known.type else replace(known, type=cfg.sensor_type)
        dim, element = self.engine.array(f"native:{self.name}").shape[1], (*_words(cfg.obj), *_words(cfg.ref))
        return NativeSensor(self.name, cfg.sensor_type, dim, _unit(cfg), "real", "", *element, cfg.cutoff)

    def fields(self) -> Mapping[str, Field]:
        """Return the one field, for the sensor's type."""
        return {"value": field_of(self.native)}

    def about_drawing(self) -> dict[str, Any]:
        """Return the frame of its element; none for a sensor of the whole model, or of a tendon or actuator."""
        kind = "body" if self.native.objtype == "xbody" else self.native.objtype
        if kind not in ("site", "body", "geom", "joint", "camera"):
            return {}
        return frames_of(self.engine, cast(NameKind, kind), [self.native.objname])

    def setup(self) -> None:
        """Add notes on the sensor that the config resolved to."""
        native = self.native
        origin = "declared by the model" if self.cfg.is_declared else "added to the model for this config"
        self.notes["native"] = f"{described(native)}, {origin}"
        if native.cutoff > 0.0:
            self.notes["cutoff"] = f"{native.cutoff:g}"

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Copy the engine's values in one launch, shared by all native sensors of one rate."""
        t, target = TakeTask(), raw.value.view(self.num_envs, -1)
        t.source = wp.from_torch(self.engine.array(f"native:{self.name}"), dtype=wp.float32)
        t.target = wp.from_torch(target, dtype=wp.float32)
        self.compute_on.launch_task(_take, (target.shape[1],), t)

    @property
    def is_range(self) -> bool:
        """Whether the values are distances: of rangefinders or between geoms."""
        native, data = self.native, (self.cfg.parameters or {}).get("data", "")
        return native.type == "distance" or (
            native.type == "rangefinder" and native.unit == "m" and (native.dim == 1 or data in ("dist", "depth"))
        )

    @recorded
    @used_if(lambda self: self.is_range)
    def derive_measured(self, slot: Record) -> None:
        """Limit measured distances: to the cutoff, and for rangefinders to 0; a miss stays as it is."""
        low = 0.0 if self.native.type == "rangefinder" else -math.inf
        source, values = self.engine.array(f"native:{self.name}"), slot.value.view(self.num_envs, -1)
        self.compute_on.launch(_limit, (values.shape[1],), [low, self.native.cutoff or math.inf, source], [values])


def _unit(cfg: BuiltinSensorCfg) -> str:
    """Return the unit of a type, given the parameters of a config."""
    parameters = cfg.parameters or {}
    if cfg.sensor_type == "insidesite" and parameters.get("enclosed"):
        return "m"
    units = {"1" if word in ("dir", "normal") else "m" for word in str(parameters.get("data", "")).split()}
    return TYPES[cfg.sensor_type].unit if not units else units.pop() if len(units) == 1 else ""


def _words(reference: ObjRef | None) -> tuple[str, str]:
    """Return kind and full name of an element."""
    if reference is None:
        return "", ""
    prefix = f"{reference.entity}/" if reference.entity is not None else ""
    return reference.type, f"{prefix}{reference.name.removeprefix(prefix)}"


def with_full_names(cfg: BuiltinSensorCfg, names: Callable[[NameKind], Sequence[str]]) -> BuiltinSensorCfg:
    """Return a config whose references are full names of one element each; the same config if they already are.

    Args:
        cfg: a reference may hold a pattern, or an entity, which in a model without prefixes means the whole model.
        names: the names of a kind of element. If it gives none, the reference is left for the engine to check.

    Raises:
        SelectionError: a reference matches no element or several.
    """
    found = {
        field: _element(reference, names, cfg.title, field)
        for field, reference in (("obj", cfg.obj), ("ref", cfg.ref)) if reference is not None
    }  # fmt: skip
    if all(_words(getattr(cfg, field)) == _words(reference) for field, reference in found.items()):
        return cfg
    return cfg.replace(name=cfg.label, **found)


def _element(reference: ObjRef, names: Callable[[NameKind], Sequence[str]], config: str, field: str) -> ObjRef:
    entity = f"{reference.entity}/"
    kind = "body" if reference.type == "xbody" else reference.type
    known = () if kind in ("tendon", "mesh") else names(cast(NameKind, kind))
    prefixed = reference.entity is not None and any(name.startswith(entity) for name in (*known, *names("body")))
    name = reference.name.removeprefix(entity)
    full = f"{entity}{name}" if prefixed else name
    if known and full not in known and (kind, full) != ("body", WORLD):
        scope = entity if prefixed else ""
        inside = [each.removeprefix(scope) for each in known if each.startswith(scope)]
        found = match_names(name, inside, config=config, field=field, what=kind)
        if len(found) > 1:
            fix = f"It matches {listed(found)}. Give the name of one."
            raise SelectionError(config, [Fault(field, repr(full), f"exactly one {kind}", fix)])
        full = scope + found[0]
    return ObjRef(type=reference.type, name=full)


AXIAL = ("gyro", "torque", "magnetometer", "ballangvel", "frameyaxis", "frameangvel", "frameangacc", "subtreeangmom")
"""Types of three values that are an axial vector. The y axis of a frame is axial: in a mirror across y, the image of a
right-handed frame is left-handed, and its y axis is reversed to make it right-handed again."""


def field_of(native: NativeSensor) -> Field:
    """Return the field of a native sensor: that of its type, refined by the engine's description."""
    known = TYPES.get(native.type, NativeType(None, ""))
    frame = known.frame if known.frame != "ref" else ("reference" if native.reftype else "world")
    is_rotation = native.dim == 4 and (native.datatype == "quat" or native.type in ("framequat", "ballquat"))
    axes = {3: ("xyz",), 4: ("wxyz",)}.get(native.dim) if frame or is_rotation else None
    return Field(
        native.unit or known.unit,
        (native.dim,),
        axes or ("value",),
        frame=frame,
        kind="rotation" if is_rotation else "vector",
        role=known.role,
        parity="" if axes != ("xyz",) or not known.unit else "axial" if native.type in AXIAL else "polar",
    )


def described(native: NativeSensor) -> str:
    """Return a description of a native sensor, e.g. ``"accelerometer on site 'imu'"``."""
    text = native.type or f"{native.dim} value{'s' if native.dim > 1 else ''}"
    if native.objtype:
        text += f" on {native.objtype} {native.objname!r}"
    return f"{text} relative to {native.reftype} {native.refname!r}" if native.reftype else text
