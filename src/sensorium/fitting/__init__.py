"""Parameters of real sensors, found in their samples, as presets of simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from sensorium.errors import ArgumentError, UnknownNameError
from sensorium.fitting.full_scale import add_full_scale
from sensorium.fitting.identify import identify
from sensorium.fitting.lidar import lidar_samples
from sensorium.fitting.motion import with_motion
from sensorium.fitting.poses import STANDARD_GRAVITY, fit_poses
from sensorium.fitting.reference import fit_with_reference
from sensorium.fitting.result import Fit, Parameter, compare
from sensorium.fitting.samples import Samples

if TYPE_CHECKING:
    from sensorium.engines.trajectory.trajectory import Trajectory

__all__ = ["KINDS", "Fit", "Parameter", "Samples", "compare", "fit", "fit_poses", "identify", "lidar_samples"]

KINDS = {
    "imu": "sensorium.fitting.rest:fit_at_rest",
    "magnetometer": "sensorium.fitting.rest:fit_at_rest",
    "barometer": "sensorium.fitting.rest:fit_at_rest",
    "force_torque": "sensorium.fitting.rest:fit_at_rest",
    "lidar": "sensorium.fitting.lidar:fit_lidar",
}
"""Kind of sensor -> function of the samples, the kind and the progress that returns the fit."""


def fit(
    samples: Samples,
    kind: str,
    *,
    reference: Samples | Trajectory | None = None,
    gravity: float = STANDARD_GRAVITY,
    progress: Callable[[float], None] | None = None,
) -> Fit:
    """Return the parameters of a sensor, each with a 95 % interval, found in its samples.

    Args:
        samples: samples of one sensor at rest, or scans of a lidar from `lidar_samples`.
        kind: kind of the sensor config: ``"imu"``, ``"magnetometer"``, ``"barometer"``, ``"force_torque"`` or
            ``"lidar"``.
        reference: samples of the same motion, in the same axes and by the same clock, from which delay, bias, scale and
            misalignment are found: true values, a second sensor with far less noise, or the poses of an IMU, as from
            motion capture, in a world whose z axis points up. The noise is then that of the longest part of `samples`
            at rest; `refused` gives the reason if there is none. Only for other kinds than ``"lidar"``.
        gravity: gravity at the place of the log, m/s^2, for poses; an error of it is an error of bias and scale.
        progress: called with the finished fraction of the noise, 0 to 1, from time to time.

    Raises:
        UnknownNameError: no fit exists for the kind.
        ArgumentError: the samples are not those of a sensor at rest or cannot be used, or the reference does not show
            the motion; the message gives the reason.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of sensor that can be fitted", kind, KINDS)
    if reference is not None and kind == "lidar":
        raise ArgumentError("reference: got one for kind 'lidar', expected none. Leave it out.")
    module, _, name = KINDS[kind].partition(":")
    noise: Callable[[Samples, str, Callable[[float], None]], Fit] = getattr(import_module(module), name)
    show = progress or (lambda done: None)
    if reference is None:
        found = noise(samples, kind, show)
    else:
        from sensorium.fitting.rest import at_rest

        both = (samples, reference) if isinstance(reference, Samples) else with_motion(samples, reference, gravity)
        found = fit_with_reference(both[0], kind, both[1])
        try:
            rest = at_rest(samples)
            span = f"at rest, {rest.time[0]:.4g} to {rest.time[-1]:.4g} s"
            found = noise(replace(rest, source=f"{samples.source} {span}"), kind, show).merged_with(found)
        except ArgumentError as error:
            found = replace(found, refused={**found.refused, "noise": str(error)})
    if kind != "lidar":
        add_full_scale(found, samples)
    return found
