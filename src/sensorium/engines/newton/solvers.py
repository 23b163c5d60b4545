"""Quantities of a Newton solver, and its internal state: inputs of a step besides `State` and `Control`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import warp as wp

from sensorium.engines.newton.layout import newton
from sensorium.errors import ModelError
from sensorium.spec import BODY_ACCELERATION, JOINT_EFFORT, JOINT_WRENCH, Requirement

OBSERVABLES: dict[Requirement, str] = {
    BODY_ACCELERATION: "body_qdd",
    JOINT_WRENCH: "body_parent_f",
    JOINT_EFFORT: "qfrc_actuator",
}
"""Observable of a solver that provides each requirement."""
CONTACTS = "contact_f"
"""Observable that provides contact reports."""
_MUJOCO_STATE = (
    "time", "act", "history", "plastic", "qacc_warmstart", "qpos", "qvel", "ctrl", "qfrc_applied", "xfrc_applied",
    "mocap_pos", "mocap_quat", "tree_asleep",
)  # fmt: skip
"""Fields of mujoco_warp's Data that a step of SolverMuJoCo starts from, if this version has them."""
_PLAIN = ("SolverXPBD", "SolverSemiImplicit", "SolverFeatherstone")
"""Other solvers whose internal state is the arrays among their attributes."""


class SolverAccess:
    """A solver: the provided quantities, and its internal state.

    Args:
        model: a `newton.Model`.
        solver: a solver of `newton.solvers` for this model.

    Attributes:
        solver: the solver.
        name: name of the solver's class.
        is_mujoco: whether it is a `SolverMuJoCo`.
        is_reduced: whether joint coordinates are its state, from which it computes the poses of bodies.

    Raises:
        ModelError: the solver is not one of Newton, belongs to another model, or steps only one of several worlds.
    """

    def __init__(self, model: Any, solver: Any) -> None:
        solvers = newton().solvers
        if not isinstance(solver, solvers.SolverBase):
            raise ModelError(f"NewtonEngine: got {type(solver).__name__} as solver, expected one of newton.solvers.")
        if solver.model is not model:
            raise ModelError("NewtonEngine: the solver belongs to another model: create it from the same model.")
        self.name = type(solver).__name__
        self.is_mujoco = isinstance(solver, solvers.SolverMuJoCo)
        self.is_reduced = self.is_mujoco or isinstance(solver, solvers.SolverFeatherstone)
        if self.is_mujoco and solver.use_mujoco_cpu:
            raise ModelError(
                "NewtonEngine: SolverMuJoCo(use_mujoco_cpu=True) steps only one world: use use_mujoco_cpu=False, or "
                "sensorium.MujocoEngine for MuJoCo on the CPU."
            )
        self.solver = solver
        self._forward: Any = None
        if self.is_mujoco and (package := getattr(solver, "_mujoco_warp", None)) is not None:
            self._forward = SimpleNamespace(**{**vars(package), "step": package.forward})

    def check_unfresh(self) -> None:
        """Raise `ModelError` if the observables of a step do not belong to the state before it."""
        import mujoco  # SolverMuJoCo has imported it

        if self.is_mujoco and int(self.solver.mjw_model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise ModelError(
                "fresh=False, or observables of your loop, with integrator='rk4': a step of SolverMuJoCo leaves the "
                "observables of its last stage, which belong to no tick. Use fresh=True without observables, or "
                "another integrator."
            )

    @property
    def detects_contacts(self) -> bool:
        """Whether the solver finds contacts itself, so that no collision pipeline is needed."""
        if self.is_mujoco:
            return bool(self.solver.mjw_model.opt.run_collision_detection)
        return getattr(self.solver, "collision_pipeline", None) is not None

    def lacks(self, observable: str) -> str | None:
        """Return why an observable cannot be computed for the current state, or None."""
        if observable not in self.solver.supported_observables:
            return f"{self.name} does not provide {observable!r}. Use SolverMuJoCo."
        if not self.is_mujoco and observable == OBSERVABLES[JOINT_WRENCH]:
            return f"the joint wrenches of {self.name} hold only for bodies at rest. Use SolverMuJoCo."
        if not self.is_mujoco and self.name not in _PLAIN:
            return (
                f"{self.name} provides {observable!r} only for the state before its last step, and its internal state "
                "cannot be restored after a trial step. Use SolverMuJoCo."
            )
        return None

    @property
    def provided(self) -> frozenset[str]:
        """Observables that can be computed for the current state."""
        wanted = (*OBSERVABLES.values(), CONTACTS)
        return frozenset(name for name in wanted if self.lacks(name) is None)

    def internals(self) -> Iterator[tuple[str, Any]]:
        """Yield the arrays of the internal state by name."""
        if self.is_mujoco:
            for name in _MUJOCO_STATE:
                array = getattr(self.solver.mjw_data, name, None)
                if isinstance(array, wp.array) and array.size:
                    yield name, array
            return
        for name, array in vars(self.solver).items():
            if isinstance(array, wp.array) and array.size:
                yield name, array

    @contextmanager
    def without_integration(self) -> Iterator[None]:
        """Make a step of SolverMuJoCo stop before the integration: it only fills observables.

        With RK4 this is necessary. A whole step would leave the observables of its last stage.
        """
        if self._forward is None:
            yield
            return
        package, self.solver._mujoco_warp = self.solver._mujoco_warp, self._forward
        try:
            yield
        finally:
            self.solver._mujoco_warp = package

    def parts(self, model: Any) -> list[Any]:
        """Return the arrays and options that a captured step of SolverMuJoCo may have frozen."""
        data, compiled = self.solver.mjw_data, self.solver.mjw_model
        owners = (model, compiled, compiled.opt, data, data.contact, data.efc)
        return [value for owner in owners for value in vars(owner).values()]
