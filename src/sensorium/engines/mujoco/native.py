"""MuJoCo's own sensors: sensors declared in a model, and hidden sensors added for a requirement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.base import DataType, NativeSensor
from sensorium.engines.mujoco.elements import HIDDEN_PREFIX, OBJECTS, Elements, hidden
from sensorium.engines.mujoco.sleep import disabled
from sensorium.errors import ModelError, listed, nearest, shown
from sensorium.spec import Requirement

NATIVE_PREFIX = f"{HIDDEN_PREFIX}native/"
_OBJ = mujoco.mjtObj
_IRREGULAR = {
    "JOINTACTFRC": "jointactuatorfrc",
    "TENDONACTFRC": "tendonactuatorfrc",
    "GEOMDIST": "distance",
    "GEOMNORMAL": "normal",
    "GEOMFROMTO": "fromto",
}
WORDS: dict[int, str] = {
    int(kind): _IRREGULAR.get(name.removeprefix("mjSENS_"), name.removeprefix("mjSENS_").lower())
    for name, kind in mujoco.mjtSensor.__members__.items()
}
"""Name of each mjtSensor in MuJoCo's XML."""
_REFUSED = {
    "user": "its values come from a custom callback: read them where they are computed",
    "plugin": "it needs a plugin instance: declare it in the model, with its extension, and omit the type",
    "contact": "use ContactSensor instead; to read it unchanged, declare it in the model and omit the type",
}
_DEFAULT_REFERENCE = {"camprojection": "camera", "insidesite": "site", "tactile": "geom"}
_ON_SITE = ("touch", "accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer")
_UNITS = {
    "1": "ballquat framequat framexaxis frameyaxis framezaxis normal",
    "m": "framepos subtreecom distance fromto",
    "m/s": "velocimeter framelinvel subtreelinvel",
    "m/s^2": "accelerometer framelinacc",
    "rad/s": "gyro ballangvel frameangvel",
    "rad/s^2": "frameangacc",
    "N": "touch force",
    "N m": "torque",
    "kg m^2/s": "subtreeangmom",
    "J": "e_potential e_kinetic",
    "s": "clock",
    "pixel": "camprojection",
}
"""Units determined by the type alone, with their types; the magnetometer has the unit of the model's flux."""
_MOTION_UNITS = {"pos": ("rad", "m"), "vel": ("rad/s", "m/s"), "frc": ("N m", "N")}
"""Units by the end of the type: for a hinge; for a slide or a spatial tendon.

A fixed tendon is a weighted sum of joints without a unit.
"""
RAY_DATA = ("dist", "dir", "origin", "point", "normal", "depth")
"""Outputs of a rangefinder, in this order; selected by `parameters=(("data", "dist normal"),)`."""
_DATA_TYPES: tuple[DataType, ...] = ("real", "positive", "axis", "quat")
_STAGES = ("", "pos", "vel", "acc")


def element_name(requirement: Requirement) -> str:
    """Return the name, in the model, of the sensor of a NATIVE_SENSOR requirement."""
    name, type = requirement.args[:2]
    return f"{NATIVE_PREFIX}{name}" if type else str(name)


def native(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Return the NATIVE_SENSOR requirements in a collection, sorted by name."""
    found = [requirement for requirement in requirements if requirement.kind == "NATIVE_SENSOR"]
    return sorted(found, key=lambda requirement: (requirement.args[0], requirement.args[1]))


def sensor_id(model: Any, requirement: Requirement) -> int:
    """Return the index of the required sensor in a compiled model, or -1."""
    return int(mujoco.mj_name2id(model, _OBJ.mjOBJ_SENSOR, element_name(requirement)))


def declared(model: Any) -> tuple[NativeSensor, ...]:
    """Return the sensors declared in a compiled model, in model order, without hidden and unnamed ones."""
    names = (mujoco.mj_id2name(model, _OBJ.mjOBJ_SENSOR, i) or "" for i in range(model.nsensor))
    return tuple(_description(model, i, name) for i, name in enumerate(names) if name and not hidden(name))


def describe(model: Any, requirement: Requirement) -> NativeSensor | None:
    """Return the required sensor of a compiled model under the requirement's name, or None."""
    i = sensor_id(model, requirement)
    return None if i < 0 else _description(model, i, str(requirement.args[0]))


def _description(model: Any, i: int, name: str) -> NativeSensor:
    word = WORDS[int(model.sensor_type[i])]
    return NativeSensor(
        name=name,
        type=word,
        dim=int(model.sensor_dim[i]),
        unit=_unit(model, i, word),
        datatype=_DATA_TYPES[int(model.sensor_datatype[i])],
        stage=_STAGES[int(model.sensor_needstage[i])],
        cutoff=float(model.sensor_cutoff[i]),
        **_attached(model, i),
    )


def _attached(model: Any, i: int) -> dict[str, str]:
    """Return kind and name of the elements that a sensor is attached to and refers to, if any."""
    found = {}
    for which in ("obj", "ref"):
        kind, element = (int(getattr(model, f"sensor_{which}{what}")[i]) for what in ("type", "id"))
        if kind != int(_OBJ.mjOBJ_UNKNOWN) and element >= 0:
            found[f"{which}type"] = str(mujoco.mju_type2Str(kind))
            as_body = kind == int(_OBJ.mjOBJ_XBODY)
            name = mujoco.mj_id2name(model, _OBJ.mjOBJ_BODY if as_body else kind, element) or ""
            word = "body" if as_body else found[f"{which}type"]
            found[f"{which}name"] = name or (Elements(model).name(word, element) if word in OBJECTS else "")
    return found


def _unit(model: Any, i: int, word: str) -> str:
    obj, parameter = int(model.sensor_objid[i]), int(model.sensor_intprm[i, 0])
    if word.startswith(("joint", "tendon")):
        turns, slides = _MOTION_UNITS[word[-3:]]
        if word.startswith("joint"):
            return slides if model.jnt_type[obj] == int(mujoco.mjtJoint.mjJNT_SLIDE) else turns
        fixed = model.wrap_type[model.tendon_adr[obj]] == int(mujoco.mjtWrap.mjWRAP_JOINT)
        return "" if fixed else slides
    if word == "insidesite":
        return "m" if parameter else "1"
    if word == "rangefinder":
        fields = {field for bit, field in enumerate(RAY_DATA) if parameter & (1 << bit)}
        units = {"1" if field in ("dir", "normal") else "m" for field in fields}
        return units.pop() if len(units) == 1 else ""
    return next((unit for unit, words in _UNITS.items() if word in words.split()), "")


def fault(requirement: Requirement) -> str | None:
    """Return why a sensor can never be added as described by a requirement, or None."""
    _, type, objtype, objname, reftype, refname, _, parameters = requirement.args
    if not type:
        return None
    if type in _REFUSED:
        return f"a native sensor of type {type!r} cannot be added: {_REFUSED[type]}."
    if type not in WORDS.values():
        known = [word for word in WORDS.values() if word not in _REFUSED]
        return f"MuJoCo has no sensor type {type!r}.{nearest(type, known)} Types: {listed(known, 60)}."
    for what, word, name, default in (
        ("objtype", objtype, objname, _default_object(type)),
        ("reftype", reftype, refname, _DEFAULT_REFERENCE.get(type, "")),
    ):
        if (word and not _object_type(word)) or (name and not (word or default)):
            return f"{what}: got {word!r}, expected a kind of element such as 'site', 'body', 'xbody', 'geom', 'joint'."
    try:
        _intprm(type, parameters)
    except ValueError as error:
        return str(error)
    return None


def _object_type(word: str) -> int:
    return int(mujoco.mju_str2Type(word)) if word else 0


def _intprm(type: str, parameters: Iterable[tuple[str, Any]]) -> list[int]:
    """Return MuJoCo's integer parameters of a sensor type.

    Raises:
        ValueError: the type does not have the parameter, or does not accept the value.
    """
    values = dict(parameters)
    intprm = [0, 0, 0]
    if type == "rangefinder":
        data = values.pop("data", "dist")
        fields = data.split() if isinstance(data, str) else list(data)
        if not fields or fields != [field for field in RAY_DATA if field in fields]:
            raise ValueError(
                f"data: got {shown(data)}, expected some of {' '.join(RAY_DATA)!r}, in this order, without repetition."
            )
        intprm[0] = sum(1 << RAY_DATA.index(field) for field in fields)
    elif type == "insidesite":
        enclosed = values.pop("enclosed", False)
        if not isinstance(enclosed, bool):
            raise ValueError(f"enclosed: got {shown(enclosed)}, expected true or false.")
        intprm[0] = int(enclosed)
    if values:
        known = {"rangefinder": "data", "insidesite": "enclosed"}.get(type, "none")
        raise ValueError(f"parameters: got {', '.join(map(repr, values))}; a {type} sensor accepts: {known}.")
    return intprm


def _settings(requirement: Requirement) -> dict[str, Any]:
    """Return the attributes of the MjSpec sensor described by a requirement."""
    _, type, objtype, objname, reftype, refname, cutoff, parameters = requirement.args
    objtype = objtype or (_default_object(type) if objname else "")
    reftype = reftype or (_DEFAULT_REFERENCE.get(type, "") if refname else "")
    return {
        "type": mujoco.mjtSensor(next(kind for kind, word in WORDS.items() if word == type)),
        "objtype": _OBJ(_object_type(objtype)),
        "objname": objname,
        "reftype": _OBJ(_object_type(reftype)),
        "refname": refname,
        "cutoff": float(cutoff),
        "intprm": _intprm(type, parameters),
    }


def _default_object(type: str) -> str:
    """Return the kind of element that a type is attached to, if there is only one."""
    if type in (*_ON_SITE, "rangefinder", "camprojection"):
        return "site"
    starts = {"joint": "joint", "ball": "joint", "tendon": "tendon", "actuator": "actuator", "subtree": "body"}
    return next((kind for start, kind in starts.items() if type.startswith(start)), "mesh" * (type == "tactile"))


def add_native(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add the hidden sensors of NATIVE_SENSOR requirements to an MjSpec, unless they exist.

    Raises:
        ModelError: a sensor is declared by the model, described in two ways, or impossible; the message names it.
    """
    present = {sensor.name: sensor for sensor in spec.sensors}
    for requirement in native(requirements):
        name, type = requirement.args[:2]
        if not type:
            continue
        if (reason := fault(requirement)) is not None:
            raise ModelError(f"native sensor {name!r}: {reason}")
        if name in present:
            raise ModelError(f"native sensor {name!r}: {_DECLARED}")
        settings = _settings(requirement)
        added = element_name(requirement)
        if added not in present:
            present[added] = spec.add_sensor(name=added, **settings)
        elif not all(np.array_equal(getattr(present[added], key), value) for key, value in settings.items()):
            raise ModelError(f"native sensor {name!r}: {_TWICE}")


_DECLARED = "the model declares a sensor of this name: omit the type to read that sensor, or choose another name."
_TWICE = "it was already added under this name with other settings: rename one of the two."


def mismatch(model: Any, requirement: Requirement) -> str | None:
    """Return why the hidden sensor of a compiled model differs from a requirement, or None."""
    i, wanted = sensor_id(model, requirement), _settings(requirement)
    there: dict[str, Any] = dict.fromkeys(("objtype", "objname", "reftype", "refname"), "") | _attached(model, i)
    there |= {what: _OBJ(_object_type(there[what])) for what in ("objtype", "reftype")}
    there |= {
        "type": mujoco.mjtSensor(int(model.sensor_type[i])),
        "cutoff": float(model.sensor_cutoff[i]),
        "intprm": model.sensor_intprm[i].tolist()[:3],
    }
    return None if there == wanted else _TWICE


def reason(
    requirement: Requirement, prepared: Iterable[Requirement], types: Mapping[str, str], model: Any, options: Any
) -> str | None:
    """Return why a NATIVE_SENSOR requirement is unsupported, or None; its absence from the model does not count.

    Args:
        requirement: requirement to check.
        prepared: requirements granted before.
        types: types of the model's own sensors, by name.
        model: compiled model, or None before it is compiled.
        options: options of the model, compiled or not.
    """
    name, type = requirement.args[:2]
    word = type or types.get(name, "")
    if disabled(options, "SENSOR"):
        return 'the model has <flag sensor="disable"/>, which disables all sensors: remove it.'
    if word == "e_kinetic" and int(options.enableflags) & int(mujoco.mjtEnableBit.mjENBL_ENERGY):
        return (
            'with <flag energy="enable"/> MuJoCo returns the kinetic energy of an earlier computation, which may be '
            "that of another env: remove the flag."
        )
    if any(other != requirement and other.args[0] == name for other in native(prepared)):
        return _TWICE
    if type:
        if name in types:
            return _DECLARED
        if (why := fault(requirement)) is not None:
            return why
        return mismatch(model, requirement) if model is not None and sensor_id(model, requirement) >= 0 else None
    if name not in types:
        known = f"{nearest(name, types)} Declared sensors: {listed(types)}."
        return f"the model declares no sensor {name!r}.{known} Set a type to add one."
    if word == "user":
        return f"{name!r} is a user sensor: {_REFUSED['user']}."
    return None


def declared_types(spec: Any) -> dict[str, str]:
    """Return the types of the named sensors that an MjSpec declares, as in MuJoCo's XML, by name."""
    return {each.name: WORDS[int(each.type)] for each in spec.sensors if each.name and not hidden(each.name)}


def sensor_in_message(message: str) -> str | None:
    """Return the name of the added sensor in a message of MuJoCo's compiler, or None."""
    _, found, rest = message.partition(f"'{NATIVE_PREFIX}")
    return rest.rsplit("'", 1)[0] if found else None
