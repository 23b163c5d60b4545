"""Sharing of the solver's contact force among taxels, for sensors whose own forces are only a pattern.

F is the net contact force on a link or geom, M its moment about the mount's origin, both in the mount's axes. N_p >= 0
is the normal force of taxel p at place p by the sensor's model. With w_p = N_p / sum N,

    F_p = w_p F        T_p = p x F_p + w_p (M - c x F)        c = sum w_p p

so the forces add up to F and the torques to M. All F_p and T_p are 0 if no taxel is pressed, or without a contact.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.touchable import matched, selected
from sensorium.sensors.touch.taxels import Skin
from sensorium.spec import CONTACT_REPORT, Requirement, contact_array
from sensorium.world.mount import Mounts, is_finite3, mount_pose
from sensorium.world.select import Named


@kernel
def _share(
    rows: Rows,
    skin: Skin,
    side: float,
    report: wp.array3d[wp.float32],
    mounts: wp.array[Mounts],
    bad: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
    force: wp.array3d[wp.vec3],
    torque: wp.array3d[wp.vec3],
) -> None:
    env, mount = masked_tid(rows)
    pos, turn = mount_pose(mounts, env, mount)
    net = side * wp.vec3(report[env, mount, 1], report[env, mount, 2], report[env, mount, 3])
    moment = side * wp.vec3(report[env, mount, 4], report[env, mount, 5], report[env, mount, 6])
    place = wp.vec3(report[env, mount, 7], report[env, mount, 8], report[env, mount, 9])
    net = quat_rotate_inverse(turn, net)
    moment = quat_rotate_inverse(turn, moment) + wp.cross(quat_rotate_inverse(turn, place - pos), net)
    if not (is_finite3(net) and is_finite3(moment)):
        bad[env, mount] = wp.uint8(1)
        any_bad[0] = 1
    total = wp.float32(0.0)
    centre = wp.vec3()
    for probe in range(skin.points.shape[0]):
        pressure = wp.max(-side * wp.dot(force[env, mount, probe], skin.normals[probe]), 0.0)
        total += pressure
        centre += pressure * skin.points[probe]
    scale = wp.float32(0.0)
    if total > 0.0 and report[env, mount, 0] > 0.0:
        scale = 1.0 / total
    rest = moment - wp.cross(scale * centre, net)
    for probe in range(skin.points.shape[0]):
        share = scale * wp.max(-side * wp.dot(force[env, mount, probe], skin.normals[probe]), 0.0)
        force[env, mount, probe] = share * net
        torque[env, mount, probe] = wp.cross(skin.points[probe], share * net) + share * rest


def net_report(cfg: Any, model: Named) -> Requirement:
    """Return the report of the net contact force and torque on the mounts of a config, by its `targets` if it has any.

    Raises:
        ConfigError: `targets` selects several bodies or geoms.
    """
    other = None
    if cfg.targets is not None:
        kind = "body"
        try:
            found = matched(cfg, kind, cfg.targets, "targets", model)
        except ConfigError:
            kind = "geom"
            found = matched(cfg, kind, cfg.targets, "targets", model)
        if len(found) != 1:
            fix = "Name one, or omit it for the force of all contacts."
            raise ConfigError.single(cfg.title, "targets", cfg.targets, "one body or geom with solver_force", fix)
        other = kind, found[0]
    return CONTACT_REPORT(selected(cfg, model), other, ("found", "force", "torque", "pos"), "netforce")


def share_wrench(sensor: Sensor[Any, Any], skin: Any, side: float, force: Any, torque: Any) -> None:
    """Replace the forces and torques of taxels by their shares of the solver's net force and moment (one launch).

    Args:
        sensor: the sensor; it requires `net_report` of its config.
        skin: the taxels, a `Skin`.
        side: 1 for the force on the link, -1 for the force that the skin exerts; the same as for `force`.
        force: forces of the taxels by the model, `[env, mount, probe]`.
        torque: torques of the taxels, `[env, mount, probe]`.
    """
    mount, buffers = sensor.mount, sensor.buffers
    assert mount is not None
    report = sensor.engine.array(contact_array(net_report(sensor.cfg, sensor.engine)))[:, :, 0]
    flags = [buffers.bad_wp, sensor.clock.bad_wp]
    inputs = [skin, side, wp.from_torch(report), mount.warp_state(), *flags]
    sensor.compute_on.launch(_share, (mount.count,), inputs, [force, torque])
