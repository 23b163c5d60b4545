"""MuJoCo's own sensors: those that a model declares, and those that a requirement adds, hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.base import DataType, NativeSensor
from sensorium.engines.mujoco.hidden import HIDDEN_PREFIX, hidden
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
"""The word for each mjtSensor in MuJoCo's XML."""
_REFUSED = {
    "user": "its values come from your own callback: read them where you compute them",
    "plugin": "it needs a plugin instance: declare it in the model, with its extension, and leave the type out",
    "contact": "that is a ContactSensor; declare it in the model and leave the type out to read it as it is",
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
"""Units that the type alone decides, and of which types; the magnetometer has that of the model's own flux."""
_MOTION_UNITS = {"pos": ("rad", "m"), "vel": ("rad/s", "m/s"), "frc": ("N m", "N")}
"""By the end of the type: of a joint that turns; of one that slides, and of a spatial tendon. A fixed tendon is a
weighted sum of joints, without a unit of its own."""
RAY_DATA = ("dist", "dir", "origin", "point", "normal", "depth")
"""What a rangefinder can report, in this order; `parameters=(("data", "dist normal"),)` chooses."""
_DATA_TYPES: tuple[DataType, ...] = ("real", "positive", "axis", "quat")
_STAGES = ("", "pos", "vel", "acc")


def element_name(requirement: Requirement) -> str:
    """Return the name in the model of the sensor that a NATIVE_SENSOR requirement means."""
    name, type = requirement.args[:2]
    return f"{NATIVE_PREFIX}{name}" if type else str(name)


def native(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Return the NATIVE_SENSOR requirements among some, in the order of their names."""
    found = [requirement for requirement in requirements if requirement.kind == "NATIVE_SENSOR"]
    return sorted(found, key=lambda requirement: (requirement.args[0], requirement.args[1]))


def sensor_id(model: Any, requirement: Requirement) -> int:
    """Return the index of the required sensor in a compiled model, -1 where there is none."""
    return int(mujoco.mj_name2id(model, _OBJ.mjOBJ_SENSOR, element_name(requirement)))


def declared(model: Any) -> tuple[NativeSensor, ...]:
    """Return what a compiled model's own sensors are, in its order, without hidden and nameless ones."""
    names = (mujoco.mj_id2name(model, _OBJ.mjOBJ_SENSOR, i) or "" for i in range(model.nsensor))
    return tuple(_description(model, i, name) for i, name in enumerate(names) if name and not hidden(name))


def describe(model: Any, requirement: Requirement) -> NativeSensor | None:
    """Return what the required sensor of a compiled model is, under the requirement's name; None without one."""
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
    """Return kind and name of the elements that a sensor is attached to and refers to, where there are any."""
    found = {}
    for which in ("obj", "ref"):
        kind, element = (int(getattr(model, f"sensor_{which}{what}")[i]) for what in ("type", "id"))
        if kind != int(_OBJ.mjOBJ_UNKNOWN) and element >= 0:
            found[f"{which}type"] = str(mujoco.mju_type2Str(kind))
            as_body = kind == int(_OBJ.mjOBJ_XBODY)
            found[f"{which}name"] = mujoco.mj_id2name(model, _OBJ.mjOBJ_BODY if as_body else kind, element) or ""
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
    """Return why a sensor can never be added as a requirement describes it, or None."""
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
        ValueError: a parameter that the type does not have, or a value that it cannot take.
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
        raise ValueError(f"parameters: got {', '.join(map(repr, values))}; a {type} sensor has: {known}.")
    return intprm


def _settings(requirement: Requirement) -> dict[str, Any]:
    """Return the attributes of the MjSpec sensor that a requirement describes."""
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
    """Return the only kind of element that a type can be attached to, where there is only one."""
    if type in (*_ON_SITE, "rangefinder", "camprojection"):
        return "site"
    starts = {"joint": "joint", "ball": "joint", "tendon": "tendon", "actuator": "actuator", "subtree": "body"}
    return next((kind for start, kind in starts.items() if type.startswith(start)), "mesh" * (type == "tactile"))


def add_native(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add to an MjSpec the hidden sensors that NATIVE_SENSOR requirements describe, where they are not yet there.

    Raises:
        ModelError: naming the sensor that is declared by the model, described twice in two ways, or impossible.
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
        elif not _same(present[added], settings):
            raise ModelError(f"native sensor {name!r}: {_TWICE}")


_DECLARED = (
    "the model itself declares a sensor of this name: leave the type out to read that one, or choose another name."
)
_TWICE = "it was already added under this name in another way: give one of the two another name."


def _same(sensor: Any, settings: dict[str, Any]) -> bool:
    """Whether a sensor of an MjSpec has been added with these settings."""
    return all(
        np.array_equal(getattr(sensor, key), value) if key == "intprm" else getattr(sensor, key) == value
        for key, value in settings.items()
    )


def mismatch(model: Any, requirement: Requirement) -> str | None:
    """Return why the hidden sensor of a compiled model is not the one that a requirement describes, or None."""
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
    """Return why a NATIVE_SENSOR requirement cannot be granted, or None; that it is not yet in the model is no reason.

    Args:
        requirement: the requirement.
        prepared: requirements granted before.
        types: of the model's own sensors, by name.
        model: the compiled model, or None before it is compiled.
        options: the model's options, compiled or not.
    """
    name, type = requirement.args[:2]
    word = type or types.get(name, "")
    if disabled(options, "SENSOR"):
        return 'the model has <flag sensor="disable"/>, with which MuJoCo computes no sensor: remove it.'
    if word == "e_kinetic" and int(options.enableflags) & int(mujoco.mjtEnableBit.mjENBL_ENERGY):
        return (
            'with <flag energy="enable"/> MuJoCo gives the kinetic energy of an earlier computation, which may be that '
            "of another env: remove the flag."
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
        known = f"{nearest(name, types)} Its sensors: {listed(types)}."
        return f"the model declares no sensor {name!r}.{known} Give a type to add one."
    if word == "user":
        return f"{name!r} is a user sensor: {_REFUSED['user']}."
    return None


def declared_types(spec: Any) -> dict[str, str]:
    """Return the types of the named sensors that an MjSpec declares itself, as words, by name."""
    return {each.name: WORDS[int(each.type)] for each in spec.sensors if each.name and not hidden(each.name)}


def blamed(message: str) -> str | None:
    """Return the name of the added sensor that a message of MuJoCo's compiler is about, or None."""
    _, found, rest = message.partition(f"'{NATIVE_PREFIX}")
    return rest.rsplit("'", 1)[0] if found else None
