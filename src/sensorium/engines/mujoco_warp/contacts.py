"""Contact reports with wrong signs in mujoco_warp before version 4.

Its contact sensors sort the matches of a sensor by force or distance, but not the side of the primary. A primary that
is the first geom of one contact and the second of another then gets normals and forces of the wrong sign. MuJoCo puts
the geom of the lesser type first and, for equal types, the geom of the lesser id.
"""

from __future__ import annotations

from typing import Any

import mujoco

from sensorium.engines.mujoco.contacts import elements, touchable
from sensorium.spec import Requirement


def misread_primaries(report: Requirement, model: Any, version: str) -> list[str]:
    """Return the primaries of a report whose normals and forces may have the wrong sign.

    Args:
        report: the CONTACT_REPORT.
        model: the MjModel.
        version: version of mujoco_warp.
    """
    (kind, names), secondary, _, reduce, _ = report.args
    if reduce not in ("mindist", "maxforce") or int(version.split(".")[0]) >= 4:
        return []
    others = touchable(model) if secondary is None else _geoms(model, *secondary)
    found = []
    for name in names:
        own = _geoms(model, kind, name)
        sides = {_order(model, geom) < _order(model, other) for geom in own for other in others - own}
        if len(sides) == 2:
            found.append(name)
    return found


def _geoms(model: Any, kind: str, name: str) -> set[int]:
    obj = mujoco.mjtObj.mjOBJ_GEOM if kind == "geom" else mujoco.mjtObj.mjOBJ_BODY
    geoms, _ = elements(model, kind, int(mujoco.mj_name2id(model, obj, name)))
    return geoms


def _order(model: Any, geom: int) -> tuple[int, int]:
    return int(model.geom_type[geom]), geom
