"""Controls of a robot by name: a held pose, zero, random controls, a file, or a Python function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sensorium.errors import ConfigError, listed, nearest
from sensorium.jobs.entry_points import function_of, reason
from sensorium.readings import Array

if TYPE_CHECKING:
    from sensorium.demo.robots import Robot
    from sensorium.engines.mujoco.engine import MujocoEngine
    from sensorium.engines.mujoco_warp.engine import MujocoWarpEngine
    from sensorium.jobs.models import OwnEngine
    from sensorium.scene import Scene
    from sensorium.sensors.core.base import Sensor

Control = Callable[["Scene", float], Any]
"""Called before each tick that starts a control step, with the scene and its time in s; returns `[env, nu]`, `[nu]`, or
None to keep the last control."""

WORDS = ("hold", "zero", "random")
"""Controls that need neither a file nor a function."""
LOGS = (".npz", ".mcap")
"""Ends of the names of files with recorded controls."""
CONTROL_PERIOD = 0.01
"""Seconds between calls of `random` and of a function: 100 Hz, or every tick if that is slower."""
RANDOM_PERIOD = 0.1
"""Seconds for which a random control is held."""
STIFFEST = 0.4
"""Maximum product of natural frequency and time step for holding a joint by torque; an explicit PD controller starts
to oscillate at 0.6 (humanoid.xml of dm_control)."""
FIXED_GAIN, NO_BIAS, AFFINE_BIAS, NO_DYNAMICS, INTEGRATOR, JOINT_KINDS, SCALAR_JOINTS = 0, 0, 1, 0, 1, (0, 1), (2, 3)
"""MuJoCo's numbers for gain, bias and dynamics types, for transmissions to a joint, and for slide and hinge joints."""


def check_control(name: str, words: Sequence[str] = WORDS) -> None:
    """Reject an invalid control before the engine is created.

    Args:
        name: ``FILE.npz``, ``FILE.mcap``, ``module:function`` or one of `words`.
        words: names of the other controls.

    Raises:
        ConfigError: no such control, file or function.
    """
    if name in words:
        return
    if name.endswith(".npz"):
        _arrays(Path(name))
    elif name.endswith(".mcap"):
        _recorded(Path(name))
    elif ":" in name:
        function_of("control", name)
    else:
        hint = nearest(name, words).strip() or "Give a file as NAME.npz or NAME.mcap, or a function as module:function."
        raise _fault(name, f"{', '.join(words)}, FILE.npz, FILE.mcap or module:function", hint)


def control_for(name: str, scene: Scene, substeps: int = 1, robot: Robot | None = None) -> tuple[Control, int]:
    """Return a control and the number of ticks between its calls.

    Args:
        name: ``hold``, ``zero``, ``random``, ``FILE.npz``, ``FILE.mcap`` or ``module:function``.
        scene: the scene, in its start state, on an engine of a model.
        substeps: minimum number of ticks between its calls.
        robot: bundled robot that moves by itself with ``hold``.

    Raises:
        ConfigError: the control, file or function does not exist or does not fit the model.
    """
    engine = cast("OwnEngine", scene.engine)
    slow = max(1, round(CONTROL_PERIOD / engine.dt))
    has_controls = hasattr(engine, "nu")
    if not has_controls and (name in ("zero", "random") or name.endswith(LOGS)):
        raise _fault(name, f"hold or module:function, since {scene.engine.name} has no controls", "Omit it.")
    if name == "hold" and robot is not None:
        return robot.control(scene), slow
    if name == "hold":
        from sensorium.engines.newton.engine import NewtonEngine

        if not has_controls or isinstance(engine, NewtonEngine):  # whose targets are the start pose
            return (lambda scene, time: None), substeps
        return hold(engine, substeps), substeps
    if name == "zero":
        return (lambda scene, time: np.zeros(engine.nu)), slow
    if name == "random":
        return random(scene), slow
    if name.endswith(LOGS):
        return from_file(Path(name), scene), 1
    check_control(name)
    return from_function(name, engine), slow


def steps(
    scene: Scene, control: Control, every: int, ticks: int, sensors: Sequence[Sensor[Any, Any]] = ()
) -> Iterator[int]:
    """Yield at the start, then advance a scene and yield at each new sample and arrival, and after each control.

    The values are the ticks from which new controls hold, and -1 without.

    Args:
        scene: the scene.
        control: called every `every` ticks with the scene and the time since the first call, s.
        every: ticks between its calls.
        ticks: physics steps to take.
        sensors: sensors whose samples are read then.

    Raises:
        ConfigError: a sensor takes samples only when a user reads it.
    """
    start, end = scene.tick, scene.tick + ticks
    for sensor in sensors:
        if sensor.info.evaluation == "on_access":
            fix = "Its samples wait for reads of a user, and a job writes each sample when it is due."
            raise ConfigError.single(sensor.cfg.title, "evaluate", "on_access", "'auto'", fix)
    for sensor in sensors:
        sensor.buffers.listeners += 1
    try:
        yield -1
        while (passed := scene.tick - start) < ticks:
            is_control, tick = passed % every == 0, scene.tick
            ctrl = control(scene, passed * scene.engine.dt) if is_control else None
            stop = min(end, start + (passed // every + 1) * every, *(sensor.next_change for sensor in sensors))
            scene.step(ctrl, stop - tick)
            yield tick if is_control else -1
    finally:
        for sensor in sensors:
            sensor.buffers.listeners -= 1


def hold(engine: MujocoEngine | MujocoWarpEngine, substeps: int = 1) -> Control:
    """Hold the start pose, with controls that change every `substeps` ticks.

    Servos (a constant gain and a bias that depends on length or speed) get the control at which they rest in that pose,
    or that of the keyframe if given. Motors on one slide or hinge joint follow a critically damped PD law towards the
    pose. It is as stiff as the joint's inertia allows at this time step, and at least as stiff as a robot of this
    weight needs. Other actuators get the keyframe's control, or 0.
    """
    model, nu = engine.model, engine.nu
    start, base = (values.cpu().double().numpy().copy() for values in (engine.qpos, engine.ctrl))
    span = engine.ctrl_range.numpy()
    has_key = bool(base.any())
    motors = []
    lengths = _lengths(engine, start[0])
    for i in range(int(getattr(model, "nactuator", nu))):
        if int(model.actuator_ctrlnum[i]) != 1:
            continue
        column = int(model.actuator_ctrladr[i])
        gain, bias = model.actuator_gainprm[i], model.actuator_biasprm[i]
        dynamics = int(model.actuator_dyntype[i])
        if int(model.actuator_gaintype[i]) != FIXED_GAIN or gain[0] == 0.0:
            continue
        if int(model.actuator_biastype[i]) == AFFINE_BIAS:
            if not has_key and dynamics != INTEGRATOR and lengths is not None:
                base[:, column] = -(bias[0] + bias[1] * lengths[i]) / gain[0]
        elif (
            int(model.actuator_biastype[i]) == NO_BIAS
            and dynamics != INTEGRATOR
            and int(model.actuator_trntype[i]) in JOINT_KINDS
        ):
            joint = int(model.actuator_trnid[i, 0])
            if int(model.jnt_type[joint]) in SCALAR_JOINTS and model.actuator_gear[i, 0] != 0.0:
                torque_per_ctrl = float(gain[0] * model.actuator_gear[i, 0])
                motors.append((column, int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]), torque_per_ctrl))
    low, high = span[:, 0], span[:, 1]
    base = np.clip(base, low, high)
    if not motors:
        return lambda scene, time: base
    columns, positions, dofs, torques = (np.array(values) for values in zip(*motors, strict=True))
    inertia = 1.0 / np.maximum(
        np.asarray(model.dof_invweight0)[dofs], 1e-6
    )  # effective inertia with all other joints free
    reach = float(model.stat.extent) / 4.0
    weight = float(np.sum(model.body_mass)) * float(np.linalg.norm(model.opt.gravity)) * reach
    fastest = STIFFEST / (engine.dt * substeps)
    stiffness = np.clip(weight / 0.2, inertia * min(20.0, fastest) ** 2, inertia * fastest**2)
    damping = 2.0 * np.sqrt(stiffness * inertia)

    def control(scene: Scene, time: float) -> Array:
        qpos, qvel = engine.qpos.cpu().numpy(), engine.qvel.cpu().numpy()
        wanted = stiffness * (start[:, positions] - qpos[:, positions]) - damping * qvel[:, dofs]
        ctrl = base.copy()
        ctrl[:, columns] = wanted / torques
        clipped: Array = np.clip(ctrl, low, high)
        return clipped

    return control


def _lengths(engine: MujocoEngine | MujocoWarpEngine, start: Array) -> Array | None:
    """Return the actuators' lengths in the start pose."""
    model = engine.model
    lengths = np.array(model.actuator_length0, dtype=np.float64)
    for i in range(len(lengths)):
        joint = int(model.actuator_trnid[i, 0])
        if int(model.actuator_trntype[i]) in JOINT_KINDS and int(model.jnt_type[joint]) in SCALAR_JOINTS:
            lengths[i] = model.actuator_gear[i, 0] * start[int(model.jnt_qposadr[joint])]
    return lengths


def random(scene: Scene) -> Control:
    """Return uniform random controls within ctrlrange (by default [-1, 1]), held for 0.1 s each.

    They are a function of the seed, the global index and the episode of an environment, and the time.
    """
    from sensorium.random import Uniform

    engine = cast("OwnEngine", scene.engine)
    span = engine.ctrl_range.numpy()
    low, high = np.where(np.isfinite(span[:, 0]), span[:, 0], -1.0), np.where(np.isfinite(span[:, 1]), span[:, 1], 1.0)

    def control(scene: Scene, time: float) -> Array:
        drawn = scene.draw(f"control/{int(time / RANDOM_PERIOD + 1e-6)}", Uniform(0.0, 1.0), max(1, engine.nu))
        ctrl: Array = low + (high - low) * drawn.cpu().double().numpy()[:, : engine.nu]
        return ctrl

    return control


def from_file(path: Path, scene: Scene) -> Control:
    """Play recorded controls, and hold the last ones.

    They are the array `ctrl` [time, nu] or [time, env, nu] of an `.npz` file, one row every `dt` s, or those of an MCAP
    recording. Environments are those of the whole run: the scene takes its own, from `first_env` on.
    """
    engine, name = cast("OwnEngine", scene.engine), str(path)
    ctrl, times = _recorded(path) if path.suffix == ".mcap" else _rows(path, engine.dt)
    end = scene.first_env + scene.num_envs
    shapes = f"ctrl of shape [time, {engine.nu}] or [time, env, {engine.nu}] with the controls of {end} envs or more"
    is_all = ctrl.ndim == 3 and ctrl.shape[1] >= end
    if not len(ctrl) or ctrl.shape[-1] != engine.nu or not (is_all or ctrl.ndim == 2):
        raise _fault(name, shapes, f"Its ctrl has shape {ctrl.shape}.")
    ctrl = ctrl[:, scene.first_env : end] if is_all else ctrl
    if not np.isfinite(ctrl).all():
        raise _fault(name, "finite numbers in ctrl", "It holds NaN or infinity.")
    return lambda scene, time: ctrl[max(0, int(np.searchsorted(times, time + 1e-9, "right")) - 1)]


def _rows(path: Path, dt: float) -> tuple[Array, Array]:
    """Return the controls of an `.npz` file, and their times, s."""
    arrays = _arrays(path)
    try:
        ctrl = arrays["ctrl"].astype(np.float64)
        dt = float(arrays.get("dt", np.array(dt)))
    except (TypeError, ValueError) as error:
        raise _fault(str(path), "numbers in ctrl and dt", f"It holds others: {error}.") from error
    if not 0.0 < dt < float("inf"):
        raise _fault(str(path), "dt > 0, seconds between rows", f"Its dt is {dt:g}.")
    return ctrl, np.arange(len(ctrl)) * dt


def _recorded(path: Path) -> tuple[Array, Array]:
    """Return the controls of a recording and their times, s; those of one environment are for all."""
    from sensorium.record import replay

    with replay(path) as recording:
        readings = list(recording.control)
        if not readings:
            raise _fault(str(path), "a recording with controls", f"It has the values {listed(recording.logs)}.")
        ctrl = np.stack([reading["value"] for reading in readings]).astype(np.float64)
        times = np.array([reading.time for reading in readings]) - recording.start
    of_all: Array = ctrl[:, 0] if ctrl.shape[1] == 1 else ctrl
    return of_all, times


def _arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an `.npz` file, one of which is `ctrl`."""
    expected, fix = "a file with an array 'ctrl'", "Write np.savez(path, ctrl=..., dt=...)"
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise _fault(str(path), expected, "It does not exist. Check the path.") from None
    except Exception as error:  # NumPy raises many kinds for broken files
        raise _fault(str(path), expected, f"It cannot be read as .npz: {error}. {fix}.") from error
    if "ctrl" not in arrays:
        fix = f"{fix} with ctrl [time, nu] or [time, env, nu]."
        raise _fault(str(path), expected, f"It has: {listed(arrays)}. {fix}")
    return arrays


def from_function(name: str, engine: OwnEngine) -> Control:
    """Call `module:function`, also from the working directory, and check each returned value."""
    function = function_of("control", name)
    nu = getattr(engine, "nu", 0)
    shapes = ((nu,), (engine.num_envs, nu))

    def control(scene: Scene, time: float) -> Any:
        expected = f"numbers of shape {shapes[0]} or {shapes[1]} (env, controls), or None to keep the last control"
        try:
            ctrl = function(scene, time)
        except Exception as error:
            raise _fault(name, expected, f"It failed at t = {time:g} s: {reason(error)}") from error
        if ctrl is None:
            return None
        try:
            shape = tuple(ctrl.shape) if hasattr(ctrl, "shape") else np.asarray(ctrl, dtype=np.float64).shape
        except (TypeError, ValueError):
            shape = None
        if shape not in shapes:
            what = f"{type(ctrl).__name__}" + (f" of shape {shape}" if shape is not None else "")
            raise _fault(name, expected, f"It returned a {what} at t = {time:g} s.")
        return ctrl

    return control


def _fault(name: str, expected: str, fix: str) -> ConfigError:
    return ConfigError.single("Job", "control", name, expected, fix)
