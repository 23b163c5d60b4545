"""A Newton solver: its quantities, its internal state besides `State` and `Control`, its steps and trial steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import warp as wp

from sensorium.compute import Compute
from sensorium.engines.graphs import WorkGraphs
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
    """A solver: the provided quantities, its internal state, and its steps.

    Args:
        model: a `newton.Model`.
        solver: a solver of `newton.solvers` for this model.

    Attributes:
        solver: the solver.
        name: name of the solver's class.
        is_mujoco: whether it is a `SolverMuJoCo`.
        is_reduced: whether joint coordinates are its state, from which it computes the poses of bodies.
        contacts: the `newton.Contacts` that a step uses or exports to; None without contacts.
        observables: the container of all observables that the solver provides; None if it provides none.
        wanted: the observables that the prepared requirements need; None for none.

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
        owner, names = (self.solver.mjw_data, _MUJOCO_STATE) if self.is_mujoco else (self.solver, vars(self.solver))
        for name in names:
            array = getattr(owner, name, None)
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

    def _parts(self) -> list[Any]:
        """Return the arrays and options that a captured step of SolverMuJoCo may have frozen."""
        data, compiled = self.solver.mjw_data, self.solver.mjw_model
        owners = (self.solver.model, compiled, compiled.opt, data, data.contact, data.efc)
        return [value for owner in owners for value in vars(owner).values()]

    # Steps -----------------------------------------------------------------------------------------------------------

    def equip(self, compute: Compute, dt: float, pipeline: Any, contacts: Any, observables: Any) -> None:
        """Allocate the memory of steps.

        Args:
            compute: device of the launches.
            dt: time step, s.
            pipeline: a `newton.CollisionPipeline`; None if the solver finds contacts itself.
            contacts: the `newton.Contacts` that a step uses or exports to; None without contacts.
            observables: the container of all observables that the solver provides; None if it provides none.
        """
        self._dt, self._pipeline, self.contacts, self.observables = dt, pipeline, contacts, observables
        self._graphs = WorkGraphs(compute, self._parts)
        self.wanted: Any = None
        self._spare = self.solver.model.state()
        self._saves: dict[str, Any] = {}

    def want(self, kinds: set[str]) -> None:
        """Compute only these observables."""
        self.wanted = self.observables.select(kinds) if kinds else None

    def tick(self, state: Any, control: Any, observables: Any) -> None:
        """Advance a state by one step under a `newton.Control`; `observables` are filled for the state before it."""
        if self.is_mujoco:
            self._move(state, state, control, observables)
            return
        forces = [(array, wp.clone(array)) for array in (state.body_f, state.particle_f) if array is not None]
        self._move(state, self._spare, control, observables)
        state.assign(self._spare)
        for array, kept in forces:  # a solver may add its own forces to those of the user
            wp.copy(array, kept)

    def observe(self, state: Any, control: Any) -> None:
        """Fill the wanted observables for a state under a `newton.Control`, by a trial step that leaves no trace.

        The trial step of SolverMuJoCo ends before the integration.
        """
        kept = dict(self.internals())  # some solvers create arrays in a step
        if not self.is_mujoco:  # others also write into the state that they step from
            kept |= {f"state.{name}": array for name, array in vars(state).items() if isinstance(array, wp.array)}
        for name, array in kept.items():
            if name not in self._saves or self._saves[name].shape != array.shape:
                self._saves[name] = wp.empty_like(array)
            wp.copy(self._saves[name], array)
        with self.without_integration():
            self._move(state, self._spare, control, self.wanted)
        for name, array in kept.items():
            wp.copy(array, self._saves[name])

    def _move(self, state: Any, out: Any, control: Any, observables: Any) -> None:
        """Step from one state to another, which may be the same for `SolverMuJoCo`."""
        contacts = None
        if self._pipeline is not None:
            self._pipeline.collide(state, self.contacts)
            contacts = self.contacts
        elif self.is_mujoco and observables is not None and observables.is_requested(CONTACTS):
            contacts = self.contacts

        def step() -> None:
            self.solver.step(state, out, control, contacts, self._dt, observables=observables)

        if self.is_mujoco:  # other solvers may allocate
            self._graphs.run((id(state), id(out), id(control), id(observables)), step)
        else:
            step()
