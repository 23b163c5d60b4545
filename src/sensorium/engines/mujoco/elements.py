"""Named elements of a compiled MuJoCo model: their names, rows and frames.

Elements added for sensors carry a prefix and are hidden from name selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import mujoco

from sensorium.engines.base import FrameOnBody, NameKind
from sensorium.engines.offsets import FIELDS
from sensorium.errors import ModelError, UnknownNameError

HIDDEN_PREFIX = "sensorium/"
"""Prefix of elements added for sensors; `Engine.names` omits them."""
_OBJ, _TRN = mujoco.mjtObj, mujoco.mjtTrn
OBJECTS = {
    "body": (_OBJ.mjOBJ_BODY, "nbody"),
    "site": (_OBJ.mjOBJ_SITE, "nsite"),
    "geom": (_OBJ.mjOBJ_GEOM, "ngeom"),
    "joint": (_OBJ.mjOBJ_JOINT, "njnt"),
    "camera": (_OBJ.mjOBJ_CAMERA, "ncam"),
    "actuator": (_OBJ.mjOBJ_ACTUATOR, "nactuator" if hasattr(mujoco.MjModel, "nactuator") else "nu"),
}
"""Kinds of elements, each with the model field that has their number."""
_KINDS = (*OBJECTS, "scalar_joint")
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)
SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), _SLIDE)
"""Types of joints with one coordinate."""
_ACTS_ON = {
    int(_TRN.mjTRN_JOINT): "joint",
    int(_TRN.mjTRN_JOINTINPARENT): "joint",
    int(_TRN.mjTRN_SITE): "site",
    int(_TRN.mjTRN_SLIDERCRANK): "site",
    int(_TRN.mjTRN_BODY): "body",
}
"""Kind of element for the frame of an actuator, by transmission."""


def hidden(name: str) -> bool:
    """Whether an element was added for sensors and is omitted from name selection."""
    return name.startswith(HIDDEN_PREFIX) or f"/{HIDDEN_PREFIX}" in name


def full_names(own: Sequence[str], word: str, taken: Sequence[str] = ()) -> list[str]:
    """Return a unique name for each element of one kind: its own, or `{word}_{id}` if it has none.

    Args:
        own: names in the model in the order of ids, empty for unnamed elements.
        word: kind of the elements.
        taken: further names that are in use.
    """
    names, used, given = [], {*taken}, {*own}
    for i, name in enumerate(own):
        if not name or name in used:
            name = f"{word}_{i}"
            while name in used or name in given:
                name += "_"
        used.add(name)
        names.append(name)
    return names


class Elements:
    """Names, rows and frames of the elements of a model.

    Attributes:
        model: the MjModel.
        ids: MuJoCo's id of each element by kind and name, in model order; see `full_names`.
        body_row: row of each body by MuJoCo's id, -1 for the world. Hidden bodies come last.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.ids: dict[str, dict[str, int]] = {}
        for kind, (obj, count) in OBJECTS.items():
            own = [mujoco.mj_id2name(model, obj, i) or "" for i in range(getattr(model, count))]
            self.ids[kind] = {name: i for i, name in enumerate(full_names(own, kind))}
        bodies = self.ids["body"]
        ordered = sorted(bodies.items(), key=lambda item: (hidden(item[0]), item[1]))
        self.body_row = {body: row - 1 for row, (_, body) in enumerate(ordered)}
        self.ids["body"] = dict(ordered)
        self.ids["scalar_joint"] = {
            name: i for name, i in self.ids["joint"].items() if int(model.jnt_type[i]) in SCALAR and not hidden(name)
        }

    @cached_property
    def body_ids(self) -> list[int]:
        """MuJoCo's id of each body row."""
        return [body for body, row in self.body_row.items() if row >= 0]

    @cached_property
    def joint_ids(self) -> list[int]:
        """MuJoCo's id of each joint row."""
        return list(self.ids["scalar_joint"].values())

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind, without the world and without hidden elements.

        Raises:
            UnknownNameError: there is no such kind.
        """
        if kind not in _KINDS:
            raise UnknownNameError("kind of name", kind, _KINDS)
        return tuple(name for name, i in self.ids[kind].items() if not hidden(name) and (kind != "body" or i > 0))

    def name(self, kind: str, i: int) -> str:
        """Return the name of the element with a MuJoCo id."""
        return next(name for name, each in self.ids[kind].items() if each == i)

    def row(self, kind: NameKind, name: str) -> int:
        """Return MuJoCo's id of an element.

        Raises:
            UnknownNameError: there is no such element or kind.
        """
        rows = self.ids.get(kind, {})
        if name not in rows:
            raise UnknownNameError(kind, name, self.names(kind))
        return rows[name]

    def slide_joints(self) -> tuple[str, ...]:
        """Return the names of the sliding scalar joints."""
        return tuple(name for name, i in self.ids["scalar_joint"].items() if int(self.model.jnt_type[i]) == _SLIDE)

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of an element and the element's frame on it; see `MujocoModelEngine.frame`."""
        i = self.row(kind, name)
        if kind != "actuator":
            frame = self._frame(kind, name, i)
            return replace(frame, element=(kind, name)) if kind in FIELDS else frame
        on = _ACTS_ON.get(int(self.model.actuator_trntype[i]))
        if on is None:
            raise ModelError(f"actuator {name!r} acts on no single joint, site or body, so it has no frame.")
        return self._frame(on, name, int(self.model.actuator_trnid[i, 0]))

    def _frame(self, kind: str, name: str, i: int) -> FrameOnBody:
        model = self.model
        if kind == "body":
            return FrameOnBody(self.body_row[i])
        if kind in ("joint", "scalar_joint"):
            return FrameOnBody(self.body_row[int(model.jnt_bodyid[i])], tuple(model.jnt_pos[i].tolist()))
        short = "cam" if kind == "camera" else kind
        if kind == "camera" and model.cam_mode[i] != int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED):
            raise ModelError(f'camera {name!r} is not fixed to its body: give it mode="fixed" in the model.')
        body, pos, quat = (getattr(model, f"{short}_{part}")[i] for part in ("bodyid", "pos", "quat"))
        return FrameOnBody(self.body_row[int(body)], tuple(pos.tolist()), tuple(quat.tolist()))
