"""Delay, gain and bias of sensors of a robot with a known model and controls, through `mujoco.sysid`.

`mujoco.sysid` simulates the controls, and changes parameters until the simulated sensors follow the log. This module
prepares its input, and turns its result into a fit.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sensorium.errors import ArgumentError, MissingDependencyError
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples

if TYPE_CHECKING:
    import mujoco

GAIN = 3.0
"""Maximum gain of a sensor or an actuator, and inverse of the minimum."""
FEWEST = 64
"""Minimum number of samples."""


def identify(
    samples: Samples,
    kind: str,
    model: mujoco.MjSpec,
    control: tuple[ArrayLike, ArrayLike],
    sensors: Mapping[str, str],
    *,
    actuators: Sequence[str] = (),
    longest: float = 0.1,
) -> Fit:
    """Return delay, gain and bias of a sensor, and factors of forces of actuators, from a log under known controls.

    The robot starts at rest in the reference pose of the model, at the first time of the controls. All errors of the
    sensor are constant, and its noise is white: the intervals hold for no other noise.

    Args:
        samples: samples of the sensor, by the clock of the controls.
        kind: kind of the sensor config.
        model: the robot as a MuJoCo model; it is not changed.
        control: times `[n]`, s, and controls `[n, actuator]` in the order of the model.
        sensors: field of the samples -> the sensor of the model that measures it without errors.
        actuators: actuators of which a factor of the force is found.
        longest: maximum delay, s.

    Returns:
        The parameters ``delay``, ``FIELD.gain``, ``FIELD.bias.x`` and ``ACTUATOR.gain``, and the fields of a preset.

    Raises:
        ArgumentError: a sensor or actuator is not in the model, or the samples are too few.
        MissingDependencyError: a package that `mujoco.sysid` needs is not installed.
    """
    sysid: Any = import_module("mujoco.sysid")
    if not hasattr(sysid, "optimize"):
        raise MissingDependencyError("mujoco.sysid needs further packages: pip install 'sensorium[sysid]'.")
    samples.check()
    time, values = (np.asarray(each, np.float64) for each in control)
    samples = samples.between(time[0] + longest, time[-1] - longest)
    samples, time = replace(samples, time=samples.time - time[0]), time - time[0]
    spec = model.copy()
    given = {field: spec.sensor(name) for field, name in sensors.items() if field in samples.values}
    unknown = [sensors[field] for field, each in given.items() if each is None]
    unknown += [name for name in actuators if spec.actuator(name) is None]
    if unknown or not given or len(samples) < FEWEST:
        raise ArgumentError(
            f"identify: got {len(samples)} samples of {', '.join(samples.values)}, expected at least {FEWEST} of "
            "fields in sensors while controls are known, and names in the model. Unknown names: "
            f"{', '.join(unknown) or 'none'}."
        )
    for each in list(spec.sensors):
        if each.name not in sensors.values():
            spec.delete(each)
    fields = sorted(given, key=lambda field: given[field].id)  # the columns of MuJoCo's sensordata
    compiled = spec.compile()
    parameters, transform = sysid.ParameterDict(), sysid.SignalTransform(normalize=False)
    parameters.add(sysid.Parameter("delay", 0.1 * longest, 0.0, longest))
    transform.delay("*", parameters["delay"])
    for field in fields:
        still = np.zeros(samples.values[field].shape[1])
        size = float(samples.values[field].std())
        parameters.add(sysid.Parameter(f"{field}.gain", 1.0, 1.0 / GAIN, GAIN))
        parameters.add(sysid.Parameter(f"{field}.bias", still, still - 10.0 * size, still + 10.0 * size))
        transform.gain(sensors[field], parameters[f"{field}.gain"], target="predicted")
        transform.bias(sensors[field], parameters[f"{field}.bias"], target="predicted")
    for name in actuators:
        given_force = spec.actuator(name)
        scaled = partial(_scale_force, name, given_force.gainprm.copy(), given_force.biasprm.copy())
        parameters.add(sysid.Parameter(f"{name}.gain", 1.0, 1.0 / GAIN, GAIN, modifier=scaled))
    measured = sysid.TimeSeries.from_names(samples.time, np.hstack([samples.values[each] for each in fields]), compiled)
    start = sysid.create_initial_state(compiled, compiled.qpos0)
    controls = sysid.TimeSeries.from_control_names(time, values, compiled)
    sequences = sysid.ModelSequences("robot", spec, "log", start, controls, measured)
    weights = np.full(measured.data.shape[1], 1.0 / measured.data.std())

    def modified(values: Any, predicted: Any, *others: Any, **options: Any) -> tuple[Any, Any, Any]:
        # The rollout stamps sensors with the end of a step, at whose start MuJoCo computes them.
        times = predicted.times - compiled.opt.timestep
        predicted = sysid.TimeSeries(times, predicted.data, predicted.signal_mapping)
        rest, predicted, seen = transform.apply(values, predicted, *others, **options)
        return rest * weights, predicted, sysid.TimeSeries(seen.times, seen.data, predicted.signal_mapping)

    residual = sysid.build_residual_fn(models_sequences=[sequences], modify_residual=modified)
    for _ in range(2):  # with weights from the motion, then from the noise
        with redirect_stdout(io.StringIO()):  # SciPy prints each step
            parameters, found = sysid.optimize(parameters, residual, optimizer="scipy", verbose=False, x_scale="jac")
        rest = residual(found.x, parameters)[0]
        noise = np.concatenate(rest).reshape(-1, len(weights)).std(axis=0)
        halves = sysid.calculate_intervals(rest, found.jac)[1]
        weights = weights / noise
    return _result(samples, kind, parameters, halves, fields)


def _scale_force(name: str, gain: Any, bias: Any, spec: Any, parameter: Any) -> None:
    actuator = spec.actuator(name)
    actuator.gainprm, actuator.biasprm = gain * parameter.value[0], bias * parameter.value[0]


def _result(samples: Samples, kind: str, parameters: Any, halves: Any, fields: Sequence[str]) -> Fit:
    """Return the result of `mujoco.sysid` as parameters, and as fields of a preset."""
    result = Fit(kind, samples.source, {}, {}, {}, {})
    found: dict[str, Parameter] = {}
    half = iter(halves)
    for name, each in parameters.items():
        field, _, what = name.rpartition(".")
        unit = "s" if name == "delay" else samples.units[field] if what == "bias" else "1"
        for label, value in zip(
            ("x", "y", "z") if each.size == 3 else map(str, range(each.size)), each.value, strict=True
        ):
            key = name if each.size == 1 else f"{name}.{label}"
            around = float(next(half))
            found[key] = Parameter(float(value), unit, value - around, value + around, "mujoco.sysid", samples.source)
    preset: dict[str, Any] = {"delay": found["delay"].value, "bias": {}, "stages": []}
    refused = {}
    for field in fields:
        bias = parameters[f"{field}.bias"].value.tolist()
        preset["bias"][field] = bias if len(bias) > 1 else bias[0]
        if len(bias) == 3:
            scale = found[f"{field}.gain"].value - 1.0
            preset["stages"].append({"kind": "scale_error", "fields": [field], "scale": scale, "cross_axis": 0.0})
        else:
            refused[f"fields.{field}.gain"] = "a preset expresses gains of three axes only"
    if kind == "imu":
        preset["fields"] = list(fields)
    return replace(result, parameters=found, fields=preset, refused=refused)
