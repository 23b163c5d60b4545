"""Torque at the gearbox output (JOINT_TORQUE): its constants in the model, and models for which it is unavailable.

Joint effort is `qfrc_actuator`: all actuators on the joint (also through tendons, sites and bodies), with the joint's
gravity compensation where `actuatorgravcomp` is on, clamped to `actuatorfrcrange`. The torque at the gearbox output is

    qfrc_actuator - armature * qacc + friction + qfrc_damper

where the armature is the joint's plus that of actuators on it times the square of their gear. `qfrc_damper` is the
force of the joint's and its actuators' dampers. No field of a batch contains the dry friction, but with the primal
solvers (Newton, CG) it is a function of the acceleration: the force of constraint i of friction type is

    -(qacc + b * qvel) / R, clamped to +-frictionloss,      R = (1 - imp) / imp * dof_invweight0,  b = 2 / (dmax * T)

with `imp = solimp[0]`, `dmax = solimp[1]`, `T = max(solref[0], 2 dt)`, or `b = -solref[1] / dmax` where solref is
negative (MuJoCo's manual, Computation, "Solver parameters": at a residual of 0 the stiffness term is 0).
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from sensorium.engines.mujoco.elements import SCALAR, Elements
from sensorium.engines.mujoco.sleep import disabled, may_sleep


def rotor_inertia(model: Any) -> np.ndarray:
    """Return the armature `[dof]` that actuators add to their joints, kg m^2 (slide: kg)."""
    inertia = np.zeros(model.nv)
    on_joint = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    for i in np.flatnonzero(np.isin(model.actuator_trntype, on_joint) * getattr(model, "actuator_armature", 0.0)):
        rotor = model.actuator_armature[i] * model.actuator_gear[int(model.actuator_outadr[i]), 0] ** 2
        inertia[model.jnt_dofadr[model.actuator_trnid[i, 0]]] += rotor
    return inertia


def friction_constants(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return softness `(1 - imp) / imp` and decay `b` (1/s) of the dry friction at each dof, 0 where it is off."""
    if disabled(model.opt, "FRICTIONLOSS") or disabled(model.opt, "CONSTRAINT"):
        return np.zeros(model.nv), np.zeros(model.nv)
    low, high = float(mujoco.mjMINIMP), float(mujoco.mjMAXIMP)
    first, last = (np.clip(model.dof_solimp[:, i], low, high) for i in (0, 1))
    time, ratio = model.dof_solref[:, 0], model.dof_solref[:, 1]
    safe = not disabled(model.opt, "REFSAFE")
    lag = np.maximum(time, 2.0 * float(model.opt.timestep)) if safe else time
    decay = np.where(ratio > 0.0, 2.0 / np.maximum(float(mujoco.mjMINVAL), last * lag), -ratio / last)
    return (1.0 - first) / first, decay


def torque_fault(model: Any, *, friction_known: bool, held: bool = False) -> str | None:
    """Return why the torque at the gearbox outputs of a model is unavailable, or None.

    Args:
        model: compiled MjModel.
        friction_known: whether the engine reads the dry friction instead of computing it.
        held: whether native sensors hold values that MuJoCo does not compute for sleeping bodies.
    """
    why = _tendon_fault(model) or (None if friction_known else _friction_fault(model))
    return why or (_sleep_fault(model) if held else None)


def _sleep_fault(model: Any) -> str | None:
    """Return the fault of a sleeping joint, whose acceleration MuJoCo does not keep and no native sensor measures."""
    inert = model.dof_armature + model.dof_frictionloss + rotor_inertia(model)
    may = may_sleep(model)
    for name, joint in Elements(model).ids["scalar_joint"].items():
        if inert[model.jnt_dofadr[joint]] > 0.0 and may[model.body_treeid[model.jnt_bodyid[joint]]]:
            return (
                f"joint {name!r} has armature or dry friction and may sleep, and MuJoCo does not keep the acceleration "
                'of a sleeping joint: set sleep="never" on the root body of its tree. JOINT_EFFORT, the actuators\' '
                "force, is available."
            )
    return None


def _tendon_fault(model: Any) -> str | None:
    """Return the fault of tendon dampers, which count in qfrc_damper but act on the link beside the drive."""
    damped = (model.tendon_damping != 0.0) | _actuated_dampers(model)
    for tendon in np.flatnonzero(damped):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_TENDON, int(tendon)) or f"tendon_{tendon}"
        start, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
        if model.wrap_type[start] == int(mujoco.mjtWrap.mjWRAP_JOINT):
            elements = Elements(model)
            over = "joint " + ", ".join(
                repr(elements.name("joint", joint)) for joint in model.wrap_objid[start : start + count]
            )
        else:
            over = "the joints along it"
        return (
            f"tendon {name!r} damps {over}, which MuJoCo adds to their own damping: move its damping to the joints. "
            "JOINT_EFFORT, the actuators' force, is available."
        )
    return None


def _actuated_dampers(model: Any) -> np.ndarray:
    damped = np.zeros(model.ntendon, dtype=bool)
    on_tendon = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_TENDON)
    acting = np.flatnonzero(on_tendon * getattr(model, "actuator_damping", 0.0))
    damped[model.actuator_trnid[acting, 0]] = True
    return damped


def _friction_fault(model: Any) -> str | None:
    rubbing = np.flatnonzero(np.isin(model.jnt_type, SCALAR) & (model.dof_frictionloss[model.jnt_dofadr] > 0.0))
    softness, _ = friction_constants(model)
    if not len(rubbing) or not softness.any():
        return None
    joint = int(rubbing[0])
    name = Elements(model).name("joint", joint)
    solver, integrator = mujoco.mjtSolver(model.opt.solver), mujoco.mjtIntegrator(model.opt.integrator)
    why = ""
    if solver == mujoco.mjtSolver.mjSOL_PGS:
        why = 'the PGS solver: choose solver="Newton" or "CG"'
    elif model.opt.noslip_iterations > 0:
        why = "noslip iterations: set noslip_iterations to 0"
    elif integrator == getattr(mujoco.mjtIntegrator, "mjINT_DISCRETE", None):
        why = "the discrete integrator: choose another one"
    elif not _friction_as_expected(model):
        why = f"this version of MuJoCo ({mujoco.__version__}), whose friction model differs from the supported one"
    if not why:
        return None
    return (
        f"joint {name!r} has dry friction (frictionloss), which is unavailable with {why}; or step a live model "
        "yourself: MujocoEngine.from_mj(model, data). JOINT_EFFORT, the actuators' force, is available."
    )


def _friction_as_expected(model: Any) -> bool:
    """Whether MuJoCo's dry friction in a moving state equals the formula."""
    data = mujoco.MjData(model)
    data.qvel[:] = np.cos(np.arange(1.0, model.nv + 1.0))
    mujoco.mj_forward(model, data)
    real = dry_friction(model, data)
    softness, decay = friction_constants(model)
    regularisation = np.maximum(softness * model.dof_invweight0, float(mujoco.mjMINVAL))
    force = -(data.qacc + decay * data.qvel) / regularisation
    expected = np.clip(force, -model.dof_frictionloss, model.dof_frictionloss)
    return bool(np.allclose(real, expected, rtol=1e-6, atol=1e-9 * max(1.0, float(model.dof_frictionloss.max()))))


def dry_friction(model: Any, data: Any) -> np.ndarray:
    """Return the dry friction force at each dof `[dof]`, N m (N), of MjData after a forward computation."""
    friction = np.zeros(model.nv)
    rows = np.flatnonzero(data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_FRICTION_DOF))
    friction[data.efc_id[rows]] = data.efc_force[rows]
    return friction
