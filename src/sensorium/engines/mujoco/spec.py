"""MuJoCo models before they are compiled: loading, composition of entities, and elements that sensors require.

Added elements carry the prefix `sensorium/` and are hidden from name selection.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.model_file import PACKAGE_HINT, model_file, urdf_of
from sensorium.engines.mujoco.contacts import add_contacts
from sensorium.engines.mujoco.derived import needs_wrenches
from sensorium.engines.mujoco.elements import HIDDEN_PREFIX, full_names, hidden
from sensorium.engines.mujoco.native import add_native, sensor_in_message
from sensorium.engines.mujoco.sleep import add_held
from sensorium.errors import ModelError, SensoriumWarning, UnknownNameError, shown
from sensorium.geometry.shapes import Shape
from sensorium.spec import Requirement

_ACCELEROMETER = f"{HIDDEN_PREFIX}acceleration"
_ELEMENTS = f"{HIDDEN_PREFIX}elements/"
_ON_BODIES = ("site", "geom", "joint", "camera")
_NO_VISUALS = f"{HIDDEN_PREFIX}no visuals"
_NO_VISUALS_NOTICE = (
    "MuJoCo drops the visual shapes of URDF files, so that cameras see only the collision shapes. To keep them, add "
    '<mujoco><compiler discardvisual="false"/></mujoco> to the <robot> element.'
)
_SENSOR = mujoco.mjtSensor
_TRIGGERS = tuple(
    int(getattr(_SENSOR, f"mjSENS_{word}"))
    for word in ("ACCELEROMETER", "FORCE", "TORQUE", "FRAMELINACC", "FRAMEANGACC")
)
"""Sensor types that make MuJoCo call mj_rnePostConstraint, which computes body accelerations and wrenches.

These are the fields `cacc` and `cfrc_int`.
"""


_CHOICES = {name: getattr(mujoco, f"mjt{name.capitalize()}") for name in ("integrator", "cone", "jacobian", "solver")}
_FLAGS = {"disableflags": mujoco.mjtDisableBit, "enableflags": mujoco.mjtEnableBit}


def label_of(source: object) -> str:
    """Return the name of a model in messages: its file or its type."""
    if isinstance(source, str):
        return "the XML text" if source.lstrip().startswith("<") else f"model file {source!r}"
    if isinstance(source, Path):
        return f"model file {str(source)!r}"
    if isinstance(source, mujoco.MjSpec):
        return f"MjSpec {source.modelname!r}"
    return f"a {type(source).__name__}"


def load_spec(source: object) -> Any:
    """Return a new, editable MjSpec of a model with names; an MjSpec of the caller is copied and not changed.

    Args:
        source: path to an MJCF or URDF file, XML text (starts with ``<``), or an MjSpec.

    Raises:
        ModelError: the file is missing or invalid, or `source` has another type.
    """
    spec = source.copy() if isinstance(source, mujoco.MjSpec) else _read_spec(source)
    name_elements(spec)
    return spec


def _read_spec(source: object) -> Any:
    label = label_of(source)
    if not isinstance(source, str | Path):
        raise ModelError(
            f"{label} ({shown(source)}) is not a model: give a path to MJCF or URDF, XML text, or an MjSpec."
        )
    is_text = isinstance(source, str) and source.lstrip().startswith("<")
    path = None if is_text else model_file(source)
    urdf = urdf_of(str(source) if path is None else path)
    try:
        if path is not None and urdf is None:
            return mujoco.MjSpec.from_file(str(path))
        spec = mujoco.MjSpec.from_string(source if urdf is None else urdf)
    except ValueError as error:
        raise ModelError(f"{label} cannot be read: {reason_of(error)}") from error
    if urdf is not None and "<visual" in urdf and spec.compiler.discardvisual:
        spec.add_text(name=_NO_VISUALS, data=f"{label}: {_NO_VISUALS_NOTICE}")
    return spec


def lost_visuals(spec: Any) -> str:
    """Return a message if the visual shapes of URDF files were dropped from an MjSpec, or an empty text."""
    return " ".join(dict.fromkeys(text.data for text in spec.texts if text.name.endswith(_NO_VISUALS)))


def name_elements(spec: Any) -> None:
    """Name the unnamed elements of an MjSpec as `Elements` names those of a model compiled from it.

    The numbers are those of the file where the compiler merges bodies or drops visual geoms.
    """
    for kind, elements in _elements(spec).items():
        for element, name in zip(elements, full_names([each.name for each in elements], kind), strict=True):
            if not element.name:
                element.name = name


def _elements(spec: Any) -> dict[str, list[Any]]:
    """Return the elements of an MjSpec that sensors can name, by kind, in the order of their ids.

    The lists of a spec itself, such as `spec.geoms`, take a time that grows with the square of their lengths.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in ("body", *_ON_BODIES)} | {"actuator": spec.actuators}
    below = [spec.worldbody]
    while below:
        body = below.pop()
        found["body"].append(body)
        for kind in _ON_BODIES:
            found[kind] += getattr(body, f"{kind}s")
        below += reversed(body.bodies)
    return found


def reason_of(error: BaseException) -> str:
    """Return the first lines of a MuJoCo message, joined to one line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return "; ".join(lines[:3]).removeprefix("Error: ") or type(error).__name__


def compile_spec(spec: Any, label: str) -> Any:
    """Compile an MjSpec, with all of its bodies.

    MuJoCo can merge bodies without joints into their parents (`fusestatic`, the default for URDF). Sensors may be
    mounted on such links, so that they remain bodies here. The dynamics are those of the merged model.

    Raises:
        ModelError: compilation failed; the message names the model, or the added native sensor, and MuJoCo's reason.
    """
    try:
        return _unfused(spec, label) if spec.compiler.fusestatic else spec.compile()
    except ValueError as error:
        if (name := sensor_in_message(str(error))) is not None:
            why = str(error).strip().splitlines()[0].removeprefix("Error: ")
            raise ModelError(f"native sensor {name!r} cannot be added to {label}: {why}.") from error
        hint = f".{PACKAGE_HINT}" if "package:/" in str(error) else ""
        raise ModelError(f"{label} cannot be compiled: {reason_of(error)}{hint}") from error


def _unfused(spec: Any, label: str) -> Any:
    """Return a model with all bodies of an MjSpec that merges bodies, and with the dynamics of the merged model."""
    merging = spec.copy()
    for sensor in [each for each in merging.sensors if hidden(each.name)]:  # MuJoCo keeps bodies that have sensors
        merging.delete(sensor)
    fused = merging.compile()
    spec.compiler.fusestatic = False
    try:
        model = spec.compile()
    except ValueError as error:
        spec.compiler.fusestatic = True
        model = spec.compile()
        warnings.warn(
            f"{label}: links on fixed joints are merged into their parents, so that sensors cannot be mounted on them: "
            f"{reason_of(error)}. If the root link has no mass, rename it to 'world'.",
            SensoriumWarning,
            stacklevel=2,
        )
        return model
    mine, fused_ids = (np.unique(each.body_weldid) for each in (model, fused))  # in the same order
    # Contacts are as soft as those of the merged bodies.
    model.body_invweight0[:] = fused.body_invweight0[fused_ids[np.searchsorted(mine, model.body_weldid)]]
    return model


def compose_spec(entities: Mapping[str, Any], terrain: object = None) -> Any:
    """Attach models under `name/` prefixes to one world and return its MjSpec.

    Args:
        entities: name to a model (path, XML text or MjSpec), or to `(model, pos)` or `(model, pos, quat)` that places
            it: `pos` in metres, `quat` wxyz. Free joints are kept. An MjSpec may be used several times.
        terrain: model that becomes the world itself, without prefix; its options (time step, gravity, solver) apply.
            Without a terrain, the options of the first entity apply.

    Raises:
        ModelError: a name or a model is invalid.

    Warns:
        SensoriumWarning: once per entity whose own options are not used.
    """
    if not entities:
        raise ModelError('compose() needs at least one entity, e.g. {"robot": "robot.xml"}.')
    world = None if terrain is None else load_spec(terrain)
    owner = "the terrain"
    for name, given in entities.items():
        if not isinstance(name, str) or not name or "/" in name or hidden(f"{name}/"):
            raise ModelError(f"entity name {name!r} is invalid: give a non-empty text without '/', not 'sensorium'.")
        model, pos, quat = _placed(name, given)
        try:
            child = load_spec(model)
        except ModelError as error:
            raise ModelError(f"entity {name!r}: {error}") from error
        if world is None:
            world, owner = mujoco.MjSpec(), f"the first entity, {name!r},"
            world.option = child.option
            world.visual = child.visual
        _warn_of_options(name, child.option, world.option, owner)
        child.option, child.visual = world.option, world.visual  # otherwise MuJoCo logs every difference
        try:
            world.attach(child, prefix=f"{name}/", frame=world.worldbody.add_frame(pos=pos, quat=quat))
        except ValueError as error:
            raise ModelError(f"entity {name!r} ({label_of(model)}) cannot be attached: {reason_of(error)}") from error
    assert world is not None
    if terrain is None:
        world.modelname = "+".join(entities)
    return world


def add_box(spec: Any, shape: Shape) -> None:
    """Add a box with an image on it to an MjSpec, as a geom, a material and a texture of its name.

    Raises:
        UnknownNameError: the model has no body of the shape's name.
    """
    body = spec.body("world" if shape.body == -1 else shape.body)
    if body is None:
        raise UnknownNameError("body", str(shape.body), [each.name for each in spec.bodies])
    name, texture = shape.name, shape.material.texture
    assert shape.kind == "box" and texture is not None
    height, width, channels = texture.pixels.shape
    kind = mujoco.mjtTexture.mjTEXTURE_2D
    image = spec.add_texture(name=name, type=kind, width=width, height=height, nchannel=channels)
    image.data = texture.pixels.tobytes()
    look = spec.add_material(name=name, specular=shape.material.specular, rgba=shape.rgba)
    look.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    box = mujoco.mjtGeom.mjGEOM_BOX
    body.add_geom(name=name, type=box, material=name, size=shape.size, pos=shape.pos, quat=shape.quat)


def _warn_of_options(name: str, own: Any, used: Any, owner: str) -> None:
    """Warn if an entity sets options that differ from those of its world.

    Args:
        name: name of the entity.
        own: options of the entity.
        used: options of the world.
        owner: model that determines the options of the world.
    """
    default, lost = mujoco.MjSpec().option, []
    for option in (option for option in dir(own) if not option.startswith("_")):
        mine, effective, usual = (getattr(options, option) for options in (own, used, default))
        if not np.array_equal(mine, effective) and not np.array_equal(mine, usual):
            lost.append(f"{option} {_word(option, mine)} (here {_word(option, effective)})")
    if lost:
        warnings.warn(
            f"compose: the entity {name!r} has options that are not used: {', '.join(lost)}. The options of {owner} "
            "apply to the whole world: set them there, or set the same ones in the entity.",
            SensoriumWarning,
            stacklevel=4,
        )


def _word(option: str, value: Any) -> str:
    """Return the value of an option as written in MuJoCo's XML."""
    if option in _CHOICES:
        return str(_CHOICES[option](value).name).split("_", 1)[1].lower()
    if option in _FLAGS:
        bits = [bit for bit in _FLAGS[option].__members__.values() if int(value) & int(bit) and "_" in bit.name]
        return "+".join(bit.name.split("_", 1)[1].lower() for bit in bits) or "none"
    return " ".join(f"{number:g}" for number in np.ravel(value))


def _placed(name: str, given: Any) -> tuple[Any, list[float], list[float]]:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    missing: tuple[Any, ...] = ((), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))[len(parts) :]
    model, pos, quat = (*parts, *missing)[:3]
    try:
        placed = model, [float(x) for x in pos], [float(x) for x in quat]
    except (TypeError, ValueError):
        placed = model, [], []
    if not 1 <= len(parts) <= 3 or len(placed[1]) != 3 or len(placed[2]) != 4:
        raise ModelError(f"entity {name!r}: got {shown(given)}, expected model, (model, pos) or (model, pos, quat).")
    return placed


def prepare_spec(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add the elements that requirements need to an MjSpec before it is compiled; existing ones are not added again.

    Unnamed elements of the model get names, so that the added ones can refer to them.

    Body accelerations and joint wrenches need a sensor that makes MuJoCo compute them: one hidden site with an
    accelerometer is added where the model has none. Where bodies may sleep, each body gets separate sensors, see
    `mujoco.sleep`. A NATIVE_SENSOR with a type becomes a hidden sensor, and a CONTACT_REPORT one for each primary. The
    functions of MODEL_ELEMENTS are called once each, in the order of their names, and leave a hidden text element as a
    mark; the unnamed elements that they add are hidden.

    Args:
        spec: mujoco.MjSpec; edited in place.
        requirements: requirements of sensors; those that need no elements are ignored.

    Raises:
        ModelError: a function of MODEL_ELEMENTS failed, or a native or contact sensor cannot be added.
    """
    name_elements(spec)
    requirements = set(requirements)
    for key, add in sorted(element_functions(requirements).items()):
        if any(text.name == key for text in spec.texts):
            continue
        try:
            add(spec)
        except Exception as error:
            raise ModelError(
                f"{key.removeprefix(_ELEMENTS)} (MODEL_ELEMENTS) failed on the MjSpec: {type(error).__name__}: {error}"
            ) from error
        for kind, elements in _elements(spec).items():
            for i, element in enumerate(elements):
                if not element.name:
                    element.name = f"{key}/{kind}_{i}"
        spec.add_text(name=key, data="added for a sensor")
    add_native(spec, requirements)
    add_contacts(spec, requirements)
    add_held(spec, requirements)
    if any(map(needs_wrenches, requirements)) and not any(
        _triggers(sensor.type, sensor.needstage, sensor.interval) for sensor in spec.sensors
    ):
        spec.worldbody.add_site(name=_ACCELEROMETER, group=5, rgba=[0, 0, 0, 0])
        spec.add_sensor(
            name=_ACCELEROMETER,
            type=_SENSOR.mjSENS_ACCELEROMETER,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=_ACCELEROMETER,
        )


def element_functions(requirements: Iterable[Requirement]) -> dict[str, Callable[[Any], None]]:
    """Return the functions of MODEL_ELEMENTS requirements by the name of their mark in a model."""
    functions = [requirement.args[0] for requirement in requirements if requirement.kind == "MODEL_ELEMENTS"]
    return {f"{_ELEMENTS}{_function_key(add)}": add for add in functions}


def has_elements(model: Any, requirement: Requirement) -> bool:
    """Whether a compiled model carries the marks of a MODEL_ELEMENTS requirement."""
    (mark,) = element_functions([requirement])
    return bool(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXT, mark) >= 0)


def computes_acceleration(model: Any) -> bool:
    """Whether a sensor of a compiled model makes MuJoCo compute accelerations and wrenches at every step.

    Such sensors are accelerometer, force, torque, framelinacc, frameangacc and user sensors of stage acc. A sensor with
    a sampling interval triggers the computation only when it is due, which is not sufficient.
    """
    return any(map(_triggers, model.sensor_type, model.sensor_needstage, model.sensor_interval))


def _triggers(kind: int, stage: int, interval: Sequence[float]) -> bool:
    user = int(kind) == int(_SENSOR.mjSENS_USER) and int(stage) == int(mujoco.mjtStage.mjSTAGE_ACC)
    return (int(kind) in _TRIGGERS or user) and float(interval[0]) <= 0.0


def _function_key(add: Callable[..., Any]) -> str:
    """Return a key of a function; functions created by one factory with different values have different keys."""
    if isinstance(add, functools.partial):
        return f"{_function_key(add.func)}#{_digest(add.args, add.keywords)}"
    name = f"{getattr(add, '__module__', '')}.{getattr(add, '__qualname__', type(add).__qualname__)}"
    if not hasattr(add, "__qualname__"):
        return f"{name}#{_digest(add)}"
    values = [cell.cell_contents for cell in getattr(add, "__closure__", None) or ()]
    values += [*(getattr(add, "__defaults__", None) or ())]
    if (owner := getattr(add, "__self__", None)) is not None:
        values.append(owner)
    return f"{name}#{_digest(*values)}" if values else name


def _digest(*values: object) -> str:
    return f"{zlib.crc32(repr(values).encode()):08x}"
